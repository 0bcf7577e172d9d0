/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that nothing happens to: saved, found, read under any layout, thinned out. */
#include "test_ckpt_make.h"
#include "../../src/ckpt/checkpoint.h"

#include "ppcli/base/base.h"

static struct pp_ckpt *opened(const char *path)
{
    struct pp_ckpt *ck = NULL;
    CHECK_OK(pp_ckpt_open(path, PP_CKPT_VERIFY, &ck));
    return ck;
}

TEST_IN_FOLDER(any_number_of_ranks_reads_what_any_other_wrote)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        CHECK_OK(save_at(&pp_io_system, *state, ranks, ranks));
        char name[32];
        snprintf(name, sizeof(name), "step-%08d", ranks);
        PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = opened(in_folder(state, name));
        CHECK_INT_EQ(ck->n_parts, ranks);
        CHECK_INT_EQ(ck->checked, 4 * LAYERS);
        check_values(ck, ranks);
    }
}

TEST_IN_FOLDER(the_state_comes_back_to_the_last_bit)
{
    CHECK_OK(save_at(&pp_io_system, *state, 17, 2));
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = opened(in_folder(state, "step-00000017"));
    const struct pp_ckpt_state *s = pp_ckpt_state(ck);
    CHECK_INT_EQ(s->step, 17);
    CHECK_INT_EQ(s->epoch, 2);
    CHECK_INT_EQ(s->epoch_steps, 7);
    CHECK_INT_EQ(s->samples, 17 * 32);
    assert_true(s->seed == UINT64_MAX);
    CHECK_STR_EQ(s->config_hash, HASH);
    CHECK_STR_EQ(s->fingerprint, "cpu, haswell, 1 thread");
    CHECK_STR_EQ(s->ppcli, "0.1.0");
    CHECK_INT_EQ(s->n_numbers, 2);
    assert_true(pp_ckpt_get(s, "loss", 0) == 1.0 / 3.0 * 17.0);
    assert_true(pp_ckpt_get(s, "correct", 0) == 7.0);
    assert_true(pp_ckpt_get(s, "none", -1) == -1.0);
    CHECK_STR_EQ(ck->config, CONFIG);
}

TEST_IN_FOLDER(numbers_and_characters_of_every_size_come_back)
{
    static const double values[] = {
        0,   1e-300, 5e-324, 1.7976931348623157e308, -1e22, 9007199254740993.0,
        0.1, -2.5,   1e17,   123456789012345678.0};
    struct pp_ckpt_save save;
    struct pp_ckpt_part part;
    struct pp_ckpt_state s = {.step = 1, .config_hash = HASH};
    s.vocabulary = (char *)(uintptr_t) "\t\n \"\\,{[\x7f\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80";
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char name[8];
        snprintf(name, sizeof(name), "v%zu", i);
        pp_ckpt_set(&s, name, values[i]);
    }
    CHECK_OK(pp_ckpt_begin(&pp_io_system, *state, 1, HASH, 0, &save));
    CHECK_OK(pp_ckpt_write_part(&pp_io_system, &save, 0, 1, NULL, 0, &part));
    CHECK_OK(pp_ckpt_commit(&pp_io_system, &save, &s, "", &part, 1));
    struct pp_ckpt *ck = opened(*state);
    for (int i = 0; i < s.n_numbers; i++) {
        double got = pp_ckpt_get(pp_ckpt_state(ck), s.numbers[i].name, -1);
        assert_memory_equal(&got, &values[i], sizeof(got));
    }
    assert_string_equal(pp_ckpt_state(ck)->vocabulary, s.vocabulary);
    pp_ckpt_close(&ck);
    /* what is no number is not saved */
    pp_ckpt_set(&s, "v0", NAN);
    CHECK_OK(pp_ckpt_begin(&pp_io_system, *state, 1, HASH, 0, &save));
    CHECK_OK(pp_ckpt_write_part(&pp_io_system, &save, 0, 1, NULL, 0, &part));
    CHECK_FAILS(pp_ckpt_commit(&pp_io_system, &save, &s, "", &part, 1), PP_EINTERNAL, "v0");
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 1);
}

