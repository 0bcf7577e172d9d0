/* SPDX-License-Identifier: Apache-2.0 */
/* What convolutions promise besides their numbers, which checkops compares: bits that do not depend
 * on the other samples, and NaN. */
#include "dev_inputs.h"

/* height, width, channels in and out, kernel, stride, padding (top, left, bottom, right), groups,
 * samples */
static const struct shape {
    int H, W, C, O, kh, kw, stride, top, left, bottom, right, groups, B;
} cases[] = {
    {8, 8, 16, 64, 3, 3, 1, 1, 1, 1, 1, 1, 5},    {5, 7, 3, 10, 3, 3, 1, 1, 1, 1, 1, 1, 5},
    {9, 7, 1, 1, 3, 3, 1, 0, 0, 0, 0, 1, 1},      {7, 9, 20, 33, 3, 3, 2, 1, 1, 1, 1, 1, 3},
    {8, 6, 17, 70, 3, 3, 2, 0, 0, 1, 1, 1, 2},    {6, 6, 65, 130, 1, 1, 1, 0, 0, 0, 0, 1, 3},
    {7, 5, 40, 24, 1, 1, 2, 0, 0, 0, 0, 1, 4},    {15, 14, 3, 64, 7, 7, 2, 3, 3, 3, 3, 1, 2},
    {2, 2, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 16},   {1, 1, 70, 70, 3, 3, 1, 1, 1, 1, 1, 1, 7},
    {2, 3, 4, 6, 5, 7, 1, 3, 4, 3, 3, 1, 2},      {6, 5, 12, 18, 3, 3, 1, 1, 1, 1, 1, 3, 2},
    {6, 5, 8, 8, 3, 3, 2, 1, 1, 1, 1, 8, 3},      {5, 6, 6, 12, 3, 2, 1, 1, 0, 1, 1, 6, 2},
    {4, 30, 2, 5, 1, 5, 3, 0, 2, 0, 2, 1, 2},     {3, 3, 9, 4, 2, 2, 4, 0, 0, 3, 3, 1, 3},
    {12, 11, 100, 20, 3, 3, 1, 1, 1, 1, 1, 1, 2}, {4, 4, 150, 66, 3, 3, 1, 1, 1, 1, 1, 1, 6},
    {20, 20, 16, 12, 4, 4, 1, 1, 1, 2, 2, 1, 2},  {3, 3, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 0},
    {5, 4, 3, 6, 3, 3, 65536, 1, 1, 1, 1, 1, 2},
};

struct arrays {
    struct pp_conv g;
    int B;
    size_t n_x, n_y, n_W, n_scratch;
    float *x, *W, *b, *dz;   /* inputs */
    float *y, *dx, *dW, *db; /* results */
    float *packed, *scratch;
    float *memory; /* owned */
};

static struct pp_conv conv_of(const struct shape *c)
{
    return (struct pp_conv){.H = c->H,
                            .W = c->W,
                            .C = c->C,
                            .OH = (c->H + c->top + c->bottom - c->kh) / c->stride + 1,
                            .OW = (c->W + c->left + c->right - c->kw) / c->stride + 1,
                            .O = c->O,
                            .kh = c->kh,
                            .kw = c->kw,
                            .stride = c->stride,
                            .pad_top = c->top,
                            .pad_left = c->left,
                            .groups = c->groups};
}

/* Every array but scratch `shift` floats off its alignment; y, packed and scratch full of NaN. */
static void make(struct arrays *p, const struct shape *c, size_t packed, size_t scratch,
                 size_t shift)
{
    *p = (struct arrays){.g = conv_of(c), .B = c->B, .n_scratch = scratch};
    size_t O = (size_t)c->O;
    p->n_x = (size_t)c->B * c->H * c->W * c->C;
    p->n_y = (size_t)c->B * p->g.OH * p->g.OW * c->O;
    p->n_W = O * c->kh * c->kw * (c->C / c->groups);
    size_t sizes[] = {p->n_x, p->n_W, O, p->n_y, p->n_y, p->n_x, p->n_W, O, packed, scratch};
    float **arrays[] = {&p->x,  &p->W,  &p->b,  &p->dz,     &p->y,
                        &p->dx, &p->dW, &p->db, &p->packed, &p->scratch};
    const char *names[] = {"x", "W", "b", "dz", NULL, "dx", "dW", "db", NULL, NULL};
    size_t total = 0;
    for (int a = 0; a < COUNT(sizes); a++)
        total += (sizes[a] + 47) / 16 * 16;
    p->memory = nans(total);
    float *at = p->memory;
    for (int a = 0; a < COUNT(sizes); a++) {
        *arrays[a] = at + 16 + (arrays[a] == &p->scratch ? 0 : shift);
        at += (sizes[a] + 47) / 16 * 16;
        if (names[a] && sizes[a] > 0) {
            PP_OWN_MEMORY float *from = noise(names[a], sizes[a]);
            memcpy(*arrays[a], from, sizes[a] * sizeof(float));
        }
    }
}

