/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators with weights: products and embeddings; dropout; and products of two computed tensors,
 * which are elementwise products that are summed.
 */
#include "lower.h"

#include <limits.h>
#include <string.h>

#include "ppcli/base/base.h"

/* ---- products with a weight */

/* A weight, or some rows of it, as the matrix [out][in] of a product. */
struct matrix {
    int weight;                  /* of the program; -1: the tensor is none */
    int64_t out, in, first, all; /* rows first .. first + out - 1 of `all` */
    bool transposed;             /* it is [in][out] in the file */
};

/* Returns whether more than one operator of the program reads a weight, or one with the same
 * memory: then its order in memory is that of the file. */
static bool is_read_twice(const struct lower *l, int weight)
{
    const struct pt_program *p = l->program;
    int readers = 0;
    for (int i = 0; i < p->n_nodes; i++) {
        for (int k = 0; k < p->nodes[i].n_args; k++) {
            const struct pt_arg *a = &p->nodes[i].args[k];
            const struct pt_value *v =
                a->kind == PT_TENSOR && a->value >= 0 ? &p->values[a->value] : NULL;
            readers += v && v->origin == PT_FROM_WEIGHT &&
                       strcmp(p->weights[v->index].storage, p->weights[weight].storage) == 0;
        }
    }
    return readers > 1;
}

/* Returns the matrix that a tensor of two dimensions, [out][in], shows. */
static struct matrix find_matrix(const struct lower *l, const struct view *w)
{
    struct matrix m = {.weight = -1};
    struct view v = view_merge(w);
    const struct graph_node *n = &l->graph->nodes[v.value];
    if (v.n_dims != 2 || n->kind != GRAPH_WEIGHT || v.count[0] > 1 || v.count[1] > 1)
        return m;
    m.out = view_size(&v, 0).n;
    m.in = view_size(&v, 1).n;
    m.all = graph_floats(l->graph, v.value) / m.in;
    m.first = v.offset / m.in;
    const struct axis *rows = &v.axes[0], *columns = &v.axes[v.count[0]];
    bool whole = m.all == m.out;
    bool plain = (m.out == 1 || rows->stride == m.in) && (m.in == 1 || columns->stride == 1) &&
                 v.offset % m.in == 0 && graph_floats(l->graph, v.value) % m.in == 0;
    m.transposed = !plain && whole && rows->stride == 1 && columns->stride == m.out &&
                   !is_read_twice(l, n->weights[0]);
    if (plain || m.transposed)
        m.weight = n->weights[0];
    return m;
}

/* Returns the weight whose elements first .. a bias of this matrix shows; -1: it is none such. */
static int find_bias(const struct lower *l, const struct matrix *m, const struct view *bias)
{
    const struct graph_node *n = bias->n_dims == 1 ? &l->graph->nodes[bias->value] : NULL;
    bool fits = n && n->kind == GRAPH_WEIGHT && bias->offset == m->first &&
                graph_floats(l->graph, bias->value) == m->all && bias->n_axes <= 1 &&
                view_size(bias, 0).n == m->out && (m->out == 1 || bias->axes[0].stride == 1);
    return fits ? n->weights[0] : -1;
}

/* Returns whether the last dimension of a view has all channels of each pixel of an image, channels
 * first, so that only the order of a weight's columns differs from that of rows; sets *columns. */
static bool find_columns(const struct lower *l, const struct view *v, struct pp_shape *columns)
{
    int order[VIEW_AXES], n;
    struct view m = view_merge(v);
    int last = m.n_dims - 1, at = view_first_axis(&m, last);
    if (!view_is_whole(&m, graph_floats(l->graph, m.value), order, &n) || m.count[last] != 2 ||
        view_has_batch(&m, last))
        return false;
    const struct axis *channel = &m.axes[at], *pixel = &m.axes[at + 1];
    if (channel->stride != 1 || pixel->stride != channel->size)
        return false;
    *columns = pp_shape_image((int)pixel->size, 1, (int)channel->size);
    return true;
}

