/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of linear layers, of the loss, of what goes element by element, and of the optimizers. */
#include <math.h>

#include "checkops.h"
#include "ppcli/conf/config.h"

static enum pp_activation some_activation(struct sample *s)
{
    static const enum pp_activation all[] = {
        PP_ACT_NONE,
#define PP_ACTIVATION(NAME, ...) PP_ACT_##NAME,
#include "ppcli/conf/activations.def"
    };
    return all[draw(s, sizeof(all) / sizeof(all[0]))];
}

static void pack(struct sample *s, size_t packed_at, size_t W_at, int O, int I)
{
    s->packed_at = flip(s) ? packed_at : 0;
    s->W_at = W_at;
    s->O = O;
    s->I = I;
}

void make_linear_forward(struct sample *s, struct pp_linear_forward *a)
{
    a->B = some_rows(s, 140);
    a->I = odd(s, 260);
    a->O = odd(s, 130);
    a->act = some_activation(s);
    VALUES(x, a->B * a->I);
    FLOATS(W, a->O * a->I);
    if (flip(s))
        FLOATS(b, a->O);
    if (flip(s) || pp_activation_facts(a->act)->saves_z)
        VALUE_RESULT(z, a->B * a->O, false);
    VALUE_RESULT(y, a->B * a->O, false);
    pack(s, OFFSET(packed), OFFSET(W), a->O, a->I);
    s->b_at = OFFSET(b);
}

void make_linear_backward_input(struct sample *s, struct pp_linear_backward_input *a)
{
    a->B = some_rows(s, 140);
    a->I = odd(s, 260);
    a->O = odd(s, 130);
    VALUES(dz, a->B * a->O);
    FLOATS(W, a->O * a->I);
    VALUE_RESULT(dx, a->B * a->I, false);
    pack(s, OFFSET(packed), OFFSET(W), a->O, a->I);
}

void make_linear_backward_weight(struct sample *s, struct pp_linear_backward_weight *a)
{
    struct pp_weight_part *parts = s->image.parts;
    bool is_long = flip(s);
    a->n = 1 + (int)draw(s, PARTS_MAX);
    a->I = is_long ? 4 * odd(s, 8) : odd(s, 130);
    a->O = odd(s, is_long ? 16 : 130);
    a->beta = (float)flip(s);
    point_inside(s, &a->parts, parts);
    for (int k = 0; k < a->n; k++) {
        int B = parts[k].B = is_long ? part_rows(s, 1) : some_rows(s, 70);
        give(s, "dz", &parts[k].dz, (size_t)(B * a->O), sizeof(float), true, NOISE);
        give(s, "x", &parts[k].x, (size_t)(B * a->I), sizeof(float), true, NOISE);
    }
    RESULT(dW, a->O * a->I, a->beta != 0);
    if (flip(s))
        RESULT(db, a->O, a->beta != 0);
}

void make_sum_squares(struct sample *s, struct pp_sum_squares *a)
{
    a->n = (size_t)some_rows(s, 6000);
    FLOATS(g, a->n);
    RESULT(out, 1, false);
}

void make_largest(struct sample *s, struct pp_largest *a)
{
    a->n = (size_t)some_rows(s, 6000);
    float *x = FLOATS(x, a->n);
    if (a->n > 0 && draw(s, 4) == 0)
        x[draw(s, (uint32_t)a->n)] = flip(s) ? NAN : -INFINITY;
    float *io = BYTES(io, 1);
    *io = flip(s) ? 0.3f : 0;
}

void make_optimizer_step(struct sample *s, struct pp_optimizer_step *a)
{
    a->n = (size_t)some_rows(s, 6000);
    a->decay = flip(s);
    int kind = (int)draw(s, PP_OPTIMIZERS), moments = pp_optimizer_moments(kind);
    struct pp_optimizer_args *args = BYTES(args, 1);
    *args = (struct pp_optimizer_args){.kind = kind,
                                       .nesterov = flip(s),
                                       .lr = 0.01f,
                                       .momentum = 0.9f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.999f,
                                       .eps = 1e-8f,
                                       .weight_decay = 0.1f,
                                       .grad_scale = flip(s) ? 1 : 0.7f,
                                       .step = 1 + draw(s, 5),
                                       .skip = draw(s, 8) == 0};
    FLOATS(g, a->n);
    float *m = moments > 0 ? FLOATS(m, a->n) : NULL;
    float *v = moments > 1 ? FLOATS(v, a->n) : NULL;
    for (size_t i = 0; i < a->n; i++) {
        if (m)
            m[i] *= 0.1f;
        if (v) /* mean squares */
            v[i] = 0.01f + v[i] * v[i];
    }
    FLOATS(p, a->n);
}

