/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuses elementwise nodes: a producer with one reader is computed where it is read, so that its value
 * is never stored. The axes of the reader are split where those of the producer end; then an index of
 * each axis of the producer is a sum of indices of the reader, and the strides follow.
 */
#include <stdlib.h>
#include <string.h>

#include "../program.h"
#include "fuse.h"

#define MOST_STEPS 40 /* of a program; its derivative has about twice as many */
#define MOST_INPUTS 10

/* Makes room for one more element; returns NULL without memory. */
static void *grow(void *array, int n, size_t size)
{
    return pp_realloc(array, (size_t)n + 1, size);
}

int fuse_make_expr(struct graph *g, int node)
{
    struct graph_node *n = &g->nodes[node];
    bool adds = n->kind == GRAPH_ADD, relu = adds && n->activation == PP_ACT_RELU;
    int n_steps = adds ? 3 + relu : 2;
    pp_assert(adds || n->kind == GRAPH_ACTIVATE);
    PP_TAKE(struct expr_piece, p, 1);
    PP_TAKE(struct expr_operand, operands, n->n_in);
    PP_TAKE(struct expr_step, steps, n_steps);
    for (int i = 0; i < n->n_in; i++) {
        operands[i] = (struct expr_operand){.input = i, .stride = {1}, .table_axis = -1};
        steps[i] = (struct expr_step){.code = PP_EXPR_LOAD, .a = i};
    }
    if (adds)
        steps[2] = (struct expr_step){.code = PP_EXPR_ADD, .a = 0, .b = 1};
    if (relu || !adds)
        steps[n_steps - 1] =
            (struct expr_step){.code = PP_EXPR_ACT, .which = (int)n->activation, .a = n_steps - 2};
    *p = (struct expr_piece){.n_axes = 1,
                             .size = {graph_floats(g, node)},
                             .n_operands = n->n_in,
                             .operands = operands,
                             .n_steps = n_steps,
                             .steps = steps,
                             .result = {.stride = {1}, .table_axis = -1}};
    n->kind = GRAPH_EXPR;
    n->activation = PP_ACT_NONE;
    n->pieces = p;
    n->n_pieces = 1;
    p = NULL;
    operands = NULL;
    steps = NULL;
    return 0;
}

/* ---- axes */

/* How an operand of a reader runs through the axes of its producer. */
struct path {
    int64_t base[VIEW_AXES];  /* index of each axis of the producer at the operand's offset */
    int axis[VIEW_AXES];      /* of the producer, that axis k of the reader runs along; -1: none */
    int64_t times[VIEW_AXES]; /* indices of it that one of k passes */
};

/* Splits axis k of a piece, so that its inner part has `inner` elements. */
static bool split_axis(struct expr_piece *p, int k, int64_t inner)
{
    if (p->n_axes == VIEW_AXES || p->size[k] % inner)
        return false;
    for (int i = 0; i <= p->n_operands; i++) {
        const struct expr_operand *o = i < p->n_operands ? &p->operands[i] : &p->result;
        if (o->table_axis == k)
            return false;
    }
    for (int i = 0; i <= p->n_operands; i++) {
        struct expr_operand *o = i < p->n_operands ? &p->operands[i] : &p->result;
        memmove(&o->stride[k + 1], &o->stride[k], (size_t)(p->n_axes - k) * sizeof(*o->stride));
        o->stride[k] *= inner;
        o->table_axis += o->table_axis > k;
    }
    memmove(&p->size[k + 1], &p->size[k], (size_t)(p->n_axes - k) * sizeof(*p->size));
    p->size[k] /= inner;
    p->size[k + 1] = inner;
    p->n_axes++;
    return true;
}

/* Returns the axis of the producer with the largest stride that divides `stride`; -1: none. */
static int find_axis(const struct expr_piece *from, int64_t stride)
{
    int best = -1;
    int64_t size = stride < 0 ? -stride : stride;
    for (int j = 0; j < from->n_axes; j++) {
        int64_t r = from->result.stride[j];
        if (r <= size && size % r == 0 && (best < 0 || r > from->result.stride[best]))
            best = j;
    }
    return best;
}

