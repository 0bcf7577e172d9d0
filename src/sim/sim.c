/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator runs all ranks' lists together, with times. A rank runs until it must wait; the
 * event it waits for (a message sent, a slot released) wakes it, so each action is visited once or
 * twice and the whole is linear. Every message has one sender and one receiver and is taken in the
 * order sent, so the times do not depend on the order in which ranks are visited, and a queue of
 * arrival times per channel is all the state that is needed.
 *
 * This is not the walk that proves a plan: the walk knows no costs, and the simulator trusts the
 * proof.
 */
#include "sim.h"

#include "ppcli/base/base.h"

/* A ring of the arrival times of one channel's messages that were not taken yet, in the order
 * sent. */
struct lane {
    double *at;
    int head, n, capacity;
};

/* Stands for the time at which a message slot was released, while it is held. */
#define OCCUPIED (-1.0)

/* Values of wait other than a channel or a slot. */
#define WAIT_NOTHING (-1)
#define WAIT_VOTE (-2)

struct rank {
    double now;
    int at;        /* next action of the step */
    int step;      /* steps done */
    int live;      /* activations held, in chunks */
    int64_t wait;  /* WAIT_NOTHING, WAIT_VOTE, a channel, or n_channels + a slot */
    int votes_at;  /* index of the action after which it votes */
    int voted;     /* steps it has voted on */
    double summed; /* when its gradients have reached the other replicas */
};

/* The votes on one step: how many ranks have voted, and when the last vote arrives. */
struct vote {
    int n;
    double at;
};

struct sim {
    const struct pp_plan *plan;
    const struct pp_sim_costs *costs;
    struct pp_sim_result *result;
    struct lane *lanes; /* [n_channels] */
    struct rank *ranks; /* [P] */
    int *ready;         /* [P] stack of ranks that may run */
    int n_ready;
    int64_t *first_slot;  /* [n_channels] index in released[] of the channel's first slot */
    double *wire_free;    /* [P] when the last message to another host left the rank */
    double *released;     /* [all message slots] when its reader released it, or OCCUPIED */
    struct vote votes[2]; /* of a step and the next one: no rank is further ahead */
};

/* The start and end of an action, and when its message leaves. */
struct span {
    double start, sent, end;
};

static int lane_put(struct lane *l, double t)
{
    if (l->n == l->capacity) {
        int capacity = l->capacity ? 2 * l->capacity : 8;
        PP_GROW(l->at, capacity);
        /* what had wrapped round to the front belongs after the old end */
        for (int i = 0; i < l->head; i++)
            l->at[l->capacity + i] = l->at[i];
        l->capacity = capacity;
    }
    l->at[(l->head + l->n++) & (l->capacity - 1)] = t;
    return 0;
}

static void lane_drop(struct lane *l)
{
    l->head = (l->head + 1) & (l->capacity - 1);
    l->n--;
}

static void wake_waiting(struct sim *s, int rank, int64_t event)
{
    if (s->ranks[rank].wait == event) {
        s->ranks[rank].wait = WAIT_NOTHING;
        s->ready[s->n_ready++] = rank;
    }
}

static int64_t slot_of(const struct sim *s, int32_t message)
{
    const struct pp_message *m = &s->plan->messages[message];
    return s->first_slot[m->channel] + m->slot;
}

static int channel_in(const struct sim *s, const struct pp_action *a)
{
    if (a->op >= PP_OP_G)
        return s->plan->messages[a->recv].channel;
    return a->op == PP_OP_F ? 2 * (a->stage - 1) : 2 * a->stage + 1;
}

static int channel_out(const struct sim *s, const struct pp_action *a)
{
    if (a->op >= PP_OP_G)
        return s->plan->messages[a->send].channel;
    return a->op == PP_OP_F ? 2 * a->stage : 2 * (a->stage - 1) + 1;
}

static double rows_of_action(const struct sim *s, const struct pp_action *a)
{
    return s->costs->rows && a->op < PP_OP_G ? s->costs->rows[a->mb] : 1.0;
}

/* Returns the time that copying a message between hosts takes at each end; 0 for other messages. */
static double copy_time(const struct sim *s, int channel, const struct pp_action *a)
{
    const struct pp_sim_wire *w = s->costs->wires ? &s->costs->wires[channel] : NULL;
    return w && w->used ? w->copy * rows_of_action(s, a) : 0.0;
}

/* Returns whether the action can start, and raises *start to the time from which it can. If it
 * cannot start, records what the rank waits for. */
