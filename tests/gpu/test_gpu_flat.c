/* SPDX-License-Identifier: Apache-2.0 */
/* The ops that are no products, marks and graphs, on a device against the plain ops. */
#include "gpu.h"
#include "ppcli/optimizers.h"

#define TIGHT 1e-5 /* f32 against double, of the largest element */

/* Of whole numbers of two and four bytes: samples that overlap. */
static void windows_are_gathered(struct pp_backend *be, struct pp_backend *plain, void *there,
                                 const uint32_t *numbers, const uint32_t *index)
{
    const uint32_t data[] = {1, 60000, 70000, 3, 0xffffff, 5, 0, 7, 8};
    const struct pp_scaling as_they_are = {.scale = {1}};
    CHECK_OK(pp_backend_to_device(be, there, data, sizeof(data)));
    for (int wide = 0; wide < 2; wide++) {
        enum pp_element element = wide ? PP_U32 : PP_U16;
        float want[15];
        int32_t next[15], got[15];
        void *targets;
        struct array x = unset(be, 15, wide);
        CHECK_OK(pp_backend_alloc(be, sizeof(got), &targets));
        struct pp_gather g = {5, 3, there, element, 1, numbers, as_they_are, x.at, true};
        struct pp_targets t = {5, 3, there, element, 1, 1, numbers, targets, 6};
        CHECK_OK(pp_backend_gather(be, &g));
        CHECK_OK(pp_backend_targets(be, &t));
        g = (struct pp_gather){5, 3, data, element, 1, index, as_they_are, want, true};
        t = (struct pp_targets){5, 3, data, element, 1, 1, index, next, 6};
        CHECK_OK(pp_backend_gather(plain, &g));
        CHECK_OK(pp_backend_targets(plain, &t));
        check_near(be, &x, want, 0, "windows");
        CHECK_OK(pp_backend_to_host(be, got, targets, sizeof(got)));
        assert_memory_equal(got, next, sizeof(got));
        drop(be, &x);
        pp_backend_free(be, targets, sizeof(got));
    }
}

static void check_gathers(enum pp_precision precision, double part)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(precision, true);
    PP_OWN(pp_backend_close) struct pp_backend *plain = open_backend("reference");
    const int widths[] = {1, 3, 4, 12, 784};
    const uint32_t index[] = {4, 0, 2, 2, 3};
    for (int w = 0; w < COUNT(widths); w++) {
        int F = widths[w];
        uint8_t data[5 * 784], labels[] = {9, 8, 7, 6, 5, 4};
        int32_t got[10];
        float want[5 * 784];
        void *there, *numbers, *classes, *chosen;
        for (int i = 0; i < 5 * F; i++)
            data[i] = (uint8_t)(i * 37 + F);
        CHECK_OK(pp_backend_alloc(be, sizeof(data), &there));
        CHECK_OK(pp_backend_alloc(be, sizeof(index), &numbers));
        CHECK_OK(pp_backend_alloc(be, sizeof(labels), &classes));
        CHECK_OK(pp_backend_alloc(be, sizeof(got), &chosen));
        CHECK_OK(pp_backend_to_device(be, there, data, sizeof(data)));
        CHECK_OK(pp_backend_to_device(be, numbers, index, sizeof(index)));
        CHECK_OK(pp_backend_to_device(be, classes, labels, sizeof(labels)));
        struct array x = unset_values(be, (size_t)5 * F, w % 2);
        struct pp_gather bytes = {
            5, F, there, PP_U8, (size_t)F, numbers, {.scale = {1.0f / 255}}, x.at, false};
        struct pp_gather here = {5,    F,    data, PP_U8, (size_t)F, index, {.scale = {1.0f / 255}},
                                 want, false};
        CHECK_OK(pp_backend_gather(be, &bytes));
        CHECK_OK(pp_backend_gather(plain, &here));
        check_near(be, &x, want, part, "x");
        struct array y = unset_values(be, (size_t)5 * F, w % 2);
        struct array z = on_device(be, want, (size_t)5 * F, 0);
        float twice[5 * 784];
        struct pp_gather floats = {5,    F,    z.at, PP_F32, (size_t)F, numbers, {.scale = {2}},
                                   y.at, false};
        CHECK_OK(pp_backend_gather(be, &floats));
        here =
            (struct pp_gather){5, F, want, PP_F32, (size_t)F, index, {.scale = {2}}, twice, false};
        CHECK_OK(pp_backend_gather(plain, &here));
        check_near(be, &y, twice, part, "y");
        floats.index = here.index = NULL; /* the rows as they are, a channel each number */
        floats.scaling = here.scaling =
            (struct pp_scaling){F % 3 == 0 ? 3 : 1, {2, -3.3f, 0.7f}, {0.1f, 100, -0.3f}};
        CHECK_OK(pp_backend_gather(be, &floats));
        CHECK_OK(pp_backend_gather(plain, &here));
        check_near(be, &y, twice, part, "normalised");
        drop(be, &y);
        drop(be, &z);
        struct pp_targets t = {5, 2, classes, PP_U8, 1, 0, numbers, chosen, 0};
        CHECK_OK(pp_backend_targets(be, &t));
        CHECK_OK(pp_backend_to_host(be, got, chosen, sizeof(got)));
        for (int r = 0; r < 10; r++)
            CHECK_INT_EQ(got[r], labels[index[r / 2] + (uint32_t)r % 2]);
        windows_are_gathered(be, plain, there, numbers, index);
        CHECK_OK(pp_backend_gather(be, &(struct pp_gather){.F = F}));
        CHECK_OK(pp_backend_targets(be, &(struct pp_targets){.P = 1}));
        drop(be, &x);
        pp_backend_free(be, there, sizeof(data));
        pp_backend_free(be, numbers, sizeof(index));
        pp_backend_free(be, classes, sizeof(labels));
        pp_backend_free(be, chosen, sizeof(got));
    }
}

