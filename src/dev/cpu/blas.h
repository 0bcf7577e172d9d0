/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CBLAS, loaded when it is first needed: a program that was built with it also runs where it is
 * not installed, and no command waits for the threads that OpenBLAS starts when it is loaded and
 * joins when it is unloaded.
 */
#ifndef PPCLI_DEV_CPU_BLAS_H
#define PPCLI_DEV_CPU_BLAS_H

#include <stdbool.h>

#include <cblas.h>
#undef I /* complex.h comes along with some cblas.h; here I is the number of inputs */

/* Load the library, once for the process and with one thread, and see to it that `threads` more
 * threads can multiply at the same time. Every blas_enter() that worked needs a blas_leave(). Any
 * thread. Errors: PP_ERESOURCE, with what would work. */
int blas_enter(int threads);
void blas_leave(int threads);

/* Make every call use `threads` threads, where the library has a call for it. Returns whether
 * several threads may call it at once. Between blas_enter() and blas_leave(). */
bool blas_set_threads(int threads);

extern __typeof__(cblas_sgemm) *blas_sgemm; /* NULL until the library is loaded */

#endif
