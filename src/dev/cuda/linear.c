/* SPDX-License-Identifier: Apache-2.0 */
/* The linear layer's ops: operands to where the products read them, the product, the rest. */
#include "plan.h"

/* --- operands --------------------------------------------------------------------------------- */

/* Scratch of one op: sized first, then taken piece by piece. */
struct pieces {
    size_t bytes;
    char *next;
};

static size_t padded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % CUDA_OPERAND_ALIGN == 0;
}

static void *take(struct pieces *s, size_t bytes)
{
    void *p = s->next;
    s->next += padded(bytes);
    return p;
}

/* An array that a product reads: in f32 where it is, unless that is no place to read from; in
 * bf16 a copy. */
struct factor {
    const float *from; /* f32 */
    const void *ready; /* what the product reads; NULL: still to be made */
    size_t n;
};

static struct factor factor(const struct cuda *c, const float *from, const float *packed, size_t n)
{
    struct factor f = {.from = from, .n = n};
    const float *there = c->precision == PP_PRECISION_BF16 ? packed : from;
    f.ready = there && aligned(there) ? there : NULL;
    return f;
}

static size_t bytes_of(const struct cuda *c, size_t n)
{
    return n * (c->precision == PP_PRECISION_BF16 ? sizeof(uint16_t) : sizeof(float));
}

static void plan_factor(const struct cuda *c, const struct factor *f, struct pieces *s)
{
    s->bytes += f->ready ? 0 : padded(bytes_of(c, f->n));
}

static int make_factor(const struct cuda *c, struct factor *f, struct pieces *s)
{
    if (f->ready) {
        return 0;
    }
    void *to = take(s, bytes_of(c, f->n));
    if (c->precision == PP_PRECISION_BF16) {
        CUDA_TRY(c->device, kernels_to_bf16(c->stream, f->n, f->from, to));
    } else {
        CUDA_TRY(c->device, cudaMemcpyAsync(to, f->from, f->n * sizeof(float),
                                            cudaMemcpyDeviceToDevice, c->stream));
    }
    f->ready = to;
    return 0;
}

/* An f32 array that a product reads or writes beside its factors, or a copy of it where that is no
 * place to do so. */
struct place {
    float *at, *real;
    size_t n;
};

static struct place place(float *real, size_t n)
{
    return (struct place){.at = aligned(real) ? real : NULL, .real = real, .n = n};
}

static void plan_place(const struct place *p, struct pieces *s)
{
    s->bytes += p->at ? 0 : padded(p->n * sizeof(float));
}

static int make_place(const struct cuda *c, struct place *p, bool read, struct pieces *s)
{
    if (!p->at) {
        p->at = take(s, p->n * sizeof(float));
        if (read) {
            CUDA_TRY(c->device, cudaMemcpyAsync(p->at, p->real, p->n * sizeof(float),
                                                cudaMemcpyDeviceToDevice, c->stream));
        }
    }
    return 0;
}

static int bring_home(const struct cuda *c, const struct place *p)
{
    if (p->at != p->real) {
        CUDA_TRY(c->device, cudaMemcpyAsync(p->real, p->at, p->n * sizeof(float),
                                            cudaMemcpyDeviceToDevice, c->stream));
    }
    return 0;
}

static int open_pieces(struct cuda *c, struct pieces *s)
{
    void *scratch = NULL;
    if (s->bytes > 0) {
        PP_TRY(cuda_scratch(c, s->bytes, &scratch));
    }
    s->next = scratch;
    return 0;
}

static int multiply(const struct cuda *c, const struct cuda_plan *p, const void *first,
                    const void *second, float *result, float *bias)
{
    struct cuda_operands o = {first, second, result, bias};
    cublasStatus_t s = cuda_plan_multiply(c, p, &o, c->workspace, c->stream);
    return s == CUBLAS_STATUS_SUCCESS
               ? 0
               : cuda_blas_failed(c->device, c->blas, "cublasLtMatmul(", s, __FILE__, __LINE__);
}

/* --- ops -------------------------------------------------------------------------------------- */

/* Floats that hold O*I bf16 values. */
size_t cuda_packed_floats(const struct pp_backend_choice *choice, int O, int I)
{
    return choice->precision == PP_PRECISION_BF16 ? ((size_t)O * (size_t)I + 1) / 2 : 0;
}

int cuda_pack_weights(struct pp_backend *be, int O, int I, const float *W, float *packed)
{
    struct cuda *c = cuda_of(be);
    CUDA_TRY(c->device, kernels_to_bf16(c->stream, (size_t)O * (size_t)I, W, (uint16_t *)packed));
    return 0;
}

