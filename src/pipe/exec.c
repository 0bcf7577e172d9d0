/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor's life and its steps: set-up, training step (plan, replica reduction, clipping,
 * optimizer), evaluation step.
 */
#include "exec_device.h"

#include <string.h>

#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"

static int open_channels(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    int n = 0;
    struct pp_channel_spec *specs = pp_alloc((size_t)l->n_channels, sizeof(*specs));
    void **memory = pp_alloc((size_t)l->n_channels, sizeof(*memory));
    int rc = pp_transport_agree(x->tp, specs && memory ? 0 : PP_ERESOURCE);
    if (rc < 0) {
        goto out;
    }
    pp_assert(specs != NULL && memory != NULL); /* or this rank had not agreed */
    int base = x->replica * l->stages;
    for (int c = 0; c < l->n_channels; c++) {
        int src = l->plans[0].plan->channels[c].src_rank;
        int dst = l->plans[0].plan->channels[c].dst_rank;
        if (x->channels[c].id < 0 || src == dst || l->channel_slots[c] == 0) {
            continue;
        }
        specs[n] = (struct pp_channel_spec){.src = base + src,
                                            .dst = base + dst,
                                            .id = x->replica * l->n_channels + c,
                                            .slots = l->channel_slots[c],
                                            .bytes = pp_layout_slot_bytes(l, c)};
        memory[n] = x->channels[c].memory;
        x->channels[c].spec = n++;
    }
    rc = pp_transport_open_channels(x->tp, specs, n, memory);
out:
    pp_free(specs);
    pp_free(memory);
    return rc;
}

/* Per plan: which receives to post before the first action, and the last input gradient. */
static int find_first_and_last(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    x->first = pp_alloc((size_t)l->n_plans, sizeof(*x->first));
    if (!x->first) {
        return PP_ERESOURCE;
    }
    for (int i = 0; i < l->n_plans; i++) {
        const struct pp_plan *plan = l->plans[i].plan;
        for (int pass = 0; pass < 2; pass++) {
            int n = 0;
            for (int m = 0; m < plan->n_messages; m++) {
                const struct pp_message *msg = &plan->messages[m];
                if (!msg->first_in_slot ||
                    plan->channels[msg->channel].dst_rank != x->pipeline_rank) {
                    continue;
                }
                if (pass == 1) {
                    x->first[i].messages[n] = m;
                }
                n++;
            }
            x->first[i].n = n;
            if (pass == 0 && !(x->first[i].messages = pp_alloc((size_t)n, sizeof(int)))) {
                return PP_ERESOURCE;
            }
        }
        const struct pp_rank_plan *mine = &plan->ranks[x->pipeline_rank];
        for (int k = 0; k < mine->n_actions; k++) {
            if (mine->actions[k].op == PP_OP_I || mine->actions[k].op == PP_OP_B) {
                x->first[i].last_i = &mine->actions[k];
            }
        }
    }
    return 0;
}

static int open_loaders(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    const struct pp_config *cfg = l->cfg;
    PP_TRY(pp_loader_create(l->train_n, cfg->train.batch_size, l->replicas, x->replica,
                            cfg->pipeline.microbatches, true, cfg->train.seed,
                            &x->loader[PP_SPLIT_TRAIN]));
    if (l->test_n == 0) {
        return 0;
    }
    PP_TRY(pp_loader_create(l->test_n, cfg->train.batch_size, l->replicas, x->replica,
                            cfg->pipeline.microbatches, false, cfg->train.seed,
                            &x->loader[PP_SPLIT_TEST]));
    pp_loader_start_epoch(x->loader[PP_SPLIT_TEST], 0);
    return 0;
}

static int small_memory(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    x->group = pp_alloc((size_t)l->replicas, sizeof(*x->group));
    if (!x->group) {
        return PP_ERESOURCE;
    }
    for (int d = 0; d < l->replicas; d++) {
        x->group[d] = d * l->stages + x->pipeline_rank;
    }
    return exec_finite_create(x);
}

