/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of a benchmark before anything is measured: each as the config it runs with, what its
 * plan says, which run with one stage it is compared with, and how many steps all of them take.
 */
#include "bench.h"

#include <string.h>

#define EPOCHS "1000000" /* never the reason to stop */

int bench_set_keys(struct pp_config *cfg, const char *const (*keys)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        PP_TRY(pp_config_with(cfg, keys[i][0], keys[i][1], cfg));
    return 0;
}

int bench_set_number(struct pp_config *cfg, const char *key, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    return pp_config_with(cfg, key, text, cfg);
}

static int set_endless(struct pp_config *cfg)
{
    static const char *const keys[][2] = {{"train.epochs", EPOCHS}, {"train.max_steps", "0"}};
    return bench_set_keys(cfg, keys, sizeof(keys) / sizeof(keys[0]));
}

int bench_shorten(struct pp_config *cfg)
{
    int train_n = 0, test_n = 0, batch = cfg->train.batch_size;
    PP_TRY(pp_run_samples(cfg, PP_RUN_REAL, PP_SPLIT_TRAIN, &train_n));
    PP_TRY(pp_run_samples(cfg, PP_RUN_REAL, PP_SPLIT_TEST, &test_n));
    if (train_n > batch)
        PP_TRY(bench_set_number(cfg, "data.train_samples", train_n / batch * batch));
    PP_TRY(bench_set_number(cfg, "data.test_samples", test_n > batch ? batch : test_n));
    PP_TRY(pp_config_with(cfg, "run.dir", "", cfg));
    return set_endless(cfg);
}

int bench_plain_pipeline(struct pp_config *cfg, int stages)
{
    static const char *const keys[][2] = {
        {"train.exact", "on"},         {"train.coalesce", "0"},
        {"pipeline.chunks", "1"},      {"pipeline.group", "0"},
        {"pipeline.eager", "0"},       {"pipeline.memory_cap", "0"},
        {"pipeline.split_at", "none"}, {"pipeline.assignment", "auto"},
        {"pipeline.schedule", "1f1b"}, {"run.transport", "auto"}};
    PP_TRY(bench_set_keys(cfg, keys, sizeof(keys) / sizeof(keys[0])));
    return bench_set_number(cfg, "pipeline.stages", stages);
}

static void take_over(struct pp_bench_row *row, const struct pp_config *cfg)
{
    row->stages = cfg->pipeline.stages;
    row->replicas = cfg->pipeline.replicas;
    row->microbatches = cfg->pipeline.microbatches;
    row->batch = cfg->train.batch_size;
    row->ranks = row->stages * row->replicas;
    row->reference = -1;
    row->exact = cfg->train.exact;
    snprintf(row->schedule, sizeof(row->schedule), "%.*s", PP_NAME_MAX - 1, cfg->pipeline.schedule);
}

/* Chooses how the ranks of a row are started. `processes` is the number of processes that MPI has
 * started, 0 without MPI. */
static int choose_launch(struct pp_bench_row *row, int processes)
{
    struct pp_config *cfg = row->cfg;
    bool asked_for_threads = cfg->run.launch == PP_LAUNCH_THREADS;
    row->processes =
        processes > 0 && row->ranks == processes && !asked_for_threads && row->ranks > 1;
    if (row->processes)
        return pp_config_with(cfg, "run.launch", "auto", cfg);
    PP_TRY(pp_config_with(cfg, "run.launch", "threads", cfg));
    if (processes > 0)
        PP_TRY(pp_config_with(cfg, "run.transport", "auto", cfg));
    if (processes > 0 && row->ranks > 1 && !asked_for_threads) {
        snprintf(row->skipped, sizeof(row->skipped),
                 "%d ranks, but %d processes were started: mpirun -np %d", row->ranks, processes,
                 row->ranks);
    }
    return 0;
}

