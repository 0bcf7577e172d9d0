/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels that ops of a model need from a backend, in addition to the linear products of
 * backend.h. Kernels are listed in kernels.def; each takes one struct of this header, is ordered by
 * the stream, allocates nothing and gives the same bits for the same values. The plain version
 * (src/dev/plain) defines its result.
 *
 * Memory is NHWC, f32 except values (see ppcli/dev/backend.h), and PP_ALIGN aligned at the start of
 * an array. B samples, B >= 0; with B = 0 nothing is read, and a weight gradient with beta 0
 * becomes zero. `add`: dx += instead of =, for a value with another reader. beta is 0 or 1; with 0
 * the old content is never read. Sums over samples run in ascending order of (sample, row, column),
 * so no cut into micro-batches changes a bit. NaN in, NaN out. Arrays of one call do not overlap
 * unless stated.
 */
#ifndef PPCLI_DEV_KERNELS_H
#define PPCLI_DEV_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/conf/config.h"

enum pp_kernel {
#define PP_KERNEL(name, type) PP_KERNEL_##name,
#include "ppcli/dev/kernels.def"
    PP_KERNELS
};

struct pp_backend_choice;
struct pp_loss_sums;

/* An element of a value: f32, or bf16 if pp_backend_value_bytes() is 2; then only the backend may
 * read one or compute the address of the next (use pp_value_at()). */
typedef float pp_value;

const char *pp_kernel_name(enum pp_kernel k);

/* Returns whether the kernel can run on this backend: its own version or, if the host can access
 * the backend's memory, the plain one. A config that needs a missing kernel must be rejected before
 * it runs. */
bool pp_backend_has_kernel(const struct pp_backend_choice *choice, enum pp_kernel k);

/* ---- samples: x[r][f] = scale[c] * data[s*stride + f] + offset[c], each rounded to f32; s =
 * index[r], c = f mod channels. channels 0: x = scale[0] * data. */
enum pp_element {
    PP_U8, /* uint8_t and so on */
    PP_U16,
    PP_U32, /* below 2^24, so that f32 is exact */
    PP_F32
};

static inline size_t pp_element_bytes(enum pp_element e)
{
    return e == PP_U8 ? 1 : e == PP_U16 ? 2 : 4;
}

struct pp_scaling {
    int channels;
    float scale[PP_CHANNELS_MAX], offset[PP_CHANNELS_MAX];
};

struct pp_gather {
    int B, F;
    const void *data;          /* elements, device memory */
    enum pp_element element;   /* their type */
    size_t stride;             /* elements from one sample to the next: F, or less if samples
                                overlap */
    const uint32_t *index;     /* [B] device memory; NULL: s = r */
    struct pp_scaling scaling; /* channels divide F */
    pp_value *x;               /* [B][F] */
    bool f32;                  /* x is f32, whatever type values have: tokens */
};

/* pictures[r] = picture index[r] of data, moved and perhaps flipped from left to right; 0
 * outside. */
struct pp_move_pictures {
    int B, H, W, C;
    const uint8_t *data;   /* [..][H][W][C]; all arrays are device memory */
    const uint32_t *index; /* [B] */
    const uint32_t *moves; /* [B] results of pp_move() */
    uint8_t *pictures;     /* [B][H][W][C] */
};

#define PP_MOVE_MAX 100

/* Encodes a move: pixel (y, x) comes from (y + top, x' + left), x' = x or, with flip, W - 1 - x.
 * |top| and |left| are at most PP_MOVE_MAX. */
static inline uint32_t pp_move(int top, int left, bool flip)
{
    return (uint32_t)(top + PP_MOVE_MAX) | (uint32_t)(left + PP_MOVE_MAX) << 8 |
           (uint32_t)flip << 16;
}

struct pp_targets { /* targets[r][p] = data[s*stride + first + p], or -1: ignored */
    int B, P;
    const void *data; /* whole numbers below 2^31, device memory */
    enum pp_element element;
    size_t stride, first;
    const uint32_t *index; /* as in pp_gather */
    int32_t *targets;      /* [B][P] */
    int64_t ignored;       /* 1 + the ignored number; 0: no number is ignored */
};

