/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How files become samples, and what classes and numbers are called: a JSON text that a data set
 * makes (struct pp_dataset's `preprocessing`), that checkpoints keep, and that this module reads for
 * all others. New tables are made into samples by such a text alone.
 */
#ifndef PPCLI_DATA_PREPROCESSING_H
#define PPCLI_DATA_PREPROCESSING_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "ppcli/data/dataset.h"

/* A column of a table that is an input. */
struct pp_table_column {
    const char *name;    /* in the header; its number, from 1, in a table without one */
    int at;              /* its place in the training table, from 0 */
    int nth;             /* how many columns of the same name precede it */
    bool is_category;    /* words, one input for each kind; else a number, one input */
    bool is_scaled;      /* a number x becomes (x - mean) / std; else x */
    bool marks_missing;  /* a further input is 1 where the cell is missing */
    double mean, std;    /* of the training part; in place of a missing number stands the mean */
    int n_kinds;         /* categories: number of kinds */
    const char **kinds;  /* [n_kinds], sorted */
    int first, n_inputs; /* its inputs in a sample */
};

/* A number that the model predicts: output y stands for y * std + mean. */
struct pp_target {
    const char *name;
    int at;           /* its place in the training table */
    double mean, std; /* 0 and 1 for yes and no */
};

struct pp_preprocessing {
    const char *kind;                /* "table", "images" */
    int n_classes;                   /* 0: the classes have no names, or numbers are predicted */
    const char **classes;            /* [n_classes] names */
    const char *label;               /* tables: name of the label's column; NULL: targets */
    int label_at;                    /* its place; -1: targets */
    int n_targets;                   /* numbers that the model predicts */
    struct pp_target *targets;       /* [n_targets] */
    bool yes_no;                     /* the targets are yes or no */
    int n_columns, n_inputs;         /* tables: inputs of a sample */
    struct pp_table_column *columns; /* [n_columns] */
    int width;                       /* number of columns of the training table */
    bool has_header;
    enum pp_missing missing;
    json_t *root; /* owns all names */
};

/* Parses a text that a data set made. `label` names it in messages. The caller calls
 * pp_preprocessing_fini(). Errors: PP_EFORMAT, PP_ERESOURCE. Local. */
int pp_preprocessing_parse(const char *label, const char *text, struct pp_preprocessing *out);
void pp_preprocessing_fini(struct pp_preprocessing *p); /* accepts a zeroed one */

/* Sets *out to what an output of 1 is in units of the target, if there is only one; else 1. `text`
 * may be NULL. Errors: those of pp_preprocessing_parse(). */
int pp_preprocessing_unit(const char *text, double *out);

/* Returns the name of a class; where classes have no names, writes its number to `number`. */
const char *pp_class_name(const struct pp_preprocessing *p, int class, char number[16]);

/* Copies the text of cfg's data set: that of `ds`, or if it is NULL, made from the files. *out is
 * NULL if the data set has none; else the caller frees it. Errors: those of pp_dataset_open(). */
int pp_dataset_preprocessing(const struct pp_config *cfg, const struct pp_dataset *ds, char **out);

/* Checks that a checkpoint's text `then` says what the data's text `now` says; either may be NULL.
 * Errors: PP_EFORMAT, beginning with `path`, with the first thing that differs. */
int pp_preprocessing_check(const char *path, const char *then, const char *now);

/* ---- what ppcli init proposes for a table */

struct pp_found_column {
    char name[64], holds[96]; /* for people */
    int64_t missing;
    const char *use; /* "the label", "left out: ..."; NULL: an input */
};

struct pp_table_proposal {
    int n, rows;
    bool has_header;
    struct pp_found_column *columns; /* [n], owned */
    char output[PP_TEXT_MAX]; /* the column to predict: a value of data.label or data.target */
    bool predicts_numbers;    /* train.loss = mse; else classes */
    char drop[PP_TEXT_MAX];   /* a value of data.drop */
    enum pp_missing missing;
};

/* Looks at a table and proposes how to use it. `output` is the column to predict, a value of
 * data.label, or NULL to choose one. The caller calls pp_table_proposal_fini(). Errors: those of
 * reading; PP_EFORMAT, PP_ERESOURCE. Local. */
int pp_table_propose(const char *path, const char *output, struct pp_table_proposal *out);
void pp_table_proposal_fini(struct pp_table_proposal *p); /* accepts a zeroed one */

/* ---- new samples, without labels: rows of tables, pictures, lines of text */

struct pp_new_samples;

/*
 * Prepares samples for a model that was trained by `cfg`, at most `rows` at a time. `p` and
 * `vocabulary` are those of the checkpoint; vocabulary NULL: bytes. cfg and p must outlive *out.
 * Errors: PP_ECONFIG, PP_EFORMAT (the checkpoint does not keep what is needed), PP_ERESOURCE.
 * Local. The caller owns *out.
 */
int pp_new_samples_create(const struct pp_config *cfg, const struct pp_preprocessing *p,
                          const char *vocabulary, int rows, struct pp_new_samples **out);
void pp_new_samples_destroy(struct pp_new_samples **s); /* accepts NULL inside */

/* Says what the model's input is. */
void pp_new_samples_input(const struct pp_new_samples *s, struct pp_data_input *out);

/* Begins a table, a text (one sample a line), a picture, or a folder of pictures; "-" is standard
 * input, but for pictures. `path` must outlive its samples. Errors: those of reading. */
int pp_new_samples_open(struct pp_new_samples *s, const char *path);

/* Reads the next samples of the file: *out has n of them, 0 at the end, until the next call. Rows
 * and pictures that cannot be read are left out with a warning. Errors: PP_ERESOURCE, PP_EIO; a
 * table that cannot be read any further. */
int pp_new_samples_next(struct pp_new_samples *s, const struct pp_dataset **out);

/* Returns the file of sample r of the last call; *out_line is its line, or 0. */
const char *pp_new_samples_place(const struct pp_new_samples *s, int r, int *out_line);

/* Return how many samples were left out, and how many cells held a word that is not known. */
int64_t pp_new_samples_broken(const struct pp_new_samples *s);
int64_t pp_new_samples_unknown(const struct pp_new_samples *s);

#endif
