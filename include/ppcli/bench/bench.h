/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Benchmarks whose figures come with a verdict. Every row of a sweep runs the same steps from the
 * same weights, once per round, the order reversed in every second round; its weights at the end
 * must be those of the run with one stage, bit for bit. What does not pass has no speed.
 */
#ifndef PPCLI_BENCH_BENCH_H
#define PPCLI_BENCH_BENCH_H

#include <signal.h>

#include "ppcli/base/cores.h"
#include "ppcli/plan/search.h"
#include "ppcli/train/train.h"

struct pp_bench_sample;

/* ---- ceiling
 *
 * What this machine can do at most, measured in about a second: arithmetic, matrix products, memory
 * and the way from core to core. A benchmark prints these beside its own figures, because a rate
 * says nothing without the limit that held in the same minute.
 */

#define PP_CEILING_ALONE 16 /* cores that are measured one by one, at most */
struct pp_ceilings {
    int cores;                         /* that this process may use */
    const char *isa;                   /* of the arithmetic loop: "avx512" */
    double fma_core[PP_CEILING_ALONE]; /* flop/s, float, each core alone; 0: not asked */
    int fma_cores;                     /* how many of them were measured alone */
    double fma_all;                    /* flop/s, all cores at once */
    int gemm_n;                        /* width of the square product */
    double blas_core, blas_all;        /* flop/s of the CBLAS; 0: none loads */
    double own_core, own_all;          /* flop/s of ppcli's products; 0: none run here */
    double gemm_core, gemm_all;        /* the better of them: what counts as the peak */
    size_t triad_bytes;                /* of the three arrays together */
    double triad_core, triad_all;      /* bytes/s read and written */
    double ping_pong;                  /* seconds one way, cores 0 and 1; 0: one core */
    double took;                       /* seconds that measuring took */
};

/* The same of a device of its own: through the calls that a run makes, so that what they cost is in
 * it. */
struct pp_device_ceilings {
    char name[128];    /* of the backend, as it describes itself; empty: not measured */
    int gemm_n;        /* width of the square product */
    double gemm[3];    /* by enum pp_precision: flop/s, factors as a run gives them */
    size_t copy_bytes; /* of the block that is copied inside the device's memory */
    double copy;       /* bytes/s, read and written */
    double launch;     /* seconds that the host takes to enqueue the smallest op */
    double op;         /* seconds of the device for each of many of them in a row */
    int nodes;         /* of them that one graph has; 0: no graphs here */
    double node;       /* seconds of the device for each of them in the graph */
    double took;       /* seconds that measuring took */
};

/* ---- measurements */

#define PP_BENCH_SCHEMA 1
#define PP_BENCH_WHY_MAX 512

/* One shape. */
struct pp_bench_row {
    struct pp_config *cfg;          /* as it runs; owned */
    char skipped[PP_BENCH_WHY_MAX]; /* why it does not run; empty: it does */
    int stages, replicas, microbatches, batch;
    int threads; /* of each rank */
    char schedule[PP_NAME_MAX];
    int ranks;
    int devices;    /* that its ranks compute on; 0: the processor */
    int reference;  /* of struct pp_bench: the run with one stage to compare with; -1 */
    bool processes; /* ranks are MPI processes */
    bool exact;     /* must give the bits of the reference */
    int64_t warmup, steps;
    double flops; /* of one training sample */
    /* That a step reads and writes, over its samples: values and their gradients, once in F, I and W
     * as these want them; the weights of products once in each F and I; gradients of weights twice in
     * each product of W, which is of train.coalesce micro-batches; and of the optimizer parameters and
     * state twice, gradients once. Recomputed stages have F twice. Without input, loss, messages and
     * sums over replicas; whether memory or a cache has it. */
    double bytes;
    double bubble_ideal;             /* of the schedule, all pieces of equal length */
    size_t peak_bytes;               /* of the largest rank */
    char invalid[PP_BENCH_WHY_MAX];  /* why it has no speed; empty: it is right */
    struct pp_bench_sample *samples; /* [repeat] */
};

