/* SPDX-License-Identifier: Apache-2.0 */
/* The list of data sets, and the code that is the same for all of them. */
#include "ppcli/data/dataset.h"
#include "tokenizer.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "ops.h"

#define PP_DATASET(symbol, file) extern const struct pp_dataset_ops dataset_##symbol;
#include "datasets.def"

static const struct pp_dataset_ops *const all[] = {
#define PP_DATASET(symbol, file) &dataset_##symbol,
#include "datasets.def"
};

#define N_ALL ((int)(sizeof(all) / sizeof(all[0])))

const char *const *pp_dataset_names(void)
{
    /* Filled in every call: this is cheap and needs no lock. */
    static _Thread_local const char *names[N_ALL + 1];
    for (int i = 0; i < N_ALL; i++)
        names[i] = all[i]->info.name;
    return names;
}

static const struct pp_dataset_ops *find_dataset(const char *name)
{
    for (int i = 0; i < N_ALL; i++)
        if (strcmp(all[i]->info.name, name) == 0)
            return all[i];
    return NULL;
}

int pp_dataset_ops_of(const char *name, const struct pp_dataset_ops **out)
{
    *out = find_dataset(name);
    if (*out)
        return 0;
    char known[256] = "";
    for (int i = 0; i < N_ALL; i++)
        pp_text_add(known, sizeof(known), "%s%s", i > 0 ? ", " : "", all[i]->info.name);
    return pp_fail(PP_ECONFIG, "data.dataset: unknown data set '%s' (known: %s)", name, known);
}

const struct pp_dataset_info *pp_dataset_info(const char *name)
{
    const struct pp_dataset_ops *ops = find_dataset(name);
    return ops ? &ops->info : NULL;
}

void pp_dataset_remark(struct pp_dataset *ds, const char *fmt, ...)
{
    va_list args;
    if (ds->n_remarks == PP_REMARKS_MAX)
        return;
    va_start(args, fmt);
    vsnprintf(ds->remarks[ds->n_remarks++], PP_REMARK_BYTES, fmt, args);
    va_end(args);
}

/* Sets the shape of the model's input. data.augment and data.resize are refused unless samples are
 * pictures of bytes. */
int pp_dataset_make_input(const struct pp_config *cfg, struct pp_dataset *ds)
{
    const struct pp_augments *augment = &cfg->data.augment;
    const char *key = augment->n > 0 ? "data.augment" : "data.resize", *why = NULL;
    bool picture = ds->shape.n == 3 && ds->element == PP_U8, coloured = false;
    for (int i = 0; i < augment->n; i++)
        coloured = coloured || augment->at[i] == PP_AUGMENT_AUTO;
    if (!picture && pp_ahead_makes(cfg, PP_SPLIT_TRAIN))
        why = "is for pictures of bytes";
    else if (coloured && pp_shape_channels(&ds->shape) != 3)
        why = "autoaugment is for pictures of 3 channels";
    ds->input = ds->shape;
    int side = pp_resize_later(cfg);
    if (side > 0)
        ds->input = pp_shape_image(side, side, ds->shape.dims[2]);
    char shape[48];
    if (pp_shape_floats(&ds->input) > INT_MAX) {
        pp_shape_text(&ds->input, shape, sizeof(shape));
        return pp_fail(PP_ECONFIG, "data.%s: %s is more than 2^31 - 1 values",
                       side > 0 ? "resize" : "shape", shape);
    }
    ds->features = (int)pp_shape_floats(&ds->input);
    ds->stride = ds->windows ? ds->stride : (size_t)ds->features;
    if (ds->vocabulary + cfg->model.vocab_size > 0 &&
        (cfg->data.mean.n > 0 || cfg->data.std.n > 0)) {
        return pp_fail(PP_ECONFIG, "data.%s: has no meaning for tokens, which %s has",
                       cfg->data.mean.n > 0 ? "mean" : "std", ds->name);
    }
    if (!why)
        return 0;
    pp_shape_text(&ds->shape, shape, sizeof(shape));
    return pp_fail(PP_ECONFIG, "%s: %s; a sample of %s is %s%s", key, why, ds->name, shape,
                   ds->element == PP_F32 ? " floats" : "");
}

/* Sets the token whose targets do not count, and checks that the config may leave out targets or
 * weigh them. */
