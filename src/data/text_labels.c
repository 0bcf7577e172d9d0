/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labelled texts for classification: one line per sample: the label, a tab, the text. A sample has
 * model.block_size tokens: longer texts are cut, shorter ones end with token 0, the padding, which
 * does not occur in texts. Labels are whole numbers, or words, which are numbered in alphabetical
 * order. Tokens and labels follow from both files, so that training and test have the same numbers.
 */
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "tokenizer.h"
#include "ops.h"

#define CLASSES_MAX 256 /* a label is one byte */

struct row {
    const char *label, *text; /* the label ends with a NUL */
    size_t bytes;
};

struct lines {
    char *text; /* content of a file; owned */
    struct row *rows;
    int n;
};

struct labelled {
    struct lines of[2]; /* enum pp_split */
    /* [n_words] distinct labels in order: the first n_trained occur in training */
    const char **words;
    int n_words, n_trained;
    bool numbers; /* labels are numbers, which are the classes */
    struct pp_vocabulary v;
};

static void labelled_fini(struct labelled *l)
{
    for (int split = 0; split < 2; split++) {
        pp_free(l->of[split].text);
        pp_free(l->of[split].rows);
    }
    pp_free(l->words);
    pp_vocabulary_fini(&l->v);
}

/* Splits a line that ends at `end` into label and text, in place: the tab and the newline become
 * NUL. */
static int take_line(const char *path, int line, char *from, char *end, bool chars, struct row *out)
{
    char *tab = memchr(from, '\t', (size_t)(end - from));
    *end = '\0';
    if (!tab || tab == from) {
        return pp_fail(PP_EFORMAT, "%s:%d: no %s; a line is a label, a tab and a text", path, line,
                       tab ? "label" : "tab");
    }
    if (memchr(from, '\0', (size_t)(tab - from)))
        return pp_fail(PP_EFORMAT, "%s:%d: a NUL in the label", path, line);
    *tab = '\0';
    *out = (struct row){from, tab + 1, (size_t)(end - tab - 1)};
    if (out->bytes == 0)
        return pp_fail(PP_EFORMAT, "%s:%d: no text after the tab", path, line);
    for (size_t at = 0, n; chars && at < out->bytes; at += n) {
        n = out->text[at] ? (size_t)pp_utf8_length(out->text + at) : 0;
        if (n == 0) {
            return pp_fail(PP_EFORMAT,
                           "%s:%d: byte %zu of the text begins no character of UTF-8; use "
                           "data.tokens = bytes",
                           path, line, at);
        }
    }
    return 0;
}

