/* SPDX-License-Identifier: Apache-2.0 */
/* Compares clocks by ping-pong: the time that a rank's clock showed lies between two readings of
 * rank 0's clock. */
#include "parts.h"

#include <string.h>

#define ROUNDS 20

static int ask_clock(struct pp_transport *tp, int rank, int64_t *offset_ns, int64_t *error_ns)
{
    uint64_t shortest = UINT64_MAX;
    for (int k = 0; k < ROUNDS; k++) {
        uint64_t there = 0, before = pp_clock_ns();
        PP_TRY(pp_transport_send(tp, rank, &before, sizeof(before)));
        PP_TRY(pp_transport_recv(tp, rank, &there, sizeof(there)));
        uint64_t took = pp_clock_ns() - before;
        if (took < shortest) {
            shortest = took;
            *offset_ns = (int64_t)(there - before - took / 2);
            *error_ns = (int64_t)(took - took / 2);
        }
    }
    return 0;
}

static int answer_clock(struct pp_transport *tp)
{
    for (int k = 0; k < ROUNDS; k++) {
        uint64_t now;
        PP_TRY(pp_transport_recv(tp, 0, &now, sizeof(now)));
        now = pp_clock_ns();
        PP_TRY(pp_transport_send(tp, 0, &now, sizeof(now)));
    }
    return 0;
}

int clocks_compare(struct pp_transport *tp, int64_t *offset_ns, int64_t *error_ns)
{
    memset(offset_ns, 0, (size_t)tp->size * sizeof(*offset_ns));
    memset(error_ns, 0, (size_t)tp->size * sizeof(*error_ns));
    if (!tp->caps.processes)
        return 0;
    if (tp->rank != 0)
        return answer_clock(tp);
    for (int r = 1; r < tp->size; r++)
        PP_TRY(ask_clock(tp, r, &offset_ns[r], &error_ns[r]));
    return 0;
}
