/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What models of any graph need of the engine, with ops that add up values: nodes with many inputs
 * or none, values that have one row, parameters that are frozen, and initial values that are given.
 */
#include "../../src/nn/nn.h"
#include "../../src/nn/model.h"
#include "dev_inputs.h"
#include "ppcli/nn/chunk.h"
#include "ppcli/base/base.h"
#include "ppcli/conf/config.h"

enum {
    N = 3,
    ROWS = 4
};

/* ---- ops */

/* Which inputs of a sum have one row. */
static bool input_is_one_row(const struct pp_node *n, int j)
{
    return ((const bool *)n->setup)[j];
}

/* y = 1 x[0] + 2 x[1] + 3 x[2] ... */
static int sum_forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    int rows = n->one_row ? 1 : at->pass->rows;
    for (int i = 0; i < rows * N; i++) {
        at->y[i] = 0;
        for (int j = 0; j < n->n_x; j++)
            at->y[i] += (float)(j + 1) * at->x[j][input_is_one_row(n, j) ? i % N : i];
    }
    return 0;
}

static int sum_backward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    for (int j = 0; j < n->n_x; j++)
        for (int i = 0; i < at->pass->rows * N && at->dx[j]; i++)
            at->dx[j][i] = (float)(j + 1) * at->dy[i] + (at->add[j] ? at->dx[j][i] : 0);
    return 0;
}

static const struct pp_node_op op_sum = {
    .name = "sum", .forward = sum_forward, .backward_input = sum_backward};

/* A parameter as a value. */
static int table_forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    memcpy(at->y, at->params, N * sizeof(*at->y));
    return 0;
}

static int table_weights(const struct pp_node *n, struct pp_backend *be, int n_parts,
                         const struct pp_weight_part *parts, float beta, float *scratch,
                         float *grads)
{
    for (int i = 0; i < N; i++)
        grads[i] = beta > 0 ? grads[i] : 0;
    for (int k = 0; k < n_parts; k++)
        for (int i = 0; i < parts[k].B * N; i++)
            grads[i % N] += parts[k].dz[i];
    return 0;
}

static double table_bound(const struct pp_node *n, int rows, float x, float dz)
{
    return rows * (double)dz * 1.01;
}

static const struct pp_node_op op_table = {.name = "table",
                                           .bound = table_bound,
                                           .forward = table_forward,
                                           .backward_weight = table_weights};

static int freed;

static void free_setup(void *setup)
{
    freed++;
    pp_free(setup);
}

static int add_sum(struct builder *b, const char *name, int n, const int *x)
{
    struct pp_node *node = add_node_of(b, &op_sum, name, n, x, pp_shape_flat(N));
    bool *one = pp_alloc(PP_NODE_INPUTS, sizeof(*one)), all = true;
    for (int j = 0; j < n; j++) {
        one[j] = x[j] > 0 && b->m->nodes[x[j] - 1].one_row;
        all = all && one[j];
        node->setup_hash = 2 * node->setup_hash + one[j];
    }
    node->one_row = all;
    node->setup = one;
    node->free_setup = free_setup;
    return node->y;
}

static int add_table(struct builder *b, const char *name, enum pp_param_kind kind)
{
    struct pp_node *n = add_node_of(b, &op_table, name, 0, NULL, pp_shape_flat(N));
    n->one_row = true;
    n->reads = PP_READS_DY_IN_W;
    add_param(b, "p", kind, 1, (const int[]){N});
    return n->y;
}

/* ---- a model and its last layer */

struct net {
    struct pp_model *m;
    struct pp_backend *be;
    struct pp_chunk *c;
    struct pp_arena arena;
};

static void set_up(struct net *t, struct builder *b, int y, int first)
{
    CHECK_OK(build_finish(b, y));
    *t = (struct net){.m = b->m, .be = open_backend("reference")};
    struct pp_chunk_spec spec = {.first = first,
                                 .last = t->m->n_layers - 1,
                                 .max_rows = ROWS,
                                 .state_slots = 1,
                                 .grad_slots = 1,
                                 .optimizer = PP_OPT_MOMENTUM,
                                 .backend = &t->be->choice};
    struct pp_arena dry = pp_arena_dry();
    CHECK_OK(pp_chunk_create(t->m, &spec, &dry, &t->c));
    CHECK_OK(pp_arena_create(dry.used, &t->arena));
    CHECK_OK(pp_chunk_create(t->m, &spec, &t->arena, &t->c));
    CHECK_OK(pp_chunk_init(t->c, t->be, 42));
}

static void tear_down(struct net *t)
{
    pp_chunk_destroy(&t->c);
    pp_arena_destroy(&t->arena);
    pp_backend_close(&t->be);
    pp_model_destroy(&t->m);
}

static struct builder begin(const struct pp_config *cfg, int inputs)
{
    struct builder b = {.m = pp_alloc(1, sizeof(*b.m)), .cfg = cfg};
    CHECK_OK(build_begin(&b, pp_shape_flat(inputs)));
    layer(&b, "first");
    return b;
}

