/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors on the host: their memory, views of it, and loops over cells. */
#include "host.h"

#include "ppcli/base/base.h"

#define COUNT_MAX ((int64_t)1 << 28) /* elements of a tensor */
#define BYTES_MAX ((size_t)1 << 32)  /* of all tensors at a time */
#define WORK_MAX ((int64_t)1 << 34)  /* cells */

bool host_is_float(enum pt_dtype t)
{
    return t == PT_F32 || t == PT_F64;
}

static size_t cell_bytes(enum pt_dtype t)
{
    switch (t) {
    case PT_F32:
        return sizeof(float);
    case PT_F64:
        return sizeof(double);
    case PT_BOOL:
        return 1;
    case PT_I64:
    case PT_I32:
    case PT_I16:
    case PT_I8:
    case PT_U8:
        return sizeof(int64_t);
    default:
        return 0;
    }
}

/* Returns the product of dims, or -1 if it is too large; also the parts of an empty tensor are
 * bounded. */
static int64_t multiply_dims(int n_dims, const int64_t *dims)
{
    int64_t n = 1;
    bool empty = false;
    if (n_dims < 0 || n_dims > PT_DIMS)
        return -1;
    for (int i = 0; i < n_dims; i++) {
        if (dims[i] < 0 || dims[i] > COUNT_MAX)
            return -1;
        empty = empty || dims[i] == 0;
        n *= PP_MAX(dims[i], 1);
        if (n > COUNT_MAX)
            return -1;
    }
    return empty ? 0 : n;
}

int64_t host_count(const struct host_tensor *t)
{
    return multiply_dims(t->n_dims, t->dims);
}

static void set_dims(struct host_tensor *t, int n_dims, const int64_t *dims)
{
    int64_t stride = 1;
    t->n_dims = n_dims;
    for (int i = n_dims - 1; i >= 0; i--) {
        t->dims[i] = dims[i];
        t->strides[i] = stride;
        stride *= PP_MAX(dims[i], 1);
    }
}

int host_make(struct host_pool *pool, enum pt_dtype dtype, int n_dims, const int64_t *dims,
              struct host_tensor *out)
{
    struct host_tensor t = {.dtype = dtype};
    int64_t n = multiply_dims(n_dims, dims);
    if (n < 0 || cell_bytes(dtype) == 0)
        return HOST_UNKNOWN;
    size_t bytes = (size_t)n * cell_bytes(dtype);
    if (bytes > BYTES_MAX - pool->bytes)
        return HOST_UNKNOWN;
    set_dims(&t, n_dims, dims);
    PP_TAKE(struct host_storage, s, 1);
    PP_ALLOC(s->cells, bytes);
    *s = (struct host_storage){
        .next = pool->all, .lost_after = INT32_MAX, .n = n, .bytes = bytes, .cells = s->cells};
    pool->bytes += bytes;
    t.storage = pool->all = s;
    s = NULL;
    *out = t;
    return 0;
}

int host_number(struct host_pool *pool, enum pt_dtype dtype, double number, struct host_tensor *out)
{
    const union host_cell cell = {.f = number};
    PP_TRY(host_make(pool, dtype, 0, NULL, out));
    host_store(out, 0, 0, 1, PT_F64, &cell);
    return 0;
}

void host_sweep(struct host_pool *pool)
{
    for (struct host_storage **at = &pool->all; *at;) {
        struct host_storage *s = *at;
        if (s->refs > 0) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        pool->bytes -= s->bytes;
        pp_free(s->cells);
        pp_free(s);
    }
}

/* ---- views */

int host_dim(const struct host_tensor *t, int64_t dim, int *out)
{
    int n = t->n_dims;
    if (dim < -n || dim >= n)
        return HOST_UNKNOWN;
    *out = (int)(dim < 0 ? dim + n : dim);
    return 0;
}

int host_narrow(const struct host_tensor *t, int dim, int64_t start, int64_t length, int64_t step,
                struct host_tensor *out)
{
    if (dim >= t->n_dims || start < 0 || length < 0 || step < 1 || start > t->dims[dim] ||
        (length > 0 && (length - 1 > COUNT_MAX || step > COUNT_MAX ||
                        start + (length - 1) * step >= t->dims[dim])))
        return HOST_UNKNOWN;
    struct host_tensor v = *t;
    v.offset += length > 0 ? start * t->strides[dim] : 0;
    v.dims[dim] = length;
    v.strides[dim] *= length > 1 ? step : 1;
    *out = v;
    return 0;
}

