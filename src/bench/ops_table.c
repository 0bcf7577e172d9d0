/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ops: a row for each node; after them the products together, and all. */
#include "bench.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"
#include "ppcli/conf/config.h"

/* A row of the table. A number that is not known is NAN. */
struct op_line {
    char name[PP_NAME_MAX], op[64], in[32], out[32];
    const char *unit, *limit;
    double rate[OP_PHASES], of_ceiling[OP_PHASES], bytes[OP_PHASES], seconds[OP_PHASES], of_step;
};

#define OP(m) PP_FIELD(struct op_line, m), .optional = true
static const struct pp_column line_columns[] = {
    {"name", "name", PP_FIELD(struct op_line, name), .help = "of its parameters or its layer"},
    {"op", "op", OP(op), .help = "the op and its activation"},
    {"in", "in", OP(in), .help = "shape of a sample"},
    {"out", "out", OP(out)},
    {"f_per_second", "F", NULL, 1e-9, "flops of a product, bytes of another op", OP(rate[0])},
    {"i_per_second", "I", NULL, 1e-9, NULL, OP(rate[1])},
    {"w_per_second", "W", NULL, 1e-9, NULL, OP(rate[2])},
    {"unit", "unit", OP(unit), .help = "GF/s or GB/s, of the three before"},
    {"f_of_ceiling", "F, % of ceiling", "%.0f", 100, "share of the ceiling", OP(of_ceiling[0])},
    {"i_of_ceiling", "I, %", "%.0f", 100, NULL, OP(of_ceiling[1])},
    {"w_of_ceiling", "W, %", "%.0f", 100, NULL, OP(of_ceiling[2])},
    {"f_bytes_per_second", "F, GB/s", NULL, 1e-9, "bytes read and written", OP(bytes[0])},
    {"i_bytes_per_second", "I, GB/s", NULL, 1e-9, NULL, OP(bytes[1])},
    {"w_bytes_per_second", "W, GB/s", NULL, 1e-9, NULL, OP(bytes[2])},
    {"limit", "limit", OP(limit), .help = "the nearer ceiling: arithmetic or memory"},
    {"f_seconds", "F, us", "%.1f", 1e6, "time of a micro-batch", OP(seconds[0])},
    {"i_seconds", "I, us", "%.1f", 1e6, NULL, OP(seconds[1])},
    {"w_seconds", "W, us", "%.1f", 1e6, NULL, OP(seconds[2])},
    {"of_step", "% of step", "%.1f", 100, "share of the time of all ops", OP(of_step)},
    {0}};

struct ops_result {
    const char *type;
    struct pp_bench_header h;
    int rows;
    struct bench_top ceilings;
    struct pp_listing ops;
};

#define RESULT(m) PP_FIELD(struct ops_result, m)
const struct pp_column bench_ops_columns[] = {
    PP_SCHEMA(PP_BENCH_SCHEMA),
    {"type", RESULT(type), .help = "\"ops\""},
    {.inner = bench_machine_columns, RESULT(h)},
    {"model", RESULT(h.model), .help = "what was measured"},
    {"rows", RESULT(rows), .help = "samples of a micro-batch"},
    {"ceiling_flops_per_second", RESULT(ceilings.flops),
     .help = "rate of a matrix product; 0: unknown"},
    {"ceiling_bytes_per_second", RESULT(ceilings.bytes), .help = "rate of the memory; 0: unknown"},
    {"ops", RESULT(ops), .inner = line_columns, .help = "ops, then all products, then all"},
    {0}};

static double count_seconds(const struct op_cost *c)
{
    return c->seconds[0] + c->seconds[1] + c->seconds[2];
}

static void add_cost(struct op_cost *sum, const struct op_cost *c)
{
    for (int k = 0; k < OP_PHASES; k++) {
        sum->seconds[k] += c->seconds[k];
        sum->work[k] += c->work[k];
        sum->bytes[k] += c->bytes[k];
    }
}

/* Returns the name of the ceiling that limits the F, I and W of an op together; "" if its work is
 * not known. */
static const char *find_limit(const struct op_cost *c, const struct bench_top *top)
{
    double work = 0, bytes = 0;
    for (int k = 0; k < OP_PHASES; k++) {
        work += c->work[k];
        bytes += c->bytes[k];
    }
    return work > 0 ? bench_name_limit(top, c->product ? work : 0, bytes) : "";
}

