/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples without labels: rows of new tables, pictures, or lines of text, made into the model's
 * input by what a checkpoint keeps, a few at a time. The training files are never read.
 */
#include "ppcli/data/preprocessing.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "images.h"
#include "new_table.h"
#include "ops.h"
#include "tokenizer.h"

#define TEXT_BYTES_MAX ((uint64_t)1 << 30)
#define WARNED_MAX 10 /* broken samples that are named */

enum new_kind {
    NEW_TABLE,
    NEW_PICTURES,
    NEW_TEXTS
};

struct pp_new_samples {
    const struct pp_config *cfg;
    const struct pp_preprocessing *p;
    enum new_kind kind;
    int rows; /* samples of a call, at most */
    struct pp_dataset *ds;
    uint32_t *lengths; /* [rows] tokens of each text */
    struct {
        char *path; /* owned; NULL: that of the file which is open */
        int line;
    } * places;       /* [rows] */
    const char *path; /* the file which is open */
    int64_t broken, unknown;
    char last[PP_ERROR_TEXT_MAX]; /* the text about the sample that was broken last */
    struct pp_new_table *table;
    struct pp_vocabulary vocabulary;
    char *text, *at; /* a file of texts, and its next line */
    int line;
    char **pictures; /* paths that wait, in the order of names; owned */
    int n_pictures, pictures_max, next_picture;
    struct images_buffer buffer;
};

static void forget_places(struct pp_new_samples *s)
{
    for (int i = 0; i < s->rows; i++) {
        pp_free(s->places[i].path);
        s->places[i].path = NULL;
    }
}

static void close_file(struct pp_new_samples *s)
{
    if (s->table)
        s->unknown += pp_new_table_unknown(s->table);
    pp_new_table_close(&s->table);
    pp_free(s->text);
    s->text = s->at = NULL;
    for (int i = s->next_picture; i < s->n_pictures; i++)
        pp_free(s->pictures[i]);
    s->n_pictures = s->next_picture = 0;
}

void pp_new_samples_destroy(struct pp_new_samples **samples)
{
    struct pp_new_samples *s = *samples;
    if (!s)
        return;
    close_file(s);
    if (s->places)
        forget_places(s);
    pp_free(s->places);
    pp_free(s->lengths);
    pp_free(s->pictures);
    pp_free(s->buffer.data);
    pp_vocabulary_fini(&s->vocabulary);
    if (s->ds)
        s->ds->lengths = NULL;
    pp_dataset_destroy(&s->ds);
    pp_free(s);
    *samples = NULL;
}

/* ---- what a sample is */

/* Returns whether the samples of the data set are pictures of one size, as of mnist. */
static bool has_known_pictures(const struct pp_config *cfg)
{
    const struct pp_dataset_info *info = pp_dataset_info(cfg->data.dataset);
    return info && info->shape.n == 3 && info->element == PP_U8 && !info->windows &&
           pp_resize_later(cfg) == 0;
}

static int find_new_kind(struct pp_new_samples *s)
{
    const char *name = s->cfg->data.dataset;
    if (has_known_pictures(s->cfg)) {
        s->kind = NEW_PICTURES;
        return 0;
    }
    if (strcmp(name, "text-labels") == 0 && !s->p->kind && s->cfg->model.classes == 0)
        return pp_fail(PP_EFORMAT, "the checkpoint does not keep how many classes there are; add "
                                   "--set model.classes=N");
    s->kind = strcmp(name, "text-labels") == 0 ? NEW_TEXTS
              : strcmp(name, "images") == 0    ? NEW_PICTURES
                                               : NEW_TABLE;
    if (s->kind != NEW_TABLE || (strcmp(name, "csv") == 0 && s->p->kind))
        return s->kind == NEW_PICTURES && !s->p->kind
                   ? pp_fail(PP_EFORMAT, "the checkpoint does not keep the size of its pictures; "
                                         "train again with this ppcli")
                   : 0;
    return strcmp(name, "csv") == 0
               ? pp_fail(PP_EFORMAT, "the checkpoint does not keep the columns of its table; train "
                                     "again with this ppcli")
               : pp_fail(PP_ECONFIG,
                         "data.dataset = %s: predict reads tables (csv), pictures (images) and "
                         "texts (text-labels); for other data use ppcli eval --predictions, for "
                         "texts to continue ppcli generate",
                         name);
}

