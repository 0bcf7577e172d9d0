/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention. Queries, keys and values are read where they lie: heads and
 * positions are strides of the values that have them.
 */
#include "lower.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

/* A tensor [..][positions][width] as heads of positions. */
struct heads_view {
    struct graph_heads at;
    int64_t heads, positions, width;
    int64_t shared; /* heads are repeated so many times in a row: grouped */
};

/* Merges the axes of the leading dimensions, without that of the samples; returns their number. */
static int merge_heads(const struct view *v, struct axis heads[VIEW_AXES])
{
    int n = 0;
    for (int k = 0; k < view_first_axis(v, v->n_dims - 2); k++) {
        struct axis a = v->axes[k], *last = n > 0 ? &heads[n - 1] : NULL;
        if (a.size == 0)
            continue;
        if (last && last->stride == a.size * a.stride)
            *last = (struct axis){last->size * a.size, a.stride};
        else
            heads[n++] = a;
    }
    return n;
}

/* Returns whether attention over samples can read the view [positions][heads][samples][width]. */
static bool find_heads_of_samples(const struct view *v, struct heads_view *out)
{
    if (v->n_dims != 4 || v->count[0] > 1 || v->count[1] > 1)
        return false;
    *out = (struct heads_view){.at = {.offset = v->offset},
                               .heads = view_size(v, 1).n,
                               .shared = 1,
                               .positions = view_size(v, 0).n,
                               .width = view_size(v, 3).n};
    if (v->count[0] == 1)
        out->at.position = v->axes[0].stride;
    if (v->count[1] == 1)
        out->at.head = v->axes[v->count[0]].stride;
    return true;
}

/* Returns whether attention can read the view as it is. */
static bool find_heads(const struct view *view, struct heads_view *out)
{
    struct axis heads[VIEW_AXES];
    struct view v = view_merge(view);
    int n = merge_heads(&v, heads), row = v.n_dims - 2, last = v.n_dims - 1;
    const struct axis *position = &v.axes[view_first_axis(&v, row)];
    const struct axis *channel = &v.axes[view_first_axis(&v, last)];
    if (view_has_batch(&v, row))
        return find_heads_of_samples(&v, out);
    *out = (struct heads_view){.at = {.offset = v.offset},
                               .heads = 1,
                               .shared = 1,
                               .positions = view_size(&v, row).n,
                               .width = view_size(&v, last).n};
    if (v.count[last] > 1 || (v.count[last] == 1 && channel->stride != 1) || v.count[row] > 1)
        return false;
    if (v.count[row] == 1)
        out->at.position = position->stride;
    if (n > 0 && heads[n - 1].stride == 0)
        out->shared = heads[--n].size;
    if (n == 1) {
        out->heads = heads[0].size;
        out->at.head = heads[0].stride;
    }
    return n <= 1 && (v.count[row] == 0 || position->stride > 0);
}

/* Finds the heads of a view, which is copied if its memory is not in such an order. */
static bool take_heads(struct lower *l, struct view *v, struct heads_view *out)
{
    if (find_heads(v, out))
        return true;
    *v = lower_copy(l, v);
    char text[96];
    if (l->rc < 0 || l->refused)
        return false;
    return find_heads(v, out) || lower_refuse(l, "attention of %s: which dimensions are heads?",
                                              view_text(v, text, sizeof(text)));
}

/* ---- masks */

enum mask_kind {
    MASK_NONE,
    MASK_CAUSAL,
    MASK_OTHER
};

/* Makes a constant mask additive, and returns what it hides: nothing, the keys after each query, or
 * something else. */
static enum mask_kind read_mask(struct fold_constant *c)
{
    bool none = true, causal = c->n_dims >= 2;
    int64_t rows = causal ? c->dims[c->n_dims - 2] : 0, keys = causal ? c->dims[c->n_dims - 1] : 0;
    causal = causal && rows == keys;
    if (c->ints) { /* bool: true is seen */
        c->floats = pp_alloc((size_t)c->n, sizeof(*c->floats));
        for (int64_t i = 0; c->floats && i < c->n; i++)
            c->floats[i] = c->ints[i] ? 0 : -INFINITY;
    }
    int64_t elements = 1;
    for (int d = 0; d < c->n_dims; d++)
        elements *= c->dims[d];
    for (int64_t i = 0; c->floats && i < elements && (none || causal); i++) {
        int64_t at = 0, left = i, index[2] = {0};
        for (int d = c->n_dims - 1; d >= 0; d--) {
            if (d >= c->n_dims - 2)
                index[d - (c->n_dims - 2)] = left % c->dims[d];
            at += left % c->dims[d] * c->strides[d];
            left /= c->dims[d];
        }
        bool seen = c->floats[at] >= 0 && c->floats[at] <= 0;
        bool hidden = c->floats[at] <= -FLT_MAX / 4;
        none = none && seen;
        causal = causal && (index[1] <= index[0] ? seen : hidden);
    }
    return none ? MASK_NONE : causal ? MASK_CAUSAL : MASK_OTHER;
}

