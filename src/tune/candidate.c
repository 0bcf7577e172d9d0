/* SPDX-License-Identifier: Apache-2.0 */
/* One candidate of the search: laid out as the run would lay it out, its memory counted, its plan
 * told from others, its step predicted and its bubble explained. */
#include "tune.h"

#include <string.h>

/* [n_virtual] of a candidate with a cut of its own. */
static void ranges_of(const struct pp_candidate *c, int *first, int *last)
{
    for (int s = 0; s < c->stages * c->chunks; s++) {
        first[s] = s > 0 ? last[s - 1] + 1 : 0;
        last[s] = c->last[s];
    }
}

/* The candidate's cut and what is computed again, as text. */
static int set_cut(struct pp_config *cfg, const struct pp_model *model,
                   const struct pp_candidate *c)
{
    int n = c->stages * c->chunks, all = 0;
    char *again = cfg->pipeline.recompute, *end = again + sizeof(cfg->pipeline.recompute);
    PP_TAKE(int, first, 2 * n);
    int *last = first + n;
    if (c->assignment == PP_ASSIGN_TIME)
        ranges_of(c, first, last);
    else
        PP_TRY(pp_partition(model, cfg, n, first, last));
    if (c->assignment != PP_ASSIGN_EXPLICIT) {
        pp_ranges_text(model, first, last, n, cfg->pipeline.ranges, sizeof(cfg->pipeline.ranges));
        cfg->pipeline.split_at[0] = '\0';
        cfg->pipeline.assignment = PP_ASSIGN_EXPLICIT;
    }
    if (!c->recompute)
        return 0;
    *again = '\0';
    for (int s = 0; s < n; s++)
        all += c->again[s];
    for (int s = 0; s < n && all < n && again + PP_LAYER_NAME_MAX < end; s++) {
        if (c->again[s] && again != cfg->pipeline.recompute)
            *again++ = ' ';
        if (c->again[s])
            again +=
                strlen(pp_ranges_text(model, first + s, last + s, 1, again, (size_t)(end - again)));
    }
    if (all == n)
        memcpy(again, "all", sizeof("all"));
    return 0;
}

/* What the order of the candidate is made for: the measured times of its cut, and of a transfer
 * within a host. */
static int set_costs(struct pp_config *cfg, const struct pp_model *model,
                     const struct pp_candidate *c, const struct pp_costs *costs)
{
    const struct pp_schedule_ops *ops = pp_schedule_find(c->schedule);
    int p = c->stages, n = p * c->chunks, d = cfg->pipeline.replicas, at, rows;
    int k = pp_layout_coalesce(cfg, model, c->microbatches);
    double width = 0;
    PP_TAKE(int, first, 2 * n);
    PP_TAKE(double, times, 3 * (size_t)n + 1);
    int *last = first + n;
    PP_TRY(ops ? pp_partition(model, cfg, n, first, last) : PP_ERESOURCE);
    pp_balanced_piece(cfg->train.batch_size, d, 0, &at, &rows);
    pp_balanced_piece(rows, c->microbatches, 0, &at, &rows);
    for (int s = 0; s < n; s++) {
        int a = pp_place(ops->placement, p, s), b = pp_place(ops->placement, p, s + 1);
        double slower = cfg->pipeline.slower.n == p ? cfg->pipeline.slower.at[a] : 1;
        costs_stage(costs, first[s], last[s], rows, k, pp_layout_logits_rows(cfg, model, rows) > 0,
                    times + 3 * (size_t)s);
        for (int op = 0; op < 3; op++)
            times[3 * s + op] = times[3 * s + op] * slower + costs->action;
        if (s < n - 1 && a != b)
            width += (double)model->layers[last[s]].out / (n - 1);
    }
    times[3 * (size_t)n] = costs->latency + costs->byte * rows * width * costs->value_bytes;
    pp_schedule_ticks(times, n, cfg->pipeline.costs.at);
    cfg->pipeline.costs.n = 3 * n + (cfg->pipeline.costs.at[3 * (size_t)n] > 0);
    cfg->pipeline.memory_cap = c->cap;
    return 0;
}