static bool may_start(struct sim *s, int rank, const struct pp_action *a, double *start)
{
    if (a->recv >= 0) {
        const struct lane *l = &s->lanes[channel_in(s, a)];
        if (l->n == 0) {
            s->ranks[rank].wait = channel_in(s, a);
            return false;
        }
        *start += copy_time(s, channel_in(s, a), a);
        *start = l->at[l->head] > *start ? l->at[l->head] : *start;
    }
    if (s->released && a->send >= 0) {
        int64_t slot = slot_of(s, a->send);
        if (s->released[slot] == OCCUPIED) {
            s->ranks[rank].wait = s->plan->n_channels + slot;
            return false;
        }
        *start = s->released[slot] > *start ? s->released[slot] : *start;
    }
    return true;
}

/* Frees the slot of a message at time t, when its reader is done, and wakes a sender that waits for
 * the slot. */
static void free_message(struct sim *s, int32_t message, double t)
{
    if (message >= 0) {
        int64_t slot = slot_of(s, message);
        int channel = s->plan->messages[message].channel;
        s->released[slot] = t;
        wake_waiting(s, s->plan->channels[channel].src_rank, s->plan->n_channels + slot);
    }
}

static int send_message(struct sim *s, int rank, const struct pp_action *a, double t)
{
    const struct pp_sim_costs *c = s->costs;
    int channel = channel_out(s, a);
    int to = s->plan->channels[channel].dst_rank;
    if (s->released)
        s->released[slot_of(s, a->send)] = OCCUPIED;
    if (to != rank) {
        double moves = c->transfer ? c->transfer[channel] * rows_of_action(s, a) : 0.0;
        bool wire = c->wires && c->wires[channel].used;
        if (wire) {
            t = (t > s->wire_free[rank] ? t : s->wire_free[rank]) + moves;
            s->wire_free[rank] = t;
        }
        t += wire ? c->wires[channel].latency : c->latency + moves;
    }
    PP_TRY(lane_put(&s->lanes[channel], t));
    wake_waiting(s, to, channel);
    return 0;
}

/* Records that the rank's vote on its step (whether the step was finite) leaves at time t. The last
 * vote wakes all ranks. */
static void cast_vote(struct sim *s, int rank, double t)
{
    int p = s->plan->geometry.stages;
    struct vote *v = &s->votes[s->ranks[rank].voted++ & 1];
    if (v->n == p)
        v->n = 0; /* reuse the votes of two steps ago */
    t += p > 1 ? s->costs->latency : 0;
    v->at = t > v->at ? t : v->at;
    v->n++;
    for (int r = 0; v->n == p && r < p; r++)
        wake_waiting(s, r, WAIT_VOTE);
}

/* Runs the k-th action of a rank in the times `t`: takes its input, sends its result and frees what
 * it no longer needs. */
static int run_action(struct sim *s, int rank, int k, const struct span *t)
{
    const struct pp_action *a = &s->plan->ranks[rank].actions[k];
    struct pp_sim_result *res = s->result;
    bool lets_go = pp_plan_releases(s->plan, a);

    if (a->recv >= 0)
        lane_drop(&s->lanes[channel_in(s, a)]);
    if (a->send >= 0)
        PP_TRY(send_message(s, rank, a, t->sent));
    if (s->released && lets_go) {
        free_message(s, pp_plan_message(s->plan, 2 * (a->stage - 1), a->mb), t->end);
        free_message(s, pp_plan_message(s->plan, 2 * a->stage + 1, a->mb), t->end);
    }
    if (s->costs->reduce && lets_go && a->mb == s->plan->geometry.microbatches - 1) {
        double *to = &s->ranks[rank].summed;
        *to = (t->end > *to ? t->end : *to) + s->costs->reduce[a->stage];
    }
    if (s->released && a->op == PP_OP_T)
        free_message(s, a->recv, t->end);
    if (s->costs->vote == PP_SIM_VOTE_AT_I && k == s->ranks[rank].votes_at)
        cast_vote(s, rank, t->sent);
    s->ranks[rank].live += a->op == PP_OP_F || a->op == PP_OP_R;
    if (s->ranks[rank].live > res->peak[rank])
        res->peak[rank] = s->ranks[rank].live;
    s->ranks[rank].live -= lets_go || a->recompute;
    if (k == 0 && s->ranks[rank].step == 0)
        res->first_start[rank] = t->start;
    if (res->start) {
        res->start[rank][k] = t->start;
        res->end[rank][k] = t->end;
    }
    return 0;
}

double pp_sim_tie(const struct pp_plan *plan, const struct pp_sim_costs *c,
                  const struct pp_action *a)
{
    bool both = a->op == PP_OP_T && a->recv < 0 && plan->ties[a->mb].after == 0;
    return c->tie ? c->tie[a->mb] * (both ? 2 : 1) : 0;
}

/* Returns the duration of the k-th action of a rank; sets *out_first to the time from its start
 * until its message leaves. */
