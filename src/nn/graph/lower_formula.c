/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise operators are formulas: "a < 0 ? 0 : a". A formula is compiled into the steps of a
 * node; steps that numbers decide are left out. Operators as in C, but "?" does not take part in a
 * sum without brackets; functions are those of `functions`.
 */
#include "../program.h"
#include "lower.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#define STEPS_MAX 96
#define OPERANDS_MAX 6

struct compiler {
    const char *at;
    int n_operands;
    const struct lower_operand *operands;
    int input[OPERANDS_MAX]; /* view of the node for each operand; -1: not read yet */
    int n_inputs, n_steps;
    struct expr_step steps[STEPS_MAX];
};

/* ---- steps */

static bool is_number(const struct compiler *c, int step, double number)
{
    return c->steps[step].code == PP_EXPR_FILL && (double)c->steps[step].number == number;
}

/* Returns the number of a step: an equal earlier one, or a new one. */
static int put_step(struct compiler *c, struct expr_step s)
{
    for (int i = 0; i < c->n_steps; i++)
        if (program_same_steps(&c->steps[i], &s))
            return i;
    pp_assert(c->n_steps < STEPS_MAX);
    c->steps[c->n_steps] = s;
    return c->n_steps++;
}

static int put_number(struct compiler *c, double number)
{
    return put_step(c, (struct expr_step){.code = PP_EXPR_FILL, .number = (float)number});
}

/* Computes with two numbers; returns false if the code is not one of those of formulas. */
static bool compute_numbers(enum pp_expr_code code, double a, double b, double *out)
{
    switch (code) {
    case PP_EXPR_ADD:
        *out = a + b;
        return true;
    case PP_EXPR_SUB:
        *out = a - b;
        return true;
    case PP_EXPR_MUL:
        *out = a * b;
        return true;
    case PP_EXPR_DIV:
        *out = a / b;
        return true;
    case PP_EXPR_LT:
        *out = a < b;
        return true;
    case PP_EXPR_LE:
        *out = a <= b;
        return true;
    case PP_EXPR_EQ:
        *out = a == b;
        return true;
    default:
        return false;
    }
}

/* Adds a step of two operands, unless numbers decide its result. */
static int put_pair(struct compiler *c, enum pp_expr_code code, int a, int b)
{
    double number;
    if (c->steps[a].code == PP_EXPR_FILL && c->steps[b].code == PP_EXPR_FILL &&
        compute_numbers(code, (double)c->steps[a].number, (double)c->steps[b].number, &number))
        return put_number(c, number);
    if ((code == PP_EXPR_MUL && is_number(c, a, 1)) || (code == PP_EXPR_ADD && is_number(c, a, 0)))
        return b;
    if (((code == PP_EXPR_MUL || code == PP_EXPR_DIV) && is_number(c, b, 1)) ||
        ((code == PP_EXPR_ADD || code == PP_EXPR_SUB) && is_number(c, b, 0)))
        return a;
    if (code == PP_EXPR_LT && (is_number(c, b, -HUGE_VAL) || is_number(c, a, HUGE_VAL)))
        return put_number(c, 0);
    return put_step(c, (struct expr_step){.code = code, .a = a, .b = b, .c = a});
}

static int put_choice(struct compiler *c, int condition, int yes, int no)
{
    if (c->steps[condition].code == PP_EXPR_FILL)
        return is_number(c, condition, 0) ? no : yes;
    return put_step(c,
                    (struct expr_step){.code = PP_EXPR_SELECT, .a = condition, .b = yes, .c = no});
}

/* ---- the grammar */

static int read_choice(struct compiler *c);

/* Skips spaces, and `word` if it is next; returns whether it was. */
static bool take_word(struct compiler *c, const char *word)
{
    size_t n = strlen(word);
    c->at += strspn(c->at, " ");
    bool is = strncmp(c->at, word, n) == 0;
    c->at += is ? n : 0;
    return is;
}

static int read_operand(struct compiler *c)
{
    int i = *c->at++ - 'a';
    pp_assert(i >= 0 && i < c->n_operands);
    if (c->operands[i].is_number)
        return put_number(c, c->operands[i].number);
    if (c->input[i] < 0)
        c->input[i] = c->n_inputs++;
    return put_step(c, (struct expr_step){.code = PP_EXPR_LOAD, .a = c->input[i]});
}

