/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data sets made from train.seed. Pictures: one random picture per class, and every sample is half
 * its class's picture and half noise. They fit any model with one label per sample, need no file,
 * and are learnt quickly. Each byte is a function of (seed, split, row, column), so every rank
 * makes the same.
 *
 *   prototype[c][j] = byte j of stream ("synthetic:class", c)
 *   noise[r][j]     = byte j of row r of stream ("synthetic:train" or "synthetic:test", 0)
 *   image[r][j]     = (prototype[r mod classes][j] + noise[r][j] + 1) / 2
 *
 * For a loss of numbers the targets are a linear function of up to 64 pixels, evenly spread, and
 * noise; yes or no is whether that is above 0.
 *
 *   target[r][k] = sum over i of weight[k][i] * image[r][place[i]] / 255 + noise[r][k] / 10
 *   weight, noise in -1 to 1: streams ("synthetic:weight", k), ("synthetic:train noise", 0) or test
 */

#include <zlib.h>

#include "ppcli/base/base.h"
#include "ops.h"

#define TRAIN_N 8192
#define TEST_N 1024
#define TRAIN_TEXTS 1024
#define TEST_TEXTS 64
#define BLOCK 16 /* bytes of one Philox block */

/* Writes n bytes of a random stream, from byte first_block * 16 on. Words are split by shifts and
 * not by memcpy, so that the byte order of the machine does not matter. */
