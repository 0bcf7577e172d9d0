/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A benchmark for people: Markdown that reads well in a terminal and can be pasted, and CSV. A row
 * without a passed check shows no speed.
 */
#include <string.h>

#include "bench.h"
#include "table.h"
#include "ppcli/base/base.h"

#define MIB (1024.0 * 1024.0)

/* ---- axes */

/* Those have columns of their own, or are set by the benchmark itself. */
static bool is_own(const char *key)
{
    return strncmp(key, "data.", 5) == 0 ||
           pp_has_word("pipeline.stages pipeline.schedule pipeline.microbatches pipeline.replicas "
                       "run.launch run.transport run.threads run.dir",
                       key);
}

static int differs(const struct pp_bench *b, int key, bool *out)
{
    PP_TAKE(char, first, PP_CONFIG_VALUE_MAX);
    PP_TAKE(char, other, PP_CONFIG_VALUE_MAX);
    *out = false;
    PP_TRY(pp_config_key_value(b->rows[b->added].cfg, key, first, PP_CONFIG_VALUE_MAX));
    for (int i = b->added + 1; i < b->n && !*out; i++) {
        PP_TRY(pp_config_key_value(b->rows[i].cfg, key, other, PP_CONFIG_VALUE_MAX));
        *out = strcmp(first, other) != 0;
    }
    return 0;
}

static int find_axes(const struct pp_bench *b, struct bench_axes *out)
{
    out->n = 0;
    for (int k = 0; k < pp_config_key_count() && out->n < BENCH_AXES_MAX; k++) {
        bool varies = false;
        if (!is_own(pp_config_key_name(k)))
            PP_TRY(differs(b, k, &varies));
        if (varies)
            out->keys[out->n++] = k;
    }
    return 0;
}

/* ---- Markdown */

void bench_print_machine(const struct pp_bench_header *h, FILE *f)
{
    fprintf(f, "ppcli %s (commit %s), %s\n\n", h->version, h->commit, h->date);
    fprintf(f, "- machine: %s, %d core%s usable (%s), governor %s\n", h->cpu, h->cores,
            pp_plural(h->cores), h->binding, h->governor[0] ? h->governor : "unknown");
    fprintf(f, "- backend: %s; BLAS: %s; MPI: %s; GPU: %s\n", h->backend, h->blas, h->mpi, h->gpu);
    if (h->load < 0) {
        fprintf(f, "- load before the start unknown\n");
    } else {
        fprintf(f, "- load %.1f before the start%s\n", h->load,
                h->load >= PP_BENCH_BUSY_LOAD ? ": other work is running, figures will be low"
                                              : "");
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
            b->repeat, pp_plural(b->repeat));
}

static int print_ceilings(const struct pp_ceilings *c, bool device, FILE *f)
{
    char all[32], each[64] = "";
    snprintf(all, sizeof(all), "%d cores at once", c->cores);
    const struct table_column columns[] = {TABLE_LEFT("ceiling", NULL),
                                           TABLE_NUMBER("one core", NULL, "%.1f", 1e-9),
                                           TABLE_NUMBER(all, NULL, "%.1f", 1e-9)};
    struct table t;
    if (c->cores == 0)
        return 0;
    PP_TRY(table_create(&t, device ? 5 : 6, columns, 3));
    for (int i = 0; i < c->fma_cores && i < 4; i++)
        pp_text_add(each, sizeof(each), "%s%.1f", i > 0 ? ", " : "", c->fma_core[i] * 1e-9);
    table_text(&t, "multiply-add in registers (%s), GF/s", c->isa);
    table_text(&t, "%s", each);
    table_number(&t, c->fma_all);
    table_row(&t, 1);
    table_text(&t, "matrix product %d x %d x %d, BLAS library, GF/s", c->gemm_n, c->gemm_n,
               c->gemm_n);
    table_number(&t, c->blas_core);
    table_number(&t, c->blas_all);
    table_row(&t, 2);
    table_text(&t, "the same, ppcli's own products, GF/s");
    if (c->own_core > 0) {
        table_number(&t, c->own_core);
        table_number(&t, c->own_all);
    }
    table_row(&t, 3);
    table_text(&t, "memory, triad of %.0f MiB, GB/s", (double)c->triad_bytes / MIB);
    table_number(&t, c->triad_core);
    table_number(&t, c->triad_all);
    table_row(&t, 4);
    table_text(&t, "core to core, one way, ns");
    table_skip(&t, 1);
    if (c->ping_pong > 0)
        table_text(&t, "%.0f", c->ping_pong * 1e9);
    if (!device) {
        table_row(&t, 5);
        table_text(&t, "GPU");
        table_text(&t, "none");
    }
    fputc('\n', f);
    table_markdown(&t, f);
    table_fini(&t);
    return 0;
}

