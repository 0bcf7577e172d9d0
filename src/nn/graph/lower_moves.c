/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that bring elements to other places: one node that copies parts of tensors into parts of
 * a result, each through axes. Where the places follow no axes, a table of indices, which no sample
 * changes, says which elements of a dimension are read.
 */
#include "lower.h"

#include <limits.h>
#include <string.h>

#include "ppcli/base/base.h"

/* ---- tensors one after the other */

/* Copies tensors one after the other in dimension `dim` of a result with the dimensions `type`. */
static bool concatenate(struct lower *l, int n, const struct view *tensors, int dim,
                        const struct pt_tensor *type, struct view *out)
{
    struct lower_part parts[PP_NODE_INPUTS];
    const struct view *like = tensors;
    for (int i = 1; i < n; i++)
        if (view_elements(&tensors[i]) > view_elements(like))
            like = &tensors[i];
    struct view layout = lower_layout(like, type->n_dims, type->dims);
    int64_t start = 0;
    for (int i = 0; i < n; i++) {
        parts[i] = (struct lower_part){.from = tensors[i], .table_dim = -1};
        int64_t size = view_size(&tensors[i], dim).n;
        if (!view_narrow(&layout, dim, start, size, 1, &parts[i].to))
            return lower_refuse(l, "%s: its tensors do not fill its result",
                                l->program->nodes[l->node].target);
        start += size;
    }
    return lower_move(l, &layout, 0, n, parts, out);
}

/* Reads the tensors of cat or stack; returns their number, or -1. */
static int read_tensors(struct lower *l, const struct pt_node *n, int most, struct view *out)
{
    const struct pt_arg *a = pt_arg_find(n, "tensors");
    int count = 0;
    for (int i = 0; a && a->kind == PT_TENSORS && i < a->n; i++) {
        const struct pt_tensor *type = &l->program->values[a->values[i]].type;
        if (l->values[a->values[i]].state == LOWERED_EMPTY ||
            (type->n_dims == 1 && type->dims[0].n == 0))
            continue;
        if (count == most) {
            lower_refuse(l, "%s of more than %d tensors", n->target, most);
            return -1;
        }
        out[count] = lower_value(l, a->values[i]);
        if (out[count++].n_dims < 0)
            return -1;
    }
    return count;
}

#define TENSORS_MAX 512

static void lower_cat(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    bool stack = row->which;
    struct pt_tensor type = *lower_type(l, n, 0);
    int dim = lower_dim(n, "dim", 0, type.n_dims);
    PP_OWN_MEMORY struct view *tensors = pp_alloc(TENSORS_MAX, sizeof(*tensors));
    if (!tensors) {
        l->rc = PP_ERESOURCE;
        return;
    }
    int count = read_tensors(l, n, TENSORS_MAX, tensors);
    for (int i = 0; stack && i < count; i++)
        tensors[i] = view_insert(&tensors[i], dim);
    for (int i = 0; i < count; i++) {
        if (tensors[i].n_dims == type.n_dims && !view_has_batch(&tensors[i], dim))
            continue;
        lower_refuse(l,
                     "%s along the samples of a batch (dimension %d): a micro-batch has only some "
                     "of them",
                     n->target, dim);
        return;
    }
    /* more than a node takes: the first ones become one */
    while (count > PP_NODE_INPUTS) {
        struct pt_tensor first = type;
        first.dims[dim].n = 0;
        for (int i = 0; i < PP_NODE_INPUTS; i++)
            first.dims[dim].n += view_size(&tensors[i], dim).n;
        if (!concatenate(l, PP_NODE_INPUTS, tensors, dim, &first, &tensors[0]))
            return;
        memmove(&tensors[1], &tensors[PP_NODE_INPUTS],
                (size_t)(count - PP_NODE_INPUTS) * sizeof(*tensors));
        count -= PP_NODE_INPUTS - 1;
    }
    if (count == 1 || (count > 1 && concatenate(l, count, tensors, dim, &type, &tensors[0])))
        lower_set(l, n, 0, &tensors[0]);
}

/* ---- regions: pad, roll */

/* A range of a dimension of the result, and the elements that are copied into it: from, from + step,
 * ..., step is 1, -1 or 0. */
struct region {
    int64_t to, length, from;
    int step;
};

