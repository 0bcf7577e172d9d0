/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan: a schedule at a shape, proved, simulated and drawn. The shape comes from options, or
 * from a config with options on top; nothing is trained and no data is needed.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ppcli/best.h"
#include "ppcli/draw.h"
#include "ppcli/err.h"
#include "ppcli/exchange.h"
#include "ppcli/log.h"
#include "ppcli/mem.h"
#include "ppcli/report.h"
#include "ppcli/text.h"
#include "command.h"
#include "plan_best.h"

static void help(FILE *f)
{
    fputs("  ppcli plan --schedule 1f1b --stages 4 --microbatches 8      draw it\n"
          "  ppcli plan mnist.ini                                        the schedule of a config\n"
          "  ppcli plan --schedule zb-v --stages 4 --microbatches 8 --format svg > zb-v.svg\n"
          "  ppcli plan --schedule 1f1b --stages 4 --microbatches 16 --cost-comm 0.5\n"
          "  ppcli plan --csv table.csv                                  a table from elsewhere\n"
          "  ppcli plan mnist.ini --best --memory 4Gi                    the fastest here\n"
          "\n"
          "Proves a schedule at this shape, simulates it with the given costs and shows it.\n"
          "A cost is the time of one micro-batch on one whole rank, in any unit; a chunk takes\n"
          "its share of it. The bubble is the mean idle share of all ranks in that step.\n"
          "Formats: grid for people, svg for documents, page to zoom and hover in a browser,\n"
          "trace for Perfetto (one unit is a millisecond), json for programs,\n"
          "csv and csv-comms (with sends and receives) for torch.distributed.pipelining;\n"
          "--csv reads both, also of 2024.\n"
          "With a config, json and grid also know the memory of every rank.\n"
          "ppcli keys pipeline.schedule lists the schedules; dualpipe and chimera, which keep\n"
          "two copies of the weights, can be planned too but not trained with.\n",
          f);
}

/* --- formats ----------------------------------------------------------------------------------
 */

/* As published, where a plan for training puts descending gradients in another order. */
static int print_csv(const struct pp_drawing *d, FILE *f)
{
    const struct pp_schedule_ops *schedule = d->plan->schedule;
    bool published = d->plan->geometry.coalesce <= 1;
    return schedule && schedule->descends && published
               ? pp_schedule_print_csv(schedule, &d->plan->geometry, f)
               : pp_plan_print_csv(d->plan, f);
}

static int print_csv_comms(const struct pp_drawing *d, FILE *f)
{
    return pp_plan_print_csv_comms(d->plan, f);
}

/* The page of `ppcli report`, of the plan's trace. */
static int print_page(const struct pp_drawing *d, FILE *f)
{
    const struct pp_schedule_ops *schedule = d->plan->schedule;
    struct pp_report *report = NULL;
    char *text = NULL;
    size_t bytes = 0;
    FILE *trace = open_memstream(&text, &bytes);
    if (!trace) {
        return pp_fail(PP_ERESOURCE, "plan: out of memory");
    }
    int rc = pp_draw_trace(d, trace);
    int closed = pp_text_close(trace, &text, "plan");
    rc = rc < 0 ? rc : closed;
    FILE *in = rc == 0 ? fmemopen(text, bytes, "r") : NULL;
    if (rc == 0) {
        rc = in ? pp_report_open_trace(in, schedule ? pp_schedule_name(schedule) : "table", &report)
                : pp_fail(PP_ERESOURCE, "plan: out of memory");
    }
    if (rc == 0) {
        rc = pp_report_write(&report, 1, f);
    }
    pp_report_close(&report);
    if (in) {
        fclose(in);
    }
    free(text);
    return rc;
}

static const struct format {
    const char *name;
    bool times; /* wants start and end of every action */
    int (*print)(const struct pp_drawing *d, FILE *f);
} formats[] = {
    {"grid", true, pp_draw_grid},
    {"csv", false, print_csv},
    {"csv-comms", false, print_csv_comms},
    {"json", false, pp_draw_json},
    {"svg", true, pp_draw_svg},
    {"trace", true, pp_draw_trace},
    {"page", true, print_page},
};

