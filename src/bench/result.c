/* SPDX-License-Identifier: Apache-2.0 */
/* The columns of a result: everything that was measured, so that others can count again. */
#include <math.h>
#include <string.h>

#include "bench.h"
#include "ppcli/base/base.h"

#define MIB (1024.0 * 1024.0)

/* ---- the machine */

#define HEADER(m) PP_FIELD(struct pp_bench_header, m)
const struct pp_column bench_machine_columns[] = {
    {"ppcli", HEADER(version), .help = "what measured, and where"},
    {"commit", HEADER(commit)},
    {"date", HEADER(date)},
    {"host", HEADER(host)},
    {"cpu", HEADER(cpu)},
    {"binding", HEADER(binding)},
    {"blas", HEADER(blas)},
    {"backend", HEADER(backend)},
    {"mpi", HEADER(mpi)},
    {"gpu", HEADER(gpu)},
    {"governor", HEADER(governor), .nullable = true, .help = "of the processor's frequency"},
    {"cores", HEADER(cores), .help = "cores that the command may use"},
    {"load_before", HEADER(load), .help = "load average of the minute before the start"},
    {0}};

static const struct pp_column config_columns[] = {
    {"config", HEADER(config), .help = "what was trained"},
    {"model", HEADER(model)},
    {"dataset", HEADER(dataset)},
    {"optimizer", HEADER(optimizer)},
    {0}};

/* ---- ceilings */

static void put_fma_cores(const void *ceilings, const char *key, struct pp_json *j)
{
    const struct pp_ceilings *c = ceilings;
    pp_json_array(j, key);
    for (int i = 0; i < c->fma_cores; i++)
        pp_json_dbl(j, NULL, c->fma_core[i]);
    pp_json_end(j);
}

static void put_precisions(const void *ceilings, const char *key, struct pp_json *j)
{
    const struct pp_device_ceilings *c = ceilings;
    pp_json_object(j, key);
    for (int i = 0; i < 3; i++)
        pp_json_dbl(j, pp_precision_name((enum pp_precision)i), c->gemm[i]);
    pp_json_end(j);
}

#define CEILING(m) PP_FIELD(struct pp_ceilings, m)
static const struct pp_column ceiling_columns[] = {
    {"cores", CEILING(cores), .help = "cores that were measured"},
    {"isa", CEILING(isa), .help = "instructions of the arithmetic loop"},
    {"fma_flops_core", .put = put_fma_cores, .type = "numbers",
     .help = "multiply-adds in registers: each core alone"},
    {"fma_flops_all", CEILING(fma_all), .help = "the same, all cores at once"},
    {"gemm_n", CEILING(gemm_n), .help = "width of the square matrix product"},
    {"blas_flops_core", CEILING(blas_core), .help = "its rate by the BLAS library; 0: none loads"},
    {"blas_flops_all", CEILING(blas_all)},
    {"own_flops_core", CEILING(own_core), .help = "its rate by ppcli's own products"},
    {"own_flops_all", CEILING(own_all)},
    {"gemm_flops_core", CEILING(gemm_core), .help = "the better of both: the peak of `of_peak`"},
    {"gemm_flops_all", CEILING(gemm_all)},
    {"triad_bytes", CEILING(triad_bytes), .help = "size of the arrays that measure the memory"},
    {"triad_bytes_per_second_core", CEILING(triad_core), .help = "read and written"},
    {"triad_bytes_per_second_all", CEILING(triad_all)},
    {"ping_pong_seconds", CEILING(ping_pong), .help = "one way from core to core; 0: one core"},
    {"seconds", CEILING(took), .help = "how long measuring took"},
    {0}};

