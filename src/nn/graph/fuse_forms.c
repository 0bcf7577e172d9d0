/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds ppcli's fast ops in what people write out by hand: gelu, RMS norm (Llama, T5, Qwen), rotary
 * positions, silu(gate) * up, and linears of one input, whose results one product can give. A form
 * must match as a whole; what does not match stays general.
 */
#include <math.h>
#include <string.h>

#include "fuse.h"

/* ---- formulas: steps of a piece as a tree of sums and products */

#define MOST_LEAVES 6

/* Returns how many factors (code MUL) or terms (ADD) a step has, and lists their steps; -1: more
 * than MOST_LEAVES. */
static int list_leaves(const struct expr_piece *p, int step, enum pp_expr_code code,
                       int out[MOST_LEAVES], int n)
{
    const struct expr_step *s = &p->steps[step];
    if (n < 0 || n == MOST_LEAVES)
        return -1;
    if (s->code != code) {
        out[n] = step;
        return n + 1;
    }
    return list_leaves(p, s->b, code, out, list_leaves(p, s->a, code, out, n));
}

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

static bool is_load(const struct expr_piece *p, int step)
{
    return p->steps[step].code == PP_EXPR_LOAD;
}

/* Takes a number near x out of a list of leaves. */
static bool take_number(const struct expr_piece *p, int *leaves, int *n, double x)
{
    for (int i = 0; i < *n; i++) {
        const struct expr_step *s = &p->steps[leaves[i]];
        if (s->code == PP_EXPR_FILL && is_near((double)s->number, x)) {
            leaves[i] = leaves[--*n];
            return true;
        }
    }
    return false;
}

/* Takes a load of operand `operand` (-1: of any) out of a list; returns the operand, or -1. */
static int take_load(const struct expr_piece *p, int *leaves, int *n, int operand)
{
    for (int i = 0; i < *n; i++) {
        if (!is_load(p, leaves[i]) || (operand >= 0 && p->steps[leaves[i]].a != operand))
            continue;
        int found = p->steps[leaves[i]].a;
        leaves[i] = leaves[--*n];
        return found;
    }
    return -1;
}

/* Takes a step with this code (and activation) out of a list; returns its operand step, or -1. */
static int take_call(const struct expr_piece *p, int *leaves, int *n, enum pp_expr_code code,
                     int which)
{
    for (int i = 0; i < *n; i++) {
        const struct expr_step *s = &p->steps[leaves[i]];
        if (s->code != code || (code == PP_EXPR_ACT && s->which != which))
            continue;
        leaves[i] = leaves[--*n];
        return s->a;
    }
    return -1;
}

/* ---- memory */

/* Returns whether an operand runs through the axes of its piece as memory lies, the first `axes` of
 * them; it repeats over the others. */
static bool is_dense(const struct expr_piece *p, const struct expr_operand *o, int axes)
{
    int64_t dense = 1;
    for (int k = p->n_axes - 1; k >= 0; k--) {
        if (o->stride[k] != (k < axes ? dense : 0))
            return false;
        dense *= k < axes ? p->size[k] : 1;
    }
    return o->offset == 0 && o->table_axis < 0;
}

/* Returns the piece of a node that has one, which writes its value as memory lies; else NULL. */
static const struct expr_piece *only_piece(const struct graph_node *n)
{
    bool one = n->kind == GRAPH_EXPR && n->n_pieces == 1 && !n->dead &&
               is_dense(n->pieces, &n->pieces[0].result, n->pieces[0].n_axes);
    return one ? n->pieces : NULL;
}

/* Makes a node another kind with one input; its pieces and weights are gone. */
static void become(struct graph_node *n, enum graph_kind kind, int input)
{
    graph_drop_pieces(n);
    n->kind = kind;
    n->n_in = 1;
    n->in[0] = input;
    n->n_weights = 0;
    n->activation = PP_ACT_NONE;
}

/* ---- gelu: x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))), or with erf(x / sqrt(2)) */

