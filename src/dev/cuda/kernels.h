/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Own kernels of the CUDA backend, as functions that enqueue them. What each computes is said at
 * the op of its name in ppcli/dev/backend.h or kernels.h. Every sum is made in an order that depends on the shape
 * alone. Pointers are to memory of the device, floats 4 bytes aligned unless said. Nothing to do (0
 * rows, 0 elements) launches nothing. They return what the launch gave.
 */
#ifndef PPCLI_DEV_CUDA_KERNELS_H
#define PPCLI_DEV_CUDA_KERNELS_H

#include <cuda_runtime.h>

#include "ppcli/dev/backend.h"

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

/* db[C] = beta * db + sums over rows of dz[rows][C], beta 0 or 1; where x[rows][C] is given, dgamma too,
 * of dz * (x - mean) * rstd, and db may be NULL. Mean and rstd of a row are next to each other in
 * keep; with G > 0 mean[rows / P][G] is there, then rstd, of groups of columns. */
struct cuda_sum {
    const void *dz, *x;
    const float *keep;
    float *db, *dgamma;
    int rows, C, P, G;
    unsigned first, unit; /* its first block; where its sums of chunks are, in the scratch */
    bool adds;
    bool slices; /* dz is [rows][C] in f32, C % 4 == 0, and rows are few: of a weight gradient */
};
#define CUDA_SUMS 56
struct cuda_sums {
    int n;
    struct cuda_sum at[CUDA_SUMS];
};

#define CUDA_NORMS 50
struct cuda_norms {
    int n;
    struct pp_batch_norm_backward_weight at[CUDA_NORMS];
};
#define CUDA_COMMITS 60
struct cuda_commits {
    int n;
    struct pp_batch_norm_commit at[CUDA_COMMITS];
};

/* Doubles of `scratch`: what blocks leave to each other, and kernels to the next of the same function.
 * Then counters, which are 0 between kernels. */
#define CUDA_SCRATCH (1 << 18)
#define CUDA_COUNTERS 4096
#define CUDA_SCRATCH_BYTES (CUDA_SCRATCH * sizeof(double) + CUDA_COUNTERS * sizeof(unsigned))

#ifdef __cplusplus
extern "C" {
#endif

/* The ops of ppcli/dev/kernels.def but products, convolutions and those of collect.c: kernels_gather() and so
 * on. */
#define PP_KERNEL(name, type)                                                                      \
    cudaError_t kernels_##name(cudaStream_t s, const struct type *a, enum pp_precision precision,  \
                               double *scratch);
#include "ppcli/dev/kernels.def"

/* kernels_linear.cu */
/* to[n] = from[n] rounded to bfloat16, ties to even, a NaN stays one. */
cudaError_t kernels_to_bf16(cudaStream_t s, size_t n, const float *from, uint16_t *to);
/* y[B][O] = act(product[B][O] + b[O]), z the value before act; b or z may be NULL, product may be
 * y or z. bf16, here and below: values are. */
cudaError_t kernels_bias_activation(cudaStream_t s, bool bf16, int B, int O, const float *product,
                                    const float *b, int act, float *z, float *y);

/* kernels_sums.cu */
/* Of CUDA_COUNTERS units of scratch those that the sum takes. */
unsigned kernels_sum_units(const struct cuda_sum *one);
/* No two of them add to the same array. `first` and `unit` are set here. */
cudaError_t kernels_sum_all(cudaStream_t s, bool bf16, struct cuda_sums *all, double *scratch);

/* kernels_norm.cu; no two of them are of the same norm */
cudaError_t kernels_batch_norm_weights(cudaStream_t s, const struct cuda_norms *all);
cudaError_t kernels_batch_norm_commits(cudaStream_t s, const struct cuda_commits *all);

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

/* dW[n] = from, bfloat16; with adds it is added. */
cudaError_t kernels_add_bf16(cudaStream_t s, size_t n, const void *from, bool adds, float *dW);

#ifdef __cplusplus
}
#endif

#endif
