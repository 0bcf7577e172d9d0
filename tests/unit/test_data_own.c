/* SPDX-License-Identifier: Apache-2.0 */
/* A person's own files, odd ones above all: read as they are meant, or refused in one clear line.
 */
#include "test_data_files.h"

#include "ppcli/data/dataset.h"

#define BOTH (PP_DATA_IMAGES | PP_DATA_LABELS)

struct odd {
    const char *why;
    const char *words; /* in the error; NULL: it is read */
    int n, features, classes;
};

#define REFUSED(why, words)                                                                        \
    {                                                                                              \
        why, words, 0, 0, 0                                                                        \
    }

static void own_config(void **state, const char *dataset, struct pp_config *cfg)
{
    memset(cfg, 0, sizeof(*cfg));
    snprintf(cfg->model.type, sizeof(cfg->model.type), "mlp");
    snprintf(cfg->data.dataset, sizeof(cfg->data.dataset), "%s", dataset);
    snprintf(cfg->data.label, sizeof(cfg->data.label), "last");
    if (strcmp(dataset, "csv") == 0) {
        snprintf(cfg->data.train_file, PP_PATH_MAX, "%s/x", (char *)*state);
        snprintf(cfg->data.test_file, PP_PATH_MAX, "%s/x", (char *)*state);
    } else {
        snprintf(cfg->data.train_images, PP_PATH_MAX, "%s/x", (char *)*state);
        snprintf(cfg->data.test_images, PP_PATH_MAX, "%s/x", (char *)*state);
        snprintf(cfg->data.train_labels, PP_PATH_MAX, "%s/y", (char *)*state);
        snprintf(cfg->data.test_labels, PP_PATH_MAX, "%s/y", (char *)*state);
    }
}

/* Open both as whole and by its header, which must tell the same. */
static struct pp_dataset *check_odd(void **state, const struct pp_config *cfg, const struct odd *t)
{
    struct pp_dataset *ds = NULL;
    int n = -1;
    int inputs = t->words ? 2 : t->features, classes = t->words ? 2 : t->classes;
    int rc = pp_dataset_open(cfg, PP_SPLIT_TRAIN, BOTH, FLAT(inputs), classes, &ds);
    if ((rc == 0) != !t->words || (rc < 0 && !strstr(pp_error_get()->text, t->words))) {
        fail_msg("%s: %d, '%s', expected '%s'", t->why, rc, rc < 0 ? pp_error_get()->text : "",
                 t->words ? t->words : "to be read");
    }
    if (rc < 0) {
        print_message("# %s: %s\n", t->why, pp_error_get()->text);
        assert_null(strchr(pp_error_get()->text, '\n'));
        return NULL;
    }
    CHECK_OK(pp_dataset_count(cfg, PP_SPLIT_TRAIN, &n));
    CHECK_INT_EQ(ds->n, t->n);
    CHECK_INT_EQ(n, t->n);
    CHECK_INT_EQ(ds->features, t->features);
    CHECK_INT_EQ(ds->classes, t->classes);
    return ds;
}

static const float *values_of(const struct pp_dataset *ds)
{
    CHECK_INT_EQ(ds->element, PP_F32);
    return (const float *)(const void *)ds->images;
}

/* ---- csv */

