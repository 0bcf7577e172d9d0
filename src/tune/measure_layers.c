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

#include <string.h>
#include <time.h>

#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/median.h"
#include "ppcli/mem.h"

enum {
    SLOTS = 2,
    PASSES_MIN = 3, /* of them the median */
    PASSES_MAX = 15,
    SAME_SHAPE_MAX = 16,
    OPTIMIZER_PASSES = 5,
};
#define WEIGHT_BYTES (48.0 * 1024 * 1024)     /* parameters and gradients of one shape */
#define ACTIVATION_BYTES (64.0 * 1024 * 1024) /* of one shape */
#define DATA_BYTES (64.0 * 1024 * 1024)       /* of the data set that rows are gathered from */

/* A layer that is measured. */
struct sample {
    const struct pp_layer *layer;
    int class;
    bool chained; /* its input is the output of the one before in the list */
    size_t params;
    float *packed; /* NULL: the backend wants no copy of the weights */
    float *x[SLOTS], *y[SLOTS], *saved[SLOTS];
    float *dy, *dx;
    double t[3][PASSES_MAX]; /* F, I, W */
};

struct bench {
    struct worker *w;
    struct sample *samples;
    int n;
    size_t n_floats;
    struct pp_arena arena; /* parameters and optimizer, then activations from `mark` on */
    size_t mark;
    void *block;
    size_t block_bytes;
    float *params, *grads, *opt_m, *opt_v;
    struct pp_optimizer_args *args;
    float *fill; /* host: [fill_floats] small numbers */
    size_t fill_floats;
    bool cpu;       /* the processor's time of this thread counts, not the wall clock's */
    double clock;   /* seconds that reading it takes */
    double per_row; /* seconds a pass took per row and sample, last time; 0: not known */
};

/*
 * What a piece of work takes on a core of its own. A thread that computes on its core alone can ask
 * for its processor time: other programs that want the core meanwhile then do not count.
 */
