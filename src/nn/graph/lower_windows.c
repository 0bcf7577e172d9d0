/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over images: convolutions and pools. An image is [height][width][channels] in memory. */
#include "lower.h"

#include <limits.h>
#include <string.h>

#include "ppcli/base/base.h"

/* Returns an image [samples][channels][height][width] as [samples][height][width][channels], dense
 * in memory. */
static struct view take_image(struct lower *l, const struct pt_node *n, const char *name)
{
    struct view v = lower_samples(l, n, name), none = {.n_dims = -1};
    char text[96];
    if (v.n_dims < 0)
        return v;
    struct pt_size first = v.n_dims == 4 ? view_size(&v, 0) : (struct pt_size){0, false};
    if (!first.batch || first.n != 1) {
        lower_refuse(l, "%s over %s: only images [samples][channels][height][width] are known",
                     n->target, view_text(&v, text, sizeof(text)));
        return none;
    }
    v = view_move(&v, 1, 3);
    if (!view_is_dense(&v, graph_floats(l->graph, v.value)))
        v = lower_copy(l, &v);
    return l->rc < 0 || l->refused ? none : v;
}

/* Sets the result to a new value, an image. */
static void set_image(struct lower *l, const struct pt_node *n)
{
    const struct pt_size *d = lower_type(l, n, 0)->dims;
    const struct pt_size dims[] = {d[0], d[2], d[3], d[1]};
    struct view v = view_of_value(l->graph->n_nodes - 1, 4, dims);
    v = view_move(&v, 3, 1);
    lower_set(l, n, 0, &v);
}

enum {
    WINDOW_MOST = 1 << 16 /* of a kernel, stride or padding */
};

/* Reads an argument for both directions, at least `least`; false: they differ, which is refused. */
static bool read_square(struct lower *l, const struct pt_node *n, const char *name,
                        int64_t otherwise, int least, int *out)
{
    const struct pt_arg *a = pt_arg_find(n, name);
    int64_t first = lower_int(n, name, otherwise), second = first;
    if (a && a->kind == PT_INTS && a->n > 1)
        second = a->sizes[1].n;
    if (first != second)
        return lower_refuse(l, "%s with a %s of %lld x %lld: only squares are known", n->target,
                            name, (long long)first, (long long)second);
    if (first < least || first > WINDOW_MOST)
        return lower_refuse(l, "%s with a %s of %lld", n->target, name, (long long)first);
    *out = (int)first;
    return true;
}

static bool refuse_dilation(struct lower *l, const struct pt_node *n)
{
    int dilation;
    if (!read_square(l, n, "dilation", 1, 1, &dilation))
        return false;
    return dilation == 1 ||
           lower_refuse(l, "%s with a dilation of %d: only 1 is known", n->target, dilation);
}

/* Adds the node of a window over x. */
static struct graph_node *add_window(struct lower *l, const struct pt_node *n, enum graph_kind kind,
                                     const struct view *x, const struct graph_window *w)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    const struct pt_size *d = type->dims;
    if (type->n_dims != 4 || d[1].n < 1 || d[2].n < 1 || d[3].n < 1 ||
        (double)d[1].n * (double)d[2].n * (double)d[3].n > INT_MAX) {
        lower_refuse(l, "%s with a result that is not an image, or of more than 2^31 - 1 numbers",
                     n->target);
        return NULL;
    }
    struct graph_node *node =
        lower_add(l, kind, 1, &x->value, pp_shape_image((int)d[2].n, (int)d[3].n, (int)d[1].n));
    if (node) {
        node->window = *w;
        node->window.image =
            pp_shape_image((int)view_size(x, 1).n, (int)view_size(x, 2).n, (int)view_size(x, 3).n);
    }
    return node;
}

/* ---- convolutions */

/* Reads the padding of a convolution: numbers, or "same" or "valid". */
static bool read_padding(struct lower *l, const struct pt_node *n, struct graph_window *w)
{
    const struct pt_arg *a = pt_arg_find(n, "padding");
    if (!a || a->kind != PT_STRING)
        return read_square(l, n, "padding", 0, 0, &w->pad);
    bool same = strcmp(a->text, "same") == 0;
    if (same && (w->kernel % 2 == 0 || w->stride != 1))
        return lower_refuse(l, "%s with padding 'same' and an even kernel: more zeros on one side",
                            n->target);
    w->pad = same ? w->kernel / 2 : 0;
    return true;
}

