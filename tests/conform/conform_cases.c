/* SPDX-License-Identifier: Apache-2.0 */
/* The cases. Every rank runs every case, in this order. */
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ppcli/base/base.h"

static int put(struct conform *c, enum kind kind, enum direction d, int slot, int message,
               size_t bytes)
{
    int ch = c->ch[kind][d][0];
    PP_TRY(pp_transport_acquire(c->tp, ch, slot));
    PP_TRY(conform_write(c, c->id[kind][d][0], message, bytes, pp_transport_slot(c->tp, ch, slot)));
    return pp_transport_post_send(c->tp, ch, slot, bytes, message);
}

static int expect(struct conform *c, enum kind kind, enum direction d, int slot, int message,
                  size_t bytes)
{
    return pp_transport_post_recv(c->tp, c->ch[kind][d][1], slot, bytes, message);
}

/* Wait and look, without releasing. */
static int look(struct conform *c, enum kind kind, enum direction d, int slot, int message,
                size_t bytes)
{
    int ch = c->ch[kind][d][1];
    PP_TRY(pp_transport_wait_recv(c->tp, ch, slot));
    return conform_expect(c, c->id[kind][d][1], message, bytes, pp_transport_slot(c->tp, ch, slot));
}

static int done(struct conform *c, enum kind kind, enum direction d, int slot)
{
    return pp_transport_release(c->tp, c->ch[kind][d][1], slot);
}

static int a_sender_that_runs_ahead_never_overwrites(struct conform *c)
{
    enum {
        N = 120,
        SLOTS = 3,
        BYTES = 4096
    };
    if (c->tp->size == 1)
        return 0;
    for (int k = 0; k < SLOTS; k++)
        PP_TRY(expect(c, SMALL, AHEAD, k, k, BYTES));
    for (int i = 0; i < N + SLOTS - 1; i++) {
        if (i < N)
            PP_TRY(put(c, SMALL, AHEAD, i % SLOTS, i, BYTES));
        int j = i - (SLOTS - 1);
        if (j < 0)
            continue;
        PP_TRY(look(c, SMALL, AHEAD, j % SLOTS, j, BYTES));
        /* The sender now has all the time to write over what was not released. */
        uint32_t r = pp_rng_u32(3, (uint64_t)c->tp->rank, (uint64_t)j);
        if (r % 8 == 0) {
            struct timespec t = {.tv_sec = 0, .tv_nsec = (long)(r >> 8) % 400000};
            nanosleep(&t, NULL);
        }
        PP_TRY(conform_expect(c, c->id[SMALL][AHEAD][1], j, BYTES,
                              pp_transport_slot(c->tp, c->ch[SMALL][AHEAD][1], j % SLOTS)));
        PP_TRY(done(c, SMALL, AHEAD, j % SLOTS));
        if (j + SLOTS < N)
            PP_TRY(expect(c, SMALL, AHEAD, j % SLOTS, j + SLOTS, BYTES));
    }
    return 0;
}

static int a_fast_sender_waits_for_a_slow_receiver(struct conform *c)
{
    enum {
        N = 5,
        BYTES = 1 << 20
    };
    for (int m = 0; m < N && c->tp->size > 1; m++) {
        if (c->tp->rank == 0) {
            PP_TRY(put(c, BIG, AHEAD, 0, m, BYTES));
        } else if (c->tp->rank == 1) {
            struct timespec t = {.tv_sec = 0, .tv_nsec = 3000000};
            nanosleep(&t, NULL);
            PP_TRY(expect(c, BIG, AHEAD, 0, m, BYTES));
            PP_TRY(look(c, BIG, AHEAD, 0, m, BYTES));
            PP_TRY(done(c, BIG, AHEAD, 0));
        }
    }
    return 0;
}

static int slots_may_be_released_in_any_order(struct conform *c)
{
    static const int order[4][3] = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}};
    if (c->tp->size == 1)
        return 0;
    for (int k = 0; k < 3; k++)
        PP_TRY(expect(c, SMALL, BACK, order[0][k], k, 512));
    for (int round = 0; round < 4; round++) {
        for (int k = 0; k < 3; k++)
            PP_TRY(put(c, SMALL, BACK, order[round][k], 3 * round + k, 512));
        for (int k = 0; k < 3; k++)
            PP_TRY(look(c, SMALL, BACK, order[round][k], 3 * round + k, 512));
        for (int k = 0; k < 3 && round < 3; k++) {
            PP_TRY(done(c, SMALL, BACK, order[round + 1][k]));
            PP_TRY(expect(c, SMALL, BACK, order[round + 1][k], 3 * (round + 1) + k, 512));
        }
    }
    for (int k = 0; k < 3; k++)
        PP_TRY(done(c, SMALL, BACK, k));
    return 0;
}

