/* SPDX-License-Identifier: Apache-2.0 */
/* model.from: config.json of Hugging Face's models as keys. */
#include "ppcli/ckpt/checkpoint.h"
#include "test_conf.h"

#define GPT2                                                                                       \
    "\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":2,\"n_head\":4,\"n_embd\":32,"            \
    "\"n_positions\":16,\"vocab_size\":65,\"n_inner\":null,\"layer_norm_epsilon\":1e-05,"          \
    "\"activation_function\":\"gelu_new\",\"resid_pdrop\":0.2,\"embd_pdrop\":0.2,"                 \
    "\"attn_pdrop\":0.2,\"task_specific_params\":{\"text-generation\":{\"max_length\":50}}"
#define MISTRAL                                                                                    \
    "\"model_type\":\"mistral\",\"hidden_size\":48,\"num_attention_heads\":6,"                     \
    "\"num_hidden_layers\":3,\"max_position_embeddings\":64"
#define QWEN                                                                                       \
    "\"architectures\":[\"Qwen2ForCausalLM\"],\"hidden_size\":48,\"num_attention_heads\":6,"       \
    "\"num_hidden_layers\":3,\"max_position_embeddings\":64"
#define LLAMA                                                                                      \
    "\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":48,\"intermediate_size\":100,"       \
    "\"num_hidden_layers\":3,\"num_attention_heads\":6,\"num_key_value_heads\":2,"                 \
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-06,\"vocab_size\":99,"                     \
    "\"hidden_act\":\"silu\""

static struct pp_config *load(const char *json, const char *ini)
{
    static const char *const models[] = {"mlp", "gpt", "llama", NULL};
    struct pp_names names = test_names;
    struct pp_config *cfg = NULL;
    char text[512];
    names.models = models;
    names.from = pp_hf_config;
    put_text("config.json", json);
    snprintf(text, sizeof(text), "[model]\nfrom = .\n%s", ini);
    put_text("t.ini", text);
    pp_config_load("t.ini", NULL, 0, &names, &cfg);
    unlink("config.json");
    assert_non_null(cfg);
    return cfg;
}

static struct pp_config *loads(const char *json, const char *ini)
{
    struct pp_config *cfg = load(json, ini);
    show_problems(cfg);
    CHECK_INT_EQ(pp_config_problem_count(cfg), 0);
    return cfg;
}

/* One problem, and these words are in it. */
static void stops(const char *words, const char *json, const char *ini)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = load(json, ini);
    CHECK_INT_EQ(pp_config_problem_count(cfg), 1);
    if (!strstr(pp_config_problem_text(cfg, 0), words)) {
        show_problems(cfg);
        fail_msg("no problem says '%s'", words);
    }
}

TEST(gpt2_becomes_keys)
{
    struct pp_config *cfg = loads("{" GPT2 "}", "");
    CHECK_STR_EQ(cfg->model.type, "gpt");
    CHECK_INT_EQ(cfg->model.n_layer, 2);
    CHECK_INT_EQ(cfg->model.n_head, 4);
    CHECK_INT_EQ(cfg->model.n_embd, 32);
    CHECK_INT_EQ(cfg->model.n_hidden, 0);
    CHECK_INT_EQ(cfg->model.block_size, 16);
    CHECK_INT_EQ(cfg->model.vocab_size, 65);
    CHECK_STR_EQ(value_of(cfg, "model.ffn_activation"), "gelu_tanh");
    CHECK_INT_EQ(cfg->model.tie_weights, PP_CHOICE_ON);
    CHECK_STR_EQ(value_of(cfg, "model.norm_eps"), "1e-5");
    CHECK_STR_EQ(value_of(cfg, "model.dropout"), "0.2");
    CHECK_STR_EQ(value_of(cfg, "model.from"), "");
    assert_non_null(strstr(pp_config_origin(cfg, "model.n_layer"), "/config.json"));
    pp_config_destroy(&cfg);
    cfg = loads("{" GPT2 ",\"tie_word_embeddings\":false}", "");
    CHECK_INT_EQ(cfg->model.tie_weights, PP_CHOICE_OFF);
    pp_config_destroy(&cfg);
    /* other names of theirs for the same; what is the same but for the way it is computed */
    cfg = loads("{\"architectures\":[\"GPT2LMHeadModel\"],\"num_attention_heads\":8,"
                "\"hidden_size\":48,\"num_hidden_layers\":5,\"max_position_embeddings\":40,"
                "\"activation_function\":\"gelu_fast\"}",
                "");
    CHECK_INT_EQ(cfg->model.n_head, 8);
    CHECK_INT_EQ(cfg->model.n_embd, 48);
    CHECK_INT_EQ(cfg->model.n_layer, 5);
    CHECK_INT_EQ(cfg->model.block_size, 40);
    CHECK_STR_EQ(value_of(cfg, "model.ffn_activation"), "gelu_tanh");
    pp_config_destroy(&cfg);
    /* what a file leaves out has their defaults, not ours */
    cfg = loads("{\"architectures\":[\"GPT2LMHeadModel\"]}", "");
    CHECK_INT_EQ(cfg->model.vocab_size, 50257);
    CHECK_STR_EQ(value_of(cfg, "model.dropout"), "0.1");
    pp_config_destroy(&cfg);
}

