/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capture of streams into a graph, and its replay. The nodes of a replay are done in a random order
 * among those that their edges allow (the seed is the number of the launch), so that a missing edge
 * shows as wrong numbers. The rules of a capture are CUDA's, with its error codes.
 */
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "fake.h"

static std::set<cudaGraph_t> graphs;
static std::map<cudaGraphExec_t, std::shared_ptr<CUgraphExec_st>> execs;
static unsigned launches;

/* Whether each node is `from` or comes before one of `from`. */
static std::vector<bool> before(const std::vector<Node> &nodes, const std::set<size_t> &from)
{
    std::vector<bool> seen(nodes.size());
    for (size_t f : from)
        seen[f] = true;
    for (size_t i = nodes.size(); i-- > 0;) /* edges lead to smaller numbers */
        if (seen[i])
            for (size_t a : nodes[i].after)
                seen[a] = true;
    return seen;
}

static cudaError_t check_end(const Capture &c, cudaStream_t s)
{
    if (c.invalid)
        return cudaErrorStreamCaptureInvalidated;
    std::vector<bool> joined = before(c.nodes, s->frontier);
    bool all = std::find(joined.begin(), joined.end(), false) == joined.end();
    return all ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
}

static void leave(Capture *c)
{
    c->ended = true;
    for (cudaStream_t s : c->streams) {
        auto keep = s->capture;
        s->capture = NULL;
        s->frontier.clear();
    }
}

static void run(const std::vector<Node> &nodes, unsigned seed)
{
    size_t n = nodes.size();
    std::vector<size_t> missing(n);
    std::vector<std::vector<size_t>> next(n);
    std::vector<size_t> ready;
    for (size_t i = 0; i < n; i++) {
        missing[i] = nodes[i].after.size();
        for (size_t a : nodes[i].after)
            next[a].push_back(i);
        if (missing[i] == 0)
            ready.push_back(i);
    }
    std::mutex lock;
    std::condition_variable changed;
    std::deque<size_t> done;
    std::vector<std::thread> waiting; /* in branches of their own */
    for (size_t left = n; left > 0;) {
        {
            std::unique_lock<std::mutex> hold(lock);
            changed.wait(hold, [&] { return !ready.empty() || !done.empty(); });
            for (; !done.empty(); done.pop_front(), left--)
                for (size_t f : next[done.front()])
                    if (--missing[f] == 0)
                        ready.push_back(f);
        }
        if (ready.empty())
            continue;
        size_t pick = (size_t)rand_r(&seed) % ready.size();
        size_t i = ready[pick];
        ready.erase(ready.begin() + (long)pick);
        auto finish = [&, i] {
            fake_do(nodes[i].work);
            std::lock_guard<std::mutex> hold(lock);
            done.push_back(i);
            changed.notify_all();
        };
        if (nodes[i].work.waits)
            waiting.emplace_back(finish);
        else
            finish();
    }
    for (std::thread &t : waiting)
        t.join();
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    FAKE_ENTER();
    auto s = fake_hold(stream);
    if (s == NULL) /* also stream 0, which cannot be captured */
        return fake_leave(cudaErrorStreamCaptureUnsupported);
    if (mode != cudaStreamCaptureModeRelaxed)
        fake_die("capture in another mode than relaxed is not known here");
    std::lock_guard<std::mutex> hold(fake_lock);
    if (s->capture != NULL)
        return fake_leave(cudaErrorIllegalState);
    s->capture = std::make_shared<Capture>();
    s->capture->origin = stream;
    s->capture->streams.insert(stream);
    s->frontier.clear();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    FAKE_ENTER();
    *out = NULL;
    auto s = fake_hold(stream);
    if (s == NULL)
        return fake_leave(cudaErrorInvalidResourceHandle);
    std::lock_guard<std::mutex> hold(fake_lock);
    std::shared_ptr<Capture> c = s->capture;
    if (c == NULL)
        return fake_leave(cudaErrorIllegalState);
    if (c->origin != stream) {
        c->invalid = true;
        return fake_leave(cudaErrorStreamCaptureUnmatched);
    }
    cudaError_t e = check_end(*c, stream);
    leave(c.get());
    if (e == cudaSuccess) {
        *out = new CUgraph_st{std::move(c->nodes)};
        graphs.insert(*out);
        fake_count("graphs", 1);
    }
    return fake_leave(e);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    FAKE_ENTER();
    std::lock_guard<std::mutex> hold(fake_lock);
    if (graphs.erase(graph) == 0)
        return fake_leave(cudaErrorInvalidValue);
    delete graph;
    fake_count("graphs", -1);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    FAKE_ENTER();
    auto g = std::make_shared<CUgraphExec_st>();
    std::lock_guard<std::mutex> hold(fake_lock);
    if (graphs.count(graph) == 0)
        return fake_leave(cudaErrorInvalidValue);
    g->nodes = graph->nodes;
    execs[g.get()] = g;
    fake_count("executable graphs", 1);
    *out = g.get();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    FAKE_ENTER();
    std::shared_ptr<CUgraphExec_st> last; /* ends outside of the lock */
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        last = execs[exec];
        if (execs.erase(exec) == 0 || last == NULL)
            return fake_leave(cudaErrorInvalidValue);
    }
    fake_count("executable graphs", -1);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    FAKE_ENTER();
    auto s = fake_hold(fake_stream(stream));
    std::shared_ptr<CUgraphExec_st> g;
    unsigned seed;
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        auto it = execs.find(exec);
        g = it == execs.end() ? NULL : it->second;
        seed = ++launches;
    }
    if (g == NULL || s == NULL)
        return fake_leave(cudaErrorInvalidResourceHandle);
    if (fake_stream_captured(s.get()))
        fake_die("a graph launched into a capture is not known here");
    /* what the host may not change from now on; the sums are of this launch, so nodes are copied */
    auto mine = std::make_shared<std::vector<Node>>(g->nodes);
    for (Node &n : *mine)
        fake_seal(&n.work);
    Work work;
    work.device = s->device;
    work.run = [g, mine, seed] {
        std::lock_guard<std::mutex> alone(g->running);
        run(*mine, seed);
    };
    return fake_leave(fake_put(s.get(), std::move(work)));
}
}
