/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms. What the ops for norms know becomes one of them: batch norm with running statistics, layer
 * and RMS norm over channels, group norm, each with weights that are parameters. The others are
 * written out with sums and elementwise nodes.
 */
#include "lower.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/base/base.h"

/* ---- written out */

/* Returns op(a, b), with b's dimensions of size 1 repeated. */
static struct view combine(struct lower *l, const struct view *a, const struct view *b,
                           enum pp_expr_code op)
{
    const struct expr_step steps[] = {{.code = PP_EXPR_LOAD, .a = 0},
                                      {.code = PP_EXPR_LOAD, .a = 1},
                                      {.code = op, .a = 0, .b = 1}};
    struct view y = {.n_dims = -1}, in[2] = {*a, *b};
    struct pt_size dims[PT_DIMS];
    for (int d = 0; d < a->n_dims; d++)
        dims[d] = view_size(a, d);
    if (a->n_dims < 0 || b->n_dims < 0)
        return y;
    if (!view_expand(b, a->n_dims, dims, &in[1]))
        lower_refuse(l, "a norm whose statistics or weights do not fit its input");
    else
        lower_expr(l, 2, in, 3, steps, NULL, LOWER_AS_LARGEST, &y);
    return y;
}

/* Returns the mean over the summed dimensions, of the squares if `squares`. */
static struct view take_mean(struct lower *l, const struct view *x, const bool *summed,
                             bool squares)
{
    double n = 1;
    for (int d = 0; d < x->n_dims; d++)
        n *= summed[d] ? (double)view_size(x, d).n : 1;
    const struct expr_step number = {.code = PP_EXPR_FILL, .number = (float)(1 / n)};
    const struct expr_step of_x[] = {
        {.code = PP_EXPR_LOAD, .a = 0}, number, {.code = PP_EXPR_MUL, .a = 0, .b = 1}};
    const struct expr_step of_squares[] = {{.code = PP_EXPR_LOAD, .a = 0},
                                           {.code = PP_EXPR_MUL, .a = 0, .b = 0},
                                           number,
                                           {.code = PP_EXPR_MUL, .a = 1, .b = 2}};
    struct view in = *x, y = {.n_dims = -1};
    if (x->n_dims >= 0)
        lower_expr(l, 1, &in, squares ? 4 : 3, squares ? of_squares : of_x, summed,
                   LOWER_AS_LARGEST, &y);
    return y;
}

/* Returns 1 / sqrt(variance + eps). */
static struct view take_scale(struct lower *l, const struct view *variance, double eps)
{
    const struct expr_step steps[] = {{.code = PP_EXPR_LOAD, .a = 0},
                                      {.code = PP_EXPR_FILL, .number = (float)eps},
                                      {.code = PP_EXPR_ADD, .a = 0, .b = 1},
                                      {.code = PP_EXPR_RSQRT, .a = 2}};
    struct view in = *variance, y = {.n_dims = -1};
    if (variance->n_dims >= 0)
        lower_expr(l, 1, &in, 4, steps, NULL, LOWER_AS_LARGEST, &y);
    return y;
}

/* Returns (x - mean) / sqrt(variance + eps) over the summed dimensions; not centred: the mean is
 * taken as 0. */
static struct view normalize(struct lower *l, const struct view *x, const bool *summed, double eps,
                             bool centred)
{
    struct view away = *x;
    if (centred) {
        struct view mean = take_mean(l, x, summed, false);
        away = combine(l, x, &mean, PP_EXPR_SUB);
    }
    struct view variance = take_mean(l, &away, summed, true);
    struct view scale = take_scale(l, &variance, eps);
    return combine(l, &away, &scale, PP_EXPR_MUL);
}

/* Computes op(y, w), where w's only dimension, or its last ones, belong to y's dimensions from `dim`
 * on. */
static void apply(struct lower *l, enum pp_expr_code op, int dim, const struct view *weight,
                  struct view *y)
{
    struct view w = *weight;
    while (w.n_dims >= 0 && dim + w.n_dims < y->n_dims)
        w = view_insert(&w, w.n_dims);
    *y = combine(l, y, &w, op);
}

