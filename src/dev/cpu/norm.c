/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch and group norm, with vectors along the channels. Sums are in double, channel by channel in
 * order of the pixels, and are of distances from the first value. So one pass gives both the sum
 * and the sum of squares, even where the mean is far from 0. Both norms use the same four loops
 * over a tile of channels; everything in which they differ is a number per channel.
 */
#include "kernels.h"

#include <string.h>

#include "activations.h"

#define TILE 512 /* channels at a time: their sums stay in the first-level cache */
#define LANES 8

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- loops over rows of C floats, `width` of each */

/* Computes, for each channel, the sum s[c] of x - first, and the sum q[c] of the squares of x -
 * first. Takes two rows at a time, which halves how often the sums are read and written. */
static void sum_squares(size_t rows, size_t C, size_t width, const float *restrict x,
                        const float *restrict first, double *restrict s, double *restrict q)
{
    memset(s, 0, width * sizeof(*s));
    memset(q, 0, width * sizeof(*q));
    size_t r = 0;
    for (; r + 2 <= rows; r += 2, x += 2 * C) {
        for (size_t c = 0; c < width; c++) {
            double x0 = (double)x[c] - first[c], x1 = (double)x[C + c] - first[c];
            s[c] = s[c] + x0 + x1;
            q[c] = q[c] + x0 * x0 + x1 * x1;
        }
    }
    for (size_t c = 0; c < width && r < rows; c++) {
        double left = (double)x[c] - first[c];
        s[c] += left;
        q[c] += left * left;
    }
}

/* Adds the sum of dz to s[c], and the sum of dz * (x - mean) * rstd to q[c]. */
static void sum_products(size_t rows, size_t C, size_t width, const float *restrict dz,
                         const float *restrict x, const float *restrict mean,
                         const float *restrict rstd, double *restrict s, double *restrict q)
{
    size_t r = 0;
    for (; r + 2 <= rows; r += 2, x += 2 * C, dz += 2 * C) {
        for (size_t c = 0; c < width; c++) {
            float xhat0 = (x[c] - mean[c]) * rstd[c], xhat1 = (x[C + c] - mean[c]) * rstd[c];
            s[c] = s[c] + (double)dz[c] + (double)dz[C + c];
            q[c] = q[c] + (double)(dz[c] * xhat0) + (double)(dz[C + c] * xhat1);
        }
    }
    for (size_t c = 0; c < width && r < rows; c++) {
        s[c] += dz[c];
        q[c] += dz[c] * ((x[c] - mean[c]) * rstd[c]);
    }
}

/* Computes y = (x - mean) * scale + shift, adds the residual, then applies relu. */
static inline __attribute__((always_inline)) void
scale_rows(size_t rows, size_t C, size_t width, const float *restrict x, const float *restrict mean,
           const float *restrict scale, const float *restrict shift, const float *restrict residual,
           bool relu, float *restrict y)
{
    for (size_t r = 0; r < rows; r++, x += C, y += C) {
        for (size_t c = 0; c < width; c++) {
            float v = (x[c] - mean[c]) * scale[c] + shift[c];
            v = residual ? v + residual[r * C + c] : v;
            y[c] = relu ? relu_value(v) : v;
        }
    }
}

static void normalize_rows(size_t rows, size_t C, size_t width, const float *x, const float *mean,
                           const float *scale, const float *shift, const float *residual, bool relu,
                           float *y)
{
    if (residual && relu)
        scale_rows(rows, C, width, x, mean, scale, shift, residual, true, y);
    else if (residual)
        scale_rows(rows, C, width, x, mean, scale, shift, residual, false, y);
    else if (relu)
        scale_rows(rows, C, width, x, mean, scale, shift, NULL, true, y);
    else
        scale_rows(rows, C, width, x, mean, scale, shift, NULL, false, y);
}

/* Replaces one row of dy by its gradient before relu, which it also stores in d_residual or, with
 * `add`, adds to it. */
static void undo_relu(size_t width, const float *restrict y, float *restrict dy, bool add,
                      float *restrict d_residual)
{
    for (size_t c = 0; c < width && y; c++)
        dy[c] = relu_back(y[c], dy[c]);
    if (d_residual && add)
        for (size_t c = 0; c < width; c++)
            d_residual[c] += dy[c];
    else if (d_residual)
        memcpy(d_residual, dy, width * sizeof(*dy));
}

