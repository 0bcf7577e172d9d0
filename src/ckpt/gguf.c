/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF, version 3, the format of llama.cpp: keys with values, a list of tensors, their data.
 * Dimensions are written innermost first; matrices are [out][in] as in torch.nn.Linear.
 */
#include <string.h>

#include "gguf.h"
#include "safetensors.h"
#include "ppcli/conf/config.h"
#include "ppcli/base/base.h"

#define ALIGN 32
#define PIECE ((size_t)1 << 16) /* floats converted at a time */

/* ---- the model */

static void put_gpt(struct gguf *g)
{
    const struct exporter *e = g->e;
    gguf_u32(g, "context_length", export_dim(e, "transformer.wpe.weight", 0));
    gguf_u32(g, "embedding_length", export_dim(e, "transformer.wte.weight", 1));
    gguf_u32(g, "feed_forward_length", export_dim(e, "transformer.h.0.mlp.c_fc.weight", 1));
    gguf_u32(g, "attention.head_count", e->cfg->model.n_head);
    gguf_f32(g, "attention.layer_norm_epsilon", e->cfg->model.norm_eps);
}

static int head_width(const struct exporter *e)
{
    int own = e->cfg->model.head_dim;
    return own > 0 ? own
                   : (int)export_dim(e, "model.embed_tokens.weight", 1) / e->cfg->model.n_head;
}

static void put_llama(struct gguf *g)
{
    const struct exporter *e = g->e;
    const struct pp_config *cfg = e->cfg;
    int kv = cfg->model.n_kv_head, heads = cfg->model.n_head, width = head_width(e);
    gguf_u32(g, "context_length", cfg->model.block_size);
    gguf_u32(g, "embedding_length", export_dim(e, "model.embed_tokens.weight", 1));
    gguf_u32(g, "feed_forward_length", export_dim(e, "model.layers.0.mlp.gate_proj.weight", 0));
    gguf_u32(g, "attention.head_count", heads);
    gguf_u32(g, "attention.head_count_kv", kv > 0 ? kv : heads);
    gguf_u32(g, "attention.key_length", width);
    gguf_u32(g, "attention.value_length", width);
    gguf_u32(g, "rope.dimension_count", width);
    gguf_f32(g, "attention.layer_norm_rms_epsilon", cfg->model.norm_eps);
    gguf_f32(g, "rope.freq_base", cfg->model.rope_base);
    if (cfg->model.rope_scaling.n == 1) {
        gguf_text(g, "rope.scaling.type", "linear");
        gguf_f32(g, "rope.scaling.factor", cfg->model.rope_scaling.at[0]);
    }
}

static int put_model(struct gguf *g)
{
    const struct pp_config *cfg = g->e->cfg;
    enum pp_st_dtype dtype = g->x->dtype;
    gguf_text(g, "general.architecture", g->arch);
    gguf_text(g, "general.name", pp_config_name(cfg));
    gguf_u32(g, "general.alignment", ALIGN);
    gguf_u32(g, "general.file_type", dtype == PP_ST_F32 ? 0 : dtype == PP_ST_F16 ? 1 : 32);
    gguf_u32(g, "block_count", cfg->model.n_layer);
    if (g->e->gpt)
        put_gpt(g);
    else
        put_llama(g);
    const char *table = g->e->gpt ? "transformer.wte.weight" : "model.embed_tokens.weight";
    return gguf_tokenizer(g, (int)export_dim(g->e, table, 0));
}

/* ---- tensors */

/* Translates the name of a tensor from Hugging Face's to llama.cpp's. */
static void name_tensor(const char *name, char out[96])
{
    static const char *const names[][2] = {
        {"wte.", "token_embd."},          {"wpe.", "position_embd."},
        {"embed_tokens.", "token_embd."}, {"ln_f.", "output_norm."},
        {"norm.", "output_norm."},        {"lm_head.", "output."},
        {"ln_1.", "attn_norm."},          {"input_layernorm.", "attn_norm."},
        {"attn.c_attn.", "attn_qkv."},    {"attn.c_proj.", "attn_output."},
        {"self_attn.q_proj.", "attn_q."}, {"self_attn.k_proj.", "attn_k."},
        {"self_attn.v_proj.", "attn_v."}, {"self_attn.o_proj.", "attn_output."},
        {"ln_2.", "ffn_norm."},           {"post_attention_layernorm.", "ffn_norm."},
        {"mlp.c_fc.", "ffn_up."},         {"mlp.c_proj.", "ffn_down."},
        {"mlp.gate_proj.", "ffn_gate."},  {"mlp.up_proj.", "ffn_up."},
        {"mlp.down_proj.", "ffn_down."}};
    const char *rest = ckpt_short_name(name) ? ckpt_short_name(name) : name;
    int block = 0, end = 0;
    bool inside = sscanf(rest, "h.%d.%n", &block, &end) == 1 && end > 0;
    inside = inside || (sscanf(rest, "layers.%d.%n", &block, &end) == 1 && end > 0);
    rest += inside ? end : 0;
    snprintf(out, 96, "%s", rest);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t n = strlen(names[i][0]);
        if (strncmp(rest, names[i][0], n) != 0)
            continue;
        if (inside)
            snprintf(out, 96, "blk.%d.%s%s", block, names[i][1], rest + n);
        else
            snprintf(out, 96, "%s%s", names[i][1], rest + n);
        return;
    }
}

