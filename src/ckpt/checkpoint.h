/* SPDX-License-Identifier: Apache-2.0 */
/* An open checkpoint. Local to ckpt/. */
#ifndef PPCLI_CKPT_CHECKPOINT_H
#define PPCLI_CKPT_CHECKPOINT_H

#include "ppcli/checkpoint.h"

struct pp_ckpt {
    char *path;
    bool plain; /* one safetensors file: no state, no config */
    struct pp_ckpt_state state;
    char *config;
    struct pp_st_file **parts; /* [n_parts], those not opened NULL */
    int n_parts;
    struct ckpt_entry *index; /* [n_tensors] */
    int n_tensors;
    uint64_t bytes;
    int checked; /* tensors whose bytes were compared with what was written */
};

struct ckpt_entry {
    const struct pp_st_tensor *t;
    int part;
};

/* One checkpoint folder, with all that must hold. On failure *ck is to be closed as well. */
int ckpt_open_folder(struct pp_ckpt *ck, enum pp_ckpt_check check);

/* NULL when there is none. */
const struct pp_st_tensor *ckpt_find(const struct pp_ckpt *ck, const char *name, int *out_part);

/* Sort the tensors of all parts; refuse one name twice. */
int ckpt_build_index(struct pp_ckpt *ck);

#endif
