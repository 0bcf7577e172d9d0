/* SPDX-License-Identifier: Apache-2.0 */
#include "ppcli/places.h"

#include <stddef.h>

#include "ppcli/machine.h"
#include "ppcli/mem.h"

int pp_places_make(int ranks, int threads, struct pp_places *out)
{
    int all[PP_MACHINE_CORES_MAX], n = pp_machine_cores(false, all, PP_MACHINE_CORES_MAX);
    int each = n / ranks < threads ? n / ranks : threads;
    *out =
        (struct pp_places){.ranks = ranks, .processors = each > 0 ? each : 1, .crowded = ranks > n};
    if (out->crowded)
        return 0;
    PP_ALLOC(out->cpus, ranks * each);
    for (int i = 0; i < ranks * each; i++)
        out->cpus[i] = all[i];
    return 0;
}

void pp_places_fini(struct pp_places *places)
{
    pp_free(places->cpus);
    places->cpus = NULL;
}

const int *pp_places_of(const struct pp_places *places, int rank)
{
    return places->cpus ? places->cpus + (size_t)rank * (size_t)places->processors : NULL;
}
