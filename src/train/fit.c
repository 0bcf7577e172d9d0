/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that a run fits into memory before it allocates any: a run that does not fit is rejected
 * with a message, instead of being killed by the system hours later. Processes of one machine share
 * its memory, so their needs are added up first.
 */
#include "rank.h"

#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

static bool shares_limit(const struct memory_claim *a, const struct memory_claim *b,
                         enum pp_memory_limit kind)
{
    return a == b || (kind != PP_MEMORY_ADDRESS && a->machine == b->machine &&
                      (kind == PP_MEMORY_SYSTEM || a->room.group == b->room.group));
}

int fit_check_claims(const struct memory_claim *claims, int n, int at)
{
    for (int kind = 0; kind < PP_MEMORY_LIMITS; kind++) {
        uint64_t ranks = 0, data = 0, most = UINT64_MAX;
        int sharers = 0;
        for (int i = 0; i < n; i++) {
            const struct memory_claim *c = &claims[i];
            if (shares_limit(c, &claims[at], (enum pp_memory_limit)kind)) {
                sharers++;
                PP_TRY(pp_size_add(ranks, c->ranks, &ranks));
                PP_TRY(pp_size_add(data, c->data, &data));
                most = c->room.bytes[kind] < most ? c->room.bytes[kind] : most;
            }
        }
        if (ranks <= most && data <= most - ranks)
            continue;
        char of[48] = "";
        if (n > 1)
            snprintf(of, sizeof(of), "of %d process%s ", sharers, sharers > 1 ? "es" : "");
        return pp_fail(PP_ERESOURCE,
                       "this run %sneeds %.2f GiB of memory (ranks %.2f, data %.2f), but %.2f GiB "
                       "are left of %s: take a smaller model or batch, or use more micro-batches "
                       "(see ppcli explain); run.force_memory = on starts the run anyway",
                       of, ((double)ranks + (double)data) / GIB, (double)ranks / GIB,
                       (double)data / GIB, (double)most / GIB,
                       pp_memory_limit_name((enum pp_memory_limit)kind));
    }
    return 0;
}

/* Returns the bytes of the data that this process reads into memory. A text counts as 0, because
 * its windows overlap and it is small or mapped. The product fits into 64 bits: the number of rows
 * has at most 31, and the bytes of a row at most 26. */
static uint64_t data_bytes(const struct pp_run *run, const struct pp_train_options *options,
                           int rank)
{
    const struct pp_layout *l = run->layout;
    uint64_t row = 0, sample = pp_run_sample_bytes(run->cfg, run->model);
    int at = rank % l->stages;
    row += rank < 0 || l->rank_of[0] == at ? sample : 0;
    row += rank < 0 || l->rank_of[l->n_virtual - 1] == at ? 1 : 0;
    uint64_t rows = (uint64_t)l->training.train_all + (uint64_t)l->test_n;
    return options->data[0] || sample == 0 ? 0 : rows * row;
}

/* Computes the bytes that all ranks on rank r's device will use: their own memory, and what the
 * backend and the transport take for each rank. */
static int device_bytes(const struct pp_run *run, int r, size_t *out)
{
    const struct pp_layout *l = run->layout;
    const struct pp_backend_choice choice = pp_run_backend(run);
    size_t sum = 0, own = run->transport->device_bytes;
    own += run->backend->own_bytes ? run->backend->own_bytes(&choice) : 0;
    for (int i = 0; i < l->ranks; i++) {
        struct pp_exec_spec spec = {
            .cfg = run->cfg, .layout = l, .rank = i, .caps = pp_run_caps(run)};
        struct pp_exec_bytes bytes;
        if (pp_seat_same_device(&run->seats[i], &run->seats[r])) {
            PP_TRY(pp_exec_predict(&spec, &bytes));
            PP_TRY(pp_size_add(sum, bytes.total, &sum));
            PP_TRY(pp_size_add(sum, own, &sum));
        }
    }
    *out = sum;
    return 0;
}

int fit_check_devices(const struct pp_run *run, int rank)
{
    for (int r = 0; r < run->layout->ranks; r++) {
        const struct pp_seat *s = &run->seats[r];
        size_t needed = 0;
        bool first = rank < 0 || r == rank; /* one rank checks for its device */
        for (int i = 0; rank < 0 && i < r && first; i++)
            first = !pp_seat_same_device(&run->seats[i], s);
        if (!first || s->device.number < 0)
            continue;
        PP_TRY(device_bytes(run, r, &needed));
        if (needed > s->free_bytes && s->free_bytes > 0) {
            return pp_fail(
                PP_ERESOURCE,
                "the %d rank%s on device %d (%s) need %.2f GiB of its memory, but %.2f of %.2f GiB "
                "are free: take a smaller model or batch, use more micro-batches (see ppcli "
                "explain) or more devices; run.force_memory = on starts the run anyway",
                s->sharing, pp_plural(s->sharing), s->device.number, s->device.name,
                (double)needed / GIB, (double)s->free_bytes / GIB, (double)s->device.bytes / GIB);
        }
    }
    return 0;
}

/* Computes the memory that the ranks of this process need: that of `rank`, or of all ranks if
 * `rank` is -1. */
static int claim_memory(const struct pp_run *run, const struct pp_train_options *options, int rank,
                        struct memory_claim *out)
{
    const struct pp_layout *l = run->layout;
    uint64_t started;
    size_t ranks = 0;
    memset(out, 0, sizeof(*out));
    for (int r = 0; r < l->ranks; r++) {
        struct pp_exec_spec spec = {
            .cfg = run->cfg, .layout = l, .rank = r, .caps = pp_run_caps(run)};
        struct pp_exec_bytes bytes;
        if (rank >= 0 && r != rank)
            continue;
        if (run->seats[r].device.number < 0) {
            PP_TRY(pp_exec_predict(&spec, &bytes));
            PP_TRY(pp_size_add(ranks, bytes.total, &ranks));
        }
        PP_TRY(pp_size_add(ranks, rank_ring_bytes(l, options), &ranks));
    }
    out->ranks = ranks;
    out->data = data_bytes(run, options, rank);
    pp_memory_left_find("", &out->room);
    pp_process_self(&started, &out->machine);
    return 0;
}

int fit_check(const struct pp_run *run, const struct pp_train_options *options,
              struct pp_transport *tp)
{
    struct memory_claim mine;
    bool force = run->cfg->run.force_memory;
    int rank = tp ? tp->rank : -1;
    int rc = force ? 0 : fit_check_devices(run, rank);
    if (!tp) {
        PP_TRY(rc);
        PP_TRY(claim_memory(run, options, rank, &mine));
        return force ? 0 : fit_check_claims(&mine, 1, 0);
    }
    PP_OWN_MEMORY struct memory_claim *all = pp_alloc((size_t)tp->size, sizeof(*all));
    if (rc == 0)
        rc = all ? claim_memory(run, options, rank, &mine) : PP_ERESOURCE;
    PP_TRY(pp_transport_agree(tp, rc));
    PP_TRY(pp_transport_allgather(tp, &mine, sizeof(mine), all));
    return pp_transport_agree(tp, force ? 0 : fit_check_claims(all, tp->size, tp->rank));
}
