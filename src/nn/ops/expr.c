/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The op of elementwise programs (expr.h): runs a program for each piece in F, and those of the
 * gradient in I. When the model is complete it finds out which results together write each element
 * of an array once; otherwise a fill comes first, and results are added to it.
 */
#include <stdlib.h>
#include <string.h>

#include "../expr.h"
#include "../program.h"
#include "ppcli/base/base.h"

struct call {
    struct pp_expr e;
    int x[PP_EXPR_INPUTS];     /* inputs of the node, or PROGRAM_DY */
    int y[PP_EXPR_OUTPUTS];    /* in I: inputs whose gradients these are */
    bool add[PP_EXPR_OUTPUTS]; /* to what an earlier call wrote */
    bool fills;                /* not needed if the gradient is added to that of another reader */
};

struct calls {
    int n;
    struct call *of; /* owned */
};

struct programs {
    int n;
    struct program *of; /* owned */
};

struct setup {
    struct programs pieces; /* until the model is complete */
    float fill;
    int n_tables;
    size_t *table_at, *table_size; /* [n_tables] place in `numbers` */
    int32_t *numbers;
    size_t n_numbers;
    struct calls forward, backward;
};

static void free_setup(void *setup)
{
    struct setup *s = setup;
    pp_free(s->pieces.of);
    pp_free(s->table_at);
    pp_free(s->table_size);
    pp_free(s->numbers);
    pp_free(s->forward.of);
    pp_free(s->backward.of);
    pp_free(s);
}

static struct call *add_call(struct calls *c)
{
    struct call *of = pp_realloc(c->of, (size_t)c->n + 1, sizeof(*of));
    if (!of)
        return NULL;
    c->of = of;
    return memset(&of[c->n++], 0, sizeof(*of));
}

static struct program *add_program(struct programs *p)
{
    struct program *of = pp_realloc(p->of, (size_t)p->n + 1, sizeof(*of));
    if (!of)
        return NULL;
    p->of = of;
    return memset(&of[p->n++], 0, sizeof(*of));
}

/* ---- which elements of an array results write */

struct cover {
    size_t n;     /* elements that some result writes */
    uint16_t *by; /* [floats] number of the last result that writes it, from 1 on; 0: none */
};

static int32_t index_of(const struct setup *s, const struct expr_operand *o, int axis, int64_t i)
{
    return o->table_axis == axis ? s->numbers[s->table_at[o->table] + (size_t)i] : (int32_t)i;
}

/* Returns whether each stride reaches farther than all smaller ones together, so that no element is
 * written twice, and sets *n to how many are written. Cheaper than to mark them. */
static bool is_nested(const struct program *p, const struct expr_operand *o, size_t *n)
{
    bool done[EXPR_AXES] = {false};
    int64_t reach = 0;
    *n = 1;
    for (int left = p->n_axes; left > 0; left--) {
        int least = -1;
        for (int i = 0; i < p->n_axes; i++)
            if (!done[i] && (least < 0 || llabs(o->stride[i]) < llabs(o->stride[least])))
                least = i;
        int64_t stride = llabs(o->stride[least]);
        done[least] = true;
        if (stride == 0)
            continue;
        if (stride <= reach)
            return false;
        reach += stride * (p->size[least] - 1);
        *n *= (size_t)p->size[least];
    }
    return o->table_axis < 0;
}

/* Marks what result number k writes along the last axis from element `at` on; sets *repeats if it
 * writes an element twice, and raises *others to the last earlier result that writes one of them. */
static void cover_row(struct cover *c, const struct setup *s, const struct program *p,
                      const struct expr_operand *o, int64_t at, uint16_t k, bool *repeats,
                      int *others)
{
    int last = p->n_axes - 1;
    int64_t n = last >= 0 && o->stride[last] != 0 ? p->size[last] : 1;
    for (int64_t i = 0; i < n; i++) {
        uint16_t *by = &c->by[at + (last < 0 ? 0 : index_of(s, o, last, i) * o->stride[last])];
        *repeats = *repeats || *by == k;
        *others = *by != k && *by > *others ? *by : *others;
        c->n += *by == 0;
        *by = k;
    }
}

