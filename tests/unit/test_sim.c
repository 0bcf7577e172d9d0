/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator against a slow recomputation that shares no idea with it, and its small rules. */
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
    return (1 + pick(64)) / 16.0;
}

/* ---- the slow way: start at zero and push every start time up until nothing moves */

struct slow {
    const struct pp_plan *plan;
    const struct pp_sim_costs *c;
    double *start[32];
};

static double slow_duration(const struct slow *s, const struct pp_action *a, bool until_sent)
{
    double rows = s->c->rows ? s->c->rows[a->mb] : 1;
    double t = s->c->launch;
    switch (a->op) {
    case PP_OP_F:
        return t + s->c->f[a->stage] * rows;
    case PP_OP_I:
        return t + s->c->i[a->stage] * rows;
    case PP_OP_W:
        return t + s->c->w[a->stage] * rows;
    default:
        t += s->c->i[a->stage] * rows;
        return until_sent && !s->c->fused_send ? t : t + s->c->w[a->stage] * rows;
    }
}

/* When the action of (op or its fused form, stage, mb) ends, or has sent. */
static double slow_end(const struct slow *s, int stage, int mb, bool forward, bool until_sent)
{
    int r = s->plan->rank_of[stage];
    for (int k = 0; k < s->plan->ranks[r].n_actions; k++) {
        const struct pp_action *a = &s->plan->ranks[r].actions[k];
        bool op = forward      ? a->op == PP_OP_F
                  : until_sent ? a->op == PP_OP_I || a->op == PP_OP_B
                               : a->op == PP_OP_W || a->op == PP_OP_B;
        if (op && a->stage == stage && a->mb == mb)
            return s->start[r][k] + slow_duration(s, a, until_sent);
    }
    fail_msg("stage %d has no %s of micro-batch %d", stage, forward ? "F" : "B", mb);
    return 0;
}

static double slow_earliest(const struct slow *s, int r, int k)
{
    const struct pp_plan *plan = s->plan;
    const struct pp_action *a = &plan->ranks[r].actions[k];
    double t = 0;
    if (k > 0)
        t = s->start[r][k - 1] + slow_duration(s, a - 1, false);
    int from = a->op == PP_OP_F ? a->stage - 1 : a->stage + 1;
    if (a->op != PP_OP_W && from >= 0 && from < plan->n_virtual) {
        double sent = slow_end(s, from, a->mb, a->op == PP_OP_F, true);
        if (plan->rank_of[from] != r) {
            int channel = a->op == PP_OP_F ? 2 * from : 2 * a->stage + 1;
            double rows = s->c->rows ? s->c->rows[a->mb] : 1;
            sent += s->c->latency + (s->c->transfer ? s->c->transfer[channel] * rows : 0);
        }
        t = fmax(t, sent);
    }
    if (s->c->slots && a->send >= 0) {
        for (int i = 0; i < plan->n_messages; i++) {
            const struct pp_message *before = &plan->messages[i];
            if (before->next_in_slot == a->send) {
                int reader = plan->channels[before->channel].dst_stage;
                bool eval = plan->kind == PP_PLAN_EVAL;
                t = fmax(t, slow_end(s, reader, before->mb, eval, eval));
            }
        }
    }
    return t;
}

static double slow_run(struct slow *s)
{
    double makespan = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->plan->geometry.stages; r++) {
            for (int k = 0; k < s->plan->ranks[r].n_actions; k++) {
                double t = slow_earliest(s, r, k);
                moved = moved || t > s->start[r][k];
                s->start[r][k] = t;
                makespan =
                    fmax(makespan, t + slow_duration(s, &s->plan->ranks[r].actions[k], false));
            }
        }
    }
    return makespan;
}

/* ---- random costs */

struct random_costs {
    struct pp_sim_costs c;
    double f[32], i[32], w[32], rows[16], transfer[64];
};

