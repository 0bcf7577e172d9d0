/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise operators: most are a formula. An activation that is one of ppcli's, and a sum of two
 * whole values, keep their fast ops. Formulas are written so that their derivative is PyTorch's at
 * the borders too, and so that a branch that is not taken stays finite: its derivative is multiplied
 * by 0.
 */
#include "lower.h"

#include <string.h>

#include "ppcli/base/base.h"

/* ---- fast ops */

/* Adds the activation of a view: of the whole value if the view shows it. */
static void activate_view(struct lower *l, const struct pt_node *n, enum pp_activation act)
{
    struct view v = lower_tensor(l, n, "self"), out;
    int order[VIEW_AXES], axes;
    if (v.n_dims < 0)
        return;
    const struct graph_node *x = &l->graph->nodes[v.value];
    if (x->rows && view_is_whole(&v, graph_floats(l->graph, v.value), order, &axes)) {
        struct graph_node *node = lower_add(l, GRAPH_ACTIVATE, 1, &v.value, x->shape);
        if (!node)
            return;
        node->activation = act;
        out = v;
        out.value = l->graph->n_nodes - 1;
    } else {
        const struct expr_step steps[] = {{.code = PP_EXPR_LOAD},
                                          {.code = PP_EXPR_ACT, .which = (int)act}};
        if (!lower_expr(l, 1, &v, 2, steps, NULL, LOWER_AS_LARGEST, &out))
            return;
    }
    lower_set(l, n, 0, &out);
}

static void lower_activation(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    activate_view(l, n, (enum pp_activation)row->which);
}

static void lower_gelu(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_arg *a = pt_arg_find(n, "approximate");
    bool is_tanh = a && a->kind == PT_STRING && strcmp(a->text, "tanh") == 0;
    activate_view(l, n, is_tanh ? PP_ACT_GELU_TANH : PP_ACT_GELU);
}

/* Adds two whole values with the same memory; returns false if they are not. */
static bool add_whole(struct lower *l, const struct pt_node *n)
{
    struct view v[2];
    static const char *const names[] = {"self", "other"};
    if (lower_number(n, "alpha", 1) != 1)
        return false;
    for (int i = 0; i < 2; i++) {
        const struct pt_arg *a = pt_arg_find(n, names[i]);
        if (!a || a->kind != PT_TENSOR || l->values[a->value].state != LOWERED_VIEW)
            return false;
        v[i] = view_merge(&l->values[a->value].view);
    }
    struct view *const both[] = {&v[0], &v[1]};
    int bad, order[VIEW_AXES], axes;
    const struct graph_node *x = &l->graph->nodes[v[0].value];
    if (v[0].n_dims != v[1].n_dims || v[0].value == v[1].value || !view_align(both, 2, &bad))
        return false;
    for (int i = 0; i < 2; i++)
        if (!l->graph->nodes[v[i].value].rows ||
            !view_is_whole(&v[i], graph_floats(l->graph, v[i].value), order, &axes))
            return false;
    for (int k = 0; k < v[0].n_axes; k++)
        if (v[0].axes[k].size != v[1].axes[k].size || v[0].axes[k].stride != v[1].axes[k].stride)
            return false;
    if (!lower_add(l, GRAPH_ADD, 2, (const int[]){v[0].value, v[1].value}, x->shape))
        return true;
    v[0].value = l->graph->n_nodes - 1;
    lower_set(l, n, 0, &v[0]);
    return true;
}

static void lower_addition(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    if (lower_type(l, n, 0)->dtype == PT_BOOL)
        lower_refuse(l, "%s of two bools: torch.logical_or() says what is meant", n->target);
    else if (!add_whole(l, n))
        lower_formula(l, n, row);
}

/* ---- formulas that depend on arguments */

/* Lowers the row with another formula. */
static void lower_as(struct lower *l, const struct pt_node *n, const struct lowering *row,
                     const char *formula)
{
    struct lowering as = *row;
    as.formula = formula;
    lower_formula(l, n, &as);
}

