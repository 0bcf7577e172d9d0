/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats between hosts. Every rank sends one listener its current action four times a second,
 * over its own TCP connection, and gets an answer. So each side knows within run.hang_timeout and 2
 * s that the other is stopped or cut off, and the first connection to end is that of the first rank
 * to die. The listener is the ppcli that started mpirun; else rank 0. No MPI, no allocation after
 * the start. All functions are Local.
 */
#ifndef PPCLI_CLUSTER_PULSE_H
#define PPCLI_CLUSTER_PULSE_H

#include <stdbool.h>
#include <stdint.h>

#define PP_PULSE_ENV "PPCLI_PULSE" /* environment variable of the ranks: the listener's address */
#define PP_PULSE_ADDRESS 512       /* bytes of an address: token:port:IP,IP..., without blanks */
#define PP_PULSE_EVERY_NS 250000000u
#define PP_PULSE_TEXT 1024
#define PP_PULSE_KEEPER (-1) /* in place of a rank: the keeper of an orted, see launch.h */

/* ---- of a rank */

struct pp_pulse;

enum pp_pulse_news {
    PP_PULSE_WELL,
    PP_PULSE_LOST, /* the listener has been silent for too long */
    PP_PULSE_END,  /* the listener has reported and wants the run to end; or it is gone (for a
                      keeper) */
};

/* Connects and sends a heartbeat at once, so that the listener knows a rank that dies in its first
 * second. timeout: run.hang_timeout in seconds. first: the host of rank 0, which listens; NULL: the
 * parent of mpirun listens, and counts as lost even if it never answers. The caller owns *out.
 * Errors: PP_ERESOURCE, PP_EFORMAT (not an address). */
int pp_pulse_open(const char *address, int rank, double timeout, const char *first,
                  struct pp_pulse **out);
/* Tells the listener that the rank has ended normally. Accepts NULL in *p; all functions accept a
 * NULL pulse. */
void pp_pulse_close(struct pp_pulse **p);

/* Sets the rank's action, for how long it has been in it, and whether it waits for other ranks. Any
 * thread. */
void pp_pulse_say(struct pp_pulse *p, bool waits, uint64_t idle_ns, const char *what);

/* Declares that the run was asked to end: a listener whose process has ended counts as lost after 2
 * s. */
void pp_pulse_hurry(struct pp_pulse *p);

/* Sends a heartbeat. Must be called every PP_PULSE_EVERY_NS, in one thread. Sets text if it returns
 * PP_PULSE_LOST. */
enum pp_pulse_news pp_pulse_beat(struct pp_pulse *p, char text[PP_PULSE_TEXT]);

/* ---- of the listener, in one thread */

struct pp_listener;

/* Listens to `ranks` ranks on all networks. first, last: ports to use; first 0: any. The caller
 * owns *out. Errors: PP_ERESOURCE. */
int pp_listener_open(int ranks, int first, int last, struct pp_listener **out);
void pp_listener_close(struct pp_listener **l); /* accepts NULL in *l; all functions accept a NULL
                                                   listener */
const char *pp_listener_address(const struct pp_listener *l); /* "": none */

/* Reads the heartbeats; call it every PP_PULSE_EVERY_NS. Returns true if the run cannot continue,
 * and why in text (one line): a rank is silent for too long or has not come, or all ranks wait for
 * each other. Only if ranks are on several hosts. */
bool pp_listener_find_loss(struct pp_listener *l, char text[PP_PULSE_TEXT]);
/* Declares that the run was asked to end: a rank whose connection ended while it worked counts as
 * lost after 2 s. */
void pp_listener_hurry(struct pp_listener *l);
/* Ends every rank that listens, silently. */
void pp_listener_end(struct pp_listener *l);

#endif
