/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli profile: what a measured pipeline did, why it waited, and what another plan would have
 * taken. --against: how well that predicts another measured pipeline of the same machine.
 */
#include "results.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/sim/trace.h"
#include "report.h"

#define SHOWN 12
#define SHOWN_EVEN 4
#define GIB 0x1p30

static double change_percent(double part, double whole)
{
    return whole > 0 ? 100 * (part / whole - 1) : 0;
}

static const char *name_schedule(const struct pp_profile *p)
{
    return p->schedule ? p->schedule : "an order of its own";
}

/* ---- for people */

static void print_profile_head(const struct pp_profile *p, FILE *out)
{
    const struct pp_geometry *g = &p->plan->geometry;
    fprintf(out, "%s: %s, %d stage%s", p->source, name_schedule(p), g->stages,
            pp_plural(g->stages));
    if (g->chunks > 1)
        fprintf(out, " x %d chunks", g->chunks);
    fprintf(out, ", %d micro-batch%s", g->microbatches, g->microbatches == 1 ? "" : "es");
    if (p->replicas > 1)
        fprintf(out, ", the first of %d replicas", p->replicas);
    fprintf(out, "\n%d step%s read; ", p->steps, pp_plural(p->steps));
    if (p->first > 0)
        fprintf(out, "step %d to %d count, the ones before warm up\n", p->first + 1, p->steps);
    else
        fprintf(out, "all count\n");
    if (p->shift > 0)
        fprintf(out, "clocks of the ranks differed by up to %.3f ms; corrected\n", 1e3 * p->shift);
}

static void print_profile_ranks(const struct pp_profiled *s, FILE *out)
{
    static const char letters[] = PP_OP_LETTERS;
    const struct pp_profile_range *all = s->f->ranges;
    const struct pp_plan *plan = s->p->plan;
    fprintf(out, "\n%4s  %-2s  %9s %9s %9s %9s %9s   %6s %8s %10s\n", "rank", "", "least ms", "5 %",
            "mean", "95 %", "most", "busy", "in flight", "GiB");
    for (int r = 0; r < plan->geometry.stages; r++) {
        bool first = true;
        for (int op = 0; op <= PP_OP_B; op++) {
            const struct pp_profile_range *t = &all[r * PP_OPS + op];
            if (t->most <= 0)
                continue;
            char rank[16] = "";
            if (first)
                snprintf(rank, sizeof(rank), "%d", r);
            fprintf(out, "%4s  ", rank);
            fprintf(out, "%-2c  %9.3f %9.3f %9.3f %9.3f %9.3f", letters[op], 1e3 * t->least,
                    1e3 * t->low, 1e3 * t->mean, 1e3 * t->high, 1e3 * t->most);
            if (first)
                fprintf(out, "   %5.1f%% %8.3g", 100 * s->f->busy[r], s->f->peak[r]);
            if (first && s->p->memory[r] > 0)
                fprintf(out, " %11.2f", s->p->memory[r] / GIB);
            fprintf(out, "\n");
            first = false;
        }
    }
}

static void print_step(const struct pp_profiled *s, FILE *out)
{
    const struct pp_profile_fit *f = s->f;
    fprintf(out, "\nstep, measured           %10.3f ms  (%.3f to %.3f)\n", 1e3 * f->step,
            1e3 * f->step_least, 1e3 * f->step_most);
    fprintf(out, "simulated, each action   %10.3f ms  (%+.2f %%, the median step's error)\n",
            1e3 * f->each, 100 * f->error);
    fprintf(out, "simulated, with means    %10.3f ms  (%+.2f %%)\n", 1e3 * f->means,
            change_percent(f->means, f->step));
    if (f->outside > 0)
        fprintf(out, "outside of the pipeline  %10.3f ms a step\n", 1e3 * f->outside);
    fprintf(out, "a transfer takes %.3f ms, and %.3f ms pass between two actions (fitted)\n",
            1e3 * f->latency, 1e3 * f->launch);
    if (f->memory_base > 0)
        fprintf(
            out,
            "memory of a rank: %.2f GiB + %.2f GiB for each micro-batch in flight (fitted, at most "
            "%.1f %% off)\n",
            f->memory_base / GIB, f->memory_slope / GIB, 100 * f->memory_error);
    fprintf(
        out,
        "bubble %.1f %%: schedule %.1f + imbalance %.1f + transfers %.1f + jitter %.1f; stage %d "
        "has %.0f %% of the work\n",
        100 * f->idle, 100 * f->bubble.schedule, 100 * f->bubble.imbalance, 100 * f->bubble.waiting,
        100 * f->jitter, f->bubble.busiest, 100 * f->bubble.work);
}

