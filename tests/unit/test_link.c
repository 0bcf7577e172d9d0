/* SPDX-License-Identifier: Apache-2.0 */
/* What a measurement meets. Hand-overs that somebody disturbs: every visit to the link finds what the
 * test says, and what counts at the end is what it would be without the disturbed ones. Layers: values
 * that have no pattern. */
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "../../src/measure/measure.h"
#include "ppcli/base/base.h"

#define LATENCY 1e-6
#define CALLS 3e-6
#define BYTE 1e-10
#define TAPS_CHANNELS 6

/* How many times as long each visit finds it to take; behind them all: once. */
static double times[LINK_VISITS];
static int visits;

int __wrap_measure_link(struct worker *w);
int __wrap_measure_link(struct worker *w)
{
    struct link_visits *v = &w->visits;
    double x = times[v->n] > 0 ? times[v->n] : 1;
    v->t[LINK_LATENCY][v->n] = LATENCY * x;
    v->t[LINK_CALLS][v->n] = CALLS * x;
    v->t[LINK_BYTE][v->n] = BYTE * x;
    v->n++;
    if (w->rank == 0)
        visits = v->n;
    return 0;
}

/* Which window of a max pool took which tap, in the last call of those that were timed. */
static uint8_t taken[4 * 8 * 8 * TAPS_CHANNELS];
static int n_taken;

int __real_pp_backend_max_pool_backward(struct pp_backend *be,
                                        const struct pp_max_pool_backward *a);
int __wrap_pp_backend_max_pool_backward(struct pp_backend *be,
                                        const struct pp_max_pool_backward *a);
int __wrap_pp_backend_max_pool_backward(struct pp_backend *be, const struct pp_max_pool_backward *a)
{
    n_taken = a->B * a->g->OH * a->g->OW * a->g->C;
    assert_true((size_t)n_taken <= sizeof(taken));
    memcpy(taken, a->taken, (size_t)n_taken);
    return __real_pp_backend_max_pool_backward(be, a);
}

/* Three sizes: four visits, and more where they do not agree. */
static struct pp_costs *measure_model(const struct pp_model *m, int ranks)
{
    struct pp_costs *c = NULL;
    struct pp_measure_spec spec = {.model = m,
                                   .backend.threads = 1,
                                   .ranks = ranks,
                                   .samples = 8,
                                   .sizes = (int[]){1, 2, 4},
                                   .n_sizes = 3,
                                   .seconds = 1e-3};
    CHECK_OK(pp_backend_resolve("cpu", &spec.backend.ops));
    CHECK_OK(pp_costs_measure(&spec, &c));
    return c;
}

static struct pp_costs *measured(void)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    assert_non_null(cfg);
    snprintf(cfg->model.type, sizeof(cfg->model.type), "mlp");
    cfg->model.n_sizes = 3;
    memcpy(cfg->model.sizes, (int[]){8, 8, 8}, 3 * sizeof(int));
    CHECK_OK(pp_model_create(cfg, NULL, &m));
    return measure_model(m, 2);
}

/* factor: of what counts, to what it takes undisturbed. */
static void check(const double *disturbed, int n, int expected, double factor, double unsteady)
{
    memset(times, 0, sizeof(times));
    memcpy(times, disturbed, (size_t)n * sizeof(*times));
    struct pp_costs *c = measured();
    CHECK_INT_EQ(visits, expected);
    assert_true(c->near.unsteady > 0);
    assert_float_equal(c->near.latency, LATENCY * factor, 1e-12);
    assert_float_equal(c->near.byte, BYTE * factor, 1e-16);
    assert_true(c->action >= CALLS * 2 / 3);
    assert_float_equal(c->near.unsteady, unsteady, 1e-9);
    pp_costs_destroy(&c);
}

TEST(a_disturbed_visit_does_not_count)
{
    check((double[]){1}, 1, 4, 1, 1);
    check((double[]){100}, 1, 4, 1, 1);
    check((double[]){1, 1, 1, 100}, 4, 4, 1, 1);
    check((double[]){1, 1, 1.9, 1.9}, 4, 4, 1, 1.9); /* near enough */
}

