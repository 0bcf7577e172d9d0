/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chain of changes of a picture. It uses words of stream ("augment", epoch) from 8 * sample on:
 * row and column of the crop, whether to flip, sub-policy, two probabilities, two signs.
 */
#include "ops.h"
#include "picture.h"

#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

#define PAD 4 /* zeros added around a picture before it is cropped to its size */

enum {
    WORD_ROW,
    WORD_COLUMN,
    WORD_FLIP,
    WORD_POLICY,
    WORD_CHANCE, /* word of the first op, then of the second */
    WORD_SIGN = 6,
    WORDS = 8
};

/* AutoAugment's sub-policies for CIFAR-10: op, probability in tenths, level; twice. */
static const struct half {
    uint8_t op, tenths, level;
} policies[25][2] = {
    {{PICTURE_INVERT, 1, 0}, {PICTURE_CONTRAST, 2, 6}},
    {{PICTURE_ROTATE, 7, 2}, {PICTURE_TRANSLATE_X, 3, 9}},
    {{PICTURE_SHARPNESS, 8, 1}, {PICTURE_SHARPNESS, 9, 3}},
    {{PICTURE_SHEAR_Y, 5, 8}, {PICTURE_TRANSLATE_Y, 7, 9}},
    {{PICTURE_AUTO_CONTRAST, 5, 0}, {PICTURE_EQUALIZE, 9, 0}},
    {{PICTURE_SHEAR_Y, 2, 7}, {PICTURE_POSTERIZE, 3, 7}},
    {{PICTURE_COLOR, 4, 3}, {PICTURE_BRIGHTNESS, 6, 7}},
    {{PICTURE_SHARPNESS, 3, 9}, {PICTURE_BRIGHTNESS, 7, 9}},
    {{PICTURE_EQUALIZE, 6, 0}, {PICTURE_EQUALIZE, 5, 0}},
    {{PICTURE_CONTRAST, 6, 7}, {PICTURE_SHARPNESS, 6, 5}},
    {{PICTURE_COLOR, 7, 7}, {PICTURE_TRANSLATE_X, 5, 8}},
    {{PICTURE_EQUALIZE, 3, 0}, {PICTURE_AUTO_CONTRAST, 4, 0}},
    {{PICTURE_TRANSLATE_Y, 4, 3}, {PICTURE_SHARPNESS, 2, 6}},
    {{PICTURE_BRIGHTNESS, 9, 6}, {PICTURE_COLOR, 2, 8}},
    {{PICTURE_SOLARIZE, 5, 2}, {PICTURE_INVERT, 0, 0}},
    {{PICTURE_EQUALIZE, 2, 0}, {PICTURE_AUTO_CONTRAST, 6, 0}},
    {{PICTURE_EQUALIZE, 2, 0}, {PICTURE_EQUALIZE, 6, 0}},
    {{PICTURE_COLOR, 9, 9}, {PICTURE_EQUALIZE, 6, 0}},
    {{PICTURE_AUTO_CONTRAST, 8, 0}, {PICTURE_SOLARIZE, 2, 8}},
    {{PICTURE_BRIGHTNESS, 1, 3}, {PICTURE_COLOR, 7, 0}},
    {{PICTURE_SOLARIZE, 4, 5}, {PICTURE_AUTO_CONTRAST, 9, 0}},
    {{PICTURE_TRANSLATE_Y, 9, 9}, {PICTURE_TRANSLATE_Y, 7, 9}},
    {{PICTURE_AUTO_CONTRAST, 9, 0}, {PICTURE_SOLARIZE, 8, 3}},
    {{PICTURE_EQUALIZE, 8, 0}, {PICTURE_INVERT, 1, 0}},
    {{PICTURE_TRANSLATE_Y, 7, 9}, {PICTURE_AUTO_CONTRAST, 9, 0}},
};

/* Returns level 0 to 9 of ten equal steps from `first` to `last`, computed in float as
 * torch.linspace does. */
static double scale_level(float first, float last, int level)
{
    float step = (last - first) / 9;
    return level < 5 ? first + step * (float)level : last - step * (float)(9 - level);
}

double augment_magnitude(enum picture_op op, int level, bool minus, const struct pp_shape *s)
{
    double sign = minus ? -1 : 1;
    switch (op) {
    case PICTURE_SHEAR_X:
    case PICTURE_SHEAR_Y:
        return sign * scale_level(0, 0.3f, level);
    case PICTURE_TRANSLATE_X:
        return sign * scale_level(0, (float)(150.0 / 331.0 * s->dims[1]), level);
    case PICTURE_TRANSLATE_Y:
        return sign * scale_level(0, (float)(150.0 / 331.0 * s->dims[0]), level);
    case PICTURE_ROTATE:
        return sign * scale_level(0, 30, level);
    case PICTURE_POSTERIZE:
        return 8 - round(level * 4 / 9.0);
    case PICTURE_SOLARIZE:
        return scale_level(255, 0, level);
    case PICTURE_AUTO_CONTRAST:
    case PICTURE_EQUALIZE:
    case PICTURE_INVERT:
        return 0;
    default:
        return sign * scale_level(0, 0.9f, level);
    }
}

