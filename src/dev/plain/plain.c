/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain defaults: every op written as its formula. They are the reference of the fast backends,
 * so accuracy comes first: all arithmetic is in double, in index order, and each stored element is
 * rounded to float once.
 */

#include <math.h>

#include "plain.h"
#include "ppcli/conf/config.h"

static double read_element(const void *data, enum pp_element type, size_t i)
{
    return type == PP_U8    ? ((const uint8_t *)data)[i]
           : type == PP_U16 ? ((const uint16_t *)data)[i]
           : type == PP_U32 ? ((const uint32_t *)data)[i]
                            : (double)((const float *)data)[i];
}

int plain_gather(struct pp_backend *be, const struct pp_gather *a)
{
    const struct pp_scaling *k = &a->scaling;
    for (size_t r = 0; r < (size_t)a->B; r++) {
        size_t from = (a->index ? a->index[r] : r) * a->stride;
        for (size_t f = 0; f < (size_t)a->F; f++) {
            size_t c = k->channels > 0 ? f % (size_t)k->channels : 0;
            float x = k->scale[c] * (float)read_element(a->data, a->element, from + f);
            a->x[r * (size_t)a->F + f] = k->channels > 0 ? x + k->offset[c] : x;
        }
    }
    return 0;
}

int plain_targets(struct pp_backend *be, const struct pp_targets *a)
{
    for (size_t r = 0; r < (size_t)a->B; r++) {
        size_t from = (a->index ? a->index[r] : r) * a->stride + a->first;
        for (size_t p = 0; p < (size_t)a->P; p++) {
            int32_t target = (int32_t)read_element(a->data, a->element, from + p);
            a->targets[r * (size_t)a->P + p] = target == a->ignored - 1 ? -1 : target;
        }
    }
    return 0;
}

/* Returns the probability that a standard normal variable is below z. */
static double normal_below(double z)
{
    return 0.5 * erfc(-z * M_SQRT1_2);
}

#define LOGISTIC_AT_0 (M_SQRT2 * M_2_SQRTPI) /* 2 sqrt(2/pi) */

/* Returns the approximation of normal_below() that gelu_tanh uses. */
static double logistic_below(double z)
{
    return 1 / (1 + exp(-LOGISTIC_AT_0 * (z + 0.044715 * z * z * z)));
}

double plain_activate(int act, double z)
{
    switch (act) {
    case PP_ACT_NONE:
        break;
#define PP_ACTIVATION(NAME, word, saved, gain, steepest, value, back)                              \
    case PP_ACT_##NAME:                                                                            \
        return value;
#include "ppcli/conf/activations.def"
    }
    return z;
}

/* Computes y[B][O] = act(x[B][I] * W[O][I]^T + b[O]). */
int plain_linear_forward(struct pp_backend *be, const struct pp_linear_forward *a)
{
    const size_t I = (size_t)a->I, O = (size_t)a->O;
    for (size_t r = 0; r < (size_t)a->B; r++) {
        for (size_t o = 0; o < O; o++) {
            double sum = a->b ? a->b[o] : 0;
            for (size_t i = 0; i < I; i++)
                sum += (double)a->x[r * I + i] * a->W[o * I + i];
            if (a->z)
                a->z[r * O + o] = (float)sum;
            a->y[r * O + o] = (float)plain_activate(a->act, sum);
        }
    }
    return 0;
}

double plain_activate_back(int act, double saved_value, double dy)
{
    switch (act) {
    case PP_ACT_NONE:
        break;
#define PP_ACTIVATION(NAME, word, saved, gain, steepest, value, back)                              \
    case PP_ACT_##NAME: {                                                                          \
        double saved = saved_value;                                                                \
        return back;                                                                               \
    }
#include "ppcli/conf/activations.def"
    }
    return dy;
}

/* Computes dx[B][I] = dz[B][O] * W[O][I]. */
int plain_linear_backward_input(struct pp_backend *be, const struct pp_linear_backward_input *a)
{
    const size_t I = (size_t)a->I, O = (size_t)a->O;
    for (size_t r = 0; r < (size_t)a->B; r++) {
        for (size_t i = 0; i < I; i++) {
            double sum = 0;
            for (size_t o = 0; o < O; o++)
                sum += (double)a->dz[r * O + o] * a->W[o * I + i];
            a->dx[r * I + i] = (float)sum;
        }
    }
    return 0;
}

