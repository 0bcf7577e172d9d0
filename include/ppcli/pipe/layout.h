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
 * The layout of a run: which layers, plans and memory slots belong to which rank. It is computed
 * from the division, the model and the number of samples alone; it is the same on every rank,
 * constant, and shared by rank threads. `ppcli explain` prints it, the executor follows it.
 *
 * Transport rank of pipeline rank r in replica d: d * stages + r.
 */

struct pp_layout_plan { /* a proved plan for batches of m micro-batches */
    enum pp_plan_kind kind;
    int m;
    struct pp_plan *plan;
};

struct pp_layout {
    struct pp_division division; /* `recompute` includes what its table recomputes */
    struct pp_training training;
    const struct pp_model *model; /* not owned */
    int stages, chunks, replicas, ranks, n_virtual;
    int coalesce;        /* pp_layout_coalesce() of a full batch */
    size_t value_bytes;  /* pp_backend_value_bytes() of the config's backend */
    size_t logits;       /* pp_node_elements() of the model's last node */
    int train_n, test_n; /* samples; test_n 0: no evaluation */
    enum pp_placement placement;
    int *first, *last; /* [n_virtual] first and last layer of each virtual stage; `first` begins the
                          one block of all arrays below, owned */
    int *rank_of;      /* [n_virtual] pipeline rank */
    bool *frozen;      /* [n_virtual] no parameter of the stage is trained; owned */
    int max_rows;      /* rows of the largest micro-batch, in training and evaluation */
    int logits_rows;   /* positions whose logits are in memory at once; 0: all positions of a
                          micro-batch */
    struct pp_layout_plan *plans; /* plans[0] is the one of full training batches; owned */
    int n_plans;
    struct pp_tie *ties; /* [n_ties] ties of the training plans; owned */
    int *tied;           /* [n_ties] parameter of the model that is the copy */
    int *tied_to;        /* [n_ties] the parameter that is this tie's owner: the holder before */
    int n_ties;
    int n_channels; /* channels of the training plans */
    /* Maxima over all plans: */
    int *state_slots, *grad_slots; /* [n_virtual] */
    int *channel_slots;            /* [n_channels] 1 for ties between ranks, 0 for ties within a
                                      rank */
};

/* Builds and proves every plan that a batch of this run can need: for the full batches and the
 * smaller last batch of every replica, in training and evaluation. Reads the division's table and
 * ticks only during the call. Errors: PP_ECONFIG, and *key names the config key at fault;
 * PP_ERESOURCE. Local. */
int pp_layout_create(const struct pp_model *model, const struct pp_division *division,
                     const struct pp_training *training, struct pp_layout **out, const char **key);
void pp_layout_destroy(struct pp_layout **layout);

/*
 * Returns for how many micro-batches of a full batch the weight gradients are computed as one
 * product. This is train.coalesce or, if that is 0, the fewest micro-batches that have 256 rows
 * together (a position or pixel is a row): more rows make the product hardly faster, and keep more
 * activations for longer. It is 1 if train.exact forbids merging (pp_backend_sums_in_order()); and,
 * where merging changes no bit, it is 1 by default with recompute and with schedules that place W
 * themselves or would take longer (pp_schedule_merges()). Where merging changes bits, the result
 * depends on model, backend, batch, replicas and micro-batches alone, so that the bits depend on
 * neither stages nor schedule. Never more than the micro-batches of a batch. Local.
 */
int pp_layout_coalesce(const struct pp_division *d, const struct pp_training *training,
                       const struct pp_model *model);

/* ---- layout_table.c */

/* Returns whether the config's schedule is a table: file:TABLE or exec:PROGRAM. Local. */
bool pp_layout_is_table(const struct pp_config *cfg);
/* Returns whether the config's schedule is exec:PROGRAM. Local. */
bool pp_layout_runs_program(const struct pp_config *cfg);

/* Reads the plan of a schedule that is a table. `costs` are those of F, I, W and a transfer, which
 * are passed to a program; NULL leaves the program its defaults. Local. Errors: those of
 * pp_plan_read_csv() and pp_plan_read_program(). The caller owns *out. */
int pp_layout_read_table(const struct pp_config *cfg, const char *const costs[4],
                         struct pp_plan **out);

/* Rank 0 runs the program of the schedule, if it is one, and all ranks get its output. For ranks
 * that are processes. Collective. Errors: as of pp_program_print(), the same on every rank. */
struct pp_transport;
int pp_layout_share_table(const struct pp_config *cfg, struct pp_transport *tp);

/* Returns the name of the schedule of the first batch, or "table". It is the division's schedule,
 * or the one that replaces it if all samples together are too few for it. */
const char *pp_layout_schedule(const struct pp_layout *layout);

/* Returns the most micro-batches for one product that a search should try: the fewest that have
 * 1024 rows together, or 1 if train.coalesce is set or another number could change a bit. */
int pp_layout_coalesce_most(const struct pp_division *d, const struct pp_training *training,
                            const struct pp_model *model);

/* Returns for how many positions of a micro-batch of `rows` the logits are in memory at once, if
 * the schedule allows pieces; 0 means all positions. With pieces, the loss and the last layer's
 * weight gradient are part of its I. */
int pp_layout_logits_rows(const struct pp_training *training, const struct pp_model *model,
                          int rows);

/* Returns the bytes of a message of `rows` rows on channel ch. On the channel of a tie, which
 * carries f32, these are the bytes of its first piece. */