static void remove_dim(struct host_tensor *t, int dim)
{
    size_t tail = (size_t)(t->n_dims - dim - 1) * sizeof(*t->dims);
    memmove(t->dims + dim, t->dims + dim + 1, tail);
    memmove(t->strides + dim, t->strides + dim + 1, tail);
    t->n_dims--;
}

int host_insert_dim(const struct host_tensor *t, int dim, struct host_tensor *out)
{
    struct host_tensor v = *t;
    if (t->n_dims == PT_DIMS || dim > t->n_dims)
        return HOST_UNKNOWN;
    size_t tail = (size_t)(t->n_dims - dim) * sizeof(*t->dims);
    memmove(v.dims + dim + 1, t->dims + dim, tail);
    memmove(v.strides + dim + 1, t->strides + dim, tail);
    v.dims[dim] = 1;
    v.strides[dim] = 0;
    v.n_dims++;
    *out = v;
    return 0;
}

int host_select(const struct host_tensor *t, int dim, int64_t index, struct host_tensor *out)
{
    if (dim >= t->n_dims)
        return HOST_UNKNOWN;
    PP_TRY(host_narrow(t, dim, index < 0 ? index + t->dims[dim] : index, 1, 1, out));
    remove_dim(out, dim);
    return 0;
}

int host_move_dim(const struct host_tensor *t, int from, int to, struct host_tensor *out)
{
    if (from >= t->n_dims || to >= t->n_dims)
        return HOST_UNKNOWN;
    struct host_tensor v = *t;
    int64_t dim = t->dims[from], stride = t->strides[from];
    remove_dim(&v, from);
    PP_TRY(host_insert_dim(&v, to, &v));
    v.dims[to] = dim;
    v.strides[to] = stride;
    *out = v;
    return 0;
}

int host_expand(const struct host_tensor *t, int n_dims, const int64_t *dims,
                struct host_tensor *out)
{
    struct host_tensor v = {.dtype = t->dtype, .offset = t->offset, .storage = t->storage};
    int before = n_dims - t->n_dims;
    if (before < 0 || multiply_dims(n_dims, dims) < 0)
        return HOST_UNKNOWN;
    v.n_dims = n_dims;
    for (int i = 0; i < n_dims; i++) {
        bool fits = i >= before && t->dims[i - before] == dims[i];
        if (!fits && i >= before && t->dims[i - before] != 1)
            return HOST_UNKNOWN;
        v.dims[i] = dims[i];
        v.strides[i] = fits ? t->strides[i - before] : 0;
    }
    *out = v;
    return 0;
}

int host_broadcast(const struct host_tensor *t, int *n_dims, int64_t dims[PT_DIMS])
{
    int n = PP_MAX(*n_dims, t->n_dims), more = n - *n_dims, before = n - t->n_dims;
    memmove(dims + more, dims, (size_t)*n_dims * sizeof(*dims));
    for (int i = 0; i < n; i++) {
        int64_t have = i >= more ? dims[i] : 1, size = i >= before ? t->dims[i - before] : 1;
        if (have != size && have != 1 && size != 1)
            return HOST_UNKNOWN;
        dims[i] = have == 1 ? size : have;
    }
    *n_dims = n;
    return multiply_dims(n, dims) < 0 ? HOST_UNKNOWN : 0;
}

/* Merges neighbouring dimensions that one stride can walk, and leaves out those of size 1. */
static int merge_dims(const struct host_tensor *t, int64_t *dims, int64_t *strides)
{
    int n = 0;
    for (int i = 0; i < t->n_dims; i++) {
        if (t->dims[i] == 1)
            continue;
        if (n > 0 && strides[n - 1] == t->strides[i] * t->dims[i]) {
            dims[n - 1] *= t->dims[i];
            strides[n - 1] = t->strides[i];
            continue;
        }
        dims[n] = t->dims[i];
        strides[n++] = t->strides[i];
    }
    return n;
}

