/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of constants that compute nothing: views, copies, new tensors, joining and indexing. */
#include "fold_ops.h"

#include "ppcli/base/base.h"

/* ---- views */

/* The output has the cells of the input in their order. PyTorch's view() shares memory always; where
 * the strides here cannot, a later write is refused. */
static int run_reshape(struct fold_call *c)
{
    bool may_copy = c->op->which;
    PP_TRY(host_reshape(c->pool, &c->self, c->n_dims, c->dims, &c->out[0]));
    if (c->out[0].storage != c->self.storage && !may_copy)
        c->out[0].storage->was_copied = c->self.storage->was_copied = true;
    return 0;
}

/* Orders dimensions anew; where the operator has no arguments, the last one first. */
static int run_permute(struct fold_call *c)
{
    const struct host_tensor *t = &c->self;
    int64_t order[2 * PT_DIMS];
    int n, from, used = 0;
    PP_TRY(call_ints(c, "dims", order, &n));
    for (; !call_has(c, "dims") && n < t->n_dims; n++)
        order[n] = t->n_dims - 1 - n;
    if (n != t->n_dims)
        return HOST_UNKNOWN;
    c->out[0] = *t;
    for (int i = 0; i < n; i++) {
        PP_TRY(host_dim(t, order[i], &from));
        used |= 1 << from;
        c->out[0].dims[i] = t->dims[from];
        c->out[0].strides[i] = t->strides[from];
    }
    return used == (1 << n) - 1 ? 0 : HOST_UNKNOWN;
}

/* Swaps two dimensions. */
static int run_transpose(struct fold_call *c)
{
    const struct host_tensor *t = &c->self;
    bool is_axis = call_has(c, "axis0");
    int a, b;
    PP_TRY(call_dim(c, is_axis ? "axis0" : "dim0", -2, t, &a));
    PP_TRY(call_dim(c, is_axis ? "axis1" : "dim1", -1, t, &b));
    c->out[0] = *t;
    c->out[0].dims[a] = t->dims[b];
    c->out[0].strides[a] = t->strides[b];
    c->out[0].dims[b] = t->dims[a];
    c->out[0].strides[b] = t->strides[a];
    return 0;
}

static int run_expand(struct fold_call *c)
{
    return host_expand(&c->self, c->n_dims, c->dims, &c->out[0]);
}

static int run_select(struct fold_call *c)
{
    int dim;
    int64_t index;
    PP_TRY(call_dim(c, "dim", 0, &c->self, &dim));
    PP_TRY(call_int(c, "index", 0, &index));
    return host_select(&c->self, dim, index, &c->out[0]);
}

/* Returns a position in a dimension as Python's slices take it. */
static int64_t clip_index(int64_t i, int64_t size)
{
    i += i < 0 ? size : 0;
    return PP_MAX(PP_MIN(i, size), 0);
}

/* slice(), and narrow() with a length in place of the end. */
static int run_slice(struct fold_call *c)
{
    int dim;
    int64_t start, end, length, step;
    PP_TRY(call_dim(c, "dim", 0, &c->self, &dim));
    PP_TRY(call_int(c, "start", 0, &start));
    PP_TRY(call_int(c, "end", INT64_MAX, &end));
    PP_TRY(call_int(c, "step", 1, &step));
    if (step < 1)
        return HOST_UNKNOWN;
    int64_t size = c->self.dims[dim];
    start = clip_index(start, size);
    length = PP_MAX(clip_index(end, size) - start, 0);
    PP_TRY(call_int(c, "length", length / step + (length % step != 0), &length));
    return host_narrow(&c->self, dim, start, length, step, &c->out[0]);
}

/* Cuts a dimension into the lengths that the outputs have. */
static int run_split(struct fold_call *c)
{
    int dim, n_dims;
    int64_t dims[PT_DIMS], start = 0;
    PP_TRY(call_dim(c, "dim", 0, &c->self, &dim));
    for (int k = 0; k < c->node->n_outputs; k++, start += dims[dim]) {
        PP_TRY(call_dims(c, k, &n_dims, dims));
        if (n_dims != c->self.n_dims)
            return HOST_UNKNOWN;
        PP_TRY(host_narrow(&c->self, dim, start, dims[dim], 1, &c->out[k]));
    }
    return 0;
}

