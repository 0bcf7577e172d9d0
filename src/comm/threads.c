/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks are threads of one process. Nothing is copied through a channel: both ends see the slot in
 * the receiver's memory, and one cache line a slot says whose turn it is:
 *
 *   2n      free for message n       (acquire of the sender waits for it)
 *   2n + 1  holds message n          (wait_recv of the receiver waits for it)
 *
 * Each value is written by the one end whose turn it is, so a plain store is enough, and it carries
 * the slot's content with it (wait.c). The mailboxes of send and recv are such lines too
 * (threads_mail.c).
 *
 * Between devices a line carries a mark beside the turn: the turn says that the other side has
 * enqueued what it does with the slot, the mark when that is done (threads_stream.c).
 *
 * The lines, and all that ranks know of each other, belong to the group: when a run fails, ranks
 * leave at different times.
 */
#include "threads.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/backend.h"
#include "ppcli/err.h"

/* --- the group ------------------------------------------------------------------------------- */

static void carve(struct pp_threads *g, struct pp_arena *a)
{
    size_t n = (size_t)g->size;
    g->slot_lines = pp_arena_take(a, n, sizeof(*g->slot_lines));
    g->ranks = pp_arena_take(a, n, sizeof(*g->ranks));
    g->board = pp_arena_take(a, n, sizeof(*g->board));
    g->mail = pp_arena_take(a, n * n, sizeof(*g->mail));
}

int pp_threads_create(int size, struct pp_threads **out)
{
    pp_assert(size >= 1);
    size_t bytes = (sizeof(struct pp_threads) + 63) / 64 * 64;
    struct pp_threads *g = aligned_alloc(64, bytes);
    if (!g) {
        return pp_fail(PP_ERESOURCE, "out of memory: %zu bytes", bytes);
    }
    memset(g, 0, bytes);
    g->size = size;
    struct pp_arena dry = pp_arena_dry();
    carve(g, &dry);
    int rc = pp_arena_create(dry.used, &g->memory);
    if (rc < 0) {
        free(g);
        return rc;
    }
    struct pp_arena a = g->memory;
    carve(g, &a);
    /* More cores than the mask can hold, or no such call: then the kernel places the ranks. */
    if (sched_getaffinity(0, sizeof(g->allowed), &g->allowed) == 0) {
        g->pin = size <= CPU_COUNT(&g->allowed);
        g->crowded = !g->pin;
    } else {
        g->crowded = size > sysconf(_SC_NPROCESSORS_ONLN);
    }
    *out = g;
    return 0;
}

static void free_rank(struct rank *k)
{
    if (!k) {
        return;
    }
    for (int i = 0; i < k->n_ends; i++) {
        pp_free(k->ends[i].slots);
    }
    pp_free(k->ends);
    pp_free(k->sent);
    pp_free(k);
}

void pp_threads_destroy(struct pp_threads **group)
{
    struct pp_threads *g = *group;
    if (!g) {
        return;
    }
    for (int r = 0; r < g->size; r++) {
        free_rank(g->ranks[r]);
        pp_arena_destroy(&g->slot_lines[r]);
    }
    pp_arena_destroy(&g->memory);
    free(g);
    *group = NULL;
}

void pp_threads_abort(struct pp_threads *group)
{
    /* Every waiter looks at this word; sleepers do so within their bounded sleep (wait.c). */
    atomic_store(&group->stop.value, 1);
}

/* Put this thread on the r-th core of the set. Failing is harmless: the kernel places it then. */
static void pin(const cpu_set_t *allowed, int r)
{
    for (int c = 0; c < CPU_SETSIZE; c++) {
        if (CPU_ISSET(c, allowed) && r-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(c, &one);
            (void)sched_setaffinity(0, sizeof(one), &one);
            return;
        }
    }
}

int pp_threads_attach(struct pp_threads *group, int rank, struct pp_transport **out)
{
    pp_assert(rank >= 0 && rank < group->size && !group->ranks[rank]);
    struct rank *k = pp_alloc(1, sizeof(*k));
    uint32_t *counts = pp_alloc(2 * (size_t)group->size, sizeof(*counts));
    int rc = k && counts ? pp_transport_new(&transport_threads, rank, group->size, k, out)
                         : PP_ERESOURCE;
    if (rc < 0) {
        pp_free(counts);
        pp_free(k);
        return rc;
    }
    group->ranks[rank] = k;
    k->group = group;
    k->waiter = (struct pp_waiter){.stop = &group->stop, .crowded = group->crowded};
    k->sent = counts;
    k->received = counts + group->size;
    if (group->pin) {
        pin(&group->allowed, rank);
    }
    return 0;
}

