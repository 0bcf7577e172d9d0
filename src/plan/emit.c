/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a division as options or config of the systems that can train it: a table with a row for
 * each system. */
#include "estimate.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "ppcli/base/files.h"
#include "ppcli/base/base.h"

struct emission {
    const struct pp_estimate_spec *s;
    const struct pp_division *p;
    int microbatches, rows;
    FILE *f;
};

/* The names of schedules: ppcli's, torchtitan's. */
static const char *const torch_schedules[][2] = {{"1f1b", "1F1B"},
                                                 {"gpipe", "GPipe"},
                                                 {"interleaved", "Interleaved1F1B"},
                                                 {"looped-bfs", "LoopedBFS"},
                                                 {"interleaved-zb", "InterleavedZeroBubble"},
                                                 {"zb-v", "ZBVZeroBubble"},
                                                 {"dualpipev", "DualPipeV"}};

/* ---- the model */

static bool is_llama(const struct emission *e)
{
    return strcmp(e->s->cfg->model.type, "llama") == 0;
}

static bool is_tied(const struct emission *e)
{
    enum pp_choice tie = e->s->cfg->model.tie_weights;
    return is_llama(e) ? tie == PP_CHOICE_ON : tie != PP_CHOICE_OFF;
}

/* Returns the width of the feed-forward part, as the models of ppcli have it. */
static int hidden_of(const struct emission *e)
{
    int hidden = e->s->cfg->model.n_hidden, width = e->s->cfg->model.n_embd;
    int usual = is_llama(e) ? (8 * width / 3 + 255) / 256 * 256 : 4 * width;
    return hidden > 0 ? hidden : usual;
}

static int kv_heads_of(const struct emission *e)
{
    int kv = e->s->cfg->model.n_kv_head;
    return kv > 0 ? kv : e->s->cfg->model.n_head;
}

/* Writes a comment of what these words do not say. */
__attribute__((format(printf, 2, 3))) static void leave(const struct emission *e,
                                                        const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("# left to you: ", e->f);
    vfprintf(e->f, format, args);
    fputc('\n', e->f);
    va_end(args);
}

/* ---- Megatron-LM: checked with its own parser, of August 2026 */

static void emit_megatron_cut(const struct emission *e)
{
    const struct pp_division *p = e->p;
    uint16_t blocks[PP_STAGES_MAX];
    char layout[PP_TEXT_MAX];
    bool ends = parallel_blocks(p, blocks);
    if (p->gives_cut)
        fprintf(e->f, "--pipeline-model-parallel-layout '%s'\n",
                blocks_text(blocks, pp_division_pieces(p), layout, sizeof(layout)));
    else if (p->chunks > 1)
        fprintf(e->f, "--num-layers-per-virtual-pipeline-stage %d\n",
                (e->s->cfg->model.n_layer + 2 * ends) / (p->stages * p->chunks));
    if (ends)
        fprintf(e->f, "--account-for-embedding-in-pipeline-split\n"
                      "--account-for-loss-in-pipeline-split\n");
}

static void emit_megatron_rotary(const struct emission *e)
{
    const struct pp_floats *scale = &e->s->cfg->model.rope_scaling;
    const double *at = scale->at;
    fprintf(e->f, "--position-embedding-type rope\n--rotary-base %.0f\n",
            e->s->cfg->model.rope_base);
    if (scale->n == 1 && at[0] == floor(at[0]))
        fprintf(e->f, "--rotary-seq-len-interpolation-factor %.0f\n", at[0]);
    else if (scale->n == 4)
        fprintf(e->f, "--use-rope-scaling\n--rope-scaling-factor %g\n", at[0]);
    if (scale->n == 4 && (at[1] != 1 || at[2] != 4 || at[3] != 8192))
        leave(e, "Megatron-LM has model.rope_scaling with 1 4 8192 only, not with %g %g %g", at[1],
              at[2], at[3]);
    if (scale->n == 1 && at[0] != floor(at[0]))
        leave(e, "model.rope_scaling = %g; Megatron-LM takes whole numbers", at[0]);
}

static void emit_megatron_biases(const struct emission *e)
{
    const struct pp_config *c = e->s->cfg;
    bool biased = !is_llama(e) && c->model.bias;
    if (!biased)
        fprintf(e->f, "--disable-bias-linear\n");
    if (is_llama(e) && c->model.attention_bias != PP_ATTENTION_BIAS_OFF)
        fprintf(e->f, "--add-qkv-bias\n");
    if (is_llama(e) && c->model.attention_bias == PP_ATTENTION_BIAS_ALL)
        leave(e, "model.attention_bias = all; here the output of attention has no bias");
    if (!is_llama(e) && !c->model.bias)
        leave(e, "model.bias = false; here LayerNorm has a bias");
    if (!is_llama(e) && c->model.ffn_activation >= 0 &&
        c->model.ffn_activation != PP_ACT_GELU_TANH && c->model.ffn_activation != PP_ACT_GELU)
        leave(e, "model.ffn_activation; here it is gelu");
}

