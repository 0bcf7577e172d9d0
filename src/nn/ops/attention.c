/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention. Keeps one log-sum-exp per query and head instead of the
 * probabilities; the backward pass recomputes these. To generate a text, it keeps keys and values
 * of earlier positions instead: [cached][k, v].
 */
#include "../nn.h"
#include "ppcli/base/base.h"

enum {
    INPUTS = 4 /* at most: q, k, v and a mask */
};

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
    for (int j = 0; j < n->n_x; j++)
        c->flops_i = n->wants_dx[j] ? 5 * product : c->flops_i;
}

/* Returns the strides of q, k, v or the mask. */
static struct pp_strides find_strides(const struct pp_node *n, const struct pp_heads_place *p)
{
    size_t sample = (size_t)p->sample, position = (size_t)p->at.position, head = (size_t)p->at.head;
    if (!n->attention.batch_first)
        return (struct pp_strides){position, sample, head, 0};
    return (struct pp_strides){p->one_row ? 0 : sample, position, head, sample};
}

static float *find_place(const struct pp_backend *be, const float *const *x,
                         const struct pp_heads_place *p)
{
    return x[p->input] ? pp_value_at(be, x[p->input], (size_t)p->at.offset) : NULL;
}

static struct pp_attention make_attention_call(const struct pp_node *n, const struct pp_backend *be,
                                               const struct pp_at *at)
{
    const struct pp_attention_settings *s = &n->attention;
    size_t q = q_width(n), T = (size_t)n->positions, D = (size_t)s->width;
    struct pp_attention a = {.B = count_texts(n, at->pass->rows),
                             .queries = count_queries(n, at->pass->rows),
                             .keys = s->batch_first ? s->keys : at->pass->rows,
                             .heads = s->heads,
                             .kv_heads = s->kv_heads,
                             .width = s->width,
                             .scale = s->scale,
                             .causal = s->causal,
                             .lengths = s->padded ? at->pass->lengths : NULL,
                             .index = at->pass->index,
                             .q = find_place(be, at->x, &s->q),
                             .k = find_place(be, at->x, &s->k),
                             .v = find_place(be, at->x, &s->v),
                             .q_at = find_strides(n, &s->q),
                             .k_at = find_strides(n, &s->k),
                             .v_at = find_strides(n, &s->v),
                             .y_at = {T * q, q, D, 0},
                             .scratch = at->scratch,
                             .lse = at->keep,
                             .y = at->y};
    if (!s->batch_first)
        a.y_at = (struct pp_strides){q, T * q, D, 0};
    if (s->masked) {
        a.mask = find_place(be, at->x, &s->mask);
        a.mask_at = find_strides(n, &s->mask);
        a.mask_key = (size_t)s->mask.at.key;
    }
    if (at->pass->training && at->pass->step) {
        a.p = s->dropout;
        a.key = n->key ^ at->pass->seed * 0xD2511F53CD9E8D57u;
        a.step = at->pass->step;
        a.first_row = at->pass->first_row;
        a.of_queries = !s->batch_first;
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
    a->k_at = a->v_at = (struct pp_strides){0, both, (size_t)n->attention.width, 0};
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

/* Writes the gradients one after the other, where their memory overlaps: each is added. */
static int add_each_gradient(struct pp_backend *be, const struct pp_attention *all)
{
    for (int i = 0; i < 4; i++) {
        struct pp_attention a = *all;
        a.dq = i == 0 ? all->dq : NULL;
        a.dk = i == 1 ? all->dk : NULL;
        a.dv = i == 2 ? all->dv : NULL;
        a.dmask = i == 3 ? all->dmask : NULL;
        if (a.dq || a.dk || a.dv || a.dmask)
            PP_TRY(pp_backend_attention_backward(be, &a));
    }
    return 0;
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    const struct pp_attention_settings *s = &n->attention;
    const struct pp_heads_place *of_input[INPUTS] = {0};
    const struct pp_heads_place *const places[] = {&s->q, &s->k, &s->v, &s->mask};
    struct pp_attention a = make_attention_call(n, be, at);
    bool add[INPUTS];
    if (at->pass->rows == 0)
        return 0;
    for (int i = 0; i < (s->masked ? 4 : 3); i++)
        of_input[places[i]->input] = places[i];
    for (int j = 0; j < n->n_x; j++) {
        add[j] = at->add[j] || (s->gaps >> j & 1);
        size_t floats = (size_t)at->pass->rows * (size_t)of_input[j]->sample;
        if (at->dx[j] && add[j] && !at->add[j])
            PP_TRY(pp_backend_zero(be, at->dx[j], floats * pp_backend_value_bytes(&be->choice)));
    }
    a.dy = at->dy;
    a.dq = find_place(be, (const float *const *)at->dx, &s->q);
    a.dk = find_place(be, (const float *const *)at->dx, &s->k);
    a.dv = find_place(be, (const float *const *)at->dx, &s->v);
    a.dmask = s->masked ? find_place(be, (const float *const *)at->dx, &s->mask) : NULL;
    a.add = add[s->q.input];
    a.add_k = add[s->k.input];
    a.add_v = add[s->v.input];
    a.add_mask = s->masked && add[s->mask.input];
    if (s->overlaps)
        return add_each_gradient(be, &a);
    return a.dq || a.dk || a.dv || a.dmask ? pp_backend_attention_backward(be, &a) : 0;
}

const struct pp_node_op op_attention = {
    .name = "attention",
    .kernels = PP_USES(attention_forward) | PP_USES(attention_backward),
    .workspace = find_workspace,
    .cost = cost,
    .forward = forward,
    .backward_input = backward_input,
};

/* ---- building */

/* Sets the settings of a node whose inputs are known: input of q, k, v and, unless it is -1, of the
 * mask. */
static void set_view(const struct builder *b, struct pp_node *n, const struct attention_view *v,
                     const int input[4])
{
    const struct pp_heads_at at[] = {v->q, v->k, v->v, v->mask};
    struct pp_heads_place place[4] = {0};
    for (int i = 0; i < 4 && input[i] >= 0; i++) {
        int value = n->x[input[i]];
        place[i] = (struct pp_heads_place){.input = input[i],
                                           .sample = (int)pp_shape_floats(shape_of(b, value)),
                                           .one_row = value > 0 && b->m->nodes[value - 1].one_row,
                                           .at = at[i]};
        n->reads |= PP_READS_IN_I(input[i]);
    }
    n->attention = (struct pp_attention_settings){.heads = v->heads.q,
                                                  .kv_heads = v->heads.kv,
                                                  .width = v->heads.width,
                                                  .keys = v->keys,
                                                  .causal = v->heads.causal,
                                                  .batch_first = v->heads.batch_first,
                                                  .dropout = v->heads.dropout,
                                                  .scale = v->scale,
                                                  .q = place[0],
                                                  .k = place[1],
                                                  .v = place[2],
                                                  .mask = place[3],
                                                  .masked = input[3] >= 0};
    n->positions = v->queries;
    n->reads = n->cached > 0 ? 0 : n->reads | PP_READS_Y_IN_I; /* a cached text has no I */
}

int attention(struct builder *b, const char *name, int x, int kv, const struct heads *h)
{
    const struct pp_shape from = *shape_of(b, x), other = *shape_of(b, kv < 0 ? x : kv);
    int q = h->q * h->width, half = h->kv * h->width, both = 2 * half, T = from.dims[0];
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
    bool apart = kv < 0 && x > 0 && b->m->nodes[x - 1].op == &op_cross_linear;
    int row = kv < 0 && !apart ? q + both : both, first = kv >= 0 ? 0 : apart ? T * q : q;
    struct attention_view view = {.heads = *h,
                                  .queries = T,
                                  .keys = other.dims[0],
                                  .q = {0, kv < 0 && !apart ? q + both : q, h->width, 0},
                                  .k = {first, row, h->width, 0},
                                  .v = {first + half, row, h->width, 0}};
    int of_kv_input = kv < 0 ? 0 : 1;
    set_view(b, n, &view, (const int[]){0, of_kv_input, of_kv_input, -1});
    n->attention.padded = true;
    return n->y;
}

/* Returns the number of `value` among the inputs x[*n], and adds it if it is a new one. */
static int find_input(int *x, int *n, int value)
{
    int j = 0;
    while (j < *n && x[j] != value)
        j++;
    *n += j == *n;
    x[j] = value;
    return j;
}

/* What attention reads of a place: size[] floats, stride[] apart. */
struct region {
    int offset, size[3], stride[3];
};

static struct region find_region(const struct pp_node *n, int i, const struct pp_heads_place *p)
{
    const struct pp_attention_settings *s = &n->attention;
    bool of_keys = i == 1 || i == 2, of_mask = i == 3;
    struct region r = {p->at.offset,
                       {of_keys ? s->keys : n->positions, of_keys ? s->kv_heads : s->heads,
                        of_mask ? s->keys : s->width},
                       {p->at.position, p->at.head, of_mask ? p->at.key : 1}};
    for (int k = 0; of_mask && k < 3; k++)
        r.size[k] = r.stride[k] == 0 ? 1 : r.size[k];
    return r;
}

/* Returns whether a region is inside a value, and no two of its floats are the same one. */
static bool is_proper(const struct region *r, int floats)
{
    int64_t reach = 0;
    bool distinct = r->offset >= 0, done[3] = {false};
    for (int n = 0; n < 3; n++) { /* by growing strides */
        int least = -1;
        for (int k = 0; k < 3; k++)
            least = !done[k] && (least < 0 || r->stride[k] < r->stride[least]) ? k : least;
        done[least] = true;
        distinct = distinct && (r->size[least] == 1 || r->stride[least] > reach);
        reach += (r->size[least] - 1) * (int64_t)r->stride[least];
    }
    return distinct && r->offset + reach < floats;
}

static int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* Marks the region in seen[], whose elements stand for `unit` floats; returns whether one was
 * marked before. */
static bool mark_region(const struct region *r, int unit, uint8_t *seen)
{
    bool again = false;
    int step = r->stride[2] == 1 && r->size[2] % unit == 0 ? unit : 1; /* along a head */
    for (int i = 0; i < r->size[0]; i++) {
        for (int h = 0; h < r->size[1]; h++) {
            for (int d = 0; d < r->size[2]; d += step) {
                uint8_t *at =
                    seen +
                    (r->offset + i * r->stride[0] + h * r->stride[1] + d * r->stride[2]) / unit;
                again = again || *at;
                *at = 1;
            }
        }
    }
    return again;
}

/* Finds out whether the regions of an input fill it, and whether they overlap. */
static void compare_regions(struct builder *b, struct pp_node *n, int input, int n_regions,
                            const struct region *regions)
{
    int floats = (int)pp_shape_floats(shape_of(b, n->x[input])), unit = floats;
    int64_t sum = 0;
    bool again = false;
    for (int i = 0; i < n_regions; i++) {
        const struct region *r = &regions[i];
        sum += (int64_t)r->size[0] * r->size[1] * r->size[2];
        unit = common_divisor(unit, r->offset);
        for (int k = 0; k < 3; k++)
            unit = common_divisor(unit, k == 2 && r->stride[k] == 1 ? r->size[k]
                                        : r->size[k] == 1           ? 0
                                                                    : r->stride[k]);
    }
    PP_OWN_MEMORY uint8_t *seen = n_regions > 1 ? pp_alloc((size_t)(floats / unit), 1) : NULL;
    if (n_regions > 1 && !seen)
        b->rc = PP_ERESOURCE;
    for (int i = 0; seen && i < n_regions; i++)
        again = mark_region(&regions[i], unit, seen) || again;
    n->attention.gaps |= again || sum < floats ? 1u << input : 0;
    n->attention.overlaps = n->attention.overlaps || again;
}

/* Sets what the backward pass is to know of the node's places, or fails if it cannot write there. */
static int check_places(struct builder *b, struct pp_node *n)
{
    const struct pp_attention_settings *s = &n->attention;
    const struct pp_heads_place *const places[] = {&s->q, &s->k, &s->v, &s->mask};
    for (int j = 0; j < n->n_x; j++) {
        struct region regions[4];
        int n_regions = 0;
        for (int i = 0; i < (s->masked ? 4 : 3); i++) {
            if (places[i]->input != j)
                continue;
            regions[n_regions] = find_region(n, i, places[i]);
            if (!is_proper(&regions[n_regions++], places[i]->sample))
                return refuse(b,
                              "%s: attention of %d heads reads outside of a value, or a number "
                              "of it twice",
                              b->name, s->heads);
            if (!s->batch_first && (places[i]->one_row || s->masked || n->positions != s->keys))
                return refuse(b,
                              "%s: attention over samples has no mask, and all of its inputs "
                              "have samples with as many positions",
                              b->name);
        }
        compare_regions(b, n, j, n_regions, regions);
    }
    return n->y;
}

int attention_of(struct builder *b, const char *name, int q, int k, int v, int mask,
                 const struct attention_view *view)
{
    const struct heads *h = &view->heads;
    int n_x = 0, x[INPUTS], input[4] = {0, 0, 0, -1};
    input[0] = find_input(x, &n_x, q);
    input[1] = find_input(x, &n_x, k);
    input[2] = find_input(x, &n_x, v);
    if (mask >= 0)
        input[3] = find_input(x, &n_x, mask);
    struct pp_node *n = add_node_of(b, &op_attention, name, n_x, x,
                                    (struct pp_shape){2, {view->queries, h->q * h->width, 1}});
    if (!n)
        return 0;
    if (h->q < 1 || h->kv < 1 || h->width < 1 || h->q % h->kv)
        return refuse(b, "%s: %d heads do not share %d heads of keys and values evenly", b->name,
                      h->q, h->kv);
    if (h->causal && view->queries != view->keys)
        return refuse(b, "%s: causal attention of %d positions to %d; use a mask", b->name,
                      view->queries, view->keys);
    if (b->cached > 0)
        return refuse(b, "%s: such an attention cannot continue a text", b->name);
    set_view(b, n, view, input);
    return check_places(b, n);
}
