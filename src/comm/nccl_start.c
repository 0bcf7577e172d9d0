/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and end of the NCCL transport: exchanges the devices of all ranks, makes one communicator
 * of all ranks, then one for each channel in the order of nccl_order.c, and uses each of them once
 * so that its connections exist before the first step. NCCL is not used before channels are opened.
 */
#include "nccl_impl.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ppcli/dev/devices.h"
#include "ppcli/base/base.h"

#define QUEUES "32" /* the most that CUDA supports */

/* ---- opening */

/* Returns how many devices this process may use, as far as this is known without CUDA; 0 if it is
 * unknown. */
static int count_devices(void)
{
    int n = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    DIR *folder = opendir("/proc/driver/nvidia/gpus");
    for (struct dirent *e; folder && (e = readdir(folder));)
        n += e->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return visible && *visible && !strchr(visible, ',') ? 1 : n;
}

/*
 * Sets two variables of the environment, which the driver reads once, at its first call, whichever
 * part of the program makes it: the number of hardware queues, and that all kernels are loaded at
 * the start unless one process has one device. By default CUDA loads a kernel when it is first
 * launched, and may then wait for everything that runs on the device. A receive that was posted
 * early runs until the other rank sends, which may wait for this rank's next kernel: in the first
 * step neither would continue. Loading all kernels costs a second and memory.
 */