TEST_IN_FOLDER(odd_tables_are_read_or_refused)
{
    static const struct {
        struct odd odd;
        const char *text;
    } table[] = {
        {{"no header", NULL, 2, 2, 2}, "1,2,0\n-3.5,4,1\n"},
        {{"a header", NULL, 2, 2, 2}, "a,b,kind\n1,2,0\n-3.5,4,1\n"},
        {{"quotes", NULL, 2, 2, 2}, "\"a\",\"b, \"\"c\"\"\",kind\n\"1\", \"2\" ,\"0\"\n-3.5,4,1\n"},
        {{"CRLF, a byte order mark", NULL, 2, 2, 2},
         "\xef\xbb\xbf"
         "a,b,c\r\n1,2,0\r\n-3.5,4,1\r\n"},
        {{"semicolons", NULL, 2, 2, 2}, "1;2;0\n-3.5;4;1\n"},
        {{"Excel's line that names the separator", NULL, 2, 2, 2},
         "\xef\xbb\xbfsep=;\r\na;b;c\r\n1;2;0\r\n-3.5;4;1\r\n"},
        {{"and without a header", NULL, 2, 2, 2}, "sep=,\n1,2,0\n-3.5,4,1\n"},
        {{"tabs, no end of line", NULL, 2, 2, 2}, "1\t2\t0\n-3.5\t4\t1"},
        {{"empty lines, blanks, exponents", NULL, 2, 2, 2},
         "\n1e0, 0.2E1 ,0\n\n -35e-1 ,4, 1.0\n\n"},
        {{"one sample", NULL, 1, 2, 2}, "1,2,1\n"},
        {{"label 255", NULL, 2, 2, 256}, "1,2,0\n-3.5,4,255\n"},
        {{"rows of blanks and of commas alone", NULL, 2, 2, 2}, ",,\n1,2,0\n-3.5,4,1\n  \n,,\n"},
        {{"returns alone", NULL, 2, 2, 2}, "a,b,c\r1,2,0\r-3.5,4,1\r"},
        {{"a plus, quoted numbers", NULL, 2, 2, 2}, "+1,\"+2e0\",0\n\"-3.5\",4,1\n"},
        {{"a header of numbers", NULL, 2, 2, 2}, "0,1,2\n1.0,2.0,0\n-3.5,4,1\n"},
        {{"a header of numbers and a name", NULL, 2, 2, 2}, "0,1,label\n1,2,0\n-3.5,4,1\n"},
        {REFUSED("0,1,2, whole numbers", ":1: 0 to 2: a sample, or a header as pandas writes it?"),
         "0,1,2\n1,2,0\n3,4,1\n"},
        {{"pandas' index", NULL, 2, 2, 2}, ",a,b,label\n0,1,2,0\n1,-3.5,4,1\n"},
        {{"its name when read again", NULL, 2, 2, 2},
         "Unnamed: 0,a,b,label\n0,1,2,0\n1,-3.5,4,1\n"},
        {{"R's names of rows", NULL, 2, 2, 2},
         "\"a\",\"b\",\"label\"\n\"x\",1,2,0\n\"y\",-3.5,4,1\n"},
        {REFUSED("Kaggle's MNIST", "column 1 of"), "label,a,b\n1,1,2\n0,3,4\n"},
        {{"trailing separators", NULL, 2, 2, 2}, "a;b;label;;\n1;2;0;;\n-3.5;4;1;;\n"},
        {{"trailing separators without a header", NULL, 2, 2, 2}, "1;2;0;;\n-3.5;4;1;;\n"},
        {{"trailing separators of rows", NULL, 2, 2, 2}, "a,b,label\n1,2,0,\n-3.5,4,1,\n"},
        {{"a quote over two lines", NULL, 2, 2, 2}, "a,\"b\nc\",kind\n1,2,0\n-3.5,4,1\n"},
        {{"units", NULL, 2, 2, 2}, "a,b,kind\n$1,2 %,0\n-3.5,4 %,1\n"},
        {{"Latin-1", NULL, 2, 2, 2},
         "Gr\xf6\xdf"
         "e,b,kind\n1,2,0\n-3.5,4,1\n"},
        {REFUSED("a column without a name", ":1: column 2 has no name; give it one"),
         "a,,label\n1,2,0\n3,4,1\n"},
        {REFUSED("a named separator that is not read", ":1: separator '|'"), "sep=|\n1|2|0\n"},
        {REFUSED("hexadecimal", ":2: column 1 is '0x10', expected a number"), "1,2,0\n0x10,4,1\n"},
        {REFUSED("a hexadecimal label", ":2: column 3 (the label) is '0x1'"), "1,2,0\n3,4,0x1\n"},
        {REFUSED("a hexadecimal float", ":2: column 2 is '0x1p3'"), "1,2,0\n3,0x1p3,1\n"},
        {REFUSED("infinity", ":2: column 1 is 'inf', which is not finite"), "1,2,0\ninf,4,1\n"},
        {REFUSED("an open quote", ":2: the quote that begins here is not closed"),
         "1,2,0\n3,\"4,1\n"},
        {REFUSED("UTF-16", "is in UTF-16; save it as UTF-8"), "\xff\xfe"
                                                              "1"},
        {REFUSED("a Git LFS pointer", "is a Git LFS pointer instead of the file"),
         "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"},
        {REFUSED("a Parquet file", "is a Parquet file; save the table as CSV"), "PAR1abc"},
        {REFUSED("an empty file", "empty file"), ""},
        {REFUSED("a header alone", "no rows"), "a,b,c\n"},
        {REFUSED("a byte order mark alone", "no rows"), "\xef\xbb\xbf"},
        {REFUSED("empty lines alone", "no rows"), "\n\r\n\n"},
        {REFUSED("one column", "one column"), "1\n2\n"},
        {REFUSED("a missing cell", ":2: column 2 is missing"), "1,2,0\n3,,1\n"},
        {REFUSED("a missing label", ":2: column 3 (the label) is missing"), "1,2,0\n3,4,\n"},
        {REFUSED("a short row", ":3: 2 cells, expected 3"), "a,b,c\n1,2,0\n3,1\n"},
        {REFUSED("a long row", ":2: 4 cells, expected 3"), "1,2,0\n3,4,5,1\n"},
        {REFUSED("NaN", ":2: column 1 is 'nan', which says that it is missing"),
         "1,2,0\nnan,4,1\n"},
        {REFUSED("too large", ":1: column 2 is '1e99', which is not finite"), "1,1e99,0\n3,4,1\n"},
        {REFUSED("a word", ":2: column 2 is 'red', expected a number"), "1,2,0\n3,red,1\n"},
        {REFUSED("a word in the first row", ":1: column 2 is 'red'"), "1,red,0\n3,4,1\n"},
        {REFUSED("dates", ":2: column 1 ('a') is '2024-05-06', a date"),
         "a,b,c\n2024-05-06,2,0\n2024-05-07,4,1\n"},
        {{"decimal commas", NULL, 2, 2, 2}, "1;2;0\n-3,5;4;1\n"},
        {{"label -1", NULL, 2, 2, 2}, "1,2,-1\n-3.5,4,1\n"},
        {{"label 256", NULL, 2, 2, 2}, "1,2,0\n-3.5,4,256\n"},
        {REFUSED("label 1.5", "the label, column 3, holds numbers that are not whole"),
         "1,2,1.5\n3,4,1\n"},
        {{"names as labels", NULL, 2, 2, 2}, "a,b,c\n1,2,setosa\n-3.5,4,versicolor\n"},
        {REFUSED("one name", "every label is 'setosa'"), "a,b,c\n1,2,setosa\n3,4,setosa\n"},
        {REFUSED("one class", "every label is 0"), "1,2,0\n3,4,0\n"},
    };
    struct pp_config cfg;
    own_config(state, "csv", &cfg);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct blob b = {(uint8_t *)(uintptr_t)table[i].text, strlen(table[i].text)};
        for (int gz = 0; gz < 2 && b.n >= (size_t)gz; gz++) {
            (gz ? file_write_gzip(cfg.data.train_file, b)
                : file_write(cfg.data.train_file, b.p, b.n));
            struct pp_dataset *ds = check_odd(state, &cfg, &table[i].odd);
            if (ds && ds->n > 1) {
                const float *v = values_of(ds);
                assert_true(v[0] == 1 && v[1] == 2 && v[2] == -3.5f && v[3] == 4);
                CHECK_INT_EQ(pp_dataset_label(ds, 1), ds->classes - 1);
            }
            pp_dataset_destroy(&ds);
        }
    }
    file_write(cfg.data.train_file, "1,2,0\n\0,2,0\n", 12);
    check_odd(state, &cfg, &(struct odd)REFUSED("a NUL", "not a text file"));
}