TEST_IN_FOLDER(tensors_are_listed_in_the_order_of_layers)
{
    struct pp_ckpt_save save;
    struct pp_ckpt_part part;
    static const char *const names[] = {"layers.10.bias",
                                        "layers.9.bias",
                                        "layers.9.weight",
                                        "layers.10.weight",
                                        "optimizer.m.layers.2.bias",
                                        "a"};
    static const char *const sorted[] = {"a",
                                         "layers.9.bias",
                                         "layers.9.weight",
                                         "layers.10.bias",
                                         "layers.10.weight",
                                         "optimizer.m.layers.2.bias"};
    float one = 1;
    struct pp_st_item items[6];
    for (int i = 0; i < 6; i++)
        items[i] = (struct pp_st_item){.name = names[i], .dtype = PP_ST_F32, .data = &one};
    struct pp_ckpt_state s = {.step = 1, .config_hash = HASH};
    CHECK_OK(pp_ckpt_begin(&pp_io_system, *state, 1, HASH, 0, &save));
    CHECK_OK(pp_ckpt_write_part(&pp_io_system, &save, 0, 1, items, 6, &part));
    CHECK_OK(pp_ckpt_commit(&pp_io_system, &save, &s, "", &part, 1));
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = opened(*state);
    for (int i = 0; i < 6; i++) {
        const char *file = NULL;
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, &file);
        CHECK_STR_EQ(t->name, sorted[i]);
        CHECK_STR_EQ(file, "stage-0000-of-0001.safetensors");
        CHECK_OK(pp_ckpt_read(ck, sorted[i], 0, t->dims, NULL, NULL));
        CHECK_INT_EQ(pp_ckpt_is_parameter(t), i != 5);
    }
    CHECK_INT_EQ(pp_ckpt_read(ck, "layers.09.bias", 0, items[0].dims, NULL, NULL), PP_EFORMAT);
}

TEST_IN_FOLDER(what_is_learned_is_a_parameter)
{
    static const struct {
        const char *name;
        bool learned;
    } tensors[] = {
        {"bn1.weight", true},
        {"bn1.running_mean", false},
        {"bn1.running_var", false},
        {"bn1.num_batches_tracked", false},
        {"running_mean", false},
        {"running_mean.weight", true},
        {"optimizer.m.bn1.bias", false},
    };
    for (int i = 0; i < (int)(sizeof(tensors) / sizeof(tensors[0])); i++) {
        struct pp_st_tensor t;
        t.name = tensors[i].name;
        CHECK_INT_EQ(pp_ckpt_is_parameter(&t), tensors[i].learned);
    }
}

TEST_IN_FOLDER(a_tensor_of_another_shape_is_refused)
{
    CHECK_OK(save_at(&pp_io_system, *state, 1, 1));
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = opened(*state);
    struct put_target t = {.n = 0};
    static const int64_t dims[] = {1, 3};
    CHECK_FAILS(pp_ckpt_read(ck, "layers.0.weight", 2, dims, put_values, &t), PP_EFORMAT,
                "tensor layers.0.weight has shape [1,2], this model's has [1,3]");
    CHECK_FAILS(pp_ckpt_read(ck, "layers.0.weight", 1, dims, put_values, &t), PP_EFORMAT, "[1]");
    CHECK_FAILS(pp_ckpt_read(ck, "layers.7.weight", 2, dims, put_values, &t), PP_EFORMAT,
                "no tensor layers.7.weight");
    CHECK_INT_EQ(t.n, 0);
}

TEST_IN_FOLDER(other_floats_become_floats)
{
    /* F16: 1, -2, 2^-24, 65504, inf, -0; BF16: 1, -3.5; F64: 0.1, 1e300 */
    static const uint16_t f16[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x8000};
    static const float of_f16[] = {1.0f, -2.0f, 0x1p-24f, 65504.0f, INFINITY, -0.0f};
    static const uint16_t bf16[] = {0x3f80, 0xc060};
    static const float of_bf16[] = {1.0f, -3.5f};
    static const double f64[] = {0.1, 1e300};
    static const float of_f64[] = {0.1f, INFINITY};
    const char head[] = "{\"h\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[0,12]},"
                        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[12,16]},"
                        "\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[16,32]},"
                        "\"i\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[32,40]},"
                        "\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[40,48]}}";
    struct blob b = blob_of(8 + strlen(head) + 48);
    b.p[0] = (uint8_t)strlen(head);
    b.p[1] = (uint8_t)(strlen(head) >> 8);
    memcpy(b.p + 8, head, strlen(head));
    uint8_t *data = b.p + 8 + strlen(head);
    memcpy(data, f16, 12);
    memcpy(data + 12, bf16, 4);
    memcpy(data + 16, f64, 16);
    memcpy(data + 40, &(int64_t){1234567}, 8);
    file_write(in_folder(state, "x.safetensors"), b.p, b.n);
    blob_free(&b);
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = opened(in_folder(state, "x.safetensors"));
    assert_null(pp_ckpt_state(ck));
    assert_null(ck->config);
    CHECK_INT_EQ(ck->checked, 0);
    struct put_target t = {.n = 0};
    CHECK_OK(pp_ckpt_read(ck, "h", 1, (int64_t[]){6}, put_values, &t));
    assert_memory_equal(t.values, of_f16, sizeof(of_f16));
    t.n = 0;
    CHECK_OK(pp_ckpt_read(ck, "b", 1, (int64_t[]){2}, put_values, &t));
    assert_memory_equal(t.values, of_bf16, sizeof(of_bf16));
    t.n = 0;
    CHECK_OK(pp_ckpt_read(ck, "d", 1, (int64_t[]){2}, put_values, &t));
    assert_memory_equal(t.values, of_f64, sizeof(of_f64));
    CHECK_FAILS(pp_ckpt_read(ck, "i", 1, (int64_t[]){1}, put_values, &t), PP_EFORMAT,
                "tensor i is of type I64");
    t.n = 0;
    CHECK_OK(pp_ckpt_read(ck, "n", 0, (int64_t[]){0}, put_values, &t));
    assert_true(t.n == 1 && t.values[0] == 1234567);
}

