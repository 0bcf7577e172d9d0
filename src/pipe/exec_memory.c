/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank holds. The same walk runs twice: dry, to know the size (and to let `ppcli explain`
 * print it), then over the one block that was taken, so prediction and use cannot differ.
 */
#include "exec_device.h"

#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

/* Bytes that `a` grew by since *mark; moves the mark. */
static size_t grown(const struct pp_arena *a, size_t *mark)
{
    size_t n = a->used - *mark;
    *mark = a->used;
    return n;
}

/* `slots` row blocks of `width` floats; NULL array in the dry pass. */
static int row_slots(struct pp_exec *x, struct pp_arena *a, int slots, int width, float ***out)
{
    if (a->base && !(*out = pp_alloc((size_t)slots, sizeof(**out)))) {
        return PP_ERESOURCE;
    }
    for (int i = 0; i < slots; i++) {
        float *p = pp_arena_take(a, (size_t)x->layout->max_rows * (size_t)width, sizeof(float));
        if (a->base) {
            (*out)[i] = p;
        }
    }
    return 0;
}

/* A number for each slot, -1. */
static int *by_slot(int n)
{
    int *held = pp_alloc((size_t)(n > 0 ? n : 1), sizeof(*held));
    for (int i = 0; held && i < n; i++) {
        held[i] = -1;
    }
    return held;
}

static struct pp_chunk_spec chunk_spec(const struct pp_layout *l, int s)
{
    return (struct pp_chunk_spec){
        .first = l->first[s],
        .last = l->last[s],
        .max_rows = l->max_rows,
        .state_slots = l->state_slots[s],
        .grad_slots = l->grad_slots[s],
        .optimizer = l->cfg->train.optimizer,
    };
}

static int stage_memory(struct pp_exec *x, struct pp_arena *a, struct exec_stage *st)
{
    const struct pp_layout *l = x->layout;
    struct pp_chunk_spec spec = chunk_spec(l, st->s);
    struct pp_backend_choice backend = x->be ? x->be->choice : pp_backend_choice_of(l->cfg);
    spec.backend = &backend;
    size_t mark = a->used;
    PP_TRY(pp_chunk_create(l->model, &spec, a, &st->chunk));
    size_t chunk_bytes = grown(a, &mark);

    size_t floats = 0;
    for (int i = spec.first; i <= spec.last; i++) {
        floats += l->model->layers[i].n_floats;
    }
    size_t states = (size_t)pp_optimizer_moments(spec.optimizer);
    size_t packed = pp_chunk_packed_bytes(l->model, &spec);
    x->bytes.parameters += floats * sizeof(float);
    x->bytes.packed += packed;
    x->bytes.gradients += floats * sizeof(float);
    x->bytes.optimizer += states * floats * sizeof(float);
    x->bytes.activations += chunk_bytes - packed - (2 + states) * floats * sizeof(float);

    if (st->is_first) {
        PP_TRY(row_slots(x, a, spec.state_slots, l->model->inputs, &st->input));
    }
    if (st->is_last) {
        PP_TRY(row_slots(x, a, spec.state_slots, l->model->classes, &st->output));
    }
    x->bytes.activations += grown(a, &mark);
    if (a->base) {
        st->held_f = by_slot(spec.state_slots);
        st->held_b = by_slot(spec.grad_slots);
        st->w_slots = by_slot(spec.grad_slots);
        st->w_gslots = by_slot(spec.grad_slots);
        if (!st->held_f || !st->held_b || !st->w_slots || !st->w_gslots) {
            return PP_ERESOURCE;
        }
    }
    return 0;
}

/* Slots this rank provides: where it receives, where hand-over is local, and where it sends
 * through a transport that does not share memory. */
static int channel_memory(struct pp_exec *x, struct pp_arena *a, bool shared_slots)
{
    const struct pp_layout *l = x->layout;
    for (int c = 0; c < l->n_channels; c++) {
        int src = l->plans[0].plan->channels[c].src_rank;
        int dst = l->plans[0].plan->channels[c].dst_rank;
        bool sends = src == x->pipeline_rank;
        bool receives = dst == x->pipeline_rank;
        x->channels[c].id = sends || receives ? c : -1;
        x->channels[c].spec = -1;
        if (l->channel_slots[c] == 0 || !(receives || (sends && !shared_slots))) {
            continue;
        }
        size_t slots = (size_t)l->channel_slots[c];
        x->channels[c].memory = pp_arena_take(a, slots, pp_layout_slot_bytes(l, c));
    }
    return 0;
}

