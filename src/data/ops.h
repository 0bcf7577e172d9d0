/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that the files of data/ share: reading, and the table of a data set in datasets.def;
 * callers use the functions of ppcli/data/dataset.h.
 */
#ifndef PPCLI_DATA_OPS_H
#define PPCLI_DATA_OPS_H

#include "ppcli/data/dataset.h"
#include "ppcli/data/tokenizer.h"

/*
 * Reads the bytes of a data file, inflated when its first bytes are gzip's. A gzip file may have
 * several members, one after the other; anything else after the last member is refused, and so is a
 * stream that is cut short or fails its checksum.
 */
struct pp_source;

enum pp_source_kind {
    PP_SOURCE_RAW, /* as it is, even gzip */
    PP_SOURCE_INFLATED
};

/* Opens a file. Errors: PP_ENOINPUT, PP_EPERM, PP_EIO, PP_EFORMAT (not a regular file, empty),
 * PP_ERESOURCE; every text begins with the path, which must outlive *out. Local. */
int pp_source_open(const char *path, enum pp_source_kind kind, struct pp_source **out);
/* Opens the first n of `whole` bytes that are in memory, which must outlive *out, as they are.
 * Errors: PP_ERESOURCE. Local. */
int pp_source_of_bytes(const char *path, const uint8_t *data, uint64_t n, uint64_t whole,
                       struct pp_source **out);
void pp_source_close(struct pp_source **s); /* accepts NULL inside */
bool pp_source_is_gzip(const struct pp_source *s);

/* Reads up to n bytes. *out_got is less than n only at the end of the file, after every check has
 * passed. */
int pp_source_read(struct pp_source *s, void *out, size_t n, size_t *out_got);

/* Reads exactly n bytes; `what` names them in messages ("data", "header"). Errors: also PP_EFORMAT
 * (the file is too short). */
int pp_source_pull(struct pp_source *s, void *out, size_t n, const char *what);

/* Reads all of a file as pp_source_text() does, and makes every line end in '\n', also one that
 * ended in '\r' alone. Errors: also PP_EFORMAT (a file of another kind, UTF-16); the caller owns
 * *out even then. */
int pp_source_lines(const char *path, char **out, size_t *out_bytes);

/* Checks that all bytes were read. Errors: PP_EFORMAT. */
int pp_source_finish(struct pp_source *s);

/* Checks that a file of this size can hold `bytes` bytes, so that nothing is allocated for a wrong
 * header: a plain file must have exactly as many, a gzip file may have at most 1032 times its size.
 * Errors: PP_EFORMAT. */
int pp_source_holds(const struct pp_source *s, uint64_t bytes);

/* Refuses bytes whose beginning shows that they are not data: PP_EFORMAT with what they are, and
 * what to do. Local. */
enum pp_foreign {
    PP_FOREIGN_ANY = 1,     /* never data; pp_source_open() checks for it */
    PP_FOREIGN_DATA = 2,    /* a format that is not supported */
    PP_FOREIGN_TEXT = 4,    /* if text is expected */
    PP_FOREIGN_NUMBERS = 8, /* if plain numbers are expected */
};
int pp_data_foreign(const char *path, const void *head, size_t n, unsigned where);
int pp_source_foreign(const struct pp_source *s); /* checks for PP_FOREIGN_DATA */

/* Formats the file's first bytes for a message: "3c 21 64 6f (a web page?)"; returns out. */
const char *pp_source_head(const struct pp_source *s, char *out, size_t bytes);

/* Unpacks the files of a tar archive, gzipped or plain, whose names end in `suffix`, into dir
 * without their folders. A file that exists in the right size stays. Errors: those of reading;
 * PP_EFORMAT: not a tar archive; PP_EPERM, PP_EIO. Local. */
int pp_tar_unpack(const char *path, const char *dir, const char *suffix);

/*
 * Files that hold one array: IDX (MNIST's format) and npy (NumPy's), gzipped or plain. A file that
 * is not exactly what its header announces is refused, and nothing is allocated before the
 * announced size was compared with the limits and the file's size.
 */
#define PP_ARRAY_DIMS_MAX 4
#define PP_ARRAY_DIM_MAX ((uint32_t)1 << 28)
#define PP_ARRAY_MAX ((uint64_t)1 << 30) /* elements */

struct pp_array {
    int n_dims;                       /* 1..4 */
    uint32_t dims[PP_ARRAY_DIMS_MAX]; /* 1 beyond n_dims */
    size_t n;                         /* elements: product of dims */
    bool pixels;                      /* the elements are unsigned bytes */
};

