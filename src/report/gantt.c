/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step as rows of ranks over milliseconds: what computes fills the row, waits are a thin bar in
 * the middle, hand-overs a thin one below. The rank names stand beside the picture, which scrolls
 * where a page is narrow. Small steps get a rectangle with a tooltip for every action, bigger ones
 * a path for each row and colour; of those that no page can hold, what took most of each few
 * pixels.
 */
#include <math.h>
#include <string.h>

#include "html.h"
#include "ppcli/draw.h"
#include "ppcli/err.h"
#include "report.h"

enum {
    NAMES = 58,   /* width of the names */
    WIDTH = 1100, /* of the rest */
    HEAD = 22,    /* title of a lane */
    FOOT = 24,    /* scale of time */
    GAP = 3,      /* between rows */
    ROWS_MAX = 64,
    DIFFERENT = 3,     /* times as long: needs a scale of its own */
    SINGLE_MAX = 1600, /* actions that are drawn one by one, with a tooltip each */
    BOXES_MAX = 8000,  /* that are drawn at all; beyond, rows are cut into columns */
    OPS = 4 * PP_DRAW_SHADES,
    CLASSES = OPS + REPORT_KINDS - 4,
};

static const char *const meaning[REPORT_KINDS] = {
    "forward",   "input gradient",          "weight gradient", "backward",
    "optimizer", "sum over replicas, norm", "waiting",         "handing over"};

struct picture {
    FILE *f;
    double scale; /* pixels per second */
    int row;      /* height */
    bool single;
    int columns; /* of a row of a big step; 0: every action is drawn */
};

struct place {          /* of a lane */
    double top, bottom; /* of its title, of its last row */
    double span;        /* seconds from edge to edge */
    int rows;
    bool last; /* of those on one scale of time */
};

/* Classes of the style sheet: a colour for every op and chunk, one for each other kind. */
static int color_of(const struct report_slice *s)
{
    int shade = s->chunk > 0 ? s->chunk % PP_DRAW_SHADES : 0;
    return s->kind <= REPORT_B ? (int)s->kind * PP_DRAW_SHADES + shade : OPS + (int)s->kind - 4;
}

static enum report_kind kind_of(int color)
{
    return (enum report_kind)(color < OPS ? color / PP_DRAW_SHADES : color - OPS + 4);
}

static const char *color_class(int color, char out[8])
{
    static const char *const names[] = {"update", "reduce", "wait", "send"};
    if (color >= OPS) {
        return names[color - OPS];
    }
    snprintf(out, 8, "%c%d", "FIWB"[color / PP_DRAW_SHADES], color % PP_DRAW_SHADES);
    return out;
}

/* The colour with the greatest time; -1 when there is none. Work shows from a quarter on, or else
 * it would vanish where ranks mostly wait. */
static int most_of(const float spent[CLASSES])
{
    int most = -1;
    float longest = 0;
    for (int c = 0; c < CLASSES; c++) {
        enum report_kind kind = kind_of(c);
        float weighed = kind == REPORT_WAIT || kind == REPORT_SEND ? spent[c] / 3 : spent[c];
        if (weighed > longest) {
            most = c;
            longest = weighed;
        }
    }
    return most;
}

/* Where in its row a kind is drawn. */
static void band(const struct picture *p, enum report_kind kind, double *y, double *height)
{
    *y = 0;
    *height = p->row;
    if (kind == REPORT_WAIT) {
        *height = p->row > 12 ? 6 : 4;
        *y = (p->row - *height) / 2;
    } else if (kind == REPORT_SEND) {
        *height = 3;
        *y = p->row - 3;
    }
}

/* A hair of the row between neighbours, while they are wide enough to spare it. */
static double narrowed(double width)
{
    return width > 3 ? width - 0.6 : fmax(width, 0.3);
}

