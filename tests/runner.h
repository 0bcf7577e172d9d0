/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TEST(what_holds) { ... } is a test of its program. They run in the order in which they stand: a
 * program has a main() only where something else has to be done, too.
 */
#ifndef PPCLI_TESTS_RUNNER_H
#define PPCLI_TESTS_RUNNER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define TESTS_MAX 64 /* of a program */

/* set_up and tear_down: as cmocka's, NULL: none. */
#define TEST_AROUND(name, set_up, tear_down)                                                       \
    static void name(void **state);                                                                \
    __attribute__((constructor)) static void name##_joins(void)                                    \
    {                                                                                              \
        test_join(__COUNTER__, #name, name, set_up, tear_down);                                    \
    }                                                                                              \
    static void name(void **state __attribute__((unused)))
#define TEST(name) TEST_AROUND(name, NULL, NULL)

/* Those without a function are none. */
extern struct CMUnitTest tests_joined[TESTS_MAX];
void test_join(int number, const char *name, CMUnitTestFunction test, CMFixtureFunction set_up,
               CMFixtureFunction tear_down);

/* Run them all, with `before` and `after` around the whole (NULL: nothing); main's result. */
int tests_run(CMFixtureFunction before, CMFixtureFunction after);

#endif
