/* SPDX-License-Identifier: Apache-2.0 */
/* What the processors of this machine share, from hwloc, which is loaded when it is first needed. */
#ifndef PPCLI_TOPOLOGY_H
#define PPCLI_TOPOLOGY_H

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

/* Which hwloc reads it: "hwloc 2.9.0"; or why none does. Static storage. */
const char *pp_topology_source(void);

#endif