static int run_unbind(struct fold_call *c)
{
    int dim;
    PP_TRY(call_dim(c, "dim", 0, &c->self, &dim));
    for (int k = 0; k < c->node->n_outputs; k++)
        PP_TRY(host_select(&c->self, dim, k, &c->out[k]));
    return 0;
}

/* meshgrid(): each vector lies along its dimension. */
static int run_meshgrid(struct fold_call *c)
{
    bool swaps = strcmp(call_text(c, "indexing"), "xy") == 0, none;
    struct host_tensor t;
    for (int k = 0; k < c->node->n_outputs; k++) {
        int64_t thin[PT_DIMS];
        PP_TRY(call_item(c, "tensors", k, &t, &none));
        if (none)
            return HOST_UNKNOWN;
        for (int i = 0; i < c->n_dims; i++)
            thin[i] = i == (swaps && k < 2 ? 1 - k : k) ? host_count(&t) : 1;
        PP_TRY(host_reshape(c->pool, &t, c->n_dims, thin, &t));
        PP_TRY(host_expand(&t, c->n_dims, c->dims, &c->out[k]));
    }
    return 0;
}

/* ---- copies */

enum copying {
    SHARE,      /* the input itself if it has the dtype already */
    SHARE_FLAT, /* and if it has no gaps */
    COPY,
};

static bool is_contiguous(const struct host_tensor *t)
{
    int64_t stride = 1;
    bool is = true;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        is = is && (t->dims[i] == 1 || t->strides[i] == stride);
        stride *= PP_MAX(t->dims[i], 1);
    }
    return is;
}

static int run_copy(struct fold_call *c)
{
    struct host_tensor t = c->self;
    if (call_has(c, "src"))
        PP_TRY(call_tensor(c, "src", &t));
    PP_TRY(host_expand(&t, c->n_dims, c->dims, &t));
    c->out[0] = t;
    if (c->op->which != COPY && t.dtype == c->dtype && !call_flag(c, "copy", false) &&
        (c->op->which == SHARE || is_contiguous(&t)))
        return 0;
    return host_clone(c->pool, &t, c->dtype, &c->out[0]);
}

int fold_join(struct host_pool *pool, int n, const struct host_tensor *parts, int dim,
              enum pt_dtype dtype, struct host_tensor *out)
{
    struct host_tensor y, place;
    int64_t dims[PT_DIMS], start = 0;
    if (n == 0 || dim >= parts[0].n_dims)
        return HOST_UNKNOWN;
    memcpy(dims, parts[0].dims, sizeof(dims));
    for (int i = 1; i < n; i++) {
        if (parts[i].n_dims != parts[0].n_dims)
            return HOST_UNKNOWN;
        dims[dim] += parts[i].dims[dim];
    }
    PP_TRY(host_make(pool, dtype, parts[0].n_dims, dims, &y));
    for (int i = 0; i < n; i++) {
        PP_TRY(host_narrow(&y, dim, start, parts[i].dims[dim], 1, &place));
        PP_TRY(host_copy(pool, &place, &parts[i]));
        start += parts[i].dims[dim];
    }
    *out = y;
    return 0;
}

/* cat() and stack(), which inserts a dimension into each part. */
static int run_join(struct fold_call *c)
{
    bool stacks = c->op->which, none;
    int n = call_length(c, "tensors"), kept = 0, dim = 0;
    struct host_tensor place = {.n_dims = 0};
    PP_TAKE(struct host_tensor, parts, n);
    for (int i = 0; i < n; i++) {
        struct host_tensor *t = &parts[kept];
        PP_TRY(call_item(c, "tensors", i, t, &none));
        if (none)
            return HOST_UNKNOWN;
        /* cat() passes over vectors of length 0, whatever the dims of the others */
        if (!stacks && t->n_dims == 1 && t->dims[0] == 0)
            continue;
        place.n_dims = t->n_dims + stacks;
        PP_TRY(call_dim(c, "dim", 0, &place, &dim));
        if (stacks)
            PP_TRY(host_insert_dim(t, dim, t));
        kept++;
    }
    return fold_join(c->pool, kept, parts, dim, c->dtype, &c->out[0]);
}

