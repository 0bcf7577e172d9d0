/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a run: which layers, plans and memory slots belong to which rank. Pure arithmetic
 * from the division, the model and the number of samples; the same on every rank; immutable and
 * shared read-only by rank threads. `ppcli explain` prints it, the executor follows it.
 *
 * Transport rank of pipeline rank r in replica d: d * stages + r.
 */
#ifndef PPCLI_LAYOUT_H
#define PPCLI_LAYOUT_H

#include "ppcli/division.h"
#include "ppcli/model.h"
#include "ppcli/plan.h"

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

/* Parameters of virtual stage s. */
size_t pp_layout_floats(const struct pp_layout *layout, int s);

/* Bytes of an element of the model's input. */
static inline size_t pp_layout_input_bytes(const struct pp_layout *layout)
{
    return layout->model->tokens ? sizeof(float) : layout->value_bytes;
}

/* Bytes of a message of `rows` rows on channel ch, whose values are sent as they are kept; on a tie's,
 * which are f32, those of its first piece. */
size_t pp_layout_message_bytes(const struct pp_layout *layout, int ch, int rows);

/* Which floats of its tensor a piece of a tie has: *first and how many. A tie within a rank is one
 * piece. */
size_t pp_layout_tied_piece(const struct pp_layout *layout, int tie, int piece, size_t *first);

/* With train.zero: does every replica need all summed gradients, for their norm (which is summed in one
 * order) or for running statistics? Then a step moves gradients twice and parameters once between
 * replicas, else each once. */
bool pp_layout_shares_sums(const struct pp_layout *layout);

/* May ranks know before their last weight gradients that a step's numbers are finite, where values
 * are measured as they are made? Else all read the gradients when all are there. */
bool pp_layout_proves_finite(const struct pp_layout *layout);

/* Bytes of one slot of channel ch, a multiple of PP_ALIGN. */
size_t pp_layout_slot_bytes(const struct pp_layout *layout, int ch);

#endif
