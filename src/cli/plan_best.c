/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan CONFIG --best: measure this machine, search, and show the fastest ways to run the
 * config, with the lines that reproduce the first of them.
 */
#include "plan_best.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "ppcli/bench.h"
#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/json.h"
#include "ppcli/log.h"
#include "ppcli/mem.h"

#define MIB (1024.0 * 1024.0)
#define MEASURE_SECONDS 4.0
#define CHECK_SECONDS 3.0 /* of each candidate */
#define DISTURBED 20.0    /* a quiet machine has a few of its own */

enum {
    SHOWN = 20, /* lines of the table */
    CHECKED = 3
};

int plan_best_memory(const char *text, size_t *out)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},
                 {"k", 1e3},
                 {"M", 1e6},
                 {"G", 1e9},
                 {"Ki", 1024.0},
                 {"Mi", 1024.0 * 1024},
                 {"Gi", 1073741824.0}};
    char *end;
    errno = 0;
    bool digit = text[0] >= '0' && text[0] <= '9';
    unsigned long long n = digit ? strtoull(text, &end, 10) : 0;
    for (size_t i = 0; digit && errno == 0 && i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i].suffix) == 0 && n >= 1 && (double)n * units[i].factor < 0x1p62) {
            *out = (size_t)n * (size_t)units[i].factor;
            return 0;
        }
    }
    return pp_fail(PP_EUSAGE, "--memory wants bytes such as 500M or 4Gi, not '%s'", text);
}

struct shown {
    struct pp_best_spec spec;
    struct pp_model *model;
    struct pp_costs *costs;
    struct pp_best best;
    double checked[CHECKED]; /* seconds from step to step; 0: not checked */
    double disturbed;        /* how often a second other programs took a core while checking */
    int batch;
};

/* "flops", "time", "equal", ...: how the layers of a candidate are cut. */
static const char *cut_name(const struct pp_candidate *c)
{
    switch (c->assignment) {
    case PP_ASSIGN_TIME:
        return "time";
    case PP_ASSIGN_EQUAL:
        return "equal";
    case PP_ASSIGN_PARAMS:
        return "params";
    case PP_ASSIGN_EXPLICIT:
        return "ranges";
    case PP_ASSIGN_AUTO:
    case PP_ASSIGN_FLOPS:
        break;
    }
    return "flops";
}

/* --- text --------------------------------------------------------------------------------------
 */

static void print_machine(const struct shown *s)
{
    const struct pp_costs *c = s->costs;
    const struct pp_config *cfg = s->spec.cfg;
    printf("measured in %.1f s: %d rank%s at once on %d core%s", c->took, c->at_once,
           c->at_once == 1 ? "" : "s", c->cores, c->cores == 1 ? "" : "s");
    if (c->linked) {
        printf(", a hand-over %.2f us + %.3f us/MiB\n", c->latency * 1e6, c->byte * 1e6 * MIB);
    } else {
        printf("\n");
    }
    int ranks = cfg->pipeline.stages * cfg->pipeline.replicas;
    if (ranks > c->cores) {
        printf("%d ranks on %d core%s take turns: step times are lower bounds\n", ranks, c->cores,
               c->cores == 1 ? "" : "s");
    }
    if (cfg->run.launch == PP_LAUNCH_MPIRUN || !pp_transport_joins(cfg->run.transport, false)) {
        printf("hand-overs between MPI processes were not measured: times are those of threads\n");
    }
}

static void print_table(const struct shown *s)
{
    const struct pp_best *b = &s->best;
    printf("%d of %d shapes can run (%d refused by their schedule%s", b->n, b->tried, b->refused,
           b->too_large > 0 ? "" : ")\n");
    if (b->too_large > 0) {
        printf(", %d over %.1f MiB a rank)\n", b->too_large, (double)s->spec.memory / MIB);
    }
    if (b->n == 0) {
        return;
    }
    printf("\n%4s  %-14s %12s %6s  %-10s %10s %10s %13s %11s %9s\n", "", "schedule", "microbatches",
           "chunks", "assignment", "step ms", "samples/s", "bubble_global", "bubble_span",
           "peak MiB");
    for (int i = 0; i < b->n && i < SHOWN; i++) {
        const struct pp_candidate *c = &b->items[i];
        printf("%4d  %-14s %12d %6d  %-10s %10.3f %10.0f %11.1f %% %9.1f %% %9.1f\n", i + 1,
               c->schedule, c->microbatches, c->chunks, cut_name(c), c->time.step * 1e3,
               s->batch / c->time.step, 100 * c->time.bubble_global, 100 * c->time.bubble_span,
               (double)c->peak_bytes / MIB);
    }
    if (b->n > SHOWN) {
        printf("      ... and %d slower ones\n", b->n - SHOWN);
    }
}

