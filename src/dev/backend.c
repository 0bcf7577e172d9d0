/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of backends, and the calls that all code uses: each calls the entry of the backend's
 * table or, if that is NULL, the plain default. Calls of kernels are in kernels.c.
 */
#include "backend.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

#define QUIET_NS 2000000000u /* least time for a device to finish after a failure */

#define PP_BACKEND(x) extern const struct pp_backend_ops backend_##x;
#include "backends.def"

extern const struct pp_backend_ops pp_plain_ops; /* plain.c: only the compute entries */

static const struct pp_backend_ops *const backends[] = {
#define PP_BACKEND(x) &backend_##x,
#include "backends.def"
};

#define N_BACKENDS (sizeof(backends) / sizeof(backends[0]))

/* "auto" takes the first of these that can run here. */
static const struct pp_backend_ops *const preferred[] = {&backend_cuda, &backend_cpu};
#define N_PREFERRED (sizeof(preferred) / sizeof(preferred[0]))

const struct pp_activation_facts *pp_activation_facts(int act)
{
    enum {
        SAVES_y = 0,
        SAVES_z = 1
    };
    static const struct pp_activation_facts rows[] = {
        [PP_ACT_NONE] = {.gain = 1, .steepest = 1},
#define PP_ACTIVATION(NAME, word, saved, gain, steepest, ...)                                      \
    [PP_ACT_##NAME] = {SAVES_##saved, gain, steepest},
#include "ppcli/conf/activations.def"
    };
    return &rows[act];
}

int pp_backend_count(void)
{
    return (int)N_BACKENDS;
}

const struct pp_backend_ops *pp_backend_at(int i)
{
    pp_assert(i >= 0 && i < pp_backend_count());
    return backends[i];
}

const char *const *pp_backend_names(void)
{
    static const char *const names[] = {
        "auto",
#define PP_BACKEND(x) #x,
#include "backends.def"
        NULL,
    };
    return names;
}

static const struct pp_backend_ops *find_backend(const char *name)
{
    for (size_t i = 0; i < N_BACKENDS; i++)
        if (!strcmp(name, backends[i]->name))
            return backends[i];
    return NULL;
}

int pp_backend_resolve(const char *name, const struct pp_backend_ops **out)
{
    char why[256] = "";
    if (!strcmp(name, "auto")) {
        for (size_t i = 0; i < N_PREFERRED; i++) {
            if (preferred[i]->probe(why, sizeof(why)) == 0) {
                *out = preferred[i];
                return 0;
            }
        }
        return pp_fail(PP_ERESOURCE, "no backend can run here: %s", why);
    }
    const struct pp_backend_ops *named = find_backend(name);
    if (named) {
        if (named->probe(why, sizeof(why)) < 0)
            return pp_fail(PP_ERESOURCE, "backend %s cannot run here: %s", name, why);
        *out = named;
        return 0;
    }
    char known[256] = "auto";
    for (size_t i = 0; i < N_BACKENDS; i++)
        pp_text_add(known, sizeof(known), ", %s", backends[i]->name);
    return pp_fail(PP_ECONFIG, "run.backend: no backend is named '%s' (%s)", name, known);
}

static atomic_bool warned_unused; /* once per process */

/* Warns about the devices of the backend that are not used because of a problem. */
static void warn_devices(const struct pp_backend_ops *taken)
{
    struct pp_device all[PP_DEVICES_MAX];
    char why[256];
    int n = 0;
    if (!taken->devices || taken->devices(all, PP_DEVICES_MAX, &n, why, sizeof(why)) < 0)
        return;
    for (int i = 0; i < n && i < PP_DEVICES_MAX; i++)
        if (all[i].problem[0])
            pp_log_warn("device %d (%s) is not used: %s", all[i].number, all[i].name,
                        all[i].problem);
}

void pp_backend_warn_unused(const char *name, const struct pp_backend_ops *taken)
{
    char why[256];
    if (strcmp(name, "auto") != 0 || atomic_exchange(&warned_unused, true))
        return;
    for (size_t i = 0; i < N_PREFERRED && preferred[i] != taken; i++)
        if (preferred[i]->is_here && preferred[i]->is_here() &&
            preferred[i]->probe(why, sizeof(why)) < 0)
            pp_log_warn("the GPU of this machine is not used: %s", why);
    warn_devices(taken);
}

/* Returns the number of threads for run.threads = auto: one for each core of the rank's place or,
 * before ranks are placed, for each core of an equal share, assuming that all hosts are like this
 * one. */
static int divide_cores(const struct pp_config *cfg)
{
    int hosts = 1, ranks = cfg->pipeline.stages * cfg->pipeline.replicas;
    for (const char *p = cfg->run.hosts; (p = strchr(p, ',')) != NULL; p++)
        hosts++;
    int cores = cfg->run.cores > 0 ? cfg->run.cores : pp_machine_whole_cores();
    int each = cores / ((ranks + hosts - 1) / hosts);
    return each > 0 ? each : 1;
}

/* Returns the number of the first usable device, for a run whose run.devices names none. */
static int first_device(const struct pp_backend_ops *ops)
{
    struct pp_device all[PP_DEVICES_MAX];
    char why[256];
    int n = 0, i = 0;
    if (!ops || !ops->devices || ops->devices(all, PP_DEVICES_MAX, &n, why, sizeof(why)) < 0)
        return 0;
    while (i < n && i < PP_DEVICES_MAX && all[i].problem[0])
        i++;
    return i < n && i < PP_DEVICES_MAX ? i : 0;
}

struct pp_backend_choice pp_backend_choice_with(const struct pp_backend_ops *ops,
                                                const struct pp_config *cfg)
{
    struct pp_backend_choice c = {.ops = ops,
                                  .named = ops ? ops : find_backend(cfg->run.backend),
                                  .threads = cfg->run.threads,
                                  .gemm = cfg->run.gemm,
                                  .conv = cfg->run.conv,
                                  .precision = cfg->run.precision,
                                  .unpacked = !cfg->run.packed,
                                  .exact = cfg->train.exact,
                                  .device = cfg->run.n_devices > 0 ? cfg->run.devices[0]
                                                                   : first_device(ops)};
    if (c.threads == 0) /* only own products have the same bits for every number of threads */
        c.threads = pp_backend_sums_in_order(&c) ? divide_cores(cfg) : 1;
    return c;
}

struct pp_backend_choice pp_backend_choice_of(const struct pp_config *cfg)
{
    const struct pp_backend_ops *ops = NULL;
    if (pp_backend_resolve(cfg->run.backend, &ops) < 0)
        pp_error_clear();
    return pp_backend_choice_with(ops, cfg);
}

int pp_backend_open(const struct pp_backend_ops *ops, int threads, struct pp_backend **out)
{
    struct pp_backend_choice choice = {.ops = ops, .threads = threads};
    return pp_backend_open_choice(&choice, out);
}

int pp_backend_open_choice(const struct pp_backend_choice *choice, struct pp_backend **out)
{
    const struct pp_backend_ops *ops = choice->ops;
    struct pp_backend *be;
    PP_ALLOC(be, 1);
    be->ops = ops;
    be->choice = *choice;
    be->caps = (struct pp_backend_caps){.host_visible = !ops->own_memory, .thread_safe = true};
    snprintf(be->description, sizeof(be->description), "%s", ops->name);
    PP_TRY_UNDO(ops->open ? ops->open(be, choice->threads) : 0, pp_free(be));
    *out = be;
    return 0;
}

void pp_backend_close(struct pp_backend **be)
{
    if (*be) {
        if ((*be)->ops->close)
            (*be)->ops->close(*be);
        pp_free(*be);
        *be = NULL;
    }
}

/* ---- memory */

int pp_backend_alloc(struct pp_backend *be, size_t bytes, void **out)
{
    if (be->ops->alloc)
        return be->ops->alloc(be, bytes, out);
    struct pp_arena a;
    PP_TRY(pp_arena_create(bytes ? bytes : PP_ALIGN, &a));
    *out = a.base;
    return 0;
}

void pp_backend_free(struct pp_backend *be, void *p, size_t bytes)
{
    if (!p)
        return;
    if (be->ops->free) {
        be->ops->free(be, p, bytes);
        return;
    }
    struct pp_arena a = {.base = p, .bytes = bytes ? bytes : PP_ALIGN};
    pp_arena_destroy(&a);
}

static int copy_bytes(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
    return 0;
}

int pp_backend_to_device(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return be->ops->to_device ? be->ops->to_device(be, dst, src, bytes)
                              : copy_bytes(dst, src, bytes);
}

int pp_backend_to_host(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return be->ops->to_host ? be->ops->to_host(be, dst, src, bytes) : copy_bytes(dst, src, bytes);
}

int pp_backend_synchronize(struct pp_backend *be)
{
    return be->ops->synchronize ? be->ops->synchronize(be) : 0;
}

int pp_backend_zero(struct pp_backend *be, void *p, size_t bytes)
{
    if (be->ops->zero)
        return be->ops->zero(be, p, bytes);
    if (bytes > 0)
        memset(p, 0, bytes);
    return 0;
}

int pp_backend_copy(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return be->ops->copy ? be->ops->copy(be, dst, src, bytes) : copy_bytes(dst, src, bytes);
}

/* ---- streams */

int pp_backend_host_alloc(struct pp_backend *be, size_t bytes, void **out)
{
    if (be->ops->host_alloc)
        return be->ops->host_alloc(be, bytes, out);
    *out = pp_alloc(bytes ? bytes : 1, 1);
    return *out ? 0 : PP_ERESOURCE;
}

void pp_backend_host_free(struct pp_backend *be, void *p, size_t bytes)
{
    if (p && be->ops->host_free)
        be->ops->host_free(be, p, bytes);
    else
        pp_free(p);
}

int pp_backend_upload(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return be->ops->upload ? be->ops->upload(be, dst, src, bytes)
                           : pp_backend_to_device(be, dst, src, bytes);
}

int pp_backend_download(struct pp_backend *be, void *dst, const void *src, size_t bytes)
{
    return be->ops->download ? be->ops->download(be, dst, src, bytes)
                             : pp_backend_to_host(be, dst, src, bytes);
}

void *pp_backend_native_stream(struct pp_backend *be)
{
    return be->ops->native_stream ? be->ops->native_stream(be) : NULL;
}

int pp_backend_mark_create(struct pp_backend *be, bool timed, void **mark)
{
    *mark = NULL;
    return be->ops->mark_create ? be->ops->mark_create(be, timed, mark) : 0;
}

void pp_backend_mark_destroy(struct pp_backend *be, void *mark)
{
    if (mark)
        be->ops->mark_destroy(be, mark);
}

int pp_backend_mark_set(struct pp_backend *be, void *mark)
{
    return mark ? be->ops->mark_set(be, mark) : 0;
}

int pp_backend_mark_wait(struct pp_backend *be, void *mark)
{
    return mark ? be->ops->mark_wait(be, mark) : 0;
}

int pp_backend_mark_reached(struct pp_backend *be, void *mark, bool *reached)
{
    *reached = true;
    return mark ? be->ops->mark_reached(be, mark, reached) : 0;
}

bool pp_backend_is_quiet(struct pp_backend *be, void *mark)
{
    struct pp_error why = *pp_error_get();
    uint64_t start = pp_clock_ns(), limit = be->quiet_ns > QUIET_NS ? be->quiet_ns : QUIET_NS;
    bool reached = pp_backend_mark_set(be, mark) < 0, in_time = true;
    while (in_time && !reached && pp_backend_mark_reached(be, mark, &reached) == 0 && !reached) {
        in_time = pp_clock_ns() - start <= limit;
        pp_clock_nap(100000);
    }
    pp_error_adopt(&why);
    return in_time;
}

int pp_backend_mark_elapsed(struct pp_backend *be, void *from, void *to, uint64_t *ns)
{
    pp_assert(from && to);
    return be->ops->mark_elapsed(be, from, to, ns);
}

int pp_backend_capture_begin(struct pp_backend *be)
{
    pp_assert(be->caps.graphs);
    return be->ops->capture_begin(be);
}

int pp_backend_capture_end(struct pp_backend *be, void **graph)
{
    pp_assert(be->caps.graphs);
    return be->ops->capture_end(be, graph);
}

int pp_backend_graph_launch(struct pp_backend *be, void *graph)
{
    pp_assert(be->caps.graphs);
    return be->ops->graph_launch(be, graph);
}

void pp_backend_graph_destroy(struct pp_backend *be, void *graph)
{
    if (graph)
        be->ops->graph_destroy(be, graph);
}

void pp_backend_range_push(struct pp_backend *be, const char *name)
{
    if (be->ops->range_push)
        be->ops->range_push(be, name);
}

void pp_backend_range_pop(struct pp_backend *be)
{
    if (be->ops->range_pop)
        be->ops->range_pop(be);
}

/* ---- compute */

int pp_backend_find_largest(struct pp_backend *be, size_t n, const float *x, float *io)
{
    pp_assert(!be->caps.async);
    return (be->ops->largest ? be->ops->largest : pp_plain_ops.largest)(be, n, x, io);
}

int pp_backend_prepare_linear(struct pp_backend *be, const struct pp_linear_use *use)
{
    pp_assert(use->B >= 0 && use->I > 0 && use->O > 0);
    return be->ops->prepare_linear ? be->ops->prepare_linear(be, use) : 0;
}

int pp_backend_collect(struct pp_backend *be, enum pp_collect what)
{
    return be->ops->collect ? be->ops->collect(be, what) : 0;
}

bool pp_backend_sums_in_order(const struct pp_backend_choice *choice)
{
    return choice->ops && choice->ops->sums_in_order && choice->ops->sums_in_order(choice);
}

static const struct pp_backend_ops *find_ops(const struct pp_backend_choice *choice)
{
    return !choice ? NULL : choice->ops ? choice->ops : choice->named;
}

size_t pp_backend_value_bytes(const struct pp_backend_choice *choice)
{
    const struct pp_backend_ops *ops = find_ops(choice);
    return ops && ops->value_bytes ? ops->value_bytes(choice) : sizeof(float);
}

/* Returns the elements from one row of C logits to the next. Pads rows only from 1024 logits on: a
 * shorter row is one or two lines of memory, and padding would cost more than it gains. */
int pp_backend_logits_row(const struct pp_backend_choice *choice, int C)
{
    const struct pp_backend_ops *ops = find_ops(choice);
    int unit = ops ? ops->logits_unit : 0;
    return unit > 0 && C >= 1024 && C % 8 != 0 ? (C + unit - 1) / unit * unit : C;
}

/* Copies n values, which may be bf16, to dst[n] as floats. Reads bf16 values into the upper half of
 * dst, so that each one is read before a float overwrites it. */
int pp_backend_values_to_host(struct pp_backend *be, float *dst, const float *src, size_t n)
{
    size_t bytes = n * pp_backend_value_bytes(&be->choice);
    char *from = (char *)dst + n * sizeof(*dst) - bytes;
    PP_TRY(pp_backend_to_host(be, from, src, bytes));
    for (size_t i = 0; bytes < n * sizeof(*dst) && i < n; i++) {
        uint16_t half;
        memcpy(&half, from + i * sizeof(half), sizeof(half));
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(&dst[i], &bits, sizeof(bits));
    }
    return 0;
}

int pp_backend_rows_to_host(struct pp_backend *be, float *dst, const float *src, size_t B, int C,
                            int row)
{
    size_t columns = (size_t)C, at_once = row == C ? B : 1;
    for (size_t r = 0; r < B; r += at_once)
        PP_TRY(pp_backend_values_to_host(be, dst + r * columns,
                                         pp_value_at(be, src, r * (size_t)row), at_once * columns));
    return 0;
}

size_t pp_backend_packed_floats(const struct pp_backend_choice *choice, int O, int I)
{
    pp_assert(I > 0 && O > 0);
    const struct pp_backend_ops *ops = choice->unpacked ? NULL : choice->ops;
    return ops && ops->packed_floats ? ops->packed_floats(choice, O, I) : 0;
}

int pp_backend_pack_weights(struct pp_backend *be, int O, int I, const float *W, const float *b,
                            float *packed)
{
    pp_assert(pp_backend_packed_floats(&be->choice, O, I) > 0);
    return be->ops->pack_weights(be, O, I, W, b, packed);
}