static double divide_known(double a, double b)
{
    return a > 0 && b > 0 ? a / b : NAN;
}

/* Sets all fields of the line except the names. */
static void set_cost(const struct op_cost *c, const char *unit, const struct bench_top *top,
                     double step, struct op_line *out)
{
    for (int k = 0; k < OP_PHASES; k++) {
        out->rate[k] = divide_known(c->work[k], c->seconds[k]);
        out->of_ceiling[k] = divide_known(out->rate[k], c->product ? top->flops : top->bytes);
        out->bytes[k] = divide_known(c->bytes[k], c->seconds[k]);
        out->seconds[k] = c->seconds[k] > 0 ? c->seconds[k] : NAN;
    }
    out->unit = unit;
    out->limit = find_limit(c, top);
    out->of_step = step > 0 ? count_seconds(c) / step : NAN;
}

/* Sets the names of the line. A node has the name of its first parameter without the last part,
 * such as "layer1.0.conv1", else the name of its layer. */
static void set_name(const struct pp_model *m, const struct pp_node *n, struct op_line *out)
{
    bool own = n->n_params > 0 && m->params[n->first_param].tied_to == 0; /* not another's name */
    const char *name = own ? m->params[n->first_param].name : m->layers[n->layer].name;
    const char *end = own ? strrchr(name, '.') : NULL;
    bool plain = n->activation == PP_ACT_NONE;
    pp_shape_text(&n->in, out->in, sizeof(out->in));
    pp_shape_text(&n->out, out->out, sizeof(out->out));
    snprintf(out->name, sizeof(out->name), "%.*s", end ? (int)(end - name) : (int)strlen(name),
             name);
    snprintf(out->op, sizeof(out->op), "%s%s%s", n->op->name, plain ? "" : " + ",
             plain ? "" : pp_activation_name(n->activation));
}

/* Makes lines[n_nodes + 2]: one for each node, then one for all products and one for the whole
 * step. */
static void make_lines(const struct pp_model *m, const struct op_cost *costs,
                       const struct bench_top *ceilings, struct op_line *lines)
{
    struct op_cost products = {.product = true}, all = {0};
    for (int i = 0; i < m->n_nodes; i++) {
        add_cost(&all, &costs[i]);
        if (costs[i].product)
            add_cost(&products, &costs[i]);
    }
    double step = count_seconds(&all);
    for (int i = 0; i < m->n_nodes; i++) {
        set_name(m, &m->nodes[i], &lines[i]);
        set_cost(&costs[i], costs[i].product ? "GF/s" : "GB/s", ceilings, step, &lines[i]);
    }
    memset(all.work, 0, sizeof(all.work)); /* of two kinds */
    lines += m->n_nodes;
    snprintf(lines[0].name, sizeof(lines[0].name), "products");
    set_cost(&products, "GF/s", ceilings, step, &lines[0]);
    snprintf(lines[1].name, sizeof(lines[1].name), "all");
    set_cost(&all, "", ceilings, step, &lines[1]);
}

static void print_ops_table(const struct ops_result *r, FILE *f)
{
    bench_print_machine(&r->h, f);
    fprintf(f, "- config %s: model %s, micro-batches of %d\n", r->h.config, r->h.model, r->rows);
    if (r->ceilings.flops > 0)
        fprintf(f, "- ceilings: %.1f GF/s of a matrix product, %.1f GB/s of memory\n",
                r->ceilings.flops * 1e-9, r->ceilings.bytes * 1e-9);
    fputc('\n', f);
    pp_listing_print(line_columns, &r->ops, PP_LISTING_MARKDOWN, 0, f);
    fprintf(f, "\n- medians of each op by itself, with arrays of its own; without input, loss, "
               "optimizer and transfers\n");
}

int ops_print(const struct bench_top *ceilings, const struct pp_run *run,
              const struct op_cost *costs, const struct pp_bench_header *h,
              enum pp_bench_format format, FILE *f)
{
    int n = run->model->n_nodes + 2;
    PP_TAKE(struct op_line, lines, n);
    make_lines(run->model, costs, ceilings, lines);
    struct ops_result r = {.type = "ops",
                           .h = *h,
                           .rows = run->layout->max_rows,
                           .ceilings = *ceilings,
                           .ops = {lines, sizeof(*lines), n}};
    if (format == PP_BENCH_MD)
        print_ops_table(&r, f);
    else
        pp_document_json(bench_ops_columns, &r, f);
    return bench_written(f);
}