static void tooltip(const struct report_slice *s, FILE *f)
{
    fputs("<title>", f);
    html_text(f, s->name);
    fprintf(f, ": %s", meaning[s->kind]);
    if (s->mb >= 0 && s->kind <= REPORT_B) {
        fprintf(f, ", micro-batch %d", s->mb);
    }
    if (s->stage >= 0) {
        fprintf(f, ", stage %d", s->stage);
    }
    fprintf(f, "; %.3f ms from %.3f ms</title>", s->length * 1e3, s->start * 1e3);
}

static void draw_one(const struct picture *p, const struct report_slice *s, double top)
{
    char name[8], label[16] = "";
    double y, height, x = s->start * p->scale, width = s->length * p->scale;
    band(p, s->kind, &y, &height);
    double drawn = narrowed(width);
    fprintf(p->f, "<rect class=\"%s\" x=\"%.1f\" y=\"%g\" width=\"%.1f\" height=\"%g\">",
            color_class(color_of(s), name), x, top + y, drawn, height);
    tooltip(s, p->f);
    fputs("</rect>", p->f);
    if (s->mb >= 0 && s->kind <= REPORT_B && p->row >= 14) {
        int n = snprintf(label, sizeof(label), "%c%d", "FIWB"[s->kind], s -> mb);
        int skip = n * 6.6 + 2 <= drawn ? 0 : 1; /* "F3", else "3" */
        if ((n - skip) * 6.6 + 1 <= drawn) {
            fprintf(p->f, "<text class=\"l\" x=\"%.1f\" y=\"%g\">%s</text>", x + drawn / 2,
                    top + p->row / 2.0 + 4, label + skip);
        }
    }
    fputc('\n', p->f);
}

/* All slices of one class of one rank as one path. */
static void draw_color(const struct picture *p, const struct report_half *h, int rank, int color,
                       double top)
{
    char name[8];
    double y, height;
    bool open = false;
    band(p, kind_of(color), &y, &height);
    for (int i = 0; i < h->n; i++) {
        const struct report_slice *s = &h->slices[i];
        double width = narrowed(s->length * p->scale);
        if (s->rank != rank || color_of(s) != color) {
            continue;
        }
        if (!open) {
            fprintf(p->f, "<path class=\"%s\" d=\"", color_class(color, name));
            open = true;
        }
        fprintf(p->f, "M%.1f %gh%.1fv%gH%.1fz", s->start * p->scale, top + y, width, height,
                s->start * p->scale);
    }
    fputs(open ? "\"/>\n" : "", p->f);
}

/* The row in columns of a few pixels, each in the colour of what took most of its time. */
static void draw_columns(const struct picture *p, const struct report_half *h, int rank, double top)
{
    float spent[WIDTH][CLASSES] = {{0}};
    int shown[WIDTH];
    double wide = fmax(1, ceil((double)WIDTH / p->columns)); /* pixels */
    for (int i = 0; i < h->n; i++) {
        const struct report_slice *s = &h->slices[i];
        double from = s->start * p->scale / wide, to = from + s->length * p->scale / wide;
        for (int c = (int)from; s->rank == rank && c < WIDTH && c <= to; c++) {
            spent[c][color_of(s)] += (float)(fmin(to, c + 1) - fmax(from, c));
        }
    }
    for (int c = 0; c < WIDTH; c++) {
        shown[c] = most_of(spent[c]);
    }
    for (int color = 0; color < CLASSES; color++) {
        char name[8];
        double y, height;
        bool open = false;
        band(p, kind_of(color), &y, &height);
        for (int c = 0, next; c < WIDTH; c = next) {
            for (next = c + 1; next < WIDTH && shown[next] == shown[c]; next++) {
            }
            if (shown[c] != color) {
                continue;
            }
            if (!open) {
                fprintf(p->f, "<path class=\"%s\" d=\"", color_class(color, name));
                open = true;
            }
            fprintf(p->f, "M%g %gh%gv%gH%gz", c * wide, top + y, (next - c) * wide, height,
                    c * wide);
        }
        fputs(open ? "\"/>\n" : "", p->f);
    }
}