/* A neighbour may still be looking at this rank's side: the group frees it. */
static void destroy(struct pp_transport *tp)
{
    if (tp->be) {
        pp_threads_forget_marks(tp);
    }
    tp->impl = NULL;
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

static void show_waits(struct pp_transport *tp, uint64_t *waited_ns)
{
    struct rank *k = tp->impl;
    k->waiter.waited_ns = waited_ns;
}

/* --- collectives ----------------------------------------------------------------------------- */

/* The last one to arrive opens it. Nobody can arrive twice: the next opening needs everyone. */
int pp_threads_barrier(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    struct pp_threads *g = k->group;
    /* A rank that was stopped inside a barrier is still counted in it: none may open any more. */
    if (atomic_load(&g->stop.value) != 0) {
        return pp_fail(PP_ELOST, "stopped: another rank failed");
    }
    k->generation++;
    if (atomic_fetch_add(&g->arrived, 1) + 1 == (uint32_t)g->size) {
        atomic_store(&g->arrived, 0);
        pp_word_set(&g->generation, k->generation);
        return 0;
    }
    return pp_word_wait(&k->waiter, &g->generation, k->generation);
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
    /* `in` is the caller's again only when everybody has read it. */
    int left = pp_threads_barrier(tp);
    return rc < 0 ? rc : left;
}

/* The last one to vote counts. A rank posts the next vote only when it has seen the outcome of this
 * one, so what is counted here belongs to one vote, and the outcome stays until all have read it.
 */
static int post_vote(struct pp_transport *tp, bool yes)
{
    struct rank *k = tp->impl;
    struct pp_threads *g = k->group;
    if (!yes) {
        atomic_store(&g->against, 1);
    }
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
    PP_TRY(pp_word_wait(&k->waiter, &k->group->votes, k->votes));
    *out_all = k->group->unanimous;
    return 0;
}

/* --- channels ----------------------------------------------------------------------------------
 */

/* Take this rank's side, and the lines of the channels it receives from. */
static int make_ends(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                     void *const *memory)
{
    struct rank *k = tp->impl;
    int me = tp->rank;
    k->ends = pp_alloc((size_t)n, sizeof(*k->ends));
    if (!k->ends) {
        return PP_ERESOURCE;
    }
    k->n_ends = n;
    size_t lines = 0;
    for (int i = 0; i < n; i++) {
        k->ends[i].spec = specs[i];
        k->ends[i].slots = pp_alloc((size_t)specs[i].slots, sizeof(*k->ends[i].slots));
        if (!k->ends[i].slots) {
            return PP_ERESOURCE;
        }
        lines += specs[i].dst == me ? (size_t)specs[i].slots : 0;
    }
    if (lines == 0) {
        return 0;
    }
    struct pp_arena *kept = &k->group->slot_lines[me];
    PP_TRY(pp_arena_create(lines * sizeof(struct line), kept));
    struct pp_arena a = *kept;
    for (int i = 0; i < n; i++) {
        if (specs[i].dst == me) {
            k->ends[i].lines = pp_arena_take(&a, (size_t)specs[i].slots, sizeof(struct line));
            k->ends[i].memory = memory[i];
            for (int j = 0; tp->be && j < specs[i].slots; j++) {
                PP_TRY(pp_backend_mark_create(tp->be, false, &k->ends[i].lines[j].freed));
            }
            if (!memory[i] || (uintptr_t)memory[i] % PP_ALIGN != 0) {
                return pp_fail(PP_EINTERNAL, "channel %d: the receiver gives no aligned memory",
                               specs[i].id);
            }
        }
    }
    return 0;
}

/* The sending ends get memory and lines from the receiving ranks, whose side is on the board. */
static int join_ends(struct pp_transport *tp)
{
    struct rank *k = tp->impl;
    for (int i = 0; i < k->n_ends; i++) {
        struct end *mine = &k->ends[i];
        if (mine->spec.src != tp->rank) {
            continue;
        }
        const struct rank *peer = k->group->board[mine->spec.dst].p;
        int j = 0;
        while (peer->ends[j].spec.id != mine->spec.id) {
            j++; /* it is there: pp_channels_check */
        }
        mine->memory = peer->ends[j].memory;
        mine->lines = peer->ends[j].lines;
        for (int slot = 0; tp->be && slot < mine->spec.slots; slot++) {
            PP_TRY(pp_backend_mark_create(tp->be, false, &mine->lines[slot].sent));
        }
    }
    return 0;
}

static int open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                         void *const *memory)
{
    struct rank *k = tp->impl;
    pp_assert(!k->ends);
    PP_TRY(pp_channels_check(tp, specs, n));
    PP_TRY(pp_transport_agree(tp, make_ends(tp, specs, n, memory)));
    k->group->board[tp->rank].p = k;
    PP_TRY(pp_threads_barrier(tp));
    int rc = join_ends(tp);
    PP_TRY(pp_threads_barrier(tp)); /* agree writes on the board that others may be reading */
    return pp_transport_agree(tp, rc);
}

