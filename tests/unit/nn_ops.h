/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every op in one small model: a layer norm, then the op twice on its value, then their sum. So the
 * value has two readers, and what the op gets and gives has parameters in front of it. The value is
 * an image or a text; what reads tokens has no norm in front of it.
 */
#ifndef PPCLI_TESTS_NN_OPS_H
#define PPCLI_TESTS_NN_OPS_H

#include <math.h>

#include "../../src/nn/expr.h"
#include "dev_inputs.h"
#include "ppcli/nn/chunk.h"
#include "ppcli/base/base.h"
#include "ppcli/conf/config.h"

enum {
    H = 5,
    W = 4,
    C = 6,
    IN = H * W * C,
    T = H * W, /* of a text */
    TOKENS = 7,
    OUT_MAX = 2 * IN,
    ROWS = 8,
    MB = 4,
    FLOATS_MAX = 400
};

static inline int build_batch_norm(struct builder *b, const char *name, int x)
{
    return batch_norm(b, name, x, -1, 1e-5f, 0.1f, false);
}

static inline int build_batch_norm_all(struct builder *b, const char *name, int x)
{
    int t = activate(b, name[0] == 'o' ? "t1" : "t2", x, PP_ACT_TANH);
    return batch_norm(b, name, x, t, 1e-5f, 0.1f, true);
}

static inline int build_group_norm(struct builder *b, const char *name, int x)
{
    return group_norm(b, name, x, -1, 3, 1e-5f, false);
}

static inline int build_group_norm_all(struct builder *b, const char *name, int x)
{
    int t = activate(b, name[0] == 'o' ? "t1" : "t2", x, PP_ACT_SILU);
    return group_norm(b, name, t, x, 2, 1e-5f, true);
}

static inline int build_layer_norm(struct builder *b, const char *name, int x)
{
    return layer_norm(b, name, x, 1e-5f, name[0] == 'o');
}

static inline int build_max_pool(struct builder *b, const char *name, int x)
{
    return max_pool(b, name, x, &(struct window){.kernel = 3, .stride = 2, .pad = 1});
}

static inline int build_avg_pool(struct builder *b, const char *name, int x)
{
    return avg_pool(b, name, x, &(struct window){.kernel = 2, .stride = 1, .pad = 1});
}

static inline int build_avg_pool_same(struct builder *b, const char *name, int x)
{
    return avg_pool(b, name, x, &(struct window){.kernel = 3, .stride = 2, .pad = PAD_SAME});
}

static inline int build_global(struct builder *b, const char *name, int x)
{
    return global_avg_pool(b, name, x);
}

static inline int build_relu(struct builder *b, const char *name, int x)
{
    return activate(b, name, x, PP_ACT_RELU);
}

static inline int build_gelu(struct builder *b, const char *name, int x)
{
    return activate(b, name, x, PP_ACT_GELU);
}

static inline int build_add(struct builder *b, const char *name, int x)
{
    return add(b, name, x, activate(b, name[0] == 'o' ? "t1" : "t2", x, PP_ACT_TANH), true);
}

static inline int build_dropout(struct builder *b, const char *name, int x)
{
    return dropout(b, name, x, 0.3f);
}

/* As the projections of an attention: no biases, and one after the other. */
static inline int build_pieces(struct builder *b, const char *name, int x)
{
    const struct linear_piece qkv[] = {{"q.weight", NULL, 5}, {"k.weight", NULL, 3}};
    return linear_pieces(b, name, x, 2, qkv, PP_ACT_GELU);
}

static inline int build_rows(struct builder *b, const char *name, int x)
{
    return linear_rows(b, name, x, 2, 3, 7, true, PP_ACT_TANH);
}

static inline int build_pieces_biased(struct builder *b, const char *name, int x)
{
    const struct linear_piece two[] = {{"one_weight", "one_bias", 2}, {"w", "b", 4}};
    return linear_pieces(b, name, x, 2, two, PP_ACT_RELU);
}

static inline int build_attention(struct builder *b, const char *name, int x)
{
    int qkv = linear(b, name[0] == 'o' ? "p1" : "p2", x, 12, PP_ACT_NONE);
    return attention(b, name, qkv, -1, &(struct heads){2, 1, 3, true, true, 0});
}