TEST_IN_FOLDER(the_label_is_first_or_last_or_named)
{
    static const char text[] = "kind,a,label\n1,20,3\n0,30,2\n";
    static const struct {
        const char *label;
        int classes;
        float value;
    } table[] = {{"last", 4, 1}, {"first", 2, 20}, {"kind", 2, 20}, {"a", 31, 1}};
    struct pp_config cfg;
    struct pp_dataset *ds = NULL;
    own_config(state, "csv", &cfg);
    file_write(cfg.data.train_file, text, strlen(text));
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        snprintf(cfg.data.label, sizeof(cfg.data.label), "%s", table[i].label);
        CHECK_OK(pp_dataset_open(&cfg, PP_SPLIT_TEST, BOTH, FLAT(2), 256, &ds));
        CHECK_INT_EQ(ds->classes, table[i].classes);
        assert_true(values_of(ds)[0] == table[i].value);
        pp_dataset_destroy(&ds);
    }
    snprintf(cfg.data.label, sizeof(cfg.data.label), "colour");
    CHECK_FAILS(pp_dataset_open(&cfg, PP_SPLIT_TEST, BOTH, FLAT(2), 4, &ds), PP_ECONFIG,
                "'colour'");
    file_write(cfg.data.train_file, "5,7,3\n6,8,4\n", 12);
    snprintf(cfg.data.label, sizeof(cfg.data.label), "7"); /* a number of a row is no name */
    CHECK_FAILS(pp_dataset_open(&cfg, PP_SPLIT_TEST, BOTH, FLAT(2), 9, &ds), PP_ECONFIG, "'7'");
}

