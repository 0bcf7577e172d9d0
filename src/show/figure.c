/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of runs for documents: a step measured and simulated, the loss, the bubble of each
 * rank. */
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "draw.h"
#include "report.h"

#define WORK "FIWBRu"       /* letters of what computes; the rest is bubble */
#define DRAWN "FIWBRGTucdg" /* what a picture shows */
#define POINTS_MAX 1500     /* of a curve */
#define BARS_MAX 64

/* Adds a heading and one lane for each rank of a step (measured or simulated) to `lanes`, which
 * p->n counts, and its actions to `cells`, which *n counts. */
static void add_half(const struct report_half *h, const char *heading, struct pp_lanes *p,
                     struct pp_lane *lanes, struct pp_lane_cell *cells, int *n)
{
    if (h->n == 0)
        return;
    snprintf(lanes[p->n].name, PP_CELL_LABEL, "%s", heading);
    lanes[p->n++].n = -1;
    for (int r = 0; r < h->ranks; r++)
        snprintf(lanes[p->n + r].name, PP_CELL_LABEL, "rank %d", r);
    for (int i = 0; i < h->n; i++) {
        const struct report_slice *s = &h->slices[i];
        struct pp_lane_cell *c = &cells[*n];
        if (!strchr(DRAWN, s->kind))
            continue;
        *c = (struct pp_lane_cell){.start = 1e3 * s->start,
                                   .end = 1e3 * (s->start + s->length),
                                   .letter = s->kind,
                                   .shade = s->chunk > 0 ? s->chunk : 0};
        if (s->mb >= 0)
            snprintf(c->label, sizeof(c->label), "%c%d", s->kind, s->mb);
        if (s->kind == 'F' && s->length > 0)
            p->wanted = fmin(fmax(p->wanted, 30 * h->span / s->length), 1400);
        p->shades = c->shade >= p->shades ? c->shade + 1 : p->shades;
        lanes[p->n + s->rank].n++;
        (*n)++;
    }
    p->n += h->ranks;
    p->span = fmax(p->span, 1e3 * h->span);
}

static int draw_step(struct pp_report *r, const struct pp_look *look, FILE *f)
{
    const struct report_half *m = &r->measured, *s = &r->simulated;
    char figures[160];
    int n = 0;
    PP_TAKE(struct pp_lane, lanes, m->ranks + s->ranks + 2);
    PP_TAKE(struct pp_lane_cell, cells, m->n + s->n);
    struct pp_lanes p = {.title = r->name,
                         .figures = figures,
                         .labels = "F3: micro-batch 3. From the first start to the last end.",
                         .time = "time, ms",
                         .shades = 1,
                         .lanes = lanes,
                         .cells = cells};
    snprintf(figures, sizeof(figures), "step %d", m->n ? m->slices[0].step : 0);
    if (m->n)
        pp_text_add(figures, sizeof(figures), ", measured: %.4g ms", 1e3 * m->span);
    if (s->n)
        pp_text_add(figures, sizeof(figures), ", simulated from mean times: %.4g ms",
                    1e3 * s->span);
    add_half(m, "measured", &p, lanes, cells, &n);
    add_half(s, "simulated", &p, lanes, cells, &n);
    return pp_picture_lanes(&p, look, f);
}

static int draw_bubble(struct pp_report *r, const struct pp_look *look, FILE *f)
{
    const struct report_half *const halves[] = {&r->measured, &r->simulated};
    static const char *const words[] = {"measured", "simulated"}, *const keys[] = {
                                                                      "step_seconds",
                                                                      "simulated_step_seconds"};
    struct pp_curve curves[2];
    int ranks = (int)fmax(r->measured.ranks, r->simulated.ranks);
    PP_TAKE(double, values, 4 * ranks);
    PP_OWN_MEMORY char(*names)[PP_CELL_LABEL] = pp_alloc((size_t)ranks, sizeof(*names));
    PP_TRY(names ? 0 : PP_ERESOURCE);
    struct pp_curves p = {.title = r->name,
                          .figures = "idle part of each rank in one step",
                          .x_name = "rank",
                          .y_name = "bubble, %",
                          .names = (const char(*)[PP_CELL_LABEL])names,
                          .n_names = ranks,
                          .bars = ranks <= BARS_MAX,
                          .curves = curves};
    for (int i = 0; i < ranks; i++)
        snprintf(names[i], PP_CELL_LABEL, "%d", i);
    for (int k = 0; k < 2; k++) {
        const struct report_half *h = halves[k];
        struct pp_curve *c = &curves[p.n];
        double step = report_number(r->timeline, keys[k]);
        if (h->n == 0)
            continue;
        *c = (struct pp_curve){.x = values + (k ? 2 * (size_t)ranks : 0), .n = h->ranks};
        c->y = c->x + ranks;
        snprintf(c->name, sizeof(c->name), "%s", words[k]);
        for (int i = 0; i < h->n; i++)
            c->y[h->slices[i].rank] += strchr(WORK, h->slices[i].kind) ? h->slices[i].length : 0;
        for (int i = 0; i < c->n; i++) {
            c->x[i] = i;
            c->y[i] = 100 * fmax(0, 1 - c->y[i] / (step > 0 ? step : h->span));
        }
        p.n++;
    }
    return pp_picture_curves(&p, look, f);
}

