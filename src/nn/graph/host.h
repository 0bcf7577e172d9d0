/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors on the host for constants of a graph. Sizes come from a file, so each function checks
 * them: what does not fit, or is too large, is HOST_UNKNOWN, which only means that a value is not
 * computed here. Cells are float, double, one byte (bool) or int64_t (all integers).
 */
#ifndef PPCLI_SRC_NN_GRAPH_HOST_H
#define PPCLI_SRC_NN_GRAPH_HOST_H

#include "archive.h"

/* A failure that no user sees: the value is left to others. Negative, so that PP_TRY() passes it. */
#define HOST_UNKNOWN (-1000)
#define HOST_PIECE 256 /* cells that are computed at once */
#define HOST_ARRAYS 4

struct host_storage {
    struct host_storage *next;
    int refs;        /* tensors that are kept */
    int lost_after;  /* the node whose write is not followed: unknown from then on */
    bool was_copied; /* a view of it could not share its memory, or it is such a copy */
    int64_t n;
    size_t bytes;
    void *cells;
};

/* dims[i] >= 0; the cell of an index is offset + the sum of index[i] * strides[i]. */
struct host_tensor {
    enum pt_dtype dtype;
    int n_dims;
    int64_t dims[PT_DIMS], strides[PT_DIMS], offset;
    struct host_storage *storage;
};

/* Owns the storages. Those that no tensor keeps live until host_sweep(). */
struct host_pool {
    struct host_storage *all;
    size_t bytes;
    int64_t work; /* cells computed so far: a hostile file cannot take forever */
};

/* Makes a zeroed tensor. Errors, as below: HOST_UNKNOWN, PP_ERESOURCE. */
int host_make(struct host_pool *pool, enum pt_dtype dtype, int n_dims, const int64_t *dims,
              struct host_tensor *out);
int host_number(struct host_pool *pool, enum pt_dtype dtype, double number,
                struct host_tensor *out);
void host_sweep(struct host_pool *pool); /* frees the storages with refs 0 */

bool host_is_float(enum pt_dtype t);
int64_t host_count(const struct host_tensor *t); /* elements */

/* ---- views */

/* Each sets *out to a view of t; out may be t. Dimensions may count from the end (-1). */
int host_dim(const struct host_tensor *t, int64_t dim, int *out);
int host_narrow(const struct host_tensor *t, int dim, int64_t start, int64_t length, int64_t step,
                struct host_tensor *out);
int host_select(const struct host_tensor *t, int dim, int64_t index, struct host_tensor *out);
int host_expand(const struct host_tensor *t, int n_dims, const int64_t *dims,
                struct host_tensor *out);
int host_move_dim(const struct host_tensor *t, int from, int to, struct host_tensor *out);
int host_insert_dim(const struct host_tensor *t, int dim, struct host_tensor *out);

/* Sets *out to t with other dimensions: a view if strides can express it, else a copy. */
int host_reshape(struct host_pool *pool, const struct host_tensor *t, int n_dims,
                 const int64_t *dims, struct host_tensor *out);

/* Merges dims into those of a broadcast. */
int host_broadcast(const struct host_tensor *t, int *n_dims, int64_t dims[PT_DIMS]);

/* ---- cells */

union host_cell {
    double f; /* of a floating dtype */
    int64_t i;
};

/* Return the sum and the product of two floats (is_real) or integers, which wrap around. */
static inline union host_cell host_add(bool is_real, union host_cell a, union host_cell b)
{
    if (is_real)
        return (union host_cell){.f = a.f + b.f};
    return (union host_cell){.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i)};
}

static inline union host_cell host_multiply(bool is_real, union host_cell a, union host_cell b)
{
    if (is_real)
        return (union host_cell){.f = a.f * b.f};
    return (union host_cell){.i = (int64_t)((uint64_t)a.i * (uint64_t)b.i)};
}

/* Walks over tensors of the same dims in pieces of their last dimension:
 *     PP_TRY(host_walk(pool, &w, ...));
 *     for (; w.n > 0; host_step(&w))
 *         load, compute, store */
struct host_walk {
    int n_dims, n_arrays;
    int64_t size[PT_DIMS], index[PT_DIMS], stride[HOST_ARRAYS][PT_DIMS];
    int64_t at[HOST_ARRAYS], last[HOST_ARRAYS]; /* the piece's first cell; its strides */
    int n;                                      /* cells of this piece, 0: the end */
};
int host_walk(struct host_pool *pool, struct host_walk *w, int n_arrays,
              const struct host_tensor *const *arrays);
void host_step(struct host_walk *w);

/* Loads and stores n cells of a tensor as floats or as integers; `as` is the dtype of the cells,
 * to which numbers are rounded. */
void host_load(const struct host_tensor *t, int64_t at, int64_t stride, int n, enum pt_dtype as,
               union host_cell *cells);
void host_store(const struct host_tensor *t, int64_t at, int64_t stride, int n, enum pt_dtype as,
                const union host_cell *cells);

/* Copies src, which has the dims of dst, and converts it. */
int host_copy(struct host_pool *pool, const struct host_tensor *dst, const struct host_tensor *src);
int host_clone(struct host_pool *pool, const struct host_tensor *t, enum pt_dtype dtype,
               struct host_tensor *out);

#endif
