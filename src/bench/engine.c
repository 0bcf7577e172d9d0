/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine costs beyond computing: the executor with one stage against a plain loop over the
 * same layers, and what a micro-batch adds where there is next to nothing to compute. Every pair is
 * measured as plain, engine, engine, plain, and both must end with the same weights.
 */
#include <string.h>

#include "bench.h"
#include "table.h"
#include "ppcli/median.h"

#define COUNTS 6
#define WARM 2
#define ROUNDS_MAX 1000
static const int counts[COUNTS] = {1, 4, 16, 64, 256, 1024};

struct kind { /* of run */
    struct pp_config *cfg;
    bool plain;
};

struct engine {
    const struct pp_bench_engine_spec *spec;
    struct prober prober;
};

struct figures {
    double plain;       /* seconds of a step */
    double one, two;    /* the same of the engine with one and two stages */
    double ratio, same; /* medians: engine to plain, and plain to plain */
    bool right;         /* all the same weights */
};

/* ---- runs */

/* A run of its own: shortened as a row of a sweep. */
static int make(const struct pp_config *cfg, int stages, struct pp_config **out)
{
    struct pp_bench_row row = {0};
    PP_TAKE(struct pp_config, copy, 1);
    *copy = *cfg;
    bench_plain_pipeline(copy, stages);
    copy->pipeline.replicas = 1;
    copy->train.clip_norm = 0;
    int rc = bench_row_make(&row, copy, 0);
    if (rc == 0 && row.skipped[0])
        rc = pp_fail(PP_ECONFIG, "%s", row.skipped);
    PP_TRY_UNDO(rc, pp_free(row.cfg));
    *out = row.cfg;
    return 0;
}

/* Rounds of plain, engine, engine, plain; behind them, when there is one, the run with two stages.
 */
static int compare(struct engine *e, const struct kind kinds[3], double seconds,
                   struct figures *out)
{
    static const int order[5] = {0, 1, 1, 0, 2};
    double ratio[ROUNDS_MAX], same[ROUNDS_MAX], step[3][ROUNDS_MAX];
    char sha[65] = "";
    struct probe probe = {.warmup = WARM, .steps = 4, .plain = true};
    int runs = kinds[2].cfg ? 5 : 4, rounds = e->spec->repeat;
    for (int turn = 0; turn < 2; turn++) {
        PP_TRY(probe_run(&e->prober, kinds[0].cfg, &probe));
        probe.steps = probe_steps(&probe, seconds);
    }
    out->right = true;
    for (int r = 0; r < rounds; r++) {
        double t[5] = {0};
        for (int i = 0; i < runs; i++) {
            const struct kind *kind = &kinds[order[i]];
            probe.plain = kind->plain;
            PP_TRY(probe_run(&e->prober, kind->cfg, &probe));
            t[i] = probe.seconds / (double)probe.steps;
            if (!sha[0])
                memcpy(sha, probe.sha, sizeof(sha));
            out->right = out->right && strcmp(sha, probe.sha) == 0;
        }
        ratio[r] = (t[1] + t[2]) / (t[0] + t[3]);
        same[r] = t[3] / t[0];
        step[0][r] = (t[0] + t[3]) / 2;
        step[1][r] = (t[1] + t[2]) / 2;
        step[2][r] = t[4];
    }
    out->ratio = pp_median(ratio, rounds);
    out->same = pp_median(same, rounds);
    out->plain = pp_median(step[0], rounds);
    out->one = pp_median(step[1], rounds);
    out->two = pp_median(step[2], rounds);
    return 0;
}

static int measure_model(struct engine *e, struct figures *out)
{
    PP_OWN_MEMORY struct pp_config *cfg = NULL;
    PP_TRY(probe_open_data(&e->prober, e->spec->cfg));
    PP_TRY(make(e->spec->cfg, 1, &cfg));
    const struct kind kinds[3] = {{cfg, true}, {cfg, false}, {NULL, false}};
    return compare(e, kinds, e->spec->seconds, out);
}

/* One row a micro-batch. */
static int measure_count(struct engine *e, int m, struct figures *out)
{
    PP_OWN_MEMORY struct pp_config *one = NULL;
    PP_OWN_MEMORY struct pp_config *two = NULL;
    PP_TAKE(struct pp_config, cfg, 1);
    *cfg = *e->spec->tiny;
    cfg->train.batch_size = m;
    cfg->pipeline.microbatches = m;
    PP_TRY(make(cfg, 1, &one));
    PP_TRY(make(cfg, 2, &two));
    const struct kind kinds[3] = {{one, true}, {one, false}, {two, false}};
    return compare(e, kinds, e->spec->seconds / 10, out);
}

