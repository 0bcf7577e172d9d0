/* SPDX-License-Identifier: Apache-2.0 */
/* The ops against known numbers, and how a backend is found. */
#include "dev_inputs.h"
#include "../../src/dev/backend.h"

#include "../../src/dev/cpu/kernels.h"

TEST(gather_scales_the_chosen_rows)
{
    const uint8_t data[] = {0, 51, 255, 1, 2, 3, 10, 20, 30};
    const uint32_t index[] = {2, 0};
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[b]);
        float x[6];
        struct pp_gather g = {2, 3, data, PP_U8, 3, index, {.scale = {1.0f / 255}}, x, 0};
        CHECK_OK(pp_backend_gather(be, &g));
        const float want[] = {10 / 255.f, 20 / 255.f, 30 / 255.f, 0, 0.2f, 1};
        for (int i = 0; i < 6; i++)
            assert_float_equal(x[i], want[i], 1e-7f);
        float again[6];
        g = (struct pp_gather){2, 3, want, PP_F32, 3, (uint32_t[]){1, 0}, {.scale = {2}}, again, 0};
        CHECK_OK(pp_backend_gather(be, &g));
        for (int i = 0; i < 6; i++)
            assert_true(again[i] == 2 * want[(i + 3) % 6]);
    }
}

/* Every instruction set gives the bits of (scale * v) + offset, each rounded. */
TEST(gather_normalises_each_channel)
{
    enum {
        F = 3 * 37
    };
    uint8_t bytes[4 * F];
    float floats[4 * F], x[4 * F];
    const uint32_t index[] = {3, 1, 1, 0};
    for (int i = 0; i < 4 * F; i++) {
        bytes[i] = (uint8_t)(i * 29);
        floats[i] = (float)sin(i);
    }
    struct pp_gather g = {
        4, F, bytes, PP_U8, F, index, {3, {0.017f, 0.0171f, 0.0175f}, {-2.1f, -2, -1.8f}}, x, 0};
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[b]);
        for (int k = 0; k < 8; k++) {
            g.element = k & 1 ? PP_F32 : PP_U8;
            g.data = k & 1 ? (void *)floats : bytes;
            g.index = k & 2 ? index : NULL;
            g.scaling.channels = k & 4 ? 1 : 3;
            CHECK_OK(pp_backend_gather(be, &g));
            for (int i = 0; i < 4 * F; i++) {
                int at = (int)(k & 2 ? index[i / F] : (uint32_t)i / F) * F + i % F;
                int c = i % F % g.scaling.channels;
                volatile float want = g.scaling.scale[c] * (k & 1 ? floats[at] : (float)bytes[at]);
                want = want + g.scaling.offset[c];
                if (x[i] != want)
                    fail_msg("%s, case %d, value %d: %.9g, not %.9g", names[b], k, i, x[i], want);
            }
        }
    }
}

/* Samples of a text overlap; a target is the token one further on. */
TEST(windows_are_gathered_from_tokens_of_every_width)
{
    const uint8_t u8[] = {9, 8, 7, 6, 5, 4, 3};
    const uint16_t u16[] = {9, 65535, 7, 6, 5, 4, 3};
    const uint32_t u32[] = {9, 16777215, 7, 70000, 5, 4, 3}, index[] = {3, 1, 0};
    const void *of[] = {u8, u16, u32};
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[b]);
        for (int e = PP_U8; e <= PP_U32; e++) {
            float x[9];
            int32_t targets[9];
            CHECK_OK(pp_backend_gather(
                be, &(struct pp_gather){
                        3, 3, of[e], (enum pp_element)e, 1, index, {.scale = {1}}, x, false}));
            CHECK_OK(pp_backend_targets(be, &(struct pp_targets){3, 3, of[e], (enum pp_element)e, 1,
                                                                 1, index, targets, 0}));
            for (int i = 0; i < 9; i++) {
                uint32_t at = index[i / 3] + (uint32_t)i % 3;
                uint32_t want[2] = {e == PP_U8    ? u8[at]
                                    : e == PP_U16 ? u16[at]
                                                  : u32[at],
                                    e == PP_U8    ? u8[at + 1]
                                    : e == PP_U16 ? u16[at + 1]
                                                  : u32[at + 1]};
                assert_true(x[i] == (float)want[0]);
                CHECK_INT_EQ(targets[i], want[1]);
            }
            /* in order and two further on: of a file whose samples begin at every second token */
            CHECK_OK(pp_backend_targets(
                be, &(struct pp_targets){3, 1, of[e], (enum pp_element)e, 2, 2, NULL, targets, 0}));
            CHECK_INT_EQ(targets[2], 3);
            CHECK_OK(pp_backend_targets(
                be, &(struct pp_targets){3, 1, of[e], (enum pp_element)e, 2, 2, NULL, targets, 4}));
            CHECK_INT_EQ(targets[2], -1);
            CHECK_INT_EQ(targets[0], e == PP_U8 ? u8[2] : e == PP_U16 ? u16[2] : (int32_t)u32[2]);
        }
    }
}

