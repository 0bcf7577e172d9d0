/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution as its formula, in double: each element of a result is one sum in index order. */
#include "plain.h"
#include "ppcli/conf/config.h"

/* Returns the position that tap k of output o reads along an axis of `size` elements; -1 if it is
 * outside. */
static int tap_input(int o, int stride, int k, int pad, int size)
{
    int at = o * stride + k - pad;
    return at >= 0 && at < size ? at : -1;
}

/* Returns the output along one axis that reads element `at` with tap k; -1: no output does. */
static int tap_output(int at, int stride, int k, int pad, int outputs)
{
    int o = at + pad - k;
    return o >= 0 && o % stride == 0 && o / stride < outputs ? o / stride : -1;
}

static size_t offset_in_4d(int n, int y, int x, int c, int H, int W, int C)
{
    return (((size_t)n * H + y) * W + x) * C + c;
}

int plain_conv_forward(struct pp_backend *be, const struct pp_conv_forward *a)
{
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups;
    size_t pixels = (size_t)a->B * g->OH * g->OW;
    for (size_t i = 0; i < pixels * g->O; i++) {
        int o = (int)(i % g->O), ox = (int)(i / g->O % g->OW);
        int oy = (int)(i / g->O / g->OW % g->OH), n = (int)(i / g->O / g->OW / g->OH);
        int first = o / (g->O / g->groups) * C;
        double sum = a->b ? a->b[o] : 0;
        for (int ky = 0; ky < g->kh; ky++) {
            for (int kx = 0; kx < g->kw; kx++) {
                int y = tap_input(oy, g->stride, ky, g->pad_top, g->H);
                int x = tap_input(ox, g->stride, kx, g->pad_left, g->W);
                for (int c = 0; y >= 0 && x >= 0 && c < C; c++)
                    sum += (double)a->x[offset_in_4d(n, y, x, first + c, g->H, g->W, g->C)] *
                           a->W[offset_in_4d(o, ky, kx, c, g->kh, g->kw, C)];
            }
        }
        a->y[i] = (float)(a->relu ? plain_activate(PP_ACT_RELU, sum) : sum);
    }
    return 0;
}

int plain_conv_backward_input(struct pp_backend *be, const struct pp_conv_backward_input *a)
{
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups, O = g->O / g->groups;
    size_t pixels = (size_t)a->B * g->H * g->W;
    for (size_t i = 0; i < pixels * g->C; i++) {
        int c = (int)(i % g->C), x = (int)(i / g->C % g->W);
        int y = (int)(i / g->C / g->W % g->H), n = (int)(i / g->C / g->W / g->H);
        int first = c / C * O;
        double sum = a->add ? a->dx[i] : 0;
        for (int ky = 0; ky < g->kh; ky++) {
            for (int kx = 0; kx < g->kw; kx++) {
                int oy = tap_output(y, g->stride, ky, g->pad_top, g->OH);
                int ox = tap_output(x, g->stride, kx, g->pad_left, g->OW);
                for (int o = first; oy >= 0 && ox >= 0 && o < first + O; o++)
                    sum += (double)a->dz[offset_in_4d(n, oy, ox, o, g->OH, g->OW, g->O)] *
                           a->W[offset_in_4d(o, ky, kx, c % C, g->kh, g->kw, C)];
            }
        }
        a->dx[i] = (float)sum;
    }
    return 0;
}

/* Returns the gradient of the weight [o][ky][kx][c], summed over the samples and pixels of a
 * part. */
static double weight_sum(const struct pp_conv *g, const struct pp_weight_part *p, int o, int ky,
                         int kx, int c)
{
    int first = o / (g->O / g->groups) * (g->C / g->groups);
    double sum = 0;
    for (int n = 0; n < p->B; n++) {
        for (int oy = 0; oy < g->OH; oy++) {
            int y = tap_input(oy, g->stride, ky, g->pad_top, g->H);
            for (int ox = 0; y >= 0 && ox < g->OW; ox++) {
                int x = tap_input(ox, g->stride, kx, g->pad_left, g->W);
                if (x >= 0)
                    sum += (double)p->dz[offset_in_4d(n, oy, ox, o, g->OH, g->OW, g->O)] *
                           p->x[offset_in_4d(n, y, x, first + c, g->H, g->W, g->C)];
            }
        }
    }
    return sum;
}

int plain_conv_backward_weight(struct pp_backend *be, const struct pp_conv_backward_weight *a)
{
    const struct pp_conv *g = a->g;
    int C = g->C / g->groups;
    for (int o = 0; o < g->O; o++) {
        for (int t = 0; t < g->kh * g->kw * C; t++) {
            size_t at = (size_t)o * g->kh * g->kw * C + t;
            double sum = a->beta != 0 ? a->dW[at] : 0;
            for (int k = 0; k < a->n; k++)
                sum += weight_sum(g, &a->parts[k], o, t / C / g->kw, t / C % g->kw, t % C);
            a->dW[at] = (float)sum;
        }
        if (a->db) {
            double sum = a->beta != 0 ? a->db[o] : 0;
            for (int k = 0; k < a->n; k++) {
                size_t rows = (size_t)a->parts[k].B * g->OH * g->OW;
                for (size_t r = 0; r < rows; r++)
                    sum += a->parts[k].dz[r * g->O + o];
            }
            a->db[o] = (float)sum;
        }
    }
    return 0;
}
