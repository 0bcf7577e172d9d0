/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's passes one by one: what is refused and in which words, slots, time line, pictures. */
#include "../../src/sched/pass.h"
#include "../../src/sched/plan.h"
#include "test_sched_lists.h"
#include "test_sched_line.h"

static int plan_of(int p, int v, int m, enum pp_placement placement, const char *rows,
                   struct pp_plan **out)
{
    struct lists l;
    lists_parse(&l, p, v, m, placement, rows);
    int rc = lists_plan(&l, out);
    lists_free(&l);
    return rc;
}

TEST(illegal_lists_are_refused_in_words)
{
    static const struct {
        int p, v, m;
        const char *rows, *words;
    } table[] = {
        {1, 1, 1, "0B0,0F0", "rank 0: 0B0 comes before its 0F0"},
        {1, 1, 1, "0F0,0W0,0I0", "rank 0: 0W0 comes before its 0I0"},
        {1, 1, 1, "0F0,0F0,0B0", "rank 0: 0F0 comes twice"},
        {1, 1, 1, "0F0,0B0,0B0", "rank 0: 0B0 comes twice"},
        {1, 1, 1, "0F0", "rank 0: stage 0 has no 0B0, nor a backward"},
        {1, 1, 1, "0B0", "rank 0: 0B0 has no 0F0"},
        {1, 1, 1, "0F0,0I0", "rank 0: stage 0 has no 0W0 for its input gradient"},
        {1, 1, 1, "0F0,0W0", "rank 0: 0W0 has no 0I0"},
        {1, 1, 1, "0F0,0B0,0W0", "0W0, but there is 0B0 too (cell 2): a micro-batch"},
        {1, 1, 1, "0F0,0I0,0B0", "0B0, but there is 0I0 too (cell 2)"},
        {1, 1, 1, "0F1,0B0", "0F1: micro-batches are 0..0"},
        {1, 1, 1, "1F0,0B0", "1F0: stages are 0..0"},
        {2, 1, 1, "1F0,0B0 0F0,1B0", "rank 0: 1F0 belongs to rank 1"},
        {1, 1, 2, "0F0,0F1,0B1,0B0",
         "rank 0: 0B0 comes after micro-batch 1 of its stage: gradients must be added in ascending "
         "order"},
        {1, 1, 2, "0F0,0F1,0I0,0I1,0W1,0W0", "0W0 comes after micro-batch 1"},
        {1, 1, 2, "0F0,0F1,0B1", "rank 0: stage 0 has no 0B0"},
        {1, 1, 2, "0F0,0B0", "rank 0: stage 0 has no 0F1"},
        {2, 1, 2, "0F0,0F1,0B0,0B1 1F1,1F0,1B0,1B1",
         "row 2 cell 1: 1F1 comes before 1F0, but rank 0 sends activations 0 first"},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        struct pp_plan *plan = NULL;
        CHECK_FAILS(
            plan_of(table[i].p, table[i].v, table[i].m, PP_PLACE_LOOP, table[i].rows, &plan),
            PP_EFORMAT, table[i].words);
        assert_null(plan);
    }
}

extern const struct pp_schedule_ops schedule_skeleton; /* in no table */

static int take_list(void *ctx, int rank, const struct pp_emit *e)
{
    for (size_t i = 0; i < e->n; i++)
        add(ctx, rank, e->cells[i].op, e->cells[i].stage, e->cells[i].mb);
    return 0;
}

TEST(what_a_schedule_begins_with_is_one)
{
    for (int p = 1; p <= 5; p++) {
        for (int m = 2; m <= 7; m++) {
            struct lists l;
            struct pp_plan *plan = NULL;
            lists_init(&l, p, 1, m, PP_PLACE_LOOP);
            CHECK_OK(pp_schedule_visit(&schedule_skeleton, &l.g, take_list, &l));
            CHECK_OK(lists_plan(&l, &plan));
            pp_plan_destroy(&plan);
            lists_free(&l);
        }
    }
    const struct pp_geometry one = {.stages = 2, .chunks = 1, .microbatches = 1};
    CHECK_FAILS(schedule_skeleton.check(&one), PP_ECONFIG, "2 micro-batches or more");
}

