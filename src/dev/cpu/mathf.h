/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp, tanh, erf and the logistic function of a float, as straight-line arithmetic without tables
 * or calls, so that the compiler vectorizes them. With tanhf of the C library the activation took
 * four times as long as its matrix product. The results are also more repeatable: the C library
 * chooses versions with or without fused multiply-add by processor, while these give the same bits
 * on every one. Largest errors over all floats, in units of the last place: exp 1.0, tanh 1.3, erf
 * 1.1, logistic 2.2 (tests/unit/test_dev_math.c). A NaN gives a NaN.
 */
#ifndef PPCLI_DEV_CPU_MATHF_H
#define PPCLI_DEV_CPU_MATHF_H

#include <math.h>
#include <stdint.h>

union float_bits {
    float f;
    uint32_t u;
};

/* Computes exp(r) for |r| <= ln 2 / 2 with the polynomial of Cephes (Moshier, expf). mathf_exp()
 * uses exp(x) = 2^n * exp(r) with n = round(x / ln 2); adding 1.5 * 2^23 rounds to an integer
 * and leaves it in the low bits of the sum. Below -87.3, where the result would be denormal, it
 * is 0. */
static inline float mathf_expm1_near_0(float r)
{
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r;
}

static inline float mathf_exp_near_0(float r)
{
    return mathf_expm1_near_0(r) + 1.0f;
}

static inline float mathf_exp(float x)
{
    float c = x > 88.72f ? 88.72f : x;
    c = c < -87.33654f ? -87.33654f : c;
    union float_bits n = {.f = c * 1.44269504f + 0x1.8p23f};
    float k = n.f - 0x1.8p23f;
    float r = c - k * 0.693359375f; /* ln 2 in two parts, of which k times the first is exact */
    r = r - k * -2.12194440e-4f;
    /* 2^n as two factors, because n can be 128; for any smaller n the second factor is 1 */
    uint32_t e = n.u - 0x4b400000u;
    uint32_t over = (e == 128);
    union float_bits scale = {.u = (e - over + 127) << 23}, twice = {.u = (over + 127) << 23};
    float y = mathf_exp_near_0(r) * scale.f * twice.f;
    y = x < -87.33654f ? 0.0f : y;
    return x > 88.72f ? INFINITY : y;
}

/* Computes exp(x) for x <= 0 with the same bits as mathf_exp(), without the steps for large x. */
static inline float mathf_exp_below_0(float x)
{
    float c = x < -87.33654f ? -87.33654f : x;
    union float_bits n = {.f = c * 1.44269504f + 0x1.8p23f};
    float k = n.f - 0x1.8p23f;
    float r = c - k * 0.693359375f;
    r = r - k * -2.12194440e-4f;
    union float_bits scale = {.u = (n.u - 0x4b400000u + 127) << 23};
    float y = mathf_exp_near_0(r) * scale.f;
    return x < -87.33654f ? 0.0f : y;
}

static inline float mathf_hold(float x, float most)
{
    float c = x > most ? most : x;
    return c < -most ? -most : c;
}

/* Computes 1 / (1 + exp(-x)) for |x| <= 87 with the polynomial of exp(-r), in pairs of terms. The
 * fused multiply-adds give the same bits on every processor, though slowly on one that has no such
 * instruction. */
static inline float mathf_logistic_within(float x)
{
    union float_bits n = {.f = fmaf(x, -1.44269504f, 0x1.8p23f)};
    float k = n.f - 0x1.8p23f;
    float r = fmaf(k, -2.12194440e-4f, fmaf(k, 0.693359375f, x)), s = r * r;
    float high = fmaf(r, -1.9875691500e-4f, 1.3981999507e-3f);
    float middle = fmaf(r, -8.3334519073e-3f, 4.1665795894e-2f);
    float low = fmaf(r, -1.6666665459e-1f, 5.0000001201e-1f);
    float y = fmaf(fmaf(fmaf(high, s, middle), s, low), s, -r) + 1.0f;
    union float_bits scale = {.u = (n.u - 0x4b400000u + 127) << 23};
    return 1.0f / fmaf(y, scale.f, 1.0f);
}

static inline float mathf_logistic(float x)
{
    return mathf_logistic_within(mathf_hold(x, 87));
}

/* Computes tanh(x): with a polynomial (Cephes) near 0, where 1 - 2 / (exp(2x) + 1) would lose
 * digits, else with that formula. */
static inline float mathf_tanh(float x)
{
    float a = fabsf(x), s = x * x;
    float p = -5.70498872745e-3f;
    p = p * s + 2.06390887954e-2f;
    p = p * s - 5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s - 3.33332819422e-1f;
    p = p * s * x + x;
    float big = copysignf(1.0f - 2.0f / (mathf_exp(2.0f * a) + 1.0f), x);
    return a < 0.625f ? p : big;
}

/* Computes erf(x): as x + x P(x^2) near 0, else as 1 - exp(a Q(a)) with a = |x|; from 4 on the
 * result is 1. P and Q are least-squares fits, weighted to lower the largest error, which is 1.7e-8
 * for P and 3e-9 of the result for Q. */
