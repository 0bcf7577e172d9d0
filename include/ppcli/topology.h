/* SPDX-License-Identifier: Apache-2.0 */
/* What the processors of this machine share, from hwloc, which is loaded when it is first needed. */
#ifndef PPCLI_TOPOLOGY_H
#define PPCLI_TOPOLOGY_H

#include <stddef.h>

#include "ppcli/machine.h"

enum pp_share {
    PP_SHARE_CACHE, /* the last level */
    PP_SHARE_NUMA,
    PP_SHARE_PACKAGE,
    PP_SHARE_LEVELS
};

struct pp_cpu {
    int number;                 /* the system's */
    int at;                     /* place in the machine's order: what is near shares much */
    int core;                   /* the number of the first hardware thread of its core */
    int sibling;                /* 0: the first of its core in the mask */
    int speed;                  /* kind of core: a higher one is faster */
    int share[PP_SHARE_LEVELS]; /* equal for those that share it */
};

/* The processors of mask, in the machine's order; returns how many. Without hwloc: ascending, with
 * the siblings that the system tells. out: [count of mask]. Local. */
int pp_topology_read(const struct pp_cpu_mask *mask, struct pp_cpu *out);

/* A picture, row by row: the cores from *from on that share a last-level cache (where each has its
 * own, a NUMA node) and are of one kind, "0+8 1+9", + between hardware threads. False: no more. */
bool pp_topology_row(const struct pp_cpu *cpus, int n, int *from, char *out, size_t bytes);

/* Which hwloc reads it: "hwloc, API 2.8"; or why none does. Static storage. */
const char *pp_topology_source(void);

#endif
