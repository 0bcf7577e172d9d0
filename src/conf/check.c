/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only several keys together show. A check runs when all its keys hold a legal value, else it
 * would talk about values that nobody wrote. It blames the key that the user set last and says
 * what would work.
 */
#include "conf.h"

#include <string.h>

#include "ppcli/text.h"

static int option(const char *key)
{
    int i = conf_option_index(key);
    pp_assert(i >= 0);
    return i;
}

static bool good(const struct pp_config *cfg, const char *const *keys)
{
    for (int i = 0; keys[i]; i++)
        if (cfg->source->origins[option(keys[i])].bad)
            return false;
    return true;
}

/* Add a problem of several keys, at the one to look at: from the command line, else from the file,
 * else the first. */
__attribute__((format(printf, 3, 4))) static void
blame(struct pp_config *cfg, const char *const *keys, const char *fmt, ...)
{
    static const enum conf_from order[] = {CONF_FROM_FILE, CONF_FROM_SETTING};
    const char *key = keys[0];
    char text[CONF_WHY_MAX];
    va_list args;
    for (int o = 0; o < 2; o++)
        for (int i = 0, found = 0; keys[i] && !found; i++)
            if ((found = cfg->source->origins[option(keys[i])].from == order[o]))
                key = keys[i];
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    pp_config_problem(cfg, key, "%s: %s", key, text);
}

static void check_batch(struct pp_config *cfg)
{
    static const char *const keys[] = {"pipeline.microbatches", "pipeline.replicas",
                                       "train.batch_size", NULL};
    static const char *const copies[] = {"pipeline.replicas", "train.batch_size", NULL};
    if (!good(cfg, keys))
        return;
    int m = cfg->pipeline.microbatches, d = cfg->pipeline.replicas, b = cfg->train.batch_size;
    int share = b / d; /* rows of the smallest replica */
    if (share >= m)
        return;
    if (share == 0) {
        blame(cfg, copies,
              "a batch of %d has no sample for each of %d replicas; use "
              "train.batch_size = %lld or more, or pipeline.replicas = %d or fewer%s",
              b, d, (long long)m * d, b < m ? b : b / m,
              b < m ? " with pipeline.microbatches = 1" : "");
        return;
    }
    blame(cfg, keys,
          "each of %d replica%s has %d sample%s of a batch of %d, too few for %d "
          "micro-batches; use pipeline.microbatches = %d or fewer, or "
          "train.batch_size = %lld or more",
          d, d == 1 ? "" : "s", share, share == 1 ? "" : "s", b, m, share, (long long)m * d);
}

/* A cut that is written down: once, and a piece for each stage and chunk. */
static void check_cut(struct pp_config *cfg)
{
    static const char *const keys[] = {"pipeline.assignment", "pipeline.split_at", NULL};
    static const char *const counts[] = {"pipeline.stages", "pipeline.chunks", NULL};
    bool split = cfg->pipeline.split_at[0];
    const char *key = keys[split], *text = split ? cfg->pipeline.split_at : cfg->pipeline.ranges;
    if (!good(cfg, keys))
        return;
    if (split && cfg->pipeline.assignment != PP_ASSIGN_AUTO) {
        blame(cfg, keys, "assignment and split_at both say where to cut; use one of them");
        return;
    }
    if (split)
        cfg->pipeline.assignment = PP_ASSIGN_EXPLICIT;
    if (!good(cfg, counts) || cfg->pipeline.assignment != PP_ASSIGN_EXPLICIT)
        return;
    int stages = cfg->pipeline.stages, chunks = cfg->pipeline.chunks, n = 1 + split;
    for (; *text; text++)
        n += *text == (split ? ' ' : '|');
    if (chunks == 0 && stages > 1 && n % stages == 0)
        chunks = n / stages; /* how many the schedule holds is the layout's to know */
    const char *what = split ? "piece" : "range", *plural = n == 1 ? "" : "s";
    if (chunks > 1 && n != stages * chunks) {
        pp_config_problem(cfg, key, "%s: %d %s%s for %d stages of %d chunks; %s", key, n, what,
                          plural, stages, chunks,
                          split ? "name the first layer of every chunk but the first"
                                : "write one for each chunk, in model order");
    } else if (chunks <= 1 && n != stages) {
        pp_config_problem(cfg, key, "%s: %d %s%s for %d stage%s; %s, or pipeline.stages = %d", key,
                          n, what, plural, stages, stages == 1 ? "" : "s",
                          split ? "name the first layer of every stage but the first"
                                : "write one for each stage",
                          n);
    }
}