/*
 * Stable fused softmax cross-entropy of B samples with P rows of C logits each; adds to *sums, in
 * an order that depends on B * P only. A target < 0: the row has no loss and no gradient. A target
 * >= C cannot occur: the data set was checked. Of equal largest logits the first is the arg max.
 * smoothing in [0, 1], as label_smoothing of torch.nn.CrossEntropyLoss: a row's aim is (1 -
 * smoothing) * onehot + smoothing / C; 0 costs nothing. dlogits = (softmax - aim) * grad_scale.
 * With weights, as weight of torch.nn.CrossEntropyLoss: aim[c] is multiplied by weights[c], and the
 * softmax by the sum of the aim.
 */
struct pp_softmax_cross_entropy {
    int B, P, C;
    const pp_value *logits; /* [B][P][C] */
    const int32_t *targets; /* [B][P] */
    float grad_scale, smoothing;
    struct pp_loss_sums *sums;
    pp_value *dlogits;  /* may be logits; NULL: no gradient (evaluation) */
    const float *scale; /* device memory, replaces grad_scale; NULL: grad_scale */
    int uncounted;      /* sums->rows grows by B minus these, if samples come in pieces */
    int row; /* elements from one row of logits, and of dlogits, to the next, if the backend has a
                logits_unit; 0: C */
    const float *weights; /* [C] of each class, device memory; NULL: all are 1 */
};

/*
 * The loss of B samples with C outputs, each of which is compared with a number; adds to *sums, in
 * an order that depends on B and C only. With e = output - target the loss of an output is e^2
 * (mse), |e| (mae), or e^2 / 2 up to |e| = 1 and |e| - 1/2 beyond (huber, as
 * torch.nn.HuberLoss(delta=1)); bce: log(1 + exp(output)) - output * target, as
 * torch.nn.BCEWithLogitsLoss. doutputs = its derivative * grad_scale; of |e| it is 0 at 0.
 */
struct pp_numbers_loss {
    int B, C;
    enum pp_loss_kind kind;
    const pp_value *outputs; /* [B][C] */
    const float *targets;    /* [B][C] */
    float grad_scale;
    struct pp_loss_sums *sums;
    pp_value *doutputs; /* may be outputs; NULL: no gradient (evaluation) */
    int row;            /* as in struct pp_softmax_cross_entropy */
};

/* ---- convolution: y[oy][ox][o] = sum over ky, kx, c of
 * x[oy*stride + ky - pad_top][ox*stride + kx - pad_left][c] * W[o][ky][kx][c], where that is
 * inside the image. W[O][kh][kw][C/groups]; output o belongs to group o / (O/groups). */
struct pp_conv {
    int H, W, C;   /* input */
    int OH, OW, O; /* output; the padding below and to the right follows from it */
    int kh, kw;    /* kernel */
    int stride;    /* in both directions */
    int pad_top, pad_left;
    int groups; /* divides C and O */
};

struct pp_conv_forward {
    const struct pp_conv *g;
    int B;
    const pp_value *x;
    const float *W;
    const float *packed; /* the result of conv_pack for W, or NULL; the bits are the same */
    const float *b;      /* [O] or NULL */
    bool relu;           /* then y = max(0, y); a NaN stays */
    float *scratch;      /* conv_scratch_floats() */
    pp_value *y;         /* [B][OH][OW][O] */
};

struct pp_conv_backward_input {
    const struct pp_conv *g;
    int B;
    const pp_value *dz; /* [B][OH][OW][O] */
    const float *W, *packed;
    float *scratch;
    bool add;
    pp_value *dx; /* [B][H][W][C] */
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
    const pp_value *x;
    const float *gamma, *beta;
    const pp_value *residual; /* [B][P][C] added before relu; or NULL */
    bool relu;
    const float *running_mean, *running_var; /* in evaluation; NULL: computes those of x into
                                                keep */
    float *keep;                             /* mean[C], rstd[C]; not written in evaluation and with
                                                B = 0 */
    pp_value *y;
};

