/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps, and what becomes of them. The host writes what a step needs (sample numbers, learning
 * rate) into memory that the device reads, enqueues the step, and looks at its outcome when the
 * step's mark is reached: at once where ops are done when they return, else up to EXEC_AHEAD steps
 * later. A step that turns out bad halts the device: it and all later steps change nothing. The
 * host then tells what was bad, and its caller continues after that step, as if the host had waited
 * for every step.
 */
#include "exec_internal.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

int exec_turns_create(struct pp_exec *x)
{
    x->timeout_ns = (uint64_t)(x->cfg->run.hang_timeout * 1e9);
    x->be->quiet_ns = x->timeout_ns; /* a step may take that long */
    PP_TRY(pp_backend_mark_create(x->be, false, &x->settle));
    for (int i = 0; i < EXEC_AHEAD; i++) {
        struct exec_turn *turn = &x->turns[i];
        void *results = NULL;
        PP_TRY(pp_backend_mark_create(x->be, false, &turn->done));
        PP_TRY(pp_backend_host_alloc(x->be, x->input.block_bytes, &turn->block));
        PP_TRY(pp_backend_host_alloc(x->be, sizeof(*turn->results), &results));
        turn->results = results;
    }
    PP_TRY(exec_graphs_create(x));
    return exec_time_create(x);
}

bool exec_turns_destroy(struct pp_exec *x)
{
    if (!pp_backend_is_quiet(x->be, x->settle))
        return false;
    exec_graphs_destroy(x);
    exec_time_destroy(x);
    for (int i = 0; i < EXEC_AHEAD; i++) {
        struct exec_turn *turn = &x->turns[i];
        pp_backend_mark_destroy(x->be, turn->done);
        pp_backend_host_free(x->be, turn->block, x->input.block_bytes);
        pp_backend_host_free(x->be, turn->results, sizeof(*turn->results));
    }
    pp_backend_mark_destroy(x->be, x->settle);
    return true;
}

int exec_settle(struct pp_exec *x)
{
    PP_TRY(pp_backend_mark_set(x->be, x->settle));
    return pp_transport_wait_mark(x->tp, x->settle, x->timeout_ns);
}

/* ---- what a step enqueues */

/* A replica whose share of the last batch is empty still takes part in the sum. */
static int no_gradients(struct pp_exec *x, int64_t t)
{
    for (int k = 0; k < x->n_stages; k++) {
        struct pp_chunk *c = x->stages[k].chunk;
        PP_TRY(pp_backend_zero(x->be, c->grads, c->n_floats * sizeof(*c->grads)));
    }
    for (int i = 0; i < x->zero.n; i++)
        PP_TRY(exec_zero_post(x, &x->zero.buckets[i], t));
    exec_finite_begin(x, PP_SPLIT_TRAIN);
    return exec_finite_vote(x, 0);
}

static int merge_statistics(struct pp_exec *x, enum pp_merging what)
{
    float *own = x->merge;
    for (int k = 0; k < x->n_stages && x->n_merge > 0; k++) {
        PP_TRY(pp_chunk_merge(x->stages[k].chunk, x->be, what, own));
        own += pp_chunk_merge_floats(x->stages[k].chunk);
    }
    return 0;
}

/* Over the replicas. */
static int add_gradients(struct pp_exec *x, int64_t t)
{
    int replicas = x->layout->replicas;
    if (replicas == 1)
        return 0;
    PP_TRY(merge_statistics(x, PP_MERGE_KEEP));
    PP_TRY(x->zero.n > 0 ? exec_zero_reduce(x, t) : 0);
    if (x->zero.n > 0 && x->n_merge == 0)
        return 0;
    exec_event_begin(x, PP_EVENT_REDUCE, t);
    for (int k = 0; k < x->n_stages && x->zero.n == 0; k++) {
        struct pp_chunk *c = x->stages[k].chunk;
        PP_TRY(pp_transport_reduce(x->tp, x->group, replicas, c->n_floats, c->grads, x->scratch));
    }
    PP_TRY(merge_statistics(x, PP_MERGE_COMPARE));
    PP_TRY(pp_transport_reduce(x->tp, x->group, replicas, x->n_merge, x->merge,
                               x->merge + x->n_merge));
    PP_TRY(merge_statistics(x, PP_MERGE_ADD));
    exec_end(x);
    return 0;
}

