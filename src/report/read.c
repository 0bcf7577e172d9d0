/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a run folder to struct pp_report. A file that is absent, damaged or not a file costs its
 * part of the page and a sentence; only a folder without any of them is refused.
 */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/err.h"
#include "ppcli/json_in.h"
#include "ppcli/mem.h"

#define LINE_BYTES (1 << 20)
#define SUMMARY_BYTES (8 << 20) /* of 16,384 ranks and more */
#define NUMBER_MAX 1e300        /* what is beyond is damage, and would overflow in a picture */
#define ROWS_MAX (1 << 22)      /* log lines kept */

void report_note(struct pp_report *r, const char *fmt, ...)
{
    char text[PP_ERROR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (r->n_notes < REPORT_NOTES_MAX && (r->notes[r->n_notes] = pp_strdup(text))) {
        r->n_notes++;
    }
}

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

void *report_grow(void *array, int n, int *capacity, size_t size)
{
    if (n < *capacity) {
        return array;
    }
    int wanted = *capacity ? 2 * *capacity : 64;
    void *bigger = pp_realloc(array, (size_t)wanted, size);
    if (bigger) {
        *capacity = wanted;
    }
    return bigger;
}

/* --- files --------------------------------------------------------------------------------------
 */

int report_lines(const char *path, int (*line)(void *ctx, char *text, size_t bytes), void *ctx)
{
    FILE *f = NULL;
    uint64_t bytes = 0;
    PP_TRY(pp_file_open(path, &f, &bytes));
    char *text = pp_alloc(1, LINE_BYTES + 1);
    int rc = text ? 0 : PP_ERESOURCE;
    size_t n = 0;
    for (int c = 0; rc == 0 && c != EOF;) {
        c = getc_unlocked(f);
        if (c != EOF && c != '\n') {
            if (n < LINE_BYTES) {
                text[n] = (char)c;
            }
            n += n < SIZE_MAX;
        } else if (n > 0 || c == '\n') {
            text[n <= LINE_BYTES ? n : 0] = '\0';
            rc = line(ctx, n <= LINE_BYTES ? text : NULL, n);
            n = 0;
        }
    }
    if (rc == 0 && ferror(f)) {
        rc = pp_fail_errno(PP_EIO, "cannot read %s", path);
    }
    pp_free(text);
    fclose(f);
    return rc;
}

int report_json(const char *text, size_t bytes, json_t **out)
{
    *out = NULL;
    return text ? pp_json_load(text, bytes, JSON_DECODE_INT_AS_REAL, NULL, out) : 0;
}

/* --- metrics.jsonl ------------------------------------------------------------------------------
 */

struct reader {
    struct pp_report *r;
    int64_t damaged, kept;
    bool last_damaged;
};

/* A resumed run goes back to its checkpoint: what had been recorded beyond it did not count. */
static void forget_from(struct pp_report *r, double step)
{
    while (r->n_steps > 0 && r->steps[r->n_steps - 1].step >= step) {
        r->n_steps--;
    }
    while (r->n_epochs > 0 && r->epochs[r->n_epochs - 1].step >= step) {
        r->n_epochs--;
    }
}

static int add_step(struct pp_report *r, const json_t *o)
{
    struct report_step s = {
        .step = report_number(o, "step"),
        .epoch = report_number(o, "epoch"),
        .loss = report_number(o, "loss"),
        .accuracy = report_number(o, "accuracy"),
        .lr = report_number(o, "lr"),
        .sps = report_number(o, "samples_per_second"),
        .bubble = report_number(o, "bubble_measured"),
        .seconds = report_number(o, "seconds"),
    };
    if (isnan(s.step) || s.step < 0) {
        return 1;
    }
    forget_from(r, s.step);
    void *grown = report_grow(r->steps, r->n_steps, &r->steps_capacity, sizeof(*r->steps));
    if (!grown) {
        return PP_ERESOURCE;
    }
    r->steps = grown;
    r->steps[r->n_steps++] = s;
    return 0;
}

static int add_epoch(struct pp_report *r, const json_t *o)
{
    struct report_epoch e = {
        .step = report_number(o, "step"),
        .epoch = report_number(o, "epoch"),
        .loss = report_number(o, "train_loss"),
        .accuracy = report_number(o, "train_accuracy"),
        .test_loss = report_number(o, "test_loss"),
        .test_accuracy = report_number(o, "test_accuracy"),
        .sps = report_number(o, "samples_per_second"),
        .bubble = report_number(o, "bubble_measured"),
        .seconds = report_number(o, "seconds"),
    };
    if (isnan(e.epoch) || e.epoch < 0) {
        return 1;
    }
    while (r->n_epochs > 0 && r->epochs[r->n_epochs - 1].epoch >= e.epoch) {
        r->n_epochs--;
    }
    void *grown = report_grow(r->epochs, r->n_epochs, &r->epochs_capacity, sizeof(*r->epochs));
    if (!grown) {
        return PP_ERESOURCE;
    }
    r->epochs = grown;
    r->epochs[r->n_epochs++] = e;
    return 0;
}

static int metrics_line(void *ctx, char *text, size_t bytes)
{
    struct reader *rd = ctx;
    if (bytes == 0 || rd->kept > ROWS_MAX) {
        return 0;
    }
    json_t *o = NULL;
    PP_TRY(report_json(text, bytes, &o));
    const char *type = report_text(o, "type");
    int rc = 0;
    if (strcmp(type, "step") == 0) {
        rc = add_step(rd->r, o);
    } else if (strcmp(type, "epoch") == 0) {
        rc = add_epoch(rd->r, o);
    } else if (strcmp(type, "header") == 0 && !rd->r->header) {
        rd->r->header = json_incref(o);
    } else if (!json_is_object(o)) {
        rc = 1;
    }
    json_decref(o);
    rd->damaged += rc > 0;
    rd->last_damaged = rc > 0;
    rd->kept++;
    return rc < 0 ? rc : 0;
}

/* Older runs do not tell at which step an epoch ended. */
static void place_epochs(struct pp_report *r)
{
    double per_epoch = report_number(r->summary, "steps") / report_number(r->summary, "epochs");
    for (int i = r->n_steps - 1; i >= 0 && !(per_epoch >= 1); i--) {
        if (r->steps[i].epoch > 1) { /* the first of an epoch tells how many were before */
            per_epoch = r->steps[i].step / r->steps[i].epoch;
        }
    }
    for (int i = 0; i < r->n_epochs; i++) {
        struct report_epoch *e = &r->epochs[i];
        if (isnan(e->step)) {
            e->step = per_epoch >= 1 ? e->epoch * per_epoch : e->epoch;
        }
    }
}

int report_read_metrics(struct pp_report *r)
{
    char path[PP_PATH_MAX];
    struct reader rd = {.r = r};
    PP_TRY(pp_path_format(path, "%s/metrics.jsonl", r->dir));
    PP_TRY(report_lines(path, metrics_line, &rd));
    if (rd.damaged > 0 && rd.last_damaged) {
        report_note(r, "The last line of metrics.jsonl is not whole: the run ended in the middle "
                       "of it.");
        rd.damaged--;
    }
    if (rd.damaged > 0) {
        report_note(r, "%lld line%s of metrics.jsonl could not be read and %s left out.",
                    (long long)rd.damaged, rd.damaged == 1 ? "" : "s",
                    rd.damaged == 1 ? "is" : "are");
    }
    if (rd.kept > ROWS_MAX) {
        report_note(r, "Only the first %d lines of metrics.jsonl are shown.", ROWS_MAX);
    }
    return 0;
}

/* --- summary.json -------------------------------------------------------------------------------
 */

static int read_ranks(struct pp_report *r)
{
    static const char *const names[REPORT_OTHER] = {"parameter_bytes",  "packed_bytes",
                                                    "gradient_bytes",   "optimizer_bytes",
                                                    "activation_bytes", "message_bytes"};
    const json_t *list = json_object_get(r->summary, "ranks");
    size_t n = json_array_size(list); /* 0 for what is no array */
    if (n == 0) {
        return 0;
    }
    r->ranks = pp_alloc(n, sizeof(*r->ranks));
    if (!r->ranks) {
        return PP_ERESOURCE;
    }
    r->n_ranks = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);
        struct report_rank *k = &r->ranks[i];
        double known = 0;
        k->replica = report_number(o, "replica");
        k->stage = report_number(o, "stage");
        k->busy = report_number(o, "busy");
        k->total = report_number(o, "peak_bytes");
        for (int p = 0; p < REPORT_OTHER; p++) {
            double bytes = report_number(o, names[p]);
            k->parts[p] = bytes > 0 ? bytes : 0;
            known += k->parts[p];
        }
        /* gaps between blocks are not worth a colour */
        double other = k->total - known;
        k->parts[REPORT_OTHER] = other > 0.01 * k->total ? other : 0;
    }
    return 0;
}

