/* SPDX-License-Identifier: Apache-2.0 */
/* Views, moves, elements, sums and writes of PyTorch programs become graphs. */
#include "nn_graph.h"

/* ---- views */

TEST(views_add_no_nodes)
{
    struct program m;
    begin(&m, "s 4 6");
    int v = put(&m, "aten.view.default", "s 4 2 3", ARGS(TENSOR("self", 0)));
    int t = put(&m, "aten.transpose.int", "s 2 4 3",
                ARGS(TENSOR("self", v), INT("dim0", 1), INT("dim1", 2)));
    int one = put(&m, "aten.select.int", "s 4 3",
                  ARGS(TENSOR("self", t), INT("dim", 1), INT("index", -1)));
    int few = put(
        &m, "aten.slice.Tensor", "s 2 3",
        ARGS(TENSOR("self", one), INT("dim", 1), INT("start", 1), INT("end", 4), INT("step", 2)));
    lower_to(&m, few);
    CHECK_INT_EQ(m.g->n_views, 4);
    CHECK_INT_EQ(count_nodes(m.g, GRAPH_EXPR), 1); /* the logits are rows */
    float got[6];
    compute(&m, 6, got);
    const float expected[] = {9, 10, 11, 21, 22, 23};
    for (int i = 0; i < 6; i++)
        assert_true(got[i] == expected[i]);
}

TEST(what_memory_does_not_allow_is_copied_once)
{
    struct program m;
    begin(&m, "s 2 3");
    int t = put(&m, "aten.transpose.int", "s 3 2",
                ARGS(TENSOR("self", 0), INT("dim0", 1), INT("dim1", 2)));
    int flat = put(&m, "aten.reshape.default", "s 6", ARGS(TENSOR("self", t)));
    int part = put(&m, "aten.slice.Tensor", "s 3",
                   ARGS(TENSOR("self", flat), INT("dim", 1), INT("start", 1), INT("end", 4)));
    CHECK_RESULT(&m, part, 3, 1, 4);
}

TEST(samples_are_not_mixed)
{
    struct program m;
    begin(&m, "s 4");
    int mixed = put(&m, "aten.view.default", "4 s", ARGS(TENSOR("self", 0)));
    check_refused(&m, mixed, "mixes the samples");
    begin(&m, "s 4");
    int first =
        put(&m, "aten.select.int", "4", ARGS(TENSOR("self", 0), INT("dim", 0), INT("index", 0)));
    check_refused(&m, first, "takes samples of a batch apart ([s][4], dimension 0)");
    begin(&m, "s 4");
    int sum =
        put(&m, "aten.sum.dim_IntList", "4", ARGS(TENSOR("self", 0), LIST("dim", 1, SIZE(0))));
    check_refused(&m, sum, "over the samples of a batch");
    begin(&m, "s 4");
    int soft = put(&m, "aten.softmax.int", "s 4", ARGS(TENSOR("self", 0), INT("dim", 0)));
    check_refused(&m, soft, "over the samples of a batch ([s][4], dimension 0)");
    begin(&m, "s 4");
    const struct pt_arg count = {.name = "other", .kind = PT_INT, .size = {1, true}};
    int scaled = put(&m, "aten.mul.Tensor", "s 4", ARGS(TENSOR("self", 0), count));
    check_refused(&m, scaled, "its argument other is computed of the number of samples");
}

/* ---- elements */

TEST(a_cast_to_16_bits_is_refused)
{
    struct program m;
    begin(&m, "s 4");
    int half = put(&m, "aten.to.dtype", "s 4", ARGS(TENSOR("self", 0)));
    m.values[half].type.dtype = PT_BF16;
    check_refused(&m, half, "its result is bfloat16");
}

