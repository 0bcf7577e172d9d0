/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which values of a graph are constants, and has them computed. A value that depends on the
 * number of samples has two tensors, one for a batch of 2 and one of 3; fold_read() checks that all
 * samples are alike.
 */
#include "fold.h"

#include "fold_ops.h"
#include "ppcli/base/base.h"

#define PASSES 2
#define FIRST_BATCH 2 /* samples of pass 0; one more in pass 1 */

struct known {
    bool is;     /* t is set */
    bool varies; /* may depend on the number of samples; else both tensors are one */
    struct host_tensor t[PASSES];
};

struct folder {
    const struct pt_program *p;
    struct host_pool pool;
    int node;            /* the last one given */
    struct known *known; /* [n_values] */
    int *uses;           /* [n_values] nodes and outputs of the program that are still to use it */
};

/* ---- operators */

/* Splits "aten.add_.Tensor" into "add" and "add.Tensor"; returns whether it writes in place. */
static bool split_target(const char *target, char name[64], char full[128])
{
    const char *base = strncmp(target, "aten.", 5) == 0 ? target + 5 : "";
    size_t n = strcspn(base, ".");
    bool writes = n > 1 && base[n - 1] == '_' && base[n - 2] != '_';
    snprintf(name, 64, "%.*s", (int)PP_MIN(n - writes, (size_t)63), base);
    snprintf(full, 128, "%s%.60s", name, base + n);
    return writes;
}

static const struct fold_op *find_fold_op(const char *target, bool *out_writes)
{
    const struct fold_op *const tables[] = {fold_each_ops, fold_line_ops, fold_shape_ops};
    char name[64], full[128];
    *out_writes = split_target(target, name, full);
    for (int t = 0; t < 3; t++)
        for (const struct fold_op *op = tables[t]; op->name; op++)
            if (strcmp(op->name, strchr(op->name, '.') ? full : name) == 0)
                return op;
    return NULL;
}

const char *fold_operator(int i)
{
    const struct fold_op *const tables[] = {fold_each_ops, fold_line_ops, fold_shape_ops};
    for (int t = 0; t < 3; t++)
        for (const struct fold_op *op = tables[t]; op->name; op++)
            if (i-- == 0)
                return op->name;
    return NULL;
}

/* ---- arguments */

static const struct pt_arg *find_arg(const struct fold_call *c, const char *name)
{
    const struct pt_arg *a = pt_arg_find(c->node, name);
    return a && a->kind != PT_NONE ? a : NULL;
}

bool call_has(const struct fold_call *c, const char *name)
{
    return find_arg(c, name) != NULL;
}

static int give_value(const struct fold_call *c, int value, struct host_tensor *out)
{
    if (!fold_knows(c->f, value))
        return HOST_UNKNOWN;
    *out = c->f->known[value].t[c->pass];
    return 0;
}

int call_tensor(const struct fold_call *c, const char *name, struct host_tensor *out)
{
    const struct pt_arg *a = find_arg(c, name);
    return a && a->kind == PT_TENSOR ? give_value(c, a->value, out) : HOST_UNKNOWN;
}

int call_item(const struct fold_call *c, const char *name, int i, struct host_tensor *out,
              bool *out_none)
{
    const struct pt_arg *a = find_arg(c, name);
    if (!a || a->kind != PT_TENSORS || i >= a->n)
        return HOST_UNKNOWN;
    *out_none = a->values[i] < 0;
    return *out_none ? 0 : give_value(c, a->values[i], out);
}

int call_length(const struct fold_call *c, const char *name)
{
    const struct pt_arg *a = find_arg(c, name);
    return a ? a->n : 0;
}

/* Computes a size for this batch. Of an expression that is not known, the reader says -1 batches. */
static int multiply_size(const struct pt_size *s, int batch, int64_t *out)
{
    bool known = !s->batch || s->n >= 0;
    return known && !__builtin_mul_overflow(s->n, s->batch ? batch : 1, out) ? 0 : HOST_UNKNOWN;
}

static int read_int(const struct fold_call *c, const struct pt_arg *a, int64_t *out)
{
    if (a->kind == PT_BOOL_ARG) {
        *out = a->flag;
        return 0;
    }
    return a->kind == PT_INT ? multiply_size(&a->size, c->batch, out) : HOST_UNKNOWN;
}

