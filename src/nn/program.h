/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of the op `expr` between a piece (expr.h) and struct pp_expr: steps in single assignment,
 * simplified as they are added, with any number of results. derive.c makes the program of a gradient
 * from another one; the op runs them.
 */
#ifndef PPCLI_SRC_NN_PROGRAM_H
#define PPCLI_SRC_NN_PROGRAM_H

#include "expr.h"

#define PROGRAM_STEPS 640
#define PROGRAM_DY (-1) /* input of an operand: the gradient of the node's value */

struct program {
    int n_axes;
    int64_t size[EXPR_AXES];
    int n_in, n_steps, n_out;
    bool full; /* there was no room for all */
    struct expr_operand in[PP_EXPR_INPUTS];
    struct {
        struct expr_operand at; /* input: of the node, whose gradient it is */
        int step;
        bool repeats; /* as of struct pp_expr_array */
        bool adds;    /* to what an earlier program wrote */
    } out[PP_EXPR_OUTPUTS];
    struct expr_step steps[PROGRAM_STEPS];
};

/* Return whether two steps give the same number, and whether two operands are the same elements. */
bool program_same_steps(const struct expr_step *s, const struct expr_step *t);
bool program_same_operands(const struct expr_operand *x, const struct expr_operand *y);

/* Makes the program of a piece. same: the input that stands for each of the node's; NULL: itself. */
void program_of_piece(const struct expr_piece *piece, const int *same, struct program *out);

/* Adds a step, or finds one that gives the same number; returns its number. */
int program_add(struct program *p, struct expr_step s);
int program_number(struct program *p, float number);

/* Adds an operand, or finds it; returns the number of the step that loads it. */
int program_load(struct program *p, const struct expr_operand *operand);

/* Adds a result. */
void program_store(struct program *p, const struct expr_operand *at, int step);

/*
 * Completes the program: leaves out what no result needs, assigns registers. inputs[e->n_in] are the
 * node's inputs that it loads (PROGRAM_DY among them), in the order of e->in, whose `sample` and
 * `f32` the caller sets, as those of e->out. tables: where each table begins. Returns false if it is
 * beyond the limits of struct pp_expr.
 */
bool program_complete(const struct program *p, const size_t *tables, struct pp_expr *e,
                      int *inputs);

/* Returns whether the program and its gradient by each of its inputs can be completed. */
bool program_fits(const struct program *p, const size_t *tables);

/*
 * derive.c: makes the program of the gradients of the wanted inputs (bits) of f, which has one
 * result: a result for each operand that is one of these and that the result depends on. The
 * derivatives are PyTorch's, also where there is none.
 */
void program_derive(const struct program *f, uint64_t wanted, struct program *out);

#endif
