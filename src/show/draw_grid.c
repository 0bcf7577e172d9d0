/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whiteboard: one line of characters for each rank. How many characters a unit of time gets is
 * decided once: as many as the labels of the shortest cells need, or as the line has room for; then
 * every cell is drawn from its rounded start to its rounded end.
 */
#include "draw_impl.h"
#include "draw.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

#define COLUMNS_MAX (1 << 26)
#define MIB (1024.0 * 1024.0)

#define INK_NONE 0 /* else 1 + op * PP_DRAW_SHADES + shade, */
#define INK_ODD 64 /* plus this for odd micro-batches: cells that touch stay apart */

/* Of the 256 terminal colours: F blue, I teal, W amber, B green, R grey, G and T pink, a darker one
 * for each chunk. */
static const uint8_t paper[PP_OPS][PP_DRAW_SHADES] = {
    {117, 75, 69, 105},   {123, 80, 73, 66},    {223, 215, 179, 137}, {157, 114, 71, 65},
    {153, 147, 146, 104}, {225, 219, 183, 182}, {218, 212, 176, 175}};

struct grid {
    const struct pp_drawing *d;
    double scale; /* characters per unit of time */
    int width;    /* of the part with the cells */
    int tick;     /* characters of the shortest cell */
    int head;     /* characters before the cells */
    int rank_w, peak_w;
    int room[PP_OPS]; /* for the labels of each op: the same form of label in the whole picture */
    char *text;
    uint8_t *ink;
};

/* Computes the widths of the columns before the cells: rank, peak and, if it is known, memory. */
static void measure_head(struct grid *g)
{
    const struct pp_drawing *d = g->d;
    int p = d->plan->geometry.stages;
    int most = 0;
    for (int r = 0; r < p; r++)
        most = PP_MAX(most, d->result->peak[r]);
    g->rank_w = PP_MAX(4, snprintf(NULL, 0, "%d", p - 1));
    g->peak_w = PP_MAX(4, snprintf(NULL, 0, "%d", most));
    g->head = g->rank_w + 2 + g->peak_w + 2 + (d->bytes ? 11 : 0);
}

static void measure_labels(struct grid *g)
{
    const struct pp_plan *plan = g->d->plan;
    double least[PP_OPS];
    draw_least(g->d, least);
    for (int op = 0; op < PP_OPS; op++) {
        g->room[op] = (int)floor(least[op] * g->scale * (1 + 1e-9));
        /* without colours 0F00F1 can be read in two ways */
        if (!g->d->color && plan->geometry.chunks > 1 && g->room[op] == draw_label_length(plan))
            g->room[op]--;
        g->room[op] = PP_MAX(g->room[op], 1); /* a cell that has a column shows its letter */
    }
}

static int measure_cells(struct grid *g)
{
    double makespan = g->d->result->makespan;
    double unit = draw_unit(g->d);
    if (makespan <= 0 || unit <= 0)
        return pp_fail(PP_ECONFIG, "nothing takes time: there is nothing to draw");
    int tick = draw_label_length(g->d->plan) + 1;
    g->scale = tick / unit;
    if (g->d->columns > 0) {
        /* one column is kept free: terminals wrap a line that fills them */
        int room = PP_MAX(g->d->columns - g->head - 1, 1);
        if (makespan * g->scale > room) {
            g->scale = room / makespan;
            tick = (int)floor(g->scale * unit);
            /* cells of one length look better with one width */
            g->scale = tick > 0 ? tick / unit : g->scale;
        }
    }
    g->tick = PP_MAX(tick, 1);
    if (makespan * g->scale > COLUMNS_MAX) {
        return pp_fail(PP_ECONFIG,
                       "a grid of %.0f columns is too wide to draw; try --format svg, or json",
                       makespan * g->scale);
    }
    g->width = (int)lround(makespan * g->scale);
    measure_labels(g);
    return 0;
}

/* Draws an action's cell from column `from` to the one before column `to`. If the label does not
 * need the last column, it stays blank, so that neighbours are apart. */
