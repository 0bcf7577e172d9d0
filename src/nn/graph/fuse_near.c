/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins neighbours that one of ppcli's ops computes at once: an activation after a product, sums and
 * relu after a norm, the tables of tokens and of positions. The last of the neighbours becomes the
 * joined node, so that all inputs come before it.
 */
#include <string.h>

#include "fuse.h"

/* Returns the node of input k if only this node reads it and it is in the same layer; else NULL. */
static struct graph_node *only_reader_of(struct graph *g, const struct graph_node *n, int k)
{
    struct graph_node *from = &g->nodes[n->in[k]];
    bool mine = from->readers == 1 && from->layer == n->layer && n->in[k] != g->output &&
                from->kind != GRAPH_INPUT;
    return mine ? from : NULL;
}

/* Makes node *n what `from` is, with the inputs of `from`, and removes `from`. */
static int take_over(struct graph_node *n, struct graph_node *from)
{
    int *in = pp_alloc((size_t)from->n_in + 1, sizeof(*in));
    if (!in)
        return PP_ERESOURCE;
    memcpy(in, from->in, (size_t)from->n_in * sizeof(*in));
    struct graph_node joined = *from;
    joined.in = in;
    joined.readers = n->readers;
    joined.layer = n->layer;
    joined.rows = n->rows;
    pp_free(n->in);
    graph_drop_pieces(n);
    *n = joined;
    from->dead = true;
    from->pieces = NULL;
    from->n_pieces = 0;
    return 0;
}

static bool takes_activation(const struct graph_node *n, enum pp_activation act)
{
    bool relu = act == PP_ACT_RELU;
    switch (n->kind) {
    case GRAPH_LINEAR:
        return n->activation == PP_ACT_NONE;
    case GRAPH_CONV:
    case GRAPH_ADD:
    case GRAPH_BATCH_NORM:
    case GRAPH_GROUP_NORM:
        return relu && n->activation == PP_ACT_NONE;
    default:
        return false;
    }
}

/* Joins an activation with what computes its input. */
static int join_activation(struct graph *g, struct graph_node *n)
{
    enum pp_activation act = n->activation;
    struct graph_node *from = only_reader_of(g, n, 0);
    if (!from || !takes_activation(from, act))
        return 0;
    PP_TRY(take_over(n, from));
    n->activation = act;
    return 0;
}

/* Joins a sum with a norm that computes one of its terms: the other one is its residual. */
static int join_residual(struct graph *g, struct graph_node *n)
{
    for (int k = 0; k < 2; k++) {
        struct graph_node *from = only_reader_of(g, n, k);
        int other = n->in[1 - k];
        enum pp_activation act = n->activation;
        if (!from || (from->kind != GRAPH_BATCH_NORM && from->kind != GRAPH_GROUP_NORM) ||
            from->n_in != 1 || from->activation != PP_ACT_NONE || !g->nodes[other].rows ||
            from->in[0] == other) /* the op reads two values */
            continue;
        PP_TRY(take_over(n, from));
        n->in[n->n_in++] = other;
        n->activation = act;
        return 0;
    }
    return 0;
}

/* Returns the weight whose rows 0, 1, .. a node copies, one for each position; -1: it does something
 * else. */
static int find_position_table(const struct graph *g, const struct graph_node *n)
{
    const struct expr_piece *p = n->kind == GRAPH_EXPR && n->n_pieces == 1 ? n->pieces : NULL;
    if (n->kind == GRAPH_WEIGHT)
        return n->weights[0];
    if (!p || n->n_in != 1 || p->n_operands != 1 || p->n_steps != 1 ||
        g->nodes[n->in[0]].kind != GRAPH_WEIGHT)
        return -1;
    int64_t dense = 1;
    const struct expr_operand *o = &p->operands[0];
    for (int k = p->n_axes - 1; k >= 0; k--) {
        if (o->stride[k] != dense || p->result.stride[k] != dense)
            return -1;
        dense *= p->size[k];
    }
    if (o->table_axis >= 0) {
        for (int i = 0; i < g->table_sizes[o->table] && i < p->size[o->table_axis]; i++)
            if (g->tables[o->table][i] != i)
                return -1;
    }
    return o->offset == 0 && p->result.offset == 0 ? g->nodes[n->in[0]].weights[0] : -1;
}

/* Joins the sum of rows of a table of tokens and of one of positions. */
static int join_positions(struct graph *g, struct graph_node *n)
{
    for (int k = 0; k < n->n_in && n->n_in == 2; k++) {
        struct graph_node *tokens = only_reader_of(g, n, k), *other = &g->nodes[n->in[1 - k]];
        int table = find_position_table(g, other);
        if (!tokens || tokens->kind != GRAPH_EMBEDDING || table < 0 ||
            (tokens->n_weights > 1 && tokens->weights[1] >= 0) || other->readers != 1 ||
            pp_shape_floats(&other->shape) != pp_shape_floats(&n->shape))
            continue;
        const struct pt_weight *w = &g->program->weights[table];
        if (w->n_dims != 2 || w->dims[1] != tokens->channels)
            continue;
        PP_TRY(take_over(n, tokens));
        n->weights[1] = table;
        n->n_weights = 2;
        other->dead = true;
        return 0;
    }
    return 0;
}

/* Returns whether the node adds its two inputs element by element, in the order of memory. */
static bool is_plain_sum(const struct graph *g, const struct graph_node *n)
{
    if (n->kind == GRAPH_ADD)
        return n->activation == PP_ACT_NONE;
    const struct expr_piece *p = n->kind == GRAPH_EXPR && n->n_pieces == 1 ? n->pieces : NULL;
    return p && n->n_in == 2 && p->n_axes == 1 && p->n_operands == 2 && p->n_steps == 3 &&
           p->steps[2].code == PP_EXPR_ADD && p->operands[0].stride[0] == 1 &&
           p->operands[1].stride[0] == 1 && p->operands[0].table_axis < 0 &&
           p->operands[1].table_axis < 0 && p->size[0] == graph_floats(g, n->in[0]) &&
           p->size[0] == graph_floats(g, n->in[1]);
}

int fuse_neighbours(struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct graph_node *n = &g->nodes[i];
        if (n->dead)
            continue;
        if (n->kind == GRAPH_ADD)
            PP_TRY(join_residual(g, n));
        if (is_plain_sum(g, n))
            PP_TRY(join_positions(g, n));
        if (n->kind == GRAPH_ACTIVATE)
            PP_TRY(join_activation(g, n));
    }
    return 0;
}
