/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the CUDA backend share: the state of one rank, the translation of foreign error
 * codes, and what the whole process knows about a device.
 *
 * A rank has one stream, in which all its work is in order. Memory for a step is allocated when a
 * shape is first seen and kept until the backend is closed, because a captured graph holds its
 * address.
 */
#ifndef PPCLI_DEV_CUDA_IMPL_H
#define PPCLI_DEV_CUDA_IMPL_H

#include <cublasLt.h>

#include "kernels.h"

/* ---- cuBLASLt, loaded when it is first needed: linking it would delay the start of every command
 * by 52 ms, even those that never compute (library.c) */

/* The functions, with the types of the header: blas->Matmul is cublasLtMatmul. */
struct cuda_blas {
#define CUDA_BLAS(x) __typeof__(&cublasLt##x) x;
#include "library.def"
};

/*
 * Loads the library on the first call of the process; it stays loaded. Any thread may call it.
 * Returns NULL if the library cannot be used, with the reason and a way out in *why; it records no
 * failure.
 */
const struct cuda_blas *cuda_blas_load(char *why, size_t bytes);

/* Writes the version, such as "13.1.0". Any thread may call it. */
void cuda_blas_version(const struct cuda_blas *blas, char *out, size_t bytes);

/* ---- a rank */

/* A block of memory that was given out and may still be used by a graph. */
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
    struct cuda_device *shared; /* belongs to the process; held until close */
    int partition, partitions;  /* of the device; 0 partitions: the rank has the whole device */
    int processors;             /* multiprocessors on which this rank computes */
    int of_processors;          /* multiprocessors of the device */
    bool exact;
    enum pp_precision precision;
    bool bf16; /* the precision is bf16, and so are values */
    const struct cuda_blas *blas;
    cublasLtHandle_t handle;
    struct cuda_dnn *dnn; /* NULL: cuDNN was not requested */
    void *workspace;      /* of products; NULL with exact, which pins an algorithm that needs
                             none */
    size_t workspace_bytes;
    double *between; /* CUDA_SCRATCH_BYTES: what a kernel leaves for the next one */
    struct cuda_block *blocks;
    char *scratch; /* the newest of blocks */
    size_t scratch_bytes;
    enum pp_collect collects;
    struct cuda_squares squares; /* these and the tables below hold waiting calls */
    struct cuda_updates updates;
    struct cuda_sums sums;
    float *slices; /* [CUDA_SLICED_FLOATS]: weight gradients of waiting sums; may be NULL */
    size_t slices_used;
    struct cuda_norms norms;
    struct cuda_commits commits;
    struct cuda_plan *plans; /* [n_plans], one for each shape */
    int n_plans, plan_capacity;
};

static inline struct cuda *cuda_of(const struct pp_backend *be)
{
    return be->impl;
}

/* ---- errors (errors.c) */

/* Returns 0, or our code for the error that `call` on the device gave, recorded with a way out. */
int cuda_code(int device, const char *call, cudaError_t e, const char *file, int line);
int cuda_blas_failed(int device, const struct cuda_blas *blas, const char *call, cublasStatus_t s,
                     const char *file, int line);
/* Returns our code for a failed allocation, recorded with how many bytes were requested and how
 * many are free. */
int cuda_no_memory(int device, size_t bytes, cudaError_t e, const char *file, int line);

/* The message shows the name of the function, which stands before the arguments. */
#define CUDA_TRY(device, call) PP_TRY(cuda_code(device, #call, call, __FILE__, __LINE__))
/* Evaluates to the code of a call on the device of a backend. */
#define CUDA_CALL(be, call) cuda_code(cuda_of(be)->device, #call, call, __FILE__, __LINE__)

#define BLAS_TRY(c, call)                                                                          \
    do {                                                                                           \
        cublasStatus_t blas_s_ = (c)->blas->call;                                                  \
        if (blas_s_ != CUBLAS_STATUS_SUCCESS)                                                      \
            return cuda_blas_failed((c)->device, (c)->blas, "cublasLt" #call, blas_s_, __FILE__,   \
                                    __LINE__);                                                     \
    } while (0)

/* ---- what the process knows about its devices (device.c); any thread may call all of it */

#define CUDA_DEVICES_MAX 64

