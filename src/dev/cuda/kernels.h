/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Own kernels of the CUDA backend, as functions that enqueue them. What each computes is said at
 * the op of its name in ppcli/backend.h or kernels.h. Every sum is made in an order that depends on the shape
 * alone. Pointers are to memory of the device, floats 4 bytes aligned unless said. Nothing to do (0
 * rows, 0 elements) launches nothing. They return what the launch gave.
 */
#ifndef PPCLI_DEV_CUDA_KERNELS_H
#define PPCLI_DEV_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

#include "ppcli/backend.h"

/* Doubles of scratch that kernels_sum_squares needs, and blocks of its first kernel at most. */
#define CUDA_PARTIALS 512

/* Rows whose softmax_cross_entropy is one block; more need scratch of CUDA_ROW_BYTES each. */
#define CUDA_ROWS_OF_A_BLOCK 256
#define CUDA_ROW_BYTES (sizeof(double) + sizeof(int))

#ifdef __cplusplus
extern "C" {
#endif

/* kernels_linear.cu */
cudaError_t kernels_gather(cudaStream_t s, const struct pp_gather *a);
cudaError_t kernels_gather_labels(cudaStream_t s, int B, const uint8_t *labels,
                                  const uint32_t *index, uint8_t *out);
/* to[n] = from[n] rounded to bfloat16, ties to even, a NaN stays one. */
cudaError_t kernels_to_bf16(cudaStream_t s, size_t n, const float *from, uint16_t *to);
/* y[B][O] = act(product[B][O] + b[O]), z the value before act; b or z may be NULL, product may be
 * y or z. */
cudaError_t kernels_bias_activation(cudaStream_t s, int B, int O, const float *product,
                                    const float *b, enum pp_activation act, float *z, float *y);
cudaError_t kernels_activate_backward(cudaStream_t s, const struct pp_activate_backward *a);
/* db[O] = beta*db + column sums of dz[B][O]. */
cudaError_t kernels_bias_gradient(cudaStream_t s, int B, int O, const float *dz, float beta,
                                  float *db);

/* kernels_flat.cu */
cudaError_t kernels_sum(cudaStream_t s, const struct pp_sum *a);
/* partials: CUDA_PARTIALS doubles of scratch. */
cudaError_t kernels_sum_squares(cudaStream_t s, size_t n, const float *g, double *partials,
                                double *out);
/* to[n] = values in [-1, 1) that depend on their place only, f32 or bfloat16: something to time
 * products with. */
cudaError_t kernels_noise(cudaStream_t s, size_t n, bool bf16, void *to);

/* kernels_step.cu */
cudaError_t kernels_judge(cudaStream_t s, const struct pp_judgement *j);
/* *a is memory of the device too. */
cudaError_t kernels_optimizer_step(cudaStream_t s, size_t n, const struct pp_optimizer_args *a,
                                   bool decay, const float *g, float *m, float *v, float *p);

/* kernels_loss.cu */
/* rows: scratch of B * CUDA_ROW_BYTES, 8 bytes aligned, where B > CUDA_ROWS_OF_A_BLOCK. */
cudaError_t kernels_softmax_cross_entropy(cudaStream_t s, int B, int C, const float *logits,
                                          const uint8_t *labels, float grad_scale, float smoothing,
                                          struct pp_loss_sums *sums, float *dlogits, void *rows);

#ifdef __cplusplus
}
#endif

#endif
