/* SPDX-License-Identifier: Apache-2.0 */
/* Products of operands rounded to bfloat16: of every instruction set the bits of the f32 products of
 * rounded operands, however rows are cut into parts and pieces. */
#include "dev_inputs.h"

#include "../../src/dev/cpu/bf16.h"
#include "../../src/dev/cpu/gemm.h"

static float *rounded(const float *x, size_t n)
{
    float *out = nans(n);
    for (size_t i = 0; i < n; i++)
        out[i] = ((union float_bits){.u = bf16_of(x[i])}).f;
    return out;
}

static void check_equal(const char *what, const char *isa, const float *got, const float *want,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof(*got)) != 0 && (got[i] != 0 || want[i] != 0))
            fail_msg("%s of %s: [%zu] is %.9g, from rounded operands f32 gives %.9g", what, isa, i,
                     (double)got[i], (double)want[i]);
    }
}

TEST(rounding_is_to_nearest_even_and_keeps_nan_and_infinity)
{
    static const struct {
        uint32_t from, to;
    } cases[] = {{0x3f800000, 0x3f800000}, {0x3f808000, 0x3f800000}, {0x3f818000, 0x3f820000},
                 {0x3f808001, 0x3f810000}, {0x7f7fffff, 0x7f800000}, {0xff800000, 0xff800000},
                 {0x7f800001, 0x7fc00000}, {0x007fffff, 0x00000000}, {0x80000001, 0x80000000}};
    for (int i = 0; i < COUNT(cases); i++) {
        union float_bits v = {.u = cases[i].from};
        CHECK_INT_EQ(bf16_of(v.f), cases[i].to);
    }
}

/* The weight gradient of two parts, which cut a pair. */
static void check_linear(const struct cpu_gemm *g, int B, int I, int O, bool packed)
{
    const struct cpu_gemm *f = cpu_gemm_own(0);
    size_t n_x = (size_t)B * I, n_W = (size_t)O * I, n_z = (size_t)B * O;
    float *x = noise("x", n_x), *W = noise("W", n_W), *dz = noise("dz", n_z);
    float *b = noise("b", (size_t)O), *xr = rounded(x, n_x), *Wr = rounded(W, n_W);
    float *zr = rounded(dz, n_z), *copy = nans(g->packed_floats(O, I) + 1);
    float *y = nans(n_z), *want_y = nans(n_z), *dx = nans(n_x), *want_dx = nans(n_x);
    float *dW = noise("dW", n_W), *want_dW = noise("dW", n_W);
    g->pack(O, I, W, copy);
    g->forward(B, I, O, (size_t)O, x, W, packed ? copy : NULL, b, true, y);
    f->forward(B, I, O, (size_t)O, xr, Wr, NULL, b, true, want_y);
    check_equal("y", g->name, y, want_y, n_z);
    g->backward_input(B, I, O, (size_t)I, dz, W, dx);
    f->backward_input(B, I, O, (size_t)I, zr, Wr, want_dx);
    check_equal("dx", g->name, dx, want_dx, n_x);
    const struct cpu_block all = {0, O, 0, I};
    int cut = B / 3;
    const struct pp_weight_part parts[] = {
        {.B = cut, .dz = dz, .x = x},
        {.B = B - cut, .dz = dz + (size_t)cut * O, .x = x + (size_t)cut * I}};
    const struct pp_weight_part whole = {.B = B, .dz = zr, .x = xr};
    g->backward_weight(2, parts, I, O, &all, 1, dW);
    f->backward_weight(1, &whole, I, O, &all, 1, want_dW);
    check_equal("dW", g->name, dW, want_dW, n_W);
    assert_true(isnan(copy[g->packed_floats(O, I)]));
    float *arrays[] = {x, W, dz, b, xr, Wr, zr, copy, y, want_y, dx, want_dx, dW, want_dW};
    for (int i = 0; i < COUNT(arrays); i++)
        pp_free(arrays[i]);
}

TEST(linear_products_are_those_of_rounded_operands)
{
    static const int sizes[][3] = {{1, 1, 1},    {5, 3, 10},    {6, 16, 17},    {13, 127, 31},
                                   {67, 64, 65}, {49, 784, 10}, {300, 600, 33}, {97, 1030, 70}};
    for (int i = 0; cpu_gemm_bf16(i); i++)
        for (int s = 0; s < COUNT(sizes); s++)
            check_linear(cpu_gemm_bf16(i), sizes[s][0], sizes[s][1], sizes[s][2], s % 2 == 0);
}

/* height, channels in and out, kernel, stride, padding, groups, samples */
struct shape {
    int H, C, O, k, stride, pad, groups, B;
};

/* In two pieces, as two threads would. */
static void run_pieces(pp_piece_fn work, const void *args, size_t units)
{
    const struct pp_piece first = {.from = 0, .to = units / 3};
    const struct pp_piece second = {.from = units / 3, .to = units};
    work(args, &first);
    work(args, &second);
}

