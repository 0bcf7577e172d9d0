/* SPDX-License-Identifier: Apache-2.0 */
/* The lower bound: by hand where one can count, below every simulation elsewhere, and reached. */
#include "test_sim_shapes.h"
#include "../../src/sim/sim.h"

static uint64_t seed;

static int pick(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static double pick_cost(void)
{
    return pick(4) == 0 ? 0 : (1 + pick(64)) / 16.0;
}

static void check_bound(const struct pp_plan *plan, const struct pp_sim_costs *costs,
                        double expected)
{
    double got = -1;
    CHECK_OK(pp_sim_bound(plan, costs, &got));
    if (fabs(got - expected) > 1e-9 * expected)
        fail_msg("bound %.12g, expected %.12g", got, expected);
}

/* Of F = 1, I = 2, W = 3 on every stage. */
TEST(a_few_stages_can_be_counted_by_hand)
{
    double f[3] = {1, 1, 1}, i[3] = {2, 2, 2}, w[3] = {3, 3, 3};
    struct pp_sim_costs costs = {.f = f, .i = i, .w = w};

    struct pp_plan *plan = plan_of("1f1b", 1, 4);
    check_bound(plan, &costs, 4 * 6);
    pp_plan_destroy(&plan);

    /* the last rank starts after 2 F and works all the time: 2 + 4 * 6 */
    plan = plan_of("1f1b", 3, 4);
    check_bound(plan, &costs, 26);
    /* a slow first stage: all its F and I, then its last W: 4 * (5 + 2) + 3, or with W 4 * 10 */
    f[0] = 5;
    check_bound(plan, &costs, 40);
    /* a slow last stage: 5 + 1 before it, 4 * (5 + 4) on it, then two I and a W: 2 + 2 + 3 */
    f[2] = 5, i[2] = 4, w[2] = 0;
    check_bound(plan, &costs, 6 + 36 + 7);
    /* with hand-overs of 1: two on the way there, two on the way back */
    costs.latency = 1;
    check_bound(plan, &costs, 8 + 36 + 9);
    /* and an optimizer on the first stage, which is all that it adds to the longest way */
    costs.between = (const double[]){10, 20, 3};
    check_bound(plan, &costs, 8 + 36 + 9 + 10);
    pp_plan_destroy(&plan);

    /* slow input gradients in the middle: the first waits for all F and one I, two of them, an I */
    struct pp_sim_costs late = {.f = (const double[]){0, 0, 9},
                                .i = (const double[]){1, 16, 1},
                                .w = (const double[]){0, 0, 0}};
    plan = plan_of("gpipe", 3, 2);
    check_bound(plan, &late, 9 + 1 + 2 * 16 + 1);
    pp_plan_destroy(&plan);
}

TEST(a_smaller_microbatch_takes_its_part)
{
    struct pp_sim_costs costs = {.f = (const double[]){4, 4},
                                 .i = (const double[]){4, 4},
                                 .w = (const double[]){4, 4},
                                 .rows = (const double[]){1, 1, 0.5}};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("zb-h1", 2, 3);
    check_bound(plan, &costs, 2 + 2.5 * 12); /* the small one may come first */
}

/* Published as reaching the least there is. */
TEST(schedules_that_leave_nothing_reach_it)
{
    static const struct {
        const char *name;
        int p, m;
    } shapes[] = {{"zb-h1", 2, 4},  {"zb-h1", 2, 9}, {"zb-h2", 4, 8}, {"zb-h2", 6, 13},
                  {"zb-h2", 8, 24}, {"1f1b", 1, 7},  {"zb-h1", 4, 2}, {"zb-h1", 5, 1}};
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
        struct pp_plan *plan = plan_of(shapes[k].name, shapes[k].p, shapes[k].m);
        struct pp_sim_costs costs;
        struct pp_sim_result result;
        double arrays[3 * 8];
        pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
        CHECK_OK(pp_sim_run(plan, &costs, false, &result));
        check_bound(plan, &costs, result.makespan);
        pp_sim_result_fini(&result);
        pp_plan_destroy(&plan);
    }
}

