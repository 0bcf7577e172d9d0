/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli plan --profile: a pipeline that was measured elsewhere. */
#include "plan.h"

#include "ppcli/base/files.h"
#include "ppcli/show/results.h"
#include "ppcli/base/base.h"

int plan_profile(const struct plan_asked *a)
{
    PP_OWN(pp_profile_close) struct pp_profile *p = NULL;
    PP_OWN(pp_profile_fit_fini) struct pp_profile_fit f = {0};
    PP_OWN_MEMORY struct pp_profile_other *others = NULL;
    size_t memory = 0;
    bool json;
    char word[2 * PP_PATH_MAX];
    if (!a->profile)
        return pp_fail(PP_EUSAGE,
                       "--against is for --profile: ppcli plan --profile PATH --against %s",
                       pp_text_shell(a->against, word, sizeof(word)));
    if (a->config || a->csv || a->best || a->check || a->machine)
        return pp_fail(PP_EUSAGE,
                       "--profile is a plan by itself: no CONFIG, --csv, --best, --check or "
                       "--machine");
    if (a->against && a->html)
        return pp_fail(PP_EUSAGE, "--html draws --profile alone: leave out --against");
    if (!plan_prints_result(a, &json))
        return pp_fail(PP_EUSAGE, "--profile prints text, or --format json; --html FILE draws it");
    if (a->memory && !pp_bytes_parse(a->memory, &memory))
        return pp_fail(PP_EUSAGE, "--memory wants " PP_BYTES_FORMS ", not '%s'", a->memory);
    PP_TRY(pp_profile_read(a->profile, &p));
    PP_TRY(pp_profile_fit_make(p, &f));
    struct pp_profiled s = {.p = p, .f = &f};
    if (a->against)
        return pp_profiled_against(&s, a->against, json, stdout);
    PP_TRY(pp_profile_others(p, &f, (double)memory, &others, &s.n));
    s.others = others;
    if (a->html)
        PP_TRY(pp_file_draw(a->html, pp_profiled_page, &s));
    return pp_profiled_print(&s, json, stdout);
}
