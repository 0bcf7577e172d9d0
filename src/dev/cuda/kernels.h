/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own kernels for CUDA, as functions that enqueue them. The op of the same name in
 * ppcli/dev/backend.h or kernels.h says what a kernel computes. The order of every sum depends on
 * the shape alone. Pointers are to memory of the device, and floats are aligned to 4 bytes unless
 * said. With no work (0 rows, 0 elements) nothing is launched. The functions return the status of
 * the launch.
 */
#ifndef PPCLI_DEV_CUDA_KERNELS_H
#define PPCLI_DEV_CUDA_KERNELS_H

#include <cuda_runtime.h>

#include "ppcli/dev/backend.h"

/* Arrays of one launch, which are passed as arguments: at most 4 KB. */
#define CUDA_SQUARES 120
#define CUDA_UPDATES 64

/* The sum of squares of g[n]. first is the number of its first block. */
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

/* An optimizer step on p[n]. m, v and copy may be NULL; copy receives the new p in bf16. head is
 * the number of elements before the first that is aligned to 16 bytes in all arrays; -1: there is
 * none. */
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
    const struct pp_optimizer_args *args; /* in memory of the device */
    int n;
    struct cuda_update at[CUDA_UPDATES];
};

/* Computes db[C] = beta * db + the sums over rows of dz[rows][C], with beta 0 or 1. If x[rows][C]
 * is given, also dgamma, from dz * (x - mean) * rstd, and db may be NULL. keep has mean and rstd of
 * each row next to each other; with G > 0 it has mean[rows / P][G] of groups of columns, then
 * rstd. */
struct cuda_sum {
    const void *dz, *x;
    const float *keep;
    float *db, *dgamma;
    int rows, C, P, G;
    unsigned first, unit; /* its first block; the place of its sums of chunks in the scratch */
    bool adds;
    bool slices; /* dz is [rows][C] in float with C % 4 == 0 and few rows: the slices of a weight
                    gradient */
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

/* `scratch` has CUDA_SCRATCH doubles, which blocks leave for each other and kernels for the next
 * kernel of the same function. Counters follow, which are 0 between kernels. */
#define CUDA_SCRATCH (1 << 18)
#define CUDA_COUNTERS 4096
#define CUDA_SCRATCH_BYTES (CUDA_SCRATCH * sizeof(double) + CUDA_COUNTERS * sizeof(unsigned))

#ifdef __cplusplus
extern "C" {
#endif

/* The ops of ppcli/dev/kernels.def except products, convolutions and the ops of collect.c:
 * kernels_gather() and so on. */
#define PP_KERNEL(name, type)                                                                      \
    cudaError_t kernels_##name(cudaStream_t s, const struct type *a, enum pp_precision precision,  \
                               double *scratch);
#include "ppcli/dev/kernels.def"

/* kernels_linear.cu */
/* Rounds from[n] to bfloat16 and writes it to to[n]: ties go to even, and a NaN stays a NaN. */
cudaError_t kernels_to_bf16(cudaStream_t s, size_t n, const float *from, uint16_t *to);
/* Computes y[B][O] = act(product[B][O] + b[O]); z receives the value before act. b and z may be
 * NULL, and product may be y or z. bf16, here and below, says that values are bfloat16. */
cudaError_t kernels_bias_activation(cudaStream_t s, bool bf16, int B, int O, const float *product,
                                    const float *b, int act, float *z, float *y);

/* kernels_sums.cu */
/* Returns how many of the CUDA_COUNTERS units of scratch a sum takes. */
unsigned kernels_sum_units(const struct cuda_sum *one);
/* Computes the sums, of which no two may add to the same array. Sets `first` and `unit` of each. */
cudaError_t kernels_sum_all(cudaStream_t s, bool bf16, struct cuda_sums *all, double *scratch);

/* kernels_norm.cu; no two entries belong to the same norm */
cudaError_t kernels_batch_norm_weights(cudaStream_t s, const struct cuda_norms *all);
cudaError_t kernels_batch_norm_commits(cudaStream_t s, const struct cuda_commits *all);

/* kernels_flat.cu */
/* Returns the number of blocks that sum n squares; each leaves one double in scratch. */
size_t kernels_square_blocks(size_t n);
/* Computes the sums of squares. Sets `first` of each; together they may have CUDA_SCRATCH
 * blocks. */
cudaError_t kernels_all_squares(cudaStream_t s, struct cuda_squares *all, double *scratch);
/* Fills to[n] with values in [-1, 1) that depend on their index only, as float or bfloat16: data
 * for timing products. */
cudaError_t kernels_noise(cudaStream_t s, size_t n, bool bf16, void *to);

/* kernels_step.cu */
/* Updates the arrays, which must not overlap. Sets `first` and `head` of each. */
cudaError_t kernels_all_updates(cudaStream_t s, struct cuda_updates *all);

/* kernels_image.cu */
/* Write columns[B*OH*OW][kh*kw*C] = the pixels that each output reads, with 0 outside; and
 * dx[B][H][W][C] = the sums of the columns of each pixel. B > 0, groups == 1. */
cudaError_t kernels_conv_columns(cudaStream_t s, bool bf16, const struct pp_conv *g, int B,
                                 const float *x, float *columns);
cudaError_t kernels_conv_pixels(cudaStream_t s, bool bf16, const struct pp_conv *g, int B,
                                const float *columns, bool add, float *dx);
/* Compute the three passes of a convolution in groups; B > 0. */
cudaError_t kernels_conv_group_forward(cudaStream_t s, bool bf16, const struct pp_conv_forward *a);
cudaError_t kernels_conv_group_backward_input(cudaStream_t s, bool bf16,
                                              const struct pp_conv_backward_input *a);
cudaError_t kernels_conv_group_backward_weight(cudaStream_t s, bool bf16, const struct pp_conv *g,
                                               int B, const float *dz, const float *x, bool adds,
                                               float *dW);

/* Writes n bfloat16 numbers of `from` to dW as floats, or adds them if `adds`. */
cudaError_t kernels_add_bf16(cudaStream_t s, size_t n, const void *from, bool adds, float *dW);

#ifdef __cplusplus
}
#endif

#endif
