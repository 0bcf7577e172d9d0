/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli plan --csv FILE --par NAME: a table is marked. */
#include <string.h>

#include "ppcli/results.h"
#include "ppcli/text.h"
#include "plan.h"

struct mark {
    const struct plan_words *words;
    const struct pp_cli_settings *settings;
    struct plan_request q;
    char digest[PP_SHA256_HEX];
    bool is_legal;
    struct pp_error why; /* it is not */
    const char *like;    /* the schedule that it is; NULL: an order of its own */
    const char *par;     /* the schedule that it is compared with */
    double makespan, least;
    double peak; /* micro-batches of activations */
    int rank;    /* that holds them */
};

/* ---- par */

static double largest_peak(const struct plan_request *q, const struct pp_sim_result *result,
                           int *rank)
{
    int p = q->plan->geometry.stages, most = 0;
    int share = q->plan->geometry.chunks / q->plan->copies;
    for (int r = 1; r < p; r++)
        most = result->peak[r] > result->peak[most] ? r : most;
    *rank = most;
    return (double)result->peak[most] / share;
}

/* A schedule of the table's shape, with its costs. *makespan 0: it holds more than the cap. */
static int time_schedule(const struct mark *m, const char *name, double *makespan)
{
    const struct pp_geometry *g = &m->q.plan->geometry;
    const struct pp_schedule_ops *ops = pp_schedule_find(name);
    PP_OWN(plan_request_fini) struct plan_request q = {0};
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    struct plan_words words = {0};
    char numbers[4][32];
    struct pp_cli_settings s = {.n = 3,
                                .items = {{"pipeline.schedule", name, "--par"},
                                          {"pipeline.stages", numbers[0], "--par"},
                                          {"pipeline.microbatches", numbers[1], "--par"}}};
    snprintf(numbers[0], sizeof(numbers[0]), "%d", g->stages);
    snprintf(numbers[1], sizeof(numbers[1]), "%d", g->microbatches);
    snprintf(numbers[2], sizeof(numbers[2]), "%d", g->chunks);
    snprintf(numbers[3], sizeof(numbers[3]), "%.9g", m->q.memory_cap);
    if (ops && (ops->chunks == 0 || ops->chunks == g->chunks))
        s.items[s.n++] = (struct pp_setting){"pipeline.chunks", numbers[2], "--par"};
    if (m->q.memory_cap > 0)
        s.items[s.n++] = (struct pp_setting){"pipeline.memory_cap", numbers[3], "--par"};
    memcpy(words.costs, m->words->costs, sizeof(words.costs));
    int rank;
    PP_TRY(plan_request_make(&words, &s, false, &q));
    PP_TRY(pp_sim_run(q.plan, &q.costs.costs, false, &result));
    *makespan = m->q.memory_cap > 0 && largest_peak(&q, &result, &rank) > m->q.memory_cap
                    ? 0
                    : result.makespan;
    return 0;
}

/* The fastest of all that have as many chunks and fit. */
static int find_best(struct mark *m)
{
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        double makespan = 0;
        int chunks = pp_schedule_find(*name)->chunks;
        bool has_shape =
            !pp_schedule_proves(*name) && (chunks == 0 || chunks == m->q.plan->geometry.chunks);
        if (!has_shape || time_schedule(m, *name, &makespan) < 0 || makespan <= 0)
            continue;
        if (!m->par || makespan < m->least) {
            m->par = *name;
            m->least = makespan;
        }
    }
    pp_error_clear();
    return 0;
}

static int find_par(struct mark *m)
{
    if (strcmp(m->words->par, "best") == 0)
        return find_best(m);
    double makespan = 0;
    PP_TRY(time_schedule(m, m->words->par, &makespan));
    m->par = makespan > 0 ? m->words->par : NULL;
    m->least = makespan;
    return 0;
}

/* ---- the mark */

static int measure(struct mark *m)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    PP_TRY(pp_sim_run(m->q.plan, &m->q.costs.costs, false, &result));
    PP_TRY(pp_plan_digest(m->q.plan, m->digest));
    m->like = pp_plan_recognize(m->q.plan);
    m->makespan = result.makespan;
    m->peak = largest_peak(&m->q, &result, &m->rank);
    return find_par(m);
}

/* Why it does not pass; false: it passes. */
static bool find_reason(const struct mark *m, char *out, size_t bytes)
{
    out[0] = '\0';
    if (!m->is_legal) {
        pp_text_add(out, bytes, "it is not legal: %s", m->why.text);
        return true;
    }
    if (m->par && m->makespan > m->least * (1 + 1e-9))
        pp_text_add(out, bytes, "its step takes %g, that of %s %g", m->makespan, m->par, m->least);
    if (m->q.memory_cap > 0 && m->peak > m->q.memory_cap)
        pp_text_add(out, bytes, "%srank %d holds %g micro-batches, --memory-cap allows %g",
                    out[0] ? "; " : "", m->rank, m->peak, m->q.memory_cap);
    return out[0] != '\0';
}

static int mark(struct mark *m, const char *format)
{
    char reason[PP_ERROR_TEXT_MAX + 64];
    int rc = plan_request_make(m->words, m->settings, false, &m->q);
    if (rc < 0 && rc != PP_EFORMAT)
        return rc;
    m->why = *pp_error_get();
    m->is_legal = rc == 0;
    PP_TRY(m->is_legal ? measure(m) : 0);
    bool failed = find_reason(m, reason, sizeof(reason));
    const struct pp_mark marked = {.file = m->words->csv,
                                   .reason = reason,
                                   .g = m->is_legal ? &m->q.plan->geometry : NULL,
                                   .like = m->like,
                                   .asked = m->words->par,
                                   .par = m->par,
                                   .makespan = m->makespan,
                                   .least = m->least,
                                   .peak = m->peak,
                                   .cap = m->q.memory_cap,
                                   .rank = m->rank,
                                   .digest = m->digest};
    PP_TRY(pp_mark_print(&marked, strcmp(format, "json") == 0, stdout));
    return failed ? pp_fail(PP_ECHECK, "%s does not pass: %s", m->words->csv, reason) : 0;
}

int plan_mark(const struct plan_words *words, const struct pp_cli_settings *settings,
              const char *format)
{
    if (!words->csv)
        return pp_fail(PP_EUSAGE, "--par marks a table: ppcli plan --csv FILE --par %s",
                       words->par);
    if (strcmp(format, "grid") != 0 && strcmp(format, "json") != 0)
        return pp_fail(PP_EUSAGE, "--par prints a mark: leave out --format, or --format json");
    if (strcmp(words->par, "best") != 0 && !pp_schedule_find(words->par))
        return pp_fail(PP_EUSAGE,
                       "--par: unknown schedule '%s'; ppcli keys pipeline.schedule lists them, and "
                       "best is the fastest",
                       words->par);
    struct mark m = {.words = words, .settings = settings};
    int rc = mark(&m, format);
    plan_request_fini(&m.q);
    return rc;
}
