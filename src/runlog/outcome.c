/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts what a model gets right and wrong. Mistakes are kept as pairs of classes and sorted when
 * they are asked for, so any number of classes costs only what it gets wrong.
 */
#include "outcome.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

void pp_probabilities(enum pp_loss_kind kind, const float *outputs, int n, double *out)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        most = (double)outputs[i] > most ? (double)outputs[i] : most;
    for (int i = 0; i < n; i++) {
        out[i] = kind == PP_LOSS_BCE ? 1 / (1 + exp(-(double)outputs[i]))
                                     : exp((double)outputs[i] - most);
        sum += out[i];
    }
    for (int i = 0; i < n && kind != PP_LOSS_BCE; i++)
        out[i] /= sum;
}

void outcome_interval(int64_t hits, int64_t n, double out[2])
{
    const double z = 1.959963984540054, m = (double)n, p = n > 0 ? (double)hits / m : (double)NAN;
    double middle = (p + z * z / (2 * m)) / (1 + z * z / m);
    double half = z / (1 + z * z / m) * sqrt(p * (1 - p) / m + z * z / (4 * m * m));
    out[0] = hits == 0 ? 0 : middle - half;
    out[1] = hits == n ? 1 : middle + half;
}

static int allocate_counts(struct pp_outcome *o)
{
    size_t n = (size_t)o->outputs;
    PP_ALLOC(o->p, n);
    if (pp_loss_takes_numbers(o->kind))
        PP_ALLOC(o->numbers, n);
    else
        PP_ALLOC(o->classes, n);
    return 0;
}

int pp_outcome_create(enum pp_loss_kind kind, int outputs, double threshold, const char *names,
                      struct pp_outcome **out)
{
    PP_OWN(pp_outcome_destroy) struct pp_outcome *o = NULL;
    PP_ALLOC(o, 1);
    o->kind = kind;
    o->outputs = outputs;
    o->threshold = threshold;
    PP_TRY(allocate_counts(o));
    PP_TRY(names ? pp_preprocessing_parse("data", names, &o->names) : 0);
    *out = o;
    o = NULL;
    return 0;
}

static void free_mistake(struct pp_mistake *m)
{
    pp_free(m->numbers);
    free(m->shown);
    *m = (struct pp_mistake){0};
}

void pp_outcome_destroy(struct pp_outcome **outcome)
{
    struct pp_outcome *o = *outcome;
    if (!o)
        return;
    for (int i = 0; i < o->n_worst; i++)
        free_mistake(&o->worst[i]);
    pp_preprocessing_fini(&o->names);
    pp_free(o->p);
    pp_free(o->classes);
    pp_free(o->numbers);
    pp_free(o->wrong);
    pp_free(o->pairs);
    pp_free(o);
    *outcome = NULL;
}

const struct pp_preprocessing *pp_outcome_names(const struct pp_outcome *o)
{
    return &o->names;
}

struct pp_mistake *pp_outcome_mistakes(struct pp_outcome *o, int *out_n)
{
    *out_n = o->n_worst;
    return o->worst;
}

/* Makes a place among the worst mistakes for one of this weight; NULL: it is not among them. */
static struct pp_mistake *place_mistake(struct pp_outcome *o, double weight)
{
    int at = o->n_worst;
    while (at > 0 && weight > o->worst[at - 1].weight)
        at--;
    if (at == PP_MISTAKES_MAX)
        return NULL;
    if (o->n_worst == PP_MISTAKES_MAX)
        free_mistake(&o->worst[--o->n_worst]);
    memmove(&o->worst[at + 1], &o->worst[at], (size_t)(o->n_worst - at) * sizeof(*o->worst));
    o->n_worst++;
    o->worst[at] = (struct pp_mistake){.label = -1, .prediction = -1, .weight = weight};
    return &o->worst[at];
}

/* ---- classes */

static int note_wrong(struct pp_outcome *o, uint32_t sample, int label, int prediction)
{
    if (o->n_wrong == o->wrong_max) {
        size_t most = o->wrong_max > 0 ? 2 * o->wrong_max : 256;
        uint64_t *grown = pp_realloc(o->wrong, most, sizeof(*grown));
        if (!grown)
            return PP_ERESOURCE;
        o->wrong = grown;
        o->wrong_max = most;
    }
    o->wrong[o->n_wrong++] = (uint64_t)label << 32 | (uint32_t)prediction;
    struct pp_mistake *m = place_mistake(o, o->p[prediction]);
    if (m) {
        m->sample = sample;
        m->label = label;
        m->prediction = prediction;
    }
    return 0;
}

