/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of the runs as one JSON object in the page of share/report/, which is part of the
 * program. The data is in a <script> that is not run, so it may hold no '<'.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "report.h"

#define VALUE_BYTES (64 << 10)    /* of a header, a summary, the events */
#define ITEMS_MAX 256             /* of a list of ranks */
#define RECORDS_BUDGET 1600       /* records on a page */
#define HALVES_BUDGET (230 << 10) /* bytes of all steps on a page */

extern const char report_page_head[], report_page_tail[]; /* made of share/report/ */

double report_short(double value)
{
    char text[40];
    snprintf(text, sizeof(text), "%.6g", value);
    return strtod(text, NULL);
}

/* Writes a value as it was read, but with long lists cut. Writes null if it is absent or too
 * large. */
static int put_value(const char *key, json_t *value, struct pp_json *j)
{
    size_t flags = JSON_COMPACT;
    const char *name;
    json_t *item;
    PP_OWN_MEMORY char *text = NULL;
    json_object_foreach(value, name, item)
    {
        while (json_array_size(item) > ITEMS_MAX)
            json_array_remove(item, json_array_size(item) - 1);
    }
    size_t bytes = value ? json_dumpb(value, NULL, 0, flags) : 0;
    if (value && bytes == 0)
        return pp_fail(PP_ERESOURCE, "report: out of memory");
    if (bytes > 0 && bytes <= VALUE_BYTES) {
        text = pp_alloc(bytes + 1, 1);
        if (!text)
            return PP_ERESOURCE;
        (void)json_dumpb(value, text, bytes, flags);
    }
    pp_json_raw(j, key, text ? text : "null");
    return 0;
}

/* Returns whether a record has a number of this name. */
static bool has_number(json_t *records, const char *key)
{
    for (size_t i = 0; i < json_array_size(records); i++)
        if (isfinite(report_number(json_array_get(records, i), key)))
            return true;
    return false;
}

/* Writes one list for each key: its value in every record; an empty one if no record has it. */
static int put_records(const char *key, json_t **records, size_t most, struct pp_json *j)
{
    static const char *const keys[] = {"step",
                                       "epoch",
                                       "loss",
                                       "train_loss",
                                       "accuracy",
                                       "train_accuracy",
                                       "test_loss",
                                       "test_accuracy",
                                       "r2",
                                       "train_r2",
                                       "test_r2",
                                       "train_mae",
                                       "test_mae",
                                       "train_rmse",
                                       "test_rmse",
                                       "lr",
                                       "samples_per_second",
                                       "tokens_per_second",
                                       "test_perplexity",
                                       "train_perplexity",
                                       "perplexity",
                                       "bubble_measured",
                                       "grad_norm",
                                       "clipped_share",
                                       "seconds"};
    while (json_array_size(*records) > most)
        PP_TRY(report_thin(records));
    pp_json_object(j, key);
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        const size_t n = has_number(*records, keys[k]) ? json_array_size(*records) : 0;
        pp_json_array(j, keys[k]);
        for (size_t i = 0; i < n; i++) {
            double value = report_number(json_array_get(*records, i), keys[k]);
            pp_json_dbl(j, NULL, k == 0 ? value : report_short(value));
        }
        pp_json_end(j);
    }
    pp_json_end(j);
    return 0;
}

/* Writes for every file of the run what is missing in it. */
static void put_lost(const struct pp_report *r, struct pp_json *j)
{
    pp_json_array(j, "lost");
    for (int i = 0; i < REPORT_FILES; i++) {
        const struct report_lost *lost = &r->lost[i];
        pp_json_object(j, NULL);
        pp_json_bool(j, "absent", lost->absent);
        pp_json_str(j, "why", lost->why);
        pp_json_int(j, "lines", lost->lines);
        pp_json_bool(j, "last", lost->last);
        pp_json_int(j, "beyond", lost->beyond);
        pp_json_end(j);
    }
    pp_json_end(j);
}

static int put_run(struct pp_report *r, int runs, struct pp_json *j)
{
    size_t budget = (size_t)(HALVES_BUDGET / (r->measured.n && r->simulated.n ? 2 : 1) / runs);
    pp_json_object(j, NULL);
    pp_json_str(j, "name", r->name);
    pp_json_str(j, "path", r->dir);
    pp_json_str(j, "end", r->end);
    PP_TRY(put_value("header", r->header, j));
    PP_TRY(put_value("summary", r->summary, j));
    PP_TRY(put_value("events", r->events, j));
    PP_TRY(put_value("timeline", r->timeline, j));
    PP_TRY(put_records("steps", &r->steps, RECORDS_BUDGET / (size_t)runs, j));
    PP_TRY(put_records("epochs", &r->epochs, RECORDS_BUDGET / 2 / (size_t)runs, j));
    pp_json_str(j, "config", r->config);
    PP_TRY(report_put_half("measured", &r->measured, budget, j));
    PP_TRY(report_put_half("simulated", &r->simulated, budget, j));
    put_lost(r, j);
    pp_json_end(j);
    return 0;
}

