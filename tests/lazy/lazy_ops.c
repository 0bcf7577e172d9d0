/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of the lazy device: each one packs its arguments, and what it points to is looked up when
 * it is done. */
#include "lazy_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

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

struct pack {
    int O, I;
    const float *W, *b;
    float *packed;
};

static int do_pack(struct pp_backend *be, const void *args)
{
    const struct pack *p = args;
    return pp_backend_pack_weights(be, p->O, p->I, p->W, p->b, p->packed);
}

static int pack_weights(struct pp_backend *be, int O, int I, const float *W, const float *b,
                        float *packed)
{
    struct pack p = {O, I, R(W), R(b), R(packed)};
    return lazy_push(be, do_pack, &p, sizeof(p));
}

/* The parts of a weight gradient are the caller's: a copy, owned by what was enqueued; of a graph it
 * stays. */
static const struct pp_weight_part *keep_parts(struct pp_backend *be, int n,
                                               const struct pp_weight_part *parts)
{
    size_t bytes = (size_t)n * sizeof(*parts);
    struct pp_weight_part *own = lazy_keep(be, bytes);
    memcpy(own, parts, bytes);
    lazy_make_real(own, bytes);
    return own;
}

static void keep_arguments(struct pp_backend *be, enum pp_kernel k, void *args)
{
    struct pp_linear_backward_weight *linear = args;
    struct pp_conv_backward_weight *conv = args;
    if (k == PP_KERNEL_linear_backward_weight)
        linear->parts = keep_parts(be, linear->n, linear->parts);
    else if (k == PP_KERNEL_conv_backward_weight)
        conv->parts = keep_parts(be, conv->n, conv->parts);
}

static void spoil_result(enum pp_kernel k, const void *args)
{
    const struct pp_linear_forward *a = args;
    if (k == PP_KERNEL_linear_forward && __atomic_load_n(&spoil, __ATOMIC_SEQ_CST) > 0 &&
        __atomic_sub_fetch(&spoil, 1, __ATOMIC_SEQ_CST) == 0)
        a->y[0] = NAN;
}

#define PP_KERNEL(name, type)                                                                      \
    static int do_##name(struct pp_backend *be, const void *args)                                  \
    {                                                                                              \
        PP_TRY(pp_backend_##name(be, args));                                                       \
        spoil_result(PP_KERNEL_##name, args);                                                      \
        return 0;                                                                                  \
    }                                                                                              \
    static int name(struct pp_backend *be, const struct type *a)                                   \
    {                                                                                              \
        struct type real = *a;                                                                     \
        keep_arguments(be, PP_KERNEL_##name, &real);                                               \
        lazy_make_real(&real, sizeof(real));                                                       \
        return lazy_push(be, do_##name, &real, sizeof(real));                                      \
    }
#include "ppcli/dev/kernels.def"

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
#define PP_KERNEL(name, type) .name = name,
#include "ppcli/dev/kernels.def"
};