static void draw_cell(struct grid *g, const struct pp_action *a, int from, int to)
{
    char label[PP_CELL_LABEL];
    int room = to - from;
    int n = draw_label(g->d->plan, a, room < g->room[a->op] ? room : g->room[a->op], label);
    int filled = n < room && g->tick > 1 ? room - 1 : room;
    memset(g->text + from, ' ', (size_t)room);
    memset(g->text + from, g->d->color ? ' ' : '-', (size_t)filled);
    memcpy(g->text + from, label, (size_t)n);
    memset(g->ink + from, INK_NONE, (size_t)room);
    int ink = 1 + a->op * PP_DRAW_SHADES + g->d->plan->chunk_of[a->stage] % PP_DRAW_SHADES;
    memset(g->ink + from, a->mb % 2 ? ink + INK_ODD : ink, (size_t)filled);
}

static void draw_rank(struct grid *g, int r)
{
    memset(g->ink, INK_NONE, (size_t)g->width);
    memset(g->text, ' ', (size_t)g->width);
    for (int i = 0; i < g->width; i += g->tick)
        g->text[i] = '.';
    for (int k = 0; k < g->d->plan->ranks[r].n_actions; k++) {
        int from = (int)lround(g->d->result->start[r][k] * g->scale);
        int to = (int)lround(g->d->result->end[r][k] * g->scale);
        if (to > from)
            draw_cell(g, &g->d->plan->ranks[r].actions[k], from, to);
    }
}

static void print_plain(const struct grid *g, FILE *f)
{
    int n = g->width;
    while (n > 0 && g->text[n - 1] == ' ')
        n--;
    fprintf(f, "%.*s\n", n, g->text);
}

static void print_color(const struct grid *g, FILE *f)
{
    for (int i = 0; i < g->width;) {
        int n = 1;
        while (i + n < g->width && g->ink[i + n] == g->ink[i])
            n++;
        if (g->ink[i] == INK_NONE) {
            fprintf(f, "\033[2m%.*s\033[0m", n, g->text + i);
        } else {
            int color = g->ink[i] % INK_ODD - 1;
            fprintf(f, "\033[%s38;5;16;48;5;%dm%.*s\033[0m", g->ink[i] > INK_ODD ? "1;" : "",
                    paper[color / PP_DRAW_SHADES][color % PP_DRAW_SHADES], n, g->text + i);
        }
        i += n;
    }
    fputc('\n', f);
}

static void print_title(const struct grid *g, FILE *f)
{
    char text[DRAW_COSTS_MAX];
    draw_shape(g->d->plan, text, sizeof(text));
    fprintf(f, "%s: %s\n", draw_name(g->d->plan), text);
    draw_figures(g->d, text, sizeof(text));
    fprintf(f, "%s\n", text);
    draw_costs(g->d, text, sizeof(text));
    fprintf(f, "%s; peak in %s a rank holds\n\n", text,
            g->d->plan->geometry.chunks > 1 ? "chunks" : "micro-batches");
    fprintf(f, "%-*s  %*s%s\n", g->rank_w, "rank", g->peak_w, "peak",
            g->d->bytes ? "        MiB" : "");
}

static void print_ranks(struct grid *g, FILE *f)
{
    const struct pp_drawing *d = g->d;
    for (int r = 0; r < d->plan->geometry.stages && !ferror(f); r++) {
        draw_rank(g, r);
        fprintf(f, "%*d  %*d", g->rank_w, r, g->peak_w, d->result->peak[r]);
        if (d->bytes)
            fprintf(f, " %10.3f", (double)d->bytes[r] / MIB);
        fputs("  ", f);
        if (d->color)
            print_color(g, f);
        else
            print_plain(g, f);
    }
}

int pp_draw_grid(const struct pp_drawing *d, FILE *f)
{
    struct grid g = {.d = d};
    measure_head(&g);
    PP_TRY(measure_cells(&g));
    PP_TAKE(char, text, g.width);
    PP_TAKE(uint8_t, ink, g.width);
    g.text = text;
    g.ink = ink;
    print_title(&g, f);
    print_ranks(&g, f);
    return draw_written(f);
}

int pp_draw_textbook(const struct pp_plan *plan, FILE *f)
{
    PP_OWN(pp_sim_result_fini) struct pp_sim_result res = {0};
    struct pp_sim_costs costs;
    struct pp_drawing d = {.plan = plan, .result = &res, .costs = &costs};
    PP_TAKE(double, arrays, 3 * plan->n_virtual);
    pp_sim_textbook(plan, arrays, &costs);
    PP_TRY(pp_sim_run(plan, &costs, true, &res));
    return pp_draw_grid(&d, f);
}
