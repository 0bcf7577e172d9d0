/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of PyTorch, written down by hand, lowered, and computed node by node for one sample. The
 * data are 0, 1, 2, .., so that results say where they came from.
 */
#ifndef PPCLI_TESTS_NN_GRAPH_H
#define PPCLI_TESTS_NN_GRAPH_H

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
    struct pt_arg args[MOST][8];
    struct pt_size sizes[4 * MOST];
    int n_sizes;
    int results[MOST], output;
    struct graph *g;
};

/* A shape "s 4 8": the samples, then numbers; "4s": 4 for each sample. */
static inline struct pt_tensor shape(const char *text)
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

static inline void begin(struct program *m, const char *data)
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

/* Adds a weight of a shape such as "4 8", with these numbers or NULL. */
static inline int put_weight(struct program *m, enum pt_weight_kind kind, enum pt_dtype dtype,
                             const char *dims, const void *data)
{
    static const char *const names[] = {"w0", "w1", "w2", "w3", "w4", "w5"};
    int value = m->p.n_values++, weight = m->p.n_weights++;
    struct pt_tensor type = shape(dims);
    type.dtype = dtype;
    m->values[value] = (struct pt_value){
        .name = names[weight], .type = type, .origin = PT_FROM_WEIGHT, .index = weight};
    struct pt_weight *w = &m->weights[weight];
    *w = (struct pt_weight){.name = names[weight],
                            .kind = kind,
                            .persistent = true,
                            .requires_grad = kind == PT_PARAMETER,
                            .dtype = dtype,
                            .n_dims = type.n_dims,
                            .value = value,
                            .storage = names[weight],
                            .data = data,
                            .same_as = -1};
    size_t elements = 1;
    for (int d = type.n_dims - 1; d >= 0; d--) {
        w->dims[d] = type.dims[d].n;
        w->strides[d] = (int64_t)elements;
        elements *= (size_t)type.dims[d].n;
    }
    w->bytes = data ? elements * pt_dtype_bytes(dtype) : 0;
    return value;
}

static inline int put_parameter(struct program *m, const char *dims)
{
    return put_weight(m, PT_PARAMETER, PT_F32, dims, NULL);
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
#define FLAG(word, x)                                                                              \
    {                                                                                              \
        .name = (word), .kind = PT_BOOL_ARG, .flag = (x)                                           \
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

/* Adds an operator with one result. Lists of tensors must outlive the program. */
static inline int put(struct program *m, const char *target, const char *result, int n_args,
                      const struct pt_arg *args)
{
    int value = m->p.n_values++, node = m->p.n_nodes++;
    m->results[node] = value;
    m->values[value] = (struct pt_value){.name = "y", .type = shape(result), .index = node};
    for (int i = 0; i < n_args; i++) {
        struct pt_arg *a = &m->args[node][i];
        *a = args[i];
        if (a->kind == PT_INTS) {
            a->sizes = &m->sizes[m->n_sizes];
            for (int k = 0; k < a->n; k++)
                m->sizes[m->n_sizes++] = args[i].sizes[k];
        }
    }
    m->nodes[node] = (struct pt_node){.target = target,
                                      .n_args = n_args,
                                      .n_outputs = 1,
                                      .args = m->args[node],
                                      .outputs = &m->results[node],
                                      .path = "",
                                      .source = "",
                                      .code = ""};
    return value;
}

/* Lowers the program, which returns this value. */
static inline void lower_to(struct program *m, int output)
{
    const struct pp_data_input data = {.classes = 0};
    m->output = output;
    CHECK_OK(graph_lower(&m->p, &data, &m->g));
}

/* The program is refused, with one problem that says this. */
static inline void check_refused(struct program *m, int output, const char *words)
{
    lower_to(m, output);
    CHECK_INT_EQ(m->g->n_problems, 1);
    if (!strstr(m->g->problems[0].text, words))
        fail_msg("said '%s', expected '%s' in it", m->g->problems[0].text, words);
    graph_destroy(m->g);
}

/* ---- one sample */

static inline double compute_step(const struct expr_step *s, double a, double b, double c)
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

static inline int64_t place_of(const struct graph *g, const struct expr_operand *o, int n,
                               const int64_t *at)
{
    int64_t place = o->offset;
    for (int k = 0; k < n; k++)
        place += (k == o->table_axis ? g->tables[o->table][at[k]] : at[k]) * o->stride[k];
    return place;
}

static inline void compute_piece(const struct graph *g, const struct graph_node *n,
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
static inline void compute(struct program *m, int n, float *out)
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

static inline void check_result(struct program *m, int output, int n, const float *expected)
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
static inline int count_nodes(const struct graph *g, enum graph_kind kind)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].kind == kind && !g->nodes[i].dead;
    return n;
}

#endif
