/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of PyTorch become graphs: small programs are written down, lowered, and computed node by
 * node for one sample. The data are 0, 1, 2, .., so that results say where they came from.
 */
#include <math.h>
#include <stdlib.h>

#include "../../src/nn/graph/lower.h"
#include "test.h"

/* ---- programs */

#define MOST 32

struct program {
    struct pt_program p;
    struct pt_value values[MOST];
    struct pt_node nodes[MOST];
    struct pt_weight weights[MOST];
    struct pt_input input;
    int results[MOST], output;
    struct graph *g;
};

/* A shape "s 4 8": the samples, then numbers; "4s": 4 for each sample. */
static struct pt_tensor shape(const char *text)
{
    struct pt_tensor t = {.dtype = PT_F32};
    while (*text) {
        char *end;
        struct pt_size *d = &t.dims[t.n_dims++];
        d->n = *text == 's' ? 1 : strtol(text, &end, 10);
        text = *text == 's' ? text : end;
        d->batch = *text == 's';
        text += d->batch;
        text += strspn(text, " ");
    }
    return t;
}

static void begin(struct program *m, const char *data)
{
    memset(m, 0, sizeof(*m));
    m->p = (struct pt_program){.file = "net.pt2",
                               .torch = "2.15.0",
                               .batch = "s",
                               .values = m->values,
                               .n_values = 1,
                               .nodes = m->nodes,
                               .weights = m->weights,
                               .inputs = &m->input,
                               .n_inputs = 1,
                               .outputs = &m->output,
                               .n_outputs = 1};
    m->values[0] = (struct pt_value){.name = "x", .type = shape(data), .origin = PT_FROM_INPUT};
    m->input = (struct pt_input){"x", 0};
}

/* Adds a weight with these numbers, or a list of indices. */
static int put_weight(struct program *m, enum pt_weight_kind kind, enum pt_dtype dtype, int n,
                      const void *data)
{
    int value = m->p.n_values++, weight = m->p.n_weights++;
    char dims[16];
    snprintf(dims, sizeof(dims), n ? "%d" : "", n);
    m->values[value] = (struct pt_value){
        .name = "w", .type = shape(dims), .origin = PT_FROM_WEIGHT, .index = weight};
    m->values[value].type.dtype = dtype;
    m->weights[weight] = (struct pt_weight){.name = "w",
                                            .kind = kind,
                                            .persistent = true,
                                            .requires_grad = kind == PT_PARAMETER,
                                            .dtype = dtype,
                                            .n_dims = n > 0,
                                            .dims = {n},
                                            .strides = {1},
                                            .value = value,
                                            .storage = "w",
                                            .data = data,
                                            .bytes = (size_t)(n ? n : 1) * pt_dtype_bytes(dtype),
                                            .same_as = -1};
    return value;
}

#define TENSOR(word, v)                                                                            \
    {                                                                                              \
        .name = (word), .kind = PT_TENSOR, .value = (v)                                            \
    }
#define INT(word, x)                                                                               \
    {                                                                                              \
        .name = (word), .kind = PT_INT, .size = {(x), false}, .number = (x)                        \
    }
#define FLOAT(word, x)                                                                             \
    {                                                                                              \
        .name = (word), .kind = PT_FLOAT, .number = (x)                                            \
    }
