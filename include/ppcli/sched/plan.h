/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a schedule: every action of every rank, with its messages and slots, proved. */
#ifndef PPCLI_SCHED_PLAN_H
#define PPCLI_SCHED_PLAN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ppcli/base/base.h"
#include "ppcli/sched/schedule.h"

/* ---- plans */

/*
 * The plan of one pipeline and one batch: what every rank does, in order, with messages and memory
 * slots assigned and proved. It is immutable after pp_plan_build() and shared by all ranks. The
 * executor runs it, the simulator times it, the printer shows it.
 *
 * Passes: generate (schedule) -> check order -> coalesce (groups of W, if asked for) -> lower
 * (messages) -> slots -> prove (no deadlock). If stages are frozen: freeze -> lower and all later
 * passes. If forward passes are recomputed: recompute -> lower and all later passes. For a model with tied tensors: tie -> prove.
 *
 * Executor semantics, which the proof models, for action a of a rank, in order:
 *   F  wait for message a.recv (if >= 0); take the slot of message a.send (wait until its last
 *      reader released it); compute into it; post a.send. Keeps state slot a.slot and the received
 *      message until the W (or B) of the same (stage, mb).
 *   F  with a.recompute: as F, but frees its state slot when it is done. The message stays.
 *   R  recomputes the F of its micro-batch from the message that F received, into state slot
 *      a.slot; what F sent stays as it is. It waits for nothing and sends nothing; it comes after F
 *      and before I.
 *   I  wait for a.recv (gradient of this stage's output); take the slot of a.send; compute; post
 *      a.send. Keeps the received message and gradient slot a.gslot until the matching W. May read
 *      this stage's own output in the slot that its F sent (the derivative of the activation);
 *      after I the sender does not use it any more.
 *   W  compute; release both messages held since F and I, the state slot and the gradient slot.
 *      A stage with plan.frozen has no W: its I releases all of this when it is done.
 *   B  as I immediately followed by W: a.send is posted after the I half, before the W half.
 *   W of a group (geometry.coalesce > 1): the W of micro-batches 0..k-1 of a stage are adjacent,
 *      so are those of k..2k-1 and so on: pp_plan_together(). They may be computed as one sum, and
 *      then release, micro-batch by micro-batch. No action between them waits or sends, so for all
 *      other ranks this is the same sequence of events as one W at a time, and the proof of one
 *      holds for the other.
 *   F of an eval plan: as F, but keeps nothing: the F that takes a message releases it; a.slot is
 *      always 0, a.gslot -1.
 *   G  of tie a.mb: take the slot of a.send, copy a piece of this stage's gradient of the tied
 *      tensor into it, post a.send.
 *   T  of tie a.mb: wait for a.recv, add this piece of the other stage's gradient to this one's,
 *      release the message.
 *      A tie with `after` > 0 does this only from the owner to the copy. The other way, when the
 *      copy has the whole sum, T overwrites this stage's piece with the other's.
 *      Without a message both stages are on this rank, and a.slot is the number of the piece: T
 *      adds the owner's to the copy's, and if `after` is 0 both get the sum; G copies the copy's to
 *      the owner's.
 * G and T come after all other actions of a rank. The loss is part of F on the last virtual stage;
 * W accumulates gradients.
 *
 * The sender and the receiver of a message share its memory, from the sender's action until the
 * receiver's release and, on a forward channel, the sender's own I. The proof shows that no slot is
 * taken again before its sender is done with it (program order; no wait is needed), and that the
 * waits for receivers (acquire) can form no circle. Before its first action a receiver posts the
 * receives of messages with first_in_slot, for each channel by ascending slot; later, when it
 * releases message x, it posts that of message x.next_in_slot if there is one. This posts all
 * receives of a channel in the order of its sends.
 *
 * A message between two virtual stages of the same rank (V placement) is local: same memory, no
 * transfer; it has a slot like any other.
 */

enum pp_plan_kind {
    PP_PLAN_TRAIN,
    PP_PLAN_EVAL /* forward only: M in, losses out */
};

/*
 * A channel is one directed path between two neighbouring virtual stages. Channel ids:
 *   forward  of boundary s (stage s -> s+1):  2*s      carries y of stage s
 *   backward of boundary s (stage s+1 -> s):  2*s + 1  carries the gradient of that y
 *   tie i, after those of all boundaries n:   2*n + 2*i      gradient of the owner, to the copy
 *                                             2*n + 2*i + 1  gradient of the copy, to the owner
 * Its messages go through `slots` fixed pieces of memory.
 */