TEST(llama_becomes_keys)
{
    struct pp_config *cfg = loads("{" LLAMA ",\"rope_theta\":500000.0}", "");
    CHECK_STR_EQ(cfg->model.type, "llama");
    CHECK_INT_EQ(cfg->model.n_layer, 3);
    CHECK_INT_EQ(cfg->model.n_kv_head, 2);
    CHECK_INT_EQ(cfg->model.n_hidden, 100);
    CHECK_INT_EQ(cfg->model.tie_weights, PP_CHOICE_OFF);
    CHECK_STR_EQ(value_of(cfg, "model.norm_eps"), "1e-6");
    assert_true(cfg->model.rope_base == 500000);
    pp_config_destroy(&cfg);
    cfg = loads("{" LLAMA ",\"rope_parameters\":{\"rope_theta\":700.5,\"rope_type\":\"default\"},"
                "\"head_dim\":8,\"rope_scaling\":null,\"tie_word_embeddings\":true}",
                "");
    assert_true(cfg->model.rope_base == 700.5);
    CHECK_INT_EQ(cfg->model.tie_weights, PP_CHOICE_ON);
    pp_config_destroy(&cfg);
    /* of two bases they take the one of rope_parameters, or rope_scaling */
    cfg = loads("{" LLAMA ",\"rope_parameters\":{\"rope_theta\":700.5},\"rope_theta\":77.0}", "");
    assert_true(cfg->model.rope_base == 700.5);
    pp_config_destroy(&cfg);
    cfg = loads("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"default\",\"rope_theta\":9.5},"
                "\"rope_parameters\":{\"rope_theta\":700.5}}",
                "");
    assert_true(cfg->model.rope_base == 9.5);
    pp_config_destroy(&cfg);
}

TEST(relatives_of_llama_become_keys)
{
    struct pp_config *cfg = loads("{" LLAMA ",\"attention_bias\":true,\"head_dim\":16,"
                                  "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
                                  "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                                  "\"original_max_position_embeddings\":32}}",
                                  "");
    CHECK_STR_EQ(value_of(cfg, "model.rope_scaling"), "8 1 4 32");
    CHECK_STR_EQ(value_of(cfg, "model.attention_bias"), "all");
    CHECK_INT_EQ(cfg->model.head_dim, 16);
    pp_config_destroy(&cfg);
    cfg = loads("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2.5}}", "");
    CHECK_STR_EQ(value_of(cfg, "model.rope_scaling"), "2.5");
    pp_config_destroy(&cfg);
    /* their own defaults; a window that no context fills */
    cfg = loads("{" MISTRAL "}", "");
    CHECK_STR_EQ(cfg->model.type, "llama");
    CHECK_INT_EQ(cfg->model.n_kv_head, 8);
    CHECK_INT_EQ(cfg->model.n_hidden, 14336);
    pp_config_destroy(&cfg);
    cfg =
        loads("{" MISTRAL ",\"sliding_window\":16,\"num_key_value_heads\":2}", "block_size = 16\n");
    CHECK_INT_EQ(cfg->model.block_size, 16);
    pp_config_destroy(&cfg);
    cfg = loads("{" QWEN ",\"sliding_window\":16,\"use_sliding_window\":false}", "");
    CHECK_STR_EQ(value_of(cfg, "model.attention_bias"), "qkv");
    CHECK_INT_EQ(cfg->model.vocab_size, 151936);
    pp_config_destroy(&cfg);
    cfg =
        loads("{" QWEN ",\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":0,"
              "\"layer_types\":[\"full_attention\",\"full_attention\"]}",
              "");
    pp_config_destroy(&cfg);
    cfg = loads("{\"architectures\":[\"GPT2Model\"]}", "");
    CHECK_STR_EQ(cfg->model.type, "gpt");
    pp_config_destroy(&cfg);
}

