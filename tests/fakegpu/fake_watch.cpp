/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches what kernels read and write: they are compiled with the calls of ThreadSanitizer, which
 * come here in place of its library. Two threads of a block that use one word of shared memory, one
 * of them writing, need a barrier in between, or __syncwarp() in one warp; nothing between two pieces
 * of an arena, or after a block of memory, is touched.
 */
#include <algorithm>
#include <link.h>

#include "fake.h"
#include "kernel.h"

thread_local FakeWatch fake_watch;

/* ---- what lies between pieces of an arena, and after a block */

/* Lines of 64 bytes, the low bits the first byte that is out of bounds: a table of open addresses.
 * Memory is never handed out again, so nothing is ever taken out. */
static const size_t LINE = 64, PLACES = 1 << 20;
static std::atomic<uintptr_t> bounds[PLACES];
static std::atomic<size_t> bounds_used;

static std::atomic<uintptr_t> *place_of(uintptr_t line)
{
    size_t i = (line / LINE * 0x9e3779b97f4a7c15u) >> 44;
    while (bounds[i] != 0 && (bounds[i] & ~(LINE - 1)) != line)
        i = (i + 1) % PLACES;
    return &bounds[i];
}

static bool out_of_bounds(uintptr_t at, size_t n)
{
    uintptr_t bound = place_of(at & ~(LINE - 1))->load(std::memory_order_relaxed);
    return bound != 0 && at + n > bound;
}

bool fake_within(const void *p, size_t n)
{
    for (uintptr_t at = (uintptr_t)p, end = at + n; at < end; at = (at | (LINE - 1)) + 1)
        if (out_of_bounds(at, std::min(LINE - at % LINE, end - at)))
            return false;
    return true;
}

void fake_forbid(uintptr_t from, uintptr_t to)
{
    for (uintptr_t at = from; at < to && bounds_used++ < PLACES / 2; at = (at | (LINE - 1)) + 1)
        for (uintptr_t free = 0; free == 0; free = *place_of(at & ~(LINE - 1)))
            place_of(at & ~(LINE - 1))->compare_exchange_strong(free, at);
}

struct pp_arena;
extern "C" __attribute__((weak)) void *__real_pp_arena_take(struct pp_arena *, size_t, size_t);
extern "C" __attribute__((weak)) int __real_pp_arena_create(size_t, struct pp_arena *);

/* A line more follows each piece: nobody may touch it in memory of a device. */
extern "C" void *__wrap_pp_arena_take(struct pp_arena *a, size_t count, size_t size)
{
    uintptr_t p = (uintptr_t)__real_pp_arena_take(a, count, size);
    uintptr_t zone = (uintptr_t)__real_pp_arena_take(a, LINE, 1);
    if (p != 0 && fake_device_of((void *)p, 1) >= 0)
        fake_forbid(p + count * size, zone + LINE);
    return (void *)p;
}

/* Of host memory, where a small one may not have been counted. */
extern "C" int __wrap_pp_arena_create(size_t bytes, struct pp_arena *out)
{
    return __real_pp_arena_create(bytes < PLACES ? 2 * bytes : bytes, out);
}

#ifdef WATCHED
/* ---- shared memory: all thread-local variables of the program but one */

/* By whom and when. */
struct Use {
    uint32_t block, warp; /* epochs */
    int thread;
};

/* Of two bytes. Of the readers of an epoch two are kept, of different warps where there are such. */
struct Word {
    Use write, read, other;
};

static thread_local uintptr_t shared;
static thread_local std::vector<Word> words;

static int find_shared(struct dl_phdr_info *info, size_t, void *)
{
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            shared = (uintptr_t)info->dlpi_tls_data;
            words.resize(info->dlpi_phdr[i].p_memsz / 2 + 1);
        }
    return 1; /* of the program, which comes first */
}

static bool races(const Use &before, const Use &now)
{
    return before.block == now.block && before.thread != now.thread &&
           (before.thread / 32 != now.thread / 32 || before.warp == now.warp);
}

static void use_word(Word *w, const Use &now, bool writes)
{
    for (const Use *before : {&w->write, &w->read, &w->other})
        if ((writes || before == &w->write) && races(*before, now))
            fake_die("%s: thread %d %s what thread %d %s, with no barrier in between",
                     fake_watch.kernel, now.thread, writes ? "writes" : "reads", before->thread,
                     before == &w->write ? "wrote" : "read");
    if (writes)
        w->write = now;
    else if (w->read.block != now.block || w->read.thread == now.thread)
        w->read = now;
    else if (w->other.block != now.block || w->other.thread / 32 == w->read.thread / 32)
        w->other = now;
}

/* ---- what calls of the product wait to read and write */

static const fake_range *range_at(const std::vector<fake_range> &all, uintptr_t at, size_t n)
{
    auto it = std::upper_bound(all.begin(), all.end(), at + n - 1,
                               [](uintptr_t last, const fake_range &r) { return last < r.from; });
    return it == all.begin() || (--it)->to <= at ? NULL : &*it;
}

static void check_waits(const Waits &w, uintptr_t at, size_t n, bool writes)
{
    const fake_range *r = range_at(w.written, at, n);
    if (r == NULL && writes)
        r = range_at(w.read, at, n);
    if (r != NULL)
        fake_die("%s %s what %s, which waits, has still to %s", fake_watch.kernel,
                 writes ? "writes" : "reads", r->what, r->written ? "write" : "read");
}

/* ---- from the kernels */

static void watch(const void *p, size_t n, bool writes)
{
    uintptr_t at = (uintptr_t)p;
    if (fake_watch.kernel == NULL || at - (uintptr_t)&fake_thread < sizeof fake_thread)
        return;
    if (words.empty())
        dl_iterate_phdr(find_shared, NULL);
    if (fake_waits_before != NULL)
        check_waits(*fake_waits_before, at, n, writes);
    if (at - shared < 2 * words.size()) {
        int thread = fake_number_in_block();
        Use now = {fake_watch.block, fake_watch.warps[thread / 32], thread};
        for (size_t i = (at - shared) / 2; i <= (at - shared + n - 1) / 2; i++)
            use_word(&words[i], now, writes);
    } else if (out_of_bounds(at, n)) {
        fake_die("%s: %zu bytes just outside a block or a piece of an arena are %s",
                 fake_watch.kernel, n, writes ? "written" : "read");
    }
}

#define ACCESS(n)                                                                                  \
    void __tsan_read##n(void *p)                                                                   \
    {                                                                                              \
        watch(p, n, false);                                                                        \
    }                                                                                              \
    void __tsan_write##n(void *p)                                                                  \
    {                                                                                              \
        watch(p, n, true);                                                                         \
    }                                                                                              \
    void __tsan_unaligned_read##n(void *p)                                                         \
    {                                                                                              \
        watch(p, n, false);                                                                        \
    }                                                                                              \
    void __tsan_unaligned_write##n(void *p)                                                        \
    {                                                                                              \
        watch(p, n, true);                                                                         \
    }

extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_read_range(void *p, size_t n)
{
    watch(p, n, false);
}
void __tsan_write_range(void *p, size_t n)
{
    watch(p, n, true);
}
void __tsan_vptr_update(void *, void *)
{
}
void __tsan_init()
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit()
{
}
/* Kernels take turns: plain code is atomic, and sums of any order are the same. */
uint32_t __tsan_atomic32_fetch_add(volatile uint32_t *p, uint32_t by, int)
{
    return __atomic_fetch_add(p, by, __ATOMIC_SEQ_CST);
}
}
#endif
