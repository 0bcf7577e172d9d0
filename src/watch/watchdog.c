/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the ranks of a run. A check costs two loads per rank; processes are examined only if no
 * rank makes progress for run.hang_timeout.
 */
#include "ppcli/watch/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "diagnose.h"
#include "ppcli/ckpt/checkpoint.h"
#include "ticker.h"

#define LOOK_MIN_NS 20000000u
#define LOOK_MAX_NS 500000000u
#define LONG_SET_UP 2
#define LONG 10
#define SEVERAL 3                      /* factor if several ranks may be the culprit */
#define AGAIN 3                        /* factor of the longest silence so far */
#define REPORT_BYTES ((size_t)1 << 20) /* most bytes of hang.txt */
#define SPEAKER_NS 500000000           /* time for the reporting process before the others end */

enum watched_place {
    NOT_HERE, /* a rank of another process, not seen yet */
    EXPECTED, /* of this process, before its first action */
    HERE,     /* of this process */
    BESIDE,   /* of another process on this machine; `opened` is its ring */
    HIDDEN,   /* of another machine */
    LEFT,
};

struct watched {
    enum watched_place place;
    const struct pp_ring *ring;
    struct pp_ring *opened; /* BESIDE: the same ring, owned */
    uint64_t begun, last_end;
    struct ticked thread;
    uint64_t idle_ns; /* time without progress that it could have used */
};

struct pp_watchdog {
    const struct pp_run *run;
    pp_lost *lost;
    FILE *log;
    struct pp_pulse *pulse;
    const volatile sig_atomic_t *stop; /* NULL: never set */
    char host[PP_HOST_MAX];
    struct ticker *ticker;
    uint64_t paused_ns;   /* atomic: time for which the whole process was stopped */
    uint64_t looked_ns;   /* atomic: the last check */
    uint64_t waited_ns;   /* time that the watchdog's own thread had waited for a core at the last
                             check */
    pthread_mutex_t lock; /* protects all members below */
    uint64_t timeout_ns, look_ns, last_look, started_ns;
    uint64_t silence_ns; /* time without progress that continues now */
    uint64_t longest_ns; /* longest time without progress that ended by itself after set-up */
    char dir[PP_PATH_MAX];
    uint32_t machine;
    struct watched *ranks;
    struct pp_diagnosis now;
    char *text; /* [REPORT_BYTES] the report; allocated at the start, because a rank that hangs may
                   hold the allocator */
    FILE *out;  /* writes into `text` */
};

/* ---- checking progress */

/* Opens the ring of a rank in another process of this machine, as soon as the ring exists. */
static void open_ring_beside(struct pp_watchdog *w, int r)
{
    struct watched *k = &w->ranks[r];
    char path[PP_PATH_MAX];
    if (k->place != NOT_HERE || !w->dir[0] || !w->run->mpi ||
        pp_run_dir_ring(w->dir, r, path) < 0 || access(path, R_OK) != 0 ||
        pp_ring_open(path, &k->opened) < 0)
        return;
    const struct pp_ring_head *h = k->opened->head;
    bool same =
        h->machine == w->machine && h->rank == r && strncmp(h->host, w->host, sizeof(h->host)) == 0;
    k->place = same ? BESIDE : HIDDEN;
    if (same) {
        k->ring = k->opened;
        k->thread = (struct ticked){.pid = k->ring->head->pid, .tid = k->ring->head->pid};
    } else {
        pp_ring_destroy(&k->opened);
    }
}

static bool is_watched(const struct watched *k)
{
    return k->place == EXPECTED || k->place == HERE || k->place == BESIDE;
}

static void look_at_rank(struct pp_watchdog *w, int r, uint64_t dt)
{
    struct watched *k = &w->ranks[r];
    open_ring_beside(w, r);
    if (!k->ring) {
        k->idle_ns += k->place == EXPECTED ? ticked_share(&k->thread, dt) : dt;
        return;
    }
    if (k->place == BESIDE && __atomic_load_n(&k->ring->head->ended, __ATOMIC_ACQUIRE)) {
        k->place = LEFT;
        return;
    }
    uint64_t begun = __atomic_load_n(k->ring->begun, __ATOMIC_ACQUIRE);
    uint64_t end = 0;
    if (begun > 0) {
        end = __atomic_load_n(&k->ring->words[((begun - 1) & k->ring->mask) * 4 + 1],
                              __ATOMIC_RELAXED);
    }
    if (begun != k->begun || end != k->last_end) {
        k->begun = begun;
        k->last_end = end;
        k->idle_ns = 0;
    } else {
        k->idle_ns += ticked_share(&k->thread, dt);
    }
}

