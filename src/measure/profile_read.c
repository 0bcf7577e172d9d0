/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the files of a measured pipeline: finds them and their ranks, and reads all that are not
 * traces. */
#include "profile_read.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "ppcli/data/dataset.h"

#define FILES_MAX 65536
#define STAGES_MAX 65536
#define COUNT_MAX (1 << 20) /* micro-batches, ranks */

int profile_add(struct profile_input *in, const struct profile_event *e)
{
    bool unnamed = e->stage < 0 && e->op < PP_OPS;
    bool large = e->stage >= STAGES_MAX || e->mb >= COUNT_MAX || e->rank >= COUNT_MAX;
    if (large || e->mb < 0 || e->rank < -1 || e->stage < -2 || !(e->end >= e->start))
        return pp_fail(PP_EFORMAT,
                       "action %d of a profile: stage %d, micro-batch %d, from %g to %g s: not an "
                       "action of a pipeline",
                       in->n + 1, e->stage, e->mb, e->start, e->end);
    if (unnamed && e->stage == -1 && in->n > 0 && in->events[0].stage != -1)
        return pp_fail(PP_EFORMAT, "files of different programs in one profile");
    PP_RESERVE(in->events, in->n, in->room);
    in->events[in->n++] = *e;
    return 0;
}

void profile_input_fini(struct profile_input *in)
{
    pp_free(in->events);
    pp_free(in->notes);
}

/* Returns the number after the last `word` in a file's name; -1 if there is none. */
static int number_after(const char *name, const char *word)
{
    int found = -1;
    for (const char *at = name; (at = strstr(at, word));) {
        at += strlen(word);
        found = at[0] >= '0' && at[0] <= '9' ? atoi(at) : found;
    }
    return found;
}

/* ---- Megatron: {"forward-3-start": 12.5, "backward-1-3-end": ...}, the number of a chunk first */

static int take_timer(struct profile_input *in, int rank, int stages, const char *key, double start,
                      double end)
{
    int chunk = 0, mb = 0;
    struct profile_event e = {.start = start * 1e-3, .end = end * 1e-3, .rank = rank};
    e.op = key[0] == 'f' ? PP_OP_F : PP_OP_B;
    const char *numbers = strchr(key, '-') + 1;
    if (sscanf(numbers, "%d-%d", &chunk, &mb) < 2) {
        mb = chunk;
        chunk = 0;
    }
    e.stage = chunk * stages + rank;
    e.mb = mb;
    in->source = "Megatron's timer";
    return chunk < 0 || mb < 0 ? 0 : profile_add(in, &e);
}

static int read_timer(const char *path, const char *text, size_t bytes, struct profile_input *in)
{
    json_t *o = NULL, *value;
    const char *key, *name = strrchr(path, '/') ? strrchr(path, '/') : path;
    int rank = number_after(name, "pp_rank_"), stages = number_after(name, "_PP"), rc = 0;
    PP_TRY(pp_json_load(text, bytes, JSON_DECODE_INT_AS_REAL, NULL, &o));
    json_object_foreach(o, key, value)
    {
        char other[64];
        size_t n = strlen(key);
        bool known = strncmp(key, "forward-", 8) == 0 || strncmp(key, "backward-", 9) == 0;
        if (rc < 0 || !known || n > 60 || strcmp(key + n - 6, "-start") != 0)
            continue;
        snprintf(other, sizeof(other), "%.*s-end", (int)n - 6, key);
        const json_t *end = json_object_get(o, other);
        if (json_is_number(value) && json_is_number(end))
            rc =
                take_timer(in, rank, stages, key, json_number_value(value), json_number_value(end));
    }
    json_decref(o);
    return rc;
}

/* ---- tables */

static int read_table(const char *path, char *text, struct profile_input *in)
{
    int line = 1;
    char *rest = text;
    (void)strsep(&rest, "\n");
    for (char *row; (row = strsep(&rest, "\n")); line++) {
        struct profile_event e = {.step = -1};
        char letter = 0;
        if (row[strspn(row, " \t\r")] == '\0')
            continue;
        int n =
            sscanf(row, "%d,%d%c%d,%lf,%lf", &e.rank, &e.stage, &letter, &e.mb, &e.start, &e.end);
        const char *op = letter ? strchr("FIWB", letter) : NULL;
        if (n != 6 || !op || e.rank < 0 || e.stage < 0 || e.mb < 0 || !(e.end >= e.start))
            return pp_fail(PP_EFORMAT,
                           "%s:%d: write rank,action,start_ms,end_ms as in 0,0F3,12.5,14", path,
                           line + 1);
        e.op = (int)(op - "FIWB");
        e.start *= 1e-3;
        e.end *= 1e-3;
        PP_TRY(profile_add(in, &e));
    }
    in->source = "a table";
    return 0;
}

