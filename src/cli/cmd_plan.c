/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan: a schedule at a shape, proved, simulated and drawn. The shape comes from options, or
 * from a config with options on top; nothing is trained and no data is needed.
 */
#include <limits.h>
#include <string.h>

#include "ppcli/formats.h"
#include "ppcli/io.h"
#include "ppcli/results.h"
#include "ppcli/text.h"
#include "plan.h"

/* the names of the formats in report/plan_formats.c, in their order */
#define FORMATS "grid|csv|csv-comms|csv-torch|json|svg|trace|page|pdf|png"
#define SYSTEMS "ppcli|megatron|torchtitan|deepspeed"

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

/* ---- words */

struct asked {
    struct pp_cli_settings settings;
    struct plan_best how;
    struct plan_machine_words there;
    struct plan_profile_words measured;
    struct plan_words w;
    const char *output;
    struct pp_look look;
    bool measure;
    int format, only, emit, table; /* numbers of choices; -1: not given */
};

static int parse_words(int argc, char **argv, struct asked *a)
{
    struct plan_best *how = &a->how;
    struct plan_machine_words *there = &a->there;
    struct plan_words *w = &a->w;
    *a = (struct asked){.how = {.cores = INT_MIN},
                        .there = {.ranks = INT_MIN},
                        .only = -1,
                        .emit = -1,
                        .table = -1};
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &a->format, FORMATS, "what to print"},
        {"best", 0, PP_CLI_FLAG, &how->best, NULL,
         "measure this machine and rank all ways to run CONFIG"},
        {"memory", 0, PP_CLI_STRING, &how->memory, "BYTES",
         "--best, --machine: memory a rank may take (4Gi)"},
        {"cores", 0, PP_CLI_INT, &how->cores, "N",
         "--best: for a machine of N cores like these; those that are there"},
        {"machine", 0, PP_CLI_STRING, &there->machine, "FILE",
         "rank all ways to run CONFIG on the machine of a machine file"},
        {"tensor", 0, PP_CLI_STRING, &there->lists[0], "T,...", "--machine: tensor parallelism"},
        {"context", 0, PP_CLI_STRING, &there->lists[1], "C,...", "--machine: context parallelism"},
        {"experts-on", 0, PP_CLI_STRING, &there->lists[2], "E,...",
         "--machine: expert parallelism"},
        {"zero", 0, PP_CLI_KEY, (void *)"train.zero", "Z,...",
         "what replicas share out: 1 optimizer state; --machine: 2 gradients, 3 weights too"},
        {"fp8", 0, PP_CLI_FLAG, &there->fp8, NULL, "--machine: products of blocks at device.fp8"},
        {"layout", 0, PP_CLI_STRING, &there->layout, "WORDS", "--machine: a cut of Megatron's"},
        {"compare", 0, PP_CLI_STRING, &there->compare, "WORDS",
         "--machine: price one, such as 'tp=4 pp=4'"},
        {"only", 0, PP_CLI_CHOICE, &a->only, SYSTEMS "|torch",
         "--machine: what this system can run"},
        {"emit", 0, PP_CLI_CHOICE, &a->emit, SYSTEMS,
         "--machine: the first row it can run, in its words"},
        {"ranks", 0, PP_CLI_INT, &there->ranks, "N", "--machine: ranks there; those of one host"},
        {"html", 0, PP_CLI_STRING, &there->html, "FILE",
         "a page to edit the plan in; --machine, --profile: a page of their result"},
        {"profile", 0, PP_CLI_STRING, &a->measured.path, "PATH",
         "read a pipeline that was measured, and rank what else would have run"},
        {"against", 0, PP_CLI_STRING, &a->measured.against, "PATH",
         "--profile: predict this other one from it"},
        {"table", 0, PP_CLI_CHOICE, &a->table, PP_TABLES,
         "what others have published, what ppcli predicts, and the errors"},
        {"measure", 0, PP_CLI_FLAG, &a->measure, NULL,
         "write a machine file of this machine, with the layers of CONFIG"},
        {"output", 'o', PP_CLI_STRING, &a->output, "FILE",
         "where to write what is printed; .svg, .pdf, .png: a picture"},
        {"width", 0, PP_CLI_INT, &a->look.width, "N", "picture: pixels, 96 are an inch"},
        {"title", 0, PP_CLI_STRING, &a->look.title, "TEXT",
         "picture: instead of its own; '': none"},
        {"check", 0, PP_CLI_OPTIONAL, &how->check, "N",
         "--best: also run the first N (3) and CONFIG as it is, a few seconds each"},
        {"csv", 0, PP_CLI_STRING, &w->csv, "FILE",
         "read the plan from a table; - is standard input"},
        {"par", 0, PP_CLI_STRING, &w->par, "NAME",
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
         "zb-auto, zb-fit, zb-exact, --csv: forwards a rank may hold"},
        {"recompute", 0, PP_CLI_KEY, (void *)"pipeline.recompute", "WHAT",
         "forward passes that are computed again: off, all, layers; without CONFIG stages"},
        {"cost-f", 0, PP_CLI_STRING, &w->costs[PP_COST_F], "T,...", "time of a forward pass; 1"},
        {"cost-i", 0, PP_CLI_STRING, &w->costs[PP_COST_I], "T,...", "time of an input gradient; 1"},
        {"cost-w", 0, PP_CLI_STRING, &w->costs[PP_COST_W], "T,...", "time of a weight gradient; 1"},
        {"cost-b", 0, PP_CLI_STRING, &w->costs[PP_COST_B], "T,...",
         "time of a whole backward, in place of --cost-i and --cost-w"},
        {"cost-comm", 0, PP_CLI_STRING, &w->costs[PP_COST_COMM], "T,...", "time of a transfer; 0"},
        {"cost-tie", 0, PP_CLI_STRING, &w->costs[PP_COST_TIE], "T",
         "time to copy or to add up the gradient of a tied tensor once; 0"},
        {"cost-overlap", 0, PP_CLI_STRING, &w->costs[PP_COST_OVERLAP], "PART",
         "a pair of F and B takes this part of their sum; none"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_plan, options, &a->settings, words, 1));
    w->config = words[0];
    there->only =
        a->only < 0 ? NULL : pp_plan_systems[a->only < PP_PLAN_SYSTEMS ? a->only : 2]; /* torch */
    there->emit = a->emit < 0 ? NULL : pp_plan_systems[a->emit];
    there->memory = how->memory;
    return plan_machine_check(there);
}

