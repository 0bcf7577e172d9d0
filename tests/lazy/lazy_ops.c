/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the lazy device: each one packs its arguments, and what it points to is looked up when
 * it is done. */
#include "lazy_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

extern const struct pp_backend_ops backend_cpu;

static long spoil; /* products of a forward pass until one is spoiled */

void lazy_spoil_at(long n)
{
    __atomic_store_n(&spoil, n, __ATOMIC_SEQ_CST);
}

/* ---- moving */

struct move {
    void *dst;
    const void *src;
    size_t bytes;
};

static int do_move(struct pp_backend *be, const void *args)
{
    const struct move *m = args;
    if (m->src)
        memcpy(m->dst, m->src, m->bytes);
    else
        memset(m->dst, 0, m->bytes);
    return 0;
}

static int move(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    struct move m = {dst, src, bytes};
    return bytes > 0 ? lazy_push(be, do_move, &m, sizeof(m)) : 0;
}

/* The source is read when it is the copy's turn: who changes it before that gets what he wrote. */
static int upload(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return move(be, lazy_real(dst), src, bytes);
}

static int to_device(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    PP_TRY(lazy_no_capture(be, "to_device"));
    PP_TRY(upload(be, dst, src, bytes));
    return lazy_synchronize(be);
}

static int download(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return move(be, dst, lazy_real(src), bytes);
}

static int to_host(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    PP_TRY(lazy_no_capture(be, "to_host"));
    PP_TRY(download(be, dst, src, bytes));
    return lazy_synchronize(be);
}

static int zero(struct pp_backend *be, void *p, size_t bytes)
{
    return move(be, lazy_real(p), NULL, bytes);
}

static int copy(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return move(be, lazy_real(dst), lazy_real(src), bytes);
}

static int host_alloc(struct pp_backend *be, size_t bytes, void **out)
{
    PP_TRY(lazy_no_capture(be, "an allocation"));
    *out = calloc(1, bytes);
    return *out ? 0 : PP_ERESOURCE;
}

static void host_free(struct pp_backend *be, void *p, size_t bytes)
{
    free(p);
}

/* ---- computing */

#define R(p) lazy_real(p)

static struct pp_backend_choice on_cpu(const struct pp_backend_choice *choice)
{
    struct pp_backend_choice c = *choice;
    c.ops = &backend_cpu;
    return c;
}

static size_t packed_floats(const struct pp_backend_choice *choice, int O, int I)
{
    struct pp_backend_choice c = on_cpu(choice);
    return pp_backend_packed_floats(&c, O, I);
}

struct product { /* of all kinds */
    int B, I, O;
    const float *x, *W, *packed, *b;
    enum pp_activation act;
    float *z, *y;
};

static int do_pack(struct pp_backend *be, const void *args)
{
    const struct product *p = args;
    return pp_backend_pack_weights(be, p->O, p->I, p->W, p->y);
}

static int pack_weights(struct pp_backend *be, int O, int I, const float *W, float *packed)
{
    struct product p = {.I = I, .O = O, .W = R(W), .y = R(packed)};
    return lazy_push(be, do_pack, &p, sizeof(p));
}

static int do_forward(struct pp_backend *be, const void *args)
{
    const struct product *p = args;
    PP_TRY(pp_backend_linear_forward(be, p->B, p->I, p->O, p->x, p->W, p->packed, p->b, p->act,
                                     p->z, p->y));
    if (__atomic_load_n(&spoil, __ATOMIC_SEQ_CST) > 0 &&
        __atomic_sub_fetch(&spoil, 1, __ATOMIC_SEQ_CST) == 0)
        p->y[0] = NAN;
    return 0;
}

static int linear_forward(struct pp_backend *be, int B, int I, int O, const float *x,
                          const float *W, const float *packed, const float *b,
                          enum pp_activation act, float *z, float *y)
{
    struct product p = {B, I, O, R(x), R(W), R(packed), R(b), act, R(z), R(y)};
    return lazy_push(be, do_forward, &p, sizeof(p));
}

static int do_backward_input(struct pp_backend *be, const void *args)
{
    const struct product *p = args;
    return pp_backend_linear_backward_input(be, p->B, p->I, p->O, p->x, p->W, p->packed, p->y);
}

static int linear_backward_input(struct pp_backend *be, int B, int I, int O, const float *dz,
                                 const float *W, const float *packed, float *dx)
{
    struct product p = {
        .B = B, .I = I, .O = O, .x = R(dz), .W = R(W), .packed = R(packed), .y = R(dx)};
    return lazy_push(be, do_backward_input, &p, sizeof(p));
}

