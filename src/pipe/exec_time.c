/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records when each action ran. If an action is complete when its call returns, the clock times it.
 * On a device a mark between every two actions times them; the marks are read when the step is
 * complete. Marks cost time and prevent captured steps, so only the first two steps and every
 * EXEC_TIME_EVERY-th step are timed, or all steps while a trace is written. The other steps count
 * with the computing time of the last timed step.
 */
#include "exec_internal.h"

#include <string.h>

/* Finds out which time of the host's clock corresponds to a mark of the device: the mark is reached
 * between two readings of the clock. The shortest of a few tries is the most exact. */
static int align_clocks(struct pp_exec *x)
{
    struct exec_timer *timer = &x->timer;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < EXEC_ALIGN_TRIES; i++) {
        uint64_t before = pp_clock_ns();
        PP_TRY(pp_backend_mark_set(x->be, timer->tries[i]));
        PP_TRY(pp_transport_wait_mark(x->tp, timer->tries[i], x->timeout_ns));
        uint64_t took = pp_clock_ns() - before;
        if (took < least) {
            least = took;
            timer->base = timer->tries[i];
            timer->base_ns = before + took / 2;
        }
    }
    return 0;
}

int exec_time_create(struct pp_exec *x)
{
    struct exec_timer *timer = &x->timer;
    timer->current = -1;
    timer->live = !x->be->caps.async;
    if (timer->live)
        return 0;
    timer->capacity = (int)pp_exec_events_per_step(x->layout);
    for (int i = 0; i < EXEC_ALIGN_TRIES; i++)
        PP_TRY(pp_backend_mark_create(x->be, true, &timer->tries[i]));
    for (int s = 0; s < EXEC_AHEAD; s++) {
        struct exec_time_set *set = &timer->sets[s];
        PP_ALLOC(set->records, timer->capacity);
        PP_ALLOC(set->marks, (size_t)timer->capacity + 1);
        for (int i = 0; i <= timer->capacity; i++)
            PP_TRY(pp_backend_mark_create(x->be, true, &set->marks[i]));
    }
    return align_clocks(x);
}

void exec_time_destroy(struct pp_exec *x)
{
    struct exec_timer *timer = &x->timer;
    for (int i = 0; i < EXEC_ALIGN_TRIES; i++)
        pp_backend_mark_destroy(x->be, timer->tries[i]);
    for (int s = 0; s < EXEC_AHEAD; s++) {
        struct exec_time_set *set = &timer->sets[s];
        for (int i = 0; set->marks && i <= timer->capacity; i++)
            pp_backend_mark_destroy(x->be, set->marks[i]);
        pp_free(set->marks);
        pp_free(set->records);
    }
}

/* ---- a step, and its actions */

void exec_launch_begin(struct pp_exec *x, enum pp_split split, int64_t t)
{
    struct pp_event e = {.begin_ns = pp_clock_ns(),
                         .step = (int32_t)t,
                         .message = -1,
                         .stage = -1,
                         .eval = split == PP_SPLIT_TEST,
                         .kind = PP_EVENT_LAUNCH};
    if (!x->timer.live)
        pp_ring_begin(x->ring, &e);
}

void exec_launch_end(struct pp_exec *x)
{
    if (!x->timer.live)
        pp_ring_end(x->ring, pp_clock_ns());
}

int exec_time_start(struct pp_exec *x, struct exec_flight *flight)
{
    struct exec_timer *timer = &x->timer;
    if (timer->live) {
        timer->now = pp_clock_ns();
        return 0;
    }
    flight->timed = timer->every;
    if (flight->split == PP_SPLIT_TRAIN) {
        uint64_t number = timer->steps++;
        flight->timed = flight->timed || number < 2 || number % EXEC_TIME_EVERY == 0;
    }
    if (!flight->timed)
        return 0;
    timer->current = (int)(flight - x->flights);
    timer->sets[timer->current].n = 0;
    return pp_backend_mark_set(x->be, timer->sets[timer->current].marks[0]);
}

void exec_time_stop(struct pp_exec *x)
{
    x->timer.current = -1;
}

void exec_action_begin(struct pp_exec *x, const struct pp_event *e, int n)
{
    struct exec_timer *timer = &x->timer;
    timer->open = (struct exec_record){.event = *e, .n = n};
    if (timer->live) {
        timer->open.event.begin_ns = timer->now;
        pp_ring_begin(x->ring, &timer->open.event);
    }
    if (x->be->ops->range_push) {
        char name[48];
        if (e->stage >= 0)
            snprintf(name, sizeof(name), "%s%d mb %d", pp_event_name(e->kind), e->stage, e->mb);
        pp_backend_range_push(x->be, e->stage >= 0 ? name : pp_event_name(e->kind));
    }
}

void exec_event_begin(struct pp_exec *x, enum pp_event_kind kind, int64_t t)
{
    struct pp_event e = {.step = (int32_t)t, .message = -1, .stage = -1, .kind = (uint8_t)kind};
    exec_action_begin(x, &e, 0);
}

static struct exec_stage *find_exec_stage(const struct pp_exec *x, int s)
{
    int k = 0;
    while (k < x->n_stages && x->stages[k].s != s)
        k++;
    return k < x->n_stages ? &x->stages[k] : NULL;
}