static struct pp_backend *open_with(const char *name, enum pp_gemm gemm)
{
    struct pp_backend_choice choice = {.threads = 1, .gemm = gemm};
    struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_resolve(name, &choice.ops));
    CHECK_OK(pp_backend_open_choice(&choice, &be));
    return be;
}

static const enum pp_gemm gemms[] = {PP_GEMM_CBLAS, PP_GEMM_AUTO};

static void make_on(struct arrays *p, const struct pp_backend *be, const struct shape *c)
{
    struct pp_conv g = conv_of(c);
    make(p, c, pp_backend_conv_packed_floats(&be->choice, &g),
         pp_backend_conv_scratch_floats(&be->choice, &g, c->B), 0);
}

static void weight(struct pp_backend *be, struct arrays *p, int n,
                   const struct pp_weight_part *parts, float beta, float *dW, float *db)
{
    struct pp_conv_backward_weight a = {&p->g, n, parts, beta, p->scratch, dW, db};
    CHECK_OK(pp_backend_conv_backward_weight(be, &a));
}

/* Samples 0, 2, 0, 1, ... of the batch at a time. */
static int spread(const struct arrays *p, int most, struct pp_weight_part *parts)
{
    size_t x = p->B ? p->n_x / (size_t)p->B : 0, y = p->B ? p->n_y / (size_t)p->B : 0;
    int n = 0;
    for (int at = 0; at < p->B && n < most; n++) {
        int B = n == most - 1 ? p->B - at : n % 2 == 0 ? 0 : n % 3 + 1;
        B = B < p->B - at ? B : p->B - at;
        parts[n] = (struct pp_weight_part){
            .B = B, .dz = p->dz + (size_t)at * y, .x = p->x + (size_t)at * x};
        at += B;
    }
    return n;
}

/* So the number of micro-batches changes no bit of a weight gradient. */
TEST(weight_gradients_do_not_depend_on_how_samples_are_spread_over_parts)
{
    for (int k = cblas_loads() ? 0 : 1; k < COUNT(gemms); k++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_with("cpu", gemms[k]);
        for (int s = 0; s < COUNT(cases); s++) {
            struct arrays p;
            make_on(&p, be, &cases[s]);
            struct pp_weight_part all = {.B = p.B, .dz = p.dz, .x = p.x}, parts[40];
            int n = spread(&p, COUNT(parts), parts);
            if (n > 0) {
                PP_OWN_MEMORY float *together = nans(p.n_W), *db = nans((size_t)p.g.O);
                weight(be, &p, 1, &all, 0, p.dW, p.db);
                weight(be, &p, n, parts, 0, together, db);
                assert_memory_equal(together, p.dW, p.n_W * sizeof(float));
                assert_memory_equal(db, p.db, (size_t)p.g.O * sizeof(float));
                for (int i = 0; i < n; i++)
                    weight(be, &p, 1, &parts[i], i == 0 ? 0 : 1, together, db);
                assert_memory_equal(together, p.dW, p.n_W * sizeof(float));
                assert_memory_equal(db, p.db, (size_t)p.g.O * sizeof(float));
            }
            pp_free(p.memory);
        }
    }
}