static uint64_t now(const struct bench *b)
{
    if (!b->cpu)
        return pp_clock_ns();
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double since(const struct bench *b, uint64_t start)
{
    double t = (double)(now(b) - start) * 1e-9 - b->clock;
    return t > 0 ? t : 0;
}

static void set_clock(struct bench *b)
{
    enum {
        READS = 1000
    };
    b->cpu = !b->w->be->caps.async && b->w->m->spec->backend.threads == 1;
    uint64_t start = now(b), end = start;
    for (int i = 0; i < READS; i++)
        end = now(b);
    b->clock = (double)(end - start) * 1e-9 / READS;
}

static double left(const struct bench *b)
{
    return ((double)b->w->m->deadline_ns - (double)pp_clock_ns()) * 1e-9;
}

/* How many layers of a shape to measure with `rows` rows; rows 0: with any. */
static int enough(const struct pp_layer *l, int rows)
{
    double n = WEIGHT_BYTES / (2.0 * sizeof(float) * (double)l->n_floats) + 1;
    if (rows > 0) {
        double m = ACTIVATION_BYTES / (3.0 * sizeof(float) * rows * (double)l->out);
        n = m < n ? m : n;
    }
    return n < 2 ? 2 : n > SAME_SHAPE_MAX ? SAME_SHAPE_MAX : (int)n;
}

/* The worker's layers, not too many of a shape. */
static int choose(struct bench *b)
{
    const struct measurement *m = b->w->m;
    int first = m->first[b->w->rank], last = m->last[b->w->rank];
    size_t n = (size_t)last + 1 - (size_t)first;
    int *have = pp_alloc((size_t)m->n_classes, sizeof(*have));
    b->samples = pp_alloc(n, sizeof(*b->samples));
    if (!have || !b->samples) {
        pp_free(have);
        return PP_ERESOURCE;
    }
    for (int i = first; i <= last; i++) {
        const struct pp_layer *l = &m->spec->model->layers[i];
        if (have[m->class_of[i]]++ < enough(l, 0)) {
            b->samples[b->n++] =
                (struct sample){.layer = l, .class = m->class_of[i], .params = b->n_floats};
            b->n_floats += l->n_floats;
        }
    }
    pp_free(have);
    return 0;
}

static float *rows_of(struct pp_arena *a, int rows, int width)
{
    return pp_arena_take(a, (size_t)rows * (size_t)width, sizeof(float));
}

/* Those of the samples that are measured with this many rows, and their memory; returns how many.
 * On a dry arena only the size is of use. */
static int place(struct bench *b, struct pp_arena *a, int rows, struct sample **used)
{
    int have[2] = {-1, 0}; /* class, count: equal shapes are neighbours or few */
    int n = 0;
    for (int k = 0; k < b->n; k++) {
        struct sample *s = &b->samples[k];
        if (s->class != have[0]) {
            have[0] = s->class;
            have[1] = 0;
        }
        if (have[1]++ >= enough(s->layer, rows))
            continue;
        const struct sample *before = n > 0 ? used[n - 1] : NULL;
        s->chained = before && before->layer->out == s->layer->in;
        for (int slot = 0; slot < SLOTS; slot++) {
            s->x[slot] = s->chained ? before->y[slot] : rows_of(a, rows, s->layer->in);
            s->y[slot] = rows_of(a, rows, s->layer->out);
            int saved = s->layer->ops->saved(s->layer);
            s->saved[slot] = saved > 0 ? rows_of(a, rows, saved) : NULL;
        }
        s->dy = rows_of(a, rows, s->layer->out);
        s->dx = NULL;
        if (s->layer->index > 0)
            s->dx = s->chained ? before->dy : rows_of(a, rows, s->layer->in);
        used[n++] = s;
    }
    return n;
}

static void place_parameters(struct bench *b, struct pp_arena *a)
{
    int moments = pp_optimizer_moments(b->w->m->spec->optimizer);
    b->params = pp_arena_take(a, b->n_floats, sizeof(float));
    b->grads = pp_arena_take(a, b->n_floats, sizeof(float));
    b->args = pp_arena_take(a, 1, sizeof(*b->args));
    if (moments > 0)
        b->opt_m = pp_arena_take(a, b->n_floats, sizeof(float));
    if (moments > 1)
        b->opt_v = pp_arena_take(a, b->n_floats, sizeof(float));
    for (int k = 0; k < b->n; k++) {
        struct sample *s = &b->samples[k];
        size_t packed = s->layer->ops->packed(s->layer, &b->w->m->spec->backend);
        s->packed = packed > 0 ? pp_arena_take(a, packed, sizeof(float)) : NULL;
    }
}

static int pack(struct bench *b)
{
    for (int k = 0; k < b->n; k++) {
        const struct sample *s = &b->samples[k];
        if (s->packed)
            PP_TRY(s->layer->ops->pack(s->layer, b->w->be, b->params + s->params, s->packed));
    }
    return 0;
}

static int fill(struct bench *b, float *to, size_t n)
{
    for (size_t i = 0; i < n; i += b->fill_floats) {
        size_t piece = n - i < b->fill_floats ? n - i : b->fill_floats;
        PP_TRY(pp_backend_to_device(b->w->be, to + i, b->fill, piece * sizeof(float)));
    }
    return 0;
}

/* Memory for the largest size, every page of it touched: a page's first touch is no part of a
 * layer's time. */
static int take_memory(struct bench *b, struct sample **used)
{
    const struct pp_measure_spec *spec = b->w->m->spec;
    struct pp_arena dry = pp_arena_dry();
    place_parameters(b, &dry);
    size_t mark = dry.used, most = 0;
    for (int s = 0; s < spec->n_sizes; s++) {
        struct pp_arena a = dry;
        place(b, &a, spec->sizes[s], used);
        most = a.used > most ? a.used : most;
    }
    most = most > mark ? most : mark;
    PP_TRY(pp_backend_alloc(b->w->be, most, &b->block));
    b->block_bytes = most;
    b->arena = (struct pp_arena){.base = b->block, .bytes = most};
    place_parameters(b, &b->arena);
    b->mark = b->arena.used;
    b->fill_floats = 65536;
    b->fill = pp_alloc(b->fill_floats, sizeof(float));
    if (!b->fill)
        return PP_ERESOURCE;
    PP_TRY(fill(b, b->block, most / sizeof(float))); /* zeros */
    /* neither zeros nor denormals nor anything that grows: 1/256 .. 1 of the size of a mean */
    for (size_t i = 0; i < b->fill_floats; i++)
        b->fill[i] = (float)((i * 2654435761u >> 16) % 255 + 1) / 25600.0f * (i % 2 ? 1 : -1);
    PP_TRY(fill(b, b->params, b->n_floats));
    return pack(b);
}

/* ---- passes */

static int done(struct bench *b, uint64_t start, double *t)
{
    if (b->w->be->caps.async)
        PP_TRY(pp_backend_synchronize(b->w->be));
    *t = since(b, start);
    return 0;
}

static int one_pass(struct bench *b, struct sample *const *used, int n, int rows, int pass)
{
    struct pp_backend *be = b->w->be;
    int slot = pass % SLOTS, other = (pass + 1) % SLOTS;
    for (int k = 0; k < n; k++) {
        struct sample *s = used[k];
        uint64_t start = now(b);
        PP_TRY(s->layer->ops->forward(s->layer, be, rows, b->params + s->params, s->packed,
                                      s->x[slot], s->saved[slot], s->y[slot]));
        PP_TRY(done(b, start, &s->t[0][pass]));
    }
    for (int k = n - 1; k >= 0; k--) {
        struct sample *s = used[k];
        uint64_t start = now(b);
        PP_TRY(s->layer->ops->backward_input(s->layer, be, rows, b->params + s->params, s->packed,
                                             s->saved[other], s->y[other], s->dy, s->dx));
        PP_TRY(done(b, start, &s->t[1][pass]));
    }
    for (int k = n - 1; k >= 0; k--) {
        struct sample *s = used[k];
        uint64_t start = now(b);
        struct pp_weight_part part = {.B = rows, .dz = s->dy, .x = s->x[other]};
        PP_TRY(s->layer->ops->backward_weight(s->layer, be, 1, &part, 1.0f, b->grads + s->params));
        PP_TRY(done(b, start, &s->t[2][pass]));
    }
    return 0;
}

/* Passes until there are enough of them or the share of the budget is used up; none when even one
 * would not fit. The smallest size gets at least one. */
static int measure_size(struct bench *b, struct sample **used, int size)
{
    const struct measurement *m = b->w->m;
    int rows = m->spec->sizes[size];
    b->arena.used = b->mark;
    int n = place(b, &b->arena, rows, used);
    double rest = 0;
    for (int s = size; s < m->spec->n_sizes; s++)
        rest += m->spec->sizes[s];
    double share = left(b) * rows / rest;
    if (size > 0 && b->per_row * rows * n > share)
        return 0;
    for (int k = 0; k < n; k++)
        for (int slot = 0; slot < SLOTS && !used[k]->chained; slot++)
            PP_TRY(fill(b, used[k]->x[slot], (size_t)rows * (size_t)used[k]->layer->in));
    PP_TRY(fill(b, used[n - 1]->dy, (size_t)rows * (size_t)used[n - 1]->layer->out));
    int passes = 0;
    uint64_t start = now(b);
    while (passes < PASSES_MAX) {
        double spent = since(b, start);
        if (passes > 0 && spent + spent / passes > share * (passes < PASSES_MIN ? 1.5 : 1))
            break;
        PP_TRY(one_pass(b, used, n, rows, passes));
        passes++;
    }
    b->per_row = since(b, start) / passes / rows / n;
    for (int k = 0; k < n; k++) {
        size_t at = (size_t)size * (size_t)m->n_classes + (size_t)used[k]->class;
        b->w->sums[at].f += pp_median(used[k]->t[0], passes);
        b->w->sums[at].i += pp_median(used[k]->t[1], passes);
        b->w->sums[at].w += pp_median(used[k]->t[2], passes);
        b->w->counts[at]++;
    }
    return 0;
}

static int measure_optimizer(struct bench *b)
{
    double t[OPTIMIZER_PASSES];
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
        uint64_t start = now(b);
        PP_TRY(pp_backend_optimizer_step(be, b->n_floats, b->args, b->grads, b->opt_m, b->opt_v,
                                         b->params));
        PP_TRY(pack(b));
        PP_TRY(done(b, start, &t[i]));
    }
    b->w->optimizer = pp_median(t, OPTIMIZER_PASSES) / (double)b->n_floats;
    for (int i = 0; i < OPTIMIZER_PASSES; i++) {
        uint64_t start = now(b);
        PP_TRY(pp_backend_add(be, b->n_floats, b->grads, b->params));
        PP_TRY(done(b, start, &t[i]));
    }
    b->w->add = pp_median(t, OPTIMIZER_PASSES) / (double)b->n_floats;
    return 0;
}

