/* SPDX-License-Identifier: Apache-2.0 */
/* Transformers as descriptions: the names, shapes and sizes of Hugging Face and PyTorch, and what is
 * refused. */
#include "nn_models.h"

static struct pp_config *transformer(const char *type, int n_layer, int n_head, int n_embd)
{
    struct pp_config *cfg = pp_alloc(1, sizeof(*cfg));
    snprintf(cfg->model.type, sizeof(cfg->model.type), "%s", type);
    cfg->model.n_layer = n_layer;
    cfg->model.n_head = n_head;
    cfg->model.n_embd = n_embd;
    cfg->model.block_size = 1024;
    cfg->model.ffn_activation = -1;
    cfg->model.bias = true;
    cfg->model.batch_first = true;
    cfg->model.norm_eps = 1e-5;
    cfg->model.rope_base = 10000;
    return cfg;
}

static struct pp_model *made(struct pp_config *cfg, int vocabulary)
{
    struct pp_model *m = NULL;
    CHECK_OK(pp_model_create(cfg, &(struct pp_data_input){.vocabulary = vocabulary}, &m));
    pp_free(cfg);
    return m;
}

/* A copy is no parameter of its own. */
static size_t owned(const struct pp_model *m)
{
    size_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += m->params[i].tied_to > 0 ? 0 : pp_param_floats(&m->params[i]);
    return n;
}

static void check_param(const struct pp_model *m, const char *name, int n_dims, int rows, int in)
{
    int i = 0;
    while (i < m->n_params && strcmp(m->params[i].name, name) != 0)
        i++;
    if (i == m->n_params)
        fail_msg("no parameter %s", name);
    CHECK_INT_EQ(m->params[i].n_dims, n_dims);
    CHECK_INT_EQ(m->params[i].dims[0], rows);
    if (n_dims > 1)
        CHECK_INT_EQ(m->params[i].dims[1], in);
}

TEST(gpt_has_the_sizes_of_gpt2)
{
    const struct {
        int layers, heads, channels;
        size_t params;
    } sizes[] = {{12, 12, 768, 124439808}, {24, 16, 1024, 354823168}, {48, 25, 1600, 1557611200}};
    for (int i = 0; i < COUNT(sizes); i++) {
        struct pp_model *m =
            made(transformer("gpt", sizes[i].layers, sizes[i].heads, sizes[i].channels), 50257);
        int C = sizes[i].channels;
        CHECK_INT_EQ(owned(m), sizes[i].params);
        CHECK_INT_EQ(m->n_layers, sizes[i].layers + 2);
        CHECK_INT_EQ(m->classes, 50257);
        CHECK_INT_EQ(m->n_tied, 50257 * (size_t)C);
        CHECK_INT_EQ(m->params[m->n_params - 1].tied_to, 1);
        check_param(m, "transformer.wte.weight", 2, 50257, C);
        check_param(m, "transformer.wpe.weight", 2, 1024, C);
        check_param(m, "transformer.h.11.attn.c_attn.weight", 2, 3 * C, C);
        check_param(m, "transformer.h.11.mlp.c_proj.bias", 1, C, 0);
        check_param(m, "transformer.ln_f.weight", 1, C, 0);
        pp_model_destroy(&m);
    }
    struct pp_config *cfg = transformer("gpt", 2, 2, 8);
    cfg->model.tie_weights = PP_CHOICE_OFF;
    cfg->model.bias = false;
    struct pp_model *m = made(cfg, 11);
    CHECK_INT_EQ(m->n_tied, 0);
    CHECK_INT_EQ(owned(m), 2 * 11 * 8 + 1024 * 8 + 2 * (12 * 64 + 16) + 8);
    check_param(m, "lm_head.weight", 2, 11, 8);
    pp_model_destroy(&m);
}

TEST(llama_has_the_sizes_of_tinyllama)
{
    struct pp_config *cfg = transformer("llama", 22, 32, 2048);
    cfg->model.n_kv_head = 4;
    cfg->model.n_hidden = 5632;
    PP_OWN(pp_model_destroy) struct pp_model *m = made(cfg, 32000);
    CHECK_INT_EQ(owned(m), 1100048384);
    check_param(m, "model.embed_tokens.weight", 2, 32000, 2048);
    check_param(m, "model.layers.21.self_attn.q_proj.weight", 2, 2048, 2048);
    check_param(m, "model.layers.21.self_attn.v_proj.weight", 2, 256, 2048);
    check_param(m, "model.layers.0.mlp.up_proj.weight", 2, 5632, 2048);
    check_param(m, "model.layers.0.post_attention_layernorm.weight", 1, 2048, 0);
    check_param(m, "model.norm.weight", 1, 2048, 0);
    check_param(m, "lm_head.weight", 2, 32000, 2048);
}

TEST(the_decoder_is_the_one_of_the_tutorial)
{
    struct pp_config *cfg = transformer("decoder", 8, 8, 512);
    cfg->model.block_size = 500;
    PP_OWN(pp_model_destroy) struct pp_model *m = made(cfg, 10000);
    CHECK_INT_EQ(owned(m), 43883280);
    CHECK_INT_EQ(m->n_layers, 11);
    check_param(m, "tok_embeddings.weight", 2, 10000, 512);
    check_param(m, "layers.0.self_attn.in_proj_weight", 2, 1536, 512);
    check_param(m, "layers.7.multihead_attn.in_proj_bias", 1, 1536, 0);
    check_param(m, "layers.7.multihead_attn.out_proj.weight", 2, 512, 512);
    check_param(m, "layers.7.linear1.weight", 2, 2048, 512);
    check_param(m, "norm.bias", 1, 512, 0);
    check_param(m, "output.bias", 1, 10000, 0);
    assert_false(pp_model_mixes_samples(m));
}

TEST(an_encoder_gives_a_number_for_each_class)
{
    struct pp_config *cfg = transformer("encoder", 2, 4, 16);
    cfg->model.classes = 3;
    cfg->model.pooling = PP_POOLING_FIRST;
    PP_OWN(pp_model_destroy) struct pp_model *m = made(cfg, 20);
    CHECK_INT_EQ(m->classes, 3);
    CHECK_INT_EQ(m->values[m->n_values - 1].n, 1);
    check_param(m, "pos_embeddings.weight", 2, 1024, 16);
    check_param(m, "layers.1.norm2.weight", 1, 16, 0);
}

TEST(what_does_not_fit_is_refused)
{
    struct pp_model *m = NULL;
    PP_OWN_MEMORY struct pp_config *cfg = transformer("gpt", 2, 3, 16);
    const struct pp_data_input text = {.vocabulary = 20};
    CHECK_FAILS(pp_model_create(cfg, &text, &m), PP_ECONFIG, "model.n_embd");
    cfg->model.n_head = 4;
    CHECK_FAILS(pp_model_create(cfg, NULL, &m), PP_ECONFIG, "model.vocab_size");
    cfg->model.n_kv_head = 3;
    snprintf(cfg->model.type, sizeof(cfg->model.type), "llama");
    CHECK_FAILS(pp_model_create(cfg, &text, &m), PP_ECONFIG,
                "3 heads of keys and values do not divide 4 heads");
    snprintf(cfg->model.type, sizeof(cfg->model.type), "encoder");
    cfg->model.n_kv_head = 0;
    CHECK_FAILS(pp_model_create(cfg, &text, &m), PP_ECONFIG, "has no classes");
}
