/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up names, addresses and interfaces with the resolver and the kernel of this machine. A run
 * uses the interface of the route to its peers, whatever other interfaces exist. */
#include "hosts.h"

#include <arpa/inet.h>
#include <glob.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/base/base.h"

static bool is_loopback(struct in_addr a)
{
    return ntohl(a.s_addr) >> 24 == 127;
}

/* Resolves a name. Returns 0, or the resolver's error number. */
static int resolve_name(const char *name, struct sockaddr_in *out)
{
    const struct addrinfo want = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(name, "9", &want, &found); /* any port: nothing is sent */
    if (rc == 0) {
        memcpy(out, found->ai_addr, sizeof(*out));
        freeaddrinfo(found);
    }
    return rc;
}

/* Finds the interface with an address, and sets its name and network in *out. Returns false if
 * there is none. */
static bool find_device(struct in_addr address, struct pp_route *out)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0)
        return false;
    for (const struct ifaddrs *i = all; i && !found; i = i->ifa_next) {
        struct sockaddr_in own, mask;
        if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(&own, i->ifa_addr, sizeof(own));
        memcpy(&mask, i->ifa_netmask, sizeof(mask));
        found = own.sin_addr.s_addr == address.s_addr;
        if (found) {
            char text[16];
            own.sin_addr.s_addr &= mask.sin_addr.s_addr;
            inet_ntop(AF_INET, &own.sin_addr, text, sizeof(text));
            snprintf(out->network, sizeof(out->network), "%s/%d", text,
                     __builtin_popcount(mask.sin_addr.s_addr));
            snprintf(out->device, sizeof(out->device), "%s", i->ifa_name);
        }
    }
    freeifaddrs(all);
    return found;
}

bool pp_host_is_here(const char *name)
{
    char own[256] = "";
    struct sockaddr_in to = {0};
    struct pp_route route;
    gethostname(own, sizeof(own) - 1);
    if (strcmp(name, own) == 0 || strcmp(name, "localhost") == 0)
        return true;
    own[strcspn(own, ".")] = '\0';
    return strcmp(name, own) == 0 || (resolve_name(name, &to) == 0 && !is_loopback(to.sin_addr) &&
                                      find_device(to.sin_addr, &route));
}

/* Describes an interface: its address, the bits of its network's prefix, and a text with its name
 * and both. Returns false if it has no IPv4 address. */
static bool find_network(const struct ifaddrs *i, struct in_addr *own, int *bits, char text[64])
{
    struct sockaddr_in a, mask;
    char address[16];
    if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != AF_INET)
        return false;
    memcpy(&a, i->ifa_addr, sizeof(a));
    memcpy(&mask, i->ifa_netmask, sizeof(mask));
    *own = a.sin_addr;
    *bits = __builtin_popcount(mask.sin_addr.s_addr);
    inet_ntop(AF_INET, &a.sin_addr, address, sizeof(address));
    snprintf(text, 64, "%s (%s/%d)", i->ifa_name, address, *bits);
    return true;
}

/* Parses a network such as "10.77.0.0/24". Sets *bits to -1 if the word is the name of an
 * interface. */
static int parse_network(const char *word, struct in_addr *net, int *bits)
{
    char address[32];
    int used = 0;
    *bits = -1;
    if (!strchr(word, '/'))
        return 0;
    if (sscanf(word, "%31[0-9.]/%2d%n", address, bits, &used) != 2 || word[used] || *bits < 1 ||
        *bits > 32 || inet_pton(AF_INET, address, net) != 1)
        return pp_fail(PP_ECONFIG,
                       "run.network: '%s' is not a network; write one as 10.77.0.0/24, the name of "
                       "an interface, or auto",
                       word);
    return 0;
}

static bool is_in_network(struct in_addr a, struct in_addr net, int bits)
{
    return (ntohl(a.s_addr ^ net.s_addr) >> (32 - bits)) == 0;
}

