/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens made from train.seed, for any model of texts: no file is needed. Targets are random, so
 * that a model can only learn them by heart; inputs are random too, or all of them token 1, as in
 * PyTorch's pipelining tutorial.
 *
 *   target[r][t] = word r*T + t of stream ("synthetic-tokens:train" or ":test", 0) * vocabulary >> 32
 *   input[r][t]  = the same of stream 1, or 1
 */
#include <string.h>

#include "ppcli/err.h"
#include "ppcli/mem.h"
#include "ppcli/rng.h"
#include "ops.h"

#define TRAIN_N 1024
#define TEST_N 64

extern const struct pp_dataset_ops dataset_synthetic_tokens, dataset_synthetic_ones;

/* A sample is its inputs, then its targets. */
static int make(const struct pp_config *cfg, enum pp_split split, bool ones, struct pp_dataset *ds)
{
    const char *name = split == PP_SPLIT_TRAIN ? "synthetic-tokens:train" : "synthetic-tokens:test";
    size_t T = pp_shape_floats(&ds->shape);
    uint32_t *tokens = pp_alloc((size_t)ds->n * 2 * T, sizeof(*tokens));
    if (!tokens)
        return PP_ERESOURCE;
    ds->images = (uint8_t *)tokens;
    for (int r = 0; r < ds->n; r++) {
        for (int input = 1; input >= 0; input--) {
            uint64_t stream = pp_rng_stream(name, input != 0);
            for (size_t t = 0; t < T; t++) {
                uint64_t word = pp_rng_u32(cfg->train.seed, stream, (uint64_t)r * T + t);
                *tokens++ = input && ones ? 1 : (uint32_t)(word * (uint64_t)ds->classes >> 32);
            }
        }
    }
    return 0;
}

static int open_made(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                     enum pp_split split, int parts, const struct pp_shape *model_input,
                     int model_classes, struct pp_dataset *ds)
{
    int n = pp_samples_max(cfg, split);
    ds->n = n > 0 ? n : split == PP_SPLIT_TRAIN ? TRAIN_N : TEST_N;
    ds->shape = *model_input;
    ds->classes = model_classes;
    ds->element = PP_U32;
    ds->scale = 1;
    ds->windows = true;
    ds->apart = (int)pp_shape_floats(&ds->shape);
    ds->stride = 2 * (size_t)ds->apart;
    if (parts)
        PP_TRY(make(cfg, split, self == &dataset_synthetic_ones, ds));
    return pp_path_format(ds->origin, "made from the seed");
}

#define MADE(word, what)                                                                           \
    {                                                                                              \
        .info = {.name = word, .help = what, .element = PP_U32, .windows = true, .pairs = true},   \
        .makes = true, .open = open_made,                                                          \
    }

const struct pp_dataset_ops dataset_synthetic_tokens =
    MADE("synthetic-tokens", "random tokens and targets, made from train.seed; no files");
const struct pp_dataset_ops dataset_synthetic_ones =
    MADE("synthetic-ones", "inputs 1 and random targets, as in PyTorch's pipelining tutorial");
