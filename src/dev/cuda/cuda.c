/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend: products by cuBLASLt, our own kernels for everything else, one stream for each
 * rank. A call enqueues and returns. Memory, plans and choices are made when a shape is first seen,
 * so that a step with known shapes neither allocates nor waits.
 */

#include "ppcli/base/base.h"
#include "../nvidia.h"
#include "plan.h"

#define WORKSPACE_BYTES ((size_t)32 << 20) /* cuBLAS's own default on Hopper */

/* Checks that the backend can run here: at least one device must be usable, and cuBLASLt must load.
 * Describes both, or the problem, in `why`. */
static int probe(char *why, size_t bytes)
{
    char problem[96], first[96] = "";
    int n, usable = 0;
    PP_TRY(cuda_count_devices(&n, why, bytes));
    for (int i = 0; i < n; i++) {
        bool works = cuda_check_device(i, problem, sizeof(problem)) == 0;
        usable += works;
        if (!works && !first[0])
            snprintf(first, sizeof(first), "%s", problem);
    }
    if (usable == 0) {
        snprintf(why, bytes, "%s; use run.backend = cpu", first);
        return PP_ERESOURCE;
    }
    const struct cuda_blas *blas = cuda_blas_load(why, bytes);
    if (!blas)
        return PP_ERESOURCE;
    char version[32];
    cuda_blas_version(blas, version, sizeof(version));
    snprintf(why, bytes, "%d device%s%s, cuBLASLt %s", usable, pp_plural(usable),
             usable < n ? " that can be used" : "", version);
    return 0;
}

static void cuda_close(struct pp_backend *be)
{
    struct cuda *c = cuda_of(be);
    if (c->stream)
        cudaStreamSynchronize(c->stream);
    cuda_plans_free(c);
    cuda_dnn_close(c);
    cuda_scratch_free(c);
    cudaFree(c->between);
    cudaFree(c->slices);
    cudaFree(c->workspace);
    if (c->handle)
        c->blas->Destroy(c->handle);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    if (c->shared)
        cuda_device_drop(c->shared);
    cudaGetLastError(); /* clears the errors that a failed device gave to these calls, which have
                           been reported */
    pp_free(c);
    be->impl = NULL;
}

static int check_device(const struct pp_backend_choice *choice)
{
    char why[256];
    int n;
    if (cuda_count_devices(&n, why, sizeof(why)) < 0)
        return pp_fail(PP_ERESOURCE, "backend cuda cannot run here: %s", why);
    if (choice->device < 0 || choice->device >= n) {
        return pp_fail(PP_ERESOURCE,
                       "cuda device %d: there are %d here, numbered from 0; see run.devices and "
                       "CUDA_VISIBLE_DEVICES",
                       choice->device, n);
    }
    if (cuda_check_device(choice->device, why, sizeof(why)) < 0) {
        return pp_fail(PP_ERESOURCE,
                       "cuda device %d cannot be used: %s; use another of run.devices, or "
                       "run.backend = cpu",
                       choice->device, why);
    }
    return 0;
}

static int take_memory(struct cuda *c)
{
    struct {
        void **to;
        size_t bytes;
    } wants[] = {{(void **)&c->between, CUDA_SCRATCH_BYTES}, {&c->workspace, c->workspace_bytes}};
    for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++) {
        cudaError_t e = wants[i].bytes ? cudaMalloc(wants[i].to, wants[i].bytes) : cudaSuccess;
        if (e != cudaSuccess)
            return cuda_no_memory(c->device, wants[i].bytes, e, __FILE__, __LINE__);
    }
    CUDA_TRY(c->device, cudaMemsetAsync(c->between, 0, CUDA_SCRATCH_BYTES, c->stream));
    return 0;
}

static int describe_backend(const struct cuda *c, struct pp_backend *be)
{
    static const char *const precisions[] = {
        [PP_PRECISION_F32] = "f32", [PP_PRECISION_TF32] = "tf32", [PP_PRECISION_BF16] = "bf16"};
    struct cudaDeviceProp properties;
    CUDA_TRY(c->device, cudaGetDeviceProperties(&properties, c->device));
    char blas[32], dnn[32] = "", pieces[48] = "";
    cuda_blas_version(c->blas, blas, sizeof(blas));
    if (c->dnn)
        cuda_dnn_probe(dnn, sizeof(dnn));
    if (c->partitions > 0)
        snprintf(pieces, sizeof(pieces), ", %d of %d SMs", c->processors, c->of_processors);
    snprintf(be->description, sizeof(be->description), "cuda:%d %.48s%s, cuBLASLt %s%s%s, %s",
             c->device, properties.name, pieces, blas, c->dnn ? ", cuDNN " : "", dnn,
             precisions[c->precision]);
    return 0;
}