/* Returns whether the tensor must be transposed, because GPT-2 stores it as [in][out]. */
static bool is_transposed(const struct gguf *g, const struct pp_st_item *t)
{
    return g->e->gpt && t->n_dims == 2 && strstr(t->name, ".c_");
}

/* Returns the number of heads if the tensor has queries or keys whose rows must be reordered, else
 * 0. The two rows that rotate together are adjacent in llama.cpp's llama, and half a head apart
 * here. */
static int paired_heads(const struct gguf *g, const struct pp_st_item *t)
{
    const struct pp_config *cfg = g->e->cfg;
    int heads = cfg->model.n_head, kv = cfg->model.n_kv_head;
    if (strcmp(g->arch, "llama") != 0)
        return 0;
    return strstr(t->name, ".q_proj.")   ? heads
           : strstr(t->name, ".k_proj.") ? kv > 0 ? kv : heads
                                         : 0;
}

static enum pp_st_dtype choose_type(const struct gguf *g, const struct pp_st_item *t)
{
    return t->n_dims > 1 ? g->x->dtype : PP_ST_F32;
}

static void list_tensor(struct gguf *g, const char *name, int n_dims, const int64_t *dims,
                        bool turn, enum pp_st_dtype type)
{
    uint64_t bytes = (uint64_t)pp_st_dtype_bits(type) / 8;
    gguf_string(&g->list, name, strlen(name));
    pp_bytes_little(&g->list, (uint64_t)n_dims, 4);
    for (int d = n_dims - 1; d >= 0; d--) {
        int64_t size = dims[turn ? n_dims - 1 - d : d];
        pp_bytes_little(&g->list, (uint64_t)size, 8);
        bytes *= (uint64_t)size;
    }
    pp_bytes_little(&g->list, type == PP_ST_F32 ? 0 : type == PP_ST_F16 ? 1 : 30, 4);
    pp_bytes_little(&g->list, g->at, 8);
    g->at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    g->n_tensors++;
}

static int write_values(struct gguf *g, const char *name, enum pp_st_dtype type,
                        const float *values, size_t n)
{
    uint16_t half[512];
    if (type == PP_ST_F32)
        return pp_io_write(&g->file, values, n * sizeof(*values));
    for (size_t at = 0, m; at < n; at += m) {
        m = n - at < 512 ? n - at : 512;
        for (size_t i = 0; i < m; i++) {
            half[i] =
                type == PP_ST_F16 ? pp_f16_round(values[at + i]) : pp_bf16_round(values[at + i]);
            if ((half[i] & 0x7fff) == (type == PP_ST_F16 ? 0x7c00 : 0x7f80))
                return pp_fail(PP_ECONFIG, "%s: tensor %s has %g, too large for --dtype %s",
                               g->e->ck->path, name, (double)values[at + i],
                               type == PP_ST_F16 ? "f16" : "bf16");
        }
        PP_TRY(pp_io_write(&g->file, half, m * sizeof(*half)));
    }
    return 0;
}

static int pad_file(struct gguf *g)
{
    static const char zeros[ALIGN];
    return pp_io_write(&g->file, zeros, (ALIGN - g->file.bytes % ALIGN) % ALIGN);
}

/* Writes a tensor with its rows in llama.cpp's order, or transposed. The whole tensor is in memory
 * meanwhile. */
static int write_moved(struct gguf *g, const struct pp_st_item *t, size_t n)
{
    PP_TAKE(float, from, n);
    PP_TAKE(float, to, n);
    PP_TRY(t->read(t->ctx, 0, from, n * sizeof(*from)));
    size_t rows = (size_t)t->dims[0], columns = n / rows;
    size_t heads = (size_t)paired_heads(g, t), width = heads > 0 ? rows / heads : 0;
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            size_t h = width > 0 ? r / width : 0, j = width > 0 ? r % width : 0;
            size_t pair = h * width + j / 2 + j % 2 * (width / 2);
            to[is_transposed(g, t) ? c * rows + r : r * columns + c] =
                from[width > 0 ? pair * columns + c : r * columns + c];
        }
    }
    return write_values(g, t->name, choose_type(g, t), to, n);
}

