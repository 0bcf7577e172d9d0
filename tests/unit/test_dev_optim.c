/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers against PyTorch's (tests/golden/optim.txt, made by experiments/golden-optim.py). */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../src/dev/backend.h"
#include "ppcli/conf/config.h"

enum {
    N = 13,
    STEPS = 20
};

static float grads[STEPS][N], start[N];

/* strtod reads hexadecimal floats exactly; they were floats, so nothing is rounded. */
static void read_row(FILE *f, float *row)
{
    char word[64];
    for (int i = 0; i < N; i++) {
        assert_int_equal(fscanf(f, "%63s", word), 1);
        row[i] = (float)strtod(word, NULL);
    }
}

static FILE *open_golden(void)
{
    char path[4096], line[256], word[32];
    const char *dir = getenv("PPCLI_SOURCE_DIR");
    int n, steps;
    snprintf(path, sizeof(path), "%s/tests/golden/optim.txt", dir ? dir : ".");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof(line), f));
    assert_int_equal(fscanf(f, "%31s %d %d", word, &n, &steps), 3);
    assert_true(n == N && steps == STEPS);
    for (int s = 0; s < STEPS; s++)
        read_row(f, grads[s]);
    assert_int_equal(fscanf(f, "%31s %d", word, &n), 2);
    read_row(f, start);
    return f;
}

static int find_kind(const char *name)
{
#define PP_OPTIMIZER(NAME, word, moments)                                                          \
    if (strcmp(name, #word) == 0)                                                                  \
        return PP_OPT_##NAME;
#include "ppcli/conf/optimizers.def"
    fail_msg("tests/golden/optim.txt: unknown optimizer %s", name);
    return -1;
}

/* The gradients are given, so the error is rounding only: a few ulp a step, over 20 steps. */
static void compare_all(const char *backend)
{
    const struct pp_backend_ops *ops;
    PP_OWN(pp_backend_close) struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_resolve(backend, &ops));
    CHECK_OK(pp_backend_open(ops, 1, &be));
    FILE *f = open_golden();
    char word[32];
    int cases = 0;
    double worst = 0;
    while (fscanf(f, "%31s", word) == 1) {
        bool nesterov = !strcmp(word, "nesterov");
        struct pp_optimizer_args a = {
            .kind = find_kind(nesterov ? "momentum" : word), .grad_scale = 1, .nesterov = nesterov};
        float *to[] = {&a.lr, &a.momentum, &a.beta1, &a.beta2, &a.eps, &a.weight_decay};
        for (int i = 0; i < 6; i++) {
            assert_int_equal(fscanf(f, "%31s", word), 1);
            *to[i] = (float)strtod(word, NULL);
        }
        float p[N], m[N] = {0}, v[N] = {0}, want[N];
        memcpy(p, start, sizeof(p));
        for (a.step = 1; a.step <= STEPS; a.step++) {
            CHECK_OK(pp_backend_optimizer_step(
                be, &(struct pp_optimizer_step){N, &a, true, grads[a.step - 1], m, v, p}));
            if (a.step != 1 && a.step != 2 && a.step != 5 && a.step != STEPS)
                continue;
            read_row(f, want);
            for (int i = 0; i < N; i++) {
                double off = fabs(p[i] - (double)want[i]) / fmax(1, fabs((double)want[i]));
                worst = fmax(worst, off);
                if (!(off < 2e-6)) {
                    fail_msg("%s case %d step %d: p[%d] is %.9g, PyTorch has %.9g", backend, cases,
                             (int)a.step, i, (double)p[i], (double)want[i]);
                }
            }
        }
        cases++;
    }
    fclose(f);
    CHECK_INT_EQ(cases, 9);
    print_message("# %s: largest difference %.2g\n", backend, worst);
}

TEST(cpu_follows_pytorch_for_20_steps)
{
    compare_all("cpu");
}

TEST(reference_follows_pytorch_for_20_steps)
{
    compare_all("reference");
}

TEST(any_split_of_the_buffer_gives_the_same_bits)
{
    enum {
        LEN = 1001
    };
    const char *backends[] = {"cpu", "reference"};
    for (int b = 0; b < 2; b++) {
        const struct pp_backend_ops *ops;
        PP_OWN(pp_backend_close) struct pp_backend *be = NULL;
        CHECK_OK(pp_backend_resolve(backends[b], &ops));
        CHECK_OK(pp_backend_open(ops, 1, &be));
        for (int kind = 0; kind < PP_OPTIMIZERS; kind++) {
            struct pp_optimizer_args a = {kind,   0.01f, 0.9f,  0.9f,
                                          0.999f, 1e-8f, 0.01f, 0.5f,
                                          1,      false, 0,     kind == PP_OPT_MOMENTUM,
                                          0};
            static float g[LEN], p[2][LEN], m[2][LEN], v[2][LEN];
            memset(m, 0, sizeof(m));
            memset(v, 0, sizeof(v));
            for (int i = 0; i < LEN; i++) {
                g[i] = sinf((float)i * 0.37f);
                p[0][i] = p[1][i] = cosf((float)i);
            }
            for (a.step = 1; a.step <= 4; a.step++) {
                CHECK_OK(pp_backend_optimizer_step(
                    be, &(struct pp_optimizer_step){LEN, &a, true, g, m[0], v[0], p[0]}));
                for (int at = 0, piece = 1; at < LEN; at += piece, piece = piece * 2 + 1) {
                    int n = piece < LEN - at ? piece : LEN - at;
                    CHECK_OK(pp_backend_optimizer_step(
                        be, &(struct pp_optimizer_step){(size_t)n, &a, true, g + at, m[1] + at,
                                                        v[1] + at, p[1] + at}));
                }
            }
            assert_memory_equal(p[0], p[1], sizeof(p[0]));
            assert_memory_equal(m[0], m[1], sizeof(m[0]));
            assert_memory_equal(v[0], v[1], sizeof(v[0]));
        }
    }
}

TEST(a_scaled_gradient_is_the_scaled_step)
{
    const struct pp_backend_ops *ops;
    PP_OWN(pp_backend_close) struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_resolve("cpu", &ops));
    CHECK_OK(pp_backend_open(ops, 1, &be));
    float g[3] = {1, -2, 4}, p[3] = {0, 0, 0};
    struct pp_optimizer_args a = {.kind = PP_OPT_SGD, .lr = 0.5f, .grad_scale = 0.25f, .step = 1};
    CHECK_OK(
        pp_backend_optimizer_step(be, &(struct pp_optimizer_step){3, &a, true, g, NULL, NULL, p}));
    assert_float_equal(p[0], -0.125f, 0);
    assert_float_equal(p[1], 0.25f, 0);
    assert_float_equal(p[2], -0.5f, 0);
}

