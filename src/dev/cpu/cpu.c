/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU backend: the three matrix products from own kernels or CBLAS (gemm.h), our own loops for
 * the rest. Nothing here allocates after open(), and a call is done when it returns.
 */
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "ppcli/mem.h"
#include "blas.h"
#include "gemm.h"
#include "kernels.h"

struct cpu {
    const struct cpu_kernels *k;
    const struct cpu_gemm *gemm;
    unsigned control; /* the thread's floating-point control word before open() */
};

static const struct cpu_kernels *kernels(const struct pp_backend *be)
{
    return ((const struct cpu *)be->impl)->k;
}

static const struct cpu_gemm *gemm(const struct pp_backend *be)
{
    return ((const struct cpu *)be->impl)->gemm;
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

/* What is compiled for each instruction set, widest first. A processor with AVX2 but without fused
 * multiply-add runs the base version. */
static const struct {
    const struct cpu_kernels *kernels;
    const struct cpu_gemm *gemm;
} sets[] = {
#ifdef PPCLI_KERNELS_X86
    {&cpu_kernels_avx512, &cpu_gemm_avx512},
    {&cpu_kernels_avx2, &cpu_gemm_avx2},
#endif
    {&cpu_kernels_base, NULL},
};

#define N_SETS (int)(sizeof(sets) / sizeof(sets[0]))

/* The i-th of those that run here; N_SETS - 1 always does. */
static int runnable(int i)
{
#ifdef PPCLI_KERNELS_X86
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return i + (avx512 ? 0 : avx2 ? 1 : 2);
#else
    return i;
#endif
}

const struct cpu_kernels *cpu_kernels_runnable(int i)
{
    return runnable(i) < N_SETS ? sets[runnable(i)].kernels : NULL;
}

const struct cpu_gemm *cpu_gemm_fma(int i)
{
    return runnable(i) < N_SETS ? sets[runnable(i)].gemm : NULL;
}

/* By rule, never by timing: the same machine gives the same bits. NULL: fma was asked for and does
 * not run. */
static const struct cpu_gemm *choose_gemm(const struct pp_backend_choice *choice)
{
    const struct cpu_gemm *fma = choice->threads == 1 ? cpu_gemm_fma(0) : NULL;
    switch (choice->gemm) {
    case PP_GEMM_AUTO:
        return fma ? fma : &cpu_gemm_cblas;
    case PP_GEMM_FMA:
        return fma;
    case PP_GEMM_CBLAS:
        break;
    }
    return &cpu_gemm_cblas;
}

static int no_fma(const struct pp_backend_choice *choice)
{
    if (!cpu_gemm_fma(0)) {
        return pp_fail(PP_ERESOURCE, "run.gemm = fma: this processor has no AVX2 with fused "
                                     "multiply-add, or this build no kernels for it; use cblas");
    }
    return pp_fail(PP_ECONFIG,
                   "run.gemm = fma computes with one thread, but run.threads is %d: use more "
                   "stages, or run.gemm = cblas",
                   choice->threads);
}

/* Without the library where own products run: most commands do not need it. */
static int probe(char *why, size_t bytes)
{
    if (cpu_gemm_fma(0)) {
        snprintf(why, bytes, "own products (%s)", cpu_gemm_fma(0)->name);
        return 0;
    }
    int rc = blas_enter(1);
    if (rc < 0) {
        snprintf(why, bytes, "%s", pp_error_get()->text);
        pp_error_clear();
        return rc;
    }
    blas_leave(1);
    pp_blas_describe(why, bytes);
    return 0;
}

static void versions(void (*visit)(void *ctx, const char *what, const char *text), void *ctx)
{
    char text[256];
    pp_blas_describe(text, sizeof(text));
    visit(ctx, "CBLAS", text);
}

static int cpu_open(struct pp_backend *be, int threads)
{
    const struct cpu_gemm *g = choose_gemm(&be->choice);
    if (!g)
        return no_fma(&be->choice);
    struct cpu *cpu;
    PP_ALLOC(cpu, 1);
    PP_TRY_UNDO(g == &cpu_gemm_cblas ? blas_enter(threads) : 0, pp_free(cpu));
    cpu->k = cpu_kernels_runnable(0);
    cpu->gemm = g;
    cpu->control = denormals_off();
    be->impl = cpu;
    be->caps.host_visible = true;
    char name[96];
    if (g == &cpu_gemm_cblas) {
        be->caps.thread_safe = blas_set_threads(threads);
        pp_blas_describe(name, sizeof(name));
    } else {
        be->caps.thread_safe = true;
        snprintf(name, sizeof(name), "own products (%s)", g->name);
    }
    snprintf(be->description, sizeof(be->description), "cpu: %s, %d thread%s", name, threads,
             threads == 1 ? "" : "s");
    return 0;
}

static void cpu_close(struct pp_backend *be)
{
    PP_OWN_MEMORY struct cpu *cpu = be->impl;
    denormals_restore(cpu->control);
    if (cpu->gemm == &cpu_gemm_cblas)
        blas_leave(be->choice.threads);
}

static size_t packed_floats(const struct pp_backend_choice *choice, int O, int I)
{
    const struct cpu_gemm *g = choose_gemm(choice);
    return g && g->packed_floats ? g->packed_floats(O, I) : 0;
}

static bool sums_in_order(const struct pp_backend_choice *choice)
{
    const struct cpu_gemm *g = choose_gemm(choice);
    return g && g != &cpu_gemm_cblas;
}

static int pack_weights(struct pp_backend *be, int O, int I, const float *W, float *packed)
{
    gemm(be)->pack(O, I, W, packed);
    return 0;
}

/* y[B][O] = act(x[B][I] * W[O][I]^T + b[O]) */
static int linear_forward(struct pp_backend *be, int B, int I, int O, const float *x,
                          const float *W, const float *packed, const float *b,
                          enum pp_activation act, float *z, float *y)
{
    if (B == 0)
        return 0;
    /* The others are second passes over y: calls of exp would spill the accumulators. */
    bool fuse = b && gemm(be)->fuses && !z && (act == PP_ACT_NONE || act == PP_ACT_RELU);
    float *product = !b && z ? z : y;
    gemm(be)->forward(B, I, O, x, W, packed, fuse ? b : NULL, act == PP_ACT_RELU, product);
    if (!b && (z || act != PP_ACT_NONE)) {
        struct pp_activate a = {(size_t)B * (size_t)O, act, product, y};
        kernels(be)->activate_forward(&a);
    } else if (b && !fuse) {
        kernels(be)->bias_activation(B, O, b, act, z, y);
    }
    return 0;
}

/* dx[B][I] = dz[B][O] * W[O][I] */
static int linear_backward_input(struct pp_backend *be, int B, int I, int O, const float *dz,
                                 const float *W, const float *packed, float *dx)
{
    if (B == 0)
        return 0;
    gemm(be)->backward_input(B, I, O, dz, W, dx);
    return 0;
}

/* dW[O][I] = beta*dW + sum of dz[B][O]^T * x[B][I]; db[O] = beta*db + column sums of dz */
static int linear_backward_weight(struct pp_backend *be, int n, const struct pp_weight_part *parts,
                                  int I, int O, float beta, float *dW, float *db)
{
    int rows = 0;
    for (int k = 0; k < n; k++) {
        rows += parts[k].B > 0;
        if (db)
            kernels(be)->bias_gradient(parts[k].B, O, parts[k].dz, k == 0 ? beta : 1.0f, db);
    }
    if (rows > 0)
        gemm(be)->backward_weight(n, parts, I, O, beta, dW);
    else if (beta == 0)
        memset(dW, 0, (size_t)O * (size_t)I * sizeof(*dW));
    return 0;
}

static size_t conv_packed_floats(const struct pp_backend_choice *choice, const struct pp_conv *g)
{
    const struct cpu_gemm *p = choose_gemm(choice);
    return p && p->conv->packed_floats ? p->conv->packed_floats(g) : 0;
}

static int conv_pack(struct pp_backend *be, const struct pp_conv *g, const float *W, float *packed)
{
    gemm(be)->conv->pack(g, W, packed);
    return 0;
}

static size_t conv_scratch_floats(const struct pp_backend_choice *choice, const struct pp_conv *g,
                                  int B)
{
    const struct cpu_gemm *p = choose_gemm(choice);
    return p ? p->conv->scratch_floats(g, B) : 0;
}

static int conv_forward(struct pp_backend *be, const struct pp_conv_forward *a)
{
    gemm(be)->conv->forward(a);
    return 0;
}

static int conv_backward_input(struct pp_backend *be, const struct pp_conv_backward_input *a)
{
    gemm(be)->conv->backward_input(a);
    return 0;
}

static int conv_backward_weight(struct pp_backend *be, const struct pp_conv_backward_weight *a)
{
    const struct pp_conv *g = a->g;
    for (int k = 0; a->db && k < a->n; k++) {
        kernels(be)->bias_gradient(a->parts[k].B * g->OH * g->OW, g->O, a->parts[k].dz,
                                   k == 0 ? a->beta : 1.0f, a->db);
    }
    gemm(be)->conv->backward_weight(a);
    return 0;
}

static int sum_squares(struct pp_backend *be, size_t n, const float *g, double *out)
{
    *out = kernels(be)->sum_squares(n, g);
    return 0;
}

static int largest(struct pp_backend *be, size_t n, const float *x, float *io)
{
    *io = kernels(be)->largest(n, x, *io);
    return 0;
}

static int optimizer_step(struct pp_backend *be, size_t n, const struct pp_optimizer_args *a,
                          bool decay, const float *g, float *m, float *v, float *p)
{
    if (!a->skip)
        kernels(be)->optimizer_step(n, a, decay, g, m, v, p);
    return 0;
}

#define PP_KERNEL(name, type)
#define PP_LOOP(name, type)                                                                        \
    static int name(struct pp_backend *be, const struct type *a)                                   \
    {                                                                                              \
        kernels(be)->name(a);                                                                      \
        return 0;                                                                                  \
    }
#include "ppcli/kernels.def"

const struct pp_backend_ops backend_cpu = {
    .name = "cpu",
    .help = "this machine's cores",
    .probe = probe,
    .versions = versions,
    .open = cpu_open,
    .close = cpu_close,
    .sums_in_order = sums_in_order,
    .packed_floats = packed_floats,
    .pack_weights = pack_weights,
    .linear_forward = linear_forward,
    .linear_backward_input = linear_backward_input,
    .linear_backward_weight = linear_backward_weight,
    .sum_squares = sum_squares,
    .largest = largest,
    .optimizer_step = optimizer_step,
    .conv_packed_floats = conv_packed_floats,
    .conv_pack = conv_pack,
    .conv_scratch_floats = conv_scratch_floats,
    .conv_forward = conv_forward,
    .conv_backward_input = conv_backward_input,
    .conv_backward_weight = conv_backward_weight,
#define PP_KERNEL(name, type)
#define PP_LOOP(name, type) .name = name,
#include "ppcli/kernels.def"
};
