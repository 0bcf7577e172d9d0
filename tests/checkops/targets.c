/* SPDX-License-Identifier: Apache-2.0 */
/* Every way to compute here: the loops and products of each instruction set, threads, a CBLAS, and a
 * device in its three precisions. */
#include "checkops.h"

#include <stdio.h>
#include <string.h>

#include "../../src/dev/cpu/cpu_impl.h"
#include "ppcli/base/base.h"

extern const struct pp_backend_ops backend_cpu, backend_cuda;

static bool cblas_loads(void)
{
    char text[256];
    pp_blas_describe(text, sizeof(text));
    return strncmp(text, "none", 4) != 0;
}

/* The backend of the CPU with the loops of one instruction set, and products to match. */
static int open_set(const struct cpu_kernels *k, const struct cpu_gemm *gemm, struct target *t)
{
    const struct pp_backend_choice choice = {
        .ops = &backend_cpu, .threads = 1, .gemm = gemm ? PP_GEMM_FMA : PP_GEMM_CBLAS};
    PP_TRY(pp_backend_open_choice(&choice, &t->be));
    struct cpu *cpu = t->be->impl;
    cpu->k = k;
    cpu->gemm = gemm ? gemm : cpu->gemm;
    snprintf(t->name, sizeof(t->name), "cpu %s%s", k->name, gemm ? "" : " cblas");
    t->is_own = true;
    t->is_fused = gemm != NULL;
    return 0;
}

static int open_threads(int threads, struct target *t)
{
    const struct pp_backend_choice choice = {.ops = &backend_cpu, .threads = threads};
    PP_TRY(pp_backend_open_choice(&choice, &t->be));
    snprintf(t->name, sizeof(t->name), "cpu %d threads", threads);
    t->is_own = true;
    t->is_fused = true;
    return 0;
}

/* What each way to compute on a device promises against sums in double. */
static const struct {
    enum pp_precision precision;
    enum pp_conv_by conv;
    bool exact;
    const char *name;
    double part;
} devices[] = {{PP_PRECISION_F32, PP_CONV_OWN, true, "f32", 1e-5},
               {PP_PRECISION_TF32, PP_CONV_OWN, true, "tf32", 2e-3},
               {PP_PRECISION_BF16, PP_CONV_OWN, true, "bf16", 2e-2},
               {PP_PRECISION_F32, PP_CONV_OWN, false, "inexact f32", 1e-5},
               {PP_PRECISION_F32, PP_CONV_CUDNN, true, "cudnn f32", 1e-5}};

static int open_device(int i, struct target *t)
{
    const struct pp_backend_choice choice = {.ops = &backend_cuda,
                                             .threads = 1,
                                             .precision = devices[i].precision,
                                             .conv = devices[i].conv,
                                             .exact = devices[i].exact};
    PP_TRY(pp_backend_open_choice(&choice, &t->be));
    snprintf(t->name, sizeof(t->name), "cuda %s", devices[i].name);
    t->part = devices[i].part;
    return 0;
}

/* Closes it again where its name is not asked for. */
static int add_target(int rc, struct target *t, const char *only)
{
    if (rc < 0) {
        fprintf(stderr, "checkops: %s\n", pp_error_get()->text);
        return 0;
    }
    if (strstr(t->name, only))
        return 1;
    pp_backend_close(&t->be);
    return 0;
}

int targets_open(struct target *t, int max, const char *only)
{
    char why[256];
    int n = 0;
    memset(t, 0, (size_t)max * sizeof(*t));
    for (int i = 0; cpu_kernels_runnable(i); i++)
        if (i == 0 ||
            cpu_kernels_runnable(i) != cpu_kernels_runnable(i - 1)) /* or only bf16's differ */
            n += add_target(open_set(cpu_kernels_runnable(i), cpu_gemm_own(i), &t[n]), &t[n], only);
    if (cblas_loads())
        n += add_target(open_set(cpu_kernels_runnable(0), NULL, &t[n]), &t[n], only);
    else
        printf("# no CBLAS here, so its products are not checked\n");
    n += add_target(open_threads(3, &t[n]), &t[n], only);
    for (int i = 0; i < (int)(sizeof(devices) / sizeof(devices[0])) &&
                    backend_cuda.probe(why, sizeof(why)) == 0;
         i++)
        n += add_target(open_device(i, &t[n]), &t[n], only);
    pp_assert(n < max);
    return n;
}

void targets_close(struct target *t, int n)
{
    while (n-- > 0) /* the first gets the control word of the thread that the last changed */
        pp_backend_close(&t[n].be);
}

static const struct cpu_gemm *gemm_of(const struct target *t)
{
    return t->be->ops == &backend_cpu ? cpu_of(t->be)->gemm : NULL;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t target_scratch(const struct target *t, const struct sample *s)
{
    size_t members = (size_t)pp_backend_members(&t->be->choice);
    if (s->scratch_floats > 0)
        return members * s->scratch_floats;
    if (s->scratch_at == 0)
        return 0;
    size_t all = pp_backend_conv_scratch_floats(&t->be->choice, &s->image.g, s->B);
    const struct cpu_gemm *gemm = gemm_of(t);
    return gemm ? larger(all, members * gemm->conv->scratch_floats(&s->image.g, s->B)) : all;
}

size_t target_packed(const struct target *t, const struct sample *s)
{
    const struct cpu_gemm *gemm = gemm_of(t);
    if (s->packed_at == 0)
        return 0;
    if (s->O > 0) {
        size_t all = pp_backend_packed_floats(&t->be->choice, s->O, s->I);
        return gemm && all > 0 ? larger(all, gemm->packed_floats(s->O, s->I)) : all;
    }
    size_t all = pp_backend_conv_packed_floats(&t->be->choice, &s->image.g);
    return gemm && all > 0 ? larger(all, gemm->conv->packed_floats(&s->image.g)) : all;
}
