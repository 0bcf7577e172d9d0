/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures transfers there and back, in blocks. Every message is written and read completely, and
 * its content is checked.
 */

#include <string.h>

#include "measure.h"
#include "ppcli/base/cores.h"
#include "ppcli/base/base.h"

enum {
    BLOCKS = 21, /* the median counts */
    BLOCKS_SLOW = 5,
    TRIPS_MIN = 2,
    TRIPS_MAX = 2000,
    HIDDEN = 7
};
#define SLOW 0.1                      /* seconds: no block takes longer, unless one message does */
#define BLOCK_BYTES ((size_t)8 << 20) /* that a block moves one way, about */

/* Every 8 bytes of message k, so that one of another round is noticed. */
static uint64_t word_of(int k)
{
    return 0x0101010101010101u * (uint64_t)(k % 251 + 1);
}

static void produce(void *slot, size_t bytes, int k)
{
    memset(slot, k % 251 + 1, bytes);
}

static bool consume(const void *slot, size_t bytes, int k)
{
    const char *p = slot;
    uint64_t word, other = 0, expected = word_of(k);
    for (size_t i = 0; i < bytes; i += sizeof(word)) {
        memcpy(&word, p + i, sizeof(word));
        other |= word ^ expected;
    }
    return other == 0;
}

static int trips_of(size_t bytes)
{
    size_t n = BLOCK_BYTES / bytes;
    return n < TRIPS_MIN ? TRIPS_MIN : n > TRIPS_MAX ? TRIPS_MAX : (int)n;
}

/* Writes into the outgoing slot when it is this rank's turn, else reads the incoming one. */
static int one_way(struct pp_transport *tp, size_t bytes, int from, int k)
{
    if (tp->rank == from) {
        PP_TRY(pp_transport_acquire(tp, from, 0));
        produce(pp_transport_slot(tp, from, 0), bytes, k);
        return pp_transport_post_send(tp, from, 0, bytes, 0);
    }
    PP_TRY(pp_transport_wait_recv(tp, from, 0));
    if (!consume(pp_transport_slot(tp, from, 0), bytes, k))
        return pp_fail(PP_EINTERNAL, "a message of %zu bytes was not the one expected", bytes);
    return pp_transport_release(tp, from, 0);
}

/* The next receive is posted before the answer to the last one goes out, as in a run. */
static int block(struct pp_transport *tp, size_t bytes, int trips, double *seconds)
{
    int in = 1 - tp->rank;
    PP_TRY(link_swap(tp, &(double){0}));
    PP_TRY(pp_transport_post_recv(tp, in, 0, bytes, 0));
    PP_TRY(link_swap(tp, &(double){0})); /* both are posted */
    uint64_t start = pp_clock_ns();
    for (int k = 0; k < trips; k++) {
        for (int from = 0; from < 2; from++) {
            PP_TRY(one_way(tp, bytes, from, k));
            if (from == in && k + 1 < trips)
                PP_TRY(pp_transport_post_recv(tp, in, 0, bytes, 0));
        }
    }
    *seconds = (double)(pp_clock_ns() - start) * 1e-9 / (2.0 * trips);
    return 0;
}

static void compute(double seconds)
{
    uint64_t end = pp_clock_ns() + (uint64_t)(seconds * 1e9);
    while (pp_clock_ns() < end)
        continue;
}

/* A message on its way while sender and reader compute for as long as two take: the part of `way`
 * that the reader does not wait for, at rank 0. */
static int behind_computing(struct pp_transport *tp, size_t bytes, double way, double *out)
{
    double t[HIDDEN];
    PP_TRY(link_share(tp, &way));
    for (int k = 0; k < HIDDEN; k++) {
        if (tp->rank == 1)
            PP_TRY(pp_transport_post_recv(tp, 0, 0, bytes, 0));
        PP_TRY(link_swap(tp, &(double){0}));
        if (tp->rank == 0)
            PP_TRY(one_way(tp, bytes, 0, k));
        compute(2 * way);
        uint64_t start = pp_clock_ns();
        if (tp->rank == 1)
            PP_TRY(pp_transport_wait_recv(tp, 0, 0));
        t[k] = (double)(pp_clock_ns() - start) * 1e-9;
        if (tp->rank == 1)
            PP_TRY(pp_transport_release(tp, 0, 0));
        PP_TRY(link_swap(tp, &t[k]));
    }
    double waited = pp_median(t, HIDDEN);
    *out = waited < way ? 1 - waited / way : 0;
    return 0;
}