/* Adds the product of x[..][in] with a matrix, plus a bias (a weight, or -1); returns [..][out]. */
static struct view add_linear(struct lower *l, const struct view *x, const struct matrix *w,
                              int bias)
{
    struct view none = {.n_dims = -1}, in = *x;
    struct pp_shape columns = {0};
    char text[96];
    if (x->n_dims < 1 || view_has_batch(x, x->n_dims - 1) ||
        view_size(x, x->n_dims - 1).n != w->in) {
        lower_refuse(
            l,
            "a linear layer of %s sums over the samples of a batch: a micro-batch has only "
            "some of them",
            view_text(x, text, sizeof(text)));
        return none;
    }
    bool in_order = w->transposed || w->out < w->all || is_read_twice(l, w->weight);
    if (in_order || !find_columns(l, &in, &columns))
        in = lower_rows(l, &in);
    if (l->rc < 0 || l->refused)
        return none;
    int64_t positions = graph_floats(l->graph, in.value) / w->in;
    if (positions * w->out > INT_MAX) {
        lower_refuse(l, "a value of more than 2^31 - 1 numbers per sample");
        return none;
    }
    struct graph_node *n = lower_add(l, GRAPH_LINEAR, 1, &in.value, lower_shape(positions, w->out));
    if (!n)
        return none;
    n->channels = (int)w->out;
    n->positions = (int)positions;
    n->columns = columns;
    n->transposed = w->transposed;
    n->first = (int)w->first;
    n->all = (int)w->all;
    n->bias = bias >= 0;
    n->n_weights = bias >= 0 ? 2 : 1;
    n->weights[0] = w->weight;
    n->weights[1] = bias;
    return lower_with_channels(&in, l->graph->n_nodes - 1, w->out);
}

/* ---- products of two computed tensors */

/* Returns a view with other sizes of 1 repeated, as `dims`. */
static bool expand_to(struct lower *l, struct view *v, int n_dims, const struct pt_size *dims)
{
    char text[96];
    return view_expand(v, n_dims, dims, v) ||
           lower_refuse(l, "a tensor of %s cannot be repeated as its product needs",
                        view_text(v, text, sizeof(text)));
}

/* Adds a * b, summed over all dimensions after the first n_out; a and b are repeated to
 * dims[n_dims]. */
static struct view add_product(struct lower *l, const struct view *a, const struct view *b,
                               int n_dims, const struct pt_size *dims, int n_out)
{
    static const struct expr_step steps[] = {{.code = PP_EXPR_LOAD, .a = 0},
                                             {.code = PP_EXPR_LOAD, .a = 1},
                                             {.code = PP_EXPR_MUL, .a = 0, .b = 1}};
    struct view none = {.n_dims = -1}, y = none, in[2] = {*a, *b};
    bool summed[PT_DIMS] = {false};
    int samples = 0;
    for (int d = 0; d < n_dims; d++) {
        samples += dims[d].batch;
        summed[d] = d >= n_out;
    }
    if (samples > 1) {
        lower_refuse(l, "a product of samples with samples: a micro-batch sees only its own");
        return none;
    }
    if (!expand_to(l, &in[0], n_dims, dims) || !expand_to(l, &in[1], n_dims, dims) ||
        !lower_expr(l, 2, in, 3, steps, summed, LOWER_IN_ORDER, &y))
        return none;
    while (y.n_dims > n_out)
        y = view_drop(&y, n_out);
    return y;
}

/* Returns the product a[..][m][k] * b[..][k][n] in the dimensions `out`[..][m][n]. */
static struct view multiply(struct lower *l, const struct view *a, const struct view *b,
                            const struct pt_tensor *out)
{
    struct view left = *a, right = view_transpose(b, b->n_dims - 2, b->n_dims - 1);
    struct matrix w = find_matrix(l, &right);
    if (w.weight >= 0 && l->graph->nodes[left.value].rows)
        return add_linear(l, &left, &w, -1);
    w = find_matrix(l, &left);
    if (w.weight >= 0 && l->graph->nodes[right.value].rows) {
        struct view y = add_linear(l, &right, &w, -1);
        return y.n_dims < 0 ? y : view_transpose(&y, y.n_dims - 2, y.n_dims - 1);
    }
    struct pt_size dims[PT_DIMS];
    int n = out->n_dims;
    if (n + 1 > PT_DIMS) {
        lower_refuse(l, "a product of more than %d dimensions", PT_DIMS - 1);
        return (struct view){.n_dims = -1};
    }
    memcpy(dims, out->dims, (size_t)n * sizeof(*dims));
    dims[n] = view_size(a, a->n_dims - 1);
    left = view_insert(&left, left.n_dims - 1);
    right = view_insert(&right, right.n_dims - 2);
    return add_product(l, &left, &right, n + 1, dims, n);
}

/* ---- operators */