struct other_row {
    int number;
    double gain;     /* of the step, against the simulation of what ran */
    double cap, gib; /* NAN: none, unknown */
    const char *schedule, *cut;
    struct pp_row row;
};

#define OTHER(m) PP_FIELD(struct other_row, m)
static const struct pp_column other_columns[] = {
    {NULL, "", OTHER(number)},
    {"schedule", "schedule", OTHER(schedule), .help = "what else would have run"},
    {"chunks", "chunks", OTHER(row.d.chunks)},
    {"microbatches", "microbatches", OTHER(row.d.microbatches)},
    {"even", OTHER(row.timed), .help = "as if the model were cut into stages of equal time"},
    {NULL, "cut", OTHER(cut)},
    {"memory_cap", OTHER(row.d.memory_cap), .help = "forwards that a rank may hold; 0: any number"},
    {NULL, "cap", "%g", 1, NULL, OTHER(cap)},
    {"step", "step ms", "%.3f", 1e3, "seconds of a step", OTHER(row.time.step)},
    {NULL, "gain", "%+.1f%%", 100, NULL, OTHER(gain)},
    {"bubble", "bubble", "%.1f%%", 100, "idle share of the ranks' time",
     OTHER(row.time.bubble.idle)},
    {"memory", OTHER(row.peak_bytes), .nullable = true,
     .help = "bytes of the largest rank; 0: unknown"},
    {NULL, "GiB", "%.1f", 1, NULL, OTHER(gib)},
    {0}};

static void make_others(const struct pp_profiled *s, struct other_row *out)
{
    for (int i = 0; i < s->others->n; i++) {
        const struct pp_row *row = &s->others->items[i];
        double cap = row->d.memory_cap, bytes = (double)row->peak_bytes;
        out[i] = (struct other_row){.number = i + 1,
                                    .gain = 1 - row->time.step / s->f->means,
                                    .cap = cap > 0 ? cap : NAN,
                                    .gib = bytes > 0 ? bytes / GIB : NAN,
                                    .schedule = pp_division_schedule(&row->d),
                                    .cut = row->timed ? "even" : "as run",
                                    .row = *row};
    }
}

/* Prints the first other plans with the cut of the profile, and the first ones with an even cut. */
static int print_others(const struct pp_profiled *s, FILE *out)
{
    PP_TAKE(struct other_row, all, s->others->n + 1);
    PP_TAKE(struct other_row, shown, SHOWN + SHOWN_EVEN);
    int n = 0;
    make_others(s, all);
    for (int even = 0; even < 2; even++)
        for (int i = 0, left = even ? SHOWN_EVEN : SHOWN; i < s->others->n && left > 0; i++)
            if (all[i].row.timed == (even > 0)) {
                shown[n++] = all[i];
                left--;
            }
    fprintf(out, "\nWhat else would have run, with the same times%s:\n",
            s->f->split ? "" : " (I and W half of a B each)");
    pp_listing_print(other_columns, &(struct pp_listing){shown, sizeof(*shown), n}, PP_LISTING_TEXT,
                     0, out);
    fprintf(
        out,
        "gain: of the step, against the simulation of what ran with means. even: as if the model "
        "could be cut\ninto stages of equal time. Other micro-batches: the same batch, rows that "
        "take as long each.\n");
    return 0;
}

/* ---- for programs */

struct rank_row {
    double busy, in_flight, memory, fitted;
    const struct pp_profile_range *ranges; /* [PP_OPS] */
};

/* Writes the five numbers for the times of an action, whose letter is the key. Writes nothing if
 * the rank has no such action. */
static void put_range(const void *row, const char *key, struct pp_json *j)
{
    const struct rank_row *r = row;
    const struct pp_profile_range *t = &r->ranges[strchr(PP_OP_LETTERS, key[0]) - PP_OP_LETTERS];
    if (t->most <= 0)
        return;
    pp_json_array(j, key);
    for (int k = 0; k < 5; k++)
        pp_json_dbl(j, NULL, ((const double[]){t->least, t->low, t->mean, t->high, t->most})[k]);
    pp_json_end(j);
}

#define RANK(m) PP_FIELD(struct rank_row, m)
#define RANGE .put = put_range, .type = "numbers", .optional = true
static const struct pp_column rank_columns[] = {
    {"busy", RANK(busy), .help = "share of the step in which the rank computes"},
    {"in_flight", RANK(in_flight), .help = "micro-batches that it holds at most"},
    {"memory", RANK(memory), .nullable = true, .help = "bytes, measured; 0: unknown"},
    {"memory_fitted", RANK(fitted), .nullable = true, .help = "bytes, as fitted"},
    {"F", RANGE, .help = "seconds of an action: least, 5 %, mean, 95 %, most"},
    {"I", RANGE},
    {"W", RANGE},
    {"B", RANGE},
    {0}};

