/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the process knows about its devices: how many there are, who uses them, and how one is cut
 * into pieces. This is the only state that ranks share here. A process has one primary context for
 * a device and must cut it only once, because the pieces of two cuts would overlap.
 */
#include "cuda_impl.h"

#include <pthread.h>
#include <unistd.h>

#include <cuda.h>

#include "ppcli/dev/devices.h"
#include "ppcli/base/base.h"
#include "plan.h"

#define MAX_PIECES 32

/* ---- functions of the driver */

/* Functions of the driver, which is never linked. They are found through the runtime, in the
 * version for which this file was written. */
struct driver {
    __typeof__(&cuDeviceGetDevResource) cuDeviceGetDevResource;
    __typeof__(&cuDevSmResourceSplitByCount) cuDevSmResourceSplitByCount;
    __typeof__(&cuDevResourceGenerateDesc) cuDevResourceGenerateDesc;
    __typeof__(&cuGreenCtxCreate) cuGreenCtxCreate;
    __typeof__(&cuGreenCtxDestroy) cuGreenCtxDestroy;
    __typeof__(&cuGreenCtxStreamCreate) cuGreenCtxStreamCreate;
};

static bool find_entry(const char *name, int version, void **out)
{
    enum cudaDriverEntryPointQueryResult found;
    *out = NULL;
    cudaError_t e =
        cudaGetDriverEntryPointByVersion(name, out, (unsigned)version, cudaEnableDefault, &found);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return found == cudaDriverEntryPointSuccess && *out;
}

static bool find_driver(struct driver *d)
{
    return find_entry("cuDeviceGetDevResource", 12040, (void **)&d->cuDeviceGetDevResource) &&
           find_entry("cuDevSmResourceSplitByCount", 12040,
                      (void **)&d->cuDevSmResourceSplitByCount) &&
           find_entry("cuDevResourceGenerateDesc", 12040, (void **)&d->cuDevResourceGenerateDesc) &&
           find_entry("cuGreenCtxCreate", 12040, (void **)&d->cuGreenCtxCreate) &&
           find_entry("cuGreenCtxDestroy", 12040, (void **)&d->cuGreenCtxDestroy) &&
           find_entry("cuGreenCtxStreamCreate", 12050, (void **)&d->cuGreenCtxStreamCreate);
}

/* ---- devices of the process */

struct cuda_device {
    int number;
    int users;
    int processors;
    pthread_mutex_t choices_lock;
    struct cuda_choice *choices;
    int pieces; /* 0: not cut */
    int piece_processors;
    struct driver driver;
    CUgreenCtx contexts[MAX_PIECES]; /* [pieces] */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_device *devices[CUDA_DEVICES_MAX];

int cuda_count_devices(int *n, char *why, size_t bytes)
{
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaSuccess && count > 0) {
        *n = count < CUDA_DEVICES_MAX ? count : CUDA_DEVICES_MAX;
        return 0;
    }
    cudaGetLastError();
    if (e == cudaErrorInsufficientDriver) {
        int version = 0;
        if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
            snprintf(why, bytes, "no NVIDIA driver is loaded here; use run.backend = cpu");
        } else {
            snprintf(why, bytes,
                     "the NVIDIA driver is for CUDA %d.%d, this build needs %d.%d; install a newer "
                     "driver, or use run.backend = cpu",
                     version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
                     CUDART_VERSION % 1000 / 10);
        }
    } else if ((e == cudaErrorNoDevice || e == cudaSuccess) && access("/dev/nvidia0", F_OK) == 0 &&
               access("/dev/nvidia0", R_OK | W_OK) < 0) {
        snprintf(why, bytes,
                 "no permission to use /dev/nvidia0; join its group, or use run.backend = cpu");
    } else if (e == cudaErrorNoDevice || e == cudaSuccess) {
        snprintf(why, bytes,
                 "the NVIDIA driver shows no device; see CUDA_VISIBLE_DEVICES, in a container its "
                 "option for GPUs (docker run --gpus all), or use run.backend = cpu");
    } else {
        const char *advice;
        pp_cuda_meaning((int)e, &advice);
        snprintf(why, bytes, "cudaGetDeviceCount: %s (%d); %s; or use run.backend = cpu",
                 cudaGetErrorString(e), (int)e, advice);
    }
    return PP_ERESOURCE;
}

int cuda_check_device(int device, char *why, size_t bytes)
{
    int major = 0, minor = 0, mode = cudaComputeModeDefault;
    cudaError_t e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device);
    return cuda_device_problem(e, major * 10 + minor, mode, why, bytes);
}

