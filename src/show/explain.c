/* SPDX-License-Identifier: Apache-2.0 */
/* What `ppcli explain` finds: its columns, and the text around their tables. */
#include "results.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ppcli/conf/config.h"
#include "draw.h"
#include "ppcli/base/base.h"

#define IMBALANCE 0.02 /* from here on it is explained */
#define MIB (1024.0 * 1024.0)
#define GRID_MAX_MICROBATCHES 24 /* wider pictures do not fit a terminal */

static int stage_of_layer(const struct pp_layout *l, int layer)
{
    int s = 0;
    while (layer > l->last[s])
        s++;
    return s;
}

/* ---- text */

/* Prints the keys that are not at their defaults; with -v all keys. */
static int print_config(const struct pp_config *cfg, FILE *f)
{
    char section[PP_NAME_MAX] = "";
    PP_TAKE(char, value, 65536);
    int left_out = 0;
    for (int i = 0; i < pp_config_key_count(); i++) {
        const char *key = pp_config_key_name(i);
        const char *dot = strchr(key, '.');
        if (pp_log_level() < PP_LOG_DEBUG && strcmp(pp_config_origin(cfg, key), "default") == 0) {
            left_out++;
            continue;
        }
        size_t len = (size_t)(dot - key);
        if (strlen(section) != len || strncmp(section, key, len) != 0) {
            snprintf(section, sizeof(section), "%.*s", (int)len, key);
            fprintf(f, "[%s]\n", section);
        }
        PP_TRY(pp_config_key_value(cfg, i, value, 65536));
        /* its folder is in the line "config: ..." */
        const char *origin = pp_config_origin(cfg, key), *slash = strrchr(origin, '/');
        fprintf(f, "  %-16s = %-24s ; %s\n", dot + 1, value, slash ? slash + 1 : origin);
    }
    if (left_out > 0)
        fprintf(f, "(%d keys have their default; -v shows them, ppcli keys explains them)\n",
                left_out);
    return 0;
}

/* Describes the op of a layer, as in "linear + relu", or how many ops it has, as in "9 ops". */
static void describe_kind(const struct pp_model *m, const struct pp_layer *l, char *out,
                          size_t bytes)
{
    const struct pp_node *n = &m->nodes[l->first_node];
    bool one = l->first_node == l->last_node, plain = n->activation == PP_ACT_NONE;
    if (one) {
        snprintf(out, bytes, "%s%s%s", n->op->name, plain ? "" : " + ",
                 plain ? "" : pp_activation_name(n->activation));
    } else {
        snprintf(out, bytes, "%d ops", l->last_node + 1 - l->first_node);
    }
}

/* Counts the parameters of the layers first to last that the optimizer changes; tied parameters
 * count once. */
static size_t count_parameters(const struct pp_model *m, int first, int last)
{
    const struct pp_layer *end = &m->layers[last];
    size_t n = 0;
    for (int i = m->layers[first].first_param; i < end->first_param + end->n_params; i++) {
        const struct pp_param *p = &m->params[i];
        n += !pp_param_learns(p) || p->tied_to > 0 ? 0 : pp_param_floats(p);
    }
    return n;
}

static size_t count_frozen(const struct pp_model *m)
{
    size_t n = 0;
    for (const struct pp_param *p = m->params; p < m->params + m->n_params; p++)
        n += p->kind == PP_PARAM_FROZEN && p->tied_to == 0 ? pp_param_floats(p) : 0;
    return n;
}

struct layer_row {
    char number[16], kind[64], shape[32];
    const char *name, *op, *activation;
    int layer, ops, in, out, stage;
    size_t parameters;
    struct pp_layer_cost cost;
    double flops; /* of a sample: F, I and W */
};

/* is a layer, not the sum of all, and has a stage */
PP_HAS(has_stage, struct layer_row, row->name && row->stage >= 0)

#define LAYER(m) PP_FIELD(struct layer_row, m)
static const struct pp_column layer_columns[] = {
    {NULL, "layer", LAYER(number), .right = true},
    {"layer", LAYER(layer), .help = "its number"},
    {"name", "name", LAYER(name), .help = "its name"},
    {NULL, "kind", LAYER(kind)},
    {"kind", LAYER(op), .help = "its last op, and the activation of that"},
    {"activation", LAYER(activation)},
    {"ops", LAYER(ops), .help = "how many ops it has"},
    {"shape", "out", LAYER(shape), .help = "shape of its result"},
    {"in", LAYER(in), .help = "values of a sample: what it takes and gives"},
    {"out", LAYER(out)},
    {"parameters", "parameters", LAYER(parameters), .help = "values that are learned"},
    {"flops_f", LAYER(cost.flops_f), .help = "arithmetic of a sample"},
    {"flops_i", LAYER(cost.flops_i)},
    {"flops_w", LAYER(cost.flops_w)},
    {NULL, "flops/sample", "%.0f", 1, NULL, LAYER(flops)},
    {"stage", "stage", LAYER(stage), .has = has_stage, .help = "its virtual stage"},
    {0}};

