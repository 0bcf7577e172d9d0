/* SPDX-License-Identifier: Apache-2.0 */
/* The builder of models: arrays that grow call by call, and what can be computed only at the
 * end. */
#include <limits.h>
#include <string.h>

#include "nn.h"
#include "ppcli/base/base.h"

/* Makes room for one more element after the n elements of *array, sets it to zero and returns its
 * address; returns NULL and sets b->rc if there is no memory. */
static void *grow_array(struct builder *b, void *array, int n, size_t size)
{
    void **at = array;
    /* in steps of 16, because most models have hundreds */
    void *p = n % 16 ? *at : pp_realloc(*at, (size_t)n + 16, size);
    if (!p) {
        b->rc = PP_ERESOURCE;
        return NULL;
    }
    *at = p;
    return memset((char *)p + (size_t)n * size, 0, size);
}

int refuse(struct builder *b, const char *format, ...)
{
    va_list args;
    char text[PP_ERROR_TEXT_MAX];
    if (b->rc == 0) {
        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        b->rc = pp_fail(PP_ECONFIG, "%s", text);
    }
    return 0;
}

void layer(struct builder *b, const char *format, ...)
{
    va_list args;
    struct pp_model *m = b->m;
    struct pp_layer *l = b->rc < 0 ? NULL : grow_array(b, &m->layers, m->n_layers, sizeof(*l));
    if (!l)
        return;
    l->index = m->n_layers++;
    l->first_node = m->n_nodes;
    l->first_param = m->n_params;
    va_start(args, format);
    vsnprintf(l->name, sizeof(l->name), format, args);
    va_end(args);
    snprintf(b->prefix, sizeof(b->prefix), "%s", l->name);
}

const struct pp_shape *shape_of(const struct builder *b, int value)
{
    pp_assert(value >= 0 && value < b->m->n_values);
    return &b->m->values[value];
}

/* Writes PREFIX.NAME to `out`, or only one of the two if the other is empty. */
static void join_name(const struct builder *b, const char *name, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s%s%s", b->prefix, b->prefix[0] && name[0] ? "." : "", name);
}

/* Returns whether a value of this shape has more floats than an int can count, as kernels do, or,
 * of a model that is only planned, than a double can; reports that if it has. */
static bool is_too_large(struct builder *b, const struct pp_shape *s)
{
    char text[48];
    double floats = 1, most = b->cfg->model.planned ? 0x1p53 : INT_MAX;
    for (int i = 0; i < s->n; i++)
        floats *= s->dims[i];
    pp_shape_text(s, text, sizeof(text));
    if (floats > most)
        refuse(b, "a value of shape %s is larger than %s numbers%s", text,
               b->cfg->model.planned ? "2^53" : "2^31 - 1",
               pp_has_word("gpt llama", b->cfg->model.type) ? ": set a smaller model.block_size"
                                                            : "");
    return floats > most;
}

struct pp_node *add_node_of(struct builder *b, const struct pp_node_op *op, const char *name,
                            int n_x, const int *x, struct pp_shape out)
{
    struct pp_model *m = b->m;
    pp_assert(n_x >= 0 && n_x <= PP_NODE_INPUTS);
    struct pp_shape *value =
        b->rc < 0 ? NULL : grow_array(b, &m->values, m->n_values, sizeof(*value));
    struct pp_node *n = value ? grow_array(b, &m->nodes, m->n_nodes, sizeof(*n)) : NULL;
    if (!n)
        return NULL;
    pp_assert(m->n_layers > 0 && m->n_values == m->n_nodes + 1);
    if (is_too_large(b, &out))
        return NULL;
    *value = out;
    *n = (struct pp_node){.op = op,
                          .layer = m->n_layers - 1,
                          .n_x = n_x,
                          .y = m->n_values++,
                          .out = out,
                          .first_param = m->n_params,
                          .positions = 1,
                          .cached = b->cached};
    for (int i = 0; i < n_x; i++) {
        pp_assert(x[i] >= 0 && x[i] < n->y);
        n->x[i] = x[i];
    }
    if (n_x > 0)
        n->in = *shape_of(b, x[0]);
    m->n_nodes++;
    join_name(b, name, b->name, sizeof(b->name));
    n->key = pp_rng_stream(b->name, 0);
    return n;
}

void hash_bytes(uint64_t *hash, const void *data, size_t bytes)
{
    uint8_t digest[PP_SHA256_BYTES];
    struct pp_sha256 sha;
    pp_sha256_init(&sha);
    pp_sha256_update(&sha, hash, sizeof(*hash));
    pp_sha256_update(&sha, data, bytes);
    pp_sha256_final(&sha, digest);
    memcpy(hash, digest, sizeof(*hash));
}