#define LIST(word, count, ...)                                                                     \
    {                                                                                              \
        .name = (word), .kind = PT_INTS, .n = (count), .sizes = (const struct pt_size[])           \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define SIZE(x)                                                                                    \
    {                                                                                              \
        (x), false                                                                                 \
    }
#define ARGS(...)                                                                                  \
    (int)(sizeof((const struct pt_arg[]){__VA_ARGS__}) / sizeof(struct pt_arg)),                   \
        (const struct pt_arg[])                                                                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Adds an operator with one result. The arguments must outlive the program. */
static int put(struct program *m, const char *target, const char *result, int n_args,
               const struct pt_arg *args)
{
    int value = m->p.n_values++, node = m->p.n_nodes++;
    m->results[node] = value;
    m->values[value] = (struct pt_value){.name = "y", .type = shape(result), .index = node};
    m->nodes[node] = (struct pt_node){.target = target,
                                      .n_args = n_args,
                                      .n_outputs = 1,
                                      .args = args,
                                      .outputs = &m->results[node],
                                      .path = "",
                                      .source = "",
                                      .code = ""};
    return value;
}

/* Lowers the program, which returns this value. */
static void lower_to(struct program *m, int output)
{
    const struct pp_data_input data = {.classes = 0};
    m->output = output;
    CHECK_OK(graph_lower(&m->p, &data, &m->g));
}

/* The program is refused, with one problem that says this. */
static void check_refused(struct program *m, int output, const char *words)
{
    lower_to(m, output);
    CHECK_INT_EQ(m->g->n_problems, 1);
    if (!strstr(m->g->problems[0].text, words))
        fail_msg("said '%s', expected '%s' in it", m->g->problems[0].text, words);
    graph_destroy(m->g);
}

/* ---- one sample */

static double compute_step(const struct expr_step *s, double a, double b, double c)
{
    double number = (double)s->number;
    (void)number;
    switch (s->code) {
#define PP_EXPR_STEP(NAME, operands, value, fast)                                                  \
    case PP_EXPR_##NAME:                                                                           \
        return value;
#include "ppcli/dev/expr.def"
    case PP_EXPR_FILL:
        return number;
    default:
        fail_msg("a step of code %d", (int)s->code);
        return 0;
    }
}

static int64_t place_of(const struct graph *g, const struct expr_operand *o, int n,
                        const int64_t *at)
{
    int64_t place = o->offset;
    for (int k = 0; k < n; k++)
        place += (k == o->table_axis ? g->tables[o->table][at[k]] : at[k]) * o->stride[k];
    return place;
}

static void compute_piece(const struct graph *g, const struct graph_node *n,
                          const struct expr_piece *p, float *const *values, float *y)
{
    int64_t at[VIEW_AXES] = {0};
    for (int k = p->n_axes; k >= 0;) {
        double t[96];
        for (int s = 0; s < p->n_steps; s++) {
            const struct expr_step *step = &p->steps[s];
            const struct expr_operand *o = &p->operands[step->code == PP_EXPR_LOAD ? step->a : 0];
            t[s] = step->code == PP_EXPR_LOAD
                       ? (double)values[n->in[o->input]][place_of(g, o, p->n_axes, at)]
                       : compute_step(step, t[step->a], t[step->b], t[step->c]);
        }
        y[place_of(g, &p->result, p->n_axes, at)] += (float)t[p->n_steps - 1];
        for (k = p->n_axes - 1; k >= 0 && ++at[k] == p->size[k]; k--)
            at[k] = 0;
    }
}

/* The result of a sample, in memory; the program is done with. */
static void compute(struct program *m, int n, float *out)
{
    struct graph *g = m->g;
    for (int i = 0; i < g->n_problems; i++)
        fail_msg("refused: %s", g->problems[i].text);
    float *values[64] = {NULL};
    assert_true(g->n_nodes <= 64);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct graph_node *node = &g->nodes[i];
        int64_t floats = graph_floats(g, i);
        float *y = values[i] = pp_alloc((size_t)floats, sizeof(*y));
        for (int64_t k = 0; k < floats; k++) {
            y[k] = node->kind == GRAPH_INPUT      ? (float)k
                   : node->kind == GRAPH_CONSTANT ? node->table[k]
                   : node->kind == GRAPH_WEIGHT
                       ? ((const float *)m->weights[node->weights[0]].data)[k]
                   : node->kind == GRAPH_ADD      ? values[node->in[0]][k] + values[node->in[1]][k]
                   : node->kind == GRAPH_ACTIVATE ? fmaxf(values[node->in[0]][k], 0)
                                                  : node->fill;
        }
        for (int k = 0; k < node->n_pieces && node->fill == 0; k++)
            compute_piece(g, node, &node->pieces[k], values, y);
    }
    CHECK_INT_EQ(graph_floats(g, g->output), n);
    memcpy(out, values[g->output], (size_t)n * sizeof(*out));
    for (int i = 0; i < g->n_nodes; i++)
        pp_free(values[i]);
    graph_destroy(g);
}

