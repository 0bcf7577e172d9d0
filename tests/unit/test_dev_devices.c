/* SPDX-License-Identifier: Apache-2.0 */
/* Who sits where, on made-up machines: devices dealt out, shared, cut into parts, connected. */
#include <stdio.h>

#include "../../src/dev/devices.h"
#include "test.h"

static struct pp_device device(int number, const char *uuid)
{
    struct pp_device d = {.number = number, .processors = 132, .bytes = 1000};
    snprintf(d.name, sizeof(d.name), "Test GPU");
    snprintf(d.uuid, sizeof(d.uuid), "%s", uuid);
    return d;
}

static struct pp_seat seat(uint64_t host, int process, int number, const char *uuid)
{
    return (struct pp_seat){.host = host, .process = process, .device = device(number, uuid)};
}

TEST(ranks_get_a_device_each_while_there_are_enough)
{
    for (int i = 0; i < 4; i++) {
        CHECK_INT_EQ(pp_devices_deal(4, i, 4), i);
        CHECK_INT_EQ(pp_devices_deal(8, i, 4), i);
    }
}

TEST(with_fewer_devices_neighbours_share_and_every_device_is_used)
{
    static const int two[] = {0, 0, 1, 1}, three[] = {0, 0, 0, 1, 1, 2, 2};
    for (int i = 0; i < 4; i++) {
        CHECK_INT_EQ(pp_devices_deal(2, i, 4), two[i]);
        CHECK_INT_EQ(pp_devices_deal(1, i, 4), 0);
    }
    for (int i = 0; i < 7; i++)
        CHECK_INT_EQ(pp_devices_deal(3, i, 7), three[i]);
    for (int n = 1; n <= 9; n++) {
        for (int ranks = n; ranks <= 40; ranks++) {
            int taken[9] = {0}, last = 0;
            for (int i = 0; i < ranks; i++) {
                int d = pp_devices_deal(n, i, ranks);
                assert_true(d >= last && d <= last + 1 && d < n);
                last = d;
                taken[d]++;
            }
            for (int d = 0; d < n; d++)
                assert_in_range(taken[d], ranks / n, (ranks + n - 1) / n);
        }
    }
}

TEST(run_devices_picks_in_the_order_given)
{
    const struct pp_device there[] = {device(0, "a"), device(1, "b"), device(2, "c")};
    const int wanted[] = {2, 0}, absent[] = {1, 3};
    struct pp_device out[PP_DEVICES_MAX];
    int n = 0;
    CHECK_OK(pp_devices_pick(there, 3, wanted, 2, out, &n));
    CHECK_INT_EQ(n, 2);
    CHECK_STR_EQ(out[0].uuid, "c");
    CHECK_STR_EQ(out[1].uuid, "a");
    CHECK_OK(pp_devices_pick(there, 3, NULL, 0, out, &n));
    CHECK_INT_EQ(n, 3);
    CHECK_STR_EQ(out[2].uuid, "c");
    CHECK_FAILS(pp_devices_pick(there, 3, absent, 2, out, &n), PP_ERESOURCE, "run.devices");
    CHECK_FAILS(pp_devices_pick(there, 1, absent, 2, out, &n), PP_ERESOURCE, "run.devices");
}

TEST(a_device_with_a_problem_is_passed_over_unless_it_is_named)
{
    struct pp_device there[] = {device(0, "a"), device(1, "b"), device(2, "c")};
    struct pp_device out[PP_DEVICES_MAX];
    const int wanted[] = {1, 0};
    int n = 0;
    snprintf(there[0].problem, sizeof(there[0].problem), "too old");
    CHECK_OK(pp_devices_pick(there, 3, NULL, 0, out, &n));
    CHECK_INT_EQ(n, 2);
    CHECK_INT_EQ(out[0].number, 1);
    CHECK_OK(pp_devices_pick(there, 3, wanted, 1, out, &n));
    CHECK_FAILS(pp_devices_pick(there, 3, wanted, 2, out, &n), PP_ERESOURCE,
                "run.devices: device 0 (Test GPU) cannot be used: too old");
}

