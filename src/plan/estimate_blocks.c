/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates the blocks of a divided transformer: time and memory of a micro-batch. A block takes
 * the sum of pp_price_node() over its nodes, divided by tensor and context, and its messages.
 * Activations follow Korthikanti et al. (arXiv 2205.05198), sharding Rajbhandari et al.
 * (1910.02054), context Liu et al. (2310.01889), experts Lepikhin et al. (2006.16668).
 */
#include "estimate.h"
#include "search.h"

#include <math.h>

#include "ppcli/conf/config.h"

/* ---- links */

struct pp_link estimate_link(const struct pp_estimate_spec *s, int ranks, int stride)
{
    const struct pp_cluster *c = s->cluster;
    if ((double)(ranks - 1) * stride < c->ranks)
        return c->within;
    return c->between;
}

double estimate_ring(const struct pp_estimate_spec *s, int ranks, int stride, double bytes)
{
    const struct pp_cluster *c = s->cluster;
    struct pp_link l = estimate_link(s, ranks, stride);
    double members = fmin(ranks, fmax(1, floor(c->ranks / stride)));
    if (ranks < 2)
        return 0;
    double near = (ranks - 1.0) / ranks * bytes * c->within.byte;
    double wires = c->shared > 0 ? 1 : members;
    double far = (ranks > members ? 1 - members / ranks : 0) * bytes * l.byte / wires;
    return fmax(near, far) + (ranks - 1) * l.latency;
}

/* ---- blocks */

static int layer_of(const struct pp_model *m, int kind)
{
    return kind == EMBEDDING ? 0 : kind == BLOCK ? 1 : m->n_layers - 1;
}

static bool is_product(const struct pp_node *n)
{
    return n->op->cost && !(n->op->kernels & PP_USES(attention_forward));
}

/* Returns whether the node is in a block's feed-forward, which is from the block's third product to
 * its last one. */
static bool feeds_forward(const struct pp_model *m, const struct pp_node *n)
{
    const struct pp_layer *l = &m->layers[n->layer];
    int before = 0, after = 0;
    for (int i = l->first_node; i <= l->last_node; i++) {
        before += &m->nodes[i] <= n && is_product(&m->nodes[i]);
        after += &m->nodes[i] >= n && is_product(&m->nodes[i]);
    }
    return n->layer > 0 && n->layer < m->n_layers - 1 && before > 2 && after > 0;
}

/* Returns how many experts compute each token in this node; 0 if the node is not in an expert. */
static int experts_of_token(const struct pp_estimate_spec *s, const struct pp_node *n)
{
    bool has = s->cfg->model.experts > 0 && feeds_forward(s->model, n);
    return has ? s->cfg->model.top_k : 0;
}

double estimate_floats(const struct pp_config *cfg, const struct pp_model *m)
{
    double floats = (double)pp_model_floats(m), routers = (double)cfg->model.n_embd;
    if (!pp_estimate_takes(cfg) || cfg->model.experts == 0)
        return floats;
    for (int i = 0; i < m->n_nodes; i++)
        if (feeds_forward(m, &m->nodes[i]))
            floats += (cfg->model.experts - 1) * (double)m->nodes[i].n_floats;
    return floats + routers * cfg->model.experts * cfg->model.n_layer;
}

/* Returns the number of ranks that share the parameters of the node. */
static double count_sharers(const struct estimation *e, const struct pp_node *n)
{
    bool whole = experts_of_token(e->s, n) > 0 && parallel_has_whole_experts(e->p);
    return whole ? 1 : e->p->tensor;
}

