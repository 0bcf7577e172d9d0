/* SPDX-License-Identifier: Apache-2.0 */
/* Views: lists of axes, rearranged. */
#include "view.h"

#include <stdio.h>
#include <string.h>

#include "ppcli/base/base.h"

static bool is_batch(const struct axis *a)
{
    return a->size == 0;
}

int view_first_axis(const struct view *v, int dim)
{
    int at = 0;
    for (int d = 0; d < dim; d++)
        at += v->count[d];
    return at;
}

struct pt_size view_size(const struct view *v, int dim)
{
    struct pt_size s = {1, false};
    int at = view_first_axis(v, dim), n = dim < 0 || dim >= v->n_dims ? 0 : v->count[dim];
    for (int k = at; k < at + n; k++) {
        s.batch = s.batch || is_batch(&v->axes[k]);
        s.n *= is_batch(&v->axes[k]) ? 1 : v->axes[k].size;
    }
    return s;
}

int view_batch_axis(const struct view *v)
{
    for (int k = 0; k < v->n_axes; k++)
        if (is_batch(&v->axes[k]))
            return k;
    return -1;
}

bool view_has_batch(const struct view *v, int dim)
{
    return view_size(v, dim).batch;
}

int64_t view_elements(const struct view *v)
{
    int64_t n = 1;
    for (int k = 0; k < v->n_axes; k++)
        n *= is_batch(&v->axes[k]) ? 1 : v->axes[k].size;
    return n;
}

static void append_axis(struct view *v, struct axis a)
{
    v->full = v->full || v->n_axes == VIEW_AXES || v->n_dims < 1;
    if (v->full)
        return;
    v->axes[v->n_axes++] = a;
    v->count[v->n_dims - 1]++;
}

static void append_dim(struct view *v)
{
    v->full = v->full || v->n_dims == PT_DIMS;
    if (!v->full)
        v->count[v->n_dims++] = 0;
}

/* Returns a view of the same value without dimensions. */
static struct view begin_view(const struct view *v)
{
    return (struct view){.value = v->value, .offset = v->offset, .full = v->full};
}

/* Appends dimension `dim` of v. */
static void append_dim_of(struct view *to, const struct view *v, int dim)
{
    int at = view_first_axis(v, dim);
    append_dim(to);
    for (int k = at; k < at + v->count[dim]; k++)
        append_axis(to, v->axes[k]);
}

struct view view_of_value(int value, int n_dims, const struct pt_size *dims)
{
    struct view v = {.value = value};
    int64_t stride = 1;
    for (int d = 0; d < n_dims; d++)
        stride *= dims[d].n;
    for (int d = 0; d < n_dims; d++) {
        append_dim(&v);
        stride /= dims[d].n;
        if (dims[d].batch)
            append_axis(&v, (struct axis){0, 0});
        if (dims[d].n > 1)
            append_axis(&v, (struct axis){dims[d].n, stride});
    }
    return v;
}

struct view view_permute(const struct view *v, const int *order)
{
    struct view out = begin_view(v);
    for (int d = 0; d < v->n_dims; d++)
        append_dim_of(&out, v, order[d]);
    return out;
}

struct view view_transpose(const struct view *v, int a, int b)
{
    int order[PT_DIMS];
    for (int d = 0; d < v->n_dims; d++)
        order[d] = d == a ? b : d == b ? a : d;
    return view_permute(v, order);
}

struct view view_move(const struct view *v, int dim, int to)
{
    int order[PT_DIMS];
    for (int d = 0, k = 0; d < v->n_dims; d++) {
        k += k == dim; /* the others keep their order */
        order[d] = d == to ? dim : k++;
    }
    return view_permute(v, order);
}

struct view view_insert(const struct view *v, int dim)
{
    struct view out = begin_view(v);
    for (int d = 0; d <= v->n_dims; d++) {
        if (d == dim)
            append_dim(&out);
        if (d < v->n_dims)
            append_dim_of(&out, v, d);
    }
    return out;
}

struct view view_drop(const struct view *v, int dim)
{
    struct view out = begin_view(v);
    for (int d = 0; d < v->n_dims; d++)
        if (d != dim)
            append_dim_of(&out, v, d);
    return out;
}

/* Returns whether two neighbouring axes are one in memory. */
static bool are_one(const struct axis *outer, const struct axis *inner)
{
    return !is_batch(outer) && !is_batch(inner) && outer->stride == inner->size * inner->stride;
}