TEST(a_skipped_step_changes_nothing)
{
    static const char *const backends[] = {"cpu", "reference"};
    for (int b = 0; b < 2; b++) {
        const struct pp_backend_ops *ops;
        PP_OWN(pp_backend_close) struct pp_backend *be = NULL;
        CHECK_OK(pp_backend_resolve(backends[b], &ops));
        CHECK_OK(pp_backend_open(ops, 1, &be));
        for (int kind = 0; kind < PP_OPTIMIZERS; kind++) {
            float g[2] = {NAN, 1}, m[2] = {2, 2}, v[2] = {3, 3}, p[2] = {4, 4};
            struct pp_optimizer_args a = {
                .kind = kind, .lr = 1, .weight_decay = 1, .grad_scale = 1, .step = 1, .skip = true};
            CHECK_OK(pp_backend_optimizer_step(
                be, &(struct pp_optimizer_step){2, &a, true, g, m, v, p}));
            for (int i = 0; i < 2; i++) {
                assert_float_equal(m[i], 2, 0);
                assert_float_equal(v[i], 3, 0);
                assert_float_equal(p[i], 4, 0);
            }
        }
    }
}

/* Two replicas of two stages, three sums and a loss each: squares 1 + 4 + 4, so the norm is 3. */
struct trial {
    double votes[4][4];
    struct pp_loss_sums before, sums;
    struct pp_optimizer_args args;
    struct pp_step_verdict verdict;
    struct pp_judgement j;
};