int plain_linear_backward_weight(struct pp_backend *be, const struct pp_linear_backward_weight *a)
{
    const size_t I = (size_t)a->I, O = (size_t)a->O;
    const struct pp_weight_part *end = a->parts + a->n;
    for (size_t o = 0; o < O; o++) {
        for (size_t i = 0; i < I; i++) {
            double sum = a->beta != 0 ? a->dW[o * I + i] : 0;
            for (const struct pp_weight_part *p = a->parts; p < end; p++)
                for (size_t r = 0; r < (size_t)p->B; r++)
                    sum += (double)p->dz[r * O + o] * p->x[r * I + i];
            a->dW[o * I + i] = (float)sum;
        }
        if (!a->db)
            continue;
        double sum = a->beta != 0 ? a->db[o] : 0;
        for (const struct pp_weight_part *p = a->parts; p < end; p++)
            for (size_t r = 0; r < (size_t)p->B; r++)
                sum += p->dz[r * O + o];
        a->db[o] = (float)sum;
    }
    return 0;
}

/* Computes the loss and the gradient of a row. With m = the largest logit, the loss is -log
 * p(target) = log(sum exp(x - m)) - (x[target] - m), and the gradient is (p - aim) * grad_scale.
 * Weights multiply the aim, whose sum is then not 1. Subtracting m keeps exp() from overflowing. Each element is read before it is written, so that
 * dlogits may be logits. */
static void loss_of_row(const struct pp_softmax_cross_entropy *a, size_t row)
{
    const float *x = a->logits + row * (size_t)a->C;
    float *d = a->dlogits ? a->dlogits + row * (size_t)a->C : NULL;
    double rest = a->smoothing;
    int target = a->targets[row];
    pp_assert(target < a->C);
    if (target < 0) {
        for (int c = 0; d && c < a->C; c++)
            d[c] = 0;
        return;
    }
    int best = 0; /* of equal logits the first */
    for (int c = 1; c < a->C; c++)
        if (x[c] > x[best])
            best = c;
    double m = x[best], sum = 0;
    for (int c = 0; c < a->C; c++)
        sum += exp(x[c] - m);
    const float *weights = a->weights;
    double one = weights ? weights[target] : 1,
           all = 0; /* sum over the classes of log p + log sum */
    double aim = weights ? 0 : 1;
    for (int c = 0; c < a->C && rest > 0; c++)
        all += (weights ? weights[c] : 1) * (x[c] - m);
    for (int c = 0; weights && c < a->C && rest > 0; c++)
        aim += rest / a->C * weights[c];
    aim += weights ? (1 - rest) * one : 0;
    a->sums->loss += aim * log(sum) - ((1 - rest) * one * (x[target] - m) + rest / a->C * all);
    a->sums->correct += best == target;
    a->sums->targets++;
    a->sums->weight += one;
    for (int c = 0; d && c < a->C; c++)
        d[c] = (float)((aim * exp(x[c] - m) / sum - (1 - rest) * one * (c == target) -
                        rest / a->C * (weights ? weights[c] : 1)) *
                       (a->scale ? *a->scale : a->grad_scale));
}

int plain_softmax_cross_entropy(struct pp_backend *be, const struct pp_softmax_cross_entropy *a)
{
    for (size_t row = 0; row < (size_t)a->B * (size_t)a->P; row++)
        loss_of_row(a, row);
    a->sums->rows += a->B - a->uncounted;
    return 0;
}

/* Adds the loss of output y and target t to the sums and returns the derivative. */
static double loss_of_number(enum pp_loss_kind kind, double y, double t, struct pp_loss_sums *sums)
{
    double e = y - t, size = fabs(e), loss = e * e, slope = 2 * e;
    double side = e > 0 ? 1 : e < 0 ? -1 : e; /* NaN stays */
    if (kind == PP_LOSS_MAE || (kind == PP_LOSS_HUBER && size > 1)) {
        loss = size - (kind == PP_LOSS_HUBER ? 0.5 : 0);
        slope = side;
    } else if (kind == PP_LOSS_HUBER) {
        loss = e * e / 2;
        slope = e;
    } else if (kind == PP_LOSS_BCE) {
        double small = exp(-fabs(y)); /* log(1 + exp(y)) = max(y, 0) + log(1 + exp(-|y|)) */
        loss = (y < 0 ? 0 : y) - y * t + log1p(small);
        slope = (y < 0 ? small : 1) / (1 + small) - t;
    }
    sums->loss += loss;
    sums->correct += kind == PP_LOSS_BCE && (y > 0) == (t > 0.5);
    sums->squares += e * e;
    sums->absolutes += size;
    sums->sum += t;
    sums->sum_squares += t * t;
    return slope;
}

int plain_numbers_loss(struct pp_backend *be, const struct pp_numbers_loss *a)
{
    const size_t C = (size_t)a->C, n = (size_t)a->B * C;
    for (size_t i = 0; i < n; i++) {
        double slope = loss_of_number(a->kind, a->outputs[i], a->targets[i], a->sums);
        if (a->doutputs)
            a->doutputs[i] = (float)(slope * a->grad_scale);
    }
    a->sums->rows += a->B;
    a->sums->targets += (int64_t)n;
    a->sums->weight += (double)n;
    return 0;
}

