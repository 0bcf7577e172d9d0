/* SPDX-License-Identifier: Apache-2.0 */
/* The products through CBLAS: builds everywhere, and may use several threads. */
#include "blas.h"
#include "gemm.h"

static void gemm_forward(int B, int I, int O, const float *x, const float *W, const float *packed,
                         const float *b, bool relu, float *y)
{
    blas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, B, O, I, 1.0f, x, I, W, I, 0.0f, y, O);
}

static void backward_input(int B, int I, int O, const float *dz, const float *W, float *dx)
{
    blas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, B, I, O, 1.0f, dz, O, W, I, 0.0f, dx, I);
}

static void backward_weight(int n, const struct pp_weight_part *parts, int I, int O, float beta,
                            float *dW)
{
    for (const struct pp_weight_part *p = parts; p < parts + n; p++) {
        if (p->B > 0) {
            blas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, O, I, p->B, 1.0f, p->dz, O, p->x, I,
                       beta, dW, I);
            beta = 1.0f;
        }
    }
}

const struct cpu_gemm cpu_gemm_cblas = {
    .name = "cblas",
    .forward = gemm_forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .conv = &cpu_conv_cblas,
};
