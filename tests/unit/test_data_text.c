/* SPDX-License-Identifier: Apache-2.0 */
/* Texts: characters and bytes, files of tokens, labelled lines; windows and where they begin. */
#include <fcntl.h>
#include <time.h>

#include "test_data_files.h"

#include "ppcli/data/dataset.h"
#include "ppcli/base/base.h"
#include "ppcli/data/tokenizer.h"

#define BOTH (PP_DATA_IMAGES | PP_DATA_LABELS)
#define T 4

static void text_config(void **state, const char *dataset, struct pp_config *cfg)
{
    memset(cfg, 0, sizeof(*cfg));
    snprintf(cfg->model.type, sizeof(cfg->model.type), "gpt");
    snprintf(cfg->data.dataset, sizeof(cfg->data.dataset), "%s", dataset);
    snprintf(cfg->data.train_file, PP_PATH_MAX, "%s/x", (char *)*state);
    cfg->model.block_size = T;
    cfg->data.validation = 0.5;
    cfg->data.token_bytes = 2;
    cfg->data.ignored_token = -1;
    cfg->train.eval_interval = 3;
    cfg->train.batch_size = 2;
}

static void write_text(const char *path, const char *text)
{
    file_write(path, text, strlen(text));
}

static int open_split(const struct pp_config *cfg, enum pp_split split, int classes,
                      struct pp_dataset **out)
{
    const struct pp_shape in = pp_shape_flat(cfg->model.block_size);
    return pp_dataset_open(cfg, split, BOTH, &in, classes, out);
}

/* The window that begins with sample `index`, and the targets. */
static void window(const struct pp_dataset *ds, uint32_t index, int classes, const char *want)
{
    uint32_t tokens[T + 1];
    CHECK_OK(pp_dataset_windows(ds, 1, &index, classes, tokens));
    for (int i = 0; i <= T; i++)
        CHECK_INT_EQ(tokens[i], want[i] - '0');
}

TEST_IN_FOLDER(a_text_is_cut_into_training_and_validation)
{
    struct pp_config cfg;
    struct pp_dataset *train = NULL, *test = NULL;
    text_config(state, "text", &cfg);
    write_text(cfg.data.train_file, "cabbacab"
                                    "bcabacbcab"); /* 9 and 9 */
    CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 3, &train));
    CHECK_OK(open_split(&cfg, PP_SPLIT_TEST, 3, &test));
    CHECK_INT_EQ(train->n, 6); /* steps of an epoch times samples of a step */
    CHECK_INT_EQ(train->starts, 5);
    CHECK_INT_EQ(train->element, PP_U8);
    CHECK_INT_EQ(train->vocabulary, 3);
    CHECK_INT_EQ(test->n, 2);
    window(train, 0, 3, "20110");
    window(train, 4, 3, "02011");
    window(test, 0, 3, "20102");
    window(test, 1, 3, "21201");
    pp_dataset_destroy(&train);
    pp_dataset_destroy(&test);
    /* a file of its own, which has a character more; no validation at all */
    snprintf(cfg.data.test_file, PP_PATH_MAX, "%s/y", (char *)*state);
    write_text(cfg.data.test_file, "dabbaa");
    CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 4, &train));
    CHECK_OK(open_split(&cfg, PP_SPLIT_TEST, 4, &test));
    CHECK_INT_EQ(train->starts, 14);
    CHECK_INT_EQ(test->n, 1);
    window(test, 0, 4, "30110");
    pp_dataset_destroy(&train);
    pp_dataset_destroy(&test);
    cfg.data.test_file[0] = '\0';
    cfg.data.validation = 0;
    CHECK_OK(open_split(&cfg, PP_SPLIT_TEST, 3, &test));
    CHECK_INT_EQ(test->n, 0);
    pp_dataset_destroy(&test);
}

