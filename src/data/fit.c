/* SPDX-License-Identifier: Apache-2.0 */
/* Config, files and model: the keys that a data set uses, the properties that are known before its
 * files are read, and whether its samples fit the model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ppcli/data/dataset.h"
#include "tokenizer.h"
#include "ppcli/base/base.h"
#include "ops.h"

/* Formats model.sizes, such as "784 512 10", with the first and last number that the data need; for
 * a message. */
static const char *sizes_text(const struct pp_config *cfg, int inputs, int classes, char out[128])
{
    int n = cfg->model.n_sizes;
    snprintf(out, 128, "%d", inputs);
    for (int i = 1; i < n - 1 && n <= 8; i++)
        pp_text_add(out, 128, " %d", cfg->model.sizes[i]);
    pp_text_add(out, 128, "%s %d", n <= 8 ? "" : " ...", classes);
    return out;
}

int pp_dataset_fits(const struct pp_config *cfg, const struct pp_dataset *ds, int inputs,
                    int classes)
{
    if (cfg->model.vocab_size > 0 && ds->vocabulary > cfg->model.vocab_size) {
        return pp_fail(PP_ECONFIG, "model.vocab_size: is %d, but %s has %d different tokens",
                       cfg->model.vocab_size, ds->origin, ds->vocabulary);
    }
    if (cfg->model.is_foreign && ds->vocabulary > 0 && !ds->subwords &&
        ds->vocabulary != cfg->model.vocab_size) {
        return pp_fail(PP_ECONFIG,
                       "data.tokens: the tokens of %s are %d characters or bytes, but those of the "
                       "model that model.from names are the %d of its own tokenizer; use "
                       "data.tokens = bpe, with data.tokenizer where its folder has none",
                       ds->name, ds->vocabulary, cfg->model.vocab_size);
    }
    if (cfg->model.vocab_size > 0 && ds->vocabulary == 0 && ds->element == PP_U8 && !ds->windows) {
        return pp_fail(PP_ECONFIG,
                       "model.type: %s reads tokens, but a sample of %s has bytes as 0 to 1; use a "
                       "text, or whole numbers in a csv or npy file",
                       cfg->model.type, ds->name);
    }
    char sizes[128], shape[48];
    bool image = ds->input.n > 1;
    pp_shape_text(&ds->input, shape, sizeof(shape));
    bool numbers = pp_loss_takes_numbers(cfg->train.loss); /* of classes a model may have more */
    if (inputs == ds->features && (numbers ? classes == ds->classes : classes >= ds->classes))
        return 0;
    const char *what =
        numbers ? ds->classes == 1 ? "number to predict" : "numbers to predict" : "classes";
    if (strcmp(cfg->model.type, "mlp") != 0) {
        return pp_fail(
            PP_ECONFIG,
            "%s: the model reads %d values and has %d outputs, but a sample of %s has %s%s%d "
            "values and there %s %d %s",
            strcmp(cfg->model.type, "sequential") == 0 ? "model.layers" : "model.classes", inputs,
            classes, ds->name, image ? shape : "", image ? " = " : "", ds->features,
            ds->classes == 1 ? "is" : "are", ds->classes, what);
    }
    return pp_fail(PP_ECONFIG,
                   "model.sizes begins with %d and ends with %d, but a sample of %s has %s%s%d "
                   "values and there %s %d %s; use model.sizes = %s",
                   inputs, classes, ds->name, image ? shape : "", image ? " = " : "", ds->features,
                   ds->classes == 1 ? "is" : "are", ds->classes, what,
                   sizes_text(cfg, ds->features, ds->classes, sizes));
}

/* Checks the keys of tables: other data sets have no columns. */
static int check_table_keys(struct pp_config *cfg)
{
    const struct {
        const char *name;
        bool set;
    } keys[] = {{"data.target", cfg->data.target[0] != '\0'},
                {"data.columns", cfg->data.columns[0] != '\0'},
                {"data.drop", cfg->data.drop[0] != '\0'},
                {"data.missing", cfg->data.missing != PP_MISSING_STOP},
                {"data.scale", cfg->data.scale != PP_SCALE_NONE}};
    bool table = strcmp(cfg->data.dataset, "csv") == 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && !table; i++)
        if (keys[i].set)
            return pp_config_problem(cfg, keys[i].name,
                                     "%s has no effect with data.dataset = %s, only with csv",
                                     keys[i].name, cfg->data.dataset);
    if (table && cfg->data.scale != PP_SCALE_NONE && cfg->data.mean.n + cfg->data.std.n > 0)
        return pp_config_problem(cfg, "data.scale",
                                 "data.scale = standard measures what data.mean and data.std would "
                                 "say; use one of both");
    if (cfg->data.split > 0 && cfg->data.test_file[0])
        return pp_config_problem(cfg, "data.split",
                                 "data.split takes the test set from data.train_file, and "
                                 "data.test_file names another one; use one of both");
    return 0;
}

