/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of the op `expr`: steps are simplified, ordered and given registers. */
#include "expr.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "program.h"

/* ---- steps */

/* Returns the number that a step gives for these numbers. */
static float compute_step(const struct expr_step *s, double a, double b, double c)
{
    float number = s->number;
    switch (s->code) {
#define PP_EXPR_STEP(NAME, operands, value, fast)                                                  \
    case PP_EXPR_##NAME:                                                                           \
        return (float)(value);
#include "ppcli/dev/expr.def"
    default:
        return number;
    }
}

static bool is_number(const struct program *p, int step)
{
    return p->steps[step].code == PP_EXPR_FILL;
}

static bool is_the_number(const struct program *p, int step, float number)
{
    return is_number(p, step) && !(p->steps[step].number < number) &&
           !(p->steps[step].number > number);
}

bool program_same_steps(const struct expr_step *s, const struct expr_step *t)
{
    uint32_t x, y; /* 0 and -0 are two numbers, and a NaN is one */
    memcpy(&x, &s->number, sizeof(x));
    memcpy(&y, &t->number, sizeof(y));
    return s->code == t->code && s->which == t->which && s->a == t->a && s->b == t->b &&
           s->c == t->c && x == y;
}

/* Adds a step as it is, unless there is one like it. */
static int put_step(struct program *p, const struct expr_step *s)
{
    for (int i = 0; i < p->n_steps; i++)
        if (program_same_steps(&p->steps[i], s))
            return i;
    p->full = p->full || p->n_steps == PROGRAM_STEPS;
    if (p->full)
        return 0;
    p->steps[p->n_steps] = *s;
    return p->n_steps++;
}

int program_number(struct program *p, float number)
{
    return put_step(p, &(struct expr_step){.code = PP_EXPR_FILL, .number = number});
}

/* Returns an earlier step that gives the same as step s, whose operands are in order; -1: none does
 * so whatever its operands are. */
static int find_equal(struct program *p, const struct expr_step *s)
{
    switch (s->code) {
    case PP_EXPR_MUL:
        return is_the_number(p, s->b, 1) ? s->a : is_the_number(p, s->a, 1) ? s->b : -1;
    case PP_EXPR_DIV:
        return is_the_number(p, s->b, 1) ? s->a : -1;
    case PP_EXPR_NEG:
        return p->steps[s->a].code == PP_EXPR_NEG ? p->steps[s->a].a : -1;
    case PP_EXPR_SELECT:
        if (is_number(p, s->a))
            return is_the_number(p, s->a, 0) ? s->c : s->b;
        return s->b == s->c ? s->b : -1;
    case PP_EXPR_POW:
        return (double)s->number == 1 ? s->a : -1;
    default:
        return -1;
    }
}

int program_add(struct program *p, struct expr_step s)
{
    int n = pp_expr_operands(s.code), *of[] = {&s.a, &s.b, &s.c};
    bool known = n > 0 && s.code != PP_EXPR_ACT && s.code != PP_EXPR_ACT_BACK;
    double values[3] = {0, 0, 0};
    for (int i = 0; i < 3; i++) {
        *of[i] = i < n || s.code == PP_EXPR_LOAD ? *of[i] : 0;
        known = known && (i >= n || is_number(p, *of[i]));
        values[i] = i < n ? p->steps[*of[i]].number : 0;
    }
    if (s.code != PP_EXPR_POW && s.code != PP_EXPR_FILL)
        s.number = 0;
    if (known)
        return program_number(p, compute_step(&s, values[0], values[1], values[2]));
    int equal = find_equal(p, &s);
    if (equal >= 0)
        return equal;
    bool swaps = s.code == PP_EXPR_ADD || s.code == PP_EXPR_MUL || s.code == PP_EXPR_EQ;
    if (swaps && s.a > s.b) {
        int t = s.a;
        s.a = s.b;
        s.b = t;
    }
    if (s.code == PP_EXPR_MUL && is_the_number(p, s.a, -1))
        return program_add(p, (struct expr_step){.code = PP_EXPR_NEG, .a = s.b});
    if (s.code == PP_EXPR_MUL && is_the_number(p, s.b, -1))
        return program_add(p, (struct expr_step){.code = PP_EXPR_NEG, .a = s.a});
    return put_step(p, &s);
}

