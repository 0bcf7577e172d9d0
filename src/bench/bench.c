/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds of measurements, and the verdict over each. A round runs every row once; every second one
 * runs them backwards, so that a machine that becomes slower or faster meanwhile does so for all.
 * All rows of one batch size take the same number of steps: they train the same, which is checked.
 */
#include "bench.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

#define FIRST_GUESS 4
#define WARM_MIN 2
#define TRACED 20

struct bench {
    const struct pp_bench_spec *spec;
    struct pp_bench *out;
    struct pp_transport *world; /* NULL: no MPI */
    struct prober prober;
    double *times; /* [PROBE_STEPS_MAX] scratch */
};

/* Returns how many runs a round has: one for each reference that is not a row itself, and one for
 * each row. */
static int n_items(const struct bench *b)
{
    return b->out->n_references + b->out->n;
}

static struct pp_bench_row *find_item(const struct bench *b, int i)
{
    struct pp_bench *out = b->out;
    if (i < out->n_references)
        return out->reference_row[i] < 0 ? &out->references[i] : NULL;
    struct pp_bench_row *row = &out->rows[i - out->n_references];
    return row->skipped[0] ? NULL : row;
}

const struct pp_bench_row *bench_reference(const struct pp_bench *b, int r)
{
    return b->reference_row[r] < 0 ? &b->references[r] : &b->rows[b->reference_row[r]];
}

static bool first_process(const struct bench *b)
{
    return !b->world || b->world->rank == 0;
}

/* ---- one measurement */

/* Runs a row and measures it in *probe. All processes run a row whose ranks are processes
 * (collective); only the first process runs any other row. */
static int run_row(struct bench *b, const struct pp_bench_row *row, struct probe *probe)
{
    return row->processes || first_process(b) ? probe_run(&b->prober, row->cfg, probe) : 0;
}

static void keep_sample(struct bench *b, const struct probe *p, struct pp_bench_sample *s)
{
    uint64_t before = 0;
    pp_assert(b->times && b->prober.ends_ns); /* or nothing would have been run */
    for (int64_t i = 0; i < p->steps; i++) {
        b->times[i] = (double)(p->ends_ns[i] - before) * 1e-9;
        before = p->ends_ns[i];
    }
    pp_sort_doubles(b->times, p->steps);
    *s = (struct pp_bench_sample){
        .samples_per_second = (double)p->samples / p->seconds,
        .seconds = p->seconds,
        .step_p50 = pp_quantile(b->times, p->steps, 0.5),
        .step_p90 = pp_quantile(b->times, p->steps, 0.9),
        .step_p99 = pp_quantile(b->times, p->steps, 0.99),
        .step_min = b->times[0],
        .step_max = b->times[p->steps - 1],
        .bubble = p->bubble,
        .bubble_predicted = p->bubble_predicted,
        .bound = p->bound,
        .waited = p->waited,
        .loss = p->loss,
    };
    memcpy(s->sha, p->sha, sizeof(s->sha));
}

/* Runs a row once and keeps its sample of the round. A run that diverges is not an error: it has no
 * speed, but the other rows have one. */
static int measure_row(struct bench *b, struct pp_bench_row *row, int round)
{
    struct probe probe = {.warmup = row->warmup, .steps = row->steps};
    int rc = run_row(b, row, &probe);
    if (rc == PP_EDIVERGED) {
        snprintf(row->invalid, sizeof(row->invalid), "%.*s", PP_BENCH_WHY_MAX - 1,
                 pp_error_get()->text);
        pp_error_clear();
        return 0;
    }
    PP_TRY(rc);
    if (first_process(b)) {
        keep_sample(b, &probe, &row->samples[round]);
        row->peak_bytes = probe.peak_bytes;
    }
    return 0;
}

/* ---- the verdict */

int pp_bench_judge(const struct pp_bench_sample *s, const struct pp_bench_sample *reference,
                   bool exact, char *why)
{
    if (!isfinite(s->loss)) {
        snprintf(why, PP_BENCH_WHY_MAX, "the loss is not finite");
        return -1;
    }
    if (exact && (strlen(s->sha) != 64 || strcmp(s->sha, reference->sha) != 0)) {
        snprintf(why, PP_BENCH_WHY_MAX,
                 "other weights than the run with one stage: %.12s, expected %.12s", s->sha,
                 reference->sha);
        return -1;
    }
    double away = fabs(s->loss - reference->loss);
    if (!exact && !(away <= PP_BENCH_TOLERANCE * fabs(reference->loss))) {
        snprintf(why, PP_BENCH_WHY_MAX,
                 "the last loss is %.9g, that of the run with one stage %.9g: more than a part of "
                 "%g away",
                 s->loss, reference->loss, PP_BENCH_TOLERANCE);
        return -1;
    }
    return 0;
}

