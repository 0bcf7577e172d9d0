/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs whose arguments, types and operators were changed, but which the reader would accept: they
 * become a model, or are refused in a line. A change is eight bytes: node, argument, what, number.
 * PPCLI_FUZZ_PT2 names another archive than the one of the tests.
 */
#include "fuzz.h"
#include "../../src/nn/graph/graph.h"
#include "../../src/nn/nn.h"

static struct pt_program *base;
static struct pp_config *cfg;

/* A program with nodes, arguments and values of its own. */
struct changed {
    struct pt_program p;
    struct pt_arg **args;
};

static void *copy_of(const void *from, size_t n, size_t size)
{
    void *to = malloc(n * size + 1);
    pp_assert(to != NULL);
    return n ? memcpy(to, from, n * size) : to;
}

static void copy_program(struct changed *c)
{
    c->p = *base;
    c->p.nodes = copy_of(base->nodes, (size_t)base->n_nodes, sizeof(*base->nodes));
    c->p.values = copy_of(base->values, (size_t)base->n_values, sizeof(*base->values));
    c->args = malloc((size_t)base->n_nodes * sizeof(*c->args) + 1);
    for (int i = 0; i < base->n_nodes; i++) {
        struct pt_node *n = &c->p.nodes[i];
        n->args = c->args[i] = copy_of(n->args, (size_t)n->n_args, sizeof(*n->args));
        for (int k = 0; k < n->n_args; k++)
            if (n->args[k].kind == PT_INTS)
                c->args[i][k].sizes =
                    copy_of(n->args[k].sizes, (size_t)n->args[k].n, sizeof(struct pt_size));
    }
}

static void free_program(struct changed *c)
{
    for (int i = 0; i < base->n_nodes; i++) {
        for (int k = 0; k < base->nodes[i].n_args; k++)
            if (base->nodes[i].args[k].kind == PT_INTS)
                free((void *)c->args[i][k].sizes);
        free(c->args[i]);
    }
    free(c->args);
    free(c->p.nodes);
    free(c->p.values);
}

static int64_t number_of(uint32_t x)
{
    static const int64_t edges[] = {-1, 0,         1,         2,       3,         7,        8,
                                    64, INT32_MAX, INT32_MIN, 1 << 20, INT64_MAX, INT64_MIN};
    size_t n = sizeof(edges) / sizeof(edges[0]);
    return x % 3 ? edges[x / 3 % n] : (int64_t)(x >> 8 & 31);
}

static void change_arg(struct changed *c, int node, struct pt_arg *a, uint32_t x)
{
    int64_t number = number_of(x);
    switch (a->kind) {
    case PT_INT:
        a->size.n = number;
        a->number = (double)number;
        break;
    case PT_INTS:
        if (a->n > 0)
            ((struct pt_size *)a->sizes)[x % (uint32_t)a->n].n = number;
        break;
    case PT_FLOAT:
        a->number = x % 5 ? (double)number : (double)NAN;
        break;
    case PT_BOOL_ARG:
        a->flag = !a->flag;
        break;
    case PT_TENSOR: {
        int value = (int)(x % (uint32_t)c->p.n_values);
        const struct pt_value *v = &c->p.values[value];
        if (v->origin != PT_FROM_NODE || v->index < node)
            a->value = value;
        break;
    }
    default:
        break;
    }
}

static bool is_readable(const struct pt_tensor *t)
{
    int64_t elements = 1;
    for (int d = 0; d < t->n_dims; d++) {
        const int64_t n = t->dims[d].n;
        if (n > 0 && (__builtin_mul_overflow(elements, n, &elements) || elements > PT_ELEMENTS))
            return false;
    }
    return true;
}

static void change_type(struct pt_tensor *t, uint32_t x)
{
    int d = (int)(x >> 4 & 7);
    const struct pt_tensor before = *t;
    if (x % 4 == 0)
        t->n_dims = d;
    else if (x % 4 == 1)
        t->dims[d].batch = !t->dims[d].batch;
    else if (x % 4 == 2)
        t->dtype = (enum pt_dtype)(x >> 8 & 7);
    else
        t->dims[d].n = number_of(x >> 8) < -1 ? 5 : number_of(x >> 8);
    if (!is_readable(t))
        *t = before;
}

static void change(struct changed *c, const uint8_t *d)
{
    uint32_t x = (uint32_t)d[4] << 24 | (uint32_t)d[5] << 16 | (uint32_t)d[6] << 8 | d[7];
    int node = (d[0] << 8 | d[1]) % c->p.n_nodes;
    struct pt_node *n = &c->p.nodes[node];
    struct pt_arg *a = n->n_args > 0 ? &c->args[node][d[2] % n->n_args] : NULL;
    switch (d[3] % 6) {
    case 0:
        n->target = c->p.nodes[x % (uint32_t)c->p.n_nodes].target;
        break;
    case 1:
        if (n->n_outputs > 0 && n->outputs[0] >= 0)
            change_type(&c->p.values[n->outputs[0]].type, x);
        break;
    case 2:
        if (a && a->kind != PT_INTS && a->kind != PT_TENSORS)
            a->kind = PT_NONE;
        break;
    default:
        if (a)
            change_arg(c, node, a, x);
    }
}

/* As pp_model_create(). */
static int make_model(struct pp_model *m, const struct pt_program *p,
                      const struct graph_initial *initial)
{
    static const struct pp_data_input nothing;
    struct builder b = {.m = m, .cfg = cfg, .data = &nothing};
    struct graph *g = NULL;
    int rc = graph_lower(p, &nothing, &g);
    if (rc == 0 && g->n_problems > 0)
        rc = pp_fail(PP_ECONFIG, "%s", g->problems[0].text);
    rc = rc < 0 ? rc : graph_choose_layers(g);
    rc = rc < 0 ? rc : graph_fuse(g);
    rc = rc < 0 ? rc : build_begin(&b, pp_shape_flat(1));
    int y = rc < 0 ? rc : graph_emit(g, initial, &b);
    graph_destroy(g);
    return y < 0 ? y : build_finish(&b, y);
}

static void begin(void)
{
    char path[PP_PATH_MAX];
    const char *other = getenv("PPCLI_FUZZ_PT2");
    snprintf(path, sizeof(path), "%s/tests/golden/pt2/torch-2.15.0.pt2",
             getenv("PPCLI_SOURCE_DIR"));
    pp_assert(pt_program_read(other ? other : path, &base) == 0);
    pp_assert(pp_config_load(NULL, NULL, 0, NULL, &cfg) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct changed c;
    struct graph_initial *initial = NULL;
    struct pp_model *m = NULL;
    if (!base)
        begin();
    copy_program(&c);
    for (size_t i = 0; i + 8 <= size && i < 64; i += 8)
        change(&c, data + i);
    pp_assert(graph_initial_create(&c.p, &initial) == 0);
    m = pp_alloc(1, sizeof(*m));
    pp_assert(m != NULL);
    int rc = make_model(m, &c.p, initial);
    if (rc < 0)
        fuzz_refused(rc);
    else
        pp_assert(pp_model_flops(m) >= 0);
    pp_model_destroy(&m);
    pp_free(initial);
    free_program(&c);
    return 0;
}
