/* SPDX-License-Identifier: Apache-2.0 */
/* Names, addresses and interfaces, as the resolver and the kernel of this machine see them: the
 * interface of a run is that of the route to its peers, whatever else is there. */
#include "ppcli/hosts.h"

#include <arpa/inet.h>
#include <glob.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

static bool is_loopback(struct in_addr a)
{
    return ntohl(a.s_addr) >> 24 == 127;
}

/* 0, or the resolver's number of what is wrong. */
static int resolve(const char *name, struct sockaddr_in *out)
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

/* The interface that has the address; its name and network go into *out. */
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
    return strcmp(name, own) == 0 || (resolve(name, &to) == 0 && !is_loopback(to.sin_addr) &&
                                      find_device(to.sin_addr, &route));
}

int pp_route_find(const char *host, struct pp_route *out)
{
    struct sockaddr_in to = {0}, from = {0};
    struct pp_route r = {0};
    char here[64] = "";
    socklen_t n = sizeof(from);
    gethostname(here, sizeof(here) - 1);
    int rc = resolve(host, &to);
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
    /* The address that a datagram would leave with. */
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