struct profile_document {
    const char *source, *schedule;
    struct pp_geometry g;
    int replicas, steps, first;
    double shift;
    struct pp_profile_fit f;
    struct pp_listing ranks, others;
};

#define RESULT(m) PP_FIELD(struct profile_document, m)
const struct pp_column pp_profile_columns[] = {
    PP_SCHEMA(1),
    {"source", RESULT(source), .help = "whose files were read"},
    {"schedule", RESULT(schedule), .nullable = true, .help = "what ran; null: an order of its own"},
    {"stages", RESULT(g.stages), .help = "its shape"},
    {"chunks", RESULT(g.chunks)},
    {"microbatches", RESULT(g.microbatches)},
    {"replicas", RESULT(replicas)},
    {"steps", RESULT(steps), .help = "steps that were read"},
    {"first_step", RESULT(first), .help = "the first step that counts, from 1"},
    {"step", RESULT(f.step), .help = "measured: the median, the shortest and the longest step"},
    {"step_least", RESULT(f.step_least)},
    {"step_most", RESULT(f.step_most)},
    {"simulated_each", RESULT(f.each), .help = "simulated with the step's own times"},
    {"error_each", RESULT(f.error), .help = "its error, as a part of the step"},
    {"simulated_means", RESULT(f.means), .help = "simulated with mean times"},
    {"outside", RESULT(f.outside), .nullable = true, .help = "the rest of a step; 0: unknown"},
    {"transfer", RESULT(f.latency), .nullable = true, .help = "fitted: a transfer"},
    {"launch", RESULT(f.launch), .nullable = true, .help = "fitted: between two actions"},
    {"memory_base", RESULT(f.memory_base), .nullable = true, .help = "fitted: bytes of a rank"},
    {"memory_slope", RESULT(f.memory_slope), .nullable = true,
     .help = "fitted: and bytes for each micro-batch in flight"},
    {"memory_error", RESULT(f.memory_error), .nullable = true, .help = "largest error of the fit"},
    {"clock_shift", RESULT(shift), .nullable = true, .help = "largest correction of a clock"},
    {"bubble", RESULT(f.idle), .help = "measured idle share of the ranks' time"},
    {"bubble_jitter", RESULT(f.jitter), .help = "its part that the parts below do not explain"},
    {.inner = pp_bubble_columns, RESULT(f.bubble)},
    {"ranks", RESULT(ranks), .inner = rank_columns, .help = "in their order"},
    {"others", RESULT(others), .inner = other_columns, .help = "best first"},
    {0}};

static int print_profile_json(const struct pp_profiled *s, FILE *out)
{
    const struct pp_geometry *g = &s->p->plan->geometry;
    PP_TAKE(struct other_row, others, s->others->n + 1);
    PP_TAKE(struct rank_row, ranks, g->stages);
    make_others(s, others);
    for (int r = 0; r < g->stages; r++)
        ranks[r] =
            (struct rank_row){.busy = s->f->busy[r],
                              .in_flight = s->f->peak[r],
                              .memory = s->p->memory[r],
                              .fitted = s->f->memory_base + s->f->memory_slope * s->f->peak[r],
                              .ranges = &s->f->ranges[(size_t)r * PP_OPS]};
    struct profile_document d = {.source = s->p->source,
                                 .schedule = s->p->schedule,
                                 .g = *g,
                                 .replicas = s->p->replicas,
                                 .steps = s->p->steps,
                                 .first = s->p->first + 1,
                                 .shift = s->p->shift,
                                 .f = *s->f,
                                 .ranks = {ranks, sizeof(*ranks), g->stages},
                                 .others = {others, sizeof(*others), s->others->n}};
    pp_document_json(pp_profile_columns, &d, out);
    return 0;
}

/* ---- page */

/* Adds a measured action to the trace that the page shows. A B becomes an I and a W of half its
 * time each. */
static void put_measured(const struct pp_profiled *s, int rank, int k, double zero,
                         struct pp_chrome *c)
{
    static const int kinds[] = {PP_EVENT_F, PP_EVENT_I, PP_EVENT_W, PP_EVENT_I};
    const struct pp_plan *plan = s->p->plan;
    const struct pp_action *a = &plan->ranks[rank].actions[k];
    int row = s->f->typical * plan->geometry.stages + rank;
    double start = s->p->start[row][k] - zero, end = s->p->end[row][k] - zero;
    double middle = a->op == PP_OP_B ? (start + end) / 2 : end;
    struct pp_chrome_args args = {-1, a->stage, plan->chunk_of[a->stage], a->mb, false, NULL};
    char name[PP_CHROME_NAME_MAX];
    for (int half = 0; half <= (a->op == PP_OP_B); half++) {
        int kind = half ? PP_EVENT_W : kinds[a->op];
        pp_chrome_name(name, pp_event_name(kind)[0], plan->geometry.chunks > 1, a->stage, a->mb);
        pp_chrome_slice(c, rank, kind, name, (int64_t)(1e9 * (half ? middle : start)),
                        (int64_t)(1e9 * (half ? end : middle)), &args);
    }
}

