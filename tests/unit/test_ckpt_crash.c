/* SPDX-License-Identifier: Apache-2.0 */
/* Saves that are cut off or fail at every single call: the old checkpoint or the new one is there.
 */
#include "test_ckpt_make.h"

#include "ppcli/base/base.h"

/* What a run does at a checkpoint. */
static int save_and_prune(const struct pp_io *io, const char *dir, int64_t step, int keep)
{
    PP_TRY(save_at(io, dir, step, 2));
    return pp_ckpt_prune(io, dir, keep, -1, step);
}

/* Without faults, and without waiting for the disk. */
static struct test_io plain_io(void)
{
    return test_io(IO_NONE, 0, 0);
}

/* How many calls that makes; the save is done. */
static int count_calls(const char *dir, int64_t step, int keep)
{
    struct test_io all = plain_io();
    CHECK_OK(save_and_prune(&all.io, dir, step, keep));
    assert_true(all.calls > 20);
    return all.calls;
}

/* A folder of checkpoints as it is before the save under test. */
static void start(void **state)
{
    struct test_io io = plain_io();
    folder_empty(*state);
    CHECK_OK(save_at(&io.io, *state, 100, 2));
}

static void no_leftover_has_a_final_name(const char *dir)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, "step-", 5) == 0 && !strstr(e->d_name, ".tmp-")) {
            char path[PP_PATH_MAX];
            PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
            CHECK_OK(pp_path_format(path, "%s/%s", dir, e->d_name));
            CHECK_OK(pp_ckpt_open(path, PP_CKPT_VERIFY, &ck));
        }
    }
    closedir(d);
}

TEST_IN_FOLDER(a_crash_at_any_call_leaves_the_old_or_the_new_one)
{
    start(state);
    int calls = count_calls(*state, 200, 1);
    bool old_seen = false, new_seen = false;
    for (int after = 0; after < 2; after++) {
        for (int at = 1; at <= calls; at++) {
            start(state);
            struct test_io io = test_io(after ? IO_STOP_AFTER : IO_STOP_BEFORE, at, 0);
            (void)save_and_prune(&io.io, *state, 200, 1);
            int64_t found = newest_step(*state);
            if (found != 100 && found != 200) {
                fail_msg("stopped %s call %d of '%s': found step %d", after ? "after" : "before",
                         at, io.names, (int)found);
            }
            old_seen = old_seen || found == 100;
            new_seen = new_seen || found == 200;
            no_leftover_has_a_final_name(*state);
            /* the next start cleans up and saves as if nothing had been */
            struct test_io again = plain_io();
            CHECK_OK(pp_ckpt_sweep(&again.io, *state, INT64_MAX));
            CHECK_OK(save_and_prune(&again.io, *state, 200, 1));
            CHECK_INT_EQ(newest_step(*state), 200);
            CHECK_INT_EQ(folder_count(*state, NULL, 0), 1);
        }
    }
    assert_true(old_seen && new_seen);
}

TEST_IN_FOLDER(a_crash_while_a_step_is_replaced_leaves_that_step)
{
    start(state);
    int calls = count_calls(*state, 100, 1);
    for (int after = 0; after < 2; after++) {
        for (int at = 1; at <= calls; at++) {
            start(state);
            struct test_io io = test_io(after ? IO_STOP_AFTER : IO_STOP_BEFORE, at, 0);
            (void)save_and_prune(&io.io, *state, 100, 1);
            CHECK_INT_EQ(newest_step(*state), 100);
            no_leftover_has_a_final_name(*state);
        }
    }
}

TEST_IN_FOLDER(a_failure_of_any_call_is_said_and_leaves_the_old_one)
{
    static const int errors[] = {EIO, ENOSPC};
    start(state);
    int calls = count_calls(*state, 200, 2);
    for (int e = 0; e < 2; e++) {
        for (int at = 1; at <= calls; at++) {
            start(state);
            struct test_io io = test_io(IO_FAIL, at, errors[e]);
            pp_error_clear();
            int rc = save_and_prune(&io.io, *state, 200, 2);
            if (rc != PP_EIO || !strstr(pp_error_get()->text, *state) ||
                !strstr(pp_error_get()->text, strerror(errors[e])))
                fail_msg("call %d of '%s': %d, '%s'", at, io.names, rc, pp_error_get()->text);
            CHECK_INT_EQ(io.fsyncs_after_failure, 0);
            assert_true(newest_step(*state) >= 100);
            no_leftover_has_a_final_name(*state);
            struct pp_ckpt *ck = NULL;
            CHECK_OK(pp_ckpt_open(in_folder(state, "step-00000100"), PP_CKPT_VERIFY, &ck));
            pp_ckpt_close(&ck);
            /* nothing is left but the one call's own file or folder, and the next save works */
            struct test_io again = plain_io();
            CHECK_OK(save_and_prune(&again.io, *state, 200, 1));
            CHECK_INT_EQ(newest_step(*state), 200);
        }
    }
}

