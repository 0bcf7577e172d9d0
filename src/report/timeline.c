/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline.json: trace events, one a line, of one measured step (pid = rank) and of the same step
 * simulated (pid = 10000 + rank). Read line by line, so that a file whose end is missing still
 * shows what there is.
 */
#include <math.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "report.h"

#define SIMULATED_PID 10000
#define SLICES_MAX 400000 /* of one half; a picture cannot show more anyway */

static const struct {
    const char *category;
    enum report_kind kind;
} kinds[] = {
    {"F", REPORT_F},         {"I", REPORT_I},           {"W", REPORT_W},
    {"B", REPORT_B},         {"update", REPORT_UPDATE}, {"reduce", REPORT_REDUCE},
    {"clip", REPORT_REDUCE}, {"meet", REPORT_WAIT},     {"slot", REPORT_WAIT},
    {"recv", REPORT_WAIT},   {"send", REPORT_SEND},     {"vote", REPORT_WAIT},
};

struct reader {
    struct pp_report *r;
    int damaged;
    bool full;
};

static enum report_kind kind_of(const char *category)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].category, category) == 0) {
            return kinds[i].kind;
        }
    }
    return REPORT_SEND;
}

static int whole(const json_t *o, const char *key)
{
    double value = report_number(o, key);
    return value >= 0 && value < 1e9 ? (int)value : -1;
}

static int add_slice(struct reader *rd, const json_t *o)
{
    const json_t *args = json_object_get(o, "args");
    struct report_timeline *t = &rd->r->timeline;
    int pid = whole(o, "pid");
    struct report_half *h = pid >= SIMULATED_PID ? &t->simulated : &t->measured;
    struct report_slice s = {
        .start = report_number(o, "ts") * 1e-6,
        .length = report_number(o, "dur") * 1e-6,
        .rank = pid >= SIMULATED_PID ? pid - SIMULATED_PID : pid,
        .mb = whole(args, "microbatch"),
        .chunk = whole(args, "chunk"),
        .stage = whole(args, "stage"),
        .kind = kind_of(report_text(o, "cat")),
    };
    if (s.rank < 0 || s.rank >= SIMULATED_PID || isnan(s.start) || !(s.length >= 0)) {
        return 1;
    }
    if (report_number(args, "eval") > 0) {
        return 0;
    }
    if (h->n >= SLICES_MAX) {
        rd->full = true;
        return 0;
    }
    if (h == &t->measured && h->n == 0) {
        t->step = report_number(args, "step");
    }
    snprintf(s.name, sizeof(s.name), "%s", report_text(o, "name"));
    void *grown = report_grow(h->slices, h->n, &h->capacity, sizeof(*h->slices));
    if (!grown) {
        return PP_ERESOURCE;
    }
    h->slices = grown;
    h->slices[h->n++] = s;
    h->ranks = s.rank >= h->ranks ? s.rank + 1 : h->ranks;
    return 0;
}

/* "[", "{...},", ",{...}" or "]" */
static int timeline_line(void *ctx, char *text, size_t bytes)
{
    struct reader *rd = ctx;
    while (text && bytes > 0 && strchr(" \t\r,]", text[bytes - 1])) {
        bytes--;
    }
    while (text && bytes > 0 && strchr(" \t\r,[", *text)) {
        text++;
        bytes--;
    }
    if (bytes == 0) {
        return 0;
    }
    json_t *o = NULL;
    PP_TRY(report_json(text, bytes, &o));
    struct report_timeline *t = &rd->r->timeline;
    int rc = json_is_object(o) ? 0 : 1;
    if (rc == 0 && strcmp(report_text(o, "ph"), "X") == 0) {
        rc = add_slice(rd, o);
    } else if (rc == 0 && !t->head && strcmp(report_text(o, "name"), "ppcli") == 0) {
        t->head = json_incref(json_object_get(o, "args"));
    }
    json_decref(o);
    rd->damaged += rc > 0;
    return rc < 0 ? rc : 0;
}

/* Times from the first start on; the span to the last end. */
static void start_at_zero(struct report_half *h)
{
    double first = INFINITY;
    for (int i = 0; i < h->n; i++) {
        first = fmin(first, h->slices[i].start);
    }
    for (int i = 0; i < h->n; i++) {
        h->slices[i].start -= first;
        h->span = fmax(h->span, h->slices[i].start + h->slices[i].length);
    }
}

int report_read_timeline(struct pp_report *r)
{
    char path[PP_PATH_MAX];
    struct reader rd = {.r = r};
    PP_TRY(pp_path_format(path, "%s/timeline.json", r->dir));
    PP_TRY(report_lines(path, timeline_line, &rd));
    start_at_zero(&r->timeline.measured);
    start_at_zero(&r->timeline.simulated);
    if (rd.damaged > 0) {
        report_note(r, "%d line%s of timeline.json could not be read and %s left out.", rd.damaged,
                    rd.damaged == 1 ? "" : "s", rd.damaged == 1 ? "is" : "are");
    }
    if (rd.full) {
        report_note(r, "timeline.json has more than %d actions; the rest is left out.", SLICES_MAX);
    }
    if (r->timeline.measured.n == 0 && rd.damaged == 0) {
        report_note(r, "timeline.json holds no measured step, so none is shown.");
    }
    return 0;
}
