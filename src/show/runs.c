/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many run folders as one table: a row for each run with the keys in which the runs differ and with
 * its results; then, for each group of runs that differ in train.seed only, the mean and the
 * standard deviation. The columns follow from the runs, so they are made here and not in a constant.
 */
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/conf/config.h"
#include "ppcli/show/columns.h"
#include "report.h"

#define RESULTS_MAX 64
#define SHORT_DIGEST 12 /* digits of a digest in a table for people */

/* The results besides those that begin with test_, train_ or best_, in the order of the table. */
static const struct {
    const char *key, *format; /* format NULL: not in a table for people */
} others[] = {{"samples_per_second", PP_COMMAS},
              {"tokens_per_second", PP_COMMAS},
              {"bubble_measured", NULL},
              {"grad_norm", NULL},
              {"grad_norm_max", NULL},
              {"clipped_share", NULL},
              {"epochs", NULL},
              {"steps", "%.0f"},
              {"train_seconds", "%.4g"},
              {"test_seconds", NULL},
              {"save_seconds", NULL},
              {"input_wait_seconds", NULL},
              {"wall_seconds", NULL}};

struct run {
    char *path, *state; /* owned */
    char **values;      /* [keys]; owned */
    json_t *results;    /* owned */
    int group;          /* counted from 1 */
};

struct runs {
    struct run *runs; /* [n]; owned */
    int n, n_keys;
    int *differs; /* [n_differs] numbers of keys; owned */
    int n_differs;
    char results[RESULTS_MAX][PP_NAME_MAX];
    int n_results;
};

/* A row has n_texts texts, and then the results. */
union cell {
    const char *text;
    double number;
};
enum {
    ROW_KIND,
    ROW_RUN,
    ROW_STATE,
    ROW_DIGEST,
    ROW_SHORT_DIGEST,
    ROW_GROUP, /* a number */
    ROW_KEYS
};

static void free_runs(struct runs *t)
{
    for (int i = 0; t->runs && i < t->n; i++) {
        struct run *r = &t->runs[i];
        for (int k = 0; r->values && k < t->n_keys; k++)
            pp_free(r->values[k]);
        pp_free(r->values);
        pp_free(r->path);
        pp_free(r->state);
        json_decref(r->results);
    }
    pp_free(t->runs);
    pp_free(t->differs);
}

/* ---- one run */

static int copy_values(const char *config, struct run *r, int n_keys)
{
    PP_TAKE(char, value, PP_CONFIG_VALUE_MAX);
    PP_ALLOC(r->values, n_keys);
    for (int k = 0; k < n_keys; k++) {
        value[0] = '\0';
        if (config)
            pp_config_written(config, pp_config_key_name(k), value, PP_CONFIG_VALUE_MAX);
        r->values[k] = pp_strdup(value);
        PP_TRY(r->values[k] ? 0 : PP_ERESOURCE);
    }
    return 0;
}

/* Returns the results of a run without a summary: the last epoch, whose step and number are those of
 * the run so far. */
static json_t *results_of_epoch(const struct pp_report *r)
{
    size_t n = json_array_size(r->epochs);
    json_t *o = n > 0 ? json_copy(json_array_get(r->epochs, n - 1)) : json_object();
    json_t *step = json_object_get(o, "step"), *epoch = json_object_get(o, "epoch");
    if (step)
        json_object_set(o, "steps", step);
    if (epoch)
        json_object_set(o, "epochs", epoch);
    return o;
}

/* Adds the best epoch, which is an object of the summary, to the results. */
static void add_best(json_t *results)
{
    const json_t *best = json_object_get(results, "best");
    char key[PP_NAME_MAX];
    if (!best)
        return;
    snprintf(key, sizeof(key), "best_%s", report_text(best, "metric"));
    json_object_set_new(results, key, json_real(report_number(best, "value")));
    json_object_set_new(results, "best_step", json_real(report_number(best, "step")));
}

static int take_run(const struct pp_report *report, const char *path, struct run *r, int n_keys)
{
    size_t n = strlen(path);
    if (report->bench || (!report->config && !report->summary && !report->header)) {
        return pp_fail(PP_EUSAGE, "%s is not a run folder, and --table lists only run folders",
                       path);
    }
    while (n > 1 && path[n - 1] == '/')
        n--;
    r->path = pp_strdup(path);
    r->state = pp_strdup(report->summary ? "finished" : report->end ? report->end : "unfinished");
    r->results = report->summary ? json_incref(report->summary) : results_of_epoch(report);
    PP_TRY(r->path && r->state && r->results ? 0 : PP_ERESOURCE);
    r->path[n] = '\0';
    add_best(r->results);
    return copy_values(report->config, r, n_keys);
}

