/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes and curves on a white sheet. Colours of cells are classes: each kind has a band of
 * lightness of its own, so that grey prints tell kinds apart (F lightest, then I, B, W; R, G and T
 * are hatched), and the chunks of a rank differ in hue. A curve has its own colour, dashes and
 * marker.
 */
#include "draw_impl.h"
#include "draw.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ppcli/base/base.h"

#define MARGIN 16
#define LETTER 5.9 /* mean width of a letter of 12 pixels */
#define ROW 24     /* a lane, and the way to the next one: */
#define NEXT 28
#define DIGIT 7 /* width of a letter of a label, generously */
#define CELLS_MIN 560
#define CELLS_MAX 6000
#define WIDTH_MIN 240
#define WIDTH_MAX 20000
#define TALL 230  /* of curves, */
#define WIDE 560  /* with their axis */
#define LEFT 82   /* where they begin */
#define MARKED 40 /* a curve of more points has no markers */

static const char *const fills[][PP_DRAW_SHADES] = {{"#d2e8ff", "#e8dcfb", "#cae4fe", "#e4d5fe"},
                                                    {"#8ad9d2", "#7fd5f6", "#68e0d7", "#68d7ff"},
                                                    {"#b5742c", "#c36355", "#b96f10", "#cd5849"},
                                                    {"#79ba81", "#a1ac58", "#68bd74", "#9bab41"}};

static const char *const meaning[PP_OPS] = {"forward",  "input gradient", "weight gradient",
                                            "backward", "recompute",      "give gradient",
                                            "tied sum"};

static const char *const colours[] = {"#0b3d66", "#c2570c", "#3a8f47",
                                      "#8a63c9", "#d39b00", "#27a3b5"};
static const char *const dashes[] = {"none", "7 3", "2 3", "9 3 2 3"};
static const char *const markers[] = {"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "m-3.5-3.5h7v7h-7z",
                                      "m0-5l4.5 8h-9z", "m0-5l4.5 5l-4.5 5l-4.5-5z"};

int pp_look_check(const struct pp_look *look)
{
    return look->width == 0 || (look->width >= WIDTH_MIN && look->width <= WIDTH_MAX)
               ? 0
               : pp_fail(PP_EUSAGE, "--width wants %d to %d pixels, not %d", WIDTH_MIN, WIDTH_MAX,
                         look->width);
}

/* ---- the sheet */

struct sheet {
    FILE *f; /* NULL: nothing is written, only measured */
    const struct pp_look *look;
    double width, height;
};

static void put_text(const struct sheet *s, const char *class, double x, double y, const char *text,
                     size_t bytes)
{
    fprintf(s->f, "<text class=\"%s\" x=\"%.2f\" y=\"%.1f\">", class, x, y);
    pp_text_xml(text, bytes, s->f);
    fputs("</text>\n", s->f);
}

/* Draws text from y on, in as many lines as it needs. Returns the y below it. */
static double put_words(const struct sheet *s, const char *class, double letter, double y,
                        const char *text)
{
    size_t room = (size_t)((s->width - 2 * MARGIN) / letter);
    while (*text) {
        size_t cut = strlen(text) > room ? room : strlen(text);
        while (text[cut] && cut > 0 && text[cut] != ' ')
            cut--;
        cut = cut > 0 ? cut : strcspn(text, " ");
        if (s->f)
            put_text(s, class, MARGIN, y, text, cut);
        text += cut + strspn(text + cut, " ");
        y += 2 * letter + 5;
    }
    return y;
}