static void random_costs(struct random_costs *rc, const struct pp_plan *plan, int round)
{
    rc->c = (struct pp_sim_costs){.f = rc->f, .i = rc->i, .w = rc->w};
    for (int s = 0; s < plan->n_virtual; s++) {
        rc->f[s] = pick_cost();
        rc->i[s] = pick_cost();
        rc->w[s] = pick_cost();
    }
    for (int mb = 0; mb < plan->geometry.microbatches; mb++)
        rc->rows[mb] = mb == plan->geometry.microbatches - 1 ? .25 : 1;
    for (int ch = 0; ch < plan->n_channels; ch++)
        rc->transfer[ch] = pick_cost();
    rc->c.rows = round & 1 ? rc->rows : NULL;
    rc->c.latency = round & 2 ? pick_cost() : 0;
    rc->c.transfer = round & 4 ? rc->transfer : NULL;
    rc->c.launch = round & 8 ? .125 : 0;
    rc->c.fused_send = round & 16;
    rc->c.slots = round & 32;
}

static void check_against_slow(const struct pp_plan *plan, int round)
{
    struct random_costs rc;
    struct pp_sim_result res;
    random_costs(&rc, plan, round);
    CHECK_OK(pp_sim_run(plan, &rc.c, true, &res));

    struct slow s = {.plan = plan, .c = &rc.c};
    for (int r = 0; r < plan->geometry.stages; r++) {
        s.start[r] = calloc((size_t)plan->ranks[r].n_actions, sizeof(double));
        assert_non_null(s.start[r]);
    }
    double makespan = slow_run(&s);
    assert_float_equal(res.makespan, makespan, 1e-9);
    for (int r = 0; r < plan->geometry.stages; r++) {
        double work = 0;
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            double d = slow_duration(&s, &plan->ranks[r].actions[k], false);
            assert_float_equal(res.start[r][k], s.start[r][k], 1e-9);
            assert_float_equal(res.end[r][k], s.start[r][k] + d, 1e-9);
            work += d;
        }
        assert_float_equal(res.work[r], work, 1e-9);
        assert_float_equal(res.idle[r], makespan - work, 1e-9);
        free(s.start[r]);
    }
    pp_sim_result_fini(&res);
}

TEST(uneven_stages_and_tails_agree_with_a_slow_recomputation)
{
    seed = 1;
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        for (int round = 0; round < 64; round++) {
            const struct pp_schedule_ops *ops = pp_schedule_find(*name);
            struct pp_geometry g = {.stages = 1 + pick(4),
                                    .chunks = pp_schedule_default_chunks(ops),
                                    .microbatches = 1 + pick(8)};
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
            int rc = pp_plan_build(*name, &g, &plan);
            if (rc == PP_ECONFIG)
                continue; /* the schedule does not do this shape */
            CHECK_OK(rc);
            check_against_slow(plan, round);
        }
    }
}

TEST(every_shape_is_simulated_within_its_bounds_or_refused)
{
    seed = 3;
    int simulated = 0;
    int n_names = 0;
    while (pp_schedule_names()[n_names])
        n_names++;
    for (int round = 0; round < 5000; round++) {
        const char *name = pp_schedule_names()[pick(n_names)];
        struct pp_geometry g = {.stages = 1 + pick(10), .chunks = 1 + pick(4)};
        g.microbatches = 1 + pick(24);
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
        int rc = pp_plan_build(name, &g, &plan);
        if (rc == PP_ECONFIG) {
            assert_true(strlen(pp_error_get()->text) > 20);
            continue;
        }
        CHECK_OK(rc);
        struct rank_costs costs = {.f = pick_cost(), .i = pick_cost(), .w = pick_cost()};
        costs.comm = round % 3 ? 0 : pick_cost();
        struct pp_sim_result res;
        simulate(plan, &costs, &res);
        double all = costs.f + costs.i + costs.w;
        /* once down and up the whole model, and all the work of one rank */
        double through = g.stages * (costs.f + costs.i) + (g.stages - 1) * 2 * costs.comm;
        assert_true(res.makespan >= g.microbatches * all - 1e-9);
        assert_true(res.makespan >= through - 1e-9);
        assert_true(res.bubble_span <= res.bubble_global + 1e-12 && res.bubble_span > -1e-12);
        for (int r = 0; r < g.stages; r++) {
            assert_float_equal(res.work[r], g.microbatches * all, 1e-9);
            assert_true(res.idle[r] > -1e-9);
            assert_true(res.peak[r] >= 1 && res.peak[r] <= g.chunks * g.microbatches);
        }
        simulated++;
        pp_sim_result_fini(&res);
    }
    assert_true(simulated > 1500);
}

