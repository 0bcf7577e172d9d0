/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory: where a run leaves what it did. */
#ifndef PPCLI_TRAIN_RUN_DIR_H
#define PPCLI_TRAIN_RUN_DIR_H

#include <stdbool.h>

#include "ppcli/config.h"

/*
 * Make the directory that run.dir names and write config.resolved.ini into it.
 *   ""      nothing is written: dir becomes ""
 *   "auto"  a new one, runs/<name>-<UTC date and time>
 *   else    that one; it must be new or empty unless `overwrite`
 * Errors: PP_ECONFIG (not empty), PP_EPERM, PP_EIO.
 */
int run_dir_create(const struct pp_config *cfg, const char *name, bool overwrite,
                   char dir[PP_PATH_MAX]);

#endif