#define DEVICE(m) PP_FIELD(struct pp_device_ceilings, m)
static const struct pp_column device_columns[] = {
    {"device", DEVICE(name), .help = "name of the GPU"},
    {"gemm_n", DEVICE(gemm_n), .help = "width of the square matrix product"},
    {"gemm_flops", .put = put_precisions, .type = "number by name",
     .help = "its rate, by the name of the precision"},
    {"copy_bytes", DEVICE(copy_bytes), .help = "size of the block that is copied in its memory"},
    {"copy_bytes_per_second", DEVICE(copy), .help = "read and written"},
    {"launch_seconds", DEVICE(launch),
     .help = "how long the host takes to enqueue the smallest op"},
    {"op_seconds", DEVICE(op), .help = "from one such op to the next on the device"},
    {"graph_nodes", DEVICE(nodes), .help = "ops of the graph that was measured; 0: no graphs"},
    {"graph_node_seconds", DEVICE(node), .help = "from one op to the next inside the graph"},
    {"seconds", DEVICE(took), .help = "how long measuring took"},
    {0}};

/* ---- rows */

PP_HAS(knows_waited, struct pp_bench_sample, row->waited >= 0)

#define SAMPLE(m) PP_FIELD(struct pp_bench_sample, m)
static const struct pp_column sample_columns[] = {
    {"valid", SAMPLE(valid), .help = "the round passed its check"},
    {"samples_per_second", SAMPLE(samples_per_second), .help = "training samples"},
    {"seconds", SAMPLE(seconds), .help = "of the slowest rank"},
    {"step_seconds_min", SAMPLE(step_min), .help = "steps of rank 0"},
    {"step_seconds_p50", SAMPLE(step_p50)},
    {"step_seconds_p90", SAMPLE(step_p90)},
    {"step_seconds_p99", SAMPLE(step_p99)},
    {"step_seconds_max", SAMPLE(step_max)},
    {"bubble_measured", SAMPLE(bubble.idle), .help = "idle share of the ranks' time"},
    {"bubble_predicted", SAMPLE(bubble_predicted), .help = "simulated with the measured times"},
    {"bound", SAMPLE(bound), .help = "shortest possible step over the measured one; 0: unknown"},
    {"waited_for_core", SAMPLE(waited), .has = knows_waited,
     .help = "share of the ranks' time that they waited for a core"},
    {"loss", SAMPLE(loss), .help = "of the last step"},
    {"weights_sha256", SAMPLE(sha), .help = "digest of the weights at the end"},
    {0}};

PP_HAS(is_valid, struct bench_line, row->g.valid)

static void put_axes(const void *row, const char *key, struct pp_json *j)
{
    const struct bench_line *line = row;
    pp_json_object(j, key);
    for (int k = 0; k < line->axes->n; k++)
        pp_json_str(j, pp_config_key_name(line->axes->keys[k]), line->axis[k]);
    pp_json_end(j);
}

