/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as they are: categories, missing cells, scaling, a split, targets; and new tables read by
 * what was kept of the training table. */
#include <math.h>

#include "test_data_files.h"

#include "../../src/data/new_table.h"

#define BOTH (PP_DATA_IMAGES | PP_DATA_LABELS)

static void table_config(void **state, const char *text, struct pp_config *cfg)
{
    memset(cfg, 0, sizeof(*cfg));
    snprintf(cfg->model.type, sizeof(cfg->model.type), "mlp");
    snprintf(cfg->data.dataset, sizeof(cfg->data.dataset), "csv");
    snprintf(cfg->data.label, sizeof(cfg->data.label), "last");
    snprintf(cfg->data.train_file, PP_PATH_MAX, "%s/train.csv", (char *)*state);
    snprintf(cfg->data.test_file, PP_PATH_MAX, "%s/train.csv", (char *)*state);
    file_write(cfg->data.train_file, text, strlen(text));
}

static struct pp_dataset *open_split(const struct pp_config *cfg, enum pp_split split, int inputs,
                                     int classes)
{
    struct pp_dataset *ds = NULL;
    CHECK_OK(pp_dataset_open(cfg, split, BOTH, FLAT(inputs), classes, &ds));
    return ds;
}

static const float *values_of(const struct pp_dataset *ds)
{
    return (const float *)(const void *)ds->images;
}

static void check_values(const float *have, const double *want, int n)
{
    for (int i = 0; i < n; i++)
        if (fabs((double)have[i] - want[i]) > 1e-6)
            fail_msg("value %d is %.9g, expected %.9g", i, (double)have[i], want[i]);
}

TEST_IN_FOLDER(a_column_of_words_is_one_input_for_each_kind)
{
    struct pp_config cfg;
    table_config(state, "size,colour,kind\n1,red,b\n2,blue,a\n3,red,b\n", &cfg);
    struct pp_dataset *ds = open_split(&cfg, PP_SPLIT_TRAIN, 3, 2);
    check_values(values_of(ds), (double[]){1, 0, 1, 2, 1, 0, 3, 0, 1}, 9);
    CHECK_INT_EQ(pp_dataset_label(ds, 0), 1);
    CHECK_INT_EQ(pp_dataset_label(ds, 1), 0);
    CHECK_STR_EQ(ds->columns, "size\ncolour=blue\ncolour=red\n");
    struct pp_preprocessing p;
    char number[16];
    CHECK_OK(pp_preprocessing_parse("test", ds->preprocessing, &p));
    CHECK_STR_EQ(pp_class_name(&p, 1, number), "b");
    CHECK_STR_EQ(pp_class_name(&p, 7, number), "7");
    pp_preprocessing_fini(&p);
    pp_dataset_destroy(&ds);
}

TEST_IN_FOLDER(a_missing_cell_becomes_the_mean_or_is_marked)
{
    struct pp_config cfg;
    table_config(state, "a,b,kind\n1,x,0\nNA,y,1\n3,,1\n", &cfg);
    struct pp_dataset *ds = NULL;
    CHECK_FAILS(pp_dataset_open(&cfg, PP_SPLIT_TRAIN, BOTH, FLAT(3), 2, &ds), PP_EFORMAT,
                ":3: column 1 ('a') is 'NA', which says that it is missing");
    cfg.data.missing = PP_MISSING_MEAN;
    ds = open_split(&cfg, PP_SPLIT_TRAIN, 3, 2);
    check_values(values_of(ds), (double[]){1, 1, 0, 2, 0, 1, 3, 0, 0}, 9);
    pp_dataset_destroy(&ds);
    cfg.data.missing = PP_MISSING_CATEGORY;
    ds = open_split(&cfg, PP_SPLIT_TRAIN, 5, 2);
    check_values(values_of(ds), (double[]){1, 0, 1, 0, 0, 2, 1, 0, 1, 0, 3, 0, 0, 0, 1}, 15);
    pp_dataset_destroy(&ds);
}

