/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of texts: what they mean. */
#include "dev_inputs.h"

TEST(a_row_norm_takes_mean_and_deviation_away)
{
    const float x[] = {1, 5, -3, -4}, gamma[] = {1, 2}, beta[] = {0, 10};
    float y[4], keep[4];
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("reference");
    CHECK_OK(pp_backend_row_norm_forward(
        be, &(struct pp_row_norm_forward){2, 2, true, 0, x, gamma, beta, keep, y}));
    const float want[] = {-1, 12, 1, 8}, want_keep[] = {3, 0.5f, -3.5f, 2};
    assert_memory_equal(y, want, sizeof(y));
    assert_memory_equal(keep, want_keep, sizeof(keep));
    CHECK_OK(pp_backend_row_norm_forward(
        be, &(struct pp_row_norm_forward){1, 2, false, 0, x + 2, gamma, NULL, keep, y}));
    assert_float_equal(y[0], -3 / sqrt(12.5), 1e-6);
    assert_float_equal(y[1], -8 / sqrt(12.5), 1e-6);
}

TEST(rotary_turns_a_pair_by_its_position)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("reference");
    const float x[] = {1, 0, 0, 2, 7};
    float y[5], back[5];
    struct pp_rotary a = {1, 1, 5, 3, 1, 4, 100, false, x, false, y, {.factor = 0}};
    CHECK_OK(pp_backend_rotary(be, &a));
    const double want[] = {cos(3), -2 * sin(0.3), sin(3), 2 * cos(0.3), 7};
    for (int i = 0; i < 5; i++)
        assert_float_equal(y[i], want[i], 1e-6);
    a.back = true;
    a.x = y;
    a.y = back;
    CHECK_OK(pp_backend_rotary(be, &a));
    for (int i = 0; i < 5; i++)
        assert_float_equal(back[i], x[i], 1e-6);
}

TEST(what_is_no_token_gives_nan)
{
    const char *names[] = {"reference", "cpu"};
    for (int i = 0; i < COUNT(names); i++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[i]);
        const float x[] = {1, 2, -1, NAN, 0}, W[] = {3, 4};
        float y[5], dW[2];
        CHECK_OK(pp_backend_embedding_forward(
            be, &(struct pp_embedding_forward){1, 5, 2, 1, 0, x, W, NULL, y}));
        assert_true(y[0] == 4 && isnan(y[1]) && isnan(y[2]) && isnan(y[3]) && y[4] == 3);
        CHECK_OK(pp_backend_embedding_backward_weight(
            be, &(struct pp_embedding_backward_weight){1, 5, 2, 1, x, x, 0, dW, NULL, 0}));
        assert_true(dW[0] == 0 && dW[1] == 1);
    }
}

/* Rows behind a sample's length are padding: they are not in the mean, and get no gradient. */
TEST(a_mean_leaves_out_padding)
{
    const struct pp_conv g = {4, 1, 2, 1, 1, 2, 4, 1, 4, 0, 0, 2};
    const uint32_t lengths[] = {9, 2, 4}, index[] = {1, 2};
    float x[] = {1, 10, 3, 20, NAN, 7, 9, NAN, 1, 1, 2, 1, 3, 1, 6, 5}, y[4], dx[16];
    const float dy[] = {4, 8, 4, 8}, mean[] = {2, 15, 3, 2};
    const float back[] = {2, 4, 2, 4, 0, 0, 0, 0, 1, 2, 1, 2, 1, 2, 1, 2};
    static const char *const names[] = {"reference", "cpu"};
    for (int i = 0; i < COUNT(names); i++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[i]);
        struct pp_avg_pool a = {&g, 2, false, x, false, y, lengths, index};
        CHECK_OK(pp_backend_avg_pool_forward(be, &a));
        assert_memory_equal(y, mean, sizeof(y));
        a.x = dy;
        a.y = dx;
        CHECK_OK(pp_backend_avg_pool_backward(be, &a));
        assert_memory_equal(dx, back, sizeof(dx));
    }
}
