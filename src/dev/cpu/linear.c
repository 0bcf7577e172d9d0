/* SPDX-License-Identifier: Apache-2.0 */
/* The products of a linear layer, divided among the threads of a rank. */
#include "cpu_impl.h"

#include <string.h>

/* Rows of `columns` floats that a piece may begin at: no cache line is written by two threads. */
static size_t whole_lines(int columns)
{
    return columns % 16 == 0 ? CPU_TILE_ROWS : 16;
}

/* ---- packing, by panels */

struct pack {
    const struct cpu_gemm *gemm;
    int O, I;
    const float *W;
    float *packed;
};

static void pack_piece(const void *args, const struct pp_piece *w)
{
    const struct pack *p = args;
    p->gemm->pack((int)(w->to - w->from), p->I, p->W + w->from * (size_t)p->I,
                  p->packed + p->gemm->packed_floats((int)w->from, p->I));
}

int cpu_pack_weights(struct pp_backend *be, int O, int I, const float *W, float *packed)
{
    const struct pack p = {cpu_of(be)->gemm, O, I, W, packed};
    const struct pp_work work = {pack_piece, (size_t)O, CPU_COLUMNS, 0.3 * O * I};
    pp_team_run(cpu_of(be)->team, &work, &p);
    return 0;
}

/* ---- linear */

/* One call of a layer's product, and how it is divided: by columns of the result, where each thread
 * then reads its own weights, or else by rows. */
struct linear {
    const struct cpu_gemm *gemm;
    const struct cpu_kernels *k;
    int B, I, O;
    bool by_columns;
    const float *x, *W, *packed, *b;
    enum pp_activation act;
    float *z, *y; /* of backward_input: x is dz, y is dx */
};

/* Few rows are kept together. A row of the result whose length is not a multiple of a cache line would
 * have lines that two threads write. */
static bool divide_columns(const struct pp_backend *be, int rows, int columns)
{
    int members = pp_backend_members(&be->choice);
    return columns % 16 == 0 && columns >= members * CPU_COLUMNS ? columns >= rows / 2
                                                                 : rows < members * CPU_TILE_ROWS;
}

static void forward_piece(const void *args, const struct pp_piece *w)
{
    const struct linear *l = args;
    size_t O = (size_t)l->O, I = (size_t)l->I, o = l->by_columns ? w->from : 0;
    size_t r = l->by_columns ? 0 : w->from, n = w->to - w->from, at = r * O + o;
    int rows = l->by_columns ? l->B : (int)n, columns = l->by_columns ? (int)n : l->O;
    const float *b = l->b ? l->b + o : NULL;
    float *z = l->z ? l->z + at : NULL, *y = l->y + at;
    /* The others are second passes over y: calls of exp would spill the accumulators. */
    bool fuse = b && l->gemm->fuses && !z && (l->act == PP_ACT_NONE || l->act == PP_ACT_RELU);
    l->gemm->forward(rows, l->I, columns, O, l->x + r * I, l->W + o * I,
                     l->packed ? l->packed + l->gemm->packed_floats((int)o, l->I) : NULL,
                     fuse ? b : NULL, l->act == PP_ACT_RELU, !b && z ? z : y);
    if (b && !fuse)
        l->k->bias_activation(rows, columns, O, b, l->act, z, y);
}

/* y[B][O] = act(x[B][I] * W[O][I]^T + b[O]) */
int cpu_linear_forward(struct pp_backend *be, int B, int I, int O, const float *x, const float *W,
                       const float *packed, const float *b, enum pp_activation act, float *z,
                       float *y)
{
    if (B == 0)
        return 0;
    bool columns = divide_columns(be, B, O);
    const struct linear l = {
        cpu_of(be)->gemm, cpu_of(be)->k, B, I, O, columns, x, W, packed, b, act, z, y};
    const struct pp_work work = {forward_piece, (size_t)(columns ? O : B),
                                 columns ? CPU_COLUMNS : whole_lines(O),
                                 2.0 * B * I * O / CPU_FLOPS_PER_NS};
    pp_team_run(cpu_of(be)->team, &work, &l);
    if (!b && (z || act != PP_ACT_NONE)) {
        const struct pp_activate a = {(size_t)B * (size_t)O, act, z ? z : y, y};
        return pp_backend_activate_forward(be, &a);
    }
    return 0;
}

