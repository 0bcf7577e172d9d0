/* SPDX-License-Identifier: Apache-2.0 */
/* base: errors, memory, random numbers, JSON, SHA-256, files. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "../../src/base/sha256_block.h"

TEST(a_word_for_a_shell_is_quoted_where_it_must_be)
{
    char out[32];
    CHECK_STR_EQ(pp_text_shell("runs/a-1,b", out, sizeof(out)), "runs/a-1,b");
    CHECK_STR_EQ(pp_text_shell("my runs/a", out, sizeof(out)), "'my runs/a'");
    CHECK_STR_EQ(pp_text_shell("it's", out, sizeof(out)), "'it'\\''s'");
    CHECK_STR_EQ(pp_text_shell("", out, sizeof(out)), "''");
    CHECK_STR_EQ(pp_text_shell("$HOME", out, sizeof(out)), "'$HOME'");
}

TEST(an_error_keeps_its_code_and_gains_context)
{
    CHECK_INT_EQ(pp_fail(PP_EFORMAT, "bad magic %d", 7), PP_EFORMAT);
    CHECK_INT_EQ(pp_error_context("file %s", "x"), PP_EFORMAT);
    CHECK_STR_EQ(pp_error_get()->text, "file x: bad magic 7");
    /* the record may be its own argument */
    pp_fail(PP_EIO, "again: %s", pp_error_get()->text);
    CHECK_STR_EQ(pp_error_get()->text, "again: file x: bad magic 7");
    pp_error_clear();
    CHECK_INT_EQ(pp_error_get()->code, 0);
}

