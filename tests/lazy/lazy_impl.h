/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the lazy device share. */
#ifndef PPCLI_TESTS_LAZY_IMPL_H
#define PPCLI_TESTS_LAZY_IMPL_H

#include <pthread.h>

#include "lazy.h"
#include "ppcli/base/base.h"

#define ARGS_MAX 512
#define CAPTURE_STREAMS 64

typedef int lazy_run(struct pp_backend *inner, const void *args);

enum item_kind {
    ITEM_RUN,
    ITEM_SET,
    ITEM_WAIT,
    ITEM_REPLAY
};

struct item { /* one piece of work of a stream */
    enum item_kind kind;
    uint64_t number; /* RUN: of the op, 0 in a replay; SET, WAIT: of the mark, or the node */
    struct lazy_mark *mark;
    struct capture *capture;
    lazy_run *run;
    _Alignas(16) char args[ARGS_MAX];
};

struct lazy_mark {
    struct lazy_mark *next;
    bool timed;
    uint64_t set, reached;   /* how often */
    uint64_t at_ns;          /* when it was reached last */
    struct capture *capture; /* in which it was set last; NULL: in none */
    int node, branch, place; /* there */
    struct pp_error error;   /* of the stream that reached it, if that had failed; else code 0 */
};

struct branch { /* what one stream does in a capture */
    struct lazy *stream;
    struct item *items;
    int n, done;
    bool returned; /* the stream that began waits for all of it */
};

struct capture {
    bool open;
    pthread_t thread;
    int n_streams, n_nodes;
    struct branch streams[CAPTURE_STREAMS];
    bool *reached; /* [n_nodes] in a replay */
};

struct lazy {
    struct pp_backend_choice choice;
    struct pp_backend *inner; /* of the stream's thread */
    pthread_t thread;
    bool started, stop;
    struct item *queue; /* [room] */
    uint64_t head, tail, room;
    uint64_t seed;
    struct capture *capture; /* under way */
    int branch;
    struct kept {
        struct kept *next;
    } * kept;
    _Atomic int rc; /* the first failure */
    struct pp_error error;
};

/* What all streams share. */
extern struct lazy_all {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a mark, a queue, or hung */
    long captures, launches, host_waits;
    long pending; /* pieces of work in the queues of all streams */
    uint64_t ops;
    uint64_t fail_at, hang_at; /* counted by ops */
    bool hung, no_graphs;
    struct lazy_mark *marks; /* never freed before the end: a stream may still wait for one */
} lazy_all;

struct lazy *lazy_of(struct pp_backend *be);

/* Enqueue run(inner, args) on be's stream. */
int lazy_push(struct pp_backend *be, lazy_run *run, const void *args, size_t bytes);
int lazy_no_capture(struct pp_backend *be, const char *what); /* an error in one */

/* Memory that lives as long as be. */
void *lazy_keep(struct pp_backend *be, size_t bytes);

uint32_t lazy_draw(uint64_t *seed);
void lazy_note_failure(struct lazy *s, int rc);
void lazy_run_item(struct lazy *s, const struct item *it);
void lazy_replay(struct lazy *s, struct capture *c);
/* lazy_all.lock is held. */
void lazy_enqueue(struct lazy *s, const struct item *it);
int lazy_finish(struct pp_backend *be);

int lazy_open(struct pp_backend *be, int threads);
void lazy_close(struct pp_backend *be);
int lazy_synchronize(struct pp_backend *be);
int lazy_mark_create(struct pp_backend *be, bool timed, void **mark);
void lazy_mark_destroy(struct pp_backend *be, void *mark);
int lazy_mark_set(struct pp_backend *be, void *mark);
int lazy_mark_wait(struct pp_backend *be, void *mark);
int lazy_mark_reached(struct pp_backend *be, void *mark, bool *reached);
int lazy_mark_elapsed(struct pp_backend *be, void *from, void *to, uint64_t *ns);
int lazy_capture_begin(struct pp_backend *be);
int lazy_capture_end(struct pp_backend *be, void **graph);
int lazy_graph_launch(struct pp_backend *be, void *graph);
void lazy_graph_destroy(struct pp_backend *be, void *graph);

/* lazy_memory.c: memory with two addresses, one that faults and is handed out, one that works. */
int lazy_alloc(struct pp_backend *be, size_t bytes, void **out);
void lazy_free(struct pp_backend *be, void *p, size_t bytes);
void *lazy_real(const void *p); /* the one that works; NULL of NULL */
/* Of all pointers in args to memory of the device. */
void lazy_make_real(void *args, size_t bytes);

#endif
