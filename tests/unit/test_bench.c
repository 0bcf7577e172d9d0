/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmark's verdict and its arithmetic, without measuring anything. */
#include "test.h"

#include <math.h>
#include <stdio.h>

#include "../../src/bench/bench.h"

#define SHA_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define SHA_B "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"

static void check_near(double found, double expected, double by)
{
    if (!(fabs(found - expected) <= by))
        fail_msg("%.17g, expected %.17g", found, expected);
}

static struct pp_bench_sample sample(const char *sha, double loss, double sps)
{
    struct pp_bench_sample s = {.valid = true, .loss = loss, .samples_per_second = sps};
    s.step_p50 = s.step_p99 = 1 / sps;
    memcpy(s.sha, sha, 65);
    return s;
}

/* ---- the verdict */

TEST(the_same_bits_pass)
{
    char why[PP_BENCH_WHY_MAX];
    struct pp_bench_sample a = sample(SHA_A, 0.5, 1), b = sample(SHA_A, 0.5, 9);
    CHECK_INT_EQ(pp_bench_judge(&a, &b, true, why), 0);
}

TEST(one_other_bit_is_found)
{
    char why[PP_BENCH_WHY_MAX];
    struct pp_bench_sample a = sample(SHA_B, 0.5, 1), b = sample(SHA_A, 0.5, 1);
    CHECK_INT_EQ(pp_bench_judge(&a, &b, true, why), -1);
    assert_non_null(strstr(why, "other weights than the run with one stage"));
}

TEST(a_run_without_a_digest_does_not_pass)
{
    char why[PP_BENCH_WHY_MAX];
    struct pp_bench_sample a = {.loss = 0.5}, b = {.loss = 0.5};
    CHECK_INT_EQ(pp_bench_judge(&a, &b, true, why), -1);
}

TEST(a_loss_that_is_no_number_does_not_pass)
{
    char why[PP_BENCH_WHY_MAX];
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        struct pp_bench_sample a = sample(SHA_A, bad[i], 1), b = sample(SHA_A, bad[i], 1);
        CHECK_INT_EQ(pp_bench_judge(&a, &b, true, why), -1);
        CHECK_INT_EQ(pp_bench_judge(&a, &b, false, why), -1);
        CHECK_STR_EQ(why, "the loss is not finite");
    }
}

TEST(inexact_rows_are_compared_by_their_loss)
{
    char why[PP_BENCH_WHY_MAX];
    struct pp_bench_sample ref = sample(SHA_A, 2.0, 1);
    struct pp_bench_sample near = sample(SHA_B, 2.0 + 1.9e-4, 1);
    struct pp_bench_sample far = sample(SHA_B, 2.0 - 2.1e-4, 1);
    CHECK_INT_EQ(pp_bench_judge(&near, &ref, false, why), 0);
    CHECK_INT_EQ(pp_bench_judge(&far, &ref, false, why), -1);
    assert_non_null(strstr(why, "the last loss is 1.99979"));
}

/* ---- figures */

enum {
    ROUNDS = 3
};

struct case_of_two {
    struct pp_bench_sample samples[2][ROUNDS];
    struct pp_bench_row rows[2], references[1];
    int reference_row[1];
    struct pp_bench b;
};

/* A run with one stage, and one with two that is 1.5, 1.6 and 1.8 times as fast in its round. */
static void two_rows(struct case_of_two *c)
{
    static const double one[ROUNDS] = {100, 200, 100}, two[ROUNDS] = {150, 320, 180};
    *c = (struct case_of_two){.reference_row = {0}};
    for (int k = 0; k < ROUNDS; k++) {
        c->samples[0][k] = sample(SHA_A, 0.5, one[k]);
        c->samples[1][k] = sample(SHA_A, 0.5, two[k]);
    }
    for (int i = 0; i < 2; i++) {
        c->rows[i] = (struct pp_bench_row){.stages = i + 1,
                                           .ranks = i + 1,
                                           .threads = 1,
                                           .replicas = 1,
                                           .microbatches = 4,
                                           .batch = 32,
                                           .exact = true,
                                           .flops = 1e6,
                                           .samples = c->samples[i]};
    }
    c->b = (struct pp_bench){.repeat = ROUNDS,
                             .rows = c->rows,
                             .n = 2,
                             .references = c->references,
                             .reference_row = c->reference_row,
                             .n_references = 1,
                             .ceilings = {.cores = 2, .gemm_core = 1e9, .gemm_all = 1.8e9}};
}

