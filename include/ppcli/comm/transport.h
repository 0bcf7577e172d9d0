/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport is one communicator: `rank` of `size`, channels that move micro-batches between two
 * ranks, and a few collectives for set-up and phase ends. It moves bytes and knows no layers.
 *
 * Channels: one mailbox per *directed* path, `slots` fixed pieces of memory each. Messages of one
 * channel arrive in order; two channels never block each other. Protocol of one message in slot k:
 *
 *   sender:   acquire(k) .. write into slot memory .. post_send(k)
 *   receiver: post_recv(k) (early) .. wait_recv(k) .. read slot memory .. release(k)
 *
 * acquire() waits until the receiver has released the slot's previous message (shared slots) or the
 * previous send from it has left (private slots). With shared slots (threads) the two sides see the
 * same memory and nothing is copied. A slot starts free. All calls of one rank come from one
 * thread.
 *
 * A receive must be posted for a message before a later message of its channel is waited for, and
 * the calls of a slot must come in this order. A call out of turn, and a message whose tag or size
 * is not the expected one, is PP_EINTERNAL with channel, slot, expected and found in its text.
 *
 * Waiting: spin briefly, then yield, then sleep, so that more ranks than cores work. Every waiter
 * returns PP_ELOST soon after any rank calls abort() (threads; under MPI abort() ends the job). A
 * rank that fails in a pairwise call must abort(): its neighbour may be waiting for it. Ranks that
 * are threads may read each other's memory (slots, buffers passed to a call) until they have all
 * returned: after an abort, free it when the threads are joined.
 *
 * Memory of a device: after pp_transport_bind() the slots and the buffers of reduce and
 * allgather_on are memory of that backend. Then acquire, wait_recv and these two are ordered on its
 * stream: they return when the other side has *enqueued* what they wait for, and work enqueued
 * after them runs after it; post_send and release take effect after the work enqueued before. Such
 * a call never waits for the device. What a plan proves of ranks that wait for each other therefore
 * holds for the hosts, and also for the devices, because every stream does its work in the order of
 * the plan.
 */
#ifndef PPCLI_COMM_TRANSPORT_H
#define PPCLI_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pp_backend;
struct pp_transport;

struct pp_channel_spec {
    int src, dst; /* ranks of this transport, src != dst */
    int id;       /* same on both sides, unique in the transport, >= 0 */
    int slots;    /* >= 1 */
    size_t bytes; /* bytes of one slot, a multiple of PP_ALIGN */
};

struct pp_transport_caps {
    /* sender and receiver see the same slot memory, which the receiver provides */
    bool shared_slots;
    bool processes; /* ranks are processes */
    /* messages carry no tag and no size: the plan must make sure that both ends mean the same
     * message, and receives must be posted in the order of the sends of their channel */
    bool unlabelled;
    bool own_steps; /* each rank records and launches its part of a step, see pp_transport_join() */
};

struct pp_backend_ops;
struct pp_seat;
struct pp_channel_end;
struct pp_exchange;

/* The ranks of a run and where they compute. */
struct pp_paths {
    bool processes;              /* each rank is a process */
    const struct pp_seat *seats; /* [n], with devices assigned */
    int n;
    /* Returns whether kernels on one device of this process reach another's memory; NULL: they
     * do. */
    bool (*reaches)(int from, int to);
};

#define PP_TRANSPORT_WHY_MAX 256

/* Bytes of a slot between processes over MPI. */
#define PP_MPI_MESSAGE_MAX ((size_t)1 << 30)
#define PP_MPI_TOO_LONG                                                                            \
    "a message of %zu bytes: at most %zu over MPI; use more micro-batches, or ranks as threads"

/*
 * The table of a transport. pp_transport_*() below document each call and check the order of calls
 * on a slot. A transport that is built on another one leaves the calls NULL that the inner one
 * does.
 */
