/* SPDX-License-Identifier: Apache-2.0 */
/* The INI dialect: every way in which libinih alone would misread a file, and the line numbers. */
#include "test_conf.h"

#include <fcntl.h>
#include <sys/stat.h>

TEST(a_line_of_any_length_is_one_key)
{
    char text[1024], x[400];
    memset(x, 'x', 192);
    strcpy(x + 192, "lr = 99");
    snprintf(text, sizeof(text), "[train]\nnote = %s\nepochs = 3\n", x);
    BAD(text, "t.ini:2: error: unknown key 'note' in [train] (ppcli keys train)");
    snprintf(text, sizeof(text), "[train]\n%.192s%.192s = 3\n", x, x);
    BAD(text, "t.ini:2: error: unknown key "
              "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' in [train] (ppcli "
              "keys train)");
    /* at and around the length of libinih's buffer, no byte may be lost */
    for (int n = 190; n < 210; n++) {
        snprintf(text, sizeof(text), "[model]\n  sizes = 7,%*d ; comment\n[train]\nseed = 5\n",
                 n - 10, 156789);
        PP_OWN(pp_config_destroy) struct pp_config *cfg = good(text, NULL);
        CHECK_INT_EQ(cfg->model.sizes[1], 156789);
        CHECK_INT_EQ(cfg->train.seed, 5);
    }
}

TEST(long_comments_are_no_problem)
{
    char text[8192];
    memset(text, 'c', sizeof(text));
    text[0] = '#';
    strcpy(text + 5000, "\n[train]\nlr = 0.5\n");
    PP_OWN(pp_config_destroy) struct pp_config *cfg = good(text, NULL);
    CHECK_STR_EQ(value_of(cfg, "train.lr"), "0.5");
    CHECK_STR_EQ(pp_config_origin(cfg, "train.lr"), "t.ini:3");
}

TEST(indented_keys_are_keys)
{
    struct pp_config *cfg = good("[train]\nepochs = 3\n  lr = 0.1\n\t seed=9\n", NULL);
    CHECK_INT_EQ(cfg->train.epochs, 3);
    CHECK_STR_EQ(value_of(cfg, "train.lr"), "0.1");
    CHECK_STR_EQ(value_of(cfg, "train.seed"), "9");
    pp_config_destroy(&cfg);
    BAD("[model]\nsizes = 784\n  512 10\n",
        "t.ini:2: error: model.sizes: 1 number: needs at least two, inputs and classes, such as "
        "784 10",
        "t.ini:3: error: '512 10' has no '='; write 'key = value'");
}

TEST(hash_inside_a_line_is_an_error_with_a_hint)
{
    BAD("# fine\n[train] # no\n  # fine\nlr = 0.1 # half\nepochs = 3 ; see #7 # there\n",
        "t.ini:2: error: '#' begins a comment only at the start of a line; write '; no'",
        "t.ini:4: error: '#' begins a comment only at the start of a line; write '; half'");
    PP_OWN(pp_config_destroy) struct pp_config *cfg = good("[run]\ndir = /x/a#b;c\n", NULL);
    CHECK_STR_EQ(cfg->run.dir, "/x/a#b;c");
}

TEST(semicolons_begin_comments_at_the_start_or_after_a_blank)
{
    struct pp_config *cfg = good(";a = b\n  ; c\n[train] ; the = sign\nlr = 0.25\t;x\n", NULL);
    CHECK_STR_EQ(value_of(cfg, "train.lr"), "0.25");
    pp_config_destroy(&cfg);
    BAD("[train];x\nlr = 1;x\nepochs ; = 3\n",
        "t.ini:1: error: text after ']': ';x'; move it to its own line",
        "t.ini:2: error: train.lr: '1;x' is not a number; write one such as 0.001 or 1e-3 (0 to "
        "1000)",
        "t.ini:3: error: 'epochs' has no '='; write 'key = value'");
}

TEST(keys_below_a_broken_header_do_not_fall_into_the_section_before)
{
    BAD("[model]\n[train\nlr = 0.1\ntype = mlp\n",
        "t.ini:2: error: section header '[train' has no ']'",
        "t.ini:4: error: 'type' does not belong in [train] but in [model] (ppcli keys model)");
    BAD("[train]\nlr = 1\n[zzzzzz\nlr = 2\nanything = goes\n",
        "t.ini:3: error: section header '[zzzzzz' has no ']'",
        "t.ini:3: error: unknown section [zzzzzz]; the sections are [data] [model] [pipeline] "
        "[train] [checkpoint] [run] (ppcli keys)");
}

TEST(section_names_are_exact)
{
    BAD("[ train ]\nlr = 0.1\n[Train]\n[]\n[trainx] y\n",
        "t.ini:1: error: blanks inside '[ train ]'; write [train]",
        "t.ini:3: error: unknown section [Train]; did you mean [train]? (ppcli keys)",
        "t.ini:4: error: unknown section []; the sections are [data] [model] [pipeline] [train] "
        "[checkpoint] [run] (ppcli keys)",
        "t.ini:5: error: text after ']': 'y'; move it to its own line",
        "t.ini:5: error: unknown section [trainx]; did you mean [train]? (ppcli keys)");
}