static int check_counted(const struct pp_config *cfg, struct pp_dataset *ds)
{
    ds->ignored = ds->windows ? (int64_t)cfg->data.ignored_token + 1 : 0;
    if (cfg->model.mask_padding && !ds->lengths)
        return pp_fail(PP_ECONFIG, "model.mask_padding: %s has no padding", ds->name);
    bool weighs = cfg->train.class_weights.n != 0 && !pp_loss_takes_numbers(cfg->train.loss);
    if (weighs && ds->windows)
        return pp_fail(PP_ECONFIG, "train.class_weights: only for labels, not for the tokens of %s",
                       ds->name);
    if ((ds->ignored > 0 || weighs) && cfg->train.microbatch_loss == PP_LOSS_SUM)
        return pp_fail(PP_ECONFIG, "%s: only for microbatch_loss = mean",
                       weighs ? "train.class_weights" : "data.ignored_token");
    return 0;
}

int pp_data_shape(const struct pp_config *cfg, struct pp_shape *out)
{
    int h, w, c, end = 0;
    const char *shape = cfg->data.shape;
    if (!shape[0] || strcmp(shape, "model") == 0)
        return 0;
    if (sscanf(shape, "%4dx%4dx%4d%n", &h, &w, &c, &end) != 3 || shape[end] != '\0' || h < 1 ||
        w < 1 || c < 1)
        return pp_fail(
            PP_ECONFIG,
            "data.shape: '%s' is not a shape; write rows, columns and channels such as 32x32x3",
            shape);
    *out = pp_shape_image(h, w, c);
    return 0;
}

/* Replaces the shape of the samples by data.shape, so that rows of values become images. */
static int shape_rows(const struct pp_config *cfg, struct pp_dataset *ds)
{
    char found[48], wanted[48];
    struct pp_shape shape = ds->shape;
    PP_TRY(pp_data_shape(cfg, &shape));
    pp_shape_text(&ds->shape, found, sizeof(found));
    pp_shape_text(&shape, wanted, sizeof(wanted));
    if (ds->shape.n == 1 ? pp_shape_floats(&shape) != pp_shape_floats(&ds->shape)
                         : strcmp(found, wanted) != 0)
        return pp_fail(PP_ECONFIG, "data.shape: %s is %zu values, but a sample of %s is %s", wanted,
                       pp_shape_floats(&shape), ds->origin, found);
    ds->shape = shape;
    return 0;
}

static int scale_input(const struct pp_config *cfg, struct pp_dataset *ds)
{
    PP_TRY(pp_dataset_scale(cfg, ds));
    return pp_dataset_make_input(cfg, ds);
}

int pp_dataset_shape(const struct pp_config *cfg, struct pp_dataset *ds)
{
    PP_TRY(shape_rows(cfg, ds));
    return scale_input(cfg, ds);
}

int pp_dataset_open_split(const struct pp_config *cfg, enum pp_split split, int parts,
                          const struct pp_shape *input, int classes, struct pp_dataset **out)
{
    const struct pp_dataset_ops *ops;
    PP_TRY(pp_dataset_ops_of(cfg->data.dataset, &ops));
    struct pp_dataset *ds;
    PP_ALLOC(ds, 1);
    ds->name = ops->info.name;
    ds->targets_each = 1;
    int rc = ops->open(ops, cfg, split, parts, input, classes, ds);
    rc = rc == 0 ? pp_dataset_check_targets(cfg, ds) : rc;
    rc = rc == 0 && !ops->makes ? shape_rows(cfg, ds) : rc;
    rc = rc == 0 ? scale_input(cfg, ds) : rc;
    rc = rc == 0 ? check_counted(cfg, ds) : rc;
    PP_TRY_UNDO(rc, pp_dataset_destroy(&ds));
    *out = ds;
    return 0;
}

static uint32_t read_element(const void *data, enum pp_element element, size_t i)
{
    return element == PP_U8    ? ((const uint8_t *)data)[i]
           : element == PP_U16 ? ((const uint16_t *)data)[i]
                               : ((const uint32_t *)data)[i];
}

uint32_t pp_dataset_token(const struct pp_dataset *ds, size_t i)
{
    return read_element(ds->images, ds->element, i);
}

/* Checks that at least one target of the windows counts: otherwise training is refused, and a test
 * only gets a remark. Stops at the first target that counts. */
