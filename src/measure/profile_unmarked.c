/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads traces without marks, such as those of torch's Schedule1F1B, from their ops. Ops of the
 * autograd engine are a backward; other ops that are followed by a send, or by a backward, are a
 * forward; sends, receives and steps of the optimizer lie between. Forwards and backwards are
 * numbered from the last one back, because the first step has more of them: stages exchange shapes and
 * run one micro-batch to find them. How many a step has follows from a rank that runs ahead.
 */
#include "profile_read.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

enum kind {
    OTHER, /* splits what is before and after */
    RECV,  /* a call */
    SEND,
    FORWARD,
    BACKWARD
};

struct op {
    double start, end;
    enum kind kind;
};

struct ops {
    struct op *at;
    int n, room;
};

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static int take_op(struct ops *ops, const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *category = json_string_value(json_object_get(o, "cat"));
    const json_t *ts = json_object_get(o, "ts"), *dur = json_object_get(o, "dur");
    bool host = category && strcmp(category, "cpu_op") == 0;
    if (!name || !json_is_number(ts) || !json_is_number(dur) ||
        !(host || begins(name, "Optimizer.") || begins(name, "ProfilerStep")))
        return 0;
    struct op op = {.start = json_number_value(ts) * 1e-6};
    op.end = op.start + json_number_value(dur) * 1e-6;
    if (begins(name, "ProfilerStep")) /* a span around a step: only its beginning splits */
        op.end = op.start;
    op.kind = begins(name, "c10d::send")                            ? SEND
              : begins(name, "c10d::recv_")                         ? RECV
              : !host || begins(name, "c10d::")                     ? OTHER
              : begins(name, "autograd::engine::evaluate_function") ? BACKWARD
                                                                    : FORWARD;
    PP_RESERVE(ops->at, ops->n, ops->room);
    ops->at[ops->n++] = op;
    return 0;
}

static int by_start(const void *a, const void *b)
{
    const struct op *x = a, *y = b;
    return x->start != y->start ? (x->start > y->start) - (x->start < y->start)
                                : (x->end < y->end) - (x->end > y->end);
}

/* Joins consecutive ops of the same kind, and drops each op that is inside another. */
static void join_ops(struct ops *ops)
{
    int kept = 0;
    if (ops->n > 0)
        qsort(ops->at, (size_t)ops->n, sizeof(*ops->at), by_start);
    for (int k = 0; k < ops->n; k++) {
        struct op *last = kept > 0 ? &ops->at[kept - 1] : NULL;
        const struct op *op = &ops->at[k];
        bool inside = last && op->start < last->end;
        if (inside || (last && last->kind == op->kind && op->kind >= FORWARD))
            last->end = op->end > last->end && !inside ? op->end : last->end;
        else
            ops->at[kept++] = *op;
    }
    ops->n = kept;
}

static bool is_forward(const struct ops *ops, int k, int rank)
{
    enum kind next = k + 1 < ops->n ? ops->at[k + 1].kind : OTHER;
    enum kind before = k > 0 ? ops->at[k - 1].kind : OTHER;
    /* what follows a backward is copying its gradient, but on the first rank, which sends none */
    bool sent = next == SEND && (rank == 0 || before != BACKWARD);
    return ops->at[k].kind == FORWARD && (sent || next == BACKWARD);
}

/* Sets the micro-batches of a rank's actions to their number from the last one back, and
 * in->unmarked to at least the first number of both kinds that is the same. */
static void number_back(struct profile_input *in, int first)
{
    int n[2] = {0}, step = 0;
    for (int k = in->n - 1; k >= first; k--) {
        struct profile_event *e = &in->events[k];
        e->mb = n[e->op != PP_OP_F]++;
        step = n[0] == n[1] && step == 0 ? n[0] : step;
    }
    in->unmarked = step > in->unmarked ? step : in->unmarked;
}

static int add_actions(const struct ops *ops, int rank, struct profile_input *in)
{
    int first = in->n;
    for (int k = 0; k < ops->n; k++) {
        const struct op *op = &ops->at[k];
        bool forward = is_forward(ops, k, rank);
        if ((op->kind == SEND || op->kind == RECV) && in->n > first)
            in->events[in->n - 1].after += op->end - op->start;
        if (!forward && op->kind != BACKWARD)
            continue;
        struct profile_event e = {.start = op->start, .end = op->end, .rank = rank, .step = -1};
        e.op = forward ? PP_OP_F : PP_OP_B;
        e.stage = rank;
        PP_TRY(profile_add(in, &e));
    }
    number_back(in, first);
    in->source = "PyTorch";
    return 0;
}

int profile_unmarked_read(const char *text, size_t bytes, int rank, struct profile_input *in)
{
    struct ops ops = {0};
    const char *end = text + bytes, *at = memmem(text, bytes, "\"traceEvents\"", 13);
    size_t n = 0;
    int rc = 0;
    for (at = at && rank >= 0 ? at : end; rc == 0 && (at = profile_object(at, end, &n)); at += n) {
        json_t *o = NULL;
        if (!memmem(at, n, "cpu_op", 6) && !memmem(at, n, "Optimizer.", 10) &&
            !memmem(at, n, "ProfilerStep", 12))
            continue;
        rc = pp_json_load(at, n, JSON_DECODE_INT_AS_REAL, NULL, &o);
        rc = rc < 0 || !o ? rc : take_op(&ops, o);
        json_decref(o);
    }
    join_ops(&ops);
    rc = rc < 0 ? rc : add_actions(&ops, rank, in);
    pp_free(ops.at);
    return rc;
}