static int write_tensor(struct gguf *g, const struct pp_st_item *t)
{
    size_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= (size_t)t->dims[d];
    PP_TRY(pad_file(g));
    if (is_transposed(g, t) || paired_heads(g, t) > 0)
        return write_moved(g, t, n);
    PP_TAKE(float, piece, PIECE);
    for (size_t at = 0, m; at < n; at += m) {
        m = n - at < PIECE ? n - at : PIECE;
        PP_TRY(t->read(t->ctx, at * sizeof(*piece), piece, m * sizeof(*piece)));
        PP_TRY(write_values(g, t->name, choose_type(g, t), piece, m));
    }
    return 0;
}

/* Returns the number by which llama.cpp divides the angle of pair j if rope_scaling is of the kind
 * llama3. */
static double rope_divisor(const struct pp_config *cfg, int width, int j)
{
    const double *s = cfg->model.rope_scaling.at;
    double waves = s[3] * pow(cfg->model.rope_base, -2.0 * j / width) / 6.283185307179586;
    double share = fmin(fmax((waves - s[1]) / (s[2] - s[1]), 0), 1);
    return 1 / ((1 - share) / s[0] + share);
}

static int write_divisors(struct gguf *g)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes all = {0};
    int width = head_width(g->e);
    PP_TRY(pad_file(g));
    for (int j = 0; j < width / 2; j++) {
        float f = (float)rope_divisor(g->e->cfg, width, j);
        pp_bytes_put(&all, &f, sizeof(f));
    }
    return all.lost ? PP_ERESOURCE : pp_io_write(&g->file, all.at, all.n);
}

static int write_head(struct gguf *g)
{
    PP_OWN(pp_bytes_fini) struct pp_bytes head = {0};
    pp_bytes_put(&head, "GGUF", 4);
    pp_bytes_little(&head, 3, 4);
    pp_bytes_little(&head, (uint64_t)g->n_tensors, 8);
    pp_bytes_little(&head, (uint64_t)g->n_keys, 8);
    if (head.lost || g->keys.lost || g->list.lost)
        return pp_fail(PP_ERESOURCE, "%s: out of memory for its header", g->file.path);
    PP_TRY(pp_io_write(&g->file, head.at, head.n));
    PP_TRY(pp_io_write(&g->file, g->keys.at, g->keys.n));
    return pp_io_write(&g->file, g->list.at, g->list.n);
}

static int write_file(struct gguf *g, const char *path)
{
    const struct exporter *e = g->e;
    bool scaled = !e->gpt && e->cfg->model.rope_scaling.n == 4;
    PP_TRY(put_model(g));
    for (int i = 0; i < e->n; i++) {
        char name[96];
        name_tensor(e->items[i].name, name);
        list_tensor(g, name, e->items[i].n_dims, e->items[i].dims, is_transposed(g, &e->items[i]),
                    choose_type(g, &e->items[i]));
    }
    int64_t pairs = scaled ? head_width(e) / 2 : 0;
    if (scaled)
        list_tensor(g, "rope_freqs.weight", 1, &pairs, false, PP_ST_F32);
    PP_TRY(pp_io_create(&pp_io_system, path, &g->file));
    PP_TRY(write_head(g));
    for (int i = 0; i < e->n; i++)
        PP_TRY(write_tensor(g, &e->items[i]));
    PP_TRY(scaled ? write_divisors(g) : 0);
    PP_TRY(pad_file(g));
    return pp_io_commit(&g->file, NULL);
}

int export_gguf(struct exporter *e, const struct pp_export *x, const char *path)
{
    const struct pp_config *cfg = e->cfg;
    int act = cfg->model.ffn_activation;
    bool qwen = cfg->model.attention_bias == PP_ATTENTION_BIAS_QKV;
    if (e->gpt && act >= 0 && act != PP_ACT_GELU_TANH)
        return pp_fail(PP_ECONFIG,
                       "%s: model.ffn_activation = %s: llama.cpp's gpt2 has gelu_tanh only",
                       e->ck->path, pp_activation_name(act));
    if (qwen && cfg->model.rope_scaling.n == 4)
        return pp_fail(PP_ECONFIG, "%s: llama.cpp's qwen2 has no llama3 model.rope_scaling",
                       e->ck->path);
    struct gguf g = {.e = e, .x = x, .arch = e->gpt ? "gpt2" : qwen ? "qwen2" : "llama"};
    int rc = write_file(&g, path);
    pp_io_abandon(&g.file);
    pp_bytes_fini(&g.keys);
    pp_bytes_fini(&g.list);
    return rc;
}
