/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run folders as one HTML page that needs no network. The page itself is share/report/; C only
 * writes the data of the runs into it. What a run did not leave, or left damaged, is left out and
 * the page says so; nothing in a folder is trusted.
 */
#ifndef PPCLI_REPORT_H
#define PPCLI_REPORT_H

#include <stdio.h>

struct pp_report;

#define PP_REPORT_RUNS_MAX 8 /* on one page */

/*
 * Read a run folder (config.resolved.ini, metrics.jsonl, summary.json, timeline.json), or a trace
 * that train or plan wrote, of which one step is shown. Errors: PP_ENOINPUT (no such file or
 * folder, or nothing of a run in it), PP_EFORMAT (no trace), PP_EPERM, PP_EIO, PP_ERESOURCE. Local.
 * The caller owns *out.
 */
int pp_report_open(const char *path, struct pp_report **out);
/* The same of a trace that is open already; f stays the caller's. */
int pp_report_open_trace(FILE *f, const char *name, struct pp_report **out);
void pp_report_close(struct pp_report **report); /* accepts NULL */

/* The page of a trace that draw(ctx, trace) writes, onto f. name: of the page. Errors: those of draw(),
 * PP_EFORMAT, PP_EIO, PP_ERESOURCE. Local. */
int pp_report_write_drawn(int (*draw)(const void *ctx, FILE *trace), const void *ctx,
                          const char *name, FILE *f);

/* JSON text as a <script> of a page may hold it: no '<', '>' or '&'. */
void pp_report_put_json(const char *text, FILE *f);

/* The page of one run, or of up to PP_REPORT_RUNS_MAX runs compared. Errors: PP_EIO, PP_ERESOURCE.
 */
int pp_report_write(struct pp_report *const *runs, int n, FILE *f);

#endif