TEST(visits_that_differ_are_made_again)
{
    check((double[]){100, 100}, 2, 5, 1, 1);
    check((double[]){100, 1, 100, 2.1}, 4, 6, 1, 1);
    check((double[]){1, 3, 1, 3}, 4, 5, 1, 1);
}

TEST(what_stays_so_is_said)
{
    double worse[LINK_VISITS] = {1};
    for (int k = 1; k < LINK_VISITS; k++)
        worse[k] = 3 * worse[k - 1];
    check(worse, LINK_VISITS, 4 + LINK_AGAIN, worse[(4 + LINK_AGAIN) / 4], 3);
}

/* Share of windows that took tap t, and of those that took what the window `apart` before it took. */
static double share_of(int t)
{
    int n = 0;
    for (int i = 0; i < n_taken; i++)
        n += taken[i] == t;
    return (double)n / n_taken;
}
static double share_alike(int apart)
{
    int n = 0;
    for (int i = apart; i < n_taken; i++)
        n += taken[i] == taken[i - apart];
    return (double)n / (n_taken - apart);
}

/* A processor guesses what it has seen before: then the layer seems faster than it is in a run. */
TEST(a_measured_pool_takes_taps_that_cannot_be_guessed)
{
    PP_OWN_MEMORY struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    PP_OWN(pp_model_destroy) struct pp_model *m = NULL;
    assert_non_null(cfg);
    snprintf(cfg->model.type, sizeof(cfg->model.type), "sequential");
    snprintf(cfg->model.layers, sizeof(cfg->model.layers), "conv:%dx3 maxpool:2 flatten linear:4",
             TAPS_CHANNELS);
    const struct pp_data_input input = {.shape = {3, {16, 16, 1}}, .classes = 4};
    CHECK_OK(pp_model_create(cfg, &input, &m));
    struct pp_costs *c = measure_model(m, 1);
    pp_costs_destroy(&c);
    assert_true(n_taken >= 8 * 8 * TAPS_CHANNELS);
    for (int t = 0; t < 4; t++) {
        assert_true(share_of(t) > 0.1);
        assert_true(share_of(t) < 0.5);
    }
    for (int apart = 1; apart <= 8 * TAPS_CHANNELS; apart++)
        assert_true(share_alike(apart) < 0.6);
}

/* ---- messages over any transport */

/* A side that writes down what it is asked to do: m, s, r. Its calls fail after `good` of them. */
struct fake_side {
    char calls[64];
    int n, good;
};

static int note_call(struct fake_side *side, char call)
{
    side->calls[side->n++] = call;
    return side->n <= side->good ? 0 : PP_ERESOURCE;
}

static int meet_fake(void *side)
{
    return note_call(side, 'm');
}

static int send_fake(void *side)
{
    return note_call(side, 's');
}

static int receive_fake(void *side)
{
    return note_call(side, 'r');
}

static int time_fake(bool leads, bool meets, int good, double t[2], struct fake_side *side)
{
    *side = (struct fake_side){.good = good};
    const struct pp_link_end end = {leads, meets ? meet_fake : NULL, send_fake, receive_fake, side};
    return pp_link_time(&end, 2, 2, t);
}

TEST(one_side_of_a_link_sends_first_and_the_other_answers)
{
    struct fake_side side;
    double t[2] = {-1, -1};
    CHECK_OK(time_fake(true, true, 60, t, &side));
    assert_string_equal(side.calls, "msrsrmsrsr");
    assert_true(t[0] >= 0 && t[1] >= 0);
    CHECK_OK(time_fake(false, false, 60, t, &side));
    assert_string_equal(side.calls, "rsrsrsrs");
}

TEST(a_link_that_breaks_is_not_timed_any_more)
{
    struct fake_side side;
    double t[2];
    CHECK_INT_EQ(time_fake(true, true, 3, t, &side), PP_ERESOURCE);
    assert_string_equal(side.calls, "msrs");
}
