/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "impl.h"
#include "ppcli/base/base.h"

struct reading {
    const struct pp_ckpt *ck;
    const char *name;
    const struct pp_param *param;
    int (*put)(void *ctx, size_t first, const float *values, size_t n);
    void *ctx;
    size_t row_floats; /* 0: the file has the order of memory */
    float *row;        /* [2 * row_floats] the row as in the file, and as in memory */
};

int ckpt_check_finite(const struct pp_ckpt *ck, const char *name, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return pp_fail(PP_EFORMAT, "%s: tensor %s has a value that is not finite", ck->path,
                           name);
    return 0;
}

/* Collects values, which come in ascending order, and passes on each row when it is complete. */
static int take_values(void *ctx, uint64_t first, const float *values, size_t n)
{
    const struct reading *r = ctx;
    size_t floats = r->row_floats;
    PP_TRY(ckpt_check_finite(r->ck, r->name, values, n));
    if (floats == 0)
        return r->put(r->ctx, (size_t)first, values, n);
    while (n > 0) {
        size_t at = (size_t)first % floats, some = floats - at < n ? floats - at : n;
        memcpy(r->row + at, values, some * sizeof(*values));
        if (at + some == floats) {
            pp_param_row(r->param, false, r->row, r->row + floats);
            PP_TRY(r->put(r->ctx, (size_t)first - at, r->row + floats, floats));
        }
        first += some;
        values += some;
        n -= some;
    }
    return 0;
}

int pp_weights_read(const struct pp_ckpt *ck, const char *name, const struct pp_param *p,
                    int (*put)(void *ctx, size_t first, const float *values, size_t n), void *ctx)
{
    int64_t dims[PP_PARAM_DIMS];
    int n_dims;
    struct reading r = {.ck = ck,
                        .name = name,
                        .param = p,
                        .put = put,
                        .ctx = ctx,
                        .row_floats = pp_param_in_file(p, &n_dims, dims)};
    bool absent = pp_param_is_count(p) && ck->plain; /* old files lack it, and PyTorch uses 0 */
    for (int i = 0; absent && i < ck->n_tensors; i++)
        absent = strcmp(ckpt_tensor_name(ck, pp_ckpt_tensor(ck, i, NULL)), name) != 0;
    if (absent)
        return put ? put(ctx, 0, &(float){0}, 1) : 0;
    if (!put)
        return pp_ckpt_read(ck, name, n_dims, dims, NULL, NULL);
    PP_TAKE(float, row, 2 * r.row_floats + 1);
    r.row = row;
    return pp_ckpt_read(ck, name, n_dims, dims, take_values, &r);
}

/* Returns whether a tensor of the file is expected: the model has it, or Hugging Face's files
 * contain it in addition (masks, angles, the last layer's weight if it is the embedding's). */
static bool is_known_tensor(const struct pp_model *m, const char *name)
{
    static const char *const beside[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq",
                                         "lm_head.weight"};
    for (int i = 0; i < m->n_params; i++) {
        const char *shorter = ckpt_short_name(m->params[i].name);
        if (strcmp(name, m->params[i].name) == 0 || (shorter && strcmp(name, shorter) == 0))
            return true;
    }
    for (int i = 0; i < m->n_extras; i++)
        if (strcmp(name, m->extras[i].name) == 0)
            return true;
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++)
        if (pp_text_ends(name, beside[i]))
            return true;
    return false;
}

static int add_to_digest(void *ctx, uint64_t first, const float *values, size_t n)
{
    pp_sha256_update(ctx, values, n * sizeof(*values));
    return 0;
}

/* Returns whether parameter i belongs to the last layer, or is the embedding that it shares. */
static bool is_of_last_layer(const struct pp_model *m, int i)
{
    const struct pp_node *last = &m->nodes[m->n_nodes - 1];
    while (last > m->nodes && last->n_params == 0)
        last--;
    int first = last->first_param;
    return (i >= first && i < first + last->n_params) || m->params[first].tied_to == i + 1;
}

/* Checks that the weight of the last layer is equal to the embedding's, if the model has one weight
 * for both. */
static int check_head(const struct pp_model *m, const struct pp_ckpt *ck)
{
    static const char head[] = "lm_head.weight";
    for (int i = 0; i < m->n_params; i++) {
        const struct pp_param *p = &m->params[i];
        const char *names[2] = {p->name, head};
        uint8_t digests[2][PP_SHA256_BYTES];
        int64_t dims[PP_PARAM_DIMS];
        int n_dims;
        pp_param_in_file(p, &n_dims, dims);
        bool shared = p->tied_to > 0 && is_of_last_layer(m, i);
        for (int k = 0; k < 2 && shared; k++) {
            struct pp_sha256 h;
            pp_sha256_init(&h);
            PP_TRY(pp_ckpt_read(ck, names[k], n_dims, dims, add_to_digest, &h));
            pp_sha256_final(&h, digests[k]);
        }
        if (shared && memcmp(digests[0], digests[1], PP_SHA256_BYTES) != 0) {
            return pp_fail(PP_EFORMAT,
                           "%s: %s differs from %s, but this model has one for both; use "
                           "model.tie_weights = off",
                           ck->path, head, p->name);
        }
    }
    return 0;
}

