/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU backend: the three matrix products come from our own kernels or from a CBLAS (gemm.h),
 * everything else from our own loops. Nothing here allocates after open(), and a call has finished
 * when it returns.
 */
#include <stdlib.h>
#include <string.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "ppcli/base/base.h"
#include "blas.h"
#include "cpu_impl.h"

#define LOSS_ROWS 512 /* rows of a loss at a time; their results lie on the stack */

/* Denormal numbers in the tails of softmax and of decayed gradients cost a hundred cycles each, so
 * they are flushed to zero. The setting belongs to the calling thread. On processors other than x86
 * and ARM nothing is changed. */
#if defined(__SSE__)
enum {
    FLUSH = 0x8040 /* flush results to zero, and read denormals as zero */
};

static unsigned read_control(void)
{
    return _mm_getcsr();
}

static void write_control(unsigned control)
{
    _mm_setcsr(control);
}
#elif defined(__aarch64__)
enum {
    FLUSH = 1 << 24
};

static unsigned read_control(void)
{
    unsigned long control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return (unsigned)control;
}

static void write_control(unsigned control)
{
    __asm__ volatile("msr fpcr, %0" : : "r"((unsigned long)control));
}
#else
enum {
    FLUSH = 0
};

static unsigned read_control(void)
{
    return 0;
}

static void write_control(unsigned control)
{
    (void)control;
}
#endif

static unsigned denormals_off(void)
{
    unsigned before = read_control();
    write_control(before | FLUSH);
    return before;
}

static void begin_member(void)
{
    (void)denormals_off();
}

static void denormals_restore(unsigned before)
{
    write_control((read_control() & ~(unsigned)FLUSH) | (before & FLUSH));
}

/* The variants compiled for each instruction set, the widest first. A processor with AVX2 but
 * without fused multiply-add runs the base variant. */
static const struct {
    const struct cpu_kernels *kernels;
    const struct cpu_gemm *gemm, *bf16;
} sets[] = {
#ifdef PPCLI_KERNELS_X86
    {&cpu_kernels_avx512, &cpu_gemm_avx512, &cpu_bf16_avx512_bf16},
    {&cpu_kernels_avx512, &cpu_gemm_avx512, &cpu_bf16_avx512},
    {&cpu_kernels_avx2, &cpu_gemm_avx2, &cpu_bf16_avx2},
#endif
#ifdef PPCLI_KERNELS_NEON
    {&cpu_kernels_neon, &cpu_gemm_neon, &cpu_bf16_neon},
#else
    {&cpu_kernels_base, &cpu_gemm_base, &cpu_bf16_base},
#endif
};

#define N_SETS (int)(sizeof(sets) / sizeof(sets[0]))

static int widest_set(void)
{
#ifdef PPCLI_KERNELS_X86
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return avx512 && __builtin_cpu_supports("avx512bf16") ? 0 : avx512 ? 1 : avx2 ? 2 : 3;
#else
    return 0;
#endif
}

/* Returns the index of the instruction set to use: the widest one, or a narrower one that
 * PPCLI_KERNELS names; N_SETS if there is no set of that name or the processor cannot run it. */
static int first_set(void)
{
    const char *name = getenv("PPCLI_KERNELS");
    int i = widest_set();
    while (name && *name && i < N_SETS && strcmp(name, sets[i].bf16->name) != 0)
        i++;
    return i;
}

const struct cpu_kernels *cpu_kernels_runnable(int i)
{
    i += first_set();
    return i < N_SETS ? sets[i].kernels : NULL;
}

const struct cpu_gemm *cpu_gemm_own(int i)
{
    i += first_set();
    return i < N_SETS ? sets[i].gemm : NULL;
}

const struct cpu_gemm *cpu_gemm_bf16(int i)
{
    i += first_set();
    return i < N_SETS ? sets[i].bf16 : NULL;
}

/* Returns the implementation of products to use. The rule is fixed and does not depend on a
 * measurement, so that the bits are the same every day. */