static void put_style(FILE *f)
{
    fputs("<style>.page{fill:#fff}.ink{fill:#1f2328}.dim{fill:#59636e}.idle{fill:#f4f6f8}"
          ".O0{fill:#4a5259}.tick{stroke:#c9d1d9}"
          "text{font:12px Helvetica,Arial,'Liberation Sans',sans-serif;fill:#1f2328}"
          ".title{font-size:15px;font-weight:600}.mid{text-anchor:middle}.end{text-anchor:end}"
          ".c{font-size:11px;text-anchor:middle;fill:#000}.half{font-size:9px}",
          f);
    for (int i = 0; i < PP_OPS * PP_DRAW_SHADES; i++) {
        int op = i / PP_DRAW_SHADES, k = i % PP_DRAW_SHADES;
        fprintf(f, op <= PP_OP_B ? ".%c%d{fill:%s}" : ".%1$c%2$d{fill:url(#%1$c%2$d)}",
                PP_OP_LETTERS[op], k, fills[op % 4][k]);
    }
    fputs("</style>\n<defs>", f);
    for (int i = (PP_OP_B + 1) * PP_DRAW_SHADES; i < PP_OPS * PP_DRAW_SHADES; i++)
        fprintf(f,
                "<pattern id=\"%c%d\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
                "patternTransform=\"rotate(45)\"><path fill=\"%s\" d=\"M0 0h5v5h-5z\"/>"
                "<path d=\"M0 0V5\" stroke=\"#1f2328\" stroke-opacity=\".5\"/></pattern>",
                PP_OP_LETTERS[i / PP_DRAW_SHADES], i % PP_DRAW_SHADES,
                fills[i / PP_DRAW_SHADES % 4][i % PP_DRAW_SHADES]);
    fputs("</defs>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n", f);
}

/* Begins the picture with its title and its figures. Returns the y below them. */
static double put_head(const struct sheet *s, const char *title, const char *figures)
{
    char own[512];
    if (s->look->title)
        title = pp_text_shown(s->look->title, own, sizeof(own));
    if (s->f) {
        fprintf(s->f,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                "viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n<title>",
                s->width, s->height, s->width, s->height);
        pp_text_xml(title, SIZE_MAX, s->f);
        fputs(title[0] ? "; " : "", s->f);
        pp_text_xml(figures, SIZE_MAX, s->f);
        fputs("</title>\n", s->f);
        put_style(s->f);
    }
    return title[0]
               ? put_words(s, "dim", LETTER, put_words(s, "ink title", 8, 26, title), figures) - 2
               : MARGIN;
}

/* Returns the x where an entry of a legend begins, and moves *x past the entry. If it does not fit
 * into the line, *x and *y first move to the next line. */
static double place_entry(const struct sheet *s, double *x, double *y, double wide)
{
    if (*x > MARGIN && *x + wide > s->width - MARGIN) {
        *x = MARGIN;
        *y += 20;
    }
    *x += wide + 14;
    return *x - wide - 14;
}

/* Returns the least of 1, 2, 5 times a power of ten that cuts `length` into at most `most`
 * pieces. */
static double find_step(double length, double most)
{
    double power = pow(10, floor(log10(length / most))), part = length / most / power;
    return power * (part > 5.000001 ? 10 : part > 2.000001 ? 5 : part > 1.000001 ? 2 : 1);
}

/* ---- lanes */

struct band { /* lanes on a sheet */
    const struct pp_lanes *p;
    struct sheet s;
    double left, cells, scale; /* of the axis: where, pixels, pixels per unit of time */
    bool seen[PP_OPS + 1];     /* the last: what is not an op */
};

static int find_op(char letter)
{
    const char *at = letter ? strchr(PP_OP_LETTERS, letter) : NULL;
    return at ? (int)(at - PP_OP_LETTERS) : PP_OPS;
}

void draw_fit(char *label, int room)
{
    if ((int)strlen(label) > room) {
        size_t digits = strspn(label, "0123456789");
        memmove(label, label + digits, strlen(label + digits) + 1);
    }
    if ((int)strlen(label) > room)
        label[room >= 1 && label[0] ? 1 : 0] = '\0';
}

