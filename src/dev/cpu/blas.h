/* SPDX-License-Identifier: Apache-2.0 */
/* What the loaded CBLAS can tell about itself. */
#ifndef PPCLI_DEV_CPU_BLAS_H
#define PPCLI_DEV_CPU_BLAS_H

#include <stdbool.h>
#include <stddef.h>

/* Make every CBLAS call of this process use `threads` threads, where the library has a call for
 * it. Returns whether several threads may call it at once. */
bool blas_set_threads(int threads);

#endif
