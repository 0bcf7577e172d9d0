/* SPDX-License-Identifier: Apache-2.0 */
/* What plan --best found: a table for people with the lines of the winner, or JSON. */
#include <string.h>

#include "plan_best.h"
#include "ppcli/err.h"
#include "ppcli/json.h"
#include "ppcli/mem.h"

/* "flops", "time", "equal", ...: how the layers of a candidate are cut. */
static const char *cut_name(const struct pp_candidate *c)
{
    return c->assignment == PP_ASSIGN_TIME       ? "time"
           : c->assignment == PP_ASSIGN_EQUAL    ? "equal"
           : c->assignment == PP_ASSIGN_PARAMS   ? "params"
           : c->assignment == PP_ASSIGN_EXPLICIT ? "ranges"
                                                 : "flops";
}

/* ---- text */

static void print_machine(const struct plan_best_result *s)
{
    const struct pp_costs *c = s->costs;
    const struct pp_config *cfg = s->spec.cfg;
    const char *plural = c->cores == 1 ? "" : "s";
    printf("measured in %.1f s: %d rank%s at once on %d core%s", c->took, c->at_once,
           c->at_once == 1 ? "" : "s", c->cores, plural);
    if (c->linked) {
        printf(", a hand-over %.2f us + %.3f us/MiB", c->latency * 1e6,
               c->byte * 1e6 * PLAN_BEST_MIB);
    }
    printf("\n");
    if (s->ranks > c->cores) {
        printf("%d ranks on %d core%s take turns: step times are lower bounds\n", s->ranks,
               c->cores, plural);
    }
    if (cfg->run.launch == PP_LAUNCH_MPIRUN || !pp_transport_joins(cfg->run.transport, false))
        printf("hand-overs between MPI processes were not measured: times are those of threads\n");
}

static void print_row(const struct plan_best_result *s, const char *number,
                      const struct pp_candidate *c)
{
    char bubble[PP_BUBBLE_TEXT_MAX];
    printf("%4s  %6d %-14s %12d %6d  %-10s %10.3f %10.0f  %-27s %9.1f%s%s\n", number, c->stages,
           c->schedule, c->microbatches, c->chunks, cut_name(c), c->time.step * 1e3,
           s->batch / c->time.step, pp_bubble_parts(&c->time.bubble, bubble),
           (double)c->peak_bytes / PLAN_BEST_MIB, c->also[0] ? "  = " : "", c->also);
}

static void print_table(const struct plan_best_result *s)
{
    const struct pp_best *b = &s->best;
    char number[16];
    printf("%d of %d shapes can run (%d refused by their schedule, %d the same plan as another",
           b->n, b->tried, b->refused, b->same);
    if (b->too_large > 0)
        printf(", %d over %.1f MiB a rank", b->too_large, (double)s->spec.memory / PLAN_BEST_MIB);
    printf(")\n\n%4s  %6s %-14s %12s %6s  %-10s %10s %10s  %-27s %9s\n", "", "stages", "schedule",
           "microbatches", "chunks", "assignment", "step ms", "samples/s",
           "bubble = sched + cut + wait", "peak MiB");
    for (int i = 0; i < b->n && i < PLAN_BEST_SHOWN; i++) {
        snprintf(number, sizeof(number), "%d", i + 1);
        print_row(s, number, &b->items[i]);
    }
    if (b->n > PLAN_BEST_SHOWN)
        printf("      ... and %d slower ones\n", b->n - PLAN_BEST_SHOWN);
    if (b->one.time.step > 0)
        print_row(s, "one", &b->one);
}

/* What limits the first row, and its section for a file. */
static int print_winner(const struct plan_best_result *s)
{
    static char value[PP_CUT_MAX];
    const struct pp_candidate *c = &s->best.items[0];
    char bubble[PP_BUBBLE_TEXT_MAX];
    struct pp_config *cfg = NULL;
    printf("\nbubble %s\n", pp_bubble_text(&c->time.bubble, bubble));
    if (s->advice[0])
        printf("%s\n", s->advice);
    if (c->stages > 1 && s->best.one.time.step > 0)
        printf("%.2f times the speed of one stage\n", s->best.one.time.step / c->time.step);
    printf("\n[pipeline]\n");
    PP_TRY(pp_best_config(s->spec.cfg, s->model, c, s->costs, &cfg));
    int rc = 0;
    for (int k = 0; rc == 0 && k < pp_config_key_count(); k++) {
        const char *name = pp_config_key_name(k);
        if (strncmp(name, "pipeline.", 9) == 0) {
            rc = pp_config_key_value(cfg, k, value, sizeof(value));
            if (rc == 0 && strcmp(value, "0") != 0 &&
                strcmp(value, "none") != 0) /* left to ppcli */
                printf("%s = %s\n", name + 9, value);
        }
    }
    pp_free(cfg);
    if (c->microbatches != s->spec.cfg->pipeline.microbatches &&
        s->spec.cfg->run.gemm == PP_GEMM_CBLAS) {
        printf(
            "; %d instead of %d micro-batches: with run.gemm = cblas the weights have other bits\n",
            c->microbatches, s->spec.cfg->pipeline.microbatches);
    }
    return rc;
}