static int check_targets(struct pp_dataset *ds, enum pp_split split)
{
    uint64_t windows = ds->starts > 0 ? ds->starts : (uint64_t)ds->n;
    const long long ignored = (long long)ds->ignored - 1;
    size_t i = (size_t)ds->apart, end = i + (windows - 1) * ds->stride + (size_t)ds->features;
    while (windows > 0 && i < end && pp_dataset_token(ds, i) == ignored)
        i++;
    if (windows == 0 || i < end)
        return 0;
    if (split == PP_SPLIT_TRAIN)
        return pp_fail(PP_EFORMAT,
                       "%s: every target is %lld, which data.ignored_token leaves out, so there is "
                       "nothing to learn; use another token, or -1 for none",
                       ds->origin, ignored);
    pp_dataset_remark(
        ds,
        "%s: every target is %lld, which data.ignored_token leaves out, so there is no "
        "test loss; use another token, or -1 for none",
        ds->origin, ignored);
    return 0;
}

int pp_dataset_open(const struct pp_config *cfg, enum pp_split split, int parts,
                    const struct pp_shape *model_input, int model_classes, struct pp_dataset **out)
{
    struct pp_dataset *ds = NULL;
    PP_TRY(pp_dataset_open_split(cfg, split, parts, model_input, model_classes, &ds));
    int rc = pp_dataset_fits(cfg, ds, (int)pp_shape_floats(model_input), model_classes);
    rc = rc == 0 ? pp_dataset_tokens(cfg, ds) : rc;
    if (rc == 0 && ds->windows && ds->images && ds->ignored > 0)
        rc = check_targets(ds, split);
    if (rc == 0 && cfg->model.vocab_size == 0)
        rc = pp_dataset_judge_range(ds);
    if (rc == 0 && ds->unchecked && ds->map)
        rc = pp_token_check_begin(
            ds, (ds->map->bytes - ds->map_first) / pp_element_bytes(ds->element), model_classes);
    PP_TRY_UNDO(rc, pp_dataset_destroy(&ds));
    *out = ds;
    return 0;
}

void pp_dataset_destroy(struct pp_dataset **ds)
{
    if (!*ds)
        return;
    pp_token_check_end(&(*ds)->check);
    if ((*ds)->map)
        pp_mapping_close(&(*ds)->map);
    else
        pp_free((*ds)->images);
    pp_free((*ds)->columns);
    pp_free((*ds)->targets);
    pp_free((*ds)->preprocessing);
    pp_free((*ds)->lengths);
    pp_free(*ds);
    *ds = NULL;
}

struct pp_gather pp_dataset_gather(const struct pp_dataset *ds, const void *data, int rows,
                                   const uint32_t *index, float *x)
{
    return (struct pp_gather){.B = rows,
                              .F = ds->features,
                              .data = data,
                              .element = ds->element,
                              .stride = ds->stride,
                              .index = index,
                              .scaling = ds->scaling,
                              .x = x};
}

struct pp_targets pp_dataset_targets(const struct pp_dataset *ds, const void *data, int rows,
                                     const uint32_t *index, int32_t *targets)
{
    bool next = ds->windows;
    return (struct pp_targets){.B = rows,
                               .P = next ? ds->features : 1,
                               .data = data,
                               .element = next ? ds->element : ds->target_element,
                               .stride = next ? ds->stride : 1,
                               .first = (size_t)ds->apart,
                               .index = index,
                               .targets = targets,
                               .ignored = ds->ignored};
}

int pp_token_refuse(const struct pp_dataset *ds, size_t i, uint32_t token, int limit)
{
    uint32_t low = token & 0xffff, high = token >> 16;
    bool halves = ds->element == PP_U32 && low < (uint32_t)limit && high < (uint32_t)limit;
    char hint[96] = "";
    if (halves)
        snprintf(hint, sizeof(hint), "; as 2 bytes each it is %u and %u: data.token_bytes = 2?",
                 low, high);
    return pp_fail(PP_EFORMAT,
                   "%s: token %zu is %u, and the model's vocabulary has %d (model.vocab_size)%s",
                   ds->origin, i, token, limit, hint);
}

int pp_dataset_windows(const struct pp_dataset *ds, int rows, const uint32_t *index, int limit,
                       uint32_t *out)
{
    const size_t n = (size_t)ds->features + (size_t)ds->apart, none = SIZE_MAX;
    size_t bad = none;
    for (size_t r = 0; r < (size_t)rows; r++) {
        for (size_t k = 0; k < n; k++) {
            size_t i = index[r] * ds->stride + k;
            uint32_t t = pp_dataset_token(ds, i);
            bad = t >= (uint32_t)limit && bad == none ? i : bad;
            if (out)
                out[r * n + k] = t;
        }
    }
    if (ds->map) /* a change of the file explains more than a bad token that it caused */
        PP_TRY(pp_mapping_check(ds->map));
    return bad == none ? 0 : pp_token_refuse(ds, bad, pp_dataset_token(ds, bad), limit);
}