static int read_function(struct compiler *c)
{
    static const struct {
        const char *name;
        enum pp_expr_code code;
    } functions[] = {
        {"abs(", PP_EXPR_ABS},     {"exp(", PP_EXPR_EXP},     {"log(", PP_EXPR_LOG},
        {"expm1(", PP_EXPR_EXPM1}, {"sqrt(", PP_EXPR_SQRT},   {"log1p(", PP_EXPR_LOG1P},
        {"rsqrt(", PP_EXPR_RSQRT}, {"sin(", PP_EXPR_SIN},     {"cos(", PP_EXPR_COS},
        {"tanh(", PP_EXPR_TANH},   {"erf(", PP_EXPR_ERF},     {"sigmoid(", PP_EXPR_SIGMOID},
        {"floor(", PP_EXPR_FLOOR}, {"trunc(", PP_EXPR_TRUNC}, {"max(", PP_EXPR_MAX},
        {"min(", PP_EXPR_MIN}};
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (!take_word(c, functions[i].name))
            continue;
        int a = read_choice(c), b = take_word(c, ",") ? read_choice(c) : a;
        take_word(c, ")");
        return put_step(c, (struct expr_step){.code = functions[i].code, .a = a, .b = b, .c = a});
    }
    return -1;
}

static int read_factor(struct compiler *c)
{
    if (take_word(c, "-")) {
        int a = read_factor(c);
        return c->steps[a].code == PP_EXPR_FILL
                   ? put_number(c, -(double)c->steps[a].number)
                   : put_step(c, (struct expr_step){.code = PP_EXPR_NEG, .a = a, .b = a, .c = a});
    }
    if (take_word(c, "(")) {
        int inside = read_choice(c);
        take_word(c, ")");
        return inside;
    }
    int function = read_function(c);
    if (function >= 0)
        return function;
    if (isdigit((unsigned char)*c->at)) {
        char *end;
        double number = strtod(c->at, &end);
        c->at = end;
        return put_number(c, number);
    }
    return read_operand(c);
}

static int read_product(struct compiler *c)
{
    int a = read_factor(c);
    for (;;)
        if (take_word(c, "*"))
            a = put_pair(c, PP_EXPR_MUL, a, read_factor(c));
        else if (take_word(c, "/"))
            a = put_pair(c, PP_EXPR_DIV, a, read_factor(c));
        else
            return a;
}

static int read_sum(struct compiler *c)
{
    int a = read_product(c);
    for (;;)
        if (take_word(c, "+"))
            a = put_pair(c, PP_EXPR_ADD, a, read_product(c));
        else if (take_word(c, "-"))
            a = put_pair(c, PP_EXPR_SUB, a, read_product(c));
        else
            return a;
}

static int read_comparison(struct compiler *c)
{
    int a = read_sum(c);
    if (take_word(c, "<="))
        return put_pair(c, PP_EXPR_LE, a, read_sum(c));
    if (take_word(c, ">="))
        return put_pair(c, PP_EXPR_LE, read_sum(c), a);
    if (take_word(c, "<"))
        return put_pair(c, PP_EXPR_LT, a, read_sum(c));
    if (take_word(c, ">"))
        return put_pair(c, PP_EXPR_LT, read_sum(c), a);
    if (take_word(c, "=="))
        return put_pair(c, PP_EXPR_EQ, a, read_sum(c));
    return a;
}

static int read_choice(struct compiler *c)
{
    int condition = read_comparison(c);
    if (!take_word(c, "?"))
        return condition;
    int yes = read_choice(c);
    take_word(c, ":");
    return put_choice(c, condition, yes, read_choice(c));
}

/* ---- nodes */

