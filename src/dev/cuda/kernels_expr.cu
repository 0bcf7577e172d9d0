/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of elementwise steps, and softmax. A thread interprets the steps for its elements; their
 * registers are in shared memory. One kernel computes the outputs that add nothing up, one each
 * output that adds up over axes, and one each output with elements that indices reach twice. So the
 * order of a sum follows from the program alone. Steps and reads that no output of a kernel needs
 * are left out of it.
 */
#include "kernels.h"
#include "vector.h"

#include "../expr.h"
#include "activations.h"

#include <math.h>

#define FEW 8                              /* registers: most programs have no more */
#define EACH 4                             /* elements of a thread, if nothing is added up */
#define MANY 2048                          /* terms of a sum that a block shares */
#define ROOM (PP_EXPR_REGISTERS * THREADS) /* registers of all threads of a block */

/* The argument of a kernel. It must not follow run.e, which is a pointer of the host. */
struct program {
    struct pp_expr e;
    struct pp_expr_run run;
    unsigned sums; /* bits of the axes over which the output adds up */
    int output;    /* if it has only one */
};
static_assert(sizeof(struct program) <= 4096, "the arguments of a kernel");

/* ---- steps */

/* The functions of ppcli/dev/expr.def. */
static __device__ inline float mathf_exp(float a)
{
    return expf(a);
}

static __device__ inline float mathf_log(float a)
{
    return logf(a);
}

static __device__ inline float mathf_expm1(float a)
{
    return expm1f(a);
}

static __device__ inline float mathf_log1p(float a)
{
    return log1pf(a);
}

static __device__ inline float mathf_sin(float a)
{
    return sinf(a);
}

static __device__ inline float mathf_cos(float a)
{
    return cosf(a);
}

static __device__ inline float mathf_tanh(float a)
{
    return tanhf(a);
}

static __device__ inline float mathf_erf(float a)
{
    return erff(a);
}

static __device__ inline float mathf_logistic(float a)
{
    return 1.0f / (1.0f + expf(-a));
}

static __device__ inline float mathf_pow(float a, float b)
{
    return powf(a, b);
}

static __device__ inline float activate(int act, float z)
{
    switch (act) {
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        return word##_value(z);
#include "ppcli/conf/activations.def"
    }
    return z;
}

static __device__ inline float activate_back(int act, float saved, float dy)
{
    switch (act) {
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        return word##_back(saved, dy);
#include "ppcli/conf/activations.def"
    }
    return dy;
}

/* Reads and writes an element of an array, which is f32 or has the type of values. */
template <typename V>
static __device__ inline float element_at(const struct pp_expr_array &v, const pp_value *x,
                                          ptrdiff_t at)
{
    return v.f32 ? ((const float *)x)[at] : (float)((const V *)x)[at];
}

template <typename V>
static __device__ inline void put_element(const struct pp_expr_array &v, pp_value *y, ptrdiff_t at,
                                          bool add, float value)
{
    if (v.f32)
        put((float *)y + at, add, value);
    else
        put((V *)y + at, add, value);
}

/* Returns where the element with these indices is in the array. */
static __device__ inline ptrdiff_t place_of(const struct program &p, const struct pp_expr_array &v,
                                            size_t sample, const int *index)
{
    ptrdiff_t at = (ptrdiff_t)(sample * v.sample + v.offset);
    for (int i = 0; i < PP_AXES; i++)
        if (i < p.e.n_axes)
            at += expr_offset(&v, p.run.tables, i, index[i]);
    return at;
}

#define OPERAND(r) (s.r == PP_EXPR_NUMBER ? number : own[s.r * LINE + T * n])
#define STEP(operands, value)                                                                      \
    for (int n = 0; n < N; n++) {                                                                  \
        operands;                                                                                  \
        own[s.to * LINE + T * n] = value;                                                          \
    }                                                                                              \
    break
#define STEP_1(value) STEP(const float a = OPERAND(a), value)
#define STEP_2(value) STEP(const float a = OPERAND(a); const float b = OPERAND(b), value)
#define STEP_3(value)                                                                              \
    STEP(const float a = OPERAND(a); const float b = OPERAND(b); const float c = OPERAND(c), value)

/* Runs the steps for the N elements of a thread with these samples and indices, in a block of T
 * threads. `own` is the thread's first register. Calls store(n, output, value). */
