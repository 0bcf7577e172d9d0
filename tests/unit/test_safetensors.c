/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files that are what they claim: written, read back, failing while they are written.
 */
#include "test_ckpt_files.h"
#include "../../src/ckpt/safetensors.h"

#include "ppcli/base/base.h"

static const float weight[6] = {1.0f, -2.5f, 3.0e-39f, -0.0f, 5.0f, 6.25f};
static const int64_t counts[3] = {INT64_MIN, -1, INT64_MAX};
static const struct pp_st_meta meta[] = {{"format", "pt"}, {"note", "a \"quoted\" \\ word"}};

static int give_counts(void *ctx, uint64_t offset, void *dst, size_t bytes)
{
    ++*(int *)ctx;
    memcpy(dst, (const char *)counts + offset, bytes);
    return 0;
}

/* A matrix, numbers that come from a callback, an empty tensor and a scalar. */
static int write_four(const struct pp_io *io, const char *path, int *calls, uint64_t *out_bytes,
                      uint8_t out_digest[PP_SHA256_BYTES])
{
    const struct pp_st_item items[] = {
        {.name = "layers.0.weight",
         .dtype = PP_ST_F32,
         .n_dims = 2,
         .dims = {2, 3},
         .data = weight},
        {.name = "counts",
         .dtype = PP_ST_I64,
         .n_dims = 1,
         .dims = {3},
         .read = give_counts,
         .ctx = calls},
        {.name = "empty", .dtype = PP_ST_F32, .n_dims = 2, .dims = {0, 7}, .data = weight},
        {.name = "scalar", .dtype = PP_ST_F32, .data = weight + 4},
    };
    return pp_st_write(io, path, items, 4, meta, 2, out_bytes, out_digest);
}