static void input_piece(const void *args, const struct pp_piece *w)
{
    const struct linear *l = args;
    size_t O = (size_t)l->O, I = (size_t)l->I, n = w->to - w->from;
    if (l->by_columns)
        l->gemm->backward_input(l->B, (int)n, l->O, I, l->x, l->W + w->from, l->y + w->from);
    else
        l->gemm->backward_input((int)n, l->I, l->O, I, l->x + w->from * O, l->W,
                                l->y + w->from * I);
}

/* dx[B][I] = dz[B][O] * W[O][I] */
int cpu_linear_backward_input(struct pp_backend *be, int B, int I, int O, const float *dz,
                              const float *W, const float *packed, float *dx)
{
    if (B == 0)
        return 0;
    bool columns = divide_columns(be, B, I);
    const struct linear l = {.gemm = cpu_of(be)->gemm,
                             .B = B,
                             .I = I,
                             .O = O,
                             .by_columns = columns,
                             .x = dz,
                             .W = W,
                             .y = dx};
    const struct pp_work work = {input_piece, (size_t)(columns ? I : B),
                                 columns ? CPU_COLUMNS : whole_lines(I),
                                 2.0 * B * I * O / CPU_FLOPS_PER_NS};
    pp_team_run(cpu_of(be)->team, &work, &l);
    return 0;
}

struct weight {
    const struct cpu_gemm *gemm;
    int n, I, O;
    const struct pp_weight_part *parts;
    bool by_inputs;
    float beta, *dW;
};

static void weight_piece(const void *args, const struct pp_piece *w)
{
    const struct weight *l = args;
    struct cpu_block at = {0, l->O, 0, l->I};
    *(l->by_inputs ? &at.i : &at.o) = (int)w->from;
    *(l->by_inputs ? &at.i_end : &at.o_end) = (int)w->to;
    l->gemm->backward_weight(l->n, l->parts, l->I, l->O, &at, l->beta, l->dW);
}

struct bias {
    const struct cpu_kernels *k;
    int n, pixels, O;
    const struct pp_weight_part *parts;
    float beta, *db;
};

static void bias_piece(const void *args, const struct pp_piece *w)
{
    const struct bias *b = args;
    for (int k = 0; k < b->n; k++) {
        b->k->bias_gradient(b->parts[k].B * b->pixels, (int)(w->to - w->from), (size_t)b->O,
                            b->parts[k].dz + w->from, k == 0 ? b->beta : 1.0f, b->db + w->from);
    }
}

void cpu_bias_gradient(struct pp_backend *be, int n, const struct pp_weight_part *parts, int pixels,
                       int O, float beta, float *db)
{
    const struct bias b = {cpu_of(be)->k, n, pixels, O, parts, beta, db};
    double rows = 0;
    for (int k = 0; k < n; k++)
        rows += (double)parts[k].B * pixels;
    const struct pp_work work = {bias_piece, (size_t)O, 16, 0.2 * rows * O};
    if (db)
        pp_team_run(cpu_of(be)->team, &work, &b);
}

/* dW[O][I] = beta*dW + sum of dz[B][O]^T * x[B][I]; db[O] = beta*db + column sums of dz */
int cpu_linear_backward_weight(struct pp_backend *be, int n, const struct pp_weight_part *parts,
                               int I, int O, float beta, float *dW, float *db)
{
    double rows = 0;
    for (int k = 0; k < n; k++)
        rows += parts[k].B;
    bool inputs = I % 16 == 0 && I >= pp_backend_members(&be->choice) * CPU_COLUMNS;
    const struct weight l = {cpu_of(be)->gemm, n, I, O, parts, inputs, beta, dW};
    const struct pp_work work = {weight_piece, (size_t)(inputs ? I : O),
                                 inputs ? CPU_COLUMNS : whole_lines(I),
                                 2 * rows * I * O / CPU_FLOPS_PER_NS};
    cpu_bias_gradient(be, n, parts, 1, O, beta, db);
    if (rows > 0)
        pp_team_run(cpu_of(be)->team, &work, &l);
    else if (beta == 0)
        memset(dW, 0, (size_t)O * (size_t)I * sizeof(*dW));
    return 0;
}