/* Everything that can fail on one rank alone, before the first message. */
static int create_local(struct pp_exec *x, const struct pp_exec_spec *spec)
{
    PP_TRY(exec_memory(x, spec));
    PP_TRY(small_memory(x));
    PP_TRY(find_first_and_last(x));
    PP_TRY(open_loaders(x));
    if (!x->tp->be) {
        PP_TRY(pp_transport_bind(x->tp, x->be));
    }
    if (x->device) {
        PP_TRY(exec_device_create(x));
    }
    for (int k = 0; k < x->n_stages; k++) {
        PP_TRY(pp_chunk_init(x->stages[k].chunk, x->be, x->layout->cfg->train.seed));
    }
    return 0;
}

int pp_exec_create(const struct pp_exec_spec *spec, struct pp_backend *be, struct pp_transport *tp,
                   const struct pp_dataset *train, const struct pp_dataset *test,
                   struct pp_exec **out)
{
    struct pp_exec *x = pp_alloc(1, sizeof(*x));
    int rc = x ? 0 : PP_ERESOURCE;
    if (x) {
        x->be = be;
        x->tp = tp;
        x->ring = spec->ring;
        x->data[PP_SPLIT_TRAIN] = train;
        x->data[PP_SPLIT_TEST] = test;
        rc = create_local(x, spec);
    }
    rc = pp_transport_agree(tp, rc);
    if (rc == 0) {
        pp_assert(x != NULL);
        rc = open_channels(x);
    }
    if (rc < 0) {
        pp_exec_destroy(&x);
        return rc;
    }
    *out = x;
    return 0;
}

void pp_exec_destroy(struct pp_exec **exec)
{
    struct pp_exec *x = *exec;
    if (!x) {
        return;
    }
    for (int i = 0; x->first && i < x->layout->n_plans; i++) {
        pp_free(x->first[i].messages);
    }
    pp_free(x->first);
    pp_loader_destroy(&x->loader[0]);
    pp_loader_destroy(&x->loader[1]);
    if (x->device && !exec_device_destroy(x)) {
        x->arena.base = NULL;
    }
    pp_free(x->group);
    exec_finite_destroy(x);
    exec_memory_free(x);
    pp_free(x);
    *exec = NULL;
}

void exec_record_begin(struct pp_exec *x, struct pp_event *e)
{
    if (x->device) {
        exec_time_begin(x, e);
        return;
    }
    e->begin_ns = x->now;
    pp_ring_begin(x->ring, e);
}

void exec_event_begin(struct pp_exec *x, enum pp_event_kind kind, int64_t t)
{
    struct pp_event e = {.step = (int32_t)t, .message = -1, .stage = -1, .kind = (uint8_t)kind};
    exec_record_begin(x, &e);
}

uint64_t exec_event_end(struct pp_exec *x)
{
    if (x->device) {
        (void)exec_time_end(x); /* a stream that fails says so at the next op, too */
        return 0;
    }
    uint64_t before = x->now;
    x->now = pp_clock_ns();
    pp_ring_end(x->ring, x->now);
    return x->now - before;
}

uint64_t pp_exec_events_per_step(const struct pp_layout *l)
{
    /* F: wait, slot, F, send; I: the same; W: W, release; then reduce, vote, clip, update,
     * meet, report, and after an epoch meet and report once more; on a device launch. */
    static const uint64_t of_op[] = {[PP_OP_F] = 5, [PP_OP_I] = 4, [PP_OP_W] = 2, [PP_OP_B] = 6};
    uint64_t most = 0;
    for (int i = 0; i < l->n_plans; i++) {
        for (int r = 0; r < l->stages; r++) {
            const struct pp_rank_plan *p = &l->plans[i].plan->ranks[r];
            uint64_t n = 9;
            for (int k = 0; k < p->n_actions; k++) {
                n += of_op[p->actions[k].op];
            }
            most = n > most ? n : most;
        }
    }
    return most;
}

