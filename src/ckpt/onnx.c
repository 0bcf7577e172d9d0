/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exports to ONNX, opset 17: the nodes of a model as a graph for inference whose first dimension is
 * free. Images are [N][C][H][W] with pixels from 0 to 1, texts [N][T] tokens; the first nodes apply
 * data.mean and data.std. Parameters have the names and order of files.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "export.h"
#include "ppcli/conf/config.h"
#include "ppcli/data/preprocessing.h"
#include "ppcli/nn/model.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define BYTES_MAX ((uint64_t)0x7fffffff) /* most bytes of a protobuf message */
#define NAME 320
typedef char value_name[NAME];

struct onnx {
    const struct pp_export *x;
    const struct pp_model *m;
    struct pp_bytes nodes, small;  /* fields of the graph: node, initializer */
    int n;                         /* number of generated names */
    const char *name;              /* name of the next value; NULL: generate one */
    char y[NAME];                  /* name of the last value */
    struct pp_preprocessing names; /* what the checkpoint keeps of its data; or zeroed */
};

/* ---- nodes */

/* Writes attributes given as text, such as "axis=-1 epsilon=1e-5 pads=0,0,1,1". A value with a
 * comma is a list of whole numbers, one with a point is a float, any other is a whole number. */
static void put_attributes(struct pp_bytes *node, const char *text)
{
    for (const char *p = text; *p; p += strspn(p, " ")) {
        PP_OWN(pp_bytes_fini) struct pp_bytes a = {0};
        size_t name = strcspn(p, "="), all = strcspn(p, " ");
        const char *value = p + name + 1;
        bool list = memchr(value, ',', all - name - 1), real = memchr(value, '.', all - name - 1);
        pp_bytes_part(&a, 1, p, name);
        if (real)
            pp_bytes_float(&a, 2, strtof(value, NULL));
        for (const char *v = value; !real && v < p + all; v += strcspn(v, ", ") + 1)
            pp_bytes_int(&a, list ? 8 : 3, strtoll(v, NULL, 10));
        pp_bytes_int(&a, 20, real ? 1 : list ? 7 : 2);
        pp_bytes_part(node, 5, a.at, a.n);
        node->lost |= a.lost;
        p += all;
    }
}

/* Adds a node that applies `op` to these inputs, whose names are separated by blanks. Its result is
 * o->y. */
__attribute__((format(printf, 4, 5))) static void
apply(struct onnx *o, const char *op, const char *attributes, const char *inputs, ...)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes node = {0};
    char text[4 * NAME];
    va_list args;
    va_start(args, inputs);
    vsnprintf(text, sizeof(text), inputs, args);
    va_end(args);
    for (const char *p = text; *p; p += strspn(p, " ")) {
        size_t n = strcspn(p, " ");
        pp_bytes_part(&node, 1, p, n);
        p += n;
    }
    if (o->name)
        snprintf(o->y, sizeof(o->y), "%s", o->name);
    else
        snprintf(o->y, sizeof(o->y), "v%d", ++o->n);
    pp_bytes_text(&node, 2, o->y);
    pp_bytes_text(&node, 3, o->y);
    pp_bytes_text(&node, 4, op);
    put_attributes(&node, attributes);
    pp_bytes_part(&o->nodes, 1, node.at, node.n);
    o->nodes.lost |= node.lost;
}

/* Writes the head of a TensorProto, up to the length of its raw data, which the caller writes. */
static void put_tensor(struct pp_bytes *t, const char *name, int n_dims, const int64_t *dims,
                       bool whole, uint64_t bytes)
{
    for (int d = 0; d < n_dims; d++)
        pp_bytes_int(t, 1, dims[d]);
    pp_bytes_int(t, 2, whole ? 7 : 1);
    pp_bytes_text(t, 8, name);
    pp_bytes_key(t, 9, PP_WIRE_LENGTH);
    pp_bytes_varint(t, bytes);
}

/* Adds a constant with n values and writes its name to `out`. Its shape is [n] followed by ones,
 * with n_dims dimensions. */
