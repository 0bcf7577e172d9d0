/* SPDX-License-Identifier: Apache-2.0 */
/* Tied tensors: what pp_plan_tie() appends to the plans of all schedules, its proof and its time. */
#include "../../src/sched/pass.h"
#include "../../src/sim/sim.h"
#include "../../src/show/draw.h"
#include "../../src/sched/plan.h"
#include "test_sched_oracle.h"

static const char *const schedules[] = {
    "naive", "gpipe",          "1f1b",           "2-eager 1f1b",      "zb-h1",
    "zb-h2", "interleaved v2", "interleaved v4", "interleaved-zb v2", "zb-v"};

/* "0G0", or "" where there is none. */
static void cell_at(const struct pp_plan *plan, int rank, int from_end, char out[32])
{
    const struct pp_rank_plan *list = &plan->ranks[rank];
    const struct pp_action *a = &list->actions[list->n_actions - from_end];
    out[0] = '\0';
    if (a->op >= PP_OP_G)
        snprintf(out, 32, "%d%c%d", a->stage, PP_OP_LETTERS[a->op], a->mb);
}

static void ends_with(const struct pp_plan *plan, int rank, const char *before, const char *last)
{
    char cell[32];
    cell_at(plan, rank, 1, cell);
    CHECK_STR_EQ(cell, last);
    cell_at(plan, rank, 2, cell);
    CHECK_STR_EQ(cell, before);
}

TEST(first_and_last_stage_exchange_at_the_end_of_their_lists)
{
    for (int i = 0; i < COUNT(schedules); i++) {
        for (int p = 1; p <= 4; p++) {
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(schedules[i], p, 2 * p);
            int last = plan->n_virtual - 1, messages = plan->n_messages;
            const struct pp_tie tie = {.owner = 0, .copy = last};
            char give[32], sum[32];
            CHECK_OK(pp_plan_tie(plan, &tie, 1));
            CHECK_INT_EQ(plan->n_messages, messages + 2);
            CHECK_INT_EQ(plan->n_channels, 2 * last + 2);
            bool local = plan->rank_of[last] == plan->rank_of[0];
            ends_with(plan, 0, local ? "" : "0G0", "0T0");
            CHECK_INT_EQ(plan->channels[2 * last].slots, !local);
            /* the last stage has no neighbour there, as before */
            CHECK_INT_EQ(pp_plan_message(plan, 2 * last, 1), -1);
            CHECK_INT_EQ(pp_plan_message(plan, 2 * last + 1, 0), -1);
            CHECK_INT_EQ(plan->channels[2 * last + 1].src_rank, plan->rank_of[last]);
            for (int r = 1; r < p; r++) {
                bool copy = !local && r == plan->rank_of[last];
                snprintf(give, sizeof(give), "%dG0", last);
                snprintf(sum, sizeof(sum), "%dT0", last);
                ends_with(plan, r, copy ? give : "", copy ? sum : "");
            }
            run_in_all_ways(plan);
        }
    }
}

TEST(many_ties_and_pieces_run_in_any_interleaving)
{
    for (int i = 0; i < COUNT(schedules); i++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(schedules[i], 4, 8);
        int last = plan->n_virtual - 1;
        const struct pp_tie ties[] = {{0, last, 4, 0, 0}, {last, 0, 0, 0, 0}, {1, 2, 1, 0, 0},
                                      {2, 1, 6, 0, 0},    {3, 3, 0, 0, 0},    {0, 2, 0, 0, 0},
                                      {0, 2, 0, 0, 0}};
        CHECK_OK(pp_plan_tie(plan, ties, COUNT(ties)));
        run_in_all_ways(plan);
        CHECK_OK(pp_plan_prove(plan));
    }
}

/* ---- more than two holders */

enum {
    HOLDERS_MOST = 6,
    PIECES_MOST = 3
};

/* Makes the ties of a tensor that the virtual stages stages[n] hold. */
static void make_chain(const int *stages, int n, int more, struct pp_tie *out)
{
    for (int i = 0; i + 1 < n; i++)
        out[i] = (struct pp_tie){.owner = stages[i],
                                 .copy = stages[i + 1],
                                 .more = more,
                                 .before = i,
                                 .after = n - 2 - i};
}

