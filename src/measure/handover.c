/* SPDX-License-Identifier: Apache-2.0 */
/* Measures transfers for `bench`: every message is written and read completely, and its content is
 * checked. */

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

/* Returns the number that every 8 bytes of message k hold; it differs from those of the messages
 * before and after. */
static uint64_t block_word(int k)
{
    return 0x0101010101010101u * (uint64_t)(k % 251 + 1);
}

static void write_block(void *slot, size_t bytes, int k)
{
    memset(slot, k % 251 + 1, bytes);
}

static bool check_block(const void *slot, size_t bytes, int k)
{
    const char *p = slot;
    uint64_t word, other = 0, expected = block_word(k);
    for (size_t i = 0; i < bytes; i += sizeof(word)) {
        memcpy(&word, p + i, sizeof(word));
        other |= word ^ expected;
    }
    return other == 0;
}

static int count_trips(size_t bytes)
{
    size_t n = BLOCK_BYTES / bytes;
    return n < TRIPS_MIN ? TRIPS_MIN : n > TRIPS_MAX ? TRIPS_MAX : (int)n;
}

static int send_block(struct pp_transport *tp, size_t bytes, int k)
{
    PP_TRY(pp_transport_acquire(tp, tp->rank, 0));
    write_block(pp_transport_slot(tp, tp->rank, 0), bytes, k);
    return pp_transport_post_send(tp, tp->rank, 0, bytes, 0);
}

/* One rank during a round. */
struct block_end {
    struct pp_transport *tp;
    size_t bytes;
    int trips, sent, received;
};

static int post_blocks(void *ctx)
{
    struct block_end *e = ctx;
    e->sent = e->received = 0;
    PP_TRY(link_swap(e->tp, &(double){0}));
    PP_TRY(pp_transport_post_recv(e->tp, 1 - e->tp->rank, 0, e->bytes, 0));
    return link_swap(e->tp, &(double){0}); /* both are posted */
}

static int send_next_block(void *ctx)
{
    struct block_end *e = ctx;
    return send_block(e->tp, e->bytes, e->sent++);
}

/* Receives the next message and checks its content. As in a run, the receive of the message after
 * it is posted before the answer is sent. */
static int receive_next_block(void *ctx)
{
    struct block_end *e = ctx;
    int in = 1 - e->tp->rank;
    PP_TRY(pp_transport_wait_recv(e->tp, in, 0));
    if (!check_block(pp_transport_slot(e->tp, in, 0), e->bytes, e->received))
        return pp_fail(PP_EINTERNAL, "a message of %zu bytes was not the one expected", e->bytes);
    PP_TRY(pp_transport_release(e->tp, in, 0));
    return ++e->received < e->trips ? pp_transport_post_recv(e->tp, in, 0, e->bytes, 0) : 0;
}

static int time_blocks(struct pp_transport *tp, size_t bytes, int trips, int rounds, double *t)
{
    struct block_end side = {.tp = tp, .bytes = bytes, .trips = trips};
    const struct pp_link_end end = {tp->rank == 0, post_blocks, send_next_block, receive_next_block,
                                    &side};
    return pp_link_time(&end, trips, rounds, t);
}

static void compute_for(double seconds)
{
    uint64_t end = pp_clock_ns() + (uint64_t)(seconds * 1e9);
    while (pp_clock_ns() < end)
        continue;
}

/* Measures which part of a message's time `way` the reader does not wait for if both ranks compute
 * for twice as long meanwhile. Only rank 0's result counts. */
static int measure_hidden(struct pp_transport *tp, size_t bytes, double way, double *out)
{
    double t[HIDDEN];
    PP_TRY(link_share(tp, &way));
    for (int k = 0; k < HIDDEN; k++) {
        if (tp->rank == 1)
            PP_TRY(pp_transport_post_recv(tp, 0, 0, bytes, 0));
        PP_TRY(link_swap(tp, &(double){0}));
        if (tp->rank == 0)
            PP_TRY(send_block(tp, bytes, k));
        compute_for(2 * way);
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

/* Measures the same writing and reading by one rank alone, and a copy. Returns false if the memory
 * does not hold the bytes that were written. */
static bool time_one_rank(char *memory, size_t bytes, int trips, double *work, double *copy)
{
    bool right = true;
    uint64_t start = pp_clock_ns();
    for (int k = 0; k < trips; k++) {
        write_block(memory, bytes, k);
        right = check_block(memory, bytes, k) && right;
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
    int trips = count_trips(h->bytes), n = BLOCKS;
    PP_TRY(time_blocks(tp, h->bytes, 1, 1, &warm));
    PP_TRY(link_share(tp, &warm));
    if (warm * trips > SLOW) {
        trips = warm < SLOW ? (int)(SLOW / warm) : 1;
        n = warm < SLOW ? BLOCKS : BLOCKS_SLOW;
    }
    PP_TRY(time_blocks(tp, h->bytes, trips, n, t));
    h->one_way = pp_median(t, n); /* sorts */
    h->fastest = t[0];
    PP_TRY(measure_hidden(tp, h->bytes, h->one_way, &h->hidden));
    if (tp->rank != 0)
        return 0;
    for (int i = 0; i < BLOCKS; i++)
        if (!time_one_rank(memory, h->bytes, trips, &work[i], &copy[i]))
            return pp_fail(PP_EINTERNAL, "memory does not hold what was written");
    h->same_core = pp_median(work, BLOCKS);
    h->copy = pp_median(copy, BLOCKS);
    return 0;
}

/* Measures all sizes. *slots holds the messages until the threads of both ranks have ended. */
static int measure_sizes(struct pp_transport *tp, struct pp_handover *items, int n,
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
    return measure_sizes(tp, items, n, &slots);
}

/* ---- two threads */

struct sides {
    int n;
    struct pp_handover *items[2]; /* rank 1 has its own copy of the sizes */
    struct pp_arena slots[2];
};

static int run_side(struct pp_transport **tp, int rank, void *ctx, uint64_t *failed_ns)
{
    struct sides *s = ctx;
    int rc = measure_sizes(*tp, s->items[rank], s->n, &s->slots[rank]);
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
        rc = pp_threads_run(2, &(struct pp_threads_job){.work = run_side, .ctx = &sides});
        if (widens)
            pp_mask_use(&before);
    }
    pp_arena_destroy(&sides.slots[0]);
    pp_arena_destroy(&sides.slots[1]);
    return rc;
}