static void add_constant(struct onnx *o, bool whole, int n, const double *values, int n_dims,
                         char out[NAME])
{
    PP_OWN(pp_bytes_fini) struct pp_bytes t = {0};
    const int64_t dims[3] = {n, 1, 1};
    snprintf(out, NAME, "c%d", ++o->n);
    put_tensor(&t, out, n_dims, dims, whole, (uint64_t)n * (whole ? 8 : 4));
    for (int i = 0; i < n; i++) {
        float f = (float)values[i];
        uint32_t bits;
        memcpy(&bits, &f, sizeof(bits));
        pp_bytes_little(&t, whole ? (uint64_t)(int64_t)values[i] : bits, whole ? 8 : 4);
    }
    pp_bytes_part(&o->small, 5, t.at, t.n);
    o->small.lost |= t.lost;
}

/* Adds a node that applies `op` to o->y and a number; o->y becomes the result. */
static void with_number(struct onnx *o, const char *op, double value)
{
    char c[NAME];
    add_constant(o, false, 1, &value, 0, c);
    apply(o, op, "", "%s %s", o->y, c);
}

static void add_reshape(struct onnx *o, int n, const double *shape)
{
    char c[NAME];
    add_constant(o, true, n, shape, 1, c);
    apply(o, "Reshape", "", "%s %s", o->y, c);
}

/* Returns whether the export knows the activation. The switch has no default, so that a compiler
 * warns about a new row. */
static bool has_form(int act)
{
    switch ((enum pp_activation)act) {
    case PP_ACT_NONE:
    case PP_ACT_RELU:
    case PP_ACT_TANH:
    case PP_ACT_GELU:
    case PP_ACT_GELU_TANH:
    case PP_ACT_SILU:
        return true;
    }
    return false;
}

static void put_activation(struct onnx *o, int act)
{
    char x[NAME], z[NAME];
    snprintf(x, sizeof(x), "%s", o->y);
    if (act == PP_ACT_RELU)
        apply(o, "Relu", "", "%s", x);
    if (act == PP_ACT_TANH)
        apply(o, "Tanh", "", "%s", x);
    if (act == PP_ACT_SILU)
        apply(o, "Sigmoid", "", "%s", x);
    if (act == PP_ACT_GELU) {
        with_number(o, "Mul", M_SQRT1_2);
        apply(o, "Erf", "", "%s", o->y);
    }
    if (act == PP_ACT_GELU_TANH) {
        apply(o, "Mul", "", "%s %s", x, x);
        apply(o, "Mul", "", "%s %s", o->y, x);
        with_number(o, "Mul", 0.044715);
        apply(o, "Add", "", "%s %s", o->y, x);
        with_number(o, "Mul", M_SQRT1_2 * M_2_SQRTPI);
        apply(o, "Tanh", "", "%s", o->y);
    }
    if (act == PP_ACT_GELU || act == PP_ACT_GELU_TANH) {
        with_number(o, "Add", 1);
        with_number(o, "Mul", 0.5);
    }
    snprintf(z, sizeof(z), "%s", o->y);
    if (act == PP_ACT_SILU || act == PP_ACT_GELU || act == PP_ACT_GELU_TANH)
        apply(o, "Mul", "", "%s %s", z, x);
}

/* ---- ops */

static const char *param_of(const struct onnx *o, const struct pp_node *n, int i)
{
    return o->m->params[n->first_param + i].name;
}

static void put_linear(struct onnx *o, const struct pp_node *n, const char *x)
{
    const char *W = param_of(o, n, 0), *b = n->bias ? param_of(o, n, 1) : "";
    if (n->in.n == 2) {
        char in[NAME];
        snprintf(in, sizeof(in), "%s", x);
        apply(o, "Transpose", "perm=1,0", "%s", W);
        apply(o, "MatMul", "", "%s %s", in, o->y);
        if (n->bias)
            apply(o, "Add", "", "%s %s", o->y, b);
        return;
    }
    if (n->in.n == 3) {
        apply(o, "Flatten", "axis=1", "%s", x);
        x = o->y;
    }
    apply(o, "Gemm", "transB=1", "%s %s %s", x, W, b);
}

