/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and shapes that the tests of the backends share. */
#ifndef PPCLI_TESTS_DEV_INPUTS_H
#define PPCLI_TESTS_DEV_INPUTS_H

#include <math.h>
#include <string.h>

#include "ppcli/conf/config.h"
#include "../../src/dev/backend.h"
#include "ppcli/base/base.h"
#include "test.h"

static inline struct pp_backend *open_backend(const char *name)
{
    const struct pp_backend_ops *ops;
    struct pp_backend *be = NULL;
    CHECK_OK(pp_backend_resolve(name, &ops));
    CHECK_OK(pp_backend_open(ops, 1, &be));
    return be;
}

/* Whether run.gemm = cblas computes here; where it does not, tests of both look at the other one. */
static inline bool cblas_loads(void)
{
    char text[256];
    pp_blas_describe(text, sizeof(text));
    bool loads = strncmp(text, "none", 4) != 0;
    if (!loads)
        print_message("# without CBLAS, %s\n", text);
    return loads;
}

/* n values in [-1, 1), others for each name. */
static inline float *noise(const char *name, size_t n)
{
    float *p = pp_alloc(n, sizeof(*p));
    assert_non_null(p);
    pp_rng_uniform(1, pp_rng_stream(name, n), 0, -1, 1, n, p);
    return p;
}

static inline float *nans(size_t n)
{
    float *p = pp_alloc(n, sizeof(*p));
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = NAN;
    return p;
}

static const int shapes[][3] = {{1, 1, 1},      {3, 5, 7},  {1, 10, 123},
                                {17, 10, 123},  {8, 33, 1}, {32, 127, 128},
                                {32, 128, 784}, {5, 1, 64}, {64, 124, 125}};
static const enum pp_activation activations[] = {
    PP_ACT_NONE,
#define PP_ACTIVATION(NAME, ...) PP_ACT_##NAME,
#include "ppcli/conf/activations.def"
};

/* Of y and z what the activation's backward pass reads. */
static inline const float *saved_of(enum pp_activation act, const float *y, const float *z)
{
    return pp_activation_facts(act)->saves_z ? z : y;
}

/* The loss of B rows, one target each. */
static inline int cross_entropy(struct pp_backend *be, int B, int C, const float *logits,
                                const int32_t *targets, float grad_scale, float smoothing,
                                struct pp_loss_sums *sums, float *dlogits)
{
    return pp_backend_softmax_cross_entropy(
        be, &(struct pp_softmax_cross_entropy){B, 1, C, logits, targets, grad_scale, smoothing,
                                               sums, dlogits, NULL, 0, 0, NULL});
}

/* dy[n] becomes the gradient before the activation. */
static inline int back_in_place(struct pp_backend *be, size_t n, enum pp_activation act,
                                const float *saved, float *dy)
{
    return pp_backend_activate_backward(
        be, &(struct pp_activate_backward){.n = n, .act = act, .saved = saved, .dy = dy, .dx = dy});
}

#endif
