/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which rank holds what. All plans that a run can need are built and proved here, before
 * anything runs: the micro-batch counts of the full and the last batch of every replica follow from
 * arithmetic.
 */
#include "layout.h"
#include "division.h"

#include <limits.h>
#include <string.h>

#include "ppcli/data/dataset.h"
#include "ppcli/sched/plan.h"

size_t pp_layout_floats(const struct pp_layout *layout, int s)
{
    size_t n = 0;
    for (int i = layout->first[s]; i <= layout->last[s]; i++)
        n += layout->model->layers[i].n_floats;
    return n;
}

/* Large enough that the latency of a transfer hardly matters, small enough to need little
 * memory. */
#define TIED_FLOATS ((size_t)1 << 20)

size_t pp_layout_tied_piece(const struct pp_layout *layout, int tie, int piece, size_t *first)
{
    size_t all = pp_param_floats(&layout->model->params[layout->tied[tie]]);
    bool whole = layout->ties[tie].more == 0;
    *first = (size_t)piece * TIED_FLOATS;
    return whole || all - *first < TIED_FLOATS ? all - *first : TIED_FLOATS;
}

size_t pp_layout_message_bytes(const struct pp_layout *layout, int ch, int rows)
{
    size_t first;
    int tied = ch - 2 * (layout->n_virtual - 1);
    if (tied >= 0)
        return pp_layout_tied_piece(layout, tied / 2, 0, &first) * sizeof(float);
    int width = layout->model->layers[layout->last[ch / 2]].out;
    return (size_t)rows * (size_t)width * layout->value_bytes;
}

bool pp_layout_shares_sums(const struct pp_layout *layout)
{
    const struct pp_param *p = layout->model->params, *end = p + layout->model->n_params;
    while (p < end && p->kind != PP_PARAM_BUFFER)
        p++;
    return p < end || layout->training.clips;
}

bool pp_layout_proves_finite(const struct pp_layout *layout)
{
    return pp_model_bounds(layout->model) && !layout->training.clips &&
           !layout->training.reads_gradients;
}

size_t pp_layout_slot_bytes(const struct pp_layout *layout, int ch)
{
    size_t bytes = pp_layout_message_bytes(layout, ch, layout->max_rows);
    return (bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
}

static void raise_to(int *v, int floor)
{
    if (*v < floor)
        *v = floor;
}

/* Builds the plan of a last batch that is too small for the schedule's own rule (DualPipeV needs 2P
 * micro-batches), with another schedule of the same placement. All schedules give the same bits. */
static int build_for_small_batch(const struct pp_layout *l, const struct pp_geometry *g,
                                 struct pp_plan **out)
{
    struct pp_error why = *pp_error_get();
    const char *name = pp_schedule_stand_in(l->placement, g->chunks);
    return pp_plan_build(name, g, out) == 0 ? 0 : pp_error_adopt(&why);
}

/* Builds a plan for training, from the schedule's rule or from a table. A table fits full batches
 * only. */
static int build_for_training(const struct pp_layout *l, const struct pp_geometry *g, bool full,
                              struct pp_plan **out)
{
    const struct pp_division *d = &l->division;
    if (d->schedule)
        return pp_plan_build(pp_schedule_name(d->schedule), g, out);
    if (!full)
        return pp_fail(PP_ECONFIG,
                       "a table is for full batches, and the last one has %d "
                       "micro-batches: let train.batch_size divide the samples",
                       g->microbatches);
    if (d->table->geometry.microbatches != g->microbatches) {
        return pp_fail(PP_ECONFIG,
                       "the table is for %d micro-batches, this run has %d: set "
                       "pipeline.microbatches = %d",
                       d->table->geometry.microbatches, g->microbatches,
                       d->table->geometry.microbatches);
    }
    return pp_plan_coalesce(d->table, g->coalesce, out);
}

static struct pp_geometry make_geometry(const struct pp_layout *l, enum pp_plan_kind kind, int m)
{
    const struct pp_division *d = &l->division;
    return (struct pp_geometry){.stages = l->stages,
                                .chunks = l->chunks,
                                .microbatches = m,
                                .coalesce = kind == PP_PLAN_TRAIN ? l->coalesce : 0,
#define PP_KEY(section, TYPE, k, ...) .k = d->k,
#include "ppcli/base/keys_schedule.def"
#undef PP_KEY
                                .ticks = d->ticks,
                                .recompute = d->recompute};
}

/* Returns whether the schedule is legal for the division's number of micro-batches. */
static bool schedule_is_legal(const struct pp_layout *l)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    int m = l->division.microbatches;
    struct pp_geometry g = make_geometry(l, PP_PLAN_TRAIN, m);
    if (!l->division.schedule)
        return l->division.table && l->division.table->geometry.microbatches == m;
    bool legal = pp_plan_build(pp_schedule_name(l->division.schedule), &g, &plan) == 0;
    pp_error_clear();
    return legal;
}