/* Writes the result of a benchmark: pictures of speed and bubble over each key that varies, and the
 * rows. */
static int put_sweep(struct pp_report *r, struct pp_json *j)
{
    static const struct pp_look plain = {.width = 0};
    pp_json_array(j, "pictures");
    for (int i = 0; i < 2 * REPORT_SWEEP_KEYS; i++) {
        PP_OWN_MEMORY char *text = NULL;
        size_t bytes = 0;
        FILE *f = open_memstream(&text, &bytes);
        if (!f)
            return pp_fail(PP_ERESOURCE, "report: out of memory");
        int rc = report_draw_sweep(r->bench, i % 2 == 0, i / 2, &plain, f);
        int closed = pp_text_close(f, &text, "report");
        if (rc == 0 && closed == 0)
            pp_json_str(j, NULL, text);
        else if (rc != PP_EUSAGE && rc != PP_ECONFIG)
            return rc < 0 ? rc : closed;
    }
    pp_json_end(j);
    pp_error_clear();
    return put_value("sweep", r->bench, j);
}

static int print_data(const void *view, FILE *f)
{
    const struct pp_report_view *v = view;
    struct pp_report *const *runs = v->runs;
    char now[32];
    struct pp_json j = pp_json_begin(f, 0);
    pp_json_str(&j, "ppcli", PP_VERSION);
    pp_json_str(&j, "written", pp_clock_utc(now, sizeof(now)));
    if (v->rows)
        pp_json_raw(&j, "machine", v->rows);
    if (v->test)
        pp_json_raw(&j, "test", v->test);
    if (v->n == 1 && runs[0]->bench)
        PP_TRY(put_sweep(runs[0], &j));
    pp_json_array(&j, "runs");
    for (int i = 0; i < v->n; i++)
        if (v->n > 1 && runs[i]->bench)
            return pp_fail(PP_EUSAGE, "%s is a result of bench, which is shown alone",
                           runs[i]->name);
        else if (!runs[i]->bench)
            PP_TRY(put_run(runs[i], v->n, &j));
    pp_json_end(&j);
    pp_json_end(&j);
    return 0;
}

/* Writes a JSON text so that it can be part of an HTML page: <, >, & and two Unicode line ends
 * become escapes. They occur only inside strings, where an escape means the same. */
void report_put_json(const char *text, FILE *f)
{
    for (const char *p = text; *p; p++) {
        if (strchr("<>&", *p)) {
            fprintf(f, "\\u%04x", *p);
        } else if (strncmp(p, "\xe2\x80\xa8", 3) == 0 || strncmp(p, "\xe2\x80\xa9", 3) == 0) {
            fprintf(f, "\\u20%02x", (unsigned char)p[2] - 0x80);
            p += 2;
        } else {
            fputc(*p, f);
        }
    }
}

int report_draw_text(int (*draw)(const void *ctx, FILE *f), const void *ctx, char **out)
{
    size_t bytes = 0;
    FILE *f = open_memstream(out, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "report: out of memory");
    int rc = draw(ctx, f), closed = pp_text_close(f, out, "report");
    return rc < 0 ? rc : closed;
}

int pp_report_write(const void *view, FILE *f)
{
    PP_OWN_MEMORY char *text = NULL;
    PP_TRY(report_draw_text(print_data, view, &text));
    fputs(report_page_head, f);
    report_put_json(text, f);
    fputs(report_page_tail, f);
    return ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the report") : 0;
}

int report_write_drawn(int (*draw)(const void *ctx, FILE *trace), const void *ctx, const char *name,
                       const char *rows, FILE *f)
{
    PP_OWN_MEMORY char *text = NULL;
    PP_OWN(pp_fclose_at) FILE *in = NULL;
    PP_OWN(pp_report_close) struct pp_report *report = NULL;
    PP_TRY(report_draw_text(draw, ctx, &text));
    if (!(in = fmemopen(text, strlen(text), "r")))
        return pp_fail(PP_ERESOURCE, "report: out of memory");
    PP_TRY(report_open_trace(in, name, &report));
    return pp_report_write(&(struct pp_report_view){.runs = &report, .n = 1, .rows = rows}, f);
}
