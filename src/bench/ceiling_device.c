/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ceilings of a device, through the backend's own table: what a run cannot exceed as long as it
 * makes these calls. Times are the device's, between two marks; where ops are done when they return
 * they are the host's.
 */

#include "bench.h"
#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"

#define REPEATS 5
#define GEMM_N 8192 /* from here on the rate does not grow any more */
#define GEMM_N_MIN 128
#define SQUARES 8 /* of f32, that measuring a product takes at most, and a block more */
#define NODES 1000
#define FILL_FLOATS (1 << 18)
#define CALLS_MAX 1000
#define BATCH_SECONDS 30e-3 /* of one repeat, about: clocks have risen by then */
#define WIDEST_SECONDS 0.1  /* of one product */

/* One rank's worth of device with what is measured on it. */
struct bench {
    struct pp_backend *be;
    void *from, *to;      /* timed marks; NULL where ops are done when they return */
    int n;                /* of the product */
    float *x, *W, *b, *y; /* device: [n][n], [n][n], [n], [n][n] */
    float *packed;        /* device: of W, or NULL */
    size_t packed_floats;
    size_t bytes;   /* of each of two blocks */
    void *block[2]; /* device */
    void *graph;
};

static int multiply_once(struct bench *t)
{
    return pp_backend_linear_forward(
        t->be, &(struct pp_linear_forward){t->n, t->n, t->n, t->x, t->W, t->packed, t->b,
                                           PP_ACT_NONE, NULL, t->y, 0});
}

static int copy_block(struct bench *t)
{
    return pp_backend_copy(t->be, t->block[1], t->block[0], t->bytes);
}

/* Adds one element. This takes no time to compute, so that the call itself is measured. */
static int run_smallest_op(struct bench *t)
{
    return pp_backend_add(t->be, 1, t->block[0], t->block[1]);
}

static int replay_graph(struct bench *t)
{
    return pp_backend_graph_launch(t->be, t->graph);
}

/* Measures the seconds of `calls` calls in a row. *enqueued is the time after which the host had
 * enqueued all of them. */
static int time_calls(struct bench *t, int (*call)(struct bench *t), int calls, double *out,
                      double *enqueued)
{
    uint64_t ns = 0;
    PP_TRY(pp_backend_synchronize(t->be));
    uint64_t start = pp_clock_ns();
    PP_TRY(pp_backend_mark_set(t->be, t->from));
    for (int i = 0; i < calls; i++)
        PP_TRY(call(t));
    PP_TRY(pp_backend_mark_set(t->be, t->to));
    *enqueued = (double)(pp_clock_ns() - start) * 1e-9;
    PP_TRY(pp_backend_synchronize(t->be));
    ns = pp_clock_ns() - start;
    if (t->from)
        PP_TRY(pp_backend_mark_elapsed(t->be, t->from, t->to, &ns));
    *out = (double)ns * 1e-9;
    return 0;
}

/* Measures the median time of a call on the device and, if `host` is not NULL, the time that the
 * host takes to enqueue it. */
static int measure_calls(struct bench *t, int (*call)(struct bench *t), int repeats, double *out,
                         double *host)
{
    double device[REPEATS], enqueue[REPEATS], seconds = 0, ignored;
    int calls = 1;
    PP_TRY(time_calls(t, call, 1, &seconds, &ignored)); /* chooses algorithms */
    PP_TRY(time_calls(t, call, 1, &seconds, &ignored));
    while (repeats > 1 && calls < CALLS_MAX && seconds * calls < BATCH_SECONDS)
        calls *= 2;
    for (int i = -1; i < repeats; i++) { /* the first one warms up */
        double a = 0, b = 0;
        PP_TRY(time_calls(t, call, calls, &a, &b));
        if (i >= 0) {
            device[i] = a / calls;
            enqueue[i] = b / calls;
        }
    }
    *out = pp_median(device, repeats);
    if (host)
        *host = pp_median(enqueue, repeats);
    return 0;
}

/* Fills an array of the device with random values, because zeros would run faster than any data. */
static int fill_device(struct bench *t, float *device, size_t n)
{
    PP_TAKE(float, host, FILL_FLOATS);
    pp_rng_uniform(1, pp_rng_stream("ceiling", 0), 0, -1, 1, FILL_FLOATS, host);
    for (size_t at = 0; at < n; at += FILL_FLOATS) {
        size_t part = n - at < FILL_FLOATS ? n - at : FILL_FLOATS;
        PP_TRY(pp_backend_to_device(t->be, device + at, host, part * sizeof(float)));
    }
    return pp_backend_synchronize(t->be);
}

static int take_floats(struct bench *t, size_t floats, float **out)
{
    void *p = NULL;
    PP_TRY(pp_backend_alloc(t->be, floats * sizeof(float), &p));
    *out = p;
    return 0;
}

static void close_device(struct bench *t)
{
    size_t square = (size_t)t->n * (size_t)t->n * sizeof(float);
    if (!t->be)
        return;
    pp_backend_graph_destroy(t->be, t->graph);
    pp_backend_mark_destroy(t->be, t->from);
    pp_backend_mark_destroy(t->be, t->to);
    pp_backend_free(t->be, t->x, square);
    pp_backend_free(t->be, t->W, square);
    pp_backend_free(t->be, t->y, square);
    pp_backend_free(t->be, t->b, (size_t)t->n * sizeof(float));
    pp_backend_free(t->be, t->packed, t->packed_floats * sizeof(float));
    pp_backend_free(t->be, t->block[0], t->bytes);
    pp_backend_free(t->be, t->block[1], t->bytes);
    pp_backend_close(&t->be);
}