static int print_lines(const struct shown *s)
{
    const struct pp_candidate *c = &s->best.items[0];
    char ranges[16 * PP_STAGES_MAX];
    printf("\n[pipeline]\nstages = %d\n", s->spec.cfg->pipeline.stages);
    if (s->spec.cfg->pipeline.replicas > 1) {
        printf("replicas = %d\n", s->spec.cfg->pipeline.replicas);
    }
    printf("microbatches = %d\nschedule = %s\nchunks = %d\n", c->microbatches, c->schedule,
           c->chunks);
    if (c->eager > 0) {
        printf("eager = %d\n", c->eager);
    }
    if (c->assignment == PP_ASSIGN_TIME) {
        PP_TRY(pp_best_ranges(s->model, s->costs, pp_best_rows(&s->spec, c->microbatches),
                              c->chunks * s->spec.cfg->pipeline.stages, ranges, sizeof(ranges)));
        printf("assignment = %s\n", ranges);
    }
    if (c->microbatches != s->spec.cfg->pipeline.microbatches) {
        printf("; microbatches = %d instead of %d changes the order of sums: other bits in the "
               "weights\n",
               c->microbatches, s->spec.cfg->pipeline.microbatches);
    }
    return 0;
}

static void print_checks(const struct shown *s)
{
    printf("\nchecked by running\n%4s  %-14s %12s %6s %12s %12s %10s\n", "", "schedule",
           "microbatches", "chunks", "predicted ms", "measured ms", "difference");
    for (int i = 0; i < CHECKED && i < s->best.n; i++) {
        const struct pp_candidate *c = &s->best.items[i];
        printf("%4d  %-14s %12d %6d %12.3f %12.3f %+8.1f %%\n", i + 1, c->schedule, c->microbatches,
               c->chunks, c->time.step * 1e3, s->checked[i] * 1e3,
               100 * (c->time.step / s->checked[i] - 1));
    }
    int ranks = s->spec.cfg->pipeline.stages * s->spec.cfg->pipeline.replicas;
    if (s->disturbed > DISTURBED && ranks <= s->costs->cores) {
        printf("other programs took a core %.0f times a second meanwhile: check again when the "
               "machine is quiet\n",
               s->disturbed);
    }
}

/* --- JSON --------------------------------------------------------------------------------------
 */

static void print_json(const struct shown *s)
{
    struct pp_json j;
    pp_json_init(&j, stdout, 2);
    pp_json_object(&j, NULL);
    pp_json_int(&j, "schema", 1);
    pp_json_dbl(&j, "measure_seconds", s->costs->took);
    pp_json_int(&j, "ranks_at_once", s->costs->at_once);
    pp_json_int(&j, "cores", s->costs->cores);
    pp_json_bool(&j, "handover_measured", s->costs->linked);
    pp_json_dbl(&j, "handover_seconds", s->costs->latency);
    pp_json_dbl(&j, "handover_byte_seconds", s->costs->byte);
    pp_json_dbl(&j, "action_seconds", s->costs->action);
    pp_json_dbl(&j, "optimizer_seconds_per_parameter", s->costs->optimizer);
    pp_json_int(&j, "tried", s->best.tried);
    pp_json_int(&j, "refused", s->best.refused);
    pp_json_int(&j, "too_large", s->best.too_large);
    pp_json_array(&j, "candidates");
    for (int i = 0; i < s->best.n; i++) {
        const struct pp_candidate *c = &s->best.items[i];
        pp_json_object(&j, NULL);
        pp_json_str(&j, "schedule", c->schedule);
        pp_json_int(&j, "microbatches", c->microbatches);
        pp_json_int(&j, "chunks", c->chunks);
        pp_json_int(&j, "eager", c->eager);
        pp_json_str(&j, "assignment", cut_name(c));
        pp_json_dbl(&j, "step_seconds", c->time.step);
        pp_json_dbl(&j, "samples_per_second", s->batch / c->time.step);
        pp_json_dbl(&j, "bubble_global", c->time.bubble_global);
        pp_json_dbl(&j, "bubble_span", c->time.bubble_span);
        pp_json_uint(&j, "peak_bytes", c->peak_bytes);
        if (i < CHECKED && s->checked[i] > 0) {
            pp_json_dbl(&j, "measured_step_seconds", s->checked[i]);
        }
        pp_json_end(&j);
    }
    pp_json_end(&j);
    pp_json_end(&j);
}

