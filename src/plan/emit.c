/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a division as options or config of the systems that can train it: a table with a row for
 * each system. */
#include "estimate.h"

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

/* ---- Megatron-LM */

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

static void emit_megatron_model(const struct emission *e)
{
    const struct pp_config *c = e->s->cfg;
    int kv = c->model.n_kv_head > 0 ? c->model.n_kv_head : c->model.n_head;
    bool is_llama = strcmp(c->model.type, "llama") == 0;
    fprintf(e->f, "--num-layers %d\n--hidden-size %d\n--num-attention-heads %d\n", c->model.n_layer,
            c->model.n_embd, c->model.n_head);
    if (kv != c->model.n_head)
        fprintf(e->f, "--group-query-attention\n--num-query-groups %d\n", kv);
    if (c->model.n_hidden > 0)
        fprintf(e->f, "--ffn-hidden-size %d\n", c->model.n_hidden);
    fprintf(e->f, "--seq-length %d\n--max-position-embeddings %d\n", c->model.block_size,
            c->model.block_size);
    if (is_llama)
        fprintf(e->f, "--swiglu\n--normalization RMSNorm\n--position-embedding-type rope\n"
                      "--untie-embeddings-and-output-weights\n--disable-bias-linear\n");
    if (c->model.experts > 0)
        fprintf(e->f, "--num-experts %d\n--moe-router-topk %d\n--expert-model-parallel-size %d\n",
                c->model.experts, c->model.top_k, e->p->expert);
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
        fprintf(e->f, "--recompute-granularity selective\n--recompute-modules layernorm mlp\n");
    if (p->zero == 1)
        fprintf(e->f,
                "--use-distributed-optimizer\n--overlap-grad-reduce\n--overlap-param-gather\n");
    else if (p->zero > 1)
        fprintf(e->f, "--use-megatron-fsdp\n--data-parallel-sharding-strategy %s\n",
                p->zero == 2 ? "optim_grads" : "optim_grads_params");
    fprintf(e->f, "--micro-batch-size %d\n--global-batch-size %d\n--bf16\n", e->rows, e->s->batch);
    if (e->s->fp8)
        fprintf(e->f, "--fp8-format hybrid\n");
}

/* ---- torchtitan */

static void emit_torchtitan(const struct emission *e)
{
    static const char *const modes[] = {"none", "selective", "full"};
    const struct pp_division *p = e->p;
    const char *schedule = "1F1B";
    for (size_t i = 0; i < sizeof(torch_schedules) / sizeof(torch_schedules[0]); i++)
        schedule = strcmp(torch_schedules[i][0], pp_division_schedule(p)) == 0
                       ? torch_schedules[i][1]
                       : schedule;
    fprintf(e->f,
            "[parallelism]\ndata_parallel_replicate_degree = %d\n"
            "data_parallel_shard_degree = %d\n",
            p->zero > 0 ? 1 : p->replicas, p->zero > 0 ? p->replicas : 1);
    if (p->zero > 0)
        fprintf(e->f, "fsdp_reshard_after_forward = \"%s\"\n", p->zero < 3 ? "never" : "always");
    fprintf(e->f,
            "tensor_parallel_degree = %d\ncontext_parallel_degree = %d\n"
            "expert_parallel_degree = %d\npipeline_parallel_degree = %d\n",
            p->tensor, p->context, p->expert, p->stages);
    if (p->stages > 1)
        fprintf(e->f,
                "pipeline_parallel_schedule = \"%s\"\npipeline_parallel_microbatch_size = %d\n"
                "pipeline_parallel_layers_per_stage = %d\n",
                schedule, e->rows, (e->s->cfg->model.n_layer + 1) / (p->stages * p->chunks));
    fprintf(e->f, "\n[training]\nlocal_batch_size = %d\nglobal_batch_size = %d\nseq_len = %d\n",
            p->stages > 1 ? e->rows * e->microbatches : e->rows, e->s->batch,
            e->s->cfg->model.block_size);
    fprintf(e->f, "\n[activation_checkpoint]\nmode = \"%s\"\n", modes[p->redo]);
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
    return (y->tensor || !sharded) &&
           (!y->schedules || pp_has_word(y->schedules, pp_division_schedule(p))) &&
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