/* The regions of each dimension; none: the whole dimension. */
struct regions {
    int n[PT_DIMS];
    struct region at[PT_DIMS][3];
};

/* Adds a region if it is not empty. */
static void add_region(struct regions *r, int dim, int64_t to, int64_t length, int64_t from,
                       int step)
{
    if (length > 0)
        r->at[dim][r->n[dim]++] = (struct region){to, length, from, step};
}

/* Sets the views of one part: of each dimension one region. */
static bool cut_part(struct lower *l, const struct view *v, const struct view *layout,
                     const struct regions *r, const int *which, struct lower_part *part)
{
    *part = (struct lower_part){.from = *v, .to = *layout, .table_dim = -1};
    for (int d = 0; d < v->n_dims; d++) {
        const struct region *g = &r->at[d][which[d]];
        if (r->n[d] == 0)
            continue;
        if (!lower_narrow(l, &part->from, d, g->from, g->step ? g->length : 1,
                          g->step ? g->step : 1, &part->from) ||
            !lower_narrow(l, &part->to, d, g->to, g->length, 1, &part->to))
            return false;
        if (g->step == 0) {
            struct pt_size dims[PT_DIMS];
            for (int k = 0; k < v->n_dims; k++)
                dims[k] = view_size(&part->from, k);
            dims[d].n = g->length;
            if (!lower_expand(l, &part->from, v->n_dims, dims, &part->from))
                return false;
        }
    }
    return true;
}

/* Copies regions of v into a result of the type of the node's; `fill` is between them. */
static void lower_regions(struct lower *l, const struct pt_node *n, struct view *v,
                          const struct regions *r, float fill)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct view out, merged = view_merge(v);
    int which[PT_DIMS] = {0}, parts = 1;
    bool copy = false;
    for (int d = 0; d < v->n_dims; d++) {
        parts *= r->n[d] ? r->n[d] : 1;
        if (r->n[d] && view_has_batch(v, d)) {
            lower_refuse(l,
                         "%s moves samples of a batch (dimension %d): a micro-batch has only "
                         "some of them",
                         n->target, d);
            return;
        }
        copy = copy || (r->n[d] && merged.count[d] > 1);
    }
    merged = copy ? lower_copy(l, v) : merged;
    PP_OWN_MEMORY struct lower_part *list = pp_alloc((size_t)parts, sizeof(*list));
    l->rc = list || l->rc < 0 ? l->rc : PP_ERESOURCE;
    if (merged.n_dims < 0 || l->rc < 0)
        return;
    struct view layout = lower_layout(&merged, type->n_dims, type->dims);
    for (int i = 0; i < parts; i++) {
        if (!cut_part(l, &merged, &layout, r, which, &list[i]))
            return;
        for (int d = 0; d < v->n_dims; d++) { /* the next choice of regions */
            if (++which[d] < r->n[d])
                break;
            which[d] = 0;
        }
    }
    if (lower_move(l, &layout, fill, parts, list, &out))
        lower_set(l, n, 0, &out);
}

/* Adds the regions of a padded dimension. */
static bool add_padding(struct lower *l, struct regions *r, int dim, int64_t size, int64_t before,
                        int64_t after, const char *mode)
{
    /* a negative padding leaves elements out */
    int64_t from = before < 0 ? -before : 0, to = before > 0 ? before : 0;
    int64_t length = size - from + (after < 0 ? after : 0);
    add_region(r, dim, to, length, from, 1);
    if (strcmp(mode, "constant") == 0)
        return true;
    if (before < 0 || after < 0)
        return lower_refuse(l, "pad with a negative size and mode %s", mode);
    if (strcmp(mode, "reflect") == 0) {
        add_region(r, dim, 0, before, before, -1);
        add_region(r, dim, to + length, after, size - 2, -1);
    } else if (strcmp(mode, "replicate") == 0) {
        add_region(r, dim, 0, before, 0, 0);
        add_region(r, dim, to + length, after, size - 1, 0);
    } else if (strcmp(mode, "circular") == 0) {
        add_region(r, dim, 0, before, size - before, 1);
        add_region(r, dim, to + length, after, 0, 1);
    } else {
        return lower_refuse(l, "pad with mode %s", mode);
    }
    return true;
}