/* ---- operands */

bool program_same_operands(const struct expr_operand *x, const struct expr_operand *y)
{
    return x->input == y->input && x->offset == y->offset && x->table_axis == y->table_axis &&
           (x->table_axis < 0 || x->table == y->table) &&
           memcmp(x->stride, y->stride, sizeof(x->stride)) == 0;
}

int program_load(struct program *p, const struct expr_operand *operand)
{
    int i = 0;
    while (i < p->n_in && !program_same_operands(&p->in[i], operand))
        i++;
    p->full = p->full || i == PP_EXPR_INPUTS;
    if (p->full)
        return 0;
    if (i == p->n_in)
        p->in[p->n_in++] = *operand;
    return put_step(p, &(struct expr_step){.code = PP_EXPR_LOAD, .a = i});
}

void program_store(struct program *p, const struct expr_operand *at, int step)
{
    p->full = p->full || p->n_out == PP_EXPR_OUTPUTS;
    if (p->full)
        return;
    memset(&p->out[p->n_out], 0, sizeof(p->out[0]));
    p->out[p->n_out].at = *at;
    p->out[p->n_out++].step = step;
}

/* Sets place[n_axes] to the axes' numbers without those of one index that no table needs, which are
 * -1; returns how many are left. */
static int number_axes(const struct expr_piece *piece, int place[EXPR_AXES])
{
    int n = 0;
    for (int i = 0; i < piece->n_axes; i++) {
        bool needed = piece->size[i] > 1 || piece->result.table_axis == i;
        for (int k = 0; k < piece->n_operands; k++)
            needed = needed || piece->operands[k].table_axis == i;
        place[i] = needed ? n++ : -1;
    }
    return n;
}

static struct expr_operand operand_of(const struct expr_piece *piece, const int *place,
                                      const struct expr_operand *o)
{
    struct expr_operand out = {
        .input = o->input, .offset = o->offset, .table_axis = -1, .table = o->table};
    for (int i = 0; i < piece->n_axes; i++) {
        if (place[i] < 0)
            continue;
        out.stride[place[i]] = piece->size[i] > 1 || o->table_axis == i ? o->stride[i] : 0;
        out.table_axis = o->table_axis == i ? place[i] : out.table_axis;
    }
    return out;
}

void program_of_piece(const struct expr_piece *piece, const int *same, struct program *out)
{
    int number[PROGRAM_STEPS], place[EXPR_AXES];
    *out = (struct program){.full = piece->n_steps > PROGRAM_STEPS || piece->n_axes > EXPR_AXES};
    if (out->full)
        return;
    out->n_axes = number_axes(piece, place);
    for (int i = 0; i < piece->n_axes; i++)
        if (place[i] >= 0)
            out->size[place[i]] = piece->size[i];
    for (int i = 0; i < piece->n_steps && !out->full; i++) {
        struct expr_step s = piece->steps[i];
        int n = pp_expr_operands(s.code), *of[] = {&s.a, &s.b, &s.c};
        for (int k = 0; k < n; k++) {
            pp_assert(*of[k] >= 0 && *of[k] < i);
            *of[k] = number[*of[k]];
        }
        if (s.code == PP_EXPR_LOAD) {
            pp_assert(s.a >= 0 && s.a < piece->n_operands);
            struct expr_operand o = operand_of(piece, place, &piece->operands[s.a]);
            o.input = same ? same[o.input] : o.input;
            number[i] = program_load(out, &o);
        } else {
            number[i] = program_add(out, s);
        }
    }
    struct expr_operand result = operand_of(piece, place, &piece->result);
    if (!out->full)
        program_store(out, &result, number[piece->n_steps - 1]);
}