/* Finds the path of operand o of piece `to` through the piece `from`; may split axes of `to`. */
static bool find_path(struct expr_piece *to, int o, const struct expr_piece *from, struct path *out)
{
    int64_t least[VIEW_AXES], most[VIEW_AXES], covered = 0;
    *out = (struct path){0};
    for (int j = 0; j < from->n_axes; j++) {
        int64_t r = from->result.stride[j];
        out->base[j] = to->operands[o].offset / r % from->size[j];
        covered += out->base[j] * r;
        least[j] = most[j] = out->base[j];
    }
    if (covered != to->operands[o].offset)
        return false;
    for (int k = 0; k < to->n_axes; k++) {
        int64_t stride = to->operands[o].stride[k];
        int j = find_axis(from, stride);
        if (stride == 0 || j < 0) /* 0: the producer would be computed again and again */
            return false;
        int64_t times = stride / from->result.stride[j], reach = (to->size[k] - 1) * times;
        if (most[j] + reach >= from->size[j] && times == 1 && out->base[j] == 0 &&
            to->size[k] > from->size[j] && split_axis(to, k, from->size[j])) {
            k--;
            continue;
        }
        out->axis[k] = j;
        out->times[k] = times;
        *(reach < 0 ? &least[j] : &most[j]) += reach;
        if (least[j] < 0 || most[j] >= from->size[j])
            return false;
    }
    return true;
}

/* Returns an operand of the producer as one of the reader; false if a table cannot follow. */
static bool follow_path(const struct path *path, const struct expr_piece *to,
                        const struct expr_piece *from, const struct expr_operand *o,
                        struct expr_operand *out)
{
    *out = (struct expr_operand){.offset = o->offset, .table_axis = -1, .table = o->table};
    for (int j = 0; j < from->n_axes; j++)
        if (j != o->table_axis)
            out->offset += path->base[j] * o->stride[j];
    for (int k = 0; k < to->n_axes; k++) {
        int j = path->axis[k];
        out->stride[k] = path->times[k] * o->stride[j];
        if (j != o->table_axis)
            continue;
        if (out->table_axis >= 0 || path->times[k] != 1 || to->size[k] != from->size[j])
            return false;
        out->table_axis = k;
    }
    return o->table_axis < 0 || out->table_axis >= 0;
}

/* ---- nodes */

static struct expr_piece *copy_piece(const struct expr_piece *p)
{
    struct expr_piece *c = pp_alloc(1, sizeof(*c));
    struct expr_operand *o = pp_alloc((size_t)p->n_operands, sizeof(*o));
    struct expr_step *s = pp_alloc((size_t)p->n_steps, sizeof(*s));
    if (!c || !o || !s) {
        pp_free(c);
        pp_free(o);
        pp_free(s);
        return NULL;
    }
    *c = *p;
    c->operands = memcpy(o, p->operands, (size_t)p->n_operands * sizeof(*o));
    c->steps = memcpy(s, p->steps, (size_t)p->n_steps * sizeof(*s));
    return c;
}

static void free_piece(struct expr_piece **p)
{
    if (*p) {
        pp_free((*p)->operands);
        pp_free((*p)->steps);
        pp_free(*p);
    }
}

/* Returns the place of a value among the inputs of a node, which is added if it is not there; -1:
 * there is no memory. */
static int add_input(struct graph_node *n, int value)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == value)
            return i;
    int *in = grow(n->in, n->n_in, sizeof(*in));
    if (!in)
        return -1;
    n->in = in;
    in[n->n_in] = value;
    return n->n_in++;
}

/* Removes inputs that no operand of the node reads. */
static void drop_inputs(struct graph_node *n)
{
    for (int i = 0; i < n->n_in;) {
        bool used = false;
        for (int p = 0; p < n->n_pieces; p++)
            for (int o = 0; o < n->pieces[p].n_operands; o++)
                used = used || n->pieces[p].operands[o].input == i;
        if (used) {
            i++;
            continue;
        }
        memmove(&n->in[i], &n->in[i + 1], (size_t)(n->n_in - i - 1) * sizeof(*n->in));
        n->n_in--;
        for (int p = 0; p < n->n_pieces; p++)
            for (int o = 0; o < n->pieces[p].n_operands; o++)
                n->pieces[p].operands[o].input -= n->pieces[p].operands[o].input > i;
    }
}

