/* SPDX-License-Identifier: Apache-2.0 */
/* Prints an outcome: tables for people, keys for programs. */
#include "outcome.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"

#define MATRIX_MAX 20 /* classes of a matrix, and rows of a table of classes */
#define PAIRS_PRINTED 10
#define PAIRS_WRITTEN 50
#define NAME_COLUMNS 24
#define NAME_BYTES (4 * NAME_COLUMNS + 8)
#define MATRIX_COLUMNS 100 /* a wider matrix has numbers as the titles of its columns */

static const char *raw_name(const struct pp_outcome *o, int i, char number[16])
{
    if (!o->numbers)
        return pp_class_name(&o->names, i, number);
    if (i < o->names.n_targets)
        return o->names.targets[i].name;
    snprintf(number, 16, "output %d", i);
    return number;
}

/* Formats the name of a class or output for a table, cut to NAME_COLUMNS. */
static const char *shown_name(const struct pp_outcome *o, int i, char out[NAME_BYTES])
{
    char number[16];
    pp_text_shown(raw_name(o, i, number), out, NAME_BYTES);
    size_t at = 0;
    for (int n = 0; out[at] && n < NAME_COLUMNS; n++) {
        int bytes = pp_utf8_length(out + at);
        at += bytes > 0 ? (size_t)bytes : 1;
    }
    out[at] = '\0';
    return out;
}

static int name_columns(const struct pp_outcome *o, int from, int to, int least)
{
    char name[NAME_BYTES];
    for (int i = from; i < to; i++) {
        int n = pp_text_columns(shown_name(o, i, name));
        least = n > least ? n : least;
    }
    return least;
}

static void print_right(FILE *f, const char *name, int columns)
{
    int blanks = columns - pp_text_columns(name);
    fprintf(f, "%*s%s", blanks > 0 ? blanks : 0, "", name);
}

static void print_left(FILE *f, const char *name, int columns)
{
    int blanks = columns - pp_text_columns(name);
    fprintf(f, "%s%*s", name, blanks > 0 ? blanks : 0, "");
}

static void print_share(FILE *f, double x)
{
    if (isnan(x))
        fprintf(f, "  %9s", "-");
    else
        fprintf(f, "  %9.4f", x);
}

static void print_shares(FILE *f, const struct outcome_shares *s)
{
    print_share(f, s->precision);
    print_share(f, s->recall);
    print_share(f, s->f1);
}

/* ---- classes */

static double f1_of(const struct pp_outcome *o, int i)
{
    const struct outcome_class *c = &o->classes[i];
    return outcome_shares_of(c->hits, c->samples, c->predicted).f1;
}

/* Computes the mean F1 of the classes that occur. */
static double mean_f1(const struct pp_outcome *o)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < o->outputs; i++) {
        double f1 = f1_of(o, i);
        sum += isnan(f1) ? 0 : f1;
        n += !isnan(f1);
    }
    return n > 0 ? sum / n : (double)NAN;
}

static void print_class(const struct pp_outcome *o, int i, int columns, FILE *f)
{
    const struct outcome_class *c = &o->classes[i];
    struct outcome_shares s = outcome_shares_of(c->hits, c->samples, c->predicted);
    char name[NAME_BYTES];
    print_left(f, shown_name(o, i, name), columns);
    print_shares(f, &s);
    fprintf(f, "  %9lld\n", (long long)c->samples);
}

struct ranked {
    double f1;
    int class;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->f1 < y->f1 ? -1 : x->f1 > y->f1 ? 1 : x->class - y->class;
}

/* Prints precision, recall and F1 of each class, or of those with the lowest F1. */
static int print_classes(const struct pp_outcome *o, FILE *f)
{
    int n = 0;
    PP_TAKE(struct ranked, of, o->outputs);
    for (int i = 0; i < o->outputs; i++)
        if (o->outputs <= MATRIX_MAX || !isnan(f1_of(o, i)))
            of[n++] = (struct ranked){f1_of(o, i), i};
    if (o->outputs > MATRIX_MAX)
        qsort(of, (size_t)n, sizeof(*of), compare_ranked);
    n = n < MATRIX_MAX ? n : MATRIX_MAX;
    int columns = name_columns(o, 0, o->outputs, 16);
    fprintf(f, "\n%-*s  %9s  %9s  %9s  %9s\n", columns,
            o->outputs > MATRIX_MAX ? "the lowest F1" : "class", "precision", "recall", "F1",
            "samples");
    for (int i = 0; i < n; i++)
        print_class(o, of[i].class, columns, f);
    print_left(f, "mean", columns);
    fprintf(f, "  %9s  %9s", "", "");
    print_share(f, mean_f1(o));
    fprintf(f, "  %9lld\n", (long long)o->n);
    return 0;
}

