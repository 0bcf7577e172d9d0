/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes one step of the run as a timeline. All ranks choose the same step from what they gathered;
 * rank 0 then collects the step's records. Ranks do not synchronize between steps, so a step of a
 * rank lasts from its own first action to the end of its own update.
 */

#include <stdlib.h>
#include <string.h>

#include "parts.h"
#include "ppcli/sim/trace.h"
#include "ppcli/base/files.h"

#define STEPS_MAX 8 /* the last steps of the run that may be shown */

struct pp_timeline {
    struct pp_event *events; /* [capacity] */
    size_t capacity, n;
};

/* A complete training step in the records of a rank. */
struct step {
    int64_t t;
    uint64_t first, n;     /* range of its records */
    uint64_t ns, busy_ns;  /* from its first action to the end of its update; time spent
                              computing */
    uint64_t computing_ns; /* the clock at its first F, I or W */
};

struct steps {
    int64_t n;
    struct step step[STEPS_MAX]; /* ascending */
};

int pp_timeline_create(const struct pp_ring *ring, struct pp_timeline **out)
{
    struct pp_timeline *t = pp_alloc(1, sizeof(*t));
    if (t) {
        t->capacity = (size_t)ring->mask;
        t->events = pp_alloc(t->capacity, sizeof(*t->events));
    }
    PP_TRY_UNDO(t && t->events ? 0 : PP_ERESOURCE, pp_timeline_destroy(&t));
    *out = t;
    return 0;
}

void pp_timeline_destroy(struct pp_timeline **t)
{
    if (*t) {
        pp_free((*t)->events);
        pp_free(*t);
        *t = NULL;
    }
}

void pp_timeline_keep(struct pp_timeline *t, const struct pp_ring *ring)
{
    t->n = pp_ring_copy(ring, 0, t->events, t->capacity, NULL, NULL);
}

/* Returns whether an event belongs to a step of training. A step ends with its update, or with a
 * gather after it; actions between two steps belong to the earlier step. */
static bool is_in_step(const struct pp_event *e)
{
    bool added = e->kind == PP_EVENT_G || e->kind == PP_EVENT_T || e->kind == PP_EVENT_R ||
                 e->kind == PP_EVENT_GATHER;
    return !e->eval && ((e->kind >= PP_EVENT_F && e->kind <= PP_EVENT_UPDATE) || added);
}

static void add_step(struct steps *to, const struct step *step)
{
    if (to->n == STEPS_MAX) {
        memmove(to->step, to->step + 1, (STEPS_MAX - 1) * sizeof(*step));
        to->n--;
    }
    to->step[to->n++] = *step;
}

/* Finds the steps whose first and last events are present. An event is the first of its step if
 * there is an event before it or the run starts with it. */
static void find_steps(const struct pp_timeline *t, struct steps *out)
{
    struct step now = {.t = -1};
    out->n = 0;
    for (size_t k = 0; k < t->n; k++) {
        const struct pp_event *e = &t->events[k];
        if (!is_in_step(e))
            continue;
        if (e->step != now.t)
            now = (struct step){.t = k > 0 ? e->step : -1, .first = k};
        if (now.t < 0) {
            now.t = e->step;
            now.first = SIZE_MAX; /* its beginning is missing */
        }
        if (now.first == SIZE_MAX)
            continue;
        if (pp_event_computes(e->kind)) {
            now.busy_ns += e->end_ns - e->begin_ns;
            now.computing_ns = now.computing_ns > 0 ? now.computing_ns : e->begin_ns;
        }
        if ((e->kind == PP_EVENT_UPDATE || e->kind == PP_EVENT_GATHER) && e->end_ns > 0) {
            out->n -= out->n > 0 && out->step[out->n - 1].t == now.t;
            now.n = k + 1 - now.first;
            now.ns = e->end_ns - t->events[now.first].begin_ns;
            add_step(out, &now);
        }
    }
}

