/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of checkpoints and their files. Names are made, never taken from a file; those found
 * in a folder count only when they are exactly as they would be made. Local to ckpt/.
 */
#ifndef PPCLI_CKPT_NAMES_H
#define PPCLI_CKPT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#define NAME_CONFIG "config.ini"
#define NAME_STATE "state.json"
#define NAME_MANIFEST "MANIFEST"
#define NAME_BYTES 64

/* Metadata of a part, which ties it to its checkpoint. */
#define META_STEP "ppcli.step"
#define META_HASH "ppcli.config_hash"
#define META_PART "ppcli.part" /* "0 of 2" */

void name_step(char out[NAME_BYTES], int64_t step);         /* step-00001200 */
void name_part(char out[NAME_BYTES], int index, int count); /* stage-0000-of-0002.safetensors */
bool name_is_step(const char *name, int64_t *out_step);
bool name_is_leftover(const char *name); /* step-00001200.tmp-77, .trash-step-00001200-77 */

#endif
