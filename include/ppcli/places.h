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
    bool crowded;   /* others need the processors too: waits must not spin */
    bool siblings;  /* some threads share a core */
    bool shared;    /* other runs have the cores that this one would need */
    bool fewer;     /* with threads = 0: other runs have cores that this one would use */
    int *cpus;      /* [ranks][processors]; NULL: the system places the ranks */
    int *locks;     /* of the cores of cpus; owned, as cpus */
    int n_locks;
};

/* Divide the processors of `mask` among `ranks` ranks of `threads` threads each. A quota that allows
 * less than the mask pins nothing: it does not say which processors are free.
 * Local. Errors: PP_ERESOURCE. The caller owns what is in *out: pp_places_fini(). */
struct pp_places_spec {
    int ranks;
    int threads;                    /* 0: each as many as there are free cores for it, at least 1 */
    const struct pp_cpu_mask *mask; /* NULL: that of this process */
    bool unpinned;                  /* only count */
    bool locks; /* use only cores that no other run has locked; lock them until pp_places_fini() */
};
int pp_places_make(const struct pp_places_spec *spec, struct pp_places *out);
void pp_places_fini(struct pp_places *places);

/* Those of one rank, [processors]; NULL: the system places it. */
const int *pp_places_of(const struct pp_places *places, int rank);

#endif