/* Formats the attributes of a window. If the padding is uneven, more zeros follow the last
 * pixel. */
static void print_window(const struct pp_conv *w, char out[128])
{
    int bottom = (w->OH - 1) * w->stride + w->kh - w->H - w->pad_top,
        right = (w->OW - 1) * w->stride + w->kw - w->W - w->pad_left;
    snprintf(out, 128, "kernel_shape=%d,%d strides=%d,%d pads=%d,%d,%d,%d", w->kh, w->kw, w->stride,
             w->stride, w->pad_top, w->pad_left, bottom > 0 ? bottom : 0, right > 0 ? right : 0);
}

static void put_conv(struct onnx *o, const struct pp_node *n, const char *x)
{
    char window[128];
    print_window(&n->window.conv, window);
    pp_text_add(window, sizeof(window), " group=%d", n->window.conv.groups);
    apply(o, "Conv", window, "%s %s %s", x, param_of(o, n, 0), n->bias ? param_of(o, n, 1) : "");
}

static void put_average(struct onnx *o, const struct pp_node *n, const char *x)
{
    char window[128], zero[NAME];
    print_window(&n->window.conv, window);
    pp_text_add(window, sizeof(window), " count_include_pad=%d", n->window.count_padding);
    if (n->in.n == 2 && n->window.conv.kh == n->in.dims[0]) {
        apply(o, "ReduceMean", "axes=1, keepdims=0", "%s", x);
    } else if (n->in.n == 2) {
        add_constant(o, true, 1, &(double){0}, 0, zero);
        apply(o, "Gather", "axis=1", "%s %s", x, zero);
    } else if (n->out.n == 1) {
        apply(o, "GlobalAveragePool", "", "%s", x);
        apply(o, "Flatten", "axis=1", "%s", o->y);
    } else {
        apply(o, "AveragePool", window, "%s", x);
    }
}

static void put_group_norm(struct onnx *o, const struct pp_node *n, const char *x)
{
    double ones[PP_FLOATS_MAX], zeros[PP_FLOATS_MAX] = {0};
    int G = n->norm.groups, C = pp_shape_channels(&n->out);
    bool image = n->out.n == 3;
    char scale[NAME], shift[NAME], text[64];
    for (int i = 0; i < G; i++)
        ones[i] = 1;
    add_constant(o, false, G, ones, 1, scale);
    add_constant(o, false, G, zeros, 1, shift);
    snprintf(o->y, sizeof(o->y), "%s", x);
    add_reshape(o, 3, (double[]){0, G, -1});
    snprintf(text, sizeof(text), "epsilon=%.9e", (double)n->norm.eps);
    apply(o, "InstanceNormalization", text, "%s %s %s", o->y, scale, shift);
    add_reshape(o, image ? 4 : 2, (double[]){0, C, n->out.dims[0], n->out.dims[1]});
    for (int i = 0; i < 2; i++) {
        char y[NAME];
        snprintf(y, sizeof(y), "%s", o->y);
        snprintf(o->y, sizeof(o->y), "%s", param_of(o, n, i));
        if (image)
            add_reshape(o, 3, (double[]){C, 1, 1});
        apply(o, i == 0 ? "Mul" : "Add", "", "%s %s", y, o->y);
    }
}

/* Adds a layer norm. It is over the channels, so an image, which has its channels first, is
 * transposed before and after it. */
static void put_row_norm(struct onnx *o, const struct pp_node *n, const char *x)
{
    char text[64];
    snprintf(text, sizeof(text), "axis=-1 epsilon=%.9e", (double)n->norm.eps);
    snprintf(o->y, sizeof(o->y), "%s", x);
    if (n->in.n == 3)
        apply(o, "Transpose", "perm=0,2,3,1", "%s", o->y);
    apply(o, "LayerNormalization", text, "%s %s %s", o->y, param_of(o, n, 0),
          n->bias ? param_of(o, n, 1) : "");
    if (n->in.n == 3)
        apply(o, "Transpose", "perm=0,3,1,2", "%s", o->y);
}