static const struct step *find_step(const struct steps *s, int64_t t)
{
    for (int64_t k = 0; k < s->n; k++)
        if (s->step[k].t == t)
            return &s->step[k];
    return NULL;
}

static bool is_full_step(const struct pp_timeline_spec *spec, int64_t t)
{
    const struct pp_layout *l = spec->layout;
    bool last = (t - spec->offset) % spec->epoch_steps == 0;
    return !last || l->train_n % l->training.batch == 0 || spec->epoch_steps == 1;
}

struct choice {
    int64_t t;
    uint64_t ns; /* summed over the ranks, as is busy_ns */
    uint64_t busy_ns;
};

static int compare_step_choices(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    return x->ns != y->ns ? (x->ns > y->ns) - (x->ns < y->ns) : (x->t > y->t) - (x->t < y->t);
}

/* Chooses the step of median length from all[ranks]; every rank chooses the same. Returns false if
 * no step is complete on all ranks. */
static bool choose_step(const struct pp_timeline_spec *spec, const struct steps *all,
                        struct choice *out)
{
    struct choice list[STEPS_MAX];
    int n = 0;
    for (int64_t k = 0; k < all[0].n; k++) {
        struct choice c = {.t = all[0].step[k].t};
        bool everywhere = is_full_step(spec, c.t);
        for (int r = 0; everywhere && r < spec->layout->ranks; r++) {
            const struct step *s = find_step(&all[r], c.t);
            everywhere = s != NULL;
            c.ns += s ? s->ns : 0;
            c.busy_ns += s ? s->busy_ns : 0;
        }
        if (everywhere)
            list[n++] = c;
    }
    if (n == 0)
        return false;
    qsort(list, (size_t)n, sizeof(*list), compare_step_choices);
    *out = list[(n - 1) / 2];
    return true;
}

/* ---- the file; rank 0 */

struct page {
    const struct pp_timeline *own;
    const struct pp_timeline_spec *spec;
    const struct steps *all;
    struct choice choice;
    int64_t *offset_ns, *error_ns; /* [ranks] */
    struct spans *spans;
    struct pp_event *events; /* records of another rank */
    size_t capacity;
};

static uint64_t find_zero(const struct page *p)
{
    uint64_t zero = UINT64_MAX;
    for (int r = 0; r < p->spec->layout->ranks; r++) {
        uint64_t t = find_step(&p->all[r], p->choice.t)->computing_ns - (uint64_t)p->offset_ns[r];
        zero = t < zero ? t : zero;
    }
    return zero;
}

static int write_measured(struct page *p, struct pp_chrome *c)
{
    uint64_t zero = find_zero(p);
    spans_processes(p->spans, c);
    for (int r = 0; r < p->spec->layout->ranks; r++) {
        const struct step *s = find_step(&p->all[r], p->choice.t);
        const struct pp_event *e = p->own->events + (r == 0 ? s->first : 0);
        if (r > 0) {
            size_t bytes = (size_t)s->n * sizeof(*e);
            PP_TRY(pp_transport_recv(p->spec->tp, r, p->events, bytes));
            e = p->events;
        }
        spans_write(p->spans, c, r, zero + (uint64_t)p->offset_ns[r], e, (size_t)s->n, NULL);
    }
    return 0;
}

static void write_simulated(const struct page *p, struct pp_chrome *c)
{
    const struct pp_forecast *f = p->spec->forecast;
    struct pp_drawing d = {.plan = f->plan, .result = &f->result, .costs = &f->stages.costs};
    struct pp_draw_steps how = {.unit_ns = 1e9,
                                .zero = f->result.makespan,
                                .live_bytes = spans_live_bytes(p->spans),
                                .step = (int)p->choice.t};
    for (int r = 0; r < f->plan->geometry.stages; r++) {
        double start = f->result.start[r][0]; /* every rank has an action */
        how.zero = start < how.zero ? start : how.zero;
    }
    pp_draw_events(&d, &how, c);
}

