/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs of life between hosts. Every rank tells one listener four times a second what it is at, over
 * a TCP connection of its own, and is answered. So both sides know within run.hang_timeout and 2 s
 * that the other one is stopped or cut off, and whose connection ended first is who died first. The
 * listener is the ppcli that started mpirun; without one, rank 0. No MPI, no allocation after the
 * start. All Local.
 */
#ifndef PPCLI_CLUSTER_PULSE_H
#define PPCLI_CLUSTER_PULSE_H

#include <stdbool.h>
#include <stdint.h>

#define PP_PULSE_ENV "PPCLI_PULSE" /* in the environment of the ranks: the listener's address */
#define PP_PULSE_ADDRESS 512       /* bytes of an address: token:port:IP,IP..., no blanks */
#define PP_PULSE_EVERY_NS 250000000u
#define PP_PULSE_TEXT 1024
#define PP_PULSE_KEEPER (-1) /* in place of a rank: the keeper of an orted, see start.h */

/* ---- of a rank */

struct pp_pulse;

enum pp_pulse_news {
    PP_PULSE_WELL,
    PP_PULSE_LOST, /* the listener has been silent for too long */
    PP_PULSE_END,  /* the listener wants the run to end, and has said why; or is gone (a keeper) */
};

/* Beats at once, so that the listener knows of a rank that dies in its first second. timeout:
 * run.hang_timeout, seconds. first: the host of rank 0, which is the listener; NULL: the parent of mpirun
 * is, and counts as lost even if it never answers. The caller owns *out. Errors: PP_ERESOURCE, PP_EFORMAT
 * (not an address). */
int pp_pulse_open(const char *address, int rank, double timeout, const char *first,
                  struct pp_pulse **out);
/* Accepts NULL in *p, as all accept a NULL pulse. The listener learns that the rank has ended in
 * order. */
void pp_pulse_close(struct pp_pulse **p);

/* What the rank is at, for how long, and whether it waits for others. Any thread. */
void pp_pulse_say(struct pp_pulse *p, bool waits, uint64_t idle_ns, const char *what);

/* The run was asked to end: a listener whose process has ended is lost after 2 s. */
void pp_pulse_hurry(struct pp_pulse *p);

/* One beat: every PP_PULSE_EVERY_NS, in one thread. text: of PP_PULSE_LOST. */
enum pp_pulse_news pp_pulse_beat(struct pp_pulse *p, char text[PP_PULSE_TEXT]);

/* ---- of the listener, in one thread */

struct pp_listener;

/* For that many ranks, on all networks. first, last: ports to use, 0 for any. The caller owns *out.
 * Errors: PP_ERESOURCE. */
int pp_listener_open(int ranks, int first, int last, struct pp_listener **out);
void pp_listener_close(struct pp_listener **l); /* accepts NULL in *l, as all accept a NULL one */
const char *pp_listener_address(const struct pp_listener *l); /* "": none */

/* Every PP_PULSE_EVERY_NS. True: the run cannot go on, as text says in one line: a rank is silent
 * for too long or has not come, or all wait for each other. Only where ranks have several hosts. */
bool pp_listener_look(struct pp_listener *l, char text[PP_PULSE_TEXT]);
/* The run was asked to end: a rank whose connection ended in the middle of work is lost after 2 s. */
void pp_listener_hurry(struct pp_listener *l);
/* Every rank that listens ends, silently. */
void pp_listener_end(struct pp_listener *l);

#endif
