/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of texts: those of the CPU against the plain ones, and what these mean. */
#include "dev_loops.h"

static void run_row_norm(struct bench *b, int B, int C, int flags, float offset)
{
    bool centred = flags & 1, bias = flags & 2, add = flags & 4;
    size_t c = (size_t)C, rows = (size_t)B, n = rows * c;
    float *x = floats(b, "x", n), *gamma = floats(b, "gamma", c), *y = floats(b, "y", n);
    float *beta = bias ? floats(b, "beta", c) : NULL, *keep = floats(b, "keep", 2 * rows);
    float *dy = floats(b, "dy", n), *dx = floats(b, "dx", n);
    float *dgamma = floats(b, "dgamma", c), *dbeta = bias ? floats(b, "dbeta", c) : NULL;
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] * (float)(1 + i / c % 5) + offset;
    CHECK_OK(pp_backend_row_norm_forward(
        b->be, &(struct pp_row_norm_forward){B, C, centred, 1e-5f, x, gamma, beta, keep, y}));
    CHECK_OK(pp_backend_row_norm_backward_input(
        b->be, &(struct pp_row_norm_backward_input){B, C, centred, x, gamma, keep, dy, add, dx}));
    CHECK_OK(pp_backend_row_norm_backward_weight(
        b->be, &(struct pp_row_norm_backward_weight){B, C, x, keep, dy, add, dgamma, dbeta}));
    result(b, y, n * 4);
    result(b, keep, 2 * rows * 4);
    result(b, dx, n * 4);
    result(b, dgamma, c * 4);
    if (bias)
        result(b, dbeta, c * 4);
    done(b);
}

static void run_embedding(struct bench *b, int B, int T, int V, int C, int first, bool add)
{
    size_t c = (size_t)C, rows = (size_t)(B * T), v = (size_t)V, t = (size_t)T;
    float *x = floats(b, "tokens", rows), *W = floats(b, "W", v * c);
    float *P = add ? floats(b, "P", (t + (size_t)first) * c) : NULL, *y = floats(b, "y", rows * c);
    float *dy = floats(b, "dy", rows * c), *dW = floats(b, "dW", v * c);
    float *dP = add ? floats(b, "dP", t * c) : NULL;
    for (size_t i = 0; i < rows; i++) /* some are none */
        x[i] = i % 17 == 5 ? (float)V : i % 17 == 6 ? -1 : floorf((x[i] + 1) / 2 * (float)V);
    CHECK_OK(pp_backend_embedding_forward(
        b->be, &(struct pp_embedding_forward){B, T, V, C, first, x, W, P, y}));
    CHECK_OK(pp_backend_embedding_backward_weight(
        b->be, &(struct pp_embedding_backward_weight){B, T, V, C, x, dy, add, dW, dP}));
    result(b, y, rows * c * 4);
    result(b, dW, v * c * 4);
    if (dP)
        result(b, dP, t * c * 4);
    done(b);
}

static void run_rotary(struct bench *b, int T, int heads, int width, int rest, int flags)
{
    int B = 3, C = heads * width + rest;
    size_t n = (size_t)(B * T * C);
    float *x = floats(b, "x", n), *y = floats(b, "y", n);
    struct pp_rotary a = {B, T,         C, flags & 2 ? 1000 : 0, heads, width, 10000, flags & 1,
                          x, flags & 4, y};
    CHECK_OK(pp_backend_rotary(b->be, &a));
    result(b, y, n * 4);
    done(b);
}

static void run_gated(struct bench *b, int B, int F, bool add)
{
    size_t n = (size_t)(B * F);
    float *x = floats(b, "x", 2 * n), *y = floats(b, "y", n), *dy = floats(b, "dy", n);
    float *dx = floats(b, "dx", 2 * n);
    for (size_t i = 0; i < 2 * n; i++)
        x[i] *= 8;
    CHECK_OK(pp_backend_gated_forward(b->be, &(struct pp_gated){B, F, x, y}));
    CHECK_OK(pp_backend_gated_backward(b->be, &(struct pp_gated_backward){B, F, x, dy, add, dx}));
    result(b, y, n * 4);
    result(b, dx, 2 * n * 4);
    done(b);
}

static void run_all(struct bench *b)
{
    const int widths[] = {1, 3, 16, 17, 65, 768};
    for (int w = 0; w < COUNT(widths); w++) {
        for (int flags = 0; flags < 8; flags++) {
            run_row_norm(b, 7, widths[w], flags, flags == 3 ? 1000 : 0);
            run_row_norm(b, 0, widths[w], flags, 0);
        }
        for (int add = 0; add < 2; add++) {
            run_embedding(b, 4, 9, 5, widths[w], 0, add);
            run_embedding(b, 1, 3, 300, widths[w], 6, add);
            run_embedding(b, 0, 3, 2, widths[w], 0, add);
            run_gated(b, 5, widths[w], add);
            run_gated(b, 0, widths[w], add);
        }
    }
    for (int flags = 0; flags < 8; flags++) {
        run_rotary(b, 5, 2, 6, 3, flags);
        run_rotary(b, 70, 1, 64, 0, flags);
        run_rotary(b, 2, 3, 258, 1, flags); /* more pairs than a tile */
    }
}

TEST(loops_agree_with_plain_and_give_one_set_of_bits)
{
    check_loops(run_all);
}

/* ---- what they mean */

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
    struct pp_rotary a = {1, 1, 5, 3, 1, 4, 100, false, x, false, y};
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
            be, &(struct pp_embedding_backward_weight){1, 5, 2, 1, x, x, 0, dW, NULL}));
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
