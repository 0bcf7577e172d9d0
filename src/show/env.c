/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The build, the machine and what there is to compute on and to connect ranks with, for a bug
 * report. What is missing is said together with what would bring it.
 */
#include "results.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/dev/devices.h"
#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "ppcli/base/cores.h"
#include "ppcli/comm/transport.h"

#define GIB (1024.0 * 1024.0 * 1024.0)

static bool probe_transport(const struct pp_transport_ops *t, char *why, size_t bytes)
{
    snprintf(why, bytes, "%s", t->missing ? t->missing : t->help);
    return !t->missing && (!t->probe || t->probe(why, bytes) == 0);
}

struct part_row { /* a transport or a backend */
    const char *name;
    char text[512]; /* what it is, or why it cannot run */
    bool runs;
    const struct found *of; /* the devices of a backend; NULL: it has no versions and no devices */
    struct pp_listing devices;
};

static void make_transports(struct part_row *rows)
{
    const struct pp_transport_ops *t;
    for (int i = 0; (t = pp_transport_at(i)) != NULL; i++) {
        rows[i].name = t->name;
        rows[i].runs = probe_transport(t, rows[i].text, sizeof(rows[i].text));
    }
}

static int count_transports(void)
{
    int n = 0;
    while (pp_transport_at(n))
        n++;
    return n;
}

static void print_parts(const char *what, const struct part_row *rows, int n, FILE *f)
{
    fprintf(f, "\n%s\n", what);
    for (int i = 0; i < n; i++)
        fprintf(f, "  %-14s %s%s\n", rows[i].name, rows[i].runs ? "" : "no: ", rows[i].text);
}

/* A backend with the devices that it found. */
struct found {
    const struct pp_backend_ops *ops;
    struct pp_device devices[PP_DEVICES_MAX];
    struct device_row {
        struct pp_device d;
        const struct found *of;
    } rows[PP_DEVICES_MAX];
    int n;
    char why[256]; /* it found none; empty: it computes on the processor */
};

static void find_devices(const struct pp_backend_ops *ops, struct found *out)
{
    int n = 0;
    *out = (struct found){.ops = ops};
    if (ops->devices &&
        ops->devices(out->devices, PP_DEVICES_MAX, &n, out->why, sizeof(out->why)) == 0)
        out->n = n < PP_DEVICES_MAX ? n : PP_DEVICES_MAX;
}

static void make_backends(struct part_row *rows, struct found *found)
{
    for (int i = 0; i < pp_backend_count(); i++) {
        const struct pp_backend_ops *ops = pp_backend_at(i);
        rows[i].name = ops->name;
        rows[i].runs = ops->probe(rows[i].text, sizeof(rows[i].text)) == 0;
        if (!ops->versions)
            continue;
        find_devices(ops, &found[i]);
        rows[i].of = &found[i];
        rows[i].devices = (struct pp_listing){found[i].rows, sizeof(*found[i].rows), found[i].n};
        for (int k = 0; k < found[i].n; k++)
            found[i].rows[k] = (struct device_row){found[i].devices[k], &found[i]};
    }
}

/* What was found. */
struct env {
    const struct pp_build *b;
    struct pp_machine machine;
    struct part_row *backends, *transports;
    struct pp_listing backend_rows, transport_rows;
};

struct sheet {
    FILE *f;
    struct pp_json *j; /* NULL: as text */
};

static void put_fact(void *ctx, const char *what, const char *text)
{
    const struct sheet *s = ctx;
    if (s->j)
        pp_json_str(s->j, what, text);
    else if (text[0])
        fprintf(s->f, "  %-14s %s\n", what, text);
}

/* Adds a row for the cores of each cache to the sheet. */
static int show_cores(struct sheet *s)
{
    struct pp_cpu_mask mask;
    char text[512];
    PP_TAKE(struct pp_cpu, cpus, pp_machine_mask(false, &mask));
    int n = pp_topology_read(&mask, cpus);
    put_fact(s, "topology", pp_topology_source());
    for (int at = 0, first = 1; pp_topology_row(cpus, n, &at, text, sizeof(text)); first = 0)
        put_fact(s, first ? "cores by cache" : "", text);
    return 0;
}

/* ---- text */

