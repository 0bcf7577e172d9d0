/* SPDX-License-Identifier: Apache-2.0 */
/* The records of ranks as trace events: who reads rings gives them here, in the order written. */
#ifndef PPCLI_RUNLOG_SPANS_H
#define PPCLI_RUNLOG_SPANS_H

#include "ppcli/chrome.h"
#include "ppcli/exec.h"

struct spans;

/* test_steps: of one evaluation. Local. The caller owns *out. Errors: PP_ERESOURCE. */
int spans_create(const struct pp_layout *layout, int test_steps, struct spans **out);
void spans_destroy(struct spans **s); /* accepts NULL in *s */

/* Bytes of one activation of every virtual stage: [n_virtual]. */
const size_t *spans_live_bytes(const struct spans *s);

/* A process for every rank. */
void spans_processes(const struct spans *s, struct pp_chrome *c);

/*
 * Records e[n] of a rank, behind those of an earlier call. zero_ns: the start of the trace on that
 * rank's clock. Records that are not over are left out.
 */
void spans_write(struct spans *s, struct pp_chrome *c, int rank, uint64_t zero_ns,
                 const struct pp_event *e, size_t n);

#endif
