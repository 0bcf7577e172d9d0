/* SPDX-License-Identifier: Apache-2.0 */
/* What every backend promises beyond the numbers: aliasing, NaN, empty batches, and the same bits
 * for every address, instruction set and number of threads. */
#include "dev_inputs.h"

#include <pthread.h>

#include "../../src/dev/cpu/kernels.h"

TEST(loss_gradient_may_overwrite_the_logits)
{
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[b]);
        PP_OWN_MEMORY float *logits = noise("logits", 50);
        float d[50];
        const int32_t labels[5] = {0, 9, 3, 3, 7};
        struct pp_loss_sums apart = {0}, in_place = {0};
        CHECK_OK(cross_entropy(be, 5, 10, logits, labels, 1, 0, &apart, d));
        CHECK_OK(cross_entropy(be, 5, 10, logits, labels, 1, 0, &in_place, logits));
        assert_memory_equal(logits, d, sizeof(d));
        assert_memory_equal(&apart, &in_place, sizeof(apart));
    }
}

TEST(of_equal_logits_the_first_is_the_answer)
{
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[b]);
        const float logits[] = {1, 3, 3, 3, 2, 2};
        const int32_t labels[] = {1, 1};
        struct pp_loss_sums sums = {0};
        CHECK_OK(cross_entropy(be, 2, 3, logits, labels, 1, 0, &sums, NULL));
        CHECK_INT_EQ(sums.correct, 1);
    }
}

TEST(huge_logits_do_not_overflow)
{
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[b]);
        const float logits[] = {3e38f, -3e38f, 1000, -1000};
        const int32_t labels[] = {0, 0};
        float d[4];
        struct pp_loss_sums sums = {0};
        CHECK_OK(cross_entropy(be, 2, 2, logits, labels, 1, 0, &sums, d));
        assert_float_equal(sums.loss, 0, 0);
        CHECK_INT_EQ(sums.correct, 2);
        assert_float_equal(d[1], 0, 0);
    }
}

TEST(nan_is_not_hidden)
{
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[b]);
        for (int a = 0; a < COUNT(activations); a++) {
            const float x[] = {NAN}, W[] = {1}, bias[] = {0};
            float y = 0, z = 0, dy = NAN;
            CHECK_OK(pp_backend_linear_forward(
                be,
                &(struct pp_linear_forward){1, 1, 1, x, W, NULL, bias, activations[a], &z, &y, 0}));
            assert_true(isnan(y) && isnan(z));
            y = z = 0.5f;
            CHECK_OK(back_in_place(be, 1, activations[a], &y, &dy));
            assert_true(isnan(dy));
        }
        /* torch's threshold_backward: what relu closed stays closed */
        const float closed[] = {0, -0.0f};
        float into[] = {NAN, INFINITY};
        CHECK_OK(back_in_place(be, 2, PP_ACT_RELU, closed, into));
        assert_true(into[0] == 0 && into[1] == 0);
        for (int at = 0; at < 3; at++) {
            float logits[] = {1, 2, 3};
            logits[at] = NAN;
            const int32_t label = 0;
            struct pp_loss_sums sums = {0};
            CHECK_OK(cross_entropy(be, 1, 3, logits, &label, 1, 0, &sums, NULL));
            assert_true(isnan(sums.loss));
        }
    }
}

TEST(no_rows_make_a_zero_gradient)
{
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[b]);
        float W[6] = {0}, dW[6], db[2], some[6];
        memset(dW, 0xff, sizeof(dW));
        memset(db, 0xff, sizeof(db));
        CHECK_OK(
            pp_backend_linear_forward(be, &(struct pp_linear_forward){0, 3, 2, some, W, NULL, db,
                                                                      PP_ACT_GELU, some, some, 0}));
        CHECK_OK(pp_backend_linear_backward_input(
            be, &(struct pp_linear_backward_input){0, 3, 2, some, W, NULL, some, 0}));
        struct pp_weight_part part = {.B = 0, .dz = some, .x = some};
        CHECK_OK(pp_backend_linear_backward_weight(
            be, &(struct pp_linear_backward_weight){1, &part, 3, 2, 0, dW, db, 0}));
        for (int i = 0; i < 6; i++)
            assert_float_equal(dW[i], 0, 0);
        dW[3] = 5;
        CHECK_OK(pp_backend_linear_backward_weight(
            be, &(struct pp_linear_backward_weight){1, &part, 3, 2, 1, dW, db, 0}));
        assert_float_equal(dW[3], 5, 0);
        assert_float_equal(db[1], 0, 0);
    }
}

