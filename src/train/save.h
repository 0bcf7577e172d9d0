/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves checkpoints of a run: every rank of replica 0 writes its part, rank 0 the rest. If a save
 * fails, the run continues and earlier checkpoints stay.
 */
#ifndef PPCLI_TRAIN_SAVE_H
#define PPCLI_TRAIN_SAVE_H

#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/pipe/exec.h"

struct saver;

/* Writes the name of a tensor in a checkpoint. */
void saver_tensor_name(const struct pp_exec_tensor *t, char out[PP_ST_NAME_MAX + 1]);

struct trainer;

/* Prepares to save this rank's part into the run folder. `tr` must be complete except for the loop,
 * and outlive the saver. The caller owns *out. Local. Errors: PP_ERESOURCE, PP_ECONFIG (path too
 * long). */
int saver_create(const struct trainer *tr, struct saver **out);
void saver_destroy(struct saver **s); /* accepts NULL in *s */

/*
 * Saves a checkpoint between two steps. state: on rank 0, NULL elsewhere. prune: remove the oldest
 * checkpoints beyond checkpoint.keep. Tensors that are not finite are never saved. All ranks agree
 * on whether it was saved. Collective. Errors: only those of the transport; rank 0 warns if it
 * could not be saved.
 */
int saver_save(struct saver *s, int64_t step, const struct pp_ckpt_state *state, bool prune);

/* Lets PP_CKPT_BEST of this host's run folder point to the best checkpoint so far; warns if it does
 * not exist. Local. */
void saver_mark_best(const struct trainer *tr);

/*
 * ---- copies.c: hosts with disks of their own. Does nothing if all ranks are on one host.
 *
 * Collective, with the same result on every rank. Errors: of disks, of the transport; PP_ECONFIG.
 */

/* Copies a newer checkpoint of another host to rank 0, before rank 0 looks for one. */
int copies_find(const struct trainer *tr);

/* Fills in tr->apart and copies the checkpoint to begin with to the other disks. Call it when
 * tr->begin is known. */
int copies_begin(struct trainer *tr);

/* Removes from this rank's own disk the files that the run has abandoned. Call it when all ranks
 * have read the checkpoint. Local. */
int copies_tidy(const struct trainer *tr);

/* Copies rank 0's checkpoint in folder `path` to the first `hosts` other hosts; -1: to all that
 * lack it. */
int copies_give(const struct trainer *tr, const char *path, int hosts);

/* Send and receive all files of a folder, which must exist at the receiver. *out_rc is the error of
 * the disk, before the call and after it. Pairwise. Errors: those of the transport. */
int copies_send(struct pp_transport *tp, int to, const char *folder, int *out_rc);
int copies_take(struct pp_transport *tp, int from, const char *folder, int *rc);

/* Returns the error of the last save, with its text on rank 0; NULL: it succeeded, or there was no
 * save. */
const struct pp_error *saver_error(const struct saver *s);

#endif