/* Tokens, of which bfloat16 could not tell large ones apart, are exact in every precision. */
TEST(gathers_take_the_chosen_rows)
{
    check_gathers(PP_PRECISION_F32, 0);
    check_gathers(PP_PRECISION_BF16, 0.5 / 128);
}

static void check_activations(enum pp_precision precision, double part)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(precision, true);
    PP_OWN(pp_backend_close) struct pp_backend *plain = open_backend("reference");
    const size_t sizes[] = {1, 4, 7, 1024, 4099};
    for (int s = 0; s < COUNT(sizes); s++) {
        for (int a = 0; a < COUNT(activations); a++) {
            size_t n = sizes[s];
            float *y = noise("y", n), *z = noise("z", n), *dy = noise("dy", n);
            dy[0] = NAN;
            y[0] = -0.5f; /* where relu gave no more than 0 the gradient is 0 whatever comes in */
            struct array dey = values_on_device(be, y, n, s % 2);
            struct array dez = values_on_device(be, z, n, 0);
            struct array ded = values_on_device(be, dy, n, s % 2);
            CHECK_OK(back_in_place(be, n, activations[a], saved_of(activations[a], dey.at, dez.at),
                                   ded.at));
            CHECK_OK(back_in_place(plain, n, activations[a], saved_of(activations[a], y, z), dy));
            check_near(be, &ded, dy, part, "dz");
            /* not in place: added to another array; forward; the sum of the two, with relu */
            struct array dex = values_on_device(be, y, n, s % 2);
            struct array deo = unset_values(be, n, s % 2);
            struct pp_activate_backward back = {n, activations[a], dez.at, dez.at, true, dex.at};
            struct pp_activate forth = {n, activations[a], dez.at, deo.at};
            struct pp_sum both = {n, dez.at, dex.at, true, dex.at, false};
            float *out = noise("out", n);
            CHECK_OK(pp_backend_activate_backward(be, &back));
            CHECK_OK(pp_backend_activate_forward(be, &forth));
            CHECK_OK(pp_backend_sum(be, &both));
            back.saved = back.dy = forth.x = both.a = z;
            back.dx = both.y = y;
            both.b = y;
            forth.y = out;
            CHECK_OK(pp_backend_activate_backward(plain, &back));
            CHECK_OK(pp_backend_activate_forward(plain, &forth));
            CHECK_OK(pp_backend_sum(plain, &both));
            check_near(be, &deo, out, part, "y");
            check_near(be, &dex, y, part, "sum");
            drop(be, &dex);
            drop(be, &deo);
            pp_free(out);
            drop(be, &dey);
            drop(be, &dez);
            drop(be, &ded);
            pp_free(y);
            pp_free(z);
            pp_free(dy);
        }
    }
}

TEST(activations_go_forth_and_back_as_the_plain_ones_do)
{
    for (int p = 0; p < COUNT(precisions); p++)
        check_activations(precisions[p].precision, precisions[p].part);
}

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
    struct pp_loss_sums before = {1.5, 2, 3, 4}, sums = before, got;
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