static int read_lines(const char *path, bool chars, struct lines *l)
{
    size_t bytes, most = 1;
    PP_TRY(pp_source_lines(path, &l->text, &bytes));
    for (size_t i = 0; i < bytes; i++)
        most += l->text[i] == '\n';
    l->rows = pp_alloc(most, sizeof(*l->rows));
    if (!l->rows)
        return pp_error_context("%s", path);
    int line = 1;
    for (char *from = l->text, *stop = l->text + bytes, *next; from < stop; from = next, line++) {
        char *end = memchr(from, '\n', (size_t)(stop - from));
        end = end ? end : stop;
        next = end + 1;
        end -= end > from && end[-1] == '\r';
        if (end > from)
            PP_TRY(take_line(path, line, from, end, chars, &l->rows[l->n++]));
    }
    return l->n > 0 ? 0 : pp_fail(PP_EFORMAT, "%s: no lines", path);
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns the class that a word names if it is a whole number that fits into a byte; -1 if it is
 * another word. */
static int parse_class(const char *word)
{
    char *end;
    long v = strtol(word, &end, 10);
    return word[0] >= '0' && word[0] <= '9' && *end == '\0' && v < CLASSES_MAX ? (int)v : -1;
}

static const char *const *find_label(const char *const *words, int n, const char *label)
{
    return bsearch(&label, words, (size_t)n, sizeof(*words), compare_words);
}

/* Lists all labels: first those of training, so that a class keeps its number whatever the test
 * file contains. */
static int list_labels(const char *path, struct labelled *l)
{
    bool numbers = false; /* the labels of training are numbers */
    PP_ALLOC(l->words, (size_t)l->of[0].n + (size_t)l->of[1].n);
    l->numbers = true;
    for (int split = 0; split < 2; split++) {
        const char **words = l->words + l->n_words;
        int n = 0, known = l->n_words;
        for (int i = 0; i < l->of[split].n; i++)
            if (split == 0 || !find_label(l->words, known, l->of[split].rows[i].label))
                words[n++] = l->of[split].rows[i].label;
        qsort(words, (size_t)n, sizeof(*words), compare_words);
        for (int i = 0; i < n; i++) {
            if (i == 0 || strcmp(words[i], words[i - 1]) != 0)
                l->words[l->n_words++] = words[i];
            l->numbers = l->numbers && parse_class(words[i]) >= 0;
        }
        if (split == 0) {
            l->n_trained = l->n_words;
            numbers = l->numbers;
        }
    }
    if (numbers != l->numbers)
        return pp_fail(PP_EFORMAT, "%s: all labels are numbers; the test file has one that is none",
                       path);
    if (l->n_words > CLASSES_MAX) {
        return pp_fail(PP_EFORMAT, "%s: %d different labels, expected at most %d", path, l->n_words,
                       CLASSES_MAX);
    }
    return l->n_words > 1 ? 0
                          : pp_fail(PP_EFORMAT,
                                    "%s: every label is '%.40s': with one class there is nothing "
                                    "to learn",
                                    path, l->words[0]);
}

static int find_class(const struct labelled *l, const char *label)
{
    if (l->numbers)
        return parse_class(label);
    const char *const *at = find_label(l->words, l->n_trained, label);
    at = at ? at : find_label(l->words + l->n_trained, l->n_words - l->n_trained, label);
    return (int)(at - l->words);
}

static int find_characters(struct labelled *l)
{
    size_t n = (size_t)l->of[0].n + (size_t)l->of[1].n, k = 0;
    PP_TAKE(const char *, texts, 2 * n); /* and their labels, for messages */
    PP_TAKE(size_t, bytes, n);
    for (int split = 0; split < 2; split++) {
        for (int i = 0; i < l->of[split].n; i++, k++) {
            texts[k] = l->of[split].rows[i].text;
            texts[n + k] = l->of[split].rows[i].label;
            bytes[k] = l->of[split].rows[i].bytes;
        }
    }
    return pp_vocabulary_of((int)n, texts + n, texts, bytes, true, &l->v);
}

static int load_lines(const struct pp_config *cfg, struct labelled *l)
{
    bool chars = cfg->data.tokens == PP_TOKENS_CHARS, bpe = cfg->data.tokens == PP_TOKENS_BPE;
    PP_TRY(read_lines(cfg->data.train_file, chars || bpe, &l->of[PP_SPLIT_TRAIN]));
    PP_TRY(read_lines(cfg->data.test_file, chars || bpe, &l->of[PP_SPLIT_TEST]));
    PP_TRY(list_labels(cfg->data.train_file, l));
    if (bpe)
        return pp_data_tokenizer(cfg, true, &l->v);
    l->v = pp_vocabulary_bytes(true);
    return chars ? find_characters(l) : 0;
}

static int take_rows(const struct pp_config *cfg, const struct labelled *l, enum pp_split split,
                     int parts, struct pp_dataset *ds)
{
    size_t T = (size_t)cfg->model.block_size, each = pp_element_bytes(ds->element), n = 0;
    const struct row *rows = l->of[split].rows;
    if (cfg->model.mask_padding && !(ds->lengths = pp_alloc((size_t)ds->n, sizeof(*ds->lengths))))
        return PP_ERESOURCE;
    if (parts & PP_DATA_IMAGES || ds->lengths) {
        ds->images = pp_alloc((size_t)ds->n, T * each); /* zeros are padding */
        if (!ds->images)
            return PP_ERESOURCE;
        for (size_t i = 0; i < (size_t)ds->n; i++) {
            PP_TRY(pp_vocabulary_encode(&l->v, rows[i].label, rows[i].text, rows[i].bytes,
                                        ds->element, T, ds->images + i * T * each, &n));
            if (ds->lengths)
                ds->lengths[i] = (uint32_t)n;
        }
        ds->images_crc = (uint32_t)crc32_z(0, ds->images, (size_t)ds->n * T * each);
    }
    if (parts & PP_DATA_LABELS) {
        PP_TAKE(uint32_t, labels, ds->n);
        for (int i = 0; i < ds->n; i++)
            labels[i] = (uint32_t)find_class(l, rows[i].label);
        PP_TRY(pp_dataset_set_labels(ds, labels));
    }
    return 0;
}

/* Writes the names of the classes: words, or their numbers. */
static int describe_classes(const struct labelled *l, struct pp_dataset *ds)
{
    char *text = NULL, number[16];
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "out of memory for the names of classes");
    struct pp_json j = pp_json_begin(f, 0);
    pp_json_str(&j, "kind", "texts");
    pp_json_array(&j, "classes");
    for (int i = 0; i < ds->classes; i++) {
        snprintf(number, sizeof(number), "%d", i);
        pp_json_str(&j, NULL, l->numbers ? number : l->words[i]);
    }
    pp_json_end(&j);
    pp_json_end(&j);
    PP_TRY(pp_text_close(f, &text, "the names of classes"));
    text[strcspn(text, "\n")] = '\0';
    ds->preprocessing = pp_strdup(text);
    free(text);
    return ds->preprocessing ? 0 : PP_ERESOURCE;
}

