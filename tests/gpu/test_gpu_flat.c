/* SPDX-License-Identifier: Apache-2.0 */
/* Ops on a device where checkops does not look: losses of large logits and NaN, many arrays at
 * once, norms of large means. */
#include "gpu.h"
#include "ppcli/conf/config.h"

#define TIGHT 1e-5 /* f32 against double, of the largest element */

/* ---- loss */

static void check_loss(struct pp_backend *be, struct pp_backend *plain, int B, int C, float *logits,
                       float smoothing)
{
    size_t n = (size_t)B * C;
    PP_OWN_MEMORY int32_t *labels = pp_alloc((size_t)B, sizeof(*labels));
    size_t bytes = (size_t)B * sizeof(*labels);
    for (int r = 0; r < B; r++)
        labels[r] = r % 5 == 4 ? -1 : r * 7 % C;
    PP_OWN_MEMORY float *want = nans(n);
    struct array x = values_on_device(be, logits, n, 0);
    struct pp_loss_sums before = {.loss = 1.5, .correct = 2, .rows = 3, .targets = 4},
                        sums = before, got;
    CHECK_OK(cross_entropy(plain, B, C, logits, labels, 0.25f, smoothing, &sums, want));
    void *there, *classes;
    CHECK_OK(pp_backend_alloc(be, sizeof(sums), &there));
    CHECK_OK(pp_backend_alloc(be, bytes, &classes));
    CHECK_OK(pp_backend_to_device(be, classes, labels, bytes));
    for (int pass = 0; pass < 2; pass++) { /* evaluation, then in place */
        CHECK_OK(pp_backend_to_device(be, there, &before, sizeof(before)));
        CHECK_OK(
            cross_entropy(be, B, C, x.at, classes, 0.25f, smoothing, there, pass ? x.at : NULL));
        CHECK_OK(pp_backend_to_host(be, &got, there, sizeof(got)));
        assert_true(isnan(sums.loss) ? isnan(got.loss)
                                     : fabs(got.loss - sums.loss) <= 1e-6 * fabs(sums.loss));
        CHECK_INT_EQ(got.correct, sums.correct);
        CHECK_INT_EQ(got.rows, 3 + B);
        CHECK_INT_EQ(got.targets, sums.targets);
    }
    check_near(be, &x, want, be->choice.precision == PP_PRECISION_BF16 ? 2e-2 : TIGHT, "dlogits");
    drop(be, &x);
    pp_backend_free(be, there, sizeof(sums));
    pp_backend_free(be, classes, bytes);
}

static void check_losses(enum pp_precision precision)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(precision, true);
    PP_OWN(pp_backend_close) struct pp_backend *plain = open_backend("reference");
    const int sizes[][2] = {{1, 1},    {1, 2},    {32, 10},  {7, 3},  {17, 256},
                            {256, 10}, {601, 10}, {3, 1025}, {9, 520}};
    for (int s = 0; s < COUNT(sizes); s++) {
        int B = sizes[s][0], C = sizes[s][1];
        PP_OWN_MEMORY float *logits = noise("logits", (size_t)B * C);
        for (int scale = 1; scale <= 100; scale *= 100) {
            for (int i = 0; i < B * C; i++)
                logits[i] *= (float)scale;
            check_loss(be, plain, B, C, logits, 0);
            check_loss(be, plain, B, C, logits, 0.1f);
        }
        logits[0] = NAN; /* the arg max of its row, as in a loop that starts there */
        logits[B * C - 1] = NAN;
        for (int c = 8; C == 520 && c < 300; c++)
            logits[C + c] = -INFINITY;
        check_loss(be, plain, B, C, logits, 0);
        check_loss(be, plain, B, C, logits, 0.1f);
    }
    check_loss(be, plain, 2, 4, (float[]){1, 3, 3, -INFINITY, 2, 2, 2, 2}, 0);
}

TEST(the_loss_is_near_the_plain_one_also_of_large_logits_and_nans)
{
    check_losses(PP_PRECISION_F32);
    check_losses(PP_PRECISION_BF16);
}

/* ---- flat buffers */

