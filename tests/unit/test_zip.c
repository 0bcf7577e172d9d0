/* SPDX-License-Identifier: Apache-2.0 */
/* Zip archives: read by their directory, refused in one line when they are not what they claim,
 * copied with other content. */
#include "test_zip.h"

static const struct made three[] = {ENTRY("a/one", "the first"), ENTRY("a/empty", ""),
                                    ENTRY("a/two", "the second one")};

static int parse(struct blob b, struct pp_zip **out)
{
    return pp_zip_parse("x.pt2", b.p, b.n, out);
}

static int parse_only(struct blob b)
{
    PP_OWN(pp_zip_close) struct pp_zip *z = NULL;
    return parse(b, &z);
}

static void check_three(const struct pp_zip *z)
{
    CHECK_INT_EQ(z->n, 3);
    for (int i = 0; i < 3; i++) {
        const struct pp_zip_entry *e = pp_zip_find(z, three[i].name);
        assert_ptr_equal(e, &z->entries[i]);
        CHECK_INT_EQ(e->bytes, three[i].bytes);
        assert_memory_equal(e->data, three[i].data, e->bytes);
        CHECK_OK(pp_zip_check(z, e));
    }
    assert_null(pp_zip_find(z, "a"));
}

TEST(entries_are_found_with_sizes_after_the_data_before_it_and_of_64_bits)
{
    static const int kinds[] = {ZIP_PLAIN, ZIP_CRC_FIRST, ZIP_64, ZIP_64 | ZIP_CRC_FIRST};
    for (int i = 0; i < COUNT(kinds); i++) {
        PP_OWN(blob_free) struct blob b = zip_of(three, 3, kinds[i]);
        PP_OWN(pp_zip_close) struct pp_zip *z = NULL;
        CHECK_OK(parse(b, &z));
        check_three(z);
    }
}

TEST_IN_FOLDER(a_file_is_mapped)
{
    const char *path = in_folder(state, "x.zip");
    PP_OWN(blob_free) struct blob b = zip_of(three, 3, ZIP_PLAIN);
    PP_OWN(pp_zip_close) struct pp_zip *z = NULL;
    file_write(path, b.p, b.n);
    CHECK_OK(pp_zip_open(path, &z));
    check_three(z);
    CHECK_FAILS(pp_zip_open(in_folder(state, "no"), &z), PP_ENOINPUT, "no");
    file_write(in_folder(state, "empty"), "", 0);
    CHECK_FAILS(pp_zip_open(in_folder(state, "empty"), &z), PP_EFORMAT, "empty: empty, not a zip");
}

TEST(an_archive_may_end_in_a_comment_and_have_no_entries)
{
    PP_OWN(blob_free) struct blob b = zip_of(three, 3, ZIP_PLAIN);
    PP_OWN(blob_free) struct blob none = zip_of(NULL, 0, ZIP_PLAIN);
    PP_OWN(blob_free) struct blob longer = blob_of(b.n + 300);
    memcpy(longer.p, b.p, b.n);
    longer.p[b.n - 2] = 300 & 0xff;
    longer.p[b.n - 1] = 300 >> 8;
    CHECK_OK(parse_only(longer));
    CHECK_OK(parse_only(none));
}

TEST(what_is_no_archive_is_refused_with_what_it_is)
{
    PP_OWN(blob_free) struct blob b = zip_of(three, 3, ZIP_PLAIN);
    struct blob lfs = {(uint8_t *)"version https://git-lfs.github.com/spec/v1", 42};
    struct blob text = {(uint8_t *)"just a text", 11}, cut = {b.p, b.n - 1}, none = {b.p, 0};
    CHECK_FAILS(parse_only(lfs), PP_EFORMAT, "x.pt2: a Git LFS pointer, not the file");
    CHECK_FAILS(parse_only(text), PP_EFORMAT, "x.pt2: not a zip archive");
    CHECK_FAILS(parse_only(cut), PP_EFORMAT, "x.pt2: a zip archive without its end");
    CHECK_FAILS(parse_only(none), PP_EFORMAT, "x.pt2: not a zip archive");
}

TEST(every_length_of_a_cut_archive_is_refused)
{
    for (int kind = 0; kind < 4; kind++) {
        PP_OWN(blob_free) struct blob b = zip_of(three, 3, kind);
        for (size_t n = 0; n < b.n; n++) {
            PP_OWN(blob_free) struct blob cut = blob_of(n); /* reading past its end would be seen */
            memcpy(cut.p, b.p, n);
            CHECK_FAILS(parse_only(cut), PP_EFORMAT, "x.pt2: ");
        }
    }
}