struct pp_channel {
    int src_stage, dst_stage; /* virtual stages */
    int src_rank, dst_rank;   /* pipeline ranks 0..P-1; equal for a local transfer */
    int slots;                /* 0: unused (eval has no backward channels) */
};

/*
 * A tensor that two virtual stages hold, which may be the same stage. Of n holders of one tensor
 * each neighbouring pair has a tie: the sum goes up from holder to holder, ((g0 + g1) + g2) + ...,
 * the last two exchange, and the whole sum goes back down.
 */
struct pp_tie {
    int owner, copy; /* virtual stages */
    int more; /* number of pieces after the first, if the whole is too large for one message; the
                 same for all ties of a tensor */
    int before, after; /* ties of the same tensor before and after this one */
};

/* One message of one micro-batch on one channel. */
struct pp_message {
    int32_t channel;
    int32_t mb;   /* of a tie: number of the piece */
    int32_t slot; /* in its channel */
    /* next message in this slot in this plan, -1: none. The receiver posts its receive when it
     * releases this message. */
    int32_t next_in_slot;
    bool first_in_slot; /* the receiver posts its receive before the first action */
};

struct pp_action {
    uint8_t op;     /* enum pp_op */
    bool first_w;   /* W/B: first accumulation into this stage's gradient: overwrite, do not add */
    bool overlap;   /* F: meant to run together with the B that follows (see struct pp_cell) */
    bool recompute; /* F: an R recomputes its state later */
    int32_t stage;  /* virtual stage */
    int32_t mb;     /* micro-batch; G and T: number of the tie */
    int32_t slot;   /* state slot of (this rank's chunk, mb): taken by F, or by its R if there
                      is one, freed by W/B; eval: 0 */
    int32_t gslot;  /* gradient slot: taken by I, freed by W (B: taken and freed); else -1 */
    int32_t recv;   /* message to wait for, -1: none (first stage's F, last stage's I/B) */
    int32_t send;   /* message to post, -1: none */
};

struct pp_rank_plan {
    struct pp_action *actions;
    int n_actions;
};

struct pp_plan {
    enum pp_plan_kind kind;
    struct pp_geometry geometry;
    const struct pp_schedule_ops *schedule; /* NULL for eval */
    int n_virtual;                          /* P*V */
    /* 1, or 2: two pipelines over the same ranks, each with its own weights: stages 0..P-1 and
     * P..2P-1, no message between them. M of the geometry is that of one pipeline. */
    int copies;
    int *rank_of;               /* [n_virtual] */
    int *chunk_of;              /* [n_virtual] number of the chunk on its rank, 0..V-1 */
    struct pp_rank_plan *ranks; /* [P] */
    struct pp_tie *ties;        /* [n_ties] */
    int n_ties;
    struct pp_channel *channels; /* [2*(n_virtual-1) + 2*n_ties], by channel id */
    int n_channels;
    struct pp_message *messages;
    int n_messages;
    /* [n_virtual] F-to-W slots of the stage's chunk: its peak in flight; eval: 1 */
    int *state_slots;
    int *grad_slots; /* [n_virtual]: I-to-W slots; eval: 0 */
    /* [n_virtual] recomputed stages: those of a rank number their slots together, so that slots
     * k of two stages may use the same memory */
    bool *shared;
    bool *frozen; /* [n_virtual] stages without W; see pp_plan_freeze() */
};

/* Returns whether an action releases the messages and slots of its micro-batch in its stage. */
static inline bool pp_plan_releases(const struct pp_plan *plan, const struct pp_action *a)
{
    return plan->kind == PP_PLAN_EVAL || a->op == PP_OP_W || a->op == PP_OP_B ||
           (a->op == PP_OP_I && plan->frozen[a->stage]);
}

/*
 * Builds and proves a plan. An impossible geometry gives PP_ECONFIG (with the schedule's reason); a
 * list that fails its proof gives PP_EINTERNAL with the wait cycle in the text. Local. The caller
 * owns *out: pp_plan_destroy().
 */
