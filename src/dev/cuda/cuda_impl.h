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

#include <cublasLt.h>

#include "kernels.h"

/* ---- cuBLASLt, loaded when it is first needed: linking it would cost every command 52 ms at its
 * start, also those that never compute (library.c) */

/* The functions, typed as the header declares them: blas->Matmul is cublasLtMatmul. */
struct cuda_blas {
#define CUDA_BLAS(x) __typeof__(&cublasLt##x) x;
#include "library.def"
};

/*
 * The library, loaded by the first call of the process and kept. Any thread. NULL and the reason
 * with what would work in *why when it cannot be used; no failure is recorded.
 */
const struct cuda_blas *cuda_blas_load(char *why, size_t bytes);

/* "13.1.0". Any thread. */
void cuda_blas_version(const struct cuda_blas *blas, char *out, size_t bytes);

/* ---- a rank */

/* Memory that was handed out and may still be in a graph. */
struct cuda_block {
    void *p;
    struct cuda_block *next;
};

struct cuda_device;
struct cuda_dnn;
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
    bool bf16; /* so are values, then */
    const struct cuda_blas *blas;
    cublasLtHandle_t handle;
    struct cuda_dnn *dnn; /* NULL: not asked for */
    void *workspace;      /* of products; NULL when exact: an algorithm that needs none is pinned */
    size_t workspace_bytes;
    double *between; /* CUDA_SCRATCH_BYTES: what a kernel leaves to the next one */
    struct cuda_block *blocks;
    char *scratch; /* the newest of blocks */
    size_t scratch_bytes;
    enum pp_collect collects;
    struct cuda_squares squares; /* that wait, as those below */
    struct cuda_updates updates;
    struct cuda_sums sums;
    float *slices; /* [CUDA_SLICED_FLOATS]: weight gradients for sums that wait; or NULL */
    size_t slices_used;
    struct cuda_norms norms;
    struct cuda_commits commits;
    struct cuda_plan *plans; /* [n_plans], by shape */
    int n_plans, room_plans;
};

static inline struct cuda *cuda_of(const struct pp_backend *be)
{
    return be->impl;
}

/* ---- errors (errors.c) */

/* 0, or the code of what `call` on the device gave, recorded with what would work. */
int cuda_code(int device, const char *call, cudaError_t e, const char *file, int line);
int cuda_blas_failed(int device, const struct cuda_blas *blas, const char *call, cublasStatus_t s,
                     const char *file, int line);
/* The same for memory: how much was asked, how much is free. */
int cuda_no_memory(int device, size_t bytes, cudaError_t e, const char *file, int line);

/* The name of the function in front of the arguments is what the message shows. */
#define CUDA_TRY(device, call) PP_TRY(cuda_code(device, #call, call, __FILE__, __LINE__))
/* On the device of a backend; the code. */
#define CUDA_CALL(be, call) cuda_code(cuda_of(be)->device, #call, call, __FILE__, __LINE__)

#define BLAS_TRY(c, call)                                                                          \
    do {                                                                                           \
        cublasStatus_t blas_s_ = (c)->blas->call;                                                  \
        if (blas_s_ != CUBLAS_STATUS_SUCCESS)                                                      \
            return cuda_blas_failed((c)->device, (c)->blas, "cublasLt" #call, blas_s_, __FILE__,   \
                                    __LINE__);                                                     \
    } while (0)

/* ---- what the process knows about its devices (device.c). All of it may be called by any thread. */

#define CUDA_DEVICES_MAX 64

/* 0, or PP_ERESOURCE with the reason and what would work in *why; no failure is recorded. */
int cuda_count_devices(int *n, char *why, size_t bytes);

/* 0, or PP_ERESOURCE and in *why why no run can use a device: what asking for its attributes gave, its
 * compute capability (75 for 7.5), its compute mode. Needs no device (shape.c). */
int cuda_device_problem(cudaError_t e, int capability, int mode, char *why, size_t bytes);
/* The same, asking the device. No failure is recorded. */
int cuda_check_device(int device, char *why, size_t bytes);

/* The table's entries of these names: see ppcli/dev/backend.h. */
size_t cuda_value_bytes(const struct pp_backend_choice *choice);
size_t cuda_own_bytes(const struct pp_backend_choice *choice);
int cuda_list_devices(struct pp_device *out, int max, int *n, char *why, size_t bytes);
bool cuda_reaches(int from, int to);
int cuda_free_bytes(int device, uint64_t *out);
void cuda_versions(void (*visit)(void *ctx, const char *what, const char *text), void *ctx);

/* Make it the calling thread's device and start using it; every hold needs a drop. A thread works
 * on one device at a time: the last it held. 0 <= number < CUDA_DEVICES_MAX. */
int cuda_device_hold(int number, struct cuda_device **out);
void cuda_device_drop(struct cuda_device *d);
int cuda_device_processors(const struct cuda_device *d); /* multiprocessors, all of them */

/*
 * A stream on piece `partition` of `partitions` of the device, or on all of it (partitions 0), and
 * how many multiprocessors that is. The device is cut by the first call and stays so until nobody
 * holds it: all ranks must ask for the same number of pieces. The caller destroys the stream before
 * the drop. Errors: PP_ERESOURCE.
 */
int cuda_device_stream(struct cuda_device *d, int partition, int partitions, cudaStream_t *stream,
                       int *processors);

/* How products are computed, found out once for all ranks of the device (plan.c owns the content).
 * Locked until cuda_device_choices_done(): who finds none makes it meanwhile. */
struct cuda_choice **cuda_device_choices(struct cuda_device *d);
void cuda_device_choices_done(struct cuda_device *d);

/* ---- calls that wait for others (collect.c) */

/* Calls wait between cuda_collect() and the next one. Whoever enqueues something in between that reads
 * or writes [p, p + bytes) calls cuda_settle() first: it launches the waiting calls that touch the
 * range. cuda_settle_all() launches every waiting call. */
int cuda_settle(struct cuda *c, const void *p, size_t bytes, bool writes);
int cuda_settle_all(struct cuda *c);

/* *out: the copy[n] in bf16 of W[n] comes with an update that waits. Else no update of W waits. */
int cuda_update_copies(struct cuda *c, size_t n, const float *W, uint16_t *copy, bool *out);

/* The sum, of values of the rank, now or with others. */
int cuda_add_sum(struct cuda *c, const struct cuda_sum *one);

/* Room for the n <= CUDA_SLICES_FLOATS floats of one gradient in slices, until the sum of them that the
 * caller adds next has been computed. The first call takes memory, outside the stream. */
#define CUDA_SLICED_FLOATS ((size_t)16 << 20)
int cuda_slices(struct cuda *c, size_t n, float **out);

/* ---- memory (memory.c) */

/* At least `bytes` of scratch, 256 bytes aligned, valid until the next call; work in the stream
 * that uses it is in order. Allocates only when it must grow. */
int cuda_scratch(struct cuda *c, size_t bytes, void **out);
void cuda_scratch_free(struct cuda *c);

/* ---- entries of the table (memory.c, streams.c, collect.c, linear.c, conv.c,
 * cuda.c) */

#define PP_ENTRY(x) __typeof__(*((struct pp_backend_ops *)0)->x) cuda_##x;
#include "ppcli/dev/backend_entries.def"
#define PP_KERNEL(name, type) int cuda_##name(struct pp_backend *be, const struct type *a);
#include "ppcli/dev/kernels.def"

#endif
