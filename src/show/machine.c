/* SPDX-License-Identifier: Apache-2.0 */
/* What ppcli estimate found: its columns, remarks, the first row in words that start it, and a
 * page. */
#include "results.h"

#include <string.h>

#include "draw.h"
#include "ppcli/base/files.h"

#include "ppcli/base/base.h"
#include "report.h"

#define DRAWN 20000 /* actions of a picture */

const char *const pp_plan_systems[PP_PLAN_SYSTEMS] = {"ppcli", "megatron", "torchtitan",
                                                      "deepspeed"};

static bool runs_on(const struct pp_row *r, int system)
{
    return system == 0 ? r->own : !r->own && pp_parallel_runs_on(&r->d, pp_plan_systems[system]);
}

/* Writes which systems can train this row, a letter for each, or '-' for one that cannot:
 * "-mt-". */
static void find_systems(const struct pp_row *r, char out[PP_PLAN_SYSTEMS + 1])
{
    for (int i = 0; i < PP_PLAN_SYSTEMS; i++)
        out[i] = runs_on(r, i) ? pp_plan_systems[i][0] : '-';
    out[PP_PLAN_SYSTEMS] = '\0';
}

/* ---- the table */

static const char *units_of(const struct pp_machine_plan *p)
{
    return p->model->nodes[0].embedding.vocabulary > 0 ? "tokens" : "samples";
}

static double count_units(const struct pp_machine_plan *p)
{
    return (p->model->nodes[0].embedding.vocabulary > 0 ? p->model->inputs : 1) * (double)p->batch;
}

static void print_machine_head(const struct pp_machine_plan *p, FILE *f)
{
    const struct pp_cluster *c = &p->cluster;
    char floats[PP_COUNT_TEXT], units[PP_COUNT_TEXT];
    fprintf(f,
            "%s parameters, %s %s a step, on %d ranks of %s: %.0f a host, %.3g GB each,\n"
            "  %s products at %.0f %% of %.4g Tflop/s",
            pp_text_count(p->parameters, floats), pp_text_count(count_units(p), units), units_of(p),
            p->ranks, c->name, c->ranks, (double)p->space.memory / 1e9,
            p->fp8 ? "fp8" : pp_precision_name(p->cfg->run.precision), 100 * c->product,
            (p->fp8 ? c->fp8 : c->peak[p->cfg->run.precision]) / 1e12);
    fprintf(f, "%s%s\n", c->kernels[0] ? "; kernels: " : "", c->kernels);
    if (p->found.tried > 0)
        fprintf(f, "%ld layouts tried; %ld need more than %.3g GB per rank\n", p->found.tried,
                p->found.too_large, (double)p->space.memory / 1e9);
    if (c->busy > 0)
        fprintf(f,
                "\nbusy machine: %s was measured while other programs used it (load %.1f): do not "
                "trust these times\n",
                c->name, c->busy);
}

/* ---- rows */

struct machine_row {
    struct pp_estimate e;
    const struct pp_row *of;
    const char *schedule, *recompute;
    struct pp_division d;
    int group, rows;
    double samples_per_second;
    int64_t weights, optimizer, activations, bytes;
    /* as people read it */
    char number[16], by[PP_PLAN_SYSTEMS + 1], order[PP_NAME_MAX + 16], redo[32], idle[48], more[32];
    double units_per_second;
    char division[256];
};

struct machine_rows {
    const struct pp_machine_plan *p;
    const char *machine;
    int ranks, batch, fewer;
    int64_t memory, tried, too_large;
    double error;
    struct pp_listing rows;
    const char *text; /* of a page: the table and the first own row as a config */
};

static void put_systems(const void *row, const char *key, struct pp_json *j)
{
    const struct machine_row *r = row;
    pp_json_array(j, key);
    for (int i = 0; i < PP_PLAN_SYSTEMS; i++)
        if (runs_on(r->of, i))
            pp_json_str(j, NULL, pp_plan_systems[i]);
    pp_json_end(j);
}

