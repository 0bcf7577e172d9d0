/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the CUDA backend share: the state of one rank, how foreign codes become ours,
 * and what the whole process knows about a device.
 *
 * A rank has one stream; all its work is in order there. Memory for a step is taken when a shape is
 * first seen and kept until the backend is closed, because a captured graph holds its address.
 */
#ifndef PPCLI_DEV_CUDA_IMPL_H
#define PPCLI_DEV_CUDA_IMPL_H

#include "kernels.h"
#include "library.h"

/* Memory that was handed out and may still be in a graph. */
struct cuda_block {
    void *p;
    struct cuda_block *next;
};

struct cuda_device;
struct cuda_plan;

struct cuda {
    int device;
    cudaStream_t stream;
    struct cuda_device *shared; /* of the process; held until close */
    int partition, partitions;  /* of the device; 0 partitions: all of it */
    int processors;             /* multiprocessors this rank computes on */
    int of_processors;          /* the device's */
    bool exact;
    enum pp_precision precision;
    const struct cuda_blas *blas;
    cublasLtHandle_t handle;
    void *workspace; /* of products; NULL when exact: an algorithm that needs none is pinned */
    size_t workspace_bytes;
    double *between; /* [CUDA_SCRATCH] what a kernel leaves to the next one */
    struct cuda_block *blocks;
    char *scratch; /* the newest of blocks */
    size_t scratch_bytes;
    struct cuda_plan *plans; /* [n_plans], by shape */
    int n_plans, room_plans;
};

static inline struct cuda *cuda_of(const struct pp_backend *be)
{
    return be->impl;
}

/* ---- errors (errors.c) */

/* Record what `call` on the device gave, with what would work; the code. */
int cuda_failed(int device, const char *call, cudaError_t e, const char *file, int line);
int cuda_blas_failed(int device, const struct cuda_blas *blas, const char *call, cublasStatus_t s,
                     const char *file, int line);
/* The same for memory: how much was asked, how much is free. */
int cuda_no_memory(int device, size_t bytes, cudaError_t e, const char *file, int line);

/* The name of the function in front of the arguments is what the message shows. */
#define CUDA_TRY(device, call)                                                                     \
    do {                                                                                           \
        cudaError_t cuda_e_ = (call);                                                              \
        if (cuda_e_ != cudaSuccess)                                                                \
            return cuda_failed((device), #call, cuda_e_, __FILE__, __LINE__);                      \
    } while (0)

#define BLAS_TRY(c, call)                                                                          \
    do {                                                                                           \
        cublasStatus_t blas_s_ = (c)->blas->call;                                                  \
        if (blas_s_ != CUBLAS_STATUS_SUCCESS)                                                      \
            return cuda_blas_failed((c)->device, (c)->blas, "cublasLt" #call, blas_s_, __FILE__,   \
                                    __LINE__);                                                     \
    } while (0)

/* ---- memory (memory.c) */

/* At least `bytes` of scratch, 256 bytes aligned, valid until the next call; work in the stream
 * that uses it is in order. Allocates only when it must grow. */
int cuda_scratch(struct cuda *c, size_t bytes, void **out);
void cuda_scratch_free(struct cuda *c);

/* ---- entries of the table (memory.c, streams.c, linear.c, conv.c, cuda.c) */

#define PP_ENTRY(x) __typeof__(*((struct pp_backend_ops *)0)->x) cuda_##x;
#include "ppcli/backend_entries.def"
#undef PP_ENTRY
#define PP_KERNEL(name, type) int cuda_##name(struct pp_backend *be, const struct type *a);
#include "ppcli/kernels.def"
#undef PP_KERNEL

#endif
