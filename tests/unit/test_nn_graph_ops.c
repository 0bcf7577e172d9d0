/* SPDX-License-Identifier: Apache-2.0 */
/* Operators with weights, windows, norms and attention of PyTorch programs become nodes. */
#include "nn_graph.h"

/* The only node of a kind that the graph needs. */
static const struct graph_node *node_of(const struct graph *g, enum graph_kind kind)
{
    CHECK_INT_EQ(count_nodes(g, kind), 1);
    int i = 0;
    while (g->nodes[i].kind != kind || g->nodes[i].dead)
        i++;
    return &g->nodes[i];
}

static void check_accepted(struct program *m, int output)
{
    lower_to(m, output);
    for (int i = 0; i < m->g->n_problems; i++)
        fail_msg("refused: %s", m->g->problems[i].text);
}

/* ---- products */

TEST(a_flattened_image_reaches_a_linear_without_a_copy)
{
    struct program m;
    begin(&m, "s 3 4 4");
    int flat =
        put(&m, "aten.flatten.using_ints", "s 48", ARGS(TENSOR("self", 0), INT("start_dim", 1)));
    int w = put_parameter(&m, "10 48");
    int y =
        put(&m, "aten.linear.default", "s 10", ARGS(TENSOR("input", flat), TENSOR("weight", w)));
    check_accepted(&m, y);
    const struct graph_node *n = node_of(m.g, GRAPH_LINEAR);
    CHECK_INT_EQ(count_nodes(m.g, GRAPH_EXPR), 0);
    CHECK_INT_EQ(n->columns.dims[0] * n->columns.dims[1], 16);
    CHECK_INT_EQ(n->columns.dims[2], 3);
    graph_destroy(m.g);
}

TEST(a_weight_of_inputs_by_outputs_is_transposed_if_nothing_else_reads_it)
{
    for (int twice = 0; twice < 2; twice++) {
        struct program m;
        begin(&m, "s 5 8");
        int w = put_parameter(&m, "8 8");
        int y =
            put(&m, "aten.matmul.default", "s 5 8", ARGS(TENSOR("self", 0), TENSOR("other", w)));
        if (twice)
            y = put(&m, "aten.linear.default", "s 5 8",
                    ARGS(TENSOR("input", y), TENSOR("weight", w)));
        check_accepted(&m, y);
        const struct graph_node *n = node_of(m.g, GRAPH_LINEAR);
        assert_true(n->transposed == !twice);
        CHECK_INT_EQ(count_nodes(m.g, GRAPH_EXPR), twice); /* the product is written out */
        graph_destroy(m.g);
    }
}

TEST(a_part_of_a_weight_is_rows_of_it)
{
    struct program m;
    begin(&m, "s 5 8");
    int w = put_parameter(&m, "24 8"), b = put_parameter(&m, "24");
    int part = put(&m, "aten.slice.Tensor", "16 8",
                   ARGS(TENSOR("self", w), INT("start", 8), INT("end", 24)));
    int of_b = put(&m, "aten.slice.Tensor", "16",
                   ARGS(TENSOR("self", b), INT("start", 8), INT("end", 24)));
    int y = put(&m, "aten.linear.default", "s 5 16",
                ARGS(TENSOR("input", 0), TENSOR("weight", part), TENSOR("bias", of_b)));
    check_accepted(&m, y);
    const struct graph_node *n = node_of(m.g, GRAPH_LINEAR);
    CHECK_INT_EQ(n->first, 8);
    CHECK_INT_EQ(n->all, 24);
    CHECK_INT_EQ(n->channels, 16);
    CHECK_INT_EQ(n->weights[1], 1);
    graph_destroy(m.g);
}

