/* SPDX-License-Identifier: Apache-2.0 */
/* Text to value: every type's good, bad and overflowing values, ${VAR}, paths, precedence. */
#include "test_conf.h"

#include <locale.h>
#include <math.h>
#include <sys/stat.h>

static void check_value(const char *setting, const char *expected)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = good(NULL, setting, NULL);
    char key[PP_NAME_MAX];
    snprintf(key, sizeof(key), "%.*s", (int)strcspn(setting, "="), setting);
    CHECK_STR_EQ(value_of(cfg, key), expected);
}

TEST(whole_numbers_take_decimal_and_binary_suffixes)
{
    check_value("train.max_steps=1k", "1000");
    check_value("train.max_steps=2Ki", "2048");
    check_value("train.max_steps=3M", "3000000");
    check_value("train.max_steps=3Mi", "3145728");
    check_value("train.max_steps=1G", "1000000000");
    check_value("train.max_steps=1Gi", "1073741824");
    check_value("train.max_steps=+007", "7");
    check_value("train.max_steps=-0", "0");
    check_value("train.seed=18446744073709551615", "18446744073709551615");
    check_value("train.batch_size=1Gi", "1073741824");
}

TEST(sizes_are_what_users_write)
{
    static const struct {
        const char *text;
        size_t bytes;
    } sizes[] = {{"1K", 1000},           {"1k", 1000},          {"1KB", 1000},
                 {"1Ki", 1024},          {"2KiB", 2048},        {"0.5G", 500000000},
                 {"1.5Gi", 3u << 29},    {"1e9", 1000000000},   {"2.5e-1M", 250000},
                 {"4GiB", 1ull << 32},   {"512m", 512000000},   {"1g", 1000000000},
                 {"2TB", 2000000000000}, {"1000000B", 1000000}, {".5k", 500}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char setting[64], expected[32];
        size_t bytes = 0;
        snprintf(setting, sizeof(setting), "run.memory=%s", sizes[i].text);
        snprintf(expected, sizeof(expected), "%zu", sizes[i].bytes);
        check_value(setting, expected);
        assert_true(pp_bytes_parse(sizes[i].text, &bytes));
        CHECK_INT_EQ(bytes, sizes[i].bytes);
    }
    static const char *const bad[] = {"1x",  "4GiBB", "B",  "Ki",  "0x10",
                                      "1_0", "1 k",   "1e", "inf", "1Gb"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char setting[64];
        size_t bytes = 7;
        snprintf(setting, sizeof(setting), "run.memory=%s", bad[i]);
        refuses("is not a size; write bytes such as 500M, 0.5G, 4GiB or 1e9", NULL, setting, NULL);
        assert_false(pp_bytes_parse(bad[i], &bytes));
        CHECK_INT_EQ(bytes, 7);
    }
    check_value("run.memory=0", "0");
    refuses("-1k is out of range; write 0 to 1000000000000000 bytes", NULL, "run.memory=-1k", NULL);
    refuses("2P is out of range", NULL, "run.memory=2P", NULL);
}

TEST(what_is_not_a_whole_number_is_refused)
{
    static const char *const values[] = {
        "abc", "12abc", "0x10", "1e3", "5.0",   "1K", "1 k", "--1", "+",  "1Kib", "1ki",
        "1,5", "nan",   "1_0",  "1kk", "\"1\"", "k",  "-",   "٣",   "1.", "1Ki0", NULL};
    for (int i = 0; values[i]; i++) {
        char setting[64];
        snprintf(setting, sizeof(setting), "train.epochs=%s", values[i]);
        refuses("is not a whole number; write digits, perhaps with k, M, G, Ki, Mi or Gi (1 to "
                "1000000 epochs)",
                NULL, setting, NULL);
    }
}

