/* SPDX-License-Identifier: Apache-2.0 */
/* The words of `ppcli plan` become a proved plan and the costs of its stages. */
#include "plan.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/cluster.h"
#include "ppcli/exchange.h"
#include "ppcli/text.h"
#include "ppcli/tune.h"

#define COST_MAX 1e12 /* sums of it stay numbers */

struct list {
    double *at;
    int n; /* 0: not given */
};

struct cost_words {
    char text[4][1024];
    const char *at[4];
};

struct shape {
    const char *schedule;
    const char *again; /* of --recompute without a config; NULL: off */
    struct pp_geometry g;
};

static const char *const options[PLAN_COSTS] = {"cost-f",    "cost-i",       "cost-w",  "cost-b",
                                                "cost-comm", "cost-overlap", "cost-tie"};

/* ---- costs */

static int read_number(const char *option, const char *text, double *out)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= 0 && x <= COST_MAX)) {
        return pp_fail(PP_EUSAGE, "--%s wants a number from 0 to %g, not '%s'", option, COST_MAX,
                       text);
    }
    *out = x;
    return 0;
}

/* "2,1,1,1" */
static int read_list(const char *option, const char *text, struct list *out)
{
    PP_OWN_MEMORY char *copy = pp_strdup(text);
    PP_TRY(copy ? 0 : PP_ERESOURCE);
    PP_ALLOC(out->at, strlen(text) / 2 + 1);
    for (char *rest = copy, *word; (word = strsep(&rest, ","));)
        PP_TRY(read_number(option, word, &out->at[out->n++]));
    return 0;
}

static double mean(const struct list *l, double none)
{
    double sum = 0;
    for (int i = 0; i < l->n; i++)
        sum += l->at[i];
    return l->n > 0 ? sum / l->n : none;
}

/* Costs of all stages: one number for all, one per rank (its chunks share it), or one per chunk. */
static int spread(const struct pp_plan *plan, const char *option, const struct list *l, double none,
                  double *out)
{
    int p = plan->geometry.stages, n = plan->n_virtual;
    int share = plan->geometry.chunks / plan->copies; /* a copy's chunks are a rank's work */
    if (l->n > 1 && l->n != p && l->n != n) {
        char chunks[96] = "";
        if (n != p)
            snprintf(chunks, sizeof(chunks), ", shared by its %d chunks) or %d (one per chunk",
                     share, n);
        return pp_fail(PP_EUSAGE, "--%s has %d numbers; this plan wants 1, %d (one per stage%s)",
                       option, l->n, p, chunks);
    }
    for (int s = 0; s < n; s++) {
        double x = l->n == 0   ? none
                   : l->n == 1 ? l->at[0]
                   : l->n == p ? l->at[plan->rank_of[s]]
                               : l->at[s] * share;
        out[s] = x / share;
    }
    return 0;
}

/* One transfer for all, or one per boundary between stages, in model order. */
static int spread_comm(const struct pp_plan *plan, const struct list *l, struct plan_request *q)
{
    int n = plan->n_virtual - 1;
    if (l->n <= 1) {
        q->costs.latency = mean(l, 0);
        return 0;
    }
    if (l->n != n) {
        return pp_fail(PP_EUSAGE, "--%s has %d numbers; this plan wants 1 or %d (one per boundary)",
                       options[PLAN_COST_COMM], l->n, n);
    }
    PP_ALLOC(q->transfer, plan->n_channels);
    for (int c = 0; c < 2 * n; c++)
        q->transfer[c] = l->at[c / 2];
    q->costs.transfer = q->transfer;
    return 0;
}

