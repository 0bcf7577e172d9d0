/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The times of layers, optimizer, input and loss, as one worker measures them.
 *
 * A pass runs F through some of the worker's layers and then I and W of another micro-batch, the
 * order of a pipeline in its steady state: weights come from where they were last used, an input is
 * what the layer before has just written. A few layers of each shape suffice, but enough that what
 * does not fit a cache in the run does not fit it here.
 */
#include "measure.h"

#include <stdatomic.h>
#include <string.h>

#include "ppcli/nn/chunk.h"
#include "ppcli/base/base.h"

enum {
    SLOTS = 2,
    PASSES_MIN = 3, /* the result is their median */
    PASSES_MAX = 15,
    SAME_SHAPE_MAX = 16,
    OPTIMIZER_PASSES = 5,
    REVISITS = 2
};
#define REVISITS_SHARE 0.5 /* of the budget, on top of it */
#define SLOW_ROWS 1.08     /* rows that take so many times as long are measured again */
#define FASTER 0.95        /* of a time: less than that was not chance */
#define GIB (1024.0 * 1024 * 1024)
#define WEIGHT_BYTES (48.0 * 1024 * 1024)     /* parameters and gradients of one shape */
#define ACTIVATION_BYTES (64.0 * 1024 * 1024) /* of one shape */
#define DATA_BYTES (64.0 * 1024 * 1024)       /* of the data set that rows are gathered from */

/* A layer that is measured, as a chunk of its own. */
struct sample {
    const struct pp_layer *layer;
    int class;
    bool chained; /* its input is the output of the sample before it */
    struct pp_chunk *chunk;
    float *x[SLOTS], *y[SLOTS];
    float *dy, *dx;
    double t[3][PASSES_MAX]; /* F, I, W */
};

struct bench {
    struct worker *w;
    struct sample *samples;
    int n;
    int rows; /* the most that are measured */
    size_t n_floats;
    void *block;
    size_t block_bytes;
    struct pp_optimizer_args *args;
    float *fill; /* host: [fill_floats] small numbers */
    size_t fill_floats;
    /* The clock: processor time where a rank is one thread, so that other programs on its core do not
     * count; else the wall clock. */
    uint64_t (*now)(void);
    double clock;    /* seconds that reading it takes */
    double *per_row; /* [n_sizes] seconds a pass took per row; 0: not measured */
};

static double seconds_since(const struct bench *b, uint64_t start)
{
    double t = (double)(b->now() - start) * 1e-9 - b->clock;
    return t > 0 ? t : 0;
}

static double seconds_left(const struct bench *b)
{
    return ((double)b->w->m->deadline_ns - (double)pp_clock_ns()) * 1e-9;
}

/* Returns how many layers of a shape to measure: as many as it takes to fill the caches with their
 * weights or their rows. */
static int count_enough_layers(const struct bench *b, const struct pp_layer *l)
{
    double floats = 3.0 * b->rows * (double)pp_layer_values(b->w->m->spec->model, l->index);
    double n = WEIGHT_BYTES / (2.0 * sizeof(float) * (double)l->n_floats + 1) + 1;
    double m = ACTIVATION_BYTES / (sizeof(float) * floats);
    n = m < n ? m : n;
    return n < 2 ? 2 : n > SAME_SHAPE_MAX ? SAME_SHAPE_MAX : (int)n;
}

/* Chooses the layers to measure from the worker's layers: no more of each shape than are needed. */
static int choose_layers(struct bench *b)
{
    const struct measurement *m = b->w->m;
    int first = m->first[b->w->rank], last = m->last[b->w->rank];
    size_t n = (size_t)last + 1 - (size_t)first;
    PP_TAKE(int, have, m->n_classes);
    PP_ALLOC(b->samples, n);
    b->rows = m->spec->sizes[m->spec->n_sizes - 1];
    for (int i = first; i <= last; i++) {
        const struct pp_layer *l = &m->spec->model->layers[i];
        if (have[m->class_of[i]]++ < count_enough_layers(b, l)) {
            b->samples[b->n++] = (struct sample){.layer = l, .class = m->class_of[i]};
            b->n_floats += l->n_floats;
        }
    }
    return 0;
}

static float *take_rows(struct pp_arena *a, int rows, size_t width)
{
    return pp_arena_take(a, (size_t)rows * width, sizeof(float));
}

/* Returns how many elements one row of the layer's output has. */
static size_t width_of(const struct bench *b, const struct pp_layer *l)
{
    const struct pp_measure_spec *spec = b->w->m->spec;
    return pp_node_elements(spec->model, &spec->model->nodes[l->last_node], &spec->backend);
}

