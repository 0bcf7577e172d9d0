/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a run and its checkpoints. */
#ifndef PPCLI_CKPT_CHECKPOINT_H
#define PPCLI_CKPT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/base/files.h"
#include "ppcli/ckpt/safetensors.h"
#include "ppcli/conf/config.h"
#include "ppcli/nn/model.h"

struct pp_st_file;

/* ---- locks */

/* The lock of a run folder: one process at a time. The kernel releases it when its holder dies. */

#define PP_LOCK_NAME ".lock"

struct pp_lock {
    int fd; /* < 0: not held */
    char path[PP_PATH_MAX];
    int64_t since_ns; /* time of locking, by the clock that dates files in the folder */
};

#define PP_LOCK_NONE                                                                               \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Takes the lock of a run folder. Only one MPI rank may call it. The lock of a dead process is
 * taken over silently. If the file system has no locks, there is only a warning. Errors:
 * PP_ERESOURCE when another process holds it, with its pid and host; PP_ECONFIG (the folder is
 * within the checkpoints of a run); PP_EPERM, PP_EIO. */
int pp_lock_take(const char *dir, struct pp_lock *out);
/* Checks that the folder's name still names the locked folder, before something is written under
 * that name. Errors: PP_EIO if the folder was moved or another run has the name; those of
 * pp_path_stat(). */
int pp_lock_check(const struct pp_lock *l);
void pp_lock_release(struct pp_lock *l); /* accepts a lock that is not held */

/* ---- run folders */

/* The run folder: the files that a run leaves. */

#define PP_RUN_DIR_ACTIONS "actions" /* folder of the ranks' rings */
#define PP_RUN_DIR_CONFIG "config.resolved.ini"

/*
 * Creates the folder that run.dir names, takes its lock and makes an empty folder for the rings. A
 * new folder gets config.resolved.ini; of an earlier run only its rings and hang.txt are removed.
 *   ""      nothing is written: dir becomes ""
 *   "auto"  a new folder, runs/<name>-<UTC date and time>
 *   else    that folder; it must be new or empty unless `overwrite`
 * The caller must release *lock, also after a failure. Errors: PP_ECONFIG (not empty), PP_ERESOURCE
 * (in use), PP_EPERM, PP_EIO.
 */
int pp_run_dir_create(const struct pp_config *cfg, const char *name, bool overwrite,
                      struct pp_lock *lock, char dir[PP_PATH_MAX]);

/* Makes an empty folder for the rings of a run, also of a run that is continued. Errors: PP_EPERM,
 * PP_EIO. */
int pp_run_dir_empty_rings(const char *dir);

/* Removes the results of an earlier run from the folder (goes_on: only what a finished run leaves),
 * and writes config.resolved.ini. Call it when the run has read all its inputs. Errors: PP_EPERM,
 * PP_EIO. */
int pp_run_dir_begin(const struct pp_config *cfg, const char *dir, bool goes_on,
                     const struct pp_lock *lock);

/* Makes the folder name of run.dir = auto for this time. Errors: PP_ECONFIG (too long). */
int pp_run_dir_name(const char *name, char out[PP_PATH_MAX]);

/* The next functions fail if a folder cannot be read, with the errors of pp_path_stat(); this is
 * never taken for "does not exist". */

/* Finds the newest automatic run folder of this config's name that has a checkpoint; `out` is "" if
 * there is none. */
int pp_run_dir_newest(const char *name, char out[PP_PATH_MAX]);

/* Finds the config in a run folder or in one of its checkpoints; `out` is "" if there is none. */
int pp_run_dir_config(const char *path, char out[PP_PATH_MAX]);

/* Finds the run folder to which a path belongs: the path itself, or the run folder of a checkpoint
 * or of a folder of checkpoints; `out` is "" if there is none. */
int pp_run_dir_of(const char *path, char out[PP_PATH_MAX]);

/* Formats the path of the ring file of a rank. Errors: PP_ECONFIG (the path is too long). */
int pp_run_dir_ring(const char *dir, int rank, char out[PP_PATH_MAX]);

