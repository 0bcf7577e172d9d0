/* SPDX-License-Identifier: Apache-2.0 */
/* Losses of numbers and of weighted classes: values and gradients of PyTorch in double precision,
 * and the same bits whichever loop and however many threads compute them. */
#include "dev_loops.h"

#define NEAR 1e-6

static void check_near(double got, double want)
{
    if (!(fabs(got - want) <= NEAR * fmax(1, fabs(want))))
        fail_msg("%.9g, expected %.9g", got, want);
}

/* torch.nn.MSELoss, L1Loss, HuberLoss and BCEWithLogitsLoss of `outputs`. */
static const float outputs[] = {0.5f, -1.25f, 2, 0.25f, -3, 1.5f};
static const float targets[] = {0.25f, -3, 2, 1, 1, 0}, yes[] = {0, 1, 1, 0, 1, 0.5f};
static const struct {
    enum pp_loss_kind kind;
    double loss, slopes[6];
} known[] = {
    {PP_LOSS_MSE,
     3.65625,
     {0.0833333333333333, 0.583333333333333, 0, -0.25, -1.33333333333333, 0.5}},
    {PP_LOSS_MAE,
     1.375,
     {0.166666666666667, 0.166666666666667, 0, -0.166666666666667, -0.166666666666667,
      0.166666666666667}},
    {PP_LOSS_HUBER,
     1.01041666666667,
     {0.0416666666666667, 0.166666666666667, 0, -0.125, -0.166666666666667, 0.166666666666667}},
    {PP_LOSS_BCE,
     1.2381456876673,
     {0.103743221866976, -0.129549976862449, -0.0198671536703529, 0.0936960834809663,
      -0.158762354470406, 0.0529290793656073}},
};

TEST(losses_of_numbers_are_those_of_pytorch)
{
    const char *names[] = {"reference", "cpu"};
    for (int i = 0; i < 2 * COUNT(known); i++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[i % 2]);
        struct pp_loss_sums sums = {0};
        float slopes[6];
        const struct pp_numbers_loss l = {.B = 3,
                                          .C = 2,
                                          .kind = known[i / 2].kind,
                                          .outputs = outputs,
                                          .targets =
                                              known[i / 2].kind == PP_LOSS_BCE ? yes : targets,
                                          .grad_scale = 1.0f / 6,
                                          .sums = &sums,
                                          .doutputs = slopes};
        CHECK_OK(pp_backend_numbers_loss(be, &l));
        check_near(pp_loss_sums_loss(&sums), known[i / 2].loss);
        for (int k = 0; k < 6; k++)
            check_near(slopes[k], known[i / 2].slopes[k]);
        CHECK_INT_EQ(sums.rows, 3);
        CHECK_INT_EQ(sums.targets, 6);
        CHECK_INT_EQ(sums.correct, l.kind == PP_LOSS_BCE ? 1 : 0);
        if (l.kind != PP_LOSS_BCE) { /* what R2 and the errors are computed from */
            check_near(sums.squares, 21.9375);
            check_near(sums.absolutes, 8.25);
            check_near(sums.sum, 1.25);
            check_near(sums.sum_squares, 15.0625);
        }
    }
}

