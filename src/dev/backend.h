/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/dev/backend.h that only this module uses. */
#ifndef PPCLI_SRC_DEV_BACKEND_H
#define PPCLI_SRC_DEV_BACKEND_H

#include "ppcli/dev/backend.h"

int pp_backend_open(const struct pp_backend_ops *ops, int threads, struct pp_backend **out);

#endif
