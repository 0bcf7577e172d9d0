/* SPDX-License-Identifier: Apache-2.0 */
/* What `ppcli explain` found out, for people and for programs. */
#include "ppcli/show/results.h"

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

/* What somebody said; with -v every key. */
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

/* "linear + relu", "9 ops" */
static void layer_kind(const struct pp_model *m, const struct pp_layer *l, char *out, size_t bytes)
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

/* As PyTorch counts them: without running statistics, and tied ones once. */
static size_t parameters(const struct pp_model *m, int first, int last)
{
    const struct pp_layer *end = &m->layers[last];
    size_t n = 0;
    for (int i = m->layers[first].first_param; i < end->first_param + end->n_params; i++) {
        const struct pp_param *p = &m->params[i];
        n += p->kind == PP_PARAM_BUFFER || p->tied_to > 0 ? 0 : pp_param_floats(p);
    }
    return n;
}

static void print_layers(const struct pp_run *run, FILE *f)
{
    const struct pp_layout *l = run->layout;
    int wide = 4, kinds = 4, shapes = 3; /* of the longest name, kind, shape */
    char kind[64], shape[32];
    for (int i = 0; i < run->model->n_layers; i++) {
        const struct pp_layer *layer = &run->model->layers[i];
        layer_kind(run->model, layer, kind, sizeof(kind));
        pp_shape_text(&run->model->values[layer->y], shape, sizeof(shape));
        int n = (int)strlen(layer->name), k = (int)strlen(kind), s = (int)strlen(shape);
        wide = n > wide ? n : wide;
        kinds = k > kinds ? k : kinds;
        shapes = s > shapes ? s : shapes;
    }
    pp_shape_text(&run->model->values[0], shape, sizeof(shape));
    fprintf(f, "\nlayers (input %s)\n  layer  %-*s %-*s %-*s %11s %12s stage\n", shape, wide,
            "name", kinds, "kind", shapes, "out", "parameters", "flops/sample");
    double flops = 0;
    for (int i = 0; i < run->model->n_layers; i++) {
        const struct pp_layer *layer = &run->model->layers[i];
        double sum = pp_layer_flops(run->model, i);
        flops += sum;
        layer_kind(run->model, layer, kind, sizeof(kind));
        pp_shape_text(&run->model->values[layer->y], shape, sizeof(shape));
        fprintf(f, "  %5d  %-*s %-*s %-*s %11zu %12.0f %5d\n", i, wide, layer->name, kinds, kind,
                shapes, shape, parameters(run->model, i, i), sum, stage_of_layer(l, i));
    }
    fprintf(f, "  total  %-*s %11zu %12.0f\n", wide + kinds + shapes + 2, "",
            parameters(run->model, 0, run->model->n_layers - 1), flops);
    if (pp_model_mixes_samples(run->model)) {
        fprintf(
            f,
            "  (the samples of each micro-batch of each replica meet, in batch norm or attention: "
            "microbatches and replicas "
            "change what is computed; stages and schedule do not)\n");
    }
}

static double stage_work(const struct pp_explained *e, int s, size_t *params)
{
    const struct pp_layout *l = e->run.layout;
    double flops = 0;
    *params = parameters(e->run.model, l->first[s], l->last[s]);
    for (int i = l->first[s]; i <= l->last[s]; i++)
        flops += pp_layer_flops(e->run.model, i);
    return flops;
}

/* Of one micro-batch, from stage s to the next. */
static size_t boundary_bytes(const struct pp_layout *l, int s)
{
    return pp_layout_message_bytes(l, 2 * s, l->max_rows);
}

/* The layer of the copy, and the floats. */
static const char *tie_of(const struct pp_layout *l, int tie, const struct pp_param **out)
{
    int i = 0;
    const struct pp_layer *layers = l->model->layers;
    while (l->tied[tie] >= layers[i].first_param + layers[i].n_params)
        i++;
    *out = &l->model->params[l->tied[tie]];
    return layers[i].name;
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
    fprintf(f, "  tied: weight of %s = %s, ", layer, p->name);
    if (owner == copy)
        fprintf(f, "%s floats added up within rank %d a step\n", size, owner);
    else
        fprintf(f, "%s floats exchanged between ranks %d and %d a step\n", size, owner, copy);
}

