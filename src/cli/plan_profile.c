/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli plan --profile: a pipeline that was measured elsewhere. */
#include "plan.h"

#include <string.h>

#include "ppcli/io.h"
#include "ppcli/results.h"

int plan_profile(const struct plan_profile_words *w, const char *format)
{
    PP_OWN(pp_profile_close) struct pp_profile *p = NULL;
    PP_OWN(pp_profile_fit_fini) struct pp_profile_fit f = {0};
    PP_OWN_MEMORY struct pp_profile_other *others = NULL;
    struct pp_profiled s = {.f = &f};
    size_t memory = 0;
    bool json = strcmp(format, "json") == 0;
    if (!json && strcmp(format, "grid") != 0)
        return pp_fail(PP_EUSAGE, "--profile prints text, or --format json; --html FILE draws it");
    if (w->memory && !pp_bytes_parse(w->memory, &memory))
        return pp_fail(PP_EUSAGE, "--memory wants " PP_BYTES_FORMS ", not '%s'", w->memory);
    PP_TRY(pp_profile_read(w->path, &p));
    PP_TRY(pp_profile_fit_make(p, &f));
    s.p = p;
    if (w->against)
        return pp_profiled_against(&s, w->against, json, stdout);
    PP_TRY(pp_profile_others(p, &f, (double)memory, &others, &s.n));
    s.others = others;
    if (w->html)
        PP_TRY(pp_file_draw(w->html, pp_profiled_page, &s));
    return pp_profiled_print(&s, json, stdout);
}
