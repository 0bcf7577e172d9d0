/* SPDX-License-Identifier: Apache-2.0 */
/* See lazy.h: streams, marks and captures. Memory is in lazy_memory.c, the ops in lazy_ops.c. */
#include "lazy_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ppcli/base/base.h"

#define HUNG_S 4

#define all lazy_all

struct lazy_all lazy_all = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

struct lazy_counts lazy_counts(void)
{
    pthread_mutex_lock(&all.lock);
    struct lazy_counts c = {all.launches, all.captures, all.host_waits, (long)all.ops};
    pthread_mutex_unlock(&all.lock);
    return c;
}

void lazy_without_graphs(bool without)
{
    all.no_graphs = without;
}

void lazy_fail_at(long n)
{
    pthread_mutex_lock(&all.lock);
    all.fail_at = n > 0 ? all.ops + (uint64_t)n : 0;
    pthread_mutex_unlock(&all.lock);
}

void lazy_hang_at(long n)
{
    pthread_mutex_lock(&all.lock);
    all.hang_at = n > 0 ? all.ops + (uint64_t)n : 0;
    all.hung = n > 0;
    pthread_mutex_unlock(&all.lock);
}

/* ---- doing */

uint32_t lazy_draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* Half of the work is done at once, some after a while. */
static void dawdle(struct lazy *s)
{
    uint32_t r = lazy_draw(&s->seed);
    if (r % 64 == 0) {
        struct timespec t = {.tv_sec = 0, .tv_nsec = (long)(r >> 8) % 100000};
        nanosleep(&t, NULL);
    } else if (r % 4 == 1) {
        sched_yield();
    }
}

void lazy_note_failure(struct lazy *s, int rc)
{
    if (rc < 0 && s->rc == 0) {
        s->error = *pp_error_get();
        s->rc = rc;
    }
}

void lazy_run_item(struct lazy *s, const struct item *it)
{
    if (it->number > 0 && it->number == all.hang_at) {
        pthread_mutex_lock(&all.lock);
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += HUNG_S;
        while (all.hung && pthread_cond_timedwait(&all.changed, &all.lock, &until) == 0) {
        }
        all.hung = false;
        pthread_mutex_unlock(&all.lock);
    }
    if (it->number > 0 && it->number == all.fail_at) {
        lazy_note_failure(s, pp_fail(PP_ERESOURCE, "lazy: told to fail"));
        return;
    }
    if (s->rc == 0) /* after a failure a device does nothing any more */
        lazy_note_failure(s, it->run(s->inner, it->args));
}

static void reach(struct lazy *s, struct lazy_mark *m, uint64_t number)
{
    pthread_mutex_lock(&all.lock);
    m->reached = number;
    if (s->rc < 0)
        m->error = s->error;
    m->at_ns = pp_clock_ns();
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.lock);
}

/* Who waits for work of a stream that has failed, fails: it must not compute with what is not there. */
static void await(struct lazy *s, struct lazy_mark *m, uint64_t number)
{
    pthread_mutex_lock(&all.lock);
    while (m->reached < number)
        pthread_cond_wait(&all.changed, &all.lock);
    if (m->error.code < 0)
        lazy_note_failure(s, pp_error_adopt(&m->error));
    pthread_mutex_unlock(&all.lock);
}

static void *work(void *arg)
{
    struct lazy *s = arg;
    struct pp_backend_choice choice = s->choice;
    extern const struct pp_backend_ops backend_cpu;
    choice.ops = &backend_cpu;
    int rc = pp_backend_open_choice(&choice, &s->inner);
    pthread_mutex_lock(&all.lock);
    lazy_note_failure(s, rc);
    s->started = true;
    pthread_cond_broadcast(&all.changed);
    while (rc == 0) {
        while (s->head == s->tail && !s->stop)
            pthread_cond_wait(&all.changed, &all.lock);
        if (s->head == s->tail)
            break;
        struct item it = s->queue[s->head % s->room];
        pthread_mutex_unlock(&all.lock);
        dawdle(s);
        switch (it.kind) {
        case ITEM_RUN:
            lazy_run_item(s, &it);
            break;
        case ITEM_SET:
            reach(s, it.mark, it.number);
            break;
        case ITEM_WAIT:
            await(s, it.mark, it.number);
            break;
        case ITEM_REPLAY:
            lazy_replay(s, it.capture);
            break;
        }
        pthread_mutex_lock(&all.lock);
        all.pending--;
        s->head++;
        pthread_cond_broadcast(&all.changed);
    }
    pthread_mutex_unlock(&all.lock);
    pp_backend_close(&s->inner);
    return NULL;
}

