/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a tensor as floats, in pieces. */
#include <inttypes.h>
#include <string.h>

#include "impl.h"
#include "safetensors.h"
#include "checkpoint.h"
#include "ppcli/base/base.h"

#define PIECE ((size_t)1 << 16) /* elements at a time */

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error safetensors are little endian, and so must this machine be
#endif

/* ---- conversion of other types */

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static void convert_to_floats(enum pp_st_dtype from, const void *src, size_t n, float *dst)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        double wide;
        int64_t count;
        if (from == PP_ST_F64) {
            memcpy(&wide, p + 8 * i, sizeof(wide));
            dst[i] = (float)wide;
            continue;
        }
        if (from == PP_ST_I64) {
            memcpy(&count, p + 8 * i, sizeof(count));
            dst[i] = (float)count;
            continue;
        }
        memcpy(&half, p + 2 * i, sizeof(half));
        dst[i] = from == PP_ST_F16 ? pp_f16_value(half) : float_of_bits((uint32_t)half << 16);
    }
}

/* ---- reading */

const char *pp_st_shape(int n, const int64_t *dims, char out[PP_ST_SHAPE_BYTES])
{
    snprintf(out, PP_ST_SHAPE_BYTES, "[");
    for (int i = 0; i < n; i++)
        pp_text_add(out, PP_ST_SHAPE_BYTES, "%s%" PRId64, i > 0 ? "," : "", dims[i]);
    pp_text_add(out, PP_ST_SHAPE_BYTES, "]");
    return out;
}

bool pp_ckpt_is_readable(const struct pp_st_tensor *t)
{
    return t->dtype < PP_ST_I64 || (t->dtype == PP_ST_I64 && t->n_dims == 0);
}

static int check_readable_tensor(const struct pp_ckpt *ck, const struct pp_st_file *f,
                                 const struct pp_st_tensor *t, int n_dims, const int64_t *dims)
{
    if (!pp_ckpt_is_readable(t)) {
        return pp_fail(PP_EFORMAT, "%s: tensor %s is of type %s, expected floats", f->path, t->name,
                       pp_st_dtype_name(t->dtype));
    }
    if (t->n_dims != n_dims || memcmp(t->dims, dims, (size_t)n_dims * sizeof(*dims)) != 0) {
        char found[PP_ST_SHAPE_BYTES], wanted[PP_ST_SHAPE_BYTES], own[PP_CKPT_OWN_CONFIG];
        return pp_fail(PP_EFORMAT, "%s: tensor %s has shape %s, this model's has %s%s", f->path,
                       t->name, pp_st_shape(t->n_dims, t->dims, found),
                       pp_st_shape(n_dims, dims, wanted), pp_ckpt_own_config(ck, own));
    }
    return 0;
}

static int read_pieces(const struct pp_st_file *f, const struct pp_st_tensor *t, void *raw,
                       float *floats,
                       int (*put)(void *ctx, uint64_t first, const float *values, size_t n),
                       void *ctx)
{
    size_t width = (size_t)pp_st_dtype_bits(t->dtype) / 8;
    for (uint64_t at = 0; at < t->elements;) {
        uint64_t left = t->elements - at;
        size_t n = left < PIECE ? (size_t)left : PIECE;
        PP_TRY(pp_st_read(f, t, at * width, raw, n * width));
        if (raw != floats)
            convert_to_floats(t->dtype, raw, n, floats);
        PP_TRY(put(ctx, at, floats, n));
        at += n;
    }
    return 0;
}

int pp_ckpt_read(const struct pp_ckpt *ck, const char *name, int n_dims, const int64_t *dims,
                 int (*put)(void *ctx, uint64_t first, const float *values, size_t n), void *ctx)
{
    int part = 0;
    const char *shorter = ck->plain ? ckpt_short_name(name) : NULL;
    const struct pp_st_tensor *t = ckpt_find(ck, name, &part);
    t = t || !shorter ? t : ckpt_find(ck, shorter, &part);
    char own[PP_CKPT_OWN_CONFIG];
    if (!t) {
        return pp_fail(PP_EFORMAT, "%s: has no tensor %s%s", ck->path, name,
                       pp_ckpt_own_config(ck, own));
    }
    const struct pp_st_file *f = ck->parts[part];
    PP_TRY(check_readable_tensor(ck, f, t, n_dims, dims));
    if (!put)
        return 0;
    PP_TAKE(float, floats, PIECE);
    PP_TAKE(double, raw, t->dtype == PP_ST_F32 ? 0 : PIECE);
    return read_pieces(f, t, t->dtype == PP_ST_F32 ? (void *)floats : raw, floats, put, ctx);
}
