/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of elementwise steps, and softmax. */
#include "../expr.h"
#include "plain.h"

#include <math.h>

#include "ppcli/base/base.h"

static double take_step(const struct pp_expr_step *s, const double *r)
{
    double a = s->a == PP_EXPR_NUMBER ? s->number : r[s->a];
    double b = s->b == PP_EXPR_NUMBER ? s->number : r[s->b];
    double c = s->c == PP_EXPR_NUMBER ? s->number : r[s->c];
    float number = s->number;
    switch ((enum pp_expr_code)s->code) {
    case PP_EXPR_ACT:
        return plain_activate(s->which, a);
    case PP_EXPR_ACT_BACK:
        return plain_activate_back(s->which, a, b);
#define PP_EXPR_STEP(NAME, operands, value, fast)                                                  \
    case PP_EXPR_##NAME:                                                                           \
        return value;
#include "ppcli/dev/expr.def"
    case PP_EXPR_LOAD:
    case PP_EXPR_STORE:
    case PP_EXPR_FILL:
        break;
    }
    return number;
}

/* Returns what the program stores to output k at these indices of sample b. */
static double run_program(const struct pp_expr_run *a, int b, const int *index, int k)
{
    const struct pp_expr *e = a->e;
    double r[PP_EXPR_REGISTERS] = {0};
    for (const struct pp_expr_step *s = e->steps; s < e->steps + e->n_steps; s++) {
        if (s->code == PP_EXPR_STORE && s->to == k)
            return r[s->a];
        if (s->code == PP_EXPR_STORE)
            continue;
        r[s->to] = take_step(s, r);
        if (s->code == PP_EXPR_LOAD) {
            const struct pp_expr_array *v = &e->in[s->a];
            const pp_value *x = a->x[s->a] + (size_t)b * v->sample + v->offset;
            for (int i = 0; i < e->n_axes; i++)
                x += expr_offset(v, a->tables, i, index[i]);
            r[s->to] = *x;
        }
    }
    pp_assert(false);
}

/* Moves to the next indices of the axes that the output adds up over, or of the others; the last
 * axis runs fastest. Returns false after the last ones. */
static bool next_index(const struct pp_expr *e, const struct pp_expr_array *out, bool of_sum,
                       int *index)
{
    for (int i = e->n_axes - 1; i >= 0; i--) {
        if (expr_sums(e, out, i) != of_sum)
            continue;
        if (++index[i] < e->size[i])
            return true;
        index[i] = 0;
    }
    return false;
}

static void run_output(const struct pp_expr_run *a, int b, int k)
{
    const struct pp_expr *e = a->e;
    const struct pp_expr_array *out = &e->out[k];
    int index[PP_AXES] = {0};
    do {
        pp_value *y = a->y[k] + (size_t)b * out->sample + out->offset;
        double sum = 0;
        for (int i = 0; i < e->n_axes; i++)
            y += expr_offset(out, a->tables, i, index[i]);
        do
            sum += run_program(a, b, index, k);
        while (next_index(e, out, true, index));
        *y = (float)(a->add[k] ? *y + sum : sum);
    } while (next_index(e, out, false, index));
}

int plain_expr(struct pp_backend *be, const struct pp_expr_run *a)
{
    for (int k = 0; k < a->e->n_out; k++)
        for (int b = 0; b < a->B && a->y[k]; b++)
            run_output(a, b, k);
    return 0;
}

/* ---- softmax */

int plain_softmax_forward(struct pp_backend *be, const struct pp_softmax_forward *a)
{
    size_t n = (size_t)a->n, inner = (size_t)a->inner;
    size_t rows = (size_t)a->B * (size_t)a->outer * inner;
    for (size_t r = 0; r < rows; r++) {
        size_t at = r / inner * n * inner + r % inner;
        double most = a->x[at], sum = 0;
        for (size_t i = 0; i < n; i++)
            most = a->x[at + i * inner] > most ? a->x[at + i * inner] : most;
        for (size_t i = 0; i < n; i++)
            sum += exp(a->x[at + i * inner] - most);
        for (size_t i = 0; i < n; i++) {
            double z = a->x[at + i * inner] - most;
            a->y[at + i * inner] = (float)(a->log ? z - log(sum) : exp(z) / sum);
        }
    }
    return 0;
}

int plain_softmax_backward(struct pp_backend *be, const struct pp_softmax_backward *a)
{
    size_t n = (size_t)a->n, inner = (size_t)a->inner;
    size_t rows = (size_t)a->B * (size_t)a->outer * inner;
    for (size_t r = 0; r < rows; r++) {
        size_t at = r / inner * n * inner + r % inner;
        double sum = 0;
        for (size_t i = at; i < at + n * inner; i += inner)
            sum += a->log ? a->dy[i] : (double)a->dy[i] * a->y[i];
        for (size_t i = at; i < at + n * inner; i += inner) {
            double y = a->y[i], d = a->log ? a->dy[i] - exp(y) * sum : y * (a->dy[i] - sum);
            a->dx[i] = (float)((a->add ? (double)a->dx[i] : 0) + d);
        }
    }
    return 0;
}
