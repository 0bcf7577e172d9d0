/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a step's numbers are numbers: decided by all ranks together, before any of them changes a
 * weight.
 *
 * Proof first. A weight gradient is a sum over rows of x * dz, so rows * (largest |x|) * (largest
 * |dz|), measured while these are in the cache, tells after a rank's last input gradient that the
 * weight gradients still to come will be finite. Then the rank votes. Of all ranks the first
 * stage's has its last input gradient last, and has weight gradients to compute after it, so the
 * outcome is there when it is wanted: steps that overlap go on overlapping.
 *
 * Where the proof fails (a NaN, or values near 1e19), and where gradients are clipped, which needs
 * their norm anyway, all ranks look at the gradients themselves.
 */
#include "exec_internal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"

/* What a rank found, for the message. */
struct exec_finding {
    int32_t input; /* first layer whose input is not finite, 0: the data; -1: none */
    int32_t mb;    /* its micro-batch */
    int32_t param; /* last parameter of the model whose gradient is not finite; -1: none */
    int32_t loss;  /* 1: the loss is not finite */
    float bad;     /* of input or gradient: Inf or NaN */
    float weight;  /* the largest there is */
};

/* Whether the gradients themselves are looked at in every step; else there is a vote first. */
static bool reads(const struct pp_exec *x)
{
    const struct pp_config *cfg = x->layout->cfg;
    return cfg->train.clip_norm > 0 || cfg->train.read_gradients;
}

int exec_finite_create(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    for (int i = 0; i < l->model->n_layers; i++) {
        x->n_params += l->model->layers[i].n_params;
    }
    size_t n = (size_t)x->n_params + 1;
    x->norms = pp_alloc(n, sizeof(*x->norms));
    x->all_norms = pp_alloc((size_t)l->ranks * n, sizeof(*x->all_norms));
    x->findings = pp_alloc((size_t)l->ranks, sizeof(*x->findings));
    return x->norms && x->all_norms && x->findings ? 0 : PP_ERESOURCE;
}

void exec_finite_destroy(struct pp_exec *x)
{
    pp_free(x->norms);
    pp_free(x->all_norms);
    pp_free(x->findings);
}

void exec_finite_begin(struct pp_exec *x, enum pp_split split)
{
    for (int k = 0; k < x->n_stages; k++) {
        pp_chunk_measure(x->stages[k].chunk, split == PP_SPLIT_TRAIN && !x->be->caps.async);
    }
    x->bad_mb = -1;
}

void exec_finite_forward(struct pp_exec *x, const struct exec_stage *st, int mb)
{
    if (st->chunk->range.bad_input >= 0 && x->bad_mb < 0) {
        x->bad_mb = mb;
    }
}

int exec_finite_sums(struct pp_exec *x, struct pp_loss_sums *out)
{
    static const struct pp_loss_sums zero;
    const struct pp_loss_sums *from = x->sums[PP_SPLIT_TRAIN];
    *out = zero;
    return from ? pp_backend_to_host(x->be, out, from, sizeof(*out)) : 0;
}

/* Twice over, for the roundings on the way, of which there are at most as many as rows. */
static bool is_proved(const struct pp_chunk *c, int rows)
{
    double most = 2.0 * rows * fmax((double)c->range.x, 1.0) * (double)c->range.dz;
    return isfinite(c->range.x) && most < (double)FLT_MAX;
}

int exec_finite_vote(struct pp_exec *x, int rows)
{
    if (reads(x)) {
        return 0;
    }
    bool yes = !x->be->caps.async;
    for (int k = 0; k < x->n_stages && yes; k++) {
        yes = is_proved(x->stages[k].chunk, rows);
    }
    if (yes) {
        struct pp_loss_sums sums;
        PP_TRY(exec_finite_sums(x, &sums));
        yes = isfinite(sums.loss);
    }
    return pp_transport_post_vote(x->tp, yes);
}