/* The same with the argument `name`, if it is there. */
static void apply_weight(struct lower *l, const struct pt_node *n, const char *name,
                         enum pp_expr_code op, int dim, struct view *y)
{
    if (!lower_has(n, name) || y->n_dims < 0)
        return;
    struct view w = lower_tensor(l, n, name);
    apply(l, op, dim, &w, y);
}

/* ---- batch norm */

/* Returns the weight num_batches_tracked of the batch norm with these running means; -1: none. */
static int find_count(const struct pt_program *p, int running_mean)
{
    static const char of_mean[] = "running_mean", of_count[] = "num_batches_tracked";
    const char *name = p->weights[running_mean].name;
    size_t prefix = strlen(name) - (sizeof(of_mean) - 1);
    for (int i = 0; strlen(name) >= sizeof(of_mean) - 1 && i < p->n_weights; i++)
        if (strncmp(p->weights[i].name, name, prefix) == 0 &&
            strcmp(p->weights[i].name + prefix, of_count) == 0)
            return i;
    return -1;
}

/* Reads the weights of a batch norm; false: they are not those of torch.nn.BatchNorm. */
static bool read_batch_norm(struct lower *l, const struct pt_node *n, int weights[5])
{
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    for (int i = 0; i < 4; i++) {
        weights[i] = lower_weight(l, n, names[i]);
        if (weights[i] < 0)
            return lower_refuse(l,
                                "a batch norm without a %s: leave affine and "
                                "track_running_stats on",
                                names[i]);
    }
    weights[4] = find_count(l->program, weights[2]);
    return true;
}

/* A batch norm that the program evaluates: its statistics never change. */
static void write_out_evaluated(struct lower *l, const struct pt_node *n)
{
    struct view y = lower_tensor(l, n, "input"), variance = lower_tensor(l, n, "running_var");
    struct view scale = take_scale(l, &variance, lower_number(n, "eps", 1e-5));
    apply_weight(l, n, "running_mean", PP_EXPR_SUB, 1, &y);
    apply(l, PP_EXPR_MUL, 1, &scale, &y);
    apply_weight(l, n, "weight", PP_EXPR_MUL, 1, &y);
    apply_weight(l, n, "bias", PP_EXPR_ADD, 1, &y);
    lower_set(l, n, 0, &y);
}

/* Returns the input with its channels last, as rows of channels. */
static struct view take_channels(struct lower *l, const struct pt_node *n, const char *name)
{
    struct view x = lower_samples(l, n, name), none = {.n_dims = -1};
    char text[96];
    if (x.n_dims < 0)
        return x;
    struct pt_size first = view_size(&x, 0);
    if (x.n_dims < 2 || !first.batch || view_has_batch(&x, 1)) {
        lower_refuse(l, "%s over %s: samples come first, then channels", n->target,
                     view_text(&x, text, sizeof(text)));
        return none;
    }
    x = view_move(&x, 1, x.n_dims - 1);
    x = lower_rows(l, &x);
    return l->rc < 0 || l->refused ? none : x;
}

/* Adds a node that gives a value like x, rows of channels. */
static struct graph_node *add_norm(struct lower *l, const struct pt_node *n, enum graph_kind kind,
                                   const struct view *x, int64_t channels, double eps)
{
    int64_t positions = graph_floats(l->graph, x->value) / channels;
    struct graph_node *node = lower_add(l, kind, 1, &x->value, lower_shape(positions, channels));
    (void)n;
    if (node) {
        node->positions = (int)positions;
        node->channels = (int)channels;
        node->eps = (float)eps;
    }
    return node;
}

