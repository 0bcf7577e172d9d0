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

struct link_row {
    double size, time, algbw, busbw;
    bool reduces;
};

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

int conf_nccl_tests_read(const char *path, struct pp_link *out)
{
    struct link_row first = {0}, largest = {0}, row;
    char line[512];
    bool has_root = true;
    FILE *f = fopen(path, "r");
    if (!f)
        return pp_fail_errno(0, "%s", path);
    while (fgets(line, sizeof(line), f)) {
        if (line[strspn(line, " \t")] == '#') {
            has_root = strstr(line, "redop") ? strstr(line, " root ") != NULL : has_root;
            continue;
        }
        if (!read_row(line, has_root, &row))
            continue;
        first = first.size == 0 || row.size < first.size ? row : first;
        largest = row.size > largest.size ? row : largest;
    }
    fclose(f);
    if (!(largest.busbw > 0))
        return pp_fail(PP_ECONFIG,
                       "%s: no rows of nccl-tests: size count type redop root time algbw busbw",
                       path);
    *out = (struct pp_link){.latency = first.time * 1e-6 / count_hops(&largest),
                            .byte = 1e-9 / largest.busbw};
    return 0;
}