TEST(forward_only_plans_agree_too)
{
    seed = 2;
    for (int round = 0; round < 128; round++) {
        struct pp_geometry g = {.stages = 1 + pick(4), .chunks = 1 + pick(2)};
        g.microbatches = 1 + pick(8);
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
        CHECK_OK(pp_plan_build_eval(&g, round % 2 ? PP_PLACE_V : PP_PLACE_LOOP, &plan));
        check_against_slow(plan, round);
    }
}

TEST(a_gradient_that_leaves_after_its_input_half_arrives_earlier)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("gpipe", 4, 1);
    double arrays[12];
    struct pp_sim_costs costs;
    struct pp_sim_result res;
    pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
    CHECK_OK(pp_sim_run(plan, &costs, false, &res));
    assert_float_equal(res.makespan, 4 + 4 + 1, 1e-12); /* only the last W is exposed */
    pp_sim_result_fini(&res);
    costs.fused_send = true;
    CHECK_OK(pp_sim_run(plan, &costs, false, &res));
    assert_float_equal(res.makespan, 4 + 8, 1e-12);
    pp_sim_result_fini(&res);
}

TEST(a_chunk_costs_its_part_of_a_rank)
{
    struct pp_geometry g = {.stages = 2, .chunks = 4, .microbatches = 3};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    double arrays[24];
    struct pp_sim_costs costs;
    CHECK_OK(pp_plan_build_eval(&g, PP_PLACE_LOOP, &plan));
    pp_sim_make_uniform(plan, 8, 4, 2, arrays, &costs);
    for (int s = 0; s < 8; s++) {
        assert_float_equal(costs.f[s], 2, 0);
        assert_float_equal(costs.i[s], 1, 0);
        assert_float_equal(costs.w[s], .5, 0);
    }
}

TEST(times_are_there_only_when_asked_for)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("gpipe", 2, 2);
    double arrays[6];
    struct pp_sim_costs costs;
    struct pp_sim_result res;
    pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
    CHECK_OK(pp_sim_run(plan, &costs, false, &res));
    assert_null(res.start);
    assert_null(res.end);
    pp_sim_result_fini(&res);
    pp_sim_result_fini(&res); /* a second time does nothing */
}

TEST(costs_of_zero_give_no_bubble_and_no_nan)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("1f1b", 2, 2);
    double arrays[6];
    struct pp_sim_costs costs;
    struct pp_sim_result res;
    pp_sim_make_uniform(plan, 0, 0, 0, arrays, &costs);
    CHECK_OK(pp_sim_run(plan, &costs, false, &res));
    assert_float_equal(res.makespan, 0, 0);
    assert_float_equal(res.bubble_global, 0, 0);
    assert_float_equal(res.bubble_span, 0, 0);
    pp_sim_result_fini(&res);
}