/* Layers lie in flat buffers without padding: their addresses change with the cut. */
TEST(bits_do_not_depend_on_addresses)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    for (int s = 0; s < COUNT(shapes); s++) {
        int B = shapes[s][0], O = shapes[s][1], I = shapes[s][2];
        size_t bo = (size_t)B * O, bi = (size_t)B * I, oi = (size_t)O * I;
        float *x = noise("x", bi), *W = noise("w", oi), *b = noise("b", O), *dy = noise("dy", bo);
        float *out[2];
        for (int shift = 0; shift < 2; shift++) {
            size_t o = (size_t)shift * 3;
            float *sx = pp_alloc(bi + o, 4), *sW = pp_alloc(oi + o, 4), *sb = pp_alloc(O + o, 4);
            PP_OWN_MEMORY float *sdy = pp_alloc(bo + o, 4);
            memcpy(sx + o, x, bi * 4);
            memcpy(sW + o, W, oi * 4);
            memcpy(sb + o, b, (size_t)O * 4);
            memcpy(sdy + o, dy, bo * 4);
            float *p = out[shift] = pp_alloc(bo + bi + oi + O + o, 4);
            p += o;
            CHECK_OK(pp_backend_linear_forward(
                be, &(struct pp_linear_forward){B, I, O, sx + o, sW + o, NULL, sb + o, PP_ACT_RELU,
                                                NULL, p, 0}));
            CHECK_OK(pp_backend_linear_backward_input(
                be, &(struct pp_linear_backward_input){B, I, O, sdy + o, sW + o, NULL, p + bo, 0}));
            struct pp_weight_part part = {.B = B, .dz = sdy + o, .x = sx + o};
            CHECK_OK(pp_backend_linear_backward_weight(
                be, &(struct pp_linear_backward_weight){1, &part, I, O, 0, p + bo + bi,
                                                        p + bo + bi + oi, 0}));
            pp_free(sx);
            pp_free(sW);
            pp_free(sb);
        }
        assert_memory_equal(out[0], out[1] + 3, (bo + bi + oi + O) * 4);
        pp_free(out[0]);
        pp_free(out[1]);
        pp_free(x);
        pp_free(W);
        pp_free(b);
        pp_free(dy);
    }
}

TEST(sum_of_squares_depends_on_the_numbers_only)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    PP_OWN_MEMORY float *g = noise("g", 1003), *shifted = pp_alloc(1004, 4);
    memcpy(shifted + 1, g, 1003 * 4);
    double a, b;
    CHECK_OK(pp_backend_sum_squares(be, &(struct pp_sum_squares){1003, g, &a}));
    CHECK_OK(pp_backend_sum_squares(be, &(struct pp_sum_squares){1003, shifted + 1, &b}));
    assert_memory_equal(&a, &b, sizeof(a));
    CHECK_OK(pp_backend_sum_squares(be, &(struct pp_sum_squares){0, g, &a}));
    assert_true(a == 0);
}

/* Whatever the place: in the vectors, in the rest, behind a larger one, in front of it. */
TEST(the_largest_is_finite_only_when_all_are)
{
    static const char *const backends[] = {"cpu", "reference"};
    enum {
        N = 37
    };
    for (int b = 0; b < COUNT(backends); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(backends[b]);
        PP_OWN_MEMORY float *x = noise("x", N);
        float most = 0;
        x[5] = -7.5f;
        CHECK_OK(pp_backend_find_largest(be, N, x, &most));
        assert_true(most == 7.5f);
        CHECK_OK(pp_backend_find_largest(be, 0, x, &most));
        assert_true(most == 7.5f);
        for (int i = 0; i < N; i++) {
            float kept = x[i];
            most = 0;
            x[i] = -INFINITY;
            CHECK_OK(pp_backend_find_largest(be, N, x, &most));
            assert_true(most == INFINITY);
            x[i] = NAN;
            CHECK_OK(pp_backend_find_largest(be, N, x, &most));
            assert_true(isnan(most));
            x[i] = kept;
            CHECK_OK(pp_backend_find_largest(be, N, x, &most));
            assert_true(isnan(most));
        }
    }
}