TEST_IN_FOLDER(a_checkpoint_is_opened_by_any_of_its_names)
{
    const char *dir = in_folder(state, PP_CKPT_DIR);
    CHECK_OK(save_at(&pp_io_system, dir, 5, 2));
    CHECK_OK(save_at(&pp_io_system, dir, 12, 2));
    static const struct {
        const char *path;
        int64_t step;
    } names[] = {{"checkpoints/step-00000005", 5},
                 {"checkpoints/step-00000005///", 5},
                 {"checkpoints/step-00000005/MANIFEST", 5},
                 {"checkpoints", 12},
                 {".", 12}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = opened(in_folder(state, names[i].path));
        CHECK_INT_EQ(pp_ckpt_state(ck)->step, names[i].step);
        assert_true(pp_ckpt_claims(in_folder(state, names[i].path)));
    }
    struct pp_ckpt *ck =
        opened(in_folder(state, "checkpoints/step-00000005/stage-0001-of-0002.safetensors"));
    CHECK_INT_EQ(ck->n_tensors, 2 * LAYERS);
    CHECK_INT_EQ(ck->checked, 2 * LAYERS);
    pp_ckpt_close(&ck);
}

TEST_IN_FOLDER(what_is_no_checkpoint_does_not_claim_to_be_one)
{
    struct pp_ckpt *ck = NULL;
    file_write(in_folder(state, "note.txt"), "12345678{", 9);
    assert_false(pp_ckpt_claims(*state));
    assert_false(pp_ckpt_claims(in_folder(state, "note.txt")));
    assert_false(pp_ckpt_claims(in_folder(state, "nothing")));
    CHECK_FAILS(pp_ckpt_open(*state, PP_CKPT_VERIFY, &ck), PP_ENOINPUT, "no checkpoint in");
    CHECK_FAILS(pp_ckpt_open(in_folder(state, "note.txt"), PP_CKPT_VERIFY, &ck), PP_EFORMAT,
                "note.txt");
    CHECK_FAILS(pp_ckpt_open(in_folder(state, "nothing"), PP_CKPT_VERIFY, &ck), PP_ENOINPUT,
                "nothing");
}

static bool there(void **state, const char *name)
{
    return file_exists(in_folder(state, name));
}

TEST(of_two_paths_the_larger_number_is_newer)
{
    static const char *const ascending[] = {"",
                                            "runs/net-20261125-100000/checkpoints/step-00000900",
                                            "runs/net-20261125-100000/checkpoints/step-00001000",
                                            "runs/net-20261125-100000/checkpoints/step-99999999",
                                            "runs/net-20261125-100000/checkpoints/step-100000000",
                                            "runs/net-20261125-100000-2/checkpoints/step-00000001",
                                            "runs/net-20261125-100000-9/checkpoints/step-00000001",
                                            "runs/net-20261125-100000-10/checkpoints/step-00000001",
                                            "runs/net-20261125-100001/checkpoints/step-00000001"};
    for (int i = 0; i < 9; i++)
        for (int k = 0; k < 9; k++) {
            int order = pp_ckpt_path_order(ascending[i], ascending[k]);
            CHECK_INT_EQ((order > 0) - (order < 0), (i > k) - (i < k));
        }
}

