/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything of the CPU backend except the matrix products. Compiled once for each instruction set;
 * cpu.c takes the widest that the processor runs. All versions give the same bits: the compiler may
 * neither contract to fused multiply-add nor reassociate.
 */
#ifndef PPCLI_DEV_CPU_KERNELS_H
#define PPCLI_DEV_CPU_KERNELS_H

#include "isa.h"
#include "ppcli/dev/backend.h"
#include "ppcli/base/cores.h"

struct cpu_kernels {
    const char *name;
    /* In place: y = act(y + b). Writes the value before act to z unless z is NULL. */
    void (*bias_activation)(int B, int O, size_t row, const float *b, int act, float *z,
                            float *y); /* rows of z and of y are `row` apart */
    /* Sums O columns; rows of dz are `row` apart. */
    void (*bias_gradient)(int B, int O, size_t row, const float *dz, float beta, float *db);
    void (*loss_rows)(const void *cpu_loss, const struct pp_piece *piece);
    void (*numbers_rows)(const void *cpu_numbers, const struct pp_piece *piece);
    double (*sum_squares)(size_t n, const float *g);
    float (*largest)(size_t n, const float *x, float least);
    void (*optimizer_step)(size_t n, const struct pp_optimizer_args *a, bool decay, const float *g,
                           float *m, float *v, float *p);
    /* The loops of ppcli/dev/kernels.h; args points to the type in the kernel's row of
     * kernels.def. */
#define PP_KERNEL(name, type)
#define PP_LOSS(name, type)
#define PP_LOOP(name, type, ...) void (*name)(const void *a, const struct pp_piece *piece);
#include "ppcli/dev/kernels.def"
};

/* A loss from row `first` on, and what each row contributes. The contributions are added in order
 * of the rows. */
struct cpu_row_loss {
    double loss, weight;
    bool counts, correct;
};
struct cpu_loss {
    const struct pp_softmax_cross_entropy *a;
    size_t first;
    struct cpu_row_loss *rows;
};
void cpu_softmax_cross_entropy(const struct cpu_kernels *k, struct pp_team *team,
                               const struct pp_softmax_cross_entropy *a);

/* The same of a loss of numbers. The sums of a row are over its outputs in order. */
struct cpu_row_numbers {
    double loss, squares, absolutes, sum, sum_squares;
    int correct;
};
struct cpu_numbers {
    const struct pp_numbers_loss *a;
    size_t first;
    struct cpu_row_numbers *rows;
};
void cpu_numbers_loss(const struct cpu_kernels *k, struct pp_team *team,
                      const struct pp_numbers_loss *a);

extern const struct cpu_kernels cpu_kernels_base, cpu_kernels_neon; /* the build has one of these */
#ifdef PPCLI_KERNELS_X86
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx512;
#endif

#ifdef PPCLI_ISA
/* Marks a loop whose result may be one of the arrays it reads: element i depends on element i
 * only. */
#ifdef __clang__
#define ALONE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ALONE _Pragma("GCC ivdep")
#endif

#define PP_KERNEL(name, type)
#define PP_LOSS(name, type)
#define PP_LOOP(name, type, ...) void CPU_LOOP(name)(const void *args, const struct pp_piece *w);
#include "ppcli/dev/kernels.def"
#endif

/* Returns the versions that this machine runs, the widest first (i = 0); NULL after the last. */
const struct cpu_kernels *cpu_kernels_runnable(int i);

#endif
