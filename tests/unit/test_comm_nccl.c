/* SPDX-License-Identifier: Apache-2.0 */
/* What the NCCL transport decides without NCCL: places, the order in which communicators are made,
 * and the share of the device that each may take. */
#include "test.h"

#include "../../src/comm/nccl_order.h"
#include "ppcli/base/base.h"
#include "ppcli/sched/plan.h"

#define RANKS_MAX 64
#define CHANNELS_MAX 4096

/* ---- places */

TEST(a_device_of_its_own_for_each_rank_is_accepted)
{
    const struct nccl_place places[] = {
        {"node1", "0000:1b:00.0"}, {"node1", "0000:1c:00.0"}, {"node2", "0000:1b:00.0"}};
    CHECK_OK(pp_nccl_check_places(places, 3));
}

TEST(two_ranks_on_one_device_are_refused_with_both_named)
{
    const struct nccl_place places[] = {
        {"node1", "0000:1b:00.0"}, {"node1", "0000:1c:00.0"}, {"node1", "0000:1b:00.0"}};
    CHECK_FAILS(pp_nccl_check_places(places, 3), PP_ERESOURCE,
                "ranks 0 and 2 share device 0000:1b:00.0");
    CHECK_FAILS(pp_nccl_check_places(places, 3), PP_ERESOURCE, "run.transport");
}

TEST(ranks_that_claim_different_hosts_may_share_a_device)
{
    const struct nccl_place places[] = {{"one", "0000:1b:00.0"}, {"two", "0000:1b:00.0"}};
    CHECK_OK(pp_nccl_check_places(places, 2));
}

/* ---- order of creation */

struct run {
    int size, n;
    struct pp_channel_spec all[CHANNELS_MAX];
    int round[CHANNELS_MAX];
    int rounds;
};

/* The channels that the executor opens for this plan, of every replica. */
static void channels_of(const struct pp_plan *plan, int replicas, struct run *r)
{
    int P = plan->geometry.stages;
    *r = (struct run){.size = P * replicas};
    for (int d = 0; d < replicas; d++) {
        for (int c = 0; c < plan->n_channels; c++) {
            const struct pp_channel *ch = &plan->channels[c];
            if (ch->src_rank != ch->dst_rank && ch->slots > 0) {
                r->all[r->n++] = (struct pp_channel_spec){.src = d * P + ch->src_rank,
                                                          .dst = d * P + ch->dst_rank,
                                                          .id = d * plan->n_channels + c,
                                                          .slots = ch->slots,
                                                          .bytes = 64};
            }
        }
    }
}

/* The next channel, by round, that `rank` is an end of and has not made; -1: all are made. */
static int next_of(const struct run *r, int rank, const bool *made)
{
    int next = -1;
    for (int i = 0; i < r->n; i++) {
        bool mine = r->all[i].src == rank || r->all[i].dst == rank;
        if (mine && !made[i] && (next < 0 || r->round[i] < r->round[next]))
            next = i;
    }
    return next;
}

/* Every rank walks its own list and waits in each channel for the other end. */
static void everybody_gets_through(const struct run *r)
{
    bool made[CHANNELS_MAX] = {false};
    for (int left = r->n; left > 0;) {
        int before = left;
        for (int rank = 0; rank < r->size; rank++) {
            int i = next_of(r, rank, made);
            if (i < 0)
                continue;
            int peer = r->all[i].src == rank ? r->all[i].dst : r->all[i].src;
            if (next_of(r, peer, made) == i) {
                made[i] = true;
                left--;
            }
        }
        if (left == before)
            fail_msg("%d of %d channels are never made", left, r->n);
    }
}

static void no_rank_twice_in_a_round(const struct run *r)
{
    bool busy[RANKS_MAX];
    for (int round = 0; round < r->rounds; round++) {
        int n = 0;
        memset(busy, 0, sizeof(busy));
        for (int i = 0; i < r->n; i++) {
            if (r->round[i] != round)
                continue;
            n++;
            if (busy[r->all[i].src] || busy[r->all[i].dst])
                fail_msg("round %d: channel %d shares a rank with another", round, r->all[i].id);
            busy[r->all[i].src] = busy[r->all[i].dst] = true;
        }
        assert_int_not_equal(n, 0);
    }
}

