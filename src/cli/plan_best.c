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
#include "ppcli/text.h"
#include "start.h"
#include "command.h"

#define MEASURE_SECONDS 4.0
#define CHECK_SECONDS 3.0 /* of each candidate */

#define SHAPES_LISTED 64

/* The first ones, the config as it is and one stage with all cores. */
static int check(struct plan_best_result *s)
{
    enum pp_log_level before = pp_log_level();
    const struct pp_candidate *items[PLAN_BEST_SHOWN + 2];
    struct pp_checked out[PLAN_BEST_SHOWN + 2] = {0};
    int n = s->n_checked < s->best.n ? s->n_checked : s->best.n;
    bool own = n > 0 && s->best.as_is.time.step > 0 &&
               (s->spec.memory == 0 || s->best.as_is.peak_bytes <= s->spec.memory);
    bool one = n > 0 && s->best.one.time.step > 0 && !s->best.one.over;
    struct pp_bench_candidates spec = {
        .best = &s->spec, .costs = s->costs, .items = items, .seconds = CHECK_SECONDS};
    for (int i = 0; i < n; i++) /* it is one of the first */
        one = one && !pp_best_is(&s->best.items[i], 1, 1, s->best.one.threads);
    spec.n = n + own + one;
    for (int i = 0; i < spec.n; i++)
        items[i] = i < n ? &s->best.items[i] : i < n + own ? &s->best.as_is : &s->best.one;
    pp_log_info(
        "running the first %d%s%s in turns, %g s each, or 6 to 22 steps where they are long", n,
        own ? ", this config" : "", one ? ", one stage" : "", CHECK_SECONDS);
    pp_log_set_level(PP_LOG_QUIET);
    int rc = pp_bench_candidates(&spec, out);
    pp_log_set_level(before);
    s->n_checked = n;
    memcpy(s->checked, out, (size_t)n * sizeof(*out));
    if (own)
        s->as_is = out[n];
    if (one)
        s->one = out[n + own];
    return rc;
}

int plan_best_first(const struct plan_best_result *s)
{
    int first = 0;
    for (int i = 1; i < s->n_checked; i++)
        if (s->checked[i].measured.step < s->checked[first].measured.step)
            first = i;
    if (s->one.measured.step > 0 && s->one.measured.step < s->checked[first].measured.step)
        for (int i = s->n_checked; i < s->best.n; i++)
            if (pp_best_is(&s->best.items[i], 1, 1, s->best.one.threads))
                return i;
    return first;
}

const struct pp_checked *plan_best_ran(const struct plan_best_result *s, int i)
{
    return i < s->n_checked || s->n_checked == 0 ? &s->checked[i] : &s->one;
}

bool plan_best_leads(const struct pp_best *b, int i)
{
    const struct pp_candidate *c = &b->items[i];
    for (int k = 0; k < i; k++)
        if (b->items[k].stages == c->stages && b->items[k].replicas == c->replicas)
            return false;
    return true;
}

bool plan_best_keeps(const struct plan_best_result *s)
{
    double own = s->as_is.measured.step;
    return own > 0 && own <= plan_best_ran(s, plan_best_first(s))->measured.step;
}