static void lower_batch_norm(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    int weights[5];
    (void)row;
    if (!lower_flag(n, "training", false)) {
        write_out_evaluated(l, n);
        return;
    }
    if (!read_batch_norm(l, n, weights))
        return;
    struct view x = take_channels(l, n, "input");
    if (x.n_dims < 0)
        return;
    struct graph_node *b = add_norm(l, n, GRAPH_BATCH_NORM, &x, view_size(&x, x.n_dims - 1).n,
                                    lower_number(n, "eps", 1e-5));
    if (!b)
        return;
    b->momentum = (float)lower_number(n, "momentum", 0.1);
    b->n_weights = 5;
    memcpy(b->weights, weights, sizeof(weights));
    x.value = l->graph->n_nodes - 1;
    x = view_move(&x, x.n_dims - 1, 1);
    lower_set(l, n, 0, &x);
}

/* ---- the other norms */

/* Merges the last `count` dimensions. */
static bool merge_last(const struct view *v, int count, struct view *out)
{
    struct pt_size dims[PT_DIMS];
    int n = v->n_dims - count + 1;
    for (int d = 0; d < n - 1; d++)
        dims[d] = view_size(v, d);
    dims[n - 1] = (struct pt_size){1, false};
    for (int d = n - 1; d < v->n_dims; d++)
        dims[n - 1].n *= view_size(v, d).n;
    return view_reshape(v, n, dims, out);
}

/* Returns the input with its last `count` dimensions as one of rows of channels. */
static struct view take_last(struct lower *l, const struct view *v, int count)
{
    struct view x = *v, none = {.n_dims = -1};
    if (!merge_last(v, count, &x)) {
        x = lower_copy(l, v);
        if (l->rc < 0 || l->refused || !merge_last(&x, count, &x))
            return none;
    }
    x = lower_rows(l, &x);
    return l->rc < 0 || l->refused ? none : x;
}

/* Layer norm (which 1) and RMS norm over the last dimensions. */
static void lower_row_norm(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_arg *over = pt_arg_find(n, "normalized_shape");
    int count = over && over->kind == PT_INTS ? over->n : 1;
    int weight = lower_weight(l, n, "weight"), bias = lower_weight(l, n, "bias");
    bool centred = row->which == 1;
    double eps = lower_number(n, "eps", centred ? 1e-5 : (double)FLT_EPSILON);
    struct view v = lower_tensor(l, n, "input"), y;
    bool summed[PT_DIMS] = {false};
    if (v.n_dims < count || count < 1)
        return;
    for (int d = v.n_dims - count; d < v.n_dims; d++) {
        summed[d] = true;
        if (view_has_batch(&v, d)) {
            lower_refuse(l, "%s over the samples of a batch: a micro-batch sees only its own",
                         n->target);
            return;
        }
    }
    if (weight < 0 || (bias < 0 && lower_has(n, "bias")) || !l->graph->nodes[v.value].rows) {
        y = normalize(l, &v, summed, eps, centred);
        apply_weight(l, n, "weight", PP_EXPR_MUL, v.n_dims - count, &y);
        apply_weight(l, n, "bias", PP_EXPR_ADD, v.n_dims - count, &y);
        lower_set(l, n, 0, &y);
        return;
    }
    struct view x = take_last(l, &v, count);
    if (x.n_dims < 0)
        return;
    struct graph_node *node = add_norm(l, n, centred ? GRAPH_LAYER_NORM : GRAPH_RMS_NORM, &x,
                                       view_size(&x, x.n_dims - 1).n, eps);
    if (!node)
        return;
    node->bias = bias >= 0;
    node->n_weights = bias >= 0 ? 2 : 1;
    node->weights[0] = weight;
    node->weights[1] = bias;
    x.value = l->graph->n_nodes - 1;
    if (view_reshape(&x, lower_type(l, n, 0)->n_dims, lower_type(l, n, 0)->dims, &x))
        lower_set(l, n, 0, &x);
    else
        lower_refuse(l, "%s over %d dimensions", n->target, count);
}

/* Splits channels, dimension 1, in groups, dimension 2 has the channels of a group; false: memory
 * does not allow it. */
