/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of convolutions, of norms over pixels and of pools. */
#include <math.h>

#include "checkops.h"

/* ---- convolution */

/* The shape of one, in the image. Paddings below and to the right follow from OH and OW. */
static const struct pp_conv *some_conv(struct sample *s, bool pools, int most_channels)
{
    struct pp_conv *g = &s->image.g;
    *g = (struct pp_conv){.kh = odd(s, 5), .kw = odd(s, 5), .stride = 1 + (int)draw(s, 3)};
    g->pad_top = (int)draw(s, (uint32_t)(g->kh + 1) / 2);
    g->pad_left = (int)draw(s, (uint32_t)(g->kw + 1) / 2);
    int H = odd(s, 13), W = odd(s, 13);
    g->H = H > g->kh - g->pad_top ? H : g->kh - g->pad_top;
    g->W = W > g->kw - g->pad_left ? W : g->kw - g->pad_left;
    g->OH = (g->H + g->pad_top + (int)draw(s, (uint32_t)g->kh) / 2 - g->kh) / g->stride + 1;
    g->OW = (g->W + g->pad_left + (int)draw(s, (uint32_t)g->kw) / 2 - g->kw) / g->stride + 1;
    g->groups = draw(s, 4) == 0 ? odd(s, most_channels < 8 ? most_channels : 8) : 1;
    g->C = g->groups * odd(s, most_channels / g->groups);
    g->O = g->groups * odd(s, most_channels / g->groups);
    if (draw(s, 12) == 0 && g->OH == 1 && g->OW == 1)
        g->stride = 65536;
    if (pools)
        g->groups = g->O = g->C;
    return g;
}

static int pixels_in(const struct pp_conv *g)
{
    return g->H * g->W * g->C;
}

static int pixels_out(const struct pp_conv *g)
{
    return g->OH * g->OW * g->O;
}

static int weights(const struct pp_conv *g)
{
    return g->O * g->kh * g->kw * (g->C / g->groups);
}

static void work(struct sample *s, size_t scratch_at, size_t packed_at, size_t W_at, int B)
{
    s->scratch_at = scratch_at;
    s->packed_at = flip(s) ? packed_at : 0;
    s->W_at = W_at;
    s->B = B;
}

void make_conv_forward(struct sample *s, struct pp_conv_forward *a)
{
    const struct pp_conv *g = some_conv(s, false, 70);
    a->B = some_rows(s, 5);
    a->relu = flip(s);
    point_inside(s, &a->g, g);
    VALUES(x, a->B * pixels_in(g));
    FLOATS(W, weights(g));
    if (flip(s))
        FLOATS(b, g->O);
    VALUE_RESULT(y, a->B * pixels_out(g), false);
    work(s, OFFSET(scratch), OFFSET(packed), OFFSET(W), a->B);
    s->b_at = OFFSET(b);
}

void make_conv_backward_input(struct sample *s, struct pp_conv_backward_input *a)
{
    const struct pp_conv *g = some_conv(s, false, 70);
    a->B = some_rows(s, 5);
    a->add = flip(s);
    point_inside(s, &a->g, g);
    VALUES(dz, a->B * pixels_out(g));
    FLOATS(W, weights(g));
    VALUE_RESULT(dx, a->B * pixels_in(g), a->add);
    work(s, OFFSET(scratch), OFFSET(packed), OFFSET(W), a->B);
}

void make_conv_backward_weight(struct sample *s, struct pp_conv_backward_weight *a)
{
    bool is_long = draw(s, 3) == 0;
    const struct pp_conv *g = some_conv(s, false, is_long ? 4 : 40);
    struct pp_weight_part *parts = s->image.parts;
    int most = 0;
    a->n = 1 + (int)draw(s, PARTS_MAX);
    a->beta = (float)flip(s);
    point_inside(s, &a->g, g);
    point_inside(s, &a->parts, parts);
    for (int k = 0; k < a->n; k++) {
        int B = parts[k].B = is_long ? part_rows(s, g->OH * g->OW) : some_rows(s, 5);
        most = B > most ? B : most;
        give(s, "dz", &parts[k].dz, (size_t)(B * pixels_out(g)), sizeof(float), true, NOISE);
        give(s, "x", &parts[k].x, (size_t)(B * pixels_in(g)), sizeof(float), true, NOISE);
    }
    RESULT(dW, weights(g), a->beta != 0);
    if (flip(s))
        RESULT(db, g->O, a->beta != 0);
    work(s, OFFSET(scratch), 0, 0, most);
}

