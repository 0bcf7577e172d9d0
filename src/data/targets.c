/* SPDX-License-Identifier: Apache-2.0 */
/* What the outputs of a model are compared with: whether the loss fits the targets, and the weights
 * of classes. */
#include <math.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "ops.h"

int pp_dataset_check_targets(const struct pp_config *cfg, const struct pp_dataset *ds)
{
    bool numbers = pp_loss_takes_numbers(cfg->train.loss);
    if (numbers && (ds->windows || ds->target_element != PP_F32)) {
        return pp_fail(PP_ECONFIG,
                       "train.loss: %s compares outputs with numbers, but the targets of "
                       "data.dataset = %s are classes; use train.loss = cross_entropy, or csv, npy "
                       "or idx files with numbers",
                       pp_loss_name(cfg->train.loss), ds->name);
    }
    if (!numbers && !ds->windows && ds->target_element == PP_F32) {
        return pp_fail(PP_ECONFIG,
                       "train.loss: cross_entropy needs classes, but the targets of %s are "
                       "numbers; use train.loss = mse, mae, huber, or bce for yes and no",
                       ds->origin);
    }
    const float *targets = ds->targets;
    size_t n = numbers && targets ? (size_t)ds->n * (size_t)ds->targets_each : 0;
    for (size_t i = 0; i < n; i++) {
        float t = targets[i];
        if (!isfinite(t) || (cfg->train.loss == PP_LOSS_BCE && !(t >= 0 && t <= 1))) {
            return pp_fail(
                PP_EFORMAT, "%s: target %zu of sample %zu is %g, expected %s", ds->origin,
                i % (size_t)ds->targets_each + 1, i / (size_t)ds->targets_each, (double)t,
                isfinite(t) ? "0 (no) to 1 (yes) for train.loss = bce" : "a finite number");
        }
    }
    return 0;
}

void pp_dataset_set_numbers(struct pp_dataset *ds, int each, float *numbers)
{
    ds->targets = numbers;
    ds->target_element = PP_F32;
    ds->targets_each = ds->classes = each;
    ds->labels_crc = numbers ? (uint32_t)crc32_z(0, (const uint8_t *)(const void *)numbers,
                                                 (size_t)ds->n * (size_t)each * sizeof(*numbers))
                             : 0;
}

/* ---- weights of classes */

int pp_dataset_class_weights(const struct pp_config *cfg, const struct pp_dataset *train,
                             int classes, float *weights)
{
    const struct pp_floats *given = &cfg->train.class_weights;
    PP_TAKE(int, counts, classes);
    int kinds = 0;
    for (int c = 0; c < classes && given->n != PP_FLOATS_WORD; c++)
        weights[c] = (float)given->at[c];
    if (given->n != PP_FLOATS_WORD)
        return 0;
    for (int i = 0; i < train->n; i++)
        kinds += counts[pp_dataset_label(train, (size_t)i)]++ == 0;
    for (int c = 0; c < classes; c++) {
        double each = (double)kinds * counts[c];
        weights[c] = each > 0 ? (float)((double)train->n / each) : 1.0f;
    }
    return 0;
}

static bool is_counted(const struct pp_dataset *ds, size_t token)
{
    return pp_dataset_token(ds, token) != ds->ignored - 1;
}

double pp_dataset_weight(const struct pp_dataset *ds, const float *weights, int rows,
                         const uint32_t *index)
{
    double sum = 0;
    for (size_t r = 0; r < (size_t)rows && weights; r++)
        sum += (double)weights[pp_dataset_label(ds, index[r])];
    if (weights)
        return sum;
    int64_t n = 0;
    for (size_t r = 0; r < (size_t)rows; r++) {
        size_t first = index[r] * ds->stride + (size_t)ds->apart;
        for (size_t p = 0; p < (size_t)ds->features; p++)
            n += is_counted(ds, first + p);
    }
    return (double)n;
}
