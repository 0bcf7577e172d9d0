/* SPDX-License-Identifier: Apache-2.0 */
/* The processors of a large machine, made up here: its kernel knows 2,000 and refuses smaller sets. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/base/cores.h"
#include "ppcli/base/base.h"
#include "test.h"

enum {
    THERE = 2000, /* processors of the machine, of which this process may use some */
    FIRST = 500,
    BYTES = THERE / 8
};

static unsigned char mask[BYTES];
static size_t asked_bytes; /* of the last set that was given */
static int refused;        /* if not 0, the errno that there is instead */

int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    errno = refused ? refused : EINVAL;
    if (refused || bytes < BYTES)
        return -1;
    memset(set, 0, bytes);
    memcpy(set, mask, BYTES);
    return 0;
}

/* As the kernel: processors that are not there are left out. */
int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
    asked_bytes = bytes;
    memset(mask, 0, BYTES);
    memcpy(mask, set, bytes < BYTES ? bytes : BYTES);
    return 0;
}

static int bind_from(void **state)
{
    memset(mask, 0, BYTES);
    for (int c = FIRST; c < THERE; c++)
        mask[c / 8] |= (unsigned char)(1 << c % 8);
    refused = 0;
    return 0;
}

static void cpus_above_1024_are_seen(void **state)
{
    struct pp_cpu_mask mine;
    assert_true(pp_mask_get(&mine));
    CHECK_INT_EQ(pp_mask_count(&mine), THERE - FIRST);
    assert_false(pp_mask_has(&mine, FIRST - 1));
    assert_true(pp_mask_has(&mine, FIRST) && pp_mask_has(&mine, THERE - 1));
    assert_false(pp_mask_has(&mine, THERE));
}

static void the_whole_machine_is_seen_and_the_binding_comes_back(void **state)
{
    static int cores[PP_MACHINE_CORES_MAX];
    CHECK_INT_EQ(pp_machine_cores(false, cores, PP_MACHINE_CORES_MAX), THERE - FIRST);
    CHECK_INT_EQ(cores[0], FIRST);
    CHECK_INT_EQ(cores[THERE - FIRST - 1], THERE - 1);
    CHECK_INT_EQ(pp_machine_cores(true, cores, PP_MACHINE_CORES_MAX), THERE);
    CHECK_INT_EQ(cores[0], 0);
    CHECK_INT_EQ(pp_machine_cores(false, cores, PP_MACHINE_CORES_MAX), THERE - FIRST);
    CHECK_INT_EQ(pp_machine_cores(false, cores, 7), 7);
}

static void ranks_get_processors_above_1024(void **state)
{
    PP_OWN(pp_places_fini) struct pp_places places = {0};
    CHECK_OK(pp_places_make(&(struct pp_places_spec){.ranks = 1500, .threads = 1}, &places));
    assert_false(places.crowded);
    CHECK_INT_EQ(pp_places_of(&places, 1499)[0], THERE - 1);
}

static void a_system_that_does_not_tell_has_at_least_one(void **state)
{
    int core = 7;
    refused = ENOSYS;
    struct pp_cpu_mask mine;
    assert_false(pp_mask_get(&mine));
    CHECK_INT_EQ(pp_mask_count(&mine), 0);
    assert_true(pp_machine_mask(false, &mine) >= 1);
    asked_bytes = 0;
    CHECK_INT_EQ(pp_machine_cores(true, &core, 1), 1);
    CHECK_INT_EQ(asked_bytes, 0);
    CHECK_INT_EQ(core, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(cpus_above_1024_are_seen, bind_from),
        cmocka_unit_test_setup(the_whole_machine_is_seen_and_the_binding_comes_back, bind_from),
        cmocka_unit_test_setup(ranks_get_processors_above_1024, bind_from),
        cmocka_unit_test_setup(a_system_that_does_not_tell_has_at_least_one, bind_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
