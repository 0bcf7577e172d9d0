/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of a graph. */
#include "graph.h"

#include <string.h>

struct graph_node *graph_add(struct graph *g, enum graph_kind kind, int source, int n_in,
                             const int *in, struct pp_shape shape)
{
    struct graph_node *n;
    int *copy = pp_alloc((size_t)n_in, sizeof(*copy));
    if (g->n_nodes % 64 == 0) {
        n = pp_realloc(g->nodes, (size_t)g->n_nodes + 64, sizeof(*n));
        g->nodes = n ? n : g->nodes;
    } else {
        n = g->nodes;
    }
    if (!n || !copy) {
        pp_free(copy);
        return NULL;
    }
    n = &g->nodes[g->n_nodes];
    *n = (struct graph_node){.kind = kind,
                             .n_in = n_in,
                             .in = copy,
                             .shape = shape,
                             .layer = -1,
                             .source = source,
                             .positions = 1,
                             .padding = -1,
                             .rows = kind == GRAPH_INPUT};
    for (int i = 0; i < n_in; i++) {
        pp_assert(in[i] >= 0 && in[i] < g->n_nodes);
        copy[i] = in[i];
        n->rows = n->rows || g->nodes[in[i]].rows;
    }
    g->n_nodes++;
    return n;
}

int graph_add_table(struct graph *g, int n, const int32_t *indices)
{
    int32_t **tables = pp_realloc(g->tables, (size_t)g->n_tables + 1, sizeof(*tables));
    g->tables = tables ? tables : g->tables;
    int *sizes = pp_realloc(g->table_sizes, (size_t)g->n_tables + 1, sizeof(*sizes));
    g->table_sizes = sizes ? sizes : g->table_sizes;
    int32_t *copy = tables && sizes ? pp_alloc((size_t)n, sizeof(*copy)) : NULL;
    if (!copy)
        return -1;
    memcpy(copy, indices, (size_t)n * sizeof(*copy));
    tables[g->n_tables] = copy;
    sizes[g->n_tables] = n;
    return g->n_tables++;
}

void graph_count_readers(struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        g->nodes[i].readers = 0;
        g->nodes[i].dead = true;
    }
    g->nodes[g->output].dead = false;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const struct graph_node *n = &g->nodes[i];
        for (int k = 0; k < n->n_in && !n->dead; k++) {
            g->nodes[n->in[k]].dead = false;
            g->nodes[n->in[k]].readers++;
        }
    }
}

void graph_drop_pieces(struct graph_node *n)
{
    for (int k = 0; k < n->n_pieces; k++) {
        pp_free(n->pieces[k].operands);
        pp_free(n->pieces[k].steps);
    }
    pp_free(n->pieces);
    n->pieces = NULL;
    n->n_pieces = 0;
}

void graph_destroy(struct graph *g)
{
    for (int i = 0; g && i < g->n_nodes; i++) {
        struct graph_node *n = &g->nodes[i];
        graph_drop_pieces(n);
        pp_free(n->in);
        if (n->kind == GRAPH_CONSTANT)
            pp_free((void *)n->table);
    }
    for (int i = 0; g && i < g->n_tables; i++)
        pp_free(g->tables[i]);
    if (g) {
        pp_free(g->nodes);
        pp_free(g->tables);
        pp_free(g->table_sizes);
        pp_free(g->layers);
        pp_free(g->problems);
        pp_free(g);
    }
}
