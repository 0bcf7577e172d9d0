/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of transformers other than attention and norms, written so that the compiler
 * vectorizes them. */
#include "kernels.h"

#include <string.h>

#include "../numbers.h"
#include "activations.h"

/* ---- embedding */

static void add_row(size_t C, const float *restrict from, float *restrict to)
{
    for (size_t c = 0; c < C; c++)
        to[c] += from[c];
}

void CPU_LOOP(embedding_forward)(const void *args, const struct pp_piece *w)
{
    const struct pp_embedding_forward *a = args;
    size_t C = (size_t)a->C, T = (size_t)a->T;
    for (size_t r = w->from; r < w->to; r++) {
        float *y = a->y + r * C;
        int token = token_row(a->x[r], a->V);
        if (token >= 0)
            memcpy(y, a->W + (size_t)token * C, C * sizeof(*y));
        for (size_t c = 0; c < C && token < 0; c++)
            y[c] = NAN;
        if (a->P)
            add_row(C, a->P + ((size_t)a->first + r % T) * C, y);
    }
}

void CPU_LOOP(embedding_backward_weight)(const void *args, const struct pp_piece *w)
{
    const struct pp_embedding_backward_weight *a = args;
    size_t C = (size_t)a->C, T = (size_t)a->T, width = w->to - w->from;
    float *dW = a->dW + w->from, *dP = a->dP ? a->dP + w->from : NULL;
    for (size_t v = 0; a->beta == 0 && v < (size_t)a->V; v++)
        memset(dW + v * C, 0, width * sizeof(*dW));
    for (size_t t = 0; a->beta == 0 && dP && t < T; t++)
        memset(dP + t * C, 0, width * sizeof(*dP));
    for (size_t r = 0; r < (size_t)a->B * T; r++) {
        const float *dy = a->dy + r * C + w->from;
        int token = token_row(a->x[r], a->V);
        if (token >= 0)
            add_row(width, dy, dW + (size_t)token * C);
        if (dP)
            add_row(width, dy, dP + r % T * C);
    }
    if (a->padding > 0)
        memset(dW + (size_t)(a->padding - 1) * C, 0, width * sizeof(*dW));
}

/* ---- rotary */

#define TILE 64 /* pairs of a head at a time */
#define RUN 16  /* positions at a time: rows next to each other */

/* The sine and cosine of an angle of each pair, which grows by a fixed step with each position.
 * They are in double, so that the error after 10,000 positions is far below the last place of a
 * float. */
struct angles {
    double cos[TILE], sin[TILE], step_cos[TILE], step_sin[TILE];
    float c[RUN][TILE], s[RUN][TILE]; /* for a run of positions */
};

static void start_angles(struct angles *g, const struct pp_rotary *a, size_t first, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        double step = rope_step(a, (int)(first + j));
        step = a->back ? -step : step;
        g->cos[j] = cos(a->first * step);
        g->sin[j] = sin(a->first * step);
        g->step_cos[j] = cos(step);
        g->step_sin[j] = sin(step);
    }
}

static void next_angles(struct angles *g, size_t n, float *restrict of_cos, float *restrict of_sin)
{
    for (size_t j = 0; j < n; j++) {
        double c = g->cos[j], s = g->sin[j];
        of_cos[j] = (float)c;
        of_sin[j] = (float)s;
        g->cos[j] = c * g->step_cos[j] - s * g->step_sin[j];
        g->sin[j] = s * g->step_cos[j] + c * g->step_sin[j];
    }
}

/* Rotates n pairs of elements of one head; the two elements of a pair are `half` apart. */
static void rotate_head(size_t n, size_t half, const float *restrict c, const float *restrict s,
                        const float *restrict x, bool add, float *restrict y)
{
    const float *x1 = x + half;
    float *y1 = y + half;
    if (add) {
        for (size_t j = 0; j < n; j++)
            y[j] += x[j] * c[j] - x1[j] * s[j];
        for (size_t j = 0; j < n; j++)
            y1[j] += x1[j] * c[j] + x[j] * s[j];
    } else {
        for (size_t j = 0; j < n; j++)
            y[j] = x[j] * c[j] - x1[j] * s[j];
        for (size_t j = 0; j < n; j++)
            y1[j] = x1[j] * c[j] + x[j] * s[j];
    }
}

/* Rotates the n pairs from pair `at` on of all heads of a row. */
static void rotate_row(const struct pp_rotary *a, size_t row, size_t at, size_t n, const float *c,
                       const float *s)
{
    size_t width = (size_t)a->width, end = (row * (size_t)a->C) + (size_t)a->heads * width;
    for (size_t i = row * (size_t)a->C + at; i < end; i += width)
        rotate_head(n, width / 2, c, s, a->x + i, a->add, a->y + i);
}

void CPU_LOOP(rotary)(const void *args, const struct pp_piece *w)
{
    const struct pp_rotary *a = args;
    size_t C = (size_t)a->C, T = (size_t)a->T, width = (size_t)a->width, half = width / 2;
    size_t turned = (size_t)a->heads * width, first = w->from * T, end = w->to * T;
    struct angles g;
    for (size_t at = 0; at < half; at += TILE) {
        size_t n = half - at < TILE ? half - at : TILE;
        start_angles(&g, a, at, n);
        for (size_t t = 0; t < T; t += RUN) {
            size_t run = T - t < RUN ? T - t : RUN;
            for (size_t i = 0; i < run; i++)
                next_angles(&g, n, g.c[i], g.s[i]);
            for (size_t r = first + t; r < end; r += T)
                for (size_t i = 0; i < run; i++)
                    rotate_row(a, r + i, at, n, g.c[i], g.s[i]);
        }
    }
    for (size_t r = first; r < end && turned < C; r++) {
        const float *x = a->x + r * C + turned;
        float *y = a->y + r * C + turned;
        if (a->add)
            add_row(C - turned, x, y);
        else
            memcpy(y, x, (C - turned) * sizeof(*y));
    }
}

/* ---- gated */

static void gate_row(size_t F, const float *restrict gate, const float *restrict up,
                     float *restrict y)
{
    for (size_t f = 0; f < F; f++)
        y[f] = silu_value(gate[f]) * up[f];
}

void CPU_LOOP(gated_forward)(const void *args, const struct pp_piece *w)
{
    const struct pp_gated *a = args;
    size_t F = (size_t)a->F;
    for (size_t r = w->from; r < w->to; r++)
        gate_row(F, a->x + 2 * r * F, a->x + (2 * r + 1) * F, a->y + r * F);
}

static inline __attribute__((always_inline)) void
gate_backward(size_t F, const float *restrict gate, const float *restrict up,
              const float *restrict dy, bool add, float *restrict d_gate, float *restrict d_up)
{
    for (size_t f = 0; f < F; f++) {
        float s = mathf_logistic(gate[f]), value = gate[f] * s;
        float g = dy[f] * up[f] * (s + value * (1.0f - s)), u = dy[f] * value;
        d_gate[f] = add ? d_gate[f] + g : g;
        d_up[f] = add ? d_up[f] + u : u;
    }
}

void CPU_LOOP(gated_backward)(const void *args, const struct pp_piece *w)
{
    const struct pp_gated_backward *a = args;
    size_t F = (size_t)a->F;
    for (size_t r = w->from; r < w->to; r++) {
        const float *gate = a->x + 2 * r * F, *dy = a->dy + r * F;
        float *dx = a->dx + 2 * r * F;
        if (a->add)
            gate_backward(F, gate, gate + F, dy, true, dx, dx + F);
        else
            gate_backward(F, gate, gate + F, dy, false, dx, dx + F);
    }
}
