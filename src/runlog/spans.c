/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts records into trace events: an action becomes a slice, a message that was sent or
 * received one end of an arrow, an F or W a new count of live activations. Both ends of an arrow
 * need the same number, computed from each rank's own records: it follows from the step, the batch
 * of the evaluation, and the message.
 */
#include "parts.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

struct spans {
    const struct pp_layout *layout;
    int test_steps, max_messages;
    size_t *bytes;   /* [n_virtual] bytes of one activation */
    int32_t *t;      /* [ranks] training step of the last record */
    bool *recompute; /* [n_virtual][micro-batches] true: R makes the kept activations, not F */
    int *forwards;   /* [ranks][n_virtual] F or R of that step so far */
    int *live;       /* [ranks][n_virtual] activations that their W has not freed */
};

int spans_create(const struct pp_layout *l, int test_steps, struct spans **out)
{
    size_t n = (size_t)l->ranks * (size_t)l->n_virtual;
    struct spans *s;
    PP_ALLOC(s, 1);
    s->layout = l;
    s->test_steps = test_steps;
    s->bytes = pp_alloc((size_t)l->n_virtual, sizeof(*s->bytes));
    s->t = pp_alloc((size_t)l->ranks, sizeof(*s->t));
    s->forwards = pp_alloc(n, sizeof(*s->forwards));
    s->live = pp_alloc(n, sizeof(*s->live));
    const struct pp_plan *plan = l->plans[0].plan;
    size_t m = (size_t)plan->geometry.microbatches;
    s->recompute = pp_alloc((size_t)l->n_virtual * m, sizeof(*s->recompute));
    for (int r = 0; s->recompute && r < l->stages; r++) {
        const struct pp_rank_plan *list = &plan->ranks[r];
        for (const struct pp_action *a = list->actions; a < list->actions + list->n_actions; a++)
            if (a->op == PP_OP_R)
                s->recompute[(size_t)a->stage * m + (size_t)a->mb] = true;
    }
    int rc = s->recompute && s->bytes && s->t && s->forwards && s->live ? 0 : PP_ERESOURCE;
    for (int i = 0; i < l->n_plans; i++) {
        int messages = l->plans[i].plan->n_messages;
        s->max_messages = messages > s->max_messages ? messages : s->max_messages;
    }
    for (int v = 0; rc == 0 && v < l->n_virtual; v++)
        rc = pp_exec_live_bytes(l, v, &s->bytes[v]);
    PP_TRY_UNDO(rc, spans_destroy(&s));
    *out = s;
    return 0;
}

void spans_destroy(struct spans **spans)
{
    struct spans *s = *spans;
    if (s) {
        pp_free(s->bytes);
        pp_free(s->t);
        pp_free(s->recompute);
        pp_free(s->forwards);
        pp_free(s->live);
        pp_free(s);
        *spans = NULL;
    }
}

const size_t *spans_live_bytes(const struct spans *s)
{
    return s->bytes;
}

void spans_processes(const struct spans *s, struct pp_chrome *c)
{
    const struct pp_layout *l = s->layout;
    for (int r = 0; r < l->ranks; r++) {
        char name[256];
        snprintf(name, sizeof(name), "rank %d (stage%s", r, l->chunks > 1 ? "s" : "");
        for (int v = 0; v < l->n_virtual && strlen(name) < sizeof(name) - 16; v++)
            if (l->rank_of[v] == r % l->stages)
                pp_text_add(name, sizeof(name), " %d", v);
        pp_text_add(name, sizeof(name), ")");
        pp_chrome_process(c, r, name);
    }
}

/* Returns the number of a message's arrow, which no other message of the run has. */
static uint64_t arrow_id(const struct spans *s, int rank, const struct pp_event *e)
{
    uint64_t batch = (uint64_t)s->t[rank] * ((uint64_t)s->test_steps + 1);
    batch += e->eval ? 1 + (uint64_t)e->step : 0;
    uint64_t replica = (uint64_t)(rank / s->layout->stages);
    return (batch * (uint64_t)s->layout->replicas + replica) * (uint64_t)s->max_messages +
           (uint64_t)e->message;
}

/* Writes one end of a message's arrow, placed so that the receiver's end is never before the
 * sender's. */
