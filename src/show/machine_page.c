/* SPDX-License-Identifier: Apache-2.0 */
/* What ppcli estimate found, for programs (--format json) and as a page: the report's own, with the
 * rows above the timeline of the first. */
#include <stdlib.h>
#include <string.h>

#include "draw.h"
#include "ppcli/base/files.h"
#include "ppcli/show/report.h"
#include "ppcli/base/base.h"
#include "results.h"
#include "report.h"

#define DRAWN 20000 /* actions of a picture */
#define MAIN "<main id=\"main\">"

/* ---- JSON */

static void put_row(struct pp_json *j, const struct pp_machine_plan *p,
                    const struct pp_candidate *r)
{
    static const char *const redos[] = {"none", "selective", "full"};
    const struct pp_division *d = &r->d;
    const struct {
        const char *key;
        int value;
    } counts[] = {{"group", r->group},     {"tensor", d->tensor},
                  {"stages", d->stages},   {"replicas", d->replicas},
                  {"context", d->context}, {"expert", d->expert},
                  {"chunks", d->chunks},   {"rows", pp_division_rows(d, p->batch)},
                  {"zero", d->zero}};
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"step_s", r->e.step},
                   {"samples_per_s", p->batch / r->e.step},
                   {"tokens_per_s_per_rank", r->e.tokens},
                   {"mfu", r->e.mfu},
                   {"bubble_schedule", r->e.schedule},
                   {"bubble_cut", r->e.cut},
                   {"bubble_transfer", r->e.transfer},
                   {"tensor_share", r->e.tensor},
                   {"sums_share", r->e.sums}},
      bytes[] = {{"weight_bytes", r->e.weights},
                 {"optimizer_bytes", r->e.optimizer},
                 {"activation_bytes", r->e.activations},
                 {"peak_bytes", r->e.bytes}};
    pp_json_object(j, NULL);
    pp_json_array(j, "trained_by");
    for (int i = 0; i < PP_PLAN_SYSTEMS; i++)
        if (pp_plan_runs_on(r, i))
            pp_json_str(j, NULL, pp_plan_systems[i]);
    pp_json_end(j);
    pp_json_str(j, "schedule", pp_division_schedule(d));
    pp_json_str(j, "recompute", redos[d->redo]);
    pp_json_int(j, "microbatches", d->microbatches);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        pp_json_int(j, counts[i].key, counts[i].value);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        pp_json_dbl(j, numbers[i].key, numbers[i].value);
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
        pp_json_int(j, bytes[i].key, (int64_t)bytes[i].value);
    pp_json_end(j);
}

int report_machine_json(const struct pp_machine_plan *p, FILE *f)
{
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "machine", p->cluster.name);
    pp_json_int(&j, "ranks", p->ranks);
    pp_json_int(&j, "batch", p->batch);
    pp_json_int(&j, "memory_bytes", (int64_t)p->memory);
    pp_json_int(&j, "tried", p->found.tried);
    pp_json_int(&j, "too_large", p->found.too_large);
    if (p->fewer > 0)
        pp_json_int(&j, "faster_with_ranks", p->fewer);
    pp_json_dbl(&j, "group_error", PP_PLAN_ERROR);
    pp_json_array(&j, "rows");
    for (int i = 0; i < p->found.n; i++)
        put_row(&j, p, &p->found.items[i]);
    pp_json_end(&j);
    pp_json_end(&j);
    return ferror(f) ? pp_fail(PP_EIO, "plan: cannot be written") : 0;
}

/* ---- page */

static int draw(const struct pp_plan *plan, const struct pp_sim_costs *costs, void *ctx)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    struct pp_drawing d = {.plan = plan, .result = &result, .costs = costs};
    PP_TRY(pp_sim_run(plan, costs, true, &result));
    return pp_draw_trace(&d, ctx);
}

/* The trace of the first row's step, or, where that would be a large picture, of fewer micro-batches. */
static int draw_first(const void *plan, FILE *f)
{
    const struct pp_machine_plan *p = plan;
    const struct pp_candidate *r = &p->found.items[0];
    int stages = r->d.stages, few = DRAWN / (3 * r->d.chunks * stages) / stages * stages;
    few = few > 2 * stages ? few : 2 * stages;
    if (r->own) {
        struct pp_candidate c = *r;
        c.d.microbatches = c.d.microbatches < few ? c.d.microbatches : few;
        struct pp_best_spec spec = pp_machine_plan_spec(p, r, c.d.microbatches);
        spec.see = draw;
        spec.ctx = f;
        return pp_best_explain(&spec, p->costs, &c, NULL);
    }
    struct pp_estimate_spec spec = pp_machine_plan_estimates(p);
    struct pp_division d = r->d;
    struct pp_estimate e;
    d.microbatches = d.microbatches < few ? d.microbatches : few;
    spec.batch = d.microbatches * pp_division_rows(&r->d, p->batch) * d.replicas;
    spec.see = draw;
    spec.ctx = f;
    return pp_estimate(&spec, &d, false, &e);
}

