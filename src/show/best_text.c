/* SPDX-License-Identifier: Apache-2.0 */
/* What ppcli tune found: a table for people with the lines of the winner, or JSON. */
#include "results.h"

#include <stdlib.h>
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/comm/transport.h"

#define MIB (1024.0 * 1024.0)

/* What a shell takes as it is. */

/* "flops", "time", "equal", ...: how the layers of a candidate are cut. */
static const char *cut_name(const struct pp_best_result *s, const struct pp_candidate *c)
{
    enum pp_assignment said = s->spec.cfg->pipeline.assignment;
    bool whole = pp_division_pieces(&c->d) == 1;
    return c->timed                     ? "time"
           : whole                      ? "flops"
           : said == PP_ASSIGN_EQUAL    ? "equal"
           : said == PP_ASSIGN_PARAMS   ? "params"
           : said == PP_ASSIGN_EXPLICIT ? "ranges"
                                        : "flops";
}

const char *pp_candidate_recompute(const struct pp_candidate *c, char out[32])
{
    int n = c->d.stages * c->d.chunks, recompute = 0;
    for (int k = 0; k < n; k++)
        recompute += c->d.recompute[k];
    snprintf(out, 32, "%d of %d", recompute, n);
    return recompute == 0 ? "off" : recompute == n ? "all" : out;
}

/* The same, or what the config says. */
static const char *recompute_name(const struct pp_best_result *s, const struct pp_candidate *c,
                                  char out[32])
{
    const char *said = s->spec.cfg->pipeline.recompute;
    bool own = !c->chooses_redo && said[0];
    return !own ? pp_candidate_recompute(c, out) : strcmp(said, "all") == 0 ? "all" : "layers";
}

/* ---- text */

static void print_machine(const struct pp_best_result *s, FILE *f)
{
    const struct pp_costs *c = s->costs;
    const struct pp_config *cfg = s->spec.cfg;
    const char *plural = pp_plural(c->cores);
    fprintf(f, "measured in %.1f s: %d rank%s at once %s %d core%s", c->took, c->at_once,
            pp_plural(c->at_once), s->spec.cores > 0 ? "here, for" : "on", c->cores, plural);
    for (const struct pp_costs *more = c->next; more; more = more->next)
        if (more->measured == 0)
            fprintf(f, ", %d of %d threads", more->at_once, more->threads);
    if (c->near.unsteady > 0)
        fprintf(f, ", a transfer %.2f us + %.3f us/MiB", c->near.latency * 1e6,
                c->near.byte * 1e6 * MIB);
    if (c->far.byte > 0) {
        fprintf(f, ", to another host %.0f us + %.0f us/MiB", c->far.latency * 1e6,
                c->far.byte * 1e6 * MIB);
    }
    fprintf(f, "\n");
    if (s->ranks > c->cores) {
        fprintf(f, "%d ranks on %d core%s take turns: step times are lower bounds\n", s->ranks,
                c->cores, plural);
    }
    if (s->links.host)
        return;
    if (cfg->run.launch == PP_LAUNCH_MPIRUN || !pp_transport_joins(cfg->run.transport, false))
        fprintf(f,
                "transfers between MPI processes were not measured: times are those of threads\n");
}

static void print_row(const struct pp_best_result *s, const char *number,
                      const struct pp_candidate *c, FILE *f)
{
    char bubble[PP_BUBBLE_TEXT_MAX], recompute[32];
    const char *mark = pp_costs_at(s->costs, c->d.threads)->measured > 0 ? "~" : " ";
    fprintf(
        f,
        "%4s  %6d %8d %6d%s %-14s %12d %6d %8d  %-10s %-9s %10.3f %10.0f  %-27s %9.1f %8.3f%s%s\n",
        number, c->d.stages, c->d.replicas, c->d.threads, mark, pp_division_schedule(&c->d),
        c->d.microbatches, c->d.chunks, c->together, cut_name(s, c),
        recompute_name(s, c, recompute), c->time.step * 1e3, s->batch / c->time.step,
        pp_bubble_parts(&c->time.bubble, bubble), (double)c->peak_bytes / MIB, c->time.sums * 1e3,
        c->also[0] ? "  = " : "", c->also);
}

/* One stage with all cores, then the fastest of each other number of stages and replicas: as many
 * stages beside as many replicas. */