TEST_IN_FOLDER(columns_get_mean_0_and_deviation_1_even_of_unix_times)
{
    struct pp_config cfg;
    table_config(state, "time,one,kind\n1700000000,5,0\n1700000001,5,1\n1700000002,5,0\n", &cfg);
    cfg.data.scale = PP_SCALE_STANDARD;
    struct pp_dataset *ds = open_split(&cfg, PP_SPLIT_TRAIN, 2, 2);
    const double z = sqrt(1.5);
    check_values(values_of(ds), (double[]){-z, 0, 0, 0, z, 0}, 6);
    pp_dataset_destroy(&ds);
}

TEST_IN_FOLDER(columns_are_used_and_dropped_by_name)
{
    struct pp_config cfg;
    struct pp_dataset *ds = NULL;
    table_config(state, "id,\"a, b\",x1,x2,kind\n7,1,2,3,0\n8,4,5,6,1\n", &cfg);
    snprintf(cfg.data.drop, PP_TEXT_MAX, "id, x?");
    ds = open_split(&cfg, PP_SPLIT_TRAIN, 1, 2);
    check_values(values_of(ds), (double[]){1, 4}, 2);
    pp_dataset_destroy(&ds);
    snprintf(cfg.data.drop, PP_TEXT_MAX, "x2");
    snprintf(cfg.data.columns, PP_TEXT_MAX, "\"a, b\", x*");
    ds = open_split(&cfg, PP_SPLIT_TRAIN, 2, 2);
    check_values(values_of(ds), (double[]){1, 2, 4, 5}, 4);
    pp_dataset_destroy(&ds);
    snprintf(cfg.data.drop, PP_TEXT_MAX, "x3");
    CHECK_FAILS(pp_dataset_open(&cfg, PP_SPLIT_TRAIN, BOTH, FLAT(2), 2, &ds), PP_ECONFIG,
                "data.drop: ");
}

static void write_rows(const struct pp_config *cfg, int n, int skipped)
{
    FILE *f = fopen(cfg->data.train_file, "w");
    fputs("a,b,kind\n", f);
    for (int i = 0; i < n; i++)
        if (i != skipped)
            fprintf(f, "%d,%d,%s\n", i, i * i, i % 3 ? "x" : "y");
    fclose(f);
}

TEST_IN_FOLDER(a_row_more_or_less_moves_no_other_to_the_other_side)
{
    struct pp_config cfg;
    table_config(state, "", &cfg);
    cfg.data.split = 0.25;
    cfg.data.test_file[0] = '\0';
    CHECK_OK(pp_dataset_check_keys(&cfg));
    bool tested[200] = {false};
    int n = 0, again = 0;
    write_rows(&cfg, 200, -1);
    struct pp_dataset *ds = open_split(&cfg, PP_SPLIT_TEST, 2, 2);
    for (n = 0; n < ds->n; n++)
        tested[(int)values_of(ds)[2 * n]] = true;
    pp_dataset_destroy(&ds);
    assert_true(n > 30 && n < 70);
    ds = open_split(&cfg, PP_SPLIT_TRAIN, 2, 2);
    CHECK_INT_EQ(ds->n, 200 - n);
    for (int i = 0; i < ds->n; i++)
        assert_false(tested[(int)values_of(ds)[2 * i]]);
    pp_dataset_destroy(&ds);
    write_rows(&cfg, 200, 17);
    ds = open_split(&cfg, PP_SPLIT_TEST, 2, 2);
    for (int i = 0; i < ds->n; i++)
        again += tested[(int)values_of(ds)[2 * i]];
    CHECK_INT_EQ(again, n - tested[17]);
    pp_dataset_destroy(&ds);
    snprintf(cfg.data.test_file, PP_PATH_MAX, "x");
    CHECK_FAILS(pp_dataset_check_keys(&cfg), PP_ECONFIG, "data.split");
}