/* Takes the memory of all samples from the arena; a dry arena only counts its bytes. */
static int place_samples(struct bench *b, struct pp_arena *a)
{
    const struct pp_measure_spec *spec = b->w->m->spec;
    b->args = pp_arena_take(a, 1, sizeof(*b->args));
    for (int k = 0; k < b->n; k++) {
        struct sample *s = &b->samples[k], *before = k > 0 ? s - 1 : NULL;
        const struct pp_chunk_spec chunk = {.first = s->layer->index,
                                            .last = s->layer->index,
                                            .max_rows = b->rows,
                                            .state_slots = SLOTS,
                                            .grad_slots = 1,
                                            .optimizer = spec->optimizer,
                                            .backend = &spec->backend};
        PP_TRY(pp_chunk_create(spec->model, &chunk, a, &s->chunk));
        s->chained = before && before->layer->out == s->layer->in;
        size_t in = (size_t)s->layer->in;
        for (int slot = 0; slot < SLOTS; slot++) {
            s->x[slot] = s->chained ? before->y[slot] : take_rows(a, b->rows, in);
            s->y[slot] = take_rows(a, b->rows, width_of(b, s->layer));
        }
        s->dy = take_rows(a, b->rows, width_of(b, s->layer));
        s->dx = NULL;
        if (s->layer->index > 0)
            s->dx = s->chained ? before->dy : take_rows(a, b->rows, in);
    }
    return 0;
}

static int fill_values(struct bench *b, float *to, size_t n)
{
    for (size_t i = 0; i < n; i += b->fill_floats) {
        size_t piece = n - i < b->fill_floats ? n - i : b->fill_floats;
        PP_TRY(pp_backend_to_device(b->w->be, to + i, b->fill, piece * sizeof(float)));
    }
    return 0;
}

/* Takes memory and touches each of its pages, because the first touch must not count in a layer's
 * time. */
static int take_memory(struct bench *b)
{
    struct pp_backend *be = b->w->be;
    const struct measurement *m = b->w->m;
    struct pp_arena a = pp_arena_dry();
    PP_TRY(place_samples(b, &a));
    uint64_t all = atomic_fetch_add(m->taken, a.used) + a.used;
    if (!be->caps.async && all > m->room)
        return pp_fail(
            PP_ERESOURCE,
            "to measure the layers takes %.2f GiB of memory, but %.2f GiB are left of %s: "
            "a fixed schedule, assignment and recompute need no measurement, and "
            "ppcli estimate CONFIG --machine FILE none either",
            (double)all / GIB, (double)m->room / GIB, m->room_of);
    PP_TRY(pp_backend_alloc(be, a.used, &b->block));
    b->block_bytes = a.used;
    a = (struct pp_arena){.base = b->block, .bytes = b->block_bytes};
    PP_TRY(place_samples(b, &a));
    b->fill_floats = 65536;
    b->fill = pp_alloc(b->fill_floats, sizeof(float));
    if (!b->fill)
        return PP_ERESOURCE;
    PP_TRY(fill_values(b, b->block, b->block_bytes / sizeof(float))); /* zeros */
    /* Small, so that nothing grows, and without a pattern: as in a run no branch can be guessed. */
    pp_rng_uniform(0, pp_rng_stream("measure", 0), 0, -0.01f, 0.01f, b->fill_floats, b->fill);
    for (int k = 0; k < b->n; k++) {
        PP_TRY(fill_values(b, b->samples[k].chunk->params, b->samples[k].chunk->n_floats));
        PP_TRY(pp_chunk_weights_changed(b->samples[k].chunk, be));
        /* as in a run, which proves with these maxima that its numbers are finite */
        pp_chunk_measure(b->samples[k].chunk,
                         !be->caps.async && pp_model_bounds(b->w->m->spec->model));
    }
    return 0;
}

/* ---- passes */

static int stop_clock(struct bench *b, uint64_t start, double *t)
{
    if (b->w->be->caps.async)
        PP_TRY(pp_backend_synchronize(b->w->be));
    *t = seconds_since(b, start);
    return 0;
}