/* Adds a bias that is not a parameter as a whole. */
static struct view add_bias(struct lower *l, const struct view *y, struct view bias)
{
    static const struct expr_step steps[] = {{.code = PP_EXPR_LOAD, .a = 0},
                                             {.code = PP_EXPR_LOAD, .a = 1},
                                             {.code = PP_EXPR_ADD, .a = 0, .b = 1}};
    struct view out = {.n_dims = -1}, in[2] = {*y, bias};
    struct pt_size dims[PT_DIMS];
    for (int d = 0; d < y->n_dims; d++)
        dims[d] = view_size(y, d);
    if (y->n_dims >= 0 && bias.n_dims >= 0 && expand_to(l, &in[1], y->n_dims, dims))
        lower_expr(l, 2, in, 3, steps, NULL, LOWER_AS_LARGEST, &out);
    return out;
}

/* Sets the result to x * w^T + the argument `bias`. */
static void set_product(struct lower *l, const struct pt_node *n, const struct view *x,
                        const struct view *w, const char *bias_name)
{
    struct view y, turned, bias = {.n_dims = -1};
    if (l->rc < 0 || l->refused || x->n_dims < 0 || w->n_dims != 2)
        return;
    struct matrix m = find_matrix(l, w);
    bool biased = lower_has(n, bias_name);
    if (biased)
        bias = lower_tensor(l, n, bias_name);
    int of_bias = biased && m.weight >= 0 ? find_bias(l, &m, &bias) : -1;
    turned = view_transpose(w, 0, 1);
    if (m.weight >= 0)
        y = add_linear(l, x, &m, of_bias);
    else
        y = multiply(l, x, &turned, lower_type(l, n, 0));
    if (biased && of_bias < 0)
        y = add_bias(l, &y, bias);
    lower_set(l, n, 0, &y);
}

static void lower_linear(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view x = lower_samples(l, n, "input"), w = lower_tensor(l, n, "weight");
    (void)row;
    if (x.n_dims >= 0 && w.n_dims == 2)
        set_product(l, n, &x, &w, "bias");
}

/* addmm: bias + mat1 * mat2 */
static void lower_addmm(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view x = lower_samples(l, n, "mat1"), w = lower_tensor(l, n, "mat2");
    double alpha = lower_number(n, "alpha", 1), beta = lower_number(n, "beta", 1);
    (void)row;
    if (x.n_dims != 2 || w.n_dims != 2)
        return;
    if (alpha < 1 || alpha > 1 || beta < 1 || beta > 1) {
        lower_refuse(l, "addmm with alpha %g and beta %g: only 1 and 1 are known", alpha, beta);
        return;
    }
    w = view_transpose(&w, 0, 1);
    set_product(l, n, &x, &w, "self");
}

/* mm, bmm, matmul */
static void lower_matmul(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct view a = lower_tensor(l, n, "self");
    struct view b = lower_tensor(l, n, pt_arg_find(n, "other") ? "other" : "mat2");
    (void)row;
    if (a.n_dims < 0 || b.n_dims < 0)
        return;
    if (a.n_dims < 2 || b.n_dims < 2) {
        lower_refuse(l, "%s of a vector: give it a dimension of 1 with unsqueeze()", n->target);
        return;
    }
    struct view y = multiply(l, &a, &b, lower_type(l, n, 0));
    lower_set(l, n, 0, &y);
}

/* Reads the labels of a tensor in an equation of einsum, text[n]; at[d] becomes the number of
 * dimension d's label in labels[*n_labels], which new ones join. Returns the number of dimensions,
 * or -1. */
static int read_labels(const char *text, size_t n, char *labels, int *n_labels, int at[PT_DIMS])
{
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        int k = 0;
        if (text[i] == ' ')
            continue;
        while (k < *n_labels && labels[k] != text[i])
            k++;
        for (int d = 0; d < count; d++)
            if (at[d] == k)
                return -1;
        if (text[i] == '.' || k == PT_DIMS || count == PT_DIMS)
            return -1;
        labels[k] = text[i];
        *n_labels += k == *n_labels;
        at[count++] = k;
    }
    return count;
}

/* Brings dimension d to place at[d] of n; those that the view lacks get size 1. */
static struct view place_dims(const struct view *v, const int *at, int n)
{
    struct view out = *v;
    int order[PT_DIMS];
    for (int i = 0; i < n; i++) {
        order[i] = -1;
        for (int d = 0; d < v->n_dims; d++)
            order[i] = at[d] == i ? d : order[i];
        if (order[i] < 0) {
            order[i] = out.n_dims;
            out = view_insert(&out, out.n_dims);
        }
    }
    return view_permute(&out, order);
}