TEST(whole_numbers_out_of_range_are_refused_with_range_and_unit)
{
    refuses("--set: error: train.epochs: 0 is out of range; write 1 to 1000000 epochs", NULL,
            "train.epochs=0", NULL);
    refuses("-1 is out of range", NULL, "train.epochs=-1", NULL);
    refuses("2147483648 is out of range", NULL, "data.train_samples=2147483648", NULL);
    refuses("4294967297 is out of range", NULL, "train.epochs=4294967297", NULL);
    refuses("99999999999999999999 is out of range", NULL, "train.epochs=99999999999999999999",
            NULL);
    refuses("9223372036854775808 is out of range", NULL, "train.max_steps=9223372036854775808",
            NULL);
    refuses("18446744073709551617 is out of range", NULL, "train.max_steps=18446744073709551617",
            NULL);
    refuses("18446744073709551615G is out of range", NULL, "train.max_steps=18446744073709551615G",
            NULL);
    refuses("18446744073709551616 is out of range", NULL, "train.seed=18446744073709551616", NULL);
    refuses("-1 is out of range; write 0 to 18446744073709551615", NULL, "train.seed=-1", NULL);
    refuses("2Gi is out of range", NULL, "train.batch_size=2Gi", NULL);
}

TEST(floats_are_decimal_and_keep_their_bits)
{
    check_value("train.lr=0.1", "0.1");
    check_value("train.lr=.5", "0.5");
    check_value("train.lr=5.", "5");
    check_value("train.lr=1E-3", "0.001");
    check_value("train.lr=+2e+1", "20");
    check_value("train.lr=-0.0", "0");
    check_value("train.lr=0e9", "0");
    check_value("train.lr=0.30000000000000004", "0.30000000000000004");
    check_value("train.lr=1.1754944e-38", "1.1754944e-38"); /* the smallest normal float */
}

TEST(what_is_not_a_float_is_refused)
{
    static const char *const values[] = {"nan", "inf",  "-inf", "infinity", "0x1p3", "1e",
                                         "e5",  "1e+",  ".",    "1.2.3",    "1 2",   "1k",
                                         "abc", "0.1f", "--1",  "1e5.0",    "0,5,1", NULL};
    for (int i = 0; values[i]; i++) {
        char setting[64];
        snprintf(setting, sizeof(setting), "train.lr=%s", values[i]);
        refuses("is not a number; write one such as 0.001 or 1e-3", NULL, setting, NULL);
    }
    refuses("train.lr: '0,5' is not a number; write 0.5", NULL, "train.lr=0,5", NULL);
}

/* Processors count what is below the smallest normal float as 0: an eps of 1e-39 gave NaN. */
TEST(floats_that_compute_as_0_are_refused)
{
    static const char *const zero[] = {"train.lr",           "train.momentum",
                                       "train.beta1",        "train.beta2",
                                       "train.weight_decay", "train.clip_norm",
                                       "model.dropout",      "train.label_smoothing",
                                       "data.mean",          NULL};
    static const char *const above[] = {"train.eps",      "model.norm_eps", "model.norm_momentum",
                                        "train.lr_gamma", "data.std",       NULL};
    char setting[64], expected[128];
    for (int i = 0; zero[i]; i++) {
        snprintf(setting, sizeof(setting), "%s=1.1e-38", zero[i]);
        snprintf(expected, sizeof(expected),
                 "%s: 1.1e-38 is too small for a float, which would make it 0; write 0, or "
                 "1.18e-38 or more",
                 zero[i]);
        refuses(expected, NULL, setting, NULL);
    }
    for (int i = 0; above[i]; i++) {
        snprintf(setting, sizeof(setting), "%s=1e-39", above[i]);
        snprintf(expected, sizeof(expected),
                 "%s: 1e-39 is too small for a float, which would make "
                 "it 0; write 1.18e-38 or more",
                 above[i]);
        refuses(expected, NULL, setting, NULL);
    }
    check_value("train.eps=1.18e-38", "1.18e-38");
    check_value("train.weight_decay=0", "0");
}

TEST(floats_out_of_range_are_refused)
{
    refuses("1e400 is out of range", NULL, "train.lr=1e400", NULL);
    refuses("-1e400 is out of range", NULL, "train.lr=-1e400", NULL);
    refuses("1e-400 is too small for a float", NULL, "train.lr=1e-400", NULL);
    refuses("1e-310 is too small for a float", NULL, "train.lr=1e-310", NULL);
    refuses("-1e-400 is too small", NULL, "train.lr=-1e-400", NULL);
    refuses("1 is out of range; write a number at least 0, below 1", NULL, "train.beta1=1", NULL);
    refuses("0.99999999 is out of range", NULL, "train.beta2=0.99999999", NULL); /* 1 as a float */
    refuses("0 is out of range; write a number above 0, at most 1", NULL, "train.eps=0", NULL);
    refuses("0 is out of range; write none | 1 to 1024 numbers, each above 0", NULL, "data.std=1 0",
            NULL);
    check_value("train.eps=1", "1");
    check_value("train.beta1=0", "0");
}

