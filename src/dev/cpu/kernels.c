/* SPDX-License-Identifier: Apache-2.0 */
/* The element-wise loops of the CPU backend, written so that the compiler vectorizes them. The
 * formulas are those of plain/, in float. */
#include "kernels.h"

#include <string.h>

#include "activations.h"
#include "ppcli/conf/config.h"

/* Adds the bias and applies the activation to y, and stores z, the sum before the activation, if
 * `z` is not NULL. This second pass follows the product while y is in the cache, and takes at most
 * 2 % longer than a product that starts from the bias. */
static void bias_activation(int B, int O, size_t row, const float *restrict b, int act,
                            float *restrict z, float *restrict y)
{
    for (int r = 0; r < B; r++, y += row) {
        if (z) {
            for (int o = 0; o < O; o++)
                z[o] = y[o] + b[o];
            z += row;
        }
        switch (act) {
        case PP_ACT_NONE:
            for (int o = 0; o < O; o++)
                y[o] += b[o];
            break;
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        for (int o = 0; o < O; o++)                                                                \
            y[o] = word##_value(y[o] + b[o]);                                                      \
        break;
#include "ppcli/conf/activations.def"
        }
    }
}

/* Computes db = beta * db + the sum of each column of dz, with the rows in order. */
static void bias_gradient(int B, int O, size_t row, const float *restrict dz, float beta,
                          float *restrict db)
{
    if (beta == 0)
        memset(db, 0, (size_t)O * sizeof(*db));
    for (int r = 0; r < B; r++, dz += row)
        for (int o = 0; o < O; o++)
            db[o] += dz[o];
}

#define BLOCK 16

/* Returns the sum of the lanes. The lanes are added in order; up to BLOCK classes, this is the
 * order of the classes. */
static double fold_in_order(const double lane[BLOCK])
{
    double sum = 0;
    for (int l = 0; l < BLOCK; l++)
        sum += lane[l];
    return sum;
}

/* Returns the largest logit. A NaN is the result only if it is x[0]; other NaN are ignored. */
static float largest_logit(int C, const float *restrict x)
{
    float m = x[0], lane[2 * BLOCK];
    int c = 0;
    for (int l = 0; l < 2 * BLOCK && C >= 2 * BLOCK; l++)
        lane[l] = m;
    for (; c + 2 * BLOCK <= C; c += 2 * BLOCK)
        for (int l = 0; l < 2 * BLOCK; l++)
            lane[l] = x[c + l] > lane[l] ? x[c + l] : lane[l];
    for (int l = 0; l < 2 * BLOCK && C >= 2 * BLOCK; l++)
        m = lane[l] > m ? lane[l] : m;
    for (; c < C; c++)
        m = x[c] > m ? x[c] : m;
    return m;
}

/* Returns whether the target is the arg max, given that its logit is the largest, m: no class
 * before it may have the same logit. */
static bool target_is_first(int target, const float *restrict x, float m)
{
    bool found = false;
    for (int c = 0; c < target; c++)
        found |= x[c] == m;
    return !found;
}

/* Adds exp(x[l] - m) to lane[l] for a block of logits, and writes it to e unless that is NULL.
 * Reads x before it writes e, so that the two may be the same array. */
static inline __attribute__((always_inline)) void add_exp(const float *x, float m, double *lane,
                                                          float *e)
{
    float some[BLOCK];
    for (int l = 0; l < BLOCK; l++)
        some[l] = mathf_exp_below_0(x[l] - m);
    for (int l = 0; l < BLOCK; l++)
        lane[l] += (double)some[l];
    if (e)
        memcpy(e, some, sizeof(some));
}

static double sum_of_exp(int C, const float *x, float m, float *e)
{
    double lane[BLOCK] = {0};
    int c = 0;
    for (; c + BLOCK <= C; c += BLOCK)
        add_exp(x + c, m, lane, e ? e + c : NULL);
    if (c <
        C) { /* ten classes also take a whole block, because the fixed count makes it one vector */
        float rest[BLOCK];
        for (int l = 0; l < BLOCK; l++)
            rest[l] = c + l < C ? x[c + l] : -INFINITY;
        add_exp(rest, m, lane, rest);
        for (int l = 0; e && c + l < C; l++)
            e[c + l] = rest[l];
    }
    return fold_in_order(lane);
}

