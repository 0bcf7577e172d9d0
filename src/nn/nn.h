/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a model is written down: a page of calls, each of which adds nodes and returns the number of
 * the value they give. The first failure stays in the builder; calls after it do nothing.
 *
 *     layer(b, "fc%d", i);
 *     x = linear(b, "", x, 10, PP_ACT_RELU);
 *
 * A layer begins where the one before ends, reads that one's last value, and ends with its own last
 * value. Parameters are named LAYER.NODE.weight, or LAYER.weight where the node has no name.
 */
#ifndef PPCLI_NN_NN_H
#define PPCLI_NN_NN_H

#include "ppcli/model.h"

struct builder {
    struct pp_model *m; /* half built */
    const struct pp_config *cfg;
    int rc;                       /* of the first failure */
    char name[PP_PARAM_NAME_MAX]; /* of the node that was added last */
};

/* How to make one kind of model from [model]: x is the input. */
struct model_builder {
    const char *name;
    struct pp_shape (*input)(const struct pp_config *cfg);
    int (*build)(struct builder *b, int x); /* the value with a number for each class */
};

#define PP_OP(x) extern const struct pp_node_op op_##x;
#include "ops.def"
#undef PP_OP
#define PP_MODEL(x) extern const struct model_builder model_##x;
#include "models.def"
#undef PP_MODEL

void layer(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

const struct pp_shape *shape_of(const struct builder *b, int value);

/* PP_ECONFIG with this text, unless something failed before. Returns 0, a value that is there. */
int refuse(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Before the first call, and after the last: y is the model's output. */
int build_begin(struct builder *b, struct pp_shape input);
int build_finish(struct builder *b, int y);

/* ---- one function for each op; they return the new value */

/* Floats of x (of an image all of them; else its channels) to `out` channels. */
int linear(struct builder *b, const char *name, int x, int out, enum pp_activation act);

/* ---- for ops */

/* A new node with its op, name, inputs (x1 < 0: one), output shape; NULL: something failed. What it
 * points at moves with the next node. */
struct pp_node *add_node(struct builder *b, const struct pp_node_op *op, const char *name, int x0,
                         int x1, struct pp_shape out);

/* A parameter of the node that was added last, named after it. NULL: something failed. */
struct pp_param *add_param(struct builder *b, const char *suffix, enum pp_param_kind kind,
                           int n_dims, const int *dims);

/* The weight of a product that sums fan_in terms for an output: its initial values follow from
 * model.init and the activation behind it. */
void init_weight(const struct builder *b, struct pp_param *w, int fan_in, enum pp_activation act);

#endif