static int open_device(struct bench *t, const struct pp_backend_choice *choice)
{
    *t = (struct bench){.be = NULL};
    PP_TRY(pp_backend_open_choice(choice, &t->be));
    PP_TRY(pp_backend_mark_create(t->be, true, &t->from));
    return pp_backend_mark_create(t->be, true, &t->to);
}

static int time_product(struct bench *t, const struct pp_backend_choice *choice, int n, int repeats,
                        double *seconds)
{
    size_t square = (size_t)n * (size_t)n;
    PP_TRY(open_device(t, choice));
    t->n = n;
    PP_TRY(take_floats(t, square, &t->x));
    PP_TRY(take_floats(t, square, &t->W));
    PP_TRY(take_floats(t, square, &t->y));
    PP_TRY(take_floats(t, (size_t)n, &t->b));
    PP_TRY(fill_device(t, t->x, square));
    PP_TRY(fill_device(t, t->W, square));
    t->packed_floats = pp_backend_packed_floats(&t->be->choice, n, n);
    if (t->packed_floats > 0) {
        PP_TRY(take_floats(t, t->packed_floats, &t->packed));
        PP_TRY(pp_backend_pack_weights(t->be, n, n, t->W, NULL, t->packed));
    }
    return measure_calls(t, multiply_once, repeats, seconds, NULL);
}

static int measure_gemm(const struct pp_backend_choice *choice, int n, int repeats, double *out)
{
    PP_OWN(close_device) struct bench t = {.be = NULL};
    double seconds = 0;
    PP_TRY(time_product(&t, choice, n, repeats, &seconds));
    *out = seconds > 0 ? 2.0 * n * n * n / seconds : 0;
    return 0;
}

static int graph_of_smallest(struct bench *t)
{
    int rc = 0;
    PP_TRY(pp_backend_capture_begin(t->be));
    for (int i = 0; rc == 0 && i < NODES; i++)
        rc = run_smallest_op(t);
    int ended = pp_backend_capture_end(t->be, &t->graph); /* in any case */
    return rc < 0 ? rc : ended;
}

static int small_things(struct bench *t, const struct pp_backend_choice *choice, size_t bytes,
                        struct pp_device_ceilings *out)
{
    PP_TRY(open_device(t, choice));
    t->bytes = bytes;
    for (int i = 0; i < 2; i++) {
        PP_TRY(pp_backend_alloc(t->be, bytes, &t->block[i]));
        PP_TRY(fill_device(t, t->block[i], bytes / sizeof(float)));
    }
    PP_TRY(measure_calls(t, copy_block, REPEATS, &out->copy, NULL));
    out->copy = out->copy > 0 ? 2.0 * (double)bytes / out->copy : 0;
    out->copy_bytes = bytes;
    PP_TRY(measure_calls(t, run_smallest_op, REPEATS, &out->op, &out->launch));
    if (t->be->caps.graphs) {
        PP_TRY(graph_of_smallest(t));
        PP_TRY(measure_calls(t, replay_graph, REPEATS, &out->node, NULL));
        out->nodes = NODES;
        out->node /= NODES;
    }
    snprintf(out->name, sizeof(out->name), "%s", t->be->description);
    return 0;
}

/* Chooses the widest product that fits into memory and does not take too long. It may be narrow: a
 * device of a few GF/s, or an emulated one, is measured too. */
static int choose_width(const struct pp_backend_choice *choice, int most, int *out)
{
    uint64_t room = UINT64_MAX;
    double rate = 0;
    int n = GEMM_N_MIN;
    if (choice->ops->free_bytes)
        PP_TRY(choice->ops->free_bytes(choice->device, &room));
    PP_TRY(measure_gemm(choice, n, 1, &rate));
    while (2 * n <= most && (uint64_t)n * (uint64_t)n * 4 * SQUARES < room / 2 &&
           16.0 * n * n * n / rate < WIDEST_SECONDS) {
        n *= 2;
        PP_TRY(measure_gemm(choice, n, 1, &rate));
    }
    *out = n;
    return 0;
}

int pp_device_ceilings_measure(const struct pp_backend_choice *choice, int gemm_n,
                               struct pp_device_ceilings *out)
{
    struct pp_backend_choice c = *choice;
    struct pp_device_ceilings found = {.name = ""};
    PP_OWN(close_device) struct bench t = {.be = NULL};
    uint64_t start = pp_clock_ns();
    c.exact = false; /* the fastest that there is */
    c.precision = PP_PRECISION_F32;
    PP_TRY(choose_width(&c, gemm_n > 0 ? gemm_n : GEMM_N, &found.gemm_n));
    for (int p = PP_PRECISION_F32; p <= PP_PRECISION_BF16; p++) {
        c.precision = (enum pp_precision)p;
        PP_TRY(measure_gemm(&c, found.gemm_n, REPEATS, &found.gemm[p]));
    }
    c.precision = PP_PRECISION_F32;
    /* as much as the products take: far more than any cache holds */
    PP_TRY(small_things(&t, &c, (size_t)found.gemm_n * (size_t)found.gemm_n * 16, &found));
    found.took = (double)(pp_clock_ns() - start) * 1e-9;
    *out = found;
    return 0;
}