struct view view_merge(const struct view *v)
{
    struct view out = begin_view(v);
    for (int d = 0, k = 0; d < v->n_dims; d++) {
        append_dim(&out);
        for (int i = 0; i < v->count[d]; i++, k++) {
            struct axis *last = out.count[d] > 0 ? &out.axes[out.n_axes - 1] : NULL;
            if (last && are_one(last, &v->axes[k]))
                *last = (struct axis){last->size * v->axes[k].size, v->axes[k].stride};
            else
                append_axis(&out, v->axes[k]);
        }
    }
    return out;
}

/* Returns v with one dimension that has all its axes, merged where memory allows. */
static struct view flatten_view(const struct view *v)
{
    struct view flat = *v;
    if (v->n_dims == 0)
        append_dim(&flat);
    flat.n_dims = 1;
    flat.count[0] = (uint8_t)v->n_axes;
    return view_merge(&flat);
}

bool view_reshape(const struct view *v, int n_dims, const struct pt_size *dims, struct view *out)
{
    struct view flat = flatten_view(v), to = begin_view(v);
    int k = 0;
    for (int d = 0; d < n_dims; d++) {
        int64_t left = dims[d].n;
        bool batch = dims[d].batch;
        append_dim(&to);
        while (left > 1 || batch) {
            struct axis *a = &flat.axes[k];
            if (k == flat.n_axes || to.n_axes == VIEW_AXES)
                return false;
            if (is_batch(a)) {
                if (!batch)
                    return false;
                batch = false;
                append_axis(&to, *a);
                k++;
            } else if (left > 1 && left % a->size == 0) {
                append_axis(&to, *a);
                left /= a->size;
                k++;
            } else if (left > 1 && a->size % left == 0) {
                a->size /= left;
                append_axis(&to, (struct axis){left, a->size * a->stride});
                left = 1;
            } else {
                return false;
            }
        }
    }
    if (k < flat.n_axes)
        return false;
    *out = to;
    return true;
}

bool view_holds(const struct view *v, int dim, int64_t start, int64_t length, int64_t step)
{
    int64_t n = view_size(v, dim).n, way, last;
    if (start < 0 || start > n || length <= 0)
        return start >= 0 && start <= n && length == 0;
    return start < n && !__builtin_mul_overflow(length - 1, step, &way) &&
           !__builtin_add_overflow(start, way, &last) && last >= 0 && last < n &&
           (length == 1 || step != 0);
}

bool view_narrow(const struct view *v, int dim, int64_t start, int64_t length, int64_t step,
                 struct view *out)
{
    struct view m = view_merge(v), to = begin_view(v);
    struct pt_size size = view_size(v, dim);
    if (!view_holds(v, dim, start, length, step))
        return false;
    step = length > 1 ? step : 1;
    int at = view_first_axis(&m, dim), n = m.count[dim];
    if (start == 0 && step == 1 && length == size.n) {
        *out = *v;
        return true;
    }
    int64_t inner = 1; /* elements of the dimension that a step of its first axis passes */
    for (int k = at + 1; k < at + n; k++)
        inner *= m.axes[k].size;
    if (size.batch || n == 0 || start % inner || length % inner || (inner > 1 && step != 1))
        return false;
    struct axis first = {length / inner, m.axes[at].stride * step};
    to.offset += start / inner * m.axes[at].stride;
    for (int d = 0; d < m.n_dims; d++) {
        if (d != dim) {
            append_dim_of(&to, &m, d);
            continue;
        }
        append_dim(&to);
        if (first.size > 1)
            append_axis(&to, first);
        for (int k = at + 1; k < at + n; k++)
            append_axis(&to, m.axes[k]);
    }
    *out = to;
    return true;
}

bool view_expand(const struct view *v, int n_dims, const struct pt_size *dims, struct view *out)
{
    struct view to = begin_view(v);
    int added = n_dims - v->n_dims;
    if (added < 0)
        return false;
    for (int d = 0; d < n_dims; d++) {
        struct pt_size is = {1, false};
        if (d >= added)
            is = view_size(v, d - added);
        if (d >= added && (is.n > 1 || is.batch)) {
            if (is.n != dims[d].n || is.batch != dims[d].batch)
                return false;
            append_dim_of(&to, v, d - added);
            continue;
        }
        append_dim(&to);
        if (dims[d].batch)
            append_axis(&to, (struct axis){0, 0});
        if (dims[d].n > 1)
            append_axis(&to, (struct axis){dims[d].n, 0});
    }
    *out = to;
    return true;
}

/* Divides axis k of a view into an outer axis and an inner one of `inner` elements. */
static bool divide_axis(struct view *v, int dim, int k, int64_t inner)
{
    if (v->n_axes == VIEW_AXES)
        return false;
    struct axis a = v->axes[k];
    memmove(&v->axes[k + 1], &v->axes[k], (size_t)(v->n_axes - k) * sizeof(a));
    v->axes[k] = (struct axis){a.size / inner, a.stride * inner};
    v->axes[k + 1] = (struct axis){inner, a.stride};
    v->n_axes++;
    v->count[dim]++;
    return true;
}