TEST(what_is_computed_differently_is_refused)
{
    stops("its architecture is BertModel; known are GPT2LMHeadModel, LlamaForCausalLM, "
          "MistralForCausalLM and Qwen2ForCausalLM",
          "{\"architectures\":[\"BertModel\"]}", "");
    /* one problem: nothing is known of the other keys */
    stops("its architecture is BertModel", "{\"architectures\":[\"BertModel\"]}",
          "block_size = 16\ntie_weights = on\nn_layer = 3\nsizes = 4 2\n");
    stops("its model_type is null; known are GPT2LMHeadModel", "{}", "");
    stops("its model_type is bert", "{\"model_type\":\"bert\"}", "");
    stops("rope_type = llama3 needs a number low_freq_factor",
          "{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", "");
    stops("rope_type = linear needs a number factor",
          "{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":null}}", "");
    stops("rope_type = yarn", "{" LLAMA ",\"rope_parameters\":{\"type\":\"yarn\"}}", "");
    stops("rope_type = yarn", "{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\"}}", "");
    stops("mlp_bias = true is not computed here", "{" LLAMA ",\"mlp_bias\":true}", "");
    stops("sliding_window = 16 is less than the context of 64 positions",
          "{" MISTRAL ",\"sliding_window\":16}", "");
    stops("use model.block_size = 32 or less",
          "{" QWEN ",\"use_sliding_window\":true,\"sliding_window\":32,\"max_window_layers\":1}",
          "");
    stops("use model.block_size = 32 or less",
          "{" QWEN ",\"use_sliding_window\":true,\"sliding_window\":32,\"layer_types\":["
          "\"full_attention\",\"sliding_attention\",\"full_attention\"]}",
          "");
    stops("layer_types has layers that are not full_attention, without a sliding_window",
          "{" QWEN ",\"sliding_window\":null,\"layer_types\":[\"linear_attention\"]}", "");
    stops("scale_attn_by_inverse_layer_idx = true",
          "{" GPT2 ",\"scale_attn_by_inverse_layer_idx\":true}", "");
    stops("activation_function = quick_gelu is not computed here",
          "{\"architectures\":[\"GPT2LMHeadModel\"],\"activation_function\":\"quick_gelu\"}", "");
    stops("resid_pdrop and attn_pdrop differ; set model.dropout",
          "{\"architectures\":[\"GPT2LMHeadModel\"],\"attn_pdrop\":0}", "");
    stops("n_layer: ", "{\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":-1}", "");
    stops("config.json: its JSON is damaged", "{\"architectures\"", "");
    PP_OWN(pp_config_destroy) struct pp_config *cfg = NULL;
    static const struct pp_names names = {.from = pp_hf_config};
    put_text("t.ini", "[model]\nfrom = nowhere\n");
    CHECK_INT_EQ(pp_config_load("t.ini", NULL, 0, &names, &cfg), PP_ECONFIG);
    assert_non_null(
        strstr(pp_config_problem_text(cfg, 0), "t.ini:2: error: model.from: cannot read "));
}

TEST(keys_beside_it_must_agree)
{
    struct pp_config *cfg = loads("{" GPT2 "}", "n_layer = 2\nn_embd = 32\n");
    CHECK_STR_EQ(pp_config_origin(cfg, "model.n_layer"), "t.ini:3");
    pp_config_destroy(&cfg);
    stops("t.ini:3: error: model.n_layer", "{" GPT2 "}", "n_layer = 3\n");
    stops("/config.json of model.from has n_layer = 2", "{" GPT2 "}", "n_layer = 3\n");
    stops("model.type is llama", "{" GPT2 "}", "type = llama\nn_kv_head = 0\n");
    /* how to train is the user's choice */
    cfg = loads("{" GPT2 "}", "dropout = 0\n");
    assert_true(cfg->model.dropout == 0);
    pp_config_destroy(&cfg);
    cfg = loads("{" LLAMA "}", "block_size = 32\n");
    CHECK_INT_EQ(cfg->model.block_size, 32);
    pp_config_destroy(&cfg);
}

/* A run's own config has all that it says, and needs the folder no more. */
TEST(what_it_says_is_written_out)
{
    PP_OWN(pp_config_destroy) struct pp_config *cfg = loads("{" LLAMA "}", ""), *again = NULL;
    static const char *const models[] = {"mlp", "gpt", "llama", NULL};
    struct pp_names names = test_names;
    char hash[65], hash_again[65];
    names.models = models;
    FILE *f = fopen("t.ini", "w");
    assert_non_null(f);
    CHECK_OK(pp_config_write(cfg, f));
    fclose(f);
    CHECK_OK(pp_config_load("t.ini", NULL, 0, &names, &again));
    pp_config_hash(cfg, hash);
    pp_config_hash(again, hash_again);
    CHECK_STR_EQ(hash, hash_again);
    CHECK_INT_EQ(again->model.n_hidden, 100);
}
