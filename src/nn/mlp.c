/* SPDX-License-Identifier: Apache-2.0 */
/* The multi-layer perceptron: linear layers, the activation after each but the last. */
#include "nn.h"

#include "ppcli/err.h"
#include "ppcli/mem.h"

static int build(const struct pp_config *cfg, struct pp_model *m)
{
    const int *sizes = cfg->model.sizes;
    int n = cfg->model.n_sizes - 1;
    pp_assert(n >= 1); /* the config has at least two widths, all of them at least 1 */
    m->layers = pp_alloc((size_t)n, sizeof(*m->layers));
    if (!m->layers)
        return PP_ERESOURCE;
    m->n_layers = n;
    m->inputs = sizes[0];
    m->classes = sizes[n];
    for (int i = 0; i < n; i++) {
        layer_linear_define(i, sizes[i], sizes[i + 1],
                            i < n - 1 ? cfg->model.activation : PP_ACT_NONE, &m->layers[i]);
        PP_TRY(pp_size_add(m->n_floats, m->layers[i].n_floats, &m->n_floats));
    }
    return 0;
}

const struct model_builder model_mlp = {.name = "mlp", .build = build};
