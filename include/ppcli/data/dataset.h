/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets and the loading of micro-batches. */
#ifndef PPCLI_DATA_DATASET_H
#define PPCLI_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "ppcli/conf/config.h"
#include "ppcli/dev/kernels.h"

/* ---- source */

/* The text of a file, plain or gzip. */

/* All of a file, inflated, with a NUL after it; pp_free(). Errors: PP_ENOINPUT, PP_EPERM, PP_EIO,
 * PP_EFORMAT (no regular file, empty, more than 1 GiB), PP_ERESOURCE. Local. */
int pp_source_text(const char *path, char **out, size_t *out_bytes);

/* ---- dataset */

/*
 * Data sets: labelled rows of bytes or floats, read whole and checked strictly before training
 * starts; or texts, rows of tokens that samples are windows of. The loader hands out which rows
 * belong to a batch; it knows no pipeline.
 */

#define PP_REMARKS_MAX 4
#define PP_REMARK_BYTES 384

enum pp_split {
    PP_SPLIT_TRAIN,
    PP_SPLIT_TEST
};

/* Which halves a rank needs: the first stage images, the last stage labels. */
enum pp_data_parts {
    PP_DATA_IMAGES = 1,
    PP_DATA_LABELS = 2
};

struct pp_dataset {
    const char *name;
    int n;                   /* samples */
    struct pp_shape shape;   /* of a sample: 28 x 28 x 1; of a table's row: flat */
    struct pp_shape input;   /* what the model gets: after data.resize */
    int features;            /* values of what the model gets: 784 */
    int classes;             /* labels are 0..classes-1 */
    enum pp_element element; /* type of a sample's values */
    size_t stride;           /* values from one sample to the next: as many as it has, but ... */
    bool windows;    /* ... a text is one row of tokens, and the target of each is the next */
    int apart;       /* from a window's first token to its first target: 1, or as many as it has */
    uint64_t starts; /* training: a sample is a window from a random one of these */
    int vocabulary;  /* of texts: different tokens; 0: not known */
    bool subwords;   /* they are of a tokenizer, of which a model may have more */
    int64_t ignored; /* 1 + the token that as a target has no loss; 0: none */
    bool unchecked;  /* tokens may be anything: pp_dataset_windows() looks at them */
    struct pp_mapping *map;       /* images lie in this file's mapping; NULL: in their own block */
    size_t map_first;             /* where its tokens begin */
    struct pp_token_check *check; /* looks at all tokens of the mapping; owned; NULL: none does */
    float scale;                  /* a value times this is 0..1 if it is a pixel */
    struct pp_scaling scaling;    /* makes values the model's input: scale, data.mean, data.std */
    uint8_t *images;     /* [n][shape] elements, or all tokens; NULL when not asked for; owned */
    uint8_t *labels;     /* [n], NULL when not asked for; owned */
    uint32_t *lengths;   /* [n] tokens before the padding, model.mask_padding; or NULL; owned */
    char *columns;       /* a header's names but the label's, a '\n' after each; or NULL; owned */
    uint32_t images_crc; /* CRC-32 of all image bytes of the file, 0 when not read */
    uint32_t labels_crc;
    char origin[PP_PATH_MAX]; /* the folder or file, or "made from the seed" */
    int n_remarks;            /* what a person should know before training with it */
    char remarks[PP_REMARKS_MAX][PP_REMARK_BYTES];
};

struct pp_dataset_info { /* what can be known without opening a file */
    const char *name;
    const char *help;
    enum pp_element element;   /* as in struct pp_dataset */
    struct pp_shape shape;     /* n 0: that of the files, or of the model */
    int classes;               /* 0: as shape; of a text: kinds of characters */
    int train_n, test_n;       /* 0: unknown before opening, or by config */
    bool windows;              /* as in struct pp_dataset */
    bool mapped;               /* its files stay files, which others may change meanwhile */
    bool pairs;                /* windows have targets of their own after them */
    const char *fetch_command; /* "ppcli download fashion-mnist", NULL: none */
};

const char *const *pp_dataset_names(void); /* of datasets.def, NULL-terminated */
const struct pp_dataset_info *pp_dataset_info(const char *name);

