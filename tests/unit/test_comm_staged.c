/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a device over memory of the host: what happens when the device is late. That they
 * arrive is for tests/conform. */
#include "test.h"

#include "../../src/dev/backend.h"
#include "../../src/comm/impl.h"
#include "ppcli/base/base.h"
#include "../../src/comm/transport.h"

#define LIMIT_NS 50000000u
#define TOO_LONG_NS 60000000000u

/* A device whose work is done as many looks after it was asked for as this says; -1: never. */
static int looks;

static int probe(char *why, size_t bytes)
{
    return 0;
}

static int open_late(struct pp_backend *be, int threads)
{
    be->caps = (struct pp_backend_caps){.async = true, .thread_safe = true};
    snprintf(be->description, sizeof(be->description), "a late device");
    return 0;
}

static void close_late(struct pp_backend *be)
{
}

static int held; /* blocks of pinned memory */

static int host_alloc(struct pp_backend *be, size_t bytes, void **out)
{
    static char pool[32 << 20];
    static size_t used;
    if (bytes > sizeof(pool) - used)
        return pp_fail(PP_ERESOURCE, "the pool is too small");
    *out = pool + used;
    used += bytes;
    held++;
    return 0;
}

static void host_free(struct pp_backend *be, void *p, size_t bytes)
{
    held--;
}

static int mark_create(struct pp_backend *be, bool timed, void **mark)
{
    static int one;
    *mark = &one;
    return 0;
}

static void mark_destroy(struct pp_backend *be, void *mark)
{
}

static int mark_set(struct pp_backend *be, void *mark)
{
    return 0;
}

static int mark_reached(struct pp_backend *be, void *mark, bool *reached)
{
    *reached = looks == 0;
    looks -= looks > 0;
    return 0;
}

static const struct pp_backend_ops late = {
    .name = "late",
    .probe = probe,
    .open = open_late,
    .close = close_late,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .mark_create = mark_create,
    .mark_destroy = mark_destroy,
    .mark_set = mark_set,
    .mark_reached = mark_reached,
};

struct one {
    struct pp_threads *group;
    struct pp_backend *be;
    struct pp_transport *tp;
};

static void open_one(struct one *o, uint64_t limit_ns)
{
    *o = (struct one){0};
    CHECK_OK(pp_threads_create(1, NULL, &o->group));
    CHECK_OK(pp_threads_attach(o->group, 0, &o->tp));
    CHECK_OK(pp_backend_open(&late, 1, &o->be));
    CHECK_OK(pp_staged_open(o->tp, limit_ns, &o->tp));
    CHECK_OK(pp_transport_bind(o->tp, o->be));
}

static void close_one(struct one *o)
{
    pp_transport_destroy(&o->tp);
    pp_backend_close(&o->be);
    pp_threads_destroy(&o->group);
}

TEST(a_copy_is_used_when_the_device_has_done_it)
{
    struct one o;
    char in[3] = {1, 2, 3}, out[3] = {0};
    open_one(&o, TOO_LONG_NS);
    looks = 100;
    CHECK_OK(pp_transport_allgather_on(o.tp, in, sizeof(in), out));
    CHECK_INT_EQ(looks, 0);
    assert_memory_equal(in, out, sizeof(in));
    close_one(&o);
    CHECK_INT_EQ(held, 0);
}

TEST(memory_is_freed_after_an_abort_when_the_device_is_done)
{
    struct one o;
    char in[3] = {1, 2, 3}, out[3];
    open_one(&o, TOO_LONG_NS);
    pp_transport_abort(o.tp);
    looks = 100;
    CHECK_FAILS(pp_transport_allgather_on(o.tp, in, sizeof(in), out), PP_ELOST,
                "another rank failed");
    CHECK_INT_EQ(looks, 0); /* no copy is under way any more */
    looks = 100;
    close_one(&o);
    CHECK_INT_EQ(looks, 0);
    CHECK_INT_EQ(held, 0);
}

TEST(a_device_that_does_not_answer_is_given_up)
{
    struct one o;
    char in[3] = {1, 2, 3}, out[3] = {0};
    open_one(&o, LIMIT_NS);
    looks = -1;
    uint64_t start = pp_clock_ns();
    CHECK_FAILS(pp_transport_allgather_on(o.tp, in, sizeof(in), out), PP_ELOST,
                "a late device has not finished");
    close_one(&o); /* leaves what the device may still be copying to */
    assert_true(pp_clock_ns() - start < TOO_LONG_NS);
    assert_int_equal(out[0], 0);
    CHECK_INT_EQ(held, 2);
    looks = 0;
}
