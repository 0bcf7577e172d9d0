/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of the estimate: estimate_blocks.c prices a block of a divided transformer,
 * estimate.c a step, parallel.c has the rules of a division. */
#ifndef PPCLI_PLAN_ESTIMATE_H
#define PPCLI_PLAN_ESTIMATE_H

#include "ppcli/plan/machine_plan.h"

#define VALUE 2.0  /* bytes of a bf16 value */
#define MASTER 4.0 /* of a gradient, a parameter's f32 copy, a moment */
/* bytes read and written to make two fp8 copies (by rows and by columns) of a bf16 value */
#define CAST 4.0

enum {
    F,
    I,
    W,
    TIMES
};

enum { /* kinds of layers of a transformer */
    EMBEDDING,
    BLOCK,
    HEAD,
    KINDS
};

struct pieces {                    /* what a rank computes and keeps of each kind of layer */
    double t[KINDS][TIMES];        /* seconds of a micro-batch */
    double redo;                   /* of t[BLOCK][I]: seconds of recomputing */
    double tensor;                 /* of t[BLOCK][F] and [I]: messages of tensor parallelism */
    double floats[KINDS], experts; /* parameters without experts; those of a block's experts */
    double tied;                   /* of floats[HEAD]: those of the embedding */
    double keeps[KINDS],
        working; /* bytes kept of a micro-batch; of a block while it is recomputed */
};

struct estimation {
    const struct pp_estimate_spec *s;
    const struct pp_division *p;
    struct pieces pieces;
    uint16_t blocks[PP_STAGES_MAX]; /* number of blocks in each piece */
    int m, n, rows; /* micro-batches, chunks of all ranks, samples of a micro-batch */
};

/* Sets e->pieces to the price of each kind of layer. */
void estimate_pieces(struct estimation *e);

/* Returns the link that a group of ranks uses, each `stride` after the one before it. */
struct pp_link estimate_link(const struct pp_estimate_spec *s, int ranks, int stride);
/* Returns the seconds in which a ring reduce-scatters or all-gathers this number of bytes, of which
 * each rank sends all but its part. Between hosts, each host sends what the ranks of other hosts
 * need over the links of its own members. */
double estimate_ring(const struct pp_estimate_spec *s, int ranks, int stride, double bytes);

/* Returns the bytes of the activations between two blocks, of all tokens of a rank's sequence. */
double estimate_passed(const struct estimation *e);
/* Returns the flops of a sample, with the experts of a token in place of one feed-forward. */
double estimate_flops(const struct pp_estimate_spec *s);
/* Returns the parameters of the model, with those of all experts and their routers. */
double estimate_floats(const struct pp_config *cfg, const struct pp_model *m);

/*
 * Checks the rules of other systems for a division: its factors make up the ranks, heads and
 * channels divide by tensor, and the batch by replicas and the `rows` of a micro-batch. Errors:
 * PP_ECONFIG with the rule that is broken.
 */
int parallel_check(const struct pp_estimate_spec *s, const struct pp_division *p, int rows);

/* Returns whether the experts lie on all ranks of a stage, each whole on one, because replicas and
 * context alone are no multiple of `expert`; otherwise tensor parallelism divides them, too. */
bool parallel_has_whole_experts(const struct pp_division *p);

/* Cuts the blocks evenly or, if their number does not divide, the blocks with the embedding and the
 * loss as a block each. Errors: PP_ECONFIG if that does not divide either. */
int parallel_cut(const struct pp_config *cfg, struct pp_division *p);

/* Sets the number of blocks in each piece. Returns true if the cut is even with embedding and loss
 * as a block each. */
bool parallel_blocks(const struct pp_division *p, uint16_t blocks[PP_STAGES_MAX]);

/* Reads a layout as Megatron-LM writes it: pieces between '|' in model order, with E (embedding), t
 * (block), m (block of multi-token prediction) and L (loss); x*3 and (tt|)*29 repeat; commas have
 * no effect. Sets the cut and the chunks. Errors: PP_EUSAGE with the place; PP_ECONFIG where it has
 * another number of blocks than the model. blocks_text() writes such a layout, in short, and
 * returns out. */
int blocks_read(const struct pp_config *cfg, const char *text, struct pp_division *p);
char *blocks_text(const uint16_t *blocks, int n, char *out, size_t bytes);

#endif