/* ---- checkpoints */

/*
 * Checkpoints. A checkpoint is a folder step-00001200 that holds, for each rank of a pipeline, a
 * safetensors file with the tensors that the rank owns, config.ini, state.json, and MANIFEST with
 * the size and SHA-256 of all of them. It is written under another name and renamed when all its
 * files are durable, so a folder of that name is complete, or was damaged later, which the digests
 * show. Tensors are found by name in any of the files, so a checkpoint of one cut of the model can
 * be read with any other cut.
 *
 *   layers.0.weight              as PyTorch names them, [out, in]
 *   optimizer.m.layers.0.weight  first moment or momentum; optimizer.v.*: second moment
 */

#define PP_CKPT_VERSION 1
#define PP_CKPT_DIR "checkpoints" /* in the run folder */
#define PP_CKPT_PARTS_MAX 9999
#define PP_CKPT_BEST "best" /* in PP_CKPT_DIR: a link to the best checkpoint */
#define PP_CKPT_NUMBERS_MAX 352
#define PP_CKPT_TEXT_MAX 256

/* Everything except tensors and config that the next step, or its report, depends on. */
struct pp_ckpt_state {
    int64_t step;        /* optimizer steps done since the start of the run */
    int64_t epoch;       /* current epoch, from 1 */
    int64_t epoch_steps; /* position in the data: steps done in this epoch */
    int64_t samples;     /* samples trained on since the start */
    uint64_t seed;
    char config_hash[PP_SHA256_HEX];    /* pp_config_hash() */
    char fingerprint[PP_CKPT_TEXT_MAX]; /* what else the bits depend on: backend, kernels, data */
    char ppcli[PP_CKPT_TEXT_MAX];       /* version that wrote it */
    char *vocabulary; /* texts: all characters in the order of their tokens, UTF-8; may be NULL */
    char *preprocessing; /* how files become samples, as struct pp_dataset has it; NULL: none */
    /* The changes that --allow made so far: lines of step, key, old and new value, separated by
     * tabs, as train/differences.c makes them; NULL: none. */
    char *changes;
    /* Running sums of the metrics: exact and finite. */
    int n_numbers;
    struct pp_ckpt_number {
        char name[32]; /* [A-Za-z0-9._-] */
        double value;
    } numbers[PP_CKPT_NUMBERS_MAX];
};

/* Sets a number of the state, or adds it if it has none of that name; the table must not
 * overflow. */
void pp_ckpt_set(struct pp_ckpt_state *s, const char *name, double value);
double pp_ckpt_get(const struct pp_ckpt_state *s, const char *name, double otherwise);

/*
 * --- saving ------------------------------------------------------------------------------------
 *
 * rank 0   pp_ckpt_begin()       makes the folder; the save is then sent to all ranks as plain
 * bytes each     pp_ckpt_write_part()  its file; the part is then sent to rank 0 as plain bytes
 * rank 0   pp_ckpt_commit()      only now it is saved; or, when a rank failed, pp_ckpt_abandon()
 * rank 0   pp_ckpt_mark_best(), pp_ckpt_prune()
 *
 * These functions do not communicate. All changes of the disk go through `io`. Errors: PP_EIO,
 * PP_EPERM, ... naming path and action; earlier checkpoints stay untouched.
 */

struct pp_ckpt_save {
    int64_t step;
    char config_hash[PP_SHA256_HEX];
    char dir[PP_PATH_MAX];    /* the folder of checkpoints */
    char folder[PP_PATH_MAX]; /* the folder of this checkpoint, under its temporary name */
};

struct pp_ckpt_part {
    int32_t index, count; /* ranks of the pipeline */
    int64_t tensors;
    uint64_t bytes;
    uint8_t sha256[PP_SHA256_BYTES];
};

/* Begins a save. `dir` is created if it does not exist (its parent is not). `bytes` estimates how
 * much will be written, which is refused if the disk has less; 0 means unknown. */
