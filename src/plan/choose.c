/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `schedule = auto`, `assignment = time`, `recompute = auto` and the k of 1f1b-eager become what a
 * measurement chooses, before anything is laid out. Under MPI rank 0 measures while the others
 * wait, and all take over its choice: two processes never measure the same.
 */
#include "search.h"

#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/base/cores.h"

#define SECONDS 2.0 /* for measuring, about */
#define DRIFT 1.03  /* by how much a machine may be another when it is measured again */
#define MIB (1024.0 * 1024.0)

/* What is chosen, as it travels to the other ranks. */
struct choice {
    struct pp_division d;
    int schedule; /* in the list of schedules; -1: a table */
    bool fitted;  /* the order is made for these: */
    int64_t ticks[PP_NUMBERS_MAX];
    bool unpacked;
};

static bool open_schedule(const struct pp_config *cfg)
{
    return strcmp(cfg->pipeline.schedule, "auto") == 0;
}

static bool open_cut(const struct pp_config *cfg)
{
    return cfg->pipeline.assignment == PP_ASSIGN_TIME;
}

static bool open_recompute(const struct pp_config *cfg)
{
    return strcmp(cfg->pipeline.recompute, "auto") == 0;
}

/* Returns whether the cut is chosen together with the schedule: if the cut is open, or if the
 * schedule is open and no cut is asked for. */
static bool joint_cut(const struct pp_config *cfg)
{
    return open_cut(cfg) || (open_schedule(cfg) && cfg->pipeline.assignment == PP_ASSIGN_AUTO &&
                             !cfg->pipeline.split_at[0]);
}

static bool open_eager(const struct pp_config *cfg)
{
    const struct pp_schedule_ops *ops = pp_schedule_find(cfg->pipeline.schedule);
    return ops && ops->eager && cfg->pipeline.eager == 0;
}

static bool open_packed(const struct pp_config *cfg)
{
    return strcmp(pp_config_origin(cfg, "run.packed"), "default") == 0;
}

int pp_best_find(struct pp_space *spec, double seconds, struct pp_costs **costs,
                 struct pp_rows *out)
{
    struct pp_costs *again = NULL;
    struct pp_rows best = {0};
    bool *unpacked = &spec->training.backend.unpacked;
    PP_TRY(pp_best_measure(spec, seconds, costs));
    PP_TRY(pp_search(spec, *costs, out));
    if (!out->limited || !open_packed(spec->cfg))
        return 0;
    *unpacked = true;
    int rc = pp_best_measure(spec, seconds, &again);
    if (rc == 0)
        rc = pp_search(spec, again, &best);
    bool better = rc == 0 && best.n > 0 && out->n > 0 &&
                  best.items[0].time.step * DRIFT < out->items[0].time.step;
    *unpacked = !(rc < 0 || (out->n > 0 && !better));
    if (*unpacked) {
        best.as_is = out->as_is; /* the config as given uses packed weights */
        pp_rows_fini(out);
        pp_costs_destroy(costs);
        *out = best;
        *costs = again;
        return 0;
    }
    if (rc < 0)
        pp_rows_fini(out);
    pp_rows_fini(&best);
    pp_costs_destroy(&again);
    return rc;
}

static void announce(const struct pp_space *spec, const struct pp_rows *best,
                     const struct pp_costs *costs)
{
    const struct pp_row *c = &best->items[0], *other = NULL;
    for (int i = 1; i < best->n && !other; i++)
        other = best->items[i].d.schedule != c->d.schedule ? &best->items[i] : NULL;
    char chunks[32] = "", sums[32] = "", threads[48] = "", next[128] = "no other fits";
    if (c->d.chunks > 1)
        snprintf(chunks, sizeof(chunks), " with %d chunks", c->d.chunks);
    if (other)
        snprintf(next, sizeof(next), "then %s, %.3f ms", pp_division_schedule(&other->d),
                 other->time.step * 1e3);
    if (c->together > 1)
        snprintf(sums, sizeof(sums), ", W of %d together", c->together);
    if (c->d.threads > 1)
        snprintf(threads, sizeof(threads), ", %d threads a rank", c->d.threads);
    pp_log_info("schedule auto: %s%s%s%s, %.3f ms a step predicted for %d micro-batches (%s); "
                "measured in %.1f s, %d of %ld shapes can run",
                pp_division_schedule(&c->d), chunks, sums, threads, c->time.step * 1e3,
                spec->cfg->pipeline.microbatches, next, costs->took, best->n, best->tried);
}

