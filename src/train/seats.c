/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assigns devices and processors before any rank opens its device: every process sends what it
 * sees, and all processes conclude the same from it.
 */
#include "rank.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/cluster/hosts.h"
#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

/* Assigns a device to rank `index` of the `ranks` ranks on this host; its number is -1 if there are
 * none. Local. */
static int take_device(const struct pp_run *run, const struct pp_device *devices, int n, int index,
                       int ranks, struct pp_seat *out)
{
    out->device = (struct pp_device){.number = -1};
    if (n == 0)
        return 0;
    out->device = devices[pp_devices_deal(n, index, ranks)];
    return run->backend->free_bytes ? run->backend->free_bytes(out->device.number, &out->free_bytes)
                                    : 0;
}

/* Fills in the seats (host and device) of all ranks in a process whose threads are the ranks. */
static int take_all_seats(struct pp_run *run, const struct pp_device *devices, int n)
{
    int ranks = run->layout->ranks;
    for (int r = 0; r < ranks; r++) {
        struct pp_seat *s = &run->seats[r];
        s->host = pp_host_id();
        pp_host_name(s->host_name);
        PP_TRY(take_device(run, devices, n, r, ranks, s));
    }
    return 0;
}

/* Fills in all seats (host and device) where each rank is a process: they send their hosts, choose
 * their devices, and send the complete seats. Collective. */
static int take_own_seat(struct pp_run *run, struct pp_transport *tp,
                         const struct pp_device *devices, int n)
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
    PP_TRY(pp_transport_agree(tp, take_device(run, devices, n, index, ranks, &mine)));
    return pp_transport_allgather(tp, &mine, sizeof(mine), run->seats);
}

/* Checks that the transport of run.transport can be used. All ranks get the same result. */
static int check_named_transport(struct pp_run *run, const struct pp_paths *paths)
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

/* ---- processors */

/* Filled in by the first of the ranks to which the launcher gave the same mask; the others follow
 * it. */
struct given {
    struct pp_cpu_mask mask; /* all processors of those ranks */
    bool pinned, crowded, shared, fewer;
    int processors; /* processors of each of those ranks */
};

static bool masks_overlap(const struct pp_cpu_mask *a, const struct pp_cpu_mask *b)
{
    bool any = false;
    for (size_t i = 0; i < sizeof(a->bits); i++)
        any |= (a->bits[i] & b->bits[i]) != 0;
    return any;
}

/* The ranks on a rank's host that have its mask, and the rank's index among them. */
struct neighbours {
    int ranks, index, first;
    bool overlap;           /* other masks share processors with it, so no rank is pinned */
    struct pp_cpu_mask all; /* the processors of all ranks on the host */
};

static void find_neighbours(const struct pp_run *run, int rank, const struct pp_cpu_mask *masks,
                            int n, struct neighbours *out)
{
    *out = (struct neighbours){.first = rank};
    for (int r = n - 1; r >= 0; r--) {
        if (run->seats[r].host != run->seats[rank].host)
            continue;
        for (size_t i = 0; i < sizeof(out->all.bits); i++)
            out->all.bits[i] |= masks[r].bits[i];
        if (memcmp(&masks[r], &masks[rank], sizeof(*masks)) == 0) {
            out->ranks++;
            out->index += r < rank;
            out->first = r;
        } else {
            out->overlap |= masks_overlap(&masks[r], &masks[rank]);
        }
    }
}

/* Assigns processors to this rank and its neighbours, the ranks on its host that may use the same
 * processors. The first of them divides the processors and holds the locks. Collective. */
