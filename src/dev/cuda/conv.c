/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions as products with a matrix of pixels, piece by piece: a piece has as many samples as
 * fit PIECE_FLOATS, so that it is still in the cache when the product reads it. The number follows
 * from the shape of one sample, and with it the order of every sum. Convolutions in groups have
 * kernels of their own. With run.conv = cudnn dnn.c is tried first.
 */
#include "plan.h"
#include "ppcli/conf/config.h"

#define PIECE_FLOATS ((size_t)8 << 20)

static size_t count_outputs(const struct pp_conv *g)
{
    return (size_t)g->OH * (size_t)g->OW;
}

static int patch_depth(const struct pp_conv *g)
{
    return g->kh * g->kw * (g->C / g->groups);
}

/* Returns whether the matrix of pixels that a convolution multiplies is the image itself. */
static bool is_product(const struct pp_conv *g)
{
    return g->kh == 1 && g->kw == 1 && g->stride == 1 && g->pad_top == 0 && g->pad_left == 0 &&
           g->OH == g->H && g->OW == g->W;
}

/* Returns how many of B samples a piece has. Each piece starts at an address that products can
 * read. */
static int samples_per_piece(const struct pp_backend_choice *choice, const struct pp_conv *g, int B)
{
    size_t each = count_outputs(g) * (size_t)patch_depth(g), n = PIECE_FLOATS / each;
    size_t unit = CUDA_OPERAND_ALIGN / cuda_value_bytes(choice);
    n = n >= unit ? n / unit * unit : count_outputs(g) * (size_t)g->O % unit ? unit : n > 1 ? n : 1;
    return n < (size_t)B ? (int)n : B;
}

size_t cuda_conv_packed_floats(const struct pp_backend_choice *choice, const struct pp_conv *g)
{
    bool unread = g->groups > 1 && !cuda_dnn_takes(choice, g);
    return unread ? 0 : cuda_packed_floats(choice, g->O, patch_depth(g));
}

int cuda_conv_pack(struct pp_backend *be, const struct pp_conv *g, const float *W, const float *b,
                   float *packed)
{
    return cuda_pack_weights(be, g->O, patch_depth(g), W, b, packed);
}

size_t cuda_conv_scratch_floats(const struct pp_backend_choice *choice, const struct pp_conv *g,
                                int B)
{
    size_t all =
        (size_t)samples_per_piece(choice, g, B) * count_outputs(g) * (size_t)patch_depth(g);
    size_t dnn = cuda_dnn_scratch_floats(choice, g, B);
    size_t own = g->groups > 1 ? 0 : pp_value_floats(choice, all);
    return own > dnn ? own : dnn;
}

/* Sets *out to the pixel matrix of n samples, which a product reads: x itself if is_product(), else
 * a copy that it makes in the scratch. */
static int find_columns(struct pp_backend *be, const struct pp_conv *g, int n, const float *x,
                        float *scratch, const float **out)
{
    struct cuda *c = cuda_of(be);
    *out = is_product(g) ? x : scratch;
    if (!is_product(g))
        CUDA_TRY(c->device, kernels_conv_columns(c->stream, c->bf16, g, n, x, scratch));
    return 0;
}

int cuda_conv_forward(struct pp_backend *be, const struct pp_conv_forward *a)
{
    const struct pp_conv *g = a->g;
    struct cuda *c = cuda_of(be);
    enum pp_activation act = a->relu ? PP_ACT_RELU : PP_ACT_NONE;
    size_t from = (size_t)g->H * (size_t)g->W * (size_t)g->C, to = count_outputs(g) * (size_t)g->O;
    int n = is_product(g) ? a->B : samples_per_piece(&be->choice, g, a->B);
    const struct cuda_dnn_call call = {CUDA_FORWARD,       g,          a->B,
                                       (void *)a->x,       a->y,       (float *)a->W,
                                       (float *)a->packed, a->scratch, false};
    bool done;
    PP_TRY(cuda_dnn_run(be, &call, &done));
    if (done && (a->b || a->relu))
        return CUDA_CALL(be,
                         kernels_bias_activation(c->stream, c->bf16, a->B * (int)count_outputs(g),
                                                 g->O, a->y, a->b, act, NULL, a->y));
    if (a->B > 0 && g->groups > 1 && !done)
        return CUDA_CALL(be, kernels_conv_group_forward(c->stream, c->bf16, a));
    for (int i = 0; i < a->B && !done; i += n) {
        const float *columns;
        n = n < a->B - i ? n : a->B - i;
        PP_TRY(
            find_columns(be, g, n, pp_value_at(be, a->x, (size_t)i * from), a->scratch, &columns));
        PP_TRY(cuda_linear_forward(
            be, &(struct pp_linear_forward){n * (int)count_outputs(g), patch_depth(g), g->O,
                                            columns, a->W, a->packed, a->b, act, NULL,
                                            pp_value_at(be, a->y, (size_t)i * to), 0}));
    }
    return 0;
}