/* Applies undo_relu() to all rows and computes the sums of sum_products() over them; takes two rows
 * at a time, while they are in the first-level cache. */
static void relu_and_sums(size_t rows, size_t C, size_t width, const float *x, const float *mean,
                          const float *rstd, const float *y, float *dy, bool add, float *d_residual,
                          double *s, double *q)
{
    memset(s, 0, width * sizeof(*s));
    memset(q, 0, width * sizeof(*q));
    for (size_t r = 0; r < rows; r += 2) {
        size_t some = least(2, rows - r);
        for (size_t at = r * C; at < (r + some) * C; at += C)
            undo_relu(width, y ? y + at : NULL, dy + at, add, d_residual ? d_residual + at : NULL);
        sum_products(some, C, width, dy + r * C, x + r * C, mean, rstd, s, q);
    }
}

/* Computes g * dz - (m1 + (x - mean) * rstd * m2), written to dx or added to it. */
static void backward_rows(size_t rows, size_t C, size_t width, const float *restrict dz,
                          const float *restrict x, const float *restrict mean,
                          const float *restrict rstd, const float *restrict g,
                          const float *restrict m1, const float *restrict m2, bool add,
                          float *restrict dx)
{
    for (size_t r = 0; r < rows; r++, x += C, dz += C, dx += C) {
        if (add)
            for (size_t c = 0; c < width; c++)
                dx[c] += g[c] * dz[c] - (m1[c] + (x[c] - mean[c]) * rstd[c] * m2[c]);
        else
            for (size_t c = 0; c < width; c++)
                dx[c] = g[c] * dz[c] - (m1[c] + (x[c] - mean[c]) * rstd[c] * m2[c]);
    }
}

/* ---- statistics */

/* Computes mean and rstd of a channel or group from its sums over n numbers. Treats a variance
 * below 0 as 0, because only rounding can cause it; keeps a NaN. */
static void compute_moments(float first, double sum, double squares, double n, float eps,
                            double *mean, double *rstd)
{
    double left = sum / n, var = squares / n - left * left;
    *mean = first + left;
    *rstd = 1 / sqrt((var < 0 ? 0 : var) + (double)eps);
}

/* Sets the mean, scale and shift of a channel. The mean is kept as a float; the shift makes up for
 * the digits that this loses. */
static void set_channel(double mean, double rstd, float gamma, float beta, float *kept_mean,
                        float *scale, float *shift)
{
    *kept_mean = (float)mean;
    *scale = (float)(gamma * rstd);
    *shift = (float)(beta - (mean - *kept_mean) * (gamma * rstd));
}

void CPU_LOOP(batch_norm_forward)(const void *args, const struct pp_piece *w)
{
    const struct pp_batch_norm_forward *a = args;
    size_t C = (size_t)a->C, rows = (size_t)a->B * (size_t)a->P;
    double s[TILE], q[TILE];
    float mean[TILE], scale[TILE], shift[TILE];
    for (size_t at = w->from; at < w->to && rows > 0; at += TILE) {
        size_t width = least(TILE, w->to - at);
        if (!a->running_mean)
            sum_squares(rows, C, width, a->x + at, a->x + at, s, q);
        for (size_t c = 0; c < width; c++) {
            double m, rstd;
            if (a->running_mean) {
                m = a->running_mean[at + c];
                rstd = 1 / sqrt((double)a->running_var[at + c] + (double)a->eps);
            } else {
                compute_moments(a->x[at + c], s[c], q[c], (double)rows, a->eps, &m, &rstd);
                a->keep[at + c] = (float)m;
                a->keep[C + at + c] = (float)rstd;
            }
            set_channel(m, rstd, a->gamma[at + c], a->beta[at + c], &mean[c], &scale[c], &shift[c]);
        }
        normalize_rows(rows, C, width, a->x + at, mean, scale, shift,
                       a->residual ? a->residual + at : NULL, a->relu, a->y + at);
    }
}

