/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of ckpt/ share. */
#ifndef PPCLI_CKPT_IMPL_H
#define PPCLI_CKPT_IMPL_H

#include "ppcli/ckpt/checkpoint.h"

/* ---- names.c: names of checkpoints and their files are made, never taken from a file; a name
 * found in a folder counts only if it is exactly the name that would be made */

#define NAME_CONFIG "config.ini"
#define NAME_STATE "state.json"
#define NAME_MANIFEST "MANIFEST"
#define NAME_BYTES 64

/* Metadata of a part, which identifies its checkpoint. */
#define META_STEP "ppcli.step"
#define META_HASH "ppcli.config_hash"
#define META_PART "ppcli.part" /* "0 of 2" */

void name_step(char out[NAME_BYTES], int64_t step);         /* step-00001200 */
void name_part(char out[NAME_BYTES], int index, int count); /* stage-0000-of-0002.safetensors */
bool name_is_step(const char *name, int64_t *out_step);
bool name_is_leftover(const char *name); /* step-00001200.tmp-77, .trash-step-00001200-77 */

/*
 * ---- manifest.c
 *
 * MANIFEST: the list of a checkpoint's files. It is text, so that people and scripts can read it:
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
 * There is one way to write it, and any other text is refused.
 */

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

/* Formats a manifest. The caller frees *out_text with free(). Errors: PP_ERESOURCE. */
int manifest_print(const struct manifest *m, char **out_text, size_t *out_bytes);

/* Parses a manifest. The caller calls manifest_fini(). Errors: PP_EFORMAT, which begins with
 * `label`, and PP_ERESOURCE. */
int manifest_parse(const char *label, const char *text, size_t bytes, struct manifest *out);
void manifest_fini(struct manifest *m);

/* ---- state.c: state.json, the content of pp_ckpt_state as JSON */

#define STATE_BYTES_MAX ((uint64_t)512 << 20) /* with a tokenizer.json */

/* Formats a state. The caller frees *out_text with free(). Errors: PP_EINTERNAL (a number that is
 * not finite), PP_ERESOURCE. */
int state_print(const struct pp_ckpt_state *s, char **out_text, size_t *out_bytes);

/* Parses a state, which must have every key exactly once and no other key. Errors: PP_EFORMAT,
 * which begins with `label`, and PP_ERESOURCE. */
int state_parse(const char *label, const char *text, size_t bytes, struct pp_ckpt_state *out);

/* ---- folder.c: listing and removing checkpoints */

/* Lists the steps of the checkpoints in `dir`, the newest first. The list is empty if there is no
 * such folder. The caller frees *out with pp_free(). */
int folder_steps(const char *dir, int64_t **out, int *out_n);

/* Format the path of a checkpoint in `dir`, and the path that it gets before its files are
 * removed. */
int folder_step_path(const char *dir, int64_t step, char out[PP_PATH_MAX]);
int folder_trash_path(const char *dir, int64_t step, char out[PP_PATH_MAX]);

/* Removes a folder and its files, or a link to a folder. Links are not followed, and folders in it
 * stay. */
int folder_remove(const struct pp_io *io, const char *path);

/* ---- run_dir.c */

/* Refuses a run folder within the checkpoints of a run. Errors: PP_ECONFIG, those of
 * pp_path_stat(). */
int run_dir_check(const char *dir);

/* ---- checkpoint.c, read.c, shards.c: opening and finding */

/* Opens one checkpoint folder and checks it. On failure *ck must be closed as well. */
int ckpt_open_folder(struct pp_ckpt *ck, enum pp_ckpt_check check);

/* ckpt_has_shards: returns whether a folder is Hugging Face's, with one safetensors file or
 * several. ckpt_open_shards: opens its files and index; on failure *ck must be closed as well. */
bool ckpt_has_shards(const char *dir);
int ckpt_open_shards(struct pp_ckpt *ck);

/* Returns the tensor of that name; NULL if there is none. *out_part is the number of its file. */
const struct pp_st_tensor *ckpt_find(const struct pp_ckpt *ck, const char *name, int *out_part);

/* Checks that all values of the tensor are finite. Errors: PP_EFORMAT. */
int ckpt_check_finite(const struct pp_ckpt *ck, const char *name, const float *values, size_t n);

/* Returns the name of a tensor without the prefix ck->prefix. */
const char *ckpt_tensor_name(const struct pp_ckpt *ck, const struct pp_st_tensor *t);
/* Returns the name that a tensor has in files of a bare GPT2Model or LlamaModel: the name without
 * its leading "transformer." or "model."; NULL if it has no such prefix. */
const char *ckpt_short_name(const char *name);

/* Sorts the tensors of all parts by name, and refuses a name that occurs twice. */
int ckpt_build_index(struct pp_ckpt *ck);

#endif