/* Makes rows[n_layers + 1]: the layers, and their total. l NULL: they have no stages. */
static void make_layers(const struct pp_model *m, const struct pp_layout *l, struct layer_row *rows)
{
    struct layer_row *all = &rows[m->n_layers];
    for (int i = 0; i < m->n_layers; i++) {
        const struct pp_layer *layer = &m->layers[i];
        const struct pp_node *node = &m->nodes[layer->last_node];
        struct layer_row *r = &rows[i];
        *r = (struct layer_row){.name = layer->name,
                                .op = node->op->name,
                                .activation = pp_activation_name(node->activation),
                                .layer = i,
                                .ops = layer->last_node + 1 - layer->first_node,
                                .in = layer->in,
                                .out = layer->out,
                                .stage = l ? stage_of_layer(l, i) : -1,
                                .parameters = count_parameters(m, i, i),
                                .cost = pp_layer_cost(m, i),
                                .flops = pp_layer_flops(m, i)};
        snprintf(r->number, sizeof(r->number), "%d", i);
        describe_kind(m, layer, r->kind, sizeof(r->kind));
        pp_shape_text(&m->values[layer->y], r->shape, sizeof(r->shape));
        all->flops += r->flops;
    }
    snprintf(all->number, sizeof(all->number), "total");
    all->parameters = count_parameters(m, 0, m->n_layers - 1);
}

static int print_layers(const struct pp_model *m, const struct pp_layout *l, FILE *f)
{
    char shape[32];
    int n = m->n_layers + 1;
    PP_TAKE(struct layer_row, rows, n);
    make_layers(m, l, rows);
    pp_shape_text(&m->values[0], shape, sizeof(shape));
    fprintf(f, "\nlayers (input %s)\n", shape);
    struct pp_column columns[sizeof(layer_columns) / sizeof(layer_columns[0])];
    memcpy(columns, layer_columns, sizeof(columns));
    for (struct pp_column *c = columns; c->key || c->title; c++)
        if (c->has == has_stage && !l)
            c->title = NULL;
    pp_listing_print(columns, &(struct pp_listing){rows, sizeof(*rows), n}, PP_LISTING_TEXT, 2, f);
    if (count_frozen(m) > 0)
        fprintf(f, "  (frozen: %zu more parameters, which training does not change)\n",
                count_frozen(m));
    if (pp_model_mixes_samples(m)) {
        fprintf(
            f,
            "  (the samples of each micro-batch of each replica meet, in batch norm or attention: "
            "microbatches and replicas "
            "change what is computed; stages and schedule do not)\n");
    }
    return 0;
}

static double stage_work(const struct pp_explained *e, int s, size_t *params)
{
    const struct pp_layout *l = e->run.layout;
    double flops = 0;
    *params = count_parameters(e->run.model, l->first[s], l->last[s]);
    for (int i = l->first[s]; i <= l->last[s]; i++)
        flops += pp_layer_flops(e->run.model, i);
    return flops;
}

/* Returns the bytes of one micro-batch that stage s sends to the next stage. */
static size_t boundary_bytes(const struct pp_layout *l, int s)
{
    return pp_layout_message_bytes(l, 2 * s, l->max_rows);
}

/* Returns the name of the layer that has the copy of a tied parameter. *out becomes the copy. */
static const char *tie_of(const struct pp_layout *l, int tie, const struct pp_param **out)
{
    int i = 0;
    const struct pp_layer *layers = l->model->layers;
    while (l->tied[tie] >= layers[i].first_param + layers[i].n_params)
        i++;
    *out = &l->model->params[l->tied[tie]];
    return layers[i].name;
}

