/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of actions: what stays, what is given up, what a file of it must look like. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ppcli/base/base.h"
#include "ppcli/sim/trace.h"
#include "test.h"

static void put(struct pp_ring *ring, int n)
{
    struct pp_event e = {
        .begin_ns = 100 + (uint64_t)n, .step = n, .message = -n, .kind = PP_EVENT_F};
    pp_ring_begin(ring, &e);
    pp_ring_end(ring, 1000 + (uint64_t)n);
}

static struct pp_ring *ring_of(uint64_t capacity)
{
    struct pp_ring *ring = NULL;
    assert_int_equal(pp_ring_create(NULL, 1, 2, capacity, &ring), 0);
    return ring;
}

TEST(a_record_is_there_before_its_action_ends)
{
    PP_OWN(pp_ring_destroy) struct pp_ring *ring = ring_of(4);
    struct pp_event e = {.begin_ns = 7, .kind = PP_EVENT_RECV, .mb = 3, .stage = 2, .message = 9};
    pp_ring_begin(ring, &e);
    struct pp_event got;
    assert_int_equal(pp_ring_copy(ring, 0, &got, 1, NULL, NULL), 1);
    assert_int_equal(got.end_ns, 0);
    assert_int_equal(got.begin_ns, 7);
    assert_int_equal(got.mb, 3);
    assert_int_equal(got.stage, 2);
    assert_int_equal(got.message, 9);
    assert_string_equal(pp_event_name(got.kind), "recv");
    pp_ring_end(ring, 11);
    assert_int_equal(pp_ring_copy(ring, 0, &got, 1, NULL, NULL), 1);
    assert_int_equal(got.end_ns, 11);
}

TEST(the_last_records_stay_and_the_rest_is_counted_as_lost)
{
    struct pp_ring *ring = ring_of(7); /* 8 places, 7 that can be read */
    for (int n = 0; n < 20; n++)
        put(ring, n);
    struct pp_event got[32];
    uint64_t next, lost;
    assert_int_equal(pp_ring_copy(ring, 0, got, 32, &next, &lost), 7);
    assert_int_equal(next, 20);
    assert_int_equal(lost, 13);
    for (int k = 0; k < 7; k++) {
        assert_int_equal(got[k].step, 13 + k);
        assert_int_equal(got[k].end_ns, 1013 + k);
    }
    /* from where the last copy ended: only what is new */
    put(ring, 20);
    assert_int_equal(pp_ring_copy(ring, next, got, 32, &next, &lost), 1);
    assert_int_equal(got[0].step, 20);
    assert_int_equal(lost, 0);
    assert_int_equal(pp_ring_copy(ring, next, got, 32, &next, &lost), 0);
    /* in pieces */
    assert_int_equal(pp_ring_copy(ring, 17, got, 2, &next, &lost), 2);
    assert_int_equal(got[1].step, 18);
    assert_int_equal(next, 19);
    pp_ring_destroy(&ring);
}

struct reader {
    struct pp_ring *ring;
    bool stop;
    int wrong, copies;
};

static void *read_all_the_time(void *arg)
{
    struct reader *r = arg;
    struct pp_event got[64];
    while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE)) {
        size_t n = pp_ring_copy(r->ring, 0, got, 64, NULL, NULL);
        for (size_t k = 0; k < n; k++) {
            bool whole = got[k].message == -got[k].step &&
                         got[k].begin_ns == 100 + (uint64_t)got[k].step &&
                         (got[k].end_ns == 0 || got[k].end_ns == 1000 + (uint64_t)got[k].step) &&
                         (k == 0 || got[k].step == got[k - 1].step + 1);
            r->wrong += !whole;
        }
        r->copies += n > 0;
    }
    return NULL;
}

TEST(a_reader_in_another_thread_never_sees_mixed_records)
{
    struct reader r = {.ring = ring_of(15)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_all_the_time, &r), 0);
    for (int n = 0; n < 300000; n++)
        put(r.ring, n);
    __atomic_store_n(&r.stop, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    assert_int_equal(r.wrong, 0);
    pp_ring_destroy(&r.ring);
}

TEST(a_file_keeps_the_records_when_the_ring_is_gone)
{
    char path[] = "ring-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct pp_ring *ring = NULL;
    assert_int_equal(pp_ring_create(path, 0, 1, 4, &ring), PP_EIO); /* never over what is there */
    unlink(path);
    assert_int_equal(pp_ring_create(path, 3, 4, 4, &ring), 0);
    put(ring, 1);
    put(ring, 2);
    pp_ring_destroy(&ring);
    assert_int_equal(pp_ring_open(path, &ring), 0);
    assert_int_equal(ring->head->rank, 3);
    assert_int_equal(ring->head->ranks, 4);
    struct pp_event got[4];
    assert_int_equal(pp_ring_copy(ring, 0, got, 4, NULL, NULL), 2);
    assert_int_equal(got[1].step, 2);
    pp_ring_destroy(&ring);
    unlink(path);
}

