/* SPDX-License-Identifier: Apache-2.0 */
/* Trace events: valid lines, exact times, and what a file is worth whose end is missing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/sim/sim.h"
#include "ppcli/sim/trace.h"
#include "test.h"

static char *text;
static size_t bytes;

static FILE *page(void)
{
    FILE *f = open_memstream(&text, &bytes);
    assert_non_null(f);
    return f;
}

static int tidy(void **state)
{
    free(text);
    text = NULL;
    return 0;
}

#define TEST_TIDY(name) TEST_AROUND(name, NULL, tidy)

static const struct pp_chrome_head head = {
    .version = "1.2.3", .schedule = "file:a \"b\".csv", .stages = 2, .microbatches = 4, .ranks = 2};

static const struct pp_chrome_args none = {.step = -1, .stage = -1, .chunk = -1, .microbatch = -1};

static void check_has(const char *words)
{
    if (!strstr(text, words))
        fail_msg("no '%s' in:\n%s", words, text);
}

TEST_TIDY(the_first_event_says_what_the_file_is)
{
    FILE *f = page();
    struct pp_chrome c;
    struct pp_chrome_head h = head;
    h.offset_ns = (const int64_t[]){0, -1234567};
    h.error_ns = (const int64_t[]){0, 900};
    pp_chrome_open(&c, f, &h);
    pp_chrome_close(&c);
    fclose(f);
    CHECK_STR_EQ(text,
                 "[\n{\"name\":\"ppcli\",\"ph\":\"M\",\"pid\":0,\"args\":{\"schema\":1,"
                 "\"kind\":\"measured\",\"ppcli\":\"1.2.3\",\"schedule\":\"file:a \\\"b\\\".csv\","
                 "\"stages\":2,\"microbatches\":4,\"clock_offset_ns\":[0,-1234567],"
                 "\"clock_error_ns\":[0,900]}}\n]\n");
}

TEST_TIDY(times_are_exact_to_the_nanosecond)
{
    FILE *f = page();
    struct pp_chrome c;
    pp_chrome_open(&c, f, &head);
    struct pp_chrome_args a = {.step = 7, .stage = 1, .chunk = 0, .microbatch = 3, .eval = true};
    pp_chrome_slice(&c, 1, PP_EVENT_RECV, "recv", 9007199254740993, 9007199254740994, &a);
    pp_chrome_slice(&c, 1, PP_EVENT_UPDATE, "update", 5, 1005, &none);
    pp_chrome_close(&c);
    fclose(f);
    check_has(",{\"name\":\"recv\",\"cat\":\"recv\",\"ph\":\"X\",\"pid\":1,\"tid\":2,"
              "\"ts\":9007199254740.993,\"dur\":0.001,\"args\":{\"eval\":1,\"step\":7,\"stage\":1,"
              "\"chunk\":0,\"microbatch\":3}}\n");
    check_has("\"tid\":0,\"ts\":0.005,\"dur\":1.000,\"args\":{\"eval\":0}}\n");
    CHECK_INT_EQ(c.slices, 2);
}

TEST_TIDY(what_lies_before_the_start_is_cut_off)
{
    FILE *f = page();
    struct pp_chrome c;
    pp_chrome_open(&c, f, &head);
    pp_chrome_slice(&c, 0, PP_EVENT_F, "F0", -2000, -1000, &none);
    pp_chrome_slice(&c, 0, PP_EVENT_F, "F1", -1000, 3000, &none);
    pp_chrome_close(&c);
    fclose(f);
    assert_null(strstr(text, "F0"));
    check_has("\"name\":\"F1\",\"cat\":\"F\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"ts\":0.000,"
              "\"dur\":3.000");
}

TEST_TIDY(every_kind_has_its_track)
{
    static const int expected[PP_EVENT_KINDS] = {
        [PP_EVENT_SEND] = PP_CHROME_SEND,
        [PP_EVENT_SLOT] = PP_CHROME_SEND,
        [PP_EVENT_RECV] = PP_CHROME_RECV,
        [PP_EVENT_RELEASE] = PP_CHROME_RECV,
    };
    for (int kind = 0; kind < PP_EVENT_KINDS; kind++)
        CHECK_INT_EQ(pp_chrome_track_of(kind), expected[kind]);
    char name[PP_CHROME_NAME_MAX];
    CHECK_STR_EQ(pp_chrome_name(name, 'F', false, 5, 3), "F3");
    CHECK_STR_EQ(pp_chrome_name(name, 'W', true, 5, 3), "5W3");
}

/* Every line but the brackets is one whole object, after its comma. */
TEST_TIDY(a_file_cut_at_any_line_is_valid_up_to_there)
{
    FILE *f = page();
    struct pp_chrome c;
    pp_chrome_open(&c, f, &head);
    pp_chrome_process(&c, 10001, "rank \"1\"\n");
    pp_chrome_slice(&c, 0, PP_EVENT_SEND, "send", 0, 10, &none);
    pp_chrome_arrow(&c, true, 18446744073709551615u, 0, PP_CHROME_SEND, 0);
    pp_chrome_arrow(&c, false, 18446744073709551615u, 1, PP_CHROME_RECV, 20);
    pp_chrome_live(&c, 1, 30, "bytes", 4096);
    pp_chrome_close(&c);
    fclose(f);
    check_has("{\"name\":\"rank \\\"1\\\"\\n\"}");
    check_has("\"ph\":\"s\",\"id\":18446744073709551615,\"pid\":0,\"tid\":1,\"ts\":0.000}\n");
    check_has("\"ph\":\"f\",\"bp\":\"e\",\"id\":18446744073709551615,\"pid\":1,\"tid\":2,");
    check_has("{\"name\":\"live activations\",\"ph\":\"C\",\"pid\":1,\"tid\":0,\"ts\":0.030,"
              "\"args\":{\"bytes\":4096}}\n");
    int n = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), n++) {
        size_t last = strlen(line) - 1;
        if (n == 0) {
            CHECK_STR_EQ(line, "[");
        } else if (strcmp(line, "]") != 0) {
            CHECK_INT_EQ(strncmp(line, n == 1 ? "{\"" : ",{\"", n == 1 ? 2 : 3), 0);
            CHECK_INT_EQ(line[last], '}');
        }
    }
    CHECK_INT_EQ(n, 1 + 1 + 8 + 4 + 1);
}

TEST(what_reaches_the_disk_are_whole_lines)
{
    char path[] = "chrome-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    char buffer[8192];
    assert_int_equal(setvbuf(f, buffer, _IOFBF, sizeof(buffer)), 0);
    struct pp_chrome c;
    pp_chrome_open(&c, f, &head);
    assert_int_equal(fflush(f), 0);
    c.flush_at = 4096;
    pp_chrome_process(&c, 0, "rank 0");
    for (int k = 0; k < 200; k++) {
        pp_chrome_slice(&c, 0, PP_EVENT_F, "F0", k, k + 1, &none);
        /* what another program sees now */
        FILE *seen = fopen(path, "r");
        assert_non_null(seen);
        char last = '\n';
        if (fseek(seen, -1, SEEK_END) == 0)
            last = (char)fgetc(seen);
        CHECK_INT_EQ(last, '\n');
        long size = (assert_int_equal(fseek(seen, 0, SEEK_END), 0), ftell(seen));
        assert_true(ftell(f) - size < 4096);
        fclose(seen);
    }
    fclose(f);
    unlink(path);
}