static inline float mathf_erf(float x)
{
    float a = fabsf(x), s = x * x;
    a = a > 4.0f ? 4.0f : a;
    float q = 2.13726232e-4f;
    q = q * a - 3.21281665e-3f;
    q = q * a + 2.28830822e-2f;
    q = q * a - 1.05251068e-1f;
    q = q * a - 6.35726530e-1f;
    q = q * a - 1.12851192f;
    float big = copysignf(1.0f - mathf_exp(q * a), x);
    float p = -5.96438255e-4f;
    p = p * s + 4.98803491e-3f;
    p = p * s - 2.67631510e-2f;
    p = p * s + 1.12817221e-1f;
    p = p * s - 3.76124849e-1f;
    p = p * s + 1.28379148e-1f;
    p = p * x + x;
    return a > 0.9277f ? big : p;
}

/* Computes log(x) with the polynomial of Cephes (Moshier, logf) for the part of x in [sqrt(1/2),
 * sqrt(2)). Denormal numbers count as 0. */
static inline float mathf_log(float x)
{
    union float_bits v = {.f = x};
    uint32_t u = v.u - 0x3f3504f3u;
    union float_bits m = {.u = (u & 0x7fffffu) + 0x3f3504f3u};
    float e = (float)((int32_t)u >> 23), f = m.f - 1.0f, z = f * f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    float y = p * f * z + e * -2.12194440e-4f - 0.5f * z;
    y = f + y + e * 0.693359375f;
    y = x < 0x1p-126f ? -INFINITY : y;
    y = x < INFINITY ? y : x; /* and a NaN */
    return x < 0 ? NAN : y;
}

/* Computes exp(x) - 1. */
static inline float mathf_expm1(float x)
{
    float near_0 = mathf_expm1_near_0(mathf_hold(x, 0.35f)), far = mathf_exp(x) - 1.0f;
    return fabsf(x) < 0.35f ? near_0 : far;
}

/* Computes log(1 + x): the logarithm of the rounded sum, times what the rounding left out (Kahan). */
static inline float mathf_log1p(float x)
{
    float u = 1.0f + x, d = u - 1.0f;
    float y = mathf_log(u) * (x / d);
    y = d == 0.0f ? x : y;
    return u < INFINITY ? y : u;
}

union double_bits {
    double d;
    uint64_t u;
};

/* Computes sin(x + quarters * pi/2). The multiple of pi/2 that is taken away is exact up to 2^20 of
 * them, so the error stays small where the result is; from there on it grows. */
static inline float mathf_sin_of(float x, uint32_t quarters)
{
    union double_bits n = {.d = (double)x * 0.63661977236758134308 + 0x1.8p52};
    double k = n.d - 0x1.8p52;
    double d = (double)x - k * 0x1.921fb544p0 - k * 0x1.0b4611a626331p-34;
    float r = mathf_hold((float)d, 0.7854f), s = r * r;
    uint32_t turn = (uint32_t)n.u + quarters;
    float y = -1.9515295891e-4f;
    y = y * s + 8.3321608736e-3f;
    y = y * s - 1.6666654611e-1f;
    y = y * s * r + r;
    float c = 2.443315711809948e-5f;
    c = c * s - 1.388731625493765e-3f;
    c = c * s + 4.166664568298827e-2f;
    c = c * s * s - 0.5f * s + 1.0f;
    y = turn & 1 ? c : y;
    return turn & 2 ? -y : y;
}

static inline float mathf_sin(float x)
{
    return mathf_sin_of(x, 0);
}

static inline float mathf_cos(float x)
{
    return mathf_sin_of(x, 1);
}

/* Computes x to the power of p, as exp(p log(x)) in double; log(m) = 2 artanh((m - 1) / (m + 1)).
 * A negative x has a power only if p is a whole number. */
static inline float mathf_pow(float x, float p)
{
    double a = fabs((double)x);
    union double_bits v = {.d = a};
    uint64_t u = v.u - 0x3fe6a09e667f3bcdu;
    union double_bits m = {.u = (u & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu};
    double e = (double)((int32_t)(u >> 32) >> 20), s = (m.d - 1) / (m.d + 1), z = s * s;
    double q = ((1.0 / 13 * z + 1.0 / 11) * z + 1.0 / 9) * z + 1.0 / 7;
    q = (((q * z + 1.0 / 5) * z + 1.0 / 3) * z + 1) * 2 * s;
    double t = (q + e * 0.69314718055994530942) * (double)p;
    t = t > 100 ? 100 : t; /* beyond float on both sides */
    t = t < -110 ? -110 : t;
    union double_bits n = {.d = t * 1.44269504088896340736 + 0x1.8p52};
    double r = t - (n.d - 0x1.8p52) * 0.69314718055994530942;
    double y = ((r / 40320 + 1.0 / 5040) * r + 1.0 / 720) * r + 1.0 / 120;
    y = ((((y * r + 1.0 / 24) * r + 1.0 / 6) * r + 0.5) * r + 1) * r + 1;
    union double_bits scale = {.u = (n.u + 1023) << 52};
    float f = (float)(y * scale.d);
    float whole = (float)(int32_t)p, zero = p > 0 ? 0.0f : INFINITY;
    f = a < 0x1p-126 ? zero : f;
    f = a > 0x1.fffffep127 ? 1.0f / zero : f;
    f = x < 0 ? (whole != p ? NAN : ((int32_t)p & 1) ? -f : f) : f;
    f = a != a ? x : f;
    return p == 0 ? 1.0f : f;
}

#endif
