/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan --table NAME: published figures, what ppcli predicts for them, and the errors. A table is
 * a text of share/tables, one statement a line:
 *   title, source TEXT          printed before the table
 *   head NAME | ...             the columns: labels of a row, then its cells
 *   row LABEL | ...             begins a row
 *   with SCALE WORDS            words of `ppcli plan` that its cells share; the figure is SCALE /
 *                               makespan, or the makespan (*), or the bubble in percent (idle);
 *                               without this line it is tokens a second and rank
 *   cell [fit] VALUE WORDS      what is published, and the words of this cell; fit: it sets the factor
 *                               of all cells to the next fit
 */
#include "ppcli/show/results.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#define WORDS_MAX 64

extern const char text_zb4[], text_zb5[], text_zb6[], text_zb9[], text_cm[], text_primus[],
    text_megatron_bridge[];

struct table {
    int (*predict)(int argc, char **argv, struct pp_figures *out);
    const char *with; /* of the row; "": no such line */
    double factor;    /* of the last fit */
    struct errors {   /* in percent of what is published, or in points */
        double sum, largest;
    } with_factor, without;
    int n;
    bool points; /* the errors are */
};

/* Words between blanks, or in double quotes. Changes text. */
static int split_words(char *text, char **argv, int n)
{
    while (*(text += strspn(text, " "))) {
        const char *end = *text == '"' ? "\"" : " ";
        text += *text == '"';
        pp_assert(n < WORDS_MAX);
        argv[n++] = text;
        text += strcspn(text, end);
        if (*text)
            *text++ = '\0';
    }
    return n;
}

/* What ppcli says for a cell. */
static int predict_cell(struct table *t, char *words, double *out)
{
    PP_OWN_MEMORY char *with = pp_strdup(t->with);
    PP_TRY(with ? 0 : PP_ERESOURCE);
    char name[] = "plan", *argv[WORDS_MAX + 1] = {name}, *rest = with;
    struct pp_figures figures = {0};
    const char *scale = strsep(&rest, " ");
    int n = split_words(words, argv, rest ? split_words(rest, argv, 1) : 1);
    argv[n] = NULL;
    PP_TRY(t->predict(n, argv, &figures));
    t->points = strcmp(scale, "idle") == 0;
    *out = !scale[0]                 ? figures.tokens
           : t->points               ? 100 * figures.idle
           : strcmp(scale, "*") == 0 ? figures.makespan
                                     : strtod(scale, NULL) / figures.makespan;
    return 0;
}

static const char *format_figure(const struct table *t, double x, char out[32])
{
    snprintf(out, 32, "%.*f", t->points ? 2 : x >= 100 ? 0 : x >= 10 ? 1 : x >= 1 ? 2 : 3, x);
    return out;
}

static double add_error(const struct table *t, double predicted, double published, struct errors *e)
{
    double error = t->points ? predicted - published : 100 * (predicted / published - 1);
    error = fabs(error) < (t->points ? 0.005 : 0.05) ? 0 : error; /* not -0.0 */
    e->sum += fabs(error);
    e->largest = fabs(error) > fabs(e->largest) ? error : e->largest;
    return error;
}

static void print_errors(const struct table *t, const char *what, const struct errors *e)
{
    const char *unit = t->points ? " points" : " %";
    int digits = t->points ? 2 : 1;
    printf("%s %.*f%s, largest %+.*f%s", what, digits, e->sum / t->n, unit, digits, e->largest,
           unit);
}

static int print_cell(struct table *t, char *text)
{
    bool fit = strncmp(text, "fit ", 4) == 0;
    char *words, ours[32], theirs[32];
    double published = strtod(text + (fit ? 4 : 0), &words), predicted;
    PP_TRY(predict_cell(t, words, &predicted));
    format_figure(t, published, theirs);
    if (fit) {
        t->factor = published / predicted;
        printf(" %s (fitted, factor %.3f) |", theirs, t->factor);
        return 0;
    }
    add_error(t, predicted, published, &t->without);
    predicted *= t->factor;
    double error = add_error(t, predicted, published, &t->with_factor);
    t->n++;
    printf(" %s / %s (%+.*f%s) |", format_figure(t, predicted, ours), theirs, t->points ? 2 : 1,
           error, t->points ? "" : " %");
    return 0;
}

static void print_head(const char *names)
{
    printf("\n| %s |\n|", names);
    for (const char *c = names; c; c = strchr(c + 1, '|'))
        printf("---|");
}

static int print_line(struct table *t, char *line)
{
    char *text = line;
    const char *kind = strsep(&text, " ");
    if (strcmp(kind, "title") == 0)
        printf("### %s\n\n", text);
    else if (strcmp(kind, "source") == 0)
        printf("%s\n", text);
    else if (strcmp(kind, "head") == 0)
        print_head(text);
    else if (strcmp(kind, "row") == 0)
        printf("\n| %s |", text);
    else if (strcmp(kind, "cell") == 0)
        return print_cell(t, text);
    t->with = strcmp(kind, "row") == 0 ? "" : strcmp(kind, "with") == 0 ? text : t->with;
    return 0;
}

int pp_table_print(int index, int (*predict)(int argc, char **argv, struct pp_figures *out))
{
    /* in the order of PP_TABLES */
    static const char *const texts[] = {
        text_zb4, text_zb5, text_zb6, text_zb9, text_cm, text_primus, text_megatron_bridge};
    struct table t = {.predict = predict, .with = "", .factor = 1};
    PP_OWN_MEMORY char *copy = pp_strdup(texts[index]);
    PP_TRY(copy ? 0 : PP_ERESOURCE);
    for (char *rest = copy, *line; (line = strsep(&rest, "\n")) && *line;)
        PP_TRY(print_line(&t, line));
    print_errors(&t, "\n\nMean error", &t.with_factor);
    printf(", %d predictions", t.n);
    if (t.factor != 1)
        print_errors(&t, "; without the factor", &t.without);
    puts(".");
    return 0;
}
