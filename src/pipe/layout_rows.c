/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what the config leaves open: for how many micro-batches weight gradients are computed at
 * once, and the logits of how many positions. */
#include "ppcli/pipe/layout.h"

#include <string.h>

#include "ppcli/conf/config.h"
#include "ppcli/data/dataset.h"

/* Rows of a product of weight gradients: above the first number it is hardly faster, above the
 * second not at all. */
#define ROWS_ENOUGH 256
#define ROWS_MOST 1024

/* Returns the largest number of rows that one sample has in a product with weights. */
static size_t most_rows_of_sample(const struct pp_model *model)
{
    size_t most = 1;
    for (int i = 0; i < model->n_nodes; i++) {
        const struct pp_node *n = &model->nodes[i];
        size_t rows = pp_shape_floats(&n->out) / (size_t)n->out.dims[n->out.n - 1];
        most = n->n_params > 0 && rows > most ? rows : most;
    }
    return most;
}

/* Returns how many of the m micro-batches of a full batch are needed to have `enough` rows
 * together; m if all have fewer. */
static int fewest_with_rows(const struct pp_division *d, int batch, const struct pp_model *model,
                            size_t enough)
{
    int share, samples, first, m = d->microbatches; /* of the largest replica, and of its largest
                                                       micro-batch */
    pp_balanced_piece(batch, d->replicas, 0, &first, &share);
    pp_balanced_piece(share, m, 0, &first, &samples);
    size_t rows = (size_t)samples * most_rows_of_sample(model);
    size_t k = rows > 0 ? (enough + rows - 1) / rows : 1;
    return k < (size_t)m ? (int)k : m;
}

int pp_layout_coalesce(const struct pp_division *d, const struct pp_training *training,
                       const struct pp_model *model)
{
    int k = d->coalesce, m = d->microbatches;
    bool in_order = pp_backend_sums_in_order(&training->backend);
    if (training->backend.exact && !in_order)
        return 1;
    /* If merging changes bits, it must not depend on the schedule. One rank has no gaps to fill. */
    bool merges = !in_order || d->stages == 1 || (d->schedule && d->schedule->merges);
    if (k == 0)
        k = d->redo != PP_REDO_NONE || !merges
                ? 1
                : fewest_with_rows(d, training->batch, model, ROWS_ENOUGH);
    return k < m ? k : m;
}

int pp_layout_coalesce_most(const struct pp_division *d, const struct pp_training *training,
                            const struct pp_model *model)
{
    bool open =
        d->coalesce == 0 && training->backend.exact && pp_backend_sums_in_order(&training->backend);
    return open ? fewest_with_rows(d, training->batch, model, ROWS_MOST) : 1;
}

/* Pieces are automatic only if they change no bit: at most 64 MiB of logits, and products of 64
 * rows or more. */
#define LOGITS_FLOATS ((int64_t)1 << 24)
#define LOGITS_ROWS 64

int pp_layout_logits_rows(const struct pp_training *training, const struct pp_model *m, int rows)
{
    const int64_t unit = PP_ALIGN / sizeof(float); /* each piece begins where an array may begin */
    int64_t wanted = (training->logits_rows + unit - 1) / unit * unit;
    int64_t most = LOGITS_FLOATS / m->classes / LOGITS_ROWS * LOGITS_ROWS;
    int64_t all = (int64_t)rows * pp_model_targets(m);
    const struct pp_node *n = &m->nodes[m->n_nodes - 1];
    bool linear = strcmp(n->op->name, "linear") == 0 && n->activation == PP_ACT_NONE;
    most = wanted > 0 ? wanted : most < LOGITS_ROWS ? LOGITS_ROWS : most;
    bool pieces = wanted > 0 || (all > most && pp_backend_sums_in_order(&training->backend));
    return linear && pieces ? (int)(most < all ? most : all) : 0;
}