/* What one rank takes for the same work without anybody else, and for a copy. */
static bool alone(char *memory, size_t bytes, int trips, double *work, double *copy)
{
    bool right = true;
    uint64_t start = pp_clock_ns();
    for (int k = 0; k < trips; k++) {
        produce(memory, bytes, k);
        right = consume(memory, bytes, k) && right;
    }
    uint64_t middle = pp_clock_ns();
    for (int k = 0; k < trips; k++) {
        memory[k % 64]++; /* another copy each time */
        memcpy(memory + bytes, memory, bytes);
        __asm__ volatile("" ::"r"(memory) : "memory");
    }
    *work = (double)(middle - start) * 1e-9 / trips;
    *copy = (double)(pp_clock_ns() - middle) * 1e-9 / trips;
    return right;
}

static int measure_size(struct pp_transport *tp, struct pp_handover *h, char *memory)
{
    double t[BLOCKS], work[BLOCKS], copy[BLOCKS], warm;
    int trips = trips_of(h->bytes), n = BLOCKS;
    PP_TRY(block(tp, h->bytes, 1, &warm));
    PP_TRY(link_share(tp, &warm));
    if (warm * trips > SLOW) {
        trips = warm < SLOW ? (int)(SLOW / warm) : 1;
        n = warm < SLOW ? BLOCKS : BLOCKS_SLOW;
    }
    for (int i = 0; i < n; i++)
        PP_TRY(block(tp, h->bytes, trips, &t[i]));
    h->one_way = pp_median(t, n); /* sorts */
    h->fastest = t[0];
    PP_TRY(behind_computing(tp, h->bytes, h->one_way, &h->hidden));
    if (tp->rank != 0)
        return 0;
    for (int i = 0; i < BLOCKS; i++)
        if (!alone(memory, h->bytes, trips, &work[i], &copy[i]))
            return pp_fail(PP_EINTERNAL, "memory does not hold what was written");
    h->same_core = pp_median(work, BLOCKS);
    h->copy = pp_median(copy, BLOCKS);
    return 0;
}

/* The message slots, which belong to both until the threads have ended. */
static int measure(struct pp_transport *tp, struct pp_handover *items, int n,
                   struct pp_arena *slots)
{
    PP_OWN(pp_arena_destroy) struct pp_arena own = {0};
    size_t most = 0;
    for (int i = 0; i < n; i++) {
        pp_assert(items[i].bytes >= 64 && items[i].bytes % 8 == 0);
        most = items[i].bytes > most ? items[i].bytes : most;
    }
    most = (most + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
    PP_TRY(pp_transport_agree(tp, tp->rank == 0 ? pp_arena_create(2 * most, &own) : 0));
    PP_TRY(link_open(tp, 1, most, slots));
    for (int i = 0; i < n; i++)
        PP_TRY_UNDO(measure_size(tp, &items[i], own.base), pp_transport_abort(tp));
    return pp_transport_barrier(tp);
}

int pp_handover_measure(struct pp_transport *tp, struct pp_handover *items, int n)
{
    PP_OWN(pp_arena_destroy) struct pp_arena slots = {0};
    pp_assert(tp->size == 2);
    return measure(tp, items, n, &slots);
}

/* ---- two threads */

struct sides {
    int n;
    struct pp_handover *items[2]; /* rank 1 has its own copy of the sizes */
    struct pp_arena slots[2];
};

static int side(struct pp_transport **tp, int rank, void *ctx, uint64_t *failed_ns)
{
    struct sides *s = ctx;
    int rc = measure(*tp, s->items[rank], s->n, &s->slots[rank]);
    if (rc < 0)
        pp_transport_abort(*tp);
    return rc;
}

int pp_handover_threads(struct pp_handover *items, int n, bool whole_machine)
{
    struct pp_cpu_mask before;
    bool widens = whole_machine && pp_mask_get(&before);
    PP_OWN_MEMORY struct pp_handover *copy = pp_alloc((size_t)n, sizeof(*copy));
    struct sides sides = {.n = n, .items = {items, copy}};
    int rc = copy ? 0 : PP_ERESOURCE;
    if (rc == 0) {
        memcpy(copy, items, (size_t)n * sizeof(*copy));
        if (widens)
            pp_mask_use_all();
        rc = pp_threads_run(2, &(struct pp_threads_job){.work = side, .ctx = &sides});
        if (widens)
            pp_mask_use(&before);
    }
    pp_arena_destroy(&sides.slots[0]);
    pp_arena_destroy(&sides.slots[1]);
    return rc;
}
