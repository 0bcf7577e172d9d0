/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interprets the plan: runs one batch, action by action. A rank waits for a message where it uses
 * the data, not where it is announced. It sends an input gradient before it computes the weight
 * gradient, so that its neighbour can continue meanwhile.
 */
#include "exec_internal.h"
#include "layout.h"

#include "ppcli/base/base.h"

/* The batch in progress. */
struct walk {
    struct pp_exec *x;
    const struct pp_plan *plan;
    enum pp_split split;
    int step;
    int32_t t;                      /* number of this step in the record of actions */
    const struct pp_action *last_i; /* the last input gradient of this rank */
    uint16_t plan_index;            /* in the layout */
};

static int rows_of_microbatch(const struct walk *w, int mb)
{
    const uint32_t *index;
    return pp_loader_microbatch(w->x->loader[w->split], w->step, mb, &index);
}

/* Begins an event of action a. `message` is -1 if the event has none; `n` is as in struct
 * exec_record. */
static void begin_event(const struct walk *w, enum pp_event_kind kind, const struct pp_action *a,
                        int message, int n)
{
    struct pp_event e = {.step = w->t,
                         .message = message,
                         .stage = (int16_t)a->stage,
                         .mb = (uint16_t)a->mb,
                         .kind = (uint8_t)kind,
                         .eval = w->split == PP_SPLIT_TEST,
                         .plan = w->plan_index};
    exec_action_begin(w->x, &e, n);
}

/* Begins the computation of n micro-batches, the last of which is that of a; n = -1 continues the
 * one before. All count as full-size if the first one is, since the others have at most one row
 * less. */
static void begin_compute(const struct walk *w, enum pp_event_kind kind, const struct pp_action *a,
                          int n)
{
    bool full = w->split == PP_SPLIT_TRAIN &&
                rows_of_microbatch(w, a[n > 0 ? 1 - n : 0].mb) == w->x->layout->max_rows;
    begin_event(w, kind, a, -1, full ? n : 0);
}

/* ---- messages */

/* Returns the transport's channel for a message; -1 if there is no message, or if it stays on this
 * rank. */
static int channel_of_message(const struct walk *w, int message)
{
    return message < 0 ? -1 : w->x->channels[w->plan->messages[message].channel].spec;
}

static float *slot_memory(const struct walk *w, int message)
{
    const struct pp_exec *x = w->x;
    const struct pp_message *m = &w->plan->messages[message];
    const struct exec_channel *ch = &x->channels[m->channel];
    if (ch->spec < 0)
        return (void *)(ch->memory + (size_t)m->slot * pp_layout_slot_bytes(x->layout, ch->id));
    return pp_transport_slot(x->tp, ch->spec, m->slot);
}

static size_t message_bytes(const struct walk *w, const struct pp_message *m)
{
    const struct pp_layout *l = w->x->layout;
    int tied = m->channel - 2 * (l->n_virtual - 1);
    size_t first;
    return tied >= 0 ? pp_layout_tied_piece(l, tied / 2, m->mb, &first) * sizeof(float)
                     : pp_layout_message_bytes(l, m->channel, rows_of_microbatch(w, m->mb));
}

static int post_next_recv(const struct walk *w, int message)
{
    struct pp_transport *tp = w->x->tp;
    const struct pp_message *m = &w->plan->messages[message];
    int ch = channel_of_message(w, message);
    return ch < 0 ? 0 : pp_transport_post_recv(tp, ch, m->slot, message_bytes(w, m), m->mb);
}

/* Waits until the message that the action reads has arrived and the slot that it writes is free. */
static int wait_for_messages(const struct walk *w, const struct pp_action *a)
{
    struct pp_transport *tp = w->x->tp;
    int from = channel_of_message(w, a->recv), to = channel_of_message(w, a->send);
    if (from >= 0) {
        begin_event(w, PP_EVENT_RECV, a, a->recv, 0);
        PP_TRY(pp_transport_wait_recv(tp, from, w->plan->messages[a->recv].slot));
        exec_action_end(w->x);
    }
    if (to >= 0) {
        begin_event(w, PP_EVENT_SLOT, a, a->send, 0);
        PP_TRY(pp_transport_acquire(tp, to, w->plan->messages[a->send].slot));
        exec_action_end(w->x);
    }
    return 0;
}

