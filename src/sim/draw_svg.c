/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture: a row for each rank, a rectangle for each action, a scale of time below, a legend of
 * the ops and chunks that occur. Colours are classes, so that one style sheet at the top serves
 * light and dark pages; text is drawn only where it fits.
 */
#include "draw_impl.h"

#include <math.h>
#include <string.h>

#define MARGIN 16
#define TOP 62    /* title, figures */
#define ROW 24    /* a rank */
#define GAP 4     /* between two ranks */
#define BOTTOM 82 /* scale of time, two lines of legend */
#define LEFT 64   /* "rank 1023" */
#define RIGHT 74  /* "peak 1234" */
#define LETTER 7  /* width of a letter of a label, generously */
#define CELLS_MIN 560
#define CELLS_MAX 6000

struct svg {
    const struct pp_drawing *d;
    FILE *f;
    double scale; /* pixels per unit of time */
    double cells; /* width of the part with the cells */
    double width, height;
};

const char *const pp_draw_fills[PP_OPS][PP_DRAW_SHADES] = {
    {"#9cc4f2", "#6fa3e3", "#a9a6f0", "#8580dd"}, {"#9fe0d8", "#66c2b8", "#8fd3e8", "#5fb2cc"},
    {"#f7d08a", "#eeb25a", "#f2b8a0", "#e3957a"}, {"#a8dba0", "#79c26e", "#c9dc8c", "#a9c25e"},
    {"#cfdcec", "#b5c9e2", "#d0cfef", "#bbb9e6"}, {"#f3cfe0", "#e9b3ce", "#e6cdea", "#d6b0dd"},
    {"#eba3c4", "#df7fab", "#d3a4dc", "#c084cc"},
};

static const char *const meaning[PP_OPS] = {"forward",  "input gradient", "weight gradient",
                                            "backward", "recompute",      "give gradient",
                                            "tied sum"};

/* What a label in a cell, and the numbers beside and below the rows, mean. */
static void label_text(const struct pp_drawing *d, char *out, size_t bytes)
{
    bool chunks = d->plan->geometry.chunks > 1;
    snprintf(
        out, bytes,
        "%s: micro-batch 3%s; peak: %s of activations that a rank holds at most; below: time in "
        "the unit of the costs",
        chunks ? "5F3" : "F3", chunks ? " of chunk 5, in model order" : "",
        chunks ? "chunks" : "micro-batches");
}

static void measure_picture(struct svg *s)
{
    double makespan = s->d->result->makespan;
    double unit = draw_unit(s->d);
    double wanted = (draw_label_length(s->d->plan) * LETTER + 6) * makespan;
    s->cells = unit > 0 ? wanted / unit : CELLS_MIN;
    s->cells = fmin(fmax(s->cells, CELLS_MIN), CELLS_MAX);
    char line[2][DRAW_COSTS_MAX];
    draw_figures(s->d, line[0], sizeof(line[0]));
    draw_costs(s->d, line[1], sizeof(line[1]));
    double text = 6.5 * (double)(strlen(line[0]) + strlen(line[1]) + 3);
    s->cells = fmax(s->cells, text - LEFT - RIGHT);
    label_text(s->d, line[0], sizeof(line[0]));
    s->cells = fmax(s->cells, 6.5 * (double)strlen(line[0]) - RIGHT);
    s->scale = makespan > 0 ? s->cells / makespan : 1;
    s->width = MARGIN + LEFT + s->cells + RIGHT + MARGIN;
    s->height = TOP + s->d->plan->geometry.stages * (ROW + GAP) + BOTTOM;
}

static void find_ops(const struct pp_plan *plan, bool there[PP_OPS])
{
    memset(there, 0, PP_OPS * sizeof(*there));
    for (int r = 0; r < plan->geometry.stages; r++)
        for (int k = 0; k < plan->ranks[r].n_actions; k++)
            there[plan->ranks[r].actions[k].op] = true;
}

static void print_style(const struct svg *s)
{
    fputs("<style>\n"
          ".page{fill:#ffffff}.ink{fill:#1f2328}.dim{fill:#59636e}.idle{fill:#eef1f4}\n"
          ".tick{stroke:#d1d9e0}text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,"
          "sans-serif}\n"
          ".title{font-size:15px;font-weight:600}"
          ".c{font-size:11px;text-anchor:middle;fill:#14181d}.half{font-size:9px}\n",
          s->f);
    bool there[PP_OPS];
    find_ops(s->d->plan, there);
    for (int op = 0; op < PP_OPS; op++)
        for (int shade = 0; (there[op] || op <= PP_OP_B) && shade < PP_DRAW_SHADES; shade++)
            fprintf(s->f, ".%c%d{fill:%s}", PP_OP_LETTERS[op], shade, pp_draw_fills[op][shade]);
    fputs("\n@media (prefers-color-scheme:dark){.page{fill:#0d1117}.ink{fill:#f0f6fc}"
          ".dim{fill:#9198a1}.idle{fill:#1b2129}.tick{stroke:#3d444d}}\n</style>\n",
          s->f);
}

static void print_title(const struct svg *s)
{
    char shape[128];
    char figures[128];
    char costs[DRAW_COSTS_MAX];
    draw_shape(s->d->plan, shape, sizeof(shape));
    draw_figures(s->d, figures, sizeof(figures));
    draw_costs(s->d, costs, sizeof(costs));
    fprintf(s->f,
            "<title>%s: %s; %s</title>\n"
            "<rect class=\"page\" width=\"%.0f\" height=\"%.0f\"/>\n"
            "<text class=\"ink title\" x=\"%d\" y=\"26\">%s: %s</text>\n"
            "<text class=\"dim\" x=\"%d\" y=\"46\">%s (%s)</text>\n",
            draw_name(s->d->plan), shape, figures, s->width, s->height, MARGIN,
            draw_name(s->d->plan), shape, MARGIN, figures, costs);
}

