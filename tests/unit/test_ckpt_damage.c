/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that were damaged, cut, mixed or made up: refused, with the file named. */
#include "test_ckpt_make.h"

static const char *const names[] = {"MANIFEST", "config.ini", "state.json",
                                    "stage-0000-of-0002.safetensors",
                                    "stage-0001-of-0002.safetensors"};
#define NAMES ((int)(sizeof(names) / sizeof(names[0])))

/* As small as one can be: two ranks with one tensor each. */
static int save_two(const char *dir, int64_t step)
{
    struct test_io io = test_io(IO_NONE, 0, 0);
    struct pp_ckpt_save save;
    struct pp_ckpt_part parts[2];
    const float w[2] = {1.5f, (float)step}, b = -1;
    const struct pp_st_item items[] = {
        {.name = "w", .dtype = PP_ST_F32, .n_dims = 1, .dims = {2}, .data = w},
        {.name = "b", .dtype = PP_ST_F32, .n_dims = 0, .data = &b}};
    struct pp_ckpt_state s = {.step = step, .config_hash = HASH};
    pp_ckpt_set(&s, "loss", 0.25);
    PP_TRY(pp_ckpt_begin(&io.io, dir, step, HASH, 0, &save));
    for (int r = 0; r < 2; r++)
        PP_TRY(pp_ckpt_write_part(&io.io, &save, r, 2, &items[r], 1, &parts[r]));
    return pp_ckpt_commit(&io.io, &save, &s, "a=1\n", parts, 2);
}

static int verify(const char *path)
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    int rc = pp_ckpt_open(path, PP_CKPT_VERIFY, &ck);
    return rc;
}

static const char *in_step(void **state, int64_t step, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "step-%08d/%s", (int)step, name);
    return in_folder(state, path);
}

static void refused_with(const char *folder, const char *file, const char *tensor, size_t at)
{
    int rc = verify(folder);
    const char *text = pp_error_get()->text;
    if (rc != PP_EFORMAT || !strstr(text, file) || (tensor && !strstr(text, tensor))) {
        fail_msg("%s, %s at %zu: %d, '%s'", file, tensor ? tensor : "", at, rc,
                 rc < 0 ? text : "no error");
    }
}

TEST_IN_FOLDER(every_flipped_bit_is_refused_and_its_place_named)
{
    CHECK_OK(save_two(*state, 1));
    char folder[PP_PATH_MAX];
    CHECK_OK(pp_path_format(folder, "%s", in_step(state, 1, "")));
    CHECK_OK(verify(folder));
    size_t flips = 0;
    for (int i = 0; i < NAMES; i++) {
        const char *path = in_step(state, 1, names[i]);
        PP_OWN(blob_free) struct blob b = file_read(path);
        int fd = open(path, O_RDWR);
        assert_true(fd >= 0);
        /* the data of a part are its last 8 or 4 bytes */
        size_t data = i == 3 ? b.n - 8 : i == 4 ? b.n - 4 : b.n;
        for (size_t bit = 0; bit < b.n * 8; bit++) {
            uint8_t flipped = b.p[bit / 8] ^ (uint8_t)(1 << bit % 8);
            assert_true(pwrite(fd, &flipped, 1, (off_t)(bit / 8)) == 1);
            const char *tensor = bit / 8 < data ? NULL : i == 3 ? "tensor w" : "tensor b";
            refused_with(folder, names[i], tensor, bit);
            assert_true(pwrite(fd, &b.p[bit / 8], 1, (off_t)(bit / 8)) == 1);
            flips++;
        }
        close(fd);
    }
    CHECK_OK(verify(folder));
    print_message("# %zu flips\n", flips);
}

TEST_IN_FOLDER(every_truncation_and_an_extension_is_refused)
{
    CHECK_OK(save_two(*state, 1));
    char folder[PP_PATH_MAX];
    CHECK_OK(pp_path_format(folder, "%s", in_step(state, 1, "")));
    for (int i = 0; i < NAMES; i++) {
        const char *path = in_step(state, 1, names[i]);
        PP_OWN(blob_free) struct blob b = file_read(path);
        for (size_t n = b.n; n-- > 0;) {
            CHECK_INT_EQ(truncate(path, (off_t)n), 0);
            bool in_tensor = i >= 3 && n >= b.n - 4;
            refused_with(folder, names[i], !in_tensor ? NULL : i == 3 ? "tensor w" : "tensor b", n);
        }
        file_write(path, b.p, b.n);
        CHECK_INT_EQ(truncate(path, (off_t)b.n + 1), 0);
        refused_with(folder, names[i], NULL, b.n + 1);
        file_write(path, b.p, b.n);
    }
    CHECK_OK(verify(folder));
}

