/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds what. All plans a run can meet are built and proved here, before anything moves: the
 * micro-batch counts of full and last batches of every replica are known from arithmetic alone.
 */
#include "ppcli/layout.h"

#include <limits.h>
#include <string.h>

#include "ppcli/dataset.h"
#include "ppcli/exchange.h"

size_t pp_layout_floats(const struct pp_layout *layout, int s)
{
    size_t n = 0;
    for (int i = layout->first[s]; i <= layout->last[s]; i++)
        n += layout->model->layers[i].n_floats;
    return n;
}

/* Large enough that a transfer is little beside it, small enough to be no matter of memory. */
#define TIED_FLOATS ((size_t)1 << 20)

size_t pp_layout_tied_piece(const struct pp_layout *layout, int tie, int piece, size_t *first)
{
    size_t all = pp_param_floats(&layout->model->params[layout->tied[tie]]);
    bool whole = layout->ties[tie].more == 0;
    *first = (size_t)piece * TIED_FLOATS;
    return whole || all - *first < TIED_FLOATS ? all - *first : TIED_FLOATS;
}

size_t pp_layout_message_bytes(const struct pp_layout *layout, int ch, int rows)
{
    size_t first;
    int tied = ch - 2 * (layout->n_virtual - 1);
    if (tied >= 0)
        return pp_layout_tied_piece(layout, tied / 2, 0, &first) * sizeof(float);
    int width = layout->model->layers[layout->last[ch / 2]].out;
    return (size_t)rows * (size_t)width * layout->value_bytes;
}

bool pp_layout_shares_sums(const struct pp_layout *layout)
{
    const struct pp_param *p = layout->model->params, *end = p + layout->model->n_params;
    while (p < end && p->kind != PP_PARAM_BUFFER)
        p++;
    return p < end || layout->cfg->train.clip_norm > 0;
}

bool pp_layout_proves_finite(const struct pp_layout *layout)
{
    const struct pp_config *cfg = layout->cfg;
    return pp_model_bounds(layout->model) && cfg->train.clip_norm == 0 &&
           !cfg->train.read_gradients;
}

size_t pp_layout_slot_bytes(const struct pp_layout *layout, int ch)
{
    size_t bytes = pp_layout_message_bytes(layout, ch, layout->max_rows);
    return (bytes + PP_ALIGN - 1) / PP_ALIGN * PP_ALIGN;
}

static void raise_to(int *v, int floor)
{
    if (*v < floor)
        *v = floor;
}

/*
 * The plan of a last batch that is too small for the schedule's own rule (DualPipeV wants 2P
 * micro-batches): another schedule with the same placement. Every schedule gives the same bits.
 */
static int build_for_small_batch(const struct pp_layout *l, const struct pp_geometry *g,
                                 struct pp_plan **out)
{
    struct pp_error why = *pp_error_get();
    const char *name = pp_schedule_stand_in(l->placement, g->chunks);
    return pp_plan_build(name, g, out) == 0 ? 0 : pp_error_adopt(&why);
}

/* From the schedule's rule, or from a table, which fits full batches only. */
static int build_for_training(struct pp_layout *l, const struct pp_geometry *g, bool full,
                              struct pp_plan **out)
{
    if (!pp_layout_is_table(l->cfg))
        return pp_plan_build(l->cfg->pipeline.schedule, g, out);
    if (!full || l->table == NULL)
        return pp_fail(PP_ECONFIG,
                       "a table is for full batches, and the last one has %d "
                       "micro-batches: let train.batch_size divide the samples",
                       g->microbatches);
    if (l->table->geometry.microbatches != g->microbatches) {
        return pp_fail(
            PP_ECONFIG,
            "%s is for %d micro-batches, this run has %d: set pipeline.microbatches = %d",
            l->cfg->pipeline.schedule, l->table->geometry.microbatches, g->microbatches,
            l->table->geometry.microbatches);
    }
    if (g->coalesce > 1)
        return pp_plan_coalesce(l->table, g->coalesce, out);
    *out = l->table;
    l->table = NULL;
    return 0;
}

