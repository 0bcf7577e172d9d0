/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a chunk's things lie. What a pass leaves for later ones lies at fixed places:
 *
 *   a state slot (F to W)  values that some node reads again in I or W, and what nodes keep
 *   a grad slot (I to W)   gradients that some node reads again in W, and what nodes keep
 *   scratch                values and gradients of one pass only, and what nodes need while they
 *                          compute; what is not needed at the same time shares its place
 *
 * The chunk's first and last value and their gradients are the caller's.
 */
#include "chunk.h"

/* Rows start wherever they start, but every array starts on a PP_ALIGN boundary. */
static size_t aligned(size_t floats)
{
    size_t unit = PP_ALIGN / sizeof(float);
    return (floats + unit - 1) / unit * unit;
}

/*
 * The same layer's arrays of several slots are read together, by a weight gradient of several
 * micro-batches. When slots are a multiple of 16 KiB apart, as those of widths that are powers of
 * two, these arrays fall into a few sets of the cache and push each other out: 16 layers of 512, 32
 * micro-batches of 8 rows, 39 Gflop/s; with slots moved on by 33 lines 111.
 */
static size_t spread(size_t floats)
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

static struct pp_words words_of(const struct pp_node *n, const struct pp_chunk_spec *spec)
{
    struct pp_words w = {0};
    if (n->op->words)
        n->op->words(n, spec->backend, spec->max_rows, &w);
    return w;
}

/* The next `floats` after *at; NO_PLACE for none. */
static size_t take(size_t *at, size_t floats)
{
    size_t here = *at;
    if (floats == 0)
        return NO_PLACE;
    *at += aligned(floats);
    return here;
}

/* ---- scratch */

/* Memory from step `from` to step `to` of a pass. */
struct piece {
    int from, to;
    size_t at, floats;
};

struct scratch {
    struct piece *pieces;
    int n;
    size_t most;
};

/* The lowest place that is free all that time. */
static size_t fit(struct scratch *s, int from, int to, size_t floats)
{
    if (floats == 0)
        return NO_PLACE;
    struct piece p = {from, to, 0, aligned(floats)};
    for (int i = 0; i < s->n; i++) {
        const struct piece *q = &s->pieces[i];
        bool meet = q->from <= to && from <= q->to;
        if (meet && q->at < p.at + p.floats && p.at < q->at + q->floats) {
            p.at = q->at + q->floats;
            i = -1; /* again: it may now meet one that was passed */
        }
    }
    s->pieces[s->n++] = p;
    s->most = p.at + p.floats > s->most ? p.at + p.floats : s->most;
    return p.at;
}

/* Who reads a value within the chunk: the last of its nodes, -1: none; what for. */
struct readers {
    int last;
    unsigned reads;
};

/* out[n_nodes + 1]: of the chunk's input, then of the value of each node. */
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

/* Floats of the value of a micro-batch. */
static size_t value_of(const struct pp_node *n, const struct pp_chunk_spec *spec)
{
    return pp_value_floats(spec->backend, (size_t)spec->max_rows * pp_shape_floats(&n->out));
}

bool chunk_learns(const struct pp_node *n)
{
    return n->n_params > 0 || n->wants_dx[0] || n->wants_dx[1];
}

/* Only node k reads its second input, whose gradient may lie where its own lies: the node that gives this
 * input. -1: there is none. The gradient lies in a slot, which keeps it. */
static int same_gradient(const struct pp_chunk *c, int k)
{
    const struct pp_node *n = chunk_node(c, k);
    int from = n->n_x > 1 ? n->x[1] - 1 - c->first_node : -1;
    bool same = n->op->dx_over_dy && from >= 0 && n->wants_dx[1] && !n->shared[1];
    return same && c->places[from].dy.slot != NO_PLACE ? from : -1;
}

/* The value, read by `of`, and the gradient of node k, which is not the last. */
static void place_values(struct pp_chunk *c, int k, const struct readers *of,
                         const struct pp_chunk_spec *spec, struct pp_chunk_sizes *z,
                         struct scratch *f, struct scratch *i)
{
    const struct pp_node *n = chunk_node(c, k);
    struct pp_chunk_place *p = &c->places[k];
    size_t floats = value_of(n, spec);
    int last = of->last, end = c->n_nodes - 1;
    pp_assert(last > k); /* no value is made for nothing */
    if (of->reads || n->reads & PP_READS_Y_IN_I)
        p->y.slot = take(&z->state, floats);
    else
        p->y.scratch = fit(f, k, last, floats);
    if (!chunk_learns(n))
        return;
    int same = same_gradient(c, k);
    if (same >= 0)
        p->dy.slot = c->places[same].dy.slot;
    else if (n->reads & PP_READS_DY_IN_W)
        p->dy.slot = take(&z->grad, floats);
    else
        p->dy.scratch = fit(i, end - last, end - k, floats);
}

/* Nodes that leave something for I or W, and those whose values such nodes read. */
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
        struct pp_words w = words_of(node, spec);
        if (spec->loss_rows > 0 && k == n - 1)
            w.scratch = pp_value_floats(spec->backend,
                                        (size_t)spec->loss_rows *
                                            (size_t)pp_model_logits_row(c->model, spec->backend));
        struct pp_chunk_place *p = &c->places[k];
        *p = (struct pp_chunk_place){.params = c->n_floats,
                                     .packed = take(&z.packed, w.packed),
                                     .y = {NO_PLACE, NO_PLACE},
                                     .dy = {NO_PLACE, NO_PLACE}};
        c->n_floats += node->n_floats;
        if (k < n - 1)
            place_values(c, k, &readers[k + 1], spec, &z, &f, &i);
        p->keep = take(&z.state, w.keep);
        p->grad_keep = take(&z.grad, w.grad_keep);
        p->work[0] = fit(&f, k, k, w.scratch);
        p->work[1] = fit(&i, n - 1 - k, n - 1 - k, w.scratch);
        p->work[2] = w.scratch > 0 ? 0 : NO_PLACE;
        for (int j = 0; j < node->n_x; j++)
            p->later[j] = readers[node->x[j] - c->first_node].last > k;
    }
    size_t y = value_of(chunk_node(c, n - 1), spec);
    bool rewrites = spec->recompute && c->places[n - 1].keep != NO_PLACE;
    c->unread = rewrites ? fit(&f, n - 1, n - 1, y) : NO_PLACE;
    mark_recomputed(c);
    z.scratch = c->grad_slots > 0 && i.most > f.most ? i.most : f.most;
    int first = c->model->layers[c->first].first_param, count = pp_chunk_param_count(c);
    for (const struct pp_param *p = &c->model->params[first]; count > 0; p++, count--) {
        size_t floats = c->grad_slots > 0 && chunk_is_muon(c, p) ? chunk_muon_floats(p) : 0;
        z.scratch = floats > z.scratch ? floats : z.scratch;
    }
    z.state = spread(z.state);
    z.grad = spread(z.grad);
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
