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

/* ---- texts of files */

/* Reads the text of a file, plain or gzip. */

/* Reads all of a file, inflated, and adds a NUL; pp_free(). Errors: PP_ENOINPUT, PP_EPERM, PP_EIO,
 * PP_EFORMAT (not a regular file, empty, more than 1 GiB), PP_ERESOURCE. Local. */
int pp_source_text(const char *path, char **out, size_t *out_bytes);

/* ---- data sets */

/*
 * Data sets: labelled rows of bytes or floats, read completely and checked strictly before training
 * starts; or texts, which are rows of tokens, with windows of them as samples. The loader decides
 * which rows belong to a batch; it knows no pipeline.
 */

#define PP_REMARKS_MAX 4
#define PP_REMARK_BYTES 384

enum pp_split {
    PP_SPLIT_TRAIN,
    PP_SPLIT_TEST
};

/* The parts that a rank needs: the first stage images, the last stage labels. */
enum pp_data_parts {
    PP_DATA_IMAGES = 1,
    PP_DATA_LABELS = 2
};

struct pp_dataset {
    const char *name;
    int n;                   /* number of samples */
    struct pp_shape shape;   /* shape of a sample: 28 x 28 x 1; of a row of a table: flat */
    struct pp_shape input;   /* shape of the model's input: after data.resize */
    int features;            /* number of values of the model's input: 784 */
    int classes;             /* labels are 0..classes-1; numbers: targets_each */
    enum pp_element element; /* type of the values of a sample */
    size_t stride;           /* values from one sample to the next: the size of a sample, but ... */
    bool windows; /* ... a text is one row of tokens, and the target of each token is the next */
    /* distance from a window's first token to its first target: 1, or the size of the window */
    int apart;
    /* training: number of possible starts of a window, of which a random one is used */
    uint64_t starts;
    int vocabulary;  /* texts: number of different tokens; 0: not known */
    bool subwords;   /* the tokens come from a tokenizer; the model may have more */
    int64_t ignored; /* 1 + the token that has no loss as a target; 0: none */
    bool unchecked;  /* tokens were not checked: pp_dataset_windows() checks them */
    /* mapping of the file with the images; NULL: they are in a block of their own */
    struct pp_mapping *map;
    size_t map_first;             /* offset of its first token */
    struct pp_token_check *check; /* checks all tokens of the mapping; owned; NULL: not needed */
    float scale;                  /* factor that maps a pixel to 0..1 */
    /* turns values into the model's input: scale, data.mean, data.std */
    struct pp_scaling scaling;
    uint8_t *images; /* [n][shape] elements, or all tokens; NULL if not requested; owned */
    /* what the model's outputs are compared with, [n][targets_each]: classes in U8, U16 or U32, or
     * numbers in F32; NULL if not requested; owned */
    void *targets;
    enum pp_element target_element;
    int targets_each; /* 1, or the number of numbers */
    /* how files become samples, and what classes or numbers are called: a JSON object, kept with
     * checkpoints; or NULL; owned */
    char *preprocessing;
    uint32_t *lengths; /* [n] tokens before the padding, for model.mask_padding; or NULL; owned */
    /* names of the header without the label, a '\n' after each; or NULL; owned */
    char *columns;
    uint32_t images_crc; /* CRC-32 of all image bytes of the file, 0 if not read */
    uint32_t labels_crc;
    char origin[PP_PATH_MAX]; /* path of the folder or file, or "made from the seed" */
    int n_remarks;            /* warnings to show before training */
    char remarks[PP_REMARKS_MAX][PP_REMARK_BYTES];
};

struct pp_dataset_info { /* properties that are known without opening a file */
    const char *name;
    const char *help;
    enum pp_element element;   /* as in struct pp_dataset */
    struct pp_shape shape;     /* n 0: the shape of the files, or of the model */
    int classes;               /* 0: as shape; of a text: number of characters */
    int train_n, test_n;       /* 0: unknown before opening, or set by the config */
    bool windows;              /* as in struct pp_dataset */
    bool mapped;               /* the files stay mapped, and other programs may change them */
    bool pairs;                /* windows are followed by their own targets */
    bool sized;                /* samples already have the size of data.resize */
    const char *fetch_command; /* "ppcli download fashion-mnist", or NULL */
};