static void emit_megatron_experts(const struct emission *e)
{
    const struct pp_config *c = e->s->cfg;
    if (c->model.experts == 0)
        return;
    fprintf(e->f,
            "--num-experts %d\n--moe-router-topk %d\n--moe-ffn-hidden-size %d\n"
            "--expert-model-parallel-size %d\n--moe-token-dispatcher-type alltoall\n",
            c->model.experts, c->model.top_k, hidden_of(e), e->p->expert);
    if (parallel_has_whole_experts(e->p))
        fprintf(e->f, "--expert-tensor-parallel-size 1\n");
    if (is_llama(e) || !c->model.bias)
        fprintf(e->f, "--moe-grouped-gemm\n");
    leave(e, "how tokens are balanced: --moe-router-load-balancing-type, --moe-aux-loss-coeff");
}

static void emit_megatron_model(const struct emission *e)
{
    const struct pp_config *c = e->s->cfg;
    int vocabulary = e->s->model->classes;
    fprintf(e->f, "--num-layers %d\n--hidden-size %d\n--num-attention-heads %d\n", c->model.n_layer,
            c->model.n_embd, c->model.n_head);
    if (kv_heads_of(e) != c->model.n_head)
        fprintf(e->f, "--group-query-attention\n--num-query-groups %d\n", kv_heads_of(e));
    if (is_llama(e) && c->model.head_dim > 0)
        fprintf(e->f, "--kv-channels %d\n", c->model.head_dim);
    fprintf(e->f, "--ffn-hidden-size %d\n--seq-length %d\n--max-position-embeddings %d\n",
            hidden_of(e), c->model.block_size, c->model.block_size);
    fprintf(e->f, "--vocab-size %d\n", vocabulary);
    if (vocabulary % (128 * e->p->tensor) != 0) /* else its own rule adds no rows */
        fprintf(e->f, "--make-vocab-size-divisible-by 1\n");
    if (vocabulary % e->p->tensor != 0)
        leave(e, "the vocabulary of %d gets rows until tensor parallelism divides it", vocabulary);
    fprintf(e->f, "--attention-dropout %g\n--hidden-dropout %g\n",
            is_llama(e) ? 0 : c->model.dropout, is_llama(e) ? 0 : c->model.dropout);
    if (c->model.norm_eps != 1e-5)
        fprintf(e->f, "--norm-epsilon %g\n", c->model.norm_eps);
    if (!is_tied(e))
        fprintf(e->f, "--untie-embeddings-and-output-weights\n");
    if (is_llama(e)) {
        fprintf(e->f, "--swiglu\n--normalization RMSNorm\n");
        emit_megatron_rotary(e);
    }
    emit_megatron_biases(e);
    emit_megatron_experts(e);
}

static void emit_megatron_sharding(const struct emission *e)
{
    const struct pp_division *p = e->p;
    if (p->zero > 0)
        fprintf(e->f,
                "--use-distributed-optimizer\n--overlap-grad-reduce\n--overlap-param-gather\n");
    if (p->zero > 1)
        fprintf(e->f,
                "--use-megatron-fsdp\n--data-parallel-sharding-strategy %s\n"
                "--ckpt-format fsdp_dtensor\n",
                p->zero == 2 ? "optim_grads" : "optim_grads_params");
    if (p->zero > 1)
        leave(e, "unset CUDA_DEVICE_MAX_CONNECTIONS, which must not be 1 here");
    else if (p->tensor > 1 || p->context > 1)
        leave(e, "export CUDA_DEVICE_MAX_CONNECTIONS=1, before Blackwell");
}

