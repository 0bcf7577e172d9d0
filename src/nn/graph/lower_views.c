/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that show the elements of a tensor in another way. Nearly all only rearrange the axes of
 * a view; where memory does not allow that, the tensor is copied first. The sizes are those that the
 * program gives its results.
 */
#include "lower.h"

#include <string.h>

#include "ppcli/base/base.h"

/* ---- views that may need a copy */

/* Reads a view that may be copied to get it; `dim` is one with the samples. */
static bool refuse_samples(struct lower *l, const struct view *v, int dim)
{
    char text[96];
    return lower_refuse(l,
                        "%s takes samples of a batch apart (%s, dimension %d): a micro-batch has "
                        "only some of them",
                        l->program->nodes[l->node].target, view_text(v, text, sizeof(text)), dim);
}

bool lower_narrow(struct lower *l, const struct view *v, int dim, int64_t start, int64_t length,
                  int64_t step, struct view *out)
{
    if (v->n_dims < 0)
        return false;
    if (!view_holds(v, dim, start, length, step))
        return lower_refuse(l, "%s takes elements that dimension %d does not have",
                            l->program->nodes[l->node].target, dim);
    if (view_narrow(v, dim, start, length, step, out))
        return true;
    if (view_has_batch(v, dim))
        return refuse_samples(l, v, dim);
    if (length == 1) { /* a size of 1 in memory */
        struct view row = *v;
        int64_t left = start, inner = view_size(v, dim).n;
        int at = view_first_axis(v, dim), n = v->count[dim];
        for (int k = at; k < at + n; k++) {
            inner /= v->axes[k].size;
            row.offset += left / inner * v->axes[k].stride;
            left %= inner;
        }
        memmove(&row.axes[at], &row.axes[at + n], (size_t)(v->n_axes - at - n) * sizeof(*row.axes));
        row.n_axes -= n;
        row.count[dim] = 0;
        *out = row;
        return true;
    }
    struct view copy = lower_copy(l, v);
    return copy.n_dims >= 0 && view_narrow(&copy, dim, start, length, step, out);
}

bool lower_reshape(struct lower *l, const struct view *v, int n_dims, const struct pt_size *dims,
                   struct view *out)
{
    char text[96];
    if (v->n_dims < 0)
        return false;
    if (view_reshape(v, n_dims, dims, out))
        return true;
    struct view copy = lower_copy(l, v);
    if (copy.n_dims < 0)
        return false;
    return view_reshape(&copy, n_dims, dims, out) ||
           lower_refuse(l, "%s mixes the samples of a batch: it reads %s",
                        l->program->nodes[l->node].target, view_text(v, text, sizeof(text)));
}

bool lower_expand(struct lower *l, const struct view *v, int n_dims, const struct pt_size *dims,
                  struct view *out)
{
    char text[96];
    if (v->n_dims < 0)
        return false;
    return view_expand(v, n_dims, dims, out) ||
           lower_refuse(l, "%s: it cannot repeat a tensor of shape %s so",
                        l->program->nodes[l->node].target, view_text(v, text, sizeof(text)));
}

int lower_dims(const struct pt_node *n, const char *name, int n_dims, int out[PT_DIMS])
{
    const struct pt_arg *a = pt_arg_find(n, name);
    int count = 0;
    if (a && a->kind == PT_INT)
        out[count++] = lower_dim(n, name, 0, n_dims);
    for (int i = 0; a && a->kind == PT_INTS && i < a->n && i < PT_DIMS; i++)
        out[count++] = lower_in_range(a->sizes[i].n, n_dims);
    for (int d = count; d < PT_DIMS; d++)
        out[d] = count == 0 && d < n_dims ? d : 0;
    return count == 0 ? n_dims : count;
}

/* ---- the same elements */

/* Types whose values are whole numbers. */
static bool is_whole_number(enum pt_dtype t)
{
    return t != PT_F32 && t != PT_F64 && t != PT_F16 && t != PT_BF16;
}

