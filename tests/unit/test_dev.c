/* SPDX-License-Identifier: Apache-2.0 */
/* The ops: cpu against the plain defaults, the plain defaults against known numbers, and what every
 * backend promises (aliasing, beta, NaN, addresses, threads). */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "ppcli/backend.h"
#include "ppcli/mem.h"
#include "ppcli/rng.h"
#include "../../src/dev/compare.h"
#include "../../src/dev/cpu/kernels.h"

#define COUNT(a) (int)(sizeof(a) / sizeof((a)[0]))

static struct pp_backend *open_backend(const char *name)
{
    const struct pp_backend_ops *ops;
    struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_resolve(name, &ops));
    CHECK_OK(pp_backend_open(ops, 1, &be));
    return be;
}

/* n values in [-1, 1), others for each name. */
static float *noise(const char *name, size_t n)
{
    float *p = pp_alloc(n, sizeof(*p));
    assert_non_null(p);
    pp_rng_uniform(1, pp_rng_stream(name, n), 0, -1, 1, n, p);
    return p;
}

static float *nans(size_t n)
{
    float *p = pp_alloc(n, sizeof(*p));
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        p[i] = NAN;
    }
    return p;
}

static const int shapes[][3] = {{1, 1, 1},      {3, 5, 7},  {1, 10, 123},
                                {17, 10, 123},  {8, 33, 1}, {32, 127, 128},
                                {32, 128, 784}, {5, 1, 64}, {64, 124, 125}};
static const enum pp_activation activations[] = {PP_ACT_NONE, PP_ACT_RELU, PP_ACT_TANH,
                                                 PP_ACT_GELU};

static void cpu_agrees_with_plain_on_linear_layers(void **state)
{
    struct pp_backend *be = open_backend("compare");
    for (int s = 0; s < COUNT(shapes); s++) {
        int B = shapes[s][0], O = shapes[s][1], I = shapes[s][2];
        size_t bo = (size_t)B * O, bi = (size_t)B * I, oi = (size_t)O * I;
        float *x = noise("x", bi), *W = noise("w", oi), *b = noise("b", O), *dy = noise("dy", bo);
        for (int a = 0; a < COUNT(activations); a++) {
            float *y = nans(bo), *z = nans(bo), *dz = pp_alloc(bo, sizeof(*dz));
            memcpy(dz, dy, bo * sizeof(*dz));
            CHECK_OK(pp_backend_linear_forward(be, B, I, O, x, W, b, activations[a], NULL, y));
            CHECK_OK(pp_backend_linear_forward(be, B, I, O, x, W, b, activations[a], z, y));
            CHECK_OK(pp_backend_activation_backward(be, bo, activations[a], y, z, dz));
            pp_free(y);
            pp_free(z);
            pp_free(dz);
        }
        float *dx = nans(bi), *dW = nans(oi), *db = nans(O);
        CHECK_OK(pp_backend_linear_backward_input(be, B, I, O, dy, W, dx));
        CHECK_OK(pp_backend_linear_backward_weight(be, B, I, O, dy, x, 0, dW, db));
        CHECK_OK(pp_backend_linear_backward_weight(be, B, I, O, dy, x, 1, dW, db));
        pp_free(dx);
        pp_free(dW);
        pp_free(db);
        pp_free(x);
        pp_free(W);
        pp_free(b);
        pp_free(dy);
    }
    pp_backend_close(&be);
}