/* Extracts part i (queries, keys or values) of [N][T][3 C] as [N][H][T][D], or as [N][H][D][T] if
 * `keys` is set. */
static void take_heads(struct onnx *o, const struct pp_node *n, const char *x, int i, bool keys)
{
    int C = n->attention.heads * n->attention.width;
    char from[NAME], to[NAME], axis[NAME];
    add_constant(o, true, 1, &(double){i * C}, 1, from);
    add_constant(o, true, 1, &(double){(i + 1) * C}, 1, to);
    add_constant(o, true, 1, &(double){2}, 1, axis);
    apply(o, "Slice", "", "%s %s %s %s", x, from, to, axis);
    add_reshape(o, 4, (double[]){0, 0, n->attention.heads, n->attention.width});
    apply(o, "Transpose", keys ? "perm=0,2,3,1" : "perm=0,2,1,3", "%s", o->y);
}

static void put_attention(struct onnx *o, const struct pp_node *n, const char *x)
{
    char q[NAME], k[NAME], p[NAME];
    take_heads(o, n, x, 0, false);
    snprintf(q, sizeof(q), "%s", o->y);
    take_heads(o, n, x, 1, true);
    snprintf(k, sizeof(k), "%s", o->y);
    apply(o, "MatMul", "", "%s %s", q, k);
    with_number(o, "Mul", 1 / sqrt(n->attention.width));
    apply(o, "Softmax", "axis=-1", "%s", o->y);
    snprintf(p, sizeof(p), "%s", o->y);
    take_heads(o, n, x, 2, false);
    apply(o, "MatMul", "", "%s %s", p, o->y);
    apply(o, "Transpose", "perm=0,2,1,3", "%s", o->y);
    add_reshape(o, 3, (double[]){0, 0, n->attention.heads * n->attention.width});
}

static int put_node(struct onnx *o, const struct pp_node *n, const char *x, const char *x1)
{
    char text[128];
    bool norm = n->op == &op_batch_norm || n->op == &op_group_norm;
    snprintf(o->y, sizeof(o->y), "%s", x);
    if (norm && (n->in.n == 2 || n->norm.groups > PP_FLOATS_MAX)) {
        return pp_fail(PP_ECONFIG, "%s: ONNX: a %s of a text is not exported", o->x->ck->path,
                       n->op->name);
    } else if (n->op == &op_linear) {
        put_linear(o, n, x);
    } else if (n->op == &op_conv2d) {
        put_conv(o, n, x);
    } else if (n->op == &op_batch_norm) {
        snprintf(text, sizeof(text), "epsilon=%.9e", (double)n->norm.eps);
        apply(o, "BatchNormalization", text, "%s %s %s %s %s", x, param_of(o, n, 0),
              param_of(o, n, 1), param_of(o, n, 2), param_of(o, n, 3));
    } else if (n->op == &op_group_norm) {
        put_group_norm(o, n, x);
    } else if (n->op == &op_row_norm) {
        put_row_norm(o, n, x);
    } else if (n->op == &op_max_pool) {
        print_window(&n->window.conv, text);
        apply(o, "MaxPool", text, "%s", x);
    } else if (n->op == &op_avg_pool) {
        put_average(o, n, x);
    } else if (n->op == &op_embedding) {
        apply(o, "Gather", "", "%s %s", param_of(o, n, 0), x);
        if (n->n_params > 1)
            apply(o, "Add", "", "%s %s", o->y, param_of(o, n, 1));
    } else if (n->op == &op_attention) {
        put_attention(o, n, x);
    } else if (n->op != &op_activate && n->op != &op_add && n->op != &op_dropout) {
        return pp_fail(PP_ECONFIG, "%s: ONNX: a %s is not exported", o->x->ck->path, n->op->name);
    }
    if (n->n_x == 2)
        apply(o, "Add", "", "%s %s", o->y, x1);
    if (!has_form(n->activation))
        return pp_fail(PP_ECONFIG, "%s: ONNX: the activation %s is not exported", o->x->ck->path,
                       pp_activation_name(n->activation));
    put_activation(o, n->activation);
    return 0;
}