static const struct cpu_gemm *choose_gemm(const struct pp_backend_choice *choice)
{
    bool bf16 = choice->precision == PP_PRECISION_BF16;
    const struct cpu_gemm *own = bf16 ? cpu_gemm_bf16(0) : cpu_gemm_own(0);
    return choice->gemm == PP_GEMM_CBLAS || !own ? &cpu_gemm_cblas : own;
}

static int check_kernels(void)
{
    char names[64] = "";
    for (int i = widest_set(); i < N_SETS; i++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "", sets[i].bf16->name);
    }
    return cpu_gemm_own(0)
               ? 0
               : pp_fail(PP_ECONFIG,
                         "PPCLI_KERNELS=%s: this processor runs %s; write one of these, "
                         "or unset PPCLI_KERNELS",
                         getenv("PPCLI_KERNELS"), names);
}

static int probe_cpu(char *why, size_t bytes)
{
    int rc = check_kernels();
    snprintf(why, bytes, rc < 0 ? "%s" : "own products (%s)",
             rc < 0 ? pp_error_get()->text : cpu_gemm_own(0)->name);
    if (rc < 0)
        pp_error_clear();
    return rc;
}

static void versions(void (*visit)(void *ctx, const char *what, const char *text), void *ctx)
{
    char text[256];
    pp_blas_describe(text, sizeof(text));
    visit(ctx, "CBLAS", text);
}

static int start_team(const struct pp_backend_choice *choice, struct pp_team **out)
{
    const struct pp_team_spec spec = {.threads = pp_backend_members(choice),
                                      .processors = choice->processors ? choice->processors
                                                                       : pp_backend_members(choice),
                                      .cpus = choice->cpus,
                                      .crowded = choice->crowded,
                                      .begin = begin_member};
    return spec.threads > 1 ? pp_team_create(&spec, out) : 0;
}

static int cpu_open(struct pp_backend *be, int threads)
{
    PP_TRY(check_kernels());
    const struct cpu_gemm *g = choose_gemm(&be->choice);
    bool bf16 = be->choice.precision == PP_PRECISION_BF16;
    if (bf16 && g == &cpu_gemm_cblas)
        return pp_fail(PP_ECONFIG, "run.precision = bf16 needs run.gemm = fma on the processor: a "
                                   "CBLAS has no such products");
    struct cpu *cpu;
    PP_ALLOC(cpu, 1);
    PP_TRY_UNDO(g == &cpu_gemm_cblas ? blas_enter(threads) : start_team(&be->choice, &cpu->team),
                pp_free(cpu));
    cpu->k = cpu_kernels_runnable(0);
    cpu->gemm = g;
    cpu->control = denormals_off();
    be->impl = cpu;
    be->caps.host_visible = true;
    be->caps.thread_safe = g != &cpu_gemm_cblas || blas_set_threads(threads);
    if (g == &cpu_gemm_cblas) {
        char name[96];
        pp_blas_describe(name, sizeof(name));
        snprintf(be->description, sizeof(be->description), "cpu: %s, %d thread%s", name, threads,
                 pp_plural(threads));
    } else { /* the bits are the same for any number of threads, so it is not in the text */
        snprintf(be->description, sizeof(be->description), "cpu: own products (%s%s)",
                 bf16 ? "bf16, " : "", g->name);
    }
    return 0;
}

static void cpu_close(struct pp_backend *be)
{
    PP_OWN_MEMORY struct cpu *cpu = be->impl;
    pp_team_destroy(&cpu->team);
    denormals_restore(cpu->control);
    if (cpu->gemm == &cpu_gemm_cblas)
        blas_leave(be->choice.threads);
}

static size_t packed_floats(const struct pp_backend_choice *choice, int O, int I)
{
    const struct cpu_gemm *g = choose_gemm(choice);
    return g->packed_floats ? g->packed_floats(O, I) : 0;
}

