/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of constants along dimensions: sums, running sums, greatest values, sorting, products. A
 * line is the cells along the dimensions that an operator names; one function computes one line.
 */
#include "fold_ops.h"

#include <math.h>
#include <stdlib.h>

#include "ppcli/base/base.h"

/* A line of n cells makes m cells y, and z of a second output. Floats are summed in double. */
struct line {
    const struct fold_call *c;
    bool real; /* cells are floats */
    int64_t n, m;
    const union host_cell *x;
    union host_cell *y, *z;
};

/* The dtype to which cells are converted before, and the length of what a line makes. */
enum line_dtype {
    AS_OUTPUT,
    AS_SELF,
    AS_BOOL
};
enum line_length {
    TO_ONE,  /* any number of dimensions become one cell */
    TO_MANY, /* one dimension, as long as the output's */
};

struct line_kind {
    enum line_dtype dtype;
    enum line_length length;
    void (*compute)(struct line *l);
};

/* ---- functions of a line */

/* Sets each cell to the sum so far; one cell gets the last one. */
static void add_line(struct line *l)
{
    union host_cell sum = {.i = 0}; /* 0.0, too */
    l->y[0] = sum;
    for (int64_t k = 0; k < l->n; k++)
        l->y[PP_MIN(k, l->m - 1)] = sum = host_add(l->real, sum, l->x[k]);
}

static void average_line(struct line *l)
{
    add_line(l);
    l->y[0].f /= (double)l->n;
}

/* Orders cells; NaN is the greatest. */
static int compare_cells(bool real, const union host_cell *a, const union host_cell *b)
{
    if (!real)
        return (a->i > b->i) - (a->i < b->i);
    if (isnan(a->f) || isnan(b->f))
        return isnan(a->f) - isnan(b->f);
    return (a->f > b->f) - (a->f < b->f);
}

/* Finds the greatest (sign 1) or smallest (-1) cell, the first of those that are equal; NaN wins. */
static void find_extreme(struct line *l, int sign)
{
    int64_t best = 0;
    for (int64_t k = 1; k < l->n; k++) {
        if (l->real && isnan(l->x[best].f))
            break;
        if ((l->real && isnan(l->x[k].f)) ||
            sign * compare_cells(l->real, &l->x[k], &l->x[best]) > 0)
            best = k;
    }
    l->y[0] = l->x[best];
    l->z[0].i = best;
}

static void find_greatest(struct line *l)
{
    find_extreme(l, 1);
}

static void find_smallest(struct line *l)
{
    find_extreme(l, -1);
}

static void subtract_neighbours(struct line *l)
{
    const union host_cell minus = l->real ? (union host_cell){.f = -1} : (union host_cell){.i = -1};
    for (int64_t k = 0; k < l->m; k++)
        l->y[k] = host_add(l->real, l->x[k + 1], host_multiply(l->real, minus, l->x[k]));
}

struct sort_item {
    union host_cell value;
    int64_t index;
    bool real, falls;
};

/* Equal values keep their order. */
static int compare_items(const void *a, const void *b)
{
    const struct sort_item *x = a, *y = b;
    int order = compare_cells(x->real, &x->value, &y->value);
    if (order != 0)
        return x->falls ? -order : order;
    return (x->index > y->index) - (x->index < y->index);
}

/* Sorts a line, of which the first m cells are wanted. Without memory, m becomes 0. */
static void sort_line(struct line *l)
{
    bool falls = call_flag(l->c, "descending", false) || strcmp(l->c->op->name, "topk") == 0;
    PP_OWN_MEMORY struct sort_item *items = pp_alloc((size_t)l->n, sizeof(*items));
    falls = falls && call_flag(l->c, "largest", true);
    for (int64_t k = 0; items && k < l->n; k++)
        items[k] = (struct sort_item){l->x[k], k, l->real, falls};
    if (items)
        qsort(items, (size_t)l->n, sizeof(*items), compare_items);
    l->m = items ? l->m : 0;
    for (int64_t k = 0; k < l->m; k++) {
        l->y[k] = items[k].value;
        l->z[k].i = items[k].index;
    }
}

/* ---- operators along dimensions */

/* Moves the dimensions that the node names to the end, which become one: out[outer...][n]. first: the
 * dimension if it is one. */