/* Checks a row's sample of the round against its reference's sample of the same round. A reference
 * is checked against its own sample of the first round. */
static void judge_row(const struct bench *b, struct pp_bench_row *row, int round)
{
    const struct pp_bench_row *ref = bench_reference(b->out, row->reference);
    struct pp_bench_sample *s = &row->samples[round];
    char why[PP_BENCH_WHY_MAX];
    const struct pp_bench_sample *expected = &ref->samples[row == ref ? 0 : round];
    s->valid = !row->invalid[0] && pp_bench_judge(s, expected, row->exact, why) == 0;
    if (!s->valid && !row->invalid[0])
        snprintf(row->invalid, sizeof(row->invalid), "round %d: %.400s", round + 1, why);
}

/* Returns whether the user wants to stop. It is always false in a launch of several processes,
 * because they would have to agree on it. */
static bool wants_stop(const struct bench *b)
{
    return !b->world && b->spec->stop && *b->spec->stop != 0;
}

/* Ends the rounds early. If this is the first round, the rows that were measured count. A later
 * round is dropped, so that all rows have the same number of samples. */
static void end_round_early(struct bench *b, int round)
{
    b->out->repeat = round > 0 ? round : 1;
    b->out->stopped = true;
    for (int i = 0; round == 0 && i < b->out->n; i++) {
        struct pp_bench_row *row = &b->out->rows[i];
        if (!row->skipped[0] && (row->samples[0].seconds <= 0 ||
                                 bench_reference(b->out, row->reference)->samples[0].seconds <= 0))
            snprintf(row->skipped, sizeof(row->skipped), "stopped before it was measured");
    }
}

static int run_round(struct bench *b, int round)
{
    int n = n_items(b), total = 0, done = 0;
    for (int k = 0; k < n; k++)
        total += find_item(b, k) != NULL;
    for (int k = 0; k < n; k++) {
        struct pp_bench_row *row = find_item(b, round % 2 == 0 ? k : n - 1 - k);
        if (!row)
            continue;
        if (wants_stop(b)) {
            end_round_early(b, round);
            break;
        }
        pp_log_progress("round %d/%d, row %d/%d: stages %d, %s, %d micro-batches", round + 1,
                        b->spec->repeat, ++done, total, row->stages, row->schedule,
                        row->microbatches);
        int rc = measure_row(b, row, round);
        if (b->world && !row->processes)
            rc = pp_transport_agree(b->world, rc); /* the others have waited */
        PP_TRY(rc);
    }
    for (int k = 0; first_process(b) && k < n && round < b->out->repeat; k++)
        if (find_item(b, k))
            judge_row(b, find_item(b, k), round);
    return 0;
}

/* ---- how many steps */

/* Computes how many steps of the reference, which has one stage, take the time of a measurement. */
static int estimate_steps(struct bench *b, const struct pp_bench_row *ref, int64_t *out)
{
    struct probe probe = {.warmup = WARM_MIN, .steps = FIRST_GUESS};
    PP_TRY(run_row(b, ref, &probe));
    if (probe.seconds <= b->spec->seconds / 20) {
        probe.steps = probe_steps(&probe, b->spec->seconds / 10);
        PP_TRY(run_row(b, ref, &probe));
    }
    *out = probe_steps(&probe, b->spec->seconds);
    return 0;
}

static int share_steps(struct bench *b, int rc, int64_t *steps)
{
    if (!b->world)
        return rc;
    return pp_transport_from_first(b->world, rc, steps, sizeof(*steps));
}

static void set_steps(struct pp_bench_row *row, int batch, int64_t warmup, int64_t steps)
{
    if (row && row->batch == batch) {
        row->steps = steps;
        row->warmup = warmup;
    }
}