struct pp_bench_spec {
    int repeat;     /* rounds, >= 1 */
    int64_t warmup; /* steps before the clock starts; -1: a tenth, at least 2 */
    double seconds; /* of one measurement, about */
    /* Each row is run again, a few steps and not timed, with its trace there: FILE, or with
     * several rows FILE-1, FILE-2, ... before its ending. NULL: no traces. */
    const char *trace;
    /* Measured again after every round, but under MPI: the best of all counts. NULL: not. */
    struct pp_bench *ceilings;
    const volatile sig_atomic_t *stop; /* not 0: end after the measurement at hand; NULL: never */
    const char *same;                  /* what all processes must have alike, see pp_world_open() */
    void (*before_abort)(void);        /* as in struct pp_train_options, and so is lost */
    pp_lost *lost;
};

#define PP_BENCH_BUSY_LOAD 0.5 /* of the last minute: from here on something else is running */

struct pp_bench {
    int repeat;   /* rounds that count: all that were asked for, unless ... */
    bool stopped; /* ... the user wanted no more; rows that were not measured are skipped then */
    /* [n] As asked for; where these do not begin with one stage and one replica, such a row, with the
     * threads that the config gives it, was put in front. */
    struct pp_bench_row *rows;
    int n, added; /* 1: the first one was */
    /* The runs with one stage. Those that are no row themselves are run beside them. */
    struct pp_bench_row *references; /* [n_references] */
    int *reference_row;              /* [n_references] the row that serves, -1: its own run */
    int n_references;
    struct pp_ceilings ceilings;      /* the caller's to set; cores 0: not measured */
    struct pp_device_ceilings device; /* the same of the first device; name "": not measured */
    bool speaks;                      /* this process prints */
};

/*
 * Measures all rows. configs[n] are loaded configs, which differ only in what a sweep changes, not
 * in data or model. One with problems is skipped. What a config leaves to a measurement (schedule =
 * auto) is chosen in it. Under an MPI launch: collective; rows with as many ranks as processes run
 * as processes, rows of one rank run on rank 0 as threads, and the others do not run. A row that
 * its schedule, its layout or the number of processes refuses is skipped, and one that trains
 * something else than its reference is invalid; neither is a failure. Errors: those of pp_train().
 * The caller owns *out: pp_bench_fini().
 */
int pp_bench_run(struct pp_config *const *configs, int n, const struct pp_bench_spec *spec,
                 struct pp_bench *out);
void pp_bench_fini(struct pp_bench *bench);

/* Measures the ceilings of bench, with those of the first device. `cpu_time` measures one core in
 * time of the processor. Local. Errors: those of pp_ceilings_measure() and of the backend. */
int pp_bench_ceilings(const struct pp_config *cfg, bool cpu_time, struct pp_bench *bench);

/* Checks that there are data and that at least one row can run, before anything is measured.
 * Errors: PP_ECONFIG, those of the data. Local. */
int pp_bench_check(struct pp_config *const *configs, int n);

/*
 * The verdict over one measurement: 0 when it trained what the reference's run of the same steps
 * has trained: the same bits, or, when not exact (train.exact = off), a last loss within
 * PP_BENCH_TOLERANCE of it; else -1 and the reason in why[PP_BENCH_WHY_MAX].
 */
#define PP_BENCH_TOLERANCE 1e-4

/* ---- figures over all rounds */

struct pp_bench_figures {
    bool valid; /* else nothing below is to be shown */
    double sps_mean, sps_sd;
    double step_p50, step_p99; /* medians over the rounds */
    struct pp_bubble bubble;   /* of the round whose bubble is the median */
    double bubble_predicted, bound;
    double waited;  /* median over the rounds; PP_BUBBLE_WAITED or more: do not trust the row */
    double of_peak; /* of the matrix-product rate that its ranks' cores have; 0: unknown */
    double flops, bytes; /* of a second; median */
    const char *limit;   /* the nearer ceiling: "arithmetic" or "memory"; "": unknown */
    double of_limit;     /* the part of it that is reached; 0: unknown */
    double x1;           /* median of the rounds' ratios to the run with one stage */
    double relative;     /* median of the rounds' ratios to the first row that is valid */
};