struct pp_node *add_node(struct builder *b, const struct pp_node_op *op, const char *name, int x0,
                         int x1, struct pp_shape out)
{
    return add_node_of(b, op, name, x1 < 0 ? 1 : 2, (const int[]){x0, x1}, out);
}

size_t pp_param_floats(const struct pp_param *p)
{
    size_t n = 1;
    for (int i = 0; i < p->n_dims; i++)
        n *= (size_t)p->dims[i];
    return n;
}

struct pp_param *add_param(struct builder *b, const char *suffix, enum pp_param_kind kind,
                           int n_dims, const int *dims)
{
    struct pp_model *m = b->m;
    struct pp_param *p = b->rc < 0 ? NULL : grow_array(b, &m->params, m->n_params, sizeof(*p));
    if (!p)
        return NULL;
    p->kind = kind;
    p->n_dims = n_dims;
    memcpy(p->dims, dims, (size_t)n_dims * sizeof(*dims));
    int length =
        snprintf(p->name, sizeof(p->name), "%s%s%s", b->name, b->name[0] ? "." : "", suffix);
    pp_assert(length > 0 && (size_t)length < sizeof(p->name));
    m->n_params++;
    struct pp_node *n = &m->nodes[m->n_nodes - 1];
    n->n_params++;
    n->n_floats += pp_param_floats(p);
    return p;
}

/* Returns whether the gradient of a value is needed: a node before it trains. */
static bool needs_gradient(const struct pp_model *m, int value)
{
    return value > 0 && m->nodes[value - 1].learns;
}

static int count_readers(const struct pp_model *m, int value)
{
    int n = 0;
    for (int i = value; i < m->n_nodes; i++) /* only later nodes can read it */
        for (int j = 0; j < m->nodes[i].n_x; j++)
            n += m->nodes[i].x[j] == value;
    return n;
}

/* Returns the floats of a sample, at most INT_MAX. */
static int count_floats(const struct pp_shape *s)
{
    size_t floats = pp_shape_floats(s);
    return floats < INT_MAX ? (int)floats : INT_MAX;
}

static int finish_layer(struct pp_model *m, struct pp_layer *l)
{
    int end = l->index + 1 < m->n_layers ? l[1].first_node : m->n_nodes;
    pp_assert(l->first_node < end); /* no empty layers */
    l->last_node = end - 1;
    l->x = l->first_node; /* the value of the node before */
    l->y = end;
    l->in = count_floats(&m->values[l->x]);
    l->out = count_floats(&m->values[l->y]);
    l->wants_dx = needs_gradient(m, l->x);
    for (int i = l->first_node; i < end; i++) {
        struct pp_node *n = &m->nodes[i];
        for (int k = 0; k < n->n_x; k++) {
            pp_assert(n->x[k] >= l->x); /* a layer has one input */
            pp_assert(!n->one_row || (n->x[k] > l->x && m->nodes[n->x[k] - 1].one_row));
        }
        pp_assert(!n->one_row || i < l->last_node);
        size_t at = m->n_floats + l->n_floats, padding = -n->n_floats % PP_NODE_FLOATS;
        for (int k = 0; k < n->n_params; k++) {
            m->params[n->first_param + k].at = at;
            at += pp_param_floats(&m->params[n->first_param + k]);
        }
        n->n_floats += padding;
        m->n_padding += padding;
        l->n_params += n->n_params;
        PP_TRY(pp_size_add(l->n_floats, n->n_floats, &l->n_floats));
    }
    return pp_size_add(m->n_floats, l->n_floats, &m->n_floats);
}

/* Marks as matrices the weights of all products but those of the last layer with parameters; the
 * optimizer muon updates matrices in its own way. */
static void mark_matrices(struct pp_model *m)
{
    int last = m->n_nodes - 1;
    while (last > 0 && m->nodes[last].n_params == 0)
        last--;
    for (int i = 0; i < last; i++) {
        const struct pp_node *n = &m->nodes[i];
        for (int k = 0; k < n->n_params && n->op != &op_embedding; k++) {
            struct pp_param *p = &m->params[n->first_param + k];
            p->matrix = p->kind == PP_PARAM_DECAYED && p->n_dims > 1;
        }
    }
}

