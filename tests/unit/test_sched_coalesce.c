/* SPDX-License-Identifier: Apache-2.0 */
/* Weight gradients of several micro-batches together: where they go, and that nothing else moves.
 */
#include "test_sched_oracle.h"
#include "../../src/sched/plan.h"

static struct pp_plan *coalesced(const char *name, int p, int v, int m, int k)
{
    struct pp_geometry g = {.stages = p, .chunks = v, .microbatches = m, .coalesce = k};
    struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build(name, &g, &plan));
    return plan;
}

static void has_rows(struct pp_plan *plan, const char *rows)
{
    PP_OWN_MEMORY char *text = printed(plan, pp_plan_print_csv);
    CHECK_STR_EQ(text, rows);
    pp_plan_destroy(&plan);
}

TEST(a_group_stands_where_its_last_backward_stood)
{
    has_rows(coalesced("1f1b", 2, 1, 4, 2), "0F0,0F1,0I0,0F2,0I1,0W0,0W1,0F3,0I2,0I3,0W2,0W3\n"
                                            "1F0,1I0,1F1,1I1,1W0,1W1,1F2,1I2,1F3,1I3,1W2,1W3\n");
    has_rows(coalesced("zb-h1", 2, 1, 4, 4), "0F0,0F1,0I0,0F2,0I1,0F3,0I2,0I3,0W0,0W1,0W2,0W3\n"
                                             "1F0,1I0,1F1,1I1,1F2,1I2,1F3,1I3,1W0,1W1,1W2,1W3\n");
}

TEST(a_last_group_of_one_keeps_its_backward)
{
    has_rows(coalesced("gpipe", 1, 1, 3, 2), "0F0,0F1,0F2,0I0,0I1,0W0,0W1,0B2\n");
    has_rows(coalesced("gpipe", 1, 1, 5, 3), "0F0,0F1,0F2,0F3,0F4,0I0,0I1,0I2,0W0,0W1,0W2,"
                                             "0I3,0I4,0W3,0W4\n");
}

TEST(groups_of_one_change_nothing_and_large_ones_end_with_the_batch)
{
    has_rows(coalesced("1f1b", 1, 1, 2, 0), "0F0,0B0,0F1,0B1\n");
    has_rows(coalesced("1f1b", 1, 1, 2, 1), "0F0,0B0,0F1,0B1\n");
    has_rows(coalesced("1f1b", 1, 1, 2, INT32_MAX), "0F0,0I0,0F1,0I1,0W0,0W1\n");
    has_rows(coalesced("1f1b", 1, 1, 1, 4), "0F0,0B0\n");
}

TEST(pairs_overlap_only_where_a_backward_is_left)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = coalesced("dualpipev", 2, 2, 7, 2);
    for (int r = 0; r < 2; r++) {
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &plan->ranks[r].actions[k];
            assert_false(a->overlap && a[1].op != PP_OP_B);
            assert_false(a->op == PP_OP_B && a->mb != 6);
        }
    }
}

/* F and I of a stage follow each other as before: what neighbours wait for did not move. */
static void same_without_weights(const struct pp_plan *a, const struct pp_plan *b)
{
    for (int r = 0; r < a->geometry.stages; r++) {
        const struct pp_rank_plan *x = &a->ranks[r], *y = &b->ranks[r];
        int i = 0, k = 0;
        while (i < x->n_actions || k < y->n_actions) {
            while (i < x->n_actions && x->actions[i].op == PP_OP_W)
                i++;
            while (k < y->n_actions && y->actions[k].op == PP_OP_W)
                k++;
            CHECK_INT_EQ(i < x->n_actions, k < y->n_actions);
            if (i < x->n_actions) {
                CHECK_INT_EQ(x->actions[i].op == PP_OP_F, y->actions[k].op == PP_OP_F);
                CHECK_INT_EQ(x->actions[i].stage, y->actions[k].stage);
                CHECK_INT_EQ(x->actions[i].mb, y->actions[k].mb);
                i++;
                k++;
            }
        }
    }
}

/* Every W of a group is in one piece, and pp_plan_together() says how long it is. */
static void groups_are_whole(const struct pp_plan *plan, int k)
{
    int m = plan->geometry.microbatches;
    for (int r = 0; r < plan->geometry.stages; r++) {
        for (int i = 0; i < plan->ranks[r].n_actions;) {
            const struct pp_action *a = &plan->ranks[r].actions[i];
            int n = pp_plan_together(plan, r, i);
            CHECK_INT_EQ(n, a->op == PP_OP_W ? least(k, m - a->mb) : 1);
            assert_true(a->op != PP_OP_W || a->mb % k == 0);
            for (int w = 1; w < n; w++) {
                CHECK_INT_EQ(a[w].op, PP_OP_W);
                CHECK_INT_EQ(a[w].stage, a->stage);
                CHECK_INT_EQ(a[w].mb, a->mb + w);
            }
            i += n;
        }
    }
}