static int run_pass(struct bench *b, int rows, int pass)
{
    struct pp_backend *be = b->w->be;
    int slot = pass % SLOTS, other = pass > 0 ? (pass + 1) % SLOTS : slot, gslot = 0;
    const struct pp_pass what = {.rows = rows, .training = true, .step = &b->args->t};
    for (int k = 0; k < b->n; k++) {
        struct sample *s = &b->samples[k];
        uint64_t start = b->now();
        PP_TRY(pp_chunk_forward(s->chunk, be, slot, &what, s->x[slot], s->y[slot]));
        PP_TRY(stop_clock(b, start, &s->t[0][pass]));
    }
    for (int k = b->n - 1; k >= 0; k--) {
        struct sample *s = &b->samples[k];
        uint64_t start = b->now();
        PP_TRY(pp_chunk_backward_input(s->chunk, be, other, gslot, s->dy, s->dx));
        PP_TRY(stop_clock(b, start, &s->t[1][pass]));
    }
    for (int k = b->n - 1; k >= 0; k--) {
        struct sample *s = &b->samples[k];
        uint64_t start = b->now();
        PP_TRY(pp_chunk_backward_weight(s->chunk, be, 1, &other, &gslot, false));
        PP_TRY(stop_clock(b, start, &s->t[2][pass]));
    }
    return 0;
}

static double rows_from(const struct measurement *m, int size)
{
    double rows = 0;
    for (int s = size; s < m->spec->n_sizes; s++)
        rows += m->spec->sizes[s];
    return rows;
}

/* Returns the median of n times. If threads compute together, the wall clock times them; then it
 * returns the lower quartile, because other programs can only add time. */
static double typical_seconds(const struct bench *b, double *t, int n)
{
    double middle = pp_median(t, n);
    return pp_backend_members(&b->w->be->choice) > 1 ? pp_quantile(t, n, 0.25) : middle;
}

/* Stores the times of a visit to a size if it is the first visit, or if it is much faster than the
 * visits before. */
static int keep_times(struct bench *b, int size, int passes)
{
    const struct measurement *m = b->w->m;
    PP_TAKE(struct pp_layer_seconds, sums, m->n_classes);
    PP_TAKE(int, counts, m->n_classes);
    for (int k = 0; k < b->n; k++) {
        struct sample *s = &b->samples[k];
        sums[s->class].f += typical_seconds(b, s->t[0], passes);
        sums[s->class].i += typical_seconds(b, s->t[1], passes);
        sums[s->class].w += typical_seconds(b, s->t[2], passes);
        counts[s->class]++;
    }
    for (int c = 0; c < m->n_classes; c++) {
        size_t at = (size_t)size * (size_t)m->n_classes + (size_t)c;
        const struct pp_layer_seconds *was = &b->w->sums[at], *is = &sums[c];
        if (b->w->counts[at] == 0 || is->f + is->i + is->w < FASTER * (was->f + was->i + was->w)) {
            b->w->sums[at] = *is;
            b->w->counts[at] = counts[c];
        }
    }
    return 0;
}

/* Runs passes of one size until there are enough or `share` seconds are spent, but at least one. */
static int measure_size(struct bench *b, int size, double share)
{
    const struct measurement *m = b->w->m;
    int rows = m->spec->sizes[size];
    for (int k = 0; k < b->n; k++) {
        const struct sample *s = &b->samples[k];
        for (int slot = 0; slot < SLOTS && !s->chained; slot++)
            PP_TRY(fill_values(b, s->x[slot], (size_t)rows * (size_t)s->layer->in));
        if (k == b->n - 1 || !s[1].chained)
            PP_TRY(fill_values(b, s->dy, (size_t)rows * width_of(b, s->layer)));
    }
    int passes = 0;
    uint64_t start = b->now();
    while (passes < PASSES_MAX) {
        double spent = seconds_since(b, start);
        if (passes > 0 && spent + spent / passes > share * (passes < PASSES_MIN ? 1.5 : 1))
            break;
        PP_TRY(run_pass(b, rows, passes));
        passes++;
    }
    double per_row = seconds_since(b, start) / passes / rows;
    if (b->per_row[size] == 0 || per_row < b->per_row[size])
        b->per_row[size] = per_row;
    return keep_times(b, size, passes);
}

/* Measures each size that fits the budget, and the smallest size in any case. */
static int measure_sizes(struct bench *b)
{
    const struct measurement *m = b->w->m;
    double per_row = 0;
    for (int s = 0; s < m->spec->n_sizes; s++) {
        /* all workers at once: what they do to each other's caches is part of the time */
        PP_TRY(measure_link(b->w));
        PP_TRY(pp_transport_barrier(b->w->tp));
        int rows = m->spec->sizes[s];
        double share = seconds_left(b) * rows / rows_from(m, s);
        if (s == 0 || per_row * rows <= share)
            PP_TRY(measure_size(b, s, share));
        per_row = b->per_row[s] > 0 ? b->per_row[s] : per_row;
    }
    return 0;
}

