/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An emulation of the CUDA runtime in the memory of the host, for tests: every stream is a thread
 * that does its work in order and late, device memory can be touched by those threads only, graphs
 * are replayed in any order that their edges allow. What a device does silently wrong is an error
 * here.
 *
 * One lock (fake_lock) guards the registries, captures and counts; a stream's queue has its own.
 * Nobody waits for a stream while holding fake_lock.
 */
#ifndef FAKE_H
#define FAKE_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fake_gpu.h"

enum {
    FAKE_MOST_DEVICES = 8
};

struct Device {
    int number;
    int key;             /* of the pages of its memory; -1: the machine has no such keys */
    unsigned peers;      /* devices whose memory its kernels may touch, one bit each */
    size_t used;         /* bytes */
    cudaError_t error;   /* sticky: what a kernel did wrong */
    cudaStream_t legacy; /* the stream 0 */
};

/* What calls of the product waited to read and to write when a piece of work was enqueued, by address. */
struct Waits {
    std::vector<fake_range> read, written;
};

/* A piece of work, and what the emulation checks about it. */
struct Work {
    std::function<void()> run;
    Device *device = nullptr;
    bool waits = false;           /* for what another stream does */
    bool any_memory = false;      /* a copy: may touch every device's memory */
    const void *source = nullptr; /* memory of the host that must stay as it is until then */
    size_t source_bytes = 0;
    uint64_t source_sum = 0;
    std::shared_ptr<const Waits> waits_before; /* NULL: nothing waited */
};

struct Node {
    Work work;
    std::vector<size_t> after; /* nodes that must be done first */
};

/* What is recorded between begin and end. */
struct Capture {
    cudaStream_t origin;
    std::vector<Node> nodes;
    std::set<cudaStream_t> streams; /* origin and those that joined */
    bool invalid = false, ended = false;
    std::atomic<bool> busy{false}; /* somebody adds to it */
};

struct CUevent_st {
    int device;
    unsigned flags;
    std::mutex lock;
    std::condition_variable changed;
    uint64_t recorded = 0, done = 0; /* how often */
    uint64_t done_ns = 0;
    std::shared_ptr<Capture> capture; /* last recorded in this one */
    std::set<size_t> frontier;        /* there, behind these nodes */
};

struct CUstream_st {
    Device *device;
    int sms;
    std::mutex lock;
    std::condition_variable changed;
    std::deque<Work> queue;
    bool busy = false, closing = false;
    std::shared_ptr<Capture> capture;
    std::set<size_t> frontier; /* nodes that the next one comes after */
};

struct CUgraph_st {
    std::vector<Node> nodes;
};

struct CUgraphExec_st {
    std::vector<Node> nodes;
    std::mutex running; /* one launch at a time */
};

extern std::mutex fake_lock;

/* ---- devices, errors (fake_device.cpp) */
int fake_devices(); /* how many there are */
Device *fake_device(int number);
Device *fake_current();
/* Kernels are loaded when they are first launched, and this is the first launch of it there. */
bool fake_first_launch(const char *name, const Device *d);
int fake_driver();    /* 12080: for CUDA 12.8; 0: there is none */
int fake_sms();       /* multiprocessors of each device */
size_t fake_memory(); /* bytes of each device */
uint64_t fake_now_ns();
/* Entry of a call: counts it, lets it fail where asked, passes on the device's error. */
cudaError_t fake_enter(const char *name);
/* Exit of a call: remembers the error for cudaGetLastError. */
cudaError_t fake_leave(cudaError_t error);
/* What went wrong on it. */
cudaError_t fake_device_error(const Device *d);
/* The calling thread may touch the memory of d and its peers (NULL: of no device; all: of all). */
void fake_rights(const Device *d, bool all);

#define FAKE_ENTER()                                                                               \
    do {                                                                                           \
        cudaError_t enter_ = fake_enter(__func__);                                                 \
        if (enter_ != cudaSuccess)                                                                 \
            return fake_leave(enter_);                                                             \
    } while (0)

/* ---- streams (fake_stream.cpp) */
/* The stream, the current device's legacy stream for 0, or NULL where there is no such one. */
cudaStream_t fake_stream(cudaStream_t s);
cudaStream_t fake_stream_new(Device *d, int sms);
/* Enqueue, or record where the stream is captured. */
cudaError_t fake_put(cudaStream_t s, Work work);
void fake_wait_stream(const std::shared_ptr<CUstream_st> &s);
std::shared_ptr<CUstream_st> fake_hold(cudaStream_t s); /* NULL: no such stream */
/* Wait for all streams of d, those destroyed meanwhile included. */
void fake_drain(const Device *d);
bool fake_any_capture(const Device *d);
/* Do one piece of work in this thread, with the rights of its device. */
void fake_do(const Work &work);
/* Note what the host may not change until the work is done; checked by fake_do. */
void fake_seal(Work *work);
/* Make a running capture useless; returns the error to give. */
cudaError_t fake_invalidate(const std::shared_ptr<Capture> &c, cudaError_t error);

/* ---- memory (fake_memory.cpp) */
/* From here on no kernel may touch what lies there (fake_watch.cpp). */
void fake_forbid(uintptr_t from, uintptr_t to);
/* What waits now, for the next piece of work; while one runs, what waited when it was enqueued. */
std::shared_ptr<const Waits> fake_waits();
extern thread_local const Waits *fake_waits_before;
/* Whether [p, p+bytes) lies within one pinned block. */
bool fake_pinned(const void *p, size_t bytes);

#endif
