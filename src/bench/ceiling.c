/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ceilings of this machine. Every figure comes from threads bound to a core each that begin
 * together, several times; the median of the repeats counts, from the first to begin to the last to
 * end.
 */
#include "bench.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "fma.h"
#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

#define REPEATS 5
#define GEMM_N 1024 /* from here on the rate does not grow any more */
#define GEMM_N_SMALL 256
#define TRIPS 5000 /* there and back, per repeat */
#define WARM_TURNS 200000
#define FMA_SECONDS 4e-3 /* of one repeat */
#define TRIAD_BYTES_MIN ((size_t)192 << 20)
#define TRIAD_BYTES_MAX ((size_t)1 << 30)
#define PATIENCE_NS 2000000000u /* of a thread whose partner gets no core */

struct pair { /* the two ends of the ping-pong, each on its own cache lines */
    _Alignas(128) atomic_long ping;
    _Alignas(128) atomic_long pong;
};

struct team;

struct member {
    struct team *team;
    int number, core;
    pthread_t thread;
    uint64_t begin[REPEATS], end[REPEATS];
    float *a, *b, *c; /* the work's own memory */
    float *packed;    /* of b, or NULL */
    struct pp_backend *be;
    float sum;  /* used, so that nothing is left out */
    long trips; /* ping-pong: so far */
};

struct team {
    struct member *members; /* owned by pp_ceilings_measure() */
    int n;
    void (*work)(struct member *m);
    atomic_int go; /* 1: all are there, -1: one is missing */
    pthread_barrier_t together;
    int64_t turns;     /* fma */
    int width;         /* gemm */
    const float *bias; /* gemm: [width] zeros */
    size_t elements;   /* triad: of each array and member */
    struct pair *pair; /* ping-pong */
    bool cpu_time;
    atomic_bool late;
};

/* ---- a team */

static uint64_t now(const struct team *t)
{
    return t->cpu_time && t->n == 1 ? pp_clock_cpu_ns() : pp_clock_ns();
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    int go;
    while ((go = atomic_load(&m->team->go)) == 0)
        sched_yield(); /* until all have been started, or one could not be */
    if (go < 0)
        return NULL;
    pp_thread_pin(m->core);
    for (int i = 0; i < REPEATS; i++) {
        pthread_barrier_wait(&m->team->together);
        m->begin[i] = now(m->team);
        m->team->work(m);
        m->end[i] = now(m->team);
    }
    return NULL;
}

static double median_of_team(const struct team *t)
{
    double times[REPEATS];
    for (int k = 0; k < REPEATS; k++) {
        uint64_t first = UINT64_MAX, last = 0;
        for (int i = 0; i < t->n; i++) {
            const struct member *m = &t->members[i];
            first = m->begin[k] < first ? m->begin[k] : first;
            last = m->end[k] > last ? m->end[k] : last;
        }
        times[k] = (double)(last - first) * 1e-9;
    }
    double median = pp_median(times, REPEATS);
    return median > 0 ? median : 1e-9;
}

/* Measures the median time of the work when n members do it at once, one on each of the cores. */
static int run_team(struct team *t, int n, const int *cores, double *seconds)
{
    int started = 0;
    t->n = n;
    atomic_store(&t->go, 0);
    if (pthread_barrier_init(&t->together, NULL, (unsigned)n) != 0)
        return pp_fail(PP_ERESOURCE, "cannot measure with %d threads", n);
    while (started < n) {
        struct member *m = &t->members[started];
        m->team = t;
        m->number = started;
        m->core = cores[started];
        if (pp_thread_start(&m->thread, member_main, m) != 0)
            break;
        started++;
    }
    atomic_store(&t->go, started == n ? 1 : -1);
    for (int i = 0; i < started; i++)
        pthread_join(t->members[i].thread, NULL);
    pthread_barrier_destroy(&t->together);
    if (started < n)
        return pp_fail(PP_ERESOURCE, "cannot start %d threads to measure with", n);
    *seconds = median_of_team(t);
    return 0;
}

/* ---- what is measured */

static const struct cpu_fma *find_widest_fma(void)
{
#ifdef PPCLI_KERNELS_X86
    if (__builtin_cpu_supports("avx512f"))
        return &cpu_fma_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &cpu_fma_avx2;
#endif
#ifdef PPCLI_KERNELS_NEON
    return &cpu_fma_neon;
#else
    return &cpu_fma_base;
#endif
}

static void multiply_add(struct member *m)
{
    m->sum += find_widest_fma()->loop(m->team->turns);
}