/* repeat(): each dimension several times, also new ones in front. */
static int run_repeat(struct fold_call *c)
{
    struct host_tensor t = c->self, part;
    int64_t times[2 * PT_DIMS];
    int n;
    PP_TRY(call_ints(c, "repeats", times, &n));
    while (t.n_dims < n)
        PP_TRY(host_insert_dim(&t, 0, &t));
    for (int i = 0; i < n; i++)
        if (n != c->n_dims || times[i] < 0 || times[i] > INT32_MAX ||
            times[i] * t.dims[i] != c->dims[i])
            return HOST_UNKNOWN;
    PP_TRY(call_make(c));
    /* the output as [times][size] for each dimension, one copy of the input at a time */
    for (int64_t k = 0; k < host_count(&c->out[0]) / PP_MAX(host_count(&t), 1); k++) {
        int64_t left = k;
        part = c->out[0];
        for (int i = 0; i < n; left /= times[i], i++)
            PP_TRY(host_narrow(&part, i, left % times[i] * t.dims[i], t.dims[i], 1, &part));
        PP_TRY(host_copy(c->pool, &part, &t));
    }
    return 0;
}

static int run_roll(struct fold_call *c)
{
    struct host_tensor t = c->self, parts[2];
    int64_t shifts[2 * PT_DIMS], dims[2 * PT_DIMS];
    int n, n_dims, dim;
    PP_TRY(call_ints(c, "shifts", shifts, &n));
    PP_TRY(call_ints(c, "dims", dims, &n_dims));
    if (n != n_dims)
        return HOST_UNKNOWN;
    for (int i = 0; i < n; i++) {
        PP_TRY(host_dim(&t, dims[i], &dim));
        if (t.n_dims == 0 || t.dims[dim] == 0)
            return HOST_UNKNOWN;
        int64_t size = t.dims[dim], by = (shifts[i] % size + size) % size;
        PP_TRY(host_narrow(&t, dim, size - by, by, 1, &parts[0]));
        PP_TRY(host_narrow(&t, dim, 0, size - by, 1, &parts[1]));
        PP_TRY(fold_join(c->pool, 2, parts, dim, t.dtype, &t));
    }
    return host_clone(c->pool, &t, t.dtype, &c->out[0]);
}

static int run_flip(struct fold_call *c)
{
    struct host_tensor t = c->self;
    int64_t dims[2 * PT_DIMS];
    int n, dim;
    PP_TRY(call_ints(c, "dims", dims, &n));
    for (int i = 0; i < n; i++) {
        PP_TRY(host_dim(&t, dims[i], &dim));
        if (t.n_dims == 0)
            return HOST_UNKNOWN;
        t.offset += PP_MAX(t.dims[dim] - 1, 0) * t.strides[dim];
        t.strides[dim] *= -1;
    }
    return host_clone(c->pool, &t, t.dtype, &c->out[0]);
}

/* ---- new tensors */

static int fill_tensor(struct fold_call *c, const struct host_tensor *t,
                       const struct host_tensor *number)
{
    struct host_tensor all;
    PP_TRY(host_expand(number, t->n_dims, t->dims, &all));
    return host_copy(c->pool, t, &all);
}

/* Reads a number or a tensor with one cell. */
static int read_scalar(const struct fold_call *c, const char *name, struct host_tensor *out)
{
    int rc = call_tensor(c, name, out);
    PP_TRY(rc == HOST_UNKNOWN ? call_number(c, name, out) : rc);
    return out->n_dims == 0 ? 0 : HOST_UNKNOWN;
}

/* Makes a tensor of one number: that of an argument, or `which`. */
static int run_fill(struct fold_call *c)
{
    struct host_tensor number;
    if (c->op->more)
        PP_TRY(read_scalar(c, c->op->more, &number));
    else
        PP_TRY(host_number(c->pool, PT_F64, c->op->which, &number));
    PP_TRY(call_make(c));
    return fill_tensor(c, &c->out[0], &number);
}

