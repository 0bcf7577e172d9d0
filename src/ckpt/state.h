/* SPDX-License-Identifier: Apache-2.0 */
/* state.json: what pp_ckpt_state holds, as JSON. Local to ckpt/. */
#ifndef PPCLI_CKPT_STATE_H
#define PPCLI_CKPT_STATE_H

#include "ppcli/checkpoint.h"

#define STATE_BYTES_MAX ((uint64_t)1 << 20)

/* Caller frees *out_text with free(). Errors: PP_EINTERNAL (a number that is not finite),
 * PP_ERESOURCE. */
int state_print(const struct pp_ckpt_state *s, char **out_text, size_t *out_bytes);

/* Every key exactly once and no other. Errors: PP_EFORMAT beginning with `label`, PP_ERESOURCE. */
int state_parse(const char *label, const char *text, size_t bytes, struct pp_ckpt_state *out);

#endif
