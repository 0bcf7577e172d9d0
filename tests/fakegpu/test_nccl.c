/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transports of devices (nccl; staged over threads) on emulated devices and an emulated NCCL:
 *
 *   test_nccl conform|conform-delay|conform-staged    every case of tests/conform
 *   test_nccl abort|late|size|lost|start|shared|ahead  one thing that goes wrong, or must not
 *
 * lost and start want PPCLI_FAKE_FAIL: a message that never arrives, a communicator that is not
 * made.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../src/comm/impl.h"
#include "../../src/comm/transport.h"
#include "../conform/conform.h"
#include "ppcli/base/base.h"

#define SECOND_NS 1000000000u
#define SLOT_BYTES 256

struct rank {
    struct pp_transport *tp;
    struct pp_backend *be;
    char *slots; /* of the device: two */
};

struct scenario {
    const char *name;
    int ranks;
    int devices;         /* that they use, the first ones in turn */
    uint64_t timeout_ns; /* of the transport */
    int (*run)(struct rank *r);
};

struct worker {
    pthread_t thread;
    struct pp_threads *group;
    const struct scenario *what;
    int rank, rc;
    char text[PP_ERROR_TEXT_MAX];
};

/* ---- conformance */

static int run_conform(struct rank *r)
{
    struct conform c;
    int rc = conform_open(r->tp, r->be, &c);
    for (int i = 0; conform_cases[i].name && rc == 0; i++) {
        rc = conform_cases[i].run(&c);
        rc = rc < 0 ? rc : conform_settle(&c);
        if (rc < 0)
            return pp_error_context("%s", conform_cases[i].name);
        rc = pp_transport_barrier(r->tp);
    }
    conform_close(&c);
    return rc;
}

/* ---- channels for the rest: 0 to 1, and 2 to 0 */

static int open_two(struct rank *r)
{
    const struct pp_channel_spec specs[2] = {
        {.src = 0, .dst = 1, .id = 0, .slots = 1, .bytes = SLOT_BYTES},
        {.src = 2, .dst = 0, .id = 1, .slots = 1, .bytes = SLOT_BYTES},
    };
    void *memory[2] = {r->slots, r->slots + SLOT_BYTES};
    int first = r->tp->rank == 2 ? 1 : 0;
    int n = r->tp->rank == 0 && r->tp->size > 2 ? 2 : 1;
    return pp_transport_open_channels(r->tp, specs + first, n, memory);
}

/* Until everything that is enqueued is done. */
static int wait_for_all(struct rank *r, uint64_t timeout_ns)
{
    void *mark = NULL;
    PP_TRY(pp_backend_mark_create(r->be, false, &mark));
    int rc = pp_backend_mark_set(r->be, mark);
    rc = rc < 0 ? rc : pp_transport_wait_mark(r->tp, mark, timeout_ns);
    pp_backend_mark_destroy(r->be, mark);
    return rc;
}

static int expect_text(const char *const *words)
{
    const char *text = pp_error_get()->text;
    for (int i = 0; words[i]; i++)
        EXPECT(strstr(text, words[i]), "said '%s', expected '%s' in it", text, words[i]);
    return 0;
}

/* ---- what must not be */

/* wait_recv and acquire return before the device is there; what is enqueued behind comes after. */
static int calls_do_not_wait_for_the_device(struct rank *r)
{
    PP_TRY(open_two(r));
    if (r->tp->rank == 1) {
        for (int m = 0; m < 2; m++) {
            PP_TRY(pp_transport_post_recv(r->tp, 0, 0, SLOT_BYTES, m));
            PP_TRY(pp_transport_wait_recv(r->tp, 0, 0));
            PP_TRY(pp_backend_copy(r->be, r->slots + (m + 1) * SLOT_BYTES, r->slots, SLOT_BYTES));
            PP_TRY(pp_transport_release(r->tp, 0, 0));
        }
    }
    PP_TRY(pp_transport_barrier(r->tp)); /* nothing has been sent until here */
    if (r->tp->rank == 0) {
        void *twin = r->slots + 2 * SLOT_BYTES;
        PP_TRY(pp_backend_zero(r->be, twin, SLOT_BYTES));
        unsigned char host[2][SLOT_BYTES];
        void *from[2] = {r->slots + SLOT_BYTES, twin};
        for (int m = 0; m < 2; m++) {
            conform_fill(0, m, SLOT_BYTES, host[m]);
            PP_TRY(pp_backend_to_device(r->be, from[m], host[m], SLOT_BYTES));
        }
        for (int m = 0; m < 2; m++) {
            PP_TRY(pp_transport_acquire(r->tp, 0, 0));
            PP_TRY(pp_backend_copy(r->be, r->slots, from[m], SLOT_BYTES));
            PP_TRY(pp_transport_post_send(r->tp, 0, 0, SLOT_BYTES, m));
        }
    }
    PP_TRY(wait_for_all(r, 5 * (uint64_t)SECOND_NS));
    for (int m = 0; m < 2 && r->tp->rank == 1; m++) {
        unsigned char host[SLOT_BYTES];
        PP_TRY(pp_backend_to_host(r->be, host, r->slots + (m + 1) * SLOT_BYTES, sizeof(host)));
        PP_TRY(conform_match(0, m, SLOT_BYTES, host));
    }
    return pp_transport_barrier(r->tp);
}