#define ROW(m) PP_FIELD(struct machine_row, m)
static const struct pp_column columns[] = {
    {NULL, "", ROW(number), .right = true},
    {NULL, "by", ROW(by)},
    {"trained_by", .put = put_systems, .type = "texts", .help = "systems that can run it"},
    {"schedule", ROW(schedule), .help = "the division"},
    {"recompute", ROW(recompute), .help = "what is recomputed within a block"},
    {"division", ROW(division), .help = "the division as --compare reads it"},
    {"group", ROW(group), .help = "rows of a group differ by less than `group_error`; from 1"},
    {"tensor", "tp", ROW(d.tensor), .help = "ranks that share a layer"},
    {"stages", "pp", ROW(d.stages), .help = "ranks of a pipeline"},
    {"replicas", "dp", ROW(d.replicas), .help = "pipelines"},
    {"context", ROW(d.context), .help = "ranks that share a sequence"},
    {"expert", ROW(d.expert), .help = "ranks that share the experts"},
    {"chunks", ROW(d.chunks), .help = "chunks of a rank"},
    {NULL, "schedule", ROW(order)},
    {"rows", "mbs", ROW(rows), .help = "samples of a micro-batch"},
    {"microbatches", "M", ROW(d.microbatches), .help = "micro-batches of a step"},
    {"zero", "z", ROW(d.zero), .help = "as train.zero"},
    {NULL, "recompute", ROW(redo)},
    {"step_s", "step s", "%.4g", 1, "seconds of a step", ROW(e.step)},
    {"samples_per_s", ROW(samples_per_second), .help = "of all ranks"},
    {NULL, "samples/s", PP_COMMAS, 1, NULL, ROW(units_per_second)},
    {"tokens_per_s_per_rank", ROW(e.tokens), .help = "samples, where the data are not texts"},
    {"mfu", "MFU", "%.1f", 100, "share of the peak; what is recomputed does not count", ROW(e.mfu)},
    {NULL, "idle %", ROW(idle)},
    {"bubble_schedule", ROW(e.schedule), .help = "idle shares of the ranks' time"},
    {"bubble_cut", ROW(e.cut)},
    {"bubble_transfer", ROW(e.transfer)},
    {"tensor_share", ROW(e.tensor), .help = "share of messages of tensor parallelism"},
    {"sums_share", ROW(e.sums), .help = "share of the sums over replicas"},
    {"weight_bytes", ROW(weights), .help = "weights of the largest rank"},
    {"optimizer_bytes", ROW(optimizer), .help = "its gradients and optimizer state"},
    {"activation_bytes", ROW(activations), .help = "its activations"},
    {"peak_bytes", "GB", "%.3g", 1e-9, "all of its memory", ROW(bytes)},
    {NULL, "", ROW(more)},
    {0}};

PP_HAS(knows_fewer, struct machine_rows, row->fewer > 0)

#define RESULT(m) PP_FIELD(struct machine_rows, m)
const struct pp_column pp_machine_columns[] = {
    PP_SCHEMA(1),
    {"machine", RESULT(machine), .help = "name of the machine file"},
    {"ranks", RESULT(ranks), .help = "ranks that a row may use"},
    {"batch", RESULT(batch), .help = "samples of a step"},
    {"memory_bytes", RESULT(memory), .help = "memory of a rank that a row may fill"},
    {"tried", RESULT(tried), .help = "divisions that were looked at"},
    {"too_large", RESULT(too_large), .help = "divisions that need more memory"},
    {"faster_with_ranks", RESULT(fewer), .has = knows_fewer,
     .help = "fewer ranks that take less time for a step"},
    {"group_error", RESULT(error), .help = "error of the model, as a part of a step"},
    {"rows", RESULT(rows), .inner = columns, .help = "best first"},
    {"text", RESULT(text), .optional = true, .help = "of a page only: all of it as text"},
    {0}};

