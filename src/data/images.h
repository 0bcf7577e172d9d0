/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders of pictures: which files they hold, and the same pictures decoded, in one file that all
 * processes of a machine map. images.c makes a data set of it.
 */
#ifndef PPCLI_DATA_IMAGES_H
#define PPCLI_DATA_IMAGES_H

#include "ppcli/data/dataset.h"
#include "raster.h"

/* ---- images_list.c: the files */

/* The folders of the two splits; `test` is "" if data.split divides `train`. */
struct images_roots {
    char train[PP_PATH_MAX], test[PP_PATH_MAX];
};

int images_find_roots(const struct pp_config *cfg, struct images_roots *out);

/* Checks that data.split is set if there is no folder of the test set, and only then. Errors:
 * PP_ECONFIG. */
int images_check_split(const struct pp_config *cfg, const struct images_roots *r);

struct images_file {
    size_t path; /* offset in images_list.text: the path below its root, "cats/1.jpg" */
    uint32_t label;
    bool test;
    uint64_t bytes;
    int64_t modified_ns;
};

struct images_list {
    struct images_roots roots;
    char *text; /* all names, a NUL after each; owned, as those below */
    size_t n_text, text_capacity;
    struct images_file
        *files; /* [n]: those of training, then those of the test; by class and name */
    int n, capacity, n_train;
    size_t *classes; /* [n_classes] offsets of their names, ascending */
    int n_classes, classes_capacity;
    int n_ignored;  /* files that are not pictures by their names */
    size_t ignored; /* offset of the path of the first one */
};

/* Lists the pictures of a config, of which data.train_samples and data.test_samples leave evenly
 * spaced ones. Errors: PP_ENOINPUT (no folder), PP_EFORMAT (no class folders, an empty one, a class
 * that training does not have), PP_EPERM, PP_EIO. Local. */
int images_list_make(const struct pp_config *cfg, const struct images_roots *roots,
                     struct images_list *out);
void images_list_fini(struct images_list *list);

/* Checks that both splits have files. Errors: PP_ECONFIG. */
int images_check_parts(const struct images_list *list);

/* Returns whether a file may be a picture, by the end of its name; without an end it may. */
bool images_may_be_picture(const char *path);

/* Formats the whole path of a file. */
int images_path(const struct images_list *list, const struct images_file *f, char out[PP_PATH_MAX]);

/* Computes a digest of the folders alone: adding, removing or renaming a picture or a class changes
 * it. */
int images_folders_digest(const struct images_roots *roots, char out[PP_SHA256_HEX]);

/* ---- images_cache.c: the pictures, decoded */

/* The end of the file. The bytes of the pictures come first, [n_train + n_test][h][w][c], then
 * labels[n_train + n_test] of uint32_t, then texts: classes, and remarks on files left out. */
struct images_footer {
    char magic[8];
    uint32_t h, w, c, n_classes, n_train, n_test, n_remarks;
    uint32_t crc[2];             /* CRC-32 of the pictures of training and test */
    uint64_t labels_at, text_at; /* offsets; images begin at 0 */
    char digest[PP_SHA256_HEX];  /* of files and settings */
};

/* Opens the decoded pictures of a config, which it makes first if they do not exist. *out_fd is
 * the caller's; `path` names it in messages. Any thread; threads and processes wait for the one that
 * decodes. Errors: those of images_list_make(); PP_EFORMAT (a broken picture, or all of them),
 * PP_ECONFIG (sizes differ and data.resize is off), PP_ESTOPPED, PP_ERESOURCE, PP_EIO. Local. */
int images_cache_open(const struct pp_config *cfg, struct images_footer *out, int *out_fd,
                      char path[PP_PATH_MAX]);

/* Decodes one file and brings it to the size of data.resize and data.crop. `buffer` is memory that
 * grows for the bytes of files. Errors: PP_EFORMAT for a broken picture, in a text without the
 * path. */
struct images_buffer {
    uint8_t *data;
    size_t capacity;
};
int images_read(const struct pp_config *cfg, const char *path, struct images_buffer *buffer,
                struct raster *out);

#endif