int call_int(const struct fold_call *c, const char *name, int64_t otherwise, int64_t *out)
{
    const struct pt_arg *a = find_arg(c, name);
    *out = otherwise;
    return a ? read_int(c, a, out) : 0;
}

int call_dim(const struct fold_call *c, const char *name, int64_t otherwise,
             const struct host_tensor *t, int *out)
{
    int64_t dim;
    PP_TRY(call_int(c, name, otherwise, &dim));
    return host_dim(t, dim, out);
}

bool call_flag(const struct fold_call *c, const char *name, bool otherwise)
{
    const struct pt_arg *a = find_arg(c, name);
    return a ? a->flag : otherwise;
}

const char *call_text(const struct fold_call *c, const char *name)
{
    const struct pt_arg *a = find_arg(c, name);
    return a && a->kind == PT_STRING ? a->text : "";
}

int call_ints(const struct fold_call *c, const char *name, int64_t out[2 * PT_DIMS], int *n)
{
    const struct pt_arg *a = find_arg(c, name);
    *n = 0;
    if (!a)
        return 0;
    if (a->kind == PT_INT) {
        *n = 1;
        return read_int(c, a, out);
    }
    if (a->kind != PT_INTS || a->n > 2 * PT_DIMS)
        return HOST_UNKNOWN;
    for (int i = 0; i < a->n; i++)
        PP_TRY(multiply_size(&a->sizes[i], c->batch, &out[i]));
    *n = a->n;
    return 0;
}

int call_number(const struct fold_call *c, const char *name, struct host_tensor *out)
{
    const struct pt_arg *a = find_arg(c, name);
    union host_cell cell = {.f = 0};
    if (a && a->kind == PT_FLOAT)
        return host_number(c->pool, PT_F64, a->number, out);
    if (!a)
        return HOST_UNKNOWN;
    PP_TRY(read_int(c, a, &cell.i));
    PP_TRY(host_make(c->pool, a->kind == PT_BOOL_ARG ? PT_BOOL : PT_I64, 0, NULL, out));
    host_store(out, 0, 0, 1, PT_I64, &cell);
    return 0;
}

int call_dims(const struct fold_call *c, int k, int *n_dims, int64_t dims[PT_DIMS])
{
    const struct pt_tensor *type = &c->f->p->values[c->node->outputs[k]].type;
    *n_dims = type->n_dims;
    for (int i = 0; i < type->n_dims; i++)
        PP_TRY(multiply_size(&type->dims[i], c->batch, &dims[i]));
    return 0;
}

int call_make(const struct fold_call *c)
{
    return host_make(c->pool, c->dtype, c->n_dims, c->dims, &c->out[0]);
}

/* ---- what is known from the beginning */

/* Calls visit() for each value that an argument names. */
static void visit_values(const struct pt_arg *a, void (*visit)(void *ctx, int value), void *ctx)
{
    if (a->kind == PT_TENSOR)
        visit(ctx, a->value);
    for (int i = 0; a->kind == PT_TENSORS && i < a->n; i++)
        if (a->values[i] >= 0)
            visit(ctx, a->values[i]);
}

/* Marks the weights that share memory with a weight that some node writes. */
static void mark_written(const struct pt_program *p, int value, bool *written)
{
    if (p->values[value].origin != PT_FROM_WEIGHT || p->values[value].index < 0)
        return;
    const struct pt_weight *w = &p->weights[p->values[value].index];
    for (int i = 0; i < p->n_weights; i++)
        written[i] =
            written[i] || &p->weights[i] == w || (w->bytes > 0 && p->weights[i].data == w->data);
}

