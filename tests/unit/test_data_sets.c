/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets: the sample, folders with wrong pairs, absent data, and the synthetic one. */
#include "test_data_files.h"

#include <math.h>

#include "ppcli/data/dataset.h"
#include "../../src/data/ops.h"
#include "ppcli/base/base.h"

#define BOTH (PP_DATA_IMAGES | PP_DATA_LABELS)

static struct pp_config *config(const char *dataset, const char *path)
{
    static struct pp_config cfg;
    memset(&cfg, 0, sizeof(cfg));
    snprintf(cfg.data.dataset, sizeof(cfg.data.dataset), "%s", dataset);
    snprintf(cfg.data.path, sizeof(cfg.data.path), "%s", path);
    snprintf(cfg.model.type, sizeof(cfg.model.type), "mlp");
    cfg.model.sizes[0] = 784;
    cfg.model.sizes[1] = 10;
    cfg.model.n_sizes = 2;
    cfg.train.seed = 1;
    return &cfg;
}

static int open_train(const struct pp_config *cfg, int parts, struct pp_dataset **out)
{
    return pp_dataset_open(cfg, PP_SPLIT_TRAIN, parts, FLAT(784), 10, out);
}

/* A pair of n images of rows x columns and n_labels labels, gzipped, in the test's folder. */
static void write_pair(void **state, const char *prefix, uint32_t n, uint32_t rows,
                       uint32_t columns, uint32_t n_labels)
{
    char name[64];
    const uint32_t dims[3] = {n, rows, columns};
    PP_OWN(blob_free) struct blob images = idx_bytes(3, dims, (size_t)n * rows * columns, 256);
    PP_OWN(blob_free) struct blob labels = idx_bytes(1, &n_labels, n_labels, 10);
    snprintf(name, sizeof(name), "%s-images-idx3-ubyte.gz", prefix);
    file_write_gzip(in_folder(state, name), images);
    snprintf(name, sizeof(name), "%s-labels-idx1-ubyte.gz", prefix);
    file_write_gzip(in_folder(state, name), labels);
}

TEST_IN_FOLDER(every_name_has_its_information)
{
    const char *const *names = pp_dataset_names();
    int n = 0;
    for (; names[n]; n++) {
        const struct pp_dataset_info *info = pp_dataset_info(names[n]);
        assert_non_null(info);
        CHECK_STR_EQ(info->name, names[n]);
        assert_true(strlen(info->help) > 10);
    }
    assert_true(n >= 7);
    assert_null(pp_dataset_info("mnits"));
    CHECK_STR_EQ(pp_dataset_info("mnist")->fetch_command, "ppcli download mnist");
    assert_null(pp_dataset_info("synthetic")->fetch_command);
}

TEST_IN_FOLDER(an_unknown_data_set_is_a_config_error)
{
    struct pp_dataset *ds = NULL;
    int n = -1;
    CHECK_FAILS(open_train(config("mnits", ""), BOTH, &ds), PP_ECONFIG, "'mnits'");
    CHECK_FAILS(pp_dataset_count(config("mnits", ""), PP_SPLIT_TEST, &n), PP_ECONFIG, "mnist");
    assert_null(ds);
    CHECK_INT_EQ(n, -1);
}