static struct trial *trial(double clip_norm, bool halt)
{
    static struct trial t;
    t = (struct trial){
        .votes = {{1, 0, 0, 0}, {0, 4, 4, 2.5}, {1, 0, 0, 0}, {0, 4, 4, 2.25}},
        .before = {1, 2, 3},
        .sums = {10, 20, 30},
        .args = {.t = 7, .step = 7, .grad_scale = 1},
    };
    t.j = (struct pp_judgement){.ranks = 4,
                                .stages = 2,
                                .n = 3,
                                .clip_norm = clip_norm,
                                .halt = halt,
                                .votes = t.votes[0],
                                .before = &t.before,
                                .sums = &t.sums,
                                .args = &t.args,
                                .verdict = &t.verdict};
    return &t;
}

static struct pp_backend *reference(void)
{
    const struct pp_backend_ops *ops;
    struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_resolve("reference", &ops));
    CHECK_OK(pp_backend_open(ops, 1, &be));
    return be;
}

TEST(a_good_step_is_clipped_and_counted)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = reference();
    struct trial *t = trial(1.5, true);
    CHECK_OK(pp_backend_judge(be, &t->j));
    assert_true(t->verdict.norm == 3);
    assert_true(t->args.grad_scale == (float)(1.5 / (3 + 1e-6)));
    assert_true(t->verdict.grad_scale == t->args.grad_scale);
    assert_false(t->args.skip || t->verdict.skipped);
    CHECK_INT_EQ(t->verdict.step, 7);
    CHECK_INT_EQ(t->verdict.bad_step, 0);
    CHECK_INT_EQ(t->sums.rows, 30);
    t = trial(0, true);
    CHECK_OK(pp_backend_judge(be, &t->j));
    assert_true(t->args.grad_scale == 1);
}

/* Whatever value it is, of whatever rank: skipped everywhere, the loss of the step forgotten. */
TEST(one_bad_value_skips_the_step)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    PP_OWN(pp_backend_close) struct pp_backend *be = reference();
    for (int at = 0; at < 16; at++) {
        struct trial *t = trial(0, false);
        t->votes[at / 4][at % 4] = bad[at % 3];
        CHECK_OK(pp_backend_judge(be, &t->j));
        assert_true(t->args.skip && t->verdict.skipped);
        CHECK_INT_EQ(t->verdict.bad_step, 7);
        CHECK_INT_EQ(t->verdict.bad_rank, at / 4);
        CHECK_INT_EQ(t->verdict.bad_index, at % 4);
        assert_true(!isfinite(t->verdict.bad_value));
        CHECK_INT_EQ(t->sums.rows, 3);
        t->j.before = NULL; /* another rank's loss */
        t->j.sums = NULL;
        CHECK_OK(pp_backend_judge(be, &t->j));
    }
}

/* Adam keeps squares: where they may sum to 8, those of 9 are bad. */
TEST(squares_that_sum_to_more_than_they_may_skip_the_step)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = reference();
    for (int most = 8; most < 10; most++) {
        struct trial *t = trial(0, false);
        t->j.most = most;
        CHECK_OK(pp_backend_judge(be, &t->j));
        assert_true(t->args.skip == (most < 9));
        CHECK_INT_EQ(t->verdict.bad_step, most < 9 ? 7 : 0);
        assert_true(t->verdict.bad_value == (most < 9 ? 9 : 0));
    }
}

TEST(after_a_bad_step_training_halts_until_told)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = reference();
    for (int halt = 0; halt < 2; halt++) {
        struct trial *t = trial(0, halt == 1);
        t->votes[0][0] = NAN;
        CHECK_OK(pp_backend_judge(be, &t->j));
        t->votes[0][0] = 1;
        t->args.t = 8;
        CHECK_OK(pp_backend_judge(be, &t->j));
        assert_true(t->args.skip == (halt == 1));
        CHECK_INT_EQ(t->verdict.step, 8);
        CHECK_INT_EQ(t->verdict.bad_step, 7);
        t->verdict.bad_step = 0;
        CHECK_OK(pp_backend_judge(be, &t->j));
        assert_false(t->args.skip);
    }
}
