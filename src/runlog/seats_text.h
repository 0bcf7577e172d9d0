/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a run sit, for people and programs. */
#ifndef PPCLI_RUNLOG_SEATS_TEXT_H
#define PPCLI_RUNLOG_SEATS_TEXT_H

#include "ppcli/json.h"
#include "ppcli/run.h"

/* Say where the ranks of a run with devices sit and how they talk, and whether steps are recorded
 * (graphs: what pp_exec_graphs() says), in a few lines of the log; the same into the object that is
 * open in j. Nothing for ranks on the processor. Local. */
void seats_announce(const struct pp_run *run, const char *graphs);
void seats_json(const struct pp_run *run, const char *graphs, struct pp_json *j);

#endif