static int choose_steps(struct bench *b)
{
    struct pp_bench *out = b->out;
    for (int r = 0; r < out->n_references; r++) {
        struct pp_bench_row *ref = &out->references[r];
        int64_t steps = 0;
        if (ref->steps > 0)
            continue; /* its batch had its turn */
        int rc = first_process(b) ? estimate_steps(b, ref, &steps) : 0;
        PP_TRY(share_steps(b, rc, &steps));
        int64_t warmup = b->spec->warmup >= 0 ? b->spec->warmup : steps / 10;
        warmup = b->spec->warmup < 0 && warmup < WARM_MIN ? WARM_MIN : warmup;
        for (int i = 0; i < out->n_references; i++)
            set_steps(&out->references[i], ref->batch, warmup, steps);
        for (int i = 0; i < out->n; i++)
            set_steps(&out->rows[i], ref->batch, warmup, steps);
    }
    return 0;
}

/* ---- traces */

/* Writes the path of a row's trace: if there are several rows, "out.json" becomes "out-3.json" for
 * the third one. */
static int trace_path(const struct bench *b, int row, char out[PP_PATH_MAX])
{
    const char *path = b->spec->trace, *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');
    size_t stem = dot ? (size_t)(dot - path) : strlen(path);
    return b->out->n - b->out->added == 1 ? pp_path_format(out, "%s", path)
                                          : pp_path_format(out, "%.*s-%d%s", (int)stem, path,
                                                           row + 1 - b->out->added, dot ? dot : "");
}

/* Runs an ordinary training of a few steps that writes a trace. Rows of processes: collective. */
static int trace_row(struct bench *b, int i)
{
    struct pp_bench_row *row = &b->out->rows[i];
    char path[PP_PATH_MAX];
    PP_TRY(trace_path(b, i, path));
    b->prober.options.trace.file = path;
    int rc = bench_set_number(row->cfg, "train.max_steps", TRACED);
    rc = rc == 0 ? run_row(b, row, NULL) : rc;
    int set = bench_set_number(row->cfg, "train.max_steps", 0);
    b->prober.options.trace.file = NULL;
    rc = rc == 0 ? set : rc;
    if (b->world && !row->processes)
        rc = pp_transport_agree(b->world, rc);
    return rc;
}

static int trace_all(struct bench *b)
{
    for (int i = b->out->added; b->spec->trace && i < b->out->n; i++)
        if (!b->out->rows[i].skipped[0])
            PP_TRY(trace_row(b, i));
    return 0;
}

/* ---- all of it */

/* Makes the choices that a config leaves to a measurement. If the config has a problem, *why gets
 * its text, and the function does not fail. */
static int choose_settings(struct bench *b, struct pp_config *cfg, char *why)
{
    const char *text = pp_config_problem_count(cfg) > 0 ? pp_config_problem_text(cfg, 0) : NULL;
    int rc = text ? 0 : pp_choose(cfg, PP_RUN_REAL, b->world);
    if (rc == PP_ECONFIG) {
        text = pp_error_get()->text;
        rc = 0;
    }
    if (text) {
        snprintf(why, PP_BENCH_WHY_MAX, "%.*s", PP_BENCH_WHY_MAX - 1, text);
        pp_error_clear();
    }
    return rc;
}

static int make_bench_rows(struct bench *b, struct pp_config *const *configs)
{
    struct pp_bench *out = b->out;
    int processes = b->world ? b->world->size : 0, n = out->n;
    for (int i = 0; i < n; i++) {
        PP_TRY(choose_settings(b, configs[i], out->rows[i + 1].skipped));
        PP_TRY(bench_row_make(&out->rows[i + 1], configs[i], processes));
    }
    PP_TRY(bench_begin_with_one(out, n, processes));
    return bench_find_references(out, processes);
}

static int take_memory(struct bench *b)
{
    struct pp_bench *out = b->out;
    b->times = pp_alloc(PROBE_STEPS_MAX, sizeof(*b->times));
    PP_TRY(probe_open(&b->prober));
    for (int k = 0; k < n_items(b); k++) {
        struct pp_bench_row *row = find_item(b, k);
        if (row && !(row->samples = pp_alloc((size_t)out->repeat, sizeof(*row->samples))))
            return PP_ERESOURCE;
    }
    return b->times ? 0 : PP_ERESOURCE;
}

static void raise_to(double *best, double x)
{
    *best = x > *best ? x : *best;
}

static void lower_to(double *best, double x)
{
    *best = *best <= 0 || (x > 0 && x < *best) ? x : *best;
}

/* Replaces each ceiling of *b by that of *more if it is better: other programs may have slowed down
 * one measurement and not the other. */
