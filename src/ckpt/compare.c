/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the tensors of two checkpoints, bit by bit. */
#include <inttypes.h>
#include <string.h>

#include "impl.h"
#include "checkpoint.h"
#include "ppcli/base/base.h"

struct sides {
    float *was; /* values of the first checkpoint's tensor */
    struct pp_ckpt_difference *out;
};

static int keep_values(void *ctx, uint64_t first, const float *values, size_t n)
{
    struct sides *s = ctx;
    memcpy(s->was + first, values, n * sizeof(*values));
    return 0;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static int compare_values(void *ctx, uint64_t first, const float *values, size_t n)
{
    struct sides *s = ctx;
    for (size_t i = 0; i < n; i++) {
        if (bits_of(s->was[first + i]) == bits_of(values[i]))
            continue;
        if (s->out->values++ == 0) {
            s->out->first = first + i;
            s->out->was = s->was[first + i];
            s->out->is = values[i];
        }
    }
    return 0;
}

static const struct pp_st_tensor *find_named(const struct pp_ckpt *ck, const char *name)
{
    for (int i = 0; i < ck->n_tensors; i++)
        if (strcmp(pp_ckpt_tensor(ck, i, NULL)->name, name) == 0)
            return pp_ckpt_tensor(ck, i, NULL);
    return NULL;
}

static bool have_same_shape(const struct pp_st_tensor *a, const struct pp_st_tensor *b)
{
    return a->n_dims == b->n_dims && a->dtype == b->dtype &&
           (a->n_dims == 0 || memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof(*a->dims)) == 0);
}

static int compare_tensor(const struct pp_ckpt *a, const struct pp_ckpt *b,
                          const struct pp_st_tensor *t, struct pp_ckpt_difference *out)
{
    if (!pp_ckpt_is_readable(t) || t->elements == 0)
        return 0;
    PP_TAKE(float, was, t->elements);
    struct sides s = {was, out};
    PP_TRY(pp_ckpt_read(a, ckpt_tensor_name(a, t), t->n_dims, t->dims, keep_values, &s));
    return pp_ckpt_read(b, t->name, t->n_dims, t->dims, compare_values, &s);
}

/* Returns the number of tensors that ck has and other lacks; *out_first gets the first of them. */
static int count_missing(const struct pp_ckpt *ck, const struct pp_ckpt *other,
                         const char **out_first)
{
    int n = 0;
    for (int i = 0; i < ck->n_tensors; i++) {
        const char *name = pp_ckpt_tensor(ck, i, NULL)->name;
        if (!find_named(other, name) && n++ == 0)
            *out_first = name;
    }
    return n;
}

/* Formats the place of an element as "[1,7]". */
static void write_place(const struct pp_st_tensor *t, uint64_t first, char out[PP_ST_SHAPE_BYTES])
{
    int64_t at[PP_ST_DIMS_MAX];
    for (int d = t->n_dims - 1; d >= 0; d--) {
        at[d] = (int64_t)(first % (uint64_t)t->dims[d]);
        first /= (uint64_t)t->dims[d];
    }
    pp_st_shape(t->n_dims, at, out);
}

int pp_ckpt_compare(const struct pp_ckpt *a, const struct pp_ckpt *b,
                    struct pp_ckpt_difference *out)
{
    const char *name = "";
    *out = (struct pp_ckpt_difference){.tensors = count_missing(a, b, &name)};
    out->missing = out->tensors > 0 ? PP_CKPT_NOT_IN_SECOND : 0;
    if (out->tensors == 0 && count_missing(b, a, &name) > 0) {
        out->tensors = 1;
        out->missing = PP_CKPT_NOT_IN_FIRST;
    }
    snprintf(out->name, sizeof(out->name), "%s", name);
    for (int i = 0; i < 2 * a->n_tensors; i++) { /* weights first, then what is no weight */
        const struct pp_st_tensor *t = pp_ckpt_tensor(a, i % a->n_tensors, NULL);
        const struct pp_st_tensor *u = find_named(b, t->name);
        struct pp_ckpt_difference d = {0};
        if (!u || pp_ckpt_is_parameter(t) != (i < a->n_tensors))
            continue;
        if (have_same_shape(t, u))
            PP_TRY(compare_tensor(a, b, t, &d));
        else
            d.missing = PP_CKPT_OTHER_SHAPE;
        if (d.values == 0 && d.missing == 0)
            continue;
        if (out->tensors++ == 0) {
            int tensors = out->tensors;
            *out = d;
            out->tensors = tensors;
            out->elements = t->elements;
            snprintf(out->name, sizeof(out->name), "%s", t->name);
            write_place(t, d.first, out->place);
        }
    }
    return 0;
}
