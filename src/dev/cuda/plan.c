/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"

/* ---- descriptions for the library */

static int set_product_attribute(struct cuda *c, struct cuda_plan *p,
                                 cublasLtMatmulDescAttributes_t what, const void *value,
                                 size_t bytes)
{
    BLAS_TRY(c, MatmulDescSetAttribute(p->product, what, value, bytes));
    return 0;
}

static int make_product(struct cuda *c, struct cuda_plan *p)
{
    static const cublasLtEpilogue_t epilogues[] = {
        [CUDA_ALONE] = CUBLASLT_EPILOGUE_DEFAULT,
        [CUDA_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [CUDA_BIAS_RELU] = CUBLASLT_EPILOGUE_RELU_BIAS,
        [CUDA_BIAS_GRADIENT] = CUBLASLT_EPILOGUE_BGRADB,
    };
    cublasComputeType_t compute =
        c->precision == PP_PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    BLAS_TRY(c, MatmulDescCreate(&p->product, compute, CUDA_R_32F));
    cublasOperation_t first = p->shape.product == CUDA_FORWARD ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->shape.product == CUDA_BACKWARD_WEIGHT ? CUBLAS_OP_T : CUBLAS_OP_N;
    PP_TRY(set_product_attribute(c, p, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)));
    PP_TRY(set_product_attribute(c, p, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)));
    PP_TRY(set_product_attribute(c, p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[p->fusion],
                                 sizeof(epilogues[p->fusion])));
    if (p->fusion != CUDA_ALONE) {
        /* tells the search the least alignment that the real biases have */
        const char *bias = (const char *)c->between + CUDA_OPERAND_ALIGN;
        bool db = p->fusion == CUDA_BIAS_GRADIENT;
        cudaDataType_t type = p->bf16 && !db ? CUDA_R_16BF : CUDA_R_32F;
        PP_TRY(set_product_attribute(c, p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
        PP_TRY(
            set_product_attribute(c, p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type)));
    }
    /* With exact the choice must not depend on the rank's piece of the device. */
    if (!c->exact && c->processors < c->of_processors) {
        int32_t processors = c->processors;
        PP_TRY(set_product_attribute(c, p, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &processors,
                                     sizeof(processors)));
    }
    return 0;
}

/* Describes a row-major array [rows][columns], whose rows are `row` elements apart, to cuBLASLt as
 * the column-major array [columns][rows]. */
static int make_layout(struct cuda *c, cudaDataType_t type, int rows, int columns, int row,
                       int slices, cublasLtMatrixLayout_t *out)
{
    int64_t each = (int64_t)rows * row;
    BLAS_TRY(c, MatrixLayoutCreate(out, type, (uint64_t)columns, (uint64_t)rows, row));
    if (slices > 1) { /* one array after the other */
        BLAS_TRY(c, MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &slices,
                                             sizeof(slices)));
        BLAS_TRY(c, MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &each, sizeof(each)));
    }
    return 0;
}

int cuda_plan_init(struct cuda *c, const struct cuda_shape *s, enum cuda_fusion fusion,
                   struct cuda_plan *p)
{
    *p = (struct cuda_plan){.shape = *s, .bf16 = c->bf16, .fusion = fusion};
    PP_TRY(make_product(c, p));
    cudaDataType_t factors = c->bf16 ? CUDA_R_16BF : CUDA_R_32F;
    bool weight = s->product == CUDA_BACKWARD_WEIGHT, forward = s->product == CUDA_FORWARD;
    PP_TRY(make_layout(c, factors, weight ? s->B : s->O, s->I, s->I, s->slices, &p->first));
    PP_TRY(make_layout(c, factors, s->B, forward ? s->I : s->O, forward ? s->I : s->row, s->slices,
                       &p->second));
    return make_layout(c, weight ? CUDA_R_32F : factors, weight ? s->O : s->B,
                       forward ? s->O : s->I, forward ? s->row : s->I, s->slices, &p->result);
}

void cuda_plan_fini(struct cuda *c, struct cuda_plan *p)
{
    cublasLtMatrixLayout_t layouts[] = {p->first, p->second, p->result};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        if (layouts[i])
            c->blas->MatrixLayoutDestroy(layouts[i]);
    if (p->product)
        c->blas->MatmulDescDestroy(p->product);
    *p = (struct cuda_plan){0};
}

/* ---- finding a plan */

