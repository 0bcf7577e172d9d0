/* SPDX-License-Identifier: Apache-2.0 */
/* Finds where a pass computes its first value that is not finite, and how large weights are, for a
 * message; reads values back from the device piece by piece. */
#include "chunk.h"

#include <math.h>

#define LOOK_FLOATS ((size_t)1 << 12)

/* Raises *io to the largest |x| of x[n]. A NaN counts as larger than infinity. */
static int find_largest(struct pp_backend *be, size_t n, const float *x, bool are_values, float *io)
{
    float host[LOOK_FLOATS];
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < LOOK_FLOATS ? n - at : LOOK_FLOATS;
        if (are_values)
            PP_TRY(pp_backend_values_to_host(be, host, pp_value_at(be, x, at), some));
        else
            PP_TRY(pp_backend_to_host(be, host, x + at, some * sizeof(*host)));
        for (size_t i = 0; i < some; i++)
            *io = fabsf(host[i]) <= *io || isnan(*io) ? *io : fabsf(host[i]);
    }
    return 0;
}

int pp_chunk_largest_weight(const struct pp_chunk *c, struct pp_backend *be, float *io)
{
    return find_largest(be, c->n_floats, c->params, false, io);
}

int chunk_look(struct pp_chunk *c, struct pp_backend *be, const struct pp_node *n, int rows,
               const float *y)
{
    float most = 0;
    if (!c->looks || c->range.bad_input >= 0)
        return 0;
    size_t all = (size_t)chunk_rows(n, rows) * pp_shape_floats(&n->out), C = all, apart = all;
    if (n->logits) { /* the gaps between rows of logits are undefined */
        C = (size_t)c->model->classes;
        apart = (size_t)pp_model_logits_row(c->model, &be->choice);
    }
    for (size_t r = 0; r * C < all; r++)
        PP_TRY(find_largest(be, C, pp_value_at(be, y, r * apart), true, &most));
    if (!isfinite(most)) {
        c->range.bad_input = n->layer + 1;
        c->range.bad = most;
    }
    return 0;
}