static void cover_result(struct cover *c, const struct setup *s, const struct program *p,
                         const struct expr_operand *o, uint16_t k, bool *repeats, int *others)
{
    int64_t index[EXPR_AXES] = {0};
    int i = 0;
    while (i >= 0) {
        int64_t at = o->offset;
        for (int a = 0; a < p->n_axes - 1; a++)
            at += index_of(s, o, a, index[a]) * o->stride[a];
        cover_row(c, s, p, o, at, k, repeats, others);
        for (i = p->n_axes - 2; i >= 0; index[i--] = 0)
            if (o->stride[i] != 0 && ++index[i] < p->size[i])
                break;
    }
}

/* ---- calls */

/* Adds a call that fills an array of `floats` floats. */
static int add_fill(struct calls *calls, size_t floats, float number, int input)
{
    struct call *c = add_call(calls);
    if (!c)
        return PP_ERESOURCE;
    c->e.n_axes = c->e.n_out = 1;
    c->e.n_steps = 2;
    c->e.size[0] = (int)floats;
    c->e.out[0] = (struct pp_expr_array){.stride = {1}, .table_axis = -1, .sample = floats};
    c->e.steps[0] = (struct pp_expr_step){.code = PP_EXPR_FILL, .number = number};
    c->e.steps[1] = (struct pp_expr_step){.code = PP_EXPR_STORE};
    c->y[0] = input;
    c->fills = true;
    pp_expr_finish(&c->e);
    return 0;
}

/* Adds a call of a program; `back`: its results are gradients of inputs, else the node's value. */
static int add_call_of(const struct pp_model *m, const struct pp_node *n, const struct setup *s,
                       const struct program *p, bool back, struct calls *calls)
{
    struct call *c = add_call(calls);
    if (!c)
        return PP_ERESOURCE;
    if (!program_complete(p, s->table_at, &c->e, c->x))
        return pp_fail(PP_EINTERNAL, "a program of expr has grown beyond its limits");
    for (int k = 0; k < c->e.n_in; k++) {
        int x = c->x[k] == PROGRAM_DY ? n->y : n->x[c->x[k]];
        bool one = c->x[k] != PROGRAM_DY && x > 0 && m->nodes[x - 1].one_row;
        c->e.in[k].sample = one ? 0 : pp_shape_floats(&m->values[x]);
        c->e.in[k].f32 = x == 0 && m->tokens;
    }
    for (int k = 0; k < c->e.n_out; k++) {
        c->y[k] = p->out[k].at.input;
        c->add[k] = p->out[k].adds || p->out[k].repeats;
        c->e.out[k].sample = pp_shape_floats(&m->values[back ? n->x[c->y[k]] : n->y]);
    }
    return 0;
}

/* ---- the gradient */

/* Adds the programs of a piece's gradient: one, or more where one would be too large. */
static int derive_piece(struct programs *all, const struct setup *s, const struct program *piece,
                        uint64_t wanted)
{
    struct pp_expr e;
    int inputs[PP_EXPR_INPUTS];
    struct program *p = add_program(all);
    if (!p)
        return PP_ERESOURCE;
    program_derive(piece, wanted, p);
    bool fits = program_complete(p, s->table_at, &e, inputs), none = !p->full && p->n_out == 0;
    uint64_t first = wanted & -wanted;
    if (none || !fits)
        all->n--;
    if (fits || none)
        return 0;
    if (first == wanted)
        return pp_fail(PP_EINTERNAL, "a gradient of expr has grown beyond its limits");
    PP_TRY(derive_piece(all, s, piece, first));
    return derive_piece(all, s, piece, wanted & ~first);
}

/* Moves result k of a program into one of its own, at the end. */
static int move_result(struct programs *all, int program, int k)
{
    struct program *to = add_program(all);
    if (!to)
        return PP_ERESOURCE;
    struct program *p = &all->of[program];
    *to = *p;
    to->n_out = 1;
    to->out[0] = p->out[k];
    p->n_out--;
    memmove(&p->out[k], &p->out[k + 1], (size_t)(p->n_out - k) * sizeof(p->out[0]));
    return 0;
}

/* What the results that are gradients of one input write together. */
struct together {
    int n;
    bool whole;       /* all elements */
    bool first_whole; /* the first of them alone writes all, each once */
    bool apart;       /* each element is written once */
    int program, out; /* the first result that meets another one of its program; -1: none does */
};

