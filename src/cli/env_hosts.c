/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli env --hosts: the preflight of a run over several hosts, with nothing to run. */
#include <math.h>
#include <string.h>

#include "ppcli/hosts.h"
#include "command.h"

static void print(const struct pp_preflight *p)
{
    static const char *const what[] = {"program", "MPI", "config", "data set", "processors"};
    double spread = 0;
    printf("hosts\n");
    for (int i = 0; i < p->n; i++) {
        const struct pp_host_facts *h = &p->hosts[i];
        printf("  %-14s %s%s\n", h->name, h->wrong[0] ? "no: " : h->text, h->wrong);
        spread = h->wrong[0] ? spread : fmax(spread, fabs(h->clock_s - p->hosts[0].clock_s));
    }
    printf("\nways\n");
    for (int i = 0; i < p->n * p->n; i++)
        if (p->ways[i][0])
            printf("  %s -> %s: %s\n", p->hosts[i / p->n].name, p->hosts[i % p->n].name,
                   p->ways[i]);
    printf("\ntogether\n");
    for (int k = 0; k < PP_HOST_FACTS; k++) {
        bool same = true;
        for (int i = 1; i < p->n; i++)
            same = same && strcmp(p->hosts[0].fact[k], p->hosts[i].fact[k]) == 0;
        if (!same || p->hosts[0].fact[k][0])
            printf("  %-14s %s\n", what[k], same ? "the same" : "not the same");
    }
    printf("  %-14s %s\n", "run folder",
           p->folder_shared ? "all see it" : "not the same everywhere: each host keeps its part");
    printf("  %-14s within %.1f ms\n", "clocks", spread * 1e3);
    printf("  %-14s %s\n", "network", p->network[0] ? p->network : "none");
    printf("  %-14s %.1f s\n", "took", p->seconds);
}

int env_hosts(const char *hosts, const char *word)
{
    struct pp_cli_settings settings = {.items = {{"run.hosts", hosts, "--hosts"}}, .n = 1};
    static struct pp_hosts list; /* too large for a small stack */
    struct pp_preflight p = {0};
    struct pp_config *cfg = NULL;
    char path[PP_PATH_MAX];
    if (strcmp(hosts, "-") == 0)
        return pp_hosts_answer();
    int rc = word ? pp_cli_find_config(word, path) : 0;
    if (rc == 0)
        rc = pp_cli_load_config(word ? path : NULL, &settings, &cfg);
    if (rc == 0)
        rc = pp_hosts_parse(hosts, 0, &list);
    if (rc == 0)
        rc = pp_preflight(cfg, word ? path : NULL, &list, true, &p);
    if (p.hosts)
        print(&p);
    pp_preflight_fini(&p);
    pp_config_destroy(&cfg);
    return rc;
}
