/* SPDX-License-Identifier: Apache-2.0 */
/* Norms, pools and element-wise kernels: the plain versions against finite differences, those of
 * the CPU against the plain ones, and what all promise beyond the numbers. */
#include "dev_loops.h"

/* ---- gradients of the plain kernels: d sum(y * dy) / d x by differences */

struct norm_case {
    int B, P, C, G; /* G 0: batch norm */
    bool relu, residual;
};

static const struct norm_case norm_cases[] = {
    {3, 4, 5, 0, false, false}, {2, 9, 3, 0, true, true},   {1, 3, 2, 0, true, false},
    {3, 4, 6, 2, true, true},   {2, 1, 8, 1, false, false}, {2, 5, 4, 4, true, false},
};

static void norm_forward(struct pp_backend *be, const struct norm_case *t, const float *x,
                         const float *gamma, const float *beta, const float *residual, float *keep,
                         float *y)
{
    if (t->G > 0) {
        CHECK_OK(pp_backend_group_norm_forward(
            be, &(struct pp_group_norm_forward){t->B, t->P, t->C, t->G, 1e-5f, x, gamma, beta,
                                                residual, t->relu, keep, y}));
    } else {
        CHECK_OK(pp_backend_batch_norm_forward(
            be, &(struct pp_batch_norm_forward){t->B, t->P, t->C, 1e-5f, x, gamma, beta, residual,
                                                t->relu, NULL, NULL, keep, y}));
    }
}

static double dot(size_t n, const float *a, const float *b)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static void check_slope(double got, double up, double down, double step, const char *what, size_t i)
{
    double want = (up - down) / (2 * step);
    if (fabs(got - want) > 5e-3 * (1 + fabs(want)))
        fail_msg("%s[%zu] is %.6g, the difference quotient %.6g", what, i, got, want);
}

TEST(plain_norms_have_the_gradients_of_their_values)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("reference");
    for (int k = 0; k < COUNT(norm_cases); k++) {
        const struct norm_case *t = &norm_cases[k];
        size_t C = (size_t)t->C, n = (size_t)(t->B * t->P) * C;
        float *in[4] = {noise("x", n), noise("gamma", C), noise("beta", C), noise("residual", n)};
        float *dy = noise("dy", n), *dz = noise("dy", n), *y = nans(n), *keep = nans(2 * (C + n));
        float *dx = nans(n), *sums = nans(2 * C), *grads = nans(4 * C + 1), *d_residual = nans(n);
        const float *r = t->residual ? in[3] : NULL;
        norm_forward(be, t, in[0], in[1], in[2], r, keep, y);
        if (t->G > 0) {
            CHECK_OK(pp_backend_group_norm_backward_input(
                be, &(struct pp_group_norm_backward_input){t->B, t->P, t->C, t->G, in[0], in[1],
                                                           keep, t->relu ? y : NULL, dz, false,
                                                           false, dx, r ? d_residual : NULL}));
            CHECK_OK(pp_backend_group_norm_backward_weight(
                be, &(struct pp_group_norm_backward_weight){t->B, t->P, t->C, t->G, in[0], keep, dz,
                                                            0, grads, grads + C}));
        } else {
            CHECK_OK(pp_backend_batch_norm_backward_input(
                be, &(struct pp_batch_norm_backward_input){t->B, t->P, t->C, in[0], in[1], keep,
                                                           t->relu ? y : NULL, dz, sums, false,
                                                           false, dx, r ? d_residual : NULL}));
            CHECK_OK(pp_backend_batch_norm_backward_weight(
                be, &(struct pp_batch_norm_backward_weight){t->B, t->P, t->C, 1e-5f, keep, sums, 0,
                                                            grads, grads + C, grads + 2 * C,
                                                            grads + 3 * C, grads + 4 * C}));
        }
        const float *got[4] = {dx, grads, grads + C, d_residual};
        const char *names[4] = {"dx", "dgamma", "dbeta", "d_residual"};
        for (int v = 0; v < (r ? 4 : 3); v++) {
            for (size_t i = 0; i < (v % 3 ? C : n); i++) {
                double sides[2], step = 1e-3;
                float old = in[v][i];
                for (int s = 0; s < 2; s++) {
                    in[v][i] = old + (float)(s ? -step : step);
                    norm_forward(be, t, in[0], in[1], in[2], r, keep, y);
                    sides[s] = dot(n, y, dy);
                }
                in[v][i] = old;
                check_slope(got[v][i], sides[0], sides[1], step, names[v], i);
            }
        }
        float *all[] = {in[0], in[1], in[2], in[3], dy, dz, y, keep, dx, sums, grads, d_residual};
        for (int i = 0; i < COUNT(all); i++)
            pp_free(all[i]);
    }
}