static void print_matrix(const struct pp_outcome *o, FILE *f)
{
    const int n = o->outputs;
    int64_t count[MATRIX_MAX][MATRIX_MAX] = {{0}}, most = 0;
    char name[NAME_BYTES], number[32];
    for (int i = 0; i < n; i++)
        count[i][i] = o->classes[i].hits;
    for (int k = 0; k < o->n_pairs; k++)
        count[o->pairs[k].label][o->pairs[k].prediction] = o->pairs[k].n;
    for (int i = 0; i < n * n; i++)
        most = count[i / n][i % n] > most ? count[i / n][i % n] : most;
    int columns = name_columns(o, 0, n, 16),
        cell = snprintf(number, sizeof(number), "%lld", (long long)most), wide = 0;
    for (int i = 0; i < n; i++)
        wide += 2 + name_columns(o, i, i + 1, cell);
    bool numbered = columns + wide > MATRIX_COLUMNS;
    cell = numbered && cell < 2 ? 2 : cell;
    fprintf(f, "\n");
    print_left(f, "true, predicted", columns + (numbered ? 4 : 0));
    for (int i = 0; i < n; i++) {
        snprintf(number, sizeof(number), "%d", i + 1);
        fprintf(f, "  ");
        print_right(f, numbered ? number : shown_name(o, i, name),
                    numbered ? cell : name_columns(o, i, i + 1, cell));
    }
    for (int i = 0; i < n; i++) {
        fprintf(f, "\n");
        if (numbered)
            fprintf(f, "%2d  ", i + 1);
        print_left(f, shown_name(o, i, name), columns);
        for (int k = 0; k < n; k++)
            fprintf(f, "  %*lld", numbered ? cell : name_columns(o, k, k + 1, cell),
                    (long long)count[i][k]);
    }
    fprintf(f, "\n");
}

static void print_pairs(const struct pp_outcome *o, FILE *f)
{
    int n = o->n_pairs < PAIRS_PRINTED ? o->n_pairs : PAIRS_PRINTED, columns = 16;
    char a[NAME_BYTES], b[NAME_BYTES];
    for (int i = 0; i < n; i++)
        columns = name_columns(o, o->pairs[i].label, o->pairs[i].label + 1, columns);
    if (n > 0) {
        fprintf(f, "\n");
        print_left(f, "frequent mistakes", columns);
        fprintf(f, "  %9s  predicted\n", "samples");
    }
    for (int i = 0; i < n; i++) {
        print_left(f, shown_name(o, o->pairs[i].label, a), columns);
        fprintf(f, "  %9lld  %s\n", (long long)o->pairs[i].n,
                shown_name(o, o->pairs[i].prediction, b));
    }
}

static int print_of_classes(struct pp_outcome *o, FILE *f)
{
    double interval[2];
    outcome_interval(o->hits, o->n, interval);
    fprintf(f, "95 %% interval    %.4f to %.4f   (of the accuracy, Wilson)\n", interval[0],
            interval[1]);
    if (o->outputs > 5)
        fprintf(f, "top-5 accuracy   %.4f\n", (double)o->top5 / (double)o->n);
    fprintf(f, "calibration      %.4f   (expected error of the probabilities)\n",
            outcome_calibration_error(o));
    PP_TRY(outcome_count_pairs(o));
    PP_TRY(print_classes(o, f));
    if (o->outputs <= MATRIX_MAX)
        print_matrix(o, f);
    else
        print_pairs(o, f);
    return 0;
}

/* ---- numbers */

static void print_of_numbers(const struct pp_outcome *o, FILE *f)
{
    int columns = name_columns(o, 0, o->outputs, 16);
    fprintf(f, "\n");
    print_left(f, "target", columns);
    fprintf(f, "  %9s  %14s  %14s\n", "R2", "mean abs. err.", "root mean sq.");
    for (int i = 0; i < o->outputs; i++) {
        struct outcome_errors e = outcome_errors_of(o, i);
        char name[NAME_BYTES];
        print_left(f, shown_name(o, i, name), columns);
        print_share(f, e.r2);
        fprintf(f, "  %14.5g  %14.5g\n", e.mae, e.rmse);
    }
}

static void print_of_marks(const struct pp_outcome *o, FILE *f)
{
    int columns = name_columns(o, 0, o->outputs, 16);
    fprintf(f, "\n");
    print_left(f, "yes or no", columns);
    fprintf(f, "  %9s  %9s  %9s  %9s  %9s   (yes above %.4g)\n", "precision", "recall", "F1", "yes",
            "predicted", o->threshold);
    for (int i = 0; i < o->outputs; i++) {
        const struct outcome_number *k = &o->numbers[i];
        struct outcome_shares s = outcome_shares_of(k->both, k->yes, k->said);
        char name[NAME_BYTES];
        print_left(f, shown_name(o, i, name), columns);
        print_shares(f, &s);
        fprintf(f, "  %9lld  %9lld\n", (long long)k->yes, (long long)k->said);
    }
}

int pp_outcome_print(struct pp_outcome *o, FILE *f)
{
    if (o->classes)
        return print_of_classes(o, f);
    if (o->kind == PP_LOSS_BCE)
        print_of_marks(o, f);
    else
        print_of_numbers(o, f);
    return 0;
}

/* ---- JSON */

static void write_name(const struct pp_outcome *o, const char *key, int i, struct pp_json *j)
{
    char number[16];
    pp_json_str(j, key, raw_name(o, i, number));
}

