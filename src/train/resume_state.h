/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a checkpoint as the trainer's; used by resume.c and differences.c. See resume.h. */
#ifndef PPCLI_TRAIN_RESUME_STATE_H
#define PPCLI_TRAIN_RESUME_STATE_H

#include "loop.h"

/* Could it be of a run with this config, and were these the data? Local. Errors: PP_EFORMAT;
 * PP_ECONFIG: another batch size, with which no step begins where the checkpoint is. */
int resume_check_state(const struct trainer *tr, const struct pp_ckpt *ck);

/* Steps that had changed the weights. Local. */
int64_t resume_updates(const struct pp_ckpt_state *s);

/* Continue from there. Local. */
void resume_take_state(struct trainer *tr, const struct pp_ckpt *ck);

/* How far tr->t will be ahead of the steps of whole epochs and this one; see struct trainer. */
int64_t resume_offset(const struct trainer *tr, const struct pp_ckpt *ck);

/* The numbers of the state that have the step up to which checkpoints stay, the samples of an epoch, and the
 * checksum of images (what 0) or labels (1). Returns out. */
#define RESUME_KEPT "checkpoint.kept"
#define RESUME_SAMPLES "data.train.samples"
const char *resume_crc_name(int split, int what, char out[32]);

/* ---- differences.c */

/* Rank 0: may a run with this config continue from there? Says what changes; tr->changes has it.
 * Errors: PP_ECONFIG, PP_ERESOURCE. */
int resume_check_config(struct trainer *tr, const struct pp_ckpt *ck);

/* Values of the checkpoint's config. */
struct resume_past {
    int64_t batch;
    bool other_test; /* it was tested on another number of samples */
};
struct resume_past resume_past(const struct pp_config *cfg, const struct pp_ckpt *ck);

#endif
