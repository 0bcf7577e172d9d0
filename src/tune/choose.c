/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `schedule = auto`, `assignment = time`, `recompute = auto` and the k of 1f1b-eager become what a
 * measurement chooses, before anything is laid out. Under MPI rank 0 measures while the others
 * wait, and all take over its choice: two processes never measure the same.
 */
#include "tune.h"

#include <string.h>

#include "ppcli/log.h"
#include "ppcli/machine.h"

#define SECONDS 2.0 /* for measuring, about */
#define DRIFT 1.03  /* by how much a machine may be another when it is measured again */
#define MIB (1024.0 * 1024.0)

/* What is chosen, as written in a file. */
struct choice {
    char schedule[PP_NAME_MAX]; /* empty: was given */
    int chunks, eager, coalesce;
    int threads;                              /* 0: were given */
    char ranges[PP_CUT_MAX];                  /* empty: were given */
    char recompute[PP_CUT_MAX];               /* empty: was given */
    char costs[PP_CUT_MAX], cap[PP_NAME_MAX]; /* of a schedule that is made for them; else empty */
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

static bool open_again(const struct pp_config *cfg)
{
    return strcmp(cfg->pipeline.recompute, "auto") == 0;
}

/* With the schedule the cut is chosen too, where none is asked for. */
static bool joint_cut(const struct pp_config *cfg)
{
    return open_cut(cfg) || (open_schedule(cfg) && cfg->pipeline.assignment == PP_ASSIGN_AUTO &&
                             !cfg->pipeline.split_at[0]);
}

static bool open_eager(const struct pp_config *cfg)
{
    return pp_schedule_is_eager(cfg->pipeline.schedule) && cfg->pipeline.eager == 0;
}

static bool open_packed(const struct pp_config *cfg)
{
    return strcmp(pp_config_origin(cfg, "run.packed"), "default") == 0;
}

int pp_best_find(const struct pp_best_spec *spec, struct pp_config *cfg, double seconds,
                 struct pp_costs **costs, struct pp_best *out)
{
    struct pp_costs *again = NULL;
    struct pp_best best = {0};
    pp_assert(spec->cfg == cfg);
    PP_TRY(pp_best_measure(spec, seconds, costs));
    PP_TRY(pp_best_search(spec, *costs, out));
    if (!out->limited || !open_packed(cfg))
        return 0;
    cfg->run.packed = false;
    int rc = pp_best_measure(spec, seconds, &again);
    if (rc == 0)
        rc = pp_best_search(spec, again, &best);
    bool better = rc == 0 && best.n > 0 && out->n > 0 &&
                  best.items[0].time.step * DRIFT < out->items[0].time.step;
    cfg->run.packed = rc < 0 || (out->n > 0 && !better);
    if (!cfg->run.packed) {
        best.as_is = out->as_is; /* the config as given uses packed weights */
        pp_best_fini(out);
        pp_costs_destroy(costs);
        *out = best;
        *costs = again;
        return 0;
    }
    if (rc < 0)
        pp_best_fini(out);
    pp_best_fini(&best);
    pp_costs_destroy(&again);
    return rc;
}

static void announce(const struct pp_best_spec *spec, const struct pp_best *best,
                     const struct pp_costs *costs)
{
    const struct pp_candidate *c = &best->items[0], *other = NULL;
    for (int i = 1; i < best->n && !other; i++)
        other = strcmp(best->items[i].schedule, c->schedule) != 0 ? &best->items[i] : NULL;
    char chunks[32] = "", sums[32] = "", threads[48] = "", next[128] = "no other fits";
    if (c->chunks > 1)
        snprintf(chunks, sizeof(chunks), " with %d chunks", c->chunks);
    if (other)
        snprintf(next, sizeof(next), "then %s, %.3f ms", other->schedule, other->time.step * 1e3);
    if (c->together > 1)
        snprintf(sums, sizeof(sums), ", W of %d together", c->together);
    if (c->threads > 1)
        snprintf(threads, sizeof(threads), ", %d threads a rank", c->threads);
    pp_log_info("schedule auto: %s%s%s%s, %.3f ms a step predicted for %d micro-batches (%s); "
                "measured in %.1f s, %d of %d shapes can run",
                c->schedule, chunks, sums, threads, c->time.step * 1e3,
                spec->cfg->pipeline.microbatches, next, costs->took, best->n, best->tried);
}

static int choose_schedule(const struct pp_best_spec *spec, struct pp_config *cfg,
                           struct pp_costs **costs, struct pp_candidate *out)
{
    PP_OWN(pp_best_fini) struct pp_best best = {0};
    const struct pp_best_shape own = {cfg->pipeline.stages, cfg->pipeline.replicas, 0};
    PP_OWN_MEMORY struct pp_best_shape *shapes = NULL;
    struct pp_best_spec all = *spec;
    PP_TRY(pp_best_shapes(spec, &own, &shapes, &all.n_shapes));
    all.shapes = shapes;
    PP_TRY(pp_best_find(&all, cfg, SECONDS, costs, &best));
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
                       open_packed(cfg) || !cfg->run.packed ? "" : "; run.packed = off needs less");
    }
    if (best.why[0])
        return pp_fail(PP_ECONFIG, "pipeline.schedule = auto: no schedule can run: %s", best.why);
    return pp_fail(PP_ECONFIG,
                   "pipeline.schedule = auto: no schedule can run %d stages with %d "
                   "micro-batches%s",
                   spec->cfg->pipeline.stages, spec->cfg->pipeline.microbatches,
                   spec->cfg->pipeline.chunks > 0 ? " and this many chunks" : "");
}

