/* SPDX-License-Identifier: Apache-2.0 */
/* A candidate run for real: what was predicted against what is measured. */
#include "ppcli/bench.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/clock.h"
#include "ppcli/err.h"
#include "ppcli/median.h"
#include "ppcli/mem.h"

enum {
    STEPS_MIN = 4,
    STEPS_MAX = 20000,
    WINDOWS_MAX = 256
};

#define PATIENCE 2 /* times as long as was asked for, before what was measured is enough */

struct windows {
    double per_sample[WINDOWS_MAX];
    int n, seen;
    uint64_t enough_ns; /* pp_clock_ns() */
    volatile sig_atomic_t stop;
};

static void window(void *ctx, int64_t samples, double seconds)
{
    struct windows *w = ctx;
    /* the first one has every page touched for the first time */
    if (w->seen++ > 0 && w->n < WINDOWS_MAX) {
        w->per_sample[w->n++] = seconds / (double)samples;
    }
    /* Steps that take much longer than predicted, as on a machine that others use. */
    if (w->n > 0 && pp_clock_ns() > w->enough_ns) {
        w->stop = SIGTERM;
    }
}

/* As the run would be, but of a few steps of whole batches, on threads, in silence. */
static void shorten(struct pp_config *cfg, const struct pp_best_spec *spec, double step,
                    double seconds)
{
    int batch = cfg->train.batch_size;
    double steps = step > 0 ? seconds / step : STEPS_MAX;
    steps = steps < STEPS_MIN ? STEPS_MIN : steps > STEPS_MAX ? STEPS_MAX : steps;
    cfg->train.max_steps = (int64_t)steps;
    cfg->train.epochs = 1000000;
    if (spec->train_n > batch) {
        cfg->data.train_samples = spec->train_n / batch * batch;
    }
    cfg->data.test_samples = spec->test_n > batch ? batch : spec->test_n;
    cfg->run.dir[0] = '\0';
    cfg->run.launch = PP_LAUNCH_THREADS;
    snprintf(cfg->run.transport, sizeof(cfg->run.transport), "auto");
}

int pp_bench_candidate(const struct pp_best_spec *spec, const struct pp_candidate *c,
                       const struct pp_costs *costs, double seconds, double *step)
{
    struct pp_config *cfg = NULL;
    struct windows *w = pp_alloc(1, sizeof(*w));
    FILE *nowhere = fopen("/dev/null", "w");
    int rc = PP_ERESOURCE;
    if (!w) {
        goto out;
    }
    if (!nowhere) {
        rc = pp_fail_errno(PP_EIO, "cannot open /dev/null");
        goto out;
    }
    rc = pp_best_config(spec->cfg, spec->model, c, costs, &cfg);
    if (rc == 0) {
        bool speaks;
        struct pp_train_options options = {.name = "check",
                                           .out = nowhere,
                                           .quiet = true,
                                           .window = window,
                                           .ctx = w,
                                           .stop = &w->stop};
        w->enough_ns = pp_clock_ns() + (uint64_t)(PATIENCE * seconds * 1e9);
        shorten(cfg, spec, c->time.step, seconds);
        rc = pp_train(cfg, &options, &speaks);
        if (rc == PP_ESTOPPED) {
            pp_error_clear();
            rc = 0;
        }
    }
    if (rc == 0 && w->n == 0) {
        rc = pp_fail(PP_EINTERNAL, "a run of %d steps told no time", STEPS_MIN);
    }
    if (rc == 0) {
        double median = pp_median(w->per_sample, w->n);
        int batch = cfg->train.batch_size;
        *step = median * (spec->train_n < batch ? spec->train_n : batch);
    }
out:
    if (nowhere) {
        fclose(nowhere);
    }
    pp_free(cfg);
    pp_free(w);
    return rc;
}
