/* SPDX-License-Identifier: Apache-2.0 */
/* How cores are divided into stages, replicas and threads. */
#include "search.h"

#include <string.h>

#include "ppcli/base/cores.h"

bool pp_best_open_threads(const struct pp_config *cfg)
{
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    bool said = strcmp(pp_config_origin(cfg, "run.threads"), "default") != 0;
    return !(said && cfg->run.threads > 0) && choice.ops && !choice.ops->own_memory &&
           pp_backend_sums_in_order(&choice);
}

int pp_best_cores(const struct pp_space *spec)
{
    const struct pp_links *l = spec->links;
    int here = pp_machine_whole_cores(), all = l ? here * l->n / l->beside : here;
    all =
        l && all < l->n ? l->n : all; /* this process may be bound to one; the others have theirs */
    return spec->cores > 0 ? spec->cores : all;
}

void best_divide(struct pp_division *d, int replicas, int threads)
{
    int all = d->microbatches * d->replicas;
    if (replicas > 0 && all % replicas == 0)
        d->microbatches = all / replicas;
    d->replicas = replicas > 0 ? replicas : d->replicas;
    d->threads = threads > 0 ? threads : d->threads;
}

/* Returns whether the search may divide the cores by `part`. If the user asked for a number, only
 * that one may be tried; asked = 0 allows divisors of the number of cores and powers of two. */
static bool can_divide_cores(int part, int asked, int cores)
{
    return asked > 0 ? part == asked : cores % part == 0 || (part & (part - 1)) == 0;
}

/* Returns whether d replicas, which the user did not ask for, can run. If samples of a micro-batch
 * affect each other, every micro-batch must keep its rows. */
static bool can_replicate(const struct pp_space *spec, int d)
{
    const struct pp_division *base = &spec->base;
    return d <= PP_REPLICAS_MAX && d <= best_share(spec, 0) * base->replicas &&
           (spec->all_m || base->microbatches * base->replicas % d == 0);
}

int pp_best_shapes(const struct pp_space *spec, int stages, int replicas,
                   struct pp_division **items, int *n)
{
    int cores = pp_best_cores(spec), own = spec->base.threads, room = *n;
    bool open = pp_best_open_threads(spec->cfg);
    for (int p = 1; p <= cores || p <= stages; p++) {
        for (int d = 1; d == 1 || p * d <= cores || d <= replicas; d++) {
            bool wanted =
                can_divide_cores(p, stages, cores) && can_divide_cores(d, replicas, cores);
            bool least = (p == 1 || p == stages) && (d == 1 || d == replicas);
            int t = p * d < cores ? cores / (p * d) : 1;
            if (!wanted || p > spec->model->n_layers || p > PP_STAGES_MAX ||
                (!least && p * d * (open ? 1 : own) > cores) ||
                (replicas == 0 && !can_replicate(spec, d)))
                continue;
            for (bool again = true; again; again = open && p * d == 1 && t > 1, t = 1) {
                PP_RESERVE(*items, *n, room);
                struct pp_division *to = &(*items)[(*n)++];
                *to = spec->base;
                best_divide(to, d, open ? t : own);
                to->stages = p;
            }
        }
    }
    return 0;
}

/* ---- costs */
