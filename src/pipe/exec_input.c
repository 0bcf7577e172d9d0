/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samples of a step, if this rank reads them: bytes of the data set (or their copy on a
 * device), pictures that a thread makes ahead (or their copy), pictures that the device moves
 * itself, or windows of a text, which each step uploads.
 */
#include "exec_internal.h"

#include <string.h>

#include "ppcli/base/base.h"

/* ---- memory */

/* Returns how many samples this replica's largest share of a batch has. */
static size_t largest_share(const struct pp_exec *x)
{
    const struct pp_layout *l = x->layout;
    size_t share = 0;
    for (int split = 0; split < 2; split++) {
        struct pp_loader shape;
        int n = split == PP_SPLIT_TRAIN ? l->train_n : l->test_n;
        if (n > 0 && pp_loader_shape(n, l->training.batch, l->replicas, x->replica,
                                     l->division.microbatches, &shape) == 0) {
            size_t rows = (size_t)pp_loader_share_rows(&shape, 0);
            share = rows > share ? rows : share;
        }
    }
    return share;
}

/* Copies the n samples of a split to a device that cannot read host memory; other backends read
 * them in place. n is the layout's number, because a benchmark may use a part of a data set. */
static int place_split(struct pp_exec *x, struct pp_arena *a, bool copies, const void *from,
                       size_t n, size_t width, const void **out)
{
    *out = from;
    if (!copies || n == 0)
        return 0;
    uint8_t *copy = pp_arena_take(a, n, width);
    *out = copy;
    return a->base ? pp_backend_to_device(x->be, copy, from, n * width) : 0;
}

/* Takes memory for pictures: those of one step on the device, or those of two steps on the host
 * (this step and the next). */
static void place_pictures(struct pp_exec *x, struct pp_arena *a, bool copies)
{
    struct exec_input *in = &x->input;
    in->made_bytes = largest_share(x) * (size_t)x->layout->model->inputs;
    if (copies)
        in->made_there = pp_arena_take(a, in->made_bytes, 1);
    for (int i = 0; !copies && i < 2; i++)
        in->made[i] = pp_arena_take(a, in->made_bytes, 1);
}

/* Returns how many bytes the targets of a sample have; without a data set, at most. */
static size_t bytes_of_targets(const struct pp_exec *x, const struct pp_dataset *ds)
{
    bool numbers = pp_loss_takes_numbers(x->cfg->train.loss);
    return !ds ? sizeof(uint32_t) * (numbers ? (size_t)x->layout->model->classes : 1)
               : pp_element_bytes(ds->target_element) * (size_t)ds->targets_each;
}

/* Takes memory for train.class_weights, and computes them. */
static int place_weights(struct pp_exec *x, struct pp_arena *a)
{
    struct exec_input *in = &x->input;
    size_t classes = (size_t)x->layout->model->classes, bytes = classes * sizeof(*in->weights);
    if (x->cfg->train.class_weights.n == 0 || pp_loss_takes_numbers(x->cfg->train.loss))
        return 0;
    in->weights = pp_arena_take(a, classes, sizeof(*in->weights));
    if (!a->base)
        return 0;
    PP_ALLOC(in->weighs, classes);
    PP_TRY(pp_dataset_class_weights(x->cfg, x->data[PP_SPLIT_TRAIN], (int)classes, in->weighs));
    return pp_backend_to_device(x->be, in->weights, in->weighs, bytes);
}

int exec_input_place(struct pp_exec *x, struct pp_arena *a, bool copies, bool first, bool last)
{
    const struct pp_layout *l = x->layout;
    const struct pp_dataset_info *info = pp_dataset_info(x->cfg->data.dataset);
    struct exec_input *in = &x->input;
    size_t inputs = (size_t)l->model->inputs,
           bytes = pp_element_bytes(info ? info->element : PP_U8);
    bool windows = info && info->windows,
         brings = windows && (copies || info->mapped) && (first || last);
    in->device_moves = copies && first && pp_ahead_moves(x->cfg, PP_SPLIT_TRAIN);
    in->window = brings ? inputs + (info->pairs ? inputs : 1) : 0;
    for (int split = 0; split < 2; split++) {
        const struct pp_dataset *ds = x->data[split];
        size_t n = (size_t)(split == PP_SPLIT_TRAIN ? l->training.train_all : l->test_n);
        bool made = pp_ahead_makes(x->cfg, (enum pp_split)split) && !in->device_moves;
        PP_TRY(place_split(x, a, copies && !windows, ds ? ds->images : NULL, first && !made ? n : 0,
                           inputs * bytes, &in->images[split]));
        PP_TRY(place_split(x, a, copies && !windows,
                           !ds           ? NULL
                           : ds->windows ? ds->images
                                         : ds->targets,
                           last ? n : 0, bytes_of_targets(x, ds), &in->targets[split]));
        PP_TRY(place_split(x, a, copies, ds ? ds->lengths : NULL,
                           x->cfg->model.mask_padding ? n : 0, sizeof(uint32_t),
                           &in->lengths[split]));
    }
    if (first && pp_ahead_makes(x->cfg, PP_SPLIT_TRAIN))
        place_pictures(x, a, copies);
    return last ? place_weights(x, a) : 0;
}

