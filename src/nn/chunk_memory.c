/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places the arrays of a chunk. What a pass leaves for later passes has a fixed place:
 *
 *   a state slot (F to W)  values that a node reads in I or W, and what nodes keep
 *   a grad slot (I to W)   gradients that a node reads in W, and what nodes keep
 *   scratch                values and gradients of one pass, and what nodes need while they
 *                          compute; arrays
 *                          that are not needed at the same time share memory
 *
 * The chunk's first and last value and their gradients are the caller's.
 */
#include "chunk.h"

/* Rounds a number of floats up to a multiple of PP_ALIGN bytes, because every array starts at such
 * a multiple. Rows inside an array may start anywhere. */
static size_t align_floats(size_t floats)
{
    size_t unit = PP_ALIGN / sizeof(float);
    return (floats + unit - 1) / unit * unit;
}

/* Rounds the size of a slot up so that slots are spread over the sets of the cache. A weight
 * gradient of several micro-batches reads the same layer's arrays of several slots together. If
 * slots are a multiple of 16 KiB apart, as for widths that are powers of two, these arrays share a
 * few sets and evict each other: 39 Gflop/s with 16 layers of 512 and 32 micro-batches of 8 rows;
 * 111 Gflop/s with slots moved by 33 lines. */
static size_t spread_slot(size_t floats)
{
    const size_t around = 16384 / sizeof(float), apart = (size_t)33 * PP_ALIGN / sizeof(float);
    size_t off = floats % around;
    if (floats < 4 * around || (off >= apart && off <= around - apart))
        return floats;
    return floats + (off < apart ? apart - off : around - off + apart);
}

const struct pp_node *chunk_node(const struct pp_chunk *c, int k)
{
    return &c->model->nodes[c->first_node + k];
}

static struct pp_workspace find_workspace(const struct pp_node *n, const struct pp_chunk_spec *spec)
{
    struct pp_workspace w = {0};
    if (n->op->workspace)
        n->op->workspace(n, spec->backend, spec->max_rows, &w);
    return w;
}

/* Returns *at and moves it past `floats` floats; returns NO_PLACE if `floats` is 0. */
static size_t take_floats(size_t *at, size_t floats)
{
    size_t here = *at;
    if (floats == 0)
        return NO_PLACE;
    *at += align_floats(floats);
    return here;
}

/* ---- scratch */

/* Memory in use from step `from` to step `to` of a pass. */
struct piece {
    int from, to;
    size_t at, floats;
};

struct scratch {
    struct piece *pieces;
    int n;
    size_t most;
};

/* Returns the lowest place in the scratch with `floats` floats that are free from step `from` to
 * step `to`. */
static size_t place_scratch(struct scratch *s, int from, int to, size_t floats)
{
    if (floats == 0)
        return NO_PLACE;
    struct piece p = {from, to, 0, align_floats(floats)};
    for (int i = 0; i < s->n; i++) {
        const struct piece *q = &s->pieces[i];
        bool meet = q->from <= to && from <= q->to;
        if (meet && q->at < p.at + p.floats && p.at < q->at + q->floats) {
            p.at = q->at + q->floats;
            i = -1; /* start over: it may now overlap an earlier one */
        }
    }
    s->pieces[s->n++] = p;
    s->most = p.at + p.floats > s->most ? p.at + p.floats : s->most;
    return p.at;
}

/* The nodes of the chunk that read a value: the last one (-1: none), and how they read it. */
struct readers {
    int last;
    uint64_t reads;
};

/* Sets out[n_nodes + 1] to which nodes read the input of the chunk, then to which nodes read the
 * value of each node. */
static void find_readers(const struct pp_chunk *c, struct readers *out)
{
    for (int v = 0; v <= c->n_nodes; v++)
        out[v] = (struct readers){.last = -1};
    for (int k = 0; k < c->n_nodes; k++) {
        const struct pp_node *n = chunk_node(c, k);
        for (int j = 0; j < n->n_x; j++) {
            struct readers *of = &out[n->x[j] - c->first_node];
            of->last = k;
            of->reads |= n->reads & PP_READS_INPUT(j);
        }
    }
}

int chunk_rows(const struct pp_node *n, int rows)
{
    return n->one_row ? 1 : rows;
}

/* Returns the floats that the value of a node, or its gradient, takes for one micro-batch of `rows`
 * rows. */
static size_t floats_of_value(const struct pp_node *n, const struct pp_chunk_spec *spec, int rows)
{
    return pp_value_floats(spec->backend, (size_t)rows * pp_shape_floats(&n->out));
}

/* Returns the node whose gradient shares memory with the gradient of node k; -1 if there is none.
 * It is the node that computes the second input of k, if k is its only reader and the gradient is
 * in a slot. */
static int find_same_gradient(const struct pp_chunk *c, int k)
{
    const struct pp_node *n = chunk_node(c, k);
    int from = n->n_x > 1 ? n->x[1] - 1 - c->first_node : -1;
    bool same = n->op->dx_over_dy && from >= 0 && n->wants_dx[1] && !n->shared[1];
    return same && c->places[from].dy.slot != NO_PLACE ? from : -1;
}