/* ---- npy */

/* An npy file of the elements of `data` (little-endian where order is '<'). */
static struct blob npy(const char *descr, const char *order, const char *shape, const void *data,
                       size_t bytes)
{
    struct blob b = blob_of(128 + bytes);
    int n = snprintf((char *)b.p + 10, 118, "{'descr': %s, 'fortran_order': %s, 'shape': %s, }",
                     descr, order, shape);
    memset(b.p + 10 + n, ' ', 118 - (size_t)n);
    memcpy(b.p, "\x93NUMPY\x01\x00\x76\x00", 10);
    b.p[127] = '\n';
    if (bytes > 0)
        memcpy(b.p + 128, data, bytes);
    return b;
}

static void write_npy(const char *path, struct blob b)
{
    file_write(path, b.p, b.n);
    blob_free(&b);
}

TEST_IN_FOLDER(odd_arrays_are_read_or_refused)
{
    static const float f32[] = {1, 2, -3.5f, 4}, nan32[] = {1, 2, 0.0f / 0.0f, 4};
    static const double f64[] = {1, 2, -3.5, 4}, huge[] = {1, 2, 1e300, 4};
    static const uint8_t u8[] = {1, 2, 3, 4},
                         big32[] = "\x3f\x80\0\0\x40\0\0\0\xc0\x60\0\0\x40\x80\0";
    static const int64_t i64[] = {1, 2, -3, 4};
    static const struct {
        struct odd odd;
        const char *descr, *order, *shape;
        const void *data;
        size_t bytes;
        float third;
    } table[] = {
        {{"float32", NULL, 2, 2, 2}, "'<f4'", "False", "(2, 2)", f32, 16, -3.5f},
        {{"float64", NULL, 2, 2, 2}, "'<f8'", "False", "(2, 2)", f64, 32, -3.5f},
        {{"float32, big-endian", NULL, 2, 2, 2}, "'>f4'", "False", "(2, 2)", big32, 16, -3.5f},
        {{"int64", NULL, 2, 2, 2}, "'<i8'", "False", "(2, 2)", i64, 32, -3},
        {{"int8", NULL, 2, 2, 2}, "'|i1'", "False", "(2, 2)", "\x01\x02\xfd\x04", 4, -3},
        {{"uint16, big-endian", NULL, 2, 2, 2},
         "'>u2'",
         "False",
         "(2, 2)",
         "\0\1\0\2\1\0\0\4",
         8,
         256},
        {{"uint8", NULL, 2, 2, 2}, "'|u1'", "False", "(2, 2)", u8, 4, 3},
        {{"bool", NULL, 2, 2, 2}, "'|b1'", "False", "(2, 2)", "\1\0\1\0", 4, 1},
        {{"by Python 2", NULL, 2, 2, 2}, "'<f4'", "False", "(2L, 2L)", f32, 16, -3.5f},
        {{"4 dimensions", NULL, 2, 2, 2}, "'<f4'", "False", "(2, 1, 2, 1)", f32, 16, -3.5f},
        {{"Fortran order", NULL, 2, 2, 2}, "'<f4'", "True", "(2, 2)", f32, 16, 2},
        {{"uint8 in Fortran order", NULL, 2, 2, 2}, "'|u1'", "True", "(2, 2)", u8, 4, 2},
        {{"float16", NULL, 2, 2, 2},
         "'<f2'",
         "False",
         "(2, 2)",
         "\0\x3c\0\x40\0\xc3\0\x44",
         8,
         -3.5f},
        {REFUSED("complex", "elements of type '<c8'"), "'<c8'", "False", "(2, 2)", f64, 32, 0},
        {REFUSED("objects", "elements of type '|O'"), "'|O'", "False", "(2, 2)", f32, 16, 0},
        {REFUSED("records", "elements of type [('a', '<f4')];"), "[('a', '<f4')]", "False",
         "(2, 2)", f32, 16, 0},
        {REFUSED("no dimension", "no dimensions"), "'<f4'", "False", "()", f32, 4, 0},
        {REFUSED("one dimension", "1 dimension, expected 2"), "'<f4'", "False", "(4,)", f32, 16, 0},
        {REFUSED("5 dimensions", "more than 4 dimensions"), "'<f4'", "False", "(2,2,1,1,1)", f32,
         16, 0},
        {REFUSED("no samples", "dimension 0 is 0"), "'<f4'", "False", "(0, 2)", f32, 0, 0},
        {REFUSED("huge", "announces"), "'<f4'", "False", "(99999999, 99999999)", f32, 0, 0},
        {REFUSED("cut short", "but its header announces 144"), "'<f4'", "False", "(2, 2)", f32, 15,
         0},
        {REFUSED("NaN", "element 2 is not finite as a float (nan)"), "'<f4'", "False", "(2, 2)",
         nan32, 16, 0},
        {REFUSED("1e300", "element 2 is not finite as a float (1e+300)"), "'<f8'", "False",
         "(2, 2)", huge, 32, 0},
        {REFUSED("more samples than labels", "holds 4 images, but"), "'|u1'", "False", "(4, 1)", u8,
         4, 0},
    };
    struct pp_config cfg;
    own_config(state, "npy", &cfg);
    write_npy(cfg.data.train_labels, npy("'<i8'", "False", "(2,)", (int64_t[]){0, 1}, 16));
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        write_npy(cfg.data.train_images, npy(table[i].descr, table[i].order, table[i].shape,
                                             table[i].data, table[i].bytes));
        PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = check_odd(state, &cfg, &table[i].odd);
        if (ds) {
            CHECK_INT_EQ(ds->element == PP_U8, strstr(table[i].descr, "u1") != NULL);
            assert_true((ds->element == PP_U8 ? ds->images[2] : values_of(ds)[2]) ==
                        table[i].third);
            assert_true(ds->scale == (strstr(table[i].descr, "u1") ? 1.0f / 255.0f : 1.0f));
            CHECK_INT_EQ(pp_dataset_label(ds, 1), 1);
        }
    }
    file_write(cfg.data.train_images, "PK\3\4 and so on", 14);
    check_odd(state, &cfg, &(struct odd)REFUSED("npz", "is a zip archive (an npz?"));
    write_npy(cfg.data.train_images, npy("'<f4'", "False", "(2, 2)", f32, 16));
    write_npy(cfg.data.train_labels, npy("'<f4'", "False", "(2,)", (float[]){0, 1.5f}, 8));
    check_odd(state, &cfg,
              &(struct odd)REFUSED("label 1.5", "label 1 is 1.5, expected a whole number"));
}

