/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted of a test, against numbers worked out by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/runlog/outcome.h"
#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "test.h"

static void assert_near(double x, double wanted)
{
    assert_true(fabs(x - wanted) < 1e-7);
}

TEST(the_interval_is_wilsons)
{
    double of[2];
    outcome_interval(81, 263, of); /* Newcombe 1998, table I: 0.2553 to 0.3662 */
    assert_true(fabs(of[0] - 0.2553) < 5e-5 && fabs(of[1] - 0.3662) < 5e-5);
    outcome_interval(0, 20, of); /* 0 to 0.1611 */
    assert_true(of[0] <= 0 && fabs(of[1] - 0.1611) < 5e-5);
    outcome_interval(20, 20, of);
    assert_true(of[1] >= 1 && fabs(of[0] - 0.8389) < 5e-5);
}

TEST(probabilities_are_a_softmax_even_of_large_logits)
{
    double p[3];
    pp_probabilities(PP_LOSS_CROSS_ENTROPY, (float[]){1000, 1000, -1000}, 3, p);
    assert_near(p[0], 0.5);
    assert_near(p[2], 0);
    pp_probabilities(PP_LOSS_BCE, (float[]){0, 2, -2}, 3, p);
    assert_near(p[0], 0.5);
    assert_near(p[1] + p[2], 1);
}

/* Adds a sample whose class `prediction` has 3 times the probability of each other one. */
static void add(struct pp_outcome *o, uint32_t sample, uint32_t label, int prediction)
{
    float logits[8] = {0};
    logits[prediction] = (float)log(3);
    assert_int_equal(pp_outcome_add(o, sample, label, NULL, logits), 0);
}

TEST(precision_recall_and_f1_follow_from_the_counts)
{
    struct pp_outcome *o = NULL;
    assert_int_equal(pp_outcome_create(PP_LOSS_CROSS_ENTROPY, 3, 0.5, NULL, &o), 0);
    const int pairs[][3] = {{0, 0, 5}, {0, 1, 1}, {1, 1, 3}, {1, 0, 2}, {2, 2, 4}, {2, 0, 1}};
    uint32_t sample = 0;
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < pairs[i][2]; k++)
            add(o, sample++, (uint32_t)pairs[i][0], pairs[i][1]);
    struct outcome_class *c = o->classes;
    struct outcome_shares s = outcome_shares_of(c[0].hits, c[0].samples, c[0].predicted);
    assert_near(s.precision, 5.0 / 8);
    assert_near(s.recall, 5.0 / 6);
    assert_near(s.f1, 2 * 5.0 / 8 * 5.0 / 6 / (5.0 / 8 + 5.0 / 6));
    assert_int_equal(outcome_count_pairs(o), 0);
    assert_int_equal(o->n_pairs, 3);
    assert_true(o->pairs[0].label == 1 && o->pairs[0].prediction == 0 && o->pairs[0].n == 2);
    /* each prediction has the probability 0.6, and 12 of 16 are right */
    assert_near(outcome_calibration_error(o), 0.75 - 0.6);
    int n;
    assert_int_equal(pp_outcome_mistakes(o, &n)[0].sample, 5);
    assert_int_equal(n, 4);
    pp_outcome_destroy(&o);
}

TEST(the_first_five_count_from_the_sixth_class_on)
{
    struct pp_outcome *o = NULL;
    assert_int_equal(pp_outcome_create(PP_LOSS_CROSS_ENTROPY, 8, 0.5, NULL, &o), 0);
    const float logits[8] = {8, 7, 6, 5, 4, 3, 2, 1};
    for (uint32_t label = 0; label < 8; label++)
        assert_int_equal(pp_outcome_add(o, label, label, NULL, logits), 0);
    assert_int_equal(o->top5, 5);
    assert_int_equal(o->hits, 1);
    pp_outcome_destroy(&o);
}

TEST(the_worst_mistakes_are_those_of_the_highest_probability)
{
    struct pp_outcome *o = NULL;
    int n;
    assert_int_equal(pp_outcome_create(PP_LOSS_CROSS_ENTROPY, 2, 0.5, NULL, &o), 0);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(pp_outcome_add(o, i, 0, NULL, (float[]){0, (float)(i * 7 % 40 + 1)}), 0);
    const struct pp_mistake *m = pp_outcome_mistakes(o, &n);
    assert_int_equal(n, PP_MISTAKES_MAX);
    for (int i = 1; i < n; i++)
        assert_true(m[i].weight <= m[i - 1].weight);
    pp_outcome_destroy(&o);
}

TEST(numbers_are_judged_in_their_units)
{
    static const char names[] =
        "{\"kind\": \"table\", \"targets\": [{\"name\": \"price\", \"at\": 1, "
        "\"mean\": 100, \"std\": 10}]}";
    struct pp_outcome *o = NULL;
    assert_int_equal(pp_outcome_create(PP_LOSS_MSE, 1, 0.5, names, &o), 0);
    const float targets[] = {-1, 0, 1, 2}, outputs[] = {-1, 0.5F, 1, 1};
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(pp_outcome_add(o, i, 0, &targets[i], &outputs[i]), 0);
    struct outcome_errors e = outcome_errors_of(o, 0);
    assert_near(e.mae, 10 * 1.5 / 4);
    assert_near(e.rmse, 10 * sqrt(1.25 / 4));
    assert_near(e.r2, 1 - 1.25 / 5);
    int n;
    const struct pp_mistake *m = pp_outcome_mistakes(o, &n);
    assert_int_equal(n, 2);
    assert_int_equal(m[0].sample, 3);
    assert_near(m[0].numbers[0], 120);
    assert_near(m[0].numbers[1], 110);
    pp_outcome_destroy(&o);
}

TEST(yes_and_no_depend_on_the_threshold)
{
    const float targets[] = {1, 1, 0, 0}, outputs[] = {2, -0.5F, 1, -3};
    for (int low = 0; low < 2; low++) {
        struct pp_outcome *o = NULL;
        assert_int_equal(pp_outcome_create(PP_LOSS_BCE, 1, low ? 0.3 : 0.5, NULL, &o), 0);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(pp_outcome_add(o, i, 0, &targets[i], &outputs[i]), 0);
        assert_int_equal(o->numbers[0].both, low ? 2 : 1);
        assert_int_equal(o->numbers[0].said, low ? 3 : 2);
        assert_int_equal(o->hits, low ? 3 : 2);
        pp_outcome_destroy(&o);
    }
}

TEST(names_of_classes_stand_in_the_tables)
{
    static const char names[] = "{\"kind\": \"table\", \"classes\": [\"cat\", \"a, \\\"dog\\\"\"]}";
    struct pp_outcome *o = NULL;
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(pp_outcome_create(PP_LOSS_CROSS_ENTROPY, 2, 0.5, names, &o), 0);
    assert_int_equal(pp_outcome_add(o, 0, 0, NULL, (float[]){0, 1}), 0);
    FILE *f = open_memstream(&text, &bytes);
    assert_int_equal(pp_outcome_print(o, f), 0);
    pp_text_csv("probability ", "a, \"dog\"", f);
    struct pp_json j = pp_json_begin(f, 0);
    assert_int_equal(pp_outcome_json(o, &j), 0);
    pp_json_end(&j);
    fclose(f);
    assert_non_null(strstr(text, "\ncat "));
    assert_non_null(strstr(text, "\"probability a, \"\"dog\"\"\""));
    assert_non_null(strstr(text, "\"prediction\""));
    free(text);
    pp_outcome_destroy(&o);
}
