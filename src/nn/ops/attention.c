/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention. Keeps one log-sum-exp per query and head instead of the
 * probabilities; the backward pass recomputes these. To generate a text, it keeps keys and values
 * of earlier positions instead: [cached][k, v].
 */
#include "../nn.h"
#include "ppcli/base/base.h"

static size_t q_width(const struct pp_node *n)
{
    return (size_t)n->attention.heads * (size_t)n->attention.width;
}

static size_t kv_width(const struct pp_node *n)
{
    return (size_t)n->attention.kv_heads * (size_t)n->attention.width;
}

static int count_texts(const struct pp_node *n, int rows)
{
    return n->cached > 0 ? 1 : n->attention.batch_first ? rows : n->positions;
}

static int count_queries(const struct pp_node *n, int rows)
{
    return n->cached > 0 || !n->attention.batch_first ? rows : n->positions;
}

static void find_workspace(const struct pp_node *n, const struct pp_backend_choice *choice,
                           int rows, struct pp_workspace *w)
{
    size_t all = (size_t)rows * (size_t)n->positions;
    int keys = n->cached > 0 ? n->cached : n->attention.batch_first ? n->attention.keys : rows;
    w->keep = n->cached > 0 ? pp_value_floats(choice, (size_t)n->cached * 2 * kv_width(n))
                            : all * (size_t)n->attention.heads;
    w->scratch =
        (size_t)pp_backend_members(choice) *
        pp_attention_scratch_floats(count_queries(n, rows), keys,
                                    n->attention.heads / n->attention.kv_heads, n->attention.width);
}

/* Counts the flops: two products forward; the scores again and four products backward. With
 * batch_first off, attention is over the samples of a micro-batch, of which there are few. */
static void cost(const struct pp_node *n, struct pp_layer_cost *c)
{
    double keys = !n->attention.batch_first ? 1
                  : n->attention.causal     ? (n->attention.keys + 1) / 2.0
                                            : n->attention.keys;
    double product = 2.0 * n->positions * keys * (double)q_width(n);
    c->flops_f = 2 * product;
    c->flops_i = n->wants_dx[0] || n->wants_dx[1] ? 5 * product : 0;
}

/* Returns where keys begin in their input: after q in each row, after all q of the sample, or at
 * the start of an input of their own. */
static size_t first_key(const struct pp_node *n)
{
    size_t q = q_width(n);
    return n->n_x == 2 ? 0 : n->attention.apart ? (size_t)n->positions * q : q;
}

static struct pp_attention make_attention_call(const struct pp_node *n, const struct pp_backend *be,
                                               const struct pp_at *at)
{
    size_t q = q_width(n), kv = kv_width(n), T = (size_t)n->positions;
    size_t D = (size_t)n->attention.width;
    bool two = n->n_x == 2, rows = !two && !n->attention.apart;
    size_t q_step = rows ? q + 2 * kv : q, kv_step = rows ? q_step : 2 * kv;
    size_t q_sample = two ? T * q : T * (q + 2 * kv);
    size_t kv_sample = two ? (size_t)n->attention.keys * 2 * kv : q_sample;
    const float *from = at->x[n->n_x - 1];
    struct pp_attention a = {.B = count_texts(n, at->pass->rows),
                             .queries = count_queries(n, at->pass->rows),
                             .keys = n->attention.batch_first ? n->attention.keys : at->pass->rows,
                             .heads = n->attention.heads,
                             .kv_heads = n->attention.kv_heads,
                             .width = n->attention.width,
                             .causal = n->attention.causal,
                             .lengths = at->pass->lengths,
                             .index = at->pass->index,
                             .q = at->x[0],
                             .k = pp_value_at(be, from, first_key(n)),
                             .v = pp_value_at(be, from, first_key(n) + kv),
                             .q_at = {q_sample, q_step, D},
                             .k_at = {kv_sample, kv_step, D},
                             .y_at = {T * q, q, D},
                             .scratch = at->scratch,
                             .lse = at->keep,
                             .y = at->y};
    if (!n->attention.batch_first) {
        a.q_at = (struct pp_strides){q_step, q_sample, D, 0};
        a.k_at = (struct pp_strides){kv_step, kv_sample, D};
        a.y_at = (struct pp_strides){q, T * q, D};
    }
    a.v_at = a.k_at;
    if (at->pass->training && at->pass->step) {
        a.p = n->attention.dropout;
        a.key = n->key ^ at->pass->seed * 0xD2511F53CD9E8D57u;
        a.step = at->pass->step;
        a.first_row = at->pass->first_row;
        a.of_queries = !n->attention.batch_first;
    }
    return a;
}