/* Finds the fusion and the algorithm that all ranks of the device use for a shape. The first rank
 * that asks chooses them while the others wait, so that a measurement runs alone and all ranks get
 * the same answer. */
static int find_answer(struct cuda *c, const struct cuda_shape *s, enum cuda_fusion *fusion,
                       cublasLtMatmulAlgo_t *algorithm)
{
    struct cuda_choice **list = cuda_device_choices(c->shared), *known = *list;
    while (known && !(cuda_shapes_equal(&known->shape, s) && known->precision == c->precision &&
                      known->exact == c->exact && known->processors == c->processors))
        known = known->next;
    int rc = 0;
    if (!known) {
        known = pp_alloc(1, sizeof(*known));
        rc = known ? cuda_choose(c, s, &known->fusion, &known->algorithm) : PP_ERESOURCE;
        if (rc == 0) {
            known->shape = *s;
            known->precision = c->precision;
            known->exact = c->exact;
            known->processors = c->processors;
            known->next = *list;
            *list = known;
        } else {
            pp_free(known);
        }
    }
    if (rc == 0) {
        *fusion = known->fusion;
        *algorithm = known->algorithm;
    }
    cuda_device_choices_done(c->shared);
    return rc;
}

int cuda_plan_for(struct cuda *c, const struct cuda_shape *s, const struct cuda_plan **out)
{
    for (int i = 0; i < c->n_plans; i++) {
        if (cuda_shapes_equal(&c->plans[i].shape, s)) {
            *out = &c->plans[i];
            return 0;
        }
    }
    enum cuda_fusion fusion = CUDA_ALONE;
    cublasLtMatmulAlgo_t algorithm = {0};
    PP_TRY(find_answer(c, s, &fusion, &algorithm));
    PP_RESERVE(c->plans, c->n_plans, c->plan_capacity);
    struct cuda_plan *p = &c->plans[c->n_plans];
    PP_TRY_UNDO(cuda_plan_init(c, s, fusion, p), cuda_plan_fini(c, p));
    p->algorithm = algorithm;
    c->n_plans++;
    *out = p;
    return 0;
}

void cuda_plans_free(struct cuda *c)
{
    while (c->n_plans > 0)
        cuda_plan_fini(c, &c->plans[--c->n_plans]);
    pp_free(c->plans);
    c->plans = NULL;
    c->plan_capacity = 0;
}

void cuda_choices_free(struct cuda_choice *list)
{
    while (list) {
        struct cuda_choice *next = list->next;
        pp_free(list);
        list = next;
    }
}

/* ---- using a plan */

cublasStatus_t cuda_plan_multiply(const struct cuda *c, const struct cuda_plan *p,
                                  const struct cuda_operands *o, void *workspace,
                                  cudaStream_t stream)
{
    float one = 1.0f, beta = p->shape.adds ? 1.0f : 0.0f;
    if (p->fusion != CUDA_ALONE) {
        cublasStatus_t s = c->blas->MatmulDescSetAttribute(
            p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias, sizeof(o->bias));
        if (s != CUBLAS_STATUS_SUCCESS)
            return s;
    }
    return c->blas->Matmul(c->handle, p->product, &one, o->first, p->first, o->second, p->second,
                           &beta, o->result, p->result, o->result, p->result, &p->algorithm,
                           workspace, c->workspace_bytes, stream);
}

cudaError_t cuda_plan_finish_forward(const struct cuda_plan *p, const float *product,
                                     const float *b, float *z, float *y, cudaStream_t stream)
{
    int act = p->fusion == CUDA_BIAS_RELU ? PP_ACT_NONE : p->shape.act;
    b = p->fusion == CUDA_ALONE ? b : NULL;
    z = product == z && !b ? NULL : z; /* z is already there */
    if (!b && !z && act == PP_ACT_NONE && product == y)
        return cudaSuccess;
    return kernels_bias_activation(stream, p->bf16, p->shape.B, p->shape.row, product, b, act, z,
                                   y);
}

struct cuda_sum cuda_plan_bias(const struct cuda_plan *p, const float *dz, float *db, bool adds)
{
    db = p->fusion == CUDA_BIAS_GRADIENT ? NULL : db;
    int rows = p->shape.B * (p->shape.slices > 1 ? p->shape.slices : 1);
    return (struct cuda_sum){.dz = dz, .db = db, .rows = rows, .C = p->shape.O, .adds = adds};
}