const char *const *pp_dataset_names(void); /* of datasets.def, NULL-terminated */
const struct pp_dataset_info *pp_dataset_info(const char *name);

/* Opens a split of cfg's data set. `parts` are bits of enum pp_data_parts. `model_input` and
 * `model_classes` are the model's input and outputs, which the data must fit (else PP_ECONFIG).
 * Errors: PP_ENOINPUT with the command that downloads the files; PP_EFORMAT for a file that is not
 * exactly what it claims to be; PP_EIO, PP_EPERM, PP_ERESOURCE. Local. The caller owns *out. */
int pp_dataset_open(const struct pp_config *cfg, enum pp_split split, int parts,
                    const struct pp_shape *model_input, int model_classes, struct pp_dataset **out);
void pp_dataset_destroy(struct pp_dataset **ds);

/* Returns the arguments of the kernel that gathers the model's input x[rows][features] and the
 * targets[rows][..] of these samples. `data` are images and labels in memory that a kernel can
 * read. */
struct pp_gather pp_dataset_gather(const struct pp_dataset *ds, const void *data, int rows,
                                   const uint32_t *index, float *x);
struct pp_targets pp_dataset_targets(const struct pp_dataset *ds, const void *data, int rows,
                                     const uint32_t *index, int32_t *targets);

/* Waits up to `seconds` for the check that pp_dataset_open() began: of all tokens of mapped files,
 * in both splits. A split that is NULL counts as checked. Errors: PP_EFORMAT (a token that the
 * model does not have). Any number of threads. Local. */
int pp_dataset_ready(const struct pp_dataset *const data[2], int seconds, bool *out_ready);

/* Copies the tokens of windows up to the last target to out[rows][features + apart], or only checks
 * them if `out` is NULL. Errors: PP_EFORMAT (a token not below `limit`, or the file has changed
 * since it was opened), PP_EIO. */
int pp_dataset_windows(const struct pp_dataset *ds, int rows, const uint32_t *index, int limit,
                       uint32_t *out);

/* Returns the class of sample i. The data set has labels. */
uint32_t pp_dataset_label(const struct pp_dataset *ds, size_t i);

/* Returns the sum of the weights of the targets of these samples that are not ignored: of their
 * classes, or with `weights` NULL, 1 each. */
double pp_dataset_weight(const struct pp_dataset *ds, const float *weights, int rows,
                         const uint32_t *index);

/* Computes train.class_weights, weights[classes]: the numbers of the config, or balanced from the
 * labels of `train`; a class without samples has 1. Errors: PP_ERESOURCE. Local. */
int pp_dataset_class_weights(const struct pp_config *cfg, const struct pp_dataset *train,
                             int classes, float *weights);

/* Opens a split without its samples and labels, only for its n, features, shape, classes and scale.
 * Otherwise it is as pp_dataset_open(). */
int pp_dataset_look(const struct pp_config *cfg, enum pp_split split, struct pp_dataset **out);

/* Checks that training and test samples have the same shape and, if both have a header, the same
 * columns. Errors: PP_EFORMAT. */
int pp_dataset_same_shape(const struct pp_dataset *train, const struct pp_dataset *test);

/* Checks that the keys that name files are those of the data set, and that data.shape applies to
 * it. Errors: PP_ECONFIG, by pp_config_problem(). Local. */
int pp_dataset_check_keys(struct pp_config *cfg);

/* Returns rc. If it is PP_ECONFIG and comes from a function here, whose text begins with a key, the
 * text is noted as that key's problem. */
int pp_dataset_blame(struct pp_config *cfg, int rc);

/* Gets the properties of a model's input that follow from the data: from the files or, if they do
 * not exist, from what is known of the data set. shape.n is 0 if the data are made in the shape
 * that the model needs, or if the user's own files do not exist. Errors: as pp_dataset_look(),
 * except PP_ENOINPUT. */
int pp_dataset_input(const struct pp_config *cfg, struct pp_data_input *out);

/* Sets *out to the number of samples of a split, for explain. Errors: PP_ENOINPUT if the files do
 * not exist. */