TEST_IN_FOLDER(characters_are_those_of_utf8_in_their_order)
{
    struct pp_config cfg;
    struct pp_dataset *ds = NULL;
    struct pp_vocabulary v;
    char text[PP_TOKEN_TEXT];
    uint16_t tokens[4];
    size_t n;
    text_config(state, "text", &cfg);
    cfg.data.validation = 0;
    write_text(cfg.data.train_file, "\xf0\x9f\x98\x80 \xc3\xa9 \xe2\x82\xac\xc3\xa9z");
    CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 5, &ds));
    window(ds, 0, 5, "40203");
    window(ds, 2, 5, "20321");
    pp_dataset_destroy(&ds);
    CHECK_OK(pp_dataset_vocabulary(&cfg, &v));
    CHECK_INT_EQ(v.n, 5);
    char *all = pp_vocabulary_text(&v);
    assert_string_equal(all, " z\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    (void)pp_vocabulary_decode(&v, 3, text, &n);
    CHECK_INT_EQ(n, 3);
    text[n] = '\0';
    assert_string_equal(text, "\xe2\x82\xac");
    (void)pp_vocabulary_decode(&v, 5, text, &n);
    CHECK_INT_EQ(n, 0);
    CHECK_OK(pp_vocabulary_encode(&v, "it", "z\xc3\xa9 ", 4, PP_U16, 4, tokens, &n));
    CHECK_INT_EQ(n, 3);
    assert_true(tokens[0] == 1 && tokens[1] == 2 && tokens[2] == 0);
    CHECK_FAILS(pp_vocabulary_encode(&v, "it", "z\xc3\xa0", 3, PP_U16, 4, tokens, &n), PP_EFORMAT,
                "it: character 2, '\xc3\xa0' (U+00E0), is not one of the 5");
    pp_free(all);
    pp_vocabulary_fini(&v);
    cfg.data.tokens = PP_TOKENS_BYTES;
    CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 256, &ds));
    CHECK_INT_EQ(ds->vocabulary, 256);
    CHECK_INT_EQ(ds->images[0], 0xf0);
    CHECK_INT_EQ(ds->starts, 14 - T);
    pp_dataset_destroy(&ds);
}

/* Each is refused in one line, which says these words. */
TEST_IN_FOLDER(odd_texts_are_refused)
{
    static const struct {
        const char *text, *words;
        double validation;
        enum pp_tokens tokens;
        int vocab_size, eval_interval;
    } table[] = {
        {"", "x: empty file", 0, PP_TOKENS_CHARS, 0, 3},
        {"abcd", "4 tokens for training, and a window needs model.block_size + 1 = 5", 0, 0, 0, 3},
        {"abcdefghij", "1 tokens for validation, and a window needs", 0.1, 0, 0, 3},
        {"abc\xff"
         "defg",
         "byte 3 (0xff) begins no character of UTF-8; use data.tokens", 0, 0, 0, 3},
        {"abcdefg", "model.vocab_size: is 6, but", 0, 0, 6, 3},
        {"abcdefg", "model.vocab_size: is 255, but", 0, PP_TOKENS_BYTES, 255, 3},
        {"abcdefg", "train.eval_interval: 1073741824 steps of 2 samples", 0, 0, 0, 1073741824},
    };
    struct pp_config cfg;
    struct pp_dataset *ds = NULL;
    text_config(state, "text", &cfg);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        cfg.data.validation = table[i].validation;
        cfg.data.tokens = table[i].tokens;
        cfg.model.vocab_size = table[i].vocab_size;
        cfg.train.eval_interval = table[i].eval_interval;
        write_text(cfg.data.train_file, table[i].text);
        enum pp_split split = table[i].validation > 0 ? PP_SPLIT_TEST : PP_SPLIT_TRAIN;
        int rc = open_split(&cfg, split, 256, &ds);
        if (rc == 0 || !strstr(pp_error_get()->text, table[i].words))
            fail_msg("case %zu: %d, '%s'", i, rc, rc < 0 ? pp_error_get()->text : "");
        assert_null(strchr(pp_error_get()->text, '\n'));
    }
    file_write(cfg.data.train_file, "abc\0defg", 8);
    cfg.model.vocab_size = 0;
    CHECK_FAILS(open_split(&cfg, PP_SPLIT_TRAIN, 256, &ds), PP_EFORMAT, "it is a NUL");
    cfg.data.train_file[0] = '\0';
    CHECK_FAILS(open_split(&cfg, PP_SPLIT_TRAIN, 256, &ds), PP_ECONFIG, "data.train_file");
}

