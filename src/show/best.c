/* SPDX-License-Identifier: Apache-2.0 */
/* What ppcli tune found: its columns, the winner and what it gains, and the winner as a config. */
#include "results.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/comm/transport.h"

#define MIB (1024.0 * 1024.0)

/* Returns by which rule the layers of a candidate are cut, in the words of pipeline.assignment:
 * "flops", "time", "equal", ... */
static const char *cut_name(const struct pp_best_result *s, const struct pp_row *c)
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

const char *pp_candidate_recompute(const struct pp_row *c, char out[32])
{
    int n = c->d.stages * c->d.chunks, recompute = 0;
    for (int k = 0; k < n; k++)
        recompute += c->d.recompute[k];
    snprintf(out, 32, "%d of %d", recompute, n);
    return recompute == 0 ? "off" : recompute == n ? "all" : out;
}

/* Returns what a candidate recomputes, in a word: what pp_candidate_recompute() finds, or "all" or
 * "layers" if the config has decided it. */
static const char *recompute_name(const struct pp_best_result *s, const struct pp_row *c,
                                  char out[32])
{
    const char *said = s->spec.cfg->pipeline.recompute;
    bool own = !c->chooses_redo && said[0];
    return !own ? pp_candidate_recompute(c, out) : strcmp(said, "all") == 0 ? "all" : "layers";
}

/* ---- rows */

struct best_row {
    struct pp_row c;
    const char *schedule, *also, *cut, *rank_order;
    char number[16], threads[16], recompute[32], bubble[PP_BUBBLE_TEXT_MAX],
        ran_bubble[PP_BUBBLE_TEXT_MAX], equals[300];
    int threads_measured, eager;
    double memory_cap, per_second;
    double measured, difference, calibrated, error, idle, waited; /* how it ran; NAN: it did not */
};

/* and not the line between two parts of the table */
PP_HAS(is_row, struct best_row, row->number[0])

/* as the rows that the table shows */
PP_HAS(has_bubble, struct best_row, row->c.time.bubble.stages > 0)

#define ROW(m) PP_FIELD(struct best_row, m)
#define SHOWN(m) ROW(m), .has = is_row
static const struct pp_column columns[] = {
    {NULL, "", ROW(number), .right = true},
    {"schedule", ROW(schedule), .help = "a way to run the config"},
    {"also", ROW(also), .help = "other schedules with the same plan"},
    {"stages", "stages", SHOWN(c.d.stages), .help = "the division"},
    {"replicas", "replicas", SHOWN(c.d.replicas)},
    {"threads", ROW(c.d.threads)},
    {NULL, "threads", ROW(threads), .right = true},
    {"threads_measured", ROW(threads_measured),
     .help = "threads whose times the prediction begins with; 0: its own"},
    {NULL, "schedule", ROW(schedule)},
    {"microbatches", "microbatches", SHOWN(c.d.microbatches), .help = "the division"},
    {"chunks", "chunks", SHOWN(c.d.chunks)},
    {"coalesce", "coalesce", SHOWN(c.together)},
    {"eager", ROW(eager)},
    {"memory_cap", ROW(memory_cap)},
    {"assignment", "assignment", ROW(cut), .help = "how the layers are cut"},
    {"recompute", "recompute", ROW(recompute), .help = "what is recomputed"},
    {"step_seconds", "step ms", "%.3f", 1e3, "predicted", SHOWN(c.time.step)},
    {"samples_per_second", "samples/s", "%.0f", 1, NULL, SHOWN(per_second)},
    {NULL, "bubble = sched + cut + wait", ROW(bubble)},
    {"sums_seconds", ROW(c.time.sums), .help = "of a step, for sums over replicas"},
    {"rank_order", ROW(rank_order), .help = "what a host holds: stages or replicas"},
    {"peak_bytes", "peak MiB", "%.1f", 1 / MIB, "memory of the largest rank", SHOWN(c.peak_bytes)},
    {NULL, "sums ms", "%.3f", 1e3, NULL, SHOWN(c.time.sums)},
    {NULL, "", ROW(equals)},
    {"bubble", ROW(c.time.bubble.idle), .has = has_bubble,
     .help = "idle share of the ranks' time, predicted"},
    {.inner = pp_bubble_columns, ROW(c.time.bubble), .has = has_bubble},
    {"measured_step_seconds", ROW(measured), .optional = true, .help = "with --check: as it ran"},
    {"calibrated_step_seconds", ROW(calibrated), .optional = true,
     .help = "with --check: simulated with the times of the run"},
    {"calibrated_error", ROW(error), .optional = true},
    {"bubble_measured", ROW(idle), .optional = true, .help = "with --check"},
    {"waited_for_core", ROW(waited), .optional = true,
     .help = "with --check: share of the ranks' time that they waited for a core"},
    {0}};

