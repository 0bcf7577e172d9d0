/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli plan --csv FILE --par NAME: a table is marked. */
#include <string.h>

#include "ppcli/show/results.h"
#include "ppcli/base/base.h"
#include "plan.h"

struct mark {
    const struct plan_asked *asked;
    struct plan_request q;
    char digest[PP_SHA256_HEX];
    struct pp_error why; /* it is not legal */
    struct pp_mark m;
};

/* ---- par */

/* A schedule of the table's shape, with its costs. *makespan 0: it holds more than the cap. */
static int time_schedule(const struct mark *m, const char *name, double *makespan)
{
    const struct pp_geometry *g = m->m.g;
    const struct pp_schedule_ops *ops = pp_schedule_find(name);
    PP_OWN(plan_request_fini)
    struct plan_request q = {
        .is_shaped = true,
        .schedule = name,
        .g = {.stages = g->stages, .microbatches = g->microbatches, .memory_cap = m->m.cap}};
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    int rank;
    if (ops && (ops->chunks == 0 || ops->chunks == g->chunks))
        q.g.chunks = g->chunks;
    PP_TRY(plan_request_make(m->asked, &q));
    PP_TRY(pp_sim_run(q.plan, &q.costs.costs, false, &result));
    bool fits = m->m.cap <= 0 || plan_request_peak(&q, &result, &rank) <= m->m.cap;
    *makespan = fits ? result.makespan : 0;
    return 0;
}

/* The fastest of all that have as many chunks and fit. */
static int find_best(struct mark *m)
{
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        double makespan = 0;
        int chunks = pp_schedule_find(*name)->chunks;
        bool has_shape = !pp_schedule_proves(*name) && (chunks == 0 || chunks == m->m.g->chunks);
        if (!has_shape || time_schedule(m, *name, &makespan) < 0 || makespan <= 0)
            continue;
        if (!m->m.par || makespan < m->m.least) {
            m->m.par = *name;
            m->m.least = makespan;
        }
    }
    pp_error_clear();
    return 0;
}

static int find_par(struct mark *m)
{
    double makespan = 0;
    if (strcmp(m->asked->par, "best") == 0)
        return find_best(m);
    PP_TRY(time_schedule(m, m->asked->par, &makespan));
    m->m.par = makespan > 0 ? m->asked->par : NULL;
    m->m.least = makespan;
    return 0;
}

/* ---- the mark */

static int measure(struct mark *m)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    m->m.g = &m->q.plan->geometry;
    m->m.cap = m->q.g.memory_cap;
    PP_TRY(pp_sim_run(m->q.plan, &m->q.costs.costs, false, &result));
    PP_TRY(pp_plan_digest(m->q.plan, m->digest));
    m->m.digest = m->digest;
    m->m.like = pp_plan_recognize(m->q.plan);
    m->m.makespan = result.makespan;
    m->m.peak = plan_request_peak(&m->q, &result, &m->m.rank);
    return find_par(m);
}

/* Why it does not pass; "": it passes. */
static void find_reason(const struct mark *mark, char *out, size_t bytes)
{
    const struct pp_mark *m = &mark->m;
    out[0] = '\0';
    if (!m->g)
        pp_text_add(out, bytes, "it is not legal: %s", mark->why.text);
    if (m->par && m->makespan > m->least * (1 + 1e-9))
        pp_text_add(out, bytes, "its step takes %g, that of %s %g", m->makespan, m->par, m->least);
    if (m->cap > 0 && m->peak > m->cap)
        pp_text_add(out, bytes, "%srank %d holds %g micro-batches, --memory-cap allows %g",
                    out[0] ? "; " : "", m->rank, m->peak, m->cap);
}

static void fini_mark(struct mark *m)
{
    plan_request_fini(&m->q);
}

int plan_mark(const struct plan_asked *a)
{
    char reason[PP_ERROR_TEXT_MAX + 64];
    bool json;
    PP_OWN(fini_mark)
    struct mark m = {.asked = a, .m = {.file = a->csv, .reason = reason, .asked = a->par}};
    if (!a->csv)
        return pp_fail(PP_EUSAGE, "--par marks a table: ppcli plan --csv FILE --par %s", a->par);
    if (!plan_prints_result(a, &json))
        return pp_fail(PP_EUSAGE, "--par prints a mark: leave out --format, or --format json");
    if (strcmp(a->par, "best") != 0 && !pp_schedule_find(a->par))
        return pp_fail(PP_EUSAGE,
                       "--par: unknown schedule '%s'; ppcli keys pipeline.schedule lists them, and "
                       "best is the fastest",
                       a->par);
    int rc = plan_request_make(a, &m.q);
    if (rc < 0 && rc != PP_EFORMAT)
        return rc;
    m.why = *pp_error_get();
    PP_TRY(rc == 0 ? measure(&m) : 0);
    find_reason(&m, reason, sizeof(reason));
    PP_TRY(pp_mark_print(&m.m, json, stdout));
    return reason[0] ? pp_fail(PP_ECHECK, "%s does not pass: %s", a->csv, reason) : 0;
}
