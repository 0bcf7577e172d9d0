/* SPDX-License-Identifier: Apache-2.0 */
/* What is local in comm: names, launch detection, pinning, and waiting on a word. */
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../src/comm/wait.h"
#include "ppcli/base/base.h"
#include "ppcli/dev/devices.h"
#include "../../src/comm/transport.h"

TEST(every_row_has_its_name_behind_auto)
{
    const char *const *n = pp_transport_names();
    CHECK_STR_EQ(n[0], "auto");
    int i = 0;
    for (; pp_transport_at(i); i++) {
        CHECK_STR_EQ(n[i + 1], pp_transport_at(i)->name);
        assert_ptr_equal(pp_transport_find(n[i + 1]), pp_transport_at(i));
    }
    assert_null(n[i + 1]);
    assert_null(pp_transport_find(n[0]));
}

static void no_launcher(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_SIZE", "PMIX_RANK",    "PMIX_NAMESPACE",      "PMI_RANK", "PMI_SIZE",
        "SLURM_NTASKS",         "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        unsetenv(names[i]);
}

TEST(a_launcher_is_known_by_its_environment)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"PMI_RANK", "SLURM_STEP_NUM_TASKS"},
                                           {"PMIX_RANK", "PMIX_NAMESPACE"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        no_launcher();
        assert_false(pp_mpi_launched());
        setenv(names[i][0], "2", 1);
        assert_true(i == 0 || !pp_mpi_launched()); /* a rank that was left in a shell */
        setenv(names[i][1], "2", 1);
        assert_true(pp_mpi_launched());
    }
    no_launcher();
}

TEST(a_batch_script_is_no_launch)
{
    no_launcher();
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "8", 1);
    assert_false(pp_mpi_launched());
    no_launcher();
}

TEST(mpi_without_a_launcher_says_what_would_work)
{
    struct pp_transport *tp = NULL;
    no_launcher();
    CHECK_FAILS(pp_transport_open_world(&tp), PP_ERESOURCE, "run.transport");
    assert_null(tp);
}

TEST(the_mpi_version_is_a_name_and_a_number)
{
    const char *v = pp_world_version();
    if (pp_transport_find("mpi")->missing) {
        CHECK_STR_EQ(v, "");
        return;
    }
    const char *number = strrchr(v, ' ');
    if (!number || number[1] < '0' || number[1] > '9' || strpbrk(v, ",\n\t"))
        fail_msg("the version is '%s'", v);
}

TEST(one_rank_alone_agrees_with_itself)
{
    struct pp_threads *group = NULL;
    struct pp_transport *tp = NULL;
    float buf[3] = {1, 2, 3};
    float scratch[3];
    const int all[] = {0};
    CHECK_OK(pp_threads_create(1, NULL, &group));
    CHECK_OK(pp_threads_attach(group, 0, &tp));
    CHECK_OK(pp_transport_open_channels(tp, NULL, 0, NULL));
    CHECK_OK(pp_transport_barrier(tp));
    CHECK_OK(pp_transport_agree(tp, 0));
    CHECK_INT_EQ(pp_transport_agree(tp, pp_fail(PP_EIO, "disk full")), PP_EIO);
    CHECK_STR_EQ(pp_error_get()->text, "disk full");
    CHECK_OK(pp_transport_reduce(tp, all, 1, 3, buf, scratch));
    assert_true(buf[0] == 1 && buf[1] == 2 && buf[2] == 3);
    pp_transport_destroy(&tp);
    assert_null(tp);
    pp_transport_destroy(&tp);
    pp_threads_destroy(&group);
    assert_null(group);
    pp_threads_destroy(&group);
}

struct seat {
    struct pp_threads *group;
    int rank;
    cpu_set_t where;
};

static void *sit(void *arg)
{
    struct seat *s = arg;
    struct pp_transport *tp = NULL;
    if (pp_threads_attach(s->group, s->rank, &tp) == 0) {
        sched_getaffinity(0, sizeof(s->where), &s->where);
        pp_transport_destroy(&tp);
    }
    return NULL;
}

/* How many cores the last rank of a group of `size` may run on; *core gets the first of them. */
static int cores_of_last(int size, int *core)
{
    struct seat s = {.rank = size - 1};
    pthread_t t;
    CHECK_OK(pp_threads_create(size, NULL, &s.group));
    assert_int_equal(pthread_create(&t, NULL, sit, &s), 0);
    pthread_join(t, NULL);
    pp_threads_destroy(&s.group);
    for (*core = 0; *core < CPU_SETSIZE - 1 && !CPU_ISSET(*core, &s.where); (*core)++) {
    }
    return CPU_COUNT(&s.where);
}

TEST(ranks_are_pinned_when_each_has_a_core)
{
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    int n = CPU_COUNT(&allowed);
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &allowed))
        last--;
    int core;
    CHECK_INT_EQ(cores_of_last(n, &core), 1);
    CHECK_INT_EQ(core, last);
    CHECK_INT_EQ(cores_of_last(n + 1, &core), n); /* too many: the kernel places them */
}

struct hop {
    struct pp_word there, back, stop;
    int rounds;
    int rc;
};

static void *hop_back(void *arg)
{
    struct hop *h = arg;
    struct pp_waiter how = {.stop = &h->stop, .crowded = true};
    for (int i = 1; i <= h->rounds && h->rc == 0; i++) {
        h->rc = pp_word_wait(&how, &h->there, (uint32_t)i);
        pp_word_set(&h->back, (uint32_t)i);
    }
    return NULL;
}

