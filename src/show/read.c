/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a run folder to struct pp_report. A file that is absent, damaged or not a file costs its
 * part of the page, which says so; only a folder without any of them is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/watch/diagnose.h"
#include "ppcli/base/files.h"
#include "report.h"

#define LINE_BYTES (1 << 20)
#define EVENTS_MAX 100          /* other records of metrics.jsonl */
#define CONFIG_BYTES (64 << 10) /* of config.resolved.ini */
#define SUMMARY_BYTES (8 << 20) /* of 16,384 ranks and more */
#define BENCH_BYTES (64 << 20)
#define NUMBER_MAX 1e300      /* what is beyond is damage, and would overflow in a picture */
#define RECORDS_MAX (1 << 16) /* of steps, of epochs; then every second one goes */

double report_number(const json_t *object, const char *key)
{
    const json_t *value = object ? json_object_get(object, key) : NULL;
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    return fabs(number) < NUMBER_MAX ? number : NAN;
}

const char *report_text(const json_t *object, const char *key)
{
    const char *text = object ? json_string_value(json_object_get(object, key)) : NULL;
    return text ? text : "";
}

static int read_json(const char *text, size_t bytes, json_t **out)
{
    *out = NULL;
    return pp_json_load(text, bytes, JSON_DECODE_INT_AS_REAL, NULL, out);
}

static int take_line(struct pp_report *r, char *text, struct report_lost *lost,
                     int (*take)(struct pp_report *r, json_t *o))
{
    json_t *o = NULL;
    char *from = text + strspn(text, " \t,[");
    size_t n = strlen(from);
    while (n > 0 && strchr(" \t\r\n,]", from[n - 1]))
        n--;
    if (n == 0)
        return 0;
    PP_TRY(read_json(from, n, &o));
    int rc = json_is_object(o) ? take(r, o) : 1;
    json_decref(o);
    lost->lines += rc > 0;
    lost->last = rc > 0;
    return rc < 0 ? rc : 0;
}

/* Calls take() for every line of a file that holds a JSON object. The objects may form an array,
 * with its commas and brackets. take() returns 1 if an object is damaged. */
static int take_objects(struct pp_report *r, FILE *f, struct report_lost *lost,
                        int (*take)(struct pp_report *r, json_t *o))
{
    PP_TAKE(char, text, LINE_BYTES);
    /* a longer line comes in parts, which are damaged */
    while (fgets(text, LINE_BYTES, f))
        PP_TRY(take_line(r, text, lost, take));
    return ferror(f) ? pp_fail_errno(PP_EIO, "cannot read %s", r->dir) : 0;
}

/* ---- records of metrics.jsonl */

static int no_memory(void)
{
    return pp_fail(PP_ERESOURCE, "report: out of memory");
}

static double loss_of(const json_t *records, size_t i)
{
    const json_t *o = json_array_get(records, i);
    double loss = report_number(o, "loss");
    return isnan(loss) ? report_number(o, "train_loss") : loss;
}

int report_thin(json_t **records)
{
    json_t *kept = json_array();
    size_t n = json_array_size(*records);
    int failed = kept ? 0 : -1;
    for (size_t i = 0; failed == 0 && i < n; i += 4) {
        size_t end = i + 4 < n ? i + 4 : n, least = i, most = i;
        for (size_t k = i; k < end; k++) {
            least = loss_of(*records, k) < loss_of(*records, least) ? k : least;
            most = loss_of(*records, k) > loss_of(*records, most) ? k : most;
        }
        size_t first = least < most ? least : most, second = least < most ? most : least;
        second = second == first || end == n ? end - 1 : second;
        failed = json_array_append(kept, json_array_get(*records, first));
        if (failed == 0 && second > first)
            failed = json_array_append(kept, json_array_get(*records, second));
    }
    if (failed) {
        json_decref(kept);
        return no_memory();
    }
    json_decref(*records);
    *records = kept;
    return 0;
}

/* Removes the records from `from` on: the run went back to an earlier step, so that they do not
 * count. */