/* Builds the plan for m micro-batches, unless it exists, and raises the slot counts to what it
 * needs. `full`: it is for a full batch, which must obey the schedule's rule. */
static int add_plan(struct pp_layout *l, enum pp_plan_kind kind, int m, bool full)
{
    if (m == 0)
        return 0; /* a replica without samples of the last batch runs no plan */
    for (int i = 0; i < l->n_plans; i++)
        if (l->plans[i].kind == kind && l->plans[i].m == m)
            return 0;
    struct pp_geometry g = make_geometry(l, kind, m);
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    if (kind == PP_PLAN_EVAL) {
        PP_TRY(pp_plan_build_eval(&g, l->placement, &plan));
    } else {
        int rc = build_for_training(l, &g, full, &plan);
        if (rc == PP_ECONFIG && !full) {
            g.group = 0;
            rc = build_for_small_batch(l, &g, &plan);
        }
        PP_TRY(rc);
    }
    pp_assert(plan != NULL);
    bool train = kind == PP_PLAN_TRAIN,
         recompute = train && memchr(l->division.recompute, true, (size_t)l->n_virtual);
    if (train && memchr(l->frozen, true, (size_t)l->n_virtual))
        PP_TRY(pp_plan_freeze(plan, l->frozen));
    if (recompute)
        PP_TRY(pp_plan_add_recompute(plan, l->division.recompute));
    if (train && l->n_ties > 0)
        PP_TRY(pp_plan_tie(plan, l->ties, l->n_ties));
    PP_GROW(l->plans, l->n_plans + 1);
    l->plans[l->n_plans++] = (struct pp_layout_plan){.kind = kind, .m = m, .plan = plan};
    for (int s = 0; s < l->n_virtual; s++) {
        raise_to(&l->state_slots[s], plan->state_slots[s]);
        raise_to(&l->grad_slots[s], plan->grad_slots[s]);
    }
    for (int c = 0; c < plan->n_channels; c++)
        raise_to(&l->channel_slots[c], plan->channels[c].slots);
    plan = NULL;
    return 0;
}

/* Builds the plans of one split, for the first and the last batch of every replica. The first batch
 * is full unless there are fewer samples; then another schedule may replace one that is only for
 * full batches. */
static int add_split_plans(struct pp_layout *l, enum pp_plan_kind kind, int n)
{
    for (int d = 0; d < l->replicas; d++) {
        struct pp_loader ld;
        PP_TRY(
            pp_loader_shape(n, l->training.batch, l->replicas, d, l->division.microbatches, &ld));
        raise_to(&l->max_rows, pp_loader_max_rows(&ld));
        bool full = pp_loader_batch_rows(&ld, 0) == ld.batch_size;
        full = full || kind == PP_PLAN_EVAL || !schedule_is_legal(l);
        PP_TRY(add_plan(l, kind, pp_loader_microbatches(&ld, 0), full));
        PP_TRY(add_plan(l, kind, pp_loader_microbatches(&ld, pp_loader_steps(&ld) - 1), false));
    }
    return 0;
}