/* Returns the tensor of the parameter in the file, whatever its shape; NULL if there is none. */
static const struct pp_st_tensor *find_tensor(const struct pp_ckpt *ck, const struct pp_param *p)
{
    int part;
    const char *shorter = ck->plain ? ckpt_short_name(p->name) : NULL;
    const struct pp_st_tensor *t = ckpt_find(ck, p->name, &part);
    return t || !shorter ? t : ckpt_find(ck, shorter, &part);
}

/* Returns whether the tensor has the parameter's shape but for the number of its rows. */
static bool has_other_rows(const struct pp_st_tensor *t, const struct pp_param *p)
{
    int64_t dims[PP_PARAM_DIMS];
    int n_dims;
    pp_param_in_file(p, &n_dims, dims);
    bool same = t->n_dims == n_dims && n_dims > 0;
    for (int d = 1; d < n_dims && same; d++)
        same = t->dims[d] == dims[d];
    return same && t->dims[0] != dims[0];
}

/* Refuses weights that fit except in the last layer: they are of the same model with another number
 * of classes, or another vocabulary. */
static int check_last_layer(const struct pp_model *m, const struct pp_ckpt *ck)
{
    char own[PP_CKPT_OWN_CONFIG];
    for (int i = 0; i < m->n_params; i++) {
        const struct pp_param *p = &m->params[i];
        const struct pp_st_tensor *t = find_tensor(ck, p);
        if (!t || !has_other_rows(t, p) || !is_of_last_layer(m, i))
            continue;
        return pp_fail(PP_EFORMAT,
                       "%s: tensor %s has %" PRId64
                       " rows, but the last layer of this model has %d "
                       "outputs; only a training begins with a new last layer (train.init)%s",
                       ck->path, t->name, t->dims[0], p->dims[0], pp_ckpt_own_config(ck, own));
    }
    return 0;
}

bool pp_weights_lack(const struct pp_model *m, const struct pp_ckpt *ck, int i)
{
    const struct pp_param *p = &m->params[i];
    const struct pp_node *last = &m->nodes[m->n_nodes - 1];
    while (last > m->nodes && last->n_params == 0)
        last--;
    int first = last->first_param;
    if (i < first || i >= first + last->n_params || m->params[first].tied_to > 0 || first == 0)
        return false;
    const struct pp_st_tensor *t = find_tensor(ck, p);
    return !t || has_other_rows(t, p);
}

/* Returns whether a tensor of the file belongs to a module that the model does not have: the part of
 * its name before the first dot is no parameter's. */
static bool is_of_other_module(const struct pp_model *m, const char *name)
{
    size_t n = strcspn(name, ".");
    for (int i = 0; i < m->n_params; i++) {
        const char *has = m->params[i].name, *shorter = ckpt_short_name(has);
        if ((strncmp(has, name, n) == 0 && has[n] == '.') ||
            (shorter && strncmp(shorter, name, n) == 0 && shorter[n] == '.'))
            return false;
    }
    return true;
}

/* Returns how many parameters the weights lack. */
static int count_new(const struct pp_model *m, const struct pp_ckpt *ck)
{
    int n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += pp_weights_lack(m, ck, i);
    return n;
}

static bool counts_as_weight(const struct pp_ckpt *ck, const struct pp_st_tensor *t)
{
    return ck->plain ? strncmp(ckpt_tensor_name(ck, t), "optimizer.", 10) != 0
                     : pp_ckpt_is_parameter(t);
}

int pp_weights_check_extras(const struct pp_model *m, const struct pp_ckpt *ck, bool new_head)
{
    bool head = false;
    char own[PP_CKPT_OWN_CONFIG];
    PP_TRY(new_head ? 0 : check_last_layer(m, ck));
    bool is_new = new_head && count_new(m, ck) > 0;
    for (int i = 0; i < ck->n_tensors; i++) {
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, NULL);
        const char *name = ckpt_tensor_name(ck, t);
        if (strstr(name, ".lora_")) {
            return pp_fail(PP_EFORMAT,
                           "%s: tensor %s is of a LoRA adapter, not of a whole model: merge it in "
                           "Python with PEFT's merge_and_unload().save_pretrained(NEW), and name "
                           "NEW",
                           ck->path, t->name);
        }
        if (counts_as_weight(ck, t) && !is_known_tensor(m, name) &&
            !(is_new && is_of_other_module(m, name))) {
            return pp_fail(PP_EFORMAT, "%s: this model has no tensor %s (its first is %s)%s",
                           ck->path, t->name, m->params[0].name, pp_ckpt_own_config(ck, own));
        }
        head |= strcmp(name, "lm_head.weight") == 0;
    }
    return head && !is_new ? check_head(m, ck) : 0;
}

