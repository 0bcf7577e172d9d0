/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated device itself: work is late and in order, graphs keep their edges, CUDA's rules are
 * kept, and what must not happen is noticed. What ends the program is tried in a program of its
 * own: argv[1] names the case then.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {
#include "../runner.h"
}

#include "fake_gpu.h"
#include "kernel.h"

static const char *self; /* path of this program */

#define OK(call) assert_int_equal((int)(call), (int)cudaSuccess)

static cudaStream_t new_stream()
{
    cudaStream_t s;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

static cudaEvent_t new_event(unsigned flags)
{
    cudaEvent_t e;
    OK(cudaEventCreateWithFlags(&e, flags));
    return e;
}

template <typename T> static T *on_device(size_t n)
{
    void *p;
    OK(cudaMalloc(&p, n * sizeof(T)));
    return (T *)p;
}

/* ---- kernels */

__global__ void add_number(int n, int by, int *x)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        x[i] += by;
}

/* x[0] = 2 x[0] + by: two of them do not commute. */
__global__ void twice_plus(int by, int *x)
{
    x[0] = 2 * x[0] + by;
}

__global__ void skip_barrier(int *x)
{
    if (threadIdx.x == 3)
        return;
    __syncthreads();
    x[threadIdx.x] = 1;
}

/* Every thread writes a word of its own, or one of all; the next thread's is read, with a barrier
 * before or not; and again, with a barrier in between or not. */
__global__ void turn_around(bool own, bool barrier, bool between, int *x)
{
    __shared__ int words[64];
    int t = (int)threadIdx.x, next = (t + 1) % (int)blockDim.x;
    for (int i = 0; i < 2; i++) {
        words[own ? t : 0] = x[t];
        if (barrier)
            __syncthreads();
        x[t] = own ? words[next] : 0;
        if (between)
            __syncthreads();
    }
}

/* The same within a warp. */
__global__ void turn_warp(bool barrier, int *x)
{
    __shared__ int words[32];
    int t = (int)threadIdx.x;
    words[t] = x[t];
    if (barrier)
        __syncwarp();
    x[t] = __shfl_sync(0xffffffffu, words[31 - t], t);
}

static cudaError_t launch_twice_plus(int by, int *x, cudaStream_t s)
{
    return PP_LAUNCH(twice_plus, 1, 1, 0, s, by, x);
}

/* ---- work of a stream */

static void slow(void *arg)
{
    usleep(20000);
    ++*(volatile int *)arg;
}

TEST(work_is_done_later_and_in_order)
{
    cudaStream_t s = new_stream();
    cudaEvent_t e = new_event(cudaEventDisableTiming);
    int n = 0;
    OK(cudaEventQuery(e)); /* never recorded: reached */
    OK(fake_enqueue(s, false, slow, &n, NULL));
    OK(fake_enqueue(s, false, slow, &n, NULL));
    OK(cudaEventRecord(e, s));
    assert_int_equal((int)cudaEventQuery(e), (int)cudaErrorNotReady);
    assert_int_equal((int)cudaGetLastError(), (int)cudaErrorNotReady); /* a launch would see it */
    OK(cudaEventSynchronize(e));
    assert_int_equal(n, 2);
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
}

TEST(a_stream_waits_for_the_event_as_it_was_at_the_call)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t e = new_event(cudaEventDisableTiming);
    int *x = on_device<int>(1), start = 1, got = 0;
    OK(cudaMemcpyAsync(x, &start, sizeof start, cudaMemcpyHostToDevice, a));
    int n = 0;
    OK(fake_enqueue(a, false, slow, &n, NULL));
    OK(launch_twice_plus(1, x, a)); /* 3 */
    OK(cudaEventRecord(e, a));
    OK(cudaStreamWaitEvent(b, e, 0));
    OK(launch_twice_plus(5, x, b)); /* 11 */
    OK(cudaMemcpyAsync(&got, x, sizeof got, cudaMemcpyDeviceToHost, b));
    assert_int_equal(got, 11);
    OK(cudaFree(x));
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
}