static int set_up(struct cuda *c, struct pp_backend *be)
{
    char why[256];
    PP_TRY(check_device(&be->choice));
    c->blas = cuda_blas_load(why, sizeof(why));
    if (!c->blas)
        return pp_fail(PP_ERESOURCE, "backend cuda cannot run here: %s", why);
    PP_TRY(cuda_device_hold(c->device, &c->shared));
    c->of_processors = cuda_device_processors(c->shared);
    PP_TRY(cuda_device_stream(c->shared, c->partition, c->partitions, &c->stream, &c->processors));
    PP_TRY(take_memory(c));
    BLAS_TRY(c, Create(&c->handle));
    if (be->choice.conv == PP_CONV_CUDNN)
        PP_TRY(cuda_dnn_open(c));
    return describe_backend(c, be);
}

/* Returns the bytes of device memory that a rank needs for itself: 64 MiB for recorded graphs and
 * the library, the workspace of the products or slices of sums, and that of cuDNN. */
size_t cuda_own_bytes(const struct pp_backend_choice *choice)
{
    size_t slices = CUDA_SLICED_FLOATS * sizeof(float);
    return ((size_t)64 << 20) + (choice->exact ? slices : WORKSPACE_BYTES) +
           (choice->conv == PP_CONV_CUDNN ? (size_t)256 << 20 : 0);
}

size_t cuda_value_bytes(const struct pp_backend_choice *choice)
{
    return choice->precision == PP_PRECISION_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static int cuda_open(struct pp_backend *be, int threads)
{
    struct cuda *c;
    PP_ALLOC(c, 1);
    c->device = be->choice.device;
    c->partition = be->choice.partition;
    c->partitions = be->choice.partitions;
    c->precision = be->choice.precision;
    c->bf16 = c->precision == PP_PRECISION_BF16;
    c->exact = be->choice.exact;
    c->workspace_bytes = c->exact ? 0 : WORKSPACE_BYTES;
    be->impl = c;
    PP_TRY_UNDO(set_up(c, be), cuda_close(be));
    be->caps.async = true;
    be->caps.graphs = true;
    return 0;
}

/* ---- ops that are one kernel; only the kernel knows which arrays it touches, so it comes after
 * all waiting calls */

#define PP_KERNEL(name, type)
#define PP_SUMS(name, type, ...)
#define PP_LOOP(name, type, ...)                                                                   \
    int cuda_##name(struct pp_backend *be, const struct type *a)                                   \
    {                                                                                              \
        struct cuda *c = cuda_of(be);                                                              \
        PP_TRY(cuda_settle_all(c));                                                                \
        return CUDA_CALL(be, kernels_##name(c->stream, a, c->precision, c->between));              \
    }
#include "ppcli/dev/kernels.def"

int cuda_move_pictures(struct pp_backend *be, const struct pp_move_pictures *a)
{
    PP_TRY(cuda_settle_all(cuda_of(be)));
    return CUDA_CALL(be, kernels_move_pictures(cuda_of(be)->stream, a, PP_PRECISION_F32, NULL));
}

int cuda_batch_norm_spread(struct pp_backend *be, const struct pp_batch_norm_spread *a)
{
    PP_TRY(cuda_settle_all(cuda_of(be)));
    return CUDA_CALL(be, kernels_batch_norm_spread(cuda_of(be)->stream, a, PP_PRECISION_F32, NULL));
}

int cuda_judge(struct pp_backend *be, const struct pp_judgement *j)
{
    PP_TRY(cuda_settle_all(cuda_of(be)));
    return CUDA_CALL(be, kernels_judge(cuda_of(be)->stream, j, PP_PRECISION_F32, NULL));
}

const struct pp_backend_ops backend_cuda = {
    .name = "cuda",
    .help = "NVIDIA GPUs",
    .own_memory = true,
    .probe = probe,
    .is_here = nvidia_is_here,
    .devices = cuda_list_devices,
    .reaches = cuda_reaches,
    .free_bytes = cuda_free_bytes,
    .own_bytes = cuda_own_bytes,
    .versions = cuda_versions,
    .open = cuda_open,
    .close = cuda_close,
    .value_bytes = cuda_value_bytes,
    .logits_unit = 64,
#define PP_ENTRY(x) .x = cuda_##x,
#include "ppcli/dev/backend_entries.def"
#define PP_KERNEL(name, type) .name = cuda_##name,
#include "ppcli/dev/kernels.def"
};