/* ---- idx */

/* Samples of these dims whose last one has this label; the others have label 0. */
static void write_idx(const char *images, const char *labels, int n_dims, const uint32_t *dims,
                      int label)
{
    size_t bytes = 1;
    for (int i = 0; i < n_dims; i++)
        bytes *= dims[i];
    struct blob x = idx_bytes(n_dims, dims, bytes, 256), y = idx_bytes(1, dims, dims[0], 1);
    y.p[y.n - 1] = (uint8_t)label;
    file_write_gzip(images, x);
    file_write(labels, y.p, y.n);
    blob_free(&x);
    blob_free(&y);
}

TEST_IN_FOLDER(idx_files_of_any_shape_are_read)
{
    static const struct {
        struct odd odd;
        int n_dims;
        uint32_t dims[4];
        int label;
        const char *shape;
    } table[] = {
        {{"grey", NULL, 5, 12, 4}, 3, {5, 3, 4}, 3, "3 x 4 x 1"},
        {{"3 channels", NULL, 5, 36, 2}, 4, {5, 3, 4, 3}, 1, "3 x 4 x 3"},
        {{"values", NULL, 5, 7, 2}, 2, {5, 7}, 1, "7"},
        {{"label 255", NULL, 5, 7, 256}, 2, {5, 7}, 255, "7"},
        {{"one sample", NULL, 1, 7, 2}, 2, {1, 7}, 1, "7"},
        {REFUSED("one class", "every label is 0"), 2, {5, 7}, 0, ""},
        {REFUSED("no samples in it", "1 dimension, expected 2"), 1, {5}, 1, ""},
    };
    struct pp_config cfg;
    own_config(state, "idx", &cfg);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        write_idx(cfg.data.train_images, cfg.data.train_labels, table[i].n_dims, table[i].dims,
                  table[i].label);
        PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = check_odd(state, &cfg, &table[i].odd);
        if (ds) {
            char shape[48];
            pp_shape_text(&ds->shape, shape, sizeof(shape));
            CHECK_STR_EQ(shape, table[i].shape);
            CHECK_INT_EQ(ds->element, PP_U8);
        }
    }
    file_write(cfg.data.train_images, "\0\0\x0a\3 things", 11);
    check_odd(state, &cfg, &(struct odd)REFUSED("unknown type", "magic 0x00000a03"));
    file_write(cfg.data.train_images, "\x89PNG\r\n", 6);
    check_odd(
        state, &cfg,
        &(struct odd)REFUSED("a picture", "is a PNG picture; put the pictures of each class"));
}