/* Runs G and T of a plan whose ties are one chain on numbers, one for each holder and piece. */
static void add_up(const struct pp_plan *plan, double g[HOLDERS_MOST][PIECES_MOST])
{
    int at[8], left = 0;
    PP_OWN_MEMORY double *sent = pp_alloc((size_t)plan->n_messages, sizeof(*sent));
    PP_OWN_MEMORY bool *there = pp_alloc((size_t)plan->n_messages, sizeof(*there));
    for (int r = 0; r < plan->geometry.stages; r++) {
        at[r] = pp_plan_first_tied(&plan->ranks[r]);
        left += plan->ranks[r].n_actions - at[r];
    }
    for (int r = 0, idle = 0; left > 0; r = (r + 1) % plan->geometry.stages) {
        const struct pp_action *a = &plan->ranks[r].actions[at[r]];
        assert_true(idle++ < plan->geometry.stages);
        if (at[r] == plan->ranks[r].n_actions || (a->recv >= 0 && !there[a->recv]))
            continue;
        const struct pp_tie *t = &plan->ties[a->mb];
        bool owner = a->stage == t->owner, gives = a->op == PP_OP_G;
        int message = gives ? a->send : a->recv,
            piece = message < 0 ? a->slot : plan->messages[message].mb;
        double *low = &g[a->mb][piece], *high = &g[a->mb + 1][piece], *mine = owner ? low : high;
        if (message >= 0 && gives) {
            sent[message] = *mine;
            there[message] = true;
        } else if (message >= 0) {
            *mine = owner && t->after > 0 ? sent[message] : *mine + sent[message];
        } else if (gives) {
            *low = *high;
        } else {
            *high += *low;
            *low = t->after > 0 ? *low : *high;
        }
        at[r]++;
        left--;
        idle = 0;
    }
}

static void check_chain(const char *schedule, int p, const int *stages, int n, int more)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(schedule, p, 2 * p);
    struct pp_tie ties[HOLDERS_MOST];
    double g[HOLDERS_MOST][PIECES_MOST], want[PIECES_MOST] = {0};
    make_chain(stages, n, more, ties);
    CHECK_OK(pp_plan_tie(plan, ties, n - 1));
    for (int i = 0; i < n; i++) {
        for (int k = 0; k <= more; k++) {
            g[i][k] = (i % 2 ? -1 : 1) * 1e17 / (i + 1) + i + 10 * k; /* the order shows */
            want[k] = i == 0 ? g[i][k] : want[k] + g[i][k];
        }
    }
    add_up(plan, g);
    for (int i = 0; i < n; i++)
        for (int k = 0; k <= more; k++)
            if (!(g[i][k] >= want[k] && g[i][k] <= want[k]))
                fail_msg("%s, %d ranks: holder %d, piece %d has %.17g, not %.17g", schedule, p, i,
                         k, g[i][k], want[k]);
    run_in_all_ways(plan);
}

TEST(all_holders_get_the_sum_in_the_order_of_the_holders)
{
    for (int i = 0; i < COUNT(schedules); i++) {
        for (int p = 1; p <= 4; p++) {
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(schedules[i], p, 2 * p);
            int last = plan->n_virtual - 1, mid = last / 2;
            const int lists[][HOLDERS_MOST] = {{0, mid, last},
                                               {0, 0, last, last},
                                               {0, mid, mid, last, last, last},
                                               {0, 0, 0, 0, 0, last},
                                               {0, last / 3, mid, mid, last}};
            const int n[] = {3, 4, 6, 6, 5};
            for (int k = 0; k < COUNT(lists); k++)
                for (int more = 0; more < PIECES_MOST; more++)
                    check_chain(schedules[i], p, lists[k], n[k], more);
        }
    }
}