int pp_plan_build(const char *schedule, const struct pp_geometry *g, struct pp_plan **out);
/* Replaces a plan of a schedule whose order depends on times: the new one is made for those of its virtual
 * stages, costs[3][n_virtual] of F, I and W, and of a transfer. Errors: as pp_plan_build(), which leave
 * *plan NULL. */
int pp_plan_fit(const struct pp_geometry *g, const double *costs, double comm,
                struct pp_plan **plan);
/* Returns an upper bound of the bytes in use while a plan of this shape is built; 0 for an illegal
 * shape. */
double pp_plan_bytes(const struct pp_geometry *g);

int pp_plan_build_eval(const struct pp_geometry *g, enum pp_placement placement,
                       struct pp_plan **out);

/*
 * Runs the passes on lists that did not come from a schedule (tests, tables): cells[r] is rank r's
 * list of n_cells[r] cells; rank_of[s] is the rank of virtual stage s. PP_EFORMAT with the reason
 * when the lists are not a legal training step.
 */
int pp_plan_from_cells(const struct pp_geometry *g, const int *rank_of,
                       const struct pp_cell *const *cells, const int *n_cells,
                       struct pp_plan **out);
void pp_plan_destroy(struct pp_plan **plan); /* accepts NULL in *plan */

/*
 * Makes a plan with the same lists that computes the weight gradients of k micro-batches at a time
 * (see above). For plans that were read from a file; the other builders use geometry.coalesce. The
 * plan must be for training, with one copy of the weights and no ties. Errors: PP_EFORMAT,
 * PP_ERESOURCE. The caller owns *out.
 */
int pp_plan_coalesce(const struct pp_plan *plan, int k, struct pp_plan **out);

/* Returns how many actions of a rank, from the k-th on, are one piece of work: the W of the rest of
 * a group, else 1. */
int pp_plan_together(const struct pp_plan *plan, int rank, int k);

/*
 * Appends the exchange of n >= 1 ties to a proved training plan without ties: on every rank G of
 * the first piece of each of its ties, then T of each, both by ascending tie, then the same of the
 * second pieces and so on, after everything else. Where tensors have more than two holders, each
 * piece has several such steps, one for each tie on the way up and back. So T only waits for the
 * other rank's own list, and all holders' gradients get the same sum on any ranks. The plan is
 * proved again. Errors: PP_ERESOURCE; the plan is then to be destroyed.
 */
int pp_plan_tie(struct pp_plan *plan, const struct pp_tie *ties, int n);

/*
 * Puts an R into a proved training plan without ties for each micro-batch of the virtual stages s
 * with stages[s], unless I directly follows F; each right before its I (or B, or the F;B pair of
 * that B). In the plan of a schedule each R then moves forward into a wait, if a state slot that
 * the rank already has is free. Slots are counted and everything is proved again. Errors:
 * PP_ERESOURCE, PP_EFORMAT; the plan is then to be destroyed.
 */
int pp_plan_add_recompute(struct pp_plan *plan, const bool *stages);
/*
 * Removes the W of the virtual stages s with stages[s], which have no weight gradients, from a
 * proved training plan without ties and R; a B becomes an I. A stage whose F or I do not ascend
 * keeps its W, which then computes nothing. Slots are counted and everything is proved again.
 * Errors: PP_ERESOURCE, PP_EFORMAT; the plan is then to be destroyed.
 */
int pp_plan_freeze(struct pp_plan *plan, const bool *stages);
/* Returns whether virtual stage s is recomputed (has an R). */
bool pp_plan_recomputes(const struct pp_plan *plan, int s);

/* Returns the message of micro-batch mb on a channel between neighbours; -1 if there is no such
 * channel, or if it is a backward channel of an eval plan. Messages of a channel are consecutive,
 * by micro-batch. */
int32_t pp_plan_message(const struct pp_plan *plan, int channel, int mb);

/* Prints the compute cells as CSV (torch.distributed.pipelining's compute-only format, no idle
 * cells): one row per rank, "0F0,0F1,0B0"; two cells meant to overlap are one:
 * "(0F3;3B1)OVERLAP_F_B". G and T are left out: they belong to the model and that format does not
 * have them. R, which torch does not have, is "0R1". These are the lists that run. For a schedule
 * that `descends`, pp_schedule_print_csv() prints the published ones. */
int pp_plan_print_csv(const struct pp_plan *plan, FILE *f);