static void draw_rank(const struct picture *p, const struct report_half *h, int rank, double top)
{
    /* what waits lies below what computes, should they overlap */
    static const enum report_kind order[REPORT_KINDS] = {REPORT_WAIT,   REPORT_F,   REPORT_I,
                                                         REPORT_W,      REPORT_B,   REPORT_UPDATE,
                                                         REPORT_REDUCE, REPORT_SEND};
    if (p->columns > 0) {
        draw_columns(p, h, rank, top);
        return;
    }
    for (int k = 0; k < REPORT_KINDS; k++) {
        if (p->single) {
            for (int i = 0; i < h->n; i++) {
                if (h->slices[i].rank == rank && h->slices[i].kind == order[k]) {
                    draw_one(p, &h->slices[i], top);
                }
            }
            continue;
        }
        for (int color = 0; color < CLASSES; color++) {
            if (kind_of(color) == order[k]) {
                draw_color(p, h, rank, color, top);
            }
        }
    }
}

static void draw_names(const struct picture *p, const struct place *places, int n, double height)
{
    fprintf(p->f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\" aria-hidden=\"true\">\n",
            NAMES, height, NAMES, height);
    for (int k = 0; k < n; k++) {
        for (int r = 0; r < places[k].rows; r++) {
            fprintf(p->f, "<text class=\"ink\" x=\"0\" y=\"%g\">rank %d</text>",
                    places[k].top + HEAD + r * (p->row + GAP) + p->row / 2.0 + 4, r);
        }
        if (places[k].last) {
            fprintf(p->f, "<text x=\"%d\" y=\"%g\" class=\"end\">ms</text>\n", NAMES - 8,
                    places[k].bottom + 14);
        }
    }
    fputs("</svg>\n", p->f);
}

static void draw_scale(const struct picture *p, double span, double top, double bottom)
{
    double step = report_nice_step(span * 1e3, 10);
    for (int i = 0; i < 24 && i * step <= span * 1e3 * (1 + 1e-9); i++) {
        char text[HTML_NUMBER_MAX];
        double x = i * step * 1e-3 * p->scale;
        fprintf(p->f,
                "<path class=\"grid\" d=\"M%.1f %gV%g\"/><text class=\"%s\" x=\"%.1f\" "
                "y=\"%g\">%s</text>\n",
                x, top, bottom + 2, i == 0 ? "" : "mid", x, bottom + 14,
                html_short(i * step, span * 1e3, text));
    }
}

static void draw_lane(const struct picture *p, const struct report_lane *lane,
                      const struct place *at)
{
    const struct report_half *h = lane->half;
    fprintf(p->f, "<text class=\"ink\" x=\"0\" y=\"%g\">", at->top + 14);
    html_text(p->f, lane->title);
    fputs("</text>\n", p->f);
    for (int r = 0; r < at->rows; r++) {
        double y = at->top + HEAD + r * (p->row + GAP);
        fprintf(p->f, "<rect class=\"row\" x=\"0\" y=\"%g\" width=\"%.1f\" height=\"%d\"/>\n", y,
                h->span * p->scale, p->row);
        draw_rank(p, h, r, y);
    }
    fprintf(p->f, "<path class=\"over\" d=\"M%.1f %gV%g\"/>\n", h->span * p->scale + 1,
            at->top + HEAD - 4, at->bottom);
}

/* Neighbours share a scale, which shows which step is longer, unless one of them could hardly be
 * seen then. Returns the height of all. */
static double arrange(struct picture *p, const struct report_lane *lanes, int n,
                      struct place *places)
{
    double top = 0;
    int slices = 0, rows = 0, tallest = 0;
    for (int k = 0; k < n; k++) {
        places[k].rows = lanes[k].half->ranks < ROWS_MAX ? lanes[k].half->ranks : ROWS_MAX;
        slices += lanes[k].half->n;
        rows += places[k].rows;
        tallest = places[k].rows > tallest ? places[k].rows : tallest;
    }
    p->row = tallest <= 12 ? 24 : tallest <= 32 ? 16 : 10;
    p->single = slices <= SINGLE_MAX;
    p->columns = slices > BOXES_MAX && rows > 0 ? BOXES_MAX / 2 / rows + 20 : 0;
    for (int first = 0, k = 0; k < n; k++) {
        double least = INFINITY, most = 0;
        for (int i = first; i <= k + 1 && i < n; i++) {
            least = fmin(least, lanes[i].half->span);
            most = i <= k ? fmax(most, lanes[i].half->span) : most;
        }
        places[k].top = top;
        places[k].bottom = top + HEAD + places[k].rows * (p->row + GAP);
        places[k].last = k == n - 1 || fmax(most, lanes[k + 1].half->span) > DIFFERENT * least;
        top = places[k].bottom + (places[k].last ? FOOT : 0);
        for (int i = first; i <= k; i++) {
            places[i].span = most;
        }
        first = places[k].last ? k + 1 : first;
    }
    return top;
}