/* ---- tokens */

struct llm_c {
    uint32_t header[256];
    uint16_t tokens[8];
};

TEST_IN_FOLDER(tokens_are_mapped_with_and_without_a_header)
{
    const uint16_t raw[] = {1, 0, 2, 300, 3, 1, 0, 5};
    const uint32_t wide[] = {1, 0, 2, 300, 3, 1, 0, 5};
    struct llm_c f = {.header = {20240520, 1, 8}};
    memcpy(f.tokens, raw, sizeof(raw));
    const struct {
        const void *p;
        size_t bytes;
        int token_bytes;
    } files[] = {{raw, sizeof(raw), 2}, {wide, sizeof(wide), 4}, {&f, sizeof(f), 4}};
    struct pp_config cfg;
    text_config(state, "tokens", &cfg);
    cfg.data.train_file[0] = '\0';
    snprintf(cfg.data.path, PP_PATH_MAX, "%s", (char *)*state);
    char path[PP_PATH_MAX];
    snprintf(path, sizeof(path), "%s/train.bin", (char *)*state);
    for (int i = 0; i < 3; i++) {
        PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
        const uint32_t late = 3;
        uint32_t tokens[T + 1];
        file_write(path, files[i].p, files[i].bytes);
        cfg.data.token_bytes = files[i].token_bytes;
        CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 301, &ds));
        CHECK_INT_EQ(ds->starts, 4);
        assert_non_null(ds->map);
        CHECK_OK(pp_dataset_windows(ds, 1, &late, 301, tokens));
        assert_memory_equal(tokens, wide + 3, sizeof(tokens));
        CHECK_FAILS(pp_dataset_windows(ds, 1, &late, 300, NULL), PP_EFORMAT, "train.bin");
    }
    struct pp_dataset *ds = NULL;
    CHECK_FAILS(open_split(&cfg, PP_SPLIT_TEST, 301, &ds), PP_ENOINPUT, "val.bin");
    cfg.data.token_bytes = 2;
    file_write(path, raw, sizeof(raw) - 1);
    CHECK_FAILS(open_split(&cfg, PP_SPLIT_TRAIN, 301, &ds), PP_EFORMAT, "data.token_bytes");
    file_write(path, raw, 0);
    CHECK_FAILS(open_split(&cfg, PP_SPLIT_TRAIN, 301, &ds), PP_EFORMAT, "empty file");
    f.header[2] = 9;
    file_write(path, &f, sizeof(f));
    CHECK_FAILS(open_split(&cfg, PP_SPLIT_TRAIN, 301, &ds), PP_EFORMAT, "announces 9 tokens of 2");
    f.header[1] = 2;
    file_write(path, &f, sizeof(f));
    CHECK_FAILS(open_split(&cfg, PP_SPLIT_TRAIN, 301, &ds), PP_EFORMAT, "version 2 of llm.c's");
    cfg.data.path[0] = '\0';
    CHECK_FAILS(open_split(&cfg, PP_SPLIT_TRAIN, 301, &ds), PP_ECONFIG, "data.path");
}

