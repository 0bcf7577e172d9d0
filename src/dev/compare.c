/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend for hunting wrong numbers: every op runs on the CPU backend and on the plain defaults,
 * and the run stops at the first op whose results differ by more than its tolerance. The caller
 * gets the fast result, so a run that passes has exactly the fast backend's bits.
 *
 * The tolerances follow from the arithmetic, not from experience:
 *   products     a sum of K products is off by at most about sqrt(K) roundings (K in the worst
 *                case, which blocked summation does not meet) of a number no larger than the
 *                product of the two vectors' lengths: 2 eps (4 + sqrt(K)) * length * length
 *   added up     to what is there already: a rounding of that for each term
 *   the rest     ROUNDINGS eps, of the element or of the scale that the formula works at
 * and numbers so small that the CPU backend takes them for 0.
 *
 * Scratch grows to the largest op, so unlike other backends this one allocates while it runs. It
 * takes that from the C library: pp_realloc() is counted, and a step that moves the count is a bug.
 */
#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/mem.h"

extern const struct pp_backend_ops backend_cpu, backend_reference, backend_compare;

int compare_scratch(struct compare *c, size_t floats, float **out)
{
    if (floats > c->floats) {
        float *p = reallocarray(c->scratch, floats, sizeof(*p));
        if (!p)
            return pp_fail(PP_ERESOURCE, "compare: out of memory: %zu floats", floats);
        c->scratch = p;
        c->floats = floats;
    }
    *out = c->scratch;
    return 0;
}

/* Whether two numbers are further apart than that. Two NaNs are the same, and two infinities. */
static bool apart(double a, double b, double tolerance)
{
    return !(fabs(a - b) <= tolerance) && a != b && !(isnan(a) && isnan(b));
}

int compare_same(size_t n, const float *fast, const float *plain, double absolute, double relative,
                 size_t columns, const char *text, ...)
{
    size_t worst = 0, bad = 0;
    double most = 0;
    absolute += (1 << 20) * (double)FLT_MIN; /* terms below it are lost, and a norm enlarges */
    for (size_t i = 0; i < n; i++) {
        double a = fast[i], b = plain[i];
        if (a == b || (isnan(a) && isnan(b)))
            continue;
        double over = fabs(a - b) - (absolute + relative * fabs(b));
        if (over <= 0)
            continue;
        if (bad == 0 || isnan(over) || over > most) {
            worst = i;
            most = isnan(over) ? INFINITY : over;
        }
        bad++;
    }
    if (bad == 0)
        return 0;
    char what[128];
    va_list ap;
    va_start(ap, text);
    vsnprintf(what, sizeof(what), text, ap);
    va_end(ap);
    return pp_fail(PP_ECHECK,
                   "compare: %s[%zu][%zu] is %.9g, the plain version gives %.9g "
                   "(tolerance %.3g; %zu of %zu elements differ)",
                   what, worst / columns, worst % columns, (double)fast[worst],
                   (double)plain[worst], absolute + relative * fabs((double)plain[worst]), bad, n);
}

double compare_longest(int count, int length, size_t vs, size_t ks, const float *a)
{
    double most = 0;
    for (int v = 0; v < count; v++) {
        double sum = 0;
        for (int k = 0; k < length; k++) {
            double e = a[(size_t)v * vs + (size_t)k * ks];
            sum += e * e;
        }
        most = fmax(most, sum);
    }
    return sqrt(most);
}

double compare_greatest(size_t n, const float *a)
{
    double most = 0;
    for (size_t i = 0; a && i < n; i++)
        most = fmax(most, fabs((double)a[i]));
    return most;
}

static double product_tolerance(int K, double left, double right)
{
    return 2 * EPS * (4 + sqrt((double)K)) * left * right;
}

/* The copy belongs to the fast backend: the plain one reads W, so a stale copy is found too. */
static size_t packed_floats(const struct pp_backend_choice *choice, int O, int I)
{
    return backend_cpu.packed_floats(choice, O, I);
}

static int pack_weights(struct pp_backend *be, int O, int I, const float *W, float *packed)
{
    const struct compare *c = be->impl;
    return pp_backend_pack_weights(c->fast, O, I, W, packed);
}

static size_t conv_packed_floats(const struct pp_backend_choice *choice, const struct pp_conv *g)
{
    return backend_cpu.conv_packed_floats(choice, g);
}

static int conv_pack(struct pp_backend *be, const struct pp_conv *g, const float *W, float *packed)
{
    const struct compare *c = be->impl;
    return pp_backend_conv_pack(c->fast, g, W, packed);
}

