/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the compare backend that tests put a broken backend into. */
#ifndef PPCLI_DEV_COMPARE_H
#define PPCLI_DEV_COMPARE_H

#include "ppcli/backend.h"

/* Fill be->impl, caps and description: every op runs on `fast` and on the plain defaults. */
int compare_open_with(struct pp_backend *be, const struct pp_backend_ops *fast, int threads);

#endif
