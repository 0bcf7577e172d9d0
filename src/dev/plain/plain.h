/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the plain backend: its kernels, and the activations in double. */
#ifndef PPCLI_DEV_PLAIN_PLAIN_H
#define PPCLI_DEV_PLAIN_PLAIN_H

#include "ppcli/dev/backend.h"

#define PP_KERNEL(name, type) int plain_##name(struct pp_backend *be, const struct type *a);
#include "ppcli/dev/kernels.def"

/* Return, for query i of head h, in double: the score of key j; and the key with the largest score
 * of those it sees, with the sum of exp(s - largest) in *sum. */
double plain_attention_score(const struct pp_attention *a, int b, int h, int i, int j);
int plain_attention_most(const struct pp_attention *a, int b, int h, int i, double *sum);

double plain_activate(int act, double z);

/* Returns the gradient before the activation, from what the activation saves: z or y. */
double plain_activate_back(int act, double saved, double dy);

#endif