/* Call it even if dx is not needed: batch_norm_backward_weight needs the sums. */
struct pp_batch_norm_backward_input {
    int B, P, C;
    const pp_value *x;
    const float *gamma, *keep;
    const pp_value *y; /* with relu, else NULL: where y is 0 the gradient is 0 */
    pp_value *dy;      /* becomes the gradient before relu, in place */
    float *sums;       /* out: sum of dz [C], sum of dz * xhat [C]; kept for
                          batch_norm_backward_weight */
    bool add, add_residual;
    pp_value *dx;         /* NULL: not needed */
    pp_value *d_residual; /* NULL: not needed */
};

/*
 * Adds sums to dgamma and dbeta, unless sums is NULL, and the batch's statistics for the running ones: stat_mean[C] += n
 * * mean, stat_n[1] += n, n = B*P; and stat_squares[C], of distances from the mean of everything
 * added so far: += n * var + (mean - mean before)^2 * n * n before / (n + n before). So large means
 * cause no cancellation (Chan, Golub, LeVeque 1979).
 */
struct pp_batch_norm_backward_weight {
    int B, P, C;
    float eps;
    const float *keep, *sums;
    float beta;
    float *dgamma, *dbeta, *stat_mean, *stat_squares, *stat_n;
};

/* Computes what stat_squares lacks if statistics of several replicas were added: own[C] = n * (mean
 * - mean of all)^2, to be summed over the replicas. stat_mean and stat_n are sums over all
 * replicas; on entry own[C + 1] has this replica's stat_mean and n. */
struct pp_batch_norm_spread {
    int C;
    const float *stat_mean, *stat_n;
    float *own;
};

/* Updates running statistics after a step: n = *stat_n, mean = stat_mean / n, var = stat_squares /
 * (n - 1), n - 1 at least 1; running += momentum * (these - running); tracked[1] += 1. Nothing if
 * *skip or stat_n is 0. */
struct pp_batch_norm_commit {
    int C;
    float momentum; /* PyTorch's: 0.1 */
    const bool *skip;
    const float *stat_mean, *stat_squares, *stat_n;
    float *running_mean, *running_var, *tracked;
};

/* Statistics of G groups of C/G channels over P pixels, for each sample alone. */
struct pp_group_norm_forward {
    int B, P, C, G;
    float eps;
    const pp_value *x;
    const float *gamma, *beta;
    const pp_value *residual;
    bool relu;
    float *keep; /* mean[B][G], rstd[B][G] */
    pp_value *y;
};

struct pp_group_norm_backward_input {
    int B, P, C, G;
    const pp_value *x;
    const float *gamma, *keep;
    const pp_value *y;
    pp_value *dy;
    bool add, add_residual;
    pp_value *dx, *d_residual;
};

struct pp_group_norm_backward_weight { /* column sums in row order; of one part */
    int B, P, C, G;
    const pp_value *x;
    const float *keep;
    const pp_value *dz;
    float beta;
    float *dgamma, *dbeta;
};

/* ---- attention. Each query sees keys of its own sequence: s = scale * q . k + mask, p = softmax(s)
 * over these keys, y = sum of p * v. Query head h reads key and value head h / (heads / kv_heads).
 * The floats of a head at a position are contiguous; other distances are strides, in floats. */
struct pp_strides {
    size_t sequence, position, head; /* from one to the next */
    size_t gradient; /* from one sequence of the gradient to the next; 0: as `sequence` */
};

