/* SPDX-License-Identifier: Apache-2.0 */
/* A machine file's figures of this machine: its ceilings, and how near to them the ops of a model
 * come. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "ppcli/plan/machine_plan.h"

#define MEASURE_SECONDS 4.0

/* Returns the share of the peak that the ops of one kind reach; `none` if the model has no such
 * op. */
static double share_reached(const struct ops_run *o, bool product, uint64_t kernel, double peak,
                            double none)
{
    const uint64_t special = PP_USES(attention_forward) | PP_USES(conv_forward);
    double work = 0, seconds = 0;
    for (int i = 0; i < o->run.model->n_nodes; i++) {
        const struct op_cost *c = &o->costs[i];
        if (c->product != product || (o->run.model->nodes[i].op->kernels & special) != kernel)
            continue;
        for (int k = 0; k < OP_PHASES; k++) {
            work += c->seconds[k] > 0 ? c->work[k] : 0;
            seconds += c->seconds[k];
        }
    }
    double share = seconds > 0 ? work / seconds / peak : none;
    return share > 1 ? 1 : share < .001 ? .001 : share;
}

/* Sets in *c what one rank has to itself: a core and its share of the memory, or a device. */
static int find_rank(const struct pp_config *cfg, const struct pp_bench *b, struct pp_cluster *c)
{
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    struct pp_machine machine;
    struct pp_device d;
    char why[PP_BENCH_WHY_MAX];
    int n = 0;
    pp_machine_describe(false, &machine);
    c->ranks = b->ceilings.cores;
    c->memory = (double)machine.memory_bytes / c->ranks;
    c->peak[PP_PRECISION_F32] = b->ceilings.gemm_core;
    c->bandwidth = b->ceilings.triad_all / c->ranks;
    if (b->device.name[0]) {
        PP_TRY(choice.ops->devices(&d, 1, &n, why, sizeof(why)));
        c->ranks = n;
        c->memory = (double)d.bytes;
        memcpy(c->peak, b->device.gemm, sizeof(c->peak));
        c->bandwidth = b->device.copy;
        c->launch = b->device.op; /* on a processor it is in the shares */
    }
    return c->peak[cfg->run.precision] > 0
               ? 0
               : pp_fail(PP_ERESOURCE, "the speed of products cannot be measured here");
}

static int measure_machine(const struct pp_config *cfg, double seconds, struct pp_cluster *out)
{
    struct pp_bench b = {.n = 0};
    struct pp_cluster c = {.n_layers = 0};
    PP_OWN(ops_run_fini) struct ops_run o = {.cfg = NULL};
    struct pp_handover link[2] = {{.bytes = 64}, {.bytes = (size_t)8 << 20}};
    PP_TRY(pp_bench_ceilings(cfg, true, &b));
    PP_TRY(find_rank(cfg, &b, &c));
    PP_TRY(pp_handover_threads(link, 2, false));
    c.within.latency = link[0].one_way;
    c.within.byte = link[1].one_way / (double)link[1].bytes;
    PP_TRY(ops_run_make(cfg, seconds, &o));
    double peak = c.peak[cfg->run.precision];
    c.product = share_reached(&o, true, 0, peak, 1);
    c.attention = share_reached(&o, true, PP_USES(attention_forward), peak, c.product);
    c.conv = share_reached(&o, true, PP_USES(conv_forward), peak, c.product);
    c.passes = share_reached(&o, false, 0, c.bandwidth, 1);
    *out = c;
    return 0;
}

/* ---- with the layers of a model */

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
        _Static_assert(sizeof(l->name) >= PP_LAYER_NAME_MAX, "a layer's name fits");
        snprintf(l->name, sizeof(l->name), "%s", m->layers[i % m->n_layers].name);
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
    fprintf(w.f,
            "; Measured on %s by ppcli estimate %s --measure: %s, a rank on each core or device\n",
            h.date, word, c->launch > 0 ? h.gpu : h.cpu);
    int rc = pp_cluster_write(c, w.f);
    if (file && rc < 0)
        pp_file_abandon(&w);
    return file && rc == 0 ? pp_file_commit(&w) : rc;
}

int pp_bench_machine(struct pp_machine_plan *p, const char *word, const char *path)
{
    double load = 0;
    (void)getloadavg(&load, 1);
    PP_TRY(pp_machine_plan_load(p));
    struct pp_space spec = pp_space_of(p->cfg, p->model, p->batch, 0);
    spec.all_m = true;
    PP_TRY(pp_best_measure(&spec, MEASURE_SECONDS, &p->costs));
    PP_TRY(measure_machine(p->cfg, MEASURE_SECONDS, &p->cluster));
    PP_TRY(add_layers(p->model, p->costs, &p->cluster));
    p->cluster.busy = load >= PP_BENCH_BUSY_LOAD ? load : 0;
    if (p->cluster.busy > 0)
        pp_log_warn(
            "other programs used this machine (load %.1f before the start): do not trust the "
            "times that were measured",
            load);
    return write_machine(word, p->cfg, &p->cluster, path);
}