static void cpu_agrees_with_plain_on_the_loss(void **state)
{
    struct pp_backend *be = open_backend("compare");
    const int sizes[][2] = {{1, 1}, {1, 2}, {32, 10}, {7, 3}, {17, 256}};
    for (int s = 0; s < COUNT(sizes); s++) {
        int B = sizes[s][0], C = sizes[s][1];
        size_t n = (size_t)B * C;
        float *logits = noise("logits", n), *d = nans(n);
        uint8_t labels[64];
        for (int scale = 1; scale <= 100; scale *= 10) {
            for (size_t i = 0; i < n; i++) {
                logits[i] *= (float)scale;
            }
            for (int r = 0; r < B; r++) {
                labels[r] = (uint8_t)((r * 7 + scale) % C);
            }
            struct pp_loss_sums sums = {0};
            CHECK_OK(pp_backend_softmax_cross_entropy(be, B, C, logits, labels, 0.25f, &sums, d));
            CHECK_OK(
                pp_backend_softmax_cross_entropy(be, B, C, logits, labels, 0.25f, &sums, NULL));
            CHECK_INT_EQ(sums.rows, 2 * B);
            assert_true(isfinite(sums.loss));
        }
        pp_free(logits);
        pp_free(d);
    }
    pp_backend_close(&be);
}

static void cpu_agrees_with_plain_on_flat_buffers(void **state)
{
    struct pp_backend *be = open_backend("compare");
    const size_t sizes[] = {1, 2, 15, 16, 17, 1000, 4099};
    const enum pp_optimizer_kind kinds[] = {PP_OPT_SGD, PP_OPT_MOMENTUM, PP_OPT_ADAM, PP_OPT_ADAMW};
    for (int s = 0; s < COUNT(sizes); s++) {
        size_t n = sizes[s];
        float *a = noise("a", n), *g = noise("g", n), *p = noise("p", n);
        double sum;
        CHECK_OK(pp_backend_add(be, n, a, g));
        CHECK_OK(pp_backend_sum_squares(be, n, g, &sum));
        for (int k = 0; k < COUNT(kinds); k++) {
            struct pp_optimizer_args args = {.kind = kinds[k],
                                             .lr = 0.01f,
                                             .momentum = 0.9f,
                                             .beta1 = 0.9f,
                                             .beta2 = 0.999f,
                                             .eps = 1e-8f,
                                             .weight_decay = 0.1f,
                                             .grad_scale = 0.7f};
            float *m = pp_alloc(n, sizeof(*m)), *v = pp_alloc(n, sizeof(*v));
            for (args.step = 1; args.step <= 5; args.step++) {
                CHECK_OK(pp_backend_optimizer_step(be, n, &args, g, k > 0 ? m : NULL,
                                                   k > 1 ? v : NULL, p));
            }
            pp_free(m);
            pp_free(v);
        }
        pp_free(a);
        pp_free(g);
        pp_free(p);
    }
    pp_backend_close(&be);
}

static void gather_scales_the_chosen_rows(void **state)
{
    const uint8_t data[] = {0, 51, 255, 1, 2, 3, 10, 20, 30};
    const uint32_t index[] = {2, 0};
    const char *names[] = {"reference", "cpu", "compare"};
    for (int b = 0; b < COUNT(names); b++) {
        struct pp_backend *be = open_backend(names[b]);
        float x[6];
        CHECK_OK(pp_backend_gather_u8(be, 2, 3, data, index, 1.0f / 255, x));
        const float want[] = {10 / 255.f, 20 / 255.f, 30 / 255.f, 0, 0.2f, 1};
        for (int i = 0; i < 6; i++) {
            assert_float_equal(x[i], want[i], 1e-7f);
        }
        pp_backend_close(&be);
    }
}

/* --- the judge itself ------------------------------------------------------------------------- */

