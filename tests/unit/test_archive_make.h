/* SPDX-License-Identifier: Apache-2.0 */
/* A small archive in the form of torch.export.save(), in which a text can be replaced. */
#ifndef PPCLI_TESTS_ARCHIVE_MAKE_H
#define PPCLI_TESTS_ARCHIVE_MAKE_H

#include "test_zip.h"

#include "../../src/nn/graph/archive.h"

#define TENSOR(name) "{\"as_tensor\":{\"name\":\"" name "\"}}"
#define ARG(name, kind, value) "{\"name\":\"" name "\",\"arg\":{\"" kind "\":" value "},\"kind\":1}"
#define ARG_T(name, value) ARG(name, "as_tensor", "{\"name\":\"" value "\"}")
#define INT(n) "{\"as_int\":" n "}"
#define SYMBOL(s) "Symbol('" s "', positive=True, integer=True)"
#define EXPR(text) "{\"as_expr\":{\"expr_str\":\"" text "\",\"hint\":{\"as_int\":4}}}"
#define META(dtype, sizes, strides)                                                                \
    "{\"dtype\":" dtype ",\"sizes\":[" sizes "],\"requires_grad\":true,\"device\":{\"type\":"      \
    "\"cpu\",\"index\":null},\"strides\":[" strides "],\"storage_offset\":{\"as_int\":0},"         \
    "\"layout\":7}"
#define NODE(target, inputs, outputs, stack, trace)                                                \
    "{\"target\":\"" target "\",\"inputs\":[" inputs "],\"outputs\":[" outputs                     \
    "],\"metadata\":{\"nn_module_stack\":\"" stack "\",\"stack_trace\":\"" trace                   \
    "\"},\"is_hop_single_tensor_return\":null,\"name\":\"n\"}"
#define NET "L__self__,,__main__.Net"
#define EMPTY_STACK                                                                                \
    "_empty_nn_module_stack_from_metadata_hook,_empty_nn_module_stack_from_metadata_hook,x"

#define NODES                                                                                                                                                                                           \
    NODE("torch.ops.aten.sym_size.int", ARG_T("self", "x") "," ARG("dim", "as_int", "0"),                                                                                                               \
         "{\"as_sym_int\":{\"as_name\":\"n\"}}", EMPTY_STACK, "")                                                                                                                                       \
    "," NODE(                                                                                                                                                                                           \
        "torch.ops.aten.linear.default", ARG_T("input", "x") "," ARG_T("weight", "p_fc_weight"),                                                                                                        \
        TENSOR("y"), NET ";L__self__fc@1,fc,torch.nn.modules.linear.Linear",                                                                                                                            \
        "File \\\"/home/me/net.py\\\", line 12, in forward\\n    x = self.fc(x)\\n  File "                                                                                                              \
        "\\\"/usr/lib/torch/nn/linear.py\\\", line 3, in forward\\n    return F.linear(") "," NODE("_operator.mul",                                                                                     \
                                                                                                   ARG("a", "as_sym_int", "{\"as_name\":\"n\"}") "," ARG(                                               \
                                                                                                       "b",                                                                                             \
                                                                                                       "as_int",                                                                                        \
                                                                                                       "3"),                                                                                            \
                                                                                                   "{\"as_sym_int\":{\"as_name\":\"n3\"}}",                                                             \
                                                                                                   NET,                                                                                                 \
                                                                                                   "") "," NODE("torch.ops.aten.reshape.default",                                                       \
                                                                                                                ARG_T("self", "y") "," ARG(                                                             \
                                                                                                                    "shape",                                                                            \
                                                                                                                    "as_sym_ints",                                                                      \
                                                                                                                    "[{\"as_name\":\"n3\"}," INT(                                                       \
                                                                                                                        "-1") ",{\"as_name\":\"q\"}]"),                                                 \
                                                                                                                TENSOR(                                                                                 \
                                                                                                                    "z"),                                                                               \
                                                                                                                NET,                                                                                    \
                                                                                                                "") "," NODE("torch.ops.aten.chunk.default",                                            \
                                                                                                                             ARG_T("self", "y") "," ARG(                                                \
                                                                                                                                 "chunks",                                                              \
                                                                                                                                 "as_int",                                                              \
                                                                                                                                 "2"),                                                                  \
                                                                                                                             "{\"as_tensors\":[{\"name\":\"a\"},{\"name\":\"b\"}]},{\"as_none\":true}", \
                                                                                                                             NET,                                                                       \
                                                                                                                             "") "," NODE("torch.ops.demo.all.default",                                 \
                                                                                                                                          KINDS,                                                        \
                                                                                                                                          TENSOR(                                                       \
                                                                                                                                              "out"),                                                   \
                                                                                                                                          NET,                                                          \
                                                                                                                                          "")