static int add_class(struct pp_outcome *o, uint32_t sample, int label, const float *outputs)
{
    int best = 0, above = 0;
    for (int i = 1; i < o->outputs; i++)
        best = outputs[i] > outputs[best] ? i : best;
    for (int i = 0; i < o->outputs; i++) /* of equal outputs the first ranks higher */
        above += outputs[i] > outputs[label] || (outputs[i] >= outputs[label] && i < label);
    pp_probabilities(o->kind, outputs, o->outputs, o->p);
    int bin = o->p[best] > 0 ? (int)(o->p[best] * OUTCOME_BINS) : 0;
    struct outcome_bin *b = &o->bins[bin < OUTCOME_BINS ? bin : OUTCOME_BINS - 1];
    b->n++;
    b->confidence += o->p[best];
    b->hits += best == label;
    o->n++;
    o->hits += best == label;
    o->top5 += above < 5;
    o->classes[label].samples++;
    o->classes[best].predicted++;
    o->classes[label].hits += best == label;
    return best == label ? 0 : note_wrong(o, sample, label, best);
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int compare_pairs(const void *a, const void *b)
{
    const struct outcome_pair *x = a, *y = b;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return x->label != y->label ? x->label - y->label : x->prediction - y->prediction;
}

int outcome_count_pairs(struct pp_outcome *o)
{
    size_t n = 0;
    if (o->pairs || o->n_wrong == 0)
        return 0;
    qsort(o->wrong, o->n_wrong, sizeof(*o->wrong), compare_keys);
    for (size_t i = 0; i < o->n_wrong; i++)
        n += i == 0 || o->wrong[i] != o->wrong[i - 1];
    PP_ALLOC(o->pairs, n);
    for (size_t i = 0; i < o->n_wrong; i++) {
        if (i == 0 || o->wrong[i] != o->wrong[i - 1])
            o->pairs[o->n_pairs++] =
                (struct outcome_pair){(int)(o->wrong[i] >> 32), (int)(uint32_t)o->wrong[i], 0};
        o->pairs[o->n_pairs - 1].n++;
    }
    qsort(o->pairs, (size_t)o->n_pairs, sizeof(*o->pairs), compare_pairs);
    return 0;
}

struct outcome_shares outcome_shares_of(int64_t hits, int64_t samples, int64_t predicted)
{
    return (struct outcome_shares){
        .precision = predicted > 0 ? (double)hits / (double)predicted : (double)NAN,
        .recall = samples > 0 ? (double)hits / (double)samples : (double)NAN,
        .f1 = samples + predicted > 0 ? 2 * (double)hits / (double)(samples + predicted)
                                      : (double)NAN};
}

double outcome_calibration_error(const struct pp_outcome *o)
{
    double sum = 0;
    for (int i = 0; i < OUTCOME_BINS; i++)
        sum += fabs((double)o->bins[i].hits - o->bins[i].confidence);
    return o->n > 0 ? sum / (double)o->n : (double)NAN;
}

/* ---- numbers */

static const struct pp_target *target_of(const struct pp_outcome *o, int i)
{
    return i < o->names.n_targets ? &o->names.targets[i] : NULL;
}

static int keep_numbers(struct pp_outcome *o, uint32_t sample, double error, const float *targets,
                        const float *outputs)
{
    struct pp_mistake *m = error > 0 ? place_mistake(o, error) : NULL;
    if (!m)
        return 0;
    m->sample = sample;
    PP_ALLOC(m->numbers, 2 * (size_t)o->outputs);
    for (int i = 0; i < o->outputs; i++) {
        m->numbers[i] = outcome_in_units(o, i, targets[i]);
        m->numbers[o->outputs + i] =
            o->kind == PP_LOSS_BCE ? o->p[i] : outcome_in_units(o, i, outputs[i]);
    }
    return 0;
}

/* Counts an output that is yes or no; returns how wrong it is. */
static double add_yes_no(struct pp_outcome *o, int i, double target)
{
    struct outcome_number *k = &o->numbers[i];
    bool yes = target >= 0.5, said = o->p[i] > o->threshold;
    k->yes += yes;
    k->said += said;
    k->both += yes && said;
    o->n_marks++;
    o->hits += yes == said;
    return yes == said ? 0 : fabs(o->p[i] - target);
}

/* Adds a target and its error; sums are taken of differences from the first target, as its mean may
 * be large. */
static double add_number(struct pp_outcome *o, int i, double target, double output)
{
    struct outcome_number *k = &o->numbers[i];
    k->first = o->n == 0 ? target : k->first;
    double d = target - k->first, e = output - target;
    k->sum += d;
    k->squares += d * d;
    k->errors += fabs(e);
    k->square_errors += e * e;
    return fabs(e);
}

static int add_numbers(struct pp_outcome *o, uint32_t sample, const float *targets,
                       const float *outputs)
{
    double worst = 0;
    if (o->kind == PP_LOSS_BCE)
        pp_probabilities(o->kind, outputs, o->outputs, o->p);
    for (int i = 0; i < o->outputs; i++) {
        double e = o->kind == PP_LOSS_BCE
                       ? add_yes_no(o, i, (double)targets[i])
                       : add_number(o, i, (double)targets[i], (double)outputs[i]);
        worst = e > worst ? e : worst;
    }
    o->n++;
    return keep_numbers(o, sample, worst, targets, outputs);
}

double outcome_in_units(const struct pp_outcome *o, int i, float x)
{
    const struct pp_target *t = target_of(o, i);
    return t && o->kind != PP_LOSS_BCE ? (double)x * t->std + t->mean : (double)x;
}

struct outcome_errors outcome_errors_of(const struct pp_outcome *o, int i)
{
    const struct outcome_number *k = &o->numbers[i];
    const struct pp_target *t = target_of(o, i);
    double n = (double)o->n, unit = t ? t->std : 1, spread = k->squares - k->sum * k->sum / n;
    return (struct outcome_errors){.r2 = spread > 0 ? 1 - k->square_errors / spread : (double)NAN,
                                   .mae = unit * k->errors / n,
                                   .rmse = unit * sqrt(k->square_errors / n)};
}

/* ---- both */

int pp_outcome_add(struct pp_outcome *o, uint32_t sample, uint32_t label, const float *targets,
                   const float *outputs)
{
    return o->numbers ? add_numbers(o, sample, targets, outputs)
                      : add_class(o, sample, (int)label, outputs);
}