/* Returns a mask that is computed as an additive one. */
static struct view add_bool_mask(struct lower *l, const struct view *mask)
{
    static const struct expr_step steps[] = {{.code = PP_EXPR_LOAD, .a = 0},
                                             {.code = PP_EXPR_FILL, .number = 0},
                                             {.code = PP_EXPR_FILL, .number = -INFINITY},
                                             {.code = PP_EXPR_SELECT, .a = 0, .b = 1, .c = 2}};
    struct view in = *mask, y = {.n_dims = -1};
    if (mask->n_dims >= 0)
        lower_expr(l, 1, &in, 4, steps, NULL, LOWER_AS_LARGEST, &y);
    return y;
}

/* Reads the argument attn_mask: *causal, or a view of an additive mask, or neither (n_dims -1). */
static struct view take_mask(struct lower *l, const struct pt_node *n, bool *causal)
{
    struct view none = {.n_dims = -1};
    PP_OWN(fold_constant_free) struct fold_constant c = {.batch_dim = -1};
    if (!lower_has(n, "attn_mask"))
        return none;
    int value = pt_arg_find(n, "attn_mask")->value;
    if (l->values[value].state != LOWERED_HOST) {
        struct view mask = lower_value(l, value);
        bool seen = l->program->values[value].type.dtype == PT_BOOL;
        return seen ? add_bool_mask(l, &mask) : mask;
    }
    int rc = fold_read(l->folder, value, &c);
    if (rc == PP_ECONFIG)
        lower_refuse(l, "%s", pp_error_get()->text);
    else if (rc < 0)
        l->rc = rc;
    if (rc < 0)
        return none;
    enum mask_kind kind = read_mask(&c);
    if (!c.floats) {
        l->rc = PP_ERESOURCE;
        return none;
    }
    *causal = *causal || kind == MASK_CAUSAL;
    return kind == MASK_OTHER ? lower_constant(l, &c) : none;
}

/* Finds where attention reads a mask: repeated to [leading dimensions of q][queries][keys]. */
static bool find_mask(struct lower *l, struct view *mask, const struct view *q, int64_t keys,
                      struct graph_attention *out)
{
    struct pt_size dims[PT_DIMS];
    struct axis heads[VIEW_AXES];
    char text[96];
    for (int tries = 0; tries < 2; tries++) {
        struct view v;
        for (int d = 0; d < q->n_dims; d++)
            dims[d] = view_size(q, d);
        dims[q->n_dims - 1] = (struct pt_size){keys, false};
        if (!view_expand(mask, q->n_dims, dims, &v))
            return lower_refuse(l, "a mask of %s does not fit its attention",
                                view_text(mask, text, sizeof(text)));
        v = view_merge(&v);
        int n = merge_heads(&v, heads), row = v.n_dims - 2, last = v.n_dims - 1;
        const struct axis *query = &v.axes[view_first_axis(&v, row)];
        const struct axis *key = &v.axes[view_first_axis(&v, last)];
        if (n <= 1 && v.count[row] <= 1 && v.count[last] <= 1 &&
            (v.count[last] == 0 || key->stride == 1)) {
            out->mask = (struct graph_heads){.offset = v.offset,
                                             .position = 1,
                                             .head = n ? heads[0].stride : 0,
                                             .query = v.count[row] ? query->stride : 0};
            return true;
        }
        /* a copy has the sizes that were repeated */
        *mask = lower_copy(l, &v);
        if (l->rc < 0 || l->refused)
            return false;
    }
    return lower_refuse(l, "a mask that cannot be brought into the order of heads");
}

/* ---- the operator */

/* Returns the result [..][queries][width] of an attention that gives [queries][heads * width], where
 * `heads` are the elements of the leading dimensions. */
