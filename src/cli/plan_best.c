/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan CONFIG --best: measure this machine, search, and show the fastest ways to run the
 * config, what limits the first of them, and the lines that reproduce it.
 */
#include "plan.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/bench/bench.h"
#include "ppcli/show/results.h"
#include "ppcli/base/base.h"

#define CHECKED 3 /* --check without a number */
#define SHAPES_LISTED 64

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

/* Under mpirun rank 0 searches; the others help to measure what is between them. */
static int measure_links(const struct pp_sweep *sweep, struct pp_best_result *s, bool *out_searches)
{
    PP_OWN(pp_transport_destroy) struct pp_transport *tp = NULL;
    char *same;
    PP_TRY(pp_transport_open_world(&tp));
    int rc = pp_start_same(sweep->configs, sweep->n, pp_cli_given(), &same);
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
static int find_own(const struct plan_asked *a, struct pp_division *out)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    struct pp_setting items[PP_CLI_SETTINGS_MAX];
    char path[PP_PATH_MAX];
    int n = 0;
    for (int i = 0; i < a->settings.n; i++)
        if (!pp_has_word("pipeline.stages pipeline.replicas", a->settings.items[i].key))
            items[n++] = a->settings.items[i];
    PP_TRY(pp_cli_find_config(a->config, path));
    int rc = pp_config_load(path, items, n, pp_cli_names(), &cfg);
    if (rc < 0 && rc != PP_ECONFIG)
        return rc;
    if (rc == 0)
        *out = pp_division_shape(cfg);
    pp_error_clear();
    return 0;
}

/* --stages and --replicas may be lists; then every combination is a config of its own, as in bench. */
static int load(const struct plan_asked *a, struct pp_sweep *out, struct pp_division *own)
{
    int p = count_values(&a->settings, "pipeline.stages");
    int d = count_values(&a->settings, "pipeline.replicas"), n = (p > 1 ? p : 1) * (d > 1 ? d : 1);
    if (n == 1) {
        out->configs = pp_alloc(1, sizeof(*out->configs));
        out->n = 1;
        return out->configs ? pp_cli_load_config(a->config, &a->settings, &out->configs[0])
                            : PP_ERESOURCE;
    }
    if (strcmp(a->config, "-") == 0)
        return pp_fail(PP_EUSAGE, "lists load their config once for each value: give a file");
    PP_TRY(pp_cli_load_sweep(a->config, &a->settings, out));
    if (out->n != n || n > SHAPES_LISTED)
        return pp_fail(PP_EUSAGE,
                       "--best takes lists of at most %d --stages x --replicas, and no other list",
                       SHAPES_LISTED);
    return find_own(a, own);
}

static int find_best(const struct pp_sweep *sweep, const struct plan_asked *a, bool json,
                     struct pp_best_result *s)
{
    struct pp_best_asked asked = {.configs = sweep->configs,
                                  .n = sweep->n,
                                  .stages = count_values(&a->settings, "pipeline.stages") > 0,
                                  .replicas = count_values(&a->settings, "pipeline.replicas") > 0,
                                  .need = a->check ? PP_RUN_REAL : PP_RUN_EXPLAIN};
    for (int i = 0; i < sweep->n; i++)
        if (pp_config_problem_count(sweep->configs[i]) > 0)
            return pp_cli_config_verdict(sweep->configs[i], PP_ECONFIG);
    PP_TRY(pp_best_result_find(&asked, s));
    PP_TRY(s->n_checked > 0 ? pp_bench_best_result(s) : 0);
    PP_TRY(pp_best_result_explain(s));
    PP_TRY(pp_best_result_print(s, json, stdout));
    return pp_best_result_verdict(s, a->memory);
}

/* The words of --best, which become what the search is asked. */
static int check_words(const struct plan_asked *a, bool *json, struct pp_best_result *s)
{
    if (!a->best) {
        return pp_fail(PP_EUSAGE, "--memory is for --best: ppcli plan CONFIG --best --memory %s",
                       a->memory);
    }
    if (!plan_prints_result(a, json))
        return pp_fail(PP_EUSAGE, "--best prints a table for people, or --format json, not '%s'",
                       pp_format_name(a->format));
    if (!a->config) {
        return pp_fail(PP_EUSAGE,
                       "--best needs a config. For example: ppcli plan mnist.ini --best");
    }
    if (a->check) {
        int64_t n = CHECKED;
        bool number = strcmp(a->check, "auto") != 0;
        if ((number && !pp_whole_parse(a->check, &n)) || n < 1 || n > PP_BEST_SHOWN) {
            return pp_fail(PP_EUSAGE, "--check wants how many plans to run, 1 to %d, not '%s'",
                           PP_BEST_SHOWN, a->check);
        }
        s->n_checked = (int)n;
    }
    s->spec.cores = a->cores > 0 ? a->cores : 0;
    if (a->memory && !pp_bytes_parse(a->memory, &s->spec.memory))
        return pp_fail(PP_EUSAGE, "--memory wants " PP_BYTES_FORMS ", not '%s'", a->memory);
    return 0;
}

static int launch_or_find(const struct pp_sweep *sweep, const struct plan_asked *a, bool json,
                          struct pp_best_result *s)
{
    struct pp_config *cfg = sweep->configs[0];
    bool searches = true;
    PP_TRY(pp_start_check(cfg));
    PP_TRY(pp_run_check(cfg));
    bool starts = cfg->run.hosts[0] && !pp_mpi_used(cfg);
    if (a->check && (starts || pp_mpi_used(cfg)))
        return pp_fail(PP_EUSAGE, "--check runs the ranks as threads of this machine, without "
                                  "hosts: leave it out under mpirun and with --hosts, and try "
                                  "the section that --best prints with ppcli train");
    if (starts)
        return pp_launch_mpirun(cfg, s->word, pp_sweep_ranks(sweep));
    if (pp_mpi_used(cfg))
        PP_TRY(measure_links(sweep, s, &searches));
    return searches ? find_best(sweep, a, json, s) : 0;
}

int plan_best(const struct plan_asked *a)
{
    PP_OWN(pp_sweep_fini) struct pp_sweep sweep = {0};
    PP_OWN(pp_best_result_fini) struct pp_best_result s = {.word = a->config};
    bool json;
    pp_start_others = PP_START_JOIN;
    PP_TRY(check_words(a, &json, &s));
    PP_TRY(load(a, &sweep, &s.spec.own));
    int rc = launch_or_find(&sweep, a, json, &s);
    return a->check ? pp_cli_config_verdict(sweep.configs[0], rc)
                    : pp_cli_look_verdict(sweep.configs[0], rc);
}