static void check_result(struct program *m, int output, int n, const float *expected)
{
    float got[128];
    lower_to(m, output);
    compute(m, n, got);
    for (int i = 0; i < n; i++)
        if (!(fabsf(got[i] - expected[i]) <= 1e-6f * (1 + fabsf(expected[i]))))
            fail_msg("number %d is %g, expected %g", i, (double)got[i], (double)expected[i]);
}

#define CHECK_RESULT(m, output, ...)                                                               \
    check_result(m, output, (int)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)),           \
                 (const float[]){__VA_ARGS__})

/* Nodes of a kind that the graph needs. */
static int count_nodes(const struct graph *g, enum graph_kind kind)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].kind == kind && !g->nodes[i].dead;
    return n;
}

/* ---- views */

TEST(views_add_no_nodes)
{
    struct program m;
    begin(&m, "s 4 6");
    int v = put(&m, "aten.view.default", "s 4 2 3", ARGS(TENSOR("self", 0)));
    int t = put(&m, "aten.transpose.int", "s 2 4 3",
                ARGS(TENSOR("self", v), INT("dim0", 1), INT("dim1", 2)));
    int one = put(&m, "aten.select.int", "s 4 3",
                  ARGS(TENSOR("self", t), INT("dim", 1), INT("index", -1)));
    int few = put(
        &m, "aten.slice.Tensor", "s 2 3",
        ARGS(TENSOR("self", one), INT("dim", 1), INT("start", 1), INT("end", 4), INT("step", 2)));
    lower_to(&m, few);
    CHECK_INT_EQ(m.g->n_views, 4);
    CHECK_INT_EQ(count_nodes(m.g, GRAPH_EXPR), 1); /* the logits are rows */
    float got[6];
    compute(&m, 6, got);
    const float expected[] = {9, 10, 11, 21, 22, 23};
    for (int i = 0; i < 6; i++)
        assert_true(got[i] == expected[i]);
}

TEST(what_memory_does_not_allow_is_copied_once)
{
    struct program m;
    begin(&m, "s 2 3");
    int t = put(&m, "aten.transpose.int", "s 3 2",
                ARGS(TENSOR("self", 0), INT("dim0", 1), INT("dim1", 2)));
    int flat = put(&m, "aten.reshape.default", "s 6", ARGS(TENSOR("self", t)));
    int part = put(&m, "aten.slice.Tensor", "s 3",
                   ARGS(TENSOR("self", flat), INT("dim", 1), INT("start", 1), INT("end", 4)));
    CHECK_RESULT(&m, part, 3, 1, 4);
}

TEST(samples_are_not_mixed)
{
    struct program m;
    begin(&m, "s 4");
    int mixed = put(&m, "aten.view.default", "4 s", ARGS(TENSOR("self", 0)));
    check_refused(&m, mixed, "mixes the samples");
    begin(&m, "s 4");
    int first =
        put(&m, "aten.select.int", "4", ARGS(TENSOR("self", 0), INT("dim", 0), INT("index", 0)));
    check_refused(&m, first, "takes samples of a batch apart ([s][4], dimension 0)");
    begin(&m, "s 4");
    int sum =
        put(&m, "aten.sum.dim_IntList", "4", ARGS(TENSOR("self", 0), LIST("dim", 1, SIZE(0))));
    check_refused(&m, sum, "over the samples of a batch");
    begin(&m, "s 4");
    int soft = put(&m, "aten.softmax.int", "s 4", ARGS(TENSOR("self", 0), INT("dim", 0)));
    check_refused(&m, soft, "over the samples of a batch ([s][4], dimension 0)");
}

/* ---- elements */

