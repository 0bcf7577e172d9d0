/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files that are not what they claim: refused, with the file and the tensor named. */
#include "test_ckpt_files.h"
#include "../../src/ckpt/safetensors.h"

/* A file image: this header, `data` bytes of 7. */
static struct blob image(const char *header, size_t data)
{
    size_t n = strlen(header);
    struct blob b = blob_of(8 + n + data);
    for (int i = 0; i < 8; i++)
        b.p[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(b.p + 8, header, n);
    memset(b.p + 8 + n, 7, data);
    return b;
}

static int parse(const char *header, size_t data)
{
    PP_OWN(blob_free) struct blob b = image(header, data);
    PP_OWN(pp_st_header_free) struct pp_st_header *h = NULL;
    int rc = pp_st_parse("x.safetensors", b.p, b.n, b.n, &h);
    return rc;
}

#define REFUSED(header, data, words)                                                               \
    do {                                                                                           \
        CHECK_FAILS(parse(header, data), PP_EFORMAT, words);                                       \
        CHECK_FAILS(parse(header, data), PP_EFORMAT, "x.safetensors: ");                           \
    } while (0)

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

TEST(good_headers_of_other_writers_are_taken)
{
    CHECK_OK(parse("{}", 0));
    CHECK_OK(parse("{}        \n ", 0));
    CHECK_OK(parse("{" T("a", "F32", "[2,2]", 0, 16) "}", 16));
    /* in any order, spaced, with every type */
    CHECK_OK(parse("{ " T("b", "F16", "[3]", 4, 10) " , " T("a", "BF16", "[2]", 0, 4) "}", 10));
    CHECK_OK(parse("{" T("b", "F64", "[]", 0, 8) "," T("a", "I64", "[1]", 8, 16) "}", 16));
    CHECK_OK(parse("{" T("b", "U8", "[0]", 0, 0) "," T("a", "U8", "[5,1]", 0, 5) "}", 5));
    CHECK_OK(parse("{\"__metadata__\":{\"a\":\"\\u00e9{[,]}\"}}", 0));
    CHECK_OK(parse("{\"__metadata__\":null}", 0));
    CHECK_OK(parse("{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1));
}

/* All that the Python package safetensors 0.8 reads. */
TEST(every_type_of_the_format_is_taken)
{
    static const struct {
        const char *name;
        int bytes; /* of four values */
    } types[] = {{"F4", 2},          {"F6_E2M3", 3}, {"F6_E3M2", 3},     {"U8", 4},
                 {"I8", 4},          {"F8_E5M2", 4}, {"F8_E4M3", 4},     {"F8_E8M0", 4},
                 {"F8_E4M3FNUZ", 4}, {"BOOL", 4},    {"F8_E5M2FNUZ", 4}, {"I16", 8},
                 {"U16", 8},         {"F16", 8},     {"BF16", 8},        {"I32", 16},
                 {"U32", 16},        {"F32", 16},    {"C64", 32},        {"F64", 32},
                 {"I64", 32},        {"U64", 32}};
    char header[200];
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        int n = types[i].bytes;
        snprintf(header, sizeof(header),
                 "{\"a\":{\"dtype\":\"%s\",\"shape\":[2,2],\"data_offsets\":[0,%d]}}",
                 types[i].name, n);
        PP_OWN(blob_free) struct blob b = image(header, (size_t)n);
        PP_OWN(pp_st_header_free) struct pp_st_header *h = NULL;
        CHECK_OK(pp_st_parse("x.safetensors", b.p, b.n, b.n, &h));
        CHECK_STR_EQ(pp_st_dtype_name(h->tensors[0].dtype), types[i].name);
        CHECK_INT_EQ(parse(header, (size_t)n + 1), PP_EFORMAT);
    }
    REFUSED("{" T("a", "F4", "[3]", 0, 2) "}", 2,
            "tensor a: 3 values of type F4 end within a byte");
    REFUSED("{" T("a", "F6_E2M3", "[2]", 0, 2) "}", 2, "end within a byte");
}

TEST(what_other_writers_add_to_a_tensor_is_passed_over)
{
    CHECK_OK(
        parse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1));
    CHECK_OK(parse("{\"a\":{\"x\":null,\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],"
                   "\"y\":{\"z\":[[1,{\"u\":[]}],2.5]}}}",
                   1));
}

/* Any number of them, anywhere; dimensions are those of their own tensor. */
TEST(empty_tensors_and_scalars_are_taken)
{
    PP_OWN(blob_free)
    struct blob b = image("{" T("z", "F32", "[2,0,3]", 4, 4) "," T("s", "F32", "[]", 0, 4) "," T(
                              "y", "F64", "[0]", 4, 4) "," T("e", "I8", "[5,1]", 4, 9) "}",
                          9);
    static const char *const names[] = {"s", "y", "z", "e"};
    static const int dims[][4] = {{0}, {1, 0}, {3, 2, 0, 3}, {2, 5, 1}};
    PP_OWN(pp_st_header_free) struct pp_st_header *h = NULL;
    CHECK_OK(pp_st_parse("x.safetensors", b.p, b.n, b.n, &h));
    CHECK_INT_EQ(h->n_tensors, 4);
    for (int i = 0; i < 4; i++) {
        CHECK_STR_EQ(h->tensors[i].name, names[i]);
        CHECK_INT_EQ(h->tensors[i].n_dims, dims[i][0]);
        for (int d = 0; d < dims[i][0]; d++)
            CHECK_INT_EQ(h->tensors[i].dims[d], dims[i][1 + d]);
    }
}

TEST(overlaps_holes_and_leftover_bytes_are_refused)
{
    REFUSED("{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 2, 6) "}", 6,
            "tensors a and b overlap");
    REFUSED("{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 0, 4) "}", 4,
            "tensors a and b overlap");
    REFUSED("{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 5, 9) "}", 9, "before tensor b");
    REFUSED("{" T("a", "U8", "[4]", 1, 5) "}", 5, "before tensor a");
    REFUSED("{" T("a", "U8", "[4]", 0, 4) "}", 5, "1 bytes after the last tensor a");
    REFUSED("{}", 1, "1 bytes after the last tensor");
    REFUSED("{" T("a", "U8", "[4]", 0, 4) "}", 3, "tensor a ends at byte 4");
    REFUSED("{" T("a", "U8", "[4]", 0, 3) "}", 3, "tensor a has 3 bytes of data");
    REFUSED("{" T("a", "U8", "[4]", 4, 0) "}", 4, "tensor a: its data_offsets");
    REFUSED("{" T("a", "U8", "[4]", -4, 0) "}", 4, "tensor a: its data_offsets");
}

