/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts as samples: windows of model.block_size tokens, whose targets are the next tokens. Training
 * takes windows from anywhere, a test takes adjacent windows. The numbers of the tokens follow from
 * all of the text, so that they are the same in training and test.
 */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include <zlib.h>

#include "ppcli/base/base.h"
#include "tokenizer.h"
#include "ops.h"

#define STARTS_MAX ((uint64_t)1 << 32) /* an order has 32-bit numbers */

int pp_windows(const struct pp_config *cfg, enum pp_split split, const char *path, uint64_t tokens,
               struct pp_dataset *ds)
{
    uint64_t T = (uint64_t)cfg->model.block_size;
    int64_t n = (int64_t)cfg->train.eval_interval * cfg->train.batch_size;
    bool cut = split == PP_SPLIT_TEST && ds->vocabulary > 0 && !cfg->data.test_file[0];
    ds->windows = true;
    ds->apart = 1;
    ds->shape = pp_shape_flat((int)T);
    ds->scale = 1;
    if (tokens <= T) {
        return pp_fail(PP_EFORMAT,
                       "%s: %" PRIu64 " tokens for %s, and a window needs model.block_size + 1 = "
                       "%" PRIu64 "%s",
                       path, tokens, split == PP_SPLIT_TRAIN ? "training" : "validation", T + 1,
                       cut ? "; use a larger data.validation, or 0" : "");
    }
    if (split == PP_SPLIT_TEST) {
        int most = pp_samples_max(cfg, split);
        uint64_t windows = (tokens - 1) / T;
        most = most > 0 ? most : INT_MAX;
        ds->n = windows < (uint64_t)most ? (int)windows : most;
        ds->stride = T;
        return 0;
    }
    if (n > INT_MAX) {
        return pp_fail(PP_ECONFIG,
                       "train.eval_interval: %d steps of %d samples are %" PRId64
                       " samples, more than %d",
                       cfg->train.eval_interval, cfg->train.batch_size, n, INT_MAX);
    }
    ds->n = (int)n;
    ds->stride = (tokens - T - 1) / STARTS_MAX + 1;
    ds->starts = (tokens - T - 1) / ds->stride + 1;
    return 0;
}

/* ---- files of characters or bytes */

/* One file, cut into training and validation, or one file for each. */
struct corpus {
    int n;
    char paths[2][PP_PATH_MAX];
    char *texts[2]; /* owned */
    size_t bytes[2];
    struct pp_vocabulary v;
};

static void corpus_fini(struct corpus *c)
{
    pp_free(c->texts[0]);
    pp_free(c->texts[1]);
    pp_vocabulary_fini(&c->v);
}

static int locate_input(const char *dir, enum pp_split split, void *ctx, bool *out_found)
{
    return pp_folder_file(dir, "input.txt", ctx, out_found);
}

static int find_files(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                      struct corpus *c)
{
    c->n = 1;
    if (self->keys == PP_KEYS_NONE)
        return pp_folder_find(self, cfg, PP_SPLIT_TRAIN, locate_input, c->paths[0]);
    c->n += cfg->data.test_file[0] != '\0';
    PP_TRY(pp_path_format(c->paths[0], "%s", cfg->data.train_file));
    PP_TRY(pp_path_format(c->paths[1], "%s", cfg->data.test_file));
    return c->paths[0][0] ? 0
                          : pp_fail(PP_ECONFIG,
                                    "data.train_file: names no file, but data.dataset = %s needs "
                                    "one",
                                    self->info.name);
}

static int load_corpus(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                       struct corpus *c)
{
    PP_TRY(find_files(self, cfg, c));
    for (int i = 0; i < c->n; i++)
        PP_TRY(pp_source_text(c->paths[i], &c->texts[i], &c->bytes[i]));
    c->v = pp_vocabulary_bytes(false);
    if (cfg->data.tokens == PP_TOKENS_BYTES)
        return 0;
    if (cfg->data.tokens == PP_TOKENS_BPE)
        return pp_data_tokenizer(cfg, false, &c->v);
    for (int i = 0; i < c->n; i++)
        PP_TRY(pp_data_foreign(c->paths[i], c->texts[i], c->bytes[i],
                               PP_FOREIGN_DATA | PP_FOREIGN_TEXT));
    const char *const paths[] = {c->paths[0], c->paths[1]};
    const char *const texts[] = {c->texts[0], c->texts[1]};
    return pp_vocabulary_of(c->n, paths, texts, c->bytes, false, &c->v);
}

/* Gets the ids of text i. The ids of the last text are kept, because they are needed several times
 * before a run begins. */