static int read_run(const char *path, struct run *r, int n_keys)
{
    PP_OWN(pp_report_close) struct pp_report *report = NULL;
    PP_TRY(pp_report_open(path, &report));
    for (int i = 0; i < REPORT_TIMELINE; i++)
        if (report->lost[i].why)
            pp_log_warn("%s: the row of this run is incomplete", report->lost[i].why);
    return take_run(report, path, r, n_keys);
}

/* ---- the columns */

/* Finds the keys whose values differ. The run folder itself is not one: the row names it. */
static int find_differences(struct runs *t)
{
    PP_ALLOC(t->differs, t->n_keys);
    for (int k = 0; k < t->n_keys; k++) {
        bool same = true;
        for (int i = 1; i < t->n; i++)
            same = same && strcmp(t->runs[i].values[k], t->runs[0].values[k]) == 0;
        if (!same && strcmp(pp_config_key_name(k), "run.dir") != 0)
            t->differs[t->n_differs++] = k;
    }
    return 0;
}

static void add_result(struct runs *t, const char *key)
{
    for (int i = 0; i < t->n_results; i++)
        if (strcmp(t->results[i], key) == 0)
            return;
    if (t->n_results < RESULTS_MAX && strlen(key) < PP_NAME_MAX)
        snprintf(t->results[t->n_results++], PP_NAME_MAX, "%s", key);
}

static const char *format_of(const char *key)
{
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(others[i].key, key) == 0)
            return others[i].format;
    bool omitted = strcmp(key, "best_step") == 0 ||
                   (strncmp(key, "train_", 6) == 0 && strcmp(key, "train_loss") != 0);
    return omitted ? NULL : "%.5g";
}

static bool is_metric(const char *key)
{
    bool seconds = strstr(key, "_seconds") != NULL;
    return !seconds && (strncmp(key, "test_", 5) == 0 || strncmp(key, "train_", 6) == 0 ||
                        strncmp(key, "best_", 5) == 0);
}

/* Finds the results that the runs have: first the metrics, in the order of the summaries. */
static void find_results(struct runs *t)
{
    const char *key;
    json_t *value;
    for (int i = 0; i < t->n; i++)
        json_object_foreach(t->runs[i].results, key,
                            value) if (is_metric(key) && json_is_number(value)) add_result(t, key);
    for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
        for (int i = 0; i < t->n; i++)
            if (!isnan(report_number(t->runs[i].results, others[k].key)))
                add_result(t, others[k].key);
}

/* Numbers the groups: runs of a group differ in train.seed only. */
static void find_groups(struct runs *t)
{
    int groups = 0;
    for (int i = 0; i < t->n; i++) {
        struct run *r = &t->runs[i];
        for (int j = 0; j < i && r->group == 0; j++) {
            bool same = true;
            for (int d = 0; d < t->n_differs && same; d++)
                same = strcmp(pp_config_key_name(t->differs[d]), "train.seed") == 0 ||
                       strcmp(r->values[t->differs[d]], t->runs[j].values[t->differs[d]]) == 0;
            r->group = same ? t->runs[j].group : 0;
        }
        if (r->group == 0)
            r->group = ++groups;
    }
}

static struct pp_column column_at(int cell, enum pp_cell_kind kind, const char *key,
                                  const char *title)
{
    return (struct pp_column){.key = key,
                              .title = title,
                              .kind = kind,
                              .offset = (size_t)cell * sizeof(union cell),
                              .optional = true};
}

/* Makes columns[], which need 7 elements more than there are keys and results. */
static void make_columns(const struct runs *t, struct pp_column *columns)
{
    struct pp_column *c = columns;
    int results = ROW_KEYS + t->n_differs;
    *c++ = column_at(ROW_KIND, PP_CELL_TEXT, "kind", NULL);
    *c++ = column_at(ROW_RUN, PP_CELL_TEXT, "run", "run");
    *c++ = column_at(ROW_GROUP, PP_CELL_REAL, "group", NULL);
    for (int d = 0; d < t->n_differs; d++) {
        const char *key = pp_config_key_name(t->differs[d]);
        *c++ = column_at(ROW_KEYS + d, PP_CELL_TEXT, key, key);
    }
    *c++ = column_at(ROW_STATE, PP_CELL_TEXT, "state", "state");
    for (int i = 0; i < t->n_results; i++) {
        const char *key = t->results[i], *format = format_of(key);
        *c = column_at(results + i, PP_CELL_REAL, key, format ? key : NULL);
        c++->format = format;
    }
    *c++ = column_at(ROW_DIGEST, PP_CELL_TEXT, "weights_sha256", NULL);
    *c++ = column_at(ROW_SHORT_DIGEST, PP_CELL_TEXT, NULL, "weights");
}

/* ---- the rows */

