/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a product of one shape is computed: what cuBLASLt does in the same launch, by which
 * algorithm. Decided when the shape is first seen, then kept.
 *
 * Matrices are row-major here and column-major there, so that each product is stated transposed:
 *
 *   forward          y^T[O][B]  = W[O][I] * x^T[I][B]        factors W, x
 *   backward_input   dx^T[I][B] = W^T[I][O] * dz^T[O][B]     factors W, dz
 *   backward_weight  dW^T[I][O] = x^T[I][B] * dz[B][O]       factors x, dz
 *
 * All factors and results lie at CUDA_OPERAND_ALIGN bytes boundaries, or are copied there first:
 * the algorithm, and with it the bits, depend on the shape and not on the addresses.
 */
#ifndef PPCLI_DEV_CUDA_PLAN_H
#define PPCLI_DEV_CUDA_PLAN_H

#include "cuda_impl.h"

#define CUDA_OPERAND_ALIGN 16

enum cuda_product {
    CUDA_FORWARD,
    CUDA_BACKWARD_INPUT,
    CUDA_BACKWARD_WEIGHT
};

/* What the launch of the product does besides. */
enum cuda_fusion {
    CUDA_ALONE,
    CUDA_BIAS,         /* forward: + b */
    CUDA_BIAS_RELU,    /* forward: relu(+ b) */
    CUDA_BIAS_GRADIENT /* backward_weight: db */
};
#define CUDA_FUSIONS 4

/* What is asked for. Two of the same content are the same question. */
struct cuda_shape {
    enum cuda_product product;
    int B, I, O;
    int act;      /* enum pp_activation, forward */
    bool keeps_z; /* forward: the value before act is wanted too */
    bool bias;    /* forward: b; backward_weight: db */
    bool adds;    /* backward: to what the result holds */
    int slices;   /* backward_weight: products in the launch, of B rows each; 0: one */
    int row; /* elements from one row of y, or dz, to the next: O, without bias and act perhaps more */
};

/* A question and its answer, known to all ranks of the device. */
struct cuda_choice {
    struct cuda_shape shape;
    enum pp_precision precision;
    bool exact;
    int processors;
    enum cuda_fusion fusion;
    cublasLtMatmulAlgo_t algorithm;
    struct cuda_choice *next;
};

/* The same, ready to be used by one rank. */
struct cuda_plan {
    struct cuda_shape shape;
    bool bf16; /* factors, and the result but for backward_weight's */
    enum cuda_fusion fusion;
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t first, second, result;
};

/* Operands as plan.h's table names them; at aligned addresses. bias: b, of the result's type, or db,
 * where it is fused. */
struct cuda_operands {
    const void *first, *second;
    void *result, *bias;
};

/* Elements of the factors and the result, and of what lies between their rows. */
size_t cuda_first_count(const struct cuda_shape *s);
size_t cuda_second_count(const struct cuda_shape *s);
size_t cuda_result_count(const struct cuda_shape *s);

/*
 * The most multiprocessors that each of n equal pieces of `total` can have, when a piece has at
 * least `least` and a multiple of `unit` of them, as the driver asks (132 in 2 pieces of units of
 * 8: 64); 0 when there are no n such pieces. n >= 1, least and unit >= 1.
 */
int cuda_partition_size(int total, int least, int unit, int n);

bool cuda_shapes_equal(const struct cuda_shape *a, const struct cuda_shape *b);

/*
 * Into how many slices of rows the product of a weight gradient is cut, so that more multiprocessors
 * have a part of it: from the shape alone, because the order of the sums follows from it. 1: none.
 * Each slice gives O * I floats; together they are at most CUDA_SLICES_FLOATS.
 */
#define CUDA_SLICES_FLOATS ((size_t)128 * 128 * 128)
int cuda_weight_slices(int B, int I, int O);

/* Which fusions may compute the shape, the likely best first; how many. With exact only those whose
 * order of sums is known. */
int cuda_fusions_for(const struct cuda_shape *s, bool exact, enum cuda_fusion out[CUDA_FUSIONS]);

/* The plan of a shape, made when it is new (takes memory and time then, outside the stream). Owned
 * by c. Errors: PP_ERESOURCE when cuBLASLt has none. */
int cuda_plan_for(struct cuda *c, const struct cuda_shape *s, const struct cuda_plan **out);
void cuda_plans_free(struct cuda *c);
void cuda_choices_free(struct cuda_choice *list);

/* Half built: everything but the algorithm. The caller calls cuda_plan_fini, also on failure. */
int cuda_plan_init(struct cuda *c, const struct cuda_shape *s, enum cuda_fusion fusion,
                   struct cuda_plan *p);
void cuda_plan_fini(struct cuda *c, struct cuda_plan *p);

/* Enqueue the product, or the product and what its fusion left to do (finish). */
cublasStatus_t cuda_plan_multiply(const struct cuda *c, const struct cuda_plan *p,
                                  const struct cuda_operands *o, void *workspace,
                                  cudaStream_t stream);

/* y = act(product + b) where the fusion has not done it; product may be y or z. */
cudaError_t cuda_plan_finish_forward(const struct cuda_plan *p, const float *product,
                                     const float *b, float *z, float *y, cudaStream_t stream);
/* linear_backward_input, or with adds dx += that. */
int cuda_input_product(struct pp_backend *be, const struct pp_linear_backward_input *a, bool adds);

/* What makes db; its db is NULL where nothing is left to do. */
struct cuda_sum cuda_plan_bias(const struct cuda_plan *p, const float *dz, float *db, bool adds);

/* choose.c: the fusion and algorithm for a shape: with exact the first that works, else the fastest
 * measured. */
int cuda_choose(struct cuda *c, const struct cuda_shape *s, enum cuda_fusion *fusion,
                cublasLtMatmulAlgo_t *algorithm);

/* ---- cuDNN 9, for run.conv = cudnn (dnn.c): not for what is one product already (1 x 1, stride 1) or is
 * padded differently on two sides. Where cuDNN has no algorithm for a pass, own kernels compute it. */

/* A pass of B samples, but for b and db. W: dW for backward_weight. `adds`: to what the result holds. */
struct cuda_dnn_call {
    enum cuda_product pass;
    const struct pp_conv *g;
    int B;
    void *x, *y;
    float *W, *packed, *scratch;
    bool adds;
};

/* Load the library, once for the process, and say its version, "9.19.0"; or PP_ERESOURCE with the
 * reason and what would work. Any thread; no failure is recorded. */
int cuda_dnn_probe(char *text, size_t bytes);
/* The rank's use of it, on its stream: c->dnn. Errors: PP_ERESOURCE. close: also where it is NULL. */
int cuda_dnn_open(struct cuda *c);
void cuda_dnn_close(struct cuda *c);
/* Whether cuDNN is asked for it; floats of scratch for passes of at most B samples, 0 if not. */
bool cuda_dnn_takes(const struct pp_backend_choice *choice, const struct pp_conv *g);
size_t cuda_dnn_scratch_floats(const struct pp_backend_choice *choice, const struct pp_conv *g,
                               int B);
/* What its passes need before a step. */
int cuda_dnn_prepare(struct pp_backend *be, const struct pp_conv_use *u);
/* Enqueue it. *done: false where it is for own kernels; nothing has happened then. */
int cuda_dnn_run(struct pp_backend *be, const struct cuda_dnn_call *a, bool *done);

#endif
