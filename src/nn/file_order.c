/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts the order of a parameter's values between memory and files. Memory has the channels of a
 * pixel together, files the pixels of a channel: a row is [pixels][channels] in memory and its
 * transpose in files. A transposed weight is one such row: [out][in] in memory, [in][out] in files.
 */
#include "nn.h"

#include <string.h>

static void find_row_shape(const struct pp_param *p, int *pixels, int *channels)
{
    const int *d = p->n_dims == 4 ? &p->dims[1] : p->columns.dims;
    *pixels = p->transposed ? p->dims[0] : 1;
    *channels = p->transposed ? p->dims[1] : 1;
    if (p->n_dims == 4 || p->columns.n == 3) {
        *pixels = d[0] * d[1];
        *channels = d[2];
    }
}

size_t pp_param_in_file(const struct pp_param *p, int *out_n, int64_t out_dims[PP_PARAM_DIMS])
{
    static const int of_conv[4] = {0, 3, 1, 2};
    *out_n = pp_param_is_count(p) ? 0 : p->reshaped ? p->n_file_dims : p->n_dims;
    for (int i = 0; i < *out_n; i++)
        out_dims[i] = p->reshaped      ? p->file_dims[i]
                      : p->n_dims == 4 ? p->dims[of_conv[i]]
                                       : p->dims[p->transposed ? 1 - i : i];
    if (p->reshaped)
        return 0;
    int pixels, channels;
    find_row_shape(p, &pixels, &channels);
    return pixels > 1 && channels > 1 ? (size_t)pixels * (size_t)channels : 0;
}

bool pp_param_is_count(const struct pp_param *p)
{
    static const char name[] = ".num_batches_tracked";
    size_t n = strlen(p->name), end = strlen(name);
    return p->kind == PP_PARAM_BUFFER && n > end && strcmp(p->name + n - end, name) == 0;
}

void pp_param_row(const struct pp_param *p, bool to_file, const float *src, float *dst)
{
    enum {
        TILE = 32 /* lines of both sides that stay in the cache */
    };
    int pixels, channels;
    find_row_shape(p, &pixels, &channels);
    for (int from = 0; from < channels; from += TILE) {
        int to = channels - from < TILE ? channels : from + TILE;
        for (int i = 0; i < pixels; i++) {
            for (int c = from; c < to; c++) {
                size_t memory = (size_t)i * (size_t)channels + (size_t)c;
                size_t file = (size_t)c * (size_t)pixels + (size_t)i;
                dst[to_file ? file : memory] = src[to_file ? memory : file];
            }
        }
    }
}
