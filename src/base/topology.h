/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PPCLI_BASE_TOPOLOGY_H
#define PPCLI_BASE_TOPOLOGY_H

#include "ppcli/base/cores.h"

/* All but `sibling` of the processors of mask that hwloc knows, in its order; 0: it is not here. */
int topology_read_all(const struct pp_cpu_mask *mask, struct pp_cpu *out);

#endif