/* Sets the fields of a row that are texts for people. */
static void set_texts(const struct pp_machine_plan *p, const struct pp_row *r,
                      struct machine_row *out)
{
    static const char *const redos[] = {"off", "select", "full"};
    char text[32];
    find_systems(r, out->by);
    snprintf(out->number, sizeof(out->number), "%d%c", r->group, r->fastest ? '*' : ' ');
    snprintf(out->order, sizeof(out->order), r->d.chunks > 1 ? "%s x%d" : "%s", out->schedule,
             r->d.chunks);
    snprintf(out->redo, sizeof(out->redo), "%s",
             r->own ? pp_candidate_recompute(r, text) : redos[r->d.redo]);
    snprintf(out->idle, sizeof(out->idle), "%.1f+%.1f+%.1f", 100 * r->e.schedule, 100 * r->e.cut,
             100 * r->e.transfer + 1e-9);
    if (r->d.context > 1)
        snprintf(out->more, sizeof(out->more), "cp=%d", r->d.context);
    if (r->d.expert > 1)
        pp_text_add(out->more, sizeof(out->more), "%sep=%d", out->more[0] ? " " : "", r->d.expert);
    pp_parallel_text(&r->d, p->batch, out->division, sizeof(out->division));
}

static void make_machine_row(const struct pp_machine_plan *p, const struct pp_row *r,
                             struct machine_row *out)
{
    static const char *const redos[] = {"none", "selective", "full"};
    const struct pp_division *d = &r->d;
    *out = (struct machine_row){.e = r->e,
                                .of = r,
                                .schedule = pp_division_schedule(d),
                                .recompute = redos[d->redo],
                                .d = *d,
                                .group = r->group,
                                .rows = pp_division_rows(d, p->batch),
                                .samples_per_second = p->batch / r->e.step,
                                .units_per_second = count_units(p) / r->e.step,
                                .weights = (int64_t)r->e.weights,
                                .optimizer = (int64_t)r->e.optimizer,
                                .activations = (int64_t)r->e.activations,
                                .bytes = (int64_t)r->e.bytes};
    set_texts(p, r, out);
}

/* Makes rows[p->found.n], one for each plan found, and returns them with what is printed once for
 * all. */
static struct machine_rows make_machine_rows(const struct pp_machine_plan *p,
                                             struct machine_row *rows)
{
    for (int i = 0; i < p->found.n; i++)
        make_machine_row(p, &p->found.items[i], &rows[i]);
    return (struct machine_rows){.p = p,
                                 .machine = p->cluster.name,
                                 .ranks = p->ranks,
                                 .batch = p->batch,
                                 .fewer = p->fewer,
                                 .memory = (int64_t)p->space.memory,
                                 .tried = p->found.tried,
                                 .too_large = p->found.too_large,
                                 .error = PP_PLAN_ERROR,
                                 .rows = {rows, sizeof(*rows), p->found.n}};
}

static void print_rows(const struct machine_rows *r, FILE *f)
{
    struct pp_column shown[sizeof(columns) / sizeof(columns[0])];
    memcpy(shown, columns, sizeof(columns));
    for (struct pp_column *c = shown; c->key || c->title; c++)
        if (c->format && strcmp(c->format, PP_COMMAS) == 0)
            c->title = units_of(r->p)[0] == 't' ? "tokens/s" : "samples/s";
    print_machine_head(r->p, f);
    fputc('\n', f);
    pp_listing_print(shown, &r->rows, PP_LISTING_TEXT, 0, f);
    fprintf(f,
            "by: p ppcli, m Megatron-LM, t torchtitan, d DeepSpeed. M micro-batches of `mbs` "
            "samples.\nz: train.zero. idle: schedule + cut + transfer.\n"
            "Rows of a group differ by less than the model's error (%.0f %%): simplest first, * is "
            "fastest.\n",
            100 * PP_PLAN_ERROR);
    if (r->p->found.n > 0 && r->p->found.items[0].over)
        fprintf(f, "It does not fit: it takes %.4g GB of a rank that may hold %.4g GB.\n",
                r->p->found.items[0].e.bytes / 1e9, (double)r->p->space.memory / 1e9);
}

/* ---- what is to be said */

static const struct pp_row *fastest_of(const struct pp_machine_plan *p, bool divided)
{
    const struct pp_row *best = NULL;
    for (int i = 0; i < p->found.n; i++) {
        const struct pp_row *r = &p->found.items[i];
        bool is_divided = r->d.tensor > 1;
        if ((divided ? is_divided : r->own) && (!best || r->e.step < best->e.step))
            best = r;
    }
    return best;
}

/* Prints hints: whether tensor parallelism or fewer ranks would be faster, and which numbers of
 * pieces cut the blocks evenly ("16 or 20 stages divide 80 layers"). */
