/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/train/train.h that only this module uses. */
#ifndef PPCLI_SRC_TRAIN_TRAIN_H
#define PPCLI_SRC_TRAIN_TRAIN_H

#include "ppcli/train/train.h"

/* Checks that there are as many processes as the config has ranks; tp NULL: ranks will be threads.
 * The same on every rank. Errors: PP_ECONFIG. */
int pp_world_check_size(const struct pp_config *cfg, const struct pp_transport *tp);

struct pp_backend;
struct pp_chunk;
struct pp_ckpt;

/* Reads the weights of a chunk that has all layers of its model. Local. Errors: those of
 * pp_weights_read() and of the backend. */
int chunk_read_weights(const struct pp_ckpt *ck, struct pp_chunk *chunk, struct pp_backend *be);

struct pp_dataset;

/* Makes pictures, rows or texts of the worst mistakes, as JSON. Local. Errors: PP_ERESOURCE, those of
 * pp_dataset_vocabulary(). */
int mistakes_show(const struct pp_config *cfg, const struct pp_dataset *ds, struct pp_outcome *o);

#endif
