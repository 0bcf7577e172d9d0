/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/nn/model.h that only this module uses. */
#ifndef PPCLI_SRC_NN_MODEL_H
#define PPCLI_SRC_NN_MODEL_H

#include "ppcli/nn/model.h"

/*
 * Makes parameter `copy` a second place of parameter `owner`, an earlier parameter with as many
 * floats that is not a copy. The copy gets its name, kind and initial values. After all W of a step
 * the owner and all its copies hold the sum of their gradients (see pp_plan_tie()), so that they
 * stay equal to the bit. Only the owner is counted, saved and hashed.
 */
void pp_model_tie(struct pp_model *m, int owner, int copy);

/* Sets dst[pp_param_floats(p)] to the initial values: those given, or element e follows from word e
 * of stream ("init:" + name, 0) and the seed. Host memory. Errors: PP_ERESOURCE, those of the
 * reader of given values. */
int pp_param_init(const struct pp_param *p, uint64_t seed, float *dst);

/* Returns the layer of that name; -1: there is none. */
int pp_model_find_layer(const struct pp_model *m, const char *name);

#endif
