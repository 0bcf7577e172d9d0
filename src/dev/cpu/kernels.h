/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything of the CPU backend that is not a matrix product. Compiled once per
 * instruction set; cpu.c takes the widest that runs. All versions give the same bits: no
 * contraction to fused multiply-add, no reassociation.
 */
#ifndef PPCLI_DEV_CPU_KERNELS_H
#define PPCLI_DEV_CPU_KERNELS_H

#include "isa.h"
#include "ppcli/dev/backend.h"
#include "ppcli/base/cores.h"

struct cpu_kernels {
    const char *name;
    /* In place: y = act(y + b); the value before act to z unless NULL. */
    void (*bias_activation)(int B, int O, size_t row, const float *b, int act, float *z,
                            float *y); /* rows of z and y are `row` apart */
    /* Of O columns; rows of dz are `row` apart. */
    void (*bias_gradient)(int B, int O, size_t row, const float *dz, float beta, float *db);
    void (*loss_rows)(const void *cpu_loss, const struct pp_piece *piece);
    double (*sum_squares)(size_t n, const float *g);
    float (*largest)(size_t n, const float *x, float least);
    void (*optimizer_step)(size_t n, const struct pp_optimizer_args *a, bool decay, const float *g,
                           float *m, float *v, float *p);
    /* Those of ppcli/dev/kernels.h; a points to the type of the row in kernels.def */
#define PP_KERNEL(name, type)
#define PP_LOSS(name, type)
#define PP_LOOP(name, type, ...) void (*name)(const void *a, const struct pp_piece *piece);
#include "ppcli/dev/kernels.def"
};

/* Rows from `first` on of a loss, and what each adds to the sums: they are added in order. */
struct cpu_row_loss {
    double loss;
    bool counts, correct;
};
struct cpu_loss {
    const struct pp_softmax_cross_entropy *a;
    size_t first;
    struct cpu_row_loss *rows;
};
void cpu_softmax_cross_entropy(const struct cpu_kernels *k, struct pp_team *team,
                               const struct pp_softmax_cross_entropy *a);

extern const struct cpu_kernels cpu_kernels_base, cpu_kernels_neon; /* of these one is there */
#ifdef PPCLI_KERNELS_X86
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx512;
#endif

#ifdef PPCLI_ISA
#define PP_KERNEL(name, type)
#define PP_LOSS(name, type)
#define PP_LOOP(name, type, ...) void CPU_LOOP(name)(const void *args, const struct pp_piece *w);
#include "ppcli/dev/kernels.def"
#endif

/* The versions that this machine runs, widest first; NULL after the last. */
const struct cpu_kernels *cpu_kernels_runnable(int i);

#endif
