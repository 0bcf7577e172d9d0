/* SPDX-License-Identifier: Apache-2.0 */
/* Ends processes that hang before or after the watchdog's time; see ppcli/watch/watch.h. */
#include "ppcli/watch/watch.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ticker.h"

#define LOOK_NS ((uint64_t)PP_PULSE_EVERY_NS)
#define WAITS_NS 1000000000u /* a rank counts as waiting for this long, also on a crowded machine */
#define OTHERS_NS 1000000000 /* lets a rank that does not wait report first */
/* delay from one rank to the next, if it is unknown which rank hangs */
#define NEXT_NS 500000000
#define NEXT_MAX 10
#define TEXT 512
#define COMPANY_MAX 256
#define COMPANY_LOOKS 4 /* ticks between two readings of the company's times */

struct phase {
    int times, seconds; /* limit: `times` run.hang_timeout plus `seconds` */
    bool together;      /* it ends for all ranks when the last one has reached it */
    const char *what, *likely;
};

static const struct phase phases[PP_DEADLINE_PHASES] = {
    [PP_DEADLINE_MPI_START] =
        {2, 10, true, "the start of MPI",
         "a process of the run has not started, is stopped, or cannot be reached"},
    [PP_DEADLINE_PREPARE] =
        {10, 10, false, "set-up, before the data is read",
         "slow or absent storage; or measuring for an open schedule, on a machine "
         "that others use"},
    [PP_DEADLINE_DATA] = {2, 0, false, "reading the data", "slow or absent storage"},
    [PP_DEADLINE_MPI_END] = {2, 10, true, "MPI_Finalize",
                             "a process of the run is stopped or was lost"},
};

/* The launcher of this rank, or a process that the launcher started on this host. */
struct member {
    struct ticked thread;
    uint64_t used_ns; /* time that it could have used in this phase */
};

struct pp_deadline {
    pp_lost *lost;
    uint64_t timeout_ns;
    int rank;
    uint64_t waited_ns; /* written by the transport */
    struct ticker *ticker;
    pthread_mutex_t lock; /* protects all members below */
    struct pp_pulse *pulse;
    struct pp_listener *listener;
    const volatile sig_atomic_t *stop; /* NULL: never set */
    enum pp_deadline_phase phase;
    struct ticked thread;
    uint64_t last_look, used_ns; /* used_ns: of this phase */
    struct member company[COMPANY_MAX];
    int n_company, looks;
    uint64_t company_dt; /* time since the company was read last */
    char text[16 * COMPANY_MAX];
};

/* Reports the hang and ends the process: returns only if `lost` returns. */
static void report_deadline(const struct pp_deadline *d, const struct phase *p, bool waits)
{
    char text[TEXT], who[64];
    int before_me = d->rank < NEXT_MAX ? d->rank : NEXT_MAX;
    snprintf(who, sizeof(who), "rank %d (pid %ld)", d->rank, (long)getpid());
    if (p->together || waits)
        pp_clock_nap((waits ? OTHERS_NS : 0) + (long)before_me * NEXT_NS);
    double seconds = (double)d->used_ns * 1e-9;
    if (waits) {
        snprintf(text, sizeof(text),
                 "%s has waited for %.1f s in %s, for a rank that does not say why: its process is "
                 "stopped or cannot be reached; if it is only slow: raise run.hang_timeout\n",
                 who, seconds, p->what);
    } else {
        snprintf(text, sizeof(text),
                 "%s %s %s, for %.1f s; likely: %s; if it is only slow: raise "
                 "run.hang_timeout\n",
                 who, p->together ? "does not get past" : "hangs in", p->what, seconds, p->likely);
    }
    d->lost(text);
}

/* Exchanges heartbeats with other hosts, and ends the process if one of them is lost. */
static void exchange_heartbeats(struct pp_deadline *d)
{
    char text[PP_PULSE_TEXT + 1];
    if (d->stop && *d->stop != 0) {
        pp_listener_hurry(d->listener);
        pp_pulse_hurry(d->pulse);
    }
    if (pp_listener_find_loss(d->listener, text)) {
        pp_listener_end(d->listener);
        d->lost(strcat(text, "\n"));
    }
    enum pp_pulse_news news = pp_pulse_beat(d->pulse, text);
    if (news != PP_PULSE_WELL)
        d->lost(news == PP_PULSE_LOST ? strcat(text, "\n") : NULL);
}

static struct member *find_member(struct pp_deadline *d, long pid)
{
    for (int i = 0; i < d->n_company; i++)
        if (d->company[i].thread.pid == pid)
            return &d->company[i];
    if (d->n_company == COMPANY_MAX)
        return NULL;
    struct member *m = &d->company[d->n_company++];
    *m = (struct member){.thread = {.pid = pid, .tid = pid, .last = pp_thread_time(pid, pid)}};
    return m;
}