struct random_costs {
    double f[64], i[64], w[64], transfer[128], rows[16], between[16];
    struct pp_sim_costs costs;
};

static void random_costs(struct random_costs *rc, const struct pp_plan *plan)
{
    for (int s = 0; s < plan->n_virtual; s++) {
        rc->f[s] = pick_cost();
        rc->i[s] = pick_cost();
        rc->w[s] = pick_cost();
    }
    for (int ch = 0; ch < plan->n_channels; ch++)
        rc->transfer[ch] = pick_cost() / 4;
    for (int mb = 0; mb < plan->geometry.microbatches; mb++)
        rc->rows[mb] = (1 + pick(8)) / 8.0;
    for (int r = 0; r < plan->geometry.stages; r++)
        rc->between[r] = pick_cost();
    rc->costs = (struct pp_sim_costs){.f = rc->f,
                                      .i = rc->i,
                                      .w = rc->w,
                                      .rows = pick(2) ? rc->rows : NULL,
                                      .latency = pick(2) ? pick_cost() : 0,
                                      .transfer = pick(2) ? rc->transfer : NULL,
                                      .launch = pick(3) == 0 ? 0.25 : 0,
                                      .overlap = pick(3) == 0 ? 0.5 + pick(4) / 4.0 : 0,
                                      .fused_send = pick(2),
                                      .slots = pick(2),
                                      .steps = pick(4),
                                      .between = pick(2) ? rc->between : NULL};
}

/* How near a schedule comes, at best. */
static double check_below(const char *name, int rounds)
{
    double best = 0;
    for (int round = 0; round < rounds; round++) {
        const struct pp_schedule_ops *ops = pp_schedule_find(name);
        struct pp_geometry g = {.stages = 1 + pick(6),
                                .chunks = pp_schedule_default_chunks(ops),
                                .microbatches = 1 + pick(12)};
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
        struct random_costs rc;
        struct pp_sim_result result;
        double bound;
        if (pp_plan_build(name, &g, &plan) < 0)
            continue; /* not every shape is one of every schedule */
        random_costs(&rc, plan);
        if (pp_sim_run(plan, &rc.costs, false, &result) == 0) { /* joined pairs may tie a knot */
            CHECK_OK(pp_sim_bound(plan, &rc.costs, &bound));
            if (bound > result.makespan * (1 + 1e-12)) {
                fail_msg("%s P=%d V=%d M=%d round %d: bound %.12g, simulated %.12g", name, g.stages,
                         g.chunks, g.microbatches, round, bound, result.makespan);
            }
            double part = result.makespan > 0 ? bound / result.makespan : 0;
            best = part > best ? part : best;
            pp_sim_result_fini(&result);
        }
    }
    return best;
}

TEST(no_schedule_is_below_it_whatever_the_costs)
{
    seed = 1;
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        double best = check_below(*name, 300);
        if (best < 0.9) /* a bound of nothing would hold too */
            fail_msg("%s never comes nearer than %.3f", *name, best);
    }
    assert_true(check_below("dualpipe", 300) > 0.5);
    assert_true(check_below("chimera", 300) > 0.5);
}

TEST(over_many_steps_only_the_work_remains)
{
    struct pp_plan *plan = plan_of("zb-h2", 4, 8);
    struct pp_sim_costs costs;
    double arrays[3 * 4];
    pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
    costs.between = (const double[]){2, 2, 2, 2};
    check_bound(plan, &costs, 3 + 24 + 2);
    costs.steps = 100;
    check_bound(plan, &costs, 3 + 100 * 26);
    pp_plan_destroy(&plan);

    /* one micro-batch: each step goes there and back before the next can start */
    plan = plan_of("1f1b", 4, 1);
    costs.steps = 10;
    check_bound(plan, &costs, 10 * (4 + 4 + 1 + 2));
    pp_plan_destroy(&plan);
}
