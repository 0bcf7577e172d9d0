/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for other programs: the tables of torch.distributed.pipelining, in both of its formats. */
#ifndef PPCLI_EXCHANGE_H
#define PPCLI_EXCHANGE_H

#include <stdio.h>

#include "ppcli/plan.h"

/*
 * The plan with its messages as CSV, torch's "compute_comms" format: one row per rank,
 * "0F0,0SEND_F0,0RECV_B0,0B0". The stage of SEND and RECV is that of the acting rank. Errors:
 * PP_EFORMAT when two overlapped pairs wait for each other (there a pair begins when both its
 * inputs are there); PP_ERESOURCE, PP_EIO.
 */
int pp_plan_print_csv_comms(const struct pp_plan *plan, FILE *f);

/* The same as torch itself lowers it: I and the W right after it are one B. Read again, that is
 * another plan, since B sends its gradient at its end. */
int pp_plan_print_csv_torch(const struct pp_plan *plan, FILE *f);

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