/* Computes the member `bytes` of struct pp_bench_row, which is described there. */
static double step_bytes(const struct pp_run *run)
{
    const struct pp_layout *l = run->layout;
    const struct pp_config *cfg = run->cfg;
    const struct pp_model *m = run->model;
    int batch = l->train_n < cfg->train.batch_size ? l->train_n : cfg->train.batch_size;
    int each = cfg->pipeline.microbatches, d = l->replicas, owners = cfg->train.zero ? 1 : d;
    int passes = d * each, sums = d * ((each + l->coalesce - 1) / l->coalesce);
    double arrays = 3 + 2.0 * pp_optimizer_moments(cfg->train.optimizer);
    double bytes = owners * arrays * (double)(m->n_floats - m->n_padding) * sizeof(float);
    for (int s = 0; s < l->n_virtual; s++) {
        int end = m->layers[l->last[s]].last_node;
        for (int i = m->layers[l->first[s]].first_node; i <= end; i++) {
            struct op_cost c;
            ops_count(m, &m->nodes[i], l->value_bytes, (double)batch / passes, &c);
            bytes += passes * (c.bytes[0] * (l->division.recompute[s] ? 2 : 1) + c.bytes[1]);
            ops_count(m, &m->nodes[i], l->value_bytes, (double)batch / sums, &c);
            bytes += sums * c.bytes[2];
        }
    }
    return bytes / batch;
}

static int read_plan(struct pp_bench_row *row, const struct pp_run *run)
{
    const struct pp_layout *l = run->layout;
    row->flops = pp_model_flops(run->model);
    row->bytes = step_bytes(run);
    return pp_bubble_ideal(l->plans[0].plan, &row->bubble_ideal);
}

static int count_devices(struct pp_bench_row *row, const struct pp_run *run)
{
    struct pp_device devices[PP_DEVICES_MAX];
    int n = 0;
    PP_TRY(pp_devices_find(run->backend, run->cfg, devices, &n));
    row->devices = n < row->ranks ? n : row->ranks;
    return 0;
}

int bench_row_make(struct pp_bench_row *row, const struct pp_config *cfg, int processes)
{
    PP_OWN(pp_run_fini) struct pp_run run = {0};
    PP_TRY(pp_config_copy(cfg, &row->cfg));
    take_over(row, cfg);
    PP_TRY(choose_launch(row, processes));
    PP_TRY(set_endless(row->cfg)); /* also a row that is skipped: no column tells it apart */
    if (row->skipped[0])
        return 0;
    PP_TRY(bench_shorten(row->cfg));
    int rc = pp_run_prepare(row->cfg, PP_RUN_REAL, &run);
    if (rc == PP_ECONFIG) {
        snprintf(row->skipped, sizeof(row->skipped), "%.*s", PP_BENCH_WHY_MAX - 1,
                 pp_error_get()->text);
        pp_error_clear();
        return 0;
    }
    PP_TRY(rc);
    row->threads = run.backend->own_memory ? 1 : pp_run_backend(&run).threads;
    PP_TRY(read_plan(row, &run));
    return count_devices(row, &run);
}

int pp_bench_check(struct pp_config *const *configs, int n)
{
    char why[PP_BENCH_WHY_MAX] = "";
    bool can = false;
    for (int i = 0; i < n && !can; i++) {
        struct pp_bench_row row = {0};
        const struct pp_config *cfg = configs[i];
        if (pp_config_problem_count(cfg) > 0) {
            snprintf(row.skipped, sizeof(row.skipped), "%s", pp_config_problem_text(cfg, 0));
        } else {
            int rc = bench_row_make(&row, cfg, 0);
            pp_free(row.cfg);
            PP_TRY(rc);
        }
        can = !row.skipped[0] || pp_choose_wanted(cfg);
        memcpy(why, row.skipped, sizeof(why));
    }
    return can ? 0 : pp_fail(PP_ECONFIG, "no row can run: %s", why);
}

/* ---- references */

#define IDENTITY_MAX 160