int pp_ckpt_begin(const struct pp_io *io, const char *dir, int64_t step, const char *config_hash,
                  uint64_t bytes, struct pp_ckpt_save *out);

/* Writes the file of part `index` of `count`, which one rank has. No two ranks may write tensors of
 * the same name. */
int pp_ckpt_write_part(const struct pp_io *io, const struct pp_ckpt_save *save, int index,
                       int count, const struct pp_st_item *items, int n, struct pp_ckpt_part *out);

/* Writes config.ini, state.json and MANIFEST, flushes, and renames the folder. A checkpoint of the
 * same step is replaced. parts[n] are those of all ranks, in any order. state->step and
 * ->config_hash are those of the save. After a failure nothing needs to be abandoned; if only the
 * last flush failed, the checkpoint exists but may not survive a power failure. */
int pp_ckpt_commit(const struct pp_io *io, const struct pp_ckpt_save *save,
                   const struct pp_ckpt_state *state, const char *config,
                   const struct pp_ckpt_part *parts, int n);

/* Flushes and renames the folder as pp_ckpt_commit() does, if it has the files of a checkpoint that
 * is complete elsewhere. */
int pp_ckpt_adopt(const struct pp_io *io, const struct pp_ckpt_save *save);

/* Removes what the save has written, as far as possible; keeps the error record. */
void pp_ckpt_abandon(const struct pp_io *io, const struct pp_ckpt_save *save);

/* Points the link PP_CKPT_BEST to the checkpoint of a step, or removes the link if that checkpoint
 * does not exist. *out_marked tells whether the link points to it; out_marked may be NULL. */
int pp_ckpt_mark_best(const struct pp_io *io, const char *dir, int64_t step, bool *out_marked);

/* Removes the checkpoints after step `since` and up to `step`, except the newest `keep` >= 1 of
 * them and the one to which PP_CKPT_BEST points. */
int pp_ckpt_prune(const struct pp_io *io, const char *dir, int keep, int64_t since, int64_t step);

/* Removes the checkpoints of steps after `step`, because a run that resumes from an older
 * checkpoint must not find them as the latest. */
int pp_ckpt_drop_newer(const struct pp_io *io, const char *dir, int64_t step);

/* Removes the files that killed processes left: *.tmp-PID and .trash-* that are not newer than
 * since_ns (CLOCK_REALTIME, see struct pp_lock). Call it with the run folder's lock held. */
int pp_ckpt_sweep(const struct pp_io *io, const char *dir, int64_t since_ns);

/* ---- reading */

enum pp_ckpt_check {
    PP_CKPT_STRUCTURE, /* check MANIFEST, state and headers; for files that were verified before */
    PP_CKPT_VERIFY,    /* also check the digest of every file, which reads all of it */
};

/* An open checkpoint; immutable: threads may share it. */
struct pp_ckpt {
    char *path;
    bool plain;                 /* only safetensors files: no state, no config */
    struct pp_ckpt_state state; /* read with pp_ckpt_state() */
    char *config;               /* text of the config; NULL: plain */
    struct pp_st_file **parts;  /* [n_parts] safetensors files; NULL: not opened */
    int n_parts;
    struct pp_ckpt_entry {
        const struct pp_st_tensor *t;
        int part;
    } * index; /* [n_tensors], sorted by name with numbers in their order */
    int n_tensors;
    char prefix[64]; /* plain: common prefix of all names that the model does not have, "module." */
    uint64_t bytes;  /* bytes of all its files */
    int checked;     /* tensors whose digest or checksum was verified on opening */
};

/*
 * Opens a checkpoint folder, its MANIFEST, one safetensors file (as PyTorch wrote it, or one part),
 * a folder of Hugging Face's with model.safetensors or its index and files, or the newest
 * checkpoint of a folder of checkpoints or of a run folder, as pp_ckpt_open_latest() with
 * fall_back. Under PP_CKPT_VERIFY a safetensors file is checked as far as it has checksums. Errors:
 * PP_EFORMAT naming the file, and the tensor if one is damaged; PP_ENOINPUT, PP_EPERM, PP_EIO,
 * PP_ERESOURCE.
 */
