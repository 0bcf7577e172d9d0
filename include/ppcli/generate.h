/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Continuing a text, token by token, with the weights of a checkpoint: one process, all layers, and
 * the keys and values of earlier positions kept. When the context is full, its last half is read
 * again and the text goes on from there.
 */
#ifndef PPCLI_GENERATE_H
#define PPCLI_GENERATE_H

#include <stdint.h>

#include "ppcli/config.h"
#include "ppcli/vocabulary.h"

struct pp_generator;

/* The model of cfg's [model], with weights of a checkpoint, run folder, safetensors file or folder
 * of Hugging Face's, on the backend of cfg. Local. Errors: PP_ECONFIG (a model that continues no
 * texts), PP_EFORMAT, PP_ENOINPUT, PP_ERESOURCE. The caller owns *out. */
int pp_generator_create(const struct pp_config *cfg, const char *weights,
                        struct pp_generator **out);
void pp_generator_destroy(struct pp_generator **g);

int pp_generator_tokens(const struct pp_generator *g); /* different ones */

/* What they are: as the checkpoint says, else the data of cfg; n 0: numbers. */
const struct pp_vocabulary *pp_generator_vocabulary(const struct pp_generator *g);

/* Read n more tokens, 0 <= token < tokens, 1 <= n <= PP_READ_AT_ONCE; more than one only while the
 * context has room for them. *out_logits[tokens]: of the next one; valid until the next call. Errors:
 * PP_EDIVERGED (not finite), those of the backend. */
#define PP_READ_AT_ONCE 64
int pp_generator_read(struct pp_generator *g, const uint32_t *tokens, int n,
                      const float **out_logits);

#endif
