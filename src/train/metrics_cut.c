/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.jsonl of a run that goes on: what it told of steps that will be done again is taken out.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "metrics.h"
#include "ppcli/err.h"

/* A line that the run before has finished, and of no later step. */
static bool keep(const char *line, size_t n, int64_t step)
{
    if (n == 0 || line[n - 1] != '\n') {
        return false; /* torn by the end of its writer */
    }
    json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const char *type = json_string_value(json_object_get(o, "type"));
    json_t *at = json_object_get(o, "step");
    bool kept = type && (strcmp(type, "header") == 0 ||
                         (json_is_integer(at) && json_integer_value(at) <= step));
    json_decref(o);
    return kept;
}

static int copy(FILE *from, FILE *to, int64_t step)
{
    char *line = NULL;
    size_t room = 0;
    for (ssize_t n; (n = getline(&line, &room, from)) > 0;) {
        if (keep(line, (size_t)n, step)) {
            fwrite(line, 1, (size_t)n, to);
        }
    }
    free(line);
    return ferror(from) ? PP_EIO : 0;
}

int metrics_cut(const char *dir, int64_t step)
{
    char path[PP_PATH_MAX];
    struct pp_file_write w;
    PP_TRY(pp_path_format(path, "%s/metrics.jsonl", dir));
    FILE *f = fopen(path, "re");
    if (!f && errno == ENOENT) {
        return 0;
    }
    if (!f) {
        return pp_fail_errno(0, "cannot read %s", path);
    }
    int rc = pp_file_create(path, &w);
    if (rc == 0) {
        rc = copy(f, w.f, step);
        if (rc < 0) {
            rc = pp_fail_errno(PP_EIO, "cannot read %s", path);
            pp_file_abandon(&w);
        } else {
            rc = pp_file_commit(&w);
        }
    }
    fclose(f);
    return rc;
}