/* Returns whether a step is x + 0.044715 * x * x * x. */
static bool is_cubic(const struct expr_piece *p, int step)
{
    int terms[MOST_LEAVES], n = list_leaves(p, step, PP_EXPR_ADD, terms, 0);
    if (n != 2 || take_load(p, terms, &n, 0) < 0)
        return false;
    int factors[MOST_LEAVES], f = list_leaves(p, terms[0], PP_EXPR_MUL, factors, 0);
    if (f == 2 && take_number(p, factors, &f, 0.044715) && f == 1) {
        const struct expr_step *s = &p->steps[factors[0]];
        return s->code == PP_EXPR_POW && is_load(p, s->a) && is_near((double)s->number, 3);
    }
    return f >= 3 && take_number(p, factors, &f, 0.044715) && f == 3 &&
           take_load(p, factors, &f, 0) >= 0 && take_load(p, factors, &f, 0) >= 0 &&
           take_load(p, factors, &f, 0) >= 0;
}

/* Returns PP_ACT_GELU or PP_ACT_GELU_TANH if the piece is one of them; else PP_ACT_NONE. */
static enum pp_activation find_gelu(const struct expr_piece *p)
{
    int all[MOST_LEAVES], n = list_leaves(p, p->n_steps - 1, PP_EXPR_MUL, all, 0);
    if (n != 3 || !take_number(p, all, &n, 0.5) || take_load(p, all, &n, 0) < 0)
        return PP_ACT_NONE;
    int terms[MOST_LEAVES], t = list_leaves(p, all[0], PP_EXPR_ADD, terms, 0);
    if (t != 2 || !take_number(p, terms, &t, 1))
        return PP_ACT_NONE;
    int of_erf = take_call(p, terms, &t, PP_EXPR_ERF, 0);
    int of_tanh = of_erf >= 0 ? -1 : take_call(p, terms, &t, PP_EXPR_TANH, 0);
    if (of_erf < 0 && of_tanh < 0)
        of_tanh = take_call(p, terms, &t, PP_EXPR_ACT, PP_ACT_TANH);
    if (of_erf < 0 && of_tanh < 0)
        return PP_ACT_NONE;
    int factors[MOST_LEAVES],
        f = list_leaves(p, of_erf >= 0 ? of_erf : of_tanh, PP_EXPR_MUL, factors, 0);
    if (of_erf >= 0) {
        bool scaled = f == 2 && take_number(p, factors, &f, M_SQRT1_2);
        const struct expr_step *s = &p->steps[of_erf];
        if (s->code == PP_EXPR_DIV && is_load(p, s->a) && p->steps[s->b].code == PP_EXPR_FILL)
            return is_near((double)p->steps[s->b].number, M_SQRT2) ? PP_ACT_GELU : PP_ACT_NONE;
        return scaled && take_load(p, factors, &f, 0) >= 0 ? PP_ACT_GELU : PP_ACT_NONE;
    }
    bool gelu = f == 2 && take_number(p, factors, &f, sqrt(2 / M_PI)) && is_cubic(p, factors[0]);
    return gelu ? PP_ACT_GELU_TANH : PP_ACT_NONE;
}

static void find_activations(struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct graph_node *n = &g->nodes[i];
        const struct expr_piece *p = only_piece(n);
        if (!p || n->n_in != 1 || p->n_operands != 1 || !is_dense(p, &p->operands[0], p->n_axes) ||
            graph_floats(g, n->in[0]) != graph_floats(g, i))
            continue;
        enum pp_activation act = find_gelu(p);
        if (act == PP_ACT_NONE)
            continue;
        become(n, GRAPH_ACTIVATE, n->in[0]);
        n->activation = act;
    }
}

/* ---- RMS norm: w * (x * rsqrt(mean(x * x) + eps)) */