/* Nothing happens but a conversion: floats are rounded towards 0, and bools are 0 and 1. */
static void lower_same(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_arg *a = pt_arg_find(n, "self");
    if (!a || a->kind != PT_TENSOR) {
        lower_refuse(l, "%s: its argument self is not a tensor", n->target);
        return;
    }
    enum pt_dtype from = l->program->values[a->value].type.dtype, to = lower_type(l, n, 0)->dtype;
    const char *formula = to == PT_BOOL && from != PT_BOOL                ? "a == 0 ? 0 : 1"
                          : is_whole_number(to) && !is_whole_number(from) ? "trunc(a)"
                                                                          : NULL;
    struct lower_operand x = {.is_number = false};
    if (!formula && l->values[a->value].state == LOWERED_WEIGHT) {
        l->values[n->outputs[0]] = l->values[a->value];
        return;
    }
    x.view = lower_value(l, a->value);
    if (!formula || lower_compute(l, formula, 1, &x, NULL, &x.view))
        lower_set(l, n, 0, &x.view);
}

/* No gradient passes: that matters unless it is a whole number, or the data. */
static void lower_detach(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_arg *a = pt_arg_find(n, "self");
    bool learns = false;
    if (a && a->kind == PT_TENSOR) {
        struct lowered v = l->values[a->value];
        learns = v.state == LOWERED_WEIGHT ? l->program->weights[v.weight].requires_grad
                                           : v.state == LOWERED_VIEW && v.view.value != 0;
    }
    if (learns && !is_whole_number(lower_type(l, n, 0)->dtype))
        lower_refuse(l, "%s: ppcli has no operator that stops a gradient", n->target);
    else
        lower_same(l, n, row);
}

static void lower_shaped(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct view v = lower_tensor(l, n, "self"), out;
    if (lower_reshape(l, &v, type->n_dims, type->dims, &out))
        lower_set(l, n, 0, &out);
}

static void lower_expanded(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct view v = lower_tensor(l, n, "self"), out;
    if (lower_expand(l, &v, type->n_dims, type->dims, &out))
        lower_set(l, n, 0, &out);
}

/* ---- another order of dimensions */

/* Makes the first result of node n a view of v with dimension order[d] as dimension d, if order[n_order] has
 * each dimension once. */
static void permute_dims(struct lower *l, const struct pt_node *n, const struct view *v,
                         int n_order, const int *order)
{
    bool used[PT_DIMS] = {false}, good = n_order == v->n_dims;
    for (int d = 0; good && d < n_order; d++) {
        good = order[d] >= 0 && order[d] < v->n_dims && !used[order[d]];
        used[good ? order[d] : 0] = true;
    }
    if (!good) {
        lower_refuse(l, "%s does not name each of the %d dimensions once", n->target, v->n_dims);
        return;
    }
    struct view out = view_permute(v, order);
    lower_set(l, n, 0, &out);
}

static void lower_permuted(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self");
    int order[PT_DIMS];
    if (v.n_dims < 0)
        return;
    int n_order = lower_dims(n, "dims", v.n_dims, order);
    permute_dims(l, n, &v, n_order, order);
}

/* Names of the two dimensions that an operator exchanges. */
static const char *const exchanged[][2] = {{"dim0", "dim1"}, {"axis0", "axis1"}};

static void lower_transposed(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self");
    if (v.n_dims < 0)
        return;
    v = view_transpose(&v, lower_dim(n, exchanged[row->which][0], 0, v.n_dims),
                       lower_dim(n, exchanged[row->which][1], 0, v.n_dims));
    lower_set(l, n, 0, &v);
}

/* Exchanges the last two dimensions, or, with row->which, reverses all. */
static void lower_matrix(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self");
    int order[PT_DIMS];
    if (v.n_dims < 0)
        return;
    for (int d = 0; d < v.n_dims; d++)
        order[d] = row->which || v.n_dims < 2 ? v.n_dims - 1 - d : d;
    if (v.n_dims >= 2 && !row->which) {
        order[v.n_dims - 1] = v.n_dims - 2;
        order[v.n_dims - 2] = v.n_dims - 1;
    }
    v = view_permute(&v, order);
    lower_set(l, n, 0, &v);
}

