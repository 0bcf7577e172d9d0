/* SPDX-License-Identifier: Apache-2.0 */
/* A machine plan: what ppcli runs and what others run, in one order; and why there is none. */
#include "machine.h"
#include "search.h"
#include "estimate.h"
#include "machine_plan.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

struct pp_estimate_spec pp_machine_plan_estimates(const struct pp_machine_plan *p)
{
    return (struct pp_estimate_spec){.model = p->model,
                                     .cfg = p->cfg,
                                     .cluster = &p->cluster,
                                     .ranks = p->ranks,
                                     .batch = p->batch,
                                     .fp8 = p->fp8};
}

/* Do other systems train such a model on such a machine? They do with bf16 on devices. */
static bool others_train(const struct pp_machine_plan *p)
{
    return p->cfg->run.precision == PP_PRECISION_BF16 && pp_cluster_has_devices(&p->cluster) &&
           pp_estimate_takes(p->cfg);
}

/* Does the model have a value that is too large for ppcli's kernels? */
static bool has_large_value(const struct pp_model *m)
{
    int i = 0;
    while (i < m->n_values && pp_shape_floats(&m->values[i]) <= INT_MAX)
        i++;
    return i < m->n_values;
}

int pp_machine_plan_load(struct pp_machine_plan *p)
{
    if (others_train(p) && (!p->asked.only || strcmp(p->asked.only, "ppcli") != 0))
        pp_config_plan_only(p->cfg);
    PP_TRY(pp_run_model(p->cfg, &p->model));
    p->parameters = estimate_floats(p->cfg, p->model);
    int train_n = p->cfg->train.batch_size, test_n = train_n;
    int rc = pp_run_samples(p->cfg, PP_RUN_EXPLAIN, PP_SPLIT_TRAIN, &train_n);
    if (rc == 0)
        rc = pp_run_samples(p->cfg, PP_RUN_EXPLAIN, PP_SPLIT_TEST, &test_n);
    p->batch = PP_MIN(train_n, p->cfg->train.batch_size);
    size_t memory = p->space.memory;
    p->space = pp_space_of(p->cfg, p->model, train_n, test_n);
    p->space.memory = memory;
    p->space.timed = p->space.recompute = p->space.cuts = p->space.endless = true;
    return rc == PP_ENOINPUT ? 0 : rc; /* data that are there, and not here */
}

const struct pp_row *pp_machine_plan_first(const struct pp_machine_plan *p, const char *system)
{
    for (int i = 0; i < p->found.n; i++) {
        const struct pp_row *r = &p->found.items[i];
        if (strcmp(system, "ppcli") == 0 ? r->own : pp_parallel_runs_on(&r->d, system))
            return r;
    }
    return NULL;
}

/* The rank that holds most, by what holds it. */
static int set_memory(const struct pp_machine_plan *p, struct pp_row *r)
{
    struct pp_space spec = pp_machine_plan_spec(p, r, r->d.microbatches);
    struct pp_exec_bytes bytes;
    PP_TRY(best_bytes(&spec, p->costs, r, &bytes));
    double parts[3] = {(double)(bytes.parameters + bytes.packed),
                       (double)(bytes.gradients + bytes.optimizer), 0};
    r->e.bytes = (double)r->peak_bytes;
    r->e.weights = parts[0];
    r->e.optimizer = parts[1];
    r->e.activations = fmax(0, r->e.bytes - parts[0] - parts[1]); /* messages and scratch too */
    return 0;
}

int machine_describe(const struct pp_machine_plan *p, struct pp_row *r)
{
    const struct pp_bubble *b = &r->time.bubble;
    double flops = pp_model_flops(p->model) * p->batch; /* nothing computed again */
    r->d.redo = memchr(r->d.recompute, true, sizeof(r->d.recompute)) ? PP_REDO_FULL : PP_REDO_NONE;
    r->e.step = r->time.step;
    r->e.tokens = (double)p->batch * p->model->inputs / r->time.step / p->ranks;
    r->e.mfu = flops / (r->time.step * p->ranks * p->cluster.peak[p->cfg->run.precision]);
    r->e.schedule = b->schedule;
    r->e.cut = b->imbalance;
    r->e.transfer = b->waiting;
    return set_memory(p, r);
}

static int fail_unfit(struct pp_machine_plan *p)
{
    struct pp_row *s = &p->found.smallest;
    size_t largest = 0;
    for (int i = 0; i < p->model->n_layers; i++)
        if (p->model->layers[i].n_floats > largest)
            largest = p->model->layers[i].n_floats;
    largest *= sizeof(float) * (size_t)(2 + pp_optimizer_moments(p->cfg->train.optimizer));
    if (s->d.stages == 0 && p->found.too_large > 0)
        return pp_fail(PP_ECONFIG,
                       "none of %ld divisions fits into %.4g GB a rank of %s: use more "
                       "ranks, a smaller batch, or --recompute full",
                       p->found.tried, (double)p->space.memory / 1e9, p->cluster.name);
    if (p->found.too_large == 0 && p->found.why[0])
        return pp_fail(PP_ECONFIG, "%d ranks: no shape can run: %s", p->ranks, p->found.why);
    if (p->found.too_large == 0)
        return pp_fail(PP_ECONFIG,
                       "%d ranks: no shape can run: stages divide the ranks, are at most "
                       "the %d layers, and each of at most %d replicas has a sample of the %d; "
                       "what was asked for holds too",
                       p->ranks, p->model->n_layers, PP_REPLICAS_MAX, p->batch);
    struct pp_space spec = pp_machine_plan_spec(p, s, s->d.microbatches);
    PP_TRY(pp_best_try(&spec, p->costs, s)); /* whole: its beginning may hold less */
    return pp_fail(
        PP_ECONFIG,
        "nothing fits into %.4g GB a rank of %s: the smallest found is %s, %d stages x %d "
        "replicas, with %.4g GB (try --memory %zuk): use more ranks or a smaller batch (the "
        "largest layer alone has %.4g GB with its gradients and state; ppcli does not cut within "
        "layers)",
        (double)p->space.memory / 1e9, p->cluster.name, pp_division_schedule(&s->d), s->d.stages,
        s->d.replicas, (double)s->peak_bytes / 1e9, s->peak_bytes / 1000 + 1,
        (double)largest / 1e9);
}