static int gather_lines(const struct fold_call *c, const struct host_tensor *t, enum pt_dtype as,
                        int64_t otherwise, struct host_tensor *out, int *first)
{
    int64_t list[2 * PT_DIMS], dims[PT_DIMS + 1], n = 1;
    int n_list, n_moved = 0;
    struct host_tensor v = *t;
    bool moved[PT_DIMS] = {false};
    PP_TRY(call_ints(c, "dim", list, &n_list));
    if (n_list == 0 && otherwise)
        list[n_list++] = otherwise;
    for (int i = 0; i < n_list && t->n_dims > 0; i++) {
        PP_TRY(host_dim(t, list[i], first));
        moved[*first] = true;
    }
    for (int i = 0, at = 0; i < t->n_dims; i++) {
        if (n_list > 0 && !moved[i]) {
            dims[at++] = t->dims[i];
            continue;
        }
        PP_TRY(host_move_dim(&v, at, t->n_dims - 1, &v));
        n *= t->dims[i];
        n_moved++;
    }
    *first = n_moved == 1 ? *first : -1;
    PP_TRY(host_clone(c->pool, &v, as, &v));
    dims[t->n_dims - n_moved] = n;
    return host_reshape(c->pool, &v, t->n_dims - n_moved + 1, dims, out);
}

/* Runs the function over all lines of x[outer][n]; makes y[outer][m], and the indices z. */
static int compute_lines(struct fold_call *c, const struct line_kind *kind,
                         const struct host_tensor *x, struct host_tensor *y, struct host_tensor *z)
{
    const int64_t n = x->dims[x->n_dims - 1], m = y->dims[y->n_dims - 1];
    const int64_t outer = n > 0 ? host_count(x) / n : host_count(y);
    PP_TAKE(union host_cell, cells, n + 2 * m);
    for (int64_t r = 0; r < outer; r++) {
        struct line l = {c, host_is_float(x->dtype), n, m, cells, cells + n, cells + n + m};
        for (int64_t k = 0; k < n; k += HOST_PIECE)
            host_load(x, r * n + k, 1, (int)PP_MIN(n - k, HOST_PIECE), x->dtype, cells + k);
        kind->compute(&l);
        if (l.m != m)
            return PP_ERESOURCE;
        for (int64_t k = 0; k < m; k += HOST_PIECE) {
            int part = (int)PP_MIN(m - k, HOST_PIECE);
            host_store(y, r * m + k, 1, part, x->dtype, l.y + k);
            host_store(z, r * m + k, 1, part, PT_I64, l.z + k);
        }
    }
    return 0;
}

/* Gives the lines t[outer...][m] the form of an output. */
static int place_lines(const struct fold_call *c, const struct host_tensor *t, int first, int k)
{
    int n_dims;
    int64_t dims[PT_DIMS];
    PP_TRY(call_dims(c, k, &n_dims, dims));
    if (first < 0)
        return host_reshape(c->pool, t, n_dims, dims, &c->out[k]);
    return host_move_dim(t, t->n_dims - 1, first, &c->out[k]);
}

static int compute_along(struct fold_call *c, const struct line_kind *kind,
                         const struct host_tensor *self)
{
    enum pt_dtype as = kind->dtype == AS_BOOL   ? PT_BOOL
                       : kind->dtype == AS_SELF ? self->dtype
                                                : c->dtype;
    struct host_tensor x, y, z;
    int first = -1;
    int64_t dims[PT_DIMS];
    bool many = kind->length == TO_MANY;
    PP_TRY(gather_lines(c, self, as, many ? -1 : 0, &x, &first));
    int64_t n = x.dims[x.n_dims - 1];
    if (many && (first < 0 || first >= c->n_dims))
        return HOST_UNKNOWN;
    int64_t m = many ? c->dims[first] : 1;
    if (kind->compute == subtract_neighbours ? m != n - 1
        : kind->compute == sort_line         ? m > n
                                             : many && m != n)
        return HOST_UNKNOWN;
    if (n == 0 && (kind->compute == find_greatest || kind->compute == find_smallest))
        return HOST_UNKNOWN;
    memcpy(dims, x.dims, sizeof(dims));
    dims[x.n_dims - 1] = m;
    PP_TRY(host_make(c->pool, as, x.n_dims, dims, &y));
    PP_TRY(host_make(c->pool, PT_I64, x.n_dims, dims, &z));
    PP_TRY(compute_lines(c, kind, &x, &y, &z));
    first = many ? first : -1;
    PP_TRY(place_lines(c, c->op->which ? &z : &y, first, 0));
    return c->node->n_outputs > 1 ? place_lines(c, &z, first, 1) : 0;
}

static int run_along(struct fold_call *c)
{
    return compute_along(c, c->op->more, &c->self);
}