TEST(sums_of_buffers_are_those_of_the_formulas)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(PP_PRECISION_F32, true);
    PP_OWN(pp_backend_close) struct pp_backend *plain = open_backend("reference");
    const size_t sizes[] = {0, 1, 3, 4, 257, 4096, 4097, 100003};
    for (int s = 0; s < COUNT(sizes); s++) {
        size_t n = sizes[s];
        PP_OWN_MEMORY float *a = noise("a", n), *g = noise("g", n);
        struct array dea = on_device(be, a, n, 0), deg = on_device(be, g, n, 0);
        struct array elsewhere = on_device(be, g, n, 1);
        double want, got[2];
        void *there;
        CHECK_OK(pp_backend_alloc(be, sizeof(got), &there));
        CHECK_OK(pp_backend_sum_squares(plain, &(struct pp_sum_squares){n, g, &want}));
        CHECK_OK(pp_backend_sum_squares(be, &(struct pp_sum_squares){n, deg.at, there}));
        CHECK_OK(pp_backend_sum_squares(
            be, &(struct pp_sum_squares){n, elsewhere.at, (double *)there + 1}));
        CHECK_OK(pp_backend_to_host(be, got, there, sizeof(got)));
        assert_true(fabs(got[0] - want) <= 1e-12 * want);
        assert_true(got[0] == got[1]);
        CHECK_OK(pp_backend_add(be, n, dea.at, deg.at));
        CHECK_OK(pp_backend_add(be, n, dea.at, elsewhere.at));
        CHECK_OK(pp_backend_add(plain, n, a, g));
        check_near(be, &deg, g, 1e-7, "g");
        check_same_bits(be, &deg, &elsewhere, "g");
        pp_backend_free(be, there, sizeof(got));
        drop(be, &dea);
        drop(be, &deg);
        drop(be, &elsewhere);
    }
}

static void upload_args(struct pp_backend *be, struct pp_optimizer_args *there,
                        const struct pp_optimizer_args *args)
{
    CHECK_OK(pp_backend_to_device(be, there, args, sizeof(*args)));
}

/* Steps on the device, over the buffer at once and in two unequal parts, and plain ones. */
static void check_optimizer(struct pp_backend *be, struct pp_backend *plain, size_t n, int kind,
                            bool nesterov, bool decay)
{
    struct pp_optimizer_args args = {.kind = kind,
                                     .nesterov = nesterov,
                                     .lr = 0.01f,
                                     .momentum = 0.9f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.999f,
                                     .eps = 1e-8f,
                                     .weight_decay = 0.1f,
                                     .grad_scale = 0.7f};
    float *zeros = pp_alloc(n, sizeof(*zeros)), *g = noise("g", n), *p = noise("p", n);
    PP_OWN_MEMORY float *m = pp_alloc(n, sizeof(*m)), *v = pp_alloc(n, sizeof(*v));
    bool has_m = pp_optimizer_moments(kind) > 0, has_v = pp_optimizer_moments(kind) > 1;
    struct array deg = on_device(be, g, n, 0);
    struct array dep[2], dem[2], dev[2];
    for (int k = 0; k < 2; k++) {
        dep[k] = on_device(be, p, n, k);
        dem[k] = on_device(be, zeros, n, k);
        dev[k] = on_device(be, zeros, n, k);
    }
    void *there;
    CHECK_OK(pp_backend_alloc(be, sizeof(args), &there));
    size_t cut = n / 3 + 1 < n ? n / 3 + 1 : n;
    for (args.step = 1; args.step <= 4; args.step++) {
        args.skip = args.step == 3;
        upload_args(be, there, &args);
        CHECK_OK(pp_backend_optimizer_step(
            plain, &(struct pp_optimizer_step){n, &args, decay, g, has_m ? m : NULL,
                                               has_v ? v : NULL, p}));
        CHECK_OK(pp_backend_optimizer_step(
            be, &(struct pp_optimizer_step){n, there, decay, deg.at, has_m ? dem[0].at : NULL,
                                            has_v ? dev[0].at : NULL, dep[0].at}));
        for (int part = 0; part < 2; part++) {
            size_t at = part ? cut : 0, count = part ? n - cut : cut;
            CHECK_OK(pp_backend_optimizer_step(
                be, &(struct pp_optimizer_step){count, there, decay, deg.at + at,
                                                has_m ? dem[1].at + at : NULL,
                                                has_v ? dev[1].at + at : NULL, dep[1].at + at}));
        }
    }
    check_near(be, &dep[0], p, TIGHT, "p");
    check_near(be, &dem[0], m, TIGHT, "m");
    check_near(be, &dev[0], v, TIGHT, "v");
    check_same_bits(be, &dep[0], &dep[1], "p of parts");
    pp_backend_free(be, there, sizeof(args));
    drop(be, &deg);
    for (int k = 0; k < 2; k++) {
        drop(be, &dep[k]);
        drop(be, &dem[k]);
        drop(be, &dev[k]);
    }
    pp_free(zeros);
    pp_free(g);
    pp_free(p);
}

