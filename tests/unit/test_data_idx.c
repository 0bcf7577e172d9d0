/* SPDX-License-Identifier: Apache-2.0 */
/* The IDX reader: files that are exactly what they claim are read, everything else is refused. */
#include "test_data_files.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "ppcli/base/base.h"
#include "../../src/data/ops.h"

#define SAMPLE "data/mnist-sample"

static char sample_dir[4096];

static const char *sample(const char *name)
{
    static char path[4200];
    snprintf(path, sizeof(path), "%s/%s", sample_dir, name);
    return path;
}

/* A file in memory under the name "probe": the tables read ten thousand of them. */
static int probe_fd = -1;

static void probe_set(void **state, struct blob b)
{
    const char *path = in_folder(state, "probe");
    char target[64];
    if (probe_fd < 0) {
        probe_fd = memfd_create("probe", MFD_CLOEXEC);
        assert_true(probe_fd >= 0);
    }
    assert_int_equal(ftruncate(probe_fd, 0), 0);
    assert_int_equal(pwrite(probe_fd, b.p, b.n, 0), b.n);
    snprintf(target, sizeof(target), "/proc/self/fd/%d", probe_fd);
    if (!file_exists(path))
        assert_int_equal(symlink(target, path), 0);
}

/* Read `b` as a file; the content must not differ from `good` when it is accepted. */
static int read_blob(void **state, struct blob b, const uint8_t *good, size_t good_bytes)
{
    struct pp_array idx;
    PP_OWN_MEMORY uint8_t *data = NULL;
    probe_set(state, b);
    int rc = pp_idx_read(in_folder(state, "probe"), &idx, (void **)&data);
    if (rc == 0 && good) {
        assert_int_equal(idx.n, good_bytes);
        assert_memory_equal(data, good, good_bytes);
    }
    if (rc < 0) {
        assert_null(data);
        assert_null(strchr(pp_error_get()->text, '\n'));
        assert_non_null(strstr(pp_error_get()->text, "probe"));
    }
    return rc;
}

static int read_idx_blob(void **state, struct blob b)
{
    return read_blob(state, b, NULL, 0);
}

TEST_IN_FOLDER(gzipped_and_plain_files_read_the_same)
{
    const uint32_t dims[3] = {5, 4, 3};
    PP_OWN(blob_free) struct blob b = idx_bytes(3, dims, 60, 251);
    struct pp_array gz, plain;
    uint8_t *from_gz, *from_plain;
    file_write(in_folder(state, "plain"), b.p, b.n);
    file_write_gzip(in_folder(state, "gz"), b);
    CHECK_OK(pp_idx_read(in_folder(state, "gz"), &gz, (void **)&from_gz));
    CHECK_OK(pp_idx_read(in_folder(state, "plain"), &plain, (void **)&from_plain));
    CHECK_INT_EQ(gz.n_dims, 3);
    CHECK_INT_EQ(gz.dims[0], 5);
    CHECK_INT_EQ(gz.dims[1], 4);
    CHECK_INT_EQ(gz.dims[2], 3);
    CHECK_INT_EQ(gz.n, 60);
    assert_memory_equal(gz.dims, plain.dims, sizeof(gz.dims));
    assert_memory_equal(from_gz, b.p + 16, 60);
    assert_memory_equal(from_plain, b.p + 16, 60);
    pp_free(from_gz);
    pp_free(from_plain);
}

TEST_IN_FOLDER(a_header_read_gives_the_counts_alone)
{
    struct pp_array idx;
    CHECK_OK(pp_idx_read(sample("train-images-idx3-ubyte.gz"), &idx, NULL));
    CHECK_INT_EQ(idx.n_dims, 3);
    CHECK_INT_EQ(idx.dims[0], 6000);
    CHECK_INT_EQ(idx.n, 6000 * 784);
    CHECK_OK(pp_idx_read(sample("t10k-labels-idx1-ubyte.gz"), &idx, NULL));
    CHECK_INT_EQ(idx.n_dims, 1);
    CHECK_INT_EQ(idx.dims[0], 1000);
}