#define KINDS                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                            \
    ARG("none", "as_none", "true")                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                       \
    "," ARG(                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                             \
        "tensors", "as_tensors",                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                         \
        "[{\"name\":\"a\"},{\"name\":\"b\"}]") "," ARG("some", "as_optional_tensors", "[{\"as_none\":true}," TENSOR("z") "]") "," ARG("maybe",                                                                                                                                                                                                                                                                                                                                                                                                                                                                           \
                                                                                                                                      "as_optional_tensor", "{\"as_none\":true}") "," ARG("int", "as_int", "9223372036854775807") "," ARG("ints", "as_ints", "[-1,2]") "," ARG("size", "as_sym_int", "{\"as_name\":\"n3\"}") "," ARG("float",                                                                                                                                                                                                                                                                            \
                                                                                                                                                                                                                                                                                                                                     "as_float",                                                                                                                                                                                                                                                                         \
                                                                                                                                                                                                                                                                                                                                     "1e-05") "," ARG("inf",                                                                                                                                                                                                                                                             \
                                                                                                                                                                                                                                                                                                                                                      "as_float",                                                                                                                                                                                                                                                        \
                                                                                                                                                                                                                                                                                                                                                      "\"-Infinity\"") "," ARG("floats", "as_floats", "[1,2.5]") "," ARG("bool",                                                                                                                                                                                         \
                                                                                                                                                                                                                                                                                                                                                                                                                         "as_bool",                                                                                                                                                                                      \
                                                                                                                                                                                                                                                                                                                                                                                                                         "true") "," ARG("bools",                                                                                                                                                                        \
                                                                                                                                                                                                                                                                                                                                                                                                                                         "as_bools",                                                                                                                                                                     \
                                                                                                                                                                                                                                                                                                                                                                                                                                         "[false,true]") "," ARG("string",                                                                                                                                               \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                 "as_string",                                                                                                                                            \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                 "\"mean\"") "," ARG("dtype",                                                                                                                            \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                     "as_scalar_type",                                                                                                                   \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                     "5") "," ARG("device",                                                                                                              \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                  "as_device", "{\"type\":\"cuda\",\"index\":0}") "," ARG("layout", "as_layout", "7") "," ARG("memory_format",           \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "as_memory_format",        \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                              "2") "," ARG("",           \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                           "as_complex", \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                           "{\"real\":1.0,\"imag\":0.0}")

#define VALUES                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                           \
    "\"p_fc_weight\":" META("7", INT("3") "," INT("2"),                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                  \
                            INT("2") "," INT("1")) ",\"p_tied\":" META("7", INT("3") "," INT("2"), INT("2") "," INT("1")) ",\"b_mean\":" META("7",                                                                                                                                                                                                                                                                                                                                                                                                                                                       \
                                                                                                                                              INT("2") "," INT(                                                                                                                                                                                                                                                                                                                                                                                                                                          \
                                                                                                                                                  "2"),                                                                                                                                                                                                                                                                                                                                                                                                                                                  \
                                                                                                                                              INT(                                                                                                                                                                                                                                                                                                                                                                                                                                                       \
                                                                                                                                                  "1") "," INT("2")) ",\"c_scale\":" META("5", INT("1"), INT("1")) ",\"x\":" META("7", EXPR(SYMBOL("s7")) "," INT("2"), INT("2") "," INT("1")) ",\"mask\":" META("12", EXPR(SYMBOL("s9")) "," EXPR(SYMBOL("s5")), INT("1") "," INT("1")) ",\"y\":" META("7", EXPR(SYMBOL("s7")) "," INT("3"), INT("3") "," INT("1")) ",\"z\":" META("7",                                                                                                                 \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                    EXPR(                                                                                                                \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                        "Mul(Integer(3), " SYMBOL("s7") ")") "," INT("1") "," EXPR("Add(Integer(1), " SYMBOL("s7") ")"),                 \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                    INT("1")) ",\"a\":" META("7", EXPR(SYMBOL("s7")) "," INT("2"), "") ",\"b\":" META("7",                               \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                      EXPR(SYMBOL(                       \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                          "s9")) "," EXPR("Integer(1)"), \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                      "") ",\"out\":" META("29",         \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                           "",           \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                           "")

#define SIZES                                                                                      \
    "\"n\":" EXPR(SYMBOL("s7")) ",\"n3\":" EXPR(                                                   \
        "Mul(Integer(3), " SYMBOL("s7") ")") ",\"q\":" EXPR("Mul(Integer(2), " SYMBOL("s5") ")")

#define INPUTS                                                                                     \
    "{\"parameter\":{\"arg\":{\"name\":\"p_fc_weight\"},\"parameter_name\":\"fc.weight\"}},"       \
    "{\"parameter\":{\"arg\":{\"name\":\"p_tied\"},\"parameter_name\":\"tied.weight\"}},"          \
    "{\"buffer\":{\"arg\":{\"name\":\"b_mean\"},\"buffer_name\":\"mean\",\"persistent\":true}},"   \
    "{\"tensor_constant\":{\"arg\":{\"name\":\"c_scale\"},\"tensor_constant_name\":\"scale\"}},"   \
    "{\"user_input\":{\"arg\":" TENSOR("x") "}},{\"user_input\":{\"arg\":" TENSOR(                 \
        "mask") "}},"                                                                              \
                "{\"constant_input\":{\"name\":\"times\",\"value\":{\"as_int\":3}}}"

