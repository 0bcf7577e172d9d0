/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers of one virtual stage: their memory, their passes, their parameters. The memory may be
 * a device's: only the backend reads and writes it.
 */
#include "chunk.h"
#include "model.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Checks that the backend has all kernels of a node itself, if its memory is not host memory; other
 * backends use the plain kernels in place of their missing ones. */
static int check_kernels(const struct pp_model *m, int node, const struct pp_backend_choice *choice)
{
    const struct pp_node *n = &m->nodes[node];
    for (uint64_t left = choice ? n->op->kernels : 0; left > 0; left &= left - 1) {
        enum pp_kernel k = (enum pp_kernel)__builtin_ctzll(left);
        if (!pp_backend_has_kernel(choice, k)) {
            return pp_fail(
                PP_ECONFIG, "layer %s: backend %s has no kernel for %s (%s); use run.backend = cpu",
                m->layers[n->layer].name, choice->ops->name, n->op->name, pp_kernel_name(k));
        }
    }
    return 0;
}

int pp_chunk_make(const struct pp_model *m, const struct pp_chunk_spec *spec, struct pp_chunk **out)
{
    pp_assert(0 <= spec->first && spec->first <= spec->last && spec->last < m->n_layers);
    pp_assert(spec->max_rows >= 1 && spec->state_slots >= 0 && spec->grad_slots >= 0);
    for (int i = m->layers[spec->first].first_node; i <= m->layers[spec->last].last_node; i++)
        PP_TRY(check_kernels(m, i, spec->backend));
    struct pp_chunk *c;
    PP_ALLOC(c, 1);
    c->model = m;
    c->first = spec->first;
    c->last = spec->last;
    c->first_node = m->layers[spec->first].first_node;
    c->n_nodes = m->layers[spec->last].last_node + 1 - c->first_node;
    c->max_rows = spec->max_rows;
    c->state_slots = spec->state_slots;
    c->grad_slots = spec->grad_slots;
    c->optimizer = spec->optimizer;
    c->decay_weights = spec->decay_weights;
    c->rate = spec->rate;
    c->sharded = spec->sharded;
    c->loss_rows = spec->loss_rows;
    c->elsewhere = spec->elsewhere;
    c->places = pp_alloc((size_t)c->n_nodes, sizeof(*c->places));
    c->states = pp_alloc((size_t)c->state_slots, sizeof(*c->states));
    c->grad_base = pp_alloc((size_t)c->grad_slots, sizeof(*c->grad_base));
    c->parts = pp_alloc((size_t)c->grad_slots, sizeof(*c->parts));
    if (!c->places || !c->states || !c->grad_base || !c->parts || chunk_place(c, spec) < 0) {
        pp_chunk_destroy(&c);
        return PP_ERESOURCE;
    }
    int first = m->layers[c->first].first_param, count = pp_chunk_param_count(c);
    for (int i = first; i < first + count && c->n_states == 0; i++)
        c->n_states = pp_param_learns(&m->params[i]) ? c->n_floats - c->elsewhere : 0;
    *out = c;
    return 0;
}

void pp_chunk_take_memory(struct pp_chunk *c, struct pp_arena *arena,
                          const struct pp_chunk_loan *loan, bool slots)
{
    const struct pp_chunk_sizes *z = &c->sizes;
    c->params = pp_arena_take(arena, c->n_floats, sizeof(float));
    if (z->packed > 0)
        c->packed = pp_arena_take(arena, z->packed, sizeof(float));
    if (c->grad_slots > 0) {
        c->grads = pp_arena_take(arena, c->n_floats, sizeof(float));
        if (c->n_states > 0 && pp_optimizer_moments(c->optimizer) > 0)
            c->opt_m = pp_arena_take(arena, c->n_states, sizeof(float));
        if (c->n_states > 0 && pp_optimizer_moments(c->optimizer) > 1)
            c->opt_v = pp_arena_take(arena, c->n_states, sizeof(float));
    }
    for (int s = 0; s < c->state_slots; s++)
        c->states[s].base = slots ? loan->states[s] : pp_arena_take(arena, z->state, sizeof(float));
    for (int s = 0; s < c->grad_slots; s++)
        c->grad_base[s] = slots ? loan->grads[s] : pp_arena_take(arena, z->grad, sizeof(float));
    if (z->scratch > 0)
        c->scratch = loan ? loan->scratch : pp_arena_take(arena, z->scratch, sizeof(float));
}

