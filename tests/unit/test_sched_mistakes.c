/* SPDX-License-Identifier: Apache-2.0 */
/* Lists with random mistakes: the passes refuse those that the oracle refuses, and what they accept
 * runs. */
#include "test_sched_oracle.h"
#include "../../src/sched/plan.h"

static bool is_legal(const struct lists *l)
{
    static struct rows t; /* large */
    memset(&t, 0, sizeof(t));
    t.n_rows = l->g.stages;
    t.stages = l->g.stages * l->g.chunks;
    t.mbs = l->g.microbatches;
    t.ascending = true;
    memcpy(t.rank_of, l->rank_of, (size_t)t.stages * sizeof(int));
    for (int r = 0; r < t.n_rows; r++)
        for (int k = 0; k < l->n[r]; k++)
            add_cell(&t, l->cells[r][k].op, l->cells[r][k].stage, l->cells[r][k].mb, r);
    return rows_are_legal(&t);
}

static void drop(struct lists *l, int r, int k)
{
    l->n[r]--;
    memmove(&l->cells[r][k], &l->cells[r][k + 1], (size_t)(l->n[r] - k) * sizeof(struct pp_cell));
}

static void insert(struct lists *l, int r, int k, struct pp_cell c)
{
    add(l, r, PP_OP_F, 0, 0);
    memmove(&l->cells[r][k + 1], &l->cells[r][k],
            (size_t)(l->n[r] - 1 - k) * sizeof(struct pp_cell));
    l->cells[r][k] = c;
}

static void mutate(struct lists *l)
{
    int r = random_below(l->g.stages);
    int k = random_below(l->n[r]);
    struct pp_cell *c = &l->cells[r][k];
    struct pp_cell copy = *c;
    int other = random_below(l->n[r]);
    switch (random_below(8)) {
    case 0: /* swap any two */
        *c = l->cells[r][other];
        l->cells[r][other] = copy;
        break;
    case 1: /* swap neighbours: most often still legal */
        other = k > 0 ? k - 1 : 0;
        *c = l->cells[r][other];
        l->cells[r][other] = copy;
        break;
    case 2:
        drop(l, r, k);
        break;
    case 3:
        insert(l, r, other, copy);
        break;
    case 4:
        c->mb = random_below(l->g.microbatches + 2) - 1;
        break;
    case 5:
        c->stage = random_below(l->g.stages * l->g.chunks + 2) - 1;
        break;
    case 6:
        c->op = (uint8_t)random_below(4);
        break;
    default: /* move: earlier or later, or to another rank */
        drop(l, r, k);
        r = random_below(4) ? r : random_below(l->g.stages);
        insert(l, r, random_below(l->n[r] + 1), copy);
        break;
    }
}

TEST(lists_with_mistakes_are_refused)
{
    static const char *const names[] = {
        "zb-h1", "zb-v", "interleaved v2", "interleaved-zb v2", "zb-h2", "2-eager 1f1b"};
    int n_legal = 0, n = 0;
    for (size_t i = 0; i < LEN(names); i++) {
        for (int round = 0; round < 1500; round++, n++) {
            struct lists l;
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
            int p = 2 + random_below(3);
            list_named(&l, names[i], p, p * (1 + random_below(2)));
            for (int mistakes = 1 + random_below(2); mistakes > 0; mistakes--)
                mutate(&l);
            int rc = lists_plan(&l, &plan);
            if (is_legal(&l)) {
                CHECK_OK(rc);
                run(plan, SHARED, BURSTS);
                run(plan, COPIES, EVEN);
                n_legal++;
            } else {
                CHECK_INT_EQ(rc, PP_EFORMAT);
                assert_null(plan);
            }
            lists_free(&l);
        }
    }
    assert_true(n_legal > n / 20 && n_legal < n / 2);
}

/* Backward channels with too few slots: the sender's own backward needs nothing in them. */
TEST(scarce_slots_are_judged_as_an_interpreter_judges_them)
{
    static const char *const names[] = {"1f1b", "gpipe", "zb-h1", "zb-h2"};
    int n_stuck = 0;
    for (int round = 0; round < 2000; round++) {
        struct pp_plan *plan =
            plan_named(names[round % (int)LEN(names)], 2 + random_below(4), 1 + random_below(9));
        for (int i = 0; i < 2; i++) {
            int channel = 2 * random_below(plan->n_channels / 2) + 1;
            squeeze(plan, channel, 1 + random_below(plan->channels[channel].slots));
        }
        int rc = pp_plan_prove(plan);
        CHECK_INT_EQ(rc == 0, all_done(plan, SHARED, EVEN));
        n_stuck += rc == PP_EFORMAT;
        pp_plan_destroy(&plan);
    }
    print_message("# %d of 2000 stuck\n", n_stuck);
    assert_in_range(n_stuck, 100, 1900);
}
