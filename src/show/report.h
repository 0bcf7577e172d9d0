/* SPDX-License-Identifier: Apache-2.0 */
/* What a report knows of a run. A number that is absent, null or beyond 1e300 is NAN. */
#ifndef PPCLI_SRC_SHOW_REPORT_H
#define PPCLI_SRC_SHOW_REPORT_H

#include <jansson.h>

#include "ppcli/base/files.h"
#include "ppcli/show/report.h"

struct report_slice {
    double start, length;             /* seconds */
    int rank, mb, chunk, stage, step; /* -1: none */
    char kind;                        /* a letter of the table in timeline.c */
};

struct report_half { /* the measured or the simulated step */
    struct report_slice *slices;
    int n, capacity;
    int ranks;   /* highest rank + 1 */
    double span; /* seconds from the first start to the last end */
};

enum report_file {
    REPORT_SUMMARY,
    REPORT_METRICS,
    REPORT_CONFIG,
    REPORT_TIMELINE,
    REPORT_FILES
};

struct report_lost {
    bool absent;      /* there is no such file */
    char *why;        /* it cannot be read; owned */
    long long lines;  /* of it that are damaged, */
    bool last;        /* the last one among them */
    long long beyond; /* actions that are left out */
};

struct pp_report {
    char dir[PP_PATH_MAX];
    const char *name;                    /* last part of dir */
    const char *end;                     /* how a run without summary ended; NULL: not known */
    json_t *header, *summary, *timeline; /* owned; NULL: absent */
    json_t *steps, *epochs, *events;     /* records of metrics.jsonl; owned */
    json_t *bench;                       /* a result of bench, and nothing else; owned */
    char *config;                        /* the text; owned */
    struct report_half measured, simulated;
    struct report_lost lost[REPORT_FILES];
};

double report_number(const json_t *object, const char *key);
const char *report_text(const json_t *object, const char *key); /* "" when there is none */
double report_short(double value);                              /* to six digits */

/* Adds a trace event to the report. Errors: PP_ERESOURCE. */
int report_take_event(struct pp_report *r, json_t *o);
/* Ends the timeline after its last event: keeps one step, sorted by rank and start, from time 0
 * on. */
void report_end_timeline(struct pp_report *r);

/* Halves a list of records. Of every four it keeps the two with the least and the greatest loss,
 * and it keeps the last record. Errors: PP_ERESOURCE. */
int report_thin(json_t **records);

/* Writes a step (measured or simulated) as an object, in at most `budget` bytes. Errors:
 * PP_ERESOURCE. */
int report_put_half(const char *key, const struct report_half *h, size_t budget, struct pp_json *j);

/* A result of bench as curves of its speed or bubble. over: number of a key; -1: the first that
 * varies. Errors: PP_EUSAGE for a key that does not vary; PP_ECONFIG (too many curves),
 * PP_ERESOURCE, PP_EIO. */
#define REPORT_SWEEP_KEYS 4
extern const char *const report_sweep_keys[REPORT_SWEEP_KEYS]; /* as PP_SWEEP_KEYS */
int report_draw_sweep(const json_t *bench, bool speed, int over, const struct pp_look *look,
                      FILE *f);

/* Opens a report as pp_report_open() does, but of a trace that is open already; f stays the
 * caller's. */
int report_open_trace(FILE *f, const char *name, struct pp_report **out);

/* Writes the page of the trace that draw(ctx, trace) writes. `name` is that of the page. `rows` is
 * NULL, or the JSON of ppcli estimate, which the page shows as a table. Errors: those of draw(),
 * PP_EFORMAT, PP_EIO, PP_ERESOURCE. Local. */
int report_write_drawn(int (*draw)(const void *ctx, FILE *trace), const void *ctx, const char *name,
                       const char *rows, FILE *f);

/* Sets *out, which the caller frees, to what draw(ctx) writes. Errors: those of draw(),
 * PP_ERESOURCE. */
int report_draw_text(int (*draw)(const void *ctx, FILE *f), const void *ctx, char **out);

/* Writes a JSON text as a <script> of a page may hold it: without '<', '>' or '&'. */
void report_put_json(const char *text, FILE *f);

#endif