/* Finds the weights that nodes write: in place, also through views, or as running statistics. */
static void find_written(const struct pt_program *p, int *roots, bool *written)
{
    for (int i = 0; i < p->n_values; i++)
        roots[i] = i;
    for (int n = 0; n < p->n_nodes; n++) {
        const struct pt_node *node = &p->nodes[n];
        bool writes;
        const struct fold_op *op = find_fold_op(node->target, &writes);
        const struct pt_arg *self = node->n_args > 0 ? &node->args[0] : NULL;
        for (int i = 0; i < node->n_args; i++)
            if (node->args[i].kind == PT_TENSOR && strncmp(node->args[i].name, "running_", 8) == 0)
                mark_written(p, roots[node->args[i].value], written);
        if (!self || self->kind != PT_TENSOR || (!writes && !(op && op->flags & FOLD_VIEW)))
            continue;
        for (int k = 0; k < node->n_outputs; k++)
            if (node->outputs[k] >= 0)
                roots[node->outputs[k]] = roots[self->value];
        if (writes && !(op && op->flags & FOLD_VIEW))
            mark_written(p, roots[self->value], written);
    }
}

/* Reads an element, of which the file has the bytes only, the lowest first. */
static void read_cell(const struct pt_weight *w, int64_t at, union host_cell *cell)
{
    const size_t bytes = pt_dtype_bytes(w->dtype), unused = 64 - 8 * bytes;
    bool is_unsigned = w->dtype == PT_U8 || w->dtype == PT_BOOL;
    float real;
    uint64_t whole = 0;
    memcpy(&whole, (const char *)w->data + (size_t)at * bytes, bytes);
    memcpy(&real, &whole, sizeof(real));
    cell->i = is_unsigned ? (int64_t)whole : (int64_t)(whole << unused) >> unused;
    if (w->dtype == PT_F32)
        cell->f = (double)real;
}

/* Copies a weight of the archive. */
static int load_weight(struct folder *f, const struct pt_weight *w, struct host_tensor *out)
{
    struct host_tensor t, place = {.n_dims = w->n_dims, .offset = w->offset};
    struct host_walk walk;
    union host_cell cells[HOST_PIECE];
    int64_t limit = (int64_t)(w->bytes / PP_MAX(pt_dtype_bytes(w->dtype), (size_t)1));
    PP_TRY(host_make(&f->pool, w->dtype, w->n_dims, w->dims, &t));
    memcpy(place.dims, w->dims, sizeof(place.dims));
    memcpy(place.strides, w->strides, sizeof(place.strides));
    const struct host_tensor *const arrays[] = {&t, &place};
    PP_TRY(host_walk(&f->pool, &walk, 2, arrays));
    for (; walk.n > 0; host_step(&walk)) {
        for (int k = 0; k < walk.n; k++) {
            int64_t at = walk.at[1] + k * walk.last[1];
            if (at < 0 || at >= limit)
                return HOST_UNKNOWN;
            read_cell(w, at, &cells[k]);
        }
        host_store(&t, walk.at[0], walk.last[0], walk.n, w->dtype, cells);
    }
    *out = t;
    return 0;
}

static void keep_tensors(struct known *k, int by)
{
    for (int i = 0; i < PASSES; i++)
        k->t[i].storage->refs += by;
}

/* Turns what no user sees into "not known". */
static int judge_result(int rc, bool *out_known)
{
    *out_known = rc == 0;
    return rc == HOST_UNKNOWN ? 0 : rc;
}

static int load_buffers(struct folder *f, const bool *written)
{
    for (int i = 0; i < f->p->n_weights; i++) {
        const struct pt_weight *w = &f->p->weights[i];
        if (w->kind == PT_PARAMETER || written[i] || w->value < 0 || w->bytes == 0)
            continue;
        struct known *k = &f->known[w->value];
        PP_TRY(judge_result(load_weight(f, w, &k->t[0]), &k->is));
        k->t[1] = k->t[0];
        if (k->is)
            keep_tensors(k, 1);
        host_sweep(&f->pool);
    }
    return 0;
}

/* ---- memory is given back after the last use of a value */

struct use {
    struct folder *f;
    int by;
};

static void release_value(struct folder *f, int value)
{
    if (f->known[value].is)
        keep_tensors(&f->known[value], -1);
    f->known[value].is = false;
}

static void count_use(void *ctx, int value)
{
    struct use *u = ctx;
    u->f->uses[value] += u->by;
    if (u->f->uses[value] == 0)
        release_value(u->f, value);
}