/* Checks that the machine file has the speed of what is to be priced. */
static int check_peaks(const struct pp_machine_plan *p)
{
    if (p->fp8 && p->cluster.fp8 <= 0)
        return pp_fail(PP_ECONFIG, "%s has no device.fp8: give it, or leave out --fp8",
                       p->cluster.name);
    if (p->cluster.peak[p->cfg->run.precision] <= 0)
        return pp_fail(PP_ECONFIG, "%s has no device.%s: give it, or set run.precision = f32",
                       p->cluster.name, pp_precision_name(p->cfg->run.precision));
    return 0;
}

static int find(struct pp_machine_plan *p)
{
    const struct pp_asked *a = &p->asked;
    bool others = others_train(p) && (!a->only || strcmp(a->only, "ppcli") != 0);
    bool divided = a->tensor.n > 0 && !asked_has(&a->tensor, 1);
    divided = divided || (a->context.n > 0 && !asked_has(&a->context, 1)) || a->layout;
    bool own = !p->fp8 && p->cfg->model.experts == 0 && !divided && !has_large_value(p->model) &&
               (!a->only || !others || strcmp(a->only, "ppcli") == 0);
    if (p->cfg->pipeline.slower.n > 0)
        return pp_config_problem(p->cfg, "pipeline.slower",
                                 "pipeline.slower: the ranks of a machine file are equally fast; "
                                 "leave it out");
    PP_TRY(check_peaks(p));
    if (!own && !others)
        return pp_fail(PP_ECONFIG,
                       "--tensor, --context, --layout, --fp8 and model.experts are for gpt "
                       "and llama with run.precision = bf16 on devices, whose machine file has "
                       "device.tf32; these ppcli plans for others");
    PP_TRY(own ? machine_own(p) : 0);
    PP_TRY(others ? machine_others(p) : 0);
    machine_rank(p);
    return p->found.n > 0 ? 0 : fail_unfit(p);
}

static double find_shortest(const struct pp_machine_plan *p)
{
    double step = INFINITY;
    for (const struct pp_row *r = p->found.items; r < p->found.items + p->found.n; r++)
        step = fmin(step, r->e.step);
    return step;
}

/* Are half of the ranks faster, and half of those? Not looked at where the layers alone would take
 * half of them as long. */
static int find_fewer(struct pp_machine_plan *p)
{
    double work = 0, step = find_shortest(p), least = 0;
    int rc = 0, ranks = p->ranks;
    PP_TAKE(double, by_layer, p->model->n_layers);
    if (p->costs)
        pp_costs_by_layer(p->costs, p->batch, by_layer);
    for (int i = 0; i < p->model->n_layers; i++)
        work += by_layer[i];
    while (p->costs && ranks % 2 == 0 && 2 * work < ranks * step && rc == 0 && least < step) {
        struct pp_machine_plan half = *p;
        half.found.items = NULL;
        half.costs = NULL;
        half.found.n = half.found.room = 0;
        half.ranks = ranks /= 2;
        rc = find(&half);
        least = rc == 0 ? find_shortest(&half) : INFINITY;
        if (least < step) {
            p->fewer = ranks;
            p->fewer_step = step = least;
            least = 0;
        }
        pp_rows_fini(&half.found);
        pp_costs_destroy(&half.costs);
    }
    if (rc == PP_ECONFIG)
        pp_error_clear();
    return rc == PP_ECONFIG ? 0 : rc;
}

int pp_machine_plan_find(struct pp_machine_plan *p)
{
    int rc = find(p);
    if (rc == 0)
        rc = find_fewer(p);
    pp_log_progress(NULL);
    return rc;
}

void pp_machine_plan_fini(struct pp_machine_plan *p)
{
    pp_rows_fini(&p->found);
    pp_costs_destroy(&p->costs);
    pp_cluster_fini(&p->cluster);
    pp_model_destroy(&p->model);
    pp_config_destroy(&p->cfg);
}

int pp_machine_plan_price(struct pp_machine_plan *p, const char *words)
{
    struct pp_estimate_spec spec = pp_machine_plan_estimates(p);
    if (!pp_estimate_takes(p->cfg))
        return pp_fail(PP_ECONFIG, "--compare prices gpt and llama, not model.type = %s",
                       p->cfg->model.type);
    PP_TAKE(struct pp_row, row, 1);
    PP_TRY(check_peaks(p));
    row->group = 1;
    PP_TRY(pp_estimate_words(&spec, words, &row->d, &row->e));
    row->over = row->e.bytes > (double)p->space.memory;
    p->found.keeps_large = true;
    p->found.too_large = row->over;
    return rows_add(&p->found, row, NULL);
}