TEST(every_schedule_stays_legal_in_any_interleaving)
{
    static const int groups[] = {2, 3, 8};
    int ran = 0;
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        const struct pp_schedule_ops *ops = pp_schedule_find(*name);
        for (int p = 1; p <= 4; p++) {
            for (int m = p; m <= 2 * p + 3; m += p + 3) {
                struct pp_geometry g = {
                    .stages = p, .chunks = pp_schedule_default_chunks(ops), .microbatches = m};
                if (pp_schedule_check(ops, &g) < 0)
                    continue;
                PP_OWN(pp_plan_destroy) struct pp_plan *plain = NULL;
                CHECK_OK(pp_plan_build(*name, &g, &plain));
                for (size_t i = 0; i < LEN(groups); i++) {
                    struct pp_plan *plan = coalesced(*name, p, g.chunks, m, groups[i]);
                    same_without_weights(plain, plan);
                    groups_are_whole(plan, groups[i]);
                    run_in_all_ways(plan);
                    pp_plan_destroy(&plan);
                    ran++;
                }
            }
        }
    }
    assert_in_range(ran, 100, 10000);
}

TEST(a_rank_holds_at_most_the_rest_of_a_group_more)
{
    static const char *const names[] = {"1f1b", "zb-h1", "gpipe"};
    for (size_t i = 0; i < LEN(names); i++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plain = coalesced(names[i], 4, 1, 16, 1);
        for (int k = 2; k <= 16; k *= 2) {
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = coalesced(names[i], 4, 1, 16, k);
            for (int r = 0; r < 4; r++) {
                assert_in_range(peak_of(plan, r), 1, peak_of(plain, r) + k - 1);
                CHECK_INT_EQ(plan->state_slots[r], peak_of(plan, r));
                assert_in_range(plan->grad_slots[r], k, 16);
            }
        }
    }
}

TEST(forward_only_plans_stay_as_they_are)
{
    struct pp_geometry g = {.stages = 2, .chunks = 1, .microbatches = 3, .coalesce = 2};
    struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build_eval(&g, PP_PLACE_LOOP, &plan));
    has_rows(plan, "0F0,0F1,0F2\n1F0,1F1,1F2\n");
}

TEST(lists_from_elsewhere_are_coalesced_too_and_only_once)
{
    struct lists l;
    PP_OWN(pp_plan_destroy) struct pp_plan *plain = NULL;
    struct pp_plan *once = NULL, *twice = NULL;
    lists_parse(&l, 2, 1, 3, PP_PLACE_LOOP,
                "0F0,0F1,0F2,0B0,0B1,0B2 1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2");
    CHECK_OK(lists_plan(&l, &plain));
    lists_free(&l);
    CHECK_OK(pp_plan_coalesce(plain, 2, &once));
    CHECK_OK(pp_plan_coalesce(once, 2, &twice));
    const char *rows = "0F0,0F1,0F2,0I0,0I1,0W0,0W1,0B2\n1F0,1I0,1F1,1I1,1F2,1I2,1W0,1W1,1W2\n";
    has_rows(once, rows);
    has_rows(twice, rows);
}

/* Moving W must not make a list legal that was not. */
TEST(a_list_is_judged_before_its_weights_move)
{
    struct lists l;
    struct pp_plan *plan = NULL;
    lists_parse(&l, 1, 1, 2, PP_PLACE_LOOP, "0F0,0W0,0I0,0F1,0I1,0W1");
    l.g.coalesce = 2;
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "0W0 comes before its 0I0");
    lists_free(&l);
    lists_parse(&l, 1, 1, 2, PP_PLACE_LOOP, "0F0,0I0,0F1,0I1,0W1");
    l.g.coalesce = 2;
    CHECK_FAILS(lists_plan(&l, &plan), PP_EFORMAT, "stage 0 has no 0W0");
    lists_free(&l);
    struct pp_geometry g = {.stages = 1, .chunks = 1, .microbatches = 2, .coalesce = -1};
    CHECK_FAILS(pp_plan_build("gpipe", &g, &plan), PP_ECONFIG, "coalesce = -1");
}

TEST(the_proof_finds_a_group_that_is_not_together)
{
    /* 0F0,0I0,0F1,0I1,0W0,0W1,0F2,0B2 */
    struct pp_plan *plan = coalesced("1f1b", 1, 1, 3, 2);
    struct pp_action *a = plan->ranks[0].actions;
    CHECK_OK(pp_plan_prove(plan));
    struct pp_action f2 = a[6];
    a[6] = a[5];
    a[5] = f2;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "W1 does not follow W0");
    pp_plan_destroy(&plan);
    plan = coalesced("1f1b", 1, 1, 2, 1);
    plan->geometry.coalesce = 2;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "B0 is one of a group");
    pp_plan_destroy(&plan);
}
