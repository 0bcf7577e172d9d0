/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about products and pieces that need no device. */
#include "plan.h"

int cuda_partition_size(int total, int least, int unit, int n)
{
    pp_assert(n >= 1 && least >= 1 && unit >= 1);
    int each = total / n / unit * unit;
    return each >= least ? each : 0;
}

size_t cuda_first_count(const struct cuda_shape *s)
{
    return (size_t)s->I * (size_t)(s->product == CUDA_BACKWARD_WEIGHT ? s->B : s->O);
}

size_t cuda_second_count(const struct cuda_shape *s)
{
    return (size_t)s->B * (size_t)(s->product == CUDA_FORWARD ? s->I : s->O);
}

size_t cuda_result_count(const struct cuda_shape *s)
{
    switch (s->product) {
    case CUDA_FORWARD:
        return (size_t)s->B * (size_t)s->O;
    case CUDA_BACKWARD_INPUT:
        return (size_t)s->B * (size_t)s->I;
    case CUDA_BACKWARD_WEIGHT:
        break;
    }
    return (size_t)s->O * (size_t)s->I;
}

bool cuda_shapes_equal(const struct cuda_shape *a, const struct cuda_shape *b)
{
    return a->product == b->product && a->B == b->B && a->I == b->I && a->O == b->O &&
           a->act == b->act && a->keeps_z == b->keeps_z && a->bias == b->bias && a->adds == b->adds;
}

int cuda_fusions_for(const struct cuda_shape *s, bool exact, enum cuda_fusion out[CUDA_FUSIONS])
{
    int n = 0;
    if (s->product == CUDA_FORWARD && s->bias) {
        if (s->act == PP_ACT_RELU && !s->keeps_z)
            out[n++] = CUDA_BIAS_RELU;
        out[n++] = CUDA_BIAS;
    }
    /* It overwrites db; and in which order it sums is not said anywhere. */
    if (s->product == CUDA_BACKWARD_WEIGHT && s->bias && !s->adds && !exact)
        out[n++] = CUDA_BIAS_GRADIENT;
    out[n++] = CUDA_ALONE;
    return n;
}
