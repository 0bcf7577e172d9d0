/* SPDX-License-Identifier: Apache-2.0 */
/* Norms, pools and element-wise kernels: the plain versions against finite differences, and what all
 * promise beyond the numbers. */
#include "dev_inputs.h"

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

/* A variance that a float cannot hold changes neither running statistic. */
TEST(running_statistics_leave_out_what_no_float_can_hold)
{
    const float mean[] = {6, 4}, squares[] = {3, INFINITY}, n[] = {2};
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("reference");
    float running_mean[] = {1, 1}, running_var[] = {1, 1}, tracked = 0;
    CHECK_OK(pp_backend_batch_norm_commit(
        be, &(struct pp_batch_norm_commit){2, 0.5f, &(bool){false}, mean, squares, n, running_mean,
                                           running_var, &tracked}));
    assert_true(running_mean[0] == 2 && running_var[0] == 2 && tracked == 1);
    assert_true(running_mean[1] == 1 && running_var[1] == 1);
}
