/* SPDX-License-Identifier: Apache-2.0 */
/* Which processors of this machine the ranks of a run compute on, and the threads of each. */
#ifndef PPCLI_PLACES_H
#define PPCLI_PLACES_H

#include <stdbool.h>

#include "ppcli/machine.h"

struct pp_places {
    int ranks;      /* of this machine that share these processors */
    int processors; /* that each rank may use: at most its threads, at least 1 */
    int cores;      /* that all of them may use: what mask and quota leave */
    bool crowded;   /* more ranks than cores, or a quota that they use up: waits must not spin */
    int *cpus;      /* [ranks][processors]; NULL: the system places the ranks */
};

/* Divide the processors of `mask` among `ranks` ranks of `threads` threads each. A quota that allows
 * less than the mask pins nothing: it does not say which processors are free.
 * Local. Errors: PP_ERESOURCE. The caller owns what is in *out: pp_places_fini(). */
struct pp_places_spec {
    int ranks, threads;
    const struct pp_cpu_mask *mask; /* NULL: that of this process */
};
int pp_places_make(const struct pp_places_spec *spec, struct pp_places *out);
void pp_places_fini(struct pp_places *places);

/* Those of one rank, [processors]; NULL: the system places it. */
const int *pp_places_of(const struct pp_places *places, int rank);

#endif