/* Measures sizes again, up to REVISITS times, if their rows took longer than those of the fastest
 * size: another program, or another virtual machine on the same core, may have slowed them for a
 * second. Rows of small sizes may really take longer. */
static int measure_slow_sizes(struct bench *b)
{
    const struct measurement *m = b->w->m;
    int n = m->spec->n_sizes;
    PP_TAKE(double, all, m->workers *(n + 1));
    PP_TAKE(double, mine, n + 1);
    for (int round = 0; round < REVISITS; round++) {
        memcpy(mine, b->per_row, (size_t)n * sizeof(*mine));
        mine[n] = seconds_left(b) + REVISITS_SHARE * m->spec->seconds;
        PP_TRY(pp_transport_allgather(b->w->tp, mine, (size_t)(n + 1) * sizeof(*mine), all));
        double least = 0, rest = all[n]; /* of worker 0, as all do the same */
        for (int s = 0; s < n; s++) {
            for (int r = 1; r < m->workers; r++)
                all[s] += all[r * (n + 1) + s];
            least = all[s] > 0 && (least == 0 || all[s] < least) ? all[s] : least;
        }
        for (int s = 0; s < n && rest > 0; s++) {
            double share = rest * m->spec->sizes[s] / rows_from(m, 0);
            if (all[s] > SLOW_ROWS * least)
                PP_TRY(measure_size(b, s, share));
        }
    }
    return 0;
}

static int measure_optimizer(struct bench *b)
{
    double t[OPTIMIZER_PASSES], floats = b->n_floats > 0 ? (double)b->n_floats : 1;
    struct pp_backend *be = b->w->be;
    struct pp_optimizer_args a = {.kind = b->w->m->spec->optimizer,
                                  .momentum = 0.9f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.999f,
                                  .eps = 1e-8f,
                                  .grad_scale = 1.0f};
    for (int i = 0; i < OPTIMIZER_PASSES; i++) {
        a.step = i + 1;
        PP_TRY(pp_backend_to_device(be, b->args, &a, sizeof(a)));
        PP_TRY(pp_backend_synchronize(be));
        uint64_t start = b->now();
        for (int k = 0; k < b->n; k++)
            PP_TRY(pp_chunk_optimizer_step(b->samples[k].chunk, be, b->args));
        PP_TRY(stop_clock(b, start, &t[i]));
    }
    b->w->optimizer = pp_median(t, OPTIMIZER_PASSES) / floats;
    for (int i = 0; i < OPTIMIZER_PASSES; i++) {
        uint64_t start = b->now();
        for (int k = 0; k < b->n; k++) {
            const struct pp_chunk *c = b->samples[k].chunk;
            PP_TRY(pp_backend_add(be, c->n_floats, c->grads, c->params));
        }
        PP_TRY(stop_clock(b, start, &t[i]));
    }
    b->w->add = pp_median(t, OPTIMIZER_PASSES) / floats;
    return 0;
}

/* ---- the two ends */

/* Memory for the two ends of a model: rows from all over a data set, and the loss. */
struct ends {
    int rows;     /* the most that are measured: both are linear in rows */
    int n;        /* samples */
    size_t width; /* of a sample's logits */
    uint32_t *host_index;
    /* memory of the device: */
    uint8_t *data;
    int32_t *targets;
    uint32_t *index;
    float *x, *logits;
    struct pp_loss_sums *sums;
};

