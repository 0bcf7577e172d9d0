/* SPDX-License-Identifier: Apache-2.0 */
/* Models and chunks: the gradient is the gradient, and the cut into chunks changes no bit. */
#include "nn_models.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "ppcli/base/base.h"
#include "ppcli/nn/chunk.h"
#include "ppcli/conf/config.h"

/* ---- a pipeline of chunks in one thread */

enum {
    CHUNKS_MAX = 8,
    ROWS = 8,
    MB = 3
};

struct line {
    struct pp_model *m;
    struct pp_backend *be;
    int n;
    struct pp_chunk *chunk[CHUNKS_MAX];
    struct pp_arena arena;
    float *edge[CHUNKS_MAX + 1][MB];  /* values before chunk s, per micro-batch */
    float *dedge[CHUNKS_MAX + 1][MB]; /* their gradients */
};

/* m is taken over. */
static void set_up(struct line *l, struct pp_model *m, const char *backend, int n, const int *first,
                   int optimizer)
{
    struct pp_backend *be = open_backend(backend);
    memset(l, 0, sizeof(*l));
    l->m = m;
    l->be = be;
    l->n = n;
    struct pp_arena dry = pp_arena_dry();
    for (int pass = 0; pass < 2; pass++) {
        struct pp_arena *arena = pass == 0 ? &dry : &l->arena;
        if (pass == 1)
            CHECK_OK(pp_arena_create(dry.used, arena));
        for (int s = 0; s < n; s++) {
            struct pp_chunk_spec spec = {.first = first[s],
                                         .last = s + 1 < n ? first[s + 1] - 1 : m->n_layers - 1,
                                         .max_rows = ROWS,
                                         .state_slots = MB,
                                         .grad_slots = MB,
                                         .optimizer = optimizer,
                                         .backend = &be->choice};
            CHECK_OK(pp_chunk_create(m, &spec, arena, &l->chunk[s]));
            assert_true((l->chunk[s] != NULL) == (pass == 1));
        }
    }
    CHECK_INT_EQ(dry.used, l->arena.used);
    for (int s = 0; s < n; s++)
        CHECK_OK(pp_chunk_init(l->chunk[s], be, 42));
    for (int s = 0; s <= n; s++) {
        int width = s < n ? m->layers[first[s]].in : m->classes;
        for (int mb = 0; mb < MB; mb++) {
            l->edge[s][mb] = pp_alloc((size_t)(ROWS * width), sizeof(float));
            l->dedge[s][mb] = pp_alloc((size_t)(ROWS * width), sizeof(float));
        }
    }
}

static void tear_down(struct line *l)
{
    for (int s = 0; s <= l->n; s++) {
        for (int mb = 0; mb < MB; mb++) {
            pp_free(l->edge[s][mb]);
            pp_free(l->dedge[s][mb]);
        }
        pp_chunk_destroy(&l->chunk[s]);
    }
    pp_arena_destroy(&l->arena);
    pp_backend_close(&l->be);
    pp_model_destroy(&l->m);
}

static void forward(struct line *l, int mb, int rows)
{
    const struct pp_pass pass = {.rows = rows, .training = true};
    for (int s = 0; s < l->n; s++) {
        CHECK_OK(
            pp_chunk_forward(l->chunk[s], l->be, mb, &pass, l->edge[s][mb], l->edge[s + 1][mb]));
    }
}

static double loss(struct line *l, int mb, int rows, const uint8_t *labels, float *dlogits)
{
    struct pp_loss_sums sums = {0};
    int32_t targets[64];
    const struct pp_targets t = {
        .B = rows, .P = 1, .data = labels, .stride = 1, .targets = targets};
    CHECK_OK(pp_backend_targets(l->be, &t));
    CHECK_OK(pp_backend_softmax_cross_entropy(
        l->be,
        &(struct pp_softmax_cross_entropy){rows, 1, l->m->classes, l->edge[l->n][mb], targets, 1.0f,
                                           0, &sums, dlogits, NULL, 0, 0, NULL}));
    return sums.loss;
}