/* constant_pad_nd(): pairs of lengths, those of the last dimension first. */
static int run_pad(struct fold_call *c)
{
    struct host_tensor t = c->self, place, number;
    int64_t pad[2 * PT_DIMS];
    int n;
    const char *mode = call_text(c, "mode");
    PP_TRY(call_ints(c, "pad", pad, &n));
    if (n % 2 || n / 2 > t.n_dims || (mode[0] && strcmp(mode, "constant") != 0))
        return HOST_UNKNOWN;
    PP_TRY(call_make(c));
    if (call_has(c, "value")) {
        PP_TRY(call_number(c, "value", &number));
        PP_TRY(fill_tensor(c, &c->out[0], &number));
    }
    place = c->out[0];
    for (int i = 0; i < n / 2; i++) {
        int dim = t.n_dims - 1 - i;
        const int64_t *sides = &pad[2 * (size_t)i];
        if (place.n_dims != t.n_dims || sides[0] < 0 || sides[1] < 0)
            return HOST_UNKNOWN;
        PP_TRY(host_narrow(&place, dim, sides[0], t.dims[dim], 1, &place));
    }
    return host_copy(c->pool, &place, &t);
}

/* Stores start + k * step, computed in float64 or int64. */
static int store_range(const struct host_tensor *t, double start, double step, int64_t first,
                       int64_t by)
{
    union host_cell cell;
    bool real = host_is_float(t->dtype);
    for (int64_t k = 0; k < host_count(t); k++) {
        if (real)
            cell.f = start + (double)k * step;
        else
            cell.i = (int64_t)((uint64_t)first + (uint64_t)k * (uint64_t)by);
        host_store(t, k, 0, 1, real ? PT_F64 : PT_I64, &cell);
    }
    return 0;
}

/* Reads a number as a float and as an integer. */
static int read_step(const struct fold_call *c, const char *name, int otherwise, double *real,
                     int64_t *whole)
{
    struct host_tensor t;
    union host_cell cell;
    *real = *whole = otherwise;
    if (!call_has(c, name))
        return 0;
    PP_TRY(read_scalar(c, name, &t));
    host_load(&t, t.offset, 0, 1, PT_F64, &cell);
    *real = cell.f;
    host_load(&t, t.offset, 0, 1, PT_I64, &cell);
    *whole = cell.i;
    return 0;
}

static int run_arange(struct fold_call *c)
{
    double start, step;
    int64_t first, by;
    PP_TRY(read_step(c, "start", 0, &start, &first));
    PP_TRY(read_step(c, "step", 1, &step, &by));
    PP_TRY(call_make(c));
    return store_range(&c->out[0], start, step, first, by);
}

/* linspace(): the second half counts from the end, so that the last cell is exact. */
static int run_linspace(struct fold_call *c)
{
    double start, end;
    int64_t ignored;
    PP_TRY(read_step(c, "start", 0, &start, &ignored));
    PP_TRY(read_step(c, "end", 0, &end, &ignored));
    PP_TRY(call_make(c));
    int64_t n = host_count(&c->out[0]);
    double step = n > 1 ? (end - start) / (double)(n - 1) : 0;
    for (int64_t k = 0; k < n; k++) {
        const union host_cell cell = {.f = k < n / 2 || n == 1 ? start + (double)k * step
                                                               : end - (double)(n - 1 - k) * step};
        host_store(&c->out[0], k, 0, 1, PT_F64, &cell);
    }
    return 0;
}

/* triu() and tril(): zeros below or above a diagonal. */
static int run_triangle(struct fold_call *c)
{
    bool upper = strcmp(c->op->name, "triu") == 0;
    struct host_tensor t = c->self, row, zero;
    int64_t diagonal;
    PP_TRY(call_int(c, "diagonal", 0, &diagonal));
    PP_TRY(host_clone(c->pool, &t, t.dtype, &c->out[0]));
    PP_TRY(host_number(c->pool, PT_F64, 0, &zero));
    if (t.n_dims < 2)
        return HOST_UNKNOWN;
    int64_t n = t.dims[t.n_dims - 1];
    diagonal = PP_MAX(PP_MIN(diagonal, INT32_MAX), -INT32_MAX);
    for (int64_t i = 0; i < t.dims[t.n_dims - 2]; i++) {
        int64_t border = PP_MAX(PP_MIN(i + diagonal + !upper, n), 0);
        PP_TRY(host_select(&c->out[0], t.n_dims - 2, i, &row));
        PP_TRY(host_narrow(&row, row.n_dims - 1, upper ? 0 : border, upper ? border : n - border, 1,
                           &row));
        PP_TRY(fill_tensor(c, &row, &zero));
    }
    return 0;
}

/* ---- indexing */

/* The cells that an operator reads or writes: `base` has their dims and the strides of what is not
 * indexed; `places` has the same dims and holds the distance that the indices add. */
struct pick {
    struct host_tensor base, places;
};