struct pp_attention {
    int B;             /* sequences */
    int queries, keys; /* positions of each */
    int heads, kv_heads, width;
    float scale; /* above 0; 0: 1 / sqrt(width) */
    /* query i sees the first keys - queries + i + 1 keys, at least one; false: it sees all. At most
     * 63 values after them may be multiplied by 0, so a NaN there gives NaN. */
    bool causal;
    /* If not causal; device memory: sequence b has only its first lengths[index[b]] keys, at least
     * 1; the others are padding. NULL: all keys. */
    const uint32_t *lengths, *index;
    const pp_value *q, *k, *v;
    struct pp_strides q_at, k_at, v_at, y_at;
    /* Numbers that are added to the scores; NULL: none. Its positions are those of queries, and
     * mask_key is from one key to the next; stride 0: all share a number. -infinity hides the key
     * from the query, with a p of exactly 0; a query that sees no key has y = 0. */
    const pp_value *mask;
    struct pp_strides mask_at;
    size_t mask_key;
    /* Dropout of p: uses element (h * queries + i) * keys + j, modulo 2^32, of row first_row +
     * sequence, as struct pp_dropout. of_queries: element (h * B + sequence) * keys + j of row
     * first_row + i. step NULL or p 0: no dropout. */
    float p;
    uint64_t key;
    const int64_t *step;
    uint32_t first_row;
    bool of_queries;
    float *scratch; /* pp_attention_scratch_floats() */
    float *lse;     /* [B][queries][heads] log of the sum of exp(s), infinity if the query sees no
                       key; written by forward unless NULL, read by backward */
    pp_value *y;    /* read by backward */
    /* for backward */
    const pp_value *dy; /* as y */
    bool add, add_k, add_v, add_mask;
    pp_value *dq, *dk, *dv; /* as q, k, v, but no two positions share memory; NULL: not needed */
    /* As mask, but each sequence has its own: the sum over the heads, queries or keys that share a
     * number of the mask. NULL: not needed. */
    pp_value *dmask;
};

/* Returns the floats of scratch of each thread of a rank, for any call with these or fewer keys;
 * group: heads / kv_heads. */
size_t pp_attention_scratch_floats(int queries, int keys, int group, int width);

/* ---- normalisation of a row: x[B][C]. xhat = (x - mean) * rstd, rstd = 1 / sqrt(var + eps), y =
 * xhat * gamma[c] + beta[c]. Not centred (RMS norm): mean is 0, var the mean of squares. */
struct pp_row_norm_forward {
    int B, C;
    bool centred;
    float eps;
    const pp_value *x;
    const float *gamma;
    const float *beta; /* [C] or NULL */
    float *keep;       /* [B][2] mean and rstd of each row */
    pp_value *y;
};

struct pp_row_norm_backward_input {
    int B, C;
    bool centred;
    const pp_value *x;
    const float *gamma, *keep;
    const pp_value *dy;
    bool add;
    pp_value *dx;
};

struct pp_row_norm_backward_weight { /* column sums in row order; of one part */
    int B, C;
    const pp_value *x;
    const float *keep;
    const pp_value *dy;
    float beta;
    float *dgamma, *dbeta; /* dbeta NULL: no beta */
};

/* ---- texts: B samples of T positions, the first with number `first`. Tokens are numbers 0 .. V-1,
 * always in f32, rounded towards 0; a value that is not a token gives NaN, and no gradient. */
struct pp_embedding_forward { /* y[b][t] = W[x[b][t]] + P[first + t] */
    int B, T, V, C, first;
    const float *x; /* [B][T] */
    const float *W; /* [V][C] */
    const float *P; /* [more than first + T - 1][C] or NULL */
    pp_value *y;    /* [B][T][C] */
};

struct
    pp_embedding_backward_weight { /* added one by one in order of (b, t), first = 0; of one part */
    int B, T, V, C;
    const float *x;
    const pp_value *dy;
    float beta;
    float *dW, *dP; /* dP [T][C]; NULL: no P */
    int padding;    /* 1 + a token whose row of dW stays 0 (PyTorch's padding_idx); 0: none */
};

/* Su et al., "RoFormer", 2021, with the pairs of Hugging Face's Llama: in each of the first `heads`
 * blocks of `width` channels of a row, elements j < width / 2 and j + width / 2 rotate by the angle
 * position * base^(-2 j / width); other channels are copied. */
