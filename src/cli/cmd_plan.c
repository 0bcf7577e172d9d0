/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan: a schedule at a shape, proved, simulated and drawn. The shape comes from options, or
 * from a config with options on top; nothing is trained and no data is needed.
 */
#include <limits.h>
#include <string.h>

#include "ppcli/show/results.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "plan.h"

/* the names of the formats in report/plan_formats.c, in their order */
#define FORMATS "grid|csv|csv-comms|csv-torch|json|svg|trace|page|pdf|png"
#define SYSTEMS "ppcli|megatron|torchtitan|deepspeed"

bool plan_prints_result(const struct plan_asked *a, bool *json)
{
    *json = strcmp(pp_format_name(a->format), "json") == 0;
    return *json || a->format == 0;
}

int plan_check_file(const char *option, const char *path)
{
    struct pp_file_write w;
    if (!path || strcmp(path, "-") == 0)
        return 0;
    if (!path[0])
        return pp_fail(PP_EUSAGE, "%s wants the name of a file, not ''", option);
    PP_TRY(pp_file_create(path, &w));
    pp_file_abandon(&w);
    return 0;
}

/* ---- words */

/* Words about another machine want its file. */
static int check_machine_words(const struct plan_asked *a)
{
    bool there = a->lists[0] || a->lists[1] || a->lists[2] || a->fp8 || a->layout || a->compare ||
                 a->only >= 0 || a->emit >= 0;
    return a->machine || !there
               ? 0
               : pp_fail(PP_EUSAGE,
                         "--tensor, --context, --experts-on, --fp8, --layout, --compare, "
                         "--only and --emit are for --machine FILE");
}

static int parse_words(int argc, char **argv, struct plan_asked *a)
{
    *a = (struct plan_asked){.cores = INT_MIN, .ranks = INT_MIN, .only = -1, .emit = -1};
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &a->format, FORMATS, "what to print"},
        {"best", 0, PP_CLI_FLAG, &a->best, NULL,
         "measure this machine and rank all ways to run CONFIG"},
        {"memory", 0, PP_CLI_STRING, &a->memory, "BYTES",
         "--best, --machine: memory a rank may take (4Gi)"},
        {"cores", 0, PP_CLI_INT, &a->cores, "N",
         "--best: for a machine of N cores like these; those that are there"},
        {"machine", 0, PP_CLI_STRING, &a->machine, "FILE",
         "rank all ways to run CONFIG on the machine of a machine file"},
        {"tensor", 0, PP_CLI_STRING, &a->lists[0], "T,...", "--machine: tensor parallelism"},
        {"context", 0, PP_CLI_STRING, &a->lists[1], "C,...", "--machine: context parallelism"},
        {"experts-on", 0, PP_CLI_STRING, &a->lists[2], "E,...", "--machine: expert parallelism"},
        {"zero", 0, PP_CLI_KEY, (void *)"train.zero", "Z,...",
         "what replicas share out: 1 optimizer state; --machine: 2 gradients, 3 weights too"},
        {"fp8", 0, PP_CLI_FLAG, &a->fp8, NULL, "--machine: products of blocks at device.fp8"},
        {"layout", 0, PP_CLI_STRING, &a->layout, "WORDS", "--machine: a cut of Megatron's"},
        {"compare", 0, PP_CLI_STRING, &a->compare, "WORDS",
         "--machine: price one, such as 'tp=4 pp=4'"},
        {"only", 0, PP_CLI_CHOICE, &a->only, SYSTEMS "|torch",
         "--machine: what this system can run"},
        {"emit", 0, PP_CLI_CHOICE, &a->emit, SYSTEMS,
         "--machine: the first row it can run, in its words"},
        {"ranks", 0, PP_CLI_INT, &a->ranks, "N", "--machine: ranks there; those of one host"},
        {"html", 0, PP_CLI_STRING, &a->html, "FILE",
         "a page to edit the plan in; --machine, --profile: a page of their result"},
        {"profile", 0, PP_CLI_STRING, &a->profile, "PATH",
         "read a pipeline that was measured, and rank what else would have run"},
        {"against", 0, PP_CLI_STRING, &a->against, "PATH",
         "--profile: predict this other one from it"},
        {"measure", 0, PP_CLI_FLAG, &a->measure, NULL,
         "write a machine file of this machine, with the layers of CONFIG"},
        {"output", 'o', PP_CLI_STRING, &a->output, "FILE",
         "where to write what is printed; .svg, .pdf, .png: a picture"},
        {"width", 0, PP_CLI_INT, &a->look.width, "N", "picture: pixels, 96 are an inch"},
        {"title", 0, PP_CLI_STRING, &a->look.title, "TEXT",
         "picture: instead of its own; '': none"},
        {"check", 0, PP_CLI_OPTIONAL, &a->check, "N",
         "--best: also run the first N (3) and CONFIG as it is, a few seconds each"},
        {"csv", 0, PP_CLI_STRING, &a->csv, "FILE",
         "read the plan from a table; - is standard input"},
        {"par", 0, PP_CLI_STRING, &a->par, "NAME",
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
        {"cost-f", 0, PP_CLI_STRING, &a->costs[PP_COST_F], "T,...", "time of a forward pass; 1"},
        {"cost-i", 0, PP_CLI_STRING, &a->costs[PP_COST_I], "T,...", "time of an input gradient; 1"},
        {"cost-w", 0, PP_CLI_STRING, &a->costs[PP_COST_W], "T,...", "time of a weight gradient; 1"},
        {"cost-b", 0, PP_CLI_STRING, &a->costs[PP_COST_B], "T,...",
         "time of a whole backward, in place of --cost-i and --cost-w"},
        {"cost-comm", 0, PP_CLI_STRING, &a->costs[PP_COST_COMM], "T,...", "time of a transfer; 0"},
        {"cost-tie", 0, PP_CLI_STRING, &a->costs[PP_COST_TIE], "T",
         "time to copy or to add up the gradient of a tied tensor once; 0"},
        {"cost-overlap", 0, PP_CLI_STRING, &a->costs[PP_COST_OVERLAP], "PART",
         "a pair of F and B takes this part of their sum; none"},
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_plan, options, &a->settings, words, 1));
    a->config = words[0];
    return check_machine_words(a);
}