static struct end *end_of(struct pp_transport *tp, int ch, int slot)
{
    struct rank *k = tp->impl;
    pp_assert(ch >= 0 && ch < k->n_ends && slot >= 0 && slot < k->ends[ch].spec.slots);
    return &k->ends[ch];
}

static void *slot_memory(struct pp_transport *tp, int ch, int slot)
{
    struct end *e = end_of(tp, ch, slot);
    return e->memory + (size_t)slot * e->spec.bytes;
}

static int acquire(struct pp_transport *tp, int ch, int slot)
{
    struct rank *k = tp->impl;
    struct end *e = end_of(tp, ch, slot);
    pp_assert(e->spec.src == tp->rank);
    struct pp_slot_end *s = &e->slots[slot];
    struct line *line = &e->lines[slot];
    PP_TRY(pp_word_wait(&k->waiter, &line->turn, 2 * s->count));
    PP_TRY(pp_threads_behind(tp, line->freed, line->freed_fence));
    s->turn = PP_TURN_ACQUIRED;
    return 0;
}

static int post_send(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct end *e = end_of(tp, ch, slot);
    pp_assert(e->spec.src == tp->rank);
    struct pp_slot_end *s = &e->slots[slot];
    PP_TRY(pp_slot_posting_send(&e->spec, slot, s, bytes, tag));
    struct line *line = &e->lines[slot];
    line->tag = (uint32_t)tag;
    line->bytes = bytes;
    if (line->sent) {
        const struct rank *k = tp->impl;
        PP_TRY(pp_backend_mark_set(tp->be, line->sent));
        line->sent_fence = k->fence;
    }
    pp_word_set(&line->turn, 2 * s->count + 1);
    s->count++;
    return 0;
}

static int post_recv(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag)
{
    struct end *e = end_of(tp, ch, slot);
    pp_assert(e->spec.dst == tp->rank);
    return pp_slot_posting_recv(&e->spec, slot, &e->slots[slot], bytes, tag);
}

static int wait_recv(struct pp_transport *tp, int ch, int slot)
{
    struct rank *k = tp->impl;
    struct end *e = end_of(tp, ch, slot);
    struct pp_slot_end *s = &e->slots[slot];
    PP_TRY(pp_slot_waiting(&e->spec, slot, s));
    struct line *line = &e->lines[slot];
    PP_TRY(pp_word_wait(&k->waiter, &line->turn, 2 * s->count + 1));
    PP_TRY(pp_threads_behind(tp, line->sent, line->sent_fence));
    return pp_slot_received(&e->spec, slot, s, line->bytes, line->tag);
}

static int release(struct pp_transport *tp, int ch, int slot)
{
    struct end *e = end_of(tp, ch, slot);
    struct pp_slot_end *s = &e->slots[slot];
    PP_TRY(pp_slot_releasing(&e->spec, slot, s));
    struct line *line = &e->lines[slot];
    if (line->freed) {
        const struct rank *k = tp->impl;
        PP_TRY(pp_backend_mark_set(tp->be, line->freed));
        line->freed_fence = k->fence;
    }
    s->count++;
    pp_word_set(&line->turn, 2 * s->count);
    return 0;
}

const struct pp_transport_ops transport_threads = {
    .name = "threads",
    .help = "ranks are threads of one process; nothing is copied",
    .caps = {.shared_slots = true, .processes = false},
    .destroy = destroy,
    .open_channels = open_channels,
    .slot = slot_memory,
    .acquire = acquire,
    .post_send = post_send,
    .post_recv = post_recv,
    .wait_recv = wait_recv,
    .release = release,
    .allgather = allgather,
    .send = pp_threads_send,
    .recv = pp_threads_recv,
    .abort = stop_all,
    .stopped = stopped,
    .show_waits = show_waits,
    .post_vote = post_vote,
    .wait_vote = wait_vote,
    .bind = pp_threads_bind,
    .allgather_on = pp_threads_allgather_on,
    .join = pp_threads_join,
    .fork = pp_threads_fork,
    .wait_mark = pp_threads_wait_mark,
    .reduce = pp_threads_reduce,
};