static int look_together(struct programs *all, const struct setup *s, size_t floats, int input,
                         struct together *t)
{
    size_t n = 0;
    *t = (struct together){.apart = true, .program = -1};
    for (int i = 0; i < all->n; i++) {
        for (int k = 0; k < all->of[i].n_out; k++) {
            if (all->of[i].out[k].at.input != input)
                continue;
            bool nested = is_nested(&all->of[i], &all->of[i].out[k].at, &n);
            t->n += nested ? 1 : 2;
        }
    }
    if (t->n == 1) { /* one result */
        t->whole = t->first_whole = n == floats;
        return 0;
    }
    t->n = 0;
    PP_TAKE(uint16_t, by, floats);
    struct cover c = {.by = by};
    for (int i = 0; i < all->n && t->program < 0; i++) {
        struct program *p = &all->of[i];
        int before = t->n;
        for (int k = 0; k < p->n_out && t->program < 0; k++) {
            int others = 0;
            if (p->out[k].at.input != input)
                continue;
            p->out[k].repeats = false;
            cover_result(&c, s, p, &p->out[k].at, (uint16_t)++t->n, &p->out[k].repeats, &others);
            t->apart = t->apart && others == 0 && !p->out[k].repeats;
            t->first_whole = t->n == 1 ? c.n == floats && t->apart : t->first_whole;
            t->program = others > before ? i : -1;
            t->out = k;
        }
    }
    t->whole = c.n == floats;
    return 0;
}

/* Decides which results add to what is there, and fills the gradient of an input first if all do. */
static int join_gradient(struct programs *all, const struct setup *s, size_t floats, int input,
                         struct calls *calls)
{
    struct together t;
    PP_TRY(look_together(all, s, floats, input, &t));
    while (t.program >= 0) {
        PP_TRY(move_result(all, t.program, t.out));
        PP_TRY(look_together(all, s, floats, input, &t));
    }
    bool fills = !(t.whole && t.apart) && !t.first_whole, first = true;
    for (int i = 0; i < all->n; i++) {
        for (int k = 0; k < all->of[i].n_out; k++) {
            if (all->of[i].out[k].at.input != input)
                continue;
            all->of[i].out[k].adds = fills || (!t.apart && !first);
            first = false;
        }
    }
    return fills ? add_fill(calls, floats, 0, input) : 0;
}

static int complete_backward(const struct pp_model *m, const struct pp_node *n, struct setup *s,
                             struct programs *all)
{
    uint64_t wanted = 0;
    for (int j = 0; j < n->n_x; j++)
        wanted |= (uint64_t)n->wants_dx[j] << j;
    for (int i = 0; i < s->pieces.n && wanted; i++)
        PP_TRY(derive_piece(all, s, &s->pieces.of[i], wanted));
    for (int j = 0; j < n->n_x; j++)
        if (n->wants_dx[j])
            PP_TRY(join_gradient(all, s, pp_shape_floats(&m->values[n->x[j]]), j, &s->backward));
    for (int i = 0; i < all->n; i++)
        PP_TRY(add_call_of(m, n, s, &all->of[i], true, &s->backward));
    return 0;
}

static int complete(struct pp_model *m, struct pp_node *n)
{
    struct setup *s = n->setup;
    struct programs gradients = {0};
    for (int i = 0; i < s->pieces.n; i++)
        PP_TRY(add_call_of(m, n, s, &s->pieces.of[i], false, &s->forward));
    int rc = complete_backward(m, n, s, &gradients);
    pp_free(gradients.of);
    pp_free(s->pieces.of);
    s->pieces = (struct programs){0};
    for (int i = 0; i < s->backward.n; i++)
        for (int k = 0; k < s->backward.of[i].e.n_in; k++)
            if (s->backward.of[i].x[k] != PROGRAM_DY)
                n->reads |= PP_READS_IN_I(s->backward.of[i].x[k]);
    return rc;
}

/* ---- the op */

static void workspace(const struct pp_node *n, const struct pp_backend_choice *choice, int rows,
                      struct pp_workspace *out)
{
    out->packed = ((const struct setup *)n->setup)->n_numbers;
}