TEST_IN_FOLDER(a_test_set_may_have_one_class)
{
    const uint32_t dims[4] = {3, 2, 2, 1};
    struct pp_config cfg;
    for (int idx = 0; idx < 2; idx++) {
        struct pp_dataset *ds = NULL;
        own_config(state, idx ? "idx" : "csv", &cfg);
        if (idx)
            write_idx(cfg.data.test_images, cfg.data.test_labels, 4, dims, 0);
        else
            file_write(cfg.data.test_file, "1,2,0\n3,4,0\n", 12);
        CHECK_OK(pp_dataset_open(&cfg, PP_SPLIT_TEST, BOTH, FLAT(idx ? 4 : 2), 3, &ds));
        CHECK_INT_EQ(ds->n, idx ? 3 : 2);
        pp_dataset_destroy(&ds);
        CHECK_FAILS(pp_dataset_open(&cfg, PP_SPLIT_TRAIN, BOTH, FLAT(idx ? 4 : 2), 3, &ds),
                    PP_EFORMAT, "every label is 0");
    }
}

/* ---- config, files and model */

TEST_IN_FOLDER(what_does_not_fit_is_one_line_with_the_right_sizes)
{
    struct pp_config cfg;
    const uint32_t dims[4] = {6, 28, 28, 3}, other[3] = {6, 14, 56}, square[3] = {6, 28, 28};
    own_config(state, "idx", &cfg);
    write_idx(cfg.data.train_images, cfg.data.train_labels, 4, dims, 11);
    cfg.model.n_sizes = 3;
    cfg.model.sizes[1] = 64;
    CHECK_FAILS(pp_dataset_check(&cfg, FLAT(784), 10), PP_ECONFIG,
                "model.sizes begins with 784 and ends with 10, but a sample of idx has 28 x 28 x 3 "
                "= 2352 values and there are 12 classes; use model.sizes = 2352 64 12");
    CHECK_OK(pp_dataset_check(&cfg, FLAT(2352), 12));
    CHECK_OK(pp_dataset_check(&cfg, FLAT(2352), 257)); /* a model may have more outputs */
    write_idx(cfg.data.train_images, cfg.data.train_labels, 3, square, 9);
    snprintf(cfg.data.test_images, PP_PATH_MAX, "%s/other", (char *)*state);
    write_idx(cfg.data.test_images, cfg.data.test_labels, 3, other, 9);
    CHECK_FAILS(pp_dataset_check(&cfg, FLAT(784), 10), PP_EFORMAT,
                "is 28 x 28 x 1, a test sample of");
    unlink(cfg.data.test_images);
    CHECK_OK(pp_dataset_check(&cfg, FLAT(784), 10)); /* absent: said where it is opened */
}

