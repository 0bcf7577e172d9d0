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

/* ---- lock */

/* One process at a time: the lock of a run folder. The kernel lets go of it when its holder dies.
 */

#define PP_LOCK_NAME ".lock"

struct pp_lock {
    int fd; /* < 0: not held */
    char path[PP_PATH_MAX];
    int64_t since_ns; /* when it was taken, by the clock that dates the files beside it */
};

#define PP_LOCK_NONE                                                                               \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/*
 * Take the lock of a run folder. Of MPI ranks only one may ask. What a dead process left is taken over
 * without a word to the user. Where the file system knows no locks, a warning is all.
 * Errors: PP_ERESOURCE when another process holds it, naming its number and host; PP_ECONFIG (the folder is
 * within the checkpoints of a run); PP_EPERM, PP_EIO.
 */
int pp_lock_take(const char *dir, struct pp_lock *out);
/* Before something is written under the folder's name: does it name the folder whose lock this is? It was
 * moved, or another run has it, where not: PP_EIO. Errors: those of pp_path_stat(), too. */
int pp_lock_check(const struct pp_lock *l);
void pp_lock_release(struct pp_lock *l); /* accepts one that is not held */

/* ---- run dir */

/* The run directory: where a run leaves what it did. */

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

/* ---- checkpoint */

/*
 * Checkpoints. One is a folder step-00001200 that holds, for each rank of a pipeline, a safetensors
 * file with what the rank owns, config.ini, state.json, and MANIFEST with the size and SHA-256 of
 * all of them. It is written under another name and renamed when everything in it is durable, so a
 * folder of that name is whole, or was damaged later, which the digests tell. Tensors are found by
 * name in whichever file they are: what one cut of the model wrote, any other cut reads.
 *
 *   layers.0.weight              as PyTorch names them, [out, in]
 *   optimizer.m.layers.0.weight  first moment or momentum; optimizer.v.*: second moment
 */

#define PP_CKPT_VERSION 1
#define PP_CKPT_DIR "checkpoints" /* in the run folder */
#define PP_CKPT_PARTS_MAX 9999
#define PP_CKPT_NUMBERS_MAX 64
#define PP_CKPT_TEXT_MAX 256

/* Everything besides tensors and config that the next step depends on, or its report. */
struct pp_ckpt_state {
    int64_t step;        /* optimizer steps done since the start of the run */
    int64_t epoch;       /* the running one, from 1 */
    int64_t epoch_steps; /* the data cursor: steps done in it */
    int64_t samples;     /* trained on since the start */
    uint64_t seed;
    char config_hash[PP_SHA256_HEX];    /* pp_config_hash() */
    char fingerprint[PP_CKPT_TEXT_MAX]; /* what bits depend on besides: backend, kernels, data */
    char ppcli[PP_CKPT_TEXT_MAX];       /* version that wrote it */
    char
        *vocabulary; /* of a text: all characters in the order of their tokens, UTF-8; NULL: none */
    /* What --allow changed so far: lines of step, key, old and new value with tabs between them, as
     * train/differences.c makes them; NULL: nothing. */
    char *changes;
    /* Running sums of the metrics: kept to the last bit; finite. */
    int n_numbers;
    struct pp_ckpt_number {
        char name[32]; /* [A-Za-z0-9._-] */
        double value;
    } numbers[PP_CKPT_NUMBERS_MAX];
};

/* Set or add a number; running past the table is a broken invariant. */
void pp_ckpt_set(struct pp_ckpt_state *s, const char *name, double value);
double pp_ckpt_get(const struct pp_ckpt_state *s, const char *name, double otherwise);

/* --- saving ------------------------------------------------------------------------------------
 *
 * rank 0   pp_ckpt_begin()       makes the folder; the save then goes to all ranks as plain bytes
 * each     pp_ckpt_write_part()  its file; the part then goes to rank 0 as plain bytes
 * rank 0   pp_ckpt_commit()      only now it is saved; or, when a rank failed, pp_ckpt_abandon()
 * rank 0   pp_ckpt_prune()
 *
 * Nothing here communicates. All changes of the disk go through `io`. Errors: PP_EIO, PP_EPERM, ...
 * naming path and action; the checkpoints that were there before stay untouched.
 */

struct pp_ckpt_save {
    int64_t step;
    char config_hash[PP_SHA256_HEX];
    char dir[PP_PATH_MAX];    /* the folder of checkpoints */
    char folder[PP_PATH_MAX]; /* of this one, under its temporary name */
};

struct pp_ckpt_part {
    int32_t index, count; /* of the pipeline's ranks */
    int64_t tensors;
    uint64_t bytes;
    uint8_t sha256[PP_SHA256_BYTES];
};