TEST_IN_FOLDER(the_sample_is_balanced_and_found_without_a_path)
{
    setenv("PPCLI_DATA_DIR", *state, 1); /* an empty folder: not a person's own data */
    for (int split = PP_SPLIT_TRAIN; split <= PP_SPLIT_TEST; split++) {
        struct pp_dataset *ds = NULL;
        int each = split == PP_SPLIT_TRAIN ? 600 : 100, count = 0, per_class[10] = {0};
        CHECK_OK(pp_dataset_open(config("mnist-sample", ""), split, BOTH, FLAT(784), 10, &ds));
        CHECK_OK(pp_dataset_count(config("mnist-sample", ""), split, &count));
        CHECK_INT_EQ(ds->n, 10 * each);
        CHECK_INT_EQ(count, ds->n);
        CHECK_INT_EQ(ds->features, 784);
        CHECK_INT_EQ(ds->classes, 10);
        assert_true(ds->scale == 1.0f / 255.0f);
        CHECK_STR_EQ(ds->name, "mnist-sample");
        assert_non_null(strstr(ds->origin, "mnist-sample"));
        for (int i = 0; i < ds->n; i++)
            per_class[pp_dataset_label(ds, i)]++;
        for (int c = 0; c < 10; c++)
            CHECK_INT_EQ(per_class[c], each);
        pp_dataset_destroy(&ds);
        assert_null(ds);
    }
}

static void sha256_of(const void *data, size_t bytes, char hex[PP_SHA256_HEX])
{
    struct pp_sha256 s;
    uint8_t digest[PP_SHA256_BYTES];
    pp_sha256_init(&s);
    pp_sha256_update(&s, data, bytes);
    pp_sha256_final(&s, digest);
    pp_sha256_hex(digest, hex);
}

TEST_IN_FOLDER(the_sample_has_the_documented_digests)
{
    char path[4096];
    char hex[PP_SHA256_HEX];
    snprintf(path, sizeof(path), "%s/data/README.md", getenv("PPCLI_SOURCE_DIR"));
    PP_OWN(blob_free) struct blob text = file_read(path);
    PP_OWN_MEMORY char *readme = calloc(1, text.n + 1);
    memcpy(readme, text.p, text.n);
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/data/mnist-sample/%s.gz", getenv("PPCLI_SOURCE_DIR"),
                 names[i]);
        PP_OWN(blob_free) struct blob b = file_read(path);
        sha256_of(b.p, b.n, hex);
        if (!strstr(readme, hex))
            fail_msg("%s: digest %s is not in data/README.md", path, hex);
    }
}

TEST_IN_FOLDER(only_the_asked_half_is_kept)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *images = NULL, *labels = NULL;
    write_pair(state, "train", 30, 28, 28, 30);
    CHECK_OK(open_train(config("mnist", *state), PP_DATA_IMAGES, &images));
    CHECK_OK(open_train(config("mnist", *state), PP_DATA_LABELS, &labels));
    assert_non_null(images->images);
    assert_null(images->targets);
    CHECK_INT_EQ(images->labels_crc, 0);
    assert_null(labels->images);
    assert_non_null(labels->targets);
    CHECK_INT_EQ(labels->images_crc, 0);
    CHECK_INT_EQ(labels->features, 784);
    CHECK_INT_EQ(images->n, labels->n);
    CHECK_STR_EQ(images->origin, (const char *)*state);
    CHECK_INT_EQ(labels->labels_crc, crc32(0, labels->targets, 30));
    CHECK_INT_EQ(images->images_crc, crc32(0, images->images, 30 * 784));
}

TEST_IN_FOLDER(a_limit_takes_the_first_samples_and_keeps_the_checksum)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *all = NULL, *some = NULL;
    struct pp_config *cfg = config("mnist", *state);
    int n = 0;
    write_pair(state, "train", 30, 28, 28, 30);
    CHECK_OK(open_train(cfg, BOTH, &all));
    cfg->data.train_samples = 7;
    CHECK_OK(open_train(cfg, BOTH, &some));
    CHECK_OK(pp_dataset_count(cfg, PP_SPLIT_TRAIN, &n));
    CHECK_INT_EQ(some->n, 7);
    assert_true(n >= 7);
    assert_memory_equal(some->images, all->images, 7 * 784);
    CHECK_INT_EQ(some->images_crc, all->images_crc);
    cfg->data.train_samples = 31; /* "at most this many" */
    CHECK_OK(pp_dataset_count(cfg, PP_SPLIT_TRAIN, &n));
    CHECK_INT_EQ(n, 30);
}

