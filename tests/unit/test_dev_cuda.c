/* SPDX-License-Identifier: Apache-2.0 */
/* What the CUDA backend decides without a device: pieces of one, and questions about products. */
#include "test.h"

#include "ppcli/conf/config.h"
#include "../../src/dev/cuda/plan.h"

TEST(pieces_are_as_large_as_the_driver_allows)
{
    CHECK_INT_EQ(cuda_partition_size(132, 8, 8, 1), 128);
    CHECK_INT_EQ(cuda_partition_size(132, 8, 8, 2), 64);
    CHECK_INT_EQ(cuda_partition_size(132, 8, 8, 4), 32);
    CHECK_INT_EQ(cuda_partition_size(132, 8, 8, 16), 8);
    CHECK_INT_EQ(cuda_partition_size(132, 8, 8, 17), 0);
    CHECK_INT_EQ(cuda_partition_size(108, 4, 2, 3), 36);
    CHECK_INT_EQ(cuda_partition_size(108, 4, 2, 32), 0);
    CHECK_INT_EQ(cuda_partition_size(7, 2, 2, 3), 2);
}

/* This build has machine code for some devices, of which the last are newer than 9.0. */
TEST(a_device_that_no_kernel_runs_on_has_a_problem)
{
    char why[96];
    CHECK_INT_EQ(cuda_device_problem(cudaSuccess, 90, cudaComputeModeDefault, why, sizeof(why)), 0);
    CHECK_INT_EQ(cuda_device_problem(cudaSuccess, 110, cudaComputeModeDefault, why, sizeof(why)),
                 0);
    CHECK_INT_EQ(cuda_device_problem(cudaSuccess, 75, cudaComputeModeDefault, why, sizeof(why)),
                 PP_ERESOURCE);
    CHECK_STR_EQ(why, "compute capability 7.5, and 8.0 is the least");
    CHECK_INT_EQ(cuda_device_problem(cudaSuccess, 90, cudaComputeModeProhibited, why, sizeof(why)),
                 PP_ERESOURCE);
    CHECK_STR_EQ(why, "compute mode prohibited; nvidia-smi -c DEFAULT allows runs");
}

TEST(factors_and_results_have_the_sizes_of_their_matrices)
{
    struct cuda_shape s = {.product = CUDA_FORWARD, .B = 2, .I = 3, .O = 5, .row = 8};
    const size_t want[][3] = {
        [CUDA_FORWARD] = {15, 6, 16},         /* W, x, y */
        [CUDA_BACKWARD_INPUT] = {15, 16, 6},  /* W, dz, dx */
        [CUDA_BACKWARD_WEIGHT] = {6, 16, 15}, /* x, dz, dW */
    };
    for (int p = CUDA_FORWARD; p <= CUDA_BACKWARD_WEIGHT; p++) {
        s.product = p;
        CHECK_INT_EQ(cuda_first_count(&s), want[p][0]);
        CHECK_INT_EQ(cuda_second_count(&s), want[p][1]);
        CHECK_INT_EQ(cuda_result_count(&s), want[p][2]);
    }
}

/* Each field is part of the question: an answer for another would be wrong. */
TEST(shapes_that_differ_in_anything_are_different_questions)
{
    const struct cuda_shape s = {.product = CUDA_FORWARD, .B = 2, .I = 3, .O = 5};
    struct cuda_shape others[10];
    for (int i = 0; i < COUNT(others); i++)
        others[i] = s;
    others[0].product = CUDA_BACKWARD_WEIGHT;
    others[1].B = 3;
    others[2].I = 5;
    others[3].O = 3;
    others[4].act = PP_ACT_RELU;
    others[5].keeps_z = true;
    others[6].adds = true;
    others[7].bias = true;
    others[8].slices = 2;
    others[9].row = 8;
    assert_true(cuda_shapes_equal(&s, &s));
    for (int i = 0; i < COUNT(others); i++) {
        assert_false(cuda_shapes_equal(&s, &others[i]));
        assert_false(cuda_shapes_equal(&others[i], &s));
        assert_true(cuda_shapes_equal(&others[i], &others[i]));
    }
}

/* {B, I, O}, slices: of GPT-2, nanoGPT, an MLP, and what cannot be divided. */
TEST(few_tiles_are_cut_into_slices_of_rows)
{
    const int want[][4] = {{4096, 768, 768, 2},   {4096, 768, 2304, 1}, {16384, 384, 384, 8},
                           {1024, 1024, 1024, 2}, {1024, 16, 24, 2},    {1008, 16, 24, 1},
                           {1025, 16, 24, 1},     {1024, 3, 5, 1},      {1 << 20, 64, 64, 16}};
    for (int i = 0; i < COUNT(want); i++) {
        int n = cuda_weight_slices(want[i][0], want[i][1], want[i][2]);
        CHECK_INT_EQ(n, want[i][3]);
        assert_true(n == 1 ||
                    (size_t)n * (size_t)want[i][1] * (size_t)want[i][2] <= CUDA_SLICES_FLOATS);
    }
}

static void check_fusions(struct cuda_shape s, bool exact, const enum cuda_fusion *want, int n)
{
    enum cuda_fusion got[CUDA_FUSIONS];
    CHECK_INT_EQ(cuda_fusions_for(&s, exact, got), n);
    for (int i = 0; i < n; i++)
        CHECK_INT_EQ(got[i], want[i]);
}

#define FUSIONS(shape, exact, ...)                                                                 \
    check_fusions(                                                                                 \
        shape, exact, (const enum cuda_fusion[]){__VA_ARGS__},                                     \
        (int)(sizeof((const enum cuda_fusion[]){__VA_ARGS__}) / sizeof(enum cuda_fusion)))

TEST(only_what_the_library_does_as_promised_is_fused)
{
    struct cuda_shape s = {
        .product = CUDA_FORWARD, .B = 2, .I = 3, .O = 5, .act = PP_ACT_RELU, .bias = true};
    FUSIONS(s, true, CUDA_BIAS_RELU, CUDA_BIAS, CUDA_ALONE);
    s.keeps_z = true; /* relu in the launch would overwrite it */
    FUSIONS(s, true, CUDA_BIAS, CUDA_ALONE);
    s.act = PP_ACT_GELU; /* the library's is another function */
    FUSIONS(s, false, CUDA_BIAS, CUDA_ALONE);
    s.bias = false;
    FUSIONS(s, false, CUDA_ALONE);
    s = (struct cuda_shape){.product = CUDA_BACKWARD_INPUT, .B = 2, .I = 3, .O = 5, .bias = true};
    FUSIONS(s, false, CUDA_ALONE);
    s.product = CUDA_BACKWARD_WEIGHT;
    FUSIONS(s, false, CUDA_BIAS_GRADIENT, CUDA_ALONE);
    FUSIONS(s, true, CUDA_ALONE); /* the order of its sum is not promised */
    s.adds = true;                /* it overwrites db */
    FUSIONS(s, false, CUDA_ALONE);
    s.adds = s.bias = false;
    FUSIONS(s, false, CUDA_ALONE);
}