static void put_cell(const struct band *b, const struct pp_lane_cell *c, double y)
{
    double x = b->left + c->start * b->scale, width = (c->end - c->start) * b->scale;
    /* a hair of the page between neighbours, while they are wide enough to spare it */
    double drawn = width > 4 ? width - 1 : width, height = c->half ? ROW / 2.0 : ROW;
    int op = find_op(c->letter), room = (int)((drawn - 3) / DIGIT);
    char label[PP_CELL_LABEL];
    if (width <= 0)
        return;
    y += c->half == 2 ? ROW / 2.0 : 0;
    fprintf(b->s.f, "<rect class=\"%c%d\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"%s",
            op < PP_OPS ? c->letter : 'O', op < PP_OPS ? c->shade % PP_DRAW_SHADES : 0, x, y, drawn,
            height, drawn > 6 ? " rx=\"2\"/>" : "/>");
    const char *letter = strpbrk(c->label, PP_OP_LETTERS);
    bool is_tight = letter && (int)strlen(letter) == room + 1; /* "3" of "F3" */
    snprintf(label, sizeof(label), "%s", is_tight ? letter + 1 : c->label);
    draw_fit(label, room);
    if (label[0] && (is_tight || label[1]))
        put_text(&b->s, c->half ? "c half" : "c", x + drawn / 2, y + (c->half ? 9.5 : 16), label,
                 SIZE_MAX);
}

/* Draws all lanes. Returns the y below them. */
static double put_lanes(struct band *b, double y)
{
    const struct pp_lane_cell *c = b->p->cells;
    for (int i = 0; i < b->p->n; i++, y += NEXT) {
        const struct pp_lane *l = &b->p->lanes[i];
        if (b->s.f && l->n >= 0)
            fprintf(b->s.f,
                    "<rect class=\"idle\" x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" "
                    "rx=\"2\"/>\n",
                    b->left, y, b->cells, ROW);
        if (b->s.f) {
            put_text(&b->s, l->n < 0 ? "dim" : "ink", MARGIN, y + 16, l->name, SIZE_MAX);
            put_text(&b->s, "dim", b->left + b->cells + 10, y + 16, l->note, SIZE_MAX);
        }
        for (int k = 0; k < l->n; k++, c++) {
            b->seen[find_op(c->letter)] = true;
            if (b->s.f)
                put_cell(b, c, y);
        }
    }
    return y;
}

static void put_time(const struct band *b, double y)
{
    double span = b->p->span, step = find_step(span, fmin(12, fmax(2, b->cells / 60)));
    char text[32];
    for (int i = 0; span > 0 && i * step <= span * (1 + 1e-9); i++) {
        double x = b->left + i * step * b->scale;
        fprintf(b->s.f, "<path class=\"tick\" d=\"M%.2f %.1fv5\"/>", x, y);
        snprintf(text, sizeof(text), "%g", i * step);
        put_text(&b->s, "dim mid", x, y + 18, text, SIZE_MAX);
    }
    put_text(&b->s, "dim mid", b->left + b->cells / 2, y + 34, b->p->time, SIZE_MAX);
}

static double put_legend(const struct band *b, double y)
{
    int shades = b->p->shades < PP_DRAW_SHADES ? b->p->shades : PP_DRAW_SHADES;
    double x = MARGIN;
    for (int op = 0; op <= PP_OPS + 1; op++) {
        char text[48];
        bool is_op = op<PP_OPS, idle = op> PP_OPS;
        int n = is_op ? shades : 1;
        if (!idle && !b->seen[op])
            continue;
        snprintf(text, sizeof(text), "%.*s%s", is_op, &PP_OP_LETTERS[is_op ? op : 0],
                 is_op  ? ""
                 : idle ? "idle"
                        : "other work");
        if (is_op)
            pp_text_add(text, sizeof(text), " %s", meaning[op]);
        double at = place_entry(&b->s, &x, &y, 17 * n + LETTER * (double)strlen(text));
        for (int k = 0; b->s.f && k < n; k++, at += 17) {
            fprintf(b->s.f, "<rect class=\"%s", idle ? "idle" : "");
            if (!idle)
                fprintf(b->s.f, "%c%d", is_op ? PP_OP_LETTERS[op] : 'O', k);
            fprintf(b->s.f, "\" x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" rx=\"2\"/>", at,
                    y);
        }
        if (b->s.f)
            put_text(&b->s, "ink", at + 2, y + 11, text, SIZE_MAX);
    }
    y += 32;
    return b->s.look->title && !b->s.look->title[0]
               ? y
               : put_words(&b->s, "dim", LETTER, y, b->p->labels);
}

