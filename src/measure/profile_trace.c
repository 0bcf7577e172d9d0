/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace events: of PyTorch's profiler and of ppcli; and Primus' dumps, which are objects too. A
 * text may be a gigabyte, so objects are cut out by their brackets and only those that can matter
 * are parsed.
 *
 * An action of torch.distributed.pipelining waits for its input inside of its mark, and its
 * messages are calls with marks of their own. Here the wait is taken off, as far as the receive can
 * be seen, and the calls are part of the action before them.
 */
#include "profile_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/sim/trace.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

struct trace {
    struct profile_input *in;
    int from;      /* its first event */
    int rank;      /* -1: the events say it */
    bool gpu;      /* has the device's times: those of the host do not count */
    bool overlaps; /* a forward and a backward may be one event */
};

const char *profile_object(const char *at, const char *end, size_t *bytes)
{
    const char *from = NULL;
    bool quoted = false;
    int depth = 0;
    for (; at < end; at++) {
        if (quoted) {
            at += *at == '\\';
            quoted = *at != '"';
        } else if (*at == '"') {
            quoted = true;
        } else if (*at == '{') {
            from = depth++ == 0 ? at : from;
        } else if (*at == '}' && depth > 0 && --depth == 0) {
            *bytes = (size_t)(at + 1 - from);
            return from;
        }
    }
    return NULL;
}

static double number_of(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    return fabs(x) < 1e300 ? x : NAN;
}

static int whole_of(const json_t *o, const char *key)
{
    double x = number_of(o, key);
    return x >= 0 && x < 1e6 ? (int)x : -1;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* Reads the name of an action or call, such as "0F3", "2SEND_F1" or "1UNSHARD"; returns false if it
 * is another text. */
static bool read_cell(const char *text, struct profile_event *e)
{
    static const struct {
        const char *name;
        int op;
    } kinds[] = {{"F", PP_OP_F},           {"I", PP_OP_I},           {"W", PP_OP_W},
                 {"B", PP_OP_B},           {"SEND_F", PROFILE_CALL}, {"SEND_B", PROFILE_CALL},
                 {"RECV_F", PROFILE_RECV}, {"RECV_B", PROFILE_RECV}, {"UNSHARD", PROFILE_BEGIN}};
    char *rest;
    e->stage = (int)strtol(text, &rest, 10);
    size_t n = strcspn(rest, "0123456789");
    for (size_t i = 0; rest > text && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strlen(kinds[i].name) == n && strncmp(rest, kinds[i].name, n) == 0) {
            e->op = kinds[i].op;
            e->mb = atoi(rest + n);
            if (e->op == PROFILE_RECV)
                e->step = rest[n - 1] == 'F' ? PP_OP_F : PP_OP_B; /* for whom */
            return true;
        }
    }
    return false;
}

/* Reads the name of a forward and a backward that are one action, such as "(0F3;3B1)OVERLAP_F_B". */
static bool read_overlap(const char *text, struct profile_event *f, struct profile_event *b)
{
    char cells[2][32];
    return sscanf(text, "(%31[^;];%31[^)])OVERLAP_F_B", cells[0], cells[1]) == 2 &&
           read_cell(cells[0], f) && read_cell(cells[1], b) && f->op == PP_OP_F &&
           (b->op == PP_OP_B || b->op == PP_OP_I);
}

static int take_torch(struct trace *t, const json_t *o, struct profile_event *e)
{
    const char *name = text_of(o, "name"), *category = text_of(o, "cat");
    struct profile_event second = *e;
    bool gpu = strcmp(category, "gpu_user_annotation") == 0, two = false;
    bool known = strncmp(name, "PP:", 3) == 0 && read_cell(name + 3, e);
    if (strncmp(name, "PP:(", 4) == 0)
        known = two = read_overlap(name + 3, e, &second);
    if (strncmp(name, "Forward ", 8) == 0 || strncmp(name, "Backward ", 9) == 0) {
        e->op = name[0] == 'F' ? PP_OP_F : PP_OP_B;
        e->mb = atoi(strchr(name, ' '));
        e->stage = -2; /* that of its rank */
        known = true;
    } else if (strcmp(name, "gloo:recv") == 0) {
        e->op = PROFILE_ARRIVAL;
        known = true;
    } else if (t->overlaps && strncmp(name, "autograd::engine", 16) == 0) {
        e->op = PROFILE_GRADIENT;
        known = true;
    }
    if (!known || (t->gpu && !gpu))
        return 0;
    if (gpu && !t->gpu)
        t->in->n = t->from;
    t->gpu = gpu;
    t->in->source = "PyTorch";
    PP_TRY(profile_add(t->in, e));
    return two ? profile_add(t->in, &second) : 0;
}

