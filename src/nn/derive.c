/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of a program, as a program: from the result to the inputs, each step gives its
 * operands their share of the gradient of its number (reverse mode). What the shares need of the
 * forward pass is computed again; what nothing needs is not loaded.
 */
#include <math.h>
#include <string.h>

#include "program.h"

/* A gradient that is made of program f; numbers of f's steps and of g's are different things. */
struct deriving {
    const struct program *f;
    struct program *g;
    int value[PROGRAM_STEPS];    /* of a step of f: the same number in g */
    int gradient[PROGRAM_STEPS]; /* of a step of f: in g; -1: 0 */
    bool needed[PROGRAM_STEPS];  /* a wanted input is in it */
};

static int put(struct deriving *d, enum pp_expr_code code, int a, int b, int c)
{
    return program_add(d->g, (struct expr_step){.code = code, .a = a, .b = b, .c = c});
}

static int put_number(struct deriving *d, double number)
{
    return program_number(d->g, (float)number);
}

static int scale(struct deriving *d, int a, double number)
{
    return put(d, PP_EXPR_MUL, a, put_number(d, number), 0);
}

/* Adds a share to the gradient of a step of f. */
static void give(struct deriving *d, int to, int share)
{
    int old = d->gradient[to];
    if (d->needed[to])
        d->gradient[to] = old < 0 ? share : put(d, PP_EXPR_ADD, old, share, 0);
}

/* Returns dy where the condition holds, else 0. */
static int where(struct deriving *d, int condition, int dy)
{
    return put(d, PP_EXPR_SELECT, condition, dy, put_number(d, 0));
}

/* MAX and MIN: all to the one that was taken; halves if both are equal. */
static void give_halves(struct deriving *d, const struct expr_step *s, int dy)
{
    int a = d->value[s->a], b = d->value[s->b];
    int above = put(d, PP_EXPR_LT, b, a, 0), below = put(d, PP_EXPR_LT, a, b, 0);
    int half = where(d, put(d, PP_EXPR_EQ, a, b, 0), scale(d, dy, 0.5));
    bool greater = s->code == PP_EXPR_MAX;
    give(d, s->a, put(d, PP_EXPR_SELECT, greater ? above : below, dy, half));
    give(d, s->b, put(d, PP_EXPR_SELECT, greater ? below : above, dy, half));
}

