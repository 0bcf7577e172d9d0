/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ppcli profile: what a measured pipeline did, why it waited, and what another plan would have
 * taken. --against: how well that predicts another measured pipeline of the same machine.
 */
#include "ppcli/show/results.h"

#include <math.h>
#include <string.h>

#include "ppcli/show/draw.h"
#include "ppcli/base/base.h"
#include "ppcli/sim/trace.h"
#include "report.h"

#define SHOWN 12
#define SHOWN_EVEN 4
#define GIB 0x1p30

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * (part / whole - 1) : 0;
}

static const char *name_of(const struct pp_profile *p)
{
    return p->schedule ? p->schedule : "an order of its own";
}

/* ---- for people */

static void print_head(const struct pp_profile *p, FILE *out)
{
    const struct pp_geometry *g = &p->plan->geometry;
    fprintf(out, "%s: %s, %d stage%s", p->source, name_of(p), g->stages, pp_plural(g->stages));
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

static void print_ranks(const struct pp_profiled *s, FILE *out)
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
            percent(f->means, f->step));
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

static void print_row(const struct pp_profiled *s, const struct pp_profile_other *o, int number,
                      FILE *out)
{
    char cap[16] = "", memory[16] = "";
    if (o->cap > 0)
        snprintf(cap, sizeof(cap), "%g", o->cap);
    if (o->memory > 0)
        snprintf(memory, sizeof(memory), "%.1f", o->memory / GIB);
    fprintf(out, "%3d  %-14s %6d %12d %-7s %6s %10.3f %+6.1f%% %6.1f%% %7s\n", number, o->schedule,
            o->chunks, o->microbatches, o->even ? "even" : "as run", cap, 1e3 * o->step,
            -percent(o->step, s->f->means), 100 * o->idle, memory);
}

static void print_others(const struct pp_profiled *s, FILE *out)
{
    fprintf(out,
            "\nWhat else would have run, with the same times%s:\n%3s  %-14s %6s %12s %-7s %6s %10s "
            "%7s %7s %7s\n",
            s->f->split ? "" : " (I and W half of a B each)", "", "schedule", "chunks",
            "microbatches", "cut", "cap", "step ms", "gain", "bubble", "GiB");
    for (int even = 0; even < 2; even++)
        for (int i = 0, left = even ? SHOWN_EVEN : SHOWN; i < s->n && left > 0; i++)
            if (s->others[i].even == (even > 0)) {
                print_row(s, &s->others[i], i + 1, out);
                left--;
            }
    fprintf(
        out,
        "gain: of the step, against the simulation of what ran with means. even: as if the model "
        "could be cut\ninto stages of equal time. Other micro-batches: the same batch, rows that "
        "take as long each.\n");
}

/* ---- for programs */

static void json_ranks(const struct pp_profiled *s, struct pp_json *j)
{
    char key[2] = "";
    pp_json_array(j, "ranks");
    for (int r = 0; r < s->p->plan->geometry.stages; r++) {
        pp_json_object(j, NULL);
        pp_json_dbl(j, "busy", s->f->busy[r]);
        pp_json_dbl(j, "in_flight", s->f->peak[r]);
        pp_json_dbl(j, "memory", s->p->memory[r]);
        pp_json_dbl(j, "memory_fitted", s->f->memory_base + s->f->memory_slope * s->f->peak[r]);
        for (int op = 0; op <= PP_OP_B; op++) {
            const struct pp_profile_range *t = &s->f->ranges[r * PP_OPS + op];
            key[0] = PP_OP_LETTERS[op];
            if (t->most <= 0)
                continue;
            pp_json_array(j, key);
            for (int k = 0; k < 5; k++)
                pp_json_dbl(j, NULL,
                            ((const double[]){t->least, t->low, t->mean, t->high, t->most})[k]);
            pp_json_end(j);
        }
        pp_json_end(j);
    }
    pp_json_end(j);
}

static void json_others(const struct pp_profiled *s, struct pp_json *j)
{
    pp_json_array(j, "others");
    for (int i = 0; i < s->n; i++) {
        const struct pp_profile_other *o = &s->others[i];
        pp_json_object(j, NULL);
        pp_json_str(j, "schedule", o->schedule);
        pp_json_int(j, "chunks", o->chunks);
        pp_json_int(j, "microbatches", o->microbatches);
        pp_json_bool(j, "even", o->even);
        pp_json_dbl(j, "memory_cap", o->cap);
        pp_json_dbl(j, "step", o->step);
        pp_json_dbl(j, "bubble", o->idle);
        pp_json_dbl(j, "memory", o->memory);
        pp_json_end(j);
    }
    pp_json_end(j);
}