TEST(nonsense_cells_are_refused)
{
    struct pp_plan *plan = NULL;
    struct lists l;
    lists_parse(&l, 1, 1, 1, PP_PLACE_LOOP, "0F0,0B0");
    l.cells[0][1].op = 200;
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "cell 2 is neither F, I, W, B nor R (op 200)");
    l.cells[0][1] = (struct pp_cell){.op = PP_OP_B, .stage = INT32_MIN, .mb = 0};
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "stages are 0..0");
    l.cells[0][1] = (struct pp_cell){.op = PP_OP_B, .stage = 0, .mb = INT32_MIN};
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "micro-batches are 0..0");
    l.n[0] = -1;
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "cells are too many");
    l.n[0] = 0;
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "stage 0 has no 0F0");
    l.rank_of[0] = 1;
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "stage 0 is on rank 1, ranks are 0..0");
    lists_free(&l);

    lists_parse(&l, 2, 1, 1, PP_PLACE_LOOP, "0F0,0B0 1F0,1B0");
    l.rank_of[1] = 0;
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "rank 0 holds more than 1 stage (chunks = 1)");
    l.g.microbatches = 0;
    CHECK_FAILS(lists_plan(&l, &plan), PP_ECONFIG, "0 micro-batches");
    lists_free(&l);
    assert_null(plan);
}

/* A published schedule, but its backwards descend: another order of adding up, other bits. */
TEST(looped_bfs_as_published_is_refused)
{
    struct pp_plan *plan = NULL;
    CHECK_FAILS(plan_of(2, 2, 2, PP_PLACE_LOOP,
                        "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0 1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0", &plan),
                PP_EFORMAT, "2B0 comes after micro-batch 1 of its stage");
}

TEST(a_wait_cycle_is_printed)
{
    struct pp_plan *plan = NULL;
    CHECK_FAILS(plan_of(2, 1, 2, PP_PLACE_LOOP, "0F0,0B0,0F1,0B1 1F0,1F1,1B0,1B1", &plan),
                PP_EFORMAT,
                "these ranks wait for each other: "
                "0B0 waits for 1B0; 1F1 waits for 0F1");
    CHECK_FAILS(plan_of(1, 2, 1, PP_PLACE_V, "1F0,0F0,1B0,0B0", &plan), PP_EFORMAT,
                "a rank waits forever: 1F0 (rank 0) waits for 0F0 (rank 0)");
    assert_null(plan);
}

TEST(a_long_wait_cycle_is_cut)
{
    /* every rank wants its second chunk first: rank 0 waits for 19, which waits for 18, ... */
    struct lists l;
    struct pp_plan *plan = NULL;
    int p = 20;
    lists_init(&l, p, 2, 1, PP_PLACE_LOOP);
    for (int r = 0; r < p; r++) {
        add(&l, r, PP_OP_F, p + r, 0);
        add(&l, r, PP_OP_F, r, 0);
        add(&l, r, PP_OP_B, p + r, 0);
        add(&l, r, PP_OP_B, r, 0);
    }
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "these ranks wait for each other");
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "20F0 (rank 0) waits for 19F0 (rank 19)");
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "; and 4 more");
    lists_free(&l);
}

TEST(too_few_slots_fail_the_proof)
{
    struct pp_plan *plan = plan_named("gpipe", 2, 4);
    squeeze(plan, 0, 3);
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT,
                "rank 0: 0F3 would overwrite slot 0 of channel 0, which the backward of its own "
                "micro-batch 0 still reads");
    squeeze(plan, 0, 4);
    CHECK_OK(pp_plan_prove(plan));
    pp_plan_destroy(&plan);

    /* both ranks do all I, then all W: a gradient message is kept until the receiver's W */
    const char *rows = "0F0,0F1,0I0,0I1,0W0,0W1 1F0,1F1,1I0,1I1,1W0,1W1";
    CHECK_OK(plan_of(2, 1, 2, PP_PLACE_LOOP, rows, &plan));
    CHECK_INT_EQ(plan->channels[1].slots, 2);
    CHECK_OK(pp_plan_prove(plan));
    squeeze(plan, 1, 1);
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT,
                "these ranks wait for each other: "
                "0I1 waits for 1I1; 1I1 waits for the slot that 0W0 frees");
    pp_plan_destroy(&plan);
}