static void forget_from(json_t *records, const char *key, double from)
{
    size_t n = json_array_size(records);
    for (; n > 0 && report_number(json_array_get(records, n - 1), key) >= from; n--)
        json_array_remove(records, n - 1);
}

static int add_record(json_t **records, json_t *o)
{
    if (!*records && !(*records = json_array()))
        return no_memory();
    if (json_array_size(*records) >= RECORDS_MAX)
        PP_TRY(report_thin(records));
    return json_array_append(*records, o) == 0 ? 0 : no_memory();
}

static int take_record(struct pp_report *r, json_t *o)
{
    const char *type = report_text(o, "type");
    double step = report_number(o, "step"), epoch = report_number(o, "epoch");
    if (strcmp(type, "step") == 0 || strcmp(type, "epoch") == 0) {
        bool of_step = *type == 's';
        const char *key = of_step ? "step" : "epoch";
        json_t **records = of_step ? &r->steps : &r->epochs;
        if (!((of_step ? step : epoch) >= 0))
            return 1;
        forget_from(*records, key, of_step ? step : epoch);
        return add_record(records, o);
    }
    if (strcmp(type, "header") == 0 && !r->header)
        r->header = json_incref(o);
    if (strcmp(type, "header") == 0 || strcmp(type, "summary") == 0 ||
        json_array_size(r->events) >= EVENTS_MAX)
        return 0;
    if (strcmp(type, "resume") == 0 && step >= 0) {
        forget_from(r->steps, "step", step + 1);
        forget_from(r->epochs, "step", step + 1);
    }
    return add_record(&r->events, o); /* a resume, a rewind, the end: the page gets it as it is */
}

/* ---- the other files */

static int read_summary(struct pp_report *r, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    PP_TRY(pp_file_read(path, SUMMARY_BYTES, &text, &bytes));
    int rc = read_json(text, bytes, &r->summary);
    pp_free(text);
    PP_TRY(rc);
    if (!json_is_object(r->summary)) {
        json_decref(r->summary);
        r->summary = NULL;
        return pp_fail(PP_EFORMAT, "%s is damaged", path);
    }
    return 0;
}

/* Returns the state of a run without a summary, by what the rings of its ranks show now: "running",
 * "killed", "failed" or "stopped"; NULL if that is not known. */
static const char *read_end(const struct pp_report *r)
{
    struct pp_diagnosis d;
    int n[PP_RANK_FAILED + 1] = {0};
    if (pp_diagnosis_open(&d, NULL, 0, r->dir) < 0) {
        pp_error_clear();
        return NULL;
    }
    for (int i = 0; i < d.ranks; i++)
        n[d.views[i].state]++;
    pp_diagnosis_fini(&d);
    return n[PP_RANK_RUNNING] + n[PP_RANK_STOPPED] + n[PP_RANK_TRACED] > 0 ? "running"
           : n[PP_RANK_GONE] > 0                                           ? "killed"
           : n[PP_RANK_FAILED] > 0                                         ? "failed"
           : n[PP_RANK_FINISHED] > 0                                       ? "stopped"
                                                                           : NULL;
}

static int read_objects(struct pp_report *r, const char *path, struct report_lost *lost,
                        int (*take)(struct pp_report *r, json_t *o))
{
    PP_OWN(pp_fclose_at) FILE *f = NULL;
    uint64_t bytes = 0;
    PP_TRY(pp_file_open(path, &f, &bytes));
    return take_objects(r, f, lost, take);
}

static int read_file(struct pp_report *r, enum report_file which)
{
    static const char *const names[REPORT_FILES] = {"summary.json", "metrics.jsonl",
                                                    "config.resolved.ini", "timeline.json"};
    char path[PP_PATH_MAX];
    size_t bytes = 0;
    PP_TRY(pp_path_format(path, "%s/%s", r->dir, names[which]));
    return which == REPORT_SUMMARY ? read_summary(r, path)
           : which == REPORT_CONFIG
               ? pp_file_read(path, CONFIG_BYTES, &r->config, &bytes)
               : read_objects(r, path, &r->lost[which],
                              which == REPORT_METRICS ? take_record : report_take_event);
}