/* ---- the two ends */

/* Rows from all over a data set of this size, and the loss, in memory of their own. */
struct ends {
    int rows; /* the most that are measured: both are linear in rows */
    int n;    /* samples */
    uint32_t *host_index;
    /* memory of the device: */
    uint8_t *data, *all_labels, *labels;
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
        uint64_t start = now(b);
        PP_TRY(pp_backend_gather_u8(be, rows, model->inputs, e->data, e->index, 1.0f / 255, e->x));
        PP_TRY(done(b, start, &t[0][pass]));
        PP_TRY(fill(b, e->logits, (size_t)rows * (size_t)model->classes));
        start = now(b);
        PP_TRY(pp_backend_gather_labels(be, rows, e->all_labels, e->index, e->labels));
        PP_TRY(pp_backend_softmax_cross_entropy(be, rows, model->classes, e->logits, e->labels,
                                                1.0f / (float)rows, e->sums, e->logits));
        PP_TRY(done(b, start, &t[1][pass]));
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
    struct pp_arena a = pp_arena_dry();
    void *block = NULL;
    int rc = 0;
    for (int pass = 0; rc == 0 && pass < 2; pass++) {
        e.x = rows_of(&a, e.rows, model->inputs);
        e.logits = rows_of(&a, e.rows, model->classes);
        e.labels = pp_arena_take(&a, (size_t)e.rows, 1);
        e.index = pp_arena_take(&a, (size_t)e.rows, sizeof(*e.index));
        e.data = pp_arena_take(&a, data, 1);
        e.all_labels = pp_arena_take(&a, (size_t)e.n, 1);
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

int measure_layers(struct worker *w)
{
    const struct pp_measure_spec *spec = w->m->spec;
    struct bench b = {.w = w};
    struct sample **used = NULL;
    set_clock(&b);
    int rc = choose(&b);
    if (rc == 0) {
        used = pp_alloc((size_t)b.n, sizeof(struct sample *));
        rc = used ? take_memory(&b, used) : PP_ERESOURCE;
    }
    if (rc == 0 && w->rank == 0)
        rc = measure_ends(&b);
    for (int s = 0; rc == 0 && s < spec->n_sizes; s++) {
        /* together: what the others do to caches and memory is part of the time */
        rc = pp_transport_barrier(w->tp);
        if (rc == 0)
            rc = measure_size(&b, used, s);
    }
    if (rc == 0)
        rc = pp_transport_barrier(w->tp);
    if (rc == 0)
        rc = measure_optimizer(&b);
    if (b.block)
        pp_backend_free(w->be, b.block, b.block_bytes);
    pp_free(b.fill);
    pp_free(b.samples);
    pp_free(used);
    return rc;
}