/* ---- completion */

struct making {
    const struct program *p;
    struct pp_expr *e;
    int last_use[PROGRAM_STEPS]; /* step that reads it last; -1: it is not needed */
    int reg[PROGRAM_STEPS];      /* of a number; -1: not computed yet */
    bool taken[PP_EXPR_REGISTERS];
    int input[PP_EXPR_INPUTS]; /* number of an operand in e->in; -1: not loaded */
    bool fits;
};

/* Marks the steps that results need with the last step that reads them. */
static void find_uses(struct making *m)
{
    const struct program *p = m->p;
    for (int i = 0; i < p->n_steps; i++)
        m->last_use[i] = m->reg[i] = -1;
    for (int k = 0; k < p->n_out; k++)
        m->last_use[p->out[k].step] = p->out[k].step;
    for (int i = p->n_steps - 1; i >= 0; i--) {
        const struct expr_step *s = &p->steps[i];
        const int of[] = {s->a, s->b, s->c};
        for (int k = 0; k < 3 && k < pp_expr_operands(s->code) && m->last_use[i] >= 0; k++)
            m->last_use[of[k]] = i > m->last_use[of[k]] ? i : m->last_use[of[k]];
    }
}

static struct pp_expr_step *put_made(struct making *m, enum pp_expr_code code)
{
    m->fits = m->fits && m->e->n_steps < PP_EXPR_STEPS;
    struct pp_expr_step *s = &m->e->steps[m->fits ? m->e->n_steps++ : 0];
    *s = (struct pp_expr_step){.code = (uint8_t)code};
    return s;
}

/* Takes the lowest register that is free. */
static uint8_t take_register(struct making *m, int step)
{
    int r = 0;
    while (r < PP_EXPR_REGISTERS && m->taken[r])
        r++;
    m->fits = m->fits && r < PP_EXPR_REGISTERS;
    r = m->fits ? r : 0;
    m->taken[r] = true;
    m->reg[step] = r;
    return (uint8_t)r;
}

static void store_results(struct making *m, int step)
{
    for (int k = 0; k < m->p->n_out; k++) {
        if (m->p->out[k].step != step)
            continue;
        struct pp_expr_step *s = put_made(m, PP_EXPR_STORE);
        s->to = (uint8_t)k;
        s->a = (uint8_t)m->reg[step];
    }
}

/* Makes a load or a number, when it is first read. */
static void make_leaf(struct making *m, int step)
{
    const struct expr_step *s = &m->p->steps[step];
    if (m->reg[step] >= 0 || (s->code != PP_EXPR_LOAD && s->code != PP_EXPR_FILL))
        return;
    struct pp_expr_step *made = put_made(m, s->code);
    made->to = take_register(m, step);
    made->number = s->number;
    if (s->code == PP_EXPR_LOAD) {
        if (m->input[s->a] < 0)
            m->input[s->a] = m->e->n_in++;
        made->a = (uint8_t)m->input[s->a];
    }
    store_results(m, step);
}

/* Returns the operand that a step takes as its own number: the one of its last two that is a number;
 * -1: none. */
static int find_immediate(const struct program *p, const struct expr_step *s)
{
    int n = pp_expr_operands(s->code);
    const int of[] = {s->a, s->b, s->c};
    if (n < 2 || s->code == PP_EXPR_ACT_BACK)
        return -1;
    return is_number(p, of[n - 1]) ? n - 1 : is_number(p, of[n - 2]) ? n - 2 : -1;
}

