/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns describe a result once: for each value its name, its title, its format, what it means,
 * and where it lies in the struct of a row. From one array of columns come the table in a terminal,
 * the Markdown, the CSV, the JSON, and the pages docs/look-up/json*.md.
 */
#ifndef PPCLI_SHOW_COLUMNS_H
#define PPCLI_SHOW_COLUMNS_H

#include <stddef.h>

#include "ppcli/base/files.h"

enum pp_cell_kind {
    PP_CELL_TEXT = 1, /* const char *; NULL: null in JSON */
    PP_CELL_CHARS,    /* char[] */
    PP_CELL_INT,
    PP_CELL_INT64,
    PP_CELL_SIZE, /* size_t, uint64_t */
    PP_CELL_REAL, /* double; NAN: empty in tables, null in JSON */
    PP_CELL_FLAG,
    PP_CELL_ROWS,   /* struct pp_listing, which have the columns `inner` */
    PP_CELL_SCHEMA, /* the number `offset`: the version of a document */
    PP_CELL_OBJECT  /* a struct, which has the columns `inner` */
};

struct pp_listing { /* nothing is owned */
    const void *items;
    size_t size; /* bytes of an item */
    int n;
};

struct pp_column {
    const char *key;    /* in JSON and CSV; NULL: not there */
    const char *title;  /* in a table; NULL: not there */
    const char *format; /* of a number in a table; NULL: whole, or of a double PP_DIGITS */
    double scale;       /* a table shows a number times this; 0: 1 */
    const char *help;   /* what it means; NULL: the help of the column before holds here too */
    enum pp_cell_kind kind;
    size_t offset;  /* in the row */
    bool right;     /* text that is aligned to the right */
    bool csv, json; /* the key is for CSV only, for JSON only */
    bool nullable;  /* the value may be null, as an empty text is */
    bool optional;  /* the key is absent where the text is empty or the number is NAN */
    bool (*has)(const void *row);  /* is there such a value? NULL: in every row */
    const struct pp_column *inner; /* columns of ROWS, of an OBJECT; without a key those of an
                                    object whose values stand among the row's own */
    /* Writes a value of another form, which the documentation calls `type`: a list, or an object
     * whose keys are names. NULL: by kind. */
    void (*put)(const void *row, const char *key, struct pp_json *j);
    const char *type;
};
#define PP_DIGITS "~" /* about four digits */
#define PP_COMMAS "," /* as 55,170 */

/* The kind and the place of a member. An array of columns ends with a zero one. */
#define PP_CELL_KIND(x)                                                                            \
    _Generic((x),                                                                                  \
             const char *: PP_CELL_TEXT,                                                           \
             char *: PP_CELL_CHARS,                                                                \
             int: PP_CELL_INT,                                                                     \
             int64_t: PP_CELL_INT64,                                                               \
             size_t: PP_CELL_SIZE,                                                                 \
             double: PP_CELL_REAL,                                                                 \
             bool: PP_CELL_FLAG,                                                                   \
             struct pp_listing: PP_CELL_ROWS,                                                         \
             default: PP_CELL_OBJECT)
#define PP_FIELD(type, member)                                                                     \
    .kind = PP_CELL_KIND(((type *)0)->member), .offset = offsetof(type, member)

/* A question about `row`, a pointer to `type`, for pp_column.has. */
#define PP_HAS(name, type, condition)                                                              \
    static bool name(const void *at)                                                               \
    {                                                                                              \
        const type *row = at;                                                                      \
        return condition;                                                                          \
    }

#define PP_SCHEMA(number)                                                                          \
    {                                                                                              \
        "schema", .kind = PP_CELL_SCHEMA, .offset = (number),                                      \
                  .help = "counts up when a key changes or goes"                                   \
    }

/* Prints rows as CSV, as Markdown, or as a table as wide as its cells need, behind `indent`
 * blanks. */
enum pp_listing_form {
    PP_LISTING_CSV,
    PP_LISTING_MARKDOWN,
    PP_LISTING_TEXT
};
void pp_listing_print(const struct pp_column *columns, const struct pp_listing *rows,
                      enum pp_listing_form form, int indent, FILE *f);

/* Prints one row, which is a whole document, as JSON. */
void pp_document_json(const struct pp_column *columns, const void *row, FILE *f);

/* All documents of this module, for the pages that describe them: the key is the name ("tune"; of a
 * part of another "bench: --ops"), `inner` are the columns. */
extern const struct pp_column pp_show_documents[];

#endif
