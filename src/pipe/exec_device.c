/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a device and the turns of steps on their way through it. A step that turns out bad
 * halts the device: it and all steps behind it change nothing. The host learns of it at most
 * EXEC_AHEAD steps later, computes the bad step once more to say what was bad, and its caller goes
 * on from there, as if the host had waited for every step.
 */
#include "exec_device.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"

#define INDEX_AT PP_ALIGN    /* bytes into the block */
#define QUIET_NS 2000000000u /* for a device to finish after a failure */

/* Samples of the largest share of a batch. */
static size_t share_rows(const struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    int most = 0;
    for (int split = 0; split < 2; split++) {
        struct pp_loader shape;
        int n = split == PP_SPLIT_TRAIN ? l->train_n : l->test_n;
        if (n > 0 && pp_loader_shape(n, l->cfg->train.batch_size, l->replicas, x->replica,
                                     l->cfg->pipeline.microbatches, &shape) == 0) {
            int rows = pp_loader_share_rows(&shape, 0);
            most = rows > most ? rows : most;
        }
    }
    return (size_t)most;
}

void exec_device_lay_out(struct pp_exec *x, struct pp_arena *a, bool has_first, bool has_last)
{
    const struct pp_layout *l = x->layout;
    struct exec_device *d = x->device;
    size_t mark = a->used;
    for (int split = 0; split < 2; split++) {
        size_t n = (size_t)(split == PP_SPLIT_TRAIN ? l->train_n : l->test_n);
        d->images[split] =
            has_first && n > 0 ? pp_arena_take(a, n, (size_t)l->model->inputs) : NULL;
        d->labels[split] = has_last && n > 0 ? pp_arena_take(a, n, 1) : NULL;
    }
    x->bytes.data = a->used - mark;
    bool clips = l->cfg->train.clip_norm > 0;
    d->n_votes = 0;
    for (int i = 0; clips && i < l->model->n_layers; i++) {
        d->n_votes += l->model->layers[i].n_params;
    }
    d->n_votes = clips ? d->n_votes : l->n_virtual;
    pp_assert(sizeof(*d->args) <= INDEX_AT);
    d->block_bytes = INDEX_AT + share_rows(x) * sizeof(*d->index);
    d->args = pp_arena_take(a, d->block_bytes, 1);
    d->results = pp_arena_take(a, 1, sizeof(*d->results));
    d->before = pp_arena_take(a, 1, sizeof(*d->before));
    size_t votes = (size_t)d->n_votes + 1;
    d->votes = pp_arena_take(a, votes, sizeof(*d->votes));
    d->all_votes = pp_arena_take(a, (size_t)l->ranks * votes, sizeof(*d->all_votes));
    if (a->base) {
        d->index = (uint32_t *)(void *)((char *)d->args + INDEX_AT);
        for (int split = 0; has_last && split < 2; split++) {
            x->sums[split] = &d->results->sums[split];
        }
    }
}

/* The samples of the layout go up, once: a data set may have more, which a benchmark leaves out. */
static int upload_data(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    struct exec_device *d = x->device;
    for (int split = 0; split < 2; split++) {
        const struct pp_dataset *ds = x->data[split];
        size_t n = (size_t)(split == PP_SPLIT_TRAIN ? l->train_n : l->test_n);
        if (d->images[split]) {
            PP_TRY(pp_backend_to_device(x->be, d->images[split], ds->images,
                                        n * (size_t)ds->features));
        }
        if (d->labels[split]) {
            PP_TRY(pp_backend_to_device(x->be, d->labels[split], ds->labels, n));
        }
    }
    return exec_device_settle(x);
}

int exec_device_create(struct pp_exec *x)
{
    struct exec_device *d = x->device;
    d->timeout_ns = (uint64_t)(x->layout->cfg->run.hang_timeout * 1e9);
    PP_TRY(pp_backend_mark_create(x->be, false, &d->settle));
    for (int i = 0; i < EXEC_AHEAD; i++) {
        struct exec_turn *turn = &d->turns[i];
        void *results = NULL;
        PP_TRY(pp_backend_mark_create(x->be, false, &turn->done));
        PP_TRY(pp_backend_host_alloc(x->be, d->block_bytes, &turn->block));
        PP_TRY(pp_backend_host_alloc(x->be, sizeof(*turn->results), &results));
        turn->results = results;
    }
    PP_TRY(exec_graphs_create(x));
    PP_TRY(exec_time_create(x));
    return upload_data(x);
}