TEST(ratios_are_medians_of_the_rounds)
{
    struct case_of_two c;
    struct pp_bench_figures f;
    two_rows(&c);
    pp_bench_figures(&c.b, &c.rows[1], &f);
    assert_true(f.valid);
    check_near(f.x1, 1.6, 1e-12);
    check_near(f.relative, 1.6, 1e-12);
    check_near(f.sps_mean, 650.0 / 3, 1e-9);
    check_near(f.sps_sd, 90.7377, 1e-3);
    check_near(f.step_p50, 1.0 / 180, 1e-12);
    check_near(f.of_peak, 180 * 1e6 / 1.8e9, 1e-12);
}

TEST(one_wrong_round_takes_all_speed_away)
{
    struct case_of_two c;
    struct pp_bench_figures f;
    two_rows(&c);
    c.samples[1][1].valid = false;
    pp_bench_figures(&c.b, &c.rows[1], &f);
    assert_false(f.valid);
    CHECK_INT_EQ(f.sps_mean == 0 && f.x1 == 0 && f.relative == 0, 1);
    CHECK_INT_EQ(pp_bench_invalid(&c.b), 1);
}

TEST(a_wrong_first_row_is_nothing_to_be_relative_to)
{
    struct case_of_two c;
    struct pp_bench_figures f;
    two_rows(&c);
    snprintf(c.rows[0].invalid, sizeof(c.rows[0].invalid), "round 1: wrong");
    pp_bench_figures(&c.b, &c.rows[1], &f);
    check_near(f.relative, 1, 1e-12);
    check_near(f.x1, 0, 0);
}

TEST(skipped_rows_are_not_invalid)
{
    struct case_of_two c;
    two_rows(&c);
    snprintf(c.rows[1].skipped, sizeof(c.rows[1].skipped), "too many stages");
    c.rows[1].samples = NULL;
    CHECK_INT_EQ(pp_bench_invalid(&c.b), 0);
}

TEST(the_peak_is_that_of_the_cores_in_use)
{
    struct pp_ceilings c = {.cores = 4, .gemm_core = 10, .gemm_all = 32};
    check_near(pp_ceiling_gemm(&c, 1), 10, 0);
    check_near(pp_ceiling_gemm(&c, 2), 16, 0);
    check_near(pp_ceiling_gemm(&c, 4), 32, 0);
    check_near(pp_ceiling_gemm(&c, 9), 32, 0);
    check_near(pp_ceiling_gemm(&(struct pp_ceilings){0}, 2), 0, 0);
    c = (struct pp_ceilings){.cores = 4, .triad_core = 10, .triad_all = 25};
    check_near(pp_ceiling_memory(&c, 2), 20, 0);
    check_near(pp_ceiling_memory(&c, 3), 25, 0);
}

/* 180 samples a second on two cores, which could have 1e9 flops and 1e8 bytes. */
TEST(the_nearer_ceiling_limits)
{
    struct case_of_two c;
    struct pp_bench_figures f;
    two_rows(&c);
    c.rows[1].bytes = 3e5;
    pp_bench_figures(&c.b, &c.rows[1], &f);
    CHECK_STR_EQ(f.limit, "");
    c.b.ceilings = (struct pp_ceilings){
        .cores = 2, .gemm_core = 5e8, .gemm_all = 1e9, .triad_core = 9e7, .triad_all = 1e8};
    pp_bench_figures(&c.b, &c.rows[1], &f);
    check_near(f.flops, 180e6, 1e-3);
    check_near(f.bytes, 54e6, 1e-3);
    CHECK_STR_EQ(f.limit, "memory");
    check_near(f.of_limit, 0.54, 1e-12);
    c.rows[1].bytes = 1e4;
    pp_bench_figures(&c.b, &c.rows[1], &f);
    CHECK_STR_EQ(f.limit, "arithmetic");
    check_near(f.of_limit, 0.18, 1e-12);
}

/* ---- confidence */

/* By hand: logs of {100, 110} have mean 4.652826 and variance 4.54195e-3, those of twice that the
 * same variance; df = 2, t = 4.302653, so the interval is 2 * exp(+- 4.302653 * 0.067394). */
