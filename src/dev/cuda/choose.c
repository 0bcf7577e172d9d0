/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the fusion and the algorithm of a product. With exact it takes the first algorithm that
 * cuBLASLt names and that keeps the promises of backend.h, does not split sums and needs no
 * workspace. So the choice is the same in every run, on every rank and for any number of
 * multiprocessors. Otherwise it takes the fastest of those that cuBLASLt names, measured together
 * with what the fusion leaves to our own kernels.
 *
 * Trials run on noise in memory and a stream of their own: they neither wait for the rank's work
 * nor disturb it.
 */
#include "plan.h"

#include <math.h>

#include "ppcli/base/base.h"

#define ALGORITHMS 8           /* requested per fusion */
#define BUDGET_NS 200000000ull /* for the trials of one shape; the most promising come first */
#define BURST_NS 1000000.0     /* the approximate length of one measurement */
#define BURST 20               /* the most repetitions in one measurement */
#define BURSTS 3               /* measurements, of which the shortest counts */
#define WARM_NS 50000000ull    /* an idle device takes about that long to reach its clock rate */
#define MARGIN 256             /* between the arrays of a trial */

struct candidate {
    enum cuda_fusion fusion;
    cublasLtMatmulAlgo_t algorithm;
    int rank; /* the position in cuBLASLt's list */
};

/* ---- candidates */

static int make_wishes(struct cuda *c, cublasLtMatmulPreference_t wishes)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint64_t workspace = c->workspace_bytes;
    BLAS_TRY(c, MatmulPreferenceSetAttribute(wishes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &workspace, sizeof(workspace)));
    if (c->exact) {
        uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
        BLAS_TRY(c, MatmulPreferenceSetAttribute(wishes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 &none, sizeof(none)));
    }
    for (size_t i = 0; i < sizeof(alignments) / sizeof(alignments[0]); i++) {
        uint32_t align = CUDA_OPERAND_ALIGN;
        BLAS_TRY(c, MatmulPreferenceSetAttribute(wishes, alignments[i], &align, sizeof(align)));
    }
    return 0;
}

/* Appends the algorithms that cuBLASLt has for one fusion to the list; appends nothing if it does
 * not have the fusion. */