/* Returns the seconds that F, I or W (k says which) of a micro-batch takes in this node. */
static double node_time(const struct estimation *e, const struct pp_node *n, int k)
{
    const struct pp_cluster *c = e->s->cluster;
    double bytes[TIMES] = {0}, width = e->p->tensor * e->p->context;
    int of = experts_of_token(e->s, n), times = of > 0 ? of : 1;
    double experts = of > 0 ? (double)e->s->cfg->model.experts / e->p->expert : 1;
    bool fp8 = e->s->fp8 && is_product(n) && n->layer == layer_of(e->s->model, BLOCK);
    const struct pp_node_use u = {.cluster = c,
                                  .model = e->s->model,
                                  .samples = times * e->rows / width,
                                  .value_bytes = (size_t)VALUE,
                                  .weights =
                                      (double)n->n_floats * VALUE * experts / count_sharers(e, n),
                                  .gradients = MASTER / VALUE,
                                  .peak = fp8 ? c->fp8 : c->peak[e->s->cfg->run.precision],
                                  .share = is_product(n) ? c->product : c->attention};
    double t = pp_price_node(&u, n, k);
    if (!fp8 || k == W || t == 0)
        return t;
    pp_node_traffic(e->s->model, n, (size_t)VALUE, bytes);
    return t + u.samples * bytes[k] / 2 / VALUE * CAST / (c->bandwidth * c->passes);
}

double estimate_passed(const struct estimation *e)
{
    const struct pp_model *m = e->s->model;
    double floats = (double)pp_shape_floats(&m->values[m->layers[layer_of(m, BLOCK)].y]);
    return e->rows * floats * VALUE / e->p->context;
}

/* Returns the seconds that the messages of a block's F take; those of its I take as long. They are
 * two all-gathers and two reduce-scatters of tensor parallelism (*tensor), which products hide in
 * part; the keys and values that the ranks of context parallelism pass on, as far as attention does
 * not hide them; and two all-to-alls of experts. */
static double block_messages(const struct estimation *e, double attention, double *tensor)
{
    const struct pp_estimate_spec *s = e->s;
    const struct pp_division *p = e->p;
    const struct pp_node *n =
        &s->model->nodes[s->model->layers[layer_of(s->model, BLOCK)].first_node];
    double bytes = estimate_passed(e);
    while (!(n->op->kernels & PP_USES(attention_forward)))
        n++;
    double kv =
        2.0 * n->attention.kv_heads / n->attention.heads * bytes / p->tensor * (p->context - 1);
    const struct pp_link c = estimate_link(s, p->context, p->tensor);
    double context = kv * c.byte + (p->context - 1) * c.latency;
    bool whole = parallel_has_whole_experts(p);
    const struct pp_link x = estimate_link(s, p->expert, whole ? 1 : p->tensor);
    double far = (p->expert - 1.0) / p->expert * s->cfg->model.top_k * bytes / p->tensor;
    double experts = p->expert > 1 ? 2 * (far * x.byte + x.latency) : 0;
    *tensor = (whole ? 2 : 4) * estimate_ring(s, p->tensor, 1, bytes) * (1 - s->cluster->hidden);
    return *tensor + experts + (p->context > 1 ? fmax(c.latency, context - attention) : 0);
}

/* Returns whether the backward pass reads the value of this node. */
static bool is_read_back(const struct pp_model *m, const struct pp_node *n)
{
    const struct pp_layer *l = &m->layers[n->layer];
    uint64_t reads = n->reads & PP_READS_Y_IN_I;
    for (int i = l->first_node; i <= l->last_node; i++) {
        const struct pp_node *to = &m->nodes[i];
        for (int j = 0; j < to->n_x; j++)
            reads |= to->x[j] == n->y ? to->reads & PP_READS_INPUT(j) : 0;
    }
    return reads || &m->nodes[l->last_node] == n; /* the next block reads that one */
}

/* Returns the bytes of a micro-batch that a node keeps for the backward pass. A product with an
 * activation keeps the activation's input, too. */
static double kept_bytes(const struct estimation *e, const struct pp_node *n)
{
    const struct pp_model *m = e->s->model;
    int k = experts_of_token(e->s, n), both = is_product(n) && n->activation != PP_ACT_NONE;
    double bytes = (double)pp_shape_floats(&n->out) * VALUE * e->rows;
    return is_read_back(m, n)
               ? (k > 0 ? k : 1) * (1 + both) * bytes / (e->p->tensor * e->p->context)
               : 0;
}

/* Returns whether selective recomputation recomputes the node: a norm, or a node of the
 * feed-forward. */
static bool is_selected(const struct estimation *e, const struct pp_node *n)
{
    return feeds_forward(e->s->model, n) || (n->n_params > 0 && !n->op->cost);
}