TEST(the_interval_is_welchs)
{
    const double a[] = {100, 110}, b[] = {200, 220};
    double change, low, high;
    assert_true(pp_bench_change(a, 2, b, 2, &change, &low, &high));
    double reach = 4.302652730 * 0.5 * log(1.1) * sqrt(2.0);
    check_near(change, 1, 1e-12);
    check_near(low, 2 * exp(-reach) - 1, 1e-6);
    check_near(high, 2 * exp(reach) - 1, 1e-6);
}

/* Unequal variances: df = (v + w)^2 / (v^2/2 + w^2/4), by the tables of Student's t. */
TEST(unequal_variances_have_fewer_degrees_of_freedom)
{
    double a[3], b[5], change, low, high;
    for (int i = 0; i < 3; i++)
        a[i] = exp(0.01 * (i - 1));
    for (int i = 0; i < 5; i++)
        b[i] = exp(0.1 + 0.1 * (i - 2));
    /* v = 1e-4 / 3, w = 0.025 / 5: df = 4.0532; t(0.975) = 2.7621 */
    assert_true(pp_bench_change(a, 3, b, 5, &change, &low, &high));
    double reach = 0.5 * (log1p(high) - log1p(low));
    check_near(reach / sqrt(1e-4 / 3 + 0.025 / 5), 2.76214, 1e-4);
}

TEST(equal_samples_show_no_difference)
{
    const double a[] = {100, 100, 100};
    double change, low, high;
    assert_true(pp_bench_change(a, 3, a, 3, &change, &low, &high));
    check_near(change, 0, 0);
    check_near(low, 0, 0);
    check_near(high, 0, 0);
}

TEST(a_single_round_has_no_confidence)
{
    const double a[] = {100}, b[] = {103, 103};
    double change, low, high;
    assert_false(pp_bench_change(a, 1, b, 2, &change, &low, &high));
    check_near(change, 0.03, 1e-12);
}

/* ---- ceilings */

TEST(ceilings_are_rates)
{
    struct pp_ceilings c;
    struct pp_ceiling_spec spec = {.scale = 0.1};
    CHECK_OK(pp_ceilings_measure(&spec, &c));
    const double rates[] = {c.fma_core[0], c.fma_all,    c.gemm_core,
                            c.gemm_all,    c.triad_core, c.triad_all};
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        assert_true(isfinite(rates[i]) && rates[i] > 0);
    assert_true(c.cores >= 1 && c.fma_cores >= 1 && c.gemm_n > 0 && c.isa[0]);
    assert_true(c.cores == 1 || c.ping_pong >= 0);
}

/* On the processor the calls are the same; only their marks and graphs are not there. */
TEST(ceilings_of_a_device_are_rates)
{
    struct pp_device_ceilings c;
    struct pp_backend_choice choice = {.threads = 1};
    CHECK_OK(pp_backend_resolve("cpu", &choice.ops));
    CHECK_OK(pp_device_ceilings_measure(&choice, 256, &c));
    assert_true(c.gemm_n == 128 || c.gemm_n == 256);
    CHECK_INT_EQ(c.copy_bytes, 16 * (size_t)c.gemm_n * (size_t)c.gemm_n);
    const double rates[] = {c.gemm[0], c.gemm[1], c.gemm[2], c.copy, c.launch, c.op};
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        assert_true(isfinite(rates[i]) && rates[i] > 0);
    CHECK_INT_EQ(c.nodes, 0);
    assert_true(strncmp(c.name, "cpu: ", 5) == 0);
}

TEST(the_peak_of_a_device_is_that_of_its_precision)
{
    struct pp_config cfg = {.run.precision = PP_PRECISION_TF32};
    struct pp_bench_sample sample = {.valid = true, .samples_per_second = 10};
    struct pp_bench_row row = {
        .cfg = &cfg, .ranks = 4, .threads = 1, .devices = 2, .flops = 1, .samples = &sample};
    struct pp_bench b = {.repeat = 1, .rows = &row, .n = 1, .references = &row};
    struct pp_bench_figures f;
    int none = -1;
    b.reference_row = &none;
    b.device.gemm[PP_PRECISION_F32] = 1000;
    b.device.gemm[PP_PRECISION_TF32] = 50;
    pp_bench_figures(&b, &row, &f);
    check_near(f.of_peak, 10.0 / 100, 1e-12);
}
