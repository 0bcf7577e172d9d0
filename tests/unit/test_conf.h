/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of conf share: a folder of their own, configs from text, the problem list. */
#ifndef PPCLI_TESTS_TEST_CONF_H
#define PPCLI_TESTS_TEST_CONF_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/conf/config.h"
#include "test.h"

static const char *const test_models[] = {"mlp", NULL};
static const char *const test_datasets[] = {"mnist", "mnist-sample", "fashion-mnist", "synthetic",
                                            NULL};
static const char *const test_schedules[] = {"naive", "gpipe", "1f1b", NULL};
static const char *const test_backends[] = {"auto", "cpu", "cuda", NULL};
static const char *const test_transports[] = {"auto", "threads", "mpi", "nccl", NULL};

static inline bool test_joins(const char *transport, bool processes)
{
    return strcmp(transport, processes ? "threads" : "mpi") != 0;
}

static const char *const test_help[] = {"naive", "slow", "gpipe", "holds - M", NULL};
static const struct pp_names test_names = {test_models, test_datasets, test_schedules,
                                           test_help,   test_backends, test_transports,
                                           test_joins,  NULL};

static char test_dir[PP_PATH_MAX]; /* absolute, current folder of the tests */

/* Group set-up: the tests' files are named t.ini, so that messages are short and exact. */
static inline int enter_test_dir(void **state)
{
    char fast[] = "/dev/shm/ppcli-conf-XXXXXX", usual[] = "/tmp/ppcli-conf-XXXXXX";
    const char *dir = mkdtemp(fast); /* thousands of small files */
    dir = dir ? dir : mkdtemp(usual);
    if (!dir || chdir(dir) != 0 || !getcwd(test_dir, sizeof(test_dir)))
        return -1;
    return 0;
}

static inline int leave_test_dir(void **state)
{
    unlink("t.ini");
    return chdir("/") != 0 || rmdir(test_dir) != 0 ? -1 : 0;
}

int main(void)
{
    return tests_run(enter_test_dir, leave_test_dir);
}

static inline void put_file(const char *name, const void *text, size_t bytes)
{
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline void put_text(const char *name, const char *text)
{
    put_file(name, text, strlen(text));
}

/* Load a file with settings "section.key=value" said as "--set"; NULL ends them. */
static inline int load_file(const char *path, struct pp_config **out, va_list args)
{
    static char keys[16][PP_NAME_MAX];
    struct pp_setting settings[16];
    int n = 0;
    for (const char *s = va_arg(args, const char *); s; s = va_arg(args, const char *)) {
        const char *equals = strchr(s, '=');
        assert_non_null(equals);
        snprintf(keys[n], sizeof(keys[n]), "%.*s", (int)(equals - s), s);
        settings[n] = (struct pp_setting){keys[n], equals + 1, "--set"};
        n++;
    }
    return pp_config_load(path, settings, n, &test_names, out);
}

static inline void show_problems(const struct pp_config *cfg)
{
    for (int i = 0; i < pp_config_problem_count(cfg); i++)
        print_message("# %s\n", pp_config_problem_text(cfg, i));
}

/* A config that must be good; text NULL: no file. The caller destroys it. */
static inline struct pp_config *good(const char *text, ...)
{
    struct pp_config *cfg = NULL;
    va_list args;
    if (text)
        put_text("t.ini", text);
    va_start(args, text);
    int rc = load_file(text ? "t.ini" : NULL, &cfg, args);
    va_end(args);
    if (rc != 0) {
        if (cfg)
            show_problems(cfg);
        fail_msg("'%s' gave %d: %s", text ? text : "(no file)", rc, pp_error_get()->text);
    }
    return cfg;
}

/* The problems of `bytes` bytes of config are exactly these lines (NULL ends them). */
static inline void bad_bytes(const void *text, size_t bytes, ...)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    va_list lines;
    put_file("t.ini", text, bytes);
    int rc = pp_config_load("t.ini", NULL, 0, &test_names, &cfg);
    CHECK_INT_EQ(rc, PP_ECONFIG);
    assert_non_null(cfg);
    va_start(lines, bytes);
    int n = 0;
    for (const char *s = va_arg(lines, const char *); s; s = va_arg(lines, const char *)) {
        if (n >= pp_config_problem_count(cfg)) {
            show_problems(cfg);
            fail_msg("%d problems, expected also '%s'", n, s);
        }
        CHECK_STR_EQ(pp_config_problem_text(cfg, n), s);
        n++;
    }
    va_end(lines);
    if (pp_config_problem_count(cfg) != n)
        show_problems(cfg);
    CHECK_INT_EQ(pp_config_problem_count(cfg), n);
}

#define BAD(text, ...) bad_bytes((text), strlen(text), __VA_ARGS__, NULL)

/* A config that must have a problem that contains `words`. */
static inline void refuses(const char *words, const char *text, ...)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    va_list args;
    if (text)
        put_text("t.ini", text);
    va_start(args, text);
    int rc = load_file(text ? "t.ini" : NULL, &cfg, args);
    va_end(args);
    CHECK_INT_EQ(rc, PP_ECONFIG);
    bool found = false;
    for (int i = 0; i < pp_config_problem_count(cfg); i++)
        found |= strstr(pp_config_problem_text(cfg, i), words) != NULL;
    if (!found) {
        show_problems(cfg);
        fail_msg("no problem says '%s'", words);
    }
}

/* Canonical text of a key. */
static inline const char *value_of(const struct pp_config *cfg, const char *key)
{
    static char text[PP_CONFIG_VALUE_MAX];
    for (int i = 0; i < pp_config_key_count(); i++) {
        if (strcmp(pp_config_key_name(i), key) == 0) {
            CHECK_OK(pp_config_key_value(cfg, i, text, sizeof(text)));
            return text;
        }
    }
    fail_msg("no key '%s'", key);
    return "";
}

#endif
