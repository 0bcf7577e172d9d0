/* SPDX-License-Identifier: Apache-2.0 */
/* Stages without weight gradients: what pp_plan_freeze() makes of the plans of all schedules. */
#include "../../src/sched/pass.h"
#include "../../src/sim/sim.h"
#include "../../src/sched/plan.h"
#include "test_sched_oracle.h"

static const char *const schedules[] = {
    "naive",          "gpipe", "1f1b",           "2-eager 1f1b",      "zb-h1",    "zb-h2",
    "interleaved v2", "zb-v",  "interleaved v4", "interleaved-zb v2", "dualpipev"};

static int count(const struct pp_plan *plan, int stage, enum pp_op op)
{
    const struct pp_rank_plan *list = &plan->ranks[plan->rank_of[stage]];
    int n = 0;
    for (int k = 0; k < list->n_actions; k++)
        n += list->actions[k].op == op && list->actions[k].stage == stage;
    return n;
}

static double makespan(const struct pp_plan *plan, const double *w)
{
    double ones[64];
    for (int s = 0; s < 64; s++)
        ones[s] = 1;
    const struct pp_sim_costs costs = {.f = ones, .i = ones, .w = w};
    PP_OWN(pp_sim_result_fini) struct pp_sim_result res = {0};
    CHECK_OK(pp_sim_run(plan, &costs, false, &res));
    return res.makespan;
}

TEST(a_frozen_stage_has_no_w_and_the_others_keep_theirs)
{
    for (int i = 0; i < COUNT(schedules); i++) {
        for (int p = 2; p <= 4; p++) {
            bool stages[64] = {true, false, true};
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(schedules[i], p, 2 * p);
            CHECK_OK(pp_plan_freeze(plan, stages));
            int m = plan->geometry.microbatches;
            for (int s = 0; s < plan->n_virtual; s++) {
                assert_true(plan->frozen[s] == stages[s]);
                CHECK_INT_EQ(count(plan, s, PP_OP_F), m);
                CHECK_INT_EQ(count(plan, s, PP_OP_W) + count(plan, s, PP_OP_B), stages[s] ? 0 : m);
                CHECK_INT_EQ(count(plan, s, PP_OP_I) + count(plan, s, PP_OP_B), m);
            }
        }
    }
}

/* Without W the memory of a micro-batch is free after its I, and the step is as short as with W that
 * take no time, or shorter. */
TEST(a_step_without_w_is_as_short_as_with_w_that_take_no_time)
{
    for (int i = 0; i < COUNT(schedules); i++) {
        bool stages[64] = {true, true};
        double w[64];
        PP_OWN(pp_plan_destroy) struct pp_plan *plain = plan_named(schedules[i], 4, 8);
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(schedules[i], 4, 8);
        CHECK_OK(pp_plan_freeze(plan, stages));
        for (int s = 0; s < 64; s++)
            w[s] = s < 2 ? 0 : 1;
        assert_true(makespan(plan, w) <= makespan(plain, w));
        for (int s = 0; s < plan->n_virtual; s++)
            assert_true(plan->state_slots[s] <= plain->state_slots[s]);
    }
}

TEST(a_stage_whose_backwards_descend_keeps_its_w)
{
    bool stages[64] = {true};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named("looped-bfs v2", 2, 4);
    CHECK_OK(pp_plan_freeze(plan, stages));
    assert_true(!plan->frozen[0]);
    CHECK_INT_EQ(count(plan, 0, PP_OP_W) + count(plan, 0, PP_OP_B), 4);
}

TEST(frozen_stages_are_recomputed_and_coalesced_like_others)
{
    bool stages[64] = {true, true}, every[64] = {[0 ... 63] = true};
    struct pp_geometry g = {.stages = 4, .chunks = 1, .microbatches = 8, .coalesce = 2};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build("1f1b", &g, &plan));
    CHECK_OK(pp_plan_freeze(plan, stages));
    CHECK_OK(pp_plan_add_recompute(plan, every));
    CHECK_INT_EQ(count(plan, 1, PP_OP_W), 0);
    CHECK_INT_EQ(count(plan, 2, PP_OP_W), 8);
    assert_true(count(plan, 1, PP_OP_R) > 0);
}
