/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax over one axis. Along the last axis a row is summed in lanes, whose order does not depend
 * on the width of vectors; along an earlier one, vectors go over the axes after it.
 */
#include "kernels.h"

#include <string.h>

#include "mathf.h"

#define LANES 16
#define PIECE 128 /* elements of the inner axes at once */

static double sum_lanes(const double *lane)
{
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

/* Returns the largest element; a NaN is the result only if it is x[0]. */
static float largest_of(int n, const float *restrict x)
{
    float lane[LANES], m = x[0];
    int i = 0;
    for (int l = 0; l < LANES; l++)
        lane[l] = m;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int l = 0; i < n; i++, l++)
        lane[l] = x[i] > lane[l] ? x[i] : lane[l];
    for (int l = 0; l < LANES; l++)
        m = lane[l] > m ? lane[l] : m;
    return m;
}

/* Writes e = exp(x - m) and returns its sum. */
static double sum_exp(int n, const float *restrict x, float m, float *restrict e)
{
    double lane[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++)
            e[i + l] = mathf_exp_below_0(x[i + l] - m);
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)e[i + l];
    }
    for (int l = 0; i < n; i++, l++) {
        e[i] = mathf_exp_below_0(x[i] - m);
        lane[l] += (double)e[i];
    }
    return sum_lanes(lane);
}

static void forward_row(int n, const float *restrict x, bool is_log, float *restrict y)
{
    float m = largest_of(n, x);
    double sum = sum_exp(n, x, m, y);
    float scale = (float)(1 / sum), off = (float)log(sum);
    if (is_log)
        for (int i = 0; i < n; i++)
            y[i] = x[i] - m - off;
    else
        for (int i = 0; i < n; i++)
            y[i] *= scale;
}

/* Computes the softmax of each of `inner` columns, whose elements are `stride` floats apart. */
static void forward_columns(int n, int inner, size_t stride, const float *restrict x, bool is_log,
                            float *restrict y)
{
    float m[PIECE], scale[PIECE];
    double sum[PIECE] = {0};
    memcpy(m, x, (size_t)inner * sizeof(*m));
    for (int r = 1; r < n; r++)
        for (int i = 0; i < inner; i++)
            m[i] =
                x[(size_t)r * stride + (size_t)i] > m[i] ? x[(size_t)r * stride + (size_t)i] : m[i];
    for (int r = 0; r < n; r++) {
        const float *from = x + (size_t)r * stride;
        float *to = y + (size_t)r * stride;
        for (int i = 0; i < inner; i++)
            to[i] = mathf_exp_below_0(from[i] - m[i]);
        for (int i = 0; i < inner; i++)
            sum[i] += (double)to[i];
    }
    for (int i = 0; i < inner; i++)
        scale[i] = (float)(is_log ? log(sum[i]) : 1 / sum[i]);
    for (int r = 0; r < n; r++) {
        const float *from = x + (size_t)r * stride;
        float *to = y + (size_t)r * stride;
        if (is_log)
            for (int i = 0; i < inner; i++)
                to[i] = from[i] - m[i] - scale[i];
        else
            for (int i = 0; i < inner; i++)
                to[i] *= scale[i];
    }
}

void CPU_LOOP(softmax_forward)(const void *args, const struct pp_piece *w)
{
    const struct pp_softmax_forward *a = args;
    size_t inner = (size_t)a->inner, each = (size_t)a->n * inner;
    for (size_t r = w->from; r < w->to; r++) {
        const float *x = a->x + r * each;
        float *y = a->y + r * each;
        if (inner == 1)
            forward_row(a->n, x, a->log, y);
        for (size_t i = 0; i < inner && inner > 1; i += PIECE)
            forward_columns(a->n, (int)(inner - i < PIECE ? inner - i : PIECE), inner, x + i,
                            a->log, y + i);
    }
}

/* ---- the gradient: y * (dy - sum of dy * y), or of the logarithm dy - exp(y) * sum of dy */

static double sum_terms(int n, const float *restrict y, const float *restrict dy, bool is_log)
{
    double lane[LANES] = {0};
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += is_log ? (double)dy[i + l] : (double)dy[i + l] * (double)y[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += is_log ? (double)dy[i] : (double)dy[i] * (double)y[i];
    return sum_lanes(lane);
}

static inline float softmax_back(float y, float dy, float sum, bool is_log)
{
    return is_log ? dy - mathf_exp_below_0(y) * sum : y * (dy - sum);
}

static void backward_row(int n, const float *restrict y, const float *restrict dy, bool is_log,
                         bool add, float *restrict dx)
{
    float sum = (float)sum_terms(n, y, dy, is_log);
    if (add)
        for (int i = 0; i < n; i++)
            dx[i] += softmax_back(y[i], dy[i], sum, is_log);
    else
        for (int i = 0; i < n; i++)
            dx[i] = softmax_back(y[i], dy[i], sum, is_log);
}

static void backward_columns(int n, int inner, size_t stride, const float *restrict y,
                             const float *restrict dy, bool is_log, bool add, float *restrict dx)
{
    double sum[PIECE] = {0};
    float total[PIECE];
    for (int r = 0; r < n; r++) {
        const float *p = y + (size_t)r * stride, *d = dy + (size_t)r * stride;
        for (int i = 0; i < inner; i++)
            sum[i] += is_log ? (double)d[i] : (double)d[i] * (double)p[i];
    }
    for (int i = 0; i < inner; i++)
        total[i] = (float)sum[i];
    for (int r = 0; r < n; r++) {
        const float *p = y + (size_t)r * stride, *d = dy + (size_t)r * stride;
        float *to = dx + (size_t)r * stride;
        for (int i = 0; i < inner; i++) {
            float g = softmax_back(p[i], d[i], total[i], is_log);
            to[i] = add ? to[i] + g : g;
        }
    }
}

void CPU_LOOP(softmax_backward)(const void *args, const struct pp_piece *w)
{
    const struct pp_softmax_backward *a = args;
    size_t inner = (size_t)a->inner, each = (size_t)a->n * inner;
    for (size_t r = w->from; r < w->to; r++) {
        const float *y = a->y + r * each, *dy = a->dy + r * each;
        float *dx = a->dx + r * each;
        if (inner == 1)
            backward_row(a->n, y, dy, a->log, a->add, dx);
        for (size_t i = 0; i < inner && inner > 1; i += PIECE)
            backward_columns(a->n, (int)(inner - i < PIECE ? inner - i : PIECE), inner, y + i,
                             dy + i, a->log, a->add, dx + i);
    }
}
