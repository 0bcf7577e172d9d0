/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans with their messages spelled out, for other programs and for other transports: the lists of
 * torch.distributed.pipelining, in both of its formats, and the proof that lists of blocking sends
 * and receives come to an end under what a transport guarantees.
 */
#ifndef PPCLI_EXCHANGE_H
#define PPCLI_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ppcli/plan.h"

/*
 * Compute and messages of one rank in one order. SEND waits for what the transport's guarantee
 * says; RECV waits for the message; POST only says that the memory is ready, WAIT is for the
 * message of an earlier POST. Messages within a rank (V placement) have no cells.
 */
enum pp_comm_kind {
    PP_COMM_RUN,
    PP_COMM_SEND,
    PP_COMM_RECV,
    PP_COMM_POST,
    PP_COMM_WAIT
};

struct pp_comm {
    uint8_t kind;  /* enum pp_comm_kind */
    bool merged;   /* RUN: an I and the W right behind it, as one B */
    int32_t index; /* RUN: of the rank's action; else the plan's message */
};

struct pp_comm_list {
    struct pp_comm *cells;
    int n, capacity;
};

struct pp_comms {
    int n_ranks;
    struct pp_comm_list *ranks; /* [n_ranks] */
};

enum pp_comm_order {
    /* torch's: round robin over the ranks, one cell each; when a cell is placed, its SEND goes
     * right behind it and the RECV at once to the end of the peer's list. Adjacent I and W of one
     * (stage, mb) become B first, unless the plan has overlapped pairs. One point of one sequence
     * for both halves: safe without any buffer, but a receive may stand before work that could run
     * without it. */
    PP_COMM_LOWERED,
    /* What one would write first: RECV right before its consumer, SEND right behind its producer.
     * Needs buffers as soon as neighbours send to each other. */
    PP_COMM_AT_USE,
    /* The executor's: POST as plan.h says, WAIT right before the consumer, SEND right behind the
     * producer. Blocks where the executor waits for a message slot. */
    PP_COMM_PREPOSTED,
};

/*
 * The plan's actions and messages in one of these orders. Errors: PP_ERESOURCE; PP_EFORMAT when two
 * overlapped pairs wait for each other (LOWERED only: there a pair begins when both inputs are
 * here). The caller owns the lists: pp_comms_fini(), which accepts zeroed ones.
 */
int pp_comms_build(const struct pp_plan *plan, enum pp_comm_order order, struct pp_comms *out);
void pp_comms_fini(struct pp_comms *comms);

/* What a transport promises of a send. */
enum pp_guarantee {
    PP_SEND_SYNCHRONOUS, /* it ends when the receiver has come to the matching RECV or POST */
    PP_SEND_GROUPED,     /* the same for all SEND and RECV cells that stand together: they begin
                            together and end together (NCCL groups); messages between two ranks
                            have no tags, the n-th SEND goes to the n-th RECV or POST */
    PP_SEND_BUFFERED     /* k messages per channel may be on their way, to no RECV or POST yet */
};

/*
 * Prove that lists of `plan` run to their end: every message between ranks is sent once, behind
 * its producer, and taken once, before its consumer, and no rank waits in a circle. Safe under
 * synchronous sends means safe under any number of buffers. Linear. Local. PP_EFORMAT with what is
 * not paired, or with the circle: "rank 0 waits in 0SEND_F1 for rank 1 to come to 1RECV_F1; rank 1
 * waits ...". k: of PP_SEND_BUFFERED, at least 1.
 */
int pp_comms_prove(const struct pp_plan *plan, const struct pp_comms *comms, enum pp_guarantee g,
                   int k);
int pp_plan_prove_transport(const struct pp_plan *plan, enum pp_comm_order order,
                            enum pp_guarantee g, int k);

/* The fewest buffers per channel with which the lists are safe; 0: synchronous sends will do.
 * Errors: those of pp_comms_prove() that no number of buffers helps against. */
int pp_comms_least_buffers(const struct pp_plan *plan, const struct pp_comms *comms, int *out);

/*
 * The lowered lists as CSV, torch's "compute_comms" format: one row per rank,
 * "0F0,0SEND_F0,0RECV_B0,0B0". The stage of SEND and RECV is that of the acting rank. Errors: those
 * of pp_comms_build(), PP_EIO.
 */
int pp_plan_print_csv_comms(const struct pp_plan *plan, FILE *f);

/*
 * Read a table of either format and prove it: check, lower, slots, prove; and the order of its SEND
 * and RECV cells, when it has some, under synchronous sends. `name` is the file's, for errors.
 *
 *   rows     one per rank, cells between commas; "#" begins a comment line; CRLF will do. Nothing
 *            between two commas is an idle tick, in tables without SEND and RECV
 *   cells    <stage><type><micro-batch>: F, I, W, B; SEND_F RECV_F SEND_B RECV_B;
 *            "(0F3;3B1)OVERLAP_F_B"; UNSHARD RESHARD REDUCE_GRAD, which are passed over
 *   2024     in older tables B is the input gradient and BW the full backward: those with a BW,
 *            and those with W but without any I, which the present dialect does not allow
 *   descents where backwards descend (looped-bfs as published), B is read as I, and W follows as
 *            soon as all earlier ones of the stage are there
 *
 * The shape follows from the cells. PP_EFORMAT, "NAME:ROW:COLUMN: " first (line of the file, cell
 * of the line, both from 1), or "NAME: " where several ranks are at fault together; PP_EIO.
 */
int pp_plan_read_csv(FILE *f, const char *name, struct pp_plan **out);

#endif