/* A device of its own. */
static int print_device(const struct pp_device_ceilings *c, FILE *f)
{
    const struct table_column columns[] = {TABLE_LEFT("ceiling of the device", NULL),
                                           TABLE_TEXT(c->name, NULL)};
    struct table t;
    if (!c->name[0])
        return 0;
    PP_TRY(table_create(&t, 7, columns, 2));
    for (int i = 0; i < 3; i++) {
        table_row(&t, i);
        table_text(&t, "matrix product %d x %d x %d, %s, TF/s", c->gemm_n, c->gemm_n, c->gemm_n,
                   pp_precision_name((enum pp_precision)i));
        table_text(&t, "%.1f", c->gemm[i] * 1e-12);
    }
    table_row(&t, 3);
    table_text(&t, "copy of %.0f MiB in its memory, read and written, GB/s",
               (double)c->copy_bytes / MIB);
    table_text(&t, "%.1f", c->copy * 1e-9);
    table_row(&t, 4);
    table_text(&t, "smallest op: enqueued by the host, us");
    table_text(&t, "%.2f", c->launch * 1e6);
    table_row(&t, 5);
    table_text(&t, "smallest op: from one to the next, us");
    table_text(&t, "%.2f", c->op * 1e6);
    table_row(&t, 6);
    table_text(&t, "the same inside a graph of %d, us", c->nodes);
    table_text(&t, c->nodes > 0 ? "%.2f" : "no graphs", c->node * 1e6);
    fputc('\n', f);
    table_markdown(&t, f);
    table_fini(&t);
    return 0;
}

/* ---- rows: one table for all formats */

/* Its ranks waited for a core: these are not the figures of its shape. */
static bool is_spoiled(const struct pp_bench_figures *g)
{
    return g->valid && g->waited >= PP_BUBBLE_WAITED;
}

static void put_figures(struct table *t, const struct pp_bench_row *row,
                        const struct pp_bench_figures *g)
{
    const double figures[] = {g->sps_mean,
                              g->sps_sd,
                              g->step_p50,
                              g->step_p99,
                              row->bubble_ideal,
                              g->bubble_predicted,
                              g->bubble.idle,
                              g->bubble.schedule,
                              g->bubble.imbalance,
                              g->bubble.waiting,
                              g->flops,
                              g->bytes,
                              g->of_peak,
                              g->of_limit,
                              g->bound,
                              (double)row->peak_bytes,
                              g->x1,
                              g->relative,
                              g->waited};
    const bool optional[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                             0, 0, 1, 1, 1, 0, 1, 0, 1}; /* 0: unknown */
    table_text(t, "%s%.0f ± %.0f", is_spoiled(g) ? "! " : "", g->sps_mean, g->sps_sd);
    for (size_t k = 0; k < sizeof(figures) / sizeof(figures[0]); k++)
        if (optional[k] && figures[k] <= 0)
            table_skip(t, 1);
        else
            table_number(t, figures[k]);
    table_text(t, "%s", g->limit);
}

