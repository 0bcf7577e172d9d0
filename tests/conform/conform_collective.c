/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of what all ranks do together: sums, votes, what they tell each other. */
#include "conform.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ppcli/base/base.h"

/* Sum over a group, compared bit for bit with adding in group order on this rank alone. What stands
 * behind the buffers stays as it is. */
static int reduce_over(struct conform *c, const int *group, int n, size_t N)
{
    uint32_t fence = 0x7fc0beef;
    float *host = malloc((N + 1) * sizeof(*host));
    float *want = malloc((N + 1) * sizeof(*want));
    float *last = malloc(sizeof(*last));
    float *buf = NULL, *scratch = NULL;
    EXPECT(host && want && last, "out of memory");
    for (size_t i = 0; i < N; i++) {
        host[i] = conform_addend(c->tp->rank, i);
        want[i] = conform_addend(group[0], i);
        for (int j = 1; j < n; j++)
            want[i] += conform_addend(group[j], i);
    }
    memcpy(host + N, &fence, 4);
    memcpy(want + N, &fence, 4);
    memcpy(last, &fence, 4);
    int rc = conform_floats(c, N + 1, host, &buf);
    rc = rc < 0 ? rc : conform_floats(c, N + 1, host, &scratch);
    free(host);
    PP_TRY(rc);
    PP_TRY(pp_transport_reduce(c->tp, group, n, N, buf, scratch));
    PP_TRY(conform_expect_floats(c, "sum", N + 1, want, buf));
    return conform_expect_floats(c, "scratch", 1, last, scratch + N);
}

int reduce_has_the_bits_of_adding_in_order(struct conform *c)
{
    static const size_t sizes[] = {0, 1, 2, 7, 10, 1000, 100003};
    int group[64];
    EXPECT(c->tp->size <= 64, "more than 64 ranks");
    for (int j = 0; j < c->tp->size; j++)
        group[j] = j;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        PP_TRY(reduce_over(c, group, c->tp->size, sizes[i]));
    /* Even and odd ranks sum at the same time, as replicas of different stages do. */
    int n = 0;
    for (int r = c->tp->rank % 2; r < c->tp->size; r += 2)
        group[n++] = r;
    PP_TRY(reduce_over(c, group, n, 7));
    return reduce_over(c, group, n, 5003);
}

/* Rank r is against in every vote whose number has bit r set; in between some are late. */
static int vote_often(struct conform *c)
{
    struct pp_transport *tp = c->tp;
    for (unsigned i = 0; i < 64; i++) {
        unsigned against = i & ((1u << (tp->size < 6 ? tp->size : 6)) - 1);
        bool all = against != 0;
        if (pp_rng_u32(4, (uint64_t)tp->rank, i) % 8 == 0) {
            struct timespec t = {.tv_sec = 0, .tv_nsec = 200000};
            nanosleep(&t, NULL);
        }
        PP_TRY(pp_transport_post_vote(tp, tp->rank > 5 || (against >> tp->rank & 1) == 0));
        PP_TRY(pp_transport_wait_vote(tp, &all));
        EXPECT(all == (against == 0), "vote %u: %s, expected %s", i,
               all ? "all for" : "some against", against == 0 ? "all for" : "some against");
    }
    return 0;
}

int a_vote_is_for_only_when_all_are(struct conform *c)
{
    return vote_often(c);
}

int a_vote_built_from_allgather_is_the_same(struct conform *c)
{
    const struct pp_transport_ops *fast = c->tp->ops;
    struct pp_transport_ops plain = *fast;
    plain.post_vote = NULL;
    plain.wait_vote = NULL;
    c->tp->ops = &plain;
    int rc = vote_often(c);
    c->tp->ops = fast;
    return rc;
}

/* The ranks stand in a row: each gets a message only when the one before has voted and got its own,
 * so a rank whose posting waited for the others would hang here. */
int posting_a_vote_waits_for_nobody(struct conform *c)
{
    struct pp_transport *tp = c->tp;
    char word = 0;
    bool all = false;
    if (tp->rank > 0)
        PP_TRY(pp_transport_recv(tp, tp->rank - 1, &word, 1));
    PP_TRY(pp_transport_post_vote(tp, true));
    if (tp->rank + 1 < tp->size)
        PP_TRY(pp_transport_send(tp, tp->rank + 1, &word, 1));
    PP_TRY(pp_transport_wait_vote(tp, &all));
    EXPECT(all, "some against, expected all for");
    return 0;
}

/* What every rank gives, over and over, from memory that it writes anew as soon as it may. */
int allgather_of_device_memory_is_in_rank_order(struct conform *c)
{
    float *in = NULL, *out = NULL;
    enum {
        N = 33
    };
    float zeros[64 * N] = {0};
    EXPECT(c->tp->size <= 64, "more than 64 ranks");
    PP_TRY(conform_floats(c, N, zeros, &in));
    PP_TRY(conform_floats(c, (size_t)c->tp->size * N, zeros, &out));
    for (int round = 0; round < 4; round++) {
        float *want = malloc((size_t)c->tp->size * N * sizeof(*want));
        EXPECT(want, "out of memory");
        for (int r = 0; r < c->tp->size; r++)
            conform_fill(r, round, N * sizeof(*want), (unsigned char *)(want + r * N));
        PP_TRY(conform_write(c, c->tp->rank, round, N * sizeof(*want), in));
        PP_TRY(pp_transport_allgather_on(c->tp, in, N * sizeof(*want), out));
        PP_TRY(conform_expect_floats(c, "gathered", (size_t)c->tp->size * N, want, out));
    }
    return 0;
}
