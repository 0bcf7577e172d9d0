/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of saving and opening a checkpoint fails once: said, nothing lost, no leak. */
#include "test_ckpt_make.h"

/* The linker sends all calls of these here. */
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

static int until_failure = -1; /* calls that still work; negative: all do */

static bool fails(void)
{
    return until_failure >= 0 && until_failure-- == 0;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    return fails() ? NULL : __real_realloc(p, bytes);
}

/* How many failures it takes until `work` gets through; each is told as what it is. */
static int try_all(int (*work)(void **state), void **state)
{
    for (int n = 0; n < 1000; n++) {
        until_failure = n;
        pp_error_clear();
        int rc = work(state);
        bool reached = until_failure < 0;
        until_failure = -1;
        if (!reached) {
            CHECK_INT_EQ(rc, 0);
            return n;
        }
        if (rc != PP_ERESOURCE)
            fail_msg("allocation %d: %d, '%s'", n, rc, pp_error_get()->text);
    }
    fail_msg("still failing");
    return -1;
}

static int open_newest(void **state)
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    int rc = pp_ckpt_open_latest(*state, PP_CKPT_VERIFY, true, &ck);
    if (rc == 0) {
        /* a lack of memory is no reason to take an older one */
        CHECK_INT_EQ(pp_ckpt_state(ck)->step, 2);
    }
    return rc;
}

static int open_part(void **state)
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    int rc = pp_ckpt_open(in_folder(state, "step-00000002/stage-0000-of-0002.safetensors"),
                          PP_CKPT_VERIFY, &ck);
    return rc;
}

static int save(void **state)
{
    struct test_io io = test_io(IO_NONE, 0, 0);
    int rc = save_at(&io.io, *state, 3, 2);
    if (rc < 0) {
        assert_false(file_exists(in_folder(state, "step-00000003")));
        CHECK_INT_EQ(folder_count(*state, NULL, 0), 2);
    }
    return rc;
}

TEST_IN_FOLDER(opening_needs_memory_and_says_so)
{
    struct test_io io = test_io(IO_NONE, 0, 0);
    CHECK_OK(save_at(&io.io, *state, 1, 2));
    CHECK_OK(save_at(&io.io, *state, 2, 2));
    assert_true(try_all(open_newest, state) > 100);
    assert_true(try_all(open_part, state) > 50);
}

TEST_IN_FOLDER(saving_needs_memory_and_leaves_nothing_without_it)
{
    struct test_io io = test_io(IO_NONE, 0, 0);
    CHECK_OK(save_at(&io.io, *state, 1, 2));
    CHECK_OK(save_at(&io.io, *state, 2, 2));
    assert_true(try_all(save, state) >= 5);
    CHECK_INT_EQ(newest_step(*state), 3);
}