/* The rows, and after t->rows the references, with all that any format shows. */
static int make_table(const struct pp_bench *b, const struct pp_bench_header *h,
                      const struct bench_axes *axes, struct table *t)
{
    static const struct table_column first[] = {
        TABLE_CSV("commit"),
        TABLE_CSV("date"),
        TABLE_CSV("cpu"),
        TABLE_CSV("model"),
        TABLE_NUMBER("stages", "stages", "%.0f", 1),
        TABLE_NUMBER("replicas", "replicas", "%.0f", 1),
        TABLE_NUMBER("threads", "threads", "%.0f", 1),
        TABLE_LEFT("schedule", "schedule"),
        TABLE_NUMBER("micro-batches", "microbatches", "%.0f", 1),
        TABLE_NUMBER(NULL, "batch_size", "%.0f", 1)};
    static const struct table_column last[] = {
        TABLE_TEXT("samples/s", NULL),
        TABLE_NUMBER(NULL, "samples_per_second", "%g", 1),
        TABLE_NUMBER(NULL, "samples_per_second_sd", "%g", 1),
        TABLE_NUMBER("ms/step p50", "step_seconds_p50", TABLE_DIGITS, 1e3),
        TABLE_NUMBER("p99", "step_seconds_p99", TABLE_DIGITS, 1e3),
        TABLE_NUMBER("bubble ideal", "bubble_ideal", "%.1f %%", 100),
        TABLE_NUMBER(NULL, "bubble_predicted", "%g", 1),
        TABLE_NUMBER("measured", "bubble_measured", "%.1f %%", 100),
        TABLE_NUMBER("= schedule", "bubble_schedule", "%.1f", 100),
        TABLE_NUMBER("+ imbalance", "bubble_imbalance", "%.1f", 100),
        TABLE_NUMBER("+ waiting", "bubble_waiting", "%.1f", 100),
        TABLE_NUMBER("GF/s", "flops_per_second", TABLE_DIGITS, 1e-9),
        TABLE_NUMBER("GB/s", "bytes_per_second", TABLE_DIGITS, 1e-9),
        TABLE_NUMBER("of peak", "of_peak", "%.1f %%", 100),
        TABLE_NUMBER(NULL, "of_limit", "%g", 1),
        TABLE_NUMBER("bound", "bound", "%.3f", 1),
        TABLE_NUMBER("peak MiB", "peak_bytes", "%.1f", 1 / MIB),
        TABLE_NUMBER("x1", "x1", "%.3f", 1),
        TABLE_NUMBER("relative", "relative", "%.3f", 1),
        TABLE_NUMBER(NULL, "waited_for_core", "%g", 1),
        TABLE_LEFT("limit", "limit"),
        TABLE_LEFT("check", "check"),
        TABLE_TEXT(NULL, "why")};
    const int n_first = sizeof(first) / sizeof(first[0]), n_last = sizeof(last) / sizeof(last[0]);
    PP_TAKE(char, value, PP_CONFIG_VALUE_MAX);
    PP_TRY(table_create(t, b->n + b->n_references, first, n_first));
    for (int k = 0; k < axes->n; k++) {
        const char *key = pp_config_key_name(axes->keys[k]), *dot = strchr(key, '.');
        const struct table_column axis = {dot ? dot + 1 : key, key, .csv = true};
        table_add(t, &axis, 1);
    }
    table_add(t, last, n_last);
    for (int i = 0; i < t->rows; i++) {
        const struct pp_bench_row *row = i < b->n ? &b->rows[i] : &b->references[i - b->n];
        struct pp_bench_figures g;
        pp_bench_figures(b, row, &g);
        table_row(t, i);
        table_text(t, "%s", h->commit);
        table_text(t, "%s", h->date);
        table_text(t, "%s", h->cpu);
        table_text(t, "%s", h->model);
        table_number(t, row->stages);
        table_number(t, row->replicas);
        table_number(t, row->threads);
        table_text(t, "%s", row->schedule);
        table_number(t, row->microbatches);
        table_number(t, row->batch);
        for (int k = 0; k < axes->n; k++) {
            PP_TRY(pp_config_key_value(row->cfg, axes->keys[k], value, PP_CONFIG_VALUE_MAX));
            table_text(t, "%s", value);
        }
        if (g.valid)
            put_figures(t, row, &g);
        else
            table_skip(t, n_last - 2);
        table_text(t, "%s",
                   row->skipped[0] ? "skipped"
                   : !g.valid      ? "INVALID"
                   : row->exact    ? "ok"
                                   : "~");
        table_text(t, "%s", row->skipped[0] ? row->skipped : row->invalid);
    }
    t->rows = b->n; /* Markdown and CSV have no rows of references */
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

/* What of the same cores pays. */
static void print_fastest(const struct pp_bench *b, FILE *f)
{
    struct pp_bench_figures one, best = {0}, g;
    const struct pp_bench_row *first = b->rows, *row = NULL;
    pp_bench_figures(b, first, &one);
    for (int i = 0; i < b->n; i++) {
        pp_bench_figures(b, &b->rows[i], &g);
        if (g.valid && g.sps_mean > best.sps_mean) {
            best = g;
            row = &b->rows[i];
        }
    }
    if (b->n == 1 || !row || !one.valid)
        return;
    fprintf(f, "- stages x replicas x threads: %d x %d x %d pays", row->stages, row->replicas,
            row->threads);
    if (row == first)
        fprintf(f, ", no other row is faster\n");
    else
        fprintf(f,
                ", row %d has %.2f times the speed of %d x %d x %d; it idles %.1f %% of the time\n",
                (int)(row - first) + 1, best.sps_mean / one.sps_mean, first->stages,
                first->replicas, first->threads, best.bubble.idle * 100);
}

static void print_spoiled(const struct pp_bench *b, int cores, FILE *f)
{
    for (int i = 0; i < b->n; i++) {
        const struct pp_bench_row *row = &b->rows[i];
        struct pp_bench_figures g;
        pp_bench_figures(b, row, &g);
        if (is_spoiled(&g)) {
            fprintf(
                f,
                "- !: %s: row %d (stages %d, %s, micro-batches %d): ranks waited %.0f %% of the "
                "time for a core: do not trust its speed and bubble\n",
                row->ranks * row->threads > cores ? "few cores" : "busy machine", i + 1,
                row->stages, row->schedule, row->microbatches, g.waited * 100);
        }
    }
}

static void print_legend(const struct pp_bench *b, FILE *f)
{
    bool steps = false, inexact = false, above = false;
    for (int i = 0; i < b->n; i++) {
        struct pp_bench_figures g;
        pp_bench_figures(b, &b->rows[i], &g);
        above = above || (g.valid && g.of_peak > 1);
    }
    for (int i = 0; i < b->n; i++) {
        const struct pp_bench_row *row = &b->rows[i];
        bool seen = false;
        inexact = inexact || !row->exact;
        for (int k = 0; k < i && !seen; k++)
            seen = b->rows[k].batch == row->batch && b->rows[k].steps == row->steps;
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
    fprintf(f, "- x1: speed over that of one stage with the same micro-batches and run.threads; "
               "relative: over the "
               "first row; both medians of the rounds\n");
    fprintf(
        f,
        "- bubble: mean idle share of all ranks; measured: the sum of what the schedule idles with "
        "equal stages, what the imbalance of their times adds, and transfers and waiting\n");
    fprintf(f,
            "- bound: the least time that any schedule of these ranks could take with the measured "
            "actions, over the measured time\n");
    if (b->ceilings.cores > 0) {
        fprintf(f,
                "- of peak: arithmetic of the model over the matrix-product rate of min(ranks "
                "x threads, %d) core%s\n",
                b->ceilings.cores, pp_plural(b->ceilings.cores));
        if (above)
            fprintf(f, "- busy machine: rows above 100 %% of peak ran in quieter moments than the "
                       "ceilings: do not trust the ceilings\n");
        fprintf(f, "- limit: the nearer ceiling, matrix product or memory; GB/s: values, weights, "
                   "gradients and optimizer state that a step reads and writes, also in a cache\n");
    }
}

static void print_md(const struct pp_bench *b, const struct table *t, int cores, FILE *f)
{
    fputc('\n', f);
    table_markdown(t, f);
    fputc('\n', f);
    print_reasons(b, f);
    print_spoiled(b, cores, f);
    print_fastest(b, f);
    print_legend(b, f);
}

int pp_bench_print(const struct pp_bench *b, const struct pp_bench_header *h,
                   enum pp_bench_format format, FILE *f)
{
    struct bench_axes axes;
    PP_OWN(table_fini) struct table t = {0};
    PP_TRY(find_axes(b, &axes));
    PP_TRY(make_table(b, h, &axes, &t));
    if (format == PP_BENCH_CSV) {
        table_csv(&t, f);
    } else if (format == PP_BENCH_MD) {
        print_header(b, h, f);
        PP_TRY(print_ceilings(&b->ceilings, b->device.name[0] != '\0', f));
        PP_TRY(print_device(&b->device, f));
        print_md(b, &t, h->cores, f);
    } else {
        PP_TRY(bench_print_json(b, h, &axes, &t, f));
    }
    return bench_written(f);
}

int bench_written(FILE *f)
{
    return fflush(f) != 0 || ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the result") : 0;
}