static int choose_schedule(struct pp_space *spec, struct pp_costs **costs, struct pp_row *out)
{
    PP_OWN(pp_rows_fini) struct pp_rows best = {0};
    const struct pp_config *cfg = spec->cfg;
    PP_OWN_MEMORY struct pp_division *shapes = NULL;
    struct pp_space all = *spec;
    PP_TRY(pp_best_shapes(spec, spec->base.stages, spec->base.replicas, &shapes, &all.n_shapes));
    all.shapes = shapes;
    PP_TRY(pp_best_find(&all, SECONDS, costs, &best));
    spec->training = all.training;
    if (best.n > 0) {
        announce(spec, &best, *costs);
        *out = best.items[0];
        return 0;
    }
    if (best.too_large > 0) {
        return pp_fail(PP_ERESOURCE,
                       "pipeline.schedule = auto: no shape holds less than %.2f MiB in a rank, "
                       "which may take %.2f%s%s",
                       (double)best.smallest.peak_bytes / MIB, (double)spec->memory / MIB,
                       spec->recompute ? "" : "; pipeline.recompute = auto may need less",
                       open_packed(cfg) || spec->training.backend.unpacked
                           ? ""
                           : "; run.packed = off needs less");
    }
    if (best.why[0])
        return pp_fail(PP_ECONFIG, "pipeline.schedule = auto: no schedule can run: %s", best.why);
    return pp_fail(PP_ECONFIG,
                   "pipeline.schedule = auto: no schedule can run %d stages with %d "
                   "micro-batches%s",
                   spec->cfg->pipeline.stages, spec->cfg->pipeline.microbatches,
                   spec->cfg->pipeline.chunks > 0 ? " and this many chunks" : "");
}

/* Fills *c with the config's own schedule, and chooses what the config leaves open: the cut by
 * time, pipeline.eager, and what is recomputed. */
static int choose_with(const struct pp_space *spec, const struct pp_costs *costs, struct pp_row *c)
{
    const struct pp_config *cfg = spec->cfg;
    const struct pp_schedule_ops *ops = pp_schedule_find(cfg->pipeline.schedule);
    int chunks = cfg->pipeline.chunks > 0 ? cfg->pipeline.chunks : 0;
    if (chunks == 0 && !ops) {
        return pp_fail(PP_ECONFIG, "pipeline.%s needs pipeline.chunks when the schedule is a table",
                       open_cut(cfg) ? "assignment = time" : "recompute = auto");
    }
    chunks = chunks > 0 ? chunks : pp_schedule_default_chunks(ops);
    int64_t n = (int64_t)chunks * cfg->pipeline.stages;
    if (n > spec->model->n_layers)
        return pp_partition(spec->model, cfg, (int)n, NULL, NULL); /* says what is too much */
    if (n > PP_STAGES_MAX) {
        return pp_fail(PP_ECONFIG, "pipeline.chunks: %d stages x %d chunks are more than %d pieces",
                       cfg->pipeline.stages, chunks, PP_STAGES_MAX);
    }
    double left = REFINE_ACTIONS;
    *c = (struct pp_row){.d = spec->base, .timed = spec->timed, .chooses_redo = spec->recompute};
    c->d.chunks = chunks;
    if (open_eager(cfg))
        c->d.eager = best_eager(spec, costs, c->d.stages, c->d.microbatches);
    if (open_cut(cfg))
        PP_TRY(best_cut(spec, costs, true, c));
    int rc = pp_best_try(spec, costs, c);
    if (rc == 0 && open_cut(cfg))
        rc = best_refine(spec, costs, c, &left);
    if (rc == 0 && spec->recompute && c->over)
        rc = best_fit(spec, costs, c);
    return rc == PP_ECONFIG ? 0 : rc; /* for the layout to say, with its key */
}

/* Measures the costs and chooses. If no plan fits in memory with packed weights and run.packed is
 * open, it measures and chooses again without packed weights. */
static int choose_rest(struct pp_space *spec, struct pp_costs **costs, struct pp_row *c)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *table = NULL;
    PP_TRY(pp_layout_is_table(spec->cfg) ? pp_layout_read_table(spec->cfg, NULL, &table) : 0);
    spec->base.table = table;
    PP_TRY(pp_best_measure(spec, SECONDS, costs));
    int rc = choose_with(spec, *costs, c);
    if (rc == 0 && c->over && open_packed(spec->cfg)) {
        spec->training.backend.unpacked = true;
        pp_costs_destroy(costs);
        rc = pp_best_measure(spec, SECONDS, costs);
        rc = rc < 0 ? rc : choose_with(spec, *costs, c);
    }
    c->d.table = spec->base.table = NULL;
    return rc;
}

