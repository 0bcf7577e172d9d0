/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.from: converts the config.json of a Hugging Face model into keys of [model]. Settings that
 * would make the model compute something that ppcli does not support are refused. A key that the
 * user has set must have the same value, except the two that only affect training.
 */
#include "impl.h"

#include <string.h>
#include <unistd.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"
#include "ppcli/nn/archive.h"

#define BYTES_MAX ((uint64_t)4 << 20)

/* A value of the file, and the key that it sets. */
struct row {
    const char *json, *key;
    /* default if the file lacks it, or one for each family; NULL: the key's default */
    const char *def;
    const char *words; /* "theirs=ours ..."; NULL: numbers and booleans */
    bool free;         /* the user may choose another value */
    const char *also;  /* another name of the value, for files without the first; or NULL */
};

/* Values that a model must have: ppcli supports only these words. */
struct must {
    const char *json, *words; /* "null false": supported values; a missing value is one of them */
};

#define GELUS                                                                                      \
    "gelu_new=gelu_tanh gelu_pytorch_tanh=gelu_tanh gelu_python_tanh=gelu_tanh "                   \
    "gelu_fast=gelu_tanh gelu_accurate=gelu_tanh gelu=gelu gelu_python=gelu relu=relu silu=silu "
#define ONOFF "true=on false=off"

static const struct row gpt2_rows[] = {
    {"n_layer", "model.n_layer", "12", NULL, false, "num_hidden_layers"},
    {"n_head", "model.n_head", "12", NULL, false, "num_attention_heads"},
    {"n_embd", "model.n_embd", "768", NULL, false, "hidden_size"},
    {"n_inner", "model.n_hidden", NULL, NULL, false, NULL},
    {"n_positions", "model.block_size", "1024", NULL, false, "max_position_embeddings"},
    {"vocab_size", "model.vocab_size", "50257", NULL, false, NULL},
    {"layer_norm_epsilon", "model.norm_eps", "1e-5", NULL, false, NULL},
    {"activation_function", "model.ffn_activation", "gelu_tanh", GELUS "swish=silu tanh=tanh",
     false, NULL},
    {"tie_word_embeddings", "model.tie_weights", "on", ONOFF, true, NULL},
    {"resid_pdrop", "model.dropout", "0.1", NULL, true, NULL},
    {"bias", "model.bias", "true", NULL, false, NULL},
    {0}};
static const struct must gpt2_musts[] = {{"scale_attn_weights", "true"},
                                         {"scale_attn_by_inverse_layer_idx", "false"},
                                         {"add_cross_attention", "false"},
                                         {"quantization_config", "null"},
                                         {0}};

static const struct row llama_rows[] = {
    {"num_hidden_layers", "model.n_layer", "32", NULL, false, NULL},
    {"num_attention_heads", "model.n_head", "32", NULL, false, NULL},
    {"num_key_value_heads", "model.n_kv_head", "0 8 32", NULL, false, NULL},
    {"hidden_size", "model.n_embd", "4096", NULL, false, NULL},
    {"intermediate_size", "model.n_hidden", "11008 14336 22016", NULL, false, NULL},
    {"max_position_embeddings", "model.block_size", "2048 131072 32768", NULL, true, NULL},
    {"vocab_size", "model.vocab_size", "32000 32000 151936", NULL, false, NULL},
    {"attention_bias", "model.attention_bias", "off off qkv", "true=all false=off", false, NULL},
    {"rms_norm_eps", "model.norm_eps", "1e-6", NULL, false, NULL},
    {"tie_word_embeddings", "model.tie_weights", "off", ONOFF, true, NULL},
    {"rope_theta", "model.rope_base", "10000", NULL, false, NULL},
    {0}};
static const struct must llama_musts[] = {
    {"hidden_act", "silu swish"},    {"mlp_bias", "false"},
    {"attention_dropout", "0 0.0"},  {"partial_rotary_factor", "1 1.0"},
    {"quantization_config", "null"}, {0}};