int pp_ckpt_open(const char *path, enum pp_ckpt_check check, struct pp_ckpt **out);

/* Opens the newest checkpoint of a folder of checkpoints. A damaged one is an error; with
 * `fall_back` it is a warning on stderr, and the one before it is tried. Errors: PP_ENOINPUT when
 * there is no checkpoint; those of pp_ckpt_open(). */
int pp_ckpt_open_latest(const char *dir, enum pp_ckpt_check check, bool fall_back,
                        struct pp_ckpt **out);
void pp_ckpt_close(struct pp_ckpt **ck);

/* Lists the steps of the checkpoints, also of damaged ones, in a run folder or a folder of
 * checkpoints, the newest first. The list is empty for any other path. The caller frees *out_steps
 * with pp_free(). */
int pp_ckpt_list(const char *path, int64_t **out_steps, int *out_n);
/* Formats the path of the checkpoint of a step in a run folder or a folder of checkpoints. */
int pp_ckpt_step_path(const char *path, int64_t step, char out[PP_PATH_MAX]);

/* Compares the paths of two checkpoints. Returns a number above 0 if a is newer than b, below 0 if
 * it is older. The paths differ in a step, or in the time and number of an automatic run folder; ""
 * is older than all. Local. */
int pp_ckpt_path_order(const char *a, const char *b);

/* Returns whether `path` looks like a checkpoint, complete or damaged. */
bool pp_ckpt_claims(const char *path);

const struct pp_ckpt_state *pp_ckpt_state(const struct pp_ckpt *ck); /* NULL: plain safetensors */

/* Formats "; its own config is runs/a/config.resolved.ini", for a message about a model that it
 * does not fit; "" if it has none. Returns out. */
#define PP_CKPT_OWN_CONFIG (PP_PATH_MAX + 64)
const char *pp_ckpt_own_config(const struct pp_ckpt *ck, char out[PP_CKPT_OWN_CONFIG]);

/* Returns tensor i of the index. *out_file, which may be NULL, gets the name of its file. */
const struct pp_st_tensor *pp_ckpt_tensor(const struct pp_ckpt *ck, int i, const char **out_file);
/* Returns whether the tensor is learned. Other tensors belong to the optimizer, or are running
 * statistics of a norm. */
bool pp_ckpt_is_parameter(const struct pp_st_tensor *t);

/* Returns whether a parameter can be read from a tensor of this type. An I64 scalar is a count. */
bool pp_ckpt_is_readable(const struct pp_st_tensor *t);

/* Sets the keys of [model] to those of the Hugging Face model that model.from names; it is the
 * function `from` of struct pp_names. */
void pp_hf_config(struct pp_config *cfg, const struct pp_names *names);

/* Formats that other programs load. */
enum pp_export_format {
    PP_EXPORT_HF,    /* model.safetensors and config.json, for from_pretrained() */
    PP_EXPORT_GGUF,  /* model.gguf, for llama.cpp */
    PP_EXPORT_ONNX,  /* model.onnx, for inference with any number of samples */
    PP_EXPORT_TORCH, /* model.safetensors and model.py, which makes the module and loads them */
    PP_EXPORT_PT2    /* the PyTorch program that was trained, with the weights: a file */
};

struct pp_model;
struct pp_tokenizer;

struct pp_export {
    const struct pp_ckpt *ck;
    const struct pp_config *cfg; /* config of the checkpoint */
    enum pp_export_format format;
    const struct pp_model *model;         /* onnx, torch, pt2: model of cfg */
    enum pp_st_dtype dtype;               /* gguf: type of matrices; F32, F16, BF16 */
    const struct pp_tokenizer *tokenizer; /* gguf; NULL: the checkpoint's characters, if any */
};

/* Writes the export into the folder `path`, which is created or empty, or as the file `path`, which
 * does not exist. Errors: PP_ECONFIG (a model that the format does not support, a folder that is not
 * empty), those of pp_io_*() and of reading. */