static void lower_moved(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self");
    int from[PT_DIMS], to[PT_DIMS], order[PT_DIMS];
    bool used[PT_DIMS] = {false};
    if (v.n_dims < 0)
        return;
    int count = lower_dims(n, "source", v.n_dims, from);
    lower_dims(n, "destination", v.n_dims, to);
    for (int d = 0; d < v.n_dims; d++)
        order[d] = -1;
    for (int i = 0; i < count; i++) {
        order[to[i]] = from[i];
        used[from[i]] = true;
    }
    for (int d = 0, next = 0; d < v.n_dims; d++) {
        if (order[d] >= 0)
            continue;
        while (next < v.n_dims && used[next])
            next++;
        order[d] = next++;
    }
    permute_dims(l, n, &v, v.n_dims, order);
}

static void lower_flipped(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self");
    int dims[PT_DIMS];
    if (v.n_dims < 0)
        return;
    int count = lower_dims(n, "dims", v.n_dims, dims);
    for (int i = 0; i < count; i++) {
        struct pt_size size = view_size(&v, dims[i]);
        if (size.batch) {
            refuse_samples(l, &v, dims[i]);
            return;
        }
        if (size.n > 1 && !lower_narrow(l, &v, dims[i], size.n - 1, size.n, -1, &v))
            return;
    }
    lower_set(l, n, 0, &v);
}

/* ---- parts of a dimension */

static void lower_selected(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self");
    if (v.n_dims < 0)
        return;
    int dim = lower_dim(n, "dim", 0, v.n_dims);
    int64_t index = lower_int(n, "index", 0), size = view_size(&v, dim).n;
    if (view_has_batch(&v, dim)) {
        refuse_samples(l, &v, dim);
        return;
    }
    if (!lower_narrow(l, &v, dim, index < 0 ? index + size : index, 1, 1, &v))
        return;
    v = view_drop(&v, dim);
    lower_set(l, n, 0, &v);
}

static void lower_sliced(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct view v = lower_tensor(l, n, "self");
    if (v.n_dims < 0)
        return;
    int dim = lower_dim(n, "dim", 0, v.n_dims);
    int64_t start = lower_int(n, "start", 0), step = row->which ? 1 : lower_int(n, "step", 1);
    struct pt_size size = view_size(&v, dim);
    start = start < 0 ? start + size.n : start;
    start = start < 0 ? 0 : start > size.n ? size.n : start;
    if (size.batch &&
        (start != 0 || step != 1 || !type->dims[dim].batch || type->dims[dim].n != size.n)) {
        refuse_samples(l, &v, dim);
        return;
    }
    if (lower_narrow(l, &v, dim, start, type->dims[dim].n, step, &v))
        lower_set(l, n, 0, &v);
}

/* Several results, one after the other in a dimension. */
static void lower_split(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self"), part;
    if (v.n_dims < 0)
        return;
    int dim = lower_dim(n, "dim", 0, v.n_dims);
    int64_t start = 0;
    for (int k = 0; k < n->n_outputs; k++) {
        if (n->outputs[k] < 0) {
            lower_refuse(l, "%s: the archive does not have the sizes of all its results",
                         n->target);
            return;
        }
        struct pt_size size = lower_type(l, n, k)->dims[dim];
        if (view_has_batch(&v, dim) && n->n_outputs > 1) {
            refuse_samples(l, &v, dim);
            return;
        }
        if (size.n == 0) {
            l->values[n->outputs[k]].state = LOWERED_EMPTY;
            continue;
        }
        if (!lower_narrow(l, &v, dim, start, size.n, 1, &part))
            return;
        lower_set(l, n, k, &part);
        start += size.n;
    }
}

/* As many results as a dimension has elements. */
static void lower_unbound(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self"), part;
    if (v.n_dims < 0)
        return;
    int dim = lower_dim(n, "dim", 0, v.n_dims);
    if (view_has_batch(&v, dim)) {
        refuse_samples(l, &v, dim);
        return;
    }
    for (int k = 0; k < n->n_outputs; k++) {
        if (!lower_narrow(l, &v, dim, k, 1, 1, &part))
            return;
        part = view_drop(&part, dim);
        lower_set(l, n, k, &part);
    }
}

/* ---- repeated elements: axes of stride 0 */

