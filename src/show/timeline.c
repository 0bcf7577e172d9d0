/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.json: trace events of one measured step (pid = rank) and of the same step simulated
 * (pid = 10000 + rank). A trace of many steps gives one of them, from its middle.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/sim/trace.h"
#include "ppcli/base/base.h"
#include "report.h"

#define SLICES_MAX 400000 /* of one half */

/* Kinds that the page knows by these letters; '-' is any other. */
static const struct {
    const char *category;
    char letter;
} kinds[] = {
    {"F", 'F'},      {"I", 'I'},      {"W", 'W'},    {"B", 'B'},       {"R", 'R'},
    {"update", 'u'}, {"clip", 'c'},   {"recv", 'r'}, {"send", 's'},    {"reduce", 'd'},
    {"slot", 'l'},   {"meet", 'm'},   {"vote", 'v'}, {"release", 'f'}, {"G", 'G'},
    {"T", 'T'},      {"gather", 'g'},
};

static char kind_of(const char *category)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(kinds[i].category, category) == 0)
            return kinds[i].letter;
    return '-';
}

static int read_whole(const json_t *o, const char *key)
{
    double value = report_number(o, key);
    return value >= 0 && value < 1e9 ? (int)value : -1;
}

static int add_slice(struct pp_report *r, const json_t *o)
{
    const json_t *args = json_object_get(o, "args");
    int pid = read_whole(o, "pid");
    struct report_half *h = pid >= PP_CHROME_SIMULATED ? &r->simulated : &r->measured;
    struct report_slice s = {
        .start = report_number(o, "ts") * 1e-6,
        .length = report_number(o, "dur") * 1e-6,
        .rank = pid >= PP_CHROME_SIMULATED ? pid - PP_CHROME_SIMULATED : pid,
        .mb = read_whole(args, "microbatch"),
        .chunk = read_whole(args, "chunk"),
        .stage = read_whole(args, "stage"),
        .step = read_whole(args, "step"),
        .kind = kind_of(report_text(o, "cat")),
    };
    if (s.rank < 0 || s.rank >= PP_CHROME_SIMULATED || isnan(s.start) || !(s.length >= 0))
        return 1;
    if (report_number(args, "eval") > 0)
        return 0;
    if (h->n >= SLICES_MAX) {
        r->lost[REPORT_TIMELINE].beyond++;
        return 0;
    }
    PP_RESERVE(h->slices, h->n, h->capacity);
    h->slices[h->n++] = s;
    return 0;
}

int report_take_event(struct pp_report *r, json_t *o)
{
    if (strcmp(report_text(o, "ph"), "X") == 0)
        return add_slice(r, o);
    if (!r->timeline && strcmp(report_text(o, "name"), "ppcli") == 0)
        r->timeline = json_incref(json_object_get(o, "args"));
    return 0;
}

static void keep_one_step(struct report_half *h)
{
    int first = -1, last = -1, kept = 0;
    for (int i = 0; i < h->n; i++) {
        int step = h->slices[i].step;
        first = step >= 0 && (first < 0 || step < first) ? step : first;
        last = step > last ? step : last;
    }
    for (int i = 0; i < h->n; i++)
        if (first == last || h->slices[i].step == first + (last - first) / 2)
            h->slices[kept++] = h->slices[i];
    h->n = kept;
}

static int compare_slices(const void *a, const void *b)
{
    const struct report_slice *x = a, *y = b;
    return x->rank != y->rank ? x->rank - y->rank : (x->start > y->start) - (x->start < y->start);
}

static void end_half(struct report_half *h)
{
    double first = INFINITY;
    keep_one_step(h);
    if (h->n > 0)
        qsort(h->slices, (size_t)h->n, sizeof(*h->slices), compare_slices);
    for (int i = 0; i < h->n; i++)
        first = fmin(first, h->slices[i].start);
    for (int i = 0; i < h->n; i++) {
        struct report_slice *s = &h->slices[i];
        s->start -= first;
        h->span = fmax(h->span, s->start + s->length);
        h->ranks = s->rank + 1;
    }
}

void report_end_timeline(struct pp_report *r)
{
    end_half(&r->measured);
    end_half(&r->simulated);
}