template <typename V, int N, int T, typename Store>
static __device__ inline void run_steps(const struct program &p, const size_t *sample,
                                        const int (*index)[PP_AXES], float *own, Store store)
{
    constexpr int LINE = N * T;
    for (int i = 0; i < p.e.n_steps; i++) {
        const struct pp_expr_step &s = p.e.steps[i];
        const float number = s.number;
        switch ((enum pp_expr_code)s.code) {
        case PP_EXPR_LOAD: {
            const struct pp_expr_array &v = p.e.in[s.a];
            STEP(, element_at<V>(v, p.run.x[s.a], place_of(p, v, sample[n], index[n])));
        }
        case PP_EXPR_STORE:
            for (int n = 0; n < N; n++)
                store(n, s.to, own[s.a * LINE + T * n]);
            break;
        case PP_EXPR_FILL:
            STEP(, number);
        case PP_EXPR_ACT:
            STEP(, activate(s.which, OPERAND(a)));
        case PP_EXPR_ACT_BACK:
            STEP(, activate_back(s.which, OPERAND(a), OPERAND(b)));
#define PP_EXPR_STEP(NAME, operands, value, fast)                                                  \
    case PP_EXPR_##NAME:                                                                           \
        STEP_##operands(fast);
#include "ppcli/dev/expr.def"
        }
    }
}

/* ---- elements */

/* Sets the indices of the axes with a bit in `axes` to those of element i of them, in order, and
 * returns how many times i has passed all of them. */
static __device__ inline size_t set_index(const struct program &p, unsigned axes, size_t i,
                                          int *index)
{
    for (int a = PP_AXES - 1; a >= 0; a--) {
        if (a >= p.e.n_axes || !(axes >> a & 1))
            continue;
        size_t size = (size_t)p.e.size[a], rest;
        if (i >> 32)
            rest = i / size;
        else
            rest = (uint32_t)i / (uint32_t)size; /* much faster */
        index[a] = (int)(i - rest * size);
        i = rest;
    }
    return i;
}

/* Returns the number of elements of the axes with a bit in `axes`. */
static PP_DEVICE inline size_t count_elements(const struct program &p, unsigned axes)
{
    size_t n = 1;
    for (int a = 0; a < p.e.n_axes; a++)
        n *= axes >> a & 1 ? (size_t)p.e.size[a] : 1;
    return n;
}

/* Computes outputs that add nothing up. A block has EACH * T elements at a time. */
template <typename V, int REGISTERS>
__global__ void run_elements(const __grid_constant__ struct program p, size_t elements)
{
    constexpr int T = ROOM / EACH / REGISTERS;
    __shared__ float registers[REGISTERS * EACH * T];
    for (size_t from = (size_t)blockIdx.x * EACH * T + threadIdx.x; from < elements;
         from += (size_t)gridDim.x * EACH * T) {
        size_t sample[EACH];
        int index[EACH][PP_AXES];
        for (int n = 0; n < EACH; n++) { /* those past the end compute the last one again */
            size_t i = from + (size_t)(n * T);
            sample[n] = set_index(p, ~0u, i < elements ? i : elements - 1, index[n]);
        }
        auto store = [&](int n, int k, float value) {
            const struct pp_expr_array &v = p.e.out[k];
            if (from + (size_t)(n * T) < elements)
                put_element<V>(v, p.run.y[k], place_of(p, v, sample[n], index[n]), p.run.add[k],
                               value);
        };
        run_steps<V, EACH, T>(p, sample, index, registers + threadIdx.x, store);
    }
}

/* ---- sums */

/* Returns the sum of every lanes-th term from `first` on of the output's element at `index`, of
 * which it sets the axes of the sum. */
template <typename V>
static __device__ inline double add_terms(const struct program &p, size_t sample, int *index,
                                          int first, int lanes, float *own)
{
    size_t terms = count_elements(p, p.sums);
    double sum = 0;
    auto add = [&](int, int, float value) { sum += (double)value; };
    for (size_t i = (size_t)first; i < terms; i += (size_t)lanes) {
        set_index(p, p.sums, i, index);
        run_steps<V, 1, THREADS>(p, &sample, (const int(*)[PP_AXES])index, own, add);
    }
    return sum;
}

/* Computes an output that adds up over axes. `lanes` threads share an element: 1, WARP or
 * THREADS. */