static void write_shares(const struct outcome_shares *s, int64_t samples, int64_t predicted,
                         struct pp_json *j)
{
    pp_json_dbl(j, "precision", s->precision);
    pp_json_dbl(j, "recall", s->recall);
    pp_json_dbl(j, "f1", s->f1);
    pp_json_int(j, "samples", samples);
    pp_json_int(j, "predicted", predicted);
}

static void write_calibration(const struct pp_outcome *o, struct pp_json *j)
{
    pp_json_dbl(j, "calibration_error", outcome_calibration_error(o));
    pp_json_array(j, "calibration");
    for (int i = 0; i < OUTCOME_BINS; i++) {
        const struct outcome_bin *b = &o->bins[i];
        pp_json_object(j, NULL);
        pp_json_int(j, "samples", b->n);
        pp_json_dbl(j, "probability", b->n > 0 ? b->confidence / (double)b->n : (double)NAN);
        pp_json_dbl(j, "accuracy", b->n > 0 ? (double)b->hits / (double)b->n : (double)NAN);
        pp_json_end(j);
    }
    pp_json_end(j);
}

static void write_pairs(const struct pp_outcome *o, struct pp_json *j)
{
    int n = o->outputs <= MATRIX_MAX || o->n_pairs < PAIRS_WRITTEN ? o->n_pairs : PAIRS_WRITTEN;
    pp_json_array(j, "confused");
    for (int i = 0; i < n; i++) {
        pp_json_object(j, NULL);
        write_name(o, "label", o->pairs[i].label, j);
        write_name(o, "prediction", o->pairs[i].prediction, j);
        pp_json_int(j, "samples", o->pairs[i].n);
        pp_json_end(j);
    }
    pp_json_end(j);
}

static int write_of_classes(struct pp_outcome *o, struct pp_json *j)
{
    double interval[2];
    outcome_interval(o->hits, o->n, interval);
    pp_json_array(j, "accuracy_interval");
    pp_json_dbl(j, NULL, interval[0]);
    pp_json_dbl(j, NULL, interval[1]);
    pp_json_end(j);
    if (o->outputs > 5)
        pp_json_dbl(j, "top5_accuracy", (double)o->top5 / (double)o->n);
    pp_json_dbl(j, "mean_f1", mean_f1(o));
    pp_json_array(j, "classes");
    for (int i = 0; i < o->outputs; i++) {
        const struct outcome_class *c = &o->classes[i];
        struct outcome_shares s = outcome_shares_of(c->hits, c->samples, c->predicted);
        pp_json_object(j, NULL);
        write_name(o, "name", i, j);
        write_shares(&s, c->samples, c->predicted, j);
        pp_json_end(j);
    }
    pp_json_end(j);
    PP_TRY(outcome_count_pairs(o));
    write_pairs(o, j);
    write_calibration(o, j);
    return 0;
}

static void write_outputs(const struct pp_outcome *o, struct pp_json *j)
{
    if (o->kind == PP_LOSS_BCE)
        pp_json_dbl(j, "threshold", o->threshold);
    pp_json_array(j, "outputs");
    for (int i = 0; i < o->outputs; i++) {
        const struct outcome_number *k = &o->numbers[i];
        pp_json_object(j, NULL);
        write_name(o, "name", i, j);
        if (o->kind == PP_LOSS_BCE) {
            struct outcome_shares s = outcome_shares_of(k->both, k->yes, k->said);
            write_shares(&s, k->yes, k->said, j);
        } else {
            struct outcome_errors e = outcome_errors_of(o, i);
            pp_json_dbl(j, "r2", e.r2);
            pp_json_dbl(j, "mae", e.mae);
            pp_json_dbl(j, "rmse", e.rmse);
        }
        pp_json_end(j);
    }
    pp_json_end(j);
}

static void write_numbers(const struct pp_outcome *o, const char *key, const double *of,
                          struct pp_json *j)
{
    pp_json_array(j, key);
    for (int i = 0; i < o->outputs; i++)
        pp_json_dbl(j, NULL, of[i]);
    pp_json_end(j);
}

static void write_mistakes(const struct pp_outcome *o, struct pp_json *j)
{
    pp_json_array(j, "mistakes");
    for (int i = 0; i < o->n_worst; i++) {
        const struct pp_mistake *m = &o->worst[i];
        pp_json_object(j, NULL);
        pp_json_uint(j, "sample", m->sample);
        if (m->numbers) {
            write_numbers(o, "targets", m->numbers, j);
            write_numbers(o, "predictions", m->numbers + o->outputs, j);
        } else {
            write_name(o, "label", m->label, j);
            write_name(o, "prediction", m->prediction, j);
            pp_json_dbl(j, "probability", m->weight);
        }
        if (m->shown)
            pp_json_raw(j, "shown", m->shown);
        pp_json_end(j);
    }
    pp_json_end(j);
}

int pp_outcome_json(struct pp_outcome *o, struct pp_json *j)
{
    if (o->classes)
        PP_TRY(write_of_classes(o, j));
    else
        write_outputs(o, j);
    write_mistakes(o, j);
    return 0;
}
