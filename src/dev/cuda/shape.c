/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about devices, products and pieces that need no device. */
#include "plan.h"
#include "ppcli/conf/config.h"

#include <stdio.h>

#define LEAST_CAPABILITY 80 /* bf16, TF32, asynchronous copies */

/* Returns whether this build has kernels for a capability. Machine code runs on later devices of
 * the same major number. PTX, which is built for 9.0 and later and for the last architecture, runs
 * on all later ones. */
static bool has_kernels(int capability)
{
    static const int built[] = {PPCLI_GPU_ARCH};
    size_t n = sizeof(built) / sizeof(built[0]);
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        bool has_ptx = built[i] >= 90 || i == n - 1, same = built[i] / 10 == capability / 10;
        found = found || (built[i] <= capability && (same || has_ptx));
    }
    return found;
}

int cuda_device_problem(cudaError_t e, int capability, int mode, char *why, size_t bytes)
{
    if (e != cudaSuccess) {
        snprintf(why, bytes, "%s (%d)", cudaGetErrorString(e), (int)e);
    } else if (capability < LEAST_CAPABILITY) {
        snprintf(why, bytes, "compute capability %d.%d, and %d.%d is the least", capability / 10,
                 capability % 10, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
    } else if (!has_kernels(capability)) {
        snprintf(why, bytes,
                 "compute capability %d.%d, for which this build has no kernels (-Dgpu_arch)",
                 capability / 10, capability % 10);
    } else if (mode == cudaComputeModeProhibited) {
        snprintf(why, bytes, "compute mode prohibited; nvidia-smi -c DEFAULT allows runs");
    } else {
        return 0;
    }
    return PP_ERESOURCE;
}

int cuda_partition_size(int total, int least, int unit, int n)
{
    pp_assert(n >= 1 && least >= 1 && unit >= 1);
    int each = total / n / unit * unit;
    return each >= least ? each : 0;
}

static size_t slices_of(const struct cuda_shape *s)
{
    return s->slices > 1 ? (size_t)s->slices : 1;
}

size_t cuda_first_count(const struct cuda_shape *s)
{
    bool weight = s->product == CUDA_BACKWARD_WEIGHT;
    return (size_t)s->I * (size_t)(weight ? s->B : s->O) * slices_of(s);
}

size_t cuda_second_count(const struct cuda_shape *s)
{
    return (size_t)s->B * (size_t)(s->product == CUDA_FORWARD ? s->I : s->row) * slices_of(s);
}

size_t cuda_result_count(const struct cuda_shape *s)
{
    switch (s->product) {
    case CUDA_FORWARD:
        return (size_t)s->B * (size_t)s->row;
    case CUDA_BACKWARD_INPUT:
        return (size_t)s->B * (size_t)s->I;
    case CUDA_BACKWARD_WEIGHT:
        break;
    }
    return (size_t)s->O * (size_t)s->I * slices_of(s);
}

/* Returns into how many slices of rows a weight gradient is cut, so that its tiles of 128 x 128
 * occupy the 108 to 148 multiprocessors of the devices that this is for. A slice has at least 512
 * rows and begins at a multiple of CUDA_OPERAND_ALIGN bytes. */
int cuda_weight_slices(int B, int I, int O)
{
    int64_t tiles = (int64_t)((O + 127) / 128) * ((I + 127) / 128), n = 1;
    while (n < 16 && 2 * n * tiles <= 128 && B % (16 * n) == 0 && B / (2 * n) >= 512 &&
           (int64_t)O * I % 4 == 0)
        n *= 2;
    return (int)n;
}

bool cuda_shapes_equal(const struct cuda_shape *a, const struct cuda_shape *b)
{
    return a->product == b->product && a->B == b->B && a->I == b->I && a->O == b->O &&
           a->act == b->act && a->keeps_z == b->keeps_z && a->bias == b->bias &&
           a->adds == b->adds && a->slices == b->slices && a->row == b->row;
}

int cuda_fusions_for(const struct cuda_shape *s, bool exact, enum cuda_fusion out[CUDA_FUSIONS])
{
    int n = 0;
    if (s->product == CUDA_FORWARD && s->bias) {
        if (s->act == PP_ACT_RELU && !s->keeps_z)
            out[n++] = CUDA_BIAS_RELU;
        out[n++] = CUDA_BIAS;
    }
    /* That fusion overwrites db, and the order of its sums is not documented. */
    if (s->product == CUDA_BACKWARD_WEIGHT && s->bias && !s->adds && !exact)
        out[n++] = CUDA_BIAS_GRADIENT;
    out[n++] = CUDA_ALONE;
    return n;
}
