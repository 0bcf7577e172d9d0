/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of cuBLASLt that products need, on the emulated device: f32, TF32 and bf16 inputs, sums
 * in f32, column-major layouts, one algorithm out of three that add in different orders, so that a
 * choice that is not pinned shows in the bits:
 *   0  one sum over k; takes any alignment
 *   1  sums of 32 products, added up; A, B, C, D and bias on 16 bytes
 *   2  k in four parts, added up in the workspace; on 16 bytes as well
 * Which one the heuristic names first depends on the shape and the multiprocessors, as in life.
 *   PPCLI_FAKE_EPILOGUES  none: only the plain product is supported
 *   PPCLI_FAKE_RELU_NAN   drop: the RELU epilogues make 0 of a NaN
 * Built as a library with cuBLASLt's name, so that it is found the way that one is.
 */
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fake_lt.h"

static size_t span(const Layout &l)
{
    return (((size_t)l.cols - 1) * (size_t)l.ld + (size_t)l.rows) * bytes_of(l.type);
}

static cublasStatus_t check_layout(const Layout &l)
{
    if (l.rows == 0 || l.cols == 0 || l.ld < (int64_t)l.rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    return bytes_of(l.type) == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_epilogue(const Desc &d, const Layout &out)
{
    const char *which = getenv("PPCLI_FAKE_EPILOGUES");
    if (d.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_SUCCESS;
    if (which != NULL && strcmp(which, "none") == 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (d.epilogue != CUBLASLT_EPILOGUE_BIAS && d.epilogue != CUBLASLT_EPILOGUE_RELU_BIAS &&
        d.epilogue != CUBLASLT_EPILOGUE_BGRADB)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (d.bias_typed && d.bias_type != out.type)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t product_of(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                 cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                 cublasLtMatrixLayout_t out, Product *p)
{
    if (desc == NULL || a == NULL || b == NULL || c == NULL || out == NULL)
        return CUBLAS_STATUS_INVALID_VALUE;
    p->d = *(Desc *)desc;
    const cublasLtMatrixLayout_t from[] = {a, b, c, out};
    Layout *to[] = {&p->a, &p->b, &p->c, &p->out};
    for (int i = 0; i < 4; i++) {
        *to[i] = *(Layout *)from[i];
        cublasStatus_t s = check_layout(*to[i]);
        if (s != CUBLAS_STATUS_SUCCESS)
            return s;
    }
    bool ta = p->d.trans_a != CUBLAS_OP_N, tb = p->d.trans_b != CUBLAS_OP_N;
    p->m = ta ? p->a.cols : p->a.rows;
    p->k = ta ? p->a.rows : p->a.cols;
    p->n = tb ? p->b.rows : p->b.cols;
    if ((tb ? p->b.cols : p->b.rows) != p->k || p->out.rows != p->m || p->out.cols != p->n ||
        p->c.rows != p->m || p->c.cols != p->n)
        return CUBLAS_STATUS_INVALID_VALUE;
    bool f32 = p->a.type == CUDA_R_32F;
    if (p->a.type != p->b.type || p->c.type != p->out.type || p->d.scale != CUDA_R_32F ||
        (f32 && p->out.type != CUDA_R_32F) ||
        (p->d.compute != CUBLAS_COMPUTE_32F &&
         !(f32 && p->d.compute == CUBLAS_COMPUTE_32F_FAST_TF32)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return check_epilogue(p->d, p->out);
}

static bool wide(const Layout &l)
{
    return (size_t)l.ld * bytes_of(l.type) % WIDE == 0;
}

/* Whether an algorithm can do it at all: leading dimensions as the wide ones need them. */
static bool can(const Product &p, int algorithm)
{
    return algorithm == PLAIN || (wide(p.a) && wide(p.b) && wide(p.c) && wide(p.out));
}

static void drop(void *arg)
{
    delete (Job *)arg;
}

/* ---- pointers */

static size_t bias_count(const Product &p)
{
    return p.d.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m;
}

/* All within memory that the work may touch. */
static void check_memory(const Job &job, cudaStream_t stream, size_t workspace)
{
    const Product &p = job.p;
    struct {
        const char *name;
        const void *at;
        size_t bytes;
    } all[] = {{"A", job.a, span(p.a)},
               {"B", job.b, span(p.b)},
               {"C", job.beta != 0.0f ? job.c : job.out, span(p.c)},
               {"D", job.out, span(p.out)},
               {"bias", has_bias(p.d.epilogue) ? p.d.bias : job.out,
                has_bias(p.d.epilogue) ? bias_count(p) * bytes_of(p.out.type) : 1},
               {"workspace", workspace > 0 ? job.workspace : job.out, workspace}};
    for (const auto &m : all)
        fake_touch("cublasLtMatmul", m.at, m.bytes,
                   &m == &all[3] || &m == &all[5] ||
                       (&m == &all[4] && p.d.epilogue == CUBLASLT_EPILOGUE_BGRADB));
    for (const auto &m : all)
        if (!fake_reaches(stream, m.at, m.bytes))
            fake_die("cublasLtMatmul: %zu bytes of %s at %p are not memory that device %d reaches",
                     m.bytes, m.name, m.at, fake_stream_device(stream));
    const char *from = (const char *)job.out, *to = from + span(p.out);
    for (int i = 0; i < 2; i++) {
        const char *at = (const char *)all[i].at;
        if (at < to && from < at + all[i].bytes)
            fake_die("cublasLtMatmul: D overlaps %s", all[i].name);
    }
}

static const void *of_batch(const void *p, const Layout &l, int i)
{
    return (const char *)p + i * l.stride * (int64_t)bytes_of(l.type);
}

static bool aligned(const Job &job)
{
    uintptr_t all = (uintptr_t)job.a | (uintptr_t)job.b | (uintptr_t)job.out;
    if (job.beta != 0.0f)
        all |= (uintptr_t)job.c;
    if (has_bias(job.p.d.epilogue))
        all |= (uintptr_t)job.p.d.bias;
    return all % (job.algorithm == PLAIN ? bytes_of(job.p.a.type) : (size_t)WIDE) == 0;
}

/* ---- the library's calls */

#define LT_ENTER()                                                                                 \
    do {                                                                                           \
        int code_;                                                                                 \
        if (fake_fails(__func__, &code_))                                                          \
            return (cublasStatus_t)code_;                                                          \
    } while (0)

/* An attribute of the caller's value, where the sizes agree. */
template <typename T> static cublasStatus_t set(T *field, const void *value, size_t bytes)
{
    if (value == NULL || bytes != sizeof *field)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, sizeof *field);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" {

struct cublasLtContext {
    int device;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    LT_ENTER();
    auto made = new cublasLtContext();
    if (cudaGetDevice(&made->device) != cudaSuccess) {
        delete made;
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *out = (cublasLtHandle_t)made;
    fake_count("cuBLASLt handles", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    delete (cublasLtContext *)h;
    fake_count("cuBLASLt handles", -1);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "an emulated failure";
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    LT_ENTER();
    *out = (cublasLtMatrixLayout_t) new Layout{type, rows, cols, ld, 0, 0};
    fake_count("cuBLASLt layouts", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes)
{
    Layout *mine = (Layout *)l;
    return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(&mine->batch, value, bytes)
                                                           : set(&mine->stride, value, bytes);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    LT_ENTER();
    *out = (cublasLtMatmulDesc_t) new Desc{
        compute, scale, CUDA_R_32F, false, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
        NULL,    0};
    fake_count("cuBLASLt descriptors", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    Desc *d = (Desc *)desc;
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&d->trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&d->trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        d->bias_typed = true;
        return set(&d->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        return set(&d->sms, value, bytes);
    default:
        fake_die("cuBLASLt: descriptor attribute %d is not known here", (int)attribute);
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    LT_ENTER();
    *out = (cublasLtMatmulPreference_t) new Preference{
        0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    fake_count("cuBLASLt preferences", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    Preference *p = (Preference *)pref;
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&p->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&p->align[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    default:
        fake_die("cuBLASLt: preference %d is not known here", (int)attribute);
    }
}

#define LT_DESTROY(name, type, what)                                                               \
    cublasStatus_t cublasLt##name##Destroy(cublasLt##name##_t p)                                   \
    {                                                                                              \
        delete (type *)p;                                                                          \
        fake_count("cuBLASLt " what, -1);                                                          \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }
LT_DESTROY(MatrixLayout, Layout, "layouts")
LT_DESTROY(MatmulDesc, Desc, "descriptors")
LT_DESTROY(MatmulPreference, Preference, "preferences")

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *count)
{
    LT_ENTER();
    *count = 0;
    Product p;
    cublasStatus_t s = product_of(desc, a, b, c, out, &p);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    Preference pref = *(Preference *)preference;
    uint32_t least = *std::min_element(pref.align, pref.align + 4);
    int sms = p.d.sms > 0 ? p.d.sms : 132;
    /* few tiles for the multiprocessors: split k; else what the shape says */
    uint64_t tiles = ((p.m + 63) / 64) * ((p.n + 63) / 64);
    int first = tiles * 4 < (uint64_t)sms && p.k >= 64 ? SPLIT : (p.m + p.n) % 2 ? PLAIN : BLOCKS;
    for (int i = 0; i < ALGORITHMS && *count < wanted; i++) {
        int id = (first + i) % ALGORITHMS;
        uint32_t scheme = id == SPLIT ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0;
        if (!can(p, id) || (id != PLAIN && least < WIDE) ||
            fake_workspace(p, id) > pref.workspace || (scheme & ~pref.schemes) != 0)
            continue;
        cublasLtMatmulHeuristicResult_t *r = &results[(*count)++];
        memset(r, 0, sizeof *r);
        Algo algo = {id, id == SPLIT ? SPLITS : 1, scheme};
        memcpy(&r->algo, &algo, sizeof algo);
        r->workspaceSize = fake_workspace(p, id);
        r->wavesCount = (float)tiles / (float)sms;
    }
    return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t out,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    LT_ENTER();
    Job job;
    cublasStatus_t s = product_of(desc, a, b, c, out, &job.p);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (algo == NULL)
        fake_die("cublasLtMatmul without an algorithm: it would choose one at each call");
    Algo chosen;
    memcpy(&chosen, algo, sizeof chosen);
    memcpy(&job.alpha, alpha, sizeof job.alpha);
    memcpy(&job.beta, beta, sizeof job.beta);
    job.workspace = (float *)workspace;
    job.algorithm = chosen.id;
    const char *nan = getenv("PPCLI_FAKE_RELU_NAN");
    job.drop_nan = nan != NULL && strcmp(nan, "drop") == 0;
    size_t needs = fake_workspace(job.p, chosen.id);
    int device = fake_stream_device(stream);
    if (handle == NULL || device != ((cublasLtContext *)handle)->device ||
        (has_bias(job.p.d.epilogue) && job.p.d.bias == NULL) || needs > workspace_bytes ||
        (needs > 0 && (uintptr_t)workspace % 256 != 0))
        return CUBLAS_STATUS_INVALID_VALUE;
    cudaError_t e = cudaSuccess;
    for (int i = 0; e == cudaSuccess && (i == 0 || i < job.p.out.batch); i++) {
        job.a = of_batch(A, job.p.a, i);
        job.b = of_batch(B, job.p.b, i);
        job.c = of_batch(C, job.p.c, i);
        job.out = (void *)of_batch(D, job.p.out, i);
        if (!can(job.p, chosen.id) || !aligned(job))
            return CUBLAS_STATUS_NOT_SUPPORTED;
        check_memory(job, stream, needs);
        e = fake_enqueue(stream, false, fake_multiply, new Job(job), drop);
    }
    return e == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