static const struct kind {
    const char *architecture, *bare; /* class names with a head, and without */
    const char *family;              /* value of model_type */
    const char *type;
    const struct row *rows;
    const struct must *musts;
    int number; /* index among families with the same rows */
} kinds[] = {{"GPT2LMHeadModel", "GPT2Model", "gpt2", "gpt", gpt2_rows, gpt2_musts, 0},
             {"LlamaForCausalLM", "LlamaModel", "llama", "llama", llama_rows, llama_musts, 0},
             {"MistralForCausalLM", "MistralModel", "mistral", "llama", llama_rows, llama_musts, 1},
             {"Qwen2ForCausalLM", "Qwen2Model", "qwen2", "llama", llama_rows, llama_musts, 2}};
#define KNOWN "GPT2LMHeadModel, LlamaForCausalLM, MistralForCausalLM and Qwen2ForCausalLM"
#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

struct from {
    struct pp_config *cfg;
    const struct pp_names *names;
    char file[PP_PATH_MAX];
    const json_t *root;
    const struct kind *kind;
};

#define KEY "model.from"

/* Notes a problem of the file at model.from. */
__attribute__((format(printf, 2, 3))) static void refuse(const struct from *f, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    pp_config_problem(f->cfg, KEY, KEY ": %s: %s", f->file, text);
}