/* Adds the time of an action to the totals of its op from which steps are forecast. */
static void add_action_time(struct pp_exec *x, const struct exec_record *r, uint64_t ns)
{
    static const int op_of[PP_EVENT_KINDS] = {[PP_EVENT_F] = PP_OP_F,
                                              [PP_EVENT_I] = PP_OP_I,
                                              [PP_EVENT_W] = PP_OP_W,
                                              [PP_EVENT_R] = PP_OP_F};
    bool updates = r->event.kind == PP_EVENT_UPDATE;
    if (updates || r->event.kind == PP_EVENT_G || r->event.kind == PP_EVENT_T) {
        x->update.ns += ns;
        x->update.n += updates;
    }
    if (r->n != 0) {
        struct pp_exec_times *times = &find_exec_stage(x, r->event.stage)->times;
        times->ns[op_of[r->event.kind]] += ns;
        times->n[op_of[r->event.kind]] += r->n > 0 ? (uint64_t)r->n : 0;
    }
}

void exec_action_end(struct pp_exec *x)
{
    struct exec_timer *timer = &x->timer;
    pp_backend_range_pop(x->be);
    if (timer->live) {
        uint64_t before = timer->now;
        timer->now = pp_clock_ns();
        pp_ring_end(x->ring, timer->now);
        if (pp_event_computes(timer->open.event.kind)) {
            x->counters.busy_ns += timer->now - before;
            add_action_time(x, &timer->open, timer->now - before);
        }
    } else if (timer->current >= 0) {
        struct exec_time_set *set = &timer->sets[timer->current];
        pp_assert(set->n < timer->capacity);
        set->records[set->n++] = timer->open;
        (void)pp_backend_mark_set(x->be, set->marks[set->n]); /* if it fails, so does the next op */
    }
}

/* ---- a complete step */

/* Writes the times of a step's actions to the ring and sums the computing time in *busy_ns.
 * `first`: it is the first step, whose times include set-up and do not count in forecasts. */
static int read_timed_step(struct pp_exec *x, struct exec_time_set *set, bool first,
                           uint64_t *busy_ns)
{
    const struct exec_timer *timer = &x->timer;
    uint64_t at;
    *busy_ns = 0;
    PP_TRY(pp_backend_mark_elapsed(x->be, timer->base, set->marks[0], &at));
    at += timer->base_ns;
    for (int i = 0; i < set->n; i++) {
        struct exec_record *r = &set->records[i];
        uint64_t ns;
        PP_TRY(pp_backend_mark_elapsed(x->be, set->marks[i], set->marks[i + 1], &ns));
        r->event.begin_ns = at;
        at += ns;
        r->event.end_ns = at;
        pp_ring_begin(x->ring, &r->event);
        if (pp_event_computes(r->event.kind)) {
            *busy_ns += ns;
            if (!first)
                add_action_time(x, r, ns);
        }
    }
    return 0;
}

int exec_time_read(struct pp_exec *x, const struct exec_flight *flight)
{
    struct exec_timer *timer = &x->timer;
    if (timer->live)
        return 0;
    if (flight->timed) {
        uint64_t busy;
        PP_TRY(read_timed_step(x, &timer->sets[flight - x->flights], timer->busy_ns == 0, &busy));
        if (flight->split == PP_SPLIT_TRAIN) {
            x->counters.busy_ns += busy * (1 + timer->unknown);
            timer->unknown = 0;
            timer->busy_ns = busy > 0 ? busy : 1;
        }
    } else if (flight->split == PP_SPLIT_TRAIN) {
        x->counters.busy_ns += timer->busy_ns;
        timer->unknown += timer->busy_ns == 0;
    }
    return 0;
}

/* Limits the busy time to the time since the counters were last read, because timing may slow down
 * a device's step. */
int exec_time_correct(struct pp_exec *x)
{
    struct exec_timer *timer = &x->timer;
    if (timer->live)
        return 0;
    PP_TRY(align_clocks(x));
    uint64_t now = pp_clock_ns(), window = now - timer->taken_ns;
    if (timer->taken_ns > 0 && x->counters.busy_ns > window)
        x->counters.busy_ns = window;
    timer->taken_ns = now;
    return 0;
}

void pp_exec_time_all(struct pp_exec *x, bool all)
{
    x->timer.every = all;
}

void pp_exec_keep_losses(struct pp_exec *x, double *losses)
{
    bool readable = x->timer.live && !x->be->ops->own_memory && x->sums[PP_SPLIT_TRAIN];
    x->losses = readable ? losses : NULL;
}

bool pp_exec_times(const struct pp_exec *x, int s, struct pp_exec_times *out)
{
    const struct exec_stage *st = find_exec_stage(x, s);
    if (st)
        *out = st->times;
    return st != NULL;
}

struct pp_exec_time pp_exec_update_time(const struct pp_exec *x)
{
    return x->update;
}

void pp_exec_forget_times(struct pp_exec *x)
{
    for (int k = 0; k < x->n_stages; k++)
        memset(&x->stages[k].times, 0, sizeof(x->stages[k].times));
    memset(&x->update, 0, sizeof(x->update));
    x->timer.steps = 1; /* the next step is timed */
}
