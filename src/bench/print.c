/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A benchmark for people: Markdown that reads well in a terminal and can be pasted, and CSV. A row
 * without a passed check shows no speed.
 */
#include <string.h>

#include "bench.h"
#include "ppcli/base/base.h"

#define MIB (1024.0 * 1024.0)

/* ---- axes */

/* Returns whether the table has a column for the key, or the benchmark sets the key itself. */
static bool has_own_column(const char *key)
{
    return strncmp(key, "data.", 5) == 0 ||
           pp_has_word("pipeline.stages pipeline.schedule pipeline.microbatches pipeline.replicas "
                       "run.launch run.transport run.threads run.dir",
                       key);
}

static int find_difference(const struct pp_bench *b, int key, bool *out)
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
        if (!has_own_column(pp_config_key_name(k)))
            PP_TRY(find_difference(b, k, &varies));
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

/* A row of the tables of ceilings. */
struct ceiling_row {
    char what[96], one[64], all[32];
};

static void print_rate(char out[32], double x, double scale)
{
    snprintf(out, 32, "%.1f", x * scale);
}

static void print_ceilings(const struct pp_ceilings *c, bool device, FILE *f)
{
    char all[32];
    const struct pp_column columns[] = {
        {NULL, "ceiling", PP_FIELD(struct ceiling_row, what)},
        {NULL, "one core", PP_FIELD(struct ceiling_row, one), .right = true},
        {NULL, all, PP_FIELD(struct ceiling_row, all), .right = true},
        {0}};
    struct ceiling_row rows[6] = {{.what = ""},
                                  {.what = ""},
                                  {.what = "the same, ppcli's own products, GF/s"},
                                  {.what = ""},
                                  {.what = "core to core, one way, ns"},
                                  {.what = "GPU", .one = "none"}};
    if (c->cores == 0)
        return;
    snprintf(all, sizeof(all), "%d cores at once", c->cores);
    snprintf(rows[0].what, 96, "multiply-add in registers (%s), GF/s", c->isa);
    for (int i = 0; i < c->fma_cores && i < 4; i++)
        pp_text_add(rows[0].one, 64, "%s%.1f", i > 0 ? ", " : "", c->fma_core[i] * 1e-9);
    print_rate(rows[0].all, c->fma_all, 1e-9);
    snprintf(rows[1].what, 96, "matrix product %d x %d x %d, BLAS library, GF/s", c->gemm_n,
             c->gemm_n, c->gemm_n);
    print_rate(rows[1].one, c->blas_core, 1e-9);
    print_rate(rows[1].all, c->blas_all, 1e-9);
    if (c->own_core > 0) {
        print_rate(rows[2].one, c->own_core, 1e-9);
        print_rate(rows[2].all, c->own_all, 1e-9);
    }
    snprintf(rows[3].what, 96, "memory, triad of %.0f MiB, GB/s", (double)c->triad_bytes / MIB);
    print_rate(rows[3].one, c->triad_core, 1e-9);
    print_rate(rows[3].all, c->triad_all, 1e-9);
    if (c->ping_pong > 0)
        snprintf(rows[4].all, 32, "%.0f", c->ping_pong * 1e9);
    fputc('\n', f);
    pp_listing_print(columns, &(struct pp_listing){rows, sizeof(*rows), device ? 5 : 6},
                     PP_LISTING_MARKDOWN, 0, f);
}

