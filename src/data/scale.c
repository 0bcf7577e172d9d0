/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scales values to the model's input: data.mean and data.std of all values, of each channel of
 * pictures, or of each column of a table; and warns about inputs that are far from -1 to 1.
 */
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ops.h"

#define LARGE_ROOT 10   /* root mean square of a column above which a warning is given */
#define LARGE_MOST 1000 /* the same for a single value */

static double get_factor(const struct pp_floats *list, int i, double none)
{
    return list->n == 0 ? none : list->at[list->n > 1 ? i : 0];
}

static int check_scale(double scale, double offset, double std)
{
    return isfinite((float)scale) && isfinite((float)offset)
               ? 0
               : pp_fail(PP_ECONFIG, "data.std: values divided by %g are not finite floats", std);
}

/* Scales the columns of a table in place, once, by data.mean and data.std. */
static int scale_columns(const struct pp_config *cfg, struct pp_dataset *ds)
{
    const struct pp_floats *mean = &cfg->data.mean, *std = &cfg->data.std;
    float *x = (float *)(void *)ds->images;
    int columns = ds->shape.dims[0];
    for (int c = 0; c < columns; c++) {
        double m = get_factor(mean, c, 0), d = get_factor(std, c, 1);
        PP_TRY(check_scale(1 / d, -m / d, d));
        for (size_t i = (size_t)c, n = (size_t)ds->n * (size_t)columns; x && i < n;
             i += (size_t)columns)
            x[i] = (float)(((double)x[i] - m) / d);
    }
    return 0;
}

int pp_dataset_scale(const struct pp_config *cfg, struct pp_dataset *ds)
{
    const struct pp_floats *mean = &cfg->data.mean, *std = &cfg->data.std;
    bool flat = ds->shape.n == 1, table = flat && ds->element == PP_F32;
    int channels = !flat ? pp_shape_channels(&ds->shape) : table ? ds->shape.dims[0] : 1;
    struct pp_scaling *s = &ds->scaling;
    *s = (struct pp_scaling){.scale = {ds->scale}};
    const struct pp_floats *const lists[] = {mean, std};
    for (int i = 0; i < 2; i++) {
        if (lists[i]->n > 1 && lists[i]->n != channels) {
            return pp_fail(PP_ECONFIG,
                           "data.%s: %d numbers, but a sample of %s has %d %s%s; write one number "
                           "for each %s, or one for all",
                           i == 0 ? "mean" : "std", lists[i]->n, ds->name, channels,
                           table ? "column" : "channel", pp_plural(channels),
                           table ? "column" : "channel");
        }
        s->channels = lists[i]->n > s->channels ? lists[i]->n : s->channels;
    }
    if (table && s->channels > 1) {
        s->channels = 0;
        return scale_columns(cfg, ds);
    }
    if (s->channels > PP_CHANNELS_MAX)
        return pp_fail(PP_ECONFIG,
                       "data.mean, data.std: at most %d channels have their own numbers",
                       PP_CHANNELS_MAX);
    for (int c = 0; c < s->channels; c++) {
        double m = get_factor(mean, c, 0), d = get_factor(std, c, 1);
        PP_TRY(check_scale(ds->scale / d, -m / d, d));
        s->scale[c] = (float)(ds->scale / d);
        s->offset[c] = (float)(-m / d);
    }
    return 0;
}

/* ---- warning about inputs far from the range in which a network learns well */

struct column {
    double squares, least, most;
};

static void inspect_columns(const struct pp_dataset *ds, int columns, struct column *of)
{
    const float *x = (const float *)(const void *)ds->images;
    const struct pp_scaling *k = &ds->scaling;
    size_t row = pp_shape_floats(&ds->shape);
    for (size_t i = 0; i < (size_t)ds->n * row; i++) {
        struct column *c = &of[i % (size_t)columns];
        size_t channel = k->channels > 1 ? i % (size_t)k->channels : 0;
        double v = (double)k->scale[channel] * (double)x[i] +
                   (k->channels > 0 ? (double)k->offset[channel] : 0);
        c->squares += v * v;
        c->least = i < (size_t)columns || v < c->least ? v : c->least;
        c->most = i < (size_t)columns || v > c->most ? v : c->most;
    }
}

/* Finds the name of a table's column in its header. Returns the length of the name to show, 40 at
 * most. */
static int column_name(const struct pp_dataset *ds, int column, const char **out)
{
    const char *at = ds->columns ? ds->columns : "";
    for (; column > 0 && *at; column--)
        at += strcspn(at, "\n") + 1;
    *out = at;
    size_t n = strcspn(at, "\n");
    return n < 40 ? (int)n : 40;
}

int pp_dataset_judge_range(struct pp_dataset *ds)
{
    bool flat = ds->shape.n == 1;
    if (!ds->images || ds->element != PP_F32 || ds->n == 0)
        return 0;
    int columns = flat ? ds->shape.dims[0] : pp_shape_channels(&ds->shape), worst = -1, large = 0;
    double each = (double)ds->n * (double)pp_shape_floats(&ds->shape) / columns, most = 0;
    PP_TAKE(struct column, of, columns);
    inspect_columns(ds, columns, of);
    for (int c = 0; c < columns; c++) {
        double root = sqrt(of[c].squares / each), far = fmax(-of[c].least, of[c].most);
        bool is_large = root > LARGE_ROOT || far > LARGE_MOST;
        large += is_large;
        worst = is_large && (worst < 0 || root > most) ? c : worst;
        most = worst == c ? root : most;
    }
    if (worst < 0)
        return 0;
    const char *name;
    int n = column_name(ds, worst, &name);
    pp_dataset_remark(
        ds,
        "%s: %d of %d %s %s large: %s %d%s%.*s%s goes from %.4g to %.4g, and a "
        "network learns best from values near -1 to 1; scale them with %s",
        ds->origin, large, columns, flat ? "columns" : "channels", large == 1 ? "is" : "are",
        flat ? "value" : "channel", worst + 1, n > 0 ? " ('" : "", n, name, n > 0 ? "')" : "",
        of[worst].least, of[worst].most,
        strcmp(ds->name, "csv") == 0 ? "data.scale = standard"
                                     : "data.mean and data.std (`ppcli init` proposes numbers)");
    return 0;
}