static void backward_input(struct line *l, int mb, bool dx)
{
    for (int s = l->n - 1; s >= 0; s--) {
        CHECK_OK(pp_chunk_backward_input(l->chunk[s], l->be, mb, mb, l->dedge[s + 1][mb],
                                         s > 0 || dx ? l->dedge[s][mb] : NULL));
    }
}

static void backward_weight(struct line *l, int mb, bool first)
{
    for (int s = 0; s < l->n; s++)
        CHECK_OK(pp_chunk_backward_weight(l->chunk[s], l->be, 1, &mb, &mb, first));
}

/* ---- the gradient */

static double loss_with(struct line *l, float *value, float v, const uint8_t *labels, int rows)
{
    *value = v;
    CHECK_OK(pp_chunk_weights_changed(l->chunk[0], l->be));
    forward(l, 0, rows);
    return loss(l, 0, rows, labels, NULL);
}

/* (loss(v + h) - loss(v - h)) / 2h against the gradient; relative to the largest of its array. */
static void check_array(struct line *l, const char *name, float *values, const float *grads,
                        size_t n, const uint8_t *labels, int rows)
{
    const float h = 0x1p-8f;
    double most = 0, worst = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)grads[i]));
    assert_true(most > 1e-3);
    for (size_t i = 0; i < n; i++) {
        float keep = values[i];
        volatile float up = keep + h, down = keep - h;
        double above = loss_with(l, &values[i], up, labels, rows);
        double below = loss_with(l, &values[i], down, labels, rows);
        values[i] = keep;
        double numeric = (above - below) / ((double)up - down);
        double off = fabs(numeric - grads[i]) / most;
        worst = fmax(worst, off);
        if (!(off < 1e-3)) {
            fail_msg("%s %s[%zu]: differences give %.6g, the gradient is %.6g", name,
                     l->be->ops->name, i, numeric, (double)grads[i]);
        }
    }
    print_message("# %s %s: worst %.1e\n", l->be->ops->name, name, worst);
}

static void check_gradients(const char *backend)
{
    const enum pp_activation acts[] = {PP_ACT_NONE, PP_ACT_RELU, PP_ACT_TANH, PP_ACT_GELU};
    const uint8_t labels[] = {0, 3, 1, 2, 3, 0};
    const int sizes[] = {6, 5, 7, 4}, whole[] = {0}, rows = 6;
    const uint64_t seed = 1;
    for (int a = 0; a < COUNT(acts); a++) {
        struct line l;
        set_up(&l, make_model(acts[a], sizes, 4), backend, 1, whole, PP_OPT_SGD);
        struct pp_chunk *c = l.chunk[0];
        /* With this seed no relu is within h of its kink, where the loss has no slope. */
        pp_rng_uniform(seed, 1, 0, -1, 1, (size_t)(rows * 6), l.edge[0][0]);
        /* biases too: away from 0 */
        for (int p = 1; p < pp_chunk_param_count(c); p += 2) {
            size_t at, n;
            pp_chunk_param(c, p, &at, &n);
            pp_rng_uniform(seed, 2, 0, -0.5f, 0.5f, n, c->params + at);
        }
        forward(&l, 0, rows);
        loss(&l, 0, rows, labels, l.dedge[1][0]);
        backward_input(&l, 0, true);
        backward_weight(&l, 0, true);
        float dx[6 * 6];
        memcpy(dx, l.dedge[0][0], sizeof(dx));
        char name[PP_PARAM_NAME_MAX + 32];
        for (int p = 0; p < pp_chunk_param_count(c); p++) {
            size_t at, n;
            const struct pp_param *param = pp_chunk_param(c, p, &at, &n);
            snprintf(name, sizeof(name), "%s %s", pp_activation_name(acts[a]), param->name);
            check_array(&l, name, c->params + at, c->grads + at, n, labels, rows);
        }
        snprintf(name, sizeof(name), "%s input", pp_activation_name(acts[a]));
        check_array(&l, name, l.edge[0][0], dx, COUNT(dx), labels, rows);
        tear_down(&l);
    }
}

TEST(gradients_of_reference_are_the_slopes_of_the_loss)
{
    check_gradients("reference");
}

/* ---- cuts */

static const int five[] = {12, 9, 17, 8, 11, 5};

struct result {
    float grads[1000], logits[MB][ROWS * 5], dx[MB][ROWS * 12];
    double loss;
    size_t n;
};