TEST(an_activation_keeps_the_memory_of_a_whole_value)
{
    struct program m;
    begin(&m, "s 2 3");
    int t = put(&m, "aten.transpose.int", "s 3 2",
                ARGS(TENSOR("self", 0), INT("dim0", 1), INT("dim1", 2)));
    int y = put(&m, "aten.relu.default", "s 3 2", ARGS(TENSOR("self", t)));
    lower_to(&m, y);
    CHECK_INT_EQ(count_nodes(m.g, GRAPH_ACTIVATE), 1);
    graph_destroy(m.g);
}

TEST(a_sum_is_the_fast_op_if_both_values_have_one_memory)
{
    struct program m;
    begin(&m, "s 2 2");
    int twice = put(&m, "aten.mul.Tensor", "s 2 2", ARGS(TENSOR("self", 0), FLOAT("other", 2)));
    int y = put(&m, "aten.add.Tensor", "s 2 2", ARGS(TENSOR("self", twice), TENSOR("other", 0)));
    lower_to(&m, y);
    CHECK_INT_EQ(count_nodes(m.g, GRAPH_ADD), 1);
    graph_destroy(m.g);
    begin(&m, "s 2 2");
    int t = put(&m, "aten.transpose.int", "s 2 2",
                ARGS(TENSOR("self", 0), INT("dim0", 1), INT("dim1", 2)));
    y = put(&m, "aten.add.Tensor", "s 2 2",
            ARGS(TENSOR("self", 0), TENSOR("other", t), INT("alpha", 10)));
    CHECK_RESULT(&m, y, 0, 21, 12, 33);
}

TEST(a_formula_leaves_out_what_numbers_decide)
{
    struct program m;
    begin(&m, "s 3");
    int y = put(&m, "aten.clamp.default", "s 3", ARGS(TENSOR("self", 0), FLOAT("max", 1)));
    lower_to(&m, y);
    CHECK_INT_EQ(m.g->nodes[1].pieces[0].n_steps, 4); /* x, 1, 1 < x, the choice */
    float got[3];
    compute(&m, 3, got);
    assert_true(got[0] == 0 && got[1] == 1 && got[2] == 1);
}

TEST(a_weight_is_repeated_for_each_row)
{
    static const float w[] = {10, 20};
    struct program m;
    begin(&m, "s 2 2");
    int a = put_weight(&m, PT_PARAMETER, PT_F32, 2, w);
    int y = put(&m, "aten.sub.Tensor", "s 2 2", ARGS(TENSOR("self", 0), TENSOR("other", a)));
    CHECK_RESULT(&m, y, -10, -19, -8, -17);
}

TEST(sums_run_over_the_dimensions_of_a_sample)
{
    struct program m;
    begin(&m, "s 2 3");
    int y = put(&m, "aten.mean.dim", "s 2 1",
                ARGS(TENSOR("self", 0), LIST("dim", 1, SIZE(-1)),
                     {.name = "keepdim", .kind = PT_BOOL_ARG, .flag = true}));
    CHECK_RESULT(&m, y, 1, 4);
    begin(&m, "s 2 3");
    y = put(&m, "aten.var.correction", "s 3", ARGS(TENSOR("self", 0), LIST("dim", 1, SIZE(1))));
    CHECK_RESULT(&m, y, 4.5f, 4.5f, 4.5f);
}

/* ---- moves */

TEST(tensors_are_joined_by_a_piece_for_each)
{
    struct program m;
    begin(&m, "s 2 2");
    static const int both[] = {0, 0};
    int y =
        put(&m, "aten.cat.default", "s 2 4",
            ARGS({.name = "tensors", .kind = PT_TENSORS, .n = 2, .values = both}, INT("dim", -1)));
    lower_to(&m, y);
    CHECK_INT_EQ(m.g->nodes[1].n_pieces, 2);
    float got[8];
    compute(&m, 8, got);
    const float expected[] = {0, 1, 0, 1, 2, 3, 2, 3};
    for (int i = 0; i < 8; i++)
        assert_true(got[i] == expected[i]);
}

