/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and finding inside ckpt/. */
#ifndef PPCLI_CKPT_CHECKPOINT_H
#define PPCLI_CKPT_CHECKPOINT_H

#include "ppcli/checkpoint.h"

/* One checkpoint folder, with all that must hold. On failure *ck is to be closed as well. */
int ckpt_open_folder(struct pp_ckpt *ck, enum pp_ckpt_check check);

/* Is it a folder of Hugging Face's, with one safetensors file or several? And its files and index.
 * On failure *ck is to be closed as well. */
bool ckpt_has_shards(const char *dir);
int ckpt_open_shards(struct pp_ckpt *ck);

/* NULL when there is none. */
const struct pp_st_tensor *ckpt_find(const struct pp_ckpt *ck, const char *name, int *out_part);

/* Sort the tensors of all parts; refuse one name twice. */
int ckpt_build_index(struct pp_ckpt *ck);

#endif
