/* SPDX-License-Identifier: Apache-2.0 */
/* Forwards that are computed again: what pp_plan_add_recompute() makes of the plans of all schedules, its
 * proof, its time and its pictures. */
#include "../../src/sched/pass.h"
#include "../../src/sim/sim.h"
#include "../../src/show/draw.h"
#include "../../src/sched/plan.h"
#include "test_sched_oracle.h"

static const bool every[64] = {[0 ... 63] = true};
static const char *const schedules[] = {
    "naive",          "gpipe", "1f1b",           "2-eager 1f1b",      "zb-h1",    "zb-h2",
    "interleaved v2", "zb-v",  "interleaved v4", "interleaved-zb v2", "dualpipev"};

static struct pp_plan *again(const char *schedule, int p, int m, const bool *stages)
{
    struct pp_plan *plan = plan_named(schedule, p, m);
    CHECK_OK(pp_plan_add_recompute(plan, stages));
    return plan;
}

static int count(const struct pp_plan *plan, int stage, enum pp_op op)
{
    const struct pp_rank_plan *list = &plan->ranks[plan->rank_of[stage]];
    int n = 0;
    for (int k = 0; k < list->n_actions; k++)
        n += list->actions[k].op == op && list->actions[k].stage == stage;
    return n;
}

/* Every I but one right behind its F has an R, and nothing else has changed. */
TEST(each_forward_is_computed_again_but_where_nothing_lies_between)
{
    for (int i = 0; i < COUNT(schedules); i++) {
        for (int p = 1; p <= 4; p++) {
            PP_OWN(pp_plan_destroy) struct pp_plan *plain = plan_named(schedules[i], p, 2 * p);
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = again(schedules[i], p, 2 * p, every);
            for (int r = 0; r < p; r++) {
                const struct pp_rank_plan *a = &plain->ranks[r], *b = &plan->ranks[r];
                int k = 0;
                for (int n = 0; n < b->n_actions; n++) {
                    const struct pp_action *x = &b->actions[n];
                    if (x->op == PP_OP_R)
                        continue;
                    assert_true(x->op == a->actions[k].op && x->stage == a->actions[k].stage);
                    assert_true(x->mb == a->actions[k].mb && x->overlap == a->actions[k].overlap);
                    int next = n + 1 < b->n_actions && x[1].overlap ? 2 : 1; /* a pair is one */
                    bool kept = n + next < b->n_actions && x->op == PP_OP_F &&
                                x[next].stage == x->stage && x[next].mb == x->mb;
                    kept = kept || (x->op == PP_OP_F && n + 1 < b->n_actions &&
                                    x[1].stage == x->stage && x[1].mb == x->mb);
                    assert_true(x->op != PP_OP_F || x->recompute == !kept);
                    k++;
                }
                CHECK_INT_EQ(k, a->n_actions);
            }
            for (int s = 0; s < plan->n_virtual; s++) {
                int slots = 0; /* that the stages of this rank had, each for itself */
                for (int t = 0; t < plan->n_virtual; t++)
                    slots += plan->rank_of[t] == plan->rank_of[s] ? plain->state_slots[t] : 0;
                assert_true(plan->state_slots[s] <= slots);
            }
            run_in_all_ways(plan);
        }
    }
}

/* Slots of stages apart, as if they were those of one pool: the proof sees where two meet. */
TEST(chunks_share_slots_only_where_they_do_not_meet)
{
    static const char *const split[] = {"zb-v", "interleaved-zb v2", "v-half"};
    for (int i = 0; i < COUNT(split); i++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = again(split[i], 4, 8, every);
        memset(plan->shared, 0, (size_t)plan->n_virtual);
        CHECK_OK(pp_plan_make_slots(plan));
        memset(plan->shared, 1, (size_t)plan->n_virtual);
        CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, " held by micro-batch ");
    }
}

