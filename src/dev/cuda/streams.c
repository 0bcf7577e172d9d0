/* SPDX-License-Identifier: Apache-2.0 */
/* Marks are events, captures become executable graphs, and ranges are those of NVTX. */
#include "cuda_impl.h"

#include <stdatomic.h>
#include <nvtx3/nvToolsExt.h>

#include "ppcli/base/base.h"

void *cuda_native_stream(struct pp_backend *be)
{
    return cuda_of(be)->stream;
}

/* CUDA treats an event that was never recorded as reached, but not inside a capture. */
struct mark {
    cudaEvent_t event;
    atomic_bool set;
};

int cuda_mark_create(struct pp_backend *be, bool timed, void **mark)
{
    struct mark *m;
    PP_ALLOC(m, 1);
    unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    cudaError_t e = cudaEventCreateWithFlags(&m->event, flags);
    if (e != cudaSuccess) {
        pp_free(m);
        return cuda_code(cuda_of(be)->device, "cudaEventCreateWithFlags(", e, __FILE__, __LINE__);
    }
    *mark = m;
    return 0;
}

void cuda_mark_destroy(struct pp_backend *be, void *mark)
{
    PP_OWN_MEMORY struct mark *m = mark;
    cudaEventDestroy(m->event);
}

int cuda_mark_set(struct pp_backend *be, void *mark)
{
    struct mark *m = mark;
    PP_TRY(cuda_settle_all(cuda_of(be)));
    CUDA_TRY(cuda_of(be)->device, cudaEventRecord(m->event, cuda_of(be)->stream));
    atomic_store_explicit(&m->set, true, memory_order_release);
    return 0;
}

int cuda_mark_wait(struct pp_backend *be, void *mark)
{
    struct mark *m = mark;
    if (atomic_load_explicit(&m->set, memory_order_acquire))
        CUDA_TRY(cuda_of(be)->device, cudaStreamWaitEvent(cuda_of(be)->stream, m->event, 0));
    return 0;
}

int cuda_mark_reached(struct pp_backend *be, void *mark, bool *reached)
{
    struct mark *m = mark;
    cudaError_t e = cudaEventQuery(m->event);
    if (e == cudaErrorNotReady) {
        cudaGetLastError();
        *reached = false;
        return 0;
    }
    CUDA_TRY(cuda_of(be)->device, e);
    *reached = true;
    return 0;
}

int cuda_mark_elapsed(struct pp_backend *be, void *from, void *to, uint64_t *ns)
{
    const struct mark *a = from, *b = to;
    float ms;
    CUDA_TRY(cuda_of(be)->device, cudaEventElapsedTime(&ms, a->event, b->event));
    *ns = ms > 0 ? (uint64_t)llround((double)ms * 1e6) : 0;
    return 0;
}

/* Begins to record the stream. The mode is relaxed: other threads of the process may continue
 * meanwhile, and even allocate memory. The ops enqueue nothing that a recording may not contain. */
int cuda_capture_begin(struct pp_backend *be)
{
    return CUDA_CALL(be, cudaStreamBeginCapture(cuda_of(be)->stream, cudaStreamCaptureModeRelaxed));
}

int cuda_capture_end(struct pp_backend *be, void **graph)
{
    cudaGraph_t recorded = NULL;
    cudaGraphExec_t ready = NULL;
    PP_TRY(cuda_settle_all(cuda_of(be)));
    PP_TRY(CUDA_CALL(be, cudaStreamEndCapture(cuda_of(be)->stream, &recorded)));
    int rc = CUDA_CALL(be, cudaGraphInstantiate(&ready, recorded, 0));
    cudaGraphDestroy(recorded);
    *graph = ready;
    return rc;
}

int cuda_graph_launch(struct pp_backend *be, void *graph)
{
    return CUDA_CALL(be, cudaGraphLaunch(graph, cuda_of(be)->stream));
}

void cuda_graph_destroy(struct pp_backend *be, void *graph)
{
    cudaGraphExecDestroy(graph);
}

void cuda_range_push(struct pp_backend *be, const char *name)
{
    nvtxRangePushA(name);
}

void cuda_range_pop(struct pp_backend *be)
{
    nvtxRangePop();
}
