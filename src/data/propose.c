/* SPDX-License-Identifier: Apache-2.0 */
/* What ppcli init says about a table: each column, what is to be predicted, and what to leave out. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "ppcli/base/base.h"
#include "csv.h"

#define KINDS_COUNTED 1000 /* different cells of a column that are counted */
#define CLASSES_FEW 20     /* whole numbers of more kinds are numbers, not classes */
#define WIDE 64            /* a table with more columns may be of pictures, and keeps all */
#define INDEX_MIN 10       /* rows of a table whose column of different numbers is an index */

static const char *const outputs[] = {
    "label",   "labels",   "class", "classes",   "target",    "species", "y",
    "outcome", "survived", "medv",  "SalePrice", "diagnosis", "churn",   "median_house_value"};

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcasecmp(name + n - m, suffix) == 0;
}

/* Returns whether all cells of a column differ, as far as they were counted. */
static bool all_differ(const struct table *t, const struct table_column *c)
{
    int64_t most = t->rows - c->missing;
    return c->kinds.n >= (most < KINDS_COUNTED ? most : KINDS_COUNTED) && t->rows >= INDEX_MIN;
}

/* Returns why a column should not be an input, or NULL. */
static const char *find_fault(const struct table *t, int i)
{
    const struct table_column *c = &t->of[i];
    bool named_id = has_suffix(c->name, "id") || strcasecmp(c->name, "index") == 0 ||
                    strcasecmp(c->name, "no") == 0 || strcasecmp(c->name, "nr") == 0;
    if (c->kind == COLUMN_EMPTY)
        return "left out: empty";
    if (c->kind == COLUMN_DATE)
        return "left out: dates or times";
    if (c->kind == COLUMN_NUMBER) {
        bool whole = c->whole && c->missing == 0 && t->rows >= INDEX_MIN;
        if (whole && c->counts && (i == 0 || named_id))
            return "left out: counts the rows";
        if (whole && named_id && all_differ(t, c))
            return "left out: an id";
        return c->kinds.n == 1 && c->missing == 0 && t->rows > 1 && t->n <= WIDE
                   ? "left out: always the same"
                   : NULL;
    }
    if (c->kinds.n > KINDS_MAX)
        return all_differ(t, c) ? "left out: another in every row" : "left out: more than 64 kinds";
    if (c->kinds.n == 1 && c->missing == 0)
        return "left out: always the same";
    return all_differ(t, c) ? "left out: another in every row" : NULL;
}

static int find_output(const struct table *t, const char *named)
{
    if (named && strcmp(named, "first") == 0)
        return 0;
    for (int i = t->n - 1; i >= 0 && named && strcmp(named, "last") != 0; i--)
        if (strcmp(t->of[i].name, named) == 0)
            return i;
    for (size_t k = 0; !named && t->has_header && k < sizeof(outputs) / sizeof(outputs[0]); k++)
        for (int i = t->n - 1; i >= 0; i--)
            if (strcasecmp(t->of[i].name, outputs[k]) == 0 && t->of[i].kind != COLUMN_EMPTY)
                return i;
    int last = t->n - 1;
    while (!named && last > 0 &&
           (t->of[last].kind == COLUMN_EMPTY || !t->of[last].name[0] ||
            t->of[last].kind == COLUMN_DATE))
        last--;
    return last;
}

/* Returns whether a column to predict holds numbers, and not classes. */
static bool is_quantity(const struct table *t, const struct table_column *c)
{
    static const char *const classes[] = {"label",   "labels",  "class",
                                          "classes", "species", "digit"};
    if (c->words > 0)
        return false;
    if (!c->whole)
        return true;
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcasecmp(c->name, classes[i]) == 0)
            return false;
    return t->has_header && c->kinds.n > CLASSES_FEW && c->kinds.n * 20 > t->rows;
}

/* Copies a name for a comment of one line. */
static void copy_shown(const char *from, char *to, size_t bytes)
{
    snprintf(to, bytes, "%s", from);
    size_t n = strlen(to);
    while (n > 0 && (to[n - 1] & 0xc0) == 0x80 && strlen(from) >= bytes)
        to[--n] = '\0'; /* a character that was cut */
    if (n > 0 && strlen(from) >= bytes && (to[n - 1] & 0x80))
        to[n - 1] = '\0';
    for (char *p = to; *p; p++)
        *p = iscntrl((unsigned char)*p) ? ' ' : *p;
}