bool lower_repeat(struct lower *l, struct view *v, int dim, int64_t times, bool innermost)
{
    int at = view_first_axis(v, dim) + (innermost ? v->count[dim] : 0);
    if (times == 1)
        return true;
    if (v->n_axes == VIEW_AXES)
        return lower_refuse(l, "%s: a tensor with too many axes",
                            l->program->nodes[l->node].target);
    memmove(&v->axes[at + 1], &v->axes[at], (size_t)(v->n_axes - at) * sizeof(*v->axes));
    v->axes[at] = (struct axis){times, 0};
    v->n_axes++;
    v->count[dim]++;
    return true;
}

/* repeat, tile: the whole tensor again and again. */
static void lower_repeated(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct view v = lower_tensor(l, n, "self");
    if (v.n_dims < 0)
        return;
    while (v.n_dims < type->n_dims)
        v = view_insert(&v, 0);
    for (int d = 0; d < type->n_dims; d++) {
        struct pt_size has = view_size(&v, d), wants = type->dims[d];
        if (has.batch && wants.n != has.n) {
            refuse_samples(l, &v, d);
            return;
        }
        if (!lower_repeat(l, &v, d, wants.n / has.n, false) ||
            (wants.batch && !has.batch && !lower_repeat(l, &v, d, 0, false)))
            return;
    }
    lower_set(l, n, 0, &v);
}

/* repeat_interleave: each element several times. */
static void lower_interleave(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct view v = lower_tensor(l, n, "self");
    int64_t times = lower_int(n, "repeats", 1);
    if (v.n_dims < 0)
        return;
    struct pt_size all = {type->dims[0].n / times, type->dims[0].batch};
    if (!lower_has(n, "dim") && !lower_reshape(l, &v, 1, &all, &v))
        return;
    if (lower_repeat(l, &v, lower_dim(n, "dim", 0, v.n_dims), times, true))
        lower_set(l, n, 0, &v);
}

/* ---- channels */

/* Reshapes v, [samples][channels]..., to dims, reorders these, and sets the result. */
static void shuffle(struct lower *l, const struct pt_node *n, struct view *v, int n_dims,
                    const struct pt_size *dims, const int *order)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    if (!lower_reshape(l, v, n_dims, dims, v))
        return;
    *v = view_permute(v, order);
    if (lower_reshape(l, v, type->n_dims, type->dims, v))
        lower_set(l, n, 0, v);
}

/* pixel_shuffle; with row->which: pixel_unshuffle. */
static void lower_pixels(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self");
    int64_t r = lower_int(n, row->which ? "downscale_factor" : "upscale_factor", 1);
    if (v.n_dims != 4) {
        lower_refuse(l, "%s of a tensor with %d dimensions: 4 are taken", n->target, v.n_dims);
        return;
    }
    struct pt_size B = view_size(&v, 0), C = view_size(&v, 1), H = view_size(&v, 2),
                   W = view_size(&v, 3), R = {r, false};
    if (row->which)
        shuffle(l, n, &v, 6,
                (const struct pt_size[]){B, C, {H.n / r, false}, R, {W.n / r, false}, R},
                (const int[]){0, 1, 3, 5, 2, 4});
    else
        shuffle(l, n, &v, 6, (const struct pt_size[]){B, {C.n / (r * r), false}, R, R, H, W},
                (const int[]){0, 1, 4, 2, 5, 3});
}

static void lower_channels(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self");
    int64_t groups = lower_int(n, "groups", 1);
    struct pt_size dims[PT_DIMS + 1] = {{0}};
    int order[PT_DIMS + 1];
    if (v.n_dims < 2 || v.n_dims + 1 > PT_DIMS)
        return;
    for (int d = 0; d < v.n_dims; d++)
        dims[d < 2 ? d : d + 1] = view_size(&v, d);
    dims[2] = (struct pt_size){dims[1].n / groups, false};
    dims[1] = (struct pt_size){groups, false};
    for (int d = 0; d <= v.n_dims; d++)
        order[d] = d == 1 ? 2 : d == 2 ? 1 : d;
    shuffle(l, n, &v, v.n_dims + 1, dims, order);
}

/* ---- the table */

