/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the CPU backend that its files share: the state of an open backend, and how work is
 * divided. */
#ifndef PPCLI_DEV_CPU_IMPL_H
#define PPCLI_DEV_CPU_IMPL_H

#include "gemm.h"
#include "kernels.h"

#define CPU_FLOPS_PER_NS 80.0 /* of one core, roughly */
#define CPU_TILE_ROWS 6

struct cpu {
    const struct cpu_kernels *k;
    const struct cpu_gemm *gemm;
    struct pp_team *team; /* NULL: one thread */
    unsigned control;     /* the floating-point control word of the calling thread before open() */
};

static inline const struct cpu *cpu_of(const struct pp_backend *be)
{
    return be->impl;
}

/* These are in linear.c and are entries of struct pp_backend_ops. */
__typeof__(*((struct pp_backend_ops *)0)->pack_weights) cpu_pack_weights;
int cpu_linear_forward(struct pp_backend *be, const struct pp_linear_forward *a);
int cpu_linear_backward_input(struct pp_backend *be, const struct pp_linear_backward_input *a);
int cpu_linear_backward_weight(struct pp_backend *be, const struct pp_linear_backward_weight *a);

/* Computes db[O] = beta * db + the column sums of dz of all parts, each of B * pixels rows. With db
 * NULL it does nothing. */
void cpu_bias_gradient(struct pp_backend *be, int n, const struct pp_weight_part *parts, int pixels,
                       int O, float beta, float *db);

#endif
