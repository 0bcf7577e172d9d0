/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks are threads of one process. A channel copies nothing: both ends use the slot in the
 * receiver's memory, and one cache line per slot holds its state:
 *
 *   2n      free for message n       (acquire of the sender waits for it)
 *   2n + 1  holds message n          (wait_recv of the receiver waits for it)
 *
 * Only one end may write each value, so a plain store is enough, and it publishes the slot's
 * content (wait.c). The mailboxes of send and recv are such lines too (threads_stream.c).
 *
 * Between devices a line also carries a mark: the state says that the other side has enqueued its
 * work on the slot, the mark when that work is done (threads_stream.c).
 *
 * The group owns the lines and all data that ranks share: when a run fails, ranks leave at
 * different times.
 */
#include "threads.h"
#include "transport.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/dev/devices.h"
#include "ppcli/base/cores.h"

/* ---- the group */

static void carve_group(struct pp_threads *g, struct pp_arena *a)
{
    size_t n = (size_t)g->size;
    g->slot_lines = pp_arena_take(a, n, sizeof(*g->slot_lines));
    g->ranks = pp_arena_take(a, n, sizeof(*g->ranks));
    g->board = pp_arena_take(a, n, sizeof(*g->board));
    g->mail = pp_arena_take(a, n * n, sizeof(*g->mail));
}

int pp_threads_create(int size, const struct pp_places *places, struct pp_threads **out)
{
    pp_assert(size >= 1);
    size_t bytes = (sizeof(struct pp_threads) + 63) / 64 * 64;
    struct pp_threads *g = aligned_alloc(64, bytes);
    if (!g)
        return pp_fail(PP_ERESOURCE, "out of memory: %zu bytes", bytes);
    memset(g, 0, bytes);
    g->size = size;
    struct pp_arena dry = pp_arena_dry();
    carve_group(g, &dry);
    PP_TRY_UNDO(pp_arena_create(dry.used, &g->memory), free(g));
    struct pp_arena a = g->memory;
    carve_group(g, &a);
    int rc = places ? 0
                    : pp_places_make(&(struct pp_places_spec){.ranks = size, .threads = 1},
                                     &g->own_places);
    PP_TRY_UNDO(rc, (pp_arena_destroy(&g->memory), free(g)));
    g->places = places ? places : &g->own_places;
    pthread_mutex_init(&g->recorder, NULL);
    *out = g;
    return 0;
}

void pp_threads_destroy(struct pp_threads **group)
{
    struct pp_threads *g = *group;
    if (!g)
        return;
    for (int r = 0; r < g->size; r++) {
        if (g->ranks[r])
            pp_free(g->ranks[r]->sent);
        pp_free(g->ranks[r]);
        pp_arena_destroy(&g->slot_lines[r]);
    }
    pp_places_fini(&g->own_places);
    pp_arena_destroy(&g->memory);
    pthread_mutex_destroy(&g->recorder);
    free(g);
    *group = NULL;
}

void pp_threads_abort(struct pp_threads *group)
{
    /* Every waiter reads this word; sleepers do so within their bounded sleep (wait.c). */
    atomic_store(&group->stop.value, 1);
}

int pp_threads_attach(struct pp_threads *group, int rank, struct pp_transport **out)
{
    pp_assert(rank >= 0 && rank < group->size && !group->ranks[rank]);
    PP_TAKE(struct rank, own, 1);
    PP_TAKE(uint32_t, counts, 2 * group->size);
    struct rank *k = own;
    PP_TRY(pp_transport_new(&transport_threads, rank, group->size, k, out));
    group->ranks[rank] = k;
    k->group = group;
    (*out)->crowded = group->places->crowded;
    k->sent = counts;
    k->received = counts + group->size;
    own = NULL;
    counts = NULL;
    const int *cpus = pp_places_of(group->places, rank);
    if (cpus)
        pp_thread_pin(cpus[0]);
    return 0;
}

static void stop_all(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    pp_threads_abort(k->group);
}

static bool stopped(struct pp_transport *tp)
{
    const struct rank *k = tp->impl;
    return atomic_load(&k->group->stop.value) != 0;
}

int pp_threads_wait(struct pp_transport *tp, struct pp_word *w, uint32_t target)
{
    const struct rank *k = tp->impl;
    const struct pp_waiter how = {&k->group->stop, tp->crowded, tp->waited_ns};
    if (k->records)
        pthread_mutex_unlock(&k->group->recorder);
    int rc = pp_word_wait(&how, w, target);
    if (k->records)
        pthread_mutex_lock(&k->group->recorder);
    return rc;
}

