/* SPDX-License-Identifier: Apache-2.0 */
/* Models that people bring: the PyTorch program that model.from names, see graph/graph.h. */
#include "graph/graph.h"

#include <limits.h>

#include "nn.h"
#include "ppcli/base/base.h"
#include "ppcli/nn/archive.h"

/* What a model keeps of its archive: initial values. */
struct archive {
    struct pt_program *program;
    struct graph_initial *initial;
};

static void free_archive(void *owned)
{
    struct archive *a = owned;
    pp_free(a->initial);
    pt_program_destroy(&a->program);
    pp_free(a);
}

/* The shape of a sample is the program's. */
static struct pp_shape input(const struct pp_config *cfg)
{
    return (struct pp_shape){0};
}

/* Fails with the first thing that ppcli does not take. */
static int report_problems(const struct graph *g)
{
    const struct graph_problem *p = g->problems;
    const struct pt_node *n = &g->program->nodes[p->source];
    char more[64] = "";
    if (g->n_problems > 1)
        snprintf(more, sizeof(more), "; and %d more: ppcli explain lists them", g->n_problems - 1);
    return pp_fail(PP_ECONFIG, "%s: %s%s%s (%s: %s)%s", g->program->file, n->path,
                   n->path[0] ? ": " : "", p->text, n->source, n->code, more);
}

static void destroy_graph(struct graph **g)
{
    graph_destroy(*g);
}

/* Says what crosses before a module that begins no layer, and which layers are near. */
static int explain_cut(const struct pp_model *m, const char *name, char *out, size_t bytes)
{
    const struct archive *a = m->owned;
    static const struct pp_data_input any;
    PP_OWN(destroy_graph) struct graph *g = NULL;
    struct graph_crossing c;
    out[0] = '\0';
    PP_TRY(graph_lower(a->program, &any, &g));
    PP_TRY(graph_choose_layers(g));
    PP_TRY(graph_find_crossing(g, name, &c));
    if (c.node < 0 || g->n_layers != m->n_layers)
        return 0;
    int in = g->nodes[c.node].layer;
    const char *next = in + 1 < m->n_layers ? m->layers[in + 1].name : NULL;
    const char *here = m->layers[in].name,
               *source = a->program->nodes[g->nodes[c.node].source].source;
    int length = c.crossing == 1
                     ? snprintf(out, bytes, "%s (%s) is inside layer %s, which is not cut", name,
                                source, here)
                     : snprintf(out, bytes,
                                "%d tensors cross before %s (%s), %lld numbers a sample, and a "
                                "stage takes one",
                                c.crossing, name, source, (long long)c.floats);
    if (length > 0 && (size_t)length < bytes)
        snprintf(out + length, bytes - (size_t)length, ": cut at %s%s%s", in > 0 ? here : next,
                 in > 0 && next ? " or " : "", in > 0 && next ? next : "");
    return 0;
}

static int read_model(struct builder *b, struct archive *a)
{
    PP_OWN(destroy_graph) struct graph *g = NULL;
    if (!b->cfg->model.from[0])
        return pp_fail(PP_ECONFIG, "model.from names no archive, which model.type = graph needs");
    PP_TRY(pt_program_read(b->cfg->model.from, &a->program));
    PP_TRY(graph_initial_create(a->program, &a->initial));
    PP_TRY(graph_lower(a->program, b->data, &g));
    if (g->n_problems > 0)
        return report_problems(g);
    PP_TRY(graph_choose_layers(g));
    if (b->cfg->model.fuse)
        PP_TRY(graph_fuse(g));
    return graph_emit(g, a->initial, b);
}

static int build(struct builder *b, int x)
{
    struct archive *a = pp_alloc(1, sizeof(*a));
    if (!a) {
        b->rc = PP_ERESOURCE;
        return 0;
    }
    b->m->owned = a;
    b->m->free_owned = free_archive;
    b->m->explain_cut = explain_cut;
    int y = read_model(b, a);
    b->rc = y < 0 && b->rc == 0 ? y : b->rc;
    return y;
}

int pp_archive_positions(const char *file, int *out)
{
    PP_OWN(pt_program_destroy) struct pt_program *p = NULL;
    PP_TRY(pt_program_read(file, &p));
    *out = 0;
    for (int i = 0; i < p->n_inputs; i++) {
        const struct pt_tensor *t =
            p->inputs[i].value < 0 ? NULL : &p->values[p->inputs[i].value].type;
        if (t && t->dtype == PT_I64 && t->n_dims == 2 && t->dims[1].n > 0 && t->dims[1].n < INT_MAX)
            *out = (int)t->dims[1].n;
    }
    return 0;
}

const struct model_builder model_graph = {.name = "graph", .input = input, .build = build};