int pp_chunk_create(const struct pp_model *m, const struct pp_chunk_spec *spec,
                    struct pp_arena *arena, struct pp_chunk **out)
{
    struct pp_chunk *c = NULL;
    PP_TRY(pp_chunk_make(m, spec, &c));
    /* The dry pass runs the same code, so it counts the same bytes. */
    pp_chunk_take_memory(c, arena, NULL, false);
    if (!arena->base)
        pp_chunk_destroy(&c);
    else
        *out = c;
    return 0;
}

void pp_chunk_destroy(struct pp_chunk **c)
{
    if (*c) {
        pp_free((*c)->places);
        pp_free((*c)->states);
        pp_free((*c)->grad_base);
        pp_free((*c)->parts);
        pp_free(*c);
        *c = NULL;
    }
}

int pp_chunk_init(struct pp_chunk *c, struct pp_backend *be, uint64_t seed)
{
    size_t most = 0, offset, n;
    int count = pp_chunk_param_count(c);
    for (int i = 0; i < count; i++) {
        pp_chunk_param(c, i, &offset, &n);
        most = n > most ? n : most;
    }
    bool here = be->caps.host_visible;
    PP_TAKE(float, host, here ? 0 : most);
    for (int i = 0; i < count; i++) {
        const struct pp_param *p = pp_chunk_param(c, i, &offset, &n);
        PP_TRY(pp_param_init(p, seed, here ? c->params + offset : host));
        if (here)
            continue;
        PP_TRY(pp_backend_to_device(be, c->params + offset, host, n * sizeof(*host)));
        /* the copy may still read `host`, which the next parameter overwrites */
        PP_TRY(pp_backend_synchronize(be));
    }
    return pp_chunk_weights_changed(c, be);
}

static float *packed_weights(const struct pp_chunk *c, int k)
{
    return c->places[k].packed == NO_PLACE ? NULL : c->packed + c->places[k].packed;
}

static int pack_weights(struct pp_chunk *c, struct pp_backend *be, int k)
{
    float *to = packed_weights(c, k);
    const struct pp_node *n = chunk_node(c, k);
    return to ? n->op->pack(n, be, c->params + c->places[k].params, to) : 0;
}

int pp_chunk_weights_changed(struct pp_chunk *c, struct pp_backend *be)
{
    for (int k = 0; k < c->n_nodes; k++)
        PP_TRY(pack_weights(c, be, k));
    return 0;
}

int pp_chunk_optimizer_step(struct pp_chunk *c, struct pp_backend *be,
                            const struct pp_optimizer_args *a)
{
    /* Packs node by node, so that the packed weights were just written: they are in the cache, or
     * the update packs them. */
    bool at_once = !c->packed || c->sharded;
    PP_TRY(pp_backend_collect(be, PP_COLLECT_UPDATES));
    if (at_once && !c->sharded)
        PP_TRY(chunk_update(c, be, a, chunk_node(c, 0)->first_param, pp_chunk_param_count(c)));
    for (int k = 0; k < c->n_nodes; k++) {
        const struct pp_node *n = chunk_node(c, k);
        size_t at = c->places[k].params;
        if (!at_once)
            PP_TRY(chunk_update(c, be, a, n->first_param, n->n_params));
        PP_TRY(n->trains ? pack_weights(c, be, k) : 0);
        if (n->op->commit)
            PP_TRY(n->op->commit(n, be, a, c->grads + at, c->params + at));
    }
    return pp_backend_collect(be, PP_COLLECT_NOTHING);
}

int pp_chunk_merge(struct pp_chunk *c, struct pp_backend *be, enum pp_merging what, float *own)
{
    for (int k = 0; k < c->n_nodes; k++) {
        const struct pp_node *n = chunk_node(c, k);
        if (!n->op->merge)
            continue;
        PP_TRY(n->op->merge(n, be, what, c->grads + c->places[k].params, own));
        own += n->op->merge_floats(n);
    }
    return 0;
}

/* ---- a micro-batch */

static struct pp_chunk_state *state_of_slot(struct pp_chunk *c, int slot)
{
    pp_assert(slot >= 0 && slot < c->state_slots);
    return &c->states[slot];
}

static float *find_array(float *base, size_t place)
{
    return place == NO_PLACE ? NULL : base + place;
}

/* Returns the array of a place: in the slot or in the scratch if it is there, else the caller's
 * array. */
