/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `schedule = auto`, `assignment = time` and the k of 1f1b-eager become what a measurement chooses,
 * before anything is laid out. Under MPI rank 0 measures while the others wait, and all take over
 * its choice: two processes never measure the same.
 */
#include "ppcli/best.h"

#include <string.h>

#include "ppcli/err.h"
#include "ppcli/log.h"
#include "ppcli/mem.h"

#define SECONDS 2.0 /* for measuring, about */

/* What is chosen, as it would stand in a file. */
struct choice {
    char schedule[PP_NAME_MAX]; /* empty: was given */
    int chunks, eager;
    char ranges[PP_CUT_MAX]; /* empty: were given */
};

static bool open_schedule(const struct pp_config *cfg)
{
    return strcmp(cfg->pipeline.schedule, "auto") == 0;
}

static bool open_cut(const struct pp_config *cfg)
{
    return cfg->pipeline.assignment == PP_ASSIGN_TIME;
}

static bool open_eager(const struct pp_config *cfg)
{
    return pp_schedule_is_eager(cfg->pipeline.schedule) && cfg->pipeline.eager == 0;
}

static void announce(const struct pp_best_spec *spec, const struct pp_best *best,
                     const struct pp_costs *costs)
{
    const struct pp_candidate *c = &best->items[0], *other = NULL;
    for (int i = 1; i < best->n && !other; i++)
        other = strcmp(best->items[i].schedule, c->schedule) != 0 ? &best->items[i] : NULL;
    char chunks[32] = "", next[128] = "no other fits";
    if (c->chunks > 1)
        snprintf(chunks, sizeof(chunks), " with %d chunks", c->chunks);
    if (other)
        snprintf(next, sizeof(next), "then %s, %.3f ms", other->schedule, other->time.step * 1e3);
    pp_log_info("schedule auto: %s%s, %.3f ms a step predicted for %d micro-batches (%s); "
                "measured in %.1f s, %d of %d shapes can run",
                c->schedule, chunks, c->time.step * 1e3, spec->cfg->pipeline.microbatches, next,
                costs->took, best->n, best->tried);
}

static int choose_schedule(const struct pp_best_spec *spec, const struct pp_costs *costs,
                           struct choice *out)
{
    struct pp_best best;
    PP_TRY(pp_best_search(spec, costs, &best));
    if (best.n == 0) {
        pp_best_fini(&best);
        return pp_fail(PP_ECONFIG,
                       "pipeline.schedule = auto: no schedule can run %d stages with %d "
                       "micro-batches%s",
                       spec->cfg->pipeline.stages, spec->cfg->pipeline.microbatches,
                       spec->cfg->pipeline.chunks > 0 ? " and this many chunks" : "");
    }
    const struct pp_candidate *c = &best.items[0];
    announce(spec, &best, costs);
    memcpy(out->schedule, c->schedule, sizeof(out->schedule));
    out->chunks = c->chunks;
    out->eager = c->eager;
    pp_best_fini(&best);
    return 0;
}

static int choose_cut(const struct pp_best_spec *spec, const struct pp_costs *costs,
                      struct choice *out)
{
    const struct pp_config *cfg = spec->cfg;
    int chunks = out->chunks > 0 ? out->chunks : cfg->pipeline.chunks;
    if (chunks == 0) {
        const struct pp_schedule_ops *ops = pp_schedule_find(cfg->pipeline.schedule);
        if (!ops) {
            return pp_fail(PP_ECONFIG, "pipeline.assignment = time needs pipeline.chunks when the "
                                       "schedule is a table");
        }
        chunks = pp_schedule_default_chunks(ops);
    }
    int64_t n = (int64_t)chunks * cfg->pipeline.stages;
    if (n > spec->model->n_layers || n > PP_STAGES_MAX) {
        return pp_fail(PP_ECONFIG,
                       "pipeline.assignment = time: %d stages of %d chunks for %d layers; each "
                       "chunk needs one",
                       cfg->pipeline.stages, chunks, spec->model->n_layers);
    }
    struct pp_candidate c = {.stages = cfg->pipeline.stages,
                             .chunks = chunks,
                             .microbatches = cfg->pipeline.microbatches,
                             .assignment = PP_ASSIGN_TIME};
    struct pp_config *cut = NULL;
    PP_TRY(pp_best_config(cfg, spec->model, &c, costs, &cut));
    snprintf(out->ranges, sizeof(out->ranges), "%s", n > 1 ? cut->pipeline.ranges : "auto");
    pp_free(cut);
    pp_log_info("assignment time: %s; measured in %.1f s", out->ranges, costs->took);
    return 0;
}