static struct pp_geometry geometry_of(const struct pp_layout *l, enum pp_plan_kind kind, int m)
{
    const struct pp_config *cfg = l->cfg;
    return (struct pp_geometry){.stages = l->stages,
                                .chunks = l->chunks,
                                .microbatches = m,
                                .coalesce = kind == PP_PLAN_TRAIN ? l->coalesce : 0,
#define PP_KEY(section, TYPE, k, ...) .k = cfg->pipeline.k,
#include "ppcli/keys_schedule.def"
#undef PP_KEY
                                .ticks = cfg->pipeline.costs.n > 0 ? cfg->pipeline.costs.at : NULL,
                                .again = l->again};
}

/* Is the schedule legal for as many micro-batches as the config says? */
static bool is_legal(const struct pp_layout *l)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    int m = l->cfg->pipeline.microbatches;
    struct pp_geometry g = geometry_of(l, PP_PLAN_TRAIN, m);
    if (pp_layout_is_table(l->cfg))
        return l->table && l->table->geometry.microbatches == m;
    bool legal = pp_plan_build(l->cfg->pipeline.schedule, &g, &plan) == 0;
    pp_error_clear();
    return legal;
}

/* Build the plan for m micro-batches unless it is there, and take its slot counts into account.
 * full: of a whole batch, which must obey the schedule's rule. */
static int need_plan(struct pp_layout *l, enum pp_plan_kind kind, int m, bool full)
{
    if (m == 0)
        return 0; /* a replica with no share of the last batch runs no plan */
    for (int i = 0; i < l->n_plans; i++)
        if (l->plans[i].kind == kind && l->plans[i].m == m)
            return 0;
    struct pp_geometry g = geometry_of(l, kind, m);
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    if (kind == PP_PLAN_EVAL) {
        PP_TRY(pp_plan_build_eval(&g, l->placement, &plan));
    } else {
        int rc = build_for_training(l, &g, full, &plan);
        if (rc == PP_ECONFIG && !full) {
            g.group = 0;
            rc = build_for_small_batch(l, &g, &plan);
        }
        PP_TRY(rc);
    }
    pp_assert(plan != NULL);
    bool train = kind == PP_PLAN_TRAIN,
         again = train && memchr(l->again, true, (size_t)l->n_virtual);
    if (again)
        PP_TRY(pp_plan_recompute(plan, l->again));
    if (train && l->n_ties > 0)
        PP_TRY(pp_plan_tie(plan, l->ties, l->n_ties));
    PP_GROW(l->plans, l->n_plans + 1);
    l->plans[l->n_plans++] = (struct pp_layout_plan){.kind = kind, .m = m, .plan = plan};
    for (int s = 0; s < l->n_virtual; s++) {
        raise_to(&l->state_slots[s], plan->state_slots[s]);
        raise_to(&l->grad_slots[s], plan->grad_slots[s]);
    }
    for (int c = 0; c < plan->n_channels; c++)
        raise_to(&l->channel_slots[c], plan->channels[c].slots);
    plan = NULL;
    return 0;
}

/* The plans of one split: every replica's first and last batch. The first is a whole one, unless
 * there are fewer samples, which may have another order if the schedule has one for whole batches. */
static int split_plans(struct pp_layout *l, enum pp_plan_kind kind, int n)
{
    for (int d = 0; d < l->replicas; d++) {
        struct pp_loader ld;
        PP_TRY(pp_loader_shape(n, l->cfg->train.batch_size, l->replicas, d,
                               l->cfg->pipeline.microbatches, &ld));
        raise_to(&l->max_rows, pp_loader_max_rows(&ld));
        bool full = pp_loader_batch_rows(&ld, 0) == ld.batch_size;
        full = full || kind == PP_PLAN_EVAL || !is_legal(l);
        PP_TRY(need_plan(l, kind, pp_loader_microbatches(&ld, 0), full));
        PP_TRY(need_plan(l, kind, pp_loader_microbatches(&ld, pp_loader_steps(&ld) - 1), false));
    }
    return 0;
}

