/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Muon (Keller Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024). A weight
 * matrix W[O][I] moves along its momentum, which five steps make nearly orthogonal:
 *
 *     X = a X + (b G + c G G) X,  G = X X^T        if O <= I; else the same from the right, G = X^T
 *                                 X
 *
 * The steps are products and loops of the backend over a whole matrix, so no cut of the model
 * changes a bit.
 */
#include <math.h>

#include "chunk.h"
#include "ppcli/conf/config.h"

#define STEPS 5
#define FACTOR_X 3.4445f /* a, b and c */
#define FACTOR_G (-4.7750f)
#define FACTOR_GG 2.0315f

bool chunk_is_muon(const struct pp_chunk *c, const struct pp_param *p)
{
    return c->optimizer == PP_OPT_MUON && p->matrix;
}

int pp_param_moments(const struct pp_param *p, int optimizer)
{
    bool one = optimizer == PP_OPT_MUON && p->matrix;
    return !pp_param_learns(p) ? 0 : one ? 1 : pp_optimizer_moments(optimizer);
}

static size_t align_floats(size_t floats)
{
    const size_t unit = PP_ALIGN / sizeof(float);
    return (floats + unit - 1) / unit * unit;
}

struct matrix {
    int O, I, n;          /* n: the smaller of O and I */
    float *x, *y, *g, *h; /* [O][I] twice, [n][n] twice */
    double *squares;
};

static struct matrix place_matrix(const struct pp_param *p, float *scratch)
{
    int O = p->dims[0], I = (int)(pp_param_floats(p) / (size_t)O), n = O < I ? O : I;
    size_t all = align_floats((size_t)O * (size_t)I), gram = align_floats((size_t)n * (size_t)n);
    struct matrix m = {O, I, n, .x = scratch, .y = scratch + all, .g = scratch + 2 * all};
    m.h = m.g + gram;
    m.squares = (double *)(void *)(m.h + gram);
    return m;
}

size_t chunk_muon_floats(const struct pp_param *p)
{
    const struct matrix m = place_matrix(p, NULL);
    return 2 * align_floats((size_t)m.O * (size_t)m.I) +
           2 * align_floats((size_t)m.n * (size_t)m.n) + PP_ALIGN / sizeof(float);
}

int chunk_muon_prepare(const struct pp_chunk *c, struct pp_backend *be)
{
    for (int i = 0; i < pp_chunk_param_count(c); i++) {
        size_t at, floats;
        const struct pp_param *p = pp_chunk_param(c, i, &at, &floats);
        if (!chunk_is_muon(c, p))
            continue;
        const struct matrix m = place_matrix(p, c->scratch);
        bool wide = m.O <= m.I;
        const struct pp_linear_use both = {.B = m.O,
                                           .I = m.I,
                                           .O = wide ? m.O : m.I,
                                           .dx = wide,
                                           .W = wide ? m.x : m.h,
                                           .dW = wide ? NULL : m.g},
                                   gram = {.B = m.n, .I = m.n, .O = m.n, .W = m.g};
        PP_TRY(pp_backend_prepare_linear(be, &both));
        PP_TRY(pp_backend_prepare_linear(be, &gram));
    }
    return 0;
}

/* Computes y = a x + b y for n floats. */
static int mix_matrices(struct pp_backend *be, size_t n, float a, float *x, float b, float *y)
{
    return pp_backend_muon(
        be, &(struct pp_muon){.n = n, .part = PP_MUON_MIX, .a = a, .b = b, .x = x, .y = y});
}

/* Replaces the matrix x by the next x of the iteration that makes it orthogonal; overwrites y. */
static int orthogonalize_matrix(struct matrix *m, struct pp_backend *be)
{
    int O = m->O, I = m->I, n = m->n;
    size_t all = (size_t)O * (size_t)I, gram = (size_t)n * (size_t)n;
    const struct pp_weight_part part = {.B = O, .dz = m->x, .x = m->x};
    if (O <= I)
        PP_TRY(pp_backend_linear_forward(be, &(struct pp_linear_forward){O, I, O, m->x, m->x, NULL,
                                                                         NULL, PP_ACT_NONE, NULL,
                                                                         m->g, 0}));
    else
        PP_TRY(pp_backend_linear_backward_weight(
            be, &(struct pp_linear_backward_weight){1, &part, I, I, 0, m->g, NULL, 0}));
    PP_TRY(
        pp_backend_linear_forward(be, &(struct pp_linear_forward){n, n, n, m->g, m->g, NULL, NULL,
                                                                  PP_ACT_NONE, NULL, m->h, 0}));
    PP_TRY(mix_matrices(be, gram, FACTOR_G, m->g, FACTOR_GG, m->h));
    if (O <= I)
        PP_TRY(pp_backend_linear_backward_input(
            be, &(struct pp_linear_backward_input){O, I, O, m->h, m->x, NULL, m->y, 0}));
    else
        PP_TRY(pp_backend_linear_forward(be, &(struct pp_linear_forward){O, I, I, m->x, m->h, NULL,
                                                                         NULL, PP_ACT_NONE, NULL,
                                                                         m->y, 0}));
    PP_TRY(mix_matrices(be, all, FACTOR_X, m->x, 1, m->y));
    float *x = m->x;
    m->x = m->y;
    m->y = x;
    return 0;
}

int chunk_muon_step(struct pp_chunk *c, struct pp_backend *be, const struct pp_param *p,
                    const struct pp_optimizer_args *a, float *grads, float *momentum, float *params)
{
    struct matrix m = place_matrix(p, c->scratch);
    size_t n = pp_param_floats(p);
    struct pp_muon part = {.n = n, .part = PP_MUON_BEGIN, .args = a, .x = grads, .y = momentum};
    PP_TRY(pp_backend_muon(be, &part));
    PP_TRY(pp_backend_copy(be, m.x, grads, n * sizeof(*grads)));
    PP_TRY(pp_backend_sum_squares(be, &(struct pp_sum_squares){n, m.x, m.squares}));
    part = (struct pp_muon){.n = n, .part = PP_MUON_UNIT, .squares = m.squares, .x = m.x};
    PP_TRY(pp_backend_muon(be, &part));
    for (int i = 0; i < STEPS; i++)
        PP_TRY(orthogonalize_matrix(&m, be));
    double own = sqrt(fmax(1, (double)m.O / m.I)), shared = 0.2 * sqrt(fmax(m.O, m.I));
    part = (struct pp_muon){.n = n,
                            .part = PP_MUON_END,
                            .args = a,
                            .a = (float)(c->rate > 0 ? own * (double)c->rate : shared),
                            .b = c->rate > 0 ? c->rate : 1,
                            .x = m.x,
                            .y = params};
    return pp_backend_muon(be, &part);
}
