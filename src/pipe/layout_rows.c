/* SPDX-License-Identifier: Apache-2.0 */
/* What is computed at once where the config leaves it open: the weight gradients of how many
 * micro-batches, the logits of how many positions. */
#include "ppcli/pipe/layout.h"

#include <string.h>

#include "ppcli/conf/config.h"
#include "ppcli/data/dataset.h"

/* Rows of a product of weight gradients: of few more it is hardly faster, of many more not at all. */
#define ROWS_ENOUGH 256
#define ROWS_MOST 1024

/* Rows that a sample has in the products of weights, where it has most. */
static size_t rows_of_sample(const struct pp_model *model)
{
    size_t most = 1;
    for (int i = 0; i < model->n_nodes; i++) {
        const struct pp_node *n = &model->nodes[i];
        size_t rows = pp_shape_floats(&n->out) / (size_t)n->out.dims[n->out.n - 1];
        most = n->n_params > 0 && rows > most ? rows : most;
    }
    return most;
}

/* The fewest of m micro-batches of a full batch that have so many rows together. */
static int fewest(const struct pp_division *d, int batch, const struct pp_model *model,
                  size_t enough)
{
    int share, samples, first, m = d->microbatches; /* of the largest replica, and its largest */
    pp_balanced_piece(batch, d->replicas, 0, &first, &share);
    pp_balanced_piece(share, m, 0, &first, &samples);
    size_t rows = (size_t)samples * rows_of_sample(model);
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
    /* where it changes bits they shall not depend on the schedule; one rank has no gaps to fill */
    bool merges = !in_order || d->stages == 1 || (d->schedule && d->schedule->merges);
    if (k == 0)
        k = d->redo != PP_REDO_NONE || !merges ? 1 : fewest(d, training->batch, model, ROWS_ENOUGH);
    return k < m ? k : m;
}

int pp_layout_coalesce_most(const struct pp_division *d, const struct pp_training *training,
                            const struct pp_model *model)
{
    bool open =
        d->coalesce == 0 && training->backend.exact && pp_backend_sums_in_order(&training->backend);
    return open ? fewest(d, training->batch, model, ROWS_MOST) : 1;
}

/* By itself only where that changes no bit: 64 MiB of logits, products that are not too flat. */
#define LOGITS_FLOATS ((int64_t)1 << 24)
#define LOGITS_ROWS 64

int pp_layout_logits_rows(const struct pp_training *training, const struct pp_model *m, int rows)
{
    const int64_t unit = PP_ALIGN / sizeof(float); /* each piece begins where arrays may */
    int64_t wanted = (training->logits_rows + unit - 1) / unit * unit;
    int64_t most = LOGITS_FLOATS / m->classes / LOGITS_ROWS * LOGITS_ROWS;
    int64_t all = (int64_t)rows * pp_model_targets(m);
    const struct pp_node *n = &m->nodes[m->n_nodes - 1];
    bool linear = strcmp(n->op->name, "linear") == 0 && n->activation == PP_ACT_NONE;
    most = wanted > 0 ? wanted : most < LOGITS_ROWS ? LOGITS_ROWS : most;
    bool pieces = wanted > 0 || (all > most && pp_backend_sums_in_order(&training->backend));
    return linear && pieces ? (int)(most < all ? most : all) : 0;
}
