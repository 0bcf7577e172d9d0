/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/base/cores.h that only this module uses. */
#ifndef PPCLI_SRC_BASE_CORES_H
#define PPCLI_SRC_BASE_CORES_H

#include "ppcli/base/cores.h"

bool pp_mask_has(const struct pp_cpu_mask *mask, int cpu);

/* Finds the quota of this process. `root` is "" or, in tests, a folder with proc/ and sys/ in it.
 * `mask` is the number of processors that the process may use without a quota. Local. */
void pp_quota_find(const char *root, int mask, struct pp_quota *out);

#endif
