/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be the same on all hosts, and whether every one of them reaches every other: found before
 * anything of MPI starts, because MPI waits where it cannot connect. In round k host i calls host
 * i + k, so that each calls one and is called by one.
 */
#include "hosts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/clock.h"
#include "ppcli/dataset.h"
#include "ppcli/log.h"
#include "ppcli/mem.h"
#include "ppcli/text.h"

#define START_SECONDS 4.0
#define ANSWER_SECONDS 2.5
#define END_SECONDS 0.5
#define PORT_FIRST 32768 /* of any */
#define PORT_LAST 60999
#define STREAM_MS 50 /* of a full preflight, for each way */
#define CLOCK_SECONDS 60

struct preflight {
    const struct pp_config *cfg;
    struct remote *r; /* [n] */
    char token[HOSTS_TOKEN + 1];
    struct pp_preflight *out;
    int code; /* of the first thing wrong, which is in out->wrong */
};

__attribute__((format(printf, 3, 4))) static void blame(struct preflight *p, int code,
                                                        const char *fmt, ...)
{
    va_list args;
    if (p->code != 0)
        return;
    p->code = code;
    va_start(args, fmt);
    vsnprintf(p->out->wrong, sizeof(p->out->wrong), fmt, args);
    va_end(args);
}

/* A host has said what is wrong, or says nothing any more. */
static void drop(struct preflight *p, int i)
{
    struct pp_host_facts *h = &p->out->hosts[i];
    struct remote *r = &p->r[i];
    bool lost = r->wrong[0] != '\0';
    if (h->wrong[0])
        return;
    snprintf(h->wrong, sizeof(h->wrong), "%.500s", lost ? r->wrong : r->answer);
    snprintf(r->wrong, sizeof(r->wrong), "%s", h->wrong);
    if (lost && r->trip_ns > 0) {
        blame(p, PP_ERESOURCE, "%s was lost while it was asked: %s", h->name, h->wrong);
    } else if (lost) {
        blame(p, PP_ERESOURCE,
              "%s cannot be asked: %s; '%s %s true' must work without a password, and ppcli be in "
              "the same place on every host",
              h->name, h->wrong, pp_host_agent(p->cfg), h->name);
    } else {
        blame(p, PP_ERESOURCE, "%s: %s", h->name, h->wrong);
    }
}

/* must: a host that answers what is wrong is of no use. */
static void wait_for_all(struct preflight *p, double seconds, bool must)
{
    remote_ask(p->r, p->out->n, seconds);
    for (int i = 0; i < p->out->n; i++)
        if (p->r[i].wrong[0] || (must && !p->r[i].good))
            drop(p, i);
}

static void add_network(struct preflight *p, const char *network)
{
    char *list = p->out->network, *at = list;
    size_t n = strlen(network);
    while ((at = strstr(at, network)) && ((at > list && at[-1] != ',') || (at[n] && at[n] != ',')))
        at++;
    if (!at)
        pp_text_add(list, sizeof(p->out->network), "%s%s", list[0] ? "," : "", network);
}

/* The same question. */
__attribute__((format(printf, 3, 4))) static void ask_all(struct preflight *p, bool must,
                                                          const char *fmt, ...)
{
    char text[sizeof(p->r->question)];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (int i = 0; i < p->out->n && n < (int)sizeof(text); i++)
        memcpy(p->r[i].question, text, (size_t)n + 1);
    wait_for_all(p, ANSWER_SECONDS, must);
}

static void start(struct preflight *p)
{
    int n = p->out->n;
    for (int i = 0; i < n; i++) {
        struct pp_host_facts *h = &p->out->hosts[i];
        struct pp_route route;
        p->r[i].name = h->name;
        h->here = pp_host_is_here(h->name);
        if (!h->here && pp_route_find(h->name, &route) < 0) {
            snprintf(p->r[i].answer, sizeof(p->r[i].answer), "%.500s", pp_error_get()->text);
            drop(p, i);
            continue;
        }
        if (!h->here)
            add_network(p, route.network);
        remote_start(&p->r[i], pp_host_agent(p->cfg), h->here);
        snprintf(p->r[i].question, sizeof(p->r[i].question), "facts\n");
    }
    wait_for_all(p, START_SECONDS, true);
    for (int i = 0; i < n; i++) {
        struct pp_host_facts *h = &p->out->hosts[i];
        if (!h->wrong[0] && sscanf(p->r[i].answer, "%255[^|]|%255[^|]|%255[^|]|%63[^|]|%d|%255[^|]",
                                   h->fact[PP_HOST_PROGRAM], h->fact[PP_HOST_MPI],
                                   h->fact[PP_HOST_CPU], h->boot, &h->cores, h->text) != 6)
            drop(p, i);
        for (int k = 0; k < i; k++)
            p->out->one_machine |= h->boot[0] && strcmp(p->out->hosts[k].boot, h->boot) == 0;
    }
}

