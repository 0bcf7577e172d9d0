/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The build, the machine and what there is to compute on and to connect ranks with, for a bug report. What
 * is missing is said together with what would bring it.
 */
#include "ppcli/show/results.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/dev/devices.h"
#include "ppcli/base/files.h"
#include "ppcli/base/cores.h"
#include "ppcli/comm/transport.h"

#define GIB (1024.0 * 1024.0 * 1024.0)

static bool probe_transport(const struct pp_transport_ops *t, char *why, size_t bytes)
{
    snprintf(why, bytes, "%s", t->missing ? t->missing : t->help);
    return !t->missing && (!t->probe || t->probe(why, bytes) == 0);
}

static void show_transports(struct pp_json *j, FILE *f)
{
    char why[512];
    const struct pp_transport_ops *t;
    if (j)
        pp_json_array(j, "transports");
    else
        fprintf(f, "\ntransports\n");
    for (int i = 0; (t = pp_transport_at(i)) != NULL; i++) {
        bool runs = probe_transport(t, why, sizeof(why));
        if (j) {
            pp_json_object(j, NULL);
            pp_json_str(j, "name", t->name);
            pp_json_bool(j, "runs", runs);
            pp_json_str(j, "text", why);
            pp_json_end(j);
        } else {
            fprintf(f, "  %-14s %s%s\n", t->name, runs ? "" : "no: ", why);
        }
    }
    if (j)
        pp_json_end(j);
}

/* A backend with the devices that it found. */
struct found {
    const struct pp_backend_ops *ops;
    struct pp_device devices[PP_DEVICES_MAX];
    int n;
    char why[256]; /* it found none; empty: it computes on the processor */
};

static void find(const struct pp_backend_ops *ops, struct found *out)
{
    int n = 0;
    *out = (struct found){.ops = ops};
    if (ops->devices &&
        ops->devices(out->devices, PP_DEVICES_MAX, &n, out->why, sizeof(out->why)) == 0)
        out->n = n < PP_DEVICES_MAX ? n : PP_DEVICES_MAX;
}

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

/* A row for the cores of each cache. */
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

/* With the library that a transport of devices would load, or why it could not. */
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

static void print_env(const struct pp_build *b, const struct pp_machine *m, struct found *found,
                      FILE *f)
{
    char why[256];
    struct sheet s = {.f = f};
    fprintf(f, "ppcli %s, commit %s\n", b->version, b->commit);
    for (const struct pp_build_fact *x = b->facts; x->what; x++) {
        snprintf(why, sizeof(why), x->missing ? "%s: %s" : "%s", x->text, x->missing);
        put_fact(&s, x->what, why);
    }
    text_machine(m, &s);
    fprintf(f, "\nbackends\n");
    for (int i = 0; i < pp_backend_count(); i++) {
        const struct pp_backend_ops *ops = pp_backend_at(i);
        bool runs = ops->probe(why, sizeof(why)) == 0;
        fprintf(f, "  %-14s %s%s\n", ops->name, runs ? "" : "no: ", why);
    }
    show_transports(NULL, f);
    for (int i = 0; i < pp_backend_count(); i++) {
        if (pp_backend_at(i)->versions) {
            find(pp_backend_at(i), found);
            text_devices(found, &s);
        }
    }
}

/* ---- JSON */

static void json_machine(struct pp_json *j, const struct pp_machine *m)
{
    pp_json_object(j, "machine");
    pp_json_str(j, "host", m->host);
    pp_json_str(j, "system", m->system);
    pp_json_str(j, "processor", m->cpu);
    pp_json_str(j, "governor", m->governor);
    pp_json_int(j, "cores", m->cores);
    pp_json_int(j, "cores_there", m->cores_there);
    pp_json_str(j, "binding", m->binding);
    if (m->limit[0])
        pp_json_str(j, "limit", m->limit);
    pp_json_str(j, "caches", m->caches);
    pp_json_uint(j, "memory_bytes", m->memory_bytes);
    if (m->memory_left != UINT64_MAX) {
        pp_json_uint(j, "room_bytes", m->memory_left);
        pp_json_str(j, "room_what", m->memory_limit);
    }
    pp_json_end(j);
}

static void json_devices(struct pp_json *j, const struct found *of)
{
    pp_json_object(j, "versions");
    put_versions(of, &(struct sheet){.j = j});
    pp_json_end(j);
    if (!of->ops->devices)
        return;
    pp_json_array(j, "devices");
    for (int i = 0; i < of->n; i++) {
        const struct pp_device *d = &of->devices[i];
        pp_json_object(j, NULL);
        pp_json_int(j, "device", d->number);
        pp_json_str(j, "name", d->name);
        pp_json_str(j, "uuid", d->uuid);
        pp_json_int(j, "multiprocessors", d->processors);
        pp_json_int(j, "capability", d->capability);
        pp_json_uint(j, "memory_bytes", d->bytes);
        if (d->problem[0])
            pp_json_str(j, "problem", d->problem);
        pp_json_array(j, "reaches");
        for (int b = 0; b < of->n && of->ops->reaches; b++)
            if (b != i && of->ops->reaches(d->number, of->devices[b].number))
                pp_json_int(j, NULL, of->devices[b].number);
        pp_json_end(j);
        pp_json_end(j);
    }
    pp_json_end(j);
}

static void json_env(const struct pp_build *b, const struct pp_machine *m, struct found *found,
                     FILE *f)
{
    char why[256];
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "ppcli", b->version);
    pp_json_str(&j, "commit", b->commit);
    pp_json_object(&j, "build");
    for (const struct pp_build_fact *x = b->facts; x->what; x++)
        pp_json_str(&j, x->what, x->text);
    pp_json_end(&j);
    json_machine(&j, m);
    pp_json_array(&j, "backends");
    for (int i = 0; i < pp_backend_count(); i++) {
        const struct pp_backend_ops *ops = pp_backend_at(i);
        pp_json_object(&j, NULL);
        pp_json_str(&j, "name", ops->name);
        pp_json_bool(&j, "runs", ops->probe(why, sizeof(why)) == 0);
        pp_json_str(&j, "text", why);
        if (ops->versions) {
            find(ops, found);
            json_devices(&j, found);
        }
        pp_json_end(&j);
    }
    pp_json_end(&j);
    show_transports(&j, f);
    pp_json_end(&j);
}

int pp_build_print(const struct pp_build *b, bool json, FILE *f)
{
    struct pp_machine machine;
    PP_OWN_MEMORY struct found *found = pp_alloc(1, sizeof(*found));
    PP_TRY(found ? 0 : PP_ERESOURCE);
    pp_machine_describe(false, &machine);
    (json ? json_env : print_env)(b, &machine, found, f);
    return 0;
}