TEST(a_long_section_name_is_not_cut_to_a_known_one)
{
    refuses("t.ini:1: error: unknown section "
            "[trainxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...]",
            "[trainxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx]\n"
            "lr = 1\n",
            NULL);
}

TEST(an_empty_unknown_section_is_seen_and_an_empty_known_one_is_fine)
{
    BAD("[output]\n", "t.ini:1: error: unknown section [output]; the sections are [data] [model] "
                      "[pipeline] [train] [checkpoint] [run] (ppcli keys)");
    struct pp_config *cfg = good("[train]\n[run]\n[train]\nlr = 2", NULL);
    CHECK_STR_EQ(value_of(cfg, "train.lr"), "2");
    pp_config_destroy(&cfg);
    cfg = good("", NULL);
    CHECK_STR_EQ(pp_config_origin(cfg, "train.lr"), "default");
    pp_config_destroy(&cfg);
}

TEST(duplicates_name_both_lines)
{
    BAD("[train]\nlr = 1\n\n[run]\n[train]\nlr = 1\nlr = x\n",
        "t.ini:6: error: duplicate key 'lr' in [train]: line 2 has it already",
        "t.ini:7: error: duplicate key 'lr' in [train]: line 2 has it already");
}

TEST(empty_names_missing_equals_and_colons_are_errors)
{
    BAD("[train]\n= 3\nlr\nlr: 0.1\nlr :=0.1\nlr =\n", "t.ini:2: error: no key before '= 3'",
        "t.ini:3: error: 'lr' has no '='; write 'key = value'",
        "t.ini:4: error: ':' does not separate key and value; write 'lr = 0.1'",
        "t.ini:5: error: ':' does not separate key and value; write 'lr = 0.1'",
        "t.ini:6: error: train.lr: no value; write 0 to 1000");
    PP_OWN(pp_config_destroy) struct pp_config *cfg = good("[run]\ndir = /a:b=c\n", NULL);
    CHECK_STR_EQ(cfg->run.dir, "/a:b=c");
}

TEST(bytes_that_are_no_text_are_errors_with_their_line)
{
    static const char nul[] = "[train]\nlr = 0.1\0 2\n\nepochs = 3\n\0";
    bad_bytes(nul, sizeof(nul) - 1, "t.ini:2: error: NUL byte at byte 9; is this a text file?",
              "t.ini:5: error: NUL byte at byte 1; is this a text file?", NULL);
    BAD("; caf\xE9\n[train]\rlr = 1\n; \x1B[31m\n; \xC0\xAF \n; \xED\xA0\x80\n",
        "t.ini:1: error: byte 6 (0xe9) is not UTF-8; save the text as UTF-8",
        "t.ini:2: error: control byte 0x0d at byte 8; delete it",
        "t.ini:3: error: control byte 0x1b at byte 3; delete it",
        "t.ini:4: error: byte 3 (0xc0) is not UTF-8; save the text as UTF-8",
        "t.ini:5: error: byte 3 (0xed) is not UTF-8; save the text as UTF-8");
    static const char utf16[] = "\xFF\xFE[\0t\0r\0a\0i\0n\0]\0\n\0";
    bad_bytes(utf16, sizeof(utf16) - 1, "t.ini:1: error: the file is UTF-16; save it as UTF-8",
              NULL);
}

TEST(byte_order_mark_and_crlf_are_fine)
{
    struct pp_config *cfg =
        good("\xEF\xBB\xBF[train]\r\nlr = 0.5 \r\n\r\nepochs=7 ; caf\xC3\xA9\r\n", NULL);
    CHECK_STR_EQ(value_of(cfg, "train.lr"), "0.5");
    CHECK_STR_EQ(pp_config_origin(cfg, "train.epochs"), "t.ini:4");
    pp_config_destroy(&cfg);
    BAD("\xEF\xBB\xBF\xEF\xBB\xBF[train]\n",
        "t.ini:1: error: byte order mark at byte 1; delete it (only the file's first bytes may be "
        "one)");
}

TEST(unknown_keys_get_the_nearest_known_one)
{
    BAD("[pipeline]\nmicro_batchs = 4\nlr = 1\nwidth = 3\n[train]\nLR = 1\n",
        "t.ini:2: error: unknown key 'micro_batchs' in [pipeline]; did you mean 'microbatches'? "
        "(ppcli keys pipeline)",
        "t.ini:3: error: 'lr' does not belong in [pipeline] but in [train] (ppcli keys train)",
        "t.ini:4: error: unknown key 'width' in [pipeline] (ppcli keys pipeline)",
        "t.ini:6: error: unknown key 'LR' in [train]; did you mean 'lr'? (ppcli keys train)");
    BAD("lr = 1\nfoo = 2\n", "t.ini:1: error: 'lr' is before any section; it belongs under [train]",
        "t.ini:2: error: 'foo' is before any section; every key belongs to one");
}