/* pad; the others are called by their names. */
static const char *const pad_modes[] = {"constant", "reflect", "replicate"};

static void lower_pad(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_arg *pad = pt_arg_find(n, pt_arg_find(n, "pad") ? "pad" : "padding"),
                        *mode = pt_arg_find(n, "mode");
    struct view v = lower_tensor(l, n, "self");
    struct regions r = {.n = {0}};
    if (v.n_dims < 0)
        return;
    if (!pad || pad->kind != PT_INTS || pad->n > 2 * v.n_dims || pad->n % 2) {
        lower_refuse(l, "%s: its argument pad is not a list of sizes", n->target);
        return;
    }
    for (int i = 0; i + 1 < pad->n; i += 2) {
        int64_t before = pad->sizes[i].n, after = pad->sizes[i + 1].n;
        int dim = v.n_dims - 1 - i / 2;
        if ((before != 0 || after != 0) &&
            !add_padding(l, &r, dim, view_size(&v, dim).n, before, after,
                         mode && mode->kind == PT_STRING ? mode->text : pad_modes[row->which]))
            return;
    }
    bool some = false;
    for (int d = 0; d < v.n_dims; d++)
        some = some || r.n[d] > 0;
    if (some)
        lower_regions(l, n, &v, &r, (float)lower_number(n, "value", 0));
    else
        lower_set(l, n, 0, &v);
}

static void lower_roll(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_arg *shifts = pt_arg_find(n, "shifts"), *dims = pt_arg_find(n, "dims");
    struct view v = lower_tensor(l, n, "self");
    struct regions r = {.n = {0}};
    if (v.n_dims < 0)
        return;
    bool all = !dims || dims->n == 0; /* as if it had one dimension */
    if (!shifts || shifts->kind != PT_INTS || (all ? v.n_dims != 1 : dims->n != shifts->n)) {
        lower_refuse(l, "%s without dims, of a tensor with several dimensions", n->target);
        return;
    }
    for (int i = 0; i < shifts->n; i++) {
        int64_t given = all ? 0 : dims->sizes[i].n;
        int dim = (int)(given < 0 ? given + v.n_dims : given);
        int64_t size = view_size(&v, dim).n, shift = shifts->sizes[i].n % size;
        shift += shift < 0 ? size : 0;
        if (r.n[dim] > 0) {
            lower_refuse(l, "%s twice along dimension %d", n->target, dim);
            return;
        }
        if (shift == 0 && !view_has_batch(&v, dim))
            continue;
        add_region(&r, dim, 0, shift, size - shift, 1);
        add_region(&r, dim, shift, size - shift, 0, 1);
    }
    lower_regions(l, n, &v, &r, 0);
}

/* ---- tables of indices */

bool lower_take(struct lower *l, const struct view *v, int dim, int64_t count, const int32_t *table,
                struct view *out)
{
    if (count < 1)
        return lower_refuse(l, "%s: its result has no element", l->program->nodes[l->node].target);
    struct view m = view_merge(v);
    int64_t step = count > 1 ? (int64_t)table[1] - table[0] : 1;
    bool even = step != 0;
    for (int64_t i = 1; even && i < count; i++)
        even = table[i] - table[i - 1] == step;
    if (even)
        return lower_narrow(l, &m, dim, table[0], count, step, out);
    if (m.count[dim] > 1)
        m = lower_copy(l, &m);
    if (m.n_dims < 0)
        return false;
    struct pt_size dims[PT_DIMS] = {{0}};
    for (int d = 0; d < m.n_dims; d++)
        dims[d] = view_size(&m, d);
    if (dims[dim].batch)
        return lower_refuse(l,
                            "%s picks samples of a batch (dimension %d): a micro-batch has only "
                            "some of them",
                            l->program->nodes[l->node].target, dim);
    dims[dim].n = count;
    if (m.count[dim] == 0) /* one element, several times */
        return lower_expand(l, &m, m.n_dims, dims, out);
    struct view layout = lower_layout(&m, m.n_dims, dims);
    struct lower_part part = {.from = m, .to = layout, .table_dim = dim};
    part.from.axes[view_first_axis(&m, dim)].size = count;
    part.table = graph_add_table(l->graph, (int)count, table);
    if (part.table < 0) {
        l->rc = PP_ERESOURCE;
        return false;
    }
    return lower_move(l, &layout, 0, 1, &part, out);
}

