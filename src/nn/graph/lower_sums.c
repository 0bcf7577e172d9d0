/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that sum over dimensions: sums, means, variances, norms, and softmax. They sum over the
 * dimensions of one sample only.
 */
#include "lower.h"

#include <string.h>

#include "ppcli/base/base.h"

#define CUMULATED_MAX 1024 /* it costs their square */

/* The tensor of such an operator, and the dimensions that it sums over. */
struct sum {
    struct lower_operand x;
    bool over[PT_DIMS];
    double terms; /* of each sum */
};

static bool read_sum(struct lower *l, const struct pt_node *n, struct sum *out)
{
    int dims[PT_DIMS];
    char text[96];
    *out = (struct sum){.x = {.view = lower_tensor(l, n, "self")}, .terms = 1};
    struct view *v = &out->x.view;
    if (v->n_dims < 0)
        return false;
    int count = lower_dims(n, "dim", v->n_dims, dims);
    for (int i = 0; i < count; i++) {
        if (view_has_batch(v, dims[i]))
            return lower_refuse(l,
                                "%s over the samples of a batch (%s, dimension %d): a micro-batch "
                                "has only some of them",
                                n->target, view_text(v, text, sizeof(text)), dims[i]);
        out->over[dims[i]] = true;
        out->terms *= (double)view_size(v, dims[i]).n;
    }
    return true;
}

/* Sets the result: with the summed dimensions, of size 1, or without them, as the program says. */
static void set_sum(struct lower *l, const struct pt_node *n, int k, const struct view *v)
{
    const struct pt_tensor *type = lower_type(l, n, k);
    struct view out;
    if (lower_reshape(l, v, type->n_dims, type->dims, &out))
        lower_set(l, n, k, &out);
}

/* Computes a formula of x and a number, summed. */
static bool add_sum(struct lower *l, const struct sum *s, const char *formula, double number,
                    struct view *out)
{
    const struct lower_operand operands[] = {s->x, {.is_number = true, .number = number}};
    return lower_compute(l, formula, 2, operands, s->over, out);
}

static void lower_sum(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct sum s;
    struct view out;
    if (read_sum(l, n, &s) && add_sum(l, &s, row->formula, 1, &out))
        set_sum(l, n, 0, &out);
}

/* Returns whether the sum is over the pixels of an image that the view shows as a whole: *image. */
static bool is_image_mean(const struct lower *l, const struct sum *s, struct pp_shape *image)
{
    struct view v = view_merge(&s->x.view);
    const struct graph_node *x = &l->graph->nodes[v.value];
    if (!x->rows || v.n_dims != 4 || s->over[1] || !s->over[2] || !s->over[3] ||
        !view_has_batch(&v, 0) || view_size(&v, 0).n != 1)
        return false;
    int C = (int)view_size(&v, 1).n, H = (int)view_size(&v, 2).n, W = (int)view_size(&v, 3).n;
    const struct pt_size dims[] = {{1, true}, {H, false}, {W, false}, {C, false}};
    struct view whole = view_of_value(v.value, 4, dims);
    whole = view_permute(&whole, (const int[]){0, 3, 1, 2});
    bool same = v.n_axes == whole.n_axes && v.offset == 0 &&
                graph_floats(l->graph, v.value) == view_elements(&v);
    for (int k = 0; same && k < v.n_axes; k++)
        same = v.axes[k].size == whole.axes[k].size && v.axes[k].stride == whole.axes[k].stride;
    *image = pp_shape_image(H, W, C);
    return same;
}

static void lower_mean(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct sum s;
    struct view out;
    struct pp_shape image;
    if (!read_sum(l, n, &s))
        return;
    if (is_image_mean(l, &s, &image)) {
        int channels = (int)view_size(&s.x.view, 1).n;
        struct graph_node *node =
            lower_add(l, GRAPH_AVG_POOL, 1, &s.x.view.value, pp_shape_flat(channels));
        if (!node)
            return;
        node->window.all = true;
        node->window.image = image;
        const struct pt_size dims[] = {{1, true}, {channels, false}, {1, false}, {1, false}};
        out = view_of_value(l->graph->n_nodes - 1, 4, dims);
        set_sum(l, n, 0, &out);
    } else if (add_sum(l, &s, "a * b", 1 / s.terms, &out)) {
        set_sum(l, n, 0, &out);
    }
}