/* Formats what pp_plan_print_csv() prints as a text that the caller frees. Errors: PP_ERESOURCE.
 * Local. */
int pp_plan_csv_text(const struct pp_plan *plan, char **out);

/* Computes the SHA-256 of what pp_plan_print_csv() prints, as `ppcli plan --csv FILE --format csv |
 * sha256sum` does. Errors: PP_ERESOURCE. */
int pp_plan_digest(const struct pp_plan *plan, char out[PP_SHA256_HEX]);

/* Returns the name of the schedule whose plan of the same shape has the same order; NULL if there
 * is none. An I and the W right after it count as a B. Schedules that are made for given costs are
 * not tried. */
const char *pp_plan_recognize(const struct pp_plan *plan);

/* ---- tables of other programs */

/* Plans for other programs: the tables of torch.distributed.pipelining, in both of its formats. */

/*
 * Prints the plan with its messages as CSV, torch's "compute_comms" format: one row per rank,
 * "0F0,0SEND_F0,0RECV_B0,0B0". The stage of SEND and RECV is that of the acting rank. Errors:
 * PP_EFORMAT when two overlapped pairs wait for each other (in that format a pair begins when it
 * has both inputs); PP_ERESOURCE, PP_EIO.
 */
int pp_plan_print_csv_comms(const struct pp_plan *plan, FILE *f);

/* Prints the plan as pp_plan_print_csv_comms() does, but lowered as torch does it: an I and the W
 * right after it are one B. Reading the result gives another plan, because a B sends its gradient
 * at its end. */
int pp_plan_print_csv_torch(const struct pp_plan *plan, FILE *f);

/*
 * Reads a table of either format and proves it: check, lower, slots, prove; and the order of its
 * SEND and RECV cells, if it has some, under synchronous sends. `name` is the file's, for errors.
 *
 *   rows     one per rank, cells between commas; "#" begins a comment line; CRLF is allowed. Nothing
 *            between two commas is an idle tick, in tables without SEND and RECV
 *   cells    <stage><type><micro-batch>: F, I, W, B; SEND_F RECV_F SEND_B RECV_B;
 *            "(0F3;3B1)OVERLAP_F_B"; UNSHARD RESHARD REDUCE_GRAD, which are ignored
 *   2024     in older tables B is the input gradient and BW the full backward: tables with a BW,
 *            and tables with W but without any I, which the present dialect does not allow
 *   descents if backwards descend (looped-bfs as published), B is read as I, and W follows as soon
 *            as all earlier W of the stage are done
 *
 * The shape follows from the cells. PP_EFORMAT begins with "NAME:ROW:COLUMN: " (line of the file,
 * cell of the line, both from 1), or "NAME: " if several ranks are at fault together; PP_EIO.
 */
int pp_plan_read_csv(FILE *f, const char *name, struct pp_plan **out);

/* ---- tables that a program prints (program.c) */

#define PP_PROGRAM_SECONDS 60.0 /* default of PPCLI_EXEC_SECONDS */
#define PP_PROGRAM_BYTES_MAX (16 << 20)
#define PP_PROGRAM_NAME_MAX 4160 /* bytes of "exec:" and a path */

/* The command line of a program: PATH STAGES CHUNKS MICROBATCHES F I W TRANSFER. */
struct pp_program {
    const char *path; /* with a slash */
    int stages, chunks, microbatches;
    const char
        *costs[4]; /* numbers, or lists between commas, as for --cost-f; NULL: 1, 1, 1 and 0 */
};

/*
 * Runs the program once per process for these arguments and returns what it prints on standard
 * output. The last output is kept; *out_text is valid until another one is printed. Errors, each
 * one line: PP_EPERM, PP_ENOINPUT, PP_ERESOURCE if it does not start; PP_EFORMAT if it fails or
 * breaks a limit. Local; for one thread at a time.
 */
int pp_program_print(const struct pp_program *p, const char **out_text, size_t *out_bytes);

/* Stores text as the output of the program, which ran in another process. Errors: PP_ERESOURCE. */
int pp_program_keep(const struct pp_program *p, const char *text, size_t bytes);

/* Makes the plan of the program's output. Errors: those of pp_program_print(). */
int pp_plan_read_program(const struct pp_program *p, struct pp_plan **out);

#endif
