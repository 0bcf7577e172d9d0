/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of data/ share: reading, and what a data set of datasets.def must provide; callers
 * use the functions of ppcli/data/dataset.h.
 */
#ifndef PPCLI_DATA_OPS_H
#define PPCLI_DATA_OPS_H

#include "ppcli/data/dataset.h"
#include "ppcli/data/tokenizer.h"

/*
 * The bytes of a data file, inflated when it is gzip, which its first bytes tell. A gzip file may
 * have several members, one after the other; anything else after the last of them is refused, and
 * so is a stream that is cut short or fails its checksum.
 */
struct pp_source;

enum pp_source_kind {
    PP_SOURCE_RAW, /* as it is, also when it is gzip */
    PP_SOURCE_INFLATED
};

/* Errors: PP_ENOINPUT, PP_EPERM, PP_EIO, PP_EFORMAT (no regular file, empty), PP_ERESOURCE; every
 * text begins with the path, which must outlive *out. Local. */
int pp_source_open(const char *path, enum pp_source_kind kind, struct pp_source **out);
void pp_source_close(struct pp_source **s); /* accepts NULL inside */
bool pp_source_is_gzip(const struct pp_source *s);

/* Up to n bytes; *out_got < n only at the end, after every check has passed. */
int pp_source_read(struct pp_source *s, void *out, size_t n, size_t *out_got);

/* Exactly n bytes, which `what` ("data", "header") is made of. Errors: PP_EFORMAT too. */
int pp_source_pull(struct pp_source *s, void *out, size_t n, const char *what);

/* The same of lines of text: they end in '\n', also where they ended in '\r' alone. Errors: also
 * PP_EFORMAT (a file of another kind, UTF-16); *out is the caller's even then. */
int pp_source_lines(const char *path, char **out, size_t *out_bytes);

/* PP_EFORMAT unless all has been read. */
int pp_source_finish(struct pp_source *s);

/*
 * PP_EFORMAT when a file of this size cannot hold `bytes` in all, so that nothing is allocated for
 * a header that lies: a plain file has exactly as many, a gzip file at most 1032 times its size.
 */
int pp_source_holds(const struct pp_source *s, uint64_t bytes);

/* PP_EFORMAT when bytes that begin so are no data: what they are, and the way out. Local. */
enum pp_foreign {
    PP_FOREIGN_ANY = 1,     /* never data; pp_source_open() looks for it */
    PP_FOREIGN_DATA = 2,    /* not in a format that is read here */
    PP_FOREIGN_TEXT = 4,    /* a text is wanted */
    PP_FOREIGN_NUMBERS = 8, /* plain numbers are wanted */
};
int pp_data_foreign(const char *path, const void *head, size_t n, unsigned where);
int pp_source_foreign(const struct pp_source *s); /* the same of PP_FOREIGN_DATA */

/* The file's first bytes, for a message: "3c 21 64 6f (a web page?)"; returns out. */
const char *pp_source_head(const struct pp_source *s, char *out, size_t bytes);

/* The files in a tar archive, gzipped or plain, whose names end in `suffix`, into dir without their
 * folders. One that is there in the right size stays. Errors: those of reading; PP_EFORMAT: no tar
 * archive; PP_EPERM, PP_EIO. Local. */
int pp_tar_unpack(const char *path, const char *dir, const char *suffix);

/*
 * Files that hold one array: IDX (MNIST's format) and npy (NumPy's), gzipped or plain. A file that
 * is not exactly what its header announces is refused, and nothing is allocated before the
 * announced size was held against the caps and the file's size.
 */
#define PP_ARRAY_DIMS_MAX 4
#define PP_ARRAY_DIM_MAX ((uint32_t)1 << 28)
#define PP_ARRAY_MAX ((uint64_t)1 << 30) /* elements */

struct pp_array {
    int n_dims;                       /* 1..4 */
    uint32_t dims[PP_ARRAY_DIMS_MAX]; /* those beyond n_dims are 1 */
    size_t n;                         /* elements: product of dims */
    bool pixels;                      /* the file holds unsigned bytes */
};

/*
 * The header and, where out_data is not NULL, all elements with every check passed: *out_data is
 * the caller's, pp_free(). (A header alone does not see a damaged gzip stream.)
 * Errors: those of pp_source_open(); the text begins with the path. Local.
 */
typedef int pp_array_read(const char *path, struct pp_array *out, void **out_data);

/* Unsigned bytes only; elements as uint8_t. */
pp_array_read pp_idx_read;

/* Versions 1 to 3, C order, whole numbers, float32, float64, bool, of either byte order; unsigned
 * bytes (pixels) as uint8_t, all others as float, which must be finite. */
pp_array_read pp_npy_read;

/* Product of n dims into out->n, within the caps; PP_EFORMAT. For the two readers. */
int pp_array_count(const char *path, struct pp_array *a);

/* The keys that name a person's own files. */
enum pp_data_keys {
    PP_KEYS_NONE,
    PP_KEYS_PAIRS,  /* data.train_images, train_labels, test_images, test_labels */
    PP_KEYS_TABLES, /* data.train_file, test_file */
    PP_KEYS_FILES   /* the same, but they need not be there */
};