static int append_candidates(struct cuda *c, const struct cuda_shape *s, enum cuda_fusion fusion,
                             cublasLtMatmulPreference_t wishes, struct candidate *list, int *n)
{
    struct cuda_plan p;
    cublasLtMatmulHeuristicResult_t found[ALGORITHMS];
    int count = 0;
    int rc = cuda_plan_init(c, s, fusion, &p);
    if (rc == 0 &&
        c->blas->MatmulAlgoGetHeuristic(c->handle, p.product, p.first, p.second, p.result, p.result,
                                        wishes, ALGORITHMS, found, &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    for (int i = 0; i < count && rc == 0; i++) {
        if (found[i].state == CUBLAS_STATUS_SUCCESS &&
            found[i].workspaceSize <= c->workspace_bytes) {
            list[(*n)++] =
                (struct candidate){.fusion = fusion, .algorithm = found[i].algo, .rank = i};
        }
    }
    cuda_plan_fini(c, &p);
    return rc;
}

/* Sorts the candidates by rank. The sort is stable, so that fusions of one rank stay in order. */
static void sort_by_rank(struct candidate *list, int n)
{
    for (int i = 1; i < n; i++) {
        struct candidate x = list[i];
        int at = i;
        for (; at > 0 && list[at - 1].rank > x.rank; at--)
            list[at] = list[at - 1];
        list[at] = x;
    }
}

static int list_candidates(struct cuda *c, const struct cuda_shape *s, struct candidate *list,
                           int *n)
{
    enum cuda_fusion fusions[CUDA_FUSIONS];
    int n_fusions = cuda_fusions_for(s, c->exact, fusions);
    cublasLtMatmulPreference_t wishes;
    BLAS_TRY(c, MatmulPreferenceCreate(&wishes));
    int rc = make_wishes(c, wishes);
    for (int i = 0; i < n_fusions && rc == 0; i++)
        rc = append_candidates(c, s, fusions[i], wishes, list, n);
    c->blas->MatmulPreferenceDestroy(wishes);
    if (!c->exact) /* with exact the first fusion that works is taken, whatever its algorithm */
        sort_by_rank(list, *n);
    return rc;
}

/* ---- trials */

/* Noise to compute with: one block of memory, into which the pointers point. */
struct trial {
    cudaStream_t stream;
    cudaEvent_t from, to;
    char *block;
    void *first, *second, *workspace;
    float *result, *bias, *y;
    double *between; /* the scratch of kernels; the rank's own may be in use */
};

static size_t pad_bytes(size_t bytes)
{
    return (bytes + MARGIN - 1) / MARGIN * MARGIN;
}

static void *take_array(struct trial *t, size_t *at, size_t bytes)
{
    void *p = t->block ? t->block + *at : NULL;
    *at += pad_bytes(bytes);
    return p;
}

/* Assigns each array of a trial its place in the block and returns the bytes of all. If there is no
 * block yet, only counts the bytes. */
static size_t lay_out(const struct cuda *c, const struct cuda_shape *s, struct trial *t)
{
    size_t at = 0, factor = c->bf16 ? sizeof(uint16_t) : sizeof(float);
    size_t result = s->product == CUDA_BACKWARD_WEIGHT ? sizeof(float) : factor;
    result *= cuda_result_count(s);
    t->first = take_array(t, &at, cuda_first_count(s) * factor);
    t->second = take_array(t, &at, cuda_second_count(s) * factor);
    t->result = take_array(t, &at, result);
    t->y = s->product == CUDA_FORWARD && s->keeps_z ? take_array(t, &at, result) : NULL;
    t->bias = s->bias ? take_array(t, &at, (size_t)s->O * sizeof(float)) : NULL;
    t->between = take_array(t, &at, CUDA_SCRATCH_BYTES);
    t->workspace = c->workspace_bytes ? take_array(t, &at, c->workspace_bytes) : NULL;
    return at;
}

static cudaError_t fill_noise(const struct cuda *c, const struct cuda_shape *s,
                              const struct trial *t)
{
    bool result = c->bf16 && s->product != CUDA_BACKWARD_WEIGHT;
    cudaError_t e = cudaMemsetAsync(t->between, 0, CUDA_SCRATCH_BYTES, t->stream);
    if (e == cudaSuccess)
        e = kernels_noise(t->stream, cuda_first_count(s), c->bf16, t->first);
    if (e == cudaSuccess)
        e = kernels_noise(t->stream, cuda_second_count(s), c->bf16, t->second);
    if (e == cudaSuccess)
        e = kernels_noise(t->stream, cuda_result_count(s), result, t->result);
    if (e == cudaSuccess && t->bias)
        e = kernels_noise(t->stream, (size_t)s->O, result, t->bias);
    return e;
}

/* Enqueues the product of the candidate, and the work that it leaves to our kernels, `times` times.
 * Returns whether everything was enqueued. */
static bool enqueue_candidate(const struct cuda *c, const struct cuda_plan *p,
                              const struct trial *t, int times)
{
    struct cuda_operands o = {t->first, t->second, t->result, t->bias};
    for (int i = 0; i < times; i++) {
        if (cuda_plan_multiply(c, p, &o, t->workspace, t->stream) != CUBLAS_STATUS_SUCCESS)
            return false;
        cudaError_t e = cudaSuccess;
        if (p->shape.product == CUDA_FORWARD) {
            e = cuda_plan_finish_forward(p, t->result, t->bias, p->shape.keeps_z ? t->result : NULL,
                                         p->shape.keeps_z ? t->y : t->result, t->stream);
        } else if (p->shape.product == CUDA_BACKWARD_WEIGHT) {
            struct cuda_sums one = {1, {cuda_plan_bias(p, t->second, t->bias, p->shape.adds)}};
            if (one.at[0].db)
                e = kernels_sum_all(t->stream, c->bf16, &one, t->between);
        }
        if (e != cudaSuccess)
            return false;
    }
    return true;
}

/* Sets *good to whether the candidate runs and, if it applies relu, keeps a NaN. cuBLASLt may
 * return either operand as the maximum of a NaN and 0, and a run that has diverged must be
 * noticed. */
static int try_once(const struct cuda *c, const struct cuda_plan *p, const struct trial *t,
                    bool *good)
{
    size_t element = c->bf16 ? sizeof(uint16_t) : sizeof(float);
    bool nan = p->fusion == CUDA_BIAS_RELU;
    float y = nan ? 0 : NAN;
    if (nan) /* the first row of x begins with a NaN */
        CUDA_TRY(c->device, cudaMemsetAsync(t->second, 0xff, element, t->stream));
    *good = enqueue_candidate(c, p, t, 1);
    if (nan) {
        char *high = (char *)&y + sizeof(y) - element; /* a bf16 is the upper half of a float */
        CUDA_TRY(c->device,
                 cudaMemcpyAsync(high, t->result, element, cudaMemcpyDeviceToHost, t->stream));
        CUDA_TRY(c->device, cudaMemsetAsync(t->second, 0, element, t->stream));
    }
    CUDA_TRY(c->device, cudaStreamSynchronize(t->stream));
    *good = *good && isnan(y);
    return 0;
}

/* Returns the nanoseconds of `times` executions; negative if they could not be measured. Runs them
 * from a graph, because launching them one by one would take longer than many of them run. */
static double time_burst(const struct cuda *c, const struct cuda_plan *p, const struct trial *t,
                         int times)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    double least = -1;
    bool good = cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeRelaxed) == cudaSuccess;
    good = good && enqueue_candidate(c, p, t, times);
    good = cudaStreamEndCapture(t->stream, &graph) == cudaSuccess && good;
    good = good && cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess;
    for (int i = 0; i <= BURSTS && good; i++) { /* the first execution warms up */
        float ms = 0;
        good = cudaEventRecord(t->from, t->stream) == cudaSuccess &&
               cudaGraphLaunch(ready, t->stream) == cudaSuccess &&
               cudaEventRecord(t->to, t->stream) == cudaSuccess &&
               cudaEventSynchronize(t->to) == cudaSuccess &&
               cudaEventElapsedTime(&ms, t->from, t->to) == cudaSuccess;
        double ns = (double)ms * 1e6;
        if (good && i > 0 && (least < 0 || ns < least))
            least = ns;
    }
    if (ready)
        cudaGraphExecDestroy(ready);
    if (graph)
        cudaGraphDestroy(graph);
    if (!good)
        cudaGetLastError();
    return good ? least : -1;
}