static void ask_digest(struct preflight *p, const char *path, enum pp_host_fact fact)
{
    ask_all(p, true, "digest\t%s\n", path);
    for (int i = 0; i < p->out->n; i++)
        snprintf(p->out->hosts[i].fact[fact], sizeof(p->out->hosts[i].fact[fact]), "%.255s",
                 p->r[i].answer);
}

/* The config file, and the training data; a data set that is made from the seed has no files. */
static void ask_files(struct preflight *p, const char *path)
{
    char full[PP_PATH_MAX];
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    if (path && realpath(path, full))
        ask_digest(p, full, PP_HOST_CONFIG);
    if (path && pp_dataset_look(p->cfg, PP_SPLIT_TRAIN, &ds) == 0 && ds->origin[0] == '/')
        ask_digest(p, ds->origin, PP_HOST_DATA);
}

/* What there is of the run on each host. */
static void ask_newest(struct preflight *p)
{
    const char *dir = p->cfg->run.dir;
    char here[PP_PATH_MAX] = "";
    if (dir[0] != '/' && !getcwd(here, sizeof(here)))
        return;
    ask_all(p, false, "last\t%s/%s/checkpoints\tstep-\n", here, dir);
    for (int i = 0; i < p->out->n; i++)
        p->out->hosts[i].newest = p->r[i].good ? atoll(p->r[i].answer) : -1;
}

/* A file of ours where the run folder will be: who sees it? */
static void ask_folder(struct preflight *p)
{
    char dir[PP_PATH_MAX], path[PP_PATH_MAX + 32];
    bool is_auto = strcmp(p->cfg->run.dir, "auto") == 0;
    ask_newest(p);
    if (!realpath(is_auto ? "." : p->cfg->run.dir, dir))
        snprintf(dir, sizeof(dir), "%s", p->cfg->run.dir);
    for (char *slash; access(dir, F_OK) != 0 && (slash = strrchr(dir, '/')) && slash > dir;)
        *slash = '\0';
    snprintf(path, sizeof(path), "%s/.ppcli-%s", dir, p->token);
    FILE *f = p->cfg->run.dir[0] ? fopen(path, "wxe") : NULL;
    p->out->folder_shared = true;
    if (!f)
        return;
    fclose(f);
    ask_all(p, false, "digest\t%s\n", path);
    unlink(path);
    for (int i = 0; i < p->out->n; i++)
        p->out->folder_shared = p->out->folder_shared && p->r[i].good;
}

static void compare(struct preflight *p)
{
    static const char *const what[] = {"program ppcli", "MPI library", "config file", "data set"};
    const struct pp_host_facts *a = p->out->hosts, *h;
    for (int i = 1; i < p->out->n; i++) {
        h = &p->out->hosts[i];
        if (a->wrong[0] || h->wrong[0])
            continue;
        for (int k = 0; k < PP_HOST_CPU; k++) {
            if (strcmp(a->fact[k], h->fact[k]) != 0)
                blame(p, PP_ECONFIG,
                      "%s has another %s (%.14s) than %s (%.14s): make them the same", h->name,
                      what[k], h->fact[k], a->name, a->fact[k]);
        }
        if (strcmp(a->fact[PP_HOST_CPU], h->fact[PP_HOST_CPU]) != 0)
            pp_log_warn("%s computes with %s, %s with %s: other bits than on one host", a->name,
                        a->fact[PP_HOST_CPU], h->name, h->fact[PP_HOST_CPU]);
        if (fabs(p->r[i].clock_s - p->r[0].clock_s) > CLOCK_SECONDS)
            pp_log_warn("the clock of %s is %.0f s from that of %s", h->name,
                        p->r[i].clock_s - p->r[0].clock_s, a->name);
    }
}

static void take_way(struct preflight *p, int from, int to)
{
    struct remote *r = &p->r[from];
    char *text = p->out->ways[from * p->out->n + to];
    char *rest = r->answer, *network = strsep(&rest, "|");
    if (r->good && rest) {
        add_network(p, network);
        snprintf(text, sizeof(*p->out->ways), "%.255s", rest);
        return;
    }
    snprintf(text, sizeof(*p->out->ways), "no: %.250s", r->wrong[0] ? r->wrong : r->answer);
    blame(p, PP_ERESOURCE,
          "%s does not reach %s: %s; open the ports between all hosts, or name open ones in "
          "run.ports",
          p->out->hosts[from].name, p->out->hosts[to].name, text + 4);
}

