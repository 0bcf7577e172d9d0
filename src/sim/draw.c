/* SPDX-License-Identifier: Apache-2.0 */
/* Names, labels and titles that all pictures of a plan share. */
#include "draw_impl.h"

#include <string.h>

#include "ppcli/err.h"

const char draw_letters[] = "FIWB";

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
    if (plan->copies == 2) {
        snprintf(chunks, sizeof(chunks), " in both directions (two weight copies)");
    } else if (g->chunks > 1) {
        snprintf(chunks, sizeof(chunks), " x %d chunks", g->chunks);
    }
    char together[48] = "";
    if (g->coalesce > 1) {
        snprintf(together, sizeof(together), ", W of %d together", g->coalesce);
    }
    snprintf(out, bytes, "%d stage%s%s, %d micro-batch%s%s", g->stages, g->stages == 1 ? "" : "s",
             chunks, microbatches, microbatches == 1 ? "" : "es", together);
}

void draw_figures(const struct pp_drawing *d, char *out, size_t bytes)
{
    snprintf(out, bytes, "makespan %.9g, bubble %.1f %%", d->result->makespan,
             100 * d->result->bubble + 1e-9);
}

void draw_costs(const struct pp_drawing *d, char *out, size_t bytes)
{
    snprintf(out, bytes, "per rank F %g, I %g, W %g; hand-over %g", d->costs.f, d->costs.i,
             d->costs.w, d->costs.comm);
}

static int digits(int x)
{
    return snprintf(NULL, 0, "%d", x);
}

int draw_label_length(const struct pp_plan *plan)
{
    int n = 1 + digits(plan->geometry.microbatches - 1);
    return plan->geometry.chunks > 1 ? n + digits(plan->n_virtual - 1) : n;
}

int draw_label(const struct pp_plan *plan, const struct pp_action *a, int room,
               char out[DRAW_LABEL_MAX])
{
    int n = 0;
    if (plan->geometry.chunks > 1) {
        n = snprintf(out, DRAW_LABEL_MAX, "%d%c%d", a->stage, draw_letters[a->op], a->mb);
        if (n <= room) {
            return n;
        }
    }
    n = snprintf(out, DRAW_LABEL_MAX, "%c%d", draw_letters[a->op], a->mb);
    if (n <= room) {
        return n;
    }
    out[room >= 1 ? 1 : 0] = '\0';
    return room >= 1 ? 1 : 0;
}

void draw_least(const struct pp_drawing *d, double least[4])
{
    bool seen[4] = {false, false, false, false};
    for (int op = 0; op < 4; op++) {
        least[op] = 0;
    }
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
    double least[4];
    draw_least(d, least);
    double longest = 0;
    for (int op = 0; op < 4; op++) {
        longest = least[op] > longest ? least[op] : longest;
    }
    double unit = longest;
    for (int op = 0; op < 4; op++) {
        if (least[op] >= longest / 4 && least[op] < unit) {
            unit = least[op];
        }
    }
    return unit;
}

int draw_shade(const struct pp_plan *plan, int stage)
{
    return plan->chunk_of[stage] % PP_DRAW_SHADES;
}

int draw_written(FILE *f)
{
    return ferror(f) ? pp_fail(PP_EIO, "cannot write the plan") : 0;
}
