/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that all numbers of a step are finite. All ranks decide together, before any rank changes
 * a weight.
 *
 * If values can be measured as they are computed, the ranks prove it first. Each rank keeps two
 * maxima, of activations and of gradients; from these each layer bounds its weight gradients. So
 * after its last input gradient a rank knows that its remaining weight gradients will be finite,
 * and votes. The rank of the first stage has its last input gradient after all other ranks, and
 * still has weight gradients to compute, so the result of the vote is there when it is needed and
 * steps keep overlapping.
 *
 * All ranks read the gradients themselves if the proof fails (a NaN, values near 1e19, a layer
 * without a bound), if values cannot be measured (a device that lags its host), or if gradients are
 * clipped, which needs their norm anyway.
 */
#include "exec_internal.h"

#include <float.h>
#include <math.h>

/* The bad values that a rank found, for the message. */
struct exec_finding {
    int32_t input; /* 1 + first layer whose output is not finite, 0: the data; -1: all finite */
    int32_t mb;    /* micro-batch of `input` */
    int32_t param; /* last parameter of the model with a gradient that is not finite; -1: none */
    int32_t loss;  /* 1: the loss is not finite */
    float bad;     /* value of input or gradient: Inf or NaN */
    float weight;  /* the largest weight */
    char refusal[2 * PP_EXEC_WHAT]; /* why this rank could not read the step's data; "": it could */
};

int exec_finite_create(struct pp_exec *x)
{
    x->check.measures = !x->be->caps.async && pp_model_bounds(x->layout->model);
    x->check.proves = x->check.measures && pp_layout_proves_finite(x->layout);
    x->check.found = pp_alloc((size_t)x->layout->ranks, sizeof(*x->check.found));
    return x->check.found ? 0 : PP_ERESOURCE;
}

void exec_finite_begin(struct pp_exec *x, enum pp_split split)
{
    for (int k = 0; k < x->n_stages; k++) {
        pp_chunk_measure(x->stages[k].chunk, split == PP_SPLIT_TRAIN && x->check.measures);
        x->stages[k].chunk->looks = x->check.looks;
    }
    x->check.bad_mb = -1;
}

void exec_finite_note_forward(struct pp_exec *x, const struct exec_stage *st, int mb)
{
    if (st->chunk->range.bad_input >= 0 && x->check.bad_mb < 0)
        x->check.bad_mb = mb;
}

/* Returns the largest sum of the squares of all gradients that is allowed: Adam stores squares as
 * floats. 0 means no limit. */
static double limit_of_squares(const struct pp_exec *x)
{
    const struct pp_config *cfg = x->cfg;
    bool keeps = pp_optimizer_moments(cfg->train.optimizer) > 1 && cfg->train.clip_norm == 0;
    return keeps ? (double)FLT_MAX : 0;
}

int exec_finite_vote(struct pp_exec *x, int rows)
{
    if (!x->check.proves)
        return 0;
    bool yes = !x->check.vetoes;
    double squares = limit_of_squares(x), most = FLT_MAX;
    if (squares > 0)
        most = sqrt(squares / (double)x->layout->model->n_floats);
    for (int k = 0; k < x->n_stages && yes; k++)
        yes = pp_chunk_is_bounded(x->stages[k].chunk, rows, most);
    if (yes && x->sums[PP_SPLIT_TRAIN]) {
        struct pp_loss_sums sums;
        PP_TRY(pp_backend_to_host(x->be, &sums, x->sums[PP_SPLIT_TRAIN], sizeof(sums)));
        yes = isfinite(sums.loss);
    }
    return pp_transport_post_vote(x->tp, yes);
}

/* Returns the index in the model of the chunk's first parameter. */
static int first_param_of_chunk(const struct pp_chunk *c)
{
    return c->model->layers[c->first].first_param;
}

/* Sums the squares of this rank's gradients: for each parameter if their norm is needed, else for
 * each stage. Each sum has its place in check.own; the places of other ranks stay 0. */
static int sum_gradient_squares(struct pp_exec *x)
{
    bool clips = x->layout->training.clips;
    PP_TRY(pp_backend_collect(x->be, PP_COLLECT_SQUARES));
    for (int k = 0; k < x->n_stages; k++) {
        const struct pp_chunk *c = x->stages[k].chunk;
        if (!clips) {
            PP_TRY(pp_backend_sum_squares(
                x->be,
                &(struct pp_sum_squares){c->n_floats, c->grads, &x->check.own[x->stages[k].s]}));
            continue;
        }
        double *to = x->check.own + first_param_of_chunk(c);
        for (int i = 0; i < pp_chunk_param_count(c); i++) {
            size_t offset, n; /* the owner counts a copy's */
            const struct pp_param *p = pp_chunk_param(c, i, &offset, &n);
            if (pp_param_learns(p) && p->tied_to == 0)
                PP_TRY(pp_backend_sum_squares(
                    x->be, &(struct pp_sum_squares){n, c->grads + offset, &to[i]}));
        }
    }
    return pp_backend_collect(x->be, PP_COLLECT_NOTHING);
}

