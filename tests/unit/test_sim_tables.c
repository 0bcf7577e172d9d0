/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator against published and verified tables, to the printed digit. */
#include "test_sim_shapes.h"

/* Overlapped pairs (DualPipeV alone has some) are one piece of work, without any gain. */
static const struct rank_costs unit = {.f = 1, .i = 1, .w = 1, .overlap = 1};

TEST(makespans_bubbles_and_peaks_are_those_of_the_table)
{
    /* makespan, global bubble, span bubble, peak of the first and the last rank (even steps in
     * between) */
    static const struct {
        const char *name, *p4m8, *p8m16;
    } table[] = {
        {"gpipe", "33 .2727 .2727 8 8", "69 .3043 - 16 16"},
        {"1f1b", "33 .2727 .2727 4 1", "69 .3043 - 8 1"},
        {"1f1b-eager k2", "33 .2727 - 7 1", "69 .3043 - - -"},
        {"interleaved v2", "28.5 .1579 - 11 5", "58.5 .1795 - 23 9"},
        {"looped-bfs v2", "28.5 .1579 - 16 16", "58.5 .1795 - - -"},
        {"1f1b-v", "31.5 .2381 - 6 6", "64.5 .2558 - 12 12"},
        {"zb-h1", "27 .1111 .1111 4 4", "55 .1273 .1273 8 8"},
        {"zb-h2", "27 .1111 0.0000 7 7", "55 .1273 0.0000 15 15"},
        {"zb-auto", "27 .1111 0.0000 8 8", "55 - 0.0000 16 16"},
        {"interleaved-zb v2", "25.5 .0588 .0588 8 8", "51.5 .0680 .0680 16 16"},
        {"zb-v", "25.5 .0588 0.0000 8 8", "51.5 .0680 0.0000 16 16"},
        {"v-half", "26.5 .0943 - 6 6", "56.5 .1504 - 10 10"},
        {"v-min", "29.5 .1864 - 4 4", "61.0 - - 8 8"},
        {"dualpipev", "27 - - 9 9", "55 - - 17 17"},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        for (int size = 0; size < 2; size++) {
            int p = size ? 8 : 4;
            const char *name = table[i].name;
            const char *row = size ? table[i].p8m16 : table[i].p4m8;
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of(name, p, 2 * p);
            struct pp_sim_result res;
            simulate(plan, &unit, &res);
            check_printed(name, res.makespan, &row);
            check_printed(name, res.bubble_global, &row);
            check_printed(name, res.bubble_span, &row);
            const char *last = strrchr(row, ' ');
            check_printed(name, res.peak[0], &row);
            check_printed(name, res.peak[p - 1], &last);
            for (int r = 1; r < p - 1 && last[-1] != '-'; r++) {
                CHECK_INT_EQ(res.peak[r] * (p - 1),
                             res.peak[0] * (p - 1 - r) + res.peak[p - 1] * r);
            }
            double work = 3.0 * 2 * p;
            for (int r = 0; r < p; r++) {
                assert_float_equal(res.work[r], work, 1e-9);
                assert_float_equal(res.idle[r], res.makespan - work, 1e-9);
            }
            pp_sim_result_fini(&res);
        }
    }
}

TEST(latency_flips_the_ranking_as_in_the_table)
{
    static const double comm[] = {0, .05, .1, .25, .5, 1};
    /* p = 4, m = 16 */
    static const struct {
        const char *name, *row;
    } table[] = {
        {"gpipe", "57 57.3 57.6 58.5 60 63"},
        {"1f1b", "57 58.4 59.8 64 71 85"},
        {"1f1b-eager k2", "57 57.3 57.6 58.5 60 63"},
        {"interleaved v2", "52.5 53.2 53.9 56 59.5 75.5"},
        {"interleaved v4", "50.25 51.75 53.25 57.75 75.75 114.75"},
        {"looped-bfs v2", "52.5 52.8 53.1 54 55.5 58.5"},
        {"looped-bfs v4", "50.25 50.55 50.85 51.75 53.25 59.25"},
        {"zb-h1", "51 51.6 52.2 54 57 71"},
        {"zb-h2", "51 51.15 51.3 51.75 52.5 54"},
        {"interleaved-zb v2", "49.5 50.3 51.1 53.5 66 93"},
        {"interleaved-zb v4", "48.75 49.95 51.15 63.5 90 143"},
        {"zb-v", "49.5 50.15 50.8 52.75 56.5 65.5"},
        {"dualpipev", "51 52.4 53.9 59 67.5 84.5"},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of(table[i].name, 4, 16);
        const char *row = table[i].row;
        for (size_t k = 0; k < LEN(comm); k++) {
            struct rank_costs costs = unit;
            costs.comm = comm[k];
            struct pp_sim_result res;
            simulate(plan, &costs, &res);
            check_printed(table[i].name, res.makespan, &row);
            pp_sim_result_fini(&res);
        }
    }
}

