/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a profile from measured events: counts replicas, stages, chunks, micro-batches and steps,
 * orders each rank's actions by their start, and looks for that order among all schedules.
 */
#include "profile_read.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

/* A profile while it is made. */
struct making {
    struct profile_input *in;
    struct pp_profile *p;
    struct pp_geometry g;
    int n_virtual;
    int *rank_of;               /* [n_virtual] */
    struct profile_event **row; /* [steps_all * P] first of a list */
    int *length;                /* [steps_all * P] */
};

static int by_step_rank_start(const void *a, const void *b)
{
    const struct profile_event *x = a, *y = b;
    return x->step != y->step     ? x->step - y->step
           : x->rank != y->rank   ? x->rank - y->rank
           : x->start != y->start ? (x->start > y->start) - (x->start < y->start)
                                  : x->op - y->op;
}

static void sort_events(struct profile_input *in)
{
    qsort(in->events, (size_t)in->n, sizeof(*in->events), by_step_rank_start);
}

/* ---- ranks */

static int find_most(const struct profile_input *in, size_t offset)
{
    int n = -1;
    for (int k = 0; k < in->n; k++) {
        int x;
        memcpy(&x, (const char *)&in->events[k] + offset, sizeof(x));
        n = x > n ? x : n;
    }
    return n;
}

struct holder { /* a rank as the files number it, and its first stage */
    int first, rank;
};

static int by_first_stage(const void *a, const void *b)
{
    const struct holder *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first) : x->rank - y->rank;
}

/* Numbers the pipeline's ranks in the order of their first stages. Ranks with the same first stage
 * are replicas; only the first of them is kept. */
static int number_ranks(struct making *k)
{
    struct profile_input *in = k->in;
    int n = find_most(in, offsetof(struct profile_event, rank)) + 1, kept = 0, p = 0, named = 0;
    PP_TAKE(struct holder, holders, n);
    PP_TAKE(int, number, n);
    for (int r = 0; r < n; r++)
        holders[r] = (struct holder){INT32_MAX, r};
    for (int i = 0; i < in->n; i++) {
        int *first = &holders[in->events[i].rank].first, s = in->events[i].stage;
        s = s < 0 ? in->events[i].rank : s;
        *first = s < *first ? s : *first;
    }
    qsort(holders, (size_t)n, sizeof(*holders), by_first_stage);
    for (int i = 0; i < n; i++) {
        bool silent = holders[i].first == INT32_MAX;
        bool replica = i > 0 && holders[i].first == holders[i - 1].first;
        number[holders[i].rank] = silent || replica ? -1 : p++;
        named += !silent;
    }
    for (int i = 0; i < in->n; i++) {
        in->events[kept] = in->events[i];
        in->events[kept].rank = number[in->events[i].rank];
        kept += in->events[kept].rank >= 0;
    }
    in->n = kept;
    for (int i = 0; i < in->n_notes; i++)
        in->notes[i].rank = in->notes[i].rank < n ? number[in->notes[i].rank] : -1;
    k->g.stages = p;
    k->p->replicas = named / (p > 0 ? p : 1);
    return p > 0 && named % p == 0
               ? 0
               : pp_fail(PP_EFORMAT,
                         "files of %d ranks hold %d kinds of stages: the files of some "
                         "ranks are missing",
                         named, p);
}

/* ---- chunks and micro-batches */

/* Finds the stage and micro-batch of the k-th F and B of a rank, which follow from Megatron's
 * interleaved order. */
static int name_chunks(struct making *k)
{
    struct profile_input *in = k->in;
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    struct pp_geometry g = k->g;
    int count = find_most(in, offsetof(struct profile_event, mb)) + 1;
    g.chunks = in->chunks > 0 ? in->chunks : 1;
    g.microbatches = count / g.chunks;
    if (g.microbatches * g.chunks != count)
        return pp_fail(PP_EFORMAT, "%d forwards a rank are no multiple of the %d chunks (vp_size)",
                       count, g.chunks);
    PP_TRY(pp_plan_build("interleaved", &g, &plan));
    for (int i = 0; i < in->n; i++) {
        struct profile_event *e = &in->events[i];
        const struct pp_rank_plan *list = &plan->ranks[e->rank];
        int at = 0, left = e->mb;
        for (;; at++)
            if ((list->actions[at].op == PP_OP_F) == (e->op == PP_OP_F) && left-- == 0)
                break;
        e->stage = list->actions[at].stage;
        e->mb = list->actions[at].mb;
    }
    return 0;
}

