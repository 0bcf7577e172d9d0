/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interpreter of the plan: one batch, action by action. Waits happen where data is used, never
 * where it is announced; an input gradient is handed over before the weight gradient is computed,
 * so the neighbour can go on while this rank is still busy.
 */
#include "exec_internal.h"

#include "ppcli/clock.h"
#include "ppcli/err.h"

/* The batch being walked. */
struct walk {
    struct pp_exec *x;
    const struct pp_plan *plan;
    enum pp_split split;
    int step;
    float grad_scale;
    uint64_t since; /* when what is being computed began */
};

static void busy_until_now(const struct walk *w)
{
    w->x->counters.busy_ns += pp_clock_ns() - w->since;
}

static int rows_of(const struct walk *w, int mb)
{
    const uint32_t *index;
    return pp_loader_microbatch(w->x->loader[w->split], w->step, mb, &index);
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
    return x->tp->ops->slot(x->tp, ch->spec, m->slot);
}

static int post_recv(const struct walk *w, int message)
{
    struct pp_exec *x = w->x;
    const struct pp_message *m = &w->plan->messages[message];
    int spec = x->channels[m->channel].spec;
    if (spec < 0) {
        return 0;
    }
    return x->tp->ops->post_recv(x->tp, spec, m->slot, message_bytes(w, m), m->mb);
}

static int wait_recv(const struct walk *w, int message)
{
    struct pp_exec *x = w->x;
    const struct pp_message *m = &w->plan->messages[message];
    int spec = x->channels[m->channel].spec;
    return spec < 0 ? 0 : x->tp->ops->wait_recv(x->tp, spec, m->slot);
}

static int acquire(const struct walk *w, int message)
{
    struct pp_exec *x = w->x;
    const struct pp_message *m = &w->plan->messages[message];
    int spec = x->channels[m->channel].spec;
    return spec < 0 ? 0 : x->tp->ops->acquire(x->tp, spec, m->slot);
}

static int post_send(const struct walk *w, int message)
{
    struct pp_exec *x = w->x;
    const struct pp_message *m = &w->plan->messages[message];
    int spec = x->channels[m->channel].spec;
    if (spec < 0) {
        return 0;
    }
    return x->tp->ops->post_send(x->tp, spec, m->slot, message_bytes(w, m), m->mb);
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
    PP_TRY(x->tp->ops->release(x->tp, spec, m->slot));
    return m->next_in_slot >= 0 ? post_recv(w, m->next_in_slot) : 0;
}

static int load_input(const struct walk *w, int mb, float *to)
{
    const struct pp_exec *x = w->x;
    const struct pp_dataset *ds = x->data[w->split];
    const uint32_t *index;
    int rows = pp_loader_microbatch(x->loader[w->split], w->step, mb, &index);
    return pp_backend_gather_u8(x->be, rows, ds->features, ds->images, index, ds->scale, to);
}

/* Loss of one micro-batch; in training logits become their gradient in place. */
static int loss(const struct walk *w, int mb, float *logits)
{
    const struct pp_exec *x = w->x;
    const struct pp_dataset *ds = x->data[w->split];
    const uint32_t *index;
    int rows = pp_loader_microbatch(x->loader[w->split], w->step, mb, &index);
    for (int r = 0; r < rows; r++) {
        x->host_labels[r] = ds->labels[index[r]];
    }
    PP_TRY(pp_backend_to_device(x->be, x->labels, x->host_labels, (size_t)rows));
    return pp_backend_softmax_cross_entropy(x->be, rows, x->layout->model->classes, logits,
                                            x->labels, w->grad_scale, x->sums[w->split],
                                            w->split == PP_SPLIT_TRAIN ? logits : NULL);
}

/* What an action reads has arrived, and what it writes to is free. */
static int wait_for_messages(struct walk *w, const struct pp_action *a)
{
    if (a->recv >= 0) {
        PP_TRY(wait_recv(w, a->recv));
    }
    if (a->send >= 0) {
        PP_TRY(acquire(w, a->send));
    }
    w->since = pp_clock_ns();
    return 0;
}

static int forward(struct walk *w, struct exec_stage *st, const struct pp_action *a)
{
    struct pp_exec *x = w->x;
    PP_TRY(wait_for_messages(w, a));
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
    busy_until_now(w);
    if (a->send >= 0) {
        PP_TRY(post_send(w, a->send));
    }
    if (w->split == PP_SPLIT_TEST) {
        return release(w, a->recv);
    }
    st->held_f[a->slot] = a->recv;
    return 0;
}

static int backward_input(struct walk *w, struct exec_stage *st, const struct pp_action *a)
{
    struct pp_exec *x = w->x;
    PP_TRY(wait_for_messages(w, a));
    float *dy = st->is_last ? st->output[a->slot] : slot_memory(x, &w->plan->messages[a->recv]);
    float *dx = st->is_first ? NULL : slot_memory(x, &w->plan->messages[a->send]);
    PP_TRY(pp_chunk_backward_input(st->chunk, x->be, a->slot, a->gslot, dy, dx));
    busy_until_now(w);
    st->held_b[a->gslot] = a->recv;
    return a->send >= 0 ? post_send(w, a->send) : 0;
}

static int backward_weight(struct walk *w, struct exec_stage *st, const struct pp_action *a)
{
    struct pp_exec *x = w->x;
    w->since = pp_clock_ns();
    PP_TRY(pp_chunk_backward_weight(st->chunk, x->be, a->slot, a->gslot, a->first_w));
    busy_until_now(w);
    PP_TRY(release(w, st->held_f[a->slot]));
    return release(w, st->held_b[a->gslot]);
}

static int run_action(struct walk *w, const struct pp_action *a)
{
    struct exec_stage *st = &w->x->stages[w->plan->chunk_of[a->stage]];
    pp_assert(st->s == a->stage);
    switch ((enum pp_op)a->op) {
    case PP_OP_F:
        return forward(w, st, a);
    case PP_OP_I:
        return backward_input(w, st, a);
    case PP_OP_W:
        return backward_weight(w, st, a);
    case PP_OP_B:
        PP_TRY(backward_input(w, st, a));
        return backward_weight(w, st, a);
    }
    pp_assert(!"an action of a known kind");
    return PP_EINTERNAL;
}

int exec_walk(struct pp_exec *x, enum pp_split split, int step, float grad_scale)
{
    enum pp_plan_kind kind = split == PP_SPLIT_TRAIN ? PP_PLAN_TRAIN : PP_PLAN_EVAL;
    const struct pp_plan *plan =
        pp_layout_plan(x->layout, kind, pp_loader_microbatches(x->loader[split], step));
    struct walk w = {.x = x, .plan = plan, .split = split, .step = step, .grad_scale = grad_scale};
    const struct exec_first *first = NULL;
    for (int i = 0; i < x->layout->n_plans && !first; i++) {
        first = x->layout->plans[i].plan == plan ? &x->first[i] : NULL;
    }
    pp_assert(first != NULL);
    for (int i = 0; i < first->n; i++) {
        PP_TRY(post_recv(&w, first->messages[i]));
    }
    const struct pp_rank_plan *mine = &plan->ranks[x->pipeline_rank];
    for (int i = 0; i < mine->n_actions; i++) {
        PP_TRY(run_action(&w, &mine->actions[i]));
    }
    return 0;
}