/* Formats a JSON value as text for messages and keys; a string becomes its content. */
static const char *format_json_value(const json_t *v, char out[PP_JSON_SHOWN])
{
    if (!v || json_is_null(v))
        return "null";
    if (json_is_boolean(v))
        return json_is_true(v) ? "true" : "false";
    if (json_is_string(v))
        return pp_json_shown(json_string_value(v), out);
    if (json_is_integer(v))
        snprintf(out, PP_JSON_SHOWN, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        pp_config_number(json_real_value(v), out, PP_JSON_SHOWN);
    else
        return json_is_object(v) ? "an object" : "a list";
    return out;
}

/* Finds `word` among the left sides of a list "theirs=ours ..." and copies its right side to `out`;
 * returns false if it is not in the list. */
static bool translate_word(const char *words, const char *word, char *out, size_t bytes)
{
    size_t n = strlen(word);
    for (const char *p = words; *p; p += strspn(p, " ")) {
        size_t whole = strcspn(p, " ");
        if (whole > n && strncmp(p, word, n) == 0 && p[n] == '=') {
            snprintf(out, bytes, "%.*s", (int)(whole - n - 1), p + n + 1);
            return true;
        }
        p += whole;
    }
    return false;
}

/* Sets a key to the value that the file has. A key that the user has set to another value is an
 * error, unless it is `free`. */
static void take_key(const struct from *f, const char *json, const char *key, const char *value,
                     bool free)
{
    const struct pp_theirs theirs = {KEY, f->file, json, free};
    pp_config_adopt(f->cfg, key, value, &theirs, f->names);
}

/* Returns the object with the settings of rotary positions: rope_scaling, which version 4 of
 * transformers wrote, else rope_parameters. */
static const json_t *get_rope_settings(const struct from *f)
{
    const json_t *scaling = json_object_get(f->root, "rope_scaling");
    return json_object_size(scaling) > 0 ? scaling : json_object_get(f->root, "rope_parameters");
}

static void take_row(const struct from *f, const struct row *row)
{
    char text[PP_JSON_SHOWN], word[PP_JSON_SHOWN];
    const json_t *v = json_object_get(get_rope_settings(f), row->json);
    v = v ? v : json_object_get(f->root, row->json);
    v = v || !row->also ? v : json_object_get(f->root, row->also);
    const char *value = format_json_value(v, text), *def = row->def;
    for (int i = 0; def && i < f->kind->number && strchr(def, ' '); i++)
        def = strchr(def, ' ') + 1;
    if (!v || json_is_null(v)) {
        snprintf(word, sizeof(word), "%.*s", (int)strcspn(def ? def : "", " "), def ? def : "");
        if (def)
            take_key(f, row->json, row->key, word, row->free);
    } else if (!row->words) {
        take_key(f, row->json, row->key, value, row->free);
    } else if (translate_word(row->words, value, word, sizeof(word))) {
        take_key(f, row->json, row->key, word, row->free);
    } else {
        refuse(f, "%s = %s is not computed here", row->json, value);
    }
}

/* Sets model.rope_scaling, how the angles of rotary positions are scaled. */
static void take_scaling(const struct from *f)
{
    static const char *const names[] = {"factor", "low_freq_factor", "high_freq_factor",
                                        "original_max_position_embeddings"};
    char text[PP_JSON_SHOWN], all[4 * PP_JSON_SHOWN] = "";
    const json_t *type = json_object_get(get_rope_settings(f), "rope_type");
    type =
        type ? type : json_object_get(get_rope_settings(f), "type"); /* its name in older files */
    const char *word = type ? format_json_value(type, text) : "default";
    int n = strcmp(word, "linear") == 0 ? 1 : strcmp(word, "llama3") == 0 ? 4 : 0;
    if (n == 0 && strcmp(word, "default") != 0)
        refuse(f, "rope_type = %s is not computed here, only default, linear and llama3", word);
    for (int i = 0; i < n; i++) {
        char number[PP_JSON_SHOWN];
        const json_t *v = json_object_get(get_rope_settings(f), names[i]);
        if (!json_is_number(v)) {
            refuse(f, "rope_type = %s needs a number %s", word, names[i]);
            return;
        }
        pp_text_add(all, sizeof(all), "%s%s", i > 0 ? " " : "", format_json_value(v, number));
    }
    if (n > 0)
        take_key(f, "rope_scaling", "model.rope_scaling", all, false);
}

/* Refuses a sliding window, unless it has no effect because the context fits into it. */
static void check_window(const struct from *f)
{
    char text[PP_JSON_SHOWN];
    const json_t *v = json_object_get(f->root, "sliding_window"),
                 *layers = json_object_get(f->root, "max_window_layers");
    bool qwen = strcmp(f->kind->family, "qwen2") == 0;
    bool uses = qwen ? json_is_true(json_object_get(f->root, "use_sliding_window"))
                     : strcmp(f->kind->family, "mistral") == 0;
    int context = f->cfg->model.block_size;
    long long window = v ? json_integer_value(v) : 4096; /* null: none */
    const json_t *each, *types = json_object_get(f->root, "layer_types");
    size_t i;
    /* it has precedence over use_sliding_window and max_window_layers */
    if (qwen && json_is_array(types)) {
        uses = false;
        json_array_foreach(types, i, each) uses |=
            strcmp(format_json_value(each, text), "full_attention") != 0;
    } else if (qwen && f->cfg->model.n_layer <= (layers ? json_integer_value(layers) : 28)) {
        return; /* layers below it have no window */
    }
    if (uses && window <= 0 && json_is_array(types)) {
        refuse(f, "layer_types has layers that are not full_attention, without a sliding_window");
    } else if (uses && window > 0 && window < context) {
        refuse(f,
               "sliding_window = %lld is less than the context of %d positions, but attention here "
               "covers all of them; use model.block_size = %lld or less",
               window, context, window);
    }
}

/* Handles the settings that depend on several values. In a gpt the dropouts must be equal. In other
 * models it sets the width of heads and the scaling of positions, and checks the sliding window. */
static void check_together(const struct from *f)
{
    char text[PP_JSON_SHOWN];
    static const char *const drops[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    const json_t *head = json_object_get(f->root, "head_dim");
    bool gpt = strcmp(f->cfg->model.type, "gpt") == 0;
    for (int i = 1; i < 3 && gpt; i++) {
        const json_t *a = json_object_get(f->root, drops[0]),
                     *b = json_object_get(f->root, drops[i]);
        double of_a = a ? json_number_value(a) : 0.1, of_b = b ? json_number_value(b) : 0.1;
        const char *key = "model.dropout";
        if (of_a < of_b || of_a > of_b) {
            if (!pp_config_was_set(f->cfg, key))
                refuse(f, "%s and %s differ; set model.dropout, which applies to all", drops[0],
                       drops[i]);
            break;
        }
    }
    if (gpt)
        return;
    /* do not set what the key's rule gives anyway: older runs have no such key */
    if (json_is_integer(head) &&
        json_integer_value(head) * f->cfg->model.n_head != f->cfg->model.n_embd)
        take_key(f, "head_dim", "model.head_dim", format_json_value(head, text), false);
    take_scaling(f);
    check_window(f);
}

static void take_all_keys(const struct from *f)
{
    const struct kind *kind = f->kind;
    char text[PP_JSON_SHOWN];
    take_key(f, "architectures", "model.type", kind->type, false);
    for (const struct must *m = kind->musts; m->json; m++) {
        const json_t *v = json_object_get(f->root, m->json);
        if (v && !pp_has_word(m->words, format_json_value(v, text)))
            refuse(f, "%s = %s is not computed here, only %s", m->json, format_json_value(v, text),
                   m->words);
    }
    for (const struct row *row = kind->rows; row->json; row++)
        take_row(f, row);
    check_together(f);
}

static void read_config_json(struct from *f)
{
    static const struct pp_json_limits limits = {16, 1 << 18, 1 << 18};
    char shown[PP_JSON_SHOWN];
    PP_OWN_MEMORY char *text = NULL;
    size_t bytes = 0;
    json_auto_t *root = NULL;
    int rc = pp_path_format(f->file, "%s/config.json", f->cfg->model.from);
    rc = rc < 0 ? rc : pp_file_read(f->file, BYTES_MAX, &text, &bytes);
    rc = rc < 0 ? rc : pp_json_read(f->file, text, bytes, &limits, &root);
    if (rc < 0) {
        char other[PP_PATH_MAX + 512];
        bool known = rc == PP_ENOINPUT && pp_hf_folder_is(f->cfg->model.from, other, sizeof(other));
        pp_config_problem(f->cfg, KEY, KEY ": %s%s%s",
                          known ? f->cfg->model.from : pp_error_get()->text, known ? ": " : "",
                          known ? other : "");
        return;
    }
    f->root = root;
    const json_t *name = json_array_get(json_object_get(root, "architectures"), 0),
                 *family = json_object_get(root, "model_type");
    const char *word = format_json_value(name ? name : family, shown);
    for (int i = 0; i < KINDS; i++)
        if (strcmp(word, name ? kinds[i].architecture : kinds[i].family) == 0 ||
            (name && strcmp(word, kinds[i].bare) == 0))
            f->kind = &kinds[i];
    if (f->kind)
        take_all_keys(f);
    else
        refuse(f, "its %s is %s; known are " KNOWN, name ? "architecture" : "model_type", word);
}

/* Sets data.tokenizer to the tokenizer of the model's folder, unless the config names another. */
static void take_tokenizer(const struct from *f)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json"};
    char path[PP_PATH_MAX];
    for (int i = 0; i < 2; i++) {
        if (pp_path_format(path, "%s/%s", f->cfg->model.from, names[i]) == 0 &&
            access(path, R_OK) == 0) {
            take_key(f, names[i], "data.tokenizer", f->cfg->model.from, true);
            return;
        }
    }
}

/* Takes the keys that a PyTorch archive defines; returns false if model.from names none. */
static bool take_archive(struct from *f)
{
    char text[32];
    int positions;
    if (!pp_archive_is(f->cfg->model.from))
        return false;
    snprintf(f->file, sizeof(f->file), "%s", f->cfg->model.from);
    if (pp_archive_positions(f->file, &positions) < 0) {
        pp_config_problem(f->cfg, KEY, KEY ": %s", pp_error_get()->text);
        return true;
    }
    take_key(f, "its kind", "model.type", "graph", false);
    snprintf(text, sizeof(text), "%d", positions);
    if (positions > 0)
        take_key(f, "the tokens of a sample", "model.block_size", text, false);
    return true;
}

void pp_hf_config(struct pp_config *cfg, const struct pp_names *names)
{
    struct from f = {.cfg = cfg, .names = names};
    if (take_archive(&f)) {
        pp_error_clear();
        return;
    }
    read_config_json(&f);
    take_tokenizer(&f);
    pp_error_clear();
}