size_t pp_layout_message_bytes(const struct pp_layout *layout, int ch, int rows);

/* Returns whether, with train.zero, every replica needs all summed gradients: for their norm, which
 * is summed in one order, or for running statistics. Then a step moves gradients twice and
 * parameters once between replicas; otherwise it moves each once. */
bool pp_layout_shares_sums(const struct pp_layout *layout);

/* Returns whether ranks can prove before their last weight gradients that a step's numbers are
 * finite, from values measured as they are computed. If not, all ranks read the gradients when they
 * are complete. */
bool pp_layout_proves_finite(const struct pp_layout *layout);

/* ---- run */

/*
 * A run: everything that follows from the config before any rank starts. ppcli/train/train.h trains
 * it.
 */

/* Decided from the config alone, the same on every rank; constant once ranks run. */
struct pp_run {
    struct pp_config *cfg; /* not owned */
    struct pp_model *model;
    struct pp_plan *table; /* the schedule if it is a table; owned */
    struct pp_division division;
    struct pp_layout *layout; /* layout of `division`; owned */
    const struct pp_backend_ops *backend;
    bool mpi; /* ranks are MPI processes */
    /* Known when training begins; NULL and "" before: */
    struct pp_places places;                  /* cores of the ranks of this process or machine */
    struct pp_seat *seats;                    /* [layout->ranks]; owned */
    const struct pp_transport_ops *transport; /* connects the ranks */
    char transport_why[PP_TRANSPORT_WHY_MAX]; /* reason for the choice of transport; "" without a
                                                 device */
};

/* Returns the backend of a rank, on the first device that the config allows. With run.threads =
 * auto it has as many threads as the rank was given processors, once the ranks are placed; before
 * that, as many as its share of the cores. */
struct pp_backend_choice pp_run_backend(const struct pp_run *run);

enum pp_run_need {
    PP_RUN_REAL,    /* data must exist, and the backend must run here */
    PP_RUN_EXPLAIN, /* data that is absent is replaced by the known sizes of the data set */
};

/* Prepares a run of a config in which every value to be measured is chosen (pp_choose()). Errors:
 * PP_ECONFIG (noted as problems of cfg), PP_ENOINPUT and other errors of data, PP_ERESOURCE. Local;
 * the result is the same on every rank that sees the same files. */
int pp_run_prepare(struct pp_config *cfg, enum pp_run_need need, struct pp_run *out);

/* Checks whether a training started like this process would reject the config, for reasons that
 * depend on neither data nor devices. Local. Errors: PP_ECONFIG, some noted as problems of cfg. */
int pp_run_check(struct pp_config *cfg);
void pp_run_fini(struct pp_run *run);

/* Returns whether the ranks of this run will be threads. */
bool pp_run_shares_memory(const struct pp_run *run);

/* Returns those properties of the transport on which the memory of the ranks depends. */
struct pp_transport_caps pp_run_caps(const struct pp_run *run);

/* Builds the plan of a full batch as it would run. `costs` are for a schedule that is made from
 * costs; `words` are the costs that a program gets, see pp_layout_read_table(). Errors: those of
 * building the plan. The caller owns *out. */
int pp_run_plan(const struct pp_run *run, const struct pp_schedule_costs *costs,
                const char *const words[4], struct pp_plan **out);

struct pp_exec_bytes;
/* Computes the memory of ranks 0 .. n-1 of a layout of the run's model. Errors: those of
 * pp_exec_predict(). */
int pp_run_bytes(const struct pp_run *run, const struct pp_layout *l, int n,
                 struct pp_exec_bytes *out);

/* Counts the samples of a split without reading the data. If the files are absent and `need` allows
 * it, uses the known sizes of the data set. */
int pp_run_samples(const struct pp_config *cfg, enum pp_run_need need, enum pp_split split,
                   int *out);

/* Returns how many bytes a sample of a data set has in memory, without its label; 0 if samples are
 * windows of a text. */
uint64_t pp_run_sample_bytes(const struct pp_config *cfg, const struct pp_model *model);

/* Makes the config's model for its data, and checks that they fit each other as far as is known;
 * files that are absent count as fitting. Errors: PP_ECONFIG, noted as problems of cfg; those of
 * pp_dataset_look(). Local. The caller owns *out. */
int pp_run_model(struct pp_config *cfg, struct pp_model **out);

/* Returns whether another value of this key would change no bit of the rest of the training, with
 * this model and this backend's products. */
bool pp_run_keeps_bits(const struct pp_run *run, const char *key);

/* Returns a sentence about a batch that is larger than the training data; "" if it is not
 * larger. */
const char *pp_run_batch_remark(const struct pp_run *run, char out[256]);

/* Collects the remarks on the learning rates of the steps after `done`. */
void pp_run_lr_remark(const struct pp_run *run, int64_t done, struct pp_lr_remarks *out);

/*
 * All ranks of a training synchronize after about PP_RUN_MEET_NS, or after every step if steps take
 * longer; and at least every pp_run_meet_every() steps: for a record, a checkpoint, the end of an
 * epoch. If run.log_every = 0, a run with a folder has PP_RUN_RECORDS records or more.
 */
#define PP_RUN_MEET_NS 200000000u
#define PP_RUN_RECORDS 50
int pp_run_meet_every(const struct pp_config *cfg, int train_n);

#endif
