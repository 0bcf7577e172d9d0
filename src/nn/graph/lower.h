/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the handlers of operators: lower.c calls them, lower_*.c have them. */
#ifndef PPCLI_SRC_NN_GRAPH_LOWER_H
#define PPCLI_SRC_NN_GRAPH_LOWER_H

#include "graph.h"

/* What a value of the program has become. */
struct lowered {
    enum {
        LOWERED_NOT,    /* not yet, or a problem */
        LOWERED_HOST,   /* known: the folder has it */
        LOWERED_WEIGHT, /* a parameter or buffer as a whole, that nobody changed */
        LOWERED_EMPTY,  /* without elements */
        LOWERED_VIEW
    } state;
    int weight; /* of the program */
    struct view view;
};

/* Whose memory a value of the program has, for operators that write in place. */
struct aliasing {
    int root;        /* the value that was made with this memory */
    int perhaps;     /* of a root: may have the memory of this value; -1: of none */
    int last_reader; /* node; n_nodes: the program's output; -1: none */
};

struct lower {
    const struct pt_program *program;
    struct folder *folder;
    struct graph *graph;
    struct lowered *values;   /* [program->n_values] */
    struct aliasing *aliases; /* [program->n_values] */
    int node;                 /* of the program: the one that is being lowered */
    int rc;                   /* the first failure that is not a problem of the program */
    bool refused;             /* this node has a problem */
};

/* A row of the table of operators. */
struct lowering {
    const char *target; /* "aten.add.Tensor" */
    void (*lower)(struct lower *l, const struct pt_node *n, const struct lowering *row);
    int which;    /* for handlers of several operators */
    bool general; /* not one of the fast ops, for explain */
    /* The result is a view of the first tensor: always, or, where PyTorch may copy, perhaps. */
    enum {
        LOWER_NEW,
        LOWER_ALIAS,
        LOWER_MAYBE_ALIAS
    } memory;
    /* lower_formula.c: names of arguments, each with the number that it is if it is left out, and the
     * result, where the first argument is a, the second one b .. */
    const char *arguments, *formula;
    const char *missing; /* `lower` is NULL: ppcli has no such operator; what would work */
};

/* A row: its target, its handler, then other members with their names. */
#define LOWER(word, ...)                                                                           \
    {                                                                                              \
        .target = (word), .lower = __VA_ARGS__                                                     \
    }

#define MISSING(word, text)                                                                        \
    {                                                                                              \
        .target = (word), .missing = (text)                                                        \
    }

/* The tables, each ended by a row without target. A row without the "_" of an operator that writes
 * in place serves it too. */
extern const struct lowering lowerings_of_views[], lowerings_of_moves[], lowerings_of_elements[],
    lowerings_of_sums[], lowerings_of_sizes[], lowerings_of_ops[], lowerings_of_windows[],
    lowerings_of_norms[], lowerings_of_attention[];

/* Returns the row of an operator, NULL: there is none. */
const struct lowering *lower_find(const char *target);

/* Returns row i of all tables, and what its operator becomes, "view"; NULL after the last one. */
const struct lowering *lower_row(int i, const char **becomes);

/* Records that this node is not taken: what was found and what would work, without the module and
 * the line, which are added. lower_refuse() is false, for a function that returns it. */