static int every_size_arrives_whole(struct conform *c)
{
    static const size_t sizes[] = {64, 256, 1000, 4000, 4096, 4104, 65536, 262148, 1 << 20, 4, 0};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes) && c->tp->size > 1; i++) {
        int m = (int)i;
        PP_TRY(expect(c, BIG, AHEAD, 0, m, sizes[i]));
        PP_TRY(put(c, BIG, AHEAD, 0, m, sizes[i]));
        PP_TRY(look(c, BIG, AHEAD, 0, m, sizes[i]));
        PP_TRY(done(c, BIG, AHEAD, 0));
    }
    return 0;
}

static int big_messages_cross_without_blocking(struct conform *c)
{
    for (int i = 0; i < 6 && c->tp->size > 1; i++) {
        int m = 100 + i;
        /* Sends first, receives late: a blocking send would hang here. */
        PP_TRY(put(c, BIG, AHEAD, 0, m, 1 << 20));
        PP_TRY(put(c, BIG, BACK, 0, m, 1 << 20));
        PP_TRY(expect(c, BIG, BACK, 0, m, 1 << 20));
        PP_TRY(expect(c, BIG, AHEAD, 0, m, 1 << 20));
        PP_TRY(look(c, BIG, BACK, 0, m, 1 << 20));
        PP_TRY(look(c, BIG, AHEAD, 0, m, 1 << 20));
        PP_TRY(done(c, BIG, AHEAD, 0));
        PP_TRY(done(c, BIG, BACK, 0));
    }
    return 0;
}

/* rc is PP_EINTERNAL and the text has all of the words. */
static int said(int rc, const char *const *words)
{
    const char *text = pp_error_get()->text;
    EXPECT(rc == PP_EINTERNAL, "returned %d, expected %d", rc, PP_EINTERNAL);
    for (int i = 0; words[i]; i++)
        EXPECT(strstr(text, words[i]), "says '%s', expected '%s' in it", text, words[i]);
    return 0;
}

static int a_wrong_tag_or_size_is_an_error_with_both_values(struct conform *c)
{
    if (c->tp->size == 1 || c->tp->caps.unlabelled)
        return 0;
    char name[32];
    PP_TRY(expect(c, WRONG_TAG, AHEAD, 0, 7, 64));
    PP_TRY(put(c, WRONG_TAG, AHEAD, 0, 65535, 64));
    int rc = pp_transport_wait_recv(c->tp, c->ch[WRONG_TAG][AHEAD][1], 0);
    snprintf(name, sizeof(name), "channel %d ", c->id[WRONG_TAG][AHEAD][1]);
    PP_TRY(said(rc, (const char *const[]){name, "slot 0", "expected tag 7", "tag 65535", NULL}));

    PP_TRY(expect(c, WRONG_SIZE, AHEAD, 0, 1, 64));
    PP_TRY(put(c, WRONG_SIZE, AHEAD, 0, 1, 128));
    rc = pp_transport_wait_recv(c->tp, c->ch[WRONG_SIZE][AHEAD][1], 0);
    snprintf(name, sizeof(name), "channel %d ", c->id[WRONG_SIZE][AHEAD][1]);
    PP_TRY(said(rc, (const char *const[]){name, "slot 0", "with 64 bytes", "128 bytes", NULL}));

    PP_TRY(expect(c, WRONG_SIZE, BACK, 0, 1, 128));
    PP_TRY(put(c, WRONG_SIZE, BACK, 0, 1, 100));
    rc = pp_transport_wait_recv(c->tp, c->ch[WRONG_SIZE][BACK][1], 0);
    return said(rc, (const char *const[]){"with 128 bytes", "with 100 bytes", NULL});
}

