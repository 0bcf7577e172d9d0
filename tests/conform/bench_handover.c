/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One-way latency of a hand-over between two rank threads: ping-pong of one slot each way, half the
 * round trip, median of the blocks. A benchmark, not a test: it asserts nothing.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/transport.h"

enum {
    BLOCKS = 41,
    ROUNDS = 5000,
    BYTES = 64
};

static _Alignas(64) char slots[2][BYTES];
static double median_ns;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static int ping_pong(struct pp_transport *tp)
{
    static double ns[BLOCKS];
    struct pp_channel_spec specs[2] = {
        {.src = 0, .dst = 1, .id = 0, .slots = 1, .bytes = BYTES},
        {.src = 1, .dst = 0, .id = 1, .slots = 1, .bytes = BYTES},
    };
    void *memory[2] = {tp->rank == 1 ? slots[1] : NULL, tp->rank == 0 ? slots[0] : NULL};
    PP_TRY(tp->ops->open_channels(tp, specs, 2, memory));
    int out = tp->rank;
    int in = 1 - tp->rank;
    PP_TRY(tp->ops->post_recv(tp, in, 0, BYTES, 0));
    for (int b = 0; b < BLOCKS; b++) {
        PP_TRY(pp_transport_barrier(tp));
        uint64_t start = pp_clock_ns();
        for (int i = 0; i < ROUNDS; i++) {
            for (int turn = 0; turn < 2; turn++) {
                if (turn == tp->rank) {
                    PP_TRY(tp->ops->acquire(tp, out, 0));
                    *(volatile int *)tp->ops->slot(tp, out, 0) = i;
                    PP_TRY(tp->ops->post_send(tp, out, 0, BYTES, 0));
                } else {
                    PP_TRY(tp->ops->wait_recv(tp, in, 0));
                    if (*(volatile int *)tp->ops->slot(tp, in, 0) != i) {
                        return pp_fail(PP_EINTERNAL, "round %d brought another one", i);
                    }
                    PP_TRY(tp->ops->release(tp, in, 0));
                    PP_TRY(tp->ops->post_recv(tp, in, 0, BYTES, 0));
                }
            }
        }
        ns[b] = (double)(pp_clock_ns() - start) / (2.0 * ROUNDS);
    }
    if (tp->rank == 0) {
        qsort(ns, BLOCKS, sizeof(*ns), by_value);
        median_ns = ns[BLOCKS / 2];
        printf("%d B one way: %.0f ns (fastest block %.0f, slowest %.0f; %d x %d round trips)\n",
               BYTES, median_ns, ns[0], ns[BLOCKS - 1], BLOCKS, ROUNDS);
    }
    return pp_transport_barrier(tp);
}

struct worker {
    pthread_t thread;
    struct pp_threads *group;
    int rank;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct pp_transport *tp = NULL;
    int rc = pp_threads_attach(w->group, w->rank, &tp);
    rc = rc == 0 ? ping_pong(tp) : rc;
    if (rc < 0) {
        fprintf(stderr, "rank %d: %s\n", w->rank, pp_error_get()->text);
        pp_threads_abort(w->group);
    }
    pp_transport_destroy(&tp);
    return NULL;
}

int main(void)
{
    struct pp_threads *group = NULL;
    struct worker w[2];
    if (pp_threads_create(2, &group) < 0) {
        return 1;
    }
    for (int r = 0; r < 2; r++) {
        w[r].group = group;
        w[r].rank = r;
        if (pthread_create(&w[r].thread, NULL, work, &w[r]) != 0) {
            return 1;
        }
    }
    pthread_join(w[0].thread, NULL);
    pthread_join(w[1].thread, NULL);
    pp_threads_destroy(&group);
    return median_ns > 0 ? 0 : 1;
}
