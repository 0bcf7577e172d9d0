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

/* ---- tables that a program prints (program.c) */

#define PP_PROGRAM_SECONDS 60.0 /* unless PPCLI_EXEC_SECONDS has another number */
#define PP_PROGRAM_BYTES_MAX (16 << 20)
#define PP_PROGRAM_NAME_MAX 4160 /* "exec:" and a path */

/* Started as: PATH STAGES CHUNKS MICROBATCHES F I W TRANSFER. */
struct pp_program {
    const char *path; /* with a slash */
    int stages, chunks, microbatches;
    const char *costs[4]; /* numbers, or lists between commas, as --cost-f; NULL: 1, 1, 1 and 0 */
};

/*
 * What the program prints on standard output for these words. It runs once in this process: the
 * last output is kept, and is *out_text until another one is printed. Errors, each one line: PP_EPERM,
 * PP_ENOINPUT, PP_ERESOURCE where it does not start; PP_EFORMAT where it fails or breaks a limit.
 * Local; of one thread at a time.
 */
int pp_program_print(const struct pp_program *p, const char **out_text, size_t *out_bytes);

/* Take this for what the program printed: it ran in another process. Errors: PP_ERESOURCE. */
int pp_program_keep(const struct pp_program *p, const char *text, size_t bytes);

/* The plan of that output. As pp_program_print(). */
int pp_plan_read_program(const struct pp_program *p, struct pp_plan **out);

#endif
