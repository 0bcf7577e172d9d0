/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that write in place. A graph has no such thing: the operator gives a new value, and the
 * program's value that it writes, with all views of the same memory, is seen in the new one from
 * then on. A write into a part of a value copies the rest of it.
 */
#include "lower.h"

#include <string.h>

#include "ppcli/base/base.h"

/* ---- whose memory a value has */

bool lower_writes(const char *target)
{
    const char *name = strchr(target, '.');
    size_t n = name ? strcspn(name + 1, ".") : 0;
    return n > 1 && name[n] == '_' && name[n - 1] != '_';
}

/* Returns the value of the first argument that is a tensor; -1: there is none. */
static int first_tensor(const struct pt_node *n)
{
    for (int i = 0; i < n->n_args; i++)
        if (n->args[i].kind == PT_TENSOR)
            return n->args[i].value;
    return -1;
}

static void find_last_readers(struct lower *l)
{
    const struct pt_program *p = l->program;
    for (int i = 0; i < p->n_nodes; i++) {
        for (int k = 0; k < p->nodes[i].n_args; k++) {
            const struct pt_arg *a = &p->nodes[i].args[k];
            if (a->kind == PT_TENSOR && a->value >= 0)
                l->aliases[a->value].last_reader = i;
            for (int j = 0; a->kind == PT_TENSORS && j < a->n; j++)
                if (a->values[j] >= 0)
                    l->aliases[a->values[j]].last_reader = i;
        }
    }
    for (int i = 0; i < p->n_outputs; i++)
        if (p->outputs[i] >= 0)
            l->aliases[p->outputs[i]].last_reader = p->n_nodes;
}

int lower_find_aliases(struct lower *l)
{
    const struct pt_program *p = l->program;
    PP_ALLOC(l->aliases, p->n_values);
    for (int i = 0; i < p->n_values; i++)
        l->aliases[i] = (struct aliasing){.root = i, .perhaps = -1, .last_reader = -1};
    find_last_readers(l);
    for (int i = 0; i < p->n_nodes; i++) {
        const struct pt_node *n = &p->nodes[i];
        const struct lowering *row = lower_find(n->target);
        int from = first_tensor(n);
        bool writes = lower_writes(n->target);
        if (!row || from < 0 || (row->memory == LOWER_NEW && !writes))
            continue;
        for (int k = 0; k < n->n_outputs; k++) {
            if (n->outputs[k] < 0)
                continue;
            if (writes || row->memory == LOWER_ALIAS)
                l->aliases[n->outputs[k]].root = l->aliases[from].root;
            else
                l->aliases[n->outputs[k]].perhaps = l->aliases[from].root;
        }
    }
    return 0;
}

/* Returns the first of all values whose memory this one may have. */
static int first_owner(const struct lower *l, int root)
{
    while (l->aliases[root].perhaps >= 0)
        root = l->aliases[l->aliases[root].perhaps].root;
    return root;
}

/* ---- the memory that is written */

/* Lowers the value `root`, which no node of the graph has made, and all its views again, so that
 * they see one value of the graph. */
static void lower_again(struct lower *l, int root)
{
    const struct pt_program *p = l->program;
    int writer = l->node;
    struct view v = lower_value(l, root);
    bool repeats = false;
    for (int k = 0; v.n_dims >= 0 && k < v.n_axes; k++)
        repeats = repeats || (v.axes[k].size > 0 && v.axes[k].stride == 0);
    if (repeats)
        v = lower_copy(l, &v);
    if (l->rc < 0 || l->refused)
        return;
    l->values[root] = (struct lowered){.state = LOWERED_VIEW, .view = v};
    for (int i = 0; i < writer; i++) {
        const struct pt_node *n = &p->nodes[i];
        int from = first_tensor(n), out = n->n_outputs > 0 ? n->outputs[0] : -1;
        if (from < 0 || out < 0 || l->aliases[out].root != root || out == root)
            continue;
        l->node = i;
        if (lower_writes(n->target))
            l->values[out] = l->values[from];
        else
            lower_find(n->target)->lower(l, n, lower_find(n->target));
    }
    l->node = writer;
}