/* Prints a tensor with more than two holders, the first of whose ties is `tie`. */
static void print_chain(const struct pp_layout *l, int tie, const char *size, FILE *f)
{
    const struct pp_param *p = &l->model->params[l->tied[tie]];
    char ranks[128] = "";
    int owner = l->rank_of[l->ties[tie].owner], before = owner;
    pp_text_add(ranks, sizeof(ranks), "%d", owner);
    for (int i = tie; i < l->n_ties; i++) {
        int rank = l->rank_of[l->ties[i].copy];
        if (l->model->params[l->tied[i]].tied_to != p->tied_to || rank == before)
            continue;
        pp_text_add(ranks, sizeof(ranks), ", %d", rank);
        before = rank;
    }
    fprintf(f, "  tied: %s in %d places, %s floats added up over rank%s %s a step\n", p->name,
            l->ties[tie].after + 2, size, pp_plural(1 + (before != owner)), ranks);
}

static void print_tie(const struct pp_layout *l, int tie, FILE *f)
{
    const struct pp_param *p;
    const char *layer = tie_of(l, tie, &p);
    int owner = l->rank_of[l->ties[tie].owner], copy = l->rank_of[l->ties[tie].copy];
    double floats = (double)pp_param_floats(p);
    char size[32];
    snprintf(size, sizeof(size), floats < 1e5 ? "%.0f" : "%.1f M",
             floats < 1e5 ? floats : floats / 1e6);
    if (l->ties[tie].before > 0)
        return;
    if (l->ties[tie].after > 0) {
        print_chain(l, tie, size, f);
        return;
    }
    fprintf(f, "  tied: weight of %s = %s, ", layer, p->name);
    if (owner == copy)
        fprintf(f, "%s floats added up within rank %d a step\n", size, owner);
    else
        fprintf(f, "%s floats exchanged between ranks %d and %d a step\n", size, owner, copy);
}

struct stage_row {
    int stage, rank, first, last;
    const char *first_name, *last_name;
    size_t parameters, boundary;
    bool has_next;
    double flops, share;
    char layers[32], names[2 * PP_NAME_MAX + 8];
};

PP_HAS(has_next, struct stage_row, row->has_next)

#define STAGE(m) PP_FIELD(struct stage_row, m)
static const struct pp_column stage_columns[] = {
    {"stage", "stage", STAGE(stage), .help = "a virtual stage, and its rank"},
    {"rank", "rank", STAGE(rank)},
    {NULL, "layers", STAGE(layers)},
    {"first_layer", STAGE(first), .help = "its layers"},
    {"last_layer", STAGE(last)},
    {NULL, "parameters", STAGE(parameters)},
    {NULL, "work", "%.1f %%", 100, NULL, STAGE(share)},
    {"first_name", STAGE(first_name), .help = "their names"},
    {"last_name", STAGE(last_name)},
    {"boundary_bytes", "bytes to next", STAGE(boundary), .has = has_next,
     .help = "what it sends to the next stage for a micro-batch"},
    {NULL, "names", STAGE(names)},
    {0}};

/* Makes rows[n_virtual], one for each stage. Returns how even the work is: 1 if all stages have the
 * same. */
static double make_stages(const struct pp_explained *e, struct stage_row *rows)
{
    const struct pp_layout *l = e->run.layout;
    const struct pp_layer *of = e->run.model->layers;
    double total = 0, largest = 0;
    for (int s = 0; s < l->n_virtual; s++) {
        struct stage_row *r = &rows[s];
        *r = (struct stage_row){.stage = s,
                                .rank = l->rank_of[s],
                                .first = l->first[s],
                                .last = l->last[s],
                                .first_name = of[l->first[s]].name,
                                .last_name = of[l->last[s]].name,
                                .has_next = s + 1 < l->n_virtual};
        r->flops = stage_work(e, s, &r->parameters);
        r->boundary = r->has_next ? boundary_bytes(l, s) : 0;
        snprintf(r->layers, sizeof(r->layers), "%d-%d", r->first, r->last);
        snprintf(r->names, sizeof(r->names), r->last > r->first ? "%s to %s" : "%s", r->first_name,
                 r->last_name);
        total += r->flops;
        largest = r->flops > largest ? r->flops : largest;
    }
    for (int s = 0; s < l->n_virtual; s++)
        rows[s].share = rows[s].flops / total;
    return total / (largest * l->n_virtual);
}

/* Prints which stages have no weight gradients. */
static void print_frozen(const struct pp_layout *l, FILE *f)
{
    const struct pp_plan *plan = l->plans[0].plan;
    char stages[256] = "";
    int n = 0;
    for (int s = 0; s < l->n_virtual; s++) {
        if (!plan->frozen[s])
            continue;
        pp_text_add(stages, sizeof(stages), "%s%d", n > 0 ? ", " : "", s);
        n++;
    }
    if (n > 0)
        fprintf(f, "  (stage%s %s: all layers frozen, so there is no W)\n", pp_plural(n), stages);
}

