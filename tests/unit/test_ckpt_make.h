/* SPDX-License-Identifier: Apache-2.0 */
/* A small checkpoint: four layers with optimizer state, over any number of ranks. */
#ifndef PPCLI_TESTS_CKPT_MAKE_H
#define PPCLI_TESTS_CKPT_MAKE_H

#include "../../src/ckpt/checkpoint.h"
#include "test_ckpt_files.h"

#define LAYERS 4
#define HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define CONFIG "[train]\nseed = 1\n"

/* What element i of a tensor is at a step; every value is another one. */
static inline float value_of(int layer, int what, int64_t step, int i)
{
    return (float)(layer * 100 + what * 20 + i) + 0.001f * (float)step;
}

static inline int64_t rows_of(int layer)
{
    return 1 + layer % 3;
}

struct layer_items {
    struct pp_st_item items[4];
    char names[4][PP_ST_NAME_MAX];
    float values[4][8];
};

/* weight [rows,2], bias [rows], and the first moment of both. */
static inline void fill_layer(struct layer_items *l, int layer, int64_t step)
{
    for (int k = 0; k < 4; k++) {
        snprintf(l->names[k], sizeof(l->names[k]), "%slayers.%d.%s", k < 2 ? "" : "optimizer.m.",
                 layer, k % 2 == 0 ? "weight" : "bias");
        for (int i = 0; i < 8; i++)
            l->values[k][i] = value_of(layer, k, step, i);
        l->items[k] = (struct pp_st_item){.name = l->names[k],
                                          .dtype = PP_ST_F32,
                                          .n_dims = k % 2 == 0 ? 2 : 1,
                                          .dims = {rows_of(layer), k % 2 == 0 ? 2 : 0},
                                          .data = l->values[k]};
    }
}

static inline struct pp_ckpt_state state_at(int64_t step)
{
    struct pp_ckpt_state s = {.step = step,
                              .epoch = 1 + step / 10,
                              .epoch_steps = step % 10,
                              .samples = step * 32,
                              .seed = UINT64_MAX,
                              .config_hash = HASH,
                              .fingerprint = "cpu, haswell, 1 thread",
                              .ppcli = "0.1.0"};
    pp_ckpt_set(&s, "loss", 1.0 / 3.0 * (double)step);
    pp_ckpt_set(&s, "correct", 7);
    return s;
}

/* Save as ranks 0..ranks-1 of a pipeline would, one after the other; layer i is of rank i*ranks/4.
 */
static inline int save_at(const struct pp_io *io, const char *dir, int64_t step, int ranks)
{
    struct pp_ckpt_save save;
    struct pp_ckpt_part parts[LAYERS];
    PP_TRY(pp_ckpt_begin(io, dir, step, HASH, 10000, &save));
    for (int r = ranks - 1; r >= 0; r--) {
        struct layer_items layers[LAYERS];
        struct pp_st_item items[4 * LAYERS];
        int n = 0;
        for (int layer = 0; layer < LAYERS; layer++) {
            if (layer * ranks / LAYERS == r) {
                fill_layer(&layers[layer], layer, step);
                memcpy(items + n, layers[layer].items, sizeof(layers[layer].items));
                n += 4;
            }
        }
        int rc = pp_ckpt_write_part(io, &save, r, ranks, items, n, &parts[ranks - 1 - r]);
        if (rc < 0) {
            pp_ckpt_abandon(io, &save);
            return rc;
        }
    }
    struct pp_ckpt_state state = state_at(step);
    return pp_ckpt_commit(io, &save, &state, CONFIG, parts, ranks);
}

struct put_target {
    float values[64];
    uint64_t n;
};

static inline int put_values(void *ctx, uint64_t first, const float *values, size_t n)
{
    struct put_target *t = ctx;
    assert_true(first == t->n && n <= 64 - t->n);
    memcpy(t->values + t->n, values, n * sizeof(*values));
    t->n += n;
    return 0;
}

/* All tensors have the values of the step, whatever file they are in. */
static inline void check_values(const struct pp_ckpt *ck, int64_t step)
{
    CHECK_INT_EQ(ck->n_tensors, 4 * LAYERS);
    for (int layer = 0; layer < LAYERS; layer++) {
        struct layer_items l;
        fill_layer(&l, layer, step);
        for (int k = 0; k < 4; k++) {
            struct put_target t = {.n = 0};
            CHECK_OK(
                pp_ckpt_read(ck, l.names[k], l.items[k].n_dims, l.items[k].dims, put_values, &t));
            CHECK_INT_EQ(t.n, rows_of(layer) * (k % 2 == 0 ? 2 : 1));
            assert_memory_equal(t.values, l.values[k], t.n * sizeof(float));
        }
    }
}

/* The step of the newest checkpoint that verifies, -1 when there is none. */
static inline int64_t newest_step(const char *dir)
{
    PP_OWN(pp_ckpt_close) struct pp_ckpt *ck = NULL;
    if (pp_ckpt_open_latest(dir, PP_CKPT_VERIFY, true, &ck) < 0)
        return -1;
    int64_t step = pp_ckpt_state(ck)->step;
    check_values(ck, step);
    return step;
}

#endif