int pp_dataset_count(const struct pp_config *cfg, enum pp_split split, int *out);

/*
 * Checks that config, files and model fit together: samples have as many values as the model has
 * inputs, the same shape in both splits, and the model has an output for each class. Missing files
 * count as fitting. Errors: PP_ECONFIG, by pp_config_problem(); those of pp_dataset_open(). Local.
 */
int pp_dataset_check(struct pp_config *cfg, const struct pp_shape *model_input, int model_classes);

/* The properties of a folder of pictures from which `ppcli init` writes a config. */
struct pp_images_proposal {
    bool splits;   /* the folder has no test folder, so the config needs data.split */
    int side;      /* for data.resize and data.crop; 0: the pictures stay as they are */
    bool one_size; /* of the pictures that were looked at */
    int h, w;      /* their median height and width */
};

/* Looks at some pictures of the folder that data.path names. Errors: PP_EFORMAT if none can be read;
 * those of pp_dataset_open(). Local. */
int pp_images_propose(const struct pp_config *cfg, struct pp_images_proposal *out);

/* Returns the directory of data set `name`: $PPCLI_DATA_DIR/<name>, else
 * ${XDG_DATA_HOME:-~/.local/share}/ppcli/<name>, for training and for downloads. Errors: PP_ECONFIG
 * (no home). */
int pp_data_dir(const char *name, char out[PP_PATH_MAX]);

/*
 * Decides which rows make which batch. All values follow from (seed, epoch, n, batch_size) alone. A
 * replica takes a contiguous, balanced share of each batch; the share is cut into balanced
 * micro-batches (sizes differ by at most one, larger first).
 */
struct pp_loader {
    int n, batch_size, replicas, replica, microbatches;
    int all; /* samples of the order; an epoch uses the first n <= all */
    bool shuffle;
    uint64_t seed;
    uint64_t starts; /* windows: number of possible starts; 0: an epoch has each sample once */
    uint32_t *order; /* [all], owned: samples of the epoch, a permutation or random windows */
};

int pp_loader_create(int n, int batch_size, int replicas, int replica, int microbatches,
                     bool shuffle, uint64_t seed, struct pp_loader **out);
void pp_loader_destroy(struct pp_loader **ld);

/* Makes a loader without an order, which only answers questions about counts, for any number of
 * samples. It owns nothing. */
int pp_loader_shape(int n, int batch_size, int replicas, int replica, int microbatches,
                    struct pp_loader *out);

/* Makes the samples windows of a text: sample k of epoch e begins at start word(e*n + k) * starts
 * >> 32, with words of stream ("windows", 0), so that it follows from the number of the sample
 * alone. 1 <= starts <= 2^32. */
void pp_loader_windows(struct pp_loader *ld, uint64_t starts);

/* Makes the order of epoch e (0, 1, ...): a permutation by stream ("shuffle", e), or windows.
 * Allocates nothing. */
void pp_loader_start_epoch(struct pp_loader *ld, uint64_t epoch);

/* Returns the number of steps of an epoch: ceil(n / batch_size). */
int pp_loader_steps(const struct pp_loader *ld);

/* Return how many rows this step's whole batch has (the last may be smaller) and how many this
 * replica's share of it has. */
int pp_loader_batch_rows(const struct pp_loader *ld, int step);
int pp_loader_share_rows(const struct pp_loader *ld, int step);

/* Returns the index of this replica's first row in the step's whole batch. */
int pp_loader_share_first(const struct pp_loader *ld, int step);

/* Returns how many micro-batches this replica's share has: `microbatches` for a full batch, min(M,
 * ceil(share / ceil(full share / M))) for a smaller one, 0 for an empty one. */
int pp_loader_microbatches(const struct pp_loader *ld, int step);

/* Returns how many rows micro-batch mb of the step has. *index points to their row numbers in the
 * data set, inside ld->order, and is valid until the next start_epoch. */
int pp_loader_microbatch(const struct pp_loader *ld, int step, int mb, const uint32_t **index);

/* Returns how many rows the largest micro-batch of all steps has. */
int pp_loader_max_rows(const struct pp_loader *ld);

/* Computes the first row and the number of rows of piece k, if n rows are cut into `parts` balanced
 * pieces. */
