/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of a model: gradients, orders, cuts, running statistics, and what does not fit. */
#include "nn_ops.h"

#include <stdio.h>

/* conv2d has a program of its own: test_nn_image.c. */
TEST(every_op_has_a_case)
{
    static const struct {
        const char *name;
        const struct pp_node_op *op;
    } all[] = {
#define PP_OP(x) {#x, &op_##x},
#include "ppcli/nn/ops.def"
#undef PP_OP
    };
    bool has_case[COUNT(all)] = {false};
    for (int k = 0; k < COUNT(ops); k++) {
        PP_OWN(pp_model_destroy) struct pp_model *m = build(&ops[k]);
        for (int i = 0; i < m->n_nodes; i++)
            for (int o = 0; o < COUNT(all); o++)
                has_case[o] = has_case[o] || m->nodes[i].op == all[o].op;
    }
    for (int o = 0; o < COUNT(all); o++)
        if (!has_case[o] && all[o].op != &op_conv2d)
            fail_msg("tests/unit/nn_ops.h has no case of the op %s", all[o].name);
}

/* ---- the gradient */

static double loss_of(struct net *t)
{
    double sum = 0;
    forward(t, 0);
    set_dy(t, 0);
    for (int i = 0; i < t->rows[0] * t->m->outputs; i++)
        sum += (double)t->y[0][i] * t->dy[0][i];
    return sum;
}

static void check_slopes(struct net *t, const char *op, const char *what, float *values,
                         const float *grads, size_t n)
{
    const float h = 0x1p-11f;
    double most = 1; /* what a norm takes away again has no gradient */
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)grads[i]));
    for (size_t i = 0; i < n; i++) {
        float old = values[i];
        volatile float up = old + h, down = old - h;
        values[i] = up;
        double above = loss_of(t);
        values[i] = down;
        double below = loss_of(t);
        values[i] = old;
        /* A relu or a maximum may have its kink on one side; then the other has the slope. */
        double here = loss_of(t), right = (above - here) / ((double)up - old);
        double left = (here - below) / ((double)old - down), g = grads[i];
        double off = fmin(fabs((left + right) / 2 - g), fmin(fabs(left - g), fabs(right - g)));
        if (!(off < 5e-3 * most))
            fail_msg("%s: %s[%zu]: differences give %.6g and %.6g, the gradient is %.6g", op, what,
                     i, left, right, g);
    }
}

TEST(gradients_are_the_slopes_of_the_loss)
{
    const int rows = 3;
    for (int k = 0; k < COUNT(ops); k++) {
        struct net t;
        set_up(&t, &ops[k], "reference");
        cut(&t, 1, &rows);
        forward(&t, 0);
        backward(&t, 0);
        weights(&t, 0, 1);
        if (ops[k].kind != SYMBOLS)
            check_slopes(&t, ops[k].name, "input", t.x[0], t.dx[0], (size_t)(rows * IN));
        for (int p = 0; p < pp_chunk_param_count(t.c); p++) {
            size_t at, n;
            const struct pp_param *param = pp_chunk_param(t.c, p, &at, &n);
            if (param->kind != PP_PARAM_BUFFER)
                check_slopes(&t, ops[k].name, param->name, t.c->params + at, t.c->grads + at, n);
        }
        tear_down(&t);
    }
}

/* ---- cuts and orders */

struct result {
    float y[ROWS * OUT_MAX], dx[ROWS * IN], grads[FLOATS_MAX];
};

#define WITHOUT_GRADS offsetof(struct result, grads)

enum when {
    AT_ONCE, /* W right after its I */
    LATE,    /* all I before all W */
    TOGETHER /* the W of all micro-batches in one call */
};

static void run(const struct op_case *op, const char *backend, int n, const int *rows,
                enum when when, struct result *r)
{
    struct net t;
    memset(r, 0, sizeof(*r));
    set_up(&t, op, backend);
    cut(&t, n, rows);
    for (int i = 0; i < pp_chunk_param_count(t.c); i++) { /* NaN: nobody may read them */
        size_t at, floats;
        pp_chunk_param(t.c, i, &at, &floats);
        memset(t.c->grads + at, 0xff, floats * sizeof(float));
    }
    uint64_t before = pp_alloc_count();
    for (int mb = 0; mb < n; mb++)
        forward(&t, mb);
    CHECK_INT_EQ(pp_alloc_count(), before);
    for (int mb = 0; mb < n; mb++) {
        backward(&t, mb);
        if (when == AT_ONCE)
            weights(&t, mb, 1);
    }
    for (int mb = 0; when == LATE && mb < n; mb++)
        weights(&t, mb, 1);
    if (when == TOGETHER)
        weights(&t, 0, n);
    size_t at = 0, in = 0, width = (size_t)t.m->outputs, inputs = (size_t)t.m->inputs;
    for (int mb = 0; mb < n; mb++) {
        memcpy(r->y + at, t.y[mb], (size_t)rows[mb] * width * sizeof(float));
        memcpy(r->dx + in, t.dx[mb], (size_t)rows[mb] * inputs * sizeof(float));
        at += (size_t)rows[mb] * width;
        in += (size_t)rows[mb] * inputs;
    }
    memcpy(r->grads, t.c->grads, t.c->n_floats * sizeof(float));
    for (size_t i = 0; i < t.c->n_floats; i++)
        assert_true(isfinite(r->grads[i]));
    tear_down(&t);
}

