/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls the builder for each node of a graph, layer by layer. A value that no sample changes
 * (weights and constants as operands, and what is computed of them alone) is made in each layer that
 * reads it, so that one value crosses from layer to layer.
 */
#include <stdio.h>
#include <string.h>

#include "../model.h"
#include "../nn.h"
#include "../expr.h"
#include "graph.h"
#include "ppcli/base/base.h"

struct emitter {
    const struct graph *g;
    const struct pt_program *p;
    const struct graph_initial *initial;
    struct builder *b;
    int layer;
    int *values;  /* [nodes] of the model; -1: not made */
    int *layers;  /* [nodes] layer in which a node that no sample changes was made last */
    int *holders; /* [weights] first parameter with this storage; -1: none */
};

/* ---- values */

/* Returns the value of the model for input k of a node, with this shape. */
static int input_of(struct emitter *e, const struct graph_node *n, int k, struct pp_shape shape)
{
    int x = e->values[n->in[k]];
    if (e->b->rc < 0)
        return 0;
    pp_assert(pp_shape_floats(&e->b->m->values[x]) == pp_shape_floats(&shape));
    e->b->m->values[x] = shape; /* ops look at shapes; memory is the same */
    return x;
}

/* Returns the shape of rows of channels. */
static struct pp_shape rows_shape(int positions, int64_t channels)
{
    return positions == 1 ? pp_shape_flat((int)channels)
                          : (struct pp_shape){2, {positions, (int)channels, 1}};
}

static struct pp_shape like_rows(const struct graph_node *n)
{
    return rows_shape(n->positions, (int64_t)pp_shape_floats(&n->shape) / n->positions);
}

/* ---- parameters */

/* Returns whether two parameters have their floats in the same order. */
static bool same_order(const struct pp_param *a, const struct pp_param *b)
{
    return a->transposed == b->transposed && (a->n_dims == 4) == (b->n_dims == 4) &&
           memcmp(&a->columns, &b->columns, sizeof(a->columns)) == 0;
}

/* Returns the first weight of the archive with the same values. */
static int root_of(const struct emitter *e, int weight)
{
    while (e->p->weights[weight].same_as >= 0)
        weight = e->p->weights[weight].same_as;
    return weight;
}

/* Makes a parameter the weight w of the archive: its name, shape, values, and whether it learns. */
static void set_param(struct emitter *e, int param, int weight)
{
    struct pp_param *p = &e->b->m->params[param];
    const struct pt_weight *w = &e->p->weights[weight];
    if (strlen(w->name) >= sizeof(p->name)) {
        refuse(e->b, "%s: a name of more than %zu bytes: %s", e->p->file, sizeof(p->name) - 1,
               w->name);
        return;
    }
    snprintf(p->name, sizeof(p->name), "%s", w->name);
    if (p->kind != PP_PARAM_BUFFER && !w->requires_grad)
        p->kind = PP_PARAM_FROZEN;
    if (w->bytes > 0) {
        p->init = PP_INIT_GIVEN;
        p->given = &e->initial[weight].given;
    }
    bool in_order = !p->transposed && p->n_dims != 4 && p->columns.n == 0;
    bool same = w->n_dims == p->n_dims;
    for (int d = 0; d < w->n_dims && same && in_order; d++)
        same = w->dims[d] == p->dims[d];
    if (!same && !in_order) {
        refuse(e->b, "%s: %s is used as a matrix whose order in memory is another one than its own",
               e->p->file, w->name);
        return;
    }
    if (!same && !pp_param_is_count(p)) {
        p->reshaped = true;
        p->n_file_dims = w->n_dims;
        for (int d = 0; d < w->n_dims; d++)
            p->file_dims[d] = (int)w->dims[d];
    }
    double floats = 1;
    for (int d = 0; d < w->n_dims; d++)
        floats *= (double)w->dims[d];
    if (floats < (double)pp_param_floats(p) || floats > (double)pp_param_floats(p)) {
        refuse(e->b, "%s: %s has %.0f numbers, and its operator needs %zu", e->p->file, w->name,
               floats, pp_param_floats(p));
        return;
    }
    int root = root_of(e, weight);
    int owner = e->holders[root];
    e->holders[root] = owner < 0 ? param : owner;
    if (owner < 0)
        return;
    const struct pp_param *first = &e->b->m->params[owner];
    if (p->kind == PP_PARAM_BUFFER || first->kind == PP_PARAM_BUFFER)
        refuse(e->b,
               "%s: the running statistics %s belong to two batch norms, or to one that is "
               "used twice",
               e->p->file, w->name);
    else if (!same_order(first, p))
        refuse(e->b, "%s: %s is used in two ways that need another order in memory", e->p->file,
               w->name);
    else
        pp_model_tie(e->b->m, owner, param);
}

