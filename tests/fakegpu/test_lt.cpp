/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated cuBLASLt: its products against double arithmetic, algorithms that differ in bits,
 * and the rules that decide which of them may be used.
 */
#include <cmath>
#include <cstring>
#include <vector>

extern "C" {
#include "../runner.h"
}

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#define OK(call) assert_int_equal((int)(call), 0)

enum {
    M = 24,
    N = 12,
    K = 200,
    MOST = 8
};

/* D[M][N] = A^T B, f32: A[K][M] and B[K][N], column by column. */
struct Setup {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    cudaStream_t stream;
    float *device; /* A, B, D, bias */
    char *workspace;
    std::vector<float> A, B;
};

static const size_t WORKSPACE = 1 << 20;
static const size_t OF_B = (size_t)K * M, OF_D = OF_B + (size_t)K * N, OF_BIAS = OF_D + M * N;
static const size_t FLOATS = OF_BIAS + M;

static void begin(Setup *s, cublasComputeType_t compute)
{
    OK(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    OK(cublasLtCreate(&s->handle));
    OK(cublasLtMatmulDescCreate(&s->desc, compute, CUDA_R_32F));
    cublasOperation_t t = CUBLAS_OP_T;
    OK(cublasLtMatmulDescSetAttribute(s->desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t));
    OK(cublasLtMatrixLayoutCreate(&s->a, CUDA_R_32F, K, M, K));
    OK(cublasLtMatrixLayoutCreate(&s->b, CUDA_R_32F, K, N, K));
    OK(cublasLtMatrixLayoutCreate(&s->d, CUDA_R_32F, M, N, M));
    OK(cublasLtMatmulPreferenceCreate(&s->preference));
    OK(cublasLtMatmulPreferenceSetAttribute(s->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &WORKSPACE, sizeof WORKSPACE));
    OK(cudaMalloc((void **)&s->device, (FLOATS + 1) * sizeof(float)));
    OK(cudaMalloc((void **)&s->workspace, WORKSPACE));
    s->A.resize((size_t)K * M);
    s->B.resize((size_t)K * N);
    for (size_t i = 0; i < s->A.size(); i++)
        s->A[i] = sinf((float)i);
    for (size_t i = 0; i < s->B.size(); i++)
        s->B[i] = cosf((float)(3 * i));
    OK(cudaMemcpyAsync(s->device, s->A.data(), s->A.size() * 4, cudaMemcpyHostToDevice, s->stream));
    OK(cudaMemcpyAsync(s->device + OF_B, s->B.data(), s->B.size() * 4, cudaMemcpyHostToDevice,
                       s->stream));
    float bias[M];
    for (int i = 0; i < M; i++)
        bias[i] = (float)(i - 10);
    OK(cudaMemcpyAsync(s->device + OF_BIAS, bias, sizeof bias, cudaMemcpyHostToDevice, s->stream));
}

static void end(Setup *s)
{
    OK(cublasLtMatmulPreferenceDestroy(s->preference));
    for (cublasLtMatrixLayout_t l : {s->a, s->b, s->d})
        OK(cublasLtMatrixLayoutDestroy(l));
    OK(cublasLtMatmulDescDestroy(s->desc));
    OK(cublasLtDestroy(s->handle));
    OK(cudaFree(s->device));
    OK(cudaFree(s->workspace));
    OK(cudaStreamDestroy(s->stream));
}

static int algorithms(Setup *s, cublasLtMatmulHeuristicResult_t *out)
{
    int n = 0;
    cublasStatus_t e = cublasLtMatmulAlgoGetHeuristic(s->handle, s->desc, s->a, s->b, s->d, s->d,
                                                      s->preference, MOST, out, &n);
    assert_true(e == CUBLAS_STATUS_SUCCESS || (e == CUBLAS_STATUS_NOT_SUPPORTED && n == 0));
    return n;
}

/* shift: A, in floats. */
static cublasStatus_t multiply(Setup *s, const cublasLtMatmulAlgo_t *algo, size_t workspace,
                               int shift)
{
    float one = 1.0f, zero = 0.0f;
    float *D = s->device + OF_D;
    return cublasLtMatmul(s->handle, s->desc, &one, s->device + shift, s->a, s->device + OF_B, s->b,
                          &zero, D, s->d, D, s->d, algo, s->workspace, workspace, s->stream);
}

static std::vector<float> result(Setup *s)
{
    std::vector<float> d(M * N);
    OK(cudaMemcpyAsync(d.data(), s->device + OF_D, d.size() * 4, cudaMemcpyDeviceToHost,
                       s->stream));
    return d;
}

static void epilogue(Setup *s, uint32_t e)
{
    void *bias = s->device + OF_BIAS;
    OK(cublasLtMatmulDescSetAttribute(s->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &e, sizeof e));
    OK(cublasLtMatmulDescSetAttribute(s->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                      sizeof bias));
}

/* Largest distance from relu?(A^T B + bias?) in double. */
static double distance(const Setup &s, const std::vector<float> &got, bool bias, bool relu)
{
    double most = 0;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = bias ? i - 10 : 0;
            for (int k = 0; k < K; k++)
                sum += (double)s.A[(size_t)i * K + k] * s.B[(size_t)j * K + k];
            sum = relu && sum < 0 ? 0 : sum;
            most = fmax(most, fabs(sum - got[(size_t)j * M + i]));
        }
    return most;
}