static void make_bytes(uint64_t seed, uint64_t stream, uint64_t first_block, size_t n, uint8_t *out)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (size_t i = 0; i < n; i += BLOCK) {
        uint64_t b = first_block + i / BLOCK;
        const uint32_t ctr[4] = {(uint32_t)b, (uint32_t)(b >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
        uint32_t w[4];
        pp_philox4x32(key, ctr, w);
        for (size_t k = 0; k < BLOCK && i + k < n; k++)
            out[i + k] = (uint8_t)(w[k / 4] >> (8 * (k % 4)));
    }
}

static int count_samples(const struct pp_config *cfg, enum pp_split split, int train, int test)
{
    int n = pp_samples_max(cfg, split);
    return n > 0 ? n : split == PP_SPLIT_TRAIN ? train : test;
}

/* What makes the pictures of a split. */
struct maker {
    uint64_t seed, stream;
    size_t features, classes;
    uint8_t *prototypes; /* [classes][features]; owned */
};

static void maker_fini(struct maker *m)
{
    pp_free(m->prototypes);
}

static int maker_init(uint64_t seed, enum pp_split split, const struct pp_dataset *ds,
                      struct maker *m)
{
    *m = (struct maker){
        .seed = seed,
        .stream = pp_rng_stream(split == PP_SPLIT_TRAIN ? "synthetic:train" : "synthetic:test", 0),
        .features = pp_shape_floats(&ds->shape),
        .classes = (size_t)ds->classes};
    PP_ALLOC(m->prototypes, m->classes * m->features);
    for (size_t c = 0; c < m->classes; c++)
        make_bytes(seed, pp_rng_stream("synthetic:class", c), 0, m->features,
                   m->prototypes + c * m->features);
    return 0;
}

static void make_image(const struct maker *m, size_t r, uint8_t *image)
{
    const uint8_t *prototype = m->prototypes + r % m->classes * m->features;
    make_bytes(m->seed, m->stream, r * ((m->features + BLOCK - 1) / BLOCK), m->features, image);
    for (size_t j = 0; j < m->features; j++)
        image[j] = (uint8_t)((image[j] + prototype[j] + 1) / 2);
}

static int make_images(const struct maker *m, struct pp_dataset *ds)
{
    PP_ALLOC(ds->images, (size_t)ds->n * m->features);
    for (size_t r = 0; r < (size_t)ds->n; r++)
        make_image(m, r, ds->images + r * m->features);
    ds->images_crc = (uint32_t)crc32_z(0, ds->images, (size_t)ds->n * m->features);
    return 0;
}

/* Returns a number of -1 to 1. */
static double made_number(uint64_t seed, uint64_t stream, uint64_t i)
{
    return pp_rng_u32(seed, stream, i) / 2147483648.0 - 1;
}

#define PLACES 64 /* most pixels that a target depends on */

static int make_numbers(const struct maker *m, enum pp_split split, bool yes_no,
                        struct pp_dataset *ds)
{
    const size_t k = m->classes, places = m->features < PLACES ? m->features : PLACES;
    uint64_t noise = pp_rng_stream(
        split == PP_SPLIT_TRAIN ? "synthetic:train noise" : "synthetic:test noise", 0);
    PP_TAKE(uint8_t, image, m->features);
    float *numbers;
    PP_ALLOC(numbers, (size_t)ds->n * k);
    for (size_t r = 0; r < (size_t)ds->n; r++) {
        make_image(m, r, image);
        for (size_t t = 0; t < k; t++) {
            uint64_t weights = pp_rng_stream("synthetic:weight", t);
            double sum = made_number(m->seed, noise, r * k + t) / 10;
            for (size_t i = 0; i < places; i++) {
                const size_t at = i * m->features / places;
                sum += made_number(m->seed, weights, i) * image[at] / 255;
            }
            numbers[r * k + t] = yes_no ? (float)(sum > 0) : (float)sum;
        }
    }
    pp_dataset_set_numbers(ds, (int)k, numbers);
    return 0;
}

static int make_labels(struct pp_dataset *ds)
{
    PP_TAKE(uint32_t, labels, ds->n);
    for (int r = 0; r < ds->n; r++)
        labels[r] = (uint32_t)(r % ds->classes);
    return pp_dataset_set_labels(ds, labels);
}

static int open_made(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                     enum pp_split split, int parts, const struct pp_shape *model_input,
                     int model_classes, struct pp_dataset *ds)
{
    ds->n = count_samples(cfg, split, TRAIN_N, TEST_N);
    ds->shape = *model_input;
    PP_TRY(pp_data_shape(cfg, &ds->shape));
    ds->classes = model_classes;
    ds->scale = 1.0f / 255.0f;
    bool numbers = pp_loss_takes_numbers(cfg->train.loss);
    PP_OWN(maker_fini) struct maker m = {.prototypes = NULL};
    if (numbers)
        pp_dataset_set_numbers(ds, ds->classes, NULL);
    PP_TRY(parts ? maker_init(cfg->train.seed, split, ds, &m) : 0);
    if (parts & PP_DATA_IMAGES)
        PP_TRY(make_images(&m, ds));
    if (parts & PP_DATA_LABELS)
        PP_TRY(numbers ? make_numbers(&m, split, cfg->train.loss == PP_LOSS_BCE, ds)
                       : make_labels(ds));
    return pp_path_format(ds->origin, "made from the seed");
}

extern const struct pp_dataset_ops dataset_synthetic, dataset_synthetic_tokens,
    dataset_synthetic_ones;

const struct pp_dataset_ops dataset_synthetic = {
    .info = {.name = "synthetic",
             .help = "made from train.seed in the shape of the model; no files"},
    .makes = true,
    .open = open_made,
};

/*
 * ---- tokens, for any model of texts. Targets are random, so that a model can only memorize them;
 * inputs are random too, or all token 1, as in PyTorch's pipelining tutorial.
 *
 *   target[r][t] = word r*T + t of stream ("synthetic-tokens:train" or ":test", 0) * vocabulary >> 32
 *   input[r][t]  = the same of stream 1, or 1
 */

/* Makes samples of random tokens: each is its inputs, then its targets. With `ones` all inputs are
 * 1. */
static int make_tokens(const struct pp_config *cfg, enum pp_split split, bool ones,
                       struct pp_dataset *ds)
{
    const char *name = split == PP_SPLIT_TRAIN ? "synthetic-tokens:train" : "synthetic-tokens:test";
    size_t T = pp_shape_floats(&ds->shape);
    uint32_t *tokens;
    PP_ALLOC(tokens, (size_t)ds->n * 2 * T);
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

static int open_tokens(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                       enum pp_split split, int parts, const struct pp_shape *model_input,
                       int model_classes, struct pp_dataset *ds)
{
    ds->n = count_samples(cfg, split, TRAIN_TEXTS, TEST_TEXTS);
    ds->shape = *model_input;
    ds->classes = model_classes;
    ds->element = PP_U32;
    ds->scale = 1;
    ds->windows = true;
    ds->apart = (int)pp_shape_floats(&ds->shape);
    ds->stride = 2 * (size_t)ds->apart;
    if (parts)
        PP_TRY(make_tokens(cfg, split, self == &dataset_synthetic_ones, ds));
    return pp_path_format(ds->origin, "made from the seed");
}

#define MADE(word, what)                                                                           \
    {                                                                                              \
        .info = {.name = word, .help = what, .element = PP_U32, .windows = true, .pairs = true},   \
        .makes = true, .open = open_tokens,                                                        \
    }

const struct pp_dataset_ops dataset_synthetic_tokens =
    MADE("synthetic-tokens", "random tokens and targets, made from train.seed; no files");
const struct pp_dataset_ops dataset_synthetic_ones =
    MADE("synthetic-ones", "inputs 1 and random targets, as in PyTorch's pipelining tutorial");
