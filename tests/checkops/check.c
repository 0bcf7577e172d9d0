/* SPDX-License-Identifier: Apache-2.0 */
/* Compares what a target wrote with what the plain version wrote. */
#include "checkops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/base/base.h"

double longest_of(int count, int length, size_t vs, size_t ks, const float *a)
{
    double most = 0;
    for (int v = 0; v < count; v++) {
        double sum = 0;
        for (int k = 0; k < length; k++) {
            double e = a[(size_t)v * vs + (size_t)k * ks];
            sum += e * e;
        }
        most = fmax(most, sum);
    }
    return sqrt(most);
}

double greatest_of(size_t n, const float *a)
{
    double most = 0;
    for (size_t i = 0; a && i < n; i++)
        most = isinf(a[i]) ? most : fmax(most, fabs((double)a[i])); /* fmax leaves NaN out */
    return most;
}

/* Allowed: |a - b| <= absolute + relative * |b|; NaN only against NaN. Numbers so small that they are
 * taken for 0 are lost, and a norm enlarges. */
static int same_floats(const char *what, const struct output *o, size_t n, const float *got,
                       const float *want, double absolute, double relative)
{
    size_t worst = 0, bad = 0;
    double most = 0;
    absolute += (1 << 20) * (double)FLT_MIN;
    for (size_t i = 0; i < n; i++) {
        double a = got[i], b = want[i];
        if (a == b || (isnan(a) && isnan(b)))
            continue;
        double over = fabs(a - b) - (absolute + relative * fabs(b));
        if (over <= 0)
            continue;
        if (bad == 0 || isnan(over) || over > most) {
            worst = i;
            most = isnan(over) ? INFINITY : over;
        }
        bad++;
    }
    if (bad == 0)
        return 0;
    return pp_fail(PP_ECHECK,
                   "%s: %s[%zu][%zu] is %.9g, the plain version gives %.9g (tolerance %.3g; %zu of "
                   "%zu elements differ)",
                   what, o->name, worst / o->columns, worst % o->columns, (double)got[worst],
                   (double)want[worst], absolute + relative * fabs((double)want[worst]), bad, n);
}

/* The other sums, each of about as many terms of about the same size. */
static bool same_other_sums(const struct pp_loss_sums *got, const struct pp_loss_sums *want,
                            double allowed)
{
    const double a[] = {got->weight, got->squares, got->absolutes, got->sum, got->sum_squares},
                 b[] = {want->weight, want->squares, want->absolutes, want->sum, want->sum_squares};
    bool same = true;
    for (int i = 0; i < 5; i++)
        same = same && (a[i] == b[i] || fabs(a[i] - b[i]) <= allowed + 1e-12 * fabs(b[i]));
    return same;
}

static int same_sums(const char *kernel, const struct output *o, const struct pp_loss_sums *got,
                     const struct pp_loss_sums *want, double part)
{
    double terms = o->scale * ((double)o->columns + fabs(want->loss - o->loss));
    double allowed = ROUNDINGS * EPS * terms + part * fabs(want->loss);
    if (!(fabs(got->loss - want->loss) <= allowed) && got->loss != want->loss &&
        !(isnan(got->loss) && isnan(want->loss))) {
        return pp_fail(PP_ECHECK,
                       "%s: the loss of %zu rows is %.17g, the plain version gives %.17g", kernel,
                       o->columns, got->loss - o->loss, want->loss - o->loss);
    }
    if (!same_other_sums(got, want, allowed))
        return pp_fail(PP_ECHECK, "%s: the sums of errors and weights of %zu rows differ", kernel,
                       o->columns);
    if (got->correct == want->correct && got->rows == want->rows && got->targets == want->targets)
        return 0;
    return pp_fail(PP_ECHECK,
                   "%s: %lld of %lld targets correct, the plain version gives %lld of %lld", kernel,
                   (long long)got->correct, (long long)got->targets, (long long)want->correct,
                   (long long)want->targets);
}

static int same_bytes(const char *kernel, const struct output *o, const uint8_t *got,
                      const uint8_t *want)
{
    for (size_t i = 0; i < o->n * o->size; i++) {
        if (got[i] != want[i])
            return pp_fail(PP_ECHECK, "%s: byte %zu of %s is %d, the plain version gives %d",
                           kernel, i, o->name, got[i], want[i]);
    }
    return 0;
}

/* The rows of an array with gaps, else all of it. */
static int same_output(const char *kernel, const struct output *o, const float *got,
                       const float *want, double part)
{
    double relative = o->scale == EXACT ? 0 : ROUNDINGS * EPS, absolute = relative * o->scale;
    int positions = o->rows[1], heads = o->rows[2];
    int rows = o->rows[0] > 0 ? o->rows[0] * positions * heads : 1;
    size_t n = o->rows[0] > 0 ? o->columns : o->n;
    absolute += part * fmax(greatest_of(o->n, want), o->typical);
    for (int r = 0; r < rows; r++) {
        size_t at = 0;
        if (o->rows[0] > 0)
            at = (size_t)(r / heads / positions) * o->step.sequence +
                 (size_t)(r / heads % positions) * o->step.position +
                 (size_t)(r % heads) * o->step.head;
        PP_TRY(same_floats(kernel, o, n, got + at, want + at, absolute, relative));
    }
    return 0;
}

static const void *array_of(const struct sample *s, size_t at)
{
    const void *p;
    memcpy(&p, (const char *)&s->image + at, sizeof(p));
    return p;
}

/* What no output points into: it was only read. */
static int check_unwritten(const char *kernel, const struct sample *want, const struct sample *got,
                           const struct outputs *o)
{
    for (int i = 0; i < want->n; i++) {
        const struct array *a = &want->arrays[i];
        bool written = false;
        for (int k = 0; k < o->n; k++)
            for (int p = 0; p < a->n_places; p++)
                written |= (const char *)o->of[k].at - (const char *)&want->image ==
                           (ptrdiff_t)a->places[p].at;
        if (!written && memcmp(a->data, got->arrays[i].data, a->n * a->size) != 0)
            return pp_fail(PP_ECHECK, "%s: %s was changed, but is only read", kernel, a->name);
    }
    return 0;
}

int check_outputs(const char *kernel, const struct sample *want, const struct sample *got,
                  const struct outputs *outputs, double part)
{
    for (int i = 0; i < outputs->n; i++) {
        const struct output *o = &outputs->of[i];
        size_t at = (size_t)((const char *)o->at - (const char *)&want->image);
        const void *w = array_of(want, at), *g = array_of(got, at);
        if (!w)
            continue;
        if (o->size == sizeof(struct pp_loss_sums)) {
            PP_TRY(same_sums(kernel, o, g, w, part));
        } else if (o->size == sizeof(double)) {
            double a = *(const double *)g, b = *(const double *)w;
            if (!(fabs(a - b) <= 1e-12 * fabs(b)))
                return pp_fail(PP_ECHECK, "%s is %.17g, the plain version gives %.17g", kernel, a,
                               b);
        } else if (o->size == sizeof(float)) {
            PP_TRY(same_output(kernel, o, g, w, part));
        } else {
            PP_TRY(same_bytes(kernel, o, g, w));
        }
    }
    return check_unwritten(kernel, want, got, outputs);
}
