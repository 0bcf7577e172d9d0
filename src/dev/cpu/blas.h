/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CBLAS, loaded at its first use: a program that was built with it also runs where it is not
 * installed, and no command waits for the threads that OpenBLAS starts when it is loaded and joins
 * when it is unloaded.
 */
#ifndef PPCLI_DEV_CPU_BLAS_H
#define PPCLI_DEV_CPU_BLAS_H

#include <stdbool.h>

#include <cblas.h>
#undef I /* some cblas.h include complex.h; here I is the number of inputs */

/* Loads the library, once per process and with one thread, and makes sure that `threads` more
 * threads can multiply at the same time. Every successful blas_enter() needs a blas_leave(). Any
 * thread. Errors: PP_ERESOURCE, with advice. */
int blas_enter(int threads);
void blas_leave(int threads);

/* Makes every call use `threads` threads, if the library allows it. Returns whether several threads
 * may call it at once. Call it between blas_enter() and blas_leave(). */
bool blas_set_threads(int threads);

extern __typeof__(cblas_sgemm) *blas_sgemm; /* NULL until the library is loaded */

#endif
