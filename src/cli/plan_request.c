/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a proved plan, with the costs of its stages, of the words of a command line. */
#include "plan.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/conf/cluster.h"
#include "ppcli/sched/plan.h"
#include "ppcli/base/base.h"
#include "ppcli/plan/search.h"

/* ---- shapes */

/* Without a config only the keys that shape a schedule mean something. */
static int read_setting(const struct pp_setting *s, struct plan_request *q)
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
        q->recompute = s->value;
        return 0;
    }
    if (strcmp(s->key, "pipeline.memory_cap") == 0)
        return pp_cost_number("memory-cap", s->value, &q->g.memory_cap);
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
    if (strchr(name, '/') || pp_text_ends(name, ".csv")) {
        bool file = strncmp(name, PP_SCHEDULE_FILE, strlen(PP_SCHEDULE_FILE)) == 0;
        char word[2 * PP_PATH_MAX];
        return pp_fail(
            PP_EUSAGE,
            "unknown schedule '%s'; a table is --csv %s here, and schedule = %s%s in a "
            "config",
            name, pp_text_shell(file ? name + strlen(PP_SCHEDULE_FILE) : name, word, sizeof(word)),
            file ? "" : PP_SCHEDULE_FILE, name);
    }
    struct pp_did_you_mean hint = pp_did_you_mean(name, pp_schedule_names());
    return pp_fail(PP_EUSAGE, "unknown schedule '%s'%s", name,
                   hint.s[0] ? hint.s : "; ppcli keys pipeline.schedule lists them");
}

static int build_plan(struct plan_request *q)
{
    if (q->g.chunks == 0)
        q->g.chunks = pp_schedule_default_chunks(pp_schedule_find(q->schedule));
    PP_TRY(pp_plan_check_room(&q->g, q->times));
    return pp_plan_build(q->schedule, &q->g, &q->plan);
}

/* A plan whose order is made for its costs is built again, for those. */
static int fit_to_costs(struct plan_request *q)
{
    PP_TRY(pp_stage_costs_set(q->plan, q->lists, &q->costs));
    int n = q->plan->n_virtual;
    PP_TAKE(double, times, 3 * (size_t)n + 1);
    PP_TAKE(int64_t, ticks, 3 * (size_t)n + 1);
    for (int i = 0; i < 3 * n; i++)
        times[i] = q->costs.arrays[i % 3 * n + i / 3];
    times[3 * (size_t)n] = pp_cost_mean(&q->lists[PP_COST_COMM], 0);
    pp_schedule_ticks(times, n, ticks);
    q->g.ticks = ticks;
    pp_plan_destroy(&q->plan);
    int rc = pp_plan_build(q->schedule, &q->g, &q->plan);
    q->g.ticks = NULL;
    return rc;
}

/* all, or virtual stages: "0 2-3". */
static int parse_recompute(const char *text, int n_virtual, bool *stages)
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

/* --schedule exec:PROGRAM without a config. */
static int from_program(struct plan_request *q)
{
    const char *word = q->schedule + strlen(PP_SCHEDULE_EXEC);
    char path[PP_PATH_MAX];
    struct pp_cost_words costs;
    pp_cost_lists_write(q->lists, &costs);
    snprintf(path, sizeof(path), "%s%s", strchr(word, '/') ? "" : "./", word);
    struct pp_program p = {.path = path,
                           .stages = q->g.stages,
                           .chunks = q->g.chunks,
                           .microbatches = q->g.microbatches};
    memcpy(p.costs, costs.at, sizeof(p.costs));
    PP_TRY(pp_plan_read_program(&p, &q->plan));
    const struct pp_geometry *g = &q->plan->geometry;
    if (g->stages == p.stages && g->microbatches == p.microbatches)
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s was asked for %d stages and %d micro-batches, and printed a table of %d and "
                   "%d",
                   q->schedule, p.stages, p.microbatches, g->stages, g->microbatches);
}

