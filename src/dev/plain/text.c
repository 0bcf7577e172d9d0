/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that only transformers use, except attention. */
#include "plain.h"

#include <math.h>
#include <string.h>

#include "../numbers.h"
#include "ppcli/conf/config.h"

int plain_row_norm_forward(struct pp_backend *be, const struct pp_row_norm_forward *a)
{
    size_t C = a->C;
    for (size_t r = 0; r < (size_t)a->B; r++) {
        const float *x = a->x + r * C;
        double sum = 0, squares = 0;
        for (size_t c = 0; a->centred && c < C; c++)
            sum += x[c];
        double mean = sum / (double)C;
        for (size_t c = 0; c < C; c++)
            squares += (x[c] - mean) * (x[c] - mean);
        double rstd = 1 / sqrt(squares / (double)C + a->eps);
        a->keep[2 * r] = (float)mean;
        a->keep[2 * r + 1] = (float)rstd;
        for (size_t c = 0; c < C; c++) {
            double y = (x[c] - mean) * rstd * a->gamma[c];
            a->y[r * C + c] = (float)(y + (a->beta ? a->beta[c] : 0));
        }
    }
    return 0;
}

int plain_row_norm_backward_input(struct pp_backend *be, const struct pp_row_norm_backward_input *a)
{
    size_t C = a->C;
    for (size_t r = 0; r < (size_t)a->B; r++) {
        const float *x = a->x + r * C, *dy = a->dy + r * C;
        float *dx = a->dx + r * C;
        double sum = 0, product = 0, mean = a->keep[2 * r], rstd = a->keep[2 * r + 1];
        for (size_t c = 0; c < C; c++) {
            double d = (double)dy[c] * a->gamma[c];
            sum += a->centred ? d : 0;
            product += d * ((x[c] - mean) * rstd);
        }
        for (size_t c = 0; c < C; c++) {
            double d = (double)dy[c] * a->gamma[c], xhat = (x[c] - mean) * rstd;
            double g = rstd * (d - (sum + xhat * product) / (double)C);
            dx[c] = (float)((a->add ? (double)dx[c] : 0) + g);
        }
    }
    return 0;
}

int plain_row_norm_backward_weight(struct pp_backend *be,
                                   const struct pp_row_norm_backward_weight *a)
{
    size_t C = a->C;
    for (size_t c = 0; c < C; c++) {
        double gamma = a->beta != 0 ? a->dgamma[c] : 0;
        double beta = a->beta != 0 && a->dbeta ? a->dbeta[c] : 0;
        for (size_t r = 0; r < (size_t)a->B; r++) {
            double dy = a->dy[r * C + c], x = a->x[r * C + c];
            gamma += dy * ((x - a->keep[2 * r]) * a->keep[2 * r + 1]);
            beta += dy;
        }
        a->dgamma[c] = (float)gamma;
        if (a->dbeta)
            a->dbeta[c] = (float)beta;
    }
    return 0;
}

int plain_embedding_forward(struct pp_backend *be, const struct pp_embedding_forward *a)
{
    size_t C = a->C, T = a->T;
    for (size_t r = 0; r < (size_t)a->B * T; r++) {
        int token = token_row(a->x[r], a->V);
        for (size_t c = 0; c < C; c++) {
            double y = token < 0 ? NAN : a->W[(size_t)token * C + c];
            a->y[r * C + c] = (float)(y + (a->P ? a->P[(a->first + r % T) * C + c] : 0));
        }
    }
    return 0;
}

/* Adds the gradients of all rows with a token to the token's row of dW. r is the first row with
 * this token. */
static void add_token(const struct pp_embedding_backward_weight *a, size_t r, int token)
{
    size_t C = a->C, rows = (size_t)a->B * a->T;
    for (size_t c = 0; c < C; c++) {
        float *dW = a->dW + (size_t)token * C + c;
        double sum = *dW;
        for (size_t i = r; i < rows; i++)
            sum += token_row(a->x[i], a->V) == token ? a->dy[i * C + c] : 0;
        *dW = (float)sum;
    }
}

int plain_embedding_backward_weight(struct pp_backend *be,
                                    const struct pp_embedding_backward_weight *a)
{
    size_t C = a->C, T = a->T, rows = (size_t)a->B * T;
    if (a->beta == 0)
        memset(a->dW, 0, a->V * C * sizeof(*a->dW));
    for (size_t r = 0; r < rows; r++) {
        int token = token_row(a->x[r], a->V);
        bool first = token >= 0;
        for (size_t i = 0; i < r && first; i++)
            first = token_row(a->x[i], a->V) != token;
        if (first)
            add_token(a, r, token);
    }
    if (a->padding > 0)
        memset(a->dW + (size_t)(a->padding - 1) * C, 0, C * sizeof(*a->dW));
    for (size_t i = 0; i < T * C && a->dP; i++) {
        double sum = a->beta != 0 ? a->dP[i] : 0;
        for (size_t r = 0; r < (size_t)a->B; r++)
            sum += a->dy[r * T * C + i];
        a->dP[i] = (float)sum;
    }
    return 0;
}

int plain_rotary(struct pp_backend *be, const struct pp_rotary *a)
{
    size_t C = a->C, T = a->T, half = a->width / 2, turned = (size_t)a->heads * 2 * half;
    for (size_t i = 0; i < (size_t)a->B * T * C; i++) {
        size_t c = i % C, j = c % half, position = a->first + i / C % T;
        bool second = c / half % 2;
        double y = a->x[i];
        if (c < turned) {
            double angle = (double)position * rope_step(a, (int)j);
            double other = second ? a->x[i - half] : -a->x[i + half];
            y = cos(angle) * y + (a->back ? -sin(angle) : sin(angle)) * other;
        }
        a->y[i] = (float)((a->add ? (double)a->y[i] : 0) + y);
    }
    return 0;
}

int plain_gated_forward(struct pp_backend *be, const struct pp_gated *a)
{
    size_t F = a->F;
    for (size_t i = 0; i < (size_t)a->B * F; i++) {
        const float *x = a->x + i / F * 2 * F + i % F;
        a->y[i] = (float)(plain_activate(PP_ACT_SILU, x[0]) * x[F]);
    }
    return 0;
}

int plain_gated_backward(struct pp_backend *be, const struct pp_gated_backward *a)
{
    size_t F = a->F;
    for (size_t i = 0; i < (size_t)a->B * F; i++) {
        size_t at = i / F * 2 * F + i % F;
        double gate = a->x[at], up = a->x[at + F], dy = a->dy[i];
        double d_gate = plain_activate_back(PP_ACT_SILU, gate, dy * up);
        double d_up = dy * plain_activate(PP_ACT_SILU, gate);
        a->dx[at] = (float)((a->add ? (double)a->dx[at] : 0) + d_gate);
        a->dx[at + F] = (float)((a->add ? (double)a->dx[at + F] : 0) + d_up);
    }
    return 0;
}