TEST(a_product_of_two_computed_tensors_is_written_out)
{
    struct program m; /* x = [[0, 1], [2, 3]] */
    begin(&m, "s 2 2");
    int y = put(&m, "aten.bmm.default", "s 2 2", ARGS(TENSOR("self", 0), TENSOR("mat2", 0)));
    CHECK_RESULT(&m, y, 2, 3, 6, 11);

    begin(&m, "s 2 2");
    const int values[] = {0, 0};
    const struct pt_arg args[] = {
        {.name = "equation", .kind = PT_STRING, .text = "bij,bkj->bik"},
        {.name = "tensors", .kind = PT_TENSORS, .n = 2, .values = values}};
    y = put(&m, "aten.einsum.default", "s 2 2", 2, args);
    CHECK_RESULT(&m, y, 1, 3, 3, 13);
}

TEST(a_product_over_samples_is_refused)
{
    struct program m;
    begin(&m, "s 4");
    int t = put(&m, "aten.transpose.int", "4 s",
                ARGS(TENSOR("self", 0), INT("dim0", 0), INT("dim1", 1)));
    int y = put(&m, "aten.matmul.default", "4 4", ARGS(TENSOR("self", t), TENSOR("other", 0)));
    check_refused(&m, y, "samples");
}

/* ---- embeddings and dropout */

TEST(rows_that_constants_name_are_a_view_if_they_are_neighbours)
{
    static const int64_t ascending[] = {1, 2}, other[] = {2, 0};
    for (int k = 0; k < 2; k++) {
        struct program m;
        begin(&m, "s 2 2");
        const float rows[] = {10, 20, 30, 40, 50, 60};
        int w = put_weight(&m, PT_PARAMETER, PT_F32, "3 2", rows);
        int at = put_weight(&m, PT_CONSTANT, PT_I64, "2", k ? other : ascending);
        int e = put(&m, "aten.embedding.default", "2 2",
                    ARGS(TENSOR("weight", w), TENSOR("indices", at)));
        int y = put(&m, "aten.add.Tensor", "s 2 2", ARGS(TENSOR("self", 0), TENSOR("other", e)));
        lower_to(&m, y);
        CHECK_INT_EQ(count_nodes(m.g, GRAPH_EXPR), 1 + k); /* the sum, and the rows */
        float got[4];
        const float expected[2][4] = {{30, 41, 52, 63}, {50, 61, 12, 23}};
        compute(&m, 4, got);
        for (int i = 0; i < 4; i++)
            assert_true(got[i] == expected[k][i]);
    }
}

TEST(tokens_are_embedded_and_padding_learns_nothing)
{
    struct program m;
    begin(&m, "s 5");
    m.values[0].type.dtype = PT_I64;
    int w = put_parameter(&m, "7 4");
    int y = put(&m, "aten.embedding.default", "s 5 4",
                ARGS(TENSOR("weight", w), TENSOR("indices", 0), INT("padding_idx", 3)));
    check_accepted(&m, y);
    const struct graph_node *n = node_of(m.g, GRAPH_EMBEDDING);
    CHECK_INT_EQ(n->positions, 5);
    CHECK_INT_EQ(n->channels, 4);
    CHECK_INT_EQ(n->padding, 3);
    graph_destroy(m.g);
}

TEST(dropout_of_nothing_is_no_node)
{
    for (int k = 0; k < 2; k++) {
        struct program m;
        begin(&m, "s 5");
        const struct pt_arg args[] = {TENSOR("input", 0), FLOAT("p", k ? 0.5 : 0),
                                      FLAG("train", true)};
        int y = put(&m, "aten.dropout.default", "s 5", 3, args);
        check_accepted(&m, y);
        CHECK_INT_EQ(count_nodes(m.g, GRAPH_DROPOUT), k);
        graph_destroy(m.g);
    }
}

TEST(a_loss_in_the_graph_is_refused)
{
    struct program m;
    begin(&m, "s 5");
    int y = put(&m, "aten.mse_loss.default", "", ARGS(TENSOR("self", 0), TENSOR("target", 0)));
    check_refused(&m, y, "export the model without it");
}

/* ---- windows */

/* Adds conv2d with a kernel, of 3 to 8 channels. */
static int put_conv(struct program *m, const char *kernel, const char *result)
{
    int w = put_parameter(m, kernel);
    return put(m, "aten.conv2d.default", result, ARGS(TENSOR("input", 0), TENSOR("weight", w)));
}