/* A batch norm wants more than one value for each channel in every micro-batch of a training. */
static int check_rows(struct pp_config *cfg, const struct pp_layout *l)
{
    const struct pp_node *n = l->model->nodes, *end = n + l->model->n_nodes;
    int batch = cfg->train.batch_size, all = l->train_n;
    while (n < end && n->norm.least_rows < 2)
        n++;
    for (int i = 0; i < 2 * l->replicas && n < end; i++) {
        struct pp_loader ld;
        PP_TRY(pp_loader_shape(all, batch, l->replicas, i / 2, cfg->pipeline.microbatches, &ld));
        int step = i % 2 ? pp_loader_steps(&ld) - 1 : 0;
        int parts = pp_loader_microbatches(&ld, step), rows = pp_loader_batch_rows(&ld, step);
        if (parts == 0 || pp_loader_share_rows(&ld, step) / parts >= n->norm.least_rows)
            continue;
        char instead[96] = "a larger train.batch_size";
        if (rows < batch && rows < all)
            snprintf(instead, sizeof(instead), "data.train_samples = %d", all - rows);
        else if (rows / l->replicas >= n->norm.least_rows)
            snprintf(instead, sizeof(instead), "at most pipeline.microbatches = %d",
                     rows / l->replicas / n->norm.least_rows);
        else if (rows < batch)
            snprintf(instead, sizeof(instead), "more training samples");
        return pp_config_problem(
            cfg, "pipeline.microbatches",
            "layer %s: batch norm has one value for each channel, and no variance, in a "
            "micro-batch of 1 sample, as %s of %d has; use %s",
            l->model->layers[n->layer].name, rows < batch ? "the last batch" : "a batch", rows,
            instead);
    }
    return 0;
}

/* In every plan the last stage has its input gradients in the order of its weight gradients. */
static bool last_ascends(const struct pp_layout *l)
{
    for (int i = 0; i < l->n_plans; i++) {
        const struct pp_plan *plan = l->plans[i].plan;
        const struct pp_rank_plan *list = &plan->ranks[l->rank_of[l->n_virtual - 1]];
        for (int k = 0, next = 0; k < list->n_actions; k++) {
            const struct pp_action *a = &list->actions[k];
            bool counts = a->stage == l->n_virtual - 1 && (a->op == PP_OP_I || a->op == PP_OP_B);
            if (counts && a->mb != next++)
                return false;
        }
    }
    return true;
}

static int find_logits_rows(struct pp_layout *l, struct pp_config *cfg)
{
    int rows = pp_layout_logits_rows(cfg, l->model, l->max_rows);
    l->logits_rows = last_ascends(l) ? rows : 0;
    const char *why = rows > 0 ? "the last stage's input gradients do not ascend with this schedule"
                               : "the model does not end with a linear layer";
    if (cfg->model.logits_rows == 0 || l->logits_rows > 0)
        return 0;
    return pp_config_problem(cfg, "model.logits_rows", "model.logits_rows: %s; use 0", why);
}

/* No machine holds more, and up to here no sum of sizes overflows. */
#define BYTES_MAX 0x1p60

static int check_bytes(struct pp_config *cfg, const struct pp_layout *l)
{
    double floats = 0; /* as if all were */
    for (int s = 0; s < l->n_virtual; s++) {
        double slots = (double)l->state_slots[s] + l->grad_slots[s];
        for (int i = l->first[s]; i <= l->last[s]; i++) {
            const struct pp_layer *layer = &l->model->layers[i];
            double width = (double)layer->in + (double)pp_layer_values(l->model, i);
            floats += 4 * (double)layer->n_floats + slots * l->max_rows * width;
        }
    }
    for (int c = 0; c < l->n_channels; c++)
        floats += 2.0 * l->channel_slots[c] * (double)pp_layout_message_bytes(l, c, l->max_rows) /
                  (double)l->value_bytes;
    if (floats * sizeof(float) <= BYTES_MAX)
        return 0;
    const char *key = strcmp(cfg->model.type, "mlp") == 0 ? "model.sizes" : "model.type";
    return pp_config_problem(cfg, key,
                             "%s: %zu parameters and micro-batches of %d samples need %.2g "
                             "bytes in all, more than any machine has",
                             key, l->model->n_floats, l->max_rows, floats * sizeof(float));
}

/* The placement whose virtual stages lie as the table has them. */
static int find_placement(const struct pp_plan *table, enum pp_placement *out)
{
    static const enum pp_placement known[] = {PP_PLACE_LOOP, PP_PLACE_V};
    for (int i = 0; i < 2; i++) {
        int s = 0;
        while (s < table->n_virtual &&
               table->rank_of[s] == pp_place(known[i], table->geometry.stages, s))
            s++;
        if (s == table->n_virtual) {
            *out = known[i];
            return 0;
        }
    }
    return pp_fail(PP_ECONFIG,
                   "its stages lie neither in a loop (stage s on rank s mod %d) nor in "
                   "a V: it can be simulated, but not trained with",
                   table->geometry.stages);
}

