/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's waits for NCCL or the device, with deadlines.
 *
 * A message whose other side never comes waits on the device forever, and so does the rest of its
 * stream. So no wait of a rank's thread blocks. It polls what it waits for, the state of every
 * communicator, the other ranks and the clock. A rank that cannot continue aborts all its
 * communicators; then their kernels end and the streams drain.
 *
 * Communicators are blocking, because a nonblocking one starts a thread for every message (NCCL
 * 2.28, src/group.cc). Calls that may wait inside NCCL, which are making, first using and ending a
 * communicator, run in a helper thread.
 */
#include "nccl_impl.h"

#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "ppcli/dev/backend.h"
#include "ppcli/base/base.h"
#include "ppcli/dev/devices.h"
#include "ppcli/base/cores.h"

#define LOOK_NS 5000000  /* interval between checks of all communicators */
#define ABORT_SECONDS 10 /* time limit for aborting all communicators */

/* ---- giving up */

struct abort_one {
    pthread_t thread;
    const struct nccl_library *nccl;
    ncclComm_t comm;
    int device;
};

static void *abort_main(void *arg)
{
    const struct abort_one *a = arg;
    (void)cudaSetDevice(a->device);
    (void)a->nccl->CommAbort(a->comm);
    return NULL;
}

static void collect_comms(const struct nccl *n, ncclComm_t *comm, struct abort_one *out, int *count)
{
    if (*comm) {
        out[(*count)++] = (struct abort_one){.nccl = n->nccl, .comm = *comm, .device = n->device};
        *comm = NULL;
    }
}

int pp_nccl_aborts_create(struct nccl *n)
{
    PP_ALLOC(n->aborts, (size_t)n->tp->n_ends + 1);
    return 0;
}

/* Aborts all communicators at once, each in a thread of its own: an abort waits for the kernels of
 * its communicator, and these may wait, in a stream, for kernels of another communicator. */
void pp_nccl_give_up(struct nccl *n)
{
    struct pp_error kept = *pp_error_get();
    struct abort_one *all = n->aborts; /* NULL: there is no communicator yet */
    int count = 0, started = 0;
    pthread_mutex_lock(&n->lock);
    n->lost = true;
    for (int i = 0; all && i < n->tp->n_ends; i++) {
        struct nccl_end *own = n->tp->ends[i].own;
        if (own)
            collect_comms(n, &own->comm, all, &count);
    }
    if (all)
        collect_comms(n, &n->world, all, &count);
    pthread_mutex_unlock(&n->lock);
    while (started < count && pp_thread_start(&all[started].thread, abort_main, &all[started]) == 0)
        started++;
    n->stuck |= started < count;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += ABORT_SECONDS;
    for (int i = 0; i < started; i++) {
        if (pthread_timedjoin_np(all[i].thread, NULL, &end) != 0) {
            pthread_detach(all[i].thread);
            n->stuck = true;
        }
    }
    if (kept.code != 0)
        pp_error_adopt(&kept);
}

/* Returns the name of a channel, as "rank 0 to 1 (channel 3)", in `out`; "all ranks" if `e` is
 * NULL. */
static const char *format_channel_name(const struct pp_channel_end *e, char *out, size_t bytes)
{
    if (!e)
        return "all ranks";
    snprintf(out, bytes, "rank %d to %d (channel %d)", e->spec.src, e->spec.dst, e->spec.id);
    return out;
}

static int code_of(ncclResult_t rc)
{
    switch (rc) {
    case ncclRemoteError:
        return PP_ELOST;
    case ncclSystemError:
    case ncclUnhandledCudaError:
        return PP_ERESOURCE;
    default:
        return PP_EINTERNAL;
    }
}

/* Returns advice for a failed call if /dev/shm is small, else "". NCCL keeps its buffers between
 * processes, and between devices without peer access, in /dev/shm, which has 64 MiB in a container
 * by default. */
static const char *shared_memory_advice(ncclResult_t rc, char *out, size_t bytes)
{
    struct statvfs fs;
    out[0] = '\0';
    if (rc == ncclSystemError && statvfs("/dev/shm", &fs) == 0) {
        double mib = (double)fs.f_blocks * (double)fs.f_frsize / (1 << 20);
        if (mib < 1024)
            snprintf(out, bytes,
                     "; /dev/shm has only %.0f MiB: start the container with --shm-size=1g", mib);
    }
    return out;
}

