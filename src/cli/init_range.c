/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli init: floats, and what would bring them to where a network learns well. */
#include <math.h>

#include "ppcli/dataset.h"
#include "ppcli/mem.h"
#include "init.h"

#define ALIKE 10 /* times as far from 0 as the narrowest: columns of one kind */

struct column {
    double sum, squares, least, most;
};

static void look_at_columns(const struct pp_dataset *ds, int n, struct column *of)
{
    const float *x = (const void *)ds->images;
    for (size_t i = 0; i < (size_t)ds->n * (size_t)n; i++) {
        struct column *c = &of[i % (size_t)n];
        double v = (double)x[i];
        c->sum += v;
        c->least = i < (size_t)n || v < c->least ? v : c->least;
        c->most = i < (size_t)n || v > c->most ? v : c->most;
    }
    for (size_t i = 0; i < (size_t)ds->n * (size_t)n; i++) {
        struct column *c = &of[i % (size_t)n];
        double d = (double)x[i] - c->sum / ds->n;
        c->squares += d * d;
    }
}

/* One scale is for columns of one kind: about as wide, about the same place. */
static bool are_alike(const struct column *of, int n)
{
    double least = 0, most = 0;
    for (int i = 0; i < n; i++) {
        double far = fmax(-of[i].least, of[i].most);
        if (!(of[i].least < of[i].most))
            continue; /* it is not an input */
        least = least > 0 && least < far ? least : far;
        most = far > most ? far : most;
    }
    return most < ALIKE * least;
}

static void print_columns(FILE *f, const struct column *of, int n, int rows)
{
    fputs("; mean =", f);
    for (int i = 0; i < n; i++)
        fprintf(f, " %.4g", of[i].sum / rows);
    fputs("\n; std =", f);
    for (int i = 0; i < n; i++) {
        double std = sqrt(of[i].squares / rows);
        fprintf(f, " %.4g", std > 0 && of[i].least < of[i].most ? std : 1);
    }
    fputc('\n', f);
}

int init_print_range(FILE *f, const struct pp_dataset *ds)
{
    bool flat = ds->shape.n == 1;
    int n = flat ? ds->shape.dims[0] : pp_shape_channels(&ds->shape);
    struct pp_dataset each = *ds; /* rows of n values, whatever the shape */
    PP_TAKE(struct column, of, n);
    each.n = (int)((size_t)ds->n * pp_shape_floats(&ds->shape) / (size_t)n);
    look_at_columns(&each, n, of);
    double least = of[0].least, most = of[0].most;
    for (int i = 1; i < n; i++) {
        least = fmin(least, of[i].least);
        most = fmax(most, of[i].most);
    }
    fprintf(f, "; values from %.4g to %.4g, used as they are: about -1 to 1 is best\n", least,
            most);
    if (!(least < most) || (least >= -4 && most <= 4))
        return 0;
    if (n > 1 && n <= (flat ? PP_FLOATS_MAX : PP_CHANNELS_MAX) && !are_alike(of, n)) {
        fprintf(f,
                "; these two keys would do that, with a number for each %s (its mean and its "
                "standard deviation):\n",
                flat ? "column" : "channel");
        print_columns(f, of, n, each.n);
    } else {
        fprintf(f, "; these two keys would do that:\n; mean = %.4g\n; std = %.4g\n",
                most / 2 + least / 2, most / 2 - least / 2);
    }
    return 0;
}
