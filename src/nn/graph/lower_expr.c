/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise nodes: loop nests over views. The views of a piece get the same axes, of which the one
 * of the samples is left out; the result's memory follows the order of the largest input.
 */
#include "lower.h"

#include <limits.h>
#include <string.h>

#include "ppcli/base/base.h"

/* ---- axes */

static int64_t length_of(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Returns the view that shows most numbers of its memory. */
static const struct view *largest_view(int n_views, const struct view *views)
{
    const struct view *largest = views;
    int64_t most = 0;
    for (int i = 0; i < n_views; i++) {
        int64_t elements = 1;
        for (int k = 0; k < views[i].n_axes; k++)
            elements *= views[i].axes[k].stride ? views[i].axes[k].size : 1;
        if (elements > most) {
            most = elements;
            largest = &views[i];
        }
    }
    return largest;
}

/* Returns the number of axes, without that of the samples, and their places: as they lie in memory,
 * the outermost first, or in the order of the dimensions. */
static int order_axes(const struct view *like, enum lower_order how, int order[VIEW_AXES])
{
    int n = 0;
    for (int k = 0; k < like->n_axes; k++) {
        int64_t stride = length_of(like->axes[k].stride);
        if (like->axes[k].size == 0)
            continue;
        int at = n++;
        for (; how != LOWER_IN_ORDER && stride != 0 && at > 0; at--) {
            int64_t before = length_of(like->axes[order[at - 1]].stride);
            if (before == 0 || before >= stride)
                break;
            order[at] = order[at - 1];
        }
        order[at] = k;
    }
    return n;
}

/* Copies views until all have the same axes. */
static bool align_views(struct lower *l, int n, struct view *views)
{
    for (int tries = 0; tries <= n; tries++) {
        struct view aligned[PP_NODE_INPUTS], *at[PP_NODE_INPUTS];
        int bad = 0;
        for (int i = 0; i < n; i++) {
            aligned[i] = view_merge(&views[i]);
            at[i] = &aligned[i];
        }
        if (view_align(at, n, &bad)) {
            memcpy(views, aligned, (size_t)n * sizeof(*views));
            return true;
        }
        views[bad] = lower_copy(l, &views[bad]);
        if (l->rc < 0 || l->refused)
            return false;
    }
    return lower_refuse(l, "its tensors cannot be brought into one order of memory");
}

/* ---- pieces */

/* Merges axis k + 1 of a piece into axis k if all arrays allow it. */
static bool merge_piece_axes(struct expr_piece *p, int k)
{
    for (int i = 0; i <= p->n_operands; i++) {
        const struct expr_operand *o = i < p->n_operands ? &p->operands[i] : &p->result;
        if (o->stride[k] != o->stride[k + 1] * p->size[k + 1] ||
            (o->table_axis >= 0 && (o->table_axis == k || o->table_axis == k + 1)))
            return false;
    }
    p->size[k] *= p->size[k + 1];
    for (int i = 0; i <= p->n_operands; i++) {
        struct expr_operand *o = i < p->n_operands ? &p->operands[i] : &p->result;
        o->stride[k] = o->stride[k + 1];
        memmove(&o->stride[k + 1], &o->stride[k + 2],
                (size_t)(VIEW_AXES - k - 2) * sizeof(*o->stride));
        o->table_axis -= o->table_axis > k;
    }
    memmove(&p->size[k + 1], &p->size[k + 2], (size_t)(VIEW_AXES - k - 2) * sizeof(*p->size));
    p->n_axes--;
    return true;
}

void graph_piece_merge(struct expr_piece *p)
{
    for (int k = 0; k + 1 < p->n_axes;)
        k = merge_piece_axes(p, k) ? 0 : k + 1;
}

/* Returns how a view addresses its value along the axes `order` of a piece. */
static struct expr_operand operand_of(const struct view *v, int input, int n, const int *order)
{
    struct expr_operand o = {.input = input, .offset = v->offset, .table_axis = -1};
    for (int k = 0; k < n; k++)
        o.stride[k] = v->axes[order[k]].stride;
    return o;
}

/* Adds a piece along the axes order[n_axes] of n views and the result's, which all have the same
 * axes, to a node; view i is of input inputs[i]. */
static struct expr_piece *append_piece(struct lower *l, struct graph_node *node, int n_axes,
                                       const int *order, int n, const struct view *views,
                                       const int *inputs, const struct view *to, int n_steps,
                                       const struct expr_step *steps)
{
    struct expr_piece *p = pp_realloc(node->pieces, (size_t)node->n_pieces + 1, sizeof(*p));
    if (!p) {
        l->rc = PP_ERESOURCE;
        return NULL;
    }
    node->pieces = p;
    p = &p[node->n_pieces++];
    *p = (struct expr_piece){.n_operands = n, .n_steps = n_steps};
    p->operands = pp_alloc((size_t)n, sizeof(*p->operands));
    p->steps = pp_alloc((size_t)n_steps, sizeof(*p->steps));
    if (!p->operands || !p->steps) {
        p->n_operands = p->n_steps = 0;
        l->rc = PP_ERESOURCE;
        return NULL;
    }
    p->n_axes = n_axes;
    for (int k = 0; k < p->n_axes; k++)
        p->size[k] = to->axes[order[k]].size;
    for (int i = 0; i < n; i++)
        p->operands[i] = operand_of(&views[i], inputs[i], p->n_axes, order);
    p->result = operand_of(to, 0, p->n_axes, order);
    memcpy(p->steps, steps, (size_t)n_steps * sizeof(*steps));
    return p;
}

/* Merges the axes of a piece; returns false if too many are left. */
static bool finish_piece(struct lower *l, struct expr_piece *p)
{
    graph_piece_merge(p);
    if (p->n_axes <= PP_AXES)
        return true;
    return lower_refuse(l, "%s: a tensor with more than %d axes in memory",
                        l->program->nodes[l->node].target, PP_AXES);
}

/* ---- results */

/* Returns whether the axes of a view lie in memory as those of another, which is whole. */
static bool has_memory_of(const struct view *v, const struct view *like, int64_t floats)
{
    int order[VIEW_AXES], n;
    bool same = v->n_axes == like->n_axes && view_is_whole(like, floats, order, &n);
    for (int k = 0; same && k < v->n_axes; k++)
        same = v->axes[k].stride == like->axes[k].stride && v->axes[k].size == like->axes[k].size;
    return same;
}

/* Returns the shape in memory of what a view shows as a whole: an image if it is one of [samples]
 * [channels][height][width], else rows of the innermost axis. */
static struct pp_shape shape_of_whole(const struct view *v)
{
    struct view m = view_merge(v);
    int64_t channels = 1, floats = view_elements(v);
    for (int k = 0; k < m.n_axes; k++)
        channels = m.axes[k].size > 0 && m.axes[k].stride == 1 ? m.axes[k].size : channels;
    if (m.n_dims == 4 && view_has_batch(&m, 0) && m.count[0] == 1) {
        int64_t C = view_size(&m, 1).n, H = view_size(&m, 2).n, W = view_size(&m, 3).n;
        const struct pt_size sizes[] = {{1, true}, {H, false}, {W, false}, {C, false}};
        struct view image = view_of_value(v->value, 4, sizes);
        image = view_permute(&image, (const int[]){0, 3, 1, 2});
        if (has_memory_of(&m, &image, floats))
            return pp_shape_image((int)H, (int)W, (int)C);
    }
    return lower_shape(floats / channels, channels);
}

/* Adds a node for a result, and sets its value. */
static struct graph_node *add_result(struct lower *l, int n_in, const int *in,
                                     struct pp_shape shape, struct view *result)
{
    if (view_elements(result) > INT_MAX) {
        lower_refuse(l, "a value of more than 2^31 - 1 numbers per sample");
        return NULL;
    }
    struct graph_node *node = lower_add(l, GRAPH_EXPR, n_in, in, shape);
    result->value = l->graph->n_nodes - 1;
    return node;
}

/* Returns whether no view lacks its value because of an earlier problem. */
static bool are_ready(const struct lower *l, int n, const struct view *views)
{
    for (int i = 0; i < n; i++)
        if (views[i].n_dims < 0)
            return false;
    return l->rc == 0 && !l->refused;
}

bool lower_expr(struct lower *l, int n_views, struct view *views, int n_steps,
                const struct expr_step *steps, const bool *summed, enum lower_order how,
                struct view *out)
{
    int order[VIEW_AXES], in[PP_NODE_INPUTS], inputs[PP_NODE_INPUTS], dim_of[VIEW_AXES] = {0};
    if (n_views < 1 || n_views >= PP_NODE_INPUTS)
        return lower_refuse(l, "%s: %d tensors at once; at most %d are possible",
                            l->program->nodes[l->node].target, n_views, PP_NODE_INPUTS - 1);
    for (int i = 0; i < n_views; i++)
        if (views[i].full)
            return lower_refuse(l, "%s: a tensor with more than %d axes in memory",
                                l->program->nodes[l->node].target, VIEW_AXES);
    if (!are_ready(l, n_views, views) || !align_views(l, n_views, views))
        return false;
    const struct view *like = largest_view(n_views, views);
    int n = order_axes(like, how, order);
    struct view to = views[0], result = {.n_dims = to.n_dims};
    for (int d = 0, k = 0; d < to.n_dims; d++)
        for (int i = 0; i < to.count[d]; i++)
            dim_of[k++] = d;
    to.offset = 0;
    int64_t floats = 1;
    for (int i = n - 1; i >= 0; i--) {
        struct axis *a = &to.axes[order[i]];
        bool gone = summed && summed[dim_of[order[i]]];
        a->stride = gone ? 0 : floats;
        if (!gone && (__builtin_mul_overflow(floats, a->size, &floats) || floats > PT_ELEMENTS))
            return lower_refuse(l, "%s: its result is too large to be true",
                                l->program->nodes[l->node].target);
    }
    /* a summed dimension has size 1 in the result */
    for (int k = 0; k < to.n_axes; k++) {
        if (!summed || !summed[dim_of[k]]) {
            result.axes[result.n_axes++] = to.axes[k];
            result.count[dim_of[k]]++;
        } else if (to.axes[k].size == 0) {
            return lower_refuse(l,
                                "%s sums over the samples of a batch: a micro-batch has only some "
                                "of them",
                                l->program->nodes[l->node].target);
        }
    }
    for (int i = 0; i < n_views; i++) {
        in[i] = views[i].value;
        inputs[i] = i;
    }
    struct pp_shape shape =
        floats == graph_floats(l->graph, like->value) && has_memory_of(&result, like, floats)
            ? l->graph->nodes[like->value].shape
            : shape_of_whole(&result);
    struct graph_node *node = add_result(l, n_views, in, shape, &result);
    struct expr_piece *p =
        node ? append_piece(l, node, n, order, n_views, views, inputs, &to, n_steps, steps) : NULL;
    if (!p || !finish_piece(l, p))
        return false;
    *out = result;
    return true;
}

/* ---- moves */

struct view lower_layout(const struct view *like, int n_dims, const struct pt_size *dims)
{
    struct view v = {.n_dims = n_dims};
    int64_t key[VIEW_AXES];
    int order[VIEW_AXES], n = 0;
    for (int d = 0; d < n_dims; d++) {
        int64_t least = 0, left = dims[d].n;
        int at = d < like->n_dims ? view_first_axis(like, d) : 0;
        int end = d < like->n_dims ? at + like->count[d] : 0;
        for (int k = at; k < end; k++) {
            int64_t stride = length_of(like->axes[k].stride);
            least = stride && (least == 0 || stride < least) ? stride : least;
        }
        /* what stands before and after the samples in the dimension stays there */
        if (dims[d].batch) {
            int64_t before = 1;
            for (; at < end && like->axes[at].size != 0; at++)
                before *= like->axes[at].size;
            before = at < end && left % before == 0 ? before : 1;
            left /= before;
            if (before > 1) {
                key[v.n_axes] = least;
                v.axes[v.n_axes++] = (struct axis){before, 0};
                v.count[d]++;
            }
            v.axes[v.n_axes++] = (struct axis){0, 0};
            v.count[d]++;
        }
        if (left > 1) {
            key[v.n_axes] = least;
            v.axes[v.n_axes++] = (struct axis){left, 0};
            v.count[d]++;
        }
    }
    for (int k = 0; k < v.n_axes; k++) {
        if (v.axes[k].size == 0)
            continue;
        int at = n++;
        for (; at > 0 && key[k] != 0; at--) {
            if (key[order[at - 1]] == 0 || key[order[at - 1]] >= key[k])
                break;
            order[at] = order[at - 1];
        }
        order[at] = k;
    }
    int64_t floats = 1;
    for (int i = n - 1; i >= 0; i--) {
        v.axes[order[i]].stride = floats;
        floats *= v.axes[order[i]].size;
    }
    return v;
}

/* Returns the number of a value among the inputs, which it is added to if it is new. */
static int input_of(int value, int *n_in, int *in)
{
    for (int i = 0; i < *n_in; i++)
        if (in[i] == value)
            return i;
    in[*n_in] = value;
    return (*n_in)++;
}

/* Gives the two views of a part the same axes. */
static bool align_part(struct lower *l, struct lower_part *part)
{
    for (int tries = 0; tries < 2; tries++) {
        struct view from = view_merge(&part->from), to = part->to;
        struct view *const both[] = {&from, &to};
        int bad;
        if (view_align(both, 2, &bad)) {
            part->from = from;
            part->to = to;
            return true;
        }
        if (part->table_dim < 0)
            part->from = lower_copy(l, &part->from);
        if (l->rc < 0 || l->refused)
            return false;
    }
    return lower_refuse(l, "%s: its tensors cannot be brought into one order of memory",
                        l->program->nodes[l->node].target);
}

bool lower_move(struct lower *l, const struct view *layout, float fill, int n_parts,
                struct lower_part *parts, struct view *out)
{
    static const struct expr_step load = {.code = PP_EXPR_LOAD};
    struct view result = *layout;
    int n_in = 0, in[PP_NODE_INPUTS];
    for (int i = 0; i < n_parts; i++)
        if (!are_ready(l, 1, &parts[i].from) || !align_part(l, &parts[i]))
            return false;
    for (int i = 0; i < n_parts; i++) {
        if (n_in == PP_NODE_INPUTS)
            return lower_refuse(l, "%s of more than %d tensors", l->program->nodes[l->node].target,
                                PP_NODE_INPUTS);
        input_of(parts[i].from.value, &n_in, in);
    }
    struct graph_node *node = add_result(l, n_in, in, shape_of_whole(&result), &result);
    if (!node)
        return false;
    node->fill = fill;
    for (int i = 0; i < n_parts; i++) {
        const struct lower_part *part = &parts[i];
        int input = input_of(part->from.value, &n_in, in);
        int order[VIEW_AXES], n = order_axes(&part->to, LOWER_AS_LARGEST, order);
        struct expr_piece *p =
            append_piece(l, node, n, order, 1, &part->from, &input, &part->to, 1, &load);
        if (!p)
            return false;
        for (int k = 0; part->table_dim >= 0 && k < n; k++) {
            if (order[k] == view_first_axis(&part->to, part->table_dim)) {
                p->operands[0].table_axis = k;
                p->operands[0].table = part->table;
            }
        }
        if (!finish_piece(l, p))
            return false;
    }
    *out = result;
    return true;
}