static void add_block_node(struct estimation *e, int kind, const struct pp_node *n,
                           double *attention, double *selected)
{
    struct pieces *x = &e->pieces;
    bool is_expert = experts_of_token(e->s, n) > 0;
    double t[TIMES], floats = (double)n->n_floats / count_sharers(e, n), bytes = kept_bytes(e, n);
    for (int k = 0; k < TIMES; k++)
        x->t[kind][k] += t[k] = node_time(e, n, k);
    *attention += n->op->kernels & PP_USES(attention_forward) ? t[F] : 0;
    if (is_expert)
        x->experts += floats * e->s->cfg->model.experts / e->p->expert;
    else
        x->floats[kind] += floats;
    if (kind == BLOCK && is_selected(e, n))
        *selected += t[F];
    if (kind == BLOCK && e->p->redo != PP_REDO_NONE &&
        (e->p->redo == PP_REDO_FULL || is_selected(e, n)))
        x->working += bytes;
    else
        x->keeps[kind] += bytes;
}

static void price_kind(struct estimation *e, int kind)
{
    const struct pp_layer *l = &e->s->model->layers[layer_of(e->s->model, kind)];
    struct pieces *x = &e->pieces;
    double attention = 0, selected = 0;
    for (int i = l->first_node; i <= l->last_node; i++)
        add_block_node(e, kind, &e->s->model->nodes[i], &attention, &selected);
    if (kind != BLOCK)
        return;
    double messages = block_messages(e, attention, &x->tensor);
    x->t[BLOCK][F] += messages;
    x->t[BLOCK][I] += messages;
    if (e->p->redo == PP_REDO_FULL)
        x->keeps[BLOCK] = estimate_passed(e) / e->p->tensor;
    double again = parallel_has_whole_experts(e->p) ? 0 : x->tensor / 2;
    if (e->p->redo != PP_REDO_NONE) /* two of its four messages are the feed-forward's */
        x->redo = e->p->redo == PP_REDO_FULL ? x->t[BLOCK][F] : selected + again;
}

/* With zero = 3, raises the times of a block to those of its messages where these take longer than
 * computing: its weights come from all replicas for its F and for its I, and its gradients go to
 * all replicas. */
static void price_shards(struct estimation *e)
{
    const struct pp_division *p = e->p;
    struct pieces *x = &e->pieces;
    int d = p->replicas * p->context;
    if (p->zero < 3 || d == 1)
        return;
    double bytes = (x->floats[BLOCK] + x->experts) * VALUE;
    double way = estimate_ring(e->s, d, p->tensor, bytes);
    x->t[BLOCK][F] = fmax(x->t[BLOCK][F], way);
    x->t[BLOCK][I] = fmax(x->t[BLOCK][I], way);
    x->t[BLOCK][W] = fmax(x->t[BLOCK][W], way * MASTER / VALUE);
}

static void price_loss(struct estimation *e)
{
    const struct pp_model *m = e->s->model;
    double logits = (double)pp_shape_floats(&m->values[m->n_values - 1]);
    double values = e->rows * logits / (e->p->tensor * e->p->context);
    e->pieces.t[HEAD][I] += pp_price_loss(e->s->cluster, values, VALUE);
    e->pieces.keeps[HEAD] = (VALUE + MASTER) * values;
}

void estimate_pieces(struct estimation *e)
{
    for (int kind = 0; kind < KINDS; kind++)
        price_kind(e, kind);
    e->pieces.tied = (double)e->s->model->n_tied / e->p->tensor;
    price_shards(e);
    price_loss(e);
}

double estimate_flops(const struct pp_estimate_spec *s)
{
    const struct pp_model *m = s->model;
    double flops = 0;
    for (int i = 0; i < m->n_nodes; i++) {
        struct pp_layer_cost c = {0};
        struct pp_node as_first = m->nodes[i];
        if (!as_first.op->cost)
            continue;
        as_first.op->cost(&as_first, &c);
        int k = 1, first = m->layers[layer_of(m, BLOCK)].first_node, l = m->nodes[i].layer;
        if (s->cfg->model.experts > 0 && l > 0 && l < m->n_layers - 1 &&
            experts_of_token(s, &m->nodes[first + i - m->layers[l].first_node]) > 0)
            k = s->cfg->model.top_k;
        flops += k * (c.flops_f + c.flops_i + c.flops_w);
    }
    return flops;
}