/* diff(): what goes before and after is joined first. */
static int run_diff(struct fold_call *c)
{
    struct host_tensor parts[3];
    int n = 0, dim;
    int64_t times;
    PP_TRY(call_int(c, "n", 1, &times));
    if (times != 1 || c->dtype == PT_BOOL)
        return HOST_UNKNOWN;
    if (call_has(c, "prepend"))
        PP_TRY(call_tensor(c, "prepend", &parts[n++]));
    PP_TRY(call_dim(c, "dim", -1, &c->self, &dim));
    parts[n++] = c->self;
    if (call_has(c, "append"))
        PP_TRY(call_tensor(c, "append", &parts[n++]));
    PP_TRY(fold_join(c->pool, n, parts, dim, c->dtype, &parts[0]));
    return compute_along(c, c->op->more, &parts[0]);
}

/* ---- products */

/* Sets out[...] to the sum over the last n_sum dimensions of a * b, which have the same dims. */
static int contract(struct fold_call *c, const struct host_tensor *a, const struct host_tensor *b,
                    int n_sum)
{
    struct host_tensor lead[2] = {*a, *b}, tail[2] = {*a, *b};
    const struct host_tensor *const outer[] = {&c->out[0], &lead[0], &lead[1]};
    const struct host_tensor *const inner[] = {&tail[0], &tail[1]};
    const enum pt_dtype as = c->dtype;
    const bool real = host_is_float(as);
    union host_cell x[HOST_PIECE], y[HOST_PIECE];
    struct host_walk w, v;
    int n_lead = a->n_dims - n_sum;
    for (int i = 0; i < 2; i++) {
        lead[i].n_dims = n_lead;
        tail[i].n_dims = n_sum;
        memmove(tail[i].dims, tail[i].dims + n_lead, (size_t)n_sum * sizeof(*tail->dims));
        memmove(tail[i].strides, tail[i].strides + n_lead, (size_t)n_sum * sizeof(*tail->dims));
    }
    PP_TRY(host_make(c->pool, as, n_lead, a->dims, &c->out[0]));
    PP_TRY(host_walk(c->pool, &w, 3, outer));
    for (; w.n > 0; host_step(&w)) {
        for (int k = 0; k < w.n; k++) {
            union host_cell sum = {.i = 0};
            tail[0].offset = w.at[1] + k * w.last[1];
            tail[1].offset = w.at[2] + k * w.last[2];
            PP_TRY(host_walk(c->pool, &v, 2, inner));
            for (; v.n > 0; host_step(&v)) {
                host_load(&tail[0], v.at[0], v.last[0], v.n, as, x);
                host_load(&tail[1], v.at[1], v.last[1], v.n, as, y);
                for (int i = 0; i < v.n; i++)
                    sum = host_add(real, sum, host_multiply(real, x[i], y[i]));
            }
            host_store(&c->out[0], w.at[0] + k * w.last[0], 0, 1, as, &sum);
        }
    }
    return 0;
}

/* Broadcasts both and contracts; the result gets the dims of the output, which may have fewer. */
static int multiply_tensors(struct fold_call *c, struct host_tensor *a, struct host_tensor *b,
                            int n_sum)
{
    int n_dims = 0;
    int64_t dims[PT_DIMS];
    PP_TRY(host_broadcast(a, &n_dims, dims));
    PP_TRY(host_broadcast(b, &n_dims, dims));
    PP_TRY(host_expand(a, n_dims, dims, a));
    PP_TRY(host_expand(b, n_dims, dims, b));
    PP_TRY(contract(c, a, b, n_sum));
    return host_reshape(c->pool, &c->out[0], c->n_dims, c->dims, &c->out[0]);
}

/* y[...][m][n] = a[...][m][k] b[...][k][n]; vectors are a matrix with one row or column. */
static int run_matmul(struct fold_call *c)
{
    struct host_tensor a = c->self, b;
    PP_TRY(call_tensor(c, c->op->more, &b));
    if (a.n_dims == 0 || b.n_dims == 0 || a.dims[a.n_dims - 1] != b.dims[PP_MAX(b.n_dims - 2, 0)])
        return HOST_UNKNOWN;
    if (a.n_dims == 1)
        PP_TRY(host_insert_dim(&a, 0, &a));
    if (b.n_dims == 1)
        PP_TRY(host_insert_dim(&b, 1, &b));
    PP_TRY(host_move_dim(&b, b.n_dims - 2, b.n_dims - 1, &b));
    PP_TRY(host_insert_dim(&a, a.n_dims - 1, &a));
    PP_TRY(host_insert_dim(&b, b.n_dims - 2, &b));
    return multiply_tensors(c, &a, &b, 1);
}

static int run_outer(struct fold_call *c)
{
    struct host_tensor a = c->self, b;
    PP_TRY(call_tensor(c, "vec2", &b));
    PP_TRY(host_insert_dim(&a, a.n_dims, &a));
    return multiply_tensors(c, &a, &b, 0);
}

