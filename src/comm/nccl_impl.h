/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the parts of the NCCL transport share: nccl.c (messages, sums), nccl_start.c
 * (start and end) and nccl_wait.c (waiting and giving up). No other file includes nccl.h. */
#ifndef PPCLI_COMM_NCCL_IMPL_H
#define PPCLI_COMM_NCCL_IMPL_H

#include <nccl.h>
#include <pthread.h>

#include "impl.h"
#include "nccl_order.h"
#include "wait.h"

/* NCCL is loaded when it is first needed: a program that was built with it also runs on machines
 * without it. The members have the types of its header: nccl->Send is ncclSend. */
struct nccl_library {
#define NCCL(x) __typeof__(&nccl##x) x;
#include "nccl_library.def"
};

/* Returns the version of NCCL: the transport's hook `version`, see struct pp_transport_ops. */
const char *pp_nccl_version(void);
int pp_nccl_probe(char *why, size_t bytes);

/* Returns the library, which the first call of the process loads. Any thread. Errors: PP_ERESOURCE,
 * with what would work. */
int pp_nccl_load(const struct nccl_library **out);

struct nccl_slot {
    cudaEvent_t here;  /* in the compute stream: written (sender), released (receiver) */
    cudaEvent_t there; /* in the channel's stream: sent, received */
    uint32_t here_fence, there_fence; /* fences at which they were recorded; see struct nccl */
};

/* A group of messages with several ranks on the stream `side`. */
struct nccl_exchange {
    cudaEvent_t here;  /* in the compute stream: the memory of the messages may be used */
    cudaEvent_t there; /* in the side stream: all has been sent and received */
};

struct nccl_helped;
struct abort_one;

struct nccl_end {
    int round;       /* order of creation */
    ncclComm_t comm; /* rank 0 sends, rank 1 receives */
    cudaStream_t stream;
    cudaEvent_t joined; /* everything enqueued so far */
};

struct nccl {
    const struct nccl_library *nccl;
    struct pp_transport *tp;
    pthread_t thread; /* the rank's thread */
    uint64_t timeout_ns;
    uint64_t looked_ns; /* last check of the communicators' state */
    int device;
    bool open;                  /* all communicators exist, on all ranks */
    pthread_mutex_t lock;       /* protects lost, world and the communicators of the ends */
    _Atomic bool lost;          /* communicators were given up */
    bool stuck;                 /* one of them could not be aborted */
    struct abort_one *aborts;   /* [ends + 1] memory for giving up, allocated before steps */
    struct nccl_helped *helped; /* the helper's task */
    cudaStream_t stream;        /* compute stream; owned by the backend */
    cudaStream_t side;          /* stream of the exchanges; NULL: there are none */
    struct nccl_exchange *exchanges;
    int n_exchanges;
    bool *met; /* [size] ranks that world is connected to */
    /* in the compute stream: the other streams may continue; also for `side`, as joined */
    cudaEvent_t forked;
    uint32_t fence; /* forks so far: an event from before the last fork is not waited for */
    bool records;   /* enqueued work becomes part of a graph */
    ncclComm_t world;
    int blocks; /* most multiprocessors that one message may use */
};

static inline struct nccl_slot *nccl_slot(const struct pp_channel_end *e, int slot)
{
    return (struct nccl_slot *)e->own_slots + slot;
}

/*
 * nccl_wait.c: every wait of the host, with its deadline.
 *
 * A failure here (NCCL, CUDA, the deadline, another rank's abort) also gives up all communicators
 * of this rank, so that none of its messages keeps waiting on the device.
 */

/* Reports a failure of NCCL or CUDA with the channel's ranks (e NULL: all ranks) and the library's
 * text, and gives up. */
int pp_nccl_failed(struct nccl *n, const struct pp_channel_end *e, ncclResult_t rc,
                   const char *call);
int pp_nccl_cuda_failed(struct nccl *n, cudaError_t rc, const char *call);

#define CUDA_TRY(n, call)                                                                          \
    do {                                                                                           \
        cudaError_t cuda_try_rc_ = (call);                                                         \
        if (cuda_try_rc_ != cudaSuccess) {                                                         \
            return pp_nccl_cuda_failed((n), cuda_try_rc_, #call);                                  \
        }                                                                                          \
    } while (0)

/* NCCL_TRY(n, e, Send(...)) calls ncclSend; e: see pp_nccl_failed(). */
#define NCCL_TRY(n, e, call)                                                                       \
    do {                                                                                           \
        ncclResult_t nccl_try_rc_ = (n)->nccl->call;                                               \
        if (nccl_try_rc_ != ncclSuccess) {                                                         \
            return pp_nccl_failed((n), (e), nccl_try_rc_, "nccl" #call);                           \
        }                                                                                          \
    } while (0)

/*
 * Runs work() in a thread of its own, because it may wait for other ranks inside NCCL. The rank's
 * thread waits for it with its deadline, watches the other ranks, and gives up when the deadline
 * has passed or another rank has aborted. work() then returns soon, unless NCCL is making a
 * communicator: that thread is left behind, and n->stuck is set. `what`: for people. Errors:
 * PP_ELOST, those of work().
 */
int pp_nccl_help(struct nccl *n, const char *what, int (*work)(struct nccl *n, void *arg),
                 void *arg);
int pp_nccl_helper_create(struct nccl *n);
int pp_nccl_aborts_create(struct nccl *n); /* call before the first communicator */
/* Ends the helper thread if its rank no longer waits for it, else returns. work() calls it
 * after each call of NCCL that cannot be interrupted. */
void pp_nccl_helper_goes_on(struct nccl_helped *h);

/* Checks that the communicators are usable; every call that uses them begins with it. Every few
 * milliseconds it also asks NCCL for their state. Errors: PP_ELOST when they were given up, by this
 * rank or because another rank called abort(). */
int pp_nccl_alive(struct nccl *n);

/* Waits until the event is reached. */
int pp_nccl_wait_event(struct nccl *n, const struct pp_channel_end *e, cudaEvent_t event,
                       const char *what);
/* Waits for a mark: the transport's wait_mark. */
int pp_nccl_wait_mark(struct pp_transport *tp, void *mark, uint64_t timeout_ns);

/* Aborts all communicators, with a deadline. Local, in the rank's thread; idempotent. */
void pp_nccl_give_up(struct nccl *n);

/* ---- nccl_start.c */

/* Entries of the table: */
void pp_nccl_prepare(void);
int pp_nccl_open(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out);
int pp_nccl_open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                          void *const *memory);
int pp_nccl_open_exchanges(struct pp_transport *tp, int count);
void pp_nccl_destroy(struct pp_transport *tp);

/* Enqueues one message of a slot on its channel's stream, between the compute stream's earlier work
 * and the work that waits for the message: used by post_send and post_recv. */
int pp_nccl_move(struct nccl *n, struct pp_channel_end *e, int slot, size_t bytes);

#endif