TEST_IN_FOLDER(counts_that_differ_are_refused_by_every_rank)
{
    struct pp_dataset *ds = NULL;
    int n;
    write_pair(state, "train", 30, 28, 28, 29);
    for (int parts = PP_DATA_IMAGES; parts <= BOTH; parts++) {
        CHECK_FAILS(open_train(config("mnist", *state), parts, &ds), PP_EFORMAT,
                    "holds 30 images, but");
        assert_null(ds);
    }
    CHECK_FAILS(pp_dataset_count(config("mnist", *state), PP_SPLIT_TRAIN, &n), PP_EFORMAT,
                "holds 29 labels");
}

TEST_IN_FOLDER(images_and_labels_that_are_swapped_are_refused)
{
    struct pp_dataset *ds = NULL;
    write_pair(state, "train", 30, 28, 28, 30);
    rename(in_folder(state, "train-images-idx3-ubyte.gz"), in_folder(state, "x"));
    rename(in_folder(state, "train-labels-idx1-ubyte.gz"),
           in_folder(state, "train-images-idx3-ubyte.gz"));
    rename(in_folder(state, "x"), in_folder(state, "train-labels-idx1-ubyte.gz"));
    CHECK_FAILS(open_train(config("mnist", *state), BOTH, &ds), PP_EFORMAT,
                "1 dimension, expected 2 to 4 (samples, then values or rows");
}

TEST_IN_FOLDER(a_label_outside_the_classes_is_named)
{
    struct pp_dataset *ds = NULL;
    const uint32_t n = 30;
    PP_OWN(blob_free) struct blob labels = idx_bytes(1, &n, n, 10);
    write_pair(state, "train", n, 28, 28, n);
    for (int bad = 10; bad <= 255; bad += 245) {
        labels.p[8 + 12] = (uint8_t)bad;
        file_write_gzip(in_folder(state, "train-labels-idx1-ubyte.gz"), labels);
        char words[64];
        snprintf(words, sizeof(words), "label 12 is %d, expected 0 to 9", bad);
        CHECK_FAILS(open_train(config("mnist", *state), BOTH, &ds), PP_EFORMAT, words);
        assert_null(ds);
    }
}

TEST_IN_FOLDER(a_model_that_does_not_fit_is_a_config_error)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    struct pp_config *cfg = config("mnist", *state);
    write_pair(state, "train", 3, 28, 28, 3);
    CHECK_FAILS(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(100), 10, &ds), PP_ECONFIG,
                "a sample of mnist has 28 x 28 x 1 = 784 values and there are 10 classes; use "
                "model.sizes = 784 10");
    CHECK_FAILS(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(784), 9, &ds), PP_ECONFIG,
                "ends with 9, but a sample of mnist");
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(784), 16, &ds));
}

TEST_IN_FOLDER(absent_data_names_the_folder_and_the_command)
{
    struct pp_dataset *ds = NULL;
    int n;
    char words[4200];
    setenv("PPCLI_DATA_DIR", *state, 1);
    snprintf(words, sizeof(words),
             "no mnist data in %s/mnist; fetch it with: ppcli download mnist,",
             (const char *)*state);
    CHECK_FAILS(open_train(config("mnist", ""), BOTH, &ds), PP_ENOINPUT, words);
    CHECK_FAILS(open_train(config("mnist", ""), BOTH, &ds), PP_ENOINPUT, "data.dataset");
    snprintf(words, sizeof(words), "ppcli download fashion-mnist --dir %s", (const char *)*state);
    CHECK_FAILS(open_train(config("fashion-mnist", *state), BOTH, &ds), PP_ENOINPUT, words);
    CHECK_FAILS(pp_dataset_count(config("mnist", *state), PP_SPLIT_TRAIN, &n), PP_ENOINPUT,
                "--dir");
    CHECK_FAILS(open_train(config("mnist-sample", *state), BOTH, &ds), PP_ENOINPUT,
                "it comes with ppcli");
    write_pair(state, "train", 3, 28, 28, 3);
    unlink(in_folder(state, "train-labels-idx1-ubyte.gz"));
    CHECK_FAILS(open_train(config("mnist", *state), PP_DATA_IMAGES, &ds), PP_ENOINPUT,
                "train-labels-idx1-ubyte.gz is missing");
    assert_null(ds);
}