static void lower_division(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_arg *a = pt_arg_find(n, "rounding_mode");
    bool rounds = a && a->kind == PT_STRING;
    lower_as(l, n, row,
             !rounds                         ? "a / b"
             : strcmp(a->text, "floor") == 0 ? "floor(a / b)"
                                             : "trunc(a / b)");
}

/* Operators on bits: of bools only. */
static void lower_bits(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    if (lower_type(l, n, 0)->dtype == PT_BOOL)
        lower_formula(l, n, row);
    else
        lower_refuse(l, "%s of integers that are no constants", n->target);
}

/* self ** exponent, a number. */
static void lower_power(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    static const struct {
        double exponent;
        const char *formula;
    } simple[] = {{0, "1"},
                  {1, "a"},
                  {2, "a * a"},
                  {3, "a * a * a"},
                  {0.5, "sqrt(a)"},
                  {-0.5, "rsqrt(a)"},
                  {-1, "1 / a"},
                  {-2, "1 / (a * a)"},
                  {4, "(a * a) * (a * a)"}};
    struct lower_operand e = lower_operand(l, n, "exponent", 1);
    if (!e.is_number) {
        lower_refuse(l, "%s with an exponent that is not a constant: write exp(exponent * log(x))",
                     n->target);
        return;
    }
    for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++) {
        if (simple[i].exponent == e.number) {
            lower_as(l, n, row, simple[i].formula);
            return;
        }
    }
    const struct expr_step steps[] = {{.code = PP_EXPR_LOAD},
                                      {.code = PP_EXPR_POW, .number = (float)e.number}};
    struct view v = lower_tensor(l, n, "self"), out;
    if (lower_expr(l, 1, &v, 2, steps, NULL, LOWER_AS_LARGEST, &out))
        lower_set(l, n, 0, &out);
}

/* A slope for each channel, dimension 1. */
static void lower_prelu(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct lower_operand operands[] = {{.view = lower_tensor(l, n, "self")},
                                       {.view = lower_tensor(l, n, "weight")}};
    struct view *w = &operands[1].view, out;
    if (w->n_dims < 0 || operands[0].view.n_dims < 0)
        return;
    while (w->n_dims > 0 && w->n_dims < type->n_dims - 1)
        *w = view_insert(w, w->n_dims);
    if (!view_expand(w, type->n_dims, type->dims, w))
        lower_refuse(l, "%s: its weight has another shape than the channels", n->target);
    else if (lower_compute(l, row->formula, 2, operands, NULL, &out))
        lower_set(l, n, 0, &out);
}

struct view lower_triangle(struct lower *l, int64_t rows, int64_t columns, int64_t diagonal)
{
    int64_t count = rows * columns;
    PP_OWN_MEMORY float *below = pp_alloc((size_t)count, sizeof(*below));
    if (!below) {
        l->rc = PP_ERESOURCE;
        return (struct view){.n_dims = -1};
    }
    for (int64_t i = 0; i < count; i++)
        below[i] = i % columns - i / columns <= diagonal;
    const struct fold_constant c = {.dtype = PT_F32,
                                    .n_dims = 2,
                                    .dims = {rows, columns},
                                    .strides = {columns, 1},
                                    .batch_dim = -1,
                                    .n = count,
                                    .floats = below};
    return lower_constant(l, &c);
}

/* tril; with row->which: triu, what is not below the diagonal before. */
static void lower_tril(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct lower_operand x[2] = {{.view = lower_tensor(l, n, "self")}};
    struct view out;
    int last = type->n_dims - 1;
    if (x[0].view.n_dims < 2)
        return;
    if (type->dims[last].batch || type->dims[last - 1].batch) {
        lower_refuse(l, "%s of a matrix that has the samples of a batch", n->target);
        return;
    }
    x[1].view = lower_triangle(l, type->dims[last - 1].n, type->dims[last].n,
                               lower_int(n, "diagonal", 0) - row->which);
    if (lower_expand(l, &x[1].view, type->n_dims, type->dims, &x[1].view) &&
        lower_compute(l, row->formula, 2, x, NULL, &out))
        lower_set(l, n, 0, &out);
}

