/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of another size. Nearest neighbours are pixels that are read several times; a linear
 * resampling reads two neighbours in each direction, one direction after the other.
 */
#include "lower.h"

#include <math.h>

#include "ppcli/base/base.h"

/* The element that an output element begins at, and how much of the next one it takes. */
struct resampling {
    int32_t *from, *next;
    float *share;
};

static void free_resampling(struct resampling *r)
{
    pp_free(r->from);
    pp_free(r->next);
    pp_free(r->share);
}

static bool make_resampling(struct lower *l, int64_t count, struct resampling *r)
{
    r->from = pp_alloc((size_t)count, sizeof(*r->from));
    r->next = pp_alloc((size_t)count, sizeof(*r->next));
    r->share = pp_alloc((size_t)count, sizeof(*r->share));
    bool made = r->from && r->next && r->share;
    l->rc = made || l->rc < 0 ? l->rc : PP_ERESOURCE;
    return made;
}

/* Returns the elements of the input for one of the result: by the scale that was given, which need
 * not divide the sizes, else by the sizes. Dimension 2 is the first one. */
static double scale_of(const struct pt_node *n, int dim, int64_t has, int64_t wants)
{
    static const char *const names[] = {"scales_h", "scales_w"};
    const struct pt_arg *a = pt_arg_find(n, "scale_factors");
    if (a && a->kind == PT_FLOATS && a->n > dim - 2)
        return 1 / a->numbers[dim - 2];
    double given = dim < 4 ? lower_number(n, names[dim - 2], 0) : 0;
    return given > 0 ? 1 / given : (double)has / (double)wants;
}

static struct view read_image(struct lower *l, const struct pt_node *n)
{
    return lower_tensor(l, n, pt_arg_find(n, "input") ? "input" : "self");
}

static void lower_nearest(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct view v = read_image(l, n);
    for (int d = 2; d < v.n_dims; d++) {
        PP_OWN(free_resampling) struct resampling r = {NULL};
        int64_t has = view_size(&v, d).n, wants = type->dims[d].n;
        double scale = scale_of(n, d, has, wants);
        bool whole = wants % has == 0 && scale * (double)wants == (double)has;
        if (whole && !lower_repeat(l, &v, d, wants / has, true))
            return;
        if (whole)
            continue;
        if (!make_resampling(l, wants, &r))
            return;
        for (int64_t i = 0; i < wants; i++)
            r.from[i] = (int32_t)fmin(floor((double)i * scale), (double)(has - 1));
        if (!lower_take(l, &v, d, wants, r.from, &v))
            return;
    }
    if (v.n_dims >= 0)
        lower_set(l, n, 0, &v);
}

/* Resamples one dimension linearly. */
static bool resample(struct lower *l, const struct pt_node *n, struct view *v, int dim,
                     int64_t wants)
{
    PP_OWN(free_resampling) struct resampling r = {NULL};
    struct pt_size sizes[PT_DIMS], has = view_size(v, dim);
    bool corners = lower_flag(n, "align_corners", false);
    double scale = !corners    ? scale_of(n, dim, has.n, wants)
                   : wants > 1 ? (double)(has.n - 1) / (double)(wants - 1)
                               : 0;
    if (!make_resampling(l, wants, &r))
        return false;
    for (int64_t i = 0; i < wants; i++) {
        double at = corners ? (double)i * scale : fmax(((double)i + 0.5) * scale - 0.5, 0);
        int64_t from = (int64_t)fmin(floor(at), (double)(has.n - 1));
        r.from[i] = (int32_t)from;
        r.next[i] = (int32_t)(from + (from < has.n - 1));
        r.share[i] = (float)(at - (double)from);
    }
    const struct fold_constant shares = {.dtype = PT_F32,
                                         .n_dims = 1,
                                         .dims = {wants},
                                         .strides = {1},
                                         .batch_dim = -1,
                                         .n = wants,
                                         .floats = r.share};
    struct lower_operand x[3] = {{.view = *v}, {.view = *v}, {.view = lower_constant(l, &shares)}};
    while (x[2].view.n_dims >= 0 && x[2].view.n_dims < v->n_dims - dim)
        x[2].view = view_insert(&x[2].view, x[2].view.n_dims);
    for (int d = 0; d < v->n_dims; d++)
        sizes[d] = view_size(v, d);
    sizes[dim].n = wants;
    return lower_take(l, v, dim, wants, r.from, &x[0].view) &&
           lower_take(l, v, dim, wants, r.next, &x[1].view) &&
           lower_expand(l, &x[2].view, v->n_dims, sizes, &x[2].view) &&
           lower_compute(l, "a + c * (b - a)", 3, x, NULL, v);
}

static void lower_linear_sizes(struct lower *l, const struct pt_node *n, const struct lowering *row)
{
    const struct pt_tensor *type = lower_type(l, n, 0);
    struct view v = read_image(l, n);
    for (int d = 2; d < v.n_dims; d++)
        if (view_size(&v, d).n != type->dims[d].n && !resample(l, n, &v, d, type->dims[d].n))
            return;
    if (v.n_dims >= 0)
        lower_set(l, n, 0, &v);
}

const struct lowering lowerings_of_sizes[] = {
    LOWER("aten.upsample_nearest1d.vec", lower_nearest, .general = true),
    LOWER("aten.upsample_nearest2d.vec", lower_nearest, .general = true),
    LOWER("aten.upsample_nearest2d.default", lower_nearest, .general = true),
    LOWER("aten.upsample_linear1d.vec", lower_linear_sizes, .general = true),
    LOWER("aten.upsample_bilinear2d.vec", lower_linear_sizes, .general = true),
    LOWER("aten.upsample_bilinear2d.default", lower_linear_sizes, .general = true),
    {.target = NULL},
};
