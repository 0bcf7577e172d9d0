/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PPCLI_BASE_TOPOLOGY_H
#define PPCLI_BASE_TOPOLOGY_H

#include "ppcli/base/cores.h"

/* Fills all members except `sibling` for the processors of mask that hwloc knows, in its order;
 * returns 0 if hwloc is missing. */
int topology_read_all(const struct pp_cpu_mask *mask, struct pp_cpu *out);

#endif