int pp_best_config(const struct pp_config *cfg, const struct pp_model *model,
                   const struct pp_candidate *c, const struct pp_costs *costs,
                   struct pp_config **out)
{
    struct pp_config *copy;
    PP_ALLOC(copy, 1);
    *copy = *cfg;
    best_divide(copy, c->replicas, c->threads);
    costs = pp_costs_at(costs, copy->run.threads);
    if (c->schedule[0] && strcmp(c->schedule, cfg->pipeline.schedule) != 0)
        copy->pipeline.costs.n = 0; /* of another order */
    if (c->schedule[0])
        snprintf(copy->pipeline.schedule, sizeof(copy->pipeline.schedule), "%s", c->schedule);
    copy->pipeline.stages = c->stages;
    copy->pipeline.microbatches = c->microbatches;
    copy->pipeline.chunks = c->chunks;
    copy->run.rank_order = c->across ? PP_ORDER_REPLICAS : copy->run.rank_order;
    copy->pipeline.eager = c->eager > 0 ? c->eager : copy->pipeline.eager;
    bool one = c->stages * c->chunks == 1;
    if (one) {
        copy->pipeline.assignment = PP_ASSIGN_AUTO;
        copy->pipeline.ranges[0] = copy->pipeline.split_at[0] = '\0';
    }
    int rc = set_cut(copy, model, c);
    if (c->coalesce > 0) { /* what a config has by itself need not be said */
        copy->train.coalesce = 0;
        bool own = c->coalesce == pp_layout_coalesce(copy, model, c->microbatches);
        copy->train.coalesce = own ? 0 : c->coalesce;
    }
    if (rc == 0 && c->cap > 0)
        rc = set_costs(copy, model, c, costs);
    if (one) {
        copy->pipeline.assignment = PP_ASSIGN_AUTO;
        copy->pipeline.ranges[0] = '\0';
    }
    PP_TRY_UNDO(rc, pp_free(copy));
    *out = copy;
    return 0;
}

#define SHARES 32 /* replicas whose memory is counted, and the last one's */

