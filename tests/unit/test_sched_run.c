/* SPDX-License-Identifier: Apache-2.0 */
/* Plans carried out in random interleavings of their ranks: no slot aliases, nobody hangs. */
#include "test_sched_sim.h"

TEST(schedules_run_in_any_interleaving)
{
    static const char *const plain[] = {"naive", "gpipe", "1f1b", NULL};
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 16; m++) {
            for (const char *const *name = plain; *name; name++) {
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(*name, p, m);
                run_in_all_ways(plan);
            }
        }
    }
}

TEST(lists_of_other_schedules_run_in_any_interleaving)
{
    static const char *const names[] = {
        "2-eager 1f1b",      "zb-h1", "zb-h2", "interleaved v2", "interleaved v4",
        "interleaved-zb v2", "zb-v"};
    for (size_t i = 0; i < LEN(names); i++) {
        for (int p = 1; p <= 5; p++) {
            for (int m = p; m <= 3 * p; m += p) {
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = plan_named(names[i], p, m);
                run_in_all_ways(plan);
            }
        }
    }
}

TEST(forward_only_plans_run_in_any_interleaving)
{
    for (int p = 1; p <= 5; p++) {
        for (int v = 1; v <= 3; v++) {
            for (int m = 1; m <= 12; m++) {
                struct pp_geometry g = {.stages = p, .chunks = v, .microbatches = m};
                PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
                CHECK_OK(pp_plan_build_eval(&g, m % 2 ? PP_PLACE_LOOP : PP_PLACE_V, &plan));
                run_in_all_ways(plan);
            }
        }
    }
}