static int choose(struct pp_config *cfg, enum pp_run_need need, bool processes, struct choice *out)
{
    struct pp_model *model = NULL;
    struct pp_costs *costs = NULL;
    struct pp_best_spec spec = {.cfg = cfg};
    memset(out, 0, sizeof(*out));
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TRAIN, &spec.train_n));
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TEST, &spec.test_n));
    PP_TRY(pp_run_model(cfg, &model));
    spec.model = model;
    int rc = pp_best_measure(&spec, SECONDS, &costs);
    if (rc == 0 && processes) {
        /* this process may be bound to one core; the others have theirs */
        costs->cores = cfg->pipeline.stages * cfg->pipeline.replicas;
    }
    if (rc == 0 && open_schedule(cfg))
        rc = choose_schedule(&spec, costs, out);
    if (rc == 0 && open_cut(cfg))
        rc = choose_cut(&spec, costs, out);
    if (rc == 0 && open_eager(cfg)) {
        out->eager = pp_best_eager(&spec, costs, cfg->pipeline.stages, cfg->pipeline.microbatches);
        pp_log_info("%s: k = %d from the cost of a hand-over; measured in %.1f s",
                    cfg->pipeline.schedule, out->eager, costs->took);
    }
    pp_costs_destroy(&costs);
    pp_model_destroy(&model);
    return rc;
}

static int put(struct pp_config *cfg, const char *key, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    return pp_config_choose(cfg, key, text);
}

static int take_over(struct pp_config *cfg, const struct choice *c)
{
    if (c->schedule[0]) {
        PP_TRY(pp_config_choose(cfg, "pipeline.schedule", c->schedule));
        if (cfg->pipeline.chunks == 0)
            PP_TRY(put(cfg, "pipeline.chunks", c->chunks));
    }
    if (cfg->pipeline.eager == 0 && c->eager > 0)
        PP_TRY(put(cfg, "pipeline.eager", c->eager));
    return c->ranges[0] ? pp_config_choose(cfg, "pipeline.assignment", c->ranges) : 0;
}

/* Collective: rank 0's choice on every rank. */
static int share(struct pp_transport *tp, int rc, struct choice *c)
{
    struct choice *all = pp_alloc((size_t)tp->size, sizeof(*all));
    rc = pp_transport_agree(tp, rc == 0 && !all ? PP_ERESOURCE : rc);
    if (rc == 0) {
        pp_assert(c != NULL && all != NULL); /* or this rank had not agreed */
        rc = pp_transport_allgather(tp, c, sizeof(*c), all);
    }
    if (rc == 0)
        *c = all[0];
    pp_free(all);
    return rc;
}

bool pp_choose_wanted(const struct pp_config *cfg)
{
    return open_schedule(cfg) || open_cut(cfg) || open_eager(cfg);
}

int pp_choose(struct pp_config *cfg, enum pp_run_need need, struct pp_transport *tp)
{
    if (!pp_choose_wanted(cfg))
        return 0;
    struct choice *c = pp_alloc(1, sizeof(*c));
    int rc = c ? 0 : PP_ERESOURCE;
    if (rc == 0 && (!tp || tp->rank == 0))
        rc = choose(cfg, need, tp != NULL, c);
    if (tp)
        rc = share(tp, rc, c);
    if (rc == 0)
        rc = take_over(cfg, c);
    pp_free(c);
    return rc;
}
