/* SPDX-License-Identifier: Apache-2.0 */
/* Which processors of this machine the ranks of a run compute on, and the threads of each. */
#ifndef PPCLI_PLACES_H
#define PPCLI_PLACES_H

#include <stdbool.h>

struct pp_places {
    int ranks;      /* of this machine that share these processors */
    int processors; /* that each rank may use: at most its threads, at least 1 */
    bool crowded;   /* more ranks than processors: waits must not spin */
    int *cpus;      /* [ranks][processors]; NULL: the system places the ranks */
};

/* Divide the processors that this process may use among `ranks` ranks of `threads` threads each.
 * Local. Errors: PP_ERESOURCE. The caller owns what is in *out: pp_places_fini(). */
int pp_places_make(int ranks, int threads, struct pp_places *out);
void pp_places_fini(struct pp_places *places);

/* Those of one rank, [processors]; NULL: the system places it. */
const int *pp_places_of(const struct pp_places *places, int rank);

#endif