int cuda_conv_backward_input(struct pp_backend *be, const struct pp_conv_backward_input *a)
{
    const struct pp_conv *g = a->g;
    struct cuda *c = cuda_of(be);
    size_t to = (size_t)g->H * (size_t)g->W * (size_t)g->C, from = count_outputs(g) * (size_t)g->O;
    bool at_once = is_product(g);
    int n = at_once ? a->B : samples_per_piece(&be->choice, g, a->B);
    const struct cuda_dnn_call call = {
        CUDA_BACKWARD_INPUT, g,          a->B,  a->dx, (void *)a->dz, (float *)a->W,
        (float *)a->packed,  a->scratch, a->add};
    bool done;
    PP_TRY(cuda_dnn_run(be, &call, &done));
    if (a->B > 0 && g->groups > 1 && !done)
        return CUDA_CALL(be, kernels_conv_group_backward_input(c->stream, c->bf16, a));
    for (int i = 0; i < a->B && !done; i += n) {
        n = n < a->B - i ? n : a->B - i;
        float *dx = pp_value_at(be, a->dx, (size_t)i * to), *columns = at_once ? dx : a->scratch;
        PP_TRY(cuda_input_product(
            be,
            &(struct pp_linear_backward_input){n * (int)count_outputs(g), patch_depth(g), g->O,
                                               pp_value_at(be, a->dz, (size_t)i * from), a->W,
                                               a->packed, columns, 0},
            at_once && a->add));
        if (!at_once)
            CUDA_TRY(c->device, kernels_conv_pixels(c->stream, c->bf16, g, n, columns, a->add, dx));
    }
    return 0;
}

/* Adds the sums of dz over n samples to db, for calls in which no product computes them. */
static int add_bias_gradient(struct pp_backend *be, const struct pp_conv_backward_weight *a, int n,
                             const float *dz, float beta)
{
    const struct cuda_sum sum = {.dz = dz,
                                 .db = a->db,
                                 .rows = n * (int)count_outputs(a->g),
                                 .C = a->g->O,
                                 .adds = beta != 0};
    return a->db ? cuda_add_sum(cuda_of(be), &sum) : 0;
}

/* Computes dW = beta * dW + the weight gradient of n samples, and db. */
static int weight_piece(struct pp_backend *be, const struct pp_conv_backward_weight *a, int n,
                        const float *x, const float *dz, float beta)
{
    const struct pp_conv *g = a->g;
    struct cuda *c = cuda_of(be);
    if (g->groups > 1) {
        size_t weights = (size_t)g->O * (size_t)patch_depth(g);
        PP_TRY(cuda_settle(c, a->dW, weights * sizeof(*a->dW), true));
        CUDA_TRY(c->device, kernels_conv_group_backward_weight(c->stream, c->bf16, g, n, dz, x,
                                                               beta != 0, a->dW));
        return add_bias_gradient(be, a, n, dz, beta);
    }
    struct pp_weight_part part = {.B = n * (int)count_outputs(g), .dz = dz};
    if (n > 0)
        PP_TRY(find_columns(be, g, n, x, a->scratch, &part.x));
    return cuda_linear_backward_weight(
        be,
        &(struct pp_linear_backward_weight){1, &part, patch_depth(g), g->O, beta, a->dW, a->db, 0});
}

int cuda_conv_backward_weight(struct pp_backend *be, const struct pp_conv_backward_weight *a)
{
    const struct pp_conv *g = a->g;
    size_t from = (size_t)g->H * (size_t)g->W * (size_t)g->C, to = count_outputs(g) * (size_t)g->O;
    float beta = a->beta;
    for (int k = 0; k < a->n; k++) {
        const struct pp_weight_part *p = &a->parts[k];
        const struct cuda_dnn_call call = {
            CUDA_BACKWARD_WEIGHT, g,        p->B, (void *)p->x, (void *)p->dz, a->dW, NULL,
            a->scratch,           beta != 0};
        bool done;
        PP_TRY(cuda_dnn_run(be, &call, &done));
        if (done)
            PP_TRY(add_bias_gradient(be, a, p->B, p->dz, beta));
        beta = done ? 1 : beta;
        int n = is_product(g) || g->groups > 1 ? p->B : samples_per_piece(&be->choice, g, p->B);
        for (int i = 0; i < p->B && !done; i += n) {
            n = n < p->B - i ? n : p->B - i;
            PP_TRY(weight_piece(be, a, n, pp_value_at(be, p->x, (size_t)i * from),
                                pp_value_at(be, p->dz, (size_t)i * to), beta));
            beta = 1;
        }
    }
    return beta == 0 ? weight_piece(be, a, 0, NULL, NULL, 0) : 0;
}

/* Prepares the products of a convolution: for whole pieces and for the last one or, if the image is
 * the matrix, for all samples at once. Does so even if cuDNN is to compute the passes, because a
 * pass may turn out not to be supported. */
int cuda_prepare_conv(struct pp_backend *be, const struct pp_conv_use *u)
{
    const struct pp_conv *g = u->g;
    int piece = samples_per_piece(&be->choice, g, u->B),
        sizes[] = {u->B, piece, u->B > 0 ? u->B % piece : 0};
    struct pp_linear_use use = {.I = patch_depth(g),
                                .O = g->O,
                                .act = u->relu ? PP_ACT_RELU : PP_ACT_NONE,
                                .dx = u->dx,
                                .adds = u->adds && is_product(g),
                                .W = u->W,
                                .packed = u->packed,
                                .b = u->b,
                                .dW = u->dW,
                                .db = u->db};
    PP_TRY(cuda_dnn_prepare(be, u));
    for (int i = is_product(g) ? 0 : 1; i < 3 && g->groups == 1; i++) {
        use.B = sizes[i] * (int)count_outputs(g);
        PP_TRY(cuda_prepare_linear(be, &use));
    }
    return 0;
}