static int write_trace(const void *profiled, FILE *f)
{
    const struct pp_profiled *s = profiled;
    const struct pp_plan *plan = s->p->plan;
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    struct pp_sim_costs costs;
    struct pp_chrome c;
    struct pp_chrome_head head = {.version = PP_VERSION,
                                  .schedule = name_schedule(s->p),
                                  .stages = plan->geometry.stages,
                                  .microbatches = plan->geometry.microbatches,
                                  .ranks = plan->geometry.stages,
                                  .one_step = true,
                                  .step_seconds = s->f->step,
                                  .simulated_step_seconds = s->f->each,
                                  .bubble_measured = s->f->idle,
                                  .bubble_predicted = s->f->idle - s->f->jitter};
    PP_TRY(pp_profile_simulate(s->p, s->f, s->f->typical, true, &costs, &result));
    struct pp_drawing d = {.plan = plan, .result = &result, .costs = &costs};
    struct pp_draw_steps how = {.unit_ns = 1e9, .step = -1};
    double zero = INFINITY;
    pp_chrome_open(&c, f, &head);
    for (int r = 0; r < plan->geometry.stages; r++)
        zero = fmin(zero, s->p->start[s->f->typical * plan->geometry.stages + r][0]);
    for (int r = 0; r < plan->geometry.stages; r++)
        for (int k = 0; k < plan->ranks[r].n_actions; k++)
            put_measured(s, r, k, zero, &c);
    pp_draw_events(&d, &how, &c);
    pp_chrome_close(&c);
    return 0;
}

int pp_profiled_page(const void *profiled, FILE *f)
{
    const struct pp_profiled *s = profiled;
    return report_write_drawn(write_trace, s, s->p->source, NULL, f);
}

/* ---- another profile */

struct prediction {
    double predicted, measured, error;
    const struct pp_profiled *s;
};

static void put_memory_errors(const void *prediction, const char *key, struct pp_json *j)
{
    const struct pp_profiled *s = ((const struct prediction *)prediction)->s;
    pp_json_array(j, key);
    for (int r = 0; s->memory && r < s->to->plan->geometry.stages; r++)
        pp_json_dbl(j, NULL, change_percent(s->memory[r], s->to->memory[r]) / 100);
    pp_json_end(j);
}

#define PREDICTION(m) PP_FIELD(struct prediction, m)
const struct pp_column pp_against_columns[] = {
    PP_SCHEMA(1),
    {"predicted", PREDICTION(predicted), .help = "seconds of a step"},
    {"measured", PREDICTION(measured)},
    {"error", PREDICTION(error), .help = "as a part of the measured step"},
    {"memory_error", .put = put_memory_errors, .type = "numbers",
     .help = "of each rank; empty: unknown"},
    {0}};

static int print_prediction(const struct pp_profiled *s, bool json, FILE *out)
{
    double percent = change_percent(s->predicted, s->measured);
    const double *measured = s->to->memory;
    if (json) {
        struct prediction p = {s->predicted, s->measured, percent / 100, s};
        pp_document_json(pp_against_columns, &p, out);
        return 0;
    }
    print_profile_head(s->p, out);
    fprintf(out, "predicts\n");
    print_profile_head(s->to, out);
    fprintf(out, "\nstep predicted %.3f ms, measured %.3f ms (%+.2f %%)\n", 1e3 * s->predicted,
            1e3 * s->measured, percent);
    for (int r = 0; r < s->to->plan->geometry.stages && s->memory && measured[r] > 0; r++)
        fprintf(out, "rank %3d: memory predicted %.2f GiB, measured %.2f GiB (%+.2f %%)\n", r,
                s->memory[r] / GIB, measured[r] / GIB, change_percent(s->memory[r], measured[r]));
    return 0;
}

int pp_profiled_print(const struct pp_profiled *s, bool json, FILE *out)
{
    if (s->to)
        return print_prediction(s, json, out);
    if (json)
        return print_profile_json(s, out);
    print_profile_head(s->p, out);
    print_profile_ranks(s, out);
    print_step(s, out);
    return print_others(s, out);
}