/* v-min holds slots between its rounds that are free while it waits. */
TEST(it_fills_a_wait_with_a_slot_that_is_free)
{
    double arrays[64];
    struct pp_sim_costs costs;
    struct pp_sim_result early, late;
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = again("v-min", 4, 8, every);
    int moved = 0, slots = plan->state_slots[0];
    pp_sim_textbook(plan, arrays, &costs);
    CHECK_OK(pp_sim_run(plan, &costs, false, &early));
    for (int r = 0; r < 4; r++) { /* back to right before their I */
        struct pp_rank_plan *list = &plan->ranks[r];
        for (int k = list->n_actions - 1; k >= 0; k--) {
            struct pp_action *a = list->actions, x = a[k];
            int at = k;
            while (x.op == PP_OP_R && (a[at + 1].stage != x.stage || a[at + 1].mb != x.mb)) {
                a[at] = a[at + 1];
                at++;
            }
            a[at] = x;
            moved += at > k;
        }
    }
    assert_true(moved > 0);
    CHECK_OK(pp_plan_make_slots(plan));
    CHECK_OK(pp_sim_run(plan, &costs, false, &late));
    print_message("# %g in place of %g, %d slots in place of %d\n", early.makespan, late.makespan,
                  slots, plan->state_slots[0]);
    assert_true(early.makespan < late.makespan && slots <= plan->state_slots[0]);
    pp_sim_result_fini(&early);
    pp_sim_result_fini(&late);
}

TEST(fused_backwards_want_one_state)
{
    static const char *const fused[] = {"gpipe", "1f1b", "interleaved v2"};
    for (int i = 0; i < COUNT(fused); i++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = again(fused[i], 4, 8, every);
        for (int s = 0; s < plan->n_virtual; s++)
            CHECK_INT_EQ(plan->state_slots[s], 1);
    }
}

TEST(only_the_stages_asked_for)
{
    for (int i = 0; i < COUNT(schedules); i++) {
        for (int s = 0; s < 4; s++) {
            bool one[64] = {false};
            one[s] = true;
            PP_OWN(pp_plan_destroy) struct pp_plan *plain = plan_named(schedules[i], 4, 8);
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = again(schedules[i], 4, 8, one);
            for (int t = 0; t < plan->n_virtual; t++) {
                CHECK_INT_EQ(pp_plan_recomputes(plan, t), count(plan, t, PP_OP_R) > 0);
                assert_true(t == s || (count(plan, t, PP_OP_R) == 0 &&
                                       plan->state_slots[t] == plain->state_slots[t]));
            }
            CHECK_OK(pp_plan_add_recompute(plan, one)); /* nothing is left to do */
            assert_true(count(plan, s, PP_OP_R) <= 8);
            run_in_all_ways(plan);
        }
    }
}

TEST(with_groups_of_weight_gradients_and_ties)
{
    const struct pp_geometry g = {.stages = 3, .chunks = 1, .microbatches = 7, .coalesce = 3};
    const struct pp_tie tie = {.owner = 0, .copy = 2};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build("1f1b", &g, &plan));
    CHECK_OK(pp_plan_add_recompute(plan, every));
    CHECK_OK(pp_plan_tie(plan, &tie, 1));
    CHECK_INT_EQ(count(plan, 0, PP_OP_R), 7);
    run_in_all_ways(plan);
}

static struct pp_action *first_of(struct pp_plan *plan, int rank, enum pp_op op)
{
    struct pp_action *a = plan->ranks[rank].actions;
    while (a->op != op)
        a++;
    return a;
}

TEST(the_proof_refuses_an_r_out_of_place)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = again("1f1b", 2, 4, every);
    struct pp_action *r = first_of(plan, 0, PP_OP_R), kept = *r;
    struct pp_action *f = plan->ranks[0].actions;
    f->recompute = false; /* both make the state */
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "F1 finds state slot 0 of stage 0 held by");
    f->recompute = true;
    *r = f[1]; /* F1, F1 */
    r->mb = 2;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "");
    *r = kept;
    r->mb = 2; /* of a forward that has not been */
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "R2 is before its F");
    *r = kept;
    r->slot = 1;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "slot 1");
    *r = kept;
    CHECK_OK(pp_plan_prove(plan));
}