/* Sets the shape of pictures to the one that the checkpoint keeps. */
static int take_size(struct pp_new_samples *s, struct pp_dataset *ds)
{
    const json_t *size = json_object_get(s->p->root, "size");
    int of[3];
    ds->element = PP_U8;
    ds->scale = 1.0F / 255.0F;
    if (has_known_pictures(s->cfg)) {
        const struct pp_dataset_info *info = pp_dataset_info(s->cfg->data.dataset);
        ds->shape = info->shape;
        ds->classes = info->classes;
        return 0;
    }
    for (size_t i = 0; i < 3; i++) {
        of[i] = (int)json_integer_value(json_array_get(size, i));
        if (of[i] < 1 || of[i] > 1 << 16)
            return pp_fail(PP_EFORMAT, "the checkpoint does not keep the size of its pictures");
    }
    ds->shape = pp_shape_image(of[0], of[1], of[2]);
    return 0;
}

static int open_vocabulary(struct pp_new_samples *s, const char *text)
{
    if (!text) {
        s->vocabulary = pp_vocabulary_bytes(true);
        return 0;
    }
    PP_TRY(pp_vocabulary_from("the checkpoint", text, &s->vocabulary));
    s->vocabulary.first = 1; /* token 0 is the padding */
    s->vocabulary.n++;
    return 0;
}

static int describe(struct pp_new_samples *s, const char *vocabulary, struct pp_dataset *ds)
{
    ds->name = s->cfg->data.dataset;
    ds->targets_each = 1;
    ds->classes = s->p->n_targets > 0 ? s->p->n_targets : s->p->n_classes;
    PP_TRY(pp_path_format(ds->origin, "the new samples"));
    if (s->kind == NEW_PICTURES)
        return take_size(s, ds);
    ds->scale = 1;
    ds->element = s->kind == NEW_TABLE ? PP_F32 : PP_U16;
    ds->shape =
        pp_shape_flat(s->kind == NEW_TABLE ? s->p->n_inputs : (int)s->cfg->model.block_size);
    if (s->kind == NEW_TEXTS) {
        PP_TRY(open_vocabulary(s, vocabulary));
        ds->vocabulary = s->vocabulary.n;
        ds->subwords = s->vocabulary.bpe != NULL;
    }
    return 0;
}

static int create(struct pp_new_samples *s, const char *vocabulary)
{
    PP_TRY(find_new_kind(s));
    PP_ALLOC(s->ds, 1);
    PP_TRY(describe(s, vocabulary, s->ds));
    size_t n = (size_t)s->rows, each = pp_shape_floats(&s->ds->shape);
    s->ds->images = pp_alloc(n * each, pp_element_bytes(s->ds->element));
    PP_TRY(s->ds->images ? 0 : PP_ERESOURCE);
    PP_ALLOC(s->places, n);
    if (s->kind == NEW_TEXTS)
        PP_ALLOC(s->lengths, n);
    return pp_dataset_shape(s->cfg, s->ds);
}

int pp_new_samples_create(const struct pp_config *cfg, const struct pp_preprocessing *p,
                          const char *vocabulary, int rows, struct pp_new_samples **out)
{
    struct pp_new_samples *s;
    PP_ALLOC(s, 1);
    s->cfg = cfg;
    s->p = p;
    s->rows = rows;
    PP_TRY_UNDO(create(s, vocabulary), pp_new_samples_destroy(&s));
    *out = s;
    return 0;
}