/* schedule = file:TABLE or exec:PROGRAM: the table knows chunks and placement, and must fit the run. */
static int open_table(struct pp_layout *l)
{
    const struct pp_config *cfg = l->cfg;
    const char *path = cfg->pipeline.schedule + strlen(PP_SCHEDULE_FILE);
    PP_TRY(pp_layout_read_table(cfg, NULL, &l->table));
    const struct pp_geometry *g = &l->table->geometry;
    if (g->stages != cfg->pipeline.stages ||
        (cfg->pipeline.chunks > 0 && g->chunks != cfg->pipeline.chunks)) {
        return pp_fail(PP_ECONFIG,
                       "%s is for %d stages of %d chunk%s: set pipeline.stages = %d and "
                       "pipeline.chunks = %d",
                       path, g->stages, g->chunks, g->chunks == 1 ? "" : "s", g->stages, g->chunks);
    }
    l->chunks = g->chunks;
    return find_placement(l->table, &l->placement) < 0 ? pp_error_context("%s", path) : 0;
}

/* Chunks and placement, from the schedule or its table. */
static int find_shape(struct pp_layout *l)
{
    const struct pp_config *cfg = l->cfg;
    if (pp_layout_is_table(cfg))
        return open_table(l);
    const struct pp_schedule_ops *schedule = pp_schedule_find(cfg->pipeline.schedule);
    if (!schedule) /* the option table refuses unknown names */
        return pp_fail(PP_ECONFIG,
                       "auto needs measured times, which are not here; name a schedule");
    l->placement = schedule->placement;
    l->chunks =
        cfg->pipeline.chunks > 0 ? cfg->pipeline.chunks : pp_schedule_default_chunks(schedule);
    return 0;
}

const char *pp_layout_schedule(const struct pp_layout *layout)
{
    const struct pp_schedule_ops *schedule = layout->plans[0].plan->schedule;
    return schedule ? pp_schedule_name(schedule) : layout->cfg->pipeline.schedule;
}

static int stage_of_param(const struct pp_layout *l, int param)
{
    int s = 0, layer = l->last[0];
    while (param >= l->model->layers[layer].first_param + l->model->layers[layer].n_params)
        layer = l->last[++s];
    return s;
}

/* Which stages hold the two ends of the model's ties. */
static void place_ties(struct pp_layout *l)
{
    int n = 0;
    for (int i = 0; i < l->model->n_params; i++) {
        int owner = l->model->params[i].tied_to - 1;
        if (owner < 0)
            continue;
        struct pp_tie *t = &l->ties[n];
        l->tied[n++] = i;
        *t = (struct pp_tie){stage_of_param(l, owner), stage_of_param(l, i), 0};
        if (l->rank_of[t->owner] != l->rank_of[t->copy])
            t->more = (int)((pp_param_floats(&l->model->params[i]) - 1) / TIED_FLOATS);
    }
}

static int check_costs(struct pp_config *cfg, const struct pp_layout *l)
{
    int m = cfg->pipeline.costs.n, n = 3 * l->n_virtual;
    if (m == 0 || m == n || m == n + 1 || !pp_schedule_fits(cfg->pipeline.schedule))
        return 0;
    return pp_config_problem(cfg, "pipeline.costs",
                             "pipeline.costs: %d numbers; write F,I,W of %d chunks", m, n / 3);
}

/* What fails for the config's sake is a problem of that key. */
static int blame(struct pp_config *cfg, const char *key, int rc)
{
    if (rc == PP_ECONFIG)
        pp_config_problem(cfg, key, "%s", pp_error_get()->text);
    return rc;
}

