/* SPDX-License-Identifier: Apache-2.0 */
/* The list of model types, and functions over models. */
#include "nn.h"
#include "model.h"

#include <string.h>

#include "ppcli/base/base.h"

static const struct model_builder *const builders[] = {
#define PP_MODEL(x) &model_##x,
#include "models.def"
#undef PP_MODEL
};

const char *const *pp_model_names(void)
{
    static const char *const names[] = {
#define PP_MODEL(x) #x,
#include "models.def"
#undef PP_MODEL
        NULL,
    };
    return names;
}

static int create_model(const struct pp_config *cfg, const struct pp_data_input *data, int cached,
                        struct pp_model **out)
{
    static const struct pp_data_input nothing;
    data = data ? data : &nothing;
    const struct model_builder *b = NULL;
    for (size_t i = 0; i < sizeof(builders) / sizeof(builders[0]); i++)
        if (!strcmp(cfg->model.type, builders[i]->name))
            b = builders[i];
    if (!b) {
        return pp_fail(PP_ECONFIG, "model.type: no model is named '%s' (try %s)", cfg->model.type,
                       builders[0]->name);
    }
    if (!b->input && data->shape.n == 0) {
        return pp_fail(PP_ECONFIG,
                       "model.type = %s reads the shape of a sample from the data, which are not "
                       "there; set data.shape (synthetic), or data.dataset",
                       b->name);
    }
    struct pp_model *m;
    PP_ALLOC(m, 1);
    struct builder how = {.m = m,
                          .cfg = cfg,
                          .data = data,
                          .cached = cached,
                          .classes = cfg->model.classes > 0 ? cfg->model.classes : data->classes,
                          .vocabulary =
                              cfg->model.vocab_size > 0 ? cfg->model.vocab_size : data->vocabulary};
    int rc = build_begin(&how, cached > 0 ? pp_shape_flat(1)
                               : b->input ? b->input(cfg)
                                          : data->shape);
    if (rc == 0)
        rc = build_finish(&how, b->build(&how, 0));
    PP_TRY_UNDO(rc, pp_model_destroy(&m));
    *out = m;
    return 0;
}

int pp_model_create(const struct pp_config *cfg, const struct pp_data_input *data,
                    struct pp_model **out)
{
    return create_model(cfg, data, 0, out);
}

int pp_model_create_cached(const struct pp_config *cfg, const struct pp_data_input *data,
                           struct pp_model **out)
{
    struct pp_model *m = NULL;
    PP_TRY(create_model(cfg, data, cfg->model.block_size, &m));
    for (int i = 0; i < m->n_nodes; i++) {
        if (m->nodes[i].op == &op_attention) {
            *out = m;
            return 0;
        }
    }
    pp_model_destroy(&m);
    return pp_fail(PP_ECONFIG, "model.type = %s does not continue texts; gpt and llama do",
                   cfg->model.type);
}

void pp_model_destroy(struct pp_model **m)
{
    if (*m) {
        for (int i = 0; i < (*m)->n_nodes; i++)
            if ((*m)->nodes[i].free_setup)
                (*m)->nodes[i].free_setup((*m)->nodes[i].setup);
        pp_free((*m)->values);
        pp_free((*m)->nodes);
        pp_free((*m)->layers);
        pp_free((*m)->params);
        pp_free((*m)->extras);
        if ((*m)->free_owned)
            (*m)->free_owned((*m)->owned);
        pp_free(*m);
        *m = NULL;
    }
}

void pp_model_tie(struct pp_model *m, int owner, int copy)
{
    const struct pp_param *from = &m->params[owner];
    struct pp_param *to = &m->params[copy];
    pp_assert(owner < copy && from->tied_to == 0 && to->tied_to == 0 &&
              from->kind != PP_PARAM_BUFFER && pp_param_floats(from) == pp_param_floats(to));
    size_t at = to->at;
    *to = *from;
    to->at = at;
    to->tied_to = owner + 1;
    int holders = 1;
    for (int i = 0; i < m->n_params; i++) {
        pp_assert(m->params[i].tied_to != copy + 1);
        holders += m->params[i].tied_to == owner + 1;
    }
    m->n_holders = holders > m->n_holders ? holders : m->n_holders;
    m->n_tied += pp_param_floats(to);
}