/* An index tensor that no sample changes. */
struct indices {
    struct fold_constant c;
    int dim; /* of the tensor that it picks elements of */
};

static void free_indices(struct indices *x)
{
    fold_constant_free(&x->c);
}

/* Reads an index tensor; it must be a constant. */
static bool read_indices(struct lower *l, int value, int dim, struct indices *out)
{
    const char *target = l->program->nodes[l->node].target;
    out->dim = dim;
    if (value < 0 || l->values[value].state != LOWERED_HOST)
        return lower_refuse(l,
                            "%s by indices that depend on the data: indices that are the same for "
                            "each sample are taken",
                            target);
    int rc = fold_read(l->folder, value, &out->c);
    if (rc == PP_ECONFIG)
        return lower_refuse(l, "%s", pp_error_get()->text);
    if (rc < 0) {
        l->rc = rc;
        return false;
    }
    return out->c.dtype != PT_BOOL ||
           lower_refuse(l, "%s by a mask: the size of its result depends on what is in it", target);
}

/* Returns the index at a place of the broadcast shape dims[n], below `size`. */
static int64_t index_at(const struct fold_constant *c, int n, const int64_t *place, int64_t size)
{
    int64_t at = 0;
    for (int d = 0; d < c->n_dims; d++)
        at += c->dims[d] > 1 ? place[n - c->n_dims + d] * c->strides[d] : 0;
    if (!c->ints || at < 0 || at >= c->n)
        return -1; /* no index: refused as one that is outside */
    int64_t i = c->ints[at];
    return i < 0 ? i + size : i;
}

/* Advances place[n] below dims[n], the last dimension first. */
static void next_place(int n, const int64_t *dims, int64_t *place)
{
    for (int d = n - 1; d >= 0; d--) {
        if (++place[d] < dims[d])
            return;
        place[d] = 0;
    }
}

/* Returns whether a value is 0, 1, 2, ... in the dimension of the samples: their numbers. */
static bool is_sample_number(const struct lower *l, int value)
{
    static const char *const shaping[] = {"aten.unsqueeze.", "aten.view.",  "aten.reshape.",
                                          "aten.expand.",    "aten.slice.", "aten.to.",
                                          "aten.alias."};
    const struct pt_program *p = l->program;
    while (value >= 0 && p->values[value].origin == PT_FROM_NODE) {
        const struct pt_node *n = &p->nodes[p->values[value].index];
        bool shapes = false;
        if (strncmp(n->target, "aten.arange.", 12) == 0)
            return p->values[value].type.n_dims == 1 && p->values[value].type.dims[0].batch &&
                   p->values[value].type.dims[0].n == 1 && lower_number(n, "start", 0) == 0;
        for (size_t i = 0; i < sizeof(shaping) / sizeof(shaping[0]); i++)
            shapes = shapes || strncmp(n->target, shaping[i], strlen(shaping[i])) == 0;
        const struct pt_arg *a = pt_arg_find(n, "self");
        value = shapes && a && a->kind == PT_TENSOR ? a->value : -1;
    }
    return false;
}

/* index.Tensor: some dimensions of self are picked by index tensors, which are broadcast. */
struct picking {
    int n; /* of index tensors that are constants */
    struct indices at[PT_DIMS];
    int samples;            /* dimension of self that is picked by the samples' numbers; -1 */
    int first, last, given; /* dimensions of self that are picked, and how many */
    int n_dims;             /* broadcast shape, without the samples */
    int64_t dims[PT_DIMS];
};

static void free_picking(struct picking *p)
{
    for (int i = 0; i < p->n; i++)
        free_indices(&p->at[i]);
}