/* Adds the distance of indices into a dimension of `size` cells to places of the same dims. */
static int add_distance(struct host_pool *pool, const struct host_tensor *places,
                        const struct host_tensor *index, int64_t size, int64_t stride)
{
    const struct host_tensor *const arrays[] = {places, index};
    union host_cell x[HOST_PIECE], y[HOST_PIECE];
    struct host_walk w;
    if (host_is_float(index->dtype) || index->dtype == PT_BOOL)
        return HOST_UNKNOWN;
    PP_TRY(host_walk(pool, &w, 2, arrays));
    for (; w.n > 0; host_step(&w)) {
        host_load(places, w.at[0], w.last[0], w.n, PT_I64, x);
        host_load(index, w.at[1], w.last[1], w.n, PT_I64, y);
        for (int k = 0; k < w.n; k++) {
            int64_t i = y[k].i < 0 ? y[k].i + size : y[k].i;
            if (i < 0 || i >= size)
                return HOST_UNKNOWN;
            x[k].i += i * stride;
        }
        host_store(places, w.at[0], w.last[0], w.n, PT_I64, x);
    }
    return 0;
}

/* Copies the picked cells to t, or t to them; adds: to what is there. */
static int move_cells(struct host_pool *pool, const struct pick *p, const struct host_tensor *t,
                      bool puts, bool adds)
{
    const struct host_tensor *const arrays[] = {t, &p->base, &p->places};
    union host_cell x, y, place;
    struct host_walk w;
    enum pt_dtype as = p->base.dtype;
    PP_TRY(host_walk(pool, &w, 3, arrays));
    for (; w.n > 0; host_step(&w))
        for (int k = 0; k < w.n; k++) {
            int64_t at = w.at[0] + k * w.last[0], other = w.at[1] + k * w.last[1];
            host_load(&p->places, w.at[2] + k * w.last[2], 0, 1, PT_I64, &place);
            host_load(puts ? t : &p->base, puts ? at : other + place.i, 0, 1, as, &x);
            if (!puts) {
                host_store(t, at, 0, 1, as, &x);
                continue;
            }
            host_load(&p->base, other + place.i, 0, 1, as, &y);
            if (adds)
                x = host_add(host_is_float(as), x, y);
            host_store(&p->base, other + place.i, 0, 1, as, &x);
        }
    return 0;
}

/* Picks by several tensors of indices, as self[i, :, j] does: they are broadcast, and their dims
 * stand in the place of the first one if they are neighbours, else in front. */
static int pick_indexed(struct host_pool *pool, const struct host_tensor *t, int n,
                        const struct host_tensor *indices, const bool *none, struct pick *out)
{
    int n_dims = 0, first = -1, last = -1, count = 0, at = 0;
    int64_t dims[PT_DIMS];
    struct host_tensor places, index,
        base = {.dtype = t->dtype, .offset = t->offset, .storage = t->storage};
    for (int i = 0; i < n && i < t->n_dims; i++) {
        if (none[i])
            continue;
        PP_TRY(host_broadcast(&indices[i], &n_dims, dims));
        first = first < 0 ? i : first;
        last = i;
        count++;
    }
    if (count == 0 || n > t->n_dims || t->n_dims - count + n_dims > PT_DIMS)
        return HOST_UNKNOWN;
    PP_TRY(host_make(pool, PT_I64, n_dims, dims, &places));
    for (int i = 0; i < n; i++) {
        if (none[i])
            continue;
        PP_TRY(host_expand(&indices[i], n_dims, dims, &index));
        PP_TRY(add_distance(pool, &places, &index, t->dims[i], t->strides[i]));
    }
    int before = last - first + 1 == count ? first : 0, i = 0;
    out->places = base;
    for (; i < t->n_dims || at < before + n_dims;) {
        bool indexed = at >= before && at < before + n_dims;
        if (!indexed && i < n && !none[i]) {
            i++;
            continue;
        }
        base.dims[at] = indexed ? dims[at - before] : t->dims[i];
        base.strides[at] = indexed ? 0 : t->strides[i];
        out->places.strides[at] = indexed ? places.strides[at - before] : 0;
        i += !indexed;
        at++;
    }
    base.n_dims = at;
    places.n_dims = at;
    memcpy(places.dims, base.dims, sizeof(base.dims));
    memcpy(places.strides, out->places.strides, sizeof(base.strides));
    *out = (struct pick){base, places};
    return host_count(&base) < 0 ? HOST_UNKNOWN : 0;
}