/* 0 to 1 in the one, 0 to 255 in the other. */
TEST_IN_FOLDER(bytes_and_larger_numbers_are_no_pair_of_splits)
{
    struct pp_config cfg;
    own_config(state, "npy", &cfg);
    snprintf(cfg.data.test_images, PP_PATH_MAX, "%s/other", (char *)*state);
    write_npy(cfg.data.train_images, npy("'|u1'", "False", "(2, 2)", "\1\2\3\4", 4));
    write_npy(cfg.data.test_images, npy("'<i2'", "False", "(2, 2)", "\1\0\2\0\3\0\4", 8));
    write_npy(cfg.data.train_labels, npy("'|u1'", "False", "(2,)", "\0\1", 2));
    CHECK_FAILS(pp_dataset_check(&cfg, FLAT(2), 2), PP_EFORMAT, "only one of ");
    write_npy(cfg.data.test_images, npy("'|u1'", "False", "(2, 2)", "\1\2\3\4", 4));
    CHECK_OK(pp_dataset_check(&cfg, FLAT(2), 2));
}

TEST_IN_FOLDER(rows_of_values_can_be_images)
{
    static const char row[] = "1,2,3,4,5,6,0\n1,2,3,4,5,6,1\n";
    const struct {
        const char *dataset, *shape, *why;
    } table[] = {{"csv", "3x2x1", NULL},
                 {"csv", "1x2x3", NULL},
                 {"csv", "model", NULL},
                 {"csv", "2x2x1", "data.shape: 2 x 2 x 1 is 4 values, but a sample of "},
                 {"csv", "6", "data.shape: '6' is not a shape"},
                 {"npy", "2x3x1", NULL},
                 {"idx", "3x1x2", "data.shape: 3 x 1 x 2 is 6 values, but a sample of "}};
    struct pp_dataset *ds = NULL;
    for (int i = 0; i < COUNT(table); i++) {
        struct pp_config cfg;
        int h = 0, w = 0, c = 0;
        own_config(state, table[i].dataset, &cfg);
        snprintf(cfg.data.shape, sizeof(cfg.data.shape), "%s", table[i].shape);
        if (strcmp(table[i].dataset, "csv") == 0) {
            file_write(cfg.data.train_file, row, strlen(row));
        } else if (strcmp(table[i].dataset, "npy") == 0) {
            write_npy(cfg.data.train_images,
                      npy("'|u1'", "False", "(2, 6)", "\1\2\3\4\5\6\1\2\3\4\5\6", 12));
            write_npy(cfg.data.train_labels, npy("'|u1'", "False", "(2,)", "\0\1", 2));
        } else { /* rows that are images already, of another shape */
            const uint32_t dims[] = {2, 2, 3};
            write_idx(cfg.data.train_images, cfg.data.train_labels, 3, dims, 1);
        }
        if (table[i].why) {
            CHECK_FAILS(pp_dataset_check(&cfg, FLAT(6), 2), PP_ECONFIG, table[i].why);
            continue;
        }
        CHECK_OK(pp_dataset_open(&cfg, PP_SPLIT_TRAIN, BOTH, FLAT(6), 2, &ds));
        bool image = sscanf(table[i].shape, "%dx%dx%d", &h, &w, &c) == 3;
        CHECK_INT_EQ(ds->input.n, image ? 3 : 1);
        CHECK_INT_EQ(ds->input.dims[0], image ? h : 6);
        CHECK_INT_EQ(ds->input.dims[image ? 2 : 0], image ? c : 6);
        pp_dataset_destroy(&ds);
    }
}