static int from_options(struct plan_request *q)
{
    const struct pp_cli_settings *settings = &q->asked->settings;
    for (int i = 0; i < settings->n && !q->is_shaped; i++)
        PP_TRY(read_setting(&settings->items[i], q));
    bool runs_program =
        q->schedule && strncmp(q->schedule, PP_SCHEDULE_EXEC, strlen(PP_SCHEDULE_EXEC)) == 0;
    if (q->schedule && !runs_program && !pp_schedule_find(q->schedule))
        return fail_unknown(q->schedule);
    if (!q->schedule || q->g.stages == 0 || q->g.microbatches == 0)
        return fail_missing(settings);
    PP_TRY(runs_program ? from_program(q) : build_plan(q));
    PP_TAKE(bool, recompute, q->plan->n_virtual);
    if (q->recompute)
        PP_TRY(parse_recompute(q->recompute, q->plan->n_virtual, recompute));
    q->g.recompute = recompute; /* while the plan is made */
    int rc = pp_schedule_fits(q->schedule) ? fit_to_costs(q) : 0;
    q->g.recompute = NULL;
    return rc == 0 && q->recompute ? pp_plan_recompute(q->plan, recompute) : rc;
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

static int from_config(struct plan_request *q)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_OWN(pp_run_fini) struct pp_run run = {0};
    PP_TRY(pp_cli_load_config(q->asked->config, &q->asked->settings, &cfg));
    PP_TRY(pp_cli_config_verdict(cfg, pp_run_check(cfg)));
    PP_TRY(pp_cli_look_verdict(cfg, pp_choose(cfg, PP_RUN_EXPLAIN, NULL)));
    const struct pp_schedule_ops *ops = pp_schedule_find(cfg->pipeline.schedule);
    struct pp_geometry g = {.stages = cfg->pipeline.stages,
                            .chunks = cfg->pipeline.chunks,
                            .microbatches = cfg->pipeline.microbatches};
    g.chunks = g.chunks == 0 && ops ? pp_schedule_default_chunks(ops) : g.chunks;
    PP_TRY(pp_plan_check_room(&g, q->times));
    PP_TRY(pp_cli_look_verdict(cfg, pp_run_prepare(cfg, PP_RUN_EXPLAIN, &run)));
    struct pp_cost_words words;
    pp_cost_lists_write(q->lists, &words);
    PP_TRY(pp_run_plan(&run, &q->g.costs, words.at, &q->plan));
    const struct pp_plan *plan = run.layout->plans[0].plan;
    q->g.memory_cap = plan->schedule ? plan->geometry.memory_cap : 0;
    PP_TAKE(struct pp_exec_bytes, bytes, g.stages);
    PP_TRY(pp_run_bytes(&run, run.layout, g.stages, bytes));
    PP_ALLOC(q->bytes, g.stages);
    for (int r = 0; r < g.stages; r++)
        q->bytes[r] = bytes[r].total;
    return 0;
}

double plan_request_peak(const struct plan_request *q, const struct pp_sim_result *result,
                         int *rank)
{
    int p = q->plan->geometry.stages, most = 0;
    int share = q->plan->geometry.chunks / q->plan->copies;
    for (int r = 1; r < p; r++)
        most = result->peak[r] > result->peak[most] ? r : most;
    *rank = most;
    return (double)result->peak[most] / share;
}

/* The options that a table leaves. */
static int read_cap(struct plan_request *q)
{
    const struct pp_cli_settings *settings = &q->asked->settings;
    for (int i = 0; i < settings->n; i++) {
        if (strcmp(settings->items[i].key, "pipeline.memory_cap") != 0)
            return pp_fail(PP_EUSAGE, "%s cannot be combined with --csv", settings->items[i].said);
        PP_TRY(pp_cost_number("memory-cap", settings->items[i].value, &q->g.memory_cap));
    }
    return 0;
}

int plan_request_make(const struct plan_asked *asked, struct plan_request *q)
{
    bool is_table = asked->csv && !q->is_shaped;
    q->asked = asked;
    for (int i = 0; i < PP_COSTS; i++)
        if (asked->costs[i])
            PP_TRY(pp_cost_list_read(i, asked->costs[i], &q->lists[i]));
    PP_TRY(pp_cost_lists_halve(q->lists));
    q->g.costs = (struct pp_schedule_costs){.f = pp_cost_mean(&q->lists[PP_COST_F], 1),
                                            .i = pp_cost_mean(&q->lists[PP_COST_I], 1),
                                            .w = pp_cost_mean(&q->lists[PP_COST_W], 1),
                                            .comm = pp_cost_mean(&q->lists[PP_COST_COMM], 0)};
    if (asked->config && asked->csv)
        return pp_fail(PP_EUSAGE, "a CONFIG and --csv are two plans; give one of them");
    PP_TRY(is_table ? read_cap(q) : 0);
    PP_TRY(is_table        ? from_table(asked->csv, &q->plan)
           : asked->config ? from_config(q)
                           : from_options(q));
    return pp_stage_costs_set(q->plan, q->lists, &q->costs);
}

void plan_request_fini(struct plan_request *q)
{
    for (int i = 0; i < PP_COSTS; i++)
        pp_free(q->lists[i].at);
    pp_plan_destroy(&q->plan);
    pp_stage_costs_fini(&q->costs);
    pp_free(q->bytes);
}
