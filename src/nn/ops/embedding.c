/* SPDX-License-Identifier: Apache-2.0 */
/* Maps tokens to rows of a table, plus a row for the position if asked for. Tokens have no
 * gradient. */

#include "../nn.h"

static int channels_of(const struct pp_node *n)
{
    return pp_shape_channels(&n->out);
}

/* Returns the table of positions, which follows the table of tokens; NULL if there is none. */
static const float *position_table(const struct pp_node *n, const float *params)
{
    size_t tokens = (size_t)n->embedding.vocabulary * (size_t)channels_of(n);
    return n->n_params > 1 ? params + tokens : NULL;
}

/* Tokens that are computed have the type of values, and bfloat16 tells only 256 apart. */
static int prepare(const struct pp_node *n, struct pp_backend *be, int rows, const float *params,
                   const float *packed, float *grads)
{
    bool exact = n->x[0] == 0 || pp_backend_value_bytes(&be->choice) == sizeof(float);
    return exact ? 0
                 : pp_fail(PP_ECONFIG, "run.precision: an embedding of tokens that the model "
                                       "computes needs f32");
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_embedding_forward(
        be, &(struct pp_embedding_forward){.B = n->cached > 0 ? 1 : at->pass->rows,
                                           .T = n->cached > 0 ? at->pass->rows : n->positions,
                                           .V = n->embedding.vocabulary,
                                           .C = channels_of(n),
                                           .first = at->pass->position,
                                           .x = at->x[0],
                                           .W = at->params,
                                           .P = position_table(n, at->params),
                                           .y = at->y});
}

static int backward_weight(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads)
{
    for (int i = 0; i < n_parts; i++) {
        PP_TRY(pp_backend_embedding_backward_weight(
            be, &(struct pp_embedding_backward_weight){.B = parts[i].B / n->positions,
                                                       .T = n->positions,
                                                       .V = n->embedding.vocabulary,
                                                       .C = channels_of(n),
                                                       .x = parts[i].x,
                                                       .dy = parts[i].dz,
                                                       .beta = i > 0 ? 1 : beta,
                                                       .dW = grads,
                                                       .dP = (float *)position_table(n, grads),
                                                       .padding = n->embedding.padding}));
    }
    return 0;
}

/* Returns a bound of the gradients. A gradient is at most the sum of dz over all rows and
 * positions, so at most their number times the largest |dz|; the bound is doubled to allow for
 * rounding. */
static double bound(const struct pp_node *n, int rows, float x, float dz)
{
    return 2.0 * rows * n->positions * (double)dz;
}

const struct pp_node_op op_embedding = {
    .name = "embedding",
    .kernels = PP_USES(embedding_forward) | PP_USES(embedding_backward_weight),
    .bound = bound,
    .prepare = prepare,
    .forward = forward,
    .backward_weight = backward_weight,
};

static void add_table(struct builder *b, const char *name, int rows, int columns)
{
    char suffix[PP_LAYER_NAME_MAX];
    snprintf(suffix, sizeof(suffix), "%s.weight", name);
    struct pp_param *p = add_param(b, suffix, PP_PARAM_DECAYED, 2, (const int[]){rows, columns});
    if (p) {
        p->init = PP_INIT_NORMAL; /* as torch.nn.Embedding */
        p->b = 1;
    }
}

int embedding(struct builder *b, const char *name, int x, int vocabulary, int channels_out,
              const char *tokens, const char *positions)
{
    const struct pp_shape from = *shape_of(b, x);
    pp_assert(b->rc < 0 || from.n == 1);
    b->m->tokens = b->m->tokens || x == 0;
    int T = from.dims[0];
    struct pp_node *n =
        add_node(b, &op_embedding, name, x, -1, (struct pp_shape){2, {T, channels_out, 1}});
    if (!n)
        return 0;
    n->embedding.vocabulary = vocabulary;
    n->positions = T;
    n->reads = PP_READS_X_IN_W | PP_READS_DY_IN_W;
    int y = n->y;
    add_table(b, tokens, vocabulary, channels_out);
    if (positions)
        add_table(b, positions, b->cached > 0 ? b->cached : T, channels_out);
    return vocabulary <= 1 << 24 ? y
                                 : refuse(b, "%s: %d tokens: at most %d can be told apart", b->name,
                                          vocabulary, 1 << 24);
}