static void write_arrow(const struct spans *s, struct pp_chrome *c, int rank, int64_t begin,
                        int64_t end, const struct pp_event *e)
{
    if (e->message < 0)
        return;
    if (e->kind == PP_EVENT_SEND) {
        pp_chrome_arrow(c, true, arrow_id(s, rank, e), rank, PP_CHROME_SEND, begin);
    } else if (e->kind == PP_EVENT_RECV) {
        pp_chrome_arrow(c, false, arrow_id(s, rank, e), rank, PP_CHROME_RECV,
                        end > begin ? end - 1 : begin);
    }
}

/* Updates the count of live activations after an event. W runs by ascending micro-batch, so after
 * the W of micro-batch m the activations of m + 1 micro-batches are free. */
static void count_live(const struct spans *s, struct pp_chrome *c, int rank, int64_t end,
                       const struct pp_event *e)
{
    int n = s->layout->n_virtual;
    int *forwards = s->forwards + (size_t)rank * (size_t)n;
    int *live = s->live + (size_t)rank * (size_t)n;
    if (e->eval || e->stage < 0 || e->stage >= n)
        return;
    int m = s->layout->plans[0].m;
    bool recompute = e->mb < m && s->recompute[e->stage * m + e->mb];
    if (e->kind == PP_EVENT_R || (e->kind == PP_EVENT_F && !recompute)) {
        forwards[e->stage]++;
        live[e->stage]++;
    } else if (e->kind == PP_EVENT_W) {
        int left = forwards[e->stage] - e->mb - 1;
        live[e->stage] = left > 0 ? left : 0;
    } else {
        return;
    }
    uint64_t bytes = 0;
    for (int v = 0; v < n; v++)
        bytes += (uint64_t)live[v] * s->bytes[v];
    pp_chrome_live(c, rank, end, "bytes", bytes);
}

static void begin_span_step(struct spans *s, int rank, int32_t t)
{
    int n = s->layout->n_virtual;
    s->t[rank] = t;
    for (int v = 0; v < n; v++)
        s->forwards[rank * n + v] = s->live[rank * n + v] = 0;
}

/* Returns the loss of an F of the last stage in training; NULL if the event has none. */
static const double *loss_of_event(const struct spans *s, const struct pp_event *e,
                                   const struct spans_losses *losses)
{
    bool of_loss = e->kind == PP_EVENT_F && !e->eval && e->stage == s->layout->n_virtual - 1;
    if (!losses || !losses->at || !of_loss || e->mb >= losses->microbatches)
        return NULL;
    const double *loss = &losses->at[e->step % losses->steps * losses->microbatches + e->mb];
    return isfinite(*loss) ? loss : NULL;
}

void spans_write(struct spans *s, struct pp_chrome *c, int rank, uint64_t zero_ns,
                 const struct pp_event *events, size_t n, const struct spans_losses *losses)
{
    const struct pp_plan *plan = s->layout->plans[0].plan;
    for (size_t k = 0; k < n; k++) {
        const struct pp_event *e = &events[k];
        if (e->end_ns == 0 || e->kind == PP_EVENT_LAUNCH)
            continue; /* launched work runs at other times and has its own records */
        if (!e->eval && e->step != s->t[rank])
            begin_span_step(s, rank, e->step);
        int64_t begin = (int64_t)(e->begin_ns - zero_ns), end = (int64_t)(e->end_ns - zero_ns);
        bool of_stage = e->stage >= 0 && e->stage < s->layout->n_virtual;
        struct pp_chrome_args args = {.step = e->step,
                                      .stage = of_stage ? e->stage : -1,
                                      .chunk = of_stage ? plan->chunk_of[e->stage] : -1,
                                      .microbatch = of_stage ? e->mb : -1,
                                      .eval = e->eval,
                                      .loss = loss_of_event(s, e, losses)};
        char text[PP_CHROME_NAME_MAX];
        const char *name = pp_event_name(e->kind);
        if (of_stage && pp_event_computes(e->kind))
            name = pp_chrome_name(text, name[0], s->layout->chunks > 1, e->stage, e->mb);
        pp_chrome_slice(c, rank, e->kind, name, begin, end, &args);
        write_arrow(s, c, rank, begin, end, e);
        count_live(s, c, rank, end, e);
    }
}