/* ---- enqueueing */

struct lazy *lazy_of(struct pp_backend *be)
{
    return be->impl;
}

static struct item *grow(struct item **items, int n)
{
    if ((n & (n - 1)) == 0) {
        *items = realloc(*items, (size_t)(n > 0 ? 2 * n : 1) * sizeof(**items));
        pp_assert(*items != NULL);
    }
    return &(*items)[n];
}

/* all.lock is held. */
void lazy_enqueue(struct lazy *s, const struct item *it)
{
    if (s->capture) {
        struct branch *b = &s->capture->streams[s->branch];
        *grow(&b->items, b->n) = *it;
        b->n++;
        b->returned = false;
        return;
    }
    if (s->tail - s->head == s->room) {
        uint64_t room = s->room * 2;
        struct item *queue = malloc(room * sizeof(*queue));
        pp_assert(queue != NULL);
        for (uint64_t k = s->head; k < s->tail; k++)
            queue[k % room] = s->queue[k % s->room];
        free(s->queue);
        s->queue = queue;
        s->room = room;
    }
    s->queue[s->tail % s->room] = *it;
    s->tail++;
    all.pending++;
    pthread_cond_broadcast(&all.changed);
}

int lazy_push(struct pp_backend *be, lazy_run *run, const void *args, size_t bytes)
{
    struct lazy *s = lazy_of(be);
    struct item it = {.kind = ITEM_RUN, .run = run};
    pp_assert(bytes <= sizeof(it.args));
    memcpy(it.args, args, bytes);
    pthread_mutex_lock(&all.lock);
    it.number = ++all.ops;
    bool fails = s->capture && all.ops == all.fail_at;
    lazy_enqueue(s, &it);
    pthread_mutex_unlock(&all.lock);
    return fails ? pp_fail(PP_ERESOURCE, "lazy: told to fail in a capture") : 0;
}

void *lazy_keep(struct pp_backend *be, size_t bytes)
{
    struct lazy *s = lazy_of(be);
    struct kept *k = malloc(sizeof(*k) + 16 + bytes);
    pp_assert(k != NULL);
    k->next = s->kept;
    s->kept = k;
    return (char *)k + 16;
}

static int outside(struct pp_backend *be, const char *what)
{
    if (lazy_of(be)->capture)
        return pp_fail(PP_EINTERNAL, "lazy: %s during a capture", what);
    return 0;
}

int lazy_finish(struct pp_backend *be)
{
    struct lazy *s = lazy_of(be);
    pthread_mutex_lock(&all.lock);
    all.host_waits++;
    while (s->head < s->tail)
        pthread_cond_wait(&all.changed, &all.lock);
    pthread_mutex_unlock(&all.lock);
    return s->rc < 0 ? pp_error_adopt(&s->error) : 0;
}

int lazy_synchronize(struct pp_backend *be)
{
    PP_TRY(outside(be, "synchronize"));
    return lazy_finish(be);
}

int lazy_no_capture(struct pp_backend *be, const char *what)
{
    return outside(be, what);
}

/* ---- marks */

int lazy_mark_create(struct pp_backend *be, bool timed, void **mark)
{
    struct lazy_mark *m = calloc(1, sizeof(*m));
    pp_assert(m != NULL);
    m->timed = timed;
    pthread_mutex_lock(&all.lock);
    m->next = all.marks;
    all.marks = m;
    pthread_mutex_unlock(&all.lock);
    *mark = m;
    return 0;
}

void lazy_mark_destroy(struct pp_backend *be, void *mark)
{
}

int lazy_mark_set(struct pp_backend *be, void *mark)
{
    struct lazy *s = lazy_of(be);
    struct lazy_mark *m = mark;
    pthread_mutex_lock(&all.lock);
    struct item it = {.kind = ITEM_SET, .mark = m};
    m->capture = s->capture;
    m->branch = s->branch;
    if (s->capture) {
        m->node = s->capture->n_nodes++;
        it.number = (uint64_t)m->node;
    } else {
        it.number = ++m->set;
    }
    lazy_enqueue(s, &it);
    if (s->capture)
        m->place = s->capture->streams[s->branch].n;
    pthread_mutex_unlock(&all.lock);
    return 0;
}

