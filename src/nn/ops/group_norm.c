/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group norm, then a residual and relu if asked for. Statistics are of one sample each.
 */
#include "../nn.h"

static int channels_of(const struct pp_node *n)
{
    return pp_shape_channels(&n->out);
}

static int pixels_of(const struct pp_node *n)
{
    return (int)pp_shape_floats(&n->out) / channels_of(n);
}

static void find_workspace(const struct pp_node *n, const struct pp_backend_choice *choice,
                           int rows, struct pp_workspace *w)
{
    w->keep = 2 * (size_t)rows * (size_t)n->norm.groups;
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_group_norm_forward(
        be, &(struct pp_group_norm_forward){.B = at->pass->rows,
                                            .P = pixels_of(n),
                                            .C = channels_of(n),
                                            .G = n->norm.groups,
                                            .eps = n->norm.eps,
                                            .x = at->x[0],
                                            .gamma = at->params,
                                            .beta = at->params + channels_of(n),
                                            .residual = n->n_x > 1 ? at->x[1] : NULL,
                                            .relu = n->activation == PP_ACT_RELU,
                                            .keep = at->keep,
                                            .y = at->y});
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_group_norm_backward_input(
        be, &(struct pp_group_norm_backward_input){.B = at->pass->rows,
                                                   .P = pixels_of(n),
                                                   .C = channels_of(n),
                                                   .G = n->norm.groups,
                                                   .x = at->x[0],
                                                   .gamma = at->params,
                                                   .keep = at->keep,
                                                   .y = n->activation ? at->y : NULL,
                                                   .dy = at->dy,
                                                   .add = at->add[0],
                                                   .add_residual = at->add[1],
                                                   .dx = at->dx[0],
                                                   .d_residual = at->dx[1]});
}

static int backward_weight(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads)
{
    for (int i = 0; i < n_parts; i++) {
        PP_TRY(pp_backend_group_norm_backward_weight(
            be, &(struct pp_group_norm_backward_weight){.B = parts[i].B,
                                                        .P = pixels_of(n),
                                                        .C = channels_of(n),
                                                        .G = n->norm.groups,
                                                        .x = parts[i].x,
                                                        .keep = parts[i].keep,
                                                        .dz = parts[i].dz,
                                                        .beta = i > 0 ? 1 : beta,
                                                        .dgamma = grads,
                                                        .dbeta = grads + channels_of(n)}));
    }
    return 0;
}

const struct pp_node_op op_group_norm = {
    .name = "group norm",
    .kernels = PP_USES(group_norm_forward) | PP_USES(group_norm_backward_input) |
               PP_USES(group_norm_backward_weight),
    .workspace = find_workspace,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
};

int group_norm(struct builder *b, const char *name, int x, int residual, int groups, float eps,
               bool relu)
{
    pp_assert(b->rc < 0 || x != residual);
    struct pp_node *n = add_node(b, &op_group_norm, name, x, residual, *shape_of(b, x));
    if (!n)
        return 0;
    int y = n->y, C = channels_of(n);
    n->norm.eps = eps;
    n->norm.groups = groups;
    n->activation = relu ? PP_ACT_RELU : PP_ACT_NONE;
    n->reads = PP_READS_X_IN_I | PP_READS_X_IN_W | PP_READS_DY_IN_W | (relu ? PP_READS_Y_IN_I : 0);
    struct pp_param *weight = add_param(b, "weight", PP_PARAM_PLAIN, 1, &C);
    if (weight)
        weight->a = 1;
    add_param(b, "bias", PP_PARAM_PLAIN, 1, &C);
    if (C % groups)
        return refuse(b, "%s: %d groups do not divide %d channels", b->name, groups, C);
    return y;
}