struct pp_layer_cost pp_layer_cost(const struct pp_model *m, int index)
{
    const struct pp_layer *l = &m->layers[index];
    struct pp_layer_cost sum = {0};
    for (int i = l->first_node; i <= l->last_node; i++) {
        struct pp_layer_cost c = {0};
        if (m->nodes[i].op->cost)
            m->nodes[i].op->cost(&m->nodes[i], &c);
        sum.flops_f += c.flops_f;
        sum.flops_i += c.flops_i;
        sum.flops_w += m->nodes[i].trains ? c.flops_w : 0;
    }
    return sum;
}

void pp_node_traffic(const struct pp_model *m, const struct pp_node *n, size_t element,
                     double out[3])
{
    double y = (double)pp_shape_floats(&n->out),
           floats[3] = {y, y, n->reads & PP_READS_DY_IN_W ? y : 0};
    for (int j = 0; j < n->n_x; j++) {
        double in = (double)pp_shape_floats(&m->values[n->x[j]]);
        floats[0] += in;
        floats[1] += n->wants_dx[j] ? in * (1 + n->shared[j]) : 0;
        floats[2] += n->reads & PP_READS_IN_W(j) ? in : 0;
    }
    for (int k = 0; k < 3; k++)
        out[k] = floats[k] * (double)element;
}

double pp_layer_flops(const struct pp_model *m, int index)
{
    struct pp_layer_cost c = pp_layer_cost(m, index);
    return c.flops_f + c.flops_i + c.flops_w;
}

double pp_model_flops(const struct pp_model *m)
{
    double flops = 0;
    for (int i = 0; i < m->n_layers; i++)
        flops += pp_layer_flops(m, i);
    return flops;
}

size_t pp_layer_values(const struct pp_model *m, int index)
{
    const struct pp_layer *l = &m->layers[index];
    size_t floats = 0;
    for (int i = l->first_node; i <= l->last_node; i++) {
        const struct pp_node *n = &m->nodes[i];
        struct pp_workspace w = {0};
        if (n->op->workspace)
            n->op->workspace(n, NULL, 1, &w);
        floats += pp_shape_floats(&n->out) + w.keep + w.grad_keep;
    }
    return floats;
}

int pp_model_find_layer(const struct pp_model *m, const char *name)
{
    for (int i = 0; i < m->n_layers; i++)
        if (strcmp(m->layers[i].name, name) == 0)
            return i;
    return -1;
}

bool pp_model_bounds(const struct pp_model *m)
{
    for (int i = 0; i < m->n_nodes; i++)
        if (m->nodes[i].trains && !m->nodes[i].op->bound)
            return false;
    return true;
}

bool pp_model_mixes_samples(const struct pp_model *m)
{
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].kind == PP_PARAM_BUFFER)
            return true;
    for (int i = 0; i < m->n_nodes; i++)
        if (m->nodes[i].op == &op_attention && !m->nodes[i].attention.batch_first)
            return true;
    return false;
}

static bool are_equal(float a, float b)
{
    return !(a < b) && !(a > b);
}

static bool same_window(const struct pp_conv *v, const struct pp_conv *w)
{
    return v->kh == w->kh && v->kw == w->kw && v->stride == w->stride && v->pad_top == w->pad_top &&
           v->pad_left == w->pad_left && v->OH == w->OH && v->OW == w->OW;
}

static bool same_scaling(const struct pp_rope_scaling *x, const struct pp_rope_scaling *y)
{
    return are_equal(x->factor, y->factor) && are_equal(x->low, y->low) &&
           are_equal(x->high, y->high) && are_equal(x->context, y->context);
}