/* Splits merged dimensions into dims. Returns false if a new dimension lies across two of them. */
static bool split_dims(const struct host_tensor *t, struct host_tensor *v)
{
    int64_t dims[PT_DIMS], strides[PT_DIMS], left = 1;
    int at = merge_dims(t, dims, strides);
    for (int i = v->n_dims - 1; i >= 0; i--) {
        if (v->dims[i] == 1) {
            v->strides[i] = 0;
            continue;
        }
        if (left == 1) {
            if (at == 0)
                return false;
            left = dims[--at];
        }
        if (left % v->dims[i] != 0)
            return false;
        v->strides[i] = strides[at];
        strides[at] *= v->dims[i];
        left /= v->dims[i];
    }
    return left == 1;
}

int host_reshape(struct host_pool *pool, const struct host_tensor *t, int n_dims,
                 const int64_t *dims, struct host_tensor *out)
{
    struct host_tensor v = *t;
    int64_t n = multiply_dims(n_dims, dims);
    if (n < 0 || n != host_count(t))
        return HOST_UNKNOWN;
    set_dims(&v, n_dims, dims);
    if (n > 0 && !split_dims(t, &v)) {
        PP_TRY(host_clone(pool, t, t->dtype, &v));
        set_dims(&v, n_dims, dims);
    }
    *out = v;
    return 0;
}

/* ---- cells */

/* Makes one loop of two where all arrays allow it, as merge_dims() does for one. */
static void merge_walk(struct host_walk *w)
{
    int n = 0;
    for (int i = 0; i < w->n_dims; i++) {
        bool joins = n > 0;
        if (w->size[i] == 1)
            continue;
        for (int k = 0; joins && k < w->n_arrays; k++)
            joins = w->stride[k][n - 1] == w->stride[k][i] * w->size[i];
        int to = joins ? n - 1 : n++;
        w->size[to] = w->size[i] * (joins ? w->size[to] : 1);
        for (int k = 0; k < w->n_arrays; k++)
            w->stride[k][to] = w->stride[k][i];
    }
    w->n_dims = n;
}

int host_walk(struct host_pool *pool, struct host_walk *w, int n_arrays,
              const struct host_tensor *const *arrays)
{
    const struct host_tensor *t = arrays[0];
    int64_t count = host_count(t);
    *w = (struct host_walk){.n_dims = t->n_dims, .n_arrays = n_arrays};
    memcpy(w->size, t->dims, sizeof(w->size));
    for (int k = 0; k < n_arrays; k++) {
        pp_assert(arrays[k]->n_dims == t->n_dims);
        memcpy(w->stride[k], arrays[k]->strides, sizeof(w->stride[k]));
        w->at[k] = arrays[k]->offset;
    }
    if (count < 0 || pool->work > WORK_MAX)
        return HOST_UNKNOWN;
    pool->work += count;
    merge_walk(w);
    if (w->n_dims == 0) {
        w->n_dims = 1;
        w->size[0] = 1;
    }
    for (int k = 0; k < n_arrays; k++)
        w->last[k] = w->stride[k][w->n_dims - 1];
    w->n = count == 0 ? 0 : (int)PP_MIN(w->size[w->n_dims - 1], HOST_PIECE);
    return 0;
}

void host_step(struct host_walk *w)
{
    int d = w->n_dims - 1, n = w->n;
    for (; d >= 0; d--, n = 1) {
        w->index[d] += n;
        for (int k = 0; k < w->n_arrays; k++)
            w->at[k] += n * w->stride[k][d];
        if (w->index[d] < w->size[d])
            break;
        for (int k = 0; k < w->n_arrays; k++)
            w->at[k] -= w->index[d] * w->stride[k][d];
        w->index[d] = 0;
    }
    d = d < 0 ? -1 : w->n_dims - 1;
    w->n = d < 0 ? 0 : (int)PP_MIN(w->size[d] - w->index[d], HOST_PIECE);
}

/* Wraps an integer as its dtype does. */
static int64_t wrap_integer(enum pt_dtype t, int64_t i)
{
    switch (t) {
    case PT_I32:
        return (int32_t)i;
    case PT_I16:
        return (int16_t)i;
    case PT_I8:
        return (int8_t)i;
    case PT_U8:
        return (uint8_t)i;
    case PT_BOOL:
        return i != 0;
    default:
        return i;
    }
}

