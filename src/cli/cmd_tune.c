/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli tune CONFIG: measure this machine, search, and show the fastest ways to run the config,
 * what limits the first of them, and the lines that reproduce it.
 */
#include "command.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/bench/bench.h"
#include "ppcli/show/results.h"
#include "ppcli/base/base.h"

#define CHECKED 3 /* --check without a number */
#define SHAPES_LISTED 64
#define CORES_MAX 1024 /* as run.threads */

/* The words of the command line; NULL: not given. */
struct asked {
    struct pp_cli_settings settings;
    const char *config;
    const char *memory; /* bytes */
    const char *check;  /* how many to run for real; "auto": without a number */
    int cores;          /* INT_MIN: not given */
    int json;
};

/* Returns how many values the command line lists for a key; 0 if it does not give the key. */
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

/* Measures the links between the processes of mpirun. *out_searches becomes true on rank 0 only,
 * because only rank 0 searches. */
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

/* Reads the stages and replicas of the config itself, without those of the command line. */
static int read_own_shape(const struct asked *a, struct pp_division *out)
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

/* Loads the config. If --stages or --replicas is a list, loads a config for each combination, as
 * bench does. */
static int load_configs(const struct asked *a, struct pp_sweep *out, struct pp_division *own)
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
        return pp_fail(
            PP_EUSAGE,
            "with lists the config is read once for each value: give a file, not standard input");
    PP_TRY(pp_cli_load_sweep(a->config, &a->settings, out));
    if (out->n != n || n > SHAPES_LISTED)
        return pp_fail(PP_EUSAGE,
                       "tune takes lists of at most %d --stages x --replicas, and no other list",
                       SHAPES_LISTED);
    return read_own_shape(a, own);
}

static int find_best(const struct pp_sweep *sweep, const struct asked *a, struct pp_best_result *s)
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
    PP_TRY(pp_best_result_print(s, a->json, stdout));
    return pp_best_result_verdict(s, a->memory);
}

/* Checks the command line and copies it into the specification of the search. */
static int check_words(const struct asked *a, struct pp_best_result *s)
{
    int64_t n = CHECKED;
    if (!a->config)
        return pp_fail(PP_EUSAGE, "name a config. For example: ppcli tune mnist.ini");
    if (a->cores != INT_MIN && (a->cores < 1 || a->cores > CORES_MAX))
        return pp_fail(PP_EUSAGE, "--cores needs a number from 1 to %d, not %d", CORES_MAX,
                       a->cores);
    if (a->cores != INT_MIN && a->check)
        return pp_fail(PP_EUSAGE, "--cores predicts for another machine, and --check runs on this "
                                  "one: leave one of them out");
    if (a->check && strcmp(a->check, "auto") != 0 && !pp_whole_parse(a->check, &n))
        n = 0;
    if (n < 1 || n > PP_BEST_SHOWN)
        return pp_fail(PP_EUSAGE, "--check needs the number of plans to run, 1 to %d, not '%s'",
                       PP_BEST_SHOWN, a->check);
    if (a->memory && !pp_bytes_parse(a->memory, &s->spec.memory))
        return pp_fail(PP_EUSAGE, "--memory needs " PP_BYTES_FORMS ", not '%s'", a->memory);
    s->n_checked = a->check ? (int)n : 0;
    s->spec.cores = a->cores > 0 ? a->cores : 0;
    return 0;
}

static int launch_or_find(const struct pp_sweep *sweep, const struct asked *a,
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
                                  "the section that tune prints with ppcli train");
    if (starts)
        return pp_launch_mpirun(cfg, s->word, pp_sweep_ranks(sweep));
    if (pp_mpi_used(cfg))
        PP_TRY(measure_links(sweep, s, &searches));
    return searches ? find_best(sweep, a, s) : 0;
}

int cmd_tune(int argc, char **argv)
{
    struct asked a = {.cores = INT_MIN};
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &a.json, "text|json", "how to print; text"},
        {"memory", 0, PP_CLI_STRING, &a.memory, "BYTES", "memory a rank may take (4Gi)"},
        {"cores", 0, PP_CLI_INT, &a.cores, "N", "predict for N cores like these"},
        {"check", 0, PP_CLI_OPTIONAL, &a.check, "N", "run the first N (3) and CONFIG as it is"},
#include "options_keys.def"
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_tune, options, &a.settings, words, 1));
    a.config = words[0];
    PP_OWN(pp_sweep_fini) struct pp_sweep sweep = {0};
    PP_OWN(pp_best_result_fini) struct pp_best_result s = {.word = a.config};
    PP_TRY(check_words(&a, &s));
    PP_TRY(load_configs(&a, &sweep, &s.spec.own));
    int rc = launch_or_find(&sweep, &a, &s);
    return a.check ? pp_cli_config_verdict(sweep.configs[0], rc)
                   : pp_cli_look_verdict(sweep.configs[0], rc);
}