void lower_add_problem(struct lower *l, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline bool lower_is_refused(void)
{
    return false;
}
#define lower_refuse(l, ...) (lower_add_problem(l, __VA_ARGS__), lower_is_refused())

/* ---- arguments of the node, by name; the default where they are left out */

/* Returns the view of a tensor argument, whatever it is: a constant or a weight becomes a node. Its
 * dimensions are those of the program's value. If there is none, or it has a problem: n_dims -1. */
struct view lower_tensor(struct lower *l, const struct pt_node *n, const char *name);
struct view lower_value(struct lower *l, int value);
bool lower_has(const struct pt_node *n, const char *name); /* given, and not None */
int64_t lower_int(const struct pt_node *n, const char *name, int64_t otherwise);
double lower_number(const struct pt_node *n, const char *name, double otherwise);
bool lower_flag(const struct pt_node *n, const char *name, bool otherwise);

/* Returns a dimension, which counts from the end if it is negative, as 0 .. n_dims - 1; 0 for one
 * that the tensor does not have, as only a damaged program asks for. */
int lower_in_range(int64_t dim, int n_dims);

/* Returns a dimension argument as 0 .. n_dims - 1. */
int lower_dim(const struct pt_node *n, const char *name, int64_t otherwise, int n_dims);

/* As lower_tensor(), but the value has rows: what no sample changes is copied for each. */
struct view lower_samples(struct lower *l, const struct pt_node *n, const char *name);

/* Reads a dimension argument, one or a list, of a tensor with n_dims dimensions: sets out[] to the
 * dimensions in the order given and returns their number; none given: all of them. */
int lower_dims(const struct pt_node *n, const char *name, int n_dims, int out[PT_DIMS]);

/* Returns the weight of a tensor argument that is a parameter or a saved buffer as a whole,
 * unchanged; -1: it is not. */
int lower_weight(struct lower *l, const struct pt_node *n, const char *name);

/* ---- results */

/* Returns the type of the node's output k. */
const struct pt_tensor *lower_type(const struct lower *l, const struct pt_node *n, int k);

/* Sets output k. The view's dimensions must be those that the program gives. */
void lower_set(struct lower *l, const struct pt_node *n, int k, const struct view *v);

/* ---- nodes */

/* Adds a node; NULL after a failure. */
struct graph_node *lower_add(struct lower *l, enum graph_kind kind, int n_in, const int *in,
                             struct pp_shape shape);

/* Adds a copy of what v shows, dense in the order of its dimensions, and returns its view. */
struct view lower_copy(struct lower *l, const struct view *v);

/* Returns a view of a new node with a constant of the folder; the caller keeps c. */
struct view lower_constant(struct lower *l, const struct fold_constant *c);

/* Returns v as rows of channels (view_is_rows()), copied if it is not. The value's memory is
 * [positions][channels of the last dimension]. */
struct view lower_rows(struct lower *l, const struct view *v);

/* As view_narrow(), view_reshape() and view_expand(), but what memory does not allow is copied first.
 * Return false, and leave *out alone, after a failure or a problem. *out may be *v. */
bool lower_narrow(struct lower *l, const struct view *v, int dim, int64_t start, int64_t length,
                  int64_t step, struct view *out);
bool lower_reshape(struct lower *l, const struct view *v, int n_dims, const struct pt_size *dims,
                   struct view *out);
bool lower_expand(struct lower *l, const struct view *v, int n_dims, const struct pt_size *dims,
                  struct view *out);

/* Repeats the whole dimension, or, `innermost`, each of its elements; 0 times: for each sample. */
bool lower_repeat(struct lower *l, struct view *v, int dim, int64_t times, bool innermost);

/* Returns the shape in memory of `positions` rows of `channels`: flat if positions is 1. */
struct pp_shape lower_shape(int64_t positions, int64_t channels);

/* Returns a view like v, whole and rows of channels, on another value with rows of `channels` at the
 * same positions. */
struct view lower_with_channels(const struct view *v, int value, int64_t channels);

/* ---- elementwise nodes */

enum lower_order {
    LOWER_AS_LARGEST, /* memory in the order of the largest view */
    LOWER_IN_ORDER    /* in the order of the dimensions */
};

/*
 * Adds a node with one piece: a program over n_views >= 1 views, which have the same dimensions (use
 * view_expand()) and of which some may be copied; step PP_EXPR_LOAD, a: view a. summed[n_dims]:
 * dimensions that the result sums over and keeps with size 1; NULL: none. *out: the result, with
 * those dimensions. Returns false, and leaves *out alone, after a failure or a problem.
 */
bool lower_expr(struct lower *l, int n_views, struct view *views, int n_steps,
                const struct expr_step *steps, const bool *summed, enum lower_order how,
                struct view *out);

/* An operand of a formula: a number, or a view. */
struct lower_operand {
    bool is_number;
    double number;
    struct view view;
};

/* Reads an argument that is a number, a tensor, or left out or None: `otherwise` then. A constant
 * tensor of one number is a number. */
struct lower_operand lower_operand(struct lower *l, const struct pt_node *n, const char *name,
                                   double otherwise);

/* Adds a node that computes a formula, as lower_expr() does. Operand i is the letter 'a' + i; one is
 * a view at least, and all views have the same dimensions. */
bool lower_compute(struct lower *l, const char *formula, int n_operands,
                   const struct lower_operand *operands, const bool *summed, struct view *out);

/* Returns a view of a constant [rows][columns]: 1 where column - row <= diagonal, else 0. */
struct view lower_triangle(struct lower *l, int64_t rows, int64_t columns, int64_t diagonal);

/* Handler of rows with arguments and formula. */
void lower_formula(struct lower *l, const struct pt_node *n, const struct lowering *row);

/* What one piece of a moving node copies: `to` is a part of the result, with the same dimensions. If
 * table_dim >= 0, index i of that dimension reads from.axes[..].stride * table[i]: one axis. */
struct lower_part {
    struct view from, to;
    int table_dim, table;
};

/* Returns a view of a new value with the dimensions `dims`, one axis for each; its memory follows
 * the order of `like`, which has dimensions like these but for their sizes. */
struct view lower_layout(const struct view *like, int n_dims, const struct pt_size *dims);

/* Adds a node that copies parts into a value with the memory `layout`, which each part's `to` is a
 * part of; `fill` is where none is. Returns as lower_expr(). */
bool lower_move(struct lower *l, const struct view *layout, float fill, int n_parts,
                struct lower_part *parts, struct view *out);

/* Shows, or copies, the elements table[0], table[1], ... of dimension `dim` of v, without the samples.
 * Returns as lower_expr(); *out may be *v. */
bool lower_take(struct lower *l, const struct view *v, int dim, int64_t count, const int32_t *table,
                struct view *out);

/* ---- writing in place: lower_write.c */

/* Finds whose memory each value has. */
int lower_find_aliases(struct lower *l);

/* Returns whether an operator writes its first tensor: its name ends with "_". */
bool lower_writes(const char *target);

/* Returns whether the node counts in a buffer without dimensions: num_batches_tracked. */
bool lower_is_count(const struct lower *l, const struct pt_node *n);

/* The node has written its first argument, and its result is known: later readers of that argument,
 * and of its views, see what was written. */
void lower_write(struct lower *l, const struct pt_node *n);

#endif