static void describe_device(int number, const struct cudaDeviceProp *p, struct pp_device *out)
{
    *out = (struct pp_device){.number = number,
                              .processors = p->multiProcessorCount,
                              .capability = p->major * 10 + p->minor,
                              .bytes = p->totalGlobalMem};
    snprintf(out->name, sizeof(out->name), "%.*s", (int)sizeof(out->name) - 1, p->name);
    const unsigned char *u = (const unsigned char *)p->uuid.bytes;
    snprintf(out->uuid, sizeof(out->uuid),
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
             u[15]);
    (void)cuda_check_device(number, out->problem, sizeof(out->problem));
}

int cuda_list_devices(struct pp_device *out, int max, int *n, char *why, size_t bytes)
{
    int count;
    PP_TRY(cuda_count_devices(&count, why, bytes));
    for (int i = 0; i < count && i < max; i++) {
        struct cudaDeviceProp p;
        cudaError_t e = cudaGetDeviceProperties(&p, i);
        if (e != cudaSuccess) {
            cudaGetLastError();
            snprintf(why, bytes, "device %d: cudaGetDeviceProperties: %s (%d)", i,
                     cudaGetErrorString(e), (int)e);
            return PP_ERESOURCE;
        }
        describe_device(i, &p, &out[i]);
    }
    *n = count;
    return 0;
}

bool cuda_reaches(int from, int to)
{
    int can = from == to;
    if (!can && cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess) {
        cudaGetLastError();
        can = 0;
    }
    return can != 0;
}

int cuda_free_bytes(int device, uint64_t *out)
{
    int before = 0;
    size_t free, total;
    CUDA_TRY(device, cudaGetDevice(&before));
    CUDA_TRY(device, cudaSetDevice(device));
    cudaError_t e = cudaMemGetInfo(&free, &total);
    if (before != device)
        cudaSetDevice(before);
    CUDA_TRY(device, e);
    *out = free;
    return 0;
}

void cuda_versions(void (*visit)(void *ctx, const char *what, const char *text), void *ctx)
{
    char text[256];
    int version = 0;
    if (cudaDriverGetVersion(&version) == cudaSuccess && version > 0) {
        snprintf(text, sizeof(text), "%d.%d", version / 1000, version % 1000 / 10);
    } else {
        cudaGetLastError();
        snprintf(text, sizeof(text), "none is loaded");
    }
    visit(ctx, "CUDA driver", text);
    snprintf(text, sizeof(text), "%d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    visit(ctx, "CUDA runtime", text);
    int n;
    bool here = cuda_count_devices(&n, text, sizeof(text)) == 0;
    /* loading takes longer than everything else here */
    snprintf(text, sizeof(text), "not loaded: no device");
    if (here) {
        const struct cuda_blas *blas = cuda_blas_load(text, sizeof(text));
        if (blas)
            cuda_blas_version(blas, text, sizeof(text));
    }
    visit(ctx, "cuBLASLt", text);
    if (here)
        cuda_dnn_probe(text, sizeof(text));
    visit(ctx, "cuDNN", text);
}

/* ---- holding a device */

/* Lets copies go directly between this device and the other devices in use, where the hardware
 * can; otherwise the driver copies through the host. The caller holds `lock`, and the device is
 * current. */
static void connect_peers(int number)
{
    for (int other = 0; other < CUDA_DEVICES_MAX; other++) {
        if (other == number || !devices[other] || devices[other]->users == 0)
            continue;
        if (cuda_reaches(number, other))
            cudaDeviceEnablePeerAccess(other, 0);
        if (cuda_reaches(other, number) && cudaSetDevice(other) == cudaSuccess) {
            cudaDeviceEnablePeerAccess(number, 0);
            cudaSetDevice(number);
        }
    }
    cudaGetLastError(); /* the access may be enabled already, which does no harm */
}

int cuda_device_hold(int number, struct cuda_device **out)
{
    pp_assert(number >= 0 && number < CUDA_DEVICES_MAX);
    CUDA_TRY(number, cudaSetDevice(number));
    int processors;
    CUDA_TRY(number, cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, number));
    pthread_mutex_lock(&lock);
    struct cuda_device *d = devices[number];
    if (!d) {
        d = pp_alloc(1, sizeof(*d));
        PP_TRY_UNDO(d ? 0 : PP_ERESOURCE, pthread_mutex_unlock(&lock));
        d->number = number;
        d->processors = processors;
        pthread_mutex_init(&d->choices_lock, NULL);
        devices[number] = d;
        connect_peers(number);
    }
    d->users++;
    pthread_mutex_unlock(&lock);
    *out = d;
    return 0;
}

void cuda_device_drop(struct cuda_device *d)
{
    pthread_mutex_lock(&lock);
    if (--d->users == 0) {
        for (int i = 0; i < d->pieces; i++)
            d->driver.cuGreenCtxDestroy(d->contexts[i]);
        cuda_choices_free(d->choices);
        pthread_mutex_destroy(&d->choices_lock);
        devices[d->number] = NULL;
        pp_free(d);
    }
    pthread_mutex_unlock(&lock);
}

