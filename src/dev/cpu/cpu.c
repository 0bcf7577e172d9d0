/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU backend: CBLAS for the three matrix products, our own loops for the rest. Nothing here
 * allocates after open(), and a call is done when it returns.
 */
#include <stdio.h>
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <cblas.h>
#undef I /* complex.h comes along with some cblas.h; here I is the number of inputs */

#include "ppcli/backend.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "blas.h"
#include "kernels.h"

struct cpu {
    const struct cpu_kernels *k;
    unsigned control; /* the thread's floating-point control word before open() */
};

static const struct cpu_kernels *kernels(const struct pp_backend *be)
{
    return ((const struct cpu *)be->impl)->k;
}

/* Denormals in the tails of softmax and of decayed gradients cost a hundred cycles each. This is
 * the state of the calling thread; other architectures are left alone. */
static unsigned denormals_off(void)
{
#if defined(__SSE__)
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* flush to zero, denormals are zero */
    return before;
#else
    return 0;
#endif
}

static void denormals_restore(unsigned before)
{
#if defined(__SSE__)
    _mm_setcsr((_mm_getcsr() & ~0x8040u) | (before & 0x8040u));
#endif
}

const struct cpu_kernels *cpu_kernels_runnable(int i)
{
    const struct cpu_kernels *all[] = {
#ifdef PPCLI_KERNELS_X86
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
            ? &cpu_kernels_avx512
            : NULL,
        __builtin_cpu_supports("avx2") ? &cpu_kernels_avx2 : NULL,
#endif
        &cpu_kernels_base,
    };
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
        if (all[k] && i-- == 0) {
            return all[k];
        }
    }
    return NULL;
}

static int probe(char *why, size_t bytes)
{
    pp_blas_describe(why, bytes);
    return 0;
}

static int cpu_open(struct pp_backend *be, int threads)
{
    struct cpu *cpu = pp_alloc(1, sizeof(*cpu));
    if (!cpu) {
        return PP_ERESOURCE;
    }
    cpu->k = cpu_kernels_runnable(0);
    cpu->control = denormals_off();
    be->impl = cpu;
    be->caps.host_visible = true;
    be->caps.thread_safe = blas_set_threads(threads);
    char blas[96];
    pp_blas_describe(blas, sizeof(blas));
    snprintf(be->description, sizeof(be->description), "cpu: %s, %d thread%s", blas, threads,
             threads == 1 ? "" : "s");
    return 0;
}

static void cpu_close(struct pp_backend *be)
{
    struct cpu *cpu = be->impl;
    denormals_restore(cpu->control);
    pp_free(cpu);
}

static int gather_u8(struct pp_backend *be, int B, int F, const uint8_t *data,
                     const uint32_t *index, float scale, float *x)
{
    kernels(be)->gather_u8(B, F, data, index, scale, x);
    return 0;
}

/* y[B][O] = act(x[B][I] * W[O][I]^T + b[O]) */
static int linear_forward(struct pp_backend *be, int B, int I, int O, const float *x,
                          const float *W, const float *b, enum pp_activation act, float *z,
                          float *y)
{
    if (B == 0) {
        return 0;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, B, O, I, 1.0f, x, I, W, I, 0.0f, y, O);
    kernels(be)->bias_activation(B, O, b, act, z, y);
    return 0;
}

static int activation_backward(struct pp_backend *be, size_t n, enum pp_activation act,
                               const float *y, const float *z, float *dy)
{
    kernels(be)->activation_backward(n, act, y, z, dy);
    return 0;
}

/* dx[B][I] = dz[B][O] * W[O][I] */
static int linear_backward_input(struct pp_backend *be, int B, int I, int O, const float *dz,
                                 const float *W, float *dx)
{
    if (B == 0) {
        return 0;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, B, I, O, 1.0f, dz, O, W, I, 0.0f, dx, I);
    return 0;
}

/* dW[O][I] = beta*dW + dz[B][O]^T * x[B][I]; db[O] = beta*db + column sums of dz */
static int linear_backward_weight(struct pp_backend *be, int B, int I, int O, const float *dz,
                                  const float *x, float beta, float *dW, float *db)
{
    if (B > 0) {
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, O, I, B, 1.0f, dz, O, x, I, beta, dW,
                    I);
    } else if (beta == 0) {
        memset(dW, 0, (size_t)O * (size_t)I * sizeof(*dW));
    }
    kernels(be)->bias_gradient(B, O, dz, beta, db);
    return 0;
}

static int softmax_cross_entropy(struct pp_backend *be, int B, int C, const float *logits,
                                 const uint8_t *labels, float grad_scale, struct pp_loss_sums *sums,
                                 float *dlogits)
{
    kernels(be)->softmax_cross_entropy(B, C, logits, labels, grad_scale, sums, dlogits);
    return 0;
}

static int add(struct pp_backend *be, size_t n, const float *a, float *g)
{
    kernels(be)->add(n, a, g);
    return 0;
}

static int sum_squares(struct pp_backend *be, size_t n, const float *g, double *out)
{
    *out = kernels(be)->sum_squares(n, g);
    return 0;
}

static int optimizer_step(struct pp_backend *be, size_t n, const struct pp_optimizer_args *a,
                          const float *g, float *m, float *v, float *p)
{
    kernels(be)->optimizer_step(n, a, g, m, v, p);
    return 0;
}

const struct pp_backend_ops backend_cpu = {
    .name = "cpu",
    .help = "this machine's cores, through CBLAS",
    .probe = probe,
    .open = cpu_open,
    .close = cpu_close,
    .gather_u8 = gather_u8,
    .linear_forward = linear_forward,
    .activation_backward = activation_backward,
    .linear_backward_input = linear_backward_input,
    .linear_backward_weight = linear_backward_weight,
    .softmax_cross_entropy = softmax_cross_entropy,
    .add = add,
    .sum_squares = sum_squares,
    .optimizer_step = optimizer_step,
};