static bool read_picking(struct lower *l, const struct pt_arg *a, struct picking *p)
{
    p->samples = p->first = -1;
    for (int i = 0; i < a->n && i < PT_DIMS; i++) {
        if (a->values[i] < 0)
            continue;
        p->first = p->first < 0 ? i : p->first;
        p->last = i;
        p->given++;
        int n_dims = l->program->values[a->values[i]].type.n_dims;
        if (is_sample_number(l, a->values[i]))
            p->samples = i;
        else if (!read_indices(l, a->values[i], i, &p->at[p->n++]))
            return false;
        p->n_dims = n_dims > p->n_dims ? n_dims : p->n_dims;
    }
    for (int d = 0; d < p->n_dims; d++)
        p->dims[d] = 1;
    for (int i = 0; i < p->n; i++) {
        const struct fold_constant *c = &p->at[i].c;
        for (int d = 0; d < c->n_dims; d++)
            if (c->dims[d] > 1)
                p->dims[p->n_dims - c->n_dims + d] = c->dims[d];
    }
    return p->given > 0 || lower_refuse(l, "index.Tensor without indices");
}

/* Merges dimensions, the order of which is picked[n], into one that becomes the last. sizes[n] are
 * theirs before. */
static bool merge_dims(struct lower *l, struct view *v, int n, const int *picked, int64_t *sizes)
{
    int order[PT_DIMS] = {0}, kept = 0;
    struct pt_size dims[PT_DIMS + 1];
    bool is_picked[PT_DIMS] = {false};
    int64_t all = 1;
    for (int i = 0; i < n; i++) {
        is_picked[picked[i]] = true;
        sizes[i] = view_size(v, picked[i]).n;
        all *= sizes[i];
        if (view_has_batch(v, picked[i]))
            return lower_refuse(
                l,
                "%s picks samples of a batch (dimension %d): a micro-batch has only "
                "some of them",
                l->program->nodes[l->node].target, picked[i]);
    }
    for (int d = 0; d < v->n_dims; d++)
        if (!is_picked[d])
            order[kept++] = d;
    for (int i = 0; i < n; i++)
        order[kept + i] = picked[i];
    *v = view_permute(v, order);
    for (int d = 0; d < kept; d++)
        dims[d] = view_size(v, d);
    dims[kept] = (struct pt_size){all, false};
    return lower_reshape(l, v, kept + 1, dims, v);
}

/* Picks elements of the last dimension, and makes them n dimensions. */
static bool pick_last(struct lower *l, struct view *v, const int32_t *table, int n,
                      const int64_t *sizes)
{
    int kept = v->n_dims - 1;
    struct pt_size dims[2 * PT_DIMS];
    int64_t count = 1;
    for (int d = 0; d < kept; d++)
        dims[d] = view_size(v, d);
    for (int d = 0; d < n; d++) {
        dims[kept + d] = (struct pt_size){sizes[d], false};
        count *= sizes[d];
    }
    if (kept + n > PT_DIMS)
        return lower_refuse(l, "%s: more than %d dimensions", l->program->nodes[l->node].target,
                            PT_DIMS);
    return lower_take(l, v, kept, count, table, v) && lower_reshape(l, v, kept + n, dims, v);
}

/* Makes room for the table of n dimensions; refuses one that has no or too many elements. */
static int32_t *make_table(struct lower *l, int n, const int64_t *dims, int64_t *count)
{
    *count = 1;
    for (int d = 0; d < n; d++)
        *count *= dims[d];
    if (*count < 1 || *count > INT_MAX) {
        lower_refuse(l, "%s: a table of %lld indices", l->program->nodes[l->node].target,
                     (long long)*count);
        return NULL;
    }
    int32_t *table = pp_alloc((size_t)*count, sizeof(*table));
    l->rc = table || l->rc < 0 ? l->rc : PP_ERESOURCE;
    return table;
}

static bool refuse_outside(struct lower *l)
{
    return lower_refuse(l, "%s: an index outside the tensor", l->program->nodes[l->node].target);
}

/* Replaces the dimensions that p picks by the broadcast ones, which become the last. */
static bool pick_elements(struct lower *l, const struct picking *p, struct view *v)
{
    int picked[PT_DIMS];
    int64_t sizes[PT_DIMS], place[PT_DIMS] = {0}, count;
    for (int i = 0; i < p->n; i++)
        picked[i] = p->at[i].dim;
    PP_OWN_MEMORY int32_t *table = make_table(l, p->n_dims, p->dims, &count);
    if (!table || !merge_dims(l, v, p->n, picked, sizes))
        return false;
    for (int64_t i = 0; i < count; i++, next_place(p->n_dims, p->dims, place)) {
        int64_t at = 0;
        for (int k = 0; k < p->n; k++) {
            int64_t index = index_at(&p->at[k].c, p->n_dims, place, sizes[k]);
            if (index < 0 || index >= sizes[k])
                return refuse_outside(l);
            at = at * sizes[k] + index;
        }
        table[i] = (int32_t)at;
    }
    return pick_last(l, v, table, p->n_dims, p->dims);
}