enum when {
    LATE,    /* all I before all W */
    TOGETHER /* the W of all micro-batches in one call */
};

/* Three micro-batches, the last one smaller. */
static void run(enum pp_activation act, const char *backend, int n, const int *first,
                enum when when, struct result *r)
{
    static const uint8_t labels[ROWS] = {4, 0, 1, 1, 2, 3, 0, 4};
    const int rows[MB] = {ROWS, ROWS, 3};
    struct line l;
    memset(r, 0, sizeof(*r));
    set_up(&l, make_model(act, five, COUNT(five)), backend, n, first, PP_OPT_ADAM);
    for (int s = 0; s < n; s++) /* what an earlier step left is not read */
        memset(l.chunk[s]->grads, 0xff, l.chunk[s]->n_floats * sizeof(float));
    uint64_t before = pp_alloc_count();
    for (int mb = 0; mb < MB; mb++) {
        pp_rng_uniform(9, (uint64_t)mb, 0, -1, 1, ROWS * 12, l.edge[0][mb]);
        forward(&l, mb, rows[mb]);
        memcpy(r->logits[mb], l.edge[n][mb], (size_t)rows[mb] * 5 * sizeof(float));
        r->loss += loss(&l, mb, rows[mb], labels, l.dedge[n][mb]);
        backward_input(&l, mb, true);
        memcpy(r->dx[mb], l.dedge[0][mb], (size_t)rows[mb] * 12 * sizeof(float));
    }
    for (int mb = 0; when == LATE && mb < MB; mb++)
        backward_weight(&l, mb, mb == 0);
    for (int s = 0; when == TOGETHER && s < n; s++) {
        const int slots[MB] = {0, 1, 2};
        CHECK_OK(pp_chunk_backward_weight(l.chunk[s], l.be, MB, slots, slots, true));
    }
    CHECK_INT_EQ(pp_alloc_count(), before);
    for (int s = 0; s < n; s++) {
        memcpy(r->grads + r->n, l.chunk[s]->grads, l.chunk[s]->n_floats * sizeof(float));
        r->n += l.chunk[s]->n_floats;
    }
    CHECK_INT_EQ(r->n, l.m->n_floats);
    tear_down(&l);
}

TEST(weight_gradients_of_several_micro_batches_at_once_are_their_sum)
{
    const int two[] = {0, 2};
    const char *backends[] = {"reference", "cpu"};
    static struct result want, got;
    for (int b = 0; b < COUNT(backends); b++) {
        run(PP_ACT_TANH, backends[b], 2, two, LATE, &want);
        run(PP_ACT_TANH, backends[b], 2, two, TOGETHER, &got);
        CHECK_INT_EQ(got.n, want.n);
        for (size_t i = 0; i < want.n; i++)
            assert_float_equal(got.grads[i], want.grads[i], 1e-5f);
    }
}

TEST(initial_values_do_not_depend_on_the_cut)
{
    const int one[] = {0}, all[] = {0, 1, 2, 3, 4};
    struct line whole, cut;
    set_up(&whole, make_model(PP_ACT_RELU, five, COUNT(five)), "cpu", 1, one, PP_OPT_SGD);
    set_up(&cut, make_model(PP_ACT_RELU, five, COUNT(five)), "cpu", 5, all, PP_OPT_SGD);
    const float *p = whole.chunk[0]->params;
    for (int s = 0; s < 5; s++) {
        assert_memory_equal(p, cut.chunk[s]->params, cut.chunk[s]->n_floats * sizeof(float));
        p += cut.chunk[s]->n_floats;
    }
    tear_down(&whole);
    tear_down(&cut);
}