/* all.lock is held. A stream joins by waiting for a mark of the capture. */
static int wait_captured(struct lazy *s, struct lazy_mark *m)
{
    struct capture *c = m->capture;
    if (!s->capture) {
        if (!c->open || c->n_streams == CAPTURE_STREAMS)
            return pp_fail(PP_EINTERNAL, "lazy: a wait for a mark of a capture that has ended");
        s->capture = c;
        s->branch = c->n_streams++;
        c->streams[s->branch] = (struct branch){.stream = s};
    }
    if (s->capture != c)
        return pp_fail(PP_EINTERNAL, "lazy: a wait for a mark of another capture");
    struct item it = {.kind = ITEM_WAIT, .number = (uint64_t)m->node};
    lazy_enqueue(s, &it);
    struct branch *of = &c->streams[m->branch];
    if (s->branch == 0 && of->n == m->place)
        of->returned = true;
    return 0;
}

int lazy_mark_wait(struct pp_backend *be, void *mark)
{
    struct lazy *s = lazy_of(be);
    struct lazy_mark *m = mark;
    int rc = 0;
    pthread_mutex_lock(&all.lock);
    if (m->capture) {
        rc = wait_captured(s, m);
    } else if (m->set > 0 && s->capture) {
        rc = pp_fail(PP_EINTERNAL, "lazy: a wait in a capture for a mark from outside");
    } else if (m->set > 0) {
        struct item it = {.kind = ITEM_WAIT, .mark = m, .number = m->set};
        lazy_enqueue(s, &it);
    }
    pthread_mutex_unlock(&all.lock);
    return rc;
}

int lazy_mark_reached(struct pp_backend *be, void *mark, bool *reached)
{
    struct lazy *s = lazy_of(be);
    struct lazy_mark *m = mark;
    PP_TRY(outside(be, "a look at a mark"));
    pthread_mutex_lock(&all.lock);
    int rc = m->capture ? pp_fail(PP_EINTERNAL, "lazy: a look at a mark of a capture") : 0;
    *reached = m->reached == m->set;
    pthread_mutex_unlock(&all.lock);
    return rc < 0 ? rc : s->rc < 0 ? pp_error_adopt(&s->error) : 0;
}

int lazy_mark_elapsed(struct pp_backend *be, void *from, void *to, uint64_t *ns)
{
    const struct lazy_mark *a = from, *b = to;
    pthread_mutex_lock(&all.lock);
    bool ok = a->timed && b->timed && !a->capture && !b->capture && a->set > 0 && b->set > 0 &&
              a->reached == a->set && b->reached == b->set;
    *ns = ok ? b->at_ns - a->at_ns : 0;
    pthread_mutex_unlock(&all.lock);
    return ok ? 0 : pp_fail(PP_EINTERNAL, "lazy: the time between marks that are not reached");
}

/* ---- life */

int lazy_open(struct pp_backend *be, int threads)
{
    struct lazy *s = calloc(1, sizeof(*s));
    pp_assert(s != NULL);
    s->choice = be->choice;
    s->room = 64;
    s->queue = malloc(s->room * sizeof(*s->queue));
    pp_assert(s->queue != NULL);
    static uint64_t opened;
    s->seed = 0x9e3779b97f4a7c15u * (1 + __atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED));
    if (pthread_create(&s->thread, NULL, work, s) != 0) {
        free(s->queue);
        free(s);
        return pp_fail(PP_ERESOURCE, "lazy: no thread");
    }
    pthread_mutex_lock(&all.lock);
    while (!s->started)
        pthread_cond_wait(&all.changed, &all.lock);
    pthread_mutex_unlock(&all.lock);
    be->impl = s;
    be->caps.async = true;
    be->caps.graphs = !all.no_graphs;
    strcpy(be->description, "lazy: a device made of threads");
    return s->rc < 0 ? pp_error_adopt(&s->error) : 0;
}

void lazy_close(struct pp_backend *be)
{
    struct lazy *s = lazy_of(be);
    pthread_mutex_lock(&all.lock);
    s->stop = true;
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.lock);
    pthread_join(s->thread, NULL);
    while (s->kept) {
        struct kept *next = s->kept->next;
        free(s->kept);
        s->kept = next;
    }
    free(s->queue);
    free(s);
}