/* More arrays than a launch takes, of many sizes; the odd ones have a copy of their middle. */
TEST(passes_over_many_arrays_at_once_give_the_bits_of_one_call_each)
{
    const size_t ARRAYS = 150, MOST = 40000, ALL = 200000;
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(PP_PRECISION_BF16, true);
    const struct pp_optimizer_args args = {
        .kind = PP_OPT_MOMENTUM, .lr = 0.1f, .momentum = 0.5f, .grad_scale = 1, .step = 1};
    PP_OWN_MEMORY float *g = noise("g", ALL), *p = noise("p", ALL);
    PP_OWN_MEMORY float *once = pp_alloc(4 * ALL, sizeof(*once));
    PP_OWN_MEMORY float *each = pp_alloc(4 * ALL, sizeof(*each));
    for (int together = 0; together < 2; together++) {
        struct array deg = on_device(be, g, ALL, 1), dep = on_device(be, p, ALL, 1);
        struct array dem = on_device(be, g, ALL, 1), copies = on_device(be, p, ALL, 0),
                     sums = on_device(be, p, 2 * ARRAYS, 0);
        void *there;
        CHECK_OK(pp_backend_alloc(be, sizeof(args), &there));
        CHECK_OK(pp_backend_to_device(be, there, &args, sizeof(args)));
        CHECK_OK(pp_backend_collect(be, together ? PP_COLLECT_UPDATES : PP_COLLECT_NOTHING));
        for (size_t i = 0, at = 0; i < ARRAYS; at += i == 9 ? MOST : i * 7, i++)
            CHECK_OK(pp_backend_optimizer_step(
                be, &(struct pp_optimizer_step){i == 9 ? MOST : i * 7, there, true, deg.at + at,
                                                dem.at + at, NULL, dep.at + at}));
        for (size_t i = 0, at = 0; i < ARRAYS; at += i == 9 ? MOST : i * 7, i++)
            if (i % 2 && i > 2)
                CHECK_OK(pp_backend_pack_weights(be, (int)i, 3, dep.at + at + i % 5, NULL,
                                                 copies.at + at));
        CHECK_OK(pp_backend_collect(be, together ? PP_COLLECT_SQUARES : PP_COLLECT_NOTHING));
        for (size_t i = 0, at = 0; i < ARRAYS; at += i == 9 ? MOST : i * 7, i++)
            CHECK_OK(pp_backend_sum_squares(
                be, &(struct pp_sum_squares){i == 9 ? MOST : i * 7, dep.at + at,
                                             (double *)(void *)sums.at + i}));
        CHECK_OK(pp_backend_collect(be, PP_COLLECT_NOTHING));
        const struct array *all[] = {&dep, &dem, &copies, &sums};
        for (size_t k = 0; k < 4; k++)
            CHECK_OK(pp_backend_to_host(be, (together ? once : each) + k * ALL, all[k]->at,
                                        all[k]->n * sizeof(float)));
        pp_backend_free(be, there, sizeof(args));
        drop(be, &deg);
        drop(be, &dep);
        drop(be, &dem);
        drop(be, &copies);
        drop(be, &sums);
    }
    assert_memory_equal(once, each, 4 * ALL * sizeof(*once));
}

/* More sums than a launch takes, one of several chunks of rows, some to the same place. */
TEST(weight_gradients_of_many_norms_at_once_give_the_bits_of_one_call_each)
{
    const size_t ARRAYS = 70, MOST = 9000, FLOATS = 100, ALL = ARRAYS * FLOATS;
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(PP_PRECISION_BF16, true);
    PP_OWN_MEMORY float *values = noise("x", MOST * 6), *grads = noise("g", ALL);
    PP_OWN_MEMORY float *got = pp_alloc(2 * ALL, sizeof(*got));
    struct array x = values_on_device(be, values, MOST * 6, 0);
    struct array dz = values_on_device(be, values + 1, MOST * 6 - 1, 0);
    struct array keep = on_device(be, values, 2 * MOST, 0);
    for (size_t together = 0; together < 2; together++) {
        struct array to = on_device(be, grads, ALL, 0);
        CHECK_OK(pp_backend_collect(be, together ? PP_COLLECT_WEIGHTS : PP_COLLECT_NOTHING));
        for (size_t k = 0; k < ARRAYS; k++) {
            int i = (int)k;
            float *at = to.at + (k % 9 ? k : 0) * FLOATS, *second = at + 40;
            struct pp_row_norm_backward_weight row = {i == 5 ? (int)MOST : 3 * i,
                                                      i == 5 ? 6 : 1 + i % 40,
                                                      x.at,
                                                      keep.at,
                                                      dz.at,
                                                      (float)(i % 2),
                                                      at,
                                                      i % 3 ? second : NULL};
            struct pp_batch_norm_backward_weight batch = {
                i,       2,       1 + i % 3, 1e-5f,   keep.at, keep.at + 6, (float)(i % 2),
                at + 80, at + 83, at + 86,   at + 89, at + 92};
            CHECK_OK(pp_backend_row_norm_backward_weight(be, &row));
            CHECK_OK(pp_backend_batch_norm_backward_weight(be, &batch));
        }
        CHECK_OK(pp_backend_collect(be, PP_COLLECT_NOTHING));
        CHECK_OK(pp_backend_to_host(be, got + together * ALL, to.at, to.n * sizeof(float)));
        drop(be, &to);
    }
    assert_memory_equal(got, got + ALL, ALL * sizeof(*got));
    drop(be, &x);
    drop(be, &dz);
    drop(be, &keep);
}