/* Keys and values in a value of their own. */
static inline int build_attention_two(struct builder *b, const char *name, int x)
{
    int kv = linear(b, name[0] == 'o' ? "p1" : "p2", x, 6, PP_ACT_NONE);
    return attention(b, name, x, kv, &(struct heads){6, 3, 1, false, true, 0.3f});
}

static inline int build_cross(struct builder *b, const char *name, int x)
{
    int t = activate(b, name[0] == 'o' ? "t1" : "t2", x, PP_ACT_TANH);
    return cross_linear(b, name, t, x, 4);
}

static inline int build_attention_cross(struct builder *b, const char *name, int x)
{
    int qkv = build_cross(b, name[0] == 'o' ? "one_in" : "two_in", x);
    return attention(b, name, qkv, -1, &(struct heads){2, 2, 2, true, true, 0.1f});
}

static inline int build_attention_over_rows(struct builder *b, const char *name, int x)
{
    int qkv = build_cross(b, name[0] == 'o' ? "one_in" : "two_in", x);
    return attention(b, name, qkv, -1, &(struct heads){2, 2, 2, false, false, 0.2f});
}

/* Views of a product with a gap; x's channels are added to the scores, one for each head and key. */
static inline int build_attention_views(struct builder *b, const char *name, int x)
{
    const struct linear_piece piece = {"weight", NULL, 14};
    int qkv = linear_pieces(b, name[0] == 'o' ? "p1" : "p2", x, 1, &piece, PP_ACT_NONE);
    return attention_of(b, name, qkv, qkv, qkv, x,
                        &(struct attention_view){.heads = {2, 1, 3, true, true, 0.2f},
                                                 .queries = T,
                                                 .keys = T,
                                                 .scale = 0.4f,
                                                 .q = {0, 14, 4, 0},
                                                 .k = {8, 14, 0, 0},
                                                 .v = {11, 14, 0, 0},
                                                 .mask = {0, 0, 1, C}});
}

/* Queries, keys and values are the same numbers, and the mask has a row for each query. */
static inline int build_attention_overlapping(struct builder *b, const char *name, int x)
{
    const struct linear_piece piece = {"weight", NULL, T};
    int mask = linear_pieces(b, name[0] == 'o' ? "p1" : "p2", x, 1, &piece, PP_ACT_NONE);
    const struct pp_heads_at at = {0, C, 3, 0};
    return attention_of(b, name, x, x, x, mask,
                        &(struct attention_view){.heads = {2, 2, 3, false, true, 0},
                                                 .queries = T,
                                                 .keys = T,
                                                 .q = at,
                                                 .k = at,
                                                 .v = at,
                                                 .mask = {0, T, 0, 1}});
}

/* Learnt queries, and a learnt number for each head and key: all samples share them. */
static inline int build_attention_of_params(struct builder *b, const char *name, int x)
{
    bool one = name[0] == 'o';
    const struct pp_shape text = {2, {T, C, 1}}, bias = {2, {T, 2, 1}};
    int q = source_param(b, one ? "q1" : "q2", PP_PARAM_PLAIN, text);
    int mask = source_param(b, one ? "b1" : "b2", PP_PARAM_PLAIN, bias);
    return attention_of(b, name, q, x, x, mask,
                        &(struct attention_view){.heads = {2, 1, 3, false, true, 0.1f},
                                                 .queries = T,
                                                 .keys = T,
                                                 .q = {0, C, 3, 0},
                                                 .k = {0, C, 0, 0},
                                                 .v = {3, C, 0, 0},
                                                 .mask = {0, 0, 1, 2}});
}

/* Over samples, at each position: heads as an exported program has them. */
static inline int build_attention_of_samples(struct builder *b, const char *name, int x)
{
    int kv = linear(b, name[0] == 'o' ? "p1" : "p2", x, 2, PP_ACT_NONE);
    return attention_of(b, name, x, kv, kv, -1,
                        &(struct attention_view){.heads = {C, 1, 1, false, false, 0.2f},
                                                 .queries = T,
                                                 .keys = T,
                                                 .q = {0, C, 1, 0},
                                                 .k = {0, 2, 0, 0},
                                                 .v = {1, 2, 0, 0}});
}

static inline int build_rms_norm(struct builder *b, const char *name, int x)
{
    return rms_norm(b, name, x, 1e-5f);
}

