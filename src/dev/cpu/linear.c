/* SPDX-License-Identifier: Apache-2.0 */
/* The products of a linear layer, divided among the threads of a rank. */
#include "cpu_impl.h"

#include <string.h>

#include "ppcli/conf/config.h"

/* Returns how many rows of `columns` floats a thread takes at a time: they fill whole cache lines,
 * so that no two threads write to one line. */
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

int cpu_pack_weights(struct pp_backend *be, int O, int I, const float *W, const float *b,
                     float *packed)
{
    const struct pack p = {cpu_of(be)->gemm, O, I, W, packed};
    const struct pp_work work = {pack_piece, (size_t)O, CPU_COLUMNS, 0.3 * O * I};
    pp_team_run(cpu_of(be)->team, &work, &p);
    return 0;
}

/* ---- linear */

/* One call of a layer's product, and how it is divided: by columns of the result, so that each
 * thread reads its own weights, or by rows. */
struct linear {
    const struct cpu_gemm *gemm;
    const struct cpu_kernels *k;
    bool by_columns;
    struct pp_linear_forward a; /* for backward_input x is dz and y is dx */
};

/* Returns whether threads divide the columns of the result among them, rather than its rows: if
 * there are at least half as many columns as rows. If columns are too few for all threads, or a row
 * does not fill whole cache lines, so that two threads would write to one line, columns are divided
 * only if the rows are too few for all threads too. */
static bool divide_columns(const struct pp_backend *be, int rows, int columns)
{
    int members = pp_backend_members(&be->choice);
    return columns % 16 == 0 && columns >= members * CPU_COLUMNS ? columns >= rows / 2
                                                                 : rows < members * CPU_TILE_ROWS;
}

static void forward_piece(const void *args, const struct pp_piece *w)
{
    const struct linear *l = args;
    const struct pp_linear_forward *a = &l->a;
    size_t O = (size_t)a->O, I = (size_t)a->I, o = l->by_columns ? w->from : 0;
    size_t r = l->by_columns ? 0 : w->from, n = w->to - w->from, at = r * O + o;
    int rows = l->by_columns ? a->B : (int)n, columns = l->by_columns ? (int)n : a->O;
    const float *b = a->b ? a->b + o : NULL;
    float *z = a->z ? a->z + at : NULL, *y = a->y + at;
    /* The other activations take a second pass over y: calls of exp would spill the
     * accumulators. */
    bool fuse = b && l->gemm->fuses && !z && (a->act == PP_ACT_NONE || a->act == PP_ACT_RELU);
    l->gemm->forward(rows, a->I, columns, O, a->x + r * I, a->W + o * I,
                     a->packed ? a->packed + l->gemm->packed_floats((int)o, a->I) : NULL,
                     fuse ? b : NULL, a->act == PP_ACT_RELU, !b && z ? z : y);
    if (b && !fuse)
        l->k->bias_activation(rows, columns, O, b, a->act, z, y);
}

/* Runs one pass over the result [B][columns] on all threads. Each element of the result is a sum of
 * `depth` products. */
static void run_linear(struct pp_backend *be, void (*piece)(const void *, const struct pp_piece *),
                       int columns, int depth, const struct pp_linear_forward *a)
{
    const struct cpu *c = cpu_of(be);
    const struct linear l = {c->gemm, c->k, divide_columns(be, a->B, columns), *a};
    const struct pp_work work = {piece, (size_t)(l.by_columns ? columns : a->B),
                                 l.by_columns ? CPU_COLUMNS : whole_lines(columns),
                                 2.0 * a->B * depth * columns / CPU_FLOPS_PER_NS};
    if (a->B > 0)
        pp_team_run(c->team, &work, &l);
}

int cpu_linear_forward(struct pp_backend *be, const struct pp_linear_forward *a)
{
    run_linear(be, forward_piece, a->O, a->I, a);
    if (!a->b && (a->z || a->act != PP_ACT_NONE)) {
        const struct pp_activate flat = {(size_t)a->B * (size_t)a->O, a->act, a->z ? a->z : a->y,
                                         a->y};
        return pp_backend_activate_forward(be, &flat);
    }
    return 0;
}

static void input_piece(const void *args, const struct pp_piece *w)
{
    const struct linear *l = args;
    const struct pp_linear_forward *a = &l->a;
    size_t O = (size_t)a->O, I = (size_t)a->I, n = w->to - w->from;
    if (l->by_columns)
        l->gemm->backward_input(a->B, (int)n, a->O, I, a->x, a->W + w->from, a->y + w->from);
    else
        l->gemm->backward_input((int)n, a->I, a->O, I, a->x + w->from * O, a->W,
                                a->y + w->from * I);
}

int cpu_linear_backward_input(struct pp_backend *be, const struct pp_linear_backward_input *a)
{
    const struct pp_linear_forward back = {
        .B = a->B, .I = a->I, .O = a->O, .x = a->dz, .W = a->W, .y = a->dx};
    run_linear(be, input_piece, a->I, a->O, &back);
    return 0;
}

struct weight {
    const struct cpu_gemm *gemm;
    const struct pp_linear_backward_weight *a;
    bool by_inputs;
};

static void weight_piece(const void *args, const struct pp_piece *w)
{
    const struct weight *l = args;
    const struct pp_linear_backward_weight *a = l->a;
    struct cpu_block at = {0, a->O, 0, a->I};
    *(l->by_inputs ? &at.i : &at.o) = (int)w->from;
    *(l->by_inputs ? &at.i_end : &at.o_end) = (int)w->to;
    l->gemm->backward_weight(a->n, a->parts, a->I, a->O, &at, a->beta, a->dW);
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

int cpu_linear_backward_weight(struct pp_backend *be, const struct pp_linear_backward_weight *a)
{
    double rows = 0;
    for (int k = 0; k < a->n; k++)
        rows += a->parts[k].B;
    bool inputs = a->I % 16 == 0 && a->I >= pp_backend_members(&be->choice) * CPU_COLUMNS;
    const struct weight l = {cpu_of(be)->gemm, a, inputs};
    const struct pp_work work = {weight_piece, (size_t)(inputs ? a->I : a->O),
                                 inputs ? CPU_COLUMNS : whole_lines(a->I),
                                 2 * rows * a->I * a->O / CPU_FLOPS_PER_NS};
    cpu_bias_gradient(be, a->n, a->parts, 1, a->O, a->beta, a->db);
    if (rows > 0)
        pp_team_run(cpu_of(be)->team, &work, &l);
    else if (a->beta == 0)
        memset(a->dW, 0, (size_t)a->O * (size_t)a->I * sizeof(*a->dW));
    return 0;
}