/* A rank's memory as a bar: weights, gradients with optimizer, activations. */
static void put_memory(const struct pp_machine_plan *p, const struct pp_candidate *r, FILE *f)
{
    const double parts[] = {r->e.weights, r->e.optimizer, r->e.activations};
    static const char *const colours[] = {"--c0", "--c1", "--c2"};
    fputs("<td style=\"min-width:9em\"><div class=\"stack\">", f);
    for (int i = 0; i < 3; i++)
        fprintf(f, "<i style=\"width:%.1f%%;background:var(%s)\"></i>",
                100 * parts[i] / (double)p->memory, colours[i]);
    fprintf(f, "</div>%.1f + %.1f + %.1f GB</td>", parts[0] / 1e9, parts[1] / 1e9, parts[2] / 1e9);
}

static void put_table(const struct pp_machine_plan *p, FILE *f)
{
    char words[256], rate[PP_COUNT_TEXT];
    fprintf(f, "<section id=\"plan\"><h2>%d ranks of ", p->ranks);
    pp_text_xml(p->cluster.name, SIZE_MAX, f);
    fprintf(f, "</h2><div style=\"overflow-x:auto\"><table><tr><th>group<th>division<th>by<th>step"
               "<th>samples/s<th>MFU<th>idle: schedule + cut + transfer"
               "<th>memory: weights + optimizer and gradients + activations</tr>\n");
    for (int i = 0; i < p->found.n; i++) {
        const struct pp_candidate *r = &p->found.items[i];
        fprintf(f, "<tr><td>%d%s<td>", r->group, r->fastest ? " *" : "");
        pp_text_xml(pp_parallel_text(&r->d, p->batch, words, sizeof(words)), SIZE_MAX, f);
        fprintf(f, "<td>%s<td>%.4g s<td>%s<td>%.1f %%<td>%.1f + %.1f + %.1f %%",
                r->own ? "ppcli" : "others", r->e.step, pp_text_commas(p->batch / r->e.step, rate),
                100 * r->e.mfu, 100 * r->e.schedule, 100 * r->e.cut, 100 * r->e.transfer);
        put_memory(p, r, f);
        fputs("</tr>\n", f);
    }
    fputs("</table></div></section>\n", f);
}

/* The table as people read it in a terminal, with the lines that start the first row. */
static int put_words(const struct pp_machine_plan *p, FILE *f)
{
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    const struct pp_candidate *own = pp_machine_plan_first(p, "ppcli");
    if (!out)
        return pp_fail(PP_ERESOURCE, "plan: out of memory");
    pp_machine_plan_rows(p, out);
    int rc = own ? pp_machine_plan_section(p, own, out) : 0;
    int closed = pp_text_close(out, &text, "plan");
    PP_TRY(rc < 0 ? rc : closed);
    fputs("<details><summary>as text, and as a config</summary><pre style=\"overflow-x:auto\">", f);
    pp_text_xml(text, SIZE_MAX, f);
    fputs("</pre></details>\n", f);
    return 0;
}

/* The report's page of the trace, as text. */
static int make_report(const struct pp_machine_plan *p, char **page)
{
    size_t bytes = 0;
    FILE *f = open_memstream(page, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "plan: out of memory");
    int rc = report_write_drawn(draw_first, p, pp_division_schedule(&p->found.items[0].d), f);
    int closed = pp_text_close(f, page, "plan");
    return rc < 0 ? rc : closed;
}

int pp_machine_plan_page(const struct pp_machine_plan *p, const char *path)
{
    PP_OWN(pp_file_abandon) struct pp_file_write w = {.f = NULL};
    PP_OWN_MEMORY char *page = NULL;
    PP_TRY(make_report(p, &page));
    char *at = strstr(page, MAIN), *end = at ? strstr(at, "</main>") : NULL;
    if (!end)
        return pp_fail(PP_EINTERNAL, "plan: the report's page has no place for the table");
    PP_TRY(pp_file_create(path, &w));
    fprintf(w.f, "%.*s<main>\n", (int)(at - page), page);
    put_table(p, w.f);
    PP_TRY(put_words(p, w.f));
    fprintf(w.f, "<div id=\"main\">%.*s</div>%s", (int)(end - at - (int)strlen(MAIN)),
            at + strlen(MAIN), end);
    return pp_file_commit(&w);
}