/* ---- what it means */

static int make_tables(const struct figures *model, const struct figures *tiny, struct table *whole,
                       struct table *each)
{
    static const struct table_column a[] = {
        TABLE_NUMBER("plain loop, ms/step", "plain_step_seconds", "%.3f", 1e3),
        TABLE_NUMBER("engine, ms/step", "engine_step_seconds", "%.3f", 1e3),
        TABLE_NUMBER("engine / plain", "engine_to_plain", "%.4f", 1),
        TABLE_NUMBER("plain / plain", "plain_to_plain", "%.4f", 1), TABLE_LEFT("check", "check")};
    static const struct table_column b[] = {
        TABLE_NUMBER("micro-batches", "microbatches", "%.0f", 1),
        TABLE_NUMBER("plain loop, ns each", "plain_ns", "%.0f", 1),
        TABLE_NUMBER("one stage, ns", "one_stage_beyond_ns", "%.0f", 1),
        TABLE_NUMBER("two stages, ns", "two_stages_beyond_ns", "%.0f", 1),
        TABLE_LEFT("check", "check")};
    PP_TRY(table_create(whole, 1, a, 5));
    table_number(whole, model->plain);
    table_number(whole, model->one);
    table_number(whole, model->ratio);
    table_number(whole, model->same);
    table_text(whole, "%s", model->right ? "ok" : "INVALID");
    PP_TRY(table_create(each, COUNTS, b, 5));
    for (int i = 0; i < COUNTS; i++) {
        table_row(each, i);
        table_number(each, counts[i]);
        table_number(each, tiny[i].plain / counts[i] * 1e9);
        table_number(each, (tiny[i].one - tiny[i].plain) / counts[i] * 1e9);
        /* over what two equal halves of the plain loop would take one after the other: m + 1 times
         * half a micro-batch */
        table_number(each, (tiny[i].two - tiny[i].plain / counts[i] * (counts[i] + 1) / 2) /
                               counts[i] * 1e9);
        table_text(each, "%s", tiny[i].right ? "ok" : "INVALID");
    }
    return 0;
}

static void print_md(const struct table *whole, const struct table *each,
                     const struct pp_bench_header *h, FILE *f)
{
    bench_print_machine(h, f);
    fprintf(f, "- config %s: model %s, one stage\n\n", h->config, h->model);
    table_markdown(whole, f);
    fprintf(f, "\n- model 8-8-8, one row a micro-batch: nanoseconds of each beyond computing\n\n");
    table_markdown(each, f);
    fprintf(f,
            "\n- medians of rounds of plain, engine, engine, plain; check: all end with the same "
            "weights\n"
            "- two stages: beyond m + 1 times half of what the plain loop takes for one\n");
}

static void print_json(const struct table *whole, const struct table *each,
                       const struct pp_bench_header *h, FILE *f)
{
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_str(&j, "type", "engine");
    bench_put_machine(&j, h);
    pp_json_str(&j, "model", h->model);
    table_json(whole, 0, &j);
    table_json_rows(each, "microbatches", &j);
    pp_json_end(&j);
}

int pp_bench_engine(const struct pp_bench_engine_spec *spec, const struct pp_bench_header *h,
                    enum pp_bench_format format, FILE *f)
{
    struct figures model = {0}, tiny[COUNTS] = {{0}};
    struct engine e = {.spec = spec, .prober.options = {.lost = spec->lost}};
    int rc = probe_open(&e.prober);
    pp_assert(spec->repeat >= 1 && spec->repeat <= ROUNDS_MAX);
    if (rc == 0)
        rc = measure_model(&e, &model);
    bool right = rc == 0 && model.right;
    if (rc == 0)
        rc = probe_open_data(&e.prober, spec->tiny);
    for (int i = 0; rc == 0 && i < COUNTS; i++) {
        rc = measure_count(&e, counts[i], &tiny[i]);
        right = right && tiny[i].right;
    }
    struct table whole = {0}, each = {0};
    if (rc == 0)
        rc = make_tables(&model, tiny, &whole, &each);
    if (rc == 0) {
        (format == PP_BENCH_MD ? print_md : print_json)(&whole, &each, h, f);
        rc = bench_written(f);
    }
    table_fini(&whole);
    table_fini(&each);
    probe_close(&e.prober);
    PP_TRY(rc);
    return right ? 0 : pp_fail(PP_ECHECK, "the engine trains other weights than the plain loop");
}
