/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between pp_backend_collect() and its end some calls wait and others do not. Whatever follows what,
 * the bits are those of calls that never wait: random sequences of everything that writes or reads
 * gradients, on few arrays, so that most calls meet one before them.
 */
#include "gpu.h"

#define GRADIENTS 3
#define FLOATS 512 /* of one gradient: dW[O][I], then db[O] */
#define MOST_I 24
#define MOST_O 20
#define MOST_ROWS 3000
#define VALUES ((size_t)MOST_ROWS * MOST_I)

struct device {
    struct pp_backend *be;
    struct array x, dz, keep, tokens, grads, scratch;
};

static struct device open_device(enum pp_precision precision, bool exact)
{
    struct device d = {.be = open_gpu(precision, exact)};
    PP_OWN_MEMORY float *x = noise("x", VALUES), *dz = noise("dz", VALUES);
    PP_OWN_MEMORY float *tokens = noise("tokens", VALUES), *zero = pp_alloc(VALUES, sizeof(*zero));
    for (size_t i = 0; i < VALUES; i++)
        tokens[i] = floorf(8 + 8 * tokens[i]);
    d.x = values_on_device(d.be, x, VALUES, 0);
    d.dz = values_on_device(d.be, dz, VALUES, 0);
    d.keep = on_device(d.be, dz, VALUES, 0);
    d.tokens = on_device(d.be, tokens, VALUES, 0);
    d.grads = on_device(d.be, zero, (size_t)GRADIENTS * FLOATS, 0);
    d.scratch = on_device(d.be, NULL, 9 * VALUES, 0);
    return d;
}

static void close_device(struct device *d)
{
    struct array *all[] = {&d->x, &d->dz, &d->keep, &d->tokens, &d->grads, &d->scratch};
    for (int i = 0; i < COUNT(all); i++)
        drop(d->be, all[i]);
    pp_backend_close(&d->be);
}

/* What is drawn is a function of (seed, how many were drawn). */
struct draws {
    uint64_t seed, n;
};

static int draw(struct draws *r, int n)
{
    return (int)(pp_rng_u32(r->seed, 3, r->n++) % (uint32_t)n);
}

/* A multiple of 1,024 is cut into slices, a small or odd number is not. */
static int draw_rows(struct draws *r)
{
    const int all[] = {1024 * (1 + draw(r, 2)), 1 + draw(r, MOST_ROWS), 16 * (64 + draw(r, 100)),
                       1 + draw(r, 40), 0};
    return all[draw(r, COUNT(all))];
}

/* Of `all` rows of the values, those from a random one on. */
static struct pp_weight_part draw_part(struct device *d, struct draws *r, int rows, int width)
{
    size_t unit = 16, at = (size_t)draw(r, 1 + (MOST_ROWS - rows) / 16) * unit * (size_t)width;
    return (struct pp_weight_part){
        .B = rows, .dz = pp_value_at(d->be, d->dz.at, at), .x = pp_value_at(d->be, d->x.at, at)};
}

static int call_linear(struct device *d, struct draws *r, float *at)
{
    struct pp_weight_part parts[3];
    int n = 1 + draw(r, 3), I = 4 * (1 + draw(r, MOST_I / 4)), O = 1 + draw(r, MOST_O);
    for (int i = 0; i < n; i++)
        parts[i] = draw_part(d, r, draw_rows(r), I > O ? I : O);
    return pp_backend_linear_backward_weight(
        d->be, &(struct pp_linear_backward_weight){n, parts, I, O, (float)draw(r, 2), at,
                                                   draw(r, 2) ? at + O * I : NULL, 0});
}

static int call_conv(struct device *d, struct draws *r, float *at)
{
    struct pp_weight_part parts[3];
    int side = 4 << draw(r, 3), kernel = 1 + 2 * draw(r, 2), groups = 1 + draw(r, 2);
    int n = 1 + draw(r, 3), most = MOST_ROWS / side / side;
    struct pp_conv g = {side,   side,   4, side,       side,       8,
                        kernel, kernel, 1, kernel / 2, kernel / 2, groups};
    for (int i = 0; i < n; i++)
        parts[i] = draw_part(d, r, draw(r, 1 + most), 1); /* of samples */
    return pp_backend_conv_backward_weight(
        d->be, &(struct pp_conv_backward_weight){&g, n, parts, (float)draw(r, 2), d->scratch.at, at,
                                                 draw(r, 2) ? at + 300 : NULL});
}