static size_t conv_scratch_floats(const struct pp_backend_choice *choice, const struct pp_conv *g,
                                  int B)
{
    return backend_cpu.conv_scratch_floats(choice, g, B);
}

static int linear_forward(struct pp_backend *be, int B, int I, int O, const float *x,
                          const float *W, const float *packed, const float *b,
                          enum pp_activation act, float *z, float *y)
{
    struct compare *c = be->impl;
    size_t n = (size_t)B * (size_t)O;
    float *want;
    PP_TRY(compare_scratch(c, 2 * n, &want));
    PP_TRY(pp_backend_linear_forward(c->plain, B, I, O, x, W, NULL, b, act, z ? want + n : NULL,
                                     want));
    PP_TRY(pp_backend_linear_forward(c->fast, B, I, O, x, W, packed, b, act, z, y));
    double tolerance = pp_activation_facts(act)->steepest *
                           product_tolerance(I, compare_longest(B, I, (size_t)I, 1, x),
                                             compare_longest(O, I, (size_t)I, 1, W)) +
                       ROUNDINGS * EPS * compare_greatest((size_t)O, b);
    for (int k = z ? 0 : 1; k < 2; k++) {
        PP_TRY(compare_same(n, k == 0 ? z : y, k == 0 ? want + n : want, tolerance, ROUNDINGS * EPS,
                            (size_t)O, "linear_forward %dx%dx%d %s: %c", B, O, I,
                            pp_activation_name(act), "zy"[k]));
    }
    return 0;
}

static int linear_backward_input(struct pp_backend *be, int B, int I, int O, const float *dz,
                                 const float *W, const float *packed, float *dx)
{
    struct compare *c = be->impl;
    size_t n = (size_t)B * (size_t)I;
    float *want;
    PP_TRY(compare_scratch(c, n, &want));
    PP_TRY(pp_backend_linear_backward_input(c->plain, B, I, O, dz, W, NULL, want));
    PP_TRY(pp_backend_linear_backward_input(c->fast, B, I, O, dz, W, packed, dx));
    double lengths[2] = {compare_longest(B, O, (size_t)O, 1, dz),
                         compare_longest(I, O, 1, (size_t)I, W)};
    return compare_same(n, dx, want, product_tolerance(O, lengths[0], lengths[1]), 0, (size_t)I,
                        "linear_backward_input %dx%dx%d: dx", B, I, O);
}

static int linear_backward_weight(struct pp_backend *be, int n, const struct pp_weight_part *parts,
                                  int I, int O, float beta, float *dW, float *db)
{
    struct compare *c = be->impl;
    size_t oi = (size_t)O * (size_t)I;
    float *want;
    PP_TRY(compare_scratch(c, oi + (size_t)O, &want));
    double old[2] = {0, 0};
    if (beta != 0) {
        old[0] = compare_greatest(oi, dW);
        old[1] = compare_greatest((size_t)O, db);
        memcpy(want, dW, oi * sizeof(*want));
        if (db)
            memcpy(want + oi, db, (size_t)O * sizeof(*want));
    }
    PP_TRY(pp_backend_linear_backward_weight(c->plain, n, parts, I, O, beta, want,
                                             db ? want + oi : NULL));
    PP_TRY(pp_backend_linear_backward_weight(c->fast, n, parts, I, O, beta, dW, db));
    /* the sum of the parts' tolerances bounds that of one product over all their rows */
    double weight = 0, bias = 0;
    int rows = 0;
    for (const struct pp_weight_part *p = parts; p < parts + n; p++) {
        double length = compare_longest(O, p->B, 1, (size_t)O, p->dz);
        rows += p->B;
        weight += EPS * p->B * old[0] +
                  product_tolerance(rows, length, compare_longest(I, p->B, 1, (size_t)I, p->x));
        bias += EPS * p->B * old[1] + product_tolerance(rows, length, sqrt((double)p->B));
    }
    PP_TRY(compare_same(oi, dW, want, weight, ROUNDINGS * EPS, (size_t)I,
                        "linear_backward_weight %dx%dx%d beta %g: dW", O, I, rows, (double)beta));
    return compare_same(db ? (size_t)O : 0, db, want + oi, bias, ROUNDINGS * EPS, (size_t)O,
                        "linear_backward_weight %dx%dx%d beta %g: db", O, I, rows, (double)beta);
}

static int sum_squares(struct pp_backend *be, size_t n, const float *g, double *out)
{
    struct compare *c = be->impl;
    double fast, plain;
    PP_TRY(pp_backend_sum_squares(c->plain, n, g, &plain));
    PP_TRY(pp_backend_sum_squares(c->fast, n, g, &fast));
    if (apart(fast, plain, 1e-12 * plain)) {
        return pp_fail(PP_ECHECK,
                       "compare: sum_squares of %zu is %.17g, the plain version gives %.17g", n,
                       fast, plain);
    }
    *out = fast;
    return 0;
}