/* `dir` is made when it is missing (its parent is not). bytes: about what will be written, refused
 * when the disk has less; 0 when unknown. */
int pp_ckpt_begin(const struct pp_io *io, const char *dir, int64_t step, const char *config_hash,
                  uint64_t bytes, struct pp_ckpt_save *out);

/* The file of rank `index` of `count`. No two ranks may write tensors of one name. */
int pp_ckpt_write_part(const struct pp_io *io, const struct pp_ckpt_save *save, int index,
                       int count, const struct pp_st_item *items, int n, struct pp_ckpt_part *out);

/*
 * Write config.ini, state.json and MANIFEST, flush, and give the folder its name. A checkpoint of
 * the same step that is there is replaced. parts[n]: of all ranks, in any order. state->step and
 * ->config_hash are those of the save. After a failure there is nothing left to abandon; when only
 * the last flush failed, the checkpoint is there but may not outlive a power failure.
 */
int pp_ckpt_commit(const struct pp_io *io, const struct pp_ckpt_save *save,
                   const struct pp_ckpt_state *state, const char *config,
                   const struct pp_ckpt_part *parts, int n);

/* The same of a folder with the files of a checkpoint that is whole elsewhere. */
int pp_ckpt_adopt(const struct pp_io *io, const struct pp_ckpt_save *save);

/* Remove what was written, as far as it goes; keeps the error record. */
void pp_ckpt_abandon(const struct pp_io *io, const struct pp_ckpt_save *save);

/* Of the checkpoints after `since` and up to `step`, keep the newest `keep` >= 1 and remove the others. */
int pp_ckpt_prune(const struct pp_io *io, const char *dir, int keep, int64_t since, int64_t step);

/* Remove checkpoints of later steps than `step`: the future that a run leaves when it resumes from
 * an older checkpoint, and which must not be found as the latest. */
int pp_ckpt_drop_newer(const struct pp_io *io, const char *dir, int64_t step);

/* Remove what killed processes left behind: *.tmp-PID and .trash-* that are not newer than
 * since_ns (CLOCK_REALTIME, see pp_lock). Called with the run folder's lock held. */
int pp_ckpt_sweep(const struct pp_io *io, const char *dir, int64_t since_ns);

/* ---- reading */

enum pp_ckpt_check {
    PP_CKPT_STRUCTURE, /* MANIFEST, state and headers; what others have verified */
    PP_CKPT_VERIFY,    /* the digest of every file too: reads all of it */
};

/* An open checkpoint; immutable: threads may share it. */
struct pp_ckpt {
    char *path;
    bool plain;                 /* safetensors files alone: no state, no config */
    struct pp_ckpt_state state; /* through pp_ckpt_state() */
    char *config;               /* text; NULL: plain */
    struct pp_st_file **parts;  /* [n_parts] safetensors files, those not opened NULL */
    int n_parts;
    struct pp_ckpt_entry {
        const struct pp_st_tensor *t;
        int part;
    } * index; /* [n_tensors], sorted by name with numbers in their order */
    int n_tensors;
    char prefix[64]; /* plain: what all names begin with and the model has not, "module." */
    uint64_t bytes;  /* of all its files */
    int checked;     /* tensors whose bytes were compared with a digest or checksum when opened */
};

/*
 * Open a checkpoint folder, its MANIFEST, one safetensors file (as PyTorch wrote it, or one part),
 * a folder of Hugging Face's with model.safetensors or its index and files, or the newest
 * checkpoint of a folder of checkpoints or of a run folder, as pp_ckpt_open_latest() with
 * fall_back. Under PP_CKPT_VERIFY a safetensors file is checked as far as it carries checksums.
 * Errors: PP_EFORMAT naming the file, and the tensor where the damage lies in one; PP_ENOINPUT,
 * PP_EPERM, PP_EIO, PP_ERESOURCE.
 */
int pp_ckpt_open(const char *path, enum pp_ckpt_check check, struct pp_ckpt **out);

/*
 * The newest of a folder of checkpoints that opens. One that is damaged is an error; with
 * `fall_back` it is a warning on stderr, and the one before it is tried.
 * Errors: PP_ENOINPUT when there is none; as of pp_ckpt_open().
 */
int pp_ckpt_open_latest(const char *dir, enum pp_ckpt_check check, bool fall_back,
                        struct pp_ckpt **out);
void pp_ckpt_close(struct pp_ckpt **ck);

/*
 * The checkpoints of a run folder or a folder of checkpoints, damaged ones too: their steps, the
 * newest first; none for any other path. Caller pp_free()s *out_steps.
 */
int pp_ckpt_list(const char *path, int64_t **out_steps, int *out_n);
/* The folder of one of them. */
int pp_ckpt_step_path(const char *path, int64_t step, char out[PP_PATH_MAX]);