static int a_call_out_of_turn_is_an_error(struct conform *c)
{
    if (c->tp->size == 1)
        return 0;
    int out = c->ch[UNUSED][AHEAD][0];
    int in = c->ch[UNUSED][AHEAD][1];
    const char *const send[] = {"slot 1", "send", "free", NULL};
    PP_TRY(said(pp_transport_post_send(c->tp, out, 1, 8, 0), send));
    PP_TRY(pp_transport_acquire(c->tp, out, 1));
    const char *const long_one[] = {"65 bytes", NULL};
    PP_TRY(said(pp_transport_post_send(c->tp, out, 1, 65, 0), long_one));
    const char *const tag[] = {"tag 65536", NULL};
    PP_TRY(said(pp_transport_post_send(c->tp, out, 1, 8, 65536), tag));
    const char *const wait[] = {"wait", "free", NULL};
    PP_TRY(said(pp_transport_wait_recv(c->tp, in, 0), wait));
    const char *const release[] = {"release", "free", NULL};
    PP_TRY(said(pp_transport_release(c->tp, in, 0), release));
    PP_TRY(pp_transport_post_recv(c->tp, in, 0, 8, 0));
    const char *const twice[] = {"receive", "waited for", NULL};
    PP_TRY(said(pp_transport_post_recv(c->tp, in, 0, 8, 0), twice));
    /* Nothing may be left waiting on a device. */
    PP_TRY(pp_transport_acquire(c->tp, out, 0));
    PP_TRY(pp_transport_post_send(c->tp, out, 0, 8, 0));
    PP_TRY(pp_transport_wait_recv(c->tp, in, 0));
    return pp_transport_release(c->tp, in, 0);
}

static int allgather_is_in_rank_order(struct conform *c)
{
    static const size_t sizes[] = {1, 8, 1000, 70000};
    for (size_t i = 0; i < 4; i++) {
        size_t n = sizes[i];
        unsigned char *in = malloc(n);
        unsigned char *out = malloc(n * (size_t)c->tp->size);
        EXPECT(in && out, "out of memory");
        conform_fill(c->tp->rank, 1, n, in);
        int rc = pp_transport_allgather(c->tp, in, n, out);
        memset(in, 0, n); /* ours again: nobody may still be reading it */
        for (int r = 0; r < c->tp->size && rc == 0; r++)
            rc = conform_match(r, 1, n, out + n * (size_t)r);
        free(in);
        free(out);
        PP_TRY(rc);
    }
    return 0;
}

static int nobody_leaves_a_barrier_before_all_arrived(struct conform *c)
{
    uint64_t mine[2];
    uint64_t all[2 * 64];
    EXPECT(c->tp->size <= 64, "more than 64 ranks");
    for (int round = 0; round < 3; round++) {
        struct timespec t = {.tv_sec = 0,
                             .tv_nsec = (c->tp->rank + round) % c->tp->size * 2000000L};
        nanosleep(&t, NULL);
        mine[0] = pp_clock_ns();
        PP_TRY(pp_transport_barrier(c->tp));
        mine[1] = pp_clock_ns();
        PP_TRY(pp_transport_allgather(c->tp, mine, sizeof(mine), all));
        for (int a = 0; a < c->tp->size; a++) {
            EXPECT(all[2 * a] <= mine[1], "rank %d left %llu ns before rank %d came", c->tp->rank,
                   (unsigned long long)(all[2 * a] - mine[1]), a);
        }
    }
    return 0;
}

/* Rank 0 comes late; the others have shown that they wait for it, not before and not long ago. */
static int waiting_can_be_seen_from_outside(struct conform *c)
{
    uint64_t waited = 0, begin = pp_clock_ns();
    pp_transport_show_waits(c->tp, &waited);
    if (c->tp->rank == 0) {
        struct timespec t = {.tv_sec = 0, .tv_nsec = 120000000};
        nanosleep(&t, NULL);
    }
    int rc = pp_transport_barrier(c->tp);
    uint64_t end = pp_clock_ns();
    pp_transport_show_waits(c->tp, NULL);
    PP_TRY(rc);
    EXPECT(c->tp->rank == 0 || (waited >= begin && waited <= end),
           "rank %d waited from %llu to %llu, seen at %llu", c->tp->rank, (unsigned long long)begin,
           (unsigned long long)end, (unsigned long long)waited);
    return 0;
}

/* The ranks >= first fail, each with its own text; expect everybody to return first's code. */
static int fail_from(struct conform *c, int first)
{
    char words[64];
    pp_error_clear();
    int rc = 0;
    if (c->tp->rank >= first)
        rc = pp_fail(c->tp->rank == first ? PP_EFORMAT : PP_EIO, "disk %d is full", c->tp->rank);
    int verdict = pp_transport_agree(c->tp, rc);
    const struct pp_error *e = pp_error_get();
    EXPECT(verdict == PP_EFORMAT, "the verdict is %d, expected %d", verdict, PP_EFORMAT);
    if (c->tp->rank < first) {
        snprintf(words, sizeof(words), "rank %d: disk %d is full", first, first);
        EXPECT(e->code == PP_EFORMAT, "the record has code %d, expected %d", e->code, PP_EFORMAT);
    } else {
        snprintf(words, sizeof(words), "disk %d is full", c->tp->rank);
    }
    EXPECT(strcmp(e->text, words) == 0, "the record says '%s', expected '%s'", e->text, words);
    return 0;
}

