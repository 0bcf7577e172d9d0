/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise operators of constants. Floats are computed in double and rounded once to the dtype of
 * the result: sums, products, quotients and roots of float32 then have PyTorch's bits, and other
 * functions differ by one unit in the last place at most.
 */
#include "fold_ops.h"

#include <math.h>

#include "ppcli/base/base.h"

#define OPERANDS 3

/* n cells of up to three operands, all of dtype `as`. */
struct piece {
    int n;
    enum pt_dtype as;
    union host_cell in[OPERANDS][HOST_PIECE], y[HOST_PIECE];
};

/* In which dtype an operator computes. */
enum rule {
    SAME,   /* the common dtype of the operands */
    REAL,   /* the same, but float32 for integers */
    ASK,    /* the common dtype; the result is bool */
    TRUTH,  /* bool */
    CHOOSE, /* the common dtype of all but the first operand, which is a condition */
};

/* Names of the arguments. An operand that is left out is `otherwise`; NaN: it must be given. */
struct operand_list {
    const char *names[OPERANDS];
    double otherwise[OPERANDS];
};

struct function {
    enum rule rule;
    void (*compute)(struct piece *p);
    const struct operand_list *operands;
};

/* ---- formulas */

/* Integers wrap around. */
static int64_t add_ints(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t subtract_ints(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static int64_t multiply_ints(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* Divides as C does; 0 where C has no answer. */
static int64_t divide_ints(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? subtract_ints(0, a) : a / b;
}

static int64_t floor_divide_ints(int64_t a, int64_t b)
{
    int64_t q = divide_ints(a, b);
    return q - (multiply_ints(q, b) != a && b != 0 && (a < 0) != (b < 0));
}

static int64_t power_ints(int64_t a, int64_t b)
{
    int64_t y = 1;
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    for (; b > 0; b /= 2, a = multiply_ints(a, a))
        y = b % 2 ? multiply_ints(y, a) : y;
    return y;
}

static double remainder_of(double a, double b)
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Divides as Python's // does, and PyTorch. */
static double floor_divide(double a, double b)
{
    double r = fmod(a, b), q = (a - r) / b;
    if (b == 0)
        return a / b;
    q -= r != 0 && (r < 0) != (b < 0);
    return q == 0 ? copysign(0, a / b) : floor(q) + (q - floor(q) > 0.5);
}

/* Computes n cells y of operands a, b and c. */
#define FOR_CELLS(member, type, from, formula)                                                     \
    for (int k = 0; k < p->n; k++) {                                                               \
        const type a = p->in[0][k].from, b = p->in[1][k].from, c = p->in[2][k].from;               \
        (void)a, (void)b, (void)c;                                                                 \
        p->y[k].member = (formula);                                                                \
    }
#define EACH(name, id, rule, operands, real, whole)                                                \
    static void each_##id(struct piece *const p)                                                   \
    {                                                                                              \
        if (host_is_float(p->as))                                                                  \
            FOR_CELLS(f, double, f, real)                                                          \
        else                                                                                       \
            FOR_CELLS(i, int64_t, i, whole)                                                        \
    }
#define ASKS(name, id, rule, operands, question)                                                   \
    static void each_##id(struct piece *const p)                                                   \
    {                                                                                              \
        if (host_is_float(p->as))                                                                  \
            FOR_CELLS(i, double, f, question)                                                      \
        else                                                                                       \
            FOR_CELLS(i, int64_t, i, question)                                                     \
    }
#include "fold_each.def"
#undef EACH
#undef ASKS

/* ---- which dtype */

struct operand {
    struct host_tensor t;
    bool is_number; /* of Python, which gives way to tensors */
    bool is_left_out;
};

/* Bool, integers, floats. */
static int rank_dtype(enum pt_dtype t)
{
    return t == PT_BOOL ? 0 : host_is_float(t) ? 2 : 1;
}

static enum pt_dtype join_dtypes(enum pt_dtype a, enum pt_dtype b)
{
    if (rank_dtype(a) != rank_dtype(b))
        return rank_dtype(a) > rank_dtype(b) ? a : b;
    if ((a == PT_U8 && b == PT_I8) || (a == PT_I8 && b == PT_U8))
        return PT_I16;
    return pt_dtype_bytes(a) >= pt_dtype_bytes(b) ? a : b;
}

/* PyTorch's type promotion: tensors with dimensions go before scalar tensors, these before numbers;
 * the later ones count only where they are of a higher kind. */
static enum pt_dtype promote_dtypes(int n, const struct operand *operands)
{
    enum pt_dtype all = PT_BOOL;
    bool any = false;
    for (int level = 0; level < 3; level++) {
        enum pt_dtype t = PT_BOOL;
        bool found = false;
        for (int i = 0; i < n; i++) {
            const struct operand *o = &operands[i];
            if (o->is_left_out || level != (o->is_number ? 2 : o->t.n_dims == 0 ? 1 : 0))
                continue;
            enum pt_dtype own = o->is_number && o->t.dtype == PT_F64 ? PT_F32 : o->t.dtype;
            t = found ? join_dtypes(t, own) : own;
            found = true;
        }
        if (found && (!any || rank_dtype(t) > rank_dtype(all)))
            all = t;
        any = any || found;
    }
    return all;
}

static enum pt_dtype choose_dtype(enum rule rule, int n, const struct operand *operands)
{
    if (rule == TRUTH)
        return PT_BOOL;
    bool chooses = rule == CHOOSE;
    enum pt_dtype t = promote_dtypes(n - chooses, operands + chooses);
    return rule == REAL && !host_is_float(t) ? PT_F32 : t;
}

/* ---- operators */

static int read_operand(const struct fold_call *c, const char *name, double otherwise,
                        struct operand *o)
{
    o->is_left_out = !call_has(c, name);
    if (o->is_left_out)
        return isnan(otherwise) ? HOST_UNKNOWN : host_number(c->pool, PT_F64, otherwise, &o->t);
    int rc = call_tensor(c, name, &o->t);
    if (rc != HOST_UNKNOWN)
        return rc;
    o->is_number = true;
    return call_number(c, name, &o->t);
}

/* An operator with an argument that is not an operand (decimals of round) is another function. */
static bool takes_arguments(const struct function *f, const struct pt_node *node)
{
    bool takes = true;
    for (int i = 0; i < node->n_args; i++) {
        bool is_operand =
            node->args[i].kind == PT_NONE || strcmp(node->args[i].name, "rounding_mode") == 0;
        for (int k = 0; k < OPERANDS && f->operands->names[k]; k++)
            is_operand = is_operand || strcmp(f->operands->names[k], node->args[i].name) == 0;
        takes = takes && is_operand;
    }
    return takes;
}

/* Broadcasts the operands and computes the output piece by piece. */
static int compute_function(struct fold_call *c, const struct function *f)
{
    struct operand o[OPERANDS] = {{.is_left_out = false}};
    struct piece p;
    struct host_walk w;
    const struct host_tensor *arrays[1 + OPERANDS] = {&c->out[0]};
    int n = 0, n_dims = 0;
    int64_t dims[PT_DIMS];
    if (!takes_arguments(f, c->node))
        return HOST_UNKNOWN;
    for (; n < OPERANDS && f->operands->names[n]; n++) {
        PP_TRY(read_operand(c, f->operands->names[n], f->operands->otherwise[n], &o[n]));
        PP_TRY(host_broadcast(&o[n].t, &n_dims, dims));
        arrays[n + 1] = &o[n].t;
    }
    for (int i = 0; i < n; i++)
        PP_TRY(host_expand(&o[i].t, n_dims, dims, &o[i].t));
    PP_TRY(host_make(c->pool, c->dtype, n_dims, dims, &c->out[0]));
    p.as = choose_dtype(f->rule, n, o);
    memset(p.in, 0, sizeof(p.in));
    PP_TRY(host_walk(c->pool, &w, n + 1, arrays));
    for (; w.n > 0; host_step(&w)) {
        p.n = w.n;
        for (int i = 0; i < n; i++)
            host_load(&o[i].t, w.at[i + 1], w.last[i + 1], w.n,
                      f->rule == CHOOSE && i == 0 ? PT_BOOL : p.as, p.in[i]);
        f->compute(&p);
        host_store(&c->out[0], w.at[0], w.last[0], w.n,
                   f->rule == ASK || f->rule == TRUTH ? PT_BOOL : p.as, p.y);
    }
    return 0;
}

static int run_function(struct fold_call *c)
{
    return compute_function(c, c->op->more);
}

/* clang-format off */
static const struct operand_list
    self = {{"self"}, {NAN}}, both = {{"self", "other"}, {NAN, NAN}},
    scaled = {{"self", "other", "alpha"}, {NAN, NAN, 1}},
    power = {{"self", "exponent"}, {NAN, NAN}},
    limits = {{"self", "min", "max"}, {NAN, -INFINITY, INFINITY}},
    choice = {{"condition", "self", "other"}, {NAN, NAN, NAN}},
    mask = {{"mask", "value", "self"}, {NAN, NAN, NAN}};
/* clang-format on */

/* div() with a rounding_mode is another function. */
static int run_div(struct fold_call *c)
{
    static const struct function div = {REAL, each_div, &both},
                                 down = {SAME, each_div_floor, &both},
                                 to_zero = {SAME, each_div_trunc, &both};
    const char *mode = call_text(c, "rounding_mode");
    bool floors = strcmp(mode, "floor") == 0, cuts = strcmp(mode, "trunc") == 0;
    return compute_function(c, floors ? &down : cuts ? &to_zero : &div);
}

#define EACH(name, id, rule, operands, ...)                                                        \
    {name, run_function, .flags = FOLD_FREE,                                                       \
     .more = &(const struct function){rule, each_##id, &operands}},
#define ASKS EACH
const struct fold_op fold_each_ops[] = {
    {"div", run_div, .flags = FOLD_FREE},
#include "fold_each.def"
    {.name = NULL},
};