static void check_slower(struct pp_config *cfg)
{
    static const char *const keys[] = {"pipeline.slower", "pipeline.stages", NULL};
    int n = cfg->pipeline.slower.n, stages = cfg->pipeline.stages;
    if (good(cfg, keys) && n > 0 && n != stages)
        blame(cfg, keys, "%d numbers for %d stages; write one for each", n, stages);
}

static void check_nonfinite(struct pp_config *cfg)
{
    static const char *const keys[] = {"train.nonfinite", "run.dir", NULL};
    if (good(cfg, keys) && cfg->train.nonfinite == PP_NONFINITE_REWIND && cfg->run.dir[0] == '\0') {
        blame(cfg, keys,
              "rewind goes back to a checkpoint, and without a run folder there "
              "is none; use train.nonfinite = skip, or name a run.dir");
    }
}

static void check_launch(struct pp_config *cfg, const struct pp_names *names)
{
    static const char *const hosts[] = {"run.hosts", "run.launch", NULL};
    if (cfg->run.hosts[0] && cfg->run.launch == PP_LAUNCH_AUTO)
        cfg->run.launch = PP_LAUNCH_MPIRUN;
    if (cfg->run.hosts[0] && cfg->run.launch == PP_LAUNCH_THREADS)
        blame(cfg, hosts,
              "threads have no hosts; use run.launch = mpirun, or no hosts (--hosts '')");
    static const char *const keys[] = {"run.transport", "run.launch", NULL};
    if (!good(cfg, keys) || !names || !names->joins)
        return;
    const char *transport = cfg->run.transport;
    if (cfg->run.launch == PP_LAUNCH_THREADS && !names->joins(transport, false)) {
        blame(cfg, keys,
              "transport = %s needs a process for each rank, but launch = threads "
              "starts none; use run.launch = mpirun or run.transport = auto",
              transport);
    }
    if (cfg->run.launch == PP_LAUNCH_MPIRUN && !names->joins(transport, true)) {
        blame(cfg, keys,
              "launch = mpirun makes each rank a process, which transport = "
              "%s cannot connect; use run.transport = auto or run.launch = threads",
              transport);
    }
}

static void check_outputs(struct pp_config *cfg)
{
    static const char *const board[] = {"run.tensorboard", "run.dir", NULL};
    if (good(cfg, board) && cfg->run.tensorboard && !cfg->run.dir[0]) {
        conf_note(cfg, option(board[0]), "%s has no effect without a run folder (run.dir is empty)",
                  board[0]);
    }
}

/* Groups of weight gradients: of micro-batches that there are. */
static void check_coalesce(struct pp_config *cfg)
{
    static const char *const counts[] = {"train.coalesce", "pipeline.microbatches", NULL};
    int k = cfg->train.coalesce, m = cfg->pipeline.microbatches;
    if (good(cfg, counts) && k > m) {
        blame(cfg, counts,
              "weight gradients of %d micro-batches at a time, but a batch has %d; "
              "use train.coalesce = %d or fewer, or more pipeline.microbatches",
              k, m, m);
    }
}

/* With nobody to share with. */
static void check_zero(struct pp_config *cfg)
{
    static const char *const keys[] = {"train.zero", "pipeline.replicas", NULL};
    if (good(cfg, keys) && cfg->train.zero > 0 && cfg->pipeline.replicas == 1)
        conf_note(cfg, option(keys[0]), "%s has no effect with %s = 1, only with more", keys[0],
                  keys[1]);
}

/* Whether the key has another value than by default. (A run's own config has all keys.) */
static bool is_set(const struct pp_config *cfg, const char *key)
{
    char value[PP_NAME_MAX]; /* no default is longer */
    const struct conf_option *o = conf_option(option(key));
    const struct conf_origin *origin = &cfg->source->origins[option(key)];
    return !origin->bad && origin->from != CONF_FROM_DEFAULT &&
           (conf_value_print(o, cfg, value, sizeof(value)) < 0 || strcmp(value, o->def) != 0);
}