static void make_step(struct making *m, int step)
{
    const struct expr_step *s = &m->p->steps[step];
    const int of[] = {s->a, s->b, s->c};
    int n = pp_expr_operands(s->code), immediate = find_immediate(m->p, s);
    uint8_t r[3] = {0, 0, 0};
    if (s->code == PP_EXPR_LOAD || s->code == PP_EXPR_FILL)
        return;
    for (int k = 0; k < n; k++) {
        if (k != immediate)
            make_leaf(m, of[k]);
        r[k] = k == immediate ? PP_EXPR_NUMBER : (uint8_t)m->reg[of[k]];
    }
    for (int k = 0; k < n; k++)
        if (k != immediate && m->last_use[of[k]] == step)
            m->taken[r[k]] = false;
    struct pp_expr_step *made = put_made(m, s->code);
    made->which = (uint8_t)s->which;
    made->a = r[0];
    made->b = r[1];
    made->c = r[2];
    made->number = immediate >= 0 ? m->p->steps[of[immediate]].number : s->number;
    made->to = take_register(m, step);
    store_results(m, step);
    if (m->last_use[step] == step)
        m->taken[made->to] = false;
}

/* Writes the places of an operand; returns false if a number is too large. */
static bool place_array(const struct program *p, const struct expr_operand *o, const size_t *tables,
                        struct pp_expr_array *v)
{
    bool fits = o->offset >= 0;
    *v = (struct pp_expr_array){.table_axis = -1, .offset = (size_t)o->offset};
    for (int i = 0; i < p->n_axes; i++) {
        fits = fits && o->stride[i] >= -INT32_MAX && o->stride[i] <= INT32_MAX;
        v->stride[i] = (int)o->stride[i];
    }
    if (o->table_axis >= 0) {
        v->table_axis = o->table_axis;
        v->table = tables[o->table];
    }
    return fits;
}

bool program_complete(const struct program *p, const size_t *tables, struct pp_expr *e, int *inputs)
{
    struct making m = {.p = p, .e = e, .fits = !p->full && p->n_axes <= PP_AXES};
    memset(e, 0, sizeof(*e));
    memset(m.input, 0xff, sizeof(m.input));
    if (!m.fits)
        return false;
    e->n_axes = p->n_axes > 0 ? p->n_axes : 1;
    e->size[0] = 1;
    for (int i = 0; i < p->n_axes; i++) {
        m.fits = m.fits && p->size[i] >= 1 && p->size[i] <= INT32_MAX;
        e->size[i] = (int)p->size[i];
    }
    find_uses(&m);
    for (int i = 0; i < p->n_steps && m.fits; i++)
        if (m.last_use[i] >= 0)
            make_step(&m, i);
    for (int k = 0; k < p->n_out && m.fits; k++)
        make_leaf(&m, p->out[k].step);
    for (int i = 0; i < p->n_in; i++) {
        if (m.input[i] < 0)
            continue;
        m.fits = place_array(p, &p->in[i], tables, &e->in[m.input[i]]) && m.fits;
        inputs[m.input[i]] = p->in[i].input;
    }
    for (int k = 0; k < p->n_out; k++) {
        m.fits = place_array(p, &p->out[k].at, tables, &e->out[k]) && m.fits;
        e->out[k].repeats = p->out[k].repeats;
    }
    e->n_out = p->n_out;
    if (m.fits && p->n_out > 0) /* a comparison has no gradient */
        pp_expr_finish(e);
    return m.fits;
}

/* ---- limits */

bool program_fits(const struct program *p, const size_t *tables)
{
    struct pp_expr e;
    struct program g;
    int inputs[PP_EXPR_INPUTS];
    bool fits = program_complete(p, tables, &e, inputs);
    for (int i = 0; i < p->n_in && fits; i++) {
        program_derive(p, UINT64_C(1) << p->in[i].input, &g);
        fits = program_complete(&g, tables, &e, inputs);
    }
    return fits;
}

bool expr_fits(const struct expr_piece *piece)
{
    struct program p;
    size_t n = 1;
    program_of_piece(piece, NULL, &p);
    for (int i = 0; i < piece->n_operands; i++)
        n = (size_t)piece->operands[i].table >= n ? (size_t)piece->operands[i].table + 1 : n;
    PP_OWN_MEMORY size_t *tables =
        pp_alloc(n, sizeof(*tables)); /* zeros: the limits do not depend on where tables begin */
    return tables && program_fits(&p, tables);
}
