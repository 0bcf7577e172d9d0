/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the NCCL transport share: nccl.c (messages, sums), nccl_start.c (start and end)
 * and nccl_wait.c (waiting and giving up). No other file sees nccl.h. */
#ifndef PPCLI_COMM_NCCL_IMPL_H
#define PPCLI_COMM_NCCL_IMPL_H

#include <nccl.h>
#include <pthread.h>

#include "impl.h"
#include "nccl_order.h"
#include "wait.h"

/* NCCL is loaded when it is first needed: a program that was built with it also runs where it is not
 * installed. Typed as its header declares them: nccl->Send is ncclSend. */
struct nccl_library {
#define NCCL(x) __typeof__(&nccl##x) x;
#include "nccl_library.def"
};

/* See struct pp_transport_ops. */
const char *pp_nccl_version(void);
int pp_nccl_probe(char *why, size_t bytes);

/* The library, loaded by the first call of the process and kept. Any thread. Errors: PP_ERESOURCE,
 * with what would work. */
int pp_nccl_load(const struct nccl_library **out);

struct nccl_slot {
    cudaEvent_t here;  /* in the compute stream: written (sender), released (receiver) */
    cudaEvent_t there; /* in the channel's stream: sent, received */
    uint32_t here_fence, there_fence; /* when they were recorded; see struct nccl */
};

/* A group of messages with several ranks on the stream `side`. */
struct nccl_exchange {
    cudaEvent_t here;  /* in the compute stream: the memory of the messages may be used */
    cudaEvent_t there; /* in the side stream: all has been sent and received */
};

struct nccl_helped;
struct abort_one;

struct nccl_end {
    int round;       /* of creation */
    ncclComm_t comm; /* rank 0 sends, rank 1 receives */
    cudaStream_t stream;
    cudaEvent_t joined; /* all of it so far */
};

struct nccl {
    const struct nccl_library *nccl;
    struct pp_transport *tp;
    pthread_t thread; /* the rank's */
    uint64_t timeout_ns;
    uint64_t looked_ns; /* at what NCCL says of its communicators */
    int device;
    bool open;                  /* all communicators are there, on all ranks */
    pthread_mutex_t lock;       /* of lost, world and the communicators of the ends */
    _Atomic bool lost;          /* communicators were given up */
    bool stuck;                 /* and one of them did not let go */
    struct abort_one *aborts;   /* [ends + 1] for giving up: other ranks may be in a step, which
                                   does not allocate */
    struct nccl_helped *helped; /* what the helper does */
    cudaStream_t stream;        /* compute; the backend's */
    cudaStream_t side;          /* of the exchanges; NULL: there are none */
    struct nccl_exchange *exchanges;
    int n_exchanges;
    bool *met; /* [size] ranks that world is connected to; our own: for gathering */
    cudaEvent_t
        forked; /* the compute stream, when the others may continue; and for `side`, as joined */
    uint32_t fence; /* forks so far: an event from before the last one is not waited for */
    bool records;   /* what is enqueued becomes part of a graph */
    ncclComm_t world;
    int blocks; /* multiprocessors of one message at most */
};

static inline struct nccl_slot *nccl_slot(const struct pp_channel_end *e, int slot)
{
    return (struct nccl_slot *)e->own_slots + slot;
}

/*
 * nccl_wait.c: every wait of the host, with its deadline.
 *
 * Whatever fails here (NCCL, CUDA, the deadline, another rank's abort) has also given up all
 * communicators of this rank, so that nothing of it is left waiting on the device.
 */

/* Say a failure of NCCL or CUDA with the channel's ranks (e NULL: of all ranks) and the library's
 * words, and give up. */
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
 * Do in a thread of its own what may wait for other ranks inside NCCL; the rank's thread waits for it,
 * with its deadline and with an eye on the other ranks, and gives up when one is passed. work() returns
 * soon then, but where NCCL makes a communicator: such a thread is left behind, and n->stuck is set.
 * `what`: for people. Errors: PP_ELOST, those of work().
 */
int pp_nccl_help(struct nccl *n, const char *what, int (*work)(struct nccl *n, void *arg),
                 void *arg);
int pp_nccl_helper_create(struct nccl *n);
int pp_nccl_aborts_create(struct nccl *n); /* before the first communicator */
/* In work(), after a call that nothing can end: does not return when the rank no longer waits for it. */
void pp_nccl_helper_goes_on(struct nccl_helped *h);

/* PP_ELOST when communicators were given up, by this rank or because another one called abort();
 * and, every few milliseconds, what NCCL says of the communicators. To be called first. */
int pp_nccl_alive(struct nccl *n);

/* Until the event is reached. */
int pp_nccl_wait_event(struct nccl *n, const struct pp_channel_end *e, cudaEvent_t event,
                       const char *what);
/* ops->wait_mark */
int pp_nccl_wait_mark(struct pp_transport *tp, void *mark, uint64_t timeout_ns);

/* Abort all communicators, with a deadline. Local, in the rank's thread; idempotent. */
void pp_nccl_give_up(struct nccl *n);

/* ---- nccl_start.c */

/* Of the table: */
void pp_nccl_prepare(void);
int pp_nccl_open(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out);
int pp_nccl_open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n,
                          void *const *memory);
int pp_nccl_open_exchanges(struct pp_transport *tp, int count);
void pp_nccl_destroy(struct pp_transport *tp);

/* Enqueue one message of a slot on its channel's stream, between the compute stream's work before
 * and what waits for it: what post_send and post_recv do. */
int pp_nccl_move(struct nccl *n, struct pp_channel_end *e, int slot, size_t bytes);

#endif