/* Splits events that ppcli traces as one: a recomputed forward becomes part of its I, and if one
 * product computed several W, each gets its share of the time. The events are sorted by step, rank
 * and start. */
static int split_products(struct making *k)
{
    struct profile_input *in = k->in;
    int n = in->n, n_virtual = find_most(in, offsetof(struct profile_event, stage)) + 1, step = -1;
    PP_TAKE(int, next, n_virtual);
    double again = -1;
    for (int i = 0; i < n; i++) {
        struct profile_event e = in->events[i];
        if (e.step != step)
            memset(next, 0, (size_t)n_virtual * sizeof(*next));
        step = e.step;
        again = e.op == PP_OP_R ? e.start : again;
        if (e.op == PP_OP_I && again >= 0) {
            in->events[i].start = again;
            again = -1;
        }
        int parts = e.op == PP_OP_W ? e.mb + 1 - next[e.stage] : 1;
        next[e.stage] += e.op == PP_OP_B; /* which has its W */
        for (int j = 0; e.op == PP_OP_W && j < parts; j++) {
            struct profile_event part = e;
            part.start = e.start + (e.end - e.start) * j / parts;
            part.end = e.start + (e.end - e.start) * (j + 1) / parts;
            part.mb = next[e.stage]++;
            if (j == parts - 1)
                in->events[i] = part;
            else
                PP_TRY(profile_add(in, &part));
        }
    }
    int kept = 0;
    for (int i = 0; i < in->n; i++)
        if (in->events[i].op != PP_OP_R)
            in->events[kept++] = in->events[i];
    in->n = kept;
    return 0;
}

/* Numbers steps and micro-batches of events that were numbered from the last one back. What a rank
 * has more than others becomes an incomplete step before theirs. */
static void number_steps(struct profile_input *in)
{
    int most = find_most(in, offsetof(struct profile_event, mb)) / in->unmarked;
    for (int i = 0; i < in->n; i++) {
        struct profile_event *e = &in->events[i];
        e->step = most - e->mb / in->unmarked;
        e->mb = in->unmarked - 1 - e->mb % in->unmarked;
    }
}

/* Returns whether a rank's step is all forwards and then their backwards in the reverse order, as in
 * torch's looped schedule. */
static bool is_mirrored(const struct profile_event *e, int n)
{
    for (int i = 0; i < n; i++) {
        const struct profile_event *other = &e[n - 1 - i];
        if ((e[i].op == PP_OP_F) != (i < n / 2) || (i >= n / 2 && e[i].op != PP_OP_B) ||
            e[i].stage != other->stage || e[i].mb != other->mb)
            return false;
    }
    return n % 2 == 0;
}

/* Renames the micro-batches of such backwards, so that gradients are added in ascending order: no
 * time changes by that. The events are sorted by step, rank and start. */
static void turn_backwards(struct making *k)
{
    struct profile_input *in = k->in;
    int from = 0;
    for (int i = 1; i <= in->n; i++) {
        const struct profile_event *e = &in->events[from];
        if (i < in->n && in->events[i].step == e->step && in->events[i].rank == e->rank)
            continue;
        if (!is_mirrored(e, i - from))
            return;
        from = i;
    }
    for (int i = 0; i < in->n; i++)
        if (in->events[i].op != PP_OP_F)
            in->events[i].mb = k->g.microbatches - 1 - in->events[i].mb;
    if (k->g.chunks > 1)
        snprintf(in->schedule, sizeof(in->schedule), "looped-bfs");
}

/* Numbers the steps if the files do not: the n-th event of the same action belongs to the n-th
 * step. */
static int count_steps(struct making *k)
{
    struct profile_input *in = k->in;
    size_t m = (size_t)k->g.microbatches;
    PP_TAKE(int, seen, (size_t)k->n_virtual *PP_OPS *m);
    sort_events(in);
    for (int i = 0; i < in->n; i++) {
        struct profile_event *e = &in->events[i];
        int *n = &seen[((size_t)e->stage * PP_OPS + (size_t)e->op) * m + (size_t)e->mb];
        e->step = e->step < 0 ? (*n)++ : e->step;
    }
    sort_events(in);
    return 0;
}

