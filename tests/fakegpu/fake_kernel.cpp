/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the blocks of a kernel: one after another, each thread of a block on a stack of its own when
 * it has to wait. A thread that never waits costs a function call: the next one starts on the same
 * stack. What a device leaves undefined (a barrier that not every thread reaches, a shuffle without
 * one of its lanes) ends the program here.
 */
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>

#include "fake.h"
#include "kernel.h"

enum {
    MOST_THREADS = 1024,
    STACK_BYTES = 256 * 1024,
    LANES = 32
};

__thread struct FakeThread fake_thread;

/* Where a stack stands while another one is used. */
#if defined(__x86_64__)
typedef void *Place;
#else
typedef ucontext_t Place;
#endif

struct Fiber {
    Place place;
    uint3 thread; /* the thread of the block that runs on it, while it waits */
};

struct Warp {
    uint64_t given[2][LANES];
    const char *what;
    unsigned arrived, mask;
    int turn; /* which half of given the next exchange uses */
};

/* All that a thread of the host needs to run blocks. */
struct Runner {
    Place home;
    Fiber fibers[MOST_THREADS];
    int made;
    Fiber *running;
    std::vector<Fiber *> idle, at_barrier, at_warp[LANES];
    std::deque<Fiber *> ready;
    Warp warps[LANES];
    const std::function<void()> *kernel;
    const char *name;
    int threads, started, ended;
    int votes[2], turn; /* of the barrier before and this one */
    bool reverse;
};

static thread_local std::unique_ptr<Runner> runner;

static void fiber_main();

/* ---- changing stacks */

#if defined(__x86_64__)
/* swapcontext asks the kernel for the signal mask: 50 times as slow as the registers. */
extern "C" void fake_switch(Place *from, const Place *to);
asm(R"(
    .text
    .type fake_switch, @function
fake_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size fake_switch, .-fake_switch
)");

static void place_new(Place *p, char *stack, size_t bytes)
{
    void **top = (void **)(stack + bytes) - 1; /* as after a call */
    *--top = (void *)fiber_main;
    *p = top - 6; /* the six registers, whatever they hold */
}
#else
static void fake_switch(Place *from, const Place *to)
{
    swapcontext(from, to);
}

static void place_new(Place *p, char *stack, size_t bytes)
{
    getcontext(p);
    p->uc_stack.ss_sp = stack;
    p->uc_stack.ss_size = bytes;
    p->uc_link = NULL;
    makecontext(p, fiber_main, 0);
}
#endif

static void to_fiber(Runner *r, Fiber *f)
{
    r->running = f;
    fake_thread.thread = f->thread;
    fake_switch(&r->home, &f->place);
}

static void to_home(Runner *r)
{
    Fiber *f = r->running;
    f->thread = fake_thread.thread;
    fake_switch(&f->place, &r->home);
}

/* Threads of the block, one after another, until all have been started. */
static void run_threads(Runner *r)
{
    uint3 size = fake_thread.block_size;
    while (r->started < r->threads) {
        int k = r->started++;
        unsigned n = (unsigned)(r->reverse ? r->threads - 1 - k : k);
        fake_thread.thread = {n % size.x, n / size.x % size.y, n / size.x / size.y};
        (*r->kernel)();
        r->ended++;
    }
}

static void fiber_main()
{
    for (;;) {
        Runner *r = runner.get();
        run_threads(r);
        r->idle.push_back(r->running);
        to_home(r);
    }
}

static Fiber *idle_fiber(Runner *r)
{
    if (!r->idle.empty()) {
        Fiber *f = r->idle.back();
        r->idle.pop_back();
        return f;
    }
    Fiber *f = &r->fibers[r->made++];
    void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        fake_die("no memory for the stack of a thread of a kernel");
    /* tops at the same place of a page would share a few cache lines */
    place_new(&f->place, (char *)stack, STACK_BYTES - (size_t)(r->made % 31) * 128);
    return f;
}

/* ---- waiting for each other */

int fake_number_in_block()
{
    const FakeThread &t = fake_thread;
    return (int)((t.thread.z * t.block_size.y + t.thread.y) * t.block_size.x + t.thread.x);
}

static void wait_in(Runner *r, std::vector<Fiber *> *list)
{
    list->push_back(r->running);
    to_home(r);
}

static void release(Runner *r, std::vector<Fiber *> *list)
{
    if (r->reverse)
        r->ready.insert(r->ready.end(), list->rbegin(), list->rend());
    else
        r->ready.insert(r->ready.end(), list->begin(), list->end());
    list->clear();
}

int fake_syncthreads(int predicate)
{
    Runner *r = runner.get();
    if (r->ended > 0)
        fake_die("%s: a thread returned before a __syncthreads of its block", r->name);
    int turn = r->turn;
    r->votes[turn] |= predicate;
    if ((int)r->at_barrier.size() + 1 == r->threads) {
        r->turn = !turn;
        r->votes[!turn] = 0;
        fake_watch.block++;
        release(r, &r->at_barrier);
    } else {
        wait_in(r, &r->at_barrier);
    }
    return r->votes[turn];
}

