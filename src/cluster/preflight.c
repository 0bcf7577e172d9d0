/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks, before MPI starts, what must be equal on all hosts, and that every host can connect to
 * every other: MPI would wait forever where it cannot connect. In round k host i calls host i + k,
 * so each host calls one host and is called by one.
 */
#include "hosts.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"
#include "ppcli/data/dataset.h"

#define START_SECONDS 4.0
#define ANSWER_SECONDS 2.5
#define END_SECONDS 0.5
#define STREAM_MS 50 /* of a full preflight, for each route */
#define CLOCK_SECONDS 60

struct preflight {
    const struct pp_config *cfg;
    struct remote *r;               /* [n] */
    char (*peer)[PP_HOST_NAME_MAX]; /* [n] address or name to connect to */
    char token[HOSTS_TOKEN + 1];
    struct pp_preflight *out;
    int code; /* code of the first error, which is in out->wrong */
};

__attribute__((format(printf, 3, 4))) static void report_problem(struct preflight *p, int code,
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

/* Excludes a host that reported an error of kind `code` or does not answer any more, and reports
 * why. */
static void exclude_host(struct preflight *p, int i, int code)
{
    struct pp_host_facts *h = &p->out->hosts[i];
    struct remote *r = &p->r[i];
    bool lost = r->wrong[0] != '\0';
    if (h->wrong[0])
        return;
    snprintf(h->wrong, sizeof(h->wrong), "%.500s", lost ? r->wrong : r->answer);
    snprintf(r->wrong, sizeof(r->wrong), "%s", h->wrong);
    if (!lost && code == PP_ECONFIG) {
        report_problem(p, code, "%s", h->wrong);
    } else if (lost && r->trip_ns > 0) {
        report_problem(p, PP_ERESOURCE, "%s was lost while it was asked: %s", h->name, h->wrong);
    } else if (lost) {
        report_problem(
            p, PP_ERESOURCE,
            "%s cannot be asked: %s; '%s %s true' must work without a password, and ppcli be in "
            "the same place on every host",
            h->name, h->wrong, pp_host_agent(p->cfg), h->name);
    } else {
        report_problem(p, PP_ERESOURCE, "%s: %s", h->name, h->wrong);
    }
}

/* Waits for the answers of all hosts, and excludes those that do not answer. A host that answers
 * with an error is excluded with the error code `code`, but stays if that is 0. */
static void wait_for_all(struct preflight *p, double seconds, int code)
{
    remote_ask(p->r, p->out->n, seconds);
    for (int i = 0; i < p->out->n; i++)
        if (p->r[i].wrong[0] || (code != 0 && !p->r[i].good))
            exclude_host(p, i, code);
}

/* Returns whether a comma-separated list contains the word. */
static bool list_has_word(const char *list, const char *word)
{
    const char *at = list;
    size_t n = strlen(word);
    while ((at = strstr(at, word)) && ((at > list && at[-1] != ',') || (at[n] && at[n] != ',')))
        at++;
    return at != NULL;
}

static void add_network(struct preflight *p, const char *network)
{
    char *list = p->out->network;
    if (!list_has_word(list, network))
        pp_text_add(list, sizeof(p->out->network), "%s%s", list[0] ? "," : "", network);
}

/* Asks all hosts the same question, and waits for their answers as wait_for_all() does. */
__attribute__((format(printf, 3, 4))) static void ask_all(struct preflight *p, int code,
                                                          const char *fmt, ...)
{
    char text[sizeof(p->r->question)];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (int i = 0; i < p->out->n && n < (int)sizeof(text); i++)
        memcpy(p->r[i].question, text, (size_t)n + 1);
    wait_for_all(p, ANSWER_SECONDS, code);
}

/* Excludes a host whose answer does not fit. The text becomes its answer, which says why. */
__attribute__((format(printf, 4, 5))) static void refuse_host(struct preflight *p, int i, int code,
                                                              const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(p->r[i].answer, sizeof(p->r[i].answer), fmt, args);
    va_end(args);
    exclude_host(p, i, code);
}

/* Splits a text at '|' into words, in place. Returns whether there are exactly n. */
static bool split_words(char *text, char **words, int n)
{
    for (int i = 0; i < n; i++)
        words[i] = strsep(&text, "|");
    return !text && words[n - 1];
}

static bool read_facts(struct preflight *p, int i)
{
    struct pp_host_facts *h = &p->out->hosts[i];
    char *w[9];
    if (!split_words(p->r[i].answer, w, 9))
        return false;
    snprintf(h->fact[PP_HOST_PROGRAM], sizeof(h->fact[0]), "%s", w[0]);
    snprintf(h->fact[PP_HOST_MPI], sizeof(h->fact[0]), "%s", w[1]);
    snprintf(h->fact[PP_HOST_CPU], sizeof(h->fact[0]), "%s", w[2]);
    snprintf(h->boot, sizeof(h->boot), "%s", w[3]);
    h->cores = atoi(w[4]);
    h->cores_there = atoi(w[5]);
    h->free_bytes = strtoull(w[6], NULL, 10);
    snprintf(h->calls_itself, sizeof(h->calls_itself), "%s", w[7]);
    snprintf(h->addresses, sizeof(h->addresses), "%s", w[8]);
    return true;
}

/* Checks that host i is the one that its name means, and is not the same as a host before it.
 * `peer` is the address that the name means here, or "" if the host is this machine or messages use
 * another network. */
static void check_identity(struct preflight *p, int i, const char *peer)
{
    struct pp_host_facts *h = &p->out->hosts[i];
    char here[64] = "";
    gethostname(here, sizeof(here) - 1);
    if (peer[0] && !list_has_word(h->addresses, peer)) {
        refuse_host(
            p, i, PP_ERESOURCE,
            "on %s the name %s means %s, but the host that the agent reaches has %s and calls "
            "itself %s; correct /etc/hosts",
            here, h->name, peer, h->addresses[0] ? h->addresses : "no address", h->calls_itself);
        return;
    }
    for (int k = 0; k < i; k++) {
        const struct pp_host_facts *o = &p->out->hosts[k];
        bool one = h->boot[0] && strcmp(o->boot, h->boot) == 0;
        p->out->one_machine |= one;
        if (one && !o->wrong[0] && strcmp(o->addresses, h->addresses) == 0 &&
            strcmp(o->calls_itself, h->calls_itself) == 0)
            refuse_host(
                p, i, PP_ECONFIG,
                "run.hosts: %s and %s are one host (%s, %s); write one of the names, with the "
                "ranks of both",
                o->name, h->name, h->calls_itself, h->addresses);
    }
    if (isalpha((unsigned char)h->name[0]) &&
        strncmp(h->name, h->calls_itself, strcspn(h->name, ".")) != 0 && !h->wrong[0])
        pp_log_info("host %s calls itself %s", h->name, h->calls_itself);
}

static void start_helpers(struct preflight *p)
{
    int n = p->out->n;
    bool by_name = strcmp(p->cfg->run.network, "auto") == 0;
    for (int i = 0; i < n; i++) {
        struct pp_host_facts *h = &p->out->hosts[i];
        struct pp_route route;
        p->r[i].name = h->name;
        h->here = pp_host_is_here(h->name);
        if (!h->here && pp_route_find(h->name, &route) < 0) {
            refuse_host(p, i, PP_ERESOURCE, "%.500s", pp_error_get()->text);
            continue;
        }
        if (!h->here && by_name) {
            add_network(p, route.network);
            snprintf(p->peer[i], sizeof(p->peer[i]), "%s", route.peer);
        }
        remote_start(&p->r[i], pp_host_agent(p->cfg), h->here);
        snprintf(p->r[i].question, sizeof(p->r[i].question), "facts\n");
    }
    wait_for_all(p, START_SECONDS, PP_ERESOURCE);
    for (int i = 0; i < n; i++) {
        if (p->out->hosts[i].wrong[0])
            continue;
        if (read_facts(p, i))
            check_identity(p, i, p->peer[i]);
        else
            refuse_host(p, i, PP_ERESOURCE,
                        "it has another version of ppcli; install the same one");
    }
}

/* Finds under which name or address messages of the run reach each host: its name, or its own
 * address in run.network, in which this machine needs an address too. */
static void ask_addresses(struct preflight *p)
{
    char own[16];
    const char *network = p->cfg->run.network;
    for (int i = 0; i < p->out->n; i++)
        snprintf(p->peer[i], sizeof(p->peer[i]), "%s", p->out->hosts[i].name);
    if (strcmp(network, "auto") == 0)
        return;
    if (pp_network_find(network, own) < 0)
        report_problem(p, PP_ECONFIG, "%s", pp_error_get()->text);
    ask_all(p, PP_ECONFIG, "address\t%s\n", network);
    for (int i = 0; i < p->out->n; i++)
        snprintf(p->peer[i], sizeof(p->peer[i]), "%.63s", p->r[i].answer);
}

static void ask_digest(struct preflight *p, const char *path, enum pp_host_fact fact)
{
    ask_all(p, PP_ERESOURCE, "digest\t%s\n", path);
    for (int i = 0; i < p->out->n; i++)
        snprintf(p->out->hosts[i].fact[fact], sizeof(p->out->hosts[i].fact[fact]), "%.255s",
                 p->r[i].answer);
}

/* Asks all hosts for the digests of the config file and of the training data. A generated data set
 * has no files to ask for. */
static void ask_files(struct preflight *p, const char *path)
{
    char full[PP_PATH_MAX];
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    if (path && !getenv(PP_CONFIG_PINNED) && realpath(path, full))
        ask_digest(p, full, PP_HOST_CONFIG);
    if (path && pp_dataset_look(p->cfg, PP_SPLIT_TRAIN, &ds) == 0 && ds->origin[0] == '/')
        ask_digest(p, ds->origin, PP_HOST_DATA);
}

/* Asks each host for the newest checkpoint in the run folder. */
static void ask_newest(struct preflight *p)
{
    const char *dir = p->cfg->run.dir;
    char here[PP_PATH_MAX] = "";
    if (dir[0] != '/' && !getcwd(here, sizeof(here)))
        return;
    ask_all(p, 0, "last\t%s/%s/checkpoints\tstep-\n", here, dir);
    for (int i = 0; i < p->out->n; i++)
        p->out->hosts[i].newest = p->r[i].good ? atoll(p->r[i].answer) : -1;
}

/* Finds whether all hosts see the same run folder: creates a file in it and asks them for that
 * file. */
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
    ask_all(p, 0, "digest\t%s\n", path);
    unlink(path);
    for (int i = 0; i < p->out->n; i++)
        p->out->folder_shared &=
            p->r[i].good || p->out->hosts[i].wrong[0]; /* of a lost host it is unknown */
}