/* ---- collectives */

/* Waits for all ranks; the last rank to arrive opens the barrier. No rank can arrive twice, because
 * the next opening needs all ranks. */
int pp_threads_barrier(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    struct pp_threads *g = k->group;
    /* A rank that was stopped inside a barrier is still counted in it: no rank may open it any
     * more. */
    if (atomic_load(&g->stop.value) != 0)
        return pp_fail(PP_ELOST, "stopped: another rank failed");
    k->generation++;
    if (atomic_fetch_add(&g->arrived, 1) + 1 == (uint32_t)g->size) {
        atomic_store(&g->arrived, 0);
        pp_word_set(&g->generation, k->generation);
        return 0;
    }
    return pp_threads_wait(tp, &g->generation, k->generation);
}

static int allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out)
{
    struct rank *k = tp->impl;
    struct board *board = k->group->board;
    board[tp->rank].p = in;
    board[tp->rank].bytes = bytes;
    PP_TRY(pp_threads_barrier(tp));
    int rc = 0;
    for (int r = 0; r < tp->size; r++) {
        if (board[r].bytes != bytes) {
            rc = pp_fail(PP_EINTERNAL, "allgather: rank %d gives %zu bytes, rank %d gives %zu",
                         tp->rank, bytes, r, board[r].bytes);
            break;
        }
        memcpy((char *)out + (size_t)r * bytes, board[r].p, bytes);
    }
    /* The caller may reuse `in` only when all ranks have read it. */
    int left = pp_threads_barrier(tp);
    return rc < 0 ? rc : left;
}

/* Posts a vote; the last rank to vote determines the outcome. A rank posts the next vote only when
 * it has seen the outcome of this one, so the counters belong to one vote, and the outcome stays
 * until all ranks have read it. */
static int post_vote(struct pp_transport *tp, bool yes)
{
    struct rank *k = tp->impl;
    struct pp_threads *g = k->group;
    if (!yes)
        atomic_store(&g->against, 1);
    k->votes++;
    if (atomic_fetch_add(&g->voted, 1) + 1 == (uint32_t)g->size) {
        g->unanimous = atomic_exchange(&g->against, 0) == 0;
        atomic_store(&g->voted, 0);
        pp_word_set(&g->votes, k->votes);
    }
    return 0;
}

static int wait_vote(struct pp_transport *tp, bool *out_all)
{
    struct rank *k = tp->impl;
    PP_TRY(pp_threads_wait(tp, &k->group->votes, k->votes));
    *out_all = k->group->unanimous;
    return 0;
}

/* ---- channels */

/* The line of each slot, in memory of the group. */
struct lines {
    struct line *at; /* [slots] */
};

static struct line *line_of(const struct pp_channel_end *e, int slot)
{
    return &((struct lines *)e->own)->at[slot];
}

/* Allocates the lines, which hold the states of slots, for the channels that this rank receives
 * from. */
static int make_lines(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    size_t lines = 0;
    for (int i = 0; i < tp->n_ends; i++) {
        const struct pp_channel_spec *c = &tp->ends[i].spec;
        lines += c->dst == tp->rank ? (size_t)c->slots : 0;
    }
    if (lines == 0)
        return 0;
    struct pp_arena *kept = &k->group->slot_lines[tp->rank];
    PP_TRY(pp_arena_create(lines * sizeof(struct line), kept));
    struct pp_arena a = *kept;
    for (int i = 0; i < tp->n_ends; i++) {
        struct pp_channel_end *e = &tp->ends[i];
        if (e->spec.dst == tp->rank) {
            struct lines *own = e->own;
            own->at = pp_arena_take(&a, (size_t)e->spec.slots, sizeof(struct line));
            for (int j = 0; tp->be && j < e->spec.slots; j++)
                PP_TRY(pp_backend_mark_create(tp->be, false, &own->at[j].freed));
        }
    }
    return 0;
}

/* Collective. Gives both ends of each channel the same memory and lines: the receiver sends their
 * addresses to the sender. All ranks visit channels by ascending id, so both ends of the lowest
 * channel that is not done yet wait for it. */