static inline int build_embedding(struct builder *b, const char *name, int x)
{
    return embedding(b, name, x, TOKENS, 3, "tokens", name[0] == 'o' ? "positions" : NULL);
}

/* Of six channels the first four are one head. */
static inline int build_rotary(struct builder *b, const char *name, int x)
{
    return rotary(b, name, x, 1, 4, 100, &(struct pp_rope_scaling){8, 1, 4, 32});
}

static inline int build_gated(struct builder *b, const char *name, int x)
{
    return gated(b, name, x);
}

static inline int build_gelu_tanh(struct builder *b, const char *name, int x)
{
    return activate(b, name, x, PP_ACT_GELU_TANH);
}

/* ---- programs: two letters of a case's name make its nodes' names differ */

static inline const char *node_name(const char *name, const char *one, const char *two)
{
    return name[0] == 'o' ? one : two;
}

/* x * sigmoid(t) + max(x, t) / (1.5 + |x|), t = tanh(x); and x once more as another input. */
static inline int build_expr(struct builder *b, const char *name, int x)
{
    int t = activate(b, node_name(name, "t1", "t2"), x, PP_ACT_TANH);
    struct expr_operand operands[] = {{.input = 0, .stride = {1}, .table_axis = -1},
                                      {.input = 1, .stride = {1}, .table_axis = -1},
                                      {.input = 2, .stride = {1}, .table_axis = -1}};
    struct expr_step steps[] = {{.code = PP_EXPR_LOAD},
                                {.code = PP_EXPR_LOAD, .a = 1},
                                {.code = PP_EXPR_LOAD, .a = 2},
                                {.code = PP_EXPR_SIGMOID, .a = 1},
                                {.code = PP_EXPR_MUL, .a = 2, .b = 3},
                                {.code = PP_EXPR_MAX, .a = 0, .b = 1},
                                {.code = PP_EXPR_ABS, .a = 0},
                                {.code = PP_EXPR_FILL, .number = 1.5f},
                                {.code = PP_EXPR_ADD, .a = 6, .b = 7},
                                {.code = PP_EXPR_DIV, .a = 5, .b = 8},
                                {.code = PP_EXPR_ADD, .a = 4, .b = 9}};
    const struct expr_piece piece = {.n_axes = 1,
                                     .size = {IN},
                                     .n_operands = 3,
                                     .operands = operands,
                                     .n_steps = COUNT(steps),
                                     .steps = steps,
                                     .result = {.stride = {1}, .table_axis = -1}};
    return expr(b, name, 3, (const int[]){x, t, x}, 1, &piece, NULL, *shape_of(b, x), 0);
}

/* The mean of each position's channels, then x less that mean: a sum and a broadcast. */
static inline int build_expr_mean(struct builder *b, const char *name, int x)
{
    struct expr_operand from[] = {{.stride = {C, 1}, .table_axis = -1},
                                  {.input = 1, .stride = {1, 0}, .table_axis = -1}};
    struct expr_step mean[] = {{.code = PP_EXPR_LOAD},
                               {.code = PP_EXPR_FILL, .number = 1.0f / C},
                               {.code = PP_EXPR_MUL, .a = 0, .b = 1}};
    struct expr_step less[] = {{.code = PP_EXPR_LOAD},
                               {.code = PP_EXPR_LOAD, .a = 1},
                               {.code = PP_EXPR_SUB, .a = 0, .b = 1},
                               {.code = PP_EXPR_MUL, .a = 2, .b = 2}};
    struct expr_piece piece = {.n_axes = 2,
                               .size = {T, C},
                               .n_operands = 1,
                               .operands = from,
                               .n_steps = COUNT(mean),
                               .steps = mean,
                               .result = {.stride = {1, 0}, .table_axis = -1}};
    int m = expr(b, node_name(name, "m1", "m2"), 1, &x, 1, &piece, NULL, pp_shape_flat(T), 0);
    piece.n_operands = 2;
    piece.steps = less;
    piece.n_steps = COUNT(less);
    piece.result = from[0];
    return expr(b, name, 2, (const int[]){x, m}, 1, &piece, NULL, *shape_of(b, x), 0);
}

/* Positions 3 and more first, then a gap, then channels turned round with a table that repeats one,
 * then channels 0 and 1 in another order of axes, squared. */