/* Two samples of two positions are four of one; what is ignored has no part in it. */
TEST(a_target_below_0_has_no_loss_and_no_gradient)
{
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[b]);
        PP_OWN_MEMORY float *logits = noise("logits", 4 * 5);
        float d[20], alone[10];
        const int32_t targets[] = {3, -1, -100, 0}, two[] = {3, 0};
        struct pp_loss_sums sums = {0}, fewer = {0};
        CHECK_OK(pp_backend_softmax_cross_entropy(
            be, &(struct pp_softmax_cross_entropy){2, 2, 5, logits, targets, 0.5f, 0.1f, &sums, d,
                                                   NULL, 0, 0, NULL}));
        memmove(logits + 5, logits + 15, 5 * sizeof(*logits));
        CHECK_OK(cross_entropy(be, 2, 5, logits, two, 0.5f, 0.1f, &fewer, alone));
        for (int i = 0; i < 20; i++)
            assert_true(d[i] == (i < 5 ? alone[i] : i < 15 ? 0 : alone[i - 10]));
        assert_true(sums.loss == fewer.loss && sums.correct == fewer.correct);
        CHECK_INT_EQ(sums.rows, 2);
        CHECK_INT_EQ(sums.targets, 2);
        const float scale = 0.5f; /* of the device's memory; and one of two samples was counted */
        struct pp_softmax_cross_entropy l = {1,     2, 5,      logits, two, 99,  0.1f,
                                             &sums, d, &scale, 1,      0,   NULL};
        CHECK_OK(pp_backend_softmax_cross_entropy(be, &l));
        assert_memory_equal(d, alone, sizeof(alone));
        CHECK_INT_EQ(sums.rows, 2);
    }
}

/* ---- the judge itself */

TEST(plain_ops_give_the_numbers_of_the_formulas)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("reference");
    /* x = (1, -2), two outputs: 0.5 + 1 - 2*3 = -4.5 and -1 + 2 + 4 = 5 */
    const float x[] = {1, -2}, W[] = {1, 3, 2, -2}, b[] = {0.5f, -1};
    float y[2], z[2];
    CHECK_OK(pp_backend_linear_forward(
        be, &(struct pp_linear_forward){1, 2, 2, x, W, NULL, b, PP_ACT_RELU, z, y, 0}));
    assert_float_equal(z[0], -4.5f, 0);
    assert_float_equal(z[1], 5, 0);
    assert_float_equal(y[0], 0, 0);
    assert_float_equal(y[1], 5, 0);
    /* gelu(z) = z Phi(z), gelu'(z) = Phi(z) + z phi(z); values from tables of the normal law */
    const float at[] = {-1, 0, 1}, one[] = {1}, none[] = {0};
    const double gelu[] = {-0.15865525393, 0, 0.84134474607};
    const double slope[] = {-0.08331547058, 0.5, 1.08331547058};
    for (int i = 0; i < 3; i++) {
        float dy = 1;
        CHECK_OK(
            pp_backend_linear_forward(be, &(struct pp_linear_forward){1, 1, 1, &at[i], one, NULL,
                                                                      none, PP_ACT_GELU, z, y, 0}));
        CHECK_OK(back_in_place(be, 1, PP_ACT_GELU, z, &dy));
        assert_float_equal(y[0], (float)gelu[i], 1e-7f);
        assert_float_equal(dy, (float)slope[i], 1e-7f);
        CHECK_OK(pp_backend_linear_forward(be, &(struct pp_linear_forward){1, 1, 1, &at[i], one,
                                                                           NULL, none, PP_ACT_TANH,
                                                                           NULL, y, 0}));
        assert_float_equal(y[0], (float)(at[i] * 0.76159415596), 1e-7f);
        dy = 1;
        CHECK_OK(back_in_place(be, 1, PP_ACT_TANH, y, &dy));
        assert_float_equal(dy, (float)(at[i] == 0 ? 1 : 0.41997434161), 1e-7f);
    }
    /* softmax of (ln 1, ln 2, ln 5) is (1/8, 2/8, 5/8) */
    const float logits[] = {0, (float)M_LN2, 1.6094379f};
    const int32_t label = 1;
    float d[3];
    struct pp_loss_sums sums = {0};
    CHECK_OK(cross_entropy(be, 1, 3, logits, &label, 2, 0, &sums, d));
    assert_float_equal(sums.loss, log(4), 1e-7f);
    CHECK_INT_EQ(sums.correct, 0);
    assert_float_equal(d[0], 0.25f, 1e-6f);
    assert_float_equal(d[1], -1.5f, 1e-6f);
    assert_float_equal(d[2], 1.25f, 1e-6f);
    /* a tenth of the target spread over the three classes: 1/30, 28/30, 1/30 */
    sums.loss = 0;
    CHECK_OK(cross_entropy(be, 1, 3, logits, &label, 2, 0.1f, &sums, d));
    assert_float_equal(sums.loss, (log(8) + 28 * log(4) + log(1.6)) / 30, 1e-7f);
    assert_float_equal(d[0], 0.25f - 2 / 30.f, 1e-6f);
    assert_float_equal(d[1], 0.5f - 56 / 30.f, 1e-6f);
    assert_float_equal(d[2], 1.25f - 2 / 30.f, 1e-6f);
}