/* The first half of a dimension, times the sigmoid of the second one. */
static void lower_glu(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view v = lower_tensor(l, n, "self"), out;
    struct lower_operand halves[2] = {{.is_number = false}, {.is_number = false}};
    if (v.n_dims < 0)
        return;
    int dim = lower_dim(n, "dim", -1, v.n_dims);
    int64_t half = view_size(&v, dim).n / 2;
    for (int i = 0; i < 2; i++)
        if (!lower_narrow(l, &v, dim, i * half, half, 1, &halves[i].view))
            return;
    if (lower_compute(l, row->formula, 2, halves, NULL, &out))
        lower_set(l, n, 0, &out);
}

/* ---- the table */

#define ACTIVATION(name, ACT)                                                                      \
    {                                                                                              \
        .target = "aten." name, .lower = lower_activation, .which = PP_ACT_##ACT                   \
    }
#define FORMULA(name, names, text)                                                                 \
    {                                                                                              \
        .target = "aten." name, .lower = lower_formula, .general = true, .arguments = (names),     \
        .formula = (text)                                                                          \
    }
#define SPECIAL(name, function, names, text)                                                       \
    {                                                                                              \
        .target = "aten." name, .lower = (function), .general = true, .arguments = (names),        \
        .formula = (text)                                                                          \
    }
/* an operator of two tensors, or of a tensor and a number */
#define PAIR(name, text)                                                                           \
    FORMULA(name ".Tensor", "self other", text), FORMULA(name ".Scalar", "self other", text)