int pp_dataset_check_keys(struct pp_config *cfg)
{
    const struct pp_dataset_ops *ops;
    PP_TRY(pp_dataset_ops_of(cfg->data.dataset, &ops));
    const struct {
        const char *name, *value;
        enum pp_data_keys of;
    } keys[] = {
        {"data.train_images", cfg->data.train_images, PP_KEYS_PAIRS},
        {"data.train_labels", cfg->data.train_labels, PP_KEYS_PAIRS},
        {"data.test_images", cfg->data.test_images, PP_KEYS_PAIRS},
        {"data.test_labels", cfg->data.test_labels, PP_KEYS_PAIRS},
        {"data.train_file", cfg->data.train_file, PP_KEYS_TABLES},
        {"data.test_file", cfg->data.test_file, PP_KEYS_TABLES},
    };
    int rc = check_table_keys(cfg);
    bool shaped = cfg->data.shape[0] && strcmp(cfg->data.shape, "model") != 0;
    bool rows = ops->keys == PP_KEYS_PAIRS || ops->keys == PP_KEYS_TABLES;
    if (shaped && !rows && (!ops->makes || ops->info.windows))
        rc = pp_config_problem(cfg, "data.shape",
                               "data.shape has no effect with data.dataset = %s, only with "
                               "synthetic, csv, idx and npy",
                               ops->info.name);
    if (!cfg->data.shuffle && ops->info.windows && !ops->info.pairs)
        rc = pp_config_problem(cfg, "data.shuffle",
                               "data.shuffle = off has no effect with data.dataset = %s, whose "
                               "windows begin at random places; leave it out",
                               ops->info.name);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        bool optional = keys[i].of == PP_KEYS_TABLES && ops->keys == PP_KEYS_FILES;
        bool ours = keys[i].of == ops->keys, set = keys[i].value[0] != '\0';
        bool test = strcmp(keys[i].name, "data.test_file") == 0;
        if (ours && !set && !(test && cfg->data.split > 0)) {
            rc = pp_config_problem(cfg, keys[i].name,
                                   "%s: names no file, but data.dataset = %s "
                                   "needs one",
                                   keys[i].name, ops->info.name);
        } else if (set && !ours && !optional) {
            rc = pp_config_problem(cfg, keys[i].name,
                                   "%s has no effect with data.dataset = %s, "
                                   "only with %s",
                                   keys[i].name, ops->info.name,
                                   keys[i].of == PP_KEYS_PAIRS
                                       ? "idx or npy"
                                       : "csv, cifar10, text, tokens and text-labels");
        }
    }
    return rc;
}

int pp_dataset_tokens(const struct pp_config *cfg, const struct pp_dataset *ds)
{
    const float *values = (const float *)(void *)ds->images;
    size_t F = (size_t)ds->features, n = ds->element == PP_F32 && values ? (size_t)ds->n * F : 0;
    int limit = cfg->model.vocab_size;
    for (size_t i = 0; i < n && limit > 0; i++) {
        if (!(values[i] >= 0 && values[i] < (float)limit && values[i] == floorf(values[i]))) {
            return pp_fail(PP_EFORMAT,
                           "%s: value %zu of sample %zu is %g: not one of the %d tokens of "
                           "model.vocab_size, whole numbers from 0",
                           ds->origin, i % F + 1, i / F + 1, (double)values[i], limit);
        }
    }
    return 0;
}

/* Sets *out to the properties of a data set that are known without its files. If there are none,
 * shape.n is 0. */
static int known_sample(const struct pp_config *cfg, const struct pp_dataset_ops *ops,
                        struct pp_dataset *out)
{
    bool bpe = ops->vocabulary && !ops->numbers && cfg->data.tokens == PP_TOKENS_BPE;
    *out = (struct pp_dataset){.name = ops->info.name,
                               .shape = ops->info.shape,
                               .classes = bpe ? 0 : ops->info.classes,
                               .element = ops->info.element};
    if (ops->vocabulary && !ops->numbers && !bpe)
        out->vocabulary = cfg->data.tokens == PP_TOKENS_BYTES
                              ? pp_vocabulary_bytes(!ops->info.windows).n
                              : out->classes;
    return out->shape.n > 0 ? pp_dataset_make_input(cfg, out) : 0;
}