static void print_hints(const struct pp_machine_plan *p, FILE *f)
{
    const struct pp_row *with = fastest_of(p, true), *without = fastest_of(p, false);
    int blocks = p->cfg->model.n_layer, shown = 0;
    double gain = with && without ? without->e.step / with->e.step - 1 : 0;
    if (with && without && gain > PP_PLAN_ERROR)
        fprintf(
            f,
            "Tensor parallelism (tp %d x pp %d) gains %.0f %% over ppcli's best, pp %d x dp %d.\n",
            with->d.tensor, with->d.stages, 100 * gain, without->d.stages, without->d.replicas);
    if (p->fewer > 0)
        fprintf(f, "Fewer ranks are faster: %d take %.4g s a step; try --ranks %d.\n", p->fewer,
                p->fewer_step, p->fewer);
    if (p->found.n == 0 || !pp_estimate_takes(p->cfg) || p->found.items[0].e.cut < 0.03)
        return;
    for (int n = 2; n <= blocks && n <= p->ranks && shown < 6; n++)
        if (blocks % n == 0 && p->ranks % n == 0)
            fprintf(f, "%s%d", shown++ ? " or " : "Uneven cut: ", n);
    if (shown)
        fprintf(f, " stages divide %d blocks.\n", blocks);
}

/* Prints the cut as "2*17 1*47": the layers of a piece, times the number of such pieces in a
 * row. */
static void print_cut(const struct pp_row *c, FILE *f)
{
    int n = c->d.stages * c->d.chunks, column = 0;
    fprintf(f, "; layers of each piece, times pieces: ");
    for (int v = 0, end; v < n && n > 1; v = end) {
        int size = c->d.last[v] - (v > 0 ? c->d.last[v - 1] : -1);
        for (end = v + 1; end < n && c->d.last[end] - c->d.last[end - 1] == size;)
            end++;
        column += fprintf(f, "%s%d*%d", v > 0 ? " " : "", size, end - v);
        if (column > 50 && end < n)
            column = fprintf(f, "\n;  ") * 0;
    }
    fprintf(f, "\n");
}

static int print_section(const struct pp_machine_plan *p, const struct pp_row *row, FILE *f)
{
    struct pp_space spec = pp_machine_plan_spec(p, row, row->d.microbatches);
    PP_TAKE(struct pp_division, d, 1);
    PP_TAKE(int64_t, ticks, PP_NUMBERS_MAX);
    PP_TRY(pp_best_division(&spec, p->costs, row, ticks, d));
    fprintf(f, "\n");
    if (row->d.stages * row->d.chunks > 1 && row->timed)
        print_cut(row, f);
    PP_TRY(pp_division_print(d, p->model, p->cfg, f));
    if (row->d.zero != p->cfg->train.zero)
        fprintf(f, "\n[train]\nzero = %d\n", row->d.zero);
    if (row->d.across)
        fprintf(f, "\n[run]\nrank_order = replicas\n");
    if (pp_model_mixes_samples(p->model))
        fprintf(f, "; batch norm: another number of micro-batches than %d is another training\n",
                row->d.microbatches);
    return 0;
}

int pp_machine_plan_emit(const struct pp_machine_plan *p, const char *system, FILE *f)
{
    struct pp_estimate_spec spec = pp_machine_plan_estimates(p);
    const struct pp_row *r = pp_machine_plan_first(p, system);
    if (!r && p->found.n == 1 && !p->found.items[0].own && strcmp(system, "ppcli") != 0)
        r = &p->found.items[0]; /* of --compare: says why it cannot */
    if (!r)
        return pp_fail(PP_ECONFIG, "no row can be run by %s; try --only %s", system, system);
    return r->own && strcmp(system, "ppcli") == 0 ? print_section(p, r, f)
                                                  : pp_estimate_emit(&spec, &r->d, system, f);
}

