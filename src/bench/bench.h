/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the benchmark share: rows.c prepares, bench.c measures and judges, stats.c
 * counts, result.c and print.c tell. */
#ifndef PPCLI_SRC_BENCH_BENCH_H
#define PPCLI_SRC_BENCH_BENCH_H

#include "ppcli/bench/bench.h"
#include "ppcli/show/columns.h"
#include "ppcli/train/train.h"

/*
 * Makes a row of a config and looks at its plan. If the plan is refused, row->skipped says why; if
 * row->skipped has a text before that, the plan is not looked at. `processes` is the number of
 * processes of the MPI job, 0 without MPI. Errors: those of pp_run_prepare() except PP_ECONFIG.
 */
int bench_row_make(struct pp_bench_row *row, const struct pp_config *cfg, int processes);

/* Sets rows[0] to the first of rows[1] to rows[n] that can run, but on one stage and without
 * replicas. If rows[1] is such a row already, all rows move to the front instead. Errors: those of
 * bench_row_make(). */
int bench_begin_with_one(struct pp_bench *b, int n, int processes);

/* Finds the runs with one stage that the rows are compared with. Errors: PP_ERESOURCE. */
int bench_find_references(struct pp_bench *b, int processes);

/* Returns the row that is reference r: one of b->rows, or b->references[r]. */
const struct pp_bench_row *bench_reference(const struct pp_bench *b, int r);

/* Config keys other than stages, schedule and micro-batches that are not the same in all rows. */
#define BENCH_AXES_MAX 8
struct bench_axes {
    int keys[BENCH_AXES_MAX]; /* as pp_config_key_name() counts */
    int n;
};

/* A row as it is printed. */
#define BENCH_CELL 512
struct bench_line {
    const char *commit, *date, *cpu, *model;
    struct pp_bench_row row;   /* a copy, which owns nothing */
    struct pp_bench_figures g; /* NAN: unknown */
    char speed[64], axis[BENCH_AXES_MAX][BENCH_CELL];
    const char *check, *why, *ranks_are, *sha;
    struct pp_listing samples;
    const struct bench_axes *axes;
};

#define BENCH_COLUMNS_MAX 64
struct bench_lines {
    struct bench_line *at; /* owned: the rows, then the references that are not rows themselves */
    int rows, references;
    struct pp_column columns[BENCH_COLUMNS_MAX]; /* of the rows, with one for each axis */
};
/* Makes the lines that are printed of the rows. Call bench_lines_fini() whatever it returns.
 * Errors: PP_ERESOURCE. */
int bench_lines_make(const struct pp_bench *b, const struct pp_bench_header *h,
                     const struct bench_axes *axes, struct bench_lines *out);
void bench_lines_fini(struct bench_lines *lines);

/* Returns whether the ranks waited for a core, so that these are not the figures of the
 * division. */
bool bench_is_spoiled(const struct pp_bench_figures *g);

void bench_print_json(const struct pp_bench *b, const struct pp_bench_header *h,
                      const struct bench_lines *lines, FILE *f);

extern const struct pp_column bench_documents[];       /* as pp_show_documents */
extern const struct pp_column bench_machine_columns[]; /* of struct pp_bench_header */
extern const struct pp_column bench_handover_columns[], bench_ops_columns[];

/* Checks at the end of a result that all of it was written. Errors: PP_EIO. */
int bench_written(FILE *f);

/* Prints the program and the machine: the first lines of every benchmark. */
void bench_print_machine(const struct pp_bench_header *h, FILE *f);

/* Changes a config for a measurement: the run stays the same, but has whole batches only, no end,
 * and no trace on disk. */
int bench_shorten(struct pp_config *cfg);

/* Sets keys[n], pairs of key and value, in a config that this program has made. Errors:
 * PP_ECONFIG. */
int bench_set_keys(struct pp_config *cfg, const char *const (*keys)[2], size_t n);
int bench_set_number(struct pp_config *cfg, const char *key, int value);

/* Sets a config to `stages` stages with exact sums, 1f1b, and the defaults for the rest of the
 * pipeline. */
int bench_plain_pipeline(struct pp_config *cfg, int stages);

/* Under which ceiling so much takes longer. */
struct bench_top {
    double flops, bytes; /* of a second; 0: not known */
};
/* Returns which ceiling limits an op with this work: "arithmetic" or "memory"; "" if a ceiling is
 * not known. */
const char *bench_name_limit(const struct bench_top *top, double flops, double bytes);

/* ---- ops.c: what each op costs: ops.c measures, ops_table.c tells */

#define OP_PHASES 3 /* F, I, W */

/* Of a node and a micro-batch. */
struct op_cost {
    bool product;              /* work is flops, else bytes read and written */
    double seconds[OP_PHASES]; /* 0: there is none */
    double work[OP_PHASES];
    double bytes[OP_PHASES]; /* of values, gradients and weights, each read or written once */
};

/* All ops of a config's model, each by itself. */
struct ops_run {
    struct pp_config *cfg; /* a copy with one stage; owned */
    struct pp_run run;
    struct op_cost *costs; /* [n_nodes] */
};
/* Measures the ops of cfg's model; ten of them take about `seconds`. *o must be zero before. Call
 * ops_run_fini() whatever it returns. Errors: those of pp_bench_ops(). */
int ops_run_make(const struct pp_config *cfg, double seconds, struct ops_run *o);
void ops_run_fini(struct ops_run *o);

/* Counts the work and the bytes of a node for `rows` samples at once. Products are counted in
 * flops, other ops in the bytes of their values and gradients. `element` is the bytes of a
 * value. */