static int print_stages(const struct pp_explained *e, FILE *f)
{
    const struct pp_layout *l = e->run.layout;
    PP_TAKE(struct stage_row, rows, l->n_virtual);
    double balance = make_stages(e, rows);
    fprintf(f, "\nstages (%s; balance %.1f %%)\n",
            e->run.cfg->pipeline.assignment == PP_ASSIGN_EXPLICIT ? "as assigned" : "cut by ppcli",
            100 * balance);
    pp_listing_print(stage_columns, &(struct pp_listing){rows, sizeof(*rows), l->n_virtual},
                     PP_LISTING_TEXT, 2, f);
    if (l->n_virtual > 1)
        fprintf(f, "  (bytes of one micro-batch of %d samples%s, and as many back)\n", l->max_rows,
                l->value_bytes < sizeof(float) ? " in bf16" : "");
    for (int i = 0; i < l->n_ties; i++)
        print_tie(l, i, f);
    print_frozen(l, f);
    return 0;
}

static void print_zero(const struct pp_explained *e, FILE *f)
{
    size_t most = 0, whole = 0;
    size_t moments = (size_t)pp_optimizer_moments(e->run.cfg->train.optimizer);
    for (int r = 0; r < e->run.layout->ranks; r++) {
        const struct pp_exec_bytes *b = &e->ranks[r];
        most = b->optimizer > most ? b->optimizer : most;
        whole = moments * b->parameters > whole ? moments * b->parameters : whole;
    }
    fprintf(f, "  train.zero = 1: at most %.3f MiB of optimizer state on a rank; 0: %.3f MiB\n",
            (double)most / MIB, (double)whole / MIB);
}

/* What a rank moves and computes in a step with a full batch. */
struct traffic {
    size_t sent, received; /* bytes to and from other stages: activations, gradients, ties */
    size_t shared;         /* bytes to other replicas: gradients, with train.zero also parameters */
    double flops;
    double intensity; /* flops for each byte that it sends; NAN: it sends nothing */
};

struct rank_row {
    int rank;
    struct pp_exec_bytes b;
    struct traffic t;
    double other_all, other_off; /* activations if all, or no, forward passes were recomputed */
};

#define RANK(m) PP_FIELD(struct rank_row, m)
#define IN_MIB PP_DIGITS, 1 / MIB
static const struct pp_column rank_columns[] = {
    {"rank", "rank", RANK(rank), .help = "its number"},
    {"parameter_bytes", "params", IN_MIB, "parts of its memory", RANK(b.parameters)},
    {"packed_bytes", "packed", IN_MIB, NULL, RANK(b.packed)},
    {"gradient_bytes", "grads", IN_MIB, NULL, RANK(b.gradients)},
    {"optimizer_bytes", "optimizer", IN_MIB, NULL, RANK(b.optimizer)},
    {"activation_bytes", "activations", IN_MIB, NULL, RANK(b.activations)},
    {"message_bytes", "messages", IN_MIB, NULL, RANK(b.messages)},
    {"data_bytes", "data set", IN_MIB, NULL, RANK(b.data)},
    {"scratch_bytes", "scratch", IN_MIB, NULL, RANK(b.scratch)},
    {"peak_bytes", "total", IN_MIB, "all of its memory", RANK(b.total)},
    {"activation_bytes_all", RANK(other_all), .optional = true,
     .help = "if all, or no, forward passes were recomputed"},
    {"activation_bytes_off", RANK(other_off), .optional = true},
    {"step_bytes_sent", RANK(t.sent), .help = "what it moves to and from other stages in a step"},
    {"step_bytes_received", RANK(t.received)},
    {"step_bytes_replicas", RANK(t.shared), .help = "what it sends to other replicas in a step"},
    {"step_flops", RANK(t.flops), .help = "what it computes in a step"},
    {"flops_per_byte", RANK(t.intensity), .optional = true,
     .help = "computation for each byte that it sends"},
    {0}};

static const struct pp_column traffic_columns[] = {
    {NULL, "rank", RANK(rank)},
    {NULL, "to stages", IN_MIB, NULL, RANK(t.sent)},
    {NULL, "from stages", IN_MIB, NULL, RANK(t.received)},
    {NULL, "to replicas", IN_MIB, NULL, RANK(t.shared)},
    {NULL, "GFLOP", PP_DIGITS, 1e-9, NULL, RANK(t.flops)},
    {NULL, "FLOP/byte", PP_COMMAS, 1, NULL, RANK(t.intensity), .optional = true},
    {0}};