/* Returns the process ids of the launcher and its children, as a text in d->text. Allocates no
 * memory. */
static const char *list_company(struct pp_deadline *d)
{
    char path[64];
    const long launcher = (long)getppid();
    size_t used = (size_t)snprintf(d->text, sizeof(d->text), "%ld ", launcher);
    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", launcher, launcher);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, d->text + used, sizeof(d->text) - 1 - used) : -1;
    if (fd >= 0)
        close(fd);
    d->text[used + (n > 0 ? (size_t)n : 0)] = '\0';
    return d->text;
}

/* Adds `dt` to the time that the launcher and its other processes could have computed in, and
 * returns the time of the one with least: a rank that waits for others does not hang if one of
 * these had no core. */
static uint64_t count_company(struct pp_deadline *d, uint64_t dt)
{
    d->company_dt += dt;
    if (++d->looks % COMPANY_LOOKS == 0) {
        char *end;
        for (const char *p = list_company(d); *p; p = *end ? end + 1 : end) {
            long pid = strtol(p, &end, 10);
            struct member *m = end > p && pid != getpid() ? find_member(d, pid) : NULL;
            if (m)
                m->used_ns += ticked_share(&m->thread, d->company_dt);
        }
        d->company_dt = 0;
    }
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < d->n_company; i++)
        least = d->company[i].used_ns < least ? d->company[i].used_ns : least;
    return d->n_company > 0 ? least : 0;
}

static bool check_deadline(void *ctx)
{
    struct pp_deadline *d = ctx;
    pthread_mutex_lock(&d->lock);
    exchange_heartbeats(d);
    uint64_t now = pp_clock_ns(), dt = now - d->last_look;
    const struct phase *p = &phases[d->phase];
    uint64_t limit =
        (uint64_t)p->times * d->timeout_ns + (uint64_t)p->seconds * (uint64_t)1000000000;
    d->last_look = now;
    bool over = false;
    if (d->phase != PP_DEADLINE_NONE) {
        /* When this thread could not run, the watched thread could not either. */
        dt = dt < 2 * LOOK_NS ? dt : 2 * LOOK_NS;
        d->used_ns += ticked_share(&d->thread, dt);
        over = d->used_ns > limit && (!pp_mpi_launched() || count_company(d, dt) > limit);
    }
    if (over) {
        uint64_t waited = __atomic_load_n(&d->waited_ns, __ATOMIC_RELAXED);
        /* `now` may be earlier than waited */
        report_deadline(d, p, !p->together && waited > 0 && now < waited + WAITS_NS);
    }
    pthread_mutex_unlock(&d->lock);
    return !over;
}

int pp_deadline_start(const struct pp_config *cfg, pp_lost *lost, struct pp_deadline **out)
{
    *out = NULL;
    if (cfg->run.hang_timeout <= 0 || !lost)
        return 0;
    struct pp_deadline *d;
    PP_ALLOC(d, 1);
    d->lost = lost;
    d->timeout_ns = (uint64_t)(cfg->run.hang_timeout * 1e9);
    d->rank = pp_mpi_given_rank();
    d->thread = ticked_self();
    d->last_look = pp_clock_ns();
    pthread_mutex_init(&d->lock, NULL);
    PP_TRY_UNDO(ticker_start(LOOK_NS, check_deadline, d, &d->ticker), pp_deadline_stop(&d));
    *out = d;
    return 0;
}

void pp_deadline_stop(struct pp_deadline **deadline)
{
    struct pp_deadline *d = *deadline;
    if (d) {
        ticker_stop(&d->ticker);
        pthread_mutex_destroy(&d->lock);
        pp_free(d);
        *deadline = NULL;
    }
}

void pp_deadline_beat(struct pp_deadline *d, struct pp_pulse *pulse, struct pp_listener *listener)
{
    if (d) {
        pthread_mutex_lock(&d->lock);
        d->pulse = pulse;
        d->listener = listener;
        pthread_mutex_unlock(&d->lock);
    }
}

void pp_deadline_heed(struct pp_deadline *d, const volatile sig_atomic_t *stop)
{
    if (d) {
        pthread_mutex_lock(&d->lock);
        d->stop = stop;
        pthread_mutex_unlock(&d->lock);
    }
}

void pp_deadline_enter(struct pp_deadline *d, enum pp_deadline_phase phase)
{
    if (d) {
        pthread_mutex_lock(&d->lock);
        d->phase = phase;
        d->used_ns = d->company_dt = 0;
        d->n_company = 0;
        d->last_look = pp_clock_ns();
        pthread_mutex_unlock(&d->lock);
    }
}

void pp_deadline_watch_waits(struct pp_deadline *d, struct pp_transport *tp)
{
    pp_transport_show_waits(tp, d ? &d->waited_ns : NULL);
}