TEST(events_tell_the_time_between_them)
{
    cudaStream_t s = new_stream();
    cudaEvent_t a = new_event(cudaEventDefault), b = new_event(cudaEventDefault);
    cudaEvent_t plain = new_event(cudaEventDisableTiming);
    int n = 0;
    float ms = 0;
    assert_int_equal((int)cudaEventElapsedTime(&ms, a, b), (int)cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(a, s));
    OK(fake_enqueue(s, false, slow, &n, NULL));
    OK(cudaEventRecord(b, s));
    assert_int_equal((int)cudaEventElapsedTime(&ms, a, b), (int)cudaErrorNotReady);
    OK(cudaStreamSynchronize(s));
    OK(cudaEventElapsedTime(&ms, a, b));
    assert_true(ms >= 19.0f);
    OK(cudaEventRecord(plain, s));
    assert_int_equal((int)cudaEventElapsedTime(&ms, a, plain), (int)cudaErrorInvalidResourceHandle);
    for (cudaEvent_t e : {a, b, plain})
        OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(s));
}

TEST(copies_know_their_direction_and_bounds)
{
    cudaStream_t s = new_stream();
    float *d = on_device<float>(16), h[17] = {0};
    int wrong = (int)cudaErrorInvalidValue;
    assert_int_equal((int)cudaMemcpyAsync(h, d, 64, cudaMemcpyHostToDevice, s), wrong);
    assert_int_equal((int)cudaMemcpyAsync(d, h, 64, cudaMemcpyDeviceToHost, s), wrong);
    assert_int_equal((int)cudaMemcpyAsync(d, h, 68, cudaMemcpyHostToDevice, s), wrong);
    assert_int_equal((int)cudaMemsetAsync(h, 0, 4, s), wrong);
    assert_int_equal((int)cudaGetLastError(), wrong);
    OK(cudaGetLastError());
    OK(cudaMemcpyAsync(h, d, 64, cudaMemcpyDeviceToHost, s));
    assert_true(h[0] != h[0]); /* new memory holds NaN */
    OK(cudaFree(d));
    assert_int_equal((int)cudaFree(d), wrong);
    OK(cudaStreamDestroy(s));
}

/* ---- kernels */

TEST(barriers_order_the_threads_of_a_block)
{
    cudaStream_t s = new_stream();
    int x[64], *d = on_device<int>(64);
    for (int i = 0; i < 64; i++)
        x[i] = i;
    OK(cudaMemcpyAsync(d, x, sizeof x, cudaMemcpyHostToDevice, s));
    OK(PP_LAUNCH(turn_around, 1, 64, 0, s, true, true, true, d));
    OK(PP_LAUNCH(turn_warp, 1, 32, 0, s, true, d));
    OK(cudaMemcpyAsync(x, d, sizeof x, cudaMemcpyDeviceToHost, s));
    for (int i = 0; i < 64; i++)
        assert_int_equal(x[i], i < 32 ? 33 - i : (i + 2) % 64);
    OK(cudaFree(d));
    OK(cudaStreamDestroy(s));
}

/* ---- graphs */

