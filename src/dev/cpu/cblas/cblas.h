/* SPDX-License-Identifier: Apache-2.0 */
/* Declares the functions of CBLAS that ppcli calls, for a machine without cblas.h. Every library
 * with 32-bit sizes has these names and numbers. */
#ifndef PPCLI_DEV_CPU_CBLAS_H
#define PPCLI_DEV_CPU_CBLAS_H

enum CBLAS_ORDER {
    CblasRowMajor = 101
};

enum CBLAS_TRANSPOSE {
    CblasNoTrans = 111,
    CblasTrans = 112
};

/* C[M][N] = alpha * op(A)[M][K] * op(B)[K][N] + beta * C */
void cblas_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE a, enum CBLAS_TRANSPOSE b, int M,
                 int N, int K, float alpha, const float *A, int lda, const float *B, int ldb,
                 float beta, float *C, int ldc);

#endif
