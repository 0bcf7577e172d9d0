/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the CPU backend share: what an open one is, and how work is divided. */
#ifndef PPCLI_DEV_CPU_IMPL_H
#define PPCLI_DEV_CPU_IMPL_H

#include "gemm.h"
#include "kernels.h"

#define CPU_FLOPS_PER_NS 80.0 /* of one core, about */
#define CPU_TILE_ROWS 6

struct cpu {
    const struct cpu_kernels *k;
    const struct cpu_gemm *gemm;
    struct pp_team *team; /* NULL: one thread */
    unsigned control;     /* the thread's floating-point control word before open() */
};

static inline const struct cpu *cpu_of(const struct pp_backend *be)
{
    return be->impl;
}

/* linear.c; entries of struct pp_backend_ops */
__typeof__(*((struct pp_backend_ops *)0)->pack_weights) cpu_pack_weights;
int cpu_linear_forward(struct pp_backend *be, const struct pp_linear_forward *a);
int cpu_linear_backward_input(struct pp_backend *be, const struct pp_linear_backward_input *a);
int cpu_linear_backward_weight(struct pp_backend *be, const struct pp_linear_backward_weight *a);

/* db[O] = beta*db + column sums of dz of all parts, each of B * pixels rows. db NULL: nothing. */
void cpu_bias_gradient(struct pp_backend *be, int n, const struct pp_weight_part *parts, int pixels,
                       int O, float beta, float *db);

#endif
