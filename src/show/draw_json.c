/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a simulated plan for other programs. */
#include "draw_impl.h"
#include "draw.h"

#include "ppcli/base/base.h"
#include "results.h"

/* Returns how many messages a rank can hold: the slots of the channels that end at it. */
static int64_t message_slots(const struct pp_plan *plan, int rank)
{
    int64_t n = 0;
    for (int c = 0; c < plan->n_channels; c++)
        n += plan->channels[c].dst_rank == rank ? plan->channels[c].slots : 0;
    return n;
}

struct rank_row {
    int rank, peak;
    double work, idle, first_start, last_end;
    int64_t slots;
    size_t bytes;
    bool has_bytes;
};

PP_HAS(has_bytes, struct rank_row, row->has_bytes)

#define RANK(m) PP_FIELD(struct rank_row, m)
static const struct pp_column rank_columns[] = {
    {"rank", RANK(rank), .help = "its number"},
    {"work", RANK(work), .help = "time that it computes, and that it does not"},
    {"idle", RANK(idle)},
    {"first_start", RANK(first_start), .help = "of its first and of its last action"},
    {"last_end", RANK(last_end)},
    {"peak_chunks", RANK(peak), .help = "activations that it holds at most, each of a chunk"},
    {"message_slots", RANK(slots), .help = "messages that it can hold"},
    {"peak_bytes", RANK(bytes), .has = has_bytes, .help = "its memory; with a config"},
    {0}};

struct plan_document {
    const struct pp_drawing *d;
    const char *schedule;
    struct pp_geometry g;
    int microbatches, copies, coalesce;
    double makespan, bubble, bubble_global, bubble_span;
    struct pp_listing ranks;
};

/* Prints n costs: as one number, the cost of a whole rank, if all are equal, else as a list. */
static void print_cost(struct pp_json *j, const char *name, const double *x, int step, int n,
                       int share)
{
    if (draw_is_even(x, step, n)) {
        pp_json_dbl(j, name, x[0] * share);
        return;
    }
    pp_json_array(j, name);
    for (int i = 0; i < n; i++, x += step)
        pp_json_dbl(j, NULL, *x);
    pp_json_end(j);
}

static void put_costs(const void *document, const char *key, struct pp_json *j)
{
    const struct pp_drawing *d = ((const struct plan_document *)document)->d;
    int n = d->plan->n_virtual, share = d->plan->geometry.chunks / d->plan->copies;
    pp_json_object(j, key);
    print_cost(j, "f", d->costs->f, 1, n, share);
    print_cost(j, "i", d->costs->i, 1, n, share);
    print_cost(j, "w", d->costs->w, 1, n, share);
    if (d->costs->transfer && n > 1)
        print_cost(j, "comm", d->costs->transfer, 2, n - 1, 1);
    else
        pp_json_dbl(j, "comm", d->costs->latency);
    pp_json_end(j);
}

#define PLAN(m) PP_FIELD(struct plan_document, m)
const struct pp_column pp_plan_columns[] = {
    PP_SCHEMA(1),
    {"schedule", PLAN(schedule), .help = "its name"},
    {"stages", PLAN(g.stages), .help = "the shape"},
    {"chunks", PLAN(g.chunks)},
    {"microbatches", PLAN(microbatches)},
    {"weight_copies", PLAN(copies), .help = "2 where a pipeline runs in both directions"},
#define PP_KEY(section, TYPE, k, ...) {#k, PLAN(g.k), .help = "as pipeline." #k},
#include "ppcli/base/keys_schedule.def"
#undef PP_KEY
    {"coalesce", PLAN(coalesce), .help = "micro-batches whose weight gradients are one product"},
    {"costs", .put = put_costs, .type = "number or numbers by name",
     .help = "`f`, `i`, `w`, `comm`: of a whole rank, or a list where stages differ"},
    {"makespan", PLAN(makespan), .help = "time of a step"},
    {"bubble", PLAN(bubble), .help = "idle share of the ranks' time"},
    {"bubble_global", PLAN(bubble_global), .help = "as the zero-bubble papers define them"},
    {"bubble_span", PLAN(bubble_span)},
    {"ranks", PLAN(ranks), .inner = rank_columns, .help = "in their order"},
    {0}};

int pp_draw_json(const struct pp_drawing *d, FILE *f)
{
    const struct pp_geometry *g = &d->plan->geometry;
    const struct pp_sim_result *res = d->result;
    PP_TAKE(struct rank_row, ranks, g->stages);
    for (int r = 0; r < g->stages; r++)
        ranks[r] = (struct rank_row){.rank = r,
                                     .peak = res->peak[r],
                                     .work = res->work[r],
                                     .idle = res->idle[r],
                                     .first_start = res->first_start[r],
                                     .last_end = res->last_end[r],
                                     .slots = message_slots(d->plan, r),
                                     .bytes = d->bytes ? d->bytes[r] : 0,
                                     .has_bytes = d->bytes};
    struct plan_document p = {.d = d,
                              .schedule = draw_name(d->plan),
                              .g = *g,
                              .microbatches = d->plan->copies * g->microbatches,
                              .copies = d->plan->copies,
                              .coalesce = g->coalesce > 1 ? g->coalesce : 1,
                              .makespan = res->makespan,
                              .bubble = res->bubble,
                              .bubble_global = res->bubble_global,
                              .bubble_span = res->bubble_span,
                              .ranks = {ranks, sizeof(*ranks), g->stages}};
    pp_document_json(pp_plan_columns, &p, f);
    return draw_written(f);
}
