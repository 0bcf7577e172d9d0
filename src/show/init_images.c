/* SPDX-License-Identifier: Apache-2.0 */
/* The config that ppcli init prints for a folder of pictures: their size, the mean and deviation of
 * each channel, and a small convolutional network. */
#include "init.h"

#include <math.h>

#include "ppcli/base/base.h"
#include "ppcli/data/dataset.h"

#define BLOCKS_MAX 4
#define SIDE_LEAST 6 /* of the picture after the last pool */

void pp_init_layers(const struct pp_dataset *train, char *out, size_t bytes)
{
    int h = train->shape.dims[0], w = train->shape.dims[1], channels = 16;
    out[0] = '\0';
    for (int i = 0; i < BLOCKS_MAX && h / 2 >= SIDE_LEAST && w / 2 >= SIDE_LEAST; i++) {
        pp_text_add(out, bytes, "conv:%dx3,pad=1 groupnorm:%d relu maxpool:2 ", channels,
                    channels / 4);
        channels *= channels < 64 ? 2 : 1;
        h /= 2;
        w /= 2;
    }
    pp_text_add(out, bytes,
                "conv:%dx3,pad=1 groupnorm:%d relu flatten dropout:0.3 linear:128 relu linear:%d",
                channels, channels / 4, train->classes);
}

/* Prints the mean and the standard deviation of each channel, of values from 0 to 1. */
static void print_channels(const struct pp_dataset *ds, FILE *f)
{
    const size_t c = (size_t)ds->shape.dims[2], n = (size_t)ds->n * pp_shape_floats(&ds->shape);
    const size_t pixels = n / c;
    double sum[3] = {0}, squares[3] = {0};
    const double each = (double)pixels * 255;
    for (size_t i = 0; i < n; i++) {
        double v = ds->images[i];
        sum[i % c] += v;
        squares[i % c] += v * v;
    }
    fputs("mean =", f);
    for (size_t i = 0; i < c; i++)
        fprintf(f, " %.4f", sum[i] / each);
    fputs(" ; of each channel of the training part\nstd =", f);
    for (size_t i = 0; i < c; i++) {
        double mean = sum[i] / each, variance = squares[i] / each / 255 - mean * mean;
        fprintf(f, " %.4f", variance > 1e-6 ? sqrt(variance) : 1);
    }
    fputc('\n', f);
}

void init_print_pictures(const struct pp_first_config *i, FILE *f)
{
    const struct pp_images_proposal *p = i->images;
    const struct pp_dataset *train = i->train;
    fprintf(f, "; %d + %d pictures of %d classes; ", train->n, i->test->n, train->classes);
    if (p->one_size)
        fprintf(f, "%d x %d pixels, %s\n", p->w, p->h,
                train->shape.dims[2] == 1 ? "grey" : "colour");
    else
        fprintf(f, "sizes differ, about %d x %d pixels, %s\n", p->w, p->h,
                train->shape.dims[2] == 1 ? "grey" : "colour");
    if (p->splits)
        fputs("split = " PP_INIT_SPLIT
              " ; share of the pictures that the test takes, by their names\n",
              f);
    if (p->side > 0)
        fprintf(f,
                "resize = %d ; the shorter side, and then\ncrop = %d ; the middle; 224 in both for "
                "networks such as resnet\n",
                p->side, p->side);
    print_channels(train, f);
    fprintf(f,
            "%saugment = crop flip ; moves and mirrors training pictures; only crop where left and "
            "right matter\n",
            train->shape.dims[2] == 1 ? "; " : "");
}
