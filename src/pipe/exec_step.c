/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs steps. The host writes the arguments of a step (sample numbers, learning rate) into memory
 * that the device reads, enqueues the step, and reads its results when the step's mark is reached:
 * at once if ops are complete when they return, else up to EXEC_AHEAD steps later. A bad step halts
 * the device: it and all later steps change nothing. The host then reports what was bad, and its
 * caller continues after that step as if the host had waited for every step.
 */
#include "exec_internal.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

int exec_flights_create(struct pp_exec *x)
{
    x->timeout_ns = (uint64_t)(x->cfg->run.hang_timeout * 1e9);
    x->be->quiet_ns = x->timeout_ns; /* a step may take that long */
    PP_TRY(pp_backend_mark_create(x->be, false, &x->drained));
    for (int i = 0; i < EXEC_AHEAD; i++) {
        struct exec_flight *flight = &x->flights[i];
        void *results = NULL;
        PP_TRY(pp_backend_mark_create(x->be, false, &flight->done));
        PP_TRY(pp_backend_host_alloc(x->be, x->input.block_bytes, &flight->block));
        PP_TRY(pp_backend_host_alloc(x->be, sizeof(*flight->results), &results));
        flight->results = results;
    }
    PP_TRY(exec_graphs_create(x));
    return exec_time_create(x);
}

bool exec_flights_destroy(struct pp_exec *x)
{
    if (!pp_backend_is_quiet(x->be, x->drained))
        return false;
    exec_graphs_destroy(x);
    exec_time_destroy(x);
    for (int i = 0; i < EXEC_AHEAD; i++) {
        struct exec_flight *flight = &x->flights[i];
        pp_backend_mark_destroy(x->be, flight->done);
        pp_backend_host_free(x->be, flight->block, x->input.block_bytes);
        pp_backend_host_free(x->be, flight->results, sizeof(*flight->results));
    }
    pp_backend_mark_destroy(x->be, x->drained);
    return true;
}

int exec_drain(struct pp_exec *x)
{
    PP_TRY(pp_backend_mark_set(x->be, x->drained));
    return pp_transport_wait_mark(x->tp, x->drained, x->timeout_ns);
}

/* ---- the work of a step */

/* Takes part in the sum of gradients with zeros, because this replica has no samples of the last
 * batch. */
static int send_zero_gradients(struct pp_exec *x, int64_t t)
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

/* Sums the gradients, and the statistics of batch norms, over the replicas. */
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
    exec_action_end(x);
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
        PP_TRY(send_zero_gradients(x, t));
    if (!train)
        return 0;
    PP_TRY(add_gradients(x, t));
    PP_TRY(exec_finite_decide(x, t));
    if (x->zero.n > 0)
        return exec_zero_update(x, t);
    exec_event_begin(x, PP_EVENT_UPDATE, t);
    for (int k = 0; k < x->n_stages; k++)
        PP_TRY(pp_chunk_optimizer_step(x->stages[k].chunk, x->be, x->args));
    exec_action_end(x);
    return 0;
}

/* Copies the arguments of the step to the device. `updates` is the number of updates before it, as
 * in pp_exec_train_step(). */
static int upload_step(struct pp_exec *x, struct exec_flight *flight, double lr, int64_t updates)
{
    struct pp_optimizer_args *args = flight->block;
    *args = pp_optimizer_args_of(x->cfg, lr, updates + 1);
    args->t = flight->t;
    return exec_input_upload(x, flight);
}

/* ---- its results */

static int wait_for_flight(struct pp_exec *x, struct exec_flight *flight)
{
    if (flight->busy) {
        PP_TRY(pp_transport_wait_mark(x->tp, flight->done, x->timeout_ns));
        flight->busy = false;
        PP_TRY(exec_time_read(x, flight));
    }
    return 0;
}

/* Reports a bad step. All ranks find the same step bad and call this at the same step, so it is
 * collective. The device has halted; the work enqueued since then has no effect. */
static int report_bad_step(struct pp_exec *x, const struct exec_flight *bad)
{
    struct exec_flight flight = *bad;
    struct pp_step_verdict verdict = bad->results->verdict;
    for (int i = 0; i < EXEC_AHEAD; i++)
        PP_TRY(wait_for_flight(x, &x->flights[i]));
    x->check.check_next = true;
    pp_assert(x->asked >= flight.t);
    x->lag = (int)(x->asked - flight.t);
    if (!x->check.measures || bad != &x->flights[(x->next + EXEC_AHEAD - 1) % EXEC_AHEAD]) {
        /* Later steps overwrote its gradients, or the bad value is unknown, so run the step again.
         * A device that has halted changes nothing, whatever the result. */
        x->check.looks = true;
        PP_TRY(upload_step(x, &flight, 0, 0));
        PP_TRY(exec_enqueue(x, flight.split, flight.step, flight.t));
        x->check.looks = false;
    }
    PP_TRY(pp_backend_zero(x->be, &x->results->verdict, sizeof(verdict)));
    return exec_finite_tell(x, &verdict);
}

