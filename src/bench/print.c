/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A benchmark for people: Markdown that reads well in a terminal and can be pasted, and CSV. A row
 * without a passed check shows no speed.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "table.h"
#include "ppcli/err.h"

#define MIB (1024.0 * 1024.0)
#define BUSY_LOAD 0.5 /* of the last minute: from here on something else is running */

/* --- axes --------------------------------------------------------------------------------------
 */

/* Those have columns of their own, or are set by the benchmark itself. */
static bool is_own(const char *key)
{
    static const char *const own[] = {"pipeline.stages",       "pipeline.schedule",
                                      "pipeline.microbatches", "run.launch",
                                      "run.transport",         "run.dir"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (strcmp(key, own[i]) == 0) {
            return true;
        }
    }
    return strncmp(key, "data.", 5) == 0;
}

static int differs(const struct pp_bench *b, int key, bool *out)
{
    char first[PP_CONFIG_VALUE_MAX], other[PP_CONFIG_VALUE_MAX];
    *out = false;
    PP_TRY(pp_config_key_value(b->rows[0].cfg, key, first, sizeof(first)));
    for (int i = 1; i < b->n && !*out; i++) {
        PP_TRY(pp_config_key_value(b->rows[i].cfg, key, other, sizeof(other)));
        *out = strcmp(first, other) != 0;
    }
    return 0;
}

static int find_axes(const struct pp_bench *b, struct bench_axes *out)
{
    out->n = 0;
    for (int k = 0; k < pp_config_key_count() && out->n < BENCH_AXES_MAX; k++) {
        bool varies = false;
        if (!is_own(pp_config_key_name(k))) {
            PP_TRY(differs(b, k, &varies));
        }
        if (varies) {
            out->keys[out->n++] = k;
        }
    }
    return 0;
}

const char *bench_check_word(const struct pp_bench_row *row, bool valid)
{
    return row->skipped[0] ? "skipped" : !valid ? "INVALID" : row->exact ? "ok" : "~";
}

/* --- Markdown ----------------------------------------------------------------------------------
 */

void bench_print_machine(const struct pp_bench_header *h, FILE *f)
{
    fprintf(f, "ppcli %s (commit %s), %s\n\n", h->version, h->commit, h->date);
    fprintf(f, "- machine: %s, %d core%s usable (%s), governor %s\n", h->cpu, h->cores,
            h->cores == 1 ? "" : "s", h->binding, h->governor[0] ? h->governor : "unknown");
    fprintf(f, "- backend: %s; BLAS: %s; MPI: %s; GPU: %s\n", h->backend, h->blas, h->mpi, h->gpu);
    if (h->load < 0) {
        fprintf(f, "- load before the start unknown\n");
    } else {
        fprintf(f, "- load %.1f before the start%s\n", h->load,
                h->load >= BUSY_LOAD ? ": other work is running, figures will be low" : "");
    }
}

static void print_header(const struct pp_bench *b, const struct pp_bench_header *h, FILE *f)
{
    bench_print_machine(h, f);
    fprintf(f, "- config %s: model %s, data %s, %s\n", h->config, h->model, h->dataset,
            h->optimizer);
    fprintf(f,
            "- %d round%s, every second one backwards; threads and processes are bound to a "
            "core each where there are enough\n",
            b->repeat, b->repeat == 1 ? "" : "s");
}