/* Returns whether two views of the same dimensions show the same elements at the same places. */
static bool are_same_places(const struct view *a, const struct view *b)
{
    struct view x = view_merge(a), y = view_merge(b);
    struct view *const both[] = {&x, &y};
    int bad;
    if (a->offset != b->offset || !view_align(both, 2, &bad))
        return false;
    for (int k = 0; k < x.n_axes; k++)
        if (x.axes[k].size > 0 && x.axes[k].stride != y.axes[k].stride)
            return false;
    return true;
}

/* A level of a value's memory, seen as a box of numbers: `size` of them, of which a view shows
 * `length` from `start` on. */
struct level {
    int64_t stride, size, start, length;
};

/* Finds the levels of a view of a value with `floats` floats; returns their number, or -1 if the
 * view is not a box. */
static int find_levels(const struct view *v, int64_t floats, struct level *levels)
{
    int n = 0;
    for (int k = 0; k < v->n_axes; k++) {
        if (v->axes[k].size == 0)
            continue;
        int at = n++;
        for (; at > 0 && levels[at - 1].stride < v->axes[k].stride; at--)
            levels[at] = levels[at - 1];
        levels[at] = (struct level){.stride = v->axes[k].stride, .length = v->axes[k].size};
    }
    if (n == 0 || levels[n - 1].stride > 1)
        levels[n++] = (struct level){.stride = 1, .length = 1};
    int64_t outer = floats;
    for (int i = 0; i < n; i++) {
        struct level *at = &levels[i];
        if (at->stride < 1 || outer % at->stride)
            return -1;
        at->size = outer / at->stride;
        at->start = v->offset % outer / at->stride;
        if (at->start + at->length > at->size)
            return -1;
        outer = at->stride;
    }
    return n;
}

/* Returns a view, of one dimension, of a box: with level `cut` it has `length` from `start` on, of
 * those before it what the view shows, and of those after it all. */
static struct view view_box(int value, int n, const struct level *levels, int cut, int64_t start,
                            int64_t length)
{
    struct view v = {.value = value, .n_dims = 1};
    for (int i = 0; i < n; i++) {
        const struct level *at = &levels[i];
        int64_t from = i < cut ? at->start : i == cut ? start : 0;
        int64_t size = i < cut ? at->length : i == cut ? length : at->size;
        v.offset += from * at->stride;
        if (size > 1)
            v.axes[v.n_axes++] = (struct axis){size, at->stride};
    }
    v.count[0] = (uint8_t)v.n_axes;
    return v;
}

/* Returns a value with the memory of the one that `old` shows, in which what it shows is replaced by
 * `with`. -1: a failure. */
static int replace_part(struct lower *l, const struct view *old, const struct view *with)
{
    int64_t floats = graph_floats(l->graph, old->value);
    struct level levels[VIEW_AXES + 1];
    struct lower_part parts[2 * VIEW_AXES + 3];
    const struct pt_size all = {floats, false};
    struct view layout = view_of_value(0, 1, &all), out;
    int n_levels = find_levels(old, floats, levels), n = 0;
    if (n_levels < 0 || n_levels > VIEW_AXES) {
        lower_refuse(l, "%s writes into a view whose parts are apart in memory",
                     l->program->nodes[l->node].target);
        return -1;
    }
    parts[n++] = (struct lower_part){.from = *with, .to = *old, .table_dim = -1};
    for (int i = 0; i < n_levels; i++) {
        int64_t end = levels[i].start + levels[i].length, size = levels[i].size;
        const int64_t cuts[][2] = {{0, levels[i].start}, {end, size - end}};
        for (int side = 0; side < 2; side++) {
            if (cuts[side][1] == 0)
                continue;
            struct view box =
                view_box(old->value, n_levels, levels, i, cuts[side][0], cuts[side][1]);
            parts[n++] = (struct lower_part){.from = box, .to = box, .table_dim = -1};
        }
    }
    if (!lower_move(l, &layout, 0, n, parts, &out))
        return -1;
    l->graph->nodes[out.value].shape = l->graph->nodes[old->value].shape;
    return out.value;
}

