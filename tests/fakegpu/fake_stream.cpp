/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams as threads: each does its work in order, some time after the call.
 */
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "fake.h"

static std::map<cudaStream_t, std::shared_ptr<CUstream_st>> streams; /* those a caller may use */
static std::vector<std::weak_ptr<CUstream_st>> draining;             /* destroyed, not yet done */

/* ---- calls of the product that wait */

thread_local const Waits *fake_waits_before;

/* Sorted, those that overlap made one. */
static std::vector<fake_range> join_ranges(std::vector<fake_range> all, bool written)
{
    std::vector<fake_range> out;
    std::sort(all.begin(), all.end(),
              [](const fake_range &a, const fake_range &b) { return a.from < b.from; });
    for (const fake_range &r : all) {
        if (r.written != written)
            continue;
        if (out.empty() || out.back().to < r.from)
            out.push_back(r);
        else
            out.back().to = std::max(out.back().to, r.to);
    }
    return out;
}

std::shared_ptr<const Waits> fake_waits()
{
    fake_range all[2048];
    size_t n = fake_waiting != NULL ? fake_waiting(all, 2048) : 0;
    if (n == 0)
        return NULL;
    std::vector<fake_range> list(all, all + n);
    return std::make_shared<Waits>(Waits{join_ranges(list, false), join_ranges(list, true)});
}

void fake_touch(const char *by, const void *p, size_t bytes, bool writes)
{
    fake_range all[2048];
    size_t n = fake_waiting != NULL ? fake_waiting(all, 2048) : 0;
    uintptr_t from = (uintptr_t)p;
    for (const fake_range *r = all; r < all + n; r++)
        if (r->from < from + bytes && from < r->to && (writes || r->written))
            fake_die("%s %s %zu bytes that %s, which waits, has still to %s", by,
                     writes ? "writes" : "reads", bytes, r->what, r->written ? "write" : "read");
}

/* ---- doing the work */

static uint64_t sum_of(const void *p, size_t bytes)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const unsigned char *)p)[i]) * 1099511628211u;
    return h;
}

void fake_seal(Work *work)
{
    if (work->source != NULL)
        work->source_sum = sum_of(work->source, work->source_bytes);
}

void fake_do(const Work &work)
{
    if (work.source != NULL && sum_of(work.source, work.source_bytes) != work.source_sum)
        fake_die("%zu bytes of pinned memory were changed before their copy to the device was done",
                 work.source_bytes);
    fake_rights(work.device, work.any_memory);
    fake_waits_before = work.waits_before.get();
    work.run();
    fake_waits_before = NULL;
}

/* Up to 50 us, in one of four pieces of work. */
static void jitter(unsigned *seed)
{
    if (*seed != 0 && rand_r(seed) % 4 == 0)
        usleep((useconds_t)(rand_r(seed) % 50));
}

static void run_stream(std::shared_ptr<CUstream_st> s)
{
    const char *text = getenv("PPCLI_FAKE_JITTER");
    unsigned seed = text != NULL ? (unsigned)atoi(text) : 0;
    if (seed != 0)
        seed += (unsigned)((uintptr_t)s.get() >> 4);
    std::unique_lock<std::mutex> lock(s->lock);
    for (;;) {
        s->changed.wait(lock, [&] { return !s->queue.empty() || s->closing; });
        if (s->queue.empty())
            break;
        Work work = std::move(s->queue.front());
        s->queue.pop_front();
        s->busy = true;
        lock.unlock();
        jitter(&seed);
        fake_do(work);
        work = Work(); /* what it holds ends before anyone sees it done */
        lock.lock();
        s->busy = false;
        s->changed.notify_all();
    }
}

cudaStream_t fake_stream_new(Device *d, int sms)
{
    auto s = std::make_shared<CUstream_st>();
    s->device = d;
    s->sms = sms;
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        streams[s.get()] = s;
    }
    std::thread(run_stream, s).detach();
    return s.get();
}

cudaStream_t fake_stream(cudaStream_t s)
{
    if (s != NULL && s != cudaStreamLegacy)
        return s;
    Device *d = fake_current();
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        if (d->legacy != NULL)
            return d->legacy;
    }
    cudaStream_t made = fake_stream_new(d, fake_sms());
    std::lock_guard<std::mutex> hold(fake_lock);
    if (d->legacy == NULL)
        d->legacy = made;
    return d->legacy;
}

std::shared_ptr<CUstream_st> fake_hold(cudaStream_t s)
{
    std::lock_guard<std::mutex> hold(fake_lock);
    auto it = streams.find(s);
    return it == streams.end() ? NULL : it->second;
}

int fake_stream_device(cudaStream_t s)
{
    auto held = fake_hold(s);
    return held != NULL ? held->device->number : -1;
}

int fake_stream_sms(cudaStream_t s)
{
    auto held = fake_hold(s);
    return held != NULL ? held->sms : 0;
}

