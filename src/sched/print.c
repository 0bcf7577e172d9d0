/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as text: torch's compute-only CSV for programs, a grid of ticks for people. */
#include "csv.h"

#include <inttypes.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

int pp_csv_written(FILE *f)
{
    return ferror(f) ? pp_fail(PP_EIO, "cannot write the plan") : 0;
}

static int print_row(void *ctx, int rank, const struct pp_emit *e)
{
    (void)rank;
    struct pp_csv_printer row = {.f = ctx};
    for (size_t k = 0; k < e->n; k++) {
        const struct pp_cell *c = &e->cells[k];
        pp_csv_print(&row, c->op, c->stage, c->mb, c->overlap);
    }
    putc('\n', row.f);
    return 0;
}

int pp_schedule_print_csv(const struct pp_schedule_ops *ops, const struct pp_geometry *g, FILE *f)
{
    PP_TRY(pp_check_geometry(g));
    PP_TRY(pp_schedule_check(ops, g));
    struct pp_geometry share = pp_schedule_share(ops, g);
    PP_TRY(pp_schedule_visit(ops, &share, print_row, f));
    return pp_csv_written(f);
}

int pp_plan_print_csv(const struct pp_plan *plan, FILE *f)
{
    for (int r = 0; r < plan->geometry.stages; r++) {
        struct pp_csv_printer row = {.f = f};
        for (int k = 0; k < plan->ranks[r].n_actions; k++) {
            const struct pp_action *a = &plan->ranks[r].actions[k];
            pp_csv_print(&row, a->op, a->stage, a->mb, a->overlap);
        }
        putc('\n', f);
    }
    return pp_csv_written(f);
}

static int digits(int x)
{
    return snprintf(NULL, 0, "%d", x);
}

static void print_title(const struct pp_plan *plan, int64_t makespan, double bubble, FILE *f)
{
    const struct pp_geometry *g = &plan->geometry;
    fprintf(f, "%s: %d stage%s",
            plan->kind == PP_PLAN_EVAL ? "forward only"
            : plan->schedule           ? pp_schedule_name(plan->schedule)
                                       : "own lists",
            g->stages, g->stages == 1 ? "" : "s");
    if (g->chunks > 1)
        fprintf(f, " x %d chunks", g->chunks);
    fprintf(f, ", %d micro-batch%s; %" PRId64 " ticks, bubble %.1f %%\n", g->microbatches,
            g->microbatches == 1 ? "" : "es", makespan, 100.0 * bubble);
}

/* The cell's name at its tick; a B goes on for a second tick. */
static void draw(const struct pp_plan *plan, const struct pp_action *a, char *at, int width)
{
    char name[PP_CELL_NAME_MAX];
    int n = plan->geometry.chunks > 1
                ? snprintf(name, sizeof(name), "%d%c%d", a->stage, PP_OP_LETTERS[a->op], a->mb)
                : snprintf(name, sizeof(name), "%c%d", PP_OP_LETTERS[a->op], a->mb);
    int room = (a->op == PP_OP_B ? 2 * width : width) - 1;
    memset(at, a->op == PP_OP_B ? '-' : ' ', (size_t)room);
    memcpy(at, name, (size_t)n);
}

/* line: makespan cells of `width` characters, the last of each a blank */
static void print_rank(const struct pp_plan *plan, int rank, const int64_t *start, char *line,
                       size_t ticks, int width, FILE *f)
{
    memset(line, ' ', ticks * (size_t)width);
    for (size_t t = 0; t < ticks; t++)
        line[t * (size_t)width] = '.';
    for (int k = 0; k < plan->ranks[rank].n_actions; k++)
        draw(plan, &plan->ranks[rank].actions[k], line + (size_t)start[k] * (size_t)width, width);
    size_t n = ticks * (size_t)width;
    while (n > 0 && line[n - 1] == ' ')
        n--;
    fprintf(f, "rank %-*d  %.*s\n", digits(plan->geometry.stages - 1), rank, (int)n, line);
}

int pp_plan_print_grid(const struct pp_plan *plan, FILE *f)
{
    static const struct pp_ticks unit = {.f = 1, .i = 1, .w = 1, .fused_send = true};
    int p = plan->geometry.stages;
    int width = digits(plan->geometry.microbatches - 1) + 2;
    if (plan->geometry.chunks > 1)
        width += digits(plan->n_virtual - 1);

    int rc = PP_ERESOURCE;
    int64_t makespan;
    double bubble;
    char *line = NULL;
    int64_t *times = NULL;
    size_t n = 0;
    int64_t **start = pp_alloc((size_t)p, sizeof(*start));
    for (int r = 0; r < p; r++)
        n += (size_t)plan->ranks[r].n_actions;
    times = pp_alloc(n, sizeof(*times));
    if (!start || !times)
        goto out;
    n = 0;
    for (int r = 0; r < p; r++) {
        start[r] = times + n;
        n += (size_t)plan->ranks[r].n_actions;
    }
    rc = pp_plan_timeline(plan, &unit, start, NULL, &makespan, NULL);
    if (rc < 0)
        goto out;
    rc = pp_plan_bubble(plan, &bubble);
    if (rc < 0)
        goto out;
    if (makespan > INT32_MAX / width) {
        rc = pp_fail(PP_ECONFIG, "a grid of %" PRId64 " ticks is too wide to draw", makespan);
        goto out;
    }
    line = pp_alloc((size_t)makespan, (size_t)width);
    if (!line) {
        rc = PP_ERESOURCE;
        goto out;
    }
    print_title(plan, makespan, bubble, f);
    for (int r = 0; r < p; r++)
        print_rank(plan, r, start[r], line, (size_t)makespan, width, f);
    rc = pp_csv_written(f);
out:
    pp_free(line);
    pp_free(times);
    pp_free(start);
    return rc;
}
