/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the trace of a range of steps. Between two sync points there are never more steps, or
 * batches of an evaluation, than the ring can hold; records that are lost anyway are counted. A
 * file that cannot be written does not stop the training; the error is reported at the end.
 */

#include <fcntl.h>
#include <math.h>

#include "parts.h"
#include "ppcli/base/base.h"

#define STEPS_DEFAULT 50 /* a viewer opens this many at once */

/* A line is shorter than a page minus FLUSH_AT, so nearly every write is one page of whole lines,
 * and a kill between two writes leaves no partial line. */
#define FLUSH_AT 3584
#define BUFFER_BYTES 16384

struct pp_tracer {
    struct pp_tracer_spec spec;
    int64_t first, last; /* the range */
    int64_t hold;        /* most steps between two drains */
    int64_t next;        /* first step that is not in the file; 0: the range has not begun */
    int64_t tested;      /* batches of evaluation since the last drain */
    uint64_t zero_ns; /* when this rank began the range; on rank 0 after the first drain: when the
                         first rank did */
    bool aligned;     /* rank 0 knows when the first rank began */
    uint64_t cursor;  /* next record of this rank to read */
    struct pp_event *events; /* [capacity] */
    size_t capacity;
    struct spans_losses losses; /* of this rank; .at NULL: it does not have the last stage; owned */
    /* On rank 0: */
    FILE *f;
    struct pp_chrome chrome;
    struct spans *spans;
    struct spans_losses received;  /* of another rank; owned */
    int64_t *offset_ns, *error_ns; /* [ranks] */
    uint64_t all_lost;
    bool failed;
};

/* Precedes the records that a rank sends. */
struct parcel {
    uint64_t n, lost;
};

static void find_trace_range(const struct pp_trace_wish *wish, int64_t done, int64_t *first,
                             int64_t *last)
{
    *first = wish->first > 0 ? wish->first : done + 1;
    *last = wish->last > 0 ? wish->last : *first + STEPS_DEFAULT - 1;
}

int64_t pp_tracer_ring_steps(const struct pp_trace_wish *wish)
{
    int64_t first, last;
    find_trace_range(wish, 0, &first, &last);
    return wish->file ? last - first + 2 : 0; /* one more, because a drain may be a step late */
}

/* ---- rank 0: the file */

static int open_trace(struct pp_tracer *tc)
{
    const char *path = tc->spec.wish.file;
    if (pp_file_append(path, O_TRUNC, &tc->f) < 0)
        return pp_error_context("cannot create the trace");
    setvbuf(tc->f, NULL, _IOFBF, BUFFER_BYTES);
    return spans_create(tc->spec.layout, tc->spec.test_steps, &tc->spans);
}

static void write_head(struct pp_tracer *tc)
{
    const struct pp_layout *l = tc->spec.layout;
    struct pp_chrome_head head = {.version = PP_VERSION,
                                  .schedule = tc->spec.schedule,
                                  .stages = l->stages,
                                  .microbatches = l->plans[0].m,
                                  .ranks = l->ranks,
                                  .offset_ns = tc->offset_ns,
                                  .error_ns = tc->error_ns};
    pp_chrome_open(&tc->chrome, tc->f, &head);
    fflush(tc->f);
    tc->chrome.flush_at = FLUSH_AT;
    spans_processes(tc->spans, &tc->chrome);
}

static void close_trace(struct pp_tracer *tc)
{
    if (tc->f) {
        if (tc->chrome.f) /* it was opened */
            pp_chrome_close(&tc->chrome);
        tc->failed = tc->failed || ferror(tc->f);
        tc->failed = fclose(tc->f) != 0 || tc->failed;
        tc->f = NULL;
    }
}

/* ---- life */

static int check_range(const struct pp_tracer *tc)
{
    if (tc->last <= tc->spec.done) {
        return pp_fail(PP_EUSAGE,
                       "the trace is to end with step %lld, but the run continues after step %lld",
                       (long long)tc->last, (long long)tc->spec.done);
    }
    if (tc->first > tc->spec.total_steps) {
        return pp_fail(PP_EUSAGE, "the trace is to begin with step %lld, but the run has only %lld",
                       (long long)tc->first, (long long)tc->spec.total_steps);
    }
    return 0;
}

static bool has_last_stage(const struct pp_tracer *tc, int rank)
{
    const struct pp_layout *l = tc->spec.layout;
    return l->rank_of[l->n_virtual - 1] == rank % l->stages;
}

