/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of values whose mean is far from 0, against sums in double: nothing cancels. */
#include "dev_loops.h"

/* A kernel of one of the loops, or of the backend named plain. */
#define CALL(kernel, args)                                                                         \
    do {                                                                                           \
        if (chosen)                                                                                \
            CHECK_OK(chosen_##kernel(be, args));                                                   \
        else                                                                                       \
            CHECK_OK(pp_backend_##kernel(be, args));                                               \
    } while (0)

enum {
    LARGE_B = 24,
    LARGE_P = 5,
    LARGE_C = 6,
    LARGE_N = LARGE_B * LARGE_P * LARGE_C
};

/* Numbers first, first + step, ... up to n of them, in double. */
static void moments_of(const float *x, size_t first, size_t step, size_t n, double *mean,
                       double *var)
{
    *mean = *var = 0;
    for (size_t i = 0; i < n; i++)
        *mean += x[first + i * step] / (double)n;
    for (size_t i = 0; i < n; i++)
        *var += pow(x[first + i * step] - *mean, 2) / (double)n;
}

/* gamma 1, beta 0 */
static void check_normalised(const float *x, const float *y, size_t first, size_t step, size_t n,
                             const char *what)
{
    double mean, var;
    moments_of(x, first, step, n, &mean, &var);
    for (size_t i = 0; i < n; i++) {
        size_t at = first + i * step;
        double want = (x[at] - mean) / sqrt(var + 1e-5);
        if (!(fabs(y[at] - want) <= 4e-6 * (1 + fabs(want))))
            fail_msg("%s of mean %g: y[%zu] is %.9g, right is %.9g", what, mean, at, y[at], want);
    }
}

static float *large(double mean)
{
    float *x = noise("x", LARGE_N);
    for (size_t i = 0; i < LARGE_N; i++)
        x[i] = (float)(mean + 1.7 * x[i]);
    return x;
}

static void check_large_mean(struct pp_backend *be, double mean)
{
    const float one[LARGE_C * LARGE_P] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const float zero[LARGE_C * LARGE_P] = {0};
    float *x = large(mean), *y = nans(LARGE_N), keep[2 * LARGE_B * LARGE_C];
    const int C = LARGE_C, P = LARGE_P, row = C * P;
    CALL(batch_norm_forward, (&(struct pp_batch_norm_forward){LARGE_B, P, C, 1e-5f, x, one, zero,
                                                              NULL, false, NULL, NULL, keep, y}));
    for (int c = 0; c < C; c++)
        check_normalised(x, y, (size_t)c, LARGE_C, LARGE_N / LARGE_C, "batch norm");
    CALL(group_norm_forward, (&(struct pp_group_norm_forward){LARGE_B, P, C, 1, 1e-5f, x, one, zero,
                                                              NULL, false, keep, y}));
    for (int b = 0; b < LARGE_B; b++)
        check_normalised(x, y, (size_t)(b * row), 1, (size_t)row, "group norm");
    CALL(row_norm_forward, (&(struct pp_row_norm_forward){.B = LARGE_B,
                                                          .C = row,
                                                          .eps = 1e-5f,
                                                          .centred = true,
                                                          .x = x,
                                                          .gamma = one,
                                                          .beta = zero,
                                                          .keep = keep,
                                                          .y = y}));
    for (int b = 0; b < LARGE_B; b++)
        check_normalised(x, y, (size_t)(b * row), 1, (size_t)row, "layer norm");
    pp_free(x);
    pp_free(y);
}

TEST(norms_are_right_where_means_are_large)
{
    static const double means[] = {0, 100, 1e4, -1e5, 1e6, -1e6};
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("reference");
    for (int i = -1; i < 0 || cpu_kernels_runnable(i); i++) {
        chosen = i < 0 ? NULL : cpu_kernels_runnable(i);
        for (int k = 0; k < COUNT(means); k++)
            check_large_mean(be, means[k]);
    }
}

/* The running variance of a step of two replicas of `parts` micro-batches each, one replica with no
 * rows; relative error at most `allowed`. */
static void check_running_variance(struct pp_backend *be, double mean, int parts, int replicas,
                                   double allowed)
{
    const size_t C = LARGE_C;
    const int share = LARGE_B / replicas, rows = share / parts;
    const float one[LARGE_C] = {1, 1, 1, 1, 1, 1}, zero[LARGE_C] = {0};
    float *x = large(mean), *y = nans(LARGE_N), keep[2 * LARGE_C], sums[2 * LARGE_C] = {0};
    float all[4 * LARGE_C + 1] = {0}, grads[3][4 * LARGE_C + 1], between[LARGE_C] = {0};
    for (int r = 0; r < replicas; r++) {
        float *g = grads[r];
        for (int p = 0; p < parts; p++) {
            const float *from = x + (size_t)(r * share + p * rows) * LARGE_P * C;
            CHECK_OK(pp_backend_batch_norm_forward(
                be, &(struct pp_batch_norm_forward){rows, LARGE_P, LARGE_C, 1e-5f, from, one, zero,
                                                    NULL, false, NULL, NULL, keep, y}));
            CHECK_OK(pp_backend_batch_norm_backward_weight(
                be, &(struct pp_batch_norm_backward_weight){rows, LARGE_P, LARGE_C, 1e-5f, keep,
                                                            sums, p > 0, g, g + C, g + 2 * C,
                                                            g + 3 * C, g + 4 * C}));
        }
        for (size_t i = 0; i < 4 * C + 1; i++)
            all[i] += g[i];
    }
    for (int r = 0; r < replicas && replicas > 1; r++) {
        float own[LARGE_C + 1];
        memcpy(own, grads[r] + 2 * C, C * sizeof(*own));
        own[C] = grads[r][4 * C];
        CHECK_OK(pp_backend_batch_norm_spread(
            be, &(struct pp_batch_norm_spread){LARGE_C, all + 2 * C, all + 4 * C, own}));
        for (size_t c = 0; c < C; c++)
            between[c] += own[c];
    }
    for (size_t c = 0; c < C; c++)
        all[3 * C + c] += between[c];
    float running[LARGE_C] = {0}, vars[LARGE_C] = {0}, tracked = 0;
    const struct pp_batch_norm_commit commit = {
        LARGE_C, 1, &(bool){false}, all + 2 * C, all + 3 * C, all + 4 * C, running, vars, &tracked};
    CHECK_OK(pp_backend_batch_norm_commit(be, &commit));
    for (size_t c = 0; c < C; c++) {
        double m, v, n = (double)LARGE_B * LARGE_P;
        moments_of(x, c, C, (size_t)n, &m, &v);
        v *= n / (n - 1);
        if (!(fabs(running[c] - m) <= 3e-7 * fabs(m) + 1e-6) || !(fabs(vars[c] - v) <= allowed * v))
            fail_msg("%d replicas of %d micro-batches: mean %.9g, variance %.9g; right: %.9g, %.9g",
                     replicas, parts, running[c], vars[c], m, v);
    }
    pp_free(x);
    pp_free(y);
}

/* What is lost is what a mean loses when it is rounded to a float, and only where means of several
 * micro-batches are compared. */
TEST(running_variances_are_right_where_means_are_large)
{
    static const char *const names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[b]);
        check_running_variance(be, 1e6, 1, 1, 1e-6);
        for (int k = 0; k < 3; k++) {
            int parts = k == 0 ? 4 : k, replicas = k + 1;
            check_running_variance(be, 0, parts, replicas, 1e-6);
            check_running_variance(be, 1e4, parts, replicas, 2e-4);
            check_running_variance(be, -1e5, parts, replicas, 2e-3);
            check_running_variance(be, 1e6, parts, replicas, 2e-2);
        }
    }
}
