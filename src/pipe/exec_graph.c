/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole steps captured once and replayed: one graph of all ranks of the process, which rank 0 holds
 * and launches. A batch is captured when one like it was enqueued before: what has to be made for
 * its shapes has been made then. All ranks decide alike, from values that all of them share.
 */
#include "exec_device.h"

#include <stdio.h>

#include "ppcli/err.h"

struct exec_graph *exec_graph_of(struct exec_graphs *g, enum pp_split split, int rows)
{
    for (int i = 0; i < g->n; i++) {
        if (g->entry[i].split == split && g->entry[i].rows == rows) {
            return &g->entry[i];
        }
    }
    pp_assert(g->n < EXEC_GRAPHS); /* a split has full batches and a last one */
    g->entry[g->n] = (struct exec_graph){.split = split, .rows = rows};
    return &g->entry[g->n++];
}

int exec_graphs_create(struct pp_exec *x)
{
    struct exec_graphs *g = &x->device->graphs;
    enum pp_graphs wanted = x->layout->cfg->run.graphs;
    if (wanted == PP_GRAPHS_OFF) {
        snprintf(g->why, sizeof(g->why), "run.graphs = off");
    } else if (!x->be->caps.graphs) {
        snprintf(g->why, sizeof(g->why), "%s cannot capture a step", x->be->description);
    } else if (!pp_transport_can_fork(x->tp)) {
        snprintf(g->why, sizeof(g->why), "a step over transport %s cannot be captured",
                 x->tp->ops->name);
    } else {
        g->on = true;
        return 0;
    }
    if (wanted == PP_GRAPHS_ON) {
        return pp_fail(PP_ERESOURCE, "run.graphs = on, but %s; use auto or off", g->why);
    }
    return 0;
}

void exec_graphs_destroy(struct pp_exec *x)
{
    struct exec_graphs *g = &x->device->graphs;
    for (int i = 0; i < g->n; i++) {
        pp_backend_graph_destroy(x->be, g->entry[i].graph);
    }
    g->n = 0;
}

/* Between the two every rank's stream belongs to rank 0's capture. */
static int begin(struct pp_exec *x, bool *begun)
{
    PP_TRY(pp_transport_join(x->tp));
    if (x->tp->rank == 0) {
        PP_TRY(pp_backend_capture_begin(x->be));
        *begun = true;
    }
    return pp_transport_fork(x->tp);
}

static int capture(struct pp_exec *x, struct exec_graph *g, int step, int64_t t)
{
    bool begun = false;
    void *graph = NULL;
    int rc = begin(x, &begun);
    if (rc == 0) {
        rc = exec_enqueue(x, g->split, step, t);
    }
    if (rc == 0) {
        rc = pp_transport_join(x->tp);
    }
    if (begun) {
        /* Also when it failed: a stream must not be left in a capture. */
        struct pp_error why = *pp_error_get();
        int ended = pp_backend_capture_end(x->be, &graph);
        if (rc == 0) {
            rc = ended;
        } else {
            pp_backend_graph_destroy(x->be, ended == 0 ? graph : NULL);
            pp_error_adopt(&why);
        }
    }
    PP_TRY(rc);
    g->graph = graph;
    g->runs++;
    if (x->tp->rank == 0) {
        PP_TRY(pp_backend_graph_launch(x->be, g->graph));
    }
    return pp_transport_fork(x->tp);
}

static int replay(struct pp_exec *x, const struct exec_graph *g)
{
    PP_TRY(pp_transport_join(x->tp));
    if (x->tp->rank == 0) {
        PP_TRY(pp_backend_graph_launch(x->be, g->graph));
    }
    return pp_transport_fork(x->tp);
}

int exec_graph_step(struct pp_exec *x, enum pp_split split, int step, int64_t t)
{
    struct exec_graphs *graphs = &x->device->graphs;
    bool timed = x->device->timer.now >= 0;
    struct exec_graph *g =
        graphs->on ? exec_graph_of(graphs, split, pp_loader_batch_rows(x->loader[split], step))
                   : NULL;
    if (g && !timed && g->runs == 1) {
        return capture(x, g, step, t);
    }
    if (g && !timed && g->runs > 1) {
        return replay(x, g);
    }
    if (g && g->runs == 0) {
        g->runs = 1;
    }
    return exec_enqueue(x, split, step, t);
}

const char *pp_exec_graphs(const struct pp_exec *x)
{
    if (!x->device) {
        return "off: steps are not captured on this backend";
    }
    return x->device->graphs.on ? "on" : x->device->graphs.why;
}
