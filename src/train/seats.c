/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before any rank opens its device: every process says which devices it sees, and all conclude the
 * same from it.
 */
#include "rank.h"

/* This process's device for the index-th of `ranks` ranks of its machine. Local. */
static int take(const struct pp_run *run, const struct pp_device *devices, int n, int index,
                int ranks, struct pp_seat *out)
{
    out->device = (struct pp_device){.number = -1};
    if (n == 0)
        return 0;
    out->device = devices[pp_devices_deal(n, index, ranks)];
    return run->backend->free_bytes ? run->backend->free_bytes(out->device.number, &out->free_bytes)
                                    : 0;
}

/* All seats of a process whose threads are the ranks. */
static int take_all(struct pp_run *run, const struct pp_device *devices, int n)
{
    int ranks = run->layout->ranks;
    for (int r = 0; r < ranks; r++) {
        struct pp_seat *s = &run->seats[r];
        s->host = pp_host_id();
        pp_host_name(s->host_name);
        PP_TRY(take(run, devices, n, r, ranks, s));
    }
    return 0;
}

/* Collective: of a rank of its own, after all have told where they are. */
static int take_one(struct pp_run *run, struct pp_transport *tp, const struct pp_device *devices,
                    int n)
{
    struct pp_seat mine = {.host = pp_host_id(), .process = tp->rank};
    pp_host_name(mine.host_name);
    int index = 0, ranks = 0;
    PP_TRY(pp_transport_allgather(tp, &mine, sizeof(mine), run->seats));
    for (int r = 0; r < tp->size; r++) {
        bool here = run->seats[r].host == mine.host;
        ranks += here;
        index += here && r < tp->rank;
    }
    PP_TRY(pp_transport_agree(tp, take(run, devices, n, index, ranks, &mine)));
    return pp_transport_allgather(tp, &mine, sizeof(mine), run->seats);
}

/* run.transport, where it is a name. The same on every rank. */
static int take_named(struct pp_run *run, const struct pp_paths *paths)
{
    char why[PP_TRANSPORT_WHY_MAX];
    bool fits = pp_transport_fits(run->transport, paths, why);
    if (!fits && !run->transport->missing && run->seats[0].device.number >= 0) {
        return pp_fail(PP_ERESOURCE, "transport '%s': %s; use run.transport = auto",
                       run->transport->name, why); /* other devices would do */
    }
    if (!fits) {
        return pp_config_problem(run->cfg, "run.transport",
                                 "transport '%s': %s (run.backend = %s); use run.transport = auto",
                                 run->transport->name, why, run->backend->name);
    }
    snprintf(run->transport_why, sizeof(run->transport_why), "as run.transport says");
    return 0;
}

/* Where ranks of one machine compute. Collective with tp: a launcher may have bound each rank. */
static int place_ranks(struct pp_run *run, struct pp_transport *tp)
{
    struct pp_places_spec spec = {.ranks = run->layout->ranks, .threads = run->cfg->run.threads};
    if (!tp)
        return pp_places_make(&spec, &run->places);
    struct pp_cpu_mask mine, here = {0};
    PP_TAKE(struct pp_cpu_mask, all, tp->size);
    (void)pp_machine_mask(false, &mine);
    PP_TRY(pp_transport_allgather(tp, &mine, sizeof(mine), all));
    spec.ranks = 0;
    for (int r = 0; r < tp->size; r++) {
        if (run->seats[r].host == run->seats[tp->rank].host) {
            for (size_t i = 0; i < sizeof(here.bits); i++)
                here.bits[i] |= all[r].bits[i];
            spec.ranks++;
        }
    }
    spec.mask = &here;
    PP_TRY(pp_transport_agree(tp, pp_places_make(&spec, &run->places)));
    pp_places_fini(&run->places); /* the launcher places the ranks */
    return 0;
}

int seats_take(struct pp_run *run, struct pp_transport *tp)
{
    struct pp_device devices[PP_DEVICES_MAX];
    int n = 0;
    int rc = pp_devices_find(run->backend, run->cfg, devices, &n);
    if (rc == 0 && !(run->seats = pp_alloc((size_t)run->layout->ranks, sizeof(*run->seats))))
        rc = PP_ERESOURCE;
    if (tp)
        rc = pp_transport_agree(tp, rc);
    PP_TRY(rc);
    pp_assert(run->seats != NULL); /* or this rank had not agreed */
    PP_TRY(tp ? take_one(run, tp, devices, n) : take_all(run, devices, n));
    PP_TRY(place_ranks(run, tp));
    /* from here on all decide from the same values */
    struct pp_paths paths = {.processes = tp != NULL,
                             .seats = run->seats,
                             .n = run->layout->ranks,
                             .reaches = run->backend->reaches};
    PP_TRY(pp_seats_settle(run->seats, run->layout->ranks, run->cfg->run.partition_sms));
    run->transport = pp_transport_find(run->cfg->run.transport);
    return run->transport ? take_named(run, &paths)
                          : pp_transport_choose(&paths, &run->transport, run->transport_why);
}

int seats_connect(const struct pp_run *run, struct pp_transport **tp)
{
    /* what the watchdog gives to set-up; in steps the executor has deadlines of its own */
    uint64_t timeout_ns = (uint64_t)(2e9 * run->cfg->run.hang_timeout);
    return pp_transport_connect(run->transport, run->backend, timeout_ns, tp);
}

struct pp_backend_choice seats_choice(const struct pp_run *run, int rank)
{
    struct pp_backend_choice choice = pp_backend_choice_with(run->backend, run->cfg);
    const struct pp_seat *s = &run->seats[rank];
    choice.processors = run->places.processors;
    choice.cpus = pp_places_of(&run->places, run->places.ranks > 1 ? rank : 0);
    choice.crowded = run->places.crowded;
    if (s->device.number >= 0) {
        choice.device = s->device.number;
        choice.partition = s->part;
        choice.partitions = s->parts;
    }
    return choice;
}