/* One cell of a table (report/published.c). */
static int predict_words(int argc, char **argv, struct pp_figures *out)
{
    PP_OWN(plan_request_fini) struct plan_request q = {0};
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    PP_OWN_MEMORY struct asked *a = pp_alloc(1, sizeof(*a));
    PP_TRY(a ? 0 : PP_ERESOURCE);
    PP_TRY(parse_words(argc, argv, a));
    if (a->there.machine)
        return plan_machine_price(a->w.config, &a->settings, &a->there, &out->tokens);
    PP_TRY(plan_request_make(&a->w, &a->settings, false, &q));
    PP_TRY(pp_sim_run(q.plan, &q.costs.costs, false, &result));
    out->makespan = result.makespan;
    out->idle = result.bubble_span;
    return 0;
}

/* -o, --width and --title: only of the plan itself, and the last two of a picture. */
static int check_output(struct asked *a)
{
    bool plan = !a->there.machine && !a->how.best && !a->how.check && !a->how.memory &&
                !a->measured.path && !a->w.par && !a->there.html && a->table < 0 && !a->measure;
    if (a->output && !plan && !a->measure)
        return pp_fail(PP_EUSAGE, "-o writes a plan, or what --measure finds: leave out -o %s",
                       a->output);
    if (a->output && plan && a->format == 0)
        a->format = pp_format_of_file(a->output);
    if ((a->look.title || a->look.width) && !(plan && pp_format_draws(a->format)))
        return pp_fail(PP_EUSAGE, "--width and --title are for pictures: add -o plan.svg");
    return pp_look_check(&a->look);
}