/* What a step reads is what was checked, or refused: never other tokens, never SIGBUS. */
TEST_IN_FOLDER(tokens_that_change_while_they_are_in_use_are_refused)
{
    enum {
        N = 100000
    };
    static const char *const hurts[] = {"changed its size", "changed its size", "wrote to it"};
    struct pp_config cfg;
    text_config(state, "tokens", &cfg);
    cfg.data.token_bytes = 2;
    PP_OWN_MEMORY uint16_t *tokens = pp_alloc(N, sizeof(*tokens));
    for (size_t i = 0; i < sizeof(hurts) / sizeof(*hurts); i++) {
        PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
        const uint32_t late = N - 2 * T;
        uint32_t out[T + 1];
        bool ready;
        memset(tokens, 0, N * sizeof(*tokens));
        file_write(cfg.data.train_file, tokens, N * sizeof(*tokens));
        CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 301, &ds));
        CHECK_OK(pp_dataset_ready((const struct pp_dataset *[]){ds, NULL}, 60, &ready));
        CHECK_OK(pp_dataset_windows(ds, 1, &late, 301, out));
        int fd = open(cfg.data.train_file, O_WRONLY);
        assert_true(fd >= 0);
        tokens[0] = 999;                                          /* also out of the vocabulary */
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* the kernel's clock of files */
        if (i < 2)
            assert_int_equal(ftruncate(fd, i == 0 ? 100 : N * 4), 0);
        else
            assert_int_equal(pwrite(fd, tokens, 2, (off_t)late * 2), 2);
        close(fd);
        CHECK_FAILS(pp_dataset_windows(ds, 1, &late, 301, out), PP_EFORMAT, hurts[i]);
        assert_non_null(strstr(pp_error_get()->text, cfg.data.train_file));
    }
}

/* Wherever it lies, and however wide the tokens are. */
TEST_IN_FOLDER(every_token_of_a_file_is_looked_at)
{
    enum {
        N = 600000
    };
    static const size_t places[] = {0, 1, 262143, 262144, N - 1};
    struct pp_config cfg;
    text_config(state, "tokens", &cfg);
    PP_OWN_MEMORY uint8_t *bytes = pp_alloc(N, 4);
    for (int i = 0; i < 12; i++) {
        size_t each = i % 2 ? 4 : 2, at = i < 10 ? places[i / 2] : N;
        PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
        char words[64];
        bool ready = false;
        for (uint32_t k = 0, token; k < N; k++) {
            token = k == at ? 50000 : k % 50000;
            memcpy(bytes + k * each, &token, each);
        }
        file_write(cfg.data.train_file, bytes, N * each);
        cfg.data.token_bytes = (int)each;
        CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 50000, &ds));
        const struct pp_dataset *const both[2] = {NULL, ds};
        snprintf(words, sizeof(words), "x: token %zu is 50000, and the model's vocabulary has", at);
        if (at == N)
            assert_true(pp_dataset_ready(both, 600, &ready) == 0 && ready);
        else
            CHECK_FAILS(pp_dataset_ready(both, 600, &ready), PP_EFORMAT, words);
    }
}

