/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All memory that one rank holds. The same walk runs twice: a dry pass finds the size (`ppcli
 * explain` prints it), the second pass divides the one block. So prediction and use cannot differ.
 */
#include "exec_internal.h"
#include "layout.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

/* Returns by how many bytes `a` grew since *mark, and moves the mark. */
static size_t measure_growth(const struct pp_arena *a, size_t *mark)
{
    size_t n = a->used - *mark;
    *mark = a->used;
    return n;
}

/* Takes memory for `slots` blocks, each of the most rows of a micro-batch of `width` elements. *out
 * gets their addresses, except in the dry pass. */
static int take_row_slots(struct pp_exec *x, struct pp_arena *a, int slots, size_t width,
                          size_t element, float ***out)
{
    if (a->base && !(*out = pp_alloc((size_t)slots, sizeof(**out))))
        return PP_ERESOURCE;
    for (int i = 0; i < slots; i++) {
        float *p = pp_arena_take(a, (size_t)x->layout->max_rows * width, element);
        if (a->base)
            (*out)[i] = p;
    }
    return 0;
}

/* Returns an array of n numbers, all -1, which the caller owns; NULL if memory runs out. */
static int *alloc_slot_numbers(int n)
{
    int *held = pp_alloc((size_t)(n > 0 ? n : 1), sizeof(*held));
    for (int i = 0; held && i < n; i++)
        held[i] = -1;
    return held;
}

/* Returns whether any plan recomputes the stage. */
static bool recomputes_stage(const struct pp_layout *l, int s)
{
    int i = 0;
    while (i < l->n_plans && !pp_plan_recomputes(l->plans[i].plan, s))
        i++;
    return i < l->n_plans;
}

static struct pp_chunk_spec make_chunk_spec(const struct pp_layout *l, int s)
{
    return (struct pp_chunk_spec){
        .first = l->first[s],
        .last = l->last[s],
        .max_rows = l->max_rows,
        .state_slots = l->state_slots[s],
        .grad_slots = l->grad_slots[s],
        .recompute = recomputes_stage(l, s),
        .loss_rows = s == l->n_virtual - 1 ? l->logits_rows : 0,
    };
}

static int make_chunks(struct pp_exec *x, const struct pp_backend_choice *backend)
{
    const struct pp_layout *l = x->layout;
    struct pp_chunk_loan *loan = &x->loan;
    for (int k = 0; k < x->n_stages; k++) {
        struct exec_stage *st = &x->stages[k];
        struct pp_chunk_spec spec = make_chunk_spec(l, st->s);
        spec.optimizer = x->cfg->train.optimizer;
        spec.rate = (float)(x->cfg->train.muon_lr / fmax(x->cfg->train.lr, DBL_MIN));
        spec.decay_weights = x->cfg->train.decay == PP_DECAY_WEIGHTS;
        spec.backend = backend;
        spec.sharded = x->zero.n > 0;
        spec.elsewhere = spec.sharded ? pp_layout_floats(l, st->s) - exec_zero_floats(x, st->s) : 0;
        PP_TRY(pp_chunk_make(l->model, &spec, &st->chunk));
        loan->n_states = spec.state_slots > loan->n_states ? spec.state_slots : loan->n_states;
        loan->n_grads = spec.grad_slots > loan->n_grads ? spec.grad_slots : loan->n_grads;
    }
    loan->states = pp_alloc((size_t)loan->n_states + (size_t)loan->n_grads, sizeof(*loan->states));
    loan->grads = loan->states ? loan->states + loan->n_states : NULL;
    return loan->states ? 0 : PP_ERESOURCE;
}

/* Takes the memory of slot i that all recomputed chunks share, because they use it one after the
 * other. */
static float *lend_slot(const struct pp_exec *x, struct pp_arena *a, bool grad, int i)
{
    size_t most = 0;
    for (int k = 0; k < x->n_stages; k++) {
        const struct pp_chunk *c = x->stages[k].chunk;
        size_t floats = grad ? c->sizes.grad : c->sizes.state;
        if (x->layout->division.recompute[x->stages[k].s] &&
            i < (grad ? c->grad_slots : c->state_slots))
            most = floats > most ? floats : most;
    }
    return most > 0 ? pp_arena_take(a, most, sizeof(float)) : NULL;
}

/* Takes the memory that all chunks of the rank share, because the rank computes one pass of one
 * chunk at a time. */
static void lend_shared_memory(struct pp_exec *x, struct pp_arena *a)
{
    size_t scratch = 0, mark = a->used;
    for (int k = 0; k < x->n_stages; k++) {
        size_t floats = x->stages[k].chunk->sizes.scratch;
        scratch = floats > scratch ? floats : scratch;
    }
    x->loan.scratch = scratch > 0 ? pp_arena_take(a, scratch, sizeof(float)) : NULL;
    for (int i = 0; i < x->loan.n_states; i++)
        x->loan.states[i] = lend_slot(x, a, false, i);
    for (int i = 0; i < x->loan.n_grads; i++)
        x->loan.grads[i] = lend_slot(x, a, true, i);
    x->bytes.activations += measure_growth(a, &mark);
}