#define THREAD_ADDRESSES ((uint64_t)64 << 20) /* that a thread's first malloc() reserves */

/* Returns the bytes of the data that all ranks of a machine hold: the ranks of mpirun hold one copy
 * per replica, threads share one copy. */
static uint64_t data_bytes(const struct pp_space *spec)
{
    const struct pp_config *cfg = spec->cfg;
    uint64_t sample = pp_run_sample_bytes(cfg, spec->model);
    uint64_t rows = (uint64_t)spec->training.train_all + (uint64_t)spec->training.test_n;
    int readers = cfg->run.launch == PP_LAUNCH_MPIRUN ? cfg->pipeline.replicas : 1;
    return sample > 0 ? rows * (sample + 1) * (uint64_t)readers : 0;
}

/* Sets *out to the bytes that a rank may hold: run.memory, else the rank's part of 90 % of what is
 * free on its device, or on this machine after the data. 0 means no limit; it is also set if
 * recompute is not open. */
static int memory_of(const struct pp_space *spec, size_t *out)
{
    const struct pp_config *cfg = spec->cfg;
    struct pp_device devices[PP_DEVICES_MAX];
    const struct pp_backend_ops *ops = NULL;
    int n = 0, ranks = cfg->pipeline.stages * cfg->pipeline.replicas;
    uint64_t free_bytes = 0;
    *out = (size_t)cfg->run.memory;
    if (*out > 0 || !open_recompute(cfg))
        return 0;
    PP_TRY(pp_backend_resolve(cfg->run.backend, &ops));
    PP_TRY(pp_devices_find(ops, cfg, devices, &n));
    if (n > 0 && ops->free_bytes) {
        PP_TRY(ops->free_bytes(devices[0].number, &free_bytes));
        ranks = (ranks + n - 1) / n;
    } else {
        struct pp_memory_left room;
        const char *what;
        pp_memory_left_find("", &room);
        enum pp_memory_limit kind = pp_memory_left_least(&room, &what);
        uint64_t data = data_bytes(spec);
        if (kind == PP_MEMORY_ADDRESS)
            data += (uint64_t)ranks * THREAD_ADDRESSES;
        free_bytes = room.bytes[kind];
        if (free_bytes < UINT64_MAX)
            free_bytes -= data < free_bytes ? data : free_bytes;
    }
    if (free_bytes < SIZE_MAX / 2) /* 0 would be no limit */
        *out = (size_t)(free_bytes / 10 * 9) / (size_t)ranks + 1;
    return 0;
}

/* Prints a line for each choice that the config left open. Fails if a rank holds more than
 * run.memory. */
static int tell(const struct pp_space *spec, const struct pp_row *c, const struct pp_costs *costs,
                const struct choice *chosen)
{
    const struct pp_config *cfg = spec->cfg;
    PP_TAKE(char, text, PP_CUT_MAX);
    if (chosen->unpacked)
        pp_log_info("packed off: there is no room for the packed weights");
    if (open_cut(cfg)) {
        PP_TRY(pp_division_value(&chosen->d, spec->model, cfg, "pipeline.assignment", text,
                                 PP_CUT_MAX));
        pp_log_info("assignment time: %s; measured in %.1f s", text, costs->took);
    }
    if (open_recompute(cfg)) {
        PP_TRY(pp_division_value(&chosen->d, spec->model, cfg, "pipeline.recompute", text,
                                 PP_CUT_MAX));
        pp_log_info("recompute auto: %.200s; a rank holds %.1f MiB of %.1f", text,
                    (double)c->peak_bytes / MIB, (double)spec->memory / MIB);
    }
    if (open_eager(cfg)) {
        pp_log_info("%s: k = %d from the cost of a transfer; measured in %.1f s",
                    cfg->pipeline.schedule, chosen->d.eager, costs->took);
    }
    if (cfg->run.memory > 0 && c->over) {
        return pp_fail(PP_ERESOURCE,
                       "run.memory = %lld: a rank holds at least %.2f MiB with this schedule; "
                       "ppcli tune CONFIG --memory %lld looks for others",
                       (long long)cfg->run.memory, (double)c->peak_bytes / MIB,
                       (long long)cfg->run.memory);
    }
    return 0;
}