/* Leaves out the steps that the result does not need; it is the last one then. */
static void end_with(struct compiler *c, int result)
{
    bool needed[STEPS_MAX] = {false};
    int now[STEPS_MAX], n = 0;
    needed[result] = true;
    for (int i = result; i >= 0; i--) {
        const struct expr_step *s = &c->steps[i];
        if (needed[i] && s->code != PP_EXPR_LOAD && s->code != PP_EXPR_FILL)
            needed[s->a] = needed[s->b] = needed[s->c] = true;
    }
    for (int i = 0; i <= result; i++) {
        struct expr_step s = c->steps[i];
        if (!needed[i])
            continue;
        if (s.code != PP_EXPR_LOAD && s.code != PP_EXPR_FILL) {
            s.a = now[s.a];
            s.b = now[s.b];
            s.c = now[s.c];
        }
        now[i] = n;
        c->steps[n++] = s;
    }
    c->n_steps = n;
}

bool lower_compute(struct lower *l, const char *formula, int n_operands,
                   const struct lower_operand *operands, const bool *summed, struct view *out)
{
    struct compiler c = {.at = formula, .n_operands = n_operands, .operands = operands};
    struct view views[OPERANDS_MAX + 1];
    for (int i = 0; i < OPERANDS_MAX; i++)
        c.input[i] = -1;
    int result = read_choice(&c);
    pp_assert(*c.at == '\0' && n_operands <= OPERANDS_MAX);
    end_with(&c, result);
    for (int i = 0; i < n_operands; i++)
        if (c.input[i] >= 0)
            views[c.input[i]] = operands[i].view;
    if (c.n_inputs == 0) { /* a number: a view gives the dimensions */
        for (int i = 0; i < n_operands; i++)
            if (!operands[i].is_number)
                views[c.n_inputs++] = operands[i].view;
        c.n_inputs = c.n_inputs > 0;
    }
    return lower_expr(l, c.n_inputs, views, c.n_steps, c.steps, summed, LOWER_AS_LARGEST, out);
}

struct lower_operand lower_operand(struct lower *l, const struct pt_node *n, const char *name,
                                   double otherwise)
{
    const struct pt_arg *a = pt_arg_find(n, name);
    struct lower_operand o = {.is_number = true, .number = otherwise};
    if (!a || a->kind != PT_TENSOR) {
        o.number = lower_number(n, name, otherwise);
        return o;
    }
    if (a->value >= 0 && l->values[a->value].state == LOWERED_HOST) {
        PP_OWN(fold_constant_free) struct fold_constant c = {0};
        if (fold_read(l->folder, a->value, &c) == 0 && c.n == 1) {
            o.number = c.floats ? (double)c.floats[0] : (double)c.ints[0];
            return o;
        }
    }
    o.is_number = false;
    o.view = lower_tensor(l, n, name);
    return o;
}

/* Reads the next "name" or "name=number" of a list. */
static bool read_name(const char **at, char name[32], double *otherwise)
{
    *at += strspn(*at, " ");
    size_t n = strcspn(*at, " =");
    if (n == 0)
        return false;
    pp_assert(n < 32);
    memcpy(name, *at, n);
    name[n] = '\0';
    *at += n;
    *otherwise = 0;
    if (**at == '=') {
        char *end;
        *otherwise = strtod(*at + 1, &end);
        *at = end;
    }
    return true;
}

void lower_formula(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct lower_operand operands[OPERANDS_MAX];
    const char *at = row->arguments;
    char name[32], tensor[32];
    double otherwise;
    int count = 0, views = 0, first = -1;
    for (; read_name(&at, name, &otherwise); count++) {
        pp_assert(count < OPERANDS_MAX);
        const struct pt_arg *a = pt_arg_find(n, name);
        if (a && a->kind == PT_TENSOR && first < 0) {
            first = count;
            memcpy(tensor, name, sizeof(tensor));
        }
        operands[count] = lower_operand(l, n, name, otherwise);
        views += !operands[count].is_number;
    }
    if (views == 0 && first >= 0)
        operands[first] = (struct lower_operand){.view = lower_tensor(l, n, tensor)};
    for (int i = 0; i < count; i++) {
        struct view *v = &operands[i].view;
        if (operands[i].is_number || v->n_dims < 0)
            continue;
        if (!view_expand(v, type->n_dims, type->dims, v)) {
            lower_refuse(l, "%s: its tensors do not have one shape", n->target);
            return;
        }
    }
    struct view out;
    if (lower_compute(l, row->formula, count, operands, NULL, &out))
        lower_set(l, n, 0, &out);
}