/* The loss after three steps. */
static double loss_after_steps(const char *backend, int kind)
{
    const int two[] = {0, 2};
    const uint8_t labels[ROWS] = {0};
    struct line l;
    set_up(&l, make_model(PP_ACT_RELU, five, COUNT(five)), backend, 2, two, kind);
    pp_rng_uniform(9, 0, 0, -1, 1, ROWS * 12, l.edge[0][0]);
    double before = 0, after = 0;
    struct pp_optimizer_args a = {.kind = kind,
                                  .lr = 0.01f,
                                  .eps = 1e-8f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.999f,
                                  .grad_scale = 0.125f};
    for (a.step = 1; a.step <= 3; a.step++) {
        forward(&l, 0, ROWS);
        after = loss(&l, 0, ROWS, labels, l.dedge[2][0]);
        before = a.step == 1 ? after : before;
        backward_input(&l, 0, false);
        backward_weight(&l, 0, true);
        for (int s = 0; s < 2; s++)
            CHECK_OK(pp_chunk_optimizer_step(l.chunk[s], l.be, &a));
    }
    assert_true(after < before);
    tear_down(&l);
    return after;
}

/* The plain version reads the weights themselves: a copy that was not renewed would differ. */
TEST(a_step_of_the_optimizer_reaches_the_next_forward)
{
    for (int kind = 0; kind < PP_OPTIMIZERS; kind++) {
        double fast = loss_after_steps("cpu", kind);
        double plain = loss_after_steps("reference", kind);
        if (!(fabs(fast - plain) <= 1e-5 * plain))
            fail_msg("%s: loss %.9g, plain %.9g", pp_optimizer_name(kind), fast, plain);
    }
}

/* What a backend was asked to be ready for. */
static struct {
    int calls, rows, with_dx, with_dW;
} asked;

static int count_prepared(struct pp_backend *be, const struct pp_linear_use *use)
{
    asked.calls++;
    asked.rows = use->B;
    asked.with_dx += use->dx;
    asked.with_dW += use->dW != NULL;
    return 0;
}

TEST(a_size_of_micro_batch_is_prepared_once_a_layer)
{
    const int one[] = {0}, layers = COUNT(five) - 1;
    struct line l;
    set_up(&l, make_model(PP_ACT_RELU, five, COUNT(five)), "cpu", 1, one, PP_OPT_SGD);
    struct pp_backend *be = l.be;
    struct pp_backend_ops ops = *be->ops;
    const struct pp_backend_ops *real = be->ops;
    ops.prepare_linear = count_prepared;
    be->ops = &ops;
    memset(&asked, 0, sizeof(asked));
    for (int again = 0; again < 2; again++) {
        CHECK_OK(pp_chunk_prepare(l.chunk[0], be, ROWS, true));
        CHECK_OK(pp_chunk_prepare(l.chunk[0], be, ROWS - 3, true));
        CHECK_INT_EQ(asked.calls, 2 * layers);
        CHECK_INT_EQ(asked.rows, ROWS - 3);
        CHECK_INT_EQ(asked.with_dW, 2 * layers);
        CHECK_INT_EQ(asked.with_dx, 2 * (layers - 1)); /* nobody asks for that of the samples */
    }
    CHECK_OK(pp_chunk_prepare(l.chunk[0], be, ROWS, false));
    CHECK_INT_EQ(asked.calls, 3 * layers);
    CHECK_INT_EQ(asked.with_dW, 2 * layers);
    be->ops = real;
    tear_down(&l);
}

/* Values that cannot sum to more than a float prove it; a layer that promises nothing does not. */
TEST(a_chunk_is_bounded_by_layers_that_promise)
{
    static const int sizes[] = {6, 5, 3}, first[] = {0};
    static const float inputs[] = {1, 1e30f, NAN};
    static const uint8_t labels[ROWS] = {0};
    struct line l;
    set_up(&l, make_model(PP_ACT_RELU, sizes, COUNT(sizes)), "cpu", 1, first, PP_OPT_SGD);
    struct pp_node_op silent = *l.m->nodes[1].op;
    for (int i = 0; i < COUNT(inputs); i++) {
        for (int k = 0; k < ROWS * sizes[0]; k++)
            l.edge[0][0][k] = inputs[i];
        pp_chunk_measure(l.chunk[0], true);
        forward(&l, 0, ROWS);
        loss(&l, 0, ROWS, labels, l.dedge[1][0]);
        l.dedge[1][0][0] = 1e10f;
        backward_input(&l, 0, false);
        CHECK_INT_EQ(pp_chunk_is_bounded(l.chunk[0], ROWS, FLT_MAX), i == 0);
    }
    pp_chunk_measure(l.chunk[0], true);
    CHECK_INT_EQ(pp_chunk_is_bounded(l.chunk[0], ROWS, FLT_MAX), true);
    /* of a tied tensor the sum of two gradients */
    struct pp_chunk_range *range = &l.chunk[0]->range;
    for (range->x = range->dz = 1; pp_chunk_is_bounded(l.chunk[0], ROWS, FLT_MAX);)
        range->x *= 2;
    range->x /= 2;
    l.m->n_holders = 2;
    CHECK_INT_EQ(pp_chunk_is_bounded(l.chunk[0], ROWS, FLT_MAX), false);
    range->x /= 4;
    CHECK_INT_EQ(pp_chunk_is_bounded(l.chunk[0], ROWS, FLT_MAX), true);
    l.m->n_holders = 0;
    silent.bound = NULL;
    l.m->nodes[1].op = &silent;
    CHECK_INT_EQ(pp_chunk_is_bounded(l.chunk[0], ROWS, FLT_MAX), false);
    tear_down(&l);
}