static int print_plan(const struct machine_rows *rows, FILE *f)
{
    const struct pp_machine_plan *p = rows->p;
    struct pp_estimate_spec spec = pp_machine_plan_estimates(p);
    const struct pp_row *own = pp_machine_plan_first(p, "ppcli");
    print_rows(rows, f);
    print_hints(p, f);
    if (!p->found.items[0].own && pp_parallel_runs_on(&p->found.items[0].d, "megatron")) {
        fprintf(f, "\nThe first row for Megatron-LM (--emit has other systems):\n");
        PP_TRY(pp_estimate_emit(&spec, &p->found.items[0].d, "megatron", f));
    }
    if (own && !p->found.items[0].own)
        fprintf(f, "\nThe first row that ppcli trains:\n");
    return own ? print_section(p, own, f) : 0;
}

int pp_machine_plan_print(const struct pp_machine_plan *p, bool json, FILE *f)
{
    PP_TAKE(struct machine_row, items, p->found.n);
    struct machine_rows rows = make_machine_rows(p, items);
    if (!json)
        return print_plan(&rows, f);
    pp_document_json(pp_machine_columns, &rows, f);
    return ferror(f) ? pp_fail(PP_EIO, "plan: cannot be written") : 0;
}

/* ---- page */

static int draw_plan(const struct pp_plan *plan, const struct pp_sim_costs *costs, void *ctx)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    struct pp_drawing d = {.plan = plan, .result = &result, .costs = costs};
    PP_TRY(pp_sim_run(plan, costs, true, &result));
    return pp_draw_trace(&d, ctx);
}

/* Returns how many micro-batches of a row's step are drawn: fewer if the picture would be large. */
static int count_drawn(const struct pp_row *r)
{
    int stages = r->d.stages, few = DRAWN / (3 * r->d.chunks * stages) / stages * stages;
    return PP_MIN(r->d.microbatches, PP_MAX(few, 2 * stages));
}

/* Draws the trace of the first row's step. */
static int draw_first(const void *plan, FILE *f)
{
    const struct pp_machine_plan *p = plan;
    const struct pp_row *r = &p->found.items[0];
    if (r->own) {
        struct pp_row c = *r;
        c.d.microbatches = count_drawn(r);
        struct pp_space spec = pp_machine_plan_spec(p, r, c.d.microbatches);
        spec.see = draw_plan;
        spec.ctx = f;
        return pp_best_explain(&spec, p->costs, &c, NULL);
    }
    struct pp_estimate_spec spec = pp_machine_plan_estimates(p);
    struct pp_division d = r->d;
    struct pp_estimate e;
    d.microbatches = count_drawn(r);
    spec.batch = d.microbatches * pp_division_rows(&r->d, p->batch) * d.replicas;
    spec.see = draw_plan;
    spec.ctx = f;
    return pp_estimate(&spec, &d, false, &e);
}

/* Prints the table for a terminal, and the lines of a config for the first row that ppcli itself
 * can run. */
static int print_machine_text(const void *rows, FILE *f)
{
    const struct machine_rows *r = rows;
    const struct pp_row *own = pp_machine_plan_first(r->p, "ppcli");
    print_rows(r, f);
    return own ? print_section(r->p, own, f) : 0;
}

static int print_machine_json(const void *rows, FILE *f)
{
    pp_document_json(pp_machine_columns, rows, f);
    return 0;
}

struct page {
    const struct pp_machine_plan *p;
    const char *rows; /* JSON */
};

static int write_page(const void *page, FILE *f)
{
    const struct page *g = page;
    const struct pp_row *r = &g->p->found.items[0];
    char name[2 * PP_NAME_MAX];
    snprintf(name, sizeof(name), "%s", pp_division_schedule(&r->d));
    if (count_drawn(r) < r->d.microbatches)
        pp_text_add(name, sizeof(name), ", a step of %d of the %d micro-batches", count_drawn(r),
                    r->d.microbatches);
    return report_write_drawn(draw_first, g->p, name, g->rows, f);
}

int pp_machine_plan_page(const struct pp_machine_plan *p, const char *path)
{
    PP_TAKE(struct machine_row, items, p->found.n);
    PP_OWN_MEMORY char *text = NULL;
    PP_OWN_MEMORY char *json = NULL;
    struct machine_rows rows = make_machine_rows(p, items);
    PP_TRY(report_draw_text(print_machine_text, &rows, &text));
    rows.text = text;
    PP_TRY(report_draw_text(print_machine_json, &rows, &json));
    return pp_file_draw(path, write_page, &(struct page){p, json});
}