void make_move_pictures(struct sample *s, struct pp_move_pictures *a)
{
    uint32_t pictures = 1 + draw(s, 5);
    a->B = some_rows(s, 9);
    a->H = odd(s, 33);
    a->W = odd(s, 33);
    a->C = 1 + (int)draw(s, 4);
    size_t one = (size_t)(a->H * a->W * a->C);
    uint8_t *data = BYTES(data, pictures * one);
    for (size_t i = 0; i < pictures * one; i++)
        data[i] = (uint8_t)draw(s, 256);
    uint32_t *index = BYTES(index, a->B), *moves = BYTES(moves, a->B);
    for (int i = 0; i < a->B; i++) {
        index[i] = draw(s, pictures);
        moves[i] = pp_move((int)draw(s, 9) - 4, (int)draw(s, 9) - 4, flip(s));
    }
    RESULT(pictures, (size_t)a->B * one, false);
}

/* ---- norms */

/* As if of x: means near 0, one over deviations near 1. */
static void some_moments(float *keep, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        keep[i] *= 0.3f;
        keep[n + i] = 1 + 0.5f * keep[n + i];
    }
}

static void only_positive(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] > 0 ? x[i] : 0;
}

/* Channels of other sizes; now and then far from 0. */
static void spread_channels(struct sample *s, float *x, size_t n, size_t C)
{
    float offset = draw(s, 6) == 0 ? 1000 : 0;
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] * (float)(1 + i % C % 7) + offset;
}

void make_batch_norm_forward(struct sample *s, struct pp_batch_norm_forward *a)
{
    a->B = some_rows(s, 9);
    a->P = odd(s, 33);
    a->C = odd(s, 600);
    a->eps = 1e-5f;
    a->relu = flip(s);
    size_t C = (size_t)a->C, n = (size_t)(a->B * a->P) * C;
    spread_channels(s, VALUES(x, n), n, C);
    FLOATS(gamma, C);
    FLOATS(beta, C);
    if (flip(s))
        VALUES(residual, n);
    if (flip(s)) {
        float *mean = FLOATS(running_mean, C), *var = FLOATS(running_var, C);
        for (size_t c = 0; c < C; c++)
            var[c] = 1 + 0.5f * var[c] + 0 * mean[c];
    } else {
        RESULT(keep, 2 * C, false);
    }
    VALUE_RESULT(y, n, false);
}

void make_batch_norm_backward_input(struct sample *s, struct pp_batch_norm_backward_input *a)
{
    a->B = some_rows(s, 9);
    a->P = odd(s, 33);
    a->C = odd(s, 600);
    a->add = flip(s);
    a->add_residual = flip(s);
    size_t C = (size_t)a->C, n = (size_t)(a->B * a->P) * C;
    VALUES(x, n);
    FLOATS(gamma, C);
    some_moments(FLOATS(keep, 2 * C), C);
    if (flip(s))
        only_positive(VALUES(y, n), n);
    VALUES(dy, n);
    RESULT(sums, 2 * C, false);
    if (draw(s, 4) > 0)
        VALUE_RESULT(dx, n, a->add);
    if (flip(s))
        VALUE_RESULT(d_residual, n, a->add_residual);
}

void make_batch_norm_backward_weight(struct sample *s, struct pp_batch_norm_backward_weight *a)
{
    a->B = some_rows(s, 9);
    a->P = odd(s, 33);
    a->C = odd(s, 600);
    a->eps = 1e-5f;
    a->beta = (float)flip(s);
    size_t C = (size_t)a->C;
    some_moments(FLOATS(keep, 2 * C), C);
    FLOATS(sums, 2 * C);
    RESULT(dgamma, C, a->beta != 0);
    RESULT(dbeta, C, a->beta != 0);
    RESULT(stat_mean, C, a->beta != 0);
    float *squares = RESULT(stat_squares, C, a->beta != 0), *n = RESULT(stat_n, 1, a->beta != 0);
    if (a->beta != 0) {
        only_positive(squares, C);
        *n = (float)draw(s, 50);
    }
}

void make_batch_norm_spread(struct sample *s, struct pp_batch_norm_spread *a)
{
    a->C = odd(s, 600);
    FLOATS(stat_mean, a->C);
    float *n = BYTES(stat_n, 1), *own = FLOATS(own, a->C + 1);
    own[a->C] = (float)(1 + draw(s, 50));
    *n = own[a->C] + (float)draw(s, 50);
}

void make_batch_norm_commit(struct sample *s, struct pp_batch_norm_commit *a)
{
    a->C = odd(s, 600);
    a->momentum = 0.1f;
    bool *skip = BYTES(skip, 1);
    *skip = draw(s, 6) == 0;
    FLOATS(stat_mean, a->C);
    only_positive(FLOATS(stat_squares, a->C), (size_t)a->C);
    float *n = BYTES(stat_n, 1), *tracked;
    *n = (float)draw(s, 9);
    FLOATS(running_mean, a->C);
    only_positive(FLOATS(running_var, a->C), (size_t)a->C);
    tracked = BYTES(tracked, 1);
    *tracked = (float)draw(s, 9);
}