/* the names of the table above, in its order */
#define FORMATS "grid|csv|csv-comms|json|svg|trace|page"

/* --- the request ------------------------------------------------------------------------------
 */

struct request {
    const char *schedule;
    struct pp_geometry geometry;
    struct pp_plan *table; /* instead of a schedule: read from a file; owned */
    double overlap;        /* as in struct pp_sim_costs */
    struct pp_config *cfg; /* NULL without one; the rest then has no meaning */
    struct pp_run run;
    size_t *bytes; /* [stages] owned */
};

#define COST_MAX 1e12 /* sums of it stay numbers */

static int read_cost(const char *option, const char *text, double *out)
{
    if (!text) {
        return 0;
    }
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || !(x >= 0 && x <= COST_MAX)) {
        return pp_fail(PP_EUSAGE, "--%s wants a number from 0 to %g, not '%s'", option, COST_MAX,
                       text);
    }
    *out = x;
    return 0;
}

static int read_count(const struct pp_setting *s, int *out)
{
    char *end;
    errno = 0;
    long x = strtol(s->value, &end, 10);
    if (end == s->value || *end || errno || x < INT_MIN || x > INT_MAX) {
        return pp_fail(PP_EUSAGE, "%s wants a whole number, not '%s'", s->said, s->value);
    }
    *out = (int)x;
    return 0;
}

/* Without a config only the keys that shape a schedule mean something. */
static int read_setting(const struct pp_setting *s, struct request *q)
{
    struct pp_geometry *g = &q->geometry;
    const struct {
        const char *key;
        int *target;
    } counts[] = {
        {"pipeline.stages", &g->stages},
        {"pipeline.chunks", &g->chunks},
        {"pipeline.microbatches", &g->microbatches},
        {"pipeline.group", &g->group},
        {"pipeline.eager", &g->eager},
        {"train.coalesce", &g->coalesce},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (strcmp(s->key, counts[i].key) == 0) {
            return read_count(s, counts[i].target);
        }
    }
    if (strcmp(s->key, "pipeline.schedule") == 0) {
        q->schedule = s->value;
        return 0;
    }
    if (strcmp(s->key, "pipeline.memory_cap") == 0) {
        return read_cost("memory-cap", s->value, &g->memory_cap);
    }
    return pp_fail(PP_EUSAGE, "%s %s says nothing without a CONFIG", s->said,
                   strcmp(s->said, "--set") == 0 ? s->key : s->value);
}

static int from_options(const struct pp_cli_settings *settings, struct request *q)
{
    for (int i = 0; i < settings->n; i++) {
        PP_TRY(read_setting(&settings->items[i], q));
    }
    if (!q->schedule || q->geometry.stages == 0 || q->geometry.microbatches == 0) {
        bool zero = q->schedule && settings->n >= 3;
        return pp_fail(PP_EUSAGE,
                       zero ? "--stages and --microbatches must be at least 1"
                            : "plan what? For example: ppcli plan --schedule 1f1b --stages 4 "
                              "--microbatches 8, or: ppcli plan mnist.ini");
    }
    return 0;
}

static int from_table(const char *path, const struct pp_cli_settings *settings, struct request *q)
{
    if (settings && settings->n > 0) {
        return pp_fail(PP_EUSAGE, "%s says nothing beside --csv: the table has its own shape",
                       settings->items[0].said);
    }
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!f) {
        return pp_fail_errno(0, "%s", path);
    }
    int rc = pp_plan_read_csv(f, path, &q->table);
    if (f != stdin) {
        fclose(f);
    }
    return rc;
}

/* As the run does it. */
static int coalesce_table(struct request *q, int k)
{
    struct pp_plan *plan = NULL;
    if (k <= 1) {
        return 0;
    }
    PP_TRY(pp_plan_coalesce(q->table, k, &plan));
    pp_plan_destroy(&q->table);
    q->table = plan;
    return 0;
}

/* The memory that the ranks of the config's run will take. */
static int predict(struct request *q)
{
    const struct pp_layout *l = q->run.layout;
    struct pp_transport_caps caps = pp_run_caps(&q->run);
    q->bytes = pp_alloc((size_t)l->stages, sizeof(*q->bytes));
    if (!q->bytes) {
        return PP_ERESOURCE;
    }
    for (int r = 0; r < l->stages; r++) {
        struct pp_exec_spec spec = {.layout = l, .rank = r, .caps = caps};
        struct pp_exec_bytes bytes;
        PP_TRY(pp_exec_predict(&spec, &bytes));
        q->bytes[r] = bytes.total;
    }
    return 0;
}

