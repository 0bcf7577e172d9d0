/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events between streams. An event counts how often it was recorded; a wait is for the count of the
 * moment of the call, as CUDA has it. In a capture an event stands for the nodes before it.
 */
#include <algorithm>

#include "fake.h"

static std::map<cudaEvent_t, std::shared_ptr<CUevent_st>> events; /* those a caller may use */

static std::shared_ptr<CUevent_st> event_of(cudaEvent_t e)
{
    std::lock_guard<std::mutex> hold(fake_lock);
    auto it = events.find(e);
    return it == events.end() ? NULL : it->second;
}

static cudaError_t record(cudaEvent_t event, cudaStream_t stream)
{
    auto e = event_of(event);
    auto s = fake_hold(fake_stream(stream));
    if (e == NULL || s == NULL || e->device != s->device->number)
        return cudaErrorInvalidResourceHandle;
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        e->capture = s->capture;
        e->frontier = s->frontier;
        if (s->capture != NULL)
            return s->capture->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    }
    uint64_t count;
    {
        std::lock_guard<std::mutex> hold(e->lock);
        count = ++e->recorded;
    }
    Work work;
    work.device = s->device;
    work.run = [e, count] {
        std::lock_guard<std::mutex> hold(e->lock);
        e->done = std::max(e->done, count);
        e->done_ns = fake_now_ns();
        e->changed.notify_all();
    };
    return fake_put(s.get(), std::move(work));
}

/* The stream's next work comes behind what the captured event stands for. */
static cudaError_t wait_captured(CUstream_st *s, CUevent_st *e)
{
    if (e->capture->ended)
        return cudaErrorCapturedEvent;
    if (e->capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    if (s->capture != NULL && s->capture != e->capture) {
        s->capture->invalid = e->capture->invalid = true;
        return cudaErrorStreamCaptureMerge;
    }
    if (s->capture == NULL) {
        s->capture = e->capture;
        s->capture->streams.insert(s);
        s->frontier.clear();
    }
    s->frontier.insert(e->frontier.begin(), e->frontier.end());
    return cudaSuccess;
}

static cudaError_t wait_for(cudaStream_t stream, cudaEvent_t event)
{
    auto e = event_of(event);
    auto s = fake_hold(fake_stream(stream));
    if (e == NULL || s == NULL)
        return cudaErrorInvalidResourceHandle;
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        if (e->capture != NULL)
            return wait_captured(s.get(), e.get());
        if (s->capture != NULL) { /* an edge from outside, also of an event never recorded */
            s->capture->invalid = true;
            return cudaErrorStreamCaptureIsolation;
        }
    }
    uint64_t count;
    {
        std::lock_guard<std::mutex> hold(e->lock);
        count = e->recorded;
    }
    Work work;
    work.device = s->device;
    work.run = [e, count] {
        std::unique_lock<std::mutex> lock(e->lock);
        e->changed.wait(lock, [&] { return e->done >= count; });
    };
    return fake_put(s.get(), std::move(work));
}

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    FAKE_ENTER();
    auto e = std::make_shared<CUevent_st>();
    e->device = fake_current()->number;
    e->flags = flags;
    std::lock_guard<std::mutex> hold(fake_lock);
    events[e.get()] = e;
    fake_count("events", 1);
    *out = e.get();
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    FAKE_ENTER();
    std::lock_guard<std::mutex> hold(fake_lock);
    if (events.erase(event) == 0)
        return fake_leave(cudaErrorInvalidResourceHandle);
    fake_count("events", -1);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    FAKE_ENTER();
    return fake_leave(record(event, stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    FAKE_ENTER();
    return fake_leave(wait_for(stream, event));
}

/* Whether it is reached; wait: until it is. */
static cudaError_t reached(cudaEvent_t event, bool wait)
{
    auto e = event_of(event);
    if (e == NULL)
        return cudaErrorInvalidResourceHandle;
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        if (e->capture != NULL) {
            e->capture->invalid = true;
            return cudaErrorCapturedEvent;
        }
    }
    {
        std::unique_lock<std::mutex> lock(e->lock);
        uint64_t count = e->recorded;
        if (wait)
            e->changed.wait(lock, [&] { return e->done >= count; });
        if (e->done < count)
            return cudaErrorNotReady;
    }
    return fake_device_error(fake_device(e->device));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    FAKE_ENTER();
    return fake_leave(reached(event, false));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    FAKE_ENTER();
    return fake_leave(reached(event, true));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    FAKE_ENTER();
    auto a = event_of(from), b = event_of(to);
    if (a == NULL || b == NULL || a->device != b->device ||
        ((a->flags | b->flags) & cudaEventDisableTiming) != 0 || a->capture != NULL ||
        b->capture != NULL)
        return fake_leave(cudaErrorInvalidResourceHandle);
    uint64_t begin = 0, end = 0;
    for (CUevent_st *e : {a.get(), b.get()}) {
        std::lock_guard<std::mutex> hold(e->lock);
        if (e->recorded == 0)
            return fake_leave(cudaErrorInvalidResourceHandle);
        if (e->done < e->recorded)
            return fake_leave(cudaErrorNotReady);
        (e == a.get() ? begin : end) = e->done_ns;
    }
    *ms = (float)(((double)end - (double)begin) / 1e6);
    return cudaSuccess;
}
}