/* ---- norms */

/* Means of 1e4 deviations; f32, as bfloat16 has no such values. */
TEST(norms_are_right_where_means_are_large)
{
    enum {
        B = 6,
        P = 7,
        C = 70,
        N = B * P * C
    };
    PP_OWN(pp_backend_close) struct pp_backend *gpu = open_gpu(PP_PRECISION_F32, true);
    PP_OWN(pp_backend_close) struct pp_backend *plain = open_backend("reference");
    PP_OWN_MEMORY float *x = noise("x", N), *want = nans(N);
    float gamma[P * C], keep[2 * B * C];
    for (int i = 0; i < N; i++)
        x[i] = 1e4f + 2 * x[i];
    for (int i = 0; i < P * C; i++)
        gamma[i] = 1;
    struct array dex = on_device(gpu, x, N, 0), dey = on_device(gpu, NULL, N, 0);
    struct array deg = on_device(gpu, gamma, P * C, 0), dek = on_device(gpu, NULL, LEN(keep), 0);
    const int sizes[][3] = {{B, P, C}, {300, 1, 5}, {300, 1, 1}};
    for (int k = 0; k < COUNT(sizes) + 2; k++) {
        const int *size = sizes[k < COUNT(sizes) ? k : 0];
        size_t n = (size_t)(size[0] * size[1] * size[2]);
        for (int device = 0; device < 2; device++) {
            struct pp_backend *be = device ? gpu : plain;
            const float *in = device ? dex.at : x, *scale = device ? deg.at : gamma;
            float *out = device ? dey.at : want, *kept = device ? dek.at : keep;
            struct pp_batch_norm_forward batch = {.B = size[0],
                                                  .P = size[1],
                                                  .C = size[2],
                                                  .eps = 1e-5f,
                                                  .x = in,
                                                  .gamma = scale,
                                                  .beta = scale,
                                                  .keep = kept,
                                                  .y = out};
            struct pp_group_norm_forward group = {.B = B,
                                                  .P = P,
                                                  .C = C,
                                                  .G = 5,
                                                  .eps = 1e-5f,
                                                  .x = in,
                                                  .gamma = scale,
                                                  .beta = scale,
                                                  .keep = kept,
                                                  .y = out};
            struct pp_row_norm_forward row = {.B = B,
                                              .C = P * C,
                                              .centred = true,
                                              .eps = 1e-5f,
                                              .x = in,
                                              .gamma = scale,
                                              .beta = scale,
                                              .keep = kept,
                                              .y = out};
            CHECK_OK(k < COUNT(sizes)    ? pp_backend_batch_norm_forward(be, &batch)
                     : k == COUNT(sizes) ? pp_backend_group_norm_forward(be, &group)
                                         : pp_backend_row_norm_forward(be, &row));
        }
        dey.n = n;
        check_near(gpu, &dey, want, TIGHT, "y");
    }
    drop(gpu, &dex);
    drop(gpu, &dey);
    drop(gpu, &deg);
    drop(gpu, &dek);
}

int main(void)
{
    int rc = no_gpu();
    return rc ? rc : tests_run(NULL, NULL);
}