void report_gantt(const struct report_lane *lanes, int n, FILE *f)
{
    struct picture p = {.f = f};
    struct place places[REPORT_LANES_MAX] = {{0}};
    double height = arrange(&p, lanes, n, places), first = 0;
    int most = 0, scales = 0;
    fputs("<div class=\"gantt\">\n", f);
    draw_names(&p, places, n, height);
    fprintf(f,
            "<div class=\"scroll\"><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%.0f\" viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"timeline\">\n",
            WIDTH, height, WIDTH, height);
    for (int k = 0; k < n; k++) {
        p.scale = (WIDTH - 14) / places[k].span;
        if (places[k].last) {
            draw_scale(&p, places[k].span, first + HEAD - 4, places[k].bottom);
            first = places[k].bottom + FOOT;
            scales++;
        }
    }
    for (int k = 0; k < n; k++) {
        p.scale = (WIDTH - 14) / places[k].span;
        draw_lane(&p, &lanes[k], &places[k]);
        most = lanes[k].half->ranks > most ? lanes[k].half->ranks : most;
    }
    fputs("</svg></div>\n</div>\n", f);
    if (scales > 1) {
        fputs("<p class=\"dim\">The steps differ so much in length that they have scales of their "
              "own.</p>\n",
              f);
    }
    if (most > ROWS_MAX) {
        fprintf(f, "<p class=\"dim\">The first %d of %d ranks.</p>\n", ROWS_MAX, most);
    }
}

void report_gantt_legend(const struct report_lane *lanes, int n, FILE *f)
{
    int shades[REPORT_KINDS] = {0};
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < lanes[k].half->n; i++) {
            const struct report_slice *s = &lanes[k].half->slices[i];
            int shade = s->kind > REPORT_B || s->chunk < 0 ? 0 : s->chunk % PP_DRAW_SHADES;
            shades[s->kind] = shade + 1 > shades[s->kind] ? shade + 1 : shades[s->kind];
        }
    }
    bool chunks = false;
    fputs("<div class=\"legend\">", f);
    for (int kind = 0; kind < REPORT_KINDS; kind++) {
        if (shades[kind] == 0) {
            continue;
        }
        fprintf(f, "<span><svg width=\"%d\" height=\"12\" aria-hidden=\"true\">",
                shades[kind] * 14);
        for (int shade = 0; shade < shades[kind]; shade++) {
            char name[8];
            struct report_slice like = {.kind = (enum report_kind)kind, .chunk = shade};
            fprintf(f, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"12\" height=\"%d\"/>",
                    color_class(color_of(&like), name), shade * 14,
                    kind == REPORT_WAIT   ? 3
                    : kind == REPORT_SEND ? 9
                                          : 0,
                    kind == REPORT_WAIT   ? 6
                    : kind == REPORT_SEND ? 3
                                          : 12);
        }
        chunks = chunks || shades[kind] > 1;
        fprintf(f, "</svg>%s</span>", meaning[kind]);
    }
    fprintf(f,
            "<span><svg width=\"14\" height=\"12\" aria-hidden=\"true\"><rect class=\"row\" "
            "width=\"12\" height=\"12\"/></svg>idle</span>%s</div>\n",
            chunks ? "<span class=\"dim\">one shade for each chunk of a rank</span>" : "");
}