const uint64_t *fake_exchange(unsigned mask, uint64_t value, const char *what, int *out_lane)
{
    Runner *r = runner.get();
    int number = fake_number_in_block(), lane = number % LANES;
    int lanes = std::min((int)LANES, r->threads - number / LANES * LANES);
    unsigned there = lanes == LANES ? 0xffffffffu : (1u << lanes) - 1;
    Warp *w = &r->warps[number / LANES];
    if (!(mask >> lane & 1) || (mask & ~there) != 0)
        fake_die("%s: %s with mask %08x in lane %d of %d", r->name, what, mask, lane, lanes);
    if (w->arrived == 0) {
        w->what = what;
        w->mask = mask;
    } else if (w->what != what || w->mask != mask) {
        fake_die("%s: lanes of a warp meet in %s and %s", r->name, w->what, what);
    }
    int turn = w->turn;
    w->given[turn][lane] = value;
    w->arrived |= 1u << lane;
    std::vector<Fiber *> *waiting = &r->at_warp[number / LANES];
    if (w->arrived == mask) {
        w->arrived = 0;
        w->turn = !turn;
        if (strcmp(what, "__syncwarp") == 0) /* shuffles order no memory */
            fake_watch.warps[number / LANES]++;
        release(r, waiting);
    } else {
        wait_in(r, waiting);
    }
    *out_lane = lane;
    return w->given[turn];
}

/* ---- blocks and launches */

static void run_block(Runner *r)
{
    r->started = r->ended = 0;
    fake_watch.block++;
    for (;;) {
        if (!r->ready.empty()) {
            Fiber *f = r->ready.front();
            r->ready.pop_front();
            to_fiber(r, f);
        } else if (r->started < r->threads) {
            to_fiber(r, idle_fiber(r));
        } else {
            break;
        }
    }
    if (r->ended != r->threads)
        fake_die("%s: %d of %d threads of a block wait for each other for ever", r->name,
                 r->threads - r->ended, r->threads);
}

static void run_grid(const char *name, dim3 grid, dim3 block, const std::function<void()> &kernel)
{
    if (runner == NULL) {
        runner.reset(new Runner());
        const char *order = getenv("PPCLI_FAKE_ORDER");
        runner->reverse = order != NULL && strcmp(order, "reverse") == 0;
    }
    Runner *r = runner.get();
    r->kernel = &kernel;
    r->name = fake_watch.kernel = name;
    r->threads = (int)(block.x * block.y * block.z);
    fake_thread.block_size = {block.x, block.y, block.z};
    fake_thread.grid_size = {grid.x, grid.y, grid.z};
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                fake_thread.block = {r->reverse ? grid.x - 1 - x : x, y, z};
                run_block(r);
            }
    fake_watch.kernel = NULL;
}

void fake_check_pointer(const char *name, cudaStream_t stream, const void *p, size_t align)
{
    if ((uintptr_t)p % align != 0)
        fake_die("%s: an argument lies at no multiple of %zu bytes", name, align);
    if (p == NULL || fake_pinned(p, 1) || fake_reaches(stream, p, 1))
        return;
    int of = fake_device_of(p, 1);
    if (of < 0)
        fake_die("%s: an argument points to memory of the host", name);
    fake_die("%s: an argument points to memory of device %d, which device %d does not reach", name,
             of, fake_stream_device(fake_stream(stream)));
}

cudaError_t fake_launch(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                        std::function<void()> kernel)
{
    cudaError_t e = fake_enter("launch");
    auto s = e == cudaSuccess ? fake_hold(fake_stream(stream)) : NULL;
    if (e != cudaSuccess)
        return fake_leave(e);
    if (s == NULL || s->device != fake_current())
        return fake_leave(cudaErrorInvalidResourceHandle);
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (threads == 0 || threads > MOST_THREADS || block.z > 64 || grid.x == 0 || grid.y == 0 ||
        grid.z == 0 || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535)
        return fake_leave(cudaErrorInvalidConfiguration);
    if (shared != 0)
        fake_die("%s: shared memory of a size chosen at the launch is not known here", name);
    Device *d = s->device;
    if (!fake_any_capture(d) && fake_first_launch(name, d))
        fake_drain(d);
    Work work;
    work.device = d;
    work.run = [=] {
        int code;
        if (fake_fails("kernel", &code)) {
            std::lock_guard<std::mutex> hold(fake_lock);
            d->error = (cudaError_t)code;
            return;
        }
        run_grid(name, grid, block, kernel);
    };
    return fake_leave(fake_put(s.get(), std::move(work)));
}