static int send_result(const struct walk *w, const struct pp_action *a)
{
    struct pp_transport *tp = w->x->tp;
    int ch = channel_of_message(w, a->send);
    if (ch >= 0) {
        const struct pp_message *m = &w->plan->messages[a->send];
        begin_event(w, PP_EVENT_SEND, a, a->send, 0);
        PP_TRY(pp_transport_post_send(tp, ch, m->slot, message_bytes(w, m), m->mb));
        exec_action_end(w->x);
    }
    return 0;
}

/* Frees the slot of a message for the sender, and posts the receive of the slot's next message. */
static int release_slot(const struct walk *w, int message)
{
    struct pp_transport *tp = w->x->tp;
    int ch = channel_of_message(w, message);
    if (ch < 0)
        return 0;
    const struct pp_message *m = &w->plan->messages[message];
    PP_TRY(pp_transport_release(tp, ch, m->slot));
    return m->next_in_slot >= 0 ? post_next_recv(w, m->next_in_slot) : 0;
}

static int return_slots(const struct walk *w, const struct pp_action *a, int first, int second)
{
    bool travels = channel_of_message(w, first) >= 0;
    if (!travels && channel_of_message(w, second) < 0)
        return 0;
    begin_event(w, PP_EVENT_RELEASE, a, travels ? first : second, 0);
    PP_TRY(release_slot(w, first));
    PP_TRY(release_slot(w, second));
    exec_action_end(w->x);
    return 0;
}

/* ---- actions */

/* The loss of a micro-batch. */
struct loss {
    bool of_numbers; /* which of the two it is */
    struct pp_softmax_cross_entropy classes;
    struct pp_numbers_loss numbers;
};

/* Fills *out with the arguments of the loss of a micro-batch, except its outputs, and gathers its
 * targets. */
static int prepare_loss(const struct walk *w, int mb, struct loss *out)
{
    const struct pp_exec *x = w->x;
    const struct pp_config *cfg = x->cfg;
    const struct pp_model *m = x->layout->model;
    int B = rows_of_microbatch(w, mb), P = pp_model_targets(m);
    int row = pp_model_logits_row(m, &x->be->choice);
    int64_t batch = pp_loader_batch_rows(x->loader[w->split], w->step);
    bool weighs = x->data[w->split]->ignored > 0 || x->input.weights;
    PP_TRY(exec_input_targets(x, w->split, w->step, mb));
    *out = (struct loss){.of_numbers = pp_loss_takes_numbers(cfg->train.loss)};
    if (out->of_numbers) {
        int64_t each = m->outputs;
        out->numbers =
            (struct pp_numbers_loss){.B = B,
                                     .C = m->outputs,
                                     .kind = cfg->train.loss,
                                     .targets = x->targets,
                                     .grad_scale = pp_loss_grad_scale(cfg, batch * each, B * each),
                                     .sums = x->sums[w->split],
                                     .row = row};
    } else {
        out->classes = (struct pp_softmax_cross_entropy){
            .B = B,
            .P = P,
            .C = m->classes,
            .targets = x->targets,
            .grad_scale = pp_loss_grad_scale(cfg, batch * P, (int64_t)B * P),
            .scale = weighs ? &x->args->loss_scale : NULL,
            .smoothing = (float)cfg->train.label_smoothing,
            .sums = x->sums[w->split],
            .row = row,
            .weights = x->input.weights};
    }
    return 0;
}

/* Computes a loss; with `gradient`, replaces the outputs by their gradient. */
static int run_loss(struct pp_backend *be, struct loss *l, float *outputs, bool gradient)
{
    l->classes.logits = l->numbers.outputs = outputs;
    l->classes.dlogits = l->numbers.doutputs = gradient ? outputs : NULL;
    return l->of_numbers ? pp_backend_numbers_loss(be, &l->numbers)
                         : pp_backend_softmax_cross_entropy(be, &l->classes);
}