TEST(a_sleeper_is_woken_and_does_not_wait_for_its_timeout)
{
    struct hop h = {.rounds = 20};
    struct pp_waiter how = {.stop = &h.stop, .crowded = false};
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, hop_back, &h), 0);
    uint64_t waking_ns = 0;
    for (int i = 1; i <= h.rounds; i++) {
        /* Let it fall asleep: that is the path to look at. */
        while (atomic_load(&h.there.sleepers) == 0) {
            struct timespec moment = {.tv_sec = 0, .tv_nsec = 200000};
            nanosleep(&moment, NULL);
        }
        uint64_t start = pp_clock_ns();
        pp_word_set(&h.there, (uint32_t)i);
        CHECK_OK(pp_word_wait(&how, &h.back, (uint32_t)i));
        waking_ns += pp_clock_ns() - start;
    }
    pthread_join(t, NULL);
    CHECK_OK(h.rc);
    /* Unwoken, each of the 20 would need most of its 50 ms. */
    if (waking_ns > 400000000)
        fail_msg("20 wake-ups took %llu ms", (unsigned long long)(waking_ns / 1000000));
}

TEST(a_value_that_is_there_wins_over_a_stop)
{
    struct pp_word w = {.value = 5};
    struct pp_word stop = {.value = 1};
    struct pp_waiter how = {.stop = &stop, .crowded = true};
    CHECK_OK(pp_word_wait(&how, &w, 5));
    CHECK_FAILS(pp_word_wait(&how, &w, 6), PP_ELOST, "another rank failed");
}

TEST(a_crowded_back_off_gives_up_its_core_soon)
{
    struct pp_backoff alone = {.crowded = false};
    struct pp_backoff crowded = {.crowded = true};
    int n = 0;
    while (pp_backoff_pause(&crowded))
        n++;
    assert_in_range(n, 1, 16);
    while (pp_backoff_pause(&alone))
        n++;
    assert_in_range(n, 100, 10000);
}

/* ---- which one connects the ranks */

static struct pp_seat seat(int process, int number, const char *uuid)
{
    struct pp_seat s = {.host = 1, .process = process, .device.number = number};
    snprintf(s.device.uuid, sizeof(s.device.uuid), "%s", uuid);
    return s;
}

static bool none_reaches(int from, int to)
{
    return from == to;
}

/* expected NULL, or not in this build: none fits, and words say why. */
static void check_choice(const struct pp_paths *paths, const char *expected, const char *words)
{
    char why[PP_TRANSPORT_WHY_MAX];
    const struct pp_transport_ops *t = expected ? pp_transport_find(expected) : NULL;
    if (t && t->missing)
        words = t->missing;
    if (!t || t->missing) {
        CHECK_FAILS(pp_transport_choose(paths, &t, why), PP_ERESOURCE, words);
        return;
    }
    CHECK_OK(pp_transport_choose(paths, &t, why));
    CHECK_STR_EQ(t->name, expected);
    CHECK_STR_EQ(why, words);
}

TEST(ranks_on_the_processor_use_threads_or_mpi)
{
    const struct pp_seat s[2] = {seat(0, -1, ""), seat(1, -1, "")};
    check_choice(&(struct pp_paths){.processes = true, .seats = s, .n = 2}, "mpi", "");
    check_choice(&(struct pp_paths){.seats = s, .n = 2}, "threads", "");
}

TEST(threads_hand_over_by_pointer_where_devices_reach_each_other)
{
    const struct pp_seat two[2] = {seat(0, 0, "a"), seat(0, 1, "b")};
    const struct pp_seat one[2] = {seat(0, 0, "a"), seat(0, 0, "a")};
    const char *words = "ranks are threads; messages pass by pointer";
    check_choice(&(struct pp_paths){.seats = two, .n = 2}, "threads", words);
    check_choice(&(struct pp_paths){.seats = one, .n = 2, .reaches = none_reaches}, "threads",
                 words);
}

TEST(threads_whose_devices_do_not_reach_each_other_use_nccl_or_host_memory)
{
    const struct pp_seat two[2] = {seat(0, 0, "a"), seat(0, 1, "b")};
    const struct pp_seat shared[3] = {seat(0, 0, "a"), seat(0, 0, "a"), seat(0, 1, "b")};
    const struct pp_transport_ops *t, *nccl = pp_transport_find("nccl");
    char why[PP_TRANSPORT_WHY_MAX];
    bool there = !nccl->missing && nccl->probe(why, sizeof(why)) == 0;
    CHECK_OK(pp_transport_choose(&(struct pp_paths){.seats = two, .n = 2, .reaches = none_reaches},
                                 &t, why));
    CHECK_STR_EQ(t->name, there ? "nccl" : "staged");
    assert_non_null(strstr(why, there
                                    ? "each rank has a device of its own: device 0 of rank 0 does"
                                    : "messages go through host memory: device 0 of rank 0 does"));
    CHECK_OK(pp_transport_choose(
        &(struct pp_paths){.seats = shared, .n = 3, .reaches = none_reaches}, &t, why));
    CHECK_STR_EQ(t->name, "staged");
}

TEST(processes_use_nccl_only_with_a_device_each)
{
    const struct pp_seat own[2] = {seat(0, 0, "a"), seat(1, 1, "b")};
    const struct pp_seat one[3] = {seat(0, 0, "a"), seat(1, 1, "b"), seat(2, 1, "b")};
    bool nccl = !pp_transport_find("nccl")->missing;
    check_choice(&(struct pp_paths){.processes = true, .seats = own, .n = 2}, nccl ? "nccl" : "mpi",
                 nccl ? "each rank has a device of its own"
                      : "messages go through host memory: this build has no NCCL (-Dnccl=enabled)");
    check_choice(&(struct pp_paths){.processes = true, .seats = one, .n = 3}, "mpi",
                 nccl ? "messages go through host memory: ranks 1 and 2 are processes that share "
                        "device 1"
                      : "messages go through host memory: this build has no NCCL (-Dnccl=enabled)");
}