TEST(a_sample_has_the_same_bits_alone_and_in_a_batch)
{
    for (int k = cblas_loads() ? 0 : 1; k < COUNT(gemms); k++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_with("cpu", gemms[k]);
        for (int s = 0; s < COUNT(cases); s++) {
            struct arrays p;
            make_on(&p, be, &cases[s]);
            if (p.B == 0) {
                pp_free(p.memory);
                continue;
            }
            size_t x = p.n_x / (size_t)p.B, y = p.n_y / (size_t)p.B, last = (size_t)p.B - 1;
            float *one_y = nans(y), *one_dx = nans(x);
            struct pp_conv_forward f = {.g = &p.g, p.B, p.x, p.W, .scratch = p.scratch, .y = p.y};
            CHECK_OK(pp_backend_conv_forward(be, &f));
            f.B = 1, f.x += last * x, f.y = one_y;
            CHECK_OK(pp_backend_conv_forward(be, &f));
            assert_memory_equal(one_y, p.y + last * y, y * sizeof(float));
            struct pp_conv_backward_input b = {&p.g, p.B, p.dz, p.W, NULL, p.scratch, false, p.dx};
            CHECK_OK(pp_backend_conv_backward_input(be, &b));
            b.B = 1, b.dz += last * y, b.dx = one_dx;
            CHECK_OK(pp_backend_conv_backward_input(be, &b));
            assert_memory_equal(one_dx, p.dx + last * x, x * sizeof(float));
            pp_free(one_y);
            pp_free(one_dx);
            pp_free(p.memory);
        }
    }
}

TEST(without_samples_a_gradient_is_zero_or_stays)
{
    static const struct shape none = {3, 3, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 0};
    const char *names[] = {"reference", "cpu", "cpu"};
    const enum pp_gemm gemm[] = {PP_GEMM_AUTO, PP_GEMM_AUTO, PP_GEMM_CBLAS};
    for (int k = 0, n = COUNT(names) - !cblas_loads(); k < n; k++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_with(names[k], gemm[k]);
        struct arrays p;
        make_on(&p, be, &none);
        struct pp_weight_part parts[2] = {{0}};
        float *before = noise("dW", p.n_W);
        weight(be, &p, 2, parts, 1, p.dW, p.db);
        assert_memory_equal(p.dW, before, p.n_W * sizeof(float));
        for (size_t i = 0; i < p.n_W; i++)
            p.dW[i] = NAN;
        weight(be, &p, 2, parts, 0, p.dW, p.db);
        for (size_t i = 0; i < p.n_W; i++)
            assert_true(p.dW[i] == 0);
        for (int o = 0; o < p.g.O; o++)
            assert_true(p.db[o] == 0);
        pp_free(before);
        pp_free(p.memory);
    }
}

/* One in a corner reaches the four pixels that see it. */
TEST(a_nan_reaches_what_sees_it_and_relu_keeps_it)
{
    static const struct shape image = {4, 4, 20, 6, 3, 3, 1, 1, 1, 1, 1, 1, 2};
    const char *names[] = {"reference", "cpu", "cpu"};
    const enum pp_gemm gemm[] = {PP_GEMM_AUTO, PP_GEMM_AUTO, PP_GEMM_CBLAS};
    for (int k = 0, n = COUNT(names) - !cblas_loads(); k < n; k++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_with(names[k], gemm[k]);
        struct arrays p;
        make_on(&p, be, &image);
        struct pp_weight_part part = {.B = p.B, .dz = p.dz, .x = p.x};
        p.x[7] = p.dz[3] = NAN;
        struct pp_conv_forward f = {&p.g, p.B, p.x, p.W, NULL, p.b, true, p.scratch, p.y};
        CHECK_OK(pp_backend_conv_forward(be, &f));
        struct pp_conv_backward_input b = {&p.g, p.B, p.dz, p.W, NULL, p.scratch, false, p.dx};
        CHECK_OK(pp_backend_conv_backward_input(be, &b));
        weight(be, &p, 1, &part, 0, p.dW, p.db);
        for (int i = 0; i < 2 * 4 * 4; i++) {
            bool near = i < 16 && i % 4 < 2 && i / 4 < 2;
            assert_true(near == !!isnan(p.y[(size_t)i * 6]));
            assert_true(near == !!isnan(p.dx[(size_t)i * 20]));
        }
        assert_true(isnan(p.dW[(3 * 9 + 4) * 20 + 7]) && isnan(p.db[3]) && !isnan(p.db[2]));
        assert_false(isnan(p.dW[(2 * 9 + 4) * 20 + 6]));
        pp_free(p.memory);
    }
}