static const struct pp_conv windows[] = {
    {6, 6, 3, 3, 3, 3, 3, 3, 2, 1, 1, 3}, {5, 7, 2, 2, 3, 2, 2, 2, 2, 0, 0, 2},
    {4, 4, 5, 1, 1, 5, 4, 4, 4, 0, 0, 5}, {5, 4, 1, 5, 4, 1, 3, 3, 1, 1, 1, 1},
    {7, 5, 2, 3, 2, 2, 2, 3, 3, 1, 2, 2},
};

/* kind 0: max, 1: average, 2: average of the pixels inside. */
static void pool_forward(struct pp_backend *be, int kind, const struct pp_conv *g, int B,
                         const float *x, uint8_t *taken, float *y)
{
    if (kind == 0)
        CHECK_OK(pp_backend_max_pool_forward(be, &(struct pp_max_pool_forward){g, B, x, taken, y}));
    else
        CHECK_OK(pp_backend_avg_pool_forward(
            be, &(struct pp_avg_pool){g, B, kind == 1, x, false, y, NULL, NULL}));
}

TEST(plain_pools_have_the_gradients_of_their_values)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("reference");
    for (int k = 0; k < COUNT(windows) * 3; k++) {
        const struct pp_conv *g = &windows[k / 3];
        int B = 2, kind = k % 3;
        size_t in = (size_t)(B * g->H * g->W * g->C), out = (size_t)(B * g->OH * g->OW * g->C);
        float *x = noise("x", in), *dy = noise("dy", out), *y = nans(out), *dx = nans(in);
        PP_OWN_MEMORY uint8_t *taken = pp_alloc(out, 1);
        pool_forward(be, kind, g, B, x, taken, y);
        if (kind == 0) {
            CHECK_OK(pp_backend_max_pool_backward(
                be, &(struct pp_max_pool_backward){g, B, taken, dy, false, dx}));
        } else {
            CHECK_OK(pp_backend_avg_pool_backward(
                be, &(struct pp_avg_pool){g, B, kind == 1, dy, false, dx, NULL, NULL}));
        }
        for (size_t i = 0; i < in; i++) {
            double sides[2], step = 1e-4;
            float old = x[i];
            for (int s = 0; s < 2; s++) {
                x[i] = old + (float)(s ? -step : step);
                pool_forward(be, kind, g, B, x, NULL, y);
                sides[s] = dot(out, y, dy);
            }
            x[i] = old;
            check_slope(dx[i], sides[0], sides[1], step, "dx", i);
        }
        pp_free(x);
        pp_free(dy);
        pp_free(y);
        pp_free(dx);
    }
}

/* ---- dropout */

TEST(dropout_drops_p_of_each_sample_and_others_of_the_next)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("reference");
    enum {
        B = 4,
        F = 20000
    };
    static float x[B * F], y[(B + 1) * F];
    const int64_t step = 7;
    for (int i = 0; i < B * F; i++)
        x[i] = 1;
    const float ps[] = {0, 0.1f, 0.5f};
    for (int k = 0; k < COUNT(ps); k++) {
        float p = ps[k];
        CHECK_OK(pp_backend_dropout(be, &(struct pp_dropout){B, F, p, 77, &step, 40, x, false, y}));
        CHECK_OK(pp_backend_dropout(
            be, &(struct pp_dropout){1, F, p, 77, &step, 42, x, false, y + B * F}));
        assert_memory_equal(y + 2 * F, y + B * F, F * sizeof(*y));
        for (int r = 0; r < B - 1; r++) {
            int kept = 0, both = 0, next = 0;
            for (int e = 0; e < F; e++) {
                const float *at = y + r * F + e;
                kept += *at != 0;
                both += *at != 0 && at[F] != 0;
                next += *at != 0 && at[1] != 0;
                assert_true(*at == 0 || fabsf(*at - 1 / (1 - p)) < 1e-6f);
            }
            double q = 1 - (double)p, far = 5 * sqrt(F) / 2;
            assert_true(fabs(kept - q * F) <= far);
            assert_true(fabs(both - q * q * F) <= far);
            assert_true(fabs(next - q * q * F) <= far);
        }
    }
}

/* ---- which backend has which */