static void take_best(struct pp_bench *b, const struct pp_bench *more)
{
    struct pp_ceilings *c = &b->ceilings;
    struct pp_device_ceilings *d = &b->device;
    const struct pp_ceilings *m = &more->ceilings;
    for (int i = 0; i < c->fma_cores; i++)
        raise_to(&c->fma_core[i], m->fma_core[i]);
    double *const rates[] = {&c->fma_all,  &c->blas_core,  &c->blas_all,
                             &c->own_core, &c->own_all,    &c->gemm_core,
                             &c->gemm_all, &c->triad_core, &c->triad_all};
    const double found[] = {m->fma_all,   m->blas_core, m->blas_all,   m->own_core, m->own_all,
                            m->gemm_core, m->gemm_all,  m->triad_core, m->triad_all};
    for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++)
        raise_to(rates[i], found[i]);
    lower_to(&c->ping_pong, m->ping_pong);
    for (int i = 0; i < 3; i++)
        raise_to(&d->gemm[i], more->device.gemm[i]);
    raise_to(&d->copy, more->device.copy);
    lower_to(&d->launch, more->device.launch);
    lower_to(&d->op, more->device.op);
    lower_to(&d->node, more->device.node);
}

static int ceilings_again(const struct bench *b, const struct pp_config *cfg)
{
    struct pp_bench more = {.n = 0};
    if (!b->spec->ceilings || b->world)
        return 0;
    PP_TRY(pp_bench_ceilings(cfg, false, &more));
    take_best(b->spec->ceilings, &more);
    return 0;
}

static int run_all(struct bench *b, struct pp_config *const *configs)
{
    int rc = make_bench_rows(b, configs);
    if (rc == 0)
        rc = take_memory(b);
    if (rc == 0 && b->out->n_references > 0)
        rc = probe_open_data(&b->prober, configs[0]); /* a sweep does not change it */
    if (b->world)
        rc = pp_transport_agree(b->world, rc);
    PP_TRY(rc);
    PP_TRY(choose_steps(b));
    for (int round = 0; b->out->n_references > 0 && round < b->out->repeat; round++) {
        PP_TRY(run_round(b, round));
        PP_TRY(b->out->stopped ? 0 : ceilings_again(b, configs[0]));
    }
    return b->out->stopped ? 0 : trace_all(b);
}

int pp_bench_ceilings(const struct pp_config *cfg, bool cpu_time, struct pp_bench *bench)
{
    struct pp_ceiling_spec spec = {
        .whole_machine = pp_mpi_launched(), .cpu_time = cpu_time, .scale = 1};
    struct pp_backend_choice choice = pp_backend_choice_of(cfg);
    PP_TRY(pp_ceilings_measure(&spec, &bench->ceilings));
    return choice.ops && choice.ops->devices
               ? pp_device_ceilings_measure(&choice, 0, &bench->device)
               : 0;
}

int pp_bench_run(struct pp_config *const *configs, int n, const struct pp_bench_spec *spec,
                 struct pp_bench *out)
{
    pp_assert(n >= 1 && spec->repeat >= 1);
    *out = (struct pp_bench){.repeat = spec->repeat, .n = n, .speaks = true};
    struct bench b = {.spec = spec,
                      .out = out,
                      .prober.options = {.before_abort = spec->before_abort, .lost = spec->lost}};
    struct pp_world world;
    PP_TRY(pp_world_open(configs[0], 0, spec->same, spec->lost, &world));
    pp_world_ready(&world);
    b.world = world.tp;
    out->speaks = first_process(&b);
    out->rows = pp_alloc((size_t)n + 1, sizeof(*out->rows));
    int rc = out->rows ? run_all(&b, configs) : PP_ERESOURCE;
    pp_log_progress(NULL);
    pp_free(b.times);
    probe_close(&b.prober);
    pp_world_close(&world);
    if (rc < 0)
        pp_bench_fini(out);
    return rc;
}

static void free_row(struct pp_bench_row *row)
{
    pp_free(row->cfg);
    pp_free(row->samples);
}

void pp_bench_fini(struct pp_bench *b)
{
    for (int i = 0; b->rows && i < b->n; i++)
        free_row(&b->rows[i]);
    for (int i = 0; i < b->n_references; i++)
        free_row(&b->references[i]);
    pp_free(b->rows);
    pp_free(b->references);
    pp_free(b->reference_row);
    b->rows = b->references = NULL;
    b->reference_row = NULL;
    b->n = b->n_references = 0;
}