TEST(aliased_memory_fails_the_proof)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named("zb-h1", 2, 8);
    struct pp_action *second = &plan->ranks[0].actions[1];
    CHECK_INT_EQ(second->slot, 1);
    second->slot = 0;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT,
                "F1 finds state slot 0 of stage 0 held by micro-batch 0");
    second->slot = 2;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "F1 has state slot 2, stage 0 has 2 of them");
    second->slot = 1;
    CHECK_OK(pp_plan_prove(plan));

    struct pp_action *last = &plan->ranks[1].actions[plan->ranks[1].n_actions - 1];
    CHECK_INT_EQ(last->op, PP_OP_W);
    last->gslot ^= 1;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "gradient slot");
    last->gslot ^= 1;

    int32_t message = pp_plan_message(plan, 0, 0);
    int32_t next = plan->messages[message].next_in_slot;
    plan->messages[message].next_in_slot = -1;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "is not posted in the order of the sends");
    plan->messages[message].next_in_slot = next;
    plan->messages[message].slot = plan->channels[0].slots;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "sends in slot");
}

TEST(state_and_gradient_slots_are_the_peaks)
{
    static const char *const names[] = {
        "1f1b", "zb-h1", "zb-h2", "interleaved v2", "interleaved-zb v2", "zb-v"};
    for (size_t i = 0; i < LEN(names); i++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(names[i], 4, 8);
        int live[STAGES_MAX] = {0}, peak[STAGES_MAX] = {0};
        int glive[STAGES_MAX] = {0}, gpeak[STAGES_MAX] = {0};
        for (int r = 0; r < 4; r++) {
            for (int k = 0; k < plan->ranks[r].n_actions; k++) {
                const struct pp_action *a = &plan->ranks[r].actions[k];
                int s = a->stage;
                live[s] += a->op == PP_OP_F;
                glive[s] += a->op == PP_OP_I || a->op == PP_OP_B;
                peak[s] = live[s] > peak[s] ? live[s] : peak[s];
                gpeak[s] = glive[s] > gpeak[s] ? glive[s] : gpeak[s];
                live[s] -= a->op == PP_OP_W || a->op == PP_OP_B;
                glive[s] -= a->op == PP_OP_W || a->op == PP_OP_B;
            }
        }
        for (int s = 0; s < plan->n_virtual; s++) {
            CHECK_INT_EQ(plan->state_slots[s], peak[s]);
            CHECK_INT_EQ(plan->grad_slots[s], gpeak[s]);
        }
    }
}

TEST(message_slots_of_1f1b_do_not_grow_with_microbatches)
{
    for (int m = 8; m <= 128; m *= 2) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named("1f1b", 4, m);
        for (int s = 0; s < 3; s++) {
            /* what the sender's own backward needs, and a spare */
            CHECK_INT_EQ(plan->channels[2 * s].slots, 4 - s + 1);
            CHECK_INT_EQ(plan->channels[2 * s + 1].slots, 2);
        }
    }
}

TEST(a_fold_is_a_local_channel_without_a_spare)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named("zb-v", 4, 8);
    CHECK_INT_EQ(plan->rank_of[3], 3);
    CHECK_INT_EQ(plan->rank_of[4], 3);
    CHECK_INT_EQ(plan->chunk_of[3], 0);
    CHECK_INT_EQ(plan->chunk_of[4], 1);
    const struct pp_channel *fold = &plan->channels[2 * 3];
    CHECK_INT_EQ(fold->src_rank, fold->dst_rank);
    CHECK_INT_EQ(fold->src_stage, 3);
    CHECK_INT_EQ(fold->dst_stage, 4);
    /* a message lives as long as the state of the stage that made it */
    assert_true(fold->slots <= plan->state_slots[3]);
}