static struct view view_of_result(const struct pt_tensor *type, int value, int64_t heads)
{
    struct view v = {.value = value, .n_dims = type->n_dims};
    int64_t width = type->dims[type->n_dims - 1].n, left = heads;
    for (int d = 0; d < type->n_dims; d++) {
        const struct pt_size *s = &type->dims[d];
        bool row = d == type->n_dims - 2, last = d == type->n_dims - 1;
        left /= row || last ? 1 : s->n;
        if (s->batch)
            v.axes[v.n_axes + v.count[d]++] = (struct axis){0, 0};
        if (s->n > 1)
            v.axes[v.n_axes + v.count[d]++] = (struct axis){s->n, last  ? 1
                                                                  : row ? heads * width
                                                                        : left * width};
        v.n_axes += v.count[d];
    }
    return v;
}

static bool check_attention(struct lower *l, const struct view *q, const struct view *k,
                            const struct view *v)
{
    char of_q[96], of_k[96];
    int row = q->n_dims - 2;
    bool samples = view_has_batch(q, row);
    if (q->n_dims < 3 || k->n_dims != q->n_dims || v->n_dims != q->n_dims ||
        view_has_batch(q, row + 1) || view_has_batch(k, row + 1) ||
        view_has_batch(k, row) != samples || view_has_batch(v, row) != samples)
        return lower_refuse(l,
                            "attention of %s to %s: queries, keys and values are "
                            "[samples][heads][positions][width]",
                            view_text(q, of_q, sizeof(of_q)), view_text(k, of_k, sizeof(of_k)));
    return true;
}

static void lower_attention(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view in[4] = {lower_samples(l, n, "query"), lower_samples(l, n, "key"),
                         lower_samples(l, n, "value")};
    struct heads_view q, k, v;
    struct graph_attention a = {.causal = lower_flag(n, "is_causal", false),
                                .dropout = (float)lower_number(n, "dropout_p", 0)};
    (void)row;
    if (in[0].n_dims < 0 || in[1].n_dims < 0 || in[2].n_dims < 0 ||
        !check_attention(l, &in[0], &in[1], &in[2]))
        return;
    if (!take_heads(l, &in[0], &q) || !take_heads(l, &in[1], &k) || !take_heads(l, &in[2], &v))
        return;
    if (q.shared > 1) { /* one query for several heads: as if there were so many */
        in[0] = lower_copy(l, &in[0]);
        if (l->rc < 0 || l->refused || !find_heads(&in[0], &q))
            return;
    }
    if (k.heads != v.heads || k.shared != v.shared) {
        in[1] = lower_copy(l, &in[1]);
        in[2] = lower_copy(l, &in[2]);
        if (l->rc < 0 || l->refused || !find_heads(&in[1], &k) || !find_heads(&in[2], &v))
            return;
    }
    if (q.heads % (k.heads * k.shared) || k.width != q.width || v.width != q.width ||
        k.positions != v.positions || q.heads * q.width * q.positions > INT_MAX) {
        lower_refuse(l,
                     "attention with %lld heads of %lld, keys in %lld of %lld and values of %lld "
                     "channels",
                     (long long)q.heads, (long long)q.width, (long long)k.heads, (long long)k.width,
                     (long long)v.width);
        return;
    }
    in[3] = take_mask(l, n, &a.causal);
    bool masked = in[3].n_dims >= 0;
    a.of_samples = view_has_batch(&in[0], in[0].n_dims - 2);
    if (a.causal && q.positions != k.positions)
        lower_refuse(l, "causal attention of %lld queries to %lld keys", (long long)q.positions,
                     (long long)k.positions);
    if (masked && a.of_samples)
        lower_refuse(l, "attention over the samples of a batch, with a mask");
    if (l->rc < 0 || l->refused || (masked && !find_mask(l, &in[3], &in[0], k.positions, &a)))
        return;
    a.queries = (int)q.positions;
    a.keys = (int)k.positions;
    a.heads = (int)q.heads;
    a.kv_heads = (int)k.heads;
    a.width = (int)q.width;
    a.q = q.at;
    a.k = k.at;
    a.v = v.at;
    a.scale = (float)lower_number(n, "scale", 1 / sqrt((double)q.width));
    const int values[] = {in[0].value, in[1].value, in[2].value, in[3].value};
    struct graph_node *node = lower_add(l, GRAPH_ATTENTION, masked ? 4 : 3, values,
                                        lower_shape(q.positions, q.heads * q.width));
    if (!node)
        return;
    node->attention = a;
    node->positions = a.queries;
    int64_t leading = a.of_samples ? q.positions * q.heads : q.heads;
    struct view y = view_of_result(lower_type(l, n, 0), l->graph->n_nodes - 1, leading);
    lower_set(l, n, 0, &y);
}

const struct lowering lowerings_of_attention[] = {
    LOWER("aten.scaled_dot_product_attention.default", lower_attention),
    {.target = NULL},
};