/* Adds `by` to the uses of all values of a node. */
static void count_uses(struct folder *f, const struct pt_node *node, int by)
{
    struct use u = {f, by};
    for (int k = 0; k < node->n_outputs; k++)
        if (node->outputs[k] >= 0)
            count_use(&u, node->outputs[k]);
    for (int i = 0; i < node->n_args; i++)
        visit_values(&node->args[i], count_use, &u);
}

int folder_create(const struct pt_program *p, struct folder **out)
{
    PP_OWN(folder_destroy) struct folder *f = pp_alloc(1, sizeof(*f));
    PP_TRY(f ? 0 : PP_ERESOURCE);
    f->p = p;
    f->node = -1;
    PP_ALLOC(f->known, p->n_values);
    PP_ALLOC(f->uses, p->n_values);
    for (int n = 0; n < p->n_nodes; n++)
        count_uses(f, &p->nodes[n], 1);
    for (int i = 0; i < p->n_outputs; i++)
        if (p->outputs[i] >= 0)
            f->uses[p->outputs[i]]++;
    PP_TAKE(int, roots, p->n_values);
    PP_TAKE(bool, written, p->n_weights);
    find_written(p, roots, written);
    PP_TRY(load_buffers(f, written));
    *out = f;
    f = NULL;
    return 0;
}

void folder_destroy(struct folder **f)
{
    if (!*f)
        return;
    for (int i = 0; (*f)->known && i < (*f)->p->n_values; i++)
        release_value(*f, i);
    host_sweep(&(*f)->pool);
    pp_free((*f)->known);
    pp_free((*f)->uses);
    pp_free(*f);
    *f = NULL;
}

/* ---- a node */

bool fold_knows(const struct folder *f, int value)
{
    const struct known *k = value >= 0 ? &f->known[value] : NULL;
    return k && k->is && k->t[0].storage->lost_after >= f->node &&
           k->t[1].storage->lost_after >= f->node;
}

struct reading {
    const struct folder *f;
    bool knows, varies;
};

static void note_reading(void *ctx, int value)
{
    struct reading *r = ctx;
    r->knows = r->knows && fold_knows(r->f, value);
    r->varies = r->varies || r->f->known[value].varies;
}

/* Returns whether all arguments are known, and whether the node depends on the number of samples. */
static struct reading look_at_node(const struct folder *f, const struct pt_node *node, int flags)
{
    struct reading r = {f, .knows = true};
    for (int i = 0; i < node->n_args; i++) {
        const struct pt_arg *a = &node->args[i];
        r.knows = r.knows && a->kind != PT_OTHER_ARG;
        r.varies = r.varies || (a->kind == PT_INT && a->size.batch);
        for (int k = 0; a->kind == PT_INTS && k < a->n; k++)
            r.varies = r.varies || a->sizes[k].batch;
        if (i > 1 || !(flags & (i == 0 ? FOLD_TYPE : FOLD_LIKE)))
            visit_values(a, note_reading, &r);
    }
    for (int k = 0; k < node->n_outputs; k++) {
        r.knows = r.knows && node->outputs[k] >= 0;
        for (int i = 0; r.knows && i < f->p->values[node->outputs[k]].type.n_dims; i++)
            r.varies = r.varies || f->p->values[node->outputs[k]].type.dims[i].batch;
    }
    return r;
}

/* A function and the archive must agree on the type of an output. */
static int check_output(const struct fold_call *c, int k)
{
    const struct host_tensor *t = &c->out[k];
    int n_dims;
    int64_t dims[PT_DIMS];
    PP_TRY(call_dims(c, k, &n_dims, dims));
    if (!t->storage || t->dtype != c->f->p->values[c->node->outputs[k]].type.dtype ||
        t->n_dims != n_dims)
        return HOST_UNKNOWN;
    return memcmp(t->dims, dims, (size_t)n_dims * sizeof(*dims)) == 0 ? 0 : HOST_UNKNOWN;
}

/* Sets what the operator's function needs, and calls it. */
static int call_op(struct fold_call *c)
{
    if (c->node->n_outputs < 1)
        return HOST_UNKNOWN;
    PP_TRY(call_dims(c, 0, &c->n_dims, c->dims));
    c->dtype = c->f->p->values[c->node->outputs[0]].type.dtype;
    if (!(c->op->flags & (FOLD_TYPE | FOLD_FREE)))
        PP_TRY(c->node->n_args > 0 ? call_tensor(c, c->node->args[0].name, &c->self)
                                   : HOST_UNKNOWN);
    PP_TRY(c->op->run(c));
    for (int k = 0; k < c->node->n_outputs; k++)
        PP_TRY(check_output(c, k));
    return 0;
}

