/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares metrics.jsonl for a resumed run: removes the records of steps that will be repeated. */
#include <errno.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/runlog/runlog.h"

/* Decides whether to keep a line of metrics.jsonl: it must be complete, and not of a step after
 * `step`. */
static int check_line(const char *line, size_t n, int64_t step, bool *out_keep)
{
    static const struct pp_json_limits limits = {8, 1 << 24, 1 << 20};
    json_auto_t *o = NULL;
    *out_keep = false;
    if (n == 0 || line[n - 1] != '\n')
        return 0; /* its writer was killed */
    int rc = pp_json_read("metrics.jsonl", line, n, &limits, &o);
    if (rc < 0)
        return rc == PP_EFORMAT ? 0 : rc;
    const char *type = json_string_value(json_object_get(o, "type"));
    json_t *at = json_object_get(o, "step");
    /* changes are written from the checkpoint */
    *out_keep =
        type && strcmp(type, "change") != 0 &&
        (strcmp(type, "header") == 0 || (json_is_integer(at) && json_integer_value(at) <= step));
    return 0;
}

static int copy_lines(FILE *from, FILE *to, int64_t step, const char *path)
{
    PP_OWN_MEMORY char *line = NULL;
    size_t capacity = 0;
    int rc = 0;
    errno = 0;
    for (ssize_t n; rc == 0 && (n = getline(&line, &capacity, from)) > 0; errno = 0) {
        bool keep = false;
        rc = check_line(line, (size_t)n, step, &keep);
        if (keep)
            fwrite(line, 1, (size_t)n, to);
    }
    /* End of file, and not a line too long for memory. */
    if (rc == 0 && !feof(from))
        rc = pp_fail_errno(0, "cannot read %s", path);
    return rc;
}

int pp_metrics_cut(const char *dir, int64_t step, struct pp_file_write *out)
{
    char path[PP_PATH_MAX];
    out->f = NULL;
    PP_TRY(pp_path_format(path, "%s/metrics.jsonl", dir));
    PP_OWN(pp_fclose_at) FILE *f = NULL;
    uint64_t bytes = 0;
    int rc = pp_file_open(path, &f, &bytes);
    if (rc == PP_ENOINPUT) {
        pp_error_clear();
        return 0;
    }
    PP_TRY(rc);
    PP_TRY(pp_file_create(path, out));
    PP_TRY_UNDO(copy_lines(f, out->f, step, path), pp_file_abandon(out));
    return 0;
}