static int measure_fma(struct team *t, const int *cores, double scale, struct pp_ceilings *out)
{
    const struct cpu_fma *fma = find_widest_fma();
    double seconds;
    t->work = multiply_add;
    t->turns = WARM_TURNS;
    PP_TRY(run_team(t, 1, cores, &seconds));
    t->turns = (int64_t)(FMA_SECONDS * scale * WARM_TURNS / seconds) + 1;
    double flops = fma->flops * (double)t->turns;
    out->isa = fma->name;
    out->fma_cores = out->cores < PP_CEILING_ALONE ? out->cores : PP_CEILING_ALONE;
    for (int c = 0; c < out->fma_cores; c++) {
        PP_TRY(run_team(t, 1, cores + c, &seconds));
        out->fma_core[c] = flops / seconds;
    }
    PP_TRY(run_team(t, out->cores, cores, &seconds));
    out->fma_all = flops * out->cores / seconds;
    return 0;
}

/* Computes c[n][n] = a[n][n] * b[n][n] by the layer call that does least in addition to the
 * product. */
static void multiply_once(struct member *m)
{
    int n = m->team->width;
    if (m->packed) {
        (void)pp_backend_linear_forward(
            m->be, &(struct pp_linear_forward){n, n, n, m->a, m->b, m->packed, m->team->bias,
                                               PP_ACT_NONE, NULL, m->c, 0});
    } else {
        (void)pp_backend_linear_backward_input(
            m->be, &(struct pp_linear_backward_input){n, n, n, m->a, m->b, NULL, m->c, 0});
    }
}

/* Gives three arrays from one block to every member. The arrays of a member begin `each` arrays
 * after those of the member before. */
static void deal_out(struct team *t, const struct pp_arena *a, int n, size_t each, size_t elements)
{
    for (int i = 0; i < n; i++) {
        float *base = (float *)(void *)a->base + each * (size_t)i * elements;
        t->members[i].a = base;
        t->members[i].b = base + elements;
        t->members[i].c = base + 2 * elements;
    }
}

static int time_products(struct team *t, const int *cores, int n_cores, double rates[2])
{
    double flops = 2.0 * t->width * t->width * t->width, seconds = 0;
    PP_TRY(run_team(t, 1, cores, &seconds));
    rates[0] = flops / seconds;
    PP_TRY(run_team(t, n_cores, cores, &seconds));
    rates[1] = flops * n_cores / seconds;
    return 0;
}

/* Opens a backend for each member. If the backend packs weights, packs those of the product, but
 * not if the packed weights need more memory than there is. */
static int open_backends(struct team *t, const struct pp_backend_choice *choice, int n,
                         size_t elements)
{
    size_t floats = pp_backend_packed_floats(choice, t->width, t->width);
    for (int i = 0; i < n; i++) {
        struct member *m = &t->members[i];
        PP_TRY(pp_backend_open_choice(choice, &m->be));
        m->packed = floats > 0 && floats <= 2 * elements ? m->c + elements : NULL;
        if (m->packed)
            PP_TRY(pp_backend_pack_weights(m->be, t->width, t->width, m->b, NULL, m->packed));
    }
    return 0;
}

/* Measures the speed of products on one core and on all cores, for rates[2]. If these products
 * cannot run here, it leaves the rates as they are and does not fail. */
static int measure_products(struct team *t, enum pp_gemm gemm, const int *cores, int n_cores,
                            size_t elements, double rates[2])
{
    struct pp_backend_choice choice = {.threads = 1, .gemm = gemm};
    PP_TRY(pp_backend_resolve("cpu", &choice.ops));
    int rc = open_backends(t, &choice, n_cores, elements);
    if (rc < 0)
        pp_error_clear();
    rc = rc < 0 ? 0 : time_products(t, cores, n_cores, rates);
    for (int i = n_cores - 1; i >= 0; i--)
        pp_backend_close(&t->members[i].be);
    return rc;
}

static int measure_gemm(struct team *t, const int *cores, double scale, struct pp_ceilings *out)
{
    PP_OWN(pp_arena_destroy) struct pp_arena a = {0};
    int n = scale < 0.5 ? GEMM_N_SMALL : GEMM_N;
    /* two matrices, the result, and up to two more for packed weights */
    size_t elements = (size_t)n * (size_t)n, all = 5 * elements * (size_t)out->cores;
    static const enum pp_gemm gemms[2] = {PP_GEMM_CBLAS, PP_GEMM_FMA};
    double rates[2][2] = {{0}};
    PP_TRY(pp_arena_create((all + (size_t)n) * sizeof(float), &a));
    float *values = (float *)(void *)a.base;
    for (size_t i = 0; i < all; i++)
        values[i] = (float)(i % 61) * 0.01f - 0.3f;
    deal_out(t, &a, out->cores, 5, elements);
    t->bias = values + all;
    t->work = multiply_once;
    t->width = n;
    for (int k = 0; k < 2; k++)
        PP_TRY(measure_products(t, gemms[k], cores, out->cores, elements, rates[k]));
    out->gemm_n = n;
    out->blas_core = rates[0][0];
    out->blas_all = rates[0][1];
    out->own_core = rates[1][0];
    out->own_all = rates[1][1];
    out->gemm_core = out->own_core > out->blas_core ? out->own_core : out->blas_core;
    out->gemm_all = out->own_all > out->blas_all ? out->own_all : out->blas_all;
    return 0;
}