TEST(an_activation_keeps_the_memory_of_a_whole_value)
{
    struct program m;
    begin(&m, "s 2 3");
    int t = put(&m, "aten.transpose.int", "s 3 2",
                ARGS(TENSOR("self", 0), INT("dim0", 1), INT("dim1", 2)));
    int y = put(&m, "aten.relu.default", "s 3 2", ARGS(TENSOR("self", t)));
    lower_to(&m, y);
    CHECK_INT_EQ(count_nodes(m.g, GRAPH_ACTIVATE), 1);
    graph_destroy(m.g);
}

TEST(a_sum_is_the_fast_op_if_both_values_have_one_memory)
{
    struct program m;
    begin(&m, "s 2 2");
    int twice = put(&m, "aten.mul.Tensor", "s 2 2", ARGS(TENSOR("self", 0), FLOAT("other", 2)));
    int y = put(&m, "aten.add.Tensor", "s 2 2", ARGS(TENSOR("self", twice), TENSOR("other", 0)));
    lower_to(&m, y);
    CHECK_INT_EQ(count_nodes(m.g, GRAPH_ADD), 1);
    graph_destroy(m.g);
    begin(&m, "s 2 2");
    int t = put(&m, "aten.transpose.int", "s 2 2",
                ARGS(TENSOR("self", 0), INT("dim0", 1), INT("dim1", 2)));
    y = put(&m, "aten.add.Tensor", "s 2 2",
            ARGS(TENSOR("self", 0), TENSOR("other", t), INT("alpha", 10)));
    CHECK_RESULT(&m, y, 0, 21, 12, 33);
}

TEST(a_formula_leaves_out_what_numbers_decide)
{
    struct program m;
    begin(&m, "s 3");
    int y = put(&m, "aten.clamp.default", "s 3", ARGS(TENSOR("self", 0), FLOAT("max", 1)));
    lower_to(&m, y);
    CHECK_INT_EQ(m.g->nodes[1].pieces[0].n_steps, 4); /* x, 1, 1 < x, the choice */
    float got[3];
    compute(&m, 3, got);
    assert_true(got[0] == 0 && got[1] == 1 && got[2] == 1);
}

TEST(a_weight_is_repeated_for_each_row)
{
    static const float w[] = {10, 20};
    struct program m;
    begin(&m, "s 2 2");
    int a = put_weight(&m, PT_PARAMETER, PT_F32, "2", w);
    int y = put(&m, "aten.sub.Tensor", "s 2 2", ARGS(TENSOR("self", 0), TENSOR("other", a)));
    CHECK_RESULT(&m, y, -10, -19, -8, -17);
}

TEST(sums_run_over_the_dimensions_of_a_sample)
{
    struct program m;
    begin(&m, "s 2 3");
    int y = put(&m, "aten.mean.dim", "s 2 1",
                ARGS(TENSOR("self", 0), LIST("dim", 1, SIZE(-1)),
                     {.name = "keepdim", .kind = PT_BOOL_ARG, .flag = true}));
    CHECK_RESULT(&m, y, 1, 4);
    begin(&m, "s 2 3");
    y = put(&m, "aten.var.correction", "s 3", ARGS(TENSOR("self", 0), LIST("dim", 1, SIZE(1))));
    CHECK_RESULT(&m, y, 4.5f, 4.5f, 4.5f);
}

/* ---- moves */

TEST(tensors_are_joined_by_a_piece_for_each)
{
    struct program m;
    begin(&m, "s 2 2");
    static const int both[] = {0, 0};
    int y =
        put(&m, "aten.cat.default", "s 2 4",
            ARGS({.name = "tensors", .kind = PT_TENSORS, .n = 2, .values = both}, INT("dim", -1)));
    lower_to(&m, y);
    CHECK_INT_EQ(m.g->nodes[1].n_pieces, 2);
    float got[8];
    compute(&m, 8, got);
    const float expected[] = {0, 1, 0, 1, 2, 3, 2, 3};
    for (int i = 0; i < 8; i++)
        assert_true(got[i] == expected[i]);
}

