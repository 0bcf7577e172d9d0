/* SPDX-License-Identifier: Apache-2.0 */
/* What every test file needs, and checks that show both values. */
#ifndef PPCLI_TESTS_TEST_H
#define PPCLI_TESTS_TEST_H

#include <string.h>

#include "ppcli/base/base.h"
#include "../runner.h"

/* cmocka 1.1.5 reports skip() as "not ok ... # SKIP", which TAP readers, meson's too, count as a
 * failure. A test that cannot judge here says why (print_message) and leaves. */
#undef skip
#define skip() return

#define CHECK_INT_EQ(a, b) assert_int_equal((a), (b))
#define CHECK_STR_EQ(a, b) assert_string_equal((a), (b))

/* Elements of an array. */
#define LEN(a) (sizeof(a) / sizeof((a)[0]))
#define COUNT(a) (int)LEN(a)

/* rc is 0, else the recorded error is shown. */
#define CHECK_OK(expr)                                                                             \
    do {                                                                                           \
        int check_rc_ = (expr);                                                                    \
        if (check_rc_ < 0) {                                                                       \
            fail_msg("%s: %s", #expr, pp_error_get()->text);                                       \
        }                                                                                          \
    } while (0)

/* Failed with `code` and said a text that contains `words`. */
#define CHECK_FAILS(expr, code, words)                                                             \
    do {                                                                                           \
        int check_rc_ = (expr);                                                                    \
        assert_int_equal(check_rc_, (code));                                                       \
        if (!strstr(pp_error_get()->text, (words))) {                                              \
            fail_msg("%s said '%s', expected '%s' in it", #expr, pp_error_get()->text, (words));   \
        }                                                                                          \
    } while (0)

#endif
