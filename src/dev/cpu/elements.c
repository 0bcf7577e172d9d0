/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that work element by element, written so that the compiler vectorizes them. */
#include "kernels.h"

#include "../numbers.h"
#include "activations.h"
#include "ppcli/conf/config.h"

#define GATHER(type)                                                                               \
    static void gather_##type(const struct pp_gather *a, size_t sample, float *restrict to)        \
    {                                                                                              \
        const type *restrict from = (const type *)a->data + sample * a->stride;                    \
        const struct pp_scaling *k = &a->scaling;                                                  \
        float scale = k->scale[0];                                                                 \
        for (int f = 0; k->channels == 0 && f < a->F; f++)                                         \
            to[f] = scale * (float)from[f];                                                        \
        for (int f = 0; k->channels > 0 && f < a->F; f += k->channels)                             \
            for (int c = 0; c < k->channels; c++)                                                  \
                to[f + c] = k->scale[c] * (float)from[f + c] + k->offset[c];                       \
    }
GATHER(uint8_t)
GATHER(uint16_t)
GATHER(uint32_t)
GATHER(float)

void CPU_LOOP(gather)(const void *args, const struct pp_piece *w)
{
    const struct pp_gather *a = args;
    for (size_t r = w->from; r < w->to; r++) {
        size_t sample = a->index ? a->index[r] : r;
        float *to = a->x + r * (size_t)a->F;
        switch (a->element) {
        case PP_U8:
            gather_uint8_t(a, sample, to);
            break;
        case PP_U16:
            gather_uint16_t(a, sample, to);
            break;
        case PP_U32:
            gather_uint32_t(a, sample, to);
            break;
        case PP_F32:
            gather_float(a, sample, to);
            break;
        }
    }
}

void CPU_LOOP(targets)(const void *args, const struct pp_piece *w)
{
    const struct pp_targets *a = args;
    size_t P = (size_t)a->P;
    for (size_t r = w->from; r < w->to; r++) {
        size_t from = (a->index ? a->index[r] : r) * a->stride + a->first;
        int32_t *to = a->targets + r * P;
        for (size_t p = 0; p < P; p++) {
            size_t i = from + p;
            to[p] = a->element == PP_U8    ? ((const uint8_t *)a->data)[i]
                    : a->element == PP_U16 ? ((const uint16_t *)a->data)[i]
                                           : (int32_t)((const uint32_t *)a->data)[i];
            to[p] = to[p] == a->ignored - 1 ? -1 : to[p];
        }
    }
}

void CPU_LOOP(activate_forward)(const void *args, const struct pp_piece *w)
{
    const struct pp_activate *a = args;
    const float *x = a->x;
    float *y = a->y;
    switch (a->act) {
    case PP_ACT_NONE:
        ALONE for (size_t i = w->from; i < w->to; i++) y[i] = x[i];
        break;
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        ALONE for (size_t i = w->from; i < w->to; i++) y[i] = word##_value(x[i]);                  \
        break;
#include "ppcli/conf/activations.def"
    }
}

void CPU_LOOP(activate_backward)(const void *args, const struct pp_piece *w)
{
    const struct pp_activate_backward *a = args;
    const float *saved = a->saved, *dy = a->dy;
    float *dx = a->dx;
    switch (a->act) {
#define EITHER(dz)                                                                                 \
    if (a->add)                                                                                    \
        ALONE for (size_t i = w->from; i < w->to; i++) dx[i] += dz;                                \
    else                                                                                           \
        ALONE for (size_t i = w->from; i < w->to; i++) dx[i] = dz;                                 \
    break
    case PP_ACT_NONE:
        EITHER(dy[i]);
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        EITHER(word##_back(saved[i], dy[i]));
#include "ppcli/conf/activations.def"
    }
}

void CPU_LOOP(sum)(const void *args, const struct pp_piece *w)
{
    const struct pp_sum *a = args;
    const float *x = a->a, *b = a->b;
    float *y = a->y;
    if (a->relu)
        ALONE for (size_t i = w->from; i < w->to; i++) y[i] = relu_value(x[i] + b[i]);
    else
        ALONE for (size_t i = w->from; i < w->to; i++) y[i] = x[i] + b[i];
}

void CPU_LOOP(muon)(const void *args, const struct pp_piece *w)
{
    const struct pp_muon *a = args;
    const struct pp_optimizer_args *o = a->args;
    bool stays = a->part == PP_MUON_BEGIN || a->part == PP_MUON_END;
    float *restrict x = a->x, *restrict y = a->y, p = a->a, q = a->b;
    if (stays && o->skip)
        return;
    if (a->part == PP_MUON_BEGIN) {
        float keep = o->momentum, scale = (float)((1 - (double)keep) * (double)o->grad_scale);
        for (size_t i = w->from; i < w->to; i++) {
            y[i] = keep * y[i] + scale * x[i];
            x[i] = scale * x[i] + keep * y[i];
        }
    } else if (a->part == PP_MUON_UNIT) {
        float unit = (float)(1 / fmax(sqrt(*a->squares), 1e-7));
        for (size_t i = w->from; i < w->to; i++)
            x[i] *= unit;
    } else {
        if (stays) {
            p *= -o->lr;
            q = (float)(1 - (double)q * (double)o->lr * (double)o->weight_decay);
        }
        for (size_t i = w->from; i < w->to; i++)
            y[i] = p * x[i] + q * y[i];
    }
}

void CPU_LOOP(dropout)(const void *args, const struct pp_piece *w)
{
    const struct pp_dropout *a = args;
    uint32_t limit = dropout_limit(a->p), F = (uint32_t)a->F;
    float scale = (float)(1 / (1 - (double)a->p));
    for (size_t r = w->from; r < w->to; r++) {
        uint64_t of = dropout_row(a->key, *a->step, a->first_row + (uint32_t)r);
        const float *x = a->x + r * a->F;
        float *y = a->y + r * a->F;
        if (a->add) {
            ALONE for (uint32_t e = 0; e < F; e++) y[e] +=
                x[e] * (dropout_number(of, e) < limit ? 0 : scale);
        } else {
            ALONE for (uint32_t e = 0; e < F; e++) y[e] =
                x[e] * (dropout_number(of, e) < limit ? 0 : scale);
        }
    }
}
