/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a device did what: a mark between every two actions of a step, read when the step is done.
 * Marks cost time and stand in the way of a captured step, so only the first two steps and every
 * EXEC_TIME_EVERY-th after them are timed, or all while a trace is written. The computing time of
 * the others is taken to be that of the last one that was timed.
 */
#include "exec_device.h"

#include <stdio.h>

#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"

int exec_time_create(struct pp_exec *x)
{
    struct exec_timer *timer = &x->device->timer;
    timer->capacity = (int)pp_exec_events_per_step(x->layout);
    timer->now = -1;
    for (int i = 0; i < ALIGN_TRIES; i++) {
        PP_TRY(pp_backend_mark_create(x->be, true, &timer->tries[i]));
    }
    for (int s = 0; s < EXEC_AHEAD; s++) {
        struct exec_time_set *set = &timer->sets[s];
        set->records = pp_alloc((size_t)timer->capacity, sizeof(*set->records));
        set->marks = pp_alloc((size_t)timer->capacity + 1, sizeof(*set->marks));
        if (!set->records || !set->marks) {
            return PP_ERESOURCE;
        }
        for (int i = 0; i <= timer->capacity; i++) {
            PP_TRY(pp_backend_mark_create(x->be, true, &set->marks[i]));
        }
    }
    return exec_time_align(x);
}

void exec_time_destroy(struct pp_exec *x)
{
    struct exec_timer *timer = &x->device->timer;
    for (int i = 0; i < ALIGN_TRIES; i++) {
        pp_backend_mark_destroy(x->be, timer->tries[i]);
    }
    for (int s = 0; s < EXEC_AHEAD; s++) {
        struct exec_time_set *set = &timer->sets[s];
        for (int i = 0; set->marks && i <= timer->capacity; i++) {
            pp_backend_mark_destroy(x->be, set->marks[i]);
        }
        pp_free(set->marks);
        pp_free(set->records);
    }
}

/* The mark is reached between the two looks at the clock; the shortest of a few tries tells best.
 */
int exec_time_align(struct pp_exec *x)
{
    struct exec_timer *timer = &x->device->timer;
    uint64_t before[ALIGN_TRIES], after[ALIGN_TRIES];
    int best = 0;
    for (int i = 0; i < ALIGN_TRIES; i++) {
        before[i] = pp_clock_ns();
        PP_TRY(pp_backend_mark_set(x->be, timer->tries[i]));
        PP_TRY(pp_transport_wait_mark(x->tp, timer->tries[i], x->device->timeout_ns));
        after[i] = pp_clock_ns();
        best = after[i] - before[i] < after[best] - before[best] ? i : best;
    }
    timer->base = timer->tries[best];
    timer->base_ns = before[best] + (after[best] - before[best]) / 2;
    return 0;
}

int exec_time_start(struct pp_exec *x, struct exec_turn *turn)
{
    struct exec_timer *timer = &x->device->timer;
    turn->timed = timer->every;
    if (turn->split == PP_SPLIT_TRAIN) {
        uint64_t number = timer->steps++;
        turn->timed = turn->timed || number < 2 || number % EXEC_TIME_EVERY == 0;
    }
    timer->now = turn->timed ? (int)(turn - x->device->turns) : -1;
    if (!turn->timed) {
        return 0;
    }
    timer->sets[timer->now].n = 0;
    return pp_backend_mark_set(x->be, timer->sets[timer->now].marks[0]);
}

void exec_time_stop(struct pp_exec *x)
{
    x->device->timer.now = -1;
}

void exec_time_begin(struct pp_exec *x, const struct pp_event *e)
{
    struct exec_timer *timer = &x->device->timer;
    if (timer->now >= 0) {
        struct exec_time_set *set = &timer->sets[timer->now];
        pp_assert(set->n < timer->capacity);
        set->records[set->n] = (struct exec_time_record){.event = *e, .op = -1};
    }
    if (x->be->ops->range_push) {
        char name[48];
        if (e->stage >= 0) {
            snprintf(name, sizeof(name), "%s%d mb %d", pp_event_name(e->kind), e->stage, e->mb);
        }
        pp_backend_range_push(x->be, e->stage >= 0 ? name : pp_event_name(e->kind));
    }
}