static int take_stage_memory(struct pp_exec *x, struct pp_arena *a, struct exec_stage *st)
{
    const struct pp_layout *l = x->layout;
    const struct pp_chunk *c = st->chunk;
    size_t mark = a->used, floats = c->n_floats, packed = c->sizes.packed * sizeof(float);
    pp_chunk_take_memory(st->chunk, a, &x->loan, l->division.recompute[st->s]);
    size_t chunk_bytes = measure_growth(a, &mark);
    size_t states = (size_t)pp_optimizer_moments(c->optimizer) * c->n_states;
    x->bytes.parameters += floats * sizeof(float);
    x->bytes.packed += packed;
    x->bytes.gradients += floats * sizeof(float);
    x->bytes.optimizer += states * sizeof(float);
    x->bytes.activations += chunk_bytes - packed - (2 * floats + states) * sizeof(float);

    if (st->is_first)
        PP_TRY(take_row_slots(x, a, c->state_slots, (size_t)l->model->inputs,
                              pp_layout_input_bytes(l), &st->input));
    if (st->is_last && l->logits_rows == 0)
        PP_TRY(take_row_slots(x, a, c->state_slots, l->logits, l->value_bytes, &st->output));
    x->bytes.activations += measure_growth(a, &mark);
    if (a->base) {
        st->held_f = alloc_slot_numbers(c->state_slots);
        st->held_b = alloc_slot_numbers(c->grad_slots);
        st->w_slots = alloc_slot_numbers(2 * c->grad_slots);
        if (!st->held_f || !st->held_b || !st->w_slots)
            return PP_ERESOURCE;
        st->w_gslots = st->w_slots + c->grad_slots;
    }
    return 0;
}

/* Takes the slots of channels that this rank provides: those on which it receives, those within the
 * rank, and, if the transport does not share memory, those on which it sends. */
static int take_channel_memory(struct pp_exec *x, struct pp_arena *a, bool shared_slots)
{
    const struct pp_layout *l = x->layout;
    for (int c = 0; c < l->n_channels; c++) {
        int src = l->plans[0].plan->channels[c].src_rank;
        int dst = l->plans[0].plan->channels[c].dst_rank;
        bool sends = src == x->pipeline_rank;
        bool receives = dst == x->pipeline_rank;
        x->channels[c].id = sends || receives ? c : -1;
        x->channels[c].spec = -1;
        if (l->channel_slots[c] == 0 || !(receives || (sends && !shared_slots)))
            continue;
        size_t slots = (size_t)l->channel_slots[c];
        x->channels[c].memory = pp_arena_take(a, slots, pp_layout_slot_bytes(l, c));
    }
    return 0;
}

/* Takes the memory for a step's arguments and results. */
static void take_step_memory(struct pp_exec *x, struct pp_arena *a, bool has_last)
{
    const struct pp_layout *l = x->layout;
    x->check.n = l->training.clips ? l->model->n_params : l->n_virtual;
    size_t values = (size_t)x->check.n + 1;
    exec_input_place_step(x, a);
    x->results = pp_arena_take(a, 1, sizeof(*x->results));
    x->before = pp_arena_take(a, 1, sizeof(*x->before));
    if (has_last && recomputes_stage(l, l->n_virtual - 1))
        x->unread = pp_arena_take(a, 1, sizeof(*x->unread));
    x->check.own = pp_arena_take(a, values, sizeof(*x->check.own));
    x->check.all = pp_arena_take(a, (size_t)l->ranks * values, sizeof(*x->check.all));
    for (int split = 0; a->base && has_last && split < 2; split++)
        x->sums[split] = &x->results->sums[split];
}

/* Takes all memory of the rank from the arena; a dry arena only counts it. `copies`: the device
 * cannot read host memory, so data are copied to it. */
