/* SPDX-License-Identifier: Apache-2.0 */
/* Parses run.hosts and its related keys: a list of hosts in Open MPI's format, ports, an agent. */
#include "hosts.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#define FILE_MAX ((uint64_t)1 << 20)

/* Returns whether a name is safe as a word of the agent's command line, for a shell and for ssh. */
static bool is_host_name(const char *s)
{
    size_t n = strlen(s);
    return isalnum((unsigned char)s[0]) && n < PP_HOST_NAME_MAX &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") == n;
}

/* Adds a host to *out. Its text is "h0", "h0:2", or "h0 slots=2 max_slots=4"; words with '=' other
 * than slots are ignored. */
static int add_host(const char *from, char *text, struct pp_hosts *out)
{
    char *name = NULL, *count = NULL, *end = NULL, shown[80];
    for (char *word; (word = strsep(&text, " \t\r"));)
        if (strncmp(word, "slots=", 6) == 0)
            count = word + 6;
        else if (name && word[0] && !strchr(word, '='))
            return pp_fail(PP_ECONFIG,
                           "%s: '%s' after a host: write h0,h1, or a line of a file each", from,
                           pp_text_shown(word, shown, sizeof(shown)));
        else
            name = word[0] && !name ? word : name;
    if (!name)
        return 0;
    char *colon = strchr(name, ':');
    if (colon && colon == strrchr(name, ':')) { /* else it is an IPv6 address */
        *colon = '\0';
        count = count ? count : colon + 1;
    }
    if (!is_host_name(name)) {
        return pp_fail(PP_ECONFIG, "%s: '%s' is not a host name or IPv4 address; write h0:2,h1:2",
                       from, pp_text_shown(name, shown, sizeof(shown)));
    }
    for (int i = 0; i < out->n; i++)
        if (strcmp(out->items[i].name, name) == 0)
            return pp_fail(PP_ECONFIG, "%s: %s is given twice; write %s:N once", from, name, name);
    if (out->n == PP_HOSTS_MAX)
        return pp_fail(PP_ECONFIG, "%s: more than %d hosts", from, PP_HOSTS_MAX);
    long ranks = count && isdigit((unsigned char)count[0]) ? strtol(count, &end, 10) : 0;
    if (count && (ranks < 1 || ranks > INT_MAX / PP_HOSTS_MAX || *end)) {
        return pp_fail(PP_ECONFIG, "%s: '%s' is not a number of ranks for %s", from,
                       pp_text_shown(count, shown, sizeof(shown)), name);
    }
    struct pp_host *h = &out->items[out->n++];
    snprintf(h->name, sizeof(h->name), "%s", name);
    h->ranks = (int)ranks;
    return 0;
}

static int divide_ranks(int ranks, struct pp_hosts *h)
{
    int sum = 0, said = 0;
    for (int i = 0; i < h->n; i++)
        said += h->items[i].ranks;
    for (int i = 0; i < h->n; i++) {
        int *r = &h->items[i].ranks;
        if (*r == 0)
            *r = said == 0 && ranks > h->n ? ranks / h->n + (i < ranks % h->n) : 1;
        sum += *r;
        if (h->n > 1 && (strcmp(h->items[i].name, "localhost") == 0 ||
                         strncmp(h->items[i].name, "127.", 4) == 0)) {
            return pp_fail(PP_ECONFIG,
                           "run.hosts: %s is another machine for every host; write the "
                           "name by which the others know it",
                           h->items[i].name);
        }
    }
    if (ranks > 0 && sum != ranks) {
        return pp_fail(PP_ECONFIG,
                       "run.hosts has %d host%s with places for %d rank%s, but pipeline.stages x "
                       "pipeline.replicas are %d; write as many places as ranks (h0:2,h1:2)",
                       h->n, pp_plural(h->n), sum, pp_plural(sum), ranks);
    }
    return 0;
}

int pp_hosts_parse(const char *text, int ranks, struct pp_hosts *out)
{
    const char *path = strncmp(text, "file:", 5) == 0 ? text + 5 : NULL;
    const char *from = path ? path : "run.hosts";
    PP_OWN_MEMORY char *copy = NULL;
    size_t bytes;
    *out = (struct pp_hosts){.n = 0};
    if (path)
        PP_TRY(pp_file_read(path, FILE_MAX, &copy, &bytes));
    else if (!(copy = pp_strdup(text)))
        return PP_ERESOURCE;
    for (char *rest = copy + (path ? pp_text_bom(copy) : 0), *item;
         (item = strsep(&rest, path ? "\n" : ","));) {
        item[path ? strcspn(item, "#") : strlen(item)] = '\0';
        PP_TRY(add_host(from, item, out));
    }
    return out->n > 0 ? divide_ranks(ranks, out)
                      : pp_fail(PP_ECONFIG, "%s: no host; write h0:2,h1:2", from);
}

int pp_ports_parse(const char *text, int *first, int *last)
{
    int a = 0, b = 0, used = 0;
    char shown[80];
    if (strcmp(text, "auto") != 0 && (sscanf(text, "%5d-%5d%n", &a, &b, &used) != 2 || text[used] ||
                                      a < 1024 || b < a + 3 || b > 65535)) {
        return pp_fail(PP_ECONFIG,
                       "run.ports: '%s' is not a range of at least 4 ports from 1024 to 65535; "
                       "write 52000-52031",
                       pp_text_shown(text, shown, sizeof(shown)));
    }
    *first = a;
    *last = b;
    return 0;
}

const char *pp_host_agent(const struct pp_config *cfg)
{
    const char *agent = cfg->run.agent[0] ? cfg->run.agent : getenv("PPCLI_HOST_AGENT");
    return agent && agent[0] ? agent : "ssh";
}

bool pp_host_variable(const char *text)
{
    static const char *const ours[] = {
        "PPCLI_", "OMP_", "OPENBLAS_",        "MKL_",     "BLIS_", "NCCL_",
        "CUDA_",  "XDG_", "LD_LIBRARY_PATH=", "NO_COLOR="};
    bool is = false;
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]) && !is; i++)
        is = strncmp(text, ours[i], strlen(ours[i])) == 0;
    return is;
}