template <typename V>
__global__ void run_sums(const __grid_constant__ struct program p, size_t elements, int lanes)
{
    __shared__ float registers[ROOM];
    __shared__ double sums[THREADS];
    const struct pp_expr_array &v = p.e.out[p.output];
    int lane = (int)threadIdx.x % lanes, each = THREADS / lanes;
    for (size_t from = (size_t)blockIdx.x * (size_t)each; from < elements;
         from += (size_t)gridDim.x * (size_t)each) {
        size_t i = from + threadIdx.x / (unsigned)lanes;
        bool mine = i < elements;
        int index[PP_AXES] = {0};
        size_t sample = set_index(p, ~p.sums, mine ? i : elements - 1, index);
        double sum = add_terms<V>(p, sample, index, lane, lanes, registers + threadIdx.x);
        if (lanes == WARP)
            sum = warp_sum(sum);
        if (lanes == THREADS)
            sum = sum_of_block(sums, sum);
        if (lane == 0 && mine) {
            set_index(p, p.sums, 0, index);
            put_element<V>(v, p.run.y[p.output], place_of(p, v, sample, index), p.run.add[p.output],
                           (float)sum);
        }
        __syncthreads(); /* `sums` is free again */
    }
}

/* Adds to an output whose elements several indices reach. A block has a sample, and THREADS indices
 * of it at a time: the first thread of those with the same element adds up what they have. */
template <typename V> __global__ void run_repeats(const __grid_constant__ struct program p)
{
    __shared__ float registers[ROOM];
    __shared__ double sums[THREADS];
    __shared__ ptrdiff_t places[THREADS];
    const struct pp_expr_array &v = p.e.out[p.output];
    size_t n = count_elements(p, ~p.sums), sample = blockIdx.x;
    int t = (int)threadIdx.x;
    for (size_t from = 0; from < n; from += THREADS) {
        size_t i = from + (size_t)t;
        int index[PP_AXES] = {0};
        set_index(p, ~p.sums, i < n ? i : n - 1, index);
        ptrdiff_t at = place_of(p, v, sample, index);
        double sum = add_terms<V>(p, sample, index, 0, 1, registers + t);
        places[t] = i < n ? at : -1;
        sums[t] = sum;
        __syncthreads();
        bool first = i < n;
        for (int k = 0; k < t && first; k++)
            first = places[k] != at;
        for (int k = t + 1; k < THREADS && first; k++)
            sum += places[k] == at ? sums[k] : 0.0;
        if (first)
            put_element<V>(v, p.run.y[p.output], at, true, (float)sum);
        __syncthreads();
    }
}

/* ---- launches */

/* Makes the part of a program that computes the outputs with a bit in `outputs`. Returns the number
 * of registers it has. */
static int select_steps(const struct pp_expr_run *a, unsigned outputs, struct program *p)
{
    const struct pp_expr *e = a->e;
    bool keeps[PP_EXPR_STEPS] = {false}, needs[PP_EXPR_NUMBER + 1] = {false};
    int registers = 1;
    for (int i = e->n_steps - 1; i >= 0; i--) {
        const struct pp_expr_step *s = &e->steps[i];
        bool stores = s->code == PP_EXPR_STORE;
        keeps[i] = stores ? outputs >> s->to & 1 : needs[s->to];
        if (!keeps[i])
            continue;
        if (!stores) {
            needs[s->to] = false;
            registers = s->to >= registers ? s->to + 1 : registers;
        }
        const uint8_t operands[] = {s->a, s->b, s->c};
        for (int k = 0; k < pp_expr_operands((enum pp_expr_code)s->code); k++)
            needs[operands[k]] = true;
    }
    *p = {*e, *a, 0, 0};
    p->e.n_steps = 0;
    for (int i = 0; i < e->n_steps; i++)
        if (keeps[i])
            p->e.steps[p->e.n_steps++] = e->steps[i];
    return registers;
}

template <typename V, int REGISTERS>
static cudaError_t launch_elements(cudaStream_t s, const struct program *p)
{
    constexpr int T = ROOM / EACH / REGISTERS;
    size_t n = (size_t)p->run.B * p->e.elements, blocks = (n + EACH * T - 1) / (EACH * T);
    auto kernel = run_elements<V, REGISTERS>;
    return PP_LAUNCHED(kernel, (unsigned)(blocks < 16384 ? blocks : 16384), T, 0, s, *p, n);
}

/* Computes one output that adds up. How many threads share a sum follows from the program. */
template <typename V>
static cudaError_t launch_output(cudaStream_t s, const struct pp_expr_run *a, int k)
{
    struct program p;
    select_steps(a, 1u << k, &p);
    p.output = k;
    for (int i = 0; i < p.e.n_axes; i++)
        p.sums |= (unsigned)expr_sums(&p.e, &p.e.out[k], i) << i;
    if (p.e.out[k].repeats)
        return PP_LAUNCHED(run_repeats<V>, (unsigned)a->B, THREADS, 0, s, p);
    size_t n = (size_t)a->B * count_elements(p, ~p.sums), terms = count_elements(p, p.sums);
    bool inner = p.sums >> (p.e.n_axes - 1) & 1;
    int lanes = terms >= MANY ? THREADS : terms >= WARP && inner ? WARP : 1;
    size_t blocks = (n * (size_t)lanes + THREADS - 1) / THREADS;
    return PP_LAUNCHED(run_sums<V>, (unsigned)(blocks < 16384 ? blocks : 16384), THREADS, 0, s, p,
                       n, lanes);
}

