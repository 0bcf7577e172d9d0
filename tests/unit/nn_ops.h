/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every op in one small model: a layer norm, then the op twice on its value, then their sum. So the
 * value has two readers, and what the op gets and gives has parameters in front of it.
 */
#ifndef PPCLI_TESTS_NN_OPS_H
#define PPCLI_TESTS_NN_OPS_H

#include <math.h>

#include "../../src/nn/nn.h"
#include "dev_inputs.h"
#include "ppcli/err.h"

enum {
    H = 5,
    W = 4,
    C = 6,
    IN = H * W * C,
    OUT_MAX = (H + 1) * (W + 1) * C,
    ROWS = 8,
    MB = 4,
    FLOATS_MAX = 200
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
    return layer_norm(b, name, x, 1e-5f);
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

static const struct op_case {
    const char *name;
    int (*build)(struct builder *b, const char *name, int x);
    bool crosses; /* a statistic crosses samples */
} ops[] = {{"batch norm", build_batch_norm, true},
           {"batch norm + add + relu", build_batch_norm_all, true},
           {"group norm", build_group_norm, false},
           {"group norm + add + relu", build_group_norm_all, false},
           {"layer norm", build_layer_norm, false},
           {"max pool", build_max_pool, false},
           {"average pool", build_avg_pool, false},
           {"average pool, same", build_avg_pool_same, false},
           {"global average pool", build_global, false},
           {"relu", build_relu, false},
           {"gelu", build_gelu, false},
           {"add + relu", build_add, false},
           {"dropout", build_dropout, false}};

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
    struct pp_model *m = pp_alloc(1, sizeof(*m));
    struct builder b = {.m = m};
    CHECK_OK(build_begin(&b, pp_shape_image(H, W, C)));
    layer(&b, "l");
    int v = layer_norm(&b, "first", 0, 1e-5f);
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
    assert_true(t->c->n_floats <= FLOATS_MAX && t->m->classes <= OUT_MAX);
    for (size_t i = 0; i < t->c->n_floats; i++) /* away from 1 and 0 */
        t->c->params[i] += 0.3f * sinf((float)i);
    for (int mb = 0; mb < MB; mb++) {
        t->x[mb] = noise("x", ROWS * IN);
        t->dx[mb] = nans(ROWS * IN);
        t->y[mb] = nans((size_t)(ROWS * t->m->classes));
        t->dy[mb] = nans((size_t)(ROWS * t->m->classes));
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
    float *all = noise("batch", ROWS * IN);
    for (int mb = 0, at = 0; mb < n; at += rows[mb++]) {
        t->rows[mb] = rows[mb];
        memcpy(t->x[mb], all + at * IN, (size_t)(rows[mb] * IN) * sizeof(*all));
    }
    pp_free(all);
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
    size_t width = (size_t)t->m->classes, at = 0;
    float *all = noise("dy", ROWS * width);
    for (int i = 0; i < mb; i++)
        at += (size_t)t->rows[i] * width;
    memcpy(t->dy[mb], all + at, (size_t)t->rows[mb] * width * sizeof(*all));
    pp_free(all);
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