void make_judge(struct sample *s, struct pp_judgement *a)
{
    a->stages = odd(s, 4);
    a->ranks = a->stages * odd(s, 3);
    a->n = odd(s, 40);
    a->clip_norm = flip(s) ? 2.5 : 0;
    a->most = draw(s, 4) == 0 ? 1 : 0;
    a->halt = flip(s);
    size_t columns = (size_t)a->n + 1, n = (size_t)a->ranks * columns;
    double *votes = BYTES(votes, n);
    for (size_t i = 0; i < n; i++)
        votes[i] = (int)(i / columns) % a->stages == (int)(i % columns) % a->stages
                       ? (double)draw(s, 1000) / 512
                       : 0;
    if (draw(s, 4) == 0)
        votes[draw(s, (uint32_t)n)] = INFINITY;
    struct pp_step_verdict *verdict = BYTES(verdict, 1);
    verdict->bad_step = draw(s, 4) == 0 ? 3 : 0;
    struct pp_optimizer_args *args = BYTES(args, 1);
    args->step = args->t = 1 + draw(s, 5);
    struct pp_loss_sums *sums = BYTES(sums, 1);
    *sums = (struct pp_loss_sums){1.5, 2, 3, 4, 5, 0, 0, 0, 0};
    if (flip(s))
        *(struct pp_loss_sums *)BYTES(before, 1) =
            (struct pp_loss_sums){0.5, 1, 2, 3, 4, 0, 0, 0, 0};
}

void make_muon(struct sample *s, struct pp_muon *a)
{
    a->n = (size_t)some_rows(s, 6000);
    a->part = (enum pp_muon_part)draw(s, PP_MUON_END + 1);
    a->a = flip(s) ? 3.4445f : 0.7f;
    a->b = flip(s) ? -4.775f : 1;
    struct pp_optimizer_args *args = BYTES(args, 1);
    *args = (struct pp_optimizer_args){.kind = PP_OPT_MUON,
                                       .lr = 0.01f,
                                       .momentum = 0.95f,
                                       .weight_decay = 0.1f,
                                       .grad_scale = flip(s) ? 1 : 0.7f,
                                       .skip = draw(s, 8) == 0};
    double *squares = BYTES(squares, 1);
    *squares = flip(s) ? 17.3 : 0;
    RESULT(x, a->n, true);
    if (a->part != PP_MUON_UNIT)
        RESULT(y, a->n, true);
}

/* ---- samples and the loss */

void make_gather(struct sample *s, struct pp_gather *a)
{
    int rows = 1 + (int)draw(s, 9), channels = flip(s) ? 3 : (int)draw(s, 2);
    a->B = some_rows(s, 40);
    a->F = odd(s, 257) * (channels > 0 ? channels : 1);
    a->element = (enum pp_element)draw(s, PP_F32 + 1);
    a->stride = flip(s) ? (size_t)a->F : 1;
    a->f32 = a->element != PP_F32 && flip(s);
    a->scaling.channels = channels;
    for (int c = 0; c < 3; c++) {
        a->scaling.scale[c] = 0.017f + (float)c;
        a->scaling.offset[c] = (float)c - 0.7f;
    }
    size_t n = (size_t)rows * a->stride + (size_t)a->F, bytes = n * pp_element_bytes(a->element);
    if (a->element == PP_F32) {
        give(s, "data", &a->data, n, sizeof(float), false, NOISE);
    } else {
        uint8_t *data = give(s, "data", &a->data, (bytes + 3) / 4, 4, false, CLEARED);
        for (size_t i = 0; i < bytes; i++) /* whole numbers below 2^24 */
            data[i] = a->element == PP_U32 && i % 4 == 3 ? 0 : (uint8_t)draw(s, 256);
    }
    if (a->B > rows || flip(s)) {
        uint32_t *index = BYTES(index, a->B);
        for (int i = 0; i < a->B; i++)
            index[i] = draw(s, (uint32_t)rows);
    }
    GIVE(x, a->B * a->F, !a->f32, UNSET);
}

void make_targets(struct sample *s, struct pp_targets *a)
{
    uint32_t rows = 1 + draw(s, 9);
    a->B = some_rows(s, 40);
    a->P = odd(s, 65);
    a->element = (enum pp_element)draw(s, PP_F32);
    a->stride = flip(s) ? (size_t)a->P : 1;
    a->first = draw(s, 3);
    a->ignored = flip(s) ? 0 : 1 + draw(s, 256);
    size_t n = rows * a->stride + a->first + (size_t)a->P;
    uint8_t *data = give(s, "data", &a->data, n, 4, false, CLEARED);
    for (size_t i = 0; i < n * pp_element_bytes(a->element); i++) /* below 2^31 */
        data[i] = a->element == PP_U32 && i % 4 == 3 ? 1 : (uint8_t)draw(s, 256);
    uint32_t *index = BYTES(index, a->B);
    for (int i = 0; i < a->B; i++)
        index[i] = draw(s, rows);
    RESULT(targets, a->B * a->P, false);
}