static bool uses_recompute(const struct pp_explained *e)
{
    return e->run.cfg->pipeline.recompute[0] != '\0';
}

/* Adds what rank r of a pipeline sends and receives over a channel in a step. `rows` are the
 * samples of its replica, over all messages of one direction of a boundary. */
static void add_channel(const struct pp_layout *l, int channel, int r, int rows, struct traffic *t)
{
    const struct pp_plan *plan = l->plans[0].plan;
    const struct pp_channel *ch = &plan->channels[channel];
    int tie = (channel - 2 * (l->n_virtual - 1)) / 2;
    size_t bytes = channel >= 2 * (l->n_virtual - 1)
                       ? pp_param_floats(&l->model->params[l->tied[tie]]) * sizeof(float)
                       : pp_layout_message_bytes(l, channel, rows);
    if (ch->slots == 0 || ch->src_rank == ch->dst_rank)
        return;
    t->sent += ch->src_rank == r ? bytes : 0;
    t->received += ch->dst_rank == r ? bytes : 0;
}

/* Counts what a rank moves and computes in a step with a full batch. */
static struct traffic count_traffic(const struct pp_explained *e, int rank)
{
    const struct pp_layout *l = e->run.layout;
    const struct pp_plan *plan = l->plans[0].plan;
    int batch = l->training.batch < l->train_n ? l->training.batch : l->train_n, first, rows;
    int r = rank % l->stages, d = l->replicas;
    struct traffic t = {0};
    pp_balanced_piece(batch, d, rank / l->stages, &first, &rows);
    for (int ch = 0; ch < plan->n_channels; ch++)
        add_channel(l, ch, r, rows, &t);
    for (int s = 0; s < l->n_virtual; s++) {
        for (int i = l->first[s]; i <= l->last[s] && l->rank_of[s] == r; i++) {
            double again = pp_plan_recomputes(plan, s) ? pp_layer_cost(l->model, i).flops_f : 0;
            t.flops += rows * (pp_layer_flops(l->model, i) + again);
        }
    }
    /* Each replica sends the others their parts of its gradients, and its part of the result. */
    size_t ways = e->run.cfg->train.zero && pp_layout_shares_sums(l) ? 3 : 2;
    t.shared = ways * e->ranks[rank].gradients * (size_t)(d - 1) / (size_t)d;
    t.intensity = t.sent + t.shared > 0 ? t.flops / (double)(t.sent + t.shared) : NAN;
    return t;
}

/* Makes rows[n], one for each rank. */
static void make_ranks(const struct pp_explained *e, int n, struct rank_row *rows)
{
    for (int r = 0; r < n; r++) {
        double other = e->other ? (double)e->other[r % e->run.layout->stages].activations : NAN;
        rows[r] = (struct rank_row){.rank = r,
                                    .b = e->ranks[r],
                                    .t = count_traffic(e, r),
                                    .other_all = uses_recompute(e) ? NAN : other,
                                    .other_off = uses_recompute(e) ? other : NAN};
    }
}

/* Returns whether a rank holds samples in the memory of its device. */
static bool holds_data(const struct pp_explained *e)
{
    for (int r = 0; r < e->run.layout->stages; r++)
        if (e->ranks[r].data > 0)
            return true;
    return false;
}

static int print_memory(const struct pp_explained *e, FILE *f)
{
    const struct pp_layout *l = e->run.layout;
    const struct pp_backend_choice choice = pp_backend_choice_of(e->run.cfg);
    char team[48] = "";
    if (pp_backend_members(&choice) > 1)
        snprintf(team, sizeof(team), ", each with %d threads", choice.threads);
    fprintf(f, "\nmemory of each rank, MiB (ranks are %s%s%s)\n",
            pp_run_shares_memory(&e->run) ? "threads" : "processes", team,
            l->replicas == 1         ? ""
            : e->run.cfg->train.zero ? "; of replica 0, whose pieces may be a little larger"
                                     : "; every replica the same");
    PP_TAKE(struct rank_row, rows, l->stages);
    make_ranks(e, l->stages, rows);
    struct pp_column columns[sizeof(rank_columns) / sizeof(rank_columns[0])];
    memcpy(columns, rank_columns, sizeof(columns));
    for (struct pp_column *c = columns; c->key; c++)
        if (strcmp(c->key, "data_bytes") == 0 && !holds_data(e))
            c->title = NULL; /* the table fits 80 columns without it */
    pp_listing_print(columns, &(struct pp_listing){rows, sizeof(*rows), l->stages}, PP_LISTING_TEXT,
                     2, f);
    if (e->run.cfg->train.zero && l->replicas > 1)
        print_zero(e, f);
    fprintf(f, "  (packed: weights a second time, in the order in which the products read them)\n");
    size_t now = 0, other = 0;
    for (int r = 0; r < l->stages; r++) {
        now = e->ranks[r].activations > now ? e->ranks[r].activations : now;
        other = e->other && e->other[r].activations > other ? e->other[r].activations : other;
    }
    if (!e->other)
        return 0;
    const char *recompute = e->run.cfg->pipeline.recompute;
    fprintf(f,
            "  with recompute = %.60s: at most %.3f MiB of activations on a rank; %s: %.3f MiB\n",
            recompute[0] ? recompute : "off", (double)now / MIB, recompute[0] ? "off" : "all",
            (double)other / MIB);
    return 0;
}

