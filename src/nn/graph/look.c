/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a program, for those who describe it; and the operators that there are. */
#include "ppcli/nn/archive.h"

#include <stdio.h>
#include <string.h>

#include "graph.h"
#include "lower.h"
#include "ppcli/base/base.h"

struct pp_archive_parts {
    struct pt_program *program;
    struct graph *graph;
};

bool pp_archive_is(const char *file)
{
    return pp_text_ends(file, ".pt2");
}

/* Writes "x: [batch] x 3 x 32 x 32 of float32". */
static void describe_value(const char *name, const struct pt_tensor *t, char *out, size_t bytes)
{
    pp_text_add(out, bytes, "%s%s", name, name[0] ? ": " : "");
    for (int d = 0; d < t->n_dims; d++) {
        const struct pt_size *s = &t->dims[d];
        pp_text_add(out, bytes, "%s", d > 0 ? " x " : "");
        if (s->n < 0)
            pp_text_add(out, bytes, "[?]");
        else if (!s->batch)
            pp_text_add(out, bytes, "%lld", (long long)s->n);
        else if (s->n == 1)
            pp_text_add(out, bytes, "[batch]");
        else
            pp_text_add(out, bytes, "[%lld * batch]", (long long)s->n);
    }
    pp_text_add(out, bytes, " of %s", pt_dtype_name(t->dtype));
}

static void describe_ends(const struct pt_program *p, struct pp_archive *a)
{
    for (int i = 0; i < p->n_inputs; i++)
        if (p->inputs[i].value >= 0)
            describe_value(p->inputs[i].name, &p->values[p->inputs[i].value].type, a->input,
                           sizeof(a->input));
    if (p->n_outputs > 0 && p->outputs[0] >= 0)
        describe_value("", &p->values[p->outputs[0]].type, a->output, sizeof(a->output));
}

static int list_problems(const struct graph *g, struct pp_archive *a)
{
    PP_ALLOC(a->problems, g->n_problems);
    a->n_problems = g->n_problems;
    for (int i = 0; i < g->n_problems; i++) {
        const struct graph_problem *p = &g->problems[i];
        const struct pt_node *n = &g->program->nodes[p->source];
        a->problems[i] =
            (struct pp_archive_problem){p->text, n->path, n->source, n->code, p->count};
    }
    return 0;
}

/* Counts the nodes that compute the samples, as the model will have them. */
static int count_ops(struct graph *g, bool fuse, struct pp_archive *a)
{
    PP_TRY(graph_choose_layers(g));
    PP_TRY(fuse ? graph_fuse(g) : 0);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct graph_node *n = &g->nodes[i];
        if (n->dead || !n->rows || n->kind == GRAPH_INPUT)
            continue;
        a->ops++;
        a->general += n->kind == GRAPH_EXPR;
    }
    return 0;
}

/* Counts the dropouts and batch norms that the program evaluates. */
static int count_evaluated(const struct pt_program *p)
{
    int n = 0;
    for (int i = 0; i < p->n_nodes; i++) {
        const struct pt_node *node = &p->nodes[i];
        n += (strncmp(node->target, "aten.dropout", 12) == 0 && !lower_flag(node, "train", true)) ||
             (strcmp(node->target, "aten.batch_norm.default") == 0 &&
              !lower_flag(node, "training", true));
    }
    return n;
}

static int look(const char *file, bool fuse, struct pp_archive *a)
{
    const struct pp_data_input data = {.vocabulary = 0};
    struct pp_archive_parts *parts = pp_alloc(1, sizeof(*parts));
    a->parts = parts;
    if (!parts)
        return PP_ERESOURCE;
    PP_TRY(pt_program_read(file, &parts->program));
    const struct pt_program *p = parts->program;
    PP_TRY(graph_lower(p, &data, &parts->graph));
    struct graph *g = parts->graph;
    a->torch = p->torch;
    a->schema_minor = p->schema_minor;
    a->nodes = p->n_nodes + p->n_sizes;
    a->sizes = p->n_sizes;
    a->folded = g->n_folded;
    a->views = g->n_views;
    a->computed = g->n_fast + g->n_general;
    a->evaluated = count_evaluated(p);
    a->left_out = p->n_nodes - a->folded - a->views - a->computed;
    describe_ends(p, a);
    PP_TRY(list_problems(g, a));
    return g->n_problems > 0 ? 0 : count_ops(g, fuse, a);
}

int pp_archive_look(const char *file, bool fuse, struct pp_archive **out)
{
    struct pp_archive *a;
    PP_ALLOC(a, 1);
    PP_TRY_UNDO(look(file, fuse, a), pp_archive_destroy(&a));
    *out = a;
    return 0;
}

void pp_archive_destroy(struct pp_archive **archive)
{
    struct pp_archive *a = *archive;
    if (a && a->parts) {
        graph_destroy(a->parts->graph);
        pt_program_destroy(&a->parts->program);
    }
    if (a) {
        pp_free(a->parts);
        pp_free(a->problems);
        pp_free(a);
    }
    *archive = NULL;
}

/* ---- operators */

/* Returns whether samples can be computed with an operator of this name, without "aten.". */
static bool is_lowered(const char *name)
{
    const char *becomes;
    const struct lowering *row;
    size_t n = strcspn(name, ".");
    for (int i = 0; (row = lower_row(i, &becomes)); i++) {
        const char *base = row->target + strcspn(row->target, ".") + 1;
        if (row->lower && strcspn(base, ".") == n && strncmp(base, name, n) == 0)
            return true;
    }
    return false;
}

bool pp_archive_operator(int i, const char **name, const char **becomes)
{
    const struct lowering *row;
    for (int k = 0; (row = lower_row(k, becomes)); k++) {
        if (row->lower && i-- == 0) {
            *name = row->target + strcspn(row->target, ".") + 1;
            return true;
        }
    }
    *becomes = "constant";
    for (int k = 0; (*name = fold_operator(k)); k++)
        if (strcmp(*name, "div_trunc") != 0 && !is_lowered(*name) && i-- == 0) /* part of div */
            return true;
    return false;
}