static int some_sum(struct pp_backend *be, const struct pp_sum *a)
{
    return 0;
}

TEST(a_device_has_only_the_kernels_of_its_table)
{
    const struct pp_backend_ops device = {.name = "device", .own_memory = true, .sum = some_sum};
    const struct pp_backend_ops host = {.name = "host"};
    const struct pp_backend_choice there = {.ops = &device}, here = {.ops = &host}, none = {0};
    for (int k = 0; k < PP_KERNELS; k++) {
        bool is_sum = !strcmp(pp_kernel_name((enum pp_kernel)k), "sum");
        CHECK_INT_EQ(pp_backend_has_kernel(&there, (enum pp_kernel)k), is_sum);
        assert_true(pp_backend_has_kernel(&here, (enum pp_kernel)k));
        assert_true(pp_backend_has_kernel(&none, (enum pp_kernel)k));
    }
}

/* ---- all kernels over many shapes and flags */

static void run_norm(struct bench *b, const int shape[4], int flags, float offset)
{
    int B = shape[0], P = shape[1], C = shape[2], G = shape[3];
    bool relu = flags & 1, residual = flags & 2, add = flags & 4;
    size_t c = (size_t)C, n = (size_t)(B * P) * c, kept = 2 * (size_t)(G ? B * G : C);
    float *x = floats(b, "x", n), *r = residual ? floats(b, "residual", n) : NULL;
    float *gamma = floats(b, "gamma", c), *beta = floats(b, "beta", c);
    float *y = floats(b, "y", n), *keep = floats(b, "keep", kept), *dy = floats(b, "dy", n);
    float *dx = floats(b, "dx", n), *d_residual = r ? floats(b, "d", n) : NULL;
    float *sums = floats(b, "sums", 2 * c), *grads = floats(b, "grads", 4 * c + 1);
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] * (float)(1 + i % c) + offset;
    const float *y_or_null = relu ? y : NULL;
    if (G > 0) {
        CHECK_OK(pp_backend_group_norm_forward(
            b->be,
            &(struct pp_group_norm_forward){B, P, C, G, 1e-5f, x, gamma, beta, r, relu, keep, y}));
        CHECK_OK(pp_backend_group_norm_backward_input(
            b->be, &(struct pp_group_norm_backward_input){B, P, C, G, x, gamma, keep, y_or_null, dy,
                                                          add, add, dx, d_residual}));
        CHECK_OK(pp_backend_group_norm_backward_weight(
            b->be, &(struct pp_group_norm_backward_weight){B, P, C, G, x, keep, dy, add, grads,
                                                           grads + c}));
    } else {
        struct pp_batch_norm_forward f = {B, P,    C,    1e-5f, x,    gamma, beta,
                                          r, relu, NULL, NULL,  keep, y};
        CHECK_OK(pp_backend_batch_norm_forward(b->be, &f));
        CHECK_OK(pp_backend_batch_norm_backward_input(
            b->be, &(struct pp_batch_norm_backward_input){B, P, C, x, gamma, keep, y_or_null, dy,
                                                          sums, add, add, dx, d_residual}));
        CHECK_OK(pp_backend_batch_norm_backward_weight(
            b->be, &(struct pp_batch_norm_backward_weight){B, P, C, 1e-5f, keep, sums, add, grads,
                                                           grads + c, grads + 2 * c, grads + 3 * c,
                                                           grads + 4 * c}));
        result(b, y, n * 4);
        result(b, sums, 2 * c * 4);
        float *mean = floats(b, "mean", c), *var = floats(b, "var", c), tracked = 3;
        for (size_t i = 0; i < c; i++)
            var[i] += 1;
        f.running_mean = mean;
        f.running_var = var;
        CHECK_OK(pp_backend_batch_norm_forward(b->be, &f));
        grads[4 * c] = (float)(2 * B * P);
        const struct pp_batch_norm_commit commit = {
            C,    0.1f, &(bool){false}, grads + 2 * c, grads + 3 * c, grads + 4 * c,
            mean, var,  &tracked};
        CHECK_OK(pp_backend_batch_norm_commit(b->be, &commit));
        result(b, mean, c * 4);
        result(b, var, c * 4);
        float *of_last[] = {mean + c - 1, var + c - 1}, were[] = {*of_last[0], *of_last[1]};
        grads[4 * c - 1] = INFINITY; /* what no float can hold is left out */
        CHECK_OK(pp_backend_batch_norm_commit(b->be, &commit));
        assert_true(*of_last[0] == were[0] && *of_last[1] == were[1]);
    }
    result(b, y, n * 4);
    result(b, keep, B > 0 ? kept * 4 : 0);
    result(b, dy, n * 4);
    result(b, dx, n * 4);
    result(b, grads, 2 * c * 4);
    if (r)
        result(b, d_residual, n * 4);
    done(b);
}

