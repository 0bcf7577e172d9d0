/* SPDX-License-Identifier: Apache-2.0 */
/* Whether stages pay: a config with them and with one stage, simulated on an ordinary machine. */
#include "search.h"

#include <stdio.h>

#include "ppcli/conf/cluster.h"
#include "ppcli/base/base.h"
#include "ppcli/pipe/layout.h"

#define SHORT 1e-4 /* seconds of a step that is over before a sleeping thread has awoken */

/* The numbers of configs/machines/laptop.ini: a core for each rank. */
static const struct pp_cluster ordinary = {.peak = {[PP_PRECISION_F32] = 105.6e9},
                                           .bandwidth = 11.2e9,
                                           .memory = 4e9,
                                           .product = 0.8,
                                           .attention = 0.4,
                                           .conv = 0.6,
                                           .passes = 0.8,
                                           .launch = 1e-6,
                                           .ranks = 8,
                                           .within = {.latency = 1e-6, .byte = 1e-10}};

/* Predicts the time of a step with this number of stages. Errors: those of pp_best_try(). */
static int predict_step(const struct pp_space *spec, const struct pp_costs *costs, int stages,
                        double *out)
{
    struct pp_row c = {.d = spec->base};
    c.d.schedule = pp_schedule_find(PP_INIT_SCHEDULE);
    c.d.table = NULL;
    c.d.ticks = NULL;
    c.d.stages = stages;
    c.d.chunks = 1;
    PP_TRY(pp_best_try(spec, costs, &c));
    *out = c.time.step;
    return 0;
}

int pp_stages_gain(const struct pp_config *cfg, const struct pp_model *model, int train_n,
                   double *out)
{
    double one = 0, several = 0;
    PP_OWN(pp_costs_destroy) struct pp_costs *costs = NULL;
    struct pp_cluster_use use = {.model = model,
                                 .precision = cfg->run.precision,
                                 .optimizer = cfg->train.optimizer,
                                 .rows = cfg->train.batch_size,
                                 .ranks = cfg->pipeline.stages};
    PP_TRY(pp_costs_of_cluster(&ordinary, &use, &costs));
    struct pp_space spec = pp_space_of(cfg, model, train_n, 1);
    spec.endless = true;
    PP_TRY(predict_step(&spec, costs, 1, &one));
    PP_TRY(predict_step(&spec, costs, cfg->pipeline.stages, &several));
    *out = one < SHORT ? 1 : one / several;
    return 0;
}

int pp_init_stages(const int widths[3], int samples, int batch, const struct pp_names *names,
                   int *out)
{
    char sizes[64], rows[16], all[16];
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    PP_OWN(pp_model_destroy) struct pp_model *model = NULL;
    snprintf(sizes, sizeof(sizes), "%d %d %d %d", widths[0], widths[1], widths[1], widths[2]);
    snprintf(rows, sizeof(rows), "%d", batch);
    snprintf(all, sizeof(all), "%d", samples);
    const struct pp_setting settings[] = {{"data.dataset", "synthetic", "init"},
                                          {"data.train_samples", all, "init"},
                                          {"model.sizes", sizes, "init"},
                                          {"pipeline.stages", "2", "init"},
                                          {"pipeline.microbatches", PP_INIT_MICROBATCHES, "init"},
                                          {"pipeline.schedule", PP_INIT_SCHEDULE, "init"},
                                          {"train.optimizer", PP_INIT_OPTIMIZER, "init"},
                                          {"train.batch_size", rows, "init"}};
    int n = sizeof(settings) / sizeof(settings[0]);
    double gain = 1;
    PP_TRY(pp_config_load(NULL, settings, n, names, &cfg));
    PP_TRY(pp_run_model(cfg, &model));
    PP_TRY(pp_stages_gain(cfg, model, samples, &gain));
    *out = gain >= PP_STAGES_WORTH ? 2 : 1;
    return 0;
}
