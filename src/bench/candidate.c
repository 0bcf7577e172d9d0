/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates run for real: what was predicted against what is measured. They take turns, so that a
 * machine that others use slows all of them. Each round's actions, simulated, predict the next
 * round's step, and those of the last round the first one's: what drifts cancels out.
 */
#include "bench.h"

#include <stdlib.h>

#include "ppcli/median.h"

#define WARMUPS 2 /* before the rounds that count: how many steps fill one */
#define ROUNDS 5
#define MORE 16

struct trial {
    struct pp_config *cfg;
    struct probe probe;
    struct pp_prediction measured[ROUNDS];
    double simulated[ROUNDS], waited[ROUNDS];
};

static int open_trial(struct trial *t, const struct pp_best_spec *spec,
                      const struct pp_candidate *c, const struct pp_costs *costs)
{
    t->probe = (struct probe){.warmup = 2, .steps = 4};
    PP_TRY(pp_best_config(spec->cfg, spec->model, c, costs, &t->cfg));
    t->cfg->run.launch = PP_LAUNCH_THREADS;
    snprintf(t->cfg->run.transport, sizeof(t->cfg->run.transport), "auto");
    return bench_shorten(t->cfg);
}

static int compare_steps(const void *a, const void *b)
{
    const struct pp_prediction *x = a, *y = b;
    return (x->step > y->step) - (x->step < y->step);
}

static void put_together(struct trial *t, struct pp_checked *out)
{
    double errors[ROUNDS];
    for (int r = 0; r < ROUNDS; r++)
        errors[r] = t->simulated[(r + ROUNDS - 1) % ROUNDS] / t->measured[r].step - 1;
    qsort(t->measured, ROUNDS, sizeof(t->measured[0]), compare_steps);
    out->measured = t->measured[ROUNDS / 2];
    out->calibrated = pp_median(t->simulated, ROUNDS);
    out->error = pp_median(errors, ROUNDS);
    out->waited = pp_median(t->waited, ROUNDS);
}

/* As many steps as take `seconds`, by those of the last time: a few steps of a crowded machine say
 * little, so it is at most MORE times as many. */
static int64_t next_steps(const struct probe *last, double seconds)
{
    int64_t n = probe_steps(last, seconds);
    return n < MORE * last->steps ? n : MORE * last->steps;
}

static int run_rounds(struct prober *prober, struct trial *trials, int n, double seconds)
{
    for (int round = -WARMUPS; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++) {
            struct trial *t = &trials[i];
            PP_TRY(probe_run(prober, t->cfg, &t->probe));
            if (round >= 0) {
                double step = t->probe.seconds / (double)t->probe.steps;
                t->measured[round] = (struct pp_prediction){step, t->probe.bubble};
                t->simulated[round] = t->probe.simulated;
                t->waited[round] = t->probe.waited;
            }
            t->probe.steps = next_steps(&t->probe, seconds / ROUNDS);
        }
    }
    return 0;
}

int pp_bench_candidates(const struct pp_best_spec *spec, const struct pp_candidate *c, int n,
                        const struct pp_costs *costs, double seconds, struct pp_checked *out)
{
    struct prober prober = {.ends_ns = NULL};
    PP_OWN_MEMORY struct trial *trials = pp_alloc((size_t)n, sizeof(*trials));
    int rc = trials ? probe_open(&prober) : PP_ERESOURCE;
    for (int i = 0; rc == 0 && i < n; i++)
        rc = open_trial(&trials[i], spec, &c[i], costs);
    if (rc == 0 && n > 0)
        rc = probe_open_data(&prober, trials[0].cfg); /* which no candidate changes */
    if (rc == 0)
        rc = run_rounds(&prober, trials, n, seconds);
    for (int i = 0; rc == 0 && i < n; i++)
        put_together(&trials[i], &out[i]);
    probe_close(&prober);
    for (int i = 0; trials && i < n; i++)
        pp_free(trials[i].cfg);
    return rc;
}
