/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing the next token from logits. */
#include <math.h>

#include "ppcli/nn/chunk.h"
#include "ppcli/base/base.h"
#include "test.h"

enum {
    N = 9
};
static const float logits[N] = {0.5f, 2, -1, 2, 1.5f, -30, 0, 1.5f, 1};
static int heap[N];

TEST(without_temperature_the_first_of_the_largest_is_taken)
{
    for (int k = 0; k <= N; k++)
        CHECK_INT_EQ(pp_sample(logits, N, 0, k, 0.99, heap), 1);
    CHECK_INT_EQ(pp_sample(logits, N, 1, 1, 0.99, heap), 1);
}

/* Those chosen by u = 0, 1/1000, ... */
static void count(const float *of, int n, double temperature, int top_k, int *out)
{
    memset(out, 0, (size_t)n * sizeof(*out));
    for (int i = 0; i < 1000; i++) {
        int token = pp_sample(of, n, temperature, top_k, i / 1000.0, heap);
        assert_true(token >= 0 && token < n);
        out[token]++;
    }
}

TEST(tokens_come_as_often_as_softmax_says)
{
    int found[N];
    static const double temperatures[] = {0.5, 1, 3};
    for (int t = 0; t < 3; t++) {
        double sum = 0;
        for (int i = 0; i < N; i++)
            sum += exp(logits[i] / temperatures[t]);
        count(logits, N, temperatures[t], 0, found);
        for (int i = 0; i < N; i++)
            assert_true(fabs(found[i] - 1000 * exp(logits[i] / temperatures[t]) / sum) <= 1.001);
    }
}

/* Of equal ones the smaller numbers: 1 3 4 7 8 0 6 2 5. */
TEST(only_the_k_largest_are_taken)
{
    static const int order[N] = {1, 3, 4, 7, 8, 0, 6, 2, 5};
    int found[N];
    for (int k = 1; k <= N; k++) {
        count(logits, N, 100, k, found);
        for (int i = 0; i < N; i++)
            CHECK_INT_EQ(found[order[i]] > 0, i < k);
    }
}

/* The heap finds what a full comparison finds, whatever the order. */
TEST(the_largest_are_found_in_any_order)
{
    enum {
        MANY = 200
    };
    float of[MANY];
    int kept[MANY];
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < MANY; i++)
            of[i] = (float)(pp_rng_u32(1, (uint64_t)round, (uint64_t)i) % 40);
        int k = 1 + round * 4;
        for (int u = 0; u < 100; u++) {
            int token = pp_sample(of, MANY, 20, k, u / 100.0, kept), larger = 0;
            for (int i = 0; i < MANY; i++)
                larger += of[i] > of[token] || (of[i] == of[token] && i < token);
            assert_true(larger < k);
        }
    }
}

TEST(extremes_do_no_harm)
{
    static const float far[] = {-1e30f, 1e30f, 0};
    CHECK_INT_EQ(pp_sample(far, 3, 1e-15, 0, 0, heap), 1);
    CHECK_INT_EQ(pp_sample(far, 3, 1, 2, 1 - 0x1p-32, heap), 1);
    CHECK_INT_EQ(pp_sample(logits, N, 1e15, 0, 1 - 0x1p-32, heap), N - 1);
    CHECK_INT_EQ(pp_sample(logits, 1, 1, 0, 0.5, heap), 0);
}