void CPU_LOOP(batch_norm_backward_input)(const void *args, const struct pp_piece *w)
{
    const struct pp_batch_norm_backward_input *a = args;
    size_t C = (size_t)a->C, rows = (size_t)a->B * (size_t)a->P;
    double s[TILE], q[TILE];
    float g[TILE], m1[TILE], m2[TILE];
    for (size_t at = w->from; at < w->to; at += TILE) {
        size_t width = least(TILE, w->to - at);
        const float *mean = a->keep + at, *rstd = a->keep + C + at;
        relu_and_sums(rows, C, width, a->x + at, mean, rstd, a->y ? a->y + at : NULL, a->dy + at,
                      a->add_residual, a->d_residual ? a->d_residual + at : NULL, s, q);
        for (size_t c = 0; c < width; c++) {
            a->sums[at + c] = (float)s[c];
            a->sums[C + at + c] = (float)q[c];
            if (rows == 0)
                continue;
            g[c] = a->gamma[at + c] * rstd[c];
            m1[c] = (float)(g[c] * s[c] / (double)rows);
            m2[c] = (float)(g[c] * q[c] / (double)rows);
        }
        if (a->dx)
            backward_rows(rows, C, width, a->dy + at, a->x + at, mean, rstd, g, m1, m2, a->add,
                          a->dx + at);
    }
}

/* ---- group norm goes sample by sample, a span of channels at a time: the groups of a tile, or all
 * tiles of a wider group */

struct span {
    size_t C, P, run;  /* channels, pixels, channels of a group */
    size_t first, end; /* channels of the span */
    size_t x;          /* offset of the sample's pixels */
    size_t group, n;   /* the first group in keep, and the number of groups */
};

/* Returns the span of channels of one sample that starts at the i-th channel, counted over all
 * samples. A span has whole groups, or one group that is wider than TILE. */
static struct span span_at(size_t i, int P, int C, int G)
{
    struct span p = {.C = (size_t)C, .P = (size_t)P, .run = (size_t)(C / G)};
    size_t width = p.run < TILE ? TILE / p.run * p.run : p.run, sample = i / p.C;
    p.first = i % p.C;
    p.end = least(p.first + width, p.C);
    p.x = sample * p.P * p.C;
    p.group = sample * (size_t)G + p.first / p.run;
    p.n = (p.end - p.first) / p.run;
    return p;
}

/* Adds to groups[k] the sum of the channels of group k in v[width]. If a group is wider than the
 * tile v, the tile belongs to that group alone. */
static void sum_groups(size_t width, size_t run, const double *v, double *groups)
{
    run = least(run, width);
    for (size_t k = 0; k < width / run; k++, v += run) {
        double lane[LANES] = {0};
        size_t c = 0;
        for (; c + LANES <= run; c += LANES)
            for (size_t l = 0; l < LANES; l++)
                lane[l] += v[c + l];
        for (size_t l = 0; c < run; c++, l++)
            lane[l] += v[c];
        for (size_t half = LANES / 2; half > 0; half /= 2)
            for (size_t l = 0; l < half; l++)
                lane[l] += lane[l + half];
        groups[k] += lane[0];
    }
}

/* Sets out[c] to the value of the group of channel c. */
static void spread_groups(size_t width, size_t run, const float *groups, float *out)
{
    run = least(run, width);
    for (size_t k = 0; k < width / run; k++)
        for (size_t c = 0; c < run; c++)
            out[k * run + c] = groups[k];
}

void CPU_LOOP(group_norm_forward)(const void *args, const struct pp_piece *w)
{
    const struct pp_group_norm_forward *a = args;
    size_t C = (size_t)a->C, groups = (size_t)a->B * (size_t)a->G;
    double s[TILE], q[TILE];
    float m[TILE], rstds[TILE], losses[TILE], mean[TILE], scale[TILE], shift[TILE], from[TILE];
    struct span p;
    for (size_t i = w->from * C; i < w->to * C; i += p.end - p.first) {
        p = span_at(i, a->P, a->C, a->G);
        double sums[TILE] = {0}, squares[TILE] = {0};
        for (size_t k = 0; k < p.n; k++)
            from[k] = a->x[p.x + p.first + k * p.run];
        for (size_t at = p.first; at < p.end; at += TILE) {
            size_t width = least(TILE, p.end - at);
            spread_groups(width, p.run, from, mean);
            sum_squares(p.P, p.C, width, a->x + p.x + at, mean, s, q);
            sum_groups(width, p.run, s, sums);
            sum_groups(width, p.run, q, squares);
        }
        for (size_t k = 0; k < p.n; k++) {
            double exact, rstd;
            compute_moments(from[k], sums[k], squares[k], (double)(p.P * p.run), a->eps, &exact,
                            &rstd);
            a->keep[p.group + k] = m[k] = (float)exact;
            a->keep[groups + p.group + k] = rstds[k] = (float)rstd;
            losses[k] = (float)((exact - m[k]) * rstd);
        }
        for (size_t at = p.first; at < p.end; at += TILE) {
            size_t width = least(TILE, p.end - at);
            spread_groups(width, p.run, m, mean);
            spread_groups(width, p.run, rstds, scale);
            spread_groups(width, p.run, losses, shift);
            for (size_t c = 0; c < width; c++) {
                shift[c] = a->beta[at + c] - shift[c] * a->gamma[at + c];
                scale[c] *= a->gamma[at + c];
            }
            normalize_rows(p.P, p.C, width, a->x + p.x + at, mean, scale, shift,
                           a->residual ? a->residual + p.x + at : NULL, a->relu, a->y + p.x + at);
        }
    }
}

