/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the verdict: first the answer, then which rank waits for which, then what to do. The
 * watchdog's message, hang.txt and `ppcli diagnose` all use it. Nothing here allocates, because the
 * rank that hangs may hold the allocator.
 */
#include "diagnose.h"

#include <inttypes.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

#define WAITS_SHOWN 16
#define STAGES_SHOWN 8
#define TEXT PP_DIAGNOSIS_TEXT

/* ---- words */

static const char *const states[] = {
    [PP_RANK_UNKNOWN] = "unknown",   [PP_RANK_RUNNING] = "running",
    [PP_RANK_STOPPED] = "stopped",   [PP_RANK_TRACED] = "in a debugger",
    [PP_RANK_GONE] = "gone",         [PP_RANK_ELSEWHERE] = "on another machine",
    [PP_RANK_FINISHED] = "finished", [PP_RANK_FAILED] = "failed",
};

/* likely: the probable cause; NULL: it depends on the action. */
static const struct {
    const char *name, *likely;
} verdicts[] = {
    [PP_VERDICT_NONE] = {"none", NULL},
    [PP_VERDICT_HANGS] = {"hangs", NULL},
    [PP_VERDICT_STOPPED] = {"stopped",
                            "a signal or a terminal stopped it; kill -CONT continues it"},
    [PP_VERDICT_GONE] = {"gone", "it was killed: by a person, or by the system when memory ran out "
                                 "(see dmesg)"},
    [PP_VERDICT_UNSEEN] = {"unseen", "its machine or the network to it"},
    [PP_VERDICT_CYCLE] = {"cycle", "a lost message, or the network between their hosts"},
    [PP_VERDICT_ALL_WAIT] = {"all_wait", "the network, or MPI itself"},
};

/* Returns the host of a rank if the run has several hosts, else NULL. */
static const char *host_to_print(const struct pp_diagnosis *d, int r)
{
    const char *mine = d->views[r].host;
    bool several = false;
    for (int k = 0; k < d->ranks && !several; k++)
        several = d->views[k].host[0] && strcmp(d->views[k].host, mine) != 0;
    return several && mine[0] ? mine : NULL;
}

/* Formats the name of a rank in `out` and returns it: "rank 1 (stages 1 3, host b)". */
static const char *rank_text(const struct pp_diagnosis *d, int r, char out[TEXT])
{
    const struct pp_layout *l = d->layout;
    const char *host = host_to_print(d, r);
    out[0] = '\0';
    pp_text_add(out, TEXT, "rank %d", r);
    if (!l || r >= l->ranks) {
        if (host)
            pp_text_add(out, TEXT, " (host %s)", host);
        return out;
    }
    pp_text_add(out, TEXT, " (%s", l->chunks > 1 ? "stages" : "stage");
    for (int s = 0, shown = 0; s < l->n_virtual; s++)
        if (l->rank_of[s] == r % l->stages && ++shown <= STAGES_SHOWN)
            pp_text_add(out, TEXT, " %d", s);
    if (l->replicas > 1)
        pp_text_add(out, TEXT, ", replica %d", r / l->stages);
    if (host)
        pp_text_add(out, TEXT, ", host %s", host);
    pp_text_add(out, TEXT, ")");
    return out;
}

/* Formats an event of rank r in `out` and returns it: "F of micro-batch 3, stage 1, step 12". */
static const char *event_text(const struct pp_diagnosis *d, int r, const struct pp_event *e,
                              char out[TEXT])
{
    int src = -1, dst = -1;
    const char *what = "message of micro-batch";
    bool known = pp_diagnosis_message(d, e, r, &src, &dst, &what);
    bool tied = e->kind == PP_EVENT_G || e->kind == PP_EVENT_T ||
                (e->kind == PP_EVENT_RELEASE && strstr(what, "tied"));
    out[0] = '\0';
    pp_text_add(out, TEXT, "%s", pp_event_name(e->kind));
    switch (e->kind) {
    case PP_EVENT_F:
    case PP_EVENT_R:
    case PP_EVENT_I:
    case PP_EVENT_W:
    case PP_EVENT_RELEASE:
    case PP_EVENT_G:
    case PP_EVENT_T:
        pp_text_add(out, TEXT, " of %s %d", tied ? "tied tensor" : "micro-batch", e->mb);
        break;
    case PP_EVENT_RECV:
        pp_text_add(out, TEXT, " of the %s %d", what, e->mb);
        if (known)
            pp_text_add(out, TEXT, " from rank %d", src);
        break;
    case PP_EVENT_SLOT:
    case PP_EVENT_SEND:
        pp_text_add(out, TEXT, " for the %s %d", what, e->mb);
        if (known)
            pp_text_add(out, TEXT, " to rank %d", dst);
        break;
    case PP_EVENT_START:
        pp_text_add(out, TEXT, " (set-up)");
        return out;
    default:
        break;
    }
    if (e->stage >= 0)
        pp_text_add(out, TEXT, ", stage %d", e->stage);
    pp_text_add(out, TEXT, e->eval ? ", test batch %d" : ", step %d", e->step);
    return out;
}