static void plain_ops_give_the_numbers_of_the_formulas(void **state)
{
    struct pp_backend *be = open_backend("reference");
    /* x = (1, -2), two outputs: 0.5 + 1 - 2*3 = -4.5 and -1 + 2 + 4 = 5 */
    const float x[] = {1, -2}, W[] = {1, 3, 2, -2}, b[] = {0.5f, -1};
    float y[2], z[2];
    CHECK_OK(pp_backend_linear_forward(be, 1, 2, 2, x, W, b, PP_ACT_RELU, z, y));
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
        CHECK_OK(pp_backend_linear_forward(be, 1, 1, 1, &at[i], one, none, PP_ACT_GELU, z, y));
        CHECK_OK(pp_backend_activation_backward(be, 1, PP_ACT_GELU, NULL, z, &dy));
        assert_float_equal(y[0], (float)gelu[i], 1e-7f);
        assert_float_equal(dy, (float)slope[i], 1e-7f);
        CHECK_OK(pp_backend_linear_forward(be, 1, 1, 1, &at[i], one, none, PP_ACT_TANH, NULL, y));
        assert_float_equal(y[0], (float)(at[i] * 0.76159415596), 1e-7f);
        dy = 1;
        CHECK_OK(pp_backend_activation_backward(be, 1, PP_ACT_TANH, y, NULL, &dy));
        assert_float_equal(dy, (float)(at[i] == 0 ? 1 : 0.41997434161), 1e-7f);
    }
    /* softmax of (ln 1, ln 2, ln 5) is (1/8, 2/8, 5/8) */
    const float logits[] = {0, (float)M_LN2, 1.6094379f};
    const uint8_t label = 1;
    float d[3];
    struct pp_loss_sums sums = {0};
    CHECK_OK(pp_backend_softmax_cross_entropy(be, 1, 3, logits, &label, 2, &sums, d));
    assert_float_equal(sums.loss, log(4), 1e-7f);
    CHECK_INT_EQ(sums.correct, 0);
    assert_float_equal(d[0], 0.25f, 1e-6f);
    assert_float_equal(d[1], -1.5f, 1e-6f);
    assert_float_equal(d[2], 1.25f, 1e-6f);
    pp_backend_close(&be);
}

static void plain_products_are_the_double_sums(void **state)
{
    struct pp_backend *be = open_backend("reference");
    const int B = 3, I = 4, O = 2;
    float *x = noise("x", 12), *W = noise("w", 8), *dz = noise("dz", 6);
    float dx[12], dW[8], db[2];
    CHECK_OK(pp_backend_linear_backward_input(be, B, I, O, dz, W, dx));
    CHECK_OK(pp_backend_linear_backward_weight(be, B, I, O, dz, x, 0, dW, db));
    CHECK_OK(pp_backend_linear_backward_weight(be, B, I, O, dz, x, 1, dW, db));
    for (int r = 0; r < B; r++) {
        for (int i = 0; i < I; i++) {
            double want = (double)dz[r * 2] * W[i] + (double)dz[r * 2 + 1] * W[4 + i];
            assert_float_equal(dx[r * 4 + i], (float)want, 1e-7f);
        }
    }
    for (int o = 0; o < O; o++) {
        for (int i = 0; i < I; i++) {
            double want = 0;
            for (int r = 0; r < B; r++) {
                want += 2.0 * dz[r * 2 + o] * x[r * 4 + i];
            }
            assert_float_equal(dW[o * 4 + i], (float)want, 1e-6f);
        }
        assert_float_equal(db[o], 2 * (dz[o] + dz[2 + o] + dz[4 + o]), 1e-6f);
    }
    pp_free(x);
    pp_free(W);
    pp_free(dz);
    pp_backend_close(&be);
}

/* A backend with one wrong element in dW, for the next test. */
static int wrong_weight_gradient(struct pp_backend *be, int B, int I, int O, const float *dz,
                                 const float *x, float beta, float *dW, float *db)
{
    int rc = 0;
    for (int o = 0; o < O; o++) {
        db[o] = beta * db[o];
        for (int r = 0; r < B; r++) {
            db[o] += dz[r * O + o];
        }
        for (int i = 0; i < I; i++) {
            dW[o * I + i] = beta * dW[o * I + i];
            for (int r = 0; r < B; r++) {
                dW[o * I + i] += dz[r * O + o] * x[r * I + i];
            }
        }
    }
    dW[1 * I + 2] *= 1.001f;
    return rc;
}

static int open_wrong(struct pp_backend *be, int threads)
{
    static const struct pp_backend_ops wrong = {.name = "wrong",
                                                .linear_backward_weight = wrong_weight_gradient};
    return compare_open_with(be, &wrong, threads);
}

