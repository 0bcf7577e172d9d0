/* SPDX-License-Identifier: Apache-2.0 */
/* See lazy.h: streams, marks and captures. Memory is in lazy_memory.c, the ops in lazy_ops.c. */
#include "lazy_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ppcli/clock.h"
#include "ppcli/err.h"

#define HUNG_S 5

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a mark, a queue, or hung */
    long captures, launches, host_waits;
    uint64_t ops;
    uint64_t fail_at, hang_at; /* counted by ops */
    bool hung, no_graphs;
    struct lazy_mark *marks; /* never freed before the end: a stream may still wait for one */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

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

/* --- doing -------------------------------------------------------------------------------------
 */

static uint32_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* Half of the work is done at once, some after a while. */
static void dawdle(struct lazy *s)
{
    uint32_t r = draw(&s->seed);
    if (r % 64 == 0) {
        struct timespec t = {.tv_sec = 0, .tv_nsec = (long)(r >> 8) % 100000};
        nanosleep(&t, NULL);
    } else if (r % 4 == 1) {
        sched_yield();
    }
}

static void note_failure(struct lazy *s, int rc)
{
    if (rc < 0 && s->rc == 0) {
        s->error = *pp_error_get();
        s->rc = rc;
    }
}

static void run_item(struct lazy *s, const struct item *it)
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
        note_failure(s, pp_fail(PP_ERESOURCE, "lazy: told to fail"));
        return;
    }
    if (s->rc == 0) { /* after a failure a device does nothing any more */
        note_failure(s, it->run(s->inner, it->args));
    }
}

static void reach(struct lazy_mark *m, uint64_t number)
{
    pthread_mutex_lock(&all.lock);
    m->reached = number;
    m->at_ns = pp_clock_ns();
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.lock);
}

static void await(struct lazy_mark *m, uint64_t number)
{
    pthread_mutex_lock(&all.lock);
    while (m->reached < number) {
        pthread_cond_wait(&all.changed, &all.lock);
    }
    pthread_mutex_unlock(&all.lock);
}

/* Of the streams whose next piece of work may be done, any: what marks do not order has no order.
 */
static void replay(struct lazy *s, struct capture *c)
{
    int left = 0;
    for (int k = 0; k < c->n_streams; k++) {
        c->streams[k].done = 0;
        left += c->streams[k].n;
    }
    for (int k = 0; k < c->n_nodes; k++) {
        c->reached[k] = false;
    }
    while (left > 0) {
        int at = (int)(draw(&s->seed) % (uint32_t)c->n_streams), tried = 0;
        for (; tried < c->n_streams; tried++, at = (at + 1) % c->n_streams) {
            const struct branch *b = &c->streams[at];
            if (b->done < b->n &&
                (b->items[b->done].kind != ITEM_WAIT || c->reached[b->items[b->done].number])) {
                break;
            }
        }
        if (tried == c->n_streams) {
            note_failure(s, pp_fail(PP_EINTERNAL, "lazy: the graph waits for itself"));
            return;
        }
        struct branch *b = &c->streams[at];
        const struct item *it = &b->items[b->done++];
        if (it->kind == ITEM_SET) {
            c->reached[it->number] = true;
        } else if (it->kind == ITEM_RUN) {
            struct item now = *it;
            now.number = 0;
            run_item(s, &now);
        }
        left--;
    }
}

static void *work(void *arg)
{
    struct lazy *s = arg;
    struct pp_backend_choice choice = s->choice;
    extern const struct pp_backend_ops backend_cpu;
    choice.ops = &backend_cpu;
    int rc = pp_backend_open_choice(&choice, &s->inner);
    pthread_mutex_lock(&all.lock);
    note_failure(s, rc);
    s->started = true;
    pthread_cond_broadcast(&all.changed);
    while (rc == 0) {
        while (s->head == s->tail && !s->stop) {
            pthread_cond_wait(&all.changed, &all.lock);
        }
        if (s->head == s->tail) {
            break;
        }
        struct item it = s->queue[s->head % s->room];
        pthread_mutex_unlock(&all.lock);
        dawdle(s);
        switch (it.kind) {
        case ITEM_RUN:
            run_item(s, &it);
            break;
        case ITEM_SET:
            reach(it.mark, it.number);
            break;
        case ITEM_WAIT:
            await(it.mark, it.number);
            break;
        case ITEM_REPLAY:
            replay(s, it.capture);
            break;
        }
        pthread_mutex_lock(&all.lock);
        s->head++;
        pthread_cond_broadcast(&all.changed);
    }
    pthread_mutex_unlock(&all.lock);
    pp_backend_close(&s->inner);
    return NULL;
}

/* --- enqueueing --------------------------------------------------------------------------------
 */

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
static void push(struct lazy *s, const struct item *it)
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
        for (uint64_t k = s->head; k < s->tail; k++) {
            queue[k % room] = s->queue[k % s->room];
        }
        free(s->queue);
        s->queue = queue;
        s->room = room;
    }
    s->queue[s->tail % s->room] = *it;
    s->tail++;
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
    push(s, &it);
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
    if (lazy_of(be)->capture) {
        return pp_fail(PP_EINTERNAL, "lazy: %s during a capture", what);
    }
    return 0;
}