static int from_config(const char *word, const struct pp_cli_settings *settings, struct request *q)
{
    PP_TRY(pp_cli_load_config(word, settings, &q->cfg));
    int rc = pp_choose(q->cfg, PP_RUN_EXPLAIN, NULL);
    if (rc == 0) {
        rc = pp_run_prepare(q->cfg, PP_RUN_EXPLAIN, &q->run);
    }
    if (rc == PP_ECONFIG && pp_config_problem_count(q->cfg) > 0) {
        return pp_cli_config_verdict(q->cfg);
    }
    PP_TRY(rc);
    /* that of a full batch, as it would run */
    const struct pp_plan *plan = q->run.layout->plans[0].plan;
    if (plan->schedule) {
        struct pp_schedule_costs costs = q->geometry.costs;
        q->schedule = pp_schedule_name(plan->schedule);
        q->geometry = plan->geometry;
        q->geometry.costs = costs;
    } else {
        PP_TRY(from_table(q->cfg->pipeline.schedule + strlen(PP_SCHEDULE_FILE), NULL, q));
        PP_TRY(coalesce_table(q, plan->geometry.coalesce));
    }
    return predict(q);
}

static int check_request(struct request *q)
{
    if (q->table) {
        return 0;
    }
    const struct pp_schedule_ops *ops = pp_schedule_find(q->schedule);
    if (!ops) {
        const char *near = pp_nearest(q->schedule, pp_schedule_names());
        return pp_fail(PP_EUSAGE, "unknown schedule '%s'%s%s%s", q->schedule,
                       near ? "; did you mean '" : "; ppcli keys pipeline.schedule lists them",
                       near ? near : "", near ? "'?" : "");
    }
    if (q->geometry.chunks == 0) {
        q->geometry.chunks = pp_schedule_default_chunks(ops);
    }
    return 0;
}

/* --- what is shown ----------------------------------------------------------------------------
 */

/* What COLUMNS says, else the width of the terminal, else no limit. */
static int columns(void)
{
    const char *text = getenv("COLUMNS");
    if (text && text[0] != '\0') {
        char *end;
        long n = strtol(text, &end, 10);
        if (!*end && n > 0 && n <= INT_MAX) {
            return (int)n;
        }
    }
    struct winsize w;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0) {
        return w.ws_col;
    }
    return 0;
}

static int simulate(const struct pp_plan *plan, const struct request *q, bool times,
                    struct pp_sim_result *out)
{
    const struct pp_schedule_costs *costs = &q->geometry.costs;
    struct pp_sim_costs c;
    double *arrays = pp_alloc(3 * (size_t)plan->n_virtual, sizeof(*arrays));
    if (!arrays) {
        return PP_ERESOURCE;
    }
    pp_sim_uniform(plan, costs->f, costs->i, costs->w, arrays, &c);
    c.latency = costs->comm;
    c.overlap = q->overlap;
    c.fused_send = true; /* as all published tables count */
    int rc = pp_sim_run(plan, &c, times, out);
    pp_free(arrays);
    return rc;
}

static int show(const struct request *q, const struct format *format)
{
    struct pp_plan *plan = NULL;
    struct pp_sim_result result = {0};
    if (!q->table) {
        PP_TRY(pp_plan_build(q->schedule, &q->geometry, &plan));
    }
    const struct pp_plan *shown = plan ? plan : q->table;
    pp_assert(shown != NULL);
    int rc = simulate(shown, q, format->times, &result);
    if (rc == 0) {
        struct pp_drawing d = {.plan = shown,
                               .result = &result,
                               .costs = q->geometry.costs,
                               .bytes = q->bytes,
                               .columns = columns(),
                               .color = pp_term_color(STDOUT_FILENO)};
        rc = format->print(&d, stdout);
    }
    pp_sim_result_fini(&result);
    pp_plan_destroy(&plan);
    return rc;
}