static int follow_first(struct pp_transport *tp, const struct neighbours *who,
                        struct pp_places_spec *spec, struct pp_places *out)
{
    PP_TAKE(struct given, given, tp->size);
    PP_OWN(pp_places_fini) struct pp_places held = {0};
    struct given mine = {.pinned = false};
    int rc = who->first == tp->rank ? pp_places_make(spec, &held) : 0;
    for (int i = 0; held.cpus && i < held.ranks * held.processors; i++)
        pp_mask_add(&mine.mask, held.cpus[i]);
    mine.pinned = held.cpus != NULL;
    mine.crowded = held.crowded;
    mine.shared = held.shared;
    mine.fewer = held.fewer;
    mine.processors = held.processors;
    PP_TRY(pp_transport_agree(tp, rc));
    PP_TRY(pp_transport_allgather(tp, &mine, sizeof(mine), given));
    const struct given *theirs = &given[who->first];
    spec->locks = false;
    spec->unpinned = !theirs->pinned;
    spec->mask = theirs->pinned ? &theirs->mask : spec->mask;
    spec->threads = theirs->processors;
    PP_TRY(pp_transport_agree(tp, pp_places_make(spec, out)));
    out->crowded = theirs->crowded;
    out->shared = theirs->shared;
    out->fewer = theirs->fewer;
    out->locks = held.locks;
    out->n_locks = held.n_locks;
    out->siblings |= held.siblings;
    held.locks = NULL;
    held.n_locks = 0;
    return 0;
}

/* Assigns processors to the rank of this process; run->places then has only this rank's.
 * Collective. */
static int place_process(struct pp_run *run, struct pp_transport *tp,
                         const struct pp_places_spec *asked)
{
    struct pp_places_spec spec = *asked;
    struct pp_cpu_mask mine;
    struct pp_quota quota;
    struct neighbours who;
    PP_TAKE(struct pp_cpu_mask, masks, tp->size);
    (void)pp_machine_mask(false, &mine);
    PP_TRY(pp_transport_allgather(tp, &mine, sizeof(mine), masks));
    find_neighbours(run, tp->rank, masks, tp->size, &who);
    spec.ranks = who.ranks;
    spec.mask = &mine;
    spec.unpinned |= who.overlap;
    struct pp_places *p = &run->places;
    PP_TRY(follow_first(tp, &who, &spec, p));
    pp_quota_here(pp_mask_count(&who.all), &quota);
    p->cores = quota.cores;
    p->ranks = 1;
    size_t each = (size_t)p->processors;
    if (p->cpus) {
        memmove(p->cpus, p->cpus + each * (size_t)who.index, each * sizeof(*p->cpus));
        pp_thread_pin(p->cpus[0]);
    }
    tp->crowded |= p->crowded;
    return 0;
}

static void tell_places(const struct pp_run *run, int rank)
{
    const struct pp_places *p = &run->places;
    if (rank == 0 && p->shared)
        pp_log_info("another ppcli run holds the cores this one wanted; threads are not pinned");
    if (rank == 0 && p->siblings)
        pp_log_info("there are fewer cores than threads: some threads share a core");
}

/* Tells the user what the choice of devices means for the speed of the run. `n` is the number of
 * devices of this machine. */
static void tell_devices(const struct pp_run *run, const struct pp_device *devices, int n)
{
    const struct pp_config *cfg = run->cfg;
    bool is_bf16 = cfg->run.precision == PP_PRECISION_BF16, wide = false, masked = false;
    char idle[128] = "";
    int shared = 0, n_idle = 0;
    for (int d = 0; d < n; d++) {
        int ranks = 0;
        for (int r = 0; r < run->layout->ranks; r++)
            ranks += run->seats[r].host == run->seats[0].host &&
                     run->seats[r].device.number == devices[d].number;
        shared = ranks > shared ? ranks : shared;
        if (ranks == 0)
            pp_text_add(idle, sizeof(idle), "%s%d", n_idle++ > 0 ? ", " : "", devices[d].number);
    }
    if (shared > 1 && run->layout->stages > 1)
        pp_log_info(
            "%d stages share one GPU, which is slower than one stage on it: use --stages 1%s",
            shared, is_bf16 ? "" : ", and --set run.precision=bf16 for tensor cores");
    if (n_idle > 0)
        pp_log_info("GPU%s %s idle%s: use --stages or --replicas for %d ranks, or name the others "
                    "in run.devices",
                    pp_plural(n_idle), idle, n_idle == 1 ? "s" : "", n);
    for (int i = 0; i < run->model->n_nodes; i++) {
        wide = wide || run->model->nodes[i].attention.width > 128;
        masked = masked || run->model->nodes[i].attention.masked;
    }
    if (n > 0 && wide && cfg->run.precision != PP_PRECISION_F32)
        pp_log_info(
            "attention with heads wider than 128 does not use tensor cores, and is about ten "
            "times slower: use heads of at most 128 channels");
    if (n > 0 && masked && cfg->run.precision != PP_PRECISION_F32)
        pp_log_info("attention with a mask that is not causal does not use tensor cores, and is "
                    "about ten times slower");
}