/* Picks one cell for each index, along a dimension. */
static int pick_along(struct host_pool *pool, const struct host_tensor *t, int dim,
                      const struct host_tensor *index, struct pick *out)
{
    struct host_tensor base = *t, places;
    if (index->n_dims != t->n_dims || t->n_dims == 0)
        return HOST_UNKNOWN;
    for (int i = 0; i < t->n_dims; i++) {
        if (i != dim && index->dims[i] > t->dims[i])
            return HOST_UNKNOWN;
        base.dims[i] = index->dims[i];
    }
    base.strides[dim] = 0;
    PP_TRY(host_make(pool, PT_I64, index->n_dims, index->dims, &places));
    PP_TRY(add_distance(pool, &places, index, t->dims[dim], t->strides[dim]));
    *out = (struct pick){base, places};
    return 0;
}

static int take_picked(struct fold_call *c, const struct pick *p)
{
    PP_TRY(host_make(c->pool, p->base.dtype, p->base.n_dims, p->base.dims, &c->out[0]));
    return move_cells(c->pool, p, &c->out[0], false, false);
}

static int read_indices(const struct fold_call *c, struct host_tensor list[PT_DIMS],
                        bool none[PT_DIMS], int *n)
{
    *n = call_length(c, "indices");
    if (*n > PT_DIMS)
        return HOST_UNKNOWN;
    for (int i = 0; i < *n; i++)
        PP_TRY(call_item(c, "indices", i, &list[i], &none[i]));
    return 0;
}

static int run_index(struct fold_call *c)
{
    struct host_tensor list[PT_DIMS];
    bool none[PT_DIMS];
    struct pick p;
    int n;
    PP_TRY(read_indices(c, list, none, &n));
    PP_TRY(pick_indexed(c->pool, &c->self, n, list, none, &p));
    return take_picked(c, &p);
}

static int run_index_put(struct fold_call *c)
{
    struct host_tensor values, list[PT_DIMS];
    bool none[PT_DIMS];
    struct pick p;
    int n;
    PP_TRY(call_tensor(c, "values", &values));
    PP_TRY(read_indices(c, list, none, &n));
    PP_TRY(host_clone(c->pool, &c->self, c->self.dtype, &c->out[0]));
    PP_TRY(pick_indexed(c->pool, &c->out[0], n, list, none, &p));
    PP_TRY(host_expand(&values, p.base.n_dims, p.base.dims, &values));
    return move_cells(c->pool, &p, &values, true, call_flag(c, "accumulate", false));
}

/* index_select() and embedding(): one tensor of indices into one dimension. */
static int run_index_select(struct fold_call *c)
{
    struct host_tensor list[PT_DIMS];
    bool none[PT_DIMS];
    struct pick p;
    int dim;
    PP_TRY(call_dim(c, "dim", 0, &c->self, &dim));
    memset(none, true, sizeof(none));
    none[dim] = false;
    PP_TRY(call_tensor(c, c->op->more, &list[dim]));
    PP_TRY(pick_indexed(c->pool, &c->self, dim + 1, list, none, &p));
    return take_picked(c, &p);
}

static int run_gather(struct fold_call *c)
{
    struct host_tensor index;
    struct pick p;
    int dim;
    PP_TRY(call_dim(c, "dim", 0, &c->self, &dim));
    PP_TRY(call_tensor(c, "index", &index));
    PP_TRY(pick_along(c->pool, &c->self, dim, &index, &p));
    return take_picked(c, &p);
}