/* One printed column of the zero-bubble paper's table 5, or of its strict companions. */
static void check_column(const char *name, int p, int m, const struct rank_costs *costs, bool span,
                         const char *printed)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_for(name, p, m, costs);
    struct pp_sim_result res;
    simulate(plan, costs, &res);
    check_printed(name, span ? res.bubble_span : res.bubble_global, &printed);
    pp_sim_result_fini(&res);
}

TEST(bubbles_are_those_of_the_zero_bubble_paper)
{
    static const struct {
        int m, v;
        double f, i, w, comm; /* milliseconds of one of 8 ranks */
        const char *one, *interleaved, *h1, *h2, *int_zb, *zb_v;
    } rows[] = {
        {24, 3, 18.522, 18.086, 9.337, .601, ".2431", ".1090", ".1585", ".1083", ".0755", ".0728"},
        {32, 3, 18.513, 18.086, 9.331, .626, ".1985", ".0847", ".1242", ".0837", ".0584", ".0563"},
        {64, 3, 18.546, 18.097, 9.321, .762, ".1240", ".0461", ".0674", ".0444", ".0320", ".0307"},
        {24, 4, 29.718, 29.444, 19.927, .527, ".2347", ".0827", ".1323", ".0698", ".0482", ".0446"},
        {32, 4, 29.802, 29.428, 19.530, .577, ".1898", ".0644", ".1045", ".0559", ".0380", ".0358"},
        {64, 4, 29.935, 29.621, 19.388, .535, ".1091", ".0328", ".0554", ".0294", ".0190", ".0183"},
    };
    for (size_t k = 0; k < LEN(rows); k++) {
        struct rank_costs costs = {.f = rows[k].f, .i = rows[k].i, .w = rows[k].w};
        costs.comm = rows[k].comm;
        char interleaved[32];
        char interleaved_zb[32];
        snprintf(interleaved, sizeof(interleaved), "interleaved v%d", rows[k].v);
        snprintf(interleaved_zb, sizeof(interleaved_zb), "interleaved-zb v%d", rows[k].v);
        int m = rows[k].m;
        check_column("1f1b", 8, m, &costs, false, rows[k].one);
        check_column(interleaved, 8, m, &costs, false, rows[k].interleaved);
        check_column("zb-h1", 8, m, &costs, false, rows[k].h1);
        check_column("zb-auto c8", 8, m, &costs, true, rows[k].h1); /* column ZB-1p */
        check_column("zb-h2", 8, m, &costs, true, rows[k].h2);
        check_column(interleaved_zb, 8, m, &costs, false, rows[k].int_zb);
        check_column("zb-v", 8, m, &costs, true, rows[k].zb_v);
    }
}

static double makespan_of(const char *name, int p, int m, const struct rank_costs *costs)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of(name, p, m);
    struct pp_sim_result res;
    simulate(plan, costs, &res);
    double makespan = res.makespan;
    pp_sim_result_fini(&res);
    return makespan;
}

static const struct rank_costs uneven[] = {
    {.f = 1, .i = 1, .w = 1},
    {.f = 2, .i = 1.5, .w = .75},
    {.f = 1, .i = 2, .w = 3},
};

TEST(gpipe_pays_every_transfer_once_each_way)
{
    for (size_t u = 0; u < LEN(uneven); u++) {
        struct rank_costs c = uneven[u];
        double b = c.i + c.w;
        for (int p = 1; p <= 8; p++) {
            for (int m = 1; m <= 24; m += 5) {
                for (int k = 0; k < 5; k++) {
                    c.comm = .375 * k;
                    double formula = (m + p - 1) * (c.f + b) + 2 * c.comm * (p - 1);
                    assert_float_equal(makespan_of("gpipe", p, m, &c), formula, 1e-9);
                }
            }
        }
    }
}