static size_t count_losses(const struct spans_losses *s)
{
    return (size_t)s->steps * (size_t)s->microbatches;
}

static void forget_losses(struct spans_losses *s)
{
    for (size_t i = 0; s->at && i < count_losses(s); i++)
        s->at[i] = NAN;
}

static int create_losses(const struct pp_tracer *tc, struct spans_losses *s)
{
    s->steps = tc->hold + 2; /* more than lie between two drains */
    s->microbatches = tc->spec.layout->plans[0].m;
    PP_ALLOC(s->at, count_losses(s));
    forget_losses(s);
    return 0;
}

static int prepare_trace(struct pp_tracer *tc)
{
    size_t ranks = (size_t)tc->spec.layout->ranks;
    PP_TRY(check_range(tc));
    tc->capacity = (size_t)tc->spec.ring->mask;
    tc->hold = (int64_t)(tc->spec.ring->mask / pp_exec_events_per_step(tc->spec.layout)) - 1;
    tc->hold = tc->hold > 1 ? tc->hold : 1;
    PP_ALLOC(tc->events, tc->capacity);
    if (has_last_stage(tc, tc->spec.tp->rank))
        PP_TRY(create_losses(tc, &tc->losses));
    if (tc->spec.tp->rank == 0)
        PP_TRY(create_losses(tc, &tc->received));
    PP_ALLOC(tc->offset_ns, ranks);
    PP_ALLOC(tc->error_ns, ranks);
    return tc->spec.tp->rank == 0 ? open_trace(tc) : 0;
}

int pp_tracer_open(const struct pp_tracer_spec *spec, struct pp_tracer **out)
{
    if (!spec->wish.file)
        return 0;
    PP_OWN(pp_tracer_destroy) struct pp_tracer *tc = pp_alloc(1, sizeof(*tc));
    int rc = tc ? 0 : PP_ERESOURCE;
    if (tc) {
        tc->spec = *spec;
        find_trace_range(&spec->wish, spec->done, &tc->first, &tc->last);
        rc = prepare_trace(tc);
    }
    PP_TRY(pp_transport_agree(spec->tp, rc));
    pp_assert(tc != NULL); /* else the ranks had not agreed */
    PP_TRY(clocks_compare(spec->tp, tc->offset_ns, tc->error_ns));
    if (tc->f)
        write_head(tc);
    *out = tc;
    tc = NULL;
    return 0;
}

void pp_tracer_destroy(struct pp_tracer **tracer)
{
    struct pp_tracer *tc = *tracer;
    if (tc) {
        close_trace(tc);
        spans_destroy(&tc->spans);
        pp_free(tc->events);
        pp_free(tc->losses.at);
        pp_free(tc->received.at);
        pp_free(tc->offset_ns);
        pp_free(tc->error_ns);
        pp_free(tc);
        *tracer = NULL;
    }
}

/* ---- steps */

void pp_tracer_step(struct pp_tracer *tc, int64_t t)
{
    if (tc && tc->next == 0 && t >= tc->first && t <= tc->last) {
        tc->first = t; /* a resumed run may begin inside the range */
        tc->cursor = *tc->spec.ring->begun;
        tc->zero_ns = pp_clock_ns();
        tc->next = t;
    }
}

static bool is_tracing(const struct pp_tracer *tc)
{
    return tc && tc->next > 0 && tc->next <= tc->last;
}

bool pp_tracer_is_on(const struct pp_tracer *tc)
{
    return is_tracing(tc);
}

double *pp_tracer_losses(struct pp_tracer *tc, int64_t t)
{
    bool wanted = is_tracing(tc) && tc->losses.at;
    return wanted ? &tc->losses.at[t % tc->losses.steps * tc->losses.microbatches] : NULL;
}

bool pp_tracer_wants_sync(const struct pp_tracer *tc, int64_t t)
{
    return is_tracing(tc) && (t == tc->last || t - tc->next + 1 >= tc->hold);
}

/* Copies the new records of this rank's ring to the tracer's memory. An action in progress is left
 * for the next call. */
static struct parcel take_parcel(struct pp_tracer *tc)
{
    struct parcel p = {0, 0};
    p.n = pp_ring_copy(tc->spec.ring, tc->cursor, tc->events, tc->capacity, &tc->cursor, &p.lost);
    if (p.n > 0 && tc->events[p.n - 1].end_ns == 0) {
        p.n--;
        tc->cursor--;
    }
    return p;
}

