/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm and group norm. */
#include "plain.h"

#include <math.h>

#include "ppcli/conf/config.h"

/* Computes mean and variance of `count` numbers in two passes. The numbers are in runs of `run`
 * neighbours, and the runs begin `stride` apart. */
static void compute_moments(const float *x, size_t count, size_t run, size_t stride, double *mean,
                            double *var)
{
    double sum = 0, squares = 0;
    for (size_t k = 0; k < count; k++)
        sum += x[k / run * stride + k % run];
    *mean = sum / (double)count;
    for (size_t k = 0; k < count; k++) {
        double d = x[k / run * stride + k % run] - *mean;
        squares += d * d;
    }
    *var = squares / (double)count;
}

static double add_residual_and_relu(double y, const float *residual, size_t at, bool relu)
{
    y += residual ? residual[at] : 0;
    return relu ? plain_activate(PP_ACT_RELU, y) : y;
}

int plain_batch_norm_forward(struct pp_backend *be, const struct pp_batch_norm_forward *a)
{
    size_t n = (size_t)a->B * a->P, C = a->C;
    for (size_t c = 0; c < C && n > 0; c++) {
        double mean, var;
        if (a->running_mean) {
            mean = a->running_mean[c];
            var = a->running_var[c];
        } else {
            compute_moments(a->x + c, n, 1, C, &mean, &var);
        }
        double rstd = 1 / sqrt(var + a->eps);
        if (!a->running_mean) {
            a->keep[c] = (float)mean;
            a->keep[C + c] = (float)rstd;
        }
        for (size_t at = c; at < n * C; at += C) {
            double y = (a->x[at] - mean) * rstd * a->gamma[c] + a->beta[c];
            a->y[at] = (float)add_residual_and_relu(y, a->residual, at, a->relu);
        }
    }
    return 0;
}

/* Replaces dy by the gradient before relu, which it also stores in d_residual or, with `add`, adds
 * to it. */
static void undo_relu(size_t n, const float *y, float *dy, bool add, float *d_residual)
{
    for (size_t i = 0; i < n; i++) {
        if (y)
            dy[i] = (float)plain_activate_back(PP_ACT_RELU, y[i], dy[i]);
        if (d_residual)
            d_residual[i] = (float)((add ? (double)d_residual[i] : 0) + dy[i]);
    }
}

int plain_batch_norm_backward_input(struct pp_backend *be,
                                    const struct pp_batch_norm_backward_input *a)
{
    size_t C = a->C, n = (size_t)a->B * a->P, all = n * C;
    undo_relu(all, a->y, a->dy, a->add_residual, a->d_residual);
    for (size_t c = 0; c < C; c++) {
        double sum = 0, product = 0, mean = n ? a->keep[c] : 0, rstd = n ? a->keep[C + c] : 0;
        for (size_t at = c; at < all; at += C) {
            sum += a->dy[at];
            product += a->dy[at] * ((a->x[at] - mean) * rstd);
        }
        a->sums[c] = (float)sum;
        a->sums[C + c] = (float)product;
        for (size_t at = c; at < all && a->dx; at += C) {
            double xhat = (a->x[at] - mean) * rstd;
            double dx = a->gamma[c] * rstd * (a->dy[at] - (sum + xhat * product) / (double)n);
            a->dx[at] = (float)((a->add ? (double)a->dx[at] : 0) + dx);
        }
    }
    return 0;
}

int plain_batch_norm_backward_weight(struct pp_backend *be,
                                     const struct pp_batch_norm_backward_weight *a)
{
    size_t C = a->C;
    double n = (double)a->B * a->P;
    for (size_t c = 0; c < C; c++) {
        double mean = n > 0 ? a->keep[c] : 0, rstd = n > 0 ? a->keep[C + c] : 1;
        double var = 1 / (rstd * rstd) - a->eps, old = a->beta != 0 ? *a->stat_n : 0;
        double far = old > 0 && n > 0 ? mean - a->stat_mean[c] / old : 0;
        double squares = n * (var < 0 ? 0 : var) + (old > 0 ? far * far * old * n / (old + n) : 0);
        double more[] = {n * mean, squares, a->sums ? a->sums[C + c] : 0, a->sums ? a->sums[c] : 0};
        float *to[] = {a->stat_mean, a->stat_squares, a->dgamma, a->dbeta};
        for (int k = 0; k < (a->sums ? 4 : 2); k++)
            to[k][c] = (float)((a->beta != 0 ? (double)to[k][c] : 0) + more[k]);
    }
    *a->stat_n = (float)((a->beta != 0 ? (double)*a->stat_n : 0) + n);
    return 0;
}