static inline int build_expr_move(struct builder *b, const char *name, int x)
{
    enum {
        FIRST = (T - 3) * C,
        SECOND = FIRST + 5,
        THIRD = SECOND + T * C
    };
    static const int32_t table[C] = {5, 3, 1, 0, 3, 2}, *const tables[] = {table};
    struct expr_operand a = {.offset = (int64_t)3 * C, .stride = {1}, .table_axis = -1};
    struct expr_operand c = {.stride = {C, 1}, .table_axis = 1},
                        two = {.stride = {1, C}, .table_axis = -1};
    struct expr_step load[] = {{.code = PP_EXPR_LOAD}, {.code = PP_EXPR_MUL, .a = 0, .b = 0}};
    const struct expr_piece pieces[] = {
        {.n_axes = 1,
         .size = {FIRST},
         .n_operands = 1,
         .operands = &a,
         .n_steps = 1,
         .steps = load,
         .result = {.stride = {1}, .table_axis = -1}},
        {.n_axes = 2,
         .size = {T, C},
         .n_operands = 1,
         .operands = &c,
         .n_steps = 1,
         .steps = load,
         .result = {.offset = SECOND, .stride = {C, 1}, .table_axis = -1}},
        {.n_axes = 3,
         .size = {2, T, 1},
         .n_operands = 1,
         .operands = &two,
         .n_steps = 2,
         .steps = load,
         .result = {.offset = THIRD, .stride = {T, 1, 7}, .table_axis = -1}}};
    int y = expr(b, name, 1, &x, 3, pieces, tables, pp_shape_flat(THIRD + 2 * T), 0.25f);
    const struct expr_piece half = {.n_axes = 1,
                                    .size = {(THIRD + 2 * T) / 2},
                                    .n_operands = 1,
                                    .operands =
                                        &(struct expr_operand){.stride = {2}, .table_axis = -1},
                                    .n_steps = 1,
                                    .steps = load,
                                    .result = {.stride = {1}, .table_axis = -1}};
    return expr(b, node_name(name, "h1", "h2"), 1, &y, 1, &half, NULL,
                pp_shape_flat((THIRD + 2 * T) / 2), 0);
}

/* x times a scale of each channel plus a square of x at another place: two views of one value that
 * overlap; the scale is exp of a parameter, times a constant. */
static inline int build_source(struct builder *b, const char *name, int x)
{
    static const float table[] = {1, -0.5f, 0.25f, 2, 0.125f, -1};
    int p = source_param(b, node_name(name, "p1", "p2"), PP_PARAM_PLAIN, pp_shape_flat(C));
    int k = source_constant(b, node_name(name, "k1", "k2"), table, pp_shape_flat(C));
    struct expr_operand both[] = {{.input = 0, .stride = {1}, .table_axis = -1},
                                  {.input = 1, .stride = {1}, .table_axis = -1}};
    struct expr_step scale[] = {{.code = PP_EXPR_LOAD},
                                {.code = PP_EXPR_LOAD, .a = 1},
                                {.code = PP_EXPR_EXP, .a = 0},
                                {.code = PP_EXPR_MUL, .a = 2, .b = 1}};
    struct expr_piece piece = {.n_axes = 1,
                               .size = {C},
                               .n_operands = 2,
                               .operands = both,
                               .n_steps = COUNT(scale),
                               .steps = scale,
                               .result = {.stride = {1}, .table_axis = -1}};
    int s = expr(b, node_name(name, "s1", "s2"), 2, (const int[]){p, k}, 1, &piece, NULL,
                 pp_shape_flat(C), 0);
    struct expr_operand three[] = {{.input = 0, .stride = {C, 1}, .table_axis = -1},
                                   {.input = 1, .stride = {0, 1}, .table_axis = -1},
                                   {.input = 0, .offset = C, .stride = {0, 1}, .table_axis = -1}};
    struct expr_step steps[] = {{.code = PP_EXPR_LOAD},
                                {.code = PP_EXPR_LOAD, .a = 1},
                                {.code = PP_EXPR_LOAD, .a = 2},
                                {.code = PP_EXPR_MUL, .a = 0, .b = 1},
                                {.code = PP_EXPR_MUL, .a = 2, .b = 2},
                                {.code = PP_EXPR_ADD, .a = 3, .b = 4}};
    piece = (struct expr_piece){.n_axes = 2,
                                .size = {T, C},
                                .n_operands = 3,
                                .operands = three,
                                .n_steps = COUNT(steps),
                                .steps = steps,
                                .result = {.stride = {C, 1}, .table_axis = -1}};
    return expr(b, name, 2, (const int[]){x, s}, 1, &piece, NULL, *shape_of(b, x), 0);
}

