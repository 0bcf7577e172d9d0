/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of sends and receives under what transports promise: the known truths. */
#include "ppcli/exchange.h"
#include "test_sched_lists.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static struct pp_plan *build(const char *name, int p, int v, int m)
{
    struct pp_geometry g = {.stages = p, .chunks = v, .microbatches = m};
    struct pp_plan *plan = NULL;
    CHECK_OK(pp_plan_build(name, &g, &plan));
    return plan;
}

/* Calls look() for the plans of all schedules of p <= 8, m <= 16, up to 3 chunks. */
static int look_at_all(void (*look)(const char *name, const struct pp_plan *plan))
{
    int n = 0;
    for (const char *const *name = pp_schedule_names(); *name; name++) {
        for (int p = 1; p <= 8; p++) {
            for (int v = 1; v <= 3; v++) {
                for (int m = 1; m <= 16; m++) {
                    struct pp_geometry g = {.stages = p, .chunks = v, .microbatches = m};
                    struct pp_plan *plan = NULL;
                    if (pp_plan_build(*name, &g, &plan) == PP_ECONFIG) {
                        continue;
                    }
                    assert_non_null(plan);
                    look(*name, plan);
                    pp_plan_destroy(&plan);
                    n++;
                }
            }
        }
    }
    print_message("# %d plans\n", n);
    assert_true(n > 1500);
    return n;
}

static void must_be_safe(const char *name, const struct pp_plan *plan, enum pp_comm_order order,
                         enum pp_guarantee guarantee)
{
    if (pp_plan_prove_transport(plan, order, guarantee, 1) < 0) {
        fail_msg("%s p%d v%d m%d, order %d, guarantee %d: %s", name, plan->geometry.stages,
                 plan->geometry.chunks, plan->geometry.microbatches, order, guarantee,
                 pp_error_get()->text);
    }
}

static void look_lowered(const char *name, const struct pp_plan *plan)
{
    must_be_safe(name, plan, PP_COMM_LOWERED, PP_SEND_SYNCHRONOUS);
    must_be_safe(name, plan, PP_COMM_LOWERED, PP_SEND_GROUPED);
}

static void torchs_lowering_needs_no_buffers(void **state)
{
    (void)state;
    look_at_all(look_lowered);
}

static void look_preposted(const char *name, const struct pp_plan *plan)
{
    must_be_safe(name, plan, PP_COMM_PREPOSTED, PP_SEND_SYNCHRONOUS);
    if (plan->geometry.chunks == 1) {
        must_be_safe(name, plan, PP_COMM_PREPOSTED, PP_SEND_GROUPED);
    }
}

static void the_executors_order_needs_no_buffers(void **state)
{
    (void)state;
    look_at_all(look_preposted);
    for (int p = 1; p <= 5; p++) {
        for (int m = 1; m <= 10; m++) {
            struct pp_geometry g = {.stages = p, .chunks = 1 + m % 3, .microbatches = m};
            struct pp_plan *plan = NULL;
            CHECK_OK(pp_plan_build_eval(&g, PP_PLACE_LOOP, &plan));
            look_preposted("forward only", plan);
            look_lowered("forward only", plan);
            pp_plan_destroy(&plan);
        }
    }
}

static int least_buffers(const struct pp_plan *plan, enum pp_comm_order order)
{
    struct pp_comms comms;
    int k = -1;
    CHECK_OK(pp_comms_build(plan, order, &comms));
    CHECK_OK(pp_comms_least_buffers(plan, &comms, &k));
    pp_comms_fini(&comms);
    return k;
}

static void one_f_one_b_as_first_written_hangs_without_buffers(void **state)
{
    (void)state;
    struct pp_plan *plan = build("1f1b", 2, 1, 2);
    CHECK_FAILS(pp_plan_prove_transport(plan, PP_COMM_AT_USE, PP_SEND_SYNCHRONOUS, 0), PP_EFORMAT,
                "with synchronous sends these ranks wait for each other: rank 0 waits in 0SEND_F1 "
                "for rank 1 to come to 1RECV_F1; rank 1 waits in 1SEND_B0 for rank 0 to come to "
                "0RECV_B0");
    /* 0SEND_F1 and 0RECV_B0 stand together, 1SEND_B0 and 1RECV_F1 too */
    CHECK_OK(pp_plan_prove_transport(plan, PP_COMM_AT_USE, PP_SEND_GROUPED, 0));
    CHECK_OK(pp_plan_prove_transport(plan, PP_COMM_AT_USE, PP_SEND_BUFFERED, 1));
    pp_plan_destroy(&plan);
    for (int p = 2; p <= 8; p++) {
        for (int m = 1; m <= 16; m++) {
            plan = build("1f1b", p, 1, m);
            CHECK_INT_EQ(least_buffers(plan, PP_COMM_AT_USE), m == 1 ? 0 : 1);
            CHECK_INT_EQ(least_buffers(plan, PP_COMM_LOWERED), 0);
            pp_plan_destroy(&plan);
            plan = build("gpipe", p, 1, m);
            CHECK_INT_EQ(least_buffers(plan, PP_COMM_AT_USE), 0);
            pp_plan_destroy(&plan);
        }
    }
}