int exec_enqueue(struct pp_exec *x, enum pp_split split, int step, int64_t t)
{
    const struct pp_loader *ld = x->loader[split];
    bool train = split == PP_SPLIT_TRAIN;
    if (train && x->sums[split])
        PP_TRY(pp_backend_copy(x->be, x->sums[split], x->before, sizeof(*x->before)));
    PP_TRY(train ? exec_zero_begin(x) : 0);
    if (pp_loader_microbatches(ld, step) > 0)
        PP_TRY(exec_walk(x, split, step, t));
    else if (train)
        PP_TRY(no_gradients(x, t));
    if (!train)
        return 0;
    PP_TRY(add_gradients(x, t));
    PP_TRY(exec_finite_decide(x, t));
    if (x->zero.n > 0)
        return exec_zero_update(x, t);
    exec_event_begin(x, PP_EVENT_UPDATE, t);
    for (int k = 0; k < x->n_stages; k++)
        PP_TRY(pp_chunk_optimizer_step(x->stages[k].chunk, x->be, x->args));
    exec_end(x);
    return 0;
}

/* What the step reads, to the device. updates: as pp_exec_train_step(). */
static int upload(struct pp_exec *x, struct exec_turn *turn, double lr, int64_t updates)
{
    struct pp_optimizer_args *args = turn->block;
    *args = pp_optimizer_args_of(x->cfg, lr, updates + 1);
    args->t = turn->t;
    return exec_input_upload(x, turn);
}

/* ---- what became of it */

static int wait_for(struct pp_exec *x, struct exec_turn *turn)
{
    if (turn->busy) {
        PP_TRY(pp_transport_wait_mark(x->tp, turn->done, x->timeout_ns));
        turn->busy = false;
        PP_TRY(exec_time_look(x, turn));
    }
    return 0;
}

/* Collective in effect: all ranks find the same step bad, and come here at the same step. The
 * device has halted; what it did since is forgotten. */
static int tell_bad(struct pp_exec *x, const struct exec_turn *bad)
{
    struct exec_turn turn = *bad;
    struct pp_step_verdict verdict = bad->results->verdict;
    for (int i = 0; i < EXEC_AHEAD; i++)
        PP_TRY(wait_for(x, &x->turns[i]));
    x->check.check_next = true;
    pp_assert(x->asked >= turn.t);
    x->late = (int)(x->asked - turn.t);
    if (!x->check.measures || bad != &x->turns[(x->next + EXEC_AHEAD - 1) % EXEC_AHEAD]) {
        /* Later steps wrote over its gradients, or nobody knows which value was bad: again. A
         * device that has halted changes nothing, whatever comes out. */
        x->check.looks = true;
        PP_TRY(upload(x, &turn, 0, 0));
        PP_TRY(exec_enqueue(x, turn.split, turn.step, turn.t));
        x->check.looks = false;
    }
    PP_TRY(pp_backend_zero(x->be, &x->results->verdict, sizeof(verdict)));
    return exec_finite_tell(x, &verdict);
}

static int look_at_step(struct pp_exec *x, struct exec_turn *turn)
{
    bool fresh = turn->busy && turn->split == PP_SPLIT_TRAIN;
    PP_TRY(wait_for(x, turn));
    if (fresh && turn->results->verdict.bad_step > 0) {
        pp_assert(turn->results->verdict.bad_step == turn->t); /* or an older turn had it */
        return tell_bad(x, turn);
    }
    if (fresh) {
        pp_loss_sums_add(&x->counters.train, &turn->results->sums[PP_SPLIT_TRAIN]);
        pp_loss_sums_add(&x->epoch_sums, &turn->results->sums[PP_SPLIT_TRAIN]);
    }
    return 0;
}

int pp_exec_finish(struct pp_exec *x)
{
    for (int i = 0; i < EXEC_AHEAD; i++)
        PP_TRY(look_at_step(x, &x->turns[(x->next + i) % EXEC_AHEAD]));
    return 0;
}

int pp_exec_late(const struct pp_exec *x)
{
    return x->late;
}

/* ---- steps */

/* What the backend makes when it first sees a size of micro-batch, it makes before the step. */
static int prepare_sizes(struct pp_exec *x, enum pp_split split, int step)
{
    const struct pp_loader *ld = x->loader[split];
    int last = -1;
    for (int mb = 0; mb < pp_loader_microbatches(ld, step); mb++) {
        const uint32_t *index;
        int rows = pp_loader_microbatch(ld, step, mb, &index);
        for (int k = 0; k < x->n_stages && rows != last; k++)
            PP_TRY(pp_chunk_prepare(x->stages[k].chunk, x->be, rows, split == PP_SPLIT_TRAIN));
        last = rows;
    }
    return 0;
}

/* The oldest turn becomes this step's: the host is never more than EXEC_AHEAD steps ahead. */
static int take_turn(struct pp_exec *x, const struct exec_turn *what, double lr, int64_t updates,
                     struct exec_turn **out)
{
    struct exec_turn *turn = &x->turns[x->next];
    PP_TRY(look_at_step(x, turn));
    turn->split = what->split;
    turn->step = what->step;
    turn->t = what->t;
    x->next = (x->next + 1) % EXEC_AHEAD;
    *out = turn;
    exec_input_take_pictures(x, turn);
    PP_TRY(upload(x, turn, lr, updates));
    return exec_time_start(x, turn);
}