int exec_time_end(struct pp_exec *x)
{
    struct exec_timer *timer = &x->device->timer;
    pp_backend_range_pop(x->be);
    if (timer->now < 0) {
        return 0;
    }
    struct exec_time_set *set = &timer->sets[timer->now];
    set->n++;
    return pp_backend_mark_set(x->be, set->marks[set->n]);
}

void exec_time_compute(struct pp_exec *x, int op, int n)
{
    struct exec_timer *timer = &x->device->timer;
    if (timer->now >= 0) {
        struct exec_time_record *r =
            &timer->sets[timer->now].records[timer->sets[timer->now].n - 1];
        r->op = op;
        r->n = n;
    }
}

static void add_time(struct pp_exec *x, const struct exec_time_record *r, uint64_t ns)
{
    if (r->event.kind == PP_EVENT_UPDATE) {
        x->update.ns += ns;
        x->update.n++;
    }
    for (int k = 0; r->op >= 0 && k < x->n_stages; k++) {
        if (x->stages[k].s == r->event.stage) {
            x->stages[k].times.ns[r->op] += ns;
            x->stages[k].times.n[r->op] += (uint64_t)r->n;
        }
    }
}

/* Into the ring, and *busy_ns. The first step's times hold the making of what its shapes need. */
static int read_set(struct pp_exec *x, struct exec_time_set *set, bool first, uint64_t *busy_ns)
{
    const struct exec_timer *timer = &x->device->timer;
    uint64_t at;
    *busy_ns = 0;
    PP_TRY(pp_backend_mark_elapsed(x->be, timer->base, set->marks[0], &at));
    at += timer->base_ns;
    for (int i = 0; i < set->n; i++) {
        struct exec_time_record *r = &set->records[i];
        uint64_t ns;
        PP_TRY(pp_backend_mark_elapsed(x->be, set->marks[i], set->marks[i + 1], &ns));
        r->event.begin_ns = at;
        at += ns;
        r->event.end_ns = at;
        pp_ring_begin(x->ring, &r->event);
        if (pp_event_computes(r->event.kind)) {
            *busy_ns += ns;
        }
        if (!first && !r->event.eval) {
            add_time(x, r, ns);
        }
    }
    return 0;
}

int exec_time_look(struct pp_exec *x, const struct exec_turn *turn)
{
    struct exec_timer *timer = &x->device->timer;
    if (turn->timed) {
        struct exec_time_set *set = &timer->sets[turn - x->device->turns];
        uint64_t busy;
        PP_TRY(read_set(x, set, timer->busy_ns == 0, &busy));
        if (turn->split != PP_SPLIT_TRAIN) {
            return 0;
        }
        x->counters.busy_ns += busy * (1 + timer->unknown);
        timer->unknown = 0;
        timer->busy_ns = busy > 0 ? busy : 1;
    } else if (turn->split == PP_SPLIT_TRAIN) {
        x->counters.busy_ns += timer->busy_ns;
        timer->unknown += timer->busy_ns == 0;
    }
    return 0;
}

void exec_time_next(struct pp_exec *x)
{
    x->device->timer.steps = 1;
}

/* A step that is timed is not captured, and its actions may take longer for it. */
void exec_time_limit(struct pp_exec *x)
{
    struct exec_timer *timer = &x->device->timer;
    uint64_t now = pp_clock_ns(), window = now - timer->taken_ns;
    if (timer->taken_ns > 0 && x->counters.busy_ns > window) {
        x->counters.busy_ns = window;
    }
    timer->taken_ns = now;
}

void pp_exec_time_all(struct pp_exec *x, bool all)
{
    if (x->device) {
        x->device->timer.every = all;
    }
}
