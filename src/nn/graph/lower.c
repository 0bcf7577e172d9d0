/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the graph of a program, node by node. What depends on no sample and no parameter is computed
 * by the folder; everything else by the handler of its operator. An operator without a handler, and
 * whatever needs its result, is left out, so that all problems of a program are found at once.
 */
#include "lower.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/base/base.h"

/* ---- problems */

void lower_add_problem(struct lower *l, const char *format, ...)
{
    struct graph *g = l->graph;
    char text[sizeof(g->problems->text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    l->refused = true;
    for (int i = 0; i < g->n_problems; i++) {
        if (strcmp(g->problems[i].text, text) == 0) {
            g->problems[i].count++;
            return;
        }
    }
    struct graph_problem *p = pp_realloc(g->problems, (size_t)g->n_problems + 1, sizeof(*p));
    if (!p) {
        l->rc = PP_ERESOURCE;
        return;
    }
    g->problems = p;
    p = &p[g->n_problems++];
    *p = (struct graph_problem){.source = l->node, .count = 1};
    memcpy(p->text, text, sizeof(text));
}

/* ---- arguments */

bool lower_has(const struct pt_node *n, const char *name)
{
    const struct pt_arg *a = pt_arg_find(n, name);
    return a && a->kind != PT_NONE;
}

int64_t lower_int(const struct pt_node *n, const char *name, int64_t otherwise)
{
    const struct pt_arg *a = pt_arg_find(n, name);
    return a && a->kind == PT_INT                ? a->size.n
           : a && a->kind == PT_INTS && a->n > 0 ? a->sizes[0].n
                                                 : otherwise;
}

double lower_number(const struct pt_node *n, const char *name, double otherwise)
{
    const struct pt_arg *a = pt_arg_find(n, name);
    return a && a->kind == PT_FLOAT      ? a->number
           : a && a->kind == PT_INT      ? (double)a->size.n
           : a && a->kind == PT_BOOL_ARG ? (double)a->flag
                                         : otherwise;
}

bool lower_flag(const struct pt_node *n, const char *name, bool otherwise)
{
    const struct pt_arg *a = pt_arg_find(n, name);
    return a && a->kind == PT_BOOL_ARG ? a->flag : otherwise;
}

int lower_in_range(int64_t dim, int n_dims)
{
    dim += dim < 0 ? n_dims : 0;
    return dim < 0 || dim >= n_dims ? 0 : (int)dim;
}

int lower_dim(const struct pt_node *n, const char *name, int64_t otherwise, int n_dims)
{
    return lower_in_range(lower_int(n, name, otherwise), n_dims);
}

int lower_weight(struct lower *l, const struct pt_node *n, const char *name)
{
    const struct pt_arg *a = pt_arg_find(n, name);
    if (!a || a->kind != PT_TENSOR || a->value < 0)
        return -1;
    const struct lowered *v = &l->values[a->value];
    int weight = v->state == LOWERED_WEIGHT ? v->weight
                 : v->state == LOWERED_HOST && l->program->values[a->value].origin == PT_FROM_WEIGHT
                     ? l->program->values[a->value].index
                     : -1;
    if (weight < 0)
        return -1;
    const struct pt_weight *w = &l->program->weights[weight];
    return w->kind == PT_PARAMETER || (w->kind == PT_BUFFER && w->persistent) ? weight : -1;
}

const struct pt_tensor *lower_type(const struct lower *l, const struct pt_node *n, int k)
{
    return &l->program->values[n->outputs[k]].type;
}

/* ---- nodes */

struct graph_node *lower_add(struct lower *l, enum graph_kind kind, int n_in, const int *in,
                             struct pp_shape shape)
{
    struct graph_node *n = l->rc == 0 ? graph_add(l->graph, kind, l->node, n_in, in, shape) : NULL;
    l->rc = n || l->rc < 0 ? l->rc : PP_ERESOURCE;
    return n;
}

struct pp_shape lower_shape(int64_t positions, int64_t channels)
{
    if (positions == 1)
        return pp_shape_flat((int)channels);
    return (struct pp_shape){2, {(int)positions, (int)channels, 1}};
}

struct view lower_constant(struct lower *l, const struct fold_constant *c)
{
    struct view v = {.n_dims = -1};
    if (c->n > INT_MAX) {
        lower_refuse(l, "a constant of more than 2^31 - 1 numbers");
        return v;
    }
    float *table = pp_alloc((size_t)c->n, sizeof(*table));
    struct graph_node *n =
        table ? lower_add(l, GRAPH_CONSTANT, 0, NULL, pp_shape_flat((int)c->n)) : NULL;
    if (!n) {
        pp_free(table);
        l->rc = PP_ERESOURCE;
        return v;
    }
    for (int64_t i = 0; i < c->n; i++)
        table[i] = c->floats ? c->floats[i] : (float)c->ints[i];
    n->table = table;
    v = (struct view){.value = l->graph->n_nodes - 1, .n_dims = c->n_dims};
    for (int d = 0; d < c->n_dims; d++) {
        if (d == c->batch_dim)
            v.axes[v.n_axes + v.count[d]++] = (struct axis){0, 0};
        if (c->dims[d] > 1)
            v.axes[v.n_axes + v.count[d]++] = (struct axis){c->dims[d], c->strides[d]};
        v.n_axes += v.count[d];
    }
    return v;
}

static struct view add_constant(struct lower *l, int value)
{
    PP_OWN(fold_constant_free) struct fold_constant c = {.batch_dim = -1};
    int rc = fold_read(l->folder, value, &c);
    if (rc == PP_ECONFIG)
        lower_refuse(l, "%s", pp_error_get()->text);
    else if (rc < 0)
        l->rc = rc;
    return rc < 0 ? (struct view){.n_dims = -1} : lower_constant(l, &c);
}

/* Returns a view of a new node that has a weight as an operand. */
static struct view add_weight(struct lower *l, int weight)
{
    const struct pt_tensor *type = &l->program->values[l->program->weights[weight].value].type;
    int64_t floats = 1;
    for (int d = 0; d < type->n_dims; d++)
        floats *= type->dims[d].n;
    struct graph_node *n = lower_add(l, GRAPH_WEIGHT, 0, NULL, pp_shape_flat((int)floats));
    if (!n)
        return (struct view){.n_dims = -1};
    n->n_weights = 1;
    n->weights[0] = weight;
    return view_of_value(l->graph->n_nodes - 1, type->n_dims, type->dims);
}

struct view lower_value(struct lower *l, int value)
{
    struct lowered *v = &l->values[value];
    if (v->state == LOWERED_NOT)
        l->refused = true;
    if (v->state == LOWERED_EMPTY)
        lower_refuse(l, "%s of a tensor without elements", l->program->nodes[l->node].target);
    /* Nodes of constants and weights are made for each reader: emit.c makes one of those that a
     * layer reads. */
    return v->state == LOWERED_VIEW     ? v->view
           : v->state == LOWERED_WEIGHT ? add_weight(l, v->weight)
           : v->state == LOWERED_HOST   ? add_constant(l, value)
                                        : (struct view){.n_dims = -1};
}

struct view lower_tensor(struct lower *l, const struct pt_node *n, const char *name)
{
    const struct pt_arg *a = pt_arg_find(n, name);
    if (a && a->kind == PT_TENSOR && a->value >= 0)
        return lower_value(l, a->value);
    lower_refuse(l, "%s: its argument %s is not a tensor", n->target, name);
    return (struct view){.n_dims = -1};
}

struct view lower_samples(struct lower *l, const struct pt_node *n, const char *name)
{
    struct view v = lower_tensor(l, n, name);
    if (v.n_dims < 0 || l->graph->nodes[v.value].rows)
        return v;
    v = lower_copy(l, &v);
    if (l->rc == 0 && v.n_dims >= 0)
        l->graph->nodes[v.value].rows = true;
    return v;
}

void lower_set(struct lower *l, const struct pt_node *n, int k, const struct view *v)
{
    if (l->rc < 0 || l->refused || v->n_dims < 0 || k >= n->n_outputs || n->outputs[k] < 0)
        return;
    const struct pt_tensor *type = lower_type(l, n, k);
    bool same = v->n_dims == type->n_dims && !v->full;
    for (int d = 0; same && d < v->n_dims; d++) {
        struct pt_size s = view_size(v, d);
        same = s.n == type->dims[d].n && s.batch == type->dims[d].batch;
    }
    if (!same) {
        char text[96];
        lower_refuse(l, "%s: its result has the shape %s, which the archive contradicts", n->target,
                     view_text(v, text, sizeof(text)));
        return;
    }
    l->values[n->outputs[k]] = (struct lowered){.state = LOWERED_VIEW, .view = *v};
}

struct view lower_copy(struct lower *l, const struct view *v)
{
    static const struct expr_step load = {.code = PP_EXPR_LOAD};
    struct view in = *v, out = {.n_dims = -1};
    return lower_expr(l, 1, &in, 1, &load, NULL, LOWER_IN_ORDER, &out) ? view_merge(&out) : out;
}

struct view lower_rows(struct lower *l, const struct view *v)
{
    if (v->n_dims < 1 || view_is_rows(v, graph_floats(l->graph, v->value)))
        return *v;
    return lower_copy(l, v);
}

struct view lower_with_channels(const struct view *v, int value, int64_t channels)
{
    struct view m = view_merge(v), to = m;
    int last = m.n_dims - 1;
    int64_t old = view_size(&m, last).n;
    to.value = value;
    for (int k = 0; k < m.n_axes; k++)
        to.axes[k].stride = m.axes[k].stride / old * channels;
    to.n_axes -= m.count[last];
    to.count[last] = 0;
    if (channels > 1) {
        to.count[last] = 1;
        to.axes[to.n_axes++] = (struct axis){channels, 1};
    }
    return to;
}

/* ---- the program */

static const struct table {
    const struct lowering *rows;
    const char *becomes;
} tables[] = {{lowerings_of_views, "view"},           {lowerings_of_moves, "move"},
              {lowerings_of_elements, "elementwise"}, {lowerings_of_sums, "sum"},
              {lowerings_of_sizes, "move"},           {lowerings_of_ops, "op"},
              {lowerings_of_windows, "op"},           {lowerings_of_norms, "op"},
              {lowerings_of_attention, "op"}};

#define TABLES (sizeof(tables) / sizeof(tables[0]))

const struct lowering *lower_find(const char *target)
{
    char plain[96];
    bool writes = lower_writes(target);
    for (int tries = 0; tries <= writes; tries++) {
        for (size_t t = 0; t < TABLES; t++)
            for (const struct lowering *row = tables[t].rows; row->target; row++)
                if (strcmp(row->target, tries == 0 ? target : plain) == 0)
                    return row;
        /* "aten.add_.Tensor" is "aten.add.Tensor" */
        size_t name = strcspn(target, ".") + 1, at = name + strcspn(target + name, ".") - 1;
        snprintf(plain, sizeof(plain), "%.*s%s", (int)at, target, target + at + 1);
    }
    return NULL;
}

const struct lowering *lower_row(int i, const char **becomes)
{
    for (size_t t = 0; t < TABLES; t++) {
        *becomes = tables[t].becomes;
        for (const struct lowering *row = tables[t].rows; row->target; row++)
            if (i-- == 0)
                return row;
    }
    return NULL;
}

/* Returns whether a tensor that the node reads has no value because of an earlier problem. */
static bool lacks_input(const struct lower *l, const struct pt_node *n)
{
    for (int i = 0; i < n->n_args; i++) {
        const struct pt_arg *a = &n->args[i];
        if (a->kind == PT_TENSOR && a->value >= 0 && l->values[a->value].state == LOWERED_NOT)
            return true;
        for (int k = 0; a->kind == PT_TENSORS && k < a->n; k++)
            if (a->values[k] >= 0 && l->values[a->values[k]].state == LOWERED_NOT)
                return true;
    }
    return false;
}

/* Returns whether each result has the samples in one dimension at most, as whole multiples. */
static bool keeps_samples_apart(struct lower *l, const struct pt_node *n)
{
    for (int k = 0; k < n->n_outputs; k++) {
        int batches = 0;
        const struct pt_tensor *type = n->outputs[k] >= 0 ? lower_type(l, n, k) : NULL;
        for (int d = 0; type && d < type->n_dims; d++) {
            batches += type->dims[d].batch;
            if (type->dims[d].n < 0)
                return lower_refuse(l,
                                    "%s: its result has a size that is not a whole multiple of the "
                                    "number of samples",
                                    n->target);
        }
        if (batches > 1)
            return lower_refuse(l,
                                "%s: its result has a number for each two samples of a batch: a "
                                "micro-batch has only some of them",
                                n->target);
    }
    return true;
}

/* Returns whether the results have no elements, so that nothing is to be computed. */
static bool are_empty(const struct lower *l, const struct pt_node *n)
{
    bool all = n->n_outputs > 0;
    for (int k = 0; k < n->n_outputs; k++) {
        bool empty = n->outputs[k] < 0;
        for (int d = 0; !empty && d < lower_type(l, n, k)->n_dims; d++)
            empty = lower_type(l, n, k)->dims[d].n == 0;
        all = all && empty;
    }
    return all && n->outputs[0] >= 0;
}

static bool holds_samples(const struct pt_arg *a)
{
    bool any = a->kind == PT_INT && a->size.batch;
    for (int i = 0; a->kind == PT_INTS && i < a->n; i++)
        any = any || a->sizes[i].batch;
    return any;
}

/* Returns whether the number of samples is an argument only where it is a size of the result. As a
 * factor or a place it would be another number in each micro-batch. */
static bool computes_without_count(struct lower *l, const struct pt_node *n)
{
    static const char *const sizes[] = {"size", "sizes",       "shape", "repeats",
                                        "dims", "split_sizes", "end",   "length"};
    for (int i = 0; i < n->n_args; i++) {
        const struct pt_arg *a = &n->args[i];
        bool is_size = false;
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
            is_size = is_size || strcmp(a->name, sizes[k]) == 0;
        if (a->kind == PT_OTHER_ARG)
            return lower_refuse(l, "%s: its argument %s is of a kind that ppcli does not read: %s",
                                n->target, a->name, a->text);
        if (!is_size && holds_samples(a))
            return lower_refuse(l,
                                "%s: its argument %s is computed of the number of samples, and a "
                                "micro-batch has only some of them: write a number",
                                n->target, a->name);
    }
    return true;
}

/* Returns whether no result is a float of another width than 32 bits: a program is computed in
 * those, and rounded to 16 bits where run.precision says so. */
static bool is_full_precision(struct lower *l, const struct pt_node *n)
{
    for (int k = 0; k < n->n_outputs; k++) {
        enum pt_dtype t = n->outputs[k] >= 0 ? lower_type(l, n, k)->dtype : PT_F32;
        if (t == PT_F16 || t == PT_BF16 || t == PT_F64)
            return lower_refuse(l,
                                "%s: its result is %s: export the model in float32, and set "
                                "run.precision",
                                n->target, pt_dtype_name(t));
    }
    return true;
}

static int lower_node(struct lower *l, int node)
{
    const struct pt_node *n = &l->program->nodes[node];
    l->node = node;
    l->refused = false;
    bool known;
    PP_TRY(fold_node(l->folder, node, &known));
    if (known) {
        for (int k = 0; k < n->n_outputs; k++)
            if (n->outputs[k] >= 0)
                l->values[n->outputs[k]].state = LOWERED_HOST;
        l->graph->n_folded++;
        return 0;
    }
    const struct lowering *row = lower_find(n->target);
    if (lower_is_count(l, n)) { /* the op of batch norm counts by itself */
        l->graph->n_folded++;
        return 0;
    }
    if (!row) {
        lower_refuse(l, "%s is none of the operators that ppcli knows (ppcli keys --operators)",
                     n->target);
        return l->rc;
    }
    if (are_empty(l, n)) {
        for (int k = 0; k < n->n_outputs; k++)
            if (n->outputs[k] >= 0)
                l->values[n->outputs[k]].state = LOWERED_EMPTY;
        l->graph->n_views++;
        return 0;
    }
    if (row->missing) {
        lower_refuse(l, "%s: %s", n->target, row->missing);
        return l->rc;
    }
    if (lacks_input(l, n)) {
        if (lower_writes(n->target))
            lower_write(l, n);
        return 0;
    }
    int before = l->graph->n_nodes;
    if (computes_without_count(l, n) && is_full_precision(l, n) && keeps_samples_apart(l, n))
        row->lower(l, n, row);
    int y = n->n_outputs > 0 ? n->outputs[0] : -1;
    if (l->rc == 0 && !l->refused && y >= 0 && l->values[y].state == LOWERED_NOT)
        lower_refuse(l, "%s is not taken with tensors like these", n->target);
    if (lower_writes(n->target))
        lower_write(l, n);
    if (l->refused)
        return l->rc;
    if (l->graph->n_nodes == before)
        l->graph->n_views++;
    else if (row->general)
        l->graph->n_general++;
    else
        l->graph->n_fast++;
    return l->rc;
}

/*
 * Makes the node of the data: value 0. A sample of the data lies in memory as rows of channels; the
 * program sees an image as [channels][height][width].
 */
static int lower_input(struct lower *l, const char *name, int value,
                       const struct pp_data_input *data)
{
    const struct pt_program *p = l->program;
    const struct pt_tensor *type = &p->values[value].type;
    struct pt_size dims[PT_DIMS] = {{0}};
    int order[PT_DIMS], n = type->n_dims;
    bool image = n == 4 && (data->shape.n == 0 || data->shape.n == 3);
    int64_t floats = 1;
    char has[48], wants[96];
    for (int d = 0; d < n; d++) {
        if (type->dims[d].n < 1 || (d > 0 && type->dims[d].batch))
            return pp_fail(PP_ECONFIG,
                           "%s: dimension %d of %s is not a number: only the number of samples, "
                           "dimension 0, may be free",
                           p->file, d, name);
        floats *= type->dims[d].n;
        order[d] = image && d == 1 ? 3 : image && d > 1 ? d - 1 : d;
    }
    /* in memory: samples, height, width, channels */
    for (int d = 0; d < n; d++)
        dims[order[d]] = type->dims[d];
    struct view v = view_of_value(0, n, dims);
    if (image)
        v = view_permute(&v, (const int[]){0, 3, 1, 2});
    struct pp_shape shape = data->shape;
    if (shape.n == 0)
        shape = image ? pp_shape_image((int)dims[1].n, (int)dims[2].n, (int)dims[3].n)
                      : lower_shape(floats / dims[n - 1].n, dims[n - 1].n);
    if (n == 2 && shape.n == 3) { /* an image that forward() takes flat, as [channels][..][..] */
        struct pt_size all[] = {
            dims[0], {shape.dims[0], false}, {shape.dims[1], false}, {shape.dims[2], false}};
        v = view_of_value(0, 4, all);
        v = view_permute(&v, (const int[]){0, 3, 1, 2});
        v.n_dims = 2;
        v.count[1] = (uint8_t)(v.n_axes - v.count[0]);
    }
    bool same = (int64_t)pp_shape_floats(&shape) == floats && type->dims[0].n == 1;
    for (int d = 1; image && same && d < 4; d++)
        same = dims[d].n == shape.dims[d - 1];
    if (!same) {
        pp_shape_text(&shape, has, sizeof(has));
        return pp_fail(PP_ECONFIG,
                       "%s: forward() takes %s of shape %s, and a sample of the data has the shape "
                       "%s: export the model with an example like the data, or set data.resize, "
                       "data.shape or model.block_size",
                       p->file, name, view_text(&v, wants, sizeof(wants)), has);
    }
    struct graph_node *node = lower_add(l, GRAPH_INPUT, 0, NULL, shape);
    if (!node)
        return PP_ERESOURCE;
    node->source = -1;
    l->values[value] = (struct lowered){.state = LOWERED_VIEW, .view = v};
    return 0;
}

/* Sets what the inputs and weights of the program are. */
static int lower_origins(struct lower *l, const struct pp_data_input *data)
{
    const struct pt_program *p = l->program;
    int input = -1;
    for (int i = 0; i < p->n_values; i++)
        if (p->values[i].origin == PT_FROM_WEIGHT)
            l->values[i] =
                (struct lowered){.state = fold_knows(l->folder, i) ? LOWERED_HOST : LOWERED_WEIGHT,
                                 .weight = p->values[i].index};
    for (int i = 0; i < p->n_inputs; i++) {
        if (p->inputs[i].value < 0)
            continue;
        if (input >= 0)
            return pp_fail(PP_ECONFIG,
                           "%s: forward() takes two tensors, %s and %s, and ppcli's data give one: "
                           "export a module whose forward() takes one and makes the others of it",
                           p->file, p->inputs[input].name, p->inputs[i].name);
        input = i;
    }
    if (input < 0)
        return pp_fail(PP_ECONFIG, "%s: forward() takes no tensor", p->file);
    const struct pt_tensor *type = &p->values[p->inputs[input].value].type;
    if (type->n_dims < 1 || !type->dims[0].batch) {
        return pp_fail(PP_ECONFIG,
                       "%s: dimension 0 of %s is %lld, always: export with dynamic_shapes=({0: "
                       "torch.export.Dim.DYNAMIC},) and an example of 2 samples or more",
                       p->file, p->inputs[input].name,
                       type->n_dims < 1 ? 0 : (long long)type->dims[0].n);
    }
    return lower_input(l, p->inputs[input].name, p->inputs[input].value, data);
}

/* Finds the value that forward() returns, and gives it the memory of logits. */
static int lower_output(struct lower *l)
{
    const struct pt_program *p = l->program;
    int value = p->n_outputs > 0 ? p->outputs[0] : -1;
    if (value < 0)
        return pp_fail(PP_ECONFIG, "%s: forward() returns no tensor first", p->file);
    if (l->values[value].state == LOWERED_NOT)
        return 0; /* a problem says why */
    l->node = p->n_nodes - 1;
    l->refused = false;
    struct view v = lower_value(l, value);
    int last = v.n_dims - 1;
    char text[96];
    if (l->rc < 0 || l->refused)
        return l->rc;
    if (view_batch_axis(&v) < 0 || last < 1 || view_has_batch(&v, last))
        return pp_fail(PP_ECONFIG,
                       "%s: forward() returns %s first; logits are [samples][classes] or "
                       "[samples][positions][classes]%s",
                       p->file, view_text(&v, text, sizeof(text)),
                       v.n_dims == 1 ? ", one number is [samples][1], without squeeze()" : "");
    v = lower_rows(l, &v);
    if (l->rc < 0)
        return l->rc;
    l->graph->output = v.value;
    return 0;
}

static void destroy_graph(struct graph **g)
{
    graph_destroy(*g);
}

static void destroy_lower(struct lower *l)
{
    folder_destroy(&l->folder);
    pp_free(l->values);
    pp_free(l->aliases);
}

int graph_lower(const struct pt_program *p, const struct pp_data_input *data, struct graph **out)
{
    PP_OWN(destroy_lower) struct lower l = {.program = p};
    PP_OWN(destroy_graph) struct graph *g = pp_alloc(1, sizeof(*g));
    l.values = pp_alloc((size_t)p->n_values, sizeof(*l.values));
    if (!g || !l.values)
        return PP_ERESOURCE;
    g->program = p;
    l.graph = g;
    PP_TRY(folder_create(p, &l.folder));
    PP_TRY(lower_find_aliases(&l));
    PP_TRY(lower_origins(&l, data));
    for (int i = 0; i < p->n_nodes; i++)
        PP_TRY(lower_node(&l, i));
    PP_TRY(lower_output(&l));
    if (g->n_problems == 0)
        graph_count_readers(g);
    *out = g;
    g = NULL;
    return 0;
}
