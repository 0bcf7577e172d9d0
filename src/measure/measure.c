/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a model on this machine: starts one pinned thread for each rank that can have a core,
 * all computing at once, and makes the table of costs from their times. */
#include "measure.h"

#include <string.h>

#include "ppcli/base/cores.h"

/* On one core no transfer can be measured: these figures of an ordinary machine let more messages
 * cost more. */
#define ASSUMED_LATENCY 1e-6
#define ASSUMED_BYTE 0.1e-9
#define CLOCKS 3 /* how often the executor reads the clock in an action */

double measure_clock(uint64_t (*clock_ns)(void))
{
    enum {
        READS = 1000
    };
    uint64_t start = clock_ns(), now = start;
    for (int i = 0; i < READS; i++)
        now = clock_ns();
    return (double)(now - start) * 1e-9 / READS;
}

static void classify_layers(struct measurement *m)
{
    const struct pp_model *model = m->spec->model;
    for (int i = 0; i < model->n_layers; i++) {
        int c = 0;
        while (c < m->n_classes && !pp_layer_same_work(model, m->classes[c]->index, i))
            c++;
        if (c == m->n_classes)
            m->classes[m->n_classes++] = &model->layers[i];
        m->class_of[i] = c;
    }
}

/* Divides the layers among the workers so that all have about the same work and are busy most of
 * the time. */
static int cut_layers(struct measurement *m)
{
    const struct pp_model *model = m->spec->model;
    PP_TAKE(double, flops, model->n_layers);
    for (int i = 0; i < model->n_layers; i++)
        flops[i] = pp_layer_flops(model, i);
    return pp_partition_costs(model, flops, m->workers, m->first, m->last);
}

static int run_worker(struct pp_transport **tp, int rank, void *ctx, uint64_t *failed_ns)
{
    struct worker *w = &((struct worker *)ctx)[rank];
    w->tp = *tp;
    struct pp_backend_choice choice = w->m->spec->backend;
    choice.processors = w->m->places.processors;
    choice.cpus = pp_places_of(&w->m->places, rank);
    choice.crowded = w->m->places.crowded;
    int rc = pp_transport_agree(*tp, pp_backend_open_choice(&choice, &w->be));
    if (rc == 0)
        rc = measure_layers(w);
    double low[LINK_FIGURES];
    for (int k = 0; rc == 0 && k < LINK_AGAIN && w->visits.n > 0; k++) {
        if (link_settle(&w->visits, low) <= PP_LINK_STEADY)
            break;
        pp_clock_nap(25000000); /* until whoever is in the way may have gone */
        rc = measure_link(w);
    }
    if (rc < 0)
        pp_transport_abort(*tp);
    return rc;
}

static void close_worker(int rank, void *ctx)
{
    pp_backend_close(&((struct worker *)ctx)[rank].be);
}

/* ---- putting it together */

/* Computes the mean times of layers of class k at size s over all workers. Returns false if no
 * worker has measured them. */
static bool average_class(const struct measurement *m, const struct worker *workers, int s, int k,
                          struct pp_layer_seconds *out)
{
    struct pp_layer_seconds sum = {0};
    int n = 0;
    for (int r = 0; r < m->workers; r++) {
        const struct worker *w = &workers[r];
        size_t at = (size_t)s * (size_t)m->n_classes + (size_t)k;
        n += w->counts[at];
        sum.f += w->sums[at].f;
        sum.i += w->sums[at].i;
        sum.w += w->sums[at].w;
    }
    if (n > 0)
        *out = (struct pp_layer_seconds){sum.f / n, sum.i / n, sum.w / n};
    return n > 0;
}

static double on_line(double x0, double y0, double x1, double y1, double x)
{
    double y = y0 + (y1 - y0) * (x - x0) / (x1 - x0);
    return y > 0 ? y : 0;
}

/* Estimates the times at a size that was too large for the budget: on the line through the two
 * sizes before it, or in proportion to the only one. The smallest size is always measured. */
static void extrapolate_layer(struct pp_costs *c, int layer, int s)
{
    struct pp_layer_seconds *t = &c->layers[(size_t)s * (size_t)c->n_layers + (size_t)layer];
    const struct pp_layer_seconds *b = t - c->n_layers;
    double x = c->sizes[s], x1 = c->sizes[s - 1];
    if (s == 1) {
        *t = (struct pp_layer_seconds){b->f * x / x1, b->i * x / x1, b->w * x / x1};
        return;
    }
    const struct pp_layer_seconds *a = b - c->n_layers;
    double x0 = c->sizes[s - 2];
    *t = (struct pp_layer_seconds){on_line(x0, a->f, x1, b->f, x), on_line(x0, a->i, x1, b->i, x),
                                   on_line(x0, a->w, x1, b->w, x)};
}

static void extrapolate_ends(const struct pp_costs *c, double *t, int s)
{
    if (s > 0 && t[s] == 0)
        t[s] = t[s - 1] * c->sizes[s] / c->sizes[s - 1];
}

