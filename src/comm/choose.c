/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of transports, and the choice of the one that connects the ranks of a run: the first row
 * of transports.def that can, or the one that the config names. The choice asks the tables; no
 * caller compares names.
 */
#include "impl.h"

#include <string.h>

#include "ppcli/dev/devices.h"
#include "ppcli/base/base.h"

static const struct pp_transport_ops *const transports[] = {
#define PP_TRANSPORT(name) &transport_##name,
#include "transports.def"
};

#define COUNT ((int)(sizeof(transports) / sizeof(transports[0])))

const char *const *pp_transport_names(void)
{
    static const char *const names[] = {"auto",
#define PP_TRANSPORT(name) #name,
#include "transports.def"
                                        NULL};
    return names;
}

const struct pp_transport_ops *pp_transport_at(int i)
{
    return i < COUNT ? transports[i] : NULL;
}

const struct pp_transport_ops *pp_transport_find(const char *name)
{
    int i = 0;
    while (i < COUNT && strcmp(transports[i]->name, name) != 0)
        i++;
    return pp_transport_at(i);
}

static bool can_join(const struct pp_transport_ops *t, bool processes)
{
    return processes ? t->joins_processes : t->joins_threads;
}

bool pp_transport_joins(const char *name, bool processes)
{
    const struct pp_transport_ops *t = pp_transport_find(name);
    return !t || can_join(t, processes);
}

bool pp_transport_fits(const struct pp_transport_ops *t, const struct pp_paths *p,
                       char why[PP_TRANSPORT_WHY_MAX])
{
    why[0] = '\0';
    if (!can_join(t, p->processes)) {
        snprintf(why, PP_TRANSPORT_WHY_MAX, "ranks are %s",
                 p->processes ? "processes" : "threads of one process");
        return false;
    }
    if (t->missing) {
        snprintf(why, PP_TRANSPORT_WHY_MAX, "%s", t->missing);
        return false;
    }
    return t->fits(p, why);
}

int pp_transport_choose(const struct pp_paths *p, const struct pp_transport_ops **out,
                        char why[PP_TRANSPORT_WHY_MAX])
{
    char text[PP_TRANSPORT_WHY_MAX], refused[2 * PP_TRANSPORT_WHY_MAX] = "";
    bool devices = p->seats[0].device.number >= 0;
    why[0] = '\0';
    for (int i = 0; i < COUNT; i++) {
        const struct pp_transport_ops *t = transports[i];
        if (!can_join(t, p->processes))
            continue;
        bool fits = pp_transport_fits(t, p, text);
        /* The hosts of processes may have different libraries, so the library is loaded later on
         * all of them. */
        if (fits && t->probe && !p->processes)
            fits = t->probe(text, sizeof(text)) == 0 && pp_transport_fits(t, p, text);
        if (fits) {
            if (devices) { /* without devices there is nothing to report */
                snprintf(why, PP_TRANSPORT_WHY_MAX, "%.120s%s%.120s", text, refused[0] ? ": " : "",
                         refused);
            }
            *out = t;
            return 0;
        }
        pp_text_add(refused, sizeof(refused), "%s%s", refused[0] ? ", and " : "", text);
    }
    return pp_fail(PP_ERESOURCE, "%s; use run.devices = %d, or mpirun", refused,
                   p->seats[0].device.number);
}

bool pp_paths_share(const struct pp_paths *p, int *a, int *b)
{
    for (*a = 0; *a < p->n; (*a)++) {
        for (*b = *a + 1; *b < p->n; (*b)++)
            if (pp_seat_same_device(&p->seats[*a], &p->seats[*b]))
                return true;
    }
    return false;
}

bool pp_paths_gap(const struct pp_paths *p, int *a, int *b)
{
    for (*a = 0; *a < p->n && p->reaches; (*a)++) {
        for (*b = 0; *b < p->n; (*b)++) {
            int from = p->seats[*a].device.number, to = p->seats[*b].device.number;
            if (from != to && !p->reaches(from, to))
                return true;
        }
    }
    return false;
}

/* ---- opening */

/* Returns the transport that connects processes by itself. */
static const struct pp_transport_ops *find_world(void)
{
    int i = 0;
    while (i < COUNT && !transports[i]->is_world)
        i++;
    return pp_transport_at(i);
}

const char *pp_world_version(void)
{
    const struct pp_transport_ops *t = find_world();
    return t && !t->missing ? t->version() : "";
}

static bool opened;

bool pp_world_was_opened(void)
{
    return opened;
}

int pp_world_load(void)
{
    char why[512];
    const struct pp_transport_ops *t = find_world();
    if (!t || t->missing) {
        return pp_fail(PP_ERESOURCE, "%s; run the ranks as threads (run.transport = threads)",
                       t ? t->missing : "no transport connects processes");
    }
    return t->probe && t->probe(why, sizeof(why)) < 0 ? pp_fail(PP_ERESOURCE, "%s", why) : 0;
}

int pp_transport_open_world(struct pp_transport **out)
{
    opened = true;
    PP_TRY(pp_world_load());
    return find_world()->open(NULL, 0, out);
}

int pp_transport_connect(const struct pp_transport_ops *t, const struct pp_backend_ops *backend,
                         uint64_t timeout_ns, struct pp_transport **tp)
{
    struct pp_transport *inner = *tp;
    if (t->open && !t->is_world) {
        *tp = NULL;
        return t->open(inner, timeout_ns, tp);
    }
    if (backend->own_memory && !inner->ops->bind) {
        *tp = NULL;
        return pp_staged_open(inner, timeout_ns, tp);
    }
    return 0;
}

void pp_transport_prepare(void)
{
    for (int i = 0; i < COUNT; i++)
        if (transports[i]->prepare)
            transports[i]->prepare();
}