/* Gives the parameters of the last node the weights of n, in their order. */
static void set_params(struct emitter *e, const struct graph_node *n)
{
    if (e->b->rc < 0)
        return;
    const struct pp_node *node = &e->b->m->nodes[e->b->m->n_nodes - 1];
    int first = node->first_param, k = 0;
    for (int i = 0; i < n->n_weights && e->b->rc == 0; i++) {
        if (n->weights[i] >= 0) {
            pp_assert(k < node->n_params);
            set_param(e, first + k, n->weights[i]);
        }
        k += n->weights[i] >= 0 || n->kind == GRAPH_BATCH_NORM;
    }
}

/* Returns a parameter of the last node; NULL after a failure. */
static struct pp_param *param_of_last(struct emitter *e, int k)
{
    const struct pp_model *m = e->b->m;
    return e->b->rc < 0 ? NULL : &m->params[m->nodes[m->n_nodes - 1].first_param + k];
}

/* ---- nodes, by kind; `name` is the module's */

static int emit_linear(struct emitter *e, const struct graph_node *n, const char *name)
{
    int64_t in = graph_floats(e->g, n->in[0]) / n->positions;
    int x = input_of(e, n, 0, rows_shape(n->positions, in));
    const struct linear_piece piece = {"weight", n->bias ? "bias" : NULL, n->channels};
    if (n->channels < n->all)
        return linear_rows(e->b, name, x, n->first, n->channels, n->all, n->bias, n->activation);
    int y = linear_pieces(e->b, name, x, 1, &piece, n->activation);
    struct pp_param *w = param_of_last(e, 0);
    if (w) {
        w->transposed = n->transposed;
        w->columns = n->columns;
    }
    return y;
}

static int emit_pieces(struct emitter *e, const struct graph_node *n, const char *name)
{
    struct linear_piece pieces[8];
    int64_t in = graph_floats(e->g, n->in[0]) / n->positions;
    int x = input_of(e, n, 0, rows_shape(n->positions, in));
    int count = n->bias ? n->n_weights / 2 : n->n_weights;
    for (int i = 0; i < count; i++)
        pieces[i] = (struct linear_piece){"weight", n->bias ? "bias" : NULL, n->piece[i]};
    int y = linear_pieces(e->b, name, x, count, pieces, n->activation);
    for (int i = 0; i < count && e->b->rc == 0; i++)
        param_of_last(e, i)->transposed = n->transposed;
    return y;
}

static int emit_conv(struct emitter *e, const struct graph_node *n, const char *name)
{
    const struct window w = {n->window.kernel, n->window.stride, n->window.pad, n->window.groups,
                             false};
    int x = input_of(e, n, 0, n->window.image);
    return conv2d(e->b, name, x, n->channels, &w, n->bias, n->activation == PP_ACT_RELU);
}

static int emit_batch_norm(struct emitter *e, const struct graph_node *n, const char *name)
{
    int x = input_of(e, n, 0, like_rows(n));
    int residual = n->n_in > 1 ? input_of(e, n, 1, like_rows(n)) : -1;
    return batch_norm(e->b, name, x, residual, n->eps, n->momentum, n->activation == PP_ACT_RELU);
}

static int emit_group_norm(struct emitter *e, const struct graph_node *n, const char *name)
{
    int x = input_of(e, n, 0, like_rows(n));
    int residual = n->n_in > 1 ? input_of(e, n, 1, like_rows(n)) : -1;
    return group_norm(e->b, name, x, residual, n->groups, n->eps, n->activation == PP_ACT_RELU);
}

static int emit_layer_norm(struct emitter *e, const struct graph_node *n, const char *name)
{
    return layer_norm(e->b, name, input_of(e, n, 0, like_rows(n)), n->eps, n->bias);
}

static int emit_rms_norm(struct emitter *e, const struct graph_node *n, const char *name)
{
    return rms_norm(e->b, name, input_of(e, n, 0, like_rows(n)), n->eps);
}

static int emit_embedding(struct emitter *e, const struct graph_node *n, const char *name)
{
    const struct pt_weight *w = &e->p->weights[n->weights[0]];
    int x = input_of(e, n, 0, pp_shape_flat(n->positions)), rows = (int)w->dims[0];
    if (x == 0 && e->b->vocabulary > rows)
        return refuse(e->b, "%s: %s has %d rows, and the data have %d different tokens", e->p->file,
                      w->name, rows, e->b->vocabulary);
    int y = embedding(e->b, name, x, rows, n->channels, "tokens",
                      n->weights[1] >= 0 ? "positions" : NULL);
    if (e->b->rc == 0)
        e->b->m->nodes[e->b->m->n_nodes - 1].embedding.padding = n->padding + 1;
    return y;
}

