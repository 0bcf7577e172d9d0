/* SPDX-License-Identifier: Apache-2.0 */
/* As keep_lt.c: only dlopen asks for NCCL. */
#include <nccl.h>

ncclResult_t (*const fake_keep_nccl)(int *version) = ncclGetVersion;