static void lower_index(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    PP_OWN(free_picking) struct picking p = {0};
    const struct pt_arg *a = pt_arg_find(n, "indices");
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct view v = lower_tensor(l, n, "self");
    if (v.n_dims < 0 || !a || a->kind != PT_TENSORS || !read_picking(l, a, &p))
        return;
    if (p.samples >= 0 && !view_has_batch(&v, p.samples)) {
        lower_refuse(l, "%s: the numbers of the samples pick what is not theirs", n->target);
        return;
    }
    int rest = v.n_dims - p.n; /* dimensions that no table picks, with that of the samples */
    int samples = p.samples;
    for (int i = 0; i < p.n && p.samples >= 0; i++)
        samples -= p.at[i].dim < p.samples;
    if (p.n > 0 && !pick_elements(l, &p, &v))
        return;
    for (int d = 0; p.n == 0 && d < p.n_dims; d++)
        v = view_insert(&v, v.n_dims);
    /* where the broadcast dimensions stand: in place of the first one if the picked ones are
     * neighbours, else in front */
    int at = p.last - p.first + 1 == p.given ? p.first : 0, order[PT_DIMS], count = 0, next = 0;
    for (int d = 0; d < type->n_dims; d++) {
        if (d >= at && d < at + p.n_dims) {
            /* that of the samples, of size 1 in the tables, is self's */
            bool theirs = p.samples >= 0 && type->dims[d].batch;
            order[count++] = theirs ? samples : rest + d - at;
            continue;
        }
        next += next == samples;
        order[count++] = next++;
    }
    struct view out = {.value = v.value, .offset = v.offset, .n_dims = count};
    for (int d = 0; d < count; d++) {
        int from = view_first_axis(&v, order[d]);
        memcpy(&out.axes[out.n_axes], &v.axes[from], v.count[order[d]] * sizeof(*v.axes));
        out.count[d] = v.count[order[d]];
        out.n_axes += out.count[d];
    }
    if (lower_expand(l, &out, type->n_dims, type->dims, &out))
        lower_set(l, n, 0, &out);
}

static void lower_index_select(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    PP_OWN(free_picking) struct picking p = {.n_dims = 1, .samples = -1};
    const struct pt_arg *a = pt_arg_find(n, "index");
    struct view v = lower_tensor(l, n, "self");
    int order[PT_DIMS];
    if (v.n_dims < 0 || !a || a->kind != PT_TENSOR)
        return;
    int dim = lower_dim(n, "dim", 0, v.n_dims);
    if (!read_indices(l, a->value, dim, &p.at[p.n++]))
        return;
    p.dims[0] = p.at[0].c.n_dims > 0 ? p.at[0].c.dims[0] : 1;
    if (!pick_elements(l, &p, &v))
        return;
    for (int d = 0; d < v.n_dims; d++)
        order[d] = d == dim ? v.n_dims - 1 : d - (d > dim);
    v = view_permute(&v, order);
    lower_set(l, n, 0, &v);
}

/* Returns whether the indices are the same along a dimension. */
static bool is_same_along(const struct fold_constant *c, int dim)
{
    int64_t count = 1, place[PT_DIMS] = {0};
    for (int d = 0; d < c->n_dims; d++)
        count *= c->dims[d];
    for (int64_t i = 0; i < count; i++, next_place(c->n_dims, c->dims, place)) {
        int64_t first[PT_DIMS];
        memcpy(first, place, sizeof(first));
        first[dim] = 0;
        if (index_at(c, c->n_dims, place, 0) != index_at(c, c->n_dims, first, 0))
            return false;
    }
    return true;
}