/* Adds the curve of one key over the steps. If no record has the key, the curve is empty and loses
 * its name. */
static int add_curve(struct pp_curves *p, struct pp_curve *c, const json_t *records,
                     const char *key)
{
    size_t most = json_array_size(records);
    PP_ALLOC(c->x, 2 * most);
    c->y = c->x + most;
    for (size_t i = 0; i < most; i++) {
        c->x[c->n] = report_number(json_array_get(records, i), "step");
        c->y[c->n] = report_number(json_array_get(records, i), key);
        c->n += !isnan(c->x[c->n]) && !isnan(c->y[c->n]);
    }
    c->name[c->n > 0 ? strlen(c->name) : 0] = '\0';
    p->n++;
    return 0;
}

static int draw_loss(struct pp_report *const *runs, int n, const struct pp_look *look, FILE *f)
{
    struct pp_curve curves[2 * PP_REPORT_RUNS_MAX] = {{.n = 0}};
    struct pp_curves p = {.title = n > 1 ? "Loss" : runs[0]->name,
                          .figures = "loss over steps",
                          .x_name = "step",
                          .y_name = "loss",
                          .curves = curves};
    int rc = 0;
    for (int i = 0; i < 2 * n && rc == 0; i++) {
        struct pp_report *r = runs[i / 2];
        bool test = i % 2, steps = json_array_size(r->steps) > 0 && !test;
        json_t **records = steps ? &r->steps : &r->epochs;
        while (rc == 0 && json_array_size(*records) > POINTS_MAX)
            rc = report_thin(records);
        snprintf(curves[i].name, PP_CURVE_NAME, "%.100s%s%s", n > 1 ? r->name : "",
                 n > 1 ? ": " : "", test ? "test" : "training");
        rc = rc < 0 ? rc
                    : add_curve(&p, &curves[i], *records,
                                test    ? "test_loss"
                                : steps ? "loss"
                                        : "train_loss");
    }
    rc = rc < 0 ? rc : pp_picture_curves(&p, look, f);
    for (int i = 0; i < p.n; i++)
        pp_free(curves[i].x);
    return rc;
}

int pp_report_draw(const void *view, FILE *f)
{
    static const char *const names[] = {"step", "loss", "bubble", "speed"}; /* PP_FIGURES */
    const struct pp_report_view *v = view;
    struct pp_report *r = v->runs[0];
    bool loss = v->figure == 1;
    if (v->n > 1 && !loss)
        return pp_fail(PP_EUSAGE, "--figure %s draws one run, not %d", names[v->figure], v->n);
    if (r->bench && (v->figure == 0 || loss))
        return pp_fail(PP_EUSAGE, "%s is a result of bench: --figure speed or bubble", r->name);
    if (r->bench)
        return report_draw_sweep(r->bench, v->figure == 3, v->over, &v->look, f);
    if (v->over >= 0 || v->figure == 3)
        return pp_fail(PP_EUSAGE,
                       "--figure speed and --over draw what ppcli bench -o FILE.json wrote");
    if (loss ? !r->steps && !r->epochs : r->measured.n + r->simulated.n == 0)
        return pp_fail(PP_ENOINPUT, "%s: no %s, so there is no %s to draw", r->name,
                       loss ? "metrics.jsonl" : "timeline.json", names[v->figure]);
    return loss             ? draw_loss(v->runs, v->n, &v->look, f)
           : v->figure == 2 ? draw_bubble(r, &v->look, f)
                            : draw_step(r, &v->look, f);
}
