/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ops: a row for each node; after them the products together, and all. */
#include "bench.h"

#include <string.h>

#include "table.h"
#include "ppcli/conf/config.h"

static const struct table_column columns[] = {
    TABLE_LEFT("name", "name"),
    TABLE_LEFT("op", "op"),
    TABLE_LEFT("in", "in"),
    TABLE_LEFT("out", "out"),
    TABLE_NUMBER("F", "f_per_second", TABLE_DIGITS, 1e-9),
    TABLE_NUMBER("I", "i_per_second", TABLE_DIGITS, 1e-9),
    TABLE_NUMBER("W", "w_per_second", TABLE_DIGITS, 1e-9),
    TABLE_LEFT("unit", "unit"),
    TABLE_NUMBER("F, % of ceiling", "f_of_ceiling", "%.0f", 100),
    TABLE_NUMBER("I, %", "i_of_ceiling", "%.0f", 100),
    TABLE_NUMBER("W, %", "w_of_ceiling", "%.0f", 100),
    TABLE_NUMBER("F, GB/s", "f_bytes_per_second", TABLE_DIGITS, 1e-9),
    TABLE_NUMBER("I, GB/s", "i_bytes_per_second", TABLE_DIGITS, 1e-9),
    TABLE_NUMBER("W, GB/s", "w_bytes_per_second", TABLE_DIGITS, 1e-9),
    TABLE_LEFT("limit", "limit"),
    TABLE_NUMBER("F, us", "f_seconds", "%.1f", 1e6),
    TABLE_NUMBER("I, us", "i_seconds", "%.1f", 1e6),
    TABLE_NUMBER("W, us", "w_seconds", "%.1f", 1e6),
    TABLE_NUMBER("% of step", "of_step", "%.1f", 100)};

static double seconds_of(const struct op_cost *c)
{
    return c->seconds[0] + c->seconds[1] + c->seconds[2];
}

static void add(struct op_cost *sum, const struct op_cost *c)
{
    for (int k = 0; k < OP_PHASES; k++) {
        sum->seconds[k] += c->seconds[k];
        sum->work[k] += c->work[k];
        sum->bytes[k] += c->bytes[k];
    }
}

static void put(struct table *t, bool there, double x)
{
    if (there)
        table_number(t, x);
    else
        table_skip(t, 1);
}

/* Under which ceiling F, I and W take longest. */
static const char *limit_of(const struct op_cost *c, const struct bench_top *top)
{
    double work = 0, bytes = 0;
    for (int k = 0; k < OP_PHASES; k++) {
        work += c->work[k];
        bytes += c->bytes[k];
    }
    return work > 0 ? bench_limit(top, c->product ? work : 0, bytes) : "";
}

/* The cells after the names. */
static void put_cost(const struct op_cost *c, const char *unit, const struct bench_top *top,
                     double step, struct table *t)
{
    double rate[OP_PHASES], most = c->product ? top->flops : top->bytes;
    for (int k = 0; k < OP_PHASES; k++) {
        rate[k] = c->work[k] > 0 && c->seconds[k] > 0 ? c->work[k] / c->seconds[k] : 0;
        put(t, rate[k] > 0, rate[k]);
    }
    table_text(t, "%s", unit);
    for (int k = 0; k < OP_PHASES; k++)
        put(t, rate[k] > 0 && most > 0, rate[k] / (most > 0 ? most : 1));
    for (int k = 0; k < OP_PHASES; k++) {
        double bytes = c->seconds[k] > 0 ? c->bytes[k] / c->seconds[k] : 0;
        put(t, bytes > 0, bytes);
    }
    table_text(t, "%s", limit_of(c, top));
    for (int k = 0; k < OP_PHASES; k++)
        put(t, c->seconds[k] > 0, c->seconds[k]);
    put(t, step > 0, seconds_of(c) / step);
}

/* "layer1.0.conv1" of its first parameter's name, else its layer's. */
static void put_name(const struct pp_model *m, const struct pp_node *n, struct table *t)
{
    char in[32], out[32];
    bool own = n->n_params > 0 && m->params[n->first_param].tied_to == 0; /* not another's name */
    const char *name = own ? m->params[n->first_param].name : m->layers[n->layer].name;
    const char *end = own ? strrchr(name, '.') : NULL;
    bool plain = n->activation == PP_ACT_NONE;
    pp_shape_text(&n->in, in, sizeof(in));
    pp_shape_text(&n->out, out, sizeof(out));
    table_text(t, "%.*s", end ? (int)(end - name) : (int)strlen(name), name);
    table_text(t, "%s%s%s", n->op->name, plain ? "" : " + ",
               plain ? "" : pp_activation_name(n->activation));
    table_text(t, "%s", in);
    table_text(t, "%s", out);
}

static int make_table(const struct pp_model *m, const struct op_cost *costs,
                      const struct bench_top *ceilings, struct table *t)
{
    struct op_cost products = {.product = true}, all = {0};
    PP_TRY(table_create(t, m->n_nodes + 2, columns, sizeof(columns) / sizeof(columns[0])));
    for (int i = 0; i < m->n_nodes; i++) {
        add(&all, &costs[i]);
        if (costs[i].product)
            add(&products, &costs[i]);
    }
    double step = seconds_of(&all);
    for (int i = 0; i < m->n_nodes; i++) {
        table_row(t, i);
        put_name(m, &m->nodes[i], t);
        put_cost(&costs[i], costs[i].product ? "GF/s" : "GB/s", ceilings, step, t);
    }
    memset(all.work, 0, sizeof(all.work)); /* of two kinds */
    for (int i = 0; i < 2; i++) {
        table_row(t, m->n_nodes + i);
        table_text(t, i == 0 ? "products" : "all");
        table_skip(t, 3);
        put_cost(i == 0 ? &products : &all, i == 0 ? "GF/s" : "", ceilings, step, t);
    }
    return 0;
}

int ops_print(const struct bench_top *ceilings, const struct pp_run *run,
              const struct op_cost *costs, const struct pp_bench_header *h,
              enum pp_bench_format format, FILE *f)
{
    struct table t = {0};
    int rows = run->layout->max_rows;
    PP_TRY(make_table(run->model, costs, ceilings, &t));
    if (format == PP_BENCH_MD) {
        bench_print_machine(h, f);
        fprintf(f, "- config %s: model %s, micro-batches of %d\n", h->config, h->model, rows);
        if (ceilings->flops > 0)
            fprintf(f, "- ceilings: %.1f GF/s of a matrix product, %.1f GB/s of memory\n",
                    ceilings->flops * 1e-9, ceilings->bytes * 1e-9);
        fputc('\n', f);
        table_markdown(&t, f);
        fprintf(f, "\n- medians of each op by itself, with arrays of its own; without input, loss, "
                   "optimizer and transfers\n");
    } else {
        struct pp_json j = pp_json_begin(f, 2);
        pp_json_str(&j, "type", "ops");
        bench_put_machine(&j, h);
        pp_json_str(&j, "model", h->model);
        pp_json_int(&j, "rows", rows);
        pp_json_dbl(&j, "ceiling_flops_per_second", ceilings->flops);
        pp_json_dbl(&j, "ceiling_bytes_per_second", ceilings->bytes);
        table_json_rows(&t, "ops", &j);
        pp_json_end(&j);
    }
    table_fini(&t);
    return bench_written(f);
}