static int set_costs(const struct list lists[PLAN_COSTS], struct plan_request *q)
{
    size_t n = (size_t)q->plan->n_virtual;
    size_t ties = (size_t)q->plan->n_ties;
    pp_free(q->arrays);
    pp_free(q->transfer);
    q->transfer = NULL;
    PP_ALLOC(q->arrays, 3 * n + ties);
    double sum = 0;
    for (size_t op = 0; op < 3; op++)
        PP_TRY(spread(q->plan, options[op], &lists[op], 1, q->arrays + op * n));
    for (size_t i = 0; i < 3 * n; i++)
        sum += q->arrays[i];
    if (sum <= 0)
        return pp_fail(PP_EUSAGE, "one of --cost-f, --cost-i and --cost-w must be more than 0");
    q->costs.f = q->arrays;
    q->costs.i = q->arrays + n;
    q->costs.w = q->arrays + 2 * n;
    q->costs.tie = q->arrays + 3 * n;
    for (size_t i = 0; i < ties; i++)
        q->arrays[3 * n + i] = mean(&lists[PLAN_COST_TIE], 0);
    q->costs.overlap = mean(&lists[PLAN_COST_OVERLAP], 0);
    q->costs.fused_send = true; /* as all published tables count */
    return spread_comm(q->plan, &lists[PLAN_COST_COMM], q);
}

/* A whole backward is its I and its W, half of it each. */
static int halve_b(struct list lists[PLAN_COSTS])
{
    const struct list *b = &lists[PLAN_COST_B];
    if (b->n == 0)
        return 0;
    for (int op = PLAN_COST_I; op <= PLAN_COST_W; op++) {
        struct list *l = &lists[op];
        if (l->n > 0)
            return pp_fail(PP_EUSAGE,
                           "--cost-b is the sum of --cost-i and --cost-w: give one or both "
                           "of these, or it");
        PP_ALLOC(l->at, b->n);
        for (l->n = 0; l->n < b->n; l->n++)
            l->at[l->n] = b->at[l->n] / 2;
    }
    return 0;
}

/* ---- shapes */

/* Without a config only the keys that shape a schedule mean something. */
static int read_setting(const struct pp_setting *s, struct shape *q)
{
    const struct {
        const char *key;
        int *target;
    } counts[] = {
        {"pipeline.stages", &q->g.stages},
        {"pipeline.chunks", &q->g.chunks},
        {"pipeline.microbatches", &q->g.microbatches},
        {"pipeline.group", &q->g.group},
        {"pipeline.eager", &q->g.eager},
        {"train.coalesce", &q->g.coalesce},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (strcmp(s->key, counts[i].key) == 0) {
            int64_t x;
            if (!pp_whole_parse(s->value, &x) || x < INT_MIN || x > INT_MAX)
                return pp_fail(PP_EUSAGE, "%s wants a whole number, not '%s'", s->said, s->value);
            *counts[i].target = (int)x;
            return 0;
        }
    }
    if (strcmp(s->key, "pipeline.schedule") == 0) {
        q->schedule = s->value;
        return 0;
    }
    if (strcmp(s->key, "pipeline.recompute") == 0) {
        q->again = s->value;
        return 0;
    }
    if (strcmp(s->key, "pipeline.memory_cap") == 0)
        return read_number("memory-cap", s->value, &q->g.memory_cap);
    return pp_fail(PP_EUSAGE, "%s %s needs a CONFIG", s->said,
                   strcmp(s->said, "--set") == 0 ? s->key : s->value);
}

static bool has(const struct pp_cli_settings *settings, const char *key)
{
    for (int i = 0; i < settings->n; i++)
        if (strcmp(settings->items[i].key, key) == 0)
            return true;
    return false;
}

static int fail_missing(const struct pp_cli_settings *settings)
{
    static const struct {
        const char *key, *what;
    } wanted[] = {{"pipeline.schedule", "a schedule (--schedule NAME)"},
                  {"pipeline.stages", "stages (--stages N)"},
                  {"pipeline.microbatches", "micro-batches (--microbatches M)"}};
    char missing[128] = "";
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (!has(settings, wanted[i].key))
            pp_text_add(missing, sizeof(missing), "%s%s", missing[0] ? " and " : "",
                        wanted[i].what);
    }
    if (settings->n == 0) {
        return pp_fail(PP_EUSAGE,
                       "name a schedule, or a config. For example: ppcli plan --schedule 1f1b "
                       "--stages 4 --microbatches 8, or: ppcli plan mnist.ini");
    }
    return missing[0] ? pp_fail(PP_EUSAGE, "a plan without a CONFIG also needs %s", missing)
                      : pp_fail(PP_EUSAGE, "--stages and --microbatches must be at least 1");
}