/* Returns the operand of x if a node is mean(x * x) of `channels` values; else NULL. */
static const struct expr_operand *find_mean_square(const struct graph_node *n, int64_t channels)
{
    const struct expr_piece *p = n->kind == GRAPH_EXPR && n->n_pieces == 1 ? n->pieces : NULL;
    if (!p || p->n_axes < 1 || p->size[p->n_axes - 1] != channels ||
        !is_dense(p, &p->result, p->n_axes - 1))
        return NULL;
    int all[MOST_LEAVES], f = list_leaves(p, p->n_steps - 1, PP_EXPR_MUL, all, 0);
    if (!take_number(p, all, &f, 1.0 / (double)channels))
        return NULL;
    if (f == 1 && p->steps[all[0]].code == PP_EXPR_POW) {
        const struct expr_step *s = &p->steps[all[0]];
        return is_near((double)s->number, 2) && is_load(p, s->a) ? &p->operands[p->steps[s->a].a]
                                                                 : NULL;
    }
    int x = f == 2 ? take_load(p, all, &f, -1) : -1;
    return x >= 0 && take_load(p, all, &f, x) == x ? &p->operands[x] : NULL;
}

/* Returns the node of mean(x * x), and *eps, if a node is rsqrt(mean + eps); else -1. */
static int find_rsqrt(const struct graph *g, int node, float *eps)
{
    const struct graph_node *n = &g->nodes[node];
    const struct expr_piece *p = only_piece(n);
    const struct expr_step *last = p ? &p->steps[p->n_steps - 1] : NULL;
    if (!p || p->n_operands != 1 || last->code != PP_EXPR_RSQRT ||
        !is_dense(p, &p->operands[0], p->n_axes))
        return -1;
    int terms[MOST_LEAVES], n_terms = list_leaves(p, last->a, PP_EXPR_ADD, terms, 0);
    if (n_terms != 2 || take_load(p, terms, &n_terms, 0) < 0 ||
        p->steps[terms[0]].code != PP_EXPR_FILL)
        return -1;
    *eps = p->steps[terms[0]].number;
    return n->in[0];
}

static void find_rms_norm(struct graph *g, int node)
{
    struct graph_node *n = &g->nodes[node];
    const struct expr_piece *p = only_piece(n);
    if (!p || p->n_operands != 3 || n->n_in != 3 || p->n_axes < 2)
        return;
    int all[MOST_LEAVES], f = list_leaves(p, p->n_steps - 1, PP_EXPR_MUL, all, 0), w = -1, r = -1,
                          x = -1;
    int64_t channels = p->size[p->n_axes - 1];
    for (int k = 0; k < 3 && f == 3; k++) {
        if (!is_load(p, all[k]))
            return;
        int o = p->steps[all[k]].a;
        const struct graph_node *from = &g->nodes[n->in[p->operands[o].input]];
        struct expr_operand over = p->operands[o];
        over.stride[p->n_axes - 1] = 0; /* without the channels */
        int64_t outer = 0;
        for (int a = 0; a < p->n_axes; a++)
            outer += over.stride[a];
        if (from->kind == GRAPH_WEIGHT && outer == 0 && p->operands[o].stride[p->n_axes - 1] == 1)
            w = o;
        else if (is_dense(p, &p->operands[o], p->n_axes - 1))
            r = o;
        else if (is_dense(p, &p->operands[o], p->n_axes))
            x = o;
    }
    if (w < 0 || r < 0 || x < 0)
        return;
    int value = n->in[p->operands[x].input], weight = n->in[p->operands[w].input];
    float eps;
    int mean = find_rsqrt(g, n->in[p->operands[r].input], &eps);
    const struct expr_operand *squared =
        mean < 0 ? NULL : find_mean_square(&g->nodes[mean], channels);
    if (!squared || g->nodes[mean].in[squared->input] != value ||
        !is_dense(g->nodes[mean].pieces, squared, g->nodes[mean].pieces[0].n_axes) ||
        graph_floats(g, value) != graph_floats(g, node) || graph_floats(g, weight) != channels ||
        g->nodes[mean].layer != n->layer)
        return;
    int of_archive = g->nodes[weight].weights[0];
    become(n, GRAPH_RMS_NORM, value);
    n->weights[n->n_weights++] = of_archive;
    n->eps = eps;
    n->channels = (int)channels;
    n->positions = (int)(graph_floats(g, value) / channels);
}

