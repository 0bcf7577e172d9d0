/* SPDX-License-Identifier: Apache-2.0 */
#include "runner.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

struct CMUnitTest tests_joined[TESTS_MAX];

void test_join(int number, const char *name, CMUnitTestFunction test, CMFixtureFunction set_up,
               CMFixtureFunction tear_down)
{
    if (number >= TESTS_MAX || tests_joined[number].name) /* a number is free once in a program */
        abort();
    tests_joined[number] = (struct CMUnitTest){name, test, set_up, tear_down, NULL};
}

/* Lines of TAP. What follows a "not ok", the place and both values, goes to standard error too: meson
 * shows no comments of TAP. */
struct report {
    FILE *out;
    char line[1024];
    size_t n;
    bool has_failed;
};

static void pass_line(struct report *r)
{
    r->line[r->n] = '\0';
    if (r->line[0] != '#')
        r->has_failed = strncmp(r->line, "not ok", strlen("not ok")) == 0;
    fputs(r->line, r->out);
    if (r->has_failed)
        fputs(r->line, stderr);
    r->n = 0;
}

static ssize_t report_lines(void *cookie, const char *bytes, size_t n)
{
    struct report *r = cookie;
    for (size_t i = 0; i < n; i++) {
        r->line[r->n++] = bytes[i];
        if (bytes[i] == '\n' || r->n == sizeof(r->line) - 1)
            pass_line(r);
    }
    return fflush(r->out) == 0 ? (ssize_t)n : 0;
}

static void show_failures(void)
{
    static struct report report;
    const char *form = getenv("CMOCKA_MESSAGE_OUTPUT");
    FILE *f = form && strcmp(form, "TAP") == 0
                  ? fopencookie(&report, "w", (cookie_io_functions_t){.write = report_lines})
                  : NULL;
    if (!f)
        return;
    report.out = stdout;
    setvbuf(f, NULL, _IOLBF, BUFSIZ);
    stdout = f;
}

int tests_run(CMFixtureFunction before, CMFixtureFunction after)
{
    show_failures();
    return cmocka_run_group_tests(tests_joined, before, after);
}

/* Of programs that have none. */
__attribute__((weak)) int main(void)
{
    return tests_run(NULL, NULL);
}