/*
 * Open a split of cfg's data set. parts: enum pp_data_parts bits. model_input/model_classes: the
 * model's ends, which the data must fit (PP_ECONFIG when not).
 * Errors: PP_ENOINPUT with the command that fetches it; PP_EFORMAT for anything that is not
 * exactly what it claims; PP_EIO, PP_EPERM, PP_ERESOURCE. Local. The caller owns *out.
 */
int pp_dataset_open(const struct pp_config *cfg, enum pp_split split, int parts,
                    const struct pp_shape *model_input, int model_classes, struct pp_dataset **out);
void pp_dataset_destroy(struct pp_dataset **ds);

/* What makes the model's input x[rows][features] and the targets[rows][..] of these samples; data:
 * images and labels where a kernel can read them. */
struct pp_gather pp_dataset_gather(const struct pp_dataset *ds, const void *data, int rows,
                                   const uint32_t *index, float *x);
struct pp_targets pp_dataset_targets(const struct pp_dataset *ds, const void *data, int rows,
                                     const uint32_t *index, int32_t *targets);

/* Wait so many seconds for what pp_dataset_open() began: the look at all tokens of mapped files. Of
 * both splits; NULL is ready. Errors: PP_EFORMAT (a token that the model has not). Any number of
 * threads. Local. */
int pp_dataset_ready(const struct pp_dataset *const data[2], int seconds, bool *out_ready);

/* Of windows: the tokens of these samples up to the last target, out[rows][features + apart];
 * out NULL: they are looked at only. Errors: PP_EFORMAT (a token not below `limit`, or the file has
 * changed since it was opened), PP_EIO. */
int pp_dataset_windows(const struct pp_dataset *ds, int rows, const uint32_t *index, int limit,
                       uint32_t *out);

/* Of windows: the targets of these samples that are not ignored. */
int64_t pp_dataset_counted(const struct pp_dataset *ds, int rows, const uint32_t *index);

/* A split without its samples and labels: n, features, shape, classes, scale. Otherwise as
 * pp_dataset_open(). */
int pp_dataset_look(const struct pp_config *cfg, enum pp_split split, struct pp_dataset **out);

/* PP_EFORMAT unless training and test samples have the same shape and, where both have a header, the
 * same columns. */
int pp_dataset_same_shape(const struct pp_dataset *train, const struct pp_dataset *test);

/* Whether the keys that name files are those of the data set, and data.shape is for it. Errors:
 * PP_ECONFIG, by pp_config_problem(). Local. */
int pp_dataset_check_keys(struct pp_config *cfg);

/* rc; PP_ECONFIG of a function here, whose text begins with a key, becomes that key's problem. */
int pp_dataset_blame(struct pp_config *cfg, int rc);

/*
 * What a model gets, as far as it is the data that say it: from the files, or where they are absent
 * from what is known of the data set. shape.n 0: data that are made, in the shape that the model
 * wants; absent files of one's own. Errors: as pp_dataset_look(), but PP_ENOINPUT.
 */
int pp_dataset_input(const struct pp_config *cfg, struct pp_data_input *out);

/* How many samples a split has (for explain): PP_ENOINPUT when absent. */
int pp_dataset_count(const struct pp_config *cfg, enum pp_split split, int *out);

/*
 * Whether config, files and model fit: samples have as many values as the model inputs, in both
 * splits the same shape, and the model has an output for each class. Files that are absent fit.
 * Errors: PP_ECONFIG, by pp_config_problem(); those of pp_dataset_open(). Local.
 */
int pp_dataset_check(struct pp_config *cfg, const struct pp_shape *model_input, int model_classes);

/* The directory of data set `name`: $PPCLI_DATA_DIR/<name>, else ${XDG_DATA_HOME:-~/.local/share}/
 * ppcli/<name>. The same for training and downloading. Errors: PP_ECONFIG (no home). */
int pp_data_dir(const char *name, char out[PP_PATH_MAX]);

/*
 * Which rows make which batch. All values follow from (seed, epoch, n, batch_size) alone.
 * A replica takes a contiguous, balanced share of each batch; the share is cut into balanced
 * micro-batches (sizes differ by at most one, larger first).
 */