/*
 * Reads the header and, if out_data is not NULL, all elements with every check passed; the caller
 * owns *out_data, pp_free(). (Reading a header alone does not detect a damaged gzip stream.)
 * Errors: those of pp_source_open(); the text begins with the path. Local.
 */
typedef int pp_array_read(const char *path, struct pp_array *out, void **out_data);

/* Reads unsigned bytes (pixels), which become uint8_t; int8, int16, int32, float and double become
 * float, and must be finite. */
pp_array_read pp_idx_read;

/* Reads versions 1 to 3, of whole numbers, float16, float32, float64 and bool, of either byte order,
 * in C or Fortran order; unsigned bytes (pixels) become uint8_t, all others float, which must be
 * finite. FILE.npz:NAME is an array of an archive. */
pp_array_read pp_npy_read;

/* The type of the numbers in a file. */
struct pp_number_type {
    char kind; /* 'f', 'i', 'u', 'b' */
    bool big;  /* big-endian */
    int bytes;
};

/* Reads the last n numbers of a file as floats, which must be finite. `path` is for messages.
 * Errors: those of pp_source_pull() and pp_source_finish(), PP_EFORMAT. */
int pp_numbers_read(struct pp_source *s, const char *path, const struct pp_number_type *t, size_t n,
                    float *out);

/* Computes the product of n dims into out->n; both readers of arrays call it. Errors: PP_EFORMAT if
 * a limit is exceeded. */
int pp_array_count(const char *path, struct pp_array *a);

/* The keys that name the user's own files. */
enum pp_data_keys {
    PP_KEYS_NONE,
    PP_KEYS_PAIRS,  /* data.train_images, train_labels, test_images, test_labels */
    PP_KEYS_TABLES, /* data.train_file, test_file */
    PP_KEYS_FILES   /* the same, but they may be missing */
};

struct pp_dataset_ops {
    struct pp_dataset_info info;
    const char *shipped;       /* its folder in share/ppcli; NULL: it is not shipped */
    const char *const *places; /* further folders to search, NULL-terminated; may be NULL */
    enum pp_data_keys keys;
    bool describes;      /* sets struct pp_dataset's `preprocessing` */
    bool makes;          /* has no files: makes samples in the shape that the model needs */
    pp_array_read *read; /* reads a file of PP_KEYS_PAIRS */

    /*
     * Fills *ds, which is zeroed and has its name; features follow from the shape. parts 0: only
     * what the headers tell: n, shape, and classes if known. model_input and model_classes are for
     * data that is made. On failure the caller frees what is in it.
     */
    int (*open)(const struct pp_dataset_ops *self, const struct pp_config *cfg, enum pp_split split,
                int parts, const struct pp_shape *model_input, int model_classes,
                struct pp_dataset *ds);
    bool numbers; /* its tokens are numbers, and a vocabulary may exist for them */
    /* Makes the vocabulary of a text; else NULL. */
    int (*vocabulary)(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                      struct pp_vocabulary *out);
};

/* Finds the data set that data.dataset names; PP_ECONFIG lists the legal names. */
int pp_dataset_ops_of(const char *name, const struct pp_dataset_ops **out);

/* Opens the vocabulary of data.tokens = bpe. Errors: PP_ECONFIG (data.tokenizer is not set); those
 * of pp_tokenizer_open(). */
int pp_data_tokenizer(const struct pp_config *cfg, bool padded, struct pp_vocabulary *out);

/* Opens a split as its files and the config define it, without comparing it with the model. */
int pp_dataset_open_split(const struct pp_config *cfg, enum pp_split split, int parts,
                          const struct pp_shape *input, int classes, struct pp_dataset **out);

/* Gives samples that were made without files the shape and the scaling of the config: data.shape,
 * data.mean and data.std. Errors: PP_ECONFIG. */
int pp_dataset_shape(const struct pp_config *cfg, struct pp_dataset *ds);

/* Sets ds->scaling from data.mean and data.std; columns of a table are scaled here. Errors:
 * PP_ECONFIG. */
int pp_dataset_scale(const struct pp_config *cfg, struct pp_dataset *ds);

/* Adds a remark if inputs are far from -1 to 1. Errors: PP_ERESOURCE. */
int pp_dataset_judge_range(struct pp_dataset *ds);

/* Sets ds->input, the shape of the model's input, from ds->shape. Errors: PP_ECONFIG if the config
 * changes samples that are not pictures of bytes. */
int pp_dataset_make_input(const struct pp_config *cfg, struct pp_dataset *ds);

