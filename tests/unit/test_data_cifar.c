/* SPDX-License-Identifier: Apache-2.0 */
/* CIFAR-10's binary files: plain and gzipped, whole and odd; the archive they come in; the sample. */
#include "test_data_files.h"

#include "ppcli/data/dataset.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "../../src/data/ops.h"

#define BOTH (PP_DATA_IMAGES | PP_DATA_LABELS)
#define PIXELS 1024
#define RECORD (1 + 3 * PIXELS)

static struct pp_config *config(const char *dataset, const char *path)
{
    static struct pp_config cfg;
    memset(&cfg, 0, sizeof(cfg));
    snprintf(cfg.data.dataset, sizeof(cfg.data.dataset), "%s", dataset);
    snprintf(cfg.data.path, sizeof(cfg.data.path), "%s", path);
    return &cfg;
}

static int open_split(const struct pp_config *cfg, enum pp_split split, int parts,
                      struct pp_dataset **out)
{
    return pp_dataset_open(cfg, split, parts, FLAT(3 * PIXELS), 10, out);
}

static uint8_t value(int record, int channel, int pixel)
{
    return (uint8_t)(record * 31 + channel * 85 + pixel * 7);
}

/* Records first .. first + n - 1; record r has label r mod 10. */
static struct blob records(int first, int n)
{
    struct blob b = blob_of((size_t)n * RECORD);
    for (int r = 0; r < n; r++) {
        uint8_t *to = b.p + (size_t)r * RECORD;
        *to++ = (uint8_t)((first + r) % 10);
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < PIXELS; p++)
                *to++ = value(first + r, c, p);
    }
    return b;
}

static void put(void **state, const char *name, struct blob b)
{
    file_write(in_folder(state, name), b.p, b.n);
    blob_free(&b);
}

static void put_gzip(void **state, const char *name, struct blob b)
{
    file_write_gzip(in_folder(state, name), b);
    blob_free(&b);
}

TEST_IN_FOLDER(the_batches_there_are_follow_each_other_as_rgb_pixels)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL, *test = NULL;
    put(state, "data_batch_1.bin", records(0, 7));
    put_gzip(state, "data_batch_3.bin.gz", records(7, 1));
    put(state, "data_batch_5.bin", records(8, 1500));
    put_gzip(state, "test_batch.bin.gz", records(3, 2));
    struct pp_config *cfg = config("cifar10", *state);
    CHECK_OK(open_split(cfg, PP_SPLIT_TRAIN, BOTH, &ds));
    CHECK_OK(open_split(cfg, PP_SPLIT_TEST, BOTH, &test));
    CHECK_INT_EQ(ds->n, 1508);
    CHECK_INT_EQ(test->n, 2);
    CHECK_INT_EQ(ds->shape.n, 3);
    CHECK_INT_EQ(ds->shape.dims[0], 32);
    CHECK_INT_EQ(ds->shape.dims[1], 32);
    CHECK_INT_EQ(ds->shape.dims[2], 3);
    CHECK_INT_EQ(ds->features, 3072);
    CHECK_INT_EQ(ds->classes, 10);
    CHECK_STR_EQ(ds->origin, (const char *)*state);
    for (int r = 0; r < ds->n; r++) {
        CHECK_INT_EQ(pp_dataset_label(ds, r), r % 10);
        for (int i = 0; i < 3 * PIXELS; i++)
            if (ds->images[r * 3 * PIXELS + i] != value(r, i % 3, i / 3))
                fail_msg("record %d, value %d", r, i);
    }
    CHECK_INT_EQ(pp_dataset_label(test, 1), 4);
}

TEST_IN_FOLDER(halves_limits_and_counts)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *images = NULL, *labels = NULL, *few = NULL;
    int n = 0;
    put(state, "data_batch_2.bin", records(0, 30));
    struct pp_config *cfg = config("cifar10", *state);
    CHECK_OK(open_split(cfg, PP_SPLIT_TRAIN, PP_DATA_IMAGES, &images));
    CHECK_OK(open_split(cfg, PP_SPLIT_TRAIN, PP_DATA_LABELS, &labels));
    assert_null(images->targets);
    assert_null(labels->images);
    CHECK_INT_EQ(images->images_crc, crc32(0, images->images, 30 * 3072));
    CHECK_INT_EQ(labels->labels_crc, crc32(0, labels->targets, 30));
    cfg->data.train_samples = 4;
    CHECK_OK(pp_dataset_count(cfg, PP_SPLIT_TRAIN, &n));
    CHECK_INT_EQ(n, 4);
    CHECK_OK(open_split(cfg, PP_SPLIT_TRAIN, BOTH, &few));
    CHECK_INT_EQ(few->n, 4);
    CHECK_INT_EQ(few->images_crc, images->images_crc);
}