struct pp_loader {
    int n, batch_size, replicas, replica, microbatches;
    bool shuffle;
    uint64_t seed;
    uint64_t starts; /* of windows; 0: an epoch has each sample once */
    uint32_t *order; /* [n], owned: the epoch's samples, a permutation or random windows */
};

int pp_loader_create(int n, int batch_size, int replicas, int replica, int microbatches,
                     bool shuffle, uint64_t seed, struct pp_loader **out);
void pp_loader_destroy(struct pp_loader **ld);

/* The same without an order, however many the samples: for questions about counts alone. Owns
 * nothing. */
int pp_loader_shape(int n, int batch_size, int replicas, int replica, int microbatches,
                    struct pp_loader *out);

/* From now on samples are windows: sample k of epoch e begins at start word(e*n + k) * starts >> 32,
 * of stream ("windows", 0), so that it follows from the number of the sample alone. 1 <= starts <=
 * 2^32. */
void pp_loader_windows(struct pp_loader *ld, uint64_t starts);

/* Make the order of epoch e (0, 1, ...): permutation of stream ("shuffle", e), or windows. Allocates
 * nothing. */
void pp_loader_start_epoch(struct pp_loader *ld, uint64_t epoch);

/* Steps of an epoch: ceil(n / batch_size). */
int pp_loader_steps(const struct pp_loader *ld);

/* Rows of this step's whole batch (the last may be smaller) and of this replica's share. */
int pp_loader_batch_rows(const struct pp_loader *ld, int step);
int pp_loader_share_rows(const struct pp_loader *ld, int step);

/* Number of this replica's first row in the step's whole batch. */
int pp_loader_share_first(const struct pp_loader *ld, int step);

/* Micro-batches of this replica's share: `microbatches` for a full batch; a smaller share has
 * min(M, ceil(share / ceil(full share / M))); 0 for an empty share. */
int pp_loader_microbatches(const struct pp_loader *ld, int step);

/* Micro-batch mb of the step: its row count, and *index = its row numbers in the data set (points
 * into ld->order; valid until the next start_epoch). */
int pp_loader_microbatch(const struct pp_loader *ld, int step, int mb, const uint32_t **index);

/* Largest micro-batch over all steps. */
int pp_loader_max_rows(const struct pp_loader *ld);

/* Piece k of n rows cut into `parts` balanced pieces: first row and count. */
void pp_balanced_piece(int n, int parts, int k, int *first, int *count);

/* ---- ahead */

/*
 * Pictures that are made: with data.augment or data.resize a step's samples are not gathered from
 * the data set but from bytes that a thread beside computing makes a step ahead, or the device where
 * it can. The bytes are a
 * function of (seed, epoch, sample), whatever was made before.
 */

struct pp_ahead;

/* Whether the samples of this split are made. */
bool pp_ahead_makes(const struct pp_config *cfg, enum pp_split split);

/* Whether pictures are only cropped and flipped, so that a device with memory of its own can do it to
 * those it holds: no thread then. */
bool pp_ahead_moves(const struct pp_config *cfg, enum pp_split split);

/* moves[n] for struct pp_move_pictures: the same bytes, of these training samples. */
void pp_ahead_move(const struct pp_config *cfg, uint64_t epoch, int n, const uint32_t *index,
                   uint32_t *moves);

/*
 * Starts the thread. buffers: n >= 2 of them, each for the largest share of a step, [rows] of
 * struct pp_dataset's `input`; they and the data stay the caller's. test may be NULL when no test
 * step is asked for. Errors: PP_ERESOURCE. Local, as all of these.
 */
int pp_ahead_create(const struct pp_config *cfg, const struct pp_dataset *train,
                    const struct pp_dataset *test, uint8_t *const *buffers, int n_buffers,
                    struct pp_ahead **out);
void pp_ahead_destroy(struct pp_ahead **a); /* accepts NULL inside */

/*
 * The pictures of the loader's share of a step, in its order; they stay until n_buffers - 1 further
 * calls. Waits until they are made, and has those of the next step begun, if the epoch has one.
 * Allocates nothing.
 */
uint8_t *pp_ahead_take(struct pp_ahead *a, const struct pp_loader *ld, enum pp_split split,
                       uint64_t epoch, int step);

/* Stop making, and forget what was made: to be called before a loader's order changes. */
void pp_ahead_rest(struct pp_ahead *a);

#endif