TEST(plain_products_are_the_double_sums)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("reference");
    const int B = 3, I = 4, O = 2;
    PP_OWN_MEMORY float *x = noise("x", 12), *W = noise("w", 8), *dz = noise("dz", 6);
    float dx[12], dW[8], db[2];
    CHECK_OK(pp_backend_linear_backward_input(
        be, &(struct pp_linear_backward_input){B, I, O, dz, W, NULL, dx, 0}));
    struct pp_weight_part parts[] = {{.B = 2, .dz = dz, .x = x},
                                     {.B = 0, .dz = NULL, .x = NULL},
                                     {.B = 1, .dz = dz + 2 * O, .x = x + 2 * I}};
    CHECK_OK(pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){3, parts, I, O, 0, dW, db, 0}));
    parts[0].B = B;
    CHECK_OK(pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){1, parts, I, O, 1, dW, db, 0}));
    for (int r = 0; r < B; r++) {
        for (int i = 0; i < I; i++) {
            double want = (double)dz[r * 2] * W[i] + (double)dz[r * 2 + 1] * W[4 + i];
            assert_float_equal(dx[r * 4 + i], (float)want, 1e-7f);
        }
    }
    for (int o = 0; o < O; o++) {
        for (int i = 0; i < I; i++) {
            double want = 0;
            for (int r = 0; r < B; r++)
                want += 2.0 * dz[r * 2 + o] * x[r * 4 + i];
            assert_float_equal(dW[o * 4 + i], (float)want, 1e-6f);
        }
        assert_float_equal(db[o], 2 * (dz[o] + dz[2 + o] + dz[4 + o]), 1e-6f);
    }
}

/* ---- names */

TEST(auto_finds_a_backend_that_runs)
{
    const struct pp_backend_ops *ops;
    CHECK_STR_EQ(pp_backend_names()[0], "auto");
    CHECK_OK(pp_backend_resolve("auto", &ops));
    assert_non_null(ops->probe);
    struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_open(ops, 1, &be));
    assert_non_null(strstr(be->description, ops->name));
    pp_backend_close(&be);
    assert_null(be);
}

TEST(an_unusable_backend_says_why)
{
    const struct pp_backend_ops *ops = NULL;
    CHECK_FAILS(pp_backend_resolve("abacus", &ops), PP_ECONFIG, "'abacus'");
    if (pp_backend_resolve("cuda", &ops) < 0) {
        CHECK_INT_EQ(pp_error_get()->code, PP_ERESOURCE);
        assert_non_null(strstr(pp_error_get()->text, "cuda cannot run here: "));
    }
}

TEST(the_blas_says_what_it_is)
{
    char text[96] = "";
    pp_blas_describe(text, sizeof(text));
    assert_true(strlen(text) > 4);
    print_message("# %s, kernels: %s\n", text, cpu_kernels_runnable(0)->name);
}

TEST(memory_is_zeroed_and_aligned)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    for (size_t bytes = 0; bytes < 10000; bytes = bytes * 7 + 1) {
        void *p = NULL;
        CHECK_OK(pp_backend_alloc(be, bytes, &p));
        CHECK_INT_EQ((uintptr_t)p % PP_ALIGN, 0);
        for (size_t i = 0; i < bytes; i++)
            CHECK_INT_EQ(((char *)p)[i], 0);
        char in[4] = "abc", out[4] = "";
        if (bytes >= 4) {
            CHECK_OK(pp_backend_to_device(be, p, in, 4));
            CHECK_OK(pp_backend_synchronize(be));
            CHECK_OK(pp_backend_to_host(be, out, p, 4));
            CHECK_STR_EQ(out, "abc");
        }
        pp_backend_free(be, p, bytes);
    }
}