static void print_ways(const struct pp_best_result *s, FILE *f)
{
    const struct pp_best *b = &s->best;
    char number[16];
    if (b->one.time.step > 0)
        print_row(s, "one", &b->one, f);
    for (int ranks = 1; ranks <= s->ranks; ranks++) {
        for (int k = 0; k < ranks; k++) {
            int p = k == 0 ? ranks : k, i = ranks % p == 0 ? 0 : b->n;
            while (i < b->n && (b->items[i].d.stages != p || b->items[i].d.replicas != ranks / p))
                i++;
            if (i == b->n || pp_best_is(&b->items[i], 1, 1, b->one.d.threads))
                continue;
            snprintf(number, sizeof(number), "%d", i + 1);
            print_row(s, number, &b->items[i], f);
        }
    }
    fputc('\n', f);
}

static void print_table(const struct pp_best_result *s, FILE *f)
{
    const struct pp_best *b = &s->best;
    char number[16];
    fprintf(f, "%ld combinations: %d to compare, %d not allowed by their schedule, %d duplicates",
            b->tried, b->n, b->refused, b->same);
    if (b->too_large > 0)
        fprintf(f, ", %ld need more than %.1f MiB per rank", b->too_large,
                (double)s->spec.memory / MIB);
    fprintf(f, "\n\n%4s  %6s %8s %7s %-14s %12s %6s %8s  %-10s %-9s %10s %10s  %-27s %9s %8s\n", "",
            "stages", "replicas", "threads", "schedule", "microbatches", "chunks", "coalesce",
            "assignment", "recompute", "step ms", "samples/s", "bubble = sched + cut + wait",
            "peak MiB", "sums ms");
    print_ways(s, f);
    for (int i = 0; i < b->n && i < PP_BEST_SHOWN; i++) {
        snprintf(number, sizeof(number), "%d", i + 1);
        print_row(s, number, &b->items[i], f);
    }
    if (b->n > PP_BEST_SHOWN)
        fprintf(f, "      ... and %d slower ones\n", b->n - PP_BEST_SHOWN);
    if (b->as_is.time.step > 0)
        print_row(s, "as is", &b->as_is, f);
    const struct pp_costs *c = s->costs;
    while (c && c->measured == 0)
        c = c->next;
    if (c)
        fprintf(f, "~: not measured, but from %d thread%s by the serial share of each time\n",
                c->measured, pp_plural(c->measured));
}

/* The fastest with one (1), several (2) or any number (0) of stages and of replicas; threads 0: any.
 * NULL: there is none. */
static const struct pp_candidate *find_way(const struct pp_best *b, int p, int d, int threads)
{
    for (const struct pp_candidate *c = b->items; c < b->items + b->n; c++)
        if ((p == 0 || p == 1 + (c->d.stages > 1)) && (d == 0 || d == 1 + (c->d.replicas > 1)) &&
            (threads == 0 || threads == c->d.threads))
            return c;
    return NULL;
}

/* Which way to divide the cores pays, and why. */
static void print_verdict(const struct pp_best_result *s, FILE *f)
{
    const struct pp_best *b = &s->best;
    const struct pp_candidate *c = &b->items[pp_best_result_first(s)], *one = &b->one;
    const struct pp_candidate *p = find_way(b, 2, 1, 0), *d = find_way(b, 1, 2, 0);
    const struct pp_candidate *alone = find_way(b, 1, 1, 1), *than = one;
    if (pp_best_is(c, 1, 1, one->d.threads)) /* of the others the better one */
        than = !p || (d && d < p) ? d : p;
    if (!than || one->time.step == 0)
        return;
    double gain = than->time.step / c->time.step;
    bool ran = than == one && s->one.measured.step > 0;
    if (ran)
        gain = s->one.measured.step / pp_best_result_ran(s, pp_best_result_first(s))->measured.step;
    fprintf(
        f,
        "\nstages x replicas x threads: %d x %d x %d pays, %.2f times the speed of %d x %d x %d%s",
        c->d.stages, c->d.replicas, c->d.threads, gain, than->d.stages, than->d.replicas,
        than->d.threads, ran ? " (measured)" : "");
    if (alone && one->d.threads > 1)
        fprintf(f, "; %d threads are %.2f times as fast as one", one->d.threads,
                alone->time.step / one->time.step);
    if (p)
        fprintf(f, "; %d stages idle %.1f %% of the time", p->d.stages, p->time.bubble.idle * 100);
    if (d)
        fprintf(f, "; %d replicas add up gradients for %.3f ms a step", d->d.replicas,
                d->time.sums * 1e3);
    fprintf(f, "\n");
}