static int pack(const struct pp_node *n, struct pp_backend *be, const float *params, float *packed)
{
    const struct setup *s = n->setup;
    return pp_backend_to_device(be, packed, s->numbers, s->n_numbers * sizeof(*s->numbers));
}

static int run_calls(struct pp_backend *be, const struct pp_at *at, const struct calls *calls,
                     int rows, bool back)
{
    for (const struct call *c = calls->of; c < calls->of + calls->n; c++) {
        struct pp_expr_run run = {.B = rows, .e = &c->e, .tables = (const void *)at->packed};
        if (back && c->fills && at->add[c->y[0]])
            continue;
        for (int k = 0; k < c->e.n_in; k++)
            run.x[k] = c->x[k] == PROGRAM_DY ? at->dy : at->x[c->x[k]];
        for (int k = 0; k < c->e.n_out; k++) {
            run.y[k] = back ? at->dx[c->y[k]] : at->y;
            run.add[k] = c->add[k] || (back && at->add[c->y[k]]);
        }
        PP_TRY(pp_backend_expr(be, &run));
    }
    return 0;
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    const struct setup *s = n->setup;
    return run_calls(be, at, &s->forward, n->one_row ? 1 : at->pass->rows, false);
}

static int backward_input(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    const struct setup *s = n->setup;
    return run_calls(be, at, &s->backward, at->pass->rows, true);
}

const struct pp_node_op op_expr = {
    .name = "expr",
    .kernels = PP_USES(expr),
    .complete = complete,
    .workspace = workspace,
    .pack = pack,
    .forward = forward,
    .backward_input = backward_input,
};

/* ---- building */

/* Copies the tables that the pieces use: table t is as long as the axis that it belongs to. */
static int copy_tables(struct setup *s, int n_pieces, const struct expr_piece *pieces,
                       const int32_t *const *tables)
{
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < n_pieces; i++) {
            const struct expr_piece *p = &pieces[i];
            for (int k = 0; k <= p->n_operands; k++) {
                const struct expr_operand *o = k < p->n_operands ? &p->operands[k] : &p->result;
                if (o->table_axis < 0)
                    continue;
                size_t n = (size_t)p->size[o->table_axis];
                if (pass == 0)
                    s->n_tables = o->table >= s->n_tables ? o->table + 1 : s->n_tables;
                else if (pass == 1)
                    s->table_size[o->table] =
                        n > s->table_size[o->table] ? n : s->table_size[o->table];
                else
                    memcpy(s->numbers + s->table_at[o->table], tables[o->table],
                           n * sizeof(*s->numbers));
            }
        }
        if (pass == 0) {
            PP_ALLOC(s->table_at, (size_t)s->n_tables);
            PP_ALLOC(s->table_size, (size_t)s->n_tables);
        } else if (pass == 1) {
            for (int t = 0; t < s->n_tables; t++) {
                s->table_at[t] = s->n_numbers;
                s->n_numbers += s->table_size[t];
            }
            PP_ALLOC(s->numbers, s->n_numbers);
        }
    }
    return 0;
}

/* Returns whether all indices of an operand are inside an array of `floats` floats. */
static bool is_inside(const struct setup *s, const struct program *p, const struct expr_operand *o,
                      size_t floats)
{
    double least = (double)o->offset, most = least;
    for (int i = 0; i < p->n_axes; i++) {
        int32_t low = 0, high = (int32_t)(p->size[i] - 1);
        for (int64_t k = 0; o->table_axis == i && k < p->size[i]; k++) {
            int32_t index = index_of(s, o, i, k);
            low = k == 0 || index < low ? index : low;
            high = k == 0 || index > high ? index : high;
        }
        double stride = (double)o->stride[i];
        least += stride * (stride > 0 ? low : high);
        most += stride * (stride > 0 ? high : low);
    }
    return least >= 0 && most < (double)floats;
}

/* Adds the piece's program, on the values x; same: as of program_of_piece(). */
static bool take_piece(struct builder *b, struct setup *s, const int *x, const int *same,
                       const struct expr_piece *piece, size_t floats)
{
    struct program *p = add_program(&s->pieces);
    if (!p) {
        b->rc = PP_ERESOURCE;
        return false;
    }
    program_of_piece(piece, same, p);
    bool inside = p->full || is_inside(s, p, &p->out[0].at, floats);
    for (int i = 0; i < p->n_in; i++) {
        size_t of_input = pp_shape_floats(shape_of(b, x[p->in[i].input]));
        inside = inside && is_inside(s, p, &p->in[i], of_input);
    }
    if (!inside)
        refuse(b, "%s: an index is outside of its array", b->name);
    else if (!program_fits(p, s->table_at))
        refuse(b, "%s: a formula has more steps than one program takes", b->name);
    return b->rc == 0;
}

