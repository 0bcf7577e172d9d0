/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of the CPU backend, of every instruction set, against the plain versions. */
#ifndef PPCLI_TESTS_DEV_LOOPS_H
#define PPCLI_TESTS_DEV_LOOPS_H

#include "../../src/dev/compare.h"
#include "../../src/dev/cpu/kernels.h"
#include "dev_inputs.h"
#include "ppcli/sha256.h"

/* Where the arrays come from: `shift` floats behind an aligned start; outputs go into a digest. */
struct bench {
    struct pp_backend *be;
    size_t shift;
    float *blocks[32];
    int n;
    struct pp_sha256 digest;
};

/* Not inline: where it is, gcc 12 sees sizes below 0 that no caller has. */
__attribute__((noinline, unused)) static float *floats(struct bench *b, const char *name, size_t n)
{
    float *values = noise(name, n + 1), *block = nans(n + 64);
    float *p = (float *)(((uintptr_t)block + 63) / 64 * 64) + b->shift;
    memcpy(p, values, n * sizeof(*p));
    pp_free(values);
    b->blocks[b->n++] = block;
    return p;
}

static inline void done(struct bench *b)
{
    while (b->n > 0)
        pp_free(b->blocks[--b->n]);
}

static inline void result(struct bench *b, const void *p, size_t bytes)
{
    pp_sha256_update(&b->digest, p, bytes);
}

/* The loops of one instruction set as a backend. */
static const struct cpu_kernels *chosen;

#define PP_KERNEL(name, type)
#define PP_LOSS(name, type)
#define PP_LOOP(name, type, of_units, ...)                                                         \
    static int chosen_##name(struct pp_backend *be, const struct type *a)                          \
    {                                                                                              \
        const struct pp_piece all = {0, (size_t)(of_units), 0};                                    \
        chosen->name(a, &all);                                                                     \
        return 0;                                                                                  \
    }
#include "ppcli/kernels.def"

static int chosen_softmax_cross_entropy(struct pp_backend *be,
                                        const struct pp_softmax_cross_entropy *a)
{
    cpu_softmax_cross_entropy(chosen, NULL, a);
    return 0;
}

static const struct pp_backend_ops chosen_ops = {
    .name = "chosen",
#define PP_KERNEL(name, type)
#define PP_LOOP(name, type, ...) .name = chosen_##name,
#include "ppcli/kernels.def"
};

static int open_chosen(struct pp_backend *be, int threads)
{
    return compare_open_with(be, &chosen_ops, threads);
}

/* run() of each set agrees with the plain versions, and gives the bits that the others give, also of
 * arrays that lie elsewhere. */
static inline void check_loops(void (*run)(struct bench *b))
{
    const struct pp_backend_ops *ops;
    CHECK_OK(pp_backend_resolve("compare", &ops));
    struct pp_backend_ops compare = *ops;
    compare.open = open_chosen;
    unsigned char first[32], digest[32];
    for (int i = 0;; i++) {
        chosen = cpu_kernels_runnable(i);
        struct bench b = {.shift = chosen ? (size_t)(i * 3) : 0};
        if (chosen)
            CHECK_OK(pp_backend_open(&compare, 1, &b.be));
        else
            b.be = open_backend("cpu");
        pp_sha256_init(&b.digest);
        run(&b);
        pp_sha256_final(&b.digest, i == 0 ? first : digest);
        if (i > 0 && memcmp(first, digest, sizeof(first)))
            fail_msg("other bits with %s", chosen ? chosen->name : "cpu");
        pp_backend_close(&b.be);
        if (!chosen)
            break;
    }
}

#endif