static int collect_events(struct pp_tracer *tc)
{
    struct pp_transport *tp = tc->spec.tp;
    for (int r = 0; r < tp->size; r++) {
        struct parcel p;
        if (r == 0) {
            p = take_parcel(tc);
        } else {
            PP_TRY(pp_transport_recv(tp, r, &p, sizeof(p)));
            if (p.n > tc->capacity) {
                return pp_fail(PP_EINTERNAL, "rank %d sends %llu records", r,
                               (unsigned long long)p.n);
            }
            if (p.n > 0)
                PP_TRY(pp_transport_recv(tp, r, tc->events, (size_t)p.n * sizeof(*tc->events)));
            if (has_last_stage(tc, r))
                PP_TRY(pp_transport_recv(tp, r, tc->received.at,
                                         count_losses(&tc->received) * sizeof(double)));
        }
        tc->all_lost += p.lost;
        spans_write(tc->spans, &tc->chrome, r, tc->zero_ns + (uint64_t)tc->offset_ns[r], tc->events,
                    (size_t)p.n,
                    !has_last_stage(tc, r) ? NULL
                    : r == 0               ? &tc->losses
                                           : &tc->received);
    }
    forget_losses(&tc->losses);
    fflush(tc->f);
    tc->chrome.unflushed = 0;
    return 0;
}

static int send_records(struct pp_tracer *tc)
{
    struct pp_transport *tp = tc->spec.tp;
    struct parcel p = take_parcel(tc);
    PP_TRY(pp_transport_send(tp, 0, &p, sizeof(p)));
    if (p.n > 0)
        PP_TRY(pp_transport_send(tp, 0, tc->events, (size_t)p.n * sizeof(*tc->events)));
    if (tc->losses.at)
        PP_TRY(pp_transport_send(tp, 0, tc->losses.at, count_losses(&tc->losses) * sizeof(double)));
    forget_losses(&tc->losses);
    return 0;
}

/* Sets the start of the trace to the time when the first rank began its range: the others may be
 * ahead of rank 0. */
static int align_zero(struct pp_tracer *tc)
{
    struct pp_transport *tp = tc->spec.tp;
    tc->aligned = true;
    if (tp->rank != 0)
        return pp_transport_send(tp, 0, &tc->zero_ns, sizeof(tc->zero_ns));
    for (int r = 1; r < tp->size; r++) {
        uint64_t began;
        PP_TRY(pp_transport_recv(tp, r, &began, sizeof(began)));
        began -= (uint64_t)tc->offset_ns[r];
        tc->zero_ns = began < tc->zero_ns ? began : tc->zero_ns;
    }
    return 0;
}

int pp_tracer_drain(struct pp_tracer *tc, int64_t t)
{
    if (!is_tracing(tc))
        return 0;
    if (!tc->aligned)
        PP_TRY(align_zero(tc));
    tc->next = t + 1;
    tc->tested = 0;
    PP_TRY(tc->spec.tp->rank == 0 ? collect_events(tc) : send_records(tc));
    /* The time that rank 0 spends writing must not appear in another rank's next step. */
    return pp_transport_barrier(tc->spec.tp);
}

int pp_tracer_test_step(struct pp_tracer *tc, int64_t t)
{
    return is_tracing(tc) && ++tc->tested >= tc->hold ? pp_tracer_drain(tc, t) : 0;
}

static int report_trace(struct pp_tracer *tc, int64_t t)
{
    const char *path = tc->spec.wish.file;
    close_trace(tc);
    if (tc->failed)
        return pp_fail(PP_EIO, "cannot write all of the trace %s", path);
    if (tc->all_lost > 0) {
        pp_log_warn("trace: %llu actions are missing: they were overwritten before they could be "
                    "written",
                    (unsigned long long)tc->all_lost);
    }
    pp_log_info("trace: %s (steps %lld-%lld, %llu events; open it in ui.perfetto.dev)", path,
                (long long)tc->first, (long long)(t < tc->last ? t : tc->last),
                (unsigned long long)tc->chrome.slices);
    return 0;
}

int pp_tracer_finish(struct pp_tracer *tc, int64_t t)
{
    if (!tc)
        return 0;
    PP_TRY(pp_tracer_drain(tc, t)); /* with the last report */
    return tc->spec.tp->rank == 0 ? report_trace(tc, t) : 0;
}