static int finish(struct pp_backend *be)
{
    struct lazy *s = lazy_of(be);
    pthread_mutex_lock(&all.lock);
    all.host_waits++;
    while (s->head < s->tail) {
        pthread_cond_wait(&all.changed, &all.lock);
    }
    pthread_mutex_unlock(&all.lock);
    return s->rc < 0 ? pp_error_adopt(&s->error) : 0;
}

int lazy_synchronize(struct pp_backend *be)
{
    PP_TRY(outside(be, "synchronize"));
    return finish(be);
}

int lazy_no_capture(struct pp_backend *be, const char *what)
{
    return outside(be, what);
}

/* --- marks -------------------------------------------------------------------------------------
 */

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
    push(s, &it);
    if (s->capture) {
        m->place = s->capture->streams[s->branch].n;
    }
    pthread_mutex_unlock(&all.lock);
    return 0;
}

/* all.lock is held. A stream joins by waiting for a mark of the capture. */
static int wait_captured(struct lazy *s, struct lazy_mark *m)
{
    struct capture *c = m->capture;
    if (!s->capture) {
        if (!c->open || c->n_streams == CAPTURE_STREAMS) {
            return pp_fail(PP_EINTERNAL, "lazy: a wait for a mark of a capture that has ended");
        }
        s->capture = c;
        s->branch = c->n_streams++;
        c->streams[s->branch] = (struct branch){.stream = s};
    }
    if (s->capture != c) {
        return pp_fail(PP_EINTERNAL, "lazy: a wait for a mark of another capture");
    }
    struct item it = {.kind = ITEM_WAIT, .number = (uint64_t)m->node};
    push(s, &it);
    struct branch *of = &c->streams[m->branch];
    if (s->branch == 0 && of->n == m->place) {
        of->returned = true;
    }
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
        push(s, &it);
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

/* --- captures ----------------------------------------------------------------------------------
 */

int lazy_capture_begin(struct pp_backend *be)
{
    struct lazy *s = lazy_of(be);
    PP_TRY(outside(be, "a capture"));
    struct capture *c = calloc(1, sizeof(*c));
    pp_assert(c != NULL);
    pthread_mutex_lock(&all.lock);
    c->open = true;
    c->thread = pthread_self();
    c->n_streams = 1;
    c->streams[0] = (struct branch){.stream = s};
    s->capture = c;
    s->branch = 0;
    pthread_mutex_unlock(&all.lock);
    return 0;
}

static void free_capture(struct capture *c)
{
    static struct capture ended; /* what its marks belong to from here on */
    pthread_mutex_lock(&all.lock);
    for (struct lazy_mark *m = all.marks; m; m = m->next) {
        m->capture = m->capture == c ? &ended : m->capture;
    }
    pthread_mutex_unlock(&all.lock);
    for (int k = 0; k < c->n_streams; k++) {
        free(c->streams[k].items);
    }
    free(c->reached);
    free(c);
}

int lazy_capture_end(struct pp_backend *be, void **graph)
{
    struct lazy *s = lazy_of(be);
    struct capture *c = s->capture;
    int rc = 0;
    if (!c || s->branch != 0 || !pthread_equal(c->thread, pthread_self())) {
        return pp_fail(PP_EINTERNAL, "lazy: the end of a capture that this thread did not begin");
    }
    pthread_mutex_lock(&all.lock);
    for (int k = 1; k < c->n_streams; k++) {
        if (!c->streams[k].returned && rc == 0) {
            rc = pp_fail(PP_EINTERNAL, "lazy: stream %d has not come back to the capture", k);
        }
    }
    for (int k = 0; k < c->n_streams; k++) {
        c->streams[k].stream->capture = NULL;
    }
    c->open = false;
    all.captures += rc == 0;
    pthread_mutex_unlock(&all.lock);
    c->reached = calloc((size_t)c->n_nodes + 1, sizeof(*c->reached));
    pp_assert(c->reached != NULL);
    if (rc < 0) {
        free_capture(c);
        return rc;
    }
    *graph = c;
    return 0;
}

int lazy_graph_launch(struct pp_backend *be, void *graph)
{
    struct item it = {.kind = ITEM_REPLAY, .capture = graph};
    PP_TRY(outside(be, "a launch"));
    pthread_mutex_lock(&all.lock);
    all.launches++;
    push(lazy_of(be), &it);
    pthread_mutex_unlock(&all.lock);
    return 0;
}

void lazy_graph_destroy(struct pp_backend *be, void *graph)
{
    (void)finish(be);
    free_capture(graph);
}

/* --- life --------------------------------------------------------------------------------------
 */

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
    while (!s->started) {
        pthread_cond_wait(&all.changed, &all.lock);
    }
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