struct pp_rope_scaling {      /* scales the angles: rope_step() */
    float factor;             /* 0: not scaled */
    float low, high, context; /* of llama3; 0: linear */
};

struct pp_rotary {
    int B, T, C, first;
    int heads, width; /* width is even, heads * width <= C */
    float base;
    bool back; /* rotate by the negative angle: the gradient */
    const pp_value *x;
    bool add;
    pp_value *y;
    struct pp_rope_scaling scaling;
};

/* y[r][f] = silu(x[r][f]) * x[r][F + f]: gate, then up */
struct pp_gated {
    int B, F;
    const pp_value *x; /* [B][2 F] */
    pp_value *y;
};

struct pp_gated_backward {
    int B, F;
    const pp_value *x, *dy;
    bool add;
    pp_value *dx; /* [B][2 F] */
};

/* ---- a program of elementwise steps. Arrays are seen through axes: a stride of 0 repeats what is
 * read, and adds up what is written. So this is also a sum, a copy, a transposition and a gather. */
#define PP_AXES 8
#define PP_EXPR_INPUTS 16
#define PP_EXPR_OUTPUTS 12
#define PP_EXPR_STEPS 128
#define PP_EXPR_REGISTERS 32
#define PP_EXPR_NUMBER 255 /* as an operand: the number of the step */

enum pp_expr_code {   /* the others: t = a, b, c as in expr.def; an operand is a register */
    PP_EXPR_LOAD,     /* t = input a */
    PP_EXPR_STORE,    /* output t = register a */
    PP_EXPR_FILL,     /* t = the number */
    PP_EXPR_ACT,      /* t = act(a), act: enum pp_activation `which` */
    PP_EXPR_ACT_BACK, /* t = gradient before it, a: what it saves, b: gradient after it */
#define PP_EXPR_STEP(NAME, ...) PP_EXPR_##NAME,
#include "ppcli/dev/expr.def"
};

struct pp_expr_step {
    uint8_t code, which;
    uint8_t to, a, b, c; /* one of the last two of several operands may be PP_EXPR_NUMBER */
    float number;
};

/* Element (i0, i1, ..) of a sample of an array is at offset + i0 * stride[0] + i1 * stride[1] + ..
 * in it, elements, with table[i] in place of i on the axis with a table. */
struct pp_expr_array {
    int stride[PP_AXES];
    int table_axis; /* -1: no table */
    bool f32;       /* the array is f32 whatever type values have: tokens */
    bool repeats;   /* of an output: indices reach an element twice, apart from axes of stride 0 */
    size_t table;   /* its first number in pp_expr_run.tables */
    size_t offset;
    size_t sample; /* elements from one sample to the next; 0: all share one (inputs) */
};

struct pp_expr {
    int n_axes, size[PP_AXES];
    int n_in, n_out, n_steps;
    struct pp_expr_array in[PP_EXPR_INPUTS], out[PP_EXPR_OUTPUTS];
    struct pp_expr_step steps[PP_EXPR_STEPS]; /* a register is read after it was written */
    /* set by pp_expr_finish(): */
    int block[PP_AXES]; /* indices of each axis that the CPU computes at once */
    int split, units;   /* axis whose blocks are independent of each other, and how many it has */
    size_t elements;    /* of a sample */
};

/* Returns how many registers a step reads. */
static inline int pp_expr_operands(enum pp_expr_code code)
{
    static const uint8_t counts[] = {
        0, 1, 0, 1, 2, /* PP_EXPR_LOAD to PP_EXPR_ACT_BACK */
#define PP_EXPR_STEP(NAME, operands, ...) (operands),
#include "ppcli/dev/expr.def"
    };
    return counts[code];
}

/* Completes a program: orders and joins its axes, which decides the order of its sums, and cuts
 * them into blocks. 1 <= n_axes <= PP_AXES. */
void pp_expr_finish(struct pp_expr *e);