static const char *const backends[] = {"cpu", "reference"};

TEST(the_order_of_backward_passes_changes_no_bit)
{
    const int rows[MB] = {4, 0, 1, 3};
    static struct result want, got;
    for (int k = 0; k < COUNT(ops); k++) {
        for (int b = 0; b < COUNT(backends); b++) {
            run(&ops[k], backends[b], MB, rows, AT_ONCE, &want);
            run(&ops[k], backends[b], MB, rows, LATE, &got);
            assert_memory_equal(&want, &got, sizeof(want));
            run(&ops[k], backends[b], MB, rows, TOGETHER, &got);
            assert_memory_equal(&want, &got, ops[k].product ? WITHOUT_GRADS : sizeof(want));
        }
    }
}

TEST(without_statistics_over_samples_no_cut_changes_a_bit)
{
    const int cuts[][MB] = {{ROWS}, {3, 5}, {1, 2, 0, 5}};
    static struct result want, got;
    for (int k = 0; k < COUNT(ops); k++) {
        size_t bytes = ops[k].product ? WITHOUT_GRADS : sizeof(want);
        run(&ops[k], "cpu", 1, cuts[0], AT_ONCE, &want);
        run(&ops[k], "cpu", 2, cuts[1], AT_ONCE, &got);
        CHECK_INT_EQ(memcmp(&want, &got, bytes) != 0, ops[k].crosses);
        run(&ops[k], "cpu", 4, cuts[2], LATE, &got);
        CHECK_INT_EQ(memcmp(&want, &got, bytes) != 0, ops[k].crosses);
    }
}

TEST(no_rows_leave_gradients_of_zero)
{
    const int none[MB] = {0};
    static struct result r;
    for (int k = 0; k < COUNT(ops); k++) {
        for (int b = 0; b < COUNT(backends); b++) {
            run(&ops[k], backends[b], 2, none, TOGETHER, &r);
            for (int i = 0; i < FLOATS_MAX; i++)
                assert_true(r.grads[i] == 0);
        }
    }
}

TEST(no_weight_gradient_is_beyond_its_bound)
{
    const int rows = 3;
    for (int k = 0; k < COUNT(ops); k++) {
        struct net t;
        set_up(&t, &ops[k], "cpu");
        cut(&t, 1, &rows);
        pp_chunk_measure(t.c, true);
        forward(&t, 0);
        backward(&t, 0);
        weights(&t, 0, 1);
        const float *grads = t.c->grads;
        for (int i = 0; i < t.m->n_nodes; i++) {
            const struct pp_node *n = &t.m->nodes[i];
            for (size_t g = 0; n->op->bound && g < n->n_floats; g++)
                assert_true(fabs((double)grads[g]) <=
                            n->op->bound(n, rows, t.c->range.x, t.c->range.dz));
            grads += n->n_floats;
        }
        tear_down(&t);
    }
}

/* ---- running statistics */

/* Parameter `suffix` of node "one", and its place. */
static float *param(struct net *t, const char *suffix, size_t *n)
{
    char name[PP_PARAM_NAME_MAX];
    snprintf(name, sizeof(name), "l.one.%s", suffix);
    for (int p = 0; p < pp_chunk_param_count(t->c); p++) {
        size_t at;
        if (!strcmp(pp_chunk_param(t->c, p, &at, n)->name, name))
            return t->c->params + at;
    }
    fail_msg("no %s", name);
    return NULL;
}

/* With two micro-batches the statistics are those of all their rows. */
TEST(running_statistics_are_those_of_the_step)
{
    const int rows[] = {5, 3};
    for (int b = 0; b < COUNT(backends); b++) {
        struct net t;
        size_t n;
        set_up(&t, &ops[0], backends[b]);
        cut(&t, 2, rows);
        float *mean = param(&t, "running_mean", &n), *var = param(&t, "running_var", &n);
        float *tracked = param(&t, "num_batches_tracked", &n);
        CHECK_INT_EQ(n, 1);
        for (int c = 0; c < C; c++) {
            mean[c] = 2;
            var[c] = 3;
        }
        *tracked = 7;
        /* what the first node, a layer norm, gives: y of a net without the rest would do, but its
         * parameters are known, so compute it here */
        size_t g;
        float *gamma = t.c->params, *beta = gamma + C;
        double sum[C] = {0}, square[C] = {0};
        for (int mb = 0; mb < 2; mb++) {
            for (int p = 0; p < rows[mb] * H * W; p++) {
                const float *x = t.x[mb] + p * C;
                double m = 0, v = 0;
                for (int c = 0; c < C; c++)
                    m += x[c] / (double)C;
                for (int c = 0; c < C; c++)
                    v += (x[c] - m) * (x[c] - m) / C;
                for (int c = 0; c < C; c++) {
                    double y = (x[c] - m) / sqrt(v + 1e-5) * gamma[c] + beta[c];
                    sum[c] += y;
                    square[c] += y * y;
                }
            }
        }
        struct pp_optimizer_args args = {.kind = PP_OPT_SGD, .grad_scale = 1, .step = 1};
        for (int skip = 1; skip >= 0; skip--) {
            for (int mb = 0; mb < 2; mb++) {
                forward(&t, mb);
                forward(&t, mb); /* computed again: counts once */
                backward(&t, mb);
                weights(&t, mb, 1);
            }
            args.skip = skip;
            CHECK_OK(pp_chunk_optimizer_step(t.c, t.be, &args));
            for (int c = 0; c < C && skip; c++)
                assert_true(mean[c] == 2 && var[c] == 3 && *tracked == 7);
        }
        g = (size_t)(ROWS * H * W);
        assert_true(*tracked == 8);
        for (int c = 0; c < C; c++) {
            double m = sum[c] / (double)g,
                   v = (square[c] / (double)g - m * m) * (double)g / (g - 1.0);
            assert_float_equal(mean[c], 0.9 * 2 + 0.1 * m, 1e-5);
            assert_float_equal(var[c], 0.9 * 3 + 0.1 * v, 1e-5);
        }
        tear_down(&t);
    }
}