/* Writes the result into the first argument, which is the output, too. */
static int write_in_place(const struct fold_call *c, bool varies)
{
    const struct pt_arg *self = &c->node->args[0];
    struct host_tensor t;
    if (self->kind != PT_TENSOR || c->node->n_outputs != 1 ||
        varies != c->f->known[self->value].varies)
        return HOST_UNKNOWN;
    PP_TRY(give_value(c, self->value, &t));
    if (t.storage->was_copied)
        return pp_fail(PP_ECONFIG,
                       "%s: %s (%s): cannot follow a write into memory that a view shares; write "
                       "into a copy (clone())",
                       c->f->p->file, c->node->path, c->node->source);
    PP_TRY(host_copy(c->pool, &t, &c->out[0]));
    c->out[0] = t;
    return 0;
}

/* Computes the outputs t[PASSES][n_outputs]. */
static int compute_node(struct folder *f, const struct pt_node *node, const struct fold_op *op,
                        bool writes, bool *out_varies, struct host_tensor *t)
{
    size_t n = (size_t)node->n_outputs;
    const struct reading r = look_at_node(f, node, op->flags);
    if (!r.knows || (writes && node->n_args == 0))
        return HOST_UNKNOWN;
    for (int pass = 0; pass < (r.varies ? PASSES : 1); pass++) {
        struct fold_call c = {.f = f,
                              .pool = &f->pool,
                              .node = node,
                              .op = op,
                              .pass = pass,
                              .batch = FIRST_BATCH + pass,
                              .out = t + (size_t)pass * n};
        PP_TRY(call_op(&c));
        if (writes && !(op->flags & FOLD_VIEW))
            PP_TRY(write_in_place(&c, r.varies));
    }
    if (!r.varies)
        memcpy(t + n, t, n * sizeof(*t));
    *out_varies = r.varies;
    return 0;
}

static void keep_outputs(struct folder *f, const struct pt_node *node, bool varies,
                         const struct host_tensor *t)
{
    for (int k = 0; k < node->n_outputs; k++) {
        release_value(f, node->outputs[k]);
        f->known[node->outputs[k]] = (struct known){true, varies, {t[k], t[node->n_outputs + k]}};
        keep_tensors(&f->known[node->outputs[k]], 1);
    }
}

/* What the first argument of a node shares memory with is unknown to the nodes that follow. */
static void lose_first(struct folder *f, const struct pt_node *node)
{
    const struct pt_arg *self = node->n_args > 0 ? &node->args[0] : NULL;
    if (!self || self->kind != PT_TENSOR || !fold_knows(f, self->value))
        return;
    for (int i = 0; i < PASSES; i++)
        f->known[self->value].t[i].storage->lost_after = f->node;
}

int fold_node(struct folder *f, int node, bool *out_known)
{
    const struct pt_node *n = &f->p->nodes[node];
    bool writes, varies = false;
    pp_assert(node == f->node + 1);
    if (f->node >= 0)
        count_uses(f, &f->p->nodes[f->node], -1);
    f->node = node;
    const struct fold_op *op = find_fold_op(n->target, &writes);
    PP_TAKE(struct host_tensor, t, PASSES * (size_t)n->n_outputs);
    int rc = op ? compute_node(f, n, op, writes, &varies, t) : HOST_UNKNOWN;
    if (rc == 0)
        keep_outputs(f, n, varies, t);
    else if (writes)
        lose_first(f, n);
    host_sweep(&f->pool);
    return judge_result(rc, out_known);
}

/* ---- reading */

