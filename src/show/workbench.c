/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of the page of share/workbench/: the plan as a table, its costs, and what every known
 * schedule of the same shape would take with them. The page proves and simulates for itself.
 */
#include "ppcli/show/results.h"

#include <string.h>
#include <zlib.h>

#include "ppcli/sched/plan.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "report.h"

#define TABLE_BYTES (256 << 10) /* of known tables on a page; of longer ones it has the checksum */

extern const char workbench_page_head[], workbench_page_tail[]; /* made of share/workbench/ */

static void put_numbers(struct pp_json *j, const char *key, const double *x, int n)
{
    pp_json_array(j, key);
    for (int i = 0; i < n; i++)
        pp_json_dbl(j, NULL, x[i]);
    pp_json_end(j);
}

struct known {
    struct pp_json *j;
    size_t room; /* bytes that are left for tables */
};

/* Writes a known schedule of the plan's shape, with the plan's costs. */
static int put_known(const struct pp_plan *plan, const struct pp_sim_result *result, void *ctx)
{
    struct known *k = ctx;
    PP_OWN_MEMORY char *text = NULL;
    PP_TRY(pp_plan_csv_text(plan, &text));
    int peak = 0;
    for (int r = 0; r < plan->geometry.stages; r++)
        peak = result->peak[r] > peak ? result->peak[r] : peak;
    pp_json_object(k->j, NULL);
    pp_json_str(k->j, "name", pp_schedule_name(plan->schedule));
    pp_json_dbl(k->j, "makespan", result->makespan);
    pp_json_int(k->j, "peak", peak);
    pp_json_uint(k->j, "crc", crc32(0, (const Bytef *)text, (uInt)strlen(text)));
    bool fits = strlen(text) <= k->room;
    k->room -= fits ? strlen(text) : 0;
    pp_json_str(k->j, "table", fits ? text : NULL);
    pp_json_end(k->j);
    return 0;
}

/* Writes what every known schedule of the plan's shape takes. A stage costs what it costs in the plan,
 * on whichever rank it is: the page simulates the tables so. */
static int put_schedules(struct pp_json *j, const struct pp_planned *q)
{
    const struct pp_sim_costs *c = q->costs;
    int n = q->plan->n_virtual;
    PP_TAKE(double, numbers, 4 * (size_t)n);
    double *f = numbers, *i = f + n, *w = i + n, *comm = w + n, overlap = c->overlap;
    struct pp_geometry shape = q->plan->geometry;
    struct known known = {.j = j, .room = TABLE_BYTES};
    struct pp_cost_list lists[PP_COSTS] = {[PP_COST_F] = {f, n},
                                           [PP_COST_I] = {i, n},
                                           [PP_COST_W] = {w, n},
                                           [PP_COST_COMM] = {comm, c->transfer ? n - 1 : 1},
                                           [PP_COST_OVERLAP] = {&overlap, 1}};
    for (int s = 0; s < n; s++) {
        f[s] = c->f[s];
        i[s] = c->i[s];
        w[s] = c->w[s];
        comm[s] = c->transfer && s < n - 1 ? c->transfer[2 * (size_t)s] : c->latency;
    }
    shape.memory_cap = q->memory_cap;
    pp_json_array(j, "known");
    PP_TRY(pp_schedules_simulate(NULL, &shape, lists, put_known, &known));
    pp_json_end(j);
    return 0;
}

static int print_data(const void *planned, FILE *f)
{
    const struct pp_planned *q = planned;
    PP_OWN_MEMORY char *text = NULL;
    const struct pp_plan *plan = q->plan;
    PP_TRY(pp_plan_csv_text(plan, &text));
    struct pp_json j = pp_json_begin(f, 0);
    pp_json_str(&j, "schedule", plan->schedule ? pp_schedule_name(plan->schedule) : "table");
    pp_json_str(&j, "table", text);
    pp_json_dbl(&j, "cap", q->memory_cap);
    pp_json_object(&j, "costs");
    put_numbers(&j, "f", q->costs->f, plan->n_virtual);
    put_numbers(&j, "i", q->costs->i, plan->n_virtual);
    put_numbers(&j, "w", q->costs->w, plan->n_virtual);
    pp_json_dbl(&j, "latency", q->costs->latency);
    if (q->costs->transfer)
        put_numbers(&j, "transfer", q->costs->transfer, 2 * (plan->n_virtual - 1));
    pp_json_dbl(&j, "overlap", q->costs->overlap);
    pp_json_end(&j);
    PP_TRY(put_schedules(&j, q));
    pp_json_end(&j);
    return 0;
}

int pp_workbench_write(const void *planned, FILE *f)
{
    PP_OWN_MEMORY char *text = NULL;
    const struct pp_planned *q = planned;
    if (q->plan->copies > 1)
        return pp_fail(PP_EUSAGE, "--html: a table cannot describe two copies of the weights; "
                                  "draw this schedule with --format svg");
    PP_TRY(report_draw_text(print_data, q, &text));
    fputs(workbench_page_head, f);
    report_put_json(text, f);
    fputs(workbench_page_tail, f);
    return ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the page") : 0;
}