TEST(denormals_are_flushed_while_the_backend_is_open)
{
#if defined(__SSE__)
    volatile float small = 1e-38f;
    struct pp_backend *be = open_backend("cpu");
    volatile float open = small * 0.01f;
    pp_backend_close(&be);
    volatile float closed = small * 0.01f;
    assert_true(open == 0);
    assert_true(closed > 0);
#else
    skip();
#endif
}

struct job {
    float *x, *W, *y;
    int rounds, bad;
};

static void *multiply(void *arg)
{
    struct job *j = arg;
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    PP_OWN_MEMORY float *y = pp_alloc(64 * 128, 4);
    float b[128] = {0};
    for (int i = 0; i < j->rounds; i++) {
        pp_backend_linear_forward(be, &(struct pp_linear_forward){64, 256, 128, j->x, j->W, NULL, b,
                                                                  PP_ACT_NONE, NULL, y, 0});
        j->bad += memcmp(y, j->y, 64 * 128 * 4) != 0;
    }
    return NULL;
}

TEST(two_threads_at_once_give_the_bits_of_one)
{
    struct pp_backend *be = open_backend("cpu");
    if (!be->caps.thread_safe) {
        pp_backend_close(&be);
        skip();
    }
    struct job jobs[2];
    for (int t = 0; t < 2; t++) {
        jobs[t] = (struct job){noise(t ? "x1" : "x0", 64 * 256), noise(t ? "w1" : "w0", 128 * 256),
                               nans(64 * 128), 300, 0};
        float b[128] = {0};
        CHECK_OK(pp_backend_linear_forward(
            be, &(struct pp_linear_forward){64, 256, 128, jobs[t].x, jobs[t].W, NULL, b,
                                            PP_ACT_NONE, NULL, jobs[t].y, 0}));
    }
    pthread_t threads[2];
    for (int t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, multiply, &jobs[t]), 0);
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);
    for (int t = 0; t < 2; t++) {
        CHECK_INT_EQ(jobs[t].bad, 0);
        pp_free(jobs[t].x);
        pp_free(jobs[t].W);
        pp_free(jobs[t].y);
    }
    pp_backend_close(&be);
}

TEST(ops_of_cpu_allocate_nothing)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    float x[12] = {0}, W[8] = {0}, b[2] = {0}, y[6], dW[8], db[2];
    uint64_t before = pp_alloc_count();
    CHECK_OK(pp_backend_linear_forward(
        be, &(struct pp_linear_forward){3, 4, 2, x, W, NULL, b, PP_ACT_RELU, NULL, y, 0}));
    struct pp_weight_part part = {.B = 3, .dz = y, .x = x};
    CHECK_OK(pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){1, &part, 4, 2, 0, dW, db, 0}));
    CHECK_INT_EQ(pp_alloc_count(), before);
}

extern const struct pp_backend_ops backend_skeleton; /* in no table */

TEST(the_skeleton_computes_what_the_reference_does)
{
    PP_OWN(pp_backend_close) struct pp_backend *own = NULL, *judge = open_backend("reference");
    char why[64];
    CHECK_OK(backend_skeleton.probe(why, sizeof(why)));
    CHECK_OK(pp_backend_open(&backend_skeleton, 1, &own));
    PP_OWN_MEMORY float *a = noise("a", 999);
    PP_OWN_MEMORY float *b = noise("b", 999);
    a[7] = NAN;
    float y[2][999];
    for (int relu = 0; relu < 2; relu++) {
        struct pp_sum sum = {.n = 999, .a = a, .b = b, .relu = relu, .y = y[0]};
        CHECK_OK(pp_backend_sum(own, &sum));
        sum.y = y[1];
        CHECK_OK(pp_backend_sum(judge, &sum));
        for (int i = 0; i < 999; i++)
            assert_true(y[0][i] == y[1][i] || (isnan(y[0][i]) && isnan(y[1][i])));
    }
    for (int i = 0; i < 2; i++) {
        const struct pp_linear_forward product = {
            .B = 2, .I = 3, .O = 4, .x = b, .W = b + 6, .y = y[i]};
        CHECK_OK(pp_backend_linear_forward(i ? judge : own, &product));
    }
    assert_memory_equal(y[0], y[1], 8 * sizeof(float));
}
