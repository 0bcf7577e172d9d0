/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run folder as one HTML page that needs nothing but itself: the answer, the curves, the measured
 * pipeline above the simulated one, memory, config, environment. What a run that was killed or an
 * older ppcli did not leave is left out with a sentence; nothing in a folder is trusted.
 */
#ifndef PPCLI_REPORT_H
#define PPCLI_REPORT_H

#include <stdio.h>

struct pp_report;

/*
 * Read config.resolved.ini, metrics.jsonl, summary.json and timeline.json of a run folder. Errors:
 * PP_ENOINPUT (no such folder, or none of a run), PP_EPERM, PP_EIO, PP_ERESOURCE. Local. The caller
 * owns *out.
 */
int pp_report_open(const char *dir, struct pp_report **out);
void pp_report_close(struct pp_report **report);

/* The page. Errors: PP_EIO, PP_ERESOURCE. */
int pp_report_write(const struct pp_report *report, FILE *f);

/* Two runs on one page: what differs, both curves in one picture, one pipeline above the other. */
int pp_report_compare(const struct pp_report *a, const struct pp_report *b, FILE *f);

#endif