void make_group_norm_forward(struct sample *s, struct pp_group_norm_forward *a)
{
    a->B = some_rows(s, 7);
    a->P = odd(s, 17);
    a->G = odd(s, 8);
    a->C = a->G * odd(s, 1030 / a->G);
    a->eps = 1e-5f;
    a->relu = flip(s);
    size_t C = (size_t)a->C, n = (size_t)(a->B * a->P) * C;
    spread_channels(s, VALUES(x, n), n, C);
    FLOATS(gamma, C);
    FLOATS(beta, C);
    if (flip(s))
        VALUES(residual, n);
    RESULT(keep, 2 * a->B * a->G, false);
    VALUE_RESULT(y, n, false);
}

void make_group_norm_backward_input(struct sample *s, struct pp_group_norm_backward_input *a)
{
    a->B = some_rows(s, 7);
    a->P = odd(s, 17);
    a->G = odd(s, 8);
    a->C = a->G * odd(s, 1030 / a->G);
    a->add = flip(s);
    a->add_residual = flip(s);
    size_t C = (size_t)a->C, n = (size_t)(a->B * a->P) * C, groups = (size_t)(a->B * a->G);
    VALUES(x, n);
    FLOATS(gamma, C);
    some_moments(FLOATS(keep, 2 * groups), groups);
    if (flip(s))
        only_positive(VALUES(y, n), n);
    VALUES(dy, n);
    VALUE_RESULT(dx, n, a->add);
    if (flip(s))
        VALUE_RESULT(d_residual, n, a->add_residual);
}

void make_group_norm_backward_weight(struct sample *s, struct pp_group_norm_backward_weight *a)
{
    a->B = some_rows(s, 7);
    a->P = odd(s, 17);
    a->G = odd(s, 8);
    a->C = a->G * odd(s, 600 / a->G);
    a->beta = (float)flip(s);
    size_t C = (size_t)a->C, n = (size_t)(a->B * a->P) * C, groups = (size_t)(a->B * a->G);
    VALUES(x, n);
    some_moments(FLOATS(keep, 2 * groups), groups);
    VALUES(dz, n);
    RESULT(dgamma, C, a->beta != 0);
    RESULT(dbeta, C, a->beta != 0);
}

/* ---- pools */

void make_max_pool_forward(struct sample *s, struct pp_max_pool_forward *a)
{
    const struct pp_conv *g = some_conv(s, true, 259);
    a->B = some_rows(s, 3);
    point_inside(s, &a->g, g);
    VALUES(x, a->B * pixels_in(g));
    if (flip(s))
        BYTES(taken, a->B * pixels_out(g));
    VALUE_RESULT(y, a->B * pixels_out(g), false);
}

/* Taken is what a forward pass took. */
void make_max_pool_backward(struct sample *s, struct pp_max_pool_backward *a)
{
    const struct pp_conv *g = some_conv(s, true, 259);
    a->B = some_rows(s, 3);
    a->add = flip(s);
    point_inside(s, &a->g, g);
    float *dx = VALUES(dx, a->B * pixels_in(g)), *dy = VALUES(dy, a->B * pixels_out(g));
    uint8_t *taken = BYTES(taken, a->B * pixels_out(g));
    const struct pp_max_pool_forward forward = {g, a->B, dx, taken, dy};
    pp_backend_max_pool_forward(s->plain, &forward);
}

/* Every sample of its own height, where one window sees all of it. */
static const struct pp_conv *some_average(struct sample *s, struct pp_avg_pool *a)
{
    struct pp_conv *g = (struct pp_conv *)some_conv(s, true, 259);
    a->B = some_rows(s, 3);
    a->add = flip(s);
    a->count_padding = flip(s);
    point_inside(s, &a->g, g);
    if (draw(s, 3) > 0)
        return g;
    a->count_padding = false;
    *g = (struct pp_conv){g->H, 1, g->C, 1, 1, g->C, g->H, 1, g->H, 0, 0, g->C};
    uint32_t *lengths = BYTES(lengths, 4), *index = BYTES(index, a->B);
    for (int i = 0; i < 4; i++)
        lengths[i] = 1 + draw(s, (uint32_t)g->H);
    for (int i = 0; i < a->B; i++)
        index[i] = draw(s, 4);
    return g;
}

void make_avg_pool_forward(struct sample *s, struct pp_avg_pool *a)
{
    const struct pp_conv *g = some_average(s, a);
    a->add = false;
    VALUES(x, a->B * pixels_in(g));
    VALUE_RESULT(y, a->B * pixels_out(g), false);
}

void make_avg_pool_backward(struct sample *s, struct pp_avg_pool *a)
{
    const struct pp_conv *g = some_average(s, a);
    VALUES(x, a->B * pixels_out(g));
    VALUE_RESULT(y, a->B * pixels_in(g), a->add);
}