TEST_IN_FOLDER(files_of_ones_own_are_named_by_keys)
{
    struct pp_dataset *ds = NULL;
    put_gzip(state, "mine.bin", records(0, 3));
    put(state, "test_batch.bin", records(0, 2));
    struct pp_config *cfg = config("cifar10", *state);
    snprintf(cfg->data.train_file, PP_PATH_MAX, "%s", in_folder(state, "mine.bin"));
    CHECK_OK(pp_dataset_check(cfg, FLAT(3072), 10));
    CHECK_OK(open_split(cfg, PP_SPLIT_TRAIN, BOTH, &ds));
    CHECK_INT_EQ(ds->n, 3);
    CHECK_STR_EQ(ds->origin, cfg->data.train_file);
    pp_dataset_destroy(&ds);
    CHECK_OK(open_split(cfg, PP_SPLIT_TEST, BOTH, &ds));
    CHECK_INT_EQ(ds->n, 2);
    pp_dataset_destroy(&ds);
    snprintf(cfg->data.dataset, sizeof(cfg->data.dataset), "cifar10-sample");
    CHECK_FAILS(pp_dataset_check_keys(cfg), PP_ECONFIG, "only with csv, cifar10, ");
}

TEST_IN_FOLDER(odd_files_are_one_clear_line)
{
    struct pp_dataset *ds = NULL;
    struct pp_config *cfg = config("cifar10", *state);
    int n = 0;
    CHECK_FAILS(open_split(cfg, PP_SPLIT_TRAIN, BOTH, &ds), PP_ENOINPUT, "ppcli download cifar10");
    CHECK_FAILS(open_split(cfg, PP_SPLIT_TRAIN, BOTH, &ds), PP_ENOINPUT, "data.dataset");

    PP_OWN(blob_free) struct blob b = records(0, 3);
    file_write(in_folder(state, "data_batch_1.bin"), b.p, b.n - 1);
    const char *cut = "data_batch_1.bin: cut short: 2 whole records of 3073 bytes, then 3072 bytes";
    CHECK_FAILS(open_split(cfg, PP_SPLIT_TRAIN, PP_DATA_LABELS, &ds), PP_EFORMAT, cut);
    CHECK_FAILS(pp_dataset_count(cfg, PP_SPLIT_TRAIN, &n), PP_EFORMAT, cut);
    file_write(in_folder(state, "data_batch_1.bin"), b.p, 1);
    CHECK_FAILS(open_split(cfg, PP_SPLIT_TRAIN, BOTH, &ds), PP_EFORMAT, "0 whole records");
    file_write(in_folder(state, "data_batch_1.bin"), b.p, 0);
    CHECK_FAILS(open_split(cfg, PP_SPLIT_TRAIN, BOTH, &ds), PP_EFORMAT, "empty file");

    b.p[2 * RECORD] = 10;
    file_write(in_folder(state, "data_batch_1.bin"), b.p, b.n);
    CHECK_FAILS(open_split(cfg, PP_SPLIT_TRAIN, BOTH, &ds), PP_EFORMAT,
                "record 2 has label 10, expected 0 to 9");

    PP_OWN(blob_free) struct blob none = gzip("", 0, 9), whole = gzip(b.p, b.n, 9);
    file_write(in_folder(state, "data_batch_1.bin"), none.p, none.n);
    CHECK_FAILS(open_split(cfg, PP_SPLIT_TRAIN, BOTH, &ds), PP_EFORMAT, "0 whole records");
    file_write(in_folder(state, "data_batch_1.bin"), whole.p, whole.n - 9);
    CHECK_FAILS(open_split(cfg, PP_SPLIT_TRAIN, BOTH, &ds), PP_EFORMAT, "");
    assert_null(ds);
}

/* ---- the archive */