/* Returns 0, or PP_ERESOURCE with the reason and a way out in *why. It records no failure. */
int cuda_count_devices(int *n, char *why, size_t bytes);

/* Returns 0, or PP_ERESOURCE with the reason in *why, if no run can use a device: because of the
 * error of asking for its attributes, its compute capability (75 for 7.5) or its compute mode. It
 * needs no device (shape.c). */
int cuda_device_problem(cudaError_t e, int capability, int mode, char *why, size_t bytes);
/* Returns what cuda_device_problem() returns for a device, which it asks for its properties. It
 * records no failure. */
int cuda_check_device(int device, char *why, size_t bytes);

/* Entries of the backend's table: see ppcli/dev/backend.h. */
size_t cuda_value_bytes(const struct pp_backend_choice *choice);
size_t cuda_own_bytes(const struct pp_backend_choice *choice);
int cuda_list_devices(struct pp_device *out, int max, int *n, char *why, size_t bytes);
bool cuda_reaches(int from, int to);
int cuda_free_bytes(int device, uint64_t *out);
void cuda_versions(void (*visit)(void *ctx, const char *what, const char *text), void *ctx);

/* Makes the device the calling thread's current one and starts using it; every hold needs a drop. A
 * thread works on one device at a time, the last that it held. 0 <= number < CUDA_DEVICES_MAX. */
int cuda_device_hold(int number, struct cuda_device **out);
void cuda_device_drop(struct cuda_device *d);
int cuda_device_processors(const struct cuda_device *d); /* returns all its multiprocessors */

/*
 * Creates a stream on piece `partition` of `partitions` of the device, or on the whole device
 * (partitions 0), and sets *processors to its multiprocessors. The first call cuts the device,
 * which stays cut until nobody holds it, so all ranks must ask for the same number of pieces. The
 * caller destroys the stream before the drop. Errors: PP_ERESOURCE.
 */
int cuda_device_stream(struct cuda_device *d, int partition, int partitions, cudaStream_t *stream,
                       int *processors);

/* Returns the choices made so far for products, which all ranks of the device share (plan.c owns
 * the content). They stay locked until cuda_device_choices_done(), so that a caller that finds no
 * choice can make it meanwhile. */
struct cuda_choice **cuda_device_choices(struct cuda_device *d);
void cuda_device_choices_done(struct cuda_device *d);

/* ---- calls that wait for others (collect.c) */

/* Calls wait between one cuda_collect() and the next. Anyone who meanwhile enqueues work that reads
 * or writes [p, p + bytes) must call cuda_settle() first: it launches the waiting calls that touch
 * the range. cuda_settle_all() launches every waiting call. */
int cuda_settle(struct cuda *c, const void *p, size_t bytes, bool writes);
int cuda_settle_all(struct cuda *c);

/* Sets *out to whether a waiting update of W[n] will also write its copy[n] in bf16. If not, no
 * update of W waits any more. */
int cuda_update_copies(struct cuda *c, size_t n, const float *W, uint16_t *copy, bool *out);

/* Computes a sum over the rank's values, at once or later together with other sums. */
int cuda_add_sum(struct cuda *c, const struct cuda_sum *one);

/* Sets *out to memory in slices for the n <= CUDA_SLICES_FLOATS floats of one gradient. It is valid
 * until the sum that the caller adds next has been computed. The first call allocates memory,
 * outside the stream. */
#define CUDA_SLICED_FLOATS ((size_t)16 << 20)
int cuda_slices(struct cuda *c, size_t n, float **out);

/* ---- memory (memory.c) */

/* Sets *out to at least `bytes` of scratch, aligned to 256 bytes and valid until the next call.
 * Work in the stream that uses it is in order. It allocates only to grow. */
int cuda_scratch(struct cuda *c, size_t bytes, void **out);
void cuda_scratch_free(struct cuda *c);

/* ---- entries of the backend's table (memory.c, streams.c, collect.c, linear.c, conv.c, cuda.c) */

#define PP_ENTRY(x) __typeof__(*((struct pp_backend_ops *)0)->x) cuda_##x;
#include "ppcli/dev/backend_entries.def"
#define PP_KERNEL(name, type) int cuda_##name(struct pp_backend *be, const struct type *a);
#include "ppcli/dev/kernels.def"

#endif
