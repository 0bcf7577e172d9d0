/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel of ppcli/kernels.h on a device against the plain one: its struct twice, `here` with
 * arrays of the host and `there` with copies of them; afterwards all arrays must be near each
 * other, those that were only read among them.
 */
#ifndef PPCLI_TESTS_GPU_COPIES_H
#define PPCLI_TESTS_GPU_COPIES_H

#include "gpu.h"

#define TIGHT 1e-5 /* f32 against double, of the largest element */

static struct pp_backend *be, *plain;

struct copies {
    int n;
    struct {
        const char *name;
        float *host;
        struct array there;
    } of[16];
};

/* n values from `values`, or noise where that is NULL, for both structs' field. */
static inline void give(struct copies *c, const char *name, void *here, void *there, size_t n,
                        const float *values)
{
    float *host = noise(name, n);
    if (values)
        memcpy(host, values, n * sizeof(*host));
    assert_in_range(c->n, 0, COUNT(c->of) - 1);
    c->of[c->n].name = name;
    c->of[c->n].host = host;
    c->of[c->n].there = on_device(be, host, n, 0);
    memcpy(here, &host, sizeof(host));
    memcpy(there, &c->of[c->n++].there.at, sizeof(float *));
}

static inline void check(struct copies *c, const char *kernel)
{
    for (int i = 0; i < c->n; i++) {
        char what[96];
        snprintf(what, sizeof(what), "%s: %s", kernel, c->of[i].name);
        check_near(be, &c->of[i].there, c->of[i].host, TIGHT, what);
        drop(be, &c->of[i].there);
        pp_free(c->of[i].host);
    }
    c->n = 0;
}

/* A struct twice: START, then ARRAYs, then RUN. */
#define START(type, ...)                                                                           \
    struct copies c = {0};                                                                         \
    struct type here = {__VA_ARGS__}, there = here
#define VALUES(field, n, values)                                                                   \
    give(&c, #field, (void *)&here.field, (void *)&there.field, n, values)
#define ARRAY(field, n) VALUES(field, n, NULL)
#define RUN(kernel)                                                                                \
    do {                                                                                           \
        CHECK_OK(pp_backend_##kernel(plain, &here));                                               \
        CHECK_OK(pp_backend_##kernel(be, &there));                                                 \
        check(&c, #kernel);                                                                        \
    } while (0)

/* main's result: what the tests of this file give, or why they cannot run. */
#define RUN_ON_DEVICE(tests)                                                                       \
    do {                                                                                           \
        int failed = no_gpu();                                                                     \
        if (failed)                                                                                \
            return failed;                                                                         \
        be = open_gpu(PP_PRECISION_F32, true);                                                     \
        plain = open_backend("reference");                                                         \
        failed = cmocka_run_group_tests(tests, NULL, NULL);                                        \
        pp_backend_close(&be);                                                                     \
        pp_backend_close(&plain);                                                                  \
        return failed;                                                                             \
    } while (0)

#endif