/* The config's schedule with another cut, or recomputing what it must. */
static int choose_with(const struct pp_best_spec *spec, const struct pp_costs *costs,
                       struct pp_candidate *c)
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
    *c = (struct pp_candidate){.stages = cfg->pipeline.stages,
                               .chunks = chunks,
                               .microbatches = cfg->pipeline.microbatches,
                               .assignment = cfg->pipeline.assignment,
                               .recompute = spec->recompute};
    if (open_eager(cfg))
        c->eager = pp_best_eager(spec, costs, c->stages, c->microbatches);
    if (open_cut(cfg))
        PP_TRY(best_cut(spec, costs, true, c));
    int rc = pp_best_try(spec, costs, c);
    if (rc == 0 && open_cut(cfg))
        rc = pp_best_refine(spec, costs, c, &left);
    if (rc == 0 && spec->recompute && c->over)
        rc = pp_best_fit(spec, costs, c);
    return rc == PP_ECONFIG ? 0 : rc; /* for the layout to say, with its key */
}

/* Without packed weights where nothing fits with them. */
static int choose_rest(const struct pp_best_spec *spec, struct pp_config *cfg,
                       struct pp_costs **costs, struct pp_candidate *c)
{
    PP_TRY(pp_best_measure(spec, SECONDS, costs));
    PP_TRY(choose_with(spec, *costs, c));
    if (!c->over || !open_packed(cfg))
        return 0;
    cfg->run.packed = false;
    pp_costs_destroy(costs);
    PP_TRY(pp_best_measure(spec, SECONDS, costs));
    return choose_with(spec, *costs, c);
}

#define THREAD_ADDRESSES ((uint64_t)64 << 20) /* that a thread's first malloc() reserves */

/* Of all ranks of a machine: one of each replica, or of all that share their memory, reads them. */
static uint64_t data_bytes(const struct pp_best_spec *spec)
{
    const struct pp_config *cfg = spec->cfg;
    uint64_t sample = pp_run_sample_bytes(cfg, spec->model);
    uint64_t rows = (uint64_t)spec->train_n + (uint64_t)spec->test_n;
    int readers = cfg->run.launch == PP_LAUNCH_MPIRUN ? cfg->pipeline.replicas : 1;
    return sample > 0 ? rows * (sample + 1) * (uint64_t)readers : 0;
}