#define PAUSE_NS 2000000000u /* shorter pauses happen on a crowded machine too */

/* Returns for how long the process was stopped since the last check; 0 if it was not. */
static uint64_t find_pause(const struct pp_watchdog *w, uint64_t now)
{
    uint64_t looked = __atomic_load_n(&w->looked_ns, __ATOMIC_ACQUIRE);
    uint64_t gap = looked > 0 && now > looked ? now - looked : 0;
    return gap >= w->look_ns + PAUSE_NS ? gap - w->look_ns : 0;
}

/* Adds the pause since the last check to the total, unless the watchdog's own thread has only
 * waited for a core. Called in the watchdog's thread. */
static void note_pause(struct pp_watchdog *w, uint64_t now)
{
    uint64_t pause = find_pause(w, now);
    uint64_t waited = pp_thread_time(getpid(), gettid()).waited_ns;
    if (pause >= PAUSE_NS + (waited - w->waited_ns))
        __atomic_fetch_add(&w->paused_ns, pause, __ATOMIC_RELAXED);
    w->waited_ns = waited;
    __atomic_store_n(&w->looked_ns, now, __ATOMIC_RELEASE);
}

uint64_t pp_watchdog_paused_ns(const struct pp_watchdog *w)
{
    return w ? __atomic_load_n(&w->paused_ns, __ATOMIC_RELAXED) + find_pause(w, pp_clock_ns()) : 0;
}

/* Updates all watched ranks and returns the shortest time that one has been without progress; 0 if
 * no rank is watched. */
static uint64_t find_shortest_idle(struct pp_watchdog *w)
{
    uint64_t now = pp_clock_ns();
    uint64_t dt = now - w->last_look;
    w->last_look = now;
    note_pause(w, now);
    /* When the watchdog could not run, the ranks could not either: that time does not count. */
    dt = dt < 2 * w->look_ns ? dt : 2 * w->look_ns;
    uint64_t least = UINT64_MAX;
    bool set_up = true;
    for (int r = 0; r < w->now.ranks; r++) {
        const struct watched *k = &w->ranks[r];
        look_at_rank(w, r, dt);
        if (is_watched(k)) {
            least = k->idle_ns < least ? k->idle_ns : least;
            set_up &= k->begun > 1;
        }
    }
    least = least < UINT64_MAX ? least : 0;
    if (set_up && least < w->silence_ns && w->silence_ns > w->longest_ns)
        w->longest_ns = w->silence_ns;
    w->silence_ns = least;
    return least;
}

static void restart_silence(struct pp_watchdog *w)
{
    w->silence_ns = 0;
    for (int r = 0; r < w->now.ranks; r++)
        w->ranks[r].idle_ns = 0;
}

static void check_ranks(struct pp_watchdog *w)
{
    for (int r = 0; r < w->now.ranks; r++) {
        const struct watched *k = &w->ranks[r];
        struct pp_rank_view *v = &w->now.views[r];
        memset(v, 0, sizeof(*v));
        if (k->ring && k->place != LEFT) {
            pp_rank_look(k->ring, v);
        } else if (k->place == EXPECTED) {
            v->state = PP_RANK_RUNNING;
            v->pid = getpid();
            v->machine = w->machine;
            v->opened_ns = w->started_ns;
        } else if (k->place == LEFT) {
            v->state = PP_RANK_FINISHED;
        }
        if (w->run->seats)
            memcpy(v->host, w->run->seats[r].host_name, sizeof(v->host));
    }
    pp_diagnosis_judge(&w->now);
}

/* ---- deciding */

static bool held_by_debugger(const struct pp_watchdog *w)
{
    for (int r = 0; r < w->now.ranks; r++)
        if (w->now.views[r].state == PP_RANK_TRACED)
            return true;
    return false;
}

/* Returns whether the reader of the output has stopped reading, so that writing blocks; this is not
 * a hang. */
static bool output_is_full(const struct pp_watchdog *w)
{
    struct pollfd fds[2] = {{.fd = fileno(w->log), .events = POLLOUT},
                            {.fd = STDERR_FILENO, .events = POLLOUT}};
    (void)poll(fds, 2, 0);
    return fds[0].revents == 0 || fds[1].revents == 0;
}