static double action_duration(const struct sim *s, int rank, int k, double *out_first)
{
    const struct pp_sim_costs *c = s->costs;
    const struct pp_action *a = &s->plan->ranks[rank].actions[k];
    if (c->each) {
        *out_first = c->launch + c->each[rank][k];
        return *out_first;
    }
    if (a->op >= PP_OP_G) {
        *out_first = c->launch + pp_sim_tie(s->plan, c, a);
        return *out_first;
    }
    double rows = c->rows ? c->rows[a->mb] : 1.0;
    bool forward = a->op == PP_OP_F || a->op == PP_OP_R;
    const double *first = forward ? c->f : a->op == PP_OP_W ? c->w : c->i;
    double t = c->launch + first[a->stage] * rows;
    *out_first = t;
    if (a->op == PP_OP_B) {
        t += c->w[a->stage] * rows;
        *out_first = c->fused_send ? t : *out_first;
    }
    return t;
}

static int run_single_action(struct sim *s, int rank, int k, double start)
{
    double first;
    double took = action_duration(s, rank, k, &first);
    struct span t = {.start = start, .sent = start + first, .end = start + took};
    const struct pp_action *a = &s->plan->ranks[rank].actions[k];
    PP_TRY(run_action(s, rank, k, &t));
    s->ranks[rank].now = t.end + (a->send >= 0 ? copy_time(s, channel_out(s, a), a) : 0) +
                         (s->costs->after ? s->costs->after[rank][k] : 0);
    s->result->work[rank] += took;
    return 0;
}

/* Runs an F and the B after it as one action that overlaps both: it needs the inputs of both, and
 * the results of both leave at its end. */
static int run_pair(struct sim *s, int rank, int k, double start)
{
    double first;
    double took = action_duration(s, rank, k, &first) + action_duration(s, rank, k + 1, &first);
    took *= s->costs->overlap;
    struct span t = {.start = start, .sent = start + took, .end = start + took};
    PP_TRY(run_action(s, rank, k, &t));
    PP_TRY(run_action(s, rank, k + 1, &t));
    s->ranks[rank].now = t.end;
    s->result->work[rank] += took;
    return 0;
}

/* Starts the next step of the rank if there is one and, if steps are voted on, all votes on the
 * last one have arrived. Returns whether the step was started. */
static bool start_next_step(struct sim *s, int rank)
{
    double t = s->costs->between ? s->costs->between[rank] : 0.0;
    struct rank *r = &s->ranks[rank];
    r->now = r->summed > r->now ? r->summed : r->now;
    if (s->costs->vote != PP_SIM_VOTE_NONE) {
        if (r->voted == r->step) /* it has no I, or it votes at the end of the list */
            cast_vote(s, rank, r->now);
        const struct vote *v = &s->votes[r->step & 1];
        if (v->n < s->plan->geometry.stages) {
            r->wait = WAIT_VOTE;
            return false;
        }
        r->now = v->at > r->now ? v->at : r->now;
    }
    r->now += t;
    s->result->work[rank] += t;
    if (++r->step >= s->costs->steps)
        return false;
    r->at = 0;
    return true;
}

/* Runs actions of one rank until it has to wait or is done. */
static int run_rank(struct sim *s, int rank)
{
    const struct pp_rank_plan *list = &s->plan->ranks[rank];
    while (s->ranks[rank].at < list->n_actions || start_next_step(s, rank)) {
        int k = s->ranks[rank].at;
        const struct pp_action *a = &list->actions[k];
        bool pair = s->costs->overlap > 0 && a->overlap && k + 1 < list->n_actions;
        double start = s->ranks[rank].now;
        if (!may_start(s, rank, a, &start) || (pair && !may_start(s, rank, a + 1, &start)))
            return 0;
        PP_TRY(pair ? run_pair(s, rank, k, start) : run_single_action(s, rank, k, start));
        s->ranks[rank].at += pair ? 2 : 1;
    }
    return 0;
}

static int run_ranks(struct sim *s)
{
    int p = s->plan->geometry.stages;
    for (int r = p - 1; r >= 0; r--) {
        const struct pp_rank_plan *list = &s->plan->ranks[r];
        for (int k = 0; k < list->n_actions; k++)
            if (list->actions[k].op == PP_OP_I || list->actions[k].op == PP_OP_B)
                s->ranks[r].votes_at = k;
        s->ranks[r].wait = WAIT_NOTHING;
        s->ready[s->n_ready++] = r;
    }
    while (s->n_ready > 0)
        PP_TRY(run_rank(s, s->ready[--s->n_ready]));
    for (int r = 0; r < p; r++) {
        if (s->ranks[r].wait != WAIT_NOTHING) {
            /* The plan was proved for single actions; only joining two of them can cause a
             * deadlock. */
            return pp_fail(PP_EFORMAT,
                           "rank %d waits forever in action %d: an overlapped pair needs a value "
                           "that only follows from its own result",
                           r, s->ranks[r].at);
        }
    }
    return 0;
}

