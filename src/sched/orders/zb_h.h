/* SPDX-License-Identifier: Apache-2.0 */
/* What ZB-H1 and ZB-H2 share; the code is in zb_h1.c. */
#ifndef PPCLI_SCHED_ZB_H_H
#define PPCLI_SCHED_ZB_H_H

#include "../pass.h"

/*
 * The list of rank r: `ahead` forwards, then F (while there are any) and I in turn; from I number
 * `hold` on, the oldest weight gradient behind each; the rest of them at the end. Where all ranks
 * have ahead + hold >= P-1, every wait of the first micro-batches is filled.
 */
int pp_emit_zb_h(const struct pp_geometry *g, int rank, int ahead, int hold, struct pp_emit *e);

#endif