/* Returns how many times run.hang_timeout the action of the culprit may take. */
static uint64_t times_timeout(const struct pp_watchdog *w)
{
    if (w->now.verdict == PP_VERDICT_UNSEEN)
        return LONG;
    if (w->now.verdict != PP_VERDICT_HANGS)
        return 1;
    const struct pp_rank_view *v = &w->now.views[w->now.culprit];
    const struct pp_event *e = pp_rank_current(v);
    if (v->n == 0 || (e && e->kind == PP_EVENT_START))
        return LONG_SET_UP;
    bool first = v->begun <= pp_exec_events_per_step(w->run->layout);
    return first || !e || e->kind == PP_EVENT_SAVE || e->kind == PP_EVENT_REPORT ? LONG : 1;
}

static uint64_t find_time_limit(const struct pp_watchdog *w)
{
    uint64_t times = times_timeout(w), learnt = AGAIN * w->longest_ns;
    if (w->now.verdict == PP_VERDICT_HANGS && w->now.suspects > 1 && times < SEVERAL)
        times = SEVERAL;
    uint64_t limit = w->timeout_ns * times;
    bool runs = w->now.verdict == PP_VERDICT_HANGS || w->now.verdict == PP_VERDICT_UNSEEN;
    return runs && learnt > limit ? learnt : limit;
}

/* Returns whether the run hangs and must be ended. */
static bool run_hangs(struct pp_watchdog *w)
{
    uint64_t idle = find_shortest_idle(w), soon = w->timeout_ns;
    bool hurry = w->stop && *w->stop != 0 && soon > PP_HURRY_NS;
    soon = hurry ? PP_HURRY_NS : soon;
    if (idle < soon)
        return false;
    check_ranks(w);
    if (hurry && w->now.verdict == PP_VERDICT_GONE)
        return true;
    if (idle < w->timeout_ns)
        return false;
    if (held_by_debugger(w)) {
        restart_silence(w);
        return false;
    }
    if (w->now.verdict == PP_VERDICT_NONE || idle < find_time_limit(w))
        return false;
    const struct pp_event *e =
        w->now.culprit >= 0 ? pp_rank_current(&w->now.views[w->now.culprit]) : NULL;
    if (e && e->kind == PP_EVENT_REPORT && w->ranks[w->now.culprit].place == HERE &&
        output_is_full(w)) {
        restart_silence(w);
        return false;
    }
    return true;
}

/* ---- the end */

/* Creates hang.txt, so that only one process of the run reports. Returns its descriptor, -1 if
 * another process has created the file, or -2 if it cannot be created. */
static int claim_report(const struct pp_watchdog *w)
{
    char path[PP_PATH_MAX];
    if (!w->dir[0] || pp_path_format(path, "%s/hang.txt", w->dir) < 0)
        return -2;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    return fd >= 0 ? fd : errno == EEXIST ? -1 : -2;
}

static size_t bytes_written(FILE *f)
{
    fflush(f);
    long n = ftell(f);
    return n > 0 ? (size_t)n : 0;
}

/* Reports the hang and ends the process; returns only if `lost` returns. */
static void report_hang(struct pp_watchdog *w)
{
    int fd = claim_report(w);
    if (fd == -1) {
        pp_clock_nap(SPEAKER_NS);
        w->lost(NULL);
        return;
    }
    pp_diagnosis_print(&w->now, w->dir, w->out);
    size_t box = bytes_written(w->out);
    if (fd >= 0) {
        fputc('\n', w->out);
        pp_diagnosis_print_ranks(&w->now, w->out);
        size_t all = bytes_written(w->out);
        (void)!write(fd, w->text, all);
        close(fd);
    }
    w->text[box < REPORT_BYTES ? box : REPORT_BYTES - 1] = '\0';
    w->lost(w->text);
}

/* Sends the current action of this process's ranks to the other hosts. */
static void send_action(struct pp_watchdog *w)
{
    for (int r = 0; w->pulse && r < w->now.ranks; r++) {
        char text[PP_DIAGNOSIS_TEXT];
        struct pp_rank_view *v = &w->now.views[r];
        if (w->ranks[r].place != HERE)
            continue;
        pp_rank_look(w->ranks[r].ring, v);
        uint64_t idle_ns;
        bool waits = pp_rank_waits(v, &idle_ns);
        pp_pulse_say(w->pulse, waits, idle_ns, pp_diagnosis_action(&w->now, r, text));
    }
}

