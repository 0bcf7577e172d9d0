/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places ranks on processors: cores before their second hardware threads, fast cores before slow
 * ones. Each rank gets processors that share a last-level cache, else a NUMA node, else a package,
 * else any.
 */
#include "cores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "core_locks.h"
#include "topology.h"

/* ---- choosing processors */

static int compare_worth(const void *a, const void *b)
{
    const struct pp_cpu *x = a, *y = b;
    if (x->sibling != y->sibling)
        return x->sibling - y->sibling;
    return x->speed != y->speed ? y->speed - x->speed : x->at - y->at;
}

static int compare_nearness(const void *a, const void *b)
{
    const struct pp_cpu *x = a, *y = b;
    return x->speed != y->speed ? y->speed - x->speed : x->at - y->at;
}

/* Sorts the processors, best first, and returns how many of them to use. Uses all of the best kind
 * if they suffice, even if fewer are needed, so that each rank may keep to one cache. */
static int take_pool(struct pp_cpu *cpus, int n, int needed)
{
    int best = 0;
    qsort(cpus, (size_t)n, sizeof(*cpus), compare_worth);
    while (best < n && cpus[best].sibling == 0 && cpus[best].speed == cpus[0].speed)
        best++;
    best = needed <= best ? best : needed;
    qsort(cpus, (size_t)best, sizeof(*cpus), compare_nearness);
    return best;
}

/* ---- giving them to ranks */

static bool cpus_share(const struct pp_cpu *a, const struct pp_cpu *b, int level)
{
    return level == PP_SHARE_LEVELS || (a->share[level] == b->share[level] && a->speed == b->speed);
}

/* Gives a rank `each` free processors of one domain of this level (such as a cache), if a domain
 * has so many. Sets the number of a processor that is taken to -1. */
static bool take_from_domain(struct pp_cpu *pool, int n, int level, int each, int *out)
{
    for (int from = 0, to; from < n; from = to) {
        int left = 0;
        for (to = from; to < n && cpus_share(&pool[from], &pool[to], level); to++)
            left += pool[to].number >= 0;
        if (left < each)
            continue;
        for (int i = from, k = 0; k < each; i++) {
            if (pool[i].number >= 0) {
                out[k++] = pool[i].number;
                pool[i].number = -1;
            }
        }
        return true;
    }
    return false;
}

static void assign_cores(struct pp_cpu *cpus, int n, int ranks, int each, int *out)
{
    int pool = take_pool(cpus, n, ranks * each);
    for (int r = 0; r < ranks; r++)
        for (int level = 0;
             !take_from_domain(cpus, pool, level, each, out + (size_t)r * (size_t)each);)
            level++;
}

static int count_cores(const struct pp_cpu *cpus, int n)
{
    int cores = 0;
    for (int i = 0; i < n; i++)
        cores += cpus[i].sibling == 0;
    return cores;
}

/* Returns how many cores of its own each rank gets, at least 1. */
static int divide_cores(const struct pp_cpu *cpus, int n, int most, int ranks)
{
    int cores = count_cores(cpus, n);
    cores = (cores < most ? cores : most) / ranks;
    return cores > 0 ? cores : 1;
}

/* ---- the machine */

/* Reads the processors of the mask without hwloc. The number of a core is that of its first
 * hardware thread. */
static int read_siblings(const struct pp_cpu_mask *mask, struct pp_cpu *out)
{
    int n = 0;
    for (int c = 0; c < PP_MACHINE_CORES_MAX; c++) {
        char path[96], text[32];
        if (!pp_mask_has(mask, c))
            continue;
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 c);
        pp_file_value(path, "", text, sizeof(text));
        out[n] = (struct pp_cpu){.number = c, .at = n};
        out[n++].core = (text[0] ? atoi(text) : c) % PP_MACHINE_CORES_MAX;
    }
    return n;
}

int pp_topology_read(const struct pp_cpu_mask *mask, struct pp_cpu *out)
{
    int n = topology_read_all(mask, out);
    if (n < pp_mask_count(mask)) /* a description of another machine, or hwloc is missing */
        n = read_siblings(mask, out);
    for (int i = 0; i < n; i++)
        for (int k = i - 1; k >= 0 && out[i].sibling == 0; k--)
            out[i].sibling = out[k].core == out[i].core ? out[k].sibling + 1 : 0;
    return n;
}

/* Returns the level at which a row of the topology picture ends: the cache if several cores share
 * one, else the NUMA node. */
