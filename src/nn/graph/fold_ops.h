/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operators that the folder knows: tables of names and functions, and what a function sees of
 * its node. The shape and the dtype of an output come from the archive, so no function derives them.
 */
#ifndef PPCLI_SRC_NN_GRAPH_FOLD_OPS_H
#define PPCLI_SRC_NN_GRAPH_FOLD_OPS_H

#include "host.h"

struct folder;

/* A node that is computed for a batch of `batch` samples. */
struct fold_call {
    struct folder *f;
    struct host_pool *pool;
    const struct pt_node *node;
    const struct fold_op *op;
    int pass, batch;
    struct host_tensor self; /* the first argument, but with FOLD_TYPE and FOLD_FREE */
    int n_dims;              /* of output 0, for this batch */
    int64_t dims[PT_DIMS];
    enum pt_dtype dtype;
    struct host_tensor *out; /* [node->n_outputs], to be set */
};

enum fold_flags {
    FOLD_VIEW = 1, /* the outputs may share the memory of the first argument */
    FOLD_TYPE = 2, /* only the type of the first argument is looked at */
    FOLD_LIKE = 4, /* only the type of the second */
    FOLD_FREE = 8, /* the first argument need not be a tensor */
};

struct fold_op {
    const char *name; /* "add" or "min.other"; an operator that writes in place has the same name */
    int (*run)(struct fold_call *c);
    int flags;
    int which; /* for run() */
    const void *more;
};

/* The tables end with a row without a name. */
extern const struct fold_op fold_each_ops[];  /* elementwise */
extern const struct fold_op fold_line_ops[];  /* along dimensions */
extern const struct fold_op fold_shape_ops[]; /* views, new tensors, moving and indexing */

/* ---- arguments; HOST_UNKNOWN: missing, of another kind, or a size that is not known */

bool call_has(const struct fold_call *c, const char *name); /* given, and not None */
int call_tensor(const struct fold_call *c, const char *name, struct host_tensor *out);

/* Reads element i of a list of tensors. *out_none: it is None. */
int call_item(const struct fold_call *c, const char *name, int i, struct host_tensor *out,
              bool *out_none);
int call_length(const struct fold_call *c, const char *name); /* of a list; 0: not given */

/* Read numbers; left out or None: `otherwise`. call_dim() reads a dimension of t: 0..n_dims-1. */
int call_int(const struct fold_call *c, const char *name, int64_t otherwise, int64_t *out);
int call_dim(const struct fold_call *c, const char *name, int64_t otherwise,
             const struct host_tensor *t, int *out);
bool call_flag(const struct fold_call *c, const char *name, bool otherwise);
const char *call_text(const struct fold_call *c, const char *name); /* "": left out */

/* Reads a list of integers, or one integer as a list of one; left out or None: *n is 0. */
int call_ints(const struct fold_call *c, const char *name, int64_t out[2 * PT_DIMS], int *n);

/* Makes a number of any kind, bool too, to a scalar tensor of int64, float64 or bool. */
int call_number(const struct fold_call *c, const char *name, struct host_tensor *out);

/* Reads the dims of output k for this batch. */
int call_dims(const struct fold_call *c, int k, int *n_dims, int64_t dims[PT_DIMS]);
int call_make(const struct fold_call *c); /* makes c->out[0] */

/* Joins n tensors along a dimension into a new one. */
int fold_join(struct host_pool *pool, int n, const struct host_tensor *parts, int dim,
              enum pt_dtype dtype, struct host_tensor *out);

#endif
