/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a simulated plan as trace events in the schema of measured ones: a B is its I and its W,
 * and a rank that waits for a message has a slice for the wait. Sending takes a simulated rank no
 * time, so arrows begin at the action that computed the message.
 */
#include "ppcli/sim/trace.h"

#include <stdio.h>
#include <string.h>

#include "ppcli/base/base.h"

#define NS_MAX 9e18 /* fits into a number of nanoseconds */

struct events {
    const struct pp_drawing *d;
    const struct pp_draw_steps *how;
    struct pp_chrome *chrome;
    bool stages_named; /* a rank has several stages */
};

/* The progress of one rank through its actions. */
struct walk {
    int rank, pid;
    double now;    /* end of the last action */
    uint64_t live; /* activations, in bytes or chunks */
};

static int64_t time_to_ns(const struct events *e, double t)
{
    double x = (t - e->how->zero) * e->how->unit_ns;
    return (int64_t)(x > 0 ? (x < NS_MAX ? x + 0.5 : NS_MAX) : 0);
}

/* Returns the time at which the message of a B leaves. It leaves after the input gradient, the
 * first part of the B, whose share of the time is that of its cost. */
static double message_time(const struct events *e, const struct pp_action *a, double start,
                           double end)
{
    const struct pp_sim_costs *c = e->d->costs;
    double rows = c->rows ? c->rows[a->mb] : 1.0;
    double i = c->launch + c->i[a->stage] * rows;
    double w = c->w[a->stage] * rows;
    return i + w > 0 ? start + (end - start) * i / (i + w) : start;
}

static struct pp_chrome_args args_of(const struct events *e, const struct pp_action *a)
{
    return (struct pp_chrome_args){.step = e->how->step,
                                   .stage = a->stage,
                                   .chunk = e->d->plan->chunk_of[a->stage],
                                   .microbatch = a->mb};
}

static void put_slice(const struct events *e, const struct walk *w, const struct pp_action *a,
                      int kind, double start, double end)
{
    char text[PP_CHROME_NAME_MAX];
    const char *name = pp_event_name(kind);
    if (pp_event_computes(kind))
        name = pp_chrome_name(text, name[0], e->stages_named, a->stage, a->mb);
    struct pp_chrome_args args = args_of(e, a);
    pp_chrome_slice(e->chrome, w->pid, kind, name, time_to_ns(e, start), time_to_ns(e, end), &args);
}

/* Returns the last nanosecond before the end of the span [start, end], or its start if it is
 * empty. */
static int64_t last_ns(const struct events *e, double start, double end)
{
    int64_t first = time_to_ns(e, start), last = time_to_ns(e, end);
    return last > first ? last - 1 : first;
}

/* Records that the rank holds n more activations of the stage of `a`, or -n fewer. */
static void put_live(const struct events *e, struct walk *w, const struct pp_action *a, int n,
                     double t)
{
    const size_t *bytes = e->how->live_bytes;
    uint64_t bytes_each = bytes ? bytes[a->stage] : 1;
    w->live = n > 0 ? w->live + bytes_each * (uint64_t)n : w->live - bytes_each * (uint64_t)-n;
    pp_chrome_live(e->chrome, w->pid, time_to_ns(e, t), bytes ? "bytes" : "chunks", w->live);
}

static void trace_action(const struct events *e, struct walk *w, int k)
{
    static const int kinds[] = {
        [PP_OP_F] = PP_EVENT_F, [PP_OP_I] = PP_EVENT_I, [PP_OP_W] = PP_EVENT_W,
        [PP_OP_B] = PP_EVENT_I, [PP_OP_R] = PP_EVENT_R, [PP_OP_G] = PP_EVENT_G,
        [PP_OP_T] = PP_EVENT_T};
    const struct pp_drawing *d = e->d;
    const struct pp_action *a = &d->plan->ranks[w->rank].actions[k];
    if (pp_plan_together(d->plan, w->rank, k) > 1)
        return; /* shown as one slice with the last of its group, as the executor does */
    int group = a->op == PP_OP_W && d->plan->geometry.coalesce > 1
                    ? a->mb % d->plan->geometry.coalesce + 1
                    : 1;
    double start = d->result->start[w->rank][k - group + 1], end = d->result->end[w->rank][k];
    double first = a->op == PP_OP_B ? message_time(e, a, start, end) : end;
    bool leaves_late = a->op == PP_OP_B && e->d->costs->fused_send;

    bool waited = a->recv >= 0 && time_to_ns(e, start) > time_to_ns(e, w->now);
    if (waited)
        put_slice(e, w, a, PP_EVENT_RECV, w->now, start);
    put_slice(e, w, a, kinds[a->op], start, first);
    if (a->op == PP_OP_B)
        put_slice(e, w, a, PP_EVENT_W, first, end);
    if (a->recv >= 0) {
        pp_chrome_arrow(e->chrome, false, (uint64_t)a->recv, w->pid,
                        waited ? PP_CHROME_RECV : PP_CHROME_COMPUTE,
                        waited ? last_ns(e, w->now, start) : time_to_ns(e, start));
    }
    if (a->send >= 0) {
        pp_chrome_arrow(e->chrome, true, (uint64_t)a->send, w->pid, PP_CHROME_COMPUTE,
                        leaves_late ? last_ns(e, first, end) : last_ns(e, start, first));
    }
    bool takes = (a->op == PP_OP_F && !a->recompute) || a->op == PP_OP_R;
    if (d->plan->kind == PP_PLAN_TRAIN && (takes || pp_plan_releases(d->plan, a)))
        put_live(e, w, a, takes ? 1 : -group, end);
    w->now = end;
}

/* Writes the trace's process of a rank, named "rank 0 simulated (stages 0 3)". */
static void put_process(const struct events *e, int rank, int pid)
{
    char name[256];
    snprintf(name, sizeof(name), "rank %d simulated (stage%s", rank, e->stages_named ? "s" : "");
    for (int s = 0; s < e->d->plan->n_virtual && strlen(name) < sizeof(name) - 16; s++)
        if (e->d->plan->rank_of[s] == rank)
            pp_text_add(name, sizeof(name), " %d", s);
    pp_text_add(name, sizeof(name), ")");
    pp_chrome_process(e->chrome, pid, name);
}

static void put_update(const struct events *e, const struct walk *w)
{
    struct pp_chrome_args args = {.step = e->how->step, .stage = -1, .chunk = -1, .microbatch = -1};
    double end = w->now + e->d->costs->between[w->rank];
    pp_chrome_slice(e->chrome, w->pid, PP_EVENT_UPDATE, pp_event_name(PP_EVENT_UPDATE),
                    time_to_ns(e, w->now), time_to_ns(e, end), &args);
}

void pp_draw_events(const struct pp_drawing *d, const struct pp_draw_steps *how,
                    struct pp_chrome *c)
{
    struct events e = {
        .d = d, .how = how, .chrome = c, .stages_named = d->plan->geometry.chunks > 1};
    for (int r = 0; r < d->plan->geometry.stages; r++)
        put_process(&e, r, PP_CHROME_SIMULATED + r);
    for (int r = 0; r < d->plan->geometry.stages; r++) {
        struct walk w = {.rank = r, .pid = PP_CHROME_SIMULATED + r, .now = how->zero};
        for (int k = 0; k < d->plan->ranks[r].n_actions; k++)
            trace_action(&e, &w, k);
        if (d->costs->between)
            put_update(&e, &w);
    }
}