/* -o, --width and --title: only of the plan itself, and the last two of a picture. */
static int check_output(struct plan_asked *a)
{
    bool plan = !a->machine && !a->best && !a->check && !a->memory && !a->profile && !a->par &&
                !a->html && !a->measure;
    if (a->output && !plan && !a->measure)
        return pp_fail(PP_EUSAGE, "-o writes a plan, or what --measure finds: leave out -o %s",
                       a->output);
    if (a->output && plan && a->format == 0)
        a->format = pp_format_of_file(a->output);
    if ((a->look.title || a->look.width) && !(plan && pp_format_draws(a->format)))
        return pp_fail(PP_EUSAGE, "--width and --title are for pictures: add -o plan.svg");
    return pp_look_check(&a->look);
}

static int find_plan(struct plan_asked *a)
{
    PP_TRY(check_output(a));
    if (a->profile || a->against)
        return plan_profile(a);
    bool ranks = a->ranks != INT_MIN, finds = a->measure || a->machine || a->best || a->check;
    for (int i = 0; finds && i < PP_COSTS; i++)
        if (a->csv || a->costs[i])
            return pp_fail(PP_EUSAGE, "--best, --machine, --measure: no --csv and no --cost-...");
    if (a->measure && (a->machine || a->best || a->check || a->memory || a->html || ranks))
        return pp_fail(PP_EUSAGE, "--measure writes a machine file: alone, or with -o FILE");
    if (a->measure)
        return plan_measure(a);
    if (ranks && a->ranks < 1)
        return pp_fail(PP_EUSAGE, "--ranks wants 1 or more, not %d", a->ranks);
    if (!a->machine && ranks)
        return pp_fail(PP_EUSAGE, "--ranks is for --machine FILE");
    if (!a->machine && a->html && (a->best || a->check || a->memory || a->format != 0))
        return pp_fail(
            PP_EUSAGE,
            "--html writes a page of its own: leave out --best, --check, --memory and --format");
    if (a->cores != INT_MIN && (a->cores < 1 || a->cores > PLAN_CORES_MAX))
        return pp_fail(PP_EUSAGE, "--cores wants 1 to %d, not %d", PLAN_CORES_MAX, a->cores);
    if (a->cores != INT_MIN && (a->check || !a->best))
        return pp_fail(PP_EUSAGE,
                       "--cores is for --best, without --check: ppcli plan CONFIG "
                       "--best --cores %d",
                       a->cores);
    if (a->machine && (a->best || a->check))
        return pp_fail(PP_EUSAGE, "--best and --check measure this machine: leave out --machine");
    if (a->machine)
        return plan_machine(a);
    if (a->best || a->check || a->memory) {
        a->best = a->best || a->check;
        return plan_best(a);
    }
    if (!pp_launch_speaks())
        return 0;
    if (a->par)
        return plan_mark(a);
    PP_OWN(plan_request_fini) struct plan_request q = {.times = pp_format_times(a->format)};
    PP_TRY(plan_check_file("--html", a->html));
    PP_TRY(plan_request_make(a, &q));
    struct pp_planned planned = {q.plan, &q.costs.costs, q.bytes, q.g.memory_cap};
    int rc = a->html ? pp_file_draw(a->html, pp_workbench_write, &planned)
                     : pp_format_print(a->format, &planned, &a->look, a->output);
    return pp_cli_name_file(rc, a->html ? a->html : a->output);
}

int cmd_plan(int argc, char **argv)
{
    struct plan_asked asked;
    PP_TRY(parse_words(argc, argv, &asked));
    return find_plan(&asked);
}