TEST_IN_FOLDER(gzipped_files_come_before_plain_ones)
{
    struct pp_dataset *ds = NULL;
    const uint32_t dims[3] = {5, 28, 28};
    struct blob images = idx_bytes(3, dims, 5 * 784, 256), labels = idx_bytes(1, dims, 5, 10);
    file_write(in_folder(state, "train-images-idx3-ubyte"), images.p, images.n);
    file_write(in_folder(state, "train-labels-idx1-ubyte"), labels.p, labels.n);
    CHECK_OK(open_train(config("mnist", *state), BOTH, &ds));
    CHECK_INT_EQ(ds->n, 5);
    pp_dataset_destroy(&ds);
    write_pair(state, "train", 3, 28, 28, 3);
    CHECK_OK(open_train(config("mnist", *state), BOTH, &ds));
    CHECK_INT_EQ(ds->n, 3);
    pp_dataset_destroy(&ds);
    blob_free(&images);
    blob_free(&labels);
}

TEST_IN_FOLDER(the_data_folder_follows_the_environment)
{
    char dir[PP_PATH_MAX];
    setenv("PPCLI_DATA_DIR", "/a", 1);
    setenv("XDG_DATA_HOME", "/b", 1);
    setenv("HOME", "/c", 1);
    CHECK_OK(pp_data_dir("mnist", dir));
    CHECK_STR_EQ(dir, "/a/mnist");
    setenv("PPCLI_DATA_DIR", "", 1);
    CHECK_OK(pp_data_dir("mnist", dir));
    CHECK_STR_EQ(dir, "/b/ppcli/mnist");
    setenv("XDG_DATA_HOME", "relative", 1);
    CHECK_OK(pp_data_dir("mnist", dir));
    CHECK_STR_EQ(dir, "/c/.local/share/ppcli/mnist");
    unsetenv("HOME");
    CHECK_FAILS(pp_data_dir("mnist", dir), PP_ECONFIG, "no folder for data sets");
}

TEST_IN_FOLDER(synthetic_data_follows_from_the_seed)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *a = NULL, *b = NULL, *c = NULL, *test = NULL;
    struct pp_config *cfg = config("synthetic", "");
    cfg->data.train_samples = 500;
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(100), 7, &a));
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(100), 7, &b));
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TEST, BOTH, FLAT(100), 7, &test));
    cfg->train.seed = 2;
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, PP_DATA_IMAGES, FLAT(100), 7, &c));
    CHECK_INT_EQ(a->n, 500);
    CHECK_INT_EQ(a->features, 100);
    CHECK_INT_EQ(a->classes, 7);
    CHECK_STR_EQ(a->origin, "made from the seed");
    assert_memory_equal(a->images, b->images, 500 * 100);
    assert_memory_equal(a->targets, b->targets, 500);
    CHECK_INT_EQ(a->images_crc, crc32(0, a->images, 500 * 100));
    assert_true(a->images_crc != c->images_crc);
    CHECK_INT_EQ(test->n, 1024);
    assert_true(memcmp(a->images, test->images, 500 * 100) != 0);
}

TEST_IN_FOLDER(synthetic_rows_do_not_depend_on_how_many_there_are)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *few = NULL, *many = NULL;
    struct pp_config *cfg = config("synthetic", "");
    cfg->data.train_samples = 10;
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(33), 3, &few));
    cfg->data.train_samples = 100;
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(33), 3, &many));
    assert_memory_equal(few->images, many->images, 10 * 33);
}

