/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a product of one shape is computed: what cuBLASLt does in the same launch, and by which
 * algorithm. It is decided when the shape is first seen, then kept.
 *
 * Our matrices are row-major and those of cuBLASLt column-major, so each product is stated
 * transposed:
 *
 *   forward          y^T[O][B]  = W[O][I] * x^T[I][B]        factors W, x
 *   backward_input   dx^T[I][B] = W^T[I][O] * dz^T[O][B]     factors W, dz
 *   backward_weight  dW^T[I][O] = x^T[I][B] * dz[B][O]       factors x, dz
 *
 * All factors and results are aligned to CUDA_OPERAND_ALIGN bytes or are first copied to such an
 * address. So the algorithm, and with it the bits, depends on the shape and not on addresses.
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

/* The work that the launch does in addition to the product. */
enum cuda_fusion {
    CUDA_ALONE,
    CUDA_BIAS,         /* forward: adds b */
    CUDA_BIAS_RELU,    /* forward: adds b, then applies relu */
    CUDA_BIAS_GRADIENT /* backward_weight: computes db */
};
#define CUDA_FUSIONS 4

/* The question: a product to plan. Two shapes with equal content are the same question. */
struct cuda_shape {
    enum cuda_product product;
    int B, I, O;
    int act;      /* enum pp_activation, forward */
    bool keeps_z; /* forward: also write the value before act */
    bool bias;    /* forward: there is b; backward_weight: there is db */
    bool adds;    /* backward: add to the result */
    int slices;   /* backward_weight: products in the launch, each with B rows; 0: one */
    int row; /* elements from one row of y, or of dz, to the next: O, or more if there is no bias
                and no act */
};

/* A question and its answer, shared by all ranks of the device. */
struct cuda_choice {
    struct cuda_shape shape;
    enum pp_precision precision;
    bool exact;
    int processors;
    enum cuda_fusion fusion;
    cublasLtMatmulAlgo_t algorithm;
    struct cuda_choice *next;
};

/* The answer made ready for one rank. */
struct cuda_plan {
    struct cuda_shape shape;
    bool bf16; /* factors are bf16, and so is the result, except that of backward_weight */
    enum cuda_fusion fusion;
    cublasLtMatmulAlgo_t algorithm;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t first, second, result;
};

/* Operands with the names of the table above, at aligned addresses. bias is b, of the type of the
 * result, or db, if the fusion computes it. */
struct cuda_operands {
    const void *first, *second;
    void *result, *bias;
};

/* Return the elements of the factors and of the result, including gaps between their rows. */
size_t cuda_first_count(const struct cuda_shape *s);
size_t cuda_second_count(const struct cuda_shape *s);
size_t cuda_result_count(const struct cuda_shape *s);

/*
 * Returns the most multiprocessors that each of n equal pieces of `total` can have, if a piece has
 * at least `least` and a multiple of `unit` of them, as the driver demands (132 in 2 pieces of
 * units of 8: 64). Returns 0 if n such pieces are impossible. n >= 1, least and unit >= 1.
 */
int cuda_partition_size(int total, int least, int unit, int n);

bool cuda_shapes_equal(const struct cuda_shape *a, const struct cuda_shape *b);

/*
 * Returns into how many slices of rows the product of a weight gradient is cut, so that more
 * multiprocessors take part. It follows from the shape alone, because the order of the sums depends
 * on it. 1: it is not cut. Each slice gives O * I floats; together they are at most
 * CUDA_SLICES_FLOATS.
 */
#define CUDA_SLICES_FLOATS ((size_t)128 * 128 * 128)
int cuda_weight_slices(int B, int I, int O);

/* Writes the fusions that may compute the shape, the most promising first, and returns their
 * number. With exact only those whose order of sums is known. */
int cuda_fusions_for(const struct cuda_shape *s, bool exact, enum cuda_fusion out[CUDA_FUSIONS]);

/* Returns the plan of a shape in *out, and makes it if the shape is new; that takes memory and
 * time, outside the stream. c owns it. Errors: PP_ERESOURCE if cuBLASLt has no algorithm. */
int cuda_plan_for(struct cuda *c, const struct cuda_shape *s, const struct cuda_plan **out);
void cuda_plans_free(struct cuda *c);
void cuda_choices_free(struct cuda_choice *list);

/* Builds everything except the algorithm. The caller calls cuda_plan_fini(), even on failure. */
int cuda_plan_init(struct cuda *c, const struct cuda_shape *s, enum cuda_fusion fusion,
                   struct cuda_plan *p);
void cuda_plan_fini(struct cuda *c, struct cuda_plan *p);

/* Enqueues the product. The rest, if the fusion leaves any, is enqueued by
 * cuda_plan_finish_forward(). */
cublasStatus_t cuda_plan_multiply(const struct cuda *c, const struct cuda_plan *p,
                                  const struct cuda_operands *o, void *workspace,
                                  cudaStream_t stream);

/* Computes y = act(product + b), if the fusion has not done it. product may be y or z. */
cudaError_t cuda_plan_finish_forward(const struct cuda_plan *p, const float *product,
                                     const float *b, float *z, float *y, cudaStream_t stream);
/* Computes linear_backward_input, or adds its result to dx if `adds`. */
int cuda_input_product(struct pp_backend *be, const struct pp_linear_backward_input *a, bool adds);

/* Returns the sum that makes db; its db is NULL if nothing is left to do. */
struct cuda_sum cuda_plan_bias(const struct cuda_plan *p, const float *dz, float *db, bool adds);

/* Finds the fusion and the algorithm for a shape: with exact the first that works, else the fastest
 * by measurement (choose.c). */
int cuda_choose(struct cuda *c, const struct cuda_shape *s, enum cuda_fusion *fusion,
                cublasLtMatmulAlgo_t *algorithm);

/* ---- cuDNN 9, for run.conv = cudnn (dnn.c), except for a convolution that is already a product (1
 * x 1, stride 1) or is padded differently on two sides. If cuDNN has no algorithm for a pass, our
 * own kernels compute it. */

/* A pass of B samples, without b and db. For backward_weight W is dW. adds: add to the result. */
struct cuda_dnn_call {
    enum cuda_product pass;
    const struct pp_conv *g;
    int B;
    void *x, *y;
    float *W, *packed, *scratch;
    bool adds;
};

/* Loads the library, once for the process, and writes its version, such as "9.19.0". Otherwise
 * returns PP_ERESOURCE and writes the reason and a way out. Any thread may call it; it records no
 * failure. */
int cuda_dnn_probe(char *text, size_t bytes);
/* Open and close the rank's use of cuDNN on its stream, c->dnn. Errors: PP_ERESOURCE.
 * cuda_dnn_close() may be called when it is NULL. */
int cuda_dnn_open(struct cuda *c);
void cuda_dnn_close(struct cuda *c);
/* Return whether cuDNN is to compute the convolution, and the floats of scratch for passes of at
 * most B samples; 0 if it is not. */
bool cuda_dnn_takes(const struct pp_backend_choice *choice, const struct pp_conv *g);
size_t cuda_dnn_scratch_floats(const struct pp_backend_choice *choice, const struct pp_conv *g,
                               int B);
/* Prepares the passes before a step. */
int cuda_dnn_prepare(struct pp_backend *be, const struct pp_conv_use *u);
/* Enqueues a pass. *done is false if our own kernels must compute it; then nothing was enqueued. */
int cuda_dnn_run(struct pp_backend *be, const struct cuda_dnn_call *a, bool *done);

#endif