/* Header and bytes of one member, filled to whole blocks. */
static struct blob member(const char *name, char type, struct blob body)
{
    struct blob b = blob_of(512 + (body.n + 511) / 512 * 512);
    snprintf((char *)b.p, 100, "%s", name);
    snprintf((char *)b.p + 124, 12, "%011zo", body.n);
    b.p[156] = (uint8_t)type;
    if (body.n > 0)
        memcpy(b.p + 512, body.p, body.n);
    blob_free(&body);
    return b;
}

TEST_IN_FOLDER(the_archive_gives_its_batches)
{
    struct pp_dataset *ds = NULL;
    struct blob parts[] = {member("cifar-10-batches-bin/", '5', blob_of(0)),
                           member("cifar-10-batches-bin/data_batch_1.bin", '0', records(0, 60)),
                           member("cifar-10-batches-bin/readme.html", '0', blob_of(88)),
                           member("cifar-10-batches-bin/test_batch.bin", '0', records(0, 2)),
                           blob_of(1024)};
    struct blob tar = blob_of(0);
    for (int i = 0; i < 5; i++) {
        struct blob more = joined(tar, parts[i]);
        blob_free(&tar);
        blob_free(&parts[i]);
        tar = more;
    }
    char path[PP_PATH_MAX];
    snprintf(path, sizeof(path), "%s", in_folder(state, "x.tar.gz"));
    file_write_gzip(path, tar);
    for (int again = 0; again < 2; again++) {
        CHECK_OK(pp_tar_unpack(path, *state, ".bin"));
        CHECK_OK(open_split(config("cifar10", *state), PP_SPLIT_TRAIN, BOTH, &ds));
        CHECK_INT_EQ(ds->n, 60);
        pp_dataset_destroy(&ds);
        assert_true(file_exists(in_folder(state, "test_batch.bin")));
        assert_false(file_exists(in_folder(state, "readme.html")));
        file_write(in_folder(state, "data_batch_1.bin"), "half", 4); /* is replaced */
    }
    struct blob cut = {tar.p, 512 * 40};
    file_write_gzip(path, cut);
    CHECK_FAILS(pp_tar_unpack(path, *state, ".bin"), PP_EFORMAT, "x.tar.gz");
    struct blob no_tar = {tar.p + 1024 + 2, 2048};
    file_write_gzip(path, no_tar);
    CHECK_FAILS(pp_tar_unpack(path, *state, ".bin"), PP_EFORMAT, "not a tar archive");
    blob_free(&tar);
}

/* ---- the sample */

TEST_IN_FOLDER(the_sample_is_balanced_and_has_the_documented_digests)
{
    setenv("PPCLI_DATA_DIR", *state, 1); /* an empty folder: not a person's own data */
    char path[4096], hex[PP_SHA256_HEX];
    snprintf(path, sizeof(path), "%s/data/README.md", getenv("PPCLI_SOURCE_DIR"));
    PP_OWN(blob_free) struct blob text = file_read(path);
    PP_OWN_MEMORY char *readme = calloc(1, text.n + 1);
    memcpy(readme, text.p, text.n);
    for (int split = PP_SPLIT_TRAIN; split <= PP_SPLIT_TEST; split++) {
        struct pp_dataset *ds = NULL;
        int each = split == PP_SPLIT_TRAIN ? 50 : 10, per_class[10] = {0};
        CHECK_OK(open_split(config("cifar10-sample", ""), split, BOTH, &ds));
        CHECK_INT_EQ(ds->n, 10 * each);
        for (int i = 0; i < ds->n; i++)
            per_class[pp_dataset_label(ds, i)]++;
        for (int c = 0; c < 10; c++)
            CHECK_INT_EQ(per_class[c], each);
        pp_dataset_destroy(&ds);
        snprintf(path, sizeof(path), "%s/data/cifar10-sample/%s.bin.gz", getenv("PPCLI_SOURCE_DIR"),
                 split == PP_SPLIT_TRAIN ? "data_batch_1" : "test_batch");
        PP_OWN(blob_free) struct blob b = file_read(path);
        struct pp_sha256 s;
        uint8_t digest[PP_SHA256_BYTES];
        pp_sha256_init(&s);
        pp_sha256_update(&s, b.p, b.n);
        pp_sha256_final(&s, digest);
        if (!strstr(readme, pp_sha256_hex(digest, hex)))
            fail_msg("%s: digest %s is not in data/README.md", path, hex);
    }
}