int pp_dataset_input(const struct pp_config *cfg, struct pp_data_input *out)
{
    const struct pp_dataset_ops *ops;
    struct pp_dataset known;
    PP_OWN(pp_dataset_destroy) struct pp_dataset *ds = NULL;
    PP_TRY(pp_dataset_ops_of(cfg->data.dataset, &ops));
    PP_TRY(known_sample(cfg, ops, &known));
    bool as_wanted = !cfg->data.shape[0] || strcmp(cfg->data.shape, "model") == 0;
    int rc = ops->makes && as_wanted ? 0 : pp_dataset_look(cfg, PP_SPLIT_TRAIN, &ds);
    bool needs = ops->vocabulary && !ops->numbers && cfg->model.vocab_size + known.vocabulary == 0;
    if (rc < 0 && (rc != PP_ENOINPUT || needs))
        return rc;
    if (rc < 0 && known.shape.n == 0) { /* files of the user that do not exist yet */
        PP_TRY(pp_data_shape(cfg, &known.shape));
        known.element = ops->keys == PP_KEYS_PAIRS ? PP_U8 : known.element;
        PP_TRY(known.shape.n > 0 ? pp_dataset_make_input(cfg, &known) : 0);
    }
    pp_error_clear();
    bool told = known.classes > 0 || ops->makes || !ds;
    *out = (struct pp_data_input){.shape = ds ? ds->input : known.input,
                                  .classes = told ? known.classes : ds->classes,
                                  .vocabulary = ds ? ds->vocabulary : known.vocabulary,
                                  .targets = !ds           ? ops->makes && !ops->info.windows
                                             : ds->windows ? ds->features
                                                           : 1};
    return 0;
}

int pp_dataset_blame(struct pp_config *cfg, int rc)
{
    char text[sizeof(pp_error_get()->text)], key[PP_NAME_MAX];
    if (rc != PP_ECONFIG)
        return rc;
    snprintf(text, sizeof(text), "%s", pp_error_get()->text);
    snprintf(key, sizeof(key), "%.*s", (int)strcspn(text, ": "), text);
    int i = pp_config_key_count();
    while (i > 0 && strcmp(pp_config_key_name(i - 1), key) != 0)
        i--;
    return pp_config_problem(cfg, i > 0 ? key : "data.dataset", "%s", text);
}

int pp_dataset_check(struct pp_config *cfg, const struct pp_shape *model_input, int model_classes)
{
    const struct pp_dataset_ops *ops;
    struct pp_dataset known, *ds[2] = {NULL, NULL};
    int inputs = (int)pp_shape_floats(model_input);
    PP_TRY(pp_dataset_ops_of(cfg->data.dataset, &ops));
    if (cfg->source && cfg->data.ignored_token >= 0 && !ops->info.windows)
        return pp_config_problem(cfg, "data.ignored_token",
                                 "data.ignored_token: only a text has targets to ignore");
    if (cfg->data.ignored_token >= model_classes)
        return pp_config_problem(cfg, "data.ignored_token",
                                 "data.ignored_token: %d, but the model has tokens 0 to %d",
                                 cfg->data.ignored_token, model_classes - 1);
    int weights = cfg->train.class_weights.n;
    if (cfg->source && weights > 0 && weights != model_classes &&
        !pp_loss_takes_numbers(cfg->train.loss))
        return pp_config_problem(cfg, "train.class_weights",
                                 "train.class_weights: %d number%s, but the model has %d classes; "
                                 "write one for each, or balanced",
                                 weights, pp_plural(weights), model_classes);
    int rc = known_sample(cfg, ops, &known);
    if (rc == 0 && known.shape.n > 0)
        rc = pp_dataset_check_targets(cfg, &known);
    if (rc == 0 && known.shape.n > 0)
        rc = pp_dataset_fits(cfg, &known, inputs, model_classes);
    for (int split = 0; rc == 0 && split < 2; split++) {
        rc = pp_dataset_open_split(cfg, (enum pp_split)split, 0, model_input, model_classes,
                                   &ds[split]);
        rc = rc == 0 && split == 1 ? pp_dataset_same_shape(ds[0], ds[1]) : rc;
        rc = rc == 0 ? pp_dataset_fits(cfg, ds[split], inputs, model_classes) : rc;
    }
    pp_dataset_destroy(&ds[0]);
    pp_dataset_destroy(&ds[1]);
    return rc == PP_ENOINPUT ? 0 : pp_dataset_blame(cfg, rc);
}