/* Returns the value that has the memory of the one that `old` shows after the write. */
static int write_view(struct lower *l, const struct view *old, const struct view *with)
{
    int order[VIEW_AXES], n;
    int64_t floats = graph_floats(l->graph, old->value);
    if (view_is_whole(old, floats, order, &n) && graph_floats(l->graph, with->value) == floats &&
        are_same_places(old, with))
        return with->value;
    return replace_part(l, old, with);
}

/* ---- the operator */

/* Returns whether a value is read after this node. */
static bool is_read_later(const struct lower *l, int value)
{
    return l->aliases[value].last_reader > l->node;
}

/* Returns whether a value other than `a` and `b` is read later and has the same memory: *apart, if
 * it may have been copied before. */
static bool has_other_readers(const struct lower *l, int a, int b, bool *apart)
{
    int root = l->aliases[a].root, owner = first_owner(l, root);
    bool some = false;
    *apart = false;
    for (int i = 0; i < l->program->n_values; i++) {
        if (i == a || i == b || l->values[i].state == LOWERED_NOT || !is_read_later(l, i))
            continue;
        if (l->aliases[i].root == root)
            some = true;
        else if (first_owner(l, l->aliases[i].root) == owner)
            *apart = true;
    }
    return some;
}

/* Makes all values with the memory `root` unknown: a problem. */
static void forget_memory(struct lower *l, int root)
{
    for (int i = 0; i < l->program->n_values; i++)
        if (l->aliases[i].root == root)
            l->values[i].state = LOWERED_NOT;
}

/* Moves all values with the memory `root`, which lie in the value `old`, to `now`. */
static bool move_views(struct lower *l, int root, int old, int now)
{
    for (int i = 0; i < l->program->n_values; i++) {
        struct lowered *v = &l->values[i];
        if (l->aliases[i].root != root || v->state == LOWERED_NOT)
            continue;
        if (v->state == LOWERED_VIEW && v->view.value == old)
            v->view.value = now;
        else if (is_read_later(l, i))
            return lower_refuse(l, "%s writes into a tensor, and a copy of it is read later",
                                l->program->nodes[l->node].target);
    }
    return true;
}

bool lower_is_count(const struct lower *l, const struct pt_node *n)
{
    int value = first_tensor(n);
    const struct pt_value *v = value >= 0 ? &l->program->values[l->aliases[value].root] : NULL;
    return v && lower_writes(n->target) && v->origin == PT_FROM_WEIGHT && v->type.n_dims == 0 &&
           v->type.dtype == PT_I64 && l->program->weights[v->index].kind == PT_BUFFER;
}

void lower_write(struct lower *l, const struct pt_node *n)
{
    int value = first_tensor(n), out = n->n_outputs > 0 ? n->outputs[0] : -1;
    if (value < 0 || out < 0)
        return;
    int root = l->aliases[value].root;
    const struct pt_value *made = &l->program->values[root];
    bool apart;
    if (made->origin == PT_FROM_WEIGHT && !l->refused)
        lower_refuse(l, "%s writes into %s: the parameters of a model change between steps only",
                     n->target, l->program->weights[made->index].name);
    if (l->refused || l->values[out].state == LOWERED_NOT) {
        forget_memory(l, root);
        return;
    }
    bool others = has_other_readers(l, value, out, &apart);
    if (apart) {
        lower_refuse(l,
                     "%s writes into a tensor that is read later too, if PyTorch did not copy it "
                     "before: write it without the _",
                     n->target);
        forget_memory(l, root);
        return;
    }
    struct lowered result = l->values[out];
    if (others) {
        if (l->values[root].state != LOWERED_VIEW)
            lower_again(l, root);
        struct view with = result.state == LOWERED_VIEW ? result.view : lower_value(l, out);
        const struct lowered old = l->values[value];
        int now = old.state == LOWERED_VIEW && with.n_dims >= 0 && !l->refused && l->rc == 0
                      ? write_view(l, &old.view, &with)
                      : -1;
        l->values[out] = old;
        if (now < 0 || !move_views(l, root, old.view.value, now))
            forget_memory(l, root);
        else
            result = l->values[value];
    }
    if (!l->refused)
        l->values[value] = l->values[out] = result;
}
