/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training step allocates nothing: this program counts every allocation of the process, also
 * those of libraries, and compares a short run with a longer one.
 */
#include "train_run.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "ppcli/pipe/exec.h"

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static _Atomic long allocations;

/* The sanitizers bring an allocator of their own, which must stay in place. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTING 1
void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    allocations++;
    return __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
    allocations++;
    return __libc_realloc(p, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    allocations++;
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : 12;
}
#else
#define COUNTING 0
#endif

/* When the last step is done; how many times a forecast allocates depends on measured times. */
static _Atomic long at_end;
int __real_pp_exec_weights_sha256(struct pp_exec *x, char out[65]);
int __wrap_pp_exec_weights_sha256(struct pp_exec *x, char out[65]);
int __wrap_pp_exec_weights_sha256(struct pp_exec *x, char out[65])
{
    long none = 0;
    atomic_compare_exchange_strong(&at_end, &none, allocations);
    return __real_pp_exec_weights_sha256(x, out);
}

/* Allocations of a run of `steps` steps; several epochs of a small data set. */
static long of_run(const char *steps, const char *stages, const char *schedule, const char *more)
{
    struct outcome o;
    const char *list[] = {"model.sizes=20 17 33 8 5",
                          "data.train_samples=203",
                          "data.test_samples=57",
                          "train.batch_size=16",
                          "train.epochs=100",
                          "train.clip_norm=1",
                          "run.log_every=1",
                          "checkpoint.every_epochs=0",
                          "checkpoint.at_end=false",
                          "pipeline.microbatches=4",
                          steps,
                          stages,
                          schedule,
                          more,
                          NULL};
    train_ok(list, &o); /* the first run also fills what libraries keep for good */
    long before = allocations;
    at_end = 0;
    train_ok(list, &o);
    return at_end - before;
}

TEST(a_step_allocates_nothing)
{
    if (!COUNTING)
        skip();
    static const char *const schedules[] = {"pipeline.schedule=naive", "pipeline.schedule=gpipe",
                                            "pipeline.schedule=1f1b"};
    static const char *const shapes[] = {"pipeline.stages=1", "pipeline.stages=2",
                                         "pipeline.stages=4"};
    for (int s = 0; s < 3; s++) {
        for (int i = 0; i < 3; i++) {
            /* Both runs end in their second epoch: 13 steps an epoch. */
            long few = of_run("train.max_steps=16", shapes[s], schedules[i], "train.seed=1");
            long many = of_run("train.max_steps=20", shapes[s], schedules[i], "train.seed=1");
            CHECK_INT_EQ(many, few);
        }
    }
    long few = of_run("train.max_steps=16", "pipeline.stages=2", "pipeline.schedule=1f1b",
                      "pipeline.replicas=2");
    long many = of_run("train.max_steps=20", "pipeline.stages=2", "pipeline.schedule=1f1b",
                       "pipeline.replicas=2");
    CHECK_INT_EQ(many, few);
    few = of_run("train.max_steps=16", "pipeline.stages=2", "pipeline.schedule=1f1b",
                 "train.exact=off");
    many = of_run("train.max_steps=20", "pipeline.stages=2", "pipeline.schedule=1f1b",
                  "train.exact=off");
    CHECK_INT_EQ(many, few);
}