/* ---- what goes wrong */

/* Rank 0 aborts while the device of rank 1 waits for its message and that of rank 2 for its slot.
 */
static int an_abort_ends_the_waits_of_every_device(struct rank *r)
{
    PP_TRY(open_two(r));
    if (r->tp->rank == 1) {
        PP_TRY(pp_transport_post_recv(r->tp, 0, 0, SLOT_BYTES, 0));
        PP_TRY(pp_transport_wait_recv(r->tp, 0, 0));
    } else if (r->tp->rank == 2) {
        PP_TRY(pp_transport_acquire(r->tp, 0, 0));
        PP_TRY(pp_transport_post_send(r->tp, 0, 0, SLOT_BYTES, 0));
        PP_TRY(pp_transport_acquire(r->tp, 0, 0));
    }
    PP_TRY(pp_transport_barrier(r->tp));
    uint64_t start = pp_clock_ns();
    if (r->tp->rank == 0) {
        struct timespec t = {.tv_nsec = 50000000};
        nanosleep(&t, NULL);
        pp_transport_abort(r->tp);
        pp_transport_abort(r->tp);
        return 0;
    }
    int rc = wait_for_all(r, 0);
    uint64_t took = pp_clock_ns() - start;
    EXPECT(rc == PP_ELOST, "returned %d, expected %d", rc, PP_ELOST);
    EXPECT(took < SECOND_NS, "needed %llu ms", (unsigned long long)(took / 1000000));
    rc = r->tp->rank == 1 ? pp_transport_post_recv(r->tp, 0, 0, SLOT_BYTES, 1)
                          : pp_transport_acquire(r->tp, 0, 0);
    EXPECT(rc < 0, "a call after it returned %d", rc);
    pp_error_clear();
    return 0;
}

/* Nobody sends: the receiver gives up in its own time and says who it waited for. */
static int a_message_that_never_comes_has_a_deadline(struct rank *r)
{
    PP_TRY(open_two(r));
    if (r->tp->rank == 1) {
        PP_TRY(pp_transport_post_recv(r->tp, 0, 0, SLOT_BYTES, 0));
        PP_TRY(pp_transport_wait_recv(r->tp, 0, 0));
        int rc = wait_for_all(r, SECOND_NS / 5);
        EXPECT(rc == PP_ELOST, "returned %d, expected %d", rc, PP_ELOST);
        PP_TRY(expect_text((const char *const[]){"rank 0 to 1", "channel 0", "0.2 s", NULL}));
        pp_transport_abort(r->tp);
        pp_error_clear();
        return 0;
    }
    int rc = pp_transport_barrier(r->tp);
    EXPECT(rc == PP_ELOST, "the other one's barrier returned %d, expected %d", rc, PP_ELOST);
    pp_error_clear();
    return 0;
}

/* NCCL finds something wrong with the message: both ranks learn of it, with its words, in the call
 * behind it or in a later one. */
static int fail_message(struct rank *r, size_t sent, int code, const char *words)
{
    PP_TRY(open_two(r));
    int rc;
    if (r->tp->rank == 0) {
        PP_TRY(pp_transport_acquire(r->tp, 0, 0));
        PP_TRY(pp_transport_post_send(r->tp, 0, 0, sent, 0));
        rc = pp_transport_acquire(r->tp, 0, 0); /* so that its work, too, waits for the message */
    } else {
        PP_TRY(pp_transport_post_recv(r->tp, 0, 0, 64, 0));
        rc = pp_transport_wait_recv(r->tp, 0, 0);
    }
    rc = rc < 0 ? rc : wait_for_all(r, 5 * (uint64_t)SECOND_NS);
    EXPECT(rc == code, "returned %d (%s), expected %d", rc, pp_error_get()->text, code);
    PP_TRY(expect_text((const char *const[]){"rank 0 to 1", "channel 0", words, NULL}));
    pp_error_clear();
    return 0;
}

static int messages_of_two_sizes_are_an_error_of_both(struct rank *r)
{
    return fail_message(r, 128, PP_EINTERNAL, "rank 0 sends 128 bytes, rank 1 expects 64");
}

static int a_lost_message_is_an_error_of_both(struct rank *r)
{
    return fail_message(r, 64, PP_ELOST, "remote process exited");
}