void pp_weights_announce(const struct pp_model *m, const struct pp_ckpt *ck, bool new_head)
{
    char new[512] = "", left[512] = "";
    int n_new = new_head ? count_new(m, ck) : 0;
    if (n_new == 0) {
        pp_log_info("weights from %s", ck->path);
        return;
    }
    for (int i = 0; i < m->n_params; i++)
        if (pp_weights_lack(m, ck, i))
            pp_text_add(new, sizeof(new), " %s", m->params[i].name);
    for (int i = 0; i < ck->n_tensors; i++) {
        const struct pp_st_tensor *t = pp_ckpt_tensor(ck, i, NULL);
        if (!t)
            continue;
        const char *name = ckpt_tensor_name(ck, t);
        bool used = is_known_tensor(m, name);
        for (int k = 0; k < m->n_params && used; k++)
            used = !(pp_weights_lack(m, ck, k) && find_tensor(ck, &m->params[k]) == t);
        if (counts_as_weight(ck, t) && !used)
            pp_text_add(left, sizeof(left), " %s", t->name);
    }
    pp_log_info("weights from %s: %d of %d tensors; new, from train.seed:%s; left over in the "
                "file:%s",
                ck->path, m->n_params - n_new, m->n_params, new, left[0] ? left : " none");
}

/* ---- the model that computed them */

void pp_weights_difference(char *text, size_t bytes, const char *key, const char *there,
                           const char *here)
{
    pp_text_add(text, bytes, "%s%s was %.60s, is %.60s", text[0] ? "; " : "", key,
                there[0] ? there : "empty", here[0] ? here : "empty");
}

struct comparing {
    const struct pp_config *cfg;
    struct pp_config *other; /* with one value as before */
    struct pp_data_input data;
    struct pp_model *m;
    bool plain;
    char text[1024];
    int rc;
};

static void compare_key(void *ctx, const char *key, const char *there, const char *here)
{
    struct comparing *c = ctx;
    struct pp_model *m = NULL;
    bool same = strncmp(key, "model.", 6) != 0 || strcmp(key, "model.dropout") == 0;
    /* the input tells the model about padding */
    /* the tensors of a file show whether the last layer is the embedding */
    same |= c->plain && strcmp(key, "model.tie_weights") == 0;
    if (c->rc < 0 || same)
        return;
    int rc = pp_config_with(c->cfg, key, there, c->other);
    rc = rc < 0 ? rc : pp_model_create(c->other, &c->data, &m);
    same = rc == 0 && strcmp(key, "model.mask_padding") != 0 && pp_model_same_function(c->m, m);
    pp_model_destroy(&m);
    c->rc = rc == PP_ERESOURCE ? rc : 0;
    if (!same)
        pp_weights_difference(c->text, sizeof(c->text), key, there, here);
}

/* Converts a config.json to the text of a config; *out stays NULL if there is none or it is not
 * supported. */
static int read_config_json(const struct pp_ckpt *ck, char **out)
{
    const struct pp_setting from = {"model.from", ck->path, "config.json"};
    static const struct pp_names names = {.from = pp_hf_config};
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    int rc = pp_config_load(NULL, &from, 1, &names, &cfg);
    rc = rc == 0 ? pp_config_text(cfg, out) : rc;
    return rc == PP_ERESOURCE ? rc : 0;
}

int pp_weights_check_model(const struct pp_config *cfg, const struct pp_model *m,
                           const struct pp_ckpt *ck, bool warn)
{
    struct comparing c = {.cfg = cfg,
                          .plain = ck->plain,
                          .data = {.shape = m->values[0],
                                   .classes = m->classes,
                                   .vocabulary = m->classes,
                                   .targets = pp_model_targets(m)}};
    char *text = NULL;
    int rc = 0;
    for (int i = 0; i < m->n_params; i++) /* the tensors show these keys */
        PP_TRY(warn && pp_weights_lack(m, ck, i)
                   ? 0
                   : pp_weights_read(ck, m->params[i].name, &m->params[i], NULL, NULL));
    if (ck->plain)
        PP_TRY(read_config_json(ck, &text));
    const char *there = ck->plain ? text : ck->config;
    if (there) {
        c.other = pp_alloc(1, sizeof(*c.other));
        c.rc = c.other ? pp_model_create(cfg, &c.data, &c.m) : PP_ERESOURCE;
        if (c.rc == 0)
            rc = pp_config_compare(cfg, there, compare_key, &c);
    }
    free(text);
    pp_free(c.other);
    pp_model_destroy(&c.m);
    PP_TRY(c.rc < 0 ? c.rc : rc);
    pp_error_clear();
    if (!c.text[0])
        return 0;
    if (warn) {
        pp_log_warn("%s is of a model that computed something else: %s", ck->path, c.text);
        return 0;
    }
    char own[PP_CKPT_OWN_CONFIG];
    return pp_fail(PP_ECONFIG, "%s is of a model that computes something else: %s%s", ck->path,
                   c.text, pp_ckpt_own_config(ck, own));
}