#define VIEW(name, function, number)                                                               \
    {                                                                                              \
        .target = "aten." name, .lower = (function), .which = (number), .memory = LOWER_ALIAS      \
    }
#define PERHAPS(name, function)                                                                    \
    {                                                                                              \
        .target = "aten." name, .lower = (function), .memory = LOWER_MAYBE_ALIAS                   \
    }
#define COPY(name, function, number)                                                               \
    {                                                                                              \
        .target = "aten." name, .lower = (function), .which = (number)                             \
    }

const struct lowering lowerings_of_views[] = {
    /* the same elements */
    VIEW("alias.default", lower_same, 0),
    VIEW("detach.default", lower_detach, 0),
    PERHAPS("contiguous.default", lower_same),
    PERHAPS("to.dtype", lower_same),
    PERHAPS("to.dtype_layout", lower_same),
    PERHAPS("to.device", lower_same),
    PERHAPS("to.other", lower_same),
    PERHAPS("to.prim_Device", lower_same),
    PERHAPS("type_as.default", lower_same),
    PERHAPS("float.default", lower_same),
    COPY("_to_copy.default", lower_same, 0),
    COPY("clone.default", lower_same, 0),
    COPY("lift_fresh_copy.default", lower_same, 0),
    VIEW("lift_fresh.default", lower_same, 0),
    /* other dimensions */
    VIEW("view.default", lower_shaped, 0),
    VIEW("view_as.default", lower_shaped, 0),
    VIEW("unsqueeze.default", lower_shaped, 0),
    VIEW("squeeze.default", lower_shaped, 0),
    VIEW("squeeze.dim", lower_shaped, 0),
    VIEW("squeeze.dims", lower_shaped, 0),
    VIEW("unflatten.int", lower_shaped, 0),
    PERHAPS("_unsafe_view.default", lower_shaped),
    PERHAPS("reshape.default", lower_shaped),
    PERHAPS("reshape_as.default", lower_shaped),
    PERHAPS("flatten.using_ints", lower_shaped),
    VIEW("expand.default", lower_expanded, 0),
    VIEW("expand_as.default", lower_expanded, 0),
    VIEW("broadcast_to.default", lower_expanded, 0),
    /* another order */
    VIEW("permute.default", lower_permuted, 0),
    VIEW("transpose.int", lower_transposed, 0),
    VIEW("swapdims.default", lower_transposed, 0),
    VIEW("swapaxes.default", lower_transposed, 1),
    VIEW("t.default", lower_matrix, 0),
    VIEW("mT.default", lower_matrix, 0),
    VIEW("matrix_H.default", lower_matrix, 0),
    VIEW("numpy_T.default", lower_matrix, 1),
    VIEW("movedim.int", lower_moved, 0),
    VIEW("movedim.intlist", lower_moved, 0),
    VIEW("moveaxis.int", lower_moved, 0),
    VIEW("moveaxis.intlist", lower_moved, 0),
    COPY("flip.default", lower_flipped, 0),
    /* parts */
    VIEW("select.int", lower_selected, 0),
    VIEW("slice.Tensor", lower_sliced, 0),
    VIEW("narrow.default", lower_sliced, 1),
    VIEW("chunk.default", lower_split, 0),
    VIEW("split.Tensor", lower_split, 0),
    VIEW("split.sizes", lower_split, 0),
    VIEW("split_with_sizes.default", lower_split, 0),
    VIEW("tensor_split.sections", lower_split, 0),
    VIEW("tensor_split.indices", lower_split, 0),
    COPY("unsafe_split.Tensor", lower_split, 0),
    COPY("unsafe_chunk.default", lower_split, 0),
    VIEW("unbind.int", lower_unbound, 0),
    /* elements several times */
    COPY("repeat.default", lower_repeated, 0),
    COPY("tile.default", lower_repeated, 0),
    COPY("repeat_interleave.self_int", lower_interleave, 0),
    /* channels */
    COPY("pixel_shuffle.default", lower_pixels, 0),
    COPY("pixel_unshuffle.default", lower_pixels, 1),
    COPY("channel_shuffle.default", lower_channels, 0),
    {.target = NULL},
};
