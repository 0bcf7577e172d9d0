/* SPDX-License-Identifier: Apache-2.0 */
/* The products and convolutions with CBLAS: builds everywhere, and may use several threads. */
#include "blas.h"
#include "gemm.h"

#include <string.h>

static void forward(int B, int I, int O, size_t y_row, const float *x, const float *W,
                    const float *packed, const float *b, bool relu, float *y)
{
    blas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, B, O, I, 1.0f, x, I, W, I, 0.0f, y,
               (int)y_row);
}

static void backward_input(int B, int I, int O, size_t dx_row, const float *dz, const float *W,
                           float *dx)
{
    blas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, B, I, O, 1.0f, dz, O, W, (int)dx_row,
               0.0f, dx, (int)dx_row);
}

static void backward_weight(int n, const struct pp_weight_part *parts, int I, int O,
                            const struct cpu_block *at, float beta, float *dW)
{
    for (const struct pp_weight_part *p = parts; p < parts + n; p++) {
        if (p->B > 0) {
            blas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, at->o_end - at->o,
                       at->i_end - at->i, p->B, 1.0f, p->dz + at->o, O, p->x + at->i, I, beta,
                       dW + (size_t)at->o * (size_t)I + at->i, I);
            beta = 1.0f;
        }
    }
}

const struct cpu_gemm cpu_gemm_cblas = {
    .name = "cblas",
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .conv = &cpu_conv_cblas,
};

/*
 * ---- convolution
 *
 * Always one piece, because the library has threads of its own. One product per sample and group:
 * the pixels that each output sees are copied next to each other, col[OH*OW][kh*kw*C/groups].
 * Samples are added one after the other, so their division into parts changes no bit of dW.
 */

struct col_size {
    int P, C, O, K; /* output pixels; per group: channels in, channels out, columns of col */
};

static struct col_size find_col_size(const struct pp_conv *g)
{
    int C = g->C / g->groups;
    return (struct col_size){g->OH * g->OW, C, g->O / g->groups, g->kh * g->kw * C};
}

static size_t scratch_floats(const struct pp_conv *g, int B)
{
    struct col_size s = find_col_size(g);
    return (size_t)s.P * (size_t)s.K;
}

/* Copies the pixels that each window of the image sees, for the channels of one group, to `col`,
 * with 0 outside the image; with `back` adds `col` to the image instead. */
static void copy_columns(const struct pp_conv *g, float *image, float *col, bool back)
{
    size_t C = (size_t)(g->C / g->groups);
    for (int p = 0; p < g->OH * g->OW; p++) {
        for (int t = 0; t < g->kh * g->kw; t++, col += C) {
            int y = p / g->OW * g->stride + t / g->kw - g->pad_top;
            int x = p % g->OW * g->stride + t % g->kw - g->pad_left;
            bool inside = y >= 0 && y < g->H && x >= 0 && x < g->W;
            if (inside) {
                float *pixel = image + ((size_t)y * (size_t)g->W + (size_t)x) * (size_t)g->C;
                for (size_t c = 0; back && c < C; c++)
                    pixel[c] += col[c];
                if (!back)
                    memcpy(col, pixel, C * sizeof(*col));
            } else if (!back) {
                memset(col, 0, C * sizeof(*col));
            }
        }
    }
}

static void conv_forward(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_forward *a = args;
    const struct pp_conv *g = a->g;
    struct col_size s = find_col_size(g);
    for (int n = 0; n < a->B; n++) {
        const float *x = a->x + (size_t)n * (size_t)(g->H * g->W) * (size_t)g->C;
        float *y = a->y + (size_t)n * (size_t)s.P * (size_t)g->O;
        for (int i = 0; i < g->groups; i++) {
            copy_columns(g, (float *)x + (size_t)i * (size_t)s.C, a->scratch, false);
            blas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, s.P, s.O, s.K, 1.0f, a->scratch,
                       s.K, a->W + (size_t)i * (size_t)s.O * (size_t)s.K, s.K, 0.0f,
                       y + (size_t)i * (size_t)s.O, g->O);
        }
        for (size_t k = 0; k < (size_t)s.P * (size_t)g->O; k++) {
            float z = a->b ? y[k] + a->b[k % (size_t)g->O] : y[k];
            y[k] = a->relu && z < 0 ? 0 : z;
        }
    }
}

static void conv_backward_input(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_backward_input *a = args;
    const struct pp_conv *g = a->g;
    struct col_size s = find_col_size(g);
    size_t floats = (size_t)(g->H * g->W) * (size_t)g->C;
    for (int n = 0; n < a->B; n++) {
        float *dx = a->dx + (size_t)n * floats;
        if (!a->add)
            memset(dx, 0, floats * sizeof(*dx));
        for (int i = 0; i < g->groups; i++) {
            blas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, s.P, s.K, s.O, 1.0f,
                       a->dz + (size_t)n * (size_t)s.P * (size_t)g->O + (size_t)i * (size_t)s.O,
                       g->O, a->W + (size_t)i * (size_t)s.O * (size_t)s.K, s.K, 0.0f, a->scratch,
                       s.K);
            copy_columns(g, dx + (size_t)i * (size_t)s.C, a->scratch, true);
        }
    }
}

static void conv_backward_weight(const void *args, const struct pp_piece *w)
{
    const struct pp_conv_backward_weight *a = args;
    const struct pp_conv *g = a->g;
    struct col_size s = find_col_size(g);
    if (a->beta == 0)
        memset(a->dW, 0, (size_t)g->O * (size_t)s.K * sizeof(*a->dW));
    for (const struct pp_weight_part *p = a->parts; p < a->parts + a->n; p++) {
        for (int n = 0; n < p->B; n++) {
            const float *x = p->x + (size_t)n * (size_t)(g->H * g->W) * (size_t)g->C;
            for (int i = 0; i < g->groups; i++) {
                copy_columns(g, (float *)x + (size_t)i * (size_t)s.C, a->scratch, false);
                blas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, s.O, s.K, s.P, 1.0f,
                           p->dz + (size_t)n * (size_t)s.P * (size_t)g->O + (size_t)i * (size_t)s.O,
                           g->O, a->scratch, s.K, 1.0f,
                           a->dW + (size_t)i * (size_t)s.O * (size_t)s.K, s.K);
            }
        }
    }
}

const struct cpu_conv cpu_conv_cblas = {
    .scratch_floats = scratch_floats,
    .forward = conv_forward,
    .backward_input = conv_backward_input,
    .backward_weight = conv_backward_weight,
};
