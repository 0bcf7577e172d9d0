/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of a run: every rank of replica 0 writes what it holds, rank 0 the rest. A save that
 * fails costs nothing but itself: the run goes on, and what was saved before stays.
 */
#ifndef PPCLI_TRAIN_SAVE_H
#define PPCLI_TRAIN_SAVE_H

#include "ppcli/ckpt/checkpoint.h"
#include "ppcli/pipe/exec.h"

struct saver;

/* The name of a tensor in a checkpoint. */
void saver_tensor_name(const struct pp_exec_tensor *t, char out[PP_ST_NAME_MAX + 1]);

struct trainer;

/* For what this rank holds, into the run folder. Local. `tr`, prepared but for the loop, outlives
 * the saver. The caller owns *out. Errors: PP_ERESOURCE, PP_ECONFIG (path too long). */
int saver_create(const struct trainer *tr, struct saver **out);
void saver_destroy(struct saver **s); /* accepts NULL in *s */

/*
 * Collective, between two steps. state: of rank 0, NULL elsewhere. prune: remove the oldest beyond
 * checkpoint.keep. Tensors that are not finite are never saved. Whether it was saved is the same
 * on all ranks. Errors: only those of the transport; rank 0 warns when nothing could be saved.
 */
int saver_save(struct saver *s, int64_t step, const struct pp_ckpt_state *state, bool prune);

/* ---- copies.c: hosts with disks of their own. Nothing is done where all ranks are on one.
 *
 * Collective, with the same verdict on every rank. Errors: of disks, of the transport; PP_ECONFIG. */

/* Before rank 0 looks for a checkpoint: one of another host that is newer becomes rank 0's, too. */
int copies_find(const struct trainer *tr);

/* When tr->begin is known: fill in tr->apart, and bring other disks the checkpoint to begin with. */
int copies_begin(struct trainer *tr);

/* When all ranks have read it: remove from this rank's own disk what the run leaves. Local. */
int copies_tidy(const struct trainer *tr);

/* Rank 0's checkpoint in folder `path` to the first `hosts` hosts apart; -1: to all that lack it. */
int copies_give(const struct trainer *tr, const char *path, int hosts);

/* All files of a folder into one that is there; *rc: of the disk, before and after. Pairwise.
 * Errors: of the transport. */
int copies_send(struct pp_transport *tp, int to, const char *folder, int *out_rc);
int copies_take(struct pp_transport *tp, int from, const char *folder, int *rc);

/* What was wrong with the last save, rank 0 has the text; NULL: it is there, or none was tried. */
const struct pp_error *saver_error(const struct saver *s);

#endif