/* ---- the graph */

/* Writes a ValueInfoProto: a name and a shape, which is [N] and the shape of a sample. Images have
 * their channels first. */
static void put_value(struct pp_bytes *graph, int field, const char *name, bool whole,
                      const struct pp_shape *s)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes shape = {0}, tensor = {0}, type = {0}, value = {0};
    for (int d = -1; d < s->n; d++) {
        PP_OWN(pp_bytes_fini) struct pp_bytes dim = {0};
        if (d < 0)
            pp_bytes_text(&dim, 2, "N");
        else
            pp_bytes_int(&dim, 1, s->dims[s->n == 3 ? (d + 2) % 3 : d]);
        pp_bytes_part(&shape, 1, dim.at, dim.n);
    }
    pp_bytes_int(&tensor, 1, whole ? 7 : 1);
    pp_bytes_part(&tensor, 2, shape.at, shape.n);
    pp_bytes_part(&type, 1, tensor.at, tensor.n);
    pp_bytes_text(&value, 1, name);
    pp_bytes_part(&value, 2, type.at, type.n);
    pp_bytes_part(graph, field, value.at, value.n);
}

/* Adds the nodes that scale the columns of a table as in training. Inputs that stand for words stay
 * as they are. */
static int put_column_scaling(struct onnx *o)
{
    const struct pp_preprocessing *p = &o->names;
    bool any = false;
    char c[NAME];
    if (p->n_inputs == 0 || p->n_inputs != o->m->inputs)
        return 0;
    PP_TAKE(double, mean, p->n_inputs);
    PP_TAKE(double, std, p->n_inputs);
    for (int i = 0; i < p->n_inputs; i++)
        std[i] = 1;
    for (int i = 0; i < p->n_columns; i++) {
        const struct pp_table_column *k = &p->columns[i];
        if (!k->is_scaled || k->is_category)
            continue;
        mean[k->first] = k->mean;
        std[k->first] = k->std;
        any = true;
    }
    if (!any)
        return 0;
    add_constant(o, false, p->n_inputs, mean, 1, c);
    apply(o, "Sub", "", "%s %s", o->y, c);
    add_constant(o, false, p->n_inputs, std, 1, c);
    apply(o, "Div", "", "%s %s", o->y, c);
    return 0;
}

/* Adds the nodes that give predicted numbers their units. */
static int put_target_units(struct onnx *o)
{
    const struct pp_preprocessing *p = &o->names;
    char c[NAME];
    if (p->n_targets == 0 || p->yes_no || p->n_targets != o->m->outputs)
        return 0;
    PP_TAKE(double, mean, p->n_targets);
    PP_TAKE(double, std, p->n_targets);
    for (int i = 0; i < p->n_targets; i++) {
        mean[i] = p->targets[i].mean;
        std[i] = p->targets[i].std;
    }
    add_constant(o, false, p->n_targets, std, 1, c);
    apply(o, "Mul", "", "%s %s", o->y, c);
    add_constant(o, false, p->n_targets, mean, 1, c);
    apply(o, "Add", "", "%s %s", o->y, c);
    return 0;
}

/* Adds the nodes that apply data.mean and data.std to the input. In a picture without its shape, as
 * an mlp takes it, the values of a pixel's channels are adjacent. */