static int run(int argc, char **argv)
{
    struct pp_cli_settings settings = {0};
    struct plan_best how = {0};
    int number = 0;
    const char *f = NULL, *i = NULL, *w = NULL, *comm = NULL, *overlap = NULL, *csv = NULL;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &number, FORMATS, "what to print"},
        {"best", 0, PP_CLI_FLAG, &how.best, NULL,
         "measure this machine and rank all ways to run CONFIG"},
        {"memory", 0, PP_CLI_STRING, &how.memory, "BYTES", "--best: what a rank may hold (4Gi)"},
        {"check", 0, PP_CLI_FLAG, &how.check, NULL,
         "--best, and run the first three for a few seconds each"},
        {"csv", 0, PP_CLI_STRING, &csv, "FILE", "read the plan from a table; - is standard input"},
        {"chunks", 0, PP_CLI_KEY, (void *)"pipeline.chunks", "V", "pieces of the model per rank"},
        {"group", 0, PP_CLI_KEY, (void *)"pipeline.group", "G",
         "interleaved: micro-batches per group"},
        {"eager", 0, PP_CLI_KEY, (void *)"pipeline.eager", "K", "1f1b-eager: its k"},
        {"coalesce", 0, PP_CLI_KEY, (void *)"train.coalesce", "K",
         "weight gradients of K micro-batches at a time"},
        {"memory-cap", 0, PP_CLI_KEY, (void *)"pipeline.memory_cap", "X",
         "zb-auto: forwards a rank may hold"},
        {"cost-f", 0, PP_CLI_STRING, &f, "T", "time of a forward on one rank; 1"},
        {"cost-i", 0, PP_CLI_STRING, &i, "T", "time of an input gradient; 1"},
        {"cost-w", 0, PP_CLI_STRING, &w, "T", "time of a weight gradient; 1"},
        {"cost-comm", 0, PP_CLI_STRING, &comm, "T", "time of a hand-over between ranks; 0"},
        {"cost-overlap", 0, PP_CLI_STRING, &overlap, "PART",
         "overlapped pairs take this part of F + B; none overlap"},
        {0},
    };
    const char *words[1];
    bool done;
    PP_TRY(pp_cli_parse(argc, argv, &command_plan, options, &settings, words, 1, &done));
    if (done) {
        return 0;
    }
    if (how.best || how.check || how.memory) {
        how.best = how.best || how.check;
        if (csv || f || i || w || comm || overlap) {
            return pp_fail(PP_EUSAGE, "--best measures the costs of a CONFIG: it takes neither "
                                      "--csv nor --cost-...");
        }
        return plan_best(words[0], &settings, &how, formats[number].name);
    }
    struct request q = {.geometry = {.costs = {.f = 1, .i = 1, .w = 1}}};
    struct pp_schedule_costs *c = &q.geometry.costs;
    PP_TRY(read_cost("cost-f", f, &c->f));
    PP_TRY(read_cost("cost-i", i, &c->i));
    PP_TRY(read_cost("cost-w", w, &c->w));
    PP_TRY(read_cost("cost-comm", comm, &c->comm));
    PP_TRY(read_cost("cost-overlap", overlap, &q.overlap));
    if (c->f + c->i + c->w <= 0) {
        return pp_fail(PP_EUSAGE, "one of --cost-f, --cost-i and --cost-w must be more than 0");
    }
    if (words[0] && csv) {
        return pp_fail(PP_EUSAGE, "a CONFIG and --csv are two plans; give one of them");
    }
    int rc = csv        ? from_table(csv, &settings, &q)
             : words[0] ? from_config(words[0], &settings, &q)
                        : from_options(&settings, &q);
    if (rc == 0) {
        rc = check_request(&q);
    }
    if (rc == 0) {
        rc = show(&q, &formats[number]);
    }
    pp_free(q.bytes);
    pp_plan_destroy(&q.table);
    pp_run_fini(&q.run);
    pp_config_destroy(&q.cfg);
    return rc;
}

const struct pp_command command_plan = {
    .name = "plan",
    .summary = "prove, simulate and draw a schedule",
    .words = "[CONFIG]",
    .one_rank = true,
    .run = run,
    .help = help,
};
