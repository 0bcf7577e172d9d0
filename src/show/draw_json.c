/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a simulated plan for other programs. */
#include "draw_impl.h"
#include "draw.h"

#include "ppcli/base/files.h"

/* Slots of the channels that end at a rank: the messages it can hold. */
static int64_t message_slots(const struct pp_plan *plan, int rank)
{
    int64_t n = 0;
    for (int c = 0; c < plan->n_channels; c++)
        n += plan->channels[c].dst_rank == rank ? plan->channels[c].slots : 0;
    return n;
}

static void print_rank(const struct pp_drawing *d, int r, struct pp_json *j)
{
    const struct pp_sim_result *res = d->result;
    pp_json_object(j, NULL);
    pp_json_int(j, "rank", r);
    pp_json_dbl(j, "work", res->work[r]);
    pp_json_dbl(j, "idle", res->idle[r]);
    pp_json_dbl(j, "first_start", res->first_start[r]);
    pp_json_dbl(j, "last_end", res->last_end[r]);
    pp_json_int(j, "peak_chunks", res->peak[r]);
    pp_json_int(j, "message_slots", message_slots(d->plan, r));
    if (d->bytes)
        pp_json_uint(j, "peak_bytes", d->bytes[r]);
    pp_json_end(j);
}

/* What is the same everywhere as one number, of a whole rank; else a number for each. */
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

int pp_draw_json(const struct pp_drawing *d, FILE *f)
{
    const struct pp_geometry *g = &d->plan->geometry;
    struct pp_json j = pp_json_begin(f, 2);
    pp_json_int(&j, "schema", 1);
    pp_json_str(&j, "schedule", draw_name(d->plan));
    pp_json_int(&j, "stages", g->stages);
    pp_json_int(&j, "chunks", g->chunks);
    pp_json_int(&j, "microbatches", (int64_t)d->plan->copies * g->microbatches);
    pp_json_int(&j, "weight_copies", d->plan->copies);
#define PP_KEY(section, TYPE, k, ...) pp_json_dbl(&j, #k, g->k);
#include "ppcli/base/keys_schedule.def"
#undef PP_KEY
    pp_json_int(&j, "coalesce", g->coalesce > 1 ? g->coalesce : 1);
    pp_json_object(&j, "costs");
    int n = d->plan->n_virtual;
    int share = g->chunks / d->plan->copies;
    print_cost(&j, "f", d->costs->f, 1, n, share);
    print_cost(&j, "i", d->costs->i, 1, n, share);
    print_cost(&j, "w", d->costs->w, 1, n, share);
    if (d->costs->transfer && n > 1)
        print_cost(&j, "comm", d->costs->transfer, 2, n - 1, 1);
    else
        pp_json_dbl(&j, "comm", d->costs->latency);
    pp_json_end(&j);
    pp_json_dbl(&j, "makespan", d->result->makespan);
    pp_json_dbl(&j, "bubble", d->result->bubble);
    pp_json_dbl(&j, "bubble_global", d->result->bubble_global);
    pp_json_dbl(&j, "bubble_span", d->result->bubble_span);
    pp_json_array(&j, "ranks");
    for (int r = 0; r < g->stages; r++)
        print_rank(d, r, &j);
    pp_json_end(&j);
    pp_json_end(&j);
    return draw_written(f);
}