/* Prints the ceilings of a device that has its own memory, if there is one. */
static void print_device(const struct pp_device_ceilings *c, FILE *f)
{
    const struct pp_column columns[] = {
        {NULL, "ceiling of the device", PP_FIELD(struct ceiling_row, what)},
        {NULL, c->name, PP_FIELD(struct ceiling_row, one), .right = true},
        {0}};
    struct ceiling_row rows[7] = {[4] = {.what = "smallest op: enqueued by the host, us"},
                                  [5] = {.what = "smallest op: from one to the next, us"}};
    if (!c->name[0])
        return;
    for (int i = 0; i < 3; i++) {
        snprintf(rows[i].what, 96, "matrix product %d x %d x %d, %s, TF/s", c->gemm_n, c->gemm_n,
                 c->gemm_n, pp_precision_name((enum pp_precision)i));
        print_rate(rows[i].one, c->gemm[i], 1e-12);
    }
    snprintf(rows[3].what, 96, "copy of %.0f MiB in its memory, read and written, GB/s",
             (double)c->copy_bytes / MIB);
    print_rate(rows[3].one, c->copy, 1e-9);
    snprintf(rows[4].one, 64, "%.2f", c->launch * 1e6);
    snprintf(rows[5].one, 64, "%.2f", c->op * 1e6);
    snprintf(rows[6].what, 96, "the same inside a graph of %d, us", c->nodes);
    snprintf(rows[6].one, 64, c->nodes > 0 ? "%.2f" : "no graphs", c->node * 1e6);
    fputc('\n', f);
    pp_listing_print(columns, &(struct pp_listing){rows, sizeof(*rows), 7}, PP_LISTING_MARKDOWN, 0,
                     f);
}

/* ---- what the table means */

bool bench_is_spoiled(const struct pp_bench_figures *g)
{
    return g->valid && g->waited >= PP_BUBBLE_WAITED;
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

/* Prints which division of the cores into stages, replicas and threads is fastest. Rows that are
 * not to be trusted say nothing about that. */
static void print_fastest(const struct pp_bench *b, FILE *f)
{
    struct pp_bench_figures one, best = {0}, g;
    const struct pp_bench_row *first = b->rows, *row = NULL;
    int spoiled = 0;
    pp_bench_figures(b, first, &one);
    for (int i = 0; i < b->n; i++) {
        pp_bench_figures(b, &b->rows[i], &g);
        spoiled += bench_is_spoiled(&g);
        if (g.valid && g.sps_mean > best.sps_mean) {
            best = g;
            row = &b->rows[i];
        }
    }
    if (b->n == 1 || !row || !one.valid)
        return;
    if (spoiled > 0) {
        fprintf(f, "- which row is fastest is not judged: %d of %d are marked with !\n", spoiled,
                b->n);
        return;
    }
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
        if (bench_is_spoiled(&g)) {
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

static void print_rows_table(const struct pp_bench *b, const struct pp_bench_header *h,
                             const struct bench_lines *lines, const struct pp_listing *rows,
                             FILE *f)
{
    print_header(b, h, f);
    print_ceilings(&b->ceilings, b->device.name[0] != '\0', f);
    print_device(&b->device, f);
    fputc('\n', f);
    pp_listing_print(lines->columns, rows, PP_LISTING_MARKDOWN, 0, f);
    fputc('\n', f);
    print_reasons(b, f);
    print_spoiled(b, h->cores, f);
    print_fastest(b, f);
    print_legend(b, f);
}

int pp_bench_print(const struct pp_bench *b, const struct pp_bench_header *h,
                   enum pp_bench_format format, FILE *f)
{
    struct bench_axes axes;
    PP_OWN(bench_lines_fini) struct bench_lines lines = {0};
    PP_TRY(find_axes(b, &axes));
    PP_TRY(bench_lines_make(b, h, &axes, &lines));
    struct pp_listing rows = {lines.at, sizeof(*lines.at), lines.rows};
    if (format == PP_BENCH_CSV)
        pp_listing_print(lines.columns, &rows, PP_LISTING_CSV, 0, f);
    else if (format == PP_BENCH_MD)
        print_rows_table(b, h, &lines, &rows, f);
    else
        bench_print_json(b, h, &lines, f);
    return bench_written(f);
}

int bench_written(FILE *f)
{
    return fflush(f) != 0 || ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the result") : 0;
}
