/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what nccl-tests printed about a link: rows of size (bytes), count, type, redop, root, time
 * (us), algbw and busbw (GB/s) of all_reduce_perf, sendrecv_perf and the like. busbw is the rate of
 * one rank for large messages; the time of small messages is that of the hops, whose number follows
 * from busbw / algbw: 2 (n - 1) / n is an all-reduce of n ranks, (n - 1) / n one round, 1 a
 * message.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conf.h"
#include "ppcli/base/files.h"

struct link_row {
    double size, time, algbw, busbw;
    bool reduces;
};

struct link_rows {
    struct link_row first, largest;
};

static void take_link_row(struct link_rows *rows, const struct link_row *r)
{
    rows->first = rows->first.size == 0 || r->size < rows->first.size ? *r : rows->first;
    rows->largest = r->size > rows->largest.size ? *r : rows->largest;
}

/* ---- what is printed: text, or the same as CSV */

/* Returns the line behind the name of a rank, which launchers put in front: "[1,0]<stdout>:" of
 * mpirun --tag-output, "[0] " of mpiexec -prepend-rank, "0: " of srun --label. */
static char *skip_rank_name(char *line)
{
    char *at = line + strspn(line, " \t");
    size_t digits = strspn(at, "0123456789");
    if (digits > 0 && at[digits] == ':')
        return at + digits + 1;
    if (*at != '[' || !(at = strchr(at, ']')))
        return line;
    at++;
    if (*at == '<' && strchr(at, '>'))
        at = strchr(at, '>') + 1;
    return at + (*at == ':');
}

static bool read_row(const char *line, bool has_root, struct link_row *out)
{
    char redop[32];
    int at = 0;
    if (sscanf(line, "%lf %*s %*s %31s %n", &out->size, redop, &at) < 2 || at == 0)
        return false;
    if (has_root)
        at += (int)strcspn(line + at, " \t");
    out->reduces = strcmp(redop, "none") != 0;
    return sscanf(line + at, "%lf %lf %lf", &out->time, &out->algbw, &out->busbw) == 3 &&
           out->size > 0 && out->time > 0 && out->algbw >= 0 && out->busbw >= 0;
}

static double count_hops(const struct link_row *r)
{
    double factor = r->algbw > 0 ? r->busbw / r->algbw : 1;
    if (r->reduces && factor > 0.99 && factor < 1.999)
        return 2 * factor / (2 - factor);
    return factor < 0.99 ? factor / (1 - factor) : 1;
}

static void read_link_lines(char *text, struct link_rows *out)
{
    struct link_row row;
    bool has_root = true;
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        line = skip_rank_name(line);
        for (char *c = line; *c; c++)
            *c = *c == ',' || *c == '\r' ? ' ' : *c;
        if (strstr(line, "redop"))
            has_root = strstr(line, " root ") != NULL;
        else if (line[strspn(line, " \t")] != '#' && read_row(line, has_root, &row))
            take_link_row(out, &row);
    }
}

/* ---- JSON, which `-J FILE` writes */

static int read_link_json(const char *text, struct link_rows *out)
{
    json_t *root = NULL, *o;
    size_t i;
    PP_TRY(pp_json_load(text, strlen(text), JSON_DECODE_INT_AS_REAL, NULL, &root));
    json_array_foreach(json_object_get(root, "results"), i, o)
    {
        const json_t *at = json_object_get(o, "out_of_place");
        const char *redop = json_string_value(json_object_get(o, "redop"));
        at = json_is_object(at) ? at : json_object_get(o, "in_place");
        const struct link_row row = {
            .size = json_number_value(json_object_get(o, "size")),
            .time = json_number_value(json_object_get(at, "time")),
            .algbw = json_number_value(json_object_get(at, "alg_bw")),
            .busbw = json_number_value(json_object_get(at, "bus_bw")),
            .reduces = redop && strcmp(redop, "none") != 0,
        };
        if (row.size > 0 && row.time > 0 && row.algbw >= 0 && row.busbw >= 0)
            take_link_row(out, &row);
    }
    json_decref(root);
    return 0;
}

int conf_nccl_tests_read(const char *path, struct pp_link *out)
{
    struct link_rows rows = {.first = {.size = 0}};
    char *text = NULL;
    size_t room = 0;
    FILE *f = fopen(path, "r");
    if (!f)
        return pp_fail_errno(0, "%s", path);
    bool has_text = getdelim(&text, &room, '\0', f) > 0;
    char *at = has_text ? text + pp_text_bom(text) : NULL;
    bool is_json = at && at[strspn(at, " \t\r\n")] == '{';
    int rc = is_json ? read_link_json(at, &rows) : 0;
    if (at && !is_json)
        read_link_lines(at, &rows);
    free(text);
    fclose(f);
    PP_TRY(rc);
    if (!(rows.largest.busbw > 0))
        return pp_fail(PP_ECONFIG,
                       "%s: no rows of nccl-tests: size count type redop root time algbw busbw",
                       path);
    *out = (struct pp_link){.latency = rows.first.time * 1e-6 / count_hops(&rows.largest),
                            .byte = 1e-9 / rows.largest.busbw};
    return 0;
}
