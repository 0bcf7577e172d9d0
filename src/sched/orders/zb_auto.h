/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search behind zb-auto, with all its inputs. The schedule charges a micro-batch's memory from
 * its F to its W; the authors of the heuristic give part of it back at I, and so can a caller here.
 */
#ifndef PPCLI_SCHED_ZB_AUTO_H
#define PPCLI_SCHED_ZB_AUTO_H

#include "../pass.h"

struct pp_zb_auto {
    int p, m;
    int64_t f, i, w, comm; /* ticks of one cell on one rank, and of a transfer; below 2^31 */
    /* What a rank holds, in any unit: more by mem_f at F, less by mem_i at I and by mem_w at W. The
     * sum of the last two is at most mem_f, and mem_f at most cap. */
    double mem_f, mem_i, mem_w, cap;
};

/* The best of the heuristic's lists. out_span: how long the busiest rank takes, from its own first
 * cell to its own last one; may be NULL. Errors: PP_ERESOURCE. */
int pp_zb_auto_emit(const struct pp_zb_auto *z, struct pp_emit **e, int64_t *out_span);

#endif
