/* SPDX-License-Identifier: Apache-2.0 */
/* Shows samples to people: pictures as small pixels, rows of tables as cells, texts as text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/base/files.h"
#include "ppcli/data/preprocessing.h"
#include "train.h"

#define SIDE_MAX 64   /* pixels of a picture that is shown */
#define CELLS_MAX 40  /* of a row */
#define TEXT_MAX 2000 /* bytes of a text */

/* Returns a value of a sample as 0 to 255. */
static int value_of(const struct pp_dataset *ds, const uint8_t *sample, size_t i, float least,
                    float most)
{
    if (ds->element == PP_U8)
        return sample[i];
    float x = ((const float *)(const void *)sample)[i];
    return most > least ? (int)lroundf(255 * (x - least) / (most - least)) : 0;
}

/* Writes a picture, of which every step-th row and column is shown, as hexadecimal bytes. */
static void show_picture(const struct pp_dataset *ds, const uint8_t *sample, struct pp_json *j)
{
    const int h = ds->shape.dims[0], w = ds->shape.dims[1], c = ds->shape.dims[2];
    const int longer = h > w ? h : w, step = (longer + SIDE_MAX - 1) / SIDE_MAX;
    static _Thread_local char pixels[2 * 3 * SIDE_MAX * SIDE_MAX + 1];
    const float *values = (const float *)(const void *)sample;
    float least = 0, most = 0;
    size_t at = 0, n = pp_shape_floats(&ds->shape);
    for (size_t i = 0; ds->element == PP_F32 && i < n; i++) {
        least = i == 0 || values[i] < least ? values[i] : least;
        most = i == 0 || values[i] > most ? values[i] : most;
    }
    for (int y = 0; y < h; y += step)
        for (int x = 0; x < w; x += step)
            for (int k = 0; k < c; k++, at += 2)
                snprintf(pixels + at, 3, "%02x",
                         value_of(ds, sample,
                                  ((size_t)y * (size_t)w + (size_t)x) * (size_t)c + (size_t)k,
                                  least, most));
    pp_json_int(j, "height", (h + step - 1) / step);
    pp_json_int(j, "width", (w + step - 1) / step);
    pp_json_int(j, "channels", c);
    pp_json_str(j, "pixels", pixels);
}

/* Returns the number that stood in a cell. A zero comes back from scaling as a rounding error. */
static double number_of_cell(const struct pp_table_column *c, float x)
{
    double number = c->is_scaled ? (double)x * c->std + c->mean : (double)x;
    return fabs(number) < 1e-6 * c->std ? 0 : number;
}

static void show_cell(const struct pp_table_column *c, const float *x, struct pp_json *j)
{
    const bool missing = c->marks_missing && x[c->n_inputs - 1] > 0.5F;
    const char *kind = "";
    for (int k = 0; k < c->n_kinds; k++)
        kind = x[k] > 0.5F ? c->kinds[k] : kind;
    pp_json_array(j, NULL);
    pp_json_str(j, NULL, c->name);
    if (missing || c->is_category)
        pp_json_str(j, NULL, missing ? "missing" : kind);
    else
        pp_json_dbl(j, NULL, number_of_cell(c, *x));
    pp_json_end(j);
}

static void show_row(const struct pp_preprocessing *p, const uint8_t *sample, struct pp_json *j)
{
    const float *x = (const float *)(const void *)sample;
    pp_json_array(j, "row");
    for (int i = 0; i < p->n_columns && i < CELLS_MAX; i++)
        show_cell(&p->columns[i], x + p->columns[i].first, j);
    pp_json_end(j);
}

static void show_text(const struct pp_dataset *ds, const struct pp_vocabulary *v,
                      const uint8_t *sample, struct pp_json *j)
{
    char text[TEXT_MAX + 1], room[PP_TOKEN_TEXT];
    size_t at = 0;
    for (int i = 0; i < ds->features; i++) {
        int token = ds->element == PP_U16 ? ((const uint16_t *)(const void *)sample)[i] : sample[i];
        size_t n = 0;
        const char *bytes = pp_vocabulary_decode(v, token, room, &n);
        if (at + n > TEXT_MAX)
            break;
        memcpy(text + at, bytes, n);
        at += n;
    }
    text[at] = '\0';
    pp_json_str(j, "text", text);
}

static int show_sample(const struct pp_dataset *ds, const struct pp_preprocessing *p,
                       const struct pp_vocabulary *v, struct pp_mistake *m)
{
    const uint8_t *sample =
        ds->images + (size_t)m->sample * ds->stride * pp_element_bytes(ds->element);
    const bool picture = ds->shape.n == 3 && (ds->shape.dims[2] == 1 || ds->shape.dims[2] == 3) &&
                         (ds->element == PP_U8 || ds->element == PP_F32);
    size_t bytes = 0;
    if (!picture && p->n_columns == 0 && v->n == 0)
        return 0;
    FILE *f = open_memstream(&m->shown, &bytes);
    if (!f)
        return pp_fail(PP_ERESOURCE, "out of memory for the worst mistakes");
    struct pp_json j = pp_json_begin(f, 0);
    if (picture)
        show_picture(ds, sample, &j);
    else if (v->n > 0)
        show_text(ds, v, sample, &j);
    else
        show_row(p, sample, &j);
    pp_json_end(&j);
    PP_TRY(pp_text_close(f, &m->shown, "the worst mistakes"));
    m->shown[strcspn(m->shown, "\n")] = '\0';
    return 0;
}

int mistakes_show(const struct pp_config *cfg, const struct pp_dataset *ds, struct pp_outcome *o)
{
    PP_OWN(pp_vocabulary_fini) struct pp_vocabulary v = {0};
    int n;
    struct pp_mistake *m = pp_outcome_mistakes(o, &n);
    if (ds->vocabulary > 0)
        PP_TRY(pp_dataset_vocabulary(cfg, &v));
    for (int i = 0; i < n; i++)
        PP_TRY(show_sample(ds, pp_outcome_names(o), &v, &m[i]));
    return 0;
}