/* Fails with PP_ECONFIG if no row ran, and with PP_ECHECK if one is wrong or slower than min_sps
 * samples/s. */
int pp_bench_verdict(const struct pp_bench *b, double min_sps);

/* What was measured where. Strings are the caller's or static. */
struct pp_bench_header {
    const char *version, *commit, *date;
    char cpu[128], blas[128], backend[160], mpi[64], gpu[64], binding[128], governor[32], host[64];
    char model[256], dataset[PP_NAME_MAX], config[PP_NAME_MAX], optimizer[16];
    int cores;
    double load; /* average of the last minute before the start; negative: unknown */
};

/* Describes the program and the machine as they are now; version and commit are left as they are.
 * Local. */
void pp_bench_describe(const struct pp_config *cfg, bool whole_machine,
                       struct pp_bench_header *out);

enum pp_bench_format {
    PP_BENCH_MD,
    PP_BENCH_JSON,
    PP_BENCH_CSV
};

/* Prints the result of a benchmark. Errors: PP_EIO. */
int pp_bench_print(const struct pp_bench *b, const struct pp_bench_header *h,
                   enum pp_bench_format format, FILE *f);

/*
 * Compares two files written as JSON: for every row that both have, how much faster the new one is,
 * with a confidence interval over the rounds. Errors: PP_ENOINPUT, PP_EFORMAT (not such a file),
 * PP_ERESOURCE (built without a JSON reader).
 */
int pp_bench_compare(const char *old_path, const char *new_path, FILE *f);

/*
 * Measures and prints transfers of 64 B to 8 MiB, between two processes if MPI has started two,
 * else between two threads; as Markdown, or as JSON for every other format. `same` is for
 * pp_transport_same(). Collective under an MPI launch. Errors: those of pp_handover_measure(),
 * PP_EUSAGE for another number of processes, PP_EIO.
 */
int pp_bench_handover(const struct pp_bench_header *h, const char *same,
                      enum pp_bench_format format, FILE *f);

/*
 * Measures and prints what F, I and W of each op of cfg's model take by themselves, for one
 * micro-batch, in this thread; as Markdown, or as JSON for every other format. Ten ops take about
 * `seconds`. `ceilings` measures the ceilings, too. Needs no data set. Local. Errors: those of
 * pp_run_prepare() and of the backend, PP_EUSAGE under an MPI launch, PP_EIO.
 */
int pp_bench_ops(const struct pp_config *cfg, double seconds, bool ceilings,
                 const struct pp_bench_header *h, enum pp_bench_format format, FILE *f);

/*
 * Writes this machine as a machine file, without [between], and sets p->cluster to it: peaks and
 * bandwidth are the ceilings of one rank, shares are what the ops of p->cfg's model reach when each
 * runs by itself, links are transfers between two threads, layers take what they take here. word:
 * the config as it was given. path: NULL or "-" for standard output. Takes a few seconds. Errors:
 * as of pp_bench_ops(), pp_bench_ceilings(), pp_handover_threads(), pp_best_measure(), and of the
 * file. Local.
 */
struct pp_machine_plan;
int pp_bench_machine(struct pp_machine_plan *p, const char *word, const char *path);

struct pp_bench_candidates {
    const struct pp_space *best;       /* what they were searched for */
    const struct pp_costs *costs;      /* and with */
    const struct pp_row *const *items; /* [n] */
    int n;
    double seconds; /* of each, about */
};

/* Runs the first n_checked candidates of a result, the config as it is and one stage with all
 * cores, if these can run, and sets in *r how they ran. Errors: those of pp_bench_candidates(). */
int pp_bench_best_result(struct pp_best_result *r);

#endif