void make_softmax_cross_entropy(struct sample *s, struct pp_softmax_cross_entropy *a)
{
    a->B = some_rows(s, 40);
    a->P = odd(s, 17);
    a->C = flip(s) ? odd(s, 300) : odd(s, 5003 / (1 + a->B * a->P / 60));
    a->smoothing = flip(s) ? 0 : 0.1f;
    a->grad_scale = 0.25f;
    a->uncounted = a->B > 0 && flip(s);
    size_t rows = (size_t)(a->B * a->P), n = rows * (size_t)a->C;
    float *logits = VALUES(logits, n), larger = (float)draw(s, 11);
    bool ties = draw(s, 4) == 0;
    for (size_t i = 0; i < n; i++)
        logits[i] = ties ? roundf(4 * logits[i]) : logits[i] * larger;
    int gradient = (int)draw(s, 3);
    if (gradient == 1)
        give_also(s, &a->dlogits, 0);
    int32_t *targets = BYTES(targets, rows);
    for (size_t r = 0; r < rows; r++)
        targets[r] = draw(s, 6) == 0 ? -1 : (int32_t)draw(s, (uint32_t)a->C);
    struct pp_loss_sums *sums = BYTES(sums, 1);
    *sums = (struct pp_loss_sums){1.5, 2, 3, 4, 5, 0, 0, 0, 0};
    if (gradient == 2)
        VALUE_RESULT(dlogits, n, false);
    if (flip(s))
        FLOATS(scale, 1);
    if (draw(s, 3) == 0) {
        float *weights = FLOATS(weights, a->C);
        for (int c = 0; c < a->C; c++)
            weights[c] = fabsf(weights[c]) * (float)draw(s, 3);
    }
}

void make_numbers_loss(struct sample *s, struct pp_numbers_loss *a)
{
    a->B = some_rows(s, 300);
    a->C = flip(s) ? 1 + (int)draw(s, 3) : odd(s, 120);
    a->kind = (enum pp_loss_kind)(PP_LOSS_MSE + draw(s, PP_LOSS_BCE));
    a->grad_scale = 0.25f;
    size_t n = (size_t)a->B * (size_t)a->C;
    int gradient = (int)draw(s, 3);
    float *outputs = VALUES(outputs, n), larger = (float)(1 + draw(s, 9));
    if (gradient == 1)
        give_also(s, &a->doutputs, 0);
    float *targets = FLOATS(targets, n);
    for (size_t i = 0; i < n; i++) {
        outputs[i] *= larger;
        targets[i] = a->kind == PP_LOSS_BCE ? (float)draw(s, 2) : targets[i];
    }
    struct pp_loss_sums *sums = BYTES(sums, 1);
    *sums = (struct pp_loss_sums){1.5, 2, 3, 4, 5, 6, 7, 8, 9};
    if (gradient == 2)
        VALUE_RESULT(doutputs, n, false);
}

/* ---- element by element */

/* n values, larger than noise. */
static void spread(float *x, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

void make_activate_forward(struct sample *s, struct pp_activate *a)
{
    a->n = (size_t)some_rows(s, 6000);
    a->act = some_activation(s);
    spread(VALUES(x, a->n), a->n, 6);
    if (draw(s, 4) == 0)
        give_also(s, &a->y, 0);
    else
        VALUE_RESULT(y, a->n, false);
}

void make_activate_backward(struct sample *s, struct pp_activate_backward *a)
{
    a->n = (size_t)some_rows(s, 6000);
    a->act = some_activation(s);
    a->add = flip(s);
    float *saved = VALUES(saved, a->n);
    spread(saved, a->n, pp_activation_facts(a->act)->saves_z ? 6 : 1);
    VALUES(dy, a->n);
    if (!a->add && flip(s))
        give_also(s, &a->dx, 0);
    else
        VALUE_RESULT(dx, a->n, a->add);
}

void make_sum(struct sample *s, struct pp_sum *a)
{
    a->n = (size_t)some_rows(s, 6000);
    a->f32 = flip(s);
    a->relu = flip(s);
    GIVE(a, a->n, !a->f32, NOISE);
    GIVE(b, a->n, !a->f32, NOISE);
    if (flip(s))
        give_also(s, &a->y, 0);
    else
        GIVE(y, a->n, !a->f32, UNSET);
}

void make_dropout(struct sample *s, struct pp_dropout *a)
{
    a->B = some_rows(s, 17);
    a->F = (size_t)odd(s, 600);
    a->p = draw(s, 4) == 0 ? 0 : (float)draw(s, 9) / 10;
    a->key = draw(s, UINT32_MAX);
    a->first_row = draw(s, 1000);
    a->add = flip(s);
    int64_t *step = BYTES(step, 1);
    *step = draw(s, 1000);
    VALUES(x, (size_t)a->B * a->F);
    VALUE_RESULT(y, (size_t)a->B * a->F, a->add);
}

void make_gated_forward(struct sample *s, struct pp_gated *a)
{
    a->B = some_rows(s, 17);
    a->F = odd(s, 300);
    spread(VALUES(x, 2 * a->B * a->F), (size_t)(2 * a->B * a->F), 8);
    VALUE_RESULT(y, a->B * a->F, false);
}

void make_gated_backward(struct sample *s, struct pp_gated_backward *a)
{
    a->B = some_rows(s, 17);
    a->F = odd(s, 300);
    a->add = flip(s);
    spread(VALUES(x, 2 * a->B * a->F), (size_t)(2 * a->B * a->F), 8);
    VALUES(dy, a->B * a->F);
    VALUE_RESULT(dx, 2 * a->B * a->F, a->add);
}
