/* SPDX-License-Identifier: Apache-2.0 */
/* Orders made for costs: legal for any, within their cap, as short as the fixed ones where those are
 * at home, and shorter where stages differ. */
#include <string.h>

#include "ppcli/sim/sim.h"
#include "../../src/sched/plan.h"
#include "test_sched_oracle.h"

/* One shape and its costs. */
struct job {
    struct pp_geometry g;
    int64_t ticks[3 * STAGES_MAX + 1];
};

static struct job job_of(int p, int v, int m, double cap)
{
    struct job j = {.g = {.stages = p, .chunks = v, .microbatches = m, .memory_cap = cap}};
    for (int i = 0; i < 3 * p * v; i++)
        j.ticks[i] = 1;
    return j;
}

static struct pp_plan *plan_job(const char *name, struct job *j)
{
    struct pp_plan *plan = NULL;
    j->g.ticks = j->ticks;
    CHECK_OK(pp_plan_build(name, &j->g, &plan));
    return plan;
}

struct span {
    double makespan, longest;
    int peak; /* chunks, of the rank that holds most */
};

/* With the costs of the job, messages leaving as they do in a run. */
static struct span span_of(const struct pp_plan *plan, const struct job *j)
{
    double times[3][STAGES_MAX];
    struct pp_sim_costs costs = {.f = times[0], .i = times[1], .w = times[2]};
    struct pp_sim_result r;
    struct span s = {0};
    for (int i = 0; i < 3 * plan->n_virtual; i++)
        times[i % 3][i / 3] = (double)j->ticks[i];
    costs.latency = (double)j->ticks[3 * plan->n_virtual];
    CHECK_OK(pp_sim_run(plan, &costs, false, &r));
    s.makespan = r.makespan;
    for (int k = 0; k < plan->geometry.stages; k++) {
        double span = r.last_end[k] - r.first_start[k];
        s.longest = span > s.longest ? span : s.longest;
        s.peak = r.peak[k] > s.peak ? r.peak[k] : s.peak;
    }
    pp_sim_result_fini(&r);
    return s;
}

static struct span span_by(const char *name, struct job *j)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_job(name, j);
    struct span s = span_of(plan, j);
    return s;
}

static const char *const names[] = {"zb-fit", "zb-fit-v"};

TEST(any_costs_give_a_legal_plan_within_the_cap)
{
    for (int round = 0; round < 400; round++) {
        int p = 1 + random_below(8), v = 1 + random_below(4), m = 1 + random_below(16);
        struct job j = job_of(p, v, m, 1 + random_below(4 * p) / 2.0);
        for (int i = 0; i <= 3 * p * v; i++)
            j.ticks[i] = random_below(4) == 0 ? random_below(2) : random_below(1000);
        for (int k = 0; k < 2; k++) {
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_job(names[k], &j);
            assert_true(span_of(plan, &j).peak <= j.g.memory_cap * v);
            assert_null(plan->geometry.ticks);
            CHECK_OK(pp_plan_prove(plan));
            if (round % 16 == 0)
                run_in_all_ways(plan);
        }
    }
}

/* All stages the same: within the memory of 1f1b, which is that of zb-h1. */
TEST(equal_costs_are_never_worse_than_the_fixed_orders)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 20; m++) {
            struct job one = job_of(p, 1, m, p), two = job_of(p, 2, m, p);
            struct span h1 = span_by("zb-h1", &one), s = span_by("zb-fit", &one);
            assert_true(s.makespan <= h1.makespan && s.longest <= h1.longest && s.peak <= p);
            assert_true(s.makespan <= span_by("1f1b", &one).makespan);
            s = span_by("zb-fit", &two);
            if (m % p == 0)
                assert_true(s.makespan <= span_by("interleaved-zb", &two).makespan * 1.03);
            s = span_by("zb-fit-v", &two);
            assert_true(s.makespan <= span_by("zb-v", &two).makespan);
            one.g.memory_cap = 0; /* 2P */
            struct span h2 = span_by("zb-h2", &one);
            s = span_by("zb-fit", &one);
            assert_true(s.makespan <= h2.makespan && s.longest <= h2.longest);
        }
    }
}

TEST(unequal_stages_are_better_off_than_with_any_fixed_order)
{
    static const char *const fixed[] = {"gpipe", "1f1b", "zb-h1", "zb-h2", "zb-auto"};
    static const int64_t ticks[] = {4, 2, 8, 1, 2, 6, 4, 4, 9, 9, 4, 1, 1};
    struct job j = job_of(4, 1, 8, 4);
    memcpy(j.ticks, ticks, sizeof(ticks));
    struct span s = span_by("zb-fit", &j);
    assert_true(s.peak <= 4);
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        struct span other = span_by(fixed[i], &j);
        print_message("# %s: makespan %g, span %g, holds %d; zb-fit %g, %g, %d\n", fixed[i],
                      other.makespan, other.longest, other.peak, s.makespan, s.longest, s.peak);
        assert_true(s.makespan < 0.92 * other.makespan);
    }
}