/* One walk over everything. */
static int lay_out(struct pp_exec *x, struct pp_arena *a, bool shared_slots)
{
    const struct pp_layout *l = x->layout;
    memset(&x->bytes, 0, sizeof(x->bytes));
    size_t largest = 0, params = 0;
    bool has_first = false, has_last = false;
    for (int k = 0; k < x->n_stages; k++) {
        PP_TRY(stage_memory(x, a, &x->stages[k]));
        has_first = has_first || x->stages[k].is_first;
        has_last = has_last || x->stages[k].is_last;
        size_t floats = 0, n = 0;
        for (int i = l->first[x->stages[k].s]; i <= l->last[x->stages[k].s]; i++) {
            floats += l->model->layers[i].n_floats;
            n += (size_t)l->model->layers[i].n_params;
        }
        params = n > params ? n : params;
        largest = floats > largest ? floats : largest;
    }
    size_t mark = a->used;
    PP_TRY(channel_memory(x, a, shared_slots));
    x->bytes.messages = grown(a, &mark);
    if (has_last) {
        x->labels = pp_arena_take(a, (size_t)l->max_rows, 1);
        for (int split = 0; !x->device && split < 2; split++) {
            x->sums[split] = pp_arena_take(a, 1, sizeof(*x->sums[split]));
        }
    }
    x->squares = pp_arena_take(a, params, sizeof(*x->squares));
    if (l->replicas > 1) {
        x->scratch = pp_arena_take(a, largest, sizeof(float));
    }
    if (x->device) {
        exec_device_lay_out(x, a, has_first, has_last);
    }
    x->bytes.scratch = grown(a, &mark) - x->bytes.data;
    x->bytes.total = a->used;
    return 0;
}

int exec_memory(struct pp_exec *x, const struct pp_exec_spec *spec)
{
    const struct pp_layout *l = spec->layout;
    x->layout = l;
    x->rank = spec->rank;
    x->pipeline_rank = spec->rank % l->stages;
    x->replica = spec->rank / l->stages;
    x->stages = pp_alloc((size_t)l->chunks, sizeof(*x->stages));
    x->channels = pp_alloc((size_t)l->n_channels, sizeof(*x->channels));
    if (!x->stages || !x->channels) {
        return PP_ERESOURCE;
    }
    for (int s = 0; s < l->n_virtual; s++) {
        if (l->rank_of[s] == x->pipeline_rank) {
            pp_assert(x->n_stages < l->chunks);
            x->stages[x->n_stages++] =
                (struct exec_stage){.s = s, .is_first = s == 0, .is_last = s == l->n_virtual - 1};
        }
    }
    struct pp_backend_choice choice = x->be ? x->be->choice : pp_backend_choice_of(l->cfg);
    if (choice.ops && choice.ops->own_memory && !(x->device = pp_alloc(1, sizeof(*x->device)))) {
        return PP_ERESOURCE;
    }
    struct pp_arena dry = pp_arena_dry();
    PP_TRY(lay_out(x, &dry, spec->caps.shared_slots));
    if (!x->be) {
        return 0;
    }
    void *block = NULL;
    PP_TRY(pp_backend_alloc(x->be, dry.used, &block));
    x->arena = (struct pp_arena){.base = block, .bytes = dry.used, .used = 0};
    PP_TRY(lay_out(x, &x->arena, spec->caps.shared_slots));
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
        pp_free(st->w_gslots);
    }
    pp_free(x->stages);
    pp_free(x->channels);
    pp_free(x->device);
    if (x->arena.base) {
        pp_backend_free(x->be, x->arena.base, x->arena.bytes);
    }
}

int pp_exec_predict(const struct pp_exec_spec *spec, struct pp_exec_bytes *out)
{
    struct pp_exec x = {0};
    int rc = exec_memory(&x, spec);
    if (rc == 0) {
        *out = x.bytes;
    }
    exec_memory_free(&x);
    return rc;
}

int pp_exec_live_bytes(const struct pp_layout *l, int s, size_t *out)
{
    struct pp_chunk_spec spec = chunk_spec(l, s);
    size_t used[2];
    for (int slots = 0; slots < 2; slots++) {
        struct pp_arena dry = pp_arena_dry();
        struct pp_chunk *chunk = NULL;
        spec.state_slots = slots;
        spec.grad_slots = 0;
        PP_TRY(pp_chunk_create(l->model, &spec, &dry, &chunk));
        used[slots] = dry.used;
    }
    size_t row = sizeof(float) * (size_t)l->max_rows;
    *out = used[1] - used[0];
    *out += s == 0 ? row * (size_t)l->model->inputs : pp_layout_slot_bytes(l, 2 * (s - 1));
    *out += s == l->n_virtual - 1 ? row * (size_t)l->model->classes : 0;
    return 0;
}