static void compare_hosts(struct preflight *p)
{
    static const char *const what[] = {"program ppcli", "MPI library", "config file", "data set"};
    const struct pp_host_facts *a = p->out->hosts, *h;
    for (int i = 1; i < p->out->n; i++) {
        h = &p->out->hosts[i];
        if (a->wrong[0] || h->wrong[0])
            continue;
        for (int k = 0; k < PP_HOST_CPU; k++) {
            if (strcmp(a->fact[k], h->fact[k]) != 0)
                report_problem(p, PP_ECONFIG,
                               "%s has another %s (%.14s) than %s (%.14s): make them the same",
                               h->name, what[k], h->fact[k], a->name, a->fact[k]);
        }
        if (strcmp(a->fact[PP_HOST_CPU], h->fact[PP_HOST_CPU]) != 0)
            pp_log_warn("%s computes with %s, %s with %s: other bits than on one host", a->name,
                        a->fact[PP_HOST_CPU], h->name, h->fact[PP_HOST_CPU]);
        if (fabs(p->r[i].clock_s - p->r[0].clock_s) > CLOCK_SECONDS)
            pp_log_warn("the clock of %s is %.0f s from that of %s", h->name,
                        p->r[i].clock_s - p->r[0].clock_s, a->name);
    }
}

/* Reports that messages do not get from host `from` to host `to`, with advice. */
static void report_route(struct preflight *p, int from, int to, const struct pp_way *w)
{
    const char *a = p->out->hosts[from].name, *b = p->out->hosts[to].name;
    if (w->state == PP_WAY_NARROW)
        report_problem(
            p, PP_ERESOURCE,
            "%s does not reach %s: %s; give all interfaces and switches of the network the same "
            "MTU, or name another network in run.network",
            a, b, w->wrong);
    else
        report_problem(
            p, PP_ERESOURCE,
            "%s does not reach %s: %s; open the ports between all hosts, or name open ones in "
            "run.ports",
            a, b, w->wrong);
}