uint32_t pp_dataset_label(const struct pp_dataset *ds, size_t i)
{
    return read_element(ds->targets, ds->target_element, i);
}

int pp_dataset_set_labels(struct pp_dataset *ds, const uint32_t *labels)
{
    uint32_t most = 0;
    for (int i = 0; i < ds->n; i++)
        most = labels[i] > most ? labels[i] : most;
    ds->target_element = most <= UINT8_MAX ? PP_U8 : most <= UINT16_MAX ? PP_U16 : PP_U32;
    const size_t each = pp_element_bytes(ds->target_element), bytes = (size_t)ds->n * each;
    uint8_t *to;
    PP_ALLOC(to, bytes);
    for (size_t i = 0; i < (size_t)ds->n; i++)
        if (each == 1)
            to[i] = (uint8_t)labels[i];
        else if (each == 2)
            ((uint16_t *)(void *)to)[i] = (uint16_t)labels[i];
        else
            ((uint32_t *)(void *)to)[i] = labels[i];
    ds->labels_crc = (uint32_t)crc32_z(0, to, bytes);
    ds->targets = to;
    return 0;
}

int pp_data_tokenizer(const struct pp_config *cfg, bool padded, struct pp_vocabulary *out)
{
    if (!cfg->data.tokenizer[0]) {
        return pp_fail(PP_ECONFIG,
                       "data.tokenizer: names no folder, but data.tokens = bpe needs one with a "
                       "tokenizer.json ('ppcli tokenize --train' makes one), or model.from");
    }
    return pp_vocabulary_open(cfg->data.tokenizer, padded, out);
}

int pp_dataset_vocabulary(const struct pp_config *cfg, struct pp_vocabulary *out)
{
    const struct pp_dataset_ops *ops;
    *out = (struct pp_vocabulary){0};
    PP_TRY(pp_dataset_ops_of(cfg->data.dataset, &ops));
    return ops->vocabulary ? ops->vocabulary(ops, cfg, out) : 0;
}

int pp_dataset_look(const struct pp_config *cfg, enum pp_split split, struct pp_dataset **out)
{
    const struct pp_shape any = pp_shape_flat(1);
    return pp_dataset_open_split(cfg, split, 0, &any, 1, out);
}

int pp_dataset_count(const struct pp_config *cfg, enum pp_split split, int *out)
{
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    PP_TRY(pp_dataset_look(cfg, split, &ds));
    *out = ds->n;
    return 0;
}

int pp_dataset_same_shape(const struct pp_dataset *a, const struct pp_dataset *b)
{
    char shapes[2][48];
    pp_shape_text(&a->shape, shapes[0], sizeof(shapes[0]));
    pp_shape_text(&b->shape, shapes[1], sizeof(shapes[1]));
    if (a->scale < b->scale || a->scale > b->scale)
        return pp_fail(PP_EFORMAT, "only one of %s and %s has bytes, as 0 to 1; save both alike",
                       a->origin, b->origin);
    return strcmp(shapes[0], shapes[1]) == 0
               ? pp_table_same_columns(a, b)
               : pp_fail(PP_EFORMAT, "a training sample of %s is %s, a test sample of %s is %s",
                         a->origin, shapes[0], b->origin, shapes[1]);
}

int pp_samples_max(const struct pp_config *cfg, enum pp_split split)
{
    return split == PP_SPLIT_TRAIN ? cfg->data.train_samples : cfg->data.test_samples;
}

/* ---- where files are */

static const char *read_env(const char *name)
{
    const char *v = getenv(name);
    return v && v[0] != '\0' ? v : NULL;
}

int pp_data_dir(const char *name, char out[PP_PATH_MAX])
{
    const char *base = read_env("PPCLI_DATA_DIR");
    if (base)
        return pp_path_format(out, "%s/%s", base, name);
    /* The XDG base directory specification requires to ignore a relative path. */
    base = read_env("XDG_DATA_HOME");
    if (base && base[0] == '/')
        return pp_path_format(out, "%s/ppcli/%s", base, name);
    base = read_env("HOME");
    if (base)
        return pp_path_format(out, "%s/.local/share/ppcli/%s", base, name);
    return pp_fail(PP_ECONFIG, "no folder for data sets: set PPCLI_DATA_DIR, XDG_DATA_HOME, HOME "
                               "or data.path");
}