/* Returns the nanoseconds of one execution of the candidate; negative if it could not be
 * measured. */
static double measure_candidate(const struct cuda *c, const struct cuda_plan *p,
                                const struct trial *t)
{
    double one = time_burst(c, p, t, 1);
    if (one < 0 || one >= BURST_NS)
        return one;
    int times = one * BURST > BURST_NS ? (int)(BURST_NS / one) : BURST;
    return time_burst(c, p, t, times) / times;
}

/* Keeps the device busy before the rank's first measurement. An idle device may run at a fifth of
 * its clock rate, so that the first candidate would look slow. */
static void warm_up(const struct cuda *c, const struct cuda_plan *p, const struct trial *t)
{
    uint64_t start = pp_clock_ns();
    while (c->n_plans == 0 && pp_clock_ns() - start < WARM_NS && time_burst(c, p, t, BURST) >= 0) {
    }
}

static int try_all(struct cuda *c, const struct cuda_shape *s, const struct candidate *list, int n,
                   const struct trial *t, const struct candidate **best)
{
    uint64_t start = 0; /* of the measurements */
    double least = -1;
    for (int i = 0; i < n; i++) {
        struct cuda_plan p;
        bool good = false;
        int rc = cuda_plan_init(c, s, list[i].fusion, &p);
        if (rc == 0) {
            p.algorithm = list[i].algorithm;
            rc = try_once(c, &p, t, &good);
        }
        double ns = 0;
        if (rc == 0 && good && !c->exact) {
            if (start == 0) {
                warm_up(c, &p, t);
                start = pp_clock_ns();
            }
            ns = measure_candidate(c, &p, t);
        }
        cuda_plan_fini(c, &p);
        PP_TRY(rc);
        if (good && ns >= 0 && (!*best || ns < least)) {
            *best = &list[i];
            least = ns;
        }
        if (*best && (c->exact || pp_clock_ns() - start > BUDGET_NS))
            break;
    }
    return 0;
}

