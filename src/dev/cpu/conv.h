/* SPDX-License-Identifier: Apache-2.0 */
/* The three kernels of a convolution (ppcli/kernels.h), from one of several providers. */
#ifndef PPCLI_DEV_CPU_CONV_H
#define PPCLI_DEV_CPU_CONV_H

#include "ppcli/backend.h"

struct cpu_conv {
    /* As the entries conv_packed_floats and conv_pack of a backend; NULL: a copy is of no use. */
    size_t (*packed_floats)(const struct pp_conv *g);
    void (*pack)(const struct pp_conv *g, const float *W, float *packed);
    size_t (*scratch_floats)(const struct pp_conv *g, int B);
    void (*forward)(const struct pp_conv_forward *a);
    void (*backward_input)(const struct pp_conv_backward_input *a);
    void (*backward_weight)(const struct pp_conv_backward_weight *a); /* dW only */
};

extern const struct cpu_conv cpu_conv_cblas;
#ifdef PPCLI_KERNELS_X86
extern const struct cpu_conv cpu_conv_avx2, cpu_conv_avx512;
#endif

#endif
