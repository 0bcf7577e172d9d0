/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template for a backend. Copy this file to NAME.c, name its table backend_NAME, add
 * PP_BACKEND(NAME) to backends.def and the file to meson.build. The template itself is in no table,
 * but is compiled and tested (tests/unit/test_dev_promises.c). It computes on the processor and has
 * one kernel of its own. struct pp_backend_ops says of each hook what it must do.
 *
 *   hook                              called                    by             required
 *   probe                             often, before open        any thread     yes
 *   is_here, devices, reaches,        before open               any thread     with devices
 *   free_bytes, own_bytes, versions
 *   open, close                       first and last            the rank's     if it has state
 *   alloc, free, to_device, to_host,  at set-up, at the ends    the rank's     with own_memory
 *   zero, copy                        of steps
 *   synchronize                       before the host reads     the rank's     with caps.async
 *   host_alloc ... graph_destroy      in every step             the rank's     with caps.async
 *   range_push, range_pop             around ops, if profiled   the rank's     no
 *   value_bytes, sums_in_order,       before open and after,    any thread     no
 *   packed_floats,                    pure functions
 *   conv_packed_floats,
 *   conv_scratch_floats
 *   prepare_linear, prepare_conv      before a new shape        the rank's     no
 *   pack_weights, conv_pack           after each update         the rank's     with packed floats
 *   collect, largest                  in a step                 the rank's     no
 *   kernels of kernels.def            in a step                 the rank's     with own_memory
 *
 * A hook that is NULL does nothing, or does what the plain backend does in host memory.
 */
#include "backend.h"

#include "ppcli/base/base.h"

/* The state of a rank. */
struct skeleton {
    uint64_t sums; /* calls so far */
};

/* Returns 0 if the backend can run here, and describes it in `why`; else an error, with the reason
 * in `why`. Required. It must not record a failure with pp_fail(). */
static int probe(char *why, size_t bytes)
{
    snprintf(why, bytes, "one loop of its own");
    return 0;
}

/* Sets be->impl, the capabilities and the description, which train prints. */
static int open_skeleton(struct pp_backend *be, int threads)
{
    struct skeleton *own;
    PP_ALLOC(own, 1);
    be->impl = own;
    be->caps.thread_safe = true;
    snprintf(be->description, sizeof(be->description), "skeleton: one loop, the others plain");
    return 0;
}

/* Frees what open_skeleton() made, after the rank's last call. */
static void close_skeleton(struct pp_backend *be)
{
    const struct skeleton *own = be->impl;
    pp_log_debug("skeleton: %llu sums", (unsigned long long)own->sums);
    pp_free(be->impl);
}

/* Computes a sum of two arrays, a kernel of kernels.def. A kernel must give the same bits however a
 * step cuts its samples; the plain version (src/dev/plain) shows what to compute, and
 * tests/checkops compares every backend with it. */
static int add_arrays(struct pp_backend *be, const struct pp_sum *a)
{
    struct skeleton *own = be->impl;
    own->sums++;
    for (size_t i = 0; i < a->n; i++) {
        float y = a->a[i] + a->b[i];
        a->y[i] = a->relu && y < 0 ? 0 : y; /* a NaN stays */
    }
    return 0;
}

extern const struct pp_backend_ops backend_skeleton; /* PP_BACKEND declares the others */
const struct pp_backend_ops backend_skeleton = {
    .name = "skeleton",                 /* of run.backend */
    .help = "a template for a backend", /* one line for ppcli.ini(5) */
    .probe = probe,
    .open = open_skeleton,
    .close = close_skeleton,
    .sum = add_arrays,
};
