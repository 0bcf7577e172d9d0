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

/* The keys of a plan without a config, and of a table. */
#define SHAPE_KEYS                                                                                 \
    "pipeline.stages pipeline.chunks pipeline.microbatches pipeline.recompute train.coalesce "     \
    "pipeline.group pipeline.eager pipeline.memory_cap"
#define TABLE_KEYS "pipeline.memory_cap"

/* Reads the settings of a plan without a config into a config of defaults, which checks their
 * values. */
static int read_settings(struct plan_request *q, struct pp_config **out)
{
    const struct pp_cli_settings *settings = &q->asked->settings;
    PP_TRY(pp_config_load(NULL, NULL, 0, pp_cli_names(), out));
    for (int i = 0; i < settings->n; i++) {
        const struct pp_setting *s = &settings->items[i];
        if (q->asked->csv && !pp_has_word(TABLE_KEYS, s->key))
            return pp_fail(PP_EUSAGE, "%s cannot be combined with --csv", s->said);
        if (strcmp(s->key, "pipeline.schedule") == 0)
            q->schedule = s->value;
        else if (!pp_has_word(SHAPE_KEYS, s->key))
            return pp_fail(PP_EUSAGE, "%s %s needs a CONFIG", s->said,
                           strcmp(s->said, "--set") == 0 ? s->key : s->value);
        else if (pp_config_choose(*out, s->key, s->value) < 0)
            return pp_error_context("%s", s->said);
    }
    return 0;
}

static bool is_set(const struct pp_cli_settings *settings, const char *key)
{
    for (int i = 0; i < settings->n; i++)
        if (strcmp(settings->items[i].key, key) == 0)
            return true;
    return false;
}

/* Checks that a plan without a config has all settings that it needs. */
static int check_complete(const struct pp_cli_settings *settings)
{
    static const struct {
        const char *key, *what;
    } wanted[] = {{"pipeline.schedule", "a schedule (--schedule NAME)"},
                  {"pipeline.stages", "stages (--stages N)"},
                  {"pipeline.microbatches", "micro-batches (--microbatches M)"}};
    char missing[128] = "";
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (!is_set(settings, wanted[i].key))
            pp_text_add(missing, sizeof(missing), "%s%s", missing[0] ? " and " : "",
                        wanted[i].what);
    }
    if (settings->n == 0) {
        return pp_fail(PP_EUSAGE,
                       "name a schedule, or a config. For example: ppcli plan --schedule 1f1b "
                       "--stages 4 --microbatches 8, or: ppcli plan mnist.ini");
    }
    return missing[0] ? pp_fail(PP_EUSAGE, "a plan without a CONFIG also needs %s", missing) : 0;
}