static enum pp_share find_row_level(const struct pp_cpu *cpus, int n)
{
    for (int i = 1; i < n; i++)
        if (cpus[i].core != cpus[i - 1].core &&
            cpus[i].share[PP_SHARE_CACHE] == cpus[i - 1].share[PP_SHARE_CACHE])
            return PP_SHARE_CACHE;
    return PP_SHARE_NUMA;
}

bool pp_topology_row(const struct pp_cpu *cpus, int n, int *from, char *out, size_t bytes)
{
    int level = (int)find_row_level(cpus, n), i = *from, fastest = 0;
    out[0] = '\0';
    for (int k = 0; k < n; k++)
        fastest = cpus[k].speed > fastest ? cpus[k].speed : fastest;
    for (; i < n && cpus_share(&cpus[*from], &cpus[i], level); i++) {
        const char *gap = i == *from ? "" : cpus[i].core == cpus[i - 1].core ? "+" : " ";
        pp_text_add(out, bytes, "%s%d", gap, cpus[i].number);
    }
    if (i > *from && cpus[*from].speed < fastest)
        pp_text_add(out, bytes, "  (slower)");
    bool has_row = i > *from;
    *from = i;
    return has_row;
}

/* ---- places */

/* Locks the cores that out->cpus names. cpus[n] are the processors that were available. */
static int lock_cores(const struct core_locks *locks, const struct pp_cpu *cpus, int n,
                      struct pp_places *out)
{
    struct pp_cpu_mask used = {0};
    PP_ALLOC(out->locks, out->ranks * out->processors);
    for (int i = 0; i < out->ranks * out->processors; i++)
        pp_mask_add(&used, out->cpus[i]);
    for (int i = 0; i < n; i++) {
        int fd = pp_mask_has(&used, cpus[i].number) ? core_locks_take(locks, cpus[i].core) : -1;
        if (fd >= 0)
            out->locks[out->n_locks++] = fd;
    }
    return 0;
}

/* Places the ranks on the processors cpus[n]. If `fewer`, gives a rank fewer processors rather than
 * cores that another run uses. */
static int place_ranks_on(struct pp_cpu *cpus, int n, const struct core_locks *locks, bool fewer,
                          struct pp_places *out)
{
    int before = out->processors;
    n = locks ? core_locks_filter(locks, cpus, n) : n;
    out->processors = fewer ? divide_cores(cpus, n, out->cores, out->ranks) : before;
    out->fewer = out->processors < before;
    int needed = out->ranks * out->processors;
    if (n < needed) {
        out->shared = out->crowded = true;
        return 0;
    }
    PP_TAKE(struct pp_cpu, pool, n);
    memcpy(pool, cpus, (size_t)n * sizeof(*cpus));
    PP_ALLOC(out->cpus, needed);
    out->siblings = needed > count_cores(cpus, n);
    assign_cores(pool, n, out->ranks, out->processors, out->cpus);
    return locks ? lock_cores(locks, cpus, n, out) : 0;
}

int pp_places_make(const struct pp_places_spec *spec, struct pp_places *out)
{
    struct pp_cpu_mask mask;
    struct pp_quota quota;
    int n = pp_machine_mask(false, &mask);
    if (spec->mask) {
        mask = *spec->mask;
        n = pp_mask_count(&mask);
    }
    PP_TAKE(struct pp_cpu, cpus, n);
    n = pp_topology_read(&mask, cpus);
    pp_quota_here(n, &quota);
    int ranks = spec->ranks, each = quota.cores / ranks;
    each = spec->threads == 0     ? divide_cores(cpus, n, quota.cores, ranks)
           : each < spec->threads ? each
                                  : spec->threads;
    *out =
        (struct pp_places){.ranks = ranks, .processors = each > 0 ? each : 1, .cores = quota.cores};
    out->crowded = ranks > quota.cores || (quota.limits && ranks * each >= quota.cores);
    if (out->crowded || quota.limits || spec->unpinned)
        return 0;
    struct core_locks locks;
    bool asks = spec->locks && core_locks_begin(&locks);
    int rc = place_ranks_on(cpus, n, asks ? &locks : NULL, spec->threads == 0, out);
    if (asks)
        core_locks_end(&locks);
    if (rc < 0)
        pp_places_fini(out);
    return rc;
}

void pp_places_fini(struct pp_places *places)
{
    while (places->n_locks > 0)
        close(places->locks[--places->n_locks]);
    pp_free(places->locks);
    places->locks = NULL;
    pp_free(places->cpus);
    places->cpus = NULL;
}

const int *pp_places_of(const struct pp_places *places, int rank)
{
    return places->cpus ? places->cpus + (size_t)rank * (size_t)places->processors : NULL;
}