/* Prints the bytes that ranks move in a step, next to what they compute. */
static int print_traffic(const struct pp_explained *e, FILE *f)
{
    const struct pp_layout *l = e->run.layout;
    if (l->ranks == 1)
        return 0;
    PP_TAKE(struct rank_row, rows, l->stages);
    make_ranks(e, l->stages, rows);
    fprintf(f, "\ncommunication of a step, MiB of each rank%s\n",
            l->replicas > 1 ? " of replica 0" : "");
    pp_listing_print(traffic_columns, &(struct pp_listing){rows, sizeof(*rows), l->stages},
                     PP_LISTING_TEXT, 2, f);
    fputs("  (at 10 GB/s a link keeps up with ranks of up to 10 GFLOP/s times the last column)\n",
          f);
    if (pp_run_shares_memory(&e->run) && l->stages > 1)
        fputs("  (stages that are threads of one process pass pointers instead)\n", f);
    return 0;
}

static int print_schedule(const struct pp_explained *e, FILE *f)
{
    const struct pp_layout *l = e->run.layout;
    const struct pp_config *cfg = e->run.cfg;
    int64_t batch = cfg->train.batch_size;
    int64_t steps = (l->train_n + batch - 1) / batch;
    int n;
    const struct pp_dataset_info *info = pp_dataset_info(cfg->data.dataset);
    bool assumed = info->test_n == 0 && pp_dataset_count(cfg, PP_SPLIT_TEST, &n) == PP_ENOINPUT;
    pp_error_clear();
    fprintf(f,
            "\ndata: %d training sample%s in %" PRId64 " step%s an epoch (batch %" PRId64
            ", last %" PRId64 "), %d test sample%s%s\n",
            l->training.train_all, pp_plural(l->training.train_all), steps, pp_plural(steps), batch,
            l->train_n - (steps - 1) * batch, l->test_n, pp_plural(l->test_n),
            assumed ? ";\n  assumed, as the files are not there" : "");
    char remark[256];
    if (pp_run_batch_remark(&e->run, remark)[0])
        pp_log_warn("%s", remark);
    struct pp_lr_remarks rates;
    pp_run_lr_remark(&e->run, 0, &rates);
    fprintf(f, "%s\n", rates.rates);
    for (int i = 0; i < rates.n; i++)
        pp_log_warn("%s", rates.text[i]);
    int m = l->plans[0].m, rows = l->max_rows;
    fprintf(f,
            "\nschedule %s: %d stage%s, %d micro-batch%s of at most %d sample%s, ideal bubble "
            "%.1f %%;\n  proved free of deadlock\n",
            pp_layout_schedule(l), l->stages, pp_plural(l->stages), m, m == 1 ? "" : "es", rows,
            pp_plural(rows), e->ideal * 100);
    char text[PP_BUBBLE_TEXT_MAX];
    fprintf(f, "bubble, if time follows flops and transfers are free:\n  %s\n",
            pp_bubble_text(&e->bubble, text));
    if (e->bubble.imbalance > IMBALANCE)
        fprintf(
            f, "balance compares whole stages; imbalance also counts that their F, I and W differ\n"
               "  (the first layer has no input gradient)\n");
    if (e->bubble.idle > e->ideal + PP_ADVICE_OVER)
        fprintf(f, "%s\n", e->advice);
    if (l->coalesce > 1) {
        fprintf(f,
                "weight gradients of %d micro-batches are computed at once (train.coalesce = %d):\n"
                "  %s, but W can fill no gaps\n",
                l->coalesce, l->coalesce,
                cfg->train.exact ? "same bits" : "other last bits are possible");
    }
    if (fabs(e->equal - e->ideal) > 0.0005)
        fprintf(f, "with what is merged or computed again, the bubble of equal stages is %.1f %%\n",
                e->equal * 100);
    if (l->logits_rows > 0)
        fprintf(f, "logits: of at most %d positions at once\n", l->logits_rows);
    if (l->plans[0].m <= GRID_MAX_MICROBATCHES && l->stages <= 16)
        PP_TRY(pp_draw_textbook(l->plans[0].plan, f));
    return 0;
}