int augment_init(struct augment *a, const struct pp_config *cfg, const struct pp_shape *from)
{
    int n = pp_resize_later(cfg);
    *a = (struct augment){
        .from = *from, .to = *from, .seed = cfg->train.seed, .steps = cfg->data.augment};
    size_t bytes = pp_shape_floats(from), between = 0;
    if (n > 0 && (n != from->dims[0] || n != from->dims[1])) {
        a->to = pp_shape_image(n, n, from->dims[2]);
        between = (size_t)from->dims[0] * (size_t)n * (size_t)from->dims[2];
        PP_TRY(picture_axis_init(&a->y, from->dims[0], n));
        PP_TRY(picture_axis_init(&a->x, from->dims[1], n));
    }
    a->spare[0] = pp_alloc(2 * bytes + between, 1);
    a->spare[1] = a->spare[0] + bytes;
    a->spare[2] = a->spare[1] + bytes;
    return a->spare[0] ? 0 : PP_ERESOURCE;
}

void augment_fini(struct augment *a)
{
    picture_axis_fini(&a->y);
    picture_axis_fini(&a->x);
    pp_free(a->spare[0]);
}

/* A picture in progress: each step writes to a buffer other than `in`. */
struct way {
    const struct augment *a;
    const uint32_t *words;
    const uint8_t *in;
    int next; /* index of the spare picture to use next */
};

static uint8_t *next_buffer(struct way *w)
{
    w->next = !w->next;
    return w->a->spare[w->next];
}

static uint32_t draw_below(uint32_t word, uint32_t n)
{
    return (uint32_t)(((uint64_t)word * n) >> 32);
}

static void auto_augment(struct way *w)
{
    const struct half *two = policies[draw_below(w->words[WORD_POLICY], 25)];
    for (int i = 0; i < 2; i++) {
        float chance = (float)(w->words[WORD_CHANCE + i] >> 8) * 0x1p-24f;
        enum picture_op op = (enum picture_op)two[i].op;
        if (chance > two[i].tenths / 10.0)
            continue;
        bool minus = w->words[WORD_SIGN + i] >> 31 == 0;
        double magnitude = augment_magnitude(op, two[i].level, minus, &w->a->from);
        uint8_t *out = next_buffer(w);
        picture_op(op, magnitude, &w->a->from, w->in, out);
        w->in = out;
    }
}

/* Returns the offset of a crop's row or column, from -PAD to PAD, that follows from a random
 * word. */
static int crop_offset(uint32_t word)
{
    return (int)draw_below(word, 2 * PAD + 1) - PAD;
}

static void apply_step(struct way *w, enum pp_augment what)
{
    const struct pp_shape *s = &w->a->from;
    if (what == PP_AUGMENT_AUTO) {
        auto_augment(w);
    } else if (what == PP_AUGMENT_CROP || w->words[WORD_FLIP] >> 31 != 0) {
        uint8_t *out = next_buffer(w);
        if (what == PP_AUGMENT_CROP)
            picture_crop(s, crop_offset(w->words[WORD_ROW]), crop_offset(w->words[WORD_COLUMN]),
                         w->in, out);
        else
            picture_flip(s, w->in, out);
        w->in = out;
    }
}

static void draw_words(uint64_t seed, uint64_t epoch, uint32_t sample, int n, uint32_t *words)
{
    const uint64_t stream = pp_rng_stream("augment", epoch);
    for (int i = 0; i < n; i++)
        words[i] = pp_rng_u32(seed, stream, (uint64_t)sample * WORDS + (uint64_t)i);
}

uint32_t augment_move(const struct pp_augments *steps, uint64_t seed, uint64_t epoch,
                      uint32_t sample)
{
    uint32_t words[WORD_POLICY];
    int top = 0, left = 0;
    bool flip = false;
    draw_words(seed, epoch, sample, WORD_POLICY, words);
    for (int i = 0; i < steps->n; i++) {
        if (steps->at[i] == PP_AUGMENT_CROP) {
            top = crop_offset(words[WORD_ROW]);
            left = flip ? -crop_offset(words[WORD_COLUMN]) : crop_offset(words[WORD_COLUMN]);
        } else {
            flip = words[WORD_FLIP] >> 31 != 0;
        }
    }
    return pp_move(top, left, flip);
}

void augment_make(struct augment *a, bool train, uint64_t epoch, uint32_t sample, const uint8_t *in,
                  uint8_t *out)
{
    uint32_t words[WORDS];
    struct way w = {.a = a, .words = words, .in = in};
    if (train && a->steps.n > 0) {
        draw_words(a->seed, epoch, sample, WORDS, words);
        for (int i = 0; i < a->steps.n; i++)
            apply_step(&w, (enum pp_augment)a->steps.at[i]);
    }
    if (a->x.taps > 0)
        picture_resize(&a->y, &a->x, a->from.dims[2], w.in, a->spare[2], out);
    else
        memcpy(out, w.in, pp_shape_floats(&a->from));
}
