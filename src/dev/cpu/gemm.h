/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three matrix products of a linear layer; there are several providers. Matrices are row-major
 * without gaps, and there is at least one row.
 */
#ifndef PPCLI_DEV_CPU_GEMM_H
#define PPCLI_DEV_CPU_GEMM_H

#include "isa.h"
#include "ppcli/dev/backend.h"
#include "ppcli/base/cores.h"

/* The three kernels of a convolution (ppcli/dev/kernels.h), made of the same products. */
struct cpu_conv {
    /* As conv_packed_floats and conv_pack of a backend. NULL: a packed copy does not help. */
    size_t (*packed_floats)(const struct pp_conv *g);
    void (*pack)(const struct pp_conv *g, const float *W, float *packed);
    size_t (*scratch_floats)(const struct pp_conv *g, int B);
    /* args points to the struct of ppcli/dev/kernels.h. Units of a piece: rows of all images of y;
     * rows of all images of dx; outputs of dW (dW only, not db). */
    pp_piece_fn forward, backward_input, backward_weight;
};

static inline size_t weights_of_group(const struct pp_conv *g)
{
    return (size_t)(g->O / g->groups) * (size_t)(g->kh * g->kw) * (size_t)(g->C / g->groups);
}

/* The rows o .. o_end - 1 and the columns i .. i_end - 1 of a weight gradient. */
struct cpu_block {
    int o, o_end, i, i_end;
};

#define CPU_COLUMNS 64 /* a multiple of every tile's width, and of a cache line */

struct cpu_gemm {
    const char *name;
    /* Returns the floats of the packed copy of W[O][I] that forward() reads in its place. NULL:
     * forward() uses no copy. */
    size_t (*packed_floats)(int O, int I);
    void (*pack)(int O, int I, const float *W, float *packed);
    bool fuses; /* forward() can add a bias and apply relu */
    /* Computes y[B][O] = x[B][I] * W[O][I]^T; with b it adds b, and with relu takes the positive
     * part (a NaN stays). packed is the result of pack() for W, or NULL; the bits are the same
     * either way. Rows of y are y_row apart. To compute a part of y from column o on, a multiple of
     * CPU_COLUMNS, pass W + o * I, packed + packed_floats(o, I), b + o and y + o. */
    void (*forward)(int B, int I, int O, size_t y_row, const float *x, const float *W,
                    const float *packed, const float *b, bool relu, float *y);
    /* Computes dx[B][I] = dz[B][O] * W[O][I]; rows of W and of dx are dx_row apart. */
    void (*backward_input)(int B, int I, int O, size_t dx_row, const float *dz, const float *W,
                           float *dx);
    /* Computes the block `at` of dW[O][I] = beta * dW + the sum over the parts of dz[B][O]^T *
     * x[B][I]. B may be 0, but not in all parts. */
    void (*backward_weight)(int n, const struct pp_weight_part *parts, int I, int O,
                            const struct cpu_block *at, float beta, float *dW);
    const struct cpu_conv *conv;
};

extern const struct cpu_gemm cpu_gemm_cblas;
extern const struct cpu_conv cpu_conv_cblas;
#ifdef PPCLI_KERNELS_X86
extern const struct cpu_gemm cpu_gemm_avx2, cpu_gemm_avx512;
extern const struct cpu_conv cpu_conv_avx2, cpu_conv_avx512;
extern const struct cpu_gemm cpu_bf16_avx2, cpu_bf16_avx512, cpu_bf16_avx512_bf16;
#endif
extern const struct cpu_gemm cpu_gemm_base, cpu_gemm_neon; /* the build has one of these */
extern const struct cpu_conv cpu_conv_base, cpu_conv_neon;
extern const struct cpu_gemm cpu_bf16_base, cpu_bf16_neon;

/* Returns our own products for the widest vectors of this machine (i = 0), the next narrower ones
 * (i = 1), ...; NULL after the last. Tests use i > 0. */
const struct cpu_gemm *cpu_gemm_own(int i);
/* Returns our own products as cpu_gemm_own() does, with operands rounded to bfloat16. */
const struct cpu_gemm *cpu_gemm_bf16(int i);

#endif