/* Whether the backend is known to be one of the processor. */
static bool is_host(const struct pp_config *cfg, const struct pp_names *names)
{
    static const char *const keys[] = {"run.backend", NULL};
    return names && names->on_host && good(cfg, keys) && names->on_host(cfg->run.backend);
}

/* Keys that do something only with some values of another. */
static const struct idle_row {
    const char *key, *because;
    const char *with; /* values of `because` with which it does something; NULL: a device's */
    const char *shown;
} idle_rows[] = {{"model.stride", "model.depth", "50 101", "50 and 101"},
                 {"model.norm_momentum", "model.norm", "batch", "batch"},
                 {"train.lr_milestones", "train.lr_schedule", "multistep", "multistep"},
                 {"train.lr_gamma", "train.lr_schedule", "multistep", "multistep"},
                 {"train.lr_steps", "train.lr_schedule", "linear cosine", "linear and cosine"},
                 {"run.precision", "run.backend", NULL, "cuda"},
                 {"run.graphs", "run.backend", NULL, "cuda"},
                 {"run.devices", "run.backend", NULL, "cuda"},
                 {"run.partition_sms", "run.backend", NULL, "cuda"},
                 {"train.momentum", "train.optimizer", "momentum", "momentum"},
                 {"train.nesterov", "train.optimizer", "momentum", "momentum"},
                 {"train.beta1", "train.optimizer", "adam adamw", "adam and adamw"},
                 {"train.beta2", "train.optimizer", "adam adamw", "adam and adamw"},
                 {"train.eps", "train.optimizer", "adam adamw", "adam and adamw"},
                 {"train.zero", "train.optimizer", "momentum adam adamw", "momentum, adam, adamw"},
                 {"pipeline.costs", "pipeline.schedule", "zb-fit zb-fit-v", "zb-fit and zb-fit-v"},
                 {"pipeline.eager", "pipeline.schedule", "1f1b-eager auto", "1f1b-eager"},
                 {"pipeline.memory_cap", "pipeline.schedule", "zb-auto zb-fit zb-fit-v auto",
                  "zb-auto, zb-fit and zb-fit-v"},
                 {"pipeline.group", "pipeline.schedule", "interleaved interleaved-zb auto",
                  "interleaved and interleaved-zb"}};

bool conf_is_idle(const struct pp_config *cfg, const char *key)
{
    bool warms_up = cfg->train.warmup_steps > 0 || cfg->train.warmup_epochs > 0;
    if (strcmp(key, "train.decay") == 0)
        return !(cfg->train.weight_decay > 0);
    if (strcmp(key, "train.lr_by") == 0)
        return cfg->train.lr_schedule == PP_LR_CONSTANT && !warms_up;
    for (size_t i = 0; i < sizeof(idle_rows) / sizeof(idle_rows[0]); i++) {
        const struct idle_row *row = &idle_rows[i];
        char value[PP_NAME_MAX];
        if (strcmp(row->key, key) != 0 || !row->with)
            continue;
        conf_value_print(conf_option(option(row->because)), cfg, value, sizeof(value));
        return !pp_has_word(row->with, value);
    }
    return false;
}

/* A key that was set to something but changes nothing: worth a word, no error. */
static void note_idle_keys(struct pp_config *cfg, const struct pp_names *names)
{
    for (size_t i = 0; i < sizeof(idle_rows) / sizeof(idle_rows[0]); i++) {
        const struct idle_row *row = &idle_rows[i];
        const char *const because[] = {row->because, NULL};
        char now[PP_NAME_MAX];
        conf_value_print(conf_option(option(row->because)), cfg, now, sizeof(now));
        bool rates = strcmp(row->because, "train.lr_schedule") == 0; /* said by pp_lr_remark() */
        bool idle = rates ? false : row->with ? !pp_has_word(row->with, now) : is_host(cfg, names);
        if (idle && good(cfg, because) && is_set(cfg, row->key)) {
            conf_note(cfg, option(row->key), "%s has no effect with %s = %s, only with %s",
                      row->key, row->because, now, row->shown);
        }
    }
}

