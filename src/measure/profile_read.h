/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of measured pipelines give to profile.c. */
#ifndef PPCLI_MEASURE_PROFILE_READ_H
#define PPCLI_MEASURE_PROFILE_READ_H

#include "ppcli/measure/profile.h"

struct profile_event {
    double start, end;
    double after; /* of calls that follow it */
    int rank;     /* as the files number them */
    int step;     /* -1: the how-manyeth of its kind it is */
    int stage,
        mb; /* stage -1: mb is the number of this F or B on its rank, as Megatron orders them */
    int op; /* enum pp_op, of PyTorch also those below */
};

/* Marks of a trace that are no actions: a call of an action, the call that receives for one, what
 * begins a step, a receive as the transport saw it, work of the autograd engine. */
enum {
    PROFILE_CALL = PP_OPS,
    PROFILE_RECV,
    PROFILE_BEGIN,
    PROFILE_ARRIVAL,
    PROFILE_GRADIENT /* the autograd engine begins to work */
};

struct profile_note { /* of a rank in a step */
    int rank, step;
    double total, memory;
};

struct profile_input {
    const char *source;
    struct profile_event *events;
    struct profile_note *notes;
    int n, room, n_notes, notes_room;
    int stages, chunks; /* as a config says; 0: unknown */
    int unmarked; /* micro-batches of a step where mb counts back over all steps; 0: it does not */
    bool one_clock;                       /* of all ranks */
    char host[64], schedule[PP_NAME_MAX]; /* of a trace; empty: unknown */
};

/* Reads all files of a path. Errors: those of pp_profile_read(). */
int profile_input_read(const char *path, struct profile_input *in);
void profile_input_fini(struct profile_input *in);

int profile_add(struct profile_input *in, const struct profile_event *e);

/* Reads the events of one text (profile_trace.c). They are those of `rank` if the text names no
 * rank. */
int profile_trace_read(const char *path, const char *text, size_t bytes, int rank,
                       struct profile_input *in);
/* Returns the start of the next object in a text, and its length in *bytes; NULL if there is
 * none. */
const char *profile_object(const char *at, const char *end, size_t *bytes);

/* Reads a trace of PyTorch without marks (profile_unmarked.c). Errors: PP_ERESOURCE. */
int profile_unmarked_read(const char *text, size_t bytes, int rank, struct profile_input *in);

/* Makes the measured times agree with each other (profile_times.c). */
int profile_settle(struct pp_profile *p, bool one_clock);
/* Finds the position of every F, I or B, and W in its rank's list; the caller frees *out with
 * pp_free(). profile_producer() finds the action from which another action gets its input. */
int profile_cells(const struct pp_plan *plan, int **out);
bool profile_producer(const struct pp_plan *plan, const int *cells, const struct pp_action *a,
                      int *rank, int *at);

#endif