static void compare_names_the_op_and_the_element_that_differ(void **state)
{
    const struct pp_backend_ops *ops;
    CHECK_OK(pp_backend_resolve("compare", &ops));
    struct pp_backend_ops broken = *ops;
    broken.open = open_wrong;
    struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_open(&broken, 1, &be));
    float *x = noise("x", 4 * 7), *dz = noise("dz", 4 * 5), dW[35] = {0}, db[5] = {0};
    CHECK_FAILS(pp_backend_linear_backward_weight(be, 4, 7, 5, dz, x, 1, dW, db), PP_ECHECK,
                "compare: linear_backward_weight 5x7x4 beta 1: dW[1][2] is ");
    double sum;
    CHECK_OK(pp_backend_sum_squares(be, 28, x, &sum));
    pp_free(x);
    pp_free(dz);
    pp_backend_close(&be);
}

/* --- promises --------------------------------------------------------------------------------- */

static void loss_gradient_may_overwrite_the_logits(void **state)
{
    const char *names[] = {"reference", "cpu", "compare"};
    for (int b = 0; b < COUNT(names); b++) {
        struct pp_backend *be = open_backend(names[b]);
        float *logits = noise("logits", 50), d[50];
        const uint8_t labels[5] = {0, 9, 3, 3, 7};
        struct pp_loss_sums apart = {0}, in_place = {0};
        CHECK_OK(pp_backend_softmax_cross_entropy(be, 5, 10, logits, labels, 1, &apart, d));
        CHECK_OK(pp_backend_softmax_cross_entropy(be, 5, 10, logits, labels, 1, &in_place, logits));
        assert_memory_equal(logits, d, sizeof(d));
        assert_memory_equal(&apart, &in_place, sizeof(apart));
        pp_free(logits);
        pp_backend_close(&be);
    }
}

static void of_equal_logits_the_first_is_the_answer(void **state)
{
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        struct pp_backend *be = open_backend(names[b]);
        const float logits[] = {1, 3, 3, 3, 2, 2};
        const uint8_t labels[] = {1, 1};
        struct pp_loss_sums sums = {0};
        CHECK_OK(pp_backend_softmax_cross_entropy(be, 2, 3, logits, labels, 1, &sums, NULL));
        CHECK_INT_EQ(sums.correct, 1);
        pp_backend_close(&be);
    }
}

static void huge_logits_do_not_overflow(void **state)
{
    struct pp_backend *be = open_backend("compare");
    const float logits[] = {3e38f, -3e38f, 1000, -1000};
    const uint8_t labels[] = {0, 0};
    float d[4];
    struct pp_loss_sums sums = {0};
    struct pp_backend *cpu = open_backend("cpu");
    CHECK_OK(pp_backend_softmax_cross_entropy(cpu, 2, 2, logits, labels, 1, &sums, d));
    assert_float_equal(sums.loss, 0, 0);
    CHECK_INT_EQ(sums.correct, 2);
    assert_float_equal(d[1], 0, 0);
    pp_backend_close(&cpu);
    pp_backend_close(&be);
}

static void nan_is_not_hidden(void **state)
{
    const char *names[] = {"reference", "cpu"};
    for (int b = 0; b < COUNT(names); b++) {
        struct pp_backend *be = open_backend(names[b]);
        for (int a = 0; a < COUNT(activations); a++) {
            const float x[] = {NAN}, W[] = {1}, bias[] = {0};
            float y = 0, z = 0, dy = NAN;
            CHECK_OK(pp_backend_linear_forward(be, 1, 1, 1, x, W, bias, activations[a], &z, &y));
            assert_true(isnan(y) && isnan(z));
            y = z = 0.5f;
            CHECK_OK(pp_backend_activation_backward(be, 1, activations[a], &y, &z, &dy));
            assert_true(isnan(dy));
        }
        for (int at = 0; at < 3; at++) {
            float logits[] = {1, 2, 3};
            logits[at] = NAN;
            const uint8_t label = 0;
            struct pp_loss_sums sums = {0};
            CHECK_OK(pp_backend_softmax_cross_entropy(be, 1, 3, logits, &label, 1, &sums, NULL));
            assert_true(isnan(sums.loss));
        }
        pp_backend_close(&be);
    }
}

