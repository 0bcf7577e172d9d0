/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of pictures in either order, scaling by column, and what is said about both. */
#include "test_data_files.h"

#include "ppcli/data/dataset.h"

static void write_array(const char *path, const char *descr, const char *shape, const void *data,
                        size_t bytes)
{
    char header[128];
    int n = snprintf(header, sizeof(header),
                     "\x93NUMPY%c%cv%c{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", 1,
                     0, 0, descr, shape);
    header[8] = (char)(n - 10);
    PP_OWN(blob_free) struct blob b = blob_of((size_t)n + bytes);
    memcpy(b.p, header, (size_t)n);
    memcpy(b.p + n, data, bytes);
    file_write(path, b.p, b.n);
}

static void array_config(void **state, const char *descr, const char *shape, const void *data,
                         size_t bytes, int samples, struct pp_config *cfg)
{
    static const uint8_t labels[16] = {0, 1};
    char n[16];
    memset(cfg, 0, sizeof(*cfg));
    snprintf(cfg->model.type, sizeof(cfg->model.type), "sequential");
    snprintf(cfg->data.dataset, sizeof(cfg->data.dataset), "npy");
    snprintf(cfg->data.train_images, PP_PATH_MAX, "%s/x", (char *)*state);
    snprintf(cfg->data.train_labels, PP_PATH_MAX, "%s/y", (char *)*state);
    snprintf(n, sizeof(n), "(%d,)", samples);
    write_array(cfg->data.train_images, descr, shape, data, bytes);
    write_array(cfg->data.train_labels, "|u1", n, labels, (size_t)samples);
}

static int open_array(const struct pp_config *cfg, struct pp_dataset **out)
{
    struct pp_dataset *look = NULL;
    PP_TRY(pp_dataset_look(cfg, PP_SPLIT_TRAIN, &look));
    struct pp_shape shape = look->input;
    pp_dataset_destroy(&look);
    return pp_dataset_open(cfg, PP_SPLIT_TRAIN, PP_DATA_IMAGES | PP_DATA_LABELS, &shape, 2, out);
}

TEST_IN_FOLDER(pictures_are_read_in_either_order)
{
    static const struct {
        const char *shape;
        enum pp_layout_of layout;
        int h, w, c;
        bool first, said;
    } table[] = {
        {"(2, 3, 32, 32)", PP_LAYOUT_AUTO, 32, 32, 3, true, true},
        {"(2, 32, 32, 3)", PP_LAYOUT_AUTO, 32, 32, 3, false, false},
        {"(2, 3, 48, 64)", PP_LAYOUT_AUTO, 48, 64, 3, true, true},
        {"(2, 48, 64, 3)", PP_LAYOUT_AUTO, 48, 64, 3, false, false},
        {"(2, 1, 28, 28)", PP_LAYOUT_AUTO, 28, 28, 1, true, true},
        {"(2, 28, 28, 1)", PP_LAYOUT_AUTO, 28, 28, 1, false, false},
        {"(2, 16, 8, 8)", PP_LAYOUT_AUTO, 8, 8, 16, true, true},
        {"(2, 8, 8, 16)", PP_LAYOUT_AUTO, 8, 8, 16, false, true},
        {"(2, 4, 5, 6)", PP_LAYOUT_CHANNELS_LAST, 4, 5, 6, false, false},
        {"(2, 4, 5, 6)", PP_LAYOUT_CHANNELS_FIRST, 5, 6, 4, true, false},
        {"(2, 28, 28)", PP_LAYOUT_CHANNELS_FIRST, 28, 28, 1, false, false},
    };
    static uint8_t bytes[2 * 48 * 64 * 3];
    static float floats[2 * 48 * 64 * 3];
    for (size_t i = 0; i < sizeof(bytes); i++)
        floats[i] = bytes[i] = (uint8_t)(i * 7919 >> 3);
    for (size_t i = 0; i < 2 * sizeof(table) / sizeof(table[0]); i++) {
        struct pp_config cfg;
        PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
        size_t k = i / 2, h = (size_t)table[k].h, w = (size_t)table[k].w, c = (size_t)table[k].c;
        bool floating = i % 2;
        array_config(state, floating ? "<f4" : "|u1", table[k].shape,
                     floating ? (void *)floats : (void *)bytes, 2 * h * w * c * (floating ? 4 : 1),
                     2, &cfg);
        cfg.data.layout = table[k].layout;
        cfg.data.std = (struct pp_floats){.n = 1, .at = {1000}}; /* no word about large values */
        CHECK_OK(open_array(&cfg, &ds));
        CHECK_INT_EQ(ds->shape.dims[0], h);
        CHECK_INT_EQ(ds->shape.dims[1], w);
        CHECK_INT_EQ(ds->shape.dims[2], c);
        CHECK_INT_EQ(ds->n_remarks, table[k].said);
        if (table[k].said)
            assert_non_null(strstr(ds->remarks[0], table[k].first ? "data.layout = channels_first"
                                                                  : "data.layout = channels_last"));
        for (size_t at = 0; at < 2 * h * w * c; at++) {
            size_t sample = at / (h * w * c), pixel = at / c % (h * w), channel = at % c;
            size_t from = table[k].first ? (sample * c + channel) * h * w + pixel : at;
            float v = floating ? ((const float *)(const void *)ds->images)[at] : ds->images[at];
            if (v < bytes[from] || v > bytes[from])
                fail_msg("%s, value %zu: %g, expected %d", table[k].shape, at, (double)v,
                         bytes[from]);
        }
    }
}