static int print_explained(const struct pp_explained *e, FILE *f)
{
    PP_TRY(print_config(e->run.cfg, f));
    if (e->archive) {
        struct graph_document g;
        graph_document_make(e->archive, &g);
        fputc('\n', f);
        graph_document_print(&g, f);
    }
    PP_TRY(print_layers(e->run.model, e->run.layout, f));
    PP_TRY(print_stages(e, f));
    PP_TRY(print_memory(e, f));
    PP_TRY(print_traffic(e, f));
    return print_schedule(e, f);
}

/* ---- JSON */

struct key_row {
    const char *key, *origin;
    char *value; /* owned */
};

#define KEY(m) PP_FIELD(struct key_row, m)
static const struct pp_column key_columns[] = {
    {"key", KEY(key), .help = "a key of the config, its value, and who set that"},
    {"value", .kind = PP_CELL_TEXT, .offset = offsetof(struct key_row, value)},
    {"origin", KEY(origin)},
    {0}};

struct tie_row {
    const char *layer, *parameter;
    size_t floats;
    int owner, copy;
};

#define TIE(m) PP_FIELD(struct tie_row, m)
static const struct pp_column tie_columns[] = {
    {"layer", TIE(layer), .help = "the layer with the copy"},
    {"parameter", TIE(parameter), .help = "the parameter that it copies"},
    {"floats", TIE(floats), .help = "its size"},
    {"owner_rank", TIE(owner), .help = "the ranks of both"},
    {"copy_rank", TIE(copy)},
    {0}};

struct explain_document {
    struct graph_document graph;
    char hash[65];
    const char *recompute, *advice;
    struct pp_lr_remarks rates;
    struct pp_layout l; /* a copy, which owns nothing */
    bool mixes, exact;
    double ideal;
    struct pp_bubble bubble;
    struct pp_listing keys, layers, stages, ties, ranks;
};

static void put_remarks(const void *document, const char *key, struct pp_json *j)
{
    const struct pp_lr_remarks *r = &((const struct explain_document *)document)->rates;
    pp_json_array(j, key);
    for (int i = 0; i < r->n; i++)
        pp_json_str(j, NULL, r->text[i]);
    pp_json_end(j);
}

PP_HAS(is_graph, struct explain_document, row->graph.a.torch)

#define RESULT(m) PP_FIELD(struct explain_document, m)
const struct pp_column pp_explain_columns[] = {
    PP_SCHEMA(1),
    {"config_hash", RESULT(hash), .help = "digest of the config"},
    {"config", RESULT(keys), .inner = key_columns, .help = "all keys"},
    {"graph", RESULT(graph), .inner = pp_graph_columns, .has = is_graph,
     .help = "the PyTorch program"},
    {"layers", RESULT(layers), .inner = layer_columns, .help = "of the model"},
    {"stages", RESULT(stages), .inner = stage_columns, .help = "the cut"},
    {"tied", RESULT(ties), .inner = tie_columns, .help = "parameters that two layers share"},
    {"recompute", RESULT(recompute), .help = "pipeline.recompute, or off"},
    {"ranks", RESULT(ranks), .inner = rank_columns, .help = "of all replicas"},
    {"train_samples", RESULT(l.training.train_all), .help = "samples of both data sets"},
    {"test_samples", RESULT(l.test_n)},
    {"learning_rate", RESULT(rates.rates), .help = "rates of the first steps"},
    {"learning_rate_remarks", .put = put_remarks, .type = "texts", .help = "warnings about them"},
    {"microbatch_rows", RESULT(l.max_rows), .help = "samples of the largest micro-batch"},
    {"batch_norm", RESULT(mixes), .help = "the model mixes samples of a micro-batch"},
    {"exact", RESULT(exact), .help = "train.exact"},
    {"coalesce", RESULT(l.coalesce),
     .help = "micro-batches whose weight gradients are one product"},
    {"logits_rows", RESULT(l.logits_rows), .help = "positions whose logits exist at once; 0: all"},
    {"bubble_ideal", RESULT(ideal), .help = "bubble of equal stages"},
    {"bubble_flops", RESULT(bubble.idle), .help = "bubble with times in proportion to arithmetic"},
    {.inner = pp_bubble_columns, RESULT(bubble)},
    {"advice", RESULT(advice), .help = "what limits the pipeline"},
    {0}};

