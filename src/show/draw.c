/* SPDX-License-Identifier: Apache-2.0 */
/* Names, labels and titles that all pictures of a plan share. */
#include "draw_impl.h"
#include "draw.h"

#include <string.h>

#include "ppcli/base/base.h"

#define SHOWN 8     /* numbers of a list */
#define UNIT_NS 1e6 /* a unit of a plan is 1 ms */

const char *draw_name(const struct pp_plan *plan)
{
    return plan->kind == PP_PLAN_EVAL ? "forward only"
           : plan->schedule           ? pp_schedule_name(plan->schedule)
                                      : "own lists";
}

void draw_shape(const struct pp_plan *plan, char *out, size_t bytes)
{
    const struct pp_geometry *g = &plan->geometry;
    int microbatches = plan->copies * g->microbatches;
    char chunks[48] = "";
    if (plan->copies == 2)
        snprintf(chunks, sizeof(chunks), " in both directions (two weight copies)");
    else if (g->chunks > 1)
        snprintf(chunks, sizeof(chunks), " x %d chunks", g->chunks);
    char together[48] = "";
    if (g->coalesce > 1)
        snprintf(together, sizeof(together), ", W of %d together", g->coalesce);
    snprintf(out, bytes, "%d stage%s%s, %d micro-batch%s%s", g->stages, pp_plural(g->stages),
             chunks, microbatches, microbatches == 1 ? "" : "es", together);
}

void draw_figures(const struct pp_drawing *d, char *out, size_t bytes)
{
    snprintf(out, bytes, "makespan %.9g, bubble %.1f %%", d->result->makespan,
             100 * d->result->bubble + 1e-9);
}

bool draw_is_even(const double *x, int step, int n)
{
    for (int i = 1; i < n; i++)
        if (x[(size_t)i * (size_t)step] != x[0])
            return false;
    return true;
}

/* Appends a list of numbers, each multiplied by `times`: one number if all are equal ("1"), else
 * the first eight ("2,1,1,1"). */
static void add_list(const double *x, int step, int n, int times, char *out, size_t bytes)
{
    bool even = draw_is_even(x, step, n);
    pp_text_add(out, bytes, "%g", times * x[0]);
    for (int i = 1; i < n && i < SHOWN && !even; i++)
        pp_text_add(out, bytes, ",%g", times * x[(size_t)i * (size_t)step]);
    if (n > SHOWN && !even)
        pp_text_add(out, bytes, ",...");
}

void draw_costs(const struct pp_drawing *d, char *out, size_t bytes)
{
    const struct pp_plan *plan = d->plan;
    const struct pp_sim_costs *c = d->costs;
    int n = plan->n_virtual;
    int share = plan->geometry.chunks / plan->copies; /* even chunks: told as those of a rank */
    bool even = draw_is_even(c->f, 1, n) && draw_is_even(c->i, 1, n) && draw_is_even(c->w, 1, n);
    const double *of[] = {c->f, c->i, c->w};
    snprintf(out, bytes, "per %s", even ? "rank" : "stage");
    for (int op = 0; op < 3; op++) {
        pp_text_add(out, bytes, "%s %c ", op ? "," : "", PP_OP_LETTERS[op]);
        add_list(of[op], 1, n, even ? share : 1, out, bytes);
    }
    pp_text_add(out, bytes, "; transfer ");
    if (c->transfer && n > 1)
        add_list(c->transfer, 2, n - 1, 1, out, bytes);
    else
        pp_text_add(out, bytes, "%g", c->latency);
}

static int count_digits(int x)
{
    return snprintf(NULL, 0, "%d", x);
}

int draw_label_length(const struct pp_plan *plan)
{
    int n = 1 + count_digits(plan->geometry.microbatches - 1);
    return plan->geometry.chunks > 1 ? n + count_digits(plan->n_virtual - 1) : n;
}

int draw_label(const struct pp_plan *plan, const struct pp_action *a, int room,
               char out[PP_CELL_LABEL])
{
    if (plan->geometry.chunks > 1)
        snprintf(out, PP_CELL_LABEL, "%d%c%d", a->stage, PP_OP_LETTERS[a->op], a->mb);
    else
        snprintf(out, PP_CELL_LABEL, "%c%d", PP_OP_LETTERS[a->op], a->mb);
    draw_fit(out, room);
    return (int)strlen(out);
}

void draw_least(const struct pp_drawing *d, double least[PP_OPS])
{
    bool seen[PP_OPS] = {false};
    for (int op = 0; op < PP_OPS; op++)
        least[op] = 0;
    for (int r = 0; r < d->plan->geometry.stages; r++) {
        for (int k = 0; k < d->plan->ranks[r].n_actions; k++) {
            int op = d->plan->ranks[r].actions[k].op;
            double took = d->result->end[r][k] - d->result->start[r][k];
            least[op] = !seen[op] || took < least[op] ? took : least[op];
            seen[op] = true;
        }
    }
}

double draw_unit(const struct pp_drawing *d)
{
    double least[PP_OPS];
    draw_least(d, least);
    double longest = 0;
    for (int op = 0; op < PP_OPS; op++)
        longest = least[op] > longest ? least[op] : longest;
    double unit = longest;
    for (int op = 0; op < PP_OPS; op++)
        if (least[op] >= longest / 4 && least[op] < unit)
            unit = least[op];
    return unit;
}

int draw_written(FILE *f)
{
    return ferror(f) ? pp_fail(PP_EIO, "cannot write the plan") : 0;
}

int pp_draw_trace(const struct pp_drawing *d, FILE *f)
{
    struct pp_chrome c;
    struct pp_chrome_head head = {.simulated = true,
                                  .version = PP_VERSION,
                                  .schedule = draw_name(d->plan),
                                  .stages = d->plan->geometry.stages,
                                  .microbatches = d->plan->copies * d->plan->geometry.microbatches,
                                  .ranks = d->plan->geometry.stages};
    struct pp_draw_steps how = {.unit_ns = UNIT_NS, .step = -1};
    pp_chrome_open(&c, f, &head);
    pp_draw_events(d, &how, &c);
    pp_chrome_close(&c);
    return draw_written(f);
}
