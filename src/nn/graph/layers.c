/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the layers of a graph. A layer can begin before a node if one value crosses there, and the
 * node enters a module that the node before is not in: the layer gets the name of that module.
 * Not every such place begins a layer: a block that cannot be cut everywhere inside, such as one with
 * a residual, is not cut inside at all, and what has no product (a norm, a pool) stays with the layer
 * before it, so that nodes that fuse stay together.
 *
 * Constants, parameters and what is computed of them alone cross nothing: they are computed where
 * they are read.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "graph.h"

/* A live node with rows, in the order of the program. */
struct station {
    int node;
    int crossing;   /* values that cross before it */
    int64_t floats; /* of a sample of these */
    bool newest;    /* one of them is that of the node before */
    int common;     /* modules that it and the node before are both in */
    bool begins;    /* a layer may begin here */
};

struct route {
    const struct graph *g;
    struct station *stations;
    int n;
    bool *whole; /* [program->n_modules] a block that is not cut inside */
};

static const struct pt_node *program_node(const struct graph *g, int node)
{
    int source = g->nodes[node].source;
    return source < 0 ? NULL : &g->program->nodes[source];
}

/* Returns how many modules the two nodes are both in. */
static int count_common(const struct pt_node *a, const struct pt_node *b)
{
    int n = 0;
    while (a && b && n < a->n_stack && n < b->n_stack && a->stack[n] == b->stack[n])
        n++;
    return n;
}

/* Finds the stations and what crosses before each. */
static int find_stations(struct route *r)
{
    const struct graph *g = r->g;
    PP_TAKE(int, last, g->n_nodes); /* reader of each value */
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in && !g->nodes[i].dead; k++)
            last[g->nodes[i].in[k]] = i;
    last[g->output] = g->n_nodes;
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead || !g->nodes[i].rows || g->nodes[i].kind == GRAPH_INPUT)
            continue;
        struct station *s = &r->stations[r->n];
        const struct station *before = r->n > 0 ? s - 1 : NULL;
        *s = (struct station){.node = i};
        for (int v = 0; v < i; v++) {
            if (!g->nodes[v].rows || g->nodes[v].dead || last[v] < i)
                continue;
            s->crossing++;
            s->floats += graph_floats(g, v);
            s->newest = s->newest || v == (before ? before->node : 0);
        }
        s->common = before ? count_common(program_node(g, before->node), program_node(g, i)) : 0;
        r->n++;
    }
    return 0;
}

static bool is_single(const struct station *s)
{
    return s->crossing == 1 && s->newest;
}

/* Returns the module that a station enters; -1: it enters none. */
static int entered_module(const struct route *r, const struct station *s)
{
    const struct pt_node *n = program_node(r->g, s->node);
    int at = s->common > 0 ? s->common : 1; /* the model itself is no layer */
    return n && at < n->n_stack ? n->stack[at] : -1;
}

static bool ends_in_digit(const char *path)
{
    size_t n = strlen(path);
    return n > 0 && isdigit((unsigned char)path[n - 1]);
}

static bool is_container(const char *type)
{
    return strcmp(type, "Sequential") == 0 || strcmp(type, "ModuleList") == 0 ||
           strcmp(type, "ModuleDict") == 0;
}

/* Returns the innermost module of a station whose name ends in a number, among those that it shares
 * with the station before; -1: there is none. */
static int numbered_module(const struct route *r, const struct station *s)
{
    const struct pt_node *n = program_node(r->g, s->node);
    for (int k = n ? s->common - 1 : -1; k > 0; k--)
        if (ends_in_digit(r->g->program->modules[n->stack[k]].path))
            return n->stack[k];
    return -1;
}

/* Marks the blocks that are not cut inside: numbered modules with a place inside where more than one
 * value crosses, and all modules of their class. */
static void mark_blocks(struct route *r)
{
    const struct pt_program *p = r->g->program;
    for (int i = 1; i < r->n; i++) {
        int block = is_single(&r->stations[i]) ? -1 : numbered_module(r, &r->stations[i]);
        if (block >= 0)
            r->whole[block] = true;
    }
    for (int i = 0; i < p->n_modules; i++)
        for (int k = 0; k < p->n_modules && r->whole[i] && !is_container(p->modules[i].type); k++)
            if (!r->whole[k] && strcmp(p->modules[i].type, p->modules[k].type) == 0)
                r->whole[k] = true;
}

/* Returns whether the place before a station is inside a block. */
static bool is_inside_block(const struct route *r, const struct station *s)
{
    const struct pt_node *n = program_node(r->g, s->node);
    for (int k = 0; n && k < s->common; k++)
        if (r->whole[n->stack[k]])
            return true;
    return false;
}

static bool is_heavy(const struct graph_node *n)
{
    return n->kind == GRAPH_LINEAR || n->kind == GRAPH_PIECES || n->kind == GRAPH_CONV ||
           n->kind == GRAPH_EMBEDDING || n->kind == GRAPH_ATTENTION;
}