static int fail_unknown(const char *name)
{
    size_t n = strlen(name);
    if (strchr(name, '/') || (n > 4 && strcmp(name + n - 4, ".csv") == 0)) {
        bool file = strncmp(name, PP_SCHEDULE_FILE, strlen(PP_SCHEDULE_FILE)) == 0;
        return pp_fail(PP_EUSAGE,
                       "unknown schedule '%s'; a table is --csv %s here, and schedule = %s%s in a "
                       "config",
                       name, file ? name + strlen(PP_SCHEDULE_FILE) : name,
                       file ? "" : PP_SCHEDULE_FILE, name);
    }
    struct pp_did_you_mean hint = pp_did_you_mean(name, pp_schedule_names());
    return pp_fail(PP_EUSAGE, "unknown schedule '%s'%s", name,
                   hint.s[0] ? hint.s : "; ppcli keys pipeline.schedule lists them");
}

static int build(struct shape *s, bool times, struct plan_request *q)
{
    const struct pp_schedule_ops *ops = pp_schedule_find(s->schedule);
    if (!ops)
        return fail_unknown(s->schedule);
    if (s->g.chunks == 0)
        s->g.chunks = pp_schedule_default_chunks(ops);
    PP_TRY(pp_plan_check_room(&s->g, times));
    return pp_plan_build(s->schedule, &s->g, &q->plan);
}

/* A plan whose order is made for its costs is built again, for those. */
static int fit_to_costs(const struct list lists[PLAN_COSTS], struct shape *s,
                        struct plan_request *q)
{
    PP_TRY(set_costs(lists, q));
    int n = q->plan->n_virtual;
    PP_TAKE(double, times, 3 * (size_t)n + 1);
    PP_TAKE(int64_t, ticks, 3 * (size_t)n + 1);
    for (int i = 0; i < 3 * n; i++)
        times[i] = q->arrays[i % 3 * n + i / 3];
    times[3 * (size_t)n] = mean(&lists[PLAN_COST_COMM], 0);
    pp_schedule_ticks(times, n, ticks);
    s->g.ticks = ticks;
    pp_plan_destroy(&q->plan);
    return pp_plan_build(s->schedule, &s->g, &q->plan);
}

/* all, or virtual stages: "0 2-3". */
static int read_again(const char *text, int n_virtual, bool *stages)
{
    bool all = strcmp(text, "all") == 0;
    for (int s = 0; s < n_virtual; s++)
        stages[s] = all;
    for (const char *p = all || strcmp(text, "off") == 0 ? "" : text; *p;) {
        char *end;
        long from = strtol(p, &end, 10), to = from;
        bool good = isdigit((unsigned char)*p);
        if (good && *end == '-') {
            good = isdigit((unsigned char)end[1]);
            to = strtol(end + 1, &end, 10);
        }
        if (!good || to < from || to >= n_virtual || !strchr(" ,", *end)) {
            return pp_fail(
                PP_EUSAGE,
                "--recompute without a CONFIG wants off, all, or stages from 0 to %d, as in "
                "0-1,3; not '%s'",
                n_virtual - 1, text);
        }
        for (long s = from; s <= to; s++)
            stages[s] = true;
        p = end + strspn(end, " ,");
    }
    return 0;
}

/* Costs as a program gets them: "2,1,1,1"; NULL: not given. */
static void write_costs(const struct list lists[PLAN_COSTS], struct cost_words *out)
{
    static const int of[4] = {PLAN_COST_F, PLAN_COST_I, PLAN_COST_W, PLAN_COST_COMM};
    for (int i = 0; i < 4; i++) {
        const struct list *l = &lists[of[i]];
        out->text[i][0] = '\0';
        for (int k = 0; k < l->n; k++)
            pp_text_add(out->text[i], sizeof(out->text[i]), "%s%.9g", k > 0 ? "," : "", l->at[k]);
        out->at[i] = l->n > 0 ? out->text[i] : NULL;
    }
}