TEST(one_f_one_b_pays_two_transfers_per_microbatch)
{
    for (size_t u = 0; u < LEN(uneven); u++) {
        struct rank_costs c = uneven[u];
        double b = c.i + c.w;
        for (int p = 2; p <= 8; p *= 2) {
            for (int m = p; m <= 8 * p; m += p) {
                for (int k = 0; k < 5; k++) {
                    c.comm = .0625 * k;
                    double formula =
                        (m + p - 1) * (c.f + b) + c.comm * (2.0 * m * (p - 1) / p + 2 * (p - 2));
                    assert_float_equal(makespan_of("1f1b", p, m, &c), formula, 1e-9);
                }
            }
        }
    }
}

TEST(eager_1f1b_hides_all_transfers_of_its_steady_state)
{
    for (size_t u = 0; u < LEN(uneven); u++) {
        struct rank_costs c = uneven[u];
        double both = c.f + c.i + c.w;
        for (int p = 2; p <= 8; p *= 2) {
            for (int m = 1; m <= 64; m++) {
                for (int i = 0; i <= 6; i++) {
                    c.comm = .25 * i * both;
                    int k = 1 + (int)ceil(2 * c.comm / both);
                    if (k * (p - 1) + 1 > m)
                        continue;
                    char name[32];
                    snprintf(name, sizeof(name), "1f1b-eager k%d", k);
                    double formula = (m + p - 1) * both + 2 * c.comm * (p - 1);
                    assert_float_equal(makespan_of(name, p, m, &c), formula, 1e-9);
                }
            }
        }
    }
    struct rank_costs c = {.f = 1, .i = 1, .w = 1, .comm = 1};
    assert_float_equal(makespan_of("1f1b", 8, 64, &c), 337, 1e-9);
    assert_float_equal(makespan_of("1f1b-eager k2", 8, 64, &c), 227, 1e-9);
}

TEST(zero_bubble_identities_hold)
{
    /* as in the paper's script: W is the cheapest, so that it fills gaps */
    struct rank_costs c = {.f = 18.522, .i = 18.086, .w = 9.337};
    for (int p = 2; p <= 8; p++) {
        for (int m = 2 * p; m <= 4 * p; m += p) {
            double work = m * (c.f + c.i + c.w);
            double excess = makespan_of("zb-h1", p, m, &c) - work;
            assert_float_equal(excess, (p - 1) * (c.f + c.i - c.w), 1e-6);
            c.comm = .601;
            struct pp_plan *plan = plan_of("zb-h2", p, m);
            struct pp_sim_result res;
            simulate(plan, &c, &res);
            excess = work / (1 - res.bubble_span) - work;
            assert_float_equal(excess, (p - 1) * (c.f + c.i + 2 * c.comm - 2 * c.w), 1e-6);
            pp_sim_result_fini(&res);
            pp_plan_destroy(&plan);
            c.comm = 0;
        }
    }
}

TEST(dualpipev_idles_as_its_formula_says)
{
    /* of a chunk, with F = I, as the formula takes for granted; pair: of an overlapped F;B */
    static const struct {
        double f, w, pair, makespan; /* with 4 ranks and 10 micro-batches, where it is published */
    } table[] = {{1, 1, 3, 66}, {1, 1, 2.5, 59}, {10, 10, 21, 0}, {10, 9, 26, 0}, {10, 7, 19, 0}};
    for (size_t i = 0; i < LEN(table); i++) {
        double f = table[i].f, w = table[i].w, pair = table[i].pair;
        struct rank_costs c = {.f = 2 * f, .i = 2 * f, .w = 2 * w, .overlap = pair / (2 * f + w)};
        for (int p = 1; p <= 8; p++) {
            int m = p == 4 ? 10 : 2 * p + 3;
            PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_of("dualpipev", p, m);
            struct pp_sim_result res;
            simulate(plan, &c, &res);
            if (p == 4 && table[i].makespan > 0)
                assert_float_equal(res.makespan, table[i].makespan, 1e-9);
            assert_float_equal(res.idle[p - 1], (p - 1) * (pair + f + w - 3 * w), 1e-6);
            pp_sim_result_fini(&res);
        }
    }
}
