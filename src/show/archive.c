/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a PyTorch program, and the operators that such programs may have. */
#include "results.h"

#include <string.h>

#include "ppcli/base/base.h"

/* ---- a program */

#define PROBLEM(m) PP_FIELD(struct pp_archive_problem, m)
static const struct pp_column problem_columns[] = {
    {"text", PROBLEM(text), .help = "what was found, and what would work"},
    {"module", PROBLEM(module), .help = "where it is first; empty: the model itself, or not known"},
    {"source", PROBLEM(source)},
    {"code", PROBLEM(code)},
    {"count", PROBLEM(count), .help = "nodes with this problem"},
    {0}};

#define GRAPH(m) PP_FIELD(struct graph_document, m)
const struct pp_column pp_graph_columns[] = {
    {"torch", GRAPH(a.torch), .help = "version that wrote the program"},
    {"input", GRAPH(a.input), .help = "what forward() takes and returns"},
    {"output", GRAPH(a.output)},
    {"schema_minor", GRAPH(a.schema_minor), .help = "of version 8 of the archive's schema"},
    {"nodes", GRAPH(a.nodes), .help = "of the program; the next five are parts of them"},
    {"sizes", GRAPH(a.sizes), .help = "nodes that compute sizes, or check them"},
    {"constants", GRAPH(a.folded), .help = "nodes that are computed once, on the host"},
    {"views", GRAPH(a.views), .help = "nodes that change how a value is seen"},
    {"computed", GRAPH(a.computed), .help = "nodes that are computed for every sample"},
    {"left_out", GRAPH(a.left_out), .help = "nodes with a problem, or that read their result"},
    {"ops", GRAPH(a.ops), .help = "what computes them; 0: there are problems"},
    {"general", GRAPH(a.general), .help = "ops that are not fast ones"},
    {"evaluated", GRAPH(a.evaluated), .help = "dropouts and batch norms in evaluation mode"},
    {"problems", GRAPH(problems), .inner = problem_columns, .help = "why it cannot be trained"},
    {0}};

void graph_document_make(const struct pp_archive *a, struct graph_document *out)
{
    *out = (struct graph_document){*a, {a->problems, sizeof(*a->problems), a->n_problems}};
}

/* Prints "3 constants, " unless there are none. */
static void print_part(FILE *f, int n, const char *what)
{
    if (n > 0)
        fprintf(f, "%d %s%s, ", n, what, pp_plural(n));
}

static void print_problem(const struct pp_archive_problem *p, FILE *f)
{
    fprintf(f, "  %s%s%s", p->module, p->module[0] ? ": " : "", p->text);
    if (p->count > 1)
        fprintf(f, " (%d times)", p->count);
    fputc('\n', f);
    if (p->source[0])
        fprintf(f, "    %s%s%s\n", p->source, p->code[0] ? ":  " : "", p->code);
}

void graph_document_print(const struct graph_document *d, FILE *f)
{
    const struct pp_archive *a = &d->a;
    fprintf(f, "graph: torch %s, schema 8.%d; %d node%s: ", a->torch, a->schema_minor, a->nodes,
            pp_plural(a->nodes));
    print_part(f, a->views, "view");
    print_part(f, a->sizes, "size");
    print_part(f, a->folded, "constant");
    if (a->n_problems == 0) {
        fprintf(f, "%d computed by %d op%s: ", a->computed, a->ops, pp_plural(a->ops));
        if (a->general > 0)
            fprintf(f, "%d fast, %d general\n", a->ops - a->general, a->general);
        else
            fputs("all fast\n", f);
    } else {
        fprintf(f, "%d computed, %d with a problem or after one\n", a->computed, a->left_out);
    }
    fprintf(f, "  %s, returns %s\n", a->input, a->output);
    if (a->evaluated > 0)
        fprintf(f,
                "  evaluation mode: %d dropout%s or batch norms, which do nothing or keep their\n"
                "  statistics; export model.train() unless that is meant\n",
                a->evaluated, pp_plural(a->evaluated));
    if (a->n_problems > 0)
        fprintf(f, "\n%d problem%s\n", a->n_problems, pp_plural(a->n_problems));
    for (int i = 0; i < a->n_problems; i++)
        print_problem(&a->problems[i], f);
}

/* ---- operators */

struct operator_row {
    const char *name, *becomes;
};

#define OPERATOR(m) PP_FIELD(struct operator_row, m)
static const struct pp_column operator_columns[] = {
    {"operator", OPERATOR(name), .help = "its name without aten."},
    {"becomes", OPERATOR(becomes), .help = "view, move, elementwise, sum, op or constant"},
    {0}};

struct operators_document {
    struct pp_listing operators;
};

const struct pp_column pp_operators_columns[] = {
    PP_SCHEMA(1),
    {"operators", PP_FIELD(struct operators_document, operators), .inner = operator_columns,
     .help = "that a PyTorch program may have"},
    {0}};

static void print_operator_group(const struct operator_row *rows, int n, const char *becomes,
                                 FILE *f)
{
    static const char plain[] = ".default"; /* the only operator of its name, mostly */
    char text[16384] = "";
    for (int i = 0; i < n; i++) {
        const char *name = rows[i].name, *end = strstr(name, plain);
        if (strcmp(rows[i].becomes, becomes) == 0)
            pp_text_add(text, sizeof(text), "%s%.*s", text[0] ? " " : "",
                        (int)(end ? (size_t)(end - name) : strlen(name)), name);
    }
    pp_text_wrap(f, 2, text);
}

static void print_operators(const struct operator_row *rows, int n, FILE *f)
{
    static const char *const groups[][2] = {
        {"op", "ops of their own"},
        {"elementwise", "elementwise: as one op with their neighbours"},
        {"sum", "sums, means, softmax"},
        {"move", "moves: copies of parts of values"},
        {"view", "views: change how a value is seen, at no cost"},
        {"constant", "only of constants, which are computed once"},
    };
    fputs("Operators of PyTorch programs (model.from = FILE.pt2), without aten. An operator that "
          "writes in\nplace, such as add_.Tensor, is taken where the one without _ is.\n",
          f);
    for (size_t k = 0; k < sizeof(groups) / sizeof(groups[0]); k++) {
        fprintf(f, "\n%s\n", groups[k][1]);
        print_operator_group(rows, n, groups[k][0], f);
    }
}

int pp_operators_print(bool json, FILE *f)
{
    const char *name, *becomes;
    int n = 0;
    while (pp_archive_operator(n, &name, &becomes))
        n++;
    PP_TAKE(struct operator_row, rows, n);
    for (int i = 0; i < n; i++)
        pp_archive_operator(i, &rows[i].name, &rows[i].becomes);
    if (json)
        pp_document_json(pp_operators_columns,
                         &(struct operators_document){{rows, sizeof(*rows), n}}, f);
    else
        print_operators(rows, n, f);
    return ferror(f) ? pp_fail_errno(PP_EIO, "cannot write the operators") : 0;
}