static float *address_of_kept_logits(const struct walk *w, int mb)
{
    const struct pp_exec *x = w->x;
    const uint32_t *index, *first;
    pp_loader_microbatch(x->loader[w->split], w->step, 0, &first);
    pp_loader_microbatch(x->loader[w->split], w->step, mb, &index);
    return x->kept ? x->kept + (size_t)(index - first) * (size_t)x->layout->model->outputs : NULL;
}

static int keep_logits(const struct walk *w, int mb, const float *logits)
{
    float *to = address_of_kept_logits(w, mb);
    const struct pp_model *m = w->x->layout->model;
    struct pp_backend *be = w->x->be;
    size_t rows = (size_t)rows_of_microbatch(w, mb) * (size_t)pp_model_targets(m);
    return to ? pp_backend_rows_to_host(be, to, logits, rows, m->classes,
                                        pp_model_logits_row(m, &be->choice))
              : 0;
}

/* Adds the loss of a micro-batch to *sums; with `gradient`, replaces the logits by their
 * gradient. */
static int compute_loss(const struct walk *w, int mb, float *logits, struct pp_loss_sums *sums,
                        bool gradient)
{
    struct loss l;
    PP_TRY(prepare_loss(w, mb, &l));
    l.classes.sums = l.numbers.sums = sums;
    return run_loss(w->x->be, &l, logits, gradient);
}

struct loss_pieces {
    struct pp_backend *be;
    struct loss whole;
    bool gradient;
    float *kept; /* NULL: logits are not kept */
};

static int loss_of_piece(const void *ctx, int first, int n, float *logits)
{
    const struct loss_pieces *p = ctx;
    struct loss l = p->whole;
    int C = l.of_numbers ? l.numbers.C : l.classes.C;
    size_t at = (size_t)first * (size_t)C;
    l.classes.uncounted = first == 0 ? n - l.classes.B : n;
    l.classes.B = l.numbers.B = n;
    l.classes.P = 1;
    if (l.of_numbers)
        l.numbers.targets += at;
    else
        l.classes.targets += first;
    PP_TRY(run_loss(p->be, &l, logits, p->gradient));
    int row = l.of_numbers ? l.numbers.row : l.classes.row;
    return p->kept ? pp_backend_rows_to_host(p->be, p->kept + at, logits, (size_t)n, C, row) : 0;
}

/* Computes the logits in pieces, their loss and, in training, the gradients of the last layer. */
static int loss_in_pieces(const struct walk *w, const struct exec_stage *st,
                          const struct pp_action *a, float *dx)
{
    bool trains = w->split == PP_SPLIT_TRAIN;
    struct loss_pieces p = {.be = w->x->be, .gradient = trains};
    const struct pp_chunk_loss call = {loss_of_piece, &p};
    p.kept = trains ? NULL : address_of_kept_logits(w, a->mb);
    PP_TRY(prepare_loss(w, a->mb, &p.whole));
    return pp_chunk_loss(st->chunk, w->x->be, a->slot, trains ? a->gslot : -1, a->mb == 0, dx,
                         &call);
}

static struct pp_pass make_pass(const struct walk *w, int mb)
{
    const uint32_t *index, *first;
    const struct pp_loader *ld = w->x->loader[w->split];
    int rows = pp_loader_microbatch(ld, w->step, mb, &index);
    pp_loader_microbatch(ld, w->step, 0, &first);
    return (struct pp_pass){.rows = rows,
                            .first_row =
                                (uint32_t)(pp_loader_share_first(ld, w->step) + (index - first)),
                            .training = w->split == PP_SPLIT_TRAIN,
                            .seed = w->x->cfg->train.seed,
                            .step = &w->x->args->t,
                            .lengths = w->x->input.lengths[w->split],
                            .index = w->x->input.index + (index - first)};
}

/* Returns the memory of a stage's output, which its gradient later replaces; NULL if the logits
 * come in pieces. */