static void fill_run(const struct runs *t, const struct run *r, union cell *row, char *digest)
{
    const char *weights = report_text(r->results, "weights_sha256");
    snprintf(digest, SHORT_DIGEST + 1, "%s", weights);
    row[ROW_KIND].text = "run";
    row[ROW_RUN].text = r->path;
    row[ROW_STATE].text = r->state;
    row[ROW_DIGEST].text = weights;
    row[ROW_SHORT_DIGEST].text = digest;
    row[ROW_GROUP].number = r->group;
    for (int d = 0; d < t->n_differs; d++)
        row[ROW_KEYS + d].text = r->values[t->differs[d]];
    for (int i = 0; i < t->n_results; i++)
        row[ROW_KEYS + t->n_differs + i].number = report_number(r->results, t->results[i]);
}

static bool is_member(const struct run *r, int group)
{
    return r->group == group && strcmp(r->state, "finished") == 0;
}

/* Computes the mean of a result over the finished runs of a group, and the standard deviation of a
 * sample, which divides by n - 1. Without two values the deviation is NAN. */
static void take_moments(const struct runs *t, int group, const char *key, double *mean,
                         double *deviation)
{
    double first = NAN, sum = 0, squares = 0; /* the sum of differences from the first value */
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        double x = report_number(t->runs[i].results, key);
        if (is_member(&t->runs[i], group) && !isnan(x)) {
            first = n++ == 0 ? x : first;
            sum += x - first;
        }
    }
    *mean = n > 0 ? first + sum / n : NAN;
    for (int i = 0; i < t->n; i++) {
        double x = report_number(t->runs[i].results, key);
        if (is_member(&t->runs[i], group) && !isnan(x))
            squares += (x - *mean) * (x - *mean);
    }
    *deviation = n > 1 ? sqrt(squares / (n - 1)) : NAN;
}

/* Fills the two rows of a group, whose first finished run is `r`. `words` has their names. */
static void fill_group(const struct runs *t, const struct run *r, union cell *mean,
                       union cell *deviation, const char *const words[2])
{
    char none[SHORT_DIGEST + 1];
    union cell *rows[2] = {mean, deviation};
    for (int k = 0; k < 2; k++) {
        fill_run(t, r, rows[k], none);
        rows[k][ROW_KIND].text = k == 0 ? "mean" : "sd";
        rows[k][ROW_RUN].text = words[k];
        rows[k][ROW_STATE].text = rows[k][ROW_DIGEST].text = rows[k][ROW_SHORT_DIGEST].text = "";
        for (int d = 0; d < t->n_differs; d++)
            if (strcmp(pp_config_key_name(t->differs[d]), "train.seed") == 0)
                rows[k][ROW_KEYS + d].text = "";
    }
    for (int i = 0; i < t->n_results; i++) {
        int at = ROW_KEYS + t->n_differs + i;
        take_moments(t, r->group, t->results[i], &mean[at].number, &deviation[at].number);
    }
}

static int print_rows(const struct runs *t, enum pp_listing_form form, FILE *f)
{
    int width = ROW_KEYS + t->n_differs + t->n_results, n = t->n;
    PP_TAKE(struct pp_column, columns, 7 + t->n_differs + t->n_results);
    PP_TAKE(union cell, cells, 3 * (size_t)t->n * (size_t)width);
    PP_TAKE(char, digests, t->n *(SHORT_DIGEST + 1));
    PP_TAKE(char, names, 2 * t->n * 32);
    make_columns(t, columns);
    for (int i = 0; i < t->n; i++)
        fill_run(t, &t->runs[i], cells + (size_t)i * (size_t)width,
                 digests + (size_t)i * (SHORT_DIGEST + 1));
    for (int i = 0; i < t->n; i++) {
        const struct run *r = &t->runs[i];
        int members = 0;
        bool first = is_member(r, r->group);
        for (int j = 0; j < t->n; j++) {
            members += is_member(&t->runs[j], r->group);
            first = first && (j >= i || !is_member(&t->runs[j], r->group));
        }
        if (!first || members < 2)
            continue;
        char *at = names + (size_t)(n - t->n) * 32, *words[2] = {at, at + 32};
        snprintf(words[0], 32, "mean of %d", members);
        snprintf(words[1], 32, "sd of %d", members);
        union cell *mean = cells + (size_t)n * (size_t)width;
        fill_group(t, r, mean, mean + width, (const char *const *)words);
        n += 2;
    }
    pp_listing_print(columns, &(struct pp_listing){cells, (size_t)width * sizeof(*cells), n}, form,
                     0, f);
    return 0;
}

int pp_runs_print(const char *const *paths, int n, enum pp_listing_form form, FILE *f)
{
    PP_OWN(free_runs) struct runs t = {.n_keys = pp_config_key_count()};
    PP_ALLOC(t.runs, n);
    t.n = n;
    for (int i = 0; i < n; i++)
        PP_TRY(read_run(paths[i], &t.runs[i], t.n_keys));
    PP_TRY(find_differences(&t));
    find_results(&t);
    find_groups(&t);
    return print_rows(&t, form, f);
}