static int turn_is_enqueued(struct pp_exec *x, struct exec_turn *turn)
{
    PP_TRY(pp_backend_download(x->be, turn->results, x->results, sizeof(*turn->results)));
    PP_TRY(pp_backend_mark_set(x->be, turn->done));
    turn->busy = true;
    return 0;
}

/* what: of the turn, which step of what. */
static int run_step(struct pp_exec *x, const struct exec_turn *what, double lr, int64_t updates)
{
    PP_TRY(prepare_sizes(x, what->split, what->step));
    uint64_t allocations = pp_alloc_count();
    exec_time_launch(x, what->split, what->t);
    struct exec_turn *turn = NULL;
    int rc = take_turn(x, what, lr, updates, &turn);
    if (rc == 0) {
        struct exec_graph *g = x->check.looks ? NULL : exec_graph_next(x, what->split, what->step);
        rc = g ? exec_graph_run(x, g, what->step, what->t)
               : exec_enqueue(x, what->split, what->step, what->t);
        exec_time_stop(x);
    }
    rc = rc < 0 ? rc : turn_is_enqueued(x, turn);
    bool careful = x->check.check_next && what->split == PP_SPLIT_TRAIN;
    if (rc == 0 && (careful || !x->be->caps.async)) {
        x->check.check_next = x->check.check_next && !careful;
        rc = pp_exec_finish(x);
    }
    exec_time_launched(x);
    pp_assert(pp_alloc_count() == allocations);
    return rc;
}

int pp_exec_train_step(struct pp_exec *x, int step, double lr, int64_t t, int64_t updates)
{
    struct exec_turn what = {.split = PP_SPLIT_TRAIN, .step = step, .t = t};
    x->asked = t;
    return run_step(x, &what, lr, updates);
}

void pp_exec_keep_logits(struct pp_exec *x, float *logits)
{
    x->kept = logits;
}

int pp_exec_test_step(struct pp_exec *x, int step)
{
    struct exec_turn what = {.split = PP_SPLIT_TEST, .step = step, .t = step};
    return run_step(x, &what, 0, 0);
}

int pp_exec_test_tell(struct pp_exec *x, double loss, char *out, size_t bytes, bool *out_all)
{
    char first[PP_EXEC_WHAT + 2] = "", what[PP_EXEC_WHAT];
    int batches = 0, all = pp_exec_test_steps(x);
    for (int step = 0; step < all; step++) {
        x->check.looks = true;
        int rc = pp_exec_test_step(x, step);
        x->check.looks = false;
        PP_TRY(rc < 0 ? rc : pp_exec_finish(x));
        PP_TRY(exec_finite_of_test(x, what, sizeof(what)));
        if (what[0] && batches++ == 0)
            snprintf(first, sizeof(first), ": %s", what);
    }
    *out_all = batches == all;
    snprintf(what, sizeof(what), ", in %d of %d batches", batches, all);
    snprintf(out, bytes, "the test loss is not finite (%s)%s%s", isnan(loss) ? "NaN" : "Inf",
             batches > 0 ? what : "", first);
    return 0;
}

/* ---- epochs and counters */

int pp_exec_start_epoch(struct pp_exec *x, uint64_t epoch, const struct pp_loss_sums *so_far)
{
    static const struct pp_loss_sums zero;
    PP_TRY(pp_exec_finish(x));
    if (x->input.ahead)
        pp_ahead_rest(x->input.ahead);
    x->epoch = epoch;
    pp_loader_start_epoch(x->loader[PP_SPLIT_TRAIN], epoch);
    if (x->sums[PP_SPLIT_TRAIN])
        x->epoch_sums = so_far ? *so_far : zero;
    return 0;
}

int pp_exec_take_counters(struct pp_exec *x, struct pp_exec_counters *out)
{
    static const struct pp_loss_sums zero;
    PP_TRY(pp_exec_finish(x));
    if (x->sums[PP_SPLIT_TRAIN]) {
        x->counters.epoch = x->epoch_sums;
        PP_TRY(pp_backend_to_host(x->be, &x->counters.test, x->sums[PP_SPLIT_TEST], sizeof(zero)));
        PP_TRY(pp_backend_zero(x->be, x->sums[PP_SPLIT_TEST], sizeof(zero)));
    }
    PP_TRY(exec_time_take(x));
    *out = x->counters;
    memset(&x->counters, 0, sizeof(x->counters));
    return 0;
}
