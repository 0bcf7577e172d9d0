/* SPDX-License-Identifier: Apache-2.0 */
/* What each op costs: ops.c measures, ops_table.c tells. */
#ifndef PPCLI_BENCH_OPS_H
#define PPCLI_BENCH_OPS_H

#include "bench.h"

#define OP_PHASES 3 /* F, I, W */

/* Of a node and a micro-batch. */
struct op_cost {
    bool product;              /* work is flops, else bytes read and written */
    double seconds[OP_PHASES]; /* 0: there is none */
    double work[OP_PHASES];
};

struct op_ceilings {
    double flops, bytes; /* of a second; 0: not known */
};

/* costs[n_nodes]. Errors: PP_ERESOURCE, PP_EIO. */
int ops_print(const struct op_ceilings *ceilings, const struct pp_run *run,
              const struct op_cost *costs, const struct pp_bench_header *h,
              enum pp_bench_format format, FILE *f);

#endif
