/* SPDX-License-Identifier: Apache-2.0 */
#include "ppcli/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "ppcli/err.h"
#include "ppcli/json.h"

/* C0, DEL, and C1, which in UTF-8 is c2 80 to c2 9f: 9b is what ESC [ is. */
static bool is_control(const unsigned char *s)
{
    return s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0);
}

char *pp_text_plain(char *text)
{
    for (char *p = text; *p;) {
        int n = pp_utf8_length(p);
        bool bad = n == 0 || is_control((unsigned char *)p);
        for (n = n ? n : 1; n > 0; n--, p++) {
            *p = bad ? '?' : *p;
        }
    }
    return text;
}

const char *pp_text_shown(const char *text, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", text);
    return pp_text_plain(out);
}

int pp_text_close(FILE *f, char **text, const char *label)
{
    bool failed = ferror(f) != 0;
    failed = fclose(f) != 0 || failed;
    if (!failed && *text) {
        return 0;
    }
    free(*text);
    *text = NULL;
    return pp_fail(PP_ERESOURCE, "%s: out of memory", label);
}
