/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli env --hosts: the preflight of a run over several hosts, with nothing to run. */
#include "results.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"

static const char *const fact_names[] = {"program", "MPI", "config", "data set", "processors"};

struct host_row {
    const struct pp_preflight *p;
    const struct pp_host_facts *h;
    const char *host, *wrong, *text, *calls_itself, *addresses;
    char summary[PP_HOST_TEXT];
    int cores;
    double free_bytes, clock_seconds;
};

static void put_ways(const void *row, const char *key, struct pp_json *j)
{
    const struct host_row *r = row;
    int i = (int)(r->h - r->p->hosts);
    char text[PP_HOST_TEXT];
    pp_json_object(j, key);
    for (int k = 0; k < r->p->n; k++)
        if (k != i)
            pp_json_str(j, r->p->hosts[k].name, pp_way_text(&r->p->ways[i * r->p->n + k], text));
    pp_json_end(j);
}

static void put_facts(const void *row, const char *key, struct pp_json *j)
{
    (void)key; /* their names are the keys */
    for (int k = 0; k < PP_HOST_FACTS; k++)
        pp_json_str(j, fact_names[k], ((const struct host_row *)row)->h->fact[k]);
}

#define HOST(m) PP_FIELD(struct host_row, m)
static const struct pp_column host_columns[] = {
    {"host", "", HOST(host), .help = "its name"},
    {"wrong", HOST(wrong), .help = "what keeps it from taking part"},
    {"text", "", HOST(text), .help = "what it has"},
    {"calls_itself", HOST(calls_itself), .help = "its own name of itself"},
    {"addresses", HOST(addresses), .help = "its addresses"},
    {"cores", HOST(cores), .help = "cores of the host"},
    {"free_bytes", HOST(free_bytes), .nullable = true, .help = "memory that is free"},
    {"clock_seconds", HOST(clock_seconds), .nullable = true, .help = "its clock minus ours"},
    {"*", .put = put_facts, .type = "text",
     .help = "facts that must be the same on all hosts, by name"},
    {"to", .put = put_ways, .type = "text by name", .help = "the way to each other host"},
    {0}};

struct hosts_document {
    const char *wrong, *network;
    bool folder_shared;
    double seconds;
    struct pp_listing hosts;
};

#define RESULT(m) PP_FIELD(struct hosts_document, m)
const struct pp_column pp_hosts_columns[] = {
    PP_SCHEMA(1),
    {"wrong", RESULT(wrong), .help = "what keeps a run from starting"},
    {"network", RESULT(network), .help = "the network that all hosts share"},
    {"run_folder_shared", RESULT(folder_shared), .help = "all hosts see the run folder"},
    {"seconds", RESULT(seconds), .help = "how long the check took"},
    {"hosts", RESULT(hosts), .inner = host_columns, .help = "in the order of the list"},
    {0}};

static void make_host_rows(const struct pp_preflight *p, struct host_row *out)
{
    for (int i = 0; i < p->n; i++) {
        const struct pp_host_facts *h = &p->hosts[i];
        out[i] = (struct host_row){.p = p,
                                   .h = h,
                                   .host = h->name,
                                   .wrong = h->wrong,
                                   .calls_itself = h->calls_itself,
                                   .addresses = h->addresses,
                                   .cores = h->cores_there,
                                   .free_bytes = (double)h->free_bytes,
                                   .clock_seconds = h->clock_s};
        out[i].text = h->wrong[0] ? "" : pp_host_text(h, out[i].summary);
    }
}

static int print_hosts_json(const struct pp_preflight *p, FILE *f)
{
    PP_TAKE(struct host_row, rows, p->n + 1);
    make_host_rows(p, rows);
    struct hosts_document d = {.wrong = p->wrong,
                               .network = p->network,
                               .folder_shared = p->folder_shared,
                               .seconds = p->seconds,
                               .hosts = {rows, sizeof(*rows), p->n}};
    pp_document_json(pp_hosts_columns, &d, f);
    return 0;
}

/* Finds two hosts that disagree about a fact. *first is the first host that says anything about it;
 * returns the first host that says something else, or NULL if all agree. */
static const struct pp_host_facts *find_other(const struct pp_preflight *p, int fact,
                                              const struct pp_host_facts **first)
{
    *first = NULL;
    for (int i = 0; i < p->n; i++) {
        const struct pp_host_facts *h = &p->hosts[i];
        if (!*first && h->fact[fact][0])
            *first = h;
        if (*first && h->fact[fact][0] && strcmp((*first)->fact[fact], h->fact[fact]) != 0)
            return h;
    }
    return NULL;
}

static int print_preflight(const struct pp_preflight *p, FILE *f)
{
    double spread = 0;
    bool lost = false;
    char text[PP_HOST_TEXT];
    const struct pp_host_facts *first, *other, *clock = NULL;
    fprintf(f, "hosts\n");
    for (int i = 0; i < p->n; i++) {
        const struct pp_host_facts *h = &p->hosts[i];
        fprintf(f, "  %-14s %s%s\n", h->name, h->wrong[0] ? "no: " : pp_host_text(h, text),
                h->wrong);
        clock = clock || h->wrong[0] ? clock : h;
        lost = lost || h->wrong[0];
        spread = h->wrong[0] ? spread : fmax(spread, fabs(h->clock_s - clock->clock_s));
    }
    fprintf(f, "\nways\n");
    for (int i = 0; i < p->n * p->n; i++)
        if (pp_way_text(&p->ways[i], text)[0])
            fprintf(f, "  %s -> %s: %s\n", p->hosts[i / p->n].name, p->hosts[i % p->n].name, text);
    fprintf(f, "\ntogether\n");
    for (int k = 0; k < PP_HOST_FACTS; k++) {
        other = find_other(p, k, &first);
        if (other)
            fprintf(f, "  %-14s not the same: %s and %s differ\n", fact_names[k], first->name,
                    other->name);
        else if (first)
            fprintf(f, "  %-14s the same\n", fact_names[k]);
    }
    fprintf(f, "  %-14s %s\n", "run folder",
            !p->folder_shared ? "not the same everywhere: rank 0's, and checkpoint.copies"
            : lost            ? "all that answer see it"
                              : "all see it");
    fprintf(f, "  %-14s within %.1f ms\n", "clocks", spread * 1e3);
    fprintf(f, "  %-14s %s\n", "network", p->network[0] ? p->network : "none");
    fprintf(f, "  %-14s %.1f s\n", "took", p->seconds);
    return 0;
}

int pp_preflight_print(const struct pp_preflight *p, bool json, FILE *f)
{
    return json ? print_hosts_json(p, f) : print_preflight(p, f);
}
