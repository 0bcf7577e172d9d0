/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory: where a run leaves what it did. */
#ifndef PPCLI_RUN_DIR_H
#define PPCLI_RUN_DIR_H

#include "ppcli/config.h"
#include "ppcli/lock.h"

#define PP_RUN_DIR_ACTIONS "actions" /* folder of the ranks' rings */
#define PP_RUN_DIR_CONFIG "config.resolved.ini"

/*
 * Make the directory that run.dir names, take its lock and make an empty folder for the rings. Into
 * a new folder config.resolved.ini is written; of an earlier run nothing but its rings and hang.txt
 * is removed.
 *   ""      nothing is written: dir becomes ""
 *   "auto"  a new one, runs/<name>-<UTC date and time>
 *   else    that one; it must be new or empty unless `overwrite`
 * *lock is the caller's to release, also after a failure.
 * Errors: PP_ECONFIG (not empty), PP_ERESOURCE (in use), PP_EPERM, PP_EIO.
 */
int pp_run_dir_create(const struct pp_config *cfg, const char *name, bool overwrite,
                      struct pp_lock *lock, char dir[PP_PATH_MAX]);

/* Make an empty folder for the rings of a run that goes on, too. Errors: PP_EPERM, PP_EIO. */
int pp_run_dir_empty_rings(const char *dir);

/* When all that the run begins with has been read: remove what an earlier run left in the folder (goes_on:
 * only what a finished one has), and write config.resolved.ini. Errors: PP_EPERM, PP_EIO. */
int pp_run_dir_begin(const struct pp_config *cfg, const char *dir, bool goes_on,
                     const struct pp_lock *lock);

/* What "auto" makes of a name now. Errors: PP_ECONFIG (too long). */
int pp_run_dir_name(const char *name, char out[PP_PATH_MAX]);

/* What follows fails where a folder cannot be looked at, with the errors of pp_path_stat(): "cannot be
 * read" is never taken for "is not there". */

/* The newest automatic run folder of this config's name that has a checkpoint; "": there is none. */
int pp_run_dir_newest(const char *name, char out[PP_PATH_MAX]);

/* The config in a run folder, or in one of its checkpoints; "": there is none. */
int pp_run_dir_config(const char *path, char out[PP_PATH_MAX]);

/* The run folder that a path into it belongs to: itself, its checkpoints, one of them; "": none. */
int pp_run_dir_of(const char *path, char out[PP_PATH_MAX]);

/* The ring file of a rank. Errors: PP_ECONFIG (the path is too long). */
int pp_run_dir_ring(const char *dir, int rank, char out[PP_PATH_MAX]);

#endif