/* Prints all settings that may change a bit of the weights, except the number of steps, train.exact
 * and train.coalesce. */
static int print_identity(const struct pp_config *cfg, char out[IDENTITY_MAX])
{
    static const char *const keys[][2] = {{"train.exact", "on"}, {"train.coalesce", "0"}};
    PP_OWN_MEMORY struct pp_config *copy = NULL;
    char hash[65];
    PP_TRY(pp_config_copy(cfg, &copy));
    PP_TRY(bench_set_keys(copy, keys, sizeof(keys) / sizeof(keys[0])));
    PP_TRY(pp_config_hash(copy, hash));
    snprintf(out, IDENTITY_MAX, "%s %.60s %d %d %d", hash, cfg->run.backend, cfg->run.threads,
             (int)cfg->run.gemm, (int)cfg->run.conv);
    return 0;
}

/* Makes the reference of a row: the same training on one stage. */
static int make_reference(const struct pp_bench_row *row, int processes, struct pp_bench_row *out)
{
    PP_OWN_MEMORY struct pp_config *cfg = NULL;
    PP_TRY(pp_config_copy(row->cfg, &cfg));
    PP_TRY(bench_plain_pipeline(cfg, 1));
    PP_TRY(pp_config_with(cfg, "run.launch", "threads", cfg));
    PP_TRY(bench_row_make(out, cfg, processes));
    return out->skipped[0] ? pp_fail(PP_ECONFIG, "nothing to compare with: %s", out->skipped) : 0;
}

int bench_begin_with_one(struct pp_bench *b, int n, int processes)
{
    struct pp_bench_row *of = b->rows + 1, *last = b->rows + n;
    PP_OWN_MEMORY struct pp_config *cfg = NULL;
    while (of < last && of->skipped[0])
        of++;
    b->added = !of->skipped[0] && b->rows[1].stages * b->rows[1].replicas > 1;
    b->n = n + b->added;
    if (!b->added) {
        memmove(b->rows, b->rows + 1, (size_t)n * sizeof(*b->rows));
        b->rows[n] = (struct pp_bench_row){.reference = -1};
        return 0;
    }
    PP_TRY(pp_config_copy(of->cfg, &cfg));
    PP_TRY(bench_plain_pipeline(cfg, 1));
    int rows_alike = cfg->pipeline.microbatches * cfg->pipeline.replicas;
    PP_TRY(bench_set_number(cfg, "pipeline.microbatches", rows_alike));
    PP_TRY(bench_set_number(cfg, "pipeline.replicas", 1));
    PP_TRY(pp_config_with(cfg, "run.launch", "threads", cfg));
    return bench_row_make(b->rows, cfg, processes);
}

static bool can_be_reference(const struct pp_bench_row *row)
{
    return !row->skipped[0] && row->stages == 1 && !row->processes && row->exact;
}

int bench_find_references(struct pp_bench *b, int processes)
{
    char mine[IDENTITY_MAX], other[IDENTITY_MAX];
    PP_ALLOC(b->references, b->n);
    PP_ALLOC(b->reference_row, b->n);
    for (int i = 0; i < b->n; i++) {
        struct pp_bench_row *row = &b->rows[i];
        if (row->skipped[0])
            continue;
        PP_TRY(print_identity(row->cfg, mine));
        for (int r = 0; r < b->n_references && row->reference < 0; r++) {
            PP_TRY(print_identity(b->references[r].cfg, other));
            row->reference = strcmp(mine, other) == 0 ? r : -1;
        }
        if (row->reference < 0) {
            struct pp_bench_row *ref = &b->references[b->n_references];
            b->reference_row[b->n_references] = -1;
            row->reference = b->n_references++;
            PP_TRY(make_reference(row, processes, ref));
            ref->reference = row->reference;
        }
        if (can_be_reference(row) && b->reference_row[row->reference] < 0)
            b->reference_row[row->reference] = i;
    }
    return 0;
}