struct pp_dataset_ops {
    struct pp_dataset_info info;
    const char *shipped;       /* its folder in share/ppcli; NULL: it does not come with ppcli */
    const char *const *places; /* further folders to look in, NULL-terminated; NULL: none */
    enum pp_data_keys keys;
    bool makes;          /* no files: samples are made, as the model wants them */
    pp_array_read *read; /* of a file of PP_KEYS_PAIRS */

    /*
     * Fill *ds, which is zeroed and has its name; features follow from the shape. parts 0: only what
     * the headers tell: n, shape, and classes where they are known. model_input and model_classes
     * are for data that is made. On failure the caller frees what is in it.
     */
    int (*open)(const struct pp_dataset_ops *self, const struct pp_config *cfg, enum pp_split split,
                int parts, const struct pp_shape *model_input, int model_classes,
                struct pp_dataset *ds);
    bool numbers; /* its tokens are numbers already, for which a vocabulary may be there */
    /* Of texts; else NULL. */
    int (*vocabulary)(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                      struct pp_vocabulary *out);
};

/* What data.dataset names; PP_ECONFIG lists those that there are. */
int pp_dataset_ops_of(const char *name, const struct pp_dataset_ops **out);

/* That of data.tokens = bpe. Errors: PP_ECONFIG (data.tokenizer names none); those of
 * pp_tokenizer_open(). */
int pp_data_tokenizer(const struct pp_config *cfg, bool padded, struct pp_vocabulary *out);

/* A split as its files and the config make it, not held against the model. */
int pp_dataset_open_split(const struct pp_config *cfg, enum pp_split split, int parts,
                          const struct pp_shape *input, int classes, struct pp_dataset **out);

/* ds->scaling from data.mean and data.std; those of the columns of a table are done here. Errors:
 * PP_ECONFIG. */
int pp_dataset_scale(const struct pp_config *cfg, struct pp_dataset *ds);

/* A remark where inputs are far from -1 to 1. Errors: PP_ERESOURCE. */
int pp_dataset_judge_range(struct pp_dataset *ds);

/* Pictures of bytes can be changed; the model gets ds->input, from ds->shape. PP_ECONFIG. */
int pp_dataset_make_input(const struct pp_config *cfg, struct pp_dataset *ds);

/* PP_ECONFIG unless a model with these many inputs and classes can read ds. */
int pp_dataset_fits(const struct pp_config *cfg, const struct pp_dataset *ds, int inputs,
                    int classes);

/* PP_EFORMAT when a model of texts has values that are no tokens of it; those of files of tokens are
 * looked at elsewhere. */
int pp_dataset_tokens(const struct pp_config *cfg, const struct pp_dataset *ds);

/* data.shape, rows x columns x channels; "model": *out stays. Errors: PP_ECONFIG. */
int pp_data_shape(const struct pp_config *cfg, struct pp_shape *out);

/* PP_EFORMAT unless two tables that both have a header have the same columns in the same order. */
int pp_table_same_columns(const struct pp_dataset *a, const struct pp_dataset *b);

/* dir/name.gz, else dir/name; *out_found false when neither is there (then out is the first). */
int pp_folder_file(const char *dir, const char *name, char out[PP_PATH_MAX], bool *out_found);

/* Look for a split's files in one folder, into ctx. */
typedef int pp_folder_locate(const char *dir, enum pp_split split, void *ctx, bool *out_found);

/* Ask `locate` for each folder that self's files may lie in until it finds them. PP_ENOINPUT names
 * all of them, and what fetches the files. */
int pp_folder_find(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                   enum pp_split split, pp_folder_locate *locate, void *ctx);

/* A split in two files: samples and labels. */
struct pp_pair {
    char images[PP_PATH_MAX], labels[PP_PATH_MAX];
    pp_array_read *read;
    enum pp_split split;
    int classes; /* 0: one more than the largest label */
    enum pp_layout_of layout;
};

int pp_pair_open(const struct pp_pair *p, int samples_max, int parts, struct pp_dataset *ds);

/* Windows of model.block_size tokens in those `tokens` of a file: n, shape, scale, stride, starts.
 * Errors: PP_EFORMAT (too short), PP_ECONFIG. */
int pp_windows(const struct pp_config *cfg, enum pp_split split, const char *path, uint64_t tokens,
               struct pp_dataset *ds);

/* PP_EFORMAT: token i of ds is not below `limit`. */
int pp_token_refuse(const struct pp_dataset *ds, size_t i, uint32_t token, int limit);

/* Begin to look at all n tokens of a mapped ds, which stays where it is. Errors: PP_ERESOURCE. */
int pp_token_check_begin(struct pp_dataset *ds, size_t n, int limit);
void pp_token_check_end(struct pp_token_check **check); /* accepts NULL inside */

/* data.train_samples or test_samples; 0: all. */
int pp_samples_max(const struct pp_config *cfg, enum pp_split split);

/* Add to ds->remarks, unless it is full. */
void pp_dataset_remark(struct pp_dataset *ds, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Keep the first samples_max of ds->n samples; 0: all. */
void pp_keep_samples(struct pp_dataset *ds, int samples_max);

/* ds->classes from its labels; PP_EFORMAT when there is one class only to train with. */
int pp_classes_of_labels(struct pp_dataset *ds, enum pp_split split, const char *path);

#endif