void pp_balanced_piece(int n, int parts, int k, int *first, int *count);

/* ---- pictures made ahead */

/*
 * Pictures that are made: with data.augment or data.resize the samples of a step are not gathered
 * from the data set but from bytes that a thread makes one step ahead, or that the device makes if
 * it can. The bytes are a function of (seed, epoch, sample) alone.
 */

struct pp_ahead;

/* Returns whether the samples of this split are made. */
bool pp_ahead_makes(const struct pp_config *cfg, enum pp_split split);

/* Returns whether pictures are only cropped and flipped, so that a device with memory of its own
 * can do it to the pictures it holds, without a thread. */
bool pp_ahead_moves(const struct pp_config *cfg, enum pp_split split);

/* Computes moves[n] for struct pp_move_pictures, with which a device makes the same bytes of these
 * training samples as the thread. */
void pp_ahead_move(const struct pp_config *cfg, uint64_t epoch, int n, const uint32_t *index,
                   uint32_t *moves);

/* Starts the thread. `buffers` are n >= 2, each with room for the largest share of a step, [rows]
 * of struct pp_dataset's `input`; the caller owns them and the data. `test` may be NULL if no test
 * step is requested. Errors: PP_ERESOURCE. Local, as all functions of this section. */
int pp_ahead_create(const struct pp_config *cfg, const struct pp_dataset *train,
                    const struct pp_dataset *test, uint8_t *const *buffers, int n_buffers,
                    struct pp_ahead **out);
void pp_ahead_destroy(struct pp_ahead **a); /* accepts NULL inside */

/*
 * Returns the pictures of the loader's share of a step, in its order; they are valid until
 * n_buffers - 1 further calls. Waits until they are made, and starts those of the next step, if the
 * epoch has one. Allocates nothing.
 */
uint8_t *pp_ahead_take(struct pp_ahead *a, const struct pp_loader *ld, enum pp_split split,
                       uint64_t epoch, int step);

/* Stops making pictures and drops those made: call it before a loader's order changes. */
void pp_ahead_rest(struct pp_ahead *a);

/* ---- downloads */

/*
 * Downloads files whose content is known beforehand. Bytes are collected in NAME.part, and only a
 * file with the pinned digest is renamed to its final name. Whatever a server or a disk does, the
 * worst that can remain is a .part, which the next try resumes or discards.
 */

struct pp_pin {
    const char *name; /* "train-images-idx3-ubyte.gz" */
    uint64_t bytes;
    const char *sha256; /* of the file or of its inflated content */
};

struct pp_fetch_set {
    const char *name, *help;
    const char *mirrors[5]; /* URLs, NULL-terminated */
    struct pp_pin files[9]; /* name NULL ends the list */
};

extern const struct pp_fetch_set pp_fetch_sets[]; /* from downloads.def; name NULL ends the list */

struct pp_fetch_limits {
    double connect_s;         /* for connecting */
    int low_speed_s;          /* seconds below 1 KiB/s that count as a stall */
    int retries;              /* retries at a server that may recover */
    double retry_first_s;     /* pause before the first retry, doubled each time */
    double retry_after_max_s; /* the longest Retry-After that is obeyed */
    bool http;                /* http:// to this machine is allowed, also in `from` */
};

extern const struct pp_fetch_limits pp_fetch_limits; /* the default limits */

/*
 * Downloads all files of the set into `dir`, which is created. `from` is NULL for the mirrors in
 * order, or an https or file URL, an http URL of this machine, or a folder. Good files that exist
 * are kept. Errors: PP_EIO (network), PP_EFORMAT (digest), PP_ERESOURCE (another download into
 * `dir` is running, or built without libcurl and `from` is not a folder), PP_ECONFIG, PP_ENOINPUT
 * (`from` is a folder without the files), PP_EPERM.
 */
int pp_fetch(const struct pp_fetch_set *set, const char *from, const char *dir,
             const struct pp_fetch_limits *limits);

/* Returns how many of the set's files exist in `dir`, by name; *out_files is how many the set
 * has. */
int pp_fetch_there(const struct pp_fetch_set *set, const char *dir, int *out_files);

#endif