TEST_IN_FOLDER(a_failed_save_leaves_no_temporary_folder)
{
    start(state);
    int calls = count_calls(*state, 200, 2);
    for (int at = 1; at <= calls; at++) {
        start(state);
        struct test_io io = test_io(IO_FAIL, at, ENOSPC);
        (void)save_at(&io.io, *state, 200, 2);
        DIR *d = opendir(*state);
        for (struct dirent *e; (e = readdir(d));)
            if (strstr(e->d_name, ".tmp-"))
                fail_msg("call %d of '%s': %s is left", at, io.names, e->d_name);
        closedir(d);
    }
}

TEST_IN_FOLDER(interrupted_calls_and_short_writes_make_the_same_checkpoint)
{
    struct test_io io = test_io(IO_SHORT, 0, 0);
    CHECK_OK(save_at(&io.io, *state, 100, 2));
    CHECK_INT_EQ(newest_step(*state), 100);
}

TEST_IN_FOLDER(thinning_out_that_is_cut_off_leaves_only_whole_ones)
{
    for (int after = 0; after < 2; after++) {
        for (int at = 1; at <= 40; at++) {
            folder_empty(*state);
            struct test_io again = plain_io();
            for (int step = 1; step <= 3; step++)
                CHECK_OK(save_at(&again.io, *state, step, 2));
            struct test_io io = test_io(after ? IO_STOP_AFTER : IO_STOP_BEFORE, at, 0);
            int rc = pp_ckpt_prune(&io.io, *state, 1, -1, 3);
            CHECK_INT_EQ(newest_step(*state), 3);
            no_leftover_has_a_final_name(*state);
            CHECK_OK(pp_ckpt_sweep(&again.io, *state, INT64_MAX));
            CHECK_OK(pp_ckpt_prune(&again.io, *state, 1, -1, 3));
            CHECK_INT_EQ(folder_count(*state, NULL, 0), 1);
            if (rc == 0)
                break;
            assert_true(at < 40);
        }
    }
}

TEST_IN_FOLDER(where_names_cannot_be_swapped_a_step_is_replaced_all_the_same)
{
    start(state);
    struct test_io all = plain_io();
    CHECK_OK(save_at(&all.io, *state, 100, 4));
    /* "create write ... exchange ...": which call it is */
    const char *up_to = strstr(all.names, "exchange");
    assert_non_null(up_to);
    int at = 1;
    for (const char *p = all.names; p < up_to; p++)
        at += *p == ' ';
    start(state);
    struct test_io io = test_io(IO_FAIL, at, EINVAL);
    CHECK_OK(save_at(&io.io, *state, 100, 4));
    struct pp_ckpt *ck = NULL;
    CHECK_OK(pp_ckpt_open(*state, PP_CKPT_VERIFY, &ck));
    CHECK_INT_EQ(ck->n_parts, 4);
    pp_ckpt_close(&ck);
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 1);
}

TEST_IN_FOLDER(a_failed_flush_after_two_names_were_swapped_removes_neither)
{
    start(state);
    struct test_io all = plain_io();
    CHECK_OK(save_at(&all.io, *state, 100, 2));
    const char *up_to = strstr(strstr(all.names, "exchange"), "sync_dir");
    assert_non_null(up_to);
    int at = 1;
    for (const char *p = all.names; p < up_to; p++)
        at += *p == ' ';
    start(state);
    struct test_io io = test_io(IO_FAIL, at, EIO);
    CHECK_FAILS(save_at(&io.io, *state, 100, 2), PP_EIO, "cannot flush folder");
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 2);
    DIR *d = opendir(*state);
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, "step-", 5) == 0) {
            PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
            CHECK_OK(pp_ckpt_open(in_folder(state, e->d_name), PP_CKPT_VERIFY, &ck));
        }
    }
    closedir(d);
}
