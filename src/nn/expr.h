/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs of the op `expr`, as models describe them: pieces in single assignment, of which each
 * fills a part of the value or, with strides of 0, adds up over axes. So the op is elementwise
 * arithmetic with broadcasting, a sum or a mean, a copy in another order, cat, stack, pad, roll,
 * repeat and a lookup of constant indices. expr.c makes programs of struct pp_expr of them, derive.c
 * the programs of their gradients.
 */
#ifndef PPCLI_SRC_NN_EXPR_H
#define PPCLI_SRC_NN_EXPR_H

#include "nn.h"

#define EXPR_AXES 16

/*
 * A step, which gives number i if it is step i of its piece. code, which and number: as of struct
 * pp_expr_step; a, b and c are numbers of earlier steps. PP_EXPR_LOAD: a is an operand of the piece;
 * PP_EXPR_FILL: a number; no PP_EXPR_STORE. Where two numbers are equal, the gradients of MAX and
 * MIN are one half each, and those of a relu and of ABS are 0 at 0; SELECT passes the gradient to
 * the branch that was taken.
 */
struct expr_step {
    enum pp_expr_code code;
    int which, a, b, c;
    float number;
};

/* How an array is addressed along the axes of a piece: element (i0, i1, ..) of a sample is at offset
 * + i0 * stride[0] + .., floats. */
struct expr_operand {
    int input;                         /* of the node; of the result: unused */
    int64_t offset, stride[EXPR_AXES]; /* negative strides may be */
    int table_axis;                    /* -1; else index i of that axis means tables[table][i] */
    int table;
};

/* One loop nest: result[axes] = program(operands[axes]). The result's axes of stride 0 are
 * summed. */
struct expr_piece {
    int n_axes;
    int64_t size[EXPR_AXES]; /* outermost first, at least 1 */
    int n_operands;
    struct expr_operand *operands; /* a step loads operand number a */
    int n_steps;
    struct expr_step *steps; /* the last one is the result */
    struct expr_operand result;
};

/*
 * Adds a node that runs the pieces, n_x <= PP_NODE_INPUTS. Elements of the value that no piece
 * writes are `fill`. Pieces may not write the same element, except one whose own table repeats an
 * index, which adds up. The value is one_row if all inputs are. Copies what it is given; tables may
 * be NULL if no operand has one. Refused: what expr_fits() does not take.
 */
int expr(struct builder *b, const char *name, int n_x, const int *x, int n_pieces,
         const struct expr_piece *pieces, const int32_t *const *tables, struct pp_shape out,
         float fill);

/* Returns whether the piece and its gradient are within the limits of struct pp_expr: steps,
 * registers, arrays, and axes of more than one index. */
bool expr_fits(const struct expr_piece *p);

#endif