TEST(an_r_takes_what_its_f_takes)
{
    double arrays[64], work[4];
    struct pp_sim_costs costs;
    struct pp_sim_result with, without;
    struct pp_plan *plain = plan_named("1f1b", 4, 8), *plan = again("1f1b", 4, 8, every);
    pp_sim_textbook(plan, arrays, &costs);
    CHECK_OK(pp_sim_run(plain, &costs, false, &without));
    CHECK_OK(pp_sim_run(plan, &costs, false, &with));
    assert_true(without.work[0] == 24 && with.work[0] == 32);
    assert_true(with.work[3] == 24); /* there the backward is right behind the forward */
    assert_true(pp_sim_work(plan, &costs, work) == 32 * 3 + 24 && work[0] == 32);
    assert_true(without.makespan == 33 && with.makespan == 39); /* part of it is in the bubble */
    CHECK_INT_EQ(without.peak[0], 4);
    CHECK_INT_EQ(with.peak[0], 1);
    pp_sim_result_fini(&with);
    pp_sim_result_fini(&without);
    pp_plan_destroy(&plain);
    pp_plan_destroy(&plan);
}

TEST(tables_have_it_and_are_read_again)
{
    for (int i = 0; i < COUNT(schedules); i++) {
        struct pp_plan *plan = again(schedules[i], 3, 6, every), *read = NULL;
        char *text = printed(plan, pp_plan_print_csv);
        CHECK_INT_EQ(strchr(text, 'R') != NULL, i > 0); /* naive: B right behind its F */
        FILE *f = fmemopen(text, strlen(text), "r");
        CHECK_OK(pp_plan_read_csv(f, "t.csv", &read));
        fclose(f);
        char *copy = printed(read, pp_plan_print_csv);
        CHECK_STR_EQ(copy, text);
        CHECK_OK(
            pp_plan_add_recompute(read, every)); /* nothing is left to do, but to share slots */
        for (int s = 0; s < plan->n_virtual; s++)
            CHECK_INT_EQ(read->state_slots[s], plan->state_slots[s]);
        free(copy);
        free(text);
        pp_plan_destroy(&read);
        text = printed(plan, pp_plan_print_csv_comms);
        f = fmemopen(text, strlen(text), "r");
        CHECK_OK(pp_plan_read_csv(f, "t.csv", &read));
        fclose(f);
        free(text);
        pp_plan_destroy(&read);
        pp_plan_destroy(&plan);
    }
}

TEST(tables_with_it_out_of_place_are_refused)
{
    static const struct {
        const char *text, *why;
    } bad[] = {{"0R0,0F0,0B0\n", "t.csv:1:1: 0R0 comes before its 0F0 (cell 2)"},
               {"0R0,0B0\n", "t.csv:1:1: 0R0 has no 0F0 on its rank"},
               {"0F0,0B0,0R0\n", "t.csv:1:3: 0R0 comes after its 0B0 (cell 2)"},
               {"0F0,0I0,0R0,0W0\n", "t.csv:1:3: 0R0 comes after its 0I0 (cell 2)"},
               {"0F0,0R0,0R0,0B0\n", "t.csv:1:3: 0R0 comes twice, first in cell 2"}};
    for (int i = 0; i < COUNT(bad); i++) {
        struct pp_plan *plan = NULL;
        FILE *f = fmemopen((void *)(uintptr_t)bad[i].text, strlen(bad[i].text), "r");
        CHECK_FAILS(pp_plan_read_csv(f, "t.csv", &plan), PP_EFORMAT, bad[i].why);
        fclose(f);
    }
}

TEST(pictures_show_it)
{
    double arrays[64];
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = again("gpipe", 2, 3, every);
    struct pp_sim_costs costs;
    struct pp_sim_result result;
    pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
    CHECK_OK(pp_sim_run(plan, &costs, true, &result));
    const struct pp_drawing d = {.plan = plan, .result = &result, .costs = &costs};
    int (*const draw[])(const struct pp_drawing *, FILE *) = {pp_draw_grid, pp_draw_svg,
                                                              pp_draw_trace};
    for (int i = 0; i < COUNT(draw); i++) {
        PP_OWN_MEMORY char *text = NULL;
        size_t bytes = 0;
        FILE *f = open_memstream(&text, &bytes);
        CHECK_OK(draw[i](&d, f));
        fclose(f);
        assert_non_null(strstr(text, "R2"));
    }
    pp_sim_result_fini(&result);
}
