/* SPDX-License-Identifier: Apache-2.0 */
#include "ppcli/places.h"

#include <stddef.h>

#include "ppcli/mem.h"

int pp_places_make(const struct pp_places_spec *spec, struct pp_places *out)
{
    struct pp_cpu_mask mask;
    struct pp_quota quota;
    int n = pp_machine_mask(false, &mask);
    if (spec->mask) {
        mask = *spec->mask;
        n = pp_mask_count(&mask);
    }
    pp_quota_here(n, &quota);
    int ranks = spec->ranks, each = quota.cores / ranks;
    each = each < spec->threads ? each : spec->threads;
    *out =
        (struct pp_places){.ranks = ranks, .processors = each > 0 ? each : 1, .cores = quota.cores};
    out->crowded = ranks > quota.cores || (quota.limits && ranks * each >= quota.cores);
    if (out->crowded || quota.limits)
        return 0;
    PP_ALLOC(out->cpus, ranks * each);
    for (int cpu = 0, i = 0; i < ranks * each; cpu++)
        if (pp_mask_has(&mask, cpu))
            out->cpus[i++] = cpu;
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