void CPU_LOOP(group_norm_backward_input)(const void *args, const struct pp_piece *w)
{
    const struct pp_group_norm_backward_input *a = args;
    size_t C = (size_t)a->C, groups = (size_t)a->B * (size_t)a->G;
    double s[TILE], q[TILE];
    float mean[TILE], rstd[TILE], g[TILE], m1[TILE], m2[TILE];
    struct span p;
    for (size_t i = w->from * C; i < w->to * C; i += p.end - p.first) {
        p = span_at(i, a->P, a->C, a->G);
        const float *means = a->keep + p.group, *rstds = a->keep + groups + p.group;
        double sums[TILE] = {0}, products[TILE] = {0};
        for (size_t at = p.first; at < p.end; at += TILE) {
            size_t width = least(TILE, p.end - at), first = p.x + at;
            spread_groups(width, p.run, means, mean);
            spread_groups(width, p.run, rstds, rstd);
            relu_and_sums(p.P, p.C, width, a->x + first, mean, rstd, a->y ? a->y + first : NULL,
                          a->dy + first, a->add_residual,
                          a->d_residual ? a->d_residual + first : NULL, s, q);
            for (size_t c = 0; c < width; c++) {
                s[c] *= a->gamma[at + c];
                q[c] *= a->gamma[at + c];
            }
            sum_groups(width, p.run, s, sums);
            sum_groups(width, p.run, q, products);
        }
        float first[TILE], second[TILE];
        for (size_t k = 0; k < p.n; k++) {
            first[k] = (float)(sums[k] * rstds[k] / (double)(p.P * p.run));
            second[k] = (float)(products[k] * rstds[k] / (double)(p.P * p.run));
        }
        for (size_t at = p.first; at < p.end && a->dx; at += TILE) {
            size_t width = least(TILE, p.end - at);
            spread_groups(width, p.run, means, mean);
            spread_groups(width, p.run, rstds, rstd);
            spread_groups(width, p.run, first, m1);
            spread_groups(width, p.run, second, m2);
            for (size_t c = 0; c < width; c++)
                g[c] = a->gamma[at + c] * rstd[c];
            backward_rows(p.P, p.C, width, a->dy + p.x + at, a->x + p.x + at, mean, rstd, g, m1, m2,
                          a->add, a->dx + p.x + at);
        }
    }
}

/* Computes dgamma and dbeta. Rounds the sums of each sample before it adds them, so that no cut
 * between samples changes a bit. */
void CPU_LOOP(group_norm_backward_weight)(const void *args, const struct pp_piece *w)
{
    const struct pp_group_norm_backward_weight *a = args;
    size_t C = (size_t)a->C, G = (size_t)a->G, P = (size_t)a->P, groups = (size_t)a->B * G;
    double s[TILE], q[TILE];
    float mean[TILE], rstd[TILE];
    if (a->beta == 0) {
        memset(a->dgamma + w->from, 0, (w->to - w->from) * sizeof(*a->dgamma));
        memset(a->dbeta + w->from, 0, (w->to - w->from) * sizeof(*a->dbeta));
    }
    for (size_t b = 0; b < (size_t)a->B; b++) {
        for (size_t at = w->from; at < w->to; at += TILE) {
            size_t width = least(TILE, w->to - at), x = b * P * C + at;
            for (size_t c = 0; c < width; c++) {
                size_t group = b * G + (at + c) / (C / G);
                mean[c] = a->keep[group];
                rstd[c] = a->keep[groups + group];
                s[c] = q[c] = 0;
            }
            sum_products(P, C, width, a->dz + x, a->x + x, mean, rstd, s, q);
            for (size_t c = 0; c < width; c++) {
                a->dgamma[at + c] += (float)q[c];
                a->dbeta[at + c] += (float)s[c];
            }
        }
    }
}