/* Bytes of npy are pictures like those of IDX. */
TEST_IN_FOLDER(bytes_of_npy_can_be_augmented)
{
    static const uint8_t bytes[2 * 8 * 8 * 3];
    struct pp_config cfg;
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    array_config(state, "|u1", "(2, 8, 8, 3)", bytes, sizeof(bytes), 2, &cfg);
    cfg.data.augment = (struct pp_augments){.n = 1, .at = {PP_AUGMENT_FLIP}};
    CHECK_OK(open_array(&cfg, &ds));
    CHECK_INT_EQ(ds->element, PP_U8);
}

TEST_IN_FOLDER(columns_of_a_table_are_scaled_each_by_its_own_numbers)
{
    static const float x[] = {1, 1000, 3, 3000};
    struct pp_config cfg;
    struct pp_dataset *ds = NULL;
    array_config(state, "<f4", "(2, 2)", x, sizeof(x), 2, &cfg);
    CHECK_OK(open_array(&cfg, &ds));
    CHECK_INT_EQ(ds->n_remarks, 1);
    assert_non_null(
        strstr(ds->remarks[0], "1 of 2 columns is large: value 2 goes from 1000 to 3000"));
    pp_dataset_destroy(&ds);
    cfg.data.mean = (struct pp_floats){.n = 2, .at = {2, 2000}};
    cfg.data.std = (struct pp_floats){.n = 2, .at = {1, 500}};
    CHECK_OK(open_array(&cfg, &ds));
    const float *v = (const float *)(const void *)ds->images;
    assert_true(v[0] == -1 && v[1] == -2 && v[2] == 1 && v[3] == 2);
    CHECK_INT_EQ(ds->scaling.channels, 0);
    CHECK_INT_EQ(ds->n_remarks, 0);
    pp_dataset_destroy(&ds);
    cfg.data.mean.n = 0; /* one list alone */
    CHECK_OK(open_array(&cfg, &ds));
    v = (const float *)(const void *)ds->images;
    assert_true(v[0] == 1 && v[1] == 2 && v[2] == 3 && v[3] == 6);
    pp_dataset_destroy(&ds);
    cfg.data.std.n = 3;
    CHECK_FAILS(open_array(&cfg, &ds), PP_ECONFIG,
                "data.std: 3 numbers, but a sample of npy has 2 columns; write one number for each "
                "column, or one for all");
}
