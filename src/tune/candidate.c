/* SPDX-License-Identifier: Apache-2.0 */
/* One candidate of the search: laid out as the run would lay it out, its memory counted, its plan
 * told from others, its step predicted and its bubble explained. */
#include "best.h"

#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

/* The candidate's cut; costs: by time, else as the config says. */
static int set_ranges(struct pp_config *cfg, const struct pp_model *model,
                      const struct pp_costs *costs, int rows, int n)
{
    double *by_layer = pp_alloc((size_t)model->n_layers, sizeof(*by_layer));
    int *first = pp_alloc(2 * (size_t)n, sizeof(*first)), *last = first ? first + n : NULL;
    int rc = PP_ERESOURCE;
    if (by_layer && first && costs) {
        pp_costs_by_layer(costs, rows, by_layer);
        rc = pp_partition_costs(model, by_layer, n, first, last);
    } else if (by_layer && first) {
        rc = pp_partition(model, cfg, n, first, last);
    }
    if (rc == 0) {
        pp_ranges_text(model, first, last, n, cfg->pipeline.ranges, sizeof(cfg->pipeline.ranges));
        cfg->pipeline.split_at[0] = '\0';
        cfg->pipeline.assignment = PP_ASSIGN_EXPLICIT;
    }
    pp_free(by_layer);
    pp_free(first);
    return rc;
}

int pp_best_config(const struct pp_config *cfg, const struct pp_model *model,
                   const struct pp_candidate *c, const struct pp_costs *costs,
                   struct pp_config **out)
{
    struct pp_config *copy = pp_alloc(1, sizeof(*copy));
    if (!copy)
        return PP_ERESOURCE;
    *copy = *cfg;
    snprintf(copy->pipeline.schedule, sizeof(copy->pipeline.schedule), "%s", c->schedule);
    copy->pipeline.stages = c->stages;
    copy->pipeline.microbatches = c->microbatches;
    copy->pipeline.chunks = c->chunks;
    copy->pipeline.eager = c->eager > 0 ? c->eager : copy->pipeline.eager;
    int n = c->stages * c->chunks, rc = 0;
    if (n == 1) {
        copy->pipeline.assignment = PP_ASSIGN_AUTO;
        copy->pipeline.ranges[0] = copy->pipeline.split_at[0] = '\0';
    } else if (c->assignment != PP_ASSIGN_EXPLICIT) {
        int rows, first;
        pp_balanced_piece(cfg->train.batch_size, cfg->pipeline.replicas * c->microbatches, 0,
                          &first, &rows);
        rc = set_ranges(copy, model, c->assignment == PP_ASSIGN_TIME ? costs : NULL, rows, n);
    }
    if (rc < 0) {
        pp_free(copy);
        return rc;
    }
    *out = copy;
    return 0;
}

static int peak_of(const struct pp_layout *l, bool processes, size_t *out)
{
    size_t most = 0;
    struct pp_transport_caps caps = {.shared_slots = !processes, .processes = processes};
    for (int r = 0; r < l->stages; r++) {
        struct pp_exec_spec spec = {.layout = l, .rank = r, .caps = caps};
        struct pp_exec_bytes bytes;
        PP_TRY(pp_exec_predict(&spec, &bytes));
        most = bytes.total > most ? bytes.total : most;
    }
    *out = most;
    return 0;
}

static void mix(uint64_t *hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        *hash = (*hash ^ p[i]) * 0x100000001b3u; /* FNV-1a */
}

/* The same for candidates whose ranks do the same in the same order on the same layers. */
static uint64_t identity_of(const struct pp_layout *l, const struct pp_plan *plan)
{
    uint64_t hash = 0xcbf29ce484222325u;
    mix(&hash, &plan->geometry.microbatches, sizeof(int));
    mix(&hash, l->last, (size_t)l->n_virtual * sizeof(int));
    mix(&hash, l->rank_of, (size_t)l->n_virtual * sizeof(int));
    for (int r = 0; r < l->stages; r++) {
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &plan->ranks[r].actions[k];
            mix(&hash, (int[]){r, a->op, a->stage, a->mb}, 4 * sizeof(int));
        }
    }
    return hash;
}

static int predict(const struct pp_best_spec *spec, const struct pp_costs *costs,
                   const struct pp_layout *l, bool explain, struct pp_prediction *out)
{
    struct pp_predict_spec p = {
        .plan = l->plans[0].plan,
        .model = spec->model,
        .costs = costs,
        .first = l->first,
        .last = l->last,
        .rows = best_share(spec),
        .replicas = l->replicas,
        .meet_every = l->cfg->train.clip_norm > 0 ? 1 : l->cfg->run.log_every,
        .meet_after = PP_RUN_MEET_NS * 1e-9,
        .explain = explain,
    };
    return pp_predict(&p, out);
}

/* The candidate as it would run. The caller owns both. */
static int lay_out(const struct pp_best_spec *spec, const struct pp_costs *costs,
                   const struct pp_candidate *c, struct pp_config **cfg, struct pp_layout **l)
{
    PP_TRY(pp_best_config(spec->cfg, spec->model, c, costs, cfg));
    (*cfg)->source = NULL; /* what is wrong with a try is nobody's problem */
    return pp_layout_create(*cfg, spec->model, spec->train_n, spec->test_n, l);
}

int best_evaluate(const struct pp_best_spec *spec, const struct pp_costs *costs,
                  struct pp_candidate *c)
{
    struct pp_config *cfg = NULL;
    struct pp_layout *l = NULL;
    int rc = lay_out(spec, costs, c, &cfg, &l);
    if (rc == 0)
        rc = peak_of(l, cfg->run.launch == PP_LAUNCH_MPIRUN, &c->peak_bytes);
    if (rc == 0) {
        c->identity = identity_of(l, l->plans[0].plan);
        rc = predict(spec, costs, l, false, &c->time);
    }
    pp_layout_destroy(&l);
    pp_free(cfg);
    return rc;
}

int pp_best_explain(const struct pp_best_spec *spec, const struct pp_costs *costs,
                    struct pp_candidate *c, char advice[PP_ADVICE_MAX])
{
    struct pp_config *cfg = NULL;
    struct pp_layout *l = NULL;
    double *cost = pp_alloc((size_t)spec->model->n_layers, sizeof(*cost));
    int rc = cost ? lay_out(spec, costs, c, &cfg, &l) : PP_ERESOURCE;
    if (rc == 0)
        rc = predict(spec, costs, l, true, &c->time);
    if (rc == 0 && advice) {
        pp_costs_by_layer(costs, pp_best_rows(spec, c->microbatches), cost);
        struct pp_advice_spec a = {
            .layout = l, .bubble = &c->time.bubble, .cost = cost, .searched = true, .waited = -1};
        rc = pp_advice(&a, advice);
    }
    pp_layout_destroy(&l);
    pp_free(cfg);
    pp_free(cost);
    return rc;
}