/* --- the command -------------------------------------------------------------------------------
 */

/* How often a thread of this process had to leave its core to others. */
static double times_displaced(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (double)u.ru_nivcsw : 0;
}

static int check(struct shown *s)
{
    enum pp_log_level before = pp_log_level();
    int rc = 0;
    double displaced = times_displaced();
    uint64_t start = pp_clock_ns();
    for (int i = 0; rc == 0 && i < CHECKED && i < s->best.n; i++) {
        pp_log_info("running %s, %d of %d", s->best.items[i].schedule, i + 1,
                    s->best.n < CHECKED ? s->best.n : CHECKED);
        pp_log_set_level(PP_LOG_QUIET);
        rc = pp_bench_candidate(&s->spec, &s->best.items[i], s->costs, CHECK_SECONDS,
                                &s->checked[i]);
        pp_log_set_level(before);
    }
    s->disturbed = (times_displaced() - displaced) / ((double)(pp_clock_ns() - start) * 1e-9);
    return rc;
}

static int show(struct shown *s, const struct plan_best *how, bool json)
{
    if (how->check) {
        PP_TRY(check(s));
    }
    if (json) {
        print_json(s);
        return 0;
    }
    print_machine(s);
    print_table(s);
    if (s->best.n > 0) {
        PP_TRY(print_lines(s));
        if (how->check) {
            print_checks(s);
        }
    }
    return 0;
}

static int search(struct pp_config *cfg, const struct plan_best *how, bool json, struct shown *s)
{
    enum pp_run_need need = how->check ? PP_RUN_REAL : PP_RUN_EXPLAIN;
    s->spec.cfg = cfg;
    s->spec.all_m = true;
    s->spec.time_cuts = true;
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TRAIN, &s->spec.train_n));
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TEST, &s->spec.test_n));
    PP_TRY(pp_model_create(cfg, &s->model));
    s->spec.model = s->model;
    s->batch = cfg->train.batch_size;
    s->batch = s->spec.train_n < s->batch ? s->spec.train_n : s->batch;
    PP_TRY(pp_best_measure(&s->spec, MEASURE_SECONDS, &s->costs));
    PP_TRY(pp_best_search(&s->spec, s->costs, &s->best));
    PP_TRY(show(s, how, json));
    if (s->best.n == 0) {
        return pp_fail(PP_ECONFIG, "no shape can run%s",
                       s->best.too_large > 0 ? " within --memory" : "");
    }
    return 0;
}

int plan_best(const char *word, const struct pp_cli_settings *settings, const struct plan_best *how,
              const char *format)
{
    struct pp_config *cfg = NULL;
    struct shown s = {0};
    bool json = strcmp(format, "json") == 0;
    if (!how->best) {
        return pp_fail(PP_EUSAGE, "--memory is for --best: ppcli plan CONFIG --best --memory %s",
                       how->memory);
    }
    if (!json && strcmp(format, "grid") != 0) {
        return pp_fail(PP_EUSAGE, "--best prints a table for people, or --format json, not '%s'",
                       format);
    }
    if (!word) {
        return pp_fail(PP_EUSAGE, "--best of which config? For example: ppcli plan mnist.ini "
                                  "--best");
    }
    if (how->memory) {
        PP_TRY(plan_best_memory(how->memory, &s.spec.memory));
    }
    PP_TRY(pp_cli_load_config(word, settings, &cfg));
    int rc = search(cfg, how, json, &s);
    if (rc == PP_ECONFIG && pp_config_problem_count(cfg) > 0) {
        rc = pp_cli_config_verdict(cfg);
    }
    pp_best_fini(&s.best);
    pp_costs_destroy(&s.costs);
    pp_model_destroy(&s.model);
    pp_config_destroy(&cfg);
    return rc;
}