static int read_folder(struct pp_report *r)
{
    int found = 0;
    struct pp_error cause = {0};
    for (int i = 0; i < REPORT_FILES; i++) {
        int rc = read_file(r, (enum report_file)i);
        found += rc == 0 && i != REPORT_TIMELINE;
        if (rc == PP_ERESOURCE)
            return rc;
        r->lost[i].absent = rc == PP_ENOINPUT;
        if (rc < 0 && rc != PP_ENOINPUT) {
            cause = cause.code == 0 ? *pp_error_get() : cause;
            r->lost[i].why = pp_strdup(pp_error_get()->text);
        }
    }
    if (found == 0) {
        return cause.code < 0 ? pp_error_adopt(&cause)
                              : pp_fail(PP_ENOINPUT,
                                        "%s is not a run folder: it has no metrics.jsonl, "
                                        "summary.json or config.resolved.ini",
                                        r->dir);
    }
    pp_error_clear();
    r->end = r->summary ? NULL : read_end(r);
    return 0;
}

static int read_trace(struct pp_report *r, FILE *f)
{
    PP_TRY(take_objects(r, f, &r->lost[REPORT_TIMELINE], report_take_event));
    return r->measured.n + r->simulated.n > 0
               ? 0
               : pp_fail(PP_EFORMAT, "%s is neither a run folder nor a trace", r->dir);
}

/* Reads the JSON of `ppcli bench` without the samples of its rows. */
static int read_bench(struct pp_report *r)
{
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0, i;
    json_t *row;
    PP_TRY(pp_file_read(r->dir, BENCH_BYTES, &text, &bytes));
    PP_TRY(read_json(text, bytes, &r->bench));
    json_array_foreach(json_object_get(r->bench, "rows"), i, row) json_object_del(row, "samples");
    return json_array_size(json_object_get(r->bench, "rows")) > 0
               ? 0
               : pp_fail(PP_EFORMAT, "%s: not a result of ppcli bench --format json", r->dir);
}

static int read_path(struct pp_report *r)
{
    struct stat st;
    char head[64] = "";
    PP_OWN(pp_fclose_at) FILE *f = NULL;
    uint64_t bytes = 0;
    if (stat(r->dir, &st) == 0 && S_ISDIR(st.st_mode))
        return read_folder(r);
    PP_TRY(pp_file_open(r->dir, &f, &bytes));
    bool bench = fread(head, 1, sizeof(head) - 1, f) > 0 && strstr(head, "\"type\": \"bench\"");
    rewind(f);
    return bench ? read_bench(r) : read_trace(r, f);
}

/* ---- life */

/* Opens a report of what `f` holds or, if that is NULL, of the file or folder `path`. */
static int open_report(const char *path, FILE *f, struct pp_report **out)
{
    struct pp_report *r;
    PP_ALLOC(r, 1);
    snprintf(r->dir, sizeof(r->dir), "%s", path);
    /* so that "." has a name too */
    int rc = f || realpath(path, r->dir) ? 0 : pp_fail_errno(0, "cannot read run folder %s", path);
    if (rc == 0) {
        const char *slash = strrchr(r->dir, '/');
        r->name = !f && slash && slash[1] ? slash + 1 : r->dir;
        rc = f ? read_trace(r, f) : read_path(r);
    }
    PP_TRY_UNDO(rc, pp_report_close(&r));
    report_end_timeline(r);
    *out = r;
    return 0;
}

int pp_report_open(const char *path, struct pp_report **out)
{
    return open_report(path, NULL, out);
}

int report_open_trace(FILE *f, const char *name, struct pp_report **out)
{
    return open_report(name, f, out);
}

void pp_report_close(struct pp_report **report)
{
    struct pp_report *r = *report;
    if (!r)
        return;
    json_decref(r->header);
    json_decref(r->summary);
    json_decref(r->steps);
    json_decref(r->epochs);
    json_decref(r->events);
    json_decref(r->timeline);
    json_decref(r->bench);
    for (int i = 0; i < REPORT_FILES; i++)
        pp_free(r->lost[i].why);
    pp_free(r->config);
    pp_free(r->measured.slices);
    pp_free(r->simulated.slices);
    pp_free(r);
    *report = NULL;
}
