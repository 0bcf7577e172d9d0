/* SPDX-License-Identifier: Apache-2.0 */
/* The activations of ppcli/conf/activations.def on the device. */
#ifndef PPCLI_DEV_CUDA_ACTIVATIONS_H
#define PPCLI_DEV_CUDA_ACTIVATIONS_H

#include <math.h>

#define SQRT_HALF 0.70710678118654752f
#define NORMAL_AT_0 0.39894228040143268f

static __device__ inline float relu_value(float z)
{
    return z < 0.0f ? 0.0f : z; /* written so that a NaN stays */
}

static __device__ inline float relu_back(float y, float dy)
{
    return y <= 0.0f ? 0.0f : dy;
}

static __device__ inline float tanh_value(float z)
{
    return tanhf(z);
}

static __device__ inline float tanh_back(float y, float dy)
{
    return dy * (1.0f - y * y);
}

static __device__ inline float gelu_value(float z)
{
    return 0.5f * z * erfcf(-z * SQRT_HALF);
}

static __device__ inline float gelu_back(float z, float dy)
{
    return dy * (0.5f * erfcf(-z * SQRT_HALF) + z * (NORMAL_AT_0 * expf(-0.5f * z * z)));
}

/* Computes the logistic function of gelu_tanh. Beyond |z| = 12 the result is 0 or 1. */
static __device__ inline float gelu_tanh_gate(float z)
{
    return 1.0f / (1.0f + expf(z * (-1.59576912f - 0.0713548163f * (z * z))));
}

static __device__ inline float gelu_tanh_clamp(float z)
{
    float c = z > 12.0f ? 12.0f : z;
    return c < -12.0f ? -12.0f : c;
}

static __device__ inline float gelu_tanh_value(float z)
{
    return z * gelu_tanh_gate(gelu_tanh_clamp(z));
}

static __device__ inline float gelu_tanh_back(float z, float dy)
{
    float c = gelu_tanh_clamp(z), s = gelu_tanh_gate(c);
    return dy * (s + s * (1.0f - s) * c * (1.59576912f + 0.214064449f * (c * c)));
}

static __device__ inline float silu_value(float z)
{
    return z / (1.0f + expf(-z));
}

static __device__ inline float silu_back(float z, float dy)
{
    float s = 1.0f / (1.0f + expf(-z));
    return dy * (s * (1.0f + z * (1.0f - s)));
}

#endif
