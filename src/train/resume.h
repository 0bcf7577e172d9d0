/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a run begins: at its start, with the weights of a file, or at a checkpoint. An
 * interrupted and resumed run has the bits of one that was not interrupted.
 */
#ifndef PPCLI_TRAIN_RESUME_H
#define PPCLI_TRAIN_RESUME_H

#include "ppcli/ckpt/checkpoint.h"

struct trainer;

/* Decided by rank 0; plain data, the same on all ranks. */
struct beginning {
    char dir[PP_PATH_MAX];  /* run folder; "": nothing is written */
    char from[PP_PATH_MAX]; /* checkpoint or safetensors file to read; "": none */
    bool resume;            /* all of its state, else its weights alone */
    bool goes_on;           /* the run folder is the one that is resumed */
    int64_t step;           /* resume: of the checkpoint */
    int64_t kept;           /* checkpoints up to this step stay, whatever checkpoint.keep says */
    bool nothing_left;      /* and it is complete: the ranks leave, no file changes */
    int64_t locked_ns;      /* since_ns of rank 0's lock */
};

/*
 * Of rank 0: find the checkpoint that --resume names, see that this config and these data go on
 * where it stopped, make or take the run folder and its lock (tr->lock, which rank_main()
 * releases). Local.
 * Errors: PP_ECONFIG (another model, other settings, a folder that is not empty), PP_EFORMAT
 * (damaged; other data), PP_ENOINPUT, PP_ERESOURCE (in use), PP_EPERM, PP_EIO, PP_EUSAGE.
 */
int resume_begin(struct trainer *tr, struct beginning *out);

/* Of rank 0, when every rank has read what it begins with: the run folder becomes this run's, as it was
 * at the step of the checkpoint, or empty. Nothing is removed before. Local. Errors: PP_EPERM, PP_EIO. */
int resume_take_folder(struct trainer *tr);

/* The newest checkpoint here that --resume would find and that opens; "": none. Local. Errors: those of
 * pp_path_stat(). */
int resume_newest(const struct trainer *tr, enum pp_ckpt_check check, char out[PP_PATH_MAX]);

/* The weights to begin with: of a run its newest checkpoint, the same one for every rank. Local.
 * Errors: those of pp_ckpt_open_latest(). */
int resume_find_weights(const char *path, char out[PP_PATH_MAX]);

/* Read what this rank holds of tr->begin.from. Local. Errors: PP_EFORMAT and as above. */
int resume_read(struct trainer *tr);

/* Collective, between two steps: weights and the optimizer's state, tr->updates with them, are
 * those of the newest checkpoint in the run folder again, which was made after *out_step. Nothing
 * else changes. Errors: those of pp_ckpt_open_latest(), the same on every rank; of the transport.
 */
int resume_rewind(struct trainer *tr, int64_t *out_step);

/* Rank 0, after a sync point: all that besides tensors makes the next step and its report what they
 * are; resume_read() takes it back. Local. */
int resume_state(const struct trainer *tr, struct pp_ckpt_state *out);

#endif