/* --schedule exec:PROGRAM without a config. */
static int from_program(const struct list lists[PLAN_COSTS], const struct shape *s,
                        struct plan_request *q)
{
    const char *word = s->schedule + strlen(PP_SCHEDULE_EXEC);
    char path[PP_PATH_MAX];
    struct cost_words costs;
    write_costs(lists, &costs);
    snprintf(path, sizeof(path), "%s%s", strchr(word, '/') ? "" : "./", word);
    struct pp_program p = {.path = path,
                           .stages = s->g.stages,
                           .chunks = s->g.chunks,
                           .microbatches = s->g.microbatches};
    memcpy(p.costs, costs.at, sizeof(p.costs));
    PP_TRY(pp_plan_read_program(&p, &q->plan));
    const struct pp_geometry *g = &q->plan->geometry;
    if (g->stages == p.stages && g->microbatches == p.microbatches)
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s was asked for %d stages and %d micro-batches, and printed a table of %d and "
                   "%d",
                   s->schedule, p.stages, p.microbatches, g->stages, g->microbatches);
}

static int from_options(const struct pp_cli_settings *settings, bool times,
                        const struct list lists[PLAN_COSTS], struct shape *s,
                        struct plan_request *q)
{
    for (int i = 0; i < settings->n; i++)
        PP_TRY(read_setting(&settings->items[i], s));
    bool runs_program =
        s->schedule && strncmp(s->schedule, PP_SCHEDULE_EXEC, strlen(PP_SCHEDULE_EXEC)) == 0;
    if (s->schedule && !runs_program && !pp_schedule_find(s->schedule))
        return fail_unknown(s->schedule);
    if (!s->schedule || s->g.stages == 0 || s->g.microbatches == 0)
        return fail_missing(settings);
    PP_TRY(runs_program ? from_program(lists, s, q) : build(s, times, q));
    PP_TAKE(bool, again, q->plan->n_virtual);
    if (s->again)
        PP_TRY(read_again(s->again, q->plan->n_virtual, again));
    s->g.again = again; /* while the plan is made */
    if (pp_schedule_fits(s->schedule))
        PP_TRY(fit_to_costs(lists, s, q));
    return s->again ? pp_plan_recompute(q->plan, again) : 0;
}

/* ---- tables and configs */

static int from_table(const char *path, struct pp_plan **out)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!f)
        return pp_fail_errno(0, "%s", path);
    int rc = pp_plan_read_csv(f, path, out);
    if (f != stdin)
        fclose(f);
    return rc;
}

/* The memory that the ranks of the config's run will take. */
static int predict(const struct pp_run *run, struct plan_request *q)
{
    const struct pp_layout *l = run->layout;
    struct pp_transport_caps caps = pp_run_caps(run);
    PP_ALLOC(q->bytes, l->stages);
    for (int r = 0; r < l->stages; r++) {
        struct pp_exec_spec spec = {.layout = l, .rank = r, .caps = caps};
        struct pp_exec_bytes bytes;
        PP_TRY(pp_exec_predict(&spec, &bytes));
        q->bytes[r] = bytes.total;
    }
    return 0;
}

/* The plan of a full batch, as it would run. */
static int from_run(const struct pp_run *run, bool times, const struct list lists[PLAN_COSTS],
                    struct shape *s, struct plan_request *q)
{
    pp_assert(run->layout != NULL);
    const struct pp_plan *plan = run->layout->plans[0].plan;
    if (plan->schedule) {
        struct pp_schedule_costs costs = s->g.costs;
        *s = (struct shape){.schedule = pp_schedule_name(plan->schedule), .g = plan->geometry};
        s->g.costs = costs;
        s->g.ticks = run->cfg->pipeline.costs.n > 0 ? run->cfg->pipeline.costs.at : NULL;
        s->g.again = run->layout->again;
        PP_TRY(build(s, times, q));
    } else {
        struct cost_words costs;
        write_costs(lists, &costs);
        PP_TRY(pp_layout_read_table(run->cfg, costs.at, &q->plan));
    }
    if (!plan->schedule && plan->geometry.coalesce > 1) {
        struct pp_plan *together = NULL;
        PP_TRY(pp_plan_coalesce(q->plan, plan->geometry.coalesce, &together));
        pp_plan_destroy(&q->plan);
        q->plan = together;
    }
    if (memchr(run->layout->again, true, (size_t)plan->n_virtual))
        PP_TRY(pp_plan_recompute(q->plan, run->layout->again));
    return plan->n_ties > 0 ? pp_plan_tie(q->plan, plan->ties, plan->n_ties) : 0;
}

