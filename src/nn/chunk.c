/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One virtual stage's layers. What each layer's passes leave for later ones lies at fixed places:
 *
 *   a state slot (F to W)  y of every layer but the last (that one is the caller's), saved values
 *   a grad slot (I to W)   the gradient after every layer but the last (that is the caller's dy)
 *
 * The memory may be a device's: nothing here reads or writes it except through the backend.
 */
#include "nn.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ppcli/err.h"

/* A micro-batch between its F and its W. Pointers to the caller's memory and into the slot. */
struct pp_chunk_state {
    float *base;    /* [slot_floats], in the arena */
    const float *x; /* the caller's, as y and dy */
    float *y, *dy;
    int rows;
};

/* Where a layer's things lie, in floats from the start of the buffer or slot. */
struct pp_chunk_place {
    size_t params; /* in params and grads */
    size_t y;      /* in a state slot; unused for the last layer */
    size_t saved;  /* in a state slot; NO_PLACE: the layer saves nothing */
    size_t packed; /* in packed; NO_PLACE: the backend wants nothing */
    size_t dy;     /* in a grad slot; unused for the last layer */
};

#define NO_PLACE SIZE_MAX

/* Rows start wherever they start, but every array starts on a PP_ALIGN boundary. */
static size_t aligned(size_t floats)
{
    size_t unit = PP_ALIGN / sizeof(float);
    return (floats + unit - 1) / unit * unit;
}

/*
 * The same layer's arrays of several slots are read together, by a weight gradient of several
 * micro-batches. When slots are a multiple of 16 KiB apart, as those of widths that are powers of
 * two, these arrays fall into a few sets of the cache and push each other out: 16 layers of 512, 32
 * micro-batches of 8 rows, 39 Gflop/s; with slots moved on by 33 lines 111.
 */
static size_t spread(size_t floats)
{
    const size_t around = 16384 / sizeof(float), apart = (size_t)33 * PP_ALIGN / sizeof(float);
    size_t off = floats % around;
    if (floats < 4 * around || (off >= apart && off <= around - apart))
        return floats;
    return floats + (off < apart ? apart - off : around - off + apart);
}

static int n_layers(const struct pp_chunk *c)
{
    return c->last - c->first + 1;
}

static const struct pp_layer *layer(const struct pp_chunk *c, int k)
{
    return &c->model->layers[c->first + k];
}

/* Floats of layer l's copy of its weights. */
static size_t packed_of_layer(const struct pp_layer *l, const struct pp_chunk_spec *spec)
{
    return spec->backend ? aligned(l->ops->packed(l, spec->backend)) : 0;
}

size_t pp_chunk_packed_bytes(const struct pp_model *m, const struct pp_chunk_spec *spec)
{
    size_t floats = 0;
    for (int i = spec->first; i <= spec->last; i++)
        floats += packed_of_layer(&m->layers[i], spec);
    return floats * sizeof(float);
}

/* Number the places of all layers; how many floats each kind of slot, and packed, need. */
static void place(struct pp_chunk *c, const struct pp_chunk_spec *spec, size_t *state_floats,
                  size_t *grad_floats, size_t *packed)
{
    size_t rows = (size_t)c->max_rows, state = 0, grad = 0;
    c->n_floats = *packed = 0;
    for (int k = 0; k < n_layers(c); k++) {
        const struct pp_layer *l = layer(c, k);
        struct pp_chunk_place *p = &c->places[k];
        p->params = c->n_floats;
        c->n_floats += l->n_floats;
        if (k < n_layers(c) - 1) {
            p->y = state;
            state += aligned(rows * (size_t)l->out);
            p->dy = grad;
            grad += aligned(rows * (size_t)l->out);
        }
        size_t saved_floats = aligned(rows * (size_t)l->ops->saved(l));
        p->saved = saved_floats > 0 ? state : NO_PLACE;
        state += saved_floats;
        size_t packed_floats = packed_of_layer(l, spec);
        p->packed = packed_floats > 0 ? *packed : NO_PLACE;
        *packed += packed_floats;
    }
    *state_floats = spread(state);
    *grad_floats = spread(grad);
}

static void take_arena(struct pp_chunk *c, const struct pp_chunk_spec *spec, struct pp_arena *arena)
{
    size_t state_floats, grad_floats, packed;
    place(c, spec, &state_floats, &grad_floats, &packed);
    c->params = pp_arena_take(arena, c->n_floats, sizeof(float));
    if (packed > 0)
        c->packed = pp_arena_take(arena, packed, sizeof(float));
    if (c->grad_slots > 0) {
        c->grads = pp_arena_take(arena, c->n_floats, sizeof(float));
        if (pp_optimizer_moments(c->optimizer) > 0)
            c->opt_m = pp_arena_take(arena, c->n_floats, sizeof(float));
        if (pp_optimizer_moments(c->optimizer) > 1)
            c->opt_v = pp_arena_take(arena, c->n_floats, sizeof(float));
    }
    for (int s = 0; s < c->state_slots; s++)
        c->states[s].base = pp_arena_take(arena, state_floats, sizeof(float));
    for (int s = 0; s < c->grad_slots; s++)
        c->grad_base[s] = pp_arena_take(arena, grad_floats, sizeof(float));
}

int pp_chunk_create(const struct pp_model *m, const struct pp_chunk_spec *spec,
                    struct pp_arena *arena, struct pp_chunk **out)
{
    pp_assert(0 <= spec->first && spec->first <= spec->last && spec->last < m->n_layers);
    pp_assert(spec->max_rows >= 1 && spec->state_slots >= 0 && spec->grad_slots >= 0);
    struct pp_chunk *c = pp_alloc(1, sizeof(*c));
    if (!c)
        return PP_ERESOURCE;
    c->model = m;
    c->first = spec->first;
    c->last = spec->last;
    c->max_rows = spec->max_rows;
    c->state_slots = spec->state_slots;
    c->grad_slots = spec->grad_slots;
    c->optimizer = spec->optimizer;
    c->places = pp_alloc((size_t)n_layers(c), sizeof(*c->places));
    c->states = pp_alloc((size_t)c->state_slots, sizeof(*c->states));
    c->grad_base = pp_alloc((size_t)c->grad_slots, sizeof(*c->grad_base));
    c->parts = pp_alloc((size_t)c->grad_slots, sizeof(*c->parts));
    if (!c->places || !c->states || !c->grad_base || !c->parts) {
        pp_chunk_destroy(&c);
        return PP_ERESOURCE;
    }
    /* The dry pass walks the same code, so it asks for the same bytes. */
    bool dry = arena->base == NULL;
    take_arena(c, spec, arena);
    if (dry) {
        pp_chunk_destroy(&c);
        return 0;
    }
    *out = c;
    return 0;
}

void pp_chunk_destroy(struct pp_chunk **c)
{
    if (*c) {
        pp_free((*c)->places);
        pp_free((*c)->states);
        pp_free((*c)->grad_base);
        pp_free((*c)->parts);
        pp_free(*c);
        *c = NULL;
    }
}

int pp_chunk_init(struct pp_chunk *c, struct pp_backend *be, uint64_t seed)
{
    size_t most = 0;
    for (int k = 0; k < n_layers(c); k++)
        most = layer(c, k)->n_floats > most ? layer(c, k)->n_floats : most;
    float *host = pp_alloc(most, sizeof(*host));
    if (!host)
        return PP_ERESOURCE;
    int rc = 0;
    for (int k = 0; k < n_layers(c) && rc == 0; k++) {
        const struct pp_layer *l = layer(c, k);
        pp_layer_init(l, seed, host);
        rc = pp_backend_to_device(be, c->params + c->places[k].params, host,
                                  l->n_floats * sizeof(*host));
        if (rc == 0) {
            /* the copy may still be reading host, which the next layer overwrites */
            rc = pp_backend_synchronize(be);
        }
    }
    pp_free(host);
    return rc == 0 ? pp_chunk_weights_changed(c, be) : rc;
}

static float *packed_of(const struct pp_chunk *c, int k)
{
    return c->places[k].packed == NO_PLACE ? NULL : c->packed + c->places[k].packed;
}

static int pack(struct pp_chunk *c, struct pp_backend *be, int k)
{
    const struct pp_layer *l = layer(c, k);
    float *to = packed_of(c, k);
    return to ? l->ops->pack(l, be, c->params + c->places[k].params, to) : 0;
}

int pp_chunk_weights_changed(struct pp_chunk *c, struct pp_backend *be)
{
    for (int k = 0; k < n_layers(c); k++)
        PP_TRY(pack(c, be, k));
    return 0;
}

int pp_chunk_optimizer_step(struct pp_chunk *c, struct pp_backend *be,
                            const struct pp_optimizer_args *a)
{
    if (!c->packed || be->caps.async) { /* where ops are launched, the fewer the better */
        PP_TRY(
            pp_backend_optimizer_step(be, c->n_floats, a, c->grads, c->opt_m, c->opt_v, c->params));
        return pp_chunk_weights_changed(c, be);
    }
    /* Layer by layer, so that what is packed has just been written and is in the cache. */
    for (int k = 0; k < n_layers(c); k++) {
        size_t at = c->places[k].params;
        PP_TRY(pp_backend_optimizer_step(be, layer(c, k)->n_floats, a, c->grads + at,
                                         c->opt_m ? c->opt_m + at : NULL,
                                         c->opt_v ? c->opt_v + at : NULL, c->params + at));
        PP_TRY(pack(c, be, k));
    }
    return 0;
}

/* ---- a micro-batch */

static struct pp_chunk_state *state(struct pp_chunk *c, int slot)
{
    pp_assert(slot >= 0 && slot < c->state_slots);
    return &c->states[slot];
}

static const float *input(const struct pp_chunk *c, const struct pp_chunk_state *st, int k)
{
    return k == 0 ? st->x : st->base + c->places[k - 1].y;
}

static float *output(const struct pp_chunk *c, const struct pp_chunk_state *st, int k)
{
    return k == n_layers(c) - 1 ? st->y : st->base + c->places[k].y;
}

static float *saved(const struct pp_chunk *c, const struct pp_chunk_state *st, int k)
{
    return c->places[k].saved == NO_PLACE ? NULL : st->base + c->places[k].saved;
}

static float *gradient(const struct pp_chunk *c, const struct pp_chunk_state *st, int gslot, int k)
{
    return k == n_layers(c) - 1 ? st->dy : c->grad_base[gslot] + c->places[k].dy;
}

void pp_chunk_measure(struct pp_chunk *c, bool on)
{
    c->measure = on;
    c->range = (struct pp_chunk_range){.bad_input = -1};
}

bool pp_chunk_is_bounded(const struct pp_chunk *c, int rows)
{
    bool yes = isfinite(c->range.x);
    for (int k = 0; k < n_layers(c) && yes; k++) {
        const struct pp_layer *l = layer(c, k);
        yes = l->ops->bound && l->ops->bound(l, rows, c->range.x, c->range.dz) < (double)FLT_MAX;
    }
    return yes;
}

/* values[rows][width], while they are in the cache. */
static int measure(const struct pp_chunk *c, struct pp_backend *be, int rows, int width,
                   const float *values, float *most)
{
    return c->measure ? pp_backend_largest(be, (size_t)rows * (size_t)width, values, most) : 0;
}

int pp_chunk_prepare(struct pp_chunk *c, struct pp_backend *be, int rows, bool training)
{
    pp_assert(rows >= 0 && rows <= c->max_rows && (!training || c->grad_slots > 0));
    int *known = c->prepared[training], oldest = PP_CHUNK_PREPARED - 1;
    for (int i = 0; i <= oldest; i++)
        if (known[i] == rows)
            return 0;
    for (int k = 0; k < n_layers(c); k++) {
        const struct pp_layer *l = layer(c, k);
        size_t at = c->places[k].params;
        PP_TRY(l->ops->prepare(l, be, rows, c->params + at, packed_of(c, k),
                               training ? c->grads + at : NULL));
    }
    memmove(known + 1, known, (size_t)oldest * sizeof(*known));
    known[0] = rows;
    return 0;
}

int pp_chunk_forward(struct pp_chunk *c, struct pp_backend *be, int slot, int rows, const float *x,
                     float *y)
{
    struct pp_chunk_state *st = state(c, slot);
    pp_assert(rows >= 0 && rows <= c->max_rows);
    st->x = x;
    st->y = y;
    st->dy = NULL;
    st->rows = rows;
    for (int k = 0; k < n_layers(c); k++) {
        const struct pp_layer *l = layer(c, k);
        PP_TRY(measure(c, be, rows, l->in, input(c, st, k), &c->range.x));
        if (!isfinite(c->range.x) && c->range.bad_input < 0) {
            c->range.bad_input = l->index;
            c->range.bad = c->range.x;
        }
        PP_TRY(l->ops->forward(l, be, rows, c->params + c->places[k].params, packed_of(c, k),
                               input(c, st, k), saved(c, st, k), output(c, st, k)));
    }
    return 0;
}

int pp_chunk_backward_input(struct pp_chunk *c, struct pp_backend *be, int slot, int gslot,
                            float *dy, float *dx)
{
    struct pp_chunk_state *st = state(c, slot);
    pp_assert(gslot >= 0 && gslot < c->grad_slots);
    st->dy = dy;
    for (int k = n_layers(c) - 1; k >= 0; k--) {
        const struct pp_layer *l = layer(c, k);
        PP_TRY(l->ops->backward_input(l, be, st->rows, c->params + c->places[k].params,
                                      packed_of(c, k), saved(c, st, k), output(c, st, k),
                                      gradient(c, st, gslot, k),
                                      k == 0 ? dx : gradient(c, st, gslot, k - 1)));
        PP_TRY(measure(c, be, st->rows, l->out, gradient(c, st, gslot, k), &c->range.dz));
    }
    return 0;
}

int pp_chunk_backward_weight(struct pp_chunk *c, struct pp_backend *be, int n, const int *slots,
                             const int *gslots, bool first)
{
    pp_assert(n >= 1 && n <= c->grad_slots);
    for (int k = n_layers(c) - 1; k >= 0; k--) {
        const struct pp_layer *l = layer(c, k);
        for (int i = 0; i < n; i++) {
            const struct pp_chunk_state *st = state(c, slots[i]);
            pp_assert(gslots[i] >= 0 && gslots[i] < c->grad_slots && st->dy);
            c->parts[i] = (struct pp_weight_part){
                .B = st->rows, .dz = gradient(c, st, gslots[i], k), .x = input(c, st, k)};
        }
        PP_TRY(l->ops->backward_weight(l, be, n, c->parts, first ? 0.0f : 1.0f,
                                       c->grads + c->places[k].params));
    }
    return 0;
}

/* ---- parameters */

int pp_chunk_param_count(const struct pp_chunk *c)
{
    int n = 0;
    for (int k = 0; k < n_layers(c); k++)
        n += layer(c, k)->n_params;
    return n;
}

const struct pp_param *pp_chunk_param(const struct pp_chunk *c, int i, size_t *offset,
                                      size_t *n_floats)
{
    size_t at = 0;
    for (int k = 0; k < n_layers(c); k++) {
        const struct pp_layer *l = layer(c, k);
        for (int p = 0; p < l->n_params; p++, i--) {
            size_t n = (size_t)l->params[p].rows * (size_t)l->params[p].cols;
            if (i == 0) {
                *offset = at;
                *n_floats = n;
                return &l->params[p];
            }
            at += n;
        }
    }
    pp_assert(!"parameter of the chunk");
    return NULL;
}
