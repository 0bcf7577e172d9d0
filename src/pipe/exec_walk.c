/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interpreter of the plan: one batch, action by action. Waits happen where data is used, never
 * where it is announced; an input gradient is handed over before the weight gradient is computed,
 * so the neighbour can go on while this rank is still busy.
 */
#include "exec_device.h"

#include "ppcli/clock.h"
#include "ppcli/err.h"

/* The batch being walked. */
struct walk {
    struct pp_exec *x;
    const struct pp_plan *plan;
    enum pp_split split;
    int step;
    int32_t t; /* what the record of actions calls this step */
    float grad_scale;
    const struct pp_action *last_i; /* the last input gradient of this rank */
    uint16_t plan_index;            /* in the layout */
};

/* What begins now, on behalf of action a. */
static void begin(const struct walk *w, enum pp_event_kind kind, const struct pp_action *a,
                  int message)
{
    struct pp_event e = {.step = (int32_t)w->t,
                         .message = message,
                         .stage = (int16_t)a->stage,
                         .mb = (uint16_t)a->mb,
                         .kind = (uint8_t)kind,
                         .eval = w->split == PP_SPLIT_TEST,
                         .plan = w->plan_index};
    exec_record_begin(w->x, &e);
}

static uint64_t end(const struct walk *w)
{
    return exec_event_end(w->x);
}

static int rows_of(const struct walk *w, int mb)
{
    const uint32_t *index;
    return pp_loader_microbatch(w->x->loader[w->split], w->step, mb, &index);
}

/* Time of computing n micro-batches from a's on: busy, and by kind for those of full size. Of a
 * group the first, which is its largest, stands for all: the others have at most one row less. */
static void end_compute(const struct walk *w, struct exec_stage *st, const struct pp_action *a,
                        enum pp_op op, int n)
{
    uint64_t ns = end(w);
    bool full = w->split == PP_SPLIT_TRAIN && rows_of(w, a->mb) == w->x->layout->max_rows;
    w->x->counters.busy_ns += ns;
    if (w->x->device) {
        exec_time_compute(w->x, full ? (int)op : -1, n);
    } else if (full) {
        st->times.ns[op] += ns;
        st->times.n[op] += (uint64_t)n;
    }
}

static size_t message_bytes(const struct walk *w, const struct pp_message *m)
{
    return (size_t)rows_of(w, m->mb) * (size_t)pp_layout_channel_width(w->x->layout, m->channel) *
           sizeof(float);
}

static float *slot_memory(const struct pp_exec *x, const struct pp_message *m)
{
    const struct exec_channel *ch = &x->channels[m->channel];
    if (ch->spec < 0) {
        return (void *)(ch->memory + (size_t)m->slot * pp_layout_slot_bytes(x->layout, ch->id));
    }
    return pp_transport_slot(x->tp, ch->spec, m->slot);
}

static int post_recv(const struct walk *w, int message)
{
    struct pp_exec *x = w->x;
    const struct pp_message *m = &w->plan->messages[message];
    int spec = x->channels[m->channel].spec;
    if (spec < 0) {
        return 0;
    }
    return pp_transport_post_recv(x->tp, spec, m->slot, message_bytes(w, m), m->mb);
}

static int wait_recv(const struct walk *w, int message)
{
    struct pp_exec *x = w->x;
    const struct pp_message *m = &w->plan->messages[message];
    int spec = x->channels[m->channel].spec;
    return spec < 0 ? 0 : pp_transport_wait_recv(x->tp, spec, m->slot);
}

static int acquire(const struct walk *w, int message)
{
    struct pp_exec *x = w->x;
    const struct pp_message *m = &w->plan->messages[message];
    int spec = x->channels[m->channel].spec;
    return spec < 0 ? 0 : pp_transport_acquire(x->tp, spec, m->slot);
}

static int post_send(const struct walk *w, int message)
{
    struct pp_exec *x = w->x;
    const struct pp_message *m = &w->plan->messages[message];
    int spec = x->channels[m->channel].spec;
    if (spec < 0) {
        return 0;
    }
    return pp_transport_post_send(x->tp, spec, m->slot, message_bytes(w, m), m->mb);
}