static bool split_groups(const struct view *v, int groups, struct view *out)
{
    struct pt_size dims[PT_DIMS];
    dims[0] = view_size(v, 0);
    dims[1] = (struct pt_size){groups, false};
    dims[2] = (struct pt_size){view_size(v, 1).n / groups, false};
    for (int d = 2; d < v->n_dims; d++)
        dims[d + 1] = view_size(v, d);
    return v->n_dims < PT_DIMS && view_reshape(v, v->n_dims + 1, dims, out);
}

/* Norms over the pixels of each group of channels; groups 0: of each channel. */
static void write_out_groups(struct lower *l, const struct pt_node *n, int groups, double eps)
{
    struct view v = lower_tensor(l, n, "input"), x = v;
    const struct pt_tensor *type = lower_type(l, n, 0);
    bool summed[PT_DIMS] = {false};
    if (v.n_dims < 2)
        return;
    groups = groups > 0 ? groups : (int)view_size(&v, 1).n;
    if (!split_groups(&v, groups, &x)) {
        v = lower_copy(l, &v);
        if (l->rc < 0 || l->refused || !split_groups(&v, groups, &x))
            return;
    }
    for (int d = 2; d < x.n_dims; d++)
        summed[d] = true;
    struct view y = normalize(l, &x, summed, eps, true);
    if (y.n_dims < 0)
        return;
    if (!view_reshape(&y, type->n_dims, type->dims, &y)) {
        y = lower_copy(l, &y);
        if (l->rc < 0 || l->refused || !view_reshape(&y, type->n_dims, type->dims, &y))
            return;
    }
    apply_weight(l, n, "weight", PP_EXPR_MUL, 1, &y);
    apply_weight(l, n, "bias", PP_EXPR_ADD, 1, &y);
    lower_set(l, n, 0, &y);
}

static void lower_group_norm(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    int weight = lower_weight(l, n, "weight"), bias = lower_weight(l, n, "bias");
    int64_t all = lower_type(l, n, 0)->n_dims > 1 ? lower_type(l, n, 0)->dims[1].n : 0;
    int64_t groups = lower_int(n, "num_groups", 1);
    double eps = lower_number(n, "eps", 1e-5);
    const struct pt_size *first = &lower_type(l, n, 0)->dims[0];
    (void)row;
    if (groups < 1 || all < 1 || all % groups) {
        lower_refuse(l, "%lld groups of %lld channels", (long long)groups, (long long)all);
        return;
    }
    if (weight < 0 || bias < 0 || !first->batch || first->n != 1) {
        write_out_groups(l, n, (int)groups, eps);
        return;
    }
    struct view x = take_channels(l, n, "input");
    if (x.n_dims < 0)
        return;
    struct graph_node *g = add_norm(l, n, GRAPH_GROUP_NORM, &x, view_size(&x, x.n_dims - 1).n, eps);
    if (!g)
        return;
    g->groups = (int)groups;
    g->n_weights = 2;
    g->weights[0] = weight;
    g->weights[1] = bias;
    x.value = l->graph->n_nodes - 1;
    x = view_move(&x, x.n_dims - 1, 1);
    lower_set(l, n, 0, &x);
}

static void lower_instance_norm(struct lower *l, const struct pt_node *n,
                                const struct lowering *row)
{
    (void)row;
    if (lower_has(n, "running_mean") || !lower_flag(n, "use_input_stats", true)) {
        lower_refuse(l, "an instance norm with running statistics: leave track_running_stats off");
        return;
    }
    write_out_groups(l, n, 0, lower_number(n, "eps", 1e-5));
}

const struct lowering lowerings_of_norms[] = {
    LOWER("aten.batch_norm.default", lower_batch_norm),
    LOWER("aten.layer_norm.default", lower_row_norm, .which = 1),
    LOWER("aten.rms_norm.default", lower_row_norm),
    LOWER("aten.group_norm.default", lower_group_norm),
    LOWER("aten.instance_norm.default", lower_instance_norm, .general = true),
    {.target = NULL},
};