static int call_norm(struct device *d, struct draws *r, float *at)
{
    int C = 1 + draw(r, MOST_I), rows = draw_rows(r);
    float beta = (float)draw(r, 2);
    if (draw(r, 2))
        return pp_backend_row_norm_backward_weight(
            d->be,
            &(struct pp_row_norm_backward_weight){rows, C, d->x.at, d->keep.at, d->dz.at, beta,
                                                  at + 8, draw(r, 2) ? at + 60 : NULL});
    return pp_backend_batch_norm_backward_weight(
        d->be, &(struct pp_batch_norm_backward_weight){
                   1 + rows / 4, 4, C, 1e-5f, d->keep.at, d->keep.at + 2 * MOST_I, beta, at,
                   at + MOST_I, at + 2 * MOST_I, at + 3 * MOST_I, at + 4 * MOST_I});
}

static int call_embedding(struct device *d, struct draws *r, float *at)
{
    return pp_backend_embedding_backward_weight(
        d->be, &(struct pp_embedding_backward_weight){.B = 1 + draw(r, 5),
                                                      .T = 8,
                                                      .V = 16,
                                                      .C = MOST_O,
                                                      .x = d->tokens.at,
                                                      .dy = d->dz.at,
                                                      .beta = (float)draw(r, 2),
                                                      .dW = at,
                                                      .dP = at + 16 * MOST_O});
}

/* Whatever else may read or write gradients. */
static int call_other(struct device *d, struct draws *r, float *at, float *second)
{
    switch (draw(r, 4)) {
    case 0:
        return pp_backend_zero(d->be, at, FLOATS / 2 * sizeof(*at));
    case 1:
        return at == second ? 0 : pp_backend_copy(d->be, at, second, FLOATS * sizeof(*at));
    case 2:
        return pp_backend_add(d->be, FLOATS, second, at);
    default: { /* dz, which calls that wait still read */
        float *dz = pp_value_at(d->be, d->dz.at, (size_t)draw(r, 1000));
        return pp_backend_zero(d->be, dz, 4 * sizeof(float));
    }
    }
}

/* What a sequence leaves in the gradients. */
static void run_sequence(enum pp_precision precision, bool exact, uint64_t seed, bool collects,
                         float *out)
{
    struct device d = open_device(precision, exact);
    struct draws r = {seed, 0};
    CHECK_OK(pp_backend_collect(d.be, collects ? PP_COLLECT_WEIGHTS : PP_COLLECT_NOTHING));
    for (int i = 0; i < 14; i++) {
        float *at = d.grads.at + draw(&r, GRADIENTS) * FLOATS;
        float *second = d.grads.at + draw(&r, GRADIENTS) * FLOATS;
        int kind = draw(&r, 8);
        CHECK_OK(kind < 3    ? call_linear(&d, &r, at)
                 : kind == 3 ? call_conv(&d, &r, at)
                 : kind < 6  ? call_norm(&d, &r, at)
                 : kind == 6 ? call_embedding(&d, &r, at)
                             : call_other(&d, &r, at, second));
    }
    CHECK_OK(pp_backend_collect(d.be, PP_COLLECT_NOTHING));
    CHECK_OK(pp_backend_to_host(d.be, out, d.grads.at, d.grads.n * sizeof(*out)));
    close_device(&d);
}

TEST(calls_that_wait_give_the_bits_of_calls_that_do_not_in_any_order)
{
    size_t n = (size_t)GRADIENTS * FLOATS;
    PP_OWN_MEMORY float *once = pp_alloc(n, sizeof(*once)), *each = pp_alloc(n, sizeof(*each));
    for (uint64_t seed = 1; seed <= 20; seed++) {
        enum pp_precision precision = seed % 2 ? PP_PRECISION_F32 : PP_PRECISION_BF16;
        run_sequence(precision, true, seed, false, each);
        run_sequence(precision, true, seed, true, once);
        for (size_t i = 0; i < n; i++)
            if (memcmp(&once[i], &each[i], sizeof(*once)) != 0)
                fail_msg("seed %d: gradient %zu[%zu] is %.9g where calls wait, else %.9g",
                         (int)seed, i / FLOATS, i % FLOATS, (double)once[i], (double)each[i]);
    }
}