static void read_route(struct preflight *p, int from, int to)
{
    struct remote *r = &p->r[from];
    struct pp_way *w = &p->out->ways[from * p->out->n + to];
    char *word[7];
    w->state = PP_WAY_OPEN;
    if (r->good && split_words(r->answer, word, 7)) {
        add_network(p, word[0]);
        snprintf(w->from, sizeof(w->from), "%s", word[1]);
        snprintf(w->device, sizeof(w->device), "%s", word[2]);
        snprintf(w->to, sizeof(w->to), "%s", word[3]);
        w->connect_s = strtod(word[4], NULL);
        double rate = strtod(word[6], NULL);
        w->link.latency = strtod(word[5], NULL) / 2;
        w->link.byte = rate > 0 ? 1 / rate : 0;
        if (rate >= 0)
            return;
        w->state = PP_WAY_NARROW;
        snprintf(w->wrong, sizeof(w->wrong),
                 "short messages from %s (%s) to %s arrive, full packets do not", w->from,
                 w->device, w->to);
    } else {
        w->state = PP_WAY_CLOSED;
        snprintf(w->wrong, sizeof(w->wrong), "%.300s", r->wrong[0] ? r->wrong : r->answer);
    }
    report_route(p, from, to, w);
}

/* Checks that this machine can connect to the hosts, if it is not one of them: the processes that
 * it starts there need a route to it. */
