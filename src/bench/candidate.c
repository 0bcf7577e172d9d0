/* SPDX-License-Identifier: Apache-2.0 */
/* A candidate run for real: what was predicted against what is measured. */
#include "bench.h"
#include "probe.h"

#include "ppcli/err.h"
#include "ppcli/mem.h"

enum {
    STEPS_MIN = 4,
    STEPS_MAX = 20000,
    WARMUP = 2
};

static int run(struct pp_config *cfg, FILE *nowhere, int64_t steps, struct probe *probe)
{
    bool speaks;
    struct pp_train_options options = {
        .name = "check", .out = nowhere, .quiet = true, .work = probe_train, .work_ctx = probe};
    probe->warmup = WARMUP;
    probe->steps = steps;
    return pp_train(cfg, &options, &speaks);
}

int pp_bench_candidate(const struct pp_best_spec *spec, const struct pp_candidate *c,
                       const struct pp_costs *costs, double seconds, struct pp_prediction *out)
{
    struct pp_config *cfg = NULL;
    struct probe probe = {.ends_ns = pp_alloc(STEPS_MAX, sizeof(*probe.ends_ns))};
    FILE *nowhere = fopen("/dev/null", "w");
    int rc = !probe.ends_ns ? PP_ERESOURCE
             : !nowhere     ? pp_fail_errno(PP_EIO, "cannot open /dev/null")
                            : pp_best_config(spec->cfg, spec->model, c, costs, &cfg);
    if (rc == 0) {
        cfg->run.launch = PP_LAUNCH_THREADS;
        snprintf(cfg->run.transport, sizeof(cfg->run.transport), "auto");
        rc = bench_shorten(cfg);
    }
    if (rc == 0)
        rc = run(cfg, nowhere, STEPS_MIN, &probe);
    if (rc == 0) { /* as many steps as really take the time */
        double steps = seconds / (probe.seconds / STEPS_MIN);
        steps = steps < STEPS_MIN ? STEPS_MIN : steps > STEPS_MAX ? STEPS_MAX : steps;
        rc = run(cfg, nowhere, (int64_t)steps, &probe);
    }
    if (rc == 0)
        *out = (struct pp_prediction){probe.seconds / (double)probe.steps, probe.bubble};
    if (nowhere)
        fclose(nowhere);
    pp_free(probe.ends_ns);
    pp_free(cfg);
    return rc;
}