/* Decides whether the gradients are finite. Every rank gets the sums of squares and the losses of
 * all ranks, so that all decide alike. */
static int read_gradients(struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    struct pp_loss_sums *sums = x->sums[PP_SPLIT_TRAIN];
    PP_TRY(sum_gradient_squares(x));
    if (sums)
        PP_TRY(pp_backend_copy(x->be, &x->check.own[x->check.n], &sums->loss, sizeof(sums->loss)));
    size_t bytes = ((size_t)x->check.n + 1) * sizeof(*x->check.own);
    PP_TRY(pp_transport_allgather_on(x->tp, x->check.own, bytes, x->check.all));
    const struct pp_judgement j = {.ranks = l->ranks,
                                   .stages = l->stages,
                                   .n = x->check.n,
                                   .clip_norm = x->cfg->train.clip_norm,
                                   .most = limit_of_squares(x),
                                   .halt = true,
                                   .votes = x->check.all,
                                   .before = sums ? x->before : NULL,
                                   .sums = sums,
                                   .args = x->args,
                                   .verdict = &x->results->verdict};
    return pp_backend_judge(x->be, &j);
}

/* Returns the address of a loss that all ranks will read: the initial value of the step's sums, or
 * this rank's own if it has no sums. */
static double *loss_to_veto(const struct pp_exec *x)
{
    return x->sums[PP_SPLIT_TRAIN] ? &x->before->loss : &x->check.own[x->check.n];
}

/* Makes the steps bad on all ranks until exec_finite_tell(): sets a loss that all ranks read to
 * NaN. */
int exec_finite_veto(struct pp_exec *x)
{
    const double nan = NAN;
    if (x->check.vetoes)
        return 0;
    x->check.vetoes = true;
    PP_TRY(exec_drain(x));
    return pp_backend_to_device(x->be, loss_to_veto(x), &nan, sizeof(nan));
}

static int end_veto(struct pp_exec *x)
{
    if (!x->check.vetoes)
        return 0;
    x->check.vetoes = false;
    return pp_backend_zero(x->be, loss_to_veto(x), sizeof(double));
}

int exec_finite_decide(struct pp_exec *x, int64_t t)
{
    bool proved = false;
    if (x->check.proves) {
        exec_event_begin(x, PP_EVENT_VOTE, t);
        PP_TRY(pp_transport_wait_vote(x->tp, &proved));
        exec_action_end(x);
    }
    if (!proved) {
        exec_event_begin(x, PP_EVENT_CLIP, t);
        PP_TRY(read_gradients(x));
        exec_action_end(x);
    }
    return 0;
}

/* ---- describing the bad value */

/* Finds the last of this rank's parameters whose gradient is not finite, and notes it in *f. */
static int find_bad_gradient(struct pp_exec *x, struct exec_finding *f)
{
    for (int k = x->n_stages - 1; k >= 0 && f->param < 0; k--) {
        const struct pp_chunk *c = x->stages[k].chunk;
        for (int i = pp_chunk_param_count(c) - 1; i >= 0 && f->param < 0; i--) {
            double sum, *to = x->check.all; /* no longer needed; reused as scratch */
            size_t offset, n;
            const struct pp_param *p = pp_chunk_param(c, i, &offset, &n);
            if (p->tied_to > 0 || p->kind == PP_PARAM_FROZEN)
                continue; /* the owner reports it */
            PP_TRY(
                pp_backend_sum_squares(x->be, &(struct pp_sum_squares){n, c->grads + offset, to}));
            PP_TRY(pp_backend_to_host(x->be, &sum, to, sizeof(sum)));
            if (!isfinite(sum)) {
                f->param = first_param_of_chunk(c) + i;
                f->bad = f->input < 0 ? (float)sum : f->bad;
            }
        }
    }
    return 0;
}

static int find_bad_output(struct pp_exec *x, struct exec_finding *out)
{
    *out = (struct exec_finding){.input = -1, .mb = x->check.bad_mb, .param = -1};
    snprintf(out->refusal, sizeof(out->refusal), "%.*s", 2 * PP_EXEC_WHAT - 1,
             x->check.vetoes ? x->refusal.text : "");
    for (int k = 0; k < x->n_stages; k++) {
        const struct pp_chunk *c = x->stages[k].chunk;
        if (c->range.bad_input >= 0 && out->input < 0) {
            out->input = c->range.bad_input;
            out->bad = c->range.bad;
        }
        PP_TRY(pp_chunk_largest_weight(c, x->be, &out->weight));
    }
    return 0;
}