static void reach_from_outside(struct preflight *p, char (*ports)[8 * HOSTS_PORTS])
{
    for (int i = 0; i < p->out->n; i++)
        if (p->out->hosts[i].here)
            return;
    for (int i = 0; i < p->out->n; i++)
        if (ports[i][0] && hosts_reach(p->peer[i], ports[i]) < 0) {
            refuse_host(p, i, PP_ERESOURCE, "%.500s", pp_error_get()->text);
            ports[i][0] = '\0';
        }
}

static void ask_ways(struct preflight *p, bool full)
{
    int n = p->out->n, first = 0, last = 0;
    char(*ports)[8 * HOSTS_PORTS] = pp_alloc((size_t)n, sizeof(*ports));
    if (!ports || pp_ports_parse(p->cfg->run.ports, &first, &last) < 0)
        report_problem(p, ports ? PP_ECONFIG : PP_ERESOURCE, "%s", pp_error_get()->text);
    if (!ports)
        return;
    ask_all(p, PP_ERESOURCE, "listen\t%d\t%d\t%s\n", first, last, p->token);
    for (int i = 0; i < n; i++)
        snprintf(ports[i], sizeof(ports[i]), "%.500s", p->r[i].good ? p->r[i].answer : "");
    reach_from_outside(p, ports);
    for (int k = 1; k < n && (full || p->code == 0); k++) {
        for (int i = 0; i < n; i++)
            if (ports[i][0] && ports[(i + k) % n][0])
                snprintf(p->r[i].question, sizeof(p->r[i].question), "probe\t%s\t%s\t%s\t%d\n",
                         p->peer[(i + k) % n], ports[(i + k) % n], p->token, full ? STREAM_MS : 0);
        wait_for_all(p, ANSWER_SECONDS, 0);
        for (int i = 0; i < n; i++)
            if (ports[i][0] && ports[(i + k) % n][0])
                read_route(p, i, (i + k) % n);
    }
    pp_free(ports);
}