/* einsum of two tensors, "bhid,bhjd->bhij" */
static void lower_einsum(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_arg *equation = pt_arg_find(n, "equation"), *list = pt_arg_find(n, "tensors");
    const char *text = equation && equation->kind == PT_STRING ? equation->text : "";
    const char *comma = strchr(text, ','), *arrow = strstr(text, "->");
    char labels[PT_DIMS];
    int at[2][PT_DIMS], out_at[PT_DIMS], n_labels = 0, count[2] = {-1, -1}, n_out = -1;
    (void)row;
    if (comma && arrow && comma < arrow) { /* labels of the result come first */
        n_out = read_labels(arrow + 2, strlen(arrow + 2), labels, &n_labels, out_at);
        count[0] = read_labels(text, (size_t)(comma - text), labels, &n_labels, at[0]);
        count[1] = read_labels(comma + 1, (size_t)(arrow - comma) - 1, labels, &n_labels, at[1]);
    }
    if (!list || list->kind != PT_TENSORS || list->n != 2 || n_out < 0 || count[0] < 0 ||
        count[1] < 0) {
        lower_refuse(l, "einsum of '%s': only two tensors with different letters are known", text);
        return;
    }
    struct view in[2] = {lower_value(l, list->values[0]), lower_value(l, list->values[1])};
    struct pt_size dims[PT_DIMS];
    if (in[0].n_dims != count[0] || in[1].n_dims != count[1])
        return;
    for (int t = 0; t < 2; t++)
        for (int d = 0; d < count[t]; d++)
            dims[at[t][d]] = view_size(&in[t], d);
    for (int d = 0; d < n_out; d++)
        dims[d] = lower_type(l, n, 0)->dims[d];
    in[0] = place_dims(&in[0], at[0], n_labels);
    in[1] = place_dims(&in[1], at[1], n_labels);
    struct view y = add_product(l, &in[0], &in[1], n_labels, dims, n_out);
    lower_set(l, n, 0, &y);
}

/* ---- embeddings */

/* Adds a node that copies rows table[i] of w[..][channels] to [n][channels]. */
static bool add_rows_of(struct lower *l, const struct view *w, int n, const int32_t *rows)
{
    PP_OWN_MEMORY struct expr_piece *piece = pp_alloc(1, sizeof(*piece));
    PP_OWN_MEMORY struct expr_operand *operand = pp_alloc(1, sizeof(*operand));
    PP_OWN_MEMORY struct expr_step *step = pp_alloc(1, sizeof(*step));
    int table = graph_add_table(l->graph, n, rows), channels = (int)view_size(w, 1).n;
    struct graph_node *node = piece && operand && step && table >= 0
                                  ? lower_add(l, GRAPH_EXPR, 1, &w->value, lower_shape(n, channels))
                                  : NULL;
    if (!node) {
        l->rc = l->rc < 0 ? l->rc : PP_ERESOURCE;
        return false;
    }
    *step = (struct expr_step){.code = PP_EXPR_LOAD};
    *operand = (struct expr_operand){
        .offset = w->offset, .stride = {channels, 1}, .table_axis = 0, .table = table};
    *piece = (struct expr_piece){.n_axes = 2,
                                 .size = {n, channels},
                                 .n_operands = 1,
                                 .operands = operand,
                                 .n_steps = 1,
                                 .steps = step,
                                 .result = {.stride = {channels, 1}, .table_axis = -1}};
    node->n_pieces = 1;
    node->pieces = piece;
    piece = NULL;
    operand = NULL;
    step = NULL;
    return true;
}

/* Writes the constant indices of one sample in the order of their dimensions; false: refused. */
static bool read_indices(struct lower *l, const struct fold_constant *c, int64_t limit, int n,
                         int32_t *out)
{
    for (int i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = c->n_dims - 1, left = i; d >= 0; d--) {
            int size = c->dims[d] > 0 && c->dims[d] < INT_MAX ? (int)c->dims[d] : 1;
            at += left % size * c->strides[d];
            left /= size;
        }
        if (at >= c->n)
            return lower_refuse(l, "an embedding of fewer indices than its result has");
        if (c->ints[at] < 0 || c->ints[at] >= limit)
            return lower_refuse(l, "an embedding of %lld rows has no row %lld", (long long)limit,
                                (long long)c->ints[at]);
        out[i] = (int32_t)c->ints[at];
    }
    return true;
}

/* Sets the result to rows of a weight [rows][channels] that constants name: a view if these are
 * neighbours, as positions are. */