TEST(hostile_entries_are_refused)
{
    const struct made twice[] = {three[0], three[0]};
    const struct made control[] = {ENTRY("a/\33[2J", "x")};
    const struct made encrypted[] = {{"a", "x", 1, 0, 1}};
    PP_OWN(blob_free) struct blob same = zip_of(twice, 2, 0);
    PP_OWN(blob_free) struct blob named = zip_of(control, 1, 0);
    PP_OWN(blob_free) struct blob locked = zip_of(encrypted, 1, 0);
    PP_OWN(blob_free) struct blob b = zip_of(three, 3, 0);
    CHECK_FAILS(parse_only(same), PP_EFORMAT, "x.pt2: two entries are named a/one");
    CHECK_FAILS(parse_only(named), PP_EFORMAT, "control characters: a/?[2J");
    CHECK_FAILS(parse_only(locked), PP_EFORMAT, "x.pt2: entry a is encrypted");
    /* The second entry of the directory claims the place of the first one. */
    size_t first = b.n - 22 - 3 * 46 - 5 - 7 - 5, second = first + 46 + 5;
    memcpy(b.p + second + 42, b.p + first + 42, 4);
    CHECK_FAILS(parse_only(b), PP_EFORMAT, "overlap");
    put_u32(b.p + second + 42, 0);
    b.p[second + 42] = (uint8_t)(b.n & 0xff);
    b.p[second + 43] = (uint8_t)(b.n >> 8);
    CHECK_FAILS(parse_only(b), PP_EFORMAT, "x.pt2: entry a/empty has 0 bytes at");
    b.p[b.n - 22 + 4] = 1; /* the number of its part */
    CHECK_FAILS(parse_only(b), PP_EFORMAT, "in several files");
}

TEST(a_changed_byte_is_found_by_its_crc)
{
    PP_OWN(blob_free) struct blob b = zip_of(three, 3, ZIP_PLAIN);
    PP_OWN(pp_zip_close) struct pp_zip *z = NULL;
    CHECK_OK(parse(b, &z));
    b.p[z->entries[2].data - b.p] ^= 1;
    CHECK_OK(pp_zip_check(z, &z->entries[0]));
    CHECK_FAILS(pp_zip_check(z, &z->entries[2]), PP_EFORMAT, "x.pt2: entry a/two is damaged");
}

/* ---- copies */

static int shout(void *ctx, const struct pp_zip_entry *e, uint8_t *content)
{
    int *calls = ctx;
    if (strcmp(e->name, "a/two") == 0)
        memcpy(content, "THE SECOND ONE", e->bytes);
    return ++*calls == 4 ? pp_fail(PP_ECONFIG, "enough") : 0;
}

TEST_IN_FOLDER(a_copy_has_the_new_content_and_all_else)
{
    for (int kind = 0; kind < 4; kind++) {
        const char *path = in_folder(state, "copy");
        int calls = 0;
        PP_OWN(blob_free) struct blob b = zip_of(three, 3, kind);
        PP_OWN(pp_zip_close) struct pp_zip *z = NULL, *copy = NULL;
        CHECK_OK(parse(b, &z));
        CHECK_OK(pp_zip_copy(z, path, shout, &calls));
        CHECK_INT_EQ(calls, 3);
        struct made other[] = {three[0], three[1], ENTRY("a/two", "THE SECOND ONE")};
        PP_OWN(blob_free) struct blob expected = zip_of(other, 3, kind), found = file_read(path);
        CHECK_INT_EQ(found.n, expected.n);
        assert_memory_equal(found.p, expected.p, found.n);
        CHECK_OK(pp_zip_open(path, &copy));
    }
}

TEST_IN_FOLDER(a_copy_that_fails_leaves_what_was_there)
{
    const char *path = in_folder(state, "copy");
    int calls = 3;
    PP_OWN(blob_free) struct blob b = zip_of(three, 3, ZIP_PLAIN);
    PP_OWN(pp_zip_close) struct pp_zip *z = NULL;
    CHECK_OK(parse(b, &z));
    file_write(path, "old", 3);
    CHECK_FAILS(pp_zip_copy(z, path, shout, &calls), PP_ECONFIG, "enough");
    b.p[z->entries[0].data - b.p] ^= 1;
    calls = 0;
    CHECK_FAILS(pp_zip_copy(z, path, shout, &calls), PP_EFORMAT, "a/one is damaged");
    PP_OWN(blob_free) struct blob left = file_read(path);
    CHECK_INT_EQ(left.n, 3);
}