static void check_order(struct run *r)
{
    int most = 0;
    CHECK_OK(pp_nccl_rounds(r->all, r->n, r->size, r->round, &r->rounds));
    CHECK_OK(pp_nccl_most_channels(r->all, r->n, r->size, &most));
    assert_true(r->rounds < 2 * most);
    no_rank_twice_in_a_round(r);
    everybody_gets_through(r);
}

static void plan_of(const char *schedule, int stages, int chunks, int replicas, struct run *r)
{
    struct pp_geometry g = {.stages = stages, .chunks = chunks, .microbatches = 2 * stages};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build(schedule, &g, &plan));
    channels_of(plan, replicas, r);
}

TEST(every_rank_gets_through_whatever_the_schedule_and_the_replicas)
{
    static const struct {
        const char *schedule;
        int chunks;
    } runs[] = {{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"interleaved", 4}, {"zb-v", 2}};
    static struct run r;
    for (size_t k = 0; k < sizeof(runs) / sizeof(*runs); k++) {
        for (int stages = 2; stages <= 8; stages += 2) {
            for (int replicas = 1; replicas <= 4; replicas += 3) {
                plan_of(runs[k].schedule, stages, runs[k].chunks, replicas, &r);
                assert_int_not_equal(r.n, 0);
                check_order(&r);
            }
        }
    }
}

TEST(a_long_pipeline_takes_no_more_rounds_than_a_short_one)
{
    static struct run r;
    plan_of("1f1b", 3, 1, 1, &r);
    check_order(&r);
    int of_three = r.rounds;
    plan_of("1f1b", 16, 1, 4, &r);
    check_order(&r);
    CHECK_INT_EQ(r.rounds, of_three);
    CHECK_INT_EQ(of_three, 4);
}

TEST(any_set_of_channels_is_made_without_a_circle)
{
    static struct run r;
    for (uint64_t seed = 0; seed < 200; seed++) {
        r = (struct run){.size = 2 + (int)(pp_rng_u32(seed, 0, 0) % 15)};
        r.n = 1 + (int)(pp_rng_u32(seed, 0, 1) % 60);
        for (int i = 0; i < r.n; i++) {
            int src = (int)(pp_rng_u32(seed, 1, (uint64_t)i) % (uint32_t)r.size);
            int step = 1 + (int)(pp_rng_u32(seed, 2, (uint64_t)i) % (uint32_t)(r.size - 1));
            r.all[i] = (struct pp_channel_spec){
                .src = src, .dst = (src + step) % r.size, .id = i, .slots = 1, .bytes = 64};
        }
        check_order(&r);
    }
}

/* Every rank has its own channels only; what it gathers must not depend on who it is. */
TEST(the_gathered_channels_are_those_of_the_run_once_each)
{
    enum {
        MOST = 40
    };
    static struct run r;
    static struct pp_channel_spec gathered[RANKS_MAX * MOST], merged[RANKS_MAX * MOST];
    plan_of("interleaved", 4, 4, 2, &r);
    memset(gathered, 0, sizeof(gathered));
    for (int rank = 0; rank < r.size; rank++) {
        int k = 0;
        for (int i = 0; i < r.n; i++) {
            if (r.all[i].src == rank || r.all[i].dst == rank) {
                assert_true(k < MOST);
                gathered[rank * MOST + k++] = r.all[i];
            }
        }
    }
    int n = 0;
    pp_nccl_merge(gathered, r.size, MOST, merged, &n);
    CHECK_INT_EQ(n, r.n);
    assert_memory_equal(merged, r.all, (size_t)n * sizeof(*merged));
}

TEST(more_channels_leave_less_of_the_device_to_each)
{
    const struct nccl_place places[] = {{.host = "a"}, {.host = "a"}, {.host = "b"}};
    for (int most = 1; most <= NCCL_CHANNELS_MAX; most++) {
        int blocks = pp_nccl_blocks(places, 3, most);
        assert_true(blocks >= 1 && blocks <= pp_nccl_blocks(places, 3, most - 1));
        CHECK_INT_EQ(pp_nccl_blocks(places, 2, most), 1); /* on one host */
        assert_true(blocks * most <=
                    24); /* of the 108 and more of devices that are used for this */
    }
    CHECK_INT_EQ(pp_nccl_blocks(places, 3, 4), 4); /* a pipeline without chunks */
}