static const struct pp_column check_columns[] = {
    {NULL, "", ROW(number), .right = true},
    {NULL, "stages", ROW(c.d.stages)},
    {NULL, "replicas", ROW(c.d.replicas)},
    {NULL, "threads", ROW(c.d.threads)},
    {NULL, "schedule", ROW(schedule)},
    {NULL, "microbatches", ROW(c.d.microbatches)},
    {NULL, "chunks", ROW(c.d.chunks)},
    {NULL, "measured ms", "%.3f", 1e3, NULL, ROW(measured)},
    {NULL, "predicted ms", "%.3f", 1e3, NULL, ROW(c.time.step)},
    {NULL, "difference", "%+.1f %%", 100, NULL, ROW(difference)},
    {NULL, "calibrated ms", "%.3f", 1e3, NULL, ROW(calibrated)},
    {NULL, "difference", "%+.1f %%", 100, NULL, ROW(error)},
    {NULL, "measured bubble", ROW(ran_bubble)},
    {0}};

static void make_best_row(const struct pp_best_result *s, const char *number,
                          const struct pp_row *c, const struct pp_checked *m, struct best_row *out)
{
    bool ran = m && m->measured.step > 0, eager = c->d.schedule && c->d.schedule->eager;
    *out = (struct best_row){.c = *c,
                             .schedule = pp_division_schedule(&c->d),
                             .cut = cut_name(s, c),
                             .rank_order = c->d.across ? "replicas" : "stages",
                             .threads_measured = pp_costs_at(s->costs, c->d.threads)->measured,
                             .eager = eager ? c->d.eager : 0,
                             .memory_cap = c->fitted ? c->d.memory_cap : 0,
                             .per_second = s->batch / c->time.step,
                             .measured = ran ? m->measured.step : NAN,
                             .difference = ran ? c->time.step / m->measured.step - 1 : NAN,
                             .calibrated = ran ? m->calibrated : NAN,
                             .error = ran ? m->error : NAN,
                             .idle = ran ? m->measured.bubble.idle : NAN,
                             .waited = ran && m->waited >= 0 ? m->waited : NAN};
    out->also = out->c.also;
    snprintf(out->number, sizeof(out->number), "%s", number);
    snprintf(out->recompute, sizeof(out->recompute), "%s", recompute_name(s, c, out->recompute));
    snprintf(out->threads, sizeof(out->threads), "%d%s", c->d.threads,
             out->threads_measured > 0 ? "~" : " ");
    pp_bubble_parts(&c->time.bubble, out->bubble);
    if (ran)
        pp_bubble_parts(&m->measured.bubble, out->ran_bubble);
    snprintf(out->equals, sizeof(out->equals), c->also[0] ? "= %s" : "%s", c->also);
}