/* Above 0: a is newer than b; below: older. Of paths that differ in a step, or in the time and number of an
 * automatic run folder; "" is older than all. Local. */
int pp_ckpt_path_order(const char *a, const char *b);

/* Could `path` be a checkpoint at all, whole or damaged? */
bool pp_ckpt_claims(const char *path);

const struct pp_ckpt_state *pp_ckpt_state(const struct pp_ckpt *ck); /* NULL: plain safetensors */

/* "; its own config is runs/a/config.resolved.ini", for a message about a model that it does not
 * fit; "" where it has none. Returns out. */
#define PP_CKPT_OWN_CONFIG (PP_PATH_MAX + 64)
const char *pp_ckpt_own_config(const struct pp_ckpt *ck, char out[PP_CKPT_OWN_CONFIG]);

/* Tensor i of the index; *out_file (NULL: not wanted): the name of its file. */
const struct pp_st_tensor *pp_ckpt_tensor(const struct pp_ckpt *ck, int i, const char **out_file);
/* Is it learned? Else it is of the optimizer, or a running statistic of a norm. */
bool pp_ckpt_is_parameter(const struct pp_st_tensor *t);

/* Can a parameter be read from it, by its type? An I64 scalar is a count. */
bool pp_ckpt_is_readable(const struct pp_st_tensor *t);

/* The keys of the model of Hugging Face's that model.from names: struct pp_names' from. */
void pp_hf_config(struct pp_config *cfg, const struct pp_names *names);

/* What other programs load. */
enum pp_export_format {
    PP_EXPORT_HF,   /* model.safetensors and config.json, for from_pretrained() */
    PP_EXPORT_GGUF, /* model.gguf, for llama.cpp */
    PP_EXPORT_ONNX, /* model.onnx, for inference with any number of samples */
    PP_EXPORT_TORCH /* model.safetensors and model.py, which makes the module and loads it */
};

struct pp_model;
struct pp_tokenizer;

struct pp_export {
    const struct pp_ckpt *ck;
    const struct pp_config *cfg; /* of the checkpoint */
    enum pp_export_format format;
    const struct pp_model *model;         /* onnx, torch: of cfg */
    enum pp_st_dtype dtype;               /* gguf: of matrices; F32, F16, BF16 */
    const struct pp_tokenizer *tokenizer; /* gguf; NULL: the checkpoint's characters, if any */
};

/* Write it into the folder `dir`, which is made, or empty. Errors: PP_ECONFIG (a model that the form
 * does not have, a folder that is not empty), as of pp_io.h and of reading. */
int pp_ckpt_export(const struct pp_export *x, const char *dir);

/* What the tokens are, into `dir`: as the checkpoint says it; bytes, and tokens in files, as the config
 * does. Errors: as of reading the vocabulary and of writing. */
int pp_ckpt_export_vocabulary(const struct pp_ckpt *ck, const struct pp_config *cfg,
                              const char *dir, bool *out_any);

/* Look at all values that are floats. *out_left: tensors of floats that are not read, such as F8_E4M3.
 * Errors: PP_ECHECK for the first tensor that has a value that is not finite; as of reading. */
int pp_ckpt_check_values(const struct pp_ckpt *ck, uint64_t *out_looked, int *out_left);

/* ---- weights */

/* Parameters from checkpoints and files: their order there becomes that of memory. */

/* The values of p, which `name` has in the checkpoint: put() gets them in ascending pieces; NULL:
 * only see that they could be read. Local. Errors: those of pp_ckpt_read(), PP_ERESOURCE. */
int pp_weights_read(const struct pp_ckpt *ck, const char *name, const struct pp_param *p,
                    int (*put)(void *ctx, size_t first, const float *values, size_t n), void *ctx);

/* A tensor that the model has no place for (of a checkpoint: a learned one) says that the weights
 * are of one that computes something else, and so does a last layer that is not the embedding where
 * they are tied. Errors: PP_EFORMAT. */
int pp_weights_check_extras(const struct pp_model *m, const struct pp_ckpt *ck);

/* Append "KEY was THERE, is HERE" to text[bytes], a list. */
void pp_weights_difference(char *text, size_t bytes, const char *key, const char *there,
                           const char *here);

/* The keys of [model] with which the same tensors compute something else than where they were
 * trained, which their checkpoint says, or the config.json beside them: refused, or with `warn` said.
 * m: of cfg; only its sizes are of use. Local. Errors: PP_ECONFIG, PP_ERESOURCE. */
int pp_weights_check_model(const struct pp_config *cfg, const struct pp_model *m,
                           const struct pp_ckpt *ck, bool warn);

#endif