TEST(durations_take_a_unit_and_are_kept_in_seconds)
{
    check_value("run.hang_timeout=90", "90s");
    check_value("run.hang_timeout=90s", "90s");
    check_value("run.hang_timeout=1.5m", "90s");
    check_value("run.hang_timeout=500ms", "0.5s");
    check_value("run.hang_timeout=200 ms", "0.2s");
    check_value("run.hang_timeout=2h", "7200s");
    check_value("run.hang_timeout=0", "0s");
    check_value("run.hang_timeout=0h", "0s");
}

TEST(what_is_not_a_duration_is_refused)
{
    static const char *const values[] = {"s",  "ms",  "1d",  "1 2s", "-5s",   "0x5s", "1,5s",
                                         "1M", "5sm", "nan", "infs", "5 s s", NULL};
    for (int i = 0; values[i]; i++) {
        char setting[64];
        snprintf(setting, sizeof(setting), "run.hang_timeout=%s", values[i]);
        refuses("is not a duration; write a number and ms, s, m or h, such as 90s", NULL, setting,
                NULL);
    }
    refuses("100ms is out of range; write 0, or 0.2s to 604800s", NULL, "run.hang_timeout=100ms",
            NULL);
    refuses("1000h is out of range", NULL, "run.hang_timeout=1000h", NULL);
}

TEST(devices_are_numbers_and_ranges_in_the_order_given)
{
    check_value("run.devices=auto", "auto");
    check_value("run.devices=0", "0");
    check_value("run.devices=1 0", "1 0");
    check_value("run.devices=0,1", "0 1");
    check_value("run.devices=7 , 0-2", "7 0-2");
    check_value("run.devices=4-5", "4 5");
    check_value("run.devices=0-63", "0-63");
    check_value("run.devices=2 3 4 9", "2-4 9");
}

TEST(what_is_not_a_list_of_devices_is_refused)
{
    static const char *const values[] = {"gpu0",  "-1",    "64",  "1-",          "3-2",
                                         "0x1",   "1 - 2", "1;2", "all",         "0,,1",
                                         "0-1-2", "+1",    "1k",  "99999999999", NULL};
    for (int i = 0; values[i]; i++) {
        char setting[64];
        snprintf(setting, sizeof(setting), "run.devices=%s", values[i]);
        refuses("is not a device; write auto, or numbers and ranges of 0 to 63 such as 0 2-3", NULL,
                setting, NULL);
    }
    refuses("run.devices: nothing after the last comma", NULL, "run.devices=1,", NULL);
    refuses("run.devices: device 2 is given twice; write each once", NULL, "run.devices=0-2 2",
            NULL);
}

/* A config that is written holds it, and has no quotes. */
TEST(a_free_name_must_be_possible_in_a_file)
{
    check_value("data.label=kind#1;", "kind#1;");
    refuses("data.label: the name 'kind #1' cannot be written in an INI file because of ' #'", NULL,
            "data.label=kind #1", NULL);
    refuses("data.label: the name '#' cannot be written", NULL, "data.label=#", NULL);
    refuses("data.label: the name 'a ;b' cannot be written", NULL, "data.label=a ;b", NULL);
    refuses("data.label: byte 2 (0xe9) is not UTF-8", NULL, "data.label=a\xe9", NULL);
}

TEST(floats_are_a_list_or_none)
{
    check_value("data.mean=0.4914 0.4822, 0.4465", "0.4914 0.4822 0.4465");
    check_value("data.mean=-1e-3", "-0.001");
    check_value("data.mean=none", "none");
    check_value("data.std=3e38", "3e+38"); /* all that a float may be */
    refuses("data.std: 0 is out of range", NULL, "data.std=0.2 0", NULL);
    refuses("data.mean: 'x' is not a number", NULL, "data.mean=0.5 x", NULL);
    refuses("data.mean: nothing after the last comma", NULL, "data.mean=0.5,", NULL);
    char many[32 + 2 * 1025] = "data.mean=";
    for (int i = 0; i < 1025; i++)
        strcat(many, "1 ");
    refuses("data.mean: more than 1024 numbers", NULL, many, NULL);
}