static int take_rank_memory(struct pp_exec *x, struct pp_arena *a, bool shared_slots, bool copies)
{
    const struct pp_layout *l = x->layout;
    memset(&x->bytes, 0, sizeof(x->bytes));
    size_t largest = 0;
    bool has_first = false, has_last = false;
    lend_shared_memory(x, a);
    for (int k = 0; k < x->n_stages; k++) {
        struct exec_stage *st = &x->stages[k];
        PP_TRY(take_stage_memory(x, a, st));
        has_first = has_first || st->is_first;
        has_last = has_last || st->is_last;
        size_t floats = pp_layout_floats(l, st->s);
        largest = floats > largest ? floats : largest;
    }
    size_t mark = a->used;
    PP_TRY(take_channel_memory(x, a, shared_slots));
    x->bytes.messages = measure_growth(a, &mark);
    PP_TRY(exec_input_place(x, a, copies, has_first, has_last));
    x->bytes.data = measure_growth(a, &mark);
    int each =
        pp_loss_takes_numbers(x->cfg->train.loss) ? l->model->outputs : pp_model_targets(l->model);
    if (has_last)
        x->targets = pp_arena_take(a, (size_t)l->max_rows * (size_t)each, sizeof(int32_t));
    exec_zero_memory(x, a);
    if (l->replicas > 1 && x->zero.n == 0)
        x->scratch = pp_arena_take(a, largest, sizeof(float));
    x->n_merge = 0;
    for (int k = 0; l->replicas > 1 && k < x->n_stages; k++)
        x->n_merge += pp_chunk_merge_floats(x->stages[k].chunk);
    if (x->n_merge > 0)
        x->merge = pp_arena_take(a, 2 * x->n_merge, sizeof(float));
    take_step_memory(x, a, has_last);
    x->bytes.scratch = measure_growth(a, &mark);
    x->bytes.total = a->used;
    return 0;
}

int exec_memory_take(struct pp_exec *x, const struct pp_exec_spec *spec)
{
    const struct pp_layout *l = spec->layout;
    x->cfg = spec->cfg;
    x->layout = l;
    x->rank = spec->rank;
    x->pipeline_rank = spec->rank % l->stages;
    x->replica = spec->rank / l->stages;
    PP_ALLOC(x->stages, l->chunks);
    PP_ALLOC(x->channels, l->n_channels);
    PP_ALLOC(x->first, l->n_plans);
    PP_ALLOC(x->group, l->replicas);
    for (int d = 0; d < l->replicas; d++)
        x->group[d] = d * l->stages + x->pipeline_rank;
    for (int s = 0; s < l->n_virtual; s++) {
        if (l->rank_of[s] == x->pipeline_rank) {
            pp_assert(x->n_stages < l->chunks);
            x->stages[x->n_stages++] =
                (struct exec_stage){.s = s, .is_first = s == 0, .is_last = s == l->n_virtual - 1};
        }
    }
    PP_TRY(exec_zero_create(x));
    struct pp_backend_choice choice = x->be ? x->be->choice : l->training.backend;
    bool copies = choice.ops && choice.ops->own_memory;
    pp_assert(pp_backend_value_bytes(&choice) == l->value_bytes);
    PP_TRY(make_chunks(x, &choice));
    struct pp_arena dry = pp_arena_dry();
    PP_TRY(take_rank_memory(x, &dry, spec->caps.shared_slots, copies));
    if (!x->be)
        return 0;
    void *block = NULL;
    PP_TRY(pp_backend_alloc(x->be, dry.used, &block));
    x->arena = (struct pp_arena){.base = block, .bytes = dry.used, .used = 0};
    PP_TRY(take_rank_memory(x, &x->arena, spec->caps.shared_slots, copies));
    pp_assert(x->arena.used == dry.used);
    return 0;
}

void exec_memory_free(struct pp_exec *x)
{
    for (int k = 0; k < x->n_stages; k++) {
        struct exec_stage *st = &x->stages[k];
        pp_chunk_destroy(&st->chunk);
        pp_free(st->input);
        pp_free(st->output);
        pp_free(st->held_f);
        pp_free(st->held_b);
        pp_free(st->w_slots);
    }
    for (int i = 0; x->first && i < x->layout->n_plans; i++)
        pp_free(x->first[i].messages);
    pp_free(x->loan.states);
    pp_free(x->stages);
    pp_free(x->channels);
    pp_free(x->first);
    pp_free(x->group);
    pp_free(x->check.found);
    pp_free(x->input.weighs);
    pp_free(x->zero.buckets);
    pp_free(x->zero.shards);
    if (x->arena.base)
        pp_backend_free(x->be, x->arena.base, x->arena.bytes);
}

int pp_exec_predict(const struct pp_exec_spec *spec, struct pp_exec_bytes *out)
{
    struct pp_exec x = {0};
    int rc = exec_memory_take(&x, spec);
    if (rc == 0)
        *out = x.bytes;
    exec_memory_free(&x);
    return rc;
}

int pp_exec_live_bytes(const struct pp_layout *l, int s, size_t *out)
{
    const struct pp_backend_choice choice = l->training.backend;
    struct pp_chunk_spec spec = make_chunk_spec(l, s);
    spec.backend = &choice;
    struct pp_chunk *chunk = NULL;
    PP_TRY(pp_chunk_make(l->model, &spec, &chunk));
    size_t rows = (size_t)l->max_rows;
    *out = chunk->sizes.state * sizeof(float);
    pp_chunk_destroy(&chunk);
    *out += s == 0 ? rows * (size_t)l->model->inputs * pp_layout_input_bytes(l)
                   : pp_layout_slot_bytes(l, 2 * (s - 1));
    if (s == l->n_virtual - 1 && l->logits_rows == 0)
        *out += rows * l->logits * l->value_bytes;
    return 0;
}
