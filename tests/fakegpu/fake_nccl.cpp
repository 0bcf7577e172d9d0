/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An emulation of NCCL between the emulated devices of one process, for tests. What the real one
 * does when all is well it does too; what the real one punishes late, or by hanging, it does at
 * once and every time:
 *
 *   - a message occupies its stream until the other side is there, whatever its size
 *   - communicators are blocking: making one, ending one and the first message between two ranks wait
 *     for the other hosts; making one for START_SECONDS at most, since no abort can end it
 *   - two ranks on one device are refused; messages of different sizes are an error of both sides
 *   - an abort ends the messages of its own rank only
 *   - communicators, and messages under way, that are left at the end are counted (fake_count)
 *
 * PPCLI_FAKE_NCCL is its version (21800), that of the headers otherwise.
 * PPCLI_FAKE_FAIL knows calls by their names, and "ncclMessage": the N-th message to be moved gives
 * its communicator this asynchronous error, and never arrives.
 */
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fake_gpu.h"

namespace
{

/* One side of a message, or of a gathering, on its stream's thread. */
struct Side {
    struct ncclComm *comm;
    void *memory;
    size_t bytes;
    bool done = false;
};

/* All ranks of a communicator meet here. One lock for everything. */
struct Clique {
    int size;
    std::vector<struct ncclComm *> members;                            /* NULL: not yet, or gone */
    std::map<std::pair<int, int>, std::deque<Side *>> sends, receives; /* by source, destination */
    std::map<std::pair<int, int>, int>
        shakes; /* bit 1: the source's host was there, 2: the other's */
    std::vector<Side *> gather;
    int joined = 0, finalized = 0, gathered = 0, left = 0;
    uint64_t gatherings = 0;
};

std::mutex lock;
std::condition_variable changed;
std::map<std::string, std::shared_ptr<Clique>> cliques;
uint64_t ids;
std::string last_error;

enum Kind {
    SEND,
    RECEIVE,
    GATHER
};

struct Op {
    Kind kind;
    struct ncclComm *comm;
    int peer;
    const void *in;
    void *out;
    size_t bytes;
    cudaStream_t stream;
};

/* The operations of one group on one communicator: one kernel. */
struct Kernel {
    struct ncclComm *comm;
    cudaStream_t stream;
    std::vector<Op> ops;
    std::shared_ptr<struct ncclComm> graph; /* that it is recorded in: runs at each launch */
};

thread_local int depth;
thread_local std::vector<Op> waiting;

} // namespace

struct ncclComm {
    std::shared_ptr<Clique> clique;
    int rank, device;
    ncclResult_t state = ncclSuccess;
    bool aborted = false, finalized = false;
    int under_way = 0;            /* kernels that are enqueued and not done */
    std::atomic<int> recorded{0}; /* kernels that graphs hold */
    std::shared_ptr<ncclComm> self;

    ~ncclComm()
    {
        fake_count("NCCL communicator", -1);
    }
    int calls = 0; /* that wait */
};

static const int START_SECONDS = 2;