static void ask_ways(struct preflight *p, bool full)
{
    int n = p->out->n, first = 0, last = 0, port[PP_HOSTS_MAX];
    if (pp_ports_parse(p->cfg->run.ports, &first, &last) < 0)
        blame(p, PP_ECONFIG, "%s", pp_error_get()->text);
    ask_all(p, true, "listen\t%d\t%d\t%s\n", first ? first : PORT_FIRST, first ? last : PORT_LAST,
            p->token);
    for (int i = 0; i < n; i++)
        port[i] = p->r[i].good ? atoi(p->r[i].answer) : 0;
    for (int k = 1; k < n && (full || p->code == 0); k++) {
        for (int i = 0; i < n; i++)
            if (port[i] && port[(i + k) % n])
                snprintf(p->r[i].question, sizeof(p->r[i].question), "probe\t%s\t%d\t%s\t%d\n",
                         p->out->hosts[(i + k) % n].name, port[(i + k) % n], p->token,
                         full ? STREAM_MS : 0);
        wait_for_all(p, ANSWER_SECONDS, false);
        for (int i = 0; i < n; i++)
            if (port[i] && port[(i + k) % n])
                take_way(p, i, (i + k) % n);
    }
}

static int run(struct preflight *p, const char *path, bool full)
{
    uint64_t begun = pp_clock_ns();
    snprintf(p->token, sizeof(p->token), "%016llx",
             (unsigned long long)(begun * 0x9e3779b97f4a7c15ull ^ (uint64_t)getpid()));
    start(p);
    if (full || p->code == 0)
        ask_files(p, path);
    compare(p);
    if (full || p->code == 0)
        ask_folder(p);
    if (full || p->code == 0)
        ask_ways(p, full);
    for (int i = 0; i < p->out->n; i++)
        p->out->hosts[i].clock_s = p->r[i].clock_s;
    remote_end(p->r, p->out->n, END_SECONDS);
    p->out->seconds = (double)(pp_clock_ns() - begun) * 1e-9;
    return p->code == 0 ? 0 : pp_fail(p->code, "%s", p->out->wrong);
}

int pp_preflight(const struct pp_config *cfg, const char *path, const struct pp_hosts *hosts,
                 bool full, struct pp_preflight *out)
{
    size_t n = (size_t)hosts->n;
    struct pp_preflight all = {.n = hosts->n,
                               .hosts = pp_alloc(n, sizeof(*all.hosts)),
                               .ways = pp_alloc(n * n, sizeof(*all.ways))};
    struct preflight p = {.cfg = cfg, .out = &all, .r = pp_alloc(n, sizeof(*p.r))};
    int rc = all.hosts && all.ways && p.r ? 0 : PP_ERESOURCE;
    for (int i = 0; rc == 0 && i < all.n; i++)
        memcpy(all.hosts[i].name, hosts->items[i].name, PP_HOST_NAME_MAX);
    if (rc == 0)
        rc = run(&p, path, full);
    pp_free(p.r);
    *out = all;
    return rc;
}

int pp_preflight_left(const struct pp_config *cfg, const char *path, int ranks,
                      struct pp_hosts *hosts, struct pp_preflight *out)
{
    PP_TRY(pp_hosts_parse(cfg->run.hosts, ranks, hosts));
    int rc = pp_preflight(cfg, path, hosts, true, out);
    if (!out->wrong[0])
        return rc;
    pp_error_clear();
    for (int i = 0; i < out->n; i++) {
        struct pp_host_facts *h = &out->hosts[i];
        for (int k = 0; k < out->n && !h->here && !h->wrong[0]; k++) {
            const char *there = out->ways[k * out->n + i], *back = out->ways[i * out->n + k];
            bool no = strncmp(there, "no: ", 4) == 0;
            if ((k < i || out->hosts[k].here) && hosts->items[k].ranks > 0 &&
                (no || strncmp(back, "no: ", 4) == 0))
                snprintf(h->wrong, sizeof(h->wrong), "%s", (no ? there : back) + 4);
        }
        hosts->items[i].ranks = h->wrong[0] ? 0 : hosts->items[i].ranks;
    }
    return 0;
}

void pp_preflight_fini(struct pp_preflight *p)
{
    pp_free(p->hosts);
    pp_free(p->ways);
    *p = (struct pp_preflight){0};
}