static int print_ceilings(const struct pp_ceilings *c, bool device, FILE *f)
{
    struct table t;
    char all[32], name[64];
    if (c->cores == 0) {
        return 0;
    }
    PP_TRY(table_create(&t, device ? 5 : 6));
    snprintf(all, sizeof(all), "%d cores at once", c->cores);
    table_column(&t, "ceiling", true);
    table_column(&t, "one core", false);
    table_column(&t, all, false);
    snprintf(name, sizeof(name), "multiply-add in registers (%s), GF/s", c->isa);
    table_cell(&t, 0, 0, "%s", name);
    char each[64] = "";
    for (int i = 0, used = 0; i < c->fma_cores && i < 4; i++) {
        used += snprintf(each + used, sizeof(each) - (size_t)used, "%s%.1f", i > 0 ? ", " : "",
                         c->fma_core[i] * 1e-9);
    }
    table_cell(&t, 0, 1, "%s", each);
    table_cell(&t, 0, 2, "%.1f", c->fma_all * 1e-9);
    table_cell(&t, 1, 0, "matrix product %d x %d x %d, BLAS library, GF/s", c->gemm_n, c->gemm_n,
               c->gemm_n);
    table_cell(&t, 1, 1, "%.1f", c->blas_core * 1e-9);
    table_cell(&t, 1, 2, "%.1f", c->blas_all * 1e-9);
    table_cell(&t, 2, 0, "the same, ppcli's own products, GF/s");
    if (c->own_core > 0) {
        table_cell(&t, 2, 1, "%.1f", c->own_core * 1e-9);
        table_cell(&t, 2, 2, "%.1f", c->own_all * 1e-9);
    }
    table_cell(&t, 3, 0, "memory, triad of %.0f MiB, GB/s", (double)c->triad_bytes / MIB);
    table_cell(&t, 3, 1, "%.1f", c->triad_core * 1e-9);
    table_cell(&t, 3, 2, "%.1f", c->triad_all * 1e-9);
    table_cell(&t, 4, 0, "core to core, one way, ns");
    if (c->ping_pong > 0) {
        table_cell(&t, 4, 2, "%.0f", c->ping_pong * 1e9);
    }
    if (!device) {
        table_cell(&t, 5, 0, "GPU");
        table_cell(&t, 5, 1, "none");
    }
    fputc('\n', f);
    table_markdown(&t, f);
    table_fini(&t);
    return 0;
}

/* A device of its own. */
static int print_device(const struct pp_device_ceilings *c, FILE *f)
{
    struct table t;
    if (!c->name[0]) {
        return 0;
    }
    PP_TRY(table_create(&t, 7));
    table_column(&t, "ceiling of the device", true);
    table_column(&t, c->name, false);
    for (int i = 0; i < 3; i++) {
        table_cell(&t, i, 0, "matrix product %d x %d x %d, %s, TF/s", c->gemm_n, c->gemm_n,
                   c->gemm_n, pp_precision_name((enum pp_precision)i));
        table_cell(&t, i, 1, "%.1f", c->gemm[i] * 1e-12);
    }
    table_cell(&t, 3, 0, "copy of %.0f MiB in its memory, read and written, GB/s",
               (double)c->copy_bytes / MIB);
    table_cell(&t, 3, 1, "%.1f", c->copy * 1e-9);
    table_cell(&t, 4, 0, "smallest op: enqueued by the host, us");
    table_cell(&t, 4, 1, "%.2f", c->launch * 1e6);
    table_cell(&t, 5, 0, "smallest op: from one to the next, us");
    table_cell(&t, 5, 1, "%.2f", c->op * 1e6);
    table_cell(&t, 6, 0, "the same inside a graph of %d, us", c->nodes);
    table_cell(&t, 6, 1, c->nodes > 0 ? "%.2f" : "no graphs", c->node * 1e6);
    fputc('\n', f);
    table_markdown(&t, f);
    table_fini(&t);
    return 0;
}

/* "784.3": about four digits. */
static void put_number(struct table *t, int row, int column, double x)
{
    table_cell(t, row, column, x < 10 ? "%.3f" : x < 100 ? "%.2f" : x < 1000 ? "%.1f" : "%.0f", x);
}

static void put_percent(struct table *t, int row, int column, double x)
{
    table_cell(t, row, column, "%.1f %%", x > -0.0005 && x < 0 ? 0.0 : x * 100);
}

struct columns {
    int stages, schedule, microbatches, axes[BENCH_AXES_MAX];
    int sps, p50, p99, ideal, predicted, measured, peak, bound, mib, x1, relative, check;
};

static const char *short_name(const char *key)
{
    const char *dot = strchr(key, '.');
    return dot ? dot + 1 : key;
}

static void add_columns(struct table *t, const struct bench_axes *axes, struct columns *c)
{
    c->stages = table_column(t, "stages", false);
    c->schedule = table_column(t, "schedule", true);
    c->microbatches = table_column(t, "micro-batches", false);
    for (int i = 0; i < axes->n; i++) {
        c->axes[i] = table_column(t, short_name(pp_config_key_name(axes->keys[i])), false);
    }
    c->sps = table_column(t, "samples/s", false);
    c->p50 = table_column(t, "ms/step p50", false);
    c->p99 = table_column(t, "p99", false);
    c->ideal = table_column(t, "bubble ideal", false);
    c->predicted = table_column(t, "predicted", false);
    c->measured = table_column(t, "measured", false);
    c->peak = table_column(t, "of peak", false);
    c->bound = table_column(t, "bound", false);
    c->mib = table_column(t, "peak MiB", false);
    c->x1 = table_column(t, "x1", false);
    c->relative = table_column(t, "relative", false);
    c->check = table_column(t, "check", true);
}