static void emit_megatron(const struct emission *e)
{
    const struct pp_division *p = e->p;
    emit_megatron_model(e);
    fprintf(e->f, "--tensor-model-parallel-size %d\n--pipeline-model-parallel-size %d\n", p->tensor,
            p->stages);
    emit_megatron_cut(e);
    if (p->tensor > 1)
        fprintf(e->f, "--sequence-parallel\n");
    if (p->context > 1)
        fprintf(e->f, "--context-parallel-size %d\n", p->context);
    if (p->redo == PP_REDO_FULL)
        fprintf(e->f, "--recompute-granularity full\n--recompute-method uniform\n"
                      "--recompute-num-layers 1\n");
    else if (p->redo == PP_REDO_SELECTIVE)
        fprintf(e->f, "--recompute-granularity selective\n--recompute-modules layernorm %s\n",
                e->s->cfg->model.experts > 0 ? "moe" : "mlp");
    fprintf(e->f, "--micro-batch-size %d\n--global-batch-size %d\n--bf16\n", e->rows, e->s->batch);
    if (e->s->fp8)
        fprintf(e->f, "--fp8-format hybrid\n--fp8-recipe tensorwise\n");
    emit_megatron_sharding(e);
    leave(e, "data, tokenizer, optimizer, learning rate, --train-iters");
}

/* ---- torchtitan: a Python config, as it reads them since 2026 */

/* Writes the cut: as torchtitan's own rule, which counts the first and the last stage as one layer
 * more or not, or piece by piece. */
static void emit_torchtitan_cut(const struct emission *e)
{
    const struct pp_division *p = e->p;
    uint16_t blocks[PP_STAGES_MAX];
    int n = pp_division_pieces(p), layers = e->s->cfg->model.n_layer;
    bool ends = parallel_blocks(p, blocks);
    if (!p->gives_cut) {
        fprintf(e->f,
                "        pipeline_parallel_layers_per_stage=%d,\n"
                "        pipeline_parallel_first_stage_less_layers=%d,\n"
                "        pipeline_parallel_last_stage_less_layers=%d,\n",
                (layers + 2 * ends) / n, ends, ends);
        return;
    }
    fprintf(e->f, "        module_fqns_per_model_part=[\n");
    for (int v = 0, layer = 0; v < n; v++) {
        fprintf(e->f, "            [%s", v == 0 ? "\"tok_embeddings\", " : "");
        fprintf(e->f, "*(f\"layers.{i}\" for i in range(%d, %d))", layer, layer + blocks[v]);
        fprintf(e->f, "%s],\n", v == n - 1 ? ", \"norm\", \"lm_head\"" : "");
        layer += blocks[v];
    }
    fprintf(e->f, "        ],\n");
}

static const char *torch_schedule(const struct pp_division *p)
{
    for (size_t i = 0; i < sizeof(torch_schedules) / sizeof(torch_schedules[0]); i++)
        if (strcmp(torch_schedules[i][0], pp_division_schedule(p)) == 0)
            return torch_schedules[i][1];
    return "1F1B";
}

static void emit_torchtitan_division(const struct emission *e)
{
    const struct pp_division *p = e->p;
    bool sharded = p->zero > 0 || p->expert > 1; /* experts lie on ranks of the sharded ones */
    fprintf(e->f,
            "    config.parallelism = ParallelismConfig(\n"
            "        data_parallel_replicate_degree=%d,\n"
            "        data_parallel_shard_degree=%d,\n",
            sharded ? 1 : p->replicas, sharded ? p->replicas : 1);
    if (sharded)
        fprintf(e->f, "        fsdp_reshard_after_forward=\"%s\",\n",
                p->zero < 3 ? "never" : "always");
    fprintf(e->f,
            "        tensor_parallel_degree=%d,\n        context_parallel_degree=%d,\n"
            "        expert_parallel_degree=%d,\n        pipeline_parallel_degree=%d,\n",
            p->tensor, p->context, p->expert, p->stages);
    if (p->stages > 1) {
        fprintf(e->f,
                "        pipeline_parallel_schedule=\"%s\",\n        num_pp_microbatches=%d,\n",
                torch_schedule(p), e->microbatches);
        emit_torchtitan_cut(e);
    }
    fprintf(e->f, "    )\n");
}