static bool check_run(void *ctx)
{
    struct pp_watchdog *w = ctx;
    pthread_mutex_lock(&w->lock);
    bool end = run_hangs(w);
    send_action(w);
    if (end)
        report_hang(w);
    pthread_mutex_unlock(&w->lock);
    return !end;
}

/* ---- life */

static void destroy_watchdog(struct pp_watchdog *w)
{
    if (w->out)
        fclose(w->out);
    for (int r = 0; w->ranks && r < w->now.ranks; r++)
        pp_ring_destroy(&w->ranks[r].opened);
    pthread_mutex_destroy(&w->lock);
    pp_diagnosis_fini(&w->now);
    pp_free(w->ranks);
    pp_free(w->text);
    pp_free(w);
}

int pp_watchdog_start(const struct pp_run *run, pp_lost *lost, FILE *log, struct pp_pulse *pulse,
                      struct pp_watchdog **out)
{
    double seconds = run->cfg->run.hang_timeout;
    *out = NULL;
    if (seconds <= 0 || !lost)
        return 0;
    struct pp_watchdog *w;
    PP_ALLOC(w, 1);
    w->run = run;
    w->lost = lost;
    w->log = log;
    w->pulse = pulse;
    pp_host_name(w->host);
    w->timeout_ns = (uint64_t)(seconds * 1e9);
    w->look_ns = w->timeout_ns / 10;
    w->look_ns = w->look_ns < LOOK_MIN_NS ? LOOK_MIN_NS : w->look_ns;
    w->look_ns = w->look_ns > LOOK_MAX_NS ? LOOK_MAX_NS : w->look_ns;
    w->started_ns = pp_clock_ns();
    uint64_t ignored;
    pp_process_self(&ignored, &w->machine);
    pthread_mutex_init(&w->lock, NULL);
    int rc =
        pp_diagnosis_init(&w->now, run->layout, run->cfg->run.hang_timeout, run->layout->ranks);
    w->ranks = pp_alloc((size_t)run->layout->ranks, sizeof(*w->ranks));
    w->text = pp_alloc(REPORT_BYTES, 1);
    if (rc == 0 && (!w->ranks || !w->text))
        rc = PP_ERESOURCE;
    if (rc == 0 && !(w->out = fmemopen(w->text, REPORT_BYTES, "w")))
        rc = pp_fail_errno(PP_ERESOURCE, "no memory for the watchdog");
    if (rc == 0) {
        for (int r = 0; !run->mpi && r < run->layout->ranks; r++)
            w->ranks[r].place = EXPECTED;
        w->last_look = pp_clock_ns();
        rc = ticker_start(w->look_ns, check_run, w, &w->ticker);
    }
    PP_TRY_UNDO(rc, destroy_watchdog(w));
    *out = w;
    return 0;
}

void pp_watchdog_heed(struct pp_watchdog *w, const volatile sig_atomic_t *stop)
{
    if (w) {
        pthread_mutex_lock(&w->lock);
        w->stop = stop;
        pthread_mutex_unlock(&w->lock);
    }
}

void pp_watchdog_stop(struct pp_watchdog **watchdog)
{
    struct pp_watchdog *w = *watchdog;
    if (!w)
        return;
    ticker_stop(&w->ticker);
    destroy_watchdog(w);
    *watchdog = NULL;
}

static void move_rank(struct pp_watchdog *w, int r, enum watched_place place,
                      const struct pp_ring *ring, const char *dir)
{
    if (w) {
        pthread_mutex_lock(&w->lock);
        w->ranks[r] = (struct watched){.place = place, .ring = ring, .thread = ticked_self()};
        if (dir)
            memcpy(w->dir, dir, strlen(dir) + 1);
        pthread_mutex_unlock(&w->lock);
    }
}

void pp_watchdog_expect(struct pp_watchdog *w, int r)
{
    move_rank(w, r, EXPECTED, NULL, NULL);
}

void pp_watchdog_enter(struct pp_watchdog *w, int r, const struct pp_ring *ring, const char *dir)
{
    move_rank(w, r, HERE, ring, dir);
}

void pp_watchdog_leave(struct pp_watchdog *w, int r)
{
    move_rank(w, r, LEFT, NULL, NULL);
}
