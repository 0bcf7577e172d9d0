/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constants of PyTorch programs. tests/zoo/constants.py compares all operators with PyTorch; here stand
 * what is a constant, writes in place, and values that depend on the batch.
 */
#include "test.h"

#include <math.h>

#include "../../src/nn/graph/fold.h"

#define MANY 32

/* A program under construction; the names of values are v0, v1, ... */
struct draft {
    struct pt_program p;
    struct pt_value values[MANY];
    struct pt_node nodes[MANY];
    struct pt_arg args[MANY][4];
    struct pt_weight weights[MANY];
    struct pt_size sizes[MANY][4];
    int outputs[MANY], n_lists;
    char names[MANY][8];
    struct folder *folder;
    bool known[MANY]; /* of a value, when its node was folded */
};

static int end_draft(void **state)
{
    struct draft *d = *state;
    folder_destroy(&d->folder);
    pp_free(d);
    return 0;
}

static int begin_draft(void **state)
{
    struct draft *d = *state = pp_alloc(1, sizeof(*d));
    assert_non_null(d);
    d->p = (struct pt_program){.file = "net.pt2",
                               .values = d->values,
                               .nodes = d->nodes,
                               .weights = d->weights,
                               .outputs = d->outputs};
    return 0;
}

#define TEST_DRAFT(name) TEST_AROUND(name, begin_draft, end_draft)

static int add_value(struct draft *d, enum pt_origin origin, int index, enum pt_dtype dtype,
                     int n_dims, const struct pt_size *dims)
{
    int v = d->p.n_values++;
    assert_true(v < MANY);
    snprintf(d->names[v], sizeof(d->names[v]), "v%d", v);
    d->values[v] = (struct pt_value){d->names[v], {dtype, n_dims, {{0, false}}}, origin, index};
    if (n_dims > 0)
        memcpy(d->values[v].type.dims, dims, (size_t)n_dims * sizeof(*dims));
    d->outputs[d->p.n_outputs++] = v; /* all values stay readable */
    return v;
}

#define DIMS(...)                                                                                  \
    (int)(sizeof((struct pt_size[]){__VA_ARGS__}) / sizeof(struct pt_size)), (struct pt_size[])    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define SCALAR 0, NULL
#define BATCH(n)                                                                                   \
    {                                                                                              \
        n, true                                                                                    \
    }

static int add_input(struct draft *d, enum pt_dtype dtype, int n_dims, const struct pt_size *dims)
{
    return add_value(d, PT_FROM_INPUT, 0, dtype, n_dims, dims);
}

/* A vector of the archive. */
static int add_weight(struct draft *d, enum pt_weight_kind kind, enum pt_dtype dtype, int n,
                      const void *data)
{
    int w = d->p.n_weights++, v = add_value(d, PT_FROM_WEIGHT, w, dtype, DIMS({n, false}));
    d->weights[w] = (struct pt_weight){.kind = kind,
                                       .dtype = dtype,
                                       .n_dims = 1,
                                       .dims = {n},
                                       .strides = {1},
                                       .value = v,
                                       .data = data,
                                       .bytes = (size_t)n * pt_dtype_bytes(dtype)};
    return v;
}

static struct pt_arg tensor(const char *name, int value)
{
    return (struct pt_arg){.name = name, .kind = PT_TENSOR, .value = value};
}

static struct pt_arg whole(const char *name, int64_t n, bool batch)
{
    return (struct pt_arg){.name = name, .kind = PT_INT, .size = {n, batch}};
}

static struct pt_arg real(const char *name, double number)
{
    return (struct pt_arg){.name = name, .kind = PT_FLOAT, .number = number};
}

/* Adds a node with up to four arguments, of which the last has no name; returns its value. */
static int add_node(struct draft *d, const char *target, const struct pt_arg args[4],
                    enum pt_dtype dtype, int n_dims, const struct pt_size *dims)
{
    int n = d->p.n_nodes++, v = add_value(d, PT_FROM_NODE, n, dtype, n_dims, dims);
    assert_true(n < MANY);
    memcpy(d->args[n], args, sizeof(d->args[n]));
    d->nodes[n] = (struct pt_node){.target = target,
                                   .n_outputs = 1,
                                   .args = d->args[n],
                                   .outputs = &d->outputs[v],
                                   .path = "layers.0",
                                   .source = "net.py:7"};
    while (d->nodes[n].n_args < 4 && args[d->nodes[n].n_args].name)
        d->nodes[n].n_args++;
    return v;
}