TEST_IN_FOLDER(a_missing_file_is_named)
{
    for (int i = 0; i < NAMES; i++) {
        folder_empty(*state);
        CHECK_OK(save_two(*state, 1));
        unlink(in_step(state, 1, names[i]));
        refused_with(in_step(state, 1, ""), names[i], "is missing", 0);
        assert_true(pp_ckpt_claims(in_step(state, 1, "")));
    }
}

TEST_IN_FOLDER(links_pipes_and_folders_are_not_read)
{
    for (int i = 0; i < NAMES; i++) {
        for (int kind = 0; kind < 3; kind++) {
            folder_empty(*state);
            CHECK_OK(save_two(*state, 1));
            const char *path = in_step(state, 1, names[i]);
            /* even a link to the very same bytes */
            CHECK_INT_EQ(rename(path, in_folder(state, "elsewhere")), 0);
            if (kind == 0)
                CHECK_INT_EQ(symlink("../elsewhere", path), 0);
            else
                CHECK_INT_EQ(kind == 1 ? mkfifo(path, 0600) : mkdir(path, 0700), 0);
            refused_with(in_step(state, 1, ""), names[i],
                         kind == 0 ? "symbolic link" : "not a regular file", 0);
        }
    }
}

static void copy(const char *from, const char *to)
{
    PP_OWN(blob_free) struct blob b = file_read(from);
    file_write(to, b.p, b.n);
}

TEST_IN_FOLDER(files_of_another_step_are_refused)
{
    for (int i = 0; i < NAMES; i++) {
        folder_empty(*state);
        CHECK_OK(save_two(*state, 1));
        CHECK_OK(save_two(*state, 2));
        copy(in_step(state, 2, names[i]), in_step(state, 1, names[i]));
        int rc = verify(in_step(state, 1, ""));
        /* config.ini is the same in both */
        CHECK_INT_EQ(rc, i == 1 ? 0 : PP_EFORMAT);
    }
}

/* ---- made to match */

static void hex_of(const void *data, size_t n, char out[PP_SHA256_HEX])
{
    struct pp_sha256 s;
    uint8_t digest[PP_SHA256_BYTES];
    pp_sha256_init(&s);
    pp_sha256_update(&s, data, n);
    pp_sha256_final(&s, digest);
    pp_sha256_hex(digest, out);
}

/* Write `head` as MANIFEST with a line at its end that fits. */
static void seal(void **state, int64_t step, const char *head)
{
    char text[4096], digest[PP_SHA256_HEX];
    hex_of(head, strlen(head), digest);
    int n = snprintf(text, sizeof(text), "%send %s\n", head, digest);
    file_write(in_step(state, step, "MANIFEST"), text, (size_t)n);
}

/* The lines above the last one. */
static void unseal(void **state, int64_t step, char out[4096])
{
    PP_OWN(blob_free) struct blob b = file_read(in_step(state, step, "MANIFEST"));
    assert_true(b.n < 4096 && b.n > 69);
    memcpy(out, b.p, b.n - 69);
    out[b.n - 69] = '\0';
}

/* Make MANIFEST say what names[i] is now. */
static void adopt(void **state, int64_t step, int i)
{
    char head[4096], made[4096], digest[PP_SHA256_HEX];
    unseal(state, step, head);
    struct blob b = file_read(in_step(state, step, names[i]));
    hex_of(b.p, b.n, digest);
    char *line = strstr(head, names[i]);
    assert_non_null(line);
    int n = snprintf(made, sizeof(made), "%.*s%s %zu %s%s", (int)(line - head), head, names[i], b.n,
                     digest, strchr(line, '\n'));
    assert_true(n > 0 && n < 4096);
    blob_free(&b);
    seal(state, step, made);
}

