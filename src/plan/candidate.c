/* SPDX-License-Identifier: Apache-2.0 */
/* One candidate of the search: laid out as the run would lay it out, its memory counted, its plan
 * told from others, its step predicted and its bubble explained. */
#include "search.h"

#include <string.h>

struct pp_space pp_space_of(const struct pp_config *cfg, const struct pp_model *model, int train_n,
                            int test_n)
{
    return (struct pp_space){.cfg = cfg,
                             .model = model,
                             .training = pp_training_of(cfg, train_n, test_n),
                             .base = pp_division_shape(cfg),
                             .chunks = cfg->pipeline.chunks,
                             .timed = cfg->pipeline.assignment == PP_ASSIGN_TIME};
}

/* Sets `ticks`, the times for which the order of a division is made: the measured times of its
 * chunks, and of a transfer within a host. */
static int set_ticks(const struct pp_space *spec, const struct pp_costs *costs,
                     struct pp_division *d, int64_t *ticks)
{
    const struct pp_model *model = spec->model;
    const struct pp_floats *slow = &spec->cfg->pipeline.slower;
    int p = d->stages, n = pp_division_pieces(d), at, rows;
    int k = pp_layout_coalesce(d, &spec->training, model);
    double width = 0;
    PP_TAKE(double, times, 3 * (size_t)n);
    pp_balanced_piece(spec->training.batch, d->replicas, 0, &at, &rows);
    pp_balanced_piece(rows, d->microbatches, 0, &at, &rows);
    bool pieces = pp_layout_logits_rows(&spec->training, model, rows) > 0;
    for (int s = 0; s < n; s++) {
        enum pp_placement placement = d->schedule->placement;
        int a = pp_place(placement, p, s), b = pp_place(placement, p, s + 1);
        double slower = slow->n == p ? slow->at[a] : 1;
        double t[3];
        pp_costs_stage(costs, pp_division_first(d, s), d->last[s], rows, k, pieces, t);
        for (int op = 0; op < 3; op++)
            times[op * n + s] = t[op] * slower + costs->action;
        if (s < n - 1 && a != b)
            width += (double)model->layers[d->last[s]].out / (n - 1);
    }
    double comm = costs->near.latency + costs->near.byte * rows * width * costs->value_bytes;
    pp_schedule_ticks(times, n, comm, ticks);
    d->ticks = ticks;
    return 0;
}

int pp_best_division(const struct pp_space *spec, const struct pp_costs *costs,
                     const struct pp_row *c, int64_t *ticks, struct pp_division *out)
{
    const char *key;
    *out = c->d;
    if (pp_division_pieces(out) == 1)
        out->last[0] = (uint16_t)(spec->model->n_layers - 1);
    else if (!c->timed)
        PP_TRY(pp_division_cut(spec->cfg, spec->model, out, &key));
    if (c->chooses_redo)
        out->redo =
            memchr(out->recompute, true, sizeof(out->recompute)) ? PP_REDO_FULL : PP_REDO_NONE;
    else
        PP_TRY(pp_division_redo(spec->cfg, spec->model, out, &key));
    return c->fitted ? set_ticks(spec, pp_costs_at(costs, out->threads), out, ticks) : 0;
}

#define SHARES 32 /* replicas whose memory is counted, and the last one's */