static int one_failure_is_everybodys(struct conform *c)
{
    uint64_t before = pp_alloc_count();
    int rc = pp_transport_agree(c->tp, 0);
    EXPECT(rc == 0, "all is well, but the verdict is %d", rc);
    for (int first = c->tp->size - 1; first >= 0; first--)
        PP_TRY(fail_from(c, first));
    if (c->tp->size == 1)
        EXPECT(pp_alloc_count() == before, "agree allocates");
    rc = pp_transport_agree(c->tp, 1);
    EXPECT(rc == 0, "a positive value is no failure, but the verdict is %d", rc);
    pp_error_clear();
    return 0;
}

static int send_and_recv_move_any_size(struct conform *c)
{
    static const size_t sizes[] = {0, 1, 63, 4097, (1 << 20) + 13};
    int next = (c->tp->rank + 1) % c->tp->size;
    int before = (c->tp->rank + c->tp->size - 1) % c->tp->size;
    unsigned char *buf = malloc(2 << 20);
    EXPECT(buf, "out of memory");
    int rc = 0;
    for (size_t i = 0; i < 5 && rc == 0 && c->tp->size > 1; i++) {
        /* Once around the ring: rank 0 speaks first and hears last. */
        for (int step = 0; step < 2 && rc == 0; step++) {
            if ((step == 0) == (c->tp->rank == 0)) {
                conform_fill(next, (int)i, sizes[i], buf);
                rc = pp_transport_send(c->tp, next, buf, sizes[i]);
            } else {
                rc = pp_transport_recv(c->tp, before, buf, sizes[i]);
                rc = rc < 0 ? rc : conform_match(c->tp->rank, (int)i, sizes[i], buf);
            }
        }
    }
    free(buf);
    return rc;
}

/* Messages of one part do not wait for those of the other, and yet nothing overtakes. */
static int a_fork_parts_what_is_before_from_what_is_after(struct conform *c)
{
    enum {
        BYTES = 4096
    };
    if (c->tp->size == 1 || !pp_transport_can_fork(c->tp))
        return 0;
    for (int part = 0; part < 6; part++) {
        for (int k = 0; k < 3; k++) {
            PP_TRY(expect(c, SMALL, AHEAD, k, 3 * part + k, BYTES));
            PP_TRY(put(c, SMALL, AHEAD, k, 3 * part + k, BYTES));
        }
        for (int k = 0; k < 3; k++) {
            PP_TRY(look(c, SMALL, AHEAD, k, 3 * part + k, BYTES));
            PP_TRY(done(c, SMALL, AHEAD, k));
        }
        PP_TRY(pp_transport_join(c->tp));
        PP_TRY(pp_transport_fork(c->tp));
    }
    return 0;
}

#define CASE(f)                                                                                    \
    {                                                                                              \
        .name = #f, .run = f                                                                       \
    }
const struct conform_case conform_cases[] = {
    CASE(a_sender_that_runs_ahead_never_overwrites),
    CASE(a_fast_sender_waits_for_a_slow_receiver),
    CASE(slots_may_be_released_in_any_order),
    CASE(every_size_arrives_whole),
    CASE(big_messages_cross_without_blocking),
    CASE(allgather_is_in_rank_order),
    CASE(nobody_leaves_a_barrier_before_all_arrived),
    CASE(waiting_can_be_seen_from_outside),
    CASE(one_failure_is_everybodys),
    CASE(a_vote_is_for_only_when_all_are),
    CASE(a_vote_built_from_allgather_is_the_same),
    CASE(posting_a_vote_waits_for_nobody),
    CASE(send_and_recv_move_any_size),
    CASE(reduce_has_the_bits_of_adding_in_order),
    CASE(allgather_of_device_memory_is_in_rank_order),
    CASE(a_fork_parts_what_is_before_from_what_is_after),
    CASE(a_call_out_of_turn_is_an_error),
    CASE(a_wrong_tag_or_size_is_an_error_with_both_values),
    {.name = NULL},
};
