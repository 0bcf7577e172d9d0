/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of ppcli/ckpt/checkpoint.h that only this module uses. */
#ifndef PPCLI_SRC_CKPT_CHECKPOINT_H
#define PPCLI_SRC_CKPT_CHECKPOINT_H

#include "ppcli/ckpt/checkpoint.h"

/*
 * Reads a tensor of this shape as floats (F16, BF16, F64 and an I64 scalar are converted) and
 * passes them to put() in ascending pieces, which may copy them to a device. If `put` is NULL it
 * only checks that the tensor can be read. In plain safetensors files the name may lack a leading
 * "transformer." or "model.". Errors: PP_EFORMAT (no such tensor; another shape; not floats),
 * PP_EIO, those of put().
 */
int pp_ckpt_read(const struct pp_ckpt *ck, const char *name, int n_dims, const int64_t *dims,
                 int (*put)(void *ctx, uint64_t first, const float *values, size_t n), void *ctx);

#endif