static void fill_costs(const struct measurement *m, const struct worker *workers,
                       struct pp_costs *c)
{
    const struct worker *w = &workers[0];
    for (int s = 0; s < c->n_sizes; s++) {
        for (int i = 0; i < c->n_layers; i++) {
            struct pp_layer_seconds *t = &c->layers[(size_t)s * (size_t)c->n_layers + (size_t)i];
            if (!average_class(m, workers, s, m->class_of[i], t))
                extrapolate_layer(c, i, s);
        }
        c->input[s] = w->input[s];
        c->loss[s] = w->loss[s];
        extrapolate_ends(c, c->input, s);
        extrapolate_ends(c, c->loss, s);
    }
    for (int r = 0; r < m->workers; r++) {
        c->optimizer += workers[r].optimizer / m->workers;
        c->add += workers[r].add / m->workers;
    }
    double low[LINK_FIGURES] = {ASSUMED_LATENCY, 0, ASSUMED_BYTE};
    c->near.unsteady = w->visits.n > 0 ? link_settle(&w->visits, low) : 0;
    c->near.latency = low[LINK_LATENCY];
    c->near.byte = low[LINK_BYTE];
    /* two of three actions receive and send one message; the third only lets go */
    c->action = CLOCKS * measure_clock(pp_clock_ns) + low[LINK_CALLS] * 2 / 3;
    c->value_bytes = (double)pp_backend_value_bytes(&w->m->spec->backend);
    c->at_once = m->workers;
    c->cores = pp_machine_whole_cores();
    c->threads = pp_backend_members(&m->spec->backend);
}

static int allocate_results(struct measurement *m, struct worker *workers)
{
    size_t sizes = (size_t)m->spec->n_sizes, n = sizes * (size_t)m->n_classes;
    for (int r = 0; r < m->workers; r++) {
        struct worker *w = &workers[r];
        *w = (struct worker){.m = m,
                             .rank = r,
                             .sums = pp_alloc(n, sizeof(*w->sums)),
                             .counts = pp_alloc(n, sizeof(*w->counts)),
                             .input = pp_alloc(sizes, sizeof(*w->input)),
                             .loss = pp_alloc(sizes, sizeof(*w->loss))};
        if (!w->sums || !w->counts || !w->input || !w->loss)
            return PP_ERESOURCE;
    }
    return 0;
}

static bool is_thread_safe(const struct pp_measure_spec *spec, int *rc)
{
    PP_OWN(pp_backend_close) struct pp_backend *be = NULL;
    *rc = pp_backend_open_choice(&spec->backend, &be);
    bool safe = *rc == 0 && be->caps.thread_safe;
    return safe;
}

int pp_costs_measure(const struct pp_measure_spec *spec, struct pp_costs **out)
{
    int n = spec->model->n_layers, rc;
    uint64_t start = pp_clock_ns();
    pp_assert(spec->n_sizes >= 1 && spec->sizes[0] >= 1 && spec->ranks >= 1 &&
              spec->n_sizes < LINK_VISITS - LINK_AGAIN);
    struct measurement m = {.spec = spec};
    int threads = pp_backend_members(&spec->backend), there = pp_machine_whole_cores() / threads;
    there = there > 1 ? there : 1;
    m.workers = spec->ranks < there ? spec->ranks : there;
    m.workers = m.workers < n ? m.workers : n;
    m.workers = is_thread_safe(spec, &rc) ? m.workers : 1;
    PP_TRY(rc);
    m.deadline_ns = start + (uint64_t)(spec->seconds * 1e9);
    m.visit_ns = (uint64_t)(spec->seconds * 0.25e9 / (spec->n_sizes + 1));
    struct pp_memory_left room;
    _Atomic uint64_t taken = 0;
    pp_memory_left_find("", &room);
    m.room = room.bytes[pp_memory_left_least(&room, &m.room_of)];
    m.taken = &taken;
    PP_TAKE(const struct pp_layer *, classes, n);
    PP_TAKE(int, numbers, n + 2 * m.workers);
    PP_TAKE(struct worker, workers, m.workers);
    m.classes = classes;
    m.class_of = numbers;
    m.first = numbers + n;
    m.last = m.first + m.workers;
    classify_layers(&m);
    PP_OWN(pp_costs_destroy) struct pp_costs *c = NULL;
    const struct pp_places_spec where = {.ranks = m.workers,
                                         .threads = threads,
                                         .unpinned = spec->backend.gemm == PP_GEMM_CBLAS &&
                                                     spec->backend.threads > 1};
    rc = pp_places_make(&where, &m.places);
    rc = rc < 0 ? rc : cut_layers(&m);
    rc = rc < 0 ? rc : allocate_results(&m, workers);
    rc = rc < 0 ? rc : pp_costs_create(n, spec->sizes, spec->n_sizes, &c);
    const struct pp_threads_job job = {run_worker, close_worker, workers, &m.places};
    rc = rc < 0 ? rc : pp_threads_run(m.workers, &job);
    if (rc == 0) {
        fill_costs(&m, workers, c);
        c->took = (double)(pp_clock_ns() - start) * 1e-9;
        *out = c;
        c = NULL;
    }
    for (int r = 0; r < m.workers; r++) {
        pp_free(workers[r].sums);
        pp_free(workers[r].counts);
        pp_free(workers[r].input);
        pp_free(workers[r].loss);
        pp_arena_destroy(&workers[r].link);
    }
    pp_places_fini(&m.places);
    return rc;
}