static int remember_ids(const struct corpus *c, int i, struct pp_ids *out)
{
    static _Thread_local struct pp_ids last;
    static _Thread_local uint64_t last_key;
    const char *json = c->v.bpe->json;
    uint64_t key = (uint64_t)crc32_z(1, (const uint8_t *)c->texts[i], c->bytes[i]) << 32 |
                   crc32_z(1, (const uint8_t *)json, strlen(json));
    int rc = 0;
    if (key != last_key || last.n == 0) {
        last.n = 0;
        rc = pp_tokenizer_encode(c->v.bpe, c->paths[i], c->texts[i], c->bytes[i], &last);
        last_key = rc == 0 ? key : 0;
    }
    out->at = rc == 0 ? pp_alloc(last.n, sizeof(*last.at)) : NULL;
    if (out->at) {
        memcpy(out->at, last.at, last.n * sizeof(*last.at));
        out->n = last.n;
    }
    return rc < 0 || out->at ? rc : PP_ERESOURCE;
}

static size_t put_ids(struct pp_ids *ids, size_t each, uint8_t *out)
{
    for (size_t k = 0; k < ids->n; k++)
        memcpy(out + k * each, &ids->at[k], each);
    pp_free(ids->at);
    return ids->n;
}

/* Encodes file i and keeps the tokens that belong to the split. */
static int take_split(const struct pp_config *cfg, enum pp_split split, int parts,
                      const struct corpus *c, int i, struct pp_dataset *ds)
{
    size_t n = 0, first = 0, each = pp_element_bytes(ds->element), capacity = c->bytes[i];
    struct pp_ids ids = {0};
    if (c->v.bpe)
        PP_TRY(remember_ids(c, i, &ids));
    uint8_t *tokens = pp_alloc(capacity = c->v.bpe ? ids.n : capacity, each);
    ds->images = tokens;
    if (!tokens)
        return pp_error_context("%s", c->paths[i]);
    if (c->v.bpe)
        n = put_ids(&ids, each, tokens);
    else
        PP_TRY(pp_vocabulary_encode(&c->v, c->paths[i], c->texts[i], c->bytes[i], ds->element,
                                    capacity, tokens, &n));
    if (c->n == 1) {
        size_t cut = (size_t)((double)n * (1 - cfg->data.validation));
        bool train = split == PP_SPLIT_TRAIN;
        first = train ? 0 : cut;
        n = train ? cut : n - cut;
    }
    if (split == PP_SPLIT_TEST && c->n == 1 && cfg->data.validation == 0) {
        ds->windows = true; /* also when there are no tokens */
        ds->scale = 1;
        ds->shape = pp_shape_flat(cfg->model.block_size);
        return 0;
    }
    PP_TRY(pp_windows(cfg, split, c->paths[i], n, ds));
    memmove(tokens, tokens + first * each, n * each);
    uint32_t crc = (uint32_t)crc32_z(0, tokens, n * each);
    ds->images_crc = parts & PP_DATA_IMAGES ? crc : 0;
    ds->labels_crc = parts & PP_DATA_LABELS ? crc : 0;
    if (parts == 0) {
        pp_free(tokens);
        ds->images = NULL;
    }
    return 0;
}

static int open_text(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                     enum pp_split split, int parts, const struct pp_shape *model_input,
                     int model_classes, struct pp_dataset *ds)
{
    PP_OWN(corpus_fini) struct corpus c = {0};
    PP_TRY(load_corpus(self, cfg, &c));
    int i = c.n == 2 && split == PP_SPLIT_TEST;
    ds->element = pp_vocabulary_element(&c.v);
    ds->vocabulary = ds->classes = c.v.n;
    ds->subwords = c.v.bpe != NULL;
    PP_TRY(take_split(cfg, split, parts, &c, i, ds));
    return pp_path_format(ds->origin, "%s", c.paths[i]);
}

static int vocabulary_of_text(const struct pp_dataset_ops *self, const struct pp_config *cfg,
                              struct pp_vocabulary *out)
{
    PP_OWN(corpus_fini) struct corpus c = {.v = pp_vocabulary_bytes(false)};
    if (cfg->data.tokens == PP_TOKENS_BPE)
        return pp_data_tokenizer(cfg, false, out);
    PP_TRY(cfg->data.tokens == PP_TOKENS_BYTES ? 0 : load_corpus(self, cfg, &c));
    *out = c.v;
    c.v = (struct pp_vocabulary){0};
    return 0;
}

extern const struct pp_dataset_ops dataset_text, dataset_shakespeare, dataset_shakespeare_sample;

const struct pp_dataset_ops dataset_text = {
    .info = {.name = "text",
             .help = "a text of yours, data.train_file, to learn what comes next in it",
             .windows = true},
    .keys = PP_KEYS_FILES,
    .open = open_text,
    .vocabulary = vocabulary_of_text,
};

const struct pp_dataset_ops dataset_shakespeare = {
    .info = {.name = "shakespeare",
             .help = "1.1 million characters of Shakespeare's plays, in 65 kinds",
             .classes = 65,
             .windows = true,
             .fetch_command = "ppcli download shakespeare"},
    .open = open_text,
    .vocabulary = vocabulary_of_text,
};

const struct pp_dataset_ops dataset_shakespeare_sample = {
    .info = {.name = "shakespeare-sample",
             .help = "the first characters of these plays; comes with ppcli",
             .windows = true},
    .shipped = "data/shakespeare-sample",
    .open = open_text,
    .vocabulary = vocabulary_of_text,
};
