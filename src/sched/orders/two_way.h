/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two pipelines over the same ranks: stage s of the one that goes down is on rank s, stage s of the
 * one that goes up, which is virtual stage P + s, on rank P-1-s. That is the V placement of two
 * chunks, without the hand-over at the fold. Each pipeline has half of the micro-batches, counted
 * from 0.
 */
#ifndef PPCLI_SCHED_TWO_WAY_H
#define PPCLI_SCHED_TWO_WAY_H

#include "../pass.h"

/* Both need an even number of ranks and an even number of micro-batches, at least
 * `least` per stage. PP_ECONFIG with the nearest legal shape. */
int pp_check_two_way(const struct pp_geometry *g, int least);

#endif