TEST(padding_reflects_and_rolling_wraps)
{
    struct program m;
    begin(&m, "s 4");
    int y = put(&m, "aten.pad.default", "s 7",
                ARGS(TENSOR("self", 0), LIST("pad", 2, SIZE(2), SIZE(1)),
                     {.name = "mode", .kind = PT_STRING, .text = "reflect"}));
    CHECK_RESULT(&m, y, 2, 1, 0, 1, 2, 3, 2);
    begin(&m, "s 4");
    y = put(&m, "aten.roll.default", "s 4",
            ARGS(TENSOR("self", 0), LIST("shifts", 1, SIZE(1)), LIST("dims", 1, SIZE(1))));
    CHECK_RESULT(&m, y, 3, 0, 1, 2);
}

TEST(constant_indices_are_a_table)
{
    static const int64_t indices[] = {2, 0, 0, -1};
    struct program m;
    begin(&m, "s 3 2");
    int c = put_weight(&m, PT_CONSTANT, PT_I64, 4, indices);
    const int list[] = {-1, c};
    int y = put(
        &m, "aten.index.Tensor", "s 4 2",
        ARGS(TENSOR("self", 0), {.name = "indices", .kind = PT_TENSORS, .n = 2, .values = list}));
    CHECK_RESULT(&m, y, 4, 5, 0, 1, 0, 1, 4, 5);
}

TEST(indices_of_the_data_are_refused)
{
    struct program m;
    begin(&m, "s 3");
    int y = put(&m, "aten.index_select.default", "s 3",
                ARGS(TENSOR("self", 0), INT("dim", 1), TENSOR("index", 0)));
    check_refused(&m, y, "by indices that depend on the data");
}

/* ---- in place */

TEST(a_write_is_seen_in_all_views_of_the_memory)
{
    struct program m;
    begin(&m, "s 2 3");
    int x = put(&m, "aten.add.Tensor", "s 2 3", ARGS(TENSOR("self", 0), INT("other", 1)));
    int row =
        put(&m, "aten.select.int", "s 3", ARGS(TENSOR("self", x), INT("dim", 1), INT("index", 1)));
    put(&m, "aten.mul_.Tensor", "s 3", ARGS(TENSOR("self", row), INT("other", 10)));
    CHECK_RESULT(&m, x, 1, 2, 3, 40, 50, 60);
}

TEST(a_write_into_a_tensor_that_may_be_a_copy_is_refused)
{
    struct program m;
    begin(&m, "s 2 3");
    int x = put(&m, "aten.add.Tensor", "s 2 3", ARGS(TENSOR("self", 0), INT("other", 1)));
    int flat = put(&m, "aten.reshape.default", "s 6", ARGS(TENSOR("self", x)));
    put(&m, "aten.mul_.Tensor", "s 6", ARGS(TENSOR("self", flat), INT("other", 10)));
    int y =
        put(&m, "aten.sum.dim_IntList", "s 2", ARGS(TENSOR("self", x), LIST("dim", 1, SIZE(2))));
    check_refused(&m, y, "is read later too");
}

TEST(batches_are_counted_by_the_op)
{
    static const int64_t zero[] = {0};
    static const float w[] = {1};
    struct program m;
    begin(&m, "s 1");
    int count = put_weight(&m, PT_BUFFER, PT_I64, 0, zero);
    put(&m, "aten.add_.Tensor", "", ARGS(TENSOR("self", count), INT("other", 1)));
    CHECK_RESULT(&m, 0, 0);
    begin(&m, "s 1");
    int a = put_weight(&m, PT_PARAMETER, PT_F32, 1, w);
    int y = put(&m, "aten.add_.Tensor", "1", ARGS(TENSOR("self", a), INT("other", 1)));
    y = put(&m, "aten.mul.Tensor", "s 1", ARGS(TENSOR("self", 0), TENSOR("other", y)));
    check_refused(&m, y, "writes into w");
}