struct pp_transport_ops {
    const char *name;
    const char *help;
    struct pp_transport_caps caps;
    /* Properties that callers ask before they choose: */
    bool joins_threads, joins_processes; /* which kinds of ranks it connects */
    bool needs_device;                   /* it only moves memory of devices */
    bool is_world;                       /* it connects processes by itself */
    const char *missing; /* NULL, or what this build lacks: "this build has no NCCL" */
    const char *library; /* "NCCL"; NULL: it needs no library */
    /* "NCCL_SOCKET_IFNAME": environment variable that selects the library's interface, as "=eth0";
     * or NULL */
    const char *network_variable;
    /* Returns the version of the loaded library, else of the one it was built with: "2.28.9".
     * Starts nothing. */
    const char *(*version)(void);
    /* Loads the library: 0 and its version in *why, or PP_ERESOURCE and what is missing. Records no
     * failure. Any thread. NULL: it is built in. */
    int (*probe)(char *why, size_t bytes);
    /* Called at the start of the program, before any use of a device and before threads are
     * started. NULL: nothing to do. */
    void (*prepare)(void);
    /* Returns whether it connects these ranks, and in `why` the reason for or against it: "each
     * rank has a device of its own". why is empty before. */
    bool (*fits)(const struct pp_paths *p, char why[PP_TRANSPORT_WHY_MAX]);
    /* Opens a transport over inner, which it takes over, also on failure; is_world: inner is NULL.
     * A rank that waits longer than timeout_ns (0: no limit) gives up with PP_ELOST. NULL: the
     * transport that connects the ranks is used as it is. */
    int (*open)(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out);
    /* Estimated bytes of a device's memory that the library takes for a rank. */
    size_t device_bytes;
    /* Bytes of private memory for each end of a channel and for each slot of it, zeroed. */
    size_t end_bytes, slot_bytes;

    /* Releases everything. Local, after the last collective; impl, ends and the inner transport are
     * freed after it. With a bound backend: before that one is closed, and when all ranks that are
     * threads of this process have stopped. */
    void (*destroy)(struct pp_transport *tp);
    /* Binds a backend; tp->be is set already. NULL: memory of the host only. Local. Errors:
     * PP_ERESOURCE when it cannot reach memory of that backend, with what would work. */
    int (*bind)(struct pp_transport *tp);
    /* Collective: opens channels; the ends are made and checked, tp->ends[n]. */
    int (*open_channels)(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                         void *const *memory);

    int (*acquire)(struct pp_transport *tp, struct pp_channel_end *e, int slot);
    int (*post_send)(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes,
                     int tag);
    int (*post_recv)(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t bytes);
    /* *bytes and *tag hold the expected values, and are replaced by those found. */
    int (*wait_recv)(struct pp_transport *tp, struct pp_channel_end *e, int slot, size_t *bytes,
                     uint32_t *tag);
    int (*release)(struct pp_transport *tp, struct pp_channel_end *e, int slot);

    int (*allgather)(struct pp_transport *tp, const void *in, size_t bytes, void *out);
    /* Exchanges with n peers at once, memory of the host, done when it returns. Pairwise. */
    int (*exchange)(struct pp_transport *tp, const struct pp_exchange *x, int n);
    void (*abort)(struct pp_transport *tp);
    bool (*stopped)(struct pp_transport *tp);
    /* Called after a call of the inner transport has failed with PP_ELOST. */
    void (*lost)(struct pp_transport *tp);

    /* Collectives on memory of the bound device, ordered on its stream. allgather_on NULL: built
     * from exchange_on. reduce NULL: built from exchange or exchange_on. */
    int (*exchange_on)(struct pp_transport *tp, const struct pp_exchange *x, int n);
    /* All three or none: exchanges on a stream of their own, see pp_transport_post_exchange(). */
    int (*open_exchanges)(struct pp_transport *tp, int count);
    int (*post_exchange)(struct pp_transport *tp, int number, const struct pp_exchange *x, int n);
    int (*wait_exchange)(struct pp_transport *tp, int number);
    int (*allgather_on)(struct pp_transport *tp, const void *in, size_t bytes, void *out);
    int (*reduce)(struct pp_transport *tp, const int *group, int n, size_t n_floats, float *buf,
                  float *scratch);
    /* join, fork and record NULL: a step over this transport cannot be captured. */
    int (*join)(struct pp_transport *tp);
    int (*fork)(struct pp_transport *tp);
    void (*record)(struct pp_transport *tp, bool on);
    int (*wait_mark)(struct pp_transport *tp, void *mark, uint64_t timeout_ns);
    /* Both NULL: built from allgather. */
    int (*post_vote)(struct pp_transport *tp, bool yes);
    int (*wait_vote)(struct pp_transport *tp, bool *out_all);
};