/* One rank cannot make a communicator: all return its error, after the deadline at the latest. */
static int a_start_that_fails_on_one_rank_fails_on_all(struct rank *r)
{
    uint64_t start = pp_clock_ns();
    int rc = open_two(r);
    uint64_t took = pp_clock_ns() - start;
    EXPECT(rc < 0, "it did not fail");
    EXPECT(took < 3 * (uint64_t)SECOND_NS, "needed %llu ms", (unsigned long long)(took / 1000000));
    pp_error_clear();
    return 0;
}

static int ranks_that_share_a_device_are_refused(struct rank *r)
{
    int rc = open_two(r);
    EXPECT(rc == PP_ERESOURCE, "returned %d, expected %d", rc, PP_ERESOURCE);
    PP_TRY(expect_text((const char *const[]){"ranks 0 and 1 share device", "run.transport", NULL}));
    pp_error_clear();
    return 0;
}

/* ---- who starts the ranks */

static const struct scenario scenarios[] = {
    {"abort", 3, 3, 0, an_abort_ends_the_waits_of_every_device},
    {"ahead", 2, 2, 0, calls_do_not_wait_for_the_device},
    {"late", 2, 2, SECOND_NS, a_message_that_never_comes_has_a_deadline},
    {"lost", 2, 2, SECOND_NS, a_lost_message_is_an_error_of_both},
    {"shared", 2, 1, SECOND_NS, ranks_that_share_a_device_are_refused},
    {"size", 2, 2, SECOND_NS, messages_of_two_sizes_are_an_error_of_both},
    {"start", 3, 3, SECOND_NS / 2, a_start_that_fails_on_one_rank_fails_on_all},
};

static int wrap(const struct scenario *what, struct rank *r)
{
    bool staged = strcmp(what->name, "conform-staged") == 0;
    PP_TRY(staged ? pp_staged_open(r->tp, what->timeout_ns, &r->tp)
                  : transport_nccl.open(r->tp, what->timeout_ns, &r->tp));
    if (strcmp(what->name, "conform-delay") == 0)
        PP_TRY(delay_open(r->tp, 11, &r->tp));
    return what->run == run_conform ? 0 : pp_transport_bind(r->tp, r->be); /* conform_open() does */
}

static int run_rank(struct worker *w, struct rank *r)
{
    struct pp_backend_choice choice = {.threads = 1, .device = w->rank % w->what->devices};
    void *slots = NULL;
    PP_TRY(pp_backend_resolve("cuda", &choice.ops));
    PP_TRY(pp_threads_attach(w->group, w->rank, &r->tp));
    PP_TRY(pp_backend_open_choice(&choice, &r->be));
    PP_TRY(pp_backend_alloc(r->be, 4 * SLOT_BYTES, &slots));
    r->slots = slots;
    PP_TRY(wrap(w->what, r));
    return w->what->run(r);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct rank r = {0};
    w->rc = run_rank(w, &r);
    if (w->rc < 0) {
        snprintf(w->text, sizeof(w->text), "%s", pp_error_get()->text);
        if (r.tp)
            pp_transport_abort(r.tp);
    }
    pp_transport_destroy(&r.tp);
    if (r.slots)
        pp_backend_free(r.be, r.slots, 4 * SLOT_BYTES);
    pp_backend_close(&r.be);
    return NULL;
}

static int run(const struct scenario *what)
{
    struct worker workers[8];
    struct pp_threads *group = NULL;
    PP_TRY(pp_threads_create(what->ranks, NULL, &group));
    for (int r = 0; r < what->ranks; r++) {
        workers[r] = (struct worker){.group = group, .what = what, .rank = r};
        EXPECT(pthread_create(&workers[r].thread, NULL, work, &workers[r]) == 0, "no thread");
    }
    int rc = 0;
    for (int r = 0; r < what->ranks; r++) {
        pthread_join(workers[r].thread, NULL);
        if (workers[r].rc < 0) {
            fprintf(stderr, "rank %d of %d: %s\n", r, what->ranks, workers[r].text);
            rc = workers[r].rc;
        }
    }
    pp_threads_destroy(&group);
    printf("%s %s, %d ranks\n", rc == 0 ? "ok" : "FAILED", what->name, what->ranks);
    return rc;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    int rc = 0;
    unsetenv("CUDA_MODULE_LOADING");
    pp_transport_prepare();
    const char *loading = getenv("CUDA_MODULE_LOADING");
    if (!loading || strcmp(loading, "EAGER") != 0) {
        printf("FAILED: kernels are loaded when receives already run\n");
        return 1;
    }
    if (strncmp(name, "conform", 7) == 0) {
        for (int size = 1; size <= 4; size++) {
            const struct scenario every = {name, size, size, 20 * (uint64_t)SECOND_NS, run_conform};
            rc |= run(&every);
        }
        return rc == 0 ? 0 : 1;
    }
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
        if (strcmp(scenarios[i].name, name) == 0)
            return run(&scenarios[i]) == 0 ? 0 : 1;
    fprintf(stderr, "usage: test_nccl SCENARIO\n");
    return 64;
}