/* The slot is free for the sender, and the receive of its next message can be posted. */
static int release(const struct walk *w, int message)
{
    struct pp_exec *x = w->x;
    if (message < 0) {
        return 0;
    }
    const struct pp_message *m = &w->plan->messages[message];
    int spec = x->channels[m->channel].spec;
    if (spec < 0) {
        return 0;
    }
    PP_TRY(pp_transport_release(x->tp, spec, m->slot));
    return m->next_in_slot >= 0 ? post_recv(w, m->next_in_slot) : 0;
}

/* Rows of a micro-batch, and which samples they are: memory of the device. */
static int samples(const struct walk *w, int mb, const uint32_t **index)
{
    const struct pp_loader *ld = w->x->loader[w->split];
    const uint32_t *first;
    int rows = pp_loader_microbatch(ld, w->step, mb, index);
    if (w->x->device) {
        pp_loader_microbatch(ld, w->step, 0, &first);
        *index = w->x->device->index + (*index - first);
    }
    return rows;
}

static int load_input(const struct walk *w, int mb, float *to)
{
    const struct pp_exec *x = w->x;
    const struct pp_dataset *ds = x->data[w->split];
    const uint8_t *images = x->device ? x->device->images[w->split] : ds->images;
    const uint32_t *index;
    int rows = samples(w, mb, &index);
    return pp_backend_gather_u8(x->be, rows, ds->features, images, index, ds->scale, to);
}

/* Loss of one micro-batch; in training logits become their gradient in place. */
static int loss(const struct walk *w, int mb, float *logits)
{
    const struct pp_exec *x = w->x;
    const uint8_t *labels = x->device ? x->device->labels[w->split] : x->data[w->split]->labels;
    const uint32_t *index;
    int rows = samples(w, mb, &index);
    PP_TRY(pp_backend_gather_labels(x->be, rows, labels, index, x->labels));
    return pp_backend_softmax_cross_entropy(x->be, rows, x->layout->model->classes, logits,
                                            x->labels, w->grad_scale, x->sums[w->split],
                                            w->split == PP_SPLIT_TRAIN ? logits : NULL);
}

/* Whether a message goes through the transport; a local one is there as soon as it is written. */
static bool travels(const struct walk *w, int message)
{
    return message >= 0 && w->x->channels[w->plan->messages[message].channel].spec >= 0;
}

/* What an action reads has arrived, and what it writes to is free. */
static int wait_for_messages(const struct walk *w, const struct pp_action *a)
{
    if (travels(w, a->recv)) {
        begin(w, PP_EVENT_RECV, a, a->recv);
        PP_TRY(wait_recv(w, a->recv));
        end(w);
    }
    if (travels(w, a->send)) {
        begin(w, PP_EVENT_SLOT, a, a->send);
        PP_TRY(acquire(w, a->send));
        end(w);
    }
    return 0;
}

static int hand_over(const struct walk *w, const struct pp_action *a)
{
    if (!travels(w, a->send)) {
        return 0;
    }
    begin(w, PP_EVENT_SEND, a, a->send);
    PP_TRY(post_send(w, a->send));
    end(w);
    return 0;
}

/* The slots of up to two messages are free, and the receives of their next ones can be posted. */
static int give_back(const struct walk *w, const struct pp_action *a, int one, int other)
{
    if (!travels(w, one) && !travels(w, other)) {
        return 0;
    }
    begin(w, PP_EVENT_RELEASE, a, travels(w, one) ? one : other);
    PP_TRY(release(w, one));
    PP_TRY(release(w, other));
    end(w);
    return 0;
}

static int forward(struct walk *w, struct exec_stage *st, const struct pp_action *a)
{
    struct pp_exec *x = w->x;
    PP_TRY(wait_for_messages(w, a));
    begin(w, PP_EVENT_F, a, -1);
    const float *in;
    if (st->is_first) {
        PP_TRY(load_input(w, a->mb, st->input[a->slot]));
        in = st->input[a->slot];
    } else {
        in = slot_memory(x, &w->plan->messages[a->recv]);
    }
    float *out = st->is_last ? st->output[a->slot] : slot_memory(x, &w->plan->messages[a->send]);
    PP_TRY(pp_chunk_forward(st->chunk, x->be, a->slot, rows_of(w, a->mb), in, out));
    if (st->is_last) {
        PP_TRY(loss(w, a->mb, out));
    }
    end_compute(w, st, a, PP_OP_F, 1);
    exec_finite_forward(x, st, a->mb);
    PP_TRY(hand_over(w, a));
    if (w->split == PP_SPLIT_TEST) {
        return give_back(w, a, a->recv, -1);
    }
    st->held_f[a->slot] = a->recv;
    return 0;
}