/* Numbers of another width, and files of another kind, would train without a word. */
TEST_IN_FOLDER(files_that_hold_no_such_tokens_are_named)
{
    static const char words_of_text[] =
        "First Citizen: Before we proceed any further, hear me speak.\nAll: Speak, speak.\n";
    static const char lfs[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n";
    uint16_t two[128];
    uint32_t four[128], large[128];
    uint64_t eight[128];
    uint32_t model[256] = {20240326, 3, 1024, 50257, 12, 12, 768};
    for (uint32_t i = 0; i < 128; i++) {
        two[i] = (uint16_t)(i * 307);
        four[i] = i * 307 % 50257;
        large[i] = i * 1021;
        eight[i] = four[i];
    }
    const struct {
        const void *p;
        size_t n;
        int token_bytes, vocabulary;
        const char *words;
    } table[] = {
        {two, sizeof(two), 2, 50257, NULL},
        {four, sizeof(four), 4, 50257, NULL},
        {large, sizeof(large), 4, 131072, NULL},
        {four, sizeof(four), 2, 50257, "numbers of 4 bytes, but data.token_bytes = 2; use data."},
        {large, sizeof(large), 2, 131072, "numbers of 4 bytes, but data.token_bytes = 2"},
        {eight, sizeof(eight), 2, 50257,
         "numbers of 8 bytes, but data.token_bytes = 2; write them"},
        {eight, sizeof(eight), 4, 50257, "numbers of 8 bytes, but data.token_bytes = 4"},
        {four, sizeof(four), 1, 256, "numbers of 4 bytes, but data.token_bytes = 1"},
        {two, sizeof(two), 2, 65537, "2 bytes, which hold numbers up to 65535; write it with 4"},
        {two, sizeof(two), 2, 65536, NULL},
        {words_of_text, sizeof(words_of_text) - 1, 2, 50257, "text, not tokens; use data.dataset"},
        {words_of_text, sizeof(words_of_text) - 1, 1, 256, NULL},
        {model, sizeof(model), 2, 50257, "a model of llm.c's (magic 20240326), not tokens"},
        {lfs, sizeof(lfs) - 1, 2, 50257, "a Git LFS pointer"},
        {"\x93NUMPY\1\0v\0", 10, 2, 50257, "a NumPy file (.npy)"},
        {"\x80\4\x95\x10\0\0\0\0\0\0", 10, 2, 50257, "a Python pickle"},
        {"\x1f\x8b\x08\0\0\0\0\0\0\3", 10, 2, 50257, "a gzip file; unpack it"},
    };
    struct pp_config cfg;
    text_config(state, "tokens", &cfg);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
        file_write(cfg.data.train_file, table[i].p, table[i].n);
        cfg.data.token_bytes = table[i].token_bytes;
        cfg.model.vocab_size = table[i].vocabulary;
        int rc = open_split(&cfg, PP_SPLIT_TRAIN, table[i].vocabulary, &ds);
        if ((rc == 0) != !table[i].words ||
            (rc < 0 && !strstr(pp_error_get()->text, table[i].words)))
            fail_msg("row %zu: %d, '%s'", i, rc, rc < 0 ? pp_error_get()->text : "");
    }
}

/* More starts than a number of 32 bits has: they lie in a grid. Nothing is read. */
TEST_IN_FOLDER(a_file_of_any_size_has_windows)
{
    struct pp_config cfg;
    text_config(state, "tokens", &cfg);
    char path[PP_PATH_MAX];
    snprintf(path, sizeof(path), "%s/huge", (char *)*state);
    snprintf(cfg.data.train_file, PP_PATH_MAX, "%s", path);
    const uint64_t sizes[] = {((uint64_t)1 << 32) + T, ((uint64_t)1 << 32) + T + 1};
    for (int i = 0; i < 2; i++) {
        PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
        file_write(path, "", 0);
        if (truncate(path, (off_t)(2 * sizes[i])) != 0) {
            print_message("no file of 8 GiB can be made here\n");
            skip();
        }
        CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 100, &ds));
        CHECK_INT_EQ(ds->stride, i + 1);
        assert_true(ds->starts == (i == 0 ? (uint64_t)1 << 32 : ((uint64_t)1 << 31) + 1));
        const uint32_t last = (uint32_t)(ds->starts - 1);
        CHECK_OK(pp_dataset_windows(ds, 1, &last, 1, NULL));
    }
    remove(path);
}

/* ---- lines with labels */