static float *output_of_stage(const struct walk *w, const struct exec_stage *st, int slot,
                              int message)
{
    return !st->is_last ? slot_memory(w, message) : st->output ? st->output[slot] : NULL;
}

/* Returns the sums of a training step so far if the loss of each micro-batch is wanted. */
static struct pp_loss_sums look_at_sums(const struct walk *w)
{
    const struct pp_exec *x = w->x;
    return x->losses && w->split == PP_SPLIT_TRAIN ? *x->sums[PP_SPLIT_TRAIN]
                                                   : (struct pp_loss_sums){0};
}

/* Keeps the mean loss of a micro-batch, if that is wanted: what it added to the sums. */
static void note_loss(const struct walk *w, int mb, const struct pp_loss_sums *before)
{
    if (!w->x->losses || w->split != PP_SPLIT_TRAIN)
        return;
    struct pp_loss_sums own = *w->x->sums[PP_SPLIT_TRAIN];
    own.loss -= before->loss;
    own.targets -= before->targets;
    own.weight -= before->weight;
    w->x->losses[mb] = pp_loss_sums_loss(&own);
}

static int run_forward(struct walk *w, struct exec_stage *st, const struct pp_action *a)
{
    struct pp_exec *x = w->x;
    PP_TRY(wait_for_messages(w, a));
    begin_compute(w, PP_EVENT_F, a, 1);
    float *in = st->is_first ? st->input[a->slot] : slot_memory(w, a->recv);
    float *out = output_of_stage(w, st, a->slot, a->send);
    if (st->is_first)
        PP_TRY(exec_input_gather(x, w->split, w->step, a->mb, in));
    const struct pp_pass pass = make_pass(w, a->mb);
    PP_TRY(pp_chunk_forward(st->chunk, x->be, a->slot, &pass, in, out));
    if (w->split == PP_SPLIT_TRAIN && w->plan->frozen[a->stage])
        PP_TRY(pp_chunk_gather(st->chunk, x->be, a->slot, a->mb == 0));
    const struct pp_loss_sums before = look_at_sums(w);
    if (st->output) {
        PP_TRY(compute_loss(w, a->mb, out, x->sums[w->split],
                            w->split == PP_SPLIT_TRAIN && !a->recompute));
        note_loss(w, a->mb, &before);
    } else if (st->is_last && w->split == PP_SPLIT_TEST) {
        PP_TRY(loss_in_pieces(w, st, a, NULL));
    }
    exec_action_end(x);
    exec_finite_note_forward(x, st, a->mb);
    PP_TRY(send_result(w, a));
    if (w->split == PP_SPLIT_TEST) {
        PP_TRY(st->output ? keep_logits(w, a->mb, out) : 0);
        return return_slots(w, a, a->recv, -1);
    }
    st->held_f[a->slot] = a->recompute ? -1 : a->recv;
    return 0;
}

/* Recomputes the forward pass from the input that F received. The weight gradient (W) frees that
 * input. */
static int run_recompute(struct walk *w, struct exec_stage *st, const struct pp_action *a)
{
    struct pp_exec *x = w->x;
    int32_t received = pp_plan_message(w->plan, 2 * (a->stage - 1), a->mb);
    int32_t sent = pp_plan_message(w->plan, 2 * a->stage, a->mb);
    begin_compute(w, PP_EVENT_R, a, 1);
    float *in = st->is_first ? st->input[a->slot] : slot_memory(w, received);
    float *out = output_of_stage(w, st, a->slot, sent);
    if (st->is_first)
        PP_TRY(exec_input_gather(x, w->split, w->step, a->mb, in));
    struct pp_pass pass = make_pass(w, a->mb);
    pass.recompute = !st->is_last; /* the loss needs the logits again */
    PP_TRY(pp_chunk_forward(st->chunk, x->be, a->slot, &pass, in, out));
    if (st->output)
        PP_TRY(compute_loss(w, a->mb, out, x->unread, true));
    exec_action_end(x);
    st->held_f[a->slot] = received;
    return 0;
}