bool pp_exec_times(const struct pp_exec *x, int s, struct pp_exec_times *out)
{
    for (int k = 0; k < x->n_stages; k++) {
        if (x->stages[k].s == s) {
            *out = x->stages[k].times;
            return true;
        }
    }
    return false;
}

struct pp_exec_time pp_exec_update_time(const struct pp_exec *x)
{
    return x->update;
}

void pp_exec_forget_times(struct pp_exec *x)
{
    for (int k = 0; k < x->n_stages; k++) {
        memset(&x->stages[k].times, 0, sizeof(x->stages[k].times));
    }
    memset(&x->update, 0, sizeof(x->update));
    if (x->device) {
        exec_time_next(x);
    }
}

int pp_exec_train_steps(const struct pp_exec *x)
{
    return pp_loader_steps(x->loader[PP_SPLIT_TRAIN]);
}

int pp_exec_test_steps(const struct pp_exec *x)
{
    return x->layout->test_n > 0 ? pp_loader_steps(x->loader[PP_SPLIT_TEST]) : 0;
}

const struct pp_exec_bytes *pp_exec_bytes(const struct pp_exec *x)
{
    return &x->bytes;
}

int exec_no_gradients(struct pp_exec *x)
{
    for (int k = 0; k < x->n_stages; k++) {
        struct pp_chunk *c = x->stages[k].chunk;
        PP_TRY(pp_backend_zero(x->be, c->grads, c->n_floats * sizeof(*c->grads)));
    }
    exec_finite_begin(x, PP_SPLIT_TRAIN);
    return x->device && !x->device->again ? 0 : exec_finite_vote(x, 0);
}

int exec_reduce_gradients(struct pp_exec *x)
{
    for (int k = 0; k < x->n_stages; k++) {
        struct pp_chunk *c = x->stages[k].chunk;
        PP_TRY(pp_transport_reduce(x->tp, x->group, x->layout->replicas, c->n_floats, c->grads,
                                   x->scratch));
    }
    return 0;
}

void exec_optimizer_args(const struct pp_exec *x, double lr, int64_t number, float grad_scale,
                         struct pp_optimizer_args *out)
{
    const struct pp_config *cfg = x->layout->cfg;
    *out = (struct pp_optimizer_args){
        .kind = cfg->train.optimizer,
        .lr = (float)lr,
        .momentum = (float)cfg->train.momentum,
        .beta1 = (float)cfg->train.beta1,
        .beta2 = (float)cfg->train.beta2,
        .eps = (float)cfg->train.eps,
        .weight_decay = (float)cfg->train.weight_decay,
        .grad_scale = grad_scale,
        .step = number,
    };
}

static int optimizer_step(struct pp_exec *x, double lr, int64_t number, float grad_scale)
{
    struct pp_optimizer_args a;
    exec_optimizer_args(x, lr, number, grad_scale, &a);
    for (int k = 0; k < x->n_stages; k++) {
        PP_TRY(pp_chunk_optimizer_step(x->stages[k].chunk, x->be, &a));
    }
    return 0;
}

/* What the backend makes when it first sees a size of micro-batch, it makes before the step. */
static int prepare(struct pp_exec *x, enum pp_split split, int step)
{
    const struct pp_loader *ld = x->loader[split];
    int last = -1;
    for (int mb = 0; mb < pp_loader_microbatches(ld, step) && x->be->caps.async; mb++) {
        const uint32_t *index;
        int rows = pp_loader_microbatch(ld, step, mb, &index);
        for (int k = 0; k < x->n_stages && rows != last; k++) {
            PP_TRY(pp_chunk_prepare(x->stages[k].chunk, x->be, rows, split == PP_SPLIT_TRAIN));
        }
        last = rows;
    }
    return 0;
}

