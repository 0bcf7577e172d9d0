/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the plain backend share: its kernels, and the activations in double. */
#ifndef PPCLI_DEV_PLAIN_PLAIN_H
#define PPCLI_DEV_PLAIN_PLAIN_H

#include "ppcli/backend.h"

#define PP_KERNEL(name, type) int plain_##name(struct pp_backend *be, const struct type *a);
#include "ppcli/kernels.def"

double plain_activate(enum pp_activation act, double z);

/* The gradient before the activation, from what it saves: z or y. */
double plain_activate_back(enum pp_activation act, double saved, double dy);

#endif
