/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Own kernels of the CUDA backend, as functions that enqueue them. What each computes is said at
 * the op of its name in ppcli/backend.h or kernels.h. Every sum is made in an order that depends on the shape
 * alone. Pointers are to memory of the device, floats 4 bytes aligned unless said. Nothing to do (0
 * rows, 0 elements) launches nothing. They return what the launch gave.
 */
#ifndef PPCLI_DEV_CUDA_KERNELS_H
#define PPCLI_DEV_CUDA_KERNELS_H

#include <cuda_runtime.h>

#include "ppcli/backend.h"

/* Arrays of one launch, so that it has them as arguments: at most 4 KB. */
#define CUDA_SQUARES 120
#define CUDA_UPDATES 64

/* The sum of squares of g[n]; first: its first block. */
struct cuda_square {
    const float *g;
    double *out;
    size_t n;
    unsigned first;
};
struct cuda_squares {
    int n;
    struct cuda_square at[CUDA_SQUARES];
};

/* The optimizer over p[n]. m, v and copy (what p becomes, in bf16) may be NULL. head: elements before
 * the first that lies at 16 bytes in all arrays; -1: there is none. */
struct cuda_update {
    float *p, *m, *v;
    const float *g;
    uint16_t *copy;
    size_t n;
    unsigned first;
    bool decay;
    int8_t head;
};
struct cuda_updates {
    const struct pp_optimizer_args *args; /* memory of the device too */
    int n;
    struct cuda_update at[CUDA_UPDATES];
};

/* Doubles of `scratch`: what one kernel leaves to the next of the same function. */
#define CUDA_SCRATCH 65536

#ifdef __cplusplus
extern "C" {
#endif

/* The ops of ppcli/kernels.def but products, convolutions and those of collect.c: kernels_gather() and so
 * on. */
#define PP_KERNEL(name, type)                                                                      \
    cudaError_t kernels_##name(cudaStream_t s, const struct type *a, enum pp_precision precision,  \
                               double *scratch);
#include "ppcli/kernels.def"

/* kernels_linear.cu */
/* to[n] = from[n] rounded to bfloat16, ties to even, a NaN stays one. */
cudaError_t kernels_to_bf16(cudaStream_t s, size_t n, const float *from, uint16_t *to);
/* y[B][O] = act(product[B][O] + b[O]), z the value before act; b or z may be NULL, product may be
 * y or z. bf16, here and below: values are. */
cudaError_t kernels_bias_activation(cudaStream_t s, bool bf16, int B, int O, const float *product,
                                    const float *b, enum pp_activation act, float *z, float *y);
/* db[O] = beta*db + column sums of dz[B][O]. */
cudaError_t kernels_bias_gradient(cudaStream_t s, bool bf16, int B, int O, const float *dz,
                                  float beta, float *db, double *scratch);

/* kernels_flat.cu */
/* Blocks that the sum of n squares takes, each leaving a double in scratch. */
size_t kernels_square_blocks(size_t n);
/* `first` is set here. Their blocks are at most CUDA_SCRATCH. */
cudaError_t kernels_all_squares(cudaStream_t s, struct cuda_squares *all, double *scratch);
/* to[n] = values in [-1, 1) that depend on their place only, f32 or bfloat16: something to time
 * products with. */
cudaError_t kernels_noise(cudaStream_t s, size_t n, bool bf16, void *to);

/* kernels_step.cu */
/* `first` and `head` are set here. The arrays do not overlap. */
cudaError_t kernels_all_updates(cudaStream_t s, struct cuda_updates *all);

/* kernels_image.cu */
/* columns[B*OH*OW][kh*kw*C] = the pixels that each output reads, 0 outside; and dx[B][H][W][C] = the
 * sums of what each pixel has there. B > 0, groups == 1. */
cudaError_t kernels_conv_columns(cudaStream_t s, bool bf16, const struct pp_conv *g, int B,
                                 const float *x, float *columns);
cudaError_t kernels_conv_pixels(cudaStream_t s, bool bf16, const struct pp_conv *g, int B,
                                const float *columns, bool add, float *dx);
/* Convolutions in groups; B > 0. */
cudaError_t kernels_conv_group_forward(cudaStream_t s, bool bf16, const struct pp_conv_forward *a);
cudaError_t kernels_conv_group_backward_input(cudaStream_t s, bool bf16,
                                              const struct pp_conv_backward_input *a);
cudaError_t kernels_conv_group_backward_weight(cudaStream_t s, bool bf16, const struct pp_conv *g,
                                               int B, const float *dz, const float *x, bool adds,
                                               float *dW);

#ifdef __cplusplus
}
#endif

#endif