TEST(a_key_longer_than_the_librarys_buffer_is_not_taken_for_a_short_one)
{
    char text[256] = "[train]\n";
    memset(text + strlen(text), 'l', 60);
    strcat(text, "lr = 1\n");
    refuses("t.ini:2: error: unknown key 'lllll", text, NULL);
}

TEST(all_kinds_of_problems_are_found_in_one_pass_in_file_order)
{
    BAD("[pipeline]\nassignment = 0 | 1 ; of two\nschedule = 1f1c\n[train]\nlr = -1\n"
        "batch_size = 2\n[data\n",
        "t.ini:2: error: pipeline.assignment: 2 ranges for 1 stage; write one for each stage, or "
        "pipeline.stages = 2",
        "t.ini:3: error: pipeline.schedule: unknown '1f1c'; did you mean '1f1b'? write auto | "
        "naive | "
        "gpipe | 1f1b",
        "t.ini:5: error: train.lr: -1 is out of range; write a number 0 to 1000",
        "t.ini:6: error: train.batch_size: each of 1 replica has 2 samples of a batch of 2, too "
        "few for 4 micro-batches; use pipeline.microbatches = 2 or fewer, or train.batch_size = 4 "
        "or more",
        "t.ini:7: error: section header '[data' has no ']'");
    CHECK_STR_EQ(pp_error_get()->text, "t.ini: 5 problems");
}

TEST(thousands_of_problems_are_counted_and_the_list_is_capped)
{
    char *text = calloc(5000, 8);
    for (int i = 0; i < 5000; i++)
        memcpy(text + 3 * i, "x\n\n", 3);
    put_file("t.ini", text, 15000);
    free(text);
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    CHECK_FAILS(pp_config_load("t.ini", NULL, 0, &test_names, &cfg), PP_ECONFIG,
                "t.ini: 5000 problems");
    CHECK_INT_EQ(pp_config_problem_count(cfg), 1000);
    CHECK_STR_EQ(pp_config_problem_text(cfg, 999),
                 "t.ini:1999: error: 'x' has no '='; write 'key = value'");
}

TEST(a_file_of_more_than_a_mebibyte_is_refused)
{
    size_t bytes = (1 << 20) + 1;
    char *text = malloc(bytes);
    memset(text, '\n', bytes);
    put_file("t.ini", text, bytes);
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    CHECK_FAILS(pp_config_load("t.ini", NULL, 0, &test_names, &cfg), PP_ENOINPUT,
                "no config: t.ini: more than 1048576 bytes");
    put_file("t.ini", text, bytes - 1);
    free(text);
    CHECK_OK(pp_config_load("t.ini", NULL, 0, &test_names, &cfg));
}

TEST(what_is_no_file_is_refused_clearly_and_at_once)
{
    struct pp_config *cfg = (struct pp_config *)state;
    CHECK_FAILS(pp_config_load("nope.ini", NULL, 0, &test_names, &cfg), PP_ENOINPUT, "nope.ini");
    assert_null(cfg);
    CHECK_FAILS(pp_config_load(test_dir, NULL, 0, &test_names, &cfg), PP_ENOINPUT, "a folder");
    assert_int_equal(mkfifo("pipe", 0600), 0);
    CHECK_FAILS(pp_config_load("pipe", NULL, 0, &test_names, &cfg), PP_ENOINPUT, "a pipe");
    unlink("pipe");
    CHECK_FAILS(pp_config_load("/dev/zero", NULL, 0, &test_names, &cfg), PP_ENOINPUT, "a device");
    put_file("t.ini", "", 0);
    CHECK_FAILS(pp_config_load("t.ini/x", NULL, 0, &test_names, &cfg), PP_ENOINPUT, "t.ini/x");
    if (geteuid() != 0) { /* root may read everything */
        chmod("t.ini", 0);
        CHECK_FAILS(pp_config_load("t.ini", NULL, 0, &test_names, &cfg), PP_EPERM, "t.ini");
        chmod("t.ini", 0600);
    }
    assert_null(cfg);
}

TEST(standard_input_is_a_config_too)
{
    int saved = dup(STDIN_FILENO);
    put_text("t.ini", "[run]\ndir = out\n[train]\nlr = x\n");
    int fd = open("t.ini", O_RDONLY);
    assert_true(dup2(fd, STDIN_FILENO) >= 0);
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    int rc = pp_config_load("-", NULL, 0, &test_names, &cfg);
    dup2(saved, STDIN_FILENO);
    close(saved);
    close(fd);
    CHECK_INT_EQ(rc, PP_ECONFIG);
    CHECK_STR_EQ(pp_config_problem_text(cfg, 0),
                 "<stdin>:4: error: train.lr: 'x' is not a number; write one such as 0.001 or 1e-3 "
                 "(0 to 1000)");
    char dir[PP_PATH_MAX];
    CHECK_OK(pp_path_format(dir, "%s/out", test_dir));
    CHECK_STR_EQ(cfg->run.dir, dir);
}