int pp_nccl_failed(struct nccl *n, const struct pp_channel_end *e, ncclResult_t rc,
                   const char *call)
{
    char name[64], advice[96];
    const char *more = n->nccl->GetLastError(e ? ((struct nccl_end *)e->own)->comm : n->world);
    int code = pp_fail(code_of(rc), "NCCL, %s, %.*s: %s%s%.512s%s",
                       format_channel_name(e, name, sizeof(name)), (int)strcspn(call, "("), call,
                       n->nccl->GetErrorString(rc), more && *more ? ": " : "", more ? more : "",
                       shared_memory_advice(rc, advice, sizeof(advice)));
    pp_nccl_give_up(n);
    return code;
}

int pp_nccl_cuda_failed(struct nccl *n, cudaError_t rc, const char *call)
{
    const char *advice;
    int code = pp_cuda_meaning((int)rc, &advice);
    pp_fail(code, "device %d, %.*s: %s (%d); %s", n->device, (int)strcspn(call, "("), call,
            cudaGetErrorString(rc), (int)rc, advice);
    pp_nccl_give_up(n);
    return code;
}

/* ---- checking */

static int look_at(struct nccl *n, const struct pp_channel_end *e, ncclComm_t comm)
{
    ncclResult_t state = ncclSuccess;
    if (!comm)
        return 0;
    ncclResult_t rc = n->nccl->CommGetAsyncError(comm, &state);
    rc = rc == ncclSuccess ? state : rc;
    if (rc != ncclSuccess && rc != ncclInProgress)
        return pp_nccl_failed(n, e, rc, "while it moved a message");
    return 0;
}

int pp_nccl_alive(struct nccl *n)
{
    if (n->lost)
        return pp_fail(PP_ELOST, "stopped: communicators of this rank were given up");
    if (pp_transport_stopped(n->tp)) {
        pp_nccl_give_up(n);
        return pp_fail(PP_ELOST, "stopped: another rank failed");
    }
    uint64_t now = pp_clock_ns();
    if (now - n->looked_ns < LOOK_NS)
        return 0;
    n->looked_ns = now;
    for (int i = 0; i < n->tp->n_ends; i++) {
        const struct pp_channel_end *e = &n->tp->ends[i];
        PP_TRY(look_at(n, e, ((struct nccl_end *)e->own)->comm));
    }
    return look_at(n, NULL, n->world);
}

/* The state of a wait: its deadline, and what it waits for. */
struct wait {
    struct pp_poll poll;
    uint64_t timeout_ns;
    const struct pp_channel_end *e;
    const char *what;
};

/* Returns the state of an event without leaving an error behind. To the runtime "not ready" and
 * "recorded in a capture" are errors, which the next launch would report. */
static cudaError_t query_event(cudaEvent_t event)
{
    cudaError_t rc = cudaEventQuery(event);
    if (rc != cudaSuccess)
        cudaGetLastError();
    return rc;
}

/* Returns the first channel with a message that was enqueued and is not done, for which the device
 * waits; NULL if there is none. */
static const struct pp_channel_end *find_unfinished(const struct nccl *n)
{
    for (int i = 0; i < n->tp->n_ends; i++) {
        const struct pp_channel_end *e = &n->tp->ends[i];
        for (int k = 0; k < e->spec.slots; k++)
            if (query_event(nccl_slot(e, k)->there) == cudaErrorNotReady)
                return e;
    }
    return NULL;
}

static int too_late(struct nccl *n, const struct wait *w)
{
    char name[64];
    const struct pp_channel_end *e = w->e ? w->e : find_unfinished(n);
    int code =
        pp_fail(PP_ELOST, "NCCL, %s: %s has taken more than %.3g s; is a rank gone?",
                format_channel_name(e, name, sizeof(name)), w->what, (double)w->timeout_ns * 1e-9);
    pp_nccl_give_up(n);
    return code;
}

/* Pauses between two polls of a wait. Fails if the communicators were given up or the wait has
 * taken too long. */
static int pause_(struct nccl *n, struct wait *w)
{
    w->poll.backoff.crowded = true;
    w->poll.waited_ns = n->tp->waited_ns;
    PP_TRY(pp_nccl_alive(n));
    return pp_poll_pause(&w->poll, w->timeout_ns) ? 0 : too_late(n, w);
}