static void summarize_ranks(const struct sim *s)
{
    struct pp_sim_result *res = s->result;
    int p = s->plan->geometry.stages;
    double most_work = 0;
    double longest = 0;
    for (int r = 0; r < p; r++) {
        double span = s->ranks[r].now - res->first_start[r];
        res->last_end[r] = s->ranks[r].now;
        res->makespan = s->ranks[r].now > res->makespan ? s->ranks[r].now : res->makespan;
        most_work = res->work[r] > most_work ? res->work[r] : most_work;
        longest = span > longest ? span : longest;
    }
    double work = 0;
    for (int r = 0; r < p; r++) {
        res->idle[r] = res->makespan - res->work[r];
        work += res->work[r];
    }
    res->bubble = pp_bubble_idle(work, res->makespan, p);
    /* if nothing takes time, there is no idle time */
    res->bubble_global = res->makespan > 0 ? 1.0 - most_work / res->makespan : 0.0;
    res->bubble_span = longest > 0 ? 1.0 - most_work / longest : 0.0;
}

static int take_slots(struct sim *s)
{
    int64_t n = 0;
    PP_ALLOC(s->first_slot, s->plan->n_channels);
    for (int c = 0; c < s->plan->n_channels; c++) {
        s->first_slot[c] = n;
        n += s->plan->channels[c].slots;
    }
    s->released = pp_alloc((size_t)n, sizeof(*s->released));
    return s->released ? 0 : PP_ERESOURCE;
}

static int sim_init(struct sim *s)
{
    size_t p = (size_t)s->plan->geometry.stages;
    PP_ALLOC(s->lanes, s->plan->n_channels);
    PP_ALLOC(s->ranks, p);
    PP_ALLOC(s->ready, p);
    PP_ALLOC(s->wire_free, p);
    return s->costs->slots ? take_slots(s) : 0;
}

static void sim_fini(struct sim *s)
{
    for (int c = 0; s->lanes && c < s->plan->n_channels; c++)
        pp_free(s->lanes[c].at);
    pp_free(s->lanes);
    pp_free(s->ranks);
    pp_free(s->ready);
    pp_free(s->wire_free);
    pp_free(s->first_slot);
    pp_free(s->released);
}

/* Allocates the times res->start and res->end of all actions. The pointer of rank 0 owns the memory
 * of all ranks. */
static int take_times(const struct pp_plan *plan, struct pp_sim_result *res)
{
    int p = plan->geometry.stages, n = 0;
    for (int r = 0; r < p; r++)
        n += plan->ranks[r].n_actions;
    PP_ALLOC(res->start, 2 * p);
    res->end = res->start + p;
    double *at;
    PP_ALLOC(at, 2 * (size_t)n);
    for (int r = 0; r < p; at += plan->ranks[r++].n_actions) {
        res->start[r] = at;
        res->end[r] = at + n;
    }
    return 0;
}

static int init_result(const struct pp_plan *plan, bool with_times, struct pp_sim_result *res)
{
    size_t p = (size_t)plan->geometry.stages;
    PP_ALLOC(res->work, 4 * p); /* and the three arrays after it */
    PP_ALLOC(res->peak, p);
    res->idle = res->work + p;
    res->first_start = res->idle + p;
    res->last_end = res->first_start + p;
    return with_times ? take_times(plan, res) : 0;
}

void pp_sim_result_fini(struct pp_sim_result *r)
{
    pp_free(r->work);
    pp_free(r->peak);
    if (r->start)
        pp_free(r->start[0]);
    pp_free(r->start);
    *r = (struct pp_sim_result){0};
}

int pp_sim_run(const struct pp_plan *plan, const struct pp_sim_costs *costs, bool with_times,
               struct pp_sim_result *out)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    PP_OWN(sim_fini) struct sim s = {.plan = plan, .costs = costs, .result = &result};
    PP_TRY(init_result(plan, with_times, &result));
    PP_TRY(sim_init(&s));
    PP_TRY(run_ranks(&s));
    summarize_ranks(&s);
    *out = result;
    result = (struct pp_sim_result){0};
    return 0;
}

void pp_sim_make_uniform(const struct pp_plan *plan, double f, double i, double w, double *arrays,
                         struct pp_sim_costs *out)
{
    int n = plan->n_virtual;
    int v = plan->geometry.chunks / plan->copies; /* a rank's work is that of one copy's chunks */
    for (int s = 0; s < n; s++) {
        arrays[s] = f / v;
        arrays[n + s] = i / v;
        arrays[2 * n + s] = w / v;
    }
    *out = pp_sim_costs_of(arrays, n);
}

void pp_sim_textbook(const struct pp_plan *plan, double *arrays, struct pp_sim_costs *out)
{
    int v = plan->geometry.chunks / plan->copies;
    pp_sim_make_uniform(plan, v, v, v, arrays, out);
    out->fused_send = true;
}
