/* SPDX-License-Identifier: Apache-2.0 */
/* Models for the tests of layers and chunks. */
#ifndef PPCLI_TESTS_NN_MODELS_H
#define PPCLI_TESTS_NN_MODELS_H

#include <stdio.h>

#include "ppcli/conf/config.h"
#include "../../src/dev/backend.h"
#include "ppcli/base/base.h"
#include "ppcli/nn/model.h"
#include "test.h"

static inline struct pp_config *make_config(enum pp_activation act, const int *sizes, int n_sizes)
{
    struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    snprintf(cfg->model.type, sizeof(cfg->model.type), "mlp");
    memcpy(cfg->model.sizes, sizes, (size_t)n_sizes * sizeof(*sizes));
    cfg->model.n_sizes = n_sizes;
    cfg->model.activation = act;
    return cfg;
}

static inline struct pp_model *make_model(enum pp_activation act, const int *sizes, int n_sizes)
{
    PP_OWN_MEMORY struct pp_config *cfg = make_config(act, sizes, n_sizes);
    struct pp_model *m = NULL;
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    return m;
}

static inline struct pp_backend *open_backend(const char *name)
{
    const struct pp_backend_ops *ops;
    struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_resolve(name, &ops));
    CHECK_OK(pp_backend_open(ops, 1, &be));
    return be;
}

#endif