static void no_rows_make_a_zero_gradient(void **state)
{
    const char *names[] = {"reference", "cpu", "compare"};
    for (int b = 0; b < COUNT(names); b++) {
        struct pp_backend *be = open_backend(names[b]);
        float W[6] = {0}, dW[6], db[2], some[6];
        memset(dW, 0xff, sizeof(dW));
        memset(db, 0xff, sizeof(db));
        CHECK_OK(pp_backend_linear_forward(be, 0, 3, 2, some, W, db, PP_ACT_GELU, some, some));
        CHECK_OK(pp_backend_linear_backward_input(be, 0, 3, 2, some, W, some));
        CHECK_OK(pp_backend_linear_backward_weight(be, 0, 3, 2, some, some, 0, dW, db));
        for (int i = 0; i < 6; i++) {
            assert_float_equal(dW[i], 0, 0);
        }
        dW[3] = 5;
        CHECK_OK(pp_backend_linear_backward_weight(be, 0, 3, 2, some, some, 1, dW, db));
        assert_float_equal(dW[3], 5, 0);
        assert_float_equal(db[1], 0, 0);
        pp_backend_close(&be);
    }
}

/* Layers lie in flat buffers without padding: their addresses change with the cut. */
static void bits_do_not_depend_on_addresses(void **state)
{
    struct pp_backend *be = open_backend("cpu");
    for (int s = 0; s < COUNT(shapes); s++) {
        int B = shapes[s][0], O = shapes[s][1], I = shapes[s][2];
        size_t bo = (size_t)B * O, bi = (size_t)B * I, oi = (size_t)O * I;
        float *x = noise("x", bi), *W = noise("w", oi), *b = noise("b", O), *dy = noise("dy", bo);
        float *out[2];
        for (int shift = 0; shift < 2; shift++) {
            size_t o = (size_t)shift * 3;
            float *sx = pp_alloc(bi + o, 4), *sW = pp_alloc(oi + o, 4), *sb = pp_alloc(O + o, 4);
            float *sdy = pp_alloc(bo + o, 4);
            memcpy(sx + o, x, bi * 4);
            memcpy(sW + o, W, oi * 4);
            memcpy(sb + o, b, (size_t)O * 4);
            memcpy(sdy + o, dy, bo * 4);
            float *p = out[shift] = pp_alloc(bo + bi + oi + O + o, 4);
            p += o;
            CHECK_OK(pp_backend_linear_forward(be, B, I, O, sx + o, sW + o, sb + o, PP_ACT_RELU,
                                               NULL, p));
            CHECK_OK(pp_backend_linear_backward_input(be, B, I, O, sdy + o, sW + o, p + bo));
            CHECK_OK(pp_backend_linear_backward_weight(be, B, I, O, sdy + o, sx + o, 0, p + bo + bi,
                                                       p + bo + bi + oi));
            pp_free(sx);
            pp_free(sW);
            pp_free(sb);
            pp_free(sdy);
        }
        assert_memory_equal(out[0], out[1] + 3, (bo + bi + oi + O) * 4);
        pp_free(out[0]);
        pp_free(out[1]);
        pp_free(x);
        pp_free(W);
        pp_free(b);
        pp_free(dy);
    }
    pp_backend_close(&be);
}