/* What a rank may take: run.memory, or its part of what is there beside the data. */
static int memory_of(const struct pp_best_spec *spec, size_t *out)
{
    const struct pp_config *cfg = spec->cfg;
    struct pp_device devices[PP_DEVICES_MAX];
    const struct pp_backend_ops *ops = NULL;
    int n = 0, ranks = cfg->pipeline.stages * cfg->pipeline.replicas;
    uint64_t free_bytes = 0;
    *out = (size_t)cfg->run.memory;
    if (*out > 0 || !open_again(cfg))
        return 0;
    PP_TRY(pp_backend_resolve(cfg->run.backend, &ops));
    PP_TRY(pp_devices_find(ops, cfg, devices, &n));
    if (n > 0 && ops->free_bytes) {
        PP_TRY(ops->free_bytes(devices[0].number, &free_bytes));
        ranks = (ranks + n - 1) / n;
    } else {
        struct pp_room room;
        const char *what;
        pp_room_find("", &room);
        enum pp_room_kind kind = pp_room_nearest(&room, &what);
        uint64_t data = data_bytes(spec);
        if (kind == PP_ROOM_ADDRESS)
            data += (uint64_t)ranks * THREAD_ADDRESSES;
        free_bytes = room.bytes[kind];
        if (free_bytes < UINT64_MAX)
            free_bytes -= data < free_bytes ? data : free_bytes;
    }
    if (free_bytes < SIZE_MAX / 2) /* 0 would be no limit */
        *out = (size_t)(free_bytes / 10 * 9) / (size_t)ranks + 1;
    return 0;
}

/* A key's value as written in a file. */
static int text_of(const struct pp_config *cfg, const char *key, char *out, size_t bytes)
{
    int i = 0;
    while (strcmp(pp_config_key_name(i), key) != 0)
        i++;
    return pp_config_key_value(cfg, i, out, bytes);
}

/* The candidate's values as the texts of a file. */
static int write_out(const struct pp_best_spec *spec, const struct pp_candidate *c,
                     const struct pp_costs *costs, struct choice *out)
{
    const struct pp_config *cfg = spec->cfg;
    struct pp_config *chosen = NULL;
    PP_TRY(pp_best_config(cfg, spec->model, c, costs, &chosen));
    bool ranges = chosen->pipeline.ranges[0];
    if (open_schedule(cfg))
        memcpy(out->schedule, c->schedule, sizeof(out->schedule));
    out->chunks = c->chunks;
    out->eager = c->eager;
    out->threads = c->threads > 0 && pp_best_open_threads(cfg) ? c->threads : 0;
    out->coalesce = open_schedule(cfg) && cfg->train.coalesce == 0 ? chosen->train.coalesce : 0;
    out->unpacked = !cfg->run.packed && open_packed(cfg);
    if (joint_cut(cfg))
        snprintf(out->ranges, sizeof(out->ranges), "%s", ranges ? chosen->pipeline.ranges : "auto");
    if (open_again(cfg)) {
        const char *again = chosen->pipeline.recompute;
        snprintf(out->recompute, sizeof(out->recompute), "%s", again[0] ? again : "off");
    }
    int rc = 0;
    if (c->cap > 0)
        rc = text_of(chosen, "pipeline.costs", out->costs, sizeof(out->costs));
    if (c->cap > 0 && rc == 0)
        rc = text_of(chosen, "pipeline.memory_cap", out->cap, sizeof(out->cap));
    pp_free(chosen);
    PP_TRY(rc);
    if (out->unpacked)
        pp_log_info("packed off: there is no room for the packed weights");
    if (open_cut(cfg))
        pp_log_info("assignment time: %s; measured in %.1f s", out->ranges, costs->took);
    if (open_again(cfg)) {
        pp_log_info("recompute auto: %.200s; a rank holds %.1f MiB of %.1f", out->recompute,
                    (double)c->peak_bytes / MIB, (double)spec->memory / MIB);
    }
    if (open_eager(cfg)) {
        pp_log_info("%s: k = %d from the cost of a transfer; measured in %.1f s",
                    cfg->pipeline.schedule, out->eager, costs->took);
    }
    if (cfg->run.memory > 0 && c->over) {
        return pp_fail(PP_ERESOURCE,
                       "run.memory = %lld: a rank holds at least %.2f MiB with this schedule; "
                       "ppcli plan CONFIG --best --memory %lld looks for others",
                       (long long)cfg->run.memory, (double)c->peak_bytes / MIB,
                       (long long)cfg->run.memory);
    }
    return 0;
}

