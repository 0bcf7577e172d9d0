/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a division from a config. */
#include "division.h"

#include <string.h>

#include "ppcli/pipe/layout.h"
#include "ppcli/base/base.h"
#include "ppcli/nn/model.h"

struct pp_training pp_training_of(const struct pp_config *cfg, int train_n, int test_n)
{
    int batch = cfg->train.batch_size;
    int dropped = cfg->data.drop_last && train_n > batch ? train_n % batch : 0;
    return (struct pp_training){.backend = pp_backend_choice_of(cfg),
                                .batch = batch,
                                .train_n = train_n - dropped,
                                .train_all = train_n,
                                .test_n = test_n,
                                .logits_rows = cfg->model.logits_rows,
                                .clips = cfg->train.clip_norm > 0 || cfg->run.log_norm,
                                .reads_gradients = cfg->train.read_gradients,
                                .processes = cfg->run.launch == PP_LAUNCH_MPIRUN};
}

struct pp_division pp_division_shape(const struct pp_config *cfg)
{
    const struct pp_schedule_ops *schedule = pp_schedule_find(cfg->pipeline.schedule);
    int chunks = cfg->pipeline.chunks;
    return (struct pp_division){
        .schedule = schedule,
#define PP_KEY(section, TYPE, k, ...) .k = cfg->pipeline.k,
#include "ppcli/base/keys_schedule.def"
#undef PP_KEY
        .ticks = cfg->pipeline.costs.n > 0 ? cfg->pipeline.costs.at : NULL,
        .stages = cfg->pipeline.stages,
        .chunks = chunks == 0 && schedule ? pp_schedule_default_chunks(schedule) : chunks,
        .replicas = cfg->pipeline.replicas,
        .tensor = 1,
        .context = 1,
        .expert = 1,
        .microbatches = cfg->pipeline.microbatches,
        .threads = pp_backend_choice_of(cfg).threads,
        .coalesce = cfg->train.coalesce,
        .zero = cfg->train.zero,
        .across = cfg->run.rank_order == PP_ORDER_REPLICAS,
        .redo = cfg->pipeline.recompute[0] ? PP_REDO_FULL : PP_REDO_NONE};
}

/* ---- tables */

int pp_division_find_placement(const struct pp_division *d, enum pp_placement *out)
{
    static const enum pp_placement known[] = {PP_PLACE_LOOP, PP_PLACE_V};
    const struct pp_plan *table = d->table;
    if (d->schedule) {
        *out = d->schedule->placement;
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        int s = 0;
        while (s < table->n_virtual &&
               table->rank_of[s] == pp_place(known[i], table->geometry.stages, s))
            s++;
        if (s == table->n_virtual) {
            *out = known[i];
            return 0;
        }
    }
    return pp_fail(PP_ECONFIG,
                   "its stages lie neither in a loop (stage s on rank s mod %d) nor in "
                   "a V: it can be simulated, but not trained with",
                   table->geometry.stages);
}

/* Sets the number of chunks to that of the table, and checks that the table is for this run's
 * stages and chunks. */
static int set_table_chunks(const struct pp_config *cfg, struct pp_division *d)
{
    const char *path = cfg->pipeline.schedule + strlen(PP_SCHEDULE_FILE);
    const struct pp_geometry *g = &d->table->geometry;
    enum pp_placement placement;
    if (g->stages != d->stages || (d->chunks > 0 && g->chunks != d->chunks)) {
        return pp_fail(PP_ECONFIG,
                       "%s is for %d stages of %d chunk%s: set pipeline.stages = %d and "
                       "pipeline.chunks = %d",
                       path, g->stages, g->chunks, pp_plural(g->chunks), g->stages, g->chunks);
    }
    d->chunks = g->chunks;
    return pp_division_find_placement(d, &placement) < 0 ? pp_error_context("%s", path) : 0;
}

/* ---- cut */

int pp_division_cut(const struct pp_config *cfg, const struct pp_model *model,
                    struct pp_division *d, const char **key)
{
    int n = pp_division_pieces(d);
    if (n > model->n_layers) { /* pp_partition() names the fault */
        *key = "pipeline.stages";
        return pp_partition(model, cfg, n, NULL, NULL);
    }
    if (n > PP_STAGES_MAX)
        return pp_fail_about(key, "pipeline.chunks",
                             "%d stages x %d chunks are more than %d pieces", d->stages, d->chunks,
                             PP_STAGES_MAX);
    PP_TAKE(int, first, 2 * n);
    int *last = first + n;
    *key = cfg->pipeline.split_at[0] ? "pipeline.split_at" : "pipeline.assignment";
    PP_TRY(pp_partition(model, cfg, n, first, last));
    for (int s = 0; s < n; s++)
        d->last[s] = (uint16_t)last[s];
    return 0;
}

int pp_division_redo(const struct pp_config *cfg, const struct pp_model *model,
                     struct pp_division *d, const char **key)
{
    int n = pp_division_pieces(d);
    const char *text = cfg->pipeline.recompute;
    PP_TAKE(int, first, 2 * n);
    for (int s = 0; s < n; s++) {
        first[s] = pp_division_first(d, s);
        first[n + s] = d->last[s];
    }
    *key = "pipeline.recompute";
    return pp_recompute_stages(model, text, n, first, first + n, d->recompute);
}

int pp_division_of(const struct pp_config *cfg, const struct pp_model *model,
                   const struct pp_plan *table, struct pp_division *out, const char **key)
{
    *out = pp_division_shape(cfg);
    out->table = table;
    *key = "pipeline.schedule";
    PP_TRY(table ? set_table_chunks(cfg, out) : 0);
    if (!table && !out->schedule) /* only auto and tables have no schedule here */
        return pp_fail_about(key, "pipeline.schedule",
                             "schedule = auto needs measured times; name a schedule here");
    PP_TRY(pp_division_cut(cfg, model, out, key));
    int ticks = cfg->pipeline.costs.n, n = 3 * pp_division_pieces(out);
    if (ticks > 0 && ticks != n && ticks != n + 1 && out->schedule && out->schedule->fits)
        return pp_fail_about(key, "pipeline.costs",
                             "pipeline.costs has %d numbers; write F,I,W of %d chunks", ticks,
                             n / 3);
    return pp_division_redo(cfg, model, out, key);
}