/* ---- rotary: x * cos + cat(-x2, x1) * sin */

/* Returns the value whose halves of `width` channels a node exchanges, the second one negated; -1:
 * it does something else. */
static int find_half_turn(const struct graph_node *n, int64_t width)
{
    int value = -1;
    bool seen[2] = {false, false};
    for (int k = 0; k < n->n_pieces && n->kind == GRAPH_EXPR && n->n_pieces == 2 && n->n_in == 1;
         k++) {
        const struct expr_piece *p = &n->pieces[k];
        const struct expr_operand *o = p->operands, *r = &p->result;
        int last = p->n_axes - 1;
        bool negates = p->n_steps == 2 && p->steps[1].code == PP_EXPR_NEG;
        int half = r->offset > 0;
        if (p->n_operands != 1 || (p->n_steps != 1 && !negates) || last < 0 ||
            p->size[last] != width / 2 || negates == half || o->table_axis >= 0 ||
            o->offset != (half ? 0 : width / 2) || r->offset != (half ? width / 2 : 0))
            return -1;
        int64_t dense = width;
        for (int a = last - 1; a >= 0; dense *= p->size[a--])
            if (o->stride[a] != dense || r->stride[a] != dense)
                return -1;
        if (o->stride[last] != 1 || r->stride[last] != 1)
            return -1;
        seen[half] = true;
        value = n->in[0];
    }
    return seen[0] && seen[1] ? value : -1;
}

/* Returns the base of tables cos and sin [positions][width] if they are those of rotary(), else
 * 0. */
static double find_base(const float *cosine, const float *sine, int64_t positions, int64_t width)
{
    int64_t half = width / 2;
    if (positions < 2 || half < 2)
        return 0;
    /* the step of pair 1 is base^(-2 / width) */
    double step = atan2((double)sine[width + 1], (double)cosine[width + 1]);
    double base = step > 0 ? pow(step, -(double)width / 2) : 0, scale = 1;
    while (base > 1e5 * scale)
        scale *= 10; /* bases are round numbers; the table has seven digits of the step */
    base = round(base / scale * 10) / 10 * scale;
    base = round(base);
    for (int64_t t = 0; t < positions && base >= 1; t++) {
        for (int64_t j = 0; j < width; j++) {
            float inverse = 1.0f / (float)pow(base, (double)(2 * (j % half)) / (double)width);
            double angle = (double)((float)t * inverse), near = 1e-6 + 3e-7 * angle;
            if (fabs(cos(angle) - (double)cosine[t * width + j]) > near ||
                fabs(sin(angle) - (double)sine[t * width + j]) > near)
                return 0;
        }
    }
    return base;
}

/* Finds the operand among the leaves of a product that is a table [axis 0][last axis]. */
static int find_table(const struct graph *g, const struct graph_node *n, const struct expr_piece *p,
                      const int *leaves, int n_leaves)
{
    for (int i = 0; i < n_leaves; i++) {
        int o = is_load(p, leaves[i]) ? p->steps[leaves[i]].a : -1;
        if (o < 0)
            continue;
        const struct expr_operand *at = &p->operands[o];
        const struct graph_node *from = &g->nodes[n->in[at->input]];
        int last = p->n_axes - 1;
        bool table = from->kind == GRAPH_CONSTANT && at->offset == 0 && at->table_axis < 0 &&
                     at->stride[0] == p->size[last] && at->stride[last] == 1;
        for (int a = 1; a < last; a++)
            table = table && at->stride[a] == 0;
        if (table && graph_floats(g, n->in[at->input]) == p->size[0] * p->size[last])
            return o;
    }
    return -1;
}

