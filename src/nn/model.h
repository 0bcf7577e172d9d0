/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/nn/model.h that only this module uses. */
#ifndef PPCLI_SRC_NN_MODEL_H
#define PPCLI_SRC_NN_MODEL_H

#include "ppcli/nn/model.h"

/*
 * Parameter `copy` of a model is from here on another place of parameter `owner`, an earlier one of
 * as many floats which is not a copy and has none: it gets its name, kind and initial values. After
 * all W of a step both have the sum of the two gradients (see pp_plan_tie()), so that they stay
 * equal bit by bit. The owner is the one that is counted, saved and hashed.
 */
void pp_model_tie(struct pp_model *m, int owner, int copy);

/* dst[pp_param_floats(p)] = its initial values: element e follows from word e of stream ("init:" +
 * name, 0) under seed. Host memory. */
void pp_param_init(const struct pp_param *p, uint64_t seed, float *dst);

/* The layer of that name, -1: none. */
int pp_model_find_layer(const struct pp_model *m, const char *name);

#endif
