/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two results side by side: rows are matched by their axes, and what is said about a difference is
 * how sure the rounds allow to be of it.
 */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "ppcli/sim/sim.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define FILE_MAX ((uint64_t)64 << 20)

#define ROUNDS_MAX 1000

struct values {
    double x[ROUNDS_MAX];
    int n;
};

static int read_result(const char *path, json_t **out)
{
    static const struct pp_json_limits limits = {8, 1 << 20, ROUNDS_MAX};
    char *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    PP_TRY(pp_file_read(path, FILE_MAX, &text, &bytes));
    int rc = pp_json_read(path, text, bytes, &limits, &root);
    pp_free(text);
    PP_TRY(rc);
    const char *type = json_string_value(json_object_get(root, "type"));
    json_int_t schema = json_integer_value(json_object_get(root, "schema"));
    if (!type || strcmp(type, "bench") != 0 || !json_is_array(json_object_get(root, "rows"))) {
        json_decref(root);
        return pp_fail(PP_EFORMAT, "%s: not a result of ppcli bench --format json", path);
    }
    if (schema != PP_BENCH_SCHEMA) {
        json_decref(root);
        return pp_fail(PP_EFORMAT, "%s: schema %lld, this ppcli reads %d", path, (long long)schema,
                       PP_BENCH_SCHEMA);
    }
    *out = root;
    return 0;
}

static const char *read_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}

static bool same_shape(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"stages",       "replicas",   "schedule",
                                       "microbatches", "batch_size", "axes"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if (!x || !y || !json_equal(x, y))
            return false;
    }
    json_t *x = json_object_get(a, "threads"), *y = json_object_get(b, "threads");
    return !x || !y || json_equal(x, y);
}

/* Returns the k-th of the rows with this shape, from 0; NULL if there are not that many. */
static const json_t *find_row(const json_t *rows, const json_t *shape, int k)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (same_shape(row, shape) && k-- == 0)
            return row;
    }
    return NULL;
}

/* Returns how many rows with the same shape come before row `at`. */
static int place_of(const json_t *rows, size_t at)
{
    int k = 0;
    for (size_t i = 0; i < at; i++)
        k += same_shape(json_array_get(rows, i), json_array_get(rows, at));
    return k;
}

/* Reads the speeds of all rounds of a row. Returns false if the row has no valid speeds. */
static bool read_values(const json_t *row, struct values *out)
{
    const json_t *samples = json_object_get(row, "samples");
    out->n = 0;
    for (size_t i = 0; i < json_array_size(samples) && out->n < ROUNDS_MAX; i++) {
        const json_t *s = json_array_get(samples, i);
        double x = json_number_value(json_object_get(s, "samples_per_second"));
        if (!json_is_true(json_object_get(s, "valid")) || !isfinite(x) || x <= 0)
            return false;
        out->x[out->n++] = x;
    }
    const char *check = read_text(row, "check");
    return out->n > 0 && (strcmp(check, "ok") == 0 || strcmp(check, "~") == 0);
}

static double compute_mean(const struct values *v)
{
    double sum = 0;
    for (int i = 0; i < v->n; i++)
        sum += v->x[i];
    return sum / v->n;
}

static void print_verdict(const struct values *a, const struct values *b, char out[128])
{
    double change, low, high;
    if (!pp_bench_change(a->x, a->n, b->x, b->n, &change, &low, &high)) {
        snprintf(out, 128, "%+.1f %% (a single round: no confidence)", change * 100);
    } else if (low <= 0 && high >= 0) {
        snprintf(out, 128, "no difference shown (95 %% confidence: %+.1f .. %+.1f %%)", low * 100,
                 high * 100);
    } else {
        snprintf(out, 128, "%+.1f %% (95 %% confidence: %+.1f .. %+.1f %%)", change * 100,
                 low * 100, high * 100);
    }
}

/* Returns whether the ranks of the row waited for a core while it was measured. */
static bool is_spoiled(const json_t *row)
{
    return json_number_value(json_object_get(row, "waited_for_core")) >= PP_BUBBLE_WAITED;
}

static bool any_spoiled(const json_t *rows)
{
    size_t i = 0;
    while (i < json_array_size(rows) && !is_spoiled(json_array_get(rows, i)))
        i++;
    return i < json_array_size(rows);
}

struct comparison {
    const char *schedule;
    int64_t stages, microbatches, batch_size;
    char speeds[2][32], change[128];
};