static void find_rotary(struct graph *g, int node)
{
    struct graph_node *n = &g->nodes[node];
    const struct expr_piece *p = only_piece(n);
    int terms[MOST_LEAVES];
    if (!p || p->n_operands != 4 || n->n_in != 4 || p->n_axes < 2 || p->n_axes > 3 ||
        list_leaves(p, p->n_steps - 1, PP_EXPR_ADD, terms, 0) != 2)
        return;
    int64_t width = p->size[p->n_axes - 1], heads = p->n_axes == 3 ? p->size[1] : 1;
    int value = -1, turned = -1, table[2] = {-1, -1}; /* of cos, of sin */
    for (int k = 0; k < 2; k++) {
        int leaves[MOST_LEAVES];
        if (list_leaves(p, terms[k], PP_EXPR_MUL, leaves, 0) != 2)
            return;
        int o = find_table(g, n, p, leaves, 2);
        int other = o < 0 || !is_load(p, leaves[0]) || !is_load(p, leaves[1]) ? -1
                    : p->steps[leaves[0]].a == o ? p->steps[leaves[1]].a
                                                 : p->steps[leaves[0]].a;
        if (other < 0 || !is_dense(p, &p->operands[other], p->n_axes))
            return;
        int from = n->in[p->operands[other].input];
        int half = find_half_turn(&g->nodes[from], width);
        if (half >= 0)
            turned = half;
        else
            value = from;
        table[half >= 0] = n->in[p->operands[o].input];
    }
    if (value < 0 || turned != value || table[0] < 0 || table[1] < 0 ||
        graph_floats(g, value) != graph_floats(g, node))
        return;
    double base = find_base(g->nodes[table[0]].table, g->nodes[table[1]].table, p->size[0], width);
    if (base < 1)
        return;
    int positions = (int)p->size[0];
    become(n, GRAPH_ROTARY, value);
    n->positions = positions;
    n->channels = (int)(heads * width);
    n->rotary.heads = (int)heads;
    n->rotary.width = (int)width;
    n->rotary.base = (float)base;
}

/* ---- several linears of one input */

/* Returns whether a node is a linear that only one node reads. */
static bool is_own_linear(const struct graph *g, int node, int layer)
{
    const struct graph_node *n = &g->nodes[node];
    return n->kind == GRAPH_LINEAR && n->readers == 1 && n->layer == layer && node != g->output &&
           n->columns.n == 0 && !n->transposed && n->all <= n->channels;
}

static int count_channels(const struct graph *g, int node)
{
    return (int)(graph_floats(g, node) / g->nodes[node].positions);
}

/* Makes node `at`, the last of n linears of one input, one product of them all. */
static void join_linears(struct graph *g, int n, const int *nodes, int at)
{
    int weights[8], n_weights = 0, piece[8], channels = 0, positions = g->nodes[at].positions;
    bool bias = g->nodes[at].bias;
    for (int i = 0; i < n; i++)
        weights[n_weights++] = g->nodes[nodes[i]].weights[0];
    for (int i = 0; i < n && bias; i++)
        weights[n_weights++] = g->nodes[nodes[i]].weights[1];
    for (int i = 0; i < n; i++) {
        piece[i] = count_channels(g, nodes[i]);
        channels += piece[i];
    }
    struct graph_node *to = &g->nodes[at];
    become(to, GRAPH_PIECES, to->in[0]);
    memcpy(to->weights, weights, sizeof(weights));
    memcpy(to->piece, piece, sizeof(piece));
    to->n_weights = n_weights;
    to->channels = channels;
    to->shape = (struct pp_shape){2, {positions, channels, 1}};
    if (positions == 1)
        to->shape = pp_shape_flat(channels);
}

/* Returns whether n linears have the same input and bias, so that one product can give all. */
static bool are_one_product(const struct graph *g, int n, const int *nodes)
{
    const struct graph_node *first = &g->nodes[nodes[0]];
    bool one = true;
    for (int i = 1; i < n; i++) {
        const struct graph_node *l = &g->nodes[nodes[i]];
        one = one && l->in[0] == first->in[0] && l->bias == first->bias &&
              l->positions == first->positions && l->activation == first->activation;
        for (int k = 0; k < i; k++)
            one = one && nodes[k] != nodes[i];
    }
    return one;
}

