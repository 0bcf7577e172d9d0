/* SPDX-License-Identifier: Apache-2.0 */
/* A division laid out: plans, layers and memory of every rank. */
#ifndef PPCLI_PIPE_LAYOUT_H
#define PPCLI_PIPE_LAYOUT_H

#include "ppcli/base/cores.h"
#include "ppcli/dev/devices.h"
#include "ppcli/nn/chunk.h"
#include "ppcli/nn/model.h"
#include "ppcli/pipe/division.h"
#include "ppcli/pipe/exec.h"
#include "ppcli/sched/plan.h"

/* ---- layout */

/*
 * The layout of a run: which layers, plans and memory slots belong to which rank. Pure arithmetic
 * from the division, the model and the number of samples; the same on every rank; immutable and
 * shared read-only by rank threads. `ppcli explain` prints it, the executor follows it.
 *
 * Transport rank of pipeline rank r in replica d: d * stages + r.
 */

struct pp_layout_plan { /* one proved plan for batches of m micro-batches */
    enum pp_plan_kind kind;
    int m;
    struct pp_plan *plan;
};

struct pp_layout {
    struct pp_division division; /* `again` also of what its table recomputes */
    struct pp_training training;
    const struct pp_model *model; /* not owned */
    int stages, chunks, replicas, ranks, n_virtual;
    int coalesce;        /* pp_layout_coalesce() of a full batch */
    size_t value_bytes;  /* pp_backend_value_bytes() of the config's backend */
    size_t logits;       /* pp_node_elements() of the model's last node there */
    int train_n, test_n; /* samples; test_n 0: no evaluation */
    enum pp_placement placement;
    int *first, *last; /* [n_virtual] layers of each virtual stage, inclusive; the first of one
                              block with all arrays below, owned */
    int *rank_of;      /* [n_virtual] pipeline rank */
    int max_rows;      /* of one micro-batch, training and evaluation */
    int logits_rows;   /* positions whose logits are there at once; 0: all of a micro-batch */
    struct pp_layout_plan *plans; /* the first: of training with full batches; owned */
    int n_plans;
    struct pp_tie *ties; /* [n_ties] of the plans of training; owned */
    int *tied;           /* [n_ties] and which parameter of the model is the copy */
    int n_ties;
    int n_channels; /* of those plans */
    /* Maxima over all plans: */
    int *state_slots, *grad_slots; /* [n_virtual] */
    int *channel_slots;            /* [n_channels] 1 for ties between ranks, 0 within one */
};

/*
 * Build and prove every plan that a batch of this run can need: full batches and the smaller last
 * one, of every replica, for training and evaluation. What the division points to (a table, ticks)
 * is read here only. Errors: PP_ECONFIG, then *key is the config's that is at fault; PP_ERESOURCE.
 * Local.
 */
int pp_layout_create(const struct pp_model *model, const struct pp_division *division,
                     const struct pp_training *training, struct pp_layout **out, const char **key);
void pp_layout_destroy(struct pp_layout **layout);

/*
 * How many micro-batches of a full batch have their weight gradients in one product: train.coalesce, or the
 * fewest of a full batch that have 256 rows together, a position or pixel being a row: more would
 * make the product hardly faster, and like this the activations that are kept for longer are less
 * than 256 rows of each layer. 1 where train.exact forbids more (pp_backend_sums_in_order()), and
 * by itself with recompute and with schedules that place W themselves or would take longer
 * (pp_schedule_merges()), where that changes no bit. Where it does it follows from model, backend, batch,
 * replicas and micro-batches alone, so that the bits depend on neither stages nor schedule. Never
 * more than there are micro-batches.
 */
int pp_layout_coalesce(const struct pp_division *d, const struct pp_training *training,
                       const struct pp_model *model);

/* ---- layout_table.c */

/* Is the config's schedule a table: file:TABLE or exec:PROGRAM? */
bool pp_layout_is_table(const struct pp_config *cfg);
/* Is it exec:PROGRAM? Local. */
bool pp_layout_runs_program(const struct pp_config *cfg);

/* Its plan. costs: of F, I, W and a transfer, for a program; NULL: its own defaults. Local. Errors:
 * as pp_plan_read_csv() and pp_plan_read_program(). The caller owns *out. */
int pp_layout_read_table(const struct pp_config *cfg, const char *const costs[4],
                         struct pp_plan **out);

/* Collective, of ranks that are processes: rank 0 runs the program of the schedule, if it has one, and
 * all ranks get what it printed. Errors: as pp_program_print(), the same on every rank. */
struct pp_transport;
int pp_layout_share_table(const struct pp_config *cfg, struct pp_transport *tp);

/* The schedule of its first batch: the division's, or, where all samples together are too few for
 * that, the one that replaces it; "table". */
const char *pp_layout_schedule(const struct pp_layout *layout);

/* The most that are worth trying, where a search may choose: the fewest that have 1024 rows. 1 where
 * train.coalesce says how many, or another number could change a bit. */
int pp_layout_coalesce_most(const struct pp_division *d, const struct pp_training *training,
                            const struct pp_model *model);