/* Whether the device is done with all memory of this rank, or has failed and will not touch it any
 * more; false when it hangs: then nothing may be freed, for that would wait for it, for ever. */
static bool is_quiet(struct pp_exec *x)
{
    struct exec_device *d = x->device;
    const struct timespec nap = {.tv_sec = 0, .tv_nsec = 100000};
    uint64_t start = pp_clock_ns();
    bool reached = d->settle == NULL || pp_backend_mark_set(x->be, d->settle) < 0;
    while (!reached && pp_backend_mark_reached(x->be, d->settle, &reached) == 0 && !reached) {
        if (pp_clock_ns() - start > QUIET_NS) {
            return false;
        }
        nanosleep(&nap, NULL);
    }
    return true;
}

bool exec_device_destroy(struct pp_exec *x)
{
    struct exec_device *d = x->device;
    struct pp_error why = *pp_error_get();
    bool quiet = is_quiet(x);
    pp_error_adopt(&why);
    if (!quiet) {
        return false;
    }
    exec_graphs_destroy(x);
    exec_time_destroy(x);
    for (int i = 0; i < EXEC_AHEAD; i++) {
        struct exec_turn *turn = &d->turns[i];
        pp_backend_mark_destroy(x->be, turn->done);
        pp_backend_host_free(x->be, turn->block, d->block_bytes);
        pp_backend_host_free(x->be, turn->results, sizeof(*turn->results));
    }
    pp_backend_mark_destroy(x->be, d->settle);
    return true;
}

int exec_device_settle(struct pp_exec *x)
{
    PP_TRY(pp_backend_mark_set(x->be, x->device->settle));
    return pp_transport_wait_mark(x->tp, x->device->settle, x->device->timeout_ns);
}

/* --- turns -------------------------------------------------------------------------------------
 */

static int wait_for(struct pp_exec *x, struct exec_turn *turn)
{
    if (turn->busy) {
        PP_TRY(pp_transport_wait_mark(x->tp, turn->done, x->device->timeout_ns));
        turn->busy = false;
        PP_TRY(exec_time_look(x, turn));
    }
    return 0;
}

/* Collective in effect: all ranks find the same step bad, and come here at the same step. The
 * device has halted; what it did since is forgotten. */
static int tell_bad(struct pp_exec *x, const struct exec_turn *bad, int64_t t)
{
    struct exec_device *d = x->device;
    struct exec_turn turn = *bad;
    struct pp_step_verdict verdict = bad->results->verdict;
    for (int i = 0; i < EXEC_AHEAD; i++) {
        PP_TRY(wait_for(x, &d->turns[i]));
    }
    d->careful = true;
    d->late = (int)(t - turn.t);
    PP_TRY(pp_backend_zero(x->be, &d->results->verdict, sizeof(d->results->verdict)));
    struct pp_loss_sums sums;
    PP_TRY(exec_finite_sums(x, &sums));
    x->good_sums = sums;
    float scale;
    d->again = true;
    PP_TRY(exec_device_upload(x, &turn, 0, 0));
    PP_TRY(exec_enqueue_gradients(x, turn.step, turn.t));
    int rc = exec_finite_verdict(x, turn.t, &scale);
    d->again = false;
    if (rc < 0) {
        return rc;
    }
    if (x->sums[PP_SPLIT_TRAIN]) {
        PP_TRY(pp_backend_to_device(x->be, x->sums[PP_SPLIT_TRAIN], &sums, sizeof(sums)));
    }
    PP_TRY(exec_device_settle(x));
    x->good_sums = sums;
    return pp_fail(PP_EDIVERGED,
                   "a value of rank %d was not finite (%g), but is when computed again",
                   verdict.bad_rank, verdict.bad_value);
}