static const struct pp_st_tensor *find(const struct pp_st_file *f, const char *name)
{
    for (int i = 0; i < f->header->n_tensors; i++)
        if (strcmp(f->header->tensors[i].name, name) == 0)
            return &f->header->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

TEST_IN_FOLDER(what_is_written_is_read_back)
{
    const char *path = in_folder(state, "four.safetensors");
    int calls = 0;
    uint64_t bytes = 0;
    uint8_t digest[PP_SHA256_BYTES];
    CHECK_OK(write_four(&pp_io_system, path, &calls, &bytes, digest));
    CHECK_INT_EQ(calls, 2); /* once for its checksum */
    PP_OWN(pp_st_close) struct pp_st_file *f = NULL;
    CHECK_OK(pp_st_open(path, &f));
    CHECK_INT_EQ(f->bytes, bytes);
    CHECK_INT_EQ(f->header->n_tensors, 4);
    const struct pp_st_tensor *w = find(f, "layers.0.weight");
    CHECK_INT_EQ(w->dtype, PP_ST_F32);
    CHECK_INT_EQ(w->n_dims, 2);
    CHECK_INT_EQ(w->dims[0], 2);
    CHECK_INT_EQ(w->dims[1], 3);
    float got[6];
    CHECK_OK(pp_st_read(f, w, 0, got, sizeof(got)));
    assert_memory_equal(got, weight, sizeof(got));
    CHECK_OK(pp_st_read(f, w, 4, got, 8));
    assert_memory_equal(got, weight + 1, 8);
    int64_t n[3];
    CHECK_OK(pp_st_read(f, find(f, "counts"), 0, n, sizeof(n)));
    assert_memory_equal(n, counts, sizeof(n));
    CHECK_INT_EQ(find(f, "empty")->elements, 0);
    CHECK_INT_EQ(find(f, "scalar")->n_dims, 0);
    CHECK_INT_EQ(find(f, "scalar")->elements, 1);
    CHECK_STR_EQ(pp_st_meta_value(f->header, "note"), meta[1].value);
    assert_null(pp_st_meta_value(f->header, "nothing"));
    int checked = 0;
    CHECK_OK(pp_st_check_data(f, &checked));
    CHECK_INT_EQ(checked, 4);
}

TEST_IN_FOLDER(wide_types_come_first_and_the_header_is_padded_with_blanks)
{
    const char *path = in_folder(state, "four.safetensors");
    int calls = 0;
    uint64_t bytes = 0;
    uint8_t digest[PP_SHA256_BYTES], again[PP_SHA256_BYTES];
    CHECK_OK(write_four(&pp_io_system, path, &calls, &bytes, digest));
    PP_OWN(pp_st_close) struct pp_st_file *f = NULL;
    CHECK_OK(pp_st_open(path, &f));
    CHECK_STR_EQ(f->header->tensors[0].name, "counts");
    CHECK_INT_EQ(f->header->data_begin % 8, 0);
    PP_OWN(blob_free) struct blob b = file_read(path);
    CHECK_INT_EQ(b.n, bytes);
    CHECK_INT_EQ(b.p[f->header->data_begin - 1], ' ');
    assert_null(memchr(b.p + 8, '\n', (size_t)f->header->data_begin - 8));
    struct pp_sha256 s;
    pp_sha256_init(&s);
    pp_sha256_update(&s, b.p, b.n);
    pp_sha256_final(&s, again);
    assert_memory_equal(digest, again, sizeof(digest));
}

TEST_IN_FOLDER(a_file_without_tensors_is_one)
{
    const char *path = in_folder(state, "none.safetensors");
    uint64_t bytes = 0;
    uint8_t digest[PP_SHA256_BYTES];
    CHECK_OK(pp_st_write(&pp_io_system, path, NULL, 0, NULL, 0, &bytes, digest));
    struct pp_st_file *f = NULL;
    CHECK_OK(pp_st_open(path, &f));
    CHECK_INT_EQ(f->header->n_tensors, 0);
    pp_st_close(&f);
    /* the smallest one there can be */
    file_write(path, "\2\0\0\0\0\0\0\0{}", 10);
    CHECK_OK(pp_st_open(path, &f));
    CHECK_INT_EQ(f->header->n_tensors, 0);
    pp_st_close(&f);
}

TEST_IN_FOLDER(every_failing_call_leaves_nothing_and_names_the_file)
{
    static const int errors[] = {EIO, ENOSPC};
    uint64_t bytes = 0;
    uint8_t digest[PP_SHA256_BYTES];
    int calls = 0;
    struct test_io all = test_io(IO_NONE, 0, 0);
    CHECK_OK(write_four(&all.io, in_folder(state, "four.safetensors"), &calls, &bytes, digest));
    unlink(in_folder(state, "four.safetensors"));
    assert_true(all.calls >= 8);
    for (int e = 0; e < 2; e++) {
        for (int at = 1; at <= all.calls; at++) {
            struct test_io io = test_io(IO_FAIL, at, errors[e]);
            int rc =
                write_four(&io.io, in_folder(state, "four.safetensors"), &calls, &bytes, digest);
            CHECK_INT_EQ(rc, PP_EIO);
            if (!strstr(pp_error_get()->text, "four.safetensors") ||
                !strstr(pp_error_get()->text, strerror(errors[e])))
                fail_msg("call %d of '%s': '%s'", at, all.names, pp_error_get()->text);
            CHECK_INT_EQ(io.fsyncs_after_failure, 0);
            CHECK_INT_EQ(folder_count(*state, NULL, 0), 0);
        }
    }
}

TEST_IN_FOLDER(short_and_interrupted_writes_give_the_same_file)
{
    uint64_t bytes = 0;
    uint8_t whole[PP_SHA256_BYTES], pieces[PP_SHA256_BYTES];
    int calls = 0;
    struct test_io io = test_io(IO_SHORT, 0, 0);
    CHECK_OK(write_four(&pp_io_system, in_folder(state, "a"), &calls, &bytes, whole));
    CHECK_OK(write_four(&io.io, in_folder(state, "b"), &calls, &bytes, pieces));
    assert_memory_equal(whole, pieces, sizeof(whole));
    struct blob a = file_read(in_folder(state, "a")), b = file_read(in_folder(state, "b"));
    CHECK_INT_EQ(a.n, b.n);
    assert_memory_equal(a.p, b.p, a.n);
    blob_free(&a);
    blob_free(&b);
}

static int changing(void *ctx, uint64_t offset, void *dst, size_t bytes)
{
    memset(dst, ++*(int *)ctx, bytes);
    return 0;
}

static int failing(void *ctx, uint64_t offset, void *dst, size_t bytes)
{
    memset(dst, 0, bytes);
    return --*(int *)ctx < 0 ? pp_fail(PP_ERESOURCE, "the device is gone") : 0;
}

static void refuses(void **state, struct pp_st_item item, int code, const char *text)
{
    uint64_t bytes = 0;
    uint8_t digest[PP_SHA256_BYTES];
    item.dtype = PP_ST_F32;
    item.n_dims = 1;
    item.dims[0] = 4;
    CHECK_FAILS(
        pp_st_write(&pp_io_system, in_folder(state, "m"), &item, 1, NULL, 0, &bytes, digest), code,
        text);
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 0);
}

