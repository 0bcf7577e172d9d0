/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution: the own kernels give exact chains of
 * fused multiply-adds over what lies inside the image. */
#include "dev_inputs.h"

#include "../../src/dev/cpu/gemm.h"

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

static void make_for(struct arrays *p, const struct cpu_conv *f, const struct shape *c,
                     size_t shift)
{
    struct pp_conv g = conv_of(c);
    make(p, c, f->packed_floats(&g), f->scratch_floats(&g, c->B), shift);
}

static void run(const struct cpu_conv *f, struct arrays *p, bool packed, bool add)
{
    struct pp_weight_part part = {.B = p->B, .dz = p->dz, .x = p->x};
    const float *copy = NULL;
    if (packed) {
        f->pack(&p->g, p->W, p->packed);
        copy = p->packed;
    }
    f->forward(
        &(struct pp_conv_forward){&p->g, p->B, p->x, p->W, copy, p->b, true, p->scratch, p->y},
        &(struct pp_piece){0, (size_t)(p->B * p->g.OH), 0});
    f->backward_input(
        &(struct pp_conv_backward_input){&p->g, p->B, p->dz, p->W, copy, p->scratch, add, p->dx},
        &(struct pp_piece){0, (size_t)(p->B * p->g.H), 0});
    f->backward_weight(
        &(struct pp_conv_backward_weight){&p->g, 1, &part, add ? 1 : 0, p->scratch, p->dW, NULL},
        &(struct pp_piece){0, (size_t)p->g.O, 0});
}

/* ---- what the elements are, in the order of the indices */

/* Element [n][y][x] of an image of C channels, NULL outside. */
static const float *pixel(const float *a, int n, int y, int x, int H, int W, int C)
{
    bool inside = y >= 0 && y < H && x >= 0 && x < W;
    return inside ? a + (((size_t)n * H + y) * W + x) * C : NULL;
}

static float chain_y(const struct arrays *p, int n, int oy, int ox, int o)
{
    const struct pp_conv *g = &p->g;
    int C = g->C / g->groups, first = o / (g->O / g->groups) * C;
    float sum = 0;
    for (int t = 0; t < g->kh * g->kw; t++) {
        const float *x = pixel(p->x, n, oy * g->stride + t / g->kw - g->pad_top,
                               ox * g->stride + t % g->kw - g->pad_left, g->H, g->W, g->C);
        for (int c = 0; x && c < C; c++)
            sum = fmaf(x[first + c], p->W[((size_t)o * g->kh * g->kw + t) * C + c], sum);
    }
    sum += p->b[o];
    return sum < 0 ? 0 : sum;
}

static float chain_dx(const struct arrays *p, int n, int y, int x, int c, float sum)
{
    const struct pp_conv *g = &p->g;
    int C = g->C / g->groups, O = g->O / g->groups, first = c / C * O;
    for (int t = 0; t < g->kh * g->kw; t++) {
        int oy = y + g->pad_top - t / g->kw, ox = x + g->pad_left - t % g->kw;
        if (oy % g->stride != 0 || ox % g->stride != 0)
            continue;
        const float *dz = pixel(p->dz, n, oy / g->stride, ox / g->stride, g->OH, g->OW, g->O);
        for (int o = first; dz && o < first + O; o++)
            sum = fmaf(dz[o], p->W[((size_t)o * g->kh * g->kw + t) * C + c % C], sum);
    }
    return sum;
}

static float chain_dW(const struct arrays *p, int o, int t, int c, float sum)
{
    const struct pp_conv *g = &p->g;
    int first = o / (g->O / g->groups) * (g->C / g->groups);
    for (int i = 0; i < p->B * g->OH * g->OW; i++) {
        int ox = i % g->OW, oy = i / g->OW % g->OH, n = i / g->OW / g->OH;
        const float *x = pixel(p->x, n, oy * g->stride + t / g->kw - g->pad_top,
                               ox * g->stride + t % g->kw - g->pad_left, g->H, g->W, g->C);
        if (x)
            sum = fmaf(p->dz[(size_t)i * g->O + o], x[first + c], sum);
    }
    return sum;
}

static void check_bits(const char *what, const char *isa, int shape, size_t at, float got,
                       float want)
{
    if (memcmp(&got, &want, sizeof(got)) != 0) {
        fail_msg("%s of %s, case %d: element %zu is %.9g, the chain gives %.9g", what, isa, shape,
                 at, (double)got, (double)want);
    }
}