TEST(optimizer_state_is_what_the_kind_needs)
{
    const int one[] = {0};
    size_t bytes[PP_OPTIMIZERS], buffer = 0;
    for (int kind = 0; kind < PP_OPTIMIZERS; kind++) {
        if (kind == PP_OPT_MUON) /* has memory of its own */
            continue;
        struct line l;
        set_up(&l, make_model(PP_ACT_RELU, five, COUNT(five)), "cpu", 1, one, kind);
        CHECK_INT_EQ(l.chunk[0]->opt_m != NULL, pp_optimizer_moments(kind) > 0);
        CHECK_INT_EQ(l.chunk[0]->opt_v != NULL, pp_optimizer_moments(kind) > 1);
        bytes[kind] = l.arena.used;
        buffer = (l.m->n_floats * 4 + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
        tear_down(&l);
    }
    for (int kind = 0; kind < PP_OPTIMIZERS; kind++)
        if (kind != PP_OPT_MUON)
            CHECK_INT_EQ(bytes[kind] - bytes[PP_OPT_SGD], pp_optimizer_moments(kind) * buffer);
}

TEST(a_chunk_for_evaluation_holds_parameters_only)
{
    PP_OWN(pp_model_destroy) struct pp_model *m = make_model(PP_ACT_GELU, five, COUNT(five));
    struct pp_arena dry = pp_arena_dry();
    struct pp_chunk_spec spec = {.last = 4, .max_rows = 1, .optimizer = PP_OPT_ADAM};
    struct pp_chunk *c = NULL;
    CHECK_OK(pp_chunk_create(m, &spec, &dry, &c));
    assert_null(c);
    CHECK_INT_EQ(dry.used, (m->n_floats * 4 + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN);
}

/* Bytes that a slot of the gradients between `layers` layers of `width` takes, for 8 rows. */
static size_t slot_bytes(int width, int layers)
{
    int sizes[32], first = 0;
    struct line l;
    for (int i = 0; i <= layers; i++)
        sizes[i] = width;
    set_up(&l, make_model(PP_ACT_RELU, sizes, layers + 1), "cpu", 1, &first, PP_OPT_SGD);
    float **base = l.chunk[0]->grad_base;
    size_t bytes = (size_t)(base[1] - base[0]) * sizeof(float);
    CHECK_INT_EQ((size_t)(base[2] - base[1]) * sizeof(float), bytes);
    tear_down(&l);
    return bytes;
}

/* What many slots hold of one layer must not lie in the same few sets of a cache. */
TEST(large_slots_are_no_multiple_of_16_kib_apart)
{
    static const int widths[] = {128, 256, 512, 510, 514, 496};
    for (int i = 0; i < COUNT(widths); i++) {
        size_t plain = (size_t)ROWS * 16 * (size_t)widths[i] * sizeof(float);
        size_t bytes = slot_bytes(widths[i], 17);
        assert_in_range(bytes % 16384, 2112, 16384 - 2112);
        assert_in_range(bytes, plain, plain + 2 * 2112);
    }
    CHECK_INT_EQ(slot_bytes(512, 3), 2 * ROWS * 512 * sizeof(float)); /* small ones stay */
}
