/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as a picture: a lane for each rank, a cell for each action. */
#include "draw_impl.h"
#include "draw.h"

#include <string.h>

#include "ppcli/base/base.h"

static void fill_cell(const struct pp_drawing *d, int rank, int k, struct pp_lane_cell *out)
{
    const struct pp_action *list = d->plan->ranks[rank].actions, *a = &list[k];
    const double *start = d->result->start[rank];
    /* a pair that runs as one piece of work shares its time: F above, B below */
    bool upper = a->overlap && k + 1 < d->plan->ranks[rank].n_actions && start[k + 1] == start[k];
    bool lower = k > 0 && list[k - 1].overlap && start[k - 1] == start[k];
    *out = (struct pp_lane_cell){.start = start[k],
                                 .end = d->result->end[rank][k],
                                 .letter = PP_OP_LETTERS[a->op],
                                 .shade = d->plan->chunk_of[a->stage],
                                 .half = lower ? 2 : upper};
    (void)draw_label(d->plan, a, PP_CELL_LABEL, out->label);
}

int pp_draw_svg(const struct pp_drawing *d, FILE *f)
{
    static const struct pp_look plain = {.width = 0};
    char title[192], figures[DRAW_COSTS_MAX + 192], costs[DRAW_COSTS_MAX], shape[128];
    int ranks = d->plan->geometry.stages, n = 0;
    bool chunks = d->plan->geometry.chunks > 1;
    double unit = draw_unit(d), makespan = d->result->makespan;
    for (int r = 0; r < ranks; r++)
        n += d->plan->ranks[r].n_actions;
    PP_TAKE(struct pp_lane, lanes, ranks);
    PP_TAKE(struct pp_lane_cell, cells, n);
    n = 0;
    for (int r = 0; r < ranks; r++) {
        lanes[r].n = d->plan->ranks[r].n_actions;
        snprintf(lanes[r].name, PP_CELL_LABEL, "rank %d", r);
        snprintf(lanes[r].note, PP_CELL_LABEL, "peak %d", d->result->peak[r]);
        for (int k = 0; k < lanes[r].n; k++)
            fill_cell(d, r, k, &cells[n++]);
    }
    draw_shape(d->plan, shape, sizeof(shape));
    snprintf(title, sizeof(title), "%s: %s", draw_name(d->plan), shape);
    draw_figures(d, figures, sizeof(figures));
    draw_costs(d, costs, sizeof(costs));
    pp_text_add(figures, sizeof(figures), "; %s", costs);
    struct pp_lanes p = {
        .title = title,
        .figures = figures,
        .labels = chunks
                      ? "5F3: micro-batch 3 of chunk 5, in model order; a colour for each chunk of "
                        "a rank. Peak: chunks whose activations a rank holds at most."
                      : "F3: micro-batch 3. Peak: micro-batches whose activations a rank holds at "
                        "most.",
        .time = "time in the unit of the costs",
        .span = makespan,
        .wanted = unit > 0 ? (draw_label_length(d->plan) * 7 + 6) * makespan / unit : 0,
        .n = ranks,
        .shades = d->plan->geometry.chunks,
        .lanes = lanes,
        .cells = cells,
    };
    return pp_picture_lanes(&p, d->look ? d->look : &plain, f);
}