static double sum_of_logits(int C, const float *restrict x, float m)
{
    double lane[BLOCK] = {0};
    int c = 0;
    for (; c + BLOCK <= C; c += BLOCK)
        for (int l = 0; l < BLOCK; l++)
            lane[l] += (double)x[c + l] - m;
    for (int l = 0; c < C; c++, l++)
        lane[l] += (double)x[c] - m;
    return fold_in_order(lane);
}

/* The same of the weighted logits; the sum of the weights, if x is NULL. */
static double sum_of_weighted(int C, const float *restrict x, float m,
                              const float *restrict weights)
{
    double lane[BLOCK] = {0};
    for (int c = 0; c < C; c++)
        lane[c % BLOCK] += x ? weights[c] * ((double)x[c] - m) : (double)weights[c];
    return fold_in_order(lane);
}

static void loss_rows(const void *args, const struct pp_piece *w)
{
    const struct cpu_loss *l = args;
    const struct pp_softmax_cross_entropy *a = l->a;
    size_t C = (size_t)a->C;
    double rest = a->smoothing;
    float all_scale = a->scale ? *a->scale : a->grad_scale;
    double everywhere = a->weights && rest > 0 ? sum_of_weighted(a->C, NULL, 0, a->weights) : 0;
    for (size_t i = w->from; i < w->to; i++) {
        size_t r = l->first + i;
        const float *logits = a->logits + r * C;
        float *dlogits = a->dlogits ? a->dlogits + r * C : NULL;
        int target = a->targets[r];
        pp_assert(target < a->C);
        l->rows[i].counts = target >= 0;
        if (target < 0) {
            if (dlogits)
                memset(dlogits, 0, C * sizeof(*dlogits));
            continue;
        }
        float m = largest_logit(a->C, logits), at_target = logits[target];
        l->rows[i].correct =
            isnan(m) ? target == 0 : at_target == m && target_is_first(target, logits, m);
        double weight = a->weights ? a->weights[target] : 1, one = (1 - rest) * weight;
        double aim = a->weights ? one + rest / a->C * everywhere : 1, all = 0;
        if (rest > 0)
            all = a->weights ? sum_of_weighted(a->C, logits, m, a->weights)
                             : sum_of_logits(a->C, logits, m);
        double sum = sum_of_exp(a->C, logits, m, dlogits);
        l->rows[i].weight = weight;
        l->rows[i].loss = aim * log(sum) - (one * ((double)at_target - m) + rest / a->C * all);
        if (dlogits) {
            float scale = (float)(all_scale * aim / sum), others = (float)(all_scale * rest / a->C);
            for (size_t c = 0; c < C && !a->weights; c++)
                dlogits[c] = dlogits[c] * scale - others;
            for (size_t c = 0; c < C && a->weights; c++)
                dlogits[c] = dlogits[c] * scale - others * a->weights[c];
            dlogits[target] -= (float)(all_scale * one);
        }
    }
}

/* Replaces e = y - t by the derivative of the loss of a number. */
static inline float slope_of_error(enum pp_loss_kind kind, float e)
{
    float side = e > 0 ? 1.0f : e < 0 ? -1.0f : e; /* NaN stays */
    return kind == PP_LOSS_MSE ? 2 * e : kind == PP_LOSS_MAE || fabsf(e) > 1.0f ? side : e;
}

/* Adds an output and its target to the sums of a row, and returns the loss's derivative. */
static inline float add_number(enum pp_loss_kind kind, float y, float t,
                               struct cpu_row_numbers *row)
{
    double e = (double)y - t, size = fabs(e), loss;
    float slope = 0;
    if (kind == PP_LOSS_BCE) {
        float small = mathf_exp_below_0(-fabsf(y));
        loss = (y < 0 ? 0 : (double)y) - (double)y * t + log1p(exp(-fabs((double)y)));
        slope = (y < 0 ? small : 1.0f) / (1.0f + small) - t;
        slope = y == y ? slope : y;
    } else {
        loss = kind == PP_LOSS_MSE   ? e * e
               : kind == PP_LOSS_MAE ? size
               : size > 1            ? size - 0.5
                                     : e * e / 2;
        slope = slope_of_error(kind, y - t);
    }
    row->loss += loss;
    row->correct += kind == PP_LOSS_BCE && (y > 0) == (t > 0.5f);
    row->squares += e * e;
    row->absolutes += size;
    row->sum += t;
    row->sum_squares += (double)t * t;
    return slope;
}

