/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/train/train.h that only this module uses. */
#ifndef PPCLI_SRC_TRAIN_TRAIN_H
#define PPCLI_SRC_TRAIN_TRAIN_H

#include "ppcli/train/train.h"

/* Checks that there are as many processes as the config has ranks; tp NULL: ranks will be threads.
 * The same on every rank. Errors: PP_ECONFIG. */
int pp_world_check_size(const struct pp_config *cfg, const struct pp_transport *tp);

#endif
