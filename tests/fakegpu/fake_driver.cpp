/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of the driver that are asked for by name: green contexts, pieces of a device's
 * multiprocessors. As on compute capability 9.0, pieces are multiples of 8. A piece remembers which
 * multiprocessors it has, so that two contexts that overlap are found.
 */
#include <cstring>
#include <cuda.h>

#include "fake.h"

static const unsigned GRAIN = 8;

/* What a resource stands for, kept in the part of it that belongs to the driver. */
struct Piece {
    int device;
    unsigned first, count;
};

struct CUgreenCtx_st {
    Piece piece;
};

struct CUdevResourceDesc_st {
    Piece piece;
};

static std::set<CUgreenCtx> contexts;

static CUdevResource resource_of(const Piece &p)
{
    CUdevResource r;
    memset(&r, 0, sizeof r);
    r.type = CU_DEV_RESOURCE_TYPE_SM;
    static_assert(sizeof p <= sizeof r._internal_padding, "fits");
    memcpy(r._internal_padding, &p, sizeof p);
    r.sm.smCount = p.count;
    r.sm.minSmPartitionSize = GRAIN;
    r.sm.smCoscheduledAlignment = GRAIN;
    return r;
}

static Piece piece_of(const CUdevResource &r)
{
    Piece p;
    memcpy(&p, r._internal_padding, sizeof p);
    return p;
}

#define DRIVER_ENTER()                                                                             \
    do {                                                                                           \
        int code_;                                                                                 \
        if (fake_fails(__func__, &code_))                                                          \
            return (CUresult)code_;                                                                \
    } while (0)

static CUresult fake_cuDeviceGetDevResource(CUdevice device, CUdevResource *out,
                                            CUdevResourceType type)
{
    DRIVER_ENTER();
    if (fake_device(device) == NULL)
        return CUDA_ERROR_INVALID_DEVICE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *out = resource_of({device, 0, (unsigned)fake_sms()});
    return CUDA_SUCCESS;
}

static CUresult fake_cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *groups,
                                                 const CUdevResource *input,
                                                 CUdevResource *remaining, unsigned flags,
                                                 unsigned least)
{
    DRIVER_ENTER();
    if (groups == NULL || input == NULL || input->type != CU_DEV_RESOURCE_TYPE_SM || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    Piece whole = piece_of(*input);
    unsigned each = least == 0 ? GRAIN : (least + GRAIN - 1) / GRAIN * GRAIN;
    unsigned most = whole.count / each;
    if (most == 0)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result == NULL) {
        *groups = most;
        return CUDA_SUCCESS;
    }
    unsigned n = std::min(*groups, most);
    for (unsigned i = 0; i < n; i++)
        result[i] = resource_of({whole.device, whole.first + i * each, each});
    if (remaining != NULL)
        *remaining = resource_of({whole.device, whole.first + n * each, whole.count - n * each});
    *groups = n;
    return CUDA_SUCCESS;
}

static CUresult fake_cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *resources,
                                               unsigned n)
{
    DRIVER_ENTER();
    if (n != 1 || resources[0].type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_VALUE;
    /* the driver has no call that frees one; a few of them, kept */
    static std::vector<std::unique_ptr<CUdevResourceDesc_st>> made;
    std::lock_guard<std::mutex> hold(fake_lock);
    made.emplace_back(new CUdevResourceDesc_st{piece_of(resources[0])});
    *out = made.back().get();
    return CUDA_SUCCESS;
}

static CUresult fake_cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc desc, CUdevice device,
                                      unsigned flags)
{
    DRIVER_ENTER();
    if (desc == NULL || device != desc->piece.device || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> hold(fake_lock);
    const Piece &p = desc->piece;
    for (CUgreenCtx c : contexts)
        if (c->piece.device == p.device && c->piece.first < p.first + p.count &&
            p.first < c->piece.first + c->piece.count)
            fake_die("two green contexts share multiprocessors: split the device once");
    *out = new CUgreenCtx_st{p};
    contexts.insert(*out);
    fake_count("green contexts", 1);
    return CUDA_SUCCESS;
}

static CUresult fake_cuGreenCtxDestroy(CUgreenCtx c)
{
    DRIVER_ENTER();
    std::lock_guard<std::mutex> hold(fake_lock);
    if (contexts.erase(c) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    delete c;
    fake_count("green contexts", -1);
    return CUDA_SUCCESS;
}

static CUresult fake_cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx c, unsigned flags, int)
{
    DRIVER_ENTER();
    if (flags != CU_STREAM_NON_BLOCKING) /* the driver demands it */
        return CUDA_ERROR_INVALID_VALUE;
    *out = fake_stream_new(fake_device(c->piece.device), (int)c->piece.count);
    fake_count("streams", 1);
    return CUDA_SUCCESS;
}

#define ENTRY(name)                                                                                \
    {                                                                                              \
#name, (void *)fake_##name                                                                 \
    }

extern "C" cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version,
                                 unsigned long long, enum cudaDriverEntryPointQueryResult *status)
{
    static const std::map<std::string, void *> entries = {
        ENTRY(cuDeviceGetDevResource),    ENTRY(cuDevSmResourceSplitByCount),
        ENTRY(cuDevResourceGenerateDesc), ENTRY(cuGreenCtxCreate),
        ENTRY(cuGreenCtxDestroy),         ENTRY(cuGreenCtxStreamCreate),
    };
    *out = NULL;
    FAKE_ENTER();
    auto it = entries.find(symbol);
    bool known = it != entries.end() && version >= 12040 && /* green contexts came with 12.4 */
                 (int)version <= fake_driver();
    if (status != NULL)
        *status = known                 ? cudaDriverEntryPointSuccess
                  : it == entries.end() ? cudaDriverEntryPointSymbolNotFound
                                        : cudaDriverEntryPointVersionNotSufficent;
    *out = known ? it->second : NULL;
    return cudaSuccess;
}