static int json_profile(const struct pp_profiled *s, FILE *out)
{
    const struct pp_profile_fit *f = s->f;
    const struct pp_geometry *g = &s->p->plan->geometry;
    const struct {
        const char *key;
        double value;
    } figures[] = {{"step", f->step},
                   {"step_least", f->step_least},
                   {"step_most", f->step_most},
                   {"simulated_each", f->each},
                   {"error_each", f->error},
                   {"simulated_means", f->means},
                   {"outside", f->outside},
                   {"transfer", f->latency},
                   {"launch", f->launch},
                   {"memory_base", f->memory_base},
                   {"memory_slope", f->memory_slope},
                   {"memory_error", f->memory_error},
                   {"clock_shift", s->p->shift},
                   {"bubble", f->idle},
                   {"bubble_jitter", f->jitter}};
    struct pp_json j = pp_json_begin(out, 2);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "source", s->p->source);
    pp_json_str(&j, "schedule", s->p->schedule);
    pp_json_int(&j, "stages", g->stages);
    pp_json_int(&j, "chunks", g->chunks);
    pp_json_int(&j, "microbatches", g->microbatches);
    pp_json_int(&j, "replicas", s->p->replicas);
    pp_json_int(&j, "steps", s->p->steps);
    pp_json_int(&j, "first_step", s->p->first + 1);
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        pp_json_dbl(&j, figures[i].key, figures[i].value);
    pp_bubble_json(&f->bubble, &j);
    json_ranks(s, &j);
    json_others(s, &j);
    pp_json_end(&j);
    return 0;
}

/* ---- page */

/* A measured action as the page has them: a B is its I and its W. */
static void put_measured(const struct pp_profiled *s, int rank, int k, double zero,
                         struct pp_chrome *c)
{
    static const int kinds[] = {PP_EVENT_F, PP_EVENT_I, PP_EVENT_W, PP_EVENT_I};
    const struct pp_plan *plan = s->p->plan;
    const struct pp_action *a = &plan->ranks[rank].actions[k];
    int row = s->f->typical * plan->geometry.stages + rank;
    double start = s->p->start[row][k] - zero, end = s->p->end[row][k] - zero;
    double middle = a->op == PP_OP_B ? (start + end) / 2 : end;
    struct pp_chrome_args args = {-1, a->stage, plan->chunk_of[a->stage], a->mb, false};
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
                                  .schedule = name_of(s->p),
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
    return report_write_drawn(write_trace, s, s->p->source, f);
}

/* ---- another profile */

int pp_profiled_against(const struct pp_profiled *s, const char *path, bool json, FILE *out)
{
    PP_OWN(pp_profile_close) struct pp_profile *to = NULL;
    PP_OWN(pp_profile_fit_fini) struct pp_profile_fit fit = {0};
    struct pp_profile_other o = {.schedule = ""};
    PP_TRY(pp_profile_read(path, &to));
    PP_TRY(pp_profile_fit_make(to, &fit));
    PP_TAKE(double, memory, to->plan->geometry.stages);
    PP_TRY(pp_profile_predict(s->p, s->f, to->plan, &o, memory));
    double error = percent(o.step, fit.step);
    if (json) {
        struct pp_json j = pp_json_begin(out, 2);
        pp_json_int(&j, "schema", 1);
        pp_json_dbl(&j, "predicted", o.step);
        pp_json_dbl(&j, "measured", fit.step);
        pp_json_dbl(&j, "error", error / 100);
        pp_json_array(&j, "memory_error");
        for (int r = 0; r < to->plan->geometry.stages && o.memory > 0; r++)
            pp_json_dbl(&j, NULL, percent(memory[r], to->memory[r]) / 100);
        pp_json_end(&j);
        pp_json_end(&j);
        return 0;
    }
    print_head(s->p, out);
    fprintf(out, "predicts\n");
    print_head(to, out);
    fprintf(out, "\nstep predicted %.3f ms, measured %.3f ms (%+.2f %%)\n", 1e3 * o.step,
            1e3 * fit.step, error);
    for (int r = 0; r < to->plan->geometry.stages && o.memory > 0 && to->memory[r] > 0; r++)
        fprintf(out, "rank %3d: memory predicted %.2f GiB, measured %.2f GiB (%+.2f %%)\n", r,
                memory[r] / GIB, to->memory[r] / GIB, percent(memory[r], to->memory[r]));
    return 0;
}

int pp_profiled_print(const struct pp_profiled *s, bool json, FILE *out)
{
    if (json)
        return json_profile(s, out);
    print_head(s->p, out);
    print_ranks(s, out);
    print_step(s, out);
    print_others(s, out);
    return 0;
}
