/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the tables of docs/look-up/json*.md from the columns that print the documents: a line
 * "NAME SCHEMA" for each document, then its rows. json_keys.py compares the pages with them.
 */
#include <stdio.h>
#include <string.h>

#include "../../src/bench/bench.h"
#include "ppcli/show/columns.h"

#define SEEN_MAX 64
#define PREFIX_MAX 128

struct row {
    char names[2048], prefix[PREFIX_MAX], type[64];
    const char *help;
};

struct printer {
    struct row row; /* not printed yet */
    struct {
        const struct pp_column *columns;
        char path[PREFIX_MAX];
    } seen[SEEN_MAX]; /* of this document */
    int n_seen;
};

static void print_row(struct printer *p)
{
    struct row *r = &p->row;
    if (r->names[0] && r->prefix[0])
        printf("| `%s`%s | %s | %s |\n", r->prefix, r->names, r->type, r->help ? r->help : "");
    else if (r->names[0])
        printf("|%s | %s | %s |\n", r->names, r->type, r->help ? r->help : "");
    r->names[0] = '\0';
}

/* Values with one type and one meaning share a row. */
static void add_name(struct printer *p, const char *prefix, const char *name, const char *type,
                     const char *help)
{
    struct row *r = &p->row;
    if (help || strcmp(r->type, type) != 0 || strcmp(r->prefix, prefix) != 0) {
        print_row(p);
        r->help = help ? help : r->help;
        snprintf(r->type, sizeof(r->type), "%s", type);
        snprintf(r->prefix, sizeof(r->prefix), "%s", prefix);
    }
    snprintf(r->names + strlen(r->names), sizeof(r->names) - strlen(r->names), " `%s`", name);
}

static void print_type(const struct pp_column *c, char out[64])
{
    const char *plain = c->kind == PP_CELL_TEXT || c->kind == PP_CELL_CHARS ? "text"
                        : c->kind == PP_CELL_FLAG                           ? "true or false"
                                                                            : "number";
    snprintf(out, 64, "%s%s", plain, c->nullable ? " or null" : "");
}

static void print_columns(struct printer *p, const struct pp_column *columns, const char *prefix,
                          bool optional);

/* A list of objects, or an object: its own row, then those of its columns, unless the document had
 * them before. */
static void print_inner(struct printer *p, const struct pp_column *c, const char *prefix,
                        const char *may)
{
    const char *list = c->kind == PP_CELL_ROWS ? "[]" : "";
    char name[PREFIX_MAX], below[2 * PREFIX_MAX], type[64];
    snprintf(name, sizeof(name), "%s%s%s", c->key, list, may);
    snprintf(below, sizeof(below), "%s%s.", prefix, name);
    for (int i = 0; i < p->n_seen; i++) {
        if (p->seen[i].columns == c->inner) {
            snprintf(type, sizeof(type), "as `%s`", p->seen[i].path);
            add_name(p, prefix, name, type, c->help ? c->help : "");
            return;
        }
    }
    p->seen[p->n_seen].columns = c->inner;
    snprintf(p->seen[p->n_seen++].path, PREFIX_MAX, "%s%s%s", prefix, c->key, list);
    add_name(p, prefix, name, list[0] ? "objects" : "object", c->help ? c->help : "");
    print_columns(p, c->inner, below, false);
}

static void print_columns(struct printer *p, const struct pp_column *columns, const char *prefix,
                          bool optional)
{
    for (const struct pp_column *c = columns; c->key || c->title || c->inner; c++) {
        const char *may = optional || c->has || c->optional ? "?" : "";
        char name[PREFIX_MAX], type[64];
        if (c->csv || (!c->key && !c->inner))
            continue;
        if (!c->key) {
            print_columns(p, c->inner, prefix, may[0]);
        } else if (c->inner) {
            print_inner(p, c, prefix, may);
        } else if (c->type && strstr(c->type, " by name")) {
            snprintf(name, sizeof(name), "%s.*", c->key);
            snprintf(type, sizeof(type), "%.*s", (int)(strstr(c->type, " by") - c->type), c->type);
            add_name(p, prefix, name, type, c->help);
        } else {
            snprintf(name, sizeof(name), "%s%s", c->key, strcmp(c->key, "*") != 0 ? may : "");
            print_type(c, type);
            add_name(p, prefix, name, c->type ? c->type : type, c->help);
        }
    }
}

static void print_documents(const struct pp_column *d)
{
    for (; d->key; d++) {
        struct printer p = {.n_seen = 0};
        printf("%s\t%zu\n", d->key, d->inner->offset); /* of the column "schema" */
        print_columns(&p, d->inner, "", false);
        print_row(&p);
    }
}

int main(void)
{
    print_documents(pp_show_documents);
    print_documents(bench_documents);
    return 0;
}