TEST_IN_FOLDER(a_link_to_a_file_is_followed)
{
    struct pp_array idx;
    uint8_t *data;
    const char *link = in_folder(state, "link");
    assert_int_equal(symlink(sample("t10k-labels-idx1-ubyte.gz"), link), 0);
    CHECK_OK(pp_idx_read(link, &idx, (void **)&data));
    CHECK_INT_EQ(idx.n, 1000);
    pp_free(data);
}

TEST_IN_FOLDER(every_cut_of_a_label_file_is_refused)
{
    PP_OWN(blob_free) struct blob b = file_read(sample("train-labels-idx1-ubyte.gz"));
    int cuts = 0, refused = 0;
    for (size_t n = 0; n < b.n; n++) {
        if (n < b.n - 64 && n > 64 && n % 3 != 0)
            continue; /* every length near both ends, every third one between */
        struct blob cut = {b.p, n};
        cuts++;
        refused += read_idx_blob(state, cut) == PP_EFORMAT;
    }
    CHECK_INT_EQ(refused, cuts);
    assert_true(cuts > 1000);
    CHECK_OK(read_idx_blob(state, b));
}

TEST_IN_FOLDER(every_flipped_bit_is_refused_or_harmless)
{
    PP_OWN(blob_free) struct blob b = file_read(sample("t10k-labels-idx1-ubyte.gz"));
    struct pp_array idx;
    uint8_t *good;
    CHECK_OK(pp_idx_read(sample("t10k-labels-idx1-ubyte.gz"), &idx, (void **)&good));
    int refused = 0, harmless = 0;
    for (size_t bit = 0; bit < 8 * b.n; bit++) {
        b.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int rc = read_blob(state, b, good, idx.n); /* accepted: content is compared there */
        b.p[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (rc == 0) {
            harmless++;
            /* Time stamp, extra flags, system, the text flag, and the bits that pad the last
             * deflate byte before the trailer carry no check. */
            if (!(bit / 8 >= 3 && bit / 8 <= 9) && bit / 8 != b.n - 9)
                fail_msg("bit %zu of byte %zu of %zu is read by nobody", bit % 8, bit / 8, b.n);
        } else {
            CHECK_INT_EQ(rc, PP_EFORMAT);
            refused++;
        }
    }
    assert_true(refused > 4000);
    assert_in_range(harmless, 1, 60);
    pp_free(good);
}

TEST_IN_FOLDER(what_follows_the_stream_is_refused)
{
    const uint32_t dims[1] = {100};
    PP_OWN(blob_free) struct blob idx = idx_bytes(1, dims, 100, 10);
    PP_OWN(blob_free) struct blob z = gzip(idx.p, idx.n, 9);
    PP_OWN(blob_free) struct blob junk = blob_of(8);
    PP_OWN(blob_free) struct blob empty = gzip("", 0, 9);
    struct blob a = joined(z, junk), two = joined(z, z), void_member = joined(z, empty);
    struct blob one = {junk.p, 1}, one_more = joined(z, one);
    CHECK_OK(read_idx_blob(state, z));
    CHECK_FAILS(read_idx_blob(state, a), PP_EFORMAT, "trailing bytes after the gzip stream");
    CHECK_FAILS(read_idx_blob(state, one_more), PP_EFORMAT, "trailing bytes");
    CHECK_FAILS(read_idx_blob(state, two), PP_EFORMAT, "holds more than the 108 bytes");
    CHECK_OK(read_idx_blob(state, void_member));
    blob_free(&a);
    blob_free(&two);
    blob_free(&void_member);
    blob_free(&one_more);
}

/* As `cat a.gz b.gz` and bgzip make them. Cut anywhere, it is refused. */
TEST_IN_FOLDER(a_gzip_file_of_several_members_is_read_whole)
{
    const uint32_t dims[1] = {100};
    PP_OWN(blob_free) struct blob idx = idx_bytes(1, dims, 100, 10), all = blob_of(0);
    for (size_t at = 0; at < idx.n; at += 27) {
        struct blob z = gzip(idx.p + at, 27, 9), more = joined(all, z);
        blob_free(&all);
        blob_free(&z);
        all = more;
    }
    CHECK_OK(read_blob(state, all, idx.p + 8, 100));
    for (size_t n = 2; n < all.n; n++)
        CHECK_FAILS(read_idx_blob(state, (struct blob){all.p, n}), PP_EFORMAT, "");
}

/* A stream may end exactly at a multiple of the input buffer: what follows is still seen. */
TEST_IN_FOLDER(trailing_bytes_are_seen_across_the_input_buffer)
{
    const uint32_t dims[1] = {65490};
    PP_OWN(blob_free) struct blob idx = idx_bytes(1, dims, 65490, 253);
    struct blob z = gzip(idx.p, idx.n, 0); /* stored: the size is under control */
    assert_in_range(z.n, 65500, 65536);
    for (size_t extra = 65536 - z.n; extra <= 65536 - z.n + 2; extra++) {
        /* Pad with a longer file name in the header, which carries no check. */
        PP_OWN(blob_free) struct blob named = blob_of(z.n + extra);
        memcpy(named.p, z.p, 10);
        named.p[3] = extra > 0 ? 0x08 : 0;
        memset(named.p + 10, 'x', extra);
        if (extra > 0)
            named.p[10 + extra - 1] = 0;
        memcpy(named.p + 10 + extra, z.p + 10, z.n - 10);
        PP_OWN(blob_free) struct blob tail = joined(named, named);
        CHECK_OK(read_idx_blob(state, named));
        CHECK_FAILS(read_idx_blob(state, tail), PP_EFORMAT, "holds more than the");
    }
    blob_free(&z);
}

static long peak_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

TEST_IN_FOLDER(a_bomb_is_refused_without_inflating_it)
{
    /* The header says 1 MB, the stream holds 100 MB of zeros. */
    z_stream z = {0};
    PP_OWN(blob_free) struct blob chunk = blob_of(1 << 20), out = blob_of(1 << 20);
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = out.p;
    z.avail_out = (uInt)out.n;
    for (int i = 0; i < 100; i++) {
        memset(chunk.p, 0, chunk.n);
        if (i == 0) {
            chunk.p[2] = 8;
            chunk.p[3] = 1;
            put_u32(chunk.p + 4, 1000000);
        }
        z.next_in = chunk.p;
        z.avail_in = (uInt)chunk.n;
        assert_int_equal(deflate(&z, i < 99 ? Z_NO_FLUSH : Z_FINISH), i < 99 ? Z_OK : Z_STREAM_END);
    }
    out.n = z.total_out;
    deflateEnd(&z);
    long before = peak_kib();
    CHECK_FAILS(read_idx_blob(state, out), PP_EFORMAT, "holds more than the 1000008 bytes");
    assert_in_range(peak_kib() - before, 0, 16 * 1024);
}

TEST_IN_FOLDER(announced_sizes_are_held_against_the_file_before_allocating)
{
    const uint32_t dims[3] = {1000, 1000, 1000};
    PP_OWN(blob_free) struct blob b = idx_bytes(3, dims, 100, 10);
    PP_OWN(blob_free) struct blob z = gzip(b.p, b.n, 9);
    uint64_t before = pp_alloc_count();
    CHECK_FAILS(read_idx_blob(state, z), PP_EFORMAT, "more than a gzip file of");
    CHECK_INT_EQ(pp_alloc_count() - before, 1); /* the reader itself */
    CHECK_FAILS(read_idx_blob(state, b), PP_EFORMAT,
                "file of 116 bytes, but its header announces 1000000016");
}

struct bad_header {
    const char *why;
    uint8_t magic[4];
    int n_dims;
    uint32_t dims[4];
    const char *words;
};

TEST_IN_FOLDER(headers_that_lie_are_refused)
{
    static const struct bad_header table[] = {
        {"first byte",
         {1, 0, 8, 1},
         1,
         {4},
         "not an IDX file (gzipped or plain): begins with 01 00 08 01"},
        {"second byte", {0, 1, 8, 1}, 1, {4}, "not an IDX"},
        {"unknown type", {0, 0, 10, 1}, 1, {4}, "magic 0x00000a01"},
        {"little endian", {1, 8, 0, 0}, 1, {4}, "not an IDX"},
        {"no dimension", {0, 0, 8, 0}, 0, {0}, "magic 0x00000800"},
        {"five dimensions", {0, 0, 8, 5}, 4, {1, 1, 2, 2}, "magic 0x00000805"},
        {"255 dimensions", {0, 0, 8, 255}, 1, {4}, "magic 0x000008ff"},
        {"zero images", {0, 0, 8, 3}, 3, {0, 28, 28}, "dimension 0 is 0"},
        {"zero columns", {0, 0, 8, 3}, 3, {4, 28, 0}, "dimension 2 is 0"},
        {"2^32-1", {0, 0, 8, 1}, 1, {UINT32_MAX}, "dimension 0 is 4294967295"},
        {"2^32-1 rows", {0, 0, 8, 3}, 3, {1, UINT32_MAX, 1}, "dimension 1 is 4294967295"},
        {"2^28 x 2^28", {0, 0, 8, 2}, 2, {1u << 28, 1u << 28}, "announces 72057594037927936"},
        {"2^64 wraps to 0", {0, 0, 8, 3}, 3, {1u << 24, 1u << 20, 1u << 20}, "announces"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct bad_header *t = &table[i];
        PP_OWN(blob_free) struct blob b = idx_bytes(t->n_dims, t->dims, 4, 10);
        memcpy(b.p, t->magic, 4);
        print_message("# %s\n", t->why);
        CHECK_FAILS(read_idx_blob(state, b), PP_EFORMAT, t->words);
        if (b.p[0] == 0 && b.p[1] == 0) {
            PP_OWN(blob_free) struct blob z = gzip(b.p, b.n, 9);
            CHECK_FAILS(read_idx_blob(state, z), PP_EFORMAT, t->words);
        }
    }
}

TEST_IN_FOLDER(numbers_of_every_type_become_floats)
{
    static const struct {
        uint8_t type;
        size_t bytes;
        uint8_t number[8]; /* -3 */
    } table[] = {{9, 1, {0xfd}},
                 {11, 2, {0xff, 0xfd}},
                 {12, 4, {0xff, 0xff, 0xff, 0xfd}},
                 {13, 4, {0xc0, 0x40, 0, 0}},
                 {14, 8, {0xc0, 0x08, 0, 0, 0, 0, 0, 0}}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        PP_OWN(blob_free) struct blob b = blob_of(8 + 2 * table[i].bytes);
        PP_OWN_MEMORY float *values = NULL;
        struct pp_array a;
        memcpy(b.p, (uint8_t[]){0, 0, table[i].type, 1, 0, 0, 0, 2}, 8);
        memcpy(b.p + 8 + table[i].bytes, table[i].number, table[i].bytes);
        file_write(in_folder(state, "numbers"), b.p, b.n);
        CHECK_OK(pp_idx_read(in_folder(state, "numbers"), &a, (void **)&values));
        CHECK_INT_EQ(a.pixels, 0);
        assert_true(values[0] == 0 && values[1] == -3);
    }
}

TEST_IN_FOLDER(plain_files_must_have_exactly_their_size)
{
    const uint32_t dims[1] = {10};
    PP_OWN(blob_free) struct blob b = idx_bytes(1, dims, 11, 10);
    struct blob longer = b, exact = {b.p, b.n - 1}, shorter = {b.p, b.n - 2}, head = {b.p, 6};
    CHECK_FAILS(read_idx_blob(state, longer), PP_EFORMAT,
                "file of 19 bytes, but its header announces 18");
    CHECK_OK(read_idx_blob(state, exact));
    CHECK_FAILS(read_idx_blob(state, shorter), PP_EFORMAT,
                "file of 17 bytes, but its header announces 18");
    CHECK_FAILS(read_idx_blob(state, head), PP_EFORMAT, "cut short");
}

TEST_IN_FOLDER(gzip_that_holds_less_than_announced_is_refused)
{
    const uint32_t dims[1] = {100};
    PP_OWN(blob_free) struct blob b = idx_bytes(1, dims, 99, 10);
    PP_OWN(blob_free) struct blob z = gzip(b.p, b.n, 9), tiny = gzip("abc", 3, 9);
    CHECK_FAILS(read_idx_blob(state, z), PP_EFORMAT, "holds 107 bytes, expected 108");
    CHECK_FAILS(read_idx_blob(state, tiny), PP_EFORMAT, "holds 3 bytes, expected 4");
}

TEST_IN_FOLDER(what_is_no_file_is_refused_without_waiting)
{
    struct pp_array idx;
    uint8_t *data = NULL;
    const char *fifo = in_folder(state, "fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    CHECK_FAILS(pp_idx_read(fifo, &idx, (void **)&data), PP_EFORMAT,
                "is a pipe, expected a regular file");
    CHECK_FAILS(pp_idx_read(*state, &idx, (void **)&data), PP_EFORMAT, "is a folder");
    CHECK_FAILS(pp_idx_read("/dev/zero", &idx, (void **)&data), PP_EFORMAT, "is a device");
    CHECK_FAILS(pp_idx_read(in_folder(state, "absent"), &idx, (void **)&data), PP_ENOINPUT,
                "No such file or directory");
    CHECK_FAILS(pp_idx_read(in_folder(state, "fifo/below"), &idx, (void **)&data), PP_ENOINPUT,
                "fifo");
    const char *loop = in_folder(state, "loop");
    assert_int_equal(symlink("loop", loop), 0);
    CHECK_FAILS(pp_idx_read(loop, &idx, (void **)&data), PP_EIO, "loop");
    assert_null(data);
}

TEST_IN_FOLDER(what_is_no_idx_is_named)
{
    struct blob empty = {(uint8_t *)"", 0};
    struct blob one = {(uint8_t *)"\x1f", 1};
    struct blob web = {(uint8_t *)"<!doctype html><p>403", 21};
    CHECK_FAILS(read_idx_blob(state, empty), PP_EFORMAT, "empty file");
    CHECK_FAILS(read_idx_blob(state, one), PP_EFORMAT, "cut short");
    CHECK_FAILS(read_idx_blob(state, web), PP_EFORMAT, "begins with 3c 21 64 6f (a web page?)");
}

TEST_IN_FOLDER(a_file_without_permission_says_so)
{
    struct pp_array idx;
    const char *path = in_folder(state, "locked");
    file_write(path, "x", 1);
    assert_int_equal(chmod(path, 0), 0);
    /* root may read everything: be nobody for a moment */
    bool root = geteuid() == 0;
    assert_int_equal(chmod(*state, 0755), 0);
    if (root)
        assert_int_equal(seteuid(65534), 0);
    int rc = pp_idx_read(path, &idx, NULL);
    if (root)
        assert_int_equal(seteuid(0), 0);
    CHECK_FAILS(rc, PP_EPERM, "Permission denied");
}

int main(void)
{
    const char *root = getenv("PPCLI_SOURCE_DIR");
    snprintf(sample_dir, sizeof(sample_dir), "%s/%s", root ? root : ".", SAMPLE);
    return tests_run(NULL, NULL);
}