static void run(struct net *t, const float *x, float *y, float *dy, float *dx)
{
    const struct pp_pass pass = {.rows = ROWS, .training = true};
    uint64_t before = pp_alloc_count();
    pp_chunk_measure(t->c, true);
    CHECK_OK(pp_chunk_forward(t->c, t->be, 0, &pass, x, y));
    CHECK_OK(pp_chunk_backward_input(t->c, t->be, 0, 0, dy, dx));
    CHECK_OK(pp_chunk_backward_weight(t->c, t->be, 1, (const int[]){0}, (const int[]){0}, true));
    CHECK_INT_EQ(pp_alloc_count(), before);
}

/* ---- inputs */

/* y = x + 2 p + 3 x + 4 q + 5 x, with q = p + 2 p of one row: 9 x + 14 p. Each value gets the sum of
 * what its readers give, also where one node reads it several times. */
TEST(a_node_reads_a_value_several_times_and_constants_have_one_row)
{
    static const struct pp_config cfg;
    struct builder b = begin(&cfg, N);
    int x = linear(&b, "", 0, N, PP_ACT_NONE);
    layer(&b, "second");
    int p = add_table(&b, "t", PP_PARAM_PLAIN), q = add_sum(&b, "q", 2, (const int[]){p, p});
    int y = add_sum(&b, "y", 5, (const int[]){x, p, x, q, x});
    struct net t;
    set_up(&t, &b, y, 1);
    assert_true(t.m->layers[1].wants_dx && !t.m->layers[0].wants_dx);
    assert_true(b.m->nodes[p - 1].one_row && b.m->nodes[q - 1].one_row);
    float in[ROWS * N], out[ROWS * N], dy[ROWS * N], given[ROWS * N], dx[ROWS * N];
    for (int i = 0; i < ROWS * N; i++) {
        in[i] = (float)(i * i % 7 - 3);
        given[i] = dy[i] = (float)(i % 5 - 2);
        out[i] = dx[i] = NAN;
    }
    for (int i = 0; i < N; i++) {
        t.c->params[i] = (float)(2 - i);
        t.c->grads[i] = NAN;
    }
    run(&t, in, out, dy, dx);
    for (int i = 0; i < ROWS * N; i++) {
        assert_true(out[i] == 9 * in[i] + 14 * t.c->params[i % N]);
        assert_true(dx[i] == 9 * given[i]);
    }
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int r = 0; r < ROWS; r++)
            sum += 14 * given[r * N + i];
        assert_true(t.c->grads[i] == sum);
    }
    assert_true(pp_chunk_is_bounded(t.c, ROWS, 1e30));
    freed = 0;
    tear_down(&t);
    CHECK_INT_EQ(freed, 2);
}

TEST(a_node_has_up_to_30_inputs)
{
    static const struct pp_config cfg;
    struct builder b = begin(&cfg, N);
    int x[PP_NODE_INPUTS], y[PP_NODE_INPUTS];
    for (int j = 0; j < PP_NODE_INPUTS; j++)
        x[j] = activate(&b, "", 0, PP_ACT_RELU);
    y[0] = add_sum(&b, "one", PP_NODE_INPUTS, x);
    x[17] = y[0];
    int last = add_sum(&b, "y", PP_NODE_INPUTS, x);
    struct net t;
    set_up(&t, &b, last, 0);
    assert_false(t.m->nodes[last - 1].learns); /* nothing has parameters */
    float in[ROWS * N], out[ROWS * N];
    for (int i = 0; i < ROWS * N; i++)
        in[i] = (float)i;
    run(&t, in, out, out, NULL);
    for (int i = 0; i < ROWS * N; i++)
        assert_true(out[i] == (465 - 18 + 18 * 465) * in[i]);
    const struct pp_node *n = &t.m->nodes[last - 1];
    assert_true(pp_layer_same_work(t.m, 0, 0) && pp_model_same_function(t.m, t.m) && n->n_x == 30);
    assert_true((PP_READS_INPUT(29) & (PP_READS_Y_IN_I | PP_READS_DY_IN_W | PP_READS_INPUT(28))) ==
                0);
    tear_down(&t);
}

/* ---- frozen parameters */