/* Returns whether two nodes compute the same if they get the same inputs. */
static bool same_settings(const struct pp_node *x, const struct pp_node *y)
{
    const struct pp_attention_settings *a = &x->attention, *b = &y->attention;
    return x->op == y->op && x->n_x == y->n_x && x->setup_hash == y->setup_hash &&
           x->activation == y->activation && x->bias == y->bias &&
           x->norm.groups == y->norm.groups && are_equal(x->norm.eps, y->norm.eps) &&
           a->heads == b->heads && a->kv_heads == b->kv_heads && a->causal == b->causal &&
           a->batch_first == b->batch_first && a->masked == b->masked &&
           are_equal(a->scale, b->scale) && x->rotary.heads == y->rotary.heads &&
           are_equal(x->rotary.base, y->rotary.base) &&
           same_scaling(&x->rotary.scaling, &y->rotary.scaling) &&
           x->window.count_padding == y->window.count_padding &&
           same_window(&x->window.conv, &y->window.conv);
}

bool pp_model_same_function(const struct pp_model *a, const struct pp_model *b)
{
    bool same = a->n_nodes == b->n_nodes;
    for (int i = 0; same && i < a->n_nodes; i++) {
        const struct pp_node *x = &a->nodes[i], *y = &b->nodes[i];
        same = same_settings(x, y) && memcmp(x->x, y->x, sizeof(x->x)) == 0;
    }
    return same;
}

static bool same_params(const struct pp_model *m, const struct pp_node *p, const struct pp_node *q)
{
    bool same = p->n_params == q->n_params && p->n_floats == q->n_floats;
    for (int i = 0; same && i < p->n_params; i++) {
        const struct pp_param *a = &m->params[p->first_param + i],
                              *b = &m->params[q->first_param + i];
        same = a->kind == b->kind && a->n_dims == b->n_dims &&
               memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof(*a->dims)) == 0;
    }
    return same;
}

static bool same_place(const struct pp_heads_place *p, const struct pp_heads_place *q)
{
    return p->input == q->input && p->sample == q->sample && p->one_row == q->one_row &&
           memcmp(&p->at, &q->at, sizeof(p->at)) == 0;
}

static bool same_places(const struct pp_attention_settings *p,
                        const struct pp_attention_settings *q)
{
    return same_place(&p->q, &q->q) && same_place(&p->k, &q->k) && same_place(&p->v, &q->v) &&
           same_place(&p->mask, &q->mask) && p->padded == q->padded;
}

bool pp_layer_same_work(const struct pp_model *m, int x, int y)
{
    const struct pp_layer *a = &m->layers[x], *b = &m->layers[y];
    int n = a->last_node - a->first_node;
    bool same = b->last_node - b->first_node == n;
    for (int i = 0; same && i <= n; i++) {
        const struct pp_node *p = &m->nodes[a->first_node + i], *q = &m->nodes[b->first_node + i];
        same = same_settings(p, q) && same_params(m, p, q) &&
               memcmp(&p->in, &q->in, sizeof(p->in)) == 0 &&
               memcmp(&p->out, &q->out, sizeof(p->out)) == 0 &&
               memcmp(&p->window.conv, &q->window.conv, sizeof(p->window.conv)) == 0 &&
               p->reads == q->reads && p->trains == q->trains && p->positions == q->positions &&
               p->embedding.vocabulary == q->embedding.vocabulary &&
               p->attention.width == q->attention.width && p->attention.keys == q->attention.keys &&
               same_places(&p->attention, &q->attention) && p->cached == q->cached &&
               are_equal(p->dropout.p, q->dropout.p) &&
               are_equal(p->attention.dropout, q->attention.dropout);
        for (int k = 0; same && k < p->n_x; k++)
            same = p->x[k] - a->x == q->x[k] - b->x && p->wants_dx[k] == q->wants_dx[k] &&
                   p->shared[k] == q->shared[k];
    }
    return same;
}
