/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_transport threads|delay|skeleton|lazy|lazy-delay|staged [SIZE...]
 *                                             spawns the ranks, sizes 1 2 3 4 8 by default
 * conform_transport mpi|mpi-delay|mpi-staged         one rank of an MPI job
 * conform_transport mpi-abort                 rank 0 fails with code 80 while the others wait
 *
 * lazy and staged: the messages are memory of a device.
 */
#include "conform.h"
#include "../../src/comm/transport.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../src/comm/impl.h"
#include "../lazy/lazy.h"
#include "../../src/dev/backend.h"
#include "ppcli/base/base.h"

/* Every case on one rank; a failure ends all ranks, because the others may be waiting for us. */
static int run_cases(struct pp_transport *tp, struct pp_backend *be)
{
    struct conform c;
    int rc = conform_open(tp, be, &c);
    if (rc < 0)
        pp_error_context("open_channels");
    for (int i = 0; conform_cases[i].name && rc == 0; i++) {
        rc = conform_cases[i].run(&c);
        rc = rc < 0 ? rc : conform_settle(&c);
        if (rc < 0) {
            pp_error_context("%s", conform_cases[i].name);
            break;
        }
        rc = pp_transport_barrier(tp);
    }
    if (rc < 0) {
        if (rc != PP_ELOST)
            fprintf(stderr, "rank %d of %d: %s\n", tp->rank, tp->size, pp_error_get()->text);
        pp_transport_abort(tp);
        return rc; /* the slots stay: a neighbour may be reading them */
    }
    conform_close(&c);
    return 0;
}

/* A transport around another one: "delay", "skeleton", "staged", or none. */
static int wrap(const char *flavour, struct pp_backend *be, struct pp_transport **tp)
{
    if (strstr(flavour, "delay"))
        return delay_open(*tp, 11, tp);
    if (strstr(flavour, "skeleton"))
        return transport_skeleton.open(*tp, 0, tp);
    if (strstr(flavour, "staged")) {
        PP_TRY(pp_staged_open(*tp, 10000000000u, tp));
        return pp_transport_bind(*tp, be);
    }
    return 0;
}

/* NULL: memory of the host. */
static int open_device(const char *flavour, struct pp_backend **be)
{
    bool device = strstr(flavour, "lazy") || strstr(flavour, "staged");
    return device ? pp_backend_open(&backend_cuda, 1, be) : 0;
}

struct worker {
    pthread_t thread;
    struct pp_threads *group;
    int rank;
    const char *flavour;
    int (*body)(struct pp_transport *tp, struct pp_backend *be);
    int rc;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct pp_transport *tp = NULL;
    struct pp_backend *be = NULL;
    w->rc = pp_threads_attach(w->group, w->rank, &tp);
    if (w->rc == 0)
        w->rc = open_device(w->flavour, &be);
    if (w->rc == 0)
        w->rc = wrap(w->flavour, be, &tp);
    if (w->rc == 0)
        w->rc = w->body(tp, be);
    pp_transport_destroy(&tp);
    pp_backend_close(&be);
    return NULL;
}

/* The lowest rank's failure. */
static int run_threads(int size, const char *flavour,
                       int (*body)(struct pp_transport *tp, struct pp_backend *be))
{
    struct worker workers[64];
    PP_OWN(pp_threads_destroy) struct pp_threads *group = NULL;
    EXPECT(size >= 1 && size <= 64, "1 to 64 ranks");
    PP_TRY(pp_threads_create(size, NULL, &group));
    for (int r = 0; r < size; r++) {
        workers[r] = (struct worker){.group = group, .rank = r, .flavour = flavour, .body = body};
        EXPECT(pthread_create(&workers[r].thread, NULL, work, &workers[r]) == 0, "no thread");
    }
    int rc = 0;
    for (int r = size - 1; r >= 0; r--) {
        pthread_join(workers[r].thread, NULL);
        rc = workers[r].rc < 0 ? workers[r].rc : rc;
    }
    return rc;
}

/* ---- abort */

#define TOO_LONG_NS 1000000000u

