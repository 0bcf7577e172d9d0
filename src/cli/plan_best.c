/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan CONFIG --best: measure this machine, search, and show the fastest ways to run the
 * config, what limits the first of them, and the lines that reproduce it.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/bench.h"
#include "ppcli/log.h"
#include "start.h"
#include "command.h"

#define MEASURE_SECONDS 4.0
#define CHECK_SECONDS 3.0 /* of each candidate */

#define STAGES_LISTED 64

/* The first ones, and the config as it is. */
static int check(struct plan_best_result *s)
{
    enum pp_log_level before = pp_log_level();
    const struct pp_candidate *items[PLAN_BEST_SHOWN + 1];
    struct pp_checked out[PLAN_BEST_SHOWN + 1] = {0};
    int n = s->n_checked < s->best.n ? s->n_checked : s->best.n;
    bool own = n > 0 && s->best.as_is.time.step > 0 &&
               (s->spec.memory == 0 || s->best.as_is.peak_bytes <= s->spec.memory);
    struct pp_bench_candidates spec = {.best = &s->spec,
                                       .costs = s->costs,
                                       .items = items,
                                       .n = n + own,
                                       .seconds = CHECK_SECONDS};
    for (int i = 0; i < spec.n; i++)
        items[i] = i < n ? &s->best.items[i] : &s->best.as_is;
    pp_log_info("running the first %d%s in turns, %g s each, or 6 to 22 steps where they are long",
                n, own ? " and this config" : "", CHECK_SECONDS);
    pp_log_set_level(PP_LOG_QUIET);
    int rc = pp_bench_candidates(&spec, out);
    pp_log_set_level(before);
    s->n_checked = n;
    memcpy(s->checked, out, (size_t)n * sizeof(*out));
    if (own)
        s->as_is = out[n];
    return rc;
}

int plan_best_first(const struct plan_best_result *s)
{
    int first = 0;
    for (int i = 1; i < s->n_checked; i++)
        if (s->checked[i].measured.step < s->checked[first].measured.step)
            first = i;
    return first;
}

bool plan_best_keeps(const struct plan_best_result *s)
{
    double own = s->as_is.measured.step;
    return own > 0 && own <= s->checked[plan_best_first(s)].measured.step;
}

static int explain(struct plan_best_result *s)
{
    struct pp_best *b = &s->best;
    for (int i = 0; i < b->n && i < PLAN_BEST_SHOWN; i++) {
        char *advice = i == plan_best_first(s) ? s->advice : NULL;
        PP_TRY(pp_best_explain(&s->spec, s->costs, &b->items[i], advice));
    }
    if (b->as_is.time.step > 0)
        PP_TRY(pp_best_explain(&s->spec, s->costs, &b->as_is, NULL));
    return b->one.time.step > 0 ? pp_best_explain(&s->spec, s->costs, &b->one, NULL) : 0;
}

static int show(struct plan_best_result *s, const struct plan_best *how, bool json)
{
    const struct pp_best *b = &s->best;
    if (s->n_checked > 0)
        PP_TRY(check(s));
    PP_TRY(explain(s));
    if (json)
        plan_best_json(s);
    else
        PP_TRY(plan_best_text(s));
    if (b->n == 0 && b->too_large > 0) {
        char limit[48];
        const struct pp_config *cfg = s->spec.cfg;
        double moments = pp_optimizer_moments(cfg->train.optimizer);
        double fixed = (double)s->model->n_floats * sizeof(float) / b->smallest.stages *
                       (2 + moments / (cfg->train.zero > 0 ? cfg->pipeline.replicas : 1));
        snprintf(limit, sizeof(limit), "run.memory = %zu", s->spec.memory);
        return pp_fail(PP_ECONFIG,
                       "no shape can run within %s%s: the smallest found holds %.2f MiB in a "
                       "rank (%s, %d stages, %d micro-batches): --memory %zuKi fits it; of "
                       "parameters, gradients and optimizer state alone each rank has %.2f MiB on "
                       "average; more stages, a smaller batch or narrower layers need less",
                       how->memory ? "--memory " : "", how->memory ? how->memory : limit,
                       (double)b->smallest.peak_bytes / PLAN_BEST_MIB, b->smallest.schedule,
                       b->smallest.stages, b->smallest.microbatches,
                       b->smallest.peak_bytes / 1024 + 1, fixed / PLAN_BEST_MIB);
    }
    if (b->n > 0)
        return 0;
    if (b->why[0])
        return pp_fail(PP_ECONFIG, "no shape can run: %s", b->why);
    return pp_fail(PP_ECONFIG,
                   "no shape can run: stages are at most the %d layers, and each of %d replicas "
                   "has a sample of the batch of %d for every micro-batch",
                   s->model->n_layers, s->spec.cfg->pipeline.replicas, s->batch);
}