static void add_norm(const struct pp_exec *x, struct pp_norm_sums *to,
                     const struct pp_step_verdict *v)
{
    if (!x->layout->training.clips || v->skipped)
        return;
    to->steps++;
    to->clipped += v->grad_scale < 1;
    to->sum += v->norm;
    to->most = v->norm > to->most ? v->norm : to->most;
}

static int read_step_results(struct pp_exec *x, struct exec_flight *flight)
{
    bool fresh = flight->busy && flight->split == PP_SPLIT_TRAIN;
    PP_TRY(wait_for_flight(x, flight));
    if (fresh && flight->results->verdict.bad_step > 0) {
        /* else an older step in flight had it */
        pp_assert(flight->results->verdict.bad_step == flight->t);
        return report_bad_step(x, flight);
    }
    if (fresh) {
        pp_loss_sums_add(&x->counters.train, &flight->results->sums[PP_SPLIT_TRAIN]);
        pp_loss_sums_add(&x->epoch_sums, &flight->results->sums[PP_SPLIT_TRAIN]);
        add_norm(x, &x->counters.norms, &flight->results->verdict);
        add_norm(x, &x->epoch_norms, &flight->results->verdict);
    }
    return 0;
}

int pp_exec_finish(struct pp_exec *x)
{
    for (int i = 0; i < EXEC_AHEAD; i++)
        PP_TRY(read_step_results(x, &x->flights[(x->next + i) % EXEC_AHEAD]));
    return 0;
}

int pp_exec_lag(const struct pp_exec *x)
{
    return x->lag;
}

/* ---- steps */

/* Makes the backend prepare for each new size of micro-batch before the step, because a step must
 * not allocate. */
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

/* Waits for the oldest step in flight and reuses its memory for this step, so that the host is
 * never more than EXEC_AHEAD steps ahead. */
static int begin_flight(struct pp_exec *x, const struct exec_flight *what, double lr,
                        int64_t updates, struct exec_flight **out)
{
    struct exec_flight *flight = &x->flights[x->next];
    PP_TRY(read_step_results(x, flight));
    flight->split = what->split;
    flight->step = what->step;
    flight->t = what->t;
    x->next = (x->next + 1) % EXEC_AHEAD;
    *out = flight;
    exec_input_take_pictures(x, flight);
    PP_TRY(upload_step(x, flight, lr, updates));
    return exec_time_start(x, flight);
}

static int end_enqueue(struct pp_exec *x, struct exec_flight *flight)
{
    PP_TRY(pp_backend_download(x->be, flight->results, x->results, sizeof(*flight->results)));
    PP_TRY(pp_backend_mark_set(x->be, flight->done));
    flight->busy = true;
    return 0;
}

/* Runs a step. `what` holds its split, step and t. */
static int run_step(struct pp_exec *x, const struct exec_flight *what, double lr, int64_t updates)
{
    PP_TRY(prepare_sizes(x, what->split, what->step));
    uint64_t allocations = pp_alloc_count();
    exec_launch_begin(x, what->split, what->t);
    struct exec_flight *flight = NULL;
    int rc = begin_flight(x, what, lr, updates, &flight);
    if (rc == 0) {
        struct exec_graph *g = x->check.looks ? NULL : exec_graph_next(x, what->split, what->step);
        rc = g ? exec_graph_run(x, g, what->step, what->t)
               : exec_enqueue(x, what->split, what->step, what->t);
        exec_time_stop(x);
    }
    rc = rc < 0 ? rc : end_enqueue(x, flight);
    bool checks_now = x->check.check_next && what->split == PP_SPLIT_TRAIN;
    if (rc == 0 && (checks_now || !x->be->caps.async)) {
        x->check.check_next = x->check.check_next && !checks_now;
        rc = pp_exec_finish(x);
    }
    exec_launch_end(x);
    pp_assert(pp_alloc_count() == allocations);
    return rc;
}

int pp_exec_train_step(struct pp_exec *x, int step, double lr, int64_t t, int64_t updates)
{
    struct exec_flight what = {.split = PP_SPLIT_TRAIN, .step = step, .t = t};
    x->asked = t;
    return run_step(x, &what, lr, updates);
}

void pp_exec_keep_logits(struct pp_exec *x, float *logits)
{
    x->kept = logits;
}

int pp_exec_test_step(struct pp_exec *x, int step)
{
    struct exec_flight what = {.split = PP_SPLIT_TEST, .step = step, .t = step};
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
        PP_TRY(exec_finite_describe_test(x, what, sizeof(what)));
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
    x->epoch_norms = (struct pp_norm_sums){0};
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
    x->counters.epoch_norms = x->epoch_norms;
    PP_TRY(exec_time_correct(x));
    *out = x->counters;
    memset(&x->counters, 0, sizeof(x->counters));
    return 0;
}