/* Assigns processors to ranks. Ranks on devices are not pinned, because helper threads of CUDA and
 * NCCL would inherit the processor on which the rank polls. */
static int place_ranks(struct pp_run *run, struct pp_transport *tp, bool on_devices)
{
    const struct pp_config *cfg = run->cfg;
    const struct pp_backend_choice choice = pp_run_backend(run);
    bool open = cfg->run.threads == 0 && pp_backend_sums_in_order(&choice);
    struct pp_places_spec spec = {.ranks = run->layout->ranks,
                                  .threads = open ? 0 : choice.threads,
                                  .unpinned = cfg->run.pin == PP_PIN_OFF || on_devices,
                                  .locks = true};
    /* the library's own threads would inherit the one processor of a pinned rank */
    spec.unpinned |= cfg->run.gemm == PP_GEMM_CBLAS && cfg->run.threads > 1;
    PP_TRY(tp ? place_process(run, tp, &spec) : pp_places_make(&spec, &run->places));
    tell_places(run, tp ? tp->rank : 0);
    return 0;
}

/* Makes the transport's library use the network that run.network names. Must be called before
 * threads start. */
static int steer_network(const struct pp_run *run)
{
    char name[PP_HOST_MAX] = "=";
    const char *variable = run->transport->network_variable;
    if (!variable || strcmp(run->cfg->run.network, "auto") == 0)
        return 0;
    PP_TRY(pp_network_device(run->cfg->run.network, name + 1, sizeof(name) - 1));
    (void)setenv(variable, name, 0);
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
    pp_assert(run->seats != NULL); /* else the ranks had not agreed */
    if (!tp || tp->rank == 0)
        pp_backend_warn_unused(run->cfg->run.backend, run->backend);
    PP_TRY(tp ? take_own_seat(run, tp, devices, n) : take_all_seats(run, devices, n));
    PP_TRY(place_ranks(run, tp, n > 0));
    /* from here on all ranks decide from the same values */
    struct pp_paths paths = {.processes = tp != NULL,
                             .seats = run->seats,
                             .n = run->layout->ranks,
                             .reaches = run->backend->reaches};
    PP_TRY(pp_seats_settle(run->seats, run->layout->ranks, run->cfg->run.partition_sms));
    if (!tp || tp->rank == 0)
        tell_devices(run, devices, n);
    run->transport = pp_transport_find(run->cfg->run.transport);
    PP_TRY(run->transport ? check_named_transport(run, &paths)
                          : pp_transport_choose(&paths, &run->transport, run->transport_why));
    return tp ? pp_transport_agree(tp, steer_network(run)) : 0;
}

int seats_connect(const struct pp_run *run, struct pp_transport **tp)
{
    /* the watchdog's limit for set-up; steps have deadlines of their own */
    uint64_t timeout_ns = (uint64_t)(2e9 * run->cfg->run.hang_timeout);
    return pp_transport_connect(run->transport, run->backend, timeout_ns, tp);
}

struct pp_backend_choice seats_choice(const struct pp_run *run, int rank)
{
    struct pp_backend_choice choice = pp_run_backend(run);
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
