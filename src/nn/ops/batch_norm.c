/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm, then a residual and relu if asked for. It normalizes by the micro-batch, so the
 * result of a step depends on their number. Parameters: weight, bias, running_mean, running_var,
 * num_batches_tracked; the gradients of the last three are the sums over the step's micro-batches.
 * I also computes the gradients of weight and bias; W only adds them.
 */
#include "../nn.h"

static size_t channels_of(const struct pp_node *n)
{
    return (size_t)pp_shape_channels(&n->out);
}

static int pixels_of(const struct pp_node *n)
{
    return (int)(pp_shape_floats(&n->out) / channels_of(n));
}

static void find_workspace(const struct pp_node *n, const struct pp_backend_choice *choice,
                           int rows, struct pp_workspace *w)
{
    w->keep = 2 * channels_of(n);
    w->grad_keep = 2 * channels_of(n);
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    size_t C = channels_of(n);
    bool running = !at->pass->training;
    return pp_backend_batch_norm_forward(
        be, &(struct pp_batch_norm_forward){.B = at->pass->rows,
                                            .P = pixels_of(n),
                                            .C = (int)C,
                                            .eps = n->norm.eps,
                                            .x = at->x[0],
                                            .gamma = at->params,
                                            .beta = at->params + C,
                                            .residual = n->n_x > 1 ? at->x[1] : NULL,
                                            .relu = n->activation == PP_ACT_RELU,
                                            .running_mean = running ? at->params + 2 * C : NULL,
                                            .running_var = running ? at->params + 3 * C : NULL,
                                            .keep = at->keep,
                                            .y = at->y});
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_batch_norm_backward_input(
        be, &(struct pp_batch_norm_backward_input){.B = at->pass->rows,
                                                   .P = pixels_of(n),
                                                   .C = (int)channels_of(n),
                                                   .x = at->x[0],
                                                   .gamma = at->params,
                                                   .keep = at->keep,
                                                   .y = n->activation ? at->y : NULL,
                                                   .dy = at->dy,
                                                   .sums = at->grad_keep,
                                                   .add = at->add[0],
                                                   .add_residual = at->add[1],
                                                   .dx = at->dx[0],
                                                   .d_residual = at->dx[1]});
}

/* Adds the statistics of micro-batches and, if the node trains, the gradients of weight and bias. */
static int add_sums(const struct pp_node *n, struct pp_backend *be, int n_parts,
                    const struct pp_weight_part *parts, float beta, float *grads)
{
    size_t C = channels_of(n);
    for (int i = 0; i < n_parts; i++) {
        PP_TRY(pp_backend_batch_norm_backward_weight(
            be,
            &(struct pp_batch_norm_backward_weight){.B = parts[i].B,
                                                    .P = pixels_of(n),
                                                    .C = (int)C,
                                                    .eps = n->norm.eps,
                                                    .keep = parts[i].keep,
                                                    .sums = n->trains ? parts[i].grad_keep : NULL,
                                                    .beta = i > 0 ? 1 : beta,
                                                    .dgamma = grads,
                                                    .dbeta = grads + C,
                                                    .stat_mean = grads + 2 * C,
                                                    .stat_squares = grads + 3 * C,
                                                    .stat_n = grads + 4 * C}));
    }
    return 0;
}

static int backward_weight(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads)
{
    return add_sums(n, be, n_parts, parts, beta, grads);
}

static size_t count_merge_floats(const struct pp_node *n)
{
    return channels_of(n) + 1;
}

/* Does one step (`what`) of merging the statistics of replicas. Means and counts are added as they
 * are. Squared distances are those from one replica's own mean; PP_MERGE_COMPARE computes what they
 * lack because that mean is not the mean of all replicas, and PP_MERGE_ADD adds it. */
static int merge(const struct pp_node *n, struct pp_backend *be, enum pp_merging what, float *grads,
                 float *own)
{
    size_t C = channels_of(n);
    float *mean = grads + 2 * C, *squares = mean + C, *count = squares + C;
    if (what == PP_MERGE_ADD)
        return pp_backend_add(be, C, own, squares);
    if (what == PP_MERGE_COMPARE)
        return pp_backend_batch_norm_spread(
            be, &(struct pp_batch_norm_spread){(int)C, mean, count, own});
    PP_TRY(pp_backend_copy(be, own, mean, C * sizeof(*own)));
    return pp_backend_copy(be, own + C, count, sizeof(*own));
}

static int commit(const struct pp_node *n, struct pp_backend *be,
                  const struct pp_optimizer_args *args, const float *grads, float *params)
{
    size_t C = channels_of(n);
    return pp_backend_batch_norm_commit(
        be, &(struct pp_batch_norm_commit){(int)C, n->norm.momentum, &args->skip, grads + 2 * C,
                                           grads + 3 * C, grads + 4 * C, params + 2 * C,
                                           params + 3 * C, params + 4 * C});
}

/* No bound: a network of convolutions has fewer gradients to read than values to measure. */
const struct pp_node_op op_batch_norm = {
    .name = "batch norm",
    .kernels = PP_USES(batch_norm_forward) | PP_USES(batch_norm_backward_input) |
               PP_USES(batch_norm_backward_weight) | PP_USES(batch_norm_spread) |
               PP_USES(batch_norm_commit),
    .workspace = find_workspace,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .gather = add_sums,
    .merge_floats = count_merge_floats,
    .merge = merge,
    .commit = commit,
};

int batch_norm(struct builder *b, const char *name, int x, int residual, float eps, float momentum,
               bool relu)
{
    static const struct {
        const char *suffix;
        enum pp_param_kind kind;
        float value;
    } params[] = {{"weight", PP_PARAM_PLAIN, 1},
                  {"bias", PP_PARAM_PLAIN, 0},
                  {"running_mean", PP_PARAM_BUFFER, 0},
                  {"running_var", PP_PARAM_BUFFER, 1},
                  {"num_batches_tracked", PP_PARAM_BUFFER, 0}};
    pp_assert(b->rc < 0 || x != residual);
    struct pp_node *n = add_node(b, &op_batch_norm, name, x, residual, *shape_of(b, x));
    if (!n)
        return 0;
    n->norm.eps = eps;
    n->norm.momentum = momentum;
    n->activation = relu ? PP_ACT_RELU : PP_ACT_NONE;
    n->norm.least_rows = pixels_of(n) > 1 ? 1 : 2; /* one value per channel has no variance */
    n->reads = PP_READS_X_IN_I | (relu ? PP_READS_Y_IN_I : 0);
    int y = n->y, C = (int)channels_of(n);
    for (int i = 0; i < 5; i++) {
        struct pp_param *p =
            add_param(b, params[i].suffix, params[i].kind, 1, i < 4 ? &C : (int[]){1});
        if (p)
            p->a = params[i].value;
    }
    return y;
}
