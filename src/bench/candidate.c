/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates run for real: what was predicted against what is measured. They take turns, so that a
 * machine that others use slows all of them. The actions of the rounds before and after one,
 * simulated, predict its step (the last round comes before the first): what drifts cancels out.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

#define WARMUPS 2 /* before the rounds that count: how many steps fill one */
#define ROUNDS 11 /* short ones: what others do on this machine comes in bursts */
#define MORE 16
#define LONG_STEP 0.25    /* seconds: a round is one step then, after one that does not count */
#define LONG_SECONDS 10.0 /* and there are as many as take so long, but not less than: */
#define ROUNDS_MIN 3
#define SECONDS 3.0 /* of each candidate of a result */

struct trial {
    struct pp_config *cfg;
    struct probe probe;
    struct pp_prediction measured[ROUNDS];
    double simulated[ROUNDS], waited[ROUNDS];
};

struct trials {
    const struct pp_bench_candidates *spec;
    struct trial *items;
    struct prober prober;
    bool single; /* steps are so long that one fills a round */
    int rounds;
};

static int open_trial(const struct trials *all, int i)
{
    const struct pp_bench_candidates *spec = all->spec;
    struct trial *t = &all->items[i];
    t->probe = (struct probe){.warmup = all->single ? 1 : 2, .steps = all->single ? 1 : 4};
    const struct pp_space *best = spec->best;
    PP_TAKE(struct pp_division, d, 1);
    PP_TAKE(int64_t, ticks, PP_NUMBERS_MAX);
    PP_TRY(pp_best_division(best, spec->costs, spec->items[i], ticks, d));
    PP_TRY(pp_division_config(d, best->model, best->cfg, &t->cfg));
    const char *const keys[][2] = {{"run.packed", best->training.backend.unpacked ? "off" : "on"},
                                   {"run.launch", "threads"},
                                   {"run.transport", "auto"}};
    PP_TRY(bench_set_keys(t->cfg, keys, sizeof(keys) / sizeof(keys[0])));
    return bench_shorten(t->cfg);
}

static int compare_steps(const void *a, const void *b)
{
    const struct pp_prediction *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

static void put_together(struct trial *t, int rounds, struct pp_checked *out)
{
    double errors[ROUNDS];
    for (int r = 0; r < rounds; r++) {
        double before = t->simulated[(r + rounds - 1) % rounds];
        double after = t->simulated[(r + 1) % rounds];
        errors[r] = (before + after) / 2 / t->measured[r].step - 1;
    }
    qsort(t->measured, (size_t)rounds, sizeof(t->measured[0]), compare_steps);
    out->measured = t->measured[rounds / 2];
    out->calibrated = pp_median(t->simulated, rounds);
    out->error = pp_median(errors, rounds);
    out->waited = pp_median(t->waited, rounds);
}

/* Returns how many steps will take `seconds`, judging by the last measurement. It is at most MORE
 * times the number of steps measured, because few steps on a busy machine do not show the speed. */
static int64_t next_steps(const struct probe *last, double seconds)
{
    int64_t n = probe_steps(last, seconds);
    return n < MORE * last->steps ? n : MORE * last->steps;
}

static int run_one(struct trials *all, int i, int round)
{
    const struct pp_bench_candidates *spec = all->spec;
    struct trial *t = &all->items[i];
    pp_log_progress("round %d/%d, plan %d/%d: %s", round < 0 ? 1 : round + 1, all->rounds, i + 1,
                    spec->n, pp_division_schedule(&spec->items[i]->d));
    PP_TRY(probe_run(&all->prober, t->cfg, &t->probe));
    if (round >= 0) {
        double step = t->probe.seconds / (double)t->probe.steps;
        t->measured[round] = (struct pp_prediction){.step = step, .bubble = t->probe.bubble};
        t->simulated[round] = t->probe.simulated;
        t->waited[round] = t->probe.waited;
    }
    if (!all->single)
        t->probe.steps = next_steps(&t->probe, spec->seconds / ROUNDS);
    return 0;
}

int pp_bench_candidates(const struct pp_bench_candidates *spec, struct pp_checked *out)
{
    struct trials all = {.spec = spec};
    PP_OWN_MEMORY struct trial *items = pp_alloc((size_t)spec->n, sizeof(*items));
    all.items = items;
    int rc = items ? probe_open(&all.prober) : PP_ERESOURCE;
    double longest = 0;
    for (int i = 0; i < spec->n; i++)
        longest = spec->items[i]->time.step > longest ? spec->items[i]->time.step : longest;
    all.single = longest > LONG_STEP;
    double rounds = all.single ? LONG_SECONDS / longest : ROUNDS;
    all.rounds = rounds > ROUNDS ? ROUNDS : rounds < ROUNDS_MIN ? ROUNDS_MIN : (int)rounds;
    for (int i = 0; rc == 0 && i < spec->n; i++)
        rc = open_trial(&all, i);
    if (rc == 0 && spec->n > 0)
        rc = probe_open_data(&all.prober, items[0].cfg); /* which no candidate changes */
    for (int round = all.single ? 0 : -WARMUPS; rc == 0 && round < all.rounds; round++)
        for (int i = 0; rc == 0 && i < spec->n; i++)
            rc = run_one(&all, i, round);
    pp_log_progress(NULL);
    for (int i = 0; rc == 0 && i < spec->n; i++)
        put_together(&items[i], all.rounds, &out[i]);
    probe_close(&all.prober);
    for (int i = 0; items && i < spec->n; i++)
        pp_free(items[i].cfg);
    return rc;
}

int pp_bench_best_result(struct pp_best_result *s)
{
    enum pp_log_level before = pp_log_level();
    const struct pp_row *items[PP_BEST_SHOWN + 2];
    struct pp_checked out[PP_BEST_SHOWN + 2] = {0};
    int n = s->n_checked < s->best.n ? s->n_checked : s->best.n;
    bool own = n > 0 && s->best.as_is.time.step > 0 &&
               (s->spec.memory == 0 || s->best.as_is.peak_bytes <= s->spec.memory);
    bool one = n > 0 && s->best.one.time.step > 0 && !s->best.one.over;
    struct pp_bench_candidates spec = {
        .best = &s->spec, .costs = s->costs, .items = items, .seconds = SECONDS};
    for (int i = 0; i < n; i++) /* it is one of the first */
        one = one && !pp_best_is(&s->best.items[i], 1, 1, s->best.one.d.threads);
    spec.n = n + own + one;
    for (int i = 0; i < spec.n; i++)
        items[i] = i < n ? &s->best.items[i] : i < n + own ? &s->best.as_is : &s->best.one;
    pp_log_info(
        "running the first %d%s%s in turns, %g s each, or 6 to 22 steps where they are long", n,
        own ? ", this config" : "", one ? ", one stage" : "", SECONDS);
    pp_log_set_level(PP_LOG_QUIET);
    int rc = pp_bench_candidates(&spec, out);
    pp_log_set_level(before);
    s->n_checked = n;
    memcpy(s->checked, out, (size_t)n * sizeof(*out));
    if (own)
        s->as_is = out[n];
    if (one)
        s->one = out[n + own];
    return rc;
}