/* silu(gate) * up */
static void find_gated(struct graph *g, int node)
{
    struct graph_node *n = &g->nodes[node];
    const struct expr_piece *p = only_piece(n);
    if (!p || p->n_axes != 1 || p->n_operands != 2 || p->n_steps != 3 || n->n_in != 2 ||
        p->steps[2].code != PP_EXPR_MUL || !is_dense(p, &p->operands[0], 1) ||
        !is_dense(p, &p->operands[1], 1))
        return;
    for (int k = 0; k < 2; k++) {
        const int pair[] = {n->in[k], n->in[1 - k]};
        struct graph_node *gate = &g->nodes[pair[0]];
        if (!is_own_linear(g, pair[0], n->layer) || !is_own_linear(g, pair[1], n->layer) ||
            gate->activation != PP_ACT_SILU)
            continue;
        gate->activation = PP_ACT_NONE;
        if (!are_one_product(g, 2, pair) ||
            count_channels(g, pair[0]) != count_channels(g, pair[1])) {
            gate->activation = PP_ACT_SILU;
            continue;
        }
        int at = pair[0] > pair[1] ? pair[0] : pair[1], positions = gate->positions;
        int channels = count_channels(g, pair[0]);
        join_linears(g, 2, pair, at);
        become(n, GRAPH_GATED, at);
        n->positions = positions;
        n->channels = channels;
        return;
    }
}

/* Queries, keys and values of attention: from one product, with one rotation of queries and keys. */
static void find_projections(struct graph *g, int node)
{
    struct graph_node *n = &g->nodes[node];
    struct graph_attention *a = &n->attention;
    int linears[3], turns[2] = {-1, -1};
    if (n->n_in < 3 || a->queries != a->keys)
        return;
    for (int k = 0; k < 3; k++) {
        int from = n->in[k];
        const struct graph_heads *at = k == 0 ? &a->q : k == 1 ? &a->k : &a->v;
        int heads = k == 0 ? a->heads : a->kv_heads;
        if (at->offset != 0 || at->head != a->width ||
            (at->position != (int64_t)heads * a->width && a->queries > 1))
            return;
        if (k < 2 && g->nodes[from].kind == GRAPH_ROTARY && g->nodes[from].readers == 1) {
            turns[k] = from;
            from = g->nodes[from].in[0];
        }
        if (!is_own_linear(g, from, n->layer) || count_channels(g, from) != heads * a->width ||
            g->nodes[from].positions != a->queries)
            return;
        linears[k] = from;
    }
    if ((turns[0] < 0) != (turns[1] < 0) || !are_one_product(g, 3, linears) ||
        g->nodes[linears[0]].activation != PP_ACT_NONE)
        return;
    int at = linears[0];
    for (int k = 1; k < 3; k++)
        at = linears[k] > at ? linears[k] : at;
    int value = at, q = a->heads * a->width, kv = a->kv_heads * a->width;
    if (turns[0] >= 0) {
        struct graph_node *tq = &g->nodes[turns[0]], *tk = &g->nodes[turns[1]];
        if (tq->rotary.width != a->width || tk->rotary.width != a->width ||
            tq->rotary.base < tk->rotary.base || tq->rotary.base > tk->rotary.base)
            return;
        value = turns[0] > turns[1] ? turns[0] : turns[1];
        if (value < at)
            return;
    }
    join_linears(g, 3, linears, at);
    if (turns[0] >= 0) {
        struct graph_node *turn = &g->nodes[value];
        turn->in[0] = at;
        turn->shape = g->nodes[at].shape;
        turn->channels = q + 2 * kv;
        turn->rotary.heads = a->heads + a->kv_heads;
    }
    for (int k = 0; k < 3; k++)
        n->in[k] = value;
    a->q.position = a->k.position = a->v.position = q + 2 * kv;
    a->k.offset = q;
    a->v.offset = q + kv;
}

int fuse_forms(struct graph *g)
{
    find_activations(g);
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead)
            continue;
        find_rms_norm(g, i);
        find_rotary(g, i);
    }
    return 0;
}

int fuse_products(struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead)
            continue;
        if (g->nodes[i].kind == GRAPH_ATTENTION)
            find_projections(g, i);
        else
            find_gated(g, i);
    }
    return 0;
}
