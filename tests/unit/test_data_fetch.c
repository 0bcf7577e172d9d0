/* SPDX-License-Identifier: Apache-2.0 */
/* Downloading without a network: folders, file://, digests, what is there already, the lock.
 * The answers of servers are tested in tests/fetch. */
#include "../fetch/fetch_set.h"

#include <fcntl.h>
#include <sys/file.h>

#include "ppcli/data/dataset.h"
#include "ppcli/base/base.h"

static struct fetch_set fs;

static int fetch(const char *from, const char *to)
{
    return pp_fetch(&fs.set, from, to, &pp_fetch_limits);
}

/* A folder under the test's own, made. */
static const char *sub(void **state, const char *name)
{
    const char *path = in_folder(state, name);
    assert_true(mkdir(path, 0777) == 0 || file_exists(path));
    return path;
}

static void put(const char *dir, const char *suffix, struct blob b)
{
    char path[PP_PATH_MAX];
    path_of(path, dir, suffix);
    file_write(path, b.p, b.n);
}

static struct blob damaged(struct blob good)
{
    struct blob b = blob_of(good.n);
    memcpy(b.p, good.p, good.n);
    b.p[good.n / 2] ^= 1;
    return b;
}

TEST_IN_FOLDER(the_built_in_pins_are_whole)
{
    static const uint64_t megabytes[] = {54, 54, 170, 168, 1, 0};
    int i = 0;
    for (const struct pp_fetch_set *set = pp_fetch_sets; set->name; set++, i++) {
        uint64_t bytes = 0;
        for (const struct pp_pin *pin = set->files; pin->name; pin++) {
            CHECK_INT_EQ(strlen(pin->sha256), 64);
            CHECK_INT_EQ(strspn(pin->sha256, "0123456789abcdef"), 64);
            bytes += pin->bytes;
        }
        CHECK_INT_EQ(bytes / 1000000, megabytes[i]);
        for (int k = 0; set->mirrors[k]; k++)
            assert_int_equal(strncmp(set->mirrors[k], "https://", 8), 0);
    }
    CHECK_INT_EQ(i, 5);
}

TEST_IN_FOLDER(files_that_are_there_are_counted)
{
    int files;
    CHECK_INT_EQ(pp_fetch_there(&pp_fetch_sets[0], *state, &files), 0);
    CHECK_INT_EQ(files, 4);
    file_write(in_folder(state, "t10k-labels-idx1-ubyte"), "x", 1);
    file_write(in_folder(state, "t10k-images-idx3-ubyte.gz"), "x", 1);
    CHECK_INT_EQ(pp_fetch_there(&pp_fetch_sets[0], *state, &files), 2);
}

TEST_IN_FOLDER(a_folder_is_copied_and_verified)
{
    char from[PP_PATH_MAX], to[PP_PATH_MAX];
    snprintf(from, sizeof(from), "%s", sub(state, "from"));
    snprintf(to, sizeof(to), "%s", in_folder(state, "new/deep/to")); /* made on the way */
    put(from, ".gz", fs.gz);
    CHECK_OK(fetch(from, to));
    check_complete(&fs, to);
    assert_true(has(from, ".gz"));
}

TEST_IN_FOLDER(plain_files_are_as_good_as_gzipped_ones)
{
    const char *from = sub(state, "from"), *to = sub(state, "to");
    put(from, "", fs.idx);
    CHECK_OK(fetch(from, to));
    assert_true(has(to, ""));
    assert_false(has(to, ".gz"));
    check_complete(&fs, to);
}

TEST_IN_FOLDER(another_packing_of_the_same_bytes_is_accepted)
{
    const char *from = sub(state, "from"), *to = sub(state, "to");
    PP_OWN(blob_free) struct blob loose = gzip(fs.idx.p, fs.idx.n, 1);
    loose.p[4] ^= 1; /* a time stamp */
    put(from, ".gz", loose);
    CHECK_OK(fetch(from, to));
    check_complete(&fs, to);
}