/* Finds out whether the pieces write each element once. */
static void look_at_pieces(struct builder *b, struct setup *s, size_t floats)
{
    struct cover c = {0};
    bool repeats = false, one = s->pieces.n == 1;
    int others = 0;
    if (one && is_nested(s->pieces.of, &s->pieces.of[0].out[0].at, &c.n) && c.n == floats)
        return;
    c = (struct cover){.by = pp_alloc(floats, sizeof(*c.by))};
    for (int i = 0; i < s->pieces.n && c.by; i++) {
        struct program *p = &s->pieces.of[i];
        cover_result(&c, s, p, &p->out[0].at, (uint16_t)(i + 1), &p->out[0].repeats, &others);
        repeats = repeats || p->out[0].repeats;
    }
    if (!c.by || ((repeats || c.n < floats) && add_fill(&s->forward, floats, s->fill, 0) < 0))
        b->rc = PP_ERESOURCE;
    else if (others > 0)
        refuse(b, "%s: two pieces write the same element", b->name);
    pp_free(c.by);
}

static void hash_operand(uint64_t *hash, const struct expr_operand *o)
{
    const int64_t numbers[] = {o->input, o->offset, o->table_axis,
                               o->table_axis < 0 ? 0 : o->table};
    hash_bytes(hash, numbers, sizeof(numbers));
    hash_bytes(hash, o->stride, sizeof(o->stride));
}

static uint64_t hash_setup(const struct setup *s)
{
    uint64_t hash = 0;
    hash_bytes(&hash, &s->fill, sizeof(s->fill));
    hash_bytes(&hash, s->numbers, s->n_numbers * sizeof(*s->numbers));
    for (const struct program *p = s->pieces.of; p < s->pieces.of + s->pieces.n; p++) {
        hash_bytes(&hash, p->size, sizeof(p->size));
        for (int i = 0; i < p->n_in; i++)
            hash_operand(&hash, &p->in[i]);
        hash_operand(&hash, &p->out[0].at);
        hash_bytes(&hash, &p->out[0].step, sizeof(p->out[0].step));
        hash_bytes(&hash, p->steps, (size_t)p->n_steps * sizeof(p->steps[0]));
    }
    return hash;
}

int expr(struct builder *b, const char *name, int n_x, const int *x, int n_pieces,
         const struct expr_piece *pieces, const int32_t *const *tables, struct pp_shape out,
         float fill)
{
    int own[PP_NODE_INPUTS], same[PP_NODE_INPUTS], n_own = 0;
    bool one_row = true;
    for (int j = 0; j < n_x && b->rc == 0; j++) {
        int k = 0;
        while (k < n_own && own[k] != x[j])
            k++;
        if (k == n_own)
            own[n_own++] = x[j];
        same[j] = k;
        one_row = one_row && x[j] > 0 && b->m->nodes[x[j] - 1].one_row;
    }
    struct pp_node *n = add_node_of(b, &op_expr, name, n_own, own, out);
    struct setup *s = n ? pp_alloc(1, sizeof(*s)) : NULL;
    if (!n)
        return 0;
    if (!s) {
        b->rc = PP_ERESOURCE;
        return 0;
    }
    n->one_row = one_row;
    n->setup = s;
    n->free_setup = free_setup;
    s->fill = fill;
    b->rc = copy_tables(s, n_pieces, pieces, tables);
    if (n_pieces > UINT16_MAX - 1)
        refuse(b, "%s: a value of %d pieces", b->name, n_pieces);
    for (int i = 0; i < n_pieces && b->rc == 0; i++)
        take_piece(b, s, own, same, &pieces[i], pp_shape_floats(&out));
    if (b->rc == 0)
        look_at_pieces(b, s, pp_shape_floats(&out));
    if (b->rc < 0)
        return 0;
    n->setup_hash = hash_setup(s);
    return n->y;
}
