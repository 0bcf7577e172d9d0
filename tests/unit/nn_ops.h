/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every op in one small model: a layer norm, then the op twice on its value, then their sum. So the
 * value has two readers, and what the op gets and gives has parameters in front of it. The value is
 * an image or a text; what reads tokens has no norm in front of it.
 */
#ifndef PPCLI_TESTS_NN_OPS_H
#define PPCLI_TESTS_NN_OPS_H

#include <math.h>

#include "../../src/nn/nn.h"
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
           {.name = "skeleton", skeleton},
           {.name = "linear", build_pieces, TEXT, .product = true},
           {.name = "linear + bias", build_pieces_biased, TEXT, .product = true},
           {.name = "attention", build_attention, TEXT, .product = true},
           {.name = "attention, two inputs", build_attention_two, TEXT, .product = true},
           {.name = "cross linear", build_cross, TEXT, .product = true},
           {.name = "cross attention", build_attention_cross, TEXT, .product = true},
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