static int choose(struct pp_config *cfg, enum pp_run_need need, const struct pp_links *links,
                  const struct pp_model *model, struct choice *out)
{
    PP_OWN(pp_costs_destroy) struct pp_costs *costs = NULL;
    int train_n, test_n;
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TRAIN, &train_n));
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TEST, &test_n));
    struct pp_space spec = pp_space_of(cfg, model, train_n, test_n);
    spec.links = links;
    spec.cuts = joint_cut(cfg);
    spec.recompute = open_recompute(cfg);
    spec.coalesce = open_schedule(cfg);
    PP_TAKE(struct pp_row, c, 1);
    PP_TRY(memory_of(&spec, &spec.memory));
    PP_TRY(open_schedule(cfg) ? choose_schedule(&spec, &costs, c) : choose_rest(&spec, &costs, c));
    PP_TRY(pp_best_division(&spec, costs, c, out->ticks, &out->d));
    out->fitted = c->fitted;
    out->unpacked = spec.training.backend.unpacked && open_packed(cfg);
    out->schedule = -1;
    for (int i = 0; out->d.schedule && pp_schedule_names()[i]; i++)
        if (pp_schedule_find(pp_schedule_names()[i]) == out->d.schedule)
            out->schedule = i;
    return tell(&spec, c, costs, out);
}

/* Sets the keys that the config has left open to the values of the division. */
static int take_over(struct pp_config *cfg, const struct pp_model *model, struct choice *c)
{
    struct pp_division *d = &c->d;
    bool schedule = open_schedule(cfg), joint = joint_cut(cfg);
    const struct {
        const char *key;
        bool open;
    } keys[] = {{"pipeline.schedule", schedule},
                {"pipeline.chunks", schedule && cfg->pipeline.chunks == 0},
                {"pipeline.eager", cfg->pipeline.eager == 0 && d->eager > 0},
                {"train.coalesce", schedule && cfg->train.coalesce == 0},
                {"run.threads", d->threads > 0 && pp_best_open_threads(cfg) && schedule},
                {"pipeline.recompute", open_recompute(cfg)},
                {"pipeline.costs", c->fitted},
                {"pipeline.memory_cap", c->fitted},
                {"pipeline.assignment", joint}};
    enum {
        KEYS = sizeof(keys) / sizeof(keys[0])
    };
    PP_TAKE(char, texts, (size_t)KEYS *PP_CUT_MAX);
    d->schedule = c->schedule >= 0 ? pp_schedule_find(pp_schedule_names()[c->schedule]) : NULL;
    d->ticks = c->fitted ? c->ticks : NULL;
    for (int i = 0; i < KEYS; i++)
        PP_TRY(pp_division_value(d, model, cfg, keys[i].key, texts + (size_t)i * PP_CUT_MAX,
                                 PP_CUT_MAX));
    for (int i = 0; i < KEYS; i++) {
        const char *text = texts + (size_t)i * PP_CUT_MAX;
        bool rule = strcmp(keys[i].key, "train.coalesce") == 0 && strcmp(text, "0") == 0;
        if (keys[i].open && !rule)
            PP_TRY(pp_config_choose(cfg, keys[i].key, text));
    }
    return c->unpacked ? pp_config_choose(cfg, "run.packed", "off") : 0;
}

bool pp_choose_wanted(const struct pp_config *cfg)
{
    return open_schedule(cfg) || open_cut(cfg) || open_eager(cfg) || open_recompute(cfg);
}

int pp_choose(struct pp_config *cfg, enum pp_run_need need, struct pp_transport *tp)
{
    if (!pp_choose_wanted(cfg))
        return 0;
    PP_OWN(pp_model_destroy) struct pp_model *model = NULL;
    PP_OWN_MEMORY struct choice *c = pp_alloc(1, sizeof(*c));
    int rc = c ? pp_run_model(cfg, &model) : PP_ERESOURCE;
    struct pp_links links = {0};
    if (tp)
        rc = pp_transport_agree(tp, rc);
    if (tp && rc == 0)
        rc = pp_links_measure(tp, &links);
    if (rc == 0 && c && (!tp || tp->rank == 0))
        rc = choose(cfg, need, tp ? &links : NULL, model, c);
    pp_free(links.host);
    PP_TRY(tp ? pp_transport_from_first(tp, rc, c, sizeof(*c)) : rc);
    pp_assert(c != NULL && model != NULL); /* or rc were a failure */
    return take_over(cfg, model, c);
}
