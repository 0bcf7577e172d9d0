/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initial values: He et al., "Delving deep into rectifiers" (2015), in the uniform form, as
 * torch.nn.init.kaiming_uniform_ computes it. Every element is a function of (seed, parameter
 * name, element), so no cut of the model changes it.
 */
#include "nn.h"

#include <math.h>
#include <stdio.h>

#include "ppcli/rng.h"

float init_bound(enum pp_activation act, int fan_in)
{
    return (float)(pp_activation_facts(act)->gain * sqrt(3.0 / fan_in));
}

void pp_layer_init(const struct pp_layer *l, uint64_t seed, float *dst)
{
    for (int p = 0; p < l->n_params; p++) {
        const struct pp_param *param = &l->params[p];
        size_t n = (size_t)param->rows * (size_t)param->cols;
        if (param->init_lo == param->init_hi) {
            for (size_t i = 0; i < n; i++)
                dst[i] = param->init_lo;
        } else {
            char name[PP_PARAM_NAME_MAX + 8];
            snprintf(name, sizeof(name), "init:%s", param->name);
            pp_rng_uniform(seed, pp_rng_stream(name, 0), 0, param->init_lo, param->init_hi, n, dst);
        }
        dst += n;
    }
}
