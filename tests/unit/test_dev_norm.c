/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout, tables of kernels and running statistics. The gradients of the plain norms and pools are
 * checked in test_nn_ops.c. */
#include "dev_inputs.h"

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