static int explain(struct plan_best_result *s)
{
    struct pp_best *b = &s->best;
    for (int i = 0; i < b->n; i++) {
        if (i >= PLAN_BEST_SHOWN && !plan_best_leads(b, i))
            continue;
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

/* How many values the command line gives a key; 0: it does not. */
static int count_values(const struct pp_cli_settings *settings, const char *key)
{
    int n = 0;
    for (int i = 0; i < settings->n; i++) {
        if (strcmp(settings->items[i].key, key) != 0)
            continue;
        n = 1;
        for (const char *p = settings->items[i].value; (p = strchr(p, ',')) != NULL; p++)
            n++;
    }
    return n;
}

/* How cores may be divided. Stages and replicas that the command line names are fixed, and so are
 * those of processes and devices, and of ranks that differ; then of the other one all that fit. */
static int list_shapes(const struct sweep *sweep, const struct pp_cli_settings *settings,
                       struct plan_best_result *s)
{
    const struct pp_config *cfg = s->spec.cfg;
    bool device = pp_backend_choice_of(cfg).ops->own_memory;
    bool same = s->spec.links || device || cfg->pipeline.slower.n > 0;
    bool p = same || count_values(settings, "pipeline.stages") > 0;
    bool d = same || count_values(settings, "pipeline.replicas") > 0;
    s->spec.one_threads = pp_best_open_threads(cfg) && !s->spec.links ? pp_best_cores(&s->spec) : 0;
    for (int i = 0; i < (p || d ? sweep->n : 1); i++) {
        const struct pp_config *c = sweep->configs[i];
        const struct pp_best_shape asked = {p ? c->pipeline.stages : 0,
                                            d ? c->pipeline.replicas : 0, 0};
        PP_TRY(pp_best_shapes(&s->spec, &asked, &s->shapes, &s->spec.n_shapes));
    }
    s->spec.shapes = s->shapes;
    s->ranks = cfg->pipeline.stages * cfg->pipeline.replicas; /* of the config as it is */
    for (int i = 0; i < s->spec.n_shapes; i++) {
        int ranks = s->shapes[i].stages * s->shapes[i].replicas;
        s->ranks = ranks > s->ranks ? ranks : s->ranks;
    }
    return 0;
}

static int search(const struct sweep *sweep, const struct pp_cli_settings *settings,
                  const struct plan_best *how, bool json, struct plan_best_result *s)
{
    struct pp_config *cfg = sweep->configs[0];
    enum pp_run_need need = how->check ? PP_RUN_REAL : PP_RUN_EXPLAIN;
    for (int i = 0; i < sweep->n; i++)
        if (pp_config_problem_count(sweep->configs[i]) > 0)
            return pp_cli_config_verdict(sweep->configs[i], PP_ECONFIG);
    s->spec.cfg = cfg;
    s->spec.cores = how->cores > 0 ? how->cores : 0;
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
    PP_TRY(list_shapes(sweep, settings, s));
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

/* The stages and replicas that the config names by itself. */
static int find_own(const char *word, const struct pp_cli_settings *settings,
                    struct pp_best_shape *out)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    struct pp_setting items[PP_CLI_SETTINGS_MAX];
    char path[PP_PATH_MAX];
    int n = 0;
    for (int i = 0; i < settings->n; i++)
        if (!pp_has_word("pipeline.stages pipeline.replicas", settings->items[i].key))
            items[n++] = settings->items[i];
    PP_TRY(pp_cli_find_config(word, path));
    int rc = pp_config_load(path, items, n, pp_cli_names(), &cfg);
    if (rc < 0 && rc != PP_ECONFIG)
        return rc;
    if (rc == 0)
        *out = (struct pp_best_shape){cfg->pipeline.stages, cfg->pipeline.replicas,
                                      pp_backend_choice_of(cfg).threads};
    pp_error_clear();
    return 0;
}

/* --stages and --replicas may be lists; then every combination is a config of its own, as in bench. */
static int load(const char *word, const struct pp_cli_settings *settings, struct sweep *out,
                struct pp_best_shape *own)
{
    int p = count_values(settings, "pipeline.stages");
    int d = count_values(settings, "pipeline.replicas"), n = (p > 1 ? p : 1) * (d > 1 ? d : 1);
    if (n == 1) {
        out->configs = pp_alloc(1, sizeof(*out->configs));
        out->n = 1;
        return out->configs ? pp_cli_load_config(word, settings, &out->configs[0]) : PP_ERESOURCE;
    }
    if (strcmp(word, "-") == 0)
        return pp_fail(PP_EUSAGE, "lists load their config once for each value: give a file");
    PP_TRY(sweep_load(word, settings, out));
    if (out->n != n || n > SHAPES_LISTED)
        return pp_fail(PP_EUSAGE,
                       "--best takes lists of at most %d --stages x --replicas, and no other list",
                       SHAPES_LISTED);
    return find_own(word, settings, own);
}

int plan_best(const char *word, const struct pp_cli_settings *settings, const struct plan_best *how,
              const char *format)
{
    PP_OWN(sweep_fini) struct sweep sweep = {0};
    struct plan_best_result s = {.word = word};
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
    int rc = load(word, settings, &sweep, &s.spec.own);
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
            rc = search(&sweep, settings, how, json, &s);
        rc = how->check ? pp_cli_config_verdict(cfg, rc) : pp_cli_look_verdict(cfg, rc);
    }
    pp_best_fini(&s.best);
    pp_costs_destroy(&s.costs);
    pp_free(s.links.host);
    pp_free(s.shapes);
    pp_model_destroy(&s.model);
    return rc;
}
