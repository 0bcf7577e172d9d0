/* SPDX-License-Identifier: Apache-2.0 */
/* What plan --machine found: a table, and a page with a picture of the best. */
#include <math.h>

#include "ppcli/draw.h"
#include "ppcli/io.h"
#include "ppcli/text.h"
#include "plan.h"

#define DRAWN 20000 /* actions of a picture */

/* Tokens of a text, else samples. */
static double units_of(const struct plan_machine *p, const char **name)
{
    bool text = p->model->nodes[0].vocabulary > 0;
    *name = text ? "tokens" : "samples";
    return text ? p->model->inputs : 1;
}

static void print_rows(const struct plan_machine *p, FILE *f)
{
    const struct pp_cluster *c = &p->cluster;
    const char *name;
    char text[32], floats[PP_COUNT_TEXT], step_units[PP_COUNT_TEXT], rate[PP_COUNT_TEXT + 2];
    double units = units_of(p, &name) * p->batch, peak = c->peak[p->cfg->run.precision];
    double flops = pp_model_flops(p->model) * p->batch; /* nothing computed again */
    fprintf(f,
            "%s parameters, %s %s a step, on %d ranks of %s: %.0f a host, %.3g GB each,\n"
            "  %s products at %.0f %% of %.4g Tflop/s\n"
            "%ld layouts tried; %ld need more than %.3g GB per rank\n\n",
            pp_text_count((double)(p->model->n_floats - p->model->n_tied), floats),
            pp_text_count(units, step_units), name, p->ranks, c->name, c->ranks,
            (double)p->memory / 1e9, pp_precision_name(p->cfg->run.precision), 100 * c->product,
            peak / 1e12, p->tried, p->too_large, (double)p->memory / 1e9);
    if (c->busy > 0)
        fprintf(
            f,
            "busy machine: %s was measured while other programs used it (load %.1f): do not trust "
            "these times\n\n",
            c->name, c->busy);
    fprintf(f, "%3s  %6s %8s %-14s %12s %4s %6s %-9s %9s %11s %5s %6s %7s\n", "", "stages",
            "replicas", "schedule", "microbatches", "rows", "chunks", "recompute", "step s", name,
            "MFU", "bubble", "GB/rank");
    for (int i = 0; i < p->n; i++) {
        const struct plan_machine_row *r = &p->rows[i];
        double step = r->c.time.step;
        int pieces = r->replicas * r->c.microbatches;
        snprintf(rate, sizeof(rate), "%s/s", pp_text_commas(units / step, floats));
        fprintf(f, "%3d  %6d %8d %-14s %12d %4d %6d %-9s %9.4g %11s %4.1f%% %5.1f%% %7.3g\n", i + 1,
                r->c.stages, r->replicas, r->c.schedule, r->c.microbatches,
                (p->batch + pieces - 1) / pieces, r->c.chunks, plan_again(&r->c, text), step, rate,
                100 * flops / (step * p->ranks * peak), fmax(0, 100 * r->c.time.bubble.idle),
                (double)r->c.peak_bytes / 1e9);
    }
}

/* The section of the best for a file. */
static int print_section(const struct plan_machine *p, FILE *f)
{
    const struct plan_machine_row *best = &p->rows[0];
    struct pp_best_spec spec = plan_machine_spec(p, best, best->c.microbatches);
    PP_OWN_MEMORY struct pp_config *cfg = NULL;
    PP_TRY(pp_best_config(spec.cfg, p->model, &best->c, p->costs, &cfg));
    PP_TRY(plan_best_section(cfg, f));
    if (best->c.across)
        fprintf(f, "\n[run]\nrank_order = replicas\n");
    if (pp_model_mixes_samples(p->model))
        fprintf(f, "; batch norm: another number of micro-batches than %d is another training\n",
                best->c.microbatches);
    return 0;
}

int plan_machine_text(const struct plan_machine *p)
{
    print_rows(p, stdout);
    return print_section(p, stdout);
}

/* ---- page */

static int draw(const struct pp_plan *plan, const struct pp_sim_costs *costs, void *ctx)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    struct pp_drawing d = {.plan = plan, .result = &result, .costs = costs};
    PP_TRY(pp_sim_run(plan, costs, true, &result));
    return pp_draw_svg(&d, ctx);
}

/* The best, or, where that would be a large picture, the same with fewer micro-batches. */
static int print_timeline(const struct plan_machine *p, FILE *f)
{
    const struct plan_machine_row *best = &p->rows[0];
    struct pp_candidate c = best->c;
    int few = DRAWN / (3 * c.chunks * c.stages) / c.stages * c.stages;
    few = few > 2 * c.stages ? few : 2 * c.stages;
    c.microbatches = c.microbatches < few ? c.microbatches : few;
    fprintf(f, "<h2>One step%s</h2>\n",
            c.microbatches < best->c.microbatches ? ", with fewer micro-batches" : "");
    struct pp_best_spec spec = plan_machine_spec(p, best, c.microbatches);
    spec.see = draw;
    spec.ctx = f;
    return pp_best_explain(&spec, p->costs, &c, NULL);
}

static void put(const char *text, FILE *f)
{
    for (; *text; text++)
        if (*text == '&' || *text == '<')
            fputs(*text == '&' ? "&amp;" : "&lt;", f);
        else
            fputc(*text, f);
}

static int print_pre(const struct plan_machine *p, FILE *f)
{
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return pp_fail(PP_ERESOURCE, "plan: out of memory");
    print_rows(p, out);
    fputs("\nThe first as a config:\n", out);
    int rc = print_section(p, out);
    int closed = pp_text_close(out, &text, "plan");
    PP_TRY(rc < 0 ? rc : closed);
    fputs("<pre>", f);
    put(text, f);
    fputs("</pre>\n", f);
    return 0;
}

static int print_page(const struct plan_machine *p, FILE *f)
{
    fputs("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>", f);
    put(p->cluster.name, f);
    fprintf(f,
            ", %d ranks</title>\n"
            "<style>body{font:14px system-ui,sans-serif;margin:2em;color-scheme:light dark}"
            "pre{overflow-x:auto}svg{max-width:none}</style>\n<h1>%d ranks of ",
            p->ranks, p->ranks);
    put(p->cluster.name, f);
    fputs("</h1>\n", f);
    PP_TRY(print_pre(p, f));
    PP_TRY(print_timeline(p, f));
    fprintf(f, "</html>\n");
    return 0;
}

int plan_machine_html(const struct plan_machine *p, const char *path)
{
    PP_OWN(pp_file_abandon) struct pp_file_write w = {.f = NULL};
    PP_TRY(pp_file_create(path, &w));
    PP_TRY(print_page(p, w.f));
    return pp_file_commit(&w);
}