/* Variances in two passes, as PyTorch computes them: first the means. row->which: 1, the standard
 * deviation; 2, the variance and the mean. */
static void lower_variance(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct sum s;
    struct view mean, out;
    if (!read_sum(l, n, &s))
        return;
    double correction = lower_has(n, "correction")        ? lower_number(n, "correction", 1)
                        : lower_flag(n, "unbiased", true) ? 1
                                                          : 0;
    if (s.terms - correction <= 0) {
        lower_refuse(l, "%s of %d numbers", n->target, (int)s.terms);
        return;
    }
    if (!add_sum(l, &s, "a * b", 1 / s.terms, &mean))
        return;
    struct lower_operand operands[] = {
        s.x, {.view = mean}, {.is_number = true, .number = 1 / (s.terms - correction)}};
    struct pt_size dims[PT_DIMS];
    for (int d = 0; d < s.x.view.n_dims; d++)
        dims[d] = view_size(&s.x.view, d);
    if (!lower_expand(l, &mean, s.x.view.n_dims, dims, &operands[1].view) ||
        !lower_compute(l, "(a - b) * (a - b) * c", 3, operands, s.over, &out))
        return;
    const struct lower_operand variance = {.view = out};
    if (row->which == 1 && !lower_compute(l, "sqrt(a)", 1, &variance, NULL, &out))
        return;
    set_sum(l, n, 0, &out);
    if (row->which == 2)
        set_sum(l, n, 1, &mean);
}

/* The gradient of a norm of zeros is 0. */
static void lower_norm(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct sum s;
    struct view out;
    double order = lower_number(n, row->arguments, 2);
    if (!read_sum(l, n, &s))
        return;
    if (order != 1 && order != 2) {
        lower_refuse(l, "%s of order %g: 1 and 2 are taken", n->target, order);
        return;
    }
    if (!add_sum(l, &s, order == 1 ? "abs(a)" : "a * a", 1, &out))
        return;
    const struct lower_operand squares = {.view = out};
    if (order == 1 || lower_compute(l, "a > 0 ? sqrt(a > 0 ? a : 1) : a", 1, &squares, NULL, &out))
        set_sum(l, n, 0, &out);
}

/* result[t] = x[0] + .. + x[t]: for each t, a sum over all of them times 1 or 0. */
static void lower_cumulated(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct view v = lower_tensor(l, n, "self"), out;
    struct pt_size dims[PT_DIMS];
    bool over[PT_DIMS] = {false};
    if (v.n_dims < 0)
        return;
    int dim = lower_dim(n, "dim", 0, v.n_dims);
    int64_t size = view_size(&v, dim).n;
    if (view_has_batch(&v, dim) || v.n_dims == PT_DIMS || size > CUMULATED_MAX) {
        lower_refuse(l, "%s over %lld numbers: up to %d of one sample are taken", n->target,
                     (long long)size, CUMULATED_MAX);
        return;
    }
    struct lower_operand x[2] = {{.view = view_insert(&v, dim)},
                                 {.view = lower_triangle(l, size, size, 0)}};
    while (x[1].view.n_dims >= 0 && x[1].view.n_dims < v.n_dims + 1 - dim)
        x[1].view = view_insert(&x[1].view, x[1].view.n_dims);
    for (int d = 0; d <= v.n_dims; d++)
        dims[d] = d <= dim ? type->dims[d] : view_size(&v, d - 1);
    over[dim + 1] = true;
    for (int i = 0; i < 2; i++)
        if (!lower_expand(l, &x[i].view, v.n_dims + 1, dims, &x[i].view))
            return;
    if (lower_compute(l, row->formula, 2, x, over, &out))
        set_sum(l, n, 0, &out);
}