/* Checks that a model with these numbers of inputs and classes can read `ds`. Errors:
 * PP_ECONFIG. */
int pp_dataset_fits(const struct pp_config *cfg, const struct pp_dataset *ds, int inputs,
                    int classes);

/* Checks that the values of texts are tokens of the model; files of tokens are checked elsewhere.
 * Errors: PP_EFORMAT. */
int pp_dataset_tokens(const struct pp_config *cfg, const struct pp_dataset *ds);

/* Parses data.shape, which is rows x columns x channels, into *out; for "model" *out is unchanged.
 * Errors: PP_ECONFIG. */
int pp_data_shape(const struct pp_config *cfg, struct pp_shape *out);

/* Checks that two tables, if both have a header, have the same columns in the same order. Errors:
 * PP_EFORMAT. */
int pp_table_same_columns(const struct pp_dataset *a, const struct pp_dataset *b);

/* Finds dir/name.gz, else dir/name; *out_found is false if neither exists (then out is the
 * first). */
int pp_folder_file(const char *dir, const char *name, char out[PP_PATH_MAX], bool *out_found);

/* Searches for a split's files in one folder; stores them in ctx. */
typedef int pp_folder_locate(const char *dir, enum pp_split split, void *ctx, bool *out_found);

/* Calls `locate` for each folder that may hold self's files until it finds them. Errors:
 * PP_ENOINPUT, which lists all folders and the command that downloads the files. */
int pp_folder_find(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                   enum pp_split split, pp_folder_locate *locate, void *ctx);

/* The two files of a split: samples and labels. */
struct pp_pair {
    char images[PP_PATH_MAX], labels[PP_PATH_MAX];
    pp_array_read *read;
    enum pp_split split;
    int classes;  /* 0: the largest label + 1 */
    bool numbers; /* the targets are numbers, not labels */
    enum pp_layout_of layout;
};

int pp_pair_open(const struct pp_pair *p, int samples_max, int parts, struct pp_dataset *ds);

/* Sets up windows of model.block_size tokens in the `tokens` tokens of a file: n, shape, scale,
 * stride, starts. Errors: PP_EFORMAT (too short), PP_ECONFIG. */
int pp_windows(const struct pp_config *cfg, enum pp_split split, const char *path, uint64_t tokens,
               struct pp_dataset *ds);

/* Fails with PP_EFORMAT, because token i of `ds` is not below `limit`. */
int pp_token_refuse(const struct pp_dataset *ds, size_t i, uint32_t token, int limit);

/* Starts a check of all n tokens of a mapped `ds`, which must not move. Errors: PP_ERESOURCE. */
int pp_token_check_begin(struct pp_dataset *ds, size_t n, int limit);
void pp_token_check_end(struct pp_token_check **check); /* accepts NULL inside */

/* Returns data.resize if samples are resized when a step needs them; 0: never, or when they are
 * read. */
int pp_resize_later(const struct pp_config *cfg);

/* Returns data.train_samples or data.test_samples; 0 means all samples. */
int pp_samples_max(const struct pp_config *cfg, enum pp_split split);

/* Sets the targets of `ds` to labels[ds->n], in the smallest type that holds them, and their
 * checksum. Errors: PP_ERESOURCE. */
int pp_dataset_set_labels(struct pp_dataset *ds, const uint32_t *labels);

/* Makes numbers[ds->n][each] the targets of `ds`, which then owns them; NULL: not requested. */
void pp_dataset_set_numbers(struct pp_dataset *ds, int each, float *numbers);

/* Checks that train.loss is one for the targets of `ds`. Errors: PP_ECONFIG; PP_EFORMAT for a
 * number that it does not take. */
int pp_dataset_check_targets(const struct pp_config *cfg, const struct pp_dataset *ds);

/* Returns token i of a text. */
uint32_t pp_dataset_token(const struct pp_dataset *ds, size_t i);

/* Returns whether data.split puts the sample with this key, such as the bytes of a row or the name
 * of a file, into the test set. A sample's answer depends on its key and on the share alone. */
bool pp_split_is_test(const struct pp_config *cfg, const void *key, size_t bytes);

/* Adds a remark to ds->remarks, unless it is full. */
void pp_dataset_remark(struct pp_dataset *ds, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Keeps the first `samples_max` of the samples of `ds`; 0 means all. */
void pp_keep_samples(struct pp_dataset *ds, int samples_max);

/* Sets ds->classes from the labels. Errors: PP_EFORMAT if training has only one class. */
int pp_classes_of_labels(struct pp_dataset *ds, enum pp_split split, const char *path);

#endif
