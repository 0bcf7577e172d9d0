/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hanayo (Liu et al., "Hanayo: Harnessing Wave-like Pipeline Parallelism for Enhanced Large Model
 * Training Efficiency", 2023): the model is folded W times, so that a micro-batch runs down and up
 * the ranks in W waves of two chunks each. More waves mean smaller chunks, less bubble and more
 * messages.
 *
 * greedy.c finds the order: every rank that is free takes a backward if one can run (of the lowest
 * micro-batch, and of its lowest stage), else the forward of its deepest stage that has an input.
 * Time is counted with F = I = W = 1, and a gradient leaves after the I half of its B, as it does
 * at run time. No memory limit is given, yet no rank holds more than 2WP chunks, P whole
 * micro-batches. With M a multiple of P all is done after 6WM + 2P-2 ticks of a chunk. No list can
 * be faster: the last rank starts P-1 ticks late, and its last I is P-1 transfers away from the
 * end. Any other M costs a last round that is not full.
 */
#include "orders.h"

static int check(const struct pp_geometry *g)
{
    if (g->chunks % 2 != 0) {
        struct pp_geometry nearest = *g;
        nearest.chunks = g->chunks + 1;
        return pp_refuse_shape(g, &nearest, "two chunks per wave, an even number");
    }
    return 0;
}

static int emit_all(const struct pp_geometry *g, struct pp_emit **e)
{
    return pp_greedy_emit(g, PP_PLACE_V, PP_GREEDY_WHOLE, e);
}

const struct pp_schedule_ops schedule_hanayo = {
    .placement = PP_PLACE_V,
    .merges = true,
    .default_chunks = 2,
    .check = check,
    .emit_all = emit_all,
};