/* Returns whether the stations from `at` to the next place where a layer may begin have a
 * product. */
static bool has_product(const struct route *r, int at)
{
    for (int i = at; i < r->n && (i == at || !r->stations[i].begins); i++)
        if (is_heavy(&r->g->nodes[r->stations[i].node]))
            return true;
    return false;
}

/* Returns the length of the longest list of modules that two stations are both in. */
static int common_stack(const struct route *r, int a, int b)
{
    return count_common(program_node(r->g, r->stations[a].node),
                        program_node(r->g, r->stations[b].node));
}

/*
 * Writes the name of the layer of stations first..end - 1: the innermost module that has all its
 * products, or the block around it; with "#2" for the second time that the module runs. Modules that
 * only begin the layer or end it, such as the last norm of a transformer, do not count.
 */
static void name_layer(const struct route *r, int first, int end, char *out, size_t bytes)
{
    int from = first;
    while (from + 1 < end && !is_heavy(&r->g->nodes[r->stations[from].node]))
        from++;
    const struct pt_node *n = program_node(r->g, r->stations[from].node);
    int depth = n ? n->n_stack : 0;
    int entered = r->stations[first].common > 0 ? r->stations[first].common : 1;
    for (int i = from; i < end; i++) {
        int common = common_stack(r, from, i);
        bool counts = is_heavy(&r->g->nodes[r->stations[i].node]) || common > entered + 1;
        depth = counts && common < depth ? common : depth;
    }
    for (int k = entered; n && k < depth; k++)
        if (r->whole[n->stack[k]])
            depth = k + 1;
    const struct pt_module *m =
        n && depth > 1 ? &r->g->program->modules[n->stack[depth - 1]] : NULL;
    if (!m)
        snprintf(out, bytes, "forward");
    else if (m->call > 0)
        snprintf(out, bytes, "%s#%d", m->path, m->call + 1);
    else
        snprintf(out, bytes, "%s", m->path);
}

/* Makes the name of the last of n layers unlike the others. */
static void number_name(struct graph_layer *layers, int n)
{
    char *name = layers[n - 1].name;
    size_t length = strlen(name);
    for (int i = 0, number = 2; i < n - 1; i++) {
        if (strcmp(layers[i].name, name) != 0)
            continue;
        length = length < sizeof(layers->name) - 12 ? length : sizeof(layers->name) - 12;
        snprintf(name + length, 12, "#%d", number++);
        i = -1;
    }
}

static int choose_layers(struct route *r, struct graph *g)
{
    for (int i = 0; i < r->n; i++) {
        struct station *s = &r->stations[i];
        s->begins = i == 0 || (is_single(s) && entered_module(r, s) >= 0 && !is_inside_block(r, s));
    }
    /* from the end, so that a merged place is no longer an end of those before it */
    for (int i = r->n - 1; i > 0; i--)
        r->stations[i].begins = r->stations[i].begins && has_product(r, i);
    int second = 1; /* the first place may have no product: then it takes the next one's layer */
    while (second < r->n && !r->stations[second].begins)
        second++;
    bool light = !has_product(r, 0) && second < r->n;
    PP_TAKE(struct graph_layer, layers, r->n);
    int n = 0;
    if (light)
        r->stations[second].begins = false;
    for (int i = 0; i < r->n; i++) {
        const struct station *s = &r->stations[i];
        int end = i + 1;
        while (end < r->n && !r->stations[end].begins)
            end++;
        if (s->begins) {
            struct graph_layer *l = &layers[n++];
            l->first = s->node;
            name_layer(r, i, end, l->name, sizeof(l->name));
            number_name(layers, n);
        }
        g->nodes[s->node].layer = n - 1;
    }
    g->layers = layers;
    g->n_layers = n;
    layers = NULL;
    return 0;
}

/* Returns whether a node runs in the module of that path. */
static bool is_in_module(const struct graph *g, int node, const char *path)
{
    const struct pt_node *n = program_node(g, node);
    for (int k = 1; n && k < n->n_stack; k++)
        if (strcmp(g->program->modules[n->stack[k]].path, path) == 0)
            return true;
    return false;
}

int graph_find_crossing(const struct graph *g, const char *path, struct graph_crossing *out)
{
    struct route r = {.g = g};
    PP_TAKE(struct station, stations, g->n_nodes);
    r.stations = stations;
    PP_TRY(find_stations(&r));
    *out = (struct graph_crossing){.node = -1};
    for (int i = 0; i < r.n && out->node < 0; i++) {
        const struct station *s = &r.stations[i];
        if (is_in_module(g, s->node, path))
            *out = (struct graph_crossing){s->node, s->crossing, s->floats};
    }
    return 0;
}

int graph_choose_layers(struct graph *g)
{
    struct route r = {.g = g};
    PP_TAKE(struct station, stations, g->n_nodes);
    PP_TAKE(bool, whole, g->program->n_modules);
    r.stations = stations;
    r.whole = whole;
    PP_TRY(find_stations(&r));
    mark_blocks(&r);
    return choose_layers(&r, g);
}
