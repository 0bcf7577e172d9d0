/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump_constants FILE.pt2: writes each constant of a PyTorch program to stdout, for
 * tests/zoo/constants.py. A line "name dtype batch_dim n sizes strides", then the n cells as float64 or
 * int64; n is -1 for a constant that differs between samples. For a node that is not known although
 * all that it reads is: "name ?".
 */
#include <stdio.h>

#include "../../src/nn/graph/fold.h"
#include "ppcli/base/base.h"

static void write_constant(struct folder *f, const char *name, int value)
{
    struct fold_constant c = {.n = -1};
    if (fold_read(f, value, &c) < 0)
        c.n = -1;
    printf("%s %s %d %lld", name, pt_dtype_name(c.dtype), c.batch_dim, (long long)c.n);
    for (int i = 0; i < c.n_dims; i++)
        printf(" %lld", (long long)c.dims[i]);
    for (int i = 0; i < c.n_dims; i++)
        printf(" %lld", (long long)c.strides[i]);
    printf("\n");
    for (int64_t k = 0; k < c.n; k++) {
        double real = c.floats ? (double)c.floats[k] : 0;
        fwrite(c.floats ? (const void *)&real : (const void *)&c.ints[k], 8, 1, stdout);
    }
    fold_constant_free(&c);
}

static bool reads_constants(const struct folder *f, const struct pt_node *node)
{
    bool all = node->n_outputs > 0 && node->outputs[0] >= 0;
    for (int i = 0; i < node->n_args; i++) {
        const struct pt_arg *a = &node->args[i];
        if (a->kind == PT_TENSOR)
            all = all && fold_knows(f, a->value);
        for (int k = 0; a->kind == PT_TENSORS && k < a->n; k++)
            all = all && (a->values[k] < 0 || fold_knows(f, a->values[k]));
    }
    return all;
}

static int dump_program(const char *path)
{
    PP_OWN(pt_program_destroy) struct pt_program *p = NULL;
    PP_OWN(folder_destroy) struct folder *f = NULL;
    PP_TRY(pt_program_read(path, &p));
    PP_TRY(folder_create(p, &f));
    for (int n = 0; n < p->n_nodes; n++) {
        const struct pt_node *node = &p->nodes[n];
        bool known;
        PP_TRY(fold_node(f, n, &known));
        for (int k = 0; known && k < node->n_outputs; k++)
            write_constant(f, p->values[node->outputs[k]].name, node->outputs[k]);
        if (!known && reads_constants(f, node))
            printf("%s ?\n", p->values[node->outputs[0]].name);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && dump_program(argv[1]) == 0)
        return 0;
    fprintf(stderr, "%s\n", argc == 2 ? pp_error_get()->text : "usage: dump_constants FILE.pt2");
    return 1;
}