/* Checks that in training every micro-batch has enough rows for the batch norms, which need more
 * than one value for each channel. */
static int check_norm_rows(const struct pp_layout *l, const char **key)
{
    const struct pp_node *n = l->model->nodes, *end = n + l->model->n_nodes;
    int batch = l->training.batch, all = l->train_n;
    while (n < end && n->norm.least_rows < 2)
        n++;
    for (int i = 0; i < 2 * l->replicas && n < end; i++) {
        struct pp_loader ld;
        PP_TRY(pp_loader_shape(all, batch, l->replicas, i / 2, l->division.microbatches, &ld));
        int step = i % 2 ? pp_loader_steps(&ld) - 1 : 0;
        int parts = pp_loader_microbatches(&ld, step), rows = pp_loader_batch_rows(&ld, step);
        if (parts == 0 || pp_loader_share_rows(&ld, step) / parts >= n->norm.least_rows)
            continue;
        char instead[96] = "a larger train.batch_size";
        if (rows < batch && rows < all)
            snprintf(instead, sizeof(instead), "data.drop_last = on");
        else if (rows / l->replicas >= n->norm.least_rows)
            snprintf(instead, sizeof(instead), "at most pipeline.microbatches = %d",
                     rows / l->replicas / n->norm.least_rows);
        else if (rows < batch)
            snprintf(instead, sizeof(instead), "more training samples");
        return pp_fail_about(
            key, "pipeline.microbatches",
            "layer %s: batch norm has one value for each channel, and no variance, in a "
            "micro-batch of 1 sample, as %s of %d has; use %s",
            l->model->layers[n->layer].name, rows < batch ? "the last batch" : "a batch", rows,
            instead);
    }
    return 0;
}

/* Returns whether every plan computes the input gradients of the last stage in the order of its
 * weight gradients, by ascending micro-batch. */
static bool last_stage_ascends(const struct pp_layout *l)
{
    for (int i = 0; i < l->n_plans; i++) {
        const struct pp_plan *plan = l->plans[i].plan;
        const struct pp_rank_plan *list = &plan->ranks[l->rank_of[l->n_virtual - 1]];
        for (int k = 0, next = 0; k < list->n_actions; k++) {
            const struct pp_action *a = &list->actions[k];
            bool counts = a->stage == l->n_virtual - 1 && (a->op == PP_OP_I || a->op == PP_OP_B);
            if (counts && a->mb != next++)
                return false;
        }
    }
    return true;
}

static int find_logits_rows(struct pp_layout *l, const char **key)
{
    int rows = pp_layout_logits_rows(&l->training, l->model, l->max_rows);
    l->logits_rows = last_stage_ascends(l) ? rows : 0;
    const char *why = rows > 0 ? "the last stage's input gradients do not ascend with this schedule"
                               : "the model does not end with a linear layer";
    if (l->training.logits_rows == 0 || l->logits_rows > 0)
        return 0;
    return pp_fail_about(key, "model.logits_rows", "model.logits_rows: %s; use 0", why);
}

/* More than any machine holds; up to here no sum of sizes overflows. */
#define BYTES_MAX 0x1p60