static void text_machine(const struct pp_machine *m, struct sheet *s)
{
    char text[256];
    fprintf(s->f, "\nmachine\n");
    put_fact(s, "host", m->host);
    put_fact(s, "system", m->system);
    put_fact(s, "processor", m->cpu);
    snprintf(text, sizeof(text), "%d of %d (%s)%s%s", m->cores, m->cores_there, m->binding,
             m->governor[0] ? ", governor " : "", m->governor);
    put_fact(s, "cores", text);
    put_fact(s, "limited by", m->limit);
    put_fact(s, "caches", m->caches);
    (void)show_cores(s);
    snprintf(text, sizeof(text), "%.1f GiB", (double)m->memory_bytes / GIB);
    put_fact(s, "memory", text);
    if (m->memory_left != UINT64_MAX) {
        snprintf(text, sizeof(text), "%.1f GiB are left of %s", (double)m->memory_left / GIB,
                 m->memory_limit);
        put_fact(s, "for a run", text);
    }
}

/* Adds the versions of the backend's libraries to the sheet. For devices it also adds the library
 * that each of their transports would load, or why it cannot be loaded. */
static void put_versions(const struct found *of, struct sheet *s)
{
    const struct pp_transport_ops *t;
    of->ops->versions(put_fact, s);
    for (int i = 0; of->ops->devices && (t = pp_transport_at(i)) != NULL; i++) {
        char text[256];
        if (!t->needs_device || !t->library)
            continue;
        (void)probe_transport(t, text, sizeof(text));
        put_fact(s, t->library, text);
    }
}

static void text_devices(const struct found *of, struct sheet *s)
{
    fprintf(s->f, "\n%s\n", of->ops->name);
    put_versions(of, s);
    put_fact(s, "devices", of->why);
    for (int i = 0; i < of->n; i++) {
        const struct pp_device *d = &of->devices[i];
        fprintf(
            s->f,
            "  device %-7d %s, %d multiprocessors, %.1f GiB, compute capability %d.%d, %s%s%s\n",
            d->number, d->name, d->processors, (double)d->bytes / GIB, d->capability / 10,
            d->capability % 10, d->uuid, d->problem[0] ? "; cannot be used: " : "", d->problem);
    }
    for (int a = 0; a < of->n && of->n > 1 && of->ops->reaches; a++) {
        bool any = false;
        fprintf(s->f, "  device %-7d reaches the memory of ", of->devices[a].number);
        for (int b = 0; b < of->n; b++) {
            if (a != b && of->ops->reaches(of->devices[a].number, of->devices[b].number)) {
                fprintf(s->f, "%s%d", any ? ", " : "", of->devices[b].number);
                any = true;
            }
        }
        fprintf(s->f, "%s\n", any ? "" : "no other: messages need NCCL or the host");
    }
}

static void print_env(const struct env *e, FILE *f)
{
    char why[256];
    struct sheet s = {.f = f};
    fprintf(f, "ppcli %s, commit %s\n", e->b->version, e->b->commit);
    for (const struct pp_build_fact *x = e->b->facts; x->what; x++) {
        snprintf(why, sizeof(why), x->missing ? "%s: %s" : "%s", x->text, x->missing);
        put_fact(&s, x->what, why);
    }
    text_machine(&e->machine, &s);
    print_parts("backends", e->backends, e->backend_rows.n, f);
    print_parts("transports", e->transports, e->transport_rows.n, f);
    for (int i = 0; i < e->backend_rows.n; i++)
        if (e->backends[i].of)
            text_devices(e->backends[i].of, &s);
}

/* ---- JSON */

PP_HAS(has_limit, struct pp_machine, row->limit[0])
PP_HAS(has_room, struct pp_machine, row->memory_left != UINT64_MAX)

#define MACHINE(m) PP_FIELD(struct pp_machine, m)
static const struct pp_column machine_columns[] = {
    {"host", MACHINE(host), .help = "this machine"},
    {"system", MACHINE(system)},
    {"processor", MACHINE(cpu)},
    {"governor", MACHINE(governor), .help = "of the processor's frequency"},
    {"cores", MACHINE(cores), .help = "cores that this process may use, and all"},
    {"cores_there", MACHINE(cores_there)},
    {"binding", MACHINE(binding), .help = "the cores by their numbers"},
    {"limit", MACHINE(limit), .has = has_limit, .help = "what limits the cores"},
    {"caches", MACHINE(caches), .help = "sizes of the caches"},
    {"memory_bytes", MACHINE(memory_bytes), .help = "all of the memory"},
    {"room_bytes", MACHINE(memory_left), .has = has_room,
     .help = "memory that is left, and by what"},
    {"room_what", MACHINE(memory_limit), .has = has_room},
    {0}};