/* A nearest-mean classifier learnt on the training half knows the test half. */
TEST_IN_FOLDER(synthetic_classes_can_be_learnt)
{
    enum {
        F = 64,
        C = 10
    };
    PP_OWN(pp_dataset_destroy) struct pp_dataset *train = NULL, *test = NULL;
    struct pp_config *cfg = config("synthetic", "");
    static double mean[C][F];
    int n[C] = {0}, correct = 0;
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(F), C, &train));
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TEST, BOTH, FLAT(F), C, &test));
    for (int i = 0; i < train->n; i++) {
        n[pp_dataset_label(train, i)]++;
        for (int j = 0; j < F; j++)
            mean[pp_dataset_label(train, i)][j] += train->images[i * F + j];
    }
    for (int i = 0; i < test->n; i++) {
        int best = -1;
        double least = 1e30;
        for (int c = 0; c < C; c++) {
            double d = 0;
            for (int j = 0; j < F; j++) {
                double e = test->images[i * F + j] - mean[c][j] / n[c];
                d += e * e;
            }
            best = d < least ? c : best;
            least = d < least ? d : least;
        }
        correct += best == (int)pp_dataset_label(test, i);
    }
    for (int c = 0; c < C; c++)
        assert_in_range(n[c], train->n / C, train->n / C + 1);
    print_message("# %d of %d\n", correct, test->n);
    assert_true(correct > test->n * 95 / 100);
}

TEST_IN_FOLDER(synthetic_has_more_classes_than_a_byte_holds)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    struct pp_config *cfg = config("synthetic", "");
    cfg->data.train_samples = 300;
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(4), 257, &ds));
    CHECK_INT_EQ(pp_dataset_label(ds, 256), 256);
    CHECK_INT_EQ(pp_dataset_label(ds, 257), 0);
}

TEST_IN_FOLDER(synthetic_has_numbers_for_a_loss_of_numbers)
{
    struct pp_config *cfg = config("synthetic", "");
    struct pp_dataset *ds[2] = {NULL, NULL};
    cfg->data.train_samples = 30;
    for (int kind = PP_LOSS_MSE; kind <= PP_LOSS_BCE; kind++) {
        cfg->train.loss = (enum pp_loss_kind)kind;
        CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(4), 3, &ds[0]));
        CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, PP_DATA_LABELS, FLAT(4), 3, &ds[1]));
        CHECK_INT_EQ(ds[0]->targets_each, 3);
        assert_null(ds[1]->images);
        assert_memory_equal(ds[0]->targets, ds[1]->targets, 90 * sizeof(float));
        for (int i = 0; i < 90; i++)
            assert_true(kind != PP_LOSS_BCE || ((float *)ds[0]->targets)[i] == 0 ||
                        ((float *)ds[0]->targets)[i] == 1);
        pp_dataset_destroy(&ds[0]);
        pp_dataset_destroy(&ds[1]);
    }
}

TEST_IN_FOLDER(weights_of_classes_are_balanced_as_scikit_learn_does)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    struct pp_config *cfg = config("synthetic", "");
    float weights[4];
    cfg->data.train_samples = 8; /* 0 1 2 0 1 2 0 1 */
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(4), 3, &ds));
    cfg->train.class_weights.n = PP_FLOATS_WORD;
    CHECK_OK(pp_dataset_class_weights(cfg, ds, 4, weights));
    const float want[] = {8.0f / 9, 8.0f / 9, 8.0f / 6, 1};
    assert_memory_equal(weights, want, sizeof(want));
    assert_true(fabs(pp_dataset_weight(ds, weights, 3, (const uint32_t[]){0, 2, 3}) - 28.0 / 9) <
                1e-6);
}