TEST(padding_reflects_and_rolling_wraps)
{
    struct program m;
    begin(&m, "s 4");
    int y = put(&m, "aten.pad.default", "s 7",
                ARGS(TENSOR("self", 0), LIST("pad", 2, SIZE(2), SIZE(1)),
                     {.name = "mode", .kind = PT_STRING, .text = "reflect"}));
    CHECK_RESULT(&m, y, 2, 1, 0, 1, 2, 3, 2);
    begin(&m, "s 4");
    y = put(&m, "aten.roll.default", "s 4",
            ARGS(TENSOR("self", 0), LIST("shifts", 1, SIZE(1)), LIST("dims", 1, SIZE(1))));
    CHECK_RESULT(&m, y, 3, 0, 1, 2);
}

TEST(constant_indices_are_a_table)
{
    static const int64_t indices[] = {2, 0, 0, -1};
    struct program m;
    begin(&m, "s 3 2");
    int c = put_weight(&m, PT_CONSTANT, PT_I64, "4", indices);
    const int list[] = {-1, c};
    int y = put(
        &m, "aten.index.Tensor", "s 4 2",
        ARGS(TENSOR("self", 0), {.name = "indices", .kind = PT_TENSORS, .n = 2, .values = list}));
    CHECK_RESULT(&m, y, 4, 5, 0, 1, 0, 1, 4, 5);
}

TEST(indices_of_the_data_are_refused)
{
    struct program m;
    begin(&m, "s 3");
    int y = put(&m, "aten.index_select.default", "s 3",
                ARGS(TENSOR("self", 0), INT("dim", 1), TENSOR("index", 0)));
    check_refused(&m, y, "by indices that depend on the data");
}

/* ---- in place */

TEST(a_write_is_seen_in_all_views_of_the_memory)
{
    struct program m;
    begin(&m, "s 2 3");
    int x = put(&m, "aten.add.Tensor", "s 2 3", ARGS(TENSOR("self", 0), INT("other", 1)));
    int row =
        put(&m, "aten.select.int", "s 3", ARGS(TENSOR("self", x), INT("dim", 1), INT("index", 1)));
    put(&m, "aten.mul_.Tensor", "s 3", ARGS(TENSOR("self", row), INT("other", 10)));
    CHECK_RESULT(&m, x, 1, 2, 3, 40, 50, 60);
}

TEST(a_write_into_a_tensor_that_may_be_a_copy_is_refused)
{
    struct program m;
    begin(&m, "s 2 3");
    int x = put(&m, "aten.add.Tensor", "s 2 3", ARGS(TENSOR("self", 0), INT("other", 1)));
    int flat = put(&m, "aten.reshape.default", "s 6", ARGS(TENSOR("self", x)));
    put(&m, "aten.mul_.Tensor", "s 6", ARGS(TENSOR("self", flat), INT("other", 10)));
    int y =
        put(&m, "aten.sum.dim_IntList", "s 2", ARGS(TENSOR("self", x), LIST("dim", 1, SIZE(2))));
    check_refused(&m, y, "is read later too");
}

TEST(batches_are_counted_by_the_op)
{
    static const int64_t zero[] = {0};
    static const float w[] = {1};
    struct program m;
    begin(&m, "s 1");
    int count = put_weight(&m, PT_BUFFER, PT_I64, "", zero);
    put(&m, "aten.add_.Tensor", "", ARGS(TENSOR("self", count), INT("other", 1)));
    CHECK_RESULT(&m, 0, 0);
    begin(&m, "s 1");
    int a = put_weight(&m, PT_PARAMETER, PT_F32, "1", w);
    int y = put(&m, "aten.add_.Tensor", "1", ARGS(TENSOR("self", a), INT("other", 1)));
    y = put(&m, "aten.mul.Tensor", "s 1", ARGS(TENSOR("self", 0), TENSOR("other", y)));
    check_refused(&m, y, "writes into w");
}
