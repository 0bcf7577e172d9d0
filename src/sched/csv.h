/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of cells as written in a file. csv_read.c reads it; csv_shape.c finds its dialect and
 * shape; csv_plan.c makes a plan; csv_messages.c proves the order of its messages. The lists that
 * comms.c lowers are written as such tables too.
 */
#ifndef PPCLI_SCHED_CSV_H
#define PPCLI_SCHED_CSV_H

#include "pass.h"

enum pp_csv_type { /* the first five are enum pp_op */
    PP_CSV_F,
    PP_CSV_I,
    PP_CSV_W,
    PP_CSV_B,
    PP_CSV_R,
    PP_CSV_BW,
    PP_CSV_SEND_F,
    PP_CSV_RECV_F,
    PP_CSV_SEND_B,
    PP_CSV_RECV_B
};

struct pp_csv_cell {
    uint8_t type; /* enum pp_csv_type, as the file has it */
    bool overlap; /* overlaps with the next cell, which has the same column */
    int32_t stage, mb;
    int32_t column; /* from 1 */
};

struct pp_csv_row {
    struct pp_csv_cell *cells;
    int n, capacity;
    int line;    /* of the file, from 1 */
    int columns; /* cells of the line, idle ones too */
};

struct pp_csv_position {
    int line, column; /* line 0: not seen */
};

struct pp_csv {
    const char *name;
    struct pp_csv_row *rows; /* one per rank */
    int n_rows, capacity;
    int64_t n_cells;
    /* The first position of each kind of cell. */
    struct pp_csv_position idle, message, pair, type[PP_CSV_RECV_B + 1];
};

/* Reads the cells of a table and checks only their syntax. Call pp_csv_fini() whatever it returns.
 * Errors: PP_EFORMAT, PP_EIO, PP_ERESOURCE. */
int pp_csv_read(FILE *f, const char *name, struct pp_csv *out);
void pp_csv_fini(struct pp_csv *csv);

/* Appends a cell to a row. Errors: PP_ERESOURCE. */
int pp_csv_add(struct pp_csv_row *row, const struct pp_csv_cell *c);

/* Print cells one after the other, as torch.distributed.pipelining writes them. */
struct pp_csv_printer {
    FILE *f;
    bool open,
        overlaps; /* open: a cell was printed; overlaps: the last cell waits for its partner */
};
void pp_csv_print(struct pp_csv_printer *p, int type, int stage, int mb, bool overlap);

/* Returns PP_EIO if a write to f failed; checked once, after all writes. */
int pp_csv_written(FILE *f);

/* Fails with PP_EFORMAT and a text that begins with "NAME:LINE:COLUMN: "; returns the code. */
int pp_csv_fail(const char *name, struct pp_csv_position at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Formats a cell, such as "3SEND_F1". */
#define PP_CSV_NAME_MAX 48
const char *pp_csv_cell_name(const struct pp_csv_cell *c, char name[PP_CSV_NAME_MAX]);

/* A table and the facts that pp_table_shape() finds. */
struct pp_table {
    struct pp_csv csv;
    bool old; /* the dialect of 2024 */
    struct pp_geometry g;
    int n_virtual;
    int *rank_of;  /* [n_virtual] */
    bool descends; /* weight gradients descend; see csv_plan.c */
};

/* Computes the shape of the table t->csv and sets the other members. Errors: PP_EFORMAT,
 * PP_ERESOURCE. */
int pp_table_shape(struct pp_table *t);

/* Returns the position of cell k of a rank's row; if k is the number of cells, the position after
 * the last cell. */
struct pp_csv_position pp_table_position(const struct pp_table *t, int rank, int k);

/* Returns the index in its row of the n-th cell that computes; the length of the row if it has
 * fewer. */
int pp_table_nth(const struct pp_table *t, int rank, int n);

#define PP_TABLE_FAIL(t, rank, k, ...)                                                             \
    pp_csv_fail((t)->csv.name, pp_table_position((t), (rank), (k)), __VA_ARGS__)

/* Returns the op of a cell that is not a message, in either dialect. */
enum pp_op pp_table_op(const struct pp_table *t, const struct pp_csv_cell *c);

/* Returns the letters that the table uses for an op. */
const char *pp_table_letters(const struct pp_table *t, enum pp_op op);

/* Proves that every message of a table with SEND and RECV cells is moved once, after the cell that
 * makes it and before the cell that needs it, and that no ranks wait in a circle when each SEND
 * waits for its RECV. Errors: PP_EFORMAT, PP_ERESOURCE. */
int pp_table_prove_messages(const struct pp_table *t, const struct pp_plan *plan);

static inline bool pp_csv_is_message(const struct pp_csv_cell *c)
{
    return c->type >= PP_CSV_SEND_F;
}

#endif