TEST(frozen_parameters_keep_their_values_and_need_no_gradient)
{
    static const struct pp_config cfg;
    struct builder b = begin(&cfg, N);
    int x = linear(&b, "a", 0, N, PP_ACT_TANH);
    b.m->params[0].kind = b.m->params[1].kind = PP_PARAM_FROZEN;
    layer(&b, "second");
    int h = linear(&b, "b", x, N, PP_ACT_NONE); /* only its bias learns */
    b.m->params[2].kind = PP_PARAM_FROZEN;
    layer(&b, "third");
    int frozen = add_table(&b, "t", PP_PARAM_FROZEN);
    int y = add_sum(&b, "y", 2, (const int[]){h, frozen});
    struct net t;
    set_up(&t, &b, y, 0);
    const struct pp_node *n = t.m->nodes;
    assert_true(!n[0].trains && !n[0].learns && n[1].trains && !n[1].wants_dx[0]);
    assert_true(!n[2].learns && n[3].wants_dx[0] && !n[3].wants_dx[1]);
    assert_true(!(n[0].reads & (PP_READS_DY_IN_W | PP_READS_X_IN_W)));
    assert_true(pp_layer_cost(t.m, 0).flops_w == 0 && pp_layer_cost(t.m, 1).flops_w > 0);
    float in[ROWS * N], out[ROWS * N], dy[ROWS * N];
    for (int i = 0; i < ROWS * N; i++) {
        in[i] = (float)(i % 3);
        dy[i] = 1;
    }
    PP_OWN_MEMORY float *before = pp_alloc(t.c->n_floats, sizeof(*before));
    for (size_t i = 0; i < t.c->n_floats; i++)
        before[i] = t.c->params[i];
    run(&t, in, out, dy, NULL);
    for (int i = 0; i < 2; i++) { /* no W: the gradients are as the arena gave them */
        size_t at, floats;
        pp_chunk_param(t.c, i, &at, &floats);
        for (size_t k = at; k < at + floats; k++)
            assert_true(t.c->grads[k] == 0);
    }
    const struct pp_optimizer_args args = {.kind = PP_OPT_MOMENTUM,
                                           .lr = 0.5f,
                                           .momentum = 0.5f,
                                           .weight_decay = 0.25f,
                                           .grad_scale = 1,
                                           .step = 1};
    CHECK_OK(pp_chunk_optimizer_step(t.c, t.be, &args));
    CHECK_OK(pp_chunk_update_shard(t.c, t.be, &args, 0, t.c->n_floats, 0));
    for (int i = 0; i < t.m->n_params; i++) {
        size_t at, floats;
        const struct pp_param *p = pp_chunk_param(t.c, i, &at, &floats);
        CHECK_INT_EQ(pp_param_learns(p), i == 3);
        CHECK_INT_EQ(pp_param_moments(p, PP_OPT_ADAMW), i == 3 ? 2 : 0);
        for (size_t k = at; k < at + floats; k++)
            assert_true((t.c->params[k] == before[k]) == (i != 3));
    }
    tear_down(&t);
}

/* ---- given values */

struct numbers {
    struct pp_given given;
    float first;
    int calls;
};

static int read_numbers(const struct pp_given *g, size_t first, size_t n, float *out)
{
    struct numbers *from = (struct numbers *)(void *)g;
    from->calls++;
    for (size_t i = 0; i < n; i++)
        out[i] = from->first + (float)(first + i);
    return 0;
}

/* What is given has the order of files: of a convolution [out][in][kh][kw]. */
TEST(given_values_come_in_the_order_of_files)
{
    static const struct pp_config cfg;
    struct numbers conv = {{read_numbers}, 100, 0}, flat = {{read_numbers}, 0, 0};
    struct builder b = begin(&cfg, 1);
    b.m->values[0] = pp_shape_image(4, 4, 3);
    int x =
        conv2d(&b, "c", 0, 2, &(struct window){.kernel = 2, .stride = 1, .groups = 1}, true, false);
    b.m->params[0].init = b.m->params[1].init = PP_INIT_GIVEN;
    b.m->params[0].given = &conv.given;
    b.m->params[1].given = &flat.given;
    struct net t;
    set_up(&t, &b, x, 0);
    const float *w = t.c->params; /* [2][kh][kw][3] */
    for (int o = 0; o < 2; o++)
        for (int p = 0; p < 4; p++)
            for (int i = 0; i < 3; i++)
                assert_true(w[(o * 4 + p) * 3 + i] == (float)(100 + (o * 3 + i) * 4 + p));
    assert_true(w[24] == 0 && w[25] == 1);
    CHECK_INT_EQ(conv.calls, 2); /* row by row */
    tear_down(&t);
}

TEST(a_parameter_has_another_shape_in_files)
{
    struct pp_param p = {.n_dims = 1,
                         .dims = {12},
                         .reshaped = true,
                         .n_file_dims = 6,
                         .file_dims = {1, 3, 1, 2, 1, 2}};
    int64_t dims[PP_PARAM_DIMS];
    int n;
    CHECK_INT_EQ(pp_param_in_file(&p, &n, dims), 0);
    CHECK_INT_EQ(n, 6);
    CHECK_INT_EQ(dims[1], 3);
    CHECK_INT_EQ(dims[5], 2);
    p.n_file_dims = 0;
    CHECK_INT_EQ(pp_param_in_file(&p, &n, dims), 0);
    CHECK_INT_EQ(n, 0);
}
