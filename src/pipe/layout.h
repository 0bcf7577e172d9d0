/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/pipe/layout.h that only this module uses. */
#ifndef PPCLI_SRC_PIPE_LAYOUT_H
#define PPCLI_SRC_PIPE_LAYOUT_H

#include "ppcli/pipe/layout.h"

/* Returns how many floats the parameters of stage s have, which is counted over all chunks. */
size_t pp_layout_floats(const struct pp_layout *layout, int s);

/* Returns the bytes of an element of the model's input. */
static inline size_t pp_layout_input_bytes(const struct pp_layout *layout)
{
    return layout->model->tokens ? sizeof(float) : layout->value_bytes;
}

/* Returns how many floats of its tensor a piece of a tie has, and their offset in *first. A tie
 * within a rank has one piece. */
size_t pp_layout_tied_piece(const struct pp_layout *layout, int tie, int piece, size_t *first);

/* Returns how many bytes a slot of channel ch has, a multiple of PP_ALIGN. */
size_t pp_layout_slot_bytes(const struct pp_layout *layout, int ch);

/* Returns the number of steps of the whole training on train_n samples. */
int64_t pp_run_steps(const struct pp_config *cfg, int train_n);

#endif