static void embed_constant(struct lower *l, const struct pt_node *n, int value)
{
    PP_OWN(fold_constant_free) struct fold_constant c = {.batch_dim = -1};
    struct view w = lower_tensor(l, n, "weight"), y;
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct pt_size dims[PT_DIMS];
    int64_t count = 1;
    if (w.n_dims != 2 || l->rc < 0)
        return;
    int rc = fold_read(l->folder, value, &c);
    if (rc == PP_ECONFIG)
        lower_refuse(l, "%s", pp_error_get()->text);
    if (rc < 0) {
        l->rc = rc == PP_ECONFIG ? l->rc : rc;
        return;
    }
    for (int d = 0; d < type->n_dims; d++) {
        dims[d] = (struct pt_size){type->dims[d].n, false};
        count *= d < type->n_dims - 1 ? dims[d].n : 1;
    }
    if (count < 1 || count > INT_MAX) {
        lower_refuse(l, "an embedding of %lld rows of a sample", (long long)count);
        return;
    }
    PP_OWN_MEMORY int32_t *rows = pp_alloc((size_t)count, sizeof(*rows));
    if (!rows) {
        l->rc = PP_ERESOURCE;
        return;
    }
    if (!c.ints || !read_indices(l, &c, view_size(&w, 0).n, (int)count, rows))
        return;
    bool neighbours = true;
    int64_t padding = lower_int(n, "padding_idx", -1);
    for (int i = 0; i < (int)count; i++) {
        neighbours = neighbours && (i == 0 || rows[i] == rows[i - 1] + 1);
        if (rows[i] == padding) {
            lower_refuse(l, "an embedding of constants that has its padding_idx, %lld, among them",
                         (long long)padding);
            return;
        }
    }
    if (neighbours && view_narrow(&w, 0, rows[0], count, 1, &y) &&
        view_reshape(&y, type->n_dims, dims, &y) && view_expand(&y, type->n_dims, type->dims, &y)) {
        lower_set(l, n, 0, &y);
    } else if (add_rows_of(l, &w, (int)count, rows)) {
        y = view_of_value(l->graph->n_nodes - 1, type->n_dims, type->dims);
        lower_set(l, n, 0, &y);
    }
}

static void lower_embedding(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_arg *indices = pt_arg_find(n, "indices");
    int weight = lower_weight(l, n, "weight");
    const struct pt_weight *w = weight < 0 ? NULL : &l->program->weights[weight];
    (void)row;
    if (lower_flag(n, "sparse", false) || lower_flag(n, "scale_grad_by_freq", false)) {
        lower_refuse(l, "an embedding with sparse or scale_grad_by_freq: leave them off");
        return;
    }
    if (!indices || indices->kind != PT_TENSOR || indices->value < 0)
        return;
    if (l->values[indices->value].state == LOWERED_HOST) {
        embed_constant(l, n, indices->value);
        return;
    }
    if (!w || w->n_dims != 2) {
        lower_refuse(l, "an embedding whose table is computed: only a parameter as it is can be "
                        "looked up by what the data say");
        return;
    }
    struct view x = lower_samples(l, n, "indices");
    if (x.n_dims < 0)
        return;
    /* rows of one channel, so that channels can take its place */
    x = view_insert(&x, x.n_dims);
    x = lower_rows(l, &x);
    int64_t positions = l->rc < 0 || l->refused ? 0 : graph_floats(l->graph, x.value);
    struct graph_node *e =
        positions > 0 && positions * w->dims[1] <= INT_MAX
            ? lower_add(l, GRAPH_EMBEDDING, 1, &x.value, lower_shape(positions, w->dims[1]))
            : NULL;
    if (!e)
        return;
    e->channels = (int)w->dims[1];
    e->positions = (int)positions;
    e->padding = (int)lower_int(n, "padding_idx", -1);
    e->n_weights = 2;
    e->weights[0] = weight;
    e->weights[1] = -1;
    struct view y = lower_with_channels(&x, l->graph->n_nodes - 1, w->dims[1]);
    lower_set(l, n, 0, &y);
}

/* ---- dropout, and what is not taken */