/* Rearranges a tensor with a letter for each dimension to the dimensions that `order` names. */
static int arrange_letters(const struct host_tensor *t, const char *letters, const char *order,
                           struct host_tensor *out)
{
    struct host_tensor v = {.dtype = t->dtype, .offset = t->offset, .storage = t->storage};
    int used = 0;
    if (strlen(letters) != (size_t)t->n_dims)
        return HOST_UNKNOWN;
    for (; order[v.n_dims]; v.n_dims++) {
        const char *at = strchr(letters, order[v.n_dims]);
        v.dims[v.n_dims] = at ? t->dims[at - letters] : 1;
        v.strides[v.n_dims] = at ? t->strides[at - letters] : 0;
        used += at != NULL;
    }
    if (used != t->n_dims) /* a letter twice is not done here */
        return HOST_UNKNOWN;
    *out = v;
    return 0;
}

/* einsum() of two tensors, "bi,bj->bij". */
static int run_einsum(struct fold_call *c)
{
    struct host_tensor t[2];
    char text[64] = "", in[2][PT_DIMS + 1], order[PT_DIMS + 1];
    const char *from = call_text(c, "equation");
    bool none;
    int end = 0;
    for (size_t n = 0; *from && n < sizeof(text) - 1; from++)
        if (*from != ' ')
            text[n++] = *from;
    if (sscanf(text, "%8[a-zA-Z],%8[a-zA-Z]->%n", in[0], in[1], &end) != 2 || end == 0 ||
        strlen(text + end) > PT_DIMS || call_length(c, "tensors") != 2)
        return HOST_UNKNOWN;
    snprintf(order, sizeof(order), "%s", text + end);
    size_t n = strlen(order), n_out = n;
    for (int i = 0; i < 2; i++)
        for (const char *letter = in[i]; *letter; letter++)
            if (!strchr(order, *letter)) {
                if (n == PT_DIMS)
                    return HOST_UNKNOWN;
                order[n++] = *letter;
                order[n] = '\0';
            }
    for (int i = 0; i < 2; i++) {
        PP_TRY(call_item(c, "tensors", i, &t[i], &none));
        if (none)
            return HOST_UNKNOWN;
        PP_TRY(arrange_letters(&t[i], in[i], order, &t[i]));
    }
    return multiply_tensors(c, &t[0], &t[1], (int)(n - n_out));
}

/* INDEX: the output is what line.z holds. */
#define KIND(...)                                                                                  \
    .more = &(const struct line_kind)                                                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define ALONG(name, ...)                                                                           \
    {                                                                                              \
        name, run_along, KIND(__VA_ARGS__)                                                         \
    }
#define ALONG_INDEX(name, ...)                                                                     \
    {                                                                                              \
        name, run_along, .which = true, KIND(__VA_ARGS__)                                          \
    }
const struct fold_op fold_line_ops[] = {
    ALONG("sum", AS_OUTPUT, TO_ONE, add_line),
    ALONG("mean", AS_OUTPUT, TO_ONE, average_line),
    ALONG("any", AS_BOOL, TO_ONE, find_greatest),
    ALONG("all", AS_BOOL, TO_ONE, find_smallest),
    ALONG("max", AS_SELF, TO_ONE, find_greatest),
    ALONG("min", AS_SELF, TO_ONE, find_smallest),
    ALONG("amax", AS_SELF, TO_ONE, find_greatest),
    ALONG("amin", AS_SELF, TO_ONE, find_smallest),
    ALONG_INDEX("argmax", AS_SELF, TO_ONE, find_greatest),
    ALONG_INDEX("argmin", AS_SELF, TO_ONE, find_smallest),
    ALONG("cumsum", AS_OUTPUT, TO_MANY, add_line),
    ALONG("sort", AS_SELF, TO_MANY, sort_line),
    ALONG_INDEX("argsort", AS_SELF, TO_MANY, sort_line),
    ALONG("topk", AS_SELF, TO_MANY, sort_line),
    {"diff", run_diff, KIND(AS_OUTPUT, TO_MANY, subtract_neighbours)},
    {"matmul", run_matmul, .more = "other"},
    {"mm", run_matmul, .more = "mat2"},
    {"bmm", run_matmul, .more = "mat2"},
    {"mv", run_matmul, .more = "vec"},
    {"dot", run_matmul, .more = "tensor"},
    {"outer", run_outer, .flags = 0},
    {"einsum", run_einsum, .flags = FOLD_FREE},
    {.name = NULL},
};
