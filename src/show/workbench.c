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

/* A known schedule of the plan's shape, with the plan's costs; one that refuses the shape is left out. */
static int put_known(struct pp_json *j, const struct pp_planned *q, const char *name, size_t *room)
{
    PP_OWN(pp_plan_destroy) struct pp_plan *plan = NULL;
    PP_OWN(pp_sim_result_fini) struct pp_sim_result result = {0};
    PP_OWN_MEMORY char *text = NULL;
    const struct pp_geometry *g = &q->plan->geometry;
    struct pp_geometry shape = {
        .stages = g->stages, .chunks = g->chunks, .microbatches = g->microbatches};
    shape.memory_cap = q->memory_cap;
    shape.costs.comm = q->costs->latency;
    int rc = pp_plan_build(name, &shape, &plan);
    if (rc == PP_ECONFIG) {
        pp_error_clear();
        return 0;
    }
    PP_TRY(rc);
    PP_TRY(pp_sim_run(plan, q->costs, false, &result));
    PP_TRY(pp_plan_csv_text(plan, &text));
    int peak = 0;
    for (int r = 0; r < g->stages; r++)
        peak = result.peak[r] > peak ? result.peak[r] : peak;
    pp_json_object(j, NULL);
    pp_json_str(j, "name", name);
    pp_json_dbl(j, "makespan", result.makespan);
    pp_json_int(j, "peak", peak);
    pp_json_uint(j, "crc", crc32(0, (const Bytef *)text, (uInt)strlen(text)));
    bool fits = strlen(text) <= *room;
    *room -= fits ? strlen(text) : 0;
    pp_json_str(j, "table", fits ? text : NULL);
    pp_json_end(j);
    return 0;
}

static int print_data(const void *planned, FILE *f)
{
    const struct pp_planned *q = planned;
    PP_OWN_MEMORY char *text = NULL;
    const struct pp_plan *plan = q->plan;
    size_t room = TABLE_BYTES;
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
    pp_json_array(&j, "known");
    for (const char *const *name = pp_schedule_names(); *name; name++)
        PP_TRY(pp_schedule_find(*name)->proves ? 0 : put_known(&j, q, *name, &room));
    pp_json_end(&j);
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