static void put_figures(struct table *t, int i, const struct columns *c,
                        const struct pp_bench_row *row, const struct pp_bench_figures *g)
{
    table_cell(t, i, c->sps, "%.0f ± %.0f", g->sps_mean, g->sps_sd);
    put_number(t, i, c->p50, g->step_p50 * 1e3);
    put_number(t, i, c->p99, g->step_p99 * 1e3);
    put_percent(t, i, c->ideal, row->bubble_ideal);
    put_percent(t, i, c->predicted, g->bubble_predicted);
    put_percent(t, i, c->measured, g->bubble_measured);
    if (g->of_peak > 0) {
        put_percent(t, i, c->peak, g->of_peak);
    }
    if (g->bound > 0) {
        table_cell(t, i, c->bound, "%.3f", g->bound);
    }
    table_cell(t, i, c->mib, "%.1f", (double)row->peak_bytes / MIB);
    if (g->x1 > 0) {
        table_cell(t, i, c->x1, "%.3f", g->x1);
    }
    table_cell(t, i, c->relative, "%.3f", g->relative);
}

static int fill(const struct pp_bench *b, const struct bench_axes *axes, struct table *t)
{
    struct columns c;
    char value[PP_CONFIG_VALUE_MAX];
    add_columns(t, axes, &c);
    for (int i = 0; i < b->n; i++) {
        const struct pp_bench_row *row = &b->rows[i];
        struct pp_bench_figures g;
        pp_bench_figures(b, row, &g);
        table_cell(t, i, c.stages, "%d", row->stages);
        table_cell(t, i, c.schedule, "%s", row->schedule);
        table_cell(t, i, c.microbatches, "%d", row->microbatches);
        for (int k = 0; k < axes->n; k++) {
            PP_TRY(pp_config_key_value(row->cfg, axes->keys[k], value, sizeof(value)));
            table_cell(t, i, c.axes[k], "%s", value);
        }
        table_cell(t, i, c.check, "%s", bench_check_word(row, g.valid));
        if (g.valid) {
            put_figures(t, i, &c, row, &g);
        }
    }
    return 0;
}

static void print_reasons(const struct pp_bench *b, FILE *f)
{
    for (int i = 0; i < b->n; i++) {
        const struct pp_bench_row *row = &b->rows[i];
        const char *why = row->skipped[0] ? row->skipped : row->invalid;
        if (why[0]) {
            fprintf(f, "- %s: row %d (stages %d, %s, micro-batches %d): %s\n",
                    row->skipped[0] ? "skipped" : "INVALID", i + 1, row->stages, row->schedule,
                    row->microbatches, why);
        }
    }
}

static void print_legend(const struct pp_bench *b, FILE *f)
{
    bool steps = false, inexact = false;
    for (int i = 0; i < b->n; i++) {
        const struct pp_bench_row *row = &b->rows[i];
        bool seen = false;
        inexact = inexact || !row->exact;
        for (int k = 0; k < i && !seen; k++) {
            seen = b->rows[k].batch == row->batch && b->rows[k].steps == row->steps;
        }
        if (!seen && row->steps > 0) {
            fprintf(f, "%s batch %d: %lld steps after %lld of warm-up", steps ? ";" : "-",
                    row->batch, (long long)row->steps, (long long)row->warmup);
            steps = true;
        }
    }
    fprintf(f,
            "%s- check: the weights at the end are those of the run with one stage, bit for "
            "bit, in every round%s\n",
            steps ? "\n" : "", inexact ? "; ~: the last loss is within 1e-4 of its" : "");
    fprintf(f, "- x1: speed over that of one stage with the same micro-batches; relative: over the "
               "first row; both medians of the rounds\n");
    fprintf(f, "- bubble: idle part of all ranks' time; predicted: simulated with the measured "
               "times and free hand-overs\n");
    fprintf(f,
            "- bound: the least time that any schedule of these ranks could take with the measured "
            "actions, over the measured time\n");
    if (b->ceilings.cores > 0) {
        fprintf(f,
                "- of peak: arithmetic of the model over the matrix-product rate of min(ranks, "
                "%d) core%s\n",
                b->ceilings.cores, b->ceilings.cores == 1 ? "" : "s");
    }
}