/* Three holders on three ranks: up, exchange, back. */
TEST(a_chain_goes_up_and_back)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named("gpipe", 3, 3);
    struct pp_tie ties[2];
    make_chain((const int[]){0, 1, 2}, 3, 0, ties);
    CHECK_OK(pp_plan_tie(plan, ties, 2));
    static const char *const lists[3][5] = {
        {"0G0", "0T0"}, {"1T0", "1G1", "1T1", "1G0"}, {"2G1", "2T1"}};
    for (int r = 0; r < 3; r++) {
        int first = pp_plan_first_tied(&plan->ranks[r]), n = plan->ranks[r].n_actions - first;
        for (int k = 0; k < n; k++) {
            char cell[32];
            cell_at(plan, r, n - k, cell);
            CHECK_STR_EQ(cell, lists[r][k]);
        }
        assert_null(lists[r][n]);
    }
}

static struct pp_plan *tied(const char *schedule, int p, int m)
{
    struct pp_plan *plan = plan_named(schedule, p, m);
    const struct pp_tie tie = {.owner = 0, .copy = plan->n_virtual - 1};
    CHECK_OK(pp_plan_tie(plan, &tie, 1));
    return plan;
}

static struct pp_action *last_of(struct pp_plan *plan, int rank)
{
    return &plan->ranks[rank].actions[plan->ranks[rank].n_actions - 1];
}

TEST(the_proof_refuses_what_is_no_exchange)
{
    const char *words = "does not end with a G and a T for each tied tensor";
    struct pp_plan *plan = tied("1f1b", 3, 4);
    struct pp_action *give = last_of(plan, 2) - 1, kept = *give;
    struct pp_message *m = &plan->messages[plan->n_messages - 1];

    *give = give[1]; /* T, T */
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, words);
    *give = kept;
    give->send--; /* the other one's message */
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, words);
    *give = give[-1];
    give[-1] = kept; /* before the last W */
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "");
    give[-1] = *give;
    *give = kept;
    plan->ranks[2].n_actions -= 2;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, words);
    plan->ranks[2].n_actions += 2;
    m->first_in_slot = false;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "channel 5 of a tied tensor");
    m->first_in_slot = true;
    CHECK_OK(pp_plan_prove(plan));
    pp_plan_destroy(&plan);

    plan = plan_named("1f1b", 3, 4);
    const struct pp_tie three = {.owner = 0, .copy = 2, .more = 2};
    CHECK_OK(pp_plan_tie(plan, &three, 1));
    m = &plan->messages[plan->n_messages - 2]; /* of the second piece */
    CHECK_INT_EQ(m->mb, 1);
    m->next_in_slot = -1;
    CHECK_FAILS(pp_plan_prove(plan), PP_EFORMAT, "not a message for each piece in one slot");
    pp_plan_destroy(&plan);
}

/* Both ranks wait for the message of the other before they send theirs. */
TEST(sums_before_gifts_are_a_circle)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = tied("gpipe", 2, 2);
    struct pp_walk walk;
    for (int r = 0; r < 2; r++) {
        struct pp_action *sum = last_of(plan, r), kept = *sum;
        *sum = sum[-1];
        sum[-1] = kept;
    }
    CHECK_OK(pp_walk_init(&walk, plan, true));
    CHECK_FAILS(pp_walk_run(&walk), PP_EFORMAT,
                "these ranks wait for each other: 0T0 waits for 1G0; 1T0 "
                "waits for 0G0");
    pp_walk_fini(&walk);
}

/* ---- time */

struct simulated {
    double arrays[64], tie[2], transfer[64];
    struct pp_sim_costs costs;
    struct pp_sim_result result;
};

static void simulate(const struct pp_plan *plan, double tie, double transfer, bool slots,
                     struct simulated *s)
{
    memset(s, 0, sizeof(*s));
    pp_sim_make_uniform(plan, 1, 1, 1, s->arrays, &s->costs);
    s->tie[0] = s->tie[1] = tie;
    s->transfer[plan->n_channels - 2] = s->transfer[plan->n_channels - 1] = transfer;
    s->costs.tie = s->tie;
    s->costs.transfer = s->transfer;
    s->costs.slots = slots;
    CHECK_OK(pp_sim_run(plan, &s->costs, true, &s->result));
}