/* Sets what follows from the parameters and the inputs of a node, whose inputs' nodes have it. */
static int finish_node(struct pp_model *m, struct pp_node *n)
{
    for (int k = 0; k < n->n_params; k++)
        n->trains = n->trains || pp_param_learns(&m->params[n->first_param + k]);
    n->learns = n->trains;
    for (int k = 0; k < n->n_x; k++) {
        n->wants_dx[k] = needs_gradient(m, n->x[k]);
        n->learns = n->learns || n->wants_dx[k];
        n->shared[k] = count_readers(m, n->x[k]) > 1;
        n->reads &= n->trains ? UINT64_MAX : ~PP_READS_IN_W(k);
    }
    n->reads &= n->trains ? UINT64_MAX : ~PP_READS_DY_IN_W;
    n->reads = n->learns ? n->reads : 0; /* neither I nor W runs */
    return n->op->complete ? n->op->complete(m, n) : 0;
}

int build_finish(struct builder *b, int y)
{
    struct pp_model *m = b->m;
    PP_TRY(freeze_params(b));
    pp_assert(y == m->n_nodes && m->n_layers > 0); /* the last value */
    for (int i = 0; i < m->n_nodes; i++)
        PP_TRY(finish_node(m, &m->nodes[i]));
    mark_matrices(m);
    pp_assert(!(m->nodes[m->n_nodes - 1].reads & PP_READS_Y_IN_I)); /* the loss overwrites it */
    for (int i = 0; i < m->n_layers; i++)
        PP_TRY(finish_layer(m, &m->layers[i]));
    m->inputs = m->layers[0].in;
    const struct pp_shape *last = &m->values[m->layers[m->n_layers - 1].y];
    m->outputs = m->layers[m->n_layers - 1].out;
    m->classes = last->n == 2 ? pp_shape_channels(last) : m->outputs;
    struct pp_node *end = &m->nodes[m->n_nodes - 1];
    end->logits = end->op == &op_linear && end->activation == PP_ACT_NONE && !end->bias;
    return 0;
}

int build_begin(struct builder *b, struct pp_shape input)
{
    struct pp_shape *value = grow_array(b, &b->m->values, 0, sizeof(*value));
    if (!value || is_too_large(b, &input))
        return b->rc;
    *value = input;
    b->m->n_values = 1;
    return 0;
}

/* Returns the number of outputs along one axis of n pixels, and sets *pad to the padding before the
 * first pixel. */
static int slide_window(const struct window *w, int n, int *pad)
{
    int out = (n + 2 * w->pad - w->kernel) / w->stride + 1;
    if (w->ceil && (out - 1) * w->stride + w->kernel < n + 2 * w->pad)
        out += out * w->stride < n + w->pad; /* as PyTorch: it begins before the end */
    *pad = w->pad;
    if (w->pad == PAD_SAME) { /* as in TensorFlow: an odd padding has its extra zero at the end */
        out = (n + w->stride - 1) / w->stride;
        int all = (out - 1) * w->stride + w->kernel - n;
        *pad = all > 0 ? all / 2 : 0;
    } else if (n + 2 * w->pad < w->kernel) {
        out = 0;
    }
    return out;
}

bool window_over(struct builder *b, const char *what, const struct window *w, int x, int channels,
                 struct pp_conv *out)
{
    const struct pp_shape s = *shape_of(b, x);
    char text[48];
    pp_shape_text(&s, text, sizeof(text));
    if (s.n != 3)
        refuse(b, "%s needs an image, but gets %s%s", what, text,
               x == 0 ? " (data.shape makes one of a row of values)" : "");
    if (b->rc < 0)
        return false;
    *out = (struct pp_conv){.H = s.dims[0],
                            .W = s.dims[1],
                            .C = s.dims[2],
                            .O = channels > 0 ? channels : s.dims[2],
                            .kh = w->kernel,
                            .kw = w->kernel,
                            .stride = w->stride,
                            .groups = w->groups};
    out->OH = slide_window(w, out->H, &out->pad_top);
    out->OW = slide_window(w, out->W, &out->pad_left);
    if (out->OH < 1 || out->OW < 1) {
        refuse(b,
               "%s reduces an image of %s to nothing: its window is %d x %d; use larger images "
               "(data.resize), smaller windows or less stride",
               what, text, w->kernel, w->kernel);
    } else if (out->C % out->groups || out->O % out->groups) {
        refuse(b, "%s: %d groups divide neither or only one of %d and %d channels", what,
               out->groups, out->C, out->O);
    } else if ((double)w->kernel * w->kernel * out->C > INT_MAX) {
        refuse(b, "%s sums %d x %d x %d numbers, more than 2^31 - 1", what, w->kernel, w->kernel,
               out->C);
    }
    return b->rc == 0;
}