int plain_sum_squares(struct pp_backend *be, const struct pp_sum_squares *a)
{
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        sum += (double)a->g[i] * a->g[i];
    *a->out = sum;
    return 0;
}

/* Sets *rank and *index to the first value that is not finite, rank by rank, and returns whether
 * there is one. */
static bool find_bad(const struct pp_judgement *j, int *rank, int *index)
{
    for (int r = 0; r < j->ranks; r++) {
        for (int i = 0; i <= j->n; i++) {
            if (!isfinite(j->votes[(size_t)r * (size_t)(j->n + 1) + (size_t)i])) {
                *rank = r;
                *index = i;
                return true;
            }
        }
    }
    return false;
}

int plain_judge(struct pp_backend *be, const struct pp_judgement *j)
{
    struct pp_step_verdict *v = j->verdict;
    size_t columns = (size_t)j->n + 1;
    double sum = 0;
    for (int i = 0; i < j->n; i++) {
        double squares = 0; /* only the rank that holds it has a value other than 0 */
        for (int r = 0; r < j->stages; r++)
            squares += j->votes[(size_t)r * columns + (size_t)i];
        sum += squares;
    }
    int rank = -1, index = -1;
    bool bad = find_bad(j, &rank, &index), over = !bad && j->most > 0 && sum > j->most;
    v->step = j->args->t;
    v->norm = sqrt(sum);
    v->skipped = bad || over || (j->halt && v->bad_step > 0);
    if ((bad || over) && v->bad_step == 0) {
        v->bad_step = v->step;
        v->bad_rank = bad ? rank : 0;
        v->bad_index = bad ? index : 0;
        v->bad_value = bad ? j->votes[(size_t)rank * columns + (size_t)index] : sum;
    }
    double scale = j->clip_norm / (v->norm + 1e-6);
    v->grad_scale = j->clip_norm > 0 && scale < 1 ? (float)scale : 1.0f;
    if (v->skipped && j->before)
        *j->sums = *j->before;
    j->args->grad_scale = v->grad_scale;
    j->args->skip = v->skipped;
    return 0;
}

static int plain_largest(struct pp_backend *be, size_t n, const float *x, float *io)
{
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > *io || isnan(x[i]))
            *io = isnan(*io) ? *io : fabsf(x[i]);
    return 0;
}

/* Updates parameters as torch.optim.SGD, Adam and AdamW do, without amsgrad and dampening. */
int plain_optimizer_step(struct pp_backend *be, const struct pp_optimizer_step *step)
{
    const struct pp_optimizer_args *a = step->args;
    float *m = step->m, *v = step->v, *p = step->p;
    if (a->skip)
        return 0;
    double lr = a->lr, wd = step->decay ? a->weight_decay : 0;
    double b1 = a->beta1, b2 = a->beta2;
    double bc1 = 1 - pow(b1, (double)a->step);
    double bc2 = 1 - pow(b2, (double)a->step);
    for (size_t i = 0; i < step->n; i++) {
        double gi = (double)step->g[i] * a->grad_scale;
        double pi = p[i];
        if (a->kind == PP_OPT_ADAMW || a->kind == PP_OPT_MUON)
            pi -= lr * wd * pi;
        else
            gi += wd * pi;
        switch ((enum pp_optimizer_kind)a->kind) {
        case PP_OPT_SGD:
            p[i] = (float)(pi - lr * gi);
            break;
        case PP_OPT_MOMENTUM:
            m[i] = (float)(a->momentum * (double)m[i] + gi);
            p[i] = (float)(pi - lr * (a->nesterov ? gi + a->momentum * (double)m[i] : m[i]));
            break;
        case PP_OPT_ADAM:
        case PP_OPT_ADAMW:
        case PP_OPT_MUON:
            m[i] = (float)(b1 * m[i] + (1 - b1) * gi);
            v[i] = (float)(b2 * v[i] + (1 - b2) * gi * gi);
            p[i] = (float)(pi - lr / bc1 * m[i] / (sqrt(v[i]) / sqrt(bc2) + a->eps));
            break;
        }
    }
    return 0;
}

extern const struct pp_backend_ops pp_plain_ops;

const struct pp_backend_ops pp_plain_ops = {
    .name = "plain",
    .largest = plain_largest,
#define PP_KERNEL(name, type) .name = plain_##name,
#include "ppcli/dev/kernels.def"
};

/* ---- the plain defaults as a backend: a table with only the required entries */

extern const struct pp_backend_ops backend_reference;

static int probe(char *why, size_t bytes)
{
    snprintf(why, bytes, "plain loops in double precision");
    return 0;
}

const struct pp_backend_ops backend_reference = {
    .name = "reference",
    .help = "plain loops in double precision: slow, the judge of the others",
    .probe = probe,
};