/* ---- the helper */

struct nccl_helped {
    struct nccl *n;
    int (*work)(struct nccl *n, void *arg);
    void *arg;
    struct pp_error error;
    int rc;
    pthread_mutex_t lock;
    bool done, abandoned;
};

int pp_nccl_helper_create(struct nccl *n)
{
    PP_ALLOC(n->helped, 1);
    n->helped->n = n;
    pthread_mutex_init(&n->helped->lock, NULL);
    return 0;
}

static void *helper_main(void *arg)
{
    struct nccl_helped *h = arg;
    cudaError_t set = cudaSetDevice(h->n->device);
    h->rc = set == cudaSuccess ? h->work(h->n, h->arg)
                               : pp_nccl_cuda_failed(h->n, set, "cudaSetDevice");
    h->error = *pp_error_get();
    pthread_mutex_lock(&h->lock);
    h->done = true;
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

void pp_nccl_helper_goes_on(struct nccl_helped *h)
{
    pthread_mutex_lock(&h->lock);
    bool abandoned = h->abandoned;
    pthread_mutex_unlock(&h->lock);
    if (abandoned) /* the rank may be gone, and the process ends with an error */
        pthread_exit(NULL);
}

static bool is_done(struct nccl_helped *h)
{
    pthread_mutex_lock(&h->lock);
    bool done = h->done;
    pthread_mutex_unlock(&h->lock);
    return done;
}

/* Returns whether the helper thread returns within some seconds after the rank has given up. */
static bool comes_back(struct nccl_helped *h)
{
    uint64_t end = pp_clock_ns() + ABORT_SECONDS * 1000000000ull;
    while (!is_done(h) && pp_clock_ns() < end)
        pp_clock_nap(1000000);
    pthread_mutex_lock(&h->lock);
    h->abandoned = !h->done;
    pthread_mutex_unlock(&h->lock);
    return !h->abandoned;
}

int pp_nccl_help(struct nccl *n, const char *what, int (*work)(struct nccl *n, void *arg),
                 void *arg)
{
    pthread_t thread;
    struct wait w = {.timeout_ns = n->timeout_ns, .what = what};
    struct nccl_helped *h = n->helped;
    h->work = work;
    h->arg = arg;
    h->done = false;
    if (pp_thread_start(&thread, helper_main, h) != 0)
        return pp_fail(PP_ERESOURCE, "cannot start a thread for NCCL");
    int rc = 0;
    w.poll = (struct pp_poll){.backoff.crowded = true, .waited_ns = n->tp->waited_ns};
    while (rc == 0 && !is_done(h))
        if (pp_transport_stopped(n->tp))
            rc = pp_nccl_alive(n);
        else if (!pp_poll_pause(&w.poll, w.timeout_ns))
            rc = too_late(n, &w);
    if (rc < 0 && !comes_back(h)) {
        n->stuck = true;
        pthread_detach(thread);
        return rc;
    }
    pthread_join(thread, NULL);
    if (rc == 0 && h->rc < 0)
        pp_error_adopt(&h->error);
    return rc < 0 ? rc : h->rc;
}

int pp_nccl_wait_event(struct nccl *n, const struct pp_channel_end *e, cudaEvent_t event,
                       const char *what)
{
    struct wait w = {.timeout_ns = n->timeout_ns, .e = e, .what = what};
    for (;;) {
        cudaError_t rc = query_event(event);
        if (rc == cudaSuccess)
            return 0;
        if (rc != cudaErrorNotReady)
            return pp_nccl_cuda_failed(n, rc, "cudaEventQuery");
        PP_TRY(pause_(n, &w));
    }
}

int pp_nccl_wait_mark(struct pp_transport *tp, void *mark, uint64_t timeout_ns)
{
    struct nccl *n = tp->impl;
    struct wait w = {.timeout_ns = timeout_ns, .what = "the work of the device"};
    for (;;) {
        bool reached = false;
        PP_TRY(pp_backend_mark_reached(tp->be, mark, &reached));
        if (reached) {
            /* An abort also lets the device continue, with invalid data in the slots. */
            return n->lost ? pp_nccl_alive(n) : 0;
        }
        PP_TRY(pause_(n, &w));
    }
}
