/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the estimate share: estimate_blocks.c prices the pieces of a division, estimate.c a
 * step of them. */
#ifndef PPCLI_PLAN_ESTIMATE_H
#define PPCLI_PLAN_ESTIMATE_H

#include "ppcli/plan/machine_plan.h"

#define VALUE 2.0  /* bytes of a bf16 value */
#define MASTER 4.0 /* of a gradient, a parameter's f32 copy, a moment */
#define CAST                                                                                       \
    4.0 /* bytes read and written to make two fp8 copies (row and column) of a bf16 value */

enum {
    F,
    I,
    W,
    TIMES
};

enum { /* layers of the model */
    EMBEDDING,
    BLOCK,
    HEAD,
    KINDS
};

struct pieces { /* of the model, divided */
    double t[KINDS][TIMES];
    double redo;                   /* of a block's backward pass: what is computed again */
    double tensor;                 /* of a block's F, I: messages of tensor parallelism */
    double floats[KINDS], experts; /* parameters of a rank; of a block's experts */
    double keeps[KINDS], working;  /* bytes of a micro-batch; of a block while it is redone */
};

struct estimation {
    const struct pp_estimate_spec *s;
    const struct pp_division *p;
    struct pieces pieces;
    uint16_t blocks[PP_STAGES_MAX]; /* of each piece */
    int m, n, rows; /* micro-batches, chunks of all ranks, samples of a micro-batch */
};

/* Price the kinds of layers of e->p: sets e->pieces. */
void estimate_pieces(struct estimation *e);

/* Of a group of ranks, each `stride` after the one before it. */
struct pp_link estimate_link(const struct pp_estimate_spec *s, int ranks, int stride);
/* A ring's reduce-scatter or all-gather of so many bytes: every rank sends all but its part. Of several
 * hosts, each host sends what all but its ranks need over the links of its members. */
double estimate_ring(const struct pp_estimate_spec *s, int ranks, int stride, double bytes);

/* Bytes of the activations between the blocks of a rank's sequence, of all its tokens. */
double estimate_passed(const struct estimation *e);
/* Flops of a sample; experts in place of one feed-forward. */
double estimate_flops(const struct pp_estimate_spec *s);

/*
 * The rules that systems have for a division: factors make up the ranks, heads and channels divide by
 * tensor, the batch by replicas and `rows` of a micro-batch. PP_ECONFIG with the rule that is broken.
 */
int parallel_check(const struct pp_estimate_spec *s, const struct pp_division *p, int rows);

/* Cut the blocks evenly, or blocks with embedding and loss as one each. PP_ECONFIG: neither goes. */
int parallel_cut(const struct pp_config *cfg, struct pp_division *p);

/* Blocks of each piece. True: even where embedding and loss count as a block each. */
bool parallel_blocks(const struct pp_division *p, uint16_t blocks[PP_STAGES_MAX]);

/* Megatron-LM's layout: pieces between '|' in model order, with E (embedding), t (block), m (of
 * multi-token prediction, which counts as a block), L (loss); x*3 and (tt|)*29 repeat, commas do
 * nothing. Sets the cut and the chunks. PP_EUSAGE with the place; PP_ECONFIG: it has other blocks than
 * the model. And the same as text, short; returns out. */
int blocks_read(const struct pp_config *cfg, const char *text, struct pp_division *p);
char *blocks_text(const uint16_t *blocks, int n, char *out, size_t bytes);

#endif