static float *choose_array(const struct pp_chunk *c, float *slot, const struct chunk_at *at,
                           float *callers)
{
    return at->slot != NO_PLACE      ? slot + at->slot
           : at->scratch != NO_PLACE ? c->scratch + at->scratch
                                     : callers;
}

static float *value_array(const struct pp_chunk *c, const struct pp_chunk_state *st, int k)
{
    return choose_array(c, st->base, &c->places[k].y, st->y);
}

static float *gradient_array(const struct pp_chunk *c, const struct pp_chunk_state *st, int gslot,
                             int k)
{
    return choose_array(c, c->grad_base[gslot], &c->places[k].dy, st->dy);
}

/* Returns the node of this chunk that computes input j of node k; -1 if that is the chunk's own
 * input. */
static int source_node(const struct pp_chunk *c, int k, int j)
{
    return chunk_node(c, k)->x[j] - 1 - c->first_node;
}

static const float *input_array(const struct pp_chunk *c, const struct pp_chunk_state *st, int k,
                                int j)
{
    int from = source_node(c, k, j);
    return from < 0 ? st->x : value_array(c, st, from);
}

static struct pp_at node_arrays(const struct pp_chunk *c, const struct pp_chunk_state *st, int k,
                                int phase)
{
    const struct pp_chunk_place *p = &c->places[k];
    struct pp_at at = {.pass = &st->pass,
                       .y = value_array(c, st, k),
                       .keep = find_array(st->base, p->keep),
                       .scratch = find_array(c->scratch, p->work[phase]),
                       .params = c->params + p->params,
                       .packed = packed_weights(c, k)};
    for (int j = 0; j < chunk_node(c, k)->n_x; j++)
        at.x[j] = input_array(c, st, k, j);
    return at;
}

void pp_chunk_measure(struct pp_chunk *c, bool on)
{
    c->measure = on;
    c->range = (struct pp_chunk_range){.bad_input = -1};
}

bool pp_chunk_is_bounded(const struct pp_chunk *c, int rows, double most)
{
    bool yes = isfinite(c->range.x);
    /* a tied tensor's gradient gets as much again from each other stage, and roundings */
    most = c->model->n_holders > 0 ? most / (2 * c->model->n_holders) : most;
    for (int k = 0; k < c->n_nodes && yes; k++) {
        const struct pp_node *n = chunk_node(c, k);
        yes = !n->trains || (n->op->bound && n->op->bound(n, rows, c->range.x, c->range.dz) < most);
    }
    return yes;
}

/* Raises *most to the largest absolute value of values[rows], if the node trains and the chunk
 * measures; called while the values are in the cache. */
static int measure_values(const struct pp_chunk *c, struct pp_backend *be, const struct pp_node *n,
                          int rows, const struct pp_shape *shape, const float *values, float *most)
{
    if (!c->measure || !n->trains)
        return 0;
    return pp_backend_find_largest(be, (size_t)rows * pp_shape_floats(shape), values, most);
}

/* Returns the last node of a chunk that computes the loss per row, changed so that each of its rows
 * is a sample of its own. */
static struct pp_node loss_node(const struct pp_chunk *c)
{
    struct pp_node n = *chunk_node(c, c->n_nodes - 1);
    n.in = pp_shape_flat((int)pp_shape_floats(&n.in) / n.positions);
    n.out = pp_shape_flat((int)pp_shape_floats(&n.out) / n.positions);
    n.positions = 1;
    return n;
}

static bool is_in_pieces(const struct pp_chunk *c, int k)
{
    return c->loss_rows > 0 && k == c->n_nodes - 1;
}

int pp_chunk_prepare(struct pp_chunk *c, struct pp_backend *be, int rows, bool training)
{
    pp_assert(rows >= 0 && rows <= c->max_rows && (!training || c->grad_slots > 0));
    int *known = c->prepared[training], oldest = PP_CHUNK_PREPARED - 1;
    for (int i = 0; i <= oldest; i++)
        if (known[i] == rows)
            return 0;
    for (int k = 0; k < c->n_nodes; k++) {
        const struct pp_node n = is_in_pieces(c, k) ? loss_node(c) : *chunk_node(c, k);
        size_t at = c->places[k].params;
        int left = is_in_pieces(c, k) ? rows * chunk_node(c, k)->positions : rows,
            most = is_in_pieces(c, k) ? c->loss_rows : rows;
        for (int now; n.op->prepare; left -= now) {
            now = left < most ? left : most;
            PP_TRY(n.op->prepare(&n, be, now, c->params + at, packed_weights(c, k),
                                 training ? c->grads + at : NULL));
            if (left == now)
                break;
        }
    }
    PP_TRY(training ? chunk_muon_prepare(c, be) : 0);
    memmove(known + 1, known, (size_t)oldest * sizeof(*known));
    known[0] = rows;
    return 0;
}

int pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot,
                     const struct pp_pass *pass, const float *x, float *y)
{
    struct pp_chunk_state *st = state_of_slot(c, slot);
    pp_assert(pass->rows >= 0 && pass->rows <= c->max_rows);
    st->x = x;
    st->y = y;
    st->dy = NULL;
    st->pass = *pass;
    for (int k = 0; k < c->n_nodes; k++) {
        const struct pp_node *n = chunk_node(c, k);
        if (pass->recompute && !c->places[k].recompute)
            continue;
        struct pp_at at = node_arrays(c, st, k, 0);
        if (pass->recompute && k == c->n_nodes - 1)
            at.y = c->scratch + c->unread;
        for (int j = 0; j < n->n_x; j++) {
            if (j > 0 && !(n->reads & PP_READS_IN_W(j)))
                continue;
            const struct pp_shape *in = &c->model->values[n->x[j]];
            int from = source_node(c, k, j);
            int rows = from < 0 ? pass->rows : chunk_rows(chunk_node(c, from), pass->rows);
            PP_TRY(measure_values(c, be, n, rows, in, at.x[j], &c->range.x));
            if (!isfinite(c->range.x) && c->range.bad_input < 0) {
                c->range.bad_input = from < 0 ? c->first : chunk_node(c, from)->layer + 1;
                c->range.bad = c->range.x;
            }
        }
        if (is_in_pieces(c, k))
            break;
        PP_TRY(n->op->forward(n, be, &at));
        PP_TRY(chunk_look(c, be, n, pass->rows, at.y));
    }
    return 0;
}

int pp_chunk_loss(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot, bool starts,
                  float *dx, const struct pp_chunk_loss *loss)
{
    const struct pp_chunk_state *st = state_of_slot(c, slot);
    const struct pp_node n = loss_node(c);
    bool learns = gslot >= 0 && n.learns;
    int k = c->n_nodes - 1, from = source_node(c, k, 0);
    int all = st->pass.rows * chunk_node(c, k)->positions, r = 0;
    size_t in = pp_shape_floats(&n.in);
    struct pp_pass pass = st->pass;
    struct pp_at at = node_arrays(c, st, k, learns);
    at.pass = &pass;
    at.y = at.dy = at.scratch;
    if (learns)
        at.dx[0] = from < 0 ? dx : n.wants_dx[0] ? gradient_array(c, st, gslot, from) : NULL;
    do {
        pass.rows = all - r < c->loss_rows ? all - r : c->loss_rows;
        PP_TRY(n.op->forward(&n, be, &at));
        PP_TRY(loss->call(loss->ctx, r, pass.rows, at.y));
        if (learns) {
            const struct pp_weight_part part = {.B = pass.rows, .dz = at.dy, .x = at.x[0]};
            PP_TRY(n.op->backward_input(&n, be, &at));
            PP_TRY(measure_values(c, be, &n, pass.rows, &n.out, at.dy, &c->range.dz));
            PP_TRY(n.trains
                       ? n.op->backward_weight(&n, be, 1, &part, starts && r == 0 ? 0.0f : 1.0f,
                                               NULL, c->grads + c->places[k].params)
                       : 0);
        }
        r += pass.rows;
        at.x[0] = pp_value_at(be, at.x[0], (size_t)pass.rows * in);
        at.dx[0] = pp_value_at(be, at.dx[0], (size_t)pass.rows * in);
    } while (r < all);
    return 0;
}

