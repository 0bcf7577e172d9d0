/* SPDX-License-Identifier: Apache-2.0 */
/* See fault.h. The list is read from the environment once, when the first action begins. */
#include "fault.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

#define FAULTS_MAX 32
#define ANY (-1)

enum action {
    HANG,
    SLEEP,
    KILL,
    STOP,
    HOLD,
    WRONG_NAN,
    WRONG_INF,
    WRONG_BIT
};

static struct fault {
    int kind, rank;
    long count; /* ANY: every one */
    enum action action;
    long ms;          /* of SLEEP; of WRONG_BIT the bit */
    atomic_long seen; /* with rank = ANY: counted over all ranks of the process */
} faults[FAULTS_MAX];
static int n_faults;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Wrong numbers are due in the action that this thread has begun. */
static _Thread_local const struct fault *wrong;
static _Thread_local int rank_here = -1; /* of this thread, once an action of it has begun */

static void refuse(const char *text)
{
    fprintf(stderr, "PPCLI_FAIL: '%s' is not SITE@RANK:COUNT=ACTION\n", text);
    _exit(64);
}

static const char *site_name(int site)
{
    static const char *const phases[] = {"settle", "data",   "init",   "resume",
                                         "test",   "commit", "finish", "finalize"};
    return site < PP_EVENT_KINDS ? pp_event_name(site) : phases[site - PP_EVENT_KINDS];
}

static bool number(const char *text, long *out)
{
    char *end;
    if (strcmp(text, "*") == 0) {
        *out = ANY;
        return true;
    }
    *out = strtol(text, &end, 10);
    return end > text && *end == '\0' && *out >= 0;
}

static void read_one(const char *text, struct fault *f)
{
    char site[16], rank[16], count[16], action[16];
    long r = 0;
    if (sscanf(text, "%15[^@]@%15[^:]:%15[^=]=%15s", site, rank, count, action) != 4 ||
        !number(rank, &r) || !number(count, &f->count) || f->count == 0)
        refuse(text);
    f->rank = (int)r;
    while (f->kind < FAULT_SITES && strcmp(site_name(f->kind), site) != 0)
        f->kind++;
    if (strcmp(action, "hang") == 0)
        f->action = HANG;
    else if (strcmp(action, "kill") == 0)
        f->action = KILL;
    else if (strcmp(action, "stop") == 0)
        f->action = STOP;
    else if (strcmp(action, "hold") == 0)
        f->action = HOLD;
    else if (strcmp(action, "nan") == 0)
        f->action = WRONG_NAN;
    else if (strcmp(action, "inf") == 0)
        f->action = WRONG_INF;
    else if (sscanf(action, "flip:%ld", &f->ms) == 1 && f->ms >= 0 && f->ms < 32)
        f->action = WRONG_BIT;
    else if (sscanf(action, "sleep:%ld", &f->ms) == 1 && f->ms >= 0)
        f->action = SLEEP;
    else
        refuse(text);
    bool numbers = f->kind == PP_EVENT_F || f->kind == PP_EVENT_I || f->kind == PP_EVENT_W;
    if (f->kind == FAULT_SITES || (f->action >= WRONG_NAN && !numbers))
        refuse(text);
}

static void read_list(void)
{
    const char *value = getenv("PPCLI_FAIL");
    char *list = strdup(value ? value : ""), *rest = NULL;
    for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (n_faults == FAULTS_MAX)
            refuse(one);
        read_one(one, &faults[n_faults++]);
    }
    free(list);
}

static void note(void)
{
    const char *path = getenv("PPCLI_FAIL_NOTE");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        char line[32];
        int n = snprintf(line, sizeof(line), "%ld\n", (long)getpid());
        if (write(fd, line, (size_t)n) != n)
            _exit(125);
        close(fd);
    }
}

static void nap(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void go_wrong(const struct fault *f)
{
    sig_atomic_t saves = pp_process_save;
    note();
    switch (f->action) {
    case HANG:
        for (;;)
            pause();
    case SLEEP:
        nap(f->ms);
        break;
    case KILL:
        raise(SIGKILL);
        break;
    case STOP:
        kill(getpid(), SIGSTOP);
        break;
    case HOLD:
        while (pp_process_stop == 0 && pp_process_save == saves)
            nap(1);
        break;
    case WRONG_NAN:
    case WRONG_INF:
    case WRONG_BIT:
        wrong = f;
        break;
    }
}

void fault_numbers(float *row, int n)
{
    if (wrong && wrong->action == WRONG_BIT) {
        uint32_t bits;
        memcpy(&bits, row, sizeof(bits));
        bits ^= (uint32_t)1 << wrong->ms;
        memcpy(row, &bits, sizeof(bits));
    }
    for (int i = 0; wrong && wrong->action != WRONG_BIT && i < n; i++)
        row[i] = wrong->action == WRONG_NAN ? NAN : INFINITY;
    wrong = NULL;
}

static void look(int site, int rank)
{
    pthread_once(&once, read_list);
    for (int i = 0; i < n_faults; i++) {
        struct fault *f = &faults[i];
        if (f->kind == site && (f->rank == ANY || f->rank == rank)) {
            long nth = atomic_fetch_add(&f->seen, 1) + 1;
            if (f->count == ANY || f->count == nth)
                go_wrong(f);
        }
    }
}

/* Before a rank's first action its launcher knows which one it is; threads are not there yet. */
void fault_at(int site)
{
    const char *given = getenv("OMPI_COMM_WORLD_RANK");
    look(site, rank_here >= 0 ? rank_here : given ? atoi(given) : 0);
}

void __wrap_pp_ring_begin(struct pp_ring *ring, const struct pp_event *e)
{
    __real_pp_ring_begin(ring, e);
    rank_here = ring->head->rank;
    look(e->kind, rank_here);
}