TEST(duplicates_are_refused)
{
    REFUSED("{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 1, 2) "}", 2, "duplicate");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            "duplicate");
    REFUSED("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate");
    REFUSED("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "duplicate");
    /* the same name, said in two ways */
    REFUSED("{" T("a", "U8", "[1]", 0, 1) "," T("\\u0061", "U8", "[1]", 1, 2) "}", 2, "duplicate");
}

TEST(sizes_that_overflow_are_refused)
{
    REFUSED("{" T("a", "F32", "[9223372036854775807,9223372036854775807]", 0, 4) "}", 4,
            "tensor a: its shape is too large");
    REFUSED("{" T("a", "F32", "[4611686018427387904]", 0, 0) "}", 0,
            "tensor a: its shape is too large");
    /* 2^64 + 4 bytes would be 4 */
    REFUSED("{" T("a", "F32", "[4294967296,1073741824]", 0, 0) "}", 0, "tensor a");
    REFUSED("{" T("a", "U8", "[99999999999999999999]", 0, 4) "}", 4, "damaged");
    REFUSED("{" T("a", "U8", "[4]", 0, 18446744073709551620) "}", 4, "damaged");
    REFUSED("{" T("a", "U8", "[1152921504606846976]", 0, 1152921504606846976) "}", 4,
            "tensor a ends at byte");
    /* a zero does not excuse what would overflow without it */
    REFUSED("{" T("a", "U8", "[9223372036854775807,9223372036854775807,0]", 0, 0) "}", 0,
            "tensor a: its shape is too large");
}

TEST(shapes_and_types_that_are_none_are_refused)
{
    REFUSED("{" T("a", "U8", "[-1]", 0, 1) "}", 1, "tensor a: dimension 0");
    REFUSED("{" T("a", "U8", "[1.0]", 0, 1) "}", 1, "tensor a: dimension 0");
    REFUSED("{" T("a", "U8", "[\"1\"]", 0, 1) "}", 1, "tensor a: dimension 0");
    REFUSED("{" T("a", "U8", "1", 0, 1) "}", 1, "tensor a: its shape");
    REFUSED("{" T("a", "U8",
                  "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                  "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
                  0, 1) "}",
            1, "not a list of at most 64 numbers");
    REFUSED("{" T("a", "U8", "[1]", 0, 1.0) "}", 1, "tensor a: its data_offsets");
    REFUSED("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1,
            "tensor a: its data_offsets");
    REFUSED("{" T("a", "F33", "[1]", 0, 1) "}", 1, "tensor a: dtype F33");
    REFUSED("{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor a: dtype");
    REFUSED("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            "tensor a: dtype, shape and data_offsets are expected");
    REFUSED("{\"a\":7}", 1, "tensor a: dtype, shape and data_offsets are expected");
    REFUSED("{\"__metadata__\":{\"a\":7}}", 0, "value of 'a' is not a string");
    REFUSED("{\"__metadata__\":[]}", 0, "__metadata__ is not an object");
}

/* Names are any text, and a message shows them harmless. */
TEST(names_of_any_text_are_taken)
{
    static const char *const names[] = {
        "", "../a", "a b", " ", "a/b:c", "\303\251\346\274\242", "\033[2J", "__metadata", NULL};
    char name[2000], header[3000];
    for (int i = 0; names[i]; i++) {
        bool escaped = names[i][0] == '\033';
        snprintf(header, sizeof(header),
                 "{\"%s%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 escaped ? "\\u001b" : "", names[i] + escaped);
        PP_OWN(blob_free) struct blob b = image(header, 1);
        PP_OWN(pp_st_header_free) struct pp_st_header *h = NULL;
        CHECK_OK(pp_st_parse("x.safetensors", b.p, b.n, b.n, &h));
        CHECK_STR_EQ(h->tensors[0].name, names[i]);
    }
    REFUSED("{" T("\\u001b[2J", "U8", "[2]", 0, 1) "}", 1, "tensor ?[2J has 1 bytes");
    REFUSED("{" T("\377", "U8", "[1]", 0, 1) "}", 1, "damaged");
    REFUSED("{" T("a\\u0000", "U8", "[1]", 0, 1) "}", 1, "damaged");
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    snprintf(header, sizeof(header),
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    CHECK_OK(parse(header, 1));
}

TEST(what_is_no_object_is_refused)
{
    REFUSED("", 0, "too short");
    REFUSED("  {}", 0, "not a safetensors file");
    REFUSED("[]", 0, "not a safetensors file");
    REFUSED("{", 1, "not a safetensors file");
    REFUSED("{]", 0, "damaged");
    char of_640[641]; /* a good header whose length begins as a pickle does */
    snprintf(of_640, sizeof(of_640), "{}%638s", "");
    CHECK_OK(parse(of_640, 0));
    struct pp_st_header *h = NULL;
    CHECK_FAILS(pp_st_parse("x.pth", "PK\3\4 of a zip", 14, 14, &h), PP_EFORMAT, "torch.save()");
    CHECK_FAILS(pp_st_parse("x.pth", "\200\2\212\12l\374\234F", 12, 12, &h), PP_EFORMAT,
                "safetensors.torch.save_file(torch.load(FILE), 'weights.safetensors')");
    REFUSED("{}{}", 0, "damaged");
    REFUSED("{\"a", 8, "damaged");
    REFUSED("{\"a\":\"\\", 8, "damaged");
}

TEST(deep_and_crowded_json_is_refused_before_it_is_parsed)
{
    REFUSED("{\"a\":[[[1]]]}", 0, "tensor a: dtype, shape and data_offsets are expected");
    size_t n = (size_t)2 << 20;
    PP_OWN_MEMORY char *text = malloc(n);
    assert_non_null(text);
    memset(text, '[', n);
    memcpy(text, "{\"a\":", 5);
    text[n - 1] = '\0';
    REFUSED(text, 0, "deeper than 32");
    /* a list of a million empty lists would take a hundred times its bytes */
    for (size_t i = 5; i + 3 < n; i += 3)
        memcpy(text + i, "[],", 3);
    REFUSED(text, 0, "more values");
    memset(text + 5, ',', n - 6);
    memcpy(text, "{\"a\":[[", 7);
    REFUSED(text, 0, "more values");
}

TEST_IN_FOLDER(header_lengths_that_lie_are_refused_without_memory_for_them)
{
    static const uint64_t lengths[] = {0,
                                       1,
                                       3,
                                       ((uint64_t)16 << 20),
                                       ((uint64_t)16 << 20) + 1,
                                       UINT32_MAX,
                                       INT64_MAX,
                                       UINT64_MAX - 7,
                                       UINT64_MAX};
    const char *path = in_folder(state, "x.safetensors");
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        PP_OWN(blob_free) struct blob b = image("{}", 0);
        for (int k = 0; k < 8; k++)
            b.p[k] = (uint8_t)(lengths[i] >> 8 * k);
        file_write(path, b.p, b.n);
        struct pp_st_file *f = NULL;
        CHECK_FAILS(pp_st_open(path, &f), PP_EFORMAT, "x.safetensors: ");
        struct pp_st_header *h = NULL;
        CHECK_FAILS(pp_st_parse("y", b.p, b.n, b.n, &h), PP_EFORMAT, "y: ");
        /* the file may be large, but not all of the header has been read */
        CHECK_FAILS(pp_st_parse("y", b.p, b.n, UINT64_MAX, &h), PP_EFORMAT, "y: ");
    }
}

TEST_IN_FOLDER(every_truncation_and_extension_is_refused)
{
    const char *path = in_folder(state, "x.safetensors");
    struct blob b = image("{" T("a", "F32", "[2]", 0, 8) "," T("b", "U8", "[3]", 8, 11) "}  ", 11);
    struct pp_st_file *f = NULL;
    file_write(path, b.p, b.n);
    CHECK_OK(pp_st_open(path, &f));
    pp_st_close(&f);
    for (size_t n = 0; n < b.n; n++) {
        file_write(path, b.p, n);
        CHECK_FAILS(pp_st_open(path, &f), PP_EFORMAT, "x.safetensors: ");
        if (n + 11 >= b.n) /* the header is whole */
            CHECK_FAILS(pp_st_open(path, &f), PP_EFORMAT, n + 3 >= b.n ? "tensor b" : "tensor ");
    }
    PP_OWN(blob_free) struct blob longer = blob_of(b.n + 1);
    memcpy(longer.p, b.p, b.n);
    file_write(path, longer.p, longer.n);
    CHECK_FAILS(pp_st_open(path, &f), PP_EFORMAT, "after the last tensor b");
    blob_free(&b);
}

TEST_IN_FOLDER(only_regular_files_are_opened)
{
    struct pp_st_file *f = NULL;
    CHECK_FAILS(pp_st_open(*state, &f), PP_EFORMAT, "is a folder");
    CHECK_FAILS(pp_st_open("/dev/zero", &f), PP_EFORMAT, "is a device");
    const char *fifo = in_folder(state, "fifo");
    CHECK_INT_EQ(mkfifo(fifo, 0600), 0);
    CHECK_FAILS(pp_st_open(fifo, &f), PP_EFORMAT, "is a pipe");
    CHECK_FAILS(pp_st_open(in_folder(state, "none"), &f), PP_ENOINPUT, "none");
}
