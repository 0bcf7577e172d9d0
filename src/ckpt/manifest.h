/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MANIFEST: what a checkpoint consists of. Text, so that people and scripts can read it:
 *
 *   ppcli-checkpoint 1
 *   step 1200
 *   config_hash HEX
 *   tensors 12
 *   file config.ini BYTES SHA256
 *   file stage-0000-of-0002.safetensors BYTES SHA256
 *   file stage-0001-of-0002.safetensors BYTES SHA256
 *   file state.json BYTES SHA256
 *   end SHA256 of the lines above
 *
 * There is one way to write it and nothing else is read. Local to ckpt/.
 */
#ifndef PPCLI_CKPT_MANIFEST_H
#define PPCLI_CKPT_MANIFEST_H

#include "ppcli/checkpoint.h"

#define MANIFEST_BYTES_MAX ((uint64_t)2 << 20)

struct manifest_entry {
    uint64_t bytes;
    char sha256[PP_SHA256_HEX];
};

struct manifest {
    int64_t step;
    char config_hash[PP_SHA256_HEX];
    int64_t tensors;
    struct manifest_entry config, state;
    struct manifest_entry *parts; /* [n_parts] */
    int n_parts;
};

void manifest_digest(const void *data, size_t bytes, char out[PP_SHA256_HEX]);

/* Caller frees *out_text with free(). Errors: PP_ERESOURCE. */
int manifest_print(const struct manifest *m, char **out_text, size_t *out_bytes);

/* Caller calls manifest_fini(). Errors: PP_EFORMAT beginning with `label`, PP_ERESOURCE. */
int manifest_parse(const char *label, const char *text, size_t bytes, struct manifest *out);
void manifest_fini(struct manifest *m);

#endif