TEST_IN_FOLDER(file_urls_name_folders)
{
    char url[PP_PATH_MAX];
    const char *from = sub(state, "a b%"), *to = sub(state, "to");
    put(from, ".gz", fs.gz);
    snprintf(url, sizeof(url), "file://%s/a%%20b%%25", (const char *)*state);
    CHECK_FAILS(fetch("file://elsewhere/x", to), PP_ECONFIG, "file:///FOLDER");
    int rc = fetch(url, to);
    if (rc == PP_ERESOURCE && strstr(pp_error_get()->text, "without libcurl")) {
        check_nothing(to); /* and what to do instead */
        assert_non_null(strstr(pp_error_get()->text, "--from DIR"));
        return;
    }
    CHECK_OK(rc);
    check_complete(&fs, to);
}

TEST_IN_FOLDER(wrong_content_never_gets_the_name)
{
    const char *from = sub(state, "from"), *to = sub(state, "to");
    PP_OWN(blob_free) struct blob bad_idx = damaged(fs.idx), bad_gz = damaged(fs.gz);
    struct blob repacked = gzip(bad_idx.p, bad_idx.n, 9), short_gz = {fs.gz.p, fs.gz.n - 3};
    struct blob page = {(uint8_t *)"<html>no</html>", 15};
    const struct {
        struct blob b;
        const char *words;
    } table[] = {
        {bad_gz, "damaged gzip data"},
        {repacked, "not the right file: sha256"},
        {short_gz, "cut short"},
        {page, "(a web page?)"},
        {{(uint8_t *)"", 0}, "empty file"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        put(from, ".gz", table[i].b);
        CHECK_FAILS(fetch(from, to), PP_EFORMAT, table[i].words);
        check_nothing(to);
        assert_false(has(to, ".gz.part"));
    }
    blob_free(&repacked);
}

TEST_IN_FOLDER(a_file_that_is_too_large_is_not_copied_whole)
{
    const char *from = sub(state, "from"), *to = sub(state, "to");
    char path[PP_PATH_MAX];
    put(from, ".gz", fs.gz);
    path_of(path, from, ".gz");
    assert_int_equal(truncate(path, 1ll << 40), 0); /* sparse */
    CHECK_FAILS(fetch(from, to), PP_EFORMAT, "more than 64164 bytes");
    check_nothing(to);
    assert_false(has(to, ".gz.part"));
}

TEST_IN_FOLDER(a_good_file_is_kept_as_it_is)
{
    char path[PP_PATH_MAX];
    struct stat a, b;
    const char *to = sub(state, "to");
    put(to, ".gz", fs.gz);
    path_of(path, to, ".gz");
    assert_int_equal(stat(path, &a), 0);
    CHECK_OK(fetch(NULL, to)); /* no source is asked: there is none */
    assert_int_equal(stat(path, &b), 0);
    assert_true(a.st_ino == b.st_ino && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec);
    check_complete(&fs, to);
}

TEST_IN_FOLDER(a_bad_file_stays_until_a_good_one_replaces_it)
{
    char path[PP_PATH_MAX];
    const char *bad_from = sub(state, "bad"), *from = sub(state, "from"), *to = sub(state, "to");
    PP_OWN(blob_free) struct blob bad = damaged(fs.gz);
    put(to, ".gz", bad);
    put(bad_from, ".gz", bad);
    put(from, "", fs.idx);
    CHECK_FAILS(fetch(bad_from, to), PP_EFORMAT, "damaged");
    path_of(path, to, ".gz");
    PP_OWN(blob_free) struct blob still = file_read(path);
    assert_memory_equal(still.p, bad.p, bad.n);
    CHECK_OK(fetch(from, to));
    assert_false(has(to, ".gz")); /* it would be read before the plain one */
    check_complete(&fs, to);
}

TEST_IN_FOLDER(a_complete_part_of_a_killed_run_is_used)
{
    const char *to = sub(state, "to");
    put(to, ".gz.part", fs.gz);
    CHECK_OK(fetch(NULL, to));
    check_complete(&fs, to);
}

TEST_IN_FOLDER(a_part_that_is_a_link_is_not_followed)
{
    char part[PP_PATH_MAX];
    const char *from = sub(state, "from"), *to = sub(state, "to");
    const char *victim = in_folder(state, "victim");
    file_write(victim, "precious", 8);
    put(from, ".gz", fs.gz);
    path_of(part, to, ".gz.part");
    assert_int_equal(symlink(victim, part), 0);
    CHECK_OK(fetch(from, to));
    PP_OWN(blob_free) struct blob b = file_read(victim);
    CHECK_INT_EQ(b.n, 8);
    check_complete(&fs, to);
}

TEST_IN_FOLDER(wrong_sources_are_refused_before_anything_is_made)
{
    const char *to = in_folder(state, "never");
    CHECK_FAILS(fetch("ftp://127.0.0.1/", to), PP_ECONFIG,
                "expected https://..., file:///FOLDER, a folder");
    CHECK_FAILS(fetch(in_folder(state, "absent"), to), PP_ENOINPUT, "--from");
    file_write(in_folder(state, "file"), "x", 1);
    CHECK_FAILS(fetch(in_folder(state, "file"), to), PP_ENOINPUT, "not a folder");
    assert_false(file_exists(to));
}

TEST_IN_FOLDER(a_folder_without_the_file_says_which_one)
{
    const char *from = sub(state, "from"), *to = sub(state, "to");
    CHECK_FAILS(fetch(from, to), PP_ENOINPUT,
                "no file of this folder is " FETCH_NAME ".gz, whatever its name");
    check_nothing(to);
}

TEST_IN_FOLDER(a_file_of_another_name_is_found_by_its_digest)
{
    const char *from = sub(state, "from"), *to = sub(state, "to");
    file_write(in_folder(state, "from/other.txt"), "x", 1);
    file_write(in_folder(state, "from/whatever.dat"), fs.gz.p, fs.gz.n);
    CHECK_OK(fetch(from, to));
    check_complete(&fs, to);
}

TEST_IN_FOLDER(a_failure_leaves_no_empty_folders)
{
    const char *from = sub(state, "from"), *to = in_folder(state, "a/b/c");
    CHECK_FAILS(fetch(from, to), PP_ENOINPUT, "no file of this folder");
    assert_false(file_exists(in_folder(state, "a")));
    const char *kept = sub(state, "kept");
    CHECK_FAILS(fetch(from, kept), PP_ENOINPUT, "no file of this folder");
    assert_true(file_exists(kept));
}

TEST_IN_FOLDER(unpacked_files_of_an_archive_can_be_used_where_they_are)
{
    const char *from = sub(state, "from"), *to = in_folder(state, "to");
    const struct pp_fetch_set *set = pp_fetch_sets;
    while (strcmp(set->name, "cifar10") != 0)
        set++;
    file_write(in_folder(state, "from/data_batch_1.bin.gz"), "x", 1);
    CHECK_FAILS(pp_fetch(set, from, to, &pp_fetch_limits), PP_ENOINPUT, "--set data.path=");
    assert_false(file_exists(to));
}

TEST_IN_FOLDER(a_second_download_into_the_same_folder_is_refused)
{
    const char *from = sub(state, "from"), *to = sub(state, "to");
    put(from, ".gz", fs.gz);
    int lock = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    CHECK_FAILS(fetch(from, to), PP_ERESOURCE, "another download into");
    check_nothing(to);
    close(lock);
    CHECK_OK(fetch(from, to));
    check_complete(&fs, to);
}

TEST_IN_FOLDER(a_folder_without_permission_says_so)
{
    const char *from = sub(state, "from"), *to = sub(state, "to");
    put(from, ".gz", fs.gz);
    assert_int_equal(chmod(*state, 0755), 0);
    assert_int_equal(chmod(to, 0555), 0);
    bool root = geteuid() == 0; /* root may write everything: be nobody for a moment */
    if (root)
        assert_int_equal(seteuid(65534), 0);
    int rc = fetch(from, to);
    if (root)
        assert_int_equal(seteuid(0), 0);
    CHECK_FAILS(rc, PP_EPERM, "Permission denied");
    check_nothing(to);
}

TEST_IN_FOLDER(a_part_that_cannot_be_made_is_an_io_error)
{
    const char *from = sub(state, "from"), *to = sub(state, "to");
    put(from, ".gz", fs.gz);
    sub(state, "to/" FETCH_NAME ".gz.part");
    int rc = fetch(from, to);
    assert_int_equal(rc, PP_EIO);
    check_nothing(to);
}

int main(void)
{
    fetch_set_init(&fs);
    pp_log_set_level(PP_LOG_QUIET);
    int failed = tests_run(NULL, NULL);
    fetch_set_fini(&fs);
    return failed;
}
