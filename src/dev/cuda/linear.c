/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the linear layer: each brings operands to where the product reads them, multiplies,
 * and does the rest. */
#include "plan.h"
#include "ppcli/conf/config.h"

/* ---- operands */

/* Rounds the size of a part of the scratch up, so that the next part is aligned. */
static size_t pad_bytes(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static bool is_operand_aligned(const void *p)
{
    return (uintptr_t)p % CUDA_OPERAND_ALIGN == 0;
}

/* An array that a product reads or writes. If its address does not suit a product, or a parameter
 * is needed in bf16, the product works on a copy. */
struct operand {
    void *home; /* NULL: the product does not have this operand */
    void *at;   /* the array that the product uses; NULL: a copy has to be made */
    size_t bytes;
    size_t casts; /* home is that many floats, of which the product needs a bf16 copy; 0: no
                     conversion */
};

static struct operand place_operand(const void *home, size_t bytes)
{
    void *p = (void *)home;
    return (struct operand){.home = p, .at = is_operand_aligned(p) ? p : NULL, .bytes = bytes};
}

/* Returns an operand [n][m] of values, which are f32 or bf16. */
static struct operand value_operand(const struct cuda *c, const float *home, int n, int m)
{
    return place_operand(home,
                         (size_t)n * (size_t)m * (c->bf16 ? sizeof(uint16_t) : sizeof(float)));
}

/* Returns the offset of b, in floats, in the packed weights that pack_weights() makes. */
static size_t packed_bias_at(int O, int I)
{
    size_t line = CUDA_OPERAND_ALIGN / sizeof(float);
    return ((size_t)O * (size_t)I + 2 * line - 1) / (2 * line) * line;
}

/* Returns an operand of n floats of W or b. In bf16 the product reads a copy: `packed`, unless that
 * is NULL. */
static struct operand parameter_operand(const struct cuda *c, const float *from,
                                        const float *packed, size_t n)
{
    if (!c->bf16)
        return place_operand(from, n * sizeof(float));
    struct operand o = place_operand(packed, n * sizeof(uint16_t));
    o.home = (void *)from;
    o.casts = n;
    return o;
}

static size_t copy_bytes(const struct operand *o)
{
    return !o->home || o->at ? 0 : pad_bytes(o->bytes);
}

/* Makes a copy of the operand at *next and moves *next past it, if the product needs a copy. Fills
 * the copy if the product reads it (`read`). */
static int make_copy(const struct cuda *c, struct operand *o, bool read, char **next)
{
    if (!o->home || o->at)
        return 0;
    size_t bytes = copy_bytes(o);
    o->at = *next;
    *next += bytes;
    if (o->casts > 0) {
        CUDA_TRY(c->device, kernels_to_bf16(c->stream, o->casts, o->home, o->at));
    } else if (read) {
        CUDA_TRY(c->device,
                 cudaMemcpyAsync(o->at, o->home, o->bytes, cudaMemcpyDeviceToDevice, c->stream));
    }
    return 0;
}

static int bring_home(const struct cuda *c, const struct operand *o)
{
    if (o->at != o->home) {
        CUDA_TRY(c->device,
                 cudaMemcpyAsync(o->home, o->at, o->bytes, cudaMemcpyDeviceToDevice, c->stream));
    }
    return 0;
}

/* Returns the length of a row: `row` of the op's struct, where 0 means O. */
static int row_length(int row, int O)
{
    return row > 0 ? row : O;
}

/* ---- products */

/* A product with all its operands. */
struct job {
    const struct cuda_plan *plan;
    struct operand first, second, result, bias;
};

static size_t job_bytes(const struct job *j)
{
    return copy_bytes(&j->first) + copy_bytes(&j->second) + copy_bytes(&j->result) +
           copy_bytes(&j->bias);
}

static int settle_operand(struct cuda *c, const struct operand *o, bool writes)
{
    bool casts = !o->at && o->casts > 0;
    return cuda_settle(c, o->at ? o->at : o->home, casts ? o->casts * sizeof(float) : o->bytes,
                       writes);
}

/* Runs a product: launches the waiting calls that its operands depend on, makes the copies that it
 * needs, and multiplies. */
static int run_job(struct cuda *c, struct job *j)
{
    void *scratch = NULL;
    size_t bytes = job_bytes(j);
    PP_TRY(settle_operand(c, &j->first, false));
    PP_TRY(settle_operand(c, &j->second, false));
    PP_TRY(settle_operand(c, &j->result, true));
    PP_TRY(settle_operand(c, &j->bias, j->plan->fusion == CUDA_BIAS_GRADIENT));
    if (bytes > 0)
        PP_TRY(cuda_scratch(c, bytes, &scratch));
    char *next = scratch;
    PP_TRY(make_copy(c, &j->first, true, &next));
    PP_TRY(make_copy(c, &j->second, true, &next));
    PP_TRY(make_copy(c, &j->result, j->plan->shape.adds, &next));
    PP_TRY(make_copy(c, &j->bias, j->plan->fusion != CUDA_BIAS_GRADIENT, &next));
    struct cuda_operands o = {j->first.at, j->second.at, j->result.at, j->bias.at};
    cublasStatus_t status = cuda_plan_multiply(c, j->plan, &o, c->workspace, c->stream);
    return status == CUBLAS_STATUS_SUCCESS ? 0
                                           : cuda_blas_failed(c->device, c->blas, "cublasLtMatmul(",
                                                              status, __FILE__, __LINE__);
}

static int forward_job(struct cuda *c, const struct pp_linear_forward *a, struct job *j)
{
    struct cuda_shape shape = {.product = CUDA_FORWARD,
                               .B = a->B,
                               .I = a->I,
                               .O = a->O,
                               .act = a->act,
                               .keeps_z = a->z,
                               .bias = a->b,
                               .row = row_length(a->row, a->O)};
    pp_assert(shape.row == a->O || (!a->b && !a->z && a->act == PP_ACT_NONE));
    *j = (struct job){.first = parameter_operand(c, a->W, a->packed, (size_t)a->O * (size_t)a->I),
                      .second = value_operand(c, a->x, a->B, a->I),
                      .result = value_operand(c, a->z ? a->z : a->y, a->B, shape.row)};
    PP_TRY(cuda_plan_for(c, &shape, &j->plan));
    if (j->plan->fusion != CUDA_ALONE)
        j->bias = parameter_operand(
            c, a->b, a->packed ? a->packed + packed_bias_at(a->O, a->I) : NULL, (size_t)a->O);
    return 0;
}

static int input_job(struct cuda *c, const struct pp_linear_backward_input *a, bool adds,
                     struct job *j)
{
    struct cuda_shape shape = {.product = CUDA_BACKWARD_INPUT,
                               .B = a->B,
                               .I = a->I,
                               .O = a->O,
                               .adds = adds,
                               .row = row_length(a->row, a->O)};
    *j = (struct job){.first = parameter_operand(c, a->W, a->packed, (size_t)a->O * (size_t)a->I),
                      .second = value_operand(c, a->dz, a->B, shape.row),
                      .result = value_operand(c, a->dx, a->B, a->I)};
    return cuda_plan_for(c, &shape, &j->plan);
}

/* Prepares the product of the first part only. If the rows are cut into slices, the product gives a
 * sum for each slice, which the caller adds to dW. */
static int weight_job(struct cuda *c, const struct pp_linear_backward_weight *a, struct job *j)
{
    const struct pp_weight_part *part = a->parts;
    int slices = c->exact ? cuda_weight_slices(part->B, a->I, a->O) : 1;
    struct cuda_shape shape = {.product = CUDA_BACKWARD_WEIGHT,
                               .B = part->B / slices,
                               .I = a->I,
                               .O = a->O,
                               .bias = a->db,
                               .adds = slices == 1 && a->beta != 0,
                               .slices = slices,
                               .row = row_length(a->row, a->O)};
    pp_assert(shape.row == a->O || !a->db);
    float *result = a->dW;
    if (slices > 1)
        PP_TRY(cuda_slices(c, cuda_result_count(&shape), &result));
    *j = (struct job){.first = value_operand(c, part->x, part->B, a->I),
                      .second = value_operand(c, part->dz, part->B, shape.row),
                      .result = place_operand(result, cuda_result_count(&shape) * sizeof(*result))};
    PP_TRY(cuda_plan_for(c, &shape, &j->plan));
    if (j->plan->fusion == CUDA_BIAS_GRADIENT)
        j->bias = place_operand(a->db, (size_t)a->O * sizeof(*a->db));
    return 0;
}

/* ---- ops */

/* Returns how many floats of memory W[O][I] and b[O] take in bf16. */
size_t cuda_packed_floats(const struct pp_backend_choice *choice, int O, int I)
{
    size_t floats = packed_bias_at(O, I) + ((size_t)O + 1) / 2;
    return choice->precision == PP_PRECISION_BF16 ? floats : 0;
}

static int pack_array(struct pp_backend *be, size_t n, const float *from, float *to)
{
    struct cuda *c = cuda_of(be);
    uint16_t *copy = (uint16_t *)to;
    bool waits;
    PP_TRY(cuda_update_copies(c, n, from, copy, &waits));
    return waits ? 0 : CUDA_CALL(be, kernels_to_bf16(c->stream, n, from, copy));
}

int cuda_pack_weights(struct pp_backend *be, int O, int I, const float *W, const float *b,
                      float *packed)
{
    PP_TRY(pack_array(be, (size_t)O * (size_t)I, W, packed));
    return b ? pack_array(be, (size_t)O, b, packed + packed_bias_at(O, I)) : 0;
}

int cuda_linear_forward(struct pp_backend *be, const struct pp_linear_forward *a)
{
    struct cuda *c = cuda_of(be);
    struct job j;
    if (a->B == 0)
        return 0;
    PP_TRY(forward_job(c, a, &j));
    PP_TRY(run_job(c, &j));
    return CUDA_CALL(be,
                     cuda_plan_finish_forward(j.plan, j.result.at, a->b, a->z, a->y, c->stream));
}

int cuda_linear_backward_input(struct pp_backend *be, const struct pp_linear_backward_input *a)
{
    return cuda_input_product(be, a, false);
}

int cuda_input_product(struct pp_backend *be, const struct pp_linear_backward_input *a, bool adds)
{
    struct cuda *c = cuda_of(be);
    struct job j;
    if (a->B == 0)
        return 0;
    PP_TRY(input_job(c, a, adds, &j));
    PP_TRY(run_job(c, &j));
    return bring_home(c, &j.result);
}

/* Computes the weight gradient of the first part only, which must have rows. */
static int weight_part(struct cuda *c, const struct pp_linear_backward_weight *a)
{
    struct job j;
    PP_TRY(weight_job(c, a, &j));
    PP_TRY(run_job(c, &j));
    PP_TRY(bring_home(c, &j.result));
    if (j.plan->shape.slices > 1)
        PP_TRY(cuda_add_sum(c, &(struct cuda_sum){.dz = j.result.home,
                                                  .db = a->dW,
                                                  .rows = j.plan->shape.slices,
                                                  .C = a->O * a->I,
                                                  .adds = a->beta != 0,
                                                  .slices = true}));
    if (j.bias.home)
        return bring_home(c, &j.bias);
    const struct cuda_sum sum = cuda_plan_bias(j.plan, a->parts->dz, a->db, a->beta != 0);
    return sum.db ? cuda_add_sum(c, &sum) : 0;
}

int cuda_linear_backward_weight(struct pp_backend *be, const struct pp_linear_backward_weight *a)
{
    struct pp_linear_backward_weight part = *a;
    for (; part.parts < a->parts + a->n; part.parts++) {
        if (part.parts->B > 0) {
            PP_TRY(weight_part(cuda_of(be), &part));
            part.beta = 1.0f;
        }
    }
    if (part.beta == 0.0f) { /* there were no rows at all */
        PP_TRY(cuda_zero(be, a->dW, (size_t)a->O * (size_t)a->I * sizeof(*a->dW)));
        PP_TRY(a->db ? cuda_zero(be, a->db, (size_t)a->O * sizeof(*a->db)) : 0);
    }
    return 0;
}

/* Makes the plans of all products of the layer, and scratch for the largest of them. Arrays of rows
 * are aligned, so any aligned address may stand for them here. */
int cuda_prepare_linear(struct pp_backend *be, const struct pp_linear_use *u)
{
    float somewhere[64] __attribute__((aligned(CUDA_OPERAND_ALIGN))) = {0};
    struct cuda *c = cuda_of(be);
    struct pp_weight_part part = {.B = u->B, .dz = somewhere, .x = somewhere};
    struct pp_linear_forward forward = {.B = u->B,
                                        .I = u->I,
                                        .O = u->O,
                                        .x = somewhere,
                                        .W = u->W,
                                        .packed = u->packed,
                                        .b = u->b,
                                        .act = u->act,
                                        .z = u->keeps_z ? somewhere : NULL,
                                        .y = somewhere,
                                        .row = u->row};
    struct pp_linear_backward_input input = {u->B, u->I,      u->O,      somewhere,
                                             u->W, u->packed, somewhere, u->row};
    struct pp_linear_backward_weight weight = {1, &part, u->I, u->O, 0, u->dW, u->db, u->row};
    struct job jobs[5];
    int n = 0;
    if (u->B == 0)
        return 0;
    PP_TRY(forward_job(c, &forward, &jobs[n++]));
    if (u->dx)
        PP_TRY(input_job(c, &input, false, &jobs[n++]));
    if (u->dx && u->adds)
        PP_TRY(input_job(c, &input, true, &jobs[n++]));
    for (; u->dW && weight.beta <= 1; weight.beta++)
        PP_TRY(weight_job(c, &weight, &jobs[n++]));
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        size_t more = job_bytes(&jobs[i]);
        bytes = more > bytes ? more : bytes;
    }
    void *scratch;
    return bytes > 0 ? cuda_scratch(c, bytes, &scratch) : 0;
}