struct cuda_choice **cuda_device_choices(struct cuda_device *d)
{
    pthread_mutex_lock(&d->choices_lock);
    return &d->choices;
}

void cuda_device_choices_done(struct cuda_device *d)
{
    pthread_mutex_unlock(&d->choices_lock);
}

/* ---- pieces */

static int cut_failed(const struct cuda_device *d, const char *call, CUresult r)
{
    return pp_fail(PP_ERESOURCE,
                   "run.partition_sms: cuda device %d: %s gave error %d; use run.partition_sms = "
                   "off",
                   d->number, call, (int)r);
}

/* Cuts the device into groups of multiprocessors: as many groups as requested, each as large as
 * possible. Tries smaller groups if there are too few, because clusters with missing
 * multiprocessors may give fewer groups than the arithmetic says. */
static int cut_groups(struct cuda_device *d, int pieces, CUdevResource *groups)
{
    CUdevResource all = {0};
    CUresult r = d->driver.cuDeviceGetDevResource(d->number, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (r != CUDA_SUCCESS)
        return cut_failed(d, "cuDeviceGetDevResource", r);
    int least = 0, unit = 0;
#if CUDART_VERSION >= 13000
    least = (int)all.sm.minSmPartitionSize;
    unit = (int)all.sm.smCoscheduledAlignment;
#endif
    least = least ? least : 8;
    unit = unit ? unit : 8;
    for (int each = cuda_partition_size((int)all.sm.smCount, least, unit, pieces); each >= least;
         each -= unit) {
        unsigned n = 0;
        r = d->driver.cuDevSmResourceSplitByCount(NULL, &n, &all, NULL, 0, (unsigned)each);
        if (r != CUDA_SUCCESS || n < (unsigned)pieces)
            continue;
        n = (unsigned)pieces;
        r = d->driver.cuDevSmResourceSplitByCount(groups, &n, &all, NULL, 0, (unsigned)each);
        if (r != CUDA_SUCCESS)
            return cut_failed(d, "cuDevSmResourceSplitByCount", r);
        d->piece_processors = (int)groups[0].sm.smCount;
        return 0;
    }
    return pp_fail(PP_ERESOURCE,
                   "run.partition_sms: the %u multiprocessors of cuda device %d make no %d pieces "
                   "of at least %d; use fewer ranks on it, or run.partition_sms = off",
                   all.sm.smCount, d->number, pieces, least);
}

static int cut_device(struct cuda_device *d, int pieces)
{
    if (d->pieces == pieces)
        return 0;
    if (d->pieces > 0 || pieces > MAX_PIECES) {
        return pp_fail(PP_ERESOURCE,
                       "run.partition_sms: cuda device %d cannot be cut into %d pieces: %s; use "
                       "run.partition_sms = off",
                       d->number, pieces,
                       d->pieces > 0 ? "it is in use in other pieces" : "at most 32 are possible");
    }
    if (!find_driver(&d->driver)) {
        return pp_fail(PP_ERESOURCE,
                       "run.partition_sms: the driver of cuda device %d has no green contexts "
                       "(CUDA 12.5 and later); use run.partition_sms = off",
                       d->number);
    }
    CUdevResource groups[MAX_PIECES];
    PP_TRY(cut_groups(d, pieces, groups));
    for (int i = 0; i < pieces; i++) {
        CUdevResourceDesc desc;
        CUresult r = d->driver.cuDevResourceGenerateDesc(&desc, &groups[i], 1);
        if (r == CUDA_SUCCESS) {
            r = d->driver.cuGreenCtxCreate(&d->contexts[i], desc, d->number,
                                           CU_GREEN_CTX_DEFAULT_STREAM);
        }
        if (r != CUDA_SUCCESS) {
            while (i-- > 0)
                d->driver.cuGreenCtxDestroy(d->contexts[i]);
            return cut_failed(d, "cuGreenCtxCreate", r);
        }
    }
    d->pieces = pieces;
    return 0;
}

int cuda_device_stream(struct cuda_device *d, int partition, int partitions, cudaStream_t *stream,
                       int *processors)
{
    if (partitions == 0) {
        CUDA_TRY(d->number, cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
        *processors = d->processors;
        return 0;
    }
    pp_assert(partition >= 0 && partition < partitions);
    pthread_mutex_lock(&lock);
    int rc = cut_device(d, partitions);
    pthread_mutex_unlock(&lock);
    PP_TRY(rc);
    CUstream made;
    CUresult r =
        d->driver.cuGreenCtxStreamCreate(&made, d->contexts[partition], CU_STREAM_NON_BLOCKING, 0);
    if (r != CUDA_SUCCESS)
        return cut_failed(d, "cuGreenCtxStreamCreate", r);
    *stream = made; /* CUstream and cudaStream_t are the same type */
    *processors = d->piece_processors;
    return 0;
}

int cuda_device_processors(const struct cuda_device *d)
{
    return d->processors;
}