static int time_ends(struct bench *b, const struct ends *e, int rows, double *input, double *loss)
{
    const struct pp_model *model = b->w->m->spec->model;
    struct pp_backend *be = b->w->be;
    double t[2][PASSES_MIN];
    for (int pass = 0; pass < PASSES_MIN; pass++) {
        for (int r = 0; r < rows; r++)
            e->host_index[r] = ((uint32_t)r * 40503u + (uint32_t)pass * 9973u) % (uint32_t)e->n;
        PP_TRY(pp_backend_to_device(be, e->index, e->host_index, (size_t)rows * sizeof(*e->index)));
        PP_TRY(pp_backend_synchronize(be));
        uint64_t start = b->now();
        struct pp_gather g = {.B = rows,
                              .F = model->inputs,
                              .data = e->data,
                              .stride = (size_t)model->inputs,
                              .index = e->index,
                              .scaling = {.scale = {1.0f / 255}},
                              .x = e->x};
        PP_TRY(pp_backend_gather(be, &g));
        PP_TRY(stop_clock(b, start, &t[0][pass]));
        PP_TRY(fill_values(b, e->logits, (size_t)rows * e->width));
        const struct pp_targets of = {.B = rows,
                                      .P = pp_model_targets(model),
                                      .data = e->data, /* zeros */
                                      .stride = 1,
                                      .index = e->index,
                                      .targets = e->targets};
        const struct pp_softmax_cross_entropy l = {.B = rows,
                                                   .P = of.P,
                                                   .C = model->classes,
                                                   .logits = e->logits,
                                                   .targets = e->targets,
                                                   .grad_scale = 1.0f / (float)(rows * of.P),
                                                   .sums = e->sums,
                                                   .dlogits = e->logits,
                                                   .row = pp_model_logits_row(model, &be->choice)};
        start = b->now();
        PP_TRY(pp_backend_targets(be, &of));
        PP_TRY(pp_backend_softmax_cross_entropy(be, &l));
        PP_TRY(stop_clock(b, start, &t[1][pass]));
    }
    *input = pp_median(t[0], PASSES_MIN);
    *loss = pp_median(t[1], PASSES_MIN);
    return 0;
}

static int measure_ends(struct bench *b)
{
    const struct pp_measure_spec *spec = b->w->m->spec;
    const struct pp_model *model = spec->model;
    struct ends e = {.rows = spec->sizes[spec->n_sizes - 1], .n = spec->samples};
    double most = DATA_BYTES / model->inputs;
    e.n = e.n > most ? (int)most : e.n;
    e.n = e.n < 1 ? 1 : e.n;
    e.rows = e.rows > 1024 && spec->sizes[0] <= 1024 ? 1024 : e.rows;
    size_t data = (size_t)e.n * (size_t)model->inputs;
    size_t positions = (size_t)pp_model_targets(model);
    e.width = width_of(b, &model->layers[model->n_layers - 1]);
    struct pp_arena a = pp_arena_dry();
    void *block = NULL;
    int rc = 0;
    for (int pass = 0; rc == 0 && pass < 2; pass++) {
        e.x = take_rows(&a, e.rows, (size_t)model->inputs);
        e.logits = take_rows(&a, e.rows, e.width);
        e.targets = pp_arena_take(&a, (size_t)e.rows * positions, sizeof(*e.targets));
        e.index = pp_arena_take(&a, (size_t)e.rows, sizeof(*e.index));
        e.data = pp_arena_take(&a, data, 1);
        e.sums = pp_arena_take(&a, 1, sizeof(*e.sums));
        if (pass == 0) {
            rc = pp_backend_alloc(b->w->be, a.used, &block);
            a = (struct pp_arena){.base = block, .bytes = a.used};
        }
    }
    e.host_index = pp_alloc((size_t)e.rows, sizeof(*e.host_index));
    rc = rc == 0 && !e.host_index ? PP_ERESOURCE : rc;
    if (rc == 0)
        rc = pp_backend_zero(b->w->be, block, a.bytes); /* every page is touched */
    if (rc == 0)
        for (int s = 0; rc == 0 && s < spec->n_sizes && spec->sizes[s] <= e.rows; s++)
            rc = time_ends(b, &e, spec->sizes[s], &b->w->input[s], &b->w->loss[s]);
    pp_free(e.host_index);
    if (block)
        pp_backend_free(b->w->be, block, a.bytes);
    return rc;
}

static void fini_bench(struct bench *b)
{
    for (int k = 0; k < b->n; k++)
        pp_chunk_destroy(&b->samples[k].chunk);
    if (b->block)
        pp_backend_free(b->w->be, b->block, b->block_bytes);
    pp_free(b->fill);
    pp_free(b->samples);
}

int measure_layers(struct worker *w)
{
    const struct pp_measure_spec *spec = w->m->spec;
    PP_OWN(fini_bench) struct bench b = {.w = w};
    b.now = !w->be->caps.async && spec->backend.threads == 1 ? pp_clock_cpu_ns : pp_clock_ns;
    b.clock = measure_clock(b.now);
    PP_TAKE(double, per_row, spec->n_sizes);
    b.per_row = per_row;
    PP_TRY(choose_layers(&b));
    PP_TRY(take_memory(&b));
    PP_TRY(w->rank == 0 ? measure_ends(&b) : 0);
    PP_TRY(measure_sizes(&b));
    PP_TRY(measure_slow_sizes(&b));
    PP_TRY(pp_transport_barrier(w->tp));
    PP_TRY(measure_optimizer(&b));
    return measure_link(w);
}