static const struct pp_param *find_layer_of_param(const struct pp_model *m, int index,
                                                  int *out_layer)
{
    int i = 0;
    while (index >= m->layers[i].first_param + m->layers[i].n_params)
        i++;
    *out_layer = i;
    return &m->params[index];
}

/* Describes the first bad value of all ranks in the order of computation: the output of the lowest
 * layer, else the loss, else the gradient of the highest layer. Returns false if no rank has found
 * one. */
static bool describe_finding(const struct pp_exec *x, char *out, size_t bytes)
{
    const struct pp_layout *l = x->layout;
    const struct exec_finding *input = NULL, *loss = NULL, *grad = NULL;
    float weight = 0;
    char what[PP_PARAM_NAME_MAX + 160], about[64] = "";
    for (int r = l->ranks - 1; r >= 0; r--) {
        const struct exec_finding *f = &x->check.found[r];
        input = f->input >= 0 && (!input || f->input <= input->input) ? f : input;
        loss = f->loss ? f : loss;
        grad = f->param >= 0 && (!grad || f->param >= grad->param) ? f : grad;
        weight = f->weight > weight || isnan(f->weight) ? f->weight : weight;
    }
    const struct exec_finding *first = input ? input : loss ? loss : grad;
    if (!first)
        return false;
    int replica = (int)(first - x->check.found) / l->stages;
    int layer = l->model->n_layers - 1, s = 0;
    const char *value = isnan(first->bad) ? "NaN" : "Inf";
    if (input && input->input == 0) {
        layer = 0;
        snprintf(what, sizeof(what), "the input of micro-batch %d is not finite (%s),", input->mb,
                 value);
    } else if (input) {
        layer = input->input - 1;
        snprintf(what, sizeof(what),
                 "the output of %s is not finite (%s), first of micro-batch %d,",
                 l->model->layers[layer].name, value, input->mb);
    } else if (loss) {
        snprintf(what, sizeof(what), "the loss is not finite, from the output of %s",
                 l->model->layers[layer].name);
    } else {
        const struct pp_param *p = find_layer_of_param(l->model, grad->param, &layer);
        snprintf(what, sizeof(what), "%s %s is not finite (%s)",
                 p->kind == PP_PARAM_BUFFER ? "the new value of" : "the gradient of", p->name,
                 value);
    }
    while (l->last[s] < layer)
        s++;
    if (!isfinite(weight))
        snprintf(about, sizeof(about), "; weights are not finite either");
    else if (weight > 0)
        snprintf(about, sizeof(about), "; the largest weight is %.3g", (double)weight);
    snprintf(out, bytes, "%s on rank %d (stage %d)%s", what, replica * l->stages + l->rank_of[s], s,
             about);
    return true;
}

int exec_finite_tell(struct pp_exec *x, const struct pp_step_verdict *verdict)
{
    struct exec_finding mine;
    char what[PP_EXEC_WHAT];
    double loss;
    PP_TRY(find_bad_output(x, &mine));
    PP_TRY(find_bad_gradient(x, &mine));
    PP_TRY(pp_backend_to_host(x->be, &loss, &x->check.own[x->check.n], sizeof(loss)));
    mine.loss = !isfinite(loss);
    PP_TRY(end_veto(x));
    PP_TRY(pp_transport_allgather(x->tp, &mine, sizeof(mine), x->check.found));
    for (int r = 0; r < x->layout->ranks; r++)
        if (x->check.found[r].refusal[0])
            return pp_fail(PP_EFORMAT, "%s", x->check.found[r].refusal);
    if (describe_finding(x, what, sizeof(what)))
        return pp_fail(PP_EDIVERGED, "%s", what);
    if (isfinite(verdict->bad_value)) {
        return pp_fail(PP_EDIVERGED,
                       "the squares of the gradients sum to %.3g, more than the %.3g that Adam's "
                       "state can hold (f32); set train.clip_norm to bound them",
                       verdict->bad_value, (double)FLT_MAX);
    }
    return pp_fail(PP_EDIVERGED,
                   "a value of rank %d was not finite (%g), but is finite when computed again",
                   verdict->bad_rank, verdict->bad_value);
}

int exec_finite_describe_test(struct pp_exec *x, char *out, size_t bytes)
{
    struct exec_finding mine;
    PP_TRY(find_bad_output(x, &mine));
    PP_TRY(pp_transport_allgather(x->tp, &mine, sizeof(mine), x->check.found));
    if (!describe_finding(x, out, bytes))
        out[0] = '\0';
    return 0;
}
