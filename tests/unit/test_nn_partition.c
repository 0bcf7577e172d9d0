/* SPDX-License-Identifier: Apache-2.0 */
/* The cut of a model into pieces: exact against brute force, quick at the largest size, and clear
 * about ranges that are wrong. */
#include "test.h"

#include <stdio.h>
#include <time.h>

#include "ppcli/base/base.h"
#include "ppcli/nn/model.h"

static struct pp_config *config(enum pp_assignment how)
{
    struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    assert_non_null(cfg);
    snprintf(cfg->model.type, sizeof(cfg->model.type), "mlp");
    cfg->pipeline.assignment = how;
    return cfg;
}

static double weigh(const struct pp_model *m, int i, enum pp_assignment how)
{
    struct pp_layer_cost c = pp_layer_cost(m, i);
    return how == PP_ASSIGN_PARAMS ? (double)m->layers[i].n_floats
                                   : c.flops_f + c.flops_i + c.flops_w;
}

/* Costs of the test at hand for PP_ASSIGN_TIME. */
static double costs[16];

static double cost_of(const struct pp_model *m, enum pp_assignment how, int i)
{
    return how == PP_ASSIGN_TIME ? costs[i] : weigh(m, i, how);
}

/* Largest piece and values over the cuts of one partition. */
static void measure(const struct pp_model *m, enum pp_assignment how, int k, const int *first,
                    const int *last, double *largest, double *values)
{
    *largest = *values = 0;
    for (int s = 0; s < k; s++) {
        double sum = 0;
        for (int i = first[s]; i <= last[s]; i++)
            sum += cost_of(m, how, i);
        *largest = sum > *largest ? sum : *largest;
        *values += s > 0 ? m->layers[first[s]].in : 0;
    }
}

/* All cuts: bit i of `mask` set means a cut before layer i + 1. */
static void brute_force(const struct pp_model *m, enum pp_assignment how, int k, double *largest,
                        double *values)
{
    *largest = *values = 1e300;
    for (unsigned mask = 0; mask < 1u << (m->n_layers - 1); mask++) {
        if (__builtin_popcount(mask) != k - 1)
            continue;
        int first[16] = {0}, last[16], s = 0;
        for (int i = 0; i < m->n_layers - 1; i++) {
            if (mask >> i & 1) {
                last[s++] = i;
                first[s] = i + 1;
            }
        }
        last[s] = m->n_layers - 1;
        double a, b;
        measure(m, how, k, first, last, &a, &b);
        if (a < *largest || (a == *largest && b < *values)) {
            *largest = a;
            *values = b;
        }
    }
}

static void check_covers(const struct pp_model *m, int k, const int *first, const int *last)
{
    CHECK_INT_EQ(first[0], 0);
    for (int s = 0; s < k; s++) {
        assert_true(first[s] <= last[s]);
        CHECK_INT_EQ(last[s] + 1, s + 1 < k ? first[s + 1] : m->n_layers);
    }
}

TEST(balanced_cuts_are_as_good_as_brute_force)
{
    const enum pp_assignment hows[] = {PP_ASSIGN_AUTO, PP_ASSIGN_PARAMS, PP_ASSIGN_FLOPS};
    int tried = 0;
    for (uint64_t seed = 0; seed < 120; seed++) {
        int layers = 1 + (int)(seed % 10);
        for (int h = 0; h < 3; h++) {
            PP_OWN_MEMORY struct pp_config *cfg = config(hows[h]);
            PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
            cfg->model.n_sizes = layers + 1;
            for (int i = 0; i <= layers; i++) {
                /* few different widths make many ties, many widths make few */
                cfg->model.sizes[i] =
                    1 + (int)(pp_rng_u32(seed, 1, (uint64_t)i) % (seed % 3 == 0 ? 2u : 40u));
            }
            CHECK_OK(pp_model_create(cfg, NULL, &m));
            for (int k = 1; k <= layers && k <= 5; k++, tried++) {
                int first[16], last[16];
                double a, b, want_a, want_b;
                CHECK_OK(pp_partition(m, cfg, k, first, last));
                check_covers(m, k, first, last);
                measure(m, hows[h], k, first, last, &a, &b);
                brute_force(m, hows[h], k, &want_a, &want_b);
                if (a != want_a || b != want_b) {
                    fail_msg("seed %d, %d layers in %d: largest %g (best %g), values %g (best %g)",
                             (int)seed, layers, k, a, want_a, b, want_b);
                }
            }
        }
    }
    assert_true(tried > 700);
}