static double row_top(int rank)
{
    return TOP + rank * (ROW + GAP);
}

/* A pair that runs as one piece of work shares its time: F above, B below. */
static void cell_box(const struct svg *s, int rank, int k, double *y, double *height)
{
    const struct pp_action *list = s->d->plan->ranks[rank].actions;
    const double *start = s->d->result->start[rank];
    int n = s->d->plan->ranks[rank].n_actions;
    bool upper = list[k].overlap && k + 1 < n && start[k + 1] == start[k];
    bool lower = k > 0 && list[k - 1].overlap && start[k - 1] == start[k];
    *height = upper || lower ? ROW / 2.0 : ROW;
    *y = row_top(rank) + (lower ? ROW / 2.0 : 0);
}

static void print_cell(const struct svg *s, int rank, int k)
{
    const struct pp_action *a = &s->d->plan->ranks[rank].actions[k];
    double x = MARGIN + LEFT + s->d->result->start[rank][k] * s->scale;
    double width = (s->d->result->end[rank][k] - s->d->result->start[rank][k]) * s->scale;
    double y;
    double height;
    cell_box(s, rank, k, &y, &height);
    if (width <= 0)
        return;
    /* a hair of the page between neighbours, while they are wide enough to spare it */
    double drawn = width > 4 ? width - 1 : width;
    fprintf(s->f, "<rect class=\"%c%d\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"",
            PP_OP_LETTERS[a->op], draw_shade(s->d->plan, a->stage), x, y, drawn, height);
    fputs(drawn > 6 ? " rx=\"2\"/>" : "/>", s->f);

    char label[DRAW_LABEL_MAX];
    bool half = height < ROW;
    if (draw_label(s->d->plan, a, (int)(drawn / LETTER), label) > 1) {
        fprintf(s->f, "<text class=\"%s\" x=\"%.2f\" y=\"%.1f\">%s</text>", half ? "c half" : "c",
                x + drawn / 2, y + (half ? 9.5 : 16), label);
    }
    fputc('\n', s->f);
}

static void print_rank(const struct svg *s, int r)
{
    double y = row_top(r);
    fprintf(s->f,
            "<text class=\"ink\" x=\"%d\" y=\"%.1f\">rank %d</text>"
            "<rect class=\"idle\" x=\"%d\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" rx=\"2\"/>\n",
            MARGIN, y + 16, r, MARGIN + LEFT, y, s->cells, ROW);
    for (int k = 0; k < s->d->plan->ranks[r].n_actions; k++)
        print_cell(s, r, k);
    fprintf(s->f, "<text class=\"dim\" x=\"%.1f\" y=\"%.1f\">peak %d</text>\n",
            MARGIN + LEFT + s->cells + 10, y + 16, s->d->result->peak[r]);
}

/* The largest of 1, 2, 5 times a power of ten that gives at least about eight steps. */
static double nice_step(double length)
{
    double power = pow(10, floor(log10(length / 8)));
    double part = length / 8 / power;
    return power * (part >= 5 ? 5 : part >= 2 ? 2 : 1);
}

static void print_scale(const struct svg *s)
{
    double makespan = s->d->result->makespan;
    double y = row_top(s->d->plan->geometry.stages) + 2;
    if (makespan <= 0)
        return;
    double step = nice_step(makespan);
    for (int i = 0; i * step <= makespan * (1 + 1e-9); i++) {
        double x = MARGIN + LEFT + i * step * s->scale;
        fprintf(s->f,
                "<path class=\"tick\" d=\"M%.2f %.1fv5\"/>"
                "<text class=\"dim\" x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">%g</text>\n",
                x, y, x, y + 18, i * step);
    }
}

static void print_legend(const struct svg *s)
{
    bool there[PP_OPS];
    int chunks = s->d->plan->geometry.chunks;
    int shades = chunks < PP_DRAW_SHADES ? chunks : PP_DRAW_SHADES;
    find_ops(s->d->plan, there);
    double x = MARGIN + LEFT;
    double y = s->height - 42;
    char labels[256];
    label_text(s->d, labels, sizeof(labels));
    fprintf(s->f, "<text class=\"dim\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", x, y + 31, labels);
    for (int op = 0; op < PP_OPS; op++) {
        for (int shade = 0; there[op] && shade < shades; shade++) {
            fprintf(s->f,
                    "<rect class=\"%c%d\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" "
                    "rx=\"2\"/>",
                    PP_OP_LETTERS[op], shade, x, y);
            x += 17;
        }
        if (there[op]) {
            fprintf(s->f, "<text class=\"ink\" x=\"%.1f\" y=\"%.1f\">%c %s</text>\n", x + 2, y + 11,
                    PP_OP_LETTERS[op], meaning[op]);
            x += 20 + 6.5 * (double)strlen(meaning[op]) + 14;
        }
    }
    fprintf(s->f, "<rect class=\"idle\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\"/>", x, y);
    fprintf(s->f, "<text class=\"ink\" x=\"%.1f\" y=\"%.1f\">idle%s</text>\n", x + 19, y + 11,
            chunks > 1 ? "; a colour for each chunk of a rank" : "");
}

int pp_draw_svg(const struct pp_drawing *d, FILE *f)
{
    struct svg s = {.d = d, .f = f};
    measure_picture(&s);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n",
            s.width, s.height, s.width, s.height);
    print_style(&s);
    print_title(&s);
    for (int r = 0; r < d->plan->geometry.stages && !ferror(f); r++)
        print_rank(&s, r);
    print_scale(&s);
    print_legend(&s);
    fputs("</svg>\n", f);
    return draw_written(f);
}