struct pp_transport {
    const struct pp_transport_ops *ops;
    struct pp_transport_caps caps;
    int rank, size;
    int host;                   /* the lowest rank on this rank's host; 0 if all are threads */
    bool crowded;               /* there are more ranks than cores: waits do not spin */
    struct pp_backend *be;      /* the backend whose memory it moves; not owned; NULL: the host's */
    struct pp_transport *inner; /* the transport that it is built on; owned; may be NULL */
    uint64_t *waited_ns;        /* see pp_transport_show_waits() */
    void *impl;                 /* private, freed with the transport */
    int n_ends;
    struct pp_channel_end *ends; /* ends of the channels, in the order of opening */
    /* Memory of collectives, so that no step allocates: */
    int32_t *verdicts;             /* [size] */
    struct pp_exchange *exchanges; /* [size] */
    int32_t vote;                  /* vote of this rank, if votes are built from allgather */
};

const char *const *pp_transport_names(void); /* of transports.def, "auto" first, NULL-terminated */
const struct pp_transport_ops *pp_transport_at(int i);              /* NULL after the last */
const struct pp_transport_ops *pp_transport_find(const char *name); /* NULL: "auto", unknown */
/* Returns whether the transport `name` connects processes, or threads if `processes` is false;
 * "auto" connects both. */
bool pp_transport_joins(const char *name, bool processes);

/* Returns whether t can connect these ranks, and in `why` the reason for or against it. Local. */
bool pp_transport_fits(const struct pp_transport_ops *t, const struct pp_paths *p,
                       char why[PP_TRANSPORT_WHY_MAX]);
/* Chooses the transport of run.transport = auto: the first that fits. `why` gets a sentence for
 * people ("messages go through host memory: ranks 0 and 1 are processes that share device 0"), or
 * "" if there is no device. Local; the same on every rank. Errors: PP_ERESOURCE if none fits. */
int pp_transport_choose(const struct pp_paths *p, const struct pp_transport_ops **out,
                        char why[PP_TRANSPORT_WHY_MAX]);

/* Replaces *tp, which connects threads or processes, by transport t built on it, if t and the
 * memory of this backend need that. On failure *tp is NULL. Local. */
int pp_transport_connect(const struct pp_transport_ops *t, const struct pp_backend_ops *backend,
                         uint64_t timeout_ns, struct pp_transport **tp);
/* Prepares all transports at the start of the program, before any use of a device and before
 * threads are started: a driver reads some variables of the environment only once. */
void pp_transport_prepare(void);

/*
 * Threads: one group for the process, then one transport per rank thread. Local. The group must
 * outlive its transports. Each rank calls attach once, in its own thread, which is pinned to the
 * first of its places (NULL: for ranks of one thread each); nothing unpins it, so create groups in
 * a thread that is not a rank.
 */
struct pp_threads;
struct pp_places;

struct pp_threads_job {
    /* Runs a rank. *tp may be replaced, NULL only on failure; it is destroyed when all ranks have
     * returned. *failed_ns: the time at which the rank failed in a way that the others could not
     * know; it has then aborted *tp. */
    int (*work)(struct pp_transport **tp, int rank, void *ctx, uint64_t *failed_ns);
    /* Called after work in the thread of the rank, without its transport. May be NULL. */
    void (*end)(int rank, void *ctx);
    void *ctx;
    const struct pp_places *places; /* places of all ranks; NULL: one processor each */
};

/* Runs a group of n ranks, each in a thread of its own. Returns the failure that was the first
 * cause. Errors: PP_ERESOURCE, those of work(). Local. */
int pp_threads_run(int n, const struct pp_threads_job *job);

/* Returns whether an MPI launcher started this process. Reads the environment; never initialises
 * MPI. */
bool pp_mpi_launched(void);
/* Returns whether this process is one rank of cfg's run: a launcher started it, and the config does
 * not ask for threads. Never initialises MPI. Local. */
struct pp_config;
bool pp_mpi_used(const struct pp_config *cfg);
/* Returns the rank that the launcher gave this process, 0 if it gave none. Reads the environment.
 * Local. */