/* Writes a model as those of torchtitan's llama3. */
static void emit_torchtitan_llama(const struct emission *e)
{
    const struct pp_config *c = e->s->cfg;
    const struct pp_floats *scale = &c->model.rope_scaling;
    int width = c->model.n_embd, vocabulary = e->s->model->classes;
    fprintf(e->f,
            "    model = llama3.Llama3Model.Config(\n        dim=%d,\n        vocab_size=%d,\n"
            "        enable_weight_tying=%s,\n"
            "        tok_embeddings=Embedding.Config(\n"
            "            num_embeddings=%d, embedding_dim=%d, param_init=llama3.%s\n        ),\n"
            "        norm=RMSNorm.Config(normalized_shape=%d, param_init=llama3._NORM_INIT),\n"
            "        lm_head=Linear.Config(\n            in_features=%d, out_features=%d,\n"
            "            param_init=llama3._output_linear_init(%d)\n        ),\n",
            width, vocabulary, is_tied(e) && e->p->stages == 1 ? "True" : "False", vocabulary,
            width, is_tied(e) && e->p->stages == 1 ? "_EMBEDDING_SKIP_INIT" : "_EMBEDDING_INIT",
            width, width, vocabulary, width);
    fprintf(e->f,
            "        layers=llama3._build_llama3_layers(\n"
            "            n_layers=%d, dim=%d, n_heads=%d, n_kv_heads=%d, hidden_dim=%d,\n"
            "            attn_backend=\"flex\",\n            rope=ComplexRoPE.Config(\n"
            "                dim=%d, max_context_length=%d, theta=%g,\n                ",
            c->model.n_layer, width, c->model.n_head, kv_heads_of(e), hidden_of(e),
            width / c->model.n_head, c->model.block_size, c->model.rope_base);
    if (scale->n == 4)
        fprintf(e->f,
                "scaling=\"llama\", scaling_factor=%g, low_freq_factor=%g,\n                "
                "high_freq_factor=%g, original_max_position_embeddings=%.0f",
                scale->at[0], scale->at[1], scale->at[2], scale->at[3]);
    else
        fprintf(e->f, "scaling=\"none\"");
    fprintf(e->f, "\n            ),\n        ),\n    )\n");
    if (e->s->fp8)
        fprintf(e->f, "    config.compile = CompileConfig(enable=True)\n"
                      "    model = Float8LinearConverter.Config(\n"
                      "        filter_fqns=[\"lm_head\"], model_compile_enabled=True\n"
                      "    ).build().convert(model)\n");
    fprintf(e->f,
            "    config.model_spec = replace(llama3.model_registry(\"8B\"), flavor=\"plan\", "
            "model=model)\n"
            "    config.loss = ChunkedLossWrapper.Config(\n"
            "        loss_fn=CrossEntropyLoss.Config(global_vocab_size=%d)\n    )\n",
            vocabulary);
}

/* Writes what torchtitan's llama3 does not have. */
static void leave_torchtitan_model(const struct emission *e)
{
    const struct pp_config *c = e->s->cfg;
    bool widths = c->model.head_dim > 0 && c->model.head_dim != c->model.n_embd / c->model.n_head;
    if (is_tied(e) && e->p->stages > 1)
        leave(e, "tied weights: torchtitan ties none over stages, so the last layer has its own");
    if (c->model.rope_scaling.n == 1)
        leave(e, "model.rope_scaling = %g for all angles", c->model.rope_scaling.at[0]);
    if (c->model.norm_eps != 1e-5)
        leave(e, "model.norm_eps = %g; here it is 1e-5", c->model.norm_eps);
    if (widths)
        leave(e, "heads of %d channels; here a head has n_embd / n_head", c->model.head_dim);
    if (c->model.attention_bias != PP_ATTENTION_BIAS_OFF)
        leave(e, "the biases of attention, which llama3 does not have");
}

static void emit_torchtitan_model(const struct emission *e)
{
    const struct pp_config *c = e->s->cfg;
    if (is_llama(e) && c->model.experts == 0) {
        emit_torchtitan_llama(e);
        leave_torchtitan_model(e);
        return;
    }
    fprintf(e->f, "    config.model_spec = None\n");
    leave(e, "config.model_spec and config.loss: torchtitan's llama3 has no %s",
          c->model.experts > 0 ? "experts" : "GPT of this form");
    leave(e,
          "%d layers, width %d, %d heads, %d of keys, feed-forward %d, vocabulary %d, %d "
          "experts, %d of them a token",
          c->model.n_layer, c->model.n_embd, c->model.n_head, kv_heads_of(e), hidden_of(e),
          e->s->model->classes, c->model.experts, c->model.experts > 0 ? c->model.top_k : 0);
    if (e->s->fp8)
        leave(e, "fp8: Float8LinearConverter on that model, and config.compile");
}