/* Makes the row of item i of the result. i counts from 0, the printed number from 1. */
static void make_item(const struct pp_best_result *s, int i, struct best_row *out)
{
    char number[16];
    snprintf(number, sizeof(number), "%d", i + 1);
    make_best_row(s, number, &s->best.items[i], i < s->n_checked ? &s->checked[i] : NULL, out);
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

/* Makes a row for each way to divide the cores: one stage with all cores, then the fastest of each
 * other number of stages and replicas. Returns the number of rows, at most s->best.n + 1. */
static int make_ways(const struct pp_best_result *s, struct best_row *out)
{
    const struct pp_rows *b = &s->best;
    int n = 0;
    if (b->one.time.step > 0)
        make_best_row(s, "one", &b->one, NULL, &out[n++]);
    for (int ranks = 1; ranks <= s->ranks; ranks++) {
        for (int k = 0; k < ranks; k++) {
            int p = k == 0 ? ranks : k, i = ranks % p == 0 ? 0 : b->n;
            while (i < b->n && (b->items[i].d.stages != p || b->items[i].d.replicas != ranks / p))
                i++;
            if (i < b->n && !pp_best_is(&b->items[i], 1, 1, b->one.d.threads))
                make_item(s, i, &out[n++]);
        }
    }
    return n;
}

static int print_table(const struct pp_best_result *s, FILE *f)
{
    const struct pp_rows *b = &s->best;
    int n, shown = b->n < PP_BEST_SHOWN ? b->n : PP_BEST_SHOWN;
    PP_TAKE(struct best_row, rows, b->n + shown + 3);
    fprintf(f, "%ld combinations: %d to compare, %d not allowed by their schedule, %d duplicates",
            b->tried, b->n, b->refused, b->same);
    if (b->too_large > 0)
        fprintf(f, ", %ld need more than %.1f MiB per rank", b->too_large,
                (double)s->spec.memory / MIB);
    fprintf(f, "\n\n");
    n = make_ways(s, rows) + 1; /* and an empty line */
    for (int i = 0; i < shown; i++)
        make_item(s, i, &rows[n++]);
    if (b->as_is.time.step > 0)
        make_best_row(s, "as is", &b->as_is, NULL, &rows[n++]);
    pp_listing_print(columns, &(struct pp_listing){rows, sizeof(*rows), n}, PP_LISTING_TEXT, 0, f);
    if (b->n > shown)
        fprintf(f, "%d slower ones are not shown\n", b->n - shown);
    const struct pp_costs *c = s->costs;
    while (c && c->measured == 0)
        c = c->next;
    if (c)
        fprintf(f, "~: not measured, but from %d thread%s by the serial share of each time\n",
                c->measured, pp_plural(c->measured));
    return 0;
}

/* Returns the fastest row with one (1), several (2) or any number (0) of stages and of replicas,
 * and with `threads` threads, 0 for any number. Returns NULL if there is none. */
static const struct pp_row *find_way(const struct pp_rows *b, int p, int d, int threads)
{
    for (const struct pp_row *c = b->items; c < b->items + b->n; c++)
        if ((p == 0 || p == 1 + (c->d.stages > 1)) && (d == 0 || d == 1 + (c->d.replicas > 1)) &&
            (threads == 0 || threads == c->d.threads))
            return c;
    return NULL;
}

/* Prints which way to divide the cores is fastest, and why. */
static void print_verdict(const struct pp_best_result *s, FILE *f)
{
    const struct pp_rows *b = &s->best;
    const struct pp_row *c = &b->items[pp_best_result_first(s)], *one = &b->one;
    const struct pp_row *p = find_way(b, 2, 1, 0), *d = find_way(b, 1, 2, 0);
    const struct pp_row *alone = find_way(b, 1, 1, 1), *than = one;
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

/* Prints how much faster the best row is than the config as it is. */
static void print_gain(const struct pp_best_result *s, FILE *f)
{
    int first = pp_best_result_first(s);
    const struct pp_row *c = &s->best.items[first], *own = &s->best.as_is;
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

/* Prints the command that trains with the chosen division d. It repeats the settings of the user's
 * command line, because they may be needed. */
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

/* Prints what limits the best row, the command that trains with it, and its lines for a config
 * file. */
static int print_winner(const struct pp_best_result *s, FILE *f)
{
    static const char *const hold[] = {"stages of a replica", "replicas of a stage"};
    bool keeps = pp_best_result_keeps(s);
    const struct pp_row *c = keeps ? &s->best.as_is : &s->best.items[pp_best_result_first(s)];
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
        const struct pp_row *other = &s->best.items[k];
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

static void print_checks(const struct pp_best_result *s, FILE *f)
{
    double waited = s->as_is.waited;
    int ranks = s->as_is.measured.step > 0 ? s->best.as_is.d.stages * s->best.as_is.d.replicas : 1;
    struct best_row rows[PP_BEST_SHOWN + 2];
    int n = s->n_checked;
    for (int i = 0; i < s->n_checked; i++) {
        const struct pp_division *d = &s->best.items[i].d;
        make_item(s, i, &rows[i]);
        waited = fmax(waited, s->checked[i].waited);
        ranks = d->stages * d->replicas > ranks ? d->stages * d->replicas : ranks;
    }
    if (s->as_is.measured.step > 0)
        make_best_row(s, "as is", &s->best.as_is, &s->as_is, &rows[n++]);
    if (s->one.measured.step > 0)
        make_best_row(s, "one", &s->best.one, &s->one, &rows[n++]);
    fprintf(f, "\nchecked by running\n");
    pp_listing_print(check_columns, &(struct pp_listing){rows, sizeof(*rows), n}, PP_LISTING_TEXT,
                     0, f);
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
    PP_TRY(print_table(s, f));
    if (s->n_checked > 0)
        print_checks(s, f);
    return s->best.n > 0 ? print_winner(s, f) : 0;
}

/* ---- JSON */

struct best_document {
    struct pp_costs c;
    struct pp_rows best;
    bool is_linked;
    double unsteady;
    int chosen;
    const char *advice;
    struct best_row one, as_is;
    struct pp_listing candidates;
};

PP_HAS(has_candidates, struct best_document, row->candidates.n > 0)
PP_HAS(has_one, struct best_document, row->one.number[0])
PP_HAS(has_as_is, struct best_document, row->as_is.number[0])

#define RESULT(m) PP_FIELD(struct best_document, m)
const struct pp_column pp_best_columns[] = {
    PP_SCHEMA(2),
    {"measure_seconds", RESULT(c.took), .help = "how long measuring took"},
    {"ranks_at_once", RESULT(c.at_once), .help = "ranks that were measured at once"},
    {"cores", RESULT(c.cores), .help = "cores of the prediction"},
    {"handover_measured", RESULT(is_linked), .help = "transfers were measured"},
    {"handover_seconds", RESULT(c.near.latency), .help = "a transfer"},
    {"handover_byte_seconds", RESULT(c.near.byte), .help = "and for each of its bytes"},
    {"handover_unsteady", RESULT(unsteady), .help = "how much a transfer varies"},
    {"host_to_host_seconds", RESULT(c.far.latency),
     .help = "a transfer between hosts; 0: one host"},
    {"host_to_host_byte_seconds", RESULT(c.far.byte)},
    {"action_seconds", RESULT(c.action), .help = "overhead of an action"},
    {"optimizer_seconds_per_parameter", RESULT(c.optimizer), .help = "the optimizer"},
    {"tried", RESULT(best.tried), .help = "combinations that were looked at"},
    {"refused", RESULT(best.refused), .help = "combinations that their schedule does not allow"},
    {"same", RESULT(best.same), .help = "combinations with the plan of another one"},
    {"too_large", RESULT(best.too_large),
     .help = "combinations that need more memory than allowed"},
    {"advice", RESULT(advice), .help = "what limits the best, and what would help"},
    {"chosen", RESULT(chosen), .has = has_candidates,
     .help = "index of the fastest; -1: the config as it is ran faster"},
    {"candidates", RESULT(candidates), .inner = columns, .help = "best first"},
    {"one_stage", RESULT(one), .has = has_one, .inner = columns,
     .help = "one stage, one replica, all cores"},
    {"this_config", RESULT(as_is), .has = has_as_is, .inner = columns,
     .help = "the config as it is"},
    {0}};

static int print_best_json(const struct pp_best_result *s, FILE *f)
{
    const struct pp_rows *b = &s->best;
    PP_TAKE(struct best_row, rows, b->n + 1);
    PP_TAKE(struct best_document, d, 1);
    *d = (struct best_document){
        .c = *s->costs, .best = *b, .advice = s->advice, .candidates = {rows, sizeof(*rows), b->n}};
    for (int i = 0; i < b->n; i++)
        make_item(s, i, &rows[i]);
    d->is_linked = d->c.near.unsteady > 0;
    d->unsteady = fmax(1, fmax(d->c.near.unsteady, d->c.far.unsteady));
    if (b->n > 0)
        d->chosen = pp_best_result_keeps(s) ? -1 : pp_best_result_first(s);
    if (b->one.time.step > 0)
        make_best_row(s, "one", &b->one, &s->one, &d->one);
    if (b->as_is.time.step > 0)
        make_best_row(s, "as is", &b->as_is, &s->as_is, &d->as_is);
    pp_document_json(pp_best_columns, d, f);
    return 0;
}

int pp_best_result_print(const struct pp_best_result *s, bool json, FILE *f)
{
    return json ? print_best_json(s, f) : print_best(s, f);
}