TEST(a_ring_whose_file_is_cut_or_overwritten_keeps_its_records)
{
    char path[] = "ring-hurt-XXXXXX", why[PP_PATH_MAX + 128];
    struct pp_ring *ring = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    close(fd);
    for (int cut = 0; cut < 2; cut++) {
        CHECK_OK(pp_ring_create(path, 3, 4, 4, &ring));
        PP_OWN(pp_ring_destroy) struct pp_ring *reader = NULL;
        CHECK_OK(pp_ring_open(path, &reader));
        put(ring, 1);
        assert_true(pp_ring_mend(ring, why, sizeof(why)));
        fd = open(path, O_RDWR);
        if (cut)
            assert_int_equal(ftruncate(fd, 0), 0);
        else
            for (int i = 0; i < 64; i++)
                assert_int_equal(pwrite(fd, "\377\1\2\3", 4, 4 * i), 4);
        struct pp_event got[4] = {0};
        (void)pp_ring_copy(reader, 0, got, 4, NULL, NULL); /* of any content, but it returns */
        put(ring, 2);
        assert_int_equal(pp_ring_copy(ring, 0, got, 4, NULL, NULL), 2);
        assert_int_equal(got[0].step, 1);
        assert_int_equal(got[1].step, 2);
        assert_false(pp_ring_mend(ring, why, sizeof(why)));
        assert_non_null(strstr(why, path));
        assert_non_null(strstr(why, cut ? "changed its size" : "wrote to it"));
        if (!cut)
            assert_true(pp_ring_mend(ring, why, sizeof(why)));
        pp_ring_destroy(&ring);
        close(fd);
        unlink(path);
    }
}

TEST(a_file_that_lies_about_its_size_is_refused)
{
    char path[] = "ring-bad-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct pp_ring *ring = NULL;
    assert_int_equal(pp_ring_open(path, &ring), PP_EFORMAT); /* empty */
    struct pp_ring_head head = {.capacity = 8};
    memcpy(head.magic, "ppring\0\2", 8);
    for (uint64_t capacity = 0; capacity < 20; capacity++) {
        head.capacity = capacity;
        assert_int_equal(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
        assert_int_equal(ftruncate(fd, (off_t)(sizeof(head) + 8 * sizeof(struct pp_event))), 0);
        int rc = pp_ring_open(path, &ring);
        assert_int_equal(rc, capacity == 8 ? 0 : PP_EFORMAT);
        pp_ring_destroy(&ring);
    }
    head.capacity = (uint64_t)1 << 63;
    assert_int_equal(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
    assert_int_equal(pp_ring_open(path, &ring), PP_EFORMAT);
    assert_int_equal(pp_ring_open(".", &ring), PP_EFORMAT);
    assert_int_equal(pp_ring_open("no-such-file", &ring), PP_ENOINPUT);
    close(fd);
    unlink(path);
}

TEST(a_ring_tells_what_became_of_its_process)
{
    char path[] = "ring-process-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    pid_t child = fork();
    if (child == 0) {
        struct pp_ring *mine = NULL;
        if (pp_ring_create(path, 0, 1, 4, &mine) == 0)
            put(mine, 1);
        for (;;)
            pause();
    }
    struct pp_ring *ring = NULL;
    for (int k = 0; k < 5000 && (pp_ring_open(path, &ring) < 0 || ring->head->begun == 0); k++) {
        pp_ring_destroy(&ring);
        usleep(1000);
    }
    assert_non_null(ring);
    assert_int_equal(pp_ring_process(ring), PP_PROCESS_RUNNING);
    int status = 0;
    kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_int_equal(pp_ring_process(ring), PP_PROCESS_STOPPED);
    kill(child, SIGKILL); /* not yet waited for: a zombie is gone too */
    for (int k = 0; k < 5000 && pp_ring_process(ring) != PP_PROCESS_GONE; k++)
        usleep(1000);
    assert_int_equal(pp_ring_process(ring), PP_PROCESS_GONE);
    waitpid(child, &status, 0);
    assert_int_equal(pp_ring_process(ring), PP_PROCESS_GONE);
    struct pp_event got;
    assert_int_equal(pp_ring_copy(ring, 0, &got, 1, NULL, NULL), 1);
    assert_int_equal(got.step, 1);
    assert_int_equal(ring->head->ended, PP_RING_OPEN);
    pp_ring_destroy(&ring);
    unlink(path);
}

TEST(another_process_with_the_same_pid_is_not_the_one)
{
    PP_OWN(pp_ring_destroy) struct pp_ring *ring = ring_of(4);
    assert_int_equal(pp_ring_process(ring), PP_PROCESS_RUNNING);
    ring->head->started ^= 1;
    assert_int_equal(pp_ring_process(ring), PP_PROCESS_GONE);
    ring->head->machine ^= 1;
    assert_int_equal(pp_ring_process(ring), PP_PROCESS_ELSEWHERE);
}

static atomic_bool enough;

static void *take_the_core(void *core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(*(const int *)core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    while (!atomic_load(&enough)) {
    }
    return NULL;
}

TEST(time_without_a_core_is_counted)
{
    cpu_set_t before;
    pthread_t other;
    int core = sched_getcpu();
    assert_true(core >= 0);
    if (access("/proc/self/schedstat", R_OK) != 0) {
        print_message("the kernel keeps no schedstat\n");
        skip();
    }
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof(before), &before), 0);
    uint64_t waited = pp_thread_time(getpid(), gettid()).waited_ns;
    assert_int_equal(pthread_create(&other, NULL, take_the_core, &core), 0);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    /* two want it: sooner or later each of them has waited for it */
    while (pp_thread_time(getpid(), gettid()).waited_ns < waited + 10000000) {
    }
    atomic_store(&enough, true);
    pthread_join(other, NULL);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(before), &before);
    assert_true(pp_thread_time(getpid(), gettid()).ready);
    assert_int_equal(pp_thread_time(getpid(), 0).ran_ns, 0);
    assert_false(pp_thread_time(-1, -1).ready);
}
