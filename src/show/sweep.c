/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `ppcli bench -o FILE.json` wrote, as curves: one key of the sweep along x, a curve for each
 * combination of the others.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "draw.h"
#include "report.h"

#define CURVES_MAX 24
#define VALUES_MAX 64

const char *const report_sweep_keys[REPORT_SWEEP_KEYS] = {"microbatches", "stages", "schedule",
                                                          "replicas"};

struct sweep {
    int over; /* the key along x */
    struct pp_curve curves[CURVES_MAX];
    char values[VALUES_MAX][PP_CELL_LABEL];
    double x[VALUES_MAX], y[CURVES_MAX][VALUES_MAX];
    int n_values, n, busy; /* busy: rows whose ranks waited for a core */
};

static void get_value(const json_t *row, int key, char out[PP_CELL_LABEL])
{
    double number = report_number(row, report_sweep_keys[key]);
    snprintf(out, PP_CELL_LABEL, "%s", report_text(row, report_sweep_keys[key]));
    if (!isnan(number))
        snprintf(out, PP_CELL_LABEL, "%g", number);
    pp_text_make_plain(out);
}

/* Returns the index of the sweep's first row: 1 if bench has put a row of its own in front, else
 * 0. */
static size_t find_first_row(const json_t *bench)
{
    return report_number(bench, "added_rows") > 0;
}

static bool key_varies(const json_t *bench, int key)
{
    json_t *rows = json_object_get(bench, "rows");
    char first[PP_CELL_LABEL], value[PP_CELL_LABEL];
    get_value(json_array_get(rows, find_first_row(bench)), key, first);
    for (size_t i = find_first_row(bench); i < json_array_size(rows); i++) {
        get_value(json_array_get(rows, i), key, value);
        if (strcmp(first, value) != 0)
            return true;
    }
    return false;
}

/* Writes the name of a row's curve, such as "stages 2, 1f1b": the keys that vary and are not along
 * x, then other axes as they are. */
static void name_curve(const struct sweep *s, const json_t *bench, const json_t *row,
                       char out[PP_CURVE_NAME])
{
    char value[PP_CELL_LABEL];
    const json_t *axes = json_object_get(row, "axes");
    char *others = json_object_size(axes) > 0 ? json_dumps(axes, JSON_COMPACT) : NULL;
    out[0] = '\0';
    for (int k = 0; k < REPORT_SWEEP_KEYS; k++) {
        if (k == s->over || !key_varies(bench, k))
            continue;
        get_value(row, k, value);
        pp_text_add(out, PP_CURVE_NAME, "%s%s%s", out[0] ? ", " : "",
                    k == 2 ? "" : report_sweep_keys[k], k == 2 ? "" : " ");
        pp_text_add(out, PP_CURVE_NAME, "%s", value);
    }
    pp_text_add(out, PP_CURVE_NAME, "%s%s", others ? " " : "", others ? others : "");
    pp_text_make_plain(out);
    free(others);
}

/* Adds a point to the curve of its name, at its value along x. The curve and the value are added if
 * they are new. If y is NAN, only they are added. */
static int add_point(struct sweep *s, const json_t *bench, const json_t *row, double y)
{
    char value[PP_CELL_LABEL], name[PP_CURVE_NAME];
    int k = 0, v = 0;
    get_value(row, s->over, value);
    name_curve(s, bench, row, name);
    while (k < s->n && strcmp(s->curves[k].name, name) != 0)
        k++;
    while (v < s->n_values && strcmp(s->values[v], value) != 0)
        v++;
    if (k == CURVES_MAX || v == VALUES_MAX)
        return pp_fail(PP_ECONFIG, "a picture has at most %d curves and %d values along x",
                       CURVES_MAX, VALUES_MAX);
    for (int i = 0; k == s->n && i < VALUES_MAX; i++)
        s->y[k][i] = NAN;
    memcpy(s->curves[k].name, name, sizeof(name));
    memcpy(s->values[v], value, sizeof(value));
    s->x[v] = v;
    s->y[k][v] = y;
    s->n = k == s->n ? k + 1 : s->n;
    s->n_values = v == s->n_values ? v + 1 : s->n_values;
    return 0;
}

int report_draw_sweep(const json_t *bench, bool speed, int over, const struct pp_look *look,
                      FILE *f)
{
    json_t *rows = json_object_get(bench, "rows");
    char figures[300];
    PP_TAKE(struct sweep, s, 1);
    while (over < 0 && s->over < REPORT_SWEEP_KEYS - 1 && !key_varies(bench, s->over))
        s->over++;
    s->over = over < 0 ? s->over : over;
    for (size_t i = find_first_row(bench); i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double y = report_number(row, speed ? "samples_per_second" : "bubble_measured");
        s->busy += report_number(row, "waited_for_core") >= PP_BUBBLE_WAITED;
        PP_TRY(add_point(s, bench, row, speed ? y : 100 * y));
    }
    if (s->n_values < 2)
        return pp_fail(PP_EUSAGE, "its rows do not differ in %s", report_sweep_keys[s->over]);
    for (int k = 0; k < s->n; k++) {
        s->curves[k].x = s->x;
        s->curves[k].y = s->y[k];
        s->curves[k].n = s->n_values;
    }
    snprintf(figures, sizeof(figures), "model %.100s, %.50s, %.20s", report_text(bench, "model"),
             report_text(bench, "cpu"), report_text(bench, "date"));
    if (s->busy > 0)
        pp_text_add(figures, sizeof(figures), "; busy machine: do not trust %d of %zu points",
                    s->busy, json_array_size(rows) - find_first_row(bench));
    struct pp_curves p = {.title = speed ? "Throughput" : "Bubble, measured",
                          .figures = pp_text_make_plain(figures),
                          .x_name = report_sweep_keys[s->over],
                          .y_name = speed ? "samples/s" : "bubble, %",
                          .names = (const char(*)[PP_CELL_LABEL])s->values,
                          .n_names = s->n_values,
                          .curves = s->curves,
                          .n = s->n};
    return pp_picture_curves(&p, look, f);
}
