/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Curves over steps as a small SVG that fits a phone and three of which fit a screen: axes with
 * round numbers, a mark at the end of each epoch, a legend in HTML. Long curves are thinned to the
 * least and the greatest value of each of a few hundred pieces, so that no spike is lost.
 */
#include <math.h>
#include <string.h>

#include "html.h"
#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "report.h"

enum {
    WIDTH = 300,
    HEIGHT = 196,
    LEFT = 42,
    RIGHT = 12,
    TOP = 10,
    BOTTOM = 26,
    PIECES = 400,    /* of a thinned curve: two points each */
    EPOCHS_MAX = 40, /* marks that still tell something */
    DOTS_MAX = 60,
};

struct axes {
    double x0, x1, y0, y1; /* what the edges stand for; y as log10 when `log` */
    bool log;
};

double report_nice_step(double length, int steps)
{
    double power = pow(10, floor(log10(length / steps)));
    double part = length / steps / power;
    return power * (part > 5 ? 10 : part > 2 ? 5 : part > 1 ? 2 : 1);
}

static double at(const double *values, size_t stride, int i)
{
    double value;
    memcpy(&value, (const char *)values + (size_t)i * stride, sizeof(value));
    return value;
}

static bool point(const struct axes *a, const struct report_series *s, int i, double *x, double *y)
{
    double vx = at(s->x, s->stride, i), vy = at(s->y, s->stride, i);
    if (isnan(vx) || isnan(vy) || (a->log && vy <= 0)) {
        return false;
    }
    *x = vx;
    *y = a->log ? log10(vy) : vy;
    return true;
}

/* --- scales ------------------------------------------------------------------------------------
 */

struct range {
    double low, high, positive; /* least, greatest, least above 0 */
    int n;
};

static void widen(struct range *r, double value)
{
    if (isnan(value)) {
        return;
    }
    r->low = r->n ? fmin(r->low, value) : value;
    r->high = r->n ? fmax(r->high, value) : value;
    if (value > 0) {
        r->positive = r->positive > 0 ? fmin(r->positive, value) : value;
    }
    r->n++;
}

static bool scale(const struct report_chart *c, struct axes *a)
{
    struct range x = {0}, y = {0};
    for (int k = 0; k < c->n; k++) {
        const struct report_series *s = &c->series[k];
        for (int i = 0; i < s->n; i++) {
            double value = at(s->y, s->stride, i);
            if (!isnan(value)) {
                widen(&x, at(s->x, s->stride, i));
                widen(&y, value);
            }
        }
    }
    if (x.n == 0 || y.n == 0) {
        return false;
    }
    a->log = c->may_log && y.low >= 0 && y.positive > 0 && y.high > 100 * y.positive;
    a->x0 = 0;
    a->x1 = x.high > 0 ? x.high : 1;
    if (a->log) {
        a->y0 = floor(log10(y.positive) * 2) / 2;
        a->y1 = ceil(log10(y.high) * 2) / 2;
        return true;
    }
    double low = c->from_zero ? fmin(0, y.low) : y.low, high = y.high;
    if (!(high > low)) { /* a flat curve is in the middle */
        double margin = fabs(high) > 0 ? fabs(high) / 2 : 1;
        low -= c->from_zero && high > 0 ? 0 : margin;
        high += margin;
    }
    double step = report_nice_step(high - low, 5);
    a->y0 = floor(low / step + 1e-9) * step;
    a->y1 = ceil(high / step - 1e-9) * step;
    if (c->share) {
        a->y0 = fmax(a->y0, 0);
        a->y1 = y.high <= 1 ? fmin(a->y1, 1) : a->y1;
    }
    return a->y1 > a->y0 && isfinite(a->y1 - a->y0);
}

static double px(const struct axes *a, double x)
{
    return LEFT + (x - a->x0) / (a->x1 - a->x0) * (WIDTH - LEFT - RIGHT);
}

static double py(const struct axes *a, double y)
{
    return HEIGHT - BOTTOM - (y - a->y0) / (a->y1 - a->y0) * (HEIGHT - TOP - BOTTOM);
}

static void y_tick(const struct report_chart *c, const struct axes *a, double y, FILE *f)
{
    char text[HTML_NUMBER_MAX];
    double value = a->log ? pow(10, y) : fabs(y) < 1e-12 * (a->y1 - a->y0) ? 0 : y;
    html_short(c->share ? value * 100 : value,
               a->log ? value : fmax(fabs(a->y0), fabs(a->y1)) * (c->share ? 100 : 1), text);
    fprintf(f,
            "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"end\" x=\"%d\" "
            "y=\"%.1f\">%s%s</text>\n",
            LEFT, py(a, y), WIDTH - RIGHT, LEFT - 5, py(a, y) + 4, text, c->share ? "%" : "");
}