static int take_ppcli(struct trace *t, const json_t *o, const json_t *args, struct profile_event *e)
{
    const char *category = text_of(o, "cat"), *letter = strchr("FIWR", category[0]);
    e->rank = whole_of(o, "pid");
    e->stage = whole_of(args, "stage");
    e->mb = whole_of(args, "microbatch");
    e->step = whole_of(args, "step");
    if (!category[0] || category[1] || !letter || number_of(args, "eval") > 0 || e->stage < 0 ||
        e->mb < 0 || e->rank < 0 || e->rank >= PP_CHROME_SIMULATED)
        return 0;
    e->op = category[0] == 'R' ? PP_OP_R : (int)(letter - "FIWR");
    t->in->source = "ppcli";
    t->rank = -1;
    t->in->one_clock = true; /* ppcli has made them one */
    return profile_add(t->in, e);
}

/* Adds the events and notes of one iteration of a rank from Primus' dump. */
static int take_primus(struct trace *t, const json_t *o, int step)
{
    static const char *const keys[2][2] = {{"fwd_start", "fwd_end"}, {"bwd_start", "bwd_end"}};
    struct profile_input *in = t->in;
    PP_RESERVE(in->notes, in->n_notes, in->notes_room);
    in->notes[in->n_notes++] = (struct profile_note){t->rank, step, number_of(o, "total") * 1e-3,
                                                     number_of(o, "memory") * 0x1p30};
    for (int b = 0; b < 2; b++) {
        const json_t *from = json_object_get(o, keys[b][0]), *to = json_object_get(o, keys[b][1]);
        for (size_t k = 0; k < json_array_size(from); k++) {
            struct profile_event e = {.start = json_number_value(json_array_get(from, k)) * 1e-3,
                                      .end = json_number_value(json_array_get(to, k)) * 1e-3,
                                      .step = step,
                                      .stage = -1,
                                      .mb = (int)k,
                                      .op = b ? PP_OP_B : PP_OP_F};
            PP_TRY(profile_add(in, &e));
        }
    }
    in->source = "AMD Primus";
    return 0;
}

static int take_object(struct trace *t, const json_t *o, int number)
{
    const json_t *args = json_object_get(o, "args");
    struct profile_event e = {.start = number_of(o, "ts") * 1e-6, .step = -1, .rank = t->rank};
    e.end = e.start + number_of(o, "dur") * 1e-6;
    if (json_object_get(o, "fwd_start"))
        return take_primus(t, o, number);
    if (strcmp(text_of(o, "name"), "ppcli") == 0)
        snprintf(t->in->schedule, sizeof(t->in->schedule), "%s", text_of(args, "schedule"));
    if (json_object_get(o, "world_size") && whole_of(o, "rank") >= 0)
        t->rank = whole_of(o, "rank");
    if (strcmp(text_of(o, "ph"), "X") != 0 || isnan(e.start) || isnan(e.end))
        return 0;
    return json_object_get(args, "microbatch") ? take_ppcli(t, o, args, &e) : take_torch(t, o, &e);
}

/* Returns whether the object may be an event that is read, because it has one of a few words. */
static bool is_wanted(const struct trace *t, const char *at, size_t n)
{
    static const char *const words[] = {"\"PP:",     "ward ",     "microbatch", "world_size",
                                        "fwd_start", "gloo:recv", "\"ppcli\""};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (memmem(at, n, words[i], strlen(words[i])))
            return true;
    return t->overlaps && memmem(at, n, "autograd::engine", 16);
}

static int by_start(const void *a, const void *b)
{
    const struct profile_event *x = a, *y = b;
    return x->start != y->start ? (x->start > y->start) - (x->start < y->start) : x->op - y->op;
}

/* Returns the action that receive k is for: the next action of its stage and micro-batch; NULL if
 * there is none. */
static struct profile_event *find_receiver(struct profile_event *e, int n, int k)
{
    for (int i = k + 1; i < n; i++)
        if (e[i].op < PP_OPS && e[i].stage == e[k].stage && e[i].mb == e[k].mb &&
            (e[i].op == PP_OP_F) == (e[k].step == PP_OP_F) && e[i].op != PP_OP_W)
            return &e[i];
    return NULL;
}

/* Returns the action during which event k begins; NULL if there is none. */
static struct profile_event *find_around(struct profile_event *e, int k)
{
    for (int i = k - 1; i >= 0; i--)
        if (e[i].op < PP_OPS)
            return e[i].end >= e[k].start ? &e[i] : NULL;
    return NULL;
}

/* Makes each action begin when its message has arrived. The transport's receives are in the order
 * of the calls, and a trace may list them twice. */
