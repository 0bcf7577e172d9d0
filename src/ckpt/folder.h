/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of checkpoints: what is in them, and taking things out. Local to ckpt/. */
#ifndef PPCLI_CKPT_FOLDER_H
#define PPCLI_CKPT_FOLDER_H

#include "ppcli/checkpoint.h"

/* Steps of the checkpoints in `dir`, the newest first; none when there is no such folder. Caller
 * pp_free()s *out. */
int folder_steps(const char *dir, int64_t **out, int *out_n);

/* The name of a checkpoint in `dir`, and the one that it gets before its files go. */
int folder_step_path(const char *dir, int64_t step, char out[PP_PATH_MAX]);
int folder_trash_path(const char *dir, int64_t step, char out[PP_PATH_MAX]);

/* Remove a folder of files, or a link to one; links are not followed, folders in it are left. */
int folder_remove(const struct pp_io *io, const char *path);

#endif