/* Little memory on a V, where the greedy lists alone take 356 and 486. */
TEST(exchanging_cells_makes_lists_shorter)
{
    static const int64_t four[] = {13, 7, 16, 12, 1, 8, 20, 12, 3, 3, 5, 12, 0};
    static const int64_t six[] = {16, 9, 16, 19, 20, 11, 13, 17, 1, 2, 17, 2, 9, 14, 5, 8, 2, 2, 0};
    struct job two = job_of(2, 2, 4, 1), three = job_of(3, 2, 3, 1);
    memcpy(two.ticks, four, sizeof(four));
    memcpy(three.ticks, six, sizeof(six));
    struct span s = span_by("zb-fit-v", &two), t = span_by("zb-fit-v", &three);
    print_message("# makespans %g and %g\n", s.makespan, t.makespan);
    assert_true(s.makespan <= 300 && s.peak <= 2);
    assert_true(t.makespan <= 400 && t.peak <= 2);
}

/* The list follows from the ratios: no unit, and nothing of the machine, is in it. */
TEST(the_same_costs_give_the_same_order_in_any_unit)
{
    for (int round = 0; round < 40; round++) {
        int p = 1 + random_below(6), v = 1 + random_below(2);
        struct job j = job_of(p, v, 12, 0), k;
        for (int i = 0; i <= 3 * p * v; i++)
            j.ticks[i] = 1 + random_below(50);
        k = j;
        for (int i = 0; i <= 3 * p * v; i++)
            k.ticks[i] *= 7;
        struct pp_plan *a = plan_job(names[round % 2], &j), *b = plan_job(names[round % 2], &k);
        char *text = printed(a, pp_plan_print_csv), *other = printed(b, pp_plan_print_csv);
        CHECK_STR_EQ(text, other);
        free(text);
        free(other);
        pp_plan_destroy(&a);
        pp_plan_destroy(&b);
    }
}

TEST(times_become_ticks)
{
    const double costs[] = {0.5, 0.1, 0, 2e-9, 0.25, 0.0333333}, none[6] = {0};
    int64_t ticks[7];
    pp_schedule_ticks(costs, 2, 0.0004, ticks);
    assert_memory_equal(ticks, ((int64_t[]){1000, 1, 500, 200, 1, 67, 1}), sizeof(ticks));
    pp_schedule_ticks(none, 2, 0, ticks);
    assert_memory_equal(ticks, ((int64_t[]){1, 1, 1, 1, 1, 1, 0}), sizeof(ticks));
}

TEST(a_cap_that_holds_nothing_is_refused)
{
    for (int k = 0; k < 2; k++) {
        struct pp_plan *plan = NULL;
        struct pp_geometry g = {.stages = 4, .chunks = 2, .microbatches = 8, .memory_cap = 0.5};
        CHECK_FAILS(pp_plan_build(names[k], &g, &plan), PP_ECONFIG, "at least 1, or 0 for 8");
        assert_null(plan);
    }
}

/* ---- the exact ones */

/* All lists of a rank that a cap allows, one after the other: 3 * chunk + op. */
struct all_lists {
    int v, m, limit, n;
    int8_t (*at)[12];
    int8_t list[12];
    int done[6];
};

static void collect_lists(struct all_lists *a, int k, int held)
{
    if (k == 3 * a->v * a->m) {
        assert_true(a->n < 2000);
        memcpy(a->at[a->n++], a->list, sizeof(a->list));
        return;
    }
    for (int cell = 0; cell < 3 * a->v; cell++) {
        int op = cell % 3, more = op == PP_OP_F ? 1 : op == PP_OP_W ? -1 : 0;
        if (a->done[cell] == (op == PP_OP_F ? a->m : a->done[cell - 1]) || held + more > a->limit)
            continue;
        a->done[cell]++;
        a->list[k] = (int8_t)cell;
        collect_lists(a, k + 1, held + more);
        a->done[cell]--;
    }
}

/* How long two ranks take with these lists; 0: they wait for ever. */
static int64_t time_pair(const struct job *j, const int8_t *const lists[2])
{
    int v = j->g.chunks, m = j->g.microbatches, n = 2 * v, at[2] = {0}, done[12] = {0};
    int64_t now[2] = {0}, end[12][4];
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < 2; r++) {
            for (; at[r] < 3 * v * m; at[r]++) {
                int chunk = lists[r][at[r]] / 3, op = lists[r][at[r]] % 3;
                int s = 2 * chunk + (chunk % 2 == 1 ? 1 - r : r), mb = done[3 * s + op];
                int from = op == PP_OP_F ? s - 1 : op == PP_OP_I ? s + 1 : -1;
                bool other = from >= 0 && from < n;
                if (other && done[3 * from + op] <= mb)
                    break;
                int64_t hop = other && (op == PP_OP_F ? s : from) % 2 == 1 ? j->ticks[3 * n] : 0;
                int64_t there = other ? end[3 * from + op][mb] + hop : 0;
                now[r] = (there > now[r] ? there : now[r]) + j->ticks[3 * s + op];
                end[3 * s + op][mb] = now[r];
                done[3 * s + op]++;
                moved = true;
            }
        }
    }
    if (at[0] + at[1] < 6 * v * m)
        return 0;
    return now[0] > now[1] ? now[0] : now[1];
}