#define ARGS(...)                                                                                  \
    (const struct pt_arg[4])                                                                       \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void fold_draft(struct draft *d)
{
    CHECK_OK(folder_create(&d->p, &d->folder));
    for (int n = 0; n < d->p.n_nodes; n++)
        CHECK_OK(fold_node(d->folder, n, &d->known[d->nodes[n].outputs[0]]));
}

/* Reads a constant and compares it with numbers in words, "1 2.5". */
static void check_constant(struct draft *d, int value, const char *numbers)
{
    PP_OWN(fold_constant_free) struct fold_constant c = {.n = 0};
    char text[256] = "";
    assert_true(fold_knows(d->folder, value));
    CHECK_OK(fold_read(d->folder, value, &c));
    for (int64_t k = 0; k < c.n; k++)
        if (c.floats)
            pp_text_add(text, sizeof(text), "%s%.9g", k ? " " : "", (double)c.floats[k]);
        else
            pp_text_add(text, sizeof(text), "%s%lld", k ? " " : "", (long long)c.ints[k]);
    CHECK_STR_EQ(text, numbers);
}

TEST_DRAFT(a_write_through_a_view_is_seen_by_its_base)
{
    struct draft *d = *state;
    int mask = add_node(d, "aten.zeros.default", ARGS({0}), PT_F32, DIMS({2, false}, {3, false}));
    int row =
        add_node(d, "aten.select.int",
                 ARGS(tensor("self", mask), whole("dim", 0, false), whole("index", -1, false)),
                 PT_F32, DIMS({3, false}));
    int filled =
        add_node(d, "aten.fill_.Scalar", ARGS(tensor("self", row), real("value", -INFINITY)),
                 PT_F32, DIMS({3, false}));
    int later = add_node(d, "aten.add.Tensor", ARGS(tensor("self", mask), whole("other", 1, false)),
                         PT_F32, DIMS({2, false}, {3, false}));
    fold_draft(d);
    check_constant(d, filled, "-inf -inf -inf");
    check_constant(d, later, "1 1 1 -inf -inf -inf");
}

TEST_DRAFT(a_constant_that_is_alike_for_all_samples_is_one_row)
{
    struct draft *d = *state;
    int row =
        add_node(d, "aten.arange.default", ARGS(whole("end", 3, false)), PT_I64, DIMS({3, false}));
    int all = add_node(d, "aten.expand.default", ARGS(tensor("self", row)), PT_I64,
                       DIMS(BATCH(1), {2, false}, {3, false}));
    /* windows: 6 rows a sample */
    int flat =
        add_node(d, "aten.reshape.default", ARGS(tensor("self", all)), PT_I64, DIMS(BATCH(6)));
    PP_OWN(fold_constant_free) struct fold_constant c = {.n = 0};
    fold_draft(d);
    CHECK_OK(fold_read(d->folder, all, &c));
    CHECK_INT_EQ(c.batch_dim, 0);
    CHECK_INT_EQ(c.dims[0], 1);
    CHECK_INT_EQ(c.dims[1], 2);
    CHECK_INT_EQ(c.strides[1], 0);
    CHECK_INT_EQ(c.n, 3);
    check_constant(d, flat, "0 1 2 0 1 2");
}

TEST_DRAFT(a_constant_that_differs_between_samples_is_refused)
{
    struct draft *d = *state;
    int counts =
        add_node(d, "aten.arange.default", ARGS(whole("end", 1, true)), PT_I64, DIMS(BATCH(1)));
    int alike =
        add_node(d, "aten.mul.Tensor", ARGS(tensor("self", counts), whole("other", 0, false)),
                 PT_I64, DIMS(BATCH(1)));
    struct fold_constant c;
    fold_draft(d);
    CHECK_FAILS(fold_read(d->folder, counts, &c), PP_ECONFIG,
                "net.pt2: layers.0 (net.py:7): v0 is a constant that is not the same");
    check_constant(d, alike, "0");
}