/* What the best is better than. */
static void print_gain(const struct pp_best_result *s, FILE *f)
{
    int first = pp_best_result_first(s);
    const struct pp_candidate *c = &s->best.items[first], *own = &s->best.as_is;
    bool ran = s->as_is.measured.step > 0;
    double was = ran ? s->as_is.measured.step : own->time.step;
    double now = ran ? pp_best_result_ran(s, first)->measured.step : c->time.step;
    if (pp_best_result_keeps(s)) {
        fprintf(
            f,
            "\nthis config as it is was the fastest of those that ran: %.3f ms; the next, %s with "
            "%d micro-batches, took %.3f ms\n",
            was * 1e3, pp_division_schedule(&c->d), c->d.microbatches, now * 1e3);
        return;
    }
    if (first > 0)
        fprintf(f, "\nfastest of those that ran: %d", first + 1);
    if (was > 0) {
        bool fits = s->spec.memory == 0 || own->peak_bytes <= s->spec.memory;
        fprintf(f, "\nthis config: %.3f ms; best: %.3f ms, %.0f %% %s", was * 1e3, now * 1e3,
                100 * (was > now ? was / now - 1 : now / was - 1),
                was >= now ? "faster"
                : fits     ? "slower"
                           : "slower, but it fits");
        if (s->spec.memory > 0 && own->peak_bytes > s->spec.memory)
            fprintf(f, " (this config holds %.1f MiB)", (double)own->peak_bytes / MIB);
    }
    fprintf(f, "\n");
}

/* What trains with d, which is chosen: with the words of the command line, which may be needed. */
static int print_command(const struct pp_best_result *s, const struct pp_division *d, bool threads,
                         FILE *f)
{
    PP_TAKE(char, was, PP_CUT_MAX);
    PP_TAKE(char, now, PP_CUT_MAX);
    fprintf(f, "\nppcli train %s", pp_text_shell(s->word, was, PP_CUT_MAX));
    for (int k = 0; k < pp_config_key_count(); k++) {
        const char *name = pp_config_key_name(k);
        PP_TRY(pp_config_key_value(s->spec.cfg, k, was, PP_CUT_MAX));
        PP_TRY(pp_division_value(d, s->model, s->spec.cfg, name, now, PP_CUT_MAX));
        bool said = strncmp(pp_config_origin(s->spec.cfg, name), "--", 2) == 0;
        if (said || strcmp(was, now) != 0 || (threads && strcmp(name, "run.threads") == 0))
            fprintf(f, " --set %s=%s", name, pp_text_shell(now, was, PP_CUT_MAX));
    }
    fprintf(f, "\n");
    return 0;
}

/* What limits the first row, and its section for a file. */
static int print_winner(const struct pp_best_result *s, FILE *f)
{
    static const char *const hold[] = {"stages of a replica", "replicas of a stage"};
    bool keeps = pp_best_result_keeps(s);
    const struct pp_candidate *c = keeps ? &s->best.as_is : &s->best.items[pp_best_result_first(s)];
    char bubble[PP_BUBBLE_TEXT_MAX];
    PP_TAKE(struct pp_division, d, 1);
    PP_TAKE(int64_t, ticks, PP_NUMBERS_MAX);
    PP_TAKE(char, sums, PP_CUT_MAX);
    print_verdict(s, f);
    print_gain(s, f);
    fprintf(f, "bubble %s\n", pp_bubble_text(&c->time.bubble, bubble));
    if (s->advice[0] && !keeps)
        fprintf(f, "%s\n", s->advice);
    for (int k = 0; k < s->best.n; k++) {
        const struct pp_candidate *other = &s->best.items[k];
        if (other->d.across != c->d.across) {
            fprintf(f, "on each host the %s: %.3f ms; the %s: %.3f ms\n", hold[c->d.across],
                    c->time.step * 1e3, hold[other->d.across], other->time.step * 1e3);
            break;
        }
    }
    PP_TRY(pp_best_division(&s->spec, s->costs, c, ticks, d));
    bool open = pp_best_open_threads(s->spec.cfg);
    int rc = print_command(s, d, open, f);
    if (c->d.across || s->spec.training.backend.unpacked || open)
        fprintf(f, "\n[run]\n%s%s", c->d.across ? "rank_order = replicas\n" : "",
                s->spec.training.backend.unpacked ? "packed = off\n" : "");
    if (open)
        fprintf(f, "threads = %d\n", d->threads);
    rc = rc < 0 ? rc : pp_division_print(d, s->model, s->spec.cfg, f);
    PP_TRY(pp_division_value(d, s->model, s->spec.cfg, "train.coalesce", sums, PP_CUT_MAX));
    if (atoi(sums) != s->spec.cfg->train.coalesce)
        fprintf(f, "\n[train]\ncoalesce = %s\n", sums);
    if (c->d.replicas != s->best.as_is.d.replicas && s->best.as_is.d.replicas > 0)
        fprintf(f, "; %d instead of %d replicas: the last bits of the weights may differ\n",
                c->d.replicas, s->best.as_is.d.replicas);
    if (c->d.microbatches != s->spec.cfg->pipeline.microbatches &&
        s->spec.cfg->run.gemm == PP_GEMM_CBLAS) {
        fprintf(
            f,
            "; %d instead of %d micro-batches: with run.gemm = cblas the weights have other bits\n",
            c->d.microbatches, s->spec.cfg->pipeline.microbatches);
    }
    return rc;
}