/* Positions of a micro-batch of `rows` whose logits are there at once, where the schedule lets them
 * come in pieces; 0: all. In pieces, loss and weight gradient of the last layer are parts of its I. */
int pp_layout_logits_rows(const struct pp_training *training, const struct pp_model *model,
                          int rows);

/* Bytes of a message of `rows` rows on channel ch, whose values are sent as they are kept; on a tie's,
 * which are f32, those of its first piece. */
size_t pp_layout_message_bytes(const struct pp_layout *layout, int ch, int rows);

/* With train.zero: does every replica need all summed gradients, for their norm (which is summed in one
 * order) or for running statistics? Then a step moves gradients twice and parameters once between
 * replicas, else each once. */
bool pp_layout_shares_sums(const struct pp_layout *layout);

/* May ranks know before their last weight gradients that a step's numbers are finite, where values
 * are measured as they are made? Else all read the gradients when all are there. */
bool pp_layout_proves_finite(const struct pp_layout *layout);

/* ---- run */

/*
 * A run: everything that follows from the config before any rank starts. Training it:
 * ppcli/train/train.h.
 */

/* Decided from the config alone, the same on every rank; immutable once ranks run. */
struct pp_run {
    struct pp_config *cfg; /* not owned */
    struct pp_model *model;
    struct pp_plan *table; /* of a schedule that is one; owned */
    struct pp_division division;
    struct pp_layout *layout; /* of that */
    const struct pp_backend_ops *backend;
    bool mpi; /* ranks are MPI processes */
    /* Known when training begins, NULL and "" before: */
    struct pp_places places;                  /* of the ranks of this process or machine */
    struct pp_seat *seats;                    /* [layout->ranks]; owned */
    const struct pp_transport_ops *transport; /* what connects the ranks ... */
    char transport_why[PP_TRANSPORT_WHY_MAX]; /* ... and why, "" when there is no device */
};

enum pp_run_need {
    PP_RUN_REAL,    /* data must be there, the backend must run here */
    PP_RUN_EXPLAIN, /* absent data is replaced by what is known of the data set */
};

/*
 * What the config leaves to a measurement has been chosen (ppcli/tune.h: pp_choose()).
 * Errors: PP_ECONFIG (noted as problems of cfg), PP_ENOINPUT and friends for data, PP_ERESOURCE.
 * Local; the same verdict on every rank that sees the same files.
 */
int pp_run_prepare(struct pp_config *cfg, enum pp_run_need need, struct pp_run *out);

/* Whether a training that is started like this process would refuse the config for what needs neither
 * data nor devices to be known. Local. Errors: PP_ECONFIG, some noted as problems of cfg. */
int pp_run_check(struct pp_config *cfg);
void pp_run_fini(struct pp_run *run);

/* Whether the ranks of this run will be threads. */
bool pp_run_shares_memory(const struct pp_run *run);

/* What connects the ranks, as far as their memory depends on it. */
struct pp_transport_caps pp_run_caps(const struct pp_run *run);

/* The plan of a full batch, as it would run. costs: for a schedule that is made from them; words: those
 * that a program gets, see pp_layout_read_table(). Errors: as of building it. The caller owns *out. */
int pp_run_plan(const struct pp_run *run, const struct pp_schedule_costs *costs,
                const char *const words[4], struct pp_plan **out);

struct pp_exec_bytes;
/* The memory of ranks 0 .. n-1 of the layout, which is the run's or another of its model. Errors:
 * as of pp_exec_predict(). */
int pp_run_bytes(const struct pp_run *run, const struct pp_layout *l, int n,
                 struct pp_exec_bytes *out);

/* Samples per split without reading the data; known figures of the data set when it is absent and
 * `need` allows it. */
int pp_run_samples(const struct pp_config *cfg, enum pp_run_need need, enum pp_split split,
                   int *out);

/* Bytes of a sample where its data set lies in memory, without its label; 0: it is a window of a text. */
uint64_t pp_run_sample_bytes(const struct pp_config *cfg, const struct pp_model *model);

/* The config's model for its data, which fit each other as far as is known: absent files fit.
 * Errors: PP_ECONFIG, noted as problems of cfg; as of pp_dataset_look(). Local. The caller owns
 * *out. */
int pp_run_model(struct pp_config *cfg, struct pp_model **out);

/* Whether another value of this key changes no bit of what is trained from here on, with this
 * model and these products. */
bool pp_run_keeps_bits(const struct pp_run *run, const char *key);

/* A batch that is larger than all there is to train with: what it means; "": it is not. */
const char *pp_run_batch_remark(const struct pp_run *run, char out[256]);

/* What there is to say about the learning rates of the steps after `done`. */
void pp_run_lr_remark(const struct pp_run *run, int64_t done, struct pp_lr_remarks *out);

/*
 * When all ranks of a training meet: after about PP_RUN_MEET_NS, or every step where steps take
 * longer; and at least every pp_run_meet_every() steps: for a record, a checkpoint, at the end of
 * an epoch. With run.log_every = 0 a run with a folder has PP_RUN_RECORDS records or more.
 */
#define PP_RUN_MEET_NS 200000000u
#define PP_RUN_RECORDS 50
int pp_run_meet_every(const struct pp_config *cfg, int train_n);

#endif
