/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli env: the build, the machine and what there is to compute on, in one page for a bug report.
 * What is missing is said together with what would bring it.
 */
#include <stdlib.h>
#include <string.h>

#include "ppcli/devices.h"
#include "ppcli/json.h"
#include "ppcli/machine.h"
#include "ppcli/mem.h"
#include "ppcli/topology.h"
#include "ppcli/transport.h"
#include "build_info.h"
#include "command.h"
#include "start.h"
#include "commit.h"

#define GIB (1024.0 * 1024.0 * 1024.0)

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

/* ctx: a struct pp_json; NULL: as text. */
static void row(void *ctx, const char *what, const char *text)
{
    if (ctx)
        pp_json_str(ctx, what, text);
    else if (text[0])
        printf("  %-14s %s\n", what, text);
}

/* A row for the cores of each cache. */
static int show_cores(void)
{
    struct pp_cpu_mask mask;
    char text[512];
    PP_TAKE(struct pp_cpu, cpus, pp_machine_mask(false, &mask));
    int n = pp_topology_read(&mask, cpus);
    row(NULL, "topology", pp_topology_source());
    for (int at = 0, first = 1; pp_topology_row(cpus, n, &at, text, sizeof(text)); first = 0)
        row(NULL, first ? "cores by cache" : "", text);
    return 0;
}

/* ---- text */

static void text_machine(const struct pp_machine *m)
{
    char text[256];
    printf("\nmachine\n");
    row(NULL, "host", m->host);
    row(NULL, "system", m->system);
    row(NULL, "processor", m->cpu);
    snprintf(text, sizeof(text), "%d of %d (%s)%s%s", m->cores, m->cores_there, m->binding,
             m->governor[0] ? ", governor " : "", m->governor);
    row(NULL, "cores", text);
    row(NULL, "limited by", m->limit);
    row(NULL, "caches", m->caches);
    (void)show_cores();
    snprintf(text, sizeof(text), "%.1f GiB", (double)m->memory_bytes / GIB);
    row(NULL, "memory", text);
    if (m->room_bytes != UINT64_MAX) {
        snprintf(text, sizeof(text), "%.1f GiB are left of %s", (double)m->room_bytes / GIB,
                 m->room_what);
        row(NULL, "for a run", text);
    }
}

/* With the library that a transport of devices would load, or why it could not. */
static void versions(const struct found *f, struct pp_json *j)
{
    const struct pp_transport_ops *t;
    f->ops->versions(row, j);
    for (int i = 0; f->ops->devices && (t = pp_transport_at(i)) != NULL; i++) {
        char text[256];
        if (!t->needs_device || !t->library)
            continue;
        (void)env_probe_transport(t, text, sizeof(text));
        row(j, t->library, text);
    }
}

static void text_devices(const struct found *f)
{
    printf("\n%s\n", f->ops->name);
    versions(f, NULL);
    row(NULL, "devices", f->why);
    for (int i = 0; i < f->n; i++) {
        const struct pp_device *d = &f->devices[i];
        printf("  device %-7d %s, %d multiprocessors, %.1f GiB, compute capability %d.%d, %s\n",
               d->number, d->name, d->processors, (double)d->bytes / GIB, d->capability / 10,
               d->capability % 10, d->uuid);
    }
    for (int a = 0; a < f->n && f->n > 1 && f->ops->reaches; a++) {
        bool any = false;
        printf("  device %-7d reaches the memory of ", f->devices[a].number);
        for (int b = 0; b < f->n; b++) {
            if (a != b && f->ops->reaches(f->devices[a].number, f->devices[b].number)) {
                printf("%s%d", any ? ", " : "", f->devices[b].number);
                any = true;
            }
        }
        puts(any ? "" : "no other: messages need NCCL or the host");
    }
}

static void print_text(const struct pp_machine *m, struct found *f)
{
    char why[256];
    printf("ppcli %s, commit %s\n", PP_VERSION, PP_COMMIT);
    for (const struct build_fact *b = build_facts(); b->what; b++) {
        snprintf(why, sizeof(why), b->missing ? "%s: %s" : "%s", b->text, b->missing);
        row(NULL, b->what, why);
    }
    text_machine(m);
    printf("\nbackends\n");
    for (int i = 0; i < pp_backend_count(); i++) {
        const struct pp_backend_ops *ops = pp_backend_at(i);
        bool runs = ops->probe(why, sizeof(why)) == 0;
        printf("  %-14s %s%s\n", ops->name, runs ? "" : "no: ", why);
    }
    env_transports(NULL);
    for (int i = 0; i < pp_backend_count(); i++) {
        if (pp_backend_at(i)->versions) {
            find(pp_backend_at(i), f);
            text_devices(f);
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
    if (m->room_bytes != UINT64_MAX) {
        pp_json_uint(j, "room_bytes", m->room_bytes);
        pp_json_str(j, "room_what", m->room_what);
    }
    pp_json_end(j);
}

static void json_devices(struct pp_json *j, const struct found *f)
{
    pp_json_object(j, "versions");
    versions(f, j);
    pp_json_end(j);
    if (!f->ops->devices)
        return;
    pp_json_array(j, "devices");
    for (int i = 0; i < f->n; i++) {
        const struct pp_device *d = &f->devices[i];
        pp_json_object(j, NULL);
        pp_json_int(j, "device", d->number);
        pp_json_str(j, "name", d->name);
        pp_json_str(j, "uuid", d->uuid);
        pp_json_int(j, "multiprocessors", d->processors);
        pp_json_int(j, "capability", d->capability);
        pp_json_uint(j, "memory_bytes", d->bytes);
        pp_json_array(j, "reaches");
        for (int b = 0; b < f->n && f->ops->reaches; b++)
            if (b != i && f->ops->reaches(d->number, f->devices[b].number))
                pp_json_int(j, NULL, f->devices[b].number);
        pp_json_end(j);
        pp_json_end(j);
    }
    pp_json_end(j);
}

static void print_json(const struct pp_machine *m, struct found *f)
{
    char why[256];
    struct pp_json j = pp_json_begin(stdout, 2);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "ppcli", PP_VERSION);
    pp_json_str(&j, "commit", PP_COMMIT);
    pp_json_object(&j, "build");
    for (const struct build_fact *b = build_facts(); b->what; b++)
        pp_json_str(&j, b->what, b->text);
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
            find(ops, f);
            json_devices(&j, f);
        }
        pp_json_end(&j);
    }
    pp_json_end(&j);
    env_transports(&j);
    pp_json_end(&j);
}

int cmd_env(int argc, char **argv)
{
    int json = 0;
    const char *hosts = NULL, *words[1];
    const struct pp_cli_option options[] = {
        {"hosts", 0, PP_CLI_STRING, &hosts, "H,...|file:PATH",
         "instead: whether a run over these hosts, of CONFIG, can begin"},
        {"format", 0, PP_CLI_CHOICE, &json, "text|json", "how to print; text"},
        {0},
    };
    if (argc > 4 && strcmp(argv[1], "--keep") == 0) /* mpirun is the caller: see launch.c */
        return pp_supervise_orted(argv[2], atof(argv[3]), argv + 4);
    PP_TRY(pp_cli_parse(argc, argv, &command_env, options, NULL, words, 1));
    if (hosts)
        return env_hosts(hosts, words[0], json);
    if (words[0])
        return pp_fail(PP_EUSAGE, "unexpected word '%s': a config is for --hosts", words[0]);
    struct pp_machine machine;
    static struct found f; /* too large for a small stack */
    pp_machine_describe(false, &machine);
    (json ? print_json : print_text)(&machine, &f);
    return 0;
}