TEST_IN_FOLDER(the_newest_ones_are_kept)
{
    for (int step = 1; step <= 5; step++) {
        CHECK_OK(save_at(&pp_io_system, *state, step * 100, 1));
        CHECK_OK(pp_ckpt_prune(&pp_io_system, *state, 2, -1, step * 100));
        CHECK_INT_EQ(folder_count(*state, NULL, 0), step < 2 ? step : 2);
    }
    assert_true(there(state, "step-00000400") && there(state, "step-00000500"));
    /* a run that went back does not take what is ahead of it for its own newest */
    CHECK_OK(save_at(&pp_io_system, *state, 150, 1));
    CHECK_OK(pp_ckpt_prune(&pp_io_system, *state, 1, -1, 150));
    assert_true(there(state, "step-00000150"));
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 3);
    CHECK_OK(pp_ckpt_drop_newer(&pp_io_system, *state, 150));
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 1);
    CHECK_INT_EQ(newest_step(*state), 150);
    CHECK_OK(pp_ckpt_prune(&pp_io_system, in_folder(state, "none"), 1, -1, 1));
}

/* Returns the step of the checkpoint that the link `best` opens; -1: there is none. */
static int64_t best_step(void **state)
{
    struct pp_ckpt *ck = NULL;
    if (!there(state, PP_CKPT_BEST))
        return -1;
    CHECK_OK(pp_ckpt_open(in_folder(state, PP_CKPT_BEST), PP_CKPT_VERIFY, &ck));
    int64_t step = pp_ckpt_state(ck)->step;
    pp_ckpt_close(&ck);
    return step;
}

TEST_IN_FOLDER(the_best_one_is_kept_beside_the_newest_ones)
{
    bool marked = true;
    for (int step = 1; step <= 5; step++) {
        CHECK_OK(save_at(&pp_io_system, *state, step * 100, 1));
        if (step < 3)
            CHECK_OK(pp_ckpt_mark_best(&pp_io_system, *state, step * 100, &marked));
        assert_true(marked);
        CHECK_OK(pp_ckpt_prune(&pp_io_system, *state, 2, -1, step * 100));
        CHECK_INT_EQ(best_step(state), step < 3 ? step * 100 : 200);
        CHECK_INT_EQ(newest_step(*state), step * 100);
    }
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 4); /* three of them and the link */
    assert_true(there(state, "step-00000200") && there(state, "step-00000400"));
    /* among the newest it is one of them */
    CHECK_OK(pp_ckpt_mark_best(&pp_io_system, *state, 500, NULL));
    CHECK_OK(pp_ckpt_prune(&pp_io_system, *state, 1, -1, 500));
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 2);
    /* it goes with its checkpoint */
    CHECK_OK(save_at(&pp_io_system, *state, 400, 1));
    CHECK_OK(pp_ckpt_drop_newer(&pp_io_system, *state, 400));
    CHECK_INT_EQ(best_step(state), -1);
    CHECK_OK(pp_ckpt_mark_best(&pp_io_system, *state, 400, NULL));
    CHECK_OK(pp_ckpt_mark_best(&pp_io_system, *state, 300, &marked));
    assert_false(marked || there(state, PP_CKPT_BEST));
}

TEST_IN_FOLDER(the_same_step_again_replaces)
{
    CHECK_OK(save_at(&pp_io_system, *state, 3, 1));
    CHECK_OK(save_at(&pp_io_system, *state, 3, 4));
    struct pp_ckpt *ck = opened(in_folder(state, "step-00000003"));
    CHECK_INT_EQ(ck->n_parts, 4);
    pp_ckpt_close(&ck);
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 1);
}

TEST_IN_FOLDER(a_sweep_takes_what_killed_processes_left_and_nothing_else)
{
    static const char *const left[] = {"step-00000001.tmp-17", ".trash-step-00000002-99",
                                       "step-123456789.tmp-1"};
    static const char *const other[] = {"step-00000004",         "step-1.tmp-17",
                                        "step-00000001.tmp-",    "step-00000001.tmp-1x",
                                        ".trash-00000002-99",    "step-00000001.tmp-1.bak",
                                        "stepp-00000001.tmp-17", ".trash-step-00000002"};
    for (int i = 0; i < 3; i++) {
        CHECK_INT_EQ(mkdir(in_folder(state, left[i]), 0700), 0);
        char inside[128];
        snprintf(inside, sizeof(inside), "%s/file", left[i]);
        file_write(in_folder(state, inside), "x", 1);
    }
    for (int i = 0; i < 8; i++)
        CHECK_INT_EQ(mkdir(in_folder(state, other[i]), 0700), 0);
    /* links: the trash of one that was a checkpoint; else neither it nor what it leads to */
    CHECK_INT_EQ(symlink("step-00000004", in_folder(state, ".trash-step-00000002-7")), 0);
    CHECK_INT_EQ(symlink("step-00000004", in_folder(state, "step-00000009.tmp-9")), 0);
    file_write(in_folder(state, "step-00000008.tmp-9"), "x", 1);
    int64_t long_ago = 1000000000, soon = INT64_MAX;
    CHECK_OK(pp_ckpt_sweep(&pp_io_system, *state, long_ago));
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 14);
    CHECK_OK(pp_ckpt_sweep(&pp_io_system, *state, soon));
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 10);
    for (int i = 0; i < 3; i++)
        assert_false(there(state, left[i]));
    CHECK_OK(pp_ckpt_sweep(&pp_io_system, in_folder(state, "none"), soon));
}