/* All loops of one version of the kernels, on one set of inputs: every output into out. */
static void run_kernels(const struct cpu_kernels *k, float *out)
{
    enum {
        B = 7,
        O = 37,
        N = B * O
    };
    float *in = noise("kernels", N), *b = noise("bias", O), z[N];
    uint8_t labels[B] = {0, 5, 36, 7, 7, 1, 2};
    for (int a = 0; a < COUNT(activations); a++) {
        memcpy(out, in, sizeof(z));
        k->bias_activation(B, O, b, activations[a], z, out);
        memcpy(out + N, in, sizeof(z));
        k->activation_backward(N, activations[a], out, z, out + N);
        out += 2 * N;
    }
    k->bias_gradient(B, O, in, 0, out);
    out += O;
    struct pp_loss_sums sums = {0};
    k->softmax_cross_entropy(B, O, in, labels, 0.1f, &sums, out);
    out += N;
    memcpy(out, &sums.loss, sizeof(sums.loss));
    out += 2;
    double squares = k->sum_squares(N, in);
    memcpy(out, &squares, sizeof(squares));
    out += 2;
    for (int kind = PP_OPT_SGD; kind <= PP_OPT_ADAMW; kind++) {
        struct pp_optimizer_args args = {kind, 0.01f, 0.9f, 0.9f, 0.99f, 1e-8f, 0.1f, 0.3f, 1};
        float m[N] = {0}, v[N] = {0};
        memcpy(out, in, sizeof(z));
        for (; args.step <= 3; args.step++) {
            k->optimizer_step(N, &args, z, m, v, out);
        }
        out += N;
    }
    pp_free(in);
    pp_free(b);
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    enum {
        FLOATS = 8 * 259 + 37 + 259 + 4 + 4 * 259
    };
    static float want[FLOATS], got[FLOATS];
    int n = 0;
    while (cpu_kernels_runnable(n)) {
        n++;
    }
    run_kernels(cpu_kernels_runnable(n - 1), want);
    for (int i = 0; i < n; i++) {
        memset(got, 0, sizeof(got));
        run_kernels(cpu_kernels_runnable(i), got);
        for (int e = 0; e < FLOATS; e++) {
            if (memcmp(&got[e], &want[e], sizeof(float))) {
                fail_msg("element %d is %.9g with %s, %.9g with %s", e, (double)got[e],
                         cpu_kernels_runnable(i)->name, (double)want[e],
                         cpu_kernels_runnable(n - 1)->name);
            }
        }
    }
}

static void sum_of_squares_depends_on_the_numbers_only(void **state)
{
    struct pp_backend *be = open_backend("cpu");
    float *g = noise("g", 1003), *shifted = pp_alloc(1004, 4);
    memcpy(shifted + 1, g, 1003 * 4);
    double a, b;
    CHECK_OK(pp_backend_sum_squares(be, 1003, g, &a));
    CHECK_OK(pp_backend_sum_squares(be, 1003, shifted + 1, &b));
    assert_memory_equal(&a, &b, sizeof(a));
    CHECK_OK(pp_backend_sum_squares(be, 0, g, &a));
    assert_true(a == 0);
    pp_free(g);
    pp_free(shifted);
    pp_backend_close(&be);
}

static void denormals_are_flushed_while_the_backend_is_open(void **state)
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
    struct pp_backend *be = open_backend("cpu");
    float *y = pp_alloc(64 * 128, 4), b[128] = {0};
    for (int i = 0; i < j->rounds; i++) {
        pp_backend_linear_forward(be, 64, 256, 128, j->x, j->W, b, PP_ACT_NONE, NULL, y);
        j->bad += memcmp(y, j->y, 64 * 128 * 4) != 0;
    }
    pp_free(y);
    pp_backend_close(&be);
    return NULL;
}

static void two_threads_at_once_give_the_bits_of_one(void **state)
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
        CHECK_OK(pp_backend_linear_forward(be, 64, 256, 128, jobs[t].x, jobs[t].W, b, PP_ACT_NONE,
                                           NULL, jobs[t].y));
    }
    pthread_t threads[2];
    for (int t = 0; t < 2; t++) {
        assert_int_equal(pthread_create(&threads[t], NULL, multiply, &jobs[t]), 0);
    }
    for (int t = 0; t < 2; t++) {
        pthread_join(threads[t], NULL);
    }
    for (int t = 0; t < 2; t++) {
        CHECK_INT_EQ(jobs[t].bad, 0);
        pp_free(jobs[t].x);
        pp_free(jobs[t].W);
        pp_free(jobs[t].y);
    }
    pp_backend_close(&be);
}