static int run_preflight(struct preflight *p, const char *path, bool full)
{
    uint64_t begun = pp_clock_ns();
    snprintf(p->token, sizeof(p->token), "%016llx",
             (unsigned long long)(begun * 0x9e3779b97f4a7c15ull ^ (uint64_t)getpid()));
    start_helpers(p);
    if (full || p->code == 0)
        ask_addresses(p);
    if (full || p->code == 0)
        ask_files(p, path);
    compare_hosts(p);
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
    struct preflight p = {.cfg = cfg,
                          .out = &all,
                          .r = pp_alloc(n, sizeof(*p.r)),
                          .peer = pp_alloc(n, sizeof(*p.peer))};
    int rc = all.hosts && all.ways && p.r && p.peer ? 0 : PP_ERESOURCE;
    for (int i = 0; rc == 0 && i < all.n; i++)
        memcpy(all.hosts[i].name, hosts->items[i].name, PP_HOST_NAME_MAX);
    if (rc == 0)
        rc = run_preflight(&p, path, full);
    pp_free(p.r);
    pp_free(p.peer);
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
            const struct pp_way *there = &out->ways[k * out->n + i];
            const struct pp_way *back = &out->ways[i * out->n + k];
            if ((k < i || out->hosts[k].here) && hosts->items[k].ranks > 0)
                snprintf(h->wrong, sizeof(h->wrong), "%s",
                         there->wrong[0] ? there->wrong : back->wrong);
        }
        hosts->items[i].ranks = h->wrong[0] ? 0 : hosts->items[i].ranks;
    }
    return 0;
}

size_t pp_preflight_memory(const struct pp_preflight *p, const struct pp_hosts *hosts, size_t most)
{
    double least = most > 0 ? (double)most : INFINITY;
    for (int i = 0; i < hosts->n; i++)
        if (hosts->items[i].ranks > 0 && p->hosts[i].free_bytes < UINT64_MAX)
            least = fmin(least, 0.9 * (double)p->hosts[i].free_bytes / hosts->items[i].ranks);
    return least < INFINITY ? (size_t)least : 0;
}

const char *pp_host_text(const struct pp_host_facts *h, char out[PP_HOST_TEXT])
{
    snprintf(out, PP_HOST_TEXT, "%d cores, ", h->cores_there);
    if (h->free_bytes < UINT64_MAX)
        pp_text_add(out, PP_HOST_TEXT, "%.1f GiB free, ", (double)h->free_bytes / (1 << 30));
    pp_text_add(out, PP_HOST_TEXT, "%s, %s", h->fact[PP_HOST_MPI], h->fact[PP_HOST_CPU]);
    return out;
}

const char *pp_way_text(const struct pp_way *w, char out[PP_HOST_TEXT])
{
    out[0] = '\0';
    if (w->wrong[0])
        snprintf(out, PP_HOST_TEXT, "no: %s", w->wrong);
    else if (w->state == PP_WAY_OPEN)
        snprintf(out, PP_HOST_TEXT, "%s by %s, %s: connect %.2f ms, round trip %.3f ms", w->from,
                 w->device, w->to, w->connect_s * 1e3, 2 * w->link.latency * 1e3);
    if (w->link.byte > 0)
        pp_text_add(out, PP_HOST_TEXT, ", %.0f MB/s", 1e-6 / w->link.byte);
    return out;
}

void pp_preflight_fini(struct pp_preflight *p)
{
    pp_free(p->hosts);
    pp_free(p->ways);
    *p = (struct pp_preflight){0};
}