static int search(const struct sweep *sweep, const struct plan_best *how, bool json,
                  struct plan_best_result *s)
{
    struct pp_config *cfg = sweep->configs[0];
    enum pp_run_need need = how->check ? PP_RUN_REAL : PP_RUN_EXPLAIN;
    int stages[STAGES_LISTED];
    for (int i = 0; i < sweep->n; i++) {
        if (pp_config_problem_count(sweep->configs[i]) > 0)
            return pp_cli_config_verdict(sweep->configs[i], PP_ECONFIG);
        stages[i] = sweep->configs[i]->pipeline.stages;
        int ranks = stages[i] * cfg->pipeline.replicas;
        s->ranks = ranks > s->ranks ? ranks : s->ranks;
    }
    s->spec.cfg = cfg;
    s->spec.stages = stages;
    s->spec.n_stages = sweep->n;
    s->spec.cuts = s->spec.recompute = s->spec.coalesce = true;
    s->spec.memory = s->spec.memory > 0 ? s->spec.memory : (size_t)cfg->run.memory;
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TRAIN, &s->spec.train_n));
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TEST, &s->spec.test_n));
    PP_TRY(pp_run_model(cfg, &s->model));
    s->spec.model = s->model;
    s->spec.all_m = !pp_model_mixes_samples(s->model); /* or it would be another training */
    s->batch = cfg->train.batch_size;
    s->batch = s->spec.train_n < s->batch ? s->spec.train_n : s->batch;
    s->spec.links = s->links.host ? &s->links : NULL;
    s->spec.places = s->links.far.measured;
    PP_TRY(pp_best_find(&s->spec, cfg, MEASURE_SECONDS, &s->costs, &s->best));
    return show(s, how, json);
}

/* Under mpirun rank 0 searches; the others help to measure what is between them. */
static int measure_links(const struct sweep *sweep, struct plan_best_result *s, bool *out_searches)
{
    PP_OWN(pp_transport_destroy) struct pp_transport *tp = NULL;
    char *same;
    PP_TRY(pp_transport_open_world(&tp));
    int rc = start_same(sweep->configs, sweep->n, &same);
    rc = pp_transport_same(tp, rc, same);
    free(same);
    PP_TRY(rc);
    for (int i = 0; rc == 0 && i < sweep->n; i++) {
        int ranks = sweep->configs[i]->pipeline.stages * sweep->configs[i]->pipeline.replicas;
        if (ranks > tp->size || (i == 0 && sweep->n == 1 && ranks != tp->size)) {
            rc = pp_fail(PP_EUSAGE, "%d processes, but %d stages and %d replicas need %d", tp->size,
                         sweep->configs[i]->pipeline.stages, sweep->configs[i]->pipeline.replicas,
                         ranks);
        }
    }
    *out_searches = tp->rank == 0;
    PP_TRY(pp_transport_agree(tp, rc));
    return pp_links_measure(tp, &s->links);
}

/* The stages that the config names by itself. */
static int find_own_stages(const char *word, const struct pp_cli_settings *settings, int *out)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    struct pp_setting items[PP_CLI_SETTINGS_MAX];
    char path[PP_PATH_MAX];
    int n = 0;
    for (int i = 0; i < settings->n; i++)
        if (strcmp(settings->items[i].key, "pipeline.stages") != 0)
            items[n++] = settings->items[i];
    PP_TRY(pp_cli_find_config(word, path));
    int rc = pp_config_load(path, items, n, pp_cli_names(), &cfg);
    if (rc < 0 && rc != PP_ECONFIG)
        return rc;
    *out = rc == 0 ? cfg->pipeline.stages : 0;
    pp_error_clear();
    return 0;
}