static void ops_of_cpu_allocate_nothing(void **state)
{
    struct pp_backend *be = open_backend("cpu");
    float x[12] = {0}, W[8] = {0}, b[2] = {0}, y[6], dW[8], db[2];
    uint64_t before = pp_alloc_count();
    CHECK_OK(pp_backend_linear_forward(be, 3, 4, 2, x, W, b, PP_ACT_RELU, NULL, y));
    CHECK_OK(pp_backend_linear_backward_weight(be, 3, 4, 2, y, x, 0, dW, db));
    CHECK_INT_EQ(pp_alloc_count(), before);
    pp_backend_close(&be);
}

/* --- names ------------------------------------------------------------------------------------ */

static void auto_finds_a_backend_that_runs(void **state)
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

static void an_unusable_backend_says_why(void **state)
{
    const struct pp_backend_ops *ops = NULL;
    CHECK_FAILS(pp_backend_resolve("abacus", &ops), PP_ECONFIG,
                "no backend is named 'abacus' (auto, cpu, reference, compare, cuda)");
    if (pp_backend_resolve("cuda", &ops) < 0) {
        CHECK_INT_EQ(pp_error_get()->code, PP_ERESOURCE);
        assert_non_null(strstr(pp_error_get()->text, "cuda cannot run here: "));
    }
}

static void the_blas_says_what_it_is(void **state)
{
    char text[96] = "";
    pp_blas_describe(text, sizeof(text));
    assert_true(strlen(text) > 4);
    print_message("# %s, better core: %s, kernels: %s\n", text,
                  pp_blas_better_core() ? pp_blas_better_core() : "none",
                  cpu_kernels_runnable(0)->name);
    setenv("OPENBLAS_CORETYPE", "Haswell", 1);
    assert_null(pp_blas_better_core()); /* the user's choice stays */
    unsetenv("OPENBLAS_CORETYPE");
}

static void memory_is_zeroed_and_aligned(void **state)
{
    struct pp_backend *be = open_backend("cpu");
    for (size_t bytes = 0; bytes < 10000; bytes = bytes * 7 + 1) {
        void *p = NULL;
        CHECK_OK(pp_backend_alloc(be, bytes, &p));
        CHECK_INT_EQ((uintptr_t)p % PP_ALIGN, 0);
        for (size_t i = 0; i < bytes; i++) {
            CHECK_INT_EQ(((char *)p)[i], 0);
        }
        char in[4] = "abc", out[4] = "";
        if (bytes >= 4) {
            CHECK_OK(pp_backend_to_device(be, p, in, 4));
            CHECK_OK(pp_backend_synchronize(be));
            CHECK_OK(pp_backend_to_host(be, out, p, 4));
            CHECK_STR_EQ(out, "abc");
        }
        pp_backend_free(be, p, bytes);
    }
    pp_backend_close(&be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_agrees_with_plain_on_linear_layers),
        cmocka_unit_test(cpu_agrees_with_plain_on_the_loss),
        cmocka_unit_test(cpu_agrees_with_plain_on_flat_buffers),
        cmocka_unit_test(gather_scales_the_chosen_rows),
        cmocka_unit_test(plain_ops_give_the_numbers_of_the_formulas),
        cmocka_unit_test(plain_products_are_the_double_sums),
        cmocka_unit_test(compare_names_the_op_and_the_element_that_differ),
        cmocka_unit_test(loss_gradient_may_overwrite_the_logits),
        cmocka_unit_test(of_equal_logits_the_first_is_the_answer),
        cmocka_unit_test(huge_logits_do_not_overflow),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(no_rows_make_a_zero_gradient),
        cmocka_unit_test(bits_do_not_depend_on_addresses),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(sum_of_squares_depends_on_the_numbers_only),
        cmocka_unit_test(denormals_are_flushed_while_the_backend_is_open),
        cmocka_unit_test(two_threads_at_once_give_the_bits_of_one),
        cmocka_unit_test(ops_of_cpu_allocate_nothing),
        cmocka_unit_test(auto_finds_a_backend_that_runs),
        cmocka_unit_test(an_unusable_backend_says_why),
        cmocka_unit_test(the_blas_says_what_it_is),
        cmocka_unit_test(memory_is_zeroed_and_aligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
