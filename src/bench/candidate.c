/* SPDX-License-Identifier: Apache-2.0 */
/* A candidate run for real: what was predicted against what is measured. */
#include "bench.h"
#include "probe.h"

int pp_bench_candidate(const struct pp_best_spec *spec, const struct pp_candidate *c,
                       const struct pp_costs *costs, double seconds, struct pp_prediction *out)
{
    struct pp_config *cfg = NULL;
    struct prober prober = {.ends_ns = NULL};
    struct probe probe = {.warmup = 2, .steps = 4};
    int rc = probe_open(&prober);
    if (rc == 0)
        rc = pp_best_config(spec->cfg, spec->model, c, costs, &cfg);
    if (rc == 0) {
        cfg->run.launch = PP_LAUNCH_THREADS;
        snprintf(cfg->run.transport, sizeof(cfg->run.transport), "auto");
        rc = bench_shorten(cfg);
    }
    for (int turn = 0; rc == 0 && turn < 2; turn++) {
        if (turn > 0) /* as many steps as really take the time */
            probe.steps = probe_steps(&probe, seconds);
        rc = probe_run(&prober, cfg, &probe);
    }
    if (rc == 0)
        *out = (struct pp_prediction){probe.seconds / (double)probe.steps, probe.bubble};
    probe_close(&prober);
    pp_free(cfg);
    return rc;
}