/* Describes what a column holds: "numbers 0.42 to 80", "3 kinds: C, Q, S". */
static void describe_column(const struct table_column *c, char *out, size_t bytes)
{
    if (c->kind == COLUMN_EMPTY || c->kind == COLUMN_DATE) {
        copy_shown(c->kind == COLUMN_EMPTY ? "nothing" : c->odd, out, bytes);
        return;
    }
    if (c->kind == COLUMN_NUMBER) {
        snprintf(out, bytes, "%s %.7g to %.7g", c->whole ? "whole numbers" : "numbers", c->least,
                 c->most);
        return;
    }
    char text[200];
    snprintf(text, sizeof(text), "%s%d kinds of words:", c->kinds.n > KINDS_COUNTED ? "over " : "",
             c->kinds.n > KINDS_COUNTED ? KINDS_COUNTED : c->kinds.n);
    for (int i = 0; i < c->kinds.n && i < 4; i++)
        pp_text_add(text, sizeof(text), "%s%.20s", i > 0 ? ", " : " ", c->kinds.of[i]);
    copy_shown(text, out, bytes);
}

/* Adds a name to a list as data.drop takes it. Letters that an INI file or a list cannot hold become
 * '?', which stands for any. */
static bool add_name(char *list, size_t bytes, const char *name)
{
    char text[3 * PP_NAME_MAX];
    size_t n = 0;
    bool quoted = strchr(name, ',') || name[0] == ' ' || !name[0];
    if (strlen(name) > (size_t)2 * PP_NAME_MAX || strlen(list) + strlen(name) + 5 > bytes)
        return false;
    if (quoted)
        text[n++] = '"';
    for (const char *p = name; *p; p++)
        text[n++] = *p == '"' || *p == ';' || *p == '#' || iscntrl((unsigned char)*p) ? '?' : *p;
    if (quoted)
        text[n++] = '"';
    text[n] = '\0';
    pp_text_add(list, bytes, "%s%s", list[0] ? ", " : "", text);
    return true;
}

static int fill_proposal(const struct table *t, const char *named, struct pp_table_proposal *out)
{
    int output = find_output(t, named);
    const struct table_column *o = &t->of[output];
    PP_ALLOC(out->columns, t->n);
    out->n = t->n;
    out->rows = t->rows;
    out->has_header = t->has_header;
    out->predicts_numbers = is_quantity(t, o);
    if (!t->has_header && named)
        snprintf(out->output, sizeof(out->output), "%s", named);
    else
        snprintf(out->output, sizeof(out->output), "%s", t->has_header ? o->name : "last");
    for (int i = 0; i < t->n; i++) {
        const struct table_column *c = &t->of[i];
        struct pp_found_column *f = &out->columns[i];
        bool unnamed =
            t->has_header && i == 0 && (!c->name[0] || strncmp(c->name, "Unnamed: ", 9) == 0);
        const char *why = i == output || unnamed ? NULL : find_fault(t, i);
        copy_shown(c->name, f->name, sizeof(f->name));
        describe_column(c, f->holds, sizeof(f->holds));
        f->missing = c->missing;
        f->use = i == output ? (out->predicts_numbers ? "to predict" : "the label")
                 : unnamed   ? "left out: an index without a name"
                             : why;
        if (why && c->kind != COLUMN_EMPTY && c->name[0])
            add_name(out->drop, sizeof(out->drop), c->name);
        bool used = !why && !unnamed;
        out->missing = used && c->missing > 0 ? PP_MISSING_MEAN : out->missing;
    }
    return 0;
}

int pp_table_propose(const char *path, const char *output, struct pp_table_proposal *out)
{
    PP_OWN(table_close) struct table t = {0};
    PP_OWN(pp_table_proposal_fini) struct pp_table_proposal p = {0};
    PP_TRY(table_open(path, &t));
    PP_TRY(table_measure(NULL, &t));
    PP_TAKE(bool, all, t.n);
    memset(all, true, (size_t)t.n);
    PP_TRY(table_collect(NULL, &t, all, KINDS_COUNTED));
    PP_TRY(fill_proposal(&t, output, &p));
    *out = p;
    p = (struct pp_table_proposal){0};
    return 0;
}

void pp_table_proposal_fini(struct pp_table_proposal *p)
{
    pp_free(p->columns);
    *p = (struct pp_table_proposal){0};
}
