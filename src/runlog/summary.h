/* SPDX-License-Identifier: Apache-2.0 */
/* The summary of a run in its two forms. */
#ifndef PPCLI_RUNLOG_SUMMARY_H
#define PPCLI_RUNLOG_SUMMARY_H

#include "ppcli/json.h"
#include "ppcli/runlog.h"

/* Into the object that is open in j. Local. */
void summary_json(const struct pp_run *run, const struct pp_summary *s, struct pp_json *j);
/* For people. dir: the run folder, "": none. Local. */
void summary_print(const struct pp_run *run, const struct pp_summary *s, const char *dir, FILE *f);

#endif