static int largest(struct pp_backend *be, size_t n, const float *x, float *io)
{
    struct compare *c = be->impl;
    float fast = *io, plain = *io;
    PP_TRY(pp_backend_largest(c->plain, n, x, &plain));
    PP_TRY(pp_backend_largest(c->fast, n, x, &fast));
    if (apart(fast, plain, 0)) {
        return pp_fail(PP_ECHECK, "compare: largest of %zu is %.9g, the plain version gives %.9g",
                       n, (double)fast, (double)plain);
    }
    *io = fast;
    return 0;
}

static int optimizer_step(struct pp_backend *be, size_t n, const struct pp_optimizer_args *a,
                          bool decay, const float *g, float *m, float *v, float *p)
{
    struct compare *c = be->impl;
    const char *names[3] = {"p", "m", "v"};
    float *got[3] = {p, m, v}, *want[3] = {NULL};
    double scale[3] = {0}, g_scale = compare_greatest(n, g) * fabs((double)a->grad_scale);
    float *s;
    PP_TRY(compare_scratch(c, 3 * n, &s));
    for (int k = 0; k < 3; k++) {
        if (got[k]) {
            want[k] = s + (size_t)k * n;
            memcpy(want[k], got[k], n * sizeof(*s));
            scale[k] = compare_greatest(n, got[k]);
        }
    }
    PP_TRY(pp_backend_optimizer_step(c->plain, n, a, decay, g, want[1], want[2], want[0]));
    PP_TRY(pp_backend_optimizer_step(c->fast, n, a, decay, g, m, v, p));
    g_scale += fabs((double)a->weight_decay) * scale[0];
    scale[1] = fmax(scale[1], g_scale);
    scale[2] = fmax(scale[2], g_scale * g_scale);
    bool adam = a->kind == PP_OPT_ADAM || a->kind == PP_OPT_ADAMW;
    /* One step moves p by lr * (about 1 for Adam, else the gradient or the velocity). */
    scale[0] += fabs((double)a->lr) * (adam ? 100 : scale[1]);
    for (int k = 0; k < 3; k++) {
        if (got[k]) {
            PP_TRY(compare_same(n, got[k], want[k], ROUNDINGS * EPS * scale[k], ROUNDINGS * EPS, n,
                                "optimizer_step %zu %s step %lld: %s", n,
                                pp_optimizer_name(a->kind), (long long)a->step, names[k]));
        }
    }
    return 0;
}

static int probe(char *why, size_t bytes)
{
    return backend_cpu.probe(why, bytes);
}

static void compare_close(struct pp_backend *be)
{
    PP_OWN_MEMORY struct compare *c = be->impl;
    pp_backend_close(&c->fast);
    pp_backend_close(&c->plain);
    free(c->scratch);
}

int compare_open_with(struct pp_backend *be, const struct pp_backend_ops *fast, int threads)
{
    struct compare *c;
    PP_ALLOC(c, 1);
    be->impl = c;
    int rc = pp_backend_open(&backend_reference, threads, &c->plain);
    if (rc == 0) {
        struct pp_backend_choice choice = be->choice;
        choice.ops = fast;
        rc = pp_backend_open_choice(&choice, &c->fast);
    }
    PP_TRY_UNDO(rc, compare_close(be));
    be->caps = c->fast->caps;
    snprintf(be->description, sizeof(be->description), "compare: %.90s against plain loops",
             c->fast->description);
    return 0;
}

static int compare_open(struct pp_backend *be, int threads)
{
    return compare_open_with(be, &backend_cpu, threads);
}

const struct pp_backend_ops backend_compare = {
    .name = "compare",
    .help = "every op on cpu and on reference; stops where they differ (slow)",
    .probe = probe,
    .open = compare_open,
    .close = compare_close,
    .packed_floats = packed_floats,
    .pack_weights = pack_weights,
    .conv_packed_floats = conv_packed_floats,
    .conv_pack = conv_pack,
    .conv_scratch_floats = conv_scratch_floats,
    .linear_forward = linear_forward,
    .linear_backward_input = linear_backward_input,
    .linear_backward_weight = linear_backward_weight,
    .sum_squares = sum_squares,
    .largest = largest,
    .optimizer_step = optimizer_step,
#define PP_KERNEL(name, type) .name = compare_##name,
#include "ppcli/kernels.def"
};
