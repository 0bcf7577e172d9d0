/* SPDX-License-Identifier: Apache-2.0 */
#include "runner.h"

#include <stdlib.h>

struct CMUnitTest tests_joined[TESTS_MAX];

void test_join(int number, const char *name, CMUnitTestFunction test, CMFixtureFunction set_up,
               CMFixtureFunction tear_down)
{
    if (number >= TESTS_MAX || tests_joined[number].name) /* a number is free once in a program */
        abort();
    tests_joined[number] = (struct CMUnitTest){name, test, set_up, tear_down, NULL};
}

int tests_run(CMFixtureFunction before, CMFixtureFunction after)
{
    return cmocka_run_group_tests(tests_joined, before, after);
}

/* Of programs that have none. */
__attribute__((weak)) int main(void)
{
    return tests_run(NULL, NULL);
}