TEST(every_algorithm_is_right_and_has_its_own_bits)
{
    Setup s;
    cublasLtMatmulHeuristicResult_t all[MOST];
    begin(&s, CUBLAS_COMPUTE_32F);
    int n = algorithms(&s, all);
    assert_int_equal(n, 3);
    std::vector<std::vector<float>> d;
    for (int i = 0; i < n; i++) {
        OK(multiply(&s, &all[i].algo, WORKSPACE, 0));
        d.push_back(result(&s));
        assert_true(distance(s, d.back(), false, false) < 1e-4);
        for (int j = 0; j < i; j++)
            assert_true(d[i] != d[j]);
    }
    end(&s);
}

TEST(tf32_rounds_what_comes_in)
{
    Setup s;
    cublasLtMatmulHeuristicResult_t all[MOST];
    begin(&s, CUBLAS_COMPUTE_32F_FAST_TF32);
    assert_true(algorithms(&s, all) > 0);
    OK(multiply(&s, &all[0].algo, WORKSPACE, 0));
    double far = distance(s, result(&s), false, false);
    assert_true(far > 1e-5 && far < 2e-2);
    end(&s);
}

TEST(epilogues_add_the_bias_and_cut_at_zero)
{
    Setup s;
    cublasLtMatmulHeuristicResult_t all[MOST];
    begin(&s, CUBLAS_COMPUTE_32F);
    epilogue(&s, CUBLASLT_EPILOGUE_RELU_BIAS);
    assert_true(algorithms(&s, all) > 0);
    OK(multiply(&s, &all[0].algo, WORKSPACE, 0));
    assert_true(distance(s, result(&s), true, true) < 1e-4);
    epilogue(&s, CUBLASLT_EPILOGUE_GELU_BIAS);
    assert_int_equal(algorithms(&s, all), 0);
    end(&s);
}

/* Which algorithm it is: 2 splits k. */
static int splits(const cublasLtMatmulHeuristicResult_t &r)
{
    int32_t n;
    OK(cublasLtMatmulAlgoConfigGetAttribute(&r.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &n, sizeof n,
                                            NULL));
    return n;
}

TEST(alignment_and_workspace_decide_what_may_be_used)
{
    Setup s;
    cublasLtMatmulHeuristicResult_t all[MOST], some[MOST];
    begin(&s, CUBLAS_COMPUTE_32F);
    int n = algorithms(&s, all), refused = 0;
    for (int i = 0; i < n; i++) {
        if (splits(all[i]) > 1) {
            assert_true(all[i].workspaceSize > 0);
            assert_int_equal((int)multiply(&s, &all[i].algo, all[i].workspaceSize - 1, 0),
                             (int)CUBLAS_STATUS_INVALID_VALUE);
        }
        refused += multiply(&s, &all[i].algo, WORKSPACE, 1) == CUBLAS_STATUS_NOT_SUPPORTED;
    }
    assert_int_equal(refused, 2); /* an address that only one of them takes */
    uint32_t four = 4, no_scheme = 0;
    OK(cublasLtMatmulPreferenceSetAttribute(
        s.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &four, sizeof four));
    assert_int_equal(algorithms(&s, some), 1);
    OK(multiply(&s, &some[0].algo, WORKSPACE, 1));
    four = 256;
    OK(cublasLtMatmulPreferenceSetAttribute(
        s.preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &four, sizeof four));
    OK(cublasLtMatmulPreferenceSetAttribute(
        s.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_scheme, sizeof no_scheme));
    n = algorithms(&s, some);
    assert_int_equal(n, 2);
    for (int i = 0; i < n; i++)
        assert_int_equal(splits(some[i]), 1);
    end(&s);
}