static void lower_dropout(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const char *input = pt_arg_find(n, "input") ? "input" : "self";
    double p = lower_number(n, "p", 0.5);
    bool train = lower_flag(n, "train", true);
    int order[VIEW_AXES], axes;
    struct view x = train && p > 0 ? lower_samples(l, n, input) : lower_tensor(l, n, input);
    (void)row;
    if (x.n_dims < 0)
        return;
    if (!train || p <= 0) {
        lower_set(l, n, 0, &x);
        return;
    }
    if (p >= 1) {
        lower_refuse(l, "dropout of everything (p = %g)", p);
        return;
    }
    if (!view_is_whole(&x, graph_floats(l->graph, x.value), order, &axes))
        x = lower_copy(l, &x);
    if (l->rc < 0 || l->refused)
        return;
    struct graph_node *d = lower_add(l, GRAPH_DROPOUT, 1, &x.value, l->graph->nodes[x.value].shape);
    if (!d)
        return;
    d->p = (float)p;
    x.value = l->graph->n_nodes - 1;
    lower_set(l, n, 0, &x);
}

/* 1 with probability p, else 0: a dropout of the number p. So its mean, p, is what a test sees. */
static void lower_bernoulli(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    struct lower_operand x[2] = {{.view = lower_tensor(l, n, "self")},
                                 {.is_number = true, .number = lower_number(n, "p", 0.5)}};
    struct view v;
    (void)row;
    if (!lower_compute(l, "b", 2, x, NULL, &v))
        return;
    l->graph->nodes[v.value].rows = true; /* each sample has its own */
    if (x[1].number > 0 && x[1].number < 1) {
        struct graph_node *d =
            lower_add(l, GRAPH_DROPOUT, 1, &v.value, l->graph->nodes[v.value].shape);
        if (!d)
            return;
        d->p = (float)(1 - x[1].number);
        v.value = l->graph->n_nodes - 1;
    }
    lower_set(l, n, 0, &v);
}

#define LOSS "the graph computes its own loss: export the model without it"
#define DROPOUT "of dropouts only torch.nn.Dropout is known"
#define RECURRENT "recurrent layers are not known"
#define RANDOM "of random numbers only dropout and bernoulli_ are known"
#define ORDER "an order that depends on the data is not known"

const struct lowering lowerings_of_ops[] = {
    LOWER("aten.linear.default", lower_linear),
    LOWER("aten.addmm.default", lower_addmm),
    LOWER("aten.mm.default", lower_matmul),
    LOWER("aten.bmm.default", lower_matmul, .general = true),
    LOWER("aten.matmul.default", lower_matmul, .general = true),
    LOWER("aten.einsum.default", lower_einsum, .general = true),
    LOWER("aten.embedding.default", lower_embedding),
    LOWER("aten.dropout.default", lower_dropout),
    LOWER("aten.dropout_.default", lower_dropout),
    LOWER("aten.bernoulli.p", lower_bernoulli),
    LOWER("aten.bernoulli_.float", lower_bernoulli),
    MISSING("aten.feature_dropout.default", DROPOUT),
    MISSING("aten.feature_dropout_.default", DROPOUT),
    MISSING("aten.alpha_dropout.default", DROPOUT),
    MISSING("aten.alpha_dropout_.default", DROPOUT),
    MISSING("aten.feature_alpha_dropout.default", DROPOUT),
    MISSING("aten.lstm.input", RECURRENT),
    MISSING("aten.lstm.data", RECURRENT),
    MISSING("aten.lstm_cell.default", RECURRENT),
    MISSING("aten.gru.input", RECURRENT),
    MISSING("aten.gru.data", RECURRENT),
    MISSING("aten.gru_cell.default", RECURRENT),
    MISSING("aten.rnn_tanh.input", RECURRENT),
    MISSING("aten.rnn_relu.input", RECURRENT),
    MISSING("aten.rand.default", RANDOM),
    MISSING("aten.rand_like.default", RANDOM),
    MISSING("aten.randn.default", RANDOM),
    MISSING("aten.randn_like.default", RANDOM),
    MISSING("aten.normal.float", RANDOM),
    MISSING("aten.topk.default", ORDER),
    MISSING("aten.sort.default", ORDER),
    MISSING("aten.argsort.default", ORDER),
    MISSING("aten.cross_entropy_loss.default", LOSS),
    MISSING("aten.nll_loss.default", LOSS),
    MISSING("aten.nll_loss_nd.default", LOSS),
    MISSING("aten.mse_loss.default", LOSS),
    MISSING("aten.l1_loss.default", LOSS),
    MISSING("aten.smooth_l1_loss.default", LOSS),
    MISSING("aten.huber_loss.default", LOSS),
    MISSING("aten.kl_div.default", LOSS),
    MISSING("aten.binary_cross_entropy.default", LOSS),
    MISSING("aten.binary_cross_entropy_with_logits.default", LOSS),
    {.target = NULL},
};