static void lower_conv2d(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    int weight = lower_weight(l, n, "weight"), bias = lower_weight(l, n, "bias");
    struct graph_window w = {.groups = (int)lower_int(n, "groups", 1)};
    (void)row;
    if (weight < 0 || (bias < 0 && lower_has(n, "bias"))) {
        lower_refuse(l, "%s with a computed weight: only a parameter as it is is known", n->target);
        return;
    }
    const int64_t *kernel = &l->program->weights[weight].dims[2];
    if (l->program->weights[weight].n_dims != 4 || kernel[0] < 1 || kernel[0] > WINDOW_MOST ||
        w.groups < 1) {
        lower_refuse(l, "%s with a weight or groups that torch.nn.Conv2d cannot have", n->target);
        return;
    }
    if (kernel[0] != kernel[1]) {
        lower_refuse(l, "%s with a kernel of %lld x %lld: only squares are known", n->target,
                     (long long)kernel[0], (long long)kernel[1]);
        return;
    }
    w.kernel = (int)kernel[0];
    if (!read_square(l, n, "stride", 1, 1, &w.stride) || !read_padding(l, n, &w) ||
        !refuse_dilation(l, n))
        return;
    struct view x = take_image(l, n, "input");
    struct graph_node *node = x.n_dims < 0 ? NULL : add_window(l, n, GRAPH_CONV, &x, &w);
    if (!node)
        return;
    node->channels = (int)lower_type(l, n, 0)->dims[1].n;
    node->bias = bias >= 0;
    node->n_weights = bias >= 0 ? 2 : 1;
    node->weights[0] = weight;
    node->weights[1] = bias;
    set_image(l, n);
}

/* ---- pools */

/* Reads kernel, stride and padding of a pool. */
static bool read_pool(struct lower *l, const struct pt_node *n, struct graph_window *w)
{
    const struct pt_arg *stride = pt_arg_find(n, "stride");
    if (!read_square(l, n, "kernel_size", 1, 1, &w->kernel) ||
        !read_square(l, n, "padding", 0, 0, &w->pad))
        return false;
    w->stride = w->kernel; /* that of an empty list */
    if (stride && (stride->kind != PT_INTS || stride->n > 0) &&
        !read_square(l, n, "stride", w->kernel, 1, &w->stride))
        return false;
    w->ceil = lower_flag(n, "ceil_mode", false);
    return true;
}

static void lower_max_pool2d(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct graph_window w = {.groups = 1};
    (void)row;
    if (!read_pool(l, n, &w) || !refuse_dilation(l, n))
        return;
    struct view x = take_image(l, n, "self");
    if (x.n_dims >= 0 && add_window(l, n, GRAPH_MAX_POOL, &x, &w))
        set_image(l, n);
}

static void lower_avg_pool2d(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct graph_window w = {.groups = 1,
                             .count_padding = lower_flag(n, "count_include_pad", true)};
    (void)row;
    if (!read_pool(l, n, &w))
        return;
    struct view x = take_image(l, n, "self");
    if (x.n_dims < 0)
        return;
    const struct pt_size *d = lower_type(l, n, 0)->dims;
    int64_t height = view_size(&x, 1).n, width = view_size(&x, 2).n, pad = 2 * (int64_t)w.pad;
    if (w.ceil && (d[2].n != (height + pad - w.kernel) / w.stride + 1 ||
                   d[3].n != (width + pad - w.kernel) / w.stride + 1)) {
        lower_refuse(l, "%s with ceil_mode and a last window that is partly outside", n->target);
        return;
    }
    w.ceil = false;
    if (lower_has(n, "divisor_override")) {
        lower_refuse(l, "%s with divisor_override", n->target);
        return;
    }
    if (add_window(l, n, GRAPH_AVG_POOL, &x, &w))
        set_image(l, n);
}

/* ---- adaptive pools */

/* Splits dimension `dim`, of size n, in `pieces` windows of the same size: the windows, then what is
 * inside; false: memory does not allow it. */
static bool split_dim(const struct view *v, int dim, int64_t pieces, struct view *out)
{
    struct pt_size dims[PT_DIMS];
    int n = 0;
    for (int d = 0; d < v->n_dims; d++) {
        dims[n++] = view_size(v, d);
        if (d == dim) {
            dims[n] = (struct pt_size){dims[n - 1].n / pieces, false};
            dims[n++ - 1].n = pieces;
        }
    }
    return view_reshape(v, n, dims, out);
}

/* Repeats each element of a dimension. */
static struct view repeat_dim(const struct view *v, int dim, int64_t times)
{
    struct view out = *v;
    int at = view_first_axis(v, dim) + v->count[dim];
    memmove(&out.axes[at + 1], &out.axes[at], (size_t)(v->n_axes - at) * sizeof(*out.axes));
    out.axes[at] = (struct axis){times, 0};
    out.n_axes++;
    out.count[dim]++;
    return out;
}