int best_peaks(const struct pp_space *b, const struct pp_layout *l, size_t *peaks, size_t *most)
{
    bool processes = l->training.processes;
    struct pp_transport_caps caps = {.shared_slots = !processes, .processes = processes};
    int ranks = l->division.zero > 0 ? l->ranks : l->stages; /* their shares may differ */
    *most = 0;
    for (int r = 0; r < ranks; r++) {
        if (r == SHARES * l->stages &&
            ranks - r > l->stages) /* a little, and the last one's most */
            r = ranks - l->stages;
        struct pp_exec_spec spec = {.cfg = b->cfg, .layout = l, .rank = r, .caps = caps};
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

/* Returns a hash that is equal for candidates whose ranks do the same actions in the same order on
 * the same layers. */
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

int best_predict(const struct pp_space *spec, const struct pp_costs *costs,
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
        .slower = spec->cfg->pipeline.slower.n == l->stages ? spec->cfg->pipeline.slower.at : NULL,
        .pieces = l->logits_rows > 0,
        .zero = l->division.zero > 0 && pp_optimizer_moments(spec->cfg->train.optimizer) > 0,
        .shares_sums = pp_layout_shares_sums(l),
        .clips = l->training.clips,
        .across = spec->places && l->division.across,
        .vote = pp_layout_proves_finite(l) ? PP_SIM_VOTE_AT_I : PP_SIM_VOTE_AT_END,
        .meet_every = spec->endless ? 0 : pp_run_meet_every(spec->cfg, l->train_n),
        .meet_after = PP_RUN_MEET_NS * 1e-9,
        .explain = explain,
        .enough = enough,
        .see = explain ? spec->see : NULL,
        .ctx = spec->ctx,
    };
    return pp_predict(&p, out);
}

int best_lay_out(const struct pp_space *spec, const struct pp_costs *costs, const struct pp_row *c,
                 struct pp_layout **l)
{
    PP_TAKE(struct pp_division, d, 1);
    const char *key;
    PP_OWN_MEMORY int64_t *ticks = c->fitted ? pp_alloc(PP_NUMBERS_MAX, sizeof(*ticks)) : NULL;
    PP_TRY(c->fitted && !ticks ? PP_ERESOURCE : 0);
    PP_TRY(pp_best_division(spec, costs, c, ticks, d));
    if (!d->schedule && !d->table)
        return pp_fail(PP_ECONFIG, "no schedule is chosen");
    return pp_layout_create(spec->model, d, &spec->training, l, &key);
}

int pp_best_try(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c)
{
    PP_OWN(pp_layout_destroy) struct pp_layout *l = NULL;
    PP_TRY(best_lay_out(spec, costs, c, &l));
    PP_TRY(best_peaks(spec, l, NULL, &c->peak_bytes));
    c->together = l->coalesce;
    c->over = spec->memory > 0 && c->peak_bytes > spec->memory;
    c->identity = identity_of(l, l->plans[0].plan) + c->d.across;
    return best_predict(spec, costs, l, 0, false, &c->time);
}

int best_bytes(const struct pp_space *spec, const struct pp_costs *costs, const struct pp_row *c,
               struct pp_exec_bytes *out)
{
    PP_OWN(pp_layout_destroy) struct pp_layout *l = NULL;
    struct pp_exec_bytes most = {0};
    PP_TRY(best_lay_out(spec, costs, c, &l));
    for (int r = 0; r < l->stages; r++) {
        struct pp_exec_spec rank = {.cfg = spec->cfg, .layout = l, .rank = r};
        struct pp_exec_bytes bytes;
        PP_TRY(pp_exec_predict(&rank, &bytes));
        most = bytes.total > most.total ? bytes : most;
    }
    *out = most;
    return 0;
}

int pp_best_explain(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c,
                    char advice[PP_ADVICE_MAX])
{
    PP_OWN(pp_layout_destroy) struct pp_layout *l = NULL;
    PP_TAKE(double, cost, spec->model->n_layers);
    struct pp_space shape = *spec;
    best_divide(&shape.base, c->d.replicas, c->d.threads);
    costs = pp_costs_at(costs, shape.base.threads);
    PP_TRY(best_lay_out(&shape, costs, c, &l));
    PP_TRY(best_predict(&shape, costs, l, 0, true, &c->time));
    if (!advice)
        return 0;
    pp_costs_by_layer(costs, pp_best_rows(&shape, c->d.microbatches), cost);
    struct pp_advice_spec a = {
        .layout = l, .bubble = &c->time.bubble, .cost = cost, .searched = true, .waited = -1};
    return pp_advice(&a, advice);
}
