/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a report knows of a run, and the parts of a page. A number that is absent, null or not
 * finite is NAN everywhere here, and is shown as a dash or a gap.
 */
#ifndef PPCLI_REPORT_REPORT_H
#define PPCLI_REPORT_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "ppcli/file.h"
#include "ppcli/report.h"

struct report_step { /* one "step" line of metrics.jsonl */
    double step, epoch, loss, accuracy, lr, sps, bubble, seconds;
};

struct report_epoch { /* one "epoch" line */
    double step, epoch, loss, accuracy, test_loss, test_accuracy, sps, bubble, seconds;
};

struct report_key { /* one key of config.resolved.ini; texts are owned */
    char *name;     /* "train.lr" */
    char *value;
    char *origin; /* "mnist.ini:7", "--set", "default" */
};

enum report_part {
    REPORT_PARAMETERS,
    REPORT_PACKED, /* the parameters again, as the backend reads them fastest */
    REPORT_GRADIENTS,
    REPORT_OPTIMIZER,
    REPORT_ACTIVATIONS,
    REPORT_MESSAGES,
    REPORT_OTHER,
    REPORT_PARTS
};

struct report_rank {
    double replica, stage, busy;
    double total, parts[REPORT_PARTS]; /* bytes */
};

enum report_kind {
    REPORT_F, /* the first four in the order of pp_draw_fills */
    REPORT_I,
    REPORT_W,
    REPORT_B,
    REPORT_UPDATE,
    REPORT_REDUCE, /* and the gradient norm */
    REPORT_WAIT,   /* for a message, a slot, the other ranks */
    REPORT_SEND,   /* handing over, freeing, and what has no kind of its own */
    REPORT_KINDS
};

struct report_slice {
    double start, length; /* seconds, from the first start of its half */
    char name[16];
    int rank, mb, chunk, stage; /* -1: none */
    enum report_kind kind;
};

struct report_half { /* the measured or the simulated step */
    struct report_slice *slices;
    int n, capacity;
    int ranks;   /* highest rank + 1 */
    double span; /* seconds from the first start to the last end */
};

struct report_timeline {
    json_t *head; /* args of the first event; owned; may be NULL */
    double step;  /* which one was measured */
    struct report_half measured, simulated;
};

enum report_end { /* of a run without summary.json */
    REPORT_END_UNKNOWN,
    REPORT_RUNNING,
    REPORT_KILLED,
    REPORT_FAILED,  /* with an error of its own */
    REPORT_STOPPED, /* in order */
};

#define REPORT_NOTES_MAX 16

struct pp_report {
    char dir[PP_PATH_MAX];
    const char *name; /* last part of dir */
    json_t *header;   /* owned; NULL: absent */
    json_t *summary;  /* owned; NULL: the run is not finished */
    enum report_end end;
    struct report_step *steps;
    int n_steps, steps_capacity;
    struct report_epoch *epochs;
    int n_epochs, epochs_capacity;
    struct report_key *keys;
    int n_keys, keys_capacity;
    struct report_rank *ranks;
    int n_ranks;
    struct report_timeline timeline;
    char *notes[REPORT_NOTES_MAX]; /* sentences about what is left out */
    int n_notes;
};

/* --- reading ---------------------------------------------------------------------------------- */

void report_note(struct pp_report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A number of an object; NAN when the object is NULL or has no finite one below 1e300. */
double report_number(const json_t *object, const char *key);
const char *report_text(const json_t *object, const char *key); /* "" when there is none */

/* Room for one more element; NULL when memory ran out, with the failure recorded. */
void *report_grow(void *array, int n, int *capacity, size_t size);

/* Calls line(ctx, text, bytes) for every line of a file until it fails; a line longer than 1 MiB is
 * passed as NULL. Errors: those of pp_open_regular(), PP_EIO, PP_ERESOURCE, and what line() says.
 */
int report_lines(const char *path, int (*line)(void *ctx, char *text, size_t bytes), void *ctx);

/* NULL for a text that is damaged, or none (NULL). The caller's. Errors: PP_ERESOURCE. */
int report_json(const char *text, size_t bytes, json_t **out);

/* Each reads one file into r. Errors: as above, for the caller to turn into a note. */
int report_read_metrics(struct pp_report *r);
int report_read_summary(struct pp_report *r);
int report_read_config(struct pp_report *r);
int report_read_timeline(struct pp_report *r);

/* Local; whoever looks later may see another state. */
enum report_end report_read_end(const struct pp_report *r);

/* The last value of a key of the config; "" when there is none. */
const char *report_key_value(const struct pp_report *r, const char *name);

/* --- pictures --------------------------------------------------------------------------------- */

/* Members of an array of structs. */
struct report_series {
    const char *name;
    const double *x, *y;
    size_t stride; /* bytes from one to the next */
    int n;
    int color; /* 0..3 */
    bool dots, dashed;
};

#define REPORT_SERIES_MAX 8

struct report_chart {
    const char *title;
    const char *unit; /* of y, in the title; "" */
    struct report_series series[REPORT_SERIES_MAX];
    int n;
    bool share; /* y is shown in percent, and ends at 1 */
    bool from_zero;
    bool may_log;                      /* log scale when it spans more than two decades */
    const struct report_epoch *epochs; /* their ends are marked; NULL: none */
    int n_epochs;
};

/* Nothing when no series has a point. Errors: PP_ERESOURCE. */
int report_chart(const struct report_chart *c, FILE *f);

struct report_lane { /* one half with its title */
    const struct report_half *half;
    const char *title;
};

#define REPORT_LANES_MAX 4

/* Ranks down, milliseconds across, one lane above the other. Each half has a span above 0. */
void report_gantt(const struct report_lane *lanes, int n, FILE *f);
void report_gantt_legend(const struct report_lane *lanes, int n, FILE *f);

/* The least of 1, 2, 5 times a power of ten that cuts `length` into at most `steps` pieces. */
double report_nice_step(double length, int steps);

/* --- sections that one run and two runs share ---------------------------------------------------
 */

void report_section_notes(const struct pp_report *r, const char *who, FILE *f);
int report_section_curves(const struct pp_report *const *runs, int n, FILE *f);
void report_section_timeline(const struct pp_report *const *runs, int n, FILE *f);

/* As the runs left them; NAN where they did not. */
double report_bubble_predicted(const struct pp_report *r);
double report_steps_done(const struct pp_report *r);

#endif
