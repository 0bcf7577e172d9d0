/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completes a program of struct pp_expr_run: puts its axes into the order of the memory of its main
 * array, joins neighbours that every array sees as one, and cuts them into blocks of up to
 * EXPR_BLOCK elements that the CPU computes at once. All follows from the program alone, so the order of its
 * sums does too.
 */
#include "expr.h"

#include <stdlib.h>
#include <string.h>

#include "ppcli/base/base.h"

/* A block of a transposition: few rows of each array, with all of a cache line. */
#define BLOCK_ROWS 32
#define BLOCK_COLUMNS 32

static int count_arrays(const struct pp_expr *e)
{
    return e->n_in + e->n_out;
}

static struct pp_expr_array *array_of(struct pp_expr *e, int k)
{
    return k < e->n_in ? &e->in[k] : &e->out[k - e->n_in];
}

static bool has_table(struct pp_expr *e, int axis)
{
    bool has = false;
    for (int k = 0; k < count_arrays(e); k++)
        has = has || array_of(e, k)->table_axis == axis;
    return has;
}

static bool has_sums(const struct pp_expr *e)
{
    bool has = false;
    for (int k = 0; k < e->n_out; k++)
        for (int a = 0; a < e->n_axes; a++)
            has = has || expr_sums(e, &e->out[k], a);
    return has;
}

/* ---- the order of axes */

static void swap_ints(int *a, int *b)
{
    int t = *a;
    *a = *b;
    *b = t;
}

static void swap_axes(struct pp_expr *e, int a, int b)
{
    swap_ints(&e->size[a], &e->size[b]);
    for (int k = 0; k < count_arrays(e); k++) {
        struct pp_expr_array *v = array_of(e, k);
        swap_ints(&v->stride[a], &v->stride[b]);
        v->table_axis = v->table_axis == a ? b : v->table_axis == b ? a : v->table_axis;
    }
}

/* Takes the last axis away. */
static void drop_last(struct pp_expr *e)
{
    e->n_axes--;
    for (int k = 0; k < count_arrays(e); k++)
        array_of(e, k)->stride[e->n_axes] = 0;
}

static void drop_axes_of_one(struct pp_expr *e)
{
    for (int a = e->n_axes - 1; a >= 0 && e->n_axes > 1; a--) {
        if (e->size[a] != 1 || has_table(e, a))
            continue;
        for (int i = a; i + 1 < e->n_axes; i++)
            swap_axes(e, i, i + 1);
        drop_last(e);
    }
}

/* Returns the elements that an array has, without those that it repeats or adds up. */
static size_t count_own(const struct pp_expr *e, const struct pp_expr_array *v)
{
    size_t n = 1;
    for (int a = 0; a < e->n_axes; a++)
        n *= v->stride[a] ? (size_t)e->size[a] : 1;
    return n;
}

/* Returns the array whose memory decides the order: the first of the largest, outputs before
 * inputs. */
static const struct pp_expr_array *find_main(struct pp_expr *e)
{
    const struct pp_expr_array *best = &e->out[0];
    for (int k = 1; k < e->n_out; k++)
        best = count_own(e, &e->out[k]) > count_own(e, best) ? &e->out[k] : best;
    for (int k = 0; k < e->n_in; k++)
        best = count_own(e, &e->in[k]) > count_own(e, best) ? &e->in[k] : best;
    return best;
}

/* Puts the axes with larger strides of the main array before those with smaller ones. An axis that
 * it does not have keeps its place after the one before it. */
static void order_axes(struct pp_expr *e)
{
    const struct pp_expr_array *v = find_main(e);
    for (int a = 1; a < e->n_axes; a++)
        for (int i = a;
             i > 0 && v->stride[i - 1] && v->stride[i] && abs(v->stride[i - 1]) < abs(v->stride[i]);
             i--)
            swap_axes(e, i - 1, i);
}

/* Joins axis a and the next one if each array sees both as one. */
static bool join_axes(struct pp_expr *e, int a)
{
    if ((double)e->size[a] * e->size[a + 1] > INT32_MAX || has_table(e, a) || has_table(e, a + 1))
        return false;
    for (int k = 0; k < count_arrays(e); k++) {
        const struct pp_expr_array *v = array_of(e, k);
        if (v->stride[a] != (long long)v->stride[a + 1] * e->size[a + 1])
            return false;
    }
    e->size[a + 1] *= e->size[a];
    for (int i = a; i + 1 < e->n_axes; i++)
        swap_axes(e, i, i + 1);
    drop_last(e);
    return true;
}

/* ---- blocks */

/* Cuts n into as few pieces of at most `most` as possible, of about the same size, and returns
 * that. */
static int even_piece(int n, int most)
{
    int pieces = (n + most - 1) / most, size = (n + pieces - 1) / pieces;
    int whole = (size + 15) / 16 * 16; /* vectors */
    return pieces > 1 && whole <= most ? whole : size;
}

/* Returns the axis along which an array is contiguous that is not so along the last axis; -1: there
 * is none. */
static int find_transposed(struct pp_expr *e)
{
    int last = e->n_axes - 1;
    for (int k = 0; k < count_arrays(e); k++) {
        const struct pp_expr_array *v = array_of(e, k);
        for (int a = 0; a < last && abs(v->stride[last]) > 1; a++)
            if (abs(v->stride[a]) == 1 && e->size[a] > 1 && v->table_axis != a)
                return a;
    }
    return -1;
}

static void choose_blocks(struct pp_expr *e)
{
    int last = e->n_axes - 1, across = has_sums(e) ? -1 : find_transposed(e), room = EXPR_BLOCK;
    if (across >= 0) {
        e->block[last] = even_piece(e->size[last], BLOCK_COLUMNS);
        e->block[across] = even_piece(e->size[across], BLOCK_ROWS);
        room /= e->block[last] * e->block[across];
    }
    for (int a = last; a >= 0; a--) {
        if (across >= 0 && (a == last || a == across))
            continue;
        e->block[a] = room > 1 ? even_piece(e->size[a], room) : 1;
        room = e->block[a] < e->size[a] ? 1 : room / e->block[a];
    }
}

/* Chooses the axis whose blocks threads may share: the first with several ones that no output adds
 * up over. */
static void choose_split(struct pp_expr *e)
{
    e->split = 0;
    e->units = 1;
    for (int a = 0; a < e->n_axes && e->units == 1; a++) {
        bool free = true;
        for (int k = 0; k < e->n_out; k++)
            free = free && !expr_sums(e, &e->out[k], a) && !e->out[k].repeats;
        e->split = free ? a : 0;
        e->units = free ? (e->size[a] + e->block[a] - 1) / e->block[a] : 1;
    }
}

void pp_expr_finish(struct pp_expr *e)
{
    pp_assert(e->n_axes >= 1 && e->n_axes <= PP_AXES && e->n_out >= 1);
    drop_axes_of_one(e);
    order_axes(e);
    for (int a = e->n_axes - 2; a >= 0; a--)
        join_axes(e, a);
    choose_blocks(e);
    choose_split(e);
    e->elements = 1;
    for (int a = 0; a < e->n_axes; a++)
        e->elements *= (size_t)e->size[a];
}