static void print_check(const char *number, const struct pp_candidate *c,
                        const struct pp_checked *m, FILE *f)
{
    char bubble[PP_BUBBLE_TEXT_MAX];
    fprintf(f, "%5s  %6d %8d %7d %-14s %12d %6d %12.3f %12.3f %+8.1f %% %13.3f %+8.1f %%  %s\n",
            number, c->d.stages, c->d.replicas, c->d.threads, pp_division_schedule(&c->d),
            c->d.microbatches, c->d.chunks, m->measured.step * 1e3, c->time.step * 1e3,
            100 * (c->time.step / m->measured.step - 1), m->calibrated * 1e3, 100 * m->error,
            pp_bubble_parts(&m->measured.bubble, bubble));
}

static void print_checks(const struct pp_best_result *s, FILE *f)
{
    double waited = s->as_is.waited;
    int ranks = s->as_is.measured.step > 0 ? s->best.as_is.d.stages * s->best.as_is.d.replicas : 1;
    char number[16];
    fprintf(
        f, "\nchecked by running\n%5s  %6s %8s %7s %-14s %12s %6s %12s %12s %10s %13s %10s  %s\n",
        "", "stages", "replicas", "threads", "schedule", "microbatches", "chunks", "measured ms",
        "predicted ms", "difference", "calibrated ms", "difference", "measured bubble");
    for (int i = 0; i < s->n_checked; i++) {
        const struct pp_checked *m = &s->checked[i];
        snprintf(number, sizeof(number), "%d", i + 1);
        print_check(number, &s->best.items[i], m, f);
        waited = m->waited > waited ? m->waited : waited;
        int of_row = s->best.items[i].d.stages * s->best.items[i].d.replicas;
        ranks = of_row > ranks ? of_row : ranks;
    }
    if (s->as_is.measured.step > 0)
        print_check("as is", &s->best.as_is, &s->as_is, f);
    if (s->one.measured.step > 0)
        print_check("one", &s->best.one, &s->one, f);
    fputs("predicted: with the times of layers on their own; calibrated: with those of the rounds "
          "before and after\n",
          f);
    if (waited >= PP_BUBBLE_WAITED && ranks > s->costs->cores) {
        fprintf(f,
                "few cores: %d ranks share %d core%s and waited %.0f %% of the time: the measured "
                "steps are not those of a pipeline\n",
                ranks, s->costs->cores, pp_plural(s->costs->cores), waited * 100);
    } else if (waited >= PP_BUBBLE_WAITED) {
        fprintf(f,
                "busy machine: ranks waited %.0f %% of the time for a core: do not trust the "
                "measured steps\n",
                waited * 100);
    }
}

static int print_best(const struct pp_best_result *s, FILE *f)
{
    print_machine(s, f);
    print_table(s, f);
    if (s->n_checked > 0)
        print_checks(s, f);
    return s->best.n > 0 ? print_winner(s, f) : 0;
}

/* ---- JSON */