int pp_mpi_given_rank(void);
/* Returns the number of processes that the launcher started together, 1 if it is unknown. Reads the
 * environment. */
int pp_launch_processes(void);
/* Checks that `connected` processes (1: no MPI; 0: MPI will be opened if possible) are all that
 * were started together: several processes without a connection would each do the whole run.
 * Errors: PP_ECONFIG; PP_EUSAGE (torchrun or a similar launcher started them). Local. */
int pp_launch_check(const struct pp_config *cfg, int connected);
/* Returns the number of command lines in the launch, as in `mpirun A : B`, if the launcher tells;
 * else 1. */
int pp_mpi_launch_programs(void);
/* Collective. Opens the transport that connects the processes; the first call does MPI_Init. While
 * it is open, its thread may open it more often, each time with channels of their own. MPI ends for
 * good when the last is closed. Errors: PP_ERESOURCE with a sentence when this build or this start
 * has no MPI. */
int pp_transport_open_world(struct pp_transport **out);
/* Loads MPI's library without initialising it. Any thread. Errors: PP_ERESOURCE, with what would
 * work. */
int pp_world_load(void);
/* Returns the version of the loaded library, as "Open MPI 4.1.4", or if none is loaded that of the
 * library this program was built with; "" in a build without MPI. */
const char *pp_world_version(void);
/* Returns whether pp_transport_open_world() was called. */
bool pp_world_was_opened(void);

void pp_transport_destroy(struct pp_transport **tp);

/*
 * Opens the channels, once. Collective. `specs` are the channels that this rank is an end of, by
 * ascending id. memory[i] has this rank's slots of specs[i], slots*bytes bytes, PP_ALIGN aligned.
 * The caller owns it and keeps it until destroy (shared slots: until the sender has stopped too);
 * it is NULL on the sending side if slots are shared. The two ends are compared: a difference is
 * PP_EINTERNAL on every rank.
 */
int pp_transport_open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                               void *const *memory);
/* Returns the memory of one slot as this rank sees it. `ch` is an index into specs. Local. */
void *pp_transport_slot(struct pp_transport *tp, int ch, int slot);

/* Send and receive a message through a slot; struct pp_transport_ops describes each call. Pairwise.
 * `bytes` is at most that of the spec; `tag` (>= 0, < 65536) must be equal on both sides. */
int pp_transport_acquire(struct pp_transport *tp, int ch, int slot);
int pp_transport_post_send(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag);
int pp_transport_post_recv(struct pp_transport *tp, int ch, int slot, size_t bytes, int tag);
int pp_transport_wait_recv(struct pp_transport *tp, int ch, int slot);
int pp_transport_release(struct pp_transport *tp, int ch, int slot);

/* Collective. Copies the `bytes` bytes of every rank to out[size*bytes], in rank order. */
int pp_transport_allgather(struct pp_transport *tp, const void *in, size_t bytes, void *out);
/* Send and receive host memory of any size (also over 2 GiB), outside of steps. Pairwise,
 * blocking. */
int pp_transport_send(struct pp_transport *tp, int dst, const void *buf, size_t bytes);
int pp_transport_recv(struct pp_transport *tp, int src, void *buf, size_t bytes);

/* Wakes all waiters of all ranks; may be called more than once, in any thread. With MPI it ends all
 * processes with the negated code of the calling thread's error record (70 if there is none). */
void pp_transport_abort(struct pp_transport *tp);
/* Returns whether abort() was called, by this rank or by a rank that this one can see. Any
 * thread. */
bool pp_transport_stopped(struct pp_transport *tp);
/* From now on stores in *waited_ns the pp_clock_ns() at which this rank was last seen to wait in a
 * call; while it waits, that is at most about 0.1 s ago. So a watchdog can tell waiting from
 * hanging. Local. The caller owns waited_ns, which outlives the transport; NULL ends the
 * storing. */
void pp_transport_show_waits(struct pp_transport *tp, uint64_t *waited_ns);

/* Makes slots and the buffers of reduce and allgather_on memory of `be`, which must outlive the
 * transport's last call. Call it at most once, before open_channels, on all ranks or on none;
 * without it they are memory of the host. Local. Errors: PP_ERESOURCE. */
