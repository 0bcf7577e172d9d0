/* SPDX-License-Identifier: Apache-2.0 */
/* What ppcli estimate found, for people: groups of rows, what is to be said about them, and the first
 * in words that start it. */
#include "results.h"

#include <string.h>

#include "ppcli/base/base.h"
#include "report.h"

const char *const pp_plan_systems[PP_PLAN_SYSTEMS] = {"ppcli", "megatron", "torchtitan",
                                                      "deepspeed"};

bool pp_plan_runs_on(const struct pp_candidate *r, int system)
{
    return system == 0 ? r->own : !r->own && pp_parallel_runs_on(&r->d, pp_plan_systems[system]);
}

/* "-mt-": the systems that train this row. */
static void find_systems(const struct pp_candidate *r, char out[PP_PLAN_SYSTEMS + 1])
{
    for (int i = 0; i < PP_PLAN_SYSTEMS; i++)
        out[i] = pp_plan_runs_on(r, i) ? pp_plan_systems[i][0] : '-';
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

static void print_head(const struct pp_machine_plan *p, FILE *f)
{
    const struct pp_cluster *c = &p->cluster;
    char floats[PP_COUNT_TEXT], units[PP_COUNT_TEXT];
    fprintf(f,
            "%s parameters, %s %s a step, on %d ranks of %s: %.0f a host, %.3g GB each,\n"
            "  %s products at %.0f %% of %.4g Tflop/s",
            pp_text_count((double)pp_model_floats(p->model), floats),
            pp_text_count(count_units(p), units), units_of(p), p->ranks, c->name, c->ranks,
            (double)p->memory / 1e9, p->fp8 ? "fp8" : pp_precision_name(p->cfg->run.precision),
            100 * c->product, (p->fp8 ? c->fp8 : c->peak[p->cfg->run.precision]) / 1e12);
    fprintf(f, "%s%s\n", c->kernels[0] ? "; kernels: " : "", c->kernels);
    if (p->found.tried > 0)
        fprintf(f, "%ld layouts tried; %ld need more than %.3g GB per rank\n", p->found.tried,
                p->found.too_large, (double)p->memory / 1e9);
    if (c->busy > 0)
        fprintf(f,
                "\nbusy machine: %s was measured while other programs used it (load %.1f): do not "
                "trust these times\n",
                c->name, c->busy);
}

/* Of an own row how many chunks, of others which parts of a block are computed again. */
static const char *recompute_of(const struct pp_candidate *r, char out[32])
{
    static const char *const redos[] = {"off", "select", "full"};
    if (r->own)
        return pp_candidate_recompute(r, out);
    return redos[r->d.redo];
}

static void print_row(const struct pp_machine_plan *p, const struct pp_candidate *r, FILE *f)
{
    char who[PP_PLAN_SYSTEMS + 1], schedule[PP_NAME_MAX + 16], rate[PP_COUNT_TEXT], text[32],
        parts[48];
    const struct pp_division *d = &r->d;
    int m = d->microbatches;
    find_systems(r, who);
    snprintf(schedule, sizeof(schedule), d->chunks > 1 ? "%s x%d" : "%s", pp_division_schedule(d),
             d->chunks);
    snprintf(parts, sizeof(parts), "%.1f+%.1f+%.1f", 100 * r->e.schedule, 100 * r->e.cut,
             100 * r->e.transfer);
    fprintf(f, "%2d%c %s %2d %3d %4d %-15s %3d %5d %d %-8s %7.4g %10s %4.1f %-13s %4.3g", r->group,
            r->fastest ? '*' : ' ', who, d->tensor, d->stages, d->replicas, schedule,
            pp_division_rows(d, p->batch), m, d->zero, recompute_of(r, text), r->e.step,
            pp_text_commas(count_units(p) / r->e.step, rate), 100 * r->e.mfu, parts,
            r->e.bytes / 1e9);
    if (d->context > 1)
        fprintf(f, " cp=%d", d->context);
    if (d->expert > 1)
        fprintf(f, " ep=%d", d->expert);
    fputc('\n', f);
}

void pp_machine_plan_rows(const struct pp_machine_plan *p, FILE *f)
{
    print_head(p, f);
    fprintf(f, "\n%3s by   tp  pp   dp %-15s %3s %5s z %-8s %7s %10s %4s %-13s %4s\n", "",
            "schedule", "mbs", "M", "again", "step s",
            p->model->nodes[0].embedding.vocabulary > 0 ? "tokens/s" : "samples/s", "MFU", "idle %",
            "GB");
    for (int i = 0; i < p->found.n; i++)
        print_row(p, &p->found.items[i], f);
    fprintf(f,
            "by: p ppcli, m Megatron-LM, t torchtitan, d DeepSpeed. M micro-batches of `mbs` "
            "samples.\nz: train.zero. again: what is recomputed. idle: schedule + cut + transfer.\n"
            "Rows of a group differ by less than the model's error (%.0f %%): simplest first, * is "
            "fastest.\n",
            100 * PP_PLAN_ERROR);
}

/* ---- what is to be said */

static const struct pp_candidate *fastest_of(const struct pp_machine_plan *p, bool divided)
{
    const struct pp_candidate *best = NULL;
    for (int i = 0; i < p->found.n; i++) {
        const struct pp_candidate *r = &p->found.items[i];
        bool is_divided = r->d.tensor > 1;
        if ((divided ? is_divided : r->own) && (!best || r->e.step < best->e.step))
            best = r;
    }
    return best;
}

/* Numbers of pieces that cut the blocks evenly: "16 or 20 stages divide 80 layers". */
static void print_hints(const struct pp_machine_plan *p, FILE *f)
{
    const struct pp_candidate *with = fastest_of(p, true), *without = fastest_of(p, false);
    int blocks = p->cfg->model.n_layer, shown = 0;
    double gain = with && without ? without->e.step / with->e.step - 1 : 0;
    if (gain > PP_PLAN_ERROR)
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

/* "2*17 1*47": layers of each piece, how often. */
static void print_cut(const struct pp_candidate *c, FILE *f)
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

int pp_machine_plan_section(const struct pp_machine_plan *p, const struct pp_candidate *row,
                            FILE *f)
{
    struct pp_best_spec spec = pp_machine_plan_spec(p, row, row->d.microbatches);
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
    const struct pp_candidate *r = pp_machine_plan_first(p, system);
    if (!r && p->found.n == 1 && !p->found.items[0].own && strcmp(system, "ppcli") != 0)
        r = &p->found.items[0]; /* of --compare: says why it cannot */
    if (!r)
        return pp_fail(PP_ECONFIG, "no row can be run by %s; try --only %s", system, system);
    return r->own && strcmp(system, "ppcli") == 0 ? pp_machine_plan_section(p, r, f)
                                                  : pp_estimate_emit(&spec, &r->d, system, f);
}

static int print_plan(const struct pp_machine_plan *p, FILE *f)
{
    struct pp_estimate_spec spec = pp_machine_plan_estimates(p);
    const struct pp_candidate *own = pp_machine_plan_first(p, "ppcli");
    pp_machine_plan_rows(p, f);
    print_hints(p, f);
    if (!p->found.items[0].own && pp_parallel_runs_on(&p->found.items[0].d, "megatron")) {
        fprintf(f, "\nThe first row for Megatron-LM (--emit has other systems):\n");
        PP_TRY(pp_estimate_emit(&spec, &p->found.items[0].d, "megatron", f));
    }
    if (own && !p->found.items[0].own)
        fprintf(f, "\nThe first row that ppcli trains:\n");
    return own ? pp_machine_plan_section(p, own, f) : 0;
}

int pp_machine_plan_print(const struct pp_machine_plan *p, bool json, FILE *f)
{
    return json ? report_machine_json(p, f) : print_plan(p, f);
}