static int64_t try_all(const struct job *j)
{
    struct all_lists a = {
        .v = j->g.chunks, .m = j->g.microbatches, .limit = (int)(j->g.memory_cap * j->g.chunks)};
    int64_t least = INT64_MAX;
    a.at = need(2000, sizeof(*a.at));
    collect_lists(&a, 0, 0);
    for (int x = 0; x < a.n; x++) {
        for (int y = 0; y < a.n; y++) {
            int64_t t = time_pair(j, (const int8_t *const[]){a.at[x], a.at[y]});
            least = t > 0 && t < least ? t : least;
        }
    }
    free(a.at);
    return least;
}

static struct job random_job(int p, int v, int m, double cap, bool even, int transfer)
{
    struct job j = job_of(p, v, m, cap);
    for (int i = 0; i < 3 * p * v; i++)
        j.ticks[i] = even && i >= 3 ? j.ticks[i % 3] : 1 + random_below(20);
    j.ticks[3 * p * v] = random_below(transfer + 1);
    j.g.costs = (struct pp_schedule_costs){(double)j.ticks[0], (double)j.ticks[1],
                                           (double)j.ticks[2], (double)j.ticks[3 * p * v]};
    return j;
}

TEST(exact_is_the_least_of_all_lists)
{
    for (int round = 0; round < 60; round++) {
        bool v = round % 2 == 1; /* of two micro-batches a rank has 1,708 lists */
        int m = !v ? 1 + random_below(3) : round < 4 ? 2 : 1;
        struct job j = random_job(2, v ? 2 : 1, m, v ? 1 : 1 + random_below(4), false, 9);
        struct span s = span_by(v ? "zb-exact-v" : "zb-exact", &j);
        CHECK_INT_EQ((int64_t)s.makespan, try_all(&j));
        assert_true(s.peak <= j.g.memory_cap * j.g.chunks);
    }
}

/* Of 750 cases: 1F1B-shaped ones of 2 to 4 stages, a V of 2, equal stages. */
TEST(orders_made_for_costs_are_near_the_exact_ones)
{
    static const struct {
        const char *name, *exact;
        int transfer;
    } kinds[] = {{"zb-fit", "zb-exact", 0},
                 {"zb-fit", "zb-exact", 9},
                 {"zb-fit-v", "zb-exact-v", 4},
                 {"zb-auto", "zb-exact", 4}};
    for (int k = 0; k < 4; k++) {
        int n = k < 2 ? 125 : 250, exact = 0;
        double sum = 0, worst = 0;
        for (int round = 0; round < n; round++) {
            int p = k == 2 ? 2 : 2 + random_below(3);
            double cap = k == 2 ? 1 + random_below(5) / 2.0 : 1 + random_below(2 * p);
            struct job j =
                random_job(p, k == 2 ? 2 : 1, 2 + random_below(5), cap, k == 3, kinds[k].transfer);
            double least = span_by(kinds[k].exact, &j).makespan;
            double gap = span_by(kinds[k].name, &j).makespan / least - 1;
            assert_true(gap >= 0);
            sum += gap;
            worst = gap > worst ? gap : worst;
            exact += gap == 0;
        }
        print_message(
            "# %s, transfers up to %d of 20: %d of %d exact, mean %.2f %%, worst %.2f %%\n",
            kinds[k].name, kinds[k].transfer, exact, n, 100 * sum / n, 100 * worst);
        assert_true(sum / n <= 0.005 && worst <= 0.06);
    }
}

TEST(more_than_can_be_proved_is_refused)
{
    struct pp_plan *plan = NULL;
    struct pp_geometry g = {.stages = 4, .chunks = 1, .microbatches = 13};
    bool again[4] = {true};
    CHECK_FAILS(pp_plan_build("zb-exact", &g, &plan), PP_ECONFIG, "at most 48");
    g.microbatches = 6;
    g.recompute = again;
    CHECK_FAILS(pp_plan_build("zb-exact", &g, &plan), PP_ECONFIG, "recompute = off");
    /* equal costs and much memory leave many equal lists */
    struct job even = job_of(4, 2, 6, 0);
    CHECK_INT_EQ((int)span_by("zb-exact-v", &even).makespan, 6 * 6 + 3);
    even = job_of(4, 1, 12, 4);
    CHECK_INT_EQ((int)span_by("zb-exact", &even).makespan, 12 * 3 + 3);
}
