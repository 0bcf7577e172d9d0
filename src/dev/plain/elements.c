/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that work element by element, in double. */
#include "../numbers.h"
#include "plain.h"
#include "ppcli/conf/config.h"

int plain_move_pictures(struct pp_backend *be, const struct pp_move_pictures *a)
{
    uint8_t *to = a->pictures;
    for (int r = 0; r < a->B; r++) {
        for (int pixel = 0; pixel < a->H * a->W; pixel++) {
            int from = moved_from(a->moves[r], a->H, a->W, pixel / a->W, pixel % a->W);
            size_t at = (size_t)a->index[r] * (size_t)(a->H * a->W) + (size_t)(from < 0 ? 0 : from);
            for (int c = 0; c < a->C; c++)
                *to++ = from < 0 ? 0 : a->data[at * (size_t)a->C + (size_t)c];
        }
    }
    return 0;
}

int plain_activate_forward(struct pp_backend *be, const struct pp_activate *a)
{
    for (size_t i = 0; i < a->n; i++)
        a->y[i] = (float)plain_activate(a->act, a->x[i]);
    return 0;
}

int plain_activate_backward(struct pp_backend *be, const struct pp_activate_backward *a)
{
    for (size_t i = 0; i < a->n; i++) {
        double dz = plain_activate_back(a->act, a->saved[i], a->dy[i]);
        a->dx[i] = (float)((a->add ? (double)a->dx[i] : 0) + dz);
    }
    return 0;
}

int plain_sum(struct pp_backend *be, const struct pp_sum *a)
{
    for (size_t i = 0; i < a->n; i++) {
        double y = (double)a->a[i] + a->b[i];
        a->y[i] = (float)(a->relu ? plain_activate(PP_ACT_RELU, y) : y);
    }
    return 0;
}

int plain_muon(struct pp_backend *be, const struct pp_muon *a)
{
    const struct pp_optimizer_args *o = a->args;
    bool stays = a->part == PP_MUON_BEGIN || a->part == PP_MUON_END;
    double unit = a->squares ? 1 / fmax(sqrt(*a->squares), 1e-7) : 1;
    pp_assert(a->y || a->part == PP_MUON_UNIT);
    for (size_t i = 0; i < a->n && !(stays && o->skip); i++) {
        double x = a->x[i], y = a->y ? a->y[i] : 0, mu = stays ? o->momentum : 0;
        if (a->part == PP_MUON_BEGIN) {
            a->y[i] = (float)(mu * y + (1 - mu) * o->grad_scale * x);
            a->x[i] = (float)((1 - mu) * o->grad_scale * x + mu * a->y[i]);
        } else if (a->part == PP_MUON_UNIT) {
            a->x[i] = (float)(x * unit);
        } else if (a->part == PP_MUON_MIX) {
            a->y[i] = (float)(a->a * x + a->b * y);
        } else {
            double lr = o->lr;
            a->y[i] = (float)((1 - a->b * lr * o->weight_decay) * y - a->a * lr * x);
        }
    }
    return 0;
}

int plain_dropout(struct pp_backend *be, const struct pp_dropout *a)
{
    for (size_t i = 0; i < a->B * a->F; i++) {
        uint64_t of = dropout_row(a->key, *a->step, a->first_row + (uint32_t)(i / a->F));
        bool dropped = dropout_number(of, (uint32_t)(i % a->F)) < dropout_limit(a->p);
        double y = a->x[i] * (dropped ? 0 : 1 / (1 - (double)a->p));
        a->y[i] = (float)((a->add ? (double)a->y[i] : 0) + y);
    }
    return 0;
}