/* Rank 1 is done with its W at 4 and gives until 4.25, which is there at 6.25; rank 0 is done at 5
 * and gives until 5.25, which is there at 7.25. */
TEST(the_sum_waits_for_the_other_gradient_and_its_way)
{
    for (int slots = 0; slots < 2; slots++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = tied("gpipe", 2, 1);
        struct simulated s;
        simulate(plan, 0.25, 2, slots, &s);
        CHECK_INT_EQ(plan->ranks[0].n_actions, 4); /* F, B, G, T */
        assert_true(s.result.end[1][2] == 4.25 && s.result.end[0][2] == 5.25);
        assert_true(s.result.start[0][3] == 6.25 && s.result.end[0][3] == 6.5);
        assert_true(s.result.start[1][3] == 7.25 && s.result.end[1][3] == 7.5);
        assert_true(s.result.makespan == 7.5 && s.result.work[0] == 3.5);
        double work[2];
        assert_true(pp_sim_work(plan, &s.costs, work) == 7 && work[1] == 3.5);
        pp_sim_result_fini(&s.result);
    }
}

/* Many steps, with slots: the channels of a tie are nobody's but its own. */
TEST(slots_do_not_change_the_time_of_plans_that_have_enough)
{
    for (int i = 0; i < COUNT(schedules); i++) {
        for (int p = 1; p <= 4; p++) {
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = tied(schedules[i], p, 2 * p);
            struct simulated s, with;
            simulate(plan, 0.25, 0.5, false, &s);
            simulate(plan, 0.25, 0.5, true, &with);
            assert_true(with.result.makespan == s.result.makespan);
            pp_sim_result_fini(&s.result);
            pp_sim_result_fini(&with.result);
        }
    }
}

TEST(a_tie_within_a_rank_takes_a_sum_and_a_copy)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = tied("naive", 1, 1);
    struct simulated s;
    simulate(plan, 0.5, 100, true, &s);
    assert_true(s.result.makespan == 3 + 2 * 0.5);
    assert_true(s.result.work[0] == s.result.makespan);
    pp_sim_result_fini(&s.result);

    PP_OWN(pp_plan_destroy) struct pp_plan *three = plan_named("naive", 1, 1);
    struct pp_tie ties[2];
    make_chain((const int[]){0, 0, 0}, 3, 0, ties);
    CHECK_OK(pp_plan_tie(three, ties, 2));
    simulate(three, 0.5, 100, true, &s); /* two sums, two copies */
    assert_true(s.result.makespan == 3 + 4 * 0.5);
    pp_sim_result_fini(&s.result);
}

/* ---- pictures and tables */

TEST(a_table_has_no_ties_and_pictures_do)
{
    struct pp_plan *plan = tied("1f1b", 2, 4), *plain = plan_named("1f1b", 2, 4);
    char *with = printed(plan, pp_plan_print_csv), *without = printed(plain, pp_plan_print_csv);
    CHECK_STR_EQ(with, without);
    free(with);
    free(without);
    with = printed(plan, pp_plan_print_csv_comms);
    without = printed(plain, pp_plan_print_csv_comms);
    CHECK_STR_EQ(with, without);
    free(with);
    free(without);

    struct simulated s;
    simulate(plan, 1, 0, false, &s);
    const struct pp_drawing d = {.plan = plan, .result = &s.result, .costs = &s.costs};
    int (*const draw[])(const struct pp_drawing *, FILE *) = {pp_draw_grid, pp_draw_svg,
                                                              pp_draw_trace};
    for (int i = 0; i < COUNT(draw); i++) {
        PP_OWN_MEMORY char *text = NULL;
        size_t bytes = 0;
        FILE *f = open_memstream(&text, &bytes);
        CHECK_OK(draw[i](&d, f));
        fclose(f);
        assert_non_null(strstr(text, "G0"));
        assert_non_null(strstr(text, "T0"));
    }
    pp_sim_result_fini(&s.result);
    pp_plan_destroy(&plan);
    pp_plan_destroy(&plain);
}
