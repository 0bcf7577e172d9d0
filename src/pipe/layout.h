/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/pipe/layout.h that only this module uses. */
#ifndef PPCLI_SRC_PIPE_LAYOUT_H
#define PPCLI_SRC_PIPE_LAYOUT_H

#include "ppcli/pipe/layout.h"

/* Parameters of virtual stage s. */
size_t pp_layout_floats(const struct pp_layout *layout, int s);

/* Bytes of an element of the model's input. */
static inline size_t pp_layout_input_bytes(const struct pp_layout *layout)
{
    return layout->model->tokens ? sizeof(float) : layout->value_bytes;
}

/* Which floats of its tensor a piece of a tie has: *first and how many. A tie within a rank is one
 * piece. */
size_t pp_layout_tied_piece(const struct pp_layout *layout, int tie, int piece, size_t *first);

/* Bytes of one slot of channel ch, a multiple of PP_ALIGN. */
size_t pp_layout_slot_bytes(const struct pp_layout *layout, int ch);

/* Steps of the whole training with so many samples. */
int64_t pp_run_steps(const struct pp_config *cfg, int train_n);

#endif