/* Adds an operand to a piece unless it has the same one; returns its number. */
static int add_operand(struct expr_piece *p, const struct expr_operand *o)
{
    for (int i = 0; i < p->n_operands; i++)
        if (program_same_operands(&p->operands[i], o))
            return i;
    struct expr_operand *more = grow(p->operands, p->n_operands, sizeof(*more));
    if (!more)
        return -1;
    p->operands = more;
    more[p->n_operands] = *o;
    return p->n_operands++;
}

/* Writes the steps of `from` before those of `to`, whose loads of operand o become their result;
 * number[i] is the number in `to` of operand i of `from`. */
static int join_steps(struct expr_piece *to, int o, const struct expr_piece *from,
                      const int *number)
{
    int shift = from->n_steps, n = shift + to->n_steps;
    struct expr_step *steps = pp_alloc((size_t)n, sizeof(*steps));
    if (!steps)
        return PP_ERESOURCE;
    for (int i = 0; i < shift; i++) {
        steps[i] = from->steps[i];
        if (steps[i].code == PP_EXPR_LOAD)
            steps[i].a = number[steps[i].a];
    }
    for (int i = 0; i < to->n_steps; i++) {
        struct expr_step s = to->steps[i];
        int *refs[] = {&s.a, &s.b, &s.c};
        for (int k = 0; k < 3 && s.code != PP_EXPR_LOAD; k++) {
            const struct expr_step *ref = &to->steps[*refs[k]];
            bool result = ref->code == PP_EXPR_LOAD && ref->a == o;
            *refs[k] = result ? shift - 1 : *refs[k] + shift;
        }
        steps[shift + i] = s;
    }
    /* a program that only loads the operand is the producer's own */
    const struct expr_step *last = &to->steps[to->n_steps - 1];
    if (last->code == PP_EXPR_LOAD && last->a == o)
        n = shift;
    pp_free(to->steps);
    to->steps = steps;
    to->n_steps = n;
    return 0;
}

/* Removes steps that an earlier one repeats, and those that the result does not need. */
static int drop_steps(struct expr_piece *p)
{
    PP_TAKE(int, now, p->n_steps); /* the step that has the result of step i */
    PP_TAKE(bool, needed, p->n_steps);
    for (int i = 0; i < p->n_steps; i++) {
        struct expr_step *s = &p->steps[i];
        int *refs[] = {&s->a, &s->b, &s->c};
        for (int k = 0; k < 3; k++)
            if (s->code != PP_EXPR_LOAD)
                *refs[k] = k < pp_expr_operands(s->code) ? now[*refs[k]] : 0;
        now[i] = i;
        for (int j = 0; j < i && now[i] == i; j++)
            if (now[j] == j && program_same_steps(&p->steps[j], s))
                now[i] = j;
    }
    needed[now[p->n_steps - 1]] = true;
    for (int i = p->n_steps - 1; i >= 0; i--) {
        const struct expr_step *s = &p->steps[i];
        const int refs[] = {s->a, s->b, s->c};
        for (int k = 0; k < 3 && k < pp_expr_operands(s->code) && needed[i]; k++)
            needed[refs[k]] = true;
    }
    int n = 0;
    for (int i = 0; i < p->n_steps; i++) {
        if (!needed[i])
            continue;
        struct expr_step s = p->steps[i];
        int *refs[] = {&s.a, &s.b, &s.c};
        for (int k = 0; k < 3 && k < pp_expr_operands(s.code); k++)
            *refs[k] = now[*refs[k]];
        now[i] = n; /* from here on: its place */
        p->steps[n++] = s;
    }
    p->n_steps = n;
    return 0;
}

/* Removes operands that no step loads. */
static void drop_operands(struct expr_piece *p)
{
    for (int o = 0; o < p->n_operands;) {
        bool used = false;
        for (int i = 0; i < p->n_steps; i++)
            used = used || (p->steps[i].code == PP_EXPR_LOAD && p->steps[i].a == o);
        if (used) {
            o++;
            continue;
        }
        memmove(&p->operands[o], &p->operands[o + 1],
                (size_t)(p->n_operands - o - 1) * sizeof(*p->operands));
        p->n_operands--;
        for (int i = 0; i < p->n_steps; i++)
            p->steps[i].a -= p->steps[i].code == PP_EXPR_LOAD && p->steps[i].a > o;
    }
}

static bool has_sum_or_table(const struct expr_piece *p)
{
    for (int k = 0; k < p->n_axes; k++)
        if (p->result.stride[k] <= 0)
            return true;
    return p->result.table_axis >= 0;
}