const struct lowering lowerings_of_elements[] = {
    ACTIVATION("relu.default", RELU),
    ACTIVATION("silu.default", SILU),
    ACTIVATION("tanh.default", TANH),
    SPECIAL("gelu.default", lower_gelu, NULL, NULL),
    /* sums, products, powers */
    SPECIAL("add.Tensor", lower_addition, "self other alpha=1", "a + c * b"),
    SPECIAL("add.Scalar", lower_addition, "self other alpha=1", "a + c * b"),
    FORMULA("sub.Tensor", "self other alpha=1", "a - c * b"),
    FORMULA("sub.Scalar", "self other alpha=1", "a - c * b"),
    FORMULA("subtract.Tensor", "self other alpha=1", "a - c * b"),
    FORMULA("rsub.Tensor", "self other alpha=1", "b - c * a"),
    FORMULA("rsub.Scalar", "self other alpha=1", "b - c * a"),
    PAIR("mul", "a * b"),
    PAIR("multiply", "a * b"),
    SPECIAL("div.Tensor", lower_division, "self other", NULL),
    SPECIAL("div.Scalar", lower_division, "self other", NULL),
    SPECIAL("div.Tensor_mode", lower_division, "self other", NULL),
    SPECIAL("div.Scalar_mode", lower_division, "self other", NULL),
    SPECIAL("divide.Tensor", lower_division, "self other", NULL),
    PAIR("true_divide", "a / b"),
    FORMULA("floor_divide.default", "self other", "floor(a / b)"),
    FORMULA("floor_divide.Scalar", "self other", "floor(a / b)"),
    PAIR("remainder", "a - floor(a / b) * b"),
    PAIR("fmod", "a - trunc(a / b) * b"),
    FORMULA("addcmul.default", "self tensor1 tensor2 value=1", "a + d * b * c"),
    FORMULA("addcdiv.default", "self tensor1 tensor2 value=1", "a + d * b / c"),
    FORMULA("lerp.Scalar", "self end weight", "a + c * (b - a)"),
    FORMULA("lerp.Tensor", "self end weight", "a + c * (b - a)"),
    SPECIAL("pow.Tensor_Scalar", lower_power, "self exponent", NULL),
    SPECIAL("pow.Tensor_Tensor", lower_power, "self exponent", NULL),
    FORMULA("pow.Scalar", "self exponent", "exp(b * log(a))"),
    FORMULA("square.default", "self", "a * a"),
    FORMULA("reciprocal.default", "self", "1 / a"),
    FORMULA("neg.default", "self", "-a"),
    FORMULA("negative.default", "self", "-a"),
    FORMULA("abs.default", "self", "abs(a)"),
    FORMULA("absolute.default", "self", "abs(a)"),
    FORMULA("sign.default", "self", "a > 0 ? 1 : a < 0 ? -1 : 0"),
    FORMULA("sgn.default", "self", "a > 0 ? 1 : a < 0 ? -1 : 0"),
    FORMULA("floor.default", "self", "floor(a)"),
    FORMULA("ceil.default", "self", "-floor(-a)"),
    FORMULA("trunc.default", "self", "trunc(a)"),
    /* 1.5 * 2^23: to the nearest, halves to the even one */
    FORMULA("round.default", "self", "floor(abs(a) < 4194304 ? a + 12582912 - 12582912 : a)"),
    /* functions */
    FORMULA("exp.default", "self", "exp(a)"),
    FORMULA("exp2.default", "self", "exp(a * 0.693147180559945)"),
    FORMULA("expm1.default", "self", "expm1(a)"),
    FORMULA("log.default", "self", "log(a)"),
    FORMULA("log1p.default", "self", "log1p(a)"),
    FORMULA("log2.default", "self", "log(a) * 1.44269504088896"),
    FORMULA("log10.default", "self", "log(a) * 0.434294481903252"),
    FORMULA("sqrt.default", "self", "sqrt(a)"),
    FORMULA("rsqrt.default", "self", "rsqrt(a)"),
    FORMULA("sin.default", "self", "sin(a)"),
    FORMULA("cos.default", "self", "cos(a)"),
    FORMULA("erf.default", "self", "erf(a)"),
    FORMULA("sigmoid.default", "self", "sigmoid(a)"),
    /* the larger, the smaller */
    FORMULA("maximum.default", "self other", "max(a, b)"),
    FORMULA("minimum.default", "self other", "min(a, b)"),
    FORMULA("max.other", "self other", "max(a, b)"),
    FORMULA("min.other", "self other", "min(a, b)"),
    FORMULA("clamp.default", "self min=-inf max=inf", "a < b ? b : a > c ? c : a"),
    FORMULA("clamp.Tensor", "self min=-inf max=inf", "a < b ? b : a > c ? c : a"),
    FORMULA("clip.default", "self min=-inf max=inf", "a < b ? b : a > c ? c : a"),
    FORMULA("clamp_min.default", "self min", "a < b ? b : a"),
    FORMULA("clamp_min.Tensor", "self min", "a < b ? b : a"),
    FORMULA("clamp_max.default", "self max", "a > b ? b : a"),
    FORMULA("clamp_max.Tensor", "self max", "a > b ? b : a"),
    /* activations that are no ops of ppcli */
    FORMULA("hardtanh.default", "self min_val=-1 max_val=1", "a <= b ? b : a >= c ? c : a"),
    FORMULA("relu6.default", "self", "a <= 0 ? 0 : a >= 6 ? 6 : a"),
    FORMULA("hardsigmoid.default", "self", "a <= -3 ? 0 : a >= 3 ? 1 : (a + 3) / 6"),
    FORMULA("hardswish.default", "self", "a < -3 ? 0 : a <= 3 ? a * (a + 3) / 6 : a"),
    FORMULA("leaky_relu.default", "self negative_slope=0.01", "a > 0 ? a : a * b"),
    SPECIAL("prelu.default", lower_prelu, NULL, "a > 0 ? a : a * b"),
    FORMULA("elu.default", "self alpha=1 scale=1 input_scale=1",
            "a > 0 ? a * c : b * c * expm1((a > 0 ? 0 : a) * d)"),
    FORMULA("celu.default", "self alpha=1", "a > 0 ? a : b * expm1((a > 0 ? 0 : a) / b)"),
    FORMULA("selu.default", "self",
            "a > 0 ? a * 1.05070098735548 : 1.75809934084738 * expm1(a > 0 ? 0 : a)"),
    FORMULA("softplus.default", "self beta=1 threshold=20",
            "a * b > c ? a : log1p(exp(a * b > c ? 0 : a * b)) / b"),
    FORMULA("log_sigmoid.default", "self", "(a < 0 ? a : 0) - log1p(exp(a < 0 ? a : -a))"),
    FORMULA("mish.default", "self", "a > 20 ? a : a * tanh(log1p(exp(a > 20 ? 0 : a)))"),
    FORMULA("threshold.default", "self threshold value", "a <= b ? c : a"),
    FORMULA("hardshrink.default", "self lambd=0.5", "abs(a) <= b ? 0 : a"),
    FORMULA("softshrink.default", "self lambd=0.5", "a > b ? a - b : a < -b ? a + b : 0"),
    SPECIAL("glu.default", lower_glu, NULL, "a * sigmoid(b)"),
    SPECIAL("tril.default", lower_tril, NULL, "b ? a : 0"),
    {.target = "aten.triu.default",
     .lower = lower_tril,
     .which = 1,
     .general = true,
     .formula = "b ? 0 : a"},
    /* comparisons and choices */
    PAIR("eq", "a == b"),
    PAIR("ne", "a == b ? 0 : 1"),
    PAIR("lt", "a < b"),
    PAIR("le", "a <= b"),
    PAIR("gt", "a > b"),
    PAIR("ge", "a >= b"),
    FORMULA("where.self", "condition self other", "a ? b : c"),
    FORMULA("where.ScalarOther", "condition self other", "a ? b : c"),
    FORMULA("where.ScalarSelf", "condition self other", "a ? b : c"),
    FORMULA("where.Scalar", "condition self other", "a ? b : c"),
    FORMULA("copy.default", "self src", "b"),
    FORMULA("fill.Scalar", "self value", "b"),
    FORMULA("fill.Tensor", "self value", "b"),
    FORMULA("zero.default", "self", "0"),
    FORMULA("masked_fill.Scalar", "self mask value", "b ? c : a"),
    FORMULA("masked_fill.Tensor", "self mask value", "b ? c : a"),
    FORMULA("isnan.default", "self", "a == a ? 0 : 1"),
    FORMULA("isinf.default", "self", "abs(a) == 1 / 0"),
    FORMULA("nan_to_num.default", "self nan=0 posinf=3.40282347e38 neginf=-3.40282347e38",
            "a == a ? a == 1 / 0 ? c : a == -1 / 0 ? d : a : b"),
    FORMULA("logical_not.default", "self", "a == 0"),
    FORMULA("logical_and.default", "self other", "a ? (b == 0 ? 0 : 1) : 0"),
    FORMULA("logical_or.default", "self other", "a ? 1 : b == 0 ? 0 : 1"),
    FORMULA("logical_xor.default", "self other", "(a == 0) == (b == 0) ? 0 : 1"),
    SPECIAL("bitwise_not.default", lower_bits, "self", "a == 0"),
    SPECIAL("bitwise_and.Tensor", lower_bits, "self other", "a * b"),
    SPECIAL("bitwise_or.Tensor", lower_bits, "self other", "a ? 1 : b"),
    SPECIAL("bitwise_xor.Tensor", lower_bits, "self other", "a == b ? 0 : 1"),
    SPECIAL("__and__.Tensor", lower_bits, "self other", "a * b"),
    SPECIAL("__or__.Tensor", lower_bits, "self other", "a ? 1 : b"),
    SPECIAL("__xor__.Tensor", lower_bits, "self other", "a == b ? 0 : 1"),
    {.target = NULL},
};