TEST_IN_FOLDER(a_disk_that_is_too_small_is_seen_before_anything_is_written)
{
    struct pp_ckpt_save save;
    CHECK_FAILS(pp_ckpt_begin(&pp_io_system, *state, 1, HASH, UINT64_MAX / 2, &save), PP_EIO,
                "are free");
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 0);
}

TEST_IN_FOLDER(places_that_cannot_be_written_are_named)
{
    struct pp_ckpt_save save;
    CHECK_FAILS(pp_ckpt_begin(&pp_io_system, in_folder(state, "a/b"), 1, HASH, 0, &save),
                PP_ENOINPUT, "a/b");
    file_write(in_folder(state, "file"), "x", 1);
    CHECK_FAILS(pp_ckpt_begin(&pp_io_system, in_folder(state, "file"), 1, HASH, 0, &save),
                PP_ENOINPUT, "file");
}

/* Stored by the ppcli that wrote format 1 first. Every later one reads it; while its writer makes
 * the same bytes of the same content, nothing has changed by accident. */
TEST_IN_FOLDER(the_stored_checkpoint_of_version_1_is_read_and_written)
{
    static const char *const names[] = {"MANIFEST", "config.ini", "state.json",
                                        "stage-0000-of-0002.safetensors",
                                        "stage-0001-of-0002.safetensors"};
    const char *source = getenv("PPCLI_SOURCE_DIR");
    assert_non_null(source);
    char golden[PP_PATH_MAX], path[PP_PATH_MAX];
    CHECK_OK(pp_path_format(golden, "%s/tests/golden/checkpoint-v1/step-00000007", source));
    struct pp_ckpt *ck = opened(golden);
    check_values(ck, 7);
    struct pp_ckpt_state expected = state_at(7);
    assert_memory_equal(pp_ckpt_state(ck), &expected, sizeof(expected));
    CHECK_STR_EQ(ck->config, CONFIG);
    pp_ckpt_close(&ck);
    CHECK_OK(save_at(&pp_io_system, *state, 7, 2));
    for (int i = 0; i < 5; i++) {
        CHECK_OK(pp_path_format(path, "%s/%s", golden, names[i]));
        PP_OWN(blob_free) struct blob stored = file_read(path);
        CHECK_OK(pp_path_format(path, "%s/step-00000007/%s", (char *)*state, names[i]));
        PP_OWN(blob_free) struct blob made = file_read(path);
        CHECK_INT_EQ(made.n, stored.n);
        assert_memory_equal(made.p, stored.p, stored.n);
    }
}

TEST_IN_FOLDER(checkpoints_are_listed_the_newest_first)
{
    struct test_io io = test_io(IO_NONE, 0, 0);
    int64_t *steps = NULL;
    int n = -1;
    CHECK_OK(pp_ckpt_list(*state, &steps, &n));
    CHECK_INT_EQ(n, 0);
    pp_free(steps);
    for (int64_t step = 9; step < 9000000000; step *= 1000)
        CHECK_OK(save_at(&io.io, in_folder(state, PP_CKPT_DIR), step, 1));
    CHECK_OK(pp_ckpt_list(*state, &steps, &n));
    CHECK_INT_EQ(n, 3);
    CHECK_INT_EQ(steps[0], 9000000);
    CHECK_INT_EQ(steps[2], 9);
    pp_free(steps);
    char path[PP_PATH_MAX];
    CHECK_OK(pp_ckpt_step_path(*state, 9000000, path));
    assert_true(file_exists(path));
    CHECK_OK(pp_ckpt_list(path, &steps, &n));
    CHECK_INT_EQ(n, 0);
    pp_free(steps);
    CHECK_OK(pp_ckpt_list("/dev/null", &steps, &n));
    CHECK_INT_EQ(n, 0);
}