int pp_network_find(const char *network, char out_address[16])
{
    char words[PP_TEXT_MAX], here[64] = "", has[256] = "", text[64];
    struct ifaddrs *all = NULL;
    bool found = false;
    int rc = 0;
    snprintf(words, sizeof(words), "%s", network);
    gethostname(here, sizeof(here) - 1);
    if (getifaddrs(&all) != 0)
        return pp_fail_errno(PP_ERESOURCE, "cannot list the interfaces of %s", here);
    for (char *rest = words, *word; rc == 0 && !found && (word = strsep(&rest, ","));) {
        struct in_addr net = {0}, own;
        int bits, own_bits;
        rc = parse_network(word, &net, &bits);
        has[0] = '\0';
        for (const struct ifaddrs *i = all; rc == 0 && !found && i; i = i->ifa_next) {
            if (!find_network(i, &own, &own_bits, text))
                continue;
            found = bits < 0 ? strcmp(i->ifa_name, word) == 0 : is_in_network(own, net, bits);
            if (found)
                inet_ntop(AF_INET, &own, out_address, 16);
            else if (!is_loopback(own))
                pp_text_add(has, sizeof(has), "%s%s", has[0] ? ", " : "", text);
        }
    }
    freeifaddrs(all);
    if (rc < 0 || found)
        return rc;
    return pp_fail(PP_ECONFIG,
                   "run.network: %s has no %s %s, only %s; write a network or an interface that "
                   "all hosts have, or auto",
                   here, strchr(network, '/') ? "address in" : "interface", network,
                   has[0] ? has : "lo");
}

int pp_network_device(const char *network, char *out, size_t bytes)
{
    char text[16];
    struct in_addr address = {0};
    struct pp_route route = {.device = ""};
    PP_TRY(pp_network_find(network, text));
    (void)inet_pton(AF_INET, text, &address);
    (void)find_device(address, &route);
    snprintf(out, bytes, "%s", route.device);
    return 0;
}

void hosts_list_addresses(char *out, size_t bytes)
{
    struct ifaddrs *all = NULL;
    out[0] = '\0';
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct in_addr own;
        char text[64], address[16];
        int bits;
        if (find_network(i, &own, &bits, text) && !is_loopback(own))
            pp_text_add(out, bytes, "%s%s", out[0] ? "," : "",
                        inet_ntop(AF_INET, &own, address, sizeof(address)));
    }
    freeifaddrs(all);
}

int pp_route_find(const char *host, struct pp_route *out)
{
    struct sockaddr_in to = {0}, from = {0};
    struct pp_route r = {0};
    char here[64] = "";
    socklen_t n = sizeof(from);
    gethostname(here, sizeof(here) - 1);
    int rc = resolve_name(host, &to);
    if (rc != 0) {
        return pp_fail(PP_ERESOURCE, "%s knows no address of %s (%s); write it into /etc/hosts",
                       here, host, gai_strerror(rc));
    }
    inet_ntop(AF_INET, &to.sin_addr, r.peer, sizeof(r.peer));
    if (is_loopback(to.sin_addr)) {
        return pp_fail(PP_ERESOURCE,
                       "on %s the name %s means %s, which is the machine itself; write its "
                       "address in the network into /etc/hosts",
                       here, host, r.peer);
    }
    /* The address that a datagram to the host would be sent from. */
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0 ||
        getsockname(fd, (struct sockaddr *)&from, &n) != 0)
        rc = pp_fail_errno(PP_ERESOURCE, "%s has no way to %s (%s)", here, host, r.peer);
    if (fd >= 0)
        close(fd);
    PP_TRY(rc);
    inet_ntop(AF_INET, &from.sin_addr, r.own, sizeof(r.own));
    if (!find_device(from.sin_addr, &r))
        return pp_fail(PP_ERESOURCE, "no interface of %s has the address %s", here, r.own);
    *out = r;
    return 0;
}

bool pp_fabric_here(void)
{
    glob_t found;
    bool any = glob("/sys/class/{infiniband,cxi}/*", GLOB_BRACE, NULL, &found) == 0;
    globfree(&found);
    return any;
}