TEST(a_comma_locale_changes_nothing)
{
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE",
                                          NULL};
    bool found = false;
    for (int i = 0; locales[i] && !found; i++)
        found = setlocale(LC_NUMERIC, locales[i]) != NULL;
    if (!found) {
        print_message("# skipped: no locale with a decimal comma is installed\n");
        skip();
    }
    check_value("train.lr=0.25", "0.25");
    refuses("write 0.5", NULL, "train.lr=0,5", NULL);
    setlocale(LC_NUMERIC, "C");
}

TEST(choices_and_names_are_exact_and_suggest)
{
    check_value("model.activation=gelu", "gelu");
    check_value("train.optimizer=adamw", "adamw");
    check_value("pipeline.schedule=gpipe", "gpipe");
    refuses("unknown 'admaw'; did you mean 'adamw'? write ", NULL, "train.optimizer=admaw", NULL);
    refuses("unknown 'ReLU'; did you mean 'relu'?", NULL, "model.activation=ReLU", NULL);
    refuses("unknown 'resnet'; write mlp", NULL, "model.type=resnet", NULL);
    refuses("data.dataset: unknown 'mnist-smaple'; did you mean 'mnist-sample'?", NULL,
            "data.dataset=mnist-smaple", NULL);
    refuses("run.backend: no value; write auto | cpu | cuda", NULL, "run.backend=", NULL);
    struct pp_config *cfg = NULL; /* without lists any name goes, but never a cut one */
    char name[80];
    memset(name, 'n', 79);
    name[79] = '\0';
    struct pp_setting s = {"run.backend", name, "--backend"};
    CHECK_INT_EQ(pp_config_load(NULL, &s, 1, NULL, &cfg), PP_ECONFIG);
    assert_non_null(strstr(pp_config_problem_text(cfg, 0), "is 79 bytes; a name has at most 63"));
    pp_config_destroy(&cfg);
}

TEST(sizes_take_blanks_commas_and_repeats)
{
    check_value("model.sizes=784 512 256 10", "784 512 256 10");
    check_value("model.sizes=784,512, 256 ,10", "784 512 256 10");
    check_value("model.sizes=  784\t10 ", "784 10");
    check_value("model.sizes=784 1024*16 10", "784 1024*16 10");
    check_value("model.sizes=5 5 5 5", "5*4");
    check_value("model.sizes=1k*2 10", "1000*2 10");
    struct pp_config *cfg = good(NULL, "model.sizes=1*4096 2", NULL);
    CHECK_INT_EQ(cfg->model.n_sizes, 4097);
    CHECK_INT_EQ(cfg->model.sizes[4096], 2);
    pp_config_destroy(&cfg);
    cfg = good(NULL, "model.sizes=1*4096 2", "model.sizes=3 2", NULL);
    CHECK_INT_EQ(cfg->model.n_sizes, 2);
    CHECK_INT_EQ(cfg->model.sizes[2], 0);
    pp_config_destroy(&cfg);
}

TEST(bad_sizes_are_refused)
{
    static const char *const values[] = {
        "784 0 10",  "784 -5 10", "784 x 10",     "784 1024*0 10", "784 8*-2 10",
        "784 8* 10", "784 *8 10", "784 8*2*2 10", "16777217 10",   "784 5.5 10",
        "784;10",    "1e3 10",    "784 8 * 2 10", "784|10",        "99999999999999999999 10",
        NULL};
    for (int i = 0; values[i]; i++) {
        char setting[64];
        snprintf(setting, sizeof(setting), "model.sizes=%s", values[i]);
        refuses("is not a size; write whole numbers of 1 to 16777216, a repeat as 1024*16 without "
                "blanks",
                NULL, setting, NULL);
    }
    refuses("1 number: needs at least two", NULL, "model.sizes=784", NULL);
    refuses("a comma without a number before it", NULL, "model.sizes=784,,10", NULL);
    refuses("a comma without a number before it", NULL, "model.sizes=,784 10", NULL);
    refuses("nothing after the last comma", NULL, "model.sizes=784 10,", NULL);
    refuses("more than 4097 sizes", NULL, "model.sizes=1*4097 2", NULL);
    refuses("more than 4097 sizes", NULL, "model.sizes=1*18446744073709551615 2", NULL);
}