/* Warm-up is counted in one unit. Keys that the schedule does not read: pp_lr_remark(). */
static void check_learning_rate(struct pp_config *cfg)
{
    static const char *const warm[] = {"train.warmup_steps", "train.warmup_epochs", "train.lr_by",
                                       NULL};
    static const char *const falls[] = {"train.lr_milestones", "train.lr_schedule", NULL};
    if (good(cfg, warm) && cfg->train.warmup_steps > 0) {
        if (cfg->train.warmup_epochs > 0)
            blame(cfg, warm, "a warm-up has steps or epochs; use one of the two keys");
        else if (cfg->train.lr_by == PP_LR_BY_EPOCH)
            blame(cfg, warm,
                  "lr_by = epoch changes the learning rate between epochs only; use "
                  "train.warmup_epochs, or train.lr_by = step");
    }
    if (good(cfg, falls) && cfg->train.lr_schedule == PP_LR_MULTISTEP &&
        cfg->train.lr_milestones.n == 0)
        blame(cfg, falls, "multistep changes nothing without train.lr_milestones");
}

#define TRANSFORMERS "gpt llama encoder decoder"

/* A key of one kind of model that was set for another is a slip worth stopping for. */
static void check_model(struct pp_config *cfg)
{
    static const struct {
        const char *key, *types;
    } keys[] = {{"model.sizes", "mlp"},
                {"model.activation", "mlp"},
                {"model.layers", "sequential"},
                {"model.init", "mlp sequential resnet"},
                {"model.depth", "resnet"},
                {"model.stem", "resnet"},
                {"model.norm", "resnet"},
                {"model.norm_momentum", "sequential resnet"},
                {"model.stride", "resnet"},
                {"model.padding", "resnet"},
                {"model.classes", "resnet encoder"},
                {"model.n_layer", TRANSFORMERS},
                {"model.n_head", TRANSFORMERS},
                {"model.n_kv_head", "llama"},
                {"model.n_embd", TRANSFORMERS},
                {"model.n_hidden", TRANSFORMERS},
                {"model.block_size", TRANSFORMERS},
                {"model.vocab_size", TRANSFORMERS},
                {"model.ffn_activation", "gpt encoder decoder"},
                {"model.tie_weights", "gpt llama"},
                {"model.bias", "gpt"},
                {"model.batch_first", "decoder"},
                {"model.pooling", "encoder"},
                {"model.mask_padding", "encoder"},
                {"model.dropout", "gpt encoder decoder"},
                {"model.norm_eps", TRANSFORMERS},
                {"model.rope_base", "llama"}};
    static const char *const type[] = {"model.type", NULL};
    if (!good(cfg, type))
        return;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (is_set(cfg, keys[i].key) && !pp_has_word(keys[i].types, cfg->model.type)) {
            pp_config_problem(cfg, keys[i].key, "%s is not used by model.type = %s (only by %s)",
                              keys[i].key, cfg->model.type, keys[i].types);
        }
    }
}

/* Keys of a GPU. Which device auto finds is not known yet: nothing is said then. */
static void check_devices(struct pp_config *cfg, const struct pp_names *names)
{
    static const char *const parts[] = {
        "run.partition_sms", "run.launch",        "run.devices", "run.backend",
        "pipeline.stages",   "pipeline.replicas", NULL};
    static const char *const launch[] = {"run.partition_sms", "run.launch", NULL};
    if (!good(cfg, parts) || !cfg->run.partition_sms || is_host(cfg, names))
        return;
    int ranks = cfg->pipeline.stages * cfg->pipeline.replicas;
    if (cfg->run.launch == PP_LAUNCH_MPIRUN) {
        blame(cfg, launch,
              "processes that share a GPU take turns on the whole of it, only "
              "threads of one process can have parts; use run.launch = threads or "
              "run.partition_sms = off");
    } else if (ranks == 1 || cfg->run.n_devices >= ranks) {
        conf_note(cfg, option(parts[0]), "%s has no effect: %s", parts[0],
                  ranks == 1 ? "one rank has the whole GPU" : "each rank has a GPU of its own");
    }
}

void conf_check(struct pp_config *cfg, const struct pp_names *names)
{
    check_batch(cfg);
    check_model(cfg);
    check_cut(cfg);
    check_launch(cfg, names);
    check_slower(cfg);
    check_nonfinite(cfg);
    check_outputs(cfg);
    check_coalesce(cfg);
    check_zero(cfg);
    check_learning_rate(cfg);
    check_devices(cfg, names);
    note_idle_keys(cfg, names);
}
