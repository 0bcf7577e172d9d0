/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Did you mean": Damerau-Levenshtein distance (optimal string alignment: insertion, deletion,
 * substitution, swap of neighbours, each counts 1), ignoring case.
 */
#include "conf.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 64 /* longer words get no suggestion, because they are not a misspelled key */

/* Computes the edit distance of a[n] and b[m], or returns `limit` as soon as the distance is
 * certain to reach it. */
static int edit_distance(const char *a, int n, const char *b, int m, int limit)
{
    if (abs(n - m) >= limit)
        return limit;
    /* d[j] of rows i-2, i-1 and i: d[i][j] = distance of the first i bytes of a and j of b */
    int rows[3][WORD_MAX + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (int j = 0; j <= m; j++) {
        last[j] = j;
        before[j] = 0;
    }
    int least_before = 0;
    for (int i = 1; i <= n; i++) {
        int least = now[0] = i;
        for (int j = 1; j <= m; j++) {
            int ca = tolower((unsigned char)a[i - 1]);
            int cb = tolower((unsigned char)b[j - 1]);
            int d = PP_MIN(PP_MIN(last[j] + 1, now[j - 1] + 1), last[j - 1] + (ca != cb));
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                cb == tolower((unsigned char)a[i - 2]))
                d = PP_MIN(d, before[j - 2] + 1);
            now[j] = d;
            least = PP_MIN(least, d);
        }
        /* Later rows are at least this row's minimum or, by a swap, the last row's plus one. */
        if (least >= limit && least_before + 1 >= limit)
            return limit;
        least_before = least;
        int *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[m];
}

/* Returns the length of the section, such as "train.", that both keys begin with; 0 if they have
 * different ones. The caller does not count the section, because a long one would make two short
 * keys similar. */
static int measure_common_section(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");
    return a[n] && strncmp(a, b, n + 1) == 0 ? (int)n + 1 : 0;
}

const char *pp_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    int best_distance = 3;
    size_t n = strlen(word);
    if (n > WORD_MAX || !names)
        return NULL;
    for (int i = 0; names[i]; i++) {
        size_t m = strlen(names[i]);
        if (m > WORD_MAX)
            continue;
        int d = edit_distance(word, (int)n, names[i], (int)m, best_distance);
        int least = d == 0 ? 1 : d == 1 ? 3 : 7 + measure_common_section(word, names[i]);
        if (d < best_distance && (int)n >= least) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

struct pp_did_you_mean pp_did_you_mean(const char *word, const char *const *names)
{
    struct pp_did_you_mean hint = {""};
    const char *near = pp_nearest(word, names);
    if (near)
        snprintf(hint.s, sizeof(hint.s), "; did you mean '%s'?", near);
    return hint;
}

/* Names in other programs, and the key here. */
static const char *const elsewhere[][2] = {
    {"learning_rate", "train.lr"},
    {"learningrate", "train.lr"},
    {"eta", "train.lr"},
    {"optim", "train.optimizer"},
    {"max_iter", "train.max_steps"},
    {"eval_every", "train.eval_interval"},
    {"eval_steps", "train.eval_interval"},
    {"eval_iters", "train.eval_interval"},
    {"adam_beta1", "train.beta1"},
    {"adam_beta2", "train.beta2"},
    {"adam_epsilon", "train.eps"},
    {"logging_steps", "run.log_every"},
    {"save_total_limit", "checkpoint.keep"},
    {"n_ctx", "model.block_size"},
    {"micro_batches", "pipeline.microbatches"},
    {"scheduler", "train.lr_schedule"},
    {"lr_scheduler", "train.lr_schedule"},
    {"lr_scheduler_type", "train.lr_schedule"},
    {"num_epochs", "train.epochs"},
    {"n_epochs", "train.epochs"},
    {"max_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"steps", "train.max_steps"},
    {"iterations", "train.max_steps"},
    {"max_iters", "train.max_steps"},
    {"train_iters", "train.max_steps"},
    {"batch", "train.batch_size"},
    {"global_batch_size", "train.batch_size"},
    {"warmup", "train.warmup_steps"},
    {"warmup_iters", "train.warmup_steps"},
    {"min_lr", "train.lr_floor"},
    {"eta_min", "train.lr_floor"},
    {"lr_decay_iters", "train.lr_steps"},
    {"early_stopping_patience", "train.patience"},
    {"early_stopping", "train.patience"},
    {"save_best_only", "checkpoint.best"},
    {"load_best_model_at_end", "checkpoint.best"},
    {"disable_tqdm", "run.progress"},
    {"display_progress", "run.progress"},
    {"grad_clip", "train.clip_norm"},
    {"clip_grad", "train.clip_norm"},
    {"max_grad_norm", "train.clip_norm"},
    {"gradient_clipping", "train.clip_norm"},
    {"epsilon", "train.eps"},
    {"wd", "train.weight_decay"},
    {"random_seed", "train.seed"},
    {"num_stages", "pipeline.stages"},
    {"n_stages", "pipeline.stages"},
    {"pipeline_parallel_size", "pipeline.stages"},
    {"pp", "pipeline.stages"},
    {"data_parallel_size", "pipeline.replicas"},
    {"dp", "pipeline.replicas"},
    {"num_microbatches", "pipeline.microbatches"},
    {"n_microbatches", "pipeline.microbatches"},
    {"gradient_accumulation_steps", "pipeline.microbatches"},
    {"accumulate_grad_batches", "pipeline.microbatches"},
    {"virtual_stages", "pipeline.chunks"},
    {"num_chunks", "pipeline.chunks"},
    {"gradient_checkpointing", "pipeline.recompute"},
    {"activation_checkpointing", "pipeline.recompute"},
    {"hidden_size", "model.n_embd"},
    {"d_model", "model.n_embd"},
    {"num_layers", "model.n_layer"},
    {"num_hidden_layers", "model.n_layer"},
    {"num_heads", "model.n_head"},
    {"nhead", "model.n_head"},
    {"num_attention_heads", "model.n_head"},
    {"seq_len", "model.block_size"},
    {"seq_length", "model.block_size"},
    {"max_seq_len", "model.block_size"},
    {"context_length", "model.block_size"},
    {"num_classes", "model.classes"},
    {"data_dir", "data.path"},
    {"train_data", "data.train_file"},
    {"device", "run.backend"},
    {"gpu", "run.backend"},
    {"gpus", "pipeline.stages"}, /* each rank uses its own GPU */
    {"num_gpus", "pipeline.stages"},
    {"n_gpus", "pipeline.stages"},
    {"ngpus", "pipeline.stages"},
    {"nproc", "pipeline.stages"},
    {"nproc_per_node", "pipeline.stages"},
    {"num_processes", "pipeline.stages"},
    {"world_size", "pipeline.stages"},
    {"gpu_ids", "run.devices"},
    {"devices", "run.devices"},
    {"nodes", "run.hosts"},
    {"hostfile", "run.hosts"},
    {"num_threads", "run.threads"},
    {"dtype", "run.precision"},
    {"out_dir", "run.dir"},
    {"output_dir", "run.dir"},
    {"log_interval", "run.log_every"},
    {"save_every", "checkpoint.every"},
    {"save_steps", "checkpoint.every"},
    {"save_interval", "checkpoint.every"},
    {"max_restarts", "run.retries"},
};

const char *pp_config_key_like(const char *word)
{
    char name[WORD_MAX];
    const char *dot = strrchr(word, '.');
    snprintf(name, sizeof(name), "%s", dot ? dot + 1 : word);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : (char)tolower((unsigned char)*c);
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
        if (strcmp(elsewhere[i][0], name) == 0)
            return elsewhere[i][1];
    return NULL;
}

/* ---- keys and words of older versions */

bool conf_was_key(struct pp_config *cfg, struct conf_position place, const char *name,
                  const char *value)
{
    static const struct {
        const char *name, *def, *instead;
    } gone[] = {{"run.prometheus", "", "metrics.jsonl in the run folder has the same numbers"}};
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++) {
        if (strcmp(gone[i].name, name) != 0)
            continue;
        if (strcmp(gone[i].def, value) != 0)
            conf_problem(cfg, place, "%s is no longer a key: %s; leave it out", name,
                         gone[i].instead);
        return true;
    }
    return false;
}

const char *conf_was_word(const char *name, const char *word)
{
    bool is_compare = strcmp(name, "run.backend") == 0 && strcmp(word, "compare") == 0;
    return is_compare ? "the test program checkops compares all kernels; write cpu" : NULL;
}
