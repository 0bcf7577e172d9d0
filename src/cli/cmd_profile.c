/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli profile: explain a pipeline that was measured, and rank what else would have run. */
#include "command.h"

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "ppcli/show/results.h"

/* Prints how well the profile of s predicts another one. */
static int predict_profile(struct pp_profiled *s, const char *path, bool json)
{
    PP_OWN(pp_profile_close) struct pp_profile *to = NULL;
    PP_OWN(pp_profile_fit_fini) struct pp_profile_fit fit = {0};
    struct pp_row row = {.timed = false};
    PP_TRY(pp_profile_read(path, &to));
    PP_TRY(pp_profile_fit_make(to, &fit));
    PP_TAKE(double, memory, to->plan->geometry.stages);
    PP_TRY(pp_profile_predict(s->p, s->f, to->plan, &row, memory));
    s->to = to;
    s->measured = fit.step;
    s->predicted = row.time.step;
    s->memory = row.peak_bytes > 0 ? memory : NULL;
    return pp_profiled_print(s, json, stdout);
}

static int explain_profile(const char *path, const char *against, const char *html, size_t memory,
                           bool json)
{
    PP_OWN(pp_profile_close) struct pp_profile *p = NULL;
    PP_OWN(pp_profile_fit_fini) struct pp_profile_fit f = {0};
    PP_OWN(pp_rows_fini) struct pp_rows others = {.items = NULL};
    PP_TRY(pp_profile_read(path, &p));
    PP_TRY(pp_profile_fit_make(p, &f));
    struct pp_profiled s = {.p = p, .f = &f, .others = &others};
    if (against)
        return predict_profile(&s, against, json);
    PP_TRY(pp_profile_others(p, &f, memory, &others));
    if (html)
        PP_TRY(pp_file_draw(html, pp_profiled_page, &s));
    return pp_profiled_print(&s, json, stdout);
}

int cmd_profile(int argc, char **argv)
{
    const char *against = NULL, *html = NULL, *memory = NULL, *words[1];
    size_t bytes = 0;
    int json = 0;
    const struct pp_cli_option options[] = {
        {"format", 0, PP_CLI_CHOICE, &json, "text|json", "how to print; text"},
        {"memory", 0, PP_CLI_STRING, &memory, "BYTES", "leave out what needs more per rank (80Gi)"},
        {"html", 0, PP_CLI_STRING, &html, "FILE", "also draw the measured and the simulated step"},
        {"against", 0, PP_CLI_STRING, &against, "PATH", "predict this other profile from PATH"},
        {0},
    };
    PP_TRY(pp_cli_parse(argc, argv, &command_profile, options, NULL, words, 1));
    if (!words[0])
        return pp_fail(PP_EUSAGE,
                       "name a measured pipeline: a folder or a file. For example: ppcli profile "
                       "traces/");
    if (against && html)
        return pp_fail(PP_EUSAGE, "--html draws one profile: leave out --against");
    if (memory && !pp_bytes_parse(memory, &bytes))
        return pp_fail(PP_EUSAGE, "--memory needs " PP_BYTES_FORMS ", not '%s'", memory);
    return explain_profile(words[0], against, html, bytes, json);
}