int best_peaks(const struct pp_layout *l, size_t *peaks, size_t *most)
{
    bool processes = l->cfg->run.launch == PP_LAUNCH_MPIRUN;
    struct pp_transport_caps caps = {.shared_slots = !processes, .processes = processes};
    int ranks = l->cfg->train.zero > 0 ? l->ranks : l->stages; /* their shares may differ */
    *most = 0;
    for (int r = 0; r < ranks; r++) {
        if (r == SHARES * l->stages &&
            ranks - r > l->stages) /* a little, and the last one's most */
            r = ranks - l->stages;
        struct pp_exec_spec spec = {.layout = l, .rank = r, .caps = caps};
        struct pp_exec_bytes bytes;
        PP_TRY(pp_exec_predict(&spec, &bytes));
        *most = bytes.total > *most ? bytes.total : *most;
        if (peaks && (r < l->stages || bytes.total > peaks[r % l->stages]))
            peaks[r % l->stages] = bytes.total;
    }
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
    mix(&hash, &l->coalesce, sizeof(int)); /* the same W may be fewer products */
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

int best_predict(const struct pp_best_spec *spec, const struct pp_costs *costs,
                 const struct pp_layout *l, double enough, bool explain, struct pp_prediction *out)
{
    struct pp_predict_spec p = {
        .plan = l->plans[0].plan,
        .model = spec->model,
        .costs = costs,
        .first = l->first,
        .last = l->last,
        .tied = l->tied,
        .rows = best_share(spec, 0),
        .replicas = l->replicas,
        .slower = l->cfg->pipeline.slower.n == l->stages ? l->cfg->pipeline.slower.at : NULL,
        .pieces = l->logits_rows > 0,
        .zero = l->cfg->train.zero > 0 && pp_optimizer_moments(l->cfg->train.optimizer) > 0,
        .shares_sums = pp_layout_shares_sums(l),
        .clips = l->cfg->train.clip_norm > 0,
        .across = spec->places && l->cfg->run.rank_order == PP_ORDER_REPLICAS,
        .vote = pp_layout_proves_finite(l) ? PP_SIM_VOTE_AT_I : PP_SIM_VOTE_AT_END,
        .meet_every = spec->endless ? 0 : pp_run_meet_every(l->cfg, l->train_n),
        .meet_after = PP_RUN_MEET_NS * 1e-9,
        .explain = explain,
        .enough = enough,
        .see = explain ? spec->see : NULL,
        .ctx = spec->ctx,
    };
    return pp_predict(&p, out);
}

/* The candidate as it would run. The caller owns both. */
int best_lay_out(const struct pp_best_spec *spec, const struct pp_costs *costs,
                 const struct pp_candidate *c, struct pp_config **cfg, struct pp_layout **l)
{
    PP_TRY(pp_best_config(spec->cfg, spec->model, c, costs, cfg));
    (*cfg)->source = NULL; /* a problem of a try is not reported */
    return pp_layout_create(*cfg, spec->model, spec->train_n, spec->test_n, l);
}

int pp_best_try(const struct pp_best_spec *spec, const struct pp_costs *costs,
                struct pp_candidate *c)
{
    PP_OWN_MEMORY struct pp_config *cfg = NULL;
    PP_OWN(pp_layout_destroy) struct pp_layout *l = NULL;
    PP_TRY(best_lay_out(spec, costs, c, &cfg, &l));
    PP_TRY(best_peaks(l, NULL, &c->peak_bytes));
    c->together = l->coalesce;
    c->over = spec->memory > 0 && c->peak_bytes > spec->memory;
    c->identity = identity_of(l, l->plans[0].plan) + c->across;
    return best_predict(spec, costs, l, 0, false, &c->time);
}

int pp_best_bytes(const struct pp_best_spec *spec, const struct pp_costs *costs,
                  const struct pp_candidate *c, struct pp_exec_bytes *out)
{
    PP_OWN_MEMORY struct pp_config *cfg = NULL;
    PP_OWN(pp_layout_destroy) struct pp_layout *l = NULL;
    struct pp_exec_bytes most = {0};
    PP_TRY(best_lay_out(spec, costs, c, &cfg, &l));
    for (int r = 0; r < l->stages; r++) {
        struct pp_exec_spec rank = {.layout = l, .rank = r};
        struct pp_exec_bytes bytes;
        PP_TRY(pp_exec_predict(&rank, &bytes));
        most = bytes.total > most.total ? bytes : most;
    }
    *out = most;
    return 0;
}

int pp_best_explain(const struct pp_best_spec *spec, const struct pp_costs *costs,
                    struct pp_candidate *c, char advice[PP_ADVICE_MAX])
{
    PP_OWN_MEMORY struct pp_config *cfg = NULL;
    PP_OWN(pp_layout_destroy) struct pp_layout *l = NULL;
    PP_TAKE(double, cost, spec->model->n_layers);
    PP_TAKE(struct pp_config, own, 1);
    const struct pp_best_spec shape = best_spec_of(spec, c->replicas, c->threads, own);
    costs = pp_costs_at(costs, own->run.threads);
    PP_TRY(best_lay_out(&shape, costs, c, &cfg, &l));
    PP_TRY(best_predict(&shape, costs, l, 0, true, &c->time));
    if (!advice)
        return 0;
    pp_costs_by_layer(costs, pp_best_rows(&shape, c->microbatches), cost);
    struct pp_advice_spec a = {
        .layout = l, .bubble = &c->time.bubble, .cost = cost, .searched = true, .waited = -1};
    return pp_advice(&a, advice);
}