void pp_nccl_prepare(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", QUEUES, 0);
    if (pp_launch_processes() > 1 || count_devices() != 1)
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

/* Warns if the user has set lazy loading of kernels; the setting is kept. */
static void warn_lazy(int rank)
{
    const char *loading = getenv("CUDA_MODULE_LOADING");
    if (rank == 0 && loading && strcmp(loading, "EAGER") != 0)
        pp_log_warn(
            "CUDA_MODULE_LOADING = %s: the first step over NCCL may hang, because a kernel that "
            "is loaded then waits for receives that were posted early; unset it",
            loading);
}

int pp_nccl_open(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out)
{
    const struct nccl_library *nccl = NULL;
    warn_lazy(inner->rank);
    PP_TRY_UNDO(pp_nccl_load(&nccl), pp_transport_destroy(&inner));
    PP_TRY(pp_transport_wrap(&transport_nccl, inner, sizeof(struct nccl), out));
    struct nccl *n = (*out)->impl;
    n->nccl = nccl;
    n->tp = *out;
    pthread_mutex_init(&n->lock, NULL);
    n->thread = pthread_self();
    n->timeout_ns = timeout_ns;
    n->met = pp_alloc((size_t)n->tp->size, sizeof(*n->met));
    if (!n->met || pp_nccl_helper_create(n) < 0)
        pp_transport_destroy(out);
    return *out ? 0 : PP_ERESOURCE;
}

/* ---- data that all ranks exchange */

/* Writes a name that is different on every machine, because NCCL takes two machines for one when
 * their names are equal. The host name alone is not enough: containers and clones share names. */
static void name_host(char *out, size_t bytes)
{
    const char *claimed = getenv("NCCL_HOSTID");
    if (claimed && *claimed) {
        snprintf(out, bytes, "%s", claimed);
        return;
    }
    char name[64] = "";
    (void)gethostname(name, sizeof(name) - 1);
    snprintf(out, bytes, "%s %016llx", name, (unsigned long long)pp_host_id());
}

/* Collective. Gathers the devices of all ranks, checks that no two ranks share one, and sets
 * n->blocks, the most multiprocessors that one message may use. */
static int check_own_devices(struct pp_transport *tp, int most)
{
    struct nccl *n = tp->impl;
    struct nccl_place mine = {0};
    PP_OWN_MEMORY struct nccl_place *all = pp_alloc((size_t)tp->size, sizeof(*all));
    int rc = all ? 0 : PP_ERESOURCE;
    cudaError_t asked = cudaDeviceGetPCIBusId(mine.device, (int)sizeof(mine.device), n->device);
    if (rc == 0 && asked != cudaSuccess)
        rc = pp_nccl_cuda_failed(n, asked, "cudaDeviceGetPCIBusId");
    name_host(mine.host, sizeof(mine.host));
    PP_TRY(pp_transport_agree(tp, rc));
    pp_assert(all != NULL); /* else agree() would have failed */
    PP_TRY(pp_transport_allgather(tp, &mine, sizeof(mine), all));
    n->blocks = pp_nccl_blocks(all, tp->size, most);
    return pp_nccl_check_places(all, tp->size);
}

/* The ids of communicators: [0] of all ranks, made by rank 0; [1 + k] of the k-th channel that a
 * rank sends on. */
struct ids {
    ncclUniqueId *all; /* [size][each] */
    int each;
};

/* Collective. Exchanges the ids from which communicators are made. channels[n_channels] are all
 * channels of the run, by ascending id. */
static int share_ids(struct pp_transport *tp, const struct pp_channel_spec *channels,
                     int n_channels, struct ids *out)
{
    struct nccl *n = tp->impl;
    PP_OWN_MEMORY int *sends = pp_alloc((size_t)tp->size, sizeof(*sends));
    PP_OWN_MEMORY ncclUniqueId *mine = NULL;
    out->each = 1;
    for (int i = 0; sends && i < n_channels; i++) {
        int k = ++sends[channels[i].src];
        out->each = k + 1 > out->each ? k + 1 : out->each;
    }
    int rc = sends ? 0 : PP_ERESOURCE;
    if (rc == 0) {
        mine = pp_alloc((size_t)out->each, sizeof(*mine));
        out->all = pp_alloc((size_t)out->each * (size_t)tp->size, sizeof(*out->all));
        rc = mine && out->all ? 0 : PP_ERESOURCE;
    }
    for (int k = 0; rc == 0 && k <= sends[tp->rank]; k++) {
        if (k > 0 || tp->rank == 0) {
            ncclResult_t made = n->nccl->GetUniqueId(&mine[k]);
            rc = made == ncclSuccess ? 0 : pp_nccl_failed(n, NULL, made, "ncclGetUniqueId");
        }
    }
    PP_TRY(pp_transport_agree(tp, rc));
    return pp_transport_allgather(tp, mine, (size_t)out->each * sizeof(*mine), out->all);
}

static const ncclUniqueId *id_of(const struct ids *ids, const struct pp_channel_spec *channels,
                                 int channel)
{
    int before = 0;
    for (int i = 0; i < channel; i++)
        before += channels[i].src == channels[channel].src;
    return &ids->all[channels[channel].src * ids->each + 1 + before];
}

/* ---- communicators */

/* Makes a communicator; runs in the helper thread. *out is set only if the rank has not given up
 * meanwhile. */
static int make_comm(struct nccl *n, const struct pp_channel_end *e, int size,
                     const ncclUniqueId *id, int rank, ncclComm_t *out)
{
    struct nccl_helped *h = n->helped;
    ncclComm_t made = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (e) {
        config.minCTAs = 1;
        config.maxCTAs = n->blocks;
    }
    ncclResult_t rc = n->nccl->CommInitRankConfig(&made, size, *id, rank, &config);
    pp_nccl_helper_goes_on(h);
    if (rc != ncclSuccess)
        return pp_nccl_failed(n, e, rc, "ncclCommInitRankConfig");
    pthread_mutex_lock(&n->lock);
    bool lost = n->lost;
    if (!lost)
        *out = made;
    pthread_mutex_unlock(&n->lock);
    if (lost)
        (void)n->nccl->CommAbort(made);
    return lost ? pp_fail(PP_ELOST, "stopped: communicators of this rank were given up") : 0;
}

/* Makes the channel's communicator and sends its first message, which makes the connections. In a
 * step it would wait too long, because the other side may be far behind. */
static int connect_end(struct nccl *n, struct pp_channel_end *e, const ncclUniqueId *id)
{
    struct nccl_end *own = e->own;
    PP_TRY(make_comm(n, e, 2, id, e->spec.dst == n->tp->rank, &own->comm));
    PP_TRY(pp_nccl_move(n, e, 0, PP_ALIGN));
    return pp_nccl_wait_event(n, e, nccl_slot(e, 0)->there, "the first message");
}

/* ---- the ends of this rank */

static int make_event(struct nccl *n, cudaEvent_t *out)
{
    CUDA_TRY(n, cudaEventCreateWithFlags(out, cudaEventDisableTiming));
    return 0;
}

static int make_end(struct nccl *n, const struct pp_channel_end *e, int priority)
{
    struct nccl_end *own = e->own;
    CUDA_TRY(n, cudaStreamCreateWithPriority(&own->stream, cudaStreamNonBlocking, priority));
    PP_TRY(make_event(n, &own->joined));
    for (int k = 0; k < e->spec.slots; k++) {
        struct nccl_slot *s = nccl_slot(e, k);
        PP_TRY(make_event(n, &s->here));
        PP_TRY(make_event(n, &s->there));
        /* Work that was enqueued on the slots' memory so far comes before the first message. */
        CUDA_TRY(n, cudaEventRecord(s->here, n->stream));
    }
    return 0;
}

/* Checks that this rank is an end of few enough channels, and that the device has enough hardware
 * queues for them: a waiting message must not share a queue with work that it waits for. */
static int check_queues(const struct nccl *n, int most)
{
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    int queues = text ? atoi(text) : 8;
    if (most > NCCL_CHANNELS_MAX) {
        return pp_fail(
            PP_ERESOURCE,
            "a rank would be an end of %d channels, over NCCL it can be of %d: use fewer "
            "chunks, or run.transport = threads or mpi",
            most, NCCL_CHANNELS_MAX);
    }
    if (n->tp->size > 1 && queues < most + 2) {
        return pp_fail(PP_ERESOURCE,
                       "CUDA_DEVICE_MAX_CONNECTIONS=%d leaves fewer queues than this run has "
                       "streams (%d): unset it, or set it to " QUEUES,
                       queues, most + 2);
    }
    return 0;
}

static int make_ends(struct nccl *n, int most)
{
    int low = 0, high = 0;
    PP_TRY(check_queues(n, most));
    PP_TRY(pp_nccl_aborts_create(n));
    PP_TRY(make_event(n, &n->forked));
    CUDA_TRY(n, cudaDeviceGetStreamPriorityRange(&low, &high));
    for (int i = 0; i < n->tp->n_ends; i++)
        PP_TRY(make_end(n, &n->tp->ends[i], high));
    return 0;
}

struct connecting {
    struct ids ids;
    const struct pp_channel_spec *channels; /* channels of the whole run */
    int n_channels, rounds;
    const int *round;
};

static int connect_world(struct nccl *n, void *arg)
{
    const struct connecting *c = arg;
    return make_comm(n, NULL, n->tp->size, &c->ids.all[0], n->tp->rank, &n->world);
}

/* Connects all channels of this rank, round by round. */
static int connect_ends(struct nccl *n, void *arg)
{
    const struct connecting *c = arg;
    struct pp_transport *tp = n->tp;
    for (int r = 0; r < c->rounds; r++) {
        for (int i = 0; i < c->n_channels; i++) {
            const struct pp_channel_spec *ch = &c->channels[i];
            if (c->round[i] != r || (ch->src != tp->rank && ch->dst != tp->rank))
                continue;
            struct pp_channel_end *e = tp->ends;
            while (e->spec.id != ch->id)
                e++;
            ((struct nccl_end *)e->own)->round = r;
            PP_TRY(connect_end(n, e, id_of(&c->ids, c->channels, i)));
        }
    }
    return 0;
}

/* Collective. Makes all communicators of this rank. */
static int connect_all(struct pp_transport *tp, struct connecting *c)
{
    struct nccl *n = tp->impl;
    int rc = share_ids(tp, c->channels, c->n_channels, &c->ids);
    PP_OWN_MEMORY ncclUniqueId *all = c->ids.all;
    PP_TRY(rc);
    pp_assert(all != NULL); /* else agree() would have failed */
    PP_TRY(pp_transport_agree(tp, pp_nccl_help(n, "connecting all ranks", connect_world, c)));
    return pp_transport_agree(tp, pp_nccl_help(n, "connecting the channels", connect_ends, c));
}

int pp_nccl_open_channels(struct pp_transport *tp, const struct pp_channel_spec *specs, int n_specs,
                          void *const *memory)
{
    struct nccl *n = tp->impl;
    pp_assert(n->stream);
    PP_OWN_MEMORY struct pp_channel_spec *all = NULL;
    int padded = 0, n_channels = 0, most = 0, rounds = 0;
    PP_TRY(pp_channels_gather(tp, specs, n_specs, &all, &padded));
    size_t capacity = (size_t)padded * (size_t)tp->size;
    PP_OWN_MEMORY struct pp_channel_spec *channels = pp_alloc(capacity, sizeof(*channels));
    PP_OWN_MEMORY int *round = pp_alloc(capacity, sizeof(*round));
    int rc = channels && round ? 0 : PP_ERESOURCE;
    if (rc == 0) {
        pp_nccl_merge(all, tp->size, padded, channels, &n_channels);
        rc = pp_nccl_most_channels(channels, n_channels, tp->size, &most);
    }
    if (rc == 0)
        rc = pp_nccl_rounds(channels, n_channels, tp->size, round, &rounds);
    if (rc == 0)
        rc = make_ends(n, most);
    rc = pp_transport_agree(tp, rc);
    if (rc == 0)
        rc = check_own_devices(tp, most);
    if (rc == 0) {
        rc = connect_all(tp, &(struct connecting){.channels = channels,
                                                  .n_channels = n_channels,
                                                  .round = round,
                                                  .rounds = rounds});
    }
    n->open = rc == 0;
    return rc;
}

/* ---- the end */

/* Ends a communicator. The caller ends all in the order of their creation, which is the same on all
 * ranks, because each end waits for the other one. */
static int finish_channel(struct nccl *n, ncclComm_t *comm, const struct pp_channel_end *e)
{
    NCCL_TRY(n, e, CommFinalize(*comm));
    pthread_mutex_lock(&n->lock);
    ncclComm_t done = *comm; /* NULL: it was given up meanwhile */
    *comm = NULL;
    pthread_mutex_unlock(&n->lock);
    if (done)
        NCCL_TRY(n, NULL, CommDestroy(done));
    return 0;
}

static int finish_all(struct nccl *n, void *arg)
{
    for (int round = 0; round < 2 * NCCL_CHANNELS_MAX; round++) {
        for (int i = 0; i < n->tp->n_ends; i++) {
            struct nccl_end *own = n->tp->ends[i].own;
            if (own->comm && own->round == round)
                PP_TRY(finish_channel(n, &own->comm, &n->tp->ends[i]));
        }
    }
    return n->world ? finish_channel(n, &n->world, NULL) : 0;
}

static void free_end(const struct pp_channel_end *e)
{
    const struct nccl_end *own = e->own;
    for (int k = 0; e->own_slots && k < e->spec.slots; k++) {
        if (nccl_slot(e, k)->here)
            cudaEventDestroy(nccl_slot(e, k)->here);
        if (nccl_slot(e, k)->there)
            cudaEventDestroy(nccl_slot(e, k)->there);
    }
    if (own && own->joined)
        cudaEventDestroy(own->joined);
    if (own && own->stream)
        cudaStreamDestroy(own->stream);
}

int pp_nccl_open_exchanges(struct pp_transport *tp, int count)
{
    struct nccl *n = tp->impl;
    int low = 0, high = 0;
    CUDA_TRY(n, cudaDeviceGetStreamPriorityRange(&low, &high));
    CUDA_TRY(n, cudaStreamCreateWithPriority(&n->side, cudaStreamNonBlocking, high));
    PP_ALLOC(n->exchanges, count);
    for (; n->n_exchanges < count; n->n_exchanges++) {
        struct nccl_exchange *x = &n->exchanges[n->n_exchanges];
        PP_TRY(make_event(n, &x->here));
        PP_TRY(make_event(n, &x->there));
    }
    return 0;
}

void pp_nccl_destroy(struct pp_transport *tp)
{
    struct nccl *n = tp->impl;
    struct pp_error kept = *pp_error_get();
    /* After a failed start there may be no other side to wait for. */
    bool finished =
        n->open && pp_nccl_alive(n) == 0 && pp_nccl_help(n, "ending NCCL", finish_all, NULL) == 0;
    if (!finished)
        pp_nccl_give_up(n);
    /* Releasing memory that a stuck device uses would hang this rank too. */
    for (int i = 0; i < tp->n_ends && !n->stuck; i++)
        free_end(&tp->ends[i]);
    for (int i = 0; i < n->n_exchanges && !n->stuck; i++) {
        cudaEventDestroy(n->exchanges[i].here);
        cudaEventDestroy(n->exchanges[i].there);
    }
    if (n->side && !n->stuck)
        cudaStreamDestroy(n->side);
    if (n->forked && !n->stuck)
        cudaEventDestroy(n->forked);
    pp_free(n->exchanges);
    pp_free(n->met);
    if (!n->stuck) { /* unless a thread still reads it */
        pp_free(n->helped);
        pp_free(n->aborts);
    }
    if (kept.code != 0)
        pp_error_adopt(&kept);
}