KERNEL(expr, pp_expr_run)
{
    unsigned elements = 0;
    cudaError_t e = cudaSuccess;
    for (int k = 0; k < a->e->n_out && a->B > 0 && e == cudaSuccess; k++) {
        bool adds_up = a->e->out[k].repeats;
        for (int i = 0; i < a->e->n_axes; i++)
            adds_up = adds_up || expr_sums(a->e, &a->e->out[k], i);
        if (a->y[k] && adds_up)
            e = launch_output<V>(s, a, k);
        else if (a->y[k])
            elements |= 1u << k;
    }
    struct program p;
    if (elements == 0 || e != cudaSuccess)
        return e;
    bool few = select_steps(a, elements, &p) <= FEW;
    return few ? launch_elements<V, FEW>(s, &p) : launch_elements<V, PP_EXPR_REGISTERS>(s, &p);
}

/* ---- softmax */

static __device__ inline float largest_of_warp(float v)
{
    for (int half = WARP / 2; half > 0; half /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL, v, half));
    return v;
}

/* Calls do_it(first element of the row, the thread's lane, lanes) for each row of a softmax. A row
 * has a warp, or a thread if the rows next to it are next to it in memory. */
template <typename Do>
static cudaError_t launch_softmax(cudaStream_t s, size_t samples, int outer, int n, int inner,
                                  Do do_it)
{
    int lanes = inner >= WARP || n < WARP / 2 ? 1 : WARP;
    size_t rows = samples * (size_t)outer * (size_t)inner, step = (size_t)inner;
    size_t each = (size_t)n * step;
    return launch_each(s, rows * (size_t)lanes, [=] __device__(size_t i) {
        size_t row = i / (size_t)lanes;
        do_it(row / step * each + row % step, (int)(i % (size_t)lanes), lanes);
    });
}

template <typename V>
static __device__ inline void softmax_row(const struct pp_softmax_forward &a, size_t at, int lane,
                                          int lanes)
{
    const V *x = (const V *)a.x + at;
    V *y = (V *)a.y + at;
    size_t step = (size_t)a.inner;
    float most = -INFINITY;
    double sum = 0;
    for (int i = lane; i < a.n; i += lanes)
        most = fmaxf(most, x[(size_t)i * step]);
    most = lanes == WARP ? largest_of_warp(most) : most;
    for (int i = lane; i < a.n; i += lanes)
        sum += (double)expf(x[(size_t)i * step] - most);
    sum = lanes == WARP ? warp_sum(sum) : sum;
    float scale = (float)(a.log ? log(sum) : 1 / sum);
    for (int i = lane; i < a.n; i += lanes) {
        float z = x[(size_t)i * step] - most;
        y[(size_t)i * step] = a.log ? z - scale : expf(z) * scale;
    }
}

KERNEL(softmax_forward, pp_softmax_forward)
{
    struct pp_softmax_forward f = *a;
    return launch_softmax(
        s, (size_t)f.B, f.outer, f.n, f.inner,
        [=] __device__(size_t at, int lane, int lanes) { softmax_row<V>(f, at, lane, lanes); });
}

template <typename V>
static __device__ inline void softmax_row_back(const struct pp_softmax_backward &a, size_t at,
                                               int lane, int lanes)
{
    const V *y = (const V *)a.y + at, *dy = (const V *)a.dy + at;
    V *dx = (V *)a.dx + at;
    size_t step = (size_t)a.inner;
    double sum = 0;
    for (int i = lane; i < a.n; i += lanes) {
        double d = (double)(float)dy[(size_t)i * step];
        sum += a.log ? d : d * (double)(float)y[(size_t)i * step];
    }
    float all = (float)(lanes == WARP ? warp_sum(sum) : sum);
    for (int i = lane; i < a.n; i += lanes) {
        float p = y[(size_t)i * step], d = dy[(size_t)i * step];
        put(dx + (size_t)i * step, a.add, a.log ? d - expf(p) * all : p * (d - all));
    }
}

KERNEL(softmax_backward, pp_softmax_backward)
{
    struct pp_softmax_backward b = *a;
    return launch_softmax(s, (size_t)b.B, b.outer, b.n, b.inner,
                          [=] __device__(size_t at, int lane, int lanes) {
                              softmax_row_back<V>(b, at, lane, lanes);
                          });
}
