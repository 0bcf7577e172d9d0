/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search of zb-auto, with all its inputs. The schedule charges the memory of a micro-batch from
 * F to W; the authors of the heuristic give part of it back at I, and so can a caller.
 */
#ifndef PPCLI_SCHED_ZB_AUTO_H
#define PPCLI_SCHED_ZB_AUTO_H

#include "../pass.h"

struct pp_zb_auto {
    int p, m;
    int64_t f, i, w, comm; /* ticks of one cell on one rank, and of a transfer; below 2^31 */
    /* Memory of a rank in any unit: F adds mem_f, I frees mem_i, W frees mem_w. mem_i + mem_w is at
     * most mem_f, and mem_f at most cap. */
    double mem_f, mem_i, mem_w, cap;
};

/* Emits the best of the lists that the heuristic makes. Sets *out_span to the time of the busiest
 * rank, from its first cell to its last; out_span may be NULL. Errors: PP_ERESOURCE. */
int pp_zb_auto_emit(const struct pp_zb_auto *z, struct pp_emit **e, int64_t *out_span);

#endif