/* Known answers of the authors' Random123 distribution for philox4x32, 10 rounds. */
TEST(philox_gives_the_published_answers)
{
    static const struct {
        uint32_t ctr[4], key[2], out[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof(kat) / sizeof(kat[0]); i++) {
        uint32_t out[4];
        pp_philox4x32(kat[i].key, kat[i].ctr, out);
        assert_memory_equal(out, kat[i].out, sizeof(out));
    }
}

TEST(uniform_numbers_do_not_depend_on_where_a_call_starts)
{
    float whole[50], piece[50];
    uint64_t s = pp_rng_stream("init:layers.0.weight", 0);
    pp_rng_uniform(7, s, 0, -1.0f, 1.0f, 50, whole);
    for (size_t cut = 0; cut <= 50; cut++) {
        pp_rng_uniform(7, s, 0, -1.0f, 1.0f, cut, piece);
        pp_rng_uniform(7, s, cut, -1.0f, 1.0f, 50 - cut, piece + cut);
        assert_memory_equal(whole, piece, sizeof(whole));
    }
    for (int i = 0; i < 50; i++) {
        assert_true(whole[i] >= -1.0f && whole[i] < 1.0f);
        float one = -1.0f + 2.0f * ((float)(pp_rng_u32(7, s, (uint64_t)i) >> 8) * 0x1p-24f);
        assert_true(one == whole[i]);
    }
}

TEST(normal_numbers_are_those_of_the_normal_law)
{
    enum {
        N = 1 << 20
    };
    PP_OWN_MEMORY float *z = pp_alloc(N, sizeof(*z));
    float again[50];
    uint64_t s = pp_rng_stream("init:conv1.weight", 0);
    pp_rng_normal(7, s, 0, 0, 1, N, z);
    double moment[5] = {0};
    int beyond[6] = {0}, below[7] = {0};
    for (int i = 0; i < N; i++) {
        double x = z[i], power = 1;
        for (int k = 0; k < 5; k++, power *= x)
            moment[k] += power / N;
        for (int k = 1; k < 6; k++)
            beyond[k] += fabs(x) > k;
        for (int k = 0; k < 7; k++)
            below[k] += x < (k - 3) * 0.5;
    }
    const double want[] = {1, 0, 1, 0, 3}; /* and five standard errors of each */
    const double slack[] = {1e-9, 5.0 / 1024, 5 * M_SQRT2 / 1024, 5 * 3.9 / 1024, 5 * 9.8 / 1024};
    for (int k = 0; k < 5; k++)
        assert_float_equal(moment[k], want[k], slack[k]);
    for (int k = 1; k < 6; k++) {
        double mean = N * erfc(k * M_SQRT1_2);
        assert_true(fabs(beyond[k] - mean) < 5 * sqrt(mean) + 1);
    }
    for (int k = 0; k < 7; k++) {
        double p = 0.5 * erfc(-(k - 3) * 0.5 * M_SQRT1_2);
        assert_true(fabs(below[k] - N * p) < 5 * sqrt(N * p * (1 - p)));
    }
    /* element by element the formula, and the same wherever a call starts */
    for (size_t cut = 0; cut <= 50; cut++) {
        pp_rng_normal(7, s, 0, 0, 1, cut, again);
        pp_rng_normal(7, s, cut, 0, 1, 50 - cut, again + cut);
        assert_memory_equal(z, again, sizeof(again));
    }
    for (uint64_t i = 0; i < 10000; i++) {
        double r = sqrt(-2 * log((pp_rng_u32(7, s, i & ~1u) + 1.0) * 0x1p-32));
        double angle = 2 * M_PI * pp_rng_u32(7, s, i | 1) * 0x1p-32;
        double exact = r * (i % 2 ? sin(angle) : cos(angle));
        assert_true(fabs(z[i] - exact) <= 6e-8 * fabs(exact) + 1e-14);
    }
    /* bits that no system may change */
    const float first[] = {0x1.c5ca16p-1f, -0x1.7f07f4p-3f, 0x1.29dfccp+0f, 0x1.a9eabcp-1f,
                           0x1.938d7cp+0f};
    assert_memory_equal(z, first, sizeof(first));
    pp_rng_normal(7, s, 0, 3, 0.5f, 50, again);
    for (int i = 0; i < 50; i++)
        assert_float_equal(again[i], 3 + 0.5f * z[i], 3e-7f);
}

TEST(counts_are_for_people)
{
    char out[PP_COUNT_TEXT];
    CHECK_STR_EQ(pp_text_count(0, out), "0");
    CHECK_STR_EQ(pp_text_count(12.5, out), "12.5");
    CHECK_STR_EQ(pp_text_count(999, out), "999");
    CHECK_STR_EQ(pp_text_count(1000, out), "1,000");
    CHECK_STR_EQ(pp_text_count(55170, out), "55,170");
    CHECK_STR_EQ(pp_text_count(999999, out), "999,999");
    CHECK_STR_EQ(pp_text_count(4.8e6, out), "4.8 million");
    CHECK_STR_EQ(pp_text_count(68.98e9, out), "69.0 billion");
    CHECK_STR_EQ(pp_text_count(1.75e14, out), "175.0 trillion");
}

TEST(a_permutation_holds_every_number_once)
{
    enum {
        N = 1000
    };
    uint32_t p[N], q[N];
    char seen[N] = {0};
    pp_rng_permutation(1, pp_rng_stream("shuffle", 0), N, p);
    pp_rng_permutation(1, pp_rng_stream("shuffle", 1), N, q);
    for (int i = 0; i < N; i++) {
        assert_true(p[i] < N);
        CHECK_INT_EQ(seen[p[i]], 0);
        seen[p[i]] = 1;
    }
    assert_memory_not_equal(p, q, sizeof(p));
}

TEST(sha256_gives_the_nist_answers)
{
    static const struct {
        const char *text, *hex;
    } kat[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    uint8_t d[PP_SHA256_BYTES];
    char hex[PP_SHA256_HEX];
    struct pp_sha256 s;
    for (size_t i = 0; i < sizeof(kat) / sizeof(kat[0]); i++) {
        pp_sha256_init(&s);
        for (const char *p = kat[i].text; *p; p++)
            pp_sha256_update(&s, p, 1);
        pp_sha256_final(&s, d);
        CHECK_STR_EQ(pp_sha256_hex(d, hex), kat[i].hex);
    }
    /* a million 'a', in uneven pieces */
    char a[997];
    memset(a, 'a', sizeof(a));
    pp_sha256_init(&s);
    for (size_t left = 1000000; left > 0;) {
        size_t n = left < sizeof(a) ? left : sizeof(a);
        pp_sha256_update(&s, a, n);
        left -= n;
    }
    pp_sha256_final(&s, d);
    CHECK_STR_EQ(pp_sha256_hex(d, hex),
                 "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(sha256_is_the_same_with_and_without_the_processors_help)
{
    uint8_t data[64 * 7];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i * 37 + i / 64);
    for (size_t n = 0; n <= 7; n++) {
        uint32_t plain[8], fast[8];
        for (uint32_t i = 0; i < 8; i++)
            plain[i] = fast[i] = 0x9e3779b9u * (i + 1);
        sha256_blocks_plain(plain, data, n);
        if (!sha256_blocks_fast(fast, data, n)) {
            print_message("# no instructions for SHA-256 here\n");
            skip();
        }
        assert_memory_equal(plain, fast, sizeof(plain));
    }
}

TEST(json_is_escaped_and_numbers_read_back)
{
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    struct pp_json j = pp_json_begin(f, 0);
    pp_json_str(&j, "s", "a\"b\\c\n\x01\xff\xc3\xa9\u202e");
    pp_json_dbl(&j, "x", 0.1);
    pp_json_dbl(&j, "third", 1.0 / 3.0);
    pp_json_dbl(&j, "nan", NAN);
    pp_json_array(&j, "a");
    pp_json_int(&j, NULL, INT64_MIN);
    pp_json_uint(&j, NULL, UINT64_MAX);
    pp_json_bool(&j, NULL, true);
    pp_json_object(&j, NULL);
    pp_json_end(&j);
    pp_json_end(&j);
    pp_json_str(&j, "none", NULL);
    pp_json_end(&j);
    fclose(f);
    CHECK_STR_EQ(text, "{\"s\":\"a\\\"b\\\\c\\n\\u0001\\ufffd\xc3\xa9\\u202e\",\"x\":0.1,"
                       "\"third\":0.3333333333333333,\"nan\":null,"
                       "\"a\":[-9223372036854775808,18446744073709551615,true,{}],"
                       "\"none\":null}\n");
}

TEST(a_large_arena_lies_on_huge_pages)
{
    const size_t huge = (size_t)2 << 20, sizes[] = {huge, huge + 1, 5 * huge - 64};
    for (int i = 0; i < 3; i++) {
        struct pp_arena a;
        CHECK_OK(pp_arena_create(sizes[i], &a));
        CHECK_INT_EQ((uintptr_t)a.base % huge, 0);
        CHECK_INT_EQ(a.base[0] + a.base[sizes[i] - 1], 0);
        a.base[sizes[i] - 1] = 1;
        pp_arena_destroy(&a);
    }
    struct pp_arena none = {0};
    CHECK_FAILS(pp_arena_create(SIZE_MAX - 100, &none), PP_ERESOURCE, "cannot take");
    CHECK_FAILS(pp_arena_create((size_t)1 << 60, &none), PP_ERESOURCE, "cannot take");
    assert_null(none.base);
}

TEST(a_dry_arena_counts_what_a_real_one_gives)
{
    struct pp_arena dry = pp_arena_dry();
    static const size_t n[] = {1, 64, 65, 0, 1000};
    for (int i = 0; i < 5; i++)
        assert_null(pp_arena_take(&dry, n[i], 4));
    struct pp_arena a;
    CHECK_OK(pp_arena_create(dry.used, &a));
    for (int i = 0; i < 5; i++) {
        char *p = pp_arena_take(&a, n[i], 4);
        CHECK_INT_EQ((uintptr_t)p % PP_ALIGN, 0);
        for (size_t k = 0; k < 4 * n[i]; k++)
            CHECK_INT_EQ(p[k], 0);
    }
    CHECK_INT_EQ(a.used, dry.used);
    pp_arena_destroy(&a);
}

TEST(sizes_that_overflow_are_refused)
{
    size_t out = 1;
    CHECK_FAILS(pp_size_mul(SIZE_MAX, 2, &out), PP_ECONFIG, "too large");
    CHECK_FAILS(pp_size_add(SIZE_MAX, 1, &out), PP_ECONFIG, "too large");
    CHECK_INT_EQ(out, 1);
    assert_null(pp_alloc(SIZE_MAX, 2));
    CHECK_INT_EQ(pp_error_get()->code, PP_ERESOURCE);
}

/* Of any size: all bits of it, or only some of the lowest. */
static size_t any_size(uint64_t stream, uint64_t at)
{
    uint64_t high = pp_rng_u32(1, stream, 3 * at), low = pp_rng_u32(1, stream, 3 * at + 1);
    return (size_t)((high << 32 | low) >> (pp_rng_u32(1, stream, 3 * at + 2) % 64));
}

TEST(sizes_agree_with_128_bits)
{
    const uint64_t stream = pp_rng_stream("sizes", 0);
    const size_t edges[] = {0, 1, 2, SIZE_MAX, SIZE_MAX - 1, SIZE_MAX / 2, (size_t)1 << 32};
    const uint64_t n_edges = sizeof(edges) / sizeof(edges[0]);
    int refused = 0;
    for (uint64_t i = 0; i < 1000000; i++) {
        bool edge = i < n_edges * n_edges;
        size_t a = edge ? edges[i / n_edges] : any_size(stream, 2 * i);
        size_t b = edge ? edges[i % n_edges] : any_size(stream, 2 * i + 1);
        unsigned __int128 product = (unsigned __int128)a * b, sum = (unsigned __int128)a + b;
        size_t out = 7;
        bool fits = product <= SIZE_MAX;
        if ((pp_size_mul(a, b, &out) == 0) != fits || out != (fits ? (size_t)product : 7))
            fail_msg("%zu * %zu gives %zu", a, b, out);
        refused += !fits;
        out = 7;
        fits = sum <= SIZE_MAX;
        if ((pp_size_add(a, b, &out) == 0) != fits || out != (fits ? (size_t)sum : 7))
            fail_msg("%zu + %zu gives %zu", a, b, out);
        refused += !fits;
    }
    print_message("# 2000000 results, %d of them refused\n", refused);
    assert_true(refused > 100000 && refused < 1900000);
}

TEST(a_file_is_whole_or_absent)
{
    char dir[] = "ppcli-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char sub[PP_PATH_MAX], path[PP_PATH_MAX];
    CHECK_OK(pp_path_format(sub, "%s/a/b", dir));
    CHECK_OK(pp_dir_create(sub));
    CHECK_OK(pp_dir_create(sub));
    CHECK_OK(pp_path_format(path, "%s/f", sub));
    struct pp_file_write w;
    CHECK_OK(pp_file_create(path, &w));
    fputs("half", w.f);
    assert_int_not_equal(access(path, F_OK), 0);
    pp_file_abandon(&w);
    assert_int_not_equal(access(w.to.temp, F_OK), 0);
    CHECK_OK(pp_file_create(path, &w));
    fputs("whole", w.f);
    CHECK_OK(pp_file_commit(&w));
    FILE *f = fopen(path, "r");
    char text[16] = "";
    assert_non_null(fgets(text, sizeof(text), f));
    fclose(f);
    CHECK_STR_EQ(text, "whole");
    CHECK_FAILS(pp_dir_create(path), PP_EIO, "not a folder");
    unlink(path);
    rmdir(sub);
    CHECK_OK(pp_path_format(sub, "%s/a", dir));
    rmdir(sub);
    CHECK_FAILS(pp_file_create("no/such/folder/f", &w), PP_ENOINPUT, "no/such/folder/f");
    rmdir(dir);
}

TEST(durations_read_like_a_clock)
{
    char t[16];
    CHECK_STR_EQ(pp_clock_duration(8.2, t, sizeof(t)), "00:08");
    CHECK_STR_EQ(pp_clock_duration(3723, t, sizeof(t)), "1:02:03");
    CHECK_STR_EQ(pp_clock_duration(-1, t, sizeof(t)), "00:00");
}

TEST(text_for_a_terminal_has_no_control_characters)
{
    char out[64], cut[4];
    CHECK_STR_EQ(pp_text_shown("a\033[31mb\nc\x7f", out, sizeof(out)), "a?[31mb?c?");
    CHECK_STR_EQ(pp_text_shown("caf\xc3\xa9 \xe2\x82\xac", out, sizeof(out)),
                 "caf\xc3\xa9 \xe2\x82\xac");
    CHECK_STR_EQ(pp_text_shown("\xc2\x9b"
                               "31m",
                               out, sizeof(out)),
                 "??31m"); /* CSI in UTF-8 */
    CHECK_STR_EQ(pp_text_shown("a\u202eb\u2066c\u200dd", out, sizeof(out)), "a???b???c\u200dd");
    CHECK_STR_EQ(pp_text_shown("\xff\xc3", out, sizeof(out)), "??");
    CHECK_STR_EQ(pp_text_shown("ab\xc3\xa9", cut, sizeof(cut)), "ab?"); /* cut inside a letter */
}

TEST(errors_carry_no_control_characters)
{
    CHECK_INT_EQ(pp_fail(PP_EFORMAT, "bad '%s'", "\033]0;title\a"), PP_EFORMAT);
    pp_error_context("%s", "na\nme");
    CHECK_STR_EQ(pp_error_get()->text, "na?me: bad '?]0;title?'");
    pp_error_clear();
}

TEST(what_cannot_be_looked_at_is_not_absent)
{
    char folder[] = "/tmp/ppcli-look-XXXXXX", path[PP_PATH_MAX];
    struct stat st;
    assert_non_null(mkdtemp(folder));
    PP_OWN_MEMORY char **names = NULL;
    snprintf(path, sizeof(path), "%s/none", folder);
    CHECK_OK(pp_path_stat(path, true, &st));
    CHECK_INT_EQ(st.st_mode, 0);
    CHECK_OK(pp_dir_names(path, &names));
    assert_null(names[0]);
    pp_free(names);
    names = NULL;
    snprintf(path, sizeof(path), "%s/dead", folder);
    CHECK_INT_EQ(symlink("nowhere", path), 0);
    CHECK_FAILS(pp_path_stat(path, true, &st), PP_EIO,
                "is a link to nowhere, which does not exist");
    CHECK_FAILS(pp_dir_names(path, &names), PP_EIO, "is a link to nowhere, which does not exist");
    CHECK_OK(pp_path_stat(path, false, &st));
    assert_true(S_ISLNK(st.st_mode));
    CHECK_OK(pp_dir_names(folder, &names));
    CHECK_STR_EQ(names[0], "dead");
    assert_null(names[1]);
    CHECK_INT_EQ(unlink(path), 0);
    CHECK_INT_EQ(symlink("dead", path), 0);
    CHECK_FAILS(pp_path_stat(path, true, &st), PP_EIO, "cannot read");
    CHECK_INT_EQ(unlink(path), 0);
    CHECK_FAILS(pp_dir_names("/dev/null", &names), PP_EFORMAT, "is not a folder");
    CHECK_INT_EQ(rmdir(folder), 0);
}
