/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the archive's reader share: JSON in pieces, texts and lists of a program. */
#ifndef PPCLI_SRC_NN_GRAPH_ARCHIVE_IMPL_H
#define PPCLI_SRC_NN_GRAPH_ARCHIVE_IMPL_H

#include <jansson.h>

#include "ppcli/base/base.h"
#include "archive.h"

#define PT_NAME_MAX 512

/* ---- JSON in pieces */

/* A piece of a JSON text, which is not parsed yet. */
struct pt_text {
    const char *at;
    size_t bytes;
};

/* The members of an object or array, one after the other. */
struct pt_walk {
    const char *label;
    const char *begin, *at, *end;
    char close;
    bool any;
};

int pt_walk_begin(const char *label, struct pt_text text, char open, struct pt_walk *out);

/* Finds the next member: returns 1; 0 at the end; or PP_EFORMAT. key: without its quotation marks;
 * empty in an array. */
int pt_walk_next(struct pt_walk *w, struct pt_text *key, struct pt_text *value);

/* A member of an object that is looked for. */
struct pt_member {
    const char *name;
    struct pt_text text; /* result; `at` NULL: not there */
    bool optional;
};

int pt_members_find(const char *label, struct pt_text object, struct pt_member *members, int n);

/* Parses a piece that is an object; the caller decref's *out. */
int pt_text_parse(const char *label, struct pt_text object, json_t **out);

/* ---- names */

/* A table from texts, which it does not own, to numbers. Begins as {0}. */
struct pt_names {
    struct pt_slot {
        const char *text; /* NULL: free */
        int number;
    } * slots; /* [capacity]; owned */
    size_t n, capacity;
};

/* Returns a name's slot; its text is NULL if the table has no such name. The table is not empty. */
struct pt_slot *pt_names_slot(const struct pt_names *names, const char *text);
int pt_names_find(const struct pt_names *names, const char *text); /* its number; -1: none */
/* Adds a name that the table does not have. */
int pt_names_add(struct pt_names *names, const char *text, int number);
void pt_names_fini(struct pt_names *names);

/* ---- a program that is being read */

struct pt_block {
    struct pt_block *next;
    size_t used, bytes;
    _Alignas(16) char data[];
};

struct pt_reading {
    struct pt_program *p;
    const char *file;             /* p->file */
    char where[PP_PATH_MAX + 64]; /* the file, and which part of it is being read */
    const char *root;             /* folder of the archive, "small/" */
    struct pt_names texts;        /* all texts of the program, kept once */
    struct pt_names values;       /* by name */
    struct pt_names symbols;      /* free sizes of the inputs; 1: the batch, 0: another */
    struct pt_names sizes;        /* by name: sizes that nodes compute */
    struct pt_size *size_list;    /* [sizes.n] their values; owned */
    size_t size_capacity;
    struct pt_names modules; /* by path and call */
    size_t module_capacity;
    const char *stack_text; /* of the node before: its modules are used again */
    const int *stack;
    int n_stack;
    struct pt_weight *stored; /* tensors of the archive, by name; owned */
    size_t n_stored, stored_capacity;
    struct pt_names stored_names;
    struct pt_names ties; /* storage, offset, dims and strides of a weight */
};

/* Takes zeroed memory that lives as long as the program. NULL: out of memory, recorded. */
void *pt_take(struct pt_reading *r, size_t count, size_t size);
/* Keeps a text once; NULL: out of memory, recorded. Its control characters become '?'. */
const char *pt_keep(struct pt_reading *r, const char *text);
/* Keeps a name. Errors: PP_EFORMAT (empty, too long, control characters, or no string: NULL). */
int pt_keep_name(struct pt_reading *r, const char *text, const char **out);

/* Reads {"as_int": 3} or {"as_expr": {"expr_str": ...}}. */
int pt_read_size(struct pt_reading *r, const json_t *j, struct pt_size *out);
enum pt_dtype pt_dtype_of(const json_t *code);

/* Finds a value by its name, which must be made already. */
int pt_find_value(struct pt_reading *r, const json_t *name, int *out);

/* Reads all nodes. */
int pt_read_nodes(struct pt_reading *r, struct pt_text nodes);

#endif
