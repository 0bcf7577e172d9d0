/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every transport must do, as one list of cases that each rank walks through, whoever started
 * it. A case returns 0, or a failure with its text recorded.
 */
#ifndef PPCLI_TESTS_CONFORM_H
#define PPCLI_TESTS_CONFORM_H

#include <stddef.h>

#include "ppcli/dev/backend.h"
#include "ppcli/base/base.h"
#include "ppcli/comm/transport.h"

#define EXPECT(cond, ...)                                                                          \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return pp_fail(PP_ECHECK, __VA_ARGS__);                                                \
        }                                                                                          \
    } while (0)

/* A channel of each kind goes from every rank to the next one and to the one before it. */
enum kind {
    SMALL,
    BIG,
    WRONG_TAG,
    WRONG_SIZE,
    UNUSED,
    KINDS
};
enum direction {
    AHEAD,
    BACK,
    DIRECTIONS
};

struct conform {
    struct pp_transport *tp;
    struct pp_backend *be;        /* where the slots are; NULL: memory of the host */
    struct conform_note *notes;   /* what is still to be compared, and memory in use until then */
    int ch[KINDS][DIRECTIONS][2]; /* [0] this rank sends, [1] receives; index for the ops */
    int id[KINDS][DIRECTIONS][2];
    char *memory;
    size_t bytes;
};

struct conform_case {
    const char *name;
    int (*run)(struct conform *c);
};

extern const struct conform_case conform_cases[]; /* ends with name == NULL */

/* Cases of conform_collective.c. */
int a_vote_is_for_only_when_all_are(struct conform *c);
int a_vote_built_from_allgather_is_the_same(struct conform *c);
int posting_a_vote_waits_for_nobody(struct conform *c);
int reduce_has_the_bits_of_adding_in_order(struct conform *c);
int allgather_of_device_memory_is_in_rank_order(struct conform *c);

/* See delay.c. Takes inner over, also on failure. */
int delay_open(struct pp_transport *inner, uint64_t seed, struct pp_transport **out);

/* Collective. Channels are opened here, after wrong ones were refused. be: see above. */
int conform_open(struct pp_transport *tp, struct pp_backend *be, struct conform *c);
void conform_close(struct conform *c);

/* Pattern of one message; the same on both sides, different for every (channel, message). */
void conform_fill(int channel, int message, size_t bytes, unsigned char *out);
int conform_match(int channel, int message, size_t bytes, const unsigned char *found);

/* The same to and from memory that the transport moves. Of a device it is enqueued, and compared in
 * conform_settle(), which ends every case: in between the host waits for no device. */
int conform_write(struct conform *c, int channel, int message, size_t bytes, void *to);
int conform_expect(struct conform *c, int channel, int message, size_t bytes, const void *from);
int conform_settle(struct conform *c);

/* n floats of memory that the transport moves, freed by conform_settle(), with a copy of `from` in
 * them. Afterwards: what lies at `from` shall have the bits of want[n], owned by this from here on.
 */
int conform_floats(struct conform *c, size_t n, const float *from, float **out);
int conform_expect_floats(struct conform *c, const char *what, size_t n, float *want,
                          const float *from);

/* Element i of rank r's part of a sum: any two orders of adding give different bits. */
float conform_addend(int r, size_t i);

#endif