/* y[B][O] = act(x[B][I] * W[O][I]^T + b[O]) */
int cuda_linear_forward(struct pp_backend *be, int B, int I, int O, const float *x, const float *W,
                        const float *packed, const float *b, enum pp_activation act, float *z,
                        float *y)
{
    struct cuda *c = cuda_of(be);
    if (B == 0) {
        return 0;
    }
    struct cuda_shape shape = {
        .product = CUDA_FORWARD, .B = B, .I = I, .O = O, .act = act, .keeps_z = z != NULL};
    const struct cuda_plan *p;
    PP_TRY(cuda_plan_for(c, &shape, &p));
    struct factor first = factor(c, W, packed, (size_t)O * (size_t)I);
    struct factor second = factor(c, x, NULL, (size_t)B * (size_t)I);
    struct place result = place(z ? z : y, (size_t)B * (size_t)O);
    struct place bias = place((float *)b, (size_t)O);
    struct pieces s = {0};
    plan_factor(c, &first, &s);
    plan_factor(c, &second, &s);
    plan_place(&result, &s);
    plan_place(&bias, &s);
    PP_TRY(open_pieces(c, &s));
    PP_TRY(make_factor(c, &first, &s));
    PP_TRY(make_factor(c, &second, &s));
    PP_TRY(make_place(c, &result, false, &s));
    PP_TRY(make_place(c, &bias, true, &s));
    PP_TRY(multiply(c, p, first.ready, second.ready, result.at, bias.at));
    CUDA_TRY(c->device, cuda_plan_finish_forward(p, result.at, b, z, y, c->stream));
    return 0;
}

/* dx[B][I] = dz[B][O] * W[O][I] */
int cuda_linear_backward_input(struct pp_backend *be, int B, int I, int O, const float *dz,
                               const float *W, const float *packed, float *dx)
{
    struct cuda *c = cuda_of(be);
    if (B == 0) {
        return 0;
    }
    struct cuda_shape shape = {.product = CUDA_BACKWARD_INPUT, .B = B, .I = I, .O = O};
    const struct cuda_plan *p;
    PP_TRY(cuda_plan_for(c, &shape, &p));
    struct factor first = factor(c, W, packed, (size_t)O * (size_t)I);
    struct factor second = factor(c, dz, NULL, (size_t)B * (size_t)O);
    struct place result = place(dx, (size_t)B * (size_t)I);
    struct pieces s = {0};
    plan_factor(c, &first, &s);
    plan_factor(c, &second, &s);
    plan_place(&result, &s);
    PP_TRY(open_pieces(c, &s));
    PP_TRY(make_factor(c, &first, &s));
    PP_TRY(make_factor(c, &second, &s));
    PP_TRY(make_place(c, &result, false, &s));
    PP_TRY(multiply(c, p, first.ready, second.ready, result.at, NULL));
    return bring_home(c, &result);
}

/* One part with rows: dW = beta*dW + dz^T * x, db = beta*db + column sums of dz. */
static int weight_part(struct cuda *c, const struct pp_weight_part *part, int I, int O, float beta,
                       float *dW, float *db)
{
    struct cuda_shape shape = {
        .product = CUDA_BACKWARD_WEIGHT, .B = part->B, .I = I, .O = O, .adds = beta != 0.0f};
    const struct cuda_plan *p;
    PP_TRY(cuda_plan_for(c, &shape, &p));
    struct factor first = factor(c, part->x, NULL, (size_t)part->B * (size_t)I);
    struct factor second = factor(c, part->dz, NULL, (size_t)part->B * (size_t)O);
    struct place result = place(dW, (size_t)O * (size_t)I), bias = place(db, (size_t)O);
    bool fused = p->fusion == CUDA_BIAS_GRADIENT;
    struct pieces s = {0};
    plan_factor(c, &first, &s);
    plan_factor(c, &second, &s);
    plan_place(&result, &s);
    plan_place(&bias, &s);
    PP_TRY(open_pieces(c, &s));
    PP_TRY(make_factor(c, &first, &s));
    PP_TRY(make_factor(c, &second, &s));
    PP_TRY(make_place(c, &result, shape.adds, &s));
    if (fused) {
        PP_TRY(make_place(c, &bias, false, &s));
    }
    PP_TRY(multiply(c, p, first.ready, second.ready, result.at, bias.at));
    PP_TRY(bring_home(c, &result));
    if (fused) {
        return bring_home(c, &bias);
    }
    CUDA_TRY(c->device, cuda_plan_finish_weight(p, part->dz, beta, db, c->stream));
    return 0;
}

int cuda_linear_backward_weight(struct pp_backend *be, int n, const struct pp_weight_part *parts,
                                int I, int O, float beta, float *dW, float *db)
{
    struct cuda *c = cuda_of(be);
    for (int k = 0; k < n; k++) {
        if (parts[k].B > 0) {
            PP_TRY(weight_part(c, &parts[k], I, O, beta, dW, db));
            beta = 1.0f;
        }
    }
    if (beta == 0.0f) { /* no rows at all */
        PP_TRY(cuda_zero(be, dW, (size_t)O * (size_t)I * sizeof(*dW)));
        PP_TRY(cuda_zero(be, db, (size_t)O * sizeof(*db)));
    }
    return 0;
}