/* Returns whether all numbers of a constant are the same: *number. */
static bool is_one_number(struct lower *l, const struct pt_node *n, double *number)
{
    PP_OWN(fold_constant_free) struct fold_constant c = {0};
    const struct pt_arg *a = pt_arg_find(n, "self");
    if (!a || a->kind != PT_TENSOR || l->values[a->value].state != LOWERED_HOST ||
        fold_read(l->folder, a->value, &c) < 0)
        return false;
    bool same = true;
    for (int64_t i = 1; i < c.n; i++)
        same = same && (c.floats ? c.floats[i] == c.floats[0] : c.ints[i] == c.ints[0]);
    *number = c.floats ? (double)c.floats[0] : (double)c.ints[0];
    return same;
}

/* result[..][i][..] = self[..][index[..][i][..]][..]: dimensions along which the indices are the
 * same stay, the others are picked together with `dim`. */
static void lower_gather(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    PP_OWN(free_indices) struct indices index = {.dim = 0};
    const struct pt_arg *a = pt_arg_find(n, "index");
    struct view v = lower_tensor(l, n, "self");
    int picked[PT_DIMS], n_picked = 0, kept = 0, order[PT_DIMS];
    int64_t sizes[PT_DIMS] = {0}, dims[PT_DIMS], place[PT_DIMS] = {0}, count;
    double number;
    if (v.n_dims < 1 || !a || a->kind != PT_TENSOR)
        return;
    int dim = lower_dim(n, "dim", 0, v.n_dims);
    if (l->values[a->value].state != LOWERED_HOST && is_one_number(l, n, &number)) {
        const struct lower_operand x[] = {{.view = lower_value(l, a->value)},
                                          {.is_number = true, .number = number}};
        if (lower_compute(l, "b", 2, x, NULL, &v))
            lower_set(l, n, 0, &v);
        return;
    }
    if (!read_indices(l, a->value, dim, &index))
        return;
    for (int d = 0; d < v.n_dims; d++) {
        if (d != dim && is_same_along(&index.c, d)) {
            order[d] = kept++;
            if (!lower_narrow(l, &v, d, 0, lower_type(l, n, 0)->dims[d].n, 1, &v))
                return;
        } else if (d != dim) {
            picked[n_picked++] = d;
        }
    }
    picked[n_picked++] = dim;
    for (int i = 0; i < n_picked; i++) {
        order[picked[i]] = kept + i;
        dims[i] = index.c.dims[picked[i]];
    }
    PP_OWN_MEMORY int32_t *table = make_table(l, n_picked, dims, &count);
    if (!table || !merge_dims(l, &v, n_picked, picked, sizes))
        return;
    for (int64_t i = 0; i < count; i++, next_place(n_picked, dims, place)) {
        int64_t at = 0, all[PT_DIMS] = {0};
        for (int k = 0; k < n_picked; k++)
            all[picked[k]] = place[k];
        for (int k = 0; k < n_picked; k++) {
            int64_t x =
                picked[k] == dim ? index_at(&index.c, index.c.n_dims, all, sizes[k]) : place[k];
            if (x < 0 || x >= sizes[k]) {
                refuse_outside(l);
                return;
            }
            at = at * sizes[k] + x;
        }
        table[i] = (int32_t)at;
    }
    if (!pick_last(l, &v, table, n_picked, dims))
        return;
    v = view_permute(&v, order);
    lower_set(l, n, 0, &v);
}

/* ---- the table */

#define MOVE(name, function, number)                                                               \
    {                                                                                              \
        .target = "aten." name, .lower = (function), .which = (number), .general = true            \
    }

const struct lowering lowerings_of_moves[] = {
    MOVE("cat.default", lower_cat, 0),
    MOVE("concat.default", lower_cat, 0),
    MOVE("concatenate.default", lower_cat, 0),
    MOVE("stack.default", lower_cat, 1),
    MOVE("pad.default", lower_pad, 0),
    MOVE("constant_pad_nd.default", lower_pad, 0),
    MOVE("reflection_pad1d.default", lower_pad, 1),
    MOVE("reflection_pad2d.default", lower_pad, 1),
    MOVE("replication_pad1d.default", lower_pad, 2),
    MOVE("replication_pad2d.default", lower_pad, 2),
    MOVE("roll.default", lower_roll, 0),
    MOVE("index.Tensor", lower_index, 0),
    MOVE("index_select.default", lower_index_select, 0),
    MOVE("gather.default", lower_gather, 0),
    {.target = NULL},
};