TEST(variables_are_expanded_or_refused)
{
    setenv("PPCLI_TEST_LR", "0.25", 1);
    setenv("PPCLI_TEST_EMPTY", "", 1);
    setenv("PPCLI_TEST_BAD", "1\n[run]", 1);
    setenv("PPCLI_TEST_DOLLAR", "${PPCLI_TEST_LR}", 1);
    unsetenv("PPCLI_TEST_NONE");
    check_value("train.lr=${PPCLI_TEST_LR}", "0.25");
    check_value("train.lr=${PPCLI_TEST_NONE:-0.5}", "0.5");
    check_value("train.lr=${PPCLI_TEST_EMPTY:-0.5}", "0.5");
    check_value("train.lr=${PPCLI_TEST_LR:-0.5}", "0.25");
    check_value("train.lr=1${PPCLI_TEST_EMPTY}2${PPCLI_TEST_NONE:-}3", "123");
    check_value("run.dir=/$x/$", "/$x/$");
    refuses("train.lr: environment variable PPCLI_TEST_NONE is not set; set it or write "
            "${PPCLI_TEST_NONE:-default}",
            NULL, "train.lr=${PPCLI_TEST_NONE}", NULL);
    refuses("environment variable PPCLI_TEST_BAD: control byte 0x0a", NULL,
            "train.lr=${PPCLI_TEST_BAD}", NULL);
    refuses("train.lr: no value", NULL, "train.lr=${PPCLI_TEST_EMPTY}", NULL);
    refuses("'${PPCLI_TEST_LR' has no closing '}'", NULL, "train.lr=${PPCLI_TEST_LR", NULL);
    refuses("'${}' is not understood; write ${NAME} or ${NAME:-default}", NULL, "train.lr=${}",
            NULL);
    refuses("'${1A}' is not understood", NULL, "train.lr=${1A}", NULL);
    refuses("'${A-b}' is not understood", NULL, "train.lr=${A-b}", NULL);
    refuses("'${A:b}' is not understood", NULL, "train.lr=${A:b}", NULL);
    refuses("'${PPCLI_TEST_LR}' is not a number", NULL, "train.lr=${PPCLI_TEST_DOLLAR}", NULL);
    refuses("t.ini:2: error: train.lr: environment variable PPCLI_TEST_NONE",
            "[train]\nlr = ${PPCLI_TEST_NONE}\n", NULL);

    PP_OWN_MEMORY char *big = malloc(70001);
    memset(big, '1', 70000);
    big[70000] = '\0';
    setenv("PPCLI_TEST_BIG", big, 1);
    refuses("the value is too long: at most 65535 bytes", NULL, "train.lr=${PPCLI_TEST_BIG}", NULL);
    big[65535] = '\0';
    setenv("PPCLI_TEST_BIG", big, 1);
    refuses("the value is too long", NULL, "train.lr=${PPCLI_TEST_BIG}1", NULL);
    refuses("the path is 65", NULL, "run.dir=${PPCLI_TEST_BIG}", NULL);
    unsetenv("PPCLI_TEST_BIG");
}

TEST(relative_paths_start_at_the_folder_of_the_file)
{
    char expected[PP_PATH_MAX], absolute[PP_PATH_MAX];
    struct pp_config *cfg = NULL;
    struct pp_setting s = {"run.dir", "./here", "--dir"};
    assert_int_equal(mkdir("sub", 0700), 0);
    put_text("sub/my run.v2.ini", "[data]\npath = .//x/../y\n[run]\ndir = .\n");

    CHECK_OK(pp_config_load("sub/my run.v2.ini", NULL, 0, &test_names, &cfg));
    CHECK_OK(pp_path_format(expected, "%s/sub/x/../y", test_dir));
    CHECK_STR_EQ(cfg->data.path, expected);
    CHECK_OK(pp_path_format(expected, "%s/sub", test_dir));
    CHECK_STR_EQ(cfg->run.dir, expected);
    CHECK_STR_EQ(pp_config_name(cfg), "my run.v2");
    pp_config_destroy(&cfg);

    CHECK_OK(pp_path_format(absolute, "%s/sub/my run.v2.ini", test_dir));
    CHECK_OK(pp_config_load(absolute, &s, 1, &test_names, &cfg));
    CHECK_OK(pp_path_format(expected, "%s/here", test_dir)); /* settings: the current folder */
    CHECK_STR_EQ(cfg->run.dir, expected);
    CHECK_OK(pp_path_format(expected, "%s/sub/x/../y", test_dir));
    CHECK_STR_EQ(cfg->data.path, expected);
    pp_config_destroy(&cfg);
    unlink("sub/my run.v2.ini");
    rmdir("sub");
}

