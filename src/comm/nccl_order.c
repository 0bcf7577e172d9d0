/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See nccl_order.h. The order of making communicators is an edge colouring: ranks are nodes,
 * channels are edges, a round is a colour. The greedy colouring by ascending id needs fewer colours
 * than twice the degree, and every rank computes the same.
 */
#include "nccl_order.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

int pp_nccl_check_places(const struct nccl_place *places, int n)
{
    for (int b = 1; b < n; b++) {
        for (int a = 0; a < b; a++) {
            if (strcmp(places[a].device, places[b].device) == 0 &&
                strcmp(places[a].host, places[b].host) == 0) {
                return pp_fail(PP_ERESOURCE,
                               "ranks %d and %d share device %s, which NCCL refuses: give every "
                               "rank a device (fewer ranks, or run.devices), or use run.transport "
                               "= threads; under mpirun run.transport = mpi",
                               a, b, places[a].device);
            }
        }
    }
    return 0;
}

int pp_nccl_most_channels(const struct pp_channel_spec *all, int n, int size, int *out)
{
    int *count;
    PP_ALLOC(count, size);
    int most = 0;
    for (int i = 0; i < n; i++) {
        int src = ++count[all[i].src];
        int dst = ++count[all[i].dst];
        most = src > most ? src : most;
        most = dst > most ? dst : most;
    }
    pp_free(count);
    *out = most;
    return 0;
}

int pp_nccl_rounds(const struct pp_channel_spec *all, int n, int size, int *round, int *rounds)
{
    int most = 0;
    PP_TRY(pp_nccl_most_channels(all, n, size, &most));
    size_t colours = 2 * (size_t)most;
    bool *busy; /* [rank][round] */
    PP_ALLOC(busy, (size_t)size * colours);
    int used = 0;
    for (int i = 0; i < n; i++) {
        bool *src = busy + (size_t)all[i].src * colours;
        bool *dst = busy + (size_t)all[i].dst * colours;
        int r = 0;
        while (src[r] || dst[r])
            r++;
        src[r] = dst[r] = true;
        round[i] = r;
        used = r + 1 > used ? r + 1 : used;
    }
    pp_free(busy);
    *rounds = used;
    return 0;
}

int pp_nccl_blocks(const struct nccl_place *places, int n, int most)
{
    bool one_host = true;
    for (int r = 1; r < n; r++)
        one_host = one_host && strcmp(places[r].host, places[0].host) == 0;
    return one_host ? 1 : most <= 4 ? 4 : most <= 12 ? 2 : 1;
}

static int by_id(const void *a, const void *b)
{
    const struct pp_channel_spec *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

void pp_nccl_merge(const struct pp_channel_spec *all, int size, int most,
                   struct pp_channel_spec *out, int *n)
{
    *n = 0;
    for (int r = 0; r < size; r++) {
        const struct pp_channel_spec *theirs = all + (size_t)r * (size_t)most;
        for (int i = 0; i < most && theirs[i].slots != 0; i++)
            if (theirs[i].src == r) /* its other end lists the channel too */
                out[(*n)++] = theirs[i];
    }
    qsort(out, (size_t)*n, sizeof(*out), by_id);
}
