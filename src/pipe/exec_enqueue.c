/* SPDX-License-Identifier: Apache-2.0 */
/* What a step enqueues on a device: the same with the same arguments, so that it can be captured.
 */
#include "exec_device.h"

#include <string.h>

#include "ppcli/err.h"

/* Squares of this rank's gradients, each at its place among all ranks'; the others stay 0. */
static int squares(struct pp_exec *x)
{
    const struct exec_device *d = x->device;
    bool clips = x->layout->cfg->train.clip_norm > 0;
    for (int k = 0; k < x->n_stages; k++) {
        const struct pp_chunk *c = x->stages[k].chunk;
        if (!clips) {
            PP_TRY(pp_backend_sum_squares(x->be, c->n_floats, c->grads, &d->votes[x->stages[k].s]));
            continue;
        }
        int first = exec_first_param(x, c);
        for (int i = 0; i < pp_chunk_param_count(c); i++) {
            size_t offset, n;
            pp_chunk_param(c, i, &offset, &n);
            PP_TRY(pp_backend_sum_squares(x->be, n, c->grads + offset, &d->votes[first + i]));
        }
    }
    return 0;
}

/* All ranks' votes to every rank's device, which judges alike. */
static int decide(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    struct exec_device *d = x->device;
    struct pp_loss_sums *sums = x->sums[PP_SPLIT_TRAIN];
    PP_TRY(squares(x));
    if (sums) {
        PP_TRY(pp_backend_copy(x->be, &d->votes[d->n_votes], &sums->loss, sizeof(sums->loss)));
    }
    size_t bytes = ((size_t)d->n_votes + 1) * sizeof(*d->votes);
    PP_TRY(pp_transport_allgather_on(x->tp, d->votes, bytes, d->all_votes));
    const struct pp_judgement j = {.ranks = l->ranks,
                                   .stages = l->stages,
                                   .n = d->n_votes,
                                   .clip_norm = l->cfg->train.clip_norm,
                                   .halt = true,
                                   .votes = d->all_votes,
                                   .before = sums ? d->before : NULL,
                                   .sums = sums,
                                   .args = d->args,
                                   .verdict = &d->results->verdict};
    return pp_backend_judge(x->be, &j);
}

int exec_enqueue_gradients(struct pp_exec *x, int step, int64_t t)
{
    const struct pp_loader *ld = x->loader[PP_SPLIT_TRAIN];
    if (pp_loader_microbatches(ld, step) > 0) {
        float mean = (float)(1.0 / pp_loader_batch_rows(ld, step));
        PP_TRY(exec_walk(x, PP_SPLIT_TRAIN, step, t, mean));
    } else {
        PP_TRY(exec_no_gradients(x));
    }
    if (x->layout->replicas > 1) {
        exec_event_begin(x, PP_EVENT_REDUCE, t);
        PP_TRY(exec_reduce_gradients(x));
        exec_event_end(x);
    }
    return 0;
}

static int enqueue_training(struct pp_exec *x, int step, int64_t t)
{
    struct exec_device *d = x->device;
    if (x->sums[PP_SPLIT_TRAIN]) {
        PP_TRY(pp_backend_copy(x->be, d->before, x->sums[PP_SPLIT_TRAIN], sizeof(*d->before)));
    }
    PP_TRY(exec_enqueue_gradients(x, step, t));
    exec_event_begin(x, PP_EVENT_CLIP, t);
    PP_TRY(decide(x));
    exec_event_end(x);
    exec_event_begin(x, PP_EVENT_UPDATE, t);
    for (int k = 0; k < x->n_stages; k++) {
        PP_TRY(pp_chunk_optimizer_step(x->stages[k].chunk, x->be, d->args));
    }
    exec_event_end(x);
    return 0;
}

int exec_enqueue(struct pp_exec *x, enum pp_split split, int step, int64_t t)
{
    if (split == PP_SPLIT_TRAIN) {
        return enqueue_training(x, step, t);
    }
    if (pp_loader_microbatches(x->loader[split], step) == 0) {
        return 0;
    }
    return exec_walk(x, split, step, t, 0.0f);
}