TEST(given_costs_are_cut_as_well_as_brute_force_cuts_them)
{
    PP_OWN_MEMORY struct pp_config *cfg = config(PP_ASSIGN_TIME);
    for (uint64_t seed = 0; seed < 200; seed++) {
        PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
        int layers = 1 + (int)(seed % 9);
        cfg->model.n_sizes = layers + 1;
        for (int i = 0; i <= layers; i++)
            cfg->model.sizes[i] = 1 + (int)(pp_rng_u32(seed, 2, (uint64_t)i) % 5u);
        for (int i = 0; i < layers; i++) {
            /* whole numbers make real ties; some are 0; thirds make sums that round */
            uint32_t word = pp_rng_u32(seed, 3, (uint64_t)i);
            costs[i] = seed % 2 ? word % 4 : (word % 1000) / 3e6;
        }
        CHECK_OK(pp_model_create(cfg, NULL, &m));
        for (int k = 1; k <= layers && k <= 4; k++) {
            int first[16], last[16];
            double a, b, want_a, want_b;
            CHECK_OK(pp_partition_costs(m, costs, k, first, last));
            check_covers(m, k, first, last);
            measure(m, PP_ASSIGN_TIME, k, first, last, &a, &b);
            brute_force(m, PP_ASSIGN_TIME, k, &want_a, &want_b);
            if (a > want_a * (1 + 1e-12) || (seed % 2 && b != want_b)) {
                fail_msg("seed %d, %d layers in %d: largest %g (best %g), values %g (best %g)",
                         (int)seed, layers, k, a, want_a, b, want_b);
            }
        }
    }
}

TEST(a_cut_by_time_needs_times)
{
    PP_OWN_MEMORY struct pp_config *cfg = config(PP_ASSIGN_TIME);
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    int first[2], last[2];
    cfg->model.n_sizes = 3;
    cfg->model.sizes[0] = cfg->model.sizes[1] = cfg->model.sizes[2] = 4;
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    CHECK_FAILS(pp_partition(m, cfg, 2, first, last), PP_ECONFIG, "needs measured times");
}

TEST(of_equal_cuts_the_earlier_pieces_are_larger)
{
    PP_OWN_MEMORY struct pp_config *cfg = config(PP_ASSIGN_PARAMS);
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    cfg->model.n_sizes = 9;
    for (int i = 0; i < 9; i++)
        cfg->model.sizes[i] = 16;
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    int first[3], last[3];
    CHECK_OK(pp_partition(m, cfg, 3, first, last));
    CHECK_INT_EQ(last[0], 2);
    CHECK_INT_EQ(last[1], 5);
    cfg->pipeline.assignment = PP_ASSIGN_EQUAL;
    CHECK_OK(pp_partition(m, cfg, 3, first, last));
    check_covers(m, 3, first, last);
    CHECK_INT_EQ(last[0], 2);
    CHECK_INT_EQ(last[1], 5);
    CHECK_OK(pp_partition(m, cfg, 3, first, last));
}

TEST(the_largest_model_is_cut_at_once)
{
    PP_OWN_MEMORY struct pp_config *cfg = config(PP_ASSIGN_AUTO);
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    static int first[PP_STAGES_MAX], last[PP_STAGES_MAX];
    cfg->model.n_sizes = PP_MODEL_SIZES_MAX;
    for (int i = 0; i < PP_MODEL_SIZES_MAX; i++)
        cfg->model.sizes[i] = 1 + (int)(pp_rng_u32(1, 2, (uint64_t)i) % 4096);
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    CHECK_OK(pp_partition(m, cfg, PP_STAGES_MAX, first, last));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    check_covers(m, PP_STAGES_MAX, first, last);
    double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6;
    print_message("# %d layers in %d pieces: %.1f ms\n", m->n_layers, PP_STAGES_MAX, ms);
    assert_true(ms < 5000);
}

/* Six layers, layers.0 to layers.5. */
static struct pp_model *six_layers(struct pp_config *cfg)
{
    struct pp_model *m = NULL;
    cfg->model.n_sizes = 7;
    for (int i = 0; i < 7; i++)
        cfg->model.sizes[i] = 3;
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    return m;
}

/* One of the two, as a config that was loaded has it. */
static int cut(const struct pp_model *m, struct pp_config *cfg, const char *ranges,
               const char *split_at, int n, int *first, int *last)
{
    snprintf(cfg->pipeline.ranges, sizeof(cfg->pipeline.ranges), "%s", ranges);
    snprintf(cfg->pipeline.split_at, sizeof(cfg->pipeline.split_at), "%s", split_at);
    return pp_partition(m, cfg, n, first, last);
}