static void put_band(struct band *b, FILE *f)
{
    b->s.f = f;
    double y = put_lanes(b, put_head(&b->s, b->p->title, b->p->figures));
    if (f)
        put_time(b, y + 2);
    b->s.height = put_legend(b, y + 52);
}

int pp_picture_lanes(const struct pp_lanes *p, const struct pp_look *look, FILE *f)
{
    struct band b = {.p = p, .s = {.look = look}};
    size_t name = 0, note = 0;
    for (int i = 0; i < p->n; i++) {
        const struct pp_lane *l = &p->lanes[i];
        name = l->n >= 0 && strlen(l->name) > name ? strlen(l->name) : name;
        note = strlen(l->note) > note ? strlen(l->note) : note;
    }
    double right = MARGIN + (note ? LETTER * (double)note + 10 : 0);
    b.left = MARGIN + LETTER * (double)name + 10;
    b.cells = look->width > 0 ? look->width - b.left - right
                              : fmin(fmax(p->wanted, CELLS_MIN), CELLS_MAX);
    b.scale = p->span > 0 ? b.cells / p->span : 1;
    b.s.width = b.left + b.cells + right;
    put_band(&b, NULL);
    put_band(&b, f);
    fputs("</svg>\n", f);
    return draw_written(f);
}

/* ---- curves */

struct plot {
    const struct pp_curves *p;
    struct sheet s;
    double x0, x1, y1; /* values at the edges; y begins at 0 */
    double bottom, right;
};

static double at_x(const struct plot *q, double x)
{
    return LEFT + (x - q->x0) / (q->x1 - q->x0) * (q->right - LEFT);
}

static double at_y(const struct plot *q, double y)
{
    return q->bottom - y / q->y1 * TALL;
}

static void find_ranges(struct plot *q)
{
    q->x0 = q->p->names ? -0.5 : INFINITY;
    q->x1 = q->p->names ? q->p->n_names - 0.5 : -INFINITY;
    for (int k = 0; k < q->p->n; k++) {
        const struct pp_curve *c = &q->p->curves[k];
        for (int i = 0; i < c->n; i++) {
            q->x0 = fmin(q->x0, c->x[i]);
            q->x1 = fmax(q->x1, c->x[i]);
            q->y1 = fmax(q->y1, c->y[i]);
        }
    }
    q->x1 = q->x1 > q->x0 ? q->x1 : q->x0 + 1;
    q->y1 = q->y1 > 0 ? q->y1 : 1;
    double step = find_step(q->y1, 5);
    q->y1 = step * ceil(q->y1 / step - 1e-9);
}

static void put_axes(const struct plot *q)
{
    const struct sheet *s = &q->s;
    char text[32];
    double step = find_step(q->y1, 5);
    for (int i = 0; i * step <= q->y1 * (1 + 1e-9); i++) {
        double y = at_y(q, i * step);
        snprintf(text, sizeof(text), "%g", i * step);
        fprintf(s->f, "<path class=\"tick\" d=\"M%d %.1fH%.1f\"/>", LEFT, y, q->right);
        put_text(s, "dim end", LEFT - 6, y + 4, text, SIZE_MAX);
    }
    step = q->p->names ? 1 + floor(q->p->n_names * 40 / (q->right - LEFT))
                       : find_step(q->x1 - q->x0, 6);
    double first = q->p->names ? 0 : step * ceil(q->x0 / step);
    for (int i = 0; first + i * step <= q->x1; i++) {
        double x = first + i * step;
        snprintf(text, sizeof(text), "%g", x);
        put_text(s, "dim mid", at_x(q, x), q->bottom + 18, q->p->names ? q->p->names[(int)x] : text,
                 SIZE_MAX);
    }
    put_text(s, "dim mid", (LEFT + q->right) / 2, q->bottom + 36, q->p->x_name, SIZE_MAX);
    fprintf(s->f, "<g transform=\"translate(%d %.1f)rotate(-90)\">", MARGIN + 12,
            q->bottom - TALL / 2.0);
    put_text(s, "dim mid", 0, 0, q->p->y_name, SIZE_MAX);
    fputs("</g>\n", s->f);
}

