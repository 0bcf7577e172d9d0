/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli env --hosts: the preflight of a run over several hosts, with nothing to run. */
#include "ppcli/show/results.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/files.h"

static const char *const what[] = {"program", "MPI", "config", "data set", "processors"};

static int json_preflight(const struct pp_preflight *p, FILE *f)
{
    char text[PP_HOST_TEXT];
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "wrong", p->wrong);
    pp_json_str(&j, "network", p->network);
    pp_json_bool(&j, "run_folder_shared", p->folder_shared);
    pp_json_dbl(&j, "seconds", p->seconds);
    pp_json_array(&j, "hosts");
    for (int i = 0; i < p->n; i++) {
        const struct pp_host_facts *h = &p->hosts[i];
        pp_json_object(&j, NULL);
        pp_json_str(&j, "host", h->name);
        pp_json_str(&j, "wrong", h->wrong);
        pp_json_str(&j, "text", h->wrong[0] ? "" : pp_host_text(h, text));
        pp_json_str(&j, "calls_itself", h->calls_itself);
        pp_json_str(&j, "addresses", h->addresses);
        pp_json_int(&j, "cores", h->cores_there);
        pp_json_dbl(&j, "free_bytes", (double)h->free_bytes);
        pp_json_dbl(&j, "clock_seconds", h->clock_s);
        for (int k = 0; k < PP_HOST_FACTS; k++)
            pp_json_str(&j, what[k], h->fact[k]);
        pp_json_object(&j, "to");
        for (int k = 0; k < p->n; k++)
            if (k != i)
                pp_json_str(&j, p->hosts[k].name, pp_way_text(&p->ways[i * p->n + k], text));
        pp_json_end(&j);
        pp_json_end(&j);
    }
    pp_json_end(&j);
    pp_json_end(&j);
    return 0;
}

/* NULL: all hosts that say it say the same; else the two that differ first. */
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
            fprintf(f, "  %-14s not the same: %s and %s differ\n", what[k], first->name,
                    other->name);
        else if (first)
            fprintf(f, "  %-14s the same\n", what[k]);
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
    return json ? json_preflight(p, f) : print_preflight(p, f);
}