int pp_transport_bind(struct pp_transport *tp, struct pp_backend *be);

/* A message to a peer and one from it; both sides know the sizes. NULL: no message in that
 * direction, not even one of no bytes. */
struct pp_exchange {
    int peer;
    const void *out;
    size_t out_bytes;
    void *in;
    size_t in_bytes;
};

/*
 * Exchanges with several peers at once, on a stream of their own: exchange `number` (0 .. count-1)
 * begins after the work enqueued before post, and work enqueued after wait runs after it. A number
 * is posted again only after its wait. Two ranks post the exchanges between them in the same order.
 * open: local, once, after open_channels. post: pairwise. Only if pp_transport_has_exchanges().
 */
bool pp_transport_has_exchanges(const struct pp_transport *tp);
int pp_transport_open_exchanges(struct pp_transport *tp, int count);
int pp_transport_post_exchange(struct pp_transport *tp, int number, const struct pp_exchange *x,
                               int n);
int pp_transport_wait_exchange(struct pp_transport *tp, int number);

/* Collective. Copies the `bytes` bytes of every rank to out[size*bytes], in rank order. The memory
 * is that of the bound device and the copy is ordered on its stream; if no device is bound it is
 * memory of the host. */
int pp_transport_allgather_on(struct pp_transport *tp, const void *in, size_t bytes, void *out);

/*
 * Collective, for steps that are captured; the host does not wait for the device. After join, all
 * work that any rank enqueued before runs before the work that rank 0 enqueues next; after fork,
 * the work that any rank enqueues next runs after all work that rank 0 enqueued before. Together
 * they divide the work in two: no work after them waits for a message before them. With
 * caps.own_steps a rank records its own stream and the streams of its messages: the calls are
 * local, and what is said of rank 0 holds for each rank.
 */
bool pp_transport_can_fork(const struct pp_transport *tp);
int pp_transport_join(struct pp_transport *tp);
int pp_transport_fork(struct pp_transport *tp);

/* Turns on, and later off, a phase in which only this rank's thread continues, except while it
 * waits for another rank. It is for a capture, to which two threads must not add at once. Local. */
void pp_transport_record(struct pp_transport *tp, bool on);

/*
 * Waits on the host until the bound device has reached a mark. Local. Errors: PP_ELOST after
 * another rank's abort, or when it takes longer than timeout_ns (0: no limit); the device's error
 * when it has failed.
 */
int pp_transport_wait_mark(struct pp_transport *tp, void *mark, uint64_t timeout_ns);

/* Collective. Returns the same code on every rank: 0, or the code of the lowest failing rank. On a
 * rank that did not fail itself, the error record then names that rank and has its text; a rank
 * that failed keeps its own text. */
int pp_transport_agree(struct pp_transport *tp, int rc);
int pp_transport_barrier(struct pp_transport *tp);

/* Collective. Agrees on rc as pp_transport_agree() does, then compares the texts of all ranks,
 * which are lines "key = value". Errors: PP_ECONFIG, which names the lowest rank that differs, the
 * key, and both values. */
int pp_transport_same(struct pp_transport *tp, int rc, const char *text);

/* Collective. Agrees on rc as pp_transport_agree() does, then copies rank 0's data to every
 * rank. */
int pp_transport_from_first(struct pp_transport *tp, int rc, void *data, size_t bytes);

/* Vote in two steps, so that a rank that does not need the outcome yet does not wait. Collective:
 * each rank posts once and later waits once, with only pairwise calls in between; then the next
 * vote may begin. Posting returns at once, waiting when all ranks have posted. *out_all tells
 * whether all voted yes; it is the same on every rank. */
int pp_transport_post_vote(struct pp_transport *tp, bool yes);
int pp_transport_wait_vote(struct pp_transport *tp, bool *out_all);

/*
 * Collective over `group` (n ranks, ascending, this rank among them; every member calls with the
 * same n and bytes): buf[n_floats] becomes the sum over the group, added in group order whatever
 * arrives first, the same bits on every member. The caller owns scratch[n_floats]. Memory of the
 * bound device, if there is one, ordered on its stream.
 */
int pp_transport_reduce(struct pp_transport *tp, const int *group, int n, size_t n_floats,
                        float *buf, float *scratch);

#endif