static void put_curve(const struct plot *q, int k)
{
    const struct pp_curve *c = &q->p->curves[k];
    const char *colour = colours[k % 6], *command = "M";
    double wide = (at_x(q, 1) - at_x(q, 0)) * 0.8 / q->p->n, x;
    fprintf(q->s.f,
            "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" stroke-dasharray=\"%s\" d=\"",
            colour, dashes[k % 4]);
    for (int i = 0; i < c->n && !q->p->bars; i++) {
        if (isnan(c->y[i]))
            continue;
        fprintf(q->s.f, "%s%.1f %.1f", command, at_x(q, c->x[i]), at_y(q, c->y[i]));
        command = "L";
    }
    fprintf(q->s.f, "\"/><path fill=\"%s\" d=\"", colour);
    for (int i = 0; i < c->n && (q->p->bars || c->n <= MARKED); i++) {
        if (isnan(c->y[i]))
            continue;
        x = at_x(q, c->x[i]) + (q->p->bars ? wide * (k - q->p->n / 2.0) : 0);
        fprintf(q->s.f, "M%.1f %.1f", x, at_y(q, c->y[i]));
        if (q->p->bars)
            fprintf(q->s.f, "h%.1fV%.1fh%.1fz", wide, q->bottom, -wide);
        else
            fputs(markers[k % 4], q->s.f);
    }
    fputs("\"/>\n", q->s.f);
}

/* Draws the legend with the names of the curves. Returns the y below it. */
static double put_names(const struct plot *q, double y)
{
    double x = MARGIN;
    for (int k = 0; k < q->p->n; k++) {
        const struct pp_curve *c = &q->p->curves[k];
        if (!c->name[0])
            continue;
        double at = place_entry(&q->s, &x, &y, 34 + LETTER * (double)strlen(c->name));
        if (!q->s.f)
            continue;
        fprintf(
            q->s.f,
            "<path stroke=\"%s\" stroke-width=\"%g\" stroke-dasharray=\"%s\" d=\"M%.1f %.1fh28\"/>"
            "<path fill=\"%s\" d=\"M%.1f %.1f%s\"/>",
            colours[k % 6], q->p->bars ? 12 : 1.6, q->p->bars ? "none" : dashes[k % 4], at, y + 7,
            colours[k % 6], at + 14, y + 7, q->p->bars || c->n > MARKED ? "" : markers[k % 4]);
        put_text(&q->s, "ink", at + 34, y + 11, c->name, SIZE_MAX);
    }
    return y + 30;
}

static void put_plot(struct plot *q, FILE *f)
{
    q->s.f = f;
    q->bottom = put_head(&q->s, q->p->title, q->p->figures) + 6 + TALL;
    if (f)
        put_axes(q);
    for (int k = 0; f && k < q->p->n; k++)
        put_curve(q, k);
    q->s.height = put_names(q, q->bottom + 50);
}

int pp_picture_curves(const struct pp_curves *p, const struct pp_look *look, FILE *f)
{
    struct plot q = {.p = p, .s = {.look = look, .width = look->width > 0 ? look->width : WIDE}};
    q.right = q.s.width - MARGIN;
    find_ranges(&q);
    put_plot(&q, NULL);
    put_plot(&q, f);
    fputs("</svg>\n", f);
    return draw_written(f);
}