static int lay_out(struct pp_layout *l, struct pp_config *cfg)
{
    const struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    l->value_bytes = pp_backend_value_bytes(&choice);
    l->logits = pp_node_elements(l->model, &l->model->nodes[l->model->n_nodes - 1], &choice);
    l->stages = cfg->pipeline.stages;
    PP_TRY(blame(cfg, "pipeline.schedule", find_shape(l)));
    l->replicas = cfg->pipeline.replicas;
    l->coalesce = pp_layout_coalesce(cfg, l->model, cfg->pipeline.microbatches);
    if (cfg->train.coalesce > l->coalesce) {
        pp_config_problem(cfg, "train.coalesce",
                          "sums over %d micro-batches at once may have other bits here than one "
                          "after the other, which train.exact = true keeps; use train.exact = off, "
                          "or train.coalesce = 0",
                          cfg->train.coalesce);
        return PP_ECONFIG;
    }
    l->ranks = l->stages * l->replicas;
    l->n_virtual = l->stages * l->chunks;
    for (int i = 0; i < l->model->n_params; i++)
        l->n_ties += l->model->params[i].tied_to > 0;
    l->n_channels = 2 * (l->n_virtual - 1) + 2 * l->n_ties;
    if (l->n_virtual > l->model->n_layers)
        return blame(cfg, "pipeline.stages", pp_partition(l->model, cfg, l->n_virtual, NULL, NULL));
    size_t n = (size_t)l->n_virtual;
    l->first = pp_alloc(5 * n + (size_t)l->n_channels + (size_t)l->n_ties, sizeof(*l->first));
    l->ties = pp_alloc((size_t)l->n_ties, sizeof(*l->ties));
    l->again = pp_alloc(n, sizeof(*l->again));
    if (!l->first || !l->ties || !l->again)
        return PP_ERESOURCE;
    l->last = l->first + n;
    l->rank_of = l->last + n;
    l->state_slots = l->rank_of + n;
    l->grad_slots = l->state_slots + n;
    l->channel_slots = l->grad_slots + n;
    l->tied = l->channel_slots + l->n_channels;
    int64_t shards = cfg->train.zero ? 3 * (int64_t)l->replicas * (l->replicas - 1) : 0;
    if ((int64_t)l->replicas * l->n_channels + shards * l->model->n_layers > INT_MAX) {
        return pp_config_problem(cfg, "pipeline.replicas",
                                 "%d replicas of %d stages need more than %d channels; use fewer%s",
                                 l->replicas, l->stages, INT_MAX,
                                 shards > 0 ? ", or train.zero = 0" : "");
    }
    PP_TRY(blame(cfg, cfg->pipeline.split_at[0] ? "pipeline.split_at" : "pipeline.assignment",
                 pp_partition(l->model, cfg, l->n_virtual, l->first, l->last)));
    for (int s = 0; s < l->n_virtual; s++)
        l->rank_of[s] = pp_place(l->placement, l->stages, s);
    place_ties(l);
    PP_TRY(check_costs(cfg, l));
    PP_TRY(blame(cfg, "pipeline.recompute",
                 pp_recompute_stages(l->model, cfg->pipeline.recompute, l->n_virtual, l->first,
                                     l->last, l->again)));
    for (int s = 0; l->table && s < l->n_virtual; s++)
        l->again[s] = l->again[s] || pp_plan_recomputes(l->table, s);
    PP_TRY(blame(cfg, "pipeline.schedule", split_plans(l, PP_PLAN_TRAIN, l->train_n)));
    PP_TRY(check_rows(cfg, l));
    if (l->test_n > 0)
        PP_TRY(blame(cfg, "pipeline.schedule", split_plans(l, PP_PLAN_EVAL, l->test_n)));
    PP_TRY(find_logits_rows(l, cfg));
    return check_bytes(cfg, l);
}

int pp_layout_create(struct pp_config *cfg, const struct pp_model *model, int train_n, int test_n,
                     struct pp_layout **out)
{
    struct pp_layout *l;
    PP_ALLOC(l, 1);
    *l = (struct pp_layout){.cfg = cfg, .model = model, .train_n = train_n, .test_n = test_n};
    PP_TRY_UNDO(lay_out(l, cfg), pp_layout_destroy(&l));
    *out = l;
    return 0;
}

void pp_layout_destroy(struct pp_layout **layout)
{
    struct pp_layout *l = *layout;
    if (!l)
        return;
    for (int i = 0; i < l->n_plans; i++)
        pp_plan_destroy(&l->plans[i].plan);
    pp_free(l->plans);
    pp_plan_destroy(&l->table);
    pp_free(l->first);
    pp_free(l->ties);
    pp_free(l->again);
    pp_free(l);
    *layout = NULL;
}
