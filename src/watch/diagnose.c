/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds why a run made no progress for a while. A rank that waits shows it repeatedly (the
 * transport's show_waits). A rank that does not is computing or stuck, and the others wait for it,
 * directly or through each other. The messages of the plan give that chain.
 */
#include "diagnose.h"

#include <string.h>

#include "ppcli/ckpt/checkpoint.h"

#define RANKS_MAX 65536 /* most ranks that a folder may have */
/* A rank waits no longer if its last sign of waiting is older than half the silence, within these
 * limits. */
#define STALE_MIN_NS 100000000u
#define STALE_MAX_NS 5000000000u
/* If a rank made progress within this time (or half the hang_timeout, if that is shorter), there is
 * nothing to diagnose. For a run that has ended, the shorter time applies. */
#define SILENCE_NS 500000000u
#define SILENCE_DEAD_NS 200000000u

int pp_diagnosis_init(struct pp_diagnosis *d, const struct pp_layout *layout, double hang_timeout,
                      int ranks)
{
    memset(d, 0, sizeof(*d));
    d->layout = layout;
    d->hang_timeout = hang_timeout;
    d->ranks = ranks;
    d->culprit = -1;
    d->views = pp_alloc((size_t)ranks, sizeof(*d->views));
    d->waits_for = pp_alloc((size_t)ranks, sizeof(*d->waits_for));
    PP_TRY_UNDO(d->views && d->waits_for ? 0 : PP_ERESOURCE, pp_diagnosis_fini(d));
    return 0;
}

void pp_diagnosis_fini(struct pp_diagnosis *d)
{
    pp_free(d->views);
    pp_free(d->waits_for);
    memset(d, 0, sizeof(*d));
}

/* ---- reading rings */

void pp_rank_look(const struct pp_ring *ring, struct pp_rank_view *out)
{
    static const enum pp_rank_state states[] = {
        [PP_PROCESS_RUNNING] = PP_RANK_RUNNING,     [PP_PROCESS_STOPPED] = PP_RANK_STOPPED,
        [PP_PROCESS_TRACED] = PP_RANK_TRACED,       [PP_PROCESS_GONE] = PP_RANK_GONE,
        [PP_PROCESS_ELSEWHERE] = PP_RANK_ELSEWHERE,
    };
    const struct pp_ring_head *h = ring->head;
    memset(out, 0, sizeof(*out));
    uint32_t ended = __atomic_load_n(&h->ended, __ATOMIC_ACQUIRE);
    out->state = ended == PP_RING_FINISHED ? PP_RANK_FINISHED
                 : ended == PP_RING_FAILED ? PP_RANK_FAILED
                                           : states[pp_ring_process(ring)];
    out->pid = h->pid;
    snprintf(out->host, sizeof(out->host), "%.*s", (int)sizeof(h->host), h->host);
    out->machine = h->machine;
    out->opened_ns = h->opened_ns;
    out->begun = __atomic_load_n(ring->begun, __ATOMIC_ACQUIRE);
    uint64_t from = out->begun > PP_VIEW_ACTIONS ? out->begun - PP_VIEW_ACTIONS : 0;
    out->n = (int)pp_ring_copy(ring, from, out->actions, PP_VIEW_ACTIONS, NULL, NULL);
    out->waited_ns = __atomic_load_n(&h->waited_ns, __ATOMIC_RELAXED);
}

const struct pp_event *pp_rank_current(const struct pp_rank_view *v)
{
    return v->n > 0 && v->actions[v->n - 1].end_ns == 0 ? &v->actions[v->n - 1] : NULL;
}

uint64_t pp_rank_progress_ns(const struct pp_rank_view *v)
{
    if (v->n == 0)
        return v->opened_ns;
    const struct pp_event *last = &v->actions[v->n - 1];
    return last->end_ns > last->begin_ns ? last->end_ns : last->begin_ns;
}

bool pp_rank_waits(const struct pp_rank_view *v, uint64_t *out_idle_ns)
{
    uint64_t now = pp_clock_ns(), since = pp_rank_progress_ns(v);
    *out_idle_ns = now > since ? now - since : 0;
    return v->waited_ns >= since && v->waited_ns + 1000000000 > now;
}

static bool has_ended(const struct pp_rank_view *v)
{
    return v->state == PP_RANK_FINISHED || v->state == PP_RANK_FAILED;
}

static bool has_process(const struct pp_rank_view *v)
{
    return v->state == PP_RANK_RUNNING || v->state == PP_RANK_STOPPED || v->state == PP_RANK_TRACED;
}

/* ---- finding the culprit */

struct judge {
    struct pp_diagnosis *d;
    uint32_t machine; /* the machine whose clock now_ns is */
    uint64_t stale_ns;
};

static bool is_seen(const struct judge *j, int r)
{
    const struct pp_rank_view *v = &j->d->views[r];
    return v->state != PP_RANK_UNKNOWN && v->machine == j->machine;
}

/* Returns whether rank r waits for another rank and its process runs. */
static bool is_waiting(const struct judge *j, int r)
{
    const struct pp_rank_view *v = &j->d->views[r];
    if (!is_seen(j, r) || has_ended(v) || (j->d->live && v->state != PP_RANK_RUNNING))
        return false;
    return v->waited_ns >= pp_rank_progress_ns(v) && v->waited_ns + j->stale_ns >= j->d->now_ns;
}

/* Returns whether rank s waits in the same collective action e in which another rank waits. */
static bool has_reached(const struct judge *j, int s, const struct pp_event *e)
{
    const struct pp_event *other = pp_rank_current(&j->d->views[s]);
    if (!is_waiting(j, s))
        return false;
    return e && other ? e->kind == other->kind && e->step == other->step && e->eval == other->eval
                      : e == other; /* both are in no action */
}

bool pp_diagnosis_message(const struct pp_diagnosis *d, const struct pp_event *e, int r, int *src,
                          int *dst, const char **what)
{
    const struct pp_layout *l = d->layout;
    if (!l || e->message < 0 || e->plan >= l->n_plans ||
        e->message >= l->plans[e->plan].plan->n_messages)
        return false;
    const struct pp_plan *plan = l->plans[e->plan].plan;
    int channel = plan->messages[e->message].channel;
    int base = r / l->stages * l->stages;
    *src = base + plan->channels[channel].src_rank;
    *dst = base + plan->channels[channel].dst_rank;
    *what = channel >= 2 * (plan->n_virtual - 1) ? "gradient of tied tensor"
            : channel % 2 == 0                   ? "activations of micro-batch"
                                                 : "gradient of micro-batch";
    return true;
}

/* Returns the rank at the other end of the message that rank r waits for in event e; -1 if e does
 * not wait for a message of the plan. */
static int find_peer(const struct pp_diagnosis *d, int r, const struct pp_event *e)
{
    int src, dst;
    const char *what;
    if (!e || (e->kind != PP_EVENT_RECV && e->kind != PP_EVENT_SLOT) ||
        !pp_diagnosis_message(d, e, r, &src, &dst, &what))
        return -1;
    int other = e->kind == PP_EVENT_RECV ? src : dst;
    return other != r && other < d->ranks ? other : -1;
}

/* Returns whether rank a is a likelier cause than rank b; neither waits. Likelier is first a rank
 * whose process does not run, then one whose actions can be seen, then the one without progress for
 * longer. */
static bool is_likelier(const struct judge *j, int a, int b)
{
    const struct pp_rank_view *x = &j->d->views[a], *y = &j->d->views[b];
    bool halted_a = j->d->live && (x->state == PP_RANK_STOPPED || x->state == PP_RANK_GONE);
    bool halted_b = j->d->live && (y->state == PP_RANK_STOPPED || y->state == PP_RANK_GONE);
    if (halted_a != halted_b)
        return halted_a;
    if (is_seen(j, a) != is_seen(j, b))
        return is_seen(j, a);
    return pp_rank_progress_ns(x) < pp_rank_progress_ns(y);
}

/* Returns the rank that waiting rank r waits for: the other end of its message, else a rank that
 * has not reached the same collective action, preferably one that does not wait itself; -1 if there
 * is none. */
static int find_blocker(const struct judge *j, int r)
{
    const struct pp_diagnosis *d = j->d;
    const struct pp_event *e = pp_rank_current(&d->views[r]);
    int best = find_peer(d, r, e);
    if (best >= 0)
        return best;
    int stages = d->layout ? d->layout->stages : 1;
    bool replicas_only =
        e && (e->kind == PP_EVENT_REDUCE || e->kind == PP_EVENT_GATHER) && d->layout;
    for (int s = 0; s < d->ranks; s++) {
        if (s == r || has_ended(&d->views[s]) || has_reached(j, s, e) ||
            (replicas_only && s % stages != r % stages))
            continue;
        if (best < 0 || (!is_waiting(j, s) && (is_waiting(j, best) || is_likelier(j, s, best))))
            best = s;
    }
    return best;
}

/* Follows the chain of waiting ranks from rank r to its end, which is a rank that does not wait or
 * whose partner is unknown, and returns that rank. *circle is set if the chain has no end, because
 * the ranks wait in a circle. */
static int follow_waits(const struct judge *j, int r, bool *circle)
{
    *circle = false;
    for (int hops = 0; hops <= j->d->ranks; hops++) {
        if (j->d->waits_for[r] < 0)
            return r;
        r = j->d->waits_for[r];
    }
    *circle = true;
    return r;
}

static void find_culprit(struct judge *j)
{
    struct pp_diagnosis *d = j->d;
    bool any_waits = false;
    for (int r = 0; r < d->ranks; r++) {
        d->waits_for[r] = is_waiting(j, r) ? find_blocker(j, r) : -1;
        any_waits |= is_waiting(j, r);
        d->suspects += is_seen(j, r) && !has_ended(&d->views[r]) && !is_waiting(j, r);
    }
    int circle_at = -1;
    for (int r = 0; r < d->ranks; r++) {
        bool circle;
        if (has_ended(&d->views[r]) || (any_waits && !is_waiting(j, r)))
            continue;
        int end = follow_waits(j, r, &circle);
        if (circle)
            circle_at = end;
        else if (!is_waiting(j, end) && (d->culprit < 0 || is_likelier(j, end, d->culprit)))
            d->culprit = end;
    }
    if (d->culprit >= 0) {
        enum pp_rank_state state = d->views[d->culprit].state;
        d->verdict = !is_seen(j, d->culprit)               ? PP_VERDICT_UNSEEN
                     : d->live && state == PP_RANK_STOPPED ? PP_VERDICT_STOPPED
                     : d->live && state == PP_RANK_GONE    ? PP_VERDICT_GONE
                                                           : PP_VERDICT_HANGS;
    } else if (circle_at >= 0) {
        d->culprit = circle_at;
        d->verdict = PP_VERDICT_CYCLE;
    } else if (any_waits) {
        d->verdict = PP_VERDICT_ALL_WAIT;
    }
}

/* Returns the machine with whose clock to compare times: this machine if a rank runs on it, else
 * that of the first ring, so that the rings of another machine can be read here. */
static uint32_t find_reference_machine(const struct pp_diagnosis *d)
{
    const struct pp_rank_view *first = NULL;
    for (int r = 0; r < d->ranks; r++) {
        const struct pp_rank_view *v = &d->views[r];
        if (has_process(v))
            return v->machine;
        first = !first && v->state != PP_RANK_UNKNOWN ? v : first;
    }
    return first ? first->machine : 0;
}

void pp_diagnosis_judge(struct pp_diagnosis *d)
{
    struct judge j = {.d = d, .machine = find_reference_machine(d)};
    uint64_t progress = 0, sign = 0;
    int at_work = 0;
    d->live = false;
    d->verdict = PP_VERDICT_NONE;
    d->culprit = -1;
    d->suspects = 0;
    for (int r = 0; r < d->ranks; r++) {
        const struct pp_rank_view *v = &d->views[r];
        d->waits_for[r] = -1;
        if (!is_seen(&j, r) || has_ended(v))
            continue;
        uint64_t p = pp_rank_progress_ns(v), s = v->waited_ns > p ? v->waited_ns : p;
        at_work++;
        d->live |= has_process(v);
        progress = p > progress ? p : progress;
        sign = s > sign ? s : sign;
    }
    d->now_ns = d->live ? pp_clock_ns() : sign;
    d->idle_ns = d->now_ns > progress ? d->now_ns - progress : 0;
    uint64_t silence = d->live ? SILENCE_NS : SILENCE_DEAD_NS;
    double timeout = d->hang_timeout;
    if (timeout > 0 && timeout * 0.5e9 < (double)silence)
        silence = (uint64_t)(timeout * 0.5e9);
    if (at_work == 0 || d->idle_ns < silence)
        return;
    j.stale_ns = d->idle_ns / 2;
    j.stale_ns = j.stale_ns < STALE_MIN_NS ? STALE_MIN_NS : j.stale_ns;
    j.stale_ns = j.stale_ns > STALE_MAX_NS ? STALE_MAX_NS : j.stale_ns;
    find_culprit(&j);
}

/* ---- a run folder */

/* Sets *out to the number of ranks: one more than the highest rank that has a ring in the
 * folder. */
static int count_rings(const char *dir, int *out)
{
    char folder[PP_PATH_MAX];
    PP_TRY(pp_path_format(folder, "%s/" PP_RUN_DIR_ACTIONS, dir));
    PP_OWN_MEMORY char **names = NULL;
    PP_TRY(pp_dir_names(folder, &names));
    *out = 0;
    for (char **name = names; *name; name++) {
        int rank, end = 0;
        if (sscanf(*name, "rank-%d.ring%n", &rank, &end) == 1 && end > 0 && !(*name)[end] &&
            rank >= *out && rank < RANKS_MAX)
            *out = rank + 1;
    }
    if (*out == 0)
        return pp_fail(PP_ENOINPUT, "%s: no rank of this run has recorded anything", folder);
    return 0;
}

int pp_diagnosis_open(struct pp_diagnosis *d, const struct pp_layout *layout, double hang_timeout,
                      const char *dir)
{
    int n = 0;
    PP_TRY(count_rings(dir, &n));
    if (layout && layout->ranks > n)
        n = layout->ranks < RANKS_MAX ? layout->ranks : RANKS_MAX;
    PP_TRY(pp_diagnosis_init(d, layout, hang_timeout, n));
    for (int r = 0; r < n; r++) {
        char path[PP_PATH_MAX];
        PP_OWN(pp_ring_destroy) struct pp_ring *ring = NULL;
        int rc = pp_run_dir_ring(dir, r, path);
        if (rc == 0)
            rc = pp_ring_open(path, &ring);
        if (rc == PP_ENOINPUT)
            continue; /* the rank never began, or keeps its ring on another host */
        PP_TRY_UNDO(rc, pp_diagnosis_fini(d));
        pp_assert(ring != NULL);
        pp_rank_look(ring, &d->views[r]);
    }
    pp_diagnosis_judge(d);
    return 0;
}