/* With memory of the host, whose ops are done when they return. */
static int train_step(struct pp_exec *x, int step, double lr, int64_t t, int64_t updates)
{
    const struct pp_loader *ld = x->loader[PP_SPLIT_TRAIN];
    float grad_scale = 1.0f;
    x->now = pp_clock_ns();
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
    PP_TRY(exec_finite_verdict(x, t, &grad_scale));
    exec_event_begin(x, PP_EVENT_UPDATE, t);
    PP_TRY(optimizer_step(x, lr, updates + 1, grad_scale));
    uint64_t ns = exec_event_end(x);
    x->counters.busy_ns += ns;
    x->update.ns += ns;
    x->update.n++;
    return 0;
}

int pp_exec_train_step(struct pp_exec *x, int step, double lr, int64_t t, int64_t updates)
{
    PP_TRY(prepare(x, PP_SPLIT_TRAIN, step));
    uint64_t allocations = pp_alloc_count();
    int rc = x->device ? exec_device_train_step(x, step, lr, t, updates)
                       : train_step(x, step, lr, t, updates);
    pp_assert(pp_alloc_count() == allocations);
    return rc;
}

int pp_exec_finish(struct pp_exec *x, int64_t t)
{
    return x->device ? exec_device_finish(x, t) : 0;
}

int pp_exec_late(const struct pp_exec *x)
{
    return x->device ? x->device->late : 0;
}

int pp_exec_test_step(struct pp_exec *x, int step)
{
    PP_TRY(prepare(x, PP_SPLIT_TEST, step));
    if (x->device) {
        return exec_device_test_step(x, step);
    }
    if (pp_loader_microbatches(x->loader[PP_SPLIT_TEST], step) == 0) {
        return 0;
    }
    return exec_walk(x, PP_SPLIT_TEST, step, step, 0.0f);
}

/* The host's memory is its own again. */
static int settle(struct pp_exec *x)
{
    return x->device ? exec_device_settle(x) : pp_backend_synchronize(x->be);
}

/* Training of the epoch since the sums were looked at last, to the counters. */
static int count_training(struct pp_exec *x)
{
    struct pp_loss_sums now, *to = &x->counters.train;
    PP_TRY(pp_backend_to_host(x->be, &now, x->sums[PP_SPLIT_TRAIN], sizeof(now)));
    to->loss += now.loss - x->epoch_seen.loss;
    to->correct += now.correct - x->epoch_seen.correct;
    to->rows += now.rows - x->epoch_seen.rows;
    x->epoch_seen = now;
    return 0;
}

int pp_exec_start_epoch(struct pp_exec *x, uint64_t epoch, const struct pp_loss_sums *so_far)
{
    static const struct pp_loss_sums zero;
    PP_TRY(pp_exec_finish(x, 0));
    pp_loader_start_epoch(x->loader[PP_SPLIT_TRAIN], epoch);
    if (!x->sums[PP_SPLIT_TRAIN]) {
        return 0;
    }
    PP_TRY(count_training(x));
    x->epoch_seen = so_far ? *so_far : zero;
    x->good_sums = x->epoch_seen;
    PP_TRY(pp_backend_to_device(x->be, x->sums[PP_SPLIT_TRAIN], &x->epoch_seen, sizeof(zero)));
    return settle(x);
}

int pp_exec_take_counters(struct pp_exec *x, struct pp_exec_counters *out)
{
    static const struct pp_loss_sums zero;
    PP_TRY(pp_exec_finish(x, 0));
    if (x->sums[PP_SPLIT_TRAIN]) {
        PP_TRY(count_training(x));
        x->counters.epoch = x->epoch_seen;
        PP_TRY(pp_backend_to_host(x->be, &x->counters.test, x->sums[PP_SPLIT_TEST], sizeof(zero)));
        PP_TRY(pp_backend_zero(x->be, x->sums[PP_SPLIT_TEST], sizeof(zero)));
    }
    if (x->device) {
        PP_TRY(exec_time_align(x));
        exec_time_limit(x);
    }
    *out = x->counters;
    memset(&x->counters, 0, sizeof(x->counters));
    return 0;
}