TEST(actions_name_their_messages)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(plan_of(2, 1, 1, PP_PLACE_LOOP, "0F0,0I0,0W0 1F0,1B0", &plan));
    const struct pp_action *a = plan->ranks[0].actions;
    const struct pp_action *b = plan->ranks[1].actions;
    CHECK_INT_EQ(plan->n_messages, 2);
    CHECK_INT_EQ(a[0].recv, -1);
    CHECK_INT_EQ(a[0].send, b[0].recv);
    CHECK_INT_EQ(b[0].send, -1);
    CHECK_INT_EQ(b[1].recv, -1);
    CHECK_INT_EQ(b[1].send, a[1].recv);
    CHECK_INT_EQ(a[1].send, -1);
    CHECK_INT_EQ(a[2].recv, -1);
    CHECK_INT_EQ(a[2].send, -1);
    CHECK_INT_EQ(plan->messages[a[0].send].channel, 0);
    CHECK_INT_EQ(plan->messages[b[1].send].channel, 1);
    CHECK_INT_EQ(a[0].first_w, 0);
    CHECK_INT_EQ(a[1].first_w, 0);
    CHECK_INT_EQ(a[2].first_w, 1);
    CHECK_INT_EQ(b[1].first_w, 1);
    CHECK_INT_EQ(pp_plan_message(plan, 2, 0), -1);
    CHECK_INT_EQ(pp_plan_message(plan, -1, 0), -1);
}

TEST(a_message_leaves_after_the_input_gradient_or_after_all)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named("gpipe", 2, 1);
    struct ticks ticks = {.f = 2, .i = 3, .w = 4, .fused_send = true};
    int64_t work[2], makespan;
    struct pp_sim_result res;
    time_line(plan, &ticks, &makespan, work, &res);
    CHECK_INT_EQ(res.start[0][0], 0);
    CHECK_INT_EQ(res.end[0][0], 2);
    CHECK_INT_EQ(res.start[1][0], 2);
    CHECK_INT_EQ(res.start[1][1], 4);
    CHECK_INT_EQ(res.end[1][1], 11);
    CHECK_INT_EQ(res.start[0][1], 11);
    CHECK_INT_EQ(makespan, 18);
    CHECK_INT_EQ(work[0], 9);
    CHECK_INT_EQ(work[1], 9);
    pp_sim_result_fini(&res);
    ticks.fused_send = false;
    time_line(plan, &ticks, &makespan, NULL, &res);
    CHECK_INT_EQ(res.start[0][1], 7);
    CHECK_INT_EQ(makespan, 14);
    pp_sim_result_fini(&res);
}

TEST(forward_only_plans_keep_nothing)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 20; m++) {
            struct pp_geometry g = {.stages = p, .chunks = 1, .microbatches = m};
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
            CHECK_OK(pp_plan_build_eval(&g, PP_PLACE_LOOP, &plan));
            CHECK_INT_EQ(makespan_of(plan, split), m + p - 1);
            for (int s = 0; s < p; s++) {
                CHECK_INT_EQ(plan->state_slots[s], 1);
                CHECK_INT_EQ(plan->grad_slots[s], 0);
                CHECK_INT_EQ(plan->ranks[s].n_actions, m);
            }
            for (int c = 0; c < plan->n_channels; c++)
                CHECK_INT_EQ(plan->channels[c].slots, c % 2 ? 0 : least(m, 3));
        }
    }
}

TEST(forward_only_plans_with_chunks_lose_no_time)
{
    for (int p = 1; p <= 6; p++) {
        for (int v = 2; v <= 4; v++) {
            for (int m = p; m <= 4 * p; m += p) {
                struct pp_geometry g = {.stages = p, .chunks = v, .microbatches = m};
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
                CHECK_OK(pp_plan_build_eval(&g, PP_PLACE_LOOP, &plan));
                CHECK_INT_EQ(makespan_of(plan, split), m * v + p - 1);
                for (int c = 0; c < plan->n_channels; c += 2)
                    assert_true(plan->channels[c].slots <= p + 3);
            }
        }
    }
}

TEST(a_full_disk_is_an_error)
{
    FILE *f = fopen("/dev/full", "w");
    if (!f)
        skip();
    setvbuf(f, NULL, _IONBF, 0);
    struct pp_plan *plan = plan_named("gpipe", 2, 2);
    CHECK_FAILS(pp_plan_print_csv(plan, f), PP_EIO, "cannot write");
    pp_plan_destroy(&plan);
    fclose(f);
}

TEST(destroy_accepts_nothing)
{
    struct pp_plan *plan = NULL;
    pp_plan_destroy(&plan);
    assert_null(plan);
}