static void check_chains(const char *isa, const struct cpu_conv *f, int shape, bool packed,
                         bool add)
{
    struct arrays p;
    make_for(&p, f, &cases[shape], (size_t)shape % 16);
    const struct pp_conv *g = &p.g;
    float *dx = noise("dx", p.n_x), *dW = noise("dW", p.n_W);
    run(f, &p, packed, add);
    for (size_t i = 0; i < p.n_y; i++) {
        int o = (int)(i % g->O), at = (int)(i / g->O);
        check_bits("y", isa, shape, i, p.y[i],
                   chain_y(&p, at / g->OW / g->OH, at / g->OW % g->OH, at % g->OW, o));
    }
    for (size_t i = 0; i < p.n_x; i++) {
        int c = (int)(i % g->C), at = (int)(i / g->C);
        check_bits("dx", isa, shape, i, p.dx[i],
                   chain_dx(&p, at / g->W / g->H, at / g->W % g->H, at % g->W, c, add ? dx[i] : 0));
    }
    for (size_t i = 0; i < p.n_W; i++) {
        int C = g->C / g->groups, c = (int)(i % C), t = (int)(i / C) % (g->kh * g->kw);
        int o = (int)(i / C) / (g->kh * g->kw);
        check_bits("dW", isa, shape, i, p.dW[i], chain_dW(&p, o, t, c, add ? dW[i] : 0));
    }
    const float *ends[] = {p.y + p.n_y, p.dx + p.n_x, p.dW + p.n_W, p.scratch + p.n_scratch,
                           p.y - 1,     p.dx - 1,     p.dW - 1,     p.scratch - 1};
    for (int e = 0; e < COUNT(ends); e++)
        assert_true(isnan(*ends[e])); /* nothing outside is written */
    pp_free(dx);
    pp_free(dW);
    pp_free(p.memory);
}

/* Hence the same bits for every instruction set, address, number of samples, packed or not. */
TEST(every_element_is_one_chain_of_fused_multiply_adds)
{
    for (int n = 0; cpu_gemm_own(n); n++) {
        for (int s = 0; s < COUNT(cases); s++) {
            check_chains(cpu_gemm_own(n)->name, cpu_gemm_own(n)->conv, s, true, false);
            check_chains(cpu_gemm_own(n)->name, cpu_gemm_own(n)->conv, s, false, true);
        }
    }
}

/* An image larger than what is computed at a time, more samples than fit. */
TEST(large_images_and_batches_are_the_same_chains)
{
    static const struct shape large[] = {{40, 70, 64, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1},
                                         {3, 3, 600, 8, 3, 3, 2, 1, 1, 1, 1, 1, 40},
                                         {30, 70, 96, 8, 3, 3, 2, 1, 1, 1, 1, 1, 2},
                                         {4, 5, 520, 70, 3, 3, 1, 1, 1, 1, 1, 1, 15},
                                         {8, 7, 70, 520, 3, 3, 2, 1, 1, 1, 1, 1, 3}};
    for (int n = 0; cpu_gemm_own(n); n++) {
        const struct cpu_conv *f = cpu_gemm_own(n)->conv;
        for (int s = 0; s < COUNT(large); s++) {
            struct arrays p;
            make_for(&p, f, &large[s], 0);
            const struct pp_conv *g = &p.g;
            run(f, &p, s != 1, false);
            for (size_t i = 0; i < p.n_y; i += 37) {
                int at = (int)(i / g->O);
                check_bits("y", cpu_gemm_own(n)->name, s, i, p.y[i],
                           chain_y(&p, at / g->OW / g->OH, at / g->OW % g->OH, at % g->OW,
                                   (int)(i % g->O)));
            }
            for (size_t i = 0; i < p.n_x; i += 1009) {
                int at = (int)(i / g->C);
                check_bits("dx", cpu_gemm_own(n)->name, s, i, p.dx[i],
                           chain_dx(&p, at / g->W / g->H, at / g->W % g->H, at % g->W,
                                    (int)(i % g->C), 0));
            }
            for (size_t i = 0; i < p.n_W; i += 499) {
                int C = g->C / g->groups, taps = g->kh * g->kw, row = (int)(i / C);
                check_bits("dW", cpu_gemm_own(n)->name, s, i, p.dW[i],
                           chain_dW(&p, row / taps, row % taps, (int)(i % C), 0));
            }
            pp_free(p.memory);
        }
    }
}

/* ---- every provider */

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