TEST_IN_FOLDER(labelled_lines_are_cut_or_padded)
{
    struct pp_config cfg;
    struct pp_dataset *ds = NULL;
    text_config(state, "text-labels", &cfg);
    snprintf(cfg.data.test_file, PP_PATH_MAX, "%s/y", (char *)*state);
    write_text(cfg.data.train_file, "spam\tbuy\r\n\nham\thello\tyou\nspam\tb");
    write_text(cfg.data.test_file, "news\tzap\n");
    CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 3, &ds));
    CHECK_INT_EQ(ds->n, 3);
    CHECK_INT_EQ(ds->classes, 3);     /* ham, spam of training, then news */
    CHECK_INT_EQ(ds->vocabulary, 12); /* padding, tab, abehlopuyz */
    const uint8_t labels[] = {1, 0, 1};
    const uint16_t tokens[] = {3, 9, 10, 0, 5, 4, 6, 6, 3, 0, 0, 0};
    assert_memory_equal(ds->targets, labels, sizeof(labels));
    assert_memory_equal(ds->images, tokens, sizeof(tokens));
    pp_dataset_destroy(&ds);
    /* numbers are their own classes; bytes come after the padding */
    cfg.data.tokens = PP_TOKENS_BYTES;
    write_text(cfg.data.train_file, "3\tA\n1\tB\n");
    write_text(cfg.data.test_file, "0\tC\n");
    CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 4, &ds));
    CHECK_INT_EQ(ds->classes, 4);
    CHECK_INT_EQ(ds->vocabulary, 257);
    CHECK_INT_EQ(ds->element, PP_U16);
    CHECK_INT_EQ(((const uint16_t *)(const void *)ds->images)[T], 'B' + 1);
    CHECK_INT_EQ(pp_dataset_label(ds, 0), 3);
    pp_dataset_destroy(&ds);
    static const char *const odd[][2] = {
        {"spam buy\n", "x:1: no tab; a line is a label, a tab and a text"},
        {"a\tb\n\tb\n", "x:2: no label;"},
        {"a\tb\nb\t\n", "x:2: no text after the tab"},
        {"0\tb\n", "x: every label is '0'"},
        {"\n\n", "x: no lines"},
        {"a\tb\xff\n", "x:1: byte 1 of the text begins no character"},
    };
    cfg.data.tokens = PP_TOKENS_CHARS;
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        write_text(cfg.data.train_file, odd[i][0]);
        CHECK_FAILS(open_split(&cfg, PP_SPLIT_TRAIN, 4, &ds), PP_EFORMAT, odd[i][1]);
    }
}

/* ---- which windows */

TEST(windows_follow_from_the_number_of_the_sample_alone)
{
    PP_OWN(pp_loader_destroy) struct pp_loader *a = NULL, *b = NULL;
    const uint64_t starts = 1003790;
    uint64_t sum = 0;
    CHECK_OK(pp_loader_create(60, 12, 1, 0, 1, true, 7, &a));
    CHECK_OK(pp_loader_create(24, 12, 2, 1, 3, true, 7, &b));
    pp_loader_windows(a, starts);
    pp_loader_windows(b, starts);
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        pp_loader_start_epoch(a, epoch);
        for (uint64_t k = 0; k < 60; k++) {
            uint64_t number = epoch * 60 + k;
            uint64_t word = pp_rng_u32(7, pp_rng_stream("windows", 0), number);
            CHECK_INT_EQ(a->order[k], word * starts >> 32);
            assert_true(a->order[k] < starts);
            sum += a->order[k];
            pp_loader_start_epoch(b, number / 24);
            CHECK_INT_EQ(b->order[number % 24], a->order[k]);
        }
    }
    assert_true(sum / 240 > starts * 2 / 5 && sum / 240 < starts * 3 / 5);
    pp_loader_windows(b, (uint64_t)1 << 32);
    CHECK_INT_EQ(b->order[1], pp_rng_u32(7, pp_rng_stream("windows", 0), 1));
}

TEST_IN_FOLDER(the_sample_comes_with_ppcli)
{
    struct pp_config cfg;
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    text_config(state, "shakespeare-sample", &cfg);
    cfg.data.train_file[0] = '\0';
    cfg.data.validation = 0.1;
    CHECK_OK(open_split(&cfg, PP_SPLIT_TRAIN, 61, &ds));
    CHECK_INT_EQ(ds->vocabulary, 61);
    CHECK_INT_EQ(ds->starts, 143911 - T);
}
