/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the benchmark share: bench_rows.c prepares, bench.c measures and judges,
 * bench_stats.c counts, bench_print.c and bench_json.c tell. */
#ifndef PPCLI_BENCH_BENCH_H
#define PPCLI_BENCH_BENCH_H

#include "ppcli/bench.h"

/*
 * Make a row of a config and look at its plan; what refuses it goes into row->skipped, and nothing
 * is looked at when that says something already. processes: of the MPI job, 0: none. Errors: those
 * of pp_run_prepare() but PP_ECONFIG.
 */
int bench_row_make(struct pp_bench_row *row, const struct pp_config *cfg, int processes);

/* The runs with one stage that the rows are compared with. Errors: PP_ERESOURCE. */
int bench_find_references(struct pp_bench *b, int processes);

/* The row that stands for reference r: one of b->rows, or b->references[r]. */
const struct pp_bench_row *bench_reference(const struct pp_bench *b, int r);

/* Config keys other than stages, schedule and micro-batches that are not the same in all rows. */
#define BENCH_AXES_MAX 8
struct bench_axes {
    int keys[BENCH_AXES_MAX]; /* as pp_config_key_name() counts */
    int n;
};

/* The rows, and behind t->rows the references, with all that any format shows. The caller owns
 * *out: table_fini(). Errors: PP_ERESOURCE. */
struct table;
int bench_table(const struct pp_bench *b, const struct pp_bench_header *h,
                const struct bench_axes *axes, struct table *out);

/* lines: JSON lines, a header and then a row each. */
int bench_print_json(const struct pp_bench *b, const struct pp_bench_header *h,
                     const struct bench_axes *axes, const struct table *t, bool lines, FILE *f);

/* The end of a result: is all of it there? Errors: PP_EIO. */
int bench_written(FILE *f);

/* What every benchmark begins with: the program and the machine. */
void bench_print_machine(const struct pp_bench_header *h, FILE *f);
void bench_put_machine(struct pp_json *j, const struct pp_bench_header *h);

/* As the run would be, but of whole batches, for ever, and without a trace on disk. */
int bench_shorten(struct pp_config *cfg);

/* Exact, 1f1b, and what else a pipeline does when nothing is said. */
void bench_plain_pipeline(struct pp_config *cfg, int stages);

/* ---- ops.c: what each op costs: ops.c measures, ops_table.c tells */

#define OP_PHASES 3 /* F, I, W */

/* Of a node and a micro-batch. */
struct op_cost {
    bool product;              /* work is flops, else bytes read and written */
    double seconds[OP_PHASES]; /* 0: there is none */
    double work[OP_PHASES];
};

/* All ops of a config's model, each by itself. */
struct ops_run {
    struct pp_config *cfg; /* a copy, of one stage */
    struct pp_run run;
    struct op_cost *costs; /* [n_nodes] */
};
/* Errors: as pp_bench_ops(). ops_run_fini() whatever it returns; *o is zero before. */
int ops_run_make(const struct pp_bench_ops_spec *spec, struct ops_run *o);
void ops_run_fini(struct ops_run *o);

struct op_ceilings {
    double flops, bytes; /* of a second; 0: not known */
};

/* costs[n_nodes]. Errors: PP_ERESOURCE, PP_EIO. */
int ops_print(const struct op_ceilings *ceilings, const struct pp_run *run,
              const struct op_cost *costs, const struct pp_bench_header *h,
              enum pp_bench_format format, FILE *f);

#endif
