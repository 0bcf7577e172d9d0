/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli mark TABLE: is the table legal, as fast as a known schedule of its shape, and within a cap on
 * memory? Ends with 0 or 1.
 */
#include <string.h>

#include "ppcli/show/results.h"
#include "ppcli/base/base.h"
#include "plan.h"

#define BEST "best" /* the fastest that fits */

struct mark {
    const char *par; /* what it is compared with: a schedule, or BEST */
    struct plan_request q;
    char digest[PP_SHA256_HEX];
    struct pp_error why; /* the first error of a table that is not legal */
    struct pp_mark m;
};

/* ---- par */

/* Remembers the schedule in the mark if it keeps the cap and is faster than those before it. */
static int compare_schedule(const struct pp_plan *plan, const struct pp_sim_result *result,
                            void *mark)
{
    struct pp_mark *m = &((struct mark *)mark)->m;
    int rank;
    bool fits = m->cap <= 0 || find_plan_peak(plan, result, &rank) <= m->cap;
    if (fits && (!m->par || result->makespan < m->least)) {
        m->par = pp_schedule_name(plan->schedule);
        m->least = result->makespan;
    }
    return 0;
}

/* Finds the fastest schedule that has as many chunks as the table and keeps the cap, or times the one
 * that was asked for. */
static int find_par(struct mark *m)
{
    struct pp_geometry shape = *m->m.g;
    const char *name = strcmp(m->par, BEST) == 0 ? NULL : m->par;
    shape.memory_cap = m->m.cap;
    return pp_schedules_simulate(name, &shape, m->q.lists, compare_schedule, m);
}

/* ---- the mark */

static int measure_table(struct mark *m)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    m->m.g = &m->q.plan->geometry;
    m->m.cap = m->q.g.memory_cap;
    PP_TRY(pp_sim_run(m->q.plan, &m->q.costs.costs, false, &result));
    PP_TRY(pp_plan_digest(m->q.plan, m->digest));
    m->m.digest = m->digest;
    m->m.like = pp_plan_recognize(m->q.plan);
    m->m.makespan = result.makespan;
    m->m.peak = find_plan_peak(m->q.plan, &result, &m->m.rank);
    return find_par(m);
}

/* Writes why the table does not pass; "": it passes. */
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

/* Marks the table of `a`, where a rank may hold at most `cap` micro-batches (0: any number). */
static int mark_table(const struct plan_asked *a, const char *par, double cap, bool json)
{
    char reason[PP_ERROR_TEXT_MAX + 64];
    PP_OWN(fini_mark)
    struct mark m = {.par = par,
                     .q = {.g.memory_cap = cap},
                     .m = {.file = a->csv, .reason = reason, .asked = par}};
    int rc = plan_request_make(a, &m.q);
    if (rc < 0 && rc != PP_EFORMAT)
        return rc;
    m.why = *pp_error_get();
    PP_TRY(rc == 0 ? measure_table(&m) : 0);
    find_reason(&m, reason, sizeof(reason));
    PP_TRY(pp_mark_print(&m.m, json, stdout));
    return reason[0] ? pp_fail(PP_ECHECK, "%s does not pass: %s", a->csv, reason) : 0;
}

int cmd_mark(int argc, char **argv)
{
    struct plan_asked asked = {.csv = NULL}, *a = &asked;
    const char *par = BEST, *words[1];
    double cap = 0;
    int json = 0;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &json, "text|json", "how to print; text"},
        {"par", 0, PP_CLI_STRING, &par, "NAME", "schedule to compare with; best: the fastest"},
        {"memory-cap", 0, PP_CLI_NUMBER, &cap, "X", "forwards that a rank may hold"},
#include "options_costs.def"
        {0},
    };
    PP_TRY(pp_cli_parse(argc, argv, &command_mark, options, NULL, words, 1));
    a->csv = words[0];
    if (!a->csv)
        return pp_fail(PP_EUSAGE, "name a table. For example: ppcli mark mine.csv --par 1f1b");
    if (strcmp(par, BEST) != 0 && !pp_schedule_find(par))
        return pp_fail(PP_EUSAGE,
                       "--par: unknown schedule '%s'; ppcli keys pipeline.schedule lists them, and "
                       "best is the fastest",
                       par);
    return mark_table(a, par, cap, json);
}