TEST(a_backend_of_the_processor_has_no_devices)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    const struct pp_backend_ops *cpu = NULL;
    struct pp_device out[PP_DEVICES_MAX];
    int n = -1;
    CHECK_OK(pp_config_load(NULL, NULL, 0, NULL, &cfg));
    CHECK_OK(pp_backend_resolve("cpu", &cpu));
    CHECK_OK(pp_devices_find(cpu, cfg, out, &n));
    CHECK_INT_EQ(n, 0);
}

TEST(threads_of_one_process_share_a_device_in_parts_when_asked)
{
    char text[128];
    struct pp_seat s[3] = {seat(1, 0, 0, "a"), seat(1, 0, 0, "a"), seat(1, 0, 1, "b")};
    CHECK_OK(pp_seats_settle(s, 3, false));
    CHECK_INT_EQ(s[0].sharing, 2);
    CHECK_INT_EQ(s[0].parts, 0);
    CHECK_INT_EQ(s[1].processes, 1);
    CHECK_STR_EQ(pp_seat_describe(&s[1], "cuda", text, sizeof(text)),
                 "cuda:0 Test GPU (shared by 2 ranks)");
    CHECK_OK(pp_seats_settle(s, 3, true));
    CHECK_INT_EQ(s[0].part, 0);
    CHECK_INT_EQ(s[1].part, 1);
    CHECK_INT_EQ(s[1].parts, 2);
    CHECK_INT_EQ(s[2].parts, 0); /* it is alone on its device */
    CHECK_STR_EQ(pp_seat_describe(&s[1], "cuda", text, sizeof(text)),
                 "cuda:0 Test GPU (part 2 of 2)");
    CHECK_STR_EQ(pp_seat_describe(&s[2], "cuda", text, sizeof(text)), "cuda:1 Test GPU");
}

TEST(a_device_is_known_by_its_uuid_whatever_its_number)
{
    /* each process sees one device as number 0, as under srun --gpus-per-task=1 */
    struct pp_seat own[2] = {seat(1, 0, 0, "a"), seat(1, 1, 0, "b")};
    CHECK_OK(pp_seats_settle(own, 2, true));
    CHECK_INT_EQ(own[0].sharing, 1);
    CHECK_INT_EQ(own[1].sharing, 1);
    /* two containers that count differently, with host names of their own */
    struct pp_seat one[2] = {seat(1, 0, 0, "a"), seat(2, 1, 1, "a")};
    CHECK_OK(pp_seats_settle(one, 2, false));
    CHECK_INT_EQ(one[0].sharing, 2);
    CHECK_INT_EQ(one[1].processes, 2);
    CHECK_FAILS(pp_seats_settle(one, 2, true), PP_ECONFIG, "run.partition_sms");
    /* drivers that give no name */
    struct pp_seat bare[3] = {seat(1, 0, 0, ""), seat(1, 1, 0, ""), seat(2, 2, 0, "")};
    CHECK_OK(pp_seats_settle(bare, 3, false));
    CHECK_INT_EQ(bare[0].sharing, 2);
    CHECK_INT_EQ(bare[2].sharing, 1);
}

TEST(a_rank_on_the_processor_has_no_device)
{
    struct pp_seat s[2] = {seat(1, 0, -1, ""), seat(1, 1, -1, "")};
    char text[64];
    CHECK_OK(pp_seats_settle(s, 2, false));
    CHECK_INT_EQ(s[0].sharing, 0);
    CHECK_STR_EQ(pp_seat_describe(&s[0], "cpu", text, sizeof(text)), "cpu");
}

TEST(the_host_has_one_id)
{
    assert_true(pp_host_id() == pp_host_id());
    assert_true(pp_host_id() != 0);
}
