/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the device and pinned memory of the host, and copies between them. */
#include "cuda_impl.h"

#include <string.h>

#include "ppcli/base/base.h"

#define SCRATCH_ALIGN 256 /* the alignment that products like best; sizes are multiples of it */

int cuda_alloc(struct pp_backend *be, size_t bytes, void **out)
{
    struct cuda *c = cuda_of(be);
    void *p = NULL;
    bytes = bytes ? bytes : PP_ALIGN;
    cudaError_t e = cudaMalloc(&p, bytes);
    if (e != cudaSuccess)
        return cuda_no_memory(c->device, bytes, e, __FILE__, __LINE__);
    e = cudaMemsetAsync(p, 0, bytes, c->stream);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(c->stream); /* the streams of other ranks may be the first to use
                                                 it */
    if (e != cudaSuccess) {
        cudaFree(p);
        return cuda_code(c->device, "cudaMemsetAsync(", e, __FILE__, __LINE__);
    }
    *out = p;
    return 0;
}

void cuda_free(struct pp_backend *be, void *p, size_t bytes)
{
    cudaFree(p); /* waits for work that uses it */
}

int cuda_host_alloc(struct pp_backend *be, size_t bytes, void **out)
{
    bytes = bytes ? bytes : PP_ALIGN;
    CUDA_TRY(cuda_of(be)->device, cudaHostAlloc(out, bytes, cudaHostAllocPortable));
    memset(*out, 0, bytes); /* as memory of pp_alloc() is */
    return 0;
}

void cuda_host_free(struct pp_backend *be, void *p, size_t bytes)
{
    cudaFreeHost(p);
}

/* Copies to the device and waits until the copy is done, so that src may change when the call
 * returns. */
int cuda_to_device(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    PP_TRY(cuda_upload(be, dst, src, bytes));
    return cuda_synchronize(be);
}

int cuda_to_host(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    PP_TRY(cuda_download(be, dst, src, bytes));
    return cuda_synchronize(be);
}

static int enqueue_copy(struct pp_backend *be, void *dst, const void *src, size_t bytes,
                        enum cudaMemcpyKind kind)
{
    if (bytes == 0)
        return 0;
    PP_TRY(cuda_settle(cuda_of(be), src, bytes, false));
    PP_TRY(cuda_settle(cuda_of(be), dst, bytes, true));
    return CUDA_CALL(be, cudaMemcpyAsync(dst, src, bytes, kind, cuda_of(be)->stream));
}

int cuda_upload(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return enqueue_copy(be, dst, src, bytes, cudaMemcpyHostToDevice);
}

int cuda_download(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return enqueue_copy(be, dst, src, bytes, cudaMemcpyDeviceToHost);
}

/* Copies between any two arrays; CUDA finds their devices from the addresses. */
int cuda_copy(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return enqueue_copy(be, dst, src, bytes, cudaMemcpyDefault);
}

int cuda_zero(struct pp_backend *be, void *p, size_t bytes)
{
    PP_TRY(cuda_settle(cuda_of(be), p, bytes, true));
    return bytes > 0 ? CUDA_CALL(be, cudaMemsetAsync(p, 0, bytes, cuda_of(be)->stream)) : 0;
}

int cuda_synchronize(struct pp_backend *be)
{
    PP_TRY(cuda_settle_all(cuda_of(be)));
    return CUDA_CALL(be, cudaStreamSynchronize(cuda_of(be)->stream));
}

/* ---- scratch */

int cuda_scratch(struct cuda *c, size_t bytes, void **out)
{
    if (bytes > c->scratch_bytes) {
        /* The old block is kept because a graph may hold its address. Growing by at least half
         * keeps the sum of all blocks within three times the largest. */
        size_t want = c->scratch_bytes + c->scratch_bytes / 2;
        want = bytes > want ? bytes : want;
        want = (want + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
        struct cuda_block *block;
        PP_ALLOC(block, 1);
        cudaError_t e = cudaMalloc(&block->p, want);
        if (e != cudaSuccess) {
            pp_free(block);
            return cuda_no_memory(c->device, want, e, __FILE__, __LINE__);
        }
        block->next = c->blocks;
        c->blocks = block;
        c->scratch = block->p;
        c->scratch_bytes = want;
    }
    *out = c->scratch;
    return 0;
}

void cuda_scratch_free(struct cuda *c)
{
    while (c->blocks) {
        PP_OWN_MEMORY struct cuda_block *block = c->blocks;
        c->blocks = block->next;
        cudaFree(block->p);
    }
    c->scratch = NULL;
    c->scratch_bytes = 0;
}