TEST_IN_FOLDER(targets_are_scaled_numbers_or_yes_and_no)
{
    struct pp_config cfg;
    table_config(state, "a,price,sold,sunny\n1,10,yes,0\n2,30,no,1\n", &cfg);
    struct pp_dataset *ds = NULL;
    snprintf(cfg.data.target, PP_TEXT_MAX, "price");
    CHECK_FAILS(pp_dataset_open(&cfg, PP_SPLIT_TRAIN, BOTH, FLAT(1), 1, &ds), PP_ECONFIG,
                "data.target: numbers need train.loss");
    cfg.train.loss = PP_LOSS_MSE;
    snprintf(cfg.data.columns, PP_TEXT_MAX, "a");
    ds = open_split(&cfg, PP_SPLIT_TRAIN, 1, 1);
    check_values(ds->targets, (double[]){-1, 1}, 2);
    struct pp_preprocessing p;
    CHECK_OK(pp_preprocessing_parse("test", ds->preprocessing, &p));
    assert_true(p.n_targets == 1 && p.targets[0].mean == 20 && p.targets[0].std == 10);
    pp_preprocessing_fini(&p);
    pp_dataset_destroy(&ds);
    cfg.train.loss = PP_LOSS_BCE;
    snprintf(cfg.data.target, PP_TEXT_MAX, "sold, sunny");
    ds = open_split(&cfg, PP_SPLIT_TRAIN, 1, 2);
    CHECK_INT_EQ(ds->targets_each, 2);
    check_values(ds->targets, (double[]){1, 0, 0, 1}, 4);
    pp_dataset_destroy(&ds);
}

TEST_IN_FOLDER(a_new_table_is_read_by_names_without_its_labels)
{
    struct pp_config cfg;
    table_config(state, "a,b,kind\n1,x,u\n3,y,v\n5,x,u\n", &cfg);
    cfg.data.scale = PP_SCALE_STANDARD;
    struct pp_dataset *ds = open_split(&cfg, PP_SPLIT_TRAIN, 3, 2);
    struct pp_preprocessing p;
    struct pp_new_table *t = NULL;
    char path[PP_PATH_MAX];
    float x[9];
    int n;
    CHECK_OK(pp_preprocessing_parse("test", ds->preprocessing, &p));
    snprintf(path, sizeof(path), "%s/new.csv", (char *)*state);
    static const char text[] = "note;b;a\nfirst;y;3\nsecond;z;3,0\n", short_of_a[] = "b,c\ny,3\n";
    file_write(path, text, sizeof(text) - 1);
    CHECK_OK(pp_new_table_open(&p, path, &t));
    CHECK_OK(pp_new_table_next(t, 3, x, &n));
    CHECK_INT_EQ(n, 2);
    check_values(x, (double[]){0, 0, 1, 0, 0, 0}, 6);
    CHECK_INT_EQ(pp_new_table_line(t, 1), 3);
    CHECK_INT_EQ(pp_new_table_unknown(t), 1);
    pp_new_table_close(&t);
    file_write(path, short_of_a, sizeof(short_of_a) - 1);
    CHECK_FAILS(pp_new_table_open(&p, path, &t), PP_EFORMAT, "no column 'a'");
    pp_preprocessing_fini(&p);
    pp_dataset_destroy(&ds);
}

TEST_IN_FOLDER(other_data_than_those_of_a_checkpoint_are_named)
{
    struct pp_config cfg;
    table_config(state, "a,b,kind\n1,x,u\n3,y,v\n", &cfg);
    cfg.data.scale = PP_SCALE_STANDARD;
    struct pp_dataset *a = open_split(&cfg, PP_SPLIT_TRAIN, 3, 2), *b;
    table_config(state, "a,b,kind\n1,x,u\n5,y,v\n", &cfg);
    cfg.data.scale = PP_SCALE_STANDARD;
    b = open_split(&cfg, PP_SPLIT_TRAIN, 3, 2);
    CHECK_OK(pp_preprocessing_check("run", a->preprocessing, a->preprocessing));
    CHECK_OK(pp_preprocessing_check("run", NULL, a->preprocessing));
    CHECK_FAILS(pp_preprocessing_check("run", a->preprocessing, b->preprocessing), PP_EFORMAT,
                "the mean of 'a' was 2 and is 3 in the data now");
    pp_dataset_destroy(&a);
    pp_dataset_destroy(&b);
}