void exec_input_place_step(struct pp_exec *x, struct pp_arena *a)
{
    struct exec_input *in = &x->input;
    size_t share = largest_share(x), each = in->device_moves ? 1 : in->window;
    pp_assert(sizeof(*x->args) <= PP_ALIGN);
    in->block_bytes = PP_ALIGN + share * (1 + each) * sizeof(*in->index);
    x->args = pp_arena_take(a, in->block_bytes, 1);
    if (!a->base)
        return;
    in->index = (uint32_t *)(void *)((char *)x->args + PP_ALIGN);
    in->windows = in->window > 0 && !in->device_moves ? in->index + share : NULL;
    in->moves = in->device_moves ? in->index + share : NULL;
}

int exec_input_open(struct pp_exec *x)
{
    struct exec_input *in = &x->input;
    int n = in->made_there ? EXEC_AHEAD + 1 : 2;
    if (in->moves)
        return 0;
    for (int i = 0; in->made_there && i < n; i++) {
        void *buffer = NULL;
        PP_TRY(pp_backend_host_alloc(x->be, in->made_bytes, &buffer));
        in->made[i] = buffer;
    }
    if (!in->made[0])
        return 0;
    return pp_ahead_create(x->cfg, x->data[PP_SPLIT_TRAIN], x->data[PP_SPLIT_TEST], in->made, n,
                           &in->ahead);
}

void exec_input_free_host(struct pp_exec *x)
{
    for (int i = 0; x->input.made_there && i <= EXEC_AHEAD; i++)
        if (x->input.made[i])
            pp_backend_host_free(x->be, x->input.made[i], x->input.made_bytes);
}

/* ---- before a step */

void exec_input_take_pictures(struct pp_exec *x, struct exec_flight *flight)
{
    struct pp_ahead *ahead = x->input.ahead;
    flight->made = NULL;
    if (!ahead || !pp_ahead_makes(x->cfg, flight->split))
        return;
    uint64_t start = pp_clock_ns();
    flight->made =
        pp_ahead_take(ahead, x->loader[flight->split], flight->split, x->epoch, flight->step);
    x->counters.input_ns += pp_clock_ns() - start;
}

/* Returns the address in the step's own block on the host that corresponds to `part`, an address in
 * the device's block. */
static uint32_t *part_of_flight(const struct pp_exec *x, const struct exec_flight *flight,
                                const uint32_t *part)
{
    return (uint32_t *)(void *)((char *)flight->block +
                                ((const char *)part - (const char *)x->args));
}

/* Handles a data file that has changed since it was opened. The step continues with zeros, so that
 * no rank waits for this one, and then fails on all ranks. In a test the reader of the counters
 * gets the error. */
static int refuse_windows(struct pp_exec *x, enum pp_split split, void *windows, size_t bytes)
{
    x->refusal = x->refusal.code == 0 ? *pp_error_get() : x->refusal;
    x->refusal.code = PP_EFORMAT;
    pp_error_clear();
    memset(windows, 0, bytes);
    if (split == PP_SPLIT_TRAIN)
        return exec_finite_veto(x);
    x->counters.refused = &x->refusal;
    return 0;
}

/* Fills the step's block with sample numbers, and windows or moves if there are any. *out is the
 * number of bytes in use. */
static int fill_block(struct pp_exec *x, struct exec_flight *flight, size_t *out)
{
    const struct exec_input *in = &x->input;
    const struct pp_loader *ld = x->loader[flight->split];
    const struct pp_dataset *ds = x->data[flight->split];
    int rows = pp_loader_share_rows(ld, flight->step);
    const uint32_t *index;
    *out = PP_ALIGN + (size_t)rows * sizeof(*index);
    if (rows == 0)
        return 0;
    pp_loader_microbatch(ld, flight->step, 0, &index);
    memcpy(part_of_flight(x, flight, in->index), index, (size_t)rows * sizeof(*index));
    if (x->targets && ds && (ds->ignored > 0 || in->weighs)) { /* of all replicas' shares */
        struct pp_optimizer_args *args = flight->block;
        double weight = pp_dataset_weight(ds, in->weighs, pp_loader_batch_rows(ld, flight->step),
                                          index - pp_loader_share_first(ld, flight->step));
        args->loss_scale = weight > 0 ? (float)(1.0 / weight) : 0;
    }
    bool moves = in->moves && flight->split == PP_SPLIT_TRAIN;
    void *windows = in->windows ? part_of_flight(x, flight, in->windows) : NULL;
    if (ds && ds->windows && (windows || ds->unchecked)) {
        int rc = pp_dataset_windows(ds, rows, index, x->layout->model->classes, windows);
        if (rc < 0 && windows)
            rc = refuse_windows(x, flight->split, windows,
                                (size_t)rows * in->window * sizeof(*in->windows));
        PP_TRY(rc);
    }
    if (moves)
        pp_ahead_move(x->cfg, x->epoch, rows, index, part_of_flight(x, flight, in->moves));
    if (windows || moves)
        *out = in->block_bytes;
    return 0;
}

