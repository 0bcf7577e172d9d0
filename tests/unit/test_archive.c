/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of torch.export.save(): what is read from one, what is refused and in which words, and
 * that no damage ends the process. */
#include <math.h>

#include "test_archive_make.h"

static struct pt_program *open_small(struct blob *b)
{
    struct pt_program *p = NULL;
    *b = small_with(NULL, NULL);
    CHECK_OK(read_blob(*b, &p));
    return p;
}

#define SMALL(p)                                                                                   \
    PP_OWN(blob_free) struct blob p##_blob = {NULL, 0};                                            \
    PP_OWN(pt_program_destroy) struct pt_program *p = open_small(&p##_blob)

static int find_value(const struct pt_program *p, const char *name)
{
    for (int i = 0; i < p->n_values; i++)
        if (strcmp(p->values[i].name, name) == 0)
            return i;
    fail_msg("no value %s", name);
    return -1;
}

#define CHECK_SIZE(size, n_, batch_)                                                               \
    do {                                                                                           \
        CHECK_INT_EQ((size).n, n_);                                                                \
        CHECK_INT_EQ((size).batch, batch_);                                                        \
    } while (0)

TEST(a_program_has_its_nodes_in_order_without_those_that_compute_sizes)
{
    SMALL(p);
    static const char *const targets[] = {"aten.linear.default", "aten.reshape.default",
                                          "aten.chunk.default", "demo.all.default"};
    CHECK_STR_EQ(p->torch, "2.15.0");
    CHECK_INT_EQ(p->schema_minor, 20);
    CHECK_INT_EQ(p->n_sizes, 2);
    CHECK_INT_EQ(p->n_nodes, 4);
    for (int i = 0; i < 4; i++)
        CHECK_STR_EQ(p->nodes[i].target, targets[i]);
    const struct pt_node *chunk = &p->nodes[2];
    CHECK_INT_EQ(chunk->n_outputs, 3);
    CHECK_STR_EQ(p->values[chunk->outputs[0]].name, "a");
    CHECK_STR_EQ(p->values[chunk->outputs[1]].name, "b");
    CHECK_INT_EQ(chunk->outputs[2], -1);
    CHECK_INT_EQ(p->values[chunk->outputs[1]].origin, PT_FROM_NODE);
    CHECK_INT_EQ(p->values[chunk->outputs[1]].index, 2);
}

TEST(a_node_knows_its_modules_and_its_line_of_code)
{
    SMALL(p);
    const struct pt_node *n = &p->nodes[0];
    CHECK_STR_EQ(n->path, "fc");
    CHECK_STR_EQ(n->source, "net.py:12");
    CHECK_STR_EQ(n->code, "x = self.fc(x)");
    CHECK_INT_EQ(n->n_stack, 2);
    CHECK_STR_EQ(p->modules[n->stack[0]].type, "Net");
    CHECK_STR_EQ(p->modules[n->stack[1]].type, "Linear");
    CHECK_INT_EQ(p->modules[n->stack[1]].call, 1);
    CHECK_INT_EQ(p->n_modules, 2);
    CHECK_STR_EQ(p->nodes[1].path, "");
    CHECK_STR_EQ(p->nodes[1].source, "");
}

TEST(sizes_are_numbers_or_multiples_of_the_batch)
{
    SMALL(p);
    const struct pt_tensor *z = &p->values[find_value(p, "z")].type;
    const struct pt_tensor *mask = &p->values[find_value(p, "mask")].type;
    CHECK_STR_EQ(p->batch, "s7");
    CHECK_INT_EQ(p->n_symbols, 2);
    CHECK_INT_EQ(z->dtype, PT_F32);
    CHECK_INT_EQ(z->n_dims, 3);
    CHECK_SIZE(z->dims[0], 3, true);
    CHECK_SIZE(z->dims[1], 1, false);
    CHECK_SIZE(z->dims[2], -1, true);
    CHECK_INT_EQ(mask->dtype, PT_BOOL);
    CHECK_SIZE(mask->dims[0], 1, true); /* the batch of another input */
    CHECK_SIZE(mask->dims[1], -1, true);
    CHECK_SIZE(p->values[find_value(p, "b")].type.dims[1], 1, false);
    CHECK_INT_EQ(p->values[find_value(p, "out")].type.dtype, PT_OTHER);
}

TEST(weights_lie_in_the_file_with_their_names_and_ties)
{
    SMALL(p);
    CHECK_INT_EQ(p->n_weights, 4);
    const struct pt_weight *w = p->weights;
    CHECK_STR_EQ(w[0].name, "fc.weight");
    CHECK_INT_EQ(w[0].kind, PT_PARAMETER);
    assert_true(w[0].persistent && w[0].requires_grad);
    CHECK_INT_EQ(w[0].bytes, sizeof(fc_weight));
    assert_memory_equal(w[0].data, fc_weight, sizeof(fc_weight));
    CHECK_INT_EQ(w[0].same_as, -1);
    CHECK_INT_EQ(w[1].same_as, 0);
    CHECK_STR_EQ(w[1].storage, "small/data/weights/weight_0");
    CHECK_INT_EQ(p->values[w[1].value].origin, PT_FROM_WEIGHT);
    CHECK_INT_EQ(p->values[w[1].value].index, 1);
    CHECK_INT_EQ(w[2].kind, PT_BUFFER);
    CHECK_INT_EQ(w[2].strides[1], 2);
    CHECK_INT_EQ(w[3].kind, PT_CONSTANT);
    CHECK_INT_EQ(w[3].dtype, PT_I64);
    assert_false(w[3].persistent);
    CHECK_OK(pt_program_check(p));
}

TEST(inputs_have_the_names_that_forward_gives_them)
{
    SMALL(p);
    static const char *const names[] = {"x", "attention", "times"};
    CHECK_INT_EQ(p->n_inputs, 3);
    for (int i = 0; i < 3; i++)
        CHECK_STR_EQ(p->inputs[i].name, names[i]);
    CHECK_INT_EQ(p->inputs[1].value, find_value(p, "mask"));
    CHECK_INT_EQ(p->inputs[2].value, -1);
    CHECK_INT_EQ(p->n_outputs, 2);
    CHECK_INT_EQ(p->outputs[0], find_value(p, "z"));
    CHECK_INT_EQ(p->outputs[1], -1);
    PP_OWN(blob_free) struct blob b = small_with("\"attention\",", "");
    PP_OWN(pt_program_destroy) struct pt_program *other = NULL;
    CHECK_OK(read_blob(b, &other));
    CHECK_STR_EQ(other->inputs[1].name, "mask");
}

TEST(arguments_of_all_kinds_are_read)
{
    SMALL(p);
    const struct pt_node *n = &p->nodes[3];
    const struct pt_arg *shape = pt_arg_find(&p->nodes[1], "shape");
    CHECK_INT_EQ(shape->kind, PT_INTS);
    CHECK_SIZE(shape->sizes[0], 3, true);
    CHECK_SIZE(shape->sizes[1], -1, false);
    CHECK_SIZE(shape->sizes[2], -1, true);
    assert_null(pt_arg_find(n, "left_out"));
    CHECK_INT_EQ(pt_arg_find(n, "none")->kind, PT_NONE);
    CHECK_INT_EQ(pt_arg_find(n, "maybe")->kind, PT_NONE);
    CHECK_INT_EQ(pt_arg_find(n, "tensors")->values[1], find_value(p, "b"));
    CHECK_INT_EQ(pt_arg_find(n, "some")->values[0], -1);
    CHECK_INT_EQ(pt_arg_find(n, "some")->values[1], find_value(p, "z"));
    CHECK_SIZE(pt_arg_find(n, "int")->size, INT64_MAX, false);
    CHECK_INT_EQ(pt_arg_find(n, "ints")->n, 2);
    CHECK_SIZE(pt_arg_find(n, "ints")->sizes[0], -1, false);
    CHECK_INT_EQ(pt_arg_find(n, "size")->kind, PT_INT);
    CHECK_SIZE(pt_arg_find(n, "size")->size, 3, true);
    assert_true(pt_arg_find(n, "float")->number == 1e-05);
    assert_true(pt_arg_find(n, "inf")->number == -INFINITY);
    assert_true(pt_arg_find(n, "floats")->numbers[0] == 1.0);
    assert_true(pt_arg_find(n, "bool")->flag && pt_arg_find(n, "bools")->flags[1]);
    CHECK_STR_EQ(pt_arg_find(n, "string")->text, "mean");
    CHECK_INT_EQ(pt_arg_find(n, "dtype")->dtype, PT_I64);
    CHECK_STR_EQ(pt_arg_find(n, "device")->text, "cuda");
    CHECK_INT_EQ(pt_arg_find(n, "memory_format")->size.n, 2);
    CHECK_INT_EQ(pt_arg_find(n, "")->kind, PT_OTHER_ARG);
    CHECK_STR_EQ(pt_arg_find(n, "")->text, "as_complex");
}

/* ---- refusals */

static const struct {
    const char *from, *to, *words;
} refusals[] = {
    {"small/archive_format", "serialized_exported_program.json",
     "saved by torch 2.7 or older: save it again with torch 2.10 or newer"},
    {"small/archive_format", "small/data.pkl", "a file of torch.save(), which has weights but"},
    {"small/archive_format", "small/constants.pkl", "a TorchScript file"},
    {"small/archive_format", "small/format", "not an archive of torch.export.save(): save"},
    {"pt2", "pt3", "not an archive of torch.export.save()"},
    {"little", "big", "big-endian"},
    {"models/model.json", "models/other.json", "it has no models/model.json"},
    {"weights/model_weights_config.json", "weights/model.pt",
     "saved by torch 2.15.0, which pickles the weights: save it again with torch 2.10 or newer"},
    {"constants/model_constants", "constants/none", "has no data/constants/model_constants_config"},
    {"\"major\":8", "\"major\":9",
     "its schema is 9.20, 8 can be read: save it with an older torch"},
    {"\"major\":8", "\"major\":7",
     "its schema is 7.20, 8 can be read: save it again with torch 2.10"},
    {"\"TRAINING\"", "\"ATEN\"",
     "a decomposed program (verifier ATEN): save the one that torch.export.export() gave"},
    {"\"TRAINING\"", "", "a decomposed program (verifier none)"},
    {"{\"user_output\":{\"arg\":{\"as_none\":true}}}", "{\"buffer_mutation\":{}}",
     "a decomposed program (output buffer_mutation)"},
    {"\"use_pickle\":false", "\"use_pickle\":true", "fc.weight is pickled"},
    {"{\"buffer\":{", "{\"custom_obj\":{", "an input is a custom_obj"},
    {"\"buffer_name\":\"mean\"", "\"buffer_name\":\"m\"", "weight m is missing"},
    {"\"parameter_name\":\"tied", "\"parameter_name\":\"fc",
     "fc.weight is the value of two inputs"},
    {"\"path_name\":\"weight_0\"", "\"path_name\":\"../../weight_0\"", "its data is missing"},
    {"\"storage_offset\":{\"as_int\":0}", "\"storage_offset\":{\"as_int\":1}",
     "weight fc.weight: its shape needs more than the 24 bytes"},
    {"\"storage_offset\":{\"as_int\":0}", "\"storage_offset\":{\"as_int\":-1}",
     "weight fc.weight: "},
    {"\"strides\":[{\"as_int\":2}", "\"strides\":[{\"as_int\":9223372036854775807}", "fc.weight: "},
    {"\"strides\":[{\"as_int\":2}", "\"strides\":[{\"as_int\":-2}", "fc.weight: "},
    {"\"layout\":7", "\"layout\":1", "a sparse tensor"},
    {"\"p_tied\":{\"dtype\":7", "\"p_tied\":{\"dtype\":8", "its shape is not that of weight"},
    {"\"sizes\":[{\"as_int\":3}", "\"sizes\":[{\"as_int\":3000000000000000000}", "too large to be"},
    {"\"sizes\":[{\"as_int\":3}", "\"sizes\":[{\"as_int\":-3}", "is negative"},
    {"\"sizes\":[{\"as_int\":3}", "\"sizes\":[1,1,1,1,1,1,1,1,1,{\"as_int\":3}", "dimensions; at"},
    {"\"name\":\"input\",\"arg\":{\"as_tensor\":{\"name\":\"x\"}}",
     "\"name\":\"input\",\"arg\":{\"as_tensor\":{\"name\":\"z\"}}",
     "node 1: it uses value z, which is not made before"},
    {"\"name\":\"self\",\"arg\":{\"as_tensor\":{\"name\":\"y\"}}",
     "\"name\":\"self\",\"arg\":{\"as_tensor\":{\"name\":\"w\"}}",
     "which the program does not have"},
    {"{\"as_tensors\":[{\"name\":\"a\"}", "{\"as_tensors\":[{\"name\":\"y\"}", "y is made twice"},
    {"\"as_int\":9223372036854775807", "\"as_int\":9223372036854775808", "node 5: its JSON"},
    {"\"as_float\":1e-05", "\"as_float\":\"many\"",
     "node 5: argument float: its number is damaged"},
    {"L__self__fc@1,fc,", "L__self__fc@1", "nn_module_stack is damaged"},
    {"\"tensor_values\":", "\"tensor_value\":", "it has no tensor_values"},
    {"\"new_field\":", "\"graph\":", "it has graph twice"},
    {"\"q\":{", "\"n\":{", "two sizes are named n"},
    {"\"mask\":{", "\"x\":{", "two values are named x"},
    {"\"target\":\"_operator.mul\"", "\"target\":\"\"", "a name is expected"},
    {"\"target\":\"_operator.mul\"", "\"target\":\"a\\u001b[2J\"", "control characters: a?[2J"},
    {"\"hint\":{\"as_int\":4}}", "\"hint\":{\"as_int\":4}", "damaged"},
};

TEST(what_cannot_be_read_is_refused_with_the_cure)
{
    for (size_t i = 0; i < LEN(refusals); i++) {
        PP_OWN(blob_free) struct blob b = small_with(refusals[i].from, refusals[i].to);
        PP_OWN(pt_program_destroy) struct pt_program *p = NULL;
        CHECK_FAILS(read_blob(b, &p), PP_EFORMAT, refusals[i].words);
        CHECK_FAILS(PP_EFORMAT, PP_EFORMAT, "small.pt2: ");
    }
}

TEST(deep_json_and_compressed_entries_are_refused)
{
    char deep[201];
    memset(deep, '[', 200);
    deep[200] = '\0';
    PP_OWN(blob_free) struct blob d = small_with("\"as_float\":1e-05", deep);
    PP_OWN(pt_program_destroy) struct pt_program *p = NULL;
    CHECK_FAILS(read_blob(d, &p), PP_EFORMAT, "damaged");
    struct made entries[LEN(small)];
    memcpy(entries, small, sizeof(small));
    entries[5].method = 8;
    PP_OWN(blob_free) struct blob packed = zip_of(entries, COUNT(small), 0);
    CHECK_FAILS(read_blob(packed, &p), PP_EFORMAT, "models/model.json is compressed: leave");
    entries[5].method = 0;
    entries[1].method = 8;
    PP_OWN(blob_free) struct blob data = zip_of(entries, COUNT(small), 0);
    CHECK_FAILS(read_blob(data, &p), PP_EFORMAT, "weight mean: its data is compressed");
}

TEST(weights_without_data_are_read_and_not_written)
{
    struct made entries[LEN(small)];
    memcpy(entries, small, sizeof(small));
    entries[0].bytes = 0;
    PP_OWN(blob_free) struct blob b = zip_of(entries, COUNT(small), 0);
    PP_OWN(pt_program_destroy) struct pt_program *p = NULL;
    CHECK_OK(read_blob(b, &p));
    CHECK_INT_EQ(p->weights[0].bytes, 0);
    assert_null(p->weights[0].data);
    CHECK_INT_EQ(p->weights[1].same_as, -1); /* every weight without data has this storage */
    CHECK_FAILS(pt_program_write(p, "/nowhere/x", NULL, NULL), PP_EFORMAT,
                "weight fc.weight has no");
}

/* ---- writing */

static int add_ten(void *ctx, const struct pt_weight *w, void *values)
{
    float *x = values;
    int *calls = ctx;
    for (size_t i = 0; i < (w->n_dims == 2 ? (size_t)(w->dims[0] * w->dims[1]) : 0); i++)
        x[i] = 10 * x[i] + (float)i;
    ++*calls;
    return 0;
}

TEST_IN_FOLDER(a_written_program_has_the_new_values_in_their_places)
{
    const char *path = in_folder(state, "out.pt2");
    int calls = 0;
    SMALL(p);
    CHECK_OK(pt_program_write(p, path, add_ten, &calls));
    CHECK_INT_EQ(calls, 2); /* not for the tied one, nor the constant */
    PP_OWN(pt_program_destroy) struct pt_program *out = NULL;
    CHECK_OK(pt_program_read(path, &out));
    CHECK_OK(pt_program_check(out));
    static const float weight[] = {10, 21, 32, 43, 54, 65};
    static const float columns[] = {10, 22, 31, 43}; /* [0][0], [1][0], [0][1], [1][1] */
    assert_memory_equal(out->weights[0].data, weight, sizeof(weight));
    assert_memory_equal(out->weights[2].data, columns, sizeof(columns));
    assert_memory_equal(out->weights[3].data, "\5\0\0\0\0\0\0\0", 8);
}

/* ---- archives of torch */

static const char *golden(const char *name, char out[PP_PATH_MAX])
{
    const char *source = getenv("PPCLI_SOURCE_DIR");
    CHECK_OK(pp_path_format(out, "%s/tests/golden/pt2/%s", source ? source : ".", name));
    return out;
}

TEST(torch_2_10_and_2_15_give_one_graph)
{
    char path[PP_PATH_MAX];
    PP_OWN(pt_program_destroy) struct pt_program *a = NULL, *b = NULL;
    CHECK_OK(pt_program_read(golden("torch-2.10.0.pt2", path), &a));
    CHECK_OK(pt_program_read(golden("torch-2.15.0.pt2", path), &b));
    CHECK_OK(pt_program_check(a));
    CHECK_INT_EQ(a->schema_minor, 15);
    CHECK_INT_EQ(b->schema_minor, 20);
    CHECK_INT_EQ(a->n_nodes, 19);
    CHECK_INT_EQ(b->n_nodes, 19);
    for (int i = 0; i < a->n_nodes; i++) {
        CHECK_STR_EQ(a->nodes[i].target, b->nodes[i].target);
        CHECK_STR_EQ(a->nodes[i].path, b->nodes[i].path);
        CHECK_STR_EQ(a->nodes[i].source, b->nodes[i].source);
    }
    CHECK_STR_EQ(a->nodes[7].path, "blocks.0.fc");
    CHECK_INT_EQ(a->n_weights, 16);
    CHECK_INT_EQ(b->n_weights, 16);
    for (int i = 0; i < a->n_weights; i++) {
        CHECK_STR_EQ(a->weights[i].name, b->weights[i].name);
        CHECK_INT_EQ(a->weights[i].same_as, b->weights[i].same_as);
        CHECK_INT_EQ(a->weights[i].bytes, b->weights[i].bytes);
        assert_memory_equal(a->weights[i].data, b->weights[i].data, a->weights[i].bytes);
    }
}

/* ---- damage */

#define CHANGES 5000

TEST(no_change_of_the_json_ends_the_process)
{
    int refused = 0;
    for (uint32_t k = 0; k < CHANGES; k++) {
        static char texts[3][sizeof(MODEL) + sizeof(WEIGHTS) + sizeof(CONSTANTS)];
        static const int places[] = {2, 4, 5};
        struct made entries[LEN(small)];
        memcpy(entries, small, sizeof(small));
        uint64_t stream = pp_rng_stream("archive", k);
        int which = k % 8 < 2 ? (int)(k % 8) : 2;
        struct made *e = &entries[places[which]];
        char *text = texts[which];
        memcpy(text, e->data, e->bytes);
        for (uint32_t i = 0; i <= k % 3; i++) {
            size_t at = pp_rng_u32(1, stream, 3 * i) % e->bytes;
            size_t from = pp_rng_u32(1, stream, 3 * i + 1) % e->bytes;
            size_t n = 1 + pp_rng_u32(1, stream, 3 * i + 2) % 8;
            n = PP_MIN(n, e->bytes - PP_MAX(at, from));
            memmove(text + at, text + from, n); /* what stands elsewhere is more often valid */
        }
        e->data = text;
        PP_OWN(blob_free) struct blob b = zip_of(entries, COUNT(small), ZIP_PLAIN);
        PP_OWN(pt_program_destroy) struct pt_program *p = NULL;
        int rc = read_blob(b, &p);
        if (rc < 0)
            CHECK_FAILS(rc, PP_EFORMAT, "small.pt2: ");
        refused += rc < 0;
    }
    assert_in_range(refused, CHANGES / 2, CHANGES - 10);
}