TEST(words_and_empty_paths_stay_what_they_are)
{
    struct pp_config *cfg = good("[data]\npath =\n[run]\ndir = auto\n", NULL);
    CHECK_STR_EQ(cfg->data.path, "");
    CHECK_STR_EQ(cfg->run.dir, "auto");
    pp_config_destroy(&cfg);
    cfg = good("[run]\ndir =\n", NULL);
    CHECK_STR_EQ(cfg->run.dir, "");
    pp_config_destroy(&cfg);
    cfg = good(NULL, "run.dir=./auto", NULL);
    assert_true(cfg->run.dir[0] == '/');
    pp_config_destroy(&cfg);
    cfg = good(NULL, NULL);
    CHECK_STR_EQ(pp_config_name(cfg), "run");
    pp_config_destroy(&cfg);
}

TEST(paths_that_cannot_be_written_down_are_refused)
{
    refuses("run.dir: '~' is not expanded; write ${HOME}/runs", NULL, "run.dir=~/runs", NULL);
    refuses("cannot be written in an INI file because of ' ;'", NULL, "run.dir=/a ;b", NULL);
    refuses("cannot be written in an INI file because of ' #'", NULL, "run.dir=/a #b", NULL);
    refuses("control byte 0x0a", NULL, "run.dir=/a\nb", NULL);
    refuses("not UTF-8", NULL, "run.dir=/a\xFF", NULL);
    setenv("PPCLI_TEST_DOLLAR", "/a/${x}", 1);
    refuses("because of '${'", NULL, "run.dir=${PPCLI_TEST_DOLLAR}", NULL);
}

TEST(settings_win_over_the_file_and_the_file_over_defaults)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    const struct pp_setting settings[] = {{"train.lr", "0.3", "--set"},
                                          {"pipeline.stages", "3", "--stages"},
                                          {"train.lr", "0.4", "--set"}};
    put_text("t.ini", "[train]\nlr = 0.2\nepochs = 9\n");
    CHECK_OK(pp_config_load("t.ini", settings, 3, &test_names, &cfg));
    CHECK_STR_EQ(value_of(cfg, "train.lr"), "0.4");
    CHECK_STR_EQ(pp_config_origin(cfg, "train.lr"), "--set");
    CHECK_INT_EQ(cfg->pipeline.stages, 3);
    CHECK_STR_EQ(pp_config_origin(cfg, "pipeline.stages"), "--stages");
    CHECK_INT_EQ(cfg->train.epochs, 9);
    CHECK_STR_EQ(pp_config_origin(cfg, "train.epochs"), "t.ini:3");
    CHECK_STR_EQ(pp_config_origin(cfg, "train.seed"), "default");
}

TEST(settings_are_checked_like_the_file_and_listed_after_it)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    const struct pp_setting settings[] = {{"pipeline.stages", "x", "--stages"},
                                          {"lr", "1", "--set"},
                                          {"train.lrr", "1", "--set"},
                                          {"train.lr", " 0.5 ", "--set"}};
    put_text("t.ini", "[train]\nlr = y\n");
    CHECK_INT_EQ(pp_config_load("t.ini", settings, 4, &test_names, &cfg), PP_ECONFIG);
    CHECK_INT_EQ(pp_config_problem_count(cfg), 4);
    CHECK_STR_EQ(pp_config_problem_text(cfg, 0),
                 "t.ini:2: error: train.lr: 'y' is not a number; write one such as 0.001 or 1e-3 "
                 "(0 to 1000)");
    CHECK_STR_EQ(pp_config_problem_text(cfg, 1),
                 "--stages: error: pipeline.stages: 'x' is not a whole number; write digits, "
                 "perhaps with k, M, G, Ki, Mi or Gi (1 to 1024 stages)");
    CHECK_STR_EQ(pp_config_problem_text(cfg, 2),
                 "--set: error: unknown key 'lr'; did you mean 'train.lr'? (ppcli keys)");
    CHECK_STR_EQ(pp_config_problem_text(cfg, 3),
                 "--set: error: unknown key 'train.lrr'; did you mean 'train.lr'? (ppcli keys)");
    CHECK_STR_EQ(value_of(cfg, "train.lr"), "0.5");
}
