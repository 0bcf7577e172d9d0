/* SPDX-License-Identifier: Apache-2.0 */
/* The list of model kinds and the life of a model. */
#include "nn.h"

#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

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

int pp_model_create(const struct pp_config *cfg, const struct pp_shape *sample, int classes,
                    struct pp_model **out)
{
    const struct model_builder *b = NULL;
    for (size_t i = 0; i < sizeof(builders) / sizeof(builders[0]); i++)
        if (!strcmp(cfg->model.type, builders[i]->name))
            b = builders[i];
    if (!b) {
        return pp_fail(PP_ECONFIG, "model.type: no model is named '%s' (try %s)", cfg->model.type,
                       builders[0]->name);
    }
    if (!b->input && (!sample || sample->n == 0)) {
        return pp_fail(PP_ECONFIG,
                       "model.type = %s reads the shape of a sample from the data, which are not "
                       "there; set data.shape (synthetic), or data.dataset",
                       b->name);
    }
    struct pp_model *m = pp_alloc(1, sizeof(*m));
    if (!m)
        return PP_ERESOURCE;
    struct builder how = {
        .m = m, .cfg = cfg, .classes = cfg->model.classes > 0 ? cfg->model.classes : classes};
    int rc = build_begin(&how, b->input ? b->input(cfg) : *sample);
    if (rc == 0)
        rc = build_finish(&how, b->build(&how, 0));
    if (rc < 0) {
        pp_model_destroy(&m);
        return rc;
    }
    *out = m;
    return 0;
}

void pp_model_destroy(struct pp_model **m)
{
    if (*m) {
        pp_free((*m)->values);
        pp_free((*m)->nodes);
        pp_free((*m)->layers);
        pp_free((*m)->params);
        pp_free(*m);
        *m = NULL;
    }
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
        sum.flops_w += c.flops_w;
    }
    return sum;
}

double pp_layer_flops(const struct pp_model *m, int index)
{
    struct pp_layer_cost c = pp_layer_cost(m, index);
    return c.flops_f + c.flops_i + c.flops_w;
}

size_t pp_layer_values(const struct pp_model *m, int index)
{
    const struct pp_layer *l = &m->layers[index];
    size_t floats = 0;
    for (int i = l->first_node; i <= l->last_node; i++) {
        const struct pp_node *n = &m->nodes[i];
        struct pp_words words = {0};
        if (n->op->words)
            n->op->words(n, NULL, 1, &words);
        floats += pp_shape_floats(&n->out) + words.keep + words.grad_keep;
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
        if (m->nodes[i].n_params > 0 && !m->nodes[i].op->bound)
            return false;
    return true;
}

bool pp_model_mixes_samples(const struct pp_model *m)
{
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].kind == PP_PARAM_BUFFER)
            return true;
    return false;
}