static int check_layout_bytes(const struct pp_layout *l, const char **key)
{
    double floats = 0; /* as if all values were floats */
    for (int s = 0; s < l->n_virtual; s++) {
        double slots = (double)l->state_slots[s] + l->grad_slots[s];
        for (int i = l->first[s]; i <= l->last[s]; i++) {
            const struct pp_layer *layer = &l->model->layers[i];
            double width = (double)layer->in + (double)pp_layer_values(l->model, i);
            floats += 4 * (double)layer->n_floats + slots * l->max_rows * width;
        }
    }
    for (int c = 0; c < l->n_channels; c++)
        floats += 2.0 * l->channel_slots[c] * (double)pp_layout_message_bytes(l, c, l->max_rows) /
                  (double)l->value_bytes;
    if (floats * sizeof(float) <= BYTES_MAX)
        return 0;
    return pp_fail_about(key, "model.type",
                         "%zu parameters (model.type, model.sizes) and micro-batches of %d samples "
                         "need %.2g bytes in all, more than any machine has",
                         l->model->n_floats, l->max_rows, floats * sizeof(float));
}

const char *pp_layout_schedule(const struct pp_layout *layout)
{
    const struct pp_schedule_ops *schedule = layout->plans[0].plan->schedule;
    return schedule ? pp_schedule_name(schedule) : "table";
}

static int stage_of_param(const struct pp_layout *l, int param)
{
    int s = 0, layer = l->last[0];
    while (param >= l->model->layers[layer].first_param + l->model->layers[layer].n_params)
        layer = l->last[++s];
    return s;
}

/* Returns whether the gradients of a parameter and of the one that it copies are added up. */
static bool is_tied(const struct pp_param *p)
{
    return p->tied_to > 0 && pp_param_learns(p);
}

/* Finds the stages of all holders of each tied tensor of the model. */
static void find_tie_stages(struct pp_layout *l)
{
    const struct pp_param *params = l->model->params;
    for (int i = 0, n = 0; i < l->model->n_params; i++) {
        if (!is_tied(&params[i]))
            continue;
        l->tied[n] = i;
        l->tied_to[n] = params[i].tied_to - 1;
        struct pp_tie *t = &l->ties[n];
        for (int k = 0; k < n; k++) {
            if (params[l->tied[k]].tied_to != params[i].tied_to)
                continue;
            l->tied_to[n] = l->tied[k];
            l->ties[k].after++;
            t->before++;
        }
        t->owner = stage_of_param(l, l->tied_to[n]);
        t->copy = stage_of_param(l, i);
        n++;
    }
}

/* Cuts each tensor that travels between ranks into pieces, the same for all of its ties. */
static void cut_ties(struct pp_layout *l)
{
    for (int i = 0; i < l->n_ties; i++) {
        const struct pp_param *p = &l->model->params[l->tied[i]];
        if (l->rank_of[l->ties[i].owner] == l->rank_of[l->ties[i].copy])
            continue;
        for (int k = 0; k < l->n_ties; k++)
            if (l->model->params[l->tied[k]].tied_to == p->tied_to)
                l->ties[k].more = (int)((pp_param_floats(p) - 1) / TIED_FLOATS);
    }
}

/* Returns whether a node of stage s has weight gradients or, with `before`, whether a node of it or
 * before it has. */
static bool stage_trains(const struct pp_layout *l, int s, bool before)
{
    const struct pp_layer *layers = l->model->layers;
    for (int i = layers[l->first[s]].first_node; i <= layers[l->last[s]].last_node; i++) {
        const struct pp_node *n = &l->model->nodes[i];
        if (before ? n->learns : n->trains)
            return true;
    }
    return false;
}