/* Rank 0 aborts after a moment; the others sit in one kind of wait each, by rank. */
static int wait_for_nothing(struct pp_transport *tp, struct pp_backend *be)
{
    static _Alignas(64) char host[64][256];
    void *block = host[tp->rank];
    if (be) {
        PP_TRY(tp->be ? 0 : pp_transport_bind(tp, be));
        PP_TRY(pp_backend_alloc(be, sizeof(host[0]), &block));
    }
    char *slots = block;
    float *buf = (float *)(slots + 128), *scratch = buf + 8;
    char word[8];
    const int all[] = {0, 1, 2, 3, 4, 5, 6};
    bool unanimous;
    /* Rank 1 receives from rank 0, rank 2 sends to it. */
    struct pp_channel_spec specs[2] = {
        {.src = 0, .dst = 1, .id = 0, .slots = 1, .bytes = 64},
        {.src = 2, .dst = 0, .id = 1, .slots = 1, .bytes = 64},
    };
    void *memory[2] = {slots, slots + 64};
    int first = tp->rank == 2 ? 1 : 0;
    int n = tp->rank == 0 ? 2 : tp->rank <= 2 ? 1 : 0;
    PP_TRY(pp_transport_open_channels(tp, specs + first, n, memory));
    if (tp->rank == 2) {
        PP_TRY(pp_transport_acquire(tp, 0, 0));
        PP_TRY(pp_transport_post_send(tp, 0, 0, 64, 0));
    }
    PP_TRY(pp_transport_barrier(tp));
    uint64_t start = pp_clock_ns();
    int rc = PP_ELOST;
    switch (tp->rank) {
    case 0: {
        struct timespec t = {.tv_sec = 0, .tv_nsec = 70000000}; /* long enough to fall asleep */
        nanosleep(&t, NULL);
        pp_fail(PP_EDIVERGED, "loss is not a number");
        pp_transport_abort(tp);
        pp_transport_abort(tp);
        break;
    }
    case 1:
        PP_TRY(pp_transport_post_recv(tp, 0, 0, 64, 0));
        rc = pp_transport_wait_recv(tp, 0, 0);
        break;
    case 2:
        rc = pp_transport_acquire(tp, 0, 0);
        break;
    case 3:
        rc = pp_transport_barrier(tp);
        break;
    case 4:
        rc = pp_transport_recv(tp, 0, word, sizeof(word));
        break;
    case 5:
        PP_TRY(pp_transport_post_vote(tp, true));
        rc = pp_transport_wait_vote(tp, &unanimous);
        break;
    default:
        rc = pp_transport_reduce(tp, all, 7, 8, buf, scratch);
        break;
    }
    uint64_t took = pp_clock_ns() - start;
    EXPECT(rc == PP_ELOST, "rank %d returned %d, expected %d", tp->rank, rc, PP_ELOST);
    EXPECT(took < TOO_LONG_NS, "rank %d needed %llu ms", tp->rank,
           (unsigned long long)(took / 1000000));
    rc = pp_transport_barrier(tp);
    EXPECT(rc == PP_ELOST, "a barrier after the abort returned %d", rc);
    return 0;
}

/* ---- who starts the ranks */

static int report(const char *what, int size, int rc)
{
    printf("%s %s, %d rank%s\n", rc == 0 ? "ok" : "FAILED", what, size, size == 1 ? "" : "s");
    fflush(stdout);
    return rc;
}

static int as_threads(int argc, char **argv)
{
    int rc = 0;
    static const int usual[] = {1, 2, 3, 4, 8};
    int n = argc > 2 ? argc - 2 : 5;
    for (int i = 0; i < n; i++) {
        int size = argc > 2 ? atoi(argv[2 + i]) : usual[i];
        rc |= report("every case", size, run_threads(size, argv[1], run_cases));
    }
    rc |=
        report("an abort wakes all kinds of waiters", 7, run_threads(7, argv[1], wait_for_nothing));
    return rc == 0 ? 0 : 1;
}

static int as_process(const char *flavour)
{
    struct pp_transport *tp = NULL;
    int rc = pp_transport_open_world(&tp);
    if (rc == PP_ERESOURCE) {
        fprintf(stderr, "skipped: %s\n", pp_error_get()->text);
        return 77;
    }
    struct pp_backend *be = NULL;
    if (rc == 0)
        rc = open_device(flavour, &be);
    if (rc == 0)
        rc = wrap(flavour, be, &tp);
    if (rc < 0) {
        fprintf(stderr, "%s\n", pp_error_get()->text);
        return 1;
    }
    rc = strcmp(flavour, "mpi-abort") == 0 ? wait_for_nothing(tp, be) : run_cases(tp, be);
    if (tp->rank == 0)
        report(pp_world_version(), tp->size, rc);
    pp_transport_destroy(&tp);
    pp_backend_close(&be);
    return rc == 0 ? 0 : 1;
}

/* Is the word one of a NULL-terminated list? */
static bool is_one_of(const char *word, const char *const *list)
{
    while (*list && strcmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

int main(int argc, char **argv)
{
    const char *flavour = argc > 1 ? argv[1] : "";
    static const char *const threads[] = {"threads",    "delay",  "skeleton", "lazy",
                                          "lazy-delay", "staged", NULL};
    static const char *const processes[] = {"mpi", "mpi-delay", "mpi-staged", "mpi-abort", NULL};
    if (is_one_of(flavour, threads))
        return as_threads(argc, argv);
    if (is_one_of(flavour, processes))
        return as_process(flavour);
    fprintf(stderr,
            "usage: conform_transport "
            "threads|delay|skeleton|lazy|lazy-delay|staged|mpi|mpi-delay|mpi-staged|mpi-abort "
            "[SIZE...]\n");
    return 64;
}