static void free_keys(struct key_row **rows)
{
    for (int i = 0; *rows && i < pp_config_key_count(); i++)
        pp_free((*rows)[i].value);
    pp_free(*rows);
}

static int make_keys(const struct pp_config *cfg, struct key_row *rows)
{
    PP_TAKE(char, value, 65536);
    for (int i = 0; i < pp_config_key_count(); i++) {
        PP_TRY(pp_config_key_value(cfg, i, value, 65536));
        rows[i].key = pp_config_key_name(i);
        rows[i].origin = pp_config_origin(cfg, rows[i].key);
        rows[i].value = pp_strdup(value);
        PP_TRY(rows[i].value ? 0 : PP_ERESOURCE);
    }
    return 0;
}

static void make_ties(const struct pp_layout *l, struct tie_row *rows)
{
    for (int i = 0; i < l->n_ties; i++) {
        const struct pp_param *p;
        rows[i].layer = tie_of(l, i, &p);
        rows[i].parameter = p->name;
        rows[i].floats = pp_param_floats(p);
        rows[i].owner = l->rank_of[l->ties[i].owner];
        rows[i].copy = l->rank_of[l->ties[i].copy];
    }
}

static int print_explained_json(const struct pp_explained *e, FILE *f)
{
    const struct pp_layout *l = e->run.layout;
    const struct pp_config *cfg = e->run.cfg;
    PP_OWN(free_keys) struct key_row *keys = NULL;
    PP_TAKE(struct layer_row, layers, e->run.model->n_layers + 1);
    PP_TAKE(struct stage_row, stages, l->n_virtual);
    PP_TAKE(struct tie_row, ties, l->n_ties + 1);
    PP_TAKE(struct rank_row, ranks, l->ranks);
    PP_ALLOC(keys, pp_config_key_count());
    PP_TRY(make_keys(cfg, keys));
    make_layers(e->run.model, l, layers);
    (void)make_stages(e, stages);
    make_ties(l, ties);
    make_ranks(e, l->ranks, ranks);
    struct explain_document d = {.recompute = uses_recompute(e) ? cfg->pipeline.recompute : "off",
                                 .advice = e->advice,
                                 .l = *l,
                                 .mixes = pp_model_mixes_samples(e->run.model),
                                 .exact = cfg->train.exact,
                                 .ideal = e->ideal,
                                 .bubble = e->bubble,
                                 .keys = {keys, sizeof(*keys), pp_config_key_count()},
                                 .layers = {layers, sizeof(*layers), e->run.model->n_layers},
                                 .stages = {stages, sizeof(*stages), l->n_virtual},
                                 .ties = {ties, sizeof(*ties), l->n_ties},
                                 .ranks = {ranks, sizeof(*ranks), l->ranks}};
    if (e->archive)
        graph_document_make(e->archive, &d.graph);
    PP_TRY(pp_config_hash(cfg, d.hash));
    pp_run_lr_remark(&e->run, 0, &d.rates);
    pp_document_json(pp_explain_columns, &d, f);
    return 0;
}

int pp_explained_print(const struct pp_explained *e, bool json, FILE *f)
{
    return json ? print_explained_json(e, f) : print_explained(e, f);
}

/* ---- a program alone */

struct archive_document {
    struct graph_document graph;
    struct pp_listing layers;
};

const struct pp_column pp_archive_columns[] = {
    PP_SCHEMA(1),
    {"graph", PP_FIELD(struct archive_document, graph), .inner = pp_graph_columns,
     .help = "the PyTorch program"},
    {"layers", PP_FIELD(struct archive_document, layers), .inner = layer_columns,
     .help = "of the model; none: it has problems"},
    {0}};

int pp_archive_print(const struct pp_archive *a, const struct pp_model *m, bool json, FILE *f)
{
    struct archive_document d = {.layers = {.n = 0}};
    graph_document_make(a, &d.graph);
    if (!json) {
        graph_document_print(&d.graph, f);
        return m ? print_layers(m, NULL, f) : 0;
    }
    PP_TAKE(struct layer_row, layers, m ? m->n_layers + 1 : 1);
    if (m) {
        make_layers(m, NULL, layers);
        d.layers = (struct pp_listing){layers, sizeof(*layers), m->n_layers};
    }
    pp_document_json(pp_archive_columns, &d, f);
    return 0;
}