static int put_scaling(struct onnx *o)
{
    const struct pp_config *cfg = o->x->cfg;
    const struct pp_shape *input = &o->m->values[0];
    const struct pp_floats *lists[] = {&cfg->data.mean, &cfg->data.std};
    for (int i = 0; i < 2; i++) {
        char c[NAME];
        int n = lists[i]->n, values = input->n == 1 && n > 1 ? input->dims[0] : n;
        if (n == 0)
            continue;
        PP_TAKE(double, all, values);
        for (int k = 0; k < values; k++)
            all[k] = lists[i]->at[k % n];
        add_constant(o, false, values, all, input->n == 3 ? 3 : 1, c);
        apply(o, i == 0 ? "Sub" : "Div", "", "%s %s", o->y, c);
    }
    return 0;
}

static int put_graph(struct onnx *o)
{
    const struct pp_model *m = o->m;
    PP_TAKE(value_name, names, m->n_values);
    snprintf(o->y, sizeof(o->y), "input");
    PP_TRY(put_column_scaling(o));
    PP_TRY(put_scaling(o));
    snprintf(names[0], NAME, "%s", o->y);
    for (int i = 0; i < m->n_nodes; i++) {
        const struct pp_node *n = &m->nodes[i];
        PP_TRY(put_node(o, n, names[n->x[0]], names[n->n_x > 1 ? n->x[1] : 0]));
        snprintf(names[n->y], NAME, "%s", o->y);
    }
    PP_TRY(put_target_units(o));
    o->name = o->names.n_targets > 0 && !o->names.yes_no ? "prediction" : "logits";
    apply(o, "Identity", "", "%s", o->y);
    struct pp_bytes *b = &o->nodes;
    put_value(b, 11, "input", m->tokens, &m->values[0]);
    put_value(b, 12, o->y, false, &m->values[m->n_values - 1]);
    pp_bytes_text(b, 2, m->n_nodes > 0 ? o->x->cfg->model.type : "");
    return 0;
}

struct tensor_bytes {
    uint64_t head, data;
};

/* Writes the head of each parameter and its sizes, and returns the bytes of all heads and data.
 * Counts of batch norms are left out. */
static uint64_t list_heads(const struct exporter *e, struct pp_bytes *heads,
                           struct tensor_bytes *sizes)
{
    uint64_t all = 0;
    for (int i = 0; i < e->n; i++) {
        const struct pp_st_item *t = &e->items[i];
        PP_OWN(pp_bytes_fini) struct pp_bytes head = {0}, field = {0};
        uint64_t bytes = 4;
        for (int d = 0; d < t->n_dims; d++)
            bytes *= (uint64_t)t->dims[d];
        if (t->dtype != PP_ST_F32)
            continue;
        put_tensor(&head, t->name, t->n_dims, t->dims, false, bytes);
        pp_bytes_key(&field, 5, PP_WIRE_LENGTH);
        pp_bytes_varint(&field, head.n + bytes);
        pp_bytes_put(&field, head.at, head.n);
        sizes[i].head = field.n;
        sizes[i].data = bytes;
        pp_bytes_put(heads, field.at, field.n);
        heads->lost |= field.lost || head.lost;
        all += field.n + bytes;
    }
    return all;
}

static int write_tensors(const struct exporter *e, const struct pp_bytes *heads,
                         const struct tensor_bytes *sizes, struct pp_io_file *f)
{
    const size_t piece = (size_t)1 << 18;
    size_t at = 0;
    PP_TAKE(uint8_t, bytes, piece);
    for (int i = 0; i < e->n; at += sizes[i++].head) {
        const struct pp_st_item *t = &e->items[i];
        PP_TRY(pp_io_write(f, heads->at + at, sizes[i].head));
        for (uint64_t done = 0, n; done < sizes[i].data; done += n) {
            n = sizes[i].data - done < piece ? sizes[i].data - done : piece;
            PP_TRY(t->read(t->ctx, done, bytes, n));
            PP_TRY(pp_io_write(f, bytes, n));
        }
    }
    return 0;
}

/* Writes an entry of metadata_props. */
static void put_property(struct pp_bytes *model, const char *key, const char *value)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes entry = {0};
    pp_bytes_text(&entry, 1, key);
    pp_bytes_text(&entry, 2, value);
    pp_bytes_part(model, 14, entry.at, entry.n);
    model->lost |= entry.lost;
}