TEST(evaluation_depends_on_each_row_alone)
{
    for (int k = 0; k < COUNT(ops); k++) {
        struct net t;
        set_up(&t, &ops[k], "cpu");
        cut(&t, 1, &(int){ROWS});
        size_t width = (size_t)t.m->outputs;
        CHECK_OK(pp_chunk_forward(t.c, t.be, 0, &(struct pp_pass){.rows = ROWS}, t.x[0], t.y[0]));
        CHECK_OK(pp_chunk_forward(t.c, t.be, 1, &(struct pp_pass){.rows = 1},
                                  t.x[0] + 3 * t.m->inputs, t.y[1]));
        bool same = !memcmp(t.y[0] + 3 * width, t.y[1], width * sizeof(float));
        CHECK_INT_EQ(same, !ops[k].meet);
        tear_down(&t);
    }
}

/* ---- what does not fit */

static int refused(int (*call)(struct builder *b, const char *name, int x), struct pp_shape input)
{
    PP_OWN(pp_model_destroy) struct pp_model *m = pp_alloc(1, sizeof(*m));
    static const struct pp_config cfg;
    struct builder b = {.m = m, .cfg = &cfg};
    CHECK_OK(build_begin(&b, input));
    layer(&b, "l");
    int rc = build_finish(&b, call(&b, "n", 0));
    return rc;
}

static int seven_groups(struct builder *b, const char *name, int x)
{
    return group_norm(b, name, x, -1, 7, 1e-5f, false);
}

static int unequal_sum(struct builder *b, const char *name, int x)
{
    return add(b, name, x, global_avg_pool(b, "p", x), false);
}

static int wide_window(struct builder *b, const char *name, int x)
{
    return max_pool(b, name, x, &(struct window){.kernel = 17, .stride = 1, .pad = 8});
}

TEST(what_does_not_fit_is_refused_in_a_line)
{
    struct pp_shape image = pp_shape_image(H, W, C);
    CHECK_FAILS(refused(seven_groups, image), PP_ECONFIG, "l.n: 7 groups do not divide 6 channels");
    CHECK_FAILS(refused(unequal_sum, image), PP_ECONFIG,
                "l.n: cannot add values of shapes 5 x 4 x 6 and 6");
    CHECK_FAILS(refused(wide_window, image), PP_ECONFIG, "at most 16 x 16, this is 17 x 17");
    CHECK_FAILS(refused(build_max_pool, pp_shape_flat(C)), PP_ECONFIG,
                "a max pool needs an image, but gets 6");
}

TEST(one_value_a_channel_has_no_variance)
{
    PP_OWN(pp_model_destroy) struct pp_model *m = pp_alloc(1, sizeof(*m));
    static const struct pp_config cfg;
    struct builder b = {.m = m, .cfg = &cfg};
    CHECK_OK(build_begin(&b, pp_shape_flat(C)));
    layer(&b, "l");
    CHECK_OK(build_finish(&b, build_batch_norm(&b, "n", 0)));
    CHECK_INT_EQ(m->nodes[0].norm.least_rows, 2);
}

TEST(a_device_without_a_kernel_refuses_the_layer)
{
    const struct pp_backend_ops device = {.name = "device", .own_memory = true};
    const struct pp_backend_choice choice = {.ops = &device};
    struct pp_chunk_spec spec = {.max_rows = 2, .backend = &choice};
    PP_OWN(pp_model_destroy) struct pp_model *m = build(&ops[0]);
    struct pp_arena dry = pp_arena_dry();
    struct pp_chunk *c = NULL;
    CHECK_FAILS(pp_chunk_create(m, &spec, &dry, &c), PP_ECONFIG,
                "layer l: backend device has no kernel for layer norm (row_norm_forward); use "
                "run.backend = cpu");
}