static void run_pool(struct bench *b, const struct pp_conv *g, int B, bool add)
{
    size_t in = (size_t)(B * g->H * g->W * g->C), out = (size_t)(B * g->OH * g->OW * g->C);
    float *x = floats(b, "x", in), *y = floats(b, "y", out);
    float *dy = floats(b, "dy", out), *dx = floats(b, "dx", in);
    uint8_t *taken = (uint8_t *)floats(b, "taken", out);
    for (int kind = 0; kind < 3; kind++) {
        pool_forward(b->be, kind, g, B, x, taken, y);
        if (kind == 0) {
            CHECK_OK(pp_backend_max_pool_backward(
                b->be, &(struct pp_max_pool_backward){g, B, taken, dy, add, dx}));
        } else {
            CHECK_OK(pp_backend_avg_pool_backward(
                b->be, &(struct pp_avg_pool){g, B, kind == 1, dy, add, dx, NULL, NULL}));
        }
        result(b, y, out * 4);
        result(b, dx, in * 4);
    }
    result(b, taken, out);
    done(b);
}

static void run_elements(struct bench *b, size_t n, bool add)
{
    float *x = floats(b, "x", n), *y = floats(b, "y", n), *dx = floats(b, "dx", n);
    const int64_t step = 3;
    for (size_t i = 0; i < n; i++)
        x[i] *= 6;
    for (int a = 0; a < COUNT(activations); a++) {
        CHECK_OK(
            pp_backend_activate_forward(b->be, &(struct pp_activate){n, activations[a], x, y}));
        CHECK_OK(pp_backend_activate_backward(
            b->be, &(struct pp_activate_backward){n, activations[a], saved_of(activations[a], y, x),
                                                  x, add, dx}));
        result(b, y, n * 4);
        result(b, dx, n * 4);
    }
    CHECK_OK(pp_backend_sum(b->be, &(struct pp_sum){n, x, y, add, dx, 0}));
    result(b, dx, n * 4);
    CHECK_OK(pp_backend_dropout(b->be, &(struct pp_dropout){1, n, 0.3f, 5, &step, 9, x, add, dx}));
    result(b, dx, n * 4);
    CHECK_OK(pp_backend_activate_forward(b->be, &(struct pp_activate){n, PP_ACT_TANH, x, x}));
    CHECK_OK(pp_backend_activate_backward(
        b->be, &(struct pp_activate_backward){n, PP_ACT_TANH, x, y, false, y}));
    CHECK_OK(pp_backend_sum(b->be, &(struct pp_sum){n, x, x, false, x, 0}));
    result(b, x, n * 4);
    result(b, y, n * 4);
    done(b);
}

/* B, P, C, G. A group of 1030 channels is wider than a tile, 600 channels are more than one. */
static const int norm_shapes[][4] = {
    {2, 9, 3, 0},   {1, 2, 1, 0},    {5, 7, 17, 0},   {3, 16, 64, 0}, {2, 3, 600, 0},
    {0, 9, 3, 0},   {2, 9, 3, 1},    {1, 1, 1, 1},    {3, 5, 6, 3},   {2, 16, 64, 32},
    {2, 4, 600, 2}, {2, 1, 1030, 1}, {2, 3, 1200, 4}, {0, 9, 4, 2},   {3, 1, 33, 1}};

static void run_all(struct bench *b)
{
    for (int k = 0; k < COUNT(norm_shapes); k++)
        for (int flags = 0; flags < 8; flags++)
            run_norm(b, norm_shapes[k], flags, flags == 3 ? 1000 : 0);
    for (int k = 0; k < COUNT(windows); k++) {
        struct pp_conv wide = windows[k];
        wide.C = wide.O = wide.groups = 259;
        for (int flags = 0; flags < 6; flags++) {
            run_pool(b, &windows[k], flags / 2, flags % 2);
            run_pool(b, &wide, flags / 2, flags % 2);
        }
    }
    for (size_t n = 0; n < 1100; n = n * 3 + 1) {
        run_elements(b, n, false);
        run_elements(b, n, true);
    }
}

TEST(loops_agree_with_plain_and_give_one_set_of_bits)
{
    check_loops(run_all);
}