TEST_IN_FOLDER(a_mix_of_two_steps_is_refused_even_when_the_manifest_was_made_to_match)
{
    static const char *const words[] = {"", "", "step 2", "mixed", "mixed"};
    for (int i = 2; i < NAMES; i++) {
        folder_empty(*state);
        CHECK_OK(save_two(*state, 1));
        CHECK_OK(save_two(*state, 2));
        copy(in_step(state, 2, names[i]), in_step(state, 1, names[i]));
        adopt(state, 1, i);
        refused_with(in_step(state, 1, ""), names[i], words[i], 0);
    }
    /* one part in the place of the other */
    folder_empty(*state);
    CHECK_OK(save_two(*state, 1));
    copy(in_step(state, 1, names[4]), in_step(state, 1, names[3]));
    adopt(state, 1, 3);
    refused_with(in_step(state, 1, ""), names[3], "mixed", 0);
}

TEST_IN_FOLDER(a_tensor_in_two_files_is_refused)
{
    struct test_io io = test_io(IO_NONE, 0, 0);
    struct pp_ckpt_save save;
    struct pp_ckpt_part parts[2];
    float one = 1;
    const struct pp_st_item item = {.name = "twice", .dtype = PP_ST_F32, .data = &one};
    struct pp_ckpt_state s = {.step = 1, .config_hash = HASH};
    CHECK_OK(pp_ckpt_begin(&io.io, *state, 1, HASH, 0, &save));
    for (int r = 0; r < 2; r++)
        CHECK_OK(pp_ckpt_write_part(&io.io, &save, r, 2, &item, 1, &parts[r]));
    CHECK_OK(pp_ckpt_commit(&io.io, &save, &s, "", parts, 2));
    refused_with(in_step(state, 1, ""), "stage-0001-of-0002", "tensor twice is in", 0);
}

TEST_IN_FOLDER(manifests_that_no_ppcli_wrote_are_refused)
{
    CHECK_OK(save_two(*state, 1));
    char head[4096], made[4200], folder[PP_PATH_MAX];
    unseal(state, 1, head);
    CHECK_OK(pp_path_format(folder, "%s", in_step(state, 1, "")));
    seal(state, 1, head);
    CHECK_OK(verify(folder));
    static const struct {
        const char *from, *to, *words;
    } edits[] = {
        {"checkpoint 1", "checkpoint 2", "a newer one wrote it"},
        {"checkpoint 1", "checkpoint 0", "format 0"},
        {"checkpoint 1", "checkpoint 01", "line 1"},
        {"ppcli", "ppclj", "line 1"},
        {"step 1", "step 01", "line 2"},
        {"step 1", "step -1", "line 2"},
        {"step 1", "step 9999999999999999999", "line 2"},
        {"step 1", "step 3", "MANIFEST is of step 3"},
        {"tensors 2", "tensors 3", "3 tensors, the files have 2"},
        {"tensors 2", "tensors", "line 4"},
        {"tensors 2", "tensors 2 ", "line 4"},
        {"file config.ini", "file ../../etc/passwd", "line 5"},
        {"file config.ini", "file  config.ini", "line 5"},
        {"file stage-0000-of-0002", "file stage-0000-of-9999", "line 7"},
        {"file stage-0000-of-0002", "file stage-0000-of-0000", "line 6"},
        {"file stage-0000-of-0002", "file stage-0000-of-0001", "line 7"},
        {"file stage-0001-of-0002", "file stage-0000-of-0002", "line 7"},
        {"file state.json", "file state.jsom", "line 8"},
        {"config_hash 0", "config_hash F", "line 3"},
        {"config_hash 0", "config_hash f", "MANIFEST is of step 1 or of another config"},
    };
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        const char *at = strstr(head, edits[i].from);
        assert_non_null(at);
        snprintf(made, sizeof(made), "%.*s%s%s", (int)(at - head), head, edits[i].to,
                 at + strlen(edits[i].from));
        seal(state, 1, made);
        refused_with(folder, "step-00000001", edits[i].words, i);
    }
    /* a line more, a line twice */
    snprintf(made, sizeof(made), "%sfile x 1 " HASH "\n", head);
    seal(state, 1, made);
    refused_with(folder, "MANIFEST", "line 9", 0);
    /* nothing but zeros, as after a power failure */
    memset(made, 0, sizeof(made));
    file_write(in_step(state, 1, "MANIFEST"), made, 600);
    refused_with(folder, "MANIFEST", "line 1", 0);
}