static bool sums_in_order(const struct pp_backend_choice *choice)
{
    return choose_gemm(choice) != &cpu_gemm_cblas;
}

#define PP_KERNEL(name, type)
#define PP_LOSS(name, type)
#define PP_LOOP(name, type, of_units, of_grain, of_cost)                                           \
    static int name(struct pp_backend *be, const struct type *a)                                   \
    {                                                                                              \
        const struct pp_work work = {cpu_of(be)->k->name, (size_t)(of_units), of_grain, of_cost};  \
        pp_team_run(cpu_of(be)->team, &work, a);                                                   \
        return 0;                                                                                  \
    }
#include "ppcli/dev/kernels.def"

static size_t conv_packed_floats(const struct pp_backend_choice *choice, const struct pp_conv *g)
{
    const struct cpu_gemm *p = choose_gemm(choice);
    return p->conv->packed_floats ? p->conv->packed_floats(g) : 0;
}

static int conv_pack(struct pp_backend *be, const struct pp_conv *g, const float *W, const float *b,
                     float *packed)
{
    cpu_of(be)->gemm->conv->pack(g, W, packed);
    return 0;
}

static size_t conv_scratch_floats(const struct pp_backend_choice *choice, const struct pp_conv *g,
                                  int B)
{
    const struct cpu_gemm *p = choose_gemm(choice);
    return (size_t)pp_backend_members(choice) * p->conv->scratch_floats(g, B);
}

/* Estimates the nanoseconds that each of the three kernels of a convolution (F, I and W) takes for
 * `samples` samples. */
static double conv_ns(const struct pp_conv *g, double samples)
{
    double weights = (double)g->O * g->kh * g->kw * g->C / g->groups;
    return 2 * samples * g->OH * g->OW * weights / CPU_FLOPS_PER_NS;
}

static int conv_forward(struct pp_backend *be, const struct pp_conv_forward *a)
{
    const struct pp_work work = {cpu_of(be)->gemm->conv->forward, (size_t)a->B * (size_t)a->g->OH,
                                 1, conv_ns(a->g, a->B)};
    pp_team_run(cpu_of(be)->team, &work, a);
    return 0;
}

static int conv_backward_input(struct pp_backend *be, const struct pp_conv_backward_input *a)
{
    const struct pp_work work = {cpu_of(be)->gemm->conv->backward_input,
                                 (size_t)a->B * (size_t)a->g->H, 1, conv_ns(a->g, a->B)};
    pp_team_run(cpu_of(be)->team, &work, a);
    return 0;
}

static int conv_backward_weight(struct pp_backend *be, const struct pp_conv_backward_weight *a)
{
    double samples = 0;
    for (int k = 0; k < a->n; k++)
        samples += a->parts[k].B;
    const struct pp_work work = {cpu_of(be)->gemm->conv->backward_weight, (size_t)a->g->O,
                                 CPU_TILE_ROWS, conv_ns(a->g, samples)};
    cpu_bias_gradient(be, a->n, a->parts, a->g->OH * a->g->OW, a->g->O, a->beta, a->db);
    pp_team_run(cpu_of(be)->team, &work, a);
    return 0;
}

static int sum_squares(struct pp_backend *be, const struct pp_sum_squares *a)
{
    *a->out = cpu_of(be)->k->sum_squares(a->n, a->g);
    return 0;
}

static int cpu_largest(struct pp_backend *be, size_t n, const float *x, float *io)
{
    *io = cpu_of(be)->k->largest(n, x, *io);
    return 0;
}

struct update {
    const struct cpu_kernels *k;
    const struct pp_optimizer_step *a;
};

static void update_piece(const void *args, const struct pp_piece *w)
{
    const struct update *u = args;
    const struct pp_optimizer_step *a = u->a;
    size_t i = w->from;
    u->k->optimizer_step(w->to - i, a->args, a->decay, a->g + i, a->m ? a->m + i : NULL,
                         a->v ? a->v + i : NULL, a->p + i);
}