TEST(a_convolution_and_a_pool_see_channels_last)
{
    struct program m;
    begin(&m, "s 3 6 6");
    int c = put_conv(&m, "8 3 3 3", "s 8 4 4");
    int p = put(&m, "aten.max_pool2d.default", "s 8 2 2",
                ARGS(TENSOR("self", c), LIST("kernel_size", 2, SIZE(2), SIZE(2))));
    int a = put(&m, "aten.adaptive_avg_pool2d.default", "s 8 1 1",
                ARGS(TENSOR("self", p), LIST("output_size", 2, SIZE(1), SIZE(1))));
    int y = put(&m, "aten.flatten.using_ints", "s 8", ARGS(TENSOR("self", a), INT("start_dim", 1)));
    check_accepted(&m, y);
    CHECK_INT_EQ(count_nodes(m.g, GRAPH_EXPR), 0);
    CHECK_INT_EQ(node_of(m.g, GRAPH_CONV)->window.image.dims[2], 3);
    CHECK_INT_EQ(node_of(m.g, GRAPH_MAX_POOL)->window.stride, 2);
    assert_true(node_of(m.g, GRAPH_AVG_POOL)->window.all);
    graph_destroy(m.g);
}

TEST(windows_that_are_no_squares_are_refused)
{
    struct program m;
    begin(&m, "s 3 6 6");
    check_refused(&m, put_conv(&m, "8 3 1 7", "s 8 6 6"), "a kernel of 1 x 7");

    begin(&m, "s 3 6 6");
    int w = put_parameter(&m, "8 3 3 3");
    int y =
        put(&m, "aten.conv2d.default", "s 8 2 2",
            ARGS(TENSOR("input", 0), TENSOR("weight", w), LIST("dilation", 2, SIZE(2), SIZE(2))));
    check_refused(&m, y, "a dilation of 2");
}

TEST(an_adaptive_pool_to_more_pixels_repeats_them)
{
    struct program m; /* x = [[0, 1], [2, 3]] of one channel */
    begin(&m, "s 1 2 2");
    int a = put(&m, "aten.adaptive_avg_pool2d.default", "s 1 4 4",
                ARGS(TENSOR("self", 0), LIST("output_size", 2, SIZE(4), SIZE(4))));
    int y =
        put(&m, "aten.flatten.using_ints", "s 16", ARGS(TENSOR("self", a), INT("start_dim", 1)));
    CHECK_RESULT(&m, y, 0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3);
}

/* ---- norms */

/* Adds a batch norm of 2 channels with mean 1, variance 4, weight 2 and bias 3. */
static int put_batch_norm(struct program *m, bool training)
{
    static const float w[] = {2, 2}, b[] = {3, 3}, mean[] = {1, 1}, variance[] = {4, 4};
    int weight = put_weight(m, PT_PARAMETER, PT_F32, "2", w);
    int bias = put_weight(m, PT_PARAMETER, PT_F32, "2", b);
    int of_mean = put_weight(m, PT_BUFFER, PT_F32, "2", mean);
    int of_variance = put_weight(m, PT_BUFFER, PT_F32, "2", variance);
    return put(m, "aten.batch_norm.default", "s 2 2",
               ARGS(TENSOR("input", 0), TENSOR("weight", weight), TENSOR("bias", bias),
                    TENSOR("running_mean", of_mean), TENSOR("running_var", of_variance),
                    FLAG("training", training), FLOAT("eps", 0)));
}

TEST(a_batch_norm_that_is_evaluated_is_written_out)
{
    struct program m;
    begin(&m, "s 2 2");
    check_accepted(&m, put_batch_norm(&m, true));
    CHECK_INT_EQ(node_of(m.g, GRAPH_BATCH_NORM)->weights[3], 3);
    graph_destroy(m.g);

    begin(&m, "s 2 2");
    CHECK_RESULT(&m, put_batch_norm(&m, false), 2, 3, 4, 5);
}