static int run_input_gradient(struct walk *w, struct exec_stage *st, const struct pp_action *a)
{
    struct pp_exec *x = w->x;
    PP_TRY(wait_for_messages(w, a));
    begin_compute(w, PP_EVENT_I, a, 1);
    float *dy = output_of_stage(w, st, a->slot, a->recv);
    const struct pp_model *m = x->layout->model;
    bool wanted = m->layers[x->layout->first[st->s]].wants_dx;
    float *dx = wanted ? slot_memory(w, a->send) : NULL; /* NULL: no earlier layer learns */
    const struct pp_loss_sums before = look_at_sums(w);
    if (st->is_last && !st->output) {
        PP_TRY(loss_in_pieces(w, st, a, dx));
        note_loss(w, a->mb, &before);
    }
    PP_TRY(pp_chunk_backward_input(st->chunk, x->be, a->slot, a->gslot, dy, dx));
    exec_action_end(x);
    st->held_b[a->gslot] = a->recv;
    PP_TRY(send_result(w, a));
    if (w->plan->frozen[a->stage])
        PP_TRY(return_slots(w, a, st->held_f[a->slot], a->recv));
    bool votes = a == w->last_i;
    return votes ? exec_finite_vote(x, pp_loader_batch_rows(x->loader[w->split], w->step)) : 0;
}

/*
 * Computes the weight gradients of a and the n - 1 actions after it as one product. With train.zero
 * the last product of a stage is computed bucket by bucket, and each bucket is sent before the next
 * is computed. Then all slots are freed, in the order of the plan, before anything that another
 * rank waits for (see ppcli/sched/plan.h).
 */
static int run_weight_gradient(struct walk *w, struct exec_stage *st, const struct pp_action *a,
                               int n)
{
    for (int i = 0; i < n; i++) {
        st->w_slots[i] = a[i].slot;
        st->w_gslots[i] = a[i].gslot;
    }
    const struct pp_exec *x = w->x;
    bool whole = x->zero.n == 0 || a[n - 1].mb + 1 < w->plan->geometry.microbatches, more = false;
    for (int i = 0; i < (whole ? 1 : x->zero.n); i++) {
        const struct exec_bucket *b = whole ? NULL : &x->zero.buckets[i];
        if (b && b->stage != st->s)
            continue;
        begin_compute(w, PP_EVENT_W, &a[n - 1], more ? -1 : n);
        PP_TRY(b ? pp_chunk_backward_layers(st->chunk, x->be, n, st->w_slots, st->w_gslots,
                                            a->first_w, b->first, b->last)
                 : pp_chunk_backward_weight(st->chunk, x->be, n, st->w_slots, st->w_gslots,
                                            a->first_w));
        exec_action_end(w->x);
        PP_TRY(!b || b->after_ties ? 0 : exec_zero_post(w->x, b, w->t));
        more = true;
    }
    for (int i = 0; i < n; i++)
        PP_TRY(return_slots(w, &a[i], st->held_f[a[i].slot], st->held_b[a[i].gslot]));
    return 0;
}

/* Returns the gradient of a parameter of the model in this rank's chunk of stage `stage`; *n is the
 * number of its floats. */
static float *gradient_of_param(const struct pp_exec *x, int stage, int param, size_t *n)
{
    size_t offset;
    const struct pp_chunk *c = x->stages[x->layout->plans[0].plan->chunk_of[stage]].chunk;
    pp_chunk_param(c, param - c->model->layers[c->first].first_param, &offset, n);
    return c->grads + offset;
}

/* Runs G or T of a tie within this rank on n floats of the gradients of both ends. */
static int run_tie_within(struct pp_backend *be, const struct pp_tie *tie, bool gives, size_t n,
                          float *owner, float *copy)
{
    if (gives)
        return pp_backend_copy(be, owner, copy, n * sizeof(*owner));
    if (tie->after > 0)
        return pp_backend_add(be, n, owner, copy);
    PP_TRY(pp_backend_add(be, n, copy, owner));
    return pp_backend_copy(be, copy, owner, n * sizeof(*owner));
}

/* Runs G, which sends the gradient of one end of a tie, or T, which adds the gradient of the other
 * end, or takes over the sum. The sum of two floats does not depend on their order, so all ranks
 * get the same bits. */
