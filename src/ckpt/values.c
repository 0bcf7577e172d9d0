/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that all values of a checkpoint are finite. */
#include <inttypes.h>
#include <math.h>

#include "impl.h"
#include "checkpoint.h"
#include "ppcli/base/base.h"

struct values {
    /* of a tensor: values checked, values not finite, index of the first of these */
    uint64_t looked, bad, first;
    bool is_nan; /* kind of the first bad value */
};

static int count_bad_values(void *ctx, uint64_t first, const float *values, size_t n)
{
    struct values *v = ctx;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(values[i]))
            continue;
        v->first = v->bad == 0 ? first + i : v->first;
        v->is_nan = v->bad == 0 ? isnan(values[i]) : v->is_nan;
        v->bad++;
    }
    v->looked += n;
    return 0;
}

int pp_ckpt_check_values(const struct pp_ckpt *ck, uint64_t *out_looked, int *out_left)
{
    char shape[PP_ST_SHAPE_BYTES], shown[PP_PATH_MAX];
    *out_looked = 0;
    for (int i = 0; i < ck->n_tensors; i++) {
        struct values v = {.looked = 0};
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, NULL);
        bool floats = pp_ckpt_is_readable(t) && t->dtype != PP_ST_I64;
        *out_left += t->dtype >= PP_ST_F4 && t->elements > 0;
        if (!floats || t->elements == 0)
            continue;
        PP_TRY(pp_ckpt_read(ck, ckpt_tensor_name(ck, t), t->n_dims, t->dims, count_bad_values, &v));
        if (v.bad > 0) {
            return pp_fail(PP_ECHECK,
                           "%s: tensor %s %s: value %" PRIu64 " is %s, and %" PRIu64 " of %" PRIu64
                           " are not finite; its bytes are as they were written",
                           pp_text_shown(ck->path, shown, sizeof(shown)), t->name,
                           pp_st_shape(t->n_dims, t->dims, shape), v.first,
                           v.is_nan ? "NaN" : "infinite", v.bad, v.looked);
        }
        *out_looked += v.looked;
    }
    return 0;
}