static int choose(struct pp_config *cfg, enum pp_run_need need, const struct pp_links *links,
                  struct choice *out)
{
    PP_OWN(pp_model_destroy) struct pp_model *model = NULL;
    PP_OWN(pp_costs_destroy) struct pp_costs *costs = NULL;
    struct pp_best_spec spec = {.cfg = cfg, .links = links};
    memset(out, 0, sizeof(*out));
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TRAIN, &spec.train_n));
    PP_TRY(pp_run_samples(cfg, need, PP_SPLIT_TEST, &spec.test_n));
    PP_TRY(pp_run_model(cfg, &model));
    spec.model = model;
    spec.cuts = joint_cut(cfg);
    spec.recompute = open_again(cfg);
    spec.coalesce = open_schedule(cfg);
    PP_TAKE(struct pp_candidate, c, 1);
    PP_TRY(memory_of(&spec, &spec.memory));
    PP_TRY(open_schedule(cfg) ? choose_schedule(&spec, cfg, &costs, c)
                              : choose_rest(&spec, cfg, &costs, c));
    return write_out(&spec, c, costs, out);
}

static int put(struct pp_config *cfg, const char *key, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    return pp_config_choose(cfg, key, text);
}

static int take_over(struct pp_config *cfg, const struct choice *c)
{
    if (c->schedule[0]) {
        PP_TRY(pp_config_choose(cfg, "pipeline.schedule", c->schedule));
        if (cfg->pipeline.chunks == 0)
            PP_TRY(put(cfg, "pipeline.chunks", c->chunks));
    }
    if (cfg->pipeline.eager == 0 && c->eager > 0)
        PP_TRY(put(cfg, "pipeline.eager", c->eager));
    if (c->coalesce > 0)
        PP_TRY(put(cfg, "train.coalesce", c->coalesce));
    if (c->threads > 0)
        PP_TRY(put(cfg, "run.threads", c->threads));
    if (c->unpacked)
        PP_TRY(pp_config_choose(cfg, "run.packed", "off"));
    if (c->recompute[0])
        PP_TRY(pp_config_choose(cfg, "pipeline.recompute", c->recompute));
    if (c->costs[0]) {
        PP_TRY(pp_config_choose(cfg, "pipeline.costs", c->costs));
        PP_TRY(pp_config_choose(cfg, "pipeline.memory_cap", c->cap));
    }
    return c->ranges[0] ? pp_config_choose(cfg, "pipeline.assignment", c->ranges) : 0;
}

bool pp_choose_wanted(const struct pp_config *cfg)
{
    return open_schedule(cfg) || open_cut(cfg) || open_eager(cfg) || open_again(cfg);
}

int pp_choose(struct pp_config *cfg, enum pp_run_need need, struct pp_transport *tp)
{
    if (!pp_choose_wanted(cfg))
        return 0;
    PP_OWN_MEMORY struct choice *c = pp_alloc(1, sizeof(*c));
    int rc = c ? 0 : PP_ERESOURCE;
    struct pp_links links = {0};
    if (tp)
        rc = pp_transport_agree(tp, rc);
    if (tp && rc == 0)
        rc = pp_links_measure(tp, &links);
    if (rc == 0 && c && (!tp || tp->rank == 0))
        rc = choose(cfg, need, tp ? &links : NULL, c);
    pp_free(links.host);
    PP_TRY(tp ? pp_transport_from_first(tp, rc, c, sizeof(*c)) : rc);
    pp_assert(c != NULL); /* or rc were a failure */
    return take_over(cfg, c);
}
