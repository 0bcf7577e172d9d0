/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures whole steps once and replays them. One graph holds the work of all ranks of the process,
 * and rank 0 launches it; if a library moves the messages (caps.own_steps), each rank has its own
 * graph. A batch is captured only after a batch of its size was enqueued op by op, because the
 * first run allocates what its sizes need. All ranks decide alike, from values that all of them
 * share.
 */
#include "exec_internal.h"

struct exec_graph *exec_graph_of(struct exec_graphs *g, enum pp_split split, int rows)
{
    for (int i = 0; i < g->n; i++)
        if (g->entry[i].split == split && g->entry[i].rows == rows)
            return &g->entry[i];
    pp_assert(g->n < EXEC_GRAPHS); /* a split has full batches and one last batch */
    g->entry[g->n] = (struct exec_graph){.split = split, .rows = rows};
    return &g->entry[g->n++];
}

int exec_graphs_create(struct pp_exec *x)
{
    struct exec_graphs *g = &x->graphs;
    enum pp_graphs wanted = x->cfg->run.graphs;
    if (wanted == PP_GRAPHS_OFF) {
        snprintf(g->why, sizeof(g->why), "run.graphs = off");
    } else if (!x->be->caps.graphs) {
        snprintf(g->why, sizeof(g->why), "%s cannot capture a step", x->be->description);
    } else if (!pp_transport_can_fork(x->tp)) {
        snprintf(g->why, sizeof(g->why), "a step over transport %s cannot be captured",
                 x->tp->ops->name);
    } else if (x->tp->caps.own_steps && wanted == PP_GRAPHS_AUTO) {
        snprintf(g->why, sizeof(g->why), "a step over %s is recorded with run.graphs = on only",
                 x->tp->ops->library);
    } else {
        g->on = true;
    }
    /* Where ops are complete when they return, the key has no effect; the config's check reports
     * that. */
    if (wanted == PP_GRAPHS_ON && !g->on && x->be->caps.async)
        return pp_fail(PP_ERESOURCE, "run.graphs = on, but %s; use auto or off", g->why);
    return 0;
}

void exec_graphs_destroy(struct pp_exec *x)
{
    struct exec_graphs *g = &x->graphs;
    for (int i = 0; i < g->n; i++)
        pp_backend_graph_destroy(x->be, g->entry[i].graph);
    g->n = 0;
}

static bool holds_graph(const struct pp_exec *x)
{
    return x->tp->caps.own_steps || x->tp->rank == 0;
}

void pp_exec_forget_graphs(struct pp_exec *x)
{
    if (x && !pp_transport_stopped(x->tp) && pp_backend_is_quiet(x->be, x->drained))
        exec_graphs_destroy(x);
}

/* Launches the graph, if this rank holds it, after the work that all ranks enqueued before and
 * before the work that they enqueue later. */
static int launch_graph(struct pp_exec *x, const struct exec_graph *g)
{
    if (holds_graph(x))
        PP_TRY(pp_backend_graph_launch(x->be, g->graph));
    return pp_transport_fork(x->tp);
}

/* Captures a step as a graph. Between the begin and the end of the capture all ranks' streams
 * belong to the capture of rank 0. */
static int capture_step(struct pp_exec *x, struct exec_graph *g, int step, int64_t t)
{
    bool begun = false;
    int rc = pp_transport_join(x->tp);
    if (rc == 0 && holds_graph(x)) {
        rc = pp_backend_capture_begin(x->be);
        begun = rc == 0;
    }
    /* CUDA: "API calls accessing the same graph object must be serialized externally". */
    pp_transport_record(x->tp, true);
    rc = rc < 0 ? rc : pp_transport_fork(x->tp);
    rc = rc < 0 ? rc : exec_enqueue(x, g->split, step, t);
    rc = rc < 0 ? rc : pp_transport_join(x->tp);
    pp_transport_record(x->tp, false);
    if (begun) {
        /* End it after a failure too: a stream must not be left in a capture. */
        struct pp_error why = *pp_error_get();
        int ended = pp_backend_capture_end(x->be, &g->graph);
        if (rc < 0)
            pp_error_adopt(&why);
        else
            rc = ended;
    }
    PP_TRY(rc);
    g->runs++;
    return launch_graph(x, g);
}

int exec_graph_run(struct pp_exec *x, struct exec_graph *g, int step, int64_t t)
{
    if (g->runs == 1)
        return capture_step(x, g, step, t);
    PP_TRY(pp_transport_join(x->tp));
    return launch_graph(x, g);
}

struct exec_graph *exec_graph_next(struct pp_exec *x, enum pp_split split, int step)
{
    if (!x->graphs.on || x->kept) /* a graph would copy logits to a fixed host address */
        return NULL;
    int rows = pp_loader_batch_rows(x->loader[split], step);
    struct exec_graph *g = exec_graph_of(&x->graphs, split, rows);
    if (g->runs > 0 && x->timer.current < 0)
        return g;
    g->runs = g->runs > 0 ? g->runs : 1;
    return NULL;
}

const char *pp_exec_graphs(const struct pp_exec *x)
{
    return x->graphs.on ? "on" : x->graphs.why;
}