static void print_stages(const struct pp_explained *e, FILE *f)
{
    const struct pp_layout *l = e->run.layout;
    double total = 0, largest = 0;
    size_t params;
    for (int s = 0; s < l->n_virtual; s++) {
        double flops = stage_work(e, s, &params);
        total += flops;
        largest = flops > largest ? flops : largest;
    }
    fprintf(f, "\nstages (%s; balance %.1f %%)\n  %5s %4s %-9s %11s %7s %13s  %s\n",
            e->run.cfg->pipeline.assignment == PP_ASSIGN_EXPLICIT ? "as assigned" : "cut by ppcli",
            100 * total / (largest * l->n_virtual), "stage", "rank", "layers", "parameters", "work",
            "bytes to next", "names");
    const struct pp_layer *of = e->run.model->layers;
    for (int s = 0; s < l->n_virtual; s++) {
        char layers[32], bytes[64] = "-";
        double flops = stage_work(e, s, &params);
        snprintf(layers, sizeof(layers), "%d-%d", l->first[s], l->last[s]);
        if (s + 1 < l->n_virtual)
            snprintf(bytes, sizeof(bytes), "%zu", boundary_bytes(l, s));
        fprintf(f, "  %5d %4d %-9s %11zu %5.1f %% %13s  %s%s%s\n", s, l->rank_of[s], layers, params,
                100 * flops / total, bytes, of[l->first[s]].name,
                l->last[s] > l->first[s] ? " to " : "",
                l->last[s] > l->first[s] ? of[l->last[s]].name : "");
    }
    if (l->n_virtual > 1)
        fprintf(f, "  (bytes of one micro-batch of %d samples%s, and as many back)\n", l->max_rows,
                l->value_bytes < sizeof(float) ? " in bf16" : "");
    for (int i = 0; i < l->n_ties; i++)
        print_tie(l, i, f);
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

/* A column of MiB: fewer digits of large ones, so that the columns stay. */
static void print_mib(FILE *f, int width, size_t bytes)
{
    double mib = (double)bytes / MIB;
    fprintf(f, " %*.*f", width, mib < 1000 ? 3 : mib < 100000 ? 1 : 0, mib);
}

static void print_memory(const struct pp_explained *e, FILE *f)
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
    bool data = false;
    for (int r = 0; r < l->stages; r++)
        data = data || e->ranks[r].data > 0;
    fprintf(f,
            "  rank  params   packed    grads optimizer activations messages%s scratch    total\n",
            data ? " data set" : "");
    for (int r = 0; r < l->stages; r++) {
        const struct pp_exec_bytes *b = &e->ranks[r];
        fprintf(f, "  %4d", r);
        print_mib(f, 7, b->parameters);
        print_mib(f, 8, b->packed);
        print_mib(f, 8, b->gradients);
        print_mib(f, 9, b->optimizer);
        print_mib(f, 11, b->activations);
        print_mib(f, 8, b->messages);
        if (data)
            print_mib(f, 8, b->data);
        print_mib(f, 7, b->scratch);
        print_mib(f, 8, b->total);
        fputc('\n', f);
    }
    if (e->run.cfg->train.zero && l->replicas > 1)
        print_zero(e, f);
    fprintf(f, "  (packed: weights a second time, in the order in which the products read them)\n");
    size_t now = 0, other = 0;
    for (int r = 0; r < l->stages; r++) {
        now = e->ranks[r].activations > now ? e->ranks[r].activations : now;
        other = e->other && e->other[r].activations > other ? e->other[r].activations : other;
    }
    if (!e->other)
        return;
    const char *recompute = e->run.cfg->pipeline.recompute;
    fprintf(f,
            "  with recompute = %.60s: at most %.3f MiB of activations on a rank; %s: %.3f MiB\n",
            recompute[0] ? recompute : "off", (double)now / MIB, recompute[0] ? "off" : "all",
            (double)other / MIB);
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
            l->train_n, pp_plural(l->train_n), steps, pp_plural(steps), batch,
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
    print_layers(&e->run, f);
    print_stages(e, f);
    print_memory(e, f);
    return print_schedule(e, f);
}

/* ---- JSON */

static void json_layers(struct pp_json *j, const struct pp_run *run)
{
    pp_json_array(j, "layers");
    for (int i = 0; i < run->model->n_layers; i++) {
        const struct pp_layer *layer = &run->model->layers[i];
        const struct pp_node *node = &run->model->nodes[layer->last_node];
        struct pp_layer_cost c = pp_layer_cost(run->model, i);
        char shape[32];
        pp_shape_text(&run->model->values[layer->y], shape, sizeof(shape));
        pp_json_object(j, NULL);
        pp_json_int(j, "layer", i);
        pp_json_str(j, "name", layer->name);
        pp_json_str(j, "kind", node->op->name);
        pp_json_int(j, "ops", layer->last_node + 1 - layer->first_node);
        pp_json_str(j, "activation", pp_activation_name(node->activation));
        pp_json_str(j, "shape", shape);
        pp_json_int(j, "in", layer->in);
        pp_json_int(j, "out", layer->out);
        pp_json_uint(j, "parameters", parameters(run->model, i, i));
        pp_json_dbl(j, "flops_f", c.flops_f);
        pp_json_dbl(j, "flops_i", c.flops_i);
        pp_json_dbl(j, "flops_w", c.flops_w);
        pp_json_int(j, "stage", stage_of_layer(run->layout, i));
        pp_json_end(j);
    }
    pp_json_end(j);
}

