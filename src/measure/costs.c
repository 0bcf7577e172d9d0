/* SPDX-License-Identifier: Apache-2.0 */
/* The table of costs. Between two sizes a time lies on the line through both. */
#include "measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SERIAL_LEAST 0.01   /* share of a time: a measurement on a few cores cannot promise less */
#define SERIAL_ASSUMED 0.05 /* where one core is all there is */

int pp_costs_create(int n_layers, const int *sizes, int n_sizes, struct pp_costs **out)
{
    pp_assert(n_layers >= 1 && n_sizes >= 1);
    struct pp_costs *c;
    PP_ALLOC(c, 1);
    c->n_layers = n_layers;
    c->n_sizes = n_sizes;
    c->sizes = pp_alloc((size_t)n_sizes, sizeof(*c->sizes));
    c->layers = pp_alloc((size_t)n_sizes * (size_t)n_layers, sizeof(*c->layers));
    c->input = pp_alloc(2 * (size_t)n_sizes, sizeof(*c->input));
    c->at_once = c->cores = c->threads = 1;
    c->value_bytes = sizeof(float);
    PP_TRY_UNDO(c->sizes && c->layers && c->input ? 0 : PP_ERESOURCE, pp_costs_destroy(&c));
    c->loss = c->input + n_sizes;
    memcpy(c->sizes, sizes, (size_t)n_sizes * sizeof(*sizes));
    *out = c;
    return 0;
}

void pp_costs_destroy(struct pp_costs **costs)
{
    struct pp_costs *c = *costs;
    if (c) {
        pp_free(c->sizes);
        pp_free(c->layers);
        pp_free(c->input);
        pp_free(c->host);
        pp_costs_destroy(&c->next);
        pp_free(c);
        *costs = NULL;
    }
}

int pp_costs_hosts(struct pp_costs *c, const int *host, int n)
{
    int *copy;
    PP_ALLOC(copy, n);
    memcpy(copy, host, (size_t)n * sizeof(*copy));
    pp_free(c->host);
    c->host = copy;
    c->n_hosts = n;
    return 0;
}

/* Where `rows` lies: the size before it, and how far it is on the way to the next one, which may be
 * more than 1. With one size alone times are in proportion to it. */
struct between {
    int at, next;
    double part;
};

static struct between find_size(const struct pp_costs *c, int rows)
{
    if (c->n_sizes == 1)
        return (struct between){0, -1, (double)rows / c->sizes[0]};
    int at = 0;
    while (at + 2 < c->n_sizes && c->sizes[at + 1] <= rows)
        at++;
    double distance = c->sizes[at + 1] - c->sizes[at];
    return (struct between){at, at + 1, (rows - c->sizes[at]) / distance};
}

static double mix_times(struct between b, double at, double next)
{
    double t = b.next < 0 ? at * b.part : at + (next - at) * b.part;
    return t > 0 ? t : 0;
}

static double end_seconds(const struct pp_costs *c, const double *t, int rows)
{
    struct between b = find_size(c, rows);
    return mix_times(b, t[b.at], b.next < 0 ? 0 : t[b.next]);
}

struct pp_layer_seconds pp_costs_layer(const struct pp_costs *c, int layer, int rows)
{
    struct between b = find_size(c, rows);
    size_t n = (size_t)c->n_layers;
    const struct pp_layer_seconds *x = &c->layers[(size_t)b.at * n + (size_t)layer];
    const struct pp_layer_seconds *y =
        b.next < 0 ? x : &c->layers[(size_t)b.next * n + (size_t)layer];
    return (struct pp_layer_seconds){mix_times(b, x->f, y->f), mix_times(b, x->i, y->i),
                                     mix_times(b, x->w, y->w)};
}

void pp_costs_by_layer(const struct pp_costs *c, int rows, double *cost)
{
    for (int i = 0; i < c->n_layers; i++) {
        struct pp_layer_seconds t = pp_costs_layer(c, i, rows);
        cost[i] = t.f + t.i + t.w;
    }
    cost[0] += end_seconds(c, c->input, rows);
    cost[c->n_layers - 1] += end_seconds(c, c->loss, rows);
}

void pp_costs_stage(const struct pp_costs *c, int first, int last, int rows, int k, bool pieces,
                    double out[3])
{
    out[0] = out[1] = out[2] = 0;
    for (int i = first; i <= last; i++) {
        struct pp_layer_seconds t = pp_costs_layer(c, i, rows);
        if (pieces && i == c->n_layers - 1) { /* I computes all of it but a norm */
            out[1] += t.f + t.i + t.w + end_seconds(c, c->loss, rows);
            break;
        }
        out[0] += t.f;
        out[1] += t.i;
        /* one product over the rows of k micro-batches */
        out[2] += k == 1 ? t.w : pp_costs_layer(c, i, k * rows).w / k;
    }
    out[0] += first == 0 ? end_seconds(c, c->input, rows) : 0;
    out[0] += last == c->n_layers - 1 && !pieces ? end_seconds(c, c->loss, rows) : 0;
}

const struct pp_costs *pp_costs_at(const struct pp_costs *c, int threads)
{
    const struct pp_costs *at = c;
    while (at && at->threads != threads)
        at = at->next;
    return at ? at : c;
}

static void scale_times(const double *one, const double *some, double *to, size_t n, int k,
                        int threads)
{
    for (size_t i = 0; i < n; i++) {
        double s = k > 1 && one[i] > 0 ? (some[i] / one[i] * k - 1) / (k - 1) : SERIAL_ASSUMED;
        s = s < SERIAL_LEAST ? SERIAL_LEAST : s > 1 ? 1 : s;
        to[i] = one[i] * (s + (1 - s) / threads);
    }
}

int pp_costs_scale(const struct pp_costs *one, const struct pp_costs *some, int threads,
                   struct pp_costs **out)
{
    struct pp_costs *c;
    int k = some->threads;
    size_t sizes = (size_t)one->n_sizes, n = sizes * (size_t)one->n_layers;
    PP_TRY(pp_costs_create(one->n_layers, one->sizes, one->n_sizes, &c));
    scale_times(&one->layers->f, &some->layers->f, &c->layers->f, 3 * n, k, threads);
    scale_times(one->input, some->input, c->input, 2 * sizes, k, threads); /* and loss */
    scale_times(&one->optimizer, &some->optimizer, &c->optimizer, 1, k, threads);
    scale_times(&one->add, &some->add, &c->add, 1, k, threads);
    c->at_once = one->at_once;
    c->threads = threads;
    c->measured = k;
    *out = c;
    return 0;
}