static int open_labelled(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                         enum pp_split split, int parts, const struct pp_shape *model_input,
                         int model_classes, struct pp_dataset *ds)
{
    PP_OWN(labelled_fini) struct labelled l = {0};
    int most = pp_samples_max(cfg, split);
    PP_TRY(load_lines(cfg, &l));
    ds->n = most > 0 && most < l.of[split].n ? most : l.of[split].n;
    ds->shape = pp_shape_flat(cfg->model.block_size);
    ds->scale = 1;
    ds->element = PP_U16;
    ds->vocabulary = l.v.n;
    ds->subwords = l.v.bpe != NULL;
    if (l.v.n > 1 << 16)
        return pp_fail(PP_EFORMAT, "%s: %d different tokens; at most 65,536 are possible",
                       cfg->data.train_file, l.v.n);
    for (int i = 0; i < l.n_words; i++) {
        int class = find_class(&l, l.words[i]);
        ds->classes = class >= ds->classes ? class + 1 : ds->classes;
    }
    PP_TRY(describe_classes(&l, ds));
    PP_TRY(take_rows(cfg, &l, split, parts, ds));
    return pp_path_format(ds->origin, "%s",
                          split == PP_SPLIT_TRAIN ? cfg->data.train_file : cfg->data.test_file);
}

static int vocabulary_of_labelled(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                                  struct pp_vocabulary *out)
{
    PP_OWN(labelled_fini) struct labelled l = {0};
    PP_TRY(load_lines(cfg, &l));
    *out = l.v;
    l.v = (struct pp_vocabulary){0};
    return 0;
}

extern const struct pp_dataset_ops dataset_text_labels;

const struct pp_dataset_ops dataset_text_labels = {
    .info = {.name = "text-labels",
             .help = "your own texts to classify, a label, a tab and a text in each line",
             .element = PP_U16},
    .keys = PP_KEYS_TABLES,
    .describes = true,
    .open = open_labelled,
    .vocabulary = vocabulary_of_labelled,
};