static int from_config(const char *word, const struct pp_cli_settings *settings, bool times,
                       const struct list lists[PLAN_COSTS], struct shape *s, struct plan_request *q)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_OWN(pp_run_fini) struct pp_run run = {0};
    PP_TRY(pp_cli_load_config(word, settings, &cfg));
    PP_TRY(pp_cli_config_verdict(cfg, pp_run_check(cfg)));
    PP_TRY(pp_cli_look_verdict(cfg, pp_choose(cfg, PP_RUN_EXPLAIN, NULL)));
    const struct pp_schedule_ops *ops = pp_schedule_find(cfg->pipeline.schedule);
    struct pp_geometry g = {.stages = cfg->pipeline.stages,
                            .chunks = cfg->pipeline.chunks,
                            .microbatches = cfg->pipeline.microbatches};
    g.chunks = g.chunks == 0 && ops ? pp_schedule_default_chunks(ops) : g.chunks;
    PP_TRY(pp_plan_check_room(&g, times));
    PP_TRY(pp_cli_look_verdict(cfg, pp_run_prepare(cfg, PP_RUN_EXPLAIN, &run)));
    PP_TRY(from_run(&run, times, lists, s, q));
    return predict(&run, q);
}

/* Does a rank of a table hold more than so many micro-batches? */
static int check_cap(const char *path, double cap, const struct plan_request *q)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    int share = q->plan->geometry.chunks / q->plan->copies;
    PP_TRY(pp_sim_run(q->plan, &q->costs, false, &result));
    for (int r = 0; r < q->plan->geometry.stages; r++) {
        double holds = (double)result.peak[r] / share;
        if (holds > cap)
            return pp_fail(
                PP_ECONFIG,
                "%s: row %d holds %g micro-batches of activations, --memory-cap allows %g", path,
                r + 1, holds, cap);
    }
    return 0;
}

static int make(const struct plan_words *words, const struct pp_cli_settings *settings, bool times,
                struct list lists[PLAN_COSTS], struct plan_request *q)
{
    for (int i = 0; i < PLAN_COSTS; i++)
        if (words->costs[i])
            PP_TRY(read_list(options[i], words->costs[i], &lists[i]));
    PP_TRY(halve_b(lists));
    struct shape s = {.g.costs = {.f = mean(&lists[PLAN_COST_F], 1),
                                  .i = mean(&lists[PLAN_COST_I], 1),
                                  .w = mean(&lists[PLAN_COST_W], 1),
                                  .comm = mean(&lists[PLAN_COST_COMM], 0)}};
    if (words->config && words->csv)
        return pp_fail(PP_EUSAGE, "a CONFIG and --csv are two plans; give one of them");
    for (int i = 0; words->csv && i < settings->n; i++) {
        if (strcmp(settings->items[i].key, "pipeline.memory_cap") != 0)
            return pp_fail(PP_EUSAGE, "%s cannot be combined with --csv", settings->items[i].said);
        PP_TRY(read_number("memory-cap", settings->items[i].value, &s.g.memory_cap));
    }
    PP_TRY(words->csv      ? from_table(words->csv, &q->plan)
           : words->config ? from_config(words->config, settings, times, lists, &s, q)
                           : from_options(settings, times, lists, &s, q));
    PP_TRY(set_costs(lists, q));
    q->memory_cap = s.g.memory_cap;
    bool capped = words->csv && !words->par && q->memory_cap > 0;
    return capped ? check_cap(words->csv, q->memory_cap, q) : 0;
}

int plan_request_make(const struct plan_words *words, const struct pp_cli_settings *settings,
                      bool times, struct plan_request *out)
{
    struct list lists[PLAN_COSTS] = {{0}};
    int rc = make(words, settings, times, lists, out);
    for (int i = 0; i < PLAN_COSTS; i++)
        pp_free(lists[i].at);
    return rc;
}

void plan_request_fini(struct plan_request *q)
{
    pp_plan_destroy(&q->plan);
    pp_free(q->arrays);
    pp_free(q->transfer);
    pp_free(q->bytes);
}