TEST(a_cut_is_written_by_number_or_name)
{
    static const char *const same[][2] = {{"0-1 | 2 | 3-5", ""},
                                          {"layers.0-layers.1 | layers.2 | layers.3-layers.5", ""},
                                          {"0-layers.1 | 2 | layers.3-5", ""},
                                          {"", "layers.2 layers.3"},
                                          {"", "2 layers.3"}};
    PP_OWN_MEMORY struct pp_config *cfg = config(PP_ASSIGN_EXPLICIT);
    PP_OWN(pp_model_destroy) struct pp_model *m = six_layers(cfg);
    int first[3], last[3];
    char text[64];
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        memset(first, -1, sizeof(first));
        CHECK_OK(cut(m, cfg, same[i][0], same[i][1], 3, first, last));
        CHECK_STR_EQ(pp_ranges_text(m, first, last, 3, text, sizeof(text)), "0-1 | 2 | 3-5");
    }
    snprintf(m->layers[0].name, sizeof(m->layers[0].name), "conv1"); /* now numbers say less */
    CHECK_STR_EQ(pp_ranges_text(m, first, last, 3, text, sizeof(text)),
                 "conv1-layers.1 | layers.2 | layers.3-layers.5");
    CHECK_OK(cut(m, cfg, text, "", 3, first, last));
    CHECK_INT_EQ(last[0], 1);
    CHECK_INT_EQ(last[2], 5);
    CHECK_STR_EQ(pp_ranges_text(m, first, last, 3, text, 10), "conv1-lay");
}

TEST(a_cut_that_does_not_fit_the_model_says_why)
{
    static const struct {
        const char *ranges, *split_at;
        int n;
        const char *why;
    } bad[] = {
        {"0-3 | 4-5", "", 3, "pipeline.assignment: 2 pieces for 3 stages and chunks"},
        {"", "layers.3", 3, "pipeline.split_at: 2 pieces for 3 stages and chunks"},
        {"0-2 | 3-layers.6", "", 2, "no layer is named 'layers.6'; did you mean 'layers.0'?"},
        {"0-2 | 3-Layers.5", "", 2, "no layer is named 'Layers.5'; did you mean 'layers.5'?"},
        {"", "conv1", 2,
         "pipeline.split_at: no layer is named 'conv1'; they are layers.0 "
         "to layers.5 (ppcli explain)"},
        {"", "layers.3_and_a_name_that_is_longer_than_any_name_of_a_layer_can_be", 2,
         "no layer is named 'layers.3_and_a_name"},
        {"0-2 | 3-6", "", 2, "no layer 6: the model's last layer is 5 (6 layers, counted from 0)"},
        {"0-99999999999999999999", "", 1, "no layer 99999999999999999999: the model's last"},
        {"2-0 | 3-5", "", 2, "range 1 begins at layer 2, which comes after 0"},
        {"1-2 | 3-5", "", 2,
         "range 1 begins at layer 1, must begin at 0 (a layer would have no stage)"},
        {"0-1 | layers.3-layers.5", "", 2,
         "range 2 begins at layer layers.3, must begin at layers.2 (a layer would have no stage)"},
        {"0-2 | 2-5", "", 2,
         "range 2 begins at layer 2, must begin at 3 (a layer would be in two stages)"},
        {"0-5 | 5", "", 2, "range 1 has the model's last layer, so range 2 can have none"},
        {"0-1 | 2-layers.4", "", 2,
         "the ranges end at layer layers.4, the model's last layer is "
         "layers.5 (6 layers, counted from 0)"},
        {"", "layers.0", 2,
         "layers.0 is the first layer of all; name those that a later stage "
         "begins with"},
        {"", "layers.2 2", 3, "2 is given twice; name each once, in model order"},
        {"", "layers.4 layers.2", 3, "layers.2 comes too late; name each once, in model order"},
    };
    PP_OWN_MEMORY struct pp_config *cfg = config(PP_ASSIGN_EXPLICIT);
    PP_OWN(pp_model_destroy) struct pp_model *m = six_layers(cfg);
    int first[8], last[8];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_FAILS(cut(m, cfg, bad[i].ranges, bad[i].split_at, bad[i].n, first, last), PP_ECONFIG,
                    bad[i].why);
    cfg->pipeline.assignment = PP_ASSIGN_AUTO;
    cfg->pipeline.stages = 4;
    CHECK_FAILS(
        pp_partition(m, cfg, 8, first, last), PP_ECONFIG,
        "4 stages x 2 chunks = 8 pieces for 6 layers: each needs a layer, so at most 3 stages");
}