struct weights {
    int n, I, O;
    struct pp_weight_part *parts; /* owned by what was enqueued; of a graph it stays */
    float beta, *dW, *db;
};

static int do_backward_weight(struct pp_backend *be, const void *args)
{
    const struct weights *w = args;
    return pp_backend_linear_backward_weight(be, w->n, w->parts, w->I, w->O, w->beta, w->dW, w->db);
}

static int linear_backward_weight(struct pp_backend *be, int n, const struct pp_weight_part *parts,
                                  int I, int O, float beta, float *dW, float *db)
{
    struct weights w = {n, I, O, NULL, beta, R(dW), R(db)};
    w.parts = lazy_keep(be, (size_t)n * sizeof(*parts));
    for (int k = 0; k < n; k++)
        w.parts[k] =
            (struct pp_weight_part){.B = parts[k].B, .dz = R(parts[k].dz), .x = R(parts[k].x)};
    return lazy_push(be, do_backward_weight, &w, sizeof(w));
}

struct flat { /* over n elements */
    size_t n;
    const float *a;
    float *g, *m, *v;
    double *out;
    const struct pp_optimizer_args *args;
    bool decay;
};

static int do_sum_squares(struct pp_backend *be, const void *args)
{
    const struct flat *f = args;
    return pp_backend_sum_squares(be, f->n, f->a, f->out);
}

static int sum_squares(struct pp_backend *be, size_t n, const float *g, double *out)
{
    struct flat f = {.n = n, .a = R(g), .out = R(out)};
    return lazy_push(be, do_sum_squares, &f, sizeof(f));
}

static int do_optimizer(struct pp_backend *be, const void *args)
{
    const struct flat *f = args;
    return pp_backend_optimizer_step(be, f->n, f->args, f->decay, f->a, f->m, f->v, f->g);
}

static int optimizer_step(struct pp_backend *be, size_t n, const struct pp_optimizer_args *a,
                          bool decay, const float *g, float *m, float *v, float *p)
{
    struct flat f = {
        .n = n, .a = R(g), .g = R(p), .m = R(m), .v = R(v), .args = R(a), .decay = decay};
    return lazy_push(be, do_optimizer, &f, sizeof(f));
}

static int do_judge(struct pp_backend *be, const void *args)
{
    return pp_backend_judge(be, args);
}

static int judge(struct pp_backend *be, const struct pp_judgement *j)
{
    struct pp_judgement real = *j;
    real.votes = R(j->votes);
    real.before = R(j->before);
    real.sums = R(j->sums);
    real.args = R(j->args);
    real.verdict = R(j->verdict);
    return lazy_push(be, do_judge, &real, sizeof(real));
}

#define PP_KERNEL(name, type)                                                                      \
    static int do_##name(struct pp_backend *be, const void *args)                                  \
    {                                                                                              \
        return pp_backend_##name(be, args);                                                        \
    }                                                                                              \
    static int name(struct pp_backend *be, const struct type *a)                                   \
    {                                                                                              \
        struct type real = *a;                                                                     \
        lazy_make_real(&real, sizeof(real));                                                       \
        return lazy_push(be, do_##name, &real, sizeof(real));                                      \
    }
#include "ppcli/kernels.def"

static int probe(char *why, size_t bytes)
{
    snprintf(why, bytes, "a device made of threads");
    return 0;
}

const struct pp_backend_ops backend_cuda = {
    .name = "cuda",
    .help = "a device made of threads (tests)",
    .own_memory = true,
    .probe = probe,
    .open = lazy_open,
    .close = lazy_close,
    .alloc = lazy_alloc,
    .free = lazy_free,
    .to_device = to_device,
    .to_host = to_host,
    .synchronize = lazy_synchronize,
    .zero = zero,
    .copy = copy,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .upload = upload,
    .download = download,
    .mark_create = lazy_mark_create,
    .mark_destroy = lazy_mark_destroy,
    .mark_set = lazy_mark_set,
    .mark_wait = lazy_mark_wait,
    .mark_reached = lazy_mark_reached,
    .mark_elapsed = lazy_mark_elapsed,
    .capture_begin = lazy_capture_begin,
    .capture_end = lazy_capture_end,
    .graph_launch = lazy_graph_launch,
    .graph_destroy = lazy_graph_destroy,
    .packed_floats = packed_floats,
    .pack_weights = pack_weights,
    .linear_forward = linear_forward,
    .linear_backward_input = linear_backward_input,
    .linear_backward_weight = linear_backward_weight,
    .sum_squares = sum_squares,
    .judge = judge,
    .optimizer_step = optimizer_step,
#define PP_KERNEL(name, type) .name = name,
#include "ppcli/kernels.def"
};