/* Convolutions in two pieces (conv.c), of which the second has too few rows for slices: those of ResNets
 * at a micro-batch of so many samples, with fewer channels out. */
static const struct two_pieces {
    int side, C, stride, samples;
} two_pieces[] = {{8, 256, 1, 57}, {16, 128, 1, 29}, {16, 128, 2, 113}, {4, 256, 1, 256}};

static void check_two_pieces(struct pp_backend *be, struct pp_backend *plain,
                             const struct two_pieces *t)
{
    int out = t->side / t->stride;
    struct pp_conv g = {t->side, t->side, t->C, out, out, 8, 3, 3, t->stride, 1, 1, 1};
    size_t in = (size_t)t->samples * t->side * t->side * t->C;
    size_t to = (size_t)t->samples * out * out * 8, n = (size_t)8 * 9 * t->C;
    PP_OWN_MEMORY float *x = noise("x", in), *dz = noise("dz", to), *dW = nans(n);
    struct pp_weight_part part = {.B = t->samples, .dz = dz, .x = x};
    struct pp_conv_backward_weight a = {.g = &g, .n = 1, .parts = &part, .dW = dW};
    CHECK_OK(pp_backend_conv_backward_weight(plain, &a));
    struct array there = values_on_device(be, x, in, 0), dzs = values_on_device(be, dz, to, 0);
    struct array got = unset(be, n, 0);
    struct array scratch =
        on_device(be, NULL, pp_backend_conv_scratch_floats(&be->choice, &g, t->samples), 0);
    part = (struct pp_weight_part){.B = t->samples, .dz = dzs.at, .x = there.at};
    a.dW = got.at;
    a.scratch = scratch.at;
    CHECK_OK(pp_backend_collect(be, PP_COLLECT_WEIGHTS));
    CHECK_OK(pp_backend_conv_backward_weight(be, &a));
    CHECK_OK(pp_backend_collect(be, PP_COLLECT_NOTHING));
    check_near(be, &got, dW, 1e-5, "dW");
    struct array *all[] = {&there, &dzs, &got, &scratch};
    for (int i = 0; i < COUNT(all); i++)
        drop(be, all[i]);
}

TEST(a_convolution_in_pieces_of_unequal_rows_has_the_gradient_of_all_rows)
{
    PP_OWN(pp_backend_close) struct pp_backend *plain = open_backend("reference");
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(PP_PRECISION_F32, true);
    for (int i = 0; i < COUNT(two_pieces); i++)
        check_two_pieces(be, plain, &two_pieces[i]);
}

TEST(parts_of_unequal_rows_have_the_gradient_of_all_rows)
{
    enum {
        I = 16,
        O = 24,
        ROWS = 1524
    };
    PP_OWN(pp_backend_close) struct pp_backend *plain = open_backend("reference");
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(PP_PRECISION_F32, true);
    PP_OWN_MEMORY float *x = noise("x", ROWS * I), *dz = noise("dz", ROWS * O), *dW = nans(O * I);
    struct array there = values_on_device(be, x, ROWS * I, 0);
    struct array dzs = values_on_device(be, dz, ROWS * O, 0), got = unset(be, O * I, 0);
    const struct pp_weight_part all = {.B = ROWS, .dz = dz, .x = x},
                                parts[] = {{.B = 1024, .dz = dzs.at, .x = there.at},
                                           {.B = ROWS - 1024,
                                            .dz = dzs.at + 1024 * O,
                                            .x = there.at + 1024 * I}};
    CHECK_OK(pp_backend_linear_backward_weight(
        plain, &(struct pp_linear_backward_weight){1, &all, I, O, 0, dW, NULL, 0}));
    CHECK_OK(pp_backend_collect(be, PP_COLLECT_WEIGHTS));
    CHECK_OK(pp_backend_linear_backward_weight(
        be, &(struct pp_linear_backward_weight){2, parts, I, O, 0, got.at, NULL, 0}));
    CHECK_OK(pp_backend_collect(be, PP_COLLECT_NOTHING));
    check_near(be, &got, dW, 1e-5, "dW");
    struct array *arrays[] = {&there, &dzs, &got};
    for (int i = 0; i < COUNT(arrays); i++)
        drop(be, arrays[i]);
}

int main(void)
{
    int rc = no_gpu();
    return rc ? rc : tests_run(NULL, NULL);
}