static int compare_tensors(struct host_pool *pool, const struct host_tensor *a,
                           const struct host_tensor *b, bool *out_same)
{
    const struct host_tensor *const arrays[] = {a, b};
    union host_cell x[HOST_PIECE], y[HOST_PIECE];
    struct host_walk w;
    bool same = a->n_dims == b->n_dims &&
                memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof(*a->dims)) == 0;
    if (same)
        PP_TRY(host_walk(pool, &w, 2, arrays));
    for (; same && w.n > 0; host_step(&w)) {
        host_load(a, w.at[0], w.last[0], w.n, a->dtype, x);
        host_load(b, w.at[1], w.last[1], w.n, b->dtype, y);
        same = memcmp(x, y, (size_t)w.n * sizeof(*x)) == 0;
    }
    *out_same = same;
    return 0;
}

/* Sets *out to one sample of a value, and *out_dim to the dimension that holds the samples. *out_same:
 * all samples are alike. */
static int find_sample(struct folder *f, int value, struct host_tensor *out, int *out_dim,
                       bool *out_same)
{
    const struct pt_tensor *type = &f->p->values[value].type;
    const struct known *k = &f->known[value];
    struct host_tensor part;
    int dim = -1, dims = 0;
    bool same = true;
    for (int i = 0; i < type->n_dims; i++)
        if (type->dims[i].batch) {
            dim = i;
            dims++;
        }
    *out = k->t[0];
    if (dim >= 0)
        PP_TRY(host_narrow(&k->t[0], dim, 0, type->dims[dim].n, 1, out));
    for (int pass = 0; dims < 2 && k->varies && pass < PASSES; pass++)
        for (int b = 0; same && b < (dim < 0 ? 1 : FIRST_BATCH + pass); b++) {
            part = k->t[pass];
            if (dim >= 0)
                PP_TRY(host_narrow(&part, dim, b * out->dims[dim], out->dims[dim], 1, &part));
            PP_TRY(compare_tensors(&f->pool, out, &part, &same));
        }
    *out_dim = dim;
    *out_same = same && dims < 2;
    return 0;
}

static int refuse_value(const struct folder *f, int value, const char *why)
{
    const struct pt_value *v = &f->p->values[value];
    const struct pt_node *n =
        v->origin == PT_FROM_NODE && v->index >= 0 ? &f->p->nodes[v->index] : NULL;
    return pp_fail(PP_ECONFIG, "%s: %s%s%s%s%s: %s %s", f->p->file, n ? n->path : "",
                   n && n->path[0] ? " " : "", n ? "(" : "", n ? n->source : "", n ? ")" : "",
                   v->name, why);
}

/* Copies a tensor to an array without the dimensions that are broadcast. */
static int copy_constant(struct host_pool *pool, const struct host_tensor *t,
                         struct fold_constant *out)
{
    bool real = host_is_float(t->dtype);
    struct fold_constant c = {.dtype = t->dtype, .n_dims = t->n_dims, .n = 1, .batch_dim = -1};
    struct host_tensor thin = *t, copy;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        c.dims[i] = t->dims[i];
        thin.dims[i] = t->strides[i] == 0 ? PP_MIN(t->dims[i], 1) : t->dims[i];
        c.strides[i] = thin.dims[i] == 1 ? 0 : c.n;
        c.n *= thin.dims[i];
    }
    PP_TRY(host_clone(pool, &thin, real ? PT_F32 : PT_I64, &copy));
    if (real)
        c.floats = copy.storage->cells;
    else
        c.ints = copy.storage->cells;
    copy.storage->cells = NULL; /* the storage itself is swept */
    *out = c;
    return 0;
}

static int read_value(struct folder *f, int value, struct fold_constant *out)
{
    struct host_tensor sample;
    int dim;
    bool same;
    PP_TRY(find_sample(f, value, &sample, &dim, &same));
    if (!same)
        return refuse_value(f, value,
                            dim < 0 ? "depends on the number of samples in the batch"
                                    : "is a constant that is not the same for every sample");
    PP_TRY(copy_constant(&f->pool, &sample, out));
    out->batch_dim = dim;
    return 0;
}

int fold_read(struct folder *f, int value, struct fold_constant *out)
{
    pp_assert(fold_knows(f, value));
    int rc = read_value(f, value, out);
    host_sweep(&f->pool);
    return rc == HOST_UNKNOWN ? refuse_value(f, value, "is too large a constant") : rc;
}

void fold_constant_free(struct fold_constant *c)
{
    pp_free(c->floats);
    pp_free(c->ints);
    *c = (struct fold_constant){0};
}