/* (v / 255 - mean) / std, for each channel, or for all. */
TEST_IN_FOLDER(numbers_of_channels_scale_and_shift)
{
    struct pp_dataset *ds = NULL;
    struct pp_config *cfg = config("cifar10-sample", "");
    setenv("PPCLI_DATA_DIR", *state, 1);
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TEST, BOTH, FLAT(3072), 10, &ds));
    CHECK_INT_EQ(ds->scaling.channels, 0); /* no shift: the bits of scale * v */
    assert_true(ds->scaling.scale[0] == 1.0f / 255.0f);
    pp_dataset_destroy(&ds);
    cfg->data.mean = (struct pp_floats){3, {0.5, 0.25, 0.125}};
    cfg->data.std = (struct pp_floats){1, {0.5}};
    CHECK_OK(pp_dataset_check(cfg, FLAT(3072), 10));
    CHECK_OK(pp_dataset_open(cfg, PP_SPLIT_TEST, BOTH, FLAT(3072), 10, &ds));
    CHECK_INT_EQ(ds->scaling.channels, 3);
    const float offsets[] = {-1, -0.5f, -0.25f};
    for (int c = 0; c < 3; c++) {
        assert_true(ds->scaling.offset[c] == offsets[c]);
        assert_float_equal(ds->scaling.scale[c], 2 / 255., 1e-8);
    }
    pp_dataset_destroy(&ds);
    cfg->data.std.n = 2;
    CHECK_FAILS(pp_dataset_check(cfg, FLAT(3072), 10), PP_ECONFIG,
                "data.std: 2 numbers, but a sample of cifar10-sample has 3 channels; write one "
                "number for each channel, or one for all");
    struct pp_config *grey = config("mnist-sample", "");
    grey->data.mean = (struct pp_floats){3, {1, 2, 3}};
    CHECK_FAILS(pp_dataset_check(grey, FLAT(784), 10), PP_ECONFIG, "has 1 channel;");
}

int main(void)
{
    if (!getenv("PPCLI_SOURCE_DIR"))
        setenv("PPCLI_SOURCE_DIR", ".", 1);
    return tests_run(NULL, NULL);
}

extern const struct pp_dataset_ops dataset_skeleton; /* in no table */

static int open_skeleton(const struct pp_config *cfg, int parts, struct pp_dataset **out)
{
    PP_ALLOC(*out, 1);
    return dataset_skeleton.open(&dataset_skeleton, cfg, PP_SPLIT_TRAIN, parts, NULL, 0, *out);
}

TEST_IN_FOLDER(the_skeleton_reads_its_files_and_refuses_others)
{
    uint8_t bytes[4 + 2 * 65 + 1] = {2};
    for (size_t i = 4; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    bytes[4] = 7;
    bytes[4 + 65] = 9;
    struct pp_config *cfg = config("skeleton", "");
    snprintf(cfg->data.train_file, PP_PATH_MAX, "%s", in_folder(state, "x"));
    file_write(cfg->data.train_file, bytes, sizeof(bytes) - 1);
    PP_OWN(pp_dataset_destroy)
    struct pp_dataset *ds = NULL, *head = NULL, *bad = NULL, *more = NULL;
    CHECK_OK(open_skeleton(cfg, BOTH, &ds));
    CHECK_INT_EQ(ds->n, 2);
    CHECK_INT_EQ(pp_dataset_label(ds, 1), 9);
    assert_memory_equal(ds->images + 64, bytes + 4 + 66, 64);
    CHECK_OK(open_skeleton(cfg, 0, &head));
    CHECK_INT_EQ(head->n, 2);
    assert_null(head->images);
    bytes[4] = 10;
    file_write(cfg->data.train_file, bytes, sizeof(bytes) - 1);
    CHECK_FAILS(open_skeleton(cfg, BOTH, &bad), PP_EFORMAT, "label 0 is 10");
    file_write(cfg->data.train_file, bytes, sizeof(bytes));
    CHECK_FAILS(open_skeleton(cfg, 0, &more), PP_EFORMAT, "x");
}