static int fill_layout(struct pp_layout *l, const char **key)
{
    struct pp_division *d = &l->division;
    const struct pp_backend_choice *choice = &l->training.backend;
    l->value_bytes = pp_backend_value_bytes(choice);
    l->logits = pp_node_elements(l->model, &l->model->nodes[l->model->n_nodes - 1], choice);
    l->stages = d->stages;
    l->chunks = d->chunks;
    l->replicas = d->replicas;
    PP_TRY(pp_division_find_placement(d, &l->placement));
    l->coalesce = pp_layout_coalesce(d, &l->training, l->model);
    if (d->coalesce > l->coalesce)
        return pp_fail_about(
            key, "train.coalesce",
            "sums over %d micro-batches at once may have other bits here than one "
            "after the other, which train.exact = true keeps; use train.exact = off, "
            "or train.coalesce = 0",
            d->coalesce);
    l->ranks = l->stages * l->replicas;
    l->n_virtual = l->stages * l->chunks;
    for (int i = 0; i < l->model->n_params; i++)
        l->n_ties += is_tied(&l->model->params[i]);
    l->n_channels = 2 * (l->n_virtual - 1) + 2 * l->n_ties;
    pp_assert(l->n_virtual <= l->model->n_layers && l->n_virtual <= PP_STAGES_MAX);
    size_t n = (size_t)l->n_virtual;
    l->first = pp_alloc(5 * n + (size_t)l->n_channels + 2 * (size_t)l->n_ties, sizeof(*l->first));
    l->ties = pp_alloc((size_t)l->n_ties, sizeof(*l->ties));
    l->frozen = pp_alloc(n, sizeof(*l->frozen));
    if (!l->first || !l->ties || !l->frozen)
        return PP_ERESOURCE;
    l->last = l->first + n;
    l->rank_of = l->last + n;
    l->state_slots = l->rank_of + n;
    l->grad_slots = l->state_slots + n;
    l->channel_slots = l->grad_slots + n;
    l->tied = l->channel_slots + l->n_channels;
    l->tied_to = l->tied + l->n_ties;
    int64_t shards = d->zero ? 3 * (int64_t)l->replicas * (l->replicas - 1) : 0;
    if ((int64_t)l->replicas * l->n_channels + shards * l->model->n_layers > INT_MAX) {
        return pp_fail_about(key, "pipeline.replicas",
                             "%d replicas of %d stages need more than %d channels; use fewer%s",
                             l->replicas, l->stages, INT_MAX,
                             shards > 0 ? ", or train.zero = 0" : "");
    }
    for (int s = 0; s < l->n_virtual; s++) {
        l->first[s] = pp_division_first(d, s);
        l->last[s] = d->last[s];
        l->rank_of[s] = pp_place(l->placement, l->stages, s);
        l->frozen[s] = !stage_trains(l, s, false);
        d->recompute[s] = (d->recompute[s] && stage_trains(l, s, true)) ||
                          (d->table && pp_plan_recomputes(d->table, s));
    }
    find_tie_stages(l);
    cut_ties(l);
    PP_TRY(add_split_plans(l, PP_PLAN_TRAIN, l->train_n));
    PP_TRY(check_norm_rows(l, key));
    if (l->test_n > 0)
        PP_TRY(add_split_plans(l, PP_PLAN_EVAL, l->test_n));
    PP_TRY(find_logits_rows(l, key));
    return check_layout_bytes(l, key);
}

int pp_layout_create(const struct pp_model *model, const struct pp_division *division,
                     const struct pp_training *training, struct pp_layout **out, const char **key)
{
    struct pp_layout *l;
    PP_ALLOC(l, 1);
    *l = (struct pp_layout){.division = *division,
                            .training = *training,
                            .model = model,
                            .train_n = training->train_n,
                            .test_n = training->test_n};
    l->training.backend.threads = division->threads;
    l->training.train_all = PP_MAX(training->train_all, training->train_n);
    *key = "pipeline.schedule";
    PP_TRY_UNDO(fill_layout(l, key), pp_layout_destroy(&l));
    l->division.table = NULL; /* table and ticks need not outlive this call */
    l->division.ticks = NULL;
    *out = l;
    return 0;
}

void pp_layout_destroy(struct pp_layout **layout)
{
    struct pp_layout *l = *layout;
    if (!l)
        return;
    for (int i = 0; i < l->n_plans; i++)
        pp_plan_destroy(&l->plans[i].plan);
    pp_free(l->plans);
    pp_free(l->first);
    pp_free(l->ties);
    pp_free(l->frozen);
    pp_free(l);
    *layout = NULL;
}