const char *pp_diagnosis_action(const struct pp_diagnosis *d, int r, char out[TEXT])
{
    const struct pp_rank_view *v = &d->views[r];
    const struct pp_event *e = pp_rank_current(v);
    char last[TEXT];
    if (e)
        return event_text(d, r, e, out);
    snprintf(out, TEXT, "set-up, before its first action");
    if (v->n > 0)
        snprintf(out, TEXT, "between actions, after %.200s",
                 event_text(d, r, &v->actions[v->n - 1], last));
    return out;
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

/* Returns how many seconds ago the rank last made progress. */
static double idle_seconds(const struct pp_diagnosis *d, int r)
{
    return seconds_between(pp_rank_progress_ns(&d->views[r]), d->now_ns);
}

/* Returns the seconds from when the first rank of the view's machine opened its ring to `ns`, so
 * that times of ranks can be compared. */
static double since_start(const struct pp_diagnosis *d, const struct pp_rank_view *v, uint64_t ns)
{
    uint64_t start = v->opened_ns;
    for (int r = 0; r < d->ranks; r++) {
        const struct pp_rank_view *other = &d->views[r];
        if (other->state != PP_RANK_UNKNOWN && other->machine == v->machine &&
            other->opened_ns < start)
            start = other->opened_ns;
    }
    return seconds_between(start, ns);
}

/* ---- the verdict */

static const char *likely_cause(const struct pp_diagnosis *d)
{
    const struct pp_event *e = d->culprit >= 0 ? pp_rank_current(&d->views[d->culprit]) : NULL;
    if (verdicts[d->verdict].likely)
        return verdicts[d->verdict].likely;
    if (!e || e->kind == PP_EVENT_START)
        return "slow or absent storage, or a machine short of memory";
    if (e->kind == PP_EVENT_SAVE || e->kind == PP_EVENT_REPORT)
        return "a full disk, or a reader of the output that has stopped reading";
    return pp_event_computes(e->kind)
               ? "a library call that does not return, a machine that swaps, or a step that is slow"
               : "a library or system call that does not return";
}

static bool all_finished(const struct pp_diagnosis *d)
{
    int n = 0;
    for (int r = 0; r < d->ranks; r++)
        n += d->views[r].state == PP_RANK_FINISHED;
    return n == d->ranks;
}

/* Prints the first line of the report, which tells the verdict, without a newline. */
static void print_headline(const struct pp_diagnosis *d, FILE *f)
{
    char who[TEXT], at[TEXT];
    double since = 0;
    if (d->culprit >= 0) {
        rank_text(d, d->culprit, who);
        pp_diagnosis_action(d, d->culprit, at);
        since = idle_seconds(d, d->culprit);
    }
    switch (d->verdict) {
    case PP_VERDICT_NONE:
        fputs(d->live           ? "all ranks make progress: none blocks the others"
              : all_finished(d) ? "every rank finished"
                                : "no rank was blocking the others when the run ended",
              f);
        break;
    case PP_VERDICT_HANGS:
        fprintf(f, "%s %s in %s, for %.1f s%s", who, d->live ? "hangs" : "blocked the others", at,
                since, d->live ? "" : ", when the run ended");
        break;
    case PP_VERDICT_STOPPED:
        fprintf(f, "%s is stopped (pid %" PRId64 "), in %s, for %.1f s", who,
                d->views[d->culprit].pid, at, since);
        break;
    case PP_VERDICT_GONE:
        fprintf(f, "%s is gone (pid %" PRId64 "), in %s, %.1f s ago", who, d->views[d->culprit].pid,
                at, since);
        break;
    case PP_VERDICT_UNSEEN:
        fprintf(f, "the ranks wait for %s, which cannot be seen from here, for %.1f s", who,
                (double)d->idle_ns * 1e-9);
        break;
    case PP_VERDICT_CYCLE:
        fprintf(f, "ranks wait for each other in a circle, for %.1f s", (double)d->idle_ns * 1e-9);
        break;
    case PP_VERDICT_ALL_WAIT:
        fprintf(f, "all ranks wait for each other; no progress for %.1f s",
                (double)d->idle_ns * 1e-9);
        break;
    }
}

static void print_waits(const struct pp_diagnosis *d, FILE *f)
{
    char who[TEXT], at[TEXT];
    int shown = 0, more = 0;
    for (int r = 0; r < d->ranks; r++) {
        if (d->waits_for[r] < 0)
            continue;
        if (shown == WAITS_SHOWN) {
            more++;
            continue;
        }
        fprintf(f, "  %s %s for rank %d: %s, %.1f s\n", rank_text(d, r, who),
                d->live ? "waits" : "waited", d->waits_for[r], pp_diagnosis_action(d, r, at),
                idle_seconds(d, r));
        shown++;
    }
    if (more > 0)
        fprintf(f, "  and %d more that wait\n", more);
}

void pp_diagnosis_print(const struct pp_diagnosis *d, const char *dir, FILE *f)
{
    print_headline(d, f);
    fputc('\n', f);
    print_waits(d, f);
    if (d->verdict == PP_VERDICT_NONE)
        return;
    fprintf(f, "  likely: %s\n", likely_cause(d));
    if (dir[0]) {
        char shown[PP_PATH_MAX], word[2 * PP_PATH_MAX];
        pp_text_shown(dir, shown, sizeof(shown));
        fprintf(f, "  what each rank did last: ppcli diagnose %s\n",
                pp_text_shell(shown, word, sizeof(word)));
    }
    fprintf(f, "  if a step is only slow: raise run.hang_timeout\n");
}

/* ---- every rank */

void pp_diagnosis_print_ranks(const struct pp_diagnosis *d, FILE *f)
{
    char text[TEXT];
    for (int r = 0; r < d->ranks; r++) {
        const struct pp_rank_view *v = &d->views[r];
        fprintf(f, "%s: %s", rank_text(d, r, text), states[v->state]);
        if (v->state == PP_RANK_UNKNOWN) {
            fprintf(f, ", no record of its actions\n");
            continue;
        }
        fprintf(f, ", pid %" PRId64 ", %" PRIu64 " actions\n", v->pid, v->begun);
        for (int k = 0; k < v->n; k++) {
            const struct pp_event *e = &v->actions[k];
            double at = since_start(d, v, e->begin_ns);
            event_text(d, r, e, text);
            if (e->end_ns == 0) {
                fprintf(f, "  %12.6f s  not over      %s\n", at, text);
            } else {
                fprintf(f, "  %12.6f s  %9.3f ms  %s\n", at,
                        seconds_between(e->begin_ns, e->end_ns) * 1e3, text);
            }
        }
    }
}

static void json_event(const struct pp_diagnosis *d, int r, const struct pp_event *e,
                       struct pp_json *j)
{
    char text[TEXT];
    pp_json_object(j, NULL);
    pp_json_str(j, "kind", pp_event_name(e->kind));
    pp_json_str(j, "text", event_text(d, r, e, text));
    pp_json_int(j, "step", e->step);
    pp_json_bool(j, "eval", e->eval != 0);
    pp_json_int(j, "stage", e->stage);
    pp_json_int(j, "microbatch", e->mb);
    pp_json_dbl(j, "begin_seconds", since_start(d, &d->views[r], e->begin_ns));
    if (e->end_ns != 0)
        pp_json_dbl(j, "seconds", seconds_between(e->begin_ns, e->end_ns));
    pp_json_bool(j, "over", e->end_ns != 0);
    pp_json_end(j);
}

void pp_diagnosis_print_json(const struct pp_diagnosis *d, const char *dir, const char *hang,
                             FILE *f)
{
    char text[TEXT];
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "run", dir);
    pp_json_bool(&j, "alive", d->live);
    pp_json_str(&j, "watchdog", hang[0] ? hang : NULL);
    pp_json_str(&j, "verdict", verdicts[d->verdict].name);
    pp_json_int(&j, "culprit", d->culprit);
    pp_json_dbl(&j, "silent_seconds", (double)d->idle_ns * 1e-9);
    pp_json_str(&j, "likely", d->verdict == PP_VERDICT_NONE ? "" : likely_cause(d));
    pp_json_array(&j, "ranks");
    for (int r = 0; r < d->ranks; r++) {
        const struct pp_rank_view *v = &d->views[r];
        pp_json_object(&j, NULL);
        pp_json_int(&j, "rank", r);
        pp_json_str(&j, "state", states[v->state]);
        if (v->state != PP_RANK_UNKNOWN) {
            pp_json_int(&j, "pid", v->pid);
            pp_json_str(&j, "host", v->host[0] ? v->host : NULL);
            pp_json_str(&j, "current", pp_diagnosis_action(d, r, text));
            pp_json_dbl(&j, "current_seconds", idle_seconds(d, r));
            pp_json_uint(&j, "actions_begun", v->begun);
        }
        pp_json_int(&j, "waits_for", d->waits_for[r]);
        pp_json_array(&j, "actions");
        for (int k = 0; k < v->n; k++)
            json_event(d, r, &v->actions[k], &j);
        pp_json_end(&j);
        pp_json_end(&j);
    }
    pp_json_end(&j);
    pp_json_end(&j);
}