void ops_count(const struct pp_model *m, const struct pp_node *n, size_t element, double rows,
               struct op_cost *out);

/* Prints the costs of the ops of a model, costs[n_nodes]. Errors: PP_ERESOURCE, PP_EIO. */
int ops_print(const struct bench_top *ceilings, const struct pp_run *run,
              const struct op_cost *costs, const struct pp_bench_header *h,
              enum pp_bench_format format, FILE *f);

/* ---- probe.c: a training run that is measured instead of logged */

struct probe {
    int64_t warmup, steps; /* optimizer steps before all ranks meet and the clock starts, and
                              after; steps >= 1 */
    uint64_t *ends_ns;     /* [steps] of the prober: when rank 0 ended each step, since the clock
                              started */

    /* Set on rank 0 when the run succeeds: */
    double seconds; /* of the slowest rank */
    double waited;  /* share of the ranks' time waiting for a core; -1: the system does not tell */
    int64_t samples;
    struct pp_bubble bubble;
    double bubble_predicted, bound; /* as in struct pp_bench_sample */
    double simulated;               /* seconds of a step of these actions */
    double loss;
    size_t peak_bytes;
    char sha[65];
};

/* What the measured runs of a benchmark share. */
#define PROBE_STEPS_MAX 200000
struct prober {
    struct pp_train_options options; /* of every run; of the caller: before_abort, lost, ctx */
    struct pp_dataset *data[2];
    uint64_t *ends_ns; /* [PROBE_STEPS_MAX] of the last run */
};

/* Prepares to run rows. Call probe_close() whatever it returns. Errors: PP_EIO, PP_ERESOURCE. */
int probe_open(struct prober *p);
void probe_close(struct prober *p);

/* Reads or makes the data once, for all runs that follow. Errors: those of pp_dataset_open(). */
int probe_open_data(struct prober *p, const struct pp_config *cfg);

/* Runs the steps of `probe` (warmup, then steps) without a log, an evaluation or a synchronization
 * between the steps. If `probe` is NULL, trains as cfg says. Collective where pp_train() is.
 * Errors: those of pp_train(). */
int probe_run(struct prober *p, struct pp_config *cfg, struct probe *probe);

/* Returns how many steps take about `seconds`, judging by what was measured; at least 4. */
int64_t probe_steps(const struct probe *measured, double seconds);

struct pp_ceiling_spec {
    /* Use the cores of the machine even where this process is bound to one of them, as an MPI
     * launcher does: what several processes may use together. */
    bool whole_machine;
    bool cpu_time; /* of one core alone: without the time that others have it */
    double scale;  /* 1: about a second in all on two cores; tests take less */
};

/*
 * Measures the ceilings of this machine with one pinned thread per core, as medians of a few
 * repeats. Nothing else of this process may be computing. Sets the CBLAS of this process to one
 * thread. Local. Errors: PP_ERESOURCE.
 */
int pp_ceilings_measure(const struct pp_ceiling_spec *spec, struct pp_ceilings *out);

/* Returns the rate of matrix products that `ranks` ranks have together: that of as many cores, but
 * at most of all cores. Returns 0 if it was not measured. */
double pp_ceiling_gemm(const struct pp_ceilings *c, int ranks);

/* Returns the rate of memory, in bytes/s, that `ranks` ranks have together: this number of times
 * that of one core, but at most that of all cores. */
double pp_ceiling_memory(const struct pp_ceilings *c, int ranks);

/*
 * Measures the device of `choice` at every precision, whatever its own precision is. Takes about a
 * second and 2 GiB, less if the device is slow or has less free. `gemm_n` is the greatest width of
 * the product, 0 for 8192. Nothing else may be computing there. Local. Errors: those of the
 * backend.
 */
int pp_device_ceilings_measure(const struct pp_backend_choice *choice, int gemm_n,
                               struct pp_device_ceilings *out);

/* One measurement of one row. */
struct pp_bench_sample {
    bool valid; /* judged and good */
    double samples_per_second, seconds;
    double step_p50, step_p90, step_p99, step_min, step_max; /* seconds, of rank 0 */
    struct pp_bubble bubble;                                 /* as measured */
    double bubble_predicted; /* simulated with the measured times and free transfers */
    double bound;  /* shortest possible step with these times / measured one; 0: unknown */
    double waited; /* share of the ranks' time waiting for a core; -1: the system does not tell */
    double loss;   /* of the last step */
    char sha[65];  /* of the weights at the end */
};
int pp_bench_judge(const struct pp_bench_sample *s, const struct pp_bench_sample *reference,
                   bool exact, char *why);
void pp_bench_figures(const struct pp_bench *b, const struct pp_bench_row *row,
                      struct pp_bench_figures *out);

/* Returns how many rows ran and were found wrong. */
int pp_bench_invalid(const struct pp_bench *b);

/* Computes the change new / old - 1 of the means of two samples, and its 95 % interval by Welch's t
 * on the logarithms. Each sample needs at least 2 values above 0; with fewer it returns false and
 * sets only *change. */
bool pp_bench_change(const double *old_values, int n_old, const double *new_values, int n_new,
                     double *change, double *low, double *high);

/* Runs candidates for real, in this process and on threads: 11 rounds of at least 4 steps or, if
 * one is predicted to take more than 0.25 s, 3 to 11 rounds of a single step. Sets out[n], and
 * writes no files. Errors: those of pp_train(). */
int pp_bench_candidates(const struct pp_bench_candidates *spec, struct pp_checked *out);

#endif