static void running_ahead_and_chunks_cost_buffers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int v, p4m8, p8m16;
    } table[] = {
        {"zb-h1", 1, 1, 1},          {"zb-h2", 1, 1, 1},      {"interleaved", 2, 1, 1},
        {"interleaved-zb", 2, 2, 4}, {"looped-bfs", 2, 2, 2}, {"zb-v", 2, 1, 1},
    };
    for (size_t i = 0; i < LEN(table); i++) {
        struct pp_plan *small = build(table[i].name, 4, table[i].v, 8);
        struct pp_plan *large = build(table[i].name, 8, table[i].v, 16);
        print_message("# %s\n", table[i].name);
        CHECK_INT_EQ(least_buffers(small, PP_COMM_AT_USE), table[i].p4m8);
        CHECK_INT_EQ(least_buffers(large, PP_COMM_AT_USE), table[i].p8m16);
        pp_plan_destroy(&small);
        pp_plan_destroy(&large);
    }
}

static void no_buffers_and_no_lists_are_refused(void **state)
{
    (void)state;
    struct pp_plan *plan = build("1f1b", 2, 1, 2);
    CHECK_FAILS(pp_plan_prove_transport(plan, PP_COMM_AT_USE, PP_SEND_BUFFERED, 0), PP_ECONFIG,
                "0 buffers per channel: there must be at least 1");
    struct pp_comms comms = {0};
    pp_comms_fini(&comms);
    CHECK_FAILS(pp_comms_prove(plan, &comms, PP_SEND_SYNCHRONOUS, 0), PP_EFORMAT,
                "0 lists for 2 ranks");
    pp_plan_destroy(&plan);
}

static void a_long_circle_is_cut(void **state)
{
    (void)state;
    struct pp_plan *plan = build("interleaved", 20, 2, 1);
    struct pp_comms comms;
    CHECK_OK(pp_comms_build(plan, PP_COMM_AT_USE, &comms));
    CHECK_OK(pp_comms_prove(plan, &comms, PP_SEND_SYNCHRONOUS, 0));
    /* 0F0,0SEND_F0,20RECV_F0: rank 0 now wants its second chunk's input before it sends the first's
     * output, which goes through all ranks */
    struct pp_comm *cells = comms.ranks[0].cells;
    CHECK_INT_EQ(cells[1].kind, PP_COMM_SEND);
    CHECK_INT_EQ(cells[2].kind, PP_COMM_RECV);
    struct pp_comm send = cells[1];
    cells[1] = cells[2];
    cells[2] = send;
    CHECK_FAILS(pp_comms_prove(plan, &comms, PP_SEND_SYNCHRONOUS, 0), PP_EFORMAT,
                "rank 0 waits in 20RECV_F0 for rank 19 to come to 19SEND_F0; rank 19 waits in "
                "19RECV_F0 for rank 18 to come to 18SEND_F0");
    CHECK_FAILS(pp_comms_prove(plan, &comms, PP_SEND_BUFFERED, 3), PP_EFORMAT, "; and 4 more");
    CHECK_OK(pp_comms_prove(plan, &comms, PP_SEND_GROUPED, 0));
    int k;
    CHECK_FAILS(pp_comms_least_buffers(plan, &comms, &k), PP_EFORMAT, "wait for each other");
    pp_comms_fini(&comms);
    pp_plan_destroy(&plan);
}

static void posted_receives_of_chunks_need_tags(void **state)
{
    (void)state;
    /* a channel's first receives are posted before the next channel's */
    struct pp_plan *plan = build("interleaved", 2, 2, 4);
    CHECK_OK(pp_plan_prove_transport(plan, PP_COMM_PREPOSTED, PP_SEND_SYNCHRONOUS, 0));
    CHECK_FAILS(pp_plan_prove_transport(plan, PP_COMM_PREPOSTED, PP_SEND_GROUPED, 0), PP_EFORMAT,
                "grouped messages have no tags, two ranks must send and take them in one order");
    pp_plan_destroy(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torchs_lowering_needs_no_buffers),
        cmocka_unit_test(the_executors_order_needs_no_buffers),
        cmocka_unit_test(one_f_one_b_as_first_written_hangs_without_buffers),
        cmocka_unit_test(running_ahead_and_chunks_cost_buffers),
        cmocka_unit_test(posted_receives_of_chunks_need_tags),
        cmocka_unit_test(no_buffers_and_no_lists_are_refused),
        cmocka_unit_test(a_long_circle_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