#define MODEL                                                                                      \
    "{\"graph_module\":{\"graph\":{\"inputs\":[],\"nodes\":[" NODES "],\"tensor_values\":{" VALUES \
    "},\"sym_int_values\":{" SIZES "},\"is_single_tensor_return\":false},\"signature\":{"          \
    "\"input_specs\":[" INPUTS "],\"output_specs\":[{\"user_output\":{\"arg\":" TENSOR(            \
        "z") "}},{\"user_output\":{\"arg\":{\"as_none\":true}}}]},\"module_call_graph\":["         \
             "{\"fqn\":\"\",\"signature\":{\"forward_arg_names\":[\"x\",\"attention\","            \
             "\"times\"]}}],\"new_field\":[1,{\"}\":\"]\"}]},\"schema_version\":{\"major\":8,"     \
             "\"minor\":20},\"verifiers\":[\"TRAINING\"],\"torch_version\":\"2.15.0\"}"

#define STORED(path, param, meta)                                                                  \
    "{\"path_name\":\"" path "\",\"is_param\":" param                                              \
    ",\"use_pickle\":false,\"tensor_meta\":" meta "}"
#define WEIGHTS                                                                                            \
    "{\"config\":{\"fc.weight\":" STORED(                                                                  \
        "weight_0", "true",                                                                                \
        META(                                                                                              \
            "7", INT("3") "," INT("2"),                                                                    \
            INT("2") "," INT(                                                                              \
                "1"))) ",\"tied.weight\":" STORED("weight_0", "true",                                      \
                                                  META(                                                    \
                                                      "7", INT("3") "," INT("2"),                          \
                                                      INT("2") "," INT(                                    \
                                                          "1"))) ",\"mean\":" STORED("weight_1",           \
                                                                                     "false",              \
                                                                                     META(                 \
                                                                                         "7",              \
                                                                                         INT("2") "," INT( \
                                                                                             "2"),         \
                                                                                         INT("1") "," INT( \
                                                                                             "2"))) "}}"
#define CONSTANTS                                                                                  \
    "{\"config\":{\"scale\":" STORED("tensor_0", "false", META("5", INT("1"), INT("1"))) "}}"

static const float fc_weight[6] = {1, 2, 3, 4, 5, 6}, mean[4] = {1, 2, 3, 4};

/* The entries of the archive "small", by their names without it. */
static const struct made small[] = {
    {"small/data/weights/weight_0", fc_weight, sizeof(fc_weight), 0, 0},
    {"small/data/weights/weight_1", mean, sizeof(mean), 0, 0},
    ENTRY("small/data/weights/model_weights_config.json", WEIGHTS),
    ENTRY("small/data/constants/tensor_0", "\5\0\0\0\0\0\0\0"),
    ENTRY("small/data/constants/model_constants_config.json", CONSTANTS),
    ENTRY("small/models/model.json", MODEL),
    ENTRY("small/archive_format", "pt2"),
    ENTRY("small/archive_version", "0"),
    ENTRY("small/byteorder", "little"),
};

/* The archive with `from` replaced by `to` in every text that has it: of an entry, or its name. */
static inline struct blob small_with(const char *from, const char *to)
{
    struct made entries[LEN(small)];
    char *kept[2 * LEN(small)] = {NULL};
    for (size_t i = 0; i < LEN(small); i++) {
        entries[i] = small[i];
        const char *texts[2] = {small[i].name, small[i].bytes > 64 || i > 5 ? small[i].data : NULL};
        for (size_t k = 0; k < 2 && from; k++) {
            const char *at = texts[k] ? strstr(texts[k], from) : NULL;
            if (!at)
                continue;
            size_t bytes = strlen(texts[k]) + strlen(to) + 1;
            char *text = kept[2 * i + k] = calloc(1, bytes);
            assert_non_null(text);
            snprintf(text, bytes, "%.*s%s%s", (int)(at - texts[k]), texts[k], to,
                     at + strlen(from));
            if (k == 0)
                entries[i].name = text;
            else
                entries[i].data = text;
            entries[i].bytes = k == 1 ? strlen(text) : entries[i].bytes;
        }
    }
    struct blob b = zip_of(entries, COUNT(small), ZIP_PLAIN);
    for (size_t i = 0; i < LEN(kept); i++)
        free(kept[i]);
    return b;
}

/* Reads the program of an archive in memory. */
static inline int read_blob(struct blob b, struct pt_program **out)
{
    struct pp_zip *z = NULL;
    PP_TRY(pp_zip_parse("small.pt2", b.p, b.n, &z));
    return pt_program_read_zip(z, out);
}

#endif