/* ---- files */

static int read_config(const char *folder, struct profile_input *in)
{
    char path[PP_PATH_MAX];
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    json_t *o = NULL;
    PP_TRY(pp_path_format(path, "%s/config.json", folder));
    if (pp_file_read(path, 1 << 20, &text, &bytes) < 0) {
        pp_error_clear();
        return 0;
    }
    PP_TRY(pp_json_load(text, bytes, 0, NULL, &o));
    in->chunks = (int)json_integer_value(json_object_get(o, "vp_size"));
    in->stages = (int)json_integer_value(json_object_get(o, "pp_size"));
    json_decref(o);
    return 0;
}

/* Refuses the events from `from` on if their rank has been read before. */
static int check_once(const char *path, const struct profile_input *in, int from)
{
    int rank = in->n > from ? in->events[from].rank : -1;
    for (int i = 0; i < from && rank >= 0; i++)
        if (in->events[i].rank == rank)
            return pp_fail(PP_EFORMAT,
                           "%s is of rank %d, and so is another file: put the files of one "
                           "recording in a folder of their own, one of each rank",
                           path, rank);
    return 0;
}

static int read_file(const char *path, int number, struct profile_input *in)
{
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    int before = in->n;
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    PP_TRY(pp_source_text(path, &text, &bytes));
    int rank = number_after(name, "rank");
    rank = rank < 0 ? number_after(name, "rank_") : rank;
    char *begin = text + pp_text_bom(text);
    if (strncmp(begin, "rank,", 5) == 0)
        return read_table(path, begin, in);
    if (strncmp(name, "event_times_PP", 14) == 0)
        return read_timer(path, text, bytes, in);
    PP_TRY(profile_trace_read(path, text, bytes, rank < 0 ? number : rank, in));
    if (in->n > before)
        return check_once(path, in, before);
    return pp_fail(PP_EFORMAT,
                   "%s has no actions of a pipeline: PyTorch marks them as PP:0F3, and its "
                   "profiler must have run while step() did",
                   path);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_profile_name(const char *name)
{
    return strcmp(name, "config.json") != 0 &&
           (pp_text_ends(name, ".json") || pp_text_ends(name, ".json.gz") ||
            pp_text_ends(name, ".csv"));
}

static int list_folder(const char *folder, char ***names, int *n)
{
    PP_OWN(pp_closedir_at) DIR *d = opendir(folder);
    int room = 0;
    if (!d)
        return pp_fail_errno(0, "cannot read %s", folder);
    for (struct dirent *e; (e = readdir(d)) && *n < FILES_MAX;) {
        if (!is_profile_name(e->d_name))
            continue;
        PP_RESERVE(*names, *n, room);
        PP_TRY(((*names)[*n] = pp_strdup(e->d_name)) ? 0 : PP_ERESOURCE);
        ++*n;
    }
    if (*n == 0)
        return pp_fail(PP_ENOINPUT,
                       "%s has no .json, .json.gz or .csv: the files of a profile, one a rank",
                       folder);
    qsort(*names, (size_t)*n, sizeof(**names), by_name);
    return 0;
}

static int read_folder(const char *folder, struct profile_input *in)
{
    char path[PP_PATH_MAX];
    struct stat st;
    char **names = NULL;
    int n = 0;
    PP_TRY(pp_path_format(path, "%s/timeline.json", folder));
    if (stat(path, &st) == 0)
        return read_file(path, 0, in);
    PP_TRY(read_config(folder, in));
    int rc = list_folder(folder, &names, &n);
    for (int k = 0; rc == 0 && k < n; k++) {
        rc = pp_path_format(path, "%s/%s", folder, names[k]);
        rc = rc < 0 ? rc : read_file(path, k, in);
    }
    for (int k = 0; k < n; k++)
        pp_free(names[k]);
    pp_free(names);
    return rc;
}

int profile_input_read(const char *path, struct profile_input *in)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? read_folder(path, in)
                                                       : read_file(path, 0, in);
}