TEST_DRAFT(the_number_of_samples_is_not_a_constant)
{
    struct draft *d = *state;
    int ones = add_node(d, "aten.ones.default", ARGS({0}), PT_F32, DIMS({2, false}));
    int scaled = add_node(d, "aten.mul.Tensor", ARGS(tensor("self", ones), whole("other", 1, true)),
                          PT_F32, DIMS({2, false}));
    struct fold_constant c;
    fold_draft(d);
    assert_true(d->known[scaled]);
    CHECK_FAILS(fold_read(d->folder, scaled, &c), PP_ECONFIG, "depends on the number of samples");
}

TEST_DRAFT(a_parameter_and_a_buffer_that_is_written_are_not_constants)
{
    struct draft *d = *state;
    const float numbers[2] = {1.5f, -2};
    const int64_t count[1] = {7};
    int parameter = add_weight(d, PT_PARAMETER, PT_F32, 2, numbers);
    int buffer = add_weight(d, PT_BUFFER, PT_F32, 2, numbers);
    int counter = add_weight(d, PT_BUFFER, PT_I64, 1, count);
    d->weights[0].data = NULL; /* not the buffer's memory */
    int view = add_node(d, "aten.view.default", ARGS(tensor("self", counter)), PT_I64, SCALAR);
    int next = add_node(d, "aten.add_.Tensor", ARGS(tensor("self", view), whole("other", 1, false)),
                        PT_I64, SCALAR);
    int half = add_node(d, "aten.mul.Tensor", ARGS(tensor("self", buffer), real("other", 0.5)),
                        PT_F32, DIMS({2, false}));
    int frozen =
        add_node(d, "aten.neg.default", ARGS(tensor("self", parameter)), PT_F32, DIMS({2, false}));
    fold_draft(d);
    check_constant(d, half, "0.75 -1");
    assert_false(d->known[frozen]);
    assert_false(d->known[view]);
    assert_false(d->known[next]);
}

TEST_DRAFT(a_write_of_unknown_values_ends_what_is_known)
{
    struct draft *d = *state;
    int noise =
        add_node(d, "aten.empty.memory_format", ARGS({0}), PT_F32, DIMS(BATCH(1), {1, false}));
    int view =
        add_node(d, "aten.view.default", ARGS(tensor("self", noise)), PT_F32, DIMS(BATCH(1)));
    int drawn = add_node(d, "aten.bernoulli_.float", ARGS(tensor("self", noise), real("p", 0.5)),
                         PT_F32, DIMS(BATCH(1), {1, false}));
    int late = add_node(d, "aten.neg.default", ARGS(tensor("self", view)), PT_F32, DIMS(BATCH(1)));
    bool known;
    CHECK_OK(folder_create(&d->p, &d->folder));
    for (int n = 0; n < 3; n++)
        CHECK_OK(fold_node(d->folder, n, &d->known[d->nodes[n].outputs[0]]));
    assert_true(d->known[view]);
    assert_false(d->known[drawn]);
    assert_true(fold_knows(d->folder, noise)); /* to the node that writes */
    CHECK_OK(fold_node(d->folder, 3, &known));
    assert_false(known || fold_knows(d->folder, noise) || fold_knows(d->folder, late));
}

TEST_DRAFT(an_operator_that_looks_at_a_type_needs_no_known_input)
{
    struct draft *d = *state;
    int x = add_input(d, PT_I64, DIMS(BATCH(1), {2, false}));
    int ones = add_node(d, "aten.ones_like.default", ARGS(tensor("self", x)), PT_F32,
                        DIMS(BATCH(1), {2, false}));
    int sum =
        add_node(d, "aten.cumsum.default", ARGS(tensor("self", ones), whole("dim", -1, false)),
                 PT_F32, DIMS(BATCH(1), {2, false}));
    int mix = add_node(d, "aten.add.Tensor", ARGS(tensor("self", x), tensor("other", ones)), PT_F32,
                       DIMS(BATCH(1), {2, false}));
    fold_draft(d);
    check_constant(d, sum, "1 2");
    assert_false(d->known[mix]);
}