static int count_shape(struct making *k)
{
    struct profile_input *in = k->in;
    bool unnamed = in->n > 0 && in->events[0].stage == -1;
    for (int i = 0; i < in->n; i++)
        if (in->events[i].rank < 0 || (in->events[i].stage < 0) != unnamed)
            return pp_fail(PP_EFORMAT, "files of different programs in one profile");
    PP_TRY(number_ranks(k));
    if (in->stages > 0 && in->stages != k->g.stages)
        return pp_fail(PP_EFORMAT, "config.json says %d stages (pp_size), the files are of %d",
                       in->stages, k->g.stages);
    if (unnamed)
        PP_TRY(name_chunks(k));
    if (in->unmarked > 0)
        number_steps(in);
    sort_events(in);
    PP_TRY(split_products(k));
    k->n_virtual = find_most(in, offsetof(struct profile_event, stage)) + 1;
    k->g.microbatches = find_most(in, offsetof(struct profile_event, mb)) + 1;
    k->g.chunks = k->n_virtual / k->g.stages;
    PP_ALLOC(k->rank_of, k->n_virtual);
    for (int s = 0; s < k->n_virtual; s++)
        k->rank_of[s] = -1;
    for (int i = 0; i < in->n; i++)
        k->rank_of[in->events[i].stage] = in->events[i].rank;
    for (int s = 0; s < k->n_virtual; s++)
        if (k->rank_of[s] < 0)
            return pp_fail(PP_EFORMAT,
                           "no action of stage %d of %d: the file of its rank is missing", s,
                           k->n_virtual);
    if (k->n_virtual % k->g.stages)
        return pp_fail(PP_EFORMAT, "%d stages on %d ranks: each rank must hold as many",
                       k->n_virtual, k->g.stages);
    PP_TRY(count_steps(k));
    turn_backwards(k);
    return 0;
}

/* ---- steps and the plan */

static bool same_order(const struct making *k, int step, int like)
{
    int p = k->g.stages;
    for (int r = 0; r < p; r++) {
        int n = k->length[step * p + r];
        const struct profile_event *a = k->row[step * p + r], *b = k->row[like * p + r];
        if (n != k->length[like * p + r])
            return false;
        for (int i = 0; i < n; i++)
            if (a[i].op != b[i].op || a[i].stage != b[i].stage || a[i].mb != b[i].mb)
                return false;
    }
    return true;
}

static int plan_of_step(const struct making *k, int step, struct pp_plan **out)
{
    int p = k->g.stages;
    PP_TAKE(struct pp_cell, all, k->in->n);
    PP_TAKE(const struct pp_cell *, cells, p);
    struct pp_cell *at = all;
    for (int r = 0; r < p; r++) {
        cells[r] = at;
        for (int i = 0; i < k->length[step * p + r]; i++, at++) {
            const struct profile_event *e = &k->row[step * p + r][i];
            *at = (struct pp_cell){.op = (uint8_t)e->op, .stage = e->stage, .mb = e->mb};
        }
    }
    return pp_plan_from_cells(&k->g, k->rank_of, cells, &k->length[(size_t)step * (size_t)p], out);
}

/* Finds where each rank's list of events begins in each step, and its length. Returns the number of
 * steps. */
static int find_rows(struct making *k)
{
    struct profile_input *in = k->in;
    int p = k->g.stages, steps = 0;
    for (int i = 0; i < in->n; i++)
        steps += i == 0 || in->events[i].step != in->events[i - 1].step;
    PP_ALLOC(k->row, (size_t)steps * (size_t)p);
    PP_ALLOC(k->length, (size_t)steps * (size_t)p);
    steps = 0;
    for (int i = 0; i < in->n; i++) {
        steps += i == 0 || in->events[i].step != in->events[i - 1].step;
        int at = (steps - 1) * p + in->events[i].rank;
        k->row[at] = k->row[at] ? k->row[at] : &in->events[i];
        k->length[at]++;
    }
    return steps;
}

