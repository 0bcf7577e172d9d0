/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of ops on a device share: whether there is one, arrays there, how near is near. */
#ifndef PPCLI_TESTS_GPU_GPU_H
#define PPCLI_TESTS_GPU_GPU_H

#include <stdio.h>

#include "../unit/dev_inputs.h"

/* A backend as a rank has it. */
static inline struct pp_backend *open_gpu(enum pp_precision precision, bool exact)
{
    struct pp_backend_choice choice = {.threads = 1, .precision = precision, .exact = exact};
    struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_resolve("cuda", &choice.ops));
    CHECK_OK(pp_backend_open_choice(&choice, &be));
    return be;
}

/* 0 when a device is here; else 77 and the reason on standard output, for main to return. */
static inline int no_gpu(void)
{
    const struct pp_backend_ops *ops;
    if (pp_backend_resolve("cuda", &ops) == 0)
        return 0;
    printf("1..0 # SKIP %s\n", pp_error_get()->text);
    return 77;
}

/* An array on the device, `off` elements behind where the block starts: off 1 is at no boundary. */
struct array {
    void *block;
    size_t bytes;
    float *at;
    size_t n;
    size_t element; /* bytes */
};

static inline struct array on_device(struct pp_backend *be, const float *host, size_t n, int off)
{
    struct array a = {.n = n, .bytes = (n + (size_t)off) * sizeof(float), .element = sizeof(float)};
    CHECK_OK(pp_backend_alloc(be, a.bytes, &a.block));
    a.at = (float *)a.block + off;
    if (host && n > 0)
        CHECK_OK(pp_backend_to_device(be, a.at, host, n * sizeof(float)));
    return a;
}

/* As values of a device, of `element` bytes; where they are bf16, the host's are rounded too. */
static inline void pack_values(void *out, float *host, size_t n, size_t element)
{
    uint16_t *half = out;
    if (element == sizeof(*host))
        memcpy(out, host, n * element);
    for (size_t i = 0; i < n && element < sizeof(*host); i++) {
        uint32_t bits;
        memcpy(&bits, &host[i], sizeof(bits));
        if (!isnan(host[i]))
            bits += 0x7fff + (bits >> 16 & 1);
        half[i] = (uint16_t)(bits >> 16);
        bits = (uint32_t)half[i] << 16;
        memcpy(&host[i], &bits, sizeof(bits));
    }
}

static inline void send_values(struct pp_backend *be, struct array *a, float *host)
{
    PP_OWN_MEMORY void *packed = pp_alloc(a->n + 1, a->element);
    assert_non_null(packed);
    pack_values(packed, host, a->n, a->element);
    if (a->n > 0)
        CHECK_OK(pp_backend_to_device(be, a->at, packed, a->n * a->element));
}

static inline struct array values_on_device(struct pp_backend *be, float *host, size_t n, int off)
{
    struct array a = on_device(be, NULL, n, off);
    a.element = pp_backend_value_bytes(&be->choice);
    a.at = pp_value_at(be, a.block, (size_t)off);
    send_values(be, &a, host);
    return a;
}

/* Full of NaN, which shows what was never written. */
static inline struct array unset(struct pp_backend *be, size_t n, int off)
{
    PP_OWN_MEMORY float *host = nans(n);
    struct array a = on_device(be, host, n, off);
    return a;
}

static inline struct array unset_values(struct pp_backend *be, size_t n, int off)
{
    PP_OWN_MEMORY float *host = nans(n);
    struct array a = values_on_device(be, host, n, off);
    return a;
}

static inline void drop(struct pp_backend *be, struct array *a)
{
    pp_backend_free(be, a->block, a->bytes);
    *a = (struct array){0};
}

/* The caller frees it. */
static inline float *from_device(struct pp_backend *be, const struct array *a)
{
    float *host = pp_alloc(a->n, sizeof(*host));
    assert_non_null(host);
    if (a->n > 0 && a->element == sizeof(*host))
        CHECK_OK(pp_backend_to_host(be, host, a->at, a->n * sizeof(*host)));
    else if (a->n > 0)
        CHECK_OK(pp_backend_values_to_host(be, host, a->at, a->n));
    return host;
}

/* |got - want| is within `part` of the largest of |scale[n]| everywhere; NaN only against NaN. */
static inline void check_near_of(struct pp_backend *be, const struct array *got, const float *want,
                                 double part, const float *scale, const char *what)
{
    PP_OWN_MEMORY float *host = from_device(be, got);
    double most = 0;
    for (size_t i = 0; i < got->n; i++)
        most = fmax(most, fabs((double)scale[i])); /* fmax leaves NaN out */
    for (size_t i = 0; i < got->n; i++) {
        double error = fabs((double)host[i] - (double)want[i]);
        if (isnan(want[i]) ? !isnan(host[i]) : !(error <= part * most)) {
            fail_msg("%s[%zu] is %.9g, expected %.9g within %.3g", what, i, (double)host[i],
                     (double)want[i], part * most);
        }
    }
}

static inline void check_near(struct pp_backend *be, const struct array *got, const float *want,
                              double part, const char *what)
{
    check_near_of(be, got, want, part, want, what);
}

static inline void check_same_bits(struct pp_backend *be, const struct array *a,
                                   const struct array *b, const char *what)
{
    PP_OWN_MEMORY float *x = from_device(be, a), *y = from_device(be, b);
    CHECK_INT_EQ(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        if (memcmp(&x[i], &y[i], sizeof(x[i])) != 0)
            fail_msg("%s[%zu] is %.9g here and %.9g there", what, i, (double)x[i], (double)y[i]);
}

/* What each precision promises against sums in double. */
static const struct precision {
    enum pp_precision precision;
    const char *name;
    double part;
} precisions[] = {{PP_PRECISION_F32, "f32", 1e-5},
                  {PP_PRECISION_TF32, "tf32", 2e-3},
                  {PP_PRECISION_BF16, "bf16", 2e-2}};

#endif