/* Gives the gradient dy of step s of f, whose number is y, to its operands. */
static void give_shares(struct deriving *d, const struct expr_step *s, int y, int dy)
{
    int a = d->value[s->a], b = d->value[s->b], one = put_number(d, 1), t;
    switch (s->code) {
    case PP_EXPR_ADD:
        give(d, s->a, dy);
        give(d, s->b, dy);
        break;
    case PP_EXPR_SUB:
        give(d, s->a, dy);
        give(d, s->b, put(d, PP_EXPR_NEG, dy, 0, 0));
        break;
    case PP_EXPR_MUL:
        give(d, s->a, put(d, PP_EXPR_MUL, dy, b, 0));
        give(d, s->b, put(d, PP_EXPR_MUL, dy, a, 0));
        break;
    case PP_EXPR_DIV:
        t = put(d, PP_EXPR_DIV, dy, b, 0);
        give(d, s->a, t);
        give(d, s->b, put(d, PP_EXPR_NEG, put(d, PP_EXPR_MUL, t, y, 0), 0, 0));
        break;
    case PP_EXPR_MAX:
    case PP_EXPR_MIN:
        give_halves(d, s, dy);
        break;
    case PP_EXPR_NEG:
        give(d, s->a, put(d, PP_EXPR_NEG, dy, 0, 0));
        break;
    case PP_EXPR_ABS:
        t = where(d, put(d, PP_EXPR_LT, a, put_number(d, 0), 0), put(d, PP_EXPR_NEG, dy, 0, 0));
        give(d, s->a, put(d, PP_EXPR_SELECT, put(d, PP_EXPR_LT, put_number(d, 0), a, 0), dy, t));
        break;
    case PP_EXPR_SQRT: /* 1 / (2 y) */
        give(d, s->a, put(d, PP_EXPR_DIV, dy, scale(d, y, 2), 0));
        break;
    case PP_EXPR_RSQRT: /* -y^3 / 2 */
        t = put(d, PP_EXPR_MUL, put(d, PP_EXPR_MUL, y, y, 0), y, 0);
        give(d, s->a, put(d, PP_EXPR_MUL, scale(d, dy, -0.5), t, 0));
        break;
    case PP_EXPR_EXP:
        give(d, s->a, put(d, PP_EXPR_MUL, dy, y, 0));
        break;
    case PP_EXPR_EXPM1:
        give(d, s->a, put(d, PP_EXPR_MUL, dy, put(d, PP_EXPR_ADD, y, one, 0), 0));
        break;
    case PP_EXPR_LOG:
        give(d, s->a, put(d, PP_EXPR_DIV, dy, a, 0));
        break;
    case PP_EXPR_LOG1P:
        give(d, s->a, put(d, PP_EXPR_DIV, dy, put(d, PP_EXPR_ADD, a, one, 0), 0));
        break;
    case PP_EXPR_SIN:
        give(d, s->a, put(d, PP_EXPR_MUL, dy, put(d, PP_EXPR_COS, a, 0, 0), 0));
        break;
    case PP_EXPR_COS:
        t = put(d, PP_EXPR_MUL, dy, put(d, PP_EXPR_SIN, a, 0, 0), 0);
        give(d, s->a, put(d, PP_EXPR_NEG, t, 0, 0));
        break;
    case PP_EXPR_TANH:
        t = put(d, PP_EXPR_SUB, one, put(d, PP_EXPR_MUL, y, y, 0), 0);
        give(d, s->a, put(d, PP_EXPR_MUL, dy, t, 0));
        break;
    case PP_EXPR_ERF: /* 2 / sqrt(pi) exp(-a^2) */
        t = put(d, PP_EXPR_EXP, put(d, PP_EXPR_NEG, put(d, PP_EXPR_MUL, a, a, 0), 0, 0), 0, 0);
        give(d, s->a, put(d, PP_EXPR_MUL, scale(d, dy, M_2_SQRTPI), t, 0));
        break;
    case PP_EXPR_SIGMOID:
        t = put(d, PP_EXPR_MUL, put(d, PP_EXPR_SUB, one, y, 0), y, 0);
        give(d, s->a, put(d, PP_EXPR_MUL, dy, t, 0));
        break;
    case PP_EXPR_POW:
        t = program_add(d->g,
                        (struct expr_step){.code = PP_EXPR_POW, .a = a, .number = s->number - 1});
        give(d, s->a, put(d, PP_EXPR_MUL, scale(d, dy, (double)s->number), t, 0));
        break;
    case PP_EXPR_SELECT:
        give(d, s->b, where(d, a, dy));
        give(d, s->c, put(d, PP_EXPR_SELECT, a, put_number(d, 0), dy));
        break;
    case PP_EXPR_ACT:
        t = pp_activation_facts((enum pp_activation)s->which)->saves_z ? a : y;
        give(d, s->a,
             program_add(d->g, (struct expr_step){
                                   .code = PP_EXPR_ACT_BACK, .which = s->which, .a = t, .b = dy}));
        break;
    case PP_EXPR_LT: /* constant between jumps */
    case PP_EXPR_LE:
    case PP_EXPR_EQ:
    case PP_EXPR_FLOOR:
    case PP_EXPR_TRUNC:
    case PP_EXPR_ACT_BACK: /* of gradients only */
    case PP_EXPR_LOAD:
    case PP_EXPR_STORE:
    case PP_EXPR_FILL:
        break;
    }
}

/* Copies the steps of f to g and finds those that wanted inputs are in. */
static void copy_steps(struct deriving *d, uint64_t wanted)
{
    const struct program *f = d->f;
    for (int i = 0; i < f->n_steps; i++) {
        struct expr_step s = f->steps[i];
        d->gradient[i] = -1;
        d->needed[i] = s.code == PP_EXPR_LOAD ? wanted >> f->in[s.a].input & 1 : false;
        if (s.code == PP_EXPR_LOAD) {
            d->value[i] = program_load(d->g, &f->in[s.a]);
            continue;
        }
        int *of[] = {&s.a, &s.b, &s.c};
        for (int k = 0; k < 3 && k < pp_expr_operands(s.code); k++) {
            d->needed[i] = d->needed[i] || d->needed[*of[k]];
            *of[k] = d->value[*of[k]];
        }
        d->value[i] = program_add(d->g, s);
    }
}

void program_derive(const struct program *f, uint64_t wanted, struct program *out)
{
    struct deriving d = {.f = f, .g = out};
    *out = (struct program){.n_axes = f->n_axes, .full = f->full || f->n_in == PP_EXPR_INPUTS};
    if (out->full)
        return;
    memcpy(out->size, f->size, sizeof(out->size));
    copy_steps(&d, wanted);
    struct expr_operand dy = f->out[0].at;
    int root = f->out[0].step;
    dy.input = PROGRAM_DY;
    give(&d, root, program_load(out, &dy));
    for (int i = root; i >= 0 && !out->full; i--)
        if (d.gradient[i] >= 0)
            give_shares(&d, &f->steps[i], d.value[i], d.gradient[i]);
    for (int i = 0; i < f->n_steps && !out->full; i++)
        if (f->steps[i].code == PP_EXPR_LOAD && d.gradient[i] >= 0)
            program_store(out, &f->in[f->steps[i].a], d.gradient[i]);
}