TEST(optimizers_step_as_the_plain_ones_do_however_the_buffer_is_split)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(PP_PRECISION_F32, true);
    PP_OWN(pp_backend_close) struct pp_backend *plain = open_backend("reference");
    const size_t sizes[] = {1, 8, 1000, 4099};
    for (int s = 0; s < COUNT(sizes); s++)
        for (int kind = 0; kind < PP_OPTIMIZERS; kind++)
            for (int nesterov = 0; nesterov <= (kind == PP_OPT_MOMENTUM); nesterov++)
                check_optimizer(be, plain, sizes[s], kind, nesterov, s % 2);
}

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
        upload_args(be, there, &args);
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

/* ---- verdicts */

struct judged {
    struct pp_loss_sums before, sums;
    struct pp_optimizer_args args;
    struct pp_step_verdict verdict;
};

static void check_verdict(struct pp_backend *be, struct pp_backend *plain, int n, int bad,
                          double clip_norm, double most)
{
    int ranks = 4, columns = n + 1;
    size_t bytes = (size_t)(ranks * columns) * sizeof(double);
    PP_OWN_MEMORY double *votes = pp_alloc((size_t)ranks * (size_t)columns, sizeof(*votes));
    for (int i = 0; i < ranks * columns; i++)
        votes[i] = (i * 7 % 11) / 3.0;
    if (bad >= 0)
        votes[bad] = bad % 2 ? NAN : -INFINITY;
    struct judged want = {.before = {1, 2, 3}, .sums = {10, 20, 30}, .args = {.step = 7, .t = 9}};
    struct judged got = want;
    void *there, *ballots;
    CHECK_OK(pp_backend_alloc(be, sizeof(got), &there));
    CHECK_OK(pp_backend_alloc(be, bytes, &ballots));
    CHECK_OK(pp_backend_to_device(be, there, &got, sizeof(got)));
    CHECK_OK(pp_backend_to_device(be, ballots, votes, bytes));
    for (int device = 0; device < 2; device++) {
        struct judged *d = device ? there : &want;
        struct pp_judgement j = {.ranks = ranks,
                                 .stages = 2,
                                 .n = n,
                                 .clip_norm = clip_norm,
                                 .most = most,
                                 .halt = true,
                                 .votes = device ? ballots : votes,
                                 .before = &d->before,
                                 .sums = &d->sums,
                                 .args = &d->args,
                                 .verdict = &d->verdict};
        CHECK_OK(pp_backend_judge(device ? be : plain, &j));
    }
    CHECK_OK(pp_backend_to_host(be, &got, there, sizeof(got)));
    CHECK_INT_EQ(got.args.skip, bad >= 0 || most > 0);
    assert_true(bad >= 0 || got.verdict.bad_value == want.verdict.bad_value);
    CHECK_INT_EQ(got.args.skip, want.args.skip);
    CHECK_INT_EQ(got.verdict.bad_step, want.verdict.bad_step);
    CHECK_INT_EQ(got.verdict.bad_rank, want.verdict.bad_rank);
    CHECK_INT_EQ(got.verdict.bad_index, want.verdict.bad_index);
    CHECK_INT_EQ(got.verdict.step, want.verdict.step);
    assert_memory_equal(&got.verdict.norm, &want.verdict.norm, isnan(want.verdict.norm) ? 0 : 8);
    assert_true(got.args.grad_scale == want.args.grad_scale);
    assert_true(got.sums.loss == want.sums.loss && got.sums.rows == want.sums.rows);
    pp_backend_free(be, there, sizeof(got));
    pp_backend_free(be, ballots, bytes);
}

TEST(verdicts_are_those_of_the_host_to_the_bit)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = open_gpu(PP_PRECISION_F32, true);
    PP_OWN(pp_backend_close) struct pp_backend *plain = open_backend("reference");
    const int sizes[] = {1, 3, 300, 700};
    for (int s = 0; s < COUNT(sizes); s++) {
        int n = sizes[s], all = 4 * (n + 1);
        const int bad[] = {-1, 0, n, all / 2, all - 1};
        for (int b = 0; b < COUNT(bad); b++) {
            check_verdict(be, plain, n, bad[b], 0, 0);
            check_verdict(be, plain, n, bad[b], 0.5, 0);
            check_verdict(be, plain, n, bad[b], 0, 0.1); /* less than the squares */
        }
    }
}

int main(void)
{
    int rc = no_gpu();
    return rc ? rc : tests_run(NULL, NULL);
}