/* Two ranks, one micro-batch less ahead than the pair would need: F1 and B0 on rank 0 at once. */
static int pair_plan(int overlap_at, struct pp_plan **out)
{
    struct pp_geometry g = {.stages = 2, .chunks = 1, .microbatches = 2};
    static const int rank_of[] = {0, 1};
    static const int n[] = {4, 4};
    struct pp_cell first[] = {{.op = PP_OP_F, .stage = 0, .mb = 0},
                              {.op = PP_OP_F, .stage = 0, .mb = 1},
                              {.op = PP_OP_B, .stage = 0, .mb = 0},
                              {.op = PP_OP_B, .stage = 0, .mb = 1}};
    struct pp_cell last[] = {{.op = PP_OP_F, .stage = 1, .mb = 0},
                             {.op = PP_OP_B, .stage = 1, .mb = 0},
                             {.op = PP_OP_F, .stage = 1, .mb = 1},
                             {.op = PP_OP_B, .stage = 1, .mb = 1}};
    const struct pp_cell *cells[] = {first, last};
    first[1].overlap = overlap_at == 0;
    last[0].overlap = overlap_at == 1;
    return pp_plan_from_cells(&g, rank_of, cells, n, out);
}

TEST(an_overlapped_pair_is_one_piece_of_work)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    CHECK_OK(pair_plan(0, &plan));
    double arrays[6];
    struct pp_sim_costs costs;
    struct pp_sim_result res;
    pp_sim_make_uniform(plan, 2, 1, 1, arrays, &costs);
    costs.fused_send = true;

    CHECK_OK(pp_sim_run(plan, &costs, true, &res)); /* F0 F1 idle B0 idle B1 */
    assert_float_equal(res.start[0][1], 2, 1e-12);
    assert_float_equal(res.start[0][2], 6, 1e-12);
    assert_float_equal(res.work[0], 8, 1e-12);
    pp_sim_result_fini(&res);

    costs.overlap = .75; /* the pair waits for rank 1's B0 at 6, takes 3 of 4 */
    CHECK_OK(pp_sim_run(plan, &costs, true, &res));
    assert_float_equal(res.start[0][1], 6, 1e-12);
    assert_float_equal(res.start[0][2], 6, 1e-12);
    assert_float_equal(res.end[0][1], 9, 1e-12);
    assert_float_equal(res.end[0][2], 9, 1e-12);
    assert_float_equal(res.work[0], 2 + 3 + 2, 1e-12);
    assert_float_equal(res.start[1][2], 9, 1e-12);
    pp_sim_result_fini(&res);
}

/* As below, but rank 0's I take 3: its last one ends at 10 and its list at 11, that of rank 1 at 7. */
TEST(a_rank_waits_for_all_votes_before_its_optimizer)
{
    static const double ends[] = {
        [PP_SIM_VOTE_NONE] = 7 + 6, [PP_SIM_VOTE_AT_I] = 10 + 6, [PP_SIM_VOTE_AT_END] = 11 + 6};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("1f1b", 2, 2);
    static const double i[] = {3, 1}, between[] = {1, 6};
    double arrays[6], early = 0;
    struct pp_sim_costs costs;
    struct pp_sim_result res;
    pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
    costs.i = i;
    costs.between = between;
    for (int vote = PP_SIM_VOTE_NONE; vote <= PP_SIM_VOTE_AT_END; vote++) {
        costs.vote = vote;
        costs.steps = 1;
        CHECK_OK(pp_sim_run(plan, &costs, false, &res));
        assert_float_equal(res.last_end[1], ends[vote], 1e-12);
        assert_float_equal(res.last_end[0], 11 + 1, 1e-12);
        pp_sim_result_fini(&res);
        /* never faster, and no step is lost */
        costs.steps = 7;
        CHECK_OK(pp_sim_run(plan, &costs, false, &res));
        assert_float_equal(res.work[0], 7 * (2 + 6 + 2 + 1), 1e-12);
        assert_true(res.makespan >= early);
        early = res.makespan;
        pp_sim_result_fini(&res);
    }
}

/* 1f1b, 2 ranks, 2 micro-batches, F = I = W = 1, I sent early: rank 0 idles for one tick before B0,
 * rank 1 for one at the start. */
