/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli env --hosts: the preflight of a run over several hosts, with nothing to run. */
#include <math.h>
#include <string.h>

#include "ppcli/hosts.h"
#include "ppcli/json.h"
#include "command.h"

static const char *const what[] = {"program", "MPI", "config", "data set", "processors"};

static void print_json(const struct pp_preflight *p)
{
    char text[PP_HOST_TEXT];
    struct pp_json j = pp_json_begin(stdout, 2);
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

static void print(const struct pp_preflight *p)
{
    double spread = 0;
    bool lost = false;
    char text[PP_HOST_TEXT];
    const struct pp_host_facts *first, *other, *clock = NULL;
    printf("hosts\n");
    for (int i = 0; i < p->n; i++) {
        const struct pp_host_facts *h = &p->hosts[i];
        printf("  %-14s %s%s\n", h->name, h->wrong[0] ? "no: " : pp_host_text(h, text), h->wrong);
        clock = clock || h->wrong[0] ? clock : h;
        lost = lost || h->wrong[0];
        spread = h->wrong[0] ? spread : fmax(spread, fabs(h->clock_s - clock->clock_s));
    }
    printf("\nways\n");
    for (int i = 0; i < p->n * p->n; i++)
        if (pp_way_text(&p->ways[i], text)[0])
            printf("  %s -> %s: %s\n", p->hosts[i / p->n].name, p->hosts[i % p->n].name, text);
    printf("\ntogether\n");
    for (int k = 0; k < PP_HOST_FACTS; k++) {
        other = find_other(p, k, &first);
        if (other)
            printf("  %-14s not the same: %s and %s differ\n", what[k], first->name, other->name);
        else if (first)
            printf("  %-14s the same\n", what[k]);
    }
    printf("  %-14s %s\n", "run folder",
           !p->folder_shared ? "not the same everywhere: rank 0's, and checkpoint.copies"
           : lost            ? "all that answer see it"
                             : "all see it");
    printf("  %-14s within %.1f ms\n", "clocks", spread * 1e3);
    printf("  %-14s %s\n", "network", p->network[0] ? p->network : "none");
    printf("  %-14s %.1f s\n", "took", p->seconds);
}

int env_hosts(const char *hosts, const char *word, bool json)
{
    struct pp_cli_settings settings = {.items = {{"run.hosts", hosts, "--hosts"}}, .n = 1};
    static struct pp_hosts list; /* too large for a small stack */
    PP_OWN(pp_preflight_fini) struct pp_preflight p = {0};
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    char path[PP_PATH_MAX];
    if (strcmp(hosts, "-") == 0)
        return pp_hosts_answer();
    if (word)
        PP_TRY(pp_cli_find_config(word, path));
    PP_TRY(pp_cli_load_config(word ? path : NULL, &settings, &cfg));
    PP_TRY(pp_hosts_parse(hosts, 0, &list));
    int rc = pp_preflight(cfg, word ? path : NULL, &list, true, &p);
    if (p.hosts)
        (json ? print_json : print)(&p);
    return rc;
}