/* Tries to compute the producer of operand o where piece p of node `node` reads it. *out_done: it is
 * so. Errors: PP_ERESOURCE. */
static int inline_operand(struct graph *g, int node, int p, int o, bool *out_done)
{
    struct graph_node *n = &g->nodes[node];
    int value = n->in[n->pieces[p].operands[o].input];
    struct graph_node *from = &g->nodes[value];
    const struct expr_operand *reads = &n->pieces[p].operands[o];
    bool simple = from->kind == GRAPH_ADD || from->kind == GRAPH_ACTIVATE;
    *out_done = false;
    if ((from->kind != GRAPH_EXPR && !simple) || from->readers != 1 || value == g->output ||
        from->rows != n->rows || from->layer != n->layer || reads->table_axis >= 0)
        return 0;
    int uses = 0;
    for (int i = 0; i < n->n_pieces; i++)
        for (int k = 0; k < n->pieces[i].n_operands; k++)
            uses += n->in[n->pieces[i].operands[k].input] == value;
    if (uses != 1 || n->n_in + from->n_in - 1 > MOST_INPUTS)
        return 0;
    if (simple)
        PP_TRY(fuse_make_expr(g, value));
    const struct expr_piece *a = &from->pieces[0];
    if (from->n_pieces != 1 || has_sum_or_table(a) ||
        a->n_steps + n->pieces[p].n_steps > MOST_STEPS)
        return 0;
    struct path path;
    PP_OWN(free_piece) struct expr_piece *to = copy_piece(&n->pieces[p]);
    if (!to)
        return PP_ERESOURCE;
    if (!find_path(to, o, a, &path))
        return 0;
    int number[PP_EXPR_INPUTS];
    struct expr_operand follows[PP_EXPR_INPUTS];
    if (a->n_operands > PP_EXPR_INPUTS || to->n_operands + a->n_operands - 1 > PP_EXPR_INPUTS)
        return 0;
    for (int i = 0; i < a->n_operands; i++)
        if (!follow_path(&path, to, a, &a->operands[i], &follows[i]))
            return 0;
    for (int i = 0; i < a->n_operands; i++) {
        follows[i].input = add_input(n, from->in[a->operands[i].input]);
        number[i] = follows[i].input < 0 ? -1 : add_operand(to, &follows[i]);
        if (number[i] < 0)
            return PP_ERESOURCE;
    }
    PP_TRY(join_steps(to, o, a, number));
    PP_TRY(drop_steps(to));
    drop_operands(to);
    graph_piece_merge(to);
    if (to->n_axes > PP_AXES) {
        drop_inputs(n);
        return 0;
    }
    struct expr_piece old = n->pieces[p];
    n->pieces[p] = *to;
    *to = old;
    drop_inputs(n);
    from->dead = true;
    *out_done = true;
    return 0;
}

int fuse_tidy(struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        for (int p = 0; p < g->nodes[i].n_pieces; p++) {
            PP_TRY(drop_steps(&g->nodes[i].pieces[p]));
            drop_operands(&g->nodes[i].pieces[p]);
        }
    }
    return 0;
}

int fuse_exprs(struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct graph_node *n = &g->nodes[i];
        bool elementwise =
            n->kind == GRAPH_EXPR || n->kind == GRAPH_ADD || n->kind == GRAPH_ACTIVATE;
        bool feeds = false; /* a node that could be computed here */
        for (int k = 0; k < n->n_in && elementwise && !n->dead; k++) {
            const struct graph_node *from = &g->nodes[n->in[k]];
            feeds = feeds || ((from->kind == GRAPH_EXPR || from->kind == GRAPH_ADD ||
                               from->kind == GRAPH_ACTIVATE) &&
                              from->readers == 1 && from->layer == n->layer &&
                              from->rows == n->rows && from->n_pieces <= 1);
        }
        if (!feeds)
            continue;
        if (n->kind != GRAPH_EXPR)
            PP_TRY(fuse_make_expr(g, i));
        for (int p = 0; p < n->n_pieces; p++) {
            for (int o = 0; o < n->pieces[p].n_operands; o++) {
                bool done;
                PP_TRY(inline_operand(g, i, p, o, &done));
                o = done ? -1 : o;
            }
        }
    }
    return 0;
}
