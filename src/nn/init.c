/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initial values as those of torch.nn.init: "Kaiming" (He et al., "Delving deep into rectifiers",
 * 2015) and "Xavier" (Glorot and Bengio, 2010). Every element is a function of (seed, parameter
 * name, element), so no cut of the model changes it.
 */
#include "nn.h"
#include "model.h"

#include <math.h>

#include "ppcli/base/base.h"

void init_weight(const struct builder *b, struct pp_param *w, int fan_in, enum pp_activation act)
{
    enum pp_init_rule rule = b->cfg->model.init;
    double fan_out = (double)pp_param_floats(w) / w->dims[w->n_dims - 1];
    double gain = sqrt(1.0 / 3), fan = fan_in; /* PyTorch's default: kaiming_uniform_(a=sqrt(5)) */
    bool normal = rule == PP_INIT_KAIMING_NORMAL || rule == PP_INIT_XAVIER_NORMAL;
    if (rule == PP_INIT_KAIMING_UNIFORM || rule == PP_INIT_KAIMING_NORMAL) {
        gain = pp_activation_facts(act)->gain;
    } else if (rule == PP_INIT_XAVIER_UNIFORM || rule == PP_INIT_XAVIER_NORMAL) {
        gain = 1;
        fan = (fan_in + fan_out) / 2;
    } else if (rule == PP_INIT_TORCHVISION && w->n_dims == 4) {
        gain = M_SQRT2;
        fan = fan_out;
        normal = true;
    }
    w->init = normal ? PP_INIT_NORMAL : PP_INIT_UNIFORM;
    w->b = (float)(gain * sqrt((normal ? 1.0 : 3.0) / fan));
    w->a = normal ? 0 : -w->b;
}

void init_bias(const struct builder *b, struct pp_param *bias, int fan_in)
{
    if (b->cfg->model.init != PP_INIT_TORCH && b->cfg->model.init != PP_INIT_TORCHVISION)
        return; /* biases stay 0 */
    bias->init = PP_INIT_UNIFORM;
    bias->b = (float)(1 / sqrt(fan_in));
    bias->a = -bias->b;
}

/* Reads given values, row by row where their order differs between files and memory. */
static int read_given(const struct pp_param *p, float *dst)
{
    int64_t dims[PP_PARAM_DIMS];
    int n_dims;
    size_t all = pp_param_floats(p), floats = pp_param_in_file(p, &n_dims, dims);
    if (floats == 0)
        return p->given->read(p->given, 0, all, dst);
    PP_TAKE(float, row, floats);
    for (size_t at = 0; at < all; at += floats) {
        PP_TRY(p->given->read(p->given, at, floats, row));
        pp_param_row(p, false, row, dst + at);
    }
    return 0;
}

int pp_param_init(const struct pp_param *p, uint64_t seed, float *dst)
{
    size_t n = pp_param_floats(p);
    if (p->init == PP_INIT_GIVEN)
        return read_given(p, dst);
    if (p->init == PP_INIT_CONSTANT) {
        for (size_t i = 0; i < n; i++)
            dst[i] = p->a;
        return 0;
    }
    char name[PP_PARAM_NAME_MAX + 8];
    snprintf(name, sizeof(name), "init:%s", p->name);
    (p->init == PP_INIT_NORMAL ? pp_rng_normal : pp_rng_uniform)(seed, pp_rng_stream(name, 0), 0,
                                                                 p->a, p->b, n, dst);
    return 0;
}