int exec_first_param(const struct pp_exec *x, const struct pp_chunk *c)
{
    int index = 0;
    for (int i = 0; i < c->first; i++) {
        index += x->layout->model->layers[i].n_params;
    }
    return index;
}

/*
 * Collective: squares are summed per parameter by the rank that holds it and then, on every rank,
 * parameter by parameter in canonical order: the same bits however the model is cut. *out_norm is
 * not finite when any gradient, or the loss of any replica, is not.
 */
static int norm_of_all(struct pp_exec *x, double *out_norm)
{
    const struct pp_layout *l = x->layout;
    size_t n = (size_t)x->n_params + 1;
    struct pp_loss_sums sums;
    memset(x->norms, 0, n * sizeof(*x->norms));
    for (int k = 0; k < x->n_stages; k++) {
        const struct pp_chunk *c = x->stages[k].chunk;
        int count = pp_chunk_param_count(c);
        for (int i = 0; i < count; i++) {
            size_t offset, size;
            pp_chunk_param(c, i, &offset, &size);
            PP_TRY(pp_backend_sum_squares(x->be, size, c->grads + offset, &x->squares[i]));
        }
        PP_TRY(pp_backend_to_host(x->be, &x->norms[exec_first_param(x, c)], x->squares,
                                  (size_t)count * sizeof(*x->squares)));
    }
    PP_TRY(exec_finite_sums(x, &sums));
    x->norms[x->n_params] = isfinite(sums.loss) ? 0 : NAN;
    PP_TRY(pp_transport_allgather(x->tp, x->norms, n * sizeof(*x->norms), x->all_norms));
    double sum = 0;
    for (int i = 0; i < x->n_params; i++) {
        /* Only the rank that holds parameter i wrote something other than zero. */
        double squares = 0;
        for (int r = 0; r < l->stages; r++) {
            squares += x->all_norms[(size_t)r * n + (size_t)i];
        }
        sum += squares;
    }
    for (int r = 0; r < l->ranks; r++) {
        sum += x->all_norms[(size_t)r * n + (size_t)x->n_params];
    }
    *out_norm = sqrt(sum);
    return 0;
}

/* --- what was wrong -----------------------------------------------------------------------------
 */

static int find(struct pp_exec *x, struct exec_finding *out)
{
    struct pp_loss_sums sums;
    *out = (struct exec_finding){.input = -1, .mb = x->bad_mb, .param = -1};
    for (int k = 0; k < x->n_stages; k++) {
        const struct pp_chunk *c = x->stages[k].chunk;
        if (c->range.bad_input >= 0 && out->input < 0) {
            out->input = c->range.bad_input;
            out->bad = c->range.bad;
        }
        if (!x->be->caps.async) {
            PP_TRY(pp_backend_largest(x->be, c->n_floats, c->params, &out->weight));
        }
    }
    for (int i = x->n_params - 1; i >= 0 && out->param < 0; i--) {
        if (!isfinite(x->norms[i])) {
            out->param = i;
            out->bad = out->input < 0 ? (float)x->norms[i] : out->bad;
        }
    }
    PP_TRY(exec_finite_sums(x, &sums));
    out->loss = !isfinite(sums.loss);
    return 0;
}

static const struct pp_param *param_of(const struct pp_model *m, int index, int *out_layer)
{
    int i = 0;
    while (index >= m->layers[i].n_params) {
        index -= m->layers[i++].n_params;
    }
    *out_layer = i;
    return &m->layers[i].params[index];
}

/* "on rank 1 (stage 1)", which holds that layer in this replica. */
static void say_where(const struct pp_layout *l, int replica, int layer, char *out, size_t bytes)
{
    int s = 0;
    while (l->last[s] < layer) {
        s++;
    }
    snprintf(out, bytes, "on rank %d (stage %d)", replica * l->stages + l->rank_of[s], s);
}

