/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory: where a run leaves what it did. */
#ifndef PPCLI_RUN_DIR_H
#define PPCLI_RUN_DIR_H

#include "ppcli/config.h"
#include "ppcli/lock.h"

#define PP_RUN_DIR_ACTIONS "actions" /* folder of the ranks' rings */
#define PP_RUN_DIR_CONFIG "config.resolved.ini"

/*
 * Make the directory that run.dir names, take its lock, write config.resolved.ini into it and make
 * an empty folder for the rings. What an earlier run left there of its rings, its checkpoints and
 * of a hang is removed.
 *   ""      nothing is written: dir becomes ""
 *   "auto"  a new one, runs/<name>-<UTC date and time>
 *   else    that one; it must be new or empty unless `overwrite`
 * *lock is the caller's to release, also after a failure.
 * Errors: PP_ECONFIG (not empty), PP_ERESOURCE (in use), PP_EPERM, PP_EIO.
 */
int pp_run_dir_create(const struct pp_config *cfg, const char *name, bool overwrite,
                      struct pp_lock *lock, char dir[PP_PATH_MAX]);

/* What "auto" makes of a name now. Errors: PP_ECONFIG (too long). */
int pp_run_dir_name(const char *name, char out[PP_PATH_MAX]);

/* The run in dir goes on, its lock is held: remove what only a finished one has, the rings of the
 * process before, and write config.resolved.ini. Errors: PP_EPERM, PP_EIO. */
int pp_run_dir_continue(const struct pp_config *cfg, const char *dir);

/* Has a run been in this folder before? */
bool pp_run_dir_is_one(const char *dir);

/* Is it a run folder, or a folder of checkpoints, that has some? */
bool pp_run_dir_has_checkpoints(const char *path);

/* The newest automatic run folder of this config's name that has a checkpoint. */
bool pp_run_dir_newest(const char *name, char out[PP_PATH_MAX]);

/* The config in a run folder, or in one of its checkpoints; false where there is none. */
bool pp_run_dir_config(const char *path, char out[PP_PATH_MAX]);

/* The run folder that a path into it belongs to: itself, its checkpoints, one of them. */
bool pp_run_dir_of(const char *path, char out[PP_PATH_MAX]);

/* The ring file of a rank. Errors: PP_ECONFIG (the path is too long). */
int pp_run_dir_ring(const char *dir, int rank, char out[PP_PATH_MAX]);

#endif