/* v * g / |v|: a norm for each element of one dimension. */
static void lower_weight_norm(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct lower_operand x[3] = {{.view = lower_tensor(l, n, "v")},
                                 {.view = lower_tensor(l, n, "g")}};
    struct sum s = {.x = x[0]};
    struct pt_size dims[PT_DIMS];
    struct view *v = &x[0].view, out;
    if (v->n_dims < 0 || x[1].view.n_dims < 0)
        return;
    int dim = lower_dim(n, "dim", 0, v->n_dims);
    for (int d = 0; d < v->n_dims; d++) {
        s.over[d] = d != dim;
        dims[d] = view_size(v, d);
    }
    if (add_sum(l, &s, "a * a", 1, &x[2].view) &&
        lower_expand(l, &x[1].view, v->n_dims, dims, &x[1].view) &&
        lower_expand(l, &x[2].view, v->n_dims, dims, &x[2].view) &&
        lower_compute(l, row->formula, 3, x, NULL, &out))
        lower_set(l, n, 0, &out);
}

/* Normalizes over one dimension, which must be one axis of a whole value. row->which: the logarithm
 * of it; row->formula: of what. */
static void lower_softmax(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self");
    int order[VIEW_AXES], axes;
    char text[96];
    if (v.n_dims < 0)
        return;
    int dim = lower_dim(n, "dim", -1, v.n_dims);
    if (v.n_dims > 0 && view_has_batch(&v, dim)) {
        lower_refuse(l,
                     "%s over the samples of a batch (%s, dimension %d): a micro-batch has only "
                     "some of them",
                     n->target, view_text(&v, text, sizeof(text)), dim);
        return;
    }
    struct view m = view_merge(&v);
    int64_t floats = graph_floats(l->graph, m.value);
    if (m.n_dims == 0 || m.count[dim] > 1 || !view_is_whole(&m, floats, order, &axes))
        m = lower_copy(l, &v);
    if (m.n_dims < 0)
        return;
    const struct graph_node *x = &l->graph->nodes[m.value];
    floats = graph_floats(l->graph, m.value);
    int64_t size = m.n_dims > 0 ? view_size(&m, dim).n : 1;
    int64_t inner = size > 1 ? m.axes[view_first_axis(&m, dim)].stride : 1;
    struct graph_node *node = lower_add(l, GRAPH_SOFTMAX, 1, &m.value, x->shape);
    if (!node)
        return;
    node->outer = (int)(floats / size / inner);
    node->n = (int)size;
    node->inner = (int)inner;
    node->log = row->which;
    m.value = l->graph->n_nodes - 1;
    lower_set(l, n, 0, &m);
}

#define SUM(name, function, number, text)                                                          \
    {                                                                                              \
        .target = "aten." name, .lower = (function), .which = (number), .general = true,           \
        .formula = (text)                                                                          \
    }
#define NORM(name, order)                                                                          \
    {                                                                                              \
        .target = "aten." name, .lower = lower_norm, .general = true, .arguments = (order)         \
    }
#define SOFTMAX(name, log)                                                                         \
    {                                                                                              \
        .target = "aten." name, .lower = lower_softmax, .which = (log)                             \
    }

const struct lowering lowerings_of_sums[] = {
    SUM("sum.default", lower_sum, 0, "a"),
    SUM("sum.dim_IntList", lower_sum, 0, "a"),
    SUM("mean.default", lower_mean, 0, NULL),
    SUM("mean.dim", lower_mean, 0, NULL),
    SUM("var.default", lower_variance, 0, NULL),
    SUM("var.dim", lower_variance, 0, NULL),
    SUM("var.correction", lower_variance, 0, NULL),
    SUM("std.default", lower_variance, 1, NULL),
    SUM("std.dim", lower_variance, 1, NULL),
    SUM("std.correction", lower_variance, 1, NULL),
    SUM("var_mean.dim", lower_variance, 2, NULL),
    SUM("var_mean.correction", lower_variance, 2, NULL),
    NORM("linalg_vector_norm.default", "ord"),
    NORM("norm.ScalarOpt_dim", "p"),
    NORM("norm.Scalar", "p"),
    SUM("cumsum.default", lower_cumulated, 0, "b ? a : 0"),
    SUM("_weight_norm.default", lower_weight_norm, 0, "a * (b / sqrt(c))"),
    SOFTMAX("softmax.int", false),
    SOFTMAX("_softmax.default", false),
    SOFTMAX("log_softmax.int", true),
    SOFTMAX("_log_softmax.default", true),
    {.target = NULL},
};