static int backward_input(struct walk *w, struct exec_stage *st, const struct pp_action *a)
{
    struct pp_exec *x = w->x;
    PP_TRY(wait_for_messages(w, a));
    begin(w, PP_EVENT_I, a, -1);
    float *dy = st->is_last ? st->output[a->slot] : slot_memory(x, &w->plan->messages[a->recv]);
    float *dx = st->is_first ? NULL : slot_memory(x, &w->plan->messages[a->send]);
    PP_TRY(pp_chunk_backward_input(st->chunk, x->be, a->slot, a->gslot, dy, dx));
    end_compute(w, st, a, PP_OP_I, 1);
    st->held_b[a->gslot] = a->recv;
    PP_TRY(hand_over(w, a));
    bool votes = a == w->last_i && (!x->device || x->device->again);
    return votes ? exec_finite_vote(x, pp_loader_batch_rows(x->loader[w->split], w->step)) : 0;
}

/* a and the n - 1 actions behind it: one product, then everything is released, in the order of the
 * plan and with nothing in between that another rank could have waited for (see ppcli/plan.h). */
static int backward_weight(struct walk *w, struct exec_stage *st, const struct pp_action *a, int n)
{
    for (int i = 0; i < n; i++) {
        st->w_slots[i] = a[i].slot;
        st->w_gslots[i] = a[i].gslot;
    }
    begin(w, PP_EVENT_W, &a[n - 1], -1);
    PP_TRY(pp_chunk_backward_weight(st->chunk, w->x->be, n, st->w_slots, st->w_gslots, a->first_w));
    end_compute(w, st, a, PP_OP_W, n);
    for (int i = 0; i < n; i++) {
        PP_TRY(give_back(w, &a[i], st->held_f[a[i].slot], st->held_b[a[i].gslot]));
    }
    return 0;
}

/* n: how many actions from a on are one (weight gradients), else 1. */
static int run_action(struct walk *w, const struct pp_action *a, int n)
{
    struct exec_stage *st = &w->x->stages[w->plan->chunk_of[a->stage]];
    pp_assert(st->s == a->stage);
    switch ((enum pp_op)a->op) {
    case PP_OP_F:
        return forward(w, st, a);
    case PP_OP_I:
        return backward_input(w, st, a);
    case PP_OP_W:
        return backward_weight(w, st, a, n);
    case PP_OP_B:
        PP_TRY(backward_input(w, st, a));
        return backward_weight(w, st, a, 1);
    }
    pp_assert(!"an action of a known kind");
    return PP_EINTERNAL;
}

int exec_walk(struct pp_exec *x, enum pp_split split, int step, int64_t t, float grad_scale)
{
    enum pp_plan_kind kind = split == PP_SPLIT_TRAIN ? PP_PLAN_TRAIN : PP_PLAN_EVAL;
    const struct pp_plan *plan =
        pp_layout_plan(x->layout, kind, pp_loader_microbatches(x->loader[split], step));
    int index = 0;
    while (x->layout->plans[index].plan != plan) {
        index++;
    }
    const struct exec_first *first = &x->first[index];
    struct walk w = {.x = x,
                     .plan = plan,
                     .split = split,
                     .step = step,
                     .t = (int32_t)t,
                     .grad_scale = grad_scale,
                     .last_i = first->last_i,
                     .plan_index = (uint16_t)index};
    exec_finite_begin(x, split);
    x->now = pp_clock_ns();
    for (int i = 0; i < first->n; i++) {
        PP_TRY(post_recv(&w, first->messages[i]));
    }
    const struct pp_rank_plan *mine = &plan->ranks[x->pipeline_rank];
    for (int i = 0; i < mine->n_actions;) {
        int n = pp_plan_together(plan, x->pipeline_rank, i);
        PP_TRY(run_action(&w, &mine->actions[i], n));
        i += n;
    }
    return 0;
}
