/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A constant or a parameter as a value, which other nodes read as an operand. It has one row in
 * memory; the gradient of the parameter is the sum of the gradients of all samples, in their order.
 */
#include <string.h>

#include "../nn.h"

static size_t floats_of(const struct pp_node *n)
{
    return pp_shape_floats(&n->out);
}

static void workspace(const struct pp_node *n, const struct pp_backend_choice *choice, int rows,
                      struct pp_workspace *out)
{
    out->packed = n->setup ? floats_of(n) : 0;
}

static int pack(const struct pp_node *n, struct pp_backend *be, const float *params, float *packed)
{
    return pp_backend_to_device(be, packed, n->setup, floats_of(n) * sizeof(*packed));
}

static int forward(const struct pp_node *n, struct pp_backend *be, const struct pp_at *at)
{
    return pp_backend_gather(be, &(struct pp_gather){.B = 1,
                                                     .F = (int)floats_of(n),
                                                     .data = n->setup ? at->packed : at->params,
                                                     .element = PP_F32,
                                                     .stride = floats_of(n),
                                                     .scaling = {.scale = {1}},
                                                     .x = at->y});
}

/* Adds the rows of dy to grads, or writes their sum. */
static int add_rows(const struct pp_node *n, struct pp_backend *be, int rows, const pp_value *dy,
                    bool add, float *grads)
{
    struct pp_expr e = {.n_axes = 2,
                        .size = {rows, (int)floats_of(n)},
                        .n_in = 1,
                        .n_out = 1,
                        .n_steps = 2,
                        .in = {{.stride = {(int)floats_of(n), 1}, .table_axis = -1}},
                        .out = {{.stride = {0, 1}, .table_axis = -1, .f32 = true}},
                        .steps = {{.code = PP_EXPR_LOAD}, {.code = PP_EXPR_STORE}}};
    pp_expr_finish(&e);
    return pp_backend_expr(
        be, &(struct pp_expr_run){.B = 1, .e = &e, .x = {dy}, .add = {add}, .y = {grads}});
}

static int backward_weight(const struct pp_node *n, struct pp_backend *be, int n_parts,
                           const struct pp_weight_part *parts, float beta, float *scratch,
                           float *grads)
{
    bool add = beta != 0;
    for (int k = 0; k < n_parts; k++) {
        if (parts[k].B == 0)
            continue;
        PP_TRY(add_rows(n, be, parts[k].B, parts[k].dz, add, grads));
        add = true;
    }
    return add ? 0 : pp_backend_zero(be, grads, floats_of(n) * sizeof(*grads));
}

/* A sum of as many gradients as there are rows; 2 covers roundings. */
static double bound(const struct pp_node *n, int rows, float x, float dz)
{
    return 2.0 * rows * (double)dz;
}

const struct pp_node_op op_source = {
    .name = "operand",
    .kernels = PP_USES(gather) | PP_USES(expr),
    .workspace = workspace,
    .bound = bound,
    .pack = pack,
    .forward = forward,
    .backward_weight = backward_weight,
};

static struct pp_node *add_source(struct builder *b, const char *name, struct pp_shape out)
{
    struct pp_node *n = add_node_of(b, &op_source, name, 0, NULL, out);
    if (n)
        n->one_row = true;
    return n;
}

int source_constant(struct builder *b, const char *name, const float *table, struct pp_shape out)
{
    size_t floats = pp_shape_floats(&out);
    struct pp_node *n = add_source(b, name, out);
    float *copy = n ? pp_alloc(floats, sizeof(*copy)) : NULL;
    if (!n)
        return 0;
    if (!copy) {
        b->rc = PP_ERESOURCE;
        return 0;
    }
    memcpy(copy, table, floats * sizeof(*copy));
    n->setup = copy;
    n->free_setup = pp_free;
    hash_bytes(&n->setup_hash, copy, floats * sizeof(*copy));
    return n->y;
}

int source_param(struct builder *b, const char *name, enum pp_param_kind kind, struct pp_shape out)
{
    struct pp_node *n = add_source(b, name, out);
    if (!n)
        return 0;
    n->reads = PP_READS_DY_IN_W;
    return add_param(b, "weight", kind, out.n, out.dims) ? n->y : 0;
}