/* Aligns one dimension, whose axes begin at `at` in all views; returns the number of its axes, or -1
 * and *bad. */
static int align_dim(struct view *const *views, int n, int dim, int at, int *bad)
{
    for (int k = at;; k++) {
        int64_t least = INT64_MAX;
        bool batch = false, some = false;
        for (int i = 0; i < n; i++) {
            if (k >= at + views[i]->count[dim])
                continue;
            some = true;
            if (is_batch(&views[i]->axes[k]))
                batch = true;
            else if (views[i]->axes[k].size < least)
                least = views[i]->axes[k].size;
        }
        if (!some)
            return k - at;
        for (int i = 0; i < n; i++) {
            *bad = i;
            if (k >= at + views[i]->count[dim] || is_batch(&views[i]->axes[k]) != batch)
                return -1;
            struct axis *a = &views[i]->axes[k];
            /* the outermost axes have the same number of elements: `least` of the smallest */
            if (!batch && (a->size % least ||
                           (a->size > least && !divide_axis(views[i], dim, k, a->size / least))))
                return -1;
        }
    }
}

/* Returns whether all elements of a dimension are one in memory. */
static bool repeats_one(const struct view *v, int dim)
{
    int at = view_first_axis(v, dim);
    for (int k = at; k < at + v->count[dim]; k++)
        if (v->axes[k].stride != 0)
            return false;
    return true;
}

/* Gives a dimension, which repeats one element, the axes of another view's. */
static void repeat_as(struct view *v, int dim, const struct view *like)
{
    struct view to = begin_view(v);
    int from = view_first_axis(like, dim);
    for (int d = 0; d < v->n_dims; d++) {
        if (d != dim) {
            append_dim_of(&to, v, d);
            continue;
        }
        append_dim(&to);
        for (int k = from; k < from + like->count[dim]; k++)
            append_axis(&to, (struct axis){like->axes[k].size, 0});
    }
    *v = to;
}

bool view_align(struct view *const *views, int n, int *bad)
{
    int at = 0;
    for (int d = 0; n > 0 && d < views[0]->n_dims; d++) {
        const struct view *like = NULL;
        for (int i = 0; i < n && !like; i++)
            like = repeats_one(views[i], d) ? NULL : views[i];
        for (int i = 0; i < n && like; i++)
            if (repeats_one(views[i], d))
                repeat_as(views[i], d, like);
    }
    for (int d = 0; n > 0 && d < views[0]->n_dims; d++) {
        int axes = align_dim(views, n, d, at, bad);
        if (axes < 0)
            return false;
        at += axes;
    }
    return true;
}

bool view_is_whole(const struct view *v, int64_t floats, int order[VIEW_AXES], int *n)
{
    int count = 0;
    for (int k = 0; k < v->n_axes; k++) {
        if (is_batch(&v->axes[k]))
            continue;
        int at = count++;
        for (; at > 0 && v->axes[order[at - 1]].stride < v->axes[k].stride; at--)
            order[at] = order[at - 1];
        order[at] = k;
    }
    int64_t dense = 1;
    for (int i = count - 1; i >= 0; i--) {
        if (v->axes[order[i]].stride != dense)
            return false;
        dense *= v->axes[order[i]].size;
    }
    *n = count;
    return v->offset == 0 && dense == floats;
}

bool view_is_dense(const struct view *v, int64_t floats)
{
    int order[VIEW_AXES], n;
    if (!view_is_whole(v, floats, order, &n))
        return false;
    for (int i = 1; i < n; i++)
        if (order[i] < order[i - 1])
            return false;
    return true;
}

bool view_is_rows(const struct view *v, int64_t floats)
{
    int order[VIEW_AXES], n;
    struct view m = view_merge(v);
    if (m.n_dims == 0 || !view_is_whole(&m, floats, order, &n))
        return false;
    int last = m.n_dims - 1;
    return m.count[last] == 0 ||
           (m.count[last] == 1 && !view_has_batch(&m, last) && m.axes[m.n_axes - 1].stride == 1);
}

char *view_text(const struct view *v, char *out, size_t bytes)
{
    size_t at = 0;
    out[0] = '\0';
    for (int d = 0; d < v->n_dims && at < bytes; d++) {
        struct pt_size s = view_size(v, d);
        if (s.batch && s.n == 1)
            at += (size_t)snprintf(out + at, bytes - at, "[s]");
        else
            at += (size_t)snprintf(out + at, bytes - at, "[%lld%s]", (long long)s.n,
                                   s.batch ? "s" : "");
    }
    return out;
}