TEST_IN_FOLDER(tables_have_the_same_columns_in_any_order)
{
    static const char train[] = "x,\"y,z\",label\n1,2,0\n3,4,1\n";
    const struct {
        const char *text, *why;
    } table[] = {{"x,\"y,z\",other label\n1,2,0\n", NULL},
                 {"1,2,0\n", NULL}, /* no header */
                 {"\"y,z\",x,label\n2,1,0\n", NULL},
                 {"x,y,label\n1,2,0\n", "no column 'y,z', which the training table has"}};
    struct pp_config cfg;
    own_config(state, "csv", &cfg);
    snprintf(cfg.data.test_file, PP_PATH_MAX, "%s/other", (char *)*state);
    file_write(cfg.data.train_file, train, strlen(train));
    for (int i = 0; i < COUNT(table); i++) {
        file_write(cfg.data.test_file, table[i].text, strlen(table[i].text));
        if (table[i].why)
            CHECK_FAILS(pp_dataset_check(&cfg, FLAT(2), 2), PP_EFORMAT, table[i].why);
        else
            CHECK_OK(pp_dataset_check(&cfg, FLAT(2), 2));
    }
}

TEST_IN_FOLDER(keys_of_files_must_be_those_of_the_data_set)
{
    struct pp_config cfg;
    own_config(state, "csv", &cfg);
    cfg.data.test_file[0] = '\0';
    CHECK_FAILS(pp_dataset_check_keys(&cfg), PP_ECONFIG, "data.test_file");
    own_config(state, "csv", &cfg);
    CHECK_OK(pp_dataset_check_keys(&cfg));
    own_config(state, "npy", &cfg);
    snprintf(cfg.data.dataset, sizeof(cfg.data.dataset), "mnist");
    CHECK_FAILS(pp_dataset_check_keys(&cfg), PP_ECONFIG, "data.dataset");
    cfg = (struct pp_config){.data = {.dataset = "mnist", .shape = "28x28x1"}};
    CHECK_FAILS(pp_dataset_check_keys(&cfg), PP_ECONFIG, "data.shape");
}