static void check_conv(const char *isa, const struct cpu_conv *c, const struct shape *s)
{
    const struct cpu_conv *f = cpu_gemm_own(0)->conv;
    int H = s->H, W = s->H + 1, OH = (H + 2 * s->pad - s->k) / s->stride + 1;
    int OW = (W + 2 * s->pad - s->k) / s->stride + 1;
    const struct pp_conv g = {.H = H,
                              .W = W,
                              .C = s->C,
                              .O = s->O,
                              .OH = OH,
                              .OW = OW,
                              .kh = s->k,
                              .kw = s->k,
                              .stride = s->stride,
                              .pad_top = s->pad,
                              .pad_left = s->pad,
                              .groups = s->groups};
    size_t n_x = (size_t)s->B * H * W * s->C, n_y = (size_t)s->B * OH * OW * s->O;
    size_t n_W = (size_t)s->O * s->k * s->k * s->C / s->groups;
    float *x = noise("x", n_x), *w = noise("W", n_W), *dz = noise("dz", n_y);
    float *b = noise("b", (size_t)s->O), *xr = rounded(x, n_x), *wr = rounded(w, n_W);
    float *zr = rounded(dz, n_y), *copy = nans(c->packed_floats(&g));
    float *scratch = nans(c->scratch_floats(&g, s->B) + f->scratch_floats(&g, s->B));
    float *y = nans(n_y), *want_y = nans(n_y), *dx = noise("dx", n_x), *want_dx = noise("dx", n_x);
    float *dW = nans(n_W), *want_dW = nans(n_W);
    c->pack(&g, w, copy);
    struct pp_conv_forward forward = {.g = &g,
                                      .B = s->B,
                                      .x = x,
                                      .W = w,
                                      .packed = copy,
                                      .b = b,
                                      .relu = true,
                                      .scratch = scratch,
                                      .y = y};
    run_pieces(c->forward, &forward, (size_t)s->B * OH);
    forward.x = xr, forward.W = wr, forward.packed = NULL, forward.y = want_y;
    run_pieces(f->forward, &forward, (size_t)s->B * OH);
    check_equal("y", isa, y, want_y, n_y);
    struct pp_conv_backward_input input = {
        .g = &g, .B = s->B, .dz = dz, .W = w, .add = s->B % 2 == 1, .scratch = scratch, .dx = dx};
    input.packed = s->k == 3 ? copy : NULL;
    run_pieces(c->backward_input, &input, (size_t)s->B * H);
    input.dz = zr, input.W = wr, input.packed = NULL, input.dx = want_dx;
    run_pieces(f->backward_input, &input, (size_t)s->B * H);
    check_equal("dx", isa, dx, want_dx, n_x);
    struct pp_weight_part part = {.B = s->B, .dz = dz, .x = x};
    struct pp_conv_backward_weight weight = {
        .g = &g, .n = 1, .parts = &part, .scratch = scratch, .dW = dW};
    run_pieces(c->backward_weight, &weight, (size_t)s->O);
    part.dz = zr, part.x = xr, weight.dW = want_dW;
    run_pieces(f->backward_weight, &weight, (size_t)s->O);
    check_equal("dW", isa, dW, want_dW, n_W);
    float *arrays[] = {x, w, dz, b, xr, wr, zr, copy, scratch, y, want_y, dx, want_dx, dW, want_dW};
    for (int i = 0; i < COUNT(arrays); i++)
        pp_free(arrays[i]);
}

TEST(convolutions_are_those_of_rounded_operands)
{
    static const struct shape kinds[] = {{8, 3, 10, 3, 1, 1, 1, 3},  {9, 16, 20, 3, 2, 1, 1, 2},
                                         {7, 12, 18, 3, 2, 0, 3, 3}, {8, 64, 70, 1, 2, 0, 1, 2},
                                         {11, 5, 7, 5, 3, 2, 1, 5},  {4, 70, 66, 3, 1, 1, 1, 40},
                                         {6, 9, 9, 2, 1, 0, 9, 2},   {5, 4, 6, 1, 3, 0, 2, 1}};
    for (int i = 0; cpu_gemm_bf16(i); i++)
        for (int s = 0; s < COUNT(kinds); s++)
            check_conv(cpu_gemm_bf16(i)->name, cpu_gemm_bf16(i)->conv, &kinds[s]);
}

TEST(a_cblas_refuses_bfloat16)
{
    const struct pp_backend_ops *ops;
    CHECK_OK(pp_backend_resolve("cpu", &ops));
    const struct pp_backend_choice choice = {
        .ops = ops, .threads = 1, .gemm = PP_GEMM_CBLAS, .precision = PP_PRECISION_BF16};
    struct pp_backend *be = NULL;
    CHECK_FAILS(pp_backend_open_choice(&choice, &be), PP_ECONFIG, "run.precision");
}