#define LINE(m) PP_FIELD(struct bench_line, m)
#define VALID(m) LINE(m), .has = is_valid
static const struct pp_column line_columns[] = {
    {"commit", LINE(commit), .csv = true},
    {"date", LINE(date), .csv = true},
    {"cpu", LINE(cpu), .csv = true},
    {"model", LINE(model), .csv = true},
    {"stages", "stages", LINE(row.stages), .help = "the division"},
    {"replicas", "replicas", LINE(row.replicas)},
    {"threads", "threads", LINE(row.threads)},
    {"schedule", "schedule", LINE(row.schedule)},
    {"microbatches", "micro-batches", LINE(row.microbatches)},
    {"batch_size", LINE(row.batch)},
    {NULL, "samples/s", VALID(speed), .right = true},
    {"samples_per_second", VALID(g.sps_mean), .help = "mean and standard deviation of the rounds"},
    {"samples_per_second_sd", VALID(g.sps_sd)},
    {"step_seconds_p50", "ms/step p50", NULL, 1e3, "medians over the rounds", VALID(g.step_p50)},
    {"step_seconds_p99", "p99", NULL, 1e3, NULL, VALID(g.step_p99)},
    {"bubble_ideal", "bubble ideal", "%.1f %%", 100, "of the schedule with equal stages",
     VALID(row.bubble_ideal)},
    {"bubble_predicted", VALID(g.bubble_predicted), .help = "simulated with the measured times"},
    {"bubble_measured", "measured", "%.1f %%", 100, "idle share of the ranks' time",
     VALID(g.bubble.idle)},
    {"bubble_schedule", "= schedule", "%.1f", 100, "its parts", VALID(g.bubble.schedule)},
    {"bubble_imbalance", "+ imbalance", "%.1f", 100, NULL, VALID(g.bubble.imbalance)},
    {"bubble_waiting", "+ waiting", "%.1f", 100, NULL, VALID(g.bubble.waiting)},
    {"flops_per_second", "GF/s", NULL, 1e-9, "arithmetic of the model", VALID(g.flops)},
    {"bytes_per_second", "GB/s", NULL, 1e-9, "memory traffic that the model needs", VALID(g.bytes)},
    {"of_peak", "of peak", "%.1f %%", 100, "flops over the rate of a matrix product",
     VALID(g.of_peak), .optional = true},
    {"of_limit", VALID(g.of_limit), .optional = true, .help = "share of the nearer ceiling"},
    {"bound", "bound", "%.3f", 1, "shortest possible step over the measured one", VALID(g.bound),
     .optional = true},
    {"peak_bytes", "peak MiB", "%.1f", 1 / MIB, "memory of the largest rank",
     VALID(row.peak_bytes)},
    {"x1", "x1", "%.3f", 1, "speed over that of one stage", VALID(g.x1), .optional = true},
    {"relative", "relative", "%.3f", 1, "speed over that of the first row", VALID(g.relative)},
    {"waited_for_core", VALID(g.waited), .optional = true,
     .help = "share of the ranks' time that they waited for a core"},
    {"limit", "limit", VALID(g.limit), .optional = true,
     .help = "the nearer ceiling: arithmetic or memory"},
    {"check", "check", LINE(check), .help = "ok; ~: equal within a tolerance; INVALID; skipped"},
    {"why", LINE(why), .optional = true, .help = "why it has no speed"},
    {"axes", .json = true, .put = put_axes, .type = "text by name",
     .help = "other keys of the sweep"},
    {"ranks", LINE(row.ranks), .json = true, .help = "stages x replicas"},
    {"exact", LINE(row.exact), .json = true, .help = "the row must give the bits of one stage"},
    {"ranks_are", LINE(ranks_are), .json = true, .help = "threads or processes"},
    {"warmup_steps", LINE(row.warmup), .json = true, .help = "steps before the clock starts"},
    {"steps", LINE(row.steps), .json = true, .help = "steps of a round"},
    {"flops_per_sample", LINE(row.flops), .json = true, .help = "what training one sample takes"},
    {"bytes_per_sample", LINE(row.bytes), .json = true},
    {"weights_sha256", LINE(sha), .json = true, .optional = true,
     .help = "digest of the weights at the end"},
    {"samples", LINE(samples), .json = true, .inner = sample_columns, .help = "the rounds"},
    {0}};

/* Makes the columns of the table of rows, with one for each axis of the sweep. */
static void make_columns(const struct bench_axes *axes, struct pp_column out[BENCH_COLUMNS_MAX])
{
    int n = 0;
    for (const struct pp_column *c = line_columns; c->key || c->title; c++) {
        pp_assert(n + axes->n + 2 < BENCH_COLUMNS_MAX);
        out[n++] = *c;
        for (int k = 0; k < axes->n && c->offset == offsetof(struct bench_line, row.batch); k++) {
            const char *key = pp_config_key_name(axes->keys[k]), *dot = strchr(key, '.');
            out[n++] = (struct pp_column){key, dot ? dot + 1 : key, LINE(axis[0]), .csv = true,
                                          .right = true};
            out[n - 1].offset += (size_t)k * BENCH_CELL;
        }
    }
    out[n] = (struct pp_column){0};
}

static double nan_if_unknown(double x)
{
    return x > 0 ? x : NAN;
}

