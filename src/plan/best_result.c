/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the fastest ways to run a config on this machine, as ppcli tune asks for it. */
#include "ppcli/plan/search.h"

#include <string.h>

#include "search.h"

#define MEASURE_SECONDS 4.0
#define MIB (1024.0 * 1024.0)

int pp_best_result_first(const struct pp_best_result *s)
{
    int first = 0;
    for (int i = 1; i < s->n_checked; i++)
        if (s->checked[i].measured.step < s->checked[first].measured.step)
            first = i;
    if (s->one.measured.step > 0 && s->one.measured.step < s->checked[first].measured.step)
        for (int i = s->n_checked; i < s->best.n; i++)
            if (pp_best_is(&s->best.items[i], 1, 1, s->best.one.d.threads))
                return i;
    return first;
}

const struct pp_checked *pp_best_result_ran(const struct pp_best_result *s, int i)
{
    return i < s->n_checked || s->n_checked == 0 ? &s->checked[i] : &s->one;
}

/* Returns whether row i is the first, and so the fastest, with its number of stages and
 * replicas. */
static bool leads_shape(const struct pp_rows *b, int i)
{
    const struct pp_row *c = &b->items[i];
    for (int k = 0; k < i; k++)
        if (b->items[k].d.stages == c->d.stages && b->items[k].d.replicas == c->d.replicas)
            return false;
    return true;
}

bool pp_best_result_keeps(const struct pp_best_result *s)
{
    double own = s->as_is.measured.step;
    return own > 0 && own <= pp_best_result_ran(s, pp_best_result_first(s))->measured.step;
}

int pp_best_result_explain(struct pp_best_result *s)
{
    struct pp_rows *b = &s->best;
    for (int i = 0; i < b->n; i++) {
        if (i >= PP_BEST_SHOWN && !leads_shape(b, i))
            continue;
        char *advice = i == pp_best_result_first(s) ? s->advice : NULL;
        PP_TRY(pp_best_explain(&s->spec, s->costs, &b->items[i], advice));
    }
    if (b->as_is.time.step > 0)
        PP_TRY(pp_best_explain(&s->spec, s->costs, &b->as_is, NULL));
    return b->one.time.step > 0 ? pp_best_explain(&s->spec, s->costs, &b->one, NULL) : 0;
}

/* Lists the shapes into which the cores may be divided. Stages and replicas that the user gave are
 * fixed; both are fixed for processes, for devices and for ranks of different speed. A number that
 * is not fixed takes every value that fits. */
static int list_shapes(const struct pp_best_asked *asked, struct pp_best_result *s)
{
    const struct pp_config *cfg = s->spec.cfg;
    bool device = pp_backend_choice_of(cfg).ops->own_memory;
    bool same = s->spec.links || device || cfg->pipeline.slower.n > 0;
    bool p = same || asked->stages, d = same || asked->replicas;
    s->spec.one_threads = pp_best_open_threads(cfg) && !s->spec.links ? pp_best_cores(&s->spec) : 0;
    for (int i = 0; i < (p || d ? asked->n : 1); i++) {
        const struct pp_config *c = asked->configs[i];
        PP_TRY(pp_best_shapes(&s->spec, p ? c->pipeline.stages : 0, d ? c->pipeline.replicas : 0,
                              &s->shapes, &s->spec.n_shapes));
    }
    s->spec.shapes = s->shapes;
    s->ranks = cfg->pipeline.stages * cfg->pipeline.replicas; /* of the config as it is */
    for (int i = 0; i < s->spec.n_shapes; i++) {
        int ranks = s->shapes[i].stages * s->shapes[i].replicas;
        s->ranks = ranks > s->ranks ? ranks : s->ranks;
    }
    return 0;
}

int pp_best_result_find(const struct pp_best_asked *asked, struct pp_best_result *s)
{
    struct pp_config *cfg = asked->configs[0];
    int train_n, test_n;
    PP_TRY(pp_run_samples(cfg, asked->need, PP_SPLIT_TRAIN, &train_n));
    PP_TRY(pp_run_samples(cfg, asked->need, PP_SPLIT_TEST, &test_n));
    PP_TRY(pp_run_model(cfg, &s->model));
    const struct pp_space said = s->spec;
    s->spec = pp_space_of(cfg, s->model, train_n, test_n);
    s->spec.base.across = false; /* what the search compares with */
    s->spec.own = s->spec.base;
    s->spec.own.stages = said.own.stages;
    best_divide(&s->spec.own, said.own.replicas, said.own.threads);
    s->spec.cores = said.cores;
    s->spec.cuts = s->spec.recompute = s->spec.coalesce = true;
    s->spec.memory = said.memory > 0 ? said.memory : (size_t)cfg->run.memory;
    s->spec.all_m = !pp_model_mixes_samples(s->model); /* or it would be another training */
    s->batch = cfg->train.batch_size;
    s->batch = train_n < s->batch ? train_n : s->batch;
    s->spec.links = s->links.host ? &s->links : NULL;
    s->spec.places = s->links.far.unsteady > 0;
    PP_TRY(list_shapes(asked, s));
    return pp_best_find(&s->spec, MEASURE_SECONDS, &s->costs, &s->best);
}

void pp_best_result_fini(struct pp_best_result *r)
{
    pp_rows_fini(&r->best);
    pp_costs_destroy(&r->costs);
    pp_free(r->links.host);
    pp_free(r->shapes);
    pp_model_destroy(&r->model);
}

int pp_best_result_verdict(const struct pp_best_result *s, const char *memory)
{
    const struct pp_rows *b = &s->best;
    const struct pp_config *cfg = s->spec.cfg;
    if (b->n > 0)
        return 0;
    if (b->too_large > 0) {
        char limit[48];
        double moments = pp_optimizer_moments(cfg->train.optimizer);
        double fixed = (double)s->model->n_floats * sizeof(float) / b->smallest.d.stages *
                       (2 + moments / (cfg->train.zero > 0 ? cfg->pipeline.replicas : 1));
        snprintf(limit, sizeof(limit), "run.memory = %zu", s->spec.memory);
        return pp_fail(PP_ECONFIG,
                       "no shape can run within %s%s: the smallest found holds %.2f MiB in a "
                       "rank (%s, %d stages, %d micro-batches): --memory %zuKi fits it; of "
                       "parameters, gradients and optimizer state alone each rank has %.2f MiB on "
                       "average; more stages, a smaller batch or narrower layers need less",
                       memory ? "--memory " : "", memory ? memory : limit,
                       (double)b->smallest.peak_bytes / MIB, pp_division_schedule(&b->smallest.d),
                       b->smallest.d.stages, b->smallest.d.microbatches,
                       b->smallest.peak_bytes / 1024 + 1, fixed / MIB);
    }
    if (b->why[0])
        return pp_fail(PP_ECONFIG, "no shape can run: %s", b->why);
    return pp_fail(PP_ECONFIG,
                   "no shape can run: stages are at most the %d layers, and each of %d replicas "
                   "has a sample of the batch of %d for every micro-batch",
                   s->model->n_layers, cfg->pipeline.replicas, s->batch);
}
