/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exports a checkpoint in Hugging Face's format: model.safetensors with the bytes of the
 * parameters, which already have its names and shapes, and the matching config.json.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "export.h"
#include "ppcli/data/preprocessing.h"
#include "safetensors.h"
#include "checkpoint.h"
#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "ppcli/nn/archive.h"

static int read_source(void *ctx, uint64_t offset, void *dst, size_t bytes)
{
    const struct export_source *s = ctx;
    if (s->file)
        return pp_st_read(s->file, s->t, offset, dst, bytes);
    memset(dst, 0, bytes);
    return 0;
}

/* Refuses values that are not finite, as all readers of weights do. */
static int check_values(void *ctx, uint64_t first, const float *values, size_t n)
{
    const struct export_source *s = ctx;
    (void)first;
    return ckpt_check_finite(s->ck, s->name, values, n);
}

static struct pp_st_item *add_item(struct exporter *e, const struct pp_ckpt_entry *from,
                                   const char *name)
{
    struct export_source *s = &e->sources[e->n];
    struct pp_st_item *item = &e->items[e->n++];
    *s = (struct export_source){
        .file = from ? e->ck->parts[from->part] : NULL, .t = from ? from->t : NULL, .ck = e->ck};
    snprintf(s->name, sizeof(s->name), "%s", name);
    *item = (struct pp_st_item){
        .name = s->name, .dtype = PP_ST_F32, .n_dims = 1, .read = read_source, .ctx = s};
    return item;
}

/* Adds a bias of zeros for a layer without one (model.bias = off), because GPT2LMHeadModel always
 * has biases. */
static void add_bias(struct exporter *e, const struct pp_st_tensor *t)
{
    static const char end[] = ".weight";
    char name[PP_ST_NAME_MAX + 1];
    int part;
    size_t n = strlen(t->name), stem = n - (sizeof(end) - 1);
    bool in_block = strstr(t->name, ".h.") || strstr(t->name, ".ln_f.");
    if (!e->gpt || !in_block || n < sizeof(end) || strcmp(t->name + stem, end) != 0)
        return;
    snprintf(name, sizeof(name), "%.*s.bias", (int)stem, t->name);
    if (!ckpt_find(e->ck, name, &part))
        add_item(e, NULL, name)->dims[0] = t->dims[t->n_dims - 1];
}

void export_fini(struct exporter *e)
{
    pp_free(e->items);
    pp_free(e->sources);
}

/* Lists the parameters to export and checks that they are finite. For GPT-2 it adds zeros for
 * missing biases. */
static int list_items(struct exporter *e)
{
    const struct pp_ckpt *ck = e->ck;
    e->items = pp_alloc(2 * (size_t)ck->n_tensors, sizeof(*e->items));
    e->sources = pp_alloc(2 * (size_t)ck->n_tensors, sizeof(*e->sources));
    if (!e->items || !e->sources)
        return pp_error_context("%s", ck->path);
    for (int i = 0; i < ck->n_tensors; i++) {
        const struct pp_st_tensor *t = ck->index[i].t;
        bool state = strncmp(t->name, "optimizer.", 10) == 0, count = t->dtype == PP_ST_I64;
        if (state || !(e->buffers || pp_ckpt_is_parameter(t)))
            continue;
        if (!(count ? e->buffers : t->dtype == PP_ST_F32 && t->n_dims > 0) ||
            t->n_dims > PP_ST_ITEM_DIMS)
            return pp_fail(PP_EFORMAT, "%s: tensor %s is not one that ppcli wrote", ck->path,
                           t->name);
        struct pp_st_item *item = add_item(e, &ck->index[i], t->name);
        if (!count)
            PP_TRY(pp_ckpt_read(ck, t->name, t->n_dims, t->dims, check_values, item->ctx));
        item->dtype = t->dtype;
        item->n_dims = t->n_dims;
        memcpy(item->dims, t->dims, (size_t)t->n_dims * sizeof(*t->dims));
        add_bias(e, t);
    }
    return 0;
}

int64_t export_dim(const struct exporter *e, const char *name, int d)
{
    int part;
    const struct pp_st_tensor *t = ckpt_find(e->ck, name, &part);
    return t && d < t->n_dims ? t->dims[d] : 0;
}