static void print_checks(const struct plan_best_result *s)
{
    char bubble[PP_BUBBLE_TEXT_MAX];
    printf("\nchecked by running\n%4s  %6s %-14s %12s %6s %12s %12s %10s  %s\n", "", "stages",
           "schedule", "microbatches", "chunks", "predicted ms", "measured ms", "difference",
           "measured bubble");
    for (int i = 0; i < PLAN_BEST_CHECKED && i < s->best.n; i++) {
        const struct pp_candidate *c = &s->best.items[i];
        const struct pp_prediction *m = &s->checked[i];
        printf("%4d  %6d %-14s %12d %6d %12.3f %12.3f %+8.1f %%  %s\n", i + 1, c->stages,
               c->schedule, c->microbatches, c->chunks, c->time.step * 1e3, m->step * 1e3,
               100 * (c->time.step / m->step - 1), pp_bubble_parts(&m->bubble, bubble));
    }
}

int plan_best_text(const struct plan_best_result *s, bool checks)
{
    print_machine(s);
    print_table(s);
    if (s->best.n > 0)
        PP_TRY(print_winner(s));
    if (s->best.n > 0 && checks)
        print_checks(s);
    return 0;
}

/* ---- JSON */

static void json_candidate(struct pp_json *j, const struct plan_best_result *s,
                           const struct pp_candidate *c, const struct pp_prediction *checked)
{
    const struct pp_bubble *b = &c->time.bubble;
    pp_json_str(j, "schedule", c->schedule);
    pp_json_str(j, "also", c->also);
    pp_json_int(j, "stages", c->stages);
    pp_json_int(j, "microbatches", c->microbatches);
    pp_json_int(j, "chunks", c->chunks);
    pp_json_int(j, "eager", c->eager);
    pp_json_str(j, "assignment", cut_name(c));
    pp_json_dbl(j, "step_seconds", c->time.step);
    pp_json_dbl(j, "samples_per_second", s->batch / c->time.step);
    pp_json_uint(j, "peak_bytes", c->peak_bytes);
    if (b->stages > 0) { /* of those that the table shows */
        pp_json_dbl(j, "bubble", b->idle);
        pp_bubble_json(b, j);
    }
    if (checked && checked->step > 0) {
        pp_json_dbl(j, "measured_step_seconds", checked->step);
        pp_json_dbl(j, "bubble_measured", checked->bubble.idle);
    }
    pp_json_end(j);
}

void plan_best_json(const struct plan_best_result *s)
{
    struct pp_json j;
    const struct pp_best *b = &s->best;
    const struct pp_costs *c = s->costs;
    pp_json_init(&j, stdout, 2);
    pp_json_object(&j, NULL);
    pp_json_int(&j, "schema", 2);
    pp_json_dbl(&j, "measure_seconds", c->took);
    pp_json_int(&j, "ranks_at_once", c->at_once);
    pp_json_int(&j, "cores", c->cores);
    pp_json_bool(&j, "handover_measured", c->linked);
    pp_json_dbl(&j, "handover_seconds", c->latency);
    pp_json_dbl(&j, "handover_byte_seconds", c->byte);
    pp_json_dbl(&j, "action_seconds", c->action);
    pp_json_dbl(&j, "optimizer_seconds_per_parameter", c->optimizer);
    pp_json_int(&j, "tried", b->tried);
    pp_json_int(&j, "refused", b->refused);
    pp_json_int(&j, "same", b->same);
    pp_json_int(&j, "too_large", b->too_large);
    pp_json_str(&j, "advice", s->advice);
    if (b->one.time.step > 0) {
        pp_json_object(&j, "one_stage");
        json_candidate(&j, s, &b->one, NULL);
    }
    pp_json_array(&j, "candidates");
    for (int i = 0; i < b->n; i++) {
        pp_json_object(&j, NULL);
        json_candidate(&j, s, &b->items[i], i < PLAN_BEST_CHECKED ? &s->checked[i] : NULL);
    }
    pp_json_end(&j);
    pp_json_end(&j);
}
