/* SPDX-License-Identifier: Apache-2.0 */
/* Only dlopen asks for cuBLASLt, and the linker leaves out a library that nobody refers to. */
#include <cublasLt.h>

size_t (*const fake_keep_lt)(void) = cublasLtGetVersion;