static int open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                         void *const *memory)
{
    struct told {
        char *memory;
        struct lines lines;
    } told;
    PP_TRY(pp_transport_agree(tp, make_lines(tp)));
    for (int i = 0; i < n; i++) {
        struct pp_channel_end *e = &tp->ends[i];
        struct lines *own = e->own;
        if (specs[i].dst == tp->rank) {
            told = (struct told){e->memory, *own};
            PP_TRY(pp_transport_send(tp, specs[i].src, &told, sizeof(told)));
            continue;
        }
        PP_TRY(pp_transport_recv(tp, specs[i].dst, &told, sizeof(told)));
        e->memory = told.memory;
        *own = told.lines;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; tp->be && specs[i].src == tp->rank && j < specs[i].slots; j++)
            PP_TRY(pp_backend_mark_create(tp->be, false, &line_of(&tp->ends[i], j)->sent));
    return 0;
}

static int acquire(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    struct line *line = line_of(e, slot);
    PP_TRY(pp_threads_wait(tp, &line->turn, 2 * e->slots[slot].count));
    return pp_threads_behind(tp, line->freed, line->freed_fence);
}

static int post_send(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes,
                     int tag)
{
    struct line *line = line_of(e, slot);
    line->tag = (uint32_t)tag;
    line->bytes = bytes;
    if (line->sent) {
        const struct rank *k = tp->impl;
        PP_TRY(pp_backend_mark_set(tp->be, line->sent));
        line->sent_fence = k->fence;
    }
    pp_word_set(&line->turn, 2 * e->slots[slot].count + 1);
    return 0;
}

static int wait_recv(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t *bytes,
                     uint32_t *tag)
{
    struct line *line = line_of(e, slot);
    PP_TRY(pp_threads_wait(tp, &line->turn, 2 * e->slots[slot].count + 1));
    *bytes = line->bytes;
    *tag = line->tag;
    return pp_threads_behind(tp, line->sent, line->sent_fence);
}

static int release(struct pp_transport *tp, struct pp_channel_end *e, int slot)
{
    struct line *line = line_of(e, slot);
    if (line->freed) {
        const struct rank *k = tp->impl;
        PP_TRY(pp_backend_mark_set(tp->be, line->freed));
        line->freed_fence = k->fence;
    }
    pp_word_set(&line->turn, 2 * e->slots[slot].count + 2);
    return 0;
}

/* Destroys the marks of this rank. A line has a mark of each end of its channel; the other end
 * destroys its own. */
static void destroy(struct pp_transport *tp)
{
    for (int i = 0; tp->be && i < tp->n_ends; i++) {
        const struct pp_channel_end *e = &tp->ends[i];
        const struct lines *lines = e->own; /* NULL: memory ran out before */
        for (int j = 0; lines && lines->at && j < e->spec.slots; j++) {
            struct line *line = line_of(e, j);
            void **mark = e->spec.src == tp->rank ? &line->sent : &line->freed;
            pp_backend_mark_destroy(tp->be, *mark);
            *mark = NULL;
        }
    }
    if (tp->be)
        pp_threads_forget_marks(tp);
    tp->impl = NULL; /* other ranks may still read it: the group frees it */
}

static bool fits(const struct pp_paths *p, char why[PP_TRANSPORT_WHY_MAX])
{
    int a, b;
    if (pp_paths_gap(p, &a, &b)) {
        snprintf(why, PP_TRANSPORT_WHY_MAX,
                 "device %d of rank %d does not reach the memory of device %d of rank %d",
                 p->seats[a].device.number, a, p->seats[b].device.number, b);
        return false;
    }
    snprintf(why, PP_TRANSPORT_WHY_MAX, "ranks are threads; messages pass by pointer");
    return true;
}

const struct pp_transport_ops transport_threads = {
    .name = "threads",
    .help = "ranks are threads of one process; nothing is copied",
    .caps = {.shared_slots = true, .processes = false},
    .joins_threads = true,
    .fits = fits,
    .end_bytes = sizeof(struct lines),
    .destroy = destroy,
    .open_channels = open_channels,
    .acquire = acquire,
    .post_send = post_send,
    .wait_recv = wait_recv,
    .release = release,
    .allgather = allgather,
    .exchange = pp_threads_exchange,
    .abort = stop_all,
    .stopped = stopped,
    .post_vote = post_vote,
    .wait_vote = wait_vote,
    .bind = pp_threads_bind,
    .exchange_on = pp_threads_exchange_on,
    .join = pp_threads_join,
    .fork = pp_threads_fork,
    .record = pp_threads_record,
};
