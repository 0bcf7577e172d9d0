/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces pattern.c in a build without PCRE2: vocabularies without a pattern still work. */
#include "ppcli/base/base.h"
#include "tokenizer.h"

int pattern_create(const char *label, const char *regex, struct pattern **out)
{
    return pp_fail(PP_ERESOURCE,
                   "%s: cuts text by a pattern, and this ppcli was built without PCRE2 (Debian: "
                   "libpcre2-dev)",
                   label);
}

void pattern_destroy(struct pattern **p)
{
}

int pattern_match_create(struct pattern_match **out)
{
    return 0;
}

void pattern_match_destroy(struct pattern_match **m)
{
}

int pattern_find(const struct pattern *p, struct pattern_match *m, const char *text, size_t end,
                 size_t from, size_t *out_at, size_t *out_to)
{
    return pp_fail(PP_EINTERNAL, "a pattern without PCRE2");
}