#define COMPARED(m) PP_FIELD(struct comparison, m)
static const struct pp_column columns[] = {
    {NULL, "stages", COMPARED(stages)},
    {NULL, "schedule", COMPARED(schedule)},
    {NULL, "micro-batches", COMPARED(microbatches)},
    {NULL, "batch_size", COMPARED(batch_size)},
    {NULL, "old samples/s", COMPARED(speeds[0]), .right = true},
    {NULL, "new samples/s", COMPARED(speeds[1]), .right = true},
    {NULL, "change", COMPARED(change)},
    {0}};

static void compare_row(const json_t *old_rows, const json_t *new_rows, int i, struct values v[2],
                        struct comparison *out)
{
    const json_t *row = json_array_get(new_rows, (size_t)i);
    const json_t *old = find_row(old_rows, row, place_of(new_rows, (size_t)i));
    out->stages = json_integer_value(json_object_get(row, "stages"));
    out->schedule = read_text(row, "schedule");
    out->microbatches = json_integer_value(json_object_get(row, "microbatches"));
    out->batch_size = json_integer_value(json_object_get(row, "batch_size"));
    bool has[2] = {old && read_values(old, &v[0]), read_values(row, &v[1])};
    for (int k = 0; k < 2; k++)
        if (has[k])
            snprintf(out->speeds[k], 32, "%s%.0f", is_spoiled(k == 0 ? old : row) ? "! " : "",
                     compute_mean(&v[k]));
    if (!old) {
        snprintf(out->change, sizeof(out->change), "not in the old file");
    } else if (!has[0] || !has[1]) {
        snprintf(out->change, sizeof(out->change), "nothing to compare: old %.20s, new %.20s",
                 read_text(old, "check"), read_text(row, "check"));
    } else {
        print_verdict(&v[0], &v[1], out->change);
    }
}

static int count_missing(const json_t *old_rows, const json_t *new_rows)
{
    int n = 0;
    for (size_t i = 0; i < json_array_size(old_rows); i++)
        n += !find_row(new_rows, json_array_get(old_rows, i), place_of(old_rows, i));
    return n;
}

static void print_result_head(const char *which, const char *path, const json_t *root, FILE *f)
{
    char line[PP_ERROR_TEXT_MAX];
    snprintf(line, sizeof(line), "- %s: %s: ppcli %s (commit %s), %s, %s, %s", which, path,
             read_text(root, "ppcli"), read_text(root, "commit"), read_text(root, "date"),
             read_text(root, "cpu"), read_text(root, "backend"));
    fprintf(f, "%s\n", pp_text_make_plain(line));
}

static void print_warnings(const json_t *old, const json_t *new, FILE *f)
{
    static const char *const keys[] = {"cpu", "cores", "model", "dataset", "optimizer"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (!json_equal(json_object_get(old, keys[i]), json_object_get(new, keys[i])))
            fprintf(f, "- the two differ in %s: the change is not of the program alone\n", keys[i]);
}

static int compare_results(const char *const paths[2], json_t *const roots[2], FILE *f)
{
    const json_t *old_rows = json_object_get(roots[0], "rows");
    const json_t *new_rows = json_object_get(roots[1], "rows");
    int n = (int)json_array_size(new_rows);
    PP_TAKE(struct values, v, 2);
    PP_TAKE(struct comparison, rows, n);
    for (int i = 0; i < n; i++)
        compare_row(old_rows, new_rows, i, v, &rows[i]);
    print_result_head("old", paths[0], roots[0], f);
    print_result_head("new", paths[1], roots[1], f);
    print_warnings(roots[0], roots[1], f);
    fputc('\n', f);
    pp_listing_print(columns, &(struct pp_listing){rows, sizeof(*rows), n}, PP_LISTING_MARKDOWN, 0,
                     f);
    if (any_spoiled(old_rows) || any_spoiled(new_rows))
        fprintf(f, "\n- !: ranks waited for a core when it was measured: do not trust its speed\n");
    int missing = count_missing(old_rows, new_rows);
    if (missing > 0) {
        fprintf(f, "\n- %d row%s of the old file %s not in the new one\n", missing,
                pp_plural(missing), missing == 1 ? "is" : "are");
    }
    return bench_written(f);
}

int pp_bench_compare(const char *old_path, const char *new_path, FILE *f)
{
    const char *paths[2] = {old_path, new_path};
    json_auto_t *before = NULL, *after = NULL;
    PP_TRY(read_result(old_path, &before));
    PP_TRY(read_result(new_path, &after));
    return compare_results(paths, (json_t *const[]){before, after}, f);
}