TEST(a_norm_without_weights_is_written_out)
{
    struct program m; /* two rows, 0 2 and 4 6 .. of a row of data: their mean is 1, 5 */
    begin(&m, "s 2 2");
    int y = put(&m, "aten.layer_norm.default", "s 2 2",
                ARGS(TENSOR("input", 0), LIST("normalized_shape", 1, SIZE(2)), FLOAT("eps", 0.75)));
    /* (0 - 0.5) / sqrt(0.25 + 0.75) */
    CHECK_RESULT(&m, y, -0.5, 0.5, -0.5, 0.5);

    begin(&m, "s 4");
    int t = put(&m, "aten.transpose.int", "4 s",
                ARGS(TENSOR("self", 0), INT("dim0", 0), INT("dim1", 1)));
    y = put(&m, "aten.layer_norm.default", "4 s",
            ARGS(TENSOR("input", t), LIST("normalized_shape", 1, SIZE(4))));
    check_refused(&m, y, "samples");
}

/* ---- attention */

/* Adds attention of 2 heads of 4 channels, of q, k and v side by side at 3 positions. */
static int put_attention(struct program *m, int mask, bool causal)
{
    int part[3];
    int heads = put(m, "aten.view.default", "s 3 3 2 4", ARGS(TENSOR("self", 0)));
    int turned = put(
        m, "aten.permute.default", "3 s 2 3 4",
        ARGS(TENSOR("self", heads), LIST("dims", 5, SIZE(2), SIZE(0), SIZE(3), SIZE(1), SIZE(4))));
    for (int i = 0; i < 3; i++)
        part[i] = put(m, "aten.select.int", "s 2 3 4",
                      ARGS(TENSOR("self", turned), INT("dim", 0), INT("index", i)));
    const struct pt_arg all[] = {TENSOR("query", part[0]), TENSOR("key", part[1]),
                                 TENSOR("value", part[2]), FLAG("is_causal", causal),
                                 TENSOR("attn_mask", mask)};
    int y = put(m, "aten.scaled_dot_product_attention.default", "s 2 3 4", mask > 0 ? 5 : 4, all);
    int back = put(m, "aten.transpose.int", "s 3 2 4",
                   ARGS(TENSOR("self", y), INT("dim0", 1), INT("dim1", 2)));
    return put(m, "aten.reshape.default", "s 3 8", ARGS(TENSOR("self", back)));
}

TEST(attention_reads_heads_where_they_lie)
{
    struct program m;
    begin(&m, "s 3 24");
    check_accepted(&m, put_attention(&m, 0, false));
    const struct graph_attention *a = &node_of(m.g, GRAPH_ATTENTION)->attention;
    CHECK_INT_EQ(count_nodes(m.g, GRAPH_EXPR), 0);
    CHECK_INT_EQ(a->heads, 2);
    CHECK_INT_EQ(a->width, 4);
    CHECK_INT_EQ(a->queries, 3);
    CHECK_INT_EQ((int)a->k.offset, 8);
    CHECK_INT_EQ((int)a->v.offset, 16);
    CHECK_INT_EQ((int)a->q.position, 24);
    CHECK_INT_EQ((int)a->q.head, 4);
    assert_true(!a->causal);
    graph_destroy(m.g);
}

TEST(a_constant_mask_is_known_by_what_it_hides)
{
    static const uint8_t all[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1},
                         lower[9] = {1, 0, 0, 1, 1, 0, 1, 1, 1},
                         other[9] = {1, 0, 1, 1, 1, 1, 1, 1, 1};
    const uint8_t *const masks[] = {all, lower, other};
    for (int i = 0; i < 3; i++) {
        struct program m;
        begin(&m, "s 3 24");
        int mask = put_weight(&m, PT_CONSTANT, PT_BOOL, "3 3", masks[i]);
        check_accepted(&m, put_attention(&m, mask, false));
        const struct graph_node *n = node_of(m.g, GRAPH_ATTENTION);
        assert_true(n->attention.causal == (i == 1));
        CHECK_INT_EQ(n->n_in, i == 2 ? 4 : 3);
        if (i == 2) {
            const float *table = m.g->nodes[n->in[3]].table;
            assert_true(table[0] == 0 && table[1] == -INFINITY);
        }
        graph_destroy(m.g);
    }
}
