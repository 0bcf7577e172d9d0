/* SPDX-License-Identifier: Apache-2.0 */
/* Our exp, tanh, erf and logistic function against the C library in double, over all magnitudes. */
#include "test.h"

#include <float.h>
#include <math.h>

#include "../../src/dev/cpu/mathf.h"

static float of_bits(uint32_t u)
{
    union float_bits b = {.u = u};
    return b.f;
}

/* Largest error in units of the last place of the exact result, over every 1021st float of both
 * signs between lo and hi. */
static double worst(float (*f)(float), double (*exact)(double), float lo, float hi)
{
    double most = 0;
    union float_bits from = {.f = lo}, to = {.f = hi};
    for (uint32_t u = from.u; u < to.u; u += 1021) {
        for (int sign = 0; sign < 2; sign++) {
            float x = sign ? -of_bits(u) : of_bits(u);
            double want = exact(x);
            int exponent;
            frexp(want, &exponent);
            if (fabs(want) < (double)FLT_MIN || fabs(want) > (double)FLT_MAX)
                continue;
            double off = fabs(f(x) - want) / ldexp(1, exponent - FLT_MANT_DIG);
            if (!(off <= most))
                most = off;
            if (!(off < 8))
                fail_msg("f(%a) is %.9g, should be %.9g", (double)x, (double)f(x), want);
        }
    }
    return most;
}

TEST(exp_is_exact_to_the_last_place_or_so)
{
    double most = worst(mathf_exp, exp, 1e-20f, 88.7f);
    print_message("# exp: %.2f ulp\n", most);
    assert_true(most < 1.1);
    assert_true(mathf_exp(0) == 1);
    assert_true(mathf_exp(-INFINITY) == 0);
    assert_true(mathf_exp(-1000) == 0);
    assert_true(isinf(mathf_exp(INFINITY)));
    assert_true(isinf(mathf_exp(89)));
    assert_true(isnan(mathf_exp(NAN)));
}

TEST(expm1_and_log1p_are_exact_to_four_places_near_0_too)
{
    double most = worst(mathf_expm1, expm1, 1e-20f, 88.7f);
    print_message("# expm1: %.2f ulp\n", most);
    assert_true(most < 4);
    assert_true(mathf_expm1(-INFINITY) == -1 && isinf(mathf_expm1(INFINITY)));
    assert_true(isnan(mathf_expm1(NAN)));
    most = worst(mathf_log1p, log1p, 1e-20f, 0.999f);
    print_message("# log1p: %.2f ulp\n", most);
    assert_true(most < 4);
    assert_true(mathf_log1p(0) == 0 && isinf(mathf_log1p(-1)) && isinf(mathf_log1p(INFINITY)));
    assert_true(fabsf(mathf_log1p(1e6f) - 13.815512f) < 2e-6f);
    assert_true(isnan(mathf_log1p(NAN)) && isnan(mathf_log1p(-2)));
}

TEST(tanh_is_exact_to_two_places)
{
    double most = worst(mathf_tanh, tanh, 1e-20f, 100);
    print_message("# tanh: %.2f ulp\n", most);
    assert_true(most < 1.4);
    assert_true(mathf_tanh(0) == 0);
    assert_true(mathf_tanh(INFINITY) == 1 && mathf_tanh(-INFINITY) == -1);
    assert_true(isnan(mathf_tanh(NAN)));
}

TEST(erf_is_exact_to_two_places)
{
    double most = worst(mathf_erf, erf, 1e-20f, 100);
    print_message("# erf: %.2f ulp\n", most);
    assert_true(most < 1.2);
    assert_true(mathf_erf(0) == 0);
    assert_true(mathf_erf(INFINITY) == 1 && mathf_erf(-INFINITY) == -1);
    assert_true(isnan(mathf_erf(NAN)));
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

TEST(logistic_is_exact_to_two_places)
{
    double most = worst(mathf_logistic, logistic, 1e-20f, 87);
    print_message("# logistic: %.2f ulp\n", most);
    assert_true(most < 2.3);
    assert_true(mathf_logistic(INFINITY) == 1 && mathf_logistic(-INFINITY) < 2e-38f);
    assert_true(isnan(mathf_logistic(NAN)));
}

static double no_log_below_0(double x)
{
    return x < 0 ? 0 : log(x); /* 0: left out */
}

TEST(log_is_exact_to_the_last_place_or_so)
{
    double most = worst(mathf_log, no_log_below_0, FLT_MIN, FLT_MAX);
    print_message("# log: %.2f ulp\n", most);
    assert_true(most < 1.1);
    assert_true(mathf_log(1) == 0 && isnan(mathf_log(-1)) && isnan(mathf_log(NAN)));
    assert_true(isinf(mathf_log(0)) && mathf_log(0) < 0 && isinf(mathf_log(INFINITY)));
}

TEST(sin_and_cos_are_exact_to_two_places_up_to_a_million)
{
    double most_sin = worst(mathf_sin, sin, 1e-20f, 1e6f);
    double most_cos = worst(mathf_cos, cos, 1e-20f, 1e6f);
    print_message("# sin: %.2f ulp, cos: %.2f ulp\n", most_sin, most_cos);
    assert_true(most_sin < 2 && most_cos < 2);
    assert_true(mathf_sin(0) == 0 && mathf_cos(0) == 1);
    assert_true(isnan(mathf_sin(INFINITY)) && isnan(mathf_cos(NAN)));
    assert_true(fabsf(mathf_sin(3e38f)) <= 1);
}

static float power;

static float of_power(float x)
{
    return mathf_pow(x, power);
}

static double of_power_exactly(double x)
{
    double y = pow(x, (double)power);
    return isnan(y) ? 0 : y;
}

TEST(a_power_is_exact_to_the_last_place_or_so)
{
    static const float powers[] = {0.3f, -0.75f, 1.7f, 2, -2, 3, -3, 5, 17.5f};
    double most = 0;
    for (int i = 0; i < COUNT(powers); i++) {
        power = powers[i];
        most = fmax(most, worst(of_power, of_power_exactly, 1e-30f, FLT_MAX));
    }
    print_message("# pow: %.2f ulp\n", most);
    assert_true(most < 1.1);
    assert_true(mathf_pow(0, 2) == 0 && isinf(mathf_pow(0, -1)) && mathf_pow(0, 0) == 1);
    assert_true(isinf(mathf_pow(INFINITY, 2)) && mathf_pow(INFINITY, -1) == 0);
    assert_true(isnan(mathf_pow(-2, 0.5f)) && mathf_pow(-2, 3) == -8 && isnan(mathf_pow(NAN, 2)));
}

TEST(exp_below_0_has_the_bits_of_exp)
{
    for (uint32_t u = 0; u < 0x7f800000u; u += 1021)
        assert_true(mathf_exp_below_0(-of_bits(u)) == mathf_exp(-of_bits(u)));
    assert_true(mathf_exp_below_0(-INFINITY) == 0 && isnan(mathf_exp_below_0(NAN)));
}