static void take_notes(struct making *k, int step, int name)
{
    struct pp_profile *p = k->p;
    for (int i = 0; i < k->in->n_notes; i++) {
        const struct profile_note *note = &k->in->notes[i];
        if (note->rank < 0 || note->step != name)
            continue;
        if (note->total > p->total[step])
            p->total[step] = note->total;
        if (note->memory > p->memory[note->rank])
            p->memory[note->rank] = note->memory;
    }
}

/* Copies the times of one step to the profile, in the order of the plan. */
static int take_step(struct making *k, int from)
{
    struct pp_profile *p = k->p;
    int ranks = k->g.stages, step = p->steps++;
    for (int r = 0; r < ranks; r++) {
        int n = k->length[from * ranks + r];
        double *at;
        PP_ALLOC(at, 3 * (size_t)n);
        p->start[step * ranks + r] = at;
        p->end[step * ranks + r] = at + n;
        p->after[step * ranks + r] = at + 2 * (size_t)n;
        for (int i = 0; i < n; i++) {
            at[i] = k->row[from * ranks + r][i].start;
            at[n + i] = k->row[from * ranks + r][i].end;
            at[2 * n + i] = k->row[from * ranks + r][i].after;
        }
    }
    take_notes(k, step, k->row[(size_t)from * (size_t)ranks]->step);
    return 0;
}

static int take_steps(struct making *k)
{
    struct pp_profile *p = k->p;
    int n = find_rows(k), like = -1;
    PP_TRY(n < 0 ? n : 0);
    for (int t = n / 2, tries = 0; tries < n && like < 0; t = (t + 1) % n, tries++)
        if (plan_of_step(k, t, &p->plan) == 0)
            like = t;
        else if (tries == n - 1)
            return PP_EFORMAT;
        else
            pp_error_clear();
    PP_ALLOC(p->start, (size_t)n * (size_t)k->g.stages);
    PP_ALLOC(p->end, (size_t)n * (size_t)k->g.stages);
    PP_ALLOC(p->after, (size_t)n * (size_t)k->g.stages);
    PP_ALLOC(p->total, n);
    PP_ALLOC(p->memory, k->g.stages);
    for (int t = 0; t < n; t++)
        if (same_order(k, t, like))
            PP_TRY(take_step(k, t));
    if (k->in->unmarked > 0 && 2 * p->steps < n)
        return pp_fail(PP_EFORMAT,
                       "the ops of these traces are in no order that is known: %d of %d steps are "
                       "alike; torch's schedules of several stages mark their actions (PP:0F3)",
                       p->steps, n);
    p->first = p->steps > 4 ? 2 : p->steps > 1;
    return 0;
}

/* ---- all */

static int make_profile(struct making *k, const char *path)
{
    PP_TRY(profile_input_read(path, k->in));
    if (k->in->n == 0)
        return pp_fail(PP_EFORMAT, "%s has no actions of a pipeline", path);
    k->p->source = k->in->source;
    PP_TRY(count_shape(k));
    PP_TRY(take_steps(k));
    PP_TRY(profile_settle(k->p, k->in->one_clock));
    k->p->schedule = pp_plan_recognize(k->p->plan);
    const struct pp_schedule_ops *said = pp_schedule_find(k->in->schedule);
    if (!k->p->schedule && said)
        k->p->schedule = pp_schedule_name(said);
    return 0;
}

int pp_profile_read(const char *path, struct pp_profile **out)
{
    struct profile_input in = {0};
    struct making k = {.in = &in};
    PP_ALLOC(k.p, 1);
    int rc = make_profile(&k, path);
    profile_input_fini(&in);
    pp_free(k.rank_of);
    pp_free(k.row);
    pp_free(k.length);
    PP_TRY_UNDO(rc, pp_profile_close(&k.p));
    *out = k.p;
    return 0;
}

void pp_profile_close(struct pp_profile **at)
{
    struct pp_profile *p = *at;
    if (!p)
        return;
    for (int k = 0; p->plan && k < p->steps * p->plan->geometry.stages; k++)
        pp_free(p->start[k]);
    pp_plan_destroy(&p->plan);
    pp_free(p->start);
    pp_free(p->end);
    pp_free(p->after);
    pp_free(p->total);
    pp_free(p->memory);
    pp_free(p);
    *at = NULL;
}