static int make_line(const struct pp_bench *b, const struct pp_bench_header *h,
                     const struct pp_bench_row *row, const struct bench_axes *axes,
                     struct bench_line *out)
{
    struct pp_bench_figures *g = &out->g;
    PP_TAKE(char, value, PP_CONFIG_VALUE_MAX);
    *out = (struct bench_line){
        .commit = h->commit,
        .date = h->date,
        .cpu = h->cpu,
        .model = h->model,
        .row = *row,
        .axes = axes,
        .ranks_are = row->processes ? "processes" : "threads",
        .why = row->skipped[0] ? row->skipped : row->invalid,
        .samples = {row->samples, sizeof(*row->samples), row->samples ? b->repeat : 0}};
    pp_bench_figures(b, row, g);
    out->check = row->skipped[0] ? "skipped" : !g->valid ? "INVALID" : row->exact ? "ok" : "~";
    snprintf(out->speed, sizeof(out->speed), "%s%.0f ± %.0f", bench_is_spoiled(g) ? "! " : "",
             g->sps_mean, g->sps_sd);
    double *const unknown[] = {&g->of_peak, &g->of_limit, &g->bound, &g->x1, &g->waited};
    for (size_t k = 0; k < sizeof(unknown) / sizeof(unknown[0]); k++)
        *unknown[k] = nan_if_unknown(*unknown[k]);
    if (row->samples && row->samples[b->repeat - 1].valid)
        out->sha = row->samples[b->repeat - 1].sha;
    for (int k = 0; k < axes->n; k++) {
        PP_TRY(pp_config_key_value(row->cfg, axes->keys[k], value, PP_CONFIG_VALUE_MAX));
        snprintf(out->axis[k], BENCH_CELL, "%s", value);
    }
    return 0;
}

int bench_lines_make(const struct pp_bench *b, const struct pp_bench_header *h,
                     const struct bench_axes *axes, struct bench_lines *out)
{
    *out = (struct bench_lines){.rows = b->n};
    make_columns(axes, out->columns);
    PP_ALLOC(out->at, b->n + b->n_references);
    for (int i = 0; i < b->n; i++)
        PP_TRY(make_line(b, h, &b->rows[i], axes, &out->at[i]));
    for (int r = 0; r < b->n_references; r++)
        if (b->reference_row[r] < 0)
            PP_TRY(make_line(b, h, &b->references[r], axes, &out->at[b->n + out->references++]));
    return 0;
}

void bench_lines_fini(struct bench_lines *lines)
{
    pp_free(lines->at);
}

/* ---- the document */

struct result {
    const char *type;
    struct pp_bench_header h;
    int rounds, added;
    struct pp_ceilings ceilings;
    struct pp_device_ceilings device;
    struct pp_listing rows, references;
};

PP_HAS(has_ceilings, struct result, row->ceilings.cores > 0)
PP_HAS(has_device, struct result, row->device.name[0])

#define RESULT(m) PP_FIELD(struct result, m)
static const struct pp_column result_columns[] = {
    PP_SCHEMA(PP_BENCH_SCHEMA),
    {"type", RESULT(type), .help = "\"bench\""},
    {.inner = bench_machine_columns, RESULT(h)},
    {.inner = config_columns, RESULT(h)},
    {"rounds", RESULT(rounds), .help = "measurements of each row"},
    {"added_rows", RESULT(added), .help = "1: the first row is not of the sweep"},
    {"ceilings", RESULT(ceilings), .has = has_ceilings, .inner = ceiling_columns,
     .help = "what the machine can do"},
    {"device_ceilings", RESULT(device), .has = has_device, .inner = device_columns,
     .help = "what its GPU can do"},
    {"rows", RESULT(rows), .inner = line_columns, .help = "the sweep"},
    {"references", RESULT(references), .inner = line_columns,
     .help = "runs of one stage that are not rows"},
    {0}};

const struct pp_column bench_documents[] = {{"bench", .inner = result_columns},
                                            {"bench: --handover", .inner = bench_handover_columns},
                                            {"bench: --ops", .inner = bench_ops_columns},
                                            {0}};

void bench_print_json(const struct pp_bench *b, const struct pp_bench_header *h,
                      const struct bench_lines *lines, FILE *f)
{
    struct result r = {
        .type = "bench",
        .h = *h,
        .rounds = b->repeat,
        .added = b->added,
        .ceilings = b->ceilings,
        .device = b->device,
        .rows = {lines->at, sizeof(*lines->at), lines->rows},
        .references = {lines->at + lines->rows, sizeof(*lines->at), lines->references}};
    pp_document_json(result_columns, &r, f);
}