static void run_triad(struct member *m)
{
    const float *restrict b = m->b, *restrict c = m->c;
    float *restrict a = m->a;
    for (size_t i = 0; i < m->team->elements; i++)
        a[i] = b[i] + 0.5f * c[i];
}

/* Returns the bytes of the arrays for the triad: several times the last cache, but no more than a
 * machine with many caches can spare. */
static size_t triad_bytes(double scale)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = cache > 0 ? 4 * (size_t)cache : 0;
    bytes = bytes < TRIAD_BYTES_MIN ? TRIAD_BYTES_MIN : bytes;
    bytes = bytes > TRIAD_BYTES_MAX ? TRIAD_BYTES_MAX : bytes;
    return scale < 0.5 ? bytes / 16 : bytes;
}

static int measure_triad(struct team *t, const int *cores, double scale, struct pp_ceilings *out)
{
    PP_OWN(pp_arena_destroy) struct pp_arena a = {0};
    size_t whole = triad_bytes(scale) / (3 * sizeof(float)) / (size_t)out->cores;
    size_t elements = whole - whole % 16;
    double one, all;
    PP_TRY(pp_arena_create(3 * elements * (size_t)out->cores * sizeof(float), &a));
    memset(a.base, 0, a.bytes); /* the pages are there */
    t->work = run_triad;
    t->elements = elements * (size_t)out->cores;
    deal_out(t, &a, 1, 3, t->elements);
    PP_TRY(run_team(t, 1, cores, &one));
    t->elements = elements;
    deal_out(t, &a, out->cores, 3, elements);
    PP_TRY(run_team(t, out->cores, cores, &all));
    double bytes = 3.0 * (double)elements * out->cores * sizeof(float);
    out->triad_bytes = (size_t)bytes;
    out->triad_core = bytes / one;
    out->triad_all = bytes / all;
    return 0;
}

/* Waits until *from is `value`. Gives up if the other thread gets no core for very long. */
static void await_value(struct team *t, const atomic_long *from, long value)
{
    uint64_t start = 0;
    for (unsigned spins = 0; atomic_load_explicit(from, memory_order_acquire) != value; spins++) {
        if (spins % 4096 == 4095) {
            uint64_t now = pp_clock_ns();
            start = start ? start : now;
            if (now - start > PATIENCE_NS || atomic_load(&t->late)) {
                atomic_store(&t->late, true);
                return;
            }
        }
    }
}

static void ping_pong(struct member *m)
{
    struct pair *p = m->team->pair;
    for (int k = 0; k < TRIPS; k++) {
        long i = ++m->trips;
        if (m->number == 0) {
            atomic_store_explicit(&p->ping, i, memory_order_release);
            await_value(m->team, &p->pong, i);
        } else {
            await_value(m->team, &p->ping, i);
            atomic_store_explicit(&p->pong, i, memory_order_release);
        }
    }
}

static int measure_ping_pong(struct team *t, const int *cores, struct pp_ceilings *out)
{
    struct pair pair;
    double seconds;
    if (out->cores < 2)
        return 0;
    atomic_init(&pair.ping, 0);
    atomic_init(&pair.pong, 0);
    t->work = ping_pong;
    t->pair = &pair;
    PP_TRY(run_team(t, 2, cores, &seconds));
    out->ping_pong = atomic_load(&t->late) ? 0 : seconds / (2.0 * TRIPS);
    return 0;
}

static int measure_all(struct team *t, const int *cores, double scale, struct pp_ceilings *out)
{
    PP_TRY(measure_fma(t, cores, scale, out));
    PP_TRY(measure_gemm(t, cores, scale, out));
    PP_TRY(measure_triad(t, cores, scale, out));
    return measure_ping_pong(t, cores, out);
}

int pp_ceilings_measure(const struct pp_ceiling_spec *spec, struct pp_ceilings *out)
{
    PP_TAKE(int, cores, PP_MACHINE_CORES_MAX); /* too large for a small stack */
    uint64_t start = pp_clock_ns();
    struct pp_ceilings c = {.isa = ""};
    struct team t = {.cpu_time = spec->cpu_time};
    c.cores = pp_machine_cores(spec->whole_machine, cores, PP_MACHINE_CORES_MAX);
    PP_ALLOC(t.members, c.cores > 2 ? c.cores : 2);
    int rc = measure_all(&t, cores, spec->scale, &c);
    pp_free(t.members);
    c.took = (double)(pp_clock_ns() - start) * 1e-9;
    if (rc == 0)
        *out = c;
    return rc;
}

double pp_ceiling_memory(const struct pp_ceilings *c, int ranks)
{
    return c->triad_all < ranks * c->triad_core ? c->triad_all : ranks * c->triad_core;
}

double pp_ceiling_gemm(const struct pp_ceilings *c, int ranks)
{
    if (c->cores < 1 || ranks < 1)
        return 0;
    return ranks == 1 ? c->gemm_core
                      : c->gemm_all * (ranks < c->cores ? ranks : c->cores) / c->cores;
}
