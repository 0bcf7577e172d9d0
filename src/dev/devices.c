/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assigns devices to ranks. Neighbours in the pipeline have neighbouring ranks, so if there are
 * fewer devices than ranks, each device gets consecutive ranks: most messages stay on it.
 */
#include "devices.h"

#include <string.h>
#include <unistd.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

/* ---- which devices */

int pp_devices_pick(const struct pp_device *devices, int n, const int *wanted, int n_wanted,
                    struct pp_device out[PP_DEVICES_MAX], int *n_out)
{
    n = n < PP_DEVICES_MAX ? n : PP_DEVICES_MAX;
    for (int i = 0; i < n_wanted; i++) {
        if (wanted[i] >= n) {
            char last[32] = "found only device 0";
            if (n > 1)
                snprintf(last, sizeof(last), "found 0 to %d", n - 1);
            return pp_fail(PP_ERESOURCE,
                           "run.devices: there is no device %d (%s); use one that is there, or see "
                           "CUDA_VISIBLE_DEVICES",
                           wanted[i], last);
        }
    }
    *n_out = 0;
    for (int i = 0; i < (n_wanted > 0 ? n_wanted : n); i++) {
        const struct pp_device *d = &devices[n_wanted > 0 ? wanted[i] : i];
        if (!d->problem[0])
            out[(*n_out)++] = *d;
        else if (n_wanted > 0)
            return pp_fail(PP_ERESOURCE,
                           "run.devices: device %d (%s) cannot be used: %s; name another one, or "
                           "use run.backend = cpu",
                           d->number, d->name, d->problem);
    }
    return 0;
}

int pp_devices_find(const struct pp_backend_ops *ops, const struct pp_config *cfg,
                    struct pp_device out[PP_DEVICES_MAX], int *n)
{
    struct pp_device all[PP_DEVICES_MAX];
    char why[256] = "";
    int there = 0;
    *n = 0;
    if (!ops->devices)
        return 0;
    if (ops->devices(all, PP_DEVICES_MAX, &there, why, sizeof(why)) < 0)
        return pp_fail(PP_ERESOURCE, "backend %s cannot run here: %s", ops->name, why);
    return pp_devices_pick(all, there, cfg->run.devices, cfg->run.n_devices, out, n);
}

int pp_devices_deal(int n, int index, int ranks)
{
    pp_assert(n >= 1 && index >= 0 && index < ranks);
    return n >= ranks ? index : (int)((int64_t)index * n / ranks);
}

/* ---- which ranks share a device */

/* Returns whether two seats have the same device. Compares the names that the driver gives devices,
 * because processes may number devices differently, and containers of one machine may not know each
 * other. */
bool pp_seat_same_device(const struct pp_seat *a, const struct pp_seat *b)
{
    if (a->device.number < 0 || b->device.number < 0)
        return false;
    return a->device.uuid[0] ? strcmp(a->device.uuid, b->device.uuid) == 0
                             : a->host == b->host && a->device.number == b->device.number;
}

static bool same_process(const struct pp_seat *a, const struct pp_seat *b)
{
    return a->host == b->host && a->process == b->process;
}

/* Returns the first rank on seat i's device that belongs to another process; -1: there is none. */
static int find_other_process(const struct pp_seat *seats, int n, int i)
{
    for (int k = 0; k < n; k++)
        if (pp_seat_same_device(&seats[i], &seats[k]) && !same_process(&seats[i], &seats[k]))
            return k;
    return -1;
}

/* Counts the processes that have a rank on the device of seat i. A process is counted at its first
 * rank on the device. */
static int count_processes_at(const struct pp_seat *seats, int n, int i)
{
    int count = 0;
    for (int k = 0; k < n; k++) {
        bool first = pp_seat_same_device(&seats[i], &seats[k]);
        for (int j = 0; j < k && first; j++) {
            first =
                !pp_seat_same_device(&seats[i], &seats[j]) || !same_process(&seats[k], &seats[j]);
        }
        count += first;
    }
    return count;
}

int pp_seats_settle(struct pp_seat *seats, int n, bool partition)
{
    for (int i = 0; i < n && partition; i++) {
        int other = find_other_process(seats, n, i);
        if (other >= 0) {
            return pp_fail(PP_ECONFIG,
                           "run.partition_sms: ranks %d and %d are processes that share device %d "
                           "and take turns on the whole of it; start without mpirun, or use "
                           "run.partition_sms = off",
                           i, other, seats[i].device.number);
        }
    }
    for (int i = 0; i < n; i++) {
        struct pp_seat *s = &seats[i];
        int before = 0;
        s->sharing = 0;
        for (int k = 0; k < n; k++) {
            bool shares = pp_seat_same_device(s, &seats[k]);
            s->sharing += shares;
            before += shares && k < i;
        }
        s->processes = count_processes_at(seats, n, i);
        s->parts = partition && s->sharing > 1 ? s->sharing : 0;
        s->part = s->parts > 0 ? before : 0;
    }
    return 0;
}

const char *pp_seat_describe(const struct pp_seat *seat, const char *backend, char *out,
                             size_t bytes)
{
    char with[64] = "";
    if (seat->parts > 0) {
        snprintf(with, sizeof(with), " (part %d of %d)", seat->part + 1, seat->parts);
    } else if (seat->processes > 1) {
        snprintf(with, sizeof(with), " (shared by %d ranks of %d processes)", seat->sharing,
                 seat->processes);
    } else if (seat->sharing > 1) {
        snprintf(with, sizeof(with), " (shared by %d ranks)", seat->sharing);
    }
    if (seat->device.number < 0)
        snprintf(out, bytes, "%s", backend);
    else
        snprintf(out, bytes, "%s:%d %s%s", backend, seat->device.number, seat->device.name, with);
    return out;
}
