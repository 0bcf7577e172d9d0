/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli plan CONFIG --measure: a machine file of this machine, with the times of the config's layers. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/bench.h"
#include "ppcli/io.h"
#include "ppcli/log.h"

#define MEASURE_SECONDS 4.0

static int add_layers(const struct pp_model *m, const struct pp_costs *costs, struct pp_cluster *c)
{
    int n = costs->n_sizes * m->n_layers;
    c->layers = pp_alloc((size_t)n, sizeof(*c->layers));
    for (int i = 0; c->layers && i < n; i++) {
        const struct pp_layer_seconds *t = &costs->layers[i];
        struct pp_cluster_layer *l = &c->layers[i];
        *l = (struct pp_cluster_layer){.rows = costs->sizes[i / m->n_layers],
                                       .t = {t->f, t->i, t->w},
                                       .work = pp_layer_work(m, i % m->n_layers)};
        memcpy(l->name, m->layers[i % m->n_layers].name, sizeof(l->name));
    }
    c->n_layers = c->layers ? n : 0;
    return c->layers ? 0 : PP_ERESOURCE;
}

static int write_machine(const char *word, const struct pp_config *cfg, const struct pp_cluster *c,
                         const char *path)
{
    struct pp_bench_header h;
    struct pp_file_write w = {.f = stdout};
    bool file = path && strcmp(path, "-") != 0;
    pp_bench_describe(cfg, false, &h);
    PP_TRY(file ? pp_file_create(path, &w) : 0);
    fprintf(w.f, "; Measured on %s by ppcli plan %s --measure: %s, a rank on each core or device\n",
            h.date, word, c->launch > 0 ? h.gpu : h.cpu);
    int rc = pp_cluster_write(c, w.f);
    if (file && rc < 0)
        pp_file_abandon(&w);
    return file && rc == 0 ? pp_file_commit(&w) : rc;
}

int plan_measure(const char *word, const struct pp_cli_settings *settings, const char *path)
{
    PP_OWN(pp_machine_plan_fini) struct pp_machine_plan p = {.n = 0};
    if (!word)
        return pp_fail(
            PP_EUSAGE,
            "--measure needs a config. For example: ppcli plan mnist.ini --measure -o here.ini");
    double load = 0;
    int rc = plan_check_file("-o", path);
    rc = rc < 0 ? rc : pp_cli_load_config(word, settings, &p.cfg);
    (void)getloadavg(&load, 1);
    rc = rc < 0 ? rc : plan_load_model(&p);
    struct pp_best_spec spec = {.all_m = true, .cfg = p.cfg, .model = p.model, .train_n = p.batch};
    rc = rc < 0 ? rc : pp_best_measure(&spec, MEASURE_SECONDS, &p.costs);
    rc = rc < 0 ? rc : pp_bench_cluster(p.cfg, MEASURE_SECONDS, &p.cluster);
    rc = rc < 0 ? rc : add_layers(p.model, p.costs, &p.cluster);
    p.cluster.busy = load >= PP_BENCH_BUSY_LOAD ? load : 0;
    if (rc == 0 && p.cluster.busy > 0)
        pp_log_warn(
            "other programs used this machine (load %.1f before the start): do not trust the "
            "times that were measured",
            load);
    rc = rc < 0 ? rc : write_machine(word, p.cfg, &p.cluster, path);
    return pp_cli_config_verdict(p.cfg, rc);
}
