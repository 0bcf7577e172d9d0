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

int pp_model_create(const struct pp_config *cfg, struct pp_model **out)
{
    const struct model_builder *b = NULL;
    for (size_t i = 0; i < sizeof(builders) / sizeof(builders[0]); i++)
        if (!strcmp(cfg->model.type, builders[i]->name))
            b = builders[i];
    if (!b) {
        return pp_fail(PP_ECONFIG, "model.type: no model is named '%s' (try %s)", cfg->model.type,
                       builders[0]->name);
    }
    struct pp_model *m = pp_alloc(1, sizeof(*m));
    if (!m)
        return PP_ERESOURCE;
    int rc = b->build(cfg, m);
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
        pp_free((*m)->layers);
        pp_free(*m);
        *m = NULL;
    }
}