static int find_plan(struct asked *a)
{
    PP_TRY(check_output(a));
    bool alone = !a->w.config && !a->w.csv && a->settings.n == 0 && !a->there.machine &&
                 !a->how.best && !a->measure && !a->measured.path;
    if (a->table >= 0)
        return alone ? pp_table_print(a->table, predict_words)
                     : pp_fail(PP_EUSAGE, "--table prints what is published: use it alone");
    if (a->measured.path || a->measured.against)
        return profile(&a->w, &a->how, &a->there, &a->measured, pp_format_name(a->format));
    bool ranks = a->there.ranks != INT_MIN,
         finds = a->measure || a->there.machine || a->how.best || a->how.check;
    for (int i = 0; finds && i < PP_COSTS; i++)
        if (a->w.csv || a->w.costs[i])
            return pp_fail(PP_EUSAGE, "--best, --machine, --measure: no --csv and no --cost-...");
    if (a->measure && (a->there.machine || a->how.best || a->how.check || a->how.memory ||
                       a->there.html || ranks))
        return pp_fail(PP_EUSAGE, "--measure writes a machine file: alone, or with -o FILE");
    if (a->measure)
        return plan_measure(a->w.config, &a->settings, a->output);
    if (ranks && a->there.ranks < 1)
        return pp_fail(PP_EUSAGE, "--ranks wants 1 or more, not %d", a->there.ranks);
    if (!a->there.machine && ranks)
        return pp_fail(PP_EUSAGE, "--ranks is for --machine FILE");
    if (!a->there.machine && a->there.html &&
        (a->how.best || a->how.check || a->how.memory || a->format != 0))
        return pp_fail(
            PP_EUSAGE,
            "--html writes a page of its own: leave out --best, --check, --memory and --format");
    if (a->how.cores != INT_MIN && (a->how.cores < 1 || a->how.cores > PLAN_CORES_MAX))
        return pp_fail(PP_EUSAGE, "--cores wants 1 to %d, not %d", PLAN_CORES_MAX, a->how.cores);
    if (a->how.cores != INT_MIN && (a->how.check || !a->how.best))
        return pp_fail(PP_EUSAGE,
                       "--cores is for --best, without --check: ppcli plan CONFIG "
                       "--best --cores %d",
                       a->how.cores);
    if (a->there.machine && (a->how.best || a->how.check))
        return pp_fail(PP_EUSAGE, "--best and --check measure this machine: leave out --machine");
    if (a->there.machine)
        return plan_machine(a->w.config, &a->settings, &a->there, pp_format_name(a->format));
    if (a->how.best || a->how.check || a->how.memory) {
        a->how.best = a->how.best || a->how.check;
        return plan_best(a->w.config, &a->settings, &a->how, pp_format_name(a->format));
    }
    if (!pp_launch_speaks())
        return 0;
    if (a->w.par)
        return plan_mark(&a->w, &a->settings, pp_format_name(a->format));
    PP_OWN(plan_request_fini) struct plan_request q = {0};
    PP_TRY(plan_check_file("--html", a->there.html));
    PP_TRY(plan_request_make(&a->w, &a->settings, pp_format_times(a->format), &q));
    struct pp_planned planned = {q.plan, &q.costs.costs, q.bytes, q.memory_cap};
    return a->there.html ? pp_file_draw(a->there.html, pp_workbench_write, &planned)
                         : pp_format_print(a->format, &planned, &a->look, a->output);
}

int cmd_plan(int argc, char **argv)
{
    struct asked asked;
    PP_TRY(parse_words(argc, argv, &asked));
    return find_plan(&asked);
}
