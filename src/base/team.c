/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job is published by its number. A piece is claimed by writing that number over the one before,
 * so whoever comes late claims nothing; and while a claimed piece is not done, the job stays as it
 * is. A member sleeps on the number with `sleepers` raised first, and the caller reads `sleepers`
 * after it has written the number: one of the two sees the other (all are sequentially consistent).
 */
#include "ppcli/team.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ppcli/err.h"
#include "ppcli/thread.h"

/* A wake-up costs both sides some microseconds: what is shorter is done alone. */
#define PIECE_NS 6000.0
/* A pause takes 15 to 45 ns: about 100 us. Between two kernels of a step there is less. */
#define SPINS 3000
#define CROWDED_SPINS 40 /* more members than processors: another one may need this one */

struct member {
    _Alignas(64) _Atomic uint32_t claimed; /* the last job of which somebody took this piece */
    struct pp_team *team;
    pthread_t thread;
    int number;
};

struct pp_team {
    _Alignas(64) _Atomic uint32_t job; /* its number */
    _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic uint32_t left; /* pieces that are not done */
    _Atomic uint32_t caller_sleeps;
    /* written while no piece is claimed, read while one is */
    _Alignas(64) struct pp_work work;
    const void *args;
    size_t pieces;
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

static void wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void do_piece(const struct pp_team *t, size_t i, int member)
{
    /* grains as equal as can be */
    size_t grain = t->work.grain ? t->work.grain : 1, n = (t->work.units + grain - 1) / grain;
    struct pp_piece piece = {n * i / t->pieces * grain, n * (i + 1) / t->pieces * grain, member};
    piece.to = piece.to < t->work.units ? piece.to : t->work.units;
    if (i < t->pieces && piece.from < piece.to)
        t->work.fn(t->args, &piece);
}

/* Whatever nobody has begun, the member's own piece first. */
static void take_pieces(struct pp_team *t, uint32_t job, int member)
{
    for (int k = 0; k < t->spec.threads; k++) {
        int i = (member + k) % t->spec.threads;
        uint32_t before = atomic_load_explicit(&t->members[i].claimed, memory_order_relaxed);
        if ((int32_t)(job - before) <= 0 ||
            !atomic_compare_exchange_strong(&t->members[i].claimed, &before, job))
            continue;
        do_piece(t, (size_t)i, member);
        if (atomic_fetch_sub(&t->left, 1) == 1 && atomic_load(&t->caller_sleeps))
            wake_all(&t->left);
    }
}

static int spins(const struct pp_team *t)
{
    return t->spec.crowded ? CROWDED_SPINS : SPINS;
}

/* Waits for the job after `job`. */
static uint32_t next_job(struct pp_team *t, uint32_t job)
{
    for (int i = 0; i < spins(t); i++) {
        uint32_t now = atomic_load_explicit(&t->job, memory_order_acquire);
        if (now != job)
            return now;
        pp_thread_pause();
    }
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->job) == job)
        sleep_while(&t->job, job);
    atomic_fetch_sub(&t->sleepers, 1);
    return atomic_load(&t->job);
}

static void *serve(void *arg)
{
    struct member *m = arg;
    struct pp_team *t = m->team;
    if (t->spec.cpus)
        pp_thread_pin(t->spec.cpus[m->number]);
    if (t->spec.begin)
        t->spec.begin();
    for (uint32_t job = 0;;) {
        job = next_job(t, job);
        if (atomic_load(&t->ends))
            return NULL;
        take_pieces(t, job, m->number);
    }
}

static void publish_job(struct pp_team *t)
{
    atomic_fetch_add(&t->job, 1);
    if (atomic_load(&t->sleepers) > 0)
        wake_all(&t->job);
}

static void wait_for_pieces(struct pp_team *t)
{
    for (int i = 0; i < spins(t); i++) {
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
    team->pieces = most < (size_t)team->spec.threads ? most : (size_t)team->spec.threads;
    atomic_store_explicit(&team->left, (uint32_t)team->spec.threads, memory_order_relaxed);
    publish_job(team);
    take_pieces(team, atomic_load_explicit(&team->job, memory_order_relaxed), 0);
    wait_for_pieces(team);
}

void pp_team_destroy(struct pp_team **team)
{
    struct pp_team *t = *team;
    if (!t)
        return;
    atomic_store(&t->ends, true);
    publish_job(t);
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
        int e = pp_thread_start(&m->thread, serve, m);
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
