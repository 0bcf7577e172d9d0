/* SPDX-License-Identifier: Apache-2.0 */
/* The activations of ppcli/conf/activations.def in float, written for the vectorizer. */
#ifndef PPCLI_DEV_CPU_ACTIVATIONS_H
#define PPCLI_DEV_CPU_ACTIVATIONS_H

#include "mathf.h"

static inline float relu_value(float z)
{
    return z < 0 ? 0 : z; /* in this form a NaN stays */
}

static inline float relu_back(float y, float dy)
{
    return y <= 0 ? 0 : dy;
}

static inline float tanh_value(float z)
{
    return mathf_tanh(z);
}

static inline float tanh_back(float y, float dy)
{
    return dy * (1.0f - y * y);
}

static inline float gelu_value(float z)
{
    return 0.5f * z * (1.0f + mathf_erf(z * (float)M_SQRT1_2));
}

static inline float gelu_back(float z, float dy)
{
    float cdf = 0.5f * (1.0f + mathf_erf(z * (float)M_SQRT1_2));
    float pdf = (float)(0.5 * M_SQRT1_2 * M_2_SQRTPI) * mathf_exp(-0.5f * z * z);
    return dy * (cdf + z * pdf);
}

/* Computes the logistic function of gelu_tanh for |z| <= 9; the caller knows that it is 0 or 1
 * beyond. */
static inline float gelu_tanh_gate(float z)
{
    return mathf_logistic_within(z * fmaf(0.0713548163f, z * z, 1.59576912f));
}

static inline float gelu_tanh_value(float z)
{
    return z * gelu_tanh_gate(mathf_hold(z, 9));
}

static inline float gelu_tanh_back(float z, float dy)
{
    float c = mathf_hold(z, 9), s = gelu_tanh_gate(c);
    return dy * fmaf(s * (1.0f - s) * c, fmaf(0.214064449f, c * c, 1.59576912f), s);
}

static inline float silu_value(float z)
{
    return z * mathf_logistic(z);
}

static inline float silu_back(float z, float dy)
{
    float s = mathf_logistic(z);
    return dy * (s * fmaf(z, 1.0f - s, 1.0f));
}

#endif
