/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run: everything that follows from the config before any rank starts. Training it:
 * ppcli/train.h.
 */
#ifndef PPCLI_RUN_H
#define PPCLI_RUN_H

#include "ppcli/devices.h"
#include "ppcli/exec.h"
#include "ppcli/lr.h"
#include "ppcli/places.h"

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

/* Collective, of ranks that are processes: whether they have the same model, plan and data. Errors:
 * PP_ECONFIG, the same on every rank; as of reading files. */
struct pp_transport;
int pp_run_compare(const struct pp_run *run, struct pp_transport *tp);

/* Whether the ranks of this run will be threads. */
bool pp_run_shares_memory(const struct pp_run *run);

/* What connects the ranks, as far as their memory depends on it. */
struct pp_transport_caps pp_run_caps(const struct pp_run *run);

/* The plan of a full batch, as it would run. costs: for a schedule that is made from them; words: those
 * that a program gets, see pp_layout_read_table(). Errors: as of building it. The caller owns *out. */
int pp_run_plan(const struct pp_run *run, const struct pp_schedule_costs *costs,
                const char *const words[4], struct pp_plan **out);

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

/* Steps of the whole training with so many samples. */
int64_t pp_run_steps(const struct pp_config *cfg, int train_n);

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