static int print_md(const struct pp_bench *b, const struct pp_bench_header *h,
                    const struct bench_axes *axes, FILE *f)
{
    struct table t;
    print_header(b, h, f);
    PP_TRY(print_ceilings(&b->ceilings, b->device.name[0] != '\0', f));
    PP_TRY(print_device(&b->device, f));
    PP_TRY(table_create(&t, b->n));
    int rc = fill(b, axes, &t);
    if (rc == 0) {
        fputc('\n', f);
        table_markdown(&t, f);
        fputc('\n', f);
        print_reasons(b, f);
        print_legend(b, f);
    }
    table_fini(&t);
    return rc;
}

/* --- CSV ---------------------------------------------------------------------------------------
 */

static void csv_row(struct table *t, int i, const struct pp_bench *b,
                    const struct pp_bench_header *h, const struct pp_bench_row *row)
{
    struct pp_bench_figures g;
    int c = 0;
    pp_bench_figures(b, row, &g);
    table_cell(t, i, c++, "%s", h->commit);
    table_cell(t, i, c++, "%s", h->date);
    table_cell(t, i, c++, "%s", h->cpu);
    table_cell(t, i, c++, "%s", h->model);
    table_cell(t, i, c++, "%d", row->stages);
    table_cell(t, i, c++, "%d", row->replicas);
    table_cell(t, i, c++, "%s", row->schedule);
    table_cell(t, i, c++, "%d", row->microbatches);
    table_cell(t, i, c++, "%d", row->batch);
    table_cell(t, i, c++, "%s", bench_check_word(row, g.valid));
    table_cell(t, i, c++, "%s", row->skipped[0] ? row->skipped : row->invalid);
    if (!g.valid) {
        return;
    }
    const double values[] = {g.sps_mean,
                             g.sps_sd,
                             g.step_p50,
                             g.step_p99,
                             row->bubble_ideal,
                             g.bubble_predicted,
                             g.bubble_measured,
                             g.of_peak,
                             g.bound,
                             (double)row->peak_bytes,
                             g.x1,
                             g.relative};
    for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
        table_cell(t, i, c++, "%.17g", values[k]);
    }
}

static int print_csv(const struct pp_bench *b, const struct pp_bench_header *h,
                     const struct bench_axes *axes, FILE *f)
{
    static const char *const names[] = {"commit",
                                        "date",
                                        "cpu",
                                        "model",
                                        "stages",
                                        "replicas",
                                        "schedule",
                                        "microbatches",
                                        "batch_size",
                                        "check",
                                        "why",
                                        "samples_per_second",
                                        "samples_per_second_sd",
                                        "step_seconds_p50",
                                        "step_seconds_p99",
                                        "bubble_ideal",
                                        "bubble_predicted",
                                        "bubble_measured",
                                        "of_peak",
                                        "bound",
                                        "peak_bytes",
                                        "x1",
                                        "relative"};
    struct table t;
    char value[PP_CONFIG_VALUE_MAX];
    int rc = 0;
    PP_TRY(table_create(&t, b->n));
    for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
        table_column(&t, names[k], true);
    }
    for (int i = 0; i < b->n; i++) {
        csv_row(&t, i, b, h, &b->rows[i]);
    }
    for (int k = 0; rc == 0 && k < axes->n; k++) {
        int at = table_column(&t, pp_config_key_name(axes->keys[k]), true);
        for (int i = 0; rc == 0 && i < b->n; i++) {
            rc = pp_config_key_value(b->rows[i].cfg, axes->keys[k], value, sizeof(value));
            table_cell(&t, i, at, "%s", rc == 0 ? value : "");
        }
    }
    if (rc == 0) {
        table_csv(&t, f);
    }
    table_fini(&t);
    return rc;
}

int pp_bench_print(const struct pp_bench *b, const struct pp_bench_header *h,
                   enum pp_bench_format format, FILE *f)
{
    static int (*const print[])(const struct pp_bench *, const struct pp_bench_header *,
                                const struct bench_axes *, FILE *) = {
        [PP_BENCH_MD] = print_md,
        [PP_BENCH_JSON] = bench_print_json,
        [PP_BENCH_JSONL] = bench_print_jsonl,
        [PP_BENCH_CSV] = print_csv,
    };
    struct bench_axes axes;
    PP_TRY(find_axes(b, &axes));
    PP_TRY(print[format](b, h, &axes, f));
    return fflush(f) != 0 || ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the result") : 0;
}
