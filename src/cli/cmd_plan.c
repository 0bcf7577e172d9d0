/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan: a schedule at a shape, proved, simulated and drawn. The shape comes from options, or
 * from a config with options on top; nothing is trained and no data is needed.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ppcli/draw.h"
#include "ppcli/exchange.h"
#include "ppcli/log.h"
#include "ppcli/report.h"
#include "ppcli/text.h"
#include "plan.h"
#include "start.h"

/* ---- formats */

/* As published, where a plan for training puts descending gradients in another order. */
static int print_csv(const struct pp_drawing *d, FILE *f)
{
    const struct pp_schedule_ops *schedule = d->plan->schedule;
    bool published = d->plan->geometry.coalesce <= 1;
    for (int s = 0; s < d->plan->n_virtual; s++)
        published = published && !pp_plan_recomputes(d->plan, s);
    return schedule && schedule->descends && published
               ? pp_schedule_print_csv(schedule, &d->plan->geometry, f)
               : pp_plan_print_csv(d->plan, f);
}

static int print_csv_comms(const struct pp_drawing *d, FILE *f)
{
    return pp_plan_print_csv_comms(d->plan, f);
}

static int print_csv_torch(const struct pp_drawing *d, FILE *f)
{
    return pp_plan_print_csv_torch(d->plan, f);
}

static int draw_trace(const void *drawing, FILE *f)
{
    return pp_draw_trace(drawing, f);
}

/* The page of `ppcli report`, of the plan's trace. */
static int print_page(const struct pp_drawing *d, FILE *f)
{
    const struct pp_schedule_ops *schedule = d->plan->schedule;
    return pp_report_write_drawn(draw_trace, d, schedule ? pp_schedule_name(schedule) : "table", f);
}

static const struct format {
    const char *name;
    bool times; /* wants start and end of every action */
    int (*print)(const struct pp_drawing *d, FILE *f);
} formats[] = {
    {"grid", true, pp_draw_grid},          {"csv", false, print_csv},
    {"csv-comms", false, print_csv_comms}, {"csv-torch", false, print_csv_torch},
    {"json", false, pp_draw_json},         {"svg", true, pp_draw_svg},
    {"trace", true, pp_draw_trace},        {"page", true, print_page},
};

/* the names of the table above, in its order */
#define FORMATS "grid|csv|csv-comms|csv-torch|json|svg|trace|page"

#define SYSTEMS "ppcli|megatron|torchtitan|deepspeed"

/* What COLUMNS says, else the width of the terminal, else no limit. */
static int columns(void)
{
    const char *text = getenv("COLUMNS");
    if (text && text[0] != '\0') {
        char *end;
        long n = strtol(text, &end, 10);
        if (!*end && n > 0 && n <= INT_MAX)
            return (int)n;
    }
    struct winsize w;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0)
        return w.ws_col;
    return 0;
}

static int show(const struct plan_request *q, const struct format *format)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    PP_TRY(pp_sim_run(q->plan, &q->costs, format->times, &result));
    if (strncmp(format->name, "csv", 3) == 0 && q->plan->copies > 1)
        pp_log_warn("a table cannot say that stages %d to %d are a second copy of the weights: "
                    "neither --csv nor torch can read this one",
                    q->plan->n_virtual / 2, q->plan->n_virtual - 1);
    struct pp_drawing d = {.plan = q->plan,
                           .result = &result,
                           .costs = &q->costs,
                           .bytes = q->bytes,
                           .columns = columns(),
                           .color = pp_term_color(STDOUT_FILENO)};
    return format->print(&d, stdout);
}

static int profile(const struct plan_words *w, const struct plan_best *how,
                   const struct plan_machine_words *there, struct plan_profile_words *words,
                   const char *format)
{
    if (!words->path)
        return pp_fail(PP_EUSAGE,
                       "--against is for --profile: ppcli plan --profile PATH --against %s",
                       words->against);
    if (w->config || w->csv || how->best || how->check || there->machine)
        return pp_fail(PP_EUSAGE,
                       "--profile is a plan by itself: no CONFIG, --csv, --best, --check or "
                       "--machine");
    if (words->against && there->html)
        return pp_fail(PP_EUSAGE, "--html draws --profile alone: leave out --against");
    words->memory = how->memory;
    words->html = there->html;
    return plan_profile(words, format);
}