/* Appends the keys and values of these positions to those that were kept from earlier positions;
 * the queries see all of them. */
static int append_keys(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at,
                       struct pp_attention *a)
{
    size_t both = 2 * kv_width(n);
    int from = at->pass->position;
    pp_assert(from >= 0 && from + a->queries <= n->cached);
    for (int t = 0; t < a->queries; t++) {
        float *to = pp_value_at(be, at->keep, (size_t)(from + t) * both);
        const float *k = pp_value_at(be, a->k, (size_t)t * a->k_at.position);
        PP_TRY(pp_backend_copy(be, to, k, both * pp_backend_value_bytes(&be->choice)));
    }
    a->k = at->keep;
    a->v = pp_value_at(be, a->k, kv_width(n));
    a->k_at = a->v_at = (struct pp_strides){0, both, (size_t)n->attention.width};
    a->keys = from + a->queries;
    a->lse = NULL;
    return 0;
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    struct pp_attention a = make_attention_call(n, be, at);
    if (n->cached > 0)
        PP_TRY(append_keys(n, be, at, &a));
    return a.B > 0 && a.queries > 0 ? pp_backend_attention_forward(be, &a) : 0;
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    struct pp_attention a = make_attention_call(n, be, at);
    int kv = n->n_x - 1; /* the input with keys and values */
    if (at->pass->rows == 0 || (!at->dx[0] && !at->dx[kv]))
        return 0;
    a.dy = at->dy;
    a.add = at->add[0];
    a.add_k = a.add_v = at->add[kv];
    a.dq = at->dx[0];
    if (at->dx[kv]) {
        a.dk = pp_value_at(be, at->dx[kv], first_key(n));
        a.dv = pp_value_at(be, at->dx[kv], first_key(n) + kv_width(n));
    }
    return pp_backend_attention_backward(be, &a);
}

const struct pp_node_op op_attention = {
    .name = "attention",
    .kernels = PP_USES(attention_forward) | PP_USES(attention_backward),
    .workspace = find_workspace,
    .cost = cost,
    .forward = forward,
    .backward_input = backward_input,
};

int attention(struct builder *b, const char *name, int x, int kv, const struct heads *h)
{
    const struct pp_shape from = *shape_of(b, x), other = *shape_of(b, kv < 0 ? x : kv);
    int q = h->q * h->width, both = 2 * h->kv * h->width;
    char text[48], of_kv[48];
    pp_shape_text(&from, text, sizeof(text));
    pp_shape_text(&other, of_kv, sizeof(of_kv));
    struct pp_node *n = add_node(b, &op_attention, name, x, kv,
                                 (struct pp_shape){2, {from.n == 2 ? from.dims[0] : 1, q, 1}});
    if (!n)
        return 0;
    if (h->q < 1 || h->kv < 1 || h->width < 1 || h->q % h->kv)
        return refuse(b, "%s: %d heads do not share %d heads of keys and values evenly", b->name,
                      h->q, h->kv);
    if (from.n != 2 || other.n != 2 || from.dims[1] != (kv < 0 ? q + both : q) ||
        (kv >= 0 && other.dims[1] != both))
        return refuse(b,
                      "%s: %d heads of %d numbers, and keys and values of %d, do not fit a value "
                      "of shape %s%s%s",
                      b->name, h->q, h->width, h->kv, text, kv < 0 ? "" : " with one of ",
                      kv < 0 ? "" : of_kv);
    if (h->causal && (!h->batch_first || other.dims[0] < from.dims[0]))
        return refuse(b, "%s: causal attention is over the positions of one text", b->name);
    if (b->cached > 0 && !(h->batch_first && h->causal))
        return refuse(b, "%s: only a model whose attention is causal can continue a text", b->name);
    n->attention.heads = h->q;
    n->attention.kv_heads = h->kv;
    n->attention.width = h->width;
    n->attention.causal = h->causal;
    n->attention.batch_first = h->batch_first;
    n->attention.dropout = h->dropout;
    n->positions = from.dims[0];
    n->attention.keys = other.dims[0];
    n->attention.apart = kv < 0 && x > 0 && b->m->nodes[x - 1].op == &op_cross_linear;
    if (n->cached == 0) /* a cached text has no I */
        n->reads = PP_READS_X_IN_I | PP_READS_Y_IN_I | (kv < 0 ? 0 : PP_READS_X1_IN_I);
    return n->y;
}