static int emit_rotary(struct emitter *e, const struct graph_node *n, const char *name)
{
    return rotary(e->b, name, input_of(e, n, 0, like_rows(n)), n->rotary.heads, n->rotary.width,
                  n->rotary.base, &(struct pp_rope_scaling){.factor = 0});
}

static int emit_gated(struct emitter *e, const struct graph_node *n, const char *name)
{
    int64_t in = graph_floats(e->g, n->in[0]) / n->positions;
    return gated(e->b, name, input_of(e, n, 0, rows_shape(n->positions, in)));
}

static int emit_max_pool(struct emitter *e, const struct graph_node *n, const char *name)
{
    const struct window w = {n->window.kernel, n->window.stride, n->window.pad, 1, n->window.ceil};
    return max_pool(e->b, name, input_of(e, n, 0, n->window.image), &w);
}

static int emit_avg_pool(struct emitter *e, const struct graph_node *n, const char *name)
{
    const struct window w = {n->window.kernel, n->window.stride, n->window.pad, 1, false};
    int x = input_of(e, n, 0, n->window.image);
    if (n->window.all)
        return global_avg_pool(e->b, name, x);
    int y = avg_pool(e->b, name, x, &w);
    if (e->b->rc == 0)
        e->b->m->nodes[e->b->m->n_nodes - 1].window.count_padding = n->window.count_padding;
    return y;
}

static int emit_dropout(struct emitter *e, const struct graph_node *n, const char *name)
{
    return dropout(e->b, name, input_of(e, n, 0, n->shape), n->p);
}

static int emit_activate(struct emitter *e, const struct graph_node *n, const char *name)
{
    return activate(e->b, name, input_of(e, n, 0, n->shape), n->activation);
}

static int emit_add(struct emitter *e, const struct graph_node *n, const char *name)
{
    int x = input_of(e, n, 0, n->shape), other = input_of(e, n, 1, n->shape);
    return add(e->b, name, x, other, n->activation == PP_ACT_RELU);
}

static int emit_constant(struct emitter *e, const struct graph_node *n, const char *name)
{
    return source_constant(e->b, name, n->table, n->shape);
}

static int emit_weight(struct emitter *e, const struct graph_node *n, const char *name)
{
    bool matrix = e->p->weights[n->weights[0]].n_dims > 1;
    return source_param(e->b, name, matrix ? PP_PARAM_DECAYED : PP_PARAM_PLAIN, n->shape);
}

static int emit_expr(struct emitter *e, const struct graph_node *n, const char *name)
{
    int x[PP_NODE_INPUTS];
    for (int k = 0; k < n->n_in; k++)
        x[k] = input_of(e, n, k, e->g->nodes[n->in[k]].shape);
    int y = expr(e->b, name, n->n_in, x, n->n_pieces, n->pieces,
                 (const int32_t *const *)e->g->tables, n->shape, n->fill);
    if (n->rows && e->b->rc == 0) /* a copy for each sample, of what is the same for all */
        e->b->m->nodes[e->b->m->n_nodes - 1].one_row = false;
    return y;
}

static int emit_softmax(struct emitter *e, const struct graph_node *n, const char *name)
{
    int x = input_of(e, n, 0, n->shape);
    return softmax(e->b, name, x, n->outer, n->n, n->inner, n->log);
}

static struct pp_heads_at place_of(const struct graph_heads *h)
{
    return (struct pp_heads_at){(int)h->offset, (int)h->position, (int)h->head, 0};
}

static int emit_attention(struct emitter *e, const struct graph_node *n, const char *name)
{
    const struct graph_attention *a = &n->attention;
    int x[4] = {-1, -1, -1, -1};
    const struct attention_view view = {.heads = {.q = a->heads,
                                                  .kv = a->kv_heads,
                                                  .width = a->width,
                                                  .causal = a->causal,
                                                  .batch_first = !a->of_samples,
                                                  .dropout = a->dropout},
                                        .queries = a->queries,
                                        .keys = a->keys,
                                        .scale = a->scale,
                                        .q = place_of(&a->q),
                                        .k = place_of(&a->k),
                                        .v = place_of(&a->v),
                                        .mask = {(int)a->mask.offset, (int)a->mask.query,
                                                 (int)a->mask.head, (int)a->mask.position}};
    for (int k = 0; k < n->n_in; k++)
        x[k] = input_of(e, n, k, e->g->nodes[n->in[k]].shape);
    return attention_of(e->b, name, x[0], x[1], x[2], x[3], &view);
}