int cmd_plan(int argc, char **argv)
{
    struct pp_cli_settings settings = {0};
    struct plan_best how = {.cores = INT_MIN};
    struct plan_machine_words there = {.ranks = INT_MIN};
    struct plan_profile_words measured = {.path = NULL};
    const char *output = NULL;
    bool measure = false;
    struct plan_words w = {0};
    int number = 0, only = -1, emit = -1;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &number, FORMATS, "what to print"},
        {"best", 0, PP_CLI_FLAG, &how.best, NULL,
         "measure this machine and rank all ways to run CONFIG"},
        {"memory", 0, PP_CLI_STRING, &how.memory, "BYTES",
         "--best, --machine: memory a rank may take (4Gi)"},
        {"cores", 0, PP_CLI_INT, &how.cores, "N",
         "--best: for a machine of N cores like these; those that are there"},
        {"machine", 0, PP_CLI_STRING, &there.machine, "FILE",
         "rank all ways to run CONFIG on the machine of a machine file"},
        {"tensor", 0, PP_CLI_STRING, &there.lists[0], "T,...", "--machine: tensor parallelism"},
        {"context", 0, PP_CLI_STRING, &there.lists[1], "C,...", "--machine: context parallelism"},
        {"experts-on", 0, PP_CLI_STRING, &there.lists[2], "E,...", "--machine: expert parallelism"},
        {"zero", 0, PP_CLI_KEY, (void *)"train.zero", "Z,...",
         "what replicas share out: 1 optimizer state; --machine: 2 gradients, 3 weights too"},
        {"fp8", 0, PP_CLI_FLAG, &there.fp8, NULL, "--machine: products of blocks at device.fp8"},
        {"layout", 0, PP_CLI_STRING, &there.layout, "WORDS", "--machine: a cut of Megatron's"},
        {"compare", 0, PP_CLI_STRING, &there.compare, "WORDS",
         "--machine: price one, such as 'tp=4 pp=4'"},
        {"only", 0, PP_CLI_CHOICE, &only, SYSTEMS "|torch", "--machine: what this system can run"},
        {"emit", 0, PP_CLI_CHOICE, &emit, SYSTEMS,
         "--machine: the first row it can run, in its words"},
        {"ranks", 0, PP_CLI_INT, &there.ranks, "N", "--machine: ranks there; those of one host"},
        {"html", 0, PP_CLI_STRING, &there.html, "FILE",
         "a page to edit the plan in; --machine, --profile: a page of their result"},
        {"profile", 0, PP_CLI_STRING, &measured.path, "PATH",
         "read a pipeline that was measured, and rank what else would have run"},
        {"against", 0, PP_CLI_STRING, &measured.against, "PATH",
         "--profile: predict this other one from it"},
        {"measure", 0, PP_CLI_FLAG, &measure, NULL,
         "write a machine file of this machine, with the layers of CONFIG"},
        {"output", 'o', PP_CLI_STRING, &output, "FILE", "--measure: where to write it"},
        {"check", 0, PP_CLI_OPTIONAL, &how.check, "N",
         "--best: also run the first N (3) and CONFIG as it is, a few seconds each"},
        {"csv", 0, PP_CLI_STRING, &w.csv, "FILE",
         "read the plan from a table; - is standard input"},
        {"par", 0, PP_CLI_STRING, &w.par, "NAME",
         "--csv: mark the table: legal, as fast as this schedule (or best), within --memory-cap"},
        {"chunks", 0, PP_CLI_KEY, (void *)"pipeline.chunks", "V",
         "chunks per rank: each rank holds V pieces of the model"},
        {"group", 0, PP_CLI_KEY, (void *)"pipeline.group", "G",
         "interleaved: micro-batches per group"},
        {"eager", 0, PP_CLI_KEY, (void *)"pipeline.eager", "K",
         "1f1b-eager: how far ahead it runs"},
        {"coalesce", 0, PP_CLI_KEY, (void *)"train.coalesce", "K",
         "weight gradients of K micro-batches at a time"},
        {"memory-cap", 0, PP_CLI_KEY, (void *)"pipeline.memory_cap", "X",
         "zb-auto, zb-fit, --csv: forwards a rank may hold"},
        {"recompute", 0, PP_CLI_KEY, (void *)"pipeline.recompute", "WHAT",
         "forward passes that are computed again: off, all, layers; without CONFIG stages"},
        {"cost-f", 0, PP_CLI_STRING, &w.costs[PLAN_COST_F], "T,...", "time of a forward pass; 1"},
        {"cost-i", 0, PP_CLI_STRING, &w.costs[PLAN_COST_I], "T,...",
         "time of an input gradient; 1"},
        {"cost-w", 0, PP_CLI_STRING, &w.costs[PLAN_COST_W], "T,...",
         "time of a weight gradient; 1"},
        {"cost-b", 0, PP_CLI_STRING, &w.costs[PLAN_COST_B], "T,...",
         "time of a whole backward, in place of --cost-i and --cost-w"},
        {"cost-comm", 0, PP_CLI_STRING, &w.costs[PLAN_COST_COMM], "T,...", "time of a transfer; 0"},
        {"cost-tie", 0, PP_CLI_STRING, &w.costs[PLAN_COST_TIE], "T",
         "time to copy or to add up the gradient of a tied tensor once; 0"},
        {"cost-overlap", 0, PP_CLI_STRING, &w.costs[PLAN_COST_OVERLAP], "PART",
         "a pair of F and B takes this part of their sum; none"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_plan, options, &settings, words, 1));
    w.config = words[0];
    there.only = only < 0 ? NULL : plan_systems[only < PLAN_SYSTEMS ? only : 2]; /* torch */
    there.emit = emit < 0 ? NULL : plan_systems[emit];
    PP_TRY(plan_machine_check(&there));
    if (measured.path || measured.against)
        return profile(&w, &how, &there, &measured, formats[number].name);
    bool ranks = there.ranks != INT_MIN, finds = measure || there.machine || how.best || how.check;
    for (int i = 0; finds && i < PLAN_COSTS; i++)
        if (w.csv || w.costs[i])
            return pp_fail(PP_EUSAGE, "--best, --machine, --measure: no --csv and no --cost-...");
    if (measure && (there.machine || how.best || how.check || how.memory || there.html || ranks))
        return pp_fail(PP_EUSAGE, "--measure writes a machine file: alone, or with -o FILE");
    if (measure)
        return plan_measure(w.config, &settings, output);
    if (output)
        return pp_fail(PP_EUSAGE, "-o is for --measure: ppcli plan CONFIG --measure -o %s", output);
    if (ranks && there.ranks < 1)
        return pp_fail(PP_EUSAGE, "--ranks wants 1 or more, not %d", there.ranks);
    if (!there.machine && ranks)
        return pp_fail(PP_EUSAGE, "--ranks is for --machine FILE");
    if (!there.machine && there.html && (how.best || how.check || how.memory || number != 0))
        return pp_fail(
            PP_EUSAGE,
            "--html writes a page of its own: leave out --best, --check, --memory and --format");
    if (how.cores != INT_MIN && (how.cores < 1 || how.cores > PLAN_CORES_MAX))
        return pp_fail(PP_EUSAGE, "--cores wants 1 to %d, not %d", PLAN_CORES_MAX, how.cores);
    if (how.cores != INT_MIN && (how.check || !how.best))
        return pp_fail(PP_EUSAGE,
                       "--cores is for --best, without --check: ppcli plan CONFIG "
                       "--best --cores %d",
                       how.cores);
    if (there.machine && (how.best || how.check))
        return pp_fail(PP_EUSAGE, "--best and --check measure this machine: leave out --machine");
    if (there.machine) {
        there.memory = how.memory;
        return plan_machine(w.config, &settings, &there, formats[number].name);
    }
    if (how.best || how.check || how.memory) {
        how.best = how.best || how.check;
        return plan_best(w.config, &settings, &how, formats[number].name);
    }
    if (!pp_launch_speaks())
        return 0;
    if (w.par)
        return plan_mark(&w, &settings, formats[number].name);
    PP_OWN(plan_request_fini) struct plan_request q = {0};
    PP_TRY(plan_check_file("--html", there.html));
    PP_TRY(plan_request_make(&w, &settings, formats[number].times, &q));
    return there.html ? plan_workbench(&q, there.html) : show(&q, &formats[number]);
}