/* Prints norm_eps as a float, 1.0 instead of 1, as transformers requires. */
static void print_eps(const struct exporter *e, struct pp_json *j, const char *key)
{
    if (e->cfg->model.norm_eps < 1)
        pp_json_dbl(j, key, e->cfg->model.norm_eps);
    else
        pp_json_raw(j, key, "1.0");
}

static void print_gpt2(const struct exporter *e, struct pp_json *j)
{
    const struct pp_config *cfg = e->cfg;
    static const char *const drops[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    int chosen = cfg->model.ffn_activation;
    const char *act = chosen < 0 ? "gelu_tanh" : pp_activation_name(chosen);
    pp_json_str(j, "model_type", "gpt2");
    pp_json_int(j, "n_layer", cfg->model.n_layer);
    pp_json_int(j, "n_head", cfg->model.n_head);
    pp_json_int(j, "n_embd", export_dim(e, "transformer.wte.weight", 1));
    pp_json_int(j, "n_inner", export_dim(e, "transformer.h.0.mlp.c_fc.weight", 1));
    pp_json_int(j, "n_positions", export_dim(e, "transformer.wpe.weight", 0));
    pp_json_int(j, "vocab_size", export_dim(e, "transformer.wte.weight", 0));
    print_eps(e, j, "layer_norm_epsilon");
    pp_json_str(j, "activation_function", strcmp(act, "gelu_tanh") == 0 ? "gelu_new" : act);
    for (int i = 0; i < 3; i++)
        pp_json_dbl(j, drops[i], cfg->model.dropout);
}

static void print_scaling(const struct pp_floats *s, struct pp_json *j)
{
    static const char *const names[] = {"factor", "low_freq_factor", "high_freq_factor"};
    if (s->n == 0)
        return;
    pp_json_object(j, "rope_scaling");
    pp_json_str(j, "rope_type", s->n == 1 ? "linear" : "llama3");
    for (int i = 0; i < 3 && i < s->n; i++)
        pp_json_dbl(j, names[i], s->at[i]);
    if (s->n == 4)
        pp_json_int(j, "original_max_position_embeddings", (int64_t)s->at[3]);
    pp_json_end(j);
}

/* Returns whether the number of heads divides the width. If not, transformers refuses a Llama,
 * whatever head_dim says, but accepts a Mistral without a window, which computes the same. */
static bool heads_divide(const struct exporter *e)
{
    return e->gpt ||
           export_dim(e, "model.embed_tokens.weight", 1) % (int64_t)e->cfg->model.n_head == 0;
}

static const char *name_family(const struct exporter *e)
{
    return e->gpt                                                  ? "gpt2"
           : e->cfg->model.attention_bias == PP_ATTENTION_BIAS_QKV ? "qwen2"
           : heads_divide(e)                                       ? "llama"
                                                                   : "mistral";
}

static int check_family(const struct exporter *e)
{
    if (strcmp(name_family(e), "mistral") != 0 ||
        e->cfg->model.attention_bias == PP_ATTENTION_BIAS_OFF)
        return 0;
    return pp_fail(PP_ECONFIG,
                   "%s: transformers has no model with model.attention_bias = all whose "
                   "model.n_embd (%" PRId64 ") is not a multiple of model.n_head (%d); "
                   "--format gguf can export it",
                   e->ck->path, export_dim(e, "model.embed_tokens.weight", 1),
                   e->cfg->model.n_head);
}

static void print_llama(const struct exporter *e, struct pp_json *j)
{
    const struct pp_config *cfg = e->cfg;
    int heads = cfg->model.n_head, kv = cfg->model.n_kv_head;
    int64_t channels = export_dim(e, "model.embed_tokens.weight", 1);
    int head = cfg->model.head_dim;
    enum pp_attention_bias bias = cfg->model.attention_bias;
    bool llama = strcmp(name_family(e), "llama") == 0;
    pp_json_str(j, "model_type", name_family(e));
    pp_json_int(j, "num_hidden_layers", cfg->model.n_layer);
    pp_json_int(j, "num_attention_heads", heads);
    pp_json_int(j, "num_key_value_heads", kv > 0 ? kv : heads);
    pp_json_int(j, "head_dim", head > 0 ? head : channels / heads);
    pp_json_int(j, "hidden_size", channels);
    pp_json_int(j, "intermediate_size", export_dim(e, "model.layers.0.mlp.gate_proj.weight", 0));
    pp_json_int(j, "max_position_embeddings", cfg->model.block_size);
    pp_json_int(j, "vocab_size", export_dim(e, "model.embed_tokens.weight", 0));
    print_eps(e, j, "rms_norm_eps");
    pp_json_dbl(j, "rope_theta", cfg->model.rope_base);
    pp_json_str(j, "hidden_act", "silu");
    print_scaling(&cfg->model.rope_scaling, j);
    if (llama)
        pp_json_bool(j, "attention_bias", bias == PP_ATTENTION_BIAS_ALL);
    if (llama)
        pp_json_bool(j, "mlp_bias", false);
    else
        pp_json_str(j, "sliding_window", NULL);
}

static int write_config(const struct exporter *e, const char *path)
{
    struct pp_file_write file;
    PP_TRY(pp_file_create(path, &file));
    struct pp_json j = pp_json_begin(file.f, 2);
    pp_json_array(&j, "architectures");
    char name = *name_family(e);
    pp_json_str(&j, NULL,
                name == 'g'   ? "GPT2LMHeadModel"
                : name == 'q' ? "Qwen2ForCausalLM"
                : name == 'm' ? "MistralForCausalLM"
                              : "LlamaForCausalLM");
    pp_json_end(&j);
    if (e->gpt)
        print_gpt2(e, &j);
    else
        print_llama(e, &j);
    pp_json_bool(&j, "tie_word_embeddings", export_dim(e, "lm_head.weight", 0) == 0);
    pp_json_str(&j, "torch_dtype", "float32");
    pp_json_str(&j, "bos_token_id", NULL); /* the data define the tokens */
    pp_json_str(&j, "eos_token_id", NULL);
    pp_json_end(&j);
    return pp_file_commit(&file);
}

/* Makes the folder, or uses an empty one. A folder with files is refused, because it may be another
 * model. */
static int make_export_folder(const char *dir)
{
    PP_OWN_MEMORY char **names = NULL;
    PP_TRY(pp_dir_create(dir));
    PP_TRY(pp_dir_names(dir, &names));
    return !names[0] ? 0 : pp_fail(PP_ECONFIG, "%s is not empty: name a new folder", dir);
}

/* Writes model.safetensors, which Hugging Face's format and a script of PyTorch both need. */
static int write_tensors(struct exporter *e, const char *dir)
{
    static const struct pp_st_meta meta = {"format", "pt"};
    char path[PP_PATH_MAX];
    uint8_t digest[PP_SHA256_BYTES];
    uint64_t bytes;
    PP_TRY(pp_path_format(path, "%s/model.safetensors", dir));
    return pp_st_write(&pp_io_system, path, e->items, e->n, &meta, 1, &bytes, digest);
}

/* ---- names and scaling, beside a model that has no other config.json */

/* Writes the classes as Hugging Face's configs do. */
static void put_labels_of_classes(const struct pp_preprocessing *p, struct pp_json *j)
{
    char number[16];
    if (p->n_classes == 0)
        return;
    pp_json_object(j, "id2label");
    for (int i = 0; i < p->n_classes; i++) {
        snprintf(number, sizeof(number), "%d", i);
        pp_json_str(j, number, p->classes[i]);
    }
    pp_json_end(j);
    pp_json_object(j, "label2id");
    for (int i = 0; i < p->n_classes; i++)
        pp_json_int(j, p->classes[i], i);
    pp_json_end(j);
}

static void put_data_scaling(const char *key, const struct pp_floats *list, struct pp_json *j)
{
    if (list->n == 0)
        return;
    pp_json_array(j, key);
    for (int i = 0; i < list->n; i++)
        pp_json_dbl(j, NULL, list->at[i]);
    pp_json_end(j);
}

static int write_names_beside(const struct exporter *e, const struct pp_export *x, const char *dir)
{
    PP_OWN(pp_preprocessing_fini) struct pp_preprocessing p = {0};
    const char *text = pp_ckpt_state(e->ck)->preprocessing;
    char path[PP_PATH_MAX];
    struct pp_file_write file;
    PP_TRY(text ? pp_preprocessing_parse(e->ck->path, text, &p) : 0);
    PP_TRY(pp_path_format(path, "%s/config.json", dir));
    PP_TRY(pp_file_create(path, &file));
    struct pp_json j = pp_json_begin(file.f, 2);
    pp_json_str(&j, "model_type", e->cfg->model.type);
    pp_json_int(&j, "num_labels", x->model->classes);
    put_labels_of_classes(&p, &j);
    put_data_scaling("mean", &e->cfg->data.mean, &j);
    put_data_scaling("std", &e->cfg->data.std, &j);
    pp_json_bool(&j, "scaling_in_graph", x->format == PP_EXPORT_ONNX);
    if (text)
        pp_json_raw(&j, "preprocessing", text);
    pp_json_end(&j);
    return pp_file_commit(&file);
}

static int write_form(struct exporter *e, const struct pp_export *x, const char *dir)
{
    static const char *const names[] = {"config.json", "model.gguf", "model.onnx", "model.py"};
    char path[PP_PATH_MAX];
    PP_TRY(pp_path_format(path, "%s/%s", dir, names[x->format]));
    switch (x->format) {
    case PP_EXPORT_GGUF:
        return export_gguf(e, x, path);
    case PP_EXPORT_ONNX:
        PP_TRY(write_names_beside(e, x, dir));
        return export_onnx(e, x, path);
    case PP_EXPORT_TORCH:
        PP_TRY(write_names_beside(e, x, dir));
        PP_TRY(write_tensors(e, dir));
        return export_torch(e, x, path);
    default:
        PP_TRY(write_tensors(e, dir));
        return write_config(e, path);
    }
}

/* ---- a PyTorch program */

static int copy_values(void *ctx, uint64_t first, const float *values, size_t n)
{
    memcpy((float *)ctx + first, values, n * sizeof(*values));
    return 0;
}

static int read_tensor(void *ctx, const char *name, int n_dims, const int64_t *dims, float *values)
{
    return pp_ckpt_read(ctx, name, n_dims, dims, copy_values, values);
}

/* Writes the program that was trained with the weights of the checkpoint. */
static int export_program(const struct pp_export *x, const char *path)
{
    struct stat st;
    if (lstat(path, &st) == 0)
        return pp_fail(PP_ECONFIG, "%s exists: name a new file", path);
    PP_TRY(pp_weights_check_extras(x->model, x->ck, false));
    return pp_archive_write(x->cfg->model.from, path, read_tensor, (void *)x->ck);
}

int pp_ckpt_export(const struct pp_export *x, const char *path)
{
    static const struct {
        const char *models, *whom;
    } forms[] = {
        {"gpt llama", "Hugging Face; only gpt and llama can"},
        {"gpt llama", "llama.cpp; only gpt and llama can"},
        {"mlp sequential resnet encoder", "ONNX; only mlp, sequential, resnet and encoder can"},
        {"mlp sequential resnet encoder",
         "PyTorch; only mlp, sequential, resnet and encoder can, gpt and llama with "
         "--format hf"},
        {"graph", "PyTorch as a program; only graph can"}};
    const char *type = x->cfg->model.type;
    if (!pp_has_word(forms[x->format].models, type))
        return pp_fail(PP_ECONFIG, "%s: model.type = %s cannot be exported for %s%s", x->ck->path,
                       type, forms[x->format].whom,
                       strcmp(type, "graph") == 0 ? "; a graph can with --format pt2" : "");
    if (x->format == PP_EXPORT_PT2)
        return export_program(x, path);
    if (x->format >= PP_EXPORT_ONNX && x->cfg->model.mask_padding)
        return pp_fail(PP_ECONFIG,
                       "%s: model.mask_padding = on needs the lengths of texts, which the exported "
                       "model does not get",
                       x->ck->path);
    PP_OWN(export_fini) struct exporter e = {.ck = x->ck, .cfg = x->cfg};
    e.gpt = strcmp(type, "gpt") == 0;
    e.buffers = x->format >= PP_EXPORT_ONNX;
    int side = x->cfg->data.crop > 0 ? x->cfg->data.crop : x->cfg->data.resize;
    if (e.buffers && side > 0)
        pp_log_warn("data.%s is not part of the exported model: give it pictures of %d x %d pixels",
                    x->cfg->data.crop > 0 ? "crop" : "resize", side, side);
    PP_TRY(x->format == PP_EXPORT_HF ? check_family(&e) : 0);
    PP_TRY(list_items(&e));
    PP_TRY(make_export_folder(path));
    PP_TRY(write_form(&e, x, path));
    return pp_io_sync_dir(&pp_io_system, path);
}