/* A node without a row here cannot be built. */
static int (*const emitters[])(struct emitter *e, const struct graph_node *n, const char *name) = {
    [GRAPH_LINEAR] = emit_linear,
    [GRAPH_PIECES] = emit_pieces,
    [GRAPH_CONV] = emit_conv,
    [GRAPH_BATCH_NORM] = emit_batch_norm,
    [GRAPH_GROUP_NORM] = emit_group_norm,
    [GRAPH_LAYER_NORM] = emit_layer_norm,
    [GRAPH_RMS_NORM] = emit_rms_norm,
    [GRAPH_EMBEDDING] = emit_embedding,
    [GRAPH_ROTARY] = emit_rotary,
    [GRAPH_GATED] = emit_gated,
    [GRAPH_MAX_POOL] = emit_max_pool,
    [GRAPH_AVG_POOL] = emit_avg_pool,
    [GRAPH_DROPOUT] = emit_dropout,
    [GRAPH_ACTIVATE] = emit_activate,
    [GRAPH_ADD] = emit_add,
    [GRAPH_CONSTANT] = emit_constant,
    [GRAPH_WEIGHT] = emit_weight,
    [GRAPH_EXPR] = emit_expr,
    [GRAPH_SOFTMAX] = emit_softmax,
    [GRAPH_ATTENTION] = emit_attention,
};

/* Returns whether an operator draws random numbers. */
static bool is_random(const struct pt_node *n)
{
    static const char dropout_word[] = "aten.dropout";
    return strncmp(n->target, dropout_word, sizeof(dropout_word) - 1) == 0 ||
           pt_arg_find(n, "dropout_p");
}

/* Writes the name of a node: its module's, and a number after the module's first operator with
 * random numbers, so that each draws its own. */
static void name_node(struct emitter *e, const struct graph_node *n, char *out, size_t bytes)
{
    const struct pt_node *of = n->source >= 0 ? &e->p->nodes[n->source] : NULL;
    int before = 0;
    for (int i = 0; of && is_random(of) && i < n->source; i++)
        before += is_random(&e->p->nodes[i]) && strcmp(e->p->nodes[i].path, of->path) == 0;
    snprintf(out, bytes, before > 0 ? "%s#%d" : "%s", of ? of->path : "", before + 1);
}

/* Returns whether the node can be built from values of one row, or to one. */
static bool takes_one_row(const struct graph_node *n)
{
    return n->kind == GRAPH_EXPR || n->kind == GRAPH_SOFTMAX || n->kind == GRAPH_ATTENTION ||
           n->n_in == 0;
}

/* Returns whether the current layer can read the value of a node. */
static bool is_made(const struct emitter *e, int node)
{
    return e->values[node] >= 0 && (e->g->nodes[node].rows || e->layers[node] == e->layer);
}

/*
 * Adds a node of the graph to the current layer, after the nodes that it needs. The residual of a
 * norm comes first, as in ppcli's own models, so that gradients add up in the same order.
 */
static void emit_node(struct emitter *e, int node)
{
    const struct graph_node *n = &e->g->nodes[node];
    char name[PP_PARAM_NAME_MAX];
    bool norm = n->kind == GRAPH_BATCH_NORM || n->kind == GRAPH_GROUP_NORM;
    for (int i = 0; i < n->n_in && e->b->rc == 0; i++) {
        int k = norm ? n->n_in - 1 - i : i;
        if (!is_made(e, n->in[k]))
            emit_node(e, n->in[k]);
        if (!e->g->nodes[n->in[k]].rows && !takes_one_row(n))
            refuse(e->b, "%s: %s: an operator over values that no sample changes", e->p->file,
                   n->source >= 0 ? e->p->nodes[n->source].path : "");
    }
    if (e->b->rc < 0)
        return;
    name_node(e, n, name, sizeof(name));
    size_t known = sizeof(emitters) / sizeof(emitters[0]);
    if ((size_t)n->kind >= known || !emitters[n->kind]) {
        refuse(e->b, "%s: %s: an operator that cannot be computed yet (kind %d)", e->p->file, name,
               (int)n->kind);
        return;
    }
    int y = emitters[n->kind](e, n, name);
    set_params(e, n);
    e->values[node] = y;
    e->layers[node] = e->layer;
    if (e->b->rc == 0 && pp_shape_floats(shape_of(e->b, y)) != pp_shape_floats(&n->shape))
        refuse(e->b, "%s: %s: its result has another size than the archive says", e->p->file, name);
}

