/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of a run folder: one process, and none that is dead. */
#include "test_ckpt_files.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "ppcli/ckpt/checkpoint.h"

TEST_IN_FOLDER(the_second_one_is_refused_and_told_who_is_first)
{
    struct pp_lock a = PP_LOCK_NONE, b = PP_LOCK_NONE;
    char who[64];
    CHECK_OK(pp_lock_take(*state, &a));
    snprintf(who, sizeof(who), "process %ld on ", (long)getpid());
    CHECK_FAILS(pp_lock_take(*state, &b), PP_ERESOURCE, who);
    CHECK_FAILS(pp_lock_take(*state, &b), PP_ERESOURCE, *state);
    CHECK_INT_EQ(b.fd, -1);
    pp_lock_release(&b);
    pp_lock_release(&a);
    CHECK_INT_EQ(a.fd, -1);
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 0);
    CHECK_OK(pp_lock_take(*state, &b));
    pp_lock_release(&b);
}

TEST_IN_FOLDER(what_a_killed_process_left_is_taken_over)
{
    int ready[2];
    CHECK_INT_EQ(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct pp_lock l;
        char byte = pp_lock_take(*state, &l) == 0 ? 'y' : 'n';
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(0);
    }
    char byte = 0;
    CHECK_INT_EQ(read(ready[0], &byte, 1), 1);
    CHECK_INT_EQ(byte, 'y');
    struct pp_lock l = PP_LOCK_NONE;
    char who[64];
    snprintf(who, sizeof(who), "process %ld on ", (long)child);
    CHECK_FAILS(pp_lock_take(*state, &l), PP_ERESOURCE, who);
    kill(child, SIGKILL);
    CHECK_INT_EQ(waitpid(child, NULL, 0), child);
    CHECK_INT_EQ(folder_count(*state, NULL, 0), 1);
    CHECK_OK(pp_lock_take(*state, &l));
    struct blob b = file_read(l.path);
    snprintf(who, sizeof(who), "process %ld on ", (long)getpid());
    CHECK_INT_EQ(memcmp(b.p, who, strlen(who)), 0);
    blob_free(&b);
    pp_lock_release(&l);
    close(ready[0]);
    close(ready[1]);
}

TEST_IN_FOLDER(its_time_is_not_before_what_was_there)
{
    struct pp_lock l = PP_LOCK_NONE;
    struct stat st;
    CHECK_INT_EQ(mkdir(in_folder(state, "before"), 0700), 0);
    CHECK_INT_EQ(stat(in_folder(state, "before"), &st), 0);
    CHECK_OK(pp_lock_take(*state, &l));
    assert_true(l.since_ns >= (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
    pp_lock_release(&l);
}

TEST_IN_FOLDER(a_text_that_lies_does_not_reach_the_terminal)
{
    const char *path = in_folder(state, PP_LOCK_NAME);
    file_write(path, "\033[2Jgone\nmore", 13);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    CHECK_INT_EQ(flock(fd, LOCK_EX), 0);
    struct pp_lock l = PP_LOCK_NONE;
    CHECK_FAILS(pp_lock_take(*state, &l), PP_ERESOURCE, "?[2Jgone (");
    close(fd);
    CHECK_OK(pp_lock_take(*state, &l));
    pp_lock_release(&l);
}

TEST_IN_FOLDER(a_link_in_its_place_is_not_followed)
{
    struct pp_lock l = PP_LOCK_NONE;
    CHECK_INT_EQ(symlink("target", in_folder(state, PP_LOCK_NAME)), 0);
    CHECK_FAILS(pp_lock_take(*state, &l), PP_EIO, *state);
    assert_false(file_exists(in_folder(state, "target")));
    CHECK_FAILS(pp_lock_take(in_folder(state, "none"), &l), PP_ENOINPUT, "none");
}