/* The first in the order of computing: of outputs the lowest layer, then the loss, of gradients the
 * highest layer. */
static int fail_finding(const struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    const struct exec_finding *input = NULL, *loss = NULL, *grad = NULL;
    float weight = 0;
    char where[64], what[128], about[64] = "";
    for (int r = l->ranks - 1; r >= 0; r--) {
        const struct exec_finding *f = &x->findings[r];
        input = f->input >= 0 && (!input || f->input <= input->input) ? f : input;
        loss = f->loss ? f : loss;
        grad = f->param >= 0 && (!grad || f->param >= grad->param) ? f : grad;
        weight = f->weight > weight || isnan(f->weight) ? f->weight : weight;
    }
    const struct exec_finding *first = input ? input : loss ? loss : grad;
    pp_assert(first != NULL);
    int replica = (int)(first - x->findings) / l->stages;
    int layer = l->model->n_layers - 1;
    const char *value = isnan(first->bad) ? "NaN" : "Inf";
    if (input && input->input == 0) {
        layer = 0;
        snprintf(what, sizeof(what), "the input of micro-batch %d is not finite (%s),", input->mb,
                 value);
    } else if (input) {
        layer = input->input - 1;
        snprintf(what, sizeof(what),
                 "the output of layers.%d is not finite (%s), first of micro-batch %d,", layer,
                 value, input->mb);
    } else if (loss) {
        snprintf(what, sizeof(what), "the loss is not finite, from the output of layers.%d", layer);
    } else {
        snprintf(what, sizeof(what), "the gradient of %s is not finite (%s)",
                 param_of(l->model, grad->param, &layer)->name, value);
    }
    say_where(l, replica, layer, where, sizeof(where));
    if (!isfinite(weight)) {
        snprintf(about, sizeof(about), "; weights are not finite either");
    } else if (weight > 0) {
        snprintf(about, sizeof(about), "; the largest weight is %.3g", (double)weight);
    }
    return pp_fail(PP_EDIVERGED, "%s %s%s", what, where, about);
}

/* Collective: everybody's finding to everybody, so that all say the same; the sums as they were. */
static int fail_together(struct pp_exec *x)
{
    struct exec_finding mine;
    PP_TRY(find(x, &mine));
    PP_TRY(pp_transport_allgather(x->tp, &mine, sizeof(mine), x->findings));
    if (x->sums[PP_SPLIT_TRAIN]) {
        PP_TRY(pp_backend_to_device(x->be, x->sums[PP_SPLIT_TRAIN], &x->good_sums,
                                    sizeof(x->good_sums)));
        PP_TRY(pp_backend_synchronize(x->be));
    }
    return fail_finding(x);
}

/* Collective: has everybody proved it? */
static int proved_by_all(struct pp_exec *x, int64_t t, bool *out)
{
    *out = false;
    if (reads(x)) {
        return 0;
    }
    exec_event_begin(x, PP_EVENT_VOTE, t);
    PP_TRY(pp_transport_wait_vote(x->tp, out));
    exec_event_end(x);
    return 0;
}

int exec_finite_verdict(struct pp_exec *x, int64_t t, float *out_scale)
{
    bool proved;
    PP_TRY(proved_by_all(x, t, &proved));
    if (!proved) {
        double norm, most = x->layout->cfg->train.clip_norm;
        exec_event_begin(x, PP_EVENT_CLIP, t);
        PP_TRY(norm_of_all(x, &norm));
        if (!isfinite(norm)) {
            int rc = fail_together(x);
            exec_event_end(x);
            return rc;
        }
        /* As torch.nn.utils.clip_grad_norm_: scale = min(1, clip / (norm + 1e-6)). */
        double scale = most > 0 ? most / (norm + 1e-6) : 1;
        *out_scale = scale < 1 ? (float)scale : 1.0f;
        exec_event_end(x);
    }
    return exec_finite_sums(x, &x->good_sums);
}