/* Enqueues the op that makes the step's pictures from the pictures that the device holds. */
static int move_pictures(struct pp_exec *x, const struct exec_flight *flight)
{
    const struct pp_shape *shape = &x->data[flight->split]->shape;
    const struct pp_move_pictures m = {
        .B = pp_loader_share_rows(x->loader[flight->split], flight->step),
        .H = shape->dims[0],
        .W = shape->dims[1],
        .C = shape->dims[2],
        .data = x->input.images[flight->split],
        .index = x->input.index,
        .moves = x->input.moves,
        .pictures = x->input.made_there};
    x->input.made_now = x->input.made_there;
    return pp_backend_move_pictures(x->be, &m);
}

int exec_input_upload(struct pp_exec *x, struct exec_flight *flight)
{
    struct exec_input *in = &x->input;
    size_t bytes;
    PP_TRY(fill_block(x, flight, &bytes));
    PP_TRY(pp_backend_upload(x->be, x->args, flight->block, bytes));
    in->made_now = flight->made;
    if (in->moves && flight->split == PP_SPLIT_TRAIN)
        return move_pictures(x, flight);
    if (!flight->made || !in->made_there)
        return 0;
    in->made_now = in->made_there;
    size_t rows = (size_t)pp_loader_share_rows(x->loader[flight->split], flight->step);
    return pp_backend_upload(x->be, in->made_there, flight->made,
                             rows * (size_t)x->layout->model->inputs);
}

/* ---- a micro-batch */

/* Returns the number of rows of a micro-batch. *index points to their sample numbers in device
 * memory. */
static int find_samples(const struct pp_exec *x, enum pp_split split, int step, int mb,
                        const uint32_t **index)
{
    const struct pp_loader *ld = x->loader[split];
    const uint32_t *first;
    int rows = pp_loader_microbatch(ld, step, mb, index);
    pp_loader_microbatch(ld, step, 0, &first);
    *index = x->input.index + (*index - first);
    return rows;
}

int exec_input_gather(const struct pp_exec *x, enum pp_split split, int step, int mb, float *to)
{
    const struct exec_input *in = &x->input;
    const struct pp_dataset *ds = x->data[split];
    const uint32_t *index;
    int rows = find_samples(x, split, step, mb, &index);
    struct pp_gather g = pp_dataset_gather(ds, in->images[split], rows, index, to);
    g.f32 = x->layout->model->tokens;
    if (in->made_now) {
        g.data = in->made_now + (size_t)(index - in->index) * (size_t)g.F;
        g.index = NULL;
    }
    if (in->windows) {
        g.stride = (size_t)g.F + (size_t)ds->apart;
        g.data = in->windows + (size_t)(index - in->index) * g.stride;
        g.element = PP_U32;
        g.index = NULL;
    }
    return pp_backend_gather(x->be, &g);
}

int exec_input_targets(const struct pp_exec *x, enum pp_split split, int step, int mb)
{
    const struct exec_input *in = &x->input;
    const struct pp_dataset *ds = x->data[split];
    const uint32_t *index;
    int rows = find_samples(x, split, step, mb, &index);
    if (pp_loss_takes_numbers(x->cfg->train.loss)) {
        const struct pp_gather numbers = {.B = rows,
                                          .F = x->layout->model->outputs,
                                          .data = in->targets[split],
                                          .element = PP_F32,
                                          .stride = (size_t)x->layout->model->outputs,
                                          .index = index,
                                          .scaling = {.scale = {1}},
                                          .x = x->targets,
                                          .f32 = true};
        return pp_backend_gather(x->be, &numbers);
    }
    struct pp_targets t = pp_dataset_targets(ds, in->targets[split], rows, index, x->targets);
    if (in->windows) {
        t.stride = (size_t)t.P + (size_t)ds->apart;
        t.data = in->windows + (size_t)(index - in->index) * t.stride;
        t.element = PP_U32;
        t.index = NULL;
    }
    return pp_backend_targets(x->be, &t);
}