void pp_new_samples_input(const struct pp_new_samples *s, struct pp_data_input *out)
{
    *out = (struct pp_data_input){.shape = s->ds->input,
                                  .classes = s->ds->classes,
                                  .vocabulary = s->ds->vocabulary,
                                  .targets = 1};
}

/* ---- files */

static int add_picture(struct pp_new_samples *s, const char *path)
{
    PP_RESERVE(s->pictures, s->n_pictures, s->pictures_max);
    s->pictures[s->n_pictures] = pp_strdup(path);
    PP_TRY(s->pictures[s->n_pictures] ? 0 : PP_ERESOURCE);
    s->n_pictures++;
    return 0;
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds a picture, or all pictures of a folder and of the folders in it, by name. */
static int add_pictures(struct pp_new_samples *s, const char *path, int depth)
{
    struct stat st;
    PP_OWN_MEMORY char **names = NULL;
    char file[PP_PATH_MAX];
    int n = 0;
    PP_TRY(pp_path_stat(path, true, &st));
    if (!S_ISDIR(st.st_mode))
        return depth == 0 || images_may_be_picture(path) ? add_picture(s, path) : 0;
    if (depth > 8)
        return 0;
    PP_TRY(pp_dir_names(path, &names));
    while (names[n])
        n++;
    qsort(names, (size_t)n, sizeof(*names), compare_words);
    for (int i = 0; i < n; i++) {
        if (names[i][0] == '.')
            continue;
        PP_TRY(pp_path_format(file, "%s%s%s", path, pp_text_ends(path, "/") ? "" : "/", names[i]));
        PP_TRY(add_pictures(s, file, depth + 1));
    }
    return depth > 0 || s->n_pictures > 0
               ? 0
               : pp_fail(PP_ENOINPUT, "%s: a folder without pictures", path);
}

static int open_text(struct pp_new_samples *s, const char *path)
{
    size_t n = 0;
    PP_TRY(strcmp(path, "-") == 0 ? pp_fd_read(STDIN_FILENO, "-", TEXT_BYTES_MAX, &s->text, &n)
                                  : pp_source_lines(path, &s->text, &n));
    s->at = s->text + pp_text_bom(s->text);
    s->line = 0;
    return strlen(s->text) == n ? 0 : pp_fail(PP_EFORMAT, "%s: a NUL in the text", path);
}

int pp_new_samples_open(struct pp_new_samples *s, const char *path)
{
    close_file(s);
    s->path = path;
    s->last[0] = '\0';
    return s->kind == NEW_TABLE   ? pp_new_table_open(s->p, path, &s->table)
           : s->kind == NEW_TEXTS ? open_text(s, path)
                                  : add_pictures(s, path, 0);
}

/* ---- samples */

/* Notes that a sample is broken, which the error record describes. Returns the error if it is
 * another one, or if the reader does not get on. */
static int leave_out(struct pp_new_samples *s, const char *path, int rc)
{
    const char *text = pp_error_get()->text;
    if ((rc != PP_EFORMAT && rc != PP_ENOINPUT && rc != PP_EPERM && rc != PP_ECONFIG) ||
        strcmp(text, s->last) == 0)
        return rc;
    snprintf(s->last, sizeof(s->last), "%s", text);
    if (s->broken++ < WARNED_MAX)
        pp_log_warn("%s%s%s; left out", path ? path : "", path ? ": " : "", s->last);
    pp_error_clear();
    return 0;
}

static int next_of_table(struct pp_new_samples *s, int r, bool *out_any)
{
    float *x = (float *)(void *)s->ds->images + (size_t)r * (size_t)s->p->n_inputs;
    int n = 0;
    PP_TRY(pp_new_table_next(s->table, 1, x, &n));
    *out_any = n > 0;
    if (n > 0)
        s->places[r].line = pp_new_table_line(s->table, 0);
    return 0;
}

static int next_text(struct pp_new_samples *s, int r, bool *out_any)
{
    const size_t T = (size_t)s->ds->shape.dims[0];
    uint16_t *to = (uint16_t *)(void *)s->ds->images + (size_t)r * T;
    size_t n = 0, tokens = 0;
    while (*s->at == '\n' || (*s->at == '\r' && s->at[1] == '\n')) {
        s->at += *s->at == '\r' ? 2 : 1;
        s->line++;
    }
    char *from = s->at, label[PP_PATH_MAX + 16];
    *out_any = *from != '\0';
    if (!*out_any)
        return 0;
    n = strcspn(from, "\n");
    s->at += n + (from[n] == '\n');
    s->line++;
    from[n] = '\0';
    n -= n > 0 && from[n - 1] == '\r';
    from[n] = '\0';
    snprintf(label, sizeof(label), "%s:%d", s->path, s->line);
    memset(to, 0, T * sizeof(*to));
    PP_TRY(pp_vocabulary_encode(&s->vocabulary, label, from, n, PP_U16, T, to, &tokens));
    s->lengths[r] = (uint32_t)tokens;
    s->places[r].line = s->line;
    return 0;
}

static int decode_picture(struct pp_new_samples *s, const char *path, int r)
{
    PP_OWN(raster_fini) struct raster raster = {0};
    const int *want = s->ds->shape.dims;
    const size_t bytes = pp_shape_floats(&s->ds->shape);
    PP_TRY(images_read(s->cfg, path, &s->buffer, &raster));
    if (raster.c != want[2])
        PP_TRY(raster_convert(&raster, want[2]));
    if (raster.h != want[0] || raster.w != want[1])
        return pp_fail(PP_EFORMAT,
                       "%d x %d pixels, but the model has %d x %d and was trained without "
                       "data.resize",
                       raster.w, raster.h, want[1], want[0]);
    memcpy(s->ds->images + (size_t)r * bytes, raster.bytes, bytes);
    return 0;
}

static int next_picture(struct pp_new_samples *s, int r, bool *out_any)
{
    *out_any = false;
    while (s->next_picture < s->n_pictures) {
        char *path = s->pictures[s->next_picture++];
        int rc = decode_picture(s, path, r);
        if (rc == 0) {
            s->places[r].path = path;
            *out_any = true;
            return 0;
        }
        s->last[0] = '\0'; /* two files may be broken in the same way */
        rc = leave_out(s, path, rc);
        pp_free(path);
        PP_TRY(rc);
    }
    return 0;
}

static int next_sample(struct pp_new_samples *s, int r, bool *out_any)
{
    if (s->kind == NEW_PICTURES)
        return next_picture(s, r, out_any);
    for (;;) {
        int rc = s->kind == NEW_TABLE ? next_of_table(s, r, out_any) : next_text(s, r, out_any);
        if (rc == 0)
            return 0;
        PP_TRY(leave_out(s, NULL, rc));
    }
}

int pp_new_samples_next(struct pp_new_samples *s, const struct pp_dataset **out)
{
    bool any = true;
    int n = 0;
    forget_places(s);
    while (n < s->rows) {
        PP_TRY(next_sample(s, n, &any));
        if (!any)
            break;
        n++;
    }
    s->ds->n = n;
    if (s->kind == NEW_TABLE) /* data.mean and data.std change the values of a table in place */
        PP_TRY(pp_dataset_shape(s->cfg, s->ds));
    s->ds->lengths = s->cfg->model.mask_padding ? s->lengths : NULL;
    *out = s->ds;
    return 0;
}

const char *pp_new_samples_place(const struct pp_new_samples *s, int r, int *out_line)
{
    *out_line = s->places[r].line;
    return s->places[r].path ? s->places[r].path : s->path;
}

int64_t pp_new_samples_broken(const struct pp_new_samples *s)
{
    return s->broken;
}

int64_t pp_new_samples_unknown(const struct pp_new_samples *s)
{
    return s->unknown + (s->table ? pp_new_table_unknown(s->table) : 0);
}