static int64_t truncate_number(enum pt_dtype t, double f)
{
    if (t == PT_BOOL)
        return f != 0; /* NaN is true */
    if (f >= -0x1p63 && f < 0x1p63)
        return wrap_integer(t, (int64_t)f);
    return f > 0 ? INT64_MAX : INT64_MIN;
}

/* Converts n cells; what was computed in a dtype may not fit into it yet, so from may be to. */
static void convert_cells(int n, enum pt_dtype from, enum pt_dtype to, union host_cell *cells)
{
    if (!host_is_float(from)) {
        for (int k = 0; k < n; k++)
            if (host_is_float(to))
                cells[k].f = (double)cells[k].i;
            else
                cells[k].i = wrap_integer(to, cells[k].i);
    } else if (!host_is_float(to)) {
        for (int k = 0; k < n; k++)
            cells[k].i = truncate_number(to, cells[k].f);
    }
    if (to == PT_F32)
        for (int k = 0; k < n; k++)
            cells[k].f = (double)(float)cells[k].f;
}

void host_load(const struct host_tensor *t, int64_t at, int64_t stride, int n, enum pt_dtype as,
               union host_cell *cells)
{
    const void *from = t->storage->cells;
    pp_assert(n == 0 || (at >= 0 && at < t->storage->n && at + (n - 1) * stride >= 0 &&
                         at + (n - 1) * stride < t->storage->n));
    switch (cell_bytes(t->dtype)) {
    case 1:
        for (int k = 0; k < n; k++)
            cells[k].i = ((const uint8_t *)from)[at + k * stride];
        break;
    case sizeof(float):
        for (int k = 0; k < n; k++)
            cells[k].f = (double)((const float *)from)[at + k * stride];
        break;
    default: /* a double is copied as eight bytes, too */
        for (int k = 0; k < n; k++)
            memcpy(&cells[k], (const int64_t *)from + at + k * stride, sizeof(*cells));
    }
    if (t->dtype != as)
        convert_cells(n, t->dtype, as, cells);
}

void host_store(const struct host_tensor *t, int64_t at, int64_t stride, int n, enum pt_dtype as,
                const union host_cell *cells)
{
    union host_cell last[HOST_PIECE];
    void *to = t->storage->cells;
    pp_assert(n == 0 || (n <= HOST_PIECE && at >= 0 && at < t->storage->n &&
                         at + (n - 1) * stride >= 0 && at + (n - 1) * stride < t->storage->n));
    memcpy(last, cells, (size_t)n * sizeof(*cells));
    convert_cells(n, as, t->dtype, last);
    switch (cell_bytes(t->dtype)) {
    case 1:
        for (int k = 0; k < n; k++)
            ((uint8_t *)to)[at + k * stride] = (uint8_t)(last[k].i != 0);
        break;
    case sizeof(float):
        for (int k = 0; k < n; k++)
            ((float *)to)[at + k * stride] = (float)last[k].f;
        break;
    default:
        for (int k = 0; k < n; k++)
            memcpy((int64_t *)to + at + k * stride, &last[k], sizeof(*last));
    }
}

int host_copy(struct host_pool *pool, const struct host_tensor *dst, const struct host_tensor *src)
{
    const struct host_tensor *const arrays[] = {dst, src};
    union host_cell cells[HOST_PIECE];
    struct host_walk w;
    for (int i = 0; i < dst->n_dims; i++)
        if (dst->n_dims != src->n_dims || dst->dims[i] != src->dims[i])
            return HOST_UNKNOWN;
    if (dst->n_dims != src->n_dims)
        return HOST_UNKNOWN;
    PP_TRY(host_walk(pool, &w, 2, arrays));
    for (; w.n > 0; host_step(&w)) {
        host_load(src, w.at[1], w.last[1], w.n, src->dtype, cells);
        host_store(dst, w.at[0], w.last[0], w.n, src->dtype, cells);
    }
    return 0;
}

int host_clone(struct host_pool *pool, const struct host_tensor *t, enum pt_dtype dtype,
               struct host_tensor *out)
{
    struct host_tensor y;
    PP_TRY(host_make(pool, dtype, t->n_dims, t->dims, &y));
    PP_TRY(host_copy(pool, &y, t));
    *out = y;
    return 0;
}