static inline int build_softmax(struct builder *b, const char *name, int x)
{
    return softmax(b, name, x, T, C, 1, name[0] == 'o');
}

static inline int build_softmax_across(struct builder *b, const char *name, int x)
{
    return softmax(b, name, x, H, W, C, name[0] == 'o');
}

int skeleton(struct builder *b, const char *name, int x); /* in no table */

enum kind {
    IMAGE,
    TEXT,   /* T x C */
    SYMBOLS /* T tokens */
};

static const struct op_case {
    const char *name;
    int (*build)(struct builder *b, const char *name, int x);
    enum kind kind;
    bool crosses; /* a statistic crosses samples */
    bool meet;    /* samples of a micro-batch meet in evaluation too */
    bool product; /* its weight gradient of several parts need not have the bits of as many calls */
} ops[] = {{.name = "batch norm", build_batch_norm, .crosses = true},
           {.name = "batch norm + add + relu", build_batch_norm_all, .crosses = true},
           {.name = "group norm", build_group_norm},
           {.name = "group norm + add + relu", build_group_norm_all},
           {.name = "layer norm", build_layer_norm},
           {.name = "RMS norm", build_rms_norm},
           {.name = "embedding", build_embedding, SYMBOLS},
           {.name = "rotary", build_rotary, TEXT},
           {.name = "gated", build_gated},
           {.name = "max pool", build_max_pool},
           {.name = "average pool", build_avg_pool},
           {.name = "average pool, same", build_avg_pool_same},
           {.name = "global average pool", build_global},
           {.name = "relu", build_relu},
           {.name = "gelu", build_gelu},
           {.name = "gelu_tanh", build_gelu_tanh},
           {.name = "add + relu", build_add},
           {.name = "dropout", build_dropout},
           {.name = "expr", build_expr},
           {.name = "expr, mean", build_expr_mean},
           {.name = "expr, moves", build_expr_move},
           {.name = "operands", build_source},
           {.name = "softmax", build_softmax},
           {.name = "softmax, inner axes", build_softmax_across},
           {.name = "skeleton", skeleton},
           {.name = "linear", build_pieces, TEXT, .product = true},
           {.name = "linear + bias", build_pieces_biased, TEXT, .product = true},
           {.name = "rows of a linear", build_rows, TEXT, .product = true},
           {.name = "attention", build_attention, TEXT, .product = true},
           {.name = "attention, two inputs", build_attention_two, TEXT, .product = true},
           {.name = "cross linear", build_cross, TEXT, .product = true},
           {.name = "cross attention", build_attention_cross, TEXT, .product = true},
           {.name = "attention of views", build_attention_views, TEXT, .product = true},
           {.name = "attention of one value", build_attention_overlapping, TEXT, .product = true},
           {.name = "attention of parameters", build_attention_of_params, TEXT},
           {.name = "attention of samples",
            build_attention_of_samples,
            TEXT,
            .crosses = true,
            .meet = true,
            .product = true},
           {.name = "attention over rows",
            build_attention_over_rows,
            TEXT,
            .crosses = true,
            .meet = true,
            .product = true}};

/* ---- a chunk of the model */

struct net {
    struct pp_model *m;
    struct pp_backend *be;
    struct pp_chunk *c;
    struct pp_arena arena;
    int64_t step;
    float *x[MB], *y[MB], *dy[MB], *dx[MB];
    int rows[MB];
};

static struct pp_model *build(const struct op_case *op)
{
    static const struct pp_shape shape[] = {{3, {H, W, C}}, {2, {T, C, 1}}, {1, {T, 1, 1}}};
    static const struct pp_config cfg;
    struct pp_model *m = pp_alloc(1, sizeof(*m));
    struct builder b = {.m = m, .cfg = &cfg};
    CHECK_OK(build_begin(&b, shape[op->kind]));
    layer(&b, "l");
    int v = op->kind == SYMBOLS ? 0 : layer_norm(&b, "first", 0, 1e-5f, true);
    int one = op->build(&b, "one", v), two = op->build(&b, "two", v);
    CHECK_OK(build_finish(&b, add(&b, "out", one, two, false)));
    return m;
}