static void print_axes(const struct report_chart *c, const struct axes *a, FILE *f)
{
    if (a->log) {
        double decades = a->y1 - a->y0;
        double every = decades > 12 ? ceil(decades / 6) : 1;
        double first = ceil(a->y0 - 1e-9);
        for (int i = 0; i < 16 && first + i * every <= a->y1 + 1e-9; i++) {
            y_tick(c, a, first + i * every, f);
        }
    } else {
        double step = report_nice_step(a->y1 - a->y0, 5);
        for (int i = 0; i < 12 && a->y0 + i * step <= a->y1 + 1e-6 * step; i++) {
            y_tick(c, a, a->y0 + i * step, f);
        }
    }
    double step = report_nice_step(a->x1 - a->x0, 5);
    for (int i = 0; i < 12 && i * step <= a->x1 * (1 + 1e-9); i++) {
        char text[HTML_NUMBER_MAX];
        fprintf(f, "<text class=\"mid\" x=\"%.1f\" y=\"%d\">%s</text>\n", px(a, i * step),
                HEIGHT - BOTTOM + 16, html_short(i * step, a->x1, text));
    }
    for (int i = 0; i < c->n_epochs && c->n_epochs <= EPOCHS_MAX; i++) {
        double x = c->epochs[i].step;
        if (x > 0 && x < a->x1 * 0.999) {
            fprintf(f, "<path class=\"soft\" d=\"M%.1f %dV%d\"/>\n", px(a, x), TOP,
                    HEIGHT - BOTTOM);
        }
    }
}

/* --- curves ------------------------------------------------------------------------------------
 */

struct pen {
    FILE *f;
    const struct axes *a;
    int drawn;
};

static void line_to(struct pen *p, double x, double y)
{
    fprintf(p->f, "%s%.1f %.1f", p->drawn++ ? " " : "M", px(p->a, x), py(p->a, y));
}

/* The points of [from, to) that no thinning may lose: the least and the greatest, in their order.
 */
static void extremes(struct pen *p, const struct report_series *s, int from, int to)
{
    int low = -1, high = -1;
    double x, y, least = 0, most = 0;
    for (int i = from; i < to; i++) {
        if (!point(p->a, s, i, &x, &y)) {
            continue;
        }
        if (low < 0 || y < least) {
            low = i;
            least = y;
        }
        if (high < 0 || y > most) {
            high = i;
            most = y;
        }
    }
    int first = low < high ? low : high, second = low < high ? high : low;
    if (first >= 0 && point(p->a, s, first, &x, &y)) {
        line_to(p, x, y);
    }
    if (second != first && point(p->a, s, second, &x, &y)) {
        line_to(p, x, y);
    }
}

static void print_curve(const struct axes *a, const struct report_series *s, FILE *f)
{
    struct pen p = {.f = f, .a = a};
    int pieces = s->n > 2 * PIECES ? PIECES : s->n;
    fprintf(f, "<path class=\"curve s%d%s\" d=\"", s->color, s->dashed ? " dash" : "");
    for (int k = 0; k < pieces; k++) {
        extremes(&p, s, (int)((int64_t)s->n * k / pieces), (int)((int64_t)s->n * (k + 1) / pieces));
    }
    fputs("\"/>\n", f);
}

static void print_dots(const struct report_chart *c, const struct axes *a,
                       const struct report_series *s, FILE *f)
{
    int every = s->n / DOTS_MAX + 1;
    for (int i = s->n - 1; i >= 0; i -= every) { /* the last one always */
        double x, y;
        char value[HTML_NUMBER_MAX], step[HTML_NUMBER_MAX];
        if (!point(a, s, i, &x, &y)) {
            continue;
        }
        double shown = at(s->y, s->stride, i);
        fprintf(f, "<circle class=\"s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>", s->color,
                px(a, x), py(a, y));
        html_text(f, s->name);
        fprintf(f, " %s, step %s</title></circle>\n",
                c->share ? html_percent(shown, 2, value) : html_figures(shown, 5, value),
                html_number(x, 0, step));
    }
}

static void print_legend(const struct report_chart *c, FILE *f)
{
    fputs("<div class=\"legend\">", f);
    for (int k = 0; k < c->n; k++) {
        const struct report_series *s = &c->series[k];
        if (s->n == 0 || c->n == 1) { /* its title says it; the empty line keeps rows level */
            continue;
        }
        fprintf(f,
                "<span><svg width=\"22\" height=\"12\" aria-hidden=\"true\"><path class=\"curve "
                "s%d%s\" d=\"M1 6H21\"/>",
                s->color, s->dashed ? " dash" : "");
        if (s->dots) {
            fprintf(f, "<circle class=\"s%d\" cx=\"11\" cy=\"6\" r=\"3\"/>", s->color);
        }
        fputs("</svg>", f);
        html_text(f, s->name);
        fputs("</span>", f);
    }
    fputs("</div>\n", f);
}

int report_chart(const struct report_chart *c, FILE *f)
{
    struct axes a = {0};
    if (!scale(c, &a)) {
        return 0;
    }
    fputs("<figure><h3>", f);
    html_text(f, c->title);
    fprintf(f, " <span class=\"dim\">%s%s</span></h3>\n", c->unit, a.log ? " (log scale)" : "");
    print_legend(c, f);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"",
            WIDTH, HEIGHT);
    html_text(f, c->title);
    fputs(" over steps\">\n", f);
    print_axes(c, &a, f);
    for (int k = 0; k < c->n; k++) {
        print_curve(&a, &c->series[k], f);
    }
    for (int k = 0; k < c->n; k++) {
        if (c->series[k].dots || c->series[k].n == 1) {
            print_dots(c, &a, &c->series[k], f);
        }
    }
    fputs("</svg></figure>\n", f);
    return 0;
}