static int optimizer_step(struct pp_backend *be, const struct pp_optimizer_step *a)
{
    const struct update u = {cpu_of(be)->k, a};
    const struct pp_work work = {update_piece, a->n, 16, 0.5 * (double)a->n};
    if (!a->args->skip)
        pp_team_run(cpu_of(be)->team, &work, &u);
    return 0;
}

void cpu_softmax_cross_entropy(const struct cpu_kernels *k, struct pp_team *team,
                               const struct pp_softmax_cross_entropy *a)
{
    struct cpu_row_loss rows[LOSS_ROWS];
    size_t all = (size_t)a->B * (size_t)a->P;
    a->sums->rows += a->B - a->uncounted;
    for (size_t r = 0, n; r < all; r += n) {
        n = all - r < LOSS_ROWS ? all - r : LOSS_ROWS;
        const struct cpu_loss l = {a, r, rows};
        const struct pp_work work = {k->loss_rows, n, 1, 0.6 * (double)n * a->C};
        pp_team_run(team, &work, &l);
        for (size_t i = 0; i < n; i++) {
            if (rows[i].counts) {
                a->sums->correct += rows[i].correct;
                a->sums->targets++;
                a->sums->weight += rows[i].weight;
                a->sums->loss += rows[i].loss;
            }
        }
    }
}

static int softmax_cross_entropy(struct pp_backend *be, const struct pp_softmax_cross_entropy *a)
{
    cpu_softmax_cross_entropy(cpu_of(be)->k, cpu_of(be)->team, a);
    return 0;
}

void cpu_numbers_loss(const struct cpu_kernels *k, struct pp_team *team,
                      const struct pp_numbers_loss *a)
{
    struct cpu_row_numbers rows[LOSS_ROWS];
    size_t all = (size_t)a->B;
    struct pp_loss_sums *sums = a->sums;
    sums->rows += a->B;
    sums->targets += (int64_t)a->B * a->C;
    sums->weight += (double)a->B * a->C;
    for (size_t r = 0, n; r < all; r += n) {
        n = all - r < LOSS_ROWS ? all - r : LOSS_ROWS;
        const struct cpu_numbers l = {a, r, rows};
        const struct pp_work work = {k->numbers_rows, n, 1,
                                     (a->kind == PP_LOSS_BCE ? 40 : 5) * (double)n * a->C};
        pp_team_run(team, &work, &l);
        for (size_t i = 0; i < n; i++) {
            sums->loss += rows[i].loss;
            sums->correct += rows[i].correct;
            sums->squares += rows[i].squares;
            sums->absolutes += rows[i].absolutes;
            sums->sum += rows[i].sum;
            sums->sum_squares += rows[i].sum_squares;
        }
    }
}

static int numbers_loss(struct pp_backend *be, const struct pp_numbers_loss *a)
{
    cpu_numbers_loss(cpu_of(be)->k, cpu_of(be)->team, a);
    return 0;
}

const struct pp_backend_ops backend_cpu = {
    .name = "cpu",
    .help = "this machine's cores",
    .probe = probe_cpu,
    .versions = versions,
    .open = cpu_open,
    .close = cpu_close,
    .sums_in_order = sums_in_order,
    .packed_floats = packed_floats,
    .pack_weights = cpu_pack_weights,
    .linear_forward = cpu_linear_forward,
    .linear_backward_input = cpu_linear_backward_input,
    .linear_backward_weight = cpu_linear_backward_weight,
    .sum_squares = sum_squares,
    .largest = cpu_largest,
    .optimizer_step = optimizer_step,
    .conv_packed_floats = conv_packed_floats,
    .conv_pack = conv_pack,
    .conv_scratch_floats = conv_scratch_floats,
    .conv_forward = conv_forward,
    .conv_backward_input = conv_backward_input,
    .conv_backward_weight = conv_backward_weight,
#define PP_KERNEL(name, type)
#define PP_LOOP(name, type, ...) .name = name,
#include "ppcli/dev/kernels.def"
};