TEST_DRAFT(dtypes_are_promoted_as_PyTorch_does)
{
    struct draft *d = *state;
    const int32_t numbers[2] = {INT32_MAX, 3};
    int a = add_weight(d, PT_BUFFER, PT_I32, 2, numbers);
    int wraps = add_node(d, "aten.add.Tensor", ARGS(tensor("self", a), whole("other", 1, false)),
                         PT_I32, DIMS({2, false}));
    int third =
        add_node(d, "aten.div.Tensor", ARGS(tensor("self", wraps), whole("other", 3, false)),
                 PT_F32, DIMS({2, false}));
    /* 4/3 is rounded to float32, too */
    int above = add_node(d, "aten.gt.Scalar", ARGS(tensor("self", third), real("other", 4.0 / 3)),
                         PT_BOOL, DIMS({2, false}));
    int floor =
        add_node(d, "aten.remainder.Scalar", ARGS(tensor("self", wraps), whole("other", 5, false)),
                 PT_I32, DIMS({2, false}));
    fold_draft(d);
    check_constant(d, wraps, "-2147483648 4");
    check_constant(d, third, "-715827904 1.33333337");
    check_constant(d, above, "0 0");
    check_constant(d, floor, "2 4");
}

TEST_DRAFT(a_rotary_table_is_computed_in_single_precision)
{
    struct draft *d = *state;
    int even =
        add_node(d, "aten.arange.start_step",
                 ARGS(whole("start", 0, false), whole("end", 8, false), whole("step", 2, false)),
                 PT_I64, DIMS({4, false}));
    int share = add_node(d, "aten.div.Tensor", ARGS(tensor("self", even), whole("other", 8, false)),
                         PT_F32, DIMS({4, false}));
    int base = add_node(d, "aten.pow.Scalar", ARGS(real("self", 10000), tensor("exponent", share)),
                        PT_F32, DIMS({4, false}));
    int wave = add_node(d, "aten.reciprocal.default", ARGS(tensor("self", base)), PT_F32,
                        DIMS({4, false}));
    int at =
        add_node(d, "aten.arange.default", ARGS(whole("end", 2, false)), PT_F32, DIMS({2, false}));
    int angle = add_node(d, "aten.outer.default", ARGS(tensor("self", at), tensor("vec2", wave)),
                         PT_F32, DIMS({2, false}, {4, false}));
    int table = add_node(d, "aten.cos.default", ARGS(tensor("self", angle)), PT_F32,
                         DIMS({2, false}, {4, false}));
    fold_draft(d);
    check_constant(d, base, "1 10 100 1000");
    check_constant(d, table, "1 1 1 1 0.540302277 0.995004177 0.999949992 0.999999523");
}

TEST_DRAFT(sizes_and_indices_that_cannot_be_are_left_to_others)
{
    struct draft *d = *state;
    int huge = add_node(d, "aten.zeros.default", ARGS({0}), PT_F32,
                        DIMS({INT64_MAX / 2, false}, {8, false}));
    int unknown = add_node(d, "aten.zeros.default", ARGS({0}), PT_F32, DIMS(BATCH(-1)));
    int few =
        add_node(d, "aten.arange.default", ARGS(whole("end", 3, false)), PT_I64, DIMS({3, false}));
    int outside = add_node(d, "aten.index_select.default",
                           ARGS(tensor("self", few), whole("dim", 0, false), tensor("index", few)),
                           PT_I64, DIMS({3, false}));
    int wrong =
        add_node(d, "aten.gather.default",
                 ARGS(tensor("self", outside), whole("dim", 2, false), tensor("index", few)),
                 PT_I64, DIMS({3, false}));
    int more = add_node(d, "aten.add.Tensor", ARGS(tensor("self", few), whole("other", 1, false)),
                        PT_I64, DIMS({3, false}));
    int beyond = add_node(d, "aten.index_select.default",
                          ARGS(tensor("self", few), whole("dim", 0, false), tensor("index", more)),
                          PT_I64, DIMS({3, false}));
    int shape =
        add_node(d, "aten.neg.default", ARGS(tensor("self", few)), PT_I64, DIMS({4, false}));
    fold_draft(d);
    check_constant(d, outside, "0 1 2");
    assert_false(d->known[huge] || d->known[unknown] || d->known[wrong]);
    assert_false(d->known[beyond] || d->known[shape]);
}