/* Adds the nodes of a layer, which come before node `end`: what its last one needs. */
static void emit_layer(struct emitter *e, const struct graph_layer *l, int end)
{
    layer(e->b, "%s", l->name);
    e->b->prefix[0] = '\0';
    int last = end - 1;
    while (last > l->first && (!e->g->nodes[last].rows || e->g->nodes[last].dead))
        last--;
    emit_node(e, last);
    e->layer++;
}

static void fini_emitter(struct emitter *e)
{
    pp_free(e->values);
    pp_free(e->layers);
    pp_free(e->holders);
}

static int init_emitter(struct emitter *e)
{
    e->values = pp_alloc((size_t)e->g->n_nodes, sizeof(*e->values));
    e->layers = pp_alloc((size_t)e->g->n_nodes, sizeof(*e->layers));
    e->holders = pp_alloc((size_t)e->p->n_weights, sizeof(*e->holders));
    if (!e->values || !e->layers || !e->holders)
        return PP_ERESOURCE;
    for (int i = 1; i < e->g->n_nodes; i++)
        e->values[i] = -1;
    for (int i = 0; i < e->p->n_weights; i++)
        e->holders[i] = -1;
    return 0;
}

/* Returns whether a dtype has whole numbers. */
static bool is_whole_type(enum pt_dtype t)
{
    return t != PT_F32 && t != PT_F64 && t != PT_F16 && t != PT_BF16;
}

/* Returns whether the data are whole numbers. */
static bool takes_tokens(const struct pt_program *p)
{
    for (int i = 0; i < p->n_inputs; i++)
        if (p->inputs[i].value >= 0)
            return is_whole_type(p->values[p->inputs[i].value].type.dtype);
    return false;
}

/* Lists the tensors of state_dict() that are no parameter's, or not under its name. */
static int list_extras(struct emitter *e)
{
    struct pp_model *m = e->b->m;
    PP_ALLOC(m->extras, e->p->n_weights);
    for (int i = 0; i < e->p->n_weights; i++) {
        const struct pt_weight *w = &e->p->weights[i];
        int owner = e->holders[root_of(e, i)];
        bool is_there = w->kind == PT_CONSTANT || !w->persistent || w->bytes == 0 ||
                        (owner >= 0 && strcmp(m->params[owner].name, w->name) == 0);
        if (is_there)
            continue;
        struct pp_extra *x = &m->extras[m->n_extras++];
        *x = (struct pp_extra){.name = w->name,
                               .param = owner,
                               .given = &e->initial[i].given,
                               .whole = is_whole_type(w->dtype),
                               .n_dims = w->n_dims};
        memcpy(x->dims, w->dims, sizeof(x->dims));
    }
    return 0;
}

/* Copies the model's last value if its own node needs it in the backward pass, when the loss has
 * overwritten it. */
static int free_output(struct emitter *e, int y)
{
    struct expr_step load = {.code = PP_EXPR_LOAD};
    struct expr_operand from = {.stride = {1}, .table_axis = -1};
    const struct expr_piece piece = {.n_axes = 1,
                                     .size = {(int64_t)pp_shape_floats(&e->b->m->values[y])},
                                     .n_operands = 1,
                                     .operands = &from,
                                     .n_steps = 1,
                                     .steps = &load,
                                     .result = from};
    bool reads = e->b->m->nodes[y - 1].reads & PP_READS_Y_IN_I;
    return reads ? expr(e->b, "", 1, &y, 1, &piece, NULL, e->b->m->values[y], 0) : y;
}

int graph_emit(const struct graph *g, const struct graph_initial *initial, struct builder *b)
{
    static const struct graph_layer whole = {.name = "model"};
    PP_OWN(fini_emitter)
    struct emitter e = {.g = g, .p = g->program, .initial = initial, .b = b};
    PP_TRY(init_emitter(&e));
    b->m->values[0] = g->nodes[0].shape;
    b->m->tokens = takes_tokens(g->program);
    for (int i = 0; i < g->n_layers; i++)
        emit_layer(&e, &g->layers[i], i + 1 < g->n_layers ? g->layers[i + 1].first : g->n_nodes);
    if (g->n_layers == 0)
        emit_layer(&e, &whole, g->n_nodes);
    PP_TRY(b->rc);
    PP_TRY(list_extras(&e));
    int y = free_output(&e, e.values[g->output]);
    PP_TRY(b->rc);
    b->m->values[0] = g->nodes[0].shape;
    b->m->values[y] = g->nodes[g->output].shape;
    return y;
}