static void trim_waits(struct profile_event *e, int n)
{
    int call = 0;
    double last = -1;
    for (int k = 0; k < n; k++) {
        if (e[k].op != PROFILE_ARRIVAL || e[k].start == last)
            continue;
        last = e[k].start;
        while (call < n && e[call].op != PROFILE_RECV)
            call++;
        struct profile_event *a = call < n ? find_receiver(e, n, call++) : find_around(e, k);
        if (a && e[k].end > a->start && e[k].end < a->end)
            a->start = e[k].end;
    }
}

/* Adds the times of calls that lie between two actions of a step to the first of the two. */
static void join_calls(struct profile_event *e, int n)
{
    struct profile_event *last = NULL;
    for (int k = 0; k < n; k++)
        if (e[k].op < PP_OPS)
            last = &e[k];
        else if (e[k].op == PROFILE_BEGIN)
            last = NULL;
        else if (e[k].op < PROFILE_ARRIVAL && last && e[k].start >= last->end)
            last->after += e[k].end - e[k].start;
}

/* Splits a forward and a backward that are one event where the autograd engine begins, or if the
 * trace does not tell, where a backward takes twice as long. */
static void split_overlaps(struct profile_event *e, int n)
{
    for (int k = 0; k + 1 < n; k++) {
        struct profile_event *f = &e[k], *b = &e[k + 1];
        double at = f->start + (f->end - f->start) / 3;
        if (f->op != PP_OP_F || b->op >= PP_OPS || b->start != f->start || b->end != f->end)
            continue;
        for (int i = k + 2; i < n && e[i].start < f->end; i++)
            if (e[i].op == PROFILE_GRADIENT) {
                at = e[i].start;
                break;
            }
        f->end = b->start = at;
    }
}

static void end_trace(struct trace *t)
{
    struct profile_event *e = t->in->events + t->from;
    int n = t->in->n - t->from, kept = 0;
    if (n > 0)
        qsort(e, (size_t)n, sizeof(*e), by_start);
    split_overlaps(e, n);
    trim_waits(e, n);
    join_calls(e, n);
    for (int k = 0; k < n; k++) {
        if (e[k].op >= PP_OPS)
            continue;
        e[kept] = e[k];
        e[kept].rank = t->rank >= 0 ? t->rank : e[k].rank;
        e[kept].stage = e[k].stage == -2 ? t->rank : e[k].stage;
        kept++;
    }
    t->in->n = t->from + kept;
}

/* Reads the host of the trace and notes whether all traces are of one host, because ranks of one
 * host have the same clock. */
static void read_host(struct profile_input *in, const char *text, size_t bytes)
{
    static const char key[] = "\"host_name\": \"";
    const char *at = memmem(text, bytes < 65536 ? bytes : 65536, key, sizeof(key) - 1);
    char host[sizeof(in->host)] = "";
    if (!at)
        return;
    snprintf(host, sizeof(host), "%.*s", (int)strcspn(at + sizeof(key) - 1, "\""),
             at + sizeof(key) - 1);
    in->one_clock = in->host[0] == '\0' || (in->one_clock && strcmp(host, in->host) == 0);
    memcpy(in->host, host, sizeof(host));
}

int profile_trace_read(const char *path, const char *text, size_t bytes, int rank,
                       struct profile_input *in)
{
    struct trace t = {.in = in, .from = in->n, .rank = rank};
    const char *end = text + bytes, *at = memchr(text, '{', bytes), *rest;
    const char *list = memchr(text, '[', bytes);
    size_t n = 0;
    int number = 0;
    bool whole = at && (!list || at < list);
    t.overlaps = memmem(text, bytes, "OVERLAP_F_B", 11);
    rest = at = whole ? at + 1 : text; /* past the bracket of the whole */
    for (; (at = profile_object(at, end, &n)); rest = at += n) {
        json_t *o = NULL;
        if (!is_wanted(&t, at, n))
            continue;
        PP_TRY(pp_json_load(at, n, JSON_DECODE_INT_AS_REAL, NULL, &o));
        if (!o)
            return pp_fail(PP_EFORMAT, "%s: damaged JSON after %zu bytes", path,
                           (size_t)(at - text));
        int rc = take_object(&t, o, number);
        number += json_object_get(o, "fwd_start") != NULL;
        json_decref(o);
        PP_TRY(rc);
    }
    size_t left = (size_t)(end - rest);
    if (whole && (memchr(rest, '{', left) || !memchr(rest, '}', left)))
        return pp_fail(PP_EFORMAT, "%s ends after %zu bytes in the middle: it is not complete",
                       path, bytes);
    end_trace(&t);
    read_host(in, text, bytes);
    return in->n > t.from ? 0 : profile_unmarked_read(text, bytes, t.rank, in);
}