/* a: x = 2x+1, y = 2y+1 on b, joined, x += y by a copy that a does. */
TEST(a_graph_keeps_its_edges_in_any_order)
{
    cudaStream_t a = new_stream(), b = new_stream();
    cudaEvent_t fork = new_event(cudaEventDisableTiming), join = new_event(cudaEventDisableTiming);
    int *x = on_device<int>(1), *y = on_device<int>(1), zero = 0, got;
    OK(cudaMemcpyAsync(x, &zero, sizeof zero, cudaMemcpyHostToDevice, a));
    OK(cudaMemcpyAsync(y, &zero, sizeof zero, cudaMemcpyHostToDevice, a));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed));
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    OK(launch_twice_plus(1, x, a));
    OK(launch_twice_plus(2, x, a));
    OK(launch_twice_plus(1, y, b));
    OK(launch_twice_plus(5, y, b));
    OK(cudaEventRecord(join, b));
    OK(cudaStreamWaitEvent(a, join, 0));
    OK(PP_LAUNCH(add_number, 1, 1, 0, a, 1, 100, y));
    OK(cudaMemcpyAsync(x, y, sizeof *x, cudaMemcpyDeviceToDevice, a));
    OK(cudaStreamEndCapture(a, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    OK(cudaMemcpyAsync(&got, y, sizeof got, cudaMemcpyDeviceToHost, a));
    assert_int_equal(got, 0); /* recorded, not done */
    int want = 0;
    for (int i = 0; i < 20; i++) {
        OK(cudaGraphLaunch(exec, a));
        want = 2 * (2 * want + 1) + 5 + 100;
        OK(cudaMemcpyAsync(&got, x, sizeof got, cudaMemcpyDeviceToHost, a));
        assert_int_equal(got, want);
        if (i % 4 == 3) {
            OK(cudaMemcpyAsync(y, &zero, sizeof zero, cudaMemcpyHostToDevice, a));
            want = 0;
        }
    }
    assert_int_equal((int)cudaEventQuery(join), (int)cudaErrorCapturedEvent);
    OK(cudaGraphExecDestroy(exec));
    for (cudaEvent_t e : {fork, join})
        OK(cudaEventDestroy(e));
    for (int *p : {x, y})
        OK(cudaFree(p));
    for (cudaStream_t s : {a, b})
        OK(cudaStreamDestroy(s));
}

TEST(captures_have_rules)
{
    cudaStream_t a = new_stream(), b = new_stream(), c = new_stream();
    cudaEvent_t e = new_event(cudaEventDisableTiming), old = new_event(cudaEventDisableTiming);
    cudaGraph_t graph;
    int *x = on_device<int>(1), host = 0;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    OK(cudaEventRecord(old, b));

    OK(cudaStreamBeginCapture(a, mode)); /* work of b is not waited for */
    OK(cudaEventRecord(e, a));
    OK(cudaStreamWaitEvent(b, e, 0));
    OK(launch_twice_plus(1, x, b));
    assert_int_equal((int)cudaStreamEndCapture(b, &graph), (int)cudaErrorStreamCaptureUnmatched);
    assert_int_equal((int)cudaStreamEndCapture(a, &graph), (int)cudaErrorStreamCaptureInvalidated);

    OK(cudaStreamBeginCapture(a, mode));
    OK(cudaEventRecord(e, a));
    OK(cudaStreamWaitEvent(b, e, 0));
    OK(launch_twice_plus(1, x, b));
    assert_int_equal((int)cudaStreamEndCapture(a, &graph), (int)cudaErrorStreamCaptureUnjoined);
    assert_null(graph);

    OK(cudaStreamBeginCapture(a, mode)); /* an event from before it */
    assert_int_equal((int)cudaStreamWaitEvent(a, old, 0), (int)cudaErrorStreamCaptureIsolation);
    assert_int_equal((int)launch_twice_plus(1, x, a), (int)cudaErrorStreamCaptureInvalidated);
    assert_int_equal((int)cudaStreamEndCapture(a, &graph), (int)cudaErrorStreamCaptureInvalidated);

    OK(cudaStreamBeginCapture(a, mode)); /* the host waits */
    assert_int_equal((int)cudaStreamSynchronize(a), (int)cudaErrorStreamCaptureUnsupported);
    assert_int_equal((int)cudaStreamEndCapture(a, &graph), (int)cudaErrorStreamCaptureInvalidated);

    OK(cudaStreamBeginCapture(a, mode)); /* a copy that the host would have to wait for */
    assert_int_equal((int)cudaMemcpyAsync(&host, x, 4, cudaMemcpyDeviceToHost, a),
                     (int)cudaErrorStreamCaptureUnsupported);
    assert_int_equal((int)cudaStreamEndCapture(a, &graph), (int)cudaErrorStreamCaptureInvalidated);

    OK(cudaStreamBeginCapture(a, mode)); /* two captures meet */
    OK(cudaStreamBeginCapture(c, mode));
    OK(cudaEventRecord(e, a));
    assert_int_equal((int)cudaStreamWaitEvent(c, e, 0), (int)cudaErrorStreamCaptureMerge);
    assert_int_equal((int)cudaStreamEndCapture(a, &graph), (int)cudaErrorStreamCaptureInvalidated);
    assert_int_equal((int)cudaStreamEndCapture(c, &graph), (int)cudaErrorStreamCaptureInvalidated);

    OK(launch_twice_plus(1, x, a)); /* and all is as before */
    OK(cudaStreamSynchronize(a));
    for (cudaEvent_t v : {e, old})
        OK(cudaEventDestroy(v));
    for (cudaStream_t s : {a, b, c})
        OK(cudaStreamDestroy(s));
    OK(cudaFree(x));
}

/* ---- what ends a program */

/* Of the product, which is not here: pieces of 64 bytes. */
extern "C" void *__real_pp_arena_take(void *arena, size_t count, size_t size)
{
    char **at = (char **)arena, *piece = *at;
    *at += (count * size + 63) / 64 * 64;
    return piece;
}
extern "C" void *__wrap_pp_arena_take(void *arena, size_t count, size_t size);

static int dying(const std::string &what)
{
    cudaStream_t s = new_stream();
    int *x = on_device<int>(64);
    if (what == "touch")
        return *(volatile int *)x;
    static int host[64];
    if (what == "host")
        OK(PP_LAUNCH(add_number, 1, 64, 0, s, 64, 1, host));
    if (what == "barrier")
        OK(PP_LAUNCH(skip_barrier, 1, 32, 0, s, x));
    if (what == "write-write")
        OK(PP_LAUNCH(turn_around, 1, 64, 0, s, false, true, true, x));
    if (what == "read-write")
        OK(PP_LAUNCH(turn_around, 1, 64, 0, s, true, false, true, x));
    if (what == "loop")
        OK(PP_LAUNCH(turn_around, 1, 64, 0, s, true, true, false, x));
    if (what == "warp")
        OK(PP_LAUNCH(turn_warp, 1, 32, 0, s, false, x));
    if (what == "after")
        OK(PP_LAUNCH(add_number, 1, 65, 0, s, 65, 1, x));
    if (what == "outside") {
        char *at = (char *)x;
        int *ten = (int *)__wrap_pp_arena_take(&at, 10, sizeof(int));
        (void)__wrap_pp_arena_take(&at, 1, sizeof(int));
        OK(PP_LAUNCH(add_number, 1, 10, 0, s, 10, 1, ten));
        OK(PP_LAUNCH(add_number, 1, 11, 0, s, 11, 1, ten));
    }
    if (what == "source") {
        void *pinned;
        static int n; /* the stream may reach it after this block */
        OK(cudaHostAlloc(&pinned, 256, cudaHostAllocDefault));
        OK(fake_enqueue(s, false, slow, &n, NULL));
        OK(cudaMemcpyAsync(x, pinned, 256, cudaMemcpyHostToDevice, s));
        memset(pinned, 0, 256);
    }
    if (what == "fault") {
        OK(PP_LAUNCH(add_number, 2, 32, 0, s, 64, 1, x));
        OK(PP_LAUNCH(add_number, 2, 32, 0, s, 64, 1, x));
        return cudaStreamSynchronize(s) == cudaErrorIllegalAddress ? 7 : 0;
    }
    OK(cudaStreamSynchronize(s));
    return 0; /* with a stream and a block left */
}

/* Run this program for one case; its text and how it ended. */
static int run(const char *environment, const char *what, std::string *text)
{
    std::string line = std::string(environment) + " exec '" + self + "' " + what + " 2>&1";
    FILE *p = popen(line.c_str(), "r");
    assert_non_null(p);
    char chunk[512];
    text->clear();
    while (fgets(chunk, sizeof chunk, p) != NULL)
        *text += chunk;
    return pclose(p);
}

static void assert_dies(const char *what, const char *because)
{
    std::string text;
    int status = run("", what, &text);
    assert_true(status != 0);
    if (text.find(because) == std::string::npos)
        fail_msg("%s: expected '%s', got '%s'", what, because, text.c_str());
}

TEST(what_a_device_would_not_say_is_said)
{
    assert_dies("barrier", "a thread returned before a __syncthreads");
    assert_dies("host", "add_number: an argument points to memory of the host");
    assert_dies("source", "256 bytes of pinned memory were changed before");
    assert_dies("leak", "left at exit: 1 blocks of device memory");
    assert_dies("leak", "left at exit: 1 streams");
}

#ifdef __SANITIZE_THREAD__
TEST(races_and_what_is_out_of_bounds_are_said)
{
    assert_dies("write-write", "turn_around: thread 1 writes what thread 0 wrote");
    assert_dies("read-write", "read, with no barrier in between");
    assert_dies("loop", "read, with no barrier in between");
    assert_dies("warp", "with no barrier");
    assert_dies("after", "add_number: 4 bytes just outside a block");
    assert_dies("outside",
                "add_number: 4 bytes just outside a block or a piece of an arena are read");
}
#endif

TEST(the_host_cannot_touch_the_memory_of_a_device)
{
    std::string text;
    int status = run("", "touch", &text);
    if (WIFEXITED(status)) {
        print_message("# this machine has no protection keys\n");
        return;
    }
    assert_true(text.find("memory of a device touched by the host") != std::string::npos);
}

TEST(calls_fail_on_request)
{
    std::string text;
    assert_int_equal(WEXITSTATUS(run("PPCLI_FAKE_FAIL=kernel:2:700", "fault", &text)), 7);
    assert_true(run("PPCLI_FAKE_FAIL=cudaMalloc:1:2", "fault", &text) != 0);
    assert_true(run("PPCLI_FAKE_GPUS=0", "fault", &text) != 0);
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1)
        return dying(argv[1]);
    return tests_run(NULL, NULL);
}
