/* SPDX-License-Identifier: Apache-2.0 */
/* Tables without labels, made into samples by the text that a checkpoint keeps. */
#ifndef PPCLI_DATA_NEW_TABLE_H
#define PPCLI_DATA_NEW_TABLE_H

#include "ppcli/data/preprocessing.h"

struct pp_new_table;

/*
 * Opens a table to predict: its columns are found by name, in any order, or by place if it has no
 * header. The label's column may be missing. `p` and `path` must outlive *out. Errors: PP_ENOINPUT,
 * PP_EPERM, PP_EIO, PP_EFORMAT (also a column that is missing), PP_ERESOURCE. Local.
 */
int pp_new_table_open(const struct pp_preprocessing *p, const char *path,
                      struct pp_new_table **out);
void pp_new_table_close(struct pp_new_table **t); /* accepts NULL inside */

/* Makes samples of the next rows, at most `rows`: x[rows][p->n_inputs], before data.mean and
 * data.std. *out_rows is 0 at the end. Errors: PP_EFORMAT (a cell, with its line). */
int pp_new_table_next(struct pp_new_table *t, int rows, float *x, int *out_rows);

/* Returns the line of the file, from 1, in which row r of the last call begins. */
int pp_new_table_line(const struct pp_new_table *t, int r);

/* Returns how many cells so far held a word that the training part did not have. */
int64_t pp_new_table_unknown(const struct pp_new_table *t);

#endif