namespace
{

ncclResult_t refuse(struct ncclComm *comm, ncclResult_t rc, const std::string &why)
{
    last_error = why;
    if (comm)
        comm->state = rc;
    changed.notify_all();
    return rc;
}

size_t bytes_of(size_t count, ncclDataType_t type)
{
    if (type != ncclInt8 && type != ncclUint8 && type != ncclFloat32)
        fake_die("NCCL: data type %d is not emulated", (int)type);
    return type == ncclFloat32 ? 4 * count : count;
}

/* A message has both its sides: move it. Lock held. */
void meet(Clique &q, std::pair<int, int> path)
{
    auto &s = q.sends[path];
    auto &r = q.receives[path];
    while (!s.empty() && !r.empty()) {
        Side *from = s.front(), *to = r.front();
        s.pop_front();
        r.pop_front();
        int code = ncclInvalidUsage;
        std::string why = "the message was lost";
        if (from->bytes != to->bytes) {
            why = "rank " + std::to_string(path.first) + " sends " + std::to_string(from->bytes) +
                  " bytes, rank " + std::to_string(path.second) + " expects " +
                  std::to_string(to->bytes);
        } else if (!fake_fails("ncclMessage", &code)) {
            memcpy(to->memory, from->memory, to->bytes);
            from->done = to->done = true;
            continue;
        }
        refuse(from->comm, (ncclResult_t)code, why);
        refuse(to->comm, (ncclResult_t)code, why);
    }
}

std::pair<int, int> path_of(const Op &op)
{
    return op.kind == SEND ? std::make_pair(op.comm->rank, op.peer)
                           : std::make_pair(op.peer, op.comm->rank);
}

/* Everybody's piece to everybody; nobody leaves before all have read. Lock held. */
void gather(std::unique_lock<std::mutex> &held, struct ncclComm *c, const Op &op)
{
    Clique &q = *c->clique;
    auto over = [&] { return c->aborted; };
    changed.wait(held, [&] { return over() || q.left == 0; }); /* the one before is over */
    Side mine = {c, const_cast<void *>(op.in), op.bytes};
    q.gather.resize((size_t)q.size);
    q.gather[(size_t)c->rank] = &mine;
    q.gathered++;
    changed.notify_all();
    changed.wait(held, [&] { return over() || q.gathered == q.size; });
    if (over())
        return;
    for (int r = 0; r < q.size; r++) {
        if (q.gather[(size_t)r]->bytes != op.bytes) {
            refuse(c, ncclInvalidUsage, "pieces of different sizes are gathered");
            changed.wait(held, over);
            return;
        }
        char *to = (char *)op.out + (size_t)r * op.bytes;
        if (to != q.gather[(size_t)r]->memory)
            memcpy(to, q.gather[(size_t)r]->memory, op.bytes);
    }
    q.left++;
    changed.notify_all();
    uint64_t mine_was = q.gatherings;
    if (q.left == q.size) {
        q.left = q.gathered = 0;
        q.gatherings++;
        changed.notify_all();
    }
    changed.wait(held, [&] { return over() || q.gatherings != mine_was; });
}

void run_kernel(void *arg)
{
    Kernel *k = (Kernel *)arg;
    struct ncclComm *c = k->comm;
    Clique &q = *c->clique;
    std::unique_lock<std::mutex> held(lock);
    std::vector<Side> sides(k->ops.size());
    c->under_way += k->graph != NULL;
    for (size_t i = 0; i < k->ops.size() && !c->aborted; i++) {
        const Op &op = k->ops[i];
        if (op.kind == GATHER) {
            gather(held, c, op);
            sides[i].done = true;
            continue;
        }
        bool sends = op.kind == SEND;
        sides[i] = {c, sends ? const_cast<void *>(op.in) : op.out, op.bytes};
        (sends ? q.sends : q.receives)[path_of(op)].push_back(&sides[i]);
        meet(q, path_of(op));
    }
    auto done = [](const Side &s) { return s.done; };
    changed.notify_all();
    changed.wait(
        held, [&] { return c->aborted || std::all_of(sides.begin(), sides.end(), done); });
    auto mine = [c](const Side *s) { return s->comm == c; };
    for (auto *paths : {&q.sends, &q.receives}) {
        for (auto &path : *paths) {
            auto &list = path.second;
            list.erase(std::remove_if(list.begin(), list.end(), mine), list.end());
        }
    }
    c->under_way--;
    changed.notify_all();
}

void done_kernel(void *arg)
{
    Kernel *k = (Kernel *)arg;
    if (k->graph != NULL)
        k->comm->recorded--;
    delete k;
}

ncclResult_t enqueue(Kernel *k)
{
    bool recorded = fake_stream_captured(k->stream);
    if (recorded) {
        k->graph = k->comm->self;
        k->comm->recorded++;
    } else {
        k->comm->under_way++;
    }
    if (fake_enqueue(k->stream, true, run_kernel, k, done_kernel) != cudaSuccess) {
        k->comm->under_way -= !recorded;
        return refuse(k->comm, ncclUnhandledCudaError, "the stream takes no work");
    }
    return ncclSuccess;
}

bool all_shaken(Clique &q, const Kernel *k)
{
    for (const Op &op : k->ops)
        if (op.kind != GATHER && q.shakes[path_of(op)] != 3)
            return false;
    return true;
}

/* One kernel for each communicator of the group. */
ncclResult_t launch(std::unique_lock<std::mutex> &held, std::vector<Op> &ops)
{
    std::map<struct ncclComm *, Kernel *> kernels;
    ncclResult_t rc = ncclSuccess;
    for (Op &op : ops) {
        Kernel *&k = kernels[op.comm];
        k = k ? k : new Kernel{op.comm, op.stream, {}, NULL};
        if (k->stream != op.stream)
            fake_die("NCCL: a group uses two streams on one communicator");
        k->ops.push_back(op);
    }
    for (auto &entry : kernels) {
        Kernel *k = entry.second;
        struct ncclComm *c = k->comm;
        Clique &q = *c->clique;
        for (const Op &op : k->ops)
            if (op.kind != GATHER)
                q.shakes[path_of(op)] |= op.kind == SEND ? 1 : 2;
        changed.notify_all();
        if (fake_stream_captured(k->stream) && !all_shaken(q, k))
            fake_die("NCCL: the first message of two ranks is captured");
        c->calls++;
        changed.wait(held, [&] { return c->aborted || all_shaken(q, k); });
        c->calls--;
        changed.notify_all();
        ncclResult_t one = c->aborted ? ncclInternalError : enqueue(k);
        if (c->aborted)
            delete k;
        rc = one == ncclSuccess ? rc : one;
    }
    return rc;
}

ncclResult_t add(const char *name, const Op &op)
{
    std::unique_lock<std::mutex> held(lock);
    int code = 0;
    if (fake_fails(name, &code))
        return refuse(NULL, (ncclResult_t)code, "it was asked to fail");
    if (op.comm->state != ncclSuccess || op.comm->finalized)
        return refuse(NULL, ncclInvalidUsage, "the communicator has failed or is finalized");
    if (fake_stream_device(op.stream) != op.comm->device)
        fake_die("NCCL: %s on a stream of another device", name);
    const void *p = op.kind == RECEIVE ? op.out : op.in;
    if (fake_device_of(p, op.bytes) != op.comm->device)
        fake_die("NCCL: %s of memory that is not the device's", name);
    if (op.in != NULL)
        fake_touch(name, op.in, op.bytes, false);
    if (op.out != NULL)
        fake_touch(name, op.out, op.kind == GATHER ? op.bytes * op.comm->clique->size : op.bytes,
                   true);
    if (op.peer < -1 || op.peer >= op.comm->clique->size || op.peer == op.comm->rank)
        return refuse(NULL, ncclInvalidArgument, "no such peer");
    if (depth > 0) {
        waiting.push_back(op);
        return ncclSuccess;
    }
    std::vector<Op> one = {op};
    return launch(held, one);
}

} // namespace

