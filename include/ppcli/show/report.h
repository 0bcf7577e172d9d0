/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run folders as one HTML page that needs no network. The page itself is share/report/; C only
 * writes the data of the runs into it. What a run did not leave, or left damaged, is left out and
 * the page says so; nothing in a folder is trusted.
 */
#ifndef PPCLI_SHOW_REPORT_H
#define PPCLI_SHOW_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "ppcli/runlog/runlog.h"
#include "ppcli/show/columns.h"

/* ---- picture */

/*
 * Pictures for documents as SVG: lanes of actions over time, and curves. White paper, and kinds
 * that differ in lightness, hatching, markers and dashes, so that a grey print shows them too.
 */

struct pp_look {       /* how the user wants a picture */
    const char *title; /* NULL: the picture's own; "": no title and no words below it */
    int width;         /* pixels; 0: the picture's own */
};
/* Checks the width of a picture. Errors: PP_EUSAGE if it is too small or too large. */
int pp_look_check(const struct pp_look *look);

/*
 * Writes to a file what draw() draws as SVG: as svg, or as pdf or png by rsvg-convert. `path` is
 * NULL for standard output. If `format` is NULL, the ending of the path decides. Errors: PP_EUSAGE
 * (an unknown ending), PP_ERESOURCE (no rsvg-convert), PP_EIO, those of draw(). Local.
 */
int pp_picture_write(const char *path, const char *format, int (*draw)(const void *ctx, FILE *f),
                     const void *ctx);

/* ---- reproduce */

/* A run folder whose run is trained again, and compared with the new run. */
struct pp_original;

struct pp_config;

#define PP_ORIGINAL_SETTINGS 16

/* A part of a run between two changes of its config. Nothing is owned. */
struct pp_original_part {
    struct pp_replay replay;
    struct pp_setting settings[PP_ORIGINAL_SETTINGS]; /* that differ from those of its end */
    int n_settings;
    const char *allow; /* keys that changed before it, for struct pp_train_options; "" : none */
};

/* Reads what a run has saved and logged. Errors: those of pp_report_open(); PP_ENOINPUT (it has
 * logged and saved nothing), PP_ERESOURCE. Local. The caller owns *out. */
int pp_original_open(const char *run, struct pp_original **out);
void pp_original_close(struct pp_original **o); /* accepts NULL inside */

/* Sets *out to part i of the run; returns false after the last one. */
bool pp_original_part(const struct pp_original *o, int i, struct pp_original_part *out);

/* Refuses a config whose backend cannot give the bits of the run. Errors: PP_ECONFIG. Local. */
int pp_original_check(const struct pp_original *o, const struct pp_config *cfg);

/* Compares the run in the folder `again`, which has this config, with the original, and prints what
 * is equal and what is not. Errors: PP_EDIFFERS with the first step, tensor and element that differ
 * and the likely cause; those of reading. Local. */
int pp_original_compare(const struct pp_original *o, struct pp_config *cfg, const char *again,
                        FILE *f);

/* ---- report */

struct pp_report;

#define PP_REPORT_RUNS_MAX 8 /* on one page */

/*
 * Reads a run folder (config.resolved.ini, metrics.jsonl, summary.json, timeline.json), a trace
 * that train or plan wrote, of which one step is shown, or a result of bench as JSON. Errors:
 * PP_ENOINPUT (no such file or folder, or nothing of a run in it), PP_EFORMAT (not a trace),
 * PP_EPERM, PP_EIO, PP_ERESOURCE. Local. The caller owns *out.
 */
int pp_report_open(const char *path, struct pp_report **out);
void pp_report_close(struct pp_report **report); /* accepts NULL */

#define PP_FIGURES "step|loss|bubble|speed"
#define PP_SWEEP_KEYS "microbatches|stages|schedule|replicas"
struct pp_report_view {            /* nothing is owned */
    struct pp_report *const *runs; /* [n] */
    int n;
    int figure, over; /* numbers among PP_FIGURES and PP_SWEEP_KEYS; -1: the page, any */
    struct pp_look look;
    const char *rows; /* JSON of ppcli estimate to show above; NULL: none */
    const char *test; /* JSON of what pp_outcome_json() writes, of a single run; NULL: none */
};

/* Writes the page of a struct pp_report_view: of one run, of up to PP_REPORT_RUNS_MAX runs
 * compared, or of a result of bench. Errors: PP_EUSAGE, PP_EIO, PP_ERESOURCE. */
int pp_report_write(const void *view, FILE *f);

/* Draws the figure of a struct pp_report_view as SVG. Errors: PP_EUSAGE, PP_ENOINPUT (the run did
 * not leave what it shows), PP_ERESOURCE, PP_EIO. */
int pp_report_draw(const void *view, FILE *f);

/*
 * Prints a table of the run folders paths[n], any number: the keys in which they differ, their
 * results and, for each group of runs that differ in train.seed only, the mean and the standard
 * deviation. Errors: those of pp_report_open(), PP_EUSAGE (not a run folder). Local.
 */
int pp_runs_print(const char *const *paths, int n, enum pp_listing_form form, FILE *f);

#endif
