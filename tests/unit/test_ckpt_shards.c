/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of Hugging Face's: one file or several with an index, names without their first word. */
#include "test_ckpt_make.h"
#include "../../src/ckpt/safetensors.h"
#include "../../src/ckpt/checkpoint.h"

#define INDEX "model.safetensors.index.json"

static const int64_t two[] = {2};

/* A file with tensors [2] of these names, the k-th of them {k, -k}; NULL ends them. */
static void write_tensors(void **state, const char *file, ...)
{
    struct pp_st_item items[8];
    float values[8][2];
    uint64_t bytes;
    uint8_t digest[PP_SHA256_BYTES];
    int n = 0;
    va_list names;
    va_start(names, file);
    for (const char *name; (name = va_arg(names, const char *)); n++) {
        values[n][0] = (float)n;
        values[n][1] = (float)-n;
        items[n] = (struct pp_st_item){
            .name = name, .dtype = PP_ST_F32, .n_dims = 1, .dims = {2}, .data = values[n]};
    }
    va_end(names);
    CHECK_OK(pp_st_write(&pp_io_system, in_folder(state, file), items, n, NULL, 0, &bytes, digest));
}

static void write_index(void **state, const char *text)
{
    file_write(in_folder(state, INDEX), text, strlen(text));
}

static void has(const struct pp_ckpt *ck, const char *name, float value)
{
    struct put_target t = {.n = 0};
    CHECK_OK(pp_ckpt_read(ck, name, 1, two, put_values, &t));
    assert_true(t.n == 2 && t.values[0] == value && t.values[1] == -value);
}

static void two_shards(void **state)
{
    write_tensors(state, "a.safetensors", "transformer.wte.weight", "h.0.b", NULL);
    write_tensors(state, "b.safetensors", "h.1.a", "h.1.b", "h.1.c", NULL);
    write_index(state, "{\"metadata\":{\"total_size\":40},\"weight_map\":{"
                       "\"h.0.b\":\"a.safetensors\",\"transformer.wte.weight\":\"a.safetensors\","
                       "\"h.1.a\":\"b.safetensors\",\"h.1.b\":\"b.safetensors\"}}");
}

TEST_IN_FOLDER(a_folder_with_an_index_is_one_checkpoint)
{
    struct pp_ckpt *ck = NULL;
    two_shards(state);
    assert_true(pp_ckpt_claims(*state));
    CHECK_OK(pp_ckpt_open(*state, PP_CKPT_VERIFY, &ck));
    assert_null(pp_ckpt_state(ck));
    CHECK_INT_EQ(ck->n_parts, 2);
    CHECK_INT_EQ(ck->n_tensors, 5);
    CHECK_INT_EQ(ck->checked, 5);
    has(ck, "h.0.b", 1);
    has(ck, "h.1.b", 1);
    /* with the first word, whether the file has it or not */
    has(ck, "transformer.wte.weight", 0);
    has(ck, "transformer.h.1.c", 2);
    has(ck, "model.h.1.c", 2);
    CHECK_FAILS(pp_ckpt_read(ck, "other.h.1.c", 1, two, NULL, NULL), PP_EFORMAT,
                "has no tensor other.h.1.c");
    pp_ckpt_close(&ck);
    /* one file is taken before an index */
    write_tensors(state, "model.safetensors", "only", NULL);
    CHECK_OK(pp_ckpt_open(*state, PP_CKPT_VERIFY, &ck));
    CHECK_INT_EQ(ck->n_tensors, 1);
    pp_ckpt_close(&ck);
}

static void fails(void **state, const char *words)
{
    struct pp_ckpt *ck = NULL;
    CHECK_FAILS(pp_ckpt_open(*state, PP_CKPT_STRUCTURE, &ck), PP_EFORMAT, words);
}

TEST_IN_FOLDER(what_is_damaged_is_named)
{
    struct pp_ckpt *ck = NULL;
    two_shards(state);
    struct blob b = file_read(in_folder(state, "b.safetensors"));
    file_write(in_folder(state, "b.safetensors"), b.p, b.n - 4);
    fails(state, "b.safetensors: tensor h.1.c ends at byte 24 of the data, which has 20 bytes: the "
                 "file was cut short");
    blob_free(&b);
    unlink(in_folder(state, "b.safetensors"));
    CHECK_FAILS(pp_ckpt_open(*state, PP_CKPT_STRUCTURE, &ck), PP_ENOINPUT, "b.safetensors");
    write_tensors(state, "b.safetensors", "h.1.a", NULL);
    fails(state, "b.safetensors: has no tensor h.1.b, which " INDEX " finds there");
    write_tensors(state, "b.safetensors", "h.1.a", "h.1.b", "h.0.b", NULL);
    fails(state, "tensor h.0.b is in ");
    write_index(state, "{\"weight_map\":{\"h.1.a\":\"../b.safetensors\"}}");
    fails(state, "'../b.safetensors' is not the name of a file in the same folder");
    write_index(state, "{\"weight_map\":{\"h.1.a\":1}}");
    fails(state, "weight_map: 'h.1.a' has no name of a file");
    write_index(state, "{}");
    fails(state, INDEX ": has no weight_map");
    write_index(state, "{");
    fails(state, INDEX ": its JSON is damaged");
}

/* GPT-2's files have masks of booleans beside the weights. */
TEST_IN_FOLDER(a_mask_of_booleans_is_no_damage)
{
    const char head[] = "{\"m\":{\"dtype\":\"BOOL\",\"shape\":[1,2],\"data_offsets\":[0,2]}}";
    struct blob b = blob_of(8 + strlen(head) + 2);
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    b.p[0] = (uint8_t)strlen(head);
    memcpy(b.p + 8, head, strlen(head));
    file_write(in_folder(state, "model.safetensors"), b.p, b.n);
    blob_free(&b);
    CHECK_OK(pp_ckpt_open(*state, PP_CKPT_VERIFY, &ck));
    CHECK_STR_EQ(pp_st_dtype_name(pp_ckpt_tensor(ck, 0, NULL)->dtype), "BOOL");
    CHECK_FAILS(pp_ckpt_read(ck, "m", 2, (int64_t[]){1, 2}, NULL, NULL), PP_EFORMAT,
                "tensor m is of type BOOL, expected floats");
}