/* torch.nn.CrossEntropyLoss(weight, label_smoothing), whose mean is over the weights. */
TEST(weights_of_classes_are_those_of_pytorch)
{
    static const float logits[] = {0.5f, -1.25f, 2, 0.25f, -3, 1.5f, 1, 0, -1, 0.1f, 0.2f, 0.3f};
    static const int32_t classes[] = {0, 2, 1, 1};
    static const float weights[] = {0.5f, 2, 1.25f};
    static const struct {
        float smoothing;
        double loss, slopes[12];
    } weighted[] = {
        {0,
         1.0801856364722,
         {-0.0715808537297875, 0.00267189046316839, 0.0689089632666191, 0.0479986046759149,
          0.00186110787333659, -0.0498597125492515, 0.231388158530373, -0.262703140502679,
          0.0313149819723062, 0.104559862732427, -0.232269567466662, 0.127709704734235}},
        {0.1f,
         1.139182243043,
         {-0.0634774020791107, -0.00852152886590708, 0.0719989309450177, 0.0451000539512772,
          -0.00973309502521414, -0.0353669589260631, 0.219812551860846, -0.242706845197597,
          0.0228942933367506, 0.0977403171553232, -0.21341453115043, 0.115674213995107}},
    };
    const char *names[] = {"reference", "cpu"};
    for (int i = 0; i < 2 * COUNT(weighted); i++) {
        PP_OWN(pp_backend_close) struct pp_backend *be = open_backend(names[i % 2]);
        struct pp_loss_sums sums = {0};
        float slopes[12];
        const struct pp_softmax_cross_entropy l = {.B = 4,
                                                   .P = 1,
                                                   .C = 3,
                                                   .logits = logits,
                                                   .targets = classes,
                                                   .grad_scale = 1.0f / 5.75f,
                                                   .smoothing = weighted[i / 2].smoothing,
                                                   .sums = &sums,
                                                   .dlogits = slopes,
                                                   .weights = weights};
        CHECK_OK(pp_backend_softmax_cross_entropy(be, &l));
        check_near(sums.weight, 5.75);
        check_near(pp_loss_sums_loss(&sums), weighted[i / 2].loss);
        for (int k = 0; k < 12; k++)
            check_near(slopes[k], weighted[i / 2].slopes[k]);
    }
}

/* Weights of 1 are no weights, to the last bit of a gradient. */
TEST(weights_of_1_change_nothing)
{
    enum {
        B = 40,
        C = 37
    };
    PP_OWN(pp_backend_close) struct pp_backend *be = open_backend("cpu");
    PP_OWN_MEMORY float *logits = noise("logits", B * C);
    float slopes[2][B * C], ones[C];
    int32_t classes[B];
    for (int i = 0; i < B; i++)
        classes[i] = i * 11 % C;
    for (int c = 0; c < C; c++)
        ones[c] = 1;
    struct pp_loss_sums sums[2] = {{0}};
    for (int w = 0; w < 2; w++) {
        const struct pp_softmax_cross_entropy l = {.B = B,
                                                   .P = 1,
                                                   .C = C,
                                                   .logits = logits,
                                                   .targets = classes,
                                                   .grad_scale = 1.0f / B,
                                                   .sums = &sums[w],
                                                   .dlogits = slopes[w],
                                                   .weights = w ? ones : NULL};
        CHECK_OK(pp_backend_softmax_cross_entropy(be, &l));
    }
    assert_memory_equal(slopes[0], slopes[1], sizeof(slopes[0]));
    assert_true(sums[0].loss == sums[1].loss && sums[0].weight == sums[1].weight);
}

/* More rows than a piece has, on the loop of every instruction set. */
TEST(every_loop_gives_the_bits_of_every_other)
{
    enum {
        B = 700,
        C = 5
    };
    PP_OWN_MEMORY float *y = noise("outputs", B * C);
    PP_OWN_MEMORY float *t = noise("targets", B * C);
    for (int kind = PP_LOSS_MSE; kind <= PP_LOSS_BCE; kind++) {
        struct pp_loss_sums first = {0};
        float slopes[2][B * C];
        for (int i = 0; cpu_kernels_runnable(i); i++) {
            struct pp_loss_sums sums = {0};
            const struct pp_numbers_loss l = {.B = B,
                                              .C = C,
                                              .kind = (enum pp_loss_kind)kind,
                                              .outputs = y,
                                              .targets = t,
                                              .grad_scale = 0.01f,
                                              .sums = &sums,
                                              .doutputs = slopes[i > 0]};
            cpu_numbers_loss(cpu_kernels_runnable(i), NULL, &l);
            first = i == 0 ? sums : first;
            assert_memory_equal(&sums, &first, sizeof(sums));
            assert_memory_equal(slopes[i > 0], slopes[0], sizeof(slopes[0]));
        }
    }
}