/* Replaces dimension `dim` by the means of `pieces` windows of its elements; with more windows than
 * elements each window has one. */
static bool pool_dim(struct lower *l, const struct pt_node *n, struct view *v, int dim,
                     int64_t pieces)
{
    static const struct expr_step load = {.code = PP_EXPR_LOAD};
    struct view x = *v;
    bool summed[PT_DIMS] = {false};
    int64_t size = view_size(v, dim).n;
    if (size == pieces)
        return true;
    if (pieces % size == 0 && v->n_axes < VIEW_AXES) {
        *v = repeat_dim(v, dim, pieces / size);
        return true;
    }
    if (size % pieces)
        return lower_refuse(l, "%s from %lld to %lld: only divisors of a size are known", n->target,
                            (long long)size, (long long)pieces);
    if (!split_dim(v, dim, pieces, &x)) {
        *v = lower_copy(l, v);
        if (l->rc < 0 || l->refused || !split_dim(v, dim, pieces, &x))
            return false;
    }
    summed[dim + 1] = true;
    const struct expr_step mean[] = {
        load,
        {.code = PP_EXPR_FILL, .number = (float)((double)pieces / (double)size)},
        {.code = PP_EXPR_MUL, .a = 0, .b = 1}};
    if (!lower_expr(l, 1, &x, 3, mean, summed, LOWER_AS_LARGEST, v))
        return false;
    *v = view_drop(v, dim + 1);
    return true;
}

/* Adaptive average pools over the last dimensions. */
static void lower_adaptive_avg_pool(struct lower *l, const struct pt_node *n,
                                    const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    int dims = row->which;
    struct view v = lower_tensor(l, n, "self");
    bool fits = v.n_dims == type->n_dims && v.n_dims > dims;
    for (int d = 0; d < type->n_dims; d++)
        fits = fits && type->dims[d].n >= 1;
    if (!fits)
        return;
    struct pt_size height = view_size(&v, v.n_dims - 2), width = view_size(&v, v.n_dims - 1);
    const struct pt_size *to = &type->dims[type->n_dims - 2];
    bool image = dims == 2 && v.n_dims == 4 && l->graph->nodes[v.value].rows;
    bool all = to[0].n == 1 && to[1].n == 1;
    bool windows = to[0].n <= height.n && to[1].n <= width.n && height.n % to[0].n == 0 &&
                   width.n % to[1].n == 0 && height.n / to[0].n == width.n / to[1].n;
    if (image && (all || windows) && height.n * width.n > to[0].n * to[1].n) {
        struct graph_window w = {.kernel = (int)(height.n / to[0].n),
                                 .stride = (int)(height.n / to[0].n),
                                 .groups = 1,
                                 .count_padding = true,
                                 .all = all};
        struct view x = take_image(l, n, "self");
        if (x.n_dims >= 0 && add_window(l, n, GRAPH_AVG_POOL, &x, &w))
            set_image(l, n);
        return;
    }
    for (int d = v.n_dims - dims; d < v.n_dims; d++) {
        if (view_has_batch(&v, d)) {
            lower_refuse(l, "%s over the samples of a batch", n->target);
            return;
        }
        if (!pool_dim(l, n, &v, d, type->dims[d].n))
            return;
    }
    lower_set(l, n, 0, &v);
}

#define CONV "of convolutions only torch.nn.Conv2d is known"

const struct lowering lowerings_of_windows[] = {
    LOWER("aten.conv2d.default", lower_conv2d),
    LOWER("aten.conv2d.padding", lower_conv2d),
    MISSING("aten.conv1d.default", CONV),
    MISSING("aten.conv1d.padding", CONV),
    MISSING("aten.conv3d.default", CONV),
    MISSING("aten.conv3d.padding", CONV),
    MISSING("aten.conv_transpose1d.default", CONV),
    MISSING("aten.conv_transpose2d.input", CONV),
    MISSING("aten.conv_transpose3d.input", CONV),
    LOWER("aten.max_pool2d.default", lower_max_pool2d),
    LOWER("aten.avg_pool2d.default", lower_avg_pool2d),
    LOWER("aten.adaptive_avg_pool1d.default", lower_adaptive_avg_pool, .which = 1),
    LOWER("aten.adaptive_avg_pool2d.default", lower_adaptive_avg_pool, .which = 2),
    LOWER("aten.adaptive_avg_pool3d.default", lower_adaptive_avg_pool, .which = 3),
    {.target = NULL},
};