int plain_batch_norm_spread(struct pp_backend *be, const struct pp_batch_norm_spread *a)
{
    double own = a->own[a->C], all = *a->stat_n;
    for (int c = 0; c < a->C; c++) {
        double far = own > 0 ? a->own[c] / own - a->stat_mean[c] / all : 0;
        a->own[c] = (float)(own * far * far);
    }
    return 0;
}

int plain_batch_norm_commit(struct pp_backend *be, const struct pp_batch_norm_commit *a)
{
    double n = *a->stat_n;
    if (*a->skip || n == 0)
        return 0;
    for (int c = 0; c < a->C; c++) {
        double mean = a->stat_mean[c] / n, var = a->stat_squares[c] / (n > 1 ? n - 1 : 1);
        if (!isfinite(mean) || !isfinite(var)) /* clipping checks gradients only */
            continue;
        a->running_mean[c] += (float)(a->momentum * (mean - a->running_mean[c]));
        a->running_var[c] += (float)(a->momentum * (var - a->running_var[c]));
    }
    *a->tracked += 1;
    return 0;
}

int plain_group_norm_forward(struct pp_backend *be, const struct pp_group_norm_forward *a)
{
    size_t C = a->C, P = a->P, G = a->G, run = C / G;
    for (size_t k = 0; k < a->B * G; k++) { /* group k % G of sample k / G */
        size_t first = k / G * P * C + k % G * run;
        double mean, var;
        compute_moments(a->x + first, P * run, run, C, &mean, &var);
        double rstd = 1 / sqrt(var + a->eps);
        a->keep[k] = (float)mean;
        a->keep[a->B * G + k] = (float)rstd;
        for (size_t i = 0; i < P * run; i++) {
            size_t at = first + i / run * C + i % run, c = at % C;
            double y = (a->x[at] - mean) * rstd * a->gamma[c] + a->beta[c];
            a->y[at] = (float)add_residual_and_relu(y, a->residual, at, a->relu);
        }
    }
    return 0;
}

int plain_group_norm_backward_input(struct pp_backend *be,
                                    const struct pp_group_norm_backward_input *a)
{
    size_t C = a->C, P = a->P, G = a->G, run = C / G, n = P * run;
    undo_relu(a->B * P * C, a->y, a->dy, a->add_residual, a->d_residual);
    for (size_t k = 0; k < a->B * G && a->dx; k++) {
        size_t first = k / G * P * C + k % G * run;
        double sum = 0, product = 0, mean = a->keep[k], rstd = a->keep[a->B * G + k];
        for (size_t i = 0; i < n; i++) {
            size_t at = first + i / run * C + i % run;
            double d = (double)a->dy[at] * a->gamma[at % C];
            sum += d;
            product += d * ((a->x[at] - mean) * rstd);
        }
        for (size_t i = 0; i < n; i++) {
            size_t at = first + i / run * C + i % run;
            double d = (double)a->dy[at] * a->gamma[at % C], xhat = (a->x[at] - mean) * rstd;
            double dx = rstd * (d - (sum + xhat * product) / (double)n);
            a->dx[at] = (float)((a->add ? (double)a->dx[at] : 0) + dx);
        }
    }
    return 0;
}

int plain_group_norm_backward_weight(struct pp_backend *be,
                                     const struct pp_group_norm_backward_weight *a)
{
    size_t C = a->C, P = a->P, G = a->G;
    for (size_t c = 0; c < C; c++) {
        double gamma = a->beta != 0 ? a->dgamma[c] : 0, beta = a->beta != 0 ? a->dbeta[c] : 0;
        for (size_t row = 0; row < a->B * P; row++) {
            size_t k = row / P * G + c * G / C;
            double dz = a->dz[row * C + c], x = a->x[row * C + c];
            gamma += dz * ((x - a->keep[k]) * a->keep[a->B * G + k]);
            beta += dz;
        }
        a->dgamma[c] = (float)gamma;
        a->dbeta[c] = (float)beta;
    }
    return 0;
}