/* Runs a program for each element of B samples. An output is `=`, or `+=` if `add`. What no index
 * reaches stays. Outputs that repeat must add. Outputs overlap neither inputs nor each other. */
struct pp_expr_run {
    int B;
    const struct pp_expr *e;
    const pp_value *x[PP_EXPR_INPUTS];
    const int32_t *tables; /* device memory; NULL: no array has a table */
    bool add[PP_EXPR_OUTPUTS];
    pp_value *y[PP_EXPR_OUTPUTS]; /* NULL: not needed */
};

/* ---- softmax over the middle axis of x[B][outer][n][inner] */
struct pp_softmax_forward {
    int B, outer, n, inner;
    bool log; /* y = log(softmax(x)) */
    const pp_value *x;
    pp_value *y;
};

struct pp_softmax_backward {
    int B, outer, n, inner;
    bool log;
    const pp_value *y, *dy;
    bool add;
    pp_value *dx;
};

/* ---- Muon, element by element. args: device memory; with args->skip nothing permanent changes.
 * Any split gives the same bits. */
enum pp_muon_part {
    PP_MUON_BEGIN, /* y = momentum y + (1 - momentum) g, with g = grad_scale x; x = Nesterov's
                      sum */
    PP_MUON_UNIT,  /* x /= max(sqrt(*squares), 1e-7) */
    PP_MUON_MIX,   /* y = a x + b y */
    PP_MUON_END    /* y = (1 - b lr weight_decay) y - a lr x */
};

struct pp_muon {
    size_t n;
    enum pp_muon_part part;
    const struct pp_optimizer_args *args;
    const double *squares; /* device memory */
    float a, b;
    float *x, *y;
};

/* ---- pooling. The window as in struct pp_conv with C == O, groups == C. */
struct pp_max_pool_forward { /* the first largest value of a window, outside does not count; NaN
                                wins */
    const struct pp_conv *g;
    int B;
    const pp_value *x;
    uint8_t *taken; /* [B][OH][OW][C] ky * kw + kx of the chosen element; kw * kh <= 256; NULL: no
                       gradient will be needed */
    pp_value *y;
};

struct pp_max_pool_backward { /* dx = sum over the windows that chose it, in their order */
    const struct pp_conv *g;
    int B;
    const uint8_t *taken;
    const pp_value *dy;
    bool add;
    pp_value *dx;
};

struct pp_avg_pool { /* forward: x -> y; backward: x is dy [B][OH][OW][C], y is dx [B][H][W][C] */
    const struct pp_conv *g;
    int B;
    bool count_padding; /* always divide by kh * kw, as PyTorch; false: by the pixels inside */
    const pp_value *x;
    bool add; /* backward */
    pp_value *y;
    const uint32_t *lengths, *index; /* as in attention: sample b ends after that many rows of H */
};

/* ---- element by element: y or dx may be one of the arrays read, unless `add` */
struct pp_activate { /* y[n] = act(x[n]) */
    size_t n;
    int act; /* enum pp_activation */
    const pp_value *x;
    pp_value *y;
};

struct pp_activate_backward { /* dx[n] = dy * act'(..) from what the activation saves: z or y */
    size_t n;
    int act; /* enum pp_activation */
    const pp_value *saved, *dy;
    bool add;
    pp_value *dx;
};

struct pp_sum { /* y[n] = a + b, then relu */
    size_t n;
    const pp_value *a, *b;
    bool relu;
    pp_value *y;
    bool f32; /* a and b are parameters, or their gradients */
};

/* y[r][e] = x[r][e] * 1 / (1 - p), or * 0 if uniform number e of (key, *step, first_row + r) is
 * less than p; the same with dy for the gradient. */
struct pp_dropout {
    int B;
    size_t F;            /* floats per sample, less than 2^32 */
    float p;             /* 0 <= p < 1 */
    uint64_t key;        /* from seed and node */
    const int64_t *step; /* device memory */
    uint32_t first_row;  /* number in the step's whole batch */
    const pp_value *x;
    bool add;
    pp_value *y;
};

#endif
