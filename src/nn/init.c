/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initial values: He et al., "Delving deep into rectifiers" (2015), in the uniform form, as
 * torch.nn.init.kaiming_uniform_ computes it. Every element is a function of (seed, parameter
 * name, element), so no cut of the model changes it.
 */
#include "nn.h"

#include <math.h>
#include <stdio.h>

#include "ppcli/err.h"
#include "ppcli/rng.h"

void init_weight(const struct builder *b, struct pp_param *w, int fan_in, enum pp_activation act)
{
    w->init = PP_INIT_UNIFORM;
    w->b = (float)(pp_activation_facts(act)->gain * sqrt(3.0 / fan_in));
    w->a = -w->b;
}

void pp_param_init(const struct pp_param *p, uint64_t seed, float *dst)
{
    size_t n = pp_param_floats(p);
    if (p->init == PP_INIT_CONSTANT) {
        for (size_t i = 0; i < n; i++)
            dst[i] = p->a;
        return;
    }
    char name[PP_PARAM_NAME_MAX + 8];
    snprintf(name, sizeof(name), "init:%s", p->name);
    pp_assert(p->init == PP_INIT_UNIFORM);
    pp_rng_uniform(seed, pp_rng_stream(name, 0), 0, p->a, p->b, n, dst);
}
