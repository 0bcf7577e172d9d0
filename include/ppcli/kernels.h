/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ops of a model ask of a backend beside the linear products of backend.h. Kernels are
 * listed in kernels.def; each takes one struct of this header, is stream ordered, allocates nothing
 * and gives the same bits for the same values. The plain version (src/dev/plain) is what they mean.
 *
 * Memory is NHWC, f32, PP_ALIGN aligned where an array starts. B samples, B >= 0; with B = 0
 * nothing is read, and a weight gradient with beta 0 becomes zero. `add`: dx += instead of =, for a
 * value with another reader. beta is 0 or 1; with 0 the old content is never read. Sums over
 * samples go in ascending order of (sample, row, column), so that no cut into micro-batches changes
 * a bit. NaN in, NaN out. Arrays of one call do not overlap, but where said.
 */
#ifndef PPCLI_KERNELS_H
#define PPCLI_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/config.h"

enum pp_kernel {
#define PP_KERNEL(name, type) PP_KERNEL_##name,
#include "ppcli/kernels.def"
#undef PP_KERNEL
    PP_KERNELS
};

struct pp_backend_choice;

const char *pp_kernel_name(enum pp_kernel k);

/* Whether it computes there: the plain version stands in where the host sees the memory. A config
 * that needs another one must be refused before it runs. */
bool pp_backend_has_kernel(const struct pp_backend_choice *choice, enum pp_kernel k);

/* ---- samples: x[r][f] = scale[c] * data[s][f] + offset[c], each rounded to f32; s = index[r], c = f
 * mod channels. channels 0: x = scale[0] * data. */
struct pp_scaling {
    int channels;
    float scale[PP_CHANNELS_MAX], offset[PP_CHANNELS_MAX];
};

struct pp_gather {
    int B, F;
    const void *data;          /* [n][F] of the device */
    bool floats;               /* data are f32; else bytes */
    const uint32_t *index;     /* [B] of the device; NULL: s = r */
    struct pp_scaling scaling; /* channels divide F */
    float *x;                  /* [B][F] */
};

/* ---- convolution: y[oy][ox][o] = sum over ky, kx, c of
 * x[oy*stride + ky - pad_top][ox*stride + kx - pad_left][c] * W[o][ky][kx][c], where that is
 * inside the image. W[O][kh][kw][C/groups]; output o belongs to group o / (O/groups). */
struct pp_conv {
    int H, W, C;   /* in */
    int OH, OW, O; /* out; padding below and to the right is what they need */
    int kh, kw;    /* kernel */
    int stride;    /* of both directions */
    int pad_top, pad_left;
    int groups; /* divides C and O */
};

struct pp_conv_forward {
    const struct pp_conv *g;
    int B;
    const float *x, *W;
    const float *packed; /* what conv_pack made of W, or NULL: the same bits */
    const float *b;      /* [O] or NULL */
    bool relu;           /* then y = max(0, y), a NaN stays */
    float *scratch;      /* conv_scratch_floats() */
    float *y;            /* [B][OH][OW][O] */
};

struct pp_conv_backward_input {
    const struct pp_conv *g;
    int B;
    const float *dz; /* [B][OH][OW][O] */
    const float *W, *packed;
    float *scratch;
    bool add;
    float *dx; /* [B][H][W][C] */
};

struct pp_weight_part;

struct pp_conv_backward_weight {
    const struct pp_conv *g;
    int n; /* parts, in order; >= 1 */
    const struct pp_weight_part *parts;
    float beta;
    float *scratch;
    float *dW, *db; /* db NULL: no bias */
};

/* ---- normalisation over pixels: x[B][P][C]. xhat = (x - mean) * rstd, rstd = 1 / sqrt(var + eps),
 * y = xhat * gamma[c] + beta[c], + residual, then relu. Variances are biased. */
struct pp_batch_norm_forward { /* statistics of a channel over all B*P */
    int B, P, C;
    float eps;
    const float *x, *gamma, *beta;
    const float *residual; /* [B][P][C] added before relu, or NULL */
    bool relu;
    const float *running_mean, *running_var; /* evaluation: these; NULL: those of x, into keep */
    float *keep;                             /* mean[C], rstd[C]; evaluation, B = 0: not touched */
    float *y;
};

