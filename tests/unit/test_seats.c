/* SPDX-License-Identifier: Apache-2.0 */
/* A run on devices that are made up: seats are taken, announced and refused before any is opened.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../../src/train/rank.h"
#include "../../src/runlog/parts.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "test.h"

#define GIB ((uint64_t)1 << 30)

static int n_devices = 2;
static uint64_t room = 8 * GIB;
static bool reach = true;

static int devices(struct pp_device *out, int max, int *n, char *why, size_t bytes)
{
    if (n_devices == 0) {
        snprintf(why, bytes, "no device");
        return PP_ERESOURCE;
    }
    for (int i = 0; i < n_devices && i < max; i++) {
        out[i] = (struct pp_device){.number = i, .processors = 132, .bytes = 16 * GIB};
        snprintf(out[i].name, sizeof(out[i].name), "Test GPU");
        snprintf(out[i].uuid, sizeof(out[i].uuid), "GPU-%d", i);
    }
    *n = n_devices;
    return 0;
}

static bool reaches(int from, int to)
{
    return reach || from == to;
}

static int free_bytes(int device, uint64_t *out)
{
    *out = room >> device; /* device 1 has half as much */
    return 0;
}

static size_t own_bytes(const struct pp_backend_choice *choice)
{
    (void)choice;
    return (size_t)64 << 20;
}

static const struct pp_backend_ops fake = {.name = "fake",
                                           .devices = devices,
                                           .reaches = reaches,
                                           .free_bytes = free_bytes,
                                           .own_bytes = own_bytes};

static struct pp_run run;
static struct pp_config *cfg;

/* A run of 4 stages with these settings, NULL ends them, up to where ranks would start. */
static int take(const char *const *settings)
{
    struct pp_setting list[8];
    static char keys[8][PP_NAME_MAX];
    int n = 0;
    for (; settings[n]; n++) {
        snprintf(keys[n], sizeof(keys[n]), "%.*s", (int)strcspn(settings[n], "="), settings[n]);
        list[n] = (struct pp_setting){keys[n], strchr(settings[n], '=') + 1, "test"};
    }
    CHECK_OK(pp_config_load(NULL, list, n, NULL, &cfg));
    CHECK_OK(pp_run_prepare(cfg, PP_RUN_EXPLAIN, &run));
    run.backend = &fake;
    return seats_take(&run, NULL);
}

static void leave(void)
{
    pp_run_fini(&run);
    pp_config_destroy(&cfg);
    n_devices = 2;
    room = 8 * GIB;
    reach = true;
}

#define FOUR "pipeline.stages=4", "model.sizes=784 512*4 10"

TEST(stages_are_dealt_to_devices_in_order)
{
    const char *settings[] = {FOUR, NULL};
    CHECK_OK(take(settings));
    for (int r = 0; r < 4; r++) {
        struct pp_backend_choice c = seats_choice(&run, r);
        CHECK_INT_EQ(c.device, r / 2);
        CHECK_INT_EQ(c.partitions, 0);
    }
    CHECK_STR_EQ(run.transport->name, "threads");
    leave();
}

TEST(partitions_and_the_order_of_devices_reach_the_backend)
{
    const char *settings[] = {FOUR, "run.devices=1 0", "run.partition_sms=on", "run.precision=bf16",
                              NULL};
    CHECK_OK(take(settings));
    for (int r = 0; r < 4; r++) {
        struct pp_backend_choice c = seats_choice(&run, r);
        CHECK_INT_EQ(c.device, 1 - r / 2);
        CHECK_INT_EQ(c.partition, r % 2);
        CHECK_INT_EQ(c.partitions, 2);
        CHECK_INT_EQ(c.precision, PP_PRECISION_BF16);
        assert_true(c.exact);
    }
    leave();
}

TEST(who_sits_where_is_written_down)
{
    const char *settings[] = {FOUR, "run.devices=1", NULL};
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(take(settings));
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    struct pp_json j = pp_json_begin(f, 0);
    seats_json(&run, "on", &j);
    pp_json_end(&j);
    fclose(f);
    assert_non_null(strstr(text, "\"graphs\":\"on\""));
    assert_non_null(
        strstr(text, "\"transport_why\":\"ranks are threads; messages pass by pointer\""));
    assert_non_null(strstr(text,
                           "{\"rank\":3,\"device\":1,\"name\":\"Test GPU\",\"uuid\":\"GPU-1\","
                           "\"sharing\":4,\"part\":0,\"parts\":0,"
                           "\"text\":\"fake:1 Test GPU (shared by 4 ranks)\"}"));
    free(text);
    leave();
}

TEST(ranks_on_the_processor_are_not_told_of_devices)
{
    const char *settings[] = {FOUR, NULL};
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(take(settings));
    pp_free(run.seats);
    CHECK_OK(pp_backend_resolve("cpu", &run.backend));
    CHECK_OK(seats_take(&run, NULL));
    CHECK_INT_EQ(run.seats[3].device.number, -1);
    CHECK_INT_EQ(seats_choice(&run, 3).partitions, 0);
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    struct pp_json j = pp_json_begin(f, 0);
    seats_json(&run, "on", &j);
    pp_json_end(&j);
    fclose(f);
    CHECK_STR_EQ(text, "{}\n");
    free(text);
    leave();
}

TEST(what_cannot_work_is_refused_before_a_device_is_opened)
{
    const char *absent[] = {FOUR, "run.devices=2", NULL};
    const char *plain[] = {FOUR, NULL};
    CHECK_FAILS(take(absent), PP_ERESOURCE, "run.devices");
    leave();
    n_devices = 0;
    CHECK_FAILS(take(plain), PP_ERESOURCE, "backend fake cannot run here: no device");
    leave();
}

TEST(devices_that_do_not_reach_each_other_and_are_shared_use_host_memory)
{
    const char *plain[] = {FOUR, NULL}, *named[] = {FOUR, "run.transport=threads", NULL};
    reach = false;
    CHECK_OK(take(plain));
    CHECK_STR_EQ(run.transport->name, "staged");
    leave();
    reach = false;
    CHECK_FAILS(take(named), PP_ERESOURCE, "device 0 of rank 0 does not reach the memory of");
    leave();
}

TEST(a_device_that_is_too_small_is_refused_with_both_numbers)
{
    const char *settings[] = {FOUR, NULL}, *forced[] = {FOUR, "run.force_memory=on", NULL};
    struct pp_train_options options = {.out = stdout};
    CHECK_OK(take(settings));
    CHECK_OK(fit_check(&run, &options, NULL));
    leave();
    room = 8 << 20; /* 8 MiB, and 4 MiB on the other */
    CHECK_OK(take(settings));
    CHECK_FAILS(fit_check(&run, &options, NULL), PP_ERESOURCE,
                "the 2 ranks on device 0 (Test GPU) need 0.1");
    assert_non_null(strstr(pp_error_get()->text, "but 0.01 of 16.00 GiB are free"));
    CHECK_FAILS(fit_check_devices(&run, 3), PP_ERESOURCE, "the 2 ranks on device 1");
    leave();
    room = 8 << 20;
    CHECK_OK(take(forced));
    CHECK_OK(fit_check(&run, &options, NULL));
    leave();
}