int report_read_summary(struct pp_report *r)
{
    char path[PP_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    json_t *o = NULL;
    PP_TRY(pp_path_format(path, "%s/summary.json", r->dir));
    PP_TRY(pp_file_read(path, SUMMARY_BYTES, &text, &bytes));
    int rc = report_json(text, bytes, &o);
    pp_free(text);
    PP_TRY(rc);
    if (!json_is_object(o)) {
        json_decref(o);
        return pp_fail(PP_EFORMAT, "%s is damaged", path);
    }
    r->summary = o;
    return read_ranks(r);
}

/* --- life ---------------------------------------------------------------------------------------
 */

static int check_folder(const char *dir)
{
    struct stat st;
    if (stat(dir, &st) != 0) {
        return pp_fail_errno(0, "cannot read run folder %s", dir);
    }
    return S_ISDIR(st.st_mode) ? 0
                               : pp_fail(PP_ENOINPUT,
                                         "%s is not a folder: give the folder that a training left "
                                         "(ppcli train prints its name)",
                                         dir);
}

/* What is missing is told once; what is there and cannot be read is told with its reason. */
static int read_all(struct pp_report *r)
{
    static int (*const readers[])(struct pp_report *) = {report_read_summary, report_read_metrics,
                                                         report_read_config, report_read_timeline};
    static const char *const absent[] = {
        NULL, /* said at the top of the page */
        "There is no metrics.jsonl, so there are no curves.",
        "There is no config.resolved.ini, so the config is not shown.",
        "There is no timeline.json, which a run leaves at its end, so no step of the pipeline is "
        "shown.",
    };
    int found = 0, first = 0;
    struct pp_error cause = {0};
    for (int i = 0; i < 4; i++) {
        int rc = readers[i](r);
        found += rc == 0 && i < 3;
        if (rc == PP_ERESOURCE) {
            return rc;
        }
        if (rc < 0 && rc != PP_ENOINPUT && first == 0) {
            first = rc;
            cause = *pp_error_get();
        }
        if (rc < 0 && rc != PP_ENOINPUT) {
            report_note(r, "Left out: %s.", pp_error_get()->text);
        } else if (rc < 0 && absent[i]) {
            report_note(r, "%s", absent[i]);
        }
    }
    if (found > 0) {
        pp_error_clear();
        return 0;
    }
    if (first < 0) {
        return pp_error_adopt(&cause);
    }
    return pp_fail(PP_ENOINPUT,
                   "%s is no run folder: it has no metrics.jsonl, summary.json or "
                   "config.resolved.ini",
                   r->dir);
}

int pp_report_open(const char *dir, struct pp_report **out)
{
    PP_TRY(check_folder(dir));
    struct pp_report *r = pp_alloc(1, sizeof(*r));
    if (!r) {
        return PP_ERESOURCE;
    }
    /* so that "." has a name too */
    int rc = realpath(dir, r->dir) ? 0 : pp_fail_errno(0, "cannot read run folder %s", dir);
    if (rc == 0) {
        const char *slash = strrchr(r->dir, '/');
        r->name = slash && slash[1] ? slash + 1 : r->dir;
        rc = read_all(r);
    }
    if (rc < 0) {
        pp_report_close(&r);
        return rc;
    }
    place_epochs(r);
    r->end = r->summary ? REPORT_END_UNKNOWN : report_read_end(r);
    *out = r;
    return 0;
}

void pp_report_close(struct pp_report **report)
{
    struct pp_report *r = *report;
    if (!r) {
        return;
    }
    json_decref(r->header);
    json_decref(r->summary);
    json_decref(r->timeline.head);
    for (int i = 0; i < r->n_keys; i++) {
        pp_free(r->keys[i].name);
        pp_free(r->keys[i].value);
        pp_free(r->keys[i].origin);
    }
    for (int i = 0; i < r->n_notes; i++) {
        pp_free(r->notes[i]);
    }
    pp_free(r->keys);
    pp_free(r->steps);
    pp_free(r->epochs);
    pp_free(r->ranks);
    pp_free(r->timeline.measured.slices);
    pp_free(r->timeline.simulated.slices);
    pp_free(r);
    *report = NULL;
}