/* Adds the names of the classes, or of the numbers that are predicted, as a JSON array. */
static int put_output_names(const struct onnx *o, struct pp_bytes *model)
{
    const struct pp_preprocessing *p = &o->names;
    char *text = NULL;
    size_t bytes = 0;
    int n = p->n_classes > 0 ? p->n_classes : p->n_targets;
    FILE *f = n > 0 ? open_memstream(&text, &bytes) : NULL;
    if (n == 0 || !f)
        return n == 0 ? 0 : pp_fail(PP_ERESOURCE, "ONNX: out of memory for names");
    struct pp_json j = pp_json_begin(f, 0);
    pp_json_array(&j, "names");
    for (int i = 0; i < n; i++)
        pp_json_str(&j, NULL, p->n_classes > 0 ? p->classes[i] : p->targets[i].name);
    pp_json_end(&j);
    pp_json_end(&j);
    PP_TRY(pp_text_close(f, &text, "ONNX"));
    strrchr(text, ']')[1] = '\0'; /* the array alone */
    put_property(model, p->n_classes > 0 ? "classes" : "targets", strchr(text, '['));
    free(text);
    return 0;
}

static void put_model(struct onnx *o, uint64_t graph, struct pp_bytes *model)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes opset = {0};
    const struct pp_ckpt_state *state = pp_ckpt_state(o->x->ck);
    char step[32];
    snprintf(step, sizeof(step), "%" PRId64, state->step);
    pp_bytes_int(model, 1, 8); /* the version of onnx.proto with opset 17 */
    pp_bytes_text(model, 2, "ppcli");
    pp_bytes_text(&opset, 1, "");
    pp_bytes_int(&opset, 2, 17);
    pp_bytes_part(model, 8, opset.at, opset.n);
    put_property(model, "step", step);
    if (state->preprocessing)
        put_property(model, "preprocessing", state->preprocessing);
    pp_bytes_key(model, 7, PP_WIRE_LENGTH);
    pp_bytes_varint(model, graph);
}

static int write_file(struct onnx *o, const struct exporter *e, const char *path)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes heads = {0}, model = {0};
    PP_OWN(pp_io_abandon) struct pp_io_file file = {.fd = -1};
    PP_TAKE(struct tensor_bytes, sizes, e->n);
    PP_TRY(put_graph(o));
    uint64_t graph = o->nodes.n + o->small.n + list_heads(e, &heads, sizes);
    PP_TRY(put_output_names(o, &model));
    put_model(o, graph, &model);
    if (o->nodes.lost || o->small.lost || heads.lost || model.lost)
        return pp_fail(PP_ERESOURCE, "%s: out of memory", path);
    if (graph > BYTES_MAX - 256)
        return pp_fail(PP_ECONFIG, "%s: an ONNX file has at most 2 GiB, this has %" PRIu64 " bytes",
                       path, graph);
    PP_TRY(pp_io_create(&pp_io_system, path, &file));
    PP_TRY(pp_io_write(&file, model.at, model.n));
    PP_TRY(pp_io_write(&file, o->nodes.at, o->nodes.n));
    PP_TRY(pp_io_write(&file, o->small.at, o->small.n));
    PP_TRY(write_tensors(e, &heads, sizes, &file));
    return pp_io_commit(&file, NULL);
}

int export_onnx(struct exporter *e, const struct pp_export *x, const char *path)
{
    struct onnx o = {.x = x, .m = x->model};
    const char *text = pp_ckpt_state(x->ck)->preprocessing;
    int rc = text ? pp_preprocessing_parse(x->ck->path, text, &o.names) : 0;
    rc = rc == 0 ? write_file(&o, e, path) : rc;
    pp_preprocessing_fini(&o.names);
    pp_bytes_fini(&o.nodes);
    pp_bytes_fini(&o.small);
    return rc;
}