static void set_up(struct net *t, const struct op_case *op, const char *backend)
{
    *t = (struct net){.m = build(op), .be = open_backend(backend), .step = 5};
    struct pp_chunk_spec spec = {.last = 0,
                                 .max_rows = ROWS,
                                 .state_slots = MB,
                                 .grad_slots = MB,
                                 .optimizer = PP_OPT_SGD,
                                 .backend = &t->be->choice};
    struct pp_arena dry = pp_arena_dry();
    CHECK_OK(pp_chunk_create(t->m, &spec, &dry, &t->c));
    CHECK_OK(pp_arena_create(dry.used, &t->arena));
    CHECK_OK(pp_chunk_create(t->m, &spec, &t->arena, &t->c));
    CHECK_INT_EQ(dry.used, t->arena.used);
    CHECK_OK(pp_chunk_init(t->c, t->be, 42));
    assert_true(t->c->n_floats <= FLOATS_MAX && t->m->outputs <= OUT_MAX);
    for (size_t i = 0; i < t->c->n_floats; i++) /* away from 1 and 0 */
        t->c->params[i] += 0.3f * sinf((float)i);
    CHECK_OK(pp_chunk_weights_changed(t->c, t->be));
    for (int mb = 0; mb < MB; mb++) {
        t->x[mb] = noise("x", ROWS * IN);
        t->dx[mb] = nans(ROWS * IN);
        t->y[mb] = nans((size_t)(ROWS * t->m->outputs));
        t->dy[mb] = nans((size_t)(ROWS * t->m->outputs));
    }
}

static inline void tear_down(struct net *t)
{
    for (int mb = 0; mb < MB; mb++) {
        pp_free(t->x[mb]);
        pp_free(t->y[mb]);
        pp_free(t->dx[mb]);
        pp_free(t->dy[mb]);
    }
    pp_chunk_destroy(&t->c);
    pp_arena_destroy(&t->arena);
    pp_backend_close(&t->be);
    pp_model_destroy(&t->m);
}

/* The step's batch, cut into micro-batches of `rows`. */
static inline void cut(struct net *t, int n, const int *rows)
{
    int in = t->m->inputs;
    PP_OWN_MEMORY float *all = noise("batch", (size_t)(ROWS * in));
    for (int i = 0; in == T && i < ROWS * in; i++)
        all[i] = floorf((all[i] + 1) / 2 * TOKENS);
    for (int mb = 0, at = 0; mb < n; at += rows[mb++]) {
        t->rows[mb] = rows[mb];
        memcpy(t->x[mb], all + at * in, (size_t)(rows[mb] * in) * sizeof(*all));
    }
}

static inline void forward(struct net *t, int mb)
{
    struct pp_pass pass = {.rows = t->rows[mb], .training = true, .seed = 3, .step = &t->step};
    for (int i = 0; i < mb; i++)
        pass.first_row += (uint32_t)t->rows[i];
    CHECK_OK(pp_chunk_forward(t->c, t->be, mb, &pass, t->x[mb], t->y[mb]));
}

/* dL/dy of row r of the step's batch, L = sum of it * y. */
static inline void set_dy(struct net *t, int mb)
{
    size_t width = (size_t)t->m->outputs, at = 0;
    PP_OWN_MEMORY float *all = noise("dy", ROWS * width);
    for (int i = 0; i < mb; i++)
        at += (size_t)t->rows[i] * width;
    memcpy(t->dy[mb], all + at, (size_t)t->rows[mb] * width * sizeof(*all));
}

static inline void backward(struct net *t, int mb)
{
    set_dy(t, mb);
    CHECK_OK(pp_chunk_backward_input(t->c, t->be, mb, mb, t->dy[mb], t->dx[mb]));
}

static inline void weights(struct net *t, int mb, int n)
{
    int slots[MB];
    for (int i = 0; i < n; i++)
        slots[i] = mb + i;
    CHECK_OK(pp_chunk_backward_weight(t->c, t->be, n, slots, slots, mb == 0));
}

#endif