TEST_IN_FOLDER(a_tensor_that_changes_while_it_is_saved_is_noticed)
{
    int calls = 0;
    refuses(state, (struct pp_st_item){.name = "moving", .read = changing, .ctx = &calls},
            PP_EINTERNAL, "tensor moving changed");
}

TEST_IN_FOLDER(a_failing_source_leaves_nothing)
{
    for (int good = 0; good < 2; good++) {
        int left = good;
        refuses(state, (struct pp_st_item){.name = "lost", .read = failing, .ctx = &left},
                PP_ERESOURCE, "the device is gone");
    }
}

TEST_IN_FOLDER(every_flipped_bit_of_the_data_names_its_tensor)
{
    const char *path = in_folder(state, "four.safetensors");
    int calls = 0, checked = 0;
    uint64_t bytes = 0;
    uint8_t digest[PP_SHA256_BYTES];
    CHECK_OK(write_four(&pp_io_system, path, &calls, &bytes, digest));
    PP_OWN(pp_st_close) struct pp_st_file *f = NULL;
    CHECK_OK(pp_st_open(path, &f));
    PP_OWN(blob_free) struct blob b = file_read(path);
    FILE *out = fopen(path, "r+b");
    assert_non_null(out);
    setbuf(out, NULL);
    for (size_t bit = f->header->data_begin * 8; bit < b.n * 8; bit++) {
        uint64_t at = bit / 8 - f->header->data_begin;
        fseek(out, (long)(bit / 8), SEEK_SET);
        fputc(b.p[bit / 8] ^ (1 << bit % 8), out);
        const char *name = at < 24 ? "counts" : at < 48 ? "layers.0.weight" : "scalar";
        CHECK_FAILS(pp_st_check_data(f, &checked), PP_EFORMAT, name);
        fseek(out, (long)(bit / 8), SEEK_SET);
        fputc(b.p[bit / 8], out);
    }
    fclose(out);
    CHECK_OK(pp_st_check_data(f, &checked));
}

TEST_IN_FOLDER(a_file_that_becomes_shorter_is_noticed)
{
    const char *path = in_folder(state, "four.safetensors");
    int calls = 0, checked = 0;
    uint64_t bytes = 0;
    uint8_t digest[PP_SHA256_BYTES];
    CHECK_OK(write_four(&pp_io_system, path, &calls, &bytes, digest));
    PP_OWN(pp_st_close) struct pp_st_file *f = NULL;
    CHECK_OK(pp_st_open(path, &f));
    CHECK_INT_EQ(truncate(path, (off_t)bytes - 1), 0);
    CHECK_FAILS(pp_st_check_data(f, &checked), PP_EFORMAT, "became shorter");
}

TEST_IN_FOLDER(a_leftover_of_the_same_process_number_is_in_nobodys_way)
{
    const char *path = in_folder(state, "four.safetensors");
    char temp[PP_PATH_MAX];
    int calls = 0;
    uint64_t bytes = 0;
    uint8_t digest[PP_SHA256_BYTES];
    CHECK_OK(pp_path_format(temp, "%s.tmp-%ld", path, (long)getpid()));
    file_write(temp, "half", 4);
    CHECK_OK(write_four(&pp_io_system, path, &calls, &bytes, digest));
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 1);
}