/* --stages may be a list; then every number is a config of its own, as in bench. */
static int load(const char *word, const struct pp_cli_settings *settings, struct sweep *out,
                int *own_stages)
{
    int n = 1;
    for (int i = 0; i < settings->n; i++) {
        const char *comma = settings->items[i].value;
        if (strcmp(settings->items[i].key, "pipeline.stages") == 0)
            for (n = 1; (comma = strchr(comma, ',')) != NULL; comma++)
                n++;
    }
    if (n > 1) {
        if (strcmp(word, "-") == 0) {
            return pp_fail(PP_EUSAGE,
                           "a list of --stages loads its config once for each: give a file");
        }
        PP_TRY(sweep_load(word, settings, out));
        if (out->n != n || n > STAGES_LISTED) {
            return pp_fail(PP_EUSAGE,
                           "--best takes a list of at most %d --stages, and no other list",
                           STAGES_LISTED);
        }
        return find_own_stages(word, settings, own_stages);
    }
    out->configs = pp_alloc(1, sizeof(*out->configs));
    out->n = 1;
    return out->configs ? pp_cli_load_config(word, settings, &out->configs[0]) : PP_ERESOURCE;
}

int plan_best(const char *word, const struct pp_cli_settings *settings, const struct plan_best *how,
              const char *format)
{
    PP_OWN(sweep_fini) struct sweep sweep = {0};
    struct plan_best_result s = {0};
    bool json = strcmp(format, "json") == 0;
    start_others = START_JOIN;
    if (!how->best) {
        return pp_fail(PP_EUSAGE, "--memory is for --best: ppcli plan CONFIG --best --memory %s",
                       how->memory);
    }
    if (!json && strcmp(format, "grid") != 0) {
        return pp_fail(PP_EUSAGE, "--best prints a table for people, or --format json, not '%s'",
                       format);
    }
    if (!word) {
        return pp_fail(PP_EUSAGE,
                       "--best needs a config. For example: ppcli plan mnist.ini --best");
    }
    if (how->check) {
        char *end = NULL;
        bool number = strcmp(how->check, "auto") != 0;
        long n = number ? strtol(how->check, &end, 10) : PLAN_BEST_CHECKED;
        if (n < 1 || n > PLAN_BEST_SHOWN || (number && *end)) {
            return pp_fail(PP_EUSAGE, "--check wants how many plans to run, 1 to %d, not '%s'",
                           PLAN_BEST_SHOWN, how->check);
        }
        s.n_checked = (int)n;
    }
    if (how->memory) {
        if (!pp_bytes_parse(how->memory, &s.spec.memory))
            return pp_fail(PP_EUSAGE, "--memory wants " PP_BYTES_FORMS ", not '%s'", how->memory);
    }
    int rc = load(word, settings, &sweep, &s.spec.own_stages);
    if (rc == 0) {
        struct pp_config *cfg = sweep.configs[0];
        bool searches = true;
        rc = start_check(cfg);
        rc = rc < 0 ? rc : pp_run_check(cfg);
        bool starts = cfg->run.hosts[0] && !pp_mpi_used(cfg);
        cfg->run.rank_order = PP_ORDER_STAGES; /* what the search compares with */
        if (rc == 0 && how->check && (starts || pp_mpi_used(cfg)))
            rc = pp_fail(PP_EUSAGE, "--check runs the ranks as threads of this machine, without "
                                    "hosts: leave it out under mpirun and with --hosts, and try "
                                    "the section that --best prints with ppcli train");
        else if (rc == 0 && starts)
            rc = pp_launch_mpirun(cfg, word, sweep_ranks(&sweep));
        else if (rc == 0 && pp_mpi_used(cfg))
            rc = measure_links(&sweep, &s, &searches);
        if (rc == 0 && searches && !starts)
            rc = search(&sweep, how, json, &s);
        rc = how->check ? pp_cli_config_verdict(cfg, rc) : pp_cli_look_verdict(cfg, rc);
    }
    pp_best_fini(&s.best);
    pp_costs_destroy(&s.costs);
    pp_free(s.links.host);
    pp_model_destroy(&s.model);
    return rc;
}
