/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel of ppcli/kernels.h on a device against the plain one: its struct twice, `here` with
 * arrays of the host and `there` with copies of them; afterwards all arrays must be near each
 * other, those that were only read among them.
 */
#ifndef PPCLI_TESTS_GPU_COPIES_H
#define PPCLI_TESTS_GPU_COPIES_H

#include "gpu.h"

static struct pp_backend *be, *plain;
static double part; /* of the largest element: how near is near */

struct copies {
    int n;
    struct {
        const char *name;
        float *host;
        struct array there;
    } of[16];
};

/* What samples have, in the structs of ppcli/kernels.h. */
static inline bool is_value(const char *name)
{
    static const char *const all[] = {"x",  "y",        "dx",         "dy",     "dz",
                                      "q",  "k",        "v",          "dq",     "dk",
                                      "dv", "residual", "d_residual", "logits", "dlogits"};
    int i = 0;
    while (i < COUNT(all) && strcmp(all[i], name) != 0)
        i++;
    return i < COUNT(all);
}

/* n words from `values`, or noise where that is NULL, for both structs' field. */
static inline void give(struct copies *c, const char *name, void *here, void *there, size_t n,
                        const float *values)
{
    float *host = noise(name, n);
    if (values)
        memcpy(host, values, n * sizeof(*host));
    assert_in_range(c->n, 0, COUNT(c->of) - 1);
    c->of[c->n].name = name;
    c->of[c->n].host = host;
    c->of[c->n].there =
        !values && is_value(name) ? values_on_device(be, host, n, 0) : on_device(be, host, n, 0);
    memcpy(here, &host, sizeof(host));
    memcpy(there, &c->of[c->n++].there.at, sizeof(float *));
}

static inline void check(struct copies *c, const char *kernel)
{
    for (int i = 0; i < c->n; i++) {
        char what[96];
        snprintf(what, sizeof(what), "%s: %s", kernel, c->of[i].name);
        check_near(be, &c->of[i].there, c->of[i].host, part, what);
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

static inline int open_precision(void **state)
{
    const struct precision *p = *state;
    be = open_gpu(p->precision, true);
    part = p->part;
    return 0;
}

static inline int close_precision(void **state)
{
    pp_backend_close(&be);
    return 0;
}

/* What the tests of this file give in every precision, or why they cannot run. */
int main(void)
{
    static struct CMUnitTest all[COUNT(precisions) * TESTS_MAX];
    static char names[COUNT(all)][96];
    int failed = no_gpu();
    if (failed)
        return failed;
    for (int i = 0; i < COUNT(all); i++) {
        const struct precision *p = &precisions[i / TESTS_MAX];
        const struct CMUnitTest *test = &tests_joined[i % TESTS_MAX];
        if (!test->test_func)
            continue;
        snprintf(names[i], sizeof(names[i]), "%s: %s", p->name, test->name);
        all[i] = (struct CMUnitTest){.name = names[i],
                                     .test_func = test->test_func,
                                     .setup_func = open_precision,
                                     .teardown_func = close_precision,
                                     .initial_state = (void *)p};
    }
    plain = open_backend("reference");
    failed = cmocka_run_group_tests(all, NULL, NULL);
    pp_backend_close(&plain);
    return failed;
}

#endif
