/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear layer with its activation: y[rows][out] = act(x[rows][in] * W[out][in]^T + b[out]).
 * One layer rather than two, because every fast library offers the pair as one op.
 */
#include "nn.h"

#include <math.h>
#include <stdio.h>

#include "ppcli/err.h"

/* The weight lies first in the layer's parameters, the bias here. */
static size_t bias_at(const struct pp_layer *l)
{
    return (size_t)l->out * (size_t)l->in;
}

static int saved(const struct pp_layer *l)
{
    return pp_activation_facts(l->activation)->saves_z ? l->out : 0;
}

/* Products only: they are all but a few percent. Nobody asks for the gradient of the images. */
static void cost(const struct pp_layer *l, struct pp_layer_cost *out)
{
    double product = 2.0 * l->in * l->out;
    out->flops_f = product;
    out->flops_i = l->index == 0 ? 0 : product;
    out->flops_w = product;
}

static size_t packed_floats(const struct pp_layer *l, const struct pp_backend_choice *choice)
{
    return pp_backend_packed_floats(choice, l->out, l->in);
}

static int pack(const struct pp_layer *l, struct pp_backend *be, const float *params, float *packed)
{
    return pp_backend_pack_weights(be, l->out, l->in, params, packed);
}

static int prepare(const struct pp_layer *l, struct pp_backend *be, int rows, const float *params,
                   const float *packed, float *grads)
{
    struct pp_linear_use use = {.B = rows,
                                .I = l->in,
                                .O = l->out,
                                .act = l->activation,
                                .keeps_z = saved(l) > 0,
                                .dx = grads && l->index > 0,
                                .W = params,
                                .packed = packed,
                                .b = params + bias_at(l),
                                .dW = grads,
                                .db = grads ? grads + bias_at(l) : NULL};
    return pp_backend_prepare_linear(be, &use);
}

static int forward(const struct pp_layer *l, struct pp_backend *be, int rows, const float *params,
                   const float *packed, const float *x, float *saved_z, float *y)
{
    return pp_backend_linear_forward(be, rows, l->in, l->out, x, params, packed,
                                     params + bias_at(l), l->activation, saved_z, y);
}

static int backward_input(const struct pp_layer *l, struct pp_backend *be, int rows,
                          const float *params, const float *packed, const float *saved_z,
                          const float *y, float *dy, float *dx)
{
    if (l->activation != PP_ACT_NONE) {
        PP_TRY(pp_backend_activation_backward(be, (size_t)rows * (size_t)l->out, l->activation,
                                              saved(l) > 0 ? saved_z : y, dy));
    }
    if (!dx)
        return 0;
    return pp_backend_linear_backward_input(be, rows, l->in, l->out, dy, params, packed, dx);
}

static int backward_weight(const struct pp_layer *l, struct pp_backend *be, int n,
                           const struct pp_weight_part *parts, float beta, float *grads)
{
    return pp_backend_linear_backward_weight(be, n, parts, l->in, l->out, beta, grads,
                                             grads + bias_at(l));
}

/* A gradient is a sum over rows of x * dz, that of a bias one of dz. Twice over, for the roundings
 * on the way, of which there are at most as many as rows. */
static double bound(const struct pp_layer *l, int rows, float x, float dz)
{
    return 2.0 * rows * fmax((double)x, 1.0) * (double)dz;
}

void layer_linear_define(int index, int in, int out, enum pp_activation act, struct pp_layer *l)
{
    float bound = init_bound(act, in);
    *l = (struct pp_layer){.ops = &layer_linear,
                           .index = index,
                           .in = in,
                           .out = out,
                           .activation = act,
                           .n_params = 2,
                           .n_floats = ((size_t)in + 1) * (size_t)out};
    struct pp_param *w = &l->params[0], *b = &l->params[1];
    *w = (struct pp_param){
        .rows = out, .cols = in, .n_dims = 2, .init_lo = -bound, .init_hi = bound};
    *b = (struct pp_param){.rows = 1, .cols = out, .n_dims = 1};
    snprintf(w->name, sizeof(w->name), "layers.%d.weight", index);
    snprintf(b->name, sizeof(b->name), "layers.%d.bias", index);
}

const struct pp_layer_ops layer_linear = {
    .name = "linear",
    .saved = saved,
    .cost = cost,
    .packed = packed_floats,
    .pack = pack,
    .prepare = prepare,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .bound = bound,
};