static void close_trial(struct trial *t)
{
    if (t->from)
        cudaEventDestroy(t->from);
    if (t->to)
        cudaEventDestroy(t->to);
    if (t->stream)
        cudaStreamDestroy(t->stream);
    cudaFree(t->block);
}

static int open_trial(struct cuda *c, const struct cuda_shape *s, struct trial *t)
{
    int processors;
    size_t bytes = lay_out(c, s, t);
    void *block = NULL;
    cudaError_t e = cudaMalloc(&block, bytes);
    if (e != cudaSuccess)
        return cuda_no_memory(c->device, bytes, e, __FILE__, __LINE__);
    t->block = block;
    lay_out(c, s, t);
    PP_TRY(cuda_device_stream(c->shared, c->partition, c->partitions, &t->stream, &processors));
    CUDA_TRY(c->device, cudaEventCreate(&t->from));
    CUDA_TRY(c->device, cudaEventCreate(&t->to));
    CUDA_TRY(c->device, fill_noise(c, s, t));
    return 0;
}

/* Returns a candidate that is known to be right without a trial; used if there is no memory for
 * trials. */
static const struct candidate *pick_untried(const struct candidate *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i].fusion != CUDA_BIAS_RELU)
            return &list[i];
    return NULL;
}

int cuda_choose(struct cuda *c, const struct cuda_shape *s, enum cuda_fusion *fusion,
                cublasLtMatmulAlgo_t *algorithm)
{
    struct candidate list[CUDA_FUSIONS * ALGORITHMS];
    const struct candidate *best = NULL;
    struct trial trial = {0};
    int n = 0;
    PP_TRY(list_candidates(c, s, list, &n));
    if (c->exact && n > 0 &&
        list[0].fusion != CUDA_BIAS_RELU) { /* the first candidate is taken, and is known to be
                                               right */
        *fusion = list[0].fusion;
        *algorithm = list[0].algorithm;
        return 0;
    }
    int rc = open_trial(c, s, &trial);
    if (rc == 0) {
        rc = try_all(c, s, list, n, &trial, &best);
    } else if (!trial.block && !c->exact) { /* with exact all ranks must come to the same answer, so
                                               this would not do */
        pp_error_clear();
        rc = 0;
        best = pick_untried(list, n);
    }
    close_trial(&trial);
    cudaGetLastError(); /* clears the error of a candidate, which no launch of ours caused */
    PP_TRY(rc);
    if (!best) {
        return pp_fail(PP_ERESOURCE,
                       "cuda device %d: cuBLASLt computes no product of %d rows, %d inputs and %d "
                       "outputs in this precision; use run.precision = f32, or run.backend = cpu",
                       c->device, s->B, s->I, s->O);
    }
    *fusion = best->fusion;
    *algorithm = best->algorithm;
    return 0;
}