static int json_config(struct pp_json *j, const struct pp_config *cfg)
{
    PP_TAKE(char, value, 65536);
    pp_json_array(j, "config");
    for (int i = 0; i < pp_config_key_count(); i++) {
        PP_TRY(pp_config_key_value(cfg, i, value, 65536));
        pp_json_object(j, NULL);
        pp_json_str(j, "key", pp_config_key_name(i));
        pp_json_str(j, "value", value);
        pp_json_str(j, "origin", pp_config_origin(cfg, pp_config_key_name(i)));
        pp_json_end(j);
    }
    pp_json_end(j);
    return 0;
}

static void json_rates(struct pp_json *j, const struct pp_explained *e)
{
    struct pp_lr_remarks rates;
    pp_run_lr_remark(&e->run, 0, &rates);
    pp_json_str(j, "learning_rate", rates.rates);
    pp_json_array(j, "learning_rate_remarks");
    for (int i = 0; i < rates.n; i++)
        pp_json_str(j, NULL, rates.text[i]);
    pp_json_end(j);
}

static int json_explained(const struct pp_explained *e, FILE *f)
{
    const struct pp_layout *l = e->run.layout;
    char hash[65];
    PP_TRY(pp_config_hash(e->run.cfg, hash));
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "config_hash", hash);
    PP_TRY(json_config(&j, e->run.cfg));
    json_layers(&j, &e->run);
    pp_json_array(&j, "stages");
    for (int s = 0; s < l->n_virtual; s++) {
        pp_json_object(&j, NULL);
        pp_json_int(&j, "stage", s);
        pp_json_int(&j, "rank", l->rank_of[s]);
        pp_json_int(&j, "first_layer", l->first[s]);
        pp_json_int(&j, "last_layer", l->last[s]);
        pp_json_str(&j, "first_name", e->run.model->layers[l->first[s]].name);
        pp_json_str(&j, "last_name", e->run.model->layers[l->last[s]].name);
        if (s + 1 < l->n_virtual)
            pp_json_uint(&j, "boundary_bytes", boundary_bytes(l, s));
        pp_json_end(&j);
    }
    pp_json_end(&j);
    pp_json_array(&j, "tied");
    for (int i = 0; i < l->n_ties; i++) {
        const struct pp_param *p;
        pp_json_object(&j, NULL);
        pp_json_str(&j, "layer", tie_of(l, i, &p));
        pp_json_str(&j, "parameter", p->name);
        pp_json_uint(&j, "floats", pp_param_floats(p));
        pp_json_int(&j, "owner_rank", l->rank_of[l->ties[i].owner]);
        pp_json_int(&j, "copy_rank", l->rank_of[l->ties[i].copy]);
        pp_json_end(&j);
    }
    pp_json_end(&j);
    bool recomputes = e->run.cfg->pipeline.recompute[0] != '\0';
    pp_json_str(&j, "recompute", recomputes ? e->run.cfg->pipeline.recompute : "off");
    pp_json_array(&j, "ranks");
    for (int r = 0; r < l->ranks; r++) {
        const struct pp_exec_bytes *b = &e->ranks[r];
        pp_json_object(&j, NULL);
        pp_json_int(&j, "rank", r);
        pp_json_uint(&j, "parameter_bytes", b->parameters);
        pp_json_uint(&j, "packed_bytes", b->packed);
        pp_json_uint(&j, "gradient_bytes", b->gradients);
        pp_json_uint(&j, "optimizer_bytes", b->optimizer);
        pp_json_uint(&j, "activation_bytes", b->activations);
        if (e->other)
            pp_json_uint(&j, recomputes ? "activation_bytes_off" : "activation_bytes_all",
                         e->other[r % l->stages].activations);
        pp_json_uint(&j, "message_bytes", b->messages);
        pp_json_uint(&j, "data_bytes", b->data);
        pp_json_uint(&j, "scratch_bytes", b->scratch);
        pp_json_uint(&j, "peak_bytes", b->total);
        pp_json_end(&j);
    }
    pp_json_end(&j);
    pp_json_int(&j, "train_samples", l->train_n);
    pp_json_int(&j, "test_samples", l->test_n);
    json_rates(&j, e);
    pp_json_int(&j, "microbatch_rows", l->max_rows);
    pp_json_bool(&j, "batch_norm", pp_model_mixes_samples(e->run.model));
    pp_json_bool(&j, "exact", e->run.cfg->train.exact);
    pp_json_int(&j, "coalesce", l->coalesce);
    pp_json_int(&j, "logits_rows", l->logits_rows);
    pp_json_dbl(&j, "bubble_ideal", e->ideal);
    pp_json_dbl(&j, "bubble_flops", e->bubble.idle);
    pp_bubble_json(&e->bubble, &j);
    pp_json_str(&j, "advice", e->advice);
    pp_json_end(&j);
    return 0;
}

int pp_explained_print(const struct pp_explained *e, bool json, FILE *f)
{
    return json ? json_explained(e, f) : print_explained(e, f);
}
