/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: a tensor of PyTorch seen in the memory of a value. A dimension of the tensor is a list of
 * axes, each with a size and a stride; one axis of the tensor stands for the samples of the
 * micro-batch, whatever dimension it belongs to. Permuting, expanding, slicing and most reshaping
 * only change the lists, so they cost nothing.
 */
#ifndef PPCLI_SRC_NN_GRAPH_VIEW_H
#define PPCLI_SRC_NN_GRAPH_VIEW_H

#include "archive.h"
#include "ppcli/base/base.h"

#define VIEW_AXES 16

struct axis {
    int64_t size;   /* at least 2; 0: the samples */
    int64_t stride; /* floats within a sample; 0 too where the tensor repeats; 0 of the samples */
};

struct view {
    int value;      /* of the graph */
    int64_t offset; /* of the first element in a sample, floats */
    int n_dims, n_axes;
    bool full; /* it needs more axes or dimensions than there is room for: it is of no use */
    uint8_t count[PT_DIMS];      /* axes of each dimension; 0: its size is 1 */
    struct axis axes[VIEW_AXES]; /* dimension by dimension, the outermost first */
};

/* Returns the size of a dimension; of one that v does not have, 1. */
struct pt_size view_size(const struct view *v, int dim);

/* Returns the place of a dimension's first axis in v->axes. */
int view_first_axis(const struct view *v, int dim);

/* Returns the axis of the samples; -1: there is none. */
int view_batch_axis(const struct view *v);

/* Returns whether a dimension has the samples, alone or with other axes. */
bool view_has_batch(const struct view *v, int dim);

/* Returns the elements of a sample that the view shows: the product of all sizes. */
int64_t view_elements(const struct view *v);

/* Returns a view of a value whose memory has the dimensions in their order. */
struct view view_of_value(int value, int n_dims, const struct pt_size *dims);

/* Return other views of the same elements. order[n_dims]: dimension d of the result is order[d] of
 * v. view_insert() adds a dimension of size 1 before `dim`; view_drop() removes one. */
struct view view_permute(const struct view *v, const int *order);
struct view view_transpose(const struct view *v, int a, int b);
struct view view_insert(const struct view *v, int dim);
struct view view_drop(const struct view *v, int dim);

/* Moves a dimension: it becomes dimension `to` of the result. */
struct view view_move(const struct view *v, int dim, int to);

/* Merges the neighbouring axes of each dimension that are one axis in memory. */
struct view view_merge(const struct view *v);

/*
 * The functions below return false where memory does not allow the view, and leave *out alone; a
 * copy of v, dense and in the order of its dimensions, does. The exceptions, where no copy helps,
 * are dimensions with the samples.
 *   reshape  the elements of v in their order, with other dimensions
 *   narrow   elements start, start + step, ... of a dimension, `length` of them; step may be
 *            negative
 *   expand   dimensions are added in front, and those of size 1 repeated
 */
bool view_reshape(const struct view *v, int n_dims, const struct pt_size *dims, struct view *out);
bool view_narrow(const struct view *v, int dim, int64_t start, int64_t length, int64_t step,
                 struct view *out);
bool view_expand(const struct view *v, int n_dims, const struct pt_size *dims, struct view *out);

/* Returns whether dimension `dim` has all elements start + k * step, 0 <= k < length. */
bool view_holds(const struct view *v, int dim, int64_t start, int64_t length, int64_t step);

/*
 * Splits axes until all n views, which have the same dimensions with the same sizes, have the same
 * axes: axis k of each has the same size, or stride 0. Returns false if two cannot be split so:
 * then *bad is the number of the view to copy.
 */
bool view_align(struct view *const *views, int n, int *bad);

/*
 * Returns whether the view shows each float of a sample of `floats` floats once, beginning at 0;
 * then order[n_axes - 1], without the axis of the samples, lists the axes as they lie in memory, the
 * outermost first. *n is their number.
 */
bool view_is_whole(const struct view *v, int64_t floats, int order[VIEW_AXES], int *n);

/* Returns whether the view is whole, and the axes lie in memory in the order of its dimensions. */
bool view_is_dense(const struct view *v, int64_t floats);

/* Returns whether the last dimension is one axis of stride 1 (or has size 1), and the view is whole:
 * rows of channels. */
bool view_is_rows(const struct view *v, int64_t floats);

/* Writes "[s][4][8]" for messages. */
char *view_text(const struct view *v, char *out, size_t bytes);

#endif