int pp_chunk_backward_input(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot,
                            float *dy, float *dx)
{
    struct pp_chunk_state *st = state_of_slot(c, slot);
    pp_assert(gslot >= 0 && gslot < c->grad_slots);
    st->dy = dy;
    for (int k = c->n_nodes - 1; k >= 0; k--) {
        const struct pp_node *n = chunk_node(c, k);
        if (!n->learns || is_in_pieces(c, k))
            continue;
        struct pp_at at = node_arrays(c, st, k, 1);
        at.dy = gradient_array(c, st, gslot, k);
        at.grad_keep = find_array(c->grad_base[gslot], c->places[k].grad_keep);
        for (int j = 0; j < n->n_x; j++) {
            int from = source_node(c, k, j);
            at.dx[j] = from < 0 ? dx : n->wants_dx[j] ? gradient_array(c, st, gslot, from) : NULL;
            at.add[j] = c->places[k].adds[j];
        }
        PP_TRY(n->op->backward_input ? n->op->backward_input(n, be, &at) : 0);
        PP_TRY(measure_values(c, be, n, st->pass.rows, &n->out, at.dy, &c->range.dz));
    }
    return 0;
}

int pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n, const int *slots,
                             const int *gslots, bool first)
{
    return pp_chunk_backward_layers(c, be, n, slots, gslots, first, c->first, c->last);
}

int pp_chunk_backward_layers(struct pp_chunk *c, struct pp_backend *be, int n, const int *slots,
                             const int *gslots, bool first, int from, int to)
{
    const struct pp_layer *layers = c->model->layers;
    int end = layers[from].first_node - c->first_node;
    pp_assert(n >= 1 && n <= c->grad_slots && end >= 0);
    PP_TRY(pp_backend_collect(be, PP_COLLECT_WEIGHTS));
    for (int k = layers[to].last_node - c->first_node; k >= end; k--) {
        const struct pp_node *node = chunk_node(c, k);
        const struct pp_chunk_place *p = &c->places[k];
        bool gathers = !node->trains && node->op->gather;
        if (!(node->trains ? node->op->backward_weight != NULL : gathers) || is_in_pieces(c, k))
            continue;
        for (int i = 0; i < n; i++) {
            const struct pp_chunk_state *st = state_of_slot(c, slots[i]);
            pp_assert(gslots[i] >= 0 && gslots[i] < c->grad_slots && (st->dy || c->loss_rows > 0));
            c->parts[i] = (struct pp_weight_part){
                .B = st->pass.rows * node->positions,
                .dz = node->reads & PP_READS_DY_IN_W ? gradient_array(c, st, gslots[i], k) : NULL,
                .x = node->reads & PP_READS_X_IN_W ? input_array(c, st, k, 0) : NULL,
                .x1 = node->reads & PP_READS_X1_IN_W ? input_array(c, st, k, 1) : NULL,
                .keep = find_array(st->base, p->keep),
                .grad_keep = find_array(c->grad_base[gslots[i]], p->grad_keep)};
        }
        float beta = first ? 0.0f : 1.0f, *grads = c->grads + p->params;
        PP_TRY(gathers ? node->op->gather(node, be, n, c->parts, beta, grads)
                       : node->op->backward_weight(node, be, n, c->parts, beta,
                                                   find_array(c->scratch, p->work[2]), grads));
    }
    return pp_backend_collect(be, PP_COLLECT_NOTHING);
}

int pp_chunk_gather(struct pp_chunk *c, struct pp_backend *be, int slot, bool first)
{
    const struct pp_chunk_state *st = state_of_slot(c, slot);
    for (int k = 0; k < c->n_nodes; k++) {
        const struct pp_node *n = chunk_node(c, k);
        const struct pp_weight_part part = {.B = st->pass.rows * n->positions,
                                            .keep = find_array(st->base, c->places[k].keep)};
        pp_assert(!n->trains);
        if (n->op->gather)
            PP_TRY(n->op->gather(n, be, 1, &part, first ? 0.0f : 1.0f,
                                 c->grads + c->places[k].params));
    }
    return 0;
}

/* ---- parameters */

int pp_chunk_param_count(const struct pp_chunk *c)
{
    const struct pp_layer *first = &c->model->layers[c->first], *last = &c->model->layers[c->last];
    return last->first_param + last->n_params - first->first_param;
}

size_t pp_chunk_offset(const struct pp_chunk *c, const struct pp_param *p)
{
    return p->at - c->model->params[c->model->layers[c->first].first_param].at;
}

const struct pp_param *pp_chunk_param(const struct pp_chunk *c, int i, size_t *offset,
                                      size_t *n_floats)
{
    const struct pp_param *of = &c->model->params[chunk_node(c, 0)->first_param];
    pp_assert(i >= 0 && i < pp_chunk_param_count(c));
    *offset = pp_chunk_offset(c, &of[i]);
    *n_floats = pp_param_floats(&of[i]);
    return &of[i];
}