static int fail_unknown(const char *name)
{
    if (strchr(name, '/') || pp_text_ends(name, ".csv")) {
        bool file = strncmp(name, PP_SCHEDULE_FILE, strlen(PP_SCHEDULE_FILE)) == 0;
        char word[2 * PP_PATH_MAX];
        return pp_fail(
            PP_EUSAGE,
            "unknown schedule '%s'; for a table use --csv %s here, or schedule = %s%s in "
            "a config",
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

/* Builds the plan again for the costs of its stages, if the order of its schedule depends on
 * costs. */
static int fit_to_costs(struct plan_request *q)
{
    const struct pp_cost_list *comm = &q->lists[PP_COST_COMM];
    for (int i = 1; i < comm->n && q->plan->schedule->proves; i++)
        if (comm->at[i] != comm->at[0])
            return pp_fail(PP_EUSAGE,
                           "%s proves steps whose transfers all take as long: give --cost-comm one "
                           "number, or take zb-fit, which is made for their mean",
                           q->schedule);
    PP_TRY(pp_stage_costs_set(q->plan, q->lists, &q->costs));
    return pp_plan_fit(&q->g, q->costs.f, q->g.costs.comm, &q->plan);
}

/* Finds the virtual stages that --recompute names. There is no model, so the virtual stages take
 * the place of its layers. */
static int find_recomputed(const char *text, int n_virtual, bool *stages)
{
    PP_TAKE(struct pp_layer, layers, n_virtual);
    PP_TAKE(int, numbers, n_virtual);
    const struct pp_model model = {.layers = layers, .n_layers = n_virtual};
    for (int s = 0; s < n_virtual; s++) {
        snprintf(layers[s].name, sizeof(layers[s].name), "%d", s);
        numbers[s] = s;
    }
    return pp_recompute_stages(&model, text, n_virtual, numbers, numbers, stages) == 0
               ? 0
               : pp_fail(PP_EUSAGE,
                         "--recompute without a CONFIG needs off, all, or stages from 0 to %d, as "
                         "in 0-1,3; not '%s'",
                         n_virtual - 1, text);
}

/* Builds the plan by running the program of --schedule exec:PROGRAM, without a config. */
static int from_program(struct plan_request *q)
{
    const char *word = q->schedule + strlen(PP_SCHEDULE_EXEC);
    char path[PP_PATH_MAX];
    char costs[4][PP_COST_TEXT_MAX];
    snprintf(path, sizeof(path), "%s%s", strchr(word, '/') ? "" : "./", word);
    struct pp_program p = {.path = path,
                           .stages = q->g.stages,
                           .chunks = q->g.chunks,
                           .microbatches = q->g.microbatches};
    pp_cost_lists_write(q->lists, costs, p.costs);
    PP_TRY(pp_plan_read_program(&p, &q->plan));
    const struct pp_geometry *g = &q->plan->geometry;
    if (g->stages == p.stages && g->microbatches == p.microbatches)
        return 0;
    return pp_fail(PP_EFORMAT,
                   "%s was asked for %d stages and %d micro-batches, and printed a table of %d and "
                   "%d",
                   q->schedule, p.stages, p.microbatches, g->stages, g->microbatches);
}

/* Sets the geometry, which is what a schedule is made for, to the values of the config. */
static void read_geometry(const struct pp_config *cfg, struct pp_geometry *g)
{
    g->stages = cfg->pipeline.stages;
    g->chunks = cfg->pipeline.chunks;
    g->microbatches = cfg->pipeline.microbatches;
    g->coalesce = cfg->train.coalesce;
#define PP_KEY(section, TYPE, k, ...) g->k = cfg->section.k;
#include "ppcli/base/keys_schedule.def"
#undef PP_KEY
}

static int from_options(struct plan_request *q)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    const char *recompute;
    PP_TRY(read_settings(q, &cfg));
    read_geometry(cfg, &q->g);
    recompute = cfg->pipeline.recompute;
    bool runs_program =
        q->schedule && strncmp(q->schedule, PP_SCHEDULE_EXEC, strlen(PP_SCHEDULE_EXEC)) == 0;
    if (q->schedule && !runs_program && !pp_schedule_find(q->schedule))
        return fail_unknown(q->schedule);
    PP_TRY(check_complete(&q->asked->settings));
    PP_TRY(runs_program ? from_program(q) : build_plan(q));
    PP_TAKE(bool, stages, q->plan->n_virtual);
    PP_TRY(find_recomputed(recompute, q->plan->n_virtual, stages));
    q->g.recompute = stages; /* while the plan is made */
    const struct pp_schedule_ops *ops = pp_schedule_find(q->schedule);
    int rc = ops && ops->fits ? fit_to_costs(q) : 0;
    q->g.recompute = NULL;
    return rc == 0 && recompute[0] ? pp_plan_add_recompute(q->plan, stages) : rc;
}

/* ---- tables and configs */

static int from_table(struct plan_request *q)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    const char *path = q->asked->csv;
    PP_TRY(read_settings(q, &cfg));
    if (q->asked->settings.n > 0)
        q->g.memory_cap = cfg->pipeline.memory_cap;
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!f)
        return pp_fail_errno(0, "%s", path);
    int rc = pp_plan_read_csv(f, path, &q->plan);
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
    char costs[4][PP_COST_TEXT_MAX];
    const char *words[4];
    pp_cost_lists_write(q->lists, costs, words);
    PP_TRY(pp_run_plan(&run, &q->g.costs, words, &q->plan));
    const struct pp_plan *plan = run.layout->plans[0].plan;
    q->g.memory_cap = plan->schedule ? plan->geometry.memory_cap : 0;
    PP_TAKE(struct pp_exec_bytes, bytes, g.stages);
    PP_TRY(pp_run_bytes(&run, run.layout, g.stages, bytes));
    PP_ALLOC(q->bytes, g.stages);
    for (int r = 0; r < g.stages; r++)
        q->bytes[r] = bytes[r].total;
    return 0;
}

double find_plan_peak(const struct pp_plan *plan, const struct pp_sim_result *result, int *rank)
{
    int p = plan->geometry.stages, most = 0;
    int share = plan->geometry.chunks / plan->copies;
    for (int r = 1; r < p; r++)
        most = result->peak[r] > result->peak[most] ? r : most;
    *rank = most;
    return (double)result->peak[most] / share;
}

int plan_request_make(const struct plan_asked *asked, struct plan_request *q)
{
    q->asked = asked;
    PP_TRY(pp_cost_lists_read(asked->costs, q->lists));
    q->g.costs = pp_cost_means(q->lists);
    if (asked->config && asked->csv)
        return pp_fail(PP_EUSAGE, "a CONFIG and --csv are two plans; give one of them");
    PP_TRY(asked->csv ? from_table(q) : asked->config ? from_config(q) : from_options(q));
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