TEST(steps_follow_each_other_without_a_meeting)
{
    static const double between[] = {4, 2};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("1f1b", 2, 2);
    double arrays[6];
    struct pp_sim_costs costs;
    struct pp_sim_result res;
    pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
    CHECK_OK(pp_sim_run(plan, &costs, false, &res));
    double once = res.makespan;
    double work = res.work[0];
    pp_sim_result_fini(&res);

    costs.steps = 1;
    costs.between = between;
    CHECK_OK(pp_sim_run(plan, &costs, false, &res));
    assert_float_equal(res.makespan, once + 4, 1e-12);
    assert_float_equal(res.work[0], work + 4, 1e-12);
    assert_float_equal(res.work[1], work + 2, 1e-12);
    pp_sim_result_fini(&res);

    /* Rank 0 is the slow one: it works for 10 in every step and waits only for I's of rank 1. */
    double last = 0, period[6];
    for (int steps = 1; steps <= 6; steps++) {
        costs.steps = steps;
        CHECK_OK(pp_sim_run(plan, &costs, false, &res));
        assert_float_equal(res.work[0], steps * (work + 4), 1e-12);
        assert_float_equal(res.first_start[1], 1, 1e-12);
        period[steps - 1] = res.makespan - last;
        last = res.makespan;
        pp_sim_result_fini(&res);
    }
    assert_float_equal(period[5], period[4], 1e-12);
    assert_true(period[5] >= work + 4);
    assert_true(period[5] <= once + 4);

    /* With message slots: the same, as every slot is free again before its rank comes round. */
    costs.slots = true;
    CHECK_OK(pp_sim_run(plan, &costs, false, &res));
    assert_float_equal(res.makespan, last, 1e-12);
    pp_sim_result_fini(&res);
}

/* Rank 1 is slow: rank 0 may be ahead by no more than the message slots allow. */
TEST(a_rank_cannot_run_ahead_of_its_message_slots)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("gpipe", 2, 2);
    double f[] = {1, 10}, b[] = {1, 1};
    struct pp_sim_costs costs = {.f = f, .i = b, .w = b, .steps = 50};
    struct pp_sim_result res;
    for (int slots = 0; slots < 2; slots++) {
        costs.slots = slots;
        CHECK_OK(pp_sim_run(plan, &costs, false, &res));
        /* 22 + 2 of I and W a step on rank 1, which waits for no gradient */
        assert_float_equal(res.work[1], 50 * 24, 1e-9);
        assert_true(res.makespan >= 50 * 24);
        pp_sim_result_fini(&res);
    }
}

TEST(a_pair_that_needs_its_own_result_is_refused)
{
    struct pp_geometry g = {.stages = 2, .chunks = 1, .microbatches = 1};
    static const int rank_of[] = {0, 1};
    static const int n[] = {2, 2};
    const struct pp_cell first[] = {{.op = PP_OP_F, .overlap = true, .stage = 0, .mb = 0},
                                    {.op = PP_OP_B, .stage = 0, .mb = 0}};
    const struct pp_cell last[] = {{.op = PP_OP_F, .stage = 1, .mb = 0},
                                   {.op = PP_OP_B, .stage = 1, .mb = 0}};
    const struct pp_cell *cells[] = {first, last};
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    int rc = pp_plan_from_cells(&g, rank_of, cells, n, &plan);
    if (rc < 0)
        return; /* the passes know already */
    double arrays[6];
    struct pp_sim_costs costs;
    struct pp_sim_result res;
    pp_sim_make_uniform(plan, 1, 1, 1, arrays, &costs);
    CHECK_OK(pp_sim_run(plan, &costs, false, &res)); /* one after the other it works */
    pp_sim_result_fini(&res);
    costs.overlap = 1;
    CHECK_FAILS(pp_sim_run(plan, &costs, false, &res), PP_EFORMAT, "rank 0 waits forever");
}