static void emit_torchtitan(const struct emission *e)
{
    static const char *const recompute[] = {"None", "SelectiveAC.Config()", "FullAC.Config()"};
    const struct pp_division *p = e->p;
    int tokens = e->s->cfg->model.block_size;
    fprintf(e->f,
            "# %d ranks; save it as plan.py: torchrun ... -m torchtitan.train --module plan "
            "--config plan\n"
            "from dataclasses import replace\n\n"
            "from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss\n"
            "from torchtitan.components.quantization import Float8LinearConverter\n"
            "from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig\n"
            "from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC\n"
            "from torchtitan.models import llama3\n"
            "from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm\n"
            "from torchtitan.models.llama3.config_registry import llama3_8b\n\n\n"
            "def plan():\n    config = llama3_8b()\n",
            e->s->ranks);
    emit_torchtitan_model(e);
    emit_torchtitan_division(e);
    fprintf(e->f,
            "    config.training = TrainingConfig(\n"
            "        num_tokens_per_microbatch_per_dp_rank=%" PRId64 ",\n"
            "        num_tokens_per_train_step=%" PRId64
            ",\n        max_context_length=%d,\n    )\n"
            "    config.activation_checkpoint = %s\n",
            (int64_t)e->rows * tokens, (int64_t)e->s->batch * tokens, tokens, recompute[p->redo]);
    leave(e, "config.dataloader, hf_assets_path (tokenizer), optimizer, lr_scheduler, "
             "training.steps");
    fprintf(e->f, "    return config\n");
}

/* ---- DeepSpeed */

static void emit_deepspeed(const struct emission *e)
{
    const struct pp_division *p = e->p;
    struct pp_json j = pp_json_begin(e->f, 2);
    pp_json_int(&j, "train_batch_size", e->s->batch);
    pp_json_int(&j, "train_micro_batch_size_per_gpu", e->rows);
    pp_json_int(&j, "gradient_accumulation_steps", e->microbatches);
    pp_json_object(&j, "bf16");
    pp_json_bool(&j, "enabled", e->s->cfg->run.precision == PP_PRECISION_BF16);
    pp_json_end(&j);
    pp_json_object(&j, "zero_optimization");
    pp_json_int(&j, "stage", p->zero);
    pp_json_end(&j);
    if (p->stages > 1) { /* of PipelineModule(num_stages, partition_method, ...) */
        pp_json_object(&j, "pipeline");
        pp_json_int(&j, "stages", p->stages);
        pp_json_str(&j, "partition", "uniform");
        pp_json_int(&j, "activation_checkpoint_interval", p->redo == PP_REDO_FULL);
        pp_json_end(&j);
    }
    pp_json_end(&j);
}

/* ---- systems */

static const struct system {
    const char *name, *schedules;
    bool tensor, selective, full; /* tensor: context and experts too */
    int zero, zero_of_stages;     /* most of one stage, of several */
    void (*emit)(const struct emission *e);
} systems[] = {
    {"ppcli", NULL, false, false, true, 1, 1, NULL},
    {"megatron", "1f1b interleaved", true, true, true, 3, 1, emit_megatron},
    {"torchtitan", "1f1b gpipe interleaved looped-bfs interleaved-zb zb-v dualpipev", true, true,
     true, 3, 1, emit_torchtitan},
    {"deepspeed", "1f1b", false, false, true, 3, 1, emit_deepspeed},
};
#define SYSTEMS (sizeof(systems) / sizeof(systems[0]))

static bool can_run(const struct system *y, const struct pp_division *p)
{
    bool sharded = p->tensor > 1 || p->context > 1 || p->expert > 1;
    const char *schedule = pp_division_schedule(p);
    /* other schedules of these systems need several stages a rank */
    bool looped = p->stages > 1 && p->chunks == 1 && !pp_has_word("1f1b gpipe", schedule);
    return (y->tensor || !sharded) &&
           (!y->schedules || (pp_has_word(y->schedules, schedule) && !looped)) &&
           p->zero <= (p->stages > 1 ? y->zero_of_stages : y->zero) &&
           (p->redo != PP_REDO_SELECTIVE || y->selective) && (!p->gives_cut || y->tensor);
}

bool pp_parallel_runs_on(const struct pp_division *p, const char *system)
{
    for (size_t i = 0; i < SYSTEMS; i++)
        if (strncmp(systems[i].name, system, strlen(system)) == 0)
            return can_run(&systems[i], p);
    return false;
}

int pp_estimate_emit(const struct pp_estimate_spec *s, const struct pp_division *p,
                     const char *system, FILE *f)
{
    struct emission e = {s, p, p->microbatches, pp_division_rows(p, s->batch), f};
    char text[256];
    for (size_t i = 0; i < SYSTEMS; i++) {
        if (strcmp(systems[i].name, system) != 0 || !systems[i].emit)
            continue;
        if (!can_run(&systems[i], p))
            return pp_fail(PP_ECONFIG, "%s cannot run %s", system,
                           pp_parallel_text(p, s->batch, text, sizeof(text)));
        systems[i].emit(&e);
        return ferror(f) ? pp_fail(PP_EIO, "the plan cannot be written") : 0;
    }
    return pp_fail(PP_EUSAGE, "no words for '%s'; there are megatron, torchtitan and deepspeed",
                   system);
}