const struct fold_op fold_shape_ops[] = {
    {"view", run_reshape, .flags = FOLD_VIEW},
    {"_unsafe_view", run_reshape, .flags = FOLD_VIEW},
    {"view_as", run_reshape, .flags = FOLD_VIEW | FOLD_LIKE},
    {"unsqueeze", run_reshape, .flags = FOLD_VIEW},
    {"squeeze", run_reshape, .flags = FOLD_VIEW},
    {"unflatten", run_reshape, .flags = FOLD_VIEW},
    {"flatten", run_reshape, .flags = FOLD_VIEW, .which = true},
    {"ravel", run_reshape, .flags = FOLD_VIEW, .which = true},
    {"reshape", run_reshape, .flags = FOLD_VIEW, .which = true},
    {"reshape_as", run_reshape, .flags = FOLD_VIEW | FOLD_LIKE, .which = true},
    {"permute", run_permute, .flags = FOLD_VIEW},
    {"transpose", run_transpose, .flags = FOLD_VIEW},
    {"swapaxes", run_transpose, .flags = FOLD_VIEW},
    {"t", run_permute, .flags = FOLD_VIEW},
    {"numpy_T", run_permute, .flags = FOLD_VIEW},
    {"expand", run_expand, .flags = FOLD_VIEW},
    {"expand_as", run_expand, .flags = FOLD_VIEW | FOLD_LIKE},
    {"broadcast_to", run_expand, .flags = FOLD_VIEW},
    {"select", run_select, .flags = FOLD_VIEW},
    {"slice", run_slice, .flags = FOLD_VIEW},
    {"narrow", run_slice, .flags = FOLD_VIEW},
    {"chunk", run_split, .flags = FOLD_VIEW},
    {"split", run_split, .flags = FOLD_VIEW},
    {"split_with_sizes", run_split, .flags = FOLD_VIEW},
    {"unbind", run_unbind, .flags = FOLD_VIEW},
    {"meshgrid", run_meshgrid, .flags = FOLD_FREE},
    {"to", run_copy, .flags = FOLD_VIEW, .which = SHARE},
    {"to.other", run_copy, .flags = FOLD_VIEW | FOLD_LIKE, .which = SHARE},
    {"type_as", run_copy, .flags = FOLD_VIEW | FOLD_LIKE, .which = SHARE},
    {"alias", run_copy, .flags = FOLD_VIEW, .which = SHARE},
    {"detach", run_copy, .flags = FOLD_VIEW, .which = SHARE},
    {"lift_fresh", run_copy, .flags = FOLD_VIEW, .which = SHARE},
    {"contiguous", run_copy, .flags = FOLD_VIEW, .which = SHARE_FLAT},
    {"clone", run_copy, .which = COPY},
    {"_to_copy", run_copy, .which = COPY},
    {"lift_fresh_copy", run_copy, .which = COPY},
    {"copy", run_copy, .which = COPY},
    {"cat", run_join, .flags = FOLD_FREE},
    {"concat", run_join, .flags = FOLD_FREE},
    {"stack", run_join, .flags = FOLD_FREE, .which = true},
    {"repeat", run_repeat, .flags = 0},
    {"roll", run_roll, .flags = 0},
    {"flip", run_flip, .flags = 0},
    {"pad", run_pad, .flags = 0},
    {"constant_pad_nd", run_pad, .flags = 0},
    {"zeros", run_fill, .flags = FOLD_FREE},
    {"ones", run_fill, .flags = FOLD_FREE, .which = 1},
    {"empty", run_fill, .flags = FOLD_FREE},
    {"full", run_fill, .flags = FOLD_FREE, .more = "fill_value"},
    {"zeros_like", run_fill, .flags = FOLD_TYPE},
    {"ones_like", run_fill, .flags = FOLD_TYPE, .which = 1},
    {"empty_like", run_fill, .flags = FOLD_TYPE},
    {"full_like", run_fill, .flags = FOLD_TYPE, .more = "fill_value"},
    {"new_zeros", run_fill, .flags = FOLD_TYPE},
    {"new_ones", run_fill, .flags = FOLD_TYPE, .which = 1},
    {"new_empty", run_fill, .flags = FOLD_TYPE},
    {"new_full", run_fill, .flags = FOLD_TYPE, .more = "fill_value"},
    {"scalar_tensor", run_fill, .flags = FOLD_FREE, .more = "s"},
    {"fill", run_fill, .more = "value"},
    {"zero", run_fill, .flags = 0},
    {"arange", run_arange, .flags = FOLD_FREE},
    {"linspace", run_linspace, .flags = FOLD_FREE},
    {"triu", run_triangle, .flags = 0},
    {"tril", run_triangle, .flags = 0},
    {"index", run_index, .flags = 0},
    {"index_put", run_index_put, .flags = 0},
    {"index_select", run_index_select, .more = "index"},
    {"embedding", run_index_select, .more = "indices"},
    {"gather", run_gather, .flags = 0},
    {.name = NULL},
};
