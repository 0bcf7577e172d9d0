/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters from checkpoints and files: their order there becomes that of memory. */
#ifndef PPCLI_WEIGHTS_H
#define PPCLI_WEIGHTS_H

#include "ppcli/checkpoint.h"
#include "ppcli/model.h"

/* The values of p, which `name` has in the checkpoint: put() gets them in ascending pieces; NULL:
 * only see that they could be read. Local. Errors: those of pp_ckpt_read(), PP_ERESOURCE. */
int pp_weights_read(const struct pp_ckpt *ck, const char *name, const struct pp_param *p,
                    int (*put)(void *ctx, size_t first, const float *values, size_t n), void *ctx);

/* A tensor that the model has no place for (of a checkpoint: a learned one) says that the weights
 * are of one that computes something else, and so does a last layer that is not the embedding where
 * they are tied. Errors: PP_EFORMAT. */
int pp_weights_check_extras(const struct pp_model *m, const struct pp_ckpt *ck);

/* Append "KEY was THERE, is HERE" to text[bytes], a list. */
void pp_weights_difference(char *text, size_t bytes, const char *key, const char *there,
                           const char *here);

/* The keys of [model] with which the same tensors compute something else than where they were
 * trained, which their checkpoint says, or the config.json beside them: refused, or with `warn` said.
 * m: of cfg; only its sizes are of use. Local. Errors: PP_ECONFIG, PP_ERESOURCE. */
int pp_weights_check_model(const struct pp_config *cfg, const struct pp_model *m,
                           const struct pp_ckpt *ck, bool warn);

#endif
