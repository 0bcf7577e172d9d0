/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the list of changes by --allow from the text in struct pp_ckpt_state. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/runlog/runlog.h"

/* Splits a line such as "30\ttrain.lr\t0.01\t0.001"; returns false if it has another form. *out
 * points into the line. */
static bool read_change(char *line, struct pp_change *out)
{
    char *words[4], *rest = line, *end = NULL;
    for (int i = 0; i < 4; i++)
        if (!(words[i] = strsep(&rest, "\t")) || !words[i][0])
            return false;
    errno = 0;
    out->step = strtoll(words[0], &end, 10);
    out->key = words[1];
    out->was = words[2];
    out->is = words[3];
    return errno == 0 && *end == '\0' && out->step >= 0 && !rest;
}

int pp_changes_visit(const char *changes, void (*visit)(void *ctx, const struct pp_change *c),
                     void *ctx)
{
    PP_OWN_MEMORY char *copy = pp_strdup(changes ? changes : "");
    if (!copy)
        return PP_ERESOURCE;
    for (char *rest = copy, *line; rest && *rest && (line = strsep(&rest, "\n"));) {
        struct pp_change c;
        if (!read_change(line, &c))
            return pp_fail(PP_EFORMAT, "changes of the checkpoint: not a step, key and two values");
        visit(ctx, &c);
    }
    return 0;
}