static void json_candidate(struct pp_json *j, const struct pp_best_result *s,
                           const struct pp_candidate *c, const struct pp_checked *checked)
{
    const struct pp_bubble *b = &c->time.bubble;
    char recompute[32];
    pp_json_str(j, "schedule", pp_division_schedule(&c->d));
    pp_json_str(j, "also", c->also);
    pp_json_int(j, "stages", c->d.stages);
    pp_json_int(j, "replicas", c->d.replicas);
    pp_json_int(j, "threads", c->d.threads);
    pp_json_int(j, "threads_measured", pp_costs_at(s->costs, c->d.threads)->measured);
    pp_json_int(j, "microbatches", c->d.microbatches);
    pp_json_int(j, "chunks", c->d.chunks);
    pp_json_int(j, "coalesce", c->together);
    pp_json_int(j, "eager", c->d.schedule && c->d.schedule->eager ? c->d.eager : 0);
    pp_json_dbl(j, "memory_cap", c->fitted ? c->d.memory_cap : 0);
    pp_json_str(j, "assignment", cut_name(s, c));
    pp_json_str(j, "recompute", recompute_name(s, c, recompute));
    pp_json_dbl(j, "step_seconds", c->time.step);
    pp_json_dbl(j, "samples_per_second", s->batch / c->time.step);
    pp_json_dbl(j, "sums_seconds", c->time.sums);
    pp_json_str(j, "rank_order", c->d.across ? "replicas" : "stages");
    pp_json_uint(j, "peak_bytes", c->peak_bytes);
    if (b->stages > 0) { /* of those that the table shows */
        pp_json_dbl(j, "bubble", b->idle);
        pp_bubble_json(b, j);
    }
    if (checked && checked->measured.step > 0) {
        pp_json_dbl(j, "measured_step_seconds", checked->measured.step);
        pp_json_dbl(j, "calibrated_step_seconds", checked->calibrated);
        pp_json_dbl(j, "calibrated_error", checked->error);
        pp_json_dbl(j, "bubble_measured", checked->measured.bubble.idle);
        if (checked->waited >= 0)
            pp_json_dbl(j, "waited_for_core", checked->waited);
    }
    pp_json_end(j);
}

static int json_best(const struct pp_best_result *s, FILE *f)
{
    const struct pp_best *b = &s->best;
    const struct pp_costs *c = s->costs;
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_int(&j, "schema", 2);
    pp_json_dbl(&j, "measure_seconds", c->took);
    pp_json_int(&j, "ranks_at_once", c->at_once);
    pp_json_int(&j, "cores", c->cores);
    pp_json_bool(&j, "handover_measured", c->near.unsteady > 0);
    pp_json_dbl(&j, "handover_seconds", c->near.latency);
    pp_json_dbl(&j, "handover_byte_seconds", c->near.byte);
    pp_json_dbl(&j, "handover_unsteady", fmax(1, fmax(c->near.unsteady, c->far.unsteady)));
    pp_json_dbl(&j, "host_to_host_seconds", c->far.latency);
    pp_json_dbl(&j, "host_to_host_byte_seconds", c->far.byte);
    pp_json_dbl(&j, "action_seconds", c->action);
    pp_json_dbl(&j, "optimizer_seconds_per_parameter", c->optimizer);
    pp_json_int(&j, "tried", b->tried);
    pp_json_int(&j, "refused", b->refused);
    pp_json_int(&j, "same", b->same);
    pp_json_int(&j, "too_large", b->too_large);
    pp_json_str(&j, "advice", s->advice);
    if (b->n > 0) /* of candidates; -1: this_config, by what was measured */
        pp_json_int(&j, "chosen", pp_best_result_keeps(s) ? -1 : pp_best_result_first(s));
    if (b->one.time.step > 0) {
        pp_json_object(&j, "one_stage");
        json_candidate(&j, s, &b->one, &s->one);
    }
    if (b->as_is.time.step > 0) {
        pp_json_object(&j, "this_config");
        json_candidate(&j, s, &b->as_is, &s->as_is);
    }
    pp_json_array(&j, "candidates");
    for (int i = 0; i < b->n; i++) {
        pp_json_object(&j, NULL);
        json_candidate(&j, s, &b->items[i], i < s->n_checked ? &s->checked[i] : NULL);
    }
    pp_json_end(&j);
    pp_json_end(&j);
    return 0;
}

int pp_best_result_print(const struct pp_best_result *s, bool json, FILE *f)
{
    return json ? json_best(s, f) : print_best(s, f);
}