TEST_IN_FOLDER(states_that_no_ppcli_wrote_are_refused)
{
    CHECK_OK(save_two(*state, 1));
    char folder[PP_PATH_MAX];
    CHECK_OK(pp_path_format(folder, "%s", in_step(state, 1, "")));
    PP_OWN(blob_free) struct blob b = file_read(in_step(state, 1, "state.json"));
    static const struct {
        const char *from, *to, *words;
    } edits[] = {
        {"\"step\": 1", "\"step\": -1", "step is missing"},
        {"\"step\": 1", "\"step\": 1.0", "step is missing"},
        {"\"step\": 1", "\"stap\": 1", "step is missing"},
        {"\"step\": 1", "\"step\": 1, \"step\": 1", "duplicate"},
        {"\"step\": 1", "\"step\": 1, \"more\": 1", "keys that format 1 does not know"},
        {"\"step\": 1", "\"step\": 1, \"vocabulary\": 1", "keys that format 1 does not know"},
        {"\"step\": 1", "\"step\": 2", "of step 2"},
        {"\"format\": 1", "\"format\": 2", "format 2"},
        {"\"seed\": \"0\"", "\"seed\": \"-1\"", "seed"},
        {"\"seed\": \"0\"", "\"seed\": \"99999999999999999999\"", "seed"},
        {"\"seed\": \"0\"", "\"seed\": 0", "seed"},
        {"\"fingerprint\": \"\"", "\"fingerprint\": \"\\u001b[2J\"", "fingerprint"},
        {"\"loss\": 0.25", "\"loss\": \"0.25\"", "loss"},
        {"\"loss\": 0.25", "\"loss\": 1e999", "damaged"},
        {"\"loss\": 0.25", "\"loss\": [[1]]", "nested deeper"},
        {"\"numbers\": {", "\"numbers\": 1, \"x\": {", "numbers"},
        {"{", "[{", "nested deeper"},
        {"{", "", "damaged"},
    };
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        char text[4096], made[4096];
        snprintf(text, sizeof(text), "%.*s", (int)b.n, (const char *)b.p);
        const char *at = strstr(text, edits[i].from);
        assert_non_null(at);
        int n = snprintf(made, sizeof(made), "%.*s%s%s", (int)(at - text), text, edits[i].to,
                         at + strlen(edits[i].from));
        file_write(in_step(state, 1, "state.json"), made, (size_t)n);
        adopt(state, 1, 2);
        refused_with(folder, "state.json", edits[i].words, i);
    }
}

TEST_IN_FOLDER(a_damaged_newest_one_is_not_used)
{
    struct pp_ckpt *ck = NULL;
    for (int64_t step = 1; step <= 3; step++)
        CHECK_OK(save_two(*state, step));
    CHECK_INT_EQ(truncate(in_step(state, 3, "stage-0001-of-0002.safetensors"), 5), 0);
    unlink(in_step(state, 2, "MANIFEST"));
    CHECK_OK(pp_ckpt_open_latest(*state, PP_CKPT_VERIFY, true, &ck));
    CHECK_INT_EQ(pp_ckpt_state(ck)->step, 1);
    pp_ckpt_close(&ck);
    CHECK_FAILS(pp_ckpt_open_latest(*state, PP_CKPT_VERIFY, false, &ck), PP_EFORMAT,
                "step-00000003/stage-0001");
    unlink(in_step(state, 1, "state.json"));
    CHECK_FAILS(pp_ckpt_open_latest(*state, PP_CKPT_VERIFY, true, &ck), PP_EFORMAT,
                "all 3 checkpoints are unusable");
}

TEST_IN_FOLDER(without_digests_the_structure_alone_is_checked)
{
    struct pp_ckpt *ck = NULL;
    CHECK_OK(save_two(*state, 1));
    const char *path = in_step(state, 1, names[3]);
    struct blob b = file_read(path);
    b.p[b.n - 1] ^= 1;
    file_write(path, b.p, b.n);
    blob_free(&b);
    CHECK_OK(pp_ckpt_open(*state, PP_CKPT_STRUCTURE, &ck));
    CHECK_INT_EQ(ck->checked, 0);
    pp_ckpt_close(&ck);
    CHECK_FAILS(verify(path), PP_EFORMAT, "tensor w is damaged");
}
