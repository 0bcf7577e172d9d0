/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli plan: a schedule at a shape, proved, simulated and drawn. The shape comes from options, or
 * from a config with options on top; nothing is trained and no data is needed.
 */
#include "plan.h"

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"

/* the names of the formats in show/plan_formats.c, in their order */
#define FORMATS "grid|csv|csv-comms|csv-torch|json|svg|trace|page|pdf|png"

struct words {
    struct plan_asked asked;
    struct pp_look look;
    const char *html, *output;
    int format;
};

static int parse_words(int argc, char **argv, struct words *w)
{
    struct plan_asked *a = &w->asked;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &w->format, FORMATS, "what to print"},
        {"output", 'o', PP_CLI_STRING, &w->output, "FILE",
         "write it here; .svg, .pdf, .png: a picture"},
        {"width", 0, PP_CLI_INT, &w->look.width, "N", "picture: pixels, 96 to an inch"},
        {"title", 0, PP_CLI_STRING, &w->look.title, "TEXT", "picture: this title; '': none"},
        {"html", 0, PP_CLI_STRING, &w->html, "FILE", "write a page to edit the plan in"},
        {"csv", 0, PP_CLI_STRING, &a->csv, "FILE", "read the plan from a table; -: standard input"},
#include "options_keys.def"
#include "options_costs.def"
        {0},
    };
    const char *words[1];
    PP_TRY(pp_cli_parse(argc, argv, &command_plan, options, &a->settings, words, 1));
    a->config = words[0];
    return 0;
}

/* Checks that -o, --width, --title and --html agree with each other and with --format. */
static int check_output(struct words *w)
{
    if (w->html && (w->output || w->format != 0))
        return pp_fail(PP_EUSAGE, "--html writes a page of its own: leave out %s",
                       w->output ? "-o" : "--format");
    if (w->output && w->format == 0)
        w->format = pp_format_of_file(w->output);
    if ((w->look.title || w->look.width) && (w->html || !pp_format_draws(w->format)))
        return pp_fail(PP_EUSAGE, "--width and --title are for pictures: add -o plan.svg");
    PP_TRY(pp_look_check(&w->look));
    return pp_cli_check_output("--html", w->html);
}

/* Checks that no rank of a table holds more micro-batches than --memory-cap allows. */
static int check_cap(const struct plan_request *q)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    int share = q->plan->geometry.chunks / q->plan->copies;
    if (!q->asked->csv || q->g.memory_cap <= 0)
        return 0;
    PP_TRY(pp_sim_run(q->plan, &q->costs.costs, false, &result));
    for (int r = 0; r < q->plan->geometry.stages; r++)
        if ((double)result.peak[r] / share > q->g.memory_cap)
            return pp_fail(
                PP_ECONFIG,
                "%s: row %d holds %g micro-batches of activations, --memory-cap allows %g",
                q->asked->csv, r + 1, (double)result.peak[r] / share, q->g.memory_cap);
    return 0;
}

int cmd_plan(int argc, char **argv)
{
    struct words w = {.format = 0};
    PP_TRY(parse_words(argc, argv, &w));
    PP_TRY(check_output(&w));
    PP_OWN(plan_request_fini) struct plan_request q = {.times = pp_format_times(w.format)};
    PP_TRY(plan_request_make(&w.asked, &q));
    PP_TRY(check_cap(&q));
    struct pp_planned planned = {q.plan, &q.costs.costs, q.bytes, q.g.memory_cap};
    int rc = w.html ? pp_file_draw(w.html, pp_workbench_write, &planned)
                    : pp_format_print(w.format, &planned, &w.look, w.output);
    return pp_cli_name_file(rc, w.html ? w.html : w.output);
}
