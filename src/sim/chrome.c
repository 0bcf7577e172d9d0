/* SPDX-License-Identifier: Apache-2.0 */
/* Writes trace events line by line. Only the head and the names can need escapes, so only they go
 * through json. */
#include "sim.h"

#include "ppcli/base/files.h"

static const char *const track_names[PP_CHROME_TRACKS] = {"compute", "send", "recv"};

enum pp_chrome_track pp_chrome_track_of(int kind)
{
    switch (kind) {
    case PP_EVENT_SEND:
    case PP_EVENT_SLOT:
        return PP_CHROME_SEND;
    case PP_EVENT_RECV:
    case PP_EVENT_RELEASE:
        return PP_CHROME_RECV;
    default:
        return PP_CHROME_COMPUTE;
    }
}

const char *pp_chrome_name(char out[PP_CHROME_NAME_MAX], char letter, bool chunks, int stage,
                           int microbatch)
{
    if (chunks)
        snprintf(out, PP_CHROME_NAME_MAX, "%d%c%d", stage, letter, microbatch);
    else
        snprintf(out, PP_CHROME_NAME_MAX, "%c%d", letter, microbatch);
    return out;
}

__attribute__((format(printf, 2, 3))) static void put(struct pp_chrome *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vfprintf(c->f, fmt, ap);
    va_end(ap);
    c->unflushed += n > 0 ? (size_t)n : 0;
}

/* Flushes the file, which ends with a whole line now, if at least `at` bytes are pending. */
static void flush_lines(struct pp_chrome *c, size_t at)
{
    if (c->flush_at > 0 && c->unflushed >= at) {
        fflush(c->f);
        c->unflushed = 0;
    }
}

static void end_line(struct pp_chrome *c)
{
    put(c, "}\n");
    flush_lines(c, c->flush_at);
}

/* Writes a field with a time in microseconds, exact to the nanosecond. */
static void put_time(struct pp_chrome *c, const char *key, int64_t ns)
{
    put(c, ",\"%s\":%lld.%03d", key, (long long)(ns / 1000), (int)(ns % 1000));
}

static void write_clocks(struct pp_json *j, const char *key, const int64_t *ns, int ranks)
{
    pp_json_array(j, key);
    for (int r = 0; r < ranks; r++)
        pp_json_int(j, NULL, ns ? ns[r] : 0);
    pp_json_end(j);
}

void pp_chrome_open(struct pp_chrome *c, FILE *f, const struct pp_chrome_head *h)
{
    *c = (struct pp_chrome){.f = f};
    put(c, "[\n");
    struct pp_json j = pp_json_begin(f, 0);
    pp_json_str(&j, "name", "ppcli");
    pp_json_str(&j, "ph", "M");
    pp_json_int(&j, "pid", 0);
    pp_json_object(&j, "args");
    pp_json_int(&j, "schema", PP_CHROME_SCHEMA);
    pp_json_str(&j, "kind", h->simulated ? "simulated" : "measured");
    pp_json_str(&j, "ppcli", h->version);
    pp_json_str(&j, "schedule", h->schedule);
    pp_json_int(&j, "stages", h->stages);
    pp_json_int(&j, "microbatches", h->microbatches);
    if (h->one_step) {
        pp_json_dbl(&j, "step_seconds", h->step_seconds);
        pp_json_dbl(&j, "simulated_step_seconds", h->simulated_step_seconds);
        pp_json_dbl(&j, "bubble_measured", h->bubble_measured);
        pp_json_dbl(&j, "bubble_predicted", h->bubble_predicted);
    }
    write_clocks(&j, "clock_offset_ns", h->offset_ns, h->ranks);
    write_clocks(&j, "clock_error_ns", h->error_ns, h->ranks);
    pp_json_end(&j);
    pp_json_end(&j); /* and the end of the line */
}

static void write_name(struct pp_chrome *c, const char *what, int pid, int tid, const char *name)
{
    put(c, ",");
    struct pp_json j = pp_json_begin(c->f, 0);
    pp_json_str(&j, "name", what);
    pp_json_str(&j, "ph", "M");
    pp_json_int(&j, "pid", pid);
    pp_json_int(&j, "tid", tid);
    pp_json_object(&j, "args");
    pp_json_str(&j, "name", name);
    pp_json_end(&j);
    pp_json_end(&j);
    flush_lines(c, 0); /* the end of the array is not counted */
}

static void write_sort_index(struct pp_chrome *c, const char *what, int pid, int tid, int index)
{
    put(c, ",{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"sort_index\":%d}",
        what, pid, tid, index);
    end_line(c);
}

void pp_chrome_process(struct pp_chrome *c, int pid, const char *name)
{
    write_name(c, "process_name", pid, 0, name);
    write_sort_index(c, "process_sort_index", pid, 0, pid);
    for (int t = 0; t < PP_CHROME_TRACKS; t++) {
        write_name(c, "thread_name", pid, t, track_names[t]);
        write_sort_index(c, "thread_sort_index", pid, t, t);
    }
}

static void put_args(struct pp_chrome *c, const struct pp_chrome_args *a)
{
    put(c, ",\"args\":{\"eval\":%d", a->eval);
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        {"step", a->step}, {"stage", a->stage}, {"chunk", a->chunk}, {"microbatch", a->microbatch}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i].value >= 0)
            put(c, ",\"%s\":%lld", numbers[i].key, (long long)numbers[i].value);
    if (a->loss)
        put(c, ",\"loss\":%.17g", *a->loss);
    put(c, "}");
}

void pp_chrome_slice(struct pp_chrome *c, int pid, int kind, const char *name, int64_t begin_ns,
                     int64_t end_ns, const struct pp_chrome_args *args)
{
    if (end_ns < 0)
        return;
    int64_t begin = begin_ns > 0 ? begin_ns : 0;
    put(c, ",{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d", name,
        pp_event_name(kind), pid, (int)pp_chrome_track_of(kind));
    put_time(c, "ts", begin);
    put_time(c, "dur", end_ns > begin ? end_ns - begin : 0);
    put_args(c, args);
    end_line(c);
    c->slices++;
}

void pp_chrome_arrow(struct pp_chrome *c, bool sent, uint64_t id, int pid,
                     enum pp_chrome_track track, int64_t at_ns)
{
    put(c,
        ",{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"id\":%llu,\"pid\":%d,"
        "\"tid\":%d",
        sent ? "s" : "f\",\"bp\":\"e", (unsigned long long)id, pid, (int)track);
    put_time(c, "ts", at_ns > 0 ? at_ns : 0);
    end_line(c);
}

void pp_chrome_live(struct pp_chrome *c, int pid, int64_t at_ns, const char *series, uint64_t value)
{
    put(c, ",{\"name\":\"live activations\",\"ph\":\"C\",\"pid\":%d,\"tid\":0", pid);
    put_time(c, "ts", at_ns > 0 ? at_ns : 0);
    put(c, ",\"args\":{\"%s\":%llu}", series, (unsigned long long)value);
    end_line(c);
}

void pp_chrome_close(struct pp_chrome *c)
{
    put(c, "]\n");
    fflush(c->f);
}