ncclResult_t ncclGetVersion(int *version)
{
    const char *text = getenv("PPCLI_FAKE_NCCL");
    *version = text ? atoi(text) : NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t rc)
{
    return rc == ncclInternalError ? "internal error"
           : rc == ncclRemoteError ? "remote process exited or there was a network error"
           : rc == ncclSystemError ? "unhandled system error"
                                   : "an emulated failure";
}

const char *ncclGetLastError(ncclComm_t)
{
    static thread_local std::string text;
    std::lock_guard<std::mutex> held(lock);
    text = last_error;
    return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    int code = 0;
    if (fake_fails("ncclGetUniqueId", &code))
        return (ncclResult_t)code;
    std::lock_guard<std::mutex> held(lock);
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "communicator %llu", (unsigned long long)++ids);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    int code = 0;
    *out = NULL;
    if (fake_fails("ncclCommInitRankConfig", &code))
        return (ncclResult_t)code;
    if (!config || config->blocking == 0)
        fake_die("NCCL: a communicator that starts a thread for every message");
    std::unique_lock<std::mutex> held(lock);
    std::shared_ptr<Clique> &q = cliques[id.internal];
    if (!q) {
        q = std::make_shared<Clique>();
        q->size = size;
        q->members.resize((size_t)size);
    }
    if (q->size != size || rank < 0 || rank >= size || q->members[(size_t)rank])
        return refuse(NULL, ncclInvalidArgument, "the ranks do not agree on who they are");
    struct ncclComm *c = new ncclComm;
    fake_count("NCCL communicator", 1);
    c->self.reset(c);
    c->clique = q;
    c->rank = rank;
    cudaGetDevice(&c->device);
    q->members[(size_t)rank] = c;
    q->joined++;
    for (int r = 0; r < size; r++) {
        struct ncclComm *other = q->members[(size_t)r];
        if (other && other != c && other->device == c->device) {
            refuse(other, ncclInvalidUsage, "Duplicate GPU detected");
            return refuse(c, ncclInvalidUsage, "Duplicate GPU detected");
        }
    }
    changed.notify_all();
    *out = c;
    if (changed.wait_for(held, std::chrono::seconds(START_SECONDS),
                         [&] { return c->clique->joined == size; }))
        return c->state;
    *out = NULL;
    c->clique->members[(size_t)rank] = NULL;
    c->clique->joined--;
    auto last = std::move(c->self);
    const char *network = getenv("NCCL_SOCKET_IFNAME");
    return refuse(NULL, ncclSystemError,
                  std::string("a rank has not come over ") + (network ? network : "any interface"));
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    std::lock_guard<std::mutex> held(lock);
    *state = c->state;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    std::unique_lock<std::mutex> held(lock);
    c->aborted = true;
    changed.notify_all();
    changed.wait(held, [&] { return c->under_way == 0 && c->calls == 0; });
    c->clique->members[(size_t)c->rank] = NULL;
    auto last = std::move(c->self);
    held.unlock();
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    std::unique_lock<std::mutex> held(lock);
    if (c->state != ncclSuccess || c->finalized)
        return refuse(NULL, ncclInvalidUsage, "only a communicator that is well is finalized");
    if (c->recorded > 0)
        fake_die("NCCL: a communicator is finalized before the graphs that use it are destroyed");
    c->finalized = true;
    c->clique->finalized++;
    c->calls++;
    changed.notify_all();
    changed.wait(held, [&] {
        return c->aborted || (c->clique->finalized == c->clique->size && c->under_way == 0);
    });
    c->calls--;
    changed.notify_all();
    return c->aborted ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    std::lock_guard<std::mutex> held(lock);
    if (!c->finalized || c->state != ncclSuccess)
        fake_die("NCCL: a communicator is destroyed before it is finalized");
    c->clique->members[(size_t)c->rank] = NULL;
    auto last = std::move(c->self);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart()
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd()
{
    if (depth == 0)
        fake_die("NCCL: a group ends that has not begun");
    depth--;
    if (depth > 0)
        return ncclSuccess;
    std::vector<Op> ops;
    ops.swap(waiting);
    std::unique_lock<std::mutex> held(lock);
    return launch(held, ops);
}

ncclResult_t ncclSend(const void *memory, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return add("ncclSend", {SEND, comm, peer, memory, NULL, bytes_of(count, type), stream});
}

ncclResult_t ncclRecv(void *memory, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return add("ncclRecv", {RECEIVE, comm, peer, NULL, memory, bytes_of(count, type), stream});
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return add("ncclAllGather", {GATHER, comm, -1, in, out, bytes_of(count, type), stream});
}