int pp_ckpt_export(const struct pp_export *x, const char *path);

/* Writes the vocabulary into `dir`: that of the checkpoint or, for bytes and for files of tokens,
 * the one that the config defines. *out_any tells whether there was one. Errors: those of reading
 * the vocabulary and of writing. */
int pp_ckpt_export_vocabulary(const struct pp_ckpt *ck, const struct pp_config *cfg,
                              const char *dir, bool *out_any);

/* Checks that all values of float tensors are finite. *out_left is the number of float tensors that
 * cannot be read, such as F8_E4M3. Errors: PP_ECHECK for the first tensor with a value that is not
 * finite; those of reading. */
int pp_ckpt_check_values(const struct pp_ckpt *ck, uint64_t *out_looked, int *out_left);

enum pp_ckpt_missing {
    PP_CKPT_NOT_IN_FIRST = 1,
    PP_CKPT_NOT_IN_SECOND,
    PP_CKPT_OTHER_SHAPE
};

/* The result of a comparison of two checkpoints. */
struct pp_ckpt_difference {
    int tensors;                   /* tensors that differ; 0: all are equal, bit by bit */
    char name[PP_ST_NAME_MAX];     /* the first of them, and what is known of it: */
    enum pp_ckpt_missing missing;  /* 0: both have it */
    uint64_t values, elements;     /* values that differ, of all */
    uint64_t first;                /* the first of them */
    char place[PP_ST_SHAPE_BYTES]; /* the same as "[1,7]" */
    float was, is;                 /* in the first and in the second checkpoint */
};

/* Compares all tensors of floats, also those of the optimizer, by their names. Errors: those of
 * reading, PP_ERESOURCE. Local. */
int pp_ckpt_compare(const struct pp_ckpt *a, const struct pp_ckpt *b,
                    struct pp_ckpt_difference *out);

/* ---- weights */

/* Reads parameters from checkpoints and files, and converts their order to that of memory. */

/* Reads the values of parameter p, which is called `name` in the checkpoint, and passes them to
 * put() in ascending pieces. If `put` is NULL it only checks that they can be read. Local. Errors:
 * those of pp_ckpt_read(), PP_ERESOURCE. */
int pp_weights_read(const struct pp_ckpt *ck, const char *name, const struct pp_param *p,
                    int (*put)(void *ctx, size_t first, const float *values, size_t n), void *ctx);

/* Refuses tensors that the model does not have (in a checkpoint: learned tensors), because the
 * weights then belong to a different model. Also refuses a last layer that differs from the
 * embedding if the two are tied. With new_head, the last layer may differ (pp_weights_lack()), and
 * the file may have another one under a name of its own. Errors: PP_EFORMAT. */
int pp_weights_check_extras(const struct pp_model *m, const struct pp_ckpt *ck, bool new_head);

/* Returns whether parameter i belongs to the last layer, and the weights have no tensor of its name
 * or one with another number of outputs: training begins with a new last layer. */
bool pp_weights_lack(const struct pp_model *m, const struct pp_ckpt *ck, int i);

/* Logs that a model of pp_weights_check_extras() has these weights, and which tensors are new. */
void pp_weights_announce(const struct pp_model *m, const struct pp_ckpt *ck, bool new_head);

/* Appends "KEY was THERE, is HERE" to the list in text[bytes]. */
void pp_weights_difference(char *text, size_t bytes, const char *key, const char *there,
                           const char *here);

/* Compares the keys of [model] with those of the training, which are in the checkpoint or in the
 * config.json of its folder. Refuses differences with which the same tensors compute something
 * else; with `warn` it only warns. `m` is the model of cfg; only its sizes are used. Local. Errors:
 * PP_ECONFIG, PP_ERESOURCE. */
int pp_weights_check_model(const struct pp_config *cfg, const struct pp_model *m,
                           const struct pp_ckpt *ck, bool warn);

#endif