/* Call it also when nobody asks for dx: the weights' turn needs the sums. */
struct pp_batch_norm_backward_input {
    int B, P, C;
    const float *x, *gamma, *keep;
    const float *y; /* relu only, else NULL: where it is 0 the gradient is 0 */
    float *dy;      /* becomes the gradient before relu, in place */
    float *sums;    /* out: sum of dz [C], sum of dz * xhat [C]; kept until the weights' turn */
    bool add, add_residual;
    float *dx;         /* NULL: nobody asks */
    float *d_residual; /* NULL: nobody asks */
};

/* dgamma, dbeta += sums; the batch's statistics for the running ones: stat_mean[C] += n * mean,
 * stat_var[C] += n * (var + mean^2), stat_n[1] += n, n = B*P. beta as ever. */
struct pp_batch_norm_backward_weight {
    int B, P, C;
    float eps;
    const float *keep, *sums;
    float beta;
    float *dgamma, *dbeta, *stat_mean, *stat_var, *stat_n;
};

/* After a step: n = *stat_n, mean = stat_mean / n, var = (stat_var / n - mean^2) * n / (n - 1),
 * without the last factor for n = 1; running += momentum * (those - running); tracked[1] += 1. Nothing when *skip or stat_n is 0. */
struct pp_batch_norm_commit {
    int C;
    float momentum; /* PyTorch's: 0.1 */
    const bool *skip;
    const float *stat_mean, *stat_var, *stat_n;
    float *running_mean, *running_var, *tracked;
};

/* Statistics of G groups of C/G channels over P, each sample alone. */
struct pp_group_norm_forward {
    int B, P, C, G;
    float eps;
    const float *x, *gamma, *beta, *residual;
    bool relu;
    float *keep; /* mean[B][G], rstd[B][G] */
    float *y;
};

struct pp_group_norm_backward_input {
    int B, P, C, G;
    const float *x, *gamma, *keep, *y;
    float *dy;
    bool add, add_residual;
    float *dx, *d_residual;
};

struct pp_group_norm_backward_weight { /* column sums in row order; of one part */
    int B, P, C, G;
    const float *x, *keep, *dz;
    float beta;
    float *dgamma, *dbeta;
};

/* ---- pooling. The window as in struct pp_conv with C == O, groups == C. */
struct pp_max_pool_forward { /* the first largest of a window, outside does not count; NaN wins */
    const struct pp_conv *g;
    int B;
    const float *x;
    uint8_t *taken; /* [B][OH][OW][C] ky * kw + kx of the one taken; kw * kh <= 256; NULL: no
                       gradient will be asked */
    float *y;
};

struct pp_max_pool_backward { /* dx = sum of the windows that took it, in their order */
    const struct pp_conv *g;
    int B;
    const uint8_t *taken;
    const float *dy;
    bool add;
    float *dx;
};

struct pp_avg_pool { /* forward: x -> y; backward: x is dy [B][OH][OW][C], y is dx [B][H][W][C] */
    const struct pp_conv *g;
    int B;
    bool count_padding; /* divide by kh * kw always, as PyTorch does; else by the pixels inside */
    const float *x;
    bool add; /* backward */
    float *y;
};

/* ---- element by element: y or dx may be one of the arrays read, unless `add` */
struct pp_activate { /* y[n] = act(x[n]) */
    size_t n;
    enum pp_activation act;
    const float *x;
    float *y;
};

struct pp_activate_backward { /* dx[n] = dy * act'(..) from what the activation saves: z or y */
    size_t n;
    enum pp_activation act;
    const float *saved, *dy;
    bool add;
    float *dx;
};

struct pp_sum { /* y[n] = a + b, then relu */
    size_t n;
    const float *a, *b;
    bool relu;
    float *y;
};

/* y[r][e] = x[r][e] * 1 / (1 - p), or * 0 where uniform number e of (key, *step, first_row + r) is
 * less than p; the same of dy for its gradient. */
struct pp_dropout {
    int B;
    size_t F;            /* floats of a sample, less than 2^32 */
    float p;             /* 0 <= p < 1 */
    uint64_t key;        /* of seed and node */
    const int64_t *step; /* memory of the device */
    uint32_t first_row;  /* number in the step's whole batch */
    const float *x;
    bool add;
    float *y;
};

#endif