static int run_tie(struct walk *w, const struct pp_action *a)
{
    struct pp_exec *x = w->x;
    const struct pp_layout *l = x->layout;
    const struct pp_tie *tie = &l->ties[a->mb];
    bool gives = a->op == PP_OP_G, is_owner = a->stage == tie->owner;
    int message = gives ? a->send : a->recv;
    size_t first, all,
        n = pp_layout_tied_piece(l, a->mb, message < 0 ? a->slot : w->plan->messages[message].mb,
                                 &first);
    float *ends[2] = {NULL, NULL}; /* the owner's and the copy's */
    if (is_owner || message < 0)
        ends[0] = gradient_of_param(x, tie->owner, l->tied_to[a->mb], &all) + first;
    if (!is_owner || message < 0)
        ends[1] = gradient_of_param(x, tie->copy, l->tied[a->mb], &all) + first;
    float *mine = ends[!is_owner];
    PP_TRY(wait_for_messages(w, a));
    begin_event(w, gives ? PP_EVENT_G : PP_EVENT_T, a, -1, 0);
    if (message < 0)
        PP_TRY(run_tie_within(x->be, tie, gives, n, ends[0], ends[1]));
    else if (gives)
        PP_TRY(pp_backend_copy(x->be, slot_memory(w, message), mine, n * sizeof(*mine)));
    else if (is_owner && tie->after > 0)
        PP_TRY(pp_backend_copy(x->be, mine, slot_memory(w, message), n * sizeof(*mine)));
    else
        PP_TRY(pp_backend_add(x->be, n, slot_memory(w, message), mine));
    exec_action_end(x);
    return gives ? send_result(w, a) : return_slots(w, a, a->recv, -1);
}

int exec_walk(struct pp_exec *x, enum pp_split split, int step, int64_t t)
{
    enum pp_plan_kind kind = split == PP_SPLIT_TRAIN ? PP_PLAN_TRAIN : PP_PLAN_EVAL;
    int m = pp_loader_microbatches(x->loader[split], step), index = 0;
    while (x->layout->plans[index].kind != kind || x->layout->plans[index].m != m) {
        index++;
        pp_assert(index < x->layout->n_plans); /* the layout has all plans that a run needs */
    }
    const struct pp_plan *plan = x->layout->plans[index].plan;
    const struct exec_first *first = &x->first[index];
    struct walk w = {.x = x,
                     .plan = plan,
                     .split = split,
                     .step = step,
                     .t = (int32_t)t,
                     .last_i = first->last_i,
                     .plan_index = (uint16_t)index};
    exec_finite_begin(x, split);
    for (int i = 0; i < first->n; i++)
        PP_TRY(post_next_recv(&w, first->messages[i]));
    const struct pp_rank_plan *mine = &plan->ranks[x->pipeline_rank];
    for (int i = 0, n; i < mine->n_actions; i += n) {
        const struct pp_action *a = &mine->actions[i];
        struct exec_stage *st = &x->stages[plan->chunk_of[a->stage]];
        pp_assert(st->s == a->stage);
        n = 1;
        if (a->op == PP_OP_F)
            PP_TRY(run_forward(&w, st, a));
        if (a->op == PP_OP_R)
            PP_TRY(run_recompute(&w, st, a));
        if (a->op == PP_OP_I || a->op == PP_OP_B)
            PP_TRY(run_input_gradient(&w, st, a));
        if (a->op == PP_OP_W || a->op == PP_OP_B) {
            n = pp_plan_together(plan, x->pipeline_rank, i);
            PP_TRY(run_weight_gradient(&w, st, a, n));
        }
        if (a->op >= PP_OP_G)
            PP_TRY(run_tie(&w, a));
    }
    for (int i = 0; i < x->zero.n && split == PP_SPLIT_TRAIN; i++) {
        const struct exec_bucket *b = &x->zero.buckets[i];
        PP_TRY(b->after_ties || plan->frozen[b->stage] ? exec_zero_post(x, b, t) : 0);
    }
    return 0;
}