static void numbers_rows(const void *args, const struct pp_piece *w)
{
    const struct cpu_numbers *l = args;
    const struct pp_numbers_loss *a = l->a;
    size_t C = (size_t)a->C;
    for (size_t i = w->from; i < w->to; i++) {
        size_t at = (l->first + i) * C;
        struct cpu_row_numbers row = {0};
        for (size_t c = at; c < at + C; c++) {
            float slope = add_number(a->kind, a->outputs[c], a->targets[c], &row);
            if (a->doutputs)
                a->doutputs[c] = slope * a->grad_scale;
        }
        l->rows[i] = row;
    }
}

/* a part of the result: element i goes to lane i mod LANES at every vector width */
#define LANES 16

static double sum_squares(size_t n, const float *restrict g)
{
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)g[i + l] * g[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += (double)g[i] * g[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* Returns the bits of |x|. As whole numbers they are in the order of the absolute values, and those
 * of a NaN are larger than those of infinity. */
static uint32_t size_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffffu;
}

static float largest_magnitude(size_t n, const float *restrict x, float least)
{
    uint32_t lane[LANES] = {size_bits(least)};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            uint32_t bits = size_bits(x[i + l]);
            lane[l] = bits > lane[l] ? bits : lane[l];
        }
    }
    for (int l = 0; i < n; i++, l++) {
        uint32_t bits = size_bits(x[i]);
        lane[l] = bits > lane[l] ? bits : lane[l];
    }
    for (int l = 1; l < LANES; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    float most;
    memcpy(&most, &lane[0], sizeof(most));
    return most;
}

/* Updates n elements with Adam or AdamW. The two differ in where the decay goes: into the gradient
 * (`decay`) or directly into p (`keep`). */
static inline __attribute__((always_inline)) void
adam_step(size_t n, const struct pp_optimizer_args *a, float decay, float keep,
          const float *restrict g, float *restrict m, float *restrict v, float *restrict p)
{
    double bc1 = 1 - pow(a->beta1, (double)a->step);
    double bc2 = 1 - pow(a->beta2, (double)a->step);
    float step = (float)(a->lr / bc1), root = (float)(1 / sqrt(bc2));
    float b1 = a->beta1, b2 = a->beta2, eps = a->eps, scale = a->grad_scale;
    float c1 = (float)(1 - (double)b1), c2 = (float)(1 - (double)b2);
    for (size_t i = 0; i < n; i++) {
        float gi = scale * g[i] + decay * p[i];
        m[i] = b1 * m[i] + c1 * gi;
        v[i] = b2 * v[i] + c2 * gi * gi;
        p[i] = keep * p[i] - step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

/* Updates n elements with the optimizer of `a`. Applies scale and decay without testing whether
 * they are used, because 1 * g and g + 0 * p are g. */
static void optimizer_step(size_t n, const struct pp_optimizer_args *a, bool decay,
                           const float *restrict g, float *restrict m, float *restrict v,
                           float *restrict p)
{
    float lr = a->lr, wd = decay ? a->weight_decay : 0, scale = a->grad_scale,
          momentum = a->momentum;
    bool nesterov = a->nesterov;
    switch ((enum pp_optimizer_kind)a->kind) {
    case PP_OPT_SGD:
        for (size_t i = 0; i < n; i++)
            p[i] -= lr * (scale * g[i] + wd * p[i]);
        break;
    case PP_OPT_MOMENTUM:
        for (size_t i = 0; i < n; i++) {
            float gi = scale * g[i] + wd * p[i];
            m[i] = momentum * m[i] + gi;
            p[i] -= lr * (nesterov ? gi + momentum * m[i] : m[i]);
        }
        break;
    case PP_OPT_ADAM:
        adam_step(n, a, wd, 1.0f, g, m, v, p);
        break;
    case PP_OPT_ADAMW:
    case PP_OPT_MUON:
        adam_step(n, a, 0.0f, (float)(1 - (double)lr * wd), g, m, v, p);
        break;
    }
}

const struct cpu_kernels CPU_LOOP(kernels) = {
    .name = CPU_ISA,
    .bias_activation = bias_activation,
    .bias_gradient = bias_gradient,
    .loss_rows = loss_rows,
    .numbers_rows = numbers_rows,
    .sum_squares = sum_squares,
    .largest = largest_magnitude,
    .optimizer_step = optimizer_step,
#define PP_KERNEL(name, type)
#define PP_LOSS(name, type)
#define PP_LOOP(name, type, ...) .name = CPU_LOOP(name),
#include "ppcli/dev/kernels.def"
};
