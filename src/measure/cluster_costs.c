/* SPDX-License-Identifier: Apache-2.0 */
/* Computes costs from a machine file and the shapes of a model's nodes, without measuring. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"

/* Returns the share of the machine's peak speed that ppcli's kernels reach for this node. */
static double product_share(const struct pp_cluster *c, const struct pp_node *n)
{
    double attention = c->own_attention > 0 ? c->own_attention : c->attention;
    return n->op->kernels & PP_USES(attention_forward) ? attention
           : n->op->kernels & PP_USES(conv_forward)    ? c->conv
           : c->own_product > 0                        ? c->own_product
                                                       : c->product;
}

/* Returns how many bytes a value occupies in memory: a device keeps bf16, a processor converts it
 * to a float. */
static size_t value_bytes(const struct pp_cluster *c, const struct pp_cluster_use *use)
{
    bool halves = use->precision == PP_PRECISION_BF16 && pp_cluster_has_devices(c);
    return halves ? sizeof(uint16_t) : sizeof(float);
}

double pp_price_node(const struct pp_node_use *u, const struct pp_node *n, int k)
{
    const struct pp_cluster *c = u->cluster;
    struct pp_layer_cost cost = {0};
    double bytes[3] = {0};
    if (n->op->cost)
        n->op->cost(n, &cost);
    pp_node_traffic(u->model, n, u->value_bytes, bytes);
    const double flops[3] = {cost.flops_f, cost.flops_i, cost.flops_w};
    if (flops[k] <= 0 && bytes[k] <= 0)
        return 0;
    /* products read all weights; W reads and writes their gradients */
    double once = k == 2 ? 2 * u->gradients * u->weights : flops[k] > 0 ? u->weights : 0;
    double compute = u->samples * flops[k] / (u->peak * u->share);
    return c->launch + fmax(compute, (u->samples * bytes[k] + once) / (c->bandwidth * c->passes));
}

static double byte_seconds(const struct pp_cluster *c)
{
    return 1 / (c->bandwidth * c->passes);
}

double pp_price_optimizer(const struct pp_cluster *c, int optimizer)
{
    return (3 + 2 * pp_optimizer_moments(optimizer)) * sizeof(float) * byte_seconds(c);
}

double pp_price_loss(const struct pp_cluster *c, double logits, double value_bytes)
{
    return c->launch + logits * 3 * value_bytes * byte_seconds(c);
}

/* Adds the seconds that F, I and W of node `at` take for `rows` rows to t[0], t[1] and t[2]. */
static void add_node(const struct pp_cluster *c, const struct pp_cluster_use *use, int at, int rows,
                     double t[3])
{
    const struct pp_node *n = &use->model->nodes[at];
    const struct pp_node_use u = {.cluster = c,
                                  .model = use->model,
                                  .samples = rows,
                                  .value_bytes = value_bytes(c, use),
                                  .weights = (double)n->n_floats * sizeof(float),
                                  .gradients = 1,
                                  .peak = c->peak[use->precision],
                                  .share = product_share(c, n)};
    for (int k = 0; k < 3; k++)
        t[k] += pp_price_node(&u, n, k);
}

double pp_layer_work(const struct pp_model *m, int layer)
{
    return pp_layer_flops(m, layer) + (double)pp_layer_values(m, layer);
}

/* Returns the measured layer of the machine file with more than `above` rows whose rows are nearest
 * to `rows`; NULL if the file has none. */
static const struct pp_cluster_layer *
find_measured_layer(const struct pp_cluster *c, const char *name, double work, int rows, int above)
{
    const struct pp_cluster_layer *best = NULL;
    for (int i = 0; i < c->n_layers; i++) {
        const struct pp_cluster_layer *l = &c->layers[i];
        bool same = strcmp(l->name, name) == 0 && (l->work == 0 || l->work == work);
        if (same && l->rows > above && (!best || abs(l->rows - rows) < abs(best->rows - rows)))
            best = l;
    }
    return best;
}

static struct pp_layer_seconds layer_of(const struct pp_cluster *c,
                                        const struct pp_cluster_use *use, int i, int rows)
{
    const struct pp_layer *layer = &use->model->layers[i];
    double work = pp_layer_work(use->model, i), t[3] = {0};
    const struct pp_cluster_layer *l = find_measured_layer(c, layer->name, work, rows, 0);
    const struct pp_cluster_layer *next =
        l && rows < l->rows ? find_measured_layer(c, layer->name, work, l->rows, l->rows) : NULL;
    for (int k = 0; l && k < 3; k++) {
        t[k] = l->t[k] * rows / l->rows;
        if (next) { /* fewer rows read as many weights: on the line through two sizes */
            double row = fmax(0, (next->t[k] - l->t[k]) / (next->rows - l->rows));
            t[k] = fmax(t[k], l->t[k] - row * (l->rows - rows));
        }
    }
    for (int n = layer->first_node; !l && n <= layer->last_node; n++)
        add_node(c, use, n, rows, t);
    return (struct pp_layer_seconds){t[0], t[1], t[2]};
}

int pp_costs_of_cluster(const struct pp_cluster *c, const struct pp_cluster_use *use,
                        struct pp_costs **out)
{
    enum {
        SIZES = 8
    };
    int sizes[SIZES] = {1}, n = 1;
    if (c->peak[use->precision] <= 0)
        return pp_fail(PP_ECONFIG, "%s has no device.%s: give it, or set run.precision = f32",
                       c->name, pp_precision_name(use->precision));
    while (n < SIZES && sizes[n - 1] < use->rows) {
        int next = n + 1 < SIZES ? 2 * sizes[n - 1] : use->rows;
        sizes[n++] = next < use->rows ? next : use->rows;
    }
    struct pp_costs *costs = NULL;
    const struct pp_model *m = use->model;
    PP_TRY(pp_costs_create(m->n_layers, sizes, n, &costs));
    costs->value_bytes = (double)value_bytes(c, use);
    for (int s = 0; s < n; s++) {
        for (int i = 0; i < m->n_layers; i++)
            costs->layers[s * m->n_layers + i] = layer_of(c, use, i, sizes[s]);
        costs->input[s] =
            c->launch + 2.0 * sizes[s] * m->inputs * costs->value_bytes * byte_seconds(c);
        costs->loss[s] = pp_price_loss(c, sizes[s] * (double)m->outputs, costs->value_bytes);
    }
    costs->optimizer = pp_price_optimizer(c, use->optimizer);
    costs->add = sizeof(float) * c->within.byte;
    costs->near = c->within;
    costs->far = c->between;
    costs->one_wire = c->shared > 0;
    costs->host_ranks = (int)c->ranks;
    costs->cores = costs->at_once = use->ranks; /* a device for each */
    *out = costs;
    return 0;
}