bool fake_stream_captured(cudaStream_t s)
{
    auto held = fake_hold(s);
    std::lock_guard<std::mutex> hold(fake_lock);
    return held != NULL && held->capture != NULL;
}

cudaError_t fake_invalidate(const std::shared_ptr<Capture> &c, cudaError_t error)
{
    std::lock_guard<std::mutex> hold(fake_lock);
    if (c != NULL)
        c->invalid = true;
    return error;
}

/* While one thread adds to a capture no other may: CUDA leaves that to its caller. */
struct Adding {
    std::shared_ptr<Capture> to;

    explicit Adding(const std::shared_ptr<CUstream_st> &s)
    {
        {
            std::lock_guard<std::mutex> hold(fake_lock);
            to = s->capture;
        }
        if (to != NULL && to->busy.exchange(true))
            fake_die("two threads add to one capture at once");
        if (to != NULL)
            std::this_thread::yield();
    }
    ~Adding()
    {
        if (to != NULL)
            to->busy = false;
    }
};

cudaError_t fake_put(cudaStream_t s, Work work)
{
    std::shared_ptr<CUstream_st> held = fake_hold(s);
    if (held == NULL)
        return cudaErrorInvalidResourceHandle;
    work.waits_before = fake_waits();
    {
        Adding adding(held);
        std::lock_guard<std::mutex> hold(fake_lock);
        Capture *c = held->capture.get();
        if (c != NULL && c->invalid)
            return cudaErrorStreamCaptureInvalidated;
        if (c != NULL) {
            std::vector<size_t> after(held->frontier.begin(), held->frontier.end());
            c->nodes.push_back({std::move(work), after});
            held->frontier = {c->nodes.size() - 1};
            return cudaSuccess;
        }
    }
    fake_seal(&work);
    std::lock_guard<std::mutex> hold(held->lock);
    held->queue.push_back(std::move(work));
    held->changed.notify_all();
    return cudaSuccess;
}

void fake_wait_stream(const std::shared_ptr<CUstream_st> &s)
{
    std::unique_lock<std::mutex> lock(s->lock);
    s->changed.wait(lock, [&] { return s->queue.empty() && !s->busy; });
}

void fake_drain(const Device *d)
{
    std::vector<std::shared_ptr<CUstream_st>> all;
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        for (const auto &s : streams)
            all.push_back(s.second);
        for (const auto &s : draining)
            if (auto held = s.lock())
                all.push_back(held);
    }
    for (const auto &s : all)
        if (s->device == d)
            fake_wait_stream(s);
}

bool fake_any_capture(const Device *d)
{
    std::lock_guard<std::mutex> hold(fake_lock);
    return std::any_of(streams.begin(), streams.end(), [&](const auto &s) {
        return s.second->device == d && s.second->capture != NULL;
    });
}

cudaError_t fake_enqueue(cudaStream_t stream, bool waits, void (*fn)(void *), void *arg,
                         void (*done)(void *))
{
    std::shared_ptr<void> owned(arg, [done](void *p) {
        if (done != NULL)
            done(p);
    });
    auto held = fake_hold(fake_stream(stream));
    if (held == NULL)
        return cudaErrorInvalidResourceHandle;
    Work work;
    work.device = held->device;
    work.waits = waits;
    work.any_memory = true; /* the libraries move bytes between devices themselves */
    work.run = [fn, owned] { fn(owned.get()); };
    return fake_put(held.get(), std::move(work));
}

/* ---- the runtime's calls */

/* Of a stream that is captured nothing may be asked. */
static cudaError_t outside_capture(const std::shared_ptr<CUstream_st> &s)
{
    if (s == NULL)
        return cudaErrorInvalidResourceHandle;
    std::shared_ptr<Capture> c;
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        c = s->capture;
    }
    return c != NULL ? fake_invalidate(c, cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

cudaError_t fake_device_error(const Device *d)
{
    std::lock_guard<std::mutex> hold(fake_lock);
    return d->error;
}

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    FAKE_ENTER();
    if (flags != cudaStreamNonBlocking)
        fake_die("a stream that waits for stream 0: ask for cudaStreamNonBlocking");
    *out = fake_stream_new(fake_current(), fake_sms());
    fake_count("streams", 1);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    FAKE_ENTER();
    auto s = fake_hold(stream);
    if (s == NULL)
        return fake_leave(cudaErrorInvalidResourceHandle);
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        if (s->capture != NULL)
            s->capture->invalid = true;
        streams.erase(stream);
        draining.push_back(s);
    }
    {
        std::lock_guard<std::mutex> hold(s->lock);
        s->closing = true;
        s->changed.notify_all();
    }
    fake_count("streams", -1);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    FAKE_ENTER();
    auto s = fake_hold(fake_stream(stream));
    cudaError_t e = outside_capture(s);
    if (e != cudaSuccess)
        return fake_leave(e);
    fake_wait_stream(s);
    return fake_leave(fake_device_error(s->device));
}
}
