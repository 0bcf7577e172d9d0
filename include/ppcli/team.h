/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of one rank. A kernel's outputs are divided into pieces, never its sums, so the bits
 * are the same for any number of threads. Member 0 is the thread that calls; the others wait for
 * it: they spin for some microseconds, then sleep.
 *
 * A piece belongs to the member of its number. Whoever is done with its own piece takes one that
 * nobody has begun, so a member that has no processor just now is not waited for.
 */
#ifndef PPCLI_TEAM_H
#define PPCLI_TEAM_H

#include <stdbool.h>
#include <stddef.h>

struct pp_team;

/* Units from .. to - 1 of what a kernel computes. */
struct pp_piece {
    size_t from, to;
    int member; /* who computes it: 0 .. threads - 1; no two pieces of one member run at a time */
};

typedef void (*pp_piece_fn)(const void *args, const struct pp_piece *piece);

/* A kernel: fn on each of `units`, which are independent of each other. */
struct pp_work {
    pp_piece_fn fn;
    size_t units, grain; /* pieces begin at multiples of grain (0: 1) */
    double cost;         /* about the nanoseconds that one thread takes */
};

struct pp_team_spec {
    int threads;    /* pieces of a kernel at most; >= 2 */
    int processors; /* that its members may use: no more threads than these are started */
    const int
        *cpus;    /* [threads] where each member but 0 is pinned to; NULL: as the caller's mask */
    bool crowded; /* others need the processors too: sleep at once instead of spinning */
    void (*begin)(void); /* called first in each new thread; NULL: nothing */
};

/* Errors: PP_ERESOURCE. Local. The caller owns *out; what spec points to must outlive it. */
int pp_team_create(const struct pp_team_spec *spec, struct pp_team **out);
void pp_team_destroy(struct pp_team **team);

/* Do all of it; done when it returns. team NULL, or less work than threads pay for: in this thread
 * alone, as one piece. Allocates nothing; no system call while the members are awake. Local, only
 * from the thread that created the team. */
void pp_team_run(struct pp_team *team, const struct pp_work *work, const void *args);

#endif