/* Places the value of node k and its gradient; `of` describes the nodes that read the value. k is
 * not the last node of the chunk. */
static void place_values(struct pp_chunk *c, int k, const struct readers *of,
                         const struct pp_chunk_spec *spec, struct pp_chunk_sizes *z,
                         struct scratch *f, struct scratch *i)
{
    const struct pp_node *n = chunk_node(c, k);
    struct pp_chunk_place *p = &c->places[k];
    size_t floats = floats_of_value(n, spec, chunk_rows(n, spec->max_rows)),
           of_gradient = floats_of_value(n, spec, spec->max_rows);
    int last = of->last, end = c->n_nodes - 1;
    pp_assert(last > k); /* every value is read */
    if (of->reads || n->reads & PP_READS_Y_IN_I)
        p->y.slot = take_floats(&z->state, floats);
    else
        p->y.scratch = place_scratch(f, k, last, floats);
    if (!n->learns)
        return;
    int same = find_same_gradient(c, k);
    if (same >= 0)
        p->dy.slot = c->places[same].dy.slot;
    else if (n->reads & PP_READS_DY_IN_W)
        p->dy.slot = take_floats(&z->grad, of_gradient);
    else
        p->dy.scratch = place_scratch(i, end - last, end - k, of_gradient);
}

/* Marks the nodes that a recompute must run: those that leave something for I or W, and those whose
 * values such nodes read. */
static void mark_recomputed(struct pp_chunk *c)
{
    for (int k = c->n_nodes - 1; k >= 0; k--) {
        struct pp_chunk_place *p = &c->places[k];
        const struct pp_node *n = chunk_node(c, k);
        p->recompute = p->recompute || p->keep != NO_PLACE || p->y.slot != NO_PLACE;
        for (int j = 0; j < n->n_x && p->recompute; j++)
            if (n->x[j] > c->first_node)
                c->places[n->x[j] - 1 - c->first_node].recompute = true;
    }
}

int chunk_place(struct pp_chunk *c, const struct pp_chunk_spec *spec)
{
    struct pp_chunk_sizes z = {0};
    int n = c->n_nodes;
    PP_TAKE(struct piece, pieces, 4 * (size_t)n);
    PP_TAKE(struct readers, readers, (size_t)n + 1);
    struct scratch f = {.pieces = pieces}, i = {.pieces = pieces + 2 * (size_t)n};
    c->n_floats = 0;
    find_readers(c, readers);
    for (int k = 0; k < n; k++) {
        const struct pp_node *node = chunk_node(c, k);
        struct pp_workspace w = find_workspace(node, spec);
        if (spec->loss_rows > 0 && k == n - 1)
            w.scratch = pp_value_floats(spec->backend,
                                        (size_t)spec->loss_rows *
                                            (size_t)pp_model_logits_row(c->model, spec->backend));
        struct pp_chunk_place *p = &c->places[k];
        *p = (struct pp_chunk_place){.params = c->n_floats,
                                     .packed = take_floats(&z.packed, w.packed),
                                     .y = {NO_PLACE, NO_PLACE},
                                     .dy = {NO_PLACE, NO_PLACE}};
        c->n_floats += node->n_floats;
        if (k < n - 1)
            place_values(c, k, &readers[k + 1], spec, &z, &f, &i);
        p->keep = take_floats(&z.state, w.keep);
        p->grad_keep = take_floats(&z.grad, w.grad_keep);
        p->work[0] = place_scratch(&f, k, k, w.scratch);
        p->work[1] = place_scratch(&i, n - 1 - k, n - 1 - k, w.scratch);
        p->work[2] = w.scratch > 0 ? 0 : NO_PLACE;
        for (int j = 0; j < node->n_x; j++) {
            p->adds[j] = readers[node->x[j] - c->first_node].last > k;
            for (int before = 0; before < j; before++)
                p->adds[j] = p->adds[j] || node->x[before] == node->x[j];
        }
    }
    size_t y = floats_of_value(chunk_node(c, n - 1), spec, spec->max_rows);
    bool rewrites = spec->recompute && c->places[n - 1].keep != NO_PLACE;
    c->unread = rewrites ? place_scratch(&f, n - 1, n - 1, y) : NO_PLACE;
    mark_recomputed(c);
    z.scratch = c->grad_slots > 0 && i.most > f.most ? i.most : f.most;
    int first = c->model->layers[c->first].first_param, count = pp_chunk_param_count(c);
    for (const struct pp_param *p = &c->model->params[first]; count > 0; p++, count--) {
        size_t floats = c->grad_slots > 0 && chunk_is_muon(c, p) ? chunk_muon_floats(p) : 0;
        z.scratch = floats > z.scratch ? floats : z.scratch;
    }
    z.state = spread_slot(z.state);
    z.grad = spread_slot(z.grad);
    c->sizes = z;
    return 0;
}

size_t pp_chunk_merge_floats(const struct pp_chunk *c)
{
    size_t floats = 0;
    for (int k = 0; k < c->n_nodes; k++) {
        const struct pp_node *n = chunk_node(c, k);
        floats += n->op->merge_floats ? n->op->merge_floats(n) : 0;
    }
    return floats;
}
