/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One word publishes a job: its number and its number of pieces. A member claims a piece by writing
 * that word over the previous one, so a late member claims nothing; while a claimed piece is not
 * done, the job does not change. A member raises `sleepers` and then sleeps on the number; the
 * caller writes the number and then reads `sleepers`. All accesses are sequentially consistent, so
 * one of the two sees the other.
 */
#include "ppcli/base/cores.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ppcli/base/base.h"

/* A wake-up costs both sides some microseconds: shorter work is done by one thread. */
#define PIECE_NS 6000.0
/* A pause takes 15 to 45 ns, so this spins about 100 us. Two kernels of a step are closer than
 * that. */
#define SPINS 3000
#define CROWDED_SPINS 40 /* more members than processors: another thread may need this one */

#define PIECES_MAX 2048 /* more than the threads of any rank */

struct member {
    _Alignas(64) _Atomic uint64_t claimed; /* the last job whose piece was claimed */
    struct pp_team *team;
    pthread_t thread;
    int number;
};

struct pp_team {
    _Alignas(64) _Atomic uint64_t job; /* number * PIECES_MAX + pieces */
    _Atomic uint32_t bell;             /* low bits of the number, for the futex */
    _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic uint32_t left; /* pieces that are not done */
    _Atomic uint32_t caller_sleeps;
    /* written while no piece is claimed, read while one is */
    _Alignas(64) struct pp_work work;
    const void *args;
    _Atomic bool ends;
    /* set once */
    struct pp_team_spec spec;
    int started;
    struct member members[];
};

static void sleep_while(_Atomic uint32_t *word, uint32_t value)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake_threads(_Atomic uint32_t *word, int most)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}

static void do_piece(const struct pp_team *t, size_t i, size_t pieces, int member)
{
    /* pieces are equal to within a grain */
    size_t grain = t->work.grain ? t->work.grain : 1, n = (t->work.units + grain - 1) / grain;
    struct pp_piece piece = {n * i / pieces * grain, n * (i + 1) / pieces * grain, member};
    piece.to = piece.to < t->work.units ? piece.to : t->work.units;
    if (piece.from < piece.to)
        t->work.fn(t->args, &piece);
}

/* Does all pieces of the job that no thread has begun. Each member starts with its own piece. */
static void take_pieces(struct pp_team *t, uint64_t job, int member)
{
    uint32_t pieces = job % PIECES_MAX;
    for (uint32_t k = 0; k < pieces; k++) {
        uint32_t i = ((uint32_t)member + k) % pieces;
        uint64_t before = atomic_load_explicit(&t->members[i].claimed, memory_order_relaxed);
        if (before >= job || !atomic_compare_exchange_strong(&t->members[i].claimed, &before, job))
            continue;
        do_piece(t, i, pieces, member);
        if (atomic_fetch_sub(&t->left, 1) == 1 && atomic_load(&t->caller_sleeps))
            wake_threads(&t->left, 1);
    }
}

static int count_spins(const struct pp_team *t)
{
    return t->spec.crowded ? CROWDED_SPINS : SPINS;
}

/* Waits until a job other than `job` is published, and returns it. */
static uint64_t wait_for_job(struct pp_team *t, uint64_t job)
{
    for (int i = 0; i < count_spins(t); i++) {
        uint64_t now = atomic_load_explicit(&t->job, memory_order_acquire);
        if (now != job)
            return now;
        pp_thread_pause();
    }
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->job) == job)
        sleep_while(&t->bell, (uint32_t)(job / PIECES_MAX));
    atomic_fetch_sub(&t->sleepers, 1);
    return atomic_load(&t->job);
}

static void *serve_jobs(void *arg)
{
    struct member *m = arg;
    struct pp_team *t = m->team;
    if (t->spec.cpus)
        pp_thread_pin(t->spec.cpus[m->number]);
    if (t->spec.begin)
        t->spec.begin();
    for (uint64_t job = 0;;) {
        job = wait_for_job(t, job);
        if (atomic_load(&t->ends))
            return NULL;
        take_pieces(t, job, m->number);
    }
}

/* Publishes a job of `pieces` pieces, wakes at most `most` sleeping members and returns the job. */
static uint64_t publish_job(struct pp_team *t, uint32_t pieces, int most)
{
    uint64_t number = atomic_load_explicit(&t->job, memory_order_relaxed) / PIECES_MAX + 1;
    uint64_t job = number * PIECES_MAX + pieces;
    atomic_store(&t->job, job);
    atomic_store(&t->bell, (uint32_t)number);
    if (atomic_load(&t->sleepers) > 0)
        wake_threads(&t->bell, most);
    return job;
}

static void wait_for_pieces(struct pp_team *t)
{
    for (int i = 0; i < count_spins(t); i++) {
        if (atomic_load_explicit(&t->left, memory_order_acquire) == 0)
            return;
        pp_thread_pause();
    }
    atomic_store(&t->caller_sleeps, 1);
    for (uint32_t left; (left = atomic_load(&t->left)) > 0;)
        sleep_while(&t->left, left);
    atomic_store(&t->caller_sleeps, 0);
}

void pp_team_run(struct pp_team *team, const struct pp_work *work, const void *args)
{
    size_t most = work->cost < PIECE_NS ? 1 : (size_t)(work->cost / PIECE_NS);
    if (!team || most < 2 || work->units <= work->grain) {
        struct pp_piece all = {0, work->units, 0};
        work->fn(args, &all);
        return;
    }
    team->work = *work;
    team->args = args;
    uint32_t threads = (uint32_t)team->spec.threads;
    uint32_t pieces = most < threads ? (uint32_t)most : threads;
    atomic_store_explicit(&team->left, pieces, memory_order_relaxed);
    take_pieces(team, publish_job(team, pieces, (int)pieces - 1), 0);
    wait_for_pieces(team);
}

void pp_team_destroy(struct pp_team **team)
{
    struct pp_team *t = *team;
    if (!t)
        return;
    atomic_store(&t->ends, true);
    publish_job(t, 0, INT_MAX);
    for (int i = 1; i <= t->started; i++)
        pthread_join(t->members[i].thread, NULL);
    free(t);
    *team = NULL;
}

int pp_team_create(const struct pp_team_spec *spec, struct pp_team **out)
{
    size_t bytes = sizeof(struct pp_team) + (size_t)spec->threads * sizeof(struct member);
    struct pp_team *t = aligned_alloc(64, bytes);
    if (!t)
        return pp_fail(PP_ERESOURCE, "out of memory: %zu bytes", bytes);
    memset(t, 0, bytes);
    t->spec = *spec;
    int workers = (spec->threads < spec->processors ? spec->threads : spec->processors) - 1;
    for (int i = 0; i < spec->threads; i++)
        t->members[i] = (struct member){.team = t, .number = i};
    while (t->started < workers) {
        struct member *m = &t->members[t->started + 1];
        int e = pp_thread_start(&m->thread, serve_jobs, m);
        if (e != 0) {
            int rc = pp_fail(PP_ERESOURCE, "cannot start thread %d of run.threads = %d: %s",
                             t->started + 1, spec->threads, strerror(e));
            pp_team_destroy(&t);
            return rc;
        }
        t->started++;
    }
    *out = t;
    return 0;
}
