/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides where a run begins: at step 0, with the weights of a file, or at a checkpoint. A resumed
 * run has the same bits as one that was not interrupted.
 */
#ifndef PPCLI_TRAIN_RESUME_H
#define PPCLI_TRAIN_RESUME_H

#include "ppcli/ckpt/checkpoint.h"

struct trainer;

/* Decided by rank 0; plain data, the same on all ranks. */
struct beginning {
    char dir[PP_PATH_MAX];  /* run folder; "": nothing is written */
    char from[PP_PATH_MAX]; /* checkpoint or safetensors file to read; "": no file */
    bool resume;            /* read the whole state of `from`; false: only its weights */
    bool goes_on;           /* the run in `dir` continues */
    int64_t step;           /* resume: step of the checkpoint */
    int64_t kept;           /* checkpoints up to this step are kept, whatever checkpoint.keep is */
    bool nothing_left;      /* the run is complete: the ranks return, no file changes */
    int64_t locked_ns;      /* since_ns of rank 0's lock */
};

/*
 * Finds the checkpoint that --resume names, checks that this config and these data can continue it,
 * and makes or takes the run folder and its lock (tr->lock, which rank_main() releases). On rank 0.
 * Local. Errors: PP_ECONFIG (another model, other settings, a folder that is not empty), PP_EFORMAT
 * (damaged; other data), PP_ENOINPUT, PP_ERESOURCE (in use), PP_EPERM, PP_EIO, PP_EUSAGE.
 */
int resume_begin(struct trainer *tr, struct beginning *out);

/* Makes the run folder this run's: empty, or as it was at the checkpoint's step. On rank 0, when
 * every rank has read its checkpoint; nothing is removed before that. Local. Errors: PP_EPERM,
 * PP_EIO. */
int resume_take_folder(struct trainer *tr);

/* Finds the newest checkpoint on this host that --resume would find and that opens; "": no
 * checkpoint. Local. Errors: those of pp_path_stat(). */
int resume_newest(const struct trainer *tr, enum pp_ckpt_check check, char out[PP_PATH_MAX]);

/* Finds the file of weights to begin with: for a run its newest checkpoint, the same for every
 * rank. Local. Errors: those of pp_ckpt_open_latest(). */
int resume_find_weights(const char *path, char out[PP_PATH_MAX]);

/* Reads this rank's part of tr->begin.from. Local. Errors: PP_EFORMAT, and as above. */
int resume_read(struct trainer *tr);

/* Restores weights, optimizer state and tr->updates from the newest checkpoint in the run folder;
 * nothing else changes. *out_step: its step. Call it between two steps. Collective. Errors: those
 * of pp_ckpt_open_latest(), the same on every rank; of the transport. */
int resume_rewind(struct trainer *tr, int64_t *out_step);

/* Fills *out with everything besides tensors that the next step and its report depend on;
 * resume_read() restores it. On rank 0, after a sync point. Local. */
int resume_state(const struct trainer *tr, struct pp_ckpt_state *out);

#endif