static int write_page(struct page *p, FILE *f)
{
    const struct pp_layout *l = p->spec->layout;
    const struct pp_forecast *fc = p->spec->forecast;
    struct pp_chrome c;
    struct pp_chrome_head head = {
        .version = PP_VERSION,
        .schedule = p->spec->schedule,
        .stages = l->stages,
        .microbatches = l->plans[0].m,
        .ranks = l->ranks,
        .offset_ns = p->offset_ns,
        .error_ns = p->error_ns,
        .one_step = true,
        .step_seconds = (double)p->choice.ns * 1e-9 / l->ranks,
        .simulated_step_seconds = fc->step_seconds,
        .bubble_measured = pp_bubble_idle((double)p->choice.busy_ns, (double)p->choice.ns, 1),
        .bubble_predicted = fc->bubble,
    };
    pp_chrome_open(&c, f, &head);
    PP_TRY(write_measured(p, &c));
    write_simulated(p, &c);
    pp_chrome_close(&c);
    return 0;
}

static int prepare_page(struct page *p)
{
    const struct pp_layout *l = p->spec->layout;
    for (int r = 1; r < l->ranks; r++) {
        size_t n = (size_t)find_step(&p->all[r], p->choice.t)->n;
        p->capacity = n > p->capacity ? n : p->capacity;
    }
    PP_ALLOC(p->events, p->capacity);
    PP_ALLOC(p->offset_ns, l->ranks);
    PP_ALLOC(p->error_ns, l->ranks);
    return spans_create(l, p->spec->test_steps, &p->spans);
}

static int create_timeline_file(const char *dir, struct pp_file_write *out)
{
    char path[PP_PATH_MAX];
    PP_TRY(pp_path_format(path, "%s/timeline.json", dir));
    return pp_file_create(path, out);
}

/* Collective. Writes the file on rank 0; the other ranks send their records of the step to it. */
static int collect_steps(struct page *p)
{
    struct pp_transport *tp = p->spec->tp;
    bool writes = tp->rank == 0;
    struct pp_file_write w = {0};
    int rc = prepare_page(p);
    if (rc == 0 && writes)
        rc = create_timeline_file(p->spec->dir, &w);
    rc = pp_transport_agree(tp, rc);
    if (rc == 0) {
        pp_assert(p->offset_ns != NULL); /* else the ranks had not agreed */
        rc = clocks_compare(tp, p->offset_ns, p->error_ns);
    }
    if (rc == 0 && !writes) {
        const struct step *s = find_step(&p->all[tp->rank], p->choice.t);
        rc = pp_transport_send(tp, 0, p->own->events + s->first, (size_t)s->n * sizeof(*p->events));
    } else if (rc == 0) {
        rc = write_page(p, w.f);
    }
    if (writes && rc == 0)
        rc = pp_file_commit(&w);
    else
        pp_file_abandon(&w);
    spans_destroy(&p->spans);
    pp_free(p->events);
    pp_free(p->offset_ns);
    pp_free(p->error_ns);
    return rc;
}

int pp_timeline_write(const struct pp_timeline *t, const struct pp_timeline_spec *spec)
{
    struct steps mine = {0};
    struct steps *all = pp_alloc((size_t)spec->layout->ranks, sizeof(*all));
    int rc = pp_transport_agree(spec->tp, all ? 0 : PP_ERESOURCE);
    if (rc == 0) {
        pp_assert(all != NULL); /* else the ranks had not agreed */
        find_steps(t, &mine);
        rc = pp_transport_allgather(spec->tp, &mine, sizeof(mine), all);
    }
    struct page page = {.own = t, .spec = spec, .all = all};
    if (rc == 0 && spec->forecast->known && choose_step(spec, all, &page.choice))
        rc = collect_steps(&page);
    pp_free(all);
    return pp_transport_agree(spec->tp, rc);
}