/* t: the step that is asked for. */
static int look(struct pp_exec *x, struct exec_turn *turn, int64_t t)
{
    bool fresh = turn->busy && turn->split == PP_SPLIT_TRAIN;
    PP_TRY(wait_for(x, turn));
    if (fresh && turn->results->verdict.bad_step > 0) {
        pp_assert(turn->results->verdict.bad_step == turn->t); /* or an older turn had it */
        return tell_bad(x, turn, t);
    }
    return 0;
}

int exec_device_finish(struct pp_exec *x, int64_t t)
{
    struct exec_device *d = x->device;
    for (int i = 0; i < EXEC_AHEAD; i++) {
        PP_TRY(look(x, &d->turns[(d->next + i) % EXEC_AHEAD], t));
    }
    return 0;
}

int exec_device_upload(struct pp_exec *x, struct exec_turn *turn, double lr, int64_t updates)
{
    struct exec_device *d = x->device;
    const struct pp_loader *ld = x->loader[turn->split];
    struct pp_optimizer_args *args = turn->block;
    exec_optimizer_args(x, lr, updates + 1, 1.0f, args);
    args->t = turn->t;
    size_t rows = (size_t)pp_loader_share_rows(ld, turn->step);
    if (rows > 0) {
        const uint32_t *index;
        pp_loader_microbatch(ld, turn->step, 0, &index);
        memcpy((char *)turn->block + INDEX_AT, index, rows * sizeof(*index));
    }
    return pp_backend_upload(x->be, d->args, turn->block, INDEX_AT + rows * sizeof(uint32_t));
}

static int run_turn(struct pp_exec *x, struct exec_turn *turn, double lr, int64_t updates)
{
    PP_TRY(exec_device_upload(x, turn, lr, updates));
    PP_TRY(exec_time_start(x, turn));
    int rc = exec_graph_step(x, turn->split, turn->step, turn->t);
    exec_time_stop(x);
    PP_TRY(rc);
    PP_TRY(pp_backend_download(x->be, turn->results, x->device->results, sizeof(*turn->results)));
    PP_TRY(pp_backend_mark_set(x->be, turn->done));
    turn->busy = true;
    return 0;
}

/* The oldest turn, looked at: the host is never more than EXEC_AHEAD steps ahead. */
static int next_turn(struct pp_exec *x, enum pp_split split, int step, int64_t t,
                     struct exec_turn **out)
{
    struct exec_device *d = x->device;
    struct exec_turn *turn = &d->turns[d->next];
    PP_TRY(look(x, turn, t));
    turn->split = split;
    turn->step = step;
    turn->t = t;
    d->next = (d->next + 1) % EXEC_AHEAD;
    *out = turn;
    return 0;
}

static void launch_begins(struct pp_exec *x, enum pp_split split, int64_t t)
{
    struct pp_event e = {.begin_ns = pp_clock_ns(),
                         .step = (int32_t)t,
                         .message = -1,
                         .stage = -1,
                         .eval = split == PP_SPLIT_TEST,
                         .kind = PP_EVENT_LAUNCH};
    pp_ring_begin(x->ring, &e);
}

int exec_device_train_step(struct pp_exec *x, int step, double lr, int64_t t, int64_t updates)
{
    struct exec_turn *turn = NULL;
    launch_begins(x, PP_SPLIT_TRAIN, t);
    int rc = next_turn(x, PP_SPLIT_TRAIN, step, t, &turn);
    if (rc == 0) {
        rc = run_turn(x, turn, lr, updates);
    }
    if (rc == 0 && x->device->careful) {
        x->device->careful = false;
        rc = exec_device_finish(x, t);
    }
    pp_ring_end(x->ring, pp_clock_ns());
    return rc;
}

int exec_device_test_step(struct pp_exec *x, int step)
{
    struct exec_turn *turn = NULL;
    launch_begins(x, PP_SPLIT_TEST, step);
    PP_TRY(next_turn(x, PP_SPLIT_TEST, step, step, &turn));
    PP_TRY(run_turn(x, turn, 0, 0));
    pp_ring_end(x->ring, pp_clock_ns());
    return 0;
}