static void put_reaches(const void *row, const char *key, struct pp_json *j)
{
    const struct device_row *r = row;
    pp_json_array(j, key);
    for (int b = 0; b < r->of->n && r->of->ops->reaches; b++)
        if (r->of->devices[b].number != r->d.number &&
            r->of->ops->reaches(r->d.number, r->of->devices[b].number))
            pp_json_int(j, NULL, r->of->devices[b].number);
    pp_json_end(j);
}

#define DEVICE(m) PP_FIELD(struct device_row, m)
static const struct pp_column device_columns[] = {
    {"device", DEVICE(d.number), .help = "number of the device"},
    {"name", DEVICE(d.name), .help = "its name"},
    {"uuid", DEVICE(d.uuid), .help = "and the name that no other has"},
    {"multiprocessors", DEVICE(d.processors), .help = "its multiprocessors"},
    {"capability", DEVICE(d.capability), .help = "compute capability times 10"},
    {"memory_bytes", DEVICE(d.bytes), .help = "its memory"},
    {"problem", DEVICE(d.problem), .optional = true, .help = "why no run can use it"},
    {"reaches", .put = put_reaches, .type = "numbers", .help = "devices whose memory it can read"},
    {0}};

PP_HAS(has_versions, struct part_row, row->of)

static void put_version_object(const void *row, const char *key, struct pp_json *j)
{
    pp_json_object(j, key);
    put_versions(((const struct part_row *)row)->of, &(struct sheet){.j = j});
    pp_json_end(j);
}

static bool has_devices(const void *row)
{
    return has_versions(row) && ((const struct part_row *)row)->of->ops->devices;
}

#define PART(m) PP_FIELD(struct part_row, m)
static const struct pp_column backend_columns[] = {
    {"name", PART(name), .help = "its name"},
    {"runs", PART(runs), .help = "it can run here"},
    {"text", PART(text), .help = "what it is, or why it cannot run"},
    {"versions", .put = put_version_object, .has = has_versions, .type = "text by name",
     .help = "of its libraries"},
    {"devices", PART(devices), .has = has_devices, .inner = device_columns,
     .help = "GPUs that were found"},
    {0}};

static const struct pp_column transport_columns[] = {
    {"name", PART(name), .help = "its name"},
    {"runs", PART(runs), .help = "it can run here"},
    {"text", PART(text), .help = "what it is, or why it cannot run"},
    {0}};

static void put_build(const void *env, const char *key, struct pp_json *j)
{
    pp_json_object(j, key);
    for (const struct pp_build_fact *x = ((const struct env *)env)->b->facts; x->what; x++)
        pp_json_str(j, x->what, x->text);
    pp_json_end(j);
}

static void put_program(const void *env, const char *key, struct pp_json *j)
{
    const struct pp_build *b = ((const struct env *)env)->b;
    pp_json_str(j, key, key[0] == 'p' ? b->version : b->commit);
}

#define ENV(m) PP_FIELD(struct env, m)
const struct pp_column pp_env_columns[] = {
    PP_SCHEMA(1),
    {"ppcli", .put = put_program, .type = "text", .help = "version and commit"},
    {"commit", .put = put_program, .type = "text"},
    {"build", .put = put_build, .type = "text by name", .help = "libraries by name"},
    {"machine", ENV(machine), .inner = machine_columns, .help = "what there is to run on"},
    {"backends", ENV(backend_rows), .inner = backend_columns, .help = "what can compute"},
    {"transports", ENV(transport_rows), .inner = transport_columns,
     .help = "what can move messages"},
    {0}};

int pp_build_print(const struct pp_build *b, bool json, FILE *f)
{
    struct env e = {.b = b};
    int n = pp_backend_count(), m = count_transports();
    PP_TAKE(struct found, found, n);
    PP_TAKE(struct part_row, backends, n);
    PP_TAKE(struct part_row, transports, m + 1);
    pp_machine_describe(false, &e.machine);
    make_backends(backends, found);
    make_transports(transports);
    e.backends = backends;
    e.transports = transports;
    e.backend_rows = (struct pp_listing){backends, sizeof(*backends), n};
    e.transport_rows = (struct pp_listing){transports, sizeof(*transports), m};
    if (json)
        pp_document_json(pp_env_columns, &e, f);
    else
        print_env(&e, f);
    return 0;
}
